/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h: pieces of work that do not depend on each other, done by several threads: each takes the next one, until
 * all are done or one has failed. */
#ifndef NTX_COMMON_PIECES_H
#define NTX_COMMON_PIECES_H

#include <stdint.h>

#include "common/err.h"

struct ntx_pieces {
    uint32_t n, threads; /* threads, the caller among them: as many as can be had; 0: one */
    int (*one)(void *ctx, uint32_t i, struct ntx_err *err);
    void *ctx;
    void (*progress)(void *ctx, uint32_t done, uint32_t total); /* under a lock; or NULL */
    void *progress_ctx;
};

/* The first failure's code and text; what has begun is then finished. */
int ntx_pieces_do(const struct ntx_pieces *p, struct ntx_err *err);

#endif
