/* avx2_codes.c: products with i-quants of code books (model/codes.h), one or two rows of x at a time. Books hold whole vecs of values here, 2 to
 * 8 KiB that stay in the first-level cache; signs go to x. */
#include "infer/cpu/avx2_octets.h"

/* Level c of a code of two bits, and all eight of a code; of three bits, four. */
#define LEVEL_2(c, i) ((uint64_t)(8 + 17 * ((c) >> 2 * (i) & 3) + ((c) >> (2 * (i) + 1) & 1)) << 8 * (i))
#define EIGHT(c) LEVEL_2(c, 0) | LEVEL_2(c, 1) | LEVEL_2(c, 2) | LEVEL_2(c, 3) | LEVEL_2(c, 4) | LEVEL_2(c, 5) | LEVEL_2(c, 6) | LEVEL_2(c, 7),
#define LEVEL_XXS(c, i) ((uint32_t)(4 + 8 * ((c) >> 3 * (i) & 7) + 2 * (((c) >> 3 * (i) & 7) == 7)) << 8 * (i))
#define FOUR_XXS(c) LEVEL_XXS(c, 0) | LEVEL_XXS(c, 1) | LEVEL_XXS(c, 2) | LEVEL_XXS(c, 3),
#define LEVEL_S(c, i) ((uint32_t)(1 + 2 * ((c) >> 3 * (i) & 7)) << 8 * (i))
#define FOUR_S(c) LEVEL_S(c, 0) | LEVEL_S(c, 1) | LEVEL_S(c, 2) | LEVEL_S(c, 3),

static const uint64_t book_iq2_xxs[] = {NTX_CODES_iq2_xxs(EIGHT)}, book_iq2_xs[] = {NTX_CODES_iq2_xs(EIGHT)}, book_iq2_s[] = {NTX_CODES_iq2_s(EIGHT)};
static const uint32_t book_iq3_xxs[] = {NTX_CODES_iq3_xxs(FOUR_XXS)}, book_iq3_s[] = {NTX_CODES_iq3_s(FOUR_S)};

/* Bit k of 32 to byte k: all ones where it is set, with the lowest bit always. */
INLINE __m256i minus_ones(uint32_t bits)
{
    const __m256i at = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0), mask = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), at), mask);
    return _mm256_or_si256(_mm256_cmpeq_epi8(spread, mask), bytes256(1));
}

/* 4 x 7 signs to 4 x 8: the number of minuses in each is even. */
INLINE uint32_t eight_signs(uint32_t s)
{
    uint32_t v = (s & 127) | (s >> 7 & 127) << 8 | (s >> 14 & 127) << 16 | (s >> 21 & 127) << 24, p = v ^ (v >> 4 & 0x0f0f0f0f);
    p ^= p >> 2 & 0x3f3f3f3f;
    p ^= p >> 1 & 0x7f7f7f7f;
    return v | (p & 0x01010101) << 7;
}

INLINE __m256i four_groups(const uint64_t *book, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return _mm256_set_epi64x((long long)book[d], (long long)book[c], (long long)book[b], (long long)book[a]);
}

INLINE __m256i eight_groups(const uint32_t *book, const uint8_t *at, uint32_t ninth)
{
    uint32_t i[8];
    for (uint32_t k = 0; k < 8; k++)
        i[k] = at[k] | (ninth >> k & 1) << 8;
    return _mm256_set_epi32((int)book[i[7]], (int)book[i[6]], (int)book[i[5]], (int)book[i[4]], (int)book[i[3]], (int)book[i[2]], (int)book[i[1]], (int)book[i[0]]);
}

/* 32 values without and their signs, and the scales of 16 values each. */
struct group {
    __m256i v;
    uint32_t signs;
    int scale[2];
};

typedef struct group group_fn(const uint8_t *w, uint32_t t);

INLINE struct group group_iq2_xxs(const uint8_t *w, uint32_t t)
{
    const uint8_t *q = w + 2 + 8 * t;
    uint32_t word;
    memcpy(&word, q + 4, 4);
    int scale = (int)(2 * (word >> 28) + 1);
    return (struct group){four_groups(book_iq2_xxs, q[0], q[1], q[2], q[3]), eight_signs(word), {scale, scale}};
}

INLINE void odd_nibbles(struct group *g, uint32_t byte)
{
    g->scale[0] = (int)(2 * (byte & 15) + 1);
    g->scale[1] = (int)(2 * (byte >> 4) + 1);
}

INLINE struct group group_iq2_xs(const uint8_t *w, uint32_t t)
{
    struct group g;
    uint16_t q[4];
    memcpy(q, w + 2 + 8 * t, 8);
    g.v = four_groups(book_iq2_xs, q[0] & 511, q[1] & 511, q[2] & 511, q[3] & 511);
    g.signs = eight_signs((uint32_t)(q[0] >> 9) | (uint32_t)(q[1] >> 9) << 7 | (uint32_t)(q[2] >> 9) << 14 | (uint32_t)(q[3] >> 9) << 21);
    odd_nibbles(&g, w[66 + t]);
    return g;
}

INLINE struct group group_iq2_s(const uint8_t *w, uint32_t t)
{
    struct group g;
    const uint8_t *q = w + 2 + 4 * t;
    const uint32_t up = w[66 + t];
    g.v = four_groups(book_iq2_s, q[0] | (up & 3) << 8, q[1] | (up >> 2 & 3) << 8, q[2] | (up >> 4 & 3) << 8, q[3] | up >> 6 << 8);
    memcpy(&g.signs, w + 34 + 4 * t, 4);
    odd_nibbles(&g, w[74 + t]);
    return g;
}

INLINE struct group group_iq3_xxs(const uint8_t *w, uint32_t t)
{
    uint32_t word;
    memcpy(&word, w + 66 + 4 * t, 4);
    int scale = (int)(2 * (word >> 28) + 1);
    return (struct group){eight_groups(book_iq3_xxs, w + 2 + 8 * t, 0), eight_signs(word), {scale, scale}};
}

INLINE struct group group_iq3_s(const uint8_t *w, uint32_t t)
{
    struct group g = {.v = eight_groups(book_iq3_s, w + 2 + 8 * t, w[66 + t])};
    memcpy(&g.signs, w + 74 + 4 * t, 4);
    g.scale[0] = g.scale[1] = 2 * (w[106 + t / 2] >> t % 2 * 4 & 15) + 1;
    return g;
}

INLINE void block_groups(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, group_fn *group)
{
    for (int r = 0; r < rows; r++)
        acc[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (uint32_t t = 0; t < 8; t++) {
        struct group g = group(w, t);
        __m256i signs = minus_ones(g.signs), scale = _mm256_set_m128i(_mm_set1_epi16((short)g.scale[1]), _mm_set1_epi16((short)g.scale[0]));
        for (int r = 0; r < rows; r++) {
            __m256i pairs = _mm256_maddubs_epi16(g.v, _mm256_sign_epi8(load256(x[r].q + b * 256 + 32 * t), signs));
            acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(pairs, scale));
        }
    }
}

#define CODES_MATMUL(TYPE, type, factor)                                                                                           \
    INLINE void block_##type(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)            \
    {                                                                                                                              \
        (void)low;                                                                                                                 \
        block_groups(w, b, x, rows, acc, group_##type);                                                                            \
    }                                                                                                                              \
    SUPER_MATMUL(type, 0, false, factor)
AVX2_CODES(CODES_MATMUL)
