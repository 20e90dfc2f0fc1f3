/* SPDX-License-Identifier: Apache-2.0 */
/* neon_super.c: products with super-blocks of 256 by SDOT, one or two rows of x at a time; more rows:
 * neon_many_super.c. Sums of 32 or 16 products in four lanes are multiplied by their scale and added for the
 * super-block; four super-blocks are a quarter of the lanes, as in neon_simple.c. Also products with floats. */
#include <math.h>

#include "computed/cpu/neon_planes.h"

SUPER_KINDS

struct sums { /* of the four super-blocks, in four elements each */
    int32x4_t dot[4], low[4];
};

/* The sum over 8 of a * s. */
INLINE int32x4_t dot_16(int16x8_t a, const int16_t *s, int32x4_t acc)
{
    const int16x8_t v = vld1q_s16(s);
    return vmlal_high_s16(vmlal_s16(acc, vget_low_s16(a), vget_low_s16(v)), a, v);
}

/* The sum over sub-blocks of minima (or scales, for an offset) times sums of x. */
INLINE int32x4_t weighed_sums(const int16x8_t by[2], const struct q8k_row *x, uint32_t b, bool by_16)
{
    const int32x4_t none = vdupq_n_s32(0);
    return by_16 ? dot_16(by[1], x->s16 + b * 16 + 8, dot_16(by[0], x->s16 + b * 16, none))
                 : dot_16(by[0], x->s32 + b * 8, none);
}

#define ONE_32(t)                                                                                                      \
    {                                                                                                                  \
        const struct pair v = kind->values(from, t);                                                                   \
        for (int r = 0; r < rows; r++) {                                                                               \
            const struct pair xs = load_pair(x[r].q + (size_t)b * NTX_QKK + 32 * t);                                   \
            const int32x4_t none = vdupq_n_s32(0), first = vdotq_s32(kind->flat ? acc[r] : none, v.v[0], xs.v[0]);     \
            if (kind->flat) {                                                                                          \
                acc[r] = first;                                                                                        \
                low[r] = vdotq_s32(low[r], v.v[1], xs.v[1]);                                                           \
            } else if (kind->by_16) {                                                                                  \
                acc[r] = vmlaq_laneq_s32(acc[r], first, wide[(t) / 2], 2 * (t) % 4);                                   \
                acc[r] = vmlaq_laneq_s32(acc[r], vdotq_s32(none, v.v[1], xs.v[1]), wide[(t) / 2], 2 * (t) % 4 + 1);    \
            } else {                                                                                                   \
                acc[r] = vmlaq_laneq_s32(acc[r], vdotq_s32(first, v.v[1], xs.v[1]), wide[(t) / 4], (t) % 4);           \
            }                                                                                                          \
        }                                                                                                              \
    }

INLINE void dot_super(const struct from from, uint32_t b, const struct q8k_row *x, const int rows,
                      const struct super_kind *kind, int32x4_t *acc, int32x4_t *low)
{
    const uint8_t *w = from.a;
    int16x8_t s[2], min[2];
    int32x4_t wide[4];
    kind->scales(w, s, min);
    wide[0] = vmovl_s16(vget_low_s16(s[0]));
    wide[1] = vmovl_high_s16(s[0]);
    if (kind->by_16) {
        wide[2] = vmovl_s16(vget_low_s16(s[1]));
        wide[3] = vmovl_high_s16(s[1]);
    }
    for (int r = 0; r < rows; r++) {
        low[r] = kind->dmin_at >= 0 ? weighed_sums(min, &x[r], b, kind->by_16) : vdupq_n_s32(0);
        acc[r] = kind->dmin_at == ADDED ? weighed_sums(min, &x[r], b, kind->by_16) : vdupq_n_s32(0);
    }
    ONE_32(0)
    ONE_32(1)
    ONE_32(2)
    ONE_32(3)
    ONE_32(4)
    ONE_32(5)
    ONE_32(6)
    ONE_32(7)
    for (int r = 0; (kind->flat || kind->offset) && r < rows; r++)
        acc[r] = kind->flat ? vaddq_s32(acc[r], low[r])
                            : vmlsq_n_s32(acc[r], weighed_sums(s, &x[r], b, kind->by_16), kind->offset);
    for (int r = 0; is_high(kind->split) && r < rows; r++)
        acc[r] = to_middle(acc[r], weighed_sums(s, &x[r], b, kind->by_16), kind->split);
}

/* Element k: the sum of x over super-block k of four. */
INLINE int32x4_t four_totals(const int16_t *s32)
{
    return vpaddlq_s16(vpaddq_s16(vpaddq_s16(vld1q_s16(s32), vld1q_s16(s32 + 8)),
                                  vpaddq_s16(vld1q_s16(s32 + 16), vld1q_s16(s32 + 24))));
}

