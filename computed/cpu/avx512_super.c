/* SPDX-License-Identifier: Apache-2.0 */
/* avx512_super.c: products with super-blocks of 256 (Q2_K .. Q6_K, IQ4_XS), one to four rows of x at a time.
 *
 * Each block's 256 products are summed by pairs to int16 (7 bits times 8 cannot overflow), multiplied by their
 * sub-block's scale and added up in int32; four blocks, a quad, end in one register (avx512_quads.h). */
#include "computed/cpu/avx512_quads.h"

/* Index for byte shuffles: byte s + l of 128-bit lane l as int16, repeated. */
INLINE __m512i pick_quarters(int s)
{
    const long long one = 0x0001000100010001, v = (long long)(0x8000800080008000u + 0x0001000100010001u * (unsigned)s);
    return _mm512_set_epi64(v + 3 * one, v + 3 * one, v + 2 * one, v + 2 * one, v + one, v + one, v, v);
}

/* ---- Q4_K, Q5_K: header d, dmin, 12 bytes of scales and minima. Half registers have one sub-block each, so its scale
 * is one pair of int16, which the multiplication broadcasts from memory; whole registers would need a shuffle. ---- */

/* Sub-blocks 2 t and 2 t + 1 of block k. */
INLINE void two_sub_blocks(const struct quad *q, const int k, const int t, const bool five, const struct split *split,
                           __m256i out[2])
{
    const __m256i low = _mm256_set1_epi8(15), top = _mm256_set1_epi8(16);
    const uint8_t *w = q->w[k], *nibbles = w + (five ? 48 : 16);
    if (split) { /* both 32 of a half at once, which serve two t */
        const __m512i v = split_half(nibbles, q->low[k], t / 2, split);
        const __m512i a = _mm512_and_si512(v, bytes512(15)),
                      b = _mm512_and_si512(_mm512_srli_epi16(v, 4), bytes512(15));
        out[0] = t % 2 ? _mm512_extracti64x4_epi64(a, 1) : _mm512_castsi512_si256(a);
        out[1] = t % 2 ? _mm512_extracti64x4_epi64(b, 1) : _mm512_castsi512_si256(b);
    } else {
        const __m256i v = load256(nibbles + 32 * t);
        out[0] = _mm256_and_si256(v, low);
        out[1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    }
    if (five) { /* bits 2 t and 2 t + 1 of 32 bytes */
        __m256i h = load256(w + 16);
        out[0] = _mm256_ternarylogic_epi32(
            out[0], t < 2 ? _mm256_slli_epi16(h, 4 - 2 * t) : _mm256_srli_epi16(h, 2 * t - 4), top, 0xf8);
        out[1] = _mm256_ternarylogic_epi32(
            out[1], t < 2 ? _mm256_slli_epi16(h, 3 - 2 * t) : _mm256_srli_epi16(h, 2 * t - 3), top, 0xf8);
    }
}

/* Scales s .. s + 3 of each 128-bit lane as pairs of int16. */
INLINE __m512i scale_pairs(__m512i scales, int s)
{
    const __m512i at = _mm512_set4_epi32((int)0x80038003, (int)0x80028002, (int)0x80018001, (int)0x80008000);
    return _mm512_shuffle_epi8(scales, _mm512_add_epi8(at, _mm512_set1_epi16((short)s)));
}

INLINE void head_q45(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d,
                     struct quad_heads *heads)
{
    __m512i head = four_lanes(q, 0), sm = unpack_scales(head);
    __m512i mins = _mm512_unpackhi_epi8(sm, _mm512_setzero_si512()),
            all_scales = _mm512_unpacklo_epi8(sm, _mm512_setzero_si512());
    _mm512_store_si512(heads->scales[0], scale_pairs(sm, 0));
    _mm512_store_si512(heads->scales[1], scale_pairs(sm, 4));
    __asm__("" : "+m"(*heads)); /* forces broadcasts from memory, which are free; shuffles are not */
    *d = head;
    for (int r = 0; r < rows; r++) {
        out[r].j = _mm512_madd_epi16(mins, load512(x[r].s32 + (size_t)q->block * 8));
        out[r].x = _mm512_madd_epi16(all_scales, load512(x[r].s32 + (size_t)q->block * 8));
    }
}

INLINE void quad_q45(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out,
                     const struct quad_heads *heads, const bool five, const struct split *split)
{
    __m256i acc[4][4];
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < 4; k++)
            acc[r][k] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int t = 0; t < 4; t++)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) { /* four sums alternate, since a product waits for the one before it in its sum */
            __m256i v[2];
            two_sub_blocks(q, k, t, five, split, v);
            for (int h = 0; h < 2; h++)
                for (int r = 0; r < rows; r++) {
                    __m256i p = _mm256_maddubs_epi16(v[h],
                                                     load256(x[r].q + (size_t)(q->block + k) * 256 + 64 * t + 32 * h));
                    acc[r][k] = _mm256_dpwssd_epi32(acc[r][k], p,
                                                    _mm256_set1_epi32(heads->scales[t / 2][k][t % 2 * 2 + h]));
                }
        }
    for (int r = 0; r < rows; r++) {
        out[r].i = fold_halves(acc[r]);
        if (split_is_high(split))
            out[r].i = to_middle(out[r].i, out[r].x, split);
    }
}

