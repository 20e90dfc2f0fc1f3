/* SPDX-License-Identifier: Apache-2.0 */
/* panel_codes.c: unpacks i-quants with codebooks (model/codes.h) and ternary types to panels (panel.h): values of 16
 * super-blocks, RAISED too large, in a panel's order, and their scales.
 *
 * Indices, signs and scales are transposed as stored, four bytes of each output per register (transpose16), and looked
 * up and unpacked only then. So unpacked values need not be moved: a register of four indices of 16 outputs gives one
 * or two rows of the panel per index. */
#include "computed/cpu/avx512_codebooks.h"

/* Bit offsets for multishift: bytes 4 o .. 4 o + 3 of a panel's row are output o's, so eight bytes have two outputs. a
 * .. d: offsets of an output's four bytes. */
INLINE __m512i four_of_each(unsigned a, unsigned b, unsigned c, unsigned d)
{
    const uint64_t at = a | b << 8 | c << 16 | (uint64_t)d << 24;
    return _mm512_set1_epi64((int64_t)(at | (at + 0x20202020) << 32));
}

/* Bits `first` .. `first` + 3 of each output's dword, for its four values. */
INLINE __mmask64 signs_at(__m512i dwords, unsigned first)
{
    return _mm512_bitshuffle_epi64_mask(dwords, four_of_each(first, first + 1, first + 2, first + 3));
}

/* Bits first, first + step, ... of each output's dword, for its four indices. */
INLINE __mmask64 bits_at(__m512i dwords, unsigned first, unsigned step)
{
    return _mm512_bitshuffle_epi64_mask(dwords, four_of_each(first, first + step, first + 2 * step, first + 3 * step));
}

/* Stores scales 2 s + 1; s: the bits of the mask. */
INLINE void store_odd(int32_t *to, __m512i s, int mask)
{
    s = _mm512_and_si512(s, _mm512_set1_epi32(mask));
    _mm512_store_si512(to, _mm512_add_epi32(_mm512_add_epi32(s, s), _mm512_set1_epi32(1)));
}

typedef uint8_t panel_rows[64];
typedef int32_t panel_scales[NTX_SLICE_OUTS];

/* Stores four codes of eight values each as eight rows. signs: a bit each, in the values' order. */
INLINE void store_x8(panel_rows *to, __m512i low, __m512i high, __m512i signs, __m512i levels)
{
#pragma GCC unroll 4
    for (unsigned j = 0; j < 4; j++) {
        const __m512i at = four_of_each(8 * j, 8 * j + 2, 8 * j + 4, 8 * j + 6);
        __m512i a = _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(at, low), levels),
                b = _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(at, high), levels);
        _mm512_store_si512(to[2 * j], with_signs(a, signs_at(signs, 8 * j)));
        _mm512_store_si512(to[2 * j + 1], with_signs(b, signs_at(signs, 8 * j + 4)));
    }
}

/* Stores four codes of four values each as four rows; signs from bit `first` on. */
INLINE void store_x4(panel_rows *to, __m512i low, __m512i high, __m512i signs, const unsigned first, __m512i levels)
{
#pragma GCC unroll 4
    for (unsigned j = 0; j < 4; j++) {
        const __m512i at = four_of_each(8 * j, 8 * j + 3, 8 * j, 8 * j + 3);
        __m512i v = _mm512_multishift_epi64_epi8(at, low);
        v = _mm512_mask_multishift_epi64_epi8(v, 0xcccccccccccccccc, at, high);
        _mm512_store_si512(to[j], with_signs(_mm512_permutexvar_epi8(v, levels), signs_at(signs, first + 4 * j)));
    }
}

