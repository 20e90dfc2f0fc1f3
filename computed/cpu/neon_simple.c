/* SPDX-License-Identifier: Apache-2.0 */
/* neon_simple.c: products with blocks of 32 by SDOT, one or two rows of x at a time; more rows: neon_many.c. Four
 * blocks are a quarter of the lanes: three pairwise additions move their integer sums to one register, which is scaled
 * at once. If the last four are not complete, lanes without a block keep their values. */
#include "computed/cpu/neon_planes.h"

SIMPLE_KINDS

/* The first eight values of both 16s, then the others. */
INLINE struct pair x8(struct pair p)
{
    const int64x2_t a = vreinterpretq_s64_s8(p.v[0]), b = vreinterpretq_s64_s8(p.v[1]);
    return (struct pair){{vreinterpretq_s8_s64(vzip1q_s64(a, b)), vreinterpretq_s8_s64(vzip2q_s64(a, b))}};
}

/* 32s b .. b + 3 for each row; n of them exist. */
INLINE void dot_quad(const uint8_t *w, uint32_t b, uint32_t n, const void *all, const int rows, const void *of,
                     float32x4_t *acc)
{
    const struct q8_row *x = all;
    const struct simple_kind *kind = of;
    const bool halves = kind->scales == TWO_E4M3;
    int32x4_t i[NEON_ROWS][4];
    float32x4_t d = vdupq_n_f32(0), m = d;
    float ds[4];
    const uint8_t *heads[4];
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; k++) {
        const uint32_t at = b + (k < n ? k : n - 1), part = at % kind->parts;
        const uint8_t *p = w + (size_t)(at / kind->parts) * kind->block_bytes;
        const struct pair v = kind->values(
            kind->split ? one_split(p, kind->low + at * kind->split->of.low_bytes, kind->split) : one_row(p), part);
        heads[k] = p;
        if (kind->scales == EXPONENT)
            ds[k] = ntx_e8m0_float(p[0]);
        for (int r = 0; r < rows; r++) {
            struct pair xs = load_pair(x[r].q + (size_t)at * NTX_QK);
            if (halves) /* so that elements 0 and 1 of the sums belong to the first 16 values */
                xs = x8(xs);
            i[r][k] = vdotq_s32(vdotq_s32(vdupq_n_s32(0), v.v[0], xs.v[0]), v.v[1], xs.v[1]);
        }
    }
    if (kind->scales == HALF_WORD) {
        four_heads(heads, kind->has_min, &d, &m);
    } else if (halves) {
        float32x4_t v[2];
        e4m3_halves(vcreate_u8(word32(heads[0]) | (uint64_t)word32(heads[2]) << 32), v);
        d = vuzp1q_f32(v[0], v[1]);
        m = vuzp2q_f32(v[0], v[1]);
    } else {
        d = vld1q_f32(ds);
    }
    if (is_high(kind->split))
        d = vmulq_n_f32(d, 0.5f);
    for (int r = 0; r < rows; r++) {
        const float32x4_t dx = vld1q_f32(x[r].d + b);
        const int32x4_t s = vld1q_s32(x[r].s + b);
        int32x4_t sum, second = s;
        if (halves) {
            const int32x4_t low = vpaddq_s32(i[r][0], i[r][1]), high = vpaddq_s32(i[r][2], i[r][3]);
            sum = vuzp1q_s32(low, high);
            second = vuzp2q_s32(low, high);
        } else {
            sum = sum4x4(i[r]);
        }
        if (kind->offset_log2)
            sum = vsubq_s32(sum, kind->offset_log2 > 0 ? vshlq_s32(s, vdupq_n_s32(kind->offset_log2)) : s);
        if (is_high(kind->split))
            sum = to_middle(sum, s, kind->split);
        acc[r] = fma_first(acc[r], vcvtq_f32_s32(sum), vmulq_f32(d, dx), n);
        if (halves || kind->has_min)
            acc[r] = fma_first(acc[r], vcvtq_f32_s32(second), vmulq_f32(m, dx), n);
    }
}

INLINE void simple_rows(const struct shape *s, uint32_t row, const int rows, const struct simple_kind *kind)
{
    struct q8_row x[NEON_ROWS];
    for (int r = 0; r < rows; r++)
        x[r] = q8_view(s->x + (row + (size_t)r) * s->x_stride, s->n_in);
    quad_rows(s, row, rows, s->n_in / NTX_QK, x, kind, dot_quad, 16 / kind->parts * kind->block_bytes);
}

#define SIMPLE_MATMUL(TYPE, type)                                                                                      \
    static void rows1_##type(const struct shape *s, uint32_t row) { simple_rows(s, row, 1, &simple_##type); }          \
    static void rows2_##type(const struct shape *s, uint32_t row) { simple_rows(s, row, 2, &simple_##type); }          \
    DECLARE_MATMUL(ntx__neon_##type)                                                                                   \
    {                                                                                                                  \
        if (n_rows >= MANY_ROWS && many_bytes(n_in, 4) <= MANY_ROOM)                                                   \
            ntx__many_##type(w, row_bytes, n_out, n_in, x, x_stride, n_rows, y, ldy);                                  \
        else                                                                                                           \
            by_rows(&(struct shape){w, x, y, row_bytes, x_stride, ldy, n_out, n_in, n_rows}, NULL, rows2_##type,       \
                    rows1_##type);                                                                                     \
    }
NEON_SIMPLE(SIMPLE_MATMUL)

/* ---- in high and low bits */

NEON_PLANES_RULE(simple, NTX_QK)
NEON_PLANES(simple, q5_0, simple_q5_0, 2, 6, 16)
NEON_PLANES(simple, q8_0, simple_q8_0, 4, 2, 32)
