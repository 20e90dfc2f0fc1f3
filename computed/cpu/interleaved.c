/* SPDX-License-Identifier: Apache-2.0 */
/* interleaved.c: interleaves weights (interleaved.h), and multiplies them by one to four rows of x at a time: a
 * register has four columns of 16 outputs and is multiplied by four values of x, broadcast to another register. Many
 * rows: vnni.c. */
#include "computed/cpu/interleaved.h"

#include "common/util.h"
#include "computed/cpu/avx512_bits.h"
#include "computed/cpu/panel.h"

enum {
    OUTS = NTX_SLICE_OUTS,
    ROWS = 4,    /* most rows of x at once */
    NEAR = 3584, /* bytes of prefetch to the first level, except on AMD */
    FAR = 8192,  /* to the second level: on AMD, and for one row on Intel */
};

/* The cache level of prefetches for one row of x on AMD. */
enum fetch { NOT_FETCHED, FETCHED_TO_FIRST, FETCHED_TO_SECOND };

/* The rows of x of one turn. */
struct rows {
    const char *x[ROWS];
    struct x_parts at;
};

/* How a type's minima count: j times m is added (Q4_1, Q5_1) or taken away (Q4_K, Q5_K). */
enum minima { NO_MINIMA, ADDED, TAKEN };

/* Results of a tile: exact integers per row, and their scales. j and m: minima, in types that have them. */
struct tile {
    __m512i i[ROWS], j[ROWS];
    __m512 d, m;
};

/* head: the tile's heads. */
typedef void tile_fn(const uint8_t *w, const uint8_t *head, const struct rows *x, uint32_t b, const int n,
                     struct tile *out);

INLINE __m512i spread_dword(const char *x)
{
    int32_t v;
    memcpy(&v, x, 4);
    return _mm512_set1_epi32(v);
}

/* Forces a single load: the compiler would load again for each use. */
INLINE __m512i dword(const uint8_t *w, int k)
{
    __m512i v = load512(w + 64 * k);
    __asm__("" : "+v"(v));
    return v;
}
INLINE __m512 half_words(const uint8_t *w) { return _mm512_cvtph_ps(load256(w)); }

/* Byte k of each lane as a number. */
INLINE __m512i byte_of(__m512i v, const int k, const bool is_signed)
{
    if (is_signed)
        return _mm512_srai_epi32(k < 3 ? _mm512_slli_epi32(v, 24 - 8 * (unsigned)k) : v, 24);
    if (k == 3)
        return _mm512_srli_epi32(v, 24);
    return _mm512_and_si512(k ? _mm512_srli_epi32(v, 8 * (unsigned)k) : v, _mm512_set1_epi32(255));
}

/* Bytes 0 and 1, or 2 and 3, of each lane as a pair of int16. */
INLINE __m512i pair_of(__m512i v, const int k, const bool is_signed)
{
    const int at = k ? 0x03800280 : 0x01800080; /* byte j into the upper half of its int16 */
    __m512i p = _mm512_shuffle_epi8(
        v, _mm512_add_epi8(_mm512_set1_epi32(at & ~0), _mm512_set4_epi32(0x0c000c00, 0x08000800, 0x04000400, 0)));
    return is_signed ? _mm512_srai_epi16(p, 8) : _mm512_srli_epi16(p, 8);
}

/* Partial sums per row: a product waits four or five cycles for the one before it in its sum, so few rows need
 * several. */
INLINE int chains(const int n)
{
    if (n == 1)
        return 4;
    return n == 2 ? 2 : 1;
}

INLINE void join_chains(__m512i *v, const int n)
{
    const int parts = chains(n);
    for (int r = 0; r < n; r++) {
        __m512i s = v[r * parts];
        for (int p = 1; p < parts; p++)
            s = _mm512_add_epi32(s, v[r * parts + p]);
        v[r] = s;
    }
}

/* ---- Q4_K, Q5_K: dwords: d and dmin | 12 bytes of scales and minima | Q5_K: 32 bytes of fifth bits | 128 bytes of
 * nibbles */