INLINE void quad_q4_k(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d,
                      const struct quad_heads *heads, const struct split *split)
{
    (void)d;
    quad_q45(q, x, rows, out, heads, false, split);
}

INLINE void quad_q5_k(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d,
                      const struct quad_heads *heads, const struct split *split)
{
    (void)d;
    quad_q45(q, x, rows, out, heads, true, split);
}

/* ---- Q6_K: w = scale * (q - 32) = scale * q - 32 * scale, the latter through x's sums of 16 ---- */

INLINE void quad_q6_k(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d,
                      const struct quad_heads *heads, const struct split *split)
{
    (void)heads;
    __m512i acc[4][4];
    const size_t rest = split ? 0 : 128; /* place of the fifth and sixth bits, which scales and d follow */
    for (int k = 0; k < 4; k++) {
        const uint8_t *w = q->w[k];
        size_t b = q->block + (size_t)k;
        __m256i s16 = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(w + rest + 64)));
        for (int r = 0; r < rows; r++)
            acc[r][k] = offset_term(s16, x[r].s16 + b * 16, 5);
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) {
            __m512i nibbles = split ? split_half(w + 82, q->low[k], t / 2, split) : load512(w + t / 2 * 64);
            __m512i v = six_bits(nibbles, w + rest, t), s = spread_scales(s16, t);
            for (int r = 0; r < rows; r++)
                acc[r][k] = scaled_dot(acc[r][k], v, x[r].q + b * 256 + 64 * t, s);
        }
        for (int r = 0; split_is_high(split) && r < rows; r++) {
            const __m256i sums = _mm256_madd_epi16(s16, _mm256_loadu_si256((const void *)(x[r].s16 + b * 16)));
            acc[r][k] = to_middle(acc[r][k], _mm512_zextsi256_si512(sums), split);
        }
    }
    *d = _mm512_shuffle_epi32(_mm512_srli_epi32(four_lanes(q, rest + 66), 16),
                              _MM_PERM_AAAD); /* d is the block's last half word */
    for (int r = 0; r < rows; r++)
        out[r].i = fold4(acc[r]);
}

/* ---- Q3_K: w = scale * (q - 4), q of 3 bits, scales of 6 bits minus 32 ---- */

INLINE void quad_q3_k(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d,
                      const struct quad_heads *heads, const struct split *split)
{
    (void)heads;
    (void)split;
    int8_t scales[64] __attribute__((aligned(64)));
    __m512i acc[4][4], tail = four_lanes(q, 94);
    _mm512_store_si512(scales, unpack_scales_q3_k(tail));
    for (int k = 0; k < 4; k++) {
        const uint8_t *w = q->w[k];
        size_t b = q->block + (size_t)k;
        __m256i s16 = _mm256_cvtepi8_epi16(_mm_load_si128((const void *)(scales + 16 * k)));
        for (int r = 0; r < rows; r++)
            acc[r][k] = offset_term(s16, x[r].s16 + b * 16, 2);
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) {
            __m512i v = three_bits(w, t), s = spread_scales(s16, t);
            for (int r = 0; r < rows; r++)
                acc[r][k] = scaled_dot(acc[r][k], v, x[r].q + b * 256 + 64 * t, s);
        }
    }
    *d = _mm512_shuffle_epi32(_mm512_srli_epi32(tail, 16), _MM_PERM_AAAD);
    for (int r = 0; r < rows; r++)
        out[r].i = fold4(acc[r]);
}

/* ---- Q2_K: nibbles of scale and minimum per 16 values ---- */

INLINE void quad_q2_k(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d,
                      const struct quad_heads *heads, const struct split *split)
{
    (void)heads;
    (void)split;
    uint8_t scales[64] __attribute__((aligned(64))), mins[64] __attribute__((aligned(64)));
    __m512i acc[4][4], sm = four_lanes(q, 0);
    _mm512_store_si512(scales, _mm512_and_si512(sm, bytes512(15)));
    _mm512_store_si512(mins, _mm512_and_si512(_mm512_srli_epi16(sm, 4), bytes512(15)));
    __m512i mins01 = _mm512_cvtepu8_epi16(_mm256_load_si256((const void *)mins));
    __m512i mins23 = _mm512_cvtepu8_epi16(_mm256_load_si256((const void *)(mins + 32)));
    for (int r = 0; r < rows; r++) { /* 8 sums for each block, two 128-bit lanes */
        const int16_t *sums = x[r].s16 + (size_t)q->block * 16;
        __m512i a = _mm512_madd_epi16(mins01, load512(sums)), b = _mm512_madd_epi16(mins23, load512(sums + 32));
        out[r].j = _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
    }
    for (int k = 0; k < 4; k++) {
        const uint8_t *w = q->w[k];
        __m512i sc = _mm512_broadcast_i32x4(_mm_load_si128((const void *)(scales + 16 * k)));
        for (int r = 0; r < rows; r++)
            acc[r][k] = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) {
            __m512i v = two_bits(w + 16, t);
            __m512i s = _mm512_shuffle_epi8(sc, pick_quarters(4 * t));
            for (int r = 0; r < rows; r++)
                acc[r][k] = scaled_dot(acc[r][k], v, x[r].q + (size_t)(q->block + k) * 256 + 64 * t, s);
        }
    }
    *d = _mm512_shuffle_epi32(four_lanes(q, 68), _MM_PERM_AAAD); /* d and dmin are the block's last dword */
    for (int r = 0; r < rows; r++)
        out[r].i = fold4(acc[r]);
}

