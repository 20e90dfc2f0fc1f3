/* SPDX-License-Identifier: Apache-2.0 */
/* picture.h: from a picture's file to the pixels that a vision tower takes.
 *
 *   file bytes --decode, in a process of its own--> 8-bit sRGB, upright --fit, normalise--> planes of floats
 *
 * A file may be hostile, and libraries for pictures have had faults. So a process decodes it that can do nothing but
 * compute: seccomp, no files, bounds on memory and time, and the size of the picture is checked before any pixel is.
 * See SECURITY.md.
 *
 * Any thread; nothing is kept between calls. Outputs are untouched when a call fails. */
#ifndef NTX_COMPUTED_PICTURE_PICTURE_H
#define NTX_COMPUTED_PICTURE_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_PICTURE_BYTES  (64u << 20) /* most bytes of a file */
#define NTX_PICTURE_SIDE   32768u      /* most pixels of a side */
#define NTX_PICTURE_PIXELS (80u << 20) /* most pixels: 240 MiB */

struct ntx_picture {
    uint32_t width, height;
    uint8_t *rgb; /* [height][width][3], from the top; free by ntx_picture_free */
};

/* Decodes a JPEG, PNG, WebP, GIF (its first frame) or BMP file. The EXIF orientation is applied, transparent pixels lie
 * on white, CMYK and 16-bit samples become 8-bit RGB. memory: bytes that all of this may take, a copy of the file and
 * the pixels included; 0: what the largest picture takes. -EINVAL: no picture, damaged, or of a kind that the error
 * names; -EFBIG: too large; -ENOMEM: `memory` is too little; -ETIMEDOUT, -EIO: the decoding process came to its other
 * bounds, or died; -ENOTSUP: it could not be confined. */
int ntx_picture_decode(const void *data, size_t n, uint64_t memory, struct ntx_picture *out, struct ntx_err *err);
void ntx_picture_free(struct ntx_picture *p);

/* The process that decodes is this program, started again with this one argument. So main() of every program that
 * decodes returns ntx_picture_process() for it, before anything else. */
#define NTX_PICTURE_PROCESS "--decode-picture"
int ntx_picture_process(void);

enum ntx_picture_fit {
    NTX_FIT_MULTIPLE, /* Qwen: both sides multiples of `factor`, pixels within [min_pixels, max_pixels] */
    NTX_FIT_FILL,     /* Gemma 4: the same, but as many pixels as max_pixels allow, also of a small picture */
    NTX_FIT_SQUARE,   /* Gemma 3: size x size */
    NTX_FIT_CANVAS, /* GLM-5.3-Flash: sides multiples of `factor`, pixels within bounds; the picture is made smaller if
                         it must, and larger below min_pixels, and lies in the upper left corner, on black */
    NTX_FIT_PADDED, /* Kimi: the same without min_pixels; sides at most `size`, max_pixels are of whole patches */
    /* DeepSeek V4: sides multiples of `factor`, enlarged below min_pixels. Squares of merge x merge such multiples
     * become rows, with one more for each line of them and some around all, at most most_rows. The picture keeps its
     * shape and lies in the middle, on grey; one that is 8 times as wide as high, or more, is stretched. */
    NTX_FIT_ROWS,
    NTX_FIT_LONGEST, /* Pixtral: the longest side at most `size`, both multiples of `factor` */
    /* Llama 4: at most `tiles` tiles of size x size that are a rectangle; the picture keeps its shape, is enlarged only
     * below `size`, and lies in the upper left corner, on black. Beside more than one tile there is the whole picture,
     * as one of size x size. */
    NTX_FIT_TILES
};

/* Both with antialiasing, as Pillow and torchvision have it. */
enum ntx_picture_filter { NTX_FILTER_BILINEAR, NTX_FILTER_BICUBIC };

struct ntx_picture_rule {
    enum ntx_picture_fit fit;
    uint32_t factor, size, patch; /* patch: for NTX_FIT_PADDED */
    uint32_t tiles;
    uint32_t merge, most_rows; /* for NTX_FIT_ROWS */
    uint64_t min_pixels, max_pixels;
    enum ntx_picture_filter filter;
    float mean[3], deviation[3]; /* of values between 0 and 1; per channel, in the order of RGB */
    bool bfloat;                 /* each step of the normalisation is rounded to bfloat16 */
};

struct ntx_fitted { /* pixels that the model sees of a picture */
    uint32_t width, height;
    uint32_t over_width, over_height; /* of the whole picture, beside its tiles; 0: none */
};

/* Rows of `columns` x `rows` squares with the learned ones: a row behind each line, lines in pairs, one before all and
 * one behind; their number is even in pairs, else two more follow. Source: llama.cpp's mtmd. */
static inline uint64_t ntx_picture_rows(uint64_t columns, uint64_t rows)
{
    const uint64_t pairs = (rows + 1) / 2 * (columns + 1);
    return 1 + 2 * pairs + pairs % 2 * 2 + 1;
}

/* -EINVAL: no picture of this shape can be fitted. */
int ntx_picture_size(const struct ntx_picture_rule *r, uint32_t width, uint32_t height, struct ntx_fitted *out,
                     struct ntx_err *err);

struct ntx_pixels {
    struct ntx_fitted size;
    float *planes; /* [3][height][width], malloc'd: (value / 255 - mean) / deviation */
    float *over;   /* the same of the whole picture, or NULL */
};

/* Fits a picture to a rule. The bits depend on nothing else. */
int ntx_picture_pixels(const struct ntx_picture_rule *r, const struct ntx_picture *p, struct ntx_pixels *out,
                       struct ntx_err *err);
void ntx_pixels_free(struct ntx_pixels *p);

#endif