INLINE void tile_q45(const uint8_t *w, const struct rows *x, uint32_t b, const int n, struct tile *out, const bool five)
{
    const __m512i low = bytes512(15), high = bytes512((char)0xf0), top = bytes512(16), six = bytes512(63),
                  two = bytes512(48);
    const __m512i head = dword(w, 0), u0 = dword(w, 1), u1 = dword(w, 2), u2 = dword(w, 3);
    const size_t q = (size_t)b * NTX_QKK, sums = x->at.sums_at + (size_t)b * 16;
    const int at = five ? 12 : 4;
    __m512i scale[2], min[2];
    scale[0] = _mm512_and_si512(u0, six);
    min[0] = _mm512_and_si512(u1, six);
    scale[1] = _mm512_or_si512(_mm512_and_si512(u2, low), _mm512_and_si512(_mm512_srli_epi16(u0, 2), two));
    min[1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(u2, 4), low),
                             _mm512_and_si512(_mm512_srli_epi16(u1, 2), two));
    out->d = widen_low_halves(head);
    out->m = widen_low_halves(_mm512_srli_epi32(head, 16));
    for (int r = 0; r < n; r++)
        out->i[r] = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int t = 0; t < 4; t++) { /* sub-blocks 2 t and 2 t + 1, of low and of high nibbles */
        const int parts = chains(n);
        __m512i a[ROWS], c[ROWS];
        for (int r = 0; r < n * parts; r++)
            a[r] = c[r] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            __m512i v = dword(w, at + 8 * t + k), lo = _mm512_and_si512(v, low), hi = _mm512_and_si512(v, high);
            if (five) {
                __m512i h = dword(w, 4 + k);
                hi = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
                lo = _mm512_ternarylogic_epi32(
                    lo, t < 2 ? _mm512_slli_epi16(h, 4 - 2 * t) : _mm512_srli_epi16(h, 2 * t - 4), top, 0xf8);
                hi = _mm512_ternarylogic_epi32(
                    hi, t < 2 ? _mm512_slli_epi16(h, 3 - 2 * t) : _mm512_srli_epi16(h, 2 * t - 3), top, 0xf8);
            }
#pragma GCC unroll 4
            for (int r = 0; r < n; r++) {
                const int p = r * parts + k % parts;
                a[p] = _mm512_dpbusd_epi32(a[p], lo, spread_dword(x->x[r] + q + (size_t)(64 * t + 4 * k)));
                c[p] = _mm512_dpbusd_epi32(c[p], hi, spread_dword(x->x[r] + q + (size_t)(64 * t + 32 + 4 * k)));
            }
        }
        join_chains(a, n);
        join_chains(c, n);
        const __m512i sa = byte_of(scale[t / 2], t % 2 * 2, false), sc = byte_of(scale[t / 2], t % 2 * 2 + 1, false);
        for (int r = 0; r < n; r++) {
            /* sums of high nibbles are 16 times too large */
            out->i[r] = _mm512_add_epi32(out->i[r], _mm512_mullo_epi32(a[r], sa));
            out->i[r] = _mm512_add_epi32(out->i[r], _mm512_mullo_epi32(five ? c[r] : _mm512_srai_epi32(c[r], 4), sc));
        }
    }
    for (int r = 0; r < n; r++) {
        out->j[r] = _mm512_setzero_si512();
        for (int k = 0; k < 4; k++)
            out->j[r] = _mm512_dpwssd_epi32(out->j[r], pair_of(min[k / 2], k % 2, false),
                                            spread_dword(x->x[r] + sums + 4 * (size_t)k));
    }
}

INLINE void tile_q4_k(const uint8_t *w, const uint8_t *head, const struct rows *x, uint32_t b, const int n,
                      struct tile *out)
{
    (void)head;
    tile_q45(w, x, b, n, out, false);
}
INLINE void tile_q5_k(const uint8_t *w, const uint8_t *head, const struct rows *x, uint32_t b, const int n,
                      struct tile *out)
{
    (void)head;
    tile_q45(w, x, b, n, out, true);
}

