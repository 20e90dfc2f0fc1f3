/* SPDX-License-Identifier: Apache-2.0 */
/* PNG by libpng: 8-bit RGB or RGBA of any kind of picture, interlaced ones too. 16-bit samples lose their low byte, as
 * in Pillow. */
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "common/util.h"
#include "computed/picture/picture_impl.h"

#define CHUNKS_MOST 1000       /* ancillary chunks that are kept */
#define CHUNK_MOST  (8u << 20) /* bytes of one, unpacked */

struct png_job {
    const struct ntx__picture_file *file;
    size_t at;
    png_structp png;
    png_infop info;
    char text[160];
    uint8_t *pixels; /* with alpha */
    uint8_t **rows;
    volatile bool whole; /* all pixels are there */
};

static void fail_job(png_structp png, png_const_charp text)
{
    struct png_job *j = png_get_error_ptr(png);
    snprintf(j->text, sizeof j->text, "%s", text);
    png_longjmp(png, 1);
}

static void ignore_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void give_bytes(png_structp png, png_bytep to, size_t n)
{
    struct png_job *j = png_get_io_ptr(png);
    if (n > j->file->n - j->at)
        png_error(png, "it ends too early");
    memcpy(to, j->file->data + j->at, n);
    j->at += n;
}

static void begin_reading(struct png_job *j)
{
    png_set_read_fn(j->png, j, give_bytes);
    png_set_user_limits(j->png, NTX_PICTURE_SIDE, NTX_PICTURE_SIDE);
    png_set_chunk_cache_max(j->png, CHUNKS_MOST);
    png_set_chunk_malloc_max(j->png, CHUNK_MOST);
    png_read_info(j->png, j->info);
}

/* All kinds of pictures become RGB or RGBA. */
static bool set_form(struct png_job *j)
{
    png_set_expand(j->png);
    png_set_strip_16(j->png);
    png_set_gray_to_rgb(j->png);
    png_set_interlace_handling(j->png);
    png_read_update_info(j->png, j->info);
    return png_get_channels(j->png, j->info) == 4;
}

static void find_orientation(struct png_job *j, struct ntx__picture_read *p)
{
    png_bytep data;
    png_uint_32 n;
    if (png_get_eXIf_1(j->png, j->info, &n, &data))
        p->orientation = ntx__exif_orientation(data, n);
}

static int read_lines(struct png_job *j, struct ntx__picture_read *p, bool alpha, struct ntx_err *err)
{
    const size_t stride = (alpha ? 4 : 3) * (size_t)p->width;
    j->pixels = alpha ? malloc(stride * p->height) : NULL;
    j->rows = malloc(p->height * sizeof *j->rows);
    if (!j->rows || (alpha && !j->pixels))
        return ntx_err_set(err, -ENOMEM, "%s", NTX__PICTURE_NO_MEMORY);
    for (uint32_t y = 0; y < p->height; y++)
        j->rows[y] = (alpha ? j->pixels : p->rgb) + stride * y;
    png_read_image(j->png, j->rows);
    for (size_t i = 0; alpha && i < (size_t)p->width * p->height; i++)
        for (unsigned c = 0; c < 3; c++)
            p->rgb[3 * i + c] = ntx__picture_over_white(j->pixels[4 * i + c], j->pixels[4 * i + 3]);
    return 0;
}

static int read_picture(struct png_job *j, struct ntx__picture_read *p, struct ntx_err *err)
{
    if (setjmp(png_jmpbuf(j->png)))
        return j->whole ? 0 : ntx_err_set(err, -EINVAL, "the PNG file is damaged: %s", j->text);
    begin_reading(j);
    int rc = ntx__picture_begin(p, png_get_image_width(j->png, j->info), png_get_image_height(j->png, j->info), err);
    if (!rc)
        rc = read_lines(j, p, set_form(j), err);
    if (rc)
        return rc;
    j->whole = true;
    find_orientation(j, p);
    png_read_end(j->png, j->info); /* EXIF may come last */
    find_orientation(j, p);
    return 0;
}

/* libpng 1.6 allocates what a chunk claims to have. A chunk: length, name, data, CRC. */
static bool chunks_fit(const struct ntx__picture_file *f)
{
    for (size_t at = 8; f->n - at >= 12;) {
        const uint8_t *b = f->data + at;
        const uint32_t n = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
        if (n > f->n - at - 12)
            return false;
        at += 12 + (size_t)n;
    }
    return true;
}

int ntx__picture_read_png(const struct ntx__picture_file *f, struct ntx__picture_read *p, struct ntx_err *err)
{
    struct png_job j = {.file = f};
    if (!chunks_fit(f))
        return ntx_err_set(err, -EINVAL, "the PNG file is damaged: it ends too early");
    j.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &j, fail_job, ignore_warning);
    j.info = j.png ? png_create_info_struct(j.png) : NULL;
    int rc = j.info ? read_picture(&j, p, err) : ntx_err_set(err, -ENOMEM, "%s", NTX__PICTURE_NO_MEMORY);
    png_destroy_read_struct(&j.png, &j.info, NULL);
    free(j.pixels);
    free(j.rows);
    return rc;
}
