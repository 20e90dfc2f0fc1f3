/* SPDX-License-Identifier: Apache-2.0 */
/* attn_q4.h: K in six bits and V in four (Q4_0), which are unpacked to the form that attn_q8.h multiplies. Included
 * by attn_q8.h, compiled per instruction set.
 *
 * Four bits cannot hold channels that are far larger than the others, and K has such channels. So K and V are rotated
 * before they are rounded, by the orthonormal Walsh-Hadamard transform of a head's values, which spreads each value
 * over all (QuaRot: Ashkboos et al. 2024). The transform is symmetric and so its own inverse: q, rotated likewise, has
 * the same products with K, and the weighted sum of V is rotated back.
 *
 * Errors of K are errors of scores, which the softmax magnifies: in four bits they cost several times more than V's.
 * So K has six bits. V has 16 numbers that lie closer together near 0, where most rotated values are (IQ4_NL's).
 *
 * A byte has values of the same position, so that threads that store adjacent positions share no byte. */
#ifndef NTX_COMPUTED_CPU_ATTN_Q4_H
#define NTX_COMPUTED_CPU_ATTN_Q4_H

#include <float.h>
#include <math.h>
#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "computed/cpu/attn.h"
#include "model/quant.h"

enum { Q4_BYTES = NTX_KV_Q8_TOKENS * (NTX_KV_Q4_HEAD + NTX_KV_Q4_HEAD / 16) }; /* of the widest block when unpacked */

struct q4 {                                                    /* blocks in Q8_0's form */
    uint8_t k[Q4_BYTES], v[PART / NTX_KV_Q8_TOKENS][Q4_BYTES]; /* the current block of K; the part's blocks of V */
};

/* Walsh-Hadamard transform, in pieces of the largest power of two that divides n. */
INLINE void hadamard_rotate(float *x, uint32_t n)
{
    const uint32_t piece = n & -n;
    const float by = 1.0f / sqrtf((float)piece);
    for (uint32_t half = 1; half < piece; half *= 2)
        for (uint32_t first = 0; first < n; first += 2 * half)
            for (uint32_t k = first; k < first + half; k++) {
                float a = x[k], b = x[k + half];
                x[k] = a + b;
                x[k + half] = a - b;
            }
    for (uint32_t k = 0; k < n; k++)
        x[k] *= by;
}

INLINE void turn_floats(float *x, uint32_t n) { hadamard_rotate(x, n); }

INLINE float q4_most(const float *x)
{
    float most = 0;
    for (int i = 0; i < 32; i++)
        most = fabsf(x[i]) <= most ? most : fabsf(x[i]); /* keeps NaN */
    return most;
}

/* Quantises 32 values of K as q + 32, rounded to even; returns their scale. The largest value is half a step beyond
 * the range, so its error is not larger than that of others. */
INLINE uint16_t q4_quantise_k(const float *x, uint8_t *q)
{
    const float most = q4_most(x);
    float inverse = 0;
    uint16_t h = f32_to_f16(most <= FLT_MAX ? most / 31.5f : NAN);
    float d = f16_to_f32(h);
    if (d > 0 && d <= FLT_MAX)
        inverse = 1.0f / d;
    for (int i = 0; i < 32; i++) {
        float v = inverse != 0 ? x[i] * inverse : 0;
        if (v > 31.0f)
            v = 31.0f;
        else
            v = v < -32.0f ? -32.0f : v;
        q[i] = (uint8_t)((int)((v + 0x1.8p23f) - 0x1.8p23f) + 32);
    }
    return h;
}

/* The nearest of the 16 numbers for each of 32 values times `inverse`: indices to q, and the sum of squared errors. */
INLINE float q4_nearest(const float *x, float d, float inverse, float *index)
{
    static const float value[16] = {NTX_VALUES_iq4_nl};
    struct f16 errors = splat(0);
    for (int n = 0; n < 32; n += 16) {
        const struct f16 v = mul16(load16(x + n), splat(inverse));
        struct f16 at = splat(0), is = splat(value[0]);
        for (int k = 1; k < 16; k++)
            EACH_PART
            {
                const ipart above = v.p[i] > (value[k - 1] + value[k]) / 2;
                at.p[i] = pick(above, (fpart){0} + (float)k, at.p[i]);
                is.p[i] = pick(above, (fpart){0} + value[k], is.p[i]);
            }
        const struct f16 off = fma16(is, splat(-d), load16(x + n));
        errors = fma16(off, off, errors);
        store16(index + n, at);
    }
    return join16(errors);
}

