/* SPDX-License-Identifier: Apache-2.0 */
/* part.h: integer products of weights and activations, by parts. A part is computed by one thread between two
 * floating-point steps.
 *
 * A simple block (32 values) is one part. A super-block (256 values) has eight, t = 0..7; a part is cut so that its
 * thread reads each byte of the quants once, so its values are not adjacent. Sums of parts are exact, so their order
 * does not matter.
 *
 * A type without faster code here is unpacked by model/unpack.h. Blocks have the same alignment in shared memory as in
 * their row (fetch.h): 2, and for MXFP4 none. So words are read as aligned pairs and shifted together, which reads up
 * to 3 bytes before the word and up to 4 after it. */
#ifndef NTX_CUDA_PART_H
#define NTX_CUDA_PART_H

#include "cuda/dialect.h"

#define NTX_UNPACK       DEV
#define NTX_UNPACK_TABLE DEVICE_TABLE
#define NTX_UNPACK_HALF  widen_half
#include "model/unpack.h"

struct part {  /* sums over the part's values */
    int32_t i; /* scale * q * x */
    int32_t j; /* min * x */
};

/* p: 2-aligned, as all blocks except MXFP4's. */
DEV uint32_t half_at(const uint8_t *p) { return *(const uint16_t *)(const void *)p; }

/* Floats are 4-aligned, except in groups of neurons, where they may follow blocks. */
DEV uint32_t float_bits_at(const uint8_t *p)
{
    return (uintptr_t)p & 2 ? half_at(p) | half_at(p + 2) << 16 : *(const uint32_t *)(const void *)p;
}

DEV float f16_at(const uint8_t *p) { return widen_half(half_at(p)); }
DEV uint16_t f16_bits(float f) { return (uint16_t)narrow_half(f); }

/* ---- groups of neurons: the number of a launch's neuron i, and the offset of its row */

DEV uint32_t neuron_at(const struct ntx_gpu_groups *g, uint32_t i)
{
    uint32_t group = g->list ? g->list[i / g->size] : g->first + i / g->size;
    return group * g->size + i % g->size;
}

DEV uint64_t in_group(const struct ntx_gpu_groups *g, uint32_t neuron, uint64_t row_bytes)
{
    return (neuron / g->size - g->first) * g->bytes + neuron % g->size * row_bytes;
}

/* The offset of p in its word of shared memory. It is the same for all blocks of a thread (fetch.h). */
DEV uint32_t off_word(const uint8_t *p) { return (uint32_t)(shared_address(p) & 3); }

/* Loads n words from p in shared memory; off: off_word(p) plus a multiple of 4. sparing: an aligned last word is read
 * alone, which avoids bank conflicts. */
DEV void words_at(const uint8_t *p, uint32_t off, uint32_t *v, const int n, const int sparing)
{
    off &= 3;
    const uint32_t *w = (const uint32_t *)(const void *)(p - off);
    uint32_t low = w[0];
    UNROLL
    for (int i = 0; i < n; i++) {
        uint32_t high = i + 1 < n || !sparing || off ? w[i + 1] : low;
        v[i] = shift_pair(low, high, 8 * off);
        low = high;
    }
}

DEV uint32_t one_word_at(const uint8_t *p, uint32_t off)
{
    uint32_t v;
    words_at(p, off, &v, 1, 1);
    return v;
}

/* Loads 16 bytes; wide: they are 16-aligned. */
DEV void sixteen_at(const uint8_t *p, uint32_t off, uint32_t *v, const int wide)
{
    if (wide)
        load_words4(p, v);
    else
        words_at(p, off, v, 4, 0);
}

/* The dot product of n words of bytes. */
DEV int32_t dot_words(const uint32_t *q, const uint32_t *x, const int n)
{
    int32_t sum = 0;
    UNROLL
    for (int i = 0; i < n; i++)
        sum = dot4(q[i], x[i], sum);
    return sum;
}

/* The dot product of four words; x is 16-aligned. */
DEV int32_t dot_four(const uint32_t *q, const uint32_t *x)
{
    uint32_t v[4];
    load_words4(x, v);
    return dot_words(q, v, 4);
}

DEV int32_t sum_words(const uint32_t *x, const int n)
{
    int32_t sum = 0;
    UNROLL
    for (int i = 0; i < n; i++)
        sum = dot4(0x01010101u, x[i], sum);
    return sum;
}

