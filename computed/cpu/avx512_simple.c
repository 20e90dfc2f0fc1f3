/* SPDX-License-Identifier: Apache-2.0 */
/* avx512_simple.c: products with blocks of 32 (Q4_0 Q4_1 Q5_0 Q5_1 Q8_0, NTX_LOOKUPS) or of several 32s that share a
 * head (Q1_0 Q2_0 NVFP4), one to four rows of x at a time.
 *
 * Two 32s fill a register as unsigned bytes; an offset of 1, 8, 16 or 128 is corrected by the sum of x. Products of
 * sixteen 32s are moved to one lane each by a tree of shuffles. If the last run is not complete, the row's last block
 * is repeated; x is zero there and the lanes are masked. So nothing after the weights is read. */
#include "computed/cpu/avx512.h"

/* Two 32s as unsigned bytes in natural order: of the blocks at w and next, or, in types with several 32s per block,
 * the part-th of w and the next one. */
typedef __m512i pair_fn(const uint8_t *w, const uint8_t *next, uint32_t part);

enum scales { HALF_WORD, EXPONENT /* a byte */, TWO_E4M3 /* bytes, of 16 values each */ };

struct kind {
    size_t block_bytes;
    uint32_t parts; /* of a block: 1, 2 or 4 */
    pair_fn *pair;
    enum scales scales;
    int log2_offset; /* what was added to each integer; -1: nothing, the type has a minimum at byte 2 */
};

INLINE __m512i low_and_high(__m512i v)
{
    return _mm512_and_si512(_mm512_srlv_epi64(v, _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0)), _mm512_set1_epi8(15));
}

/* Low nibbles before high ones. */
INLINE __m512i nibbles(const uint8_t *qs, const uint8_t *next)
{
    __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)qs));
    return low_and_high(_mm512_mask_broadcast_i32x4(v, 0xff00, _mm_loadu_si128((const void *)next)));
}

/* The same with a fifth bit each, from the four bytes before. */
INLINE __m512i fives(const uint8_t *qs, const uint8_t *next)
{
    uint32_t fifth[2];
    memcpy(&fifth[0], qs - 4, 4);
    memcpy(&fifth[1], next - 4, 4);
    __m512i v = nibbles(qs, next);
    return _mm512_mask_add_epi8(v, _cvtu64_mask64(fifth[0] | (uint64_t)fifth[1] << 32), v, _mm512_set1_epi8(16));
}

INLINE __m512i pair_q4_0(const uint8_t *w, const uint8_t *next, uint32_t part)
{
    (void)part;
    return nibbles(w + 2, next + 2);
}
INLINE __m512i pair_q4_1(const uint8_t *w, const uint8_t *next, uint32_t part)
{
    (void)part;
    return nibbles(w + 4, next + 4);
}
INLINE __m512i pair_q5_0(const uint8_t *w, const uint8_t *next, uint32_t part)
{
    (void)part;
    return fives(w + 6, next + 6);
}
INLINE __m512i pair_q5_1(const uint8_t *w, const uint8_t *next, uint32_t part)
{
    (void)part;
    return fives(w + 8, next + 8);
}

INLINE __m512i pair_q8_0(const uint8_t *w, const uint8_t *next, uint32_t part)
{
    (void)part;
    __m512i v = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(w + 2)));
    return _mm512_xor_si512(_mm512_inserti64x4(v, _mm256_loadu_si256((const void *)(next + 2)), 1),
                            _mm512_set1_epi8((char)0x80));
}

#define PAIR_LOOKUP(TYPE, type, scale, raise)                                                                          \
    INLINE __m512i pair_##type(const uint8_t *w, const uint8_t *next, uint32_t part)                                   \
    {                                                                                                                  \
        (void)part;                                                                                                    \
        const size_t at = offsetof(struct ntx_block_##type, qs);                                                       \
        return _mm512_shuffle_epi8(raised_##type(), nibbles(w + at, next + at));                                       \
    }
NTX_LOOKUPS(PAIR_LOOKUP)

INLINE __m512i pair_q1_0(const uint8_t *w, const uint8_t *next, uint32_t part)
{
    (void)next;
    uint64_t bits;
    memcpy(&bits, w + 2 + 4 * part, 8);
    return _mm512_maskz_set1_epi8(_cvtu64_mask64(bits), 2);
}

/* A byte has four values; it becomes their dword. */
INLINE __m512i pair_q2_0(const uint8_t *w, const uint8_t *next, uint32_t part)
{
    (void)next;
    __m512i v = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(w + 2 + 8 * part)));
    v = _mm512_or_si512(_mm512_or_si512(v, _mm512_slli_epi32(v, 6)),
                        _mm512_or_si512(_mm512_slli_epi32(v, 12), _mm512_slli_epi32(v, 18)));
    return _mm512_and_si512(v, _mm512_set1_epi8(3));
}

