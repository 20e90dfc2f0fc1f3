/* SPDX-License-Identifier: Apache-2.0 */
/* mm_plain.h: matrix products of every type in plain C, by its unpacking (model/unpack.h): the reference for all other
 * kernels. It follows cpu.h's accumulation order literally. Included by generic.c, and by each instruction set for
 * types without faster kernels. */
#ifndef NTX_COMPUTED_CPU_MM_PLAIN_H
#define NTX_COMPUTED_CPU_MM_PLAIN_H

#include <math.h>

#include "computed/cpu/parts.h"
#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

INLINE float join_lanes(float acc[LANES])
{
    for (int step = LANES / 2; step; step /= 2)
        for (int l = 0; l < step; l++)
            acc[l] += acc[l + step];
    return acc[0];
}

enum { PLAIN_ROWS = 4 }; /* rows of x that share the unpacking of weights */

/* A row of weights, n <= PLAIN_ROWS rows of x, and the place of their sums. */
struct plain_dot {
    const char *w, *x;
    size_t x_stride;
    uint32_t n_in, n;
    float *y;
    size_t ldy;
    uint32_t low_bits; /* that are missing in high bits alone (split_is_high); 0: none */
};

#if defined(__ARM_FEATURE_DOTPROD)
INLINE int32_t dot_bytes(const int8_t *a, const int8_t *b, int n) /* 16s */
{
    int32x4_t sum = vdupq_n_s32(0);
    for (int k = 0; k < n; k += 16)
        sum = vdotq_s32(sum, vld1q_s8(a + k), vld1q_s8(b + k));
    return vaddvq_s32(sum);
}
#else
INLINE int32_t dot_bytes(const int8_t *a, const int8_t *b, int n)
{
    int32_t sum = 0;
    for (int k = 0; k < n; k++)
        sum += a[k] * b[k];
    return sum;
}
#endif

/* Of a sum of products and the sum of x, and of d: both as they are, or of high bits alone. */
INLINE int32_t plain_middle(const struct plain_dot *d, int32_t sum, int32_t x)
{
    return d->low_bits ? 2 * sum + x * ((1 << d->low_bits) - 1) : sum;
}
INLINE float middle_scale(const struct plain_dot *d, float scale) { return d->low_bits ? 0.5f * scale : scale; }

/* One rule's product of a row of weights. The dots exist once for all types: compiled anew for each, they would take
 * most of the time that this folder takes to compile. */
typedef void plain_dot_fn(const struct plain_dot *d, parts_fn *unpack, bool has_min);

/* each 32 values have a lane */
PARTS_ONCE void dot_simple(const struct plain_dot *d, parts_fn *unpack, bool has_min)
{
    const uint32_t n_parts = d->n_in / NTX_QK;
    float acc[PLAIN_ROWS][LANES] = {{0}};
    struct ntx_part p[PARTS_MAX];
    for (uint32_t first = 0; first < n_parts; first += PARTS_MAX) {
        const uint32_t n = n_parts - first < PARTS_MAX ? n_parts - first : PARTS_MAX;
        unpack(d->w, first, n, p);
        for (uint32_t r = 0; r < d->n; r++) {
            struct q8_row x = q8_view(d->x + r * d->x_stride, d->n_in);
            for (uint32_t i = 0, b = first; i < n; i++, b++) {
                float *to = &acc[r][b % LANES];
                const int32_t sum = dot_bytes(p[i].q, x.q + b * NTX_QK, NTX_QK);
                *to = fmaf((float)plain_middle(d, sum, x.s[b]), middle_scale(d, p[i].d) * x.d[b], *to);
                if (has_min)
                    *to = fmaf((float)x.s[b], p[i].m * x.d[b], *to);
            }
        }
    }
    for (uint32_t r = 0; r < d->n; r++)
        d->y[r * d->ldy] = join_lanes(acc[r]);
}

PARTS_ONCE void dot_halves(const struct plain_dot *d, parts_fn *unpack, bool has_min)
{
    const uint32_t n_parts = d->n_in / NTX_QK;
    float acc[PLAIN_ROWS][LANES] = {{0}};
    struct ntx_part p[PARTS_MAX];
    (void)has_min;
    for (uint32_t first = 0; first < n_parts; first += PARTS_MAX) {
        const uint32_t n = n_parts - first < PARTS_MAX ? n_parts - first : PARTS_MAX;
        unpack(d->w, first, n, p);
        for (uint32_t r = 0; r < d->n; r++) {
            struct q8_row x = q8_view(d->x + r * d->x_stride, d->n_in);
            for (uint32_t i = 0, b = first; i < n; i++, b++) {
                float *to = &acc[r][b % LANES];
                *to = fmaf((float)dot_bytes(p[i].q, x.q + b * NTX_QK, 16), p[i].d * x.d[b], *to);
                *to = fmaf((float)dot_bytes(p[i].q + 16, x.q + b * NTX_QK + 16, 16), p[i].m * x.d[b], *to);
            }
        }
    }
    for (uint32_t r = 0; r < d->n; r++)
        d->y[r * d->ldy] = join_lanes(acc[r]);
}

