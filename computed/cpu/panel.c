/* SPDX-License-Identifier: Apache-2.0 */
/* panel.c: unpacks weights to panels (panel.h), for tiles and for vectors, from rows or from interleaved slices. Plain
 * AVX-512.
 *
 * The bits of 16 rows are transposed as stored (interleaved slices already are), 4 bytes of each row per register, and
 * unpacked only then. So each lane of 32 bits belongs to one output, whose scale is in the same lane of another
 * register. */
#include "computed/cpu/avx512_bits.h"
#include "computed/cpu/panel.h"

INLINE __m512i dwords512(uint32_t v) { return _mm512_set1_epi32((int)v); }

INLINE void widen_heads(__m512i heads, float *d, float *m)
{
    _mm512_store_ps(d, widen_low_halves(heads));
    _mm512_store_ps(m, widen_low_halves(_mm512_srli_epi32(heads, 16)));
}

/* One block of each of 16 rows. */
struct blocks {
    const uint8_t *row[PANEL_OUTS];
    /* number of the 32 in a block of several; the same in all the panel's blocks, since there are 16 lanes */
    uint32_t part;
    const uint8_t *words, *head;                   /* interleaved: of the tile */
    const struct ntx__interleave_pattern *pattern; /* NULL: rows */
    /* of weights in high and low bits, where row[] are the high ones; NULL: whole weights */
    const struct split *split;
    const uint8_t *low[PANEL_OUTS];
};

/* The k-th blocks of a panel. parts: 32s in a block. */
INLINE struct blocks blocks_at(const struct panel_from *from, uint32_t k, const uint32_t parts,
                               const size_t block_bytes, const struct ntx__interleave_pattern *pattern)
{
    struct blocks w = {.part = from->b % parts, .pattern = pattern};
    if (pattern) {
        struct ntx__tile_at at = ntx__tile_at(from->blocks, from->place + k, block_bytes);
        w.words = from->w + at.words;
        w.head = from->w + at.head;
        return w;
    }
    for (uint32_t o = 0; o < PANEL_OUTS; o++)
        w.row[o] = from->w + (o < from->n_out ? o : from->n_out - 1) * from->row_bytes +
                   (from->b + k * LANES) / parts * block_bytes;
    return w;
}

/* The same of weights in high and low bits. */
INLINE struct blocks parts_at(const struct panel_from *from, uint32_t k, const struct split *split)
{
    struct blocks w = blocks_at(from, k, 1, split->high_bytes, NULL);
    w.split = split;
    for (uint32_t o = 0; split->low_bytes && o < PANEL_OUTS; o++)
        w.low[o] = from->low + (o < from->n_out ? o : from->n_out - 1) * from->low_row_bytes +
                   (from->b + k * LANES) * split->low_bytes;
    return w;
}

/* Loads 16 bytes at `at` of each block: v[k] has dword k of each. */
INLINE void load_dwords(const struct blocks *w, const size_t at, __m512i v[4])
{
    if (!w->pattern) {
        transpose16(w->row, at, v);
        return;
    }
    size_t group = (at - ntx__behind_head(w->pattern)) / 16,
           place = w->pattern->place ? w->pattern->place[group] : group;
    for (size_t i = 0; i < 4; i++)
        v[i] = load512(w->words + 64 * (4 * place + i));
}

/* Loads 8 bytes of each row. */
INLINE void load_two_dwords(const uint8_t *const row[PANEL_OUTS], const size_t at, __m512i v[2])
{
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    __m512i rows[2];
    for (size_t h = 0; h < 2; h++) {
        __m128i pair[4];
        for (size_t k = 0; k < 4; k++) {
            const uint8_t *const *of = row + 8 * h + 2 * k;
            pair[k] = _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(_mm_loadl_epi64((const void *)(of[0] + at))),
                                                    (const void *)(of[1] + at)));
        }
        rows[h] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(pair[1], pair[0])),
                                     _mm256_set_m128i(pair[3], pair[2]), 1);
    }
    v[0] = _mm512_permutex2var_epi32(rows[0], even, rows[1]);
    v[1] = _mm512_permutex2var_epi32(rows[0], _mm512_add_epi32(even, dwords512(1)), rows[1]);
}

