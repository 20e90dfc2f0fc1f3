/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/vision/need.h"

#include "common/util.h"
#include "computed/picture/picture.h"

#define USUAL_SIDE   1024u       /* of a picture that every projector has memory for */
#define DECODE_LEAST (10u << 20) /* for decoding it, a copy with alpha included */
#define ENCODE_SHARE 4           /* a larger picture has at most a part of the budget, */
#define ROWS_SHARE   16          /* and its rows a smaller part */
#define KEPT         8           /* usual pictures whose rows are kept for later texts, in at most the same part */

/* Memory for a picture of this size, as the model sees it. */
static void measure(const struct ntx_vision *v, const struct ntx_fitted *size, uint64_t *encode, uint64_t *image)
{
    const struct ntx_vision_grid grid = ntx_vision_grid_of(v, size);
    *encode = ntx_vision_bytes(v, size) - ntx_vision_weights(v, false);
    *image = ntx_vision_grid_rows(&grid) * ntx_vision_n_embd(v) * (1 + ntx_vision_deep(v)) * sizeof(float);
}

static int measure_square(const struct ntx_vision *v, uint32_t side, uint64_t *encode, uint64_t *image,
                          struct ntx_err *err)
{
    struct ntx_fitted size;
    int rc = ntx_picture_size(ntx_vision_rule(v), side, side, &size, err);
    if (!rc)
        measure(v, &size, encode, image);
    return rc;
}

/* The same for the largest picture. Where the area is bounded, a narrow one is as large as that; padding less than
 * doubles it. */
static int measure_largest(const struct ntx_vision *v, uint64_t *encode, uint64_t *image, struct ntx_err *err)
{
    const struct ntx_picture_rule *r = ntx_vision_rule(v);
    if (r->most_rows) { /* two lines have the fewest learned rows */
        const uint32_t square = r->merge * r->factor;
        measure(v, &(struct ntx_fitted){.width = r->most_rows / 2 * square, .height = 2 * square}, encode, image);
        return 0;
    }
    const uint64_t squares = r->max_pixels / r->factor / r->factor * (r->fit == NTX_FIT_PADDED ? 2 : 1);
    if (!squares)
        return measure_square(v, NTX_PICTURE_SIDE, encode, image, err);
    measure(v, &(struct ntx_fitted){.width = r->factor, .height = (uint32_t)squares * r->factor}, encode, image);
    return 0;
}

int ntx_vision_need_of(const struct ntx_vision *v, uint64_t ram, struct ntx_vision_need *out, struct ntx_err *err)
{
    uint64_t usual, usual_image, largest, largest_image;
    int rc = measure_square(v, USUAL_SIDE, &usual, &usual_image, err);
    if (!rc)
        rc = measure_largest(v, &largest, &largest_image, err);
    if (rc)
        return rc;
    if (ntx_vision_rule(v)->fit == NTX_FIT_FILL ||
        ntx_vision_rule(v)->fit == NTX_FIT_ROWS) { /* whatever its size: most shapes hold more than a square */
        usual = largest;
        usual_image = largest_image;
    }
    *out = (struct ntx_vision_need){.resident = ntx_vision_weights(v, false),
                                    .streamed = ntx_vision_weights(v, true),
                                    .stage = ntx_vision_stage_bytes(v),
                                    .least_encode = NTX_MAX(usual, DECODE_LEAST),
                                    .least_image = usual_image};
    out->encode = NTX_MAX(out->least_encode, NTX_MIN(largest, ram / ENCODE_SHARE));
    out->image = NTX_MAX(usual_image, NTX_MIN(largest_image, ram / ROWS_SHARE));
    out->store = NTX_MAX(out->image, NTX_MIN(KEPT * usual_image, ram / ROWS_SHARE));
    if (ntx_vision_text(v)->bidirectional)
        out->rows_together = (uint32_t)(usual_image / sizeof(float) / ntx_vision_n_embd(v) / (1 + ntx_vision_deep(v)));
    return 0;
}

uint64_t ntx_vision_need_bytes(const struct ntx_vision_need *n)
{
    return (n->streams ? n->streamed : n->resident) + n->encode + 2 * n->image + n->store;
}

uint64_t ntx_vision_need_stage(const struct ntx_vision_need *n) { return n->streams ? n->stage : 0; }

bool ntx_vision_need_stream(struct ntx_vision_need *n)
{
    if (n->streams || n->streamed >= n->resident)
        return false;
    n->streams = true;
    return true;
}

bool ntx_vision_need_shrink(struct ntx_vision_need *n)
{
    const uint64_t before = ntx_vision_need_bytes(n);
    n->encode = n->least_encode;
    n->image = n->store = n->least_image;
    return ntx_vision_need_bytes(n) < before;
}
