/* SPDX-License-Identifier: Apache-2.0 */
/* codes.h: unpacks blocks that hold codes rather than integers, word by word: eight codes become the nibbles of a
 * selector, and a selector picks four bytes at once. Included by part.h.
 *
 * Codebooks are looked up in shared memory (load_codebook). Threads that read different entries wait for the fullest
 * bank: 3.2 to 3.6 of 32 threads want it on average, or two when 16 copies are interleaved and each thread reads its
 * own copy. Only codebooks of 256 words have room for 16 copies; persistent.h has 32 copies of larger ones. */
#ifndef NTX_CUDA_CODES_H
#define NTX_CUDA_CODES_H

/* Spreads eight 2-bit codes to nibbles. */
DEV uint32_t spread_2(uint32_t v)
{
    v = (v | v << 8) & 0x00ff00ffu;
    v = (v | v << 4) & 0x0f0f0f0fu;
    return (v | v << 2) & 0x33333333u;
}

/* Moves the eight bits of each byte of s to bit 2 of eight nibbles. Pairs of bits select among the bytes 0, 0x04, 0x40
 * and 0x44. */
DEV void thirds_of(uint32_t bytes, uint32_t s, uint32_t *thirds)
{
    const uint32_t even = s & 0x33333333u, odd = s >> 2 & 0x33333333u;
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t first = pick_bytes_below_8(bytes, 0, even >> 16 * h),
                       second = pick_bytes_below_8(bytes, 0, odd >> 16 * h);
        thirds[2 * h] = pick_bytes_below_8(first, second, 0x5140u);
        thirds[2 * h + 1] = pick_bytes_below_8(first, second, 0x7362u);
    }
}

/* Byte i of w, 0 <= i < 4. */
DEV uint32_t byte_of(uint32_t w, const uint32_t i) { return pick_bytes_below_8(w, 0, 0x4440u | i); }

/* Picks eight of the bytes in low and high, by nibbles of at most 7. */
DEV void pick_eight(uint32_t low, uint32_t high, uint32_t at, uint32_t *q)
{
    q[0] = pick_bytes_below_8(low, high, at);
    q[1] = pick_bytes_below_8(low, high, at >> 16);
}

/* ---- codebooks: an entry is a word or half of one. IQ2: eight codes as nibbles; IQ3: four values as bytes. */
#define NIBBLE_OF(c, i) ((uint32_t)((c) >> 2 * (i)&3) << 4 * (i))
#define NIBBLES_OF(c)                                                                                                  \
    (NIBBLE_OF(c, 0) | NIBBLE_OF(c, 1) | NIBBLE_OF(c, 2) | NIBBLE_OF(c, 3) | NIBBLE_OF(c, 4) | NIBBLE_OF(c, 5) |       \
     NIBBLE_OF(c, 6) | NIBBLE_OF(c, 7)),
#define XXS_OF(c, i)      ((uint32_t)((c) >> 3 * (i)&7) == 7 ? 62u : ((c) >> 3 * (i)&7) * 8u + 4u)
#define S_OF(c, i)        (((c) >> 3 * (i)&7u) << 4 * (i))
#define BYTES_XXS(c)      (XXS_OF(c, 0) | XXS_OF(c, 1) << 8 | XXS_OF(c, 2) << 16 | XXS_OF(c, 3) << 24),
#define NIBBLES_S(c)      (S_OF(c, 0) | S_OF(c, 1) | S_OF(c, 2) | S_OF(c, 3)),
/* IQ1: a nibble holds values i and i + 4, and selects out of two times eight bytes. Values are -1, 0 and 1, so there
 * are nine pairs: eight have bytes, and the pair of zeros is the sign of the pair of ones. */
#define PAIR_OF_IQ1(c, i) (3 * ((c) >> 2 * (i)&3) + ((c) >> 2 * (i) >> 8 & 3))
#define NIBBLE_OF_IQ1(c, i)                                                                                            \
    ((PAIR_OF_IQ1(c, i) + (PAIR_OF_IQ1(c, i) == 4) * 8u - (PAIR_OF_IQ1(c, i) == 8) * 4u) << 4 * (i))
#define NIBBLES_IQ1(c) (NIBBLE_OF_IQ1(c, 0) | NIBBLE_OF_IQ1(c, 1) | NIBBLE_OF_IQ1(c, 2) | NIBBLE_OF_IQ1(c, 3)),
DEVICE_TABLE ALIGNED16 uint32_t table_iq2_xxs[] = {NTX_CODES_iq2_xxs(NIBBLES_OF)},
                                table_iq2_xs[] = {NTX_CODES_iq2_xs(NIBBLES_OF)},
                                table_iq2_s[] = {NTX_CODES_iq2_s(NIBBLES_OF)},
                                table_iq3_xxs[] = {NTX_CODES_iq3_xxs(BYTES_XXS)};
