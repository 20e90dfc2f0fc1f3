/* SPDX-License-Identifier: Apache-2.0 */
/* neon.h: shared by the files for 64-bit Arm: unpacks 32 adjacent values of a row to bytes in two registers, by type,
 * and their scales. neon_simple.c and neon_super.c multiply them by SDOT, one or two rows of x at a time; neon_many.c
 * many rows; i8mm.c many rows by SMMLA. All follow cpu.h's order; integer sums are exact, so the instruction does not
 * matter. */
#ifndef NTX_COMPUTED_CPU_NEON_H
#define NTX_COMPUTED_CPU_NEON_H

#include <arm_neon.h>

#include "computed/cpu/interleaved.h"
#include "computed/cpu/split.h"

enum { NEON_ROWS = 2 }; /* most rows of x at a time */
enum {
    MANY_ROWS = 3, /* least rows for which neon_many.c is faster */
    MANY_AT_ONCE = 8,
    MANY_ROOM = 768 << 10, /* bytes of reordered x, on the stack */
};

struct pair { /* 32 values */
    int8x16_t v[2];
};

/* A call's arguments, for the loops under it. */
struct shape {
    const uint8_t *w;
    const char *x;
    float *y;
    size_t row_bytes, x_stride, ldy;
    uint32_t n_out, n_in, n_rows;
};

#define DECLARE_MATMUL(name)                                                                                           \
    void name(const void *w, size_t row_bytes, uint32_t n_out, uint32_t n_in, const void *x, size_t x_stride,          \
              uint32_t n_rows, float *y, size_t ldy)
#define NEON_SIMPLE(X)                                                                                                 \
    X(Q4_0, q4_0)                                                                                                      \
    X(Q4_1, q4_1)                                                                                                      \
    X(Q5_0, q5_0)                                                                                                      \
    X(Q5_1, q5_1) X(Q8_0, q8_0) X(MXFP4, mxfp4) X(IQ4_NL, iq4_nl) X(Q1_0, q1_0) X(Q2_0, q2_0) X(NVFP4, nvfp4)
#define NEON_SUPER(X)                                                                                                  \
    X(Q2_K, q2_k)                                                                                                      \
    X(Q3_K, q3_k) X(Q4_K, q4_k) X(Q5_K, q5_k) X(Q6_K, q6_k) X(IQ4_XS, iq4_xs) NEON_CODES(X) X(TQ2_0, tq2_0)
#define NEON_CODES(X)                                                                                                  \
    X(IQ2_XXS, iq2_xxs)                                                                                                \
    X(IQ2_XS, iq2_xs)                                                                                                  \
    X(IQ2_S, iq2_s) X(IQ3_XXS, iq3_xxs) X(IQ3_S, iq3_s) X(IQ1_S, iq1_s) X(IQ1_M, iq1_m) X(TQ1_0, tq1_0)
