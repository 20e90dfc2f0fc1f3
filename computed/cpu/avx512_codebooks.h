/* SPDX-License-Identifier: Apache-2.0 */
/* avx512_codebooks.h: codebooks of i-quants (model/codes.h) in registers, and the values of their codes. For files
 * that use VBMI and BITALG.
 *
 * Codes are looked up 64 at a time by permutes of bytes: a codebook of 256 entries is four registers for the codes'
 * low bytes and four for their high ones. A code is an entry of eight values of two bits (IQ2, IQ1) or of four values
 * of three bits (IQ3, whose low and high "bytes" have two values each). Values are 64 too large; signs are masks that
 * replace 64 + v by 64 - v. So values have seven bits. */
#ifndef NTX_COMPUTED_CPU_AVX512_CODEBOOKS_H
#define NTX_COMPUTED_CPU_AVX512_CODEBOOKS_H

#include "computed/cpu/avx512_bits.h"

#define LOW_BYTE(c)  (uint8_t)(c),
#define HIGH_BYTE(c) (uint8_t)((c) >> 8),
#define LOW_PAIR(c)  (c) & 63, /* two of four levels of three bits per byte */
#define HIGH_PAIR(c) (c) >> 6 & 63,
#define CODEBOOK(type, LOW, HIGH)                                                                                      \
    static const _Alignas(64) uint8_t low_##type[] = {NTX_CODES_##type(LOW)}, high_##type[] = {NTX_CODES_##type(HIGH)};
CODEBOOK(iq2_xxs, LOW_BYTE, HIGH_BYTE)
CODEBOOK(iq2_xs, LOW_BYTE, HIGH_BYTE)
CODEBOOK(iq2_s, LOW_BYTE, HIGH_BYTE)
CODEBOOK(iq3_xxs, LOW_PAIR, HIGH_PAIR)
CODEBOOK(iq3_s, LOW_PAIR, HIGH_PAIR)
CODEBOOK(iq1, LOW_BYTE, HIGH_BYTE)

/* Look up bytes of a codebook at 64 places. _256_apart: faster for a single look-up; _256: two operations less, but
 * dependent ones; larger codebooks have the upper index bits in masks. */
INLINE __m512i look_up_256_apart(const uint8_t *codebook, __m512i at)
{
    __m512i a = _mm512_permutex2var_epi8(load512(codebook), at, load512(codebook + 64)),
            b = _mm512_permutex2var_epi8(load512(codebook + 128), at, load512(codebook + 192));
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), a, b);
}

INLINE __m512i look_up_256(const uint8_t *codebook, __m512i at)
{
    /* a masked permute keeps the places that it does not look up, so the second permute still finds them */
    const __mmask64 upper = _mm512_movepi8_mask(at);
    __m512i v = _mm512_mask2_permutex2var_epi8(load512(codebook), at, _knot_mask64(upper), load512(codebook + 64));
    return _mm512_mask2_permutex2var_epi8(load512(codebook + 128), v, upper, load512(codebook + 192));
}

INLINE __m512i look_up_512(const uint8_t *codebook, __m512i at, __mmask64 ninth)
{
    return _mm512_mask_blend_epi8(ninth, look_up_256(codebook, at), look_up_256(codebook + 256, at));
}

INLINE __m512i look_up_1024(const uint8_t *codebook, __m512i at, __mmask64 ninth, __mmask64 tenth)
{
    return _mm512_mask_blend_epi8(tenth, look_up_512(codebook, at, ninth), look_up_512(codebook + 512, at, ninth));
}

INLINE __m512i look_up_2048(const uint8_t *codebook, __m512i at, __mmask64 ninth, __mmask64 tenth, __mmask64 eleventh)
{
    return _mm512_mask_blend_epi8(eleventh, look_up_1024(codebook, at, ninth, tenth),
                                  look_up_1024(codebook + 1024, at, ninth, tenth));
}

/* Sets the eighth sign of each byte so that the number of minuses is even; the top bit is ignored. */
INLINE __m512i eight_signs(__m512i v)
{
    v = _mm512_and_si512(v, bytes512(127));
    return _mm512_ternarylogic_epi32(v, _mm512_slli_epi16(_mm512_popcnt_epi8(v), 7), bytes512((char)128), 0xf8);
}

/* Raised levels of a type's values, repeated, so that upper bits of an index do not matter. */
INLINE __m512i levels_2(void) { return _mm512_set1_epi32((RAISED + 8) | (RAISED + 25) << 8 | (RAISED + 43) << 16); }
/* IQ1: in eighths, one too large. */
INLINE __m512i levels_1(void) { return _mm512_set1_epi32((RAISED - 7) | (RAISED + 1) << 8 | (RAISED + 9) << 16); }
INLINE __m512i levels_3_xxs(void) { return _mm512_set1_epi64(0x7e746c645c544c44); } /* RAISED + 4, 12, ..., 52, 62 */
INLINE __m512i levels_3_s(void) { return _mm512_set1_epi64(0x4f4d4b4947454341); }   /* RAISED + 1, 3, ..., 15 */

INLINE __m512i with_signs(__m512i v, __mmask64 minus)
{
    return _mm512_mask_sub_epi8(v, minus, bytes512((char)(2 * RAISED)), v);
}

/* ---- ternary */

/* The digits of each byte after the first, two bits each. */
#define DIGIT(v, power) (((v) * (power) % 256 * 3) >> 8)
#define DIGITS_1(v)     DIGIT(v, 3) | DIGIT(v, 9) << 2 | DIGIT(v, 27) << 4 | DIGIT(v, 81) << 6,
#define DIGITS_4(v)     DIGITS_1(v) DIGITS_1((v) + 1) DIGITS_1((v) + 2) DIGITS_1((v) + 3)
#define DIGITS_16(v)    DIGITS_4(v) DIGITS_4((v) + 4) DIGITS_4((v) + 8) DIGITS_4((v) + 12)
#define DIGITS_64(v)    DIGITS_16(v) DIGITS_16((v) + 16) DIGITS_16((v) + 32) DIGITS_16((v) + 48)
static const _Alignas(64) uint8_t digits_tq1_0[] = {DIGITS_64(0) DIGITS_64(64) DIGITS_64(128) DIGITS_64(192)};

INLINE __m512i first_digit(__m512i v)
{
    const __m512i one = bytes512(1);
    __m512i d = _mm512_maskz_mov_epi8(_mm512_cmpge_epu8_mask(v, bytes512(86)), one);
    return _mm512_mask_add_epi8(d, _mm512_cmpge_epu8_mask(v, bytes512(171)), d, one);
}

/* ---- the block's d as F16 bits */

INLINE uint32_t half_word(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return h;
}

#define D_AT(type, w)     half_word((w) + offsetof(struct ntx_block_##type, d))
#define D_SPREAD(type, w) ntx__spread_half((w) + offsetof(struct ntx_block_##type, scales))

#endif
