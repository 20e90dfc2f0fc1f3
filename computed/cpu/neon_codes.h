/* SPDX-License-Identifier: Apache-2.0 */
/* neon_codes.h: part of neon.h: values and scales of i-quants with codebooks, of TQ1_0, and of types with a bit for
 * each value. A code looks up 8 or 4 values; seven signs look up eight factors; whole bytes of signs become masks. */
#ifndef NTX_COMPUTED_CPU_NEON_CODES_H
#define NTX_COMPUTED_CPU_NEON_CODES_H

#include "computed/cpu/codebooks.h"

/* Table: for seven sign bits, eight factors of 1 and -1 with an even number of minuses. */
#define FACTOR(s, i) ((uint64_t)((s) >> (i)&1 ? 255 : 1) << 8 * (i))
#define ODD(s)       (((s) ^ (s) >> 1 ^ (s) >> 2 ^ (s) >> 3 ^ (s) >> 4 ^ (s) >> 5 ^ (s) >> 6) & 1)
#define FACTORS(s)                                                                                                     \
    FACTOR(s, 0) | FACTOR(s, 1) | FACTOR(s, 2) | FACTOR(s, 3) | FACTOR(s, 4) | FACTOR(s, 5) | FACTOR(s, 6) |           \
        (uint64_t)(ODD(s) ? 255 : 1) << 56,
#define FACTORS_4(s)  FACTORS(s) FACTORS((s) + 1) FACTORS((s) + 2) FACTORS((s) + 3)
#define FACTORS_16(s) FACTORS_4(s) FACTORS_4((s) + 4) FACTORS_4((s) + 8) FACTORS_4((s) + 12)
static const uint64_t neon_factors[128] = {FACTORS_16(0) FACTORS_16(16) FACTORS_16(32) FACTORS_16(48) FACTORS_16(64)
                                               FACTORS_16(80) FACTORS_16(96) FACTORS_16(112)};

/* Table: for eight bits, the values of Q1_0. */
#define SIGNS(s)                                                                                                       \
    FACTOR((s) ^ 255, 0) | FACTOR((s) ^ 255, 1) | FACTOR((s) ^ 255, 2) | FACTOR((s) ^ 255, 3) | FACTOR((s) ^ 255, 4) | \
        FACTOR((s) ^ 255, 5) | FACTOR((s) ^ 255, 6) | FACTOR((s) ^ 255, 7),
#define SIGNS_8(s)                                                                                                     \
    SIGNS(s) SIGNS((s) + 1) SIGNS((s) + 2) SIGNS((s) + 3) SIGNS((s) + 4) SIGNS((s) + 5) SIGNS((s) + 6) SIGNS((s) + 7)
#define SIGNS_64(s)                                                                                                    \
    SIGNS_8(s)                                                                                                         \
    SIGNS_8((s) + 8)                                                                                                   \
    SIGNS_8((s) + 16) SIGNS_8((s) + 24) SIGNS_8((s) + 32) SIGNS_8((s) + 40) SIGNS_8((s) + 48) SIGNS_8((s) + 56)
static const uint64_t neon_signs[256] = {SIGNS_64(0) SIGNS_64(64) SIGNS_64(128) SIGNS_64(192)};

/* Table: for eight fifth bits, what they add to eight values of four bits. */
#define FIFTH(s, i) ((uint64_t)((s) >> (i)&1) << (8 * (i) + 4))
#define FIFTHS(s)                                                                                                      \
    FIFTH(s, 0) | FIFTH(s, 1) | FIFTH(s, 2) | FIFTH(s, 3) | FIFTH(s, 4) | FIFTH(s, 5) | FIFTH(s, 6) | FIFTH(s, 7),
#define FIFTHS_8(s)                                                                                                    \
    FIFTHS(s)                                                                                                          \
    FIFTHS((s) + 1) FIFTHS((s) + 2) FIFTHS((s) + 3) FIFTHS((s) + 4) FIFTHS((s) + 5) FIFTHS((s) + 6) FIFTHS((s) + 7)
