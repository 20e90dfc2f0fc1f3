/* SPDX-License-Identifier: Apache-2.0 */
/* avx512_codes.c: products with i-quants that have codebooks (model/codes.h) and with ternary types, one to four rows
 * of x at a time, by quads of super-blocks (avx512_quads.h).
 *
 * Codes are looked up as avx512_codebooks.h describes. Values are taken by planes: a register has the i-th value of
 * each of 64 entries, by a shift of the codes and a permute of the levels, and is multiplied by a copy of x in the
 * same order. So a lane's products share a scale. Raised values have seven bits and are multiplied like those of Q6_K.
 * TQ1_0's digits are stored by planes.
 *
 * Needs VBMI and BITALG in addition to the other files' extensions. Without these, and for rows of more than 65536
 * columns, AVX2's kernels are used. */
#include "computed/cpu/avx512_codebooks.h"
#include "computed/cpu/avx512_quads.h"

/* 64 codes, by bytes; the signs of their values, a bit each, in the values' order (IQ1: all ones if a code's values
 * are one smaller); scales of 16 values each, as int16. */
struct codes {
    __m512i low, high, signs, scales;
};

/* Words of 4 x 7 signs to bytes. */
INLINE __m512i signs_of_words(__m512i words)
{
    return eight_signs(_mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352e2720150e0700), words));
}

/* Scales 2 s + 1 of 32 values each, twice: s in the low bits of 16 dwords. */
INLINE __m512i odd_twice(__m512i s)
{
    s = _mm512_add_epi32(_mm512_add_epi32(s, s), _mm512_set1_epi32(1));
    return _mm512_or_si512(s, _mm512_slli_epi32(s, 16));
}

/* Eight bytes of scales, two nibbles each, of 16 values each. */
INLINE __m256i odd_nibbles(const uint8_t *p)
{
    __m128i v = _mm_loadl_epi64((const void *)p), nibble = _mm_set1_epi8(15);
    v = _mm_unpacklo_epi8(_mm_and_si128(v, nibble), _mm_and_si128(_mm_srli_epi16(v, 4), nibble));
    return _mm256_cvtepu8_epi16(_mm_add_epi8(_mm_add_epi8(v, v), _mm_set1_epi8(1)));
}

/* ---- codes of two blocks (IQ2, IQ1) or of one (IQ3) */

INLINE __m512i two_halves(__m256i a, __m256i b) { return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1); }

/* Bytes 8 t .. 8 t + 3 of 64, and of 64 more. */
INLINE __m512i first_halves(__m512i a, __m512i b)
{
    return two_halves(_mm512_cvtepi64_epi32(a), _mm512_cvtepi64_epi32(b));
}

