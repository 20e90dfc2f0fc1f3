/* SPDX-License-Identifier: Apache-2.0 */
/* read.h: the one thing that the core asks for and that a source does: read some blocks of a file into the region. */
#ifndef NTX_IOD_READ_H
#define NTX_IOD_READ_H

#include <stdint.h>

#define NTX_IOD_MAX_READS 128 /* requests in flight at most, whatever their size; sources are made this deep */

/* offset, dest and len are multiples of the region's block, so that O_DIRECT accepts them. At the end of a file the
 * drive has less than len to give: a result of at least `expect` is success. */
struct ntx_iod_read {
    uint64_t tag;    /* names what is read (core.h): io_uring's user_data, given back with the result */
    uint64_t offset; /* in the file */
    uint64_t dest;   /* in the region's bytes */
    uint32_t len;
    uint32_t expect;
    uint32_t file;
    uint32_t chunk; /* UINT32_MAX for a demand */
};

#endif