/* Quantises 32 values of V as indices; returns their scale: the one of a few with the least squared error. By these the
 * largest value is one of the numbers' ends (127 and 113), or within or beyond them. */
INLINE uint16_t q4_quantise_v(const float *x, uint8_t *q)
{
    static const float end[] = {107, 113, 120, 127, 135, 144};
    const float most = q4_most(x);
    float best = INFINITY, index[32];
    uint16_t scale = f32_to_f16(most <= FLT_MAX ? 0 : NAN);
    memset(q, 8, 32);
    for (uint32_t i = 0; i < sizeof end / sizeof *end && most <= FLT_MAX; i++) {
        const uint16_t h = f32_to_f16(most / end[i]);
        const float d = f16_to_f32(h), inverse = 1 / d;
        if (!(fabsf(inverse) <= FLT_MAX && fabsf(d) <= FLT_MAX))
            continue;
        const float error = q4_nearest(x, d, inverse, index);
        if (!(error < best))
            continue;
        best = error;
        scale = h;
        for (int k = 0; k < 32; k++)
            q[k] = (uint8_t)index[k];
    }
    return scale;
}

/* Rotates and quantises n values: integers to q, scales to their place after all integers of the block. */
INLINE void q4_row(const float *x, uint8_t *scales, uint32_t at, uint32_t n, uint8_t *q, const bool key)
{
    float y[NTX_KV_Q4_HEAD];
    memcpy(y, x, n * sizeof *x);
    hadamard_rotate(y, n);
    for (uint32_t b = 0; b < n / 32; b++) {
        uint16_t h = key ? q4_quantise_k(y + 32 * b, q + 32 * b) : q4_quantise_v(y + 32 * b, q + 32 * b);
        memcpy(scales + 2 * (b * NTX_KV_Q8_TOKENS + at), &h, sizeof h);
    }
}

static void q4_store_k(const float *x, void *to, uint32_t at, uint32_t n)
{
    uint8_t q[NTX_KV_Q4_HEAD], *k = (uint8_t *)to + 4 * at, *high = k + (size_t)NTX_KV_Q8_TOKENS * n / 2;
    q4_row(x, (uint8_t *)to + (size_t)NTX_KV_Q8_TOKENS * n / 4 * 3, at, n, q, true);
    for (uint32_t g = 0; g < n; g += 8, k += 4 * NTX_KV_Q8_TOKENS)
        for (uint32_t i = 0; i < 4; i++)
            k[i] = (uint8_t)((q[g + i] & 15) | q[g + 4 + i] << 4);
    for (uint32_t g = 0; g < n; g += 16, high += 4 * NTX_KV_Q8_TOKENS)
        for (uint32_t i = 0; i < 4; i++)
            high[i] = (uint8_t)(q[g + i] >> 4 | q[g + 4 + i] >> 4 << 2 | q[g + 8 + i] >> 4 << 4 |
                                q[g + 12 + i] >> 4 << 6);
}

/* Half the width of the panel of V that has value i. */
INLINE uint32_t q4_half(uint32_t n, uint32_t i)
{
    return NTX_MIN(n - i / NTX_KV_Q8_PANEL * NTX_KV_Q8_PANEL, (uint32_t)NTX_KV_Q8_PANEL) / 2;
}

static void q4_store_v(const float *x, void *to, uint32_t at, uint32_t n)
{
    uint8_t q[NTX_KV_Q4_HEAD];
    q4_row(x, (uint8_t *)to + (size_t)NTX_KV_Q8_TOKENS * n / 2, at, n, q, false);
    for (uint32_t e = 0, half; e < n; e += 2 * half) {
        half = q4_half(n, e);
        uint8_t *v = (uint8_t *)to + (size_t)NTX_KV_Q8_TOKENS * e / 2 + (size_t)at / 4 * 4 * half + at % 4;
        for (uint32_t i = 0; i < half; i++)
            v[4 * i] = (uint8_t)(q[e + i] | q[e + half + i] << 4);
    }
}