#define FIFTHS_64(s)                                                                                                   \
    FIFTHS_8(s)                                                                                                        \
    FIFTHS_8((s) + 8)                                                                                                  \
    FIFTHS_8((s) + 16) FIFTHS_8((s) + 24) FIFTHS_8((s) + 32) FIFTHS_8((s) + 40) FIFTHS_8((s) + 48) FIFTHS_8((s) + 56)
static const uint64_t neon_fifths[256] = {FIFTHS_64(0) FIFTHS_64(64) FIFTHS_64(128) FIFTHS_64(192)};

INLINE int8x16_t two_x8(const uint64_t *codebook, size_t a, size_t b)
{
    return vreinterpretq_s8_u64(vld1q_lane_u64(codebook + b, vcombine_u64(vld1_u64(codebook + a), vcreate_u64(0)), 1));
}

/* The same by two plain loads, which take an index; a load to a register's half needs an address that is computed
 * first. */
INLINE int8x16_t zipped_x8(const uint64_t *codebook, size_t a, size_t b)
{
    const uint64x1_t none = vcreate_u64(0);
    return vreinterpretq_s8_u64(
        vzip1q_u64(vcombine_u64(vld1_u64(codebook + a), none), vcombine_u64(vld1_u64(codebook + b), none)));
}

/* Bit fields with indices, of one row or two. */
struct fields {
    uint64_t a, b;
};

/* Looks up four entries of eight values: by `width` bits from bit `at` on, in fields of `step` bits. */
INLINE struct pair four_x8(const uint64_t *codebook, struct from w, struct fields f, int at, int step, int width)
{
    const size_t most = ((size_t)1 << width) - 1;
    const int k = at + (w.take == LAST ? step : 0);
    if (w.take == ALONE)
        return (struct pair){{two_x8(codebook, f.a >> k & most, f.a >> (k + step) & most),
                              two_x8(codebook, f.a >> (k + 2 * step) & most, f.a >> (k + 3 * step) & most)}};
    return (struct pair){{zipped_x8(codebook, f.a >> k & most, f.b >> k & most),
                          zipped_x8(codebook, f.a >> (k + 2 * step) & most, f.b >> (k + 2 * step) & most)}};
}

/* Looks up four entries of four values: by four fields of a row, or by two fields of each of two rows. */
INLINE int8x16_t four_x4(const uint32_t *codebook, struct from w, struct fields f, int step)
{
    const size_t most = ((size_t)1 << (step == 8 ? 8 : 9)) - 1;
    const uint64_t low = w.take == LAST ? f.a >> 2 * step : f.a, other = w.take == FIRST ? f.b : f.b >> 2 * step,
                   high = w.take == ALONE ? f.a >> 2 * step : other;
    uint32x4_t v = vld1q_dup_u32(codebook + (low & most));
    v = vld1q_lane_u32(codebook + (low >> step & most), v, 1);
    v = vld1q_lane_u32(codebook + (high & most), v, 2);
    return vreinterpretq_s8_u32(vld1q_lane_u32(codebook + (high >> step & most), v, 3));
}

INLINE struct pair times(struct pair v, struct pair f)
{
    return (struct pair){{vmulq_s8(v.v[0], f.v[0]), vmulq_s8(v.v[1], f.v[1])}};
}

INLINE int8x16_t negated(int8x16_t v, int8x16_t where) { return vsubq_s8(veorq_s8(v, where), where); }

INLINE struct pair with_signs(struct pair v, struct from w, size_t at)
{
    const struct pair m = bit_masks(w, at);
    return (struct pair){{negated(v.v[0], m.v[0]), negated(v.v[1], m.v[1])}};
}

/* Four indices: bytes of q with bits of `high` above, which is shifted left by left[l] for index l, and masked. */
INLINE uint64_t four_indices(const uint8_t *q, uint16_t high, const int16_t *left, uint16_t mask)
{
    const uint16x4_t low = vget_low_u16(vmovl_u8(vcreate_u8(word32(q)))),
                     up = vand_u16(vshl_u16(vdup_n_u16(high), vld1_s16(left)), vdup_n_u16(mask));
    return vget_lane_u64(vreinterpret_u64_u16(vorr_u16(low, up)), 0);
}

