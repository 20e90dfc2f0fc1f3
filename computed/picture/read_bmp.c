/* SPDX-License-Identifier: Apache-2.0 */
/* BMP, as Microsoft documents BITMAPFILEHEADER, BITMAPINFOHEADER and its successors: palettes of 1, 4 and 8 bits, 16,
 * 24 and 32 bits by fixed or given masks. Compressed ones are refused. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/picture/picture_impl.h"

enum { BMP_RGB = 0, BMP_FIELDS = 3, BMP_ALPHA_FIELDS = 6, FILE_HEAD = 14 };

struct bmp {
    const uint8_t *data;
    size_t n;
    size_t pixels, palette; /* offsets */
    uint32_t bits, colors, entry;
    uint32_t width, height;
    bool from_top;
    uint32_t mask[4];
};

static uint32_t bmp_u16(const struct bmp *b, size_t at)
{
    return (uint32_t)b->data[at] | (uint32_t)b->data[at + 1] << 8;
}

static uint32_t bmp_u32(const struct bmp *b, size_t at) { return bmp_u16(b, at) | bmp_u16(b, at + 2) << 16; }

static int bmp_damaged(struct ntx_err *err, const char *why)
{
    return ntx_err_set(err, -EINVAL, "the BMP file is damaged: %s", why);
}

/* The header of OS/2 has 16-bit sides, and palette entries of 3 bytes. */
static void parse_core_header(struct bmp *b)
{
    b->width = bmp_u16(b, FILE_HEAD + 4);
    b->height = bmp_u16(b, FILE_HEAD + 6);
    b->bits = bmp_u16(b, FILE_HEAD + 10);
    b->entry = 3;
}

static int parse_info_header(struct bmp *b, uint32_t head, struct ntx_err *err)
{
    const int32_t width = (int32_t)bmp_u32(b, FILE_HEAD + 4), height = (int32_t)bmp_u32(b, FILE_HEAD + 8);
    const uint32_t method = bmp_u32(b, FILE_HEAD + 16);
    if (width <= 0 || !height || height == INT32_MIN)
        return bmp_damaged(err, "its sides");
    if (method != BMP_RGB && method != BMP_FIELDS && method != BMP_ALPHA_FIELDS)
        return ntx_err_set(err, -EINVAL, "the BMP file is compressed (kind %u), which is not decoded: save it as PNG",
                           method);
    b->width = (uint32_t)width;
    b->height = height < 0 ? (uint32_t)-height : (uint32_t)height;
    b->from_top = height < 0;
    b->bits = bmp_u16(b, FILE_HEAD + 14);
    b->colors = bmp_u32(b, FILE_HEAD + 32);
    b->entry = 4;
    if (method == BMP_RGB)
        return 0;
    if (b->n < FILE_HEAD + 40 + 16 || (b->bits != 16 && b->bits != 32))
        return bmp_damaged(err, "its masks");
    for (unsigned c = 0; c < 4; c++) /* behind the header, or in a longer one */
        b->mask[c] = c < 3 || method == BMP_ALPHA_FIELDS || head >= 56 ? bmp_u32(b, FILE_HEAD + 40 + 4 * c) : 0;
    if (head < 52)
        b->palette += method == BMP_ALPHA_FIELDS ? 16 : 12;
    return 0;
}

static int parse_bmp(struct bmp *b, struct ntx_err *err)
{
    static const uint32_t five[4] = {0x7c00, 0x3e0, 0x1f, 0}, eight[4] = {0xff0000, 0xff00, 0xff, 0};
    const uint32_t head = b->n >= FILE_HEAD + 12 ? bmp_u32(b, FILE_HEAD) : 0;
    if (head != 12 && (head < 40 || head > 200))
        return bmp_damaged(err, "its header");
    if (head > b->n - FILE_HEAD)
        return bmp_damaged(err, "it ends too early");
    b->pixels = bmp_u32(b, 10);
    b->palette = FILE_HEAD + head;
    if (head == 12)
        parse_core_header(b);
    else {
        int rc = parse_info_header(b, head, err);
        if (rc)
            return rc;
    }
    if (b->bits <= 8 && (!b->colors || b->colors > 1u << b->bits))
        b->colors = 1u << b->bits;
    if (b->bits != 1 && b->bits != 4 && b->bits != 8 && b->bits != 16 && b->bits != 24 && b->bits != 32)
        return ntx_err_set(err, -EINVAL, "the BMP file has %u bits a pixel, which is not decoded: save it as PNG",
                           b->bits);
    if (b->bits > 8 && !b->mask[0] && !b->mask[1] && !b->mask[2])
        memcpy(b->mask, b->bits == 16 ? five : eight, sizeof b->mask);
    if (b->bits <= 8 && (b->palette > b->n || (uint64_t)b->colors * b->entry > b->n - b->palette))
        return bmp_damaged(err, "its palette");
    return 0;
}

/* The field of a mask, stretched to 8 bits. */
static uint8_t take_field(uint32_t pixel, uint32_t mask)
{
    if (!mask)
        return 0;
    const unsigned shift = (unsigned)__builtin_ctz(mask);
    const uint32_t most = mask >> shift, v = (pixel & mask) >> shift;
    return (uint8_t)(((uint64_t)v * 255 + most / 2) / most);
}

static void draw_indexed(const struct bmp *b, const uint8_t *line, uint8_t *to)
{
    for (uint32_t x = 0; x < b->width; x++) {
        const uint32_t bit = x * b->bits, index = line[bit / 8] >> (8 - b->bits - bit % 8) & ((1u << b->bits) - 1);
        const uint8_t *c = b->data + b->palette + (size_t)NTX_MIN(index, b->colors - 1) * b->entry;
        for (unsigned k = 0; k < 3; k++)
            to[3 * x + k] = c[2 - k];
    }
}

static void draw_masked(const struct bmp *b, const uint8_t *line, uint8_t *to)
{
    const unsigned bytes = b->bits / 8;
    for (uint32_t x = 0; x < b->width; x++) {
        uint32_t pixel = 0;
        for (unsigned k = 0; k < bytes; k++)
            pixel |= (uint32_t)line[(size_t)x * bytes + k] << 8 * k;
        const uint8_t alpha = b->mask[3] ? take_field(pixel, b->mask[3]) : 255;
        for (unsigned c = 0; c < 3; c++)
            to[3 * (size_t)x + c] = ntx__picture_over_white(take_field(pixel, b->mask[c]), alpha);
    }
}

int ntx__picture_read_bmp(const struct ntx__picture_file *f, struct ntx__picture_read *p, struct ntx_err *err)
{
    struct bmp b = {.data = f->data, .n = f->n};
    int rc = parse_bmp(&b, err);
    if (!rc)
        rc = ntx__picture_begin(p, b.width, b.height, err);
    if (rc)
        return rc;
    const uint64_t stride = ((uint64_t)b.width * b.bits + 31) / 32 * 4;
    if (b.pixels > b.n || stride * b.height > b.n - b.pixels)
        return bmp_damaged(err, "it ends too early");
    for (uint32_t y = 0; y < b.height; y++) {
        const uint8_t *line = b.data + b.pixels + stride * (b.from_top ? y : b.height - 1 - y);
        uint8_t *to = p->rgb + 3 * (size_t)b.width * y;
        if (b.bits <= 8)
            draw_indexed(&b, line, to);
        else
            draw_masked(&b, line, to);
    }
    return 0;
}
