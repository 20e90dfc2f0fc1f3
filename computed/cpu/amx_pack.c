/* amx_pack.c: weights to panels (amx.h). Plain AVX-512; no tiles here. */
#include "computed/cpu/amx.h"
#include "computed/cpu/avx512_bits.h"

/* 16 bytes of each of 16 rows to 4 panel rows: dword k of row o goes to dst[k][o]. */
INLINE void turn16(const uint8_t *from, size_t stride, void *dst)
{
    __m512i v[4];
    for (size_t j = 0; j < 4; j++) { /* v[j]: rows j, 4 + j, 8 + j, 12 + j */
        v[j] = _mm512_castsi128_si512(load128(from + j * stride));
        v[j] = _mm512_inserti32x4(v[j], load128(from + (4 + j) * stride), 1);
        v[j] = _mm512_inserti32x4(v[j], load128(from + (8 + j) * stride), 2);
        v[j] = _mm512_inserti32x4(v[j], load128(from + (12 + j) * stride), 3);
    }
    __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    __m512i *out = dst;
    _mm512_store_si512(out, _mm512_unpacklo_epi64(a, c));
    _mm512_store_si512(out + 1, _mm512_unpackhi_epi64(a, c));
    _mm512_store_si512(out + 2, _mm512_unpacklo_epi64(b, d));
    _mm512_store_si512(out + 3, _mm512_unpackhi_epi64(b, d));
}

/* A plane of 16 rows of 256 bytes, to panel rows. */
INLINE void turn_plane(uint8_t rows[PANEL_OUTS][PANEL_COLS], uint8_t (*plane)[PANEL_OUTS * 4])
{
    for (size_t c = 0; c < PANEL_COLS / 16; c++)
        turn16(&rows[0][16 * c], PANEL_COLS, plane[4 * c]);
}

INLINE void widen_heads(const uint32_t heads[PANEL_OUTS], float *d, float *m)
{
    __m512i h = _mm512_loadu_si512(heads);
    _mm512_store_ps(d, widen_low_halves(h));
    _mm512_store_ps(m, widen_low_halves(_mm512_srli_epi32(h, 16)));
}

/* ---- simple blocks: signed bytes ---- */

typedef __m256i block_fn(const uint8_t *w);

INLINE __m256i nibbles(const uint8_t *p)
{
    __m128i v = load128(p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), _mm256_set1_epi8(15));
}

INLINE __m256i fives(const uint8_t *bits, const uint8_t *qs)
{
    __mmask32 fifth;
    memcpy(&fifth, bits, 4);
    __m256i v = nibbles(qs);
    return _mm256_mask_add_epi8(v, fifth, v, _mm256_set1_epi8(16));
}

INLINE __m256i block_q4_0(const uint8_t *w) { return _mm256_sub_epi8(nibbles(w + 2), _mm256_set1_epi8(8)); }
INLINE __m256i block_q4_1(const uint8_t *w) { return nibbles(w + 4); }
INLINE __m256i block_q5_0(const uint8_t *w) { return _mm256_sub_epi8(fives(w + 2, w + 6), _mm256_set1_epi8(16)); }
INLINE __m256i block_q5_1(const uint8_t *w) { return fives(w + 4, w + 8); }
INLINE __m256i block_q8_0(const uint8_t *w) { return load256(w + 2); }

INLINE void pack_simple(const uint8_t *const w[PANEL_OUTS], uint32_t n_blocks, struct panel *p, size_t block_bytes, block_fn *block)
{
    uint8_t rows[PANEL_OUTS][PANEL_COLS] __attribute__((aligned(64)));
    for (uint32_t b = 0; b < n_blocks; b++) {
        uint32_t heads[PANEL_OUTS];
        for (uint32_t o = 0; o < PANEL_OUTS; o++) {
            const uint8_t *at = w[o] + b * block_bytes;
            _mm256_store_si256((void *)&rows[o][b * NTX_QK], block(at));
            memcpy(&heads[o], at, 4);
        }
        widen_heads(heads, p->d[b], p->m[b]);
        turn16(&rows[0][b * NTX_QK], PANEL_COLS, p->low[8 * b]);
        turn16(&rows[0][b * NTX_QK + 16], PANEL_COLS, p->low[8 * b + 4]);
    }
}