DEVICE_TABLE ALIGNED16 uint16_t table_iq3_s[] = {NTX_CODES_iq3_s(NIBBLES_S)},
                                table_iq1[] = {NTX_CODES_iq1(NIBBLES_IQ1)};

/* Copies of a codebook of `words` words. A word of IQ3_S has two entries of four nibbles: entry i in its lower half, i
 * + 256 in its upper one. A word of IQ1 has entries 2 i and 2 i + 1; in IQ1's copies (persistent.h) word 4 i + k, k <
 * 4, has entries i + 256 k and i + 256 k + 1024. */
#define CODEBOOK_COPIES(words) ((words) == 256 ? MOST_CODEBOOK_COPIES : 1u)

#define CODEBOOK_BYTES         4u /* words of bytes that all entries select from */

struct codebook {          /* for one thread */
    const uint8_t *copies; /* shared */
    uint32_t first, apart; /* offset of its copy's first word; bytes to the copy's next word */
    uint32_t of[CODEBOOK_BYTES];
};

DEV uint32_t codebook_entry(const struct codebook *codebook, uint32_t i)
{
    return *(const uint32_t *)(const void *)(codebook->copies + (i * codebook->apart + codebook->first));
}

DEV uint32_t word_of_codebook(const uint32_t type, const uint32_t copies, uint32_t i)
{
    const uint32_t iq1 = copies == 1 ? 2 * i : i / 4 + i % 4 * 256;
    switch (type) {
    case NTX_IQ2_XXS: return table_iq2_xxs[i];
    case NTX_IQ2_XS: return table_iq2_xs[i];
    case NTX_IQ2_S: return table_iq2_s[i];
    case NTX_IQ3_XXS: return table_iq3_xxs[i];
    case NTX_IQ3_S: return table_iq3_s[i] | (uint32_t)table_iq3_s[i + 256] << 16;
    default: return table_iq1[iq1] | (uint32_t)table_iq1[iq1 + (copies == 1 ? 1 : 1024)] << 16;
    }
}

/* Word i of the bytes that entries select from. IQ2: levels, and thirds_of()'s argument. IQ3_S: levels. IQ1: values 0
 * to 3, then 4 to 7 of PAIR_OF_IQ1's pairs, times eight. */
DEV uint32_t bytes_of_codebook(const uint32_t type, uint32_t i)
{
    const uint32_t levels = type == NTX_IQ3_S ? LOOKUP_BYTES(1, 3, 5, 7) : LOOKUP_BYTES(8, 25, 43, 60),
                   iq1_high = i == 2 ? LOOKUP_BYTES(-8, 0, 8, -8) : LOOKUP_BYTES(8, 8, -8, 0),
                   iq1_rest = i == 1 ? LOOKUP_BYTES(8, 0, 8, 8) : iq1_high;
    if (type == NTX_IQ1_S || type == NTX_IQ1_M)
        return i == 0 ? LOOKUP_BYTES(-8, -8, -8, 0) : iq1_rest;
    return i % 2 ? LOOKUP_BYTES(0, 0x04, 0x40, 0x44) : levels;
}

/* Loads a codebook into shared memory, by all threads of a block. Constants follow it, each twice. They are read back
 * by thread, so that they stay in registers: the compiler would compute again constants that it knows, or knows to be
 * uniform. */
DEV struct codebook load_codebook(const uint32_t type, const uint32_t copies, uint32_t *to)
{
    const uint32_t words = codebook_words(type) * copies;
    struct codebook codebook = {(const uint8_t *)to, 4 * (TID % copies), 4 * copies, {0}};
    if (!words)
        return codebook;
    for (uint32_t i = TID; i < words / 4; i += BLOCK_DIM) {
        uint32_t v[4];
        UNROLL
        for (uint32_t k = 0; k < 4; k++)
            v[k] = word_of_codebook(type, copies, copies < 4 ? 4 * i + k : i / (copies / 4));
        store_words4(to + 4 * i, v);
    }
    if (TID < 2 * CODEBOOK_BYTES)
        to[words + TID] = bytes_of_codebook(type, TID / 2);
    SYNC();
    UNROLL
    for (uint32_t i = 0; i < CODEBOOK_BYTES; i++)
        codebook.of[i] = to[words + 2 * i + TID % 2];
    return codebook;
}

/* ---- signs */

/* Each byte has seven sign bits; sets its eighth so that the number of ones is even. Shifts to the left move the sum
 * of all bits to the highest. */
