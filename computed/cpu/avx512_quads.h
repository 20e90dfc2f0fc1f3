/* SPDX-License-Identifier: Apache-2.0 */
/* avx512_quads.h: functions that the files of super-block kernels share. Four super-blocks, a quad, are unpacked
 * together, with one header per 128-bit lane. The quad's sums end in one register, super-block k in 128-bit lane k.
 * Four quads are 16 blocks: all lanes.
 *
 * If the last quad is not complete, the row's last block is repeated; x is zero there and those lanes are masked at
 * the end. So nothing after the weights is read. */
#ifndef NTX_COMPUTED_CPU_AVX512_QUADS_H
#define NTX_COMPUTED_CPU_AVX512_QUADS_H

#include "computed/cpu/avx512_bits.h"
#include "computed/cpu/avx512_planes.h"

/* Four super-blocks of weights, and their place in x. */
struct quad {
    const uint8_t *w[4], *low[4]; /* low: of weights in two parts; NULL: the middle */
    uint32_t block;               /* number of the first */
};

/* Sums of a quad's four blocks for a row of x, each spread over the four elements of its 128-bit lane. x: scales times
 * sums of x, for high bits alone. */
struct quad_sums {
    __m512i i, j, x;
};

/* Scales of a quad, for types that unpack headers ahead. */
struct quad_heads {
    /* pairs of int16: [half of the sub-blocks][block][sub-block] */
    int32_t scales[2][4][4] __attribute__((aligned(64)));
};

typedef void head_fn(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d,
                     struct quad_heads *heads);
/* split: how the weights are split; NULL: they are whole. */
typedef void quad_fn(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d,
                     const struct quad_heads *heads, const struct split *split);

INLINE __m512i four_lanes(const struct quad *q, size_t at)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(q->w[0] + at)));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(q->w[1] + at)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(q->w[2] + at)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(q->w[3] + at)), 3);
}

/* acc += scale * (w . x) for 64 values; w of 7 bits. */
INLINE __m512i scaled_dot(__m512i acc, __m512i w, const int8_t *x, __m512i scale)
{
    return _mm512_dpwssd_epi32(acc, _mm512_maddubs_epi16(w, load512(x)), scale);
}

/* -offset * sum of scale * (sum of 16 x): corrects integers that are `offset` too large. Uses 8 lanes. */
INLINE __m512i offset_term(__m256i s16, const int16_t *sums, int log2_offset)
{
    __m256i p = _mm256_madd_epi16(s16, _mm256_loadu_si256((const void *)sums));
    return _mm512_zextsi256_si512(_mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(p, log2_offset)));
}

/* Reorders the quads' joined sums, whose element 4 k + g is block 4 g + k, to blocks in order. */
INLINE __m512i natural_order(__m512i v)
{
    return _mm512_permutexvar_epi32(_mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0), v);
}

/* The k-th of a quad whose first is at p: the at-th from there. */
INLINE void set_block(struct quad *q, uint32_t k, const uint8_t *p, size_t at, size_t block_bytes,
                      const struct parts *parts)
{
    q->w[k] = p + at * block_bytes;
    if (parts && parts->split.low_bytes)
        q->low[k] = parts->low + (q->block + at) * parts->split.low_bytes;
}

/* One output for `rows` rows of x. parts: its weights, if these are in two parts; then `w` and `block_bytes` are those
 * of high bits, and `end` is not used. */
