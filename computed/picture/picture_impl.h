/* SPDX-License-Identifier: Apache-2.0 */
/* picture_impl.h: internals of the picture room. The decoders run in the confined process only (decode_process.c):
 *
 *   decode.c          the caller's side: starts the process, bounds it, takes its pixels
 *   decode_process.c  the process: sandbox and bounds
 *   read.c            kind of file, size, orientation
 *   read_*.c          a reader for each format
 *   exif.c            the orientation of a photograph
 *   fit.c             sizes by the models' rules
 *   resize.c          resampling as Pillow does it, and normalised planes */
#ifndef NTX_COMPUTED_PICTURE_PICTURE_IMPL_H
#define NTX_COMPUTED_PICTURE_PICTURE_IMPL_H

#include <stdbool.h>

#include "common/picture_kind.h"
#include "computed/picture/picture.h"

/* The descriptors of the process at its start. */
#define NTX__PICTURE_SOCK 3 /* its verdict */
#define NTX__PICTURE_FILE 4 /* memory: struct ntx__picture_order, and the file's bytes */
#define NTX__PICTURE_OUT  5 /* memory for pixels */

struct ntx__picture_order {
    uint64_t room, heap; /* bytes for pixels; for all else */
};

struct ntx__picture_verdict {
    int32_t rc;
    uint32_t width, height;
    char text[sizeof((struct ntx_err *)0)->text];
};

struct ntx__picture_file {
    const uint8_t *data;
    size_t n;
};

/* A picture that is being read: its sides once they are checked, memory for its pixels, its orientation (EXIF, 1 to 8;
 * 0: none). */
struct ntx__picture_read {
    uint32_t width, height;
    uint8_t *rgb; /* [height][width][3] */
    unsigned orientation;
    uint8_t *room; /* for pixels, */
    size_t n_room; /* of so many bytes */
};

/* Each reads a file of its format. */
int ntx__picture_read_jpeg(const struct ntx__picture_file *f, struct ntx__picture_read *p, struct ntx_err *err);
int ntx__picture_read_png(const struct ntx__picture_file *f, struct ntx__picture_read *p, struct ntx_err *err);
int ntx__picture_read_webp(const struct ntx__picture_file *f, struct ntx__picture_read *p, struct ntx_err *err);
int ntx__picture_read_gif(const struct ntx__picture_file *f, struct ntx__picture_read *p, struct ntx_err *err);
int ntx__picture_read_bmp(const struct ntx__picture_file *f, struct ntx__picture_read *p, struct ntx_err *err);

/* Reads any of them and turns it upright. out->rgb is `room`, of n_room bytes. */
int ntx__picture_read(const struct ntx__picture_file *f, uint8_t *room, size_t n_room, struct ntx_picture *out,
                      struct ntx_err *err);

#define NTX__PICTURE_NO_MEMORY "no memory" /* the text of their errors for want of it */

/* Checks the sides and makes rgb white. */
int ntx__picture_begin(struct ntx__picture_read *p, uint64_t width, uint64_t height, struct ntx_err *err);
/* The tag Orientation of a block of EXIF data (from its byte order on), or 0. */
unsigned ntx__exif_orientation(const uint8_t *tiff, size_t n);

/* alpha of 255 parts over white, as Pillow's paste rounds. */
static inline uint8_t ntx__picture_over_white(uint8_t value, uint8_t alpha)
{
    const unsigned t = (unsigned)value * alpha + 255u * (255u - alpha) + 128u;
    return (uint8_t)((t + (t >> 8)) >> 8);
}

/* The size of the picture's own pixels within the fitted ones, of which ntx_picture_size gives the size. */
void ntx__picture_content(const struct ntx_picture_rule *r, uint32_t width, uint32_t height,
                          const struct ntx_fitted *fit, uint32_t *own_width, uint32_t *own_height);

/* Resamples 8-bit samples as Pillow's Image.resize does, bit by bit. -ENOMEM. */
int ntx__picture_resize(const struct ntx_picture *p, uint32_t width, uint32_t height, enum ntx_picture_filter filter,
                        uint8_t *out);

#endif
