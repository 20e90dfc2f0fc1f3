/* SPDX-License-Identifier: Apache-2.0 */
/* neon_tiles.h: interleaved weights (interleaved.h) on 64-bit Arm: the tiles of a slice in order, and the heads of a
 * quarter of a tile (four outputs). Values are unpacked by neon.h's struct from. */
#ifndef NTX_COMPUTED_CPU_NEON_TILES_H
#define NTX_COMPUTED_CPU_NEON_TILES_H

#include "computed/cpu/neon.h"

enum { QUARTERS = NTX_SLICE_OUTS / 4 };

/* Iterates over the tiles of a slice. */
struct tiles {
    const uint8_t *words, *heads;
    uint32_t together, left; /* tiles until the next heads; tiles left in the slice */
};

INLINE void next_heads(struct tiles *t, const size_t block_bytes)
{
    const uint32_t heads = NTX_SLICE_OUTS * (uint32_t)ntx__head_bytes(block_bytes),
                   most = ntx__tiles_together(block_bytes);
    t->together = t->left < most ? t->left : most;
    t->heads = t->words;
    t->words += t->together * heads;
}

INLINE struct tiles tiles_of(const uint8_t *slice, uint32_t blocks, const size_t block_bytes)
{
    struct tiles t = {.words = slice, .left = blocks};
    next_heads(&t, block_bytes);
    return t;
}

INLINE void next_tile(struct tiles *t, const size_t block_bytes)
{
    t->words += NTX_SLICE_OUTS * (block_bytes - ntx__head_bytes(block_bytes));
    t->heads += NTX_SLICE_OUTS * ntx__head_bytes(block_bytes);
    t->left--;
    if (!--t->together)
        next_heads(t, block_bytes);
}

/* ntx_e8m0_float of four: the two smallest exponents are subnormal. */
INLINE float32x4_t four_exponents(const uint8_t *p)
{
    const uint32x4_t e = vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(word32(p)))));
    const int32x4_t normal = vreinterpretq_s32_u32(vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23)),
                    least = vshlq_s32(vdupq_n_s32(0x00200000), vreinterpretq_s32_u32(vandq_u32(e, vdupq_n_u32(1))));
    return vreinterpretq_f32_s32(vmaxq_s32(normal, least));
}

INLINE float32x4_t low_halves(uint8x16_t v)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_u8(v))));
}
INLINE float32x4_t high_halves(uint8x16_t v)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(vreinterpretq_u32_u8(v), 16)));
}

/* Scales of quarter q. */
INLINE float32x4_t quarter_scales(const uint8_t *heads, uint32_t q, const struct simple_kind *kind)
{
    if (kind->scales == EXPONENT)
        return four_exponents(heads + 4 * q);
    if (kind->has_min)
        return low_halves(vld1q_u8(heads + 16 * q));
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(heads + 8 * q)));
}

/* Minima of quarter q, in types that have them. */
INLINE float32x4_t quarter_minima(const uint8_t *heads, uint32_t q) { return high_halves(vld1q_u8(heads + 16 * q)); }

/* Fifth bits of quarter q; NULL: the type has none. */
INLINE const uint8_t *quarter_fifths(const uint8_t *heads, uint32_t q, const struct ntx__interleave_pattern *pattern)
{
    return pattern->fifth ? heads + ntx__fifth_at(pattern->block_bytes) + 16 * q : NULL;
}

/* ---- Q1_0 (interleaved.h): tiles in the order of the blocks. Bits are stored inverted. Bit t of four bytes makes
 * four values: columns t, 8 + t, 16 + t and 24 + t of each output; x is put in that order. */

/* The offsets of block b of 32 values in a slice. */
INLINE struct ntx__tile_at bits_at(uint32_t b)
{
    const size_t head = b / 4 * NTX_SLICE_OUTS * sizeof(struct ntx_block_q1_0);
    return (struct ntx__tile_at){head + 2 * NTX_SLICE_OUTS + b % 4 * 64, head};
}

INLINE struct pair by_bits(const int8_t *x)
{
    static const uint8_t from[32] = {0, 8,  16, 24, 1, 9,  17, 25, 2, 10, 18, 26, 3, 11, 19, 27,
                                     4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31};
    const int8x16x2_t v = {{vld1q_s8(x), vld1q_s8(x + 16)}};
    return (struct pair){{vqtbl2q_s8(v, vld1q_u8(from)), vqtbl2q_s8(v, vld1q_u8(from + 16))}};
}

/* -1 where `unset` has one of the bits, else 0. The sum of x plus twice the sum of these products equals the product
 * with -1 and 1. CMTST is in assembly: the compiler would use two instructions. */
INLINE int8x16_t where_unset(uint8x16_t unset, uint8x16_t bits)
{
    int8x16_t v;
    __asm__("cmtst %0.16b, %1.16b, %2.16b" : "=w"(v) : "w"(unset), "w"(bits));
    return v;
}

/* ---- heads of super-blocks. A word has an output's bytes of four sub-blocks; the next register those of the next
 * four. */
struct quarter_heads {
    uint8x16_t scale[4], min[2];
    float32x4_t d, m;
};

