/* mm_plain.h: matrix products in plain C, the oracle of every other kernel. It follows cpu.h's accumulation order word
 * for word. Included by generic.c, and by the files of an instruction set for types without a kernel of their own. */
#ifndef NTX_COMPUTED_CPU_MM_PLAIN_H
#define NTX_COMPUTED_CPU_MM_PLAIN_H

#include <math.h>

#include "infer/cpu/blocks.h"

INLINE float join_lanes(float acc[LANES])
{
    for (int step = LANES / 2; step; step /= 2)
        for (int l = 0; l < step; l++)
            acc[l] += acc[l + step];
    return acc[0];
}

INLINE float dot_simple(const char *w, uint32_t n, const void *x, size_t block_bytes, bool has_min,
                        void (*unpack)(const void *, struct simple *))
{
    struct q8_row xr = q8_view(x, n);
    float acc[LANES] = {0};
    for (uint32_t b = 0; b < n / NTX_QK; b++) {
        struct simple s;
        int32_t i = 0;
        unpack(w + b * block_bytes, &s);
        for (int k = 0; k < NTX_QK; k++)
            i += s.q[k] * xr.q[b * NTX_QK + k];
        acc[b % LANES] = fmaf((float)i, s.d * xr.d[b], acc[b % LANES]);
        if (has_min)
            acc[b % LANES] = fmaf((float)xr.s[b], s.m * xr.d[b], acc[b % LANES]);
    }
    return join_lanes(acc);
}

INLINE float dot_super(const char *w, uint32_t n, const void *x, size_t block_bytes, bool has_min,
                       void (*unpack)(const void *, struct super *))
{
    struct q8k_row xr = q8k_view(x, n);
    float acc[LANES] = {0};
    for (uint32_t b = 0; b < n / NTX_QKK; b++) {
        struct super s;
        int32_t i = 0, j = 0;
        unpack(w + b * block_bytes, &s);
        for (int g = 0; g < 16; g++) {
            int32_t sum = 0;
            for (int k = 16 * g; k < 16 * g + 16; k++)
                sum += s.q[k] * xr.q[b * NTX_QKK + k];
            i += s.scale[g] * sum;
        }
        acc[b % LANES] = fmaf((float)i, s.d * xr.d[b], acc[b % LANES]);
        if (!has_min)
            continue;
        for (int g = 0; g < 16; g++)
            j += s.min[g] * xr.s16[b * 16 + g];
        acc[b % LANES] = fmaf((float)-j, s.dmin * xr.d[b], acc[b % LANES]);
    }
    return join_lanes(acc);
}

INLINE float plain_f32(const void *p) { float f; memcpy(&f, p, 4); return f; }
INLINE float plain_f16(const void *p) { uint16_t h; memcpy(&h, p, 2); return f16_to_f32(h); }
INLINE float plain_bf16(const void *p) { uint16_t h; memcpy(&h, p, 2); return bf16_to_f32(h); }

INLINE float dot_float(const char *w, uint32_t n, const void *x, size_t bytes, float (*value)(const void *))
{
    const float *xf = x;
    float acc[2 * LANES] = {0};
    for (uint32_t k = 0; k < n; k++)
        acc[k % 32] = fmaf(value(w + k * bytes), xf[k], acc[k % 32]);
    for (int l = 0; l < LANES; l++)
        acc[l] += acc[l + LANES];
    return join_lanes(acc);
}

#define PLAIN_MATMUL(type, dot_call)                                                                                  \
    static void plain_mm_##type(const void *wv, size_t row_bytes, uint32_t n_out, uint32_t n_in, const void *xv,      \
                                size_t x_stride, uint32_t n_rows, float *y, size_t ldy)                               \
    {                                                                                                                 \
        for (uint32_t o = 0; o < n_out; o++)                                                                          \
            for (uint32_t r = 0; r < n_rows; r++) {                                                                   \
                const char *w = (const char *)wv + o * row_bytes, *x = (const char *)xv + r * x_stride;               \
                y[r * ldy + o] = dot_call;                                                                            \
            }                                                                                                         \
    }
#define PLAIN_SIMPLE(type, has_min) \
    PLAIN_MATMUL(type, dot_simple(w, n_in, x, sizeof(struct ntx_block_##type), has_min, unpack_##type))
#define PLAIN_SUPER(type, has_min) \
    PLAIN_MATMUL(type, dot_super(w, n_in, x, sizeof(struct ntx_block_##type), has_min, unpack_##type))

#endif
