/* i8mm.c: products of many rows by SMMLA, which multiplies two rows of eight bytes by two: two outputs meet two rows of x, and four integer sums come of it at once.
 *
 * Rows of x are taken eight at a time (GROUP), interleaved by pairs once for all outputs: of each eight values first one row's, then the other's. Two outputs' weights are unpacked
 * and interleaved likewise, and meet the pairs. Lanes are gone through in turn (blocks l, l + 16, ... are lane l's), so that of each pair one register of sums is alive:
 *
 *   element    0            1            2            3
 *              w0 . x0      w0 . x1      w1 . x0      w1 . x1
 *
 * The order within a lane, and the tree over the lanes, are cpu.h's. One row, or two, go by SDOT (neon.h). */
#include "infer/cpu/neon.h"

SIMPLE_KINDS
SUPER_KINDS

enum {
    PAIRS = 4,               /* of rows: a group */
    LEAST_ROWS = 3,
    ROOM = 448 << 10,        /* bytes of interleaved rows, on the stack */
};

/* Of a pair: bytes of a row of n_in values, interleaved; with scales and sums behind. */
struct paired {
    const int8_t *q;
    const float *d;          /* [blocks][4] d0 d1 d0 d1 */
    const int8_t *s;         /* SIMPLE: float [blocks][4] of sums, likewise; SUPER: [super-blocks][parts][32]: sums below 128 and the rest, in a pair's order */
};

struct pass {
    struct shape s;
    struct paired x[PAIRS];
    uint32_t row, pairs;     /* of the group: the first row, and how many pairs of them */
};

INLINE void put_pair(float *to, float a, float b)
{
    to[0] = to[2] = a;
    to[1] = to[3] = b;
}

/* Two rows, by eights. n: bytes. */
INLINE void interleave(const int8_t *a, const int8_t *b, uint32_t n, int8_t *to)
{
    for (uint32_t k = 0; k < n; k += 16, to += 32) {
        const int64x2_t va = vreinterpretq_s64_s8(vld1q_s8(a + k)), vb = vreinterpretq_s64_s8(vld1q_s8(b + k));
        vst1q_s8(to, vreinterpretq_s8_s64(vzip1q_s64(va, vb)));
        vst1q_s8(to + 16, vreinterpretq_s8_s64(vzip2q_s64(va, vb)));
    }
}

/* Two outputs' 32 values, by eights. */
struct quad {
    int8x16_t v[4];
};

INLINE struct quad zip(struct pair a, struct pair b)
{
    struct quad q;
    for (int h = 0; h < 2; h++) {
        const int64x2_t va = vreinterpretq_s64_s8(a.v[h]), vb = vreinterpretq_s64_s8(b.v[h]);
        q.v[2 * h] = vreinterpretq_s8_s64(vzip1q_s64(va, vb));
        q.v[2 * h + 1] = vreinterpretq_s8_s64(vzip2q_s64(va, vb));
    }
    return q;
}

INLINE int32x4_t meet(int32x4_t acc, const struct quad *w, const int8_t *x, const int from, const int to)
{
    for (int k = from; k < to; k++)
        acc = vmmlaq_s32(acc, w->v[k], vld1q_s8(x + 16 * k));
    return acc;
}

INLINE float32x4_t twice(float a, float b) { return vcombine_f32(vdup_n_f32(a), vdup_n_f32(b)); } /* a a b b */

/* Lane by lane; [lane][pair], then the tree, then y. */
INLINE void join(const struct pass *p, uint32_t o, uint32_t outs, float32x4_t lanes[LANES][PAIRS])
{
    for (int step = LANES / 2; step; step /= 2)
        for (int l = 0; l < step; l++)
            for (uint32_t i = 0; i < p->pairs; i++)
                lanes[l][i] = vaddq_f32(lanes[l][i], lanes[l + step][i]);
    for (uint32_t i = 0; i < p->pairs; i++) {
        float v[4];
        vst1q_f32(v, lanes[0][i]);
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t row = p->row + 2 * i + k % 2;
            if (row < p->s.n_rows && k / 2 < outs)
                p->s.y[row * p->s.ldy + o + k / 2] = v[k];
        }
    }
}

