/* SPDX-License-Identifier: Apache-2.0 */
/* codes.h: parts of blocks that hold codes rather than integers, word by word: eight codes become the nibbles of a
 * selector, and a selector picks four bytes at once. Included by part.h.
 *
 * Books of codes are looked up in shared memory (bring_codebook), where threads that ask for different entries wait for
 * the fullest bank only: one that 3.2 to 3.6 of 32 threads want on average, or two where 16 copies of a book lie side
 * by side, of which each thread looks in its own (of 256 words: more have no room, but in persistent.h). */
#ifndef NTX_CUDA_CODES_H
#define NTX_CUDA_CODES_H

/* Eight of two bits as nibbles. */
DEV uint32_t spread_2(uint32_t v)
{
    v = (v | v << 8) & 0x00ff00ffu;
    v = (v | v << 4) & 0x0f0f0f0fu;
    return (v | v << 2) & 0x33333333u;
}

/* The eight bits of each of s's bytes as the third of eight nibbles: pairs of bits select bytes, of 0, 0x04, 0x40 and
 * 0x44. */
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

/* Eight bytes, by nibbles of at most 7. */
DEV void pick_eight(uint32_t low, uint32_t high, uint32_t at, uint32_t *q)
{
    q[0] = pick_bytes_below_8(low, high, at);
    q[1] = pick_bytes_below_8(low, high, at >> 16);
}

/* ---- books: a word an entry, or half of one. IQ2's eight codes as nibbles, IQ3's four values as bytes. */
#define NIBBLE_OF(c, i) ((uint32_t)((c) >> 2 * (i)&3) << 4 * (i))
#define NIBBLES_OF(c)                                                                                                  \
    (NIBBLE_OF(c, 0) | NIBBLE_OF(c, 1) | NIBBLE_OF(c, 2) | NIBBLE_OF(c, 3) | NIBBLE_OF(c, 4) | NIBBLE_OF(c, 5) |       \
     NIBBLE_OF(c, 6) | NIBBLE_OF(c, 7)),
#define XXS_OF(c, i)      ((uint32_t)((c) >> 3 * (i)&7) == 7 ? 62u : ((c) >> 3 * (i)&7) * 8u + 4u)
#define S_OF(c, i)        (((c) >> 3 * (i)&7u) << 4 * (i))
#define BYTES_XXS(c)      (XXS_OF(c, 0) | XXS_OF(c, 1) << 8 | XXS_OF(c, 2) << 16 | XXS_OF(c, 3) << 24),
#define NIBBLES_S(c)      (S_OF(c, 0) | S_OF(c, 1) | S_OF(c, 2) | S_OF(c, 3)),
/* IQ1: value i and value i + 4 in one nibble, which selects out of two times eight bytes. They are of -1, 0 and 1: nine
 * pairs, of which eight have bytes, and that of zeros is the sign of the pair of ones. */
#define PAIR_OF_IQ1(c, i) (3 * ((c) >> 2 * (i)&3) + ((c) >> 2 * (i) >> 8 & 3))
#define NIBBLE_OF_IQ1(c, i)                                                                                            \
    ((PAIR_OF_IQ1(c, i) == 4 ? 12u : PAIR_OF_IQ1(c, i) == 8 ? 4u : (uint32_t)PAIR_OF_IQ1(c, i)) << 4 * (i))
#define NIBBLES_IQ1(c) (NIBBLE_OF_IQ1(c, 0) | NIBBLE_OF_IQ1(c, 1) | NIBBLE_OF_IQ1(c, 2) | NIBBLE_OF_IQ1(c, 3)),
DEVICE_TABLE ALIGNED16 uint32_t table_iq2_xxs[] = {NTX_CODES_iq2_xxs(NIBBLES_OF)},
                                table_iq2_xs[] = {NTX_CODES_iq2_xs(NIBBLES_OF)},
                                table_iq2_s[] = {NTX_CODES_iq2_s(NIBBLES_OF)},
                                table_iq3_xxs[] = {NTX_CODES_iq3_xxs(BYTES_XXS)};
DEVICE_TABLE ALIGNED16 uint16_t table_iq3_s[] = {NTX_CODES_iq3_s(NIBBLES_S)},
                                table_iq1[] = {NTX_CODES_iq1(NIBBLES_IQ1)};

/* Words of a type's book, and copies. A word of IQ3_S has two entries, of four nibbles each: entry i in its lower half,
 * i + 256 in the upper one; one of IQ1 entries 2 i and 2 i + 1; word 4 i + k, k < 4, of IQ1's copies (persistent.h)
 * entries i + 256 k and i + 256 k + 1024. */
