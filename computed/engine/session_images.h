/* SPDX-License-Identifier: Apache-2.0 */
/* session_images.h: where the images of a session's text are: runs of its tokens that are rows of an image. */
#ifndef NTX_COMPUTED_ENGINE_SESSION_IMAGES_H
#define NTX_COMPUTED_ENGINE_SESSION_IMAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/engine/images.h"

struct ntx_image_span { /* tokens[at .. at + n) are rows first .. first + n of the image */
    uint32_t at, n, first;
    struct ntx_image *image; /* a reference */
};

struct ntx_image_spans {
    struct ntx_image_span *span; /* [n] ascending */
    uint32_t n, room;
    bool mrope, bidirectional; /* as struct ntx_vision_text has it, once there is one */
    uint32_t lead;             /* the same */
};

/* Takes over the image's reference, also when it fails. */
int ntx_image_spans_add(struct ntx_image_spans *x, uint32_t at, uint32_t n, uint32_t first, struct ntx_image *image);
/* Appends the spans of `more`, moved by so many tokens; `more` is empty then. On an error nothing has changed. */
int ntx_image_spans_join(struct ntx_image_spans *x, struct ntx_image_spans *more, uint32_t by);
/* Leaves out rows of padding before images (struct ntx_vision_text, lead) of n tokens ids, which will stand behind
 * `before` others. Returns how many tokens are left. */
uint32_t ntx_image_spans_align(struct ntx_image_spans *x, uint32_t before, int32_t *ids, uint32_t n);
void ntx_image_spans_cut(struct ntx_image_spans *x, uint32_t n_tokens); /* drops those from token n_tokens on */
void ntx_image_spans_free(struct ntx_image_spans *x);
uint32_t ntx_image_spans_rows(const struct ntx_image_spans *x);  /* tokens that are rows of an image */
uint64_t ntx_image_spans_bytes(const struct ntx_image_spans *x); /* each image counts once */

/* The row of an image that token i is, or NULL: n_embd x (1 + *deep) values. */
const float *ntx_image_spans_values(const struct ntx_image_spans *x, uint32_t i, uint32_t *deep);
/* The place of token i (ntx_row): with M-RoPE an image's rows stand in its grid, which begins where the text before it
 * ends, and the text goes on behind the larger side of the grid. False: all places are positions. */
bool ntx_image_spans_place(const struct ntx_image_spans *x, uint32_t i, uint32_t place[3]);
/* Tokens from i on, at least 1, that one pass must have together: the rest of an image whose rows see one another. */
uint32_t ntx_image_spans_together(const struct ntx_image_spans *x, uint32_t i);
uint32_t ntx_image_spans_before(const struct ntx_image_spans *x, uint32_t i); /* tokens of that image before token i */
uint32_t ntx_image_spans_most(const struct ntx_image_spans *x);               /* the most of these anywhere */

#endif
