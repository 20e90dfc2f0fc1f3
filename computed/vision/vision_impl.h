/* SPDX-License-Identifier: Apache-2.0 */
/* vision_impl.h: shared by the files of this room.
 *
 *   vision.c    opens and checks projector files, and runs both parts of a tower
 *   windows.c   weights that are read anew for each picture
 *   patches.c   a picture as rows: their order, blocks, positions and pixels; squares of states
 *   weave.c     rows with learned ones around and between them */
#ifndef NTX_COMPUTED_VISION_VISION_IMPL_H
#define NTX_COMPUTED_VISION_VISION_IMPL_H

#include <pthread.h>

#include "computed/pass/forward.h"
#include "computed/picture/picture.h"
#include "computed/vision/vision.h"
#include "computed/weights/stage.h"
#include "model/tower.h"

/* Weights that do not stay: ntx-iod reads windows, runs of chunks in the order of use, ahead of the pass into slots of
 * the stage (computed/weights/stage.h). Fixed chunks (vectors, the table of positions) are read before them. Chunks
 * that the pass holds together (ntx_forward_spans) are in one window. */
#define NTX__WINDOW_SLOTS 2u
struct ntx_gguf;
struct ntx__windows {
    struct ntx_weights w; /* first: it is one */
    const struct ntx_chunks *chunks;
    struct ntx_stage *stage;     /* borrowed; NULL: not known yet */
    uint32_t file;               /* of the region */
    const atomic_bool *unwanted; /* of the encode under way; may be NULL */
    uint64_t *at;                /* [chunks] its place in the stage */
    uint32_t *of;                /* [chunks] its window */
    uint32_t n, *first;          /* [n] windows, and the first chunk of each */
    uint64_t slot_bytes, fixed_bytes;
    struct ntx_stage_read *reads; /* [n_reads] those of the fixed chunks, then window by window */
    uint32_t n_reads, n_fixed;
    uint32_t *reads_to;   /* [n] reads up to the end of each window */
    uint32_t *needs;      /* [chunks] reads up to its own */
    pthread_mutex_t lock; /* guards what follows, and w.error */
    uint32_t *left;       /* [n] chunks of each window that are still to be released */
    uint32_t released;    /* the first windows, of which none is left */
};
/* window: most bytes of one, unless a span has more. span: see ntx_forward_spans. Free it in any case. */
int ntx__windows_new(struct ntx__windows *x, const struct ntx_chunks *c, const uint32_t *span, uint64_t window,
                     struct ntx_err *err);
/* Bytes of the stage, and of memory of its own. */
uint64_t ntx__windows_stage(const struct ntx_chunks *c, const uint32_t *span, uint64_t window);
uint64_t ntx__windows_tables(const struct ntx_chunks *c);
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

/* Squares of patches; those at a border may be incomplete. */
uint64_t ntx__squares(const struct ntx_tower *t, uint32_t width, uint32_t height);

/* Learned rows: [NTX_TOWER_MARKS][t->out] of the projector file. */
int ntx__marks_read(const struct ntx_tower *t, const struct ntx_gguf *g, int fd, float **marks, struct ntx_err *err);
/* Rows of a picture of these pixels, with the learned ones. */
uint64_t ntx__woven_rows(const struct ntx_tower *t, const struct ntx_fitted *size);
/* rows: [columns x rows of the grid][t->out], values: [ntx__woven_rows][t->out]. */
void ntx__weave(const struct ntx_tower *t, const struct ntx_fitted *size, const float *marks, const float *rows,
                float *values);

#endif
