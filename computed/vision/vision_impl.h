/* SPDX-License-Identifier: Apache-2.0 */
/* vision_impl.h: shared by the files of this room.
 *
 *   vision.c    opens and checks projector files, and runs both parts of a tower
 *   patches.c   a picture as rows: their order, blocks, positions and pixels; squares of states */
#ifndef NTX_COMPUTED_VISION_VISION_IMPL_H
#define NTX_COMPUTED_VISION_VISION_IMPL_H

#include "computed/pass/forward.h"
#include "computed/picture/picture.h"
#include "computed/vision/vision.h"
#include "model/tower.h"

/* Patches in the order of the tower's rows: in windows if it has such, else row by row. */
struct ntx__patches {
    uint32_t columns, rows, n; /* of the grid */
    uint32_t *at;              /* [n] row * columns + column of the patch that is row i of the pass */
    uint32_t *row_of;          /* [n] its inverse */
    uint32_t *block, *n_block; /* [n] the window of row i; NULL: no windows */
    struct ntx_places *places; /* [n]; NULL: no learned positions */
};

uint64_t ntx__patches_bytes(const struct ntx_tower *t, uint64_t n);
/* Sides are multiples of patch x merge. */
int ntx__patches_make(const struct ntx_tower *t, uint32_t width, uint32_t height, struct ntx__patches *out);
void ntx__patches_free(struct ntx__patches *p);
/* out: [n x 3 x patch x patch] pixels of each row: channel by channel, each from the top. */
void ntx__patches_pixels(const struct ntx_tower *t, const struct ntx__patches *p, const struct ntx_pixels *pixels,
                         float *out);
/* states: [n x (1 + n_deep) x embd] by row; out: [squares x (1 + n_deep) x merge^2 x embd], what the projector gets. */
void ntx__patches_join(const struct ntx_tower *t, const struct ntx__patches *p, const float *states, float *out);

#endif
