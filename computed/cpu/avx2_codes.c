/* SPDX-License-Identifier: Apache-2.0 */
/* avx2_codes.c: products with i-quants that have codebooks (model/codes.h) and with ternary types, one or two rows of
 * x at a time. Codebooks hold whole entries of values here (codebooks.h); x gets the signs. */
#include "computed/cpu/avx2_x8.h"
#include "computed/cpu/codebooks.h"

/* Byte k is -1 if bit k is set, else 1. */
INLINE __m256i minus_ones(uint32_t bits)
{
    const __m256i at = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0),
                  mask = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), at), mask);
    return _mm256_or_si256(_mm256_cmpeq_epi8(spread, mask), bytes256(1));
}

/* 4 x 7 sign bits to 4 x 8: the eighth bit makes the number of minuses even. */
INLINE uint32_t eight_signs(uint32_t s)
{
    uint32_t v = (s & 127) | (s >> 7 & 127) << 8 | (s >> 14 & 127) << 16 | (s >> 21 & 127) << 24,
             p = v ^ (v >> 4 & 0x0f0f0f0f);
    p ^= p >> 2 & 0x3f3f3f3f;
    p ^= p >> 1 & 0x7f7f7f7f;
    return v | (p & 0x01010101) << 7;
}

INLINE __m256i four_entries(const uint64_t *codebook, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return _mm256_set_epi64x((long long)codebook[d], (long long)codebook[c], (long long)codebook[b],
                             (long long)codebook[a]);
}

INLINE __m256i eight_entries(const uint32_t *codebook, const uint8_t *at, uint32_t ninth)
{
    uint32_t i[8];
    for (uint32_t k = 0; k < 8; k++)
        i[k] = at[k] | (ninth >> k & 1) << 8;
    return _mm256_set_epi32((int)codebook[i[7]], (int)codebook[i[6]], (int)codebook[i[5]], (int)codebook[i[4]],
                            (int)codebook[i[3]], (int)codebook[i[2]], (int)codebook[i[1]], (int)codebook[i[0]]);
}

/* 32 absolute values, their signs, and the scales of 16 values each. */
struct part {
    __m256i v;
    uint32_t signs;
    int scale[2];
};

typedef struct part part_fn(const uint8_t *w, uint32_t t);

INLINE struct part part_iq2_xxs(const uint8_t *w, uint32_t t)
{
    const uint8_t *q = w + 2 + 8 * t;
    uint32_t word;
    memcpy(&word, q + 4, 4);
    int scale = (int)(2 * (word >> 28) + 1);
    return (struct part){four_entries(codebook_iq2_xxs, q[0], q[1], q[2], q[3]), eight_signs(word), {scale, scale}};
}

INLINE void odd_nibbles(struct part *g, uint32_t byte)
{
    g->scale[0] = (int)(2 * (byte & 15) + 1);
    g->scale[1] = (int)(2 * (byte >> 4) + 1);
}

INLINE struct part part_iq2_xs(const uint8_t *w, uint32_t t)
{
    struct part g;
    uint16_t q[4];
    memcpy(q, w + 2 + 8 * t, 8);
    g.v = four_entries(codebook_iq2_xs, q[0] & 511, q[1] & 511, q[2] & 511, q[3] & 511);
    g.signs = eight_signs((uint32_t)(q[0] >> 9) | (uint32_t)(q[1] >> 9) << 7 | (uint32_t)(q[2] >> 9) << 14 |
                          (uint32_t)(q[3] >> 9) << 21);
    odd_nibbles(&g, w[66 + t]);
    return g;
}

INLINE struct part part_iq2_s(const uint8_t *w, uint32_t t)
{
    struct part g;
    const uint8_t *q = w + 2 + 4 * t;
    const uint32_t up = w[66 + t];
    g.v = four_entries(codebook_iq2_s, q[0] | (up & 3) << 8, q[1] | (up >> 2 & 3) << 8, q[2] | (up >> 4 & 3) << 8,
                       q[3] | up >> 6 << 8);
    memcpy(&g.signs, w + 34 + 4 * t, 4);
    odd_nibbles(&g, w[74 + t]);
    return g;
}