/* Of 128 split bytes that begin at `begin`: the 16 at 16 g, and those 64 after them; g: 0 to 3. */
INLINE void load_halves(const struct blocks *w, const size_t begin, const size_t g, __m512i first[4], __m512i second[4])
{
    __m512i upper[4], lower[4], next[4];
    load_dwords(w, begin + 16 * g, w->split ? upper : first);
    if (!w->split) {
        load_dwords(w, begin + 64 + 16 * g, second);
        return;
    }
    const bool one = w->split->low_bits == 1;
    if (w->split->low_bytes)
        transpose16(w->low, one ? 16 * (g % 2) : 16 * g, lower);
    else
        for (size_t k = 0; k < 4; k++)
            lower[k] = _mm512_setzero_si512();
    if (one) {
        load_dwords(w, begin + 64 + 16 * (g % 2), next);
        for (size_t k = 0; k < 4; k++)
            lower[k] = g < 2 ? select_bits(0xaa, _mm512_slli_epi16(next[k], 1), lower[k])
                             : select_bits(0xaa, next[k], _mm512_srli_epi16(lower[k], 1));
    }
    for (size_t k = 0; k < 4; k++) {
        first[k] = select_bits(0xcc, _mm512_slli_epi16(upper[k], 2), lower[k]);
        second[k] = select_bits(0xcc, upper[k], _mm512_srli_epi16(lower[k], 2));
    }
}

/* Of interleaved slices: heads of a byte, of a half word, or of two. */
INLINE __m512i tile_heads(const struct blocks *w)
{
    const size_t bytes = ntx__head_bytes(w->pattern->block_bytes) - (w->pattern->fifth ? 4 : 0);
    if (bytes == 1)
        return _mm512_cvtepu8_epi32(load128(w->head));
    return bytes == 2 ? _mm512_cvtepu16_epi32(load256(w->head)) : load512(w->head);
}

/* Loads n <= 4 bytes at `at` of each block; for interleaved slices, its head. */
INLINE __m512i heads_at(const struct blocks *w, size_t at, size_t n)
{
    if (w->pattern)
        return tile_heads(w);
    uint32_t h[PANEL_OUTS] __attribute__((aligned(64))) = {0};
    for (uint32_t o = 0; o < PANEL_OUTS; o++)
        memcpy(&h[o], w->row[o] + at, n);
    return _mm512_load_si512(h);
}

INLINE void times(float *d, const float factor)
{
    _mm512_store_ps(d, _mm512_mul_ps(_mm512_load_ps(d), _mm512_set1_ps(factor)));
}

INLINE __m512i low_nibbles(__m512i v) { return _mm512_and_si512(v, bytes512(15)); }
INLINE __m512i high_nibbles(__m512i v) { return _mm512_and_si512(_mm512_srli_epi16(v, 4), bytes512(15)); }

/* ---- simple blocks: signed bytes for tiles, unsigned ones (with the offset) for vectors */

enum simple_bits { BITS_4, BITS_5, BITS_8, BITS_LOOKUP };

/* Bits of columns 4 k .. 4 k + 3, which are bits 4 k .. of each output's dword. */
INLINE __mmask64 bits_of(__m512i dword, uint32_t k)
{
    __m512i spread = _mm512_shuffle_epi8(
        dword, _mm512_add_epi8(_mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0), bytes512((int)k / 2)));
    return _mm512_test_epi8_mask(spread, dwords512(k % 2 ? 0x80402010 : 0x08040201));
}

/* The fifth bit is worth 16; without it, 0 or with `minus` -16. by_columns: as in interleaved slices. */
INLINE __m512i with_fifth_bits(__m512i v, __m512i fifth, uint32_t k, const bool minus, const bool by_columns)
{
    if (by_columns) {
        v = with_fifth(v, fifth, (int)k);
        return minus ? _mm512_sub_epi8(v, bytes512(16)) : v;
    }
    const __mmask64 set = bits_of(fifth, k);
    return minus ? _mm512_mask_sub_epi8(v, ~set, v, bytes512(16)) : _mm512_mask_add_epi8(v, set, v, bytes512(16));
}

/* 32 bytes of high and low nibbles. */
INLINE void load_split_8(const struct blocks *w, const size_t at, __m512i v[8])
{
    __m512i upper[4], lower[4];
    load_dwords(w, at, upper);
    if (w->split->low_bytes)
        transpose16(w->low, 0, lower);
    for (size_t k = 0; k < 4; k++) {
        const __m512i l = w->split->low_bytes ? lower[k] : _mm512_setzero_si512();
        v[k] = select_bits(0xf0, _mm512_slli_epi16(upper[k], 4), l);
        v[4 + k] = select_bits(0xf0, upper[k], _mm512_srli_epi16(l, 4));
    }
}

/* 16 bytes of nibbles, with two low bits. */
INLINE void load_split_4(const struct blocks *w, const size_t at, __m512i v[4])
{
    __m512i upper[2], lower[2];
    load_two_dwords(w->row, at, upper);
    if (w->split->low_bytes)
        load_two_dwords(w->low, 0, lower);
    for (size_t k = 0; k < 2; k++) {
        const __m512i l = w->split->low_bytes ? lower[k] : _mm512_setzero_si512();
        v[k] = select_bits(0xcc, _mm512_slli_epi16(upper[k], 2), l);
        v[2 + k] = select_bits(0xcc, upper[k], _mm512_srli_epi16(l, 2));
    }
}

/* Unpacks one block of each row to 8 panel rows. at: offset of its bits. has_min: the type has no offset. values:
 * table of BITS_LOOKUP. */
