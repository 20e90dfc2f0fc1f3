/* weights_ram.h: weights of a small model that lies in memory whole, in a copy of its own (weights.h): of a drafter. */
#ifndef NTX_INFER_WEIGHTS_RAM_H
#define NTX_INFER_WEIGHTS_RAM_H

#include "infer/weights.h"
#include "model/chunk.h"

struct ntx_ram_weights {
    struct ntx_weights w; /* first: it is one */
    const struct ntx_chunks *chunks;
    uint8_t *bytes;       /* of the file */
    uint64_t n;
};

/* Reads the whole file, which was one part when its header was read; chunks are borrowed. To be freed in any case. */
int ntx_ram_weights_read(struct ntx_ram_weights *w, int fd, uint64_t bytes, const struct ntx_chunks *chunks, struct ntx_err *err);
void ntx_ram_weights_free(struct ntx_ram_weights *w);

#endif