/* ---- blocks of 32 */

static size_t simple_bytes(uint32_t n_in) { return (size_t)n_in * 2 + (size_t)n_in / NTX_QK * 32; }

static void interleave_simple(const struct shape *s, uint32_t a, uint32_t b, char *room, struct paired *to)
{
    const struct q8_row x = q8_view(s->x + a * s->x_stride, s->n_in), z = q8_view(s->x + b * s->x_stride, s->n_in);
    const uint32_t nb = s->n_in / NTX_QK;
    int8_t *q = (int8_t *)room;
    float *d = (float *)(void *)(room + (size_t)s->n_in * 2), *sums = d + (size_t)nb * 4;
    interleave(x.q, z.q, s->n_in, q);
    for (uint32_t k = 0; k < nb; k++) {
        put_pair(d + 4 * k, x.d[k], z.d[k]);
        put_pair(sums + 4 * k, (float)x.s[k], (float)z.s[k]);
    }
    *to = (struct paired){q, d, (const int8_t *)sums};
}

INLINE void simple_outputs(const struct pass *p, uint32_t o, const uint32_t pairs, const struct simple_kind *kind)
{
    const uint32_t nb = p->s.n_in / NTX_QK, outs = p->s.n_out - o < 2 ? 1 : 2;
    const uint8_t *w0 = p->s.w + o * p->s.row_bytes, *w1 = w0 + (outs - 1) * p->s.row_bytes;
    const bool halves = kind->scales == TWO_E4M3;
    const int8_t offset = (int8_t)offset_of(kind);
    float32x4_t lanes[LANES][PAIRS];
    for (uint32_t l = 0; l < LANES; l++) {
        float32x4_t acc[PAIRS];
        for (uint32_t i = 0; i < pairs; i++)
            acc[i] = vdupq_n_f32(0);
        for (uint32_t b = l; b < nb; b += LANES) {
            const uint32_t part = b % kind->parts;
            const size_t at = (size_t)(b / kind->parts) * kind->block_bytes;
            struct pair v0 = kind->values(w0 + at, part), v1 = kind->values(w1 + at, part);
            float d0, d1, m0, m1;
            head_of(w0 + at, part, kind, &d0, &m0);
            head_of(w1 + at, part, kind, &d1, &m1);
            if (offset) {
                v0 = minus(v0, offset);
                v1 = minus(v1, offset);
            }
            const struct quad w = zip(v0, v1);
            const float32x4_t d = twice(d0, d1), m = twice(m0, m1);
            const int32x4_t none = vdupq_n_s32(0);
            for (uint32_t i = 0; i < pairs; i++) {
                const int8_t *x = p->x[i].q + (size_t)b * 64;
                const float32x4_t dx = vld1q_f32(p->x[i].d + 4 * (size_t)b);
                acc[i] = vfmaq_f32(acc[i], vcvtq_f32_s32(meet(none, &w, x, 0, halves ? 2 : 4)), vmulq_f32(d, dx));
                if (halves)
                    acc[i] = vfmaq_f32(acc[i], vcvtq_f32_s32(meet(none, &w, x, 2, 4)), vmulq_f32(m, dx));
                if (kind->has_min)
                    acc[i] = vfmaq_f32(acc[i], vld1q_f32((const float *)(const void *)p->x[i].s + 4 * (size_t)b), vmulq_f32(m, dx));
            }
        }
        for (uint32_t i = 0; i < pairs; i++)
            lanes[l][i] = acc[i];
    }
    join(p, o, outs, lanes);
}

/* ---- super-blocks */

static size_t super_bytes(uint32_t n_in) { return (size_t)n_in * 2 + (size_t)n_in / NTX_QKK * (16 + 64); }

/* s = low + 128 high, 0 <= low < 128: both are bytes. */
static void interleave_sums(const int16_t *a, const int16_t *b, int8_t *to)
{
    for (int k = 0; k < 8; k++) {
        to[k] = (int8_t)(a[k] & 127);
        to[8 + k] = (int8_t)(b[k] & 127);
        to[16 + k] = (int8_t)(a[k] >> 7);
        to[24 + k] = (int8_t)(b[k] >> 7);
    }
}

