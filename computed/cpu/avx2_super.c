/* SPDX-License-Identifier: Apache-2.0 */
/* avx2_super.c: products with super-blocks of 256 (Q2_K .. Q6_K, IQ4_XS), one or two rows of x at a time.
 *
 * 32 products at a time are summed by pairs to int16 (7 bits times 8 cannot overflow), multiplied by their sub-block's
 * scale and added up in int32. */
#include "computed/cpu/avx2_x8.h"

INLINE __m256i shifted_right(__m256i v, int bits) { return bits ? _mm256_srli_epi16(v, bits) : v; }

/* Bit `from` of each byte, alone, at bit `to`. */
INLINE __m256i moved_bit(__m256i v, int from, int to)
{
    if (from > to)
        v = _mm256_srli_epi16(v, from - to);
    else if (from < to)
        v = _mm256_slli_epi16(v, to - from);
    return _mm256_and_si256(v, bytes256(1 << to));
}

/* ---- Q4_K, Q5_K ---- */

/* 8 scales, then 8 minima, of a header d, dmin, 12 bytes; see avx512_super.c. */
INLINE __m128i unpack_scales(__m128i h)
{
    __m128i low = _mm_shuffle_epi32(h, _MM_SHUFFLE(3, 2, 3, 1)), top = _mm_shuffle_epi32(h, _MM_SHUFFLE(2, 2, 1, 1));
    low = _mm_blend_epi32(low, _mm_srli_epi32(low, 4), 8);
    low = _mm_and_si128(low, _mm_set_epi32(0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f));
    top = _mm_and_si128(_mm_srli_epi32(top, 2), _mm_set_epi32(0x30303030, 0, 0x30303030, 0));
    return _mm_or_si128(low, top);
}

/* split: of a block in high and low bits; NULL: it is whole. */
INLINE void block_q45(const uint8_t *w, const uint8_t *low_bits, const struct split *split, size_t b,
                      const struct q8k_row *x, int rows, __m256i *acc, __m256i *low, bool five)
{
    const uint8_t *qs = w + (five ? 48 : 16);
    __m128i sm = unpack_scales(load128(w)), mins = _mm_unpackhi_epi8(sm, _mm_setzero_si128());
    __m256i sc = _mm256_broadcastsi128_si256(sm), fifth = five ? load256(w + 16) : sc, joined[4];
    for (int r = 0; r < rows; r++) {
        acc[r] = _mm256_setzero_si256();
        low[r] = _mm256_zextsi128_si256(_mm_madd_epi16(mins, load128(x[r].s32 + b * 8)));
    }
    if (split)
        split_bytes(qs, low_bits, split, joined);
#pragma GCC unroll 8
    for (int t = 0; t < 8; t++) {
        __m256i v = split ? joined[t / 2] : load256(qs + t / 2 * 32);
        v = _mm256_and_si256(shifted_right(v, t % 2 * 4), bytes256(15));
        __m256i s = _mm256_shuffle_epi8(sc, _mm256_set1_epi16((short)(0x8000 | t)));
        if (five)
            v = _mm256_or_si256(v, moved_bit(fifth, t, 4));
        for (int r = 0; r < rows; r++)
            acc[r] = scaled_dot(acc[r], v, x[r].q + b * 256 + 32 * t, s);
    }
    const __m128i scales = _mm_unpacklo_epi8(sm, _mm_setzero_si128());
    for (int r = 0; split_is_high(split) && r < rows; r++)
        acc[r] = to_middle(acc[r], _mm256_zextsi128_si256(_mm_madd_epi16(scales, load128(x[r].s32 + b * 8))), split);
}

INLINE void block_q4_k(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    block_q45(w, NULL, NULL, b, x, rows, acc, low, false);
}

INLINE void block_q5_k(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    block_q45(w, NULL, NULL, b, x, rows, acc, low, true);
}

/* ---- sub-blocks of 16: Q6_K, Q3_K, Q2_K ---- */

INLINE void parts_q6_k(const uint8_t *w, const uint8_t *low_bits, const struct split *split, size_t b,
                       const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    const size_t rest = split ? 0 : 128; /* place of the fifth and sixth bits, which scales and d follow */
    (void)low;
    __m256i s16 = _mm256_cvtepi8_epi16(load128(w + rest + 64));
    struct scales sc = both_lanes(s16);
    __m256i joined[4];
    for (int r = 0; r < rows; r++)
        acc[r] = offset_term(s16, x[r].s16 + b * 16, 5);
    if (split)
        split_bytes(w + 82, low_bits, split, joined);
#pragma GCC unroll 8
    for (int t = 0; t < 8; t++) {
        int u = t % 4;
        const int from = t / 4 * 2 + u % 2;
        __m256i v = split ? joined[from] : load256(w + 32 * from);
        v = _mm256_and_si256(shifted_right(v, u / 2 * 4), bytes256(15));
        __m256i high = load256(w + rest + t / 4 * 32);
        high = u < 2 ? _mm256_slli_epi16(high, 4 - 2 * u) : shifted_right(high, 2 * u - 4);
        v = _mm256_or_si256(v, _mm256_and_si256(high, bytes256(48)));
        for (int r = 0; r < rows; r++)
            acc[r] = scaled_dot(acc[r], v, x[r].q + b * 256 + 32 * t, scale_pair(&sc, t));
    }
    for (int r = 0; split_is_high(split) && r < rows; r++)
        acc[r] = to_middle(acc[r], _mm256_madd_epi16(s16, load256(x[r].s16 + b * 16)), split);
}

INLINE void block_q6_k(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    parts_q6_k(w, NULL, NULL, b, x, rows, acc, low);
}

