/* SPDX-License-Identifier: Apache-2.0 */
/* unpack.h: the one unpacking of each type: 32 neighbouring values of a block as small integers, with their scales, in
 * plain C that compiles for CPUs and for GPUs. Kernels for types without a faster form multiply from this one.
 *
 *   NTX_RULE_SIMPLE  w[k] = d * q[k] + m                     (m in types that have one)
 *   NTX_RULE_HALVES  w[k] = d * q[k] for k < 16, m * q[k] for the others
 *   NTX_RULE_SUPER   w[k] = d * scale[k / 16] * q[k] - m * min[k / 16]
 *
 * `ntx_unpack_<type>(block, t, &part)`: values 32 t .. 32 t + 31 of the block. Values that files
 * store as 2 s + 1 eighths or as a grid of signed values are scaled to integers; d has the powers of two, exactly. */
#ifndef NTX_MODEL_UNPACK_H
#define NTX_MODEL_UNPACK_H

#include <stdbool.h>
#include <string.h>

#include "model/codes.h"
#include "model/quant.h"

#ifndef NTX_UNPACK /* cuda/part.h defines it differently */
#define NTX_UNPACK       static inline __attribute__((always_inline, unused))
#define NTX_UNPACK_TABLE static const
#endif

struct ntx_part {
    float d, m; /* m: a super-block's dmin */
    int32_t scale[2], min[2];
    int8_t q[NTX_QK];
};

/* ---- scales */

NTX_UNPACK float ntx_bits_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* Widens an F16 exactly, like the instruction, for code that cannot use it. */
NTX_UNPACK float ntx_half_float(uint16_t h)
{
#ifdef NTX_UNPACK_HALF /* the hardware instruction */
    return NTX_UNPACK_HALF(h);
#endif
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, bits = (uint32_t)(h & 0x7fff) << 13;
    if (bits >= 0x7c00u << 13) { /* infinity, or NaN (made quiet, as the instruction does) */
        bits += (255u - 31u) << 23;
        bits |= (h & 0x3ff) ? 0x400000 : 0;
    } else if (bits >= 0x0400u << 13) {
        bits += (127u - 15u) << 23;
    } else { /* subnormal: an exact difference of two normal floats */
        float f = ntx_bits_float(bits + ((127u - 14u) << 23)) - 0x1p-14f;
        memcpy(&bits, &f, 4);
    }
    return ntx_bits_float(sign | bits);
}