/* Unpacks 16 values of K of all positions to bytes that are 128 too large: low [2] and high are as stored. */
INLINE void q4_unpack_sixteen(const uint8_t *low, const uint8_t *high, uint8_t *to)
{
    enum { N = 4 * NTX_KV_Q8_TOKENS };
    for (uint32_t i = 0; i < N; i++) {
        to[i] = (uint8_t)(((low[i] & 15) | (high[i] & 3) << 4) + 96);
        to[N + i] = (uint8_t)((low[i] >> 4 | (high[i] & 12) << 2) + 96);
        to[2 * N + i] = (uint8_t)(((low[N + i] & 15) | (high[i] & 48)) + 96);
        to[3 * N + i] = (uint8_t)((low[N + i] >> 4 | (high[i] & 192) >> 2) + 96);
    }
}

INLINE void q4_unpack_k(const uint8_t *from, uint32_t n, uint8_t *to)
{
    const uint8_t *high = from + (size_t)NTX_KV_Q8_TOKENS * n / 2, *scales = high + (size_t)NTX_KV_Q8_TOKENS * n / 4;
    for (uint32_t g = 0; g < n / 16; g++)
        q4_unpack_sixteen(from + 8 * NTX_KV_Q8_TOKENS * g, high + 4 * NTX_KV_Q8_TOKENS * g,
                          to + 16 * NTX_KV_Q8_TOKENS * g);
    memcpy(to + (size_t)NTX_KV_Q8_TOKENS * n, scales, 2 * (size_t)n);
}

/* Looks up `bytes` bytes of two indices each, a multiple of 64: first all low ones, then all high ones. */
INLINE void q4_look_up(const uint8_t *from, uint8_t *to, const uint32_t bytes)
{
    static const int8_t value[16] = {NTX_VALUES_iq4_nl};
#if defined(__AVX512BW__)
    const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)value)), mask = _mm512_set1_epi8(15);
    for (uint32_t i = 0; i < bytes; i += 64) {
        const __m512i x = _mm512_loadu_si512(from + i);
        _mm512_storeu_si512(to + i, _mm512_shuffle_epi8(all, _mm512_and_si512(x, mask)));
        _mm512_storeu_si512(to + bytes + i, _mm512_shuffle_epi8(all, _mm512_and_si512(_mm512_srli_epi16(x, 4), mask)));
    }
#elif defined(__AVX2__)
    const __m256i all = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)value)), mask = _mm256_set1_epi8(15);
    for (uint32_t i = 0; i < bytes; i += 32) {
        const __m256i x = _mm256_loadu_si256((const void *)(from + i));
        _mm256_storeu_si256((void *)(to + i), _mm256_shuffle_epi8(all, _mm256_and_si256(x, mask)));
        _mm256_storeu_si256((void *)(to + bytes + i),
                            _mm256_shuffle_epi8(all, _mm256_and_si256(_mm256_srli_epi16(x, 4), mask)));
    }
#elif defined(__ARM_NEON)
    const int8x16_t all = vld1q_s8(value);
    for (uint32_t i = 0; i < bytes; i += 16) {
        const uint8x16_t x = vld1q_u8(from + i);
        vst1q_s8((int8_t *)to + i, vqtbl1q_s8(all, vandq_u8(x, vdupq_n_u8(15))));
        vst1q_s8((int8_t *)to + bytes + i, vqtbl1q_s8(all, vshrq_n_u8(x, 4)));
    }
#else
    for (uint32_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)value[from[i] & 15];
        to[bytes + i] = (uint8_t)value[from[i] >> 4];
    }
#endif
}

INLINE void q4_unpack_v(const uint8_t *from, uint32_t n, uint8_t *to)
{
    const uint8_t *scales = from + (size_t)NTX_KV_Q8_TOKENS * n / 2;
    uint8_t *end = to + (size_t)NTX_KV_Q8_TOKENS * n;
    for (uint32_t e = 0, half; e < n; e += 2 * half) {
        half = q4_half(n, e);
        for (uint32_t t = 0; t < NTX_KV_Q8_TOKENS / 4; t++, from += 4 * half, to += 8 * half)
            if (half == NTX_KV_Q8_PANEL / 2)
                q4_look_up(from, to, 2 * NTX_KV_Q8_PANEL);
            else
                q4_look_up(from, to, NTX_KV_Q8_PANEL);
    }
    memcpy(end, scales, 2 * (size_t)n);
}

#endif
