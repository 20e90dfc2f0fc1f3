/* SPDX-License-Identifier: Apache-2.0 */
/* EXIF is a TIFF structure: a byte order, the offset of a directory, and its entries of 12 bytes (tag, type, count,
 * value). JEITA CP-3451, section 4. */
#include "computed/picture/picture_impl.h"

#define TAG_ORIENTATION 0x0112u
#define TYPE_SHORT      3u

struct tiff {
    const uint8_t *data;
    size_t n;
    bool big_endian;
};

static uint32_t tiff_short(const struct tiff *t, size_t at)
{
    const uint8_t *b = t->data + at;
    return t->big_endian ? (uint32_t)b[0] << 8 | b[1] : (uint32_t)b[1] << 8 | b[0];
}

static uint32_t tiff_long(const struct tiff *t, size_t at)
{
    const uint32_t a = tiff_short(t, at), b = tiff_short(t, at + 2);
    return t->big_endian ? a << 16 | b : b << 16 | a;
}

unsigned ntx__exif_orientation(const uint8_t *data, size_t n)
{
    if (n >= 6 && data[0] == 'E' && data[1] == 'x' && data[2] == 'i' &&
        data[3] == 'f') { /* as JPEG and some WebP have it */
        data += 6;
        n -= 6;
    }
    struct tiff t = {data, n, n >= 8 && data[0] == 'M'};
    if (n < 8 || data[0] != data[1] || (data[0] != 'M' && data[0] != 'I') || tiff_short(&t, 2) != 42)
        return 0;
    const size_t at = tiff_long(&t, 4);
    if (at > n - 2)
        return 0;
    const uint32_t entries = tiff_short(&t, at);
    for (uint32_t i = 0; i < entries && at + 2 + 12 * (i + 1) <= n; i++) {
        const size_t entry = at + 2 + 12 * i;
        if (tiff_short(&t, entry) != TAG_ORIENTATION || tiff_short(&t, entry + 2) != TYPE_SHORT)
            continue;
        const uint32_t value = tiff_short(&t, entry + 8);
        return value >= 1 && value <= 8 ? value : 0;
    }
    return 0;
}