/* The 16 scales in bytes 2..13 of a Q3_K block's last 16. */
INLINE __m256i scales_q3_k(__m128i tail)
{
    __m128i low = _mm_shuffle_epi8(tail, _mm_set_epi32(0x09080706, 0x05040302, 0x09080706, 0x05040302));
    __m128i top = _mm_shuffle_epi8(tail, _mm_set1_epi32(0x0d0c0b0a));
    low = _mm_and_si128(_mm_blend_epi32(low, _mm_srli_epi32(low, 4), 12), _mm_set1_epi8(15));
    top = _mm_or_si128(_mm_sllv_epi32(top, _mm_set_epi32(32, 0, 2, 4)),
                       _mm_srlv_epi32(top, _mm_set_epi32(2, 32, 32, 32)));
    top = _mm_and_si128(top, _mm_set1_epi8(48));
    return _mm256_cvtepi8_epi16(_mm_sub_epi8(_mm_or_si128(low, top), _mm_set1_epi8(32)));
}

INLINE void block_q3_k(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    (void)low;
    __m256i s16 = scales_q3_k(load128(w + 94)), mask = load256(w);
    struct scales sc = both_lanes(s16);
    for (int r = 0; r < rows; r++)
        acc[r] = offset_term(s16, x[r].s16 + b * 16, 2);
#pragma GCC unroll 8
    for (int t = 0; t < 8; t++) {
        __m256i v = _mm256_and_si256(shifted_right(load256(w + 32 + t / 4 * 32), t % 4 * 2), bytes256(3));
        v = _mm256_or_si256(v, moved_bit(mask, t, 2));
        for (int r = 0; r < rows; r++)
            acc[r] = scaled_dot(acc[r], v, x[r].q + b * 256 + 32 * t, scale_pair(&sc, t));
    }
}

INLINE void block_q2_k(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    __m128i sm = load128(w), nibble = _mm_set1_epi8(15);
    __m256i s16 = _mm256_cvtepu8_epi16(_mm_and_si128(sm, nibble));
    __m256i mins = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(sm, 4), nibble));
    struct scales sc = both_lanes(s16);
    for (int r = 0; r < rows; r++) {
        acc[r] = _mm256_setzero_si256();
        low[r] = _mm256_madd_epi16(mins, load256(x[r].s16 + b * 16));
    }
#pragma GCC unroll 8
    for (int t = 0; t < 8; t++) {
        __m256i v = _mm256_and_si256(shifted_right(load256(w + 16 + t / 4 * 32), t % 4 * 2), bytes256(3));
        for (int r = 0; r < rows; r++)
            acc[r] = scaled_dot(acc[r], v, x[r].q + b * 256 + 32 * t, scale_pair(&sc, t));
    }
}

/* ---- IQ4_XS: nibbles stand for signed values: |w| is multiplied by x with w's sign ---- */

INLINE void block_iq4_xs(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    const __m128i values = _mm_setr_epi8(NTX_VALUES_iq4_nl), nibble = _mm_set1_epi8(15);
    uint32_t low4;
    (void)low;
    memcpy(&low4, w + 4, 4);
    for (int r = 0; r < rows; r++)
        acc[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int t = 0; t < 8; t++) {
        int scale = (int)((low4 >> 4 * t & 15) | ((uint32_t)(w[2 + t / 4] >> t % 4 * 2) & 3) << 4) - 32;
        __m128i q = load128(w + 8 + 16 * t);
        __m256i v = _mm256_set_m128i(_mm_shuffle_epi8(values, _mm_and_si128(_mm_srli_epi16(q, 4), nibble)),
                                     _mm_shuffle_epi8(values, _mm_and_si128(q, nibble)));
        for (int r = 0; r < rows; r++)
            acc[r] = scaled_signed(acc[r], v, x[r].q + b * 256 + 32 * t, _mm256_set1_epi16((short)scale));
    }
}

SUPER_MATMUL(q2_k, 80, true, 1)
SUPER_MATMUL(q3_k, 108, false, 1)
SUPER_MATMUL(q4_k, 0, true, 1)
SUPER_MATMUL(q5_k, 0, true, 1)
SUPER_MATMUL(q6_k, 208, false, 1)
SUPER_MATMUL(iq4_xs, 0, false, 1)

/* ---- in high and low bits ---- */

INLINE void parts_q4_k(const uint8_t *w, const uint8_t *low_bits, const struct split *split, size_t b,
                       const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    block_q45(w, low_bits, split, b, x, rows, acc, low, false);
}

INLINE void parts_q5_k(const uint8_t *w, const uint8_t *low_bits, const struct split *split, size_t b,
                       const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    block_q45(w, low_bits, split, b, x, rows, acc, low, true);
}

#define SUPER_PLANES(type, d_at, has_min)                                                                              \
    INLINE void planes_rows_##type(const struct shape *s, const struct low_rows *low, uint32_t r, const int rows,      \
                                   const struct split *split)                                                          \
    {                                                                                                                  \
        const struct super_kind kind = {                                                                               \
            split->high_bytes, d_at, has_min, split_is_high(split) ? 0.5f : 1, NULL, split, parts_##type};             \
        super_rows(s, low, r, rows, &kind);                                                                            \
    }

SUPER_PLANES(q4_k, 0, true)
SUPER_PLANES(q5_k, 0, true)
SUPER_PLANES(q6_k, 80, false)
PLANES_MATMUL(q4_k, 1, 128, NTX_QKK)
PLANES_MATMUL(q4_k, 2, 128, NTX_QKK)
PLANES_MATMUL(q5_k, 2, 128, NTX_QKK)
PLANES_MATMUL(q6_k, 2, 128, NTX_QKK)
