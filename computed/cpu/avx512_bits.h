/* SPDX-License-Identifier: Apache-2.0 */
/* avx512_bits.h: unpacks the integers of a super-block, 64 values in natural order per register, and its scales. */
#ifndef NTX_COMPUTED_CPU_AVX512_BITS_H
#define NTX_COMPUTED_CPU_AVX512_BITS_H

#include "computed/cpu/avx512.h"

INLINE __m512i load512(const void *p) { return _mm512_loadu_si512(p); }
INLINE __m512i bytes512(int b) { return _mm512_set1_epi8((char)b); }
INLINE __m256i load256(const void *p) { return _mm256_loadu_si256(p); }
INLINE __m128i load128(const void *p) { return _mm_loadu_si128(p); }
INLINE void store128(void *p, __m128i v) { _mm_storeu_si128(p, v); }

/* Moves bit `bit` of each byte of h to bit 4, above the nibble v. */
INLINE __m512i with_fifth(__m512i v, __m512i h, int bit)
{
    h = bit > 4 ? _mm512_srli_epi16(h, (unsigned)(bit - 4)) : _mm512_slli_epi16(h, (unsigned)(4 - bit));
    return _mm512_ternarylogic_epi32(v, h, bytes512(16), 0xf8); /* v | (h & 16) */
}

INLINE __m512i halves(int low, int high) { return _mm512_set_epi64(high, high, high, high, low, low, low, low); }

/* 32 bytes twice: the upper copy shifted right by `high` bits, the lower by `low`, so that two sub-blocks' bits are
 * lowest. */
INLINE __m512i twice_shifted(const uint8_t *p, int low, int high)
{
    __m512i v = _mm512_broadcast_i64x4(load256(p));
    return _mm512_srlv_epi64(v, halves(low, high));
}

/* Transposes a matrix of 4 x 4 dwords in each 128-bit lane. */
INLINE void transpose_quads(const __m512i r[4], __m512i v[4])
{
    __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    __m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    v[0] = _mm512_unpacklo_epi64(a, c);
    v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d);
    v[3] = _mm512_unpackhi_epi64(b, d);
}

/* v[k] = dword `at` / 4 + k of each of 16 rows. */
INLINE void transpose16(const uint8_t *const w[NTX_SLICE_OUTS], size_t at, __m512i v[4])
{
    __m512i r[4];
    for (size_t j = 0; j < 4; j++) { /* rows j, 4 + j, 8 + j, 12 + j */
        r[j] = _mm512_castsi128_si512(load128(w[j] + at));
        r[j] = _mm512_inserti32x4(r[j], load128(w[4 + j] + at), 1);
        r[j] = _mm512_inserti32x4(r[j], load128(w[8 + j] + at), 2);
        r[j] = _mm512_inserti32x4(r[j], load128(w[12 + j] + at), 3);
    }
    transpose_quads(r, v);
}

/* IQ4_XS: the scale of values 32 t .. of each of 16 blocks, as int32. first: their first dwords, d below eight pairs
 * of bits; second: eight nibbles. */
INLINE __m512i scales_iq4_xs_16(__m512i first, __m512i second, const unsigned t)
{
    __m512i low = _mm512_and_si512(_mm512_srli_epi32(second, 4 * t), _mm512_set1_epi32(15)),
            high = _mm512_slli_epi32(_mm512_srli_epi32(first, 16 + 2 * t), 4);
    return _mm512_sub_epi32(_mm512_ternarylogic_epi32(low, high, _mm512_set1_epi32(48), 0xf8),
                            _mm512_set1_epi32(32)); /* low | (high & 48) */
}

/* The low half of each dword in both of its halves. */
INLINE __m512i low_twice(__m512i v)
{
    return _mm512_or_si512(_mm512_and_si512(v, _mm512_set1_epi32(0xffff)), _mm512_slli_epi32(v, 16));
}