/* ---- Q6_K: dwords: 16 scales | for each half and each 16 columns (of 32): bit pairs, then nibbles of the first and
 * third 32, then of the second and fourth; and d. Values are 32 too large. */

INLINE void tile_q6_k(const uint8_t *w, const uint8_t *head, const struct rows *x, uint32_t b, const int n,
                      struct tile *out)
{
    const __m512i low = bytes512(15), two = bytes512(48);
    const size_t q = (size_t)b * NTX_QKK, sums = x->at.sums_at + (size_t)b * 32;
    __m512i scale[4];
    for (int k = 0; k < 4; k++)
        scale[k] = dword(w, k);
    out->d = half_words(head);
    for (int r = 0; r < n; r++)
        out->i[r] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        __m512i s = pair_of(scale[k / 2], k % 2, true);
        for (int r = 0; r < n; r++)
            out->i[r] = _mm512_dpwssd_epi32(out->i[r], s, spread_dword(x->x[r] + sums + 4 * (size_t)k));
    }
    for (int r = 0; r < n; r++)
        out->i[r] = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(out->i[r], 5));
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) {
        const int part = c / 4, i = c / 2 % 2, j = c % 2, at = 4 + 24 * part + 12 * i;
        __m512i a[ROWS], e[ROWS];
        for (int r = 0; r < n; r++)
            a[r] = e[r] = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            __m512i h = dword(w, at + k), v = dword(w, at + 4 + 4 * j + k);
            __m512i lo = _mm512_ternarylogic_epi32(_mm512_and_si512(v, low), _mm512_slli_epi16(h, j ? 2 : 4), two,
                                                   0xf8);
            __m512i hi = _mm512_ternarylogic_epi32(_mm512_and_si512(_mm512_srli_epi16(v, 4), low),
                                                   j ? _mm512_srli_epi16(h, 2) : h, two, 0xf8);
#pragma GCC unroll 4
            for (int r = 0; r < n; r++) {
                const char *from = x->x[r] + q + (size_t)(128 * part + 32 * j + 16 * i + 4 * k);
                a[r] = _mm512_dpbusd_epi32(a[r], lo, spread_dword(from));
                e[r] = _mm512_dpbusd_epi32(e[r], hi, spread_dword(from + 64));
            }
        }
        const __m512i sa = byte_of(scale[2 * part], 2 * j + i, true),
                      se = byte_of(scale[2 * part + 1], 2 * j + i, true);
        for (int r = 0; r < n; r++) {
            out->i[r] = _mm512_add_epi32(out->i[r], _mm512_mullo_epi32(a[r], sa));
            out->i[r] = _mm512_add_epi32(out->i[r], _mm512_mullo_epi32(e[r], se));
        }
    }
}

/* ---- IQ4_XS: heads of d and scales; nibbles, whose values are raised by 128 */

/* _across: bytes are looked up in a whole register, by the lower six bits of each index. The sixteen values are in it
 * four times, so nothing needs masking. */
#define VBMI __attribute__((target("avx512vbmi")))
INLINE VBMI __m512i looked_up_across(__m512i values, __m512i v) { return _mm512_permutexvar_epi8(v, values); }
INLINE __m512i looked_up_within(__m512i values, __m512i v)
{
    return _mm512_shuffle_epi8(values, _mm512_and_si512(v, bytes512(15)));
}

typedef __m512i look_up_fn(__m512i values, __m512i v);

