/* SPDX-License-Identifier: Apache-2.0 */
/* program.h: keys of ntx-computed's options (program.c) that have no letter. */
#ifndef NTX_COMPUTED_PROGRAM_H
#define NTX_COMPUTED_PROGRAM_H

enum {
    NTX__OPT_MEMORY_MAX = 256,
    NTX__OPT_PRINT_CONFIG,
    NTX__OPT_CHECK_CONFIG,
    NTX__OPT_MACHINES,
    NTX__OPT_KEEP,
    NTX__OPT_PLACE,
    NTX__OPT_PLACES
};

#endif