INLINE struct fields words64(struct from w, size_t at) { return (struct fields){word64(w.a + at), word64(w.b + at)}; }

INLINE struct fields words32(struct from w, size_t at) { return (struct fields){word32(w.a + at), word32(w.b + at)}; }

INLINE struct pair values_q1_0(struct from w, uint32_t part)
{
    return four_x8(neon_signs, w, words32(w, 2 + 4 * part), 0, 8, 8);
}

/* A tile's fifth bits of the word-th four columns, of `half` of 32, as 16 or 0. */
INLINE uint8x16_t tile_fifths(struct from w, int word, int half)
{
    const uint8x16_t all = vld1q_u8(w.fifth);
    return vandq_u8(vshlq_u8(all, vdupq_n_s8((int8_t)(4 - word - 4 * half))), vdupq_n_u8(16));
}

INLINE int8x16_t with_tile_fifths(int8x16_t v, struct from w, int half)
{
    const uint32x4_t low = vreinterpretq_u32_u8(tile_fifths(w, w.word, half)),
                     high = vreinterpretq_u32_u8(tile_fifths(w, w.word + 1, half));
    uint32x4_t f = low;
    if (w.take > FOURS)
        f = w.take == FIRST_TWO ? vzip1q_u32(low, high) : vzip2q_u32(low, high);
    return vorrq_s8(v, vreinterpretq_s8_u32(f));
}

INLINE struct pair with_fifths(struct pair p, struct from w, size_t at)
{
    if (w.take >= FOURS)
        return (struct pair){{with_tile_fifths(p.v[0], w, 0), with_tile_fifths(p.v[1], w, 1)}};
    const struct pair f = four_x8(neon_fifths, w, words32(w, at), 0, 8, 8);
    return (struct pair){{vorrq_s8(p.v[0], f.v[0]), vorrq_s8(p.v[1], f.v[1])}};
}

INLINE struct pair values_q5_0(struct from w, uint32_t part)
{
    (void)part;
    return with_fifths(nibbles(w, 6), w, 2);
}
INLINE struct pair values_q5_1(struct from w, uint32_t part)
{
    (void)part;
    return with_fifths(nibbles(w, 8), w, 4);
}

INLINE struct pair values_iq2_xxs(struct from w, int t)
{
    const struct fields f = words64(w, 2 + 8 * t);
    return times(four_x8(codebook_iq2_xxs, w, f, 0, 8, 8), four_x8(neon_factors, w, f, 32, 7, 7));
}

INLINE struct pair values_iq2_xs(struct from w, int t)
{
    const struct fields f = words64(w, 2 + 8 * t);
    return times(four_x8(codebook_iq2_xs, w, f, 0, 16, 9), four_x8(neon_factors, w, f, 9, 16, 7));
}

INLINE uint64_t indices_iq2_s(const uint8_t *w, int t)
{
    static const int16_t left[4] = {8, 6, 4, 2};
    return four_indices(w + 2 + 4 * t, w[66 + t], left, 3 << 8);
}

INLINE struct pair values_iq2_s(struct from w, int t)
{
    const struct fields f = {indices_iq2_s(w.a, t), indices_iq2_s(w.b, t)};
    return times(
        four_x8(codebook_iq2_s, w, f, 0, 16, 10),
        four_x8(neon_signs, w, (struct fields){~word32(w.a + 34 + 4 * t), ~word32(w.b + 34 + 4 * t)}, 0, 8, 8));
}

INLINE struct pair values_iq3_xxs(struct from w, int t)
{
    const struct fields f = words64(w, 2 + 8 * t), signs = words32(w, 66 + 4 * t);
    const struct pair v = {
        {four_x4(codebook_iq3_xxs, w, f, 8), four_x4(codebook_iq3_xxs, w, (struct fields){f.a >> 32, f.b >> 32}, 8)}};
    return times(v, four_x8(neon_factors, w, signs, 0, 7, 7));
}

