/* SPDX-License-Identifier: Apache-2.0 */
/* neon_many.h: shared by neon_many.c and neon_many_super.c: batches of rows times bands of outputs, four outputs at a
 * time, and the tree over the lanes. Lanes are computed one after another (blocks l, l + 16, ... are lane l's), as in
 * i8mm.c. The order within a lane, and the tree over the lanes, are cpu.h's. */
#ifndef NTX_COMPUTED_CPU_NEON_MANY_H
#define NTX_COMPUTED_CPU_NEON_MANY_H

#include "computed/cpu/neon_tiles.h"

enum {
    OUTS = 4,
    BAND_BYTES = 256 << 10, /* bytes of a band of outputs, which stay in the second-level cache for all batches */
};

struct pass {
    struct shape s;
    const char *x;
    uint32_t row; /* the batch's first */
};

/* Computes the tree over the lanes from first_step on, and stores y. */
INLINE void store_joined(const struct pass *p, uint32_t o, const int rows, float32x4_t lanes[LANES][MANY_AT_ONCE],
                         const int first_step)
{
    for (int step = first_step; step; step /= 2)
        for (int l = 0; l < step; l++)
            for (int r = 0; r < rows; r++)
                lanes[l][r] = vaddq_f32(lanes[l][r], lanes[l + step][r]);
    for (uint32_t r = 0; r < (uint32_t)rows && p->row + r < p->s.n_rows; r++) {
        float *y = p->s.y + (p->row + r) * p->s.ldy + o, v[OUTS];
        vst1q_f32(v, lanes[0][r]);
        if (p->s.n_out - o >= OUTS)
            vst1q_f32(y, lanes[0][r]);
        for (uint32_t k = 0; p->s.n_out - o < OUTS && k < p->s.n_out - o; k++)
            y[k] = v[k];
    }
}

/* sum + 16 values of a row times those of four outputs, four by four. */
INLINE int32x4_t dot_16_values(int32x4_t sum, const int8x16_t v[4], int8x16_t x)
{
    sum = vdotq_laneq_s32(sum, v[0], x, 0);
    sum = vdotq_laneq_s32(sum, v[1], x, 1);
    sum = vdotq_laneq_s32(sum, v[2], x, 2);
    return vdotq_laneq_s32(sum, v[3], x, 3);
}

/* 32 values of four outputs, four by four. */
struct x8 {
    int8x16_t v[8];
};

/* An x8 of a quarter of a tile. values(w, part): unpacks by a struct from. fifth: its fifth bits, or NULL. */
#define TILE_X8(values, words, part, pattern, fifth)                                                                   \
    ({                                                                                                                 \
        struct x8 o_;                                                                                                  \
        for (int k_ = 0; k_ < 4; k_++) {                                                                               \
            const struct pair p_ = (values)(quarter(words, FOURS, k_, pattern, fifth), part);                          \
            o_.v[k_] = p_.v[0];                                                                                        \
            o_.v[4 + k_] = p_.v[1];                                                                                    \
        }                                                                                                              \
        o_;                                                                                                            \
    })

/* Joins four sums of the lane of turn `turn` (ntx__lane_order) with earlier sums, as far as the tree goes. level: log2
 * of the turns that the sums cover. After the last turn they are the sums of all lanes. */
INLINE void join_turn(float32x4_t tree[TREE_LEVELS][4], float32x4_t sums[4], const uint32_t turn, uint32_t level)
{
    for (; turn >> level & 1; level++)
        for (int k = 0; k < 4; k++)
            sums[k] = vaddq_f32(tree[level][k], sums[k]);
    for (int k = 0; k < 4 && level < TREE_LEVELS; k++)
        tree[level][k] = sums[k];
}

/* Row r of the batch; the last row is repeated. */
INLINE const char *row_at(const struct pass *p, uint32_t r)
{
    const uint32_t at = p->row + r < p->s.n_rows ? p->row + r : p->s.n_rows - 1;
    return p->s.x + (size_t)at * p->s.x_stride;
}

typedef void batch_fn(const struct pass *p, char *room);

/* Multiplies in batches of eight rows (if `eight` is given) or four; the last row of a batch is repeated. One or two
 * rows are left to `few`. Bands have multiples of `together` outputs. */
INLINE void many(const struct shape *all, const uint32_t together, batch_fn *eight, batch_fn *four, ntx_matmul_fn *few,
                 char *room)
{
    const uint32_t band = all->row_bytes * together < BAND_BYTES
                              ? (uint32_t)(BAND_BYTES / all->row_bytes / together * together)
                              : together;
    for (uint32_t o = 0; o < all->n_out; o += band) {
        struct pass p = {.s = *all, .x = room};
        p.s.w += o * all->row_bytes;
        p.s.y += o;
        p.s.n_out = all->n_out - o < band ? all->n_out - o : band;
        for (uint32_t rows; p.row < all->n_rows; p.row += rows) {
            const uint32_t left = all->n_rows - p.row;
            rows = eight && left > 4 ? 8 : 4;
            if (left < MANY_ROWS)
                rows = left;
            if (left < MANY_ROWS)
                few(p.s.w, p.s.row_bytes, p.s.n_out, p.s.n_in, p.s.x + p.row * p.s.x_stride, p.s.x_stride, rows,
                    p.s.y + p.row * p.s.ldy, p.s.ldy);
            else
                (rows == 8 ? eight : four)(&p, room);
        }
    }
}

#endif