#define NEON_FLOAT(X) X(F32, f32) X(F16, f16) X(BF16, bf16)
#define NEON_DECLARE(TYPE, type)                                                                                       \
    DECLARE_MATMUL(ntx__neon_##type);                                                                                  \
    DECLARE_MATMUL(ntx__i8mm_##type);
#define MANY_DECLARE(TYPE, type) DECLARE_MATMUL(ntx__many_##type);
NEON_SIMPLE(NEON_DECLARE)
NEON_SIMPLE(MANY_DECLARE)
NEON_SUPER(NEON_DECLARE)
NEON_SUPER(MANY_DECLARE)
NEON_FLOAT(NEON_DECLARE)

/* A type in high and low bits: n bytes of the whole block, from `begin` on, are split. */
struct neon_split {
    struct split of;
    size_t begin, n, high_at; /* high_at: place of the high bits in their block */
};

INLINE bool is_high(const struct neon_split *split) { return split && split_is_high(&split->of); }

/* Of high bits alone: twice the sum of w x, and what the middle adds, from the sum of x. */
INLINE int32x4_t to_middle(int32x4_t sum, int32x4_t x, const struct neon_split *split)
{
    return vmlaq_n_s32(vaddq_s32(sum, sum), x, (1 << split->of.low_bits) - 1);
}

/* The source of 32 values. ALONE: one row. FIRST, LAST: two rows at once: of each 16 values the first, or last, eight
 * of one row, then of the other. Others: a quarter of an interleaved tile, whose words belong to four outputs. FOURS:
 * of each 16 values, the word-th four of each output; FIRST_TWO, LAST_TWO: eight values from there on of the first, or
 * last, two outputs. fifth: the quarter's fifth bits, where a tile has them. Code that works byte by byte is written
 * once for all sources. */
struct from {
    const uint8_t *a, *b;
    enum { ALONE, FIRST, LAST, FOURS, FIRST_TWO, LAST_TWO } take;
    int word;
    const struct ntx__interleave_pattern *tile;
    const uint8_t *fifth;
    const uint8_t *low;             /* of a row in high and low bits, whose high ones are a; */
    const struct neon_split *split; /* NULL: whole weights */
};

INLINE struct from one_row(const uint8_t *w) { return (struct from){.a = w, .b = w, .take = ALONE}; }
INLINE struct from one_split(const uint8_t *high, const uint8_t *low, const struct neon_split *split)
{
    return (struct from){.a = high, .b = high, .take = ALONE, .low = low, .split = split};
}
INLINE struct from two_rows(const uint8_t *a, const uint8_t *b, const int take)
{
    return (struct from){.a = a, .b = b, .take = take};
}
INLINE uint64_t word64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}
INLINE uint32_t word32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* The first, or last, halves of both, by TRN: older cores need one step for it, and three for ZIP, which the compiler
 * would choose. */
INLINE uint64x2_t first_halves(uint64x2_t a, uint64x2_t b)
{
    uint64x2_t v;
    __asm__("trn1 %0.2d, %1.2d, %2.2d" : "=w"(v) : "w"(a), "w"(b));
    return v;
}

INLINE uint64x2_t last_halves(uint64x2_t a, uint64x2_t b)
{
    uint64x2_t v;
    __asm__("trn2 %0.2d, %1.2d, %2.2d" : "=w"(v) : "w"(a), "w"(b));
    return v;
}

INLINE struct from quarter(const uint8_t *words, const int take, int word, const struct ntx__interleave_pattern *tile,
                           const uint8_t *fifth)
{
    return (struct from){.a = words, .b = words, .take = take, .word = word, .tile = tile, .fifth = fifth};
}

/* A quarter's word at offset `at` of a block, or a later word. */
INLINE uint32x4_t tile_word(struct from w, size_t at, int later)
{
    const size_t behind = at - ntx__behind_head(w.tile),
                 group = w.tile->place ? w.tile->place[behind / 16] : behind / 16;
    return vreinterpretq_u32_u8(vld1q_u8(w.a + 64 * (4 * group + behind % 16 / 4 + (size_t)later)));
}

/* Bits of `yes` where the mask's byte has ones, else of `no`. */
INLINE uint8x16_t select_bits(uint8_t mask, uint8x16_t yes, uint8x16_t no)
{
    return vbslq_u8(vdupq_n_u8(mask), yes, no);
}

/* The g-th 16 of a block's split bytes (ntx_planes_join_1, _2, _4). */
INLINE uint8x16_t split_bytes(struct from w, const size_t g)
{
    const struct neon_split *s = w.split;
    const uint8_t *high = w.a + s->high_at, *low = w.low;
    const bool coarse = !s->of.low_bytes;
    if (s->of.low_bits == 4) { /* 32 bytes */
        const uint8x16_t h = vld1q_u8(high), l = coarse ? vdupq_n_u8(0) : vld1q_u8(low);
        return g ? select_bits(0xf0, h, vshrq_n_u8(l, 4)) : select_bits(0xf0, vshlq_n_u8(h, 4), l);
    }
    if (s->n == 16) {
        static const int8_t up[16] = {2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0},
                            down[16] = {0, 0, 0, 0, 0, 0, 0, 0, -2, -2, -2, -2, -2, -2, -2, -2};
        const uint8x8_t h = vld1_u8(high), l = coarse ? vdup_n_u8(0) : vld1_u8(low);
        return select_bits(0xcc, vshlq_u8(vcombine_u8(h, h), vld1q_s8(up)),
                           vshlq_u8(vcombine_u8(l, l), vld1q_s8(down)));
    }
    const uint8x16_t h = vld1q_u8(high + 16 * (g % 4));
    uint8x16_t l; /* the lower two bits of the nibbles, as a block with two low bits has them */
    if (s->of.low_bits == 2) {
        l = coarse ? vdupq_n_u8(0) : vld1q_u8(low + 16 * (g % 4));
    } else {
        const uint8x16_t next = vld1q_u8(high + 64 + 16 * (g % 2)),
                         last = coarse ? vdupq_n_u8(0) : vld1q_u8(low + 16 * (g % 2));
        l = g % 4 < 2 ? select_bits(0xaa, vshlq_n_u8(next, 1), last) : select_bits(0xaa, next, vshrq_n_u8(last, 1));
    }
    return g < 4 ? select_bits(0xcc, vshlq_n_u8(h, 2), l) : select_bits(0xcc, h, vshrq_n_u8(l, 2));
}

/* 16 bytes at offset `at` of the whole block. */
INLINE uint8x16_t bytes16(struct from w, size_t at)
{
    if (w.split && at >= w.split->begin && at < w.split->begin + w.split->n)
        return split_bytes(w, (at - w.split->begin) / 16);
    if (w.split && at >= w.split->begin)
        at -= w.split->n;
    if (w.take == FOURS)
        return vreinterpretq_u8_u32(tile_word(w, at, w.word));
    if (w.take > FOURS) {
        const uint32x4_t low = tile_word(w, at, w.word), high = tile_word(w, at, w.word + 1);
        return vreinterpretq_u8_u32(w.take == FIRST_TWO ? vzip1q_u32(low, high) : vzip2q_u32(low, high));
    }
    const uint64x2_t a = vreinterpretq_u64_u8(vld1q_u8(w.a + at));
    if (w.take == ALONE)
        return vreinterpretq_u8_u64(a);
    const uint64x2_t b = vreinterpretq_u64_u8(vld1q_u8(w.b + at));
    return vreinterpretq_u8_u64(w.take == FIRST ? first_halves(a, b) : last_halves(a, b));
}

INLINE struct pair load_pair(const void *p) { return (struct pair){{vld1q_s8(p), vld1q_s8((const int8_t *)p + 16)}}; }
INLINE uint8x16_t low_nibbles(uint8x16_t v) { return vandq_u8(v, vdupq_n_u8(15)); }
INLINE struct pair pair_u8(uint8x16_t a, uint8x16_t b)
{
    return (struct pair){{vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b)}};
}
INLINE struct pair nibbles(struct from w, size_t at)
{
    uint8x16_t v = bytes16(w, at);
    return pair_u8(low_nibbles(v), vshrq_n_u8(v, 4));
}