/* Super-block k of the four at w and x; adds its d and m to the halves of all four. */
INLINE void one_of_quad(const uint8_t *w, const uint8_t *low_bits, uint32_t k, const struct q8k_row *x, const int rows,
                        const struct super_kind *kind, struct sums *sums, uint64_t *d, uint64_t *m)
{
    const uint8_t *p = w + (size_t)k * kind->block_bytes;
    int32x4_t dot[NEON_ROWS], low[NEON_ROWS];
    if (kind->flat)
        __asm__ volatile(
            "" ::
                : "memory"); /* keeps loads of other blocks from moving here: there are too few registers */
    else
        prefetch_weights(p, kind->block_bytes, 1024, REACH_NEAR);
    dot_super(kind->split ? one_split(p, low_bits + k * kind->split->of.low_bytes, kind->split) : one_row(p), k, x,
              rows, kind, dot, low);
    for (int r = 0; r < rows; r++) {
        sums[r].dot[k] = dot[r];
        sums[r].low[k] = low[r];
    }
    *d |= (uint64_t)kind->d(p) << 16 * k;
    if (kind->dmin_at >= 0)
        *m |= (uint64_t)half_at(p + kind->dmin_at) << 16 * k;
}

/* Super-blocks b .. b + 3; n of them exist. */
INLINE void dot_quad(const uint8_t *row, uint32_t b, uint32_t n, const void *all, const int rows, const void *of,
                     float32x4_t *acc)
{
    const struct super_kind *kind = of;
    const uint8_t *w = row + (size_t)b * kind->block_bytes,
                  *l = kind->split ? kind->low + b * kind->split->of.low_bytes : NULL;
    const struct q8k_row *whole = all;
    struct q8k_row x[NEON_ROWS];
    struct sums sums[NEON_ROWS];
    uint64_t d = 0, m = 0;
    for (int r = 0; r < rows; r++)
        x[r] = (struct q8k_row){whole[r].q + (size_t)b * NTX_QKK, whole[r].d + b, whole[r].s16 + (size_t)b * 16,
                                whole[r].s32 + (size_t)b * 8};
    if (kind->flat)
        prefetch_weights(w, 4 * kind->block_bytes, 1024, REACH_NEAR);
    if (kind->flat && n == 4) {
#pragma GCC unroll 4
        for (uint32_t k = 0; k < 4; k++)
            one_of_quad(w, l, k, x, rows, kind, sums, &d, &m);
    } else {
        for (uint32_t k = 0; k < 4; k++)
            for (int r = 0; k >= n && r < rows; r++)
                sums[r].dot[k] = sums[r].low[k] = vdupq_n_s32(0);
        for (uint32_t k = 0; k < n; k++)
            one_of_quad(w, l, k, x, rows, kind, sums, &d, &m);
    }
    const float times = is_high(kind->split) ? 0.5f * kind->times : kind->times;
    const float32x4_t vd = times != 1 ? vmulq_n_f32(four_halves(d), times) : four_halves(d), vm = four_halves(m);
    for (int r = 0; r < rows; r++) {
        const float32x4_t dx = vld1q_f32(x[r].d);
        int32x4_t dot = sum4x4(sums[r].dot);
        if (kind->flat && kind->offset)
            dot = vsubq_s32(dot, four_totals(x[r].s32));
        acc[r] = fma_first(acc[r], vcvtq_f32_s32(dot), vmulq_f32(vd, dx), n);
        if (kind->dmin_at >= 0)
            acc[r] = fma_first(acc[r], vcvtq_f32_s32(vnegq_s32(sum4x4(sums[r].low))), vmulq_f32(vm, dx), n);
    }
}

INLINE void super_rows(const struct shape *s, uint32_t row, const int rows, const struct super_kind *kind)
{
    struct q8k_row x[NEON_ROWS];
    for (int r = 0; r < rows; r++)
        x[r] = q8k_view(s->x + (row + (size_t)r) * s->x_stride, s->n_in);
    quad_rows(s, row, rows, s->n_in / NTX_QKK, x, kind, dot_quad, 0);
}