INLINE void tile_iq4_xs_by(const uint8_t *w, const uint8_t *head, const struct rows *x, uint32_t b, const int n,
                           struct tile *out, look_up_fn *look_up)
{
    const __m512i values = raised_iq4_nl();
    const size_t q = (size_t)b * NTX_QKK, sums = x->at.sums_at + (size_t)b * 32;
    const int parts = n == 1 ? 2 : 1; /* partial sums; products of one 32 overlap with those of the next */
    __m512i h[2];
    split_pairs(head, h);
    out->d = widen_low_halves(h[0]);
    for (int r = 0; r < n; r++)
        out->i[r] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (unsigned t = 0; t < 8; t++) {
        const __m512i scale = scales_iq4_xs_16(h[0], h[1], t);
        __m512i a[ROWS];
        for (int p = 0; p < n * parts; p++) /* start: -128 times the sum of x */
            a[p] = p % parts ? _mm512_setzero_si512()
                             : _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_set1_epi16(-128),
                                                   spread_dword(x->x[p / parts] + sums + 4 * t));
#pragma GCC unroll 4
        for (unsigned k = 0; k < 4; k++) {
            const __m512i v = dword(w, (int)(4 * t + k)), lo = look_up(values, v),
                          hi = look_up(values, _mm512_srli_epi16(v, 4));
#pragma GCC unroll 4
            for (int r = 0; r < n; r++) {
                const char *from = x->x[r] + q + 32 * t + 4 * k;
                a[r * parts] = _mm512_dpbusd_epi32(a[r * parts], lo, spread_dword(from));
                a[r * parts + parts - 1] = _mm512_dpbusd_epi32(a[r * parts + parts - 1], hi, spread_dword(from + 16));
            }
        }
        for (int r = 0; r < n; r++)
            out->i[r] = _mm512_add_epi32(
                out->i[r], _mm512_mullo_epi32(parts > 1 ? _mm512_add_epi32(a[2 * r], a[2 * r + 1]) : a[r], scale));
    }
}

INLINE void tile_iq4_xs(const uint8_t *w, const uint8_t *head, const struct rows *x, uint32_t b, const int n,
                        struct tile *out)
{
    tile_iq4_xs_by(w, head, x, b, n, out, looked_up_within);
}

INLINE VBMI void tile_iq4_xs_across(const uint8_t *w, const uint8_t *head, const struct rows *x, uint32_t b,
                                    const int n, struct tile *out)
{
    tile_iq4_xs_by(w, head, x, b, n, out, looked_up_across);
}

/* ---- simple blocks: dwords of bits, then d. The offset is corrected by the sum of x, which fits an int16. */

INLINE void start_simple(const struct rows *x, uint32_t b, const int n, struct tile *out, const int offset)
{
    for (int r = 0; r < n; r++)
        out->i[r] = _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_set1_epi32(-offset & 0xffff),
                                        spread_dword(x->x[r] + x->at.sums_at + 4 * (size_t)b));
}

/* values: the table of a nibble's values; NULL: the nibble itself. fifth: bits above the nibbles, or NULL. */
INLINE void nibbles(const uint8_t *w, const struct rows *x, uint32_t b, const int n, struct tile *out,
                    const __m512i *values, const uint8_t *fifth)
{
    const __m512i low = bytes512(15), above = fifth ? dword(fifth, 0) : low;
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m512i v = dword(w, k), lo = _mm512_and_si512(v, low), hi = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
        if (values) {
            lo = _mm512_shuffle_epi8(*values, lo);
            hi = _mm512_shuffle_epi8(*values, hi);
        }
        if (fifth) {
            lo = with_fifth(lo, above, k);
            hi = with_fifth(hi, above, 4 + k);
        }
#pragma GCC unroll 8
        for (int r = 0; r < n; r++) {
            const char *at = x->x[r] + (size_t)b * NTX_QK + 4 * (size_t)k;
            out->i[r] = _mm512_dpbusd_epi32(out->i[r], lo, spread_dword(at));
            out->i[r] = _mm512_dpbusd_epi32(out->i[r], hi, spread_dword(at + 16));
        }
    }
}

INLINE void tile_q4_0(const uint8_t *w, const uint8_t *head, const struct rows *x, uint32_t b, const int n,
                      struct tile *out)
{
    out->d = half_words(head);
    start_simple(x, b, n, out, 8);
    nibbles(w, x, b, n, out, NULL, NULL);
}

/* Heads of pairs d, m. Each row's sum of x is multiplied by m. */
INLINE void minima_of_pairs(const uint8_t *head, const struct rows *x, uint32_t b, const int n, struct tile *out)
{
    const __m512i pairs = dword(head, 0);
    out->d = widen_low_halves(pairs);
    out->m = widen_low_halves(_mm512_srli_epi32(pairs, 16));
    for (int r = 0; r < n; r++) {
        out->i[r] = _mm512_setzero_si512();
        out->j[r] = spread_dword(x->x[r] + x->at.sums_at + 4 * (size_t)b);
    }
}