/* For each of 32 bits, the byte that has it. */
INLINE struct pair bytes_of_bits(struct from w, size_t at)
{
    static const uint8_t spread[3][16] = {{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
                                          {0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4},
                                          {1, 1, 1, 1, 1, 1, 1, 1, 5, 5, 5, 5, 5, 5, 5, 5}};
    const uint8x16_t which = vld1q_u8(spread[w.take]);
    const uint8x16_t all = w.take == ALONE
                               ? vreinterpretq_u8_u32(vdupq_n_u32(word32(w.a + at)))
                               : vreinterpretq_u8_u64(vdupq_n_u64(word32(w.a + at) | (uint64_t)word32(w.b + at) << 32));
    return pair_u8(vqtbl1q_u8(all, which), vqtbl1q_u8(all, vaddq_u8(which, vdupq_n_u8(2))));
}

/* Byte k is all ones if bit k is set, else 0. */
INLINE struct pair bit_masks(struct from w, size_t at)
{
    const int8x16_t bit = vreinterpretq_s8_u64(vdupq_n_u64(0x8040201008040201u));
    const struct pair p = bytes_of_bits(w, at);
    return pair_u8(vtstq_s8(p.v[0], bit), vtstq_s8(p.v[1], bit));
}

INLINE struct pair looked_up(struct pair p, const int8_t *values)
{
    const int8x16_t table = vld1q_s8(values);
    return (struct pair){
        {vqtbl1q_s8(table, vreinterpretq_u8_s8(p.v[0])), vqtbl1q_s8(table, vreinterpretq_u8_s8(p.v[1]))}};
}

/* ---- blocks of 32, and of several 32s that share a head. values(w, part): the part-th 32 values of a block, each
 * `offset` too large. */

enum scales { HALF_WORD, EXPONENT /* a byte */, TWO_E4M3 /* bytes, of 16 values each */ };

struct simple_kind {
    size_t block_bytes;
    uint32_t parts; /* of a block */
    struct pair (*values)(struct from w, uint32_t part);
    enum scales scales;
    int offset_log2;                /* 0: none */
    bool has_min;                   /* a half word after the scale */
    const struct neon_split *split; /* of weights in high and low bits, and the row's low bits */
    const uint8_t *low;
};

static const int8_t neon_mxfp4[16] __attribute__((unused)) = {NTX_VALUES_mxfp4};
static const int8_t neon_iq4_nl[16] __attribute__((unused)) = {NTX_VALUES_iq4_nl};

INLINE struct pair values_q4_0(struct from w, uint32_t part)
{
    (void)part;
    return nibbles(w, 2);
}
INLINE struct pair values_q4_1(struct from w, uint32_t part)
{
    (void)part;
    return nibbles(w, 4);
}
INLINE struct pair values_q8_0(struct from w, uint32_t part)
{
    (void)part;
    return pair_u8(bytes16(w, 2), bytes16(w, 18));
}
INLINE struct pair values_mxfp4(struct from w, uint32_t part)
{
    (void)part;
    return looked_up(nibbles(w, 1), neon_mxfp4);
}
INLINE struct pair values_iq4_nl(struct from w, uint32_t part)
{
    (void)part;
    return looked_up(nibbles(w, 2), neon_iq4_nl);
}

/* A byte has four values: it is spread to four bytes, each of which takes two bits. */
INLINE struct pair values_q2_0(struct from w, uint32_t part)
{
    static const uint8_t spread[3][16] = {{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3},
                                          {0, 0, 0, 0, 1, 1, 1, 1, 8, 8, 8, 8, 9, 9, 9, 9},
                                          {2, 2, 2, 2, 3, 3, 3, 3, 10, 10, 10, 10, 11, 11, 11, 11}};
    static const int8_t right[16] = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
    const uint8x16_t v = vcombine_u8(vld1_u8(w.a + 2 + 8 * part),
                                     w.take == ALONE ? vdup_n_u8(0) : vld1_u8(w.b + 2 + 8 * part)),
                     at = vld1q_u8(spread[w.take]), three = vdupq_n_u8(3);
    const int8x16_t by = vld1q_s8(right);
    const uint8x16_t a = vandq_u8(vshlq_u8(vqtbl1q_u8(v, at), by), three),
                     b = vandq_u8(vshlq_u8(vqtbl1q_u8(v, vaddq_u8(at, vdupq_n_u8(4))), by), three);
    return pair_u8(a, b);
}

/* Each 16 values have eight bytes: low nibbles, then high ones. One row gives the first eight of both 16s, then the
 * others. */
INLINE struct pair values_nvfp4(struct from w, uint32_t part)
{
    const size_t at = 4 + 16 * part;
    if (w.take == ALONE)
        return looked_up(nibbles(w, at), neon_mxfp4);
    const struct pair a = nibbles(two_rows(w.a, w.b, FIRST), at), b = nibbles(two_rows(w.a, w.b, LAST), at);
    const int k = w.take == LAST;
    return looked_up((struct pair){{a.v[k], b.v[k]}}, neon_mxfp4);
}

#define KIND static const __attribute__((unused))
#define SIMPLE_KINDS                                                                                                   \
    KIND struct simple_kind simple_q4_0 = {18, 1, values_q4_0, HALF_WORD, 3, false, NULL, NULL};                       \
    KIND struct simple_kind simple_q4_1 = {20, 1, values_q4_1, HALF_WORD, 0, true, NULL, NULL};                        \
    KIND struct simple_kind simple_q5_0 = {22, 1, values_q5_0, HALF_WORD, 4, false, NULL, NULL};                       \
    KIND struct simple_kind simple_q5_1 = {24, 1, values_q5_1, HALF_WORD, 0, true, NULL, NULL};                        \
    KIND struct simple_kind simple_q8_0 = {34, 1, values_q8_0, HALF_WORD, 0, false, NULL, NULL};                       \
    KIND struct simple_kind simple_mxfp4 = {17, 1, values_mxfp4, EXPONENT, 0, false, NULL, NULL};                      \
    KIND struct simple_kind simple_iq4_nl = {18, 1, values_iq4_nl, HALF_WORD, 0, false, NULL, NULL};                   \
    KIND struct simple_kind simple_q1_0 = {18, 4, values_q1_0, HALF_WORD, 0, false, NULL, NULL};                       \
    KIND struct simple_kind simple_q2_0 = {18, 2, values_q2_0, HALF_WORD, -1 /* one */, false, NULL, NULL};            \
    KIND struct simple_kind simple_nvfp4 = {36, 2, values_nvfp4, TWO_E4M3, 0, false, NULL, NULL};

INLINE int offset_of(const struct simple_kind *kind)
{
    if (kind->offset_log2 < 0)
        return 1;
    return kind->offset_log2 ? 1 << kind->offset_log2 : 0;
}

INLINE float head_float(const uint8_t *p)
{
    __fp16 h;
    memcpy(&h, p, 2);
    return (float)h;
}

/* An integer sum below 2^22, added to MAGIC's bits, gives the bits of the sum plus MAGIC as a float. */
#define MAGIC 0x1.8p23f
enum { MAGIC_BITS = 0x4b400000 };

INLINE float32x4_t float_sum(int32x4_t sum) { return vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(MAGIC)); }