/* 2^(e - 128): half of MXFP4's scale 2^(e - 127), since its values are doubled; the two smallest are subnormal. */
NTX_UNPACK float ntx_e8m0_float(uint8_t e)
{
    return ntx_bits_float(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* An F16 whose nibbles, lowest first, are the upper ones of every second byte (IQ1_M). */
NTX_UNPACK uint16_t ntx__spread_half(const uint8_t *s)
{
    return (uint16_t)(s[1] >> 4 | (s[3] & 0xf0) | (s[5] & 0xf0) << 4 | (s[7] & 0xf0) << 8);
}

/* Half of an unsigned E4M3, since NVFP4's values are doubled; 0x7f counts as 0. */
NTX_UNPACK float ntx_e4m3_half_float(uint8_t x)
{
    uint32_t e = x >> 3 & 15, m = x & 7;
    if (x == 0x7f)
        return 0;
    return e ? ntx_bits_float((e + 119) << 23 | m << 20) : (float)m * 0x1p-10f;
}

/* The value of d, by the table of types, and whether there is a minimum. */
#define NTX_SCALE_half(b)          ntx_half_float((b)->d)
#define NTX_SCALE_quarter(b)       (ntx_half_float((b)->d) * 0.25f)
#define NTX_SCALE_eighth(b)        (ntx_half_float((b)->d) * 0.125f)
#define NTX_SCALE_spread(b)        (ntx_half_float(ntx__spread_half((b)->scales)) * 0.125f)
#define NTX_SCALE_halves(b)        0 /* the unpacking sets them */
#define NTX_SCALE_e8m0(b)          ntx_e8m0_float((b)->e)
/* The offset of d in a block; 0: d is not a field of its own. */
#define NTX_SCALE_AT_half(type)    offsetof(struct ntx_block_##type, d)
#define NTX_SCALE_AT_quarter(type) offsetof(struct ntx_block_##type, d)
#define NTX_SCALE_AT_eighth(type)  offsetof(struct ntx_block_##type, d)
#define NTX_SCALE_AT_spread(type)  0
#define NTX_SCALE_AT_halves(type)  0
#define NTX_SCALE_AT_e8m0(type)    0
#define NTX_MIN_OF_none(b)         0
#define NTX_MIN_OF_m(b)            ntx_half_float((b)->m)
#define NTX_MIN_OF_dmin(b)         ntx_half_float((b)->dmin)
#define NTX_HAS_none               0
#define NTX_HAS_m                  1
#define NTX_HAS_dmin               1

/* ---- simple blocks. Byte j of 16 holds value j in its low nibble and value j + 16 in its high one; bit v of qh, read
 * as one little-endian word, goes above the nibble of value v. */

NTX_UNPACK void ntx__nibbles(const uint8_t *qs, uint32_t qh, int minus, int8_t *q)
{
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)((int)((qs[i] & 15) | (qh >> i & 1) << 4) - minus);
        q[i + 16] = (int8_t)((int)((qs[i] >> 4) | (qh >> (i + 16) & 1) << 4) - minus);
    }
}