/* Stores four codes of eight values -1, 0, 1, in eighths, plus or minus one; less: all ones for codes with minus. */
INLINE void store_ones(panel_rows *to, __m512i low, __m512i high, __m512i less)
{
    const __m512i levels = levels_1(), two = bytes512(2);
#pragma GCC unroll 4
    for (unsigned j = 0; j < 4; j++) {
        const __m512i at = four_of_each(8 * j, 8 * j + 2, 8 * j + 4, 8 * j + 6);
        const __m512i by = _mm512_and_si512(
            _mm512_multishift_epi64_epi8(four_of_each(8 * j, 8 * j, 8 * j, 8 * j), less), two);
        __m512i a = _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(at, low), levels),
                b = _mm512_permutexvar_epi8(_mm512_multishift_epi64_epi8(at, high), levels);
        _mm512_store_si512(to[2 * j], _mm512_sub_epi8(a, by));
        _mm512_store_si512(to[2 * j + 1], _mm512_sub_epi8(b, by));
    }
}

/* Words of 4 x 7 signs, one to a dword. */
INLINE __m512i signs_of_dwords(__m512i words)
{
    return eight_signs(_mm512_multishift_epi64_epi8(four_of_each(0, 7, 14, 21), words));
}

INLINE void transpose_iq2_xxs(const uint8_t *const w[NTX_SLICE_OUTS], panel_rows *to, panel_scales *scales)
{
#pragma GCC unroll 4
    for (size_t g = 0; g < 4; g++) {
        __m512i v[4];
        transpose16(w, 2 + 16 * g, v);
#pragma GCC unroll 2
        for (size_t h = 0; h < 2; h++) {
            const __m512i at = v[2 * h], words = v[2 * h + 1];
            store_odd(scales[2 * g + h], _mm512_srli_epi32(words, 28), 15);
            store_x8(to + 16 * g + 8 * h, look_up_256(low_iq2_xxs, at), look_up_256(high_iq2_xxs, at),
                     signs_of_dwords(words), levels_2());
        }
    }
}

/* Sixteen scales of four bits, in two dwords of each output. */
INLINE void store_nibbles(panel_scales *to, const __m512i v[2])
{
#pragma GCC unroll 16
    for (unsigned k = 0; k < 16; k++)
        store_odd(to[k], _mm512_srli_epi32(v[k / 8], 4 * (k % 8)), 15);
}

INLINE void transpose_iq2_xs(const uint8_t *const w[NTX_SLICE_OUTS], panel_rows *to, panel_scales *scales)
{
    const __m512i even = _mm512_add_epi8(
        _mm512_set1_epi32(0x42400200),
        _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                           _mm512_set1_epi32(0x04040404)));
    __m512i v[4];
    transpose16(w, 58, v);
    store_nibbles(scales, v + 2);
#pragma GCC unroll 4
    for (size_t g = 0; g < 4; g++) {
        transpose16(w, 2 + 16 * g, v);
#pragma GCC unroll 2
        for (size_t h = 0; h < 2; h++) { /* four words: nine bits of index, seven of signs */
            const __m512i at = _mm512_permutex2var_epi8(v[2 * h], even, v[2 * h + 1]),
                          up = _mm512_permutex2var_epi8(v[2 * h], _mm512_add_epi8(even, bytes512(1)), v[2 * h + 1]);
            const __mmask64 ninth = _mm512_test_epi8_mask(up, bytes512(1));
            store_x8(to + 16 * g + 8 * h, look_up_512(low_iq2_xs, at, ninth), look_up_512(high_iq2_xs, at, ninth),
                     eight_signs(_mm512_srli_epi16(up, 1)), levels_2());
        }
    }
}

INLINE void transpose_iq2_s(const uint8_t *const w[NTX_SLICE_OUTS], panel_rows *to, panel_scales *scales)
{
    __m512i tail[4], at[4], signs[4];
    transpose16(w, 66, tail);
    store_nibbles(scales, tail + 2);
#pragma GCC unroll 2
    for (size_t g = 0; g < 2; g++) {
        transpose16(w, 2 + 16 * g, at);
        transpose16(w, 34 + 16 * g, signs);
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++) {
            const __mmask64 ninth = bits_at(tail[g], 8 * (unsigned)k, 2),
                            tenth = bits_at(tail[g], 8 * (unsigned)k + 1, 2);
            store_x8(to + 32 * g + 8 * k, look_up_1024(low_iq2_s, at[k], ninth, tenth),
                     look_up_1024(high_iq2_s, at[k], ninth, tenth), signs[k], levels_2());
        }
    }
}