/* Scales of four blocks that are half words, and the minima that follow them. */
INLINE void four_heads(const uint8_t *const p[4], const bool has_min, float32x4_t *d, float32x4_t *m)
{
    uint16x4_t h = vdup_n_u16(0);
    uint32x4_t both = vdupq_n_u32(0);
    if (!has_min) {
        h = vld1_lane_u16((const uint16_t *)(const void *)p[0], h, 0);
        h = vld1_lane_u16((const uint16_t *)(const void *)p[1], h, 1);
        h = vld1_lane_u16((const uint16_t *)(const void *)p[2], h, 2);
        h = vld1_lane_u16((const uint16_t *)(const void *)p[3], h, 3);
        *d = vcvt_f32_f16(vreinterpret_f16_u16(h));
        return;
    }
    both = vld1q_lane_u32((const uint32_t *)(const void *)p[0], both, 0);
    both = vld1q_lane_u32((const uint32_t *)(const void *)p[1], both, 1);
    both = vld1q_lane_u32((const uint32_t *)(const void *)p[2], both, 2);
    both = vld1q_lane_u32((const uint32_t *)(const void *)p[3], both, 3);
    *d = vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(both)));
    *m = vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(both, 16)));
}

/* ntx_e4m3_half_float of eight: an F16 begins with the same mantissa bits; its exponent is greater by 8. */
INLINE void e4m3_halves(uint8x8_t v, float32x4_t to[2])
{
    v = vand_u8(vbic_u8(v, vceq_u8(v, vdup_n_u8(0x7f))), vdup_n_u8(0x7f));
    const float16x8_t h = vreinterpretq_f16_u16(vshll_n_u8(v, 7));
    to[0] = vmulq_n_f32(vcvt_f32_f16(vget_low_f16(h)), 128);
    to[1] = vmulq_n_f32(vcvt_high_f32_f16(h), 128);
}

