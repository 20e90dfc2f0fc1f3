/* SPDX-License-Identifier: Apache-2.0 */
/* i8mm.c: products of many rows by SMMLA, which multiplies two rows of eight bytes by two: two rows of x by two
 * outputs, which gives four integer sums at once.
 *
 * Rows of x are taken four or eight at a time, interleaved by pairs once for all outputs: each eight values of one
 * row, then of the other. Weights of four outputs are unpacked as two pairs interleaved likewise (struct from).
 * Weights that are interleaved in memory (interleaved.h) come by quarters of tiles, which are four outputs. Lanes are
 * computed one after another (blocks l, l + 16, ... are lane l's), so that each two pairs have one register of sums:
 *
 *   element    0            1            2            3
 *              x0 . w0      x0 . w1      x1 . w0      x1 . w1
 *
 * The order within a lane, and the tree over the lanes, are cpu.h's. One or two rows use SDOT (neon.h). */
#include "computed/cpu/neon_tiles.h"

SIMPLE_KINDS
SUPER_KINDS

enum {
    PAIRS = 4, /* most pairs of rows of x in a batch */
    TWINS = 2, /* pairs of outputs */
    LEAST_ROWS = 3,
    ROOM = 448 << 10, /* bytes of interleaved rows, on the stack */
    BLOCK = 96,       /* bytes of a block of a pair of SIMPLE rows */
    BLOCKS = ROOM / 2 / BLOCK,
};

/* A pair of rows of x: interleaved bytes, followed by scales and sums. */
struct paired {
    /* SIMPLE: 64 bytes of each block, then four scales d0 d0 d1 d1, then likewise four start values of integer sums, as
     * bits of floats, or (types with minima) sums of x */
    const int8_t *q;
    const float *d;  /* SUPER: [super-blocks][4] d0 d0 d1 d1 */
    const int8_t *s; /* SUPER: [super-blocks][64] sums of x: their low 7 bits and the rest, in a pair's order */
};

struct pass {
    struct shape s;
    struct paired x[PAIRS];
    uint32_t row; /* the batch's first */
};

INLINE int32x4_t multiply_add(int32x4_t sum, const int8x16_t x[4], const struct quad *w, const int from, const int to)
{
    for (int k = from; k < to; k++)
        sum = vmmlaq_s32(sum, x[k], w->v[k]);
    return sum;
}

/* A sum that begins with four_ints from memory: from a register the compiler would make a copy, which occupies a
 * multiply pipe. Load and product are one asm: the compiler would merge separate loads into one value, and spill it. */
INLINE int32x4_t first_meet(const int32_t *four_ints, const int8x16_t x[4], const struct quad *w, const int from,
                            const int to)
{
    int32x4_t sum;
    __asm__("ldr %q0, %1\n\tsmmla %0.4s, %2.16b, %3.16b"
            : "=&w"(sum)
            : "m"(*(const int32x4_t *)(const void *)four_ints), "w"(x[from]), "w"(w->v[from]));
    return multiply_add(sum, x, w, from + 1, to);
}

/* The same from 0. With first_meet, a zero passed in, and the order of the 32s in an array, Q6_K takes 5 to 10 %
 * longer (GCC 12). */
INLINE int32x4_t zero_meet(const int8x16_t x[4], const struct quad *w, const int from, const int to)
{
    static const int32x4_t zero;
    int32x4_t sum;
    __asm__("ldr %q0, %1\n\tsmmla %0.4s, %2.16b, %3.16b" : "=&w"(sum) : "m"(zero), "w"(x[from]), "w"(w->v[from]));
    return multiply_add(sum, x, w, from + 1, to);
}

/* Keeps p in a register: else the compiler computes an index for each load after it, and adds these up each time. */
INLINE const void *held(const void *p)
{
    __asm__("" : "+r"(p));
    return p;
}

INLINE void load_quad(const int8_t *p, int8x16_t x[4])
{
    for (int k = 0; k < 4; k++)
        x[k] = vld1q_s8(p + 16 * k);
}

/* Interleaves n bytes of two rows, eight by eight. n is a multiple of 32; each 32 bytes become 64, `step` apart. */
INLINE void interleave(const int8_t *a, const int8_t *b, uint32_t n, int8_t *to, size_t step)
{
    for (size_t k = 0; k < n; k += 32, to += step) {
        const struct from first = two_rows((const uint8_t *)a + k, (const uint8_t *)b + k, FIRST),
                          last = two_rows(first.a, first.b, LAST);
        const uint8x16x4_t v = {{bytes16(first, 0), bytes16(last, 0), bytes16(first, 16), bytes16(last, 16)}};
        for (int i = 0; i < 4; i++)
            vst1q_u8((uint8_t *)to + 16 * i, v.val[i]);
    }
}