INLINE void codes_iq2_xxs(const uint8_t *const w[2], struct codes *c)
{
    __m512i a = load512(w[0] + 2), b = load512(w[1] + 2), at = first_halves(a, b);
    __m512i words = first_halves(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
    c->low = look_up_256_apart(low_iq2_xxs, at);
    c->high = look_up_256_apart(high_iq2_xxs, at);
    c->signs = signs_of_words(words);
    c->scales = odd_twice(_mm512_srli_epi32(words, 28));
}

INLINE void codes_iq2_xs(const uint8_t *const w[2], struct codes *c)
{
    __m512i a = load512(w[0] + 2), b = load512(w[1] + 2);
    __m512i at = two_halves(_mm512_cvtepi16_epi8(a), _mm512_cvtepi16_epi8(b));
    __m512i up = two_halves(_mm512_cvtepi16_epi8(_mm512_srli_epi16(a, 8)),
                            _mm512_cvtepi16_epi8(_mm512_srli_epi16(b, 8)));
    __mmask64 ninth = _mm512_test_epi8_mask(up, bytes512(1));
    c->low = look_up_512(low_iq2_xs, at, ninth);
    c->high = look_up_512(high_iq2_xs, at, ninth);
    c->signs = eight_signs(_mm512_srli_epi16(up, 1));
    c->scales = two_halves(odd_nibbles(w[0] + 66), odd_nibbles(w[1] + 66));
}

INLINE void codes_iq2_s(const uint8_t *const w[2], struct codes *c)
{
    const __m512i four = _mm512_set_epi64(0x0f0f0f0f0e0e0e0e, 0x0d0d0d0d0c0c0c0c, 0x0b0b0b0b0a0a0a0a,
                                          0x0909090908080808, 0x0707070706060606, 0x0505050504040404,
                                          0x0303030302020202, 0x0101010100000000);
    __m512i at = two_halves(load256(w[0] + 2), load256(w[1] + 2));
    __m128i up16 = _mm_unpacklo_epi64(_mm_loadl_epi64((const void *)(w[0] + 66)),
                                      _mm_loadl_epi64((const void *)(w[1] + 66)));
    __m512i up = _mm512_permutexvar_epi8(four, _mm512_castsi128_si512(up16));
    __mmask64 ninth = _mm512_test_epi8_mask(up, _mm512_set1_epi32(0x40100401)),
              tenth = _mm512_test_epi8_mask(up, _mm512_set1_epi32((int)0x80200802));
    c->low = look_up_1024(low_iq2_s, at, ninth, tenth);
    c->high = look_up_1024(high_iq2_s, at, ninth, tenth);
    c->signs = two_halves(load256(w[0] + 34), load256(w[1] + 34));
    c->scales = two_halves(odd_nibbles(w[0] + 74), odd_nibbles(w[1] + 74));
}

INLINE void codes_iq3_xxs(const uint8_t *w, struct codes *c)
{
    __m512i at = load512(w + 2), words = _mm512_castsi256_si512(load256(w + 66));
    c->low = look_up_256(low_iq3_xxs, at);
    c->high = look_up_256(high_iq3_xxs, at);
    c->signs = signs_of_words(words);
    c->scales = odd_twice(_mm512_srli_epi32(words, 28));
}

INLINE void codes_iq3_s(const uint8_t *w, struct codes *c)
{
    uint64_t ninth;
    int32_t scales;
    __m512i at = load512(w + 2);
    memcpy(&ninth, w + 66, 8);
    memcpy(&scales, w + 106, 4);
    c->low = look_up_512(low_iq3_s, at, _cvtu64_mask64(ninth));
    c->high = look_up_512(high_iq3_s, at, _cvtu64_mask64(ninth));
    c->signs = _mm512_castsi256_si512(load256(w + 74));
    __m256i s = _mm256_srlv_epi32(_mm256_set1_epi32(scales), _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0));
    c->scales = odd_twice(_mm512_castsi256_si512(_mm256_and_si256(s, _mm256_set1_epi32(15))));
}

/* ups: the three bits above each byte of qs. */
INLINE void look_up_iq1(struct codes *c, __m512i qs, __m512i ups)
{
    __mmask64 ninth = _mm512_test_epi8_mask(ups, bytes512(1)), tenth = _mm512_test_epi8_mask(ups, bytes512(2)),
              eleventh = _mm512_test_epi8_mask(ups, bytes512(4));
    c->low = look_up_2048(low_iq1, qs, ninth, tenth, eleventh);
    c->high = look_up_2048(high_iq1, qs, ninth, tenth, eleventh);
}

INLINE void codes_iq1_s(const uint8_t *const w[2], struct codes *c)
{
    __m512i qs = two_halves(load256(w[0] + 2), load256(w[1] + 2));
    __m256i words = _mm256_set_m128i(load128(w[1] + 34),
                                     /* a word per 32 values: 4 x 3 bits, the scale, and whether values are
                                      * smaller */
                                     load128(w[0] + 34));
    __m512i twos = _mm512_cvtepu32_epi64(words), dwords = _mm512_cvtepu16_epi32(words);
    look_up_iq1(c, qs, _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x1916131009060300), twos));
    c->signs = _mm512_srai_epi32(_mm512_slli_epi32(dwords, 16), 31);
    c->scales = odd_twice(_mm512_and_si512(_mm512_srli_epi32(dwords, 12), _mm512_set1_epi32(7)));
}