/* words: the quarter's; heads: the tile's. */
typedef void heads_fn(const uint8_t *words, const uint8_t *heads, uint32_t q, struct quarter_heads *to);

/* Words: d and dmin, then scales_k's twelve bytes. */
INLINE void heads_q4_k(const uint8_t *words, const uint8_t *heads, uint32_t q, struct quarter_heads *to)
{
    const uint8x16_t floats = vld1q_u8(words), a = vld1q_u8(words + 64), b = vld1q_u8(words + 128),
                     c = vld1q_u8(words + 192), six = vdupq_n_u8(63);
    (void)heads;
    (void)q;
    to->d = low_halves(floats);
    to->m = high_halves(floats);
    to->scale[0] = vandq_u8(a, six);
    to->scale[1] = vsliq_n_u8(c, vshrq_n_u8(a, 6), 4);
    to->min[0] = vandq_u8(b, six);
    to->min[1] = vsriq_n_u8(vshrq_n_u8(b, 2), c, 4);
}

#define heads_q5_k heads_q4_k

INLINE void heads_q6_k(const uint8_t *words, const uint8_t *heads, uint32_t q, struct quarter_heads *to)
{
    to->d = to->m = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(heads + 8 * q)));
    for (int k = 0; k < 4; k++)
        to->scale[k] = vld1q_u8(words + 64 * k);
}

/* Heads of eight bytes: d, two bits of each scale, four bits of each scale; scales are 32 too large. */
INLINE void heads_iq4_xs(const uint8_t *words, const uint8_t *heads, uint32_t q, struct quarter_heads *to)
{
    static const uint8_t spread[16] = {2, 2, 3, 3, 6, 6, 7, 7, 10, 10, 11, 11, 14, 14, 15, 15};
    static const int8_t even[16] = {0, -4, 0, -4, 0, -4, 0, -4, 0, -4, 0, -4, 0, -4, 0, -4},
                        odd[16] = {-2, -6, -2, -6, -2, -6, -2, -6, -2, -6, -2, -6, -2, -6, -2, -6};
    const uint8_t *p = heads + 32 * q;
    const uint32x4_t a = vreinterpretq_u32_u8(vld1q_u8(p)), b = vreinterpretq_u32_u8(vld1q_u8(p + 16));
    const uint8x16_t first = vreinterpretq_u8_u32(vuzp1q_u32(a, b)), n = vreinterpretq_u8_u32(vuzp2q_u32(a, b)),
                     three = vdupq_n_u8(3), less = vdupq_n_u8(32);
    const uint8x16_t tops = vqtbl1q_u8(first, vld1q_u8(spread));
    const uint8x16_t of_even = vsubq_u8(vsliq_n_u8(low_nibbles(n), vandq_u8(vshlq_u8(tops, vld1q_s8(even)), three), 4),
                                        less);
    const uint8x16_t of_odd = vsubq_u8(vsliq_n_u8(vshrq_n_u8(n, 4), vandq_u8(vshlq_u8(tops, vld1q_s8(odd)), three), 4),
                                       less);
    const uint32x4_t low = vreinterpretq_u32_u8(vzip1q_u8(of_even, of_odd)),
                     high = vreinterpretq_u32_u8(
                         vzip2q_u8(of_even, of_odd)); /* low: the first two outputs, high: the others */
    (void)words;
    to->d = to->m = low_halves(first);
    to->scale[0] = vreinterpretq_u8_u32(vuzp1q_u32(low, high));
    to->scale[1] = vreinterpretq_u8_u32(vuzp2q_u32(low, high));
}

/* bytes[0]: sub-blocks 0 .. 3, bytes[1]: 4 .. 7. to[k]: four outputs' values of sub-block k, then of k + 4. */
INLINE void widen_bytes(const uint8x16_t bytes[2], const struct super_kind *kind, int16x8_t to[4])
{
    const bool positive = kind->dmin_at >= 0;
    int16x8_t even[2], odd[2];
    for (int k = 0; k < 2; k++) {
        const uint16x8_t v = vreinterpretq_u16_u8(bytes[k]);
        even[k] = positive ? vreinterpretq_s16_u16(vandq_u16(v, vdupq_n_u16(255)))
                           : vshrq_n_s16(vreinterpretq_s16_u16(vshlq_n_u16(v, 8)), 8);
        odd[k] = vshrq_n_s16(vreinterpretq_s16_u16(v), 8);
    }
    to[0] = vuzp1q_s16(even[0], even[1]);
    to[1] = vuzp1q_s16(odd[0], odd[1]);
    to[2] = vuzp2q_s16(even[0], even[1]);
    to[3] = vuzp2q_s16(odd[0], odd[1]);
}

/* Defines few_TYPE: two rows at a time by rows2_TYPE, and the last of an odd number by rows1_TYPE. */
#define FEW_BY_TWOS(type)                                                                                              \
    static DECLARE_MATMUL(few_##type)                                                                                  \
    {                                                                                                                  \
        const struct shape s = {w, x, y, row_bytes, x_stride, ldy, n_out, n_in, n_rows};                               \
        for (uint32_t r = 0; r < n_rows; r += 2)                                                                       \
            (n_rows - r == 1 ? rows1_##type : rows2_##type)(&s, r);                                                    \
    }

#endif
