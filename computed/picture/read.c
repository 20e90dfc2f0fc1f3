/* SPDX-License-Identifier: Apache-2.0 */
/* A file of any kind as an upright picture. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "computed/picture/picture_impl.h"

int ntx__picture_begin(struct ntx__picture_read *p, uint64_t width, uint64_t height, struct ntx_err *err)
{
    if (!width || !height)
        return ntx_err_set(err, -EINVAL, "the picture has no pixels");
    if (width > NTX_PICTURE_SIDE || height > NTX_PICTURE_SIDE || width * height > NTX_PICTURE_PIXELS)
        return ntx_err_set(err, -EFBIG,
                           "the picture has %llu x %llu pixels: at most %u a side and %u million are decoded; make it "
                           "smaller",
                           (unsigned long long)width, (unsigned long long)height, NTX_PICTURE_SIDE,
                           NTX_PICTURE_PIXELS / 1000000u);
    if (3 * width * height > p->n_room)
        return ntx_err_set(err, -ENOMEM,
                           "the picture has %llu x %llu pixels, and --ram leaves memory for %llu million: make it "
                           "smaller, or give more --ram",
                           (unsigned long long)width, (unsigned long long)height,
                           (unsigned long long)p->n_room / 3000000);
    p->rgb = p->room;
    memset(p->rgb, 255, 3 * (size_t)(width * height));
    p->width = (uint32_t)width;
    p->height = (uint32_t)height;
    return 0;
}

/* Where pixel (x, y) of the upright picture is in the file's: EXIF's orientations 1 to 8. */
static size_t source_of(const struct ntx__picture_read *p, uint32_t x, uint32_t y)
{
    const uint32_t right = p->width - 1, bottom = p->height - 1;
    const size_t w = p->width;
    switch (p->orientation) {
    case 2: return y * w + (right - x);
    case 3: return (bottom - y) * w + (right - x);
    case 4: return (bottom - y) * w + x;
    case 5: return x * w + y;
    case 6: return (bottom - x) * w + y;
    case 7: return (bottom - x) * w + (right - y);
    case 8: return x * w + (right - y);
    default: return y * w + x;
    }
}

/* Turns the picture upright. */
static int turn(const struct ntx__picture_read *p, struct ntx_picture *out, struct ntx_err *err)
{
    const size_t bytes = 3 * (size_t)p->width * p->height;
    const bool sideways = p->orientation >= 5;
    *out = (struct ntx_picture){sideways ? p->height : p->width, sideways ? p->width : p->height, p->rgb};
    if (p->orientation < 2)
        return 0;
    uint8_t *from = malloc(bytes), *to = p->rgb;
    if (!from)
        return ntx_err_set(err, -ENOMEM, "%s", NTX__PICTURE_NO_MEMORY);
    memcpy(from, p->rgb, bytes);
    for (uint32_t y = 0; y < out->height; y++)
        for (uint32_t x = 0; x < out->width; x++, to += 3)
            memcpy(to, from + 3 * source_of(p, x, y), 3);
    free(from);
    return 0;
}

static int read_kind(const struct ntx__picture_file *f, struct ntx__picture_read *p, struct ntx_err *err)
{
    switch (ntx_picture_kind(f->data, f->n)) {
    case NTX_PICTURE_JPEG: return ntx__picture_read_jpeg(f, p, err);
    case NTX_PICTURE_PNG: return ntx__picture_read_png(f, p, err);
    case NTX_PICTURE_WEBP: return ntx__picture_read_webp(f, p, err);
    case NTX_PICTURE_GIF: return ntx__picture_read_gif(f, p, err);
    case NTX_PICTURE_BMP: return ntx__picture_read_bmp(f, p, err);
    case NTX_PICTURE_NONE: break;
    }
    return ntx_picture_check(f->data, f->n, err);
}

int ntx__picture_read(const struct ntx__picture_file *f, uint8_t *room, size_t n_room, struct ntx_picture *out,
                      struct ntx_err *err)
{
    struct ntx__picture_read p = {.room = room, .n_room = n_room};
    errno = 0;
    int rc = read_kind(f, &p, err);
    if (!rc)
        rc = turn(&p, out, err);
    /* libraries that lack memory may call the file damaged */
    if ((rc == -EINVAL && errno == ENOMEM) || (rc == -ENOMEM && !strcmp(err->text, NTX__PICTURE_NO_MEMORY)))
        rc = ntx_err_set(err, -ENOMEM,
                         "decoding the picture of %u x %u pixels takes more memory than --ram leaves for it: make it "
                         "smaller, or give more --ram",
                         p.width, p.height);
    return rc;
}