/* Stores a0 a0 b0 b0, a1 a1 b1 b1, ..., `step` floats apart. */
INLINE void spread_pairs(float32x4_t a, float32x4_t b, float *to, size_t step)
{
    const float32x4_t low = vzip1q_f32(a, b), high = vzip2q_f32(a, b);
    vst1q_f32(to, vzip1q_f32(low, low));
    vst1q_f32(to + step, vzip2q_f32(low, low));
    vst1q_f32(to + 2 * step, vzip1q_f32(high, high));
    vst1q_f32(to + 3 * step, vzip2q_f32(high, high));
}

/* The tree over the lanes, then y. */
INLINE void store_joined(const struct pass *p, uint32_t o, const uint32_t pairs, float32x4_t lanes[LANES][PAIRS][TWINS])
{
    for (int step = LANES / 2; step; step /= 2)
        for (int l = 0; l < step; l++)
            for (uint32_t i = 0; i < pairs; i++)
                for (int h = 0; h < TWINS; h++)
                    lanes[l][i][h] = vaddq_f32(lanes[l][i][h], lanes[l + step][i][h]);
    for (uint32_t i = 0; i < pairs; i++) {
        const float32x4_t a = lanes[0][i][0], b = lanes[0][i][1];
        const float32x4_t rows[2] = {vcombine_f32(vget_low_f32(a), vget_low_f32(b)),
                                     vcombine_f32(vget_high_f32(a), vget_high_f32(b))};
        for (uint32_t k = 0; k < 2 && p->row + 2 * i + k < p->s.n_rows; k++) {
            float *y = p->s.y + (p->row + 2 * i + k) * p->s.ldy + o, v[4];
            vst1q_f32(v, rows[k]);
            memcpy(y, v, (p->s.n_out - o < 4 ? p->s.n_out - o : 4) * sizeof *v);
        }
    }
}

/* ---- blocks of 32. Sums of a block are below 2^22: added to MAGIC's bits they are the bits of the sum plus MAGIC as
 * a float. */

static size_t simple_bytes(uint32_t n_in) { return (size_t)round_up(n_in / NTX_QK, 4) * BLOCK; }

INLINE void spread_scales(const struct q8_row *x, const struct q8_row *z, uint32_t nb, const bool sums,
                          const int offset, char *room)
{
    const int32x4_t magic = vdupq_n_s32(MAGIC_BITS), offsets = vdupq_n_s32(offset);
    const size_t step = BLOCK / sizeof(float);
    for (uint32_t k = 0; k < nb; k += 4) {
        const int32x4_t xs = vld1q_s32(x->s + k), zs = vld1q_s32(z->s + k);
        float *head = (float *)(void *)(room + (size_t)k * BLOCK + 64);
        spread_pairs(vld1q_f32(x->d + k), vld1q_f32(z->d + k), head, step);
        if (sums)
            spread_pairs(vcvtq_f32_s32(xs), vcvtq_f32_s32(zs), head + 4, step);
        else
            spread_pairs(vreinterpretq_f32_s32(vmlsq_s32(magic, xs, offsets)),
                         vreinterpretq_f32_s32(vmlsq_s32(magic, zs, offsets)), head + 4, step);
    }
}

static void interleave_simple(const struct shape *s, uint32_t a, uint32_t b, const struct simple_kind *kind, char *room,
                              struct paired *to)
{
    const struct q8_row x = q8_view(s->x + a * s->x_stride, s->n_in), z = q8_view(s->x + b * s->x_stride, s->n_in);
    interleave(x.q, z.q, s->n_in, (int8_t *)room, BLOCK);
    spread_scales(&x, &z, s->n_in / NTX_QK, kind->has_min, offset_of(kind), room);
    *to = (struct paired){(const int8_t *)room, NULL, NULL};
}

/* a b a b */
INLINE float32x4_t two_halves(uint16_t a, uint16_t b) { return four_halves((a | (uint64_t)b << 16) * 0x100000001); }

/* Scales of two outputs: d0 d1 d0 d1, and m likewise. */
INLINE void two_heads(const uint8_t *a, const uint8_t *b, uint32_t part, const struct simple_kind *kind, float32x4_t *d,
                      float32x4_t *m)
{
    if (kind->scales == HALF_WORD && !kind->has_min) {
        *d = two_halves(half_at(a), half_at(b));
    } else if (kind->scales == HALF_WORD) {
        const uint32_t va = word32(a), vb = word32(b);
        *d = two_halves((uint16_t)va, (uint16_t)vb);
        *m = two_halves((uint16_t)(va >> 16), (uint16_t)(vb >> 16));
    } else if (kind->scales == EXPONENT) {
        const float of[2] = {ntx_e8m0_float(a[0]), ntx_e8m0_float(b[0])};
        *d = vcombine_f32(vld1_f32(of), vld1_f32(of));
    } else {
        float32x4_t v[2];
        e4m3_halves(vcreate_u8(half_at(a + 2 * part) | (uint64_t)half_at(b + 2 * part) << 16), v);
        *d = vuzp1q_f32(v[0], v[0]);
        *m = vuzp2q_f32(v[0], v[0]);
    }
}

