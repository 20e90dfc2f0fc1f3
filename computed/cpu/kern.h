/* SPDX-License-Identifier: Apache-2.0 */
/* kern.h: what the kernel files of cpu/ share: how a quantised row of activations lies in memory, and the tables of
 * each instruction set. Everything here is static inline or plain data, since each file is compiled with its own -m
 * flags.
 *
 * One row, NTX_ACT_Q8 (n = 32 * nb; `up(nb, 16)` is nb rounded up to 16, so that kernels may load 16 scales at once):
 *
 *   int8  q[up(nb, 16)][32] | float d[up(nb, 16)] | int32 s[up(nb, 16)]        s = sum of the block's q
 *
 * One row, NTX_ACT_Q8K (n = 256 * nb):
 *
 *   int8 q[up(nb, 4)][256] | float d[up(nb, 16)] | int16 s16[up(nb, 4)][16] | int16 s32[up(nb, 4)][8]
 *
 * s16 and s32 are the sums of 16 and of 32 neighbouring q. Values lie in their natural order. Padding is zero.
 * q = x / d to nearest even, d = max|x| / 127, so -127 <= q <= 127: two products with 7-bit weights fit an int16.
 * A block with a NaN or an infinity has q = 0 and d = NaN, so that the damage shows and is the same everywhere. */
#ifndef NTX_COMPUTED_CPU_KERN_H
#define NTX_COMPUTED_CPU_KERN_H

#include <stdint.h>
#include <string.h>

#include "computed/cpu/cpu.h"
#include "model/unpack.h"

#define INLINE static inline __attribute__((always_inline, unused))

enum { LANES = 16 }; /* float accumulators of a quantised dot product (cpu.h) */

INLINE uint32_t round_up(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }

/* Fetching weights ahead of use, in one pass over them, as measured (docs/log/kernels-x86.md). To the first level
 * `near` bytes ahead: as far as the memory's latency asks for but within 4 KiB, from where on every type loses on
 * Intel. To the second, FAR_AHEAD, on AMD, where fetching to the first got two thirds of the memory's rate. Intel has
 * both for one row of x, by AVX-512: the first level's misses under way are too few for the memory's rate. Zen 4's own
 * prefetchers follow the weights of one row of x: far fetching takes a fifth to nearly a half of it there. */
extern bool ntx__cpu_fetch_far, ntx__cpu_follows; /* pick.c: AMD; Zen 4 */
enum reach { REACH_NEAR, REACH_FAR, REACH_BOTH };
enum { FAR_AHEAD = 16384, /* bytes */ FAR_AHEAD_OF_NEAR = 8192 /* before they are fetched to the first level */ };

/* A prefetch behind the weights' end reads nothing of the address space that is not there. */
INLINE void prefetch_weights(const void *p, size_t bytes, const size_t near, const enum reach reach)
{
    for (size_t at = 0; reach != REACH_NEAR && at < bytes; at += 64)
        __builtin_prefetch((const char *)p + FAR_AHEAD + at, 0, 1);
    for (size_t at = 0; reach != REACH_FAR && at < bytes; at += 64)
        __builtin_prefetch((const char *)p + near + at);
}

/* To the second level, nothing from `end` on: what lies there may be another expert. */
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
    if (x >= 0x47800000) { /* 65536 and above; NaN keeps its upper payload and becomes quiet */
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
