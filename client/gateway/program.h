/* SPDX-License-Identifier: Apache-2.0 */
/* program.h: keys of ntx-gateway's options (program.c) that have no letter. */
#ifndef NTX_CLIENT_GATEWAY_PROGRAM_H
#define NTX_CLIENT_GATEWAY_PROGRAM_H

enum {
    NTX__GATEWAY_FD = 256,
    NTX__GATEWAY_STALL,
    NTX__GATEWAY_FIELDS,
    NTX__GATEWAY_CHECK,
    NTX__GATEWAY_STABLE,
    NTX__GATEWAY_KEEP,
    NTX__GATEWAY_MANAGE,
    NTX__GATEWAY_BESIDE,
    NTX__GATEWAY_MANAGE_KEY,
    NTX__GATEWAY_IMAGES
};

#endif
