/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h: runs independent pieces of work in several threads: each thread takes the next piece, until all are done or
 * one has failed. */
#ifndef NTX_COMMON_PIECES_H
#define NTX_COMMON_PIECES_H

#include <stdint.h>

#include "common/err.h"

struct ntx_pieces {
    uint32_t n, threads; /* threads, the caller included; fewer when threads cannot be made. 0: one */
    int (*one)(void *ctx, uint32_t i, struct ntx_err *err);
    void *ctx;
    void (*progress)(void *ctx, uint32_t done, uint32_t total); /* called under a lock; or NULL */
    void *progress_ctx;
};

/* Returns the first failure's code and text. Pieces that have begun are finished. */
int ntx_pieces_do(const struct ntx_pieces *p, struct ntx_err *err);

#endif
