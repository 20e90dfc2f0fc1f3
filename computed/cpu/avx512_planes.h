/* SPDX-License-Identifier: Apache-2.0 */
/* avx512_planes.h: weights in high and low bits (model/planes.h) for the kernels of few rows of x: a few blocks are
 * joined on the stack, and are multiplied at once as those of the whole type. So both parts come from memory while the
 * products are computed, and the bits are those of the whole type. */
#ifndef NTX_COMPUTED_CPU_AVX512_PLANES_H
#define NTX_COMPUTED_CPU_AVX512_PLANES_H

#include "computed/cpu/avx512.h"
#include "computed/cpu/planes.h"

/* A row of weights; the ends are those of all weights. high_bytes, low_bytes: of a block. */
struct parts {
    const uint8_t *high, *low, *high_end, *low_end;
    size_t high_bytes, low_bytes;
    void (*join)(const uint8_t *high, const uint8_t *low, uint8_t *out);
};

struct planes_call {
    const struct ntx_planes_weights *w;
    const char *x;
    size_t x_stride;
    float *y;
    size_t ldy;
};

/* Output o's row of nb blocks. of: all but the places. */
INLINE struct parts parts_of(const struct planes_call *c, const struct parts *of, uint32_t o, uint32_t nb)
{
    struct parts p = *of;
    const size_t high = nb * of->high_bytes, low = nb * of->low_bytes;
    p.high = c->w->high + o * high;
    p.high_end = c->w->high + c->w->n_out * high;
    if (low) {
        p.low = c->w->low + o * low;
        p.low_end = c->w->low + c->w->n_out * low;
    }
    return p;
}

/* n blocks from block `at` on. */
INLINE void join_blocks(const struct parts *p, uint32_t at, uint32_t n, size_t block_bytes, const int rows,
                        uint8_t *out)
{
    const uint8_t *high = p->high + at * p->high_bytes, *low = p->low_bytes ? p->low + at * p->low_bytes : NULL;
    const enum reach reach = ntx__cpu_follows && rows == 1 ? REACH_NEAR : reach_for(rows);
    prefetch_next(high, n * p->high_bytes, 3584, reach, p->high_end);
    if (p->low_bytes)
        prefetch_next(low, n * p->low_bytes, 3584, reach, p->low_end);
    for (uint32_t k = 0; k < n; k++)
        p->join(high + k * p->high_bytes, p->low_bytes ? low + k * p->low_bytes : NULL, out + k * block_bytes);
}

/* Defines ntx__planes512_<whole>_<low bits>, and ntx__high512_<whole>_<low bits> for high bits alone.
 * planes_rows_<whole>(call, first row, k, parts) multiplies k rows, 1, 2 or 4. */
#define PLANES_MATMUL(whole, bits, n)                                                                                  \
    PLANES_MATMUL_OF(planes, whole, bits, NTX_PLANES_HIGH_BYTES(whole, bits, n), NTX_PLANES_LOW_BYTES(bits, n), false) \
    PLANES_MATMUL_OF(high, whole, bits, NTX_PLANES_HIGH_BYTES(whole, bits, n), 0, true)
#define PLANES_MATMUL_OF(name, whole, bits, of_high, of_low, coarse)                                                   \
    INLINE void join_##name##_##whole##_##bits(const uint8_t *high, const uint8_t *low, uint8_t *out)                  \
    {                                                                                                                  \
        ntx_planes_join_##whole##_##bits(high, low, out, coarse);                                                      \
    }                                                                                                                  \
    ntx_planes_fn ntx__##name##512_##whole##_##bits;                                                                   \
    void ntx__##name##512_##whole##_##bits(const struct ntx_planes_weights *w, const void *x, size_t x_stride,         \
                                           uint32_t n_rows, float *y, size_t ldy)                                      \
    {                                                                                                                  \
        const struct planes_call c = {w, x, x_stride, y, ldy};                                                         \
        const struct parts p = {.high_bytes = of_high, .low_bytes = of_low, .join = join_##name##_##whole##_##bits};   \
        uint32_t r = 0;                                                                                                \
        for (; n_rows - r >= 4; r += 4)                                                                                \
            planes_rows_##whole(&c, r, 4, &p);                                                                         \
        for (; n_rows - r >= 2; r += 2)                                                                                \
            planes_rows_##whole(&c, r, 2, &p);                                                                         \
        if (r < n_rows)                                                                                                \
            planes_rows_##whole(&c, r, 1, &p);                                                                         \
    }

#endif
