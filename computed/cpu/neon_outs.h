/* SPDX-License-Identifier: Apache-2.0 */
/* neon_outs.h: super-blocks of four outputs side by side, whose values come from rows (neon_many_super.c) or from
 * interleaved tiles (neon_interleaved_super.c). A register has four adjacent values of each output, and is multiplied
 * by a word of x; element k of the sum is output k's. So the scales are one register, too, and nothing is added across
 * a register. */
#ifndef NTX_COMPUTED_CPU_NEON_OUTS_H
#define NTX_COMPUTED_CPU_NEON_OUTS_H

#include "computed/cpu/neon_many.h"

/* Scales or minima of four outputs: a register has sub-blocks k and k + 4. */
struct by_outs {
    int16x8_t v[8];
};

INLINE void by_outputs(const int16x8_t s[OUTS][2], const bool by_16, struct by_outs *to)
{
    for (int k = 0; k < (by_16 ? 2 : 1); k++) {
        const int32x4_t a = vreinterpretq_s32_s16(vtrn1q_s16(s[0][k], s[1][k])),
                        b = vreinterpretq_s32_s16(vtrn2q_s16(s[0][k], s[1][k]));
        const int32x4_t c = vreinterpretq_s32_s16(vtrn1q_s16(s[2][k], s[3][k])),
                        d = vreinterpretq_s32_s16(vtrn2q_s16(s[2][k], s[3][k]));
        to->v[4 * k] = vreinterpretq_s16_s32(vtrn1q_s32(a, c));
        to->v[4 * k + 1] = vreinterpretq_s16_s32(vtrn1q_s32(b, d));
        to->v[4 * k + 2] = vreinterpretq_s16_s32(vtrn2q_s32(a, c));
        to->v[4 * k + 3] = vreinterpretq_s16_s32(vtrn2q_s32(b, d));
    }
}

INLINE int16x4_t of_sub_block(const struct by_outs *s, const int k)
{
    const int16x8_t v = s->v[k / 8 * 4 + k % 4];
    return k / 4 % 2 ? vget_high_s16(v) : vget_low_s16(v);
}

/* The sum over sub-blocks of scales (or minima) times sums of x. */
INLINE int32x4_t scaled_sums(const struct by_outs *by, const struct q8k_row *x, uint32_t b, const bool by_16)
{
    int32x4_t sum = vdupq_n_s32(0);
    for (int k = 0; k < (by_16 ? 2 : 1); k++) {
        const int16x8_t s = vld1q_s16(by_16 ? x->s16 + 16 * b + 8 * k : x->s32 + 8 * b);
        sum = vmlal_laneq_s16(sum, of_sub_block(by, 8 * k), s, 0);
        sum = vmlal_laneq_s16(sum, of_sub_block(by, 8 * k + 1), s, 1);
        sum = vmlal_laneq_s16(sum, of_sub_block(by, 8 * k + 2), s, 2);
        sum = vmlal_laneq_s16(sum, of_sub_block(by, 8 * k + 3), s, 3);
        sum = vmlal_laneq_s16(sum, of_sub_block(by, 8 * k + 4), s, 4);
        sum = vmlal_laneq_s16(sum, of_sub_block(by, 8 * k + 5), s, 5);
        sum = vmlal_laneq_s16(sum, of_sub_block(by, 8 * k + 6), s, 6);
        sum = vmlal_laneq_s16(sum, of_sub_block(by, 8 * k + 7), s, 7);
    }
    return sum;
}

struct heads {
    struct by_outs scale, less; /* less: minima */
    float32x4_t d, m;
};

/* Values 32 t .. 32 t + 31 of four outputs. */
typedef struct x8 x8_fn(const struct super_kind *kind, const uint8_t *const *w, int t);

/* Super-block b of four outputs times `rows` rows, at most four. */
INLINE void outs_by_rows(const struct super_kind *kind, const struct heads *h, x8_fn *x8, const uint8_t *const *w,
                         uint32_t b, const struct q8k_row *x, const int rows, float32x4_t *acc)
{
    int32x4_t dot[4], low[4];
    for (int r = 0; r < rows; r++) {
        low[r] = kind->dmin_at >= 0 ? scaled_sums(&h->less, &x[r], b, kind->by_16) : vdupq_n_s32(0);
        if (kind->dmin_at == ADDED)
            dot[r] = scaled_sums(&h->less, &x[r], b, kind->by_16);
        else if (kind->flat)
            dot[r] = vdupq_n_s32(-kind->offset * vaddlvq_s16(vld1q_s16(x[r].s32 + 8 * b)));
        else
            dot[r] = kind->offset ? vmulq_n_s32(scaled_sums(&h->scale, &x[r], b, kind->by_16), -kind->offset)
                                  : vdupq_n_s32(0);
    }
#pragma GCC unroll 8
    for (int t = 0; t < 8; t++) {
        const struct x8 v = x8(kind, w, t);
        const int32x4_t none = vdupq_n_s32(0);
        for (int r = 0; r < rows; r++) {
            const struct pair q = load_pair(x[r].q + (size_t)b * NTX_QKK + 32 * t);
            const int32x4_t first = dot_16_values(kind->flat ? dot[r] : none, v.v, q.v[0]);
            if (kind->flat) {
                dot[r] = dot_16_values(first, v.v + 4, q.v[1]);
            } else if (kind->by_16) {
                dot[r] = vmlaq_s32(dot[r], first, vmovl_s16(of_sub_block(&h->scale, 2 * t)));
                dot[r] = vmlaq_s32(dot[r], dot_16_values(none, v.v + 4, q.v[1]),
                                   vmovl_s16(of_sub_block(&h->scale, 2 * t + 1)));
            } else {
                dot[r] = vmlaq_s32(dot[r], dot_16_values(first, v.v + 4, q.v[1]),
                                   vmovl_s16(of_sub_block(&h->scale, t)));
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        acc[r] = vfmaq_f32(acc[r], vcvtq_f32_s32(dot[r]), vmulq_n_f32(h->d, x[r].d[b]));
        if (kind->dmin_at >= 0)
            acc[r] = vfmaq_f32(acc[r], vcvtq_f32_s32(vnegq_s32(low[r])), vmulq_n_f32(h->m, x[r].d[b]));
    }
}

#endif