/* A block of four outputs times all pairs. d, m: of each two outputs, in two_heads()'s order. */
INLINE void simple_block(const struct pass *p, uint32_t b, const uint32_t pairs, const struct simple_kind *kind,
                         const struct quad v[TWINS], const float32x4_t d[TWINS], const float32x4_t m[TWINS],
                         float32x4_t acc[PAIRS][TWINS])
{
    const bool halves = kind->scales == TWO_E4M3;
    const int32x4_t magic = vdupq_n_s32(MAGIC_BITS);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < pairs; i++) {
        const int8_t *block = held(p->x[i].q + (size_t)b * BLOCK);
        const float *head = (const float *)(const void *)(block + 64);
        const float32x4_t dx = vld1q_f32(head), behind = vld1q_f32(head + 4);
        const int32x4_t begins[TWINS] = {kind->has_min ? magic : vreinterpretq_s32_f32(behind),
                                         kind->has_min ? magic
                                                       : loaded_again((const int32_t *)(const void *)(head + 4))};
        int8x16_t x[4];
        load_quad(block, x);
#pragma GCC unroll 2
        for (int h = 0; h < TWINS; h++) {
            const int32x4_t begin = begins[h];
            acc[i][h] = vfmaq_f32(acc[i][h], float_sum(multiply_add(begin, x, &v[h], 0, halves ? 2 : 4)),
                                  vmulq_f32(d[h], dx));
            if (halves)
                acc[i][h] = vfmaq_f32(acc[i][h], float_sum(multiply_add(begin, x, &v[h], 2, 4)), vmulq_f32(m[h], dx));
            if (kind->has_min)
                acc[i][h] = vfmaq_f32(acc[i][h], behind, vmulq_f32(m[h], dx));
        }
    }
}

INLINE void no_sums(const uint32_t pairs, float32x4_t acc[PAIRS][TWINS])
{
    for (uint32_t i = 0; i < pairs; i++)
        for (int h = 0; h < TWINS; h++)
            acc[i][h] = vdupq_n_f32(0);
}

INLINE void keep_sums(const uint32_t pairs, float32x4_t acc[PAIRS][TWINS], float32x4_t lane[PAIRS][TWINS])
{
    for (uint32_t i = 0; i < pairs; i++)
        for (int h = 0; h < TWINS; h++)
            lane[i][h] = acc[i][h];
}

INLINE void simple_outputs(const struct pass *p, uint32_t o, const uint32_t pairs, const struct simple_kind *kind)
{
    const uint32_t nb = p->s.n_in / NTX_QK;
    const bool shared = kind->parts > 1 && kind->scales == HALF_WORD; /* several lanes share a head */
    const uint8_t *w[2 * TWINS];
    float32x4_t lanes[LANES][PAIRS][TWINS], heads[BLOCKS / 2][TWINS];
    outputs_at(&p->s, o, w);
    for (uint32_t k = 0; shared && k < nb / kind->parts; k++)
        for (int h = 0; h < TWINS; h++)
            heads[k][h] = two_halves(half_at(w[2 * h] + k * kind->block_bytes),
                                     half_at(w[2 * h + 1] + k * kind->block_bytes));
    for (uint32_t l = 0; l < LANES; l++) {
        float32x4_t acc[PAIRS][TWINS];
        const uint32_t part = l % kind->parts; /* the same in all blocks of this lane */
        size_t at = l / kind->parts * kind->block_bytes;
        no_sums(pairs, acc);
        for (uint32_t b = l; b < nb; b += LANES, at += LANES / kind->parts * kind->block_bytes) {
            struct quad v[TWINS];
            float32x4_t d[TWINS], m[TWINS];
            for (int h = 0; h < TWINS; h++) {
                v[h] = QUAD(kind, w[2 * h] + at, w[2 * h + 1] + at, part);
                if (shared)
                    d[h] = heads[b / kind->parts][h];
                else
                    two_heads(w[2 * h] + at, w[2 * h + 1] + at, part, kind, &d[h], &m[h]);
            }
            simple_block(p, b, pairs, kind, v, d, m, acc);
        }
        keep_sums(pairs, acc, lanes[l]);
    }
    store_joined(p, o, pairs, lanes);
}

/* ---- simple blocks of a quarter of interleaved tiles */

