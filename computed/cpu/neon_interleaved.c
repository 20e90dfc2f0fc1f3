/* SPDX-License-Identifier: Apache-2.0 */
/* neon_interleaved.c: interleaving, and products of interleaved weights (interleaved.h) with blocks of 32 by SDOT. A
 * word of x is multiplied by four values of each of four outputs, a quarter of a tile; element k of the sum is output
 * k's. Sums begin with a value that makes them floats and corrects the values' offset. One or two rows of x are
 * multiplied by whole tiles; four rows by one quarter of a slice after another, and are first put into the order of
 * use. Super-blocks: neon_interleaved_super.c. */
#include "computed/cpu/neon_many.h"

SIMPLE_KINDS

/* A block of four rows of x. Blocks are in the order l, l + 8, l + 16, ...: lanes l and l + 8, the first sums of the
 * tree, are computed at once. */
struct ordered {
    int8_t q[4][NTX_QK];
    int32_t begin[4][4]; /* start values of each row's sums */
    float d[4], s[4];    /* s: sums of x, for types with minima */
    struct ntx__tile_at tile;
};

INLINE int32x4_t beginning(const struct simple_kind *kind, int32_t sum_of_x)
{
    return kind->parts > 1 ? vreinterpretq_s32_f32(vdupq_n_f32((float)sum_of_x))
                           : vdupq_n_s32(MAGIC_BITS - offset_of(kind) * sum_of_x);
}

INLINE struct pair ordered_x(const int8_t *x, const struct simple_kind *kind)
{
    return kind->parts > 1 ? by_bits(x) : load_pair(x);
}

/* 32 values of a quarter, whose words and fifth bits these are. parts > 1: Q1_0. */
INLINE struct x8 x8_of(const struct simple_kind *kind, const uint8_t *words, const uint8_t *fifth,
                       const struct ntx__interleave_pattern *pattern)
{
    if (kind->parts == 1)
        return TILE_X8(kind->values, words, 0, pattern, fifth);
    const uint8x16_t unset = vld1q_u8(words);
    struct x8 v;
    for (int t = 0; t < 8; t++)
        v.v[t] = where_unset(unset, vdupq_n_u8((uint8_t)(1 << t)));
    return v;
}

/* begin: start values; for Q1_0, whose sums are doubled, the sum of x as a float. */
INLINE float32x4_t dot_32(const struct simple_kind *kind, int32x4_t begin, const struct x8 *v, struct pair x)
{
    static const int32_t twice_magic[4] = {MAGIC_BITS + (1 << 23), MAGIC_BITS + (1 << 23), MAGIC_BITS + (1 << 23),
                                           MAGIC_BITS + (1 << 23)};
    const int32x4_t sum = dot_16_values(
        dot_16_values(kind->parts > 1 ? loaded_again(twice_magic) : begin, v->v, x.v[0]), v->v + 4, x.v[1]);
    return kind->parts > 1
               ? vaddq_f32(vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(2 * MAGIC)), vreinterpretq_f32_s32(begin))
               : float_sum(sum);
}

/* ---- four rows */

static void order_rows(const struct pass *p, const struct simple_kind *kind, struct ordered *to)
{
    const uint32_t blocks = p->s.n_in / NTX_QK;
    struct q8_row x[4];
    for (uint32_t r = 0; r < 4; r++)
        x[r] = q8_view(row_at(p, r), p->s.n_in);
    for (uint32_t turn = 0, place = 0; turn < LANES; turn += 2) {
        const uint32_t lane = ntx__lane_order[turn], of_lane = lane < blocks ? (blocks - lane - 1) / LANES + 1 : 0;
        for (uint32_t b = lane, i = 0; b < blocks; b += LANES / 2, i++, to++) {
            for (int r = 0; r < 4; r++) {
                const struct pair q = ordered_x(x[r].q + (size_t)b * NTX_QK, kind);
                vst1q_s8(to->q[r], q.v[0]);
                vst1q_s8(to->q[r] + 16, q.v[1]);
                vst1q_s32(to->begin[r], beginning(kind, x[r].s[b]));
                to->d[r] = x[r].d[b];
                to->s[r] = (float)x[r].s[b];
            }
            const uint32_t tile = place + i / 2 + (i % 2 ? of_lane : 0);
            to->tile = kind->parts > 1 ? bits_at(b) : ntx__tile_at(blocks, tile, kind->block_bytes);
        }
        place += of_lane;
        if (lane + LANES / 2 < blocks)
            place += (blocks - lane - LANES / 2 - 1) / LANES + 1;
    }
}