static void interleave_super(const struct shape *s, uint32_t a, uint32_t b, bool by_16, char *room, struct paired *to)
{
    const struct q8k_row x = q8k_view(s->x + a * s->x_stride, s->n_in), z = q8k_view(s->x + b * s->x_stride, s->n_in);
    const uint32_t nb = s->n_in / NTX_QKK;
    int8_t *q = (int8_t *)room, *sums = q + (size_t)s->n_in * 2 + (size_t)nb * 16;
    float *d = (float *)(void *)(room + (size_t)s->n_in * 2);
    interleave(x.q, z.q, s->n_in, q);
    for (uint32_t k = 0; k < nb; k++) {
        put_pair(d + 4 * k, x.d[k], z.d[k]);
        for (uint32_t h = 0; h < (by_16 ? 2 : 1); h++)
            interleave_sums(by_16 ? x.s16 + 16 * k + 8 * h : x.s32 + 8 * k, by_16 ? z.s16 + 16 * k + 8 * h : z.s32 + 8 * k, sums + 64 * (size_t)k + 32 * h);
    }
    *to = (struct paired){q, d, sums};
}

/* Minima of 8 sub-blocks of two outputs. */
INLINE int8x16_t two_minima(int16x8_t a, int16x8_t b) { return vcombine_s8(vmovn_s16(a), vmovn_s16(b)); }

INLINE int32x4_t minima_meet(const int8x16_t by[2], const int8_t *sums, const int parts)
{
    int32x4_t low = vdupq_n_s32(0), high = low;
    for (int h = 0; h < parts; h++) {
        low = vmmlaq_s32(low, by[h], vld1q_s8(sums + 32 * h));
        high = vmmlaq_s32(high, by[h], vld1q_s8(sums + 32 * h + 16));
    }
    return vaddq_s32(low, vshlq_n_s32(high, 7));
}

/* The scales of two outputs as they stand in a register of sums: s0 s0 s1 s1. */
INLINE void spread_scales(const int16x8_t s0[2], const int16x8_t s1[2], const int n, int32x4_t to[16])
{
    int16_t a[16], b[16];
    for (int h = 0; h < n / 8; h++) {
        vst1q_s16(a + 8 * h, s0[h]);
        vst1q_s16(b + 8 * h, s1[h]);
    }
    for (int k = 0; k < n; k++)
        to[k] = vcombine_s32(vdup_n_s32(a[k]), vdup_n_s32(b[k]));
}

