/* codes.h: parts of blocks that hold codes rather than integers, word by word: eight codes become the nibbles of a selector, and a selector picks four bytes at once. Included by part.h. */
#ifndef NTX_CUDA_CODES_H
#define NTX_CUDA_CODES_H

/* Eight of two bits, or of one, as nibbles; eight nibbles of any. */
DEV uint32_t spread_2(uint32_t v)
{
    v = (v | v << 8) & 0x00ff00ffu;
    v = (v | v << 4) & 0x0f0f0f0fu;
    return (v | v << 2) & 0x33333333u;
}

DEV uint32_t spread_1(uint32_t v)
{
    v = (v | v << 12) & 0x000f000fu;
    v = (v | v << 6) & 0x03030303u;
    return (v | v << 3) & 0x11111111u;
}

/* Bits 0..3 of v as the lowest of four bytes; others of v are 0. */
DEV uint32_t spread_4(uint32_t v) { return v * 0x00204081u & 0x01010101u; }

/* Eight bytes, by nibbles of at most 7. */
DEV void pick_eight(uint32_t low, uint32_t high, uint32_t at, uint32_t *q)
{
    q[0] = pick_bytes_below_8(low, high, at);
    q[1] = pick_bytes_below_8(low, high, at >> 16);
}

/* Four times seven signs, and to each an eighth that makes the number of minuses even. */
DEV uint32_t signs_of_28(uint32_t w)
{
    const uint32_t s = (w & 0x7fu) | (w << 1 & 0x7f00u) | (w << 2 & 0x7f0000u) | (w << 3 & 0x7f000000u);
    uint32_t odd = s ^ s >> 4;
    odd ^= odd >> 2;
    return s | ((odd ^ odd >> 1) & 0x01010101u) << 7;
}

/* Four positive bytes with the signs of the lower four bits of s. */
DEV uint32_t with_signs(uint32_t v, uint32_t s)
{
    const uint32_t minus = spread_4(s & 15);
    return (v ^ minus * 255) + minus;
}

/* ---- IQ2: eight codes of two bits an index. Levels, and behind them their negatives. */
#define IQ2_LEVELS LOOKUP_BYTES(8, 25, 43, 60)
#define IQ2_NEGATIVES LOOKUP_BYTES(-8, -25, -43, -60)

DEV void iq2_eight(uint32_t code, uint32_t signs, uint32_t *q) { pick_eight(IQ2_LEVELS, IQ2_NEGATIVES, spread_2(code) | spread_1(signs & 255) << 2, q); }

DEV void words_iq2_xxs(const uint8_t *b, uint32_t t, struct unpacked *u)
{
    uint32_t w[2];
    words_at(b + 2 + 8 * t, w, 2);
    const uint32_t signs = signs_of_28(w[1]);
    UNROLL
    for (int l = 0; l < 4; l++)
        iq2_eight(ntx__codes_iq2_xxs[w[0] >> 8 * l & 255], signs >> 8 * l, u->q + 2 * l);
    u->scale[0] = u->scale[1] = (int32_t)(2 * (w[1] >> 28) + 1);
}

DEV void words_iq2_xs(const uint8_t *b, uint32_t t, struct unpacked *u)
{
    uint32_t w[2];
    words_at(b + 2 + 8 * t, w, 2);
    const uint32_t signs = signs_of_28((w[0] >> 9 & 127) | w[0] >> 25 << 7 | (w[1] >> 9 & 127) << 14 | w[1] >> 25 << 21), s = b[66 + t];
    UNROLL
    for (int l = 0; l < 4; l++)
        iq2_eight(ntx__codes_iq2_xs[w[l / 2] >> 16 * (l % 2) & 511], signs >> 8 * l, u->q + 2 * l);
    u->scale[0] = (int32_t)(2 * (s & 15) + 1);
    u->scale[1] = (int32_t)(2 * (s >> 4) + 1);
}

DEV void words_iq2_s(const uint8_t *b, uint32_t t, struct unpacked *u)
{
    uint32_t w, signs;
    words_at(b + 2 + 4 * t, &w, 1);
    words_at(b + 34 + 4 * t, &signs, 1);
    const uint32_t high = b[66 + t], s = b[74 + t];
    UNROLL
    for (int l = 0; l < 4; l++)
        iq2_eight(ntx__codes_iq2_s[(w >> 8 * l & 255) | (high >> 2 * l & 3) << 8], signs >> 8 * l, u->q + 2 * l);
    u->scale[0] = (int32_t)(2 * (s & 15) + 1);
    u->scale[1] = (int32_t)(2 * (s >> 4) + 1);
}

/* ---- IQ3: four codes of three bits an index; as nibbles, which the tables of indices hold. */
#define IQ3_CODE(c) (((c) & 7u) | ((c) >> 3 & 7u) << 4 | ((c) >> 6 & 7u) << 8 | ((c) >> 9 & 7u) << 12),
DEVICE_TABLE uint16_t selectors_iq3_xxs[] = {NTX_CODES_iq3_xxs(IQ3_CODE)}, selectors_iq3_s[] = {NTX_CODES_iq3_s(IQ3_CODE)};

DEV void words_iq3_xxs(const uint8_t *b, uint32_t t, struct unpacked *u)
{
    uint32_t w[2], s;
    words_at(b + 2 + 8 * t, w, 2);
    words_at(b + 66 + 4 * t, &s, 1);
    const uint32_t signs = signs_of_28(s);
    UNROLL
    for (int l = 0; l < 8; l++)
        u->q[l] = with_signs(pick_bytes_below_8(LOOKUP_BYTES(4, 12, 20, 28), LOOKUP_BYTES(36, 44, 52, 62), selectors_iq3_xxs[w[l / 4] >> 8 * (l % 4) & 255]), signs >> 4 * l);
    u->scale[0] = u->scale[1] = (int32_t)(2 * (s >> 28) + 1);
}

