/* SPDX-License-Identifier: Apache-2.0 */
/* neon_many.c: products of many rows with blocks of 32 by SDOT, for processors without i8mm (Cortex-A76, Neoverse N1):
 * four outputs times four or eight rows of x. One or two rows use neon_simple.c.
 *
 * A register has eight values of one output and the same eight of the next (struct from). It is multiplied by eight
 * values of x, which are there twice, with the last four negated. Each row has two registers of sums, which begin with
 * MAGIC and -MAGIC as bits of floats. So one pairwise addition of floats adds an output's two sums and removes MAGIC:
 *
 *   element    0                  1                   2                  3
 *              MAGIC + w0 . x0-3  -MAGIC + w0 . x4-7  MAGIC + w1 . x0-3  -MAGIC + w1 . x4-7
 *
 * Rows of x are put into that order once for all outputs of a band, with blocks in the order of use. For four rows two
 * lanes are computed at once, l and l + 8, which are the first sums of the tree. */
#include "computed/cpu/neon_many.h"

SIMPLE_KINDS

enum {
    X_BYTES = 2 * NTX_QK, /* bytes of a row's block in that order. After those of all rows: */
    SUM_BYTES = 16,       /* bytes of each row's four start values, or (types with minima) sums of x; then scales */
};

INLINE uint32_t lanes_at_once(uint32_t rows) { return rows == 4 ? 2 : 1; }

static void order_block(const struct q8_row *x, uint32_t b, const uint32_t rows, uint32_t r,
                        const struct simple_kind *kind, char *to)
{
    static const int8_t sign[16] = {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1};
    const struct pair q = load_pair(x->q + (size_t)b * NTX_QK);
    for (int h = 0; h < 2; h++) {
        const int64x2_t v = vreinterpretq_s64_s8(vmulq_s8(q.v[h], vld1q_s8(sign)));
        vst1q_s64((int64_t *)(void *)(to + r * X_BYTES + 32 * h), vtrn1q_s64(v, v));
        vst1q_s64((int64_t *)(void *)(to + r * X_BYTES + 32 * h + 16), vtrn2q_s64(v, v));
    }
    const int32_t plus = MAGIC_BITS - offset_of(kind) * x->s[b], minus = MAGIC_BITS ^ INT32_MIN,
                  begin[4] = {plus, minus, plus, minus};
    vst1q_s32((int32_t *)(void *)(to + rows * X_BYTES + r * SUM_BYTES),
              kind->has_min ? vreinterpretq_s32_f32(vdupq_n_f32((float)x->s[b])) : vld1q_s32(begin));
    memcpy(to + rows * (X_BYTES + SUM_BYTES) + r * sizeof(float), x->d + b, sizeof(float));
}

static void order_rows(const struct pass *p, const uint32_t rows, const struct simple_kind *kind, char *to)
{
    const uint32_t nb = p->s.n_in / NTX_QK, step = LANES / lanes_at_once(rows);
    for (uint32_t r = 0; r < rows; r++) {
        const struct q8_row x = q8_view(row_at(p, r), p->s.n_in);
        char *at = to;
        for (uint32_t l = 0; l < step; l++)
            for (uint32_t b = l; b < nb; b += step, at += rows * MANY_BYTES)
                order_block(&x, b, rows, r, kind, at);
    }
}

/* The bits of ntx_e8m0_float. */
#define EXPONENT_BITS(e) ((e) < 2 ? 0x00200000u << ((e)&1) : ((uint32_t)(e)-1) << 23)
#define EXPONENTS_4(e)   EXPONENT_BITS(e), EXPONENT_BITS((e) + 1), EXPONENT_BITS((e) + 2), EXPONENT_BITS((e) + 3)
#define EXPONENTS_16(e)  EXPONENTS_4(e), EXPONENTS_4((e) + 4), EXPONENTS_4((e) + 8), EXPONENTS_4((e) + 12)
#define EXPONENTS_64(e)  EXPONENTS_16(e), EXPONENTS_16((e) + 16), EXPONENTS_16((e) + 32), EXPONENTS_16((e) + 48)
static const uint32_t exponents[256] = {EXPONENTS_64(0), EXPONENTS_64(64), EXPONENTS_64(128), EXPONENTS_64(192)};