INLINE void tile_by_four(const uint8_t *slice, uint32_t q, const struct ordered *x, const struct simple_kind *kind,
                         const struct ntx__interleave_pattern *pattern, float32x4_t *acc)
{
    const uint8_t *heads = slice + x->tile.head;
    const struct x8 v = x8_of(kind, slice + x->tile.words + 16 * q, quarter_fifths(heads, q, pattern), pattern);
    const float32x4_t d = quarter_scales(heads, q, kind), dx = vld1q_f32(x->d),
                      m = kind->has_min ? quarter_minima(heads, q) : d;
#define ROW(r)                                                                                                         \
    __asm__ volatile("" ::: "memory"); /* keeps loads of other rows from moving here: there are too few registers */   \
    acc[r] = vfmaq_f32(acc[r], dot_32(kind, vld1q_s32(x->begin[r]), &v, load_pair(x->q[r])),                           \
                       vmulq_laneq_f32(d, dx, r));                                                                     \
    if (kind->has_min)                                                                                                 \
        acc[r] = vfmaq_f32(acc[r], vdupq_n_f32(x->s[r]), vmulq_laneq_f32(m, dx, r));
    ROW(0) ROW(1) ROW(2) ROW(3)
#undef ROW
}

INLINE void four_rows(const struct pass *p, const struct simple_kind *kind,
                      const struct ntx__interleave_pattern *pattern, struct ordered *room)
{
    const uint32_t blocks = p->s.n_in / NTX_QK;
    order_rows(p, kind, room);
    for (uint32_t o = 0; o < p->s.n_out; o += OUTS) {
        const uint8_t *slice = p->s.w + o / NTX_SLICE_OUTS * NTX_SLICE_OUTS * p->s.row_bytes;
        const struct ordered *x = room;
        float32x4_t tree[TREE_LEVELS][4], acc[4];
        for (uint32_t turn = 0; turn < LANES; turn += 2) {
            float32x4_t second[4];
            for (int r = 0; r < 4; r++)
                acc[r] = second[r] = vdupq_n_f32(0);
            for (uint32_t b = ntx__lane_order[turn]; b < blocks; b += LANES) {
                tile_by_four(slice, o / OUTS % QUARTERS, x++, kind, pattern, acc);
                if (b + LANES / 2 >= blocks)
                    break;
                tile_by_four(slice, o / OUTS % QUARTERS, x++, kind, pattern, second);
            }
            for (int r = 0; r < 4; r++)
                acc[r] = vaddq_f32(acc[r], second[r]);
            join_turn(tree, acc, turn + 1, 1);
        }
        for (uint32_t r = 0; r < 4 && p->row + r < p->s.n_rows; r++)
            vst1q_f32(p->s.y + (p->row + r) * p->s.ldy + o, acc[r]);
    }
}

/* ---- one row, or two */

INLINE void tile_by_few(const uint8_t *words, const uint8_t *heads, const struct q8_row *x, uint32_t b, const int rows,
                        const struct simple_kind *kind, const struct ntx__interleave_pattern *pattern,
                        float32x4_t acc[4], float32x4_t second[4])
{
    struct pair xs[NEON_ROWS];
    int32x4_t begin[NEON_ROWS];
    float32x4_t dx[NEON_ROWS], s[NEON_ROWS];
    for (int r = 0; r < rows; r++) {
        xs[r] = ordered_x(x[r].q + (size_t)b * NTX_QK, kind);
        begin[r] = beginning(kind, x[r].s[b]);
        dx[r] = vdupq_n_f32(x[r].d[b]);
        s[r] = vdupq_n_f32((float)x[r].s[b]);
    }
#define QUARTER(q)                                                                                                     \
    {                                                                                                                  \
        __asm__ volatile("" ::: "memory");                                                                             \
        const struct x8 v = x8_of(kind, words + 16 * q, quarter_fifths(heads, q, pattern), pattern);                   \
        const float32x4_t d = quarter_scales(heads, q, kind), m = kind->has_min ? quarter_minima(heads, q) : d;        \
        acc[q] = vfmaq_f32(acc[q], dot_32(kind, begin[0], &v, xs[0]), vmulq_f32(d, dx[0]));                            \
        if (rows == 2)                                                                                                 \
            second[q] = vfmaq_f32(second[q], dot_32(kind, begin[1], &v, xs[1]), vmulq_f32(d, dx[1]));                  \
        if (kind->has_min)                                                                                             \
            acc[q] = vfmaq_f32(acc[q], s[0], vmulq_f32(m, dx[0]));                                                     \
        if (kind->has_min && rows == 2)                                                                                \
            second[q] = vfmaq_f32(second[q], s[1], vmulq_f32(m, dx[1]));                                               \
    }
    QUARTER(0) QUARTER(1) QUARTER(2) QUARTER(3)
#undef QUARTER
}