DEV uint32_t with_even_signs(uint32_t s)
{
    uint32_t odd = s ^ s << 1;
    odd ^= odd << 2;
    return s | ((odd ^ odd << 4) & 0x80808080u);
}

DEV uint32_t signs_of_28(uint32_t w)
{
    return with_even_signs((w & 0x7fu) | (w << 1 & 0x7f00u) | (w << 2 & 0x7f0000u) | (w << 3 & 0x7f000000u));
}

/* Moves four bits to the lowest bit of four bytes: the product puts each seven bits behind the one before. */
DEV uint32_t to_lowest_bits(uint32_t bits) { return bits * 0x204081u & 0x01010101u; }

/* Negates those of four positive bytes that have a 1 in `ones`. */
DEV uint32_t negate_bytes(uint32_t v, uint32_t ones) { return (v ^ ones * 255) + ones; }

/* Negates those of 32 positive bytes that have a sign bit. */
DEV void sign_words(uint32_t signs, uint32_t *q)
{
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t nibbles = signs >> 4 * h & 0x0f0f0f0fu;
        UNROLL
        for (uint32_t l = 0; l < 4; l++)
            q[2 * l + h] = negate_bytes(q[2 * l + h], to_lowest_bits(byte_of(nibbles, l)));
    }
}

/* ---- IQ2: an index stands for eight codes of two bits. The negatives of the levels follow these. */
#define IQ2_NEGATIVES LOOKUP_BYTES(-8, -25, -43, -60)

/* 32 values, from four entries and their signs. */
DEV void iq2_32(const struct codebook *codebook, const uint32_t *nibbles, uint32_t signs, uint32_t *q)
{
    uint32_t thirds[4];
    thirds_of(codebook->of[1], signs, thirds);
    UNROLL
    for (uint32_t l = 0; l < 4; l++)
        pick_eight(codebook->of[0], IQ2_NEGATIVES, nibbles[l] + thirds[l], q + 2 * l);
}

DEV void words_iq2_xxs(const struct codebook *codebook, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t w[2], nibbles[4];
    words_at(b + 2 + 8 * t, off + 2, w, 2, 1);
    UNROLL
    for (uint32_t l = 0; l < 4; l++)
        nibbles[l] = codebook_entry(codebook, byte_of(w[0], l));
    iq2_32(codebook, nibbles, signs_of_28(w[1]), u->q);
    u->scale[0] = u->scale[1] = (int32_t)(w[1] >> 27 | 1);
}

DEV void words_iq2_xs(const struct codebook *codebook, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t w[2], nibbles[4];
    words_at(b + 2 + 8 * t, off + 2, w, 2, 1);
    const uint32_t signs = pick_bytes(w[0], w[1], 0x7531u) >> 1 & 0x7f7f7f7fu, s = b[66 + t];
    UNROLL
    for (uint32_t l = 0; l < 4; l++)
        nibbles[l] = codebook_entry(codebook, w[l / 2] >> 16 * (l % 2) & 511);
    iq2_32(codebook, nibbles, with_even_signs(signs), u->q);
    u->scale[0] = (int32_t)(2 * (s & 15) + 1);
    u->scale[1] = (int32_t)(s >> 3 | 1);
}

DEV void words_iq2_s(const struct codebook *codebook, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t nibbles[4];
    const uint32_t w = one_word_at(b + 2 + 4 * t, off + 2), signs = one_word_at(b + 34 + 4 * t, off + 2),
                   high = b[66 + t], s = b[74 + t];
    UNROLL
    for (uint32_t l = 0; l < 4; l++)
        nibbles[l] = codebook_entry(codebook, byte_of(w, l) | (high << (8 - 2 * l) & 0x300u));
    iq2_32(codebook, nibbles, signs, u->q);
    u->scale[0] = (int32_t)(2 * (s & 15) + 1);
    u->scale[1] = (int32_t)(s >> 3 | 1);
}

/* ---- IQ3: an index stands for four codes of three bits. */

DEV void words_iq3_xxs(const struct codebook *codebook, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t w[2];
    words_at(b + 2 + 8 * t, off + 2, w, 2, 1);
    const uint32_t s = one_word_at(b + 66 + 4 * t, off + 2);
    UNROLL
    for (uint32_t l = 0; l < 8; l++)
        u->q[l] = codebook_entry(codebook, byte_of(w[l / 4], l % 4));
    sign_words(signs_of_28(s), u->q);
    u->scale[0] = u->scale[1] = (int32_t)(s >> 27 | 1);
}

