/* codes.h: parts of blocks that hold codes rather than integers, word by word: eight codes become the nibbles of a selector, and a selector picks four bytes at once. Included by part.h.
 *
 * Books of codes are looked up in shared memory (bring_table), where threads that ask for different entries wait for the fullest bank only. */
#ifndef NTX_CUDA_CODES_H
#define NTX_CUDA_CODES_H

/* Eight of two bits as nibbles. */
DEV uint32_t spread_2(uint32_t v)
{
    v = (v | v << 8) & 0x00ff00ffu;
    v = (v | v << 4) & 0x0f0f0f0fu;
    return (v | v << 2) & 0x33333333u;
}

/* Eight bits as the third of eight nibbles each. Products put a value beside itself. */
DEV uint32_t thirds_of(uint32_t v)
{
    v = v * 0x1001u & 0x000f000fu;
    v = v * 0x41u & 0x03030303u;
    return v * 0x24u & 0x44444444u;
}

/* Byte i of w, 0 <= i < 4. */
DEV uint32_t byte_of(uint32_t w, const uint32_t i) { return pick_bytes_below_8(w, 0, 0x4440u | i); }

/* Eight bytes, by nibbles of at most 7. */
DEV void pick_eight(uint32_t low, uint32_t high, uint32_t at, uint32_t *q)
{
    q[0] = pick_bytes_below_8(low, high, at);
    q[1] = pick_bytes_below_8(low, high, at >> 16);
}

/* ---- books: a word an entry. IQ2's and IQ1's eight codes as nibbles, IQ3's four values as bytes. */
#define NIBBLE_OF(c, i) ((uint32_t)((c) >> 2 * (i) & 3) << 4 * (i))
#define NIBBLES_OF(c) (NIBBLE_OF(c, 0) | NIBBLE_OF(c, 1) | NIBBLE_OF(c, 2) | NIBBLE_OF(c, 3) | NIBBLE_OF(c, 4) | NIBBLE_OF(c, 5) | NIBBLE_OF(c, 6) | NIBBLE_OF(c, 7)),
#define XXS_OF(c, i) ((uint32_t)((c) >> 3 * (i) & 7) == 7 ? 62u : ((c) >> 3 * (i) & 7) * 8u + 4u)
#define S_OF(c, i) (((c) >> 3 * (i) & 7) * 2u + 1u)
#define BYTES_XXS(c) (XXS_OF(c, 0) | XXS_OF(c, 1) << 8 | XXS_OF(c, 2) << 16 | XXS_OF(c, 3) << 24),
#define BYTES_S(c) (S_OF(c, 0) | S_OF(c, 1) << 8 | S_OF(c, 2) << 16 | S_OF(c, 3) << 24),
DEVICE_TABLE ALIGNED16 uint32_t table_iq2_xxs[] = {NTX_CODES_iq2_xxs(NIBBLES_OF)}, table_iq2_xs[] = {NTX_CODES_iq2_xs(NIBBLES_OF)}, table_iq2_s[] = {NTX_CODES_iq2_s(NIBBLES_OF)},
             table_iq1[] = {NTX_CODES_iq1(NIBBLES_OF)}, table_iq3_xxs[] = {NTX_CODES_iq3_xxs(BYTES_XXS)}, table_iq3_s[] = {NTX_CODES_iq3_s(BYTES_S)};

/* Words of a type's book. */
#define TABLE_OF(type) \
    ((type) == NTX_IQ2_XXS || (type) == NTX_IQ3_XXS ? 256u : (type) == NTX_IQ2_XS || (type) == NTX_IQ3_S ? 512u : (type) == NTX_IQ2_S ? 1024u \
     : (type) == NTX_IQ1_S || (type) == NTX_IQ1_M ? 2048u : 0u)

/* To shared memory, by all threads of a block. */
DEV void bring_table(const uint32_t type, uint32_t *to)
{
    const uint32_t *from = type == NTX_IQ2_XXS ? table_iq2_xxs : type == NTX_IQ2_XS ? table_iq2_xs : type == NTX_IQ2_S ? table_iq2_s
                         : type == NTX_IQ3_XXS ? table_iq3_xxs : type == NTX_IQ3_S ? table_iq3_s : table_iq1;
    if (!TABLE_OF(type))
        return;
    for (uint32_t i = 4 * TID; i < TABLE_OF(type); i += 4 * BLOCK_DIM) {
        uint32_t v[4];
        load_words4(from + i, v);
        store_words4(to + i, v);
    }
    SYNC();
}

/* ---- signs */

