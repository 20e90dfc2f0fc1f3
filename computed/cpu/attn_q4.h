/* SPDX-License-Identifier: Apache-2.0 */
/* attn_q4.h: K and V in Q4_0: two values per byte, which are unpacked to the form that attn_q8.h multiplies. Included
 * by attn_q8.h, compiled per instruction set.
 *
 * Four bits cannot hold channels that are far larger than the others, and K has such channels. So K and V are rotated
 * before they are rounded, by the orthonormal Walsh-Hadamard transform of a head's values, which spreads each value
 * over all (QuaRot: Ashkboos et al. 2024). The transform is symmetric and so its own inverse: q, rotated likewise, has
 * the same products with K, and the weighted sum of V is rotated back.
 *
 * A byte has two values of the same position, so that threads that store adjacent positions share no byte. */
#ifndef NTX_COMPUTED_CPU_ATTN_Q4_H
#define NTX_COMPUTED_CPU_ATTN_Q4_H

#include <float.h>
#include <math.h>

#include "computed/cpu/attn.h"

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

/* Quantises 32 values as q + 8, rounded to even; returns their scale. The largest value is half a step beyond the
 * range, so its error is not larger than that of others. */
INLINE uint16_t q4_quantise(const float *x, uint8_t *q)
{
    float most = 0, inverse = 0;
    for (int i = 0; i < 32; i++)
        most = fabsf(x[i]) <= most ? most : fabsf(x[i]); /* keeps NaN */
    uint16_t h = f32_to_f16(most <= FLT_MAX ? most / 7.5f : NAN);
    float d = f16_to_f32(h);
    if (d > 0 && d <= FLT_MAX)
        inverse = 1.0f / d;
    for (int i = 0; i < 32; i++) {
        float v = inverse != 0 ? x[i] * inverse : 0;
        if (v > 7.0f)
            v = 7.0f;
        else
            v = v < -8.0f ? -8.0f : v;
        q[i] = (uint8_t)((int)((v + 0x1.8p23f) - 0x1.8p23f) + 8);
    }
    return h;
}

/* Quantises n values: integers to q, scales to their place after all integers of the block. */
INLINE void q4_row(const float *x, uint8_t *block, uint32_t at, uint32_t n, uint8_t *q)
{
    float y[NTX_KV_Q4_HEAD];
    memcpy(y, x, n * sizeof *x);
    hadamard_rotate(y, n);
    for (uint32_t b = 0; b < n / 32; b++) {
        uint16_t h = q4_quantise(y + 32 * b, q + 32 * b);
        memcpy(block + (size_t)NTX_KV_Q8_TOKENS * n / 2 + 2 * (b * NTX_KV_Q8_TOKENS + at), &h, sizeof h);
    }
}

static void q4_store_k(const float *x, void *to, uint32_t at, uint32_t n)
{
    uint8_t q[NTX_KV_Q4_HEAD], *k = (uint8_t *)to + 4 * at;
    q4_row(x, to, at, n, q);
    for (uint32_t g = 0; g < n; g += 8, k += 4 * NTX_KV_Q8_TOKENS)
        for (uint32_t i = 0; i < 4; i++)
            k[i] = (uint8_t)(q[g + i] | q[g + 4 + i] << 4);
}

/* Half the width of the panel of V that has value i. */
INLINE uint32_t q4_half(uint32_t n, uint32_t i)
{
    return NTX_MIN(n - i / NTX_KV_Q8_PANEL * NTX_KV_Q8_PANEL, (uint32_t)NTX_KV_Q8_PANEL) / 2;
}

static void q4_store_v(const float *x, void *to, uint32_t at, uint32_t n)
{
    uint8_t q[NTX_KV_Q4_HEAD];
    q4_row(x, to, at, n, q);
    for (uint32_t e = 0, half; e < n; e += 2 * half) {
        half = q4_half(n, e);
        uint8_t *v = (uint8_t *)to + (size_t)NTX_KV_Q8_TOKENS * e / 2 + (size_t)at / 4 * 4 * half + at % 4;
        for (uint32_t i = 0; i < half; i++)
            v[4 * i] = (uint8_t)(q[e + i] | q[e + half + i] << 4);
    }
}

/* Unpacks `bytes` bytes of two integers each: first all low ones, then all high ones. */
INLINE void q4_part(const uint8_t *from, uint8_t *to, const uint32_t bytes, const int add)
{
    for (uint32_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)((from[i] & 15) + add);
        to[bytes + i] = (uint8_t)((from[i] >> 4) + add);
    }
}

INLINE void q4_unpack_k(const uint8_t *from, uint32_t n, uint8_t *to)
{
    for (uint32_t g = 0; g < n / 8; g++)
        q4_part(from + 4 * NTX_KV_Q8_TOKENS * g, to + 8 * NTX_KV_Q8_TOKENS * g, 4 * NTX_KV_Q8_TOKENS, 120);
    memcpy(to + (size_t)NTX_KV_Q8_TOKENS * n, from + (size_t)NTX_KV_Q8_TOKENS * n / 2, 2 * (size_t)n);
}

INLINE void q4_unpack_v(const uint8_t *from, uint32_t n, uint8_t *to)
{
    const uint8_t *scales = from + (size_t)NTX_KV_Q8_TOKENS * n / 2;
    uint8_t *end = to + (size_t)NTX_KV_Q8_TOKENS * n;
    for (uint32_t e = 0, half; e < n; e += 2 * half) {
        half = q4_half(n, e);
        for (uint32_t t = 0; t < NTX_KV_Q8_TOKENS / 4; t++, from += 4 * half, to += 8 * half)
            if (half == NTX_KV_Q8_PANEL / 2)
                q4_part(from, to, 2 * NTX_KV_Q8_PANEL, -8);
            else
                q4_part(from, to, NTX_KV_Q8_PANEL, -8);
    }
    memcpy(end, scales, 2 * (size_t)n);
}

#endif