/* Each 16 values have eight bytes: low nibbles, then high ones. */
INLINE __m512i pair_nvfp4(const uint8_t *w, const uint8_t *next, uint32_t part)
{
    (void)next;
    __m512i v = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(w + 4 + 16 * part)));
    v = _mm512_permutexvar_epi64(_mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0), v);
    v = _mm512_and_si512(_mm512_srlv_epi64(v, _mm512_set_epi64(4, 0, 4, 0, 4, 0, 4, 0)), _mm512_set1_epi8(15));
    return _mm512_shuffle_epi8(raised_mxfp4(), v);
}

/* A run of 16 times 32 values. */
struct run {
    const uint8_t *w; /* the first block */
    const struct kind *kind;
    uint32_t last; /* number of the last 32 that exists, counted from w; 15 or more: all exist */
};

INLINE uint32_t run_number(const struct run *g, uint32_t k, const bool full)
{
    return full || k <= g->last ? k : g->last;
}

INLINE const uint8_t *run_at(const struct run *g, uint32_t k, const bool full)
{
    return g->w + run_number(g, k, full) / g->kind->parts * g->kind->block_bytes;
}

/* 64 products in sums of four: each 128-bit lane has those of 16 values. If each 16 values have a scale, the offset is
 * corrected here. */
INLINE __m512i pair_dot(const struct kind *kind, __m512i v, const int8_t *x)
{
    __m512i q = _mm512_loadu_si512(x), z = _mm512_dpbusd_epi32(_mm512_setzero_si512(), v, q);
    if (kind->scales != TWO_E4M3)
        return z;
    return _mm512_sub_epi32(
        z, _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8((char)(1 << kind->log2_offset)), q));
}

/* The k-th and the next 32 of a run, k even. */
INLINE __m512i run_pair(const struct run *g, uint32_t k, const bool full)
{
    if (g->kind->parts == 1)
        return g->kind->pair(run_at(g, k, full), run_at(g, k + 1, full), 0);
    if (!full && k > g->last)
        k = g->last - 1;
    return g->kind->pair(run_at(g, k, true), NULL, k % g->kind->parts);
}

/* Integer products of a run, a lane per 32. TWO_E4M3: `out` for the first 16 of each 32, `second` for the others. */
INLINE void run_dots(const struct run *g, const int8_t *const *x, const int rows, const bool full, __m512i *out,
                     __m512i *second)
{
    /* order of eight 32s: (0 2 4 6)'s first halves, their second ones, (1 3 5 7)'s first and second ones */
    const __m512i natural = _mm512_set_epi32(15, 11, 14, 10, 13, 9, 12, 8, 7, 3, 6, 2, 5, 1, 4, 0);
    __m512i eight[4][2];
    for (uint32_t h = 0; h < 2; h++) {
        __m512i z[4][4];
        for (uint32_t i = 0; i < 4; i++) {
            if (!full && 8 * h + 2 * i > g->last) { /* its lanes are masked */
                for (int r = 0; r < rows; r++)
                    z[r][i] = _mm512_setzero_si512();
                continue;
            }
            __m512i v = run_pair(g, 8 * h + 2 * i, full);
            for (int r = 0; r < rows; r++)
                z[r][i] = pair_dot(g->kind, v, x[r] + 32 * (8 * h + 2 * i));
        }
        for (int r = 0; r < rows; r++)
            eight[r][h] = sum4x4(z[r][0], z[r][1], z[r][2], z[r][3]);
    }
    for (int r = 0; r < rows; r++) {
        __m512i low = _mm512_shuffle_i32x4(eight[r][0], eight[r][1], 0x88),
                high = _mm512_shuffle_i32x4(eight[r][0], eight[r][1], 0xdd);
        if (g->kind->scales != TWO_E4M3) {
            out[r] = _mm512_permutexvar_epi32(natural, _mm512_add_epi32(low, high));
            continue;
        }
        out[r] = _mm512_permutexvar_epi32(natural, low);
        second[r] = _mm512_permutexvar_epi32(natural, high);
    }
}