/* ---- simple blocks: q of all 32 values as bytes, in order */

/* Unpacks 16 bytes of nibbles; qh has a fifth bit for each, or is 0. */
DEV void unpack_nibbles(const uint8_t *p, uint32_t off, uint32_t qh, uint32_t *q)
{
    uint32_t w[4];
    words_at(p, off, w, 4, 0);
    UNROLL
    for (int i = 0; i < 4; i++) {
        uint32_t low = qh >> (4 * i), high = qh >> (16 + 4 * i);
        q[i] = (w[i] & 0x0f0f0f0fu) | (low & 1) << 4 | (low & 2) << 11 | (low & 4) << 18 | (low & 8) << 25;
        q[i + 4] = (w[i] >> 4 & 0x0f0f0f0fu) | (high & 1) << 4 | (high & 2) << 11 | (high & 4) << 18 | (high & 8) << 25;
    }
}

/* A table of 16 signed bytes. looked_up() replaces four nibbles (the lower half of w) by their bytes: it looks in both
 * halves of the table, and bit 3 selects one. */
struct lookup {
    uint32_t word[4];
};
#define LOOKUP_BYTES(a, b, c, d)                                                                                       \
    ((uint32_t)(uint8_t)(a) | (uint32_t)(uint8_t)(b) << 8 | (uint32_t)(uint8_t)(c) << 16 | (uint32_t)(uint8_t)(d) << 24)
#define LOOKUP_WORDS_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)                                                  \
    {                                                                                                                  \
        {                                                                                                              \
            LOOKUP_BYTES(a, b, c, d), LOOKUP_BYTES(e, f, g, h), LOOKUP_BYTES(i, j, k, l), LOOKUP_BYTES(m, n, o, p)     \
        }                                                                                                              \
    }
#define LOOKUP_WORDS(...) LOOKUP_WORDS_(__VA_ARGS__)

DEV uint32_t looked_up(struct lookup l, uint32_t w)
{
    return pick_bytes(pick_bytes(l.word[0], l.word[1], w), pick_bytes(l.word[2], l.word[3], w),
                      0x3210u | (w >> 1 & 0x4444u));
}

/* Replaces 16 bytes of nibbles by their bytes. */
DEV void lookup_nibbles(struct lookup l, const uint8_t *p, uint32_t off, uint32_t *q)
{
    uint32_t w[4];
    words_at(p, off, w, 4, 0);
    UNROLL
    for (int i = 0; i < 4; i++) {
        uint32_t first = looked_up(l, w[i]),
                 second = looked_up(l, w[i] >> 16); /* each of two bytes, low and high nibbles alternating */
        q[i] = pick_bytes(first, second, 0x6420u);
        q[i + 4] = pick_bytes(first, second, 0x7531u);
    }
}

/* ---- columns of the type table (model/quant.h) */

/* The columns that array sizes depend on, as constants of each type. */
#define TYPE_CONSTANTS(rule, TYPE, type, values, scale, min, run, outs, pieces, codebook)                              \
    OUTS_##TYPE = outs, PIECES_##TYPE = pieces, CODEBOOK_##TYPE = codebook,
enum { NTX_TYPES(TYPE_CONSTANTS) };

/* A column as a function of a type that is constant where it is called. */
#define TYPE_COLUMN(result, name, CASE, otherwise)                                                                     \
    DEV result name(const uint32_t type)                                                                               \
    {                                                                                                                  \
        switch (type) {                                                                                                \
            NTX_TYPES(CASE)                                                                                            \
        default: return otherwise;                                                                                     \
        }                                                                                                              \
    }