/* 32 values of a quarter's first two outputs, or of its last two, eight by eight. */
#define TILE_QUAD(kind, words, h, part, pattern, fifth)                                                                \
    ({                                                                                                                 \
        const int two_ = (h) ? LAST_TWO : FIRST_TWO;                                                                   \
        const struct pair first_ = (kind)->values(quarter(words, two_, 0, pattern, fifth), part),                      \
                          last_ = (kind)->values(quarter(words, two_, 2, pattern, fifth), part);                       \
        (struct quad){{first_.v[0], last_.v[0], first_.v[1], last_.v[1]}};                                             \
    })

/* Splits values of four outputs: the first two twice, and the last two twice. */
INLINE void by_twos(float32x4_t v, float32x4_t to[TWINS])
{
    to[0] = vreinterpretq_f32_u64(vdupq_laneq_u64(vreinterpretq_u64_f32(v), 0));
    to[1] = vreinterpretq_f32_u64(vdupq_laneq_u64(vreinterpretq_u64_f32(v), 1));
}

INLINE struct tiles slice_tiles(const struct pass *p, uint32_t o, uint32_t blocks, const size_t block_bytes)
{
    return tiles_of(p->s.w + o / NTX_SLICE_OUTS * NTX_SLICE_OUTS * p->s.row_bytes, blocks, block_bytes);
}

INLINE void simple_quarter(const struct pass *p, uint32_t o, const uint32_t pairs, const struct simple_kind *kind,
                           const struct ntx__interleave_pattern *pattern)
{
    const uint32_t nb = p->s.n_in / NTX_QK, q = o / 4 % QUARTERS;
    struct tiles tile = slice_tiles(p, o, nb, kind->block_bytes);
    float32x4_t lanes[LANES][PAIRS][TWINS];
    for (uint32_t turn = 0; turn < LANES; turn++) {
        float32x4_t acc[PAIRS][TWINS];
        no_sums(pairs, acc);
        for (uint32_t b = ntx__lane_order[turn]; b < nb; b += LANES, next_tile(&tile, kind->block_bytes)) {
            struct quad v[TWINS];
            float32x4_t d[TWINS], m[TWINS];
            const uint8_t *fifth = quarter_fifths(tile.heads, q, pattern);
            for (int h = 0; h < TWINS; h++)
                v[h] = TILE_QUAD(kind, tile.words + 16 * q, h, 0, pattern, fifth);
            const float32x4_t scales = quarter_scales(tile.heads, q, kind);
            by_twos(scales, d);
            by_twos(kind->has_min ? quarter_minima(tile.heads, q) : scales, m);
            simple_block(p, b, pairs, kind, v, d, m, acc);
        }
        keep_sums(pairs, acc, lanes[ntx__lane_order[turn]]);
    }
    store_joined(p, o, pairs, lanes);
}

/* ---- the same for Q1_0 (neon_tiles.h). Each output's words are there twice: of eight bytes, which are multiplied by
 * eight values of x, four have one bit and four the next. Sums are doubled, and the sums of x are added as floats. */

#define bits_q1_0  simple_q1_0
#define bits_bytes simple_bytes

static void interleave_bits(const struct shape *s, uint32_t a, uint32_t b, const struct simple_kind *kind, char *room,
                            struct paired *to)
{
    const struct q8_row x = q8_view(s->x + a * s->x_stride, s->n_in), z = q8_view(s->x + b * s->x_stride, s->n_in);
    const uint32_t nb = s->n_in / NTX_QK;
    for (size_t k = 0; k < nb; k++) {
        const struct pair of[2] = {by_bits(x.q + k * NTX_QK), by_bits(z.q + k * NTX_QK)};
        int8_t rows[2][NTX_QK];
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < 2; i++)
                vst1q_s8(rows[r] + 16 * i, of[r].v[i]);
        interleave(rows[0], rows[1], NTX_QK, (int8_t *)room + k * BLOCK, BLOCK);
    }
    spread_scales(&x, &z, nb, true, offset_of(kind), room);
    *to = (struct paired){(const int8_t *)room, NULL, NULL};
}

INLINE void bits_block(const struct pass *p, uint32_t b, const uint32_t pairs, const struct quad v[TWINS],
                       const float32x4_t d[TWINS], float32x4_t acc[PAIRS][TWINS])
{
    static const int32_t twice_magic[4] __attribute__((aligned(16))) = {MAGIC_BITS + (1 << 23), MAGIC_BITS + (1 << 23),
                                                                        MAGIC_BITS + (1 << 23), MAGIC_BITS + (1 << 23)};
#pragma GCC unroll 4
    for (uint32_t i = 0; i < pairs; i++) {
        const int8_t *block = held(p->x[i].q + (size_t)b * BLOCK);
        const float *head = (const float *)(const void *)(block + 64);
        const float32x4_t dx = vld1q_f32(head), sum_of_x = vld1q_f32(head + 4);
        int8x16_t x[4];
        load_quad(block, x);
#pragma GCC unroll 2
        for (int h = 0; h < TWINS; h++) {
            const float32x4_t sum = vsubq_f32(vreinterpretq_f32_s32(first_meet(twice_magic, x, &v[h], 0, 4)),
                                              vdupq_n_f32(2 * MAGIC));
            acc[i][h] = vfmaq_f32(acc[i][h], vaddq_f32(sum, sum_of_x), vmulq_f32(d[h], dx));
        }
    }
}