INLINE void tile_q4_1(const uint8_t *w, const uint8_t *head, const struct rows *x, uint32_t b, const int n,
                      struct tile *out)
{
    minima_of_pairs(head, x, b, n, out);
    nibbles(w, x, b, n, out, NULL, NULL);
}

INLINE void tile_q5_0(const uint8_t *w, const uint8_t *head, const struct rows *x, uint32_t b, const int n,
                      struct tile *out)
{
    out->d = half_words(head);
    start_simple(x, b, n, out, 16);
    nibbles(w, x, b, n, out, NULL, head + ntx__fifth_at(sizeof(struct ntx_block_q5_0)));
}

INLINE void tile_q5_1(const uint8_t *w, const uint8_t *head, const struct rows *x, uint32_t b, const int n,
                      struct tile *out)
{
    minima_of_pairs(head, x, b, n, out);
    nibbles(w, x, b, n, out, NULL, head + ntx__fifth_at(sizeof(struct ntx_block_q5_1)));
}

#define SCALES_half(head) half_words(head)
#define SCALES_e8m0(head) widen_exponents(load128(head))
#define TILE_LOOKUP(TYPE, type, scale, raise)                                                                          \
    INLINE void tile_##type(const uint8_t *w, const uint8_t *head, const struct rows *x, uint32_t b, const int n,      \
                            struct tile *out)                                                                          \
    {                                                                                                                  \
        const __m512i values = raised_##type();                                                                        \
        out->d = SCALES_##scale(head);                                                                                 \
        start_simple(x, b, n, out, 1 << raise);                                                                        \
        nibbles(w, x, b, n, out, &values, NULL);                                                                       \
    }
NTX_LOOKUPS(TILE_LOOKUP)

INLINE void tile_q8_0(const uint8_t *w, const uint8_t *head, const struct rows *x, uint32_t b, const int n,
                      struct tile *out)
{
    out->d = half_words(head);
    start_simple(x, b, n, out, 128);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        __m512i v = _mm512_xor_si512(dword(w, k), bytes512((char)0x80));
#pragma GCC unroll 8
        for (int r = 0; r < n; r++)
            out->i[r] = _mm512_dpbusd_epi32(out->i[r], v, spread_dword(x->x[r] + (size_t)b * NTX_QK + 4 * (size_t)k));
    }
}

/* ---- the common part ---- */

/* Prefetches a tile's share of the bytes FAR ahead, up to the end of all weights; bytes after these may be unused. */
INLINE void fetch_far(const uint8_t *w, size_t bytes, const uint8_t *end, const enum fetch fetch)
{
    if (FAR >= end - w)
        return;
    if (fetch != FETCHED_TO_FIRST)
        prefetch_second(w + FAR, bytes, end);
    else
        prefetch_weights(w, bytes < (size_t)(end - w) - FAR ? bytes : (size_t)(end - w) - FAR, FAR, REACH_NEAR);
}

/* fetch: the cache level on AMD. */
INLINE void fetch_tile(const uint8_t *w, size_t bytes, const uint8_t *end, const int n, const enum fetch fetch)
{
    if (!ntx__cpu_fetch_far) {
        prefetch_weights(w, bytes, NEAR, REACH_NEAR);
        if (n == 1)
            fetch_far(w, bytes, end, FETCHED_TO_SECOND);
    } else if (n > 1 || (fetch != NOT_FETCHED && !ntx__cpu_follows)) {
        fetch_far(w, bytes, end, fetch);
    }
}