PARTS_ONCE void dot_super(const struct plain_dot *d, parts_fn *unpack, bool has_min)
{
    float acc[PLAIN_ROWS][LANES] = {{0}};
    struct ntx_part p[PARTS_MAX];
    for (uint32_t b = 0; b < d->n_in / NTX_QKK; b++) {
        unpack(d->w, b * PARTS_MAX, PARTS_MAX, p);
        for (uint32_t r = 0; r < d->n; r++) {
            struct q8k_row x = q8k_view(d->x + r * d->x_stride, d->n_in);
            float *to = &acc[r][b % LANES];
            int32_t i = 0, j = 0;
            for (uint32_t g = 0; g < 16; g++) {
                const struct ntx_part *of = &p[g / 2];
                const int32_t sum = dot_bytes(of->q + g % 2 * 16, x.q + b * NTX_QKK + 16 * g, 16);
                i += of->scale[g % 2] * plain_middle(d, sum, x.s16[b * 16 + g]);
                if (has_min)
                    j += of->min[g % 2] * x.s16[b * 16 + g];
            }
            *to = fmaf((float)i, middle_scale(d, p[0].d) * x.d[b], *to);
            if (has_min)
                *to = fmaf((float)-j, p[0].m * x.d[b], *to);
        }
    }
    for (uint32_t r = 0; r < d->n; r++)
        d->y[r * d->ldy] = join_lanes(acc[r]);
}

INLINE float plain_f32(const void *p)
{
    float f;
    memcpy(&f, p, 4);
    return f;
}
INLINE float plain_f16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return f16_to_f32(h);
}
INLINE float plain_bf16(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return bf16_to_f32(h);
}

INLINE void dot_float(const struct plain_dot *d, size_t bytes, float (*value)(const void *))
{
    for (uint32_t r = 0; r < d->n; r++) {
        const float *x = (const float *)(const void *)(d->x + r * d->x_stride);
        float acc[2 * LANES] = {0};
        for (uint32_t k = 0; k < d->n_in; k++)
            acc[k % 32] = fmaf(value(d->w + k * bytes), x[k], acc[k % 32]);
        for (int l = 0; l < LANES; l++)
            acc[l] += acc[l + LANES];
        d->y[r * d->ldy] = join_lanes(acc);
    }
}

#define PLAIN_MATMUL(type, dot_call)                                                                                   \
    static void plain_mm_##type(const void *w, size_t row_bytes, uint32_t n_out, uint32_t n_in, const void *x,         \
                                size_t x_stride, uint32_t n_rows, float *y, size_t ldy)                                \
    {                                                                                                                  \
        for (uint32_t o = 0; o < n_out; o++)                                                                           \
            for (uint32_t r = 0; r < n_rows; r += PLAIN_ROWS) {                                                        \
                const struct plain_dot d = {(const char *)w + o * row_bytes,                                           \
                                            (const char *)x + r * x_stride,                                            \
                                            x_stride,                                                                  \
                                            n_in,                                                                      \
                                            n_rows - r < PLAIN_ROWS ? n_rows - r : PLAIN_ROWS,                         \
                                            y + r * ldy + o,                                                           \
                                            ldy,                                                                       \
                                            0};                                                                        \
                dot_call;                                                                                              \
            }                                                                                                          \
    }
#ifndef PLAIN_CLONES
#define PLAIN_CLONES /* attribute of functions that call fmaf() for each weight, in files without that instruction */
#endif
#define PLAIN_FLOAT(type, values, bytes, min, ...)  PLAIN_CLONES PLAIN_MATMUL(type, dot_float(&d, bytes, plain_##type))
#define PLAIN_BLOCKS(type, dot, min)                PLAIN_MATMUL(type, dot(&d, parts_##type, NTX_HAS_##min))
#define PLAIN_SIMPLE(type, values, scale, min, ...) PLAIN_BLOCKS(type, dot_simple, min)
#define PLAIN_HALVES(type, values, scale, min, ...) PLAIN_BLOCKS(type, dot_halves, min)
#define PLAIN_SUPER(type, values, scale, min, ...)  PLAIN_BLOCKS(type, dot_super, min)

/* For NTX_TYPES: the products of all types, and their entries in a table. */
#define PLAIN(rule, TYPE, type, ...)                PLAIN_##rule(type, __VA_ARGS__)
#define PLAIN_ENTRY(rule, TYPE, type, ...)          [NTX_##TYPE] = plain_mm_##type,

/* Around a table whose plain entries are overridden by faster ones. */
/* clang-format off */
#define OVERRIDES_BEGIN _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Woverride-init\"")
#define OVERRIDES_END   _Pragma("GCC diagnostic pop")
/* clang-format on */

#endif
