/* neon_many.c: products of many rows with blocks of 32 by SDOT, for processors without i8mm (Cortex-A76, Neoverse N1). Four outputs' weights are unpacked and put into one order, in which a register
 * has four neighbouring values of each; a word of x, four values of one row, is multiplied by all of them, and element k of the sum is output k's: nothing is added up across a register.
 *
 * Rows of x are taken four or eight at a time, in an order of their own, made once for all outputs of a band. Lanes are gone through in turn (blocks l, l + 16, ... are lane l's), as in i8mm.c.
 * The order within a lane, and the tree over the lanes, are cpu.h's. One row, or two, go by neon_simple.c. */
#include "infer/cpu/neon.h"

SIMPLE_KINDS

enum {
    OUTS = 4,
    SUM_BYTES = 16,         /* what a row's sum of a block begins with */
    BAND_BYTES = 256 << 10, /* of outputs: they stay in the second cache while batches of rows pass */
};

struct pass {
    struct shape s;
    const char *x;
    uint32_t row; /* the batch's first */
};

/* 32 values of four outputs, fours by fours in the order of x. */
struct octet {
    int8x16_t v[8];
};

#define OCTET(kind, w, part, swapped)                                                                                                \
    ({                                                                                                                               \
        struct pair p_[4];                                                                                                           \
        struct octet o_;                                                                                                             \
        for (int k_ = 0; k_ < 4; k_++)                                                                                               \
            p_[k_] = (kind)->bytewise ? (kind)->values((struct from){.a = (w)[0], .b = (w)[1], .c = (w)[2], .d = (w)[3], .take = QUARTER + k_}, part) : (kind)->values(one_row((w)[k_]), part); \
        for (int k_ = 0; k_ < 4; k_++)                                                                                               \
            for (int h_ = 0; h_ < 2; h_++)                                                                                           \
                o_.v[(swapped) ? k_ % 2 + 2 * h_ + k_ / 2 * 4 : 4 * h_ + k_] = (kind)->bytewise ? p_[k_].v[h_] : four_values(p_, h_, k_); \
        o_;                                                                                                                          \
    })

INLINE int8x16_t four_values(const struct pair p[4], const int half, const int k)
{
    uint32x4_t v[4];
    for (int i = 0; i < 4; i++)
        v[i] = vreinterpretq_u32_s8(p[i].v[half]);
    return vreinterpretq_s8_u32(fours(v, k));
}

/* sum + 16 values of a row by those of four outputs. */
INLINE int32x4_t dot_16_values(int32x4_t sum, const int8x16_t v[4], int8x16_t x)
{
    sum = vdotq_laneq_s32(sum, v[0], x, 0);
    sum = vdotq_laneq_s32(sum, v[1], x, 1);
    sum = vdotq_laneq_s32(sum, v[2], x, 2);
    return vdotq_laneq_s32(sum, v[3], x, 3);
}

/* Where the four outputs' weights are; the last again where there are not four. */
INLINE void outputs_at(const struct shape *s, uint32_t o, const uint8_t *w[OUTS])
{
    for (uint32_t k = 0; k < OUTS; k++)
        w[k] = s->w + (size_t)(o + k < s->n_out ? o + k : s->n_out - 1) * s->row_bytes;
}