/* Four scales of three bits in each half word. */
INLINE __m256i odd_triples(const uint8_t *p)
{
    __m256i v = _mm256_broadcastsi128_si256(_mm_loadl_epi64((const void *)p));
    v = _mm256_shuffle_epi8(
        v, _mm256_set_epi64x(0x0706070607060706, 0x0504050405040504, 0x0302030203020302, 0x0100010001000100));
    v = _mm256_and_si256(_mm256_srlv_epi16(v, _mm256_set1_epi64x(0x0009000600030000)), _mm256_set1_epi16(7));
    return _mm256_add_epi16(_mm256_add_epi16(v, v), _mm256_set1_epi16(1));
}

INLINE void codes_iq1_m(const uint8_t *const w[2], struct codes *c)
{
    __m512i qs = two_halves(load256(w[0]), load256(w[1]));
    __m512i pairs = _mm512_cvtepu8_epi16(_mm256_set_m128i(load128(w[1] + 32), load128(w[0] + 32)));
    __m512i ups = _mm512_or_si512(pairs, _mm512_slli_epi16(pairs, 4)); /* a nibble to a byte */
    look_up_iq1(c, qs, ups);
    c->signs = _mm512_movm_epi8(_mm512_test_epi8_mask(ups, bytes512(8)));
    c->scales = two_halves(odd_triples(w[0] + 48), odd_triples(w[1] + 48));
}

/* ---- values by planes, times rows of x by planes */

/* A table of signed values of two bits: an index has a code in its two low bits and the sign in bit `sign`, of 2 to
 * 5. Other bits do not matter. Levels are 8, 25 and 43. */
#define SIGN_AT(at, sign)    ((at) >> (sign)&1 ? -1 : 1)
#define LEVEL_2_AT(at)       (8 + 17 * ((at)&3) + (((at)&3) == 2))
#define SIGNED_2(at, sign)   (((at)&3) == 3 ? 0 : RAISED + SIGN_AT(at, sign) * LEVEL_2_AT(at)),
#define SIGNED_2_4(at, sign) SIGNED_2(at, sign) SIGNED_2(at + 1, sign) SIGNED_2(at + 2, sign) SIGNED_2(at + 3, sign)
#define SIGNED_2_16(at, sign)                                                                                          \
    SIGNED_2_4(at, sign) SIGNED_2_4(at + 4, sign) SIGNED_2_4(at + 8, sign) SIGNED_2_4(at + 12, sign)
#define SIGNED_2_64(sign) {SIGNED_2_16(0, sign) SIGNED_2_16(16, sign) SIGNED_2_16(32, sign) SIGNED_2_16(48, sign)},
static const _Alignas(64) uint8_t signed_2[4][64] = {SIGNED_2_64(2) SIGNED_2_64(3) SIGNED_2_64(4) SIGNED_2_64(5)};

/* The same for values of three bits, with signs in bits 3 to 5. */
#define LEVEL_3_xxs(code)         ((code) == 7 ? 62 : 4 + 8 * (code))
#define LEVEL_3_s(code)           (2 * (code) + 1)
#define SIGNED_3(LEVEL, at, sign) (RAISED + SIGN_AT(at, sign) * LEVEL((at)&7)),
#define SIGNED_3_4(LEVEL, at, sign)                                                                                    \
    SIGNED_3(LEVEL, at, sign) SIGNED_3(LEVEL, at + 1, sign) SIGNED_3(LEVEL, at + 2, sign) SIGNED_3(LEVEL, at + 3, sign)
#define SIGNED_3_16(LEVEL, at, sign)                                                                                   \
    SIGNED_3_4(LEVEL, at, sign)                                                                                        \
    SIGNED_3_4(LEVEL, at + 4, sign) SIGNED_3_4(LEVEL, at + 8, sign) SIGNED_3_4(LEVEL, at + 12, sign)
#define SIGNED_3_64(LEVEL, sign)                                                                                       \
    {SIGNED_3_16(LEVEL, 0, sign) SIGNED_3_16(LEVEL, 16, sign) SIGNED_3_16(LEVEL, 32, sign)                             \
         SIGNED_3_16(LEVEL, 48, sign)},
#define SIGNED_3_ALL(LEVEL)                                                                                            \
    {                                                                                                                  \
        SIGNED_3_64(LEVEL, 3) SIGNED_3_64(LEVEL, 4) SIGNED_3_64(LEVEL, 5)                                              \
    }
