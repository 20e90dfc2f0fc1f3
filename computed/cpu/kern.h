/* SPDX-License-Identifier: Apache-2.0 */
/* kern.h: shared by the kernel files of computed/cpu: the layout of quantised rows of activations, and the tables of
 * each instruction set. Everything here is static inline or plain data, since each file is compiled with its own -m
 * flags.
 *
 * A row, NTX_ACT_Q8 (n = 32 * nb; `up(nb, 16)` is nb rounded up to 16, so that kernels may load 16 scales at once):
 *
 *   int8  q[up(nb, 16)][32] | float d[up(nb, 16)] | int32 s[up(nb, 16)]        s = sum of the block's q
 *
 * A row, NTX_ACT_Q8K (n = 256 * nb):
 *
 *   int8 q[up(nb, 4)][256] | float d[up(nb, 16)] | int16 s16[up(nb, 4)][16] | int16 s32[up(nb, 4)][8]
 *
 * s16 and s32 are the sums of 16 and of 32 adjacent q. Values are in natural order; padding is zero. q = x / d to
 * nearest even, d = max|x| / 127, so -127 <= q <= 127: two products with 7-bit weights fit an int16. A block with a
 * NaN or an infinity has q = 0 and d = NaN, so that the damage is visible and the same everywhere. */
#ifndef NTX_COMPUTED_CPU_KERN_H
#define NTX_COMPUTED_CPU_KERN_H

#include <stdint.h>
#include <string.h>

#include "computed/cpu/cpu.h"
#include "model/planes.h"
#include "model/unpack.h"

#define INLINE static inline __attribute__((always_inline, unused))

enum { LANES = 16 }; /* float accumulators of a quantised dot product (cpu.h) */

INLINE uint32_t round_up(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }

/* Prefetching of weights, as measured (docs/log/kernels-x86.md). To the first-level cache: `near` bytes ahead, as far
 * as the memory's latency requires, but within 4 KiB; from there on every type is slower on Intel. To the second
 * level: FAR_AHEAD bytes on AMD, where first-level prefetches reach only two thirds of the memory's rate. Intel uses
 * both for one row of x with AVX-512: too few first-level misses can be in flight for the memory's rate. Zen 4's
 * hardware prefetchers follow the weights of one row of x: far prefetches cost a fifth to nearly a half there. */
extern bool ntx__cpu_fetch_far, ntx__cpu_follows; /* set by pick.c: AMD; Zen 4 */
enum reach { REACH_NEAR, REACH_FAR, REACH_BOTH };
enum { FAR_AHEAD = 16384, /* bytes */ FAR_AHEAD_OF_NEAR = 8192 /* if first-level prefetches follow */ };

/* A prefetch after the weights' end is harmless: it does not fault. */
INLINE void prefetch_weights(const void *p, size_t bytes, const size_t near, const enum reach reach)
{
    for (size_t at = 0; reach != REACH_NEAR && at < bytes; at += 64)
        __builtin_prefetch((const char *)p + FAR_AHEAD + at, 0, 1);
    for (size_t at = 0; reach != REACH_FAR && at < bytes; at += 64)
        __builtin_prefetch((const char *)p + near + at);
}

/* Prefetches to the second level, nothing from `end` on, where another expert's weights may be. */
INLINE void prefetch_second(const uint8_t *p, size_t bytes, const uint8_t *end)
{
    for (const uint8_t *to = bytes < (size_t)(end - p) ? p + bytes : end; p < to; p += 64)
        __builtin_prefetch(p, 0, 1);
}

struct q8_row {
    const int8_t *q;
    const float *d;
    const int32_t *s;
};

struct q8k_row {
    const int8_t *q;
    const float *d;
    const int16_t *s16, *s32;
};

INLINE struct q8_row q8_view(const void *row, uint32_t n)
{
    uint32_t nb = round_up(n / NTX_QK, LANES);
    const int8_t *q = row;
    const float *d = (const float *)(const void *)(q + (size_t)nb * NTX_QK);
    return (struct q8_row){q, d, (const int32_t *)(const void *)(d + nb)};
}

INLINE struct q8k_row q8k_view(const void *row, uint32_t n)
{
    uint32_t nb = n / NTX_QKK, nb4 = round_up(nb, 4);
    const int8_t *q = row;
    const float *d = (const float *)(const void *)(q + (size_t)nb4 * NTX_QKK);
    const int16_t *s16 = (const int16_t *)(const void *)(d + round_up(nb, LANES));
    return (struct q8k_row){q, d, s16, s16 + (size_t)nb4 * 16};
}

INLINE float f16_to_f32(uint16_t h) { return ntx_half_float(h); }

INLINE uint16_t f32_to_f16(float f)
{
    uint32_t x, h;
    memcpy(&x, &f, 4);
    uint32_t sign = x >> 16 & 0x8000;
    x &= 0x7fffffff;
    if (x >= 0x47800000) { /* at least 65536; NaN keeps its upper payload and becomes quiet */
        h = x > 0x7f800000 ? 0x7e00 | (x >> 13 & 0x3ff) : 0x7c00;
    } else if (x >= 0x38800000) {
        x += 0xfff + (x >> 13 & 1); /* round to nearest even; may carry into infinity, as it should */
        h = (x - 0x38000000) >> 13;
    } else { /* subnormal: the float adder rounds at 2^-24 */
        float a;
        memcpy(&a, &x, 4);
        a += 0.5f;
        memcpy(&x, &a, 4);
        h = x - 0x3f000000;
    }
    return (uint16_t)(sign | h);
}

INLINE float bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

extern const struct ntx_cpu_ops ntx__cpu_generic;
#if defined(__x86_64__)
extern const struct ntx_cpu_ops ntx__cpu_avx2, ntx__cpu_avx512, ntx__cpu_amx;
#elif defined(__aarch64__)
extern const struct ntx_cpu_ops ntx__cpu_neon, ntx__cpu_i8mm;
#endif

#endif