/* 64 bytes at w, of which `left` exist; the others are 0. */
INLINE __m512i load_left(const uint8_t *w, size_t left)
{
    return _mm512_maskz_loadu_epi8(left < 64 ? (1ull << left) - 1 : ~0ull, w);
}

/* Heads of 16 adjacent blocks of `words` half words, four at a time from one register or two: 16 small loads, and a
 * wide load after them, would cost more than all the rest. full: all blocks exist; otherwise `bytes` of them do. */
INLINE __m512i heads_of_words(const uint8_t *w, const int words, const bool full, size_t bytes)
{
    const __m512i at = _mm512_set4_epi32(3 * words | (3 * words + 1) << 16, 2 * words | (2 * words + 1) << 16,
                                         words | (words + 1) << 16, 1 << 16);
    const size_t four = 8 * (size_t)words; /* blocks, in bytes */
    const bool two = 3 * words + 1 >= 32;  /* registers */
    __m512i heads = _mm512_setzero_si512();
    for (size_t k = 0; k < 4 && (full || k * four < bytes); k++) {
        const uint8_t *p = w + k * four;
        const size_t left = full ? SIZE_MAX : bytes - k * four;
        const __mmask32 lanes = (__mmask32)0xff << 8 * k;
        __m512i low = full ? _mm512_loadu_si512(p) : load_left(p, left), high = _mm512_setzero_si512();
        if (two && left > 64)
            high = full ? _mm512_loadu_si512(p + 64) : load_left(p + 64, left - 64);
        heads = _mm512_or_si512(heads, two ? _mm512_maskz_permutex2var_epi16(lanes, low, at, high)
                                           : _mm512_maskz_permutexvar_epi16(lanes, at, low));
    }
    return heads;
}

/* The first dwords of the blocks: d, and m above it in types that have one. */
INLINE __m512i run_heads(const struct run *g, const bool full)
{
    uint32_t h[16] __attribute__((aligned(64)));
    const size_t bytes = g->kind->block_bytes;
    if (g->kind->parts == 1 && (bytes == 18 || bytes == 20 || bytes == 34))
        return heads_of_words(g->w, (int)bytes / 2, full, (g->last + 1) * bytes);
    for (uint32_t k = 0; k < 16; k++)
        memcpy(&h[k], run_at(g, k, full), 4);
    return _mm512_load_si512(h);
}

/* The first bytes of 16 blocks of 17 bytes: block k's is byte k of the k-th 16 bytes. */
INLINE __m128i run_exponents(const struct run *g, const bool full)
{
    const __mmask64 first = 1 | 1ull << 17 | 1ull << 34 | 1ull << 51;
    __m512i v = _mm512_setzero_si512();
    for (uint32_t k = 0; k < 4; k++) { /* an incomplete run: only bytes that exist */
        uint64_t left = 17 * (uint64_t)g->last + 1 - 64 * k,
                 there = full || left - 1 >= 63 ? ~0ull : (1ull << left) - 1;
        if (full || 64 * k <= 17 * g->last)
            v = _mm512_mask_loadu_epi8(v, first << 4 * k & there, g->w + 64 * k);
    }
    __m256i half = _mm256_or_si256(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    return _mm_or_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* The scales of a run: d and m, or the scales of the first and second 16 values. */
INLINE void run_scales(const struct run *g, const bool full, __m512 *d, __m512 *m)
{
    if (g->kind->scales == EXPONENT) {
        *d = *m = widen_exponents(run_exponents(g, full));
        return;
    }
    if (g->kind->scales == HALF_WORD) {
        __m512i heads = run_heads(g, full);
        *d = widen_low_halves(heads);
        *m = widen_low_halves(_mm512_srli_epi32(heads, 16));
        return;
    }
    uint32_t pairs[16] __attribute__((aligned(64))) = {0};
    for (uint32_t k = 0; k < 16; k++)
        memcpy(&pairs[k], run_at(g, k, full) + run_number(g, k, full) % g->kind->parts * 2, 2);
    __m512i v = _mm512_load_si512(pairs);
    *d = widen_e4m3(_mm512_and_si512(v, _mm512_set1_epi32(255)));
    *m = widen_e4m3(_mm512_srli_epi32(v, 8));
}

INLINE void dot_run(const struct run *g, const struct q8_row *x, uint32_t b, const int rows, const bool full,
                    __m512 *acc)
{
    const struct kind *kind = g->kind;
    const int8_t *q[4];
    __m512i i[4], second[4];
    __m512 d, m;
    __mmask16 live = full ? 0xffff : first_lanes(g->last + 1);
    run_scales(g, full, &d, &m);
    for (int r = 0; r < rows; r++)
        q[r] = x[r].q + (size_t)b * NTX_QK;
    run_dots(g, q, rows, full, i, second);
    for (int r = 0; r < rows; r++) {
        __m512 dx = _mm512_loadu_ps(x[r].d + b);
        __m512i s = _mm512_loadu_si512(x[r].s + b);
        if (kind->scales != TWO_E4M3 && kind->log2_offset >= 0)
            i[r] = _mm512_sub_epi32(i[r], _mm512_slli_epi32(s, (unsigned)kind->log2_offset));
        acc[r] = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(i[r]), _mm512_mul_ps(d, dx), acc[r], live);
        if (kind->scales == TWO_E4M3)
            acc[r] = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(second[r]), _mm512_mul_ps(m, dx), acc[r], live);
        else if (kind->log2_offset < 0)
            acc[r] = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(s), _mm512_mul_ps(m, dx), acc[r], live);
    }
}

