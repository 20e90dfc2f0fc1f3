/* SPDX-License-Identifier: Apache-2.0 */
/* neon_interleaved_super.c: products of interleaved weights (interleaved.h) with super-blocks of 256 by SDOT:
 * neon_outs.h a quarter of a tile at a time, for one, two or four rows of x. Scales and minima of four outputs are
 * bytes of one register, and are widened together. */
#include "computed/cpu/neon_outs.h"

SUPER_KINDS

struct tile_kind {
    const struct super_kind *kind;
    heads_fn *heads;
    x8_fn *x8;
};

INLINE void quarter_by_rows(const struct tiles *tile, uint32_t q, const struct q8k_row *x, uint32_t b, const int rows,
                            const struct tile_kind *of, float32x4_t *acc)
{
    const uint8_t *words = tile->words + 16 * q;
    struct quarter_heads bytes;
    struct heads h;
    of->heads(words, tile->heads, q, &bytes);
    widen_bytes(bytes.scale, of->kind, h.scale.v);
    if (of->kind->by_16)
        widen_bytes(bytes.scale + 2, of->kind, h.scale.v + 4);
    if (of->kind->dmin_at >= 0)
        widen_bytes(bytes.min, of->kind, h.less.v);
    h.d = bytes.d;
    h.m = bytes.m;
    outs_by_rows(of->kind, &h, of->x8, &words, b, x, rows, acc);
}

INLINE void four_rows(const struct pass *p, const struct tile_kind *of)
{
    const uint32_t blocks = p->s.n_in / NTX_QKK;
    struct q8k_row x[4];
    for (uint32_t r = 0; r < 4; r++)
        x[r] = q8k_view(row_at(p, r), p->s.n_in);
    for (uint32_t o = 0; o < p->s.n_out; o += OUTS) {
        struct tiles tile = tiles_of(p->s.w + o / NTX_SLICE_OUTS * NTX_SLICE_OUTS * p->s.row_bytes, blocks,
                                     of->kind->block_bytes);
        float32x4_t tree[TREE_LEVELS][4], acc[4];
        for (uint32_t turn = 0; turn < LANES; turn++) {
            for (int r = 0; r < 4; r++)
                acc[r] = vdupq_n_f32(0);
            for (uint32_t b = ntx__lane_order[turn]; b < blocks; b += LANES, next_tile(&tile, of->kind->block_bytes))
                quarter_by_rows(&tile, o / OUTS % QUARTERS, x, b, 4, of, acc);
            join_turn(tree, acc, turn, 0);
        }
        for (uint32_t r = 0; r < 4 && p->row + r < p->s.n_rows; r++)
            vst1q_f32(p->s.y + (p->row + r) * p->s.ldy + o, acc[r]);
    }
}

INLINE void few_rows(const struct shape *s, uint32_t row, const int rows, const struct tile_kind *of)
{
    const uint32_t blocks = s->n_in / NTX_QKK;
    struct q8k_row x[NEON_ROWS];
    for (int r = 0; r < rows; r++)
        x[r] = q8k_view(s->x + (row + (size_t)r) * s->x_stride, s->n_in);
    for (uint32_t o = 0; o < s->n_out; o += NTX_SLICE_OUTS) {
        struct tiles tile = tiles_of(s->w + o * s->row_bytes, blocks, of->kind->block_bytes);
        float32x4_t tree[NEON_ROWS][TREE_LEVELS][4], acc[NEON_ROWS][QUARTERS];
        for (uint32_t turn = 0; turn < LANES; turn++) {
            for (int r = 0; r < rows; r++)
                for (int q = 0; q < QUARTERS; q++)
                    acc[r][q] = vdupq_n_f32(0);
            for (uint32_t b = ntx__lane_order[turn]; b < blocks; b += LANES, next_tile(&tile, of->kind->block_bytes))
                for (uint32_t q = 0; q < QUARTERS; q++) {
                    float32x4_t sums[NEON_ROWS];
                    for (int r = 0; r < rows; r++)
                        sums[r] = acc[r][q];
                    quarter_by_rows(&tile, q, x, b, rows, of, sums);
                    for (int r = 0; r < rows; r++)
                        acc[r][q] = sums[r];
                }
            for (int r = 0; r < rows; r++)
                join_turn(tree[r], acc[r], turn, 0);
        }
        for (int r = 0; r < rows; r++)
            for (uint32_t q = 0; q < QUARTERS; q++)
                vst1q_f32(s->y + (row + (size_t)r) * s->ldy + o + OUTS * q, acc[r][q]);
    }
}

#define INTERLEAVED_SUPER(TYPE, type, ...)                                                                             \
    INLINE struct x8 x8_##type(const struct super_kind *kind, const uint8_t *const *w, int t)                          \
    {                                                                                                                  \
        return TILE_X8(kind->values, *w, t, &ntx__pattern_##type, NULL);                                               \
    }                                                                                                                  \
    static const struct tile_kind tile_##type = {&super_##type, heads_##type, x8_##type};                              \
    static void rows1_##type(const struct shape *s, uint32_t row) { few_rows(s, row, 1, &tile_##type); }               \
    static void rows2_##type(const struct shape *s, uint32_t row) { few_rows(s, row, 2, &tile_##type); }               \
    static void rows4_##type(const struct pass *p, char *room)                                                         \
    {                                                                                                                  \
        (void)room;                                                                                                    \
        four_rows(p, &tile_##type);                                                                                    \
    }                                                                                                                  \
    FEW_BY_TWOS(type)                                                                                                  \
    DECLARE_MATMUL(ntx__interleaved_##type)                                                                            \
    {                                                                                                                  \
        many(&(struct shape){w, x, y, row_bytes, x_stride, ldy, n_out, n_in, n_rows}, NTX_SLICE_OUTS, NULL,            \
             rows4_##type, few_##type, NULL);                                                                          \
    }
INTERLEAVED_SUPER_TYPES(INTERLEAVED_SUPER)
