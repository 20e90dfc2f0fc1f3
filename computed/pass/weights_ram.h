/* SPDX-License-Identifier: Apache-2.0 */
/* weights_ram.h: weights in a copy of their own (weights.h), for who guesses: of a small model that lies in memory
 * whole; or of a part of a large one, of which only what its chunks name is read, and entries of tables when they are
 * asked for. */
#ifndef NTX_COMPUTED_PASS_WEIGHTS_RAM_H
#define NTX_COMPUTED_PASS_WEIGHTS_RAM_H

#include "computed/pass/weights.h"
#include "model/chunk.h"

struct ntx_ram_weights {
    struct ntx_weights w; /* first: it is one */
    const struct ntx_chunks *chunks;
    uint8_t *bytes; /* of the file, or of the chunks, one behind the other */
    uint64_t n;
    uint64_t *at;   /* [chunks] where each begins; NULL: where it does in the file */
    const int *fds; /* borrowed: what entries are read from. Else they are in bytes */
    uint8_t *page;  /* what is read, where a descriptor takes only whole pages */
};

/* Reads the whole file, which was one part when its header was read; chunks are borrowed. To be freed in any case. */
int ntx_ram_weights_read(struct ntx_ram_weights *w, int fd, uint64_t bytes, const struct ntx_chunks *chunks,
                         struct ntx_err *err);
/* Reads the chunks, from a model's files: descriptors may be O_DIRECT's. fds are borrowed. To be freed in any case. */
int ntx_ram_weights_pick(struct ntx_ram_weights *w, const int *fds, const struct ntx_chunks *chunks,
                         struct ntx_err *err);
uint64_t ntx_ram_weights_pick_bytes(const struct ntx_chunks *chunks); /* memory that it takes */
void ntx_ram_weights_free(struct ntx_ram_weights *w);

#endif