INLINE void bits_quarter(const struct pass *p, uint32_t o, const uint32_t pairs, const struct simple_kind *kind)
{
    const uint32_t nb = p->s.n_in / NTX_QK, q = o / 4 % QUARTERS;
    const uint8_t *slice = p->s.w + o / NTX_SLICE_OUTS * NTX_SLICE_OUTS * p->s.row_bytes;
    float32x4_t lanes[LANES][PAIRS][TWINS], heads[BLOCKS / 4][TWINS]; /* four lanes share a head */
    for (uint32_t b = 0; b < nb; b += 4)
        by_twos(quarter_scales(slice + bits_at(b).head, q, kind), heads[b / 4]);
    for (uint32_t l = 0; l < LANES; l++) {
        float32x4_t acc[PAIRS][TWINS];
        no_sums(pairs, acc);
        for (uint32_t b = l; b < nb; b += LANES) {
            const uint32x4_t words = vreinterpretq_u32_u8(vld1q_u8(slice + bits_at(b).words + 16 * q));
            const uint8x16_t twice[TWINS] = {vreinterpretq_u8_u32(vzip1q_u32(words, words)),
                                             vreinterpretq_u8_u32(vzip2q_u32(words, words))};
            struct quad v[TWINS];
            for (int h = 0; h < TWINS; h++)
                for (int k = 0; k < 4; k++)
                    v[h].v[k] = where_unset(twice[h], vreinterpretq_u8_u64(vdupq_n_u64(0x0202020201010101u << 2 * k)));
            bits_block(p, b, pairs, v, heads[b / 4], acc);
        }
        keep_sums(pairs, acc, lanes[l]);
    }
    store_joined(p, o, pairs, lanes);
}

/* ---- super-blocks */

static size_t super_bytes(uint32_t n_in) { return (size_t)n_in * 2 + (size_t)round_up(n_in / NTX_QKK, 4) * (16 + 64); }

/* Splits sums s = low + 128 high, 0 <= low < 128, into bytes. */
INLINE void interleave_sums(const int16_t *a, const int16_t *b, int8_t *to)
{
    const int16x8_t va = vld1q_s16(a), vb = vld1q_s16(b), low = vdupq_n_s16(127);
    vst1q_s8(to, vcombine_s8(vmovn_s16(vandq_s16(va, low)), vmovn_s16(vandq_s16(vb, low))));
    vst1q_s8(to + 16, vcombine_s8(vshrn_n_s16(va, 7), vshrn_n_s16(vb, 7)));
}

static void interleave_super(const struct shape *s, uint32_t a, uint32_t b, const struct super_kind *kind, char *room,
                             struct paired *to)
{
    const struct q8k_row x = q8k_view(s->x + a * s->x_stride, s->n_in), z = q8k_view(s->x + b * s->x_stride, s->n_in);
    const uint32_t nb = s->n_in / NTX_QKK, parts = kind->by_16 ? 2 : 1;
    float *d = (float *)(void *)(room + (size_t)s->n_in * 2);
    int8_t *sums = (int8_t *)(d + (size_t)round_up(nb, 4) * 4);
    interleave(x.q, z.q, s->n_in, (int8_t *)room, 64);
    for (uint32_t k = 0; k < nb; k += 4)
        spread_pairs(vld1q_f32(x.d + k), vld1q_f32(z.d + k), d + 4 * k, 4);
    for (uint32_t k = 0; k < nb * parts; k++) {
        const int16_t *from[2] = {kind->by_16 ? x.s16 : x.s32, kind->by_16 ? z.s16 : z.s32};
        interleave_sums(from[0] + 8 * k, from[1] + 8 * k, sums + 64 * (k / parts) + 32 * (k % parts));
    }
    *to = (struct paired){(const int8_t *)room, d, sums};
}

/* Scales of two outputs' sub-blocks. */
struct subs {
    int32_t scale[16 * 2]; /* both outputs' scales of each sub-block */
    int8x16_t by[2];       /* of eight sub-blocks: factors of the sums of x: minima, or scales if there is an offset */
};

INLINE int8x16_t bytes_of_two(int16x8_t a, int16x8_t b) { return vcombine_s8(vmovn_s16(a), vmovn_s16(b)); }