#define SUPER_MATMUL(TYPE, type)                                                                                       \
    static void rows1_##type(const struct shape *s, uint32_t row) { super_rows(s, row, 1, &super_##type); }            \
    static void rows2_##type(const struct shape *s, uint32_t row) { super_rows(s, row, 2, &super_##type); }            \
    DECLARE_MATMUL(ntx__neon_##type)                                                                                   \
    {                                                                                                                  \
        if (n_rows >= MANY_ROWS)                                                                                       \
            ntx__many_##type(w, row_bytes, n_out, n_in, x, x_stride, n_rows, y, ldy);                                  \
        else                                                                                                           \
            by_rows(&(struct shape){w, x, y, row_bytes, x_stride, ldy, n_out, n_in, n_rows}, NULL, rows2_##type,       \
                    rows1_##type);                                                                                     \
    }
NEON_SUPER(SUPER_MATMUL)

/* ---- in high and low bits */

INLINE void scales_split_q6_k(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    (void)min;
    widen_scales(vld1q_s8((const int8_t *)w + 64), s);
}
INLINE uint16_t d_split_q6_k(const uint8_t *w) { return half_at(w + 80); }

static const struct super_kind split_q6_k = {146,  values_q6_k, scales_split_q6_k, d_split_q6_k, 1, 32, -1, true, false,
                                             NULL, NULL};
NEON_PLANES_RULE(super, NTX_QKK)
NEON_PLANES(super, q4_k, super_q4_k, 1, 16, 128)
NEON_PLANES(super, q4_k, super_q4_k, 2, 16, 128)
NEON_PLANES(super, q5_k, super_q5_k, 2, 48, 128)
NEON_PLANES(super, q6_k, split_q6_k, 2, 0, 128)

/* ---- floats: value k goes to lane k % 32, which is one of eight registers */

INLINE float32x4_t floats_f32(const uint8_t *w) { return vreinterpretq_f32_u8(vld1q_u8(w)); }
INLINE float32x4_t floats_f16(const uint8_t *w) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(w))); }
INLINE float32x4_t floats_bf16(const uint8_t *w)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(w)), 16));
}
INLINE float float_f32(const uint8_t *w)
{
    float f;
    memcpy(&f, w, 4);
    return f;
}
INLINE float float_f16(const uint8_t *w) { return head_float(w); }
INLINE float float_bf16(const uint8_t *w)
{
    uint16_t h;
    memcpy(&h, w, 2);
    return bf16_to_f32(h);
}

INLINE void mm_floats(const struct shape *s, uint32_t row, const int rows, const size_t bytes,
                      float32x4_t (*four)(const uint8_t *), float (*one)(const uint8_t *))
{
    const float *x[NEON_ROWS];
    for (int r = 0; r < rows; r++)
        x[r] = (const float *)(const void *)(s->x + (row + (size_t)r) * s->x_stride);
    for (uint32_t o = 0; o < s->n_out; o++) {
        const uint8_t *w = s->w + o * s->row_bytes;
        float32x4_t acc[NEON_ROWS][8];
        for (int r = 0; r < rows; r++)
            for (int q = 0; q < 8; q++)
                acc[r][q] = vdupq_n_f32(0);
        uint32_t k = 0;
        for (; s->n_in - k >= 32; k += 32) {
            prefetch_weights(w + k * bytes, 32 * bytes, 1024, REACH_NEAR);
#pragma GCC unroll 8
            for (uint32_t q = 0; q < 8; q++) {
                const float32x4_t v = four(w + (k + 4 * q) * bytes);
                for (int r = 0; r < rows; r++)
                    acc[r][q] = vfmaq_f32(acc[r][q], v, vld1q_f32(x[r] + k + 4 * q));
            }
        }
        for (int r = 0; r < rows; r++) {
            float lanes[32];
            for (int q = 0; q < 8; q++)
                vst1q_f32(lanes + 4 * q, acc[r][q]);
            for (uint32_t i = k; i < s->n_in; i++)
                lanes[i % 32] = fmaf(one(w + i * bytes), x[r][i], lanes[i % 32]);
            float32x4_t a[4];
            for (int q = 0; q < 4; q++)
                a[q] = vaddq_f32(vld1q_f32(lanes + 4 * q), vld1q_f32(lanes + 16 + 4 * q));
            s->y[(row + (size_t)r) * s->ldy + o] = join_quads(a);
        }
    }
}

#define FLOAT_MATMUL(TYPE, type)                                                                                       \
    static void rows1_##type(const struct shape *s, uint32_t row)                                                      \
    {                                                                                                                  \
        mm_floats(s, row, 1, NTX_##TYPE == NTX_F32 ? 4 : 2, floats_##type, float_##type);                              \
    }                                                                                                                  \
    static void rows2_##type(const struct shape *s, uint32_t row)                                                      \
    {                                                                                                                  \
        mm_floats(s, row, 2, NTX_##TYPE == NTX_F32 ? 4 : 2, floats_##type, float_##type);                              \
    }                                                                                                                  \
    static void rows4_##type(const struct shape *s, uint32_t row)                                                      \
    {                                                                                                                  \
        mm_floats(s, row, 2, NTX_##TYPE == NTX_F32 ? 4 : 2, floats_##type, float_##type);                              \
        mm_floats(s, row + 2, 2, NTX_##TYPE == NTX_F32 ? 4 : 2, floats_##type, float_##type);                          \
    }                                                                                                                  \
    DECLARE_MATMUL(ntx__neon_##type)                                                                                   \
    {                                                                                                                  \
        by_rows(&(struct shape){w, x, y, row_bytes, x_stride, ldy, n_out, n_in, n_rows}, rows4_##type, rows2_##type,   \
                rows1_##type);                                                                                         \
    }
NEON_FLOAT(FLOAT_MATMUL)