/* Forces a load: a copy of a register would occupy a multiply pipe. */
INLINE int32x4_t loaded_again(const int32_t *p)
{
    int32x4_t v;
    __asm__("ldr %q0, %1" : "=w"(v) : "m"(*(const int32x4_t *)(const void *)p));
    return v;
}

/* 32 values of two outputs, eight by eight. */
struct quad {
    int8x16_t v[4];
};

#define QUAD(kind, w0, w1, part)                                                                                       \
    ({                                                                                                                 \
        const struct pair first = (kind)->values(two_rows(w0, w1, FIRST), part),                                       \
                          last = (kind)->values(two_rows(w0, w1, LAST), part);                                         \
        (struct quad){{first.v[0], last.v[0], first.v[1], last.v[1]}};                                                 \
    })

/* The weights of four outputs; if there are fewer, the last is repeated. */
INLINE void outputs_at(const struct shape *s, uint32_t o, const uint8_t *w[4])
{
    for (uint32_t k = 0; k < 4; k++)
        w[k] = s->w + (size_t)(o + k < s->n_out ? o + k : s->n_out - 1) * s->row_bytes;
}

/* ---- super-blocks of 256. values(w, t): values 32 t .. 32 t + 31, each `offset` too large; scales(w, s, min): 16 of
 * each, or 8 if 32 values share one. */

enum { ADDED = -2 };

struct super_kind {
    size_t block_bytes;
    struct pair (*values)(struct from w, int t);
    void (*scales)(const uint8_t *w, int16x8_t s[2], int16x8_t min[2]);
    uint16_t (*d)(const uint8_t *w);
    float times; /* factor of d */
    int offset;
    int dmin_at; /* -1: no minima; ADDED: min times sums of x is part of the integer sum */
    bool by_16;
    bool flat;                      /* all scales are 1 */
    const struct neon_split *split; /* of weights in high and low bits, and the row's low bits */
    const uint8_t *low;
};

INLINE uint8x16_t shifted(uint8x16_t v, int right) /* negative: to the left */
{
    if (right > 0)
        return v >> right;
    return right < 0 ? v << -right : v;
}

INLINE struct pair two_bits(struct from w, size_t at, int shift)
{
    const uint8x16_t a = shifted(bytes16(w, at), shift), b = shifted(bytes16(w, at + 16), shift), three = vdupq_n_u8(3);
    return shift == 6 ? pair_u8(a, b) : pair_u8(vandq_u8(a, three), vandq_u8(b, three));
}

/* p with the bits of the mask replaced by those of the 32 shifted bytes at `at`. */
INLINE struct pair with_bits(struct pair p, struct from w, size_t at, int shift, uint8_t mask)
{
    const uint8x16_t m = vdupq_n_u8(mask);
    return pair_u8(vbslq_u8(m, shifted(bytes16(w, at), shift), vreinterpretq_u8_s8(p.v[0])),
                   vbslq_u8(m, shifted(bytes16(w, at + 16), shift), vreinterpretq_u8_s8(p.v[1])));
}