/* Four times seven, and to each an eighth that makes the number of minuses even. */
DEV uint32_t signs_of_28(uint32_t w)
{
    const uint32_t s = (w & 0x7fu) | (w << 1 & 0x7f00u) | (w << 2 & 0x7f0000u) | (w << 3 & 0x7f000000u);
    uint32_t odd = s ^ s >> 4;
    odd ^= odd >> 2;
    return s | ((odd ^ odd >> 1) & 0x01010101u) << 7;
}

/* Bytes of -1 where bits n .. n + 3 of s are set: n is 0 or 4. Each bit goes to the highest of a byte. */
DEV uint32_t minuses(uint32_t s, const uint32_t n) { return signs_of_bytes((s & 15u << n) * (n ? 0x01020408u : 0x10204080u)); }

/* Four positive bytes with such signs. */
DEV uint32_t with_minuses(uint32_t v, uint32_t minus) { return (v ^ minus) + (minus & 0x01010101u); }

/* ---- IQ2: eight codes of two bits an index. Levels, and behind them their negatives. */
#define IQ2_LEVELS LOOKUP_BYTES(8, 25, 43, 60)
#define IQ2_NEGATIVES LOOKUP_BYTES(-8, -25, -43, -60)

DEV void iq2_eight(uint32_t nibbles, uint32_t signs, uint32_t *q) { pick_eight(IQ2_LEVELS, IQ2_NEGATIVES, nibbles | thirds_of(signs), q); }

DEV void words_iq2_xxs(const uint32_t *table, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t w[2];
    words_at(b + 2 + 8 * t, off + 2, w, 2);
    const uint32_t signs = signs_of_28(w[1]);
    UNROLL
    for (uint32_t l = 0; l < 4; l++)
        iq2_eight(table[byte_of(w[0], l)], byte_of(signs, l), u->q + 2 * l);
    u->scale[0] = u->scale[1] = (int32_t)(w[1] >> 27 | 1);
}

DEV void words_iq2_xs(const uint32_t *table, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t w[2];
    words_at(b + 2 + 8 * t, off + 2, w, 2);
    const uint32_t signs = signs_of_28((w[0] >> 9 & 127) | w[0] >> 25 << 7 | (w[1] >> 9 & 127) << 14 | w[1] >> 25 << 21), s = b[66 + t];
    UNROLL
    for (uint32_t l = 0; l < 4; l++)
        iq2_eight(table[w[l / 2] >> 16 * (l % 2) & 511], byte_of(signs, l), u->q + 2 * l);
    u->scale[0] = (int32_t)(2 * (s & 15) + 1);
    u->scale[1] = (int32_t)(s >> 3 | 1);
}

DEV void words_iq2_s(const uint32_t *table, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t w, signs;
    words_at(b + 2 + 4 * t, off + 2, &w, 1);
    words_at(b + 34 + 4 * t, off + 2, &signs, 1);
    const uint32_t high = b[66 + t], s = b[74 + t];
    UNROLL
    for (uint32_t l = 0; l < 4; l++)
        iq2_eight(table[byte_of(w, l) | (high << (8 - 2 * l) & 0x300u)], byte_of(signs, l), u->q + 2 * l);
    u->scale[0] = (int32_t)(2 * (s & 15) + 1);
    u->scale[1] = (int32_t)(s >> 3 | 1);
}

/* ---- IQ3: four codes of three bits an index. */

DEV void words_iq3_xxs(const uint32_t *table, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t w[2], s;
    words_at(b + 2 + 8 * t, off + 2, w, 2);
    words_at(b + 66 + 4 * t, off + 2, &s, 1);
    const uint32_t signs = signs_of_28(s);
    UNROLL
    for (uint32_t l = 0; l < 8; l++)
        u->q[l] = with_minuses(table[byte_of(w[l / 4], l % 4)], minuses(signs >> 8 * (l / 2), 4 * (l % 2)));
    u->scale[0] = u->scale[1] = (int32_t)(s >> 27 | 1);
}

DEV void words_iq3_s(const uint32_t *table, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t w[2], signs;
    words_at(b + 2 + 8 * t, off + 2, w, 2);
    words_at(b + 74 + 4 * t, off + 2, &signs, 1);
    const uint32_t high = b[66 + t];
    UNROLL
    for (uint32_t l = 0; l < 8; l++)
        u->q[l] = with_minuses(table[byte_of(w[l / 4], l % 4) | (high << (8 - l) & 0x100u)], minuses(signs >> 8 * (l / 2), 4 * (l % 2)));
    u->scale[0] = u->scale[1] = 2 * (b[106 + t / 2] >> t % 2 * 4 & 15) + 1;
}