#define CODEBOOK_COPIES(words) ((words) == 256 ? BOOK_COPIES : 1u)

#define BOOK_BYTES             4u /* words of bytes to select, for all entries */

struct codebook {          /* for one thread */
    const uint8_t *copies; /* shared */
    uint32_t first, apart; /* bytes from there to its copy's first word; from that to the next one */
    uint32_t of[BOOK_BYTES];
};

DEV uint32_t entry(const struct codebook *codebook, uint32_t i)
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

/* IQ2: levels, and what thirds_of() takes. IQ3_S: levels. IQ1: times eight, values 0 to 3 of PAIR_OF_IQ1's pairs, and 4
 * to 7. */
DEV uint32_t bytes_of_codebook(const uint32_t type, uint32_t i)
{
    const uint32_t levels = type == NTX_IQ3_S ? LOOKUP_BYTES(1, 3, 5, 7) : LOOKUP_BYTES(8, 25, 43, 60),
                   iq1_high = i == 2 ? LOOKUP_BYTES(-8, 0, 8, -8) : LOOKUP_BYTES(8, 8, -8, 0),
                   iq1_rest = i == 1 ? LOOKUP_BYTES(8, 0, 8, 8) : iq1_high;
    if (type == NTX_IQ1_S || type == NTX_IQ1_M)
        return i == 0 ? LOOKUP_BYTES(-8, -8, -8, 0) : iq1_rest;
    return i % 2 ? LOOKUP_BYTES(0, 0x04, 0x40, 0x44) : levels;
}

/* To shared memory, by all threads of a block. Behind it lie constants that are to stay in registers: a compiler makes
 * anew, wherever it is wanted, what it knows, and what it knows to be the same for all threads; so each lies there
 * twice. */
DEV struct codebook bring_codebook(const uint32_t type, const uint32_t copies, uint32_t *to)
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
    if (TID < 2 * BOOK_BYTES)
        to[words + TID] = bytes_of_codebook(type, TID / 2);
    SYNC();
    UNROLL
    for (uint32_t i = 0; i < BOOK_BYTES; i++)
        codebook.of[i] = to[words + 2 * i + TID % 2];
    return codebook;
}

/* ---- signs */

/* Four times seven bits, in a byte each, and to each an eighth that makes the number of minuses even: shifts to the
 * left move a sum of all bits to the highest. */
DEV uint32_t evened(uint32_t s)
{
    uint32_t odd = s ^ s << 1;
    odd ^= odd << 2;
    return s | ((odd ^ odd << 4) & 0x80808080u);
}

DEV uint32_t signs_of_28(uint32_t w)
{
    return evened((w & 0x7fu) | (w << 1 & 0x7f00u) | (w << 2 & 0x7f0000u) | (w << 3 & 0x7f000000u));
}

/* Four bits as the lowest of four bytes: a product puts each seven bits behind the one before. */
DEV uint32_t lowest_of(uint32_t bits) { return bits * 0x204081u & 0x01010101u; }

/* Four positive bytes, those with a minus that have a 1. */
DEV uint32_t with_minuses(uint32_t v, uint32_t ones) { return (v ^ ones * 255) + ones; }

/* 32 positive bytes by their signs. */
DEV void sign_words(uint32_t signs, uint32_t *q)
{
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t nibbles = signs >> 4 * h & 0x0f0f0f0fu;
        UNROLL
        for (uint32_t l = 0; l < 4; l++)
            q[2 * l + h] = with_minuses(q[2 * l + h], lowest_of(byte_of(nibbles, l)));
    }
}

/* ---- IQ2: eight codes of two bits an index. Levels, and behind them their negatives. */
#define IQ2_NEGATIVES LOOKUP_BYTES(-8, -25, -43, -60)

/* Codes of four indices, and their signs. */
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
        nibbles[l] = entry(codebook, byte_of(w[0], l));
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
        nibbles[l] = entry(codebook, w[l / 2] >> 16 * (l % 2) & 511);
    iq2_32(codebook, nibbles, evened(signs), u->q);
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
        nibbles[l] = entry(codebook, byte_of(w, l) | (high << (8 - 2 * l) & 0x300u));
    iq2_32(codebook, nibbles, signs, u->q);
    u->scale[0] = (int32_t)(2 * (s & 15) + 1);
    u->scale[1] = (int32_t)(s >> 3 | 1);
}