static const _Alignas(64) uint8_t signed_3_xxs[3][64] = SIGNED_3_ALL(LEVEL_3_xxs), signed_3_s[3][64] =
                                                                                       SIGNED_3_ALL(LEVEL_3_s);

/* Bits of a where the mask is 1, else of b. */
INLINE __m512i bits_or(__m512i a, __m512i b, __m512i mask) { return _mm512_ternarylogic_epi32(a, b, mask, 0xe4); }

/* Plane i of values of two bits; the i-th sign bits are moved to the place that the table expects. */
INLINE __m512i plane_of_x8(const struct codes *c, const __m512i signs[3], const int i)
{
    const __m512i code = _mm512_srli_epi16(i < 4 ? c->low : c->high, 2 * (unsigned)(i % 4));
    const int shift = (i >= 2) + (i >= 6), bit = i + 4 - 4 * shift;
    return _mm512_permutexvar_epi8(bits_or(code, signs[shift], bytes512(3)), load512(signed_2[bit - 2]));
}

/* Two blocks times x from block b on: a register of sums, the first block's in the lower half. sub: values that share
 * a scale. */
INLINE void multiply_x8(const struct codes *c, const bool iq1, const int sub, const struct q8k_row *x, size_t b,
                        const int rows, __m512i *acc)
{
    const __m512i less = _mm512_and_si512(c->signs, bytes512(2));
    const __m512i signs[3] = {_mm512_slli_epi16(c->signs, 4), c->signs, _mm512_srli_epi16(c->signs, 4)};
    __m512i sum[4];
    for (int r = 0; r < rows; r++) {
        sum[r] = _mm512_setzero_si512();
        acc[r] = _mm512_sub_epi32(
            sum[r], _mm512_slli_epi32(_mm512_madd_epi16(c->scales, load512(x[r].s16 + b * 16)), RAISED_LOG2));
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const __m512i code = _mm512_srli_epi16(i < 4 ? c->low : c->high, 2 * (unsigned)(i % 4));
        const __m512i v = iq1 ? _mm512_sub_epi8(_mm512_permutexvar_epi8(code, levels_1()), less)
                              : plane_of_x8(c, signs, i);
        for (int r = 0; r < rows; r++) {
            const __m512i q = load512(x[r].q + b * NTX_QKK + 64 * (size_t)i);
            if (sub == 16)
                acc[r] = _mm512_dpwssd_epi32(acc[r], _mm512_maddubs_epi16(v, q), c->scales);
            else
                sum[r] = _mm512_dpbusd_epi32(sum[r], v, q);
        }
    }
    for (int r = 0; r < rows && sub == 32; r++) /* the lower of two equal halves */
        acc[r] = _mm512_add_epi32(acc[r], _mm512_mullo_epi32(sum[r], _mm512_srli_epi32(c->scales, 16)));
}

/* One block. A scale holds for 32 values: 16 bytes of two planes, or two lanes. */
INLINE void multiply_x4(const struct codes *c, const uint8_t (*levels)[64], const struct q8k_row *x, size_t b,
                        const int rows, __m512i *acc)
{
    const __m256i s16 = _mm512_castsi512_si256(c->scales);
    const __m512i scale = _mm512_permutexvar_epi32(_mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0),
                                                   _mm512_srli_epi32(c->scales, 16));
    const __m512i words = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(c->signs)),
                  signs = _mm512_or_si512(words, _mm512_slli_epi16(words, 4)); /* a nibble to a byte */
    const __m512i signs_up = _mm512_slli_epi16(signs, 3);
    __m512i sum[4];
    for (int r = 0; r < rows; r++)
        sum[r] = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512i at = bits_or(_mm512_srli_epi16(i < 2 ? c->low : c->high, 3 * (unsigned)(i % 2)),
                                   i < 3 ? signs_up : signs, bytes512(7));
        const __m512i v = _mm512_permutexvar_epi8(at, load512(levels[i % 3]));
        for (int r = 0; r < rows; r++)
            sum[r] = _mm512_dpbusd_epi32(sum[r], v, load512(x[r].q + b * NTX_QKK + 64 * (size_t)i));
    }
    for (int r = 0; r < rows; r++)
        acc[r] = _mm512_add_epi32(_mm512_mullo_epi32(sum[r], scale), offset_term(s16, x[r].s16 + b * 16, RAISED_LOG2));
}

