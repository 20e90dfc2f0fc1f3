/* SPDX-License-Identifier: Apache-2.0 */
/* vision_impl.h: shared by the files of this room.
 *
 *   vision.c    opens and checks projector files, and runs both parts of a tower
 *   windows.c   weights that are read anew for each picture
 *   patches.c   a picture as rows: their order, blocks, positions and pixels; squares of states */
#ifndef NTX_COMPUTED_VISION_VISION_IMPL_H
#define NTX_COMPUTED_VISION_VISION_IMPL_H

#include <pthread.h>

#include "computed/pass/forward.h"
#include "computed/picture/picture.h"
#include "computed/vision/vision.h"
#include "model/tower.h"

/* Weights that do not stay: a thread reads windows, runs of chunks in the order of use, ahead of the pass into slots.
 * Memory is there only during a pass. Fixed chunks (vectors, the table of positions) are read when it begins. Chunks
 * that the pass holds together (ntx_forward_spans) are in one window. */
#define NTX__WINDOW_SLOTS 2u
struct ntx__windows {
    struct ntx_weights w; /* first: it is one */
    int fd;               /* borrowed; reads by O_DIRECT where the file system has it */
    const struct ntx_chunks *chunks;
    uint64_t *at;       /* [chunks] its place in the slot, or among the fixed ones */
    uint32_t *of;       /* [chunks] its window */
    uint32_t n, *first; /* [n] windows, and the first chunk of each */
    uint64_t slot_bytes, fixed_bytes;
    uint8_t *slots, *fixed; /* during a pass */
    pthread_t thread;
    bool reads;           /* there is a thread */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;
    uint32_t ready; /* windows that were read */
    uint32_t *left; /* [n] chunks of each that are still to be released */
    int failed;
    bool quit;
};
/* window: most bytes of one, unless a span has more. span: see ntx_forward_spans. The descriptor gets O_DIRECT. Free it
 * in any case. */
int ntx__windows_new(struct ntx__windows *x, int fd, const struct ntx_chunks *c, const uint32_t *span, uint64_t window,
                     struct ntx_err *err);
/* Memory during a pass. */
uint64_t ntx__windows_bytes(const struct ntx_chunks *c, const uint32_t *span, uint64_t window);
void ntx__windows_free(struct ntx__windows *x); /* also zeroed ones */

/* Parts of a picture that see nothing of each other: its tiles and the whole picture beside them, or the one picture
 * that is not cut. */
struct ntx__patches_part {
    uint32_t first;         /* row of the pass */
    uint32_t columns, rows; /* patches */
    uint32_t x, y;          /* its left upper pixel */
    bool over;              /* of the whole picture */
};

/* Patches in the order of the tower's rows, part by part: in windows if it has such, square by square with a band, else
 * row by row. */
struct ntx__patches {
    struct ntx__patches_part *part;
    uint32_t n_parts, n; /* n: rows of all parts, extra ones included */
    uint32_t *at;        /* [n] row * columns + column, in its part, of the patch that is row i of the pass; NTX__EXTRA:
                            it has no patch */
    uint32_t *row_of;    /* [n] of the part's patch k: row_of[first + k] */
    uint32_t *block, *n_block; /* [n] the window or the part of row i; NULL: none */
    uint32_t *by_columns; /* [n] number of row i if squares go from column to column; NULL: no tower's with a band */
    struct ntx_places *places; /* [n]; NULL: no learned positions */
};
#define NTX__EXTRA UINT32_MAX

uint64_t ntx__patches_bytes(const struct ntx_tower *t, uint64_t n);
/* Sides are multiples of patch x merge, and of tiles. */
int ntx__patches_make(const struct ntx_tower *t, const struct ntx_fitted *size, struct ntx__patches *out);
void ntx__patches_free(struct ntx__patches *p);
/* out: [n x 3 x patch x patch] pixels of each row: channel by channel, each from the top. */
void ntx__patches_pixels(const struct ntx_tower *t, const struct ntx__patches *p, const struct ntx_pixels *pixels,
                         float *out);
/* states: [n x (1 + n_deep) x embd] by row; out: [squares x (1 + n_deep) x merge^2 x embd], what the projector gets of
 * `squares` squares from `first` on. */
void ntx__patches_join(const struct ntx_tower *t, const struct ntx__patches *p, const float *states, size_t first,
                       size_t squares, float *out);

#endif
