/* SPDX-License-Identifier: Apache-2.0 */
/* avx512.h: functions that the AVX-512 files share. They follow cpu.h's order with one lane per block: integer sums of
 * 16 blocks are moved to the 16 lanes of one register by a tree of shuffles and (exact) integer adds, then scaled all
 * at once. */
#ifndef NTX_COMPUTED_CPU_AVX512_H
#define NTX_COMPUTED_CPU_AVX512_H

#include <immintrin.h>

#include "computed/cpu/lanes.h"

/* Joins int32 lanes of four registers: in each 128-bit lane, element g becomes the sum of v[g]'s four elements. */
INLINE __m512i sum4x4(__m512i v0, __m512i v1, __m512i v2, __m512i v3)
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v0, v1), _mm512_unpackhi_epi32(v0, v1));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v2, v3), _mm512_unpackhi_epi32(v2, v3));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* Adds up the 128-bit lanes of each of two: lanes (a0 + a2, a1 + a3, b0 + b2, b1 + b3). */
INLINE __m512i fold_lanes(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xee));
}

/* 128-bit lane k: the sum of v[k]'s four lanes. */
INLINE __m512i fold4(const __m512i v[4])
{
    __m512i a = fold_lanes(v[0], v[1]), b = fold_lanes(v[2], v[3]);
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* 128-bit lane k: the sum of v[k]'s two. */
INLINE __m512i fold_halves(const __m256i v[4])
{
    __m512i a = _mm512_inserti64x4(_mm512_castsi256_si512(v[0]), v[1], 1),
            b = _mm512_inserti64x4(_mm512_castsi256_si512(v[2]), v[3], 1);
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* Bits of `yes` where the mask's byte has ones, else of `no`. */
INLINE __m512i select_bits(int mask, __m512i yes, __m512i no)
{
    return _mm512_ternarylogic_epi64(_mm512_set1_epi8((char)mask), yes, no, 0xca);
}

/* 16 F16 in the low halves of 16 dwords. */
INLINE __m512 widen_low_halves(__m512i v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }

/* 16 scales that are exponents. The two smallest are subnormal, and rare. */
INLINE __m512 widen_exponents(__m128i e)
{
    __m512i d = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_subs_epu8(e, _mm_set1_epi8(1))), 23);
    __mmask16 low = _mm_cmplt_epu8_mask(e, _mm_set1_epi8(2));
    if (__builtin_expect(low, 0))
        d = _mm512_mask_sllv_epi32(d, low, _mm512_set1_epi32(0x00200000), _mm512_cvtepu8_epi32(e));
    return _mm512_castsi512_ps(d);
}

/* Half of E4M3s without a sign, a byte of a dword each; 0x7f counts as 0 (ntx_e4m3_half_float). */
INLINE __m512 widen_e4m3(__m512i x)
{
    const __m512i mantissa = _mm512_and_si512(x, _mm512_set1_epi32(7));
    __m512i bits = _mm512_add_epi32(_mm512_slli_epi32(_mm512_and_si512(x, _mm512_set1_epi32(127)), 20),
                                    _mm512_set1_epi32(119 << 23));
    __m512 v = _mm512_mask_mul_ps(_mm512_castsi512_ps(bits), _mm512_testn_epi32_mask(x, _mm512_set1_epi32(0x78)),
                                  _mm512_cvtepi32_ps(mantissa), _mm512_set1_ps(0x1p-10f));
    return _mm512_mask_mov_ps(v, _mm512_cmpeq_epi32_mask(x, _mm512_set1_epi32(127)), _mm512_setzero_ps());
}