NTX_UNPACK uint32_t ntx__dword(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

NTX_UNPACK void ntx__part_q4_0(const struct ntx_block_q4_0 *b, uint32_t t, struct ntx_part *p)
{
    (void)t;
    ntx__nibbles(b->qs, 0, 8, p->q);
}
NTX_UNPACK void ntx__part_q4_1(const struct ntx_block_q4_1 *b, uint32_t t, struct ntx_part *p)
{
    (void)t;
    ntx__nibbles(b->qs, 0, 0, p->q);
}
NTX_UNPACK void ntx__part_q5_0(const struct ntx_block_q5_0 *b, uint32_t t, struct ntx_part *p)
{
    (void)t;
    ntx__nibbles(b->qs, ntx__dword(b->qh), 16, p->q);
}
NTX_UNPACK void ntx__part_q5_1(const struct ntx_block_q5_1 *b, uint32_t t, struct ntx_part *p)
{
    (void)t;
    ntx__nibbles(b->qs, ntx__dword(b->qh), 0, p->q);
}
NTX_UNPACK void ntx__part_q8_0(const struct ntx_block_q8_0 *b, uint32_t t, struct ntx_part *p)
{
    (void)t;
    memcpy(p->q, b->qs, NTX_QK);
}

/* Nibbles that are indices into 16 values. */
NTX_UNPACK void ntx__looked_up(const uint8_t *qs, const int8_t *value, int8_t *q)
{
    for (int i = 0; i < 16; i++) {
        q[i] = value[qs[i] & 15];
        q[i + 16] = value[qs[i] >> 4];
    }
}

#define NTX__PART_LOOKUP(TYPE, type, scale, raise)                                                                     \
    NTX_UNPACK void ntx__part_##type(const struct ntx_block_##type *b, uint32_t t, struct ntx_part *p)                 \
    {                                                                                                                  \
        const int8_t value[16] = {NTX_VALUES_##type};                                                                  \
        (void)t;                                                                                                       \
        ntx__looked_up(b->qs, value, p->q);                                                                            \
    }
NTX_LOOKUPS(NTX__PART_LOOKUP)

/* ---- blocks of more than one 32 */

/* Each 16 values have 8 bytes of nibbles, as above. */
NTX_UNPACK void ntx__part_nvfp4(const struct ntx_block_nvfp4 *b, uint32_t t, struct ntx_part *p)
{
    const int8_t value[16] = {NTX_VALUES_mxfp4};
    for (uint32_t i = 0; i < 32; i++) {
        uint8_t pair = b->qs[16 * t + i / 16 * 8 + i % 8];
        p->q[i] = value[i / 8 % 2 ? pair >> 4 : pair & 15];
    }
    p->d = ntx_e4m3_half_float(b->d[2 * t]);
    p->m = ntx_e4m3_half_float(b->d[2 * t + 1]);
}

NTX_UNPACK void ntx__part_q1_0(const struct ntx_block_q1_0 *b, uint32_t t, struct ntx_part *p)
{
    for (uint32_t i = 0; i < 32; i++)
        p->q[i] = (int8_t)((b->qs[4 * t + i / 8] >> i % 8 & 1) * 2 - 1);
}

NTX_UNPACK void ntx__part_q2_0(const struct ntx_block_q2_0 *b, uint32_t t, struct ntx_part *p)
{
    for (uint32_t i = 0; i < 32; i++)
        p->q[i] = (int8_t)((b->qs[8 * t + i / 4] >> i % 4 * 2 & 3) - 1);
}

/* ---- super-blocks of Q2_K .. Q6_K */

/* Two-bit planes: each half of 128 values has 32 bytes; its values 32 s .. 32 s + 31 are bits 2 s, 2 s + 1 of those
 * bytes. */
NTX_UNPACK void ntx__part_q2_k(const struct ntx_block_q2_k *b, uint32_t t, struct ntx_part *p)
{
    for (int i = 0; i < 32; i++)
        p->q[i] = b->qs[t / 4 * 32 + (uint32_t)i] >> (t % 4 * 2) & 3;
    for (int h = 0; h < 2; h++) { /* low nibble scale, high nibble minimum */
        p->scale[h] = b->scales[2 * t + (uint32_t)h] & 15;
        p->min[h] = b->scales[2 * t + (uint32_t)h] >> 4;
    }
}

/* 16 scales of 6 bits, stored with 32 added: low nibbles in bytes 0..7, high pairs of bits in 8..11. A clear third bit
 * of a value means minus four. */
NTX_UNPACK void ntx__part_q3_k(const struct ntx_block_q3_k *b, uint32_t t, struct ntx_part *p)
{
    for (int i = 0; i < 32; i++)
        p->q[i] = (int8_t)((b->qs[t / 4 * 32 + (uint32_t)i] >> (t % 4 * 2) & 3) - (b->hmask[i] >> t & 1 ? 0 : 4));
    for (int h = 0; h < 2; h++) {
        uint32_t g = 2 * t + (uint32_t)h;
        p->scale[h] = ((b->scales[g % 8] >> (g / 8 * 4) & 15) | (b->scales[8 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
    }
}

/* 8 scales and 8 minima of 6 bits in 12 bytes: the first four whole in bytes 0..3 and 4..7, the others split. */
NTX_UNPACK void ntx__scales_k(const uint8_t *s, uint32_t t, struct ntx_part *p)
{
    p->scale[0] = p->scale[1] = t < 4 ? s[t] & 63 : (s[t + 4] & 15) | s[t - 4] >> 6 << 4;
    p->min[0] = p->min[1] = t < 4 ? s[t + 4] & 63 : s[t + 4] >> 4 | s[t] >> 6 << 4;
}

/* Each 64 values share 32 bytes, low nibbles first. */
NTX_UNPACK void ntx__part_q4_k(const struct ntx_block_q4_k *b, uint32_t t, struct ntx_part *p)
{
    for (int i = 0; i < 32; i++)
        p->q[i] = b->qs[t / 2 * 32 + (uint32_t)i] >> (t % 2 * 4) & 15;
    ntx__scales_k(b->scales, t, p);
}

NTX_UNPACK void ntx__part_q5_k(const struct ntx_block_q5_k *b, uint32_t t, struct ntx_part *p)
{
    for (int i = 0; i < 32; i++)
        p->q[i] = (int8_t)((b->qs[t / 2 * 32 + (uint32_t)i] >> (t % 2 * 4) & 15) | (b->qh[i] >> t & 1) << 4);
    ntx__scales_k(b->scales, t, p);
}

/* Within each half of 128, four runs of 32; runs 0 and 1 are the low nibbles of 64 bytes, 2 and 3 the high ones; run s
 * has its upper two bits in bits 2 s, 2 s + 1 of 32 bytes. */
NTX_UNPACK void ntx__part_q6_k(const struct ntx_block_q6_k *b, uint32_t t, struct ntx_part *p)
{
    uint32_t half = t / 4, run = t % 4;
    for (uint32_t i = 0; i < 32; i++) {
        int low = b->ql[half * 64 + run % 2 * 32 + i] >> (run / 2 * 4) & 15,
            high = b->qh[half * 32 + i] >> (run * 2) & 3;
        p->q[i] = (int8_t)((low | high << 4) - 32);
    }
    p->scale[0] = b->scales[2 * t];
    p->scale[1] = b->scales[2 * t + 1];
}

/* ---- i-quants */

/* scales of 6 bits, stored with 32 added: the low nibbles, and pairs of bits above them. */
NTX_UNPACK void ntx__part_iq4_xs(const struct ntx_block_iq4_xs *b, uint32_t t, struct ntx_part *p)
{
    const int8_t value[16] = {NTX_VALUES_iq4_nl};
    ntx__looked_up(b->qs + 16 * t, value, p->q);
    p->scale[0] = p->scale[1] = ((b->scales_l[t / 2] >> t % 2 * 4 & 15) | (b->scales_h >> 2 * t & 3) << 4) - 32;
}

/* Codes to values, with signs by bits: IQ2 has 8 values of the levels 8, 25, 43; IQ3_XXS 4 of 4, 12, ..., 52, 62;
 * IQ3_S 4 of 1, 3, ..., 15. */
NTX_UNPACK void ntx__values_iq2(uint32_t code, uint32_t signs, int8_t *q)
{
    for (int i = 0; i < 8; i++) {
        int c = code >> 2 * i & 3, v = 8 + 17 * c + (c >> 1);
        q[i] = (int8_t)(signs >> i & 1 ? -v : v);
    }
}

NTX_UNPACK void ntx__values_iq3_xxs(uint32_t code, uint32_t signs, int8_t *q)
{
    for (int i = 0; i < 4; i++) {
        int c = code >> 3 * i & 7, v = 4 + 8 * c + (c == 7 ? 2 : 0);
        q[i] = (int8_t)(signs >> i & 1 ? -v : v);
    }
}

NTX_UNPACK void ntx__values_iq3_s(uint32_t code, uint32_t signs, int8_t *q)
{
    for (int i = 0; i < 4; i++) {
        int v = 1 + 2 * (int)(code >> 3 * i & 7);
        q[i] = (int8_t)(signs >> i & 1 ? -v : v);
    }
}

/* Seven signs, and an eighth that makes the number of minus signs even. */
NTX_UNPACK uint32_t ntx__signs_7(uint32_t s)
{
    uint32_t p = s ^ s >> 4;
    p ^= p >> 2;
    return s | ((p ^ p >> 1) & 1) << 7;
}

#define NTX__CODE(c) c,
NTX_UNPACK_TABLE uint16_t ntx__codes_iq2_xxs[] = {NTX_CODES_iq2_xxs(NTX__CODE)},
                          ntx__codes_iq2_xs[] = {NTX_CODES_iq2_xs(NTX__CODE)},
                          ntx__codes_iq2_s[] = {NTX_CODES_iq2_s(NTX__CODE)},
                          ntx__codes_iq3_xxs[] = {NTX_CODES_iq3_xxs(NTX__CODE)},
                          ntx__codes_iq3_s[] = {NTX_CODES_iq3_s(NTX__CODE)},
                          ntx__codes_iq1[] = {NTX_CODES_iq1(NTX__CODE)};

NTX_UNPACK void ntx__part_iq2_xxs(const struct ntx_block_iq2_xxs *b, uint32_t t, struct ntx_part *p)
{
    const uint8_t *qs = b->qs + 8 * t;
    uint32_t word = ntx__dword(qs + 4);
    for (int l = 0; l < 4; l++)
        ntx__values_iq2(ntx__codes_iq2_xxs[qs[l]], ntx__signs_7(word >> 7 * l & 127), p->q + 8 * l);
    p->scale[0] = p->scale[1] = (int32_t)(2 * (word >> 28) + 1);
}

NTX_UNPACK void ntx__part_iq2_xs(const struct ntx_block_iq2_xs *b, uint32_t t, struct ntx_part *p)
{
    for (int l = 0; l < 4; l++) {
        uint32_t w = b->qs[4 * t + (uint32_t)l];
        ntx__values_iq2(ntx__codes_iq2_xs[w & 511], ntx__signs_7(w >> 9), p->q + 8 * l);
    }
    p->scale[0] = 2 * (b->scales[t] & 15) + 1;
    p->scale[1] = 2 * (b->scales[t] >> 4) + 1;
}

NTX_UNPACK void ntx__part_iq2_s(const struct ntx_block_iq2_s *b, uint32_t t, struct ntx_part *p)
{
    for (uint32_t l = 0; l < 4; l++)
        ntx__values_iq2(ntx__codes_iq2_s[b->qs[4 * t + l] | (b->qh[t] >> 2 * l & 3) << 8], b->signs[4 * t + l],
                        p->q + 8 * l);
    p->scale[0] = 2 * (b->scales[t] & 15) + 1;
    p->scale[1] = 2 * (b->scales[t] >> 4) + 1;
}

NTX_UNPACK void ntx__part_iq3_xxs(const struct ntx_block_iq3_xxs *b, uint32_t t, struct ntx_part *p)
{
    uint32_t word = ntx__dword(b->signs + 4 * t);
    for (uint32_t l = 0; l < 8; l++)
        ntx__values_iq3_xxs(ntx__codes_iq3_xxs[b->qs[8 * t + l]], ntx__signs_7(word >> 7 * (l / 2) & 127) >> l % 2 * 4,
                            p->q + 4 * l);
    p->scale[0] = p->scale[1] = (int32_t)(2 * (word >> 28) + 1);
}

NTX_UNPACK void ntx__part_iq3_s(const struct ntx_block_iq3_s *b, uint32_t t, struct ntx_part *p)
{
    for (uint32_t l = 0; l < 8; l++)
        ntx__values_iq3_s(ntx__codes_iq3_s[b->qs[8 * t + l] | (b->qh[t] >> l & 1) << 8],
                          (uint32_t)b->signs[4 * t + l / 2] >> l % 2 * 4, p->q + 4 * l);
    p->scale[0] = p->scale[1] = 2 * (b->scales[t / 2] >> t % 2 * 4 & 15) + 1;
}

/* Eight values of -1, 0, 1, each shifted by an eighth, in eighths. */
NTX_UNPACK void ntx__values_iq1(uint32_t index, int less, int8_t *q)
{
    uint32_t code = ntx__codes_iq1[index];
    for (int i = 0; i < 8; i++)
        q[i] = (int8_t)(((int)(code >> 2 * i & 3) - 1) * 8 + (less ? -1 : 1));
}

NTX_UNPACK void ntx__part_iq1_s(const struct ntx_block_iq1_s *b, uint32_t t, struct ntx_part *p)
{
    uint32_t h = b->qh[t];
    for (uint32_t l = 0; l < 4; l++)
        ntx__values_iq1(b->qs[4 * t + l] | (h >> 3 * l & 7) << 8, (int)(h >> 15), p->q + 8 * l);
    p->scale[0] = p->scale[1] = (int32_t)(2 * (h >> 12 & 7) + 1);
}

NTX_UNPACK void ntx__part_iq1_m(const struct ntx_block_iq1_m *b, uint32_t t, struct ntx_part *p)
{
    uint32_t s = b->scales[t / 2 * 2] | (uint32_t)b->scales[t / 2 * 2 + 1] << 8;
    for (uint32_t l = 0; l < 4; l++) {
        uint32_t h = (uint32_t)b->qh[2 * t + l / 2] >> l % 2 * 4;
        ntx__values_iq1(b->qs[4 * t + l] | (h & 7) << 8, h >> 3 & 1, p->q + 8 * l);
    }
    p->scale[0] = (int32_t)(2 * (s >> t % 2 * 6 & 7) + 1);
    p->scale[1] = (int32_t)(2 * (s >> (t % 2 * 6 + 3) & 7) + 1);
}

/* ---- ternary */

/* A byte is a fraction of 256 with five base-3 digits: digit n is the carry of the n-th multiplication by 3. */
NTX_UNPACK void ntx__digits(const uint8_t *p, uint32_t n, uint32_t bytes, int8_t *q)
{
    const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (uint32_t i = 0; i < bytes; i++)
        q[i] = (int8_t)(((uint32_t)(uint8_t)(p[i] * power[n]) * 3 >> 8) - 1);
}

/* 32 values are the digits n of 32 bytes; after these come those of 16 bytes, then of 4. */
NTX_UNPACK void ntx__part_tq1_0(const struct ntx_block_tq1_0 *b, uint32_t t, struct ntx_part *p)
{
    p->scale[0] = p->scale[1] = 1;
    if (t < 5) {
        ntx__digits(b->qs, t, 32, p->q);
        return;
    }
    ntx__digits(b->qs + 32, 2 * (t - 5), 16, p->q);
    if (t < 7)
        ntx__digits(b->qs + 32, 2 * (t - 5) + 1, 16, p->q + 16);
    for (uint32_t n = 0; t == 7 && n < 4; n++)
        ntx__digits(b->qh, n, 4, p->q + 16 + 4 * n);
}

NTX_UNPACK void ntx__part_tq2_0(const struct ntx_block_tq2_0 *b, uint32_t t, struct ntx_part *p)
{
    for (uint32_t i = 0; i < 32; i++)
        p->q[i] = (int8_t)((b->qs[t / 4 * 32 + i] >> t % 4 * 2 & 3) - 1);
    p->scale[0] = p->scale[1] = 1;
}

/* ---- all of them */

#define NTX__UNPACK_FLOAT(type, scale, minimum)
#define NTX__UNPACK_SIMPLE(type, scale, minimum) NTX__UNPACK_BLOCK(type, scale, minimum)
#define NTX__UNPACK_HALVES(type, scale, minimum) NTX__UNPACK_BLOCK(type, scale, minimum)
#define NTX__UNPACK_SUPER(type, scale, minimum)  NTX__UNPACK_BLOCK(type, scale, minimum)
#define NTX__UNPACK_BLOCK(type, scale, minimum)                                                                        \
    NTX_UNPACK void ntx_unpack_##type(const void *block, uint32_t t, struct ntx_part *p)                               \
    {                                                                                                                  \
        const struct ntx_block_##type *b = (const struct ntx_block_##type *)block;                                     \
        p->d = NTX_SCALE_##scale(b);                                                                                   \
        p->m = NTX_MIN_OF_##minimum(b);                                                                                \
        ntx__part_##type(b, t, p);                                                                                     \
    }
#define NTX__UNPACK(rule, TYPE, type, values, scale, minimum, ...) NTX__UNPACK_##rule(type, scale, minimum)
NTX_TYPES(NTX__UNPACK)

#endif
