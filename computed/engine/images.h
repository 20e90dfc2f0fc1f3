/* SPDX-License-Identifier: Apache-2.0 */
/* images.h: pictures that have become rows of the model's input, so that none is encoded twice. An image is constant;
 * sessions whose text has it, and the store, have references.
 *
 *   a picture's bytes --digest--> memory? --> file in the state directory? --> encode (picture room, vision room)
 *
 * The digest covers the bytes, the reader of the text, and all that rows depend on besides (`of`). In a session's
 * tokens each row of an image has a number below -1, which the digest determines. So texts with the same picture have
 * the same tokens, and the prefix cache and the prefix store tell pictures apart as they tell tokens apart.
 *
 *   DIGEST.rows   mode 0600: struct ntx_image_head, values. The longest unused files are removed where there are more
 *                 bytes than allowed. A torn file is encoded anew.
 *
 * The reader's thread finds images and the encoder's thread makes them (reader.h); any thread may give references
 * back. */
#ifndef NTX_COMPUTED_ENGINE_IMAGES_H
#define NTX_COMPUTED_ENGINE_IMAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/vision/vision.h"

#define NTX_IMAGE_DIGEST 32
#define NTX_IMAGES_SHARE 4 /* files of rows have one in so many bytes of --state-max */

struct ntx_image {
    atomic_uint refs;
    uint8_t digest[NTX_IMAGE_DIGEST];
    struct ntx_vision_grid grid;
    uint32_t n_embd, deep; /* a row: n_embd x (1 + deep) floats (vision.h) */
    float *values;
};

static inline uint64_t ntx_image_width(const struct ntx_image *m) { return (uint64_t)m->n_embd * (1 + m->deep); }
static inline uint64_t ntx_image_bytes(const struct ntx_image *m)
{
    return ntx_vision_grid_rows(&m->grid) * ntx_image_width(m) * sizeof(float);
}
struct ntx_image *ntx_image_ref(struct ntx_image *m);
void ntx_image_unref(struct ntx_image *m); /* NULL is fine */
/* The number below -1 of row i (in the order of vision.h) among a session's tokens. */
int32_t ntx_image_token(const struct ntx_image *m, uint32_t i);

struct ntx_images;
struct ntx_images_config {
    /* Makes rows of a picture's n bytes; their `values` are malloc'd. Returns as ntx_vision_encode; -EINVAL: it is no
     * picture. */
    int (*encode)(void *ctx, const void *data, size_t n, const atomic_bool *unwanted, struct ntx_vision_rows *rows,
                  struct ntx_err *err);
    void *ctx;
    const struct ntx_vision_text *text; /* how rows stand in the text; borrowed */
    uint32_t n_embd;
    uint64_t most;      /* bytes in memory of images that no session has */
    const char *of;     /* what rows depend on besides the picture: build, projector, rule of fitting */
    const char *dir;    /* "": no files */
    uint64_t most_file; /* bytes of all files */
};

int ntx_images_new(const struct ntx_images_config *c, struct ntx_images **out, struct ntx_err *err);
void ntx_images_free(struct ntx_images *s); /* NULL is fine */
const struct ntx_vision_text *ntx_images_text(const struct ntx_images *s);
/* A reference to the image of a picture, for a reader of this scope (prefix.h). NULL: it must be encoded. */
struct ntx_image *ntx_images_find(struct ntx_images *s, uint64_t scope, const void *data, size_t n);
/* The same, and encodes the picture if need be: a reference in *out. One thread. */
int ntx_images_get(struct ntx_images *s, uint64_t scope, const void *data, size_t n, const atomic_bool *unwanted,
                   struct ntx_image **out, struct ntx_err *err);
uint64_t ntx_images_encoded(const struct ntx_images *s); /* pictures encoded so far */

struct ntx_image_head { /* of a file */
    char magic[8];
    struct ntx_vision_grid grid;
    uint32_t n_embd, deep;
    uint8_t digest[NTX_IMAGE_DIGEST];
    uint8_t sum[8]; /* of this struct with zeros in its place, and the values */
};

#endif