INLINE void few_rows(const struct shape *s, uint32_t row, const int rows, const struct simple_kind *kind,
                     const struct ntx__interleave_pattern *pattern)
{
    const uint32_t blocks = s->n_in / NTX_QK;
    struct q8_row x[NEON_ROWS];
    for (int r = 0; r < rows; r++)
        x[r] = q8_view(s->x + (row + (size_t)r) * s->x_stride, s->n_in);
    for (uint32_t o = 0; o < s->n_out; o += NTX_SLICE_OUTS) {
        const uint8_t *slice = s->w + o * s->row_bytes;
        float32x4_t tree[NEON_ROWS][TREE_LEVELS][4], acc[4], second[4];
        struct tiles tile = tiles_of(slice, blocks, kind->block_bytes);
        for (uint32_t turn = 0; turn < LANES; turn++) {
            for (int q = 0; q < QUARTERS; q++)
                acc[q] = second[q] = vdupq_n_f32(0);
            for (uint32_t b = ntx__lane_order[turn]; b < blocks; b += LANES) {
                if (kind->parts > 1) {
                    tile_by_few(slice + bits_at(b).words, slice + bits_at(b).head, x, b, rows, kind, pattern, acc,
                                second);
                } else {
                    tile_by_few(tile.words, tile.heads, x, b, rows, kind, pattern, acc, second);
                    next_tile(&tile, kind->block_bytes);
                }
            }
            join_turn(tree[0], acc, turn, 0);
            if (rows == 2)
                join_turn(tree[1], second, turn, 0);
        }
        for (int q = 0; q < QUARTERS; q++) {
            vst1q_f32(s->y + row * s->ldy + o + OUTS * q, acc[q]);
            if (rows == 2)
                vst1q_f32(s->y + (row + 1) * s->ldy + o + OUTS * q, second[q]);
        }
    }
}

#define INTERLEAVED_SIMPLE(TYPE, type, ...)                                                                            \
    static void rows1_##type(const struct shape *s, uint32_t row)                                                      \
    {                                                                                                                  \
        few_rows(s, row, 1, &simple_##type, &ntx__pattern_##type);                                                     \
    }                                                                                                                  \
    static void rows2_##type(const struct shape *s, uint32_t row)                                                      \
    {                                                                                                                  \
        few_rows(s, row, 2, &simple_##type, &ntx__pattern_##type);                                                     \
    }                                                                                                                  \
    static void rows4_##type(const struct pass *p, char *room)                                                         \
    {                                                                                                                  \
        four_rows(p, &simple_##type, &ntx__pattern_##type, (struct ordered *)(void *)room);                            \
    }                                                                                                                  \
    FEW_BY_TWOS(type)                                                                                                  \
    DECLARE_MATMUL(ntx__interleaved_##type)                                                                            \
    {                                                                                                                  \
        char room[MANY_ROOM] __attribute__((aligned(64)));                                                             \
        if (n_rows < MANY_ROWS || n_in / NTX_QK * sizeof(struct ordered) > MANY_ROOM)                                  \
            few_##type(w, row_bytes, n_out, n_in, x, x_stride, n_rows, y, ldy);                                        \
        else                                                                                                           \
            many(&(struct shape){w, x, y, row_bytes, x_stride, ldy, n_out, n_in, n_rows}, NTX_SLICE_OUTS, NULL,        \
                 rows4_##type, few_##type, room);                                                                      \
    }
INTERLEAVED_SIMPLE_TYPES(INTERLEAVED_SIMPLE)
INTERLEAVED_SIMPLE(Q1_0, q1_0)

/* ---- interleaving */

void ntx__interleave_q1_0(void *slice, size_t row_bytes, void *scratch)
{
    memcpy(scratch, slice, NTX_SLICE_OUTS * row_bytes);
    for (uint32_t b = 0; b < row_bytes / sizeof(struct ntx_block_q1_0) * 4; b++) {
        const struct ntx__tile_at at = bits_at(b);
        for (size_t o = 0; o < NTX_SLICE_OUTS; o++) {
            const uint8_t *w = (const uint8_t *)scratch + o * row_bytes + b / 4 * sizeof(struct ntx_block_q1_0);
            const uint32_t unset = ~word32(w + 2 + b % 4 * 4);
            memcpy((uint8_t *)slice + at.words + 4 * o, &unset, 4);
            memcpy((uint8_t *)slice + at.head + 2 * o, w, 2);
        }
    }
}

static void interleave(uint8_t *slice, size_t row_bytes, uint8_t *scratch, const struct ntx__interleave_pattern *p)
{
    const uint32_t blocks = (uint32_t)(row_bytes / p->block_bytes);
    memcpy(scratch, slice, NTX_SLICE_OUTS * row_bytes);
    for (uint32_t turn = 0, place = 0; turn < LANES; turn++)
        for (uint32_t b = ntx__lane_order[turn]; b < blocks; b += LANES, place++) {
            const struct ntx__tile_at at = ntx__tile_at(blocks, place, p->block_bytes);
            for (size_t o = 0; o < NTX_SLICE_OUTS; o++) {
                const uint8_t *w = scratch + o * row_bytes + b * p->block_bytes, *behind = w + ntx__behind_head(p);
                for (size_t k = 0; k < p->block_bytes / 16; k++)
                    for (size_t i = 0; i < 4; i++)
                        memcpy(slice + at.words + 64 * (4 * k + i) + 4 * o,
                               behind + 16 * (p->order ? p->order[k] : k) + 4 * i, 4);
                if (p->head_at >= 0)
                    ntx__place_head(p, w + p->head_at, o, slice + at.head);
            }
        }
}

#define INTERLEAVE(TYPE, type, ...)                                                                                    \
    void ntx__interleave_##type(void *slice, size_t row_bytes, void *scratch)                                          \
    {                                                                                                                  \
        interleave(slice, row_bytes, scratch, &ntx__pattern_##type);                                                   \
    }
INTERLEAVED_TYPES(INTERLEAVE)