DEV void words_iq3_s(const struct codebook *codebook, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t w[2];
    words_at(b + 2 + 8 * t, off + 2, w, 2, 1);
    const uint32_t signs = one_word_at(b + 74 + 4 * t, off + 2), high = b[66 + t];
    UNROLL
    for (uint32_t l = 0; l < 8; l++) {
        const uint32_t half = byte_of(w[l / 4], l % 4) * codebook->apart + (codebook->first | (high << 1 >> l & 2));
        u->q[l] = pick_bytes_below_8(codebook->of[0], LOOKUP_BYTES(9, 11, 13, 15), half_at(codebook->copies + half));
    }
    sign_words(signs, u->q);
    u->scale[0] = u->scale[1] = 2 * (b[106 + t / 2] >> t % 2 * 4 & 15) + 1;
}

/* ---- IQ1: eight values of -1, 0 and 1, each plus or minus an eighth, in units of an eighth. The eighth is multiplied
 * separately: by the sum of 32 values of x (IQ1_S) or of eight (IQ1_M). */

/* 32 values, by indices of 11 bits: a byte of w and three bits of a byte of `high`. In a codebook with copies, the
 * byte and bits 0 and 1 are the number of a word, and bit 2 selects its half. */
DEV void iq1_32(const struct codebook *codebook, uint32_t w, uint32_t high, uint32_t *q)
{
    const int copies = codebook->apart != 4;
    if (copies)
        high = pick_bits(high << 6, high >> 2, 0xc0c0c0c0u); /* below the byte; twice the result is the offset */
    UNROLL
    for (uint32_t l = 0; l < 4; l++) {
        const uint32_t of_copies = l < 2 ? 0x1504u : 0x3726u, of_one = l < 2 ? 0x5140u : 0x7362u,
                       two = pick_bytes_below_8(w, high, copies ? of_copies : of_one);
        uint32_t at;
        if (copies)
            at = l % 2 ? twice_high(two, codebook->first) : twice_low(two, codebook->first);
        else
            at = 2 * (l % 2 ? two >> 16 : two & 0xffff);
        const uint32_t nibbles = half_at(codebook->copies + at);
        q[2 * l] = pick_bytes_or_signs(codebook->of[0], codebook->of[1], nibbles);
        q[2 * l + 1] = pick_bytes_or_signs(codebook->of[2], codebook->of[3], nibbles);
    }
}

DEV void words_iq1_s(const struct codebook *codebook, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    const uint32_t w = one_word_at(b + 2 + 4 * t, off + 2), h = half_at(b + 34 + 2 * t),
                   sixes = bits_of_both(h, h << 10, 0x003f003fu);
    iq1_32(codebook, w, bits_of_both(sixes, sixes << 5, 0x07070707u), u->q);
    u->min[0] = 1 - (int32_t)(h >> 14 & 2);
    u->scale[0] = u->scale[1] = (int32_t)(2 * (h >> 12 & 7) + 1);
}

DEV struct part part_iq1_s(const struct unpacked *u, const uint32_t *x)
{
    uint32_t v[8];
    load_words4(x, v);
    load_words4(x + 4, v + 4);
    return (struct part){u->scale[0] * (dot_words(u->q, v, 8) + u->min[0] * sum_words(v, 8)), 0};
}

DEV void words_iq1_m(const struct codebook *codebook, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    const uint32_t w = one_word_at(b + 4 * t, off), h = half_at(b + 32 + 2 * t),
                   s = half_at(b + 48 + t / 2 * 2) >> t % 2 * 6, bytes = bits_of_both(h, h << 8, 0x00ff00ffu);
    iq1_32(codebook, w, bits_of_both(bytes, bytes << 4, 0x07070707u), u->q);
    u->min[0] = (int32_t)(pick_bytes_or_signs(h, h << 4, 0x9d8cu) | 0x01010101u); /* bytes of 1, or of -1 */
    u->scale[0] = (int32_t)(2 * (s & 7) + 1);
    u->scale[1] = (int32_t)(2 * (s >> 3 & 7) + 1);
}

DEV struct part part_iq1_m(const struct unpacked *u, const uint32_t *x)
{
    uint32_t v[8], sums[4];
    load_words4(x, v);
    load_words4(x + 4, v + 4);
    UNROLL
    for (int l = 0; l < 4; l++)
        sums[l] = (uint32_t)sum_words(v + 2 * l, 2);
    return (struct part){u->scale[0] * dot2_low(pick_bytes_below_8(sums[0], sums[1], 0x5410u), (uint32_t)u->min[0],
                                                dot_words(u->q, v, 4)) +
                             u->scale[1] * dot2_high(pick_bytes_below_8(sums[2], sums[3], 0x5410u), (uint32_t)u->min[0],
                                                     dot_words(u->q + 4, v + 4, 4)),
                         0};
}