INLINE void two_scales(const uint8_t *a, const uint8_t *b, const struct super_kind *kind, struct subs *to)
{
    int16x8_t s0[2], s1[2], min0[2], min1[2];
    kind->scales(a, s0, min0);
    kind->scales(b, s1, min1);
    for (int k = 0; k < (kind->by_16 ? 2 : 1); k++) {
        const int16x8_t low = vzip1q_s16(s0[k], s1[k]), high = vzip2q_s16(s0[k], s1[k]);
        vst1q_s32(to->scale + 16 * k, vmovl_s16(vget_low_s16(low)));
        vst1q_s32(to->scale + 16 * k + 4, vmovl_high_s16(low));
        vst1q_s32(to->scale + 16 * k + 8, vmovl_s16(vget_low_s16(high)));
        vst1q_s32(to->scale + 16 * k + 12, vmovl_high_s16(high));
        to->by[k] = kind->dmin_at != -1 ? bytes_of_two(min0[k], min1[k]) : bytes_of_two(s0[k], s1[k]);
    }
}

INLINE int32x4_t scale_of(const struct subs *s, int k)
{
    int64_t both;
    memcpy(&both, s->scale + 2 * k, 8);
    return vreinterpretq_s32_s64(vdupq_n_s64(both));
}

INLINE int32x4_t sums_meet(const struct subs *s, const int8_t *sums, const bool by_16)
{
    int32x4_t low = vdupq_n_s32(0), high = low;
    for (int k = 0; k < (by_16 ? 2 : 1); k++) {
        low = vmmlaq_s32(low, vld1q_s8(sums + 32 * k), s->by[k]);
        high = vmmlaq_s32(high, vld1q_s8(sums + 32 * k + 16), s->by[k]);
    }
    return vaddq_s32(low, vshlq_n_s32(high, 7));
}

/* Start values of super-block b's sums. */
INLINE void super_begin(const struct pass *p, uint32_t b, const uint32_t pairs, const struct super_kind *kind,
                        const struct subs subs[TWINS], int32x4_t dot[PAIRS][TWINS])
{
    for (int h = 0; h < TWINS; h++)
        for (uint32_t i = 0; i < pairs; i++) {
            const int8_t *sums = p->x[i].s + 64 * (size_t)b;
            if (kind->dmin_at == ADDED)
                dot[i][h] = sums_meet(&subs[h], sums, kind->by_16);
            else
                dot[i][h] = kind->offset ? vmulq_n_s32(sums_meet(&subs[h], sums, kind->by_16), -kind->offset)
                                         : vdupq_n_s32(0);
        }
}

INLINE void super_32(const struct pass *p, uint32_t b, const int t, const uint32_t pairs, const struct super_kind *kind,
                     const struct quad v[TWINS], const struct subs subs[TWINS], int32x4_t dot[PAIRS][TWINS])
{
#pragma GCC unroll 4
    for (uint32_t i = 0; i < pairs; i++) {
        int8x16_t x[4];
        load_quad(p->x[i].q + (size_t)b * 2 * NTX_QKK + 64 * t, x);
#pragma GCC unroll 2
        for (int h = 0; h < TWINS; h++) {
            if (kind->by_16) {
                dot[i][h] = vmlaq_s32(dot[i][h], zero_meet(x, &v[h], 0, 2), scale_of(&subs[h], 2 * t));
                dot[i][h] = vmlaq_s32(dot[i][h], zero_meet(x, &v[h], 2, 4), scale_of(&subs[h], 2 * t + 1));
            } else {
                dot[i][h] = vmlaq_s32(dot[i][h], zero_meet(x, &v[h], 0, 4), scale_of(&subs[h], t));
            }
        }
    }
}

INLINE void super_sums(const struct pass *p, uint32_t b, const uint32_t pairs, const struct super_kind *kind,
                       const struct subs subs[TWINS], const float32x4_t d[TWINS], const float32x4_t m[TWINS],
                       int32x4_t dot[PAIRS][TWINS], float32x4_t acc[PAIRS][TWINS])
{
#pragma GCC unroll 2 /* not unrolled, GCC 12 loses stores to dot at -O1 */
    for (int h = 0; h < TWINS; h++)
#pragma GCC unroll 4
        for (uint32_t i = 0; i < pairs; i++) {
            const float32x4_t dx = vld1q_f32(p->x[i].d + 4 * (size_t)b);
            acc[i][h] = vfmaq_f32(acc[i][h], vcvtq_f32_s32(dot[i][h]), vmulq_f32(d[h], dx));
            if (kind->dmin_at >= 0) {
                const int32x4_t less = sums_meet(&subs[h], p->x[i].s + 64 * (size_t)b, kind->by_16);
                acc[i][h] = vfmaq_f32(acc[i][h], vcvtq_f32_s32(vnegq_s32(less)), vmulq_f32(m[h], dx));
            }
        }
}