INLINE struct part part_iq3_xxs(const uint8_t *w, uint32_t t)
{
    uint32_t word;
    memcpy(&word, w + 66 + 4 * t, 4);
    int scale = (int)(2 * (word >> 28) + 1);
    return (struct part){eight_entries(codebook_iq3_xxs, w + 2 + 8 * t, 0), eight_signs(word), {scale, scale}};
}

INLINE struct part part_iq3_s(const uint8_t *w, uint32_t t)
{
    struct part g = {.v = eight_entries(codebook_iq3_s, w + 2 + 8 * t, w[66 + t])};
    memcpy(&g.signs, w + 74 + 4 * t, 4);
    g.scale[0] = g.scale[1] = 2 * (w[106 + t / 2] >> t % 2 * 4 & 15) + 1;
    return g;
}

INLINE void block_parts(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, part_fn *part)
{
    for (int r = 0; r < rows; r++)
        acc[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (uint32_t t = 0; t < 8; t++) {
        struct part g = part(w, t);
        __m256i signs = minus_ones(g.signs),
                scale = _mm256_set_m128i(_mm_set1_epi16((short)g.scale[1]), _mm_set1_epi16((short)g.scale[0]));
        for (int r = 0; r < rows; r++) {
            __m256i pairs = _mm256_maddubs_epi16(g.v, _mm256_sign_epi8(load256(x[r].q + b * 256 + 32 * t), signs));
            acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(pairs, scale));
        }
    }
}