INLINE void fill_block(const struct blocks *w, const size_t at, uint8_t (*to)[PANEL_OUTS * 4],
                       const enum simple_bits bits, const bool has_min, const bool tiles, __m512i values)
{
    const bool minus = tiles && !has_min;
    __m512i v[8], fifth = _mm512_setzero_si512();
    if (w->split && bits == BITS_8) {
        load_split_8(w, at, v);
    } else if (bits == BITS_8) {
        load_dwords(w, at, v);
        load_dwords(w, at + 16, v + 4);
    } else {
        if (bits == BITS_5)
            fifth = w->pattern ? load512(w->head + ntx__fifth_at(w->pattern->block_bytes)) : heads_at(w, at, 4);
        if (w->split)
            load_split_4(w, at + 4, v);
        else
            load_dwords(w, bits == BITS_5 ? at + 4 : at, v);
        for (int k = 0; k < 4; k++) {
            v[4 + k] = high_nibbles(v[k]);
            v[k] = low_nibbles(v[k]);
        }
    }
    for (uint32_t k = 0; k < 8; k++) {
        if (bits == BITS_4 && minus)
            v[k] = _mm512_sub_epi8(v[k], bytes512(8));
        if (bits == BITS_5)
            v[k] = with_fifth_bits(v[k], fifth, k, minus, w->pattern != NULL);
        if (bits == BITS_LOOKUP)
            v[k] = _mm512_shuffle_epi8(values, v[k]);
        if (bits == BITS_8 && !tiles)
            v[k] = _mm512_xor_si512(v[k], bytes512(0x80));
        _mm512_store_si512(to[k], v[k]);
    }
}

INLINE void fill_simple(const struct panel_from *from, uint32_t n_blocks, struct panel *p, const size_t block_bytes,
                        const enum simple_bits bits, const bool has_min, const bool tiles, const __m512i values,
                        const struct ntx__interleave_pattern *pattern, const struct split *split)
{
    const bool scale_byte = block_bytes % 2; /* d is an exponent, not an F16 */
    const size_t no_min_at = scale_byte ? 1 : 2;
    for (uint32_t k = 0; k < n_blocks; k++) {
        struct blocks w = split ? parts_at(from, k, split) : blocks_at(from, k, 1, block_bytes, pattern);
        if (scale_byte)
            _mm512_store_ps(p->d[k], widen_exponents(_mm512_cvtepi32_epi8(heads_at(&w, 0, 1))));
        else
            widen_heads(heads_at(&w, 0, 4), p->d[k], p->m[k]);
        if (split_is_high(split))
            times(p->d[k], 0.5f);
        fill_block(&w, has_min ? 4 : no_min_at, p->low + 8 * (size_t)k, bits, has_min, tiles, values);
    }
}