/* n rows times the `blocks` tiles of a slice; end: end of the weights. */
INLINE void multiply_slice(const uint8_t *w, const uint8_t *end, uint32_t blocks, const struct rows *x, const int n,
                           float *y, size_t ldy, const size_t block_bytes, const enum minima minima,
                           const enum fetch fetch, tile_fn *tile)
{
    float tree[TREE_LEVELS][ROWS][OUTS] __attribute__((aligned(64)));
    uint32_t turns_log2;
    for (uint32_t turn = 0, place = 0; turn < LANES; turn += 1u << turns_log2) {
        __m512 v[ROWS];
        for (int r = 0; r < n; r++)
            v[r] = _mm512_setzero_ps();
        for (uint32_t b = ntx__lane_order[turn]; b < blocks; b += LANES, place++) {
            struct ntx__tile_at p = ntx__tile_at(blocks, place, block_bytes);
            struct tile k;
            fetch_tile(w + p.words, OUTS * block_bytes, end, n, fetch);
            tile(w + p.words, w + p.head, x, b, n, &k);
            for (int r = 0; r < n; r++) {
                __m512 dx = _mm512_castsi512_ps(spread_dword(x->x[r] + x->at.d_at + 4 * (size_t)b));
                v[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(k.i[r]), _mm512_mul_ps(k.d, dx), v[r]);
                if (minima == ADDED)
                    v[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(k.j[r]), _mm512_mul_ps(k.m, dx), v[r]);
                if (minima == TAKEN)
                    v[r] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(k.j[r]), _mm512_mul_ps(k.m, dx), v[r]);
            }
        }
        uint32_t level = turns_log2 = ntx__turns_log2(blocks, turn);
        for (int r = 0; r < n && level; r++)
            v[r] = _mm512_add_ps(v[r], _mm512_setzero_ps());
        for (; turn >> level & 1; level++)
            for (int r = 0; r < n; r++)
                v[r] = _mm512_add_ps(_mm512_load_ps(tree[level][r]), v[r]);
        for (int r = 0; r < n; r++)
            _mm512_storeu_ps(level < TREE_LEVELS ? tree[level][r] : y + (size_t)r * ldy, v[r]);
    }
}

struct turn {
    struct rows x;
    const uint8_t *w, *end; /* end: of all slices */
    uint32_t blocks;
    float *y;
    size_t ldy;
};

typedef void turn_fn(const struct turn *t);

/* Multiplies each slice by any number of rows, four at a time and the rest. by_rows: kernels for 1, 2 and 4 rows. */
static void all_slices(const struct shape *s, uint32_t n_rows, struct turn *t, turn_fn *const by_rows[3])
{
    t->end = s->end;
    if (reach_for((int)n_rows) != REACH_NEAR)
        prefetch_second(s->w, FAR, t->end);
    for (uint32_t o = 0; o < s->n_out; o += OUTS) {
        t->w = s->w + o * s->row_bytes;
        for (uint32_t r = 0; r < n_rows;) {
            const unsigned few = n_rows - r >= 2 ? 1 : 0, log2 = n_rows - r >= 4 ? 2 : few;
            for (uint32_t k = 0; k < 1u << log2; k++)
                t->x.x[k] = s->x + (r + k) * s->x_stride;
            t->y = s->y + r * s->ldy + o;
            by_rows[log2](t);
            r += 1u << log2;
        }
    }
}