/* Joins two registers of two blocks' sums: 128-bit lane k has four sums of block k. */
INLINE __m512i fold_pairs(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* Orders n bytes of x by planes: of each 64 entries of `entry` values first all first values, then all second ones. */
INLINE void by_planes(const int8_t *q, size_t n, const size_t entry, int8_t *to)
{
    for (size_t at = 0; at < n; at += 64 * entry)
        for (size_t i = 0; i < entry; i++)
            for (size_t k = 0; k < 64; k++)
                to[at + 64 * i + k] = q[at + entry * k + i];
}

/* ---- ternary types: no codes, the rest is the same */

/* Four blocks' values, RAISED too large. */
struct raised {
    uint8_t values[4][NTX_QKK];
} __attribute__((aligned(64)));

INLINE void one_tq2_0(const uint8_t *w, struct raised *u, int k)
{
    for (int t = 0; t < 4; t++)
        _mm512_store_si512(u->values[k] + 64 * t, _mm512_add_epi8(two_bits(w, t), bytes512(RAISED - 1)));
}

/* The digits of 64 bytes times five registers of x each. */
INLINE void multiply_digits(__m512i v, const int8_t *const x[4], size_t at, const int rows, __m512i *acc)
{
    const __m512i later = look_up_256_apart(digits_tq1_0, v);
    v = first_digit(v);
#pragma GCC unroll 5
    for (int n = 0; n < 5; n++) {
        if (n)
            v = _mm512_and_si512(_mm512_srli_epi16(later, 2 * (n - 1)), bytes512(3));
        for (int r = 0; r < rows; r++)
            acc[r] = _mm512_dpbusd_epi32(acc[r], v, load512(x[r] + at + 64 * (size_t)n));
    }
}

/* Orders four blocks of x for TQ1_0 as the weights' digits are stored. For the first 32 bytes of two blocks: all first
 * digits, all second ones, ...; the same for the other two blocks; then for the next 16 bytes of all four; then for
 * their last four bytes, which have four digits: the first of each block, the second ... */
INLINE void by_digits(const int8_t *q, size_t n, int8_t *to)
{
    for (size_t b = 0; b < n; b += 4 * NTX_QKK)
        for (size_t k = 0; k < 4; k++)
            for (size_t d = 0; d < 5; d++) {
                const int8_t *from = q + b + k * NTX_QKK;
                memcpy(to + b + 64 * (k / 2 * 5 + d) + 32 * (k % 2), from + 32 * d, 32);
                memcpy(to + b + 640 + 64 * d + 16 * k, from + 160 + 16 * d, 16);
                if (d < 4)
                    memcpy(to + b + 960 + 16 * d + 4 * k, from + 240 + 4 * d, 4);
            }
}

/* Values are one too large, which the sums of x correct. */
INLINE void quad_sums_tq1_0(const struct quad *q, const struct q8k_row *x, const int rows, struct quad_sums *out)
{
    const size_t at = (size_t)q->block * NTX_QKK;
    const int8_t *from[4];
    __m512i acc[3][4];
    for (int r = 0; r < rows; r++) {
        from[r] = x[r].q;
        for (int i = 0; i < 3; i++)
            acc[i][r] = _mm512_setzero_si512();
    }
    multiply_digits(two_halves(load256(q->w[0]), load256(q->w[1])), from, at, rows, acc[0]);
    multiply_digits(two_halves(load256(q->w[2]), load256(q->w[3])), from, at + 320, rows, acc[1]);
    multiply_digits(four_lanes(q, 32), from, at + 640, rows, acc[2]);
    uint32_t tails[4];
    for (int k = 0; k < 4; k++)
        memcpy(&tails[k], q->w[k] + 48, 4);
    __m512i last = _mm512_broadcast_i32x4(load128(tails));
    __m512i digits = _mm512_and_si512(
        _mm512_srlv_epi64(look_up_256_apart(digits_tq1_0, last), _mm512_set_epi64(4, 4, 2, 2, 0, 0, 0, 0)),
        bytes512(3));
    last = _mm512_mask_blend_epi64(3, digits, first_digit(last)); /* the four digits of each lane */
    for (int r = 0; r < rows; r++) {
        __m512i sums = _mm512_madd_epi16(_mm512_loadu_si512(x[r].s32 + (size_t)q->block * 8), _mm512_set1_epi16(1));
        __m512i ends = _mm512_dpbusd_epi32(_mm512_setzero_si512(), last, load512(from[r] + at + 960));
        out[r].i = _mm512_sub_epi32(
            _mm512_add_epi32(_mm512_add_epi32(fold_pairs(acc[0][r], acc[1][r]), acc[2][r]), natural_order(ends)), sums);
    }
}

/* ---- the common part */

INLINE void multiply_quad(const struct quad *q, const struct raised *u, const struct q8k_row *x, int rows,
                          struct quad_sums *out)
{
    __m512i acc[4][4];
    for (int k = 0; k < 4; k++) {
        size_t b = q->block + (size_t)k;
        const __m256i one = _mm256_set1_epi16(1);
        for (int r = 0; r < rows; r++)
            acc[r][k] = offset_term(one, x[r].s16 + b * 16, RAISED_LOG2);
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) {
            __m512i v = load512(u->values[k] + 64 * t);
            for (int r = 0; r < rows; r++)
                acc[r][k] = _mm512_dpbusd_epi32(acc[r][k], v, load512(x[r].q + b * 256 + 64 * t));
        }
    }
    for (int r = 0; r < rows; r++)
        out[r].i = fold4(acc[r]);
}

