/* panel_bits.h: what the packers of panels share (panel.h).
 *
 * The bits of 16 rows are transposed as they are stored, 4 bytes of each row to a register, and only then taken apart: so each
 * lane of 32 bits belongs to one output, whose scale lies in the same lane of another register. */
#ifndef NTX_COMPUTED_CPU_PANEL_BITS_H
#define NTX_COMPUTED_CPU_PANEL_BITS_H

#include "computed/cpu/avx512_bits.h"
#include "computed/cpu/panel.h"

INLINE __m512i dwords512(uint32_t v) { return _mm512_set1_epi32((int)v); }

/* Dword `at` / 4 + k of each of 16 rows, in v[k]. */
INLINE void turn16(const uint8_t *const w[PANEL_OUTS], size_t at, __m512i v[4])
{
    __m512i r[4];
    for (size_t j = 0; j < 4; j++) { /* rows j, 4 + j, 8 + j, 12 + j */
        r[j] = _mm512_castsi128_si512(load128(w[j] + at));
        r[j] = _mm512_inserti32x4(r[j], load128(w[4 + j] + at), 1);
        r[j] = _mm512_inserti32x4(r[j], load128(w[8 + j] + at), 2);
        r[j] = _mm512_inserti32x4(r[j], load128(w[12 + j] + at), 3);
    }
    __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    __m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    v[0] = _mm512_unpacklo_epi64(a, c);
    v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d);
    v[3] = _mm512_unpackhi_epi64(b, d);
}

INLINE void widen_heads(__m512i heads, float *d, float *m)
{
    _mm512_store_ps(d, widen_low_halves(heads));
    _mm512_store_ps(m, widen_low_halves(_mm512_srli_epi32(heads, 16)));
}

/* The n <= 4 bytes at `at` of each row. */
INLINE __m512i heads_at(const uint8_t *const w[PANEL_OUTS], size_t at, size_t n)
{
    uint32_t h[PANEL_OUTS] __attribute__((aligned(64))) = {0};
    for (uint32_t o = 0; o < PANEL_OUTS; o++)
        memcpy(&h[o], w[o] + at, n);
    return _mm512_load_si512(h);
}

INLINE __m512i low_nibbles(__m512i v) { return _mm512_and_si512(v, bytes512(15)); }
INLINE __m512i high_nibbles(__m512i v) { return _mm512_and_si512(_mm512_srli_epi16(v, 4), bytes512(15)); }

/* Bytes j and j + 1 of each dword as int16. */
INLINE __m512i byte_pair(__m512i v, int j)
{
    return _mm512_shuffle_epi8(v, _mm512_add_epi8(_mm512_set4_epi32(0x000c000c, 0x00080008, 0x00040004, 0), dwords512(0x80018000u + 0x00010001u * (unsigned)j)));
}

/* Minima, four to a register, as pairs for VNNI. */
INLINE void store_mins(const __m512i *mins, uint32_t pairs, struct panel *p)
{
    for (uint32_t k = 0; k < pairs; k++)
        _mm512_store_si512(p->mins[k], byte_pair(mins[k / 2], k % 2 * 2));
}

/* Bit `bit` of each byte of h to bit 4, under it the nibble v. */
INLINE __m512i with_fifth(__m512i v, __m512i h, int bit)
{
    h = bit > 4 ? _mm512_srli_epi16(h, (unsigned)(bit - 4)) : _mm512_slli_epi16(h, (unsigned)(4 - bit));
    return _mm512_ternarylogic_epi32(v, h, bytes512(16), 0xf8); /* v | (h & 16) */
}

/* Bits `from` and up of h to bits `to` and up, as far as the mask reaches, under it v. */
INLINE __m512i with_bits(__m512i v, __m512i h, int from, int to, int mask)
{
    h = from > to ? _mm512_srli_epi16(h, (unsigned)(from - to)) : _mm512_slli_epi16(h, (unsigned)(to - from));
    return _mm512_ternarylogic_epi32(v, h, bytes512(mask), 0xf8);
}

#endif
