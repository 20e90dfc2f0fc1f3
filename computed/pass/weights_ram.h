/* SPDX-License-Identifier: Apache-2.0 */
/* weights_ram.h: weights in memory of their own (weights.h), for drafters: of a small model, or of a part of a large
 * one. The listed chunks are read once, and table entries when they are wanted. */
#ifndef NTX_COMPUTED_PASS_WEIGHTS_RAM_H
#define NTX_COMPUTED_PASS_WEIGHTS_RAM_H

#include "computed/pass/weights.h"
#include "model/chunk.h"

struct ntx_ram_weights {
    struct ntx_weights w; /* first: it is one */
    const struct ntx_chunks *chunks;
    uint8_t *bytes; /* the chunks one behind the other, or (lent) a file's bytes by their offsets */
    bool lent;
    uint64_t n;
    uint64_t *at;   /* [chunks] offset of each */
    const int *fds; /* borrowed: entries are read from these */
    uint8_t *page;  /* buffer for descriptors that read only whole pages */
};

/* Reads the listed chunks from a model's files; the descriptors may have O_DIRECT. fds are borrowed. Free it in any
 * case. */
int ntx_ram_weights_pick(struct ntx_ram_weights *w, const int *fds, const struct ntx_chunks *chunks,
                         struct ntx_err *err);
/* The same with weights that others hold in memory: `file`, as long as the first file up to offset `bytes`, is borrowed
 * and only read. */
int ntx_ram_weights_lent(struct ntx_ram_weights *w, const int *fds, const struct ntx_chunks *chunks,
                         const uint8_t *file, uint64_t bytes, struct ntx_err *err);
uint64_t ntx_ram_weights_lent_bytes(const struct ntx_chunks *chunks); /* bytes of memory of its own */
uint64_t ntx_ram_weights_pick_bytes(const struct ntx_chunks *chunks); /* bytes of memory that it takes */
void ntx_ram_weights_free(struct ntx_ram_weights *w);

#endif