/* The tree over the lanes, then y. */
INLINE void join(const struct pass *p, uint32_t o, const int rows, float32x4_t lanes[LANES][MANY_AT_ONCE])
{
    for (int step = LANES / 2; step; step /= 2)
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

/* Row r of the batch; its last once more where there is none. */
INLINE const char *row_at(const struct pass *p, uint32_t r)
{
    const uint32_t at = p->row + r < p->s.n_rows ? p->row + r : p->s.n_rows - 1;
    return p->s.x + (size_t)at * p->s.x_stride;
}

/* ---- of each block all rows' bytes, then what their sums begin with, or sums of x, of types with minima, four times each; then scales. Sums of a block are below 2^22:
 * added to MAGIC's bits they are those of a float that is greater by MAGIC. */

static void order_rows(const struct pass *p, const uint32_t rows, const struct simple_kind *kind, char *to)
{
    const uint32_t nb = p->s.n_in / NTX_QK;
    const int32_t offset = offset_of(kind);
    for (uint32_t r = 0; r < rows; r++) {
        const struct q8_row x = q8_view(row_at(p, r), p->s.n_in);
        char *at = to;
        for (uint32_t b = 0; b < nb; b++, at += rows * MANY_BYTES) {
            const struct pair q = load_pair(x.q + (size_t)b * NTX_QK);
            const int32x4_t begin = kind->has_min ? vreinterpretq_s32_f32(vdupq_n_f32((float)x.s[b])) : vdupq_n_s32(MAGIC_BITS - offset * x.s[b]);
            vst1q_s8((int8_t *)at + r * NTX_QK, q.v[0]);
            vst1q_s8((int8_t *)at + r * NTX_QK + 16, q.v[1]);
            vst1q_s32((int32_t *)(void *)(at + rows * NTX_QK + r * SUM_BYTES), begin);
            memcpy(at + rows * (NTX_QK + SUM_BYTES) + r * sizeof(float), x.d + b, sizeof(float));
        }
    }
}

INLINE void four_outputs(const struct pass *p, uint32_t o, const uint32_t rows, const struct simple_kind *kind)
{
    const uint32_t nb = p->s.n_in / NTX_QK;
    const size_t step = rows * MANY_BYTES;
    const bool halves = kind->scales == TWO_E4M3;
    const int32x4_t magic = vdupq_n_s32(MAGIC_BITS);
    const uint8_t *w[OUTS];
    float32x4_t lanes[LANES][MANY_AT_ONCE];
    outputs_at(&p->s, o, w);
    for (uint32_t l = 0; l < LANES; l++) {
        float32x4_t acc[MANY_AT_ONCE];
        const uint32_t part = l % kind->parts; /* of all blocks of this lane */
        const char *x = p->x + l * step;
        size_t at = l / kind->parts * kind->block_bytes;
        for (uint32_t r = 0; r < rows; r++)
            acc[r] = vdupq_n_f32(0);
        for (uint32_t b = l; b < nb; b += LANES, at += LANES / kind->parts * kind->block_bytes, x += LANES * step) {
            const uint8_t *const from[OUTS] = {w[0] + at, w[1] + at, w[2] + at, w[3] + at};
            const struct octet v = OCTET(kind, from, part, halves);
            const float *dx = (const float *)(const void *)(x + rows * (NTX_QK + SUM_BYTES));
            float32x4_t d = vdupq_n_f32(0), m = d;
            if (kind->scales == HALF_WORD) {
                four_heads(from, kind->has_min, &d, &m);
            } else if (halves) {
                float32x4_t s[2];
                uint16x4_t h = vdup_n_u16(0);
                h = vset_lane_u16(half_at(from[0] + 2 * part), h, 0);
                h = vset_lane_u16(half_at(from[1] + 2 * part), h, 1);
                h = vset_lane_u16(half_at(from[2] + 2 * part), h, 2);
                h = vset_lane_u16(half_at(from[3] + 2 * part), h, 3);
                e4m3_halves(vreinterpret_u8_u16(h), s);
                d = vuzp1q_f32(s[0], s[1]);
                m = vuzp2q_f32(s[0], s[1]);
            } else {
                const float s[OUTS] = {ntx_e8m0_float(from[0][0]), ntx_e8m0_float(from[1][0]), ntx_e8m0_float(from[2][0]), ntx_e8m0_float(from[3][0])};
                d = vld1q_f32(s);
            }
#pragma GCC unroll 8
            for (uint32_t r = 0; r < rows; r++) {
                const struct pair q = load_pair(x + r * NTX_QK);
                const int32x4_t behind = vld1q_s32((const int32_t *)(const void *)(x + rows * NTX_QK + r * SUM_BYTES)), begin = kind->has_min ? magic : behind;
                const int32x4_t first = dot_16_values(begin, v.v, q.v[0]);
                acc[r] = vfmaq_f32(acc[r], float_sum(halves ? first : dot_16_values(first, v.v + 4, q.v[1])), vmulq_n_f32(d, dx[r]));
                if (halves)
                    acc[r] = vfmaq_f32(acc[r], float_sum(dot_16_values(begin, v.v + 4, q.v[1])), vmulq_n_f32(m, dx[r]));
                if (kind->has_min)
                    acc[r] = vfmaq_f32(acc[r], vreinterpretq_f32_s32(behind), vmulq_n_f32(m, dx[r]));
            }
        }
        for (uint32_t r = 0; r < rows; r++)
            lanes[l][r] = acc[r];
    }
    join(p, o, (int)rows, lanes);
}

/* ---- calls */

typedef void batch_fn(const struct pass *p, char *room);

/* Batches of eight rows, the last of which may be of four; rows that it lacks are its last once more. */
INLINE void many(const struct shape *all, batch_fn *eight, batch_fn *four, const bool long_rows)
{
    char room[MANY_ROOM] __attribute__((aligned(64)));
    const uint32_t band = all->row_bytes * OUTS < BAND_BYTES ? (uint32_t)(BAND_BYTES / all->row_bytes / OUTS * OUTS) : OUTS;
    for (uint32_t o = 0; o < all->n_out; o += band) {
        struct pass p = {.s = *all, .x = room};
        p.s.w += o * all->row_bytes;
        p.s.y += o;
        p.s.n_out = all->n_out - o < band ? all->n_out - o : band;
        for (uint32_t rows; p.row < all->n_rows; p.row += rows) {
            rows = all->n_rows - p.row > 4 && !long_rows ? 8 : 4;
            (rows == 8 ? eight : four)(&p, room);
        }
    }
}

#define MANY_MATMUL(TYPE, type)                                                                                                       \
    INLINE void batch_##type(const struct pass *p, const uint32_t rows, char *room)                                                   \
    {                                                                                                                                 \
        order_rows(p, rows, &simple_##type, room);                                                                                    \
        for (uint32_t o = 0; o < p->s.n_out; o += OUTS)                                                                               \
            four_outputs(p, o, rows, &simple_##type);                                                                                 \
    }                                                                                                                                 \
    static void rows4_##type(const struct pass *p, char *room) { batch_##type(p, 4, room); }                                          \
    static void rows8_##type(const struct pass *p, char *room) { batch_##type(p, MANY_AT_ONCE, room); }                               \
    DECLARE_MATMUL(ntx__many_##type)                                                                                                  \
    {                                                                                                                                 \
        many(&(struct shape){w, x, y, row_bytes, x_stride, ldy, n_out, n_in, n_rows}, rows8_##type, rows4_##type, many_bytes(n_in, MANY_AT_ONCE) > MANY_ROOM); \
    }
NEON_SIMPLE(MANY_MATMUL)
