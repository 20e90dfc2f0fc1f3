/* SPDX-License-Identifier: Apache-2.0 */
/* neon_many_super.c: products of many rows with super-blocks of 256 by SDOT, for processors without i8mm: four outputs
 * times four rows of x. A register has four adjacent values of each output, and is multiplied by a word of x; element
 * k of the sum is output k's. So the scales are one register, too, and nothing is added across a register. One or two
 * rows use neon_super.c. */
#include "computed/cpu/neon_outs.h"

SUPER_KINDS

#define QUADS_X8(kind, w, t)                                                                                           \
    ({                                                                                                                 \
        const struct quad even_ = QUAD(kind, (w)[0], (w)[2], t), odd_ = QUAD(kind, (w)[1], (w)[3], t);                 \
        struct x8 o_;                                                                                                  \
        for (int k_ = 0; k_ < 4; k_++) {                                                                               \
            const int32x4_t a_ = vreinterpretq_s32_s8(even_.v[k_]), b_ = vreinterpretq_s32_s8(odd_.v[k_]);             \
            o_.v[2 * k_] = vreinterpretq_s8_s32(vtrn1q_s32(a_, b_));                                                   \
            o_.v[2 * k_ + 1] = vreinterpretq_s8_s32(vtrn2q_s32(a_, b_));                                               \
        }                                                                                                              \
        o_;                                                                                                            \
    })

INLINE float32x4_t halves_of(const uint16_t h[OUTS])
{
    return four_halves(h[0] | (uint64_t)h[1] << 16 | (uint64_t)h[2] << 32 | (uint64_t)h[3] << 48);
}

INLINE struct x8 x8_of_rows(const struct super_kind *kind, const uint8_t *const w[OUTS], int t)
{
    return QUADS_X8(kind, w, t);
}

/* Super-block b of four outputs. */
INLINE void one_super_block(const uint8_t *const w[OUTS], uint32_t b, const struct q8k_row x[4],
                            const struct super_kind *kind, float32x4_t *acc)
{
    int16x8_t s[OUTS][2], min[OUTS][2];
    struct heads h;
    uint16_t d[OUTS], m[OUTS] = {0};
    for (int k = 0; k < OUTS; k++) {
        kind->scales(w[k], s[k], min[k]);
        d[k] = kind->d(w[k]);
        if (kind->dmin_at >= 0)
            m[k] = half_at(w[k] + kind->dmin_at);
    }
    if (!kind->flat)
        by_outputs(s, kind->by_16, &h.scale);
    if (kind->dmin_at != -1)
        by_outputs(min, kind->by_16, &h.less);
    h.d = kind->times != 1 ? vmulq_n_f32(halves_of(d), kind->times) : halves_of(d);
    h.m = halves_of(m);
    outs_by_rows(kind, &h, x8_of_rows, w, b, x, 4, acc);
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
            const uint8_t *const at[OUTS] = {w[0] + b * kind->block_bytes, w[1] + b * kind->block_bytes,
                                             w[2] + b * kind->block_bytes, w[3] + b * kind->block_bytes};
            one_super_block(at, b, x, kind, lanes[l]);
        }
    }
    store_joined(p, o, 4, lanes, LANES / 2);
}

#define MANY_SUPER(TYPE, type)                                                                                         \
    static void rows4_##type(const struct pass *p, char *room)                                                         \
    {                                                                                                                  \
        (void)room;                                                                                                    \
        for (uint32_t o = 0; o < p->s.n_out; o += OUTS)                                                                \
            super_outputs(p, o, &super_##type);                                                                        \
    }                                                                                                                  \
    DECLARE_MATMUL(ntx__many_##type)                                                                                   \
    {                                                                                                                  \
        many(&(struct shape){w, x, y, row_bytes, x_stride, ldy, n_out, n_in, n_rows}, OUTS, NULL, rows4_##type,        \
             ntx__neon_##type, NULL);                                                                                  \
    }
NEON_SUPER(MANY_SUPER)