/* how: the block's type, or a variant that needs more of the processor. */
#define INTERLEAVED_ROWS(type, how, wants, n, minima, fetch)                                                           \
    static __attribute__((noinline)) wants void rows##n##_##how(const struct turn *t)                                  \
    {                                                                                                                  \
        multiply_slice(t->w, t->end, t->blocks, &t->x, n, t->y, t->ldy, sizeof(struct ntx_block_##type), minima,       \
                       fetch, tile_##how);                                                                             \
    }

#define INTERLEAVED_TURNS(type, how, wants, minima, fetch)                                                             \
    INTERLEAVED_ROWS(type, how, wants, 1, minima, fetch)                                                               \
    INTERLEAVED_ROWS(type, how, wants, 2, minima, fetch)                                                               \
    INTERLEAVED_ROWS(type, how, wants, 4, minima, fetch)                                                               \
    static turn_fn *const by_rows_##how[] = {rows1_##how, rows2_##how, rows4_##how};

#define INTERLEAVED_MATMUL(type, super, sums32, by_rows)                                                               \
    DECLARE_MATMUL(ntx__interleaved_##type)                                                                            \
    {                                                                                                                  \
        const struct shape s = {                                                                                       \
            w, x, y, row_bytes, x_stride, ldy, n_out, n_in, (const uint8_t *)w + n_out * row_bytes};                   \
        struct turn t = {                                                                                              \
            .blocks = n_in / (super ? NTX_QKK : NTX_QK), .ldy = ldy, .x.at = x_parts_of(x, n_in, super, sums32)};      \
        all_slices(&s, n_rows, &t, by_rows);                                                                           \
    }

#define INTERLEAVED(type, super, sums32, minima, fetch)                                                                \
    INTERLEAVED_TURNS(type, type, , minima, fetch)                                                                     \
    INTERLEAVED_MATMUL(type, super, sums32, by_rows_##type)

/* As measured: hardware prefetchers follow simple blocks well (Q8_0 loses a sixth by software prefetches). They do not
 * follow the scales before each super-block's values, except on Zen 4. */
INTERLEAVED(q4_0, false, false, NO_MINIMA, NOT_FETCHED)
INTERLEAVED(q4_1, false, false, ADDED, NOT_FETCHED)
INTERLEAVED(q5_0, false, false, NO_MINIMA, NOT_FETCHED)
INTERLEAVED(q5_1, false, false, ADDED, NOT_FETCHED)
INTERLEAVED(q8_0, false, false, NO_MINIMA, NOT_FETCHED)
#define INTERLEAVED_LOOKUP(TYPE, type, scale, raise) INTERLEAVED(type, false, false, NO_MINIMA, NOT_FETCHED)
NTX_LOOKUPS(INTERLEAVED_LOOKUP)
INTERLEAVED(q4_k, true, true, TAKEN, FETCHED_TO_SECOND)
INTERLEAVED(q5_k, true, true, TAKEN, FETCHED_TO_SECOND)
INTERLEAVED(q6_k, true, false, NO_MINIMA, FETCHED_TO_FIRST)
INTERLEAVED_TURNS(iq4_xs, iq4_xs, , NO_MINIMA, FETCHED_TO_SECOND)
INTERLEAVED_TURNS(iq4_xs, iq4_xs_across, VBMI, NO_MINIMA, FETCHED_TO_SECOND)
INTERLEAVED_MATMUL(iq4_xs, true, false, ntx__cpu_permutes_bytes ? by_rows_iq4_xs_across : by_rows_iq4_xs)

/* ---- interleaving ---- */

/* Interleaves a slice in place. */
INLINE void interleave(uint8_t *to, size_t row_bytes, uint8_t *scratch, const struct ntx__interleave_pattern *p)
{
    const uint32_t blocks = (uint32_t)(row_bytes / p->block_bytes);
    memcpy(scratch, to, OUTS * row_bytes);
    for (uint32_t turn = 0, place = 0; turn < LANES; turn++)
        for (uint32_t b = ntx__lane_order[turn]; b < blocks; b += LANES, place++) {
            struct ntx__tile_at at = ntx__tile_at(blocks, place, p->block_bytes);
            const uint8_t *w[OUTS];
            for (size_t o = 0; o < OUTS; o++)
                w[o] = scratch + o * row_bytes + b * p->block_bytes;
            for (size_t k = 0; k < p->block_bytes / 16; k++) {
                __m512i v[4];
                transpose16(w, ntx__behind_head(p) + 16 * (p->order ? p->order[k] : k), v);
                for (size_t i = 0; i < 4; i++)
                    _mm512_storeu_si512(to + at.words + 64 * (4 * k + i), v[i]);
            }
            for (size_t o = 0; p->head_at >= 0 && o < OUTS; o++)
                ntx__place_head(p, w[o] + p->head_at, o, to + at.head);
        }
}

#define INTERLEAVE(TYPE, type, ...)                                                                                    \
    void ntx__interleave_##type(void *slice, size_t row_bytes, void *scratch)                                          \
    {                                                                                                                  \
        interleave(slice, row_bytes, scratch, &ntx__pattern_##type);                                                   \
    }
INTERLEAVED_TYPES(INTERLEAVE)