/* Splits 16 pairs of dwords: v[0] has the first of each, v[1] the second. */
INLINE void split_pairs(const uint8_t *p, __m512i v[2])
{
    __m512i a = load512(p), b = load512(p + 64),
            even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    v[0] = _mm512_permutex2var_epi32(a, even, b);
    v[1] = _mm512_permutex2var_epi32(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
}

/* ---- values 64 t .. 64 t + 63 of block w ---- */

/* Q6_K, 32 too large. low: nibbles, of which each register serves two t; rest: the other bits. */
INLINE __m512i six_bits(__m512i low, const uint8_t *rest, int t)
{
    __m512i high = _mm512_broadcast_i64x4(load256(rest + t / 2 * 32));
    if (t % 2) {
        low = _mm512_srli_epi16(low, 4);
        high = _mm512_srlv_epi64(high, halves(0, 2));
    } else {
        high = _mm512_sllv_epi64(high, halves(4, 2));
    }
    return _mm512_and_si512(_mm512_ternarylogic_epi32(bytes512(15), low, high, 0xca), bytes512(63));
}

INLINE __m512i two_bits(const uint8_t *qs, int t) /* Q2_K, and the low bits of Q3_K */
{
    return _mm512_and_si512(twice_shifted(qs + t / 2 * 32, t % 2 * 4, t % 2 * 4 + 2), bytes512(3));
}

INLINE __m512i three_bits(const uint8_t *w, int t) /* Q3_K, 4 too large */
{
    __m512i v = twice_shifted(w + 32 + t / 2 * 32, t % 2 * 4, t % 2 * 4 + 2), up = _mm512_broadcast_i64x4(load256(w));
    up = _mm512_rolv_epi64(up, halves(2 - 2 * t, 1 - 2 * t)); /* bits 2 t and 2 t + 1 to bit 2 */
    return _mm512_and_si512(_mm512_ternarylogic_epi32(bytes512(3), v, up, 0xca), bytes512(7));
}

/* ---- scales ---- */

/* Unpacks headers, one per 128-bit lane: 8 scales, then 8 minima, a byte each. With dwords u0 u1 u2 of the 12 bytes,
 * the first four scales are u0 & 63, the first minima u1 & 63; the others are nibbles of u2 below the top bits of u0
 * and u1. */
INLINE __m512i unpack_scales(__m512i h)
{
    __m512i low = _mm512_shuffle_epi32(h, _MM_PERM_DCDB); /* u0 u2 u1 u2 */
    __m512i top = _mm512_shuffle_epi32(h, _MM_PERM_CCBB); /* .. u0 .. u1 */
    low = _mm512_srlv_epi32(low, _mm512_set4_epi32(4, 0, 0, 0));
    low = _mm512_and_si512(low, _mm512_set4_epi32(0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f));
    top = _mm512_and_si512(_mm512_srli_epi32(top, 2), _mm512_set4_epi32(0x30303030, 0, 0x30303030, 0));
    return _mm512_or_si512(low, top);
}

/* Unpacks 16 scales of a byte from each 128-bit lane: the block's last 16 bytes, with scales in bytes 2..13. */
INLINE __m512i unpack_scales_q3_k(__m512i tail)
{
    __m512i low = _mm512_shuffle_epi8(tail, _mm512_set4_epi32(0x09080706, 0x05040302, 0x09080706, 0x05040302));
    __m512i top = _mm512_shuffle_epi8(tail, _mm512_set1_epi32(0x0d0c0b0a));
    low = _mm512_and_si512(_mm512_srlv_epi64(low, _mm512_set4_epi64(4, 0, 4, 0)), bytes512(15));
    top = _mm512_and_si512(_mm512_rolv_epi32(top, _mm512_set4_epi32(30, 0, 2, 4)),
                           bytes512(48)); /* bit pairs 2 j to bit 4 */
    return _mm512_sub_epi8(_mm512_or_si512(low, top), bytes512(32));
}

/* Spreads a block's int16 scales: 128-bit lane l of register t is scale 4 t + l. */
INLINE __m512i spread_scales(__m256i s16, int t)
{
    __m512i at = _mm512_add_epi16(_mm512_set1_epi16((short)(4 * t)),
                                  _mm512_set_epi16(3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1,
                                                   1, 0, 0, 0, 0, 0, 0, 0, 0));
    return _mm512_permutexvar_epi16(at, _mm512_castsi256_si512(s16));
}

#endif