#define CODES_MATMUL(TYPE, type, factor)                                                                               \
    INLINE void block_##type(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc,              \
                             __m256i *low)                                                                             \
    {                                                                                                                  \
        (void)low;                                                                                                     \
        block_parts(w, b, x, rows, acc, part_##type);                                                                  \
    }                                                                                                                  \
    SUPER_MATMUL(type, 0, false, factor)
AVX2_CODES(CODES_MATMUL)

/* ---- IQ1: values with their signs */

/* 32 values and the scales of 16 each. */
INLINE struct part part_iq1_s(const uint8_t *w, uint32_t t)
{
    const uint8_t *q = w + 2 + 4 * t;
    uint16_t h;
    memcpy(&h, w + 34 + 2 * t, 2);
    const int scale = 2 * (h >> 12 & 7) + 1;
    const __m256i v = four_entries(codebook_iq1, q[0] | (h & 7u) << 8, q[1] | (h >> 3 & 7u) << 8,
                                   q[2] | (h >> 6 & 7u) << 8, q[3] | (h >> 9 & 7u) << 8);
    return (struct part){_mm256_add_epi8(v, bytes256(h >> 15 ? -1 : 1)), 0, {scale, scale}};
}

/* Eight bytes of -1 if bit 3 of the nibble is set, else of 1. */
INLINE long long more_or_less(uint32_t nibble) { return nibble & 8 ? -1ll : 0x0101010101010101ll; }

INLINE struct part part_iq1_m(const uint8_t *w, uint32_t t)
{
    const uint8_t *q = w + 4 * t;
    const uint32_t h = (uint32_t)w[32 + 2 * t] | (uint32_t)w[33 + 2 * t] << 8,
                   s = ((uint32_t)w[48 + t / 2 * 2] | (uint32_t)w[49 + t / 2 * 2] << 8) >> t % 2 * 6;
    const __m256i v = four_entries(codebook_iq1, q[0] | (h & 7) << 8, q[1] | (h >> 4 & 7) << 8,
                                   q[2] | (h >> 8 & 7) << 8, q[3] | (h >> 12 & 7) << 8);
    const __m256i more = _mm256_set_epi64x(more_or_less(h >> 12), more_or_less(h >> 8), more_or_less(h >> 4),
                                           more_or_less(h));
    return (struct part){_mm256_add_epi8(v, more), 0, {(int)(2 * (s & 7) + 1), (int)(2 * (s >> 3 & 7) + 1)}};
}

INLINE void block_signed(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, part_fn *part)
{
    for (int r = 0; r < rows; r++)
        acc[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (uint32_t t = 0; t < 8; t++) {
        struct part g = part(w, t);
        __m256i scale = _mm256_set_m128i(_mm_set1_epi16((short)g.scale[1]), _mm_set1_epi16((short)g.scale[0]));
        for (int r = 0; r < rows; r++)
            acc[r] = scaled_signed(acc[r], g.v, x[r].q + b * 256 + 32 * t, scale);
    }
}

/* ---- ternary: values 0 to 2, one too large */

INLINE __m256i ternary_tq2_0(const uint8_t *w, uint32_t t)
{
    return _mm256_and_si256(_mm256_srli_epi16(load256(w + t / 4 * 32), (int)(t % 4 * 2)), bytes256(3));
}

/* The digit at a power of three of each byte: times the power, the byte's fraction remains; three times that overflows
 * by the digit. */
INLINE __m128i ternary_digits(__m128i bytes, __m256i power)
{
    __m256i v = _mm256_and_si256(_mm256_mullo_epi16(_mm256_cvtepu8_epi16(bytes), power), _mm256_set1_epi16(255));
    v = _mm256_srli_epi16(_mm256_mullo_epi16(v, _mm256_set1_epi16(3)), 8);
    return _mm_packus_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

INLINE __m256i ternary_tq1_0(const uint8_t *w, uint32_t t)
{
    static const short power[] = {1, 3, 9, 27, 81};
    int last;
    memcpy(&last, w + 48, 4);
    if (t < 5)
        return _mm256_set_m128i(ternary_digits(load128(w + 16), _mm256_set1_epi16(power[t])),
                                ternary_digits(load128(w), _mm256_set1_epi16(power[t])));
    const __m128i low = ternary_digits(load128(w + 32), _mm256_set1_epi16(power[2 * (t - 5)]));
    if (t < 7)
        return _mm256_set_m128i(ternary_digits(load128(w + 32), _mm256_set1_epi16(power[2 * (t - 5) + 1])), low);
    const __m256i by_x4 = _mm256_set_epi64x(0x001b001b001b001b, 0x0009000900090009, 0x0003000300030003,
                                            0x0001000100010001);
    return _mm256_set_m128i(ternary_digits(_mm_set1_epi32(last), by_x4), low);
}

typedef __m256i ternary_fn(const uint8_t *w, uint32_t t);

INLINE void block_ternary(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc,
                          ternary_fn *values)
{
    for (int r = 0; r < rows; r++)
        acc[r] = offset_term(_mm256_set1_epi16(1), x[r].s16 + b * 16, 0);
#pragma GCC unroll 8
    for (uint32_t t = 0; t < 8; t++) {
        const __m256i v = values(w, t);
        for (int r = 0; r < rows; r++)
            acc[r] = scaled_dot(acc[r], v, x[r].q + b * 256 + 32 * t, _mm256_set1_epi16(1));
    }
}

#define BLOCK(type, call)                                                                                              \
    INLINE void block_##type(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc,              \
                             __m256i *low)                                                                             \
    {                                                                                                                  \
        (void)low;                                                                                                     \
        call;                                                                                                          \
    }
BLOCK(iq1_s, block_signed(w, b, x, rows, acc, part_iq1_s))
BLOCK(iq1_m, block_signed(w, b, x, rows, acc, part_iq1_m))
BLOCK(tq1_0, block_ternary(w, b, x, rows, acc, ternary_tq1_0))
BLOCK(tq2_0, block_ternary(w, b, x, rows, acc, ternary_tq2_0))
SUPER_MATMUL(iq1_s, 0, false, 0.125f)
SUPER_MATMUL(iq1_m, D_SPREAD, false, 0.125f)
SUPER_MATMUL(tq1_0, 52, false, 1)
SUPER_MATMUL(tq2_0, 64, false, 1)