INLINE struct pair some_nibbles(struct from w, size_t at, bool high)
{
    const uint8x16_t a = bytes16(w, at), b = bytes16(w, at + 16);
    return high ? pair_u8(vshrq_n_u8(a, 4), vshrq_n_u8(b, 4)) : pair_u8(low_nibbles(a), low_nibbles(b));
}

INLINE struct pair values_q4_k(struct from w, int t) { return some_nibbles(w, 16 + t / 2 * 32, t % 2); }
INLINE struct pair values_q5_k(struct from w, int t)
{
    return with_bits(some_nibbles(w, 48 + t / 2 * 32, t % 2), w, 16, t - 4, 16);
}
INLINE struct pair values_q2_k(struct from w, int t) { return two_bits(w, 16 + t / 4 * 32, t % 4 * 2); }
INLINE struct pair values_q3_k(struct from w, int t)
{
    return with_bits(two_bits(w, 32 + t / 4 * 32, t % 4 * 2), w, 0, t - 2, 4);
}
INLINE struct pair values_tq2_0(struct from w, int t) { return two_bits(w, t / 4 * 32, t % 4 * 2); }

/* A nibble of q below two bits of h. */
INLINE uint8x16_t six_bits(uint8x16_t q, uint8x16_t h, int run)
{
    const uint8x16_t six = vdupq_n_u8(63);
    switch (run) {
    case 0: return vandq_u8(vsliq_n_u8(q, h, 4), six);
    case 1: return vandq_u8(vsliq_n_u8(q, vshrq_n_u8(h, 2), 4), six);
    case 2: return vandq_u8(vsriq_n_u8(h, q, 4), six);
    default: return vsriq_n_u8(vshrq_n_u8(h, 2), q, 4);
    }
}

INLINE struct pair values_q6_k(struct from w, int t)
{
    const int run = t % 4;
    const size_t q = t / 4 * 64 + run % 2 * 32, h = 128 + t / 4 * 32;
    return pair_u8(six_bits(bytes16(w, q), bytes16(w, h), run), six_bits(bytes16(w, q + 16), bytes16(w, h + 16), run));
}

INLINE struct pair values_iq4_xs(struct from w, int t) { return looked_up(nibbles(w, 8 + 16 * t), neon_iq4_nl); }

INLINE int16x8_t widened(uint8x8_t v) { return vreinterpretq_s16_u16(vmovl_u8(v)); }

/* 8 scales and 8 minima of 6 bits in 12 bytes: the first four whole in bytes 0..3 and 4..7, the others split. */
INLINE void scales_k(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    uint32_t a, b, c;
    memcpy(&a, w + 4, 4);
    memcpy(&b, w + 8, 4);
    memcpy(&c, w + 12, 4);
    const uint32_t low = 0x3f3f3f3f, nibble = 0x0f0f0f0f, top = 0x30303030;
    s[0] = widened(vcreate_u8((a & low) | (uint64_t)((c & nibble) | (a >> 2 & top)) << 32));
    min[0] = widened(vcreate_u8((b & low) | (uint64_t)((c >> 4 & nibble) | (b >> 2 & top)) << 32));
}

INLINE void scales_q2_k(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    const uint8x16_t v = vld1q_u8(w), low = low_nibbles(v), high = vshrq_n_u8(v, 4);
    s[0] = widened(vget_low_u8(low));
    s[1] = widened(vget_high_u8(low));
    min[0] = widened(vget_low_u8(high));
    min[1] = widened(vget_high_u8(high));
}

INLINE void widen_scales(int8x16_t v, int16x8_t s[2])
{
    s[0] = vmovl_s8(vget_low_s8(v));
    s[1] = vmovl_s8(vget_high_s8(v));
}

/* 16 scales of 6 bits, 32 too large: low nibbles in bytes 0..7, then the high ones; pairs of bits in 8..11. */
INLINE void scales_q3_k(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    static const int8_t right[16] = {0, 0, 0, 0, -2, -2, -2, -2, -4, -4, -4, -4, -6, -6, -6, -6};
    uint32_t pairs;
    (void)min;
    memcpy(&pairs, w + 104, 4);
    const uint8x8_t n = vld1_u8(w + 96);
    const uint8x16_t low = vcombine_u8(vand_u8(n, vdup_n_u8(15)), vshr_n_u8(n, 4));
    const uint8x16_t high = vandq_u8(vshlq_u8(vreinterpretq_u8_u32(vdupq_n_u32(pairs)), vld1q_s8(right)),
                                     vdupq_n_u8(3));
    widen_scales(vsubq_s8(vreinterpretq_s8_u8(vorrq_u8(low, vshlq_n_u8(high, 4))), vdupq_n_s8(32)), s);
}