/* Scales d, and m, of four blocks. */
INLINE void many_heads(const uint8_t *const w[OUTS], uint32_t part, const struct simple_kind *kind, float32x4_t *d,
                       float32x4_t *m)
{
    if (kind->scales == HALF_WORD && kind->has_min) {
        four_heads(w, true, d, m);
    } else if (kind->scales == HALF_WORD) {
        *d = four_halves(half_at(w[0]) | (uint64_t)half_at(w[1]) << 16 | (uint64_t)half_at(w[2]) << 32 |
                         (uint64_t)half_at(w[3]) << 48);
    } else if (kind->scales == EXPONENT) {
        const uint64_t a = exponents[w[0][0]] | (uint64_t)exponents[w[1][0]] << 32,
                       b = exponents[w[2][0]] | (uint64_t)exponents[w[3][0]] << 32;
        *d = vreinterpretq_f32_u64(vcombine_u64(vcreate_u64(a), vcreate_u64(b)));
    } else {
        float32x4_t v[2];
        e4m3_halves(vcreate_u8(half_at(w[0] + 2 * part) | (uint64_t)half_at(w[1] + 2 * part) << 16 |
                               (uint64_t)half_at(w[2] + 2 * part) << 32 | (uint64_t)half_at(w[3] + 2 * part) << 48),
                    v);
        *d = vuzp1q_f32(v[0], v[1]);
        *m = vuzp2q_f32(v[0], v[1]);
    }
}

/* Groups from .. to - 1 of eight values of a row, times four outputs. */
INLINE float32x4_t multiply_add(const int32_t *begin, const int8x16_t x[4], const struct quad w[2], const int from,
                                const int to)
{
    int32x4_t a = vld1q_s32(begin), b = loaded_again(begin);
    for (int k = from; k < to; k++) {
        a = vdotq_s32(a, w[0].v[k], x[k]);
        b = vdotq_s32(b, w[1].v[k], x[k]);
    }
    return vpaddq_f32(vreinterpretq_f32_s32(a), vreinterpretq_f32_s32(b));
}

/* Rows first .. first + 3. */
INLINE void four_rows(const char *x, const uint32_t first, const uint32_t rows, const struct quad v[2], float32x4_t d,
                      float32x4_t m, const struct simple_kind *kind, float32x4_t *acc)
{
    static const int32_t magic[4] = {MAGIC_BITS, MAGIC_BITS ^ INT32_MIN, MAGIC_BITS, MAGIC_BITS ^ INT32_MIN};
    const bool halves = kind->scales == TWO_E4M3;
    const float32x4_t dx = vld1q_f32((const float *)(const void *)(x + rows * (X_BYTES + SUM_BYTES)) + first);
#define ROW(k)                                                                                                         \
    {                                                                                                                  \
        __asm__ volatile(                                                                                              \
            "" ::                                                                                                      \
                : "memory"); /* loads for all rows drawn to the beginning are more than the registers hold */          \
        const uint32_t r = first + k;                                                                                  \
        const int32_t *behind = (const int32_t *)(const void *)(x + rows * X_BYTES + r * SUM_BYTES),                   \
                      *begin = kind->has_min ? magic : behind;                                                         \
        int8x16_t q[4];                                                                                                \
        for (int i = 0; i < 4; i++)                                                                                    \
            q[i] = vld1q_s8((const int8_t *)x + r * X_BYTES + 16 * i);                                                 \
        acc[r] = vfmaq_f32(acc[r], multiply_add(begin, q, v, 0, halves ? 2 : 4), vmulq_laneq_f32(d, dx, k));           \
        if (halves)                                                                                                    \
            acc[r] = vfmaq_f32(acc[r], multiply_add(begin, q, v, 2, 4), vmulq_laneq_f32(m, dx, k));                    \
        if (kind->has_min)                                                                                             \
            acc[r] = vfmaq_f32(acc[r], vreinterpretq_f32_s32(vld1q_s32(behind)), vmulq_laneq_f32(m, dx, k));           \
    }
    ROW(0) ROW(1) ROW(2) ROW(3)
#undef ROW
}