/* ---- IQ1: eight codes of two bits, -1, 0, 1, an eighth less or more, as eighths. */
DEV void iq1_eight(uint32_t nibbles, uint32_t less, uint32_t *q)
{
    pick_eight(LOOKUP_BYTES(-7, 1, 9, 17) - less * 0x02010202u, 0, nibbles, q); /* bytes of -9, -1, 7, 15 */
}

DEV void words_iq1_s(const uint32_t *table, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t w;
    words_at(b + 2 + 4 * t, off + 2, &w, 1);
    const uint32_t h = half_at(b + 34 + 2 * t);
    UNROLL
    for (uint32_t l = 0; l < 4; l++)
        iq1_eight(table[byte_of(w, l) | (h << 8 >> 3 * l & 0x700u)], h >> 15, u->q + 2 * l);
    u->scale[0] = u->scale[1] = (int32_t)(2 * (h >> 12 & 7) + 1);
}

DEV void words_iq1_m(const uint32_t *table, const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    uint32_t w;
    words_at(b + 4 * t, off, &w, 1);
    const uint32_t h = half_at(b + 32 + 2 * t), s = half_at(b + 48 + t / 2 * 2) >> t % 2 * 6;
    UNROLL
    for (uint32_t l = 0; l < 4; l++)
        iq1_eight(table[byte_of(w, l) | (h << 8 >> 4 * l & 0x700u)], h >> (4 * l + 3) & 1, u->q + 2 * l);
    u->scale[0] = (int32_t)(2 * (s & 7) + 1);
    u->scale[1] = (int32_t)(2 * (s >> 3 & 7) + 1);
}

/* ---- TQ1_0: five digits to base 3 in a byte (model/unpack.h), less one. What three times the rest runs over is a digit; two bytes' rests lie in a word. */

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

/* And the n-th digits alone, where x's words of five would be too many: of part t, word by word of qs, whose first 32 bytes have five and whose 16 others, too, then of qh. */
DEV uint32_t digits_of_word(uint32_t w, uint32_t n)
{
    const uint32_t power = pick_bytes(0x1b090301u, 81, n) & 255;
    const uint32_t even = ((w & 0x00ff00ffu) * power & 0x00ff00ffu) * 3, odd = ((w >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu) * 3;
    return pick_bytes_below_8(even, odd, 0x7351u);
}

DEV void words_tq1_0(const uint8_t *b, uint32_t off, uint32_t t, struct unpacked *u)
{
    UNROLL
    for (uint32_t k = 0; k < 8; k++) {
        const uint32_t of_qh = t == 7 && k >= 4, at = t < 5 ? 4 * k : of_qh ? 48 : 32 + k % 4 * 4;
        uint32_t w;
        words_at(b + at, off, &w, 1);
        u->q[k] = digits_of_word(w, t < 5 ? t : of_qh ? k - 4 : 2 * (t - 5) + k / 4);
    }
    u->scale[0] = u->scale[1] = 1;
}

/* ---- simple ones: NVFP4, whose halves have 8 bytes of nibbles each; two bits, less one; signs */
DEV void words_nvfp4(const uint8_t *b, uint32_t off, uint32_t t, uint32_t *q)
{
    const struct lookup l = LOOKUP_WORDS(NTX_VALUES_mxfp4);
    uint32_t w[4];
    words_at(b + 4 + 16 * t, off, w, 4);
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
    words_at(b + 2 + 8 * t, off + 2, w, 2);
    UNROLL
    for (int i = 0; i < 4; i++)
        pick_eight(LOOKUP_BYTES(-1, 0, 1, 2), 0, spread_2(w[i / 2] >> 16 * (i % 2) & 0xffff), q + 2 * i);
}

/* Twice each bit; one is to be taken off. */
DEV void words_q1_0(const uint8_t *b, uint32_t off, uint32_t t, uint32_t *q)
{
    uint32_t w;
    words_at(b + 2 + 4 * t, off + 2, &w, 1);
    UNROLL
    for (int i = 0; i < 8; i++)
        q[i] = minuses(w >> i / 2 * 8, i % 2 * 4) & 0x02020202u;
}

/* Bytes n of words 0, 2, 4 and 6, as word n. */
DEV void turn_words(const uint32_t *w, uint32_t *turned)
{
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t pairs = h ? 0x7362u : 0x5140u, low = pick_bytes_below_8(w[0], w[2], pairs), high = pick_bytes_below_8(w[4], w[6], pairs);
        turned[2 * h] = pick_bytes_below_8(low, high, 0x5410u);
        turned[2 * h + 1] = pick_bytes_below_8(low, high, 0x7632u);
    }
}

#endif