/* clang-format off */
#define SIZE_CASE_FLOAT(TYPE, type, values, bytes, ...) case NTX_##TYPE: return bytes;
#define SIZE_CASE_SIMPLE(TYPE, type, ...) case NTX_##TYPE: return sizeof(struct ntx_block_##type);
#define SIZE_CASE_HALVES(TYPE, type, ...) case NTX_##TYPE: return sizeof(struct ntx_block_##type);
#define SIZE_CASE_SUPER(TYPE, type, ...) case NTX_##TYPE: return sizeof(struct ntx_block_##type);
#define SIZE_CASE(rule, ...) SIZE_CASE_##rule(__VA_ARGS__)
#define VALUES_CASE(rule, TYPE, type, values, ...) case NTX_##TYPE: return values;
#define RULE_CASE(rule, TYPE, ...) case NTX_##TYPE: return NTX_RULE_##rule;
#define MIN_CASE(rule, TYPE, type, values, scale, min, ...) case NTX_##TYPE: return NTX_HAS_##min;
#define RUN_CASE(rule, TYPE, type, values, scale, min, run, ...) case NTX_##TYPE: return run;
#define PIECES_CASE(rule, TYPE, ...) case NTX_##TYPE: return PIECES_##TYPE;
#define CODEBOOK_CASE(rule, TYPE, ...) case NTX_##TYPE: return CODEBOOK_##TYPE;
/* clang-format on */
TYPE_COLUMN(uint32_t, block_size, SIZE_CASE, 1)
TYPE_COLUMN(uint32_t, block_values, VALUES_CASE, 1)
TYPE_COLUMN(uint32_t, rule_of, RULE_CASE, NTX_RULE_FLOAT)
TYPE_COLUMN(int, has_min, MIN_CASE, 0)
TYPE_COLUMN(uint32_t, scale_run, RUN_CASE, 1)
TYPE_COLUMN(uint32_t, row_pieces, PIECES_CASE, 1)
TYPE_COLUMN(uint32_t, codebook_words, CODEBOOK_CASE, 0)

/* Whether scales are of 16 values. */
DEV int by_sixteen(const uint32_t type) { return scale_run(type) == 16; }

/* ---- any type, by model/unpack.h */

#define PLAIN_CASE_FLOAT(TYPE, type)
#define PLAIN_CASE_SIMPLE(TYPE, type)                                                                                  \
    case NTX_##TYPE:                                                                                                   \
        ntx_unpack_##type(b, t, p);                                                                                    \
        break;
#define PLAIN_CASE_HALVES(TYPE, type)     PLAIN_CASE_SIMPLE(TYPE, type)
#define PLAIN_CASE_SUPER(TYPE, type)      PLAIN_CASE_SIMPLE(TYPE, type)
#define PLAIN_CASE(rule, TYPE, type, ...) PLAIN_CASE_##rule(TYPE, type)

DEV void plain_part(const uint32_t type, const uint8_t *b, uint32_t t, struct ntx_part *p)
{
    switch (type) {
        NTX_TYPES(PLAIN_CASE)
    default: break;
    }
}

DEV void plain_words(const struct ntx_part *p, uint32_t *q)
{
    UNROLL
    for (int i = 0; i < 8; i++)
        q[i] = LOOKUP_BYTES(p->q[4 * i], p->q[4 * i + 1], p->q[4 * i + 2], p->q[4 * i + 3]);
}

struct unpacked {
    uint32_t q[8];    /* 32 values as bytes */
    int32_t scale[4]; /* of the part's runs */
    int32_t minus;    /* subtracted from each value */
    int32_t min[2];   /* of two runs of 16. IQ1: min[0] is added to each value (codes.h) */
    float d, dmin;
};

#include "cuda/codes.h"

/* ---- d and the integers of a simple block's t-th 32 values */

DEV float simple_d(const uint32_t type, const uint8_t *b) { return type == NTX_MXFP4 ? ntx_e8m0_float(*b) : f16_at(b); }