INLINE void super_outputs(const struct pass *p, uint32_t o, const uint32_t pairs, const struct super_kind *kind)
{
    const uint32_t nb = p->s.n_in / NTX_QKK, outs = p->s.n_out - o < 2 ? 1 : 2;
    const uint8_t *w0 = p->s.w + o * p->s.row_bytes, *w1 = w0 + (outs - 1) * p->s.row_bytes;
    float32x4_t lanes[LANES][PAIRS];
    for (uint32_t l = 0; l < LANES; l++) {
        float32x4_t acc[PAIRS];
        for (uint32_t i = 0; i < pairs; i++)
            acc[i] = vdupq_n_f32(0);
        for (uint32_t b = l; b < nb; b += LANES) {
            const uint8_t *p0 = w0 + (size_t)b * kind->block_bytes, *p1 = w1 + (size_t)b * kind->block_bytes;
            int16x8_t s0[2], s1[2], min0[2], min1[2];
            int32x4_t scales[16], dot[PAIRS];
            kind->scales(p0, s0, min0);
            kind->scales(p1, s1, min1);
            spread_scales(s0, s1, kind->by_16 ? 16 : 8, scales);
            const int parts = kind->by_16 ? 2 : 1;
            int8x16_t by[2] = {vdupq_n_s8(0), vdupq_n_s8(0)};
            for (int h = 0; kind->dmin_at != -1 && h < parts; h++)
                by[h] = two_minima(min0[h], min1[h]);
            for (uint32_t i = 0; i < pairs; i++)
                dot[i] = kind->dmin_at == ADDED ? minima_meet(by, p->x[i].s + 64 * (size_t)b, parts) : vdupq_n_s32(0);
            for (int t = 0; t < 8; t++) {
                struct pair v0 = kind->values(p0, t), v1 = kind->values(p1, t);
                if (kind->offset) {
                    v0 = minus(v0, (int8_t)kind->offset);
                    v1 = minus(v1, (int8_t)kind->offset);
                }
                const struct quad w = zip(v0, v1);
                const int32x4_t none = vdupq_n_s32(0);
                for (uint32_t i = 0; i < pairs; i++) {
                    const int8_t *x = p->x[i].q + (size_t)b * 2 * NTX_QKK + 64 * t;
                    if (kind->by_16) {
                        dot[i] = vmlaq_s32(dot[i], meet(none, &w, x, 0, 2), scales[2 * t]);
                        dot[i] = vmlaq_s32(dot[i], meet(none, &w, x, 2, 4), scales[2 * t + 1]);
                    } else {
                        dot[i] = vmlaq_s32(dot[i], meet(none, &w, x, 0, 4), scales[t]);
                    }
                }
            }
            const float32x4_t d = twice(kind->d(p0), kind->d(p1));
            for (uint32_t i = 0; i < pairs; i++) {
                const float32x4_t dx = vld1q_f32(p->x[i].d + 4 * (size_t)b);
                acc[i] = vfmaq_f32(acc[i], vcvtq_f32_s32(dot[i]), vmulq_f32(d, dx));
                if (kind->dmin_at >= 0) {
                    const int32x4_t low = minima_meet(by, p->x[i].s + 64 * (size_t)b, parts);
                    const float32x4_t m = twice(head_float(p0 + kind->dmin_at), head_float(p1 + kind->dmin_at));
                    acc[i] = vfmaq_f32(acc[i], vcvtq_f32_s32(vnegq_s32(low)), vmulq_f32(m, dx));
                }
            }
        }
        for (uint32_t i = 0; i < pairs; i++)
            lanes[l][i] = acc[i];
    }
    join(p, o, outs, lanes);
}

/* ---- calls */

#define I8MM_MATMUL(type, rule, bytes_of, ...)                                                                                                    \
    DECLARE_MATMUL(ntx__i8mm_##type)                                                                                                              \
    {                                                                                                                                             \
        char room[ROOM] __attribute__((aligned(64)));                                                                                             \
        const size_t each = bytes_of(n_in);                                                                                                       \
        if (n_rows < LEAST_ROWS || each > ROOM) {                                                                                                 \
            ntx__neon_##type(w, row_bytes, n_out, n_in, x, x_stride, n_rows, y, ldy);                                                             \
            return;                                                                                                                               \
        }                                                                                                                                         \
        const uint32_t most = ROOM / each < PAIRS ? (uint32_t)(ROOM / each) : PAIRS;                                                              \
        struct pass p = {.s = {w, x, y, row_bytes, x_stride, ldy, n_out, n_in, n_rows}};                                                          \
        for (p.row = 0; p.row < n_rows; p.row += 2 * p.pairs) {                                                                                   \
            p.pairs = (n_rows - p.row + 1) / 2 < most ? (n_rows - p.row + 1) / 2 : most;                                                          \
            for (uint32_t i = 0; i < p.pairs; i++) {                                                                                              \
                const uint32_t a = p.row + 2 * i, b = a + 1 < n_rows ? a + 1 : a;                                                                 \
                interleave_##rule(&p.s, a, b, __VA_ARGS__ room + i * each, &p.x[i]);                                                                   \
            }                                                                                                                                     \
            for (uint32_t o = 0; o < n_out; o += 2)                                                                                               \
                if (p.pairs == PAIRS)                                                                                                             \
                    rule##_outputs(&p, o, PAIRS, &rule##_##type);                                                                                 \
                else                                                                                                                              \
                    rule##_outputs(&p, o, p.pairs, &rule##_##type);                                                                               \
        }                                                                                                                                         \
    }
#define I8MM_SIMPLE(TYPE, type) I8MM_MATMUL(type, simple, simple_bytes, )
#define I8MM_SUPER(TYPE, type) I8MM_MATMUL(type, super, super_bytes, super_##type.by_16, )
NEON_SIMPLE(I8MM_SIMPLE)
NEON_SUPER(I8MM_SUPER)
