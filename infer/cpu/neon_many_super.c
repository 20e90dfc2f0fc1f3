/* neon_many_super.c: products of many rows with super-blocks of 256 by SDOT, for processors without i8mm, four outputs by four rows of x. A register has four neighbouring values of each output; a
 * word of x, as it lies in its row, is multiplied by all of them, and element k of the sum is output k's. So scales are one register, too, and nothing is added up across a register. One row, or
 * two, go by neon_super.c. */
#include "infer/cpu/neon_many.h"

SUPER_KINDS

/* 32 values of four outputs, fours by fours. */
struct octet {
    int8x16_t v[8];
};

#define OCTET(kind, w, t)                                                                                                    \
    ({                                                                                                                       \
        const struct quad even_ = QUAD(kind, (w)[0], (w)[2], t), odd_ = QUAD(kind, (w)[1], (w)[3], t);                       \
        struct octet o_;                                                                                                     \
        for (int k_ = 0; k_ < 4; k_++) {                                                                                     \
            const int32x4_t a_ = vreinterpretq_s32_s8(even_.v[k_]), b_ = vreinterpretq_s32_s8(odd_.v[k_]);                   \
            o_.v[2 * k_] = vreinterpretq_s8_s32(vtrn1q_s32(a_, b_));                                                         \
            o_.v[2 * k_ + 1] = vreinterpretq_s8_s32(vtrn2q_s32(a_, b_));                                                     \
        }                                                                                                                    \
        o_;                                                                                                                  \
    })

/* sum + 16 values of a row by those of four outputs. */
INLINE int32x4_t dot_16_values(int32x4_t sum, const int8x16_t v[4], int8x16_t x)
{
    sum = vdotq_laneq_s32(sum, v[0], x, 0);
    sum = vdotq_laneq_s32(sum, v[1], x, 1);
    sum = vdotq_laneq_s32(sum, v[2], x, 2);
    return vdotq_laneq_s32(sum, v[3], x, 3);
}

/* What four outputs have of each sub-block: of k and of k + 4 in a register. */
struct by_outs {
    int16x8_t v[8];
};