INLINE void transpose_iq3_xxs(const uint8_t *const w[NTX_SLICE_OUTS], panel_rows *to, panel_scales *scales)
{
    __m512i words[8];
    transpose16(w, 66, words);
    transpose16(w, 82, words + 4);
#pragma GCC unroll 8
    for (size_t t = 0; t < 8; t++) {
        store_odd(scales[t], _mm512_srli_epi32(words[t], 28), 15);
        words[t] = signs_of_dwords(words[t]);
    }
#pragma GCC unroll 4
    for (size_t g = 0; g < 4; g++) {
        __m512i v[4];
        transpose16(w, 2 + 16 * g, v);
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++)
            store_x4(to + 16 * g + 4 * k, look_up_256(low_iq3_xxs, v[k]), look_up_256(high_iq3_xxs, v[k]),
                     words[2 * g + k / 2], 16 * (k % 2), levels_3_xxs());
    }
}

INLINE void transpose_iq3_s(const uint8_t *const w[NTX_SLICE_OUTS], panel_rows *to, panel_scales *scales)
{
    __m512i first[4], middle[4], last[4];
    transpose16(w, 66, first); /* two dwords of ninth bits, eight of signs, one of scales */
    transpose16(w, 82, middle);
    transpose16(w, 94, last);
    const __m512i signs[8] = {first[2], first[3], middle[0], middle[1], middle[2], middle[3], last[1], last[2]};
#pragma GCC unroll 8
    for (unsigned t = 0; t < 8; t++)
        store_odd(scales[t], _mm512_srli_epi32(last[3], 4 * t), 15);
#pragma GCC unroll 4
    for (size_t g = 0; g < 4; g++) {
        __m512i v[4];
        transpose16(w, 2 + 16 * g, v);
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++) {
            const __mmask64 ninth = bits_at(first[g / 2], 16 * (g % 2) + 4 * k, 1);
            store_x4(to + 16 * g + 4 * k, look_up_512(low_iq3_s, v[k], ninth), look_up_512(high_iq3_s, v[k], ninth),
                     signs[2 * g + k / 2], 16 * (k % 2), levels_3_s());
        }
    }
}

INLINE void transpose_iq1_s(const uint8_t *const w[NTX_SLICE_OUTS], panel_rows *to, panel_scales *scales)
{
    __m512i ups[4], at[4];
    transpose16(w, 34, ups); /* a word per 32 values: 4 x 3 bits, the scale, and whether values are smaller */
#pragma GCC unroll 2
    for (size_t g = 0; g < 2; g++) {
        transpose16(w, 2 + 16 * g, at);
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++) {
            const __m512i pair = ups[2 * g + k / 2];
            const unsigned first = 16 * (k % 2);
            const __mmask64 ninth = bits_at(pair, first, 3), tenth = bits_at(pair, first + 1, 3),
                            eleventh = bits_at(pair, first + 2, 3);
            store_odd(scales[4 * g + k], _mm512_srli_epi32(pair, first + 12), 7);
            store_ones(to + 32 * g + 8 * k, look_up_2048(low_iq1, at[k], ninth, tenth, eleventh),
                       look_up_2048(high_iq1, at[k], ninth, tenth, eleventh),
                       _mm512_movm_epi8(bits_at(pair, first + 15, 0)));
        }
    }
}

INLINE void transpose_iq1_m(const uint8_t *const w[NTX_SLICE_OUTS], panel_rows *to, panel_scales *scales)
{
    __m512i ups[4], at[4], tail[4];
    transpose16(w, 32, ups);
    transpose16(w, 40, tail); /* at 48: half words of four scales of three bits each */
#pragma GCC unroll 16
    for (unsigned k = 0; k < 16; k++)
        store_odd(scales[k], _mm512_srli_epi32(tail[2 + k / 8], k / 4 % 2 * 16 + 3 * (k % 4)), 7);
#pragma GCC unroll 2
    for (size_t g = 0; g < 2; g++) {
        transpose16(w, 16 * g, at);
#pragma GCC unroll 4
        /* a nibble per code: three bits of the index, and whether values are smaller */
        for (size_t k = 0; k < 4; k++) {
            const __m512i pair = ups[2 * g + k / 2];
            const unsigned first = 16 * (k % 2);
            const __mmask64 ninth = bits_at(pair, first, 4), tenth = bits_at(pair, first + 1, 4),
                            eleventh = bits_at(pair, first + 2, 4);
            store_ones(to + 32 * g + 8 * k, look_up_2048(low_iq1, at[k], ninth, tenth, eleventh),
                       look_up_2048(high_iq1, at[k], ninth, tenth, eleventh),
                       _mm512_movm_epi8(bits_at(pair, first + 3, 4)));
        }
    }
}

