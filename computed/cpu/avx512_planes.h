/* SPDX-License-Identifier: Apache-2.0 */
/* avx512_planes.h: weights in high and low bits (model/planes.h) for the kernels of few rows of x. The kernels of the
 * whole types load both parts instead, and join them in registers; so the bits are those of the whole type. */
#ifndef NTX_COMPUTED_CPU_AVX512_PLANES_H
#define NTX_COMPUTED_CPU_AVX512_PLANES_H

#include "computed/cpu/avx512.h"
#include "computed/cpu/split.h"

/* A row of weights; the ends are those of all weights. */
struct parts {
    const uint8_t *high, *low, *high_end, *low_end;
    struct split split;
};

struct planes_call {
    const struct ntx_planes_weights *w;
    const char *x;
    size_t x_stride;
    float *y;
    size_t ldy;
};

/* Output o's row of nb blocks. */
INLINE struct parts parts_of(const struct planes_call *c, const struct split *split, uint32_t o, uint32_t nb)
{
    struct parts p = {.split = *split};
    const size_t high = nb * split->high_bytes, low = nb * split->low_bytes;
    p.high = c->w->high + o * high;
    p.high_end = c->w->high + c->w->n_out * high;
    if (low) {
        p.low = c->w->low + o * low;
        p.low_end = c->w->low + c->w->n_out * low;
    }
    return p;
}

/* Prefetches what follows n blocks from block `at` on: as far as for the whole type, by the time until it is used. */
INLINE void prefetch_part(const uint8_t *p, size_t bytes, const size_t of, const size_t whole, const enum reach reach,
                          const uint8_t *end)
{
    const ptrdiff_t far = (reach == REACH_FAR ? FAR_AHEAD : FAR_AHEAD_OF_NEAR) * of / whole;
    if (reach != REACH_NEAR && far < end - p)
        prefetch_second(p + far, bytes, end);
    if (reach != REACH_FAR)
        prefetch_weights(p, bytes, 3584 * of / whole, REACH_NEAR);
}

INLINE void prefetch_parts(const struct parts *p, uint32_t at, uint32_t n, const int rows)
{
    const size_t high = p->split.high_bytes, low = p->split.low_bytes;
    const enum reach reach = ntx__cpu_follows && rows == 1 ? REACH_NEAR : reach_for(rows);
    prefetch_part(p->high + at * high, n * high, high, high + low, reach, p->high_end);
    if (low)
        prefetch_part(p->low + at * low, n * low, low, high + low, reach, p->low_end);
}

/* The beginning, which nothing comes before. */
INLINE void prefetch_first(const struct planes_call *c, const struct split *s, uint32_t n_rows)
{
    const struct parts first = parts_of(c, s, 0, c->w->n_in / ntx_type_info(c->w->type)->block);
    const size_t whole = s->high_bytes + s->low_bytes, far = ntx__cpu_fetch_far ? FAR_AHEAD : FAR_AHEAD_OF_NEAR;
    if (reach_for((int)n_rows) == REACH_NEAR || (ntx__cpu_follows && n_rows == 1))
        return;
    prefetch_second(first.high, far * s->high_bytes / whole, first.high_end);
    if (first.low)
        prefetch_second(first.low, far * s->low_bytes / whole, first.low_end);
}

INLINE __m512i twice_256(const uint8_t *p) { return _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)p)); }

/* The lower two bits of the nibbles of 128 split bytes, as a block with two low bits has them. high: where the block's
 * high bits begin. */
INLINE __m512i low_pairs(const uint8_t *high, const uint8_t *low, const struct split *split)
{
    if (split->low_bits == 2)
        return split->low_bytes ? _mm512_loadu_si512(low) : _mm512_setzero_si512();
    const __m512i upper = _mm512_rolv_epi64(twice_256(high + 64), _mm512_set_epi64(0, 0, 0, 0, 1, 1, 1, 1)),
                  lower = split->low_bytes ? twice_256(low) : _mm512_setzero_si512();
    return select_bits(0xaa, upper, _mm512_srlv_epi64(lower, _mm512_set_epi64(1, 1, 1, 1, 0, 0, 0, 0)));
}

/* Of high bits alone: twice the sum of w x, and what the middle adds, from the sum of x. */
INLINE __m512i to_middle(__m512i sum, __m512i x, const struct split *split)
{
    const __m512i more = _mm512_sub_epi32(_mm512_slli_epi32(x, split->low_bits), x);
    return _mm512_add_epi32(_mm512_add_epi32(sum, sum), more);
}

/* The h-th 64 of 128 split bytes. */
INLINE __m512i split_half(const uint8_t *high, const uint8_t *low, const int h, const struct split *split)
{
    const __m512i upper = _mm512_loadu_si512(high), lower = low_pairs(high, low, split);
    return h ? select_bits(0xcc, upper, _mm512_srli_epi16(lower, 2))
             : select_bits(0xcc, _mm512_slli_epi16(upper, 2), lower);
}

/* Defines ntx__planes512_<whole>_<low bits>, and ntx__high512_<whole>_<low bits> for high bits alone.
 * planes_rows_<whole>(call, first row, k, split) multiplies k rows, 1, 2 or 4. */
#define PLANES_MATMUL(whole, bits, n)                                                                                  \
    PLANES_MATMUL_OF(planes, whole, bits, NTX_PLANES_HIGH_BYTES(whole, bits, n), NTX_PLANES_LOW_BYTES(bits, n))        \
    PLANES_MATMUL_OF(high, whole, bits, NTX_PLANES_HIGH_BYTES(whole, bits, n), 0)
#define PLANES_MATMUL_OF(name, whole, bits, of_high, of_low)                                                           \
    ntx_planes_fn ntx__##name##512_##whole##_##bits;                                                                   \
    void ntx__##name##512_##whole##_##bits(const struct ntx_planes_weights *w, const void *x, size_t x_stride,         \
                                           uint32_t n_rows, float *y, size_t ldy)                                      \
    {                                                                                                                  \
        const struct planes_call c = {w, x, x_stride, y, ldy};                                                         \
        const struct split s = {.high_bytes = of_high, .low_bytes = of_low, .low_bits = bits};                         \
        uint32_t r = 0;                                                                                                \
        prefetch_first(&c, &s, n_rows);                                                                                \
        for (; n_rows - r >= 4; r += 4)                                                                                \
            planes_rows_##whole(&c, r, 4, &s);                                                                         \
        for (; n_rows - r >= 2; r += 2)                                                                                \
            planes_rows_##whole(&c, r, 2, &s);                                                                         \
        if (r < n_rows)                                                                                                \
            planes_rows_##whole(&c, r, 1, &s);                                                                         \
    }

#endif