#define LOOKUP_CASE(TYPE, type, scale, raise)                                                                          \
    case NTX_##TYPE: {                                                                                                 \
        const struct lookup l = LOOKUP_WORDS(NTX_VALUES_##type);                                                       \
        lookup_nibbles(l, b + sizeof(struct ntx_block_##type) - 16, off + sizeof(struct ntx_block_##type), q);         \
        break;                                                                                                         \
    }

/* The number that must be subtracted from each of simple_values()'s values. */
DEV int32_t simple_minus(const uint32_t type)
{
    switch (type) {
    case NTX_Q4_0: return 8;
    case NTX_Q5_0: return 16;
    case NTX_Q1_0: return 1;
    default: return 0;
    }
}

/* off: off_word(b). */
DEV void simple_values(const uint32_t type, const uint8_t *b, uint32_t off, uint32_t t, uint32_t *q, int32_t *minus)
{
    *minus = simple_minus(type);
    switch (type) {
    case NTX_Q4_0: unpack_nibbles(b + 2, off + 2, 0, q); break;
    case NTX_Q4_1: unpack_nibbles(b + 4, off, 0, q); break;
    case NTX_Q5_0: unpack_nibbles(b + 6, off + 2, half_at(b + 2) | half_at(b + 4) << 16, q); break;
    case NTX_Q5_1: unpack_nibbles(b + 8, off, half_at(b + 4) | half_at(b + 6) << 16, q); break;
    case NTX_Q8_0: words_at(b + 2, off + 2, q, 8, 0); break;
    case NTX_Q1_0: words_q1_0(b, off, t, q); break;
    case NTX_Q2_0:
        words_q2_0(b, off, t, q);
        break;
        NTX_LOOKUPS(LOOKUP_CASE)
    default: break;
    }
}

/* ---- super-blocks. A part's weights are unpacked once and multiplied by each row's x. */

/* The offset of a super-block's d; dmin, in types that have it, follows d. */
/* clang-format off */
#define D_CASE_FLOAT(TYPE, type, scale)
#define D_CASE_SIMPLE(TYPE, type, scale)
#define D_CASE_HALVES(TYPE, type, scale)
#define D_CASE_SUPER(TYPE, type, scale) case NTX_##TYPE: return NTX_SCALE_AT_##scale(type);
#define D_CASE(rule, TYPE, type, values, scale, ...) D_CASE_##rule(TYPE, type, scale)
/* clang-format on */
TYPE_COLUMN(uint32_t, super_d, D_CASE, 0)

/* The offset of the quants' lower bits, in types whose field is named qs. */
#define LOW_BITS(X) X(Q2_K, q2_k) X(Q3_K, q3_k) X(Q4_K, q4_k) X(Q5_K, q5_k) X(TQ2_0, tq2_0)
#define LOW_BITS_CASE(TYPE, type)                                                                                      \
    case NTX_##TYPE: return offsetof(struct ntx_block_##type, qs);
DEV uint32_t low_bits_at(const uint32_t type)
{
    switch (type) {
        LOW_BITS(LOW_BITS_CASE)
    default: return 0;
    }
}

/* The `scale` column of the type table as code. */
#define SCALE_half(b)    f16_at(b)
#define SCALE_quarter(b) (f16_at(b) * 0.25f)
#define SCALE_eighth(b)  (f16_at(b) * 0.125f)
#define SCALE_spread(b)  (widen_half(ntx__spread_half((b) + 48)) * 0.125f)
#define SCALE_CASE_FLOAT(TYPE, scale)
#define SCALE_CASE_SIMPLE(TYPE, scale)
#define SCALE_CASE_HALVES(TYPE, scale)
#define SCALE_CASE_SUPER(TYPE, scale)                                                                                  \
    case NTX_##TYPE:                                                                                                   \
        return SCALE_##scale(b + super_d(type_));
#define SCALE_CASE(rule, TYPE, type, values, scale, ...) SCALE_CASE_##rule(TYPE, scale)
DEV float super_scale(const uint32_t type_, const uint8_t *b)
{
    switch (type_) {
        NTX_TYPES(SCALE_CASE) default : return 0;
    }
}

/* Six-bit scale and minimum g (0..7) of Q4_K and Q5_K, from twelve bytes or from the same three words. */
DEV int32_t scale_k(const uint8_t *s, uint32_t g) { return g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4; }
DEV int32_t min_k(const uint8_t *s, uint32_t g) { return g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4; }

DEV int32_t scale_of_words(const uint32_t *w, uint32_t g)
{
    uint32_t by = g % 4 * 8;
    return (int32_t)(g < 4 ? w[0] >> by & 63 : (w[2] >> by & 15) | (w[0] >> by >> 6 & 3) << 4);
}

DEV int32_t min_of_words(const uint32_t *w, uint32_t g)
{
    uint32_t by = g % 4 * 8;
    return (int32_t)(g < 4 ? w[1] >> by & 63 : (w[2] >> by >> 4 & 15) | (w[1] >> by >> 6 & 3) << 4);
}

/* Q4_K, Q5_K: 16 bytes hold 16 values of sub-block 2 (t / 2) in their low nibbles and 16 of the next one in the high
 * nibbles. The head also has 16 bytes. */
DEV void unpack_45(const uint32_t type, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u, const int wide)
{
    const uint8_t *qs = b + low_bits_at(type) + 16 * t;
    uint32_t w[4], h[4] = {0, 0, 0, 0}, head[4], low = t / 2 * 2;
    sixteen_at(b, off, head, wide);
    sixteen_at(qs, off, w, wide);
    if (type == NTX_Q5_K)
        sixteen_at(b + 16 + t % 2 * 16, off, h, wide);
    UNROLL
    for (int i = 0; i < 4; i++) {
        u->q[i] = (w[i] & 0x0f0f0f0fu) | (h[i] >> low & 0x01010101u) << 4;
        u->q[i + 4] = (w[i] >> 4 & 0x0f0f0f0fu) | (h[i] >> (low + 1) & 0x01010101u) << 4;
    }
    u->scale[0] = scale_of_words(head + 1, low);
    u->scale[1] = scale_of_words(head + 1, low + 1);
    u->min[0] = min_of_words(head + 1, low);
    u->min[1] = min_of_words(head + 1, low + 1);
}

DEV struct part part_45(const struct unpacked *u, uint32_t t, const uint32_t *x, const int16_t *s16)
{
    uint32_t at = t / 2 * 16 + t % 2 * 4; /* words: 64 values and 16 */
    uint32_t run = t / 2 * 4 + t % 2;
    return (struct part){u->scale[0] * dot_four(u->q, x + at) + u->scale[1] * dot_four(u->q + 4, x + at + 8),
                         u->min[0] * s16[run] + u->min[1] * s16[run + 2]};
}

/* Q6_K: 16 bytes of ql hold 16 values in their low nibbles, and in the high nibbles the 16 values that follow 64
 * later. */
DEV void unpack_6(const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t half = t / 4, c = t % 4, w[4], h[4], run = c / 2 * 2;
    words_at(b + 16 * t, off, w, 4, 0);
    words_at(b + 128 + half * 32 + c % 2 * 16, off, h, 4, 0);
    UNROLL
    for (int i = 0; i < 4; i++) {
        u->q[i] = (w[i] & 0x0f0f0f0fu) | (h[i] >> run & 0x03030303u) << 4;
        u->q[i + 4] = (w[i] >> 4 & 0x0f0f0f0fu) | (h[i] >> (run + 4) & 0x03030303u) << 4;
    }
    u->scale[0] = (int8_t)b[192 + half * 8 + c];
    u->scale[1] = (int8_t)b[192 + half * 8 + c + 4];
}

DEV struct part part_6(const struct unpacked *u, uint32_t t, const uint32_t *x, const int16_t *s16)
{
    uint32_t run = t / 4 * 8 + t % 4, at = 4 * run;
    int32_t low = dot_four(u->q, x + at) - 32 * s16[run], high = dot_four(u->q + 4, x + at + 16) - 32 * s16[run + 4];
    return (struct part){u->scale[0] * low + u->scale[1] * high, 0};
}

/* Q2_K, Q3_K, TQ2_0: 8 bytes hold 8 values of each of four runs of 32, two bits each. */
DEV void unpack_23(const uint32_t type, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t half = t / 4, c = t % 4, w[2], h[2] = {0, 0};
    words_at(b + low_bits_at(type) + half * 32 + c * 8, off, w, 2, 0);
    if (type == NTX_Q3_K)
        words_at(b + c * 8, off, h, 2, 0);
    UNROLL
    for (int s = 0; s < 4; s++) {
        uint32_t g = half * 8 + (uint32_t)s * 2 + c / 2; /* its run of 16 */
        UNROLL
        for (int i = 0; i < 2; i++)
            u->q[2 * s + i] = (w[i] >> (2 * s) & 0x03030303u) | (h[i] >> (half * 4 + (uint32_t)s) & 0x01010101u) << 2;
        if (type == NTX_Q2_K)
            u->scale[s] = b[g] & 15;
        else if (type == NTX_TQ2_0)
            u->scale[s] = 1;
        else
            u->scale[s] = ((b[96 + g % 8] >> (g / 8 * 4) & 15) | (b[104 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
    }
    u->minus = type == NTX_Q3_K ? 4 : type == NTX_TQ2_0;
    u->min[0] = type == NTX_Q2_K ? b[2 * t] >> 4 : 0;
    u->min[1] = type == NTX_Q2_K ? b[2 * t + 1] >> 4 : 0;
}

DEV struct part part_23(const struct unpacked *u, uint32_t t, const uint32_t *x, const int16_t *s16)
{
    struct part p = {0, u->min[0] * s16[2 * t] + u->min[1] * s16[2 * t + 1]};
    UNROLL
    for (int s = 0; s < 4; s++) {
        const uint32_t *xs = x + t / 4 * 32 + (uint32_t)s * 8 + t % 4 * 2;
        p.i += u->scale[s] * (dot_words(u->q + 2 * s, xs, 2) - u->minus * sum_words(xs, 2));
    }
    return p;
}

DEV void words_iq4_xs(const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    const struct lookup l = LOOKUP_WORDS(NTX_VALUES_iq4_nl);
    lookup_nibbles(l, b + 8 + 16 * t, off, u->q);
    u->scale[0] = u->scale[1] = (int32_t)((b[4 + t / 2] >> t % 2 * 4 & 15) | (half_at(b + 2) >> 2 * t & 3) << 4) - 32;
}

/* Unpacks 32 adjacent values, by the type's codebook (codes.h). */
DEV void unpack_codes(const uint32_t type, const struct codebook *codebook, const uint8_t *b, uint32_t off, uint32_t t,
                      struct unpacked *u)
{
    switch (type) {
    case NTX_IQ4_XS: words_iq4_xs(b, off, t, u); break;
    case NTX_IQ3_XXS: words_iq3_xxs(codebook, b, off, t, u); break;
    case NTX_IQ3_S: words_iq3_s(codebook, b, off, t, u); break;
    case NTX_IQ2_XXS: words_iq2_xxs(codebook, b, off, t, u); break;
    case NTX_IQ2_XS: words_iq2_xs(codebook, b, off, t, u); break;
    case NTX_IQ2_S: words_iq2_s(codebook, b, off, t, u); break;
    case NTX_IQ1_S: words_iq1_s(codebook, b, off, t, u); break;
    case NTX_IQ1_M: words_iq1_m(codebook, b, off, t, u); break;
    case NTX_TQ1_0: words_tq1_0(b, off, t, u); break;
    default: break;
    }
}

DEV struct part part_codes(const uint32_t type, const struct unpacked *u, uint32_t t, const uint32_t *x,
                           const int16_t *s16)
{
    if (type == NTX_IQ1_S || type == NTX_IQ1_M)
        return type == NTX_IQ1_S ? part_iq1_s(u, x + 8 * t) : part_iq1_m(u, x + 8 * t);
    if (type == NTX_TQ1_0)
        return (struct part){
            dot_four(u->q, x + 8 * t) + dot_four(u->q + 4, x + 8 * t + 4) - (s16[2 * t] + s16[2 * t + 1]), 0};
    if (!by_sixteen(type))
        return (struct part){u->scale[0] * (dot_four(u->q, x + 8 * t) + dot_four(u->q + 4, x + 8 * t + 4)), 0};
    return (struct part){u->scale[0] * dot_four(u->q, x + 8 * t) + u->scale[1] * dot_four(u->q + 4, x + 8 * t + 4), 0};
}

DEV int is_codes(const uint32_t type) { return type != NTX_TQ2_0 && !(type >= NTX_Q2_K && type <= NTX_Q6_K); }

/* off: off_word(b); wide: blocks are 16-aligned, which is possible for block sizes of 16 n bytes. */
DEV void unpack_part(const uint32_t type, const struct codebook *codebook, const uint8_t *b, uint32_t off, uint32_t t,
                     struct unpacked *u, const int wide)
{
    if (is_codes(type))
        unpack_codes(type, codebook, b, off, t, u);
    else if (type == NTX_Q4_K || type == NTX_Q5_K)
        unpack_45(type, b, off, t, u, wide);
    else if (type == NTX_Q6_K)
        unpack_6(b, off, t, u);
    else
        unpack_23(type, b, off, t, u);
}

DEV struct part multiply_part(const uint32_t type, const struct unpacked *u, uint32_t t, const uint32_t *x,
                              const int16_t *s16)
{
    if (is_codes(type))
        return part_codes(type, u, t, x, s16);
    if (type == NTX_Q6_K)
        return part_6(u, t, x, s16);
    if (type == NTX_Q4_K || type == NTX_Q5_K)
        return part_45(u, t, x, s16);
    return part_23(u, t, x, s16);
}

#endif