/* Half words in the order of a quad's heads. */
INLINE __m512i four_heads(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    __m128i v = _mm_set_epi32((int)d, (int)c, (int)b, (int)a);
    return _mm512_permutexvar_epi32(_mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0),
                                    _mm512_castsi128_si512(v));
}

#define QUAD_BEGIN(type)                                                                                               \
    INLINE void quad_##type(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out,            \
                            __m512i *d, const struct quad_heads *heads, const struct split *split)                     \
    {                                                                                                                  \
        (void)heads;                                                                                                   \
        (void)split;
#define QUAD_END(type, D)                                                                                              \
    *d = four_heads(D(type, q->w[0]), D(type, q->w[1]), D(type, q->w[2]), D(type, q->w[3]));                           \
    }

/* unroll: 2 if look-ups of both pairs at once were measured to be faster, else 1 (docs/log/kernels-x86.md). */
#define CODES_X8(type, D, iq1, sub, unroll)                                                                            \
    QUAD_BEGIN(type)                                                                                                   \
    __m512i acc[2][4];                                                                                                 \
    _Pragma(unroll) for (size_t k = 0; k < 2; k++)                                                                     \
    {                                                                                                                  \
        struct codes c;                                                                                                \
        codes_##type(q->w + 2 * k, &c);                                                                                \
        multiply_x8(&c, iq1, sub, x, q->block + 2 * k, rows, acc[k]);                                                  \
    }                                                                                                                  \
    for (int r = 0; r < rows; r++)                                                                                     \
        out[r].i = fold_pairs(acc[0][r], acc[1][r]);                                                                   \
    QUAD_END(type, D)

#define CODES_X4(type, D, levels)                                                                                      \
    QUAD_BEGIN(type)                                                                                                   \
    __m512i acc[4][4];                                                                                                 \
    for (size_t k = 0; k < 4; k++) {                                                                                   \
        struct codes c;                                                                                                \
        __m512i one[4];                                                                                                \
        codes_##type(q->w[k], &c);                                                                                     \
        multiply_x4(&c, levels, x, q->block + k, rows, one);                                                           \
        for (int r = 0; r < rows; r++)                                                                                 \
            acc[r][k] = one[r];                                                                                        \
    }                                                                                                                  \
    for (int r = 0; r < rows; r++)                                                                                     \
        out[r].i = fold4(acc[r]);                                                                                      \
    QUAD_END(type, D)