INLINE void dot_blocks(const uint8_t *w, const uint8_t *end, uint32_t nb, const struct q8k_row *x, const int rows,
                       __m512 *acc, size_t block_bytes, const bool has_min, const float factor, head_fn *head,
                       quad_fn *quad, const struct parts *parts)
{
    const bool follows = ntx__cpu_follows && rows == 1;
    for (int r = 0; r < rows; r++)
        acc[r] = _mm512_setzero_ps();
    for (uint32_t b = 0; b < nb; b += LANES) {
        struct quad_sums sums[4][4];
        struct quad_heads heads[4];
        struct quad quads[4];
        __m512i d[4];
        for (uint32_t g = 0; g < 4; g++) {
            struct quad q = {.block = b + 4 * g};
            const uint8_t *p = w + (size_t)q.block * block_bytes;
            if (parts && q.block < nb)
                prefetch_parts(parts, q.block, nb - q.block < 4 ? nb - q.block : 4, rows);
            else if (!parts && (!follows || head)) /* types without `head` would wait for headers */
                prefetch_next(p, 4 * block_bytes, 3584, follows ? REACH_NEAR : reach_for(rows), end);
            if (q.block + 4 <= nb) {
                for (uint32_t k = 0; k < 4; k++)
                    set_block(&q, k, p, k, block_bytes, parts);
            } else if (q.block < nb) {
                for (uint32_t k = 0; k < 4; k++)
                    set_block(&q, k, p, q.block + k < nb ? k : nb - 1 - q.block, block_bytes, parts);
            } else {
                d[g] = _mm512_setzero_si512();
                for (int r = 0; r < rows; r++)
                    sums[g][r].i = sums[g][r].j = d[g];
                quads[g].block = nb;
                continue;
            }
            quads[g] = q;
            if (head) /* all headers first: their latency is longer than that of the weights */
                head(&quads[g], x, rows, sums[g], &d[g], &heads[g]);
        }
        for (uint32_t g = 0; g < 4 && quads[g].block < nb; g++)
            quad(&quads[g], x, rows, sums[g], &d[g], &heads[g], parts ? &parts->split : NULL);
        __m512i dw = natural_order(
            _mm512_unpacklo_epi64(_mm512_unpacklo_epi32(d[0], d[1]), _mm512_unpacklo_epi32(d[2], d[3])));
        __m512 scale = widen_low_halves(dw), min = widen_low_halves(_mm512_srli_epi32(dw, 16));
        __mmask16 live = first_lanes(nb - b);
        if (factor != 1)
            scale = _mm512_mul_ps(scale, _mm512_set1_ps(factor));
        for (int r = 0; r < rows; r++) {
            __m512 dx = _mm512_loadu_ps(x[r].d + b);
            __m512i i = natural_order(sum4x4(sums[0][r].i, sums[1][r].i, sums[2][r].i, sums[3][r].i));
            acc[r] = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(i), _mm512_mul_ps(scale, dx), acc[r], live);
            if (!has_min)
                continue;
            __m512i j = natural_order(sum4x4(sums[0][r].j, sums[1][r].j, sums[2][r].j, sums[3][r].j));
            j = _mm512_sub_epi32(_mm512_setzero_si512(), j);
            acc[r] = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(j), _mm512_mul_ps(min, dx), acc[r], live);
        }
    }
}

/* All outputs for rows r .. r + rows - 1. */
INLINE void super_rows(const struct shape *s, uint32_t r, const int rows, size_t block_bytes, const bool has_min,
                       const float factor, head_fn *head, quad_fn *quad)
{
    struct q8k_row x[4];
    for (int k = 0; k < rows; k++)
        x[k] = q8k_view(s->x + (r + (size_t)k) * s->x_stride, s->n_in);
    for (uint32_t o = 0; o < s->n_out; o++) {
        __m512 acc[4];
        dot_blocks(s->w + o * s->row_bytes, s->end, s->n_in / NTX_QKK, x, rows, acc, block_bytes, has_min, factor, head,
                   quad, NULL);
        for (int k = 0; k < rows; k++)
            s->y[(r + (size_t)k) * s->ldy + o] = join_ps(acc[k]);
    }
}

/* The same with weights in two parts. */
INLINE void super_planes(const struct planes_call *c, uint32_t r, const int rows, const struct split *split,
                         const bool has_min, head_fn *head, quad_fn *quad)
{
    const uint32_t nb = c->w->n_in / NTX_QKK;
    struct q8k_row x[4];
    for (int k = 0; k < rows; k++)
        x[k] = q8k_view(c->x + (r + (size_t)k) * c->x_stride, c->w->n_in);
    for (uint32_t o = 0; o < c->w->n_out; o++) {
        const struct parts parts = parts_of(c, split, o, nb);
        __m512 acc[4];
        dot_blocks(parts.high, NULL, nb, x, rows, acc, split->high_bytes, has_min, split_is_high(split) ? 0.5f : 1,
                   head, quad, &parts);
        for (int k = 0; k < rows; k++)
            c->y[(r + (size_t)k) * c->ldy + o] = join_ps(acc[k]);
    }
}

/* Defines rows<k>_<type>; factor: factor of d, a power of two. */
#define SUPER_ROWS(type, k, has_min, factor, head)                                                                     \
    static void rows##k##_##type(const struct shape *s, uint32_t r)                                                    \
    {                                                                                                                  \
        super_rows(s, r, k, sizeof(struct ntx_block_##type), has_min, factor, head, quad_##type);                      \
    }

#endif