INLINE void scales_q6_k(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    (void)min;
    widen_scales(vld1q_s8((const int8_t *)w + 192), s);
}

/* Eight scales of 6 bits, 32 too large. */
INLINE void scales_iq4_xs(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    uint16_t high;
    (void)min;
    memcpy(&high, w + 2, 2);
    uint64_t low = word32(w + 4), top = high; /* spread over bytes by integer instructions, beside the vector ones */
    low = (low | low << 16) & 0x0000ffff0000ffff;
    low = (low | low << 8) & 0x00ff00ff00ff00ff;
    low = (low | low << 4) & 0x0f0f0f0f0f0f0f0f;
    top = (top | top << 24) & 0x000000ff000000ff;
    top = (top | top << 12) & 0x000f000f000f000f;
    top = (top | top << 6) & 0x0303030303030303;
    s[0] = vreinterpretq_s16_u16(vsubl_u8(vcreate_u8(low | top << 4), vdup_n_u8(32)));
}

INLINE void scales_one(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    (void)w;
    (void)min;
    s[0] = vdupq_n_s16(1);
}

INLINE uint16_t half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return h;
}
INLINE uint16_t d_first(const uint8_t *w) { return half_at(w); }
INLINE uint16_t d_q2_k(const uint8_t *w) { return half_at(w + 80); }
INLINE uint16_t d_q3_k(const uint8_t *w) { return half_at(w + 108); }
INLINE uint16_t d_q6_k(const uint8_t *w) { return half_at(w + 208); }
INLINE uint16_t d_tq1_0(const uint8_t *w) { return half_at(w + 52); }
INLINE uint16_t d_tq2_0(const uint8_t *w) { return half_at(w + 64); }
INLINE uint16_t d_iq1_m(const uint8_t *w) { return ntx__spread_half(w + 48); }

/* Four halves as floats, the first in the lowest bits. */
INLINE float32x4_t four_halves(uint64_t h) { return vcvt_f32_f16(vcreate_f16(h)); }

#include "computed/cpu/neon_codes.h"

#define SUPER_KINDS                                                                                                    \
    KIND struct super_kind super_q2_k = {84, values_q2_k, scales_q2_k, d_q2_k, 1, 0, 82, true, false, NULL, NULL};     \
    KIND struct super_kind super_q3_k = {110, values_q3_k, scales_q3_k, d_q3_k, 1, 4, -1, true, false, NULL, NULL};    \
    KIND struct super_kind super_q4_k = {144, values_q4_k, scales_k, d_first, 1, 0, 2, false, false, NULL, NULL};      \
    KIND struct super_kind super_q5_k = {176, values_q5_k, scales_k, d_first, 1, 0, 2, false, false, NULL, NULL};      \
    KIND struct super_kind super_q6_k = {210, values_q6_k, scales_q6_k, d_q6_k, 1, 32, -1, true, false, NULL, NULL};   \
    KIND struct super_kind super_iq4_xs = {136, values_iq4_xs, scales_iq4_xs, d_first, 1,   0,                         \
                                           -1,  false,         false,         NULL,    NULL};                          \
    KIND struct super_kind super_tq2_0 = {66, values_tq2_0, scales_one, d_tq2_0, 1, 1, -1, false, true, NULL, NULL};   \
    KIND struct super_kind super_iq2_xxs = {66, values_iq2_xxs, scales_iq2_xxs, d_first, 0.125f, 0,                    \
                                            -1, false,          false,          NULL,    NULL};                        \
    KIND struct super_kind super_iq2_xs = {74, values_iq2_xs, scales_iq2_xs, d_first, 0.125f, 0,                       \
                                           -1, true,          false,         NULL,    NULL};                           \
    KIND struct super_kind super_iq2_s = {82, values_iq2_s, scales_iq2_s, d_first, 0.125f, 0,                          \
                                          -1, true,         false,        NULL,    NULL};                              \
    KIND struct super_kind super_iq3_xxs = {98, values_iq3_xxs, scales_iq3_xxs, d_first, 0.25f, 0,                     \
                                            -1, false,          false,          NULL,    NULL};                        \
    KIND struct super_kind super_iq3_s = {                                                                             \
        110, values_iq3_s, scales_iq3_s, d_first, 1, 0, -1, false, false, NULL, NULL};                                 \
    KIND struct super_kind super_iq1_s = {50,    values_iq1_s, scales_iq1_s, d_first, 0.125f, 0,                       \
                                          ADDED, false,        false,        NULL,    NULL};                           \
    KIND struct super_kind super_iq1_m = {56, values_iq1_m, scales_iq1_m, d_iq1_m, 0.125f, 0,                          \
                                          -1, true,         false,        NULL,    NULL};                              \
    KIND struct super_kind super_tq1_0 = {54, values_tq1_0, scales_one, d_tq1_0, 1, 0, -1, false, true, NULL, NULL};