/* ---- IQ4_XS: d, bit pairs and nibbles of 8 scales, then nibbles that stand for values. Values are raised by 128 and
 * so have eight bits: sums of four are multiplied by the scale, as int32. ---- */

/* 8 scales as int16, from the header's 8 bytes. */
INLINE __m128i scales_iq4_xs(const uint8_t *w)
{
    uint32_t low, high = w[2] | (uint32_t)w[3] << 8;
    memcpy(&low, w + 4, 4);
    __m256i v = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_set1_epi32((int)low), _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0)),
        _mm256_set1_epi32(15));
    __m256i h = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_set1_epi32((int)(high << 4)), _mm256_set_epi32(14, 12, 10, 8, 6, 4, 2, 0)),
        _mm256_set1_epi32(48));
    return _mm256_cvtepi32_epi16(_mm256_sub_epi32(_mm256_or_si256(v, h), _mm256_set1_epi32(32)));
}

INLINE void quad_iq4_xs(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d,
                        const struct quad_heads *heads, const struct split *split)
{
    const __m512i values = raised_iq4_nl(), turn = _mm512_set_epi64(3, 2, 3, 2, 1, 0, 1, 0),
                  shift = _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0);
    const __m512i halves16 = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    __m512i acc[4][4];
    (void)heads;
    (void)split;
    for (int k = 0; k < 4; k++) {
        const uint8_t *w = q->w[k];
        size_t b = q->block + (size_t)k;
        __m128i s8 = scales_iq4_xs(w);
        __m512i s32 = _mm512_castsi256_si512(_mm256_cvtepi16_epi32(s8));
        for (int r = 0; r < rows; r++) {
            __m128i p = _mm_madd_epi16(s8, _mm_loadu_si128((const void *)(x[r].s32 + b * 8)));
            acc[r][k] = _mm512_zextsi128_si512(_mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(p, 7)));
        }
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) {
            __m512i v = _mm512_permutexvar_epi64(turn, _mm512_castsi256_si512(load256(w + 8 + 32 * t)));
            v = _mm512_shuffle_epi8(values, _mm512_and_si512(_mm512_srlv_epi64(v, shift), bytes512(15)));
            __m512i s = _mm512_permutexvar_epi32(_mm512_add_epi32(halves16, _mm512_set1_epi32(2 * t)), s32);
            for (int r = 0; r < rows; r++) {
                __m512i p = _mm512_dpbusd_epi32(_mm512_setzero_si512(), v, load512(x[r].q + b * 256 + 64 * t));
                acc[r][k] = _mm512_add_epi32(acc[r][k], _mm512_mullo_epi32(p, s));
            }
        }
    }
    *d = _mm512_shuffle_epi32(four_lanes(q, 0), _MM_PERM_AAAA);
    for (int r = 0; r < rows; r++)
        out[r].i = fold4(acc[r]);
}

/* ---- the kernels ---- */

#define SUPER_MATMUL(type, has_min, head)                                                                              \
    SUPER_ROWS(type, 1, has_min, 1, head)                                                                              \
    SUPER_ROWS(type, 2, has_min, 1, head)                                                                              \
    SUPER_ROWS(type, 4, has_min, 1, head)                                                                              \
    MATMUL_BY_ROWS(type)

SUPER_MATMUL(q2_k, true, NULL)
SUPER_MATMUL(q3_k, false, NULL)
SUPER_MATMUL(q4_k, true, head_q45)
SUPER_MATMUL(q5_k, true, head_q45)
SUPER_MATMUL(q6_k, false, NULL)
SUPER_MATMUL(iq4_xs, false, NULL)

/* ---- in high and low bits ---- */

#define SUPER_PLANES(type, has_min, head)                                                                              \
    INLINE void planes_rows_##type(const struct planes_call *c, uint32_t r, const int rows, const struct split *s)     \
    {                                                                                                                  \
        super_planes(c, r, rows, s, has_min, head, quad_##type);                                                       \
    }

SUPER_PLANES(q4_k, true, head_q45)
SUPER_PLANES(q5_k, true, head_q45)
SUPER_PLANES(q6_k, false, NULL)
PLANES_MATMUL(q4_k, 1, 128)
PLANES_MATMUL(q4_k, 2, 128)
PLANES_MATMUL(q5_k, 2, 128)
PLANES_MATMUL(q6_k, 2, 128)
