/* SPDX-License-Identifier: Apache-2.0 */
/* read.h: a read, which the core requests and a source does: some blocks of a file into the region. */
#ifndef NTX_IOD_READ_H
#define NTX_IOD_READ_H

#include <stdint.h>

#define NTX_IOD_MAX_READS 128 /* requests in flight at most, of any size; sources have room for this many */

/* offset, dest and len are multiples of the region's block, as O_DIRECT requires. At the end of a file the drive has
 * fewer than len bytes: a result of at least `expect` is success. */
struct ntx_iod_read {
    uint64_t tag;    /* names the read (core.h): io_uring's user_data, returned with the result */
    uint64_t offset; /* in the file */
    uint64_t dest;   /* in the region's bytes */
    uint32_t len;
    uint32_t expect;
    uint32_t file;
    uint32_t chunk; /* UINT32_MAX for a demand, NTX_STAGE_CHUNK for the stage */
};

#endif
