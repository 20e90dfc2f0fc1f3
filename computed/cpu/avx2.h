/* SPDX-License-Identifier: Apache-2.0 */
/* avx2.h: functions that the AVX2 files share. They follow cpu.h's order with the 16 lanes in two registers: integer
 * sums of 8 blocks are moved to the 8 lanes of one register by a tree of shuffles and (exact) integer adds, then
 * scaled all at once. */
#ifndef NTX_COMPUTED_CPU_AVX2_H
#define NTX_COMPUTED_CPU_AVX2_H

#include <immintrin.h>

#include "computed/cpu/lanes.h"

INLINE __m256i load256(const void *p) { return _mm256_loadu_si256(p); }
INLINE __m128i load128(const void *p) { return _mm_loadu_si128(p); }
INLINE __m256i bytes256(int b) { return _mm256_set1_epi8((char)b); }

/* In each 128-bit lane, element g becomes the sum of v[g]'s four elements. */
INLINE __m256i sum4x4(const __m256i v[4])
{
    __m256i a = _mm256_add_epi32(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    __m256i b = _mm256_add_epi32(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/* Lane k: the sum of v[k]'s eight elements. */
INLINE __m256i sum8x8(const __m256i v[8])
{
    __m256i a = sum4x4(v), b = sum4x4(v + 4);
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

/* 8 F16 in the low halves of 8 dwords. */
INLINE __m256 widen_low_halves(__m256i v)
{
    __m256i w = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    w = _mm256_permute4x64_epi64(_mm256_packus_epi32(w, w), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(w));
}

/* All ones in the first n of 8 lanes. */
INLINE __m256 first_lanes(uint32_t n)
{
    __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n < 8 ? (int)n : 8), lane));
}

/* acc + a * b in live lanes; other lanes keep acc's bits. */
INLINE __m256 fma_live(__m256 a, __m256 b, __m256 acc, __m256 live)
{
    return _mm256_blendv_ps(acc, _mm256_fmadd_ps(a, b, acc), live);
}

/* The fixed tree over 16 lanes in two registers. */
INLINE float join_halves(__m256 low, __m256 high)
{
    __m256 v = _mm256_add_ps(low, high);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* A call's arguments, for the loops under it. */
struct shape {
    const uint8_t *w;
    const char *x;
    float *y;
    size_t row_bytes, x_stride, ldy;
    uint32_t n_out, n_in;
};

/* The kernels, by file. */
#define DECLARE_MATMUL(name)                                                                                           \
    void name(const void *w, size_t row_bytes, uint32_t n_out, uint32_t n_in, const void *x, size_t x_stride,          \
              uint32_t n_rows, float *y, size_t ldy)
#define AVX2_TYPES(X)                                                                                                  \
    X(F32, f32)                                                                                                        \
    X(F16, f16)                                                                                                        \
    X(BF16, bf16) /* avx2_float.c */                                                                                   \
    X(Q4_0, q4_0)                                                                                                      \
    X(Q4_1, q4_1)                                                                                                      \
    X(Q5_0, q5_0)                                                                                                      \
    X(Q5_1, q5_1) /* avx2_simple.c */                                                                                  \
    X(Q8_0, q8_0)                                                                                                      \
    NTX_LOOKUPS(X)                                                                                                     \
    X(Q1_0, q1_0)                                                                                                      \
    X(Q2_0, q2_0)                                                                                                      \
    X(NVFP4, nvfp4)                                                                                                    \
    X(Q2_K, q2_k)                                                                                                      \
    X(Q3_K, q3_k)                                                                                                      \
    X(Q4_K, q4_k)                                                                                                      \
    X(Q5_K, q5_k)                                                                                                      \
    X(Q6_K, q6_k)                                                                                                      \
    X(IQ4_XS, iq4_xs)                                                             /* avx2_super.c */                   \
    AVX2_CODES(X) X(IQ1_S, iq1_s) X(IQ1_M, iq1_m) X(TQ1_0, tq1_0) X(TQ2_0, tq2_0) /* avx2_codes.c */
/* i-quants with codebooks (avx2_codes.c), and the factor of their d. */
#define AVX2_CODES(X)                                                                                                  \
    X(IQ2_XXS, iq2_xxs, 0.125f)                                                                                        \
    X(IQ2_XS, iq2_xs, 0.125f) X(IQ2_S, iq2_s, 0.125f) X(IQ3_XXS, iq3_xxs, 0.25f) X(IQ3_S, iq3_s, 1)
#define AVX2_DECLARE(TYPE, type, ...) DECLARE_MATMUL(ntx__mm256_##type);
AVX2_TYPES(AVX2_DECLARE)

/* Defines ntx__mm256_<type> by rows<k>_<type>(shape, first row), k = 1, 2, and by `many` for n_many rows at a time: in
 * bands of outputs whose weights stay in the cache for all rows. */
enum { BAND = 128 << 10 };

#define MATMUL_BY_MANY(type, many, n_many)                                                                             \
    DECLARE_MATMUL(ntx__mm256_##type)                                                                                  \
    {                                                                                                                  \
        uint32_t band = row_bytes < BAND ? (uint32_t)(BAND / row_bytes) : 1;                                           \
        for (uint32_t o = 0; o < n_out; o += band) {                                                                   \
            const uint8_t *from = (const uint8_t *)w + o * row_bytes;                                                  \
            struct shape s = {from, x, y + o, row_bytes, x_stride, ldy, n_out - o < band ? n_out - o : band, n_in};    \
            uint32_t r = 0;                                                                                            \
            for (; n_rows - r >= (n_many); r += (n_many))                                                              \
                many(&s, r);                                                                                           \
            for (; n_rows - r >= 2; r += 2)                                                                            \
                rows2_##type(&s, r);                                                                                   \
            if (r < n_rows)                                                                                            \
                rows1_##type(&s, r);                                                                                   \
        }                                                                                                              \
    }
#define MATMUL_BY_ROWS(type) MATMUL_BY_MANY(type, rows2_##type, 2)

#endif