INLINE void by_outputs(const int16x8_t s[OUTS][2], const bool by_16, struct by_outs *to)
{
    for (int k = 0; k < (by_16 ? 2 : 1); k++) {
        const int32x4_t a = vreinterpretq_s32_s16(vtrn1q_s16(s[0][k], s[1][k])), b = vreinterpretq_s32_s16(vtrn2q_s16(s[0][k], s[1][k]));
        const int32x4_t c = vreinterpretq_s32_s16(vtrn1q_s16(s[2][k], s[3][k])), d = vreinterpretq_s32_s16(vtrn2q_s16(s[2][k], s[3][k]));
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

/* The sum over sub-blocks of these times sums of x. */
INLINE int32x4_t weighed(const struct by_outs *by, const struct q8k_row *x, uint32_t b, const bool by_16)
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

INLINE float32x4_t halves_of(const uint16_t h[OUTS]) { return four_halves(h[0] | (uint64_t)h[1] << 16 | (uint64_t)h[2] << 32 | (uint64_t)h[3] << 48); }

/* Super-block b of four outputs. */
INLINE void one_super_block(const uint8_t *const w[OUTS], uint32_t b, const struct q8k_row x[4], const struct super_kind *kind, float32x4_t *acc)
{
    int16x8_t s[OUTS][2], min[OUTS][2];
    struct by_outs scale, less;
    int32x4_t dot[4], low[4];
    uint16_t d[OUTS], m[OUTS] = {0};
    for (int k = 0; k < OUTS; k++) {
        kind->scales(w[k], s[k], min[k]);
        d[k] = kind->d(w[k]);
        if (kind->dmin_at >= 0)
            m[k] = half_at(w[k] + kind->dmin_at);
    }
    if (!kind->flat)
        by_outputs(s, kind->by_16, &scale);
    if (kind->dmin_at != -1)
        by_outputs(min, kind->by_16, &less);
    for (int r = 0; r < 4; r++) {
        low[r] = kind->dmin_at >= 0 ? weighed(&less, &x[r], b, kind->by_16) : vdupq_n_s32(0);
        if (kind->dmin_at == ADDED)
            dot[r] = weighed(&less, &x[r], b, kind->by_16);
        else if (kind->flat)
            dot[r] = vdupq_n_s32(-kind->offset * vaddlvq_s16(vld1q_s16(x[r].s32 + 8 * b)));
        else
            dot[r] = kind->offset ? vmulq_n_s32(weighed(&scale, &x[r], b, kind->by_16), -kind->offset) : vdupq_n_s32(0);
    }
#pragma GCC unroll 8
    for (int t = 0; t < 8; t++) {
        const struct octet v = OCTET(kind, w, t);
        const int32x4_t none = vdupq_n_s32(0);
        for (int r = 0; r < 4; r++) {
            const struct pair q = load_pair(x[r].q + (size_t)b * NTX_QKK + 32 * t);
            const int32x4_t first = dot_16_values(kind->flat ? dot[r] : none, v.v, q.v[0]);
            if (kind->flat) {
                dot[r] = dot_16_values(first, v.v + 4, q.v[1]);
            } else if (kind->by_16) {
                dot[r] = vmlaq_s32(dot[r], first, vmovl_s16(of_sub_block(&scale, 2 * t)));
                dot[r] = vmlaq_s32(dot[r], dot_16_values(none, v.v + 4, q.v[1]), vmovl_s16(of_sub_block(&scale, 2 * t + 1)));
            } else {
                dot[r] = vmlaq_s32(dot[r], dot_16_values(first, v.v + 4, q.v[1]), vmovl_s16(of_sub_block(&scale, t)));
            }
        }
    }
    const float32x4_t by = kind->times != 1 ? vmulq_n_f32(halves_of(d), kind->times) : halves_of(d), by_min = halves_of(m);
    for (int r = 0; r < 4; r++) {
        acc[r] = vfmaq_f32(acc[r], vcvtq_f32_s32(dot[r]), vmulq_n_f32(by, x[r].d[b]));
        if (kind->dmin_at >= 0)
            acc[r] = vfmaq_f32(acc[r], vcvtq_f32_s32(vnegq_s32(low[r])), vmulq_n_f32(by_min, x[r].d[b]));
    }
}

INLINE void super_outputs(const struct pass *p, uint32_t o, const struct super_kind *kind)
{
    const uint32_t nb = p->s.n_in / NTX_QKK;
    const uint8_t *w[OUTS];
    struct q8k_row x[4];
    float32x4_t lanes[LANES][MANY_AT_ONCE];
    outputs_at(&p->s, o, w);
    for (uint32_t r = 0; r < 4; r++)
        x[r] = q8k_view(row_at(p, r), p->s.n_in);
    for (uint32_t l = 0; l < LANES; l++) {
        for (int r = 0; r < 4; r++)
            lanes[l][r] = vdupq_n_f32(0);
        for (uint32_t b = l; b < nb; b += LANES) {
            const uint8_t *const at[OUTS] = {w[0] + b * kind->block_bytes, w[1] + b * kind->block_bytes, w[2] + b * kind->block_bytes, w[3] + b * kind->block_bytes};
            one_super_block(at, b, x, kind, lanes[l]);
        }
    }
    join(p, o, 4, lanes, LANES / 2);
}

#define MANY_SUPER(TYPE, type)                                                                                                        \
    static void rows4_##type(const struct pass *p, char *room)                                                                        \
    {                                                                                                                                 \
        (void)room;                                                                                                                   \
        for (uint32_t o = 0; o < p->s.n_out; o += OUTS)                                                                               \
            super_outputs(p, o, &super_##type);                                                                                       \
    }                                                                                                                                 \
    DECLARE_MATMUL(ntx__many_##type) { many(&(struct shape){w, x, y, row_bytes, x_stride, ldy, n_out, n_in, n_rows}, NULL, rows4_##type, ntx__neon_##type, NULL); }
NEON_SUPER(MANY_SUPER)