/* Tables for shuffles within 128-bit lanes: NTX_VALUES_<type>, and the same raised so that none is negative. */
#define LOOKUP_VALUES(TYPE, type, scale, raise)                                                                        \
    INLINE __m512i values_##type(void) { return _mm512_broadcast_i32x4(_mm_setr_epi8(NTX_VALUES_##type)); }            \
    INLINE __m512i raised_##type(void)                                                                                 \
    {                                                                                                                  \
        return _mm512_add_epi8(values_##type(), _mm512_set1_epi8((char)(1 << raise)));                                 \
    }
NTX_LOOKUPS(LOOKUP_VALUES)

/* The first n of 16 lanes. */
INLINE __mmask16 first_lanes(uint32_t n) { return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1); }

/* The fixed tree over 16 lanes. */
INLINE float join_ps(__m512 v) { return join16((struct f16){{(fpart)v}}); }

/* A call's arguments for its loops; end: the end of all weights, of which w is a part. */
struct shape {
    const uint8_t *w;
    const char *x;
    float *y;
    size_t row_bytes, x_stride, ldy;
    uint32_t n_out, n_in;
    const uint8_t *end;
};

/* How far ahead weights are prefetched for few rows. */
INLINE enum reach reach_for(const int rows)
{
    enum reach reach;
    if (ntx__cpu_fetch_far)
        reach = REACH_FAR;
    else
        reach = rows == 1 ? REACH_BOTH : REACH_NEAR;
    return reach;
}

/* Prefetches the weights that follow `bytes` at p, which are multiplied now. */
INLINE void prefetch_next(const uint8_t *p, size_t bytes, const size_t near, const enum reach reach, const uint8_t *end)
{
    const ptrdiff_t far = reach == REACH_FAR ? FAR_AHEAD : FAR_AHEAD_OF_NEAR;
    if (reach != REACH_NEAR && far < end - p)
        prefetch_second(p + far, bytes, end);
    if (reach != REACH_FAR)
        prefetch_weights(p, bytes, near, REACH_NEAR);
}

/* The kernels, by file. */
#define DECLARE_MATMUL(name)                                                                                           \
    void name(const void *w, size_t row_bytes, uint32_t n_out, uint32_t n_in, const void *x, size_t x_stride,          \
              uint32_t n_rows, float *y, size_t ldy)
#define AVX512_FLOATS(X) X(F32, f32) X(F16, f16) X(BF16, bf16) /* avx512_float.c */
#define AVX512_MANY(X)   X(F16, f16) X(BF16, bf16)             /* avx512_many.c */
#define AVX512_BLOCKS(X)                                                                                               \
    X(Q4_0, q4_0)                                                                                                      \
    X(Q4_1, q4_1)                                                                                                      \
    X(Q5_0, q5_0)                                                                                                      \
    X(Q5_1, q5_1) /* avx512_simple.c */                                                                                \
    X(Q8_0, q8_0)                                                                                                      \
    NTX_LOOKUPS(X)                                                                                                     \
    X(Q1_0, q1_0)                                                                                                      \
    X(Q2_0, q2_0)                                                                                                      \
    X(NVFP4, nvfp4)                                                                                                    \
    X(Q2_K, q2_k)                                                                                                      \
    X(Q3_K, q3_k)                                                                                                      \
    X(Q4_K, q4_k)                                                                                                      \
    X(Q5_K, q5_k)                                                                                                      \
    X(Q6_K, q6_k) /* avx512_super.c */                                                                                 \
    X(IQ4_XS, iq4_xs) AVX512_CODES(X)
/* i-quants with codebooks and ternary types (avx512_codes.c), the factor of their d, and how many values share a scale
 * (0: it is 1). */
#define AVX512_CODES(X)                                                                                                \
    X(IQ2_XXS, iq2_xxs, 0.125f, 32)                                                                                    \
    X(IQ2_XS, iq2_xs, 0.125f, 16)                                                                                      \
    X(IQ2_S, iq2_s, 0.125f, 16)                                                                                        \
    X(IQ3_XXS, iq3_xxs, 0.25f, 32)                                                                                     \
    X(IQ3_S, iq3_s, 1, 32)                                                                                             \
    X(IQ1_S, iq1_s, 0.125f, 32) X(IQ1_M, iq1_m, 0.125f, 16) X(TQ1_0, tq1_0, 1, 0) X(TQ2_0, tq2_0, 1, 0)
