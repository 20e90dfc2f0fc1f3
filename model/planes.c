/* SPDX-License-Identifier: Apache-2.0 */
#include "model/planes.h"

#define ROW(WHOLE, whole, low_bits, high_bits, ...)                                                                    \
    {NTX_##WHOLE, NTX_##WHOLE##_LOW##low_bits, NTX_##WHOLE##_HIGH##high_bits, low_bits},
static const struct ntx_planes rows[] = {NTX_PLANES(ROW)};
enum { ROWS = sizeof rows / sizeof *rows };

const struct ntx_planes *ntx_planes_of(uint32_t type)
{
    for (unsigned i = 0; i < ROWS && type >= NTX_PLANES_FIRST; i++)
        if (rows[i].low == type || rows[i].high == type)
            return &rows[i];
    return NULL;
}

const struct ntx_planes *ntx_planes_for(uint32_t whole, uint32_t low_bits)
{
    for (unsigned i = 0; i < ROWS; i++)
        if (rows[i].whole == whole && (!low_bits || rows[i].low_bits == low_bits))
            return &rows[i];
    return NULL;
}

uint32_t ntx_planes_from_file(uint32_t number)
{
    uint32_t i = number - NTX_PLANES_FILE_TYPE;
    if (i >= 2 * ROWS)
        return NTX_TYPE_LIMIT;
    return i % 2 ? rows[i / 2].high : rows[i / 2].low;
}

uint32_t ntx_planes_to_file(uint32_t type)
{
    for (uint32_t i = 0; i < 2 * ROWS; i++)
        if (type == (i % 2 ? rows[i / 2].high : rows[i / 2].low))
            return NTX_PLANES_FILE_TYPE + i;
    return NTX_TYPE_LIMIT;
}

NTX_PLANES_JOINS(join_blocks)

void ntx_planes_join(uint32_t type, const uint8_t *high, const uint8_t *low, size_t n, uint8_t *out)
{
    join_blocks(type, high, low, n, out);
}

/* ---- splitting */

static void split_2(const uint8_t *x, uint8_t *h, uint8_t *l, size_t n)
{
    for (size_t j = 0; j < n / 2; j++) {
        h[j] = (uint8_t)((x[j] >> 2 & 0x33) | (x[j + n / 2] & 0xcc));
        l[j] = (uint8_t)((x[j] & 0x33) | (x[j + n / 2] & 0x33) << 2);
    }
}

static void split_1(const uint8_t *x, uint8_t *h, uint8_t *l, size_t n)
{
    uint8_t *next = h + n / 2;
    for (size_t j = 0; j < n / 2; j++)
        h[j] = (uint8_t)((x[j] >> 2 & 0x33) | (x[j + n / 2] & 0xcc));
    for (size_t j = 0; j < n / 4; j++) {
        unsigned bit0 = 0, bit1 = 0;
        for (unsigned k = 0; k < 4; k++) {
            bit0 |= (x[j + k * n / 4] & 0x11u) << k;
            bit1 |= (x[j + k * n / 4] >> 1 & 0x11u) << k;
        }
        l[j] = (uint8_t)bit0;
        next[j] = (uint8_t)bit1;
    }
}

static void split_4(const uint8_t *x, uint8_t *h, uint8_t *l, size_t n)
{
    for (size_t j = 0; j < n / 2; j++) {
        h[j] = (uint8_t)(x[j] >> 4 | (x[j + n / 2] & 0xf0));
        l[j] = (uint8_t)((x[j] & 0x0f) | x[j + n / 2] << 4);
    }
}

#define SPLIT(WHOLE, whole, bits, high_bits, begin, n_split)                                                           \
    case NTX_##WHOLE##_LOW##bits:                                                                                      \
        for (size_t i = 0; i < n; i++, x += sizeof(struct ntx_block_##whole),                                          \
                    high += NTX_PLANES_HIGH_BYTES(whole, bits, n_split), low += NTX_PLANES_LOW_BYTES(bits, n_split)) { \
            const size_t tail = sizeof(struct ntx_block_##whole) - (begin) - (n_split);                                \
            memcpy(high, x, begin);                                                                                    \
            memcpy(high + (begin), x + (begin) + (n_split), tail);                                                     \
            split_##bits(x + (begin), high + (begin) + tail, low, n_split);                                            \
        }                                                                                                              \
        break;

void ntx_planes_split(const struct ntx_planes *p, const uint8_t *x, uint8_t *high, uint8_t *low, size_t n)
{
    switch (p->low) {
        NTX_PLANES(SPLIT)
    default: break;
    }
}