/* ---- sums */

/* Element k: the sum of v[k]'s four elements. */
INLINE int32x4_t sum4x4(const int32x4_t v[4]) { return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3])); }

/* The fixed tree over 16 lanes in four registers. */
INLINE float join_quads(const float32x4_t a[4])
{
    float32x4_t v = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
    float32x2_t h = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}

/* All ones in the first n of 4 lanes. */
INLINE uint32x4_t first_lanes(uint32_t n)
{
    static const uint32_t lane[4] = {0, 1, 2, 3};
    return vcltq_u32(vld1q_u32(lane), vdupq_n_u32(n));
}

/* acc + a * b in the first n lanes, acc's bits elsewhere. */
INLINE float32x4_t fma_first(float32x4_t acc, float32x4_t a, float32x4_t b, uint32_t n)
{
    float32x4_t v = vfmaq_f32(acc, a, b);
    return n < 4 ? vbslq_f32(first_lanes(n), v, acc) : v;
}

/* Adds blocks b .. b + 3 of one output times `rows` rows of x to a quarter of the lanes; n of the blocks exist. x,
 * kind: defined by each file. */
typedef void quad_fn(const uint8_t *w, uint32_t b, uint32_t n, const void *x, const int rows, const void *kind,
                     float32x4_t *acc);

/* All outputs, nb blocks each. ahead: bytes of 16 blocks, which are prefetched and computed without a loop; 0: four
 * blocks at a time, with prefetches in quad(). */
INLINE void quad_rows(const struct shape *s, uint32_t row, const int rows, const uint32_t nb, const void *x,
                      const void *kind, quad_fn *quad, const size_t ahead)
{
    for (uint32_t o = 0; o < s->n_out; o++) {
        const uint8_t *w = s->w + o * s->row_bytes;
        float32x4_t acc[4][NEON_ROWS];
        for (int q = 0; q < 4; q++)
            for (int r = 0; r < rows; r++)
                acc[q][r] = vdupq_n_f32(0);
        uint32_t b = 0;
        for (; ahead && nb - b >= 16; b += 16) {
            prefetch_weights(w + b / 16 * ahead, ahead, 1024, REACH_NEAR);
#pragma GCC unroll 4
            for (uint32_t q = 0; q < 4; q++)
                quad(w, b + 4 * q, 4, x, rows, kind, acc[q]);
        }
        for (; b < nb; b += 4)
            quad(w, b, nb - b < 4 ? nb - b : 4, x, rows, kind, acc[b / 4 % 4]);
        for (int r = 0; r < rows; r++) {
            const float32x4_t a[4] = {acc[0][r], acc[1][r], acc[2][r], acc[3][r]};
            s->y[(row + (size_t)r) * s->ldy + o] = join_quads(a);
        }
    }
}

/* Bytes of a band of outputs, whose weights stay in the cache for all rows. */
enum { BAND = 64 << 10 };

typedef void rows_fn(const struct shape *s, uint32_t row);

INLINE void by_rows(const struct shape *all, rows_fn *four, rows_fn *two, rows_fn *one)
{
    const uint32_t band = all->row_bytes < BAND ? (uint32_t)(BAND / all->row_bytes) : 1;
    for (uint32_t o = 0; o < all->n_out; o += band) {
        struct shape s = *all;
        uint32_t r = 0;
        s.w += o * s.row_bytes;
        s.y += o;
        s.n_out = all->n_out - o < band ? all->n_out - o : band;
        for (; four && s.n_rows - r >= 4; r += 4)
            four(&s, r);
        for (; s.n_rows - r >= 2; r += 2)
            two(&s, r);
        if (r < s.n_rows)
            one(&s, r);
    }
}

/* Bytes that neon_many.c keeps per row and block of x: its bytes twice, start values of sums or a sum of x, and a
 * scale. */
enum { MANY_BYTES = 2 * NTX_QK + 16 + 4 };

INLINE size_t many_bytes(uint32_t n_in, uint32_t rows) { return (size_t)n_in / NTX_QK * MANY_BYTES * rows; }

#endif