QUAD_BEGIN(tq1_0)
quad_sums_tq1_0(q, x, rows, out);
QUAD_END(tq1_0, D_AT)

QUAD_BEGIN(tq2_0)
struct raised u;
for (int k = 0; k < 4; k++)
    one_tq2_0(q->w[k], &u, k);
multiply_quad(q, &u, x, rows, out);
QUAD_END(tq2_0, D_AT)

CODES_X8(iq2_xxs, D_AT, false, 32, "GCC unroll 1")
CODES_X8(iq2_xs, D_AT, false, 16, "GCC unroll 1")
CODES_X8(iq2_s, D_AT, false, 16, "GCC unroll 2")
CODES_X8(iq1_s, D_AT, true, 32, "GCC unroll 1")
CODES_X8(iq1_m, D_SPREAD, true, 16, "GCC unroll 1")
CODES_X4(iq3_xxs, D_AT, signed_3_xxs)
CODES_X4(iq3_s, D_AT, signed_3_s)

/* ---- all outputs */

enum { PLANES_MAX = 64 << 10 }; /* most bytes of a row of x by planes, on the stack */

enum entry_of {
    ENTRY_iq2_xxs = 8,
    ENTRY_iq2_xs = 8,
    ENTRY_iq2_s = 8,
    ENTRY_iq1_s = 8,
    ENTRY_iq1_m = 8,
    ENTRY_iq3_xxs = 4,
    ENTRY_iq3_s = 4,
    ENTRY_tq1_0 = 5,
    ENTRY_tq2_0 = 0
};

/* As super_rows(), with x by planes. */
INLINE void mm_planes(const struct shape *s, uint32_t r, const int rows, size_t block_bytes, const float factor,
                      const size_t entry, quad_fn *quad)
{
    int8_t planes[4][PLANES_MAX] __attribute__((aligned(64)));
    struct q8k_row x[4];
    const uint32_t nb = s->n_in / NTX_QKK;
    for (int k = 0; k < rows; k++) {
        x[k] = q8k_view(s->x + (r + (size_t)k) * s->x_stride, s->n_in);
        if (entry == ENTRY_tq1_0)
            by_digits(x[k].q, round_up(nb, 4) * (size_t)NTX_QKK, planes[k]);
        else
            by_planes(x[k].q, round_up(nb, 4) * (size_t)NTX_QKK, entry, planes[k]);
        x[k].q = planes[k];
    }
    for (uint32_t o = 0; o < s->n_out; o++) {
        __m512 acc[4];
        dot_blocks(s->w + o * s->row_bytes, s->end, nb, x, rows, acc, block_bytes, false, factor, NULL, quad, NULL);
        for (int k = 0; k < rows; k++)
            s->y[(r + (size_t)k) * s->ldy + o] = join_ps(acc[k]);
    }
}

#define CODES_ROWS(type, k, factor)                                                                                    \
    static void rows##k##_##type(const struct shape *s, uint32_t r)                                                    \
    {                                                                                                                  \
        if (ENTRY_##type)                                                                                              \
            mm_planes(s, r, k, sizeof(struct ntx_block_##type), factor, ENTRY_##type, quad_##type);                    \
        else                                                                                                           \
            super_rows(s, r, k, sizeof(struct ntx_block_##type), false, factor, NULL, quad_##type);                    \
    }

#define CODES_MATMUL(TYPE, type, factor, ...)                                                                          \
    CODES_ROWS(type, 1, factor)                                                                                        \
    CODES_ROWS(type, 2, factor)                                                                                        \
    CODES_ROWS(type, 4, factor)                                                                                        \
    DECLARE_MATMUL(ntx__mm512_##type)                                                                                  \
    {                                                                                                                  \
        if (!ntx__cpu_permutes_bytes || n_in > PLANES_MAX) {                                                           \
            ntx__mm256_##type(w, row_bytes, n_out, n_in, x, x_stride, n_rows, y, ldy);                                 \
            return;                                                                                                    \
        }                                                                                                              \
        MATMUL_BODY(type)                                                                                              \
    }
AVX512_CODES(CODES_MATMUL)