INLINE void super_outputs(const struct pass *p, uint32_t o, const uint32_t pairs, const struct super_kind *kind)
{
    const uint32_t nb = p->s.n_in / NTX_QKK;
    const uint8_t *w[2 * TWINS];
    float32x4_t lanes[LANES][PAIRS][TWINS];
    outputs_at(&p->s, o, w);
    for (uint32_t l = 0; l < LANES; l++) {
        float32x4_t(*const acc)[TWINS] = lanes[l];
        no_sums(pairs, acc);
        for (uint32_t b = l; b < nb; b += LANES) {
            const uint8_t *at[2 * TWINS];
            struct subs subs[TWINS];
            int32x4_t dot[PAIRS][TWINS];
            float32x4_t d[TWINS], m[TWINS];
            for (int k = 0; k < 2 * TWINS; k++)
                at[k] = w[k] + (size_t)b * kind->block_bytes;
            for (int h = 0; h < TWINS; h++)
                two_scales(at[2 * h], at[2 * h + 1], kind, &subs[h]);
            super_begin(p, b, pairs, kind, subs, dot);
#pragma GCC unroll 8
            for (int t = 0; t < 8; t++) {
                struct quad v[TWINS];
                for (int h = 0; h < TWINS; h++)
                    v[h] = QUAD(kind, at[2 * h], at[2 * h + 1], t);
                super_32(p, b, t, pairs, kind, v, subs, dot);
            }
            for (int h = 0; h < TWINS; h++) {
                d[h] = vmulq_n_f32(two_halves(kind->d(at[2 * h]), kind->d(at[2 * h + 1])), kind->times);
                m[h] = kind->dmin_at >= 0
                           ? two_halves(half_at(at[2 * h] + kind->dmin_at), half_at(at[2 * h + 1] + kind->dmin_at))
                           : d[h];
            }
            super_sums(p, b, pairs, kind, subs, d, m, dot, acc);
        }
    }
    store_joined(p, o, pairs, lanes);
}

/* ---- super-blocks of a quarter of interleaved tiles */

INLINE void quarter_subs(const struct quarter_heads *q, const struct super_kind *kind, struct subs to[TWINS])
{
    const bool minima = kind->dmin_at >= 0;
    for (int k = 0; k < (kind->by_16 ? 2 : 1); k++) {
        int16x8_t s[4];
        widen_bytes(q->scale + 2 * k, kind, s);
        for (int i = 0; i < 8; i += 2) { /* sub-blocks i and i + 1 of this eight */
            const int64x2_t a = vreinterpretq_s64_s32(i < 4 ? vmovl_s16(vget_low_s16(s[i % 4]))
                                                            : vmovl_high_s16(s[i % 4]));
            const int64x2_t b = vreinterpretq_s64_s32(i < 4 ? vmovl_s16(vget_low_s16(s[i % 4 + 1]))
                                                            : vmovl_high_s16(s[i % 4 + 1]));
            vst1q_s32(to[0].scale + 16 * k + 2 * i, vreinterpretq_s32_s64(vtrn1q_s64(a, b)));
            vst1q_s32(to[1].scale + 16 * k + 2 * i, vreinterpretq_s32_s64(vtrn2q_s64(a, b)));
        }
        const uint32x4_t low = vreinterpretq_u32_u8(minima ? q->min[0] : q->scale[2 * k]),
                         high = vreinterpretq_u32_u8(minima ? q->min[1] : q->scale[2 * k + 1]);
        to[0].by[k] = vreinterpretq_s8_u32(vzip1q_u32(low, high));
        to[1].by[k] = vreinterpretq_s8_u32(vzip2q_u32(low, high));
    }
}

INLINE void super_quarter(const struct pass *p, uint32_t o, const uint32_t pairs, const struct super_kind *kind,
                          const struct ntx__interleave_pattern *pattern, heads_fn *heads_of)
{
    const uint32_t nb = p->s.n_in / NTX_QKK, q = o / 4 % QUARTERS;
    struct tiles tile = slice_tiles(p, o, nb, kind->block_bytes);
    float32x4_t lanes[LANES][PAIRS][TWINS];
    for (uint32_t turn = 0; turn < LANES; turn++) {
        float32x4_t(*const acc)[TWINS] = lanes[ntx__lane_order[turn]];
        no_sums(pairs, acc);
        for (uint32_t b = ntx__lane_order[turn]; b < nb; b += LANES, next_tile(&tile, kind->block_bytes)) {
            const uint8_t *words = tile.words + 16 * q;
            struct quarter_heads heads;
            struct subs subs[TWINS];
            int32x4_t dot[PAIRS][TWINS];
            float32x4_t d[TWINS], m[TWINS];
            heads_of(words, tile.heads, q, &heads);
            quarter_subs(&heads, kind, subs);
            super_begin(p, b, pairs, kind, subs, dot);
#pragma GCC unroll 8
            for (int k = 0; k < 8; k++) {
                /* Q6_K: 32s that share nibbles follow one another, so that fewer registers are in
                                 * use */
                const int swapped = (k & 4) + (k & 1) * 2 + (k >> 1 & 1), t = kind->by_16 ? swapped : k;
                struct quad v[TWINS];
                for (int h = 0; h < TWINS; h++)
                    v[h] = TILE_QUAD(kind, words, h, t, pattern, NULL);
                super_32(p, b, t, pairs, kind, v, subs, dot);
            }
            by_twos(heads.d, d);
            by_twos(heads.m, m);
            super_sums(p, b, pairs, kind, subs, d, m, dot, acc);
        }
    }
    store_joined(p, o, pairs, lanes);
}