INLINE uint64x2_t indices_iq3_s(const uint8_t *w, int t)
{
    static const int16_t left[8] = {8, 7, 6, 5, 4, 3, 2, 1};
    const uint16x8_t up = vandq_u16(vshlq_u16(vdupq_n_u16(w[66 + t]), vld1q_s16(left)), vdupq_n_u16(256));
    return vreinterpretq_u64_u16(vorrq_u16(vmovl_u8(vld1_u8(w + 2 + 8 * t)), up));
}

INLINE struct pair values_iq3_s(struct from w, int t)
{
    const uint64x2_t a = indices_iq3_s(w.a, t), b = indices_iq3_s(w.b, t);
    const struct pair v = {
        {four_x4(codebook_iq3_s, w, (struct fields){vgetq_lane_u64(a, 0), vgetq_lane_u64(b, 0)}, 16),
         four_x4(codebook_iq3_s, w, (struct fields){vgetq_lane_u64(a, 1), vgetq_lane_u64(b, 1)}, 16)}};
    return with_signs(v, w, 74 + 4 * t);
}

INLINE uint64_t indices_iq1_s(const uint8_t *w, int t)
{
    static const int16_t left[4] = {8, 5, 2, -1};
    uint16_t h;
    memcpy(&h, w + 34 + 2 * t, 2);
    return four_indices(w + 2 + 4 * t, h, left, 7 << 8);
}

/* Without the eighth that is added or subtracted: scales_iq1_s() has it as a minimum. */
INLINE struct pair values_iq1_s(struct from w, int t)
{
    return four_x8(codebook_iq1, w, (struct fields){indices_iq1_s(w.a, t), indices_iq1_s(w.b, t)}, 0, 16, 11);
}

INLINE uint64_t indices_iq1_m(const uint8_t *w, int t)
{
    static const int16_t left[4] = {8, 4, 0, -4};
    uint16_t both;
    memcpy(&both, w + 32 + 2 * t, 2);
    return four_indices(w + 4 * t, both, left, 7 << 8);
}

/* Eight values are an eighth smaller if bit 3 of their nibble is set, else an eighth larger. */
INLINE struct pair values_iq1_m(struct from w, int t)
{
#define EIGHT_OF(n) n, n, n, n, n, n, n, n
    static const int8_t more[4][16] = {{EIGHT_OF(1), EIGHT_OF(1)},
                                       {EIGHT_OF(-1), EIGHT_OF(1)},
                                       {EIGHT_OF(1), EIGHT_OF(-1)},
                                       {EIGHT_OF(-1), EIGHT_OF(-1)}};
    struct pair v = four_x8(codebook_iq1, w, (struct fields){indices_iq1_m(w.a, t), indices_iq1_m(w.b, t)}, 0, 16, 11);
    for (int k = 0; k < 2; k++) {
        const uint8_t a = w.a[32 + 2 * t + k], b = w.b[32 + 2 * t + k];
        const int bit = w.take == LAST ? 7 : 3;
        v.v[k] = vaddq_s8(v.v[k],
                          vld1q_s8(more[(a >> bit & 1) | (w.take == ALONE ? a >> 7 << 1 : (b >> bit & 1) << 1)]));
    }
    return v;
}

/* The first digit to base 3 of each byte, less one: three times a byte reaches 256 from 86 on, and 512 from 171 on. */
INLINE int8x16_t top_digits(uint8x16_t v)
{
    return vreinterpretq_s8_u8(vsubq_u8(vcltq_u8(v, vdupq_n_u8(86)), vcgeq_u8(v, vdupq_n_u8(171))));
}