/* One output for `rows` rows of x; nb: blocks of 32 values. */
INLINE void dot_blocks(const uint8_t *w, const uint8_t *end, uint32_t nb, const struct q8_row *x, const int rows,
                       const struct kind *kind, __m512 *acc)
{
    struct run g = {.w = w, .kind = kind, .last = LANES - 1};
    const size_t run_bytes = LANES / kind->parts * kind->block_bytes;
    const enum reach reach = reach_for(rows);
    uint32_t b = 0;
    for (int r = 0; r < rows; r++)
        acc[r] = _mm512_setzero_ps();
    for (; b + LANES <= nb; b += LANES, g.w += run_bytes) {
        prefetch_next(g.w, run_bytes, 3584, reach, end);
        dot_run(&g, x, b, rows, true, acc);
    }
    if (b == nb)
        return;
    g.last = nb - b - 1;
    prefetch_next(g.w, (nb - b) / kind->parts * kind->block_bytes, 3584, reach, end);
    dot_run(&g, x, b, rows, false, acc);
}

INLINE void simple_rows(const struct shape *s, uint32_t r, const int rows, const struct kind *kind)
{
    struct q8_row x[4];
    for (int k = 0; k < rows; k++)
        x[k] = q8_view(s->x + (r + (size_t)k) * s->x_stride, s->n_in);
    for (uint32_t o = 0; o < s->n_out; o++) {
        __m512 acc[4];
        dot_blocks(s->w + o * s->row_bytes, s->end, s->n_in / NTX_QK, x, rows, kind, acc);
        for (int k = 0; k < rows; k++)
            s->y[(r + (size_t)k) * s->ldy + o] = join_ps(acc[k]);
    }
}

#define SIMPLE_ROWS(type, k, parts, scales, log2_offset)                                                               \
    static void rows##k##_##type(const struct shape *s, uint32_t r)                                                    \
    {                                                                                                                  \
        const struct kind kind = {sizeof(struct ntx_block_##type), parts, pair_##type, scales, log2_offset};           \
        simple_rows(s, r, k, &kind);                                                                                   \
    }
#define SIMPLE_MATMUL(type, parts, scales, log2_offset)                                                                \
    SIMPLE_ROWS(type, 1, parts, scales, log2_offset)                                                                   \
    SIMPLE_ROWS(type, 2, parts, scales, log2_offset)                                                                   \
    SIMPLE_ROWS(type, 4, parts, scales, log2_offset)                                                                   \
    MATMUL_BY_ROWS(type)

SIMPLE_MATMUL(q4_0, 1, HALF_WORD, 3)
SIMPLE_MATMUL(q4_1, 1, HALF_WORD, -1)
SIMPLE_MATMUL(q5_0, 1, HALF_WORD, 4)
SIMPLE_MATMUL(q5_1, 1, HALF_WORD, -1)
SIMPLE_MATMUL(q8_0, 1, HALF_WORD, 7)
SIMPLE_MATMUL(q1_0, 4, HALF_WORD, 0)
SIMPLE_MATMUL(q2_0, 2, HALF_WORD, 0)
SIMPLE_MATMUL(nvfp4, 2, TWO_E4M3, 4)
#define SCALES_OF_half                          HALF_WORD
#define SCALES_OF_e8m0                          EXPONENT
#define MATMUL_LOOKUP(TYPE, type, scale, raise) SIMPLE_MATMUL(type, 1, SCALES_OF_##scale, raise)
NTX_LOOKUPS(MATMUL_LOOKUP)