/* ---- IQ3: four codes of three bits an index. */

DEV void words_iq3_xxs(const struct codebook *codebook, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t w[2];
    words_at(b + 2 + 8 * t, off + 2, w, 2, 1);
    const uint32_t s = one_word_at(b + 66 + 4 * t, off + 2);
    UNROLL
    for (uint32_t l = 0; l < 8; l++)
        u->q[l] = entry(codebook, byte_of(w[l / 4], l % 4));
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

/* ---- IQ1: eight values of -1, 0 and 1, an eighth less or more, as eighths. What is less or more is a product of its
 * own: of IQ1_S by the sum of 32 values of x, of IQ1_M by those of eight. */

/* By indices of 11 bits: one byte of w each, and three bits of a byte of `high`. Where the book has copies, the byte
 * and bits 0 and 1 of those are the number of a word, and bit 2 is its half. */
DEV void iq1_32(const struct codebook *codebook, uint32_t w, uint32_t high, uint32_t *q)
{
    const int copies = codebook->apart != 4;
    if (copies)
        high = pick_bits(high << 6, high >> 2, 0xc0c0c0c0u); /* below the byte: twice that is the place */
    UNROLL
    for (uint32_t l = 0; l < 4; l++) {
        const uint32_t two = pick_bytes_below_8(w, high,
                                                copies  ? (l < 2 ? 0x1504u : 0x3726u)
                                                : l < 2 ? 0x5140u
                                                        : 0x7362u);
        const uint32_t at = !copies ? 2 * (l % 2 ? two >> 16 : two & 0xffff)
                            : l % 2 ? twice_high(two, codebook->first)
                                    : twice_low(two, codebook->first),
                       nibbles = half_at(codebook->copies + at);
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

/* ---- TQ1_0: five digits to base 3 in a byte (model/unpack.h), less one. What three times the rest runs over is a
 * digit; two bytes' rests lie in a word. */

/* The first n digits of four bytes by n words of x. */
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

/* And the n-th digits alone, where x's words of five would be too many: of part t, word by word of qs, whose first 32
 * bytes have five and whose 16 others, too, then of qh. */
DEV uint32_t digits_of_word(uint32_t w, uint32_t n)
{
    const uint32_t power = pick_bytes(0x1b090301u, 81, n) & 255;
    const uint32_t even = ((w & 0x00ff00ffu) * power & 0x00ff00ffu) * 3,
                   odd = ((w >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu) * 3;
    return pick_bytes_below_8(even, odd, 0x7351u);
}

DEV void words_tq1_0(const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    UNROLL
    for (uint32_t k = 0; k < 8; k++) {
        const uint32_t of_qh = t == 7 && k >= 4, at = t < 5 ? 4 * k : of_qh ? 48 : 32 + k % 4 * 4;
        uint32_t w;
        words_at(b + at, off, &w, 1, 0);
        u->q[k] = digits_of_word(w, t < 5 ? t : of_qh ? k - 4 : 2 * (t - 5) + k / 4);
    }
    u->scale[0] = u->scale[1] = 1;
}

/* ---- simple ones: NVFP4, whose halves have 8 bytes of nibbles each; two bits, less one; signs */
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

/* ntx_e4m3_half_float without a branch: its bits are an F16's of a 256th of it. */
DEV float e4m3_half(uint32_t x) { return x == 0x7f ? 0 : widen_half(x << 7 & 0x3f80u) * 128.0f; }

DEV void words_q2_0(const uint8_t *b, uint32_t off, uint32_t t, uint32_t *q)
{
    uint32_t w[2];
    words_at(b + 2 + 8 * t, off + 2, w, 2, 0);
    UNROLL
    for (int i = 0; i < 4; i++)
        pick_eight(LOOKUP_BYTES(-1, 0, 1, 2), 0, spread_2(w[i / 2] >> 16 * (i % 2) & 0xffff), q + 2 * i);
}

/* Twice each bit; one is to be taken off. */
DEV void words_q1_0(const uint8_t *b, uint32_t off, uint32_t t, uint32_t *q)
{
    uint32_t w;
    words_at(b + 2 + 4 * t, off + 2, &w, 1, 0);
    UNROLL
    for (int i = 0; i < 8; i++)
        q[i] = 2 * lowest_of(w >> 4 * i & 15);
}

/* Bytes n of words 0, 2, 4 and 6, as word n. */
DEV void turn_words(const uint32_t *w, uint32_t *turned)
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