DEV void words_iq3_s(const uint8_t *b, uint32_t t, struct unpacked *u)
{
    uint32_t w[2], signs;
    words_at(b + 2 + 8 * t, w, 2);
    words_at(b + 74 + 4 * t, &signs, 1);
    const uint32_t high = b[66 + t];
    UNROLL
    for (int l = 0; l < 8; l++)
        u->q[l] = with_signs(pick_bytes_below_8(LOOKUP_BYTES(1, 3, 5, 7), LOOKUP_BYTES(9, 11, 13, 15), selectors_iq3_s[(w[l / 4] >> 8 * (l % 4) & 255) | (high >> l & 1) << 8]), signs >> 4 * l);
    u->scale[0] = u->scale[1] = 2 * (b[106 + t / 2] >> t % 2 * 4 & 15) + 1;
}

/* ---- IQ1: eight codes of two bits, -1, 0, 1, an eighth less or more, as eighths. */
DEV void iq1_eight(uint32_t index, uint32_t less, uint32_t *q)
{
    pick_eight(less ? LOOKUP_BYTES(-9, -1, 7, 15) : LOOKUP_BYTES(-7, 1, 9, 17), 0, spread_2(ntx__codes_iq1[index]), q);
}

DEV void words_iq1_s(const uint8_t *b, uint32_t t, struct unpacked *u)
{
    uint32_t w;
    words_at(b + 2 + 4 * t, &w, 1);
    const uint32_t h = half_at(b + 34 + 2 * t);
    UNROLL
    for (int l = 0; l < 4; l++)
        iq1_eight((w >> 8 * l & 255) | (h >> 3 * l & 7) << 8, h >> 15, u->q + 2 * l);
    u->scale[0] = u->scale[1] = (int32_t)(2 * (h >> 12 & 7) + 1);
}

DEV void words_iq1_m(const uint8_t *b, uint32_t t, struct unpacked *u)
{
    uint32_t w;
    words_at(b + 4 * t, &w, 1);
    const uint32_t h = half_at(b + 32 + 2 * t), s = half_at(b + 48 + t / 2 * 2) >> t % 2 * 6;
    UNROLL
    for (int l = 0; l < 4; l++)
        iq1_eight((w >> 8 * l & 255) | (h >> 4 * l & 7) << 8, h >> (4 * l + 3) & 1, u->q + 2 * l);
    u->scale[0] = (int32_t)(2 * (s & 7) + 1);
    u->scale[1] = (int32_t)(2 * (s >> 3 & 7) + 1);
}

/* ---- TQ1_0: five digits to base 3 in a byte (model/unpack.h), less one; the n-th of four bytes. */
DEV uint32_t digits_of_word(uint32_t w, uint32_t n)
{
    const uint32_t power = pick_bytes(0x1b090301u, 81, n) & 255;
    const uint32_t even = ((w & 0x00ff00ffu) * power & 0x00ff00ffu) * 3, odd = ((w >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu) * 3;
    return (even >> 8 & 0x00030003u) | (odd & 0x03000300u);
}

/* Word k of part t: of qs, its first 32 bytes by five digits and 16 more likewise, then of qh. */
DEV void words_tq1_0(const uint8_t *b, uint32_t t, struct unpacked *u)
{
    UNROLL
    for (uint32_t k = 0; k < 8; k++) {
        const uint32_t of_qh = t == 7 && k >= 4, at = t < 5 ? 4 * k : of_qh ? 48 : 32 + k % 4 * 4;
        uint32_t w;
        words_at(b + at, &w, 1);
        u->q[k] = digits_of_word(w, t < 5 ? t : of_qh ? k - 4 : 2 * (t - 5) + k / 4);
    }
    u->scale[0] = u->scale[1] = 1;
}

/* ---- simple ones: NVFP4, whose halves have 8 bytes of nibbles each; two bits, less one; signs */
DEV void words_nvfp4(const uint8_t *b, uint32_t t, uint32_t *q)
{
    const struct lookup l = LOOKUP_WORDS(NTX_VALUES_mxfp4);
    uint32_t w[4];
    words_at(b + 4 + 16 * t, w, 4);
    UNROLL
    for (int i = 0; i < 4; i++) {
        const uint32_t first = looked_up(l, w[i]), second = looked_up(l, w[i] >> 16);
        q[i / 2 * 4 + i % 2] = pick_bytes(first, second, 0x6420u);
        q[i / 2 * 4 + i % 2 + 2] = pick_bytes(first, second, 0x7531u);
    }
}

DEV void words_q2_0(const uint8_t *b, uint32_t t, uint32_t *q)
{
    uint32_t w[2];
    words_at(b + 2 + 8 * t, w, 2);
    UNROLL
    for (int i = 0; i < 4; i++)
        pick_eight(LOOKUP_BYTES(-1, 0, 1, 2), 0, spread_2(w[i / 2] >> 16 * (i % 2) & 0xffff), q + 2 * i);
}

/* Twice each bit; one is to be taken off. */
DEV void words_q1_0(const uint8_t *b, uint32_t t, uint32_t *q)
{
    uint32_t w;
    words_at(b + 2 + 4 * t, &w, 1);
    UNROLL
    for (int i = 0; i < 8; i++)
        q[i] = spread_4(w >> 4 * i & 15) * 2;
}

#endif