#define PANEL_SIMPLE(type)                                                                                            \
    void ntx__panel_##type(const uint8_t *const w[PANEL_OUTS], uint32_t n_blocks, struct panel *p)                    \
    {                                                                                                                 \
        pack_simple(w, n_blocks, p, sizeof(struct ntx_block_##type), block_##type);                                   \
    }

PANEL_SIMPLE(q4_0)
PANEL_SIMPLE(q4_1)
PANEL_SIMPLE(q5_0)
PANEL_SIMPLE(q5_1)
PANEL_SIMPLE(q8_0)

/* ---- super-blocks: scale * (q - offset) in two bytes ---- */

typedef __m512i values_fn(const uint8_t *w, int t);

/* What a super-block's header gives, per row of weights. */
struct header {
    __m256i scales;  /* 16 x int16 */
    __m256i mins;    /* 8 or 16 x int16 */
    uint32_t d;      /* d, and dmin above it */
};

typedef struct header header_fn(const uint8_t *w);

INLINE struct header header_q45(const uint8_t *w)
{
    struct header h;
    __m128i sm = _mm512_castsi512_si128(unpack_scales(_mm512_castsi128_si512(load128(w))));
    __m128i twice = _mm_unpacklo_epi8(sm, sm);
    h.scales = _mm256_cvtepu8_epi16(twice);
    h.mins = _mm256_cvtepu8_epi16(_mm_unpackhi_epi64(sm, sm));
    memcpy(&h.d, w, 4);
    return h;
}

INLINE struct header header_q2_k(const uint8_t *w)
{
    struct header h;
    __m128i sm = load128(w), nibble = _mm_set1_epi8(15);
    h.scales = _mm256_cvtepu8_epi16(_mm_and_si128(sm, nibble));
    h.mins = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(sm, 4), nibble));
    memcpy(&h.d, w + 80, 4);
    return h;
}

INLINE struct header header_q3_k(const uint8_t *w)
{
    struct header h = {.d = 0};
    __m512i s = unpack_scales_q3_k(_mm512_castsi128_si512(load128(w + 94)));
    h.scales = _mm256_cvtepi8_epi16(_mm512_castsi512_si128(s));
    memcpy(&h.d, w + 108, 2);
    return h;
}

INLINE struct header header_q6_k(const uint8_t *w)
{
    struct header h = {.d = 0};
    h.scales = _mm256_cvtepi8_epi16(load128(w + 192));
    memcpy(&h.d, w + 208, 2);
    return h;
}

INLINE __m512i values_q2_k(const uint8_t *w, int t) { return two_bits(w + 16, t); }

/* 64 values times their scales: low bytes and high bytes, in natural order. */
INLINE void scale_values(__m512i v, __m512i scale, int offset, uint8_t *low, uint8_t *high, const bool two_planes)
{
    __m512i zero = _mm512_setzero_si512(), byte = _mm512_set1_epi16(255), off = _mm512_set1_epi16((short)offset);
    __m512i a = _mm512_unpacklo_epi8(v, zero), b = _mm512_unpackhi_epi8(v, zero);
    if (offset) {
        a = _mm512_sub_epi16(a, off);
        b = _mm512_sub_epi16(b, off);
    }
    a = _mm512_mullo_epi16(a, scale);
    b = _mm512_mullo_epi16(b, scale);
    _mm512_store_si512(low, _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte)));
    if (two_planes)
        _mm512_store_si512(high, _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)));
}

INLINE void pack_super(const uint8_t *const w[PANEL_OUTS], struct panel *p, header_fn *header, values_fn *values, int offset,
                       const bool two_planes, uint32_t min_pairs)
{
    uint8_t low[PANEL_OUTS][PANEL_COLS] __attribute__((aligned(64))), high[PANEL_OUTS][PANEL_COLS] __attribute__((aligned(64)));
    uint8_t mins[PANEL_OUTS][32] __attribute__((aligned(32)));
    uint32_t heads[PANEL_OUTS];
    for (uint32_t o = 0; o < PANEL_OUTS; o++) {
        struct header h = header(w[o]);
        heads[o] = h.d;
        if (min_pairs)
            _mm256_store_si256((void *)mins[o], h.mins);
        for (int t = 0; t < 4; t++)
            scale_values(values(w[o], t), spread_scales(h.scales, t), offset, &low[o][64 * t], &high[o][64 * t], two_planes);
    }
    widen_heads(heads, p->d[0], p->m[0]);
    turn_plane(low, p->low);
    if (two_planes)
        turn_plane(high, p->high);
    for (uint32_t k = 0; k < min_pairs; k += 4)
        turn16(&mins[0][4 * k], 32, p->mins[k]);
}

#define PANEL_SUPER(type, header, values, offset, two_planes, min_pairs)                                              \
    void ntx__panel_##type(const uint8_t *const w[PANEL_OUTS], uint32_t n_blocks, struct panel *p)                    \
    {                                                                                                                 \
        (void)n_blocks;                                                                                               \
        pack_super(w, p, header, values, offset, two_planes, min_pairs);                                              \
    }

PANEL_SUPER(q2_k, header_q2_k, values_q2_k, 0, false, 8)
PANEL_SUPER(q3_k, header_q3_k, three_bits, 4, true, 0)
PANEL_SUPER(q4_k, header_q45, four_bits, 0, true, 4)
PANEL_SUPER(q5_k, header_q45, five_bits, 0, true, 4)
PANEL_SUPER(q6_k, header_q6_k, six_bits, 32, true, 0)