INLINE struct pair values_tq1_0(struct from w, int t)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81},
                         by_x4[3][16] = {{1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27},
                                         {1, 1, 1, 1, 3, 3, 3, 3, 1, 1, 1, 1, 3, 3, 3, 3},
                                         {9, 9, 9, 9, 27, 27, 27, 27, 9, 9, 9, 9, 27, 27, 27, 27}};
    if (t < 5)
        return (struct pair){{top_digits(vmulq_u8(bytes16(w, 0), vdupq_n_u8(power[t]))),
                              top_digits(vmulq_u8(bytes16(w, 16), vdupq_n_u8(power[t])))}};
    const uint8x16_t v = bytes16(w, 32);
    const int8x16_t first = top_digits(vmulq_u8(v, vdupq_n_u8(power[2 * (t - 5)])));
    if (t < 7)
        return (struct pair){{first, top_digits(vmulq_u8(v, vdupq_n_u8(power[2 * (t - 5) + 1])))}};
    const uint32x2_t a = vreinterpret_u32_u8(vld1_u8(w.a + 44));
    const uint8x16_t last = vreinterpretq_u8_u32(
        w.take == ALONE ? vdupq_lane_u32(a, 1)
                        : vcombine_u32(vdup_n_u32(word32(w.a + 48)), vdup_n_u32(word32(w.b + 48))));
    return (struct pair){{first, top_digits(vmulq_u8(last, vld1q_u8(by_x4[w.take])))}};
}

/* ---- scales: 2 n + 1 */

/* Scales from the top four bits of eight words. */
INLINE int16x8_t odd_tops(uint32x4_t a, uint32x4_t b)
{
    const uint32x4_t one = vdupq_n_u32(1);
    return vreinterpretq_s16_u16(
        vcombine_u16(vmovn_u32(vorrq_u32(vshrq_n_u32(a, 27), one)), vmovn_u32(vorrq_u32(vshrq_n_u32(b, 27), one))));
}

INLINE void scales_iq2_xxs(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    (void)min;
    const uint32_t *p = (const uint32_t *)(const void *)(w + 2);
    s[0] = odd_tops(vld2q_u32(p).val[1], vld2q_u32(p + 8).val[1]);
}

INLINE void scales_iq3_xxs(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    (void)min;
    s[0] = odd_tops(vreinterpretq_u32_u8(vld1q_u8(w + 66)), vreinterpretq_u32_u8(vld1q_u8(w + 82)));
}

/* Scales from the low and high nibbles of bytes, alternating. */
INLINE uint8x16_t odd_nibbles(uint8x8_t v)
{
    const uint8x8_t low = vand_u8(vshl_n_u8(v, 1), vdup_n_u8(30)), high = vand_u8(vshr_n_u8(v, 3), vdup_n_u8(30));
    return vorrq_u8(vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high)), vdupq_n_u8(1));
}

INLINE void scales_iq2_xs(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    (void)min;
    widen_scales(vreinterpretq_s8_u8(odd_nibbles(vld1_u8(w + 66))), s);
}

INLINE void scales_iq2_s(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    (void)min;
    widen_scales(vreinterpretq_s8_u8(odd_nibbles(vld1_u8(w + 74))), s);
}

INLINE void scales_iq3_s(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    (void)min;
    s[0] = widened(vget_low_u8(odd_nibbles(vcreate_u8(word32(w + 106)))));
}

/* min: the scale, negative if the top bit is set. */
INLINE void scales_iq1_s(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    const uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(w + 34));
    const int16x8_t minus = vshrq_n_s16(vreinterpretq_s16_u16(h), 15);
    s[0] = vreinterpretq_s16_u16(vorrq_u16(vandq_u16(vshrq_n_u16(h, 11), vdupq_n_u16(14)), vdupq_n_u16(1)));
    min[0] = vsubq_s16(veorq_s16(s[0], minus), minus);
}

/* Four scales of three bits in each of four words. */
INLINE void scales_iq1_m(const uint8_t *w, int16x8_t s[2], int16x8_t min[2])
{
    static const int16_t left[8] = {1, -2, -5, -8, 1, -2, -5, -8};
    const uint16x4_t words = vreinterpret_u16_u8(vld1_u8(w + 48));
    const uint16x8_t spread[2] = {vcombine_u16(vdup_lane_u16(words, 0), vdup_lane_u16(words, 1)),
                                  vcombine_u16(vdup_lane_u16(words, 2), vdup_lane_u16(words, 3))};
    (void)min;
    for (int k = 0; k < 2; k++)
        s[k] = vreinterpretq_s16_u16(
            vorrq_u16(vandq_u16(vshlq_u16(spread[k], vld1q_s16(left)), vdupq_n_u16(14)), vdupq_n_u16(1)));
}

#endif