/* ---- calls */

typedef void outputs_fn(const struct pass *p);

/* Batches of eight rows; the last may have four. If it has fewer, its last row is repeated. few: the function for one
 * or two rows. outputs: multiplies four outputs by pairs of rows. */
#define I8MM_MATMUL(name, few, type, rule, outputs)                                                                    \
    static void name##_4(const struct pass *p)                                                                         \
    {                                                                                                                  \
        for (uint32_t o = 0; o < p->s.n_out; o += 2 * TWINS)                                                           \
            outputs(p, o, 2, &rule##_##type);                                                                          \
    }                                                                                                                  \
    static void name##_8(const struct pass *p)                                                                         \
    {                                                                                                                  \
        for (uint32_t o = 0; o < p->s.n_out; o += 2 * TWINS)                                                           \
            outputs(p, o, PAIRS, &rule##_##type);                                                                      \
    }                                                                                                                  \
    DECLARE_MATMUL(name)                                                                                               \
    {                                                                                                                  \
        char room[ROOM] __attribute__((aligned(64)));                                                                  \
        const size_t each = rule##_bytes(n_in);                                                                        \
        if (n_rows < LEAST_ROWS || 2 * each > ROOM) {                                                                  \
            few(w, row_bytes, n_out, n_in, x, x_stride, n_rows, y, ldy);                                               \
            return;                                                                                                    \
        }                                                                                                              \
        struct pass p = {.s = {w, x, y, row_bytes, x_stride, ldy, n_out, n_in, n_rows}};                               \
        for (uint32_t rows; p.row < n_rows; p.row += rows) {                                                           \
            rows = n_rows - p.row > 4 && PAIRS * each <= ROOM ? 8 : 4;                                                 \
            for (uint32_t i = 0; i < rows / 2; i++) {                                                                  \
                const uint32_t a = p.row + 2 * i < n_rows ? p.row + 2 * i : n_rows - 1,                                \
                               b = a + 1 < n_rows ? a + 1 : a;                                                         \
                interleave_##rule(&p.s, a, b, &rule##_##type, room + i * each, &p.x[i]);                               \
            }                                                                                                          \
            (rows == 8 ? name##_8 : name##_4)(&p);                                                                     \
        }                                                                                                              \
    }
#define I8MM_SIMPLE(TYPE, type) I8MM_MATMUL(ntx__i8mm_##type, ntx__neon_##type, type, simple, simple_outputs)
#define I8MM_SUPER(TYPE, type)  I8MM_MATMUL(ntx__i8mm_##type, ntx__neon_##type, type, super, super_outputs)
NEON_SIMPLE(I8MM_SIMPLE)
NEON_SUPER(I8MM_SUPER)

#define I8MM_INTERLEAVED_SIMPLE(TYPE, type, ...)                                                                       \
    INLINE void quarter_##type(const struct pass *p, uint32_t o, const uint32_t pairs, const struct simple_kind *kind) \
    {                                                                                                                  \
        simple_quarter(p, o, pairs, kind, &ntx__pattern_##type);                                                       \
    }                                                                                                                  \
    I8MM_MATMUL(ntx__interleaved_i8mm_##type, ntx__interleaved_##type, type, simple, quarter_##type)
#define I8MM_INTERLEAVED_SUPER(TYPE, type, ...)                                                                        \
    INLINE void quarter_##type(const struct pass *p, uint32_t o, const uint32_t pairs, const struct super_kind *kind)  \
    {                                                                                                                  \
        super_quarter(p, o, pairs, kind, &ntx__pattern_##type, heads_##type);                                          \
    }                                                                                                                  \
    I8MM_MATMUL(ntx__interleaved_i8mm_##type, ntx__interleaved_##type, type, super, quarter_##type)
INTERLEAVED_SIMPLE_TYPES(I8MM_INTERLEAVED_SIMPLE)
INTERLEAVED_SUPER_TYPES(I8MM_INTERLEAVED_SUPER)
I8MM_MATMUL(ntx__interleaved_i8mm_q1_0, ntx__interleaved_q1_0, q1_0, bits, bits_quarter)