/* ---- ternary */

INLINE void transpose_tq2_0(const uint8_t *const w[NTX_SLICE_OUTS], panel_rows *to, panel_scales *scales)
{
    (void)scales;
#pragma GCC unroll 4
    for (size_t g = 0; g < 4; g++) { /* each 128 values have 32 bytes; each two bits of these are 32 values */
        __m512i v[4];
        transpose16(w, 16 * g, v);
#pragma GCC unroll 4
        for (size_t n = 0; n < 4; n++)
            for (size_t k = 0; k < 4; k++)
                _mm512_store_si512(
                    to[g / 2 * 32 + 8 * n + g % 2 * 4 + k],
                    _mm512_add_epi8(_mm512_and_si512(_mm512_srli_epi16(v[k], 2 * (unsigned)n), bytes512(3)),
                                    bytes512(RAISED - 1)));
    }
}

/* Stores n digits of four bytes as rows that are `apart` rows from one another. */
INLINE void store_digits(panel_rows *to, size_t apart, __m512i v, const unsigned n)
{
    const __m512i later = look_up_256(digits_tq1_0, v), base = bytes512(RAISED - 1);
    _mm512_store_si512(to[0], _mm512_add_epi8(first_digit(v), base));
#pragma GCC unroll 4
    for (unsigned d = 1; d < n; d++)
        _mm512_store_si512(to[d * apart],
                           _mm512_add_epi8(_mm512_and_si512(_mm512_srli_epi16(later, 2 * (d - 1)), bytes512(3)), base));
}

INLINE void transpose_tq1_0(const uint8_t *const w[NTX_SLICE_OUTS], panel_rows *to, panel_scales *scales)
{
    __m512i v[4];
    (void)scales;
#pragma GCC unroll 3
    for (size_t g = 0; g < 3; g++) {
        transpose16(w, 16 * g, v);
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++)
            store_digits(to + (g < 2 ? 4 * g : 40) + k, g < 2 ? 8 : 4, v[k], 5);
    }
    transpose16(w, 38, v);              /* includes d */
    v[2] = _mm512_srli_epi32(v[2], 16); /* 46..49 48.. */
    v[2] = _mm512_or_si512(v[2], _mm512_slli_epi32(v[3], 16));
    store_digits(to + 60, 1, v[2], 4);
}

/* ---- all types */

#define TRANSPOSED(type, D)                                                                                            \
    void ntx__transpose512_##type(const uint8_t *const w[NTX_SLICE_OUTS], uint8_t(*values)[64],                        \
                                  int32_t(*scales)[NTX_SLICE_OUTS], float *d)                                          \
    {                                                                                                                  \
        uint32_t heads[NTX_SLICE_OUTS];                                                                                \
        for (int k = 0; k < NTX_SLICE_OUTS; k++)                                                                       \
            heads[k] = D(type, w[k]);                                                                                  \
        _mm512_store_ps(d, widen_low_halves(load512(heads)));                                                          \
        transpose_##type(w, values, scales);                                                                           \
    }
TRANSPOSED(iq2_xxs, D_AT)
TRANSPOSED(iq2_xs, D_AT)
TRANSPOSED(iq2_s, D_AT)
TRANSPOSED(iq3_xxs, D_AT)
TRANSPOSED(iq3_s, D_AT)
TRANSPOSED(iq1_s, D_AT)
TRANSPOSED(iq1_m, D_SPREAD)
TRANSPOSED(tq1_0, D_AT)
TRANSPOSED(tq2_0, D_AT)