INLINE void one_block(const uint8_t *const w[OUTS], uint32_t part, const char *x, const uint32_t rows,
                      const struct simple_kind *kind, float32x4_t *acc)
{
    const struct quad v[2] = {QUAD(kind, w[0], w[1], part), QUAD(kind, w[2], w[3], part)};
    float32x4_t d, m = vdupq_n_f32(0);
    many_heads(w, part, kind, &d, &m);
    four_rows(x, 0, rows, v, d, m, kind, acc);
    if (rows == 8)
        four_rows(x, 4, rows, v, d, m, kind, acc);
}

INLINE void simple_outputs(const struct pass *p, uint32_t o, const uint32_t rows, const struct simple_kind *kind)
{
    const uint32_t nb = p->s.n_in / NTX_QK, at_once = lanes_at_once(rows), step = LANES / at_once;
    const size_t w_step = step / kind->parts * kind->block_bytes;
    const char *x = p->x;
    const uint8_t *outs[OUTS];
    float32x4_t lanes[LANES][MANY_AT_ONCE];
    outputs_at(&p->s, o, outs);
    for (uint32_t l = 0; l < step; l++) {
        const uint32_t part = l % kind->parts; /* the same in all blocks of this lane */
        const size_t at = l / kind->parts * kind->block_bytes;
        const uint8_t *w[OUTS] = {outs[0] + at, outs[1] + at, outs[2] + at, outs[3] + at};
        float32x4_t acc[2][MANY_AT_ONCE];
        for (uint32_t r = 0; r < rows; r++)
            acc[0][r] = acc[1][r] = vdupq_n_f32(0);
        for (uint32_t b = l; b < nb; b += LANES, x += rows * MANY_BYTES * at_once) {
            one_block(w, part, x, rows, kind, acc[0]);
            if (at_once == 2) {
                if (b + step >= nb) {
                    x += rows * MANY_BYTES;
                    break;
                }
                const uint8_t *const next[OUTS] = {w[0] + w_step, w[1] + w_step, w[2] + w_step, w[3] + w_step};
                one_block(next, part, x + rows * MANY_BYTES, rows, kind, acc[1]);
            }
            for (int k = 0; k < OUTS; k++)
                w[k] += at_once * w_step;
        }
        for (uint32_t r = 0; r < rows; r++)
            lanes[l][r] = at_once == 2 ? vaddq_f32(acc[0][r], acc[1][r]) : acc[0][r];
    }
    store_joined(p, o, (int)rows, lanes, (int)step / 2);
}

#define MANY_SIMPLE(TYPE, type)                                                                                        \
    INLINE void batch_##type(const struct pass *p, const uint32_t rows, char *room)                                    \
    {                                                                                                                  \
        order_rows(p, rows, &simple_##type, room);                                                                     \
        for (uint32_t o = 0; o < p->s.n_out; o += OUTS)                                                                \
            simple_outputs(p, o, rows, &simple_##type);                                                                \
    }                                                                                                                  \
    static void rows4_##type(const struct pass *p, char *room) { batch_##type(p, 4, room); }                           \
    static void rows8_##type(const struct pass *p, char *room) { batch_##type(p, MANY_AT_ONCE, room); }                \
    DECLARE_MATMUL(ntx__many_##type)                                                                                   \
    {                                                                                                                  \
        char room[MANY_ROOM] __attribute__((aligned(64)));                                                             \
        many(&(struct shape){w, x, y, row_bytes, x_stride, ldy, n_out, n_in, n_rows}, OUTS,                            \
             many_bytes(n_in, MANY_AT_ONCE) > MANY_ROOM ? NULL : rows8_##type, rows4_##type, ntx__neon_##type, room);  \
    }
NEON_SIMPLE(MANY_SIMPLE)