/* ntx__mm512_: few rows. ntx__mmvec_, ntx__mmamx_: panels from 5 rows on (vnni.c, amx.c); fewer rows call
 * ntx__mm512_. */
#define AVX512_DECLARE_FLOAT(TYPE, type) DECLARE_MATMUL(ntx__mm512_##type);
#define AVX512_DECLARE(TYPE, type, ...)                                                                                \
    DECLARE_MATMUL(ntx__mm512_##type);                                                                                 \
    DECLARE_MATMUL(ntx__mmvec_##type);                                                                                 \
    DECLARE_MATMUL(ntx__mmamx_##type);
#define AVX512_DECLARE_MANY(TYPE, type) extern ntx_many_fn ntx__many512_##type;
AVX512_FLOATS(AVX512_DECLARE_FLOAT)
AVX512_MANY(AVX512_DECLARE_MANY)
AVX512_BLOCKS(AVX512_DECLARE)
/* AVX2's kernels (avx2_codes.c), for processors without the extensions that avx512_codes.c needs. */
#define AVX512_DECLARE_INSTEAD(TYPE, type, ...) DECLARE_MATMUL(ntx__mm256_##type);
AVX512_CODES(AVX512_DECLARE_INSTEAD)
extern bool ntx__cpu_permutes_bytes; /* pick.c */

/* Unpacks 16 super-blocks of these types, if the processor permutes bytes (panel_codes.c): values in a panel's order
 * (panel.h), RAISED too large, so that they have seven bits; scales of 32 or 16 values each (ternary types: none); d
 * as stored. */
enum { RAISED = 64, RAISED_LOG2 = 6 };
#define AVX512_DECLARE_TURN(TYPE, type, ...)                                                                           \
    void ntx__transpose512_##type(const uint8_t *const w[NTX_SLICE_OUTS], uint8_t(*values)[64],                        \
                                  int32_t(*scales)[NTX_SLICE_OUTS], float *d);
AVX512_CODES(AVX512_DECLARE_TURN)

/* Defines ntx__mm512_<type> by rows<k>_<type>(shape, first row), k = 1, 2, 4: in bands of outputs whose weights stay
 * in the cache for all rows. */
enum { BAND = 256 << 10 };

#define MATMUL_BY_ROWS(type)                                                                                           \
    DECLARE_MATMUL(ntx__mm512_##type) { MATMUL_BODY(type) }
#define MATMUL_BODY(type)                                                                                              \
    uint32_t band = row_bytes < BAND ? (uint32_t)(BAND / row_bytes) : 1;                                               \
    const uint8_t *end = (const uint8_t *)w + n_out * row_bytes;                                                       \
    if (reach_for((int)n_rows) != REACH_NEAR && !(ntx__cpu_follows && n_rows == 1))                                    \
        prefetch_second(w, ntx__cpu_fetch_far ? FAR_AHEAD : FAR_AHEAD_OF_NEAR, end);                                   \
    for (uint32_t o = 0; o < n_out; o += band) {                                                                       \
        const uint8_t *from = (const uint8_t *)w + o * row_bytes;                                                      \
        struct shape s = {from, x, y + o, row_bytes, x_stride, ldy, n_out - o < band ? n_out - o : band, n_in, end};   \
        uint32_t r = 0;                                                                                                \
        for (; n_rows - r >= 4; r += 4)                                                                                \
            rows4_##type(&s, r);                                                                                       \
        for (; n_rows - r >= 2; r += 2)                                                                                \
            rows2_##type(&s, r);                                                                                       \
        if (r < n_rows)                                                                                                \
            rows1_##type(&s, r);                                                                                       \
    }

#endif