/* ---- TQ1_0: a byte holds five digits to base 3 (model/unpack.h), each one too large. Multiplied by three, the rest
 * of a byte overflows by the next digit; a word holds the rests of two bytes. */

/* Multiplies the first n digits of four bytes by n words of x. */
DEV int32_t dot_digits(uint32_t w, const uint32_t *x, const int n, int32_t sum)
{
    uint32_t even = w & 0x00ff00ffu, odd = pick_bytes_below_8(w, 0, 0x4341u);
    UNROLL
    for (int i = 0; i < n; i++) {
        even = (even & 0x00ff00ffu) * 3;
        odd = (odd & 0x00ff00ffu) * 3;
        sum = dot4(pick_bytes_below_8(even, odd, 0x7351u), x[i], sum);
    }
    return sum;
}

/* The n-th digits of four bytes, for many rows: there five digits would need too many words of x. */
DEV uint32_t digits_of_word(uint32_t w, uint32_t n)
{
    const uint32_t power = pick_bytes(0x1b090301u, 81, n) & 255;
    const uint32_t even = ((w & 0x00ff00ffu) * power & 0x00ff00ffu) * 3,
                   odd = ((w >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu) * 3;
    return pick_bytes_below_8(even, odd, 0x7351u);
}

/* Part t: a digit of the first 32 bytes of qs, or digits of its last 16 bytes and of qh. */
DEV void words_tq1_0(const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    UNROLL
    for (uint32_t k = 0; k < 8; k++) {
        const uint32_t of_qh = t == 7 && k >= 4, last_at = of_qh ? 48 : 32 + k % 4 * 4,
                       last = of_qh ? k - 4 : 2 * (t - 5) + k / 4, at = t < 5 ? 4 * k : last_at;
        uint32_t w;
        words_at(b + at, off, &w, 1, 0);
        u->q[k] = digits_of_word(w, t < 5 ? t : last);
    }
    u->scale[0] = u->scale[1] = 1;
}

/* ---- simple types: NVFP4 (16 values are 8 bytes of nibbles), Q2_0 (two bits, less one), Q1_0 (signs) */
DEV void words_nvfp4(const uint8_t *b, uint32_t off, uint32_t t, uint32_t *q)
{
    const struct lookup l = LOOKUP_WORDS(NTX_VALUES_mxfp4);
    uint32_t w[4];
    words_at(b + 4 + 16 * t, off, w, 4, 0);
    UNROLL
    for (int i = 0; i < 4; i++) {
        const uint32_t first = looked_up(l, w[i]), second = looked_up(l, w[i] >> 16);
        q[i / 2 * 4 + i % 2] = pick_bytes(first, second, 0x6420u);
        q[i / 2 * 4 + i % 2 + 2] = pick_bytes(first, second, 0x7531u);
    }
}

/* ntx_e4m3_half_float without a branch: x's bits are those of an F16 that is 256 times smaller. */
DEV float e4m3_half(uint32_t x) { return x == 0x7f ? 0 : widen_half(x << 7 & 0x3f80u) * 128.0f; }

DEV void words_q2_0(const uint8_t *b, uint32_t off, uint32_t t, uint32_t *q)
{
    uint32_t w[2];
    words_at(b + 2 + 8 * t, off + 2, w, 2, 0);
    UNROLL
    for (int i = 0; i < 4; i++)
        pick_eight(LOOKUP_BYTES(-1, 0, 1, 2), 0, spread_2(w[i / 2] >> 16 * (i % 2) & 0xffff), q + 2 * i);
}

/* Twice each bit; simple_minus() is 1. */
DEV void words_q1_0(const uint8_t *b, uint32_t off, uint32_t t, uint32_t *q)
{
    uint32_t w;
    words_at(b + 2 + 4 * t, off + 2, &w, 1, 0);
    UNROLL
    for (int i = 0; i < 8; i++)
        q[i] = 2 * to_lowest_bits(w >> 4 * i & 15);
}

/* Word n becomes bytes n of words 0, 2, 4 and 6. */
DEV void transpose_words(const uint32_t *w, uint32_t *turned)
{
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t pairs = h ? 0x7362u : 0x5140u, low = pick_bytes_below_8(w[0], w[2], pairs),
                       high = pick_bytes_below_8(w[4], w[6], pairs);
        turned[2 * h] = pick_bytes_below_8(low, high, 0x5410u);
        turned[2 * h + 1] = pick_bytes_below_8(low, high, 0x7632u);
    }
}

#endif