#define PANEL_SIMPLE(name, type, bits, has_min, tiles, values, pattern)                                                \
    void name(const struct panel_from *from, uint32_t n_blocks, struct panel *p)                                       \
    {                                                                                                                  \
        fill_simple(from, n_blocks, p, sizeof(struct ntx_block_##type), bits, has_min, tiles, values, pattern, NULL);  \
    }

#define NO_VALUES _mm512_setzero_si512()
#define PANEL_ROWS(type, bits, has_min)                                                                                \
    PANEL_SIMPLE(ntx__panel_##type, type, bits, has_min, true, NO_VALUES, NULL)                                        \
    PANEL_SIMPLE(ntx__panel_vec_##type, type, bits, has_min, false, NO_VALUES, NULL)
#define PANEL_SLICES(type, bits, has_min)                                                                              \
    PANEL_SIMPLE(ntx__panel_interleaved_##type, type, bits, has_min, true, NO_VALUES, &ntx__pattern_##type)            \
    PANEL_SIMPLE(ntx__panel_vec_interleaved_##type, type, bits, has_min, false, NO_VALUES, &ntx__pattern_##type)
#define PANEL_LOOKUP(TYPE, type, scale, raise)                                                                         \
    PANEL_SIMPLE(ntx__panel_##type, type, BITS_LOOKUP, false, true, values_##type(), NULL)                             \
    PANEL_SIMPLE(ntx__panel_vec_##type, type, BITS_LOOKUP, false, false, raised_##type(), NULL)                        \
    PANEL_SIMPLE(ntx__panel_interleaved_##type, type, BITS_LOOKUP, false, true, values_##type(), &ntx__pattern_##type) \
    PANEL_SIMPLE(ntx__panel_vec_interleaved_##type, type, BITS_LOOKUP, false, false, raised_##type(),                  \
                 &ntx__pattern_##type)

PANEL_ROWS(q4_0, BITS_4, false)
PANEL_ROWS(q4_1, BITS_4, true)
PANEL_ROWS(q5_0, BITS_5, false)
PANEL_ROWS(q5_1, BITS_5, true)
PANEL_ROWS(q8_0, BITS_8, false)
PANEL_SLICES(q4_0, BITS_4, false)
PANEL_SLICES(q4_1, BITS_4, true)
PANEL_SLICES(q5_0, BITS_5, false)
PANEL_SLICES(q5_1, BITS_5, true)
PANEL_SLICES(q8_0, BITS_8, false)
NTX_LOOKUPS(PANEL_LOOKUP)

/* ---- blocks of several 32s under one head */

/* Signs: 1 or -1, or raised 2 or 0. */
INLINE void fill_q1_0(const struct blocks *w, struct panel *p, uint32_t k, const bool tiles)
{
    const __m512i bits = heads_at(w, 2 + 4 * (size_t)w->part, 4);
    widen_heads(heads_at(w, 0, 2), p->d[k], p->m[k]);
    for (uint32_t i = 0; i < 8; i++)
        _mm512_store_si512(p->low[8 * k + i],
                           _mm512_mask_mov_epi8(bytes512(tiles ? -1 : 0), bits_of(bits, i), bytes512(tiles ? 1 : 2)));
}

/* A byte has four values, one too large each; it becomes their dword. */
INLINE void fill_q2_0(const struct blocks *w, struct panel *p, uint32_t k, const bool tiles)
{
    widen_heads(heads_at(w, 0, 2), p->d[k], p->m[k]);
    for (uint32_t half = 0; half < 2; half++) {
        const __m512i bytes = heads_at(w, 2 + 8 * (size_t)w->part + 4 * (size_t)half, 4);
        for (uint32_t i = 0; i < 4; i++) {
            __m512i v = _mm512_and_si512(_mm512_srli_epi32(bytes, 8 * i), dwords512(255));
            v = _mm512_or_si512(_mm512_or_si512(v, _mm512_slli_epi32(v, 6)),
                                _mm512_or_si512(_mm512_slli_epi32(v, 12), _mm512_slli_epi32(v, 18)));
            v = _mm512_and_si512(v, bytes512(3));
            _mm512_store_si512(p->low[8 * k + 4 * half + i], tiles ? _mm512_sub_epi8(v, bytes512(1)) : v);
        }
    }
}

/* Each 16 values have a scale and eight bytes: low nibbles, then high ones. */
INLINE void fill_nvfp4(const struct blocks *w, struct panel *p, uint32_t k, const bool tiles)
{
    const __m512i scales = heads_at(w, 2 * (size_t)w->part, 2), values = values_mxfp4();
    __m512i v[4];
    _mm512_store_ps(p->d[k], widen_e4m3(_mm512_and_si512(scales, dwords512(255))));
    _mm512_store_ps(p->m[k], widen_e4m3(_mm512_srli_epi32(scales, 8)));
    load_dwords(w, 4 + 16 * (size_t)w->part, v);
    for (uint32_t half = 0; half < 2; half++) {
        __m512i sum = _mm512_setzero_si512();
        for (uint32_t i = 0; i < 4; i++) {
            const __m512i from = v[2 * half + i % 2],
                          q = _mm512_shuffle_epi8(values, i < 2 ? low_nibbles(from) : high_nibbles(from));
            _mm512_store_si512(p->low[8 * k + 4 * half + i], q);
            sum = _mm512_dpbusd_epi32(sum, bytes512(128), q);
        }
        if (!tiles)
            _mm512_store_si512(p->scale[2 * k + half], _mm512_sub_epi32(_mm512_setzero_si512(), sum));
    }
}

#define PANEL_PARTS_OF(name, type, parts, tiles)                                                                       \
    void name(const struct panel_from *from, uint32_t n_blocks, struct panel *p)                                       \
    {                                                                                                                  \
        for (uint32_t k = 0; k < n_blocks; k++) {                                                                      \
            struct blocks w = blocks_at(from, k, parts, sizeof(struct ntx_block_##type), NULL);                        \
            fill_##type(&w, p, k, tiles);                                                                              \
        }                                                                                                              \
    }
#define PANEL_PARTS(type, parts)                                                                                       \
    PANEL_PARTS_OF(ntx__panel_##type, type, parts, true)                                                               \
    PANEL_PARTS_OF(ntx__panel_vec_##type, type, parts, false)

PANEL_PARTS(q1_0, 4)
PANEL_PARTS(q2_0, 2)
PANEL_PARTS(nvfp4, 2)

/* ---- super-blocks */

/* Byte j of each dword in both of its int16. */
INLINE __m512i byte_twice(__m512i v, int j)
{
    return _mm512_shuffle_epi8(v, _mm512_add_epi8(_mm512_set4_epi32(0x000c000c, 0x00080008, 0x00040004, 0),
                                                  dwords512(0x80008000u + 0x00010001u * (unsigned)j)));
}

INLINE __m512i signed_byte_twice(__m512i v, int j)
{
    return _mm512_srai_epi16(_mm512_slli_epi16(byte_twice(v, j), 8), 8);
}

/* Bytes j and j + 1 of each dword as int16. */
INLINE __m512i byte_pair(__m512i v, int j)
{
    return _mm512_shuffle_epi8(v, _mm512_add_epi8(_mm512_set4_epi32(0x000c000c, 0x00080008, 0x00040004, 0),
                                                  dwords512(0x80018000u + 0x00010001u * (unsigned)j)));
}

/* Stores minima, four per register, as pairs for VNNI. */
INLINE void store_mins(const __m512i *mins, uint32_t pairs, struct panel *p)
{
    for (uint32_t k = 0; k < pairs; k++)
        _mm512_store_si512(p->mins[k], byte_pair(mins[k / 2], k % 2 * 2));
}

/* Stores scales, four bytes per register, as int32. */
INLINE void store_scales(const __m512i *scales, const bool is_signed, uint32_t n, struct panel *p)
{
    for (uint32_t k = 0; k < n; k++) {
        __m512i v = _mm512_slli_epi32(scales[k / 4], 24 - 8 * (k % 4));
        _mm512_store_si512(p->scale[k], is_signed ? _mm512_srai_epi32(v, 24) : _mm512_srli_epi32(v, 24));
    }
}

/* Q4_K, Q5_K, for tiles: a scale of 6 bits is split into two of 3 bits. Times 5 bits that is a byte, so two bytes are
 * multiplied at a time without a carry. */
struct two_scales {
    __m512i low, high;
};

INLINE void store_two_scaled(struct panel *p, size_t row, __m512i q, struct two_scales s)
{
    _mm512_store_si512(p->low[row], _mm512_mullo_epi16(q, s.low));
    _mm512_store_si512(p->high[row], _mm512_mullo_epi16(q, s.high));
}

INLINE void header_q45(const struct blocks *w, struct panel *p, struct two_scales s[8], const bool tiles)
{
    __m512i h[4], mins[2], six = dwords512(0x3f3f3f3f), top = dwords512(0x30303030), three = bytes512(7);
    load_dwords(w, 0, h); /* d and dmin, then the 12 bytes of scales and minima, as model/unpack.h says */
    widen_heads(h[0], p->d[0], p->m[0]);
    __m512i scales[2] = {_mm512_and_si512(h[1], six),
                         _mm512_or_si512(low_nibbles(h[3]), _mm512_and_si512(_mm512_srli_epi32(h[1], 2), top))};
    mins[0] = _mm512_and_si512(h[2], six);
    mins[1] = _mm512_or_si512(high_nibbles(h[3]), _mm512_and_si512(_mm512_srli_epi32(h[2], 2), top));
    store_mins(mins, 4, p);
    if (!tiles)
        store_scales(scales, false, 8, p);
    for (int j = 0; tiles && j < 8; j++) {
        s[j].low = byte_twice(_mm512_and_si512(scales[j / 4], three), j % 4);
        s[j].high = byte_twice(_mm512_and_si512(_mm512_srli_epi16(scales[j / 4], 3), three), j % 4);
    }
}

/* High bits alone: twice the middle. */
INLINE __m512i middle(const struct blocks *w, __m512i v)
{
    if (!split_is_high(w->split))
        return v;
    return _mm512_or_si512(_mm512_add_epi8(v, v), bytes512((1 << w->split->low_bits) - 1));
}

INLINE void fill_q45(const struct blocks *w, struct panel *p, const bool five, const bool tiles)
{
    struct two_scales s[8];
    header_q45(w, p, s, tiles);
    if (split_is_high(w->split))
        times(p->d[0], 0.5f);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m512i h[4], v[8];
        if (five)
            load_dwords(w, 16 + 16 * (size_t)i, h);
#pragma GCC unroll 2
        for (int t = 0; t < 2; t++) { /* columns of each 64, and those 128 after them */
            load_halves(w, five ? 48 : 16, (size_t)(2 * t + i), v, v + 4);
#pragma GCC unroll 8
            for (int k = 0; k < 8; k++) {
                const int u = t + k / 4 * 2;
                size_t row = (size_t)(16 * u + 4 * i + k % 4);
                __m512i a = low_nibbles(v[k]), b = high_nibbles(v[k]);
                a = five ? with_fifth(a, h[k % 4], 2 * u) : a;
                b = five ? with_fifth(b, h[k % 4], 2 * u + 1) : b;
                if (tiles) {
                    store_two_scaled(p, row, a, s[2 * u]);
                    store_two_scaled(p, row + 8, b, s[2 * u + 1]);
                } else {
                    _mm512_store_si512(p->low[row], middle(w, a));
                    _mm512_store_si512(p->low[row + 8], middle(w, b));
                }
            }
        }
    }
}

/* Stores q; for tiles scale * (q - offset) as int16, its low byte in one plane and its high byte in the other. */
INLINE void store_scaled(struct panel *p, size_t row, __m512i q, __m512i scale, int offset, const bool tiles)
{
    if (!tiles) {
        _mm512_store_si512(p->low[row], q);
        return;
    }
    __m512i off = _mm512_set1_epi16((short)offset), low = _mm512_set1_epi16(255);
    __m512i even = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_and_si512(q, low), off), scale);
    __m512i odd = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_srli_epi16(q, 8), off), scale);
    _mm512_store_si512(p->low[row], _mm512_ternarylogic_epi32(low, even, _mm512_slli_epi16(odd, 8), 0xca));
    _mm512_store_si512(p->high[row], _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(even, 8), odd, 0xca));
}

/* Moves bits of h from bit `from` to bit `to`, within the mask, above v. */
INLINE __m512i with_bits(__m512i v, __m512i h, int from, int to, int mask)
{
    h = from > to ? _mm512_srli_epi16(h, (unsigned)(from - to)) : _mm512_slli_epi16(h, (unsigned)(to - from));
    return _mm512_ternarylogic_epi32(v, h, bytes512(mask), 0xf8);
}

INLINE void fill_q6_k(const struct blocks *w, struct panel *p, const bool tiles)
{
    const size_t rest = w->split ? 0 : 128; /* place of the fifth and sixth bits, which scales and d follow */
    __m512i scales[4], h[8], v[8];
    load_dwords(w, rest + 64, scales);
    widen_heads(heads_at(w, rest + 80, 2), p->d[0], p->m[0]);
    if (split_is_high(w->split))
        times(p->d[0], 0.5f);
    if (!tiles)
        store_scales(scales, true, 16, p);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) { /* columns 16 i .. of each 32, of both halves */
        load_dwords(w, rest + 16 * (size_t)i, h);
        load_dwords(w, rest + 32 + 16 * (size_t)i, h + 4);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            load_halves(w, w->split ? 82 : 0, (size_t)(2 * j + i), v, v + 4);
#pragma GCC unroll 8
            for (int k = 0; k < 8; k++) {
                const int n = k / 4;
                size_t row = (size_t)(32 * n + 8 * j + 4 * i + k % 4);
                __m512i sa = signed_byte_twice(scales[2 * n], 2 * j + i),
                        sb = signed_byte_twice(scales[2 * n + 1], 2 * j + i);
                const __m512i a = with_bits(low_nibbles(v[k]), h[k], 2 * j, 4, 48),
                              b = with_bits(high_nibbles(v[k]), h[k], 4 + 2 * j, 4, 48);
                store_scaled(p, row, middle(w, a), sa, 32, tiles);
                store_scaled(p, row + 16, middle(w, b), sb, 32, tiles);
            }
        }
    }
}

INLINE void fill_q3_k(const struct blocks *w, struct panel *p, const bool tiles)
{
    __m512i tail[4], scales[4], h[2][4], v[4], three = bytes512(3);
    load_dwords(w, 92, tail); /* from 1 on: 12 bytes of scales */
    widen_heads(heads_at(w, 108, 2), p->d[0], p->m[0]);
    for (int g = 0; g < 4; g++) {
        __m512i nibble = g < 2 ? low_nibbles(tail[1 + g]) : high_nibbles(tail[g - 1]);
        scales[g] = _mm512_sub_epi8(with_bits(nibble, tail[3], 2 * g, 4, 48), bytes512(32));
    }
    if (!tiles)
        store_scales(scales, true, 16, p);
    load_dwords(w, 0, h[0]);
    load_dwords(w, 16, h[1]);
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        int n = c / 2, i = c % 2;
        load_dwords(w, 32 + 16 * (size_t)c, v);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m512i s = signed_byte_twice(scales[2 * n + j / 2], 2 * (j % 2) + i);
            for (int k = 0; k < 4; k++) {
                __m512i q = _mm512_and_si512(_mm512_srli_epi16(v[k], (unsigned)(2 * j)), three);
                store_scaled(p, (size_t)(32 * n + 8 * j + 4 * i + k), with_bits(q, h[i][k], 4 * n + j, 2, 4), s, 4,
                             tiles);
            }
        }
    }
}

/* Q2_K: scale * q is at most 45, so one plane, also for vectors. */
INLINE void fill_q2_k(const struct blocks *w, struct panel *p)
{
    __m512i scales[4], mins[4], v[4], three = bytes512(3);
    load_dwords(w, 0, scales);
    for (int g = 0; g < 4; g++) {
        mins[g] = high_nibbles(scales[g]);
        scales[g] = low_nibbles(scales[g]);
    }
    store_mins(mins, 8, p);
    widen_heads(heads_at(w, 80, 4), p->d[0], p->m[0]);
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        int n = c / 2, i = c % 2;
        load_dwords(w, 16 + 16 * (size_t)c, v);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m512i s = byte_twice(scales[2 * n + j / 2], 2 * (j % 2) + i);
            for (int k = 0; k < 4; k++)
                _mm512_store_si512(
                    p->low[32 * n + 8 * j + 4 * i + k],
                    _mm512_mullo_epi16(_mm512_and_si512(_mm512_srli_epi16(v[k], (unsigned)(2 * j)), three), s));
        }
    }
}

/* IQ4_XS: d, eight scales of 6 bits, then nibbles that stand for values of 8 bits. */
INLINE void fill_iq4_xs(const struct blocks *w, struct panel *p, const bool tiles)
{
    const __m512i values = raised_iq4_nl();
    __m512i h[4], v[4];
    if (w->pattern)
        split_pairs(w->head, h);
    else
        load_dwords(w, 0, h);
    widen_heads(h[0], p->d[0], p->m[0]);
#pragma GCC unroll 8
    for (unsigned t = 0; t < 8; t++) {
        __m512i s = scales_iq4_xs_16(h[0], h[1], t), twice = low_twice(s);
        if (!tiles)
            _mm512_store_si512(p->scale[t], s);
        load_dwords(w, 8 + 16 * (size_t)t, v);
        for (size_t k = 0; k < 4; k++) {
            store_scaled(p, 8 * t + k, _mm512_shuffle_epi8(values, low_nibbles(v[k])), twice, 128, tiles);
            store_scaled(p, 8 * t + 4 + k, _mm512_shuffle_epi8(values, high_nibbles(v[k])), twice, 128, tiles);
        }
    }
}

/* ---- i-quants with codebooks, and ternary types: unpacked by panel_codes.c or by model/unpack.h */

typedef void unpack_fn(const void *block, uint32_t t, struct ntx_part *p);

/* The values and scales of 16 super-blocks in ntx__transpose512_'s form. model/unpack.h's d includes the type's
 * factor. */
struct transposed {
    uint8_t values[PANEL_COLS / 4][PANEL_OUTS * 4];
    int32_t scales[16][PANEL_OUTS];
} __attribute__((aligned(64)));

INLINE void transpose_plain(const uint8_t *const row[PANEL_OUTS], uint8_t (*values)[PANEL_OUTS * 4],
                            int32_t (*scales)[PANEL_OUTS], float *d, const int sub, unpack_fn *unpack)
{
    for (uint32_t o = 0; o < PANEL_OUTS; o++) {
        struct ntx_part part;
        for (uint32_t t = 0; t < NTX_QKK / NTX_QK; t++) {
            unpack(row[o], t, &part);
            for (uint32_t i = 0; i < NTX_QK; i++)
                values[t * 8 + i / 4][4 * o + i % 4] = (uint8_t)(part.q[i] + RAISED);
            scales[sub == 16 ? 2 * t : t][o] = part.scale[0];
            if (sub == 16)
                scales[2 * t + 1][o] = part.scale[1];
        }
        d[o] = part.d;
    }
}

/* Scales values for tiles. sub: how many values share a scale; 0: it is 1. */
INLINE void scale_transposed(const struct transposed *u, struct panel *p, const int sub)
{
#pragma GCC unroll 16
    for (size_t g = 0; g < 16; g++) {
        const size_t run = sub == 16 ? g : g / 2;
        const __m512i scale = sub ? low_twice(load512(u->scales[run])) : _mm512_set1_epi16(1);
        for (size_t k = 0; k < 4; k++)
            store_scaled(p, 4 * g + k, load512(u->values[4 * g + k]), scale, RAISED, true);
    }
}

#define PANEL_SUPER(name, type, pattern, call)                                                                         \
    void name(const struct panel_from *from, uint32_t n_blocks, struct panel *p)                                       \
    {                                                                                                                  \
        struct blocks blocks = blocks_at(from, 0, 1, sizeof(struct ntx_block_##type), pattern), *w = &blocks;          \
        (void)n_blocks;                                                                                                \
        call;                                                                                                          \
    }

PANEL_SUPER(ntx__panel_q2_k, q2_k, NULL, fill_q2_k(w, p))
PANEL_SUPER(ntx__panel_q3_k, q3_k, NULL, fill_q3_k(w, p, true))
PANEL_SUPER(ntx__panel_q4_k, q4_k, NULL, fill_q45(w, p, false, true))
PANEL_SUPER(ntx__panel_q5_k, q5_k, NULL, fill_q45(w, p, true, true))
PANEL_SUPER(ntx__panel_q6_k, q6_k, NULL, fill_q6_k(w, p, true))
PANEL_SUPER(ntx__panel_vec_q2_k, q2_k, NULL, fill_q2_k(w, p))
PANEL_SUPER(ntx__panel_vec_q3_k, q3_k, NULL, fill_q3_k(w, p, false))
PANEL_SUPER(ntx__panel_vec_q4_k, q4_k, NULL, fill_q45(w, p, false, false))
PANEL_SUPER(ntx__panel_vec_q5_k, q5_k, NULL, fill_q45(w, p, true, false))
PANEL_SUPER(ntx__panel_vec_q6_k, q6_k, NULL, fill_q6_k(w, p, false))
PANEL_SUPER(ntx__panel_interleaved_q4_k, q4_k, &ntx__pattern_q4_k, fill_q45(w, p, false, true))
PANEL_SUPER(ntx__panel_interleaved_q5_k, q5_k, &ntx__pattern_q5_k, fill_q45(w, p, true, true))
PANEL_SUPER(ntx__panel_interleaved_q6_k, q6_k, &ntx__pattern_q6_k, fill_q6_k(w, p, true))
PANEL_SUPER(ntx__panel_vec_interleaved_q4_k, q4_k, &ntx__pattern_q4_k, fill_q45(w, p, false, false))
PANEL_SUPER(ntx__panel_vec_interleaved_q5_k, q5_k, &ntx__pattern_q5_k, fill_q45(w, p, true, false))
PANEL_SUPER(ntx__panel_vec_interleaved_q6_k, q6_k, &ntx__pattern_q6_k, fill_q6_k(w, p, false))
PANEL_SUPER(ntx__panel_iq4_xs, iq4_xs, NULL, fill_iq4_xs(w, p, true))
PANEL_SUPER(ntx__panel_vec_iq4_xs, iq4_xs, NULL, fill_iq4_xs(w, p, false))
PANEL_SUPER(ntx__panel_interleaved_iq4_xs, iq4_xs, &ntx__pattern_iq4_xs, fill_iq4_xs(w, p, true))
PANEL_SUPER(ntx__panel_vec_interleaved_iq4_xs, iq4_xs, &ntx__pattern_iq4_xs, fill_iq4_xs(w, p, false))

/* ---- in high and low bits, for vectors */

#define PANEL_SPLIT(name, whole, bits, n, of_low, fill)                                                                \
    void name(const struct panel_from *from, uint32_t n_blocks, struct panel *p)                                       \
    {                                                                                                                  \
        const struct split split = {NTX_PLANES_HIGH_BYTES(whole, bits, n), of_low, bits};                              \
        fill                                                                                                           \
    }
#define PANEL_PLANES(whole, bits, n, fill)                                                                             \
    PANEL_SPLIT(ntx__panel_vec_planes_##whole##_##bits, whole, bits, n, NTX_PLANES_LOW_BYTES(bits, n), fill)           \
    PANEL_SPLIT(ntx__panel_vec_high_##whole##_##bits, whole, bits, n, 0, fill)
#define PANEL_PLANES_SUPER(whole, bits, call)                                                                          \
    PANEL_PLANES(whole, bits, 128, const struct blocks blocks = parts_at(from, 0, &split); (void)n_blocks; call;)
#define PANEL_PLANES_SIMPLE(whole, bits, n, form)                                                                      \
    PANEL_PLANES(whole, bits, n,                                                                                       \
                 fill_simple(from, n_blocks, p, split.high_bytes, form, false, false, NO_VALUES, NULL, &split);)
PANEL_PLANES_SUPER(q4_k, 1, fill_q45(&blocks, p, false, false))
PANEL_PLANES_SUPER(q4_k, 2, fill_q45(&blocks, p, false, false))
PANEL_PLANES_SUPER(q5_k, 2, fill_q45(&blocks, p, true, false))
PANEL_PLANES_SUPER(q6_k, 2, fill_q6_k(&blocks, p, false))
PANEL_PLANES_SIMPLE(q5_0, 2, 16, BITS_5)
PANEL_PLANES_SIMPLE(q8_0, 4, 32, BITS_8)

#define PANEL_TRANSPOSE(type, values, scales, factor, sub)                                                             \
    struct blocks w = blocks_at(from, 0, 1, sizeof(struct ntx_block_##type), NULL);                                    \
    (void)n_blocks;                                                                                                    \
    if (ntx__cpu_permutes_bytes) {                                                                                     \
        ntx__transpose512_##type(w.row, values, scales, p->d[0]);                                                      \
        times(p->d[0], factor);                                                                                        \
    } else {                                                                                                           \
        transpose_plain(w.row, values, scales, p->d[0], sub, ntx_unpack_##type);                                       \
    }

#define PANEL_CODES(TYPE, type, factor, sub)                                                                           \
    void ntx__panel_vec_##type(const struct panel_from *from, uint32_t n_blocks, struct panel *p)                      \
    {                                                                                                                  \
        PANEL_TRANSPOSE(type, p->low, p->scale, factor, sub)                                                           \
    }                                                                                                                  \
    void ntx__panel_##type(const struct panel_from *from, uint32_t n_blocks, struct panel *p)                          \
    {                                                                                                                  \
        struct transposed u;                                                                                           \
        PANEL_TRANSPOSE(type, u.values, u.scales, factor, sub)                                                         \
        scale_transposed(&u, p, sub);                                                                                  \
    }
AVX512_CODES(PANEL_CODES)
