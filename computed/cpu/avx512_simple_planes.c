/* SPDX-License-Identifier: Apache-2.0 */
/* avx512_simple_planes.c: products with Q5_0 and Q8_0 in high and low bits (model/planes.h), one to four rows of x at a
 * time. A register has a part of eight blocks, or of four: as many as a register of low bits has, which lie side by
 * side. So 64 values are joined by two steps, but they are of several blocks. x is brought into their order once a
 * call. Integer sums of a block are exact, so the bits are those of the whole type.
 *
 * If the last run of 16 blocks is not complete, loads are masked and lanes without a block are dropped. So nothing
 * after the weights is read. */
#include "computed/cpu/avx512_bits.h"
#include "computed/cpu/avx512_planes.h"
#include "computed/cpu/simple_planes.h"

/* Sums of a run's blocks for each row of x, a lane a block, and heads whose low halves are d. full: n is 16. */
typedef void run_fn(const struct run *g, const struct turned_row *x, const int rows, const bool full, __m512i *out,
                    __m512i *heads);
/* Brings 256 values of x into order. */
typedef void turn_fn(const int8_t *q, int8_t *to);

struct kind {
    run_fn *run;
    turn_fn *turn;
    unsigned log2_offset; /* of the integers */
    const struct split *split;
};

/* 64 bytes at p + at, of which those behind `bytes` do not exist. */
INLINE __m512i load_at(const uint8_t *p, size_t at, size_t bytes, const bool full)
{
    const size_t left = bytes > at ? bytes - at : 0;
    const __mmask64 there = left < 64 ? (1ull << left) - 1 : ~0ull;
    if (full)
        return _mm512_loadu_si512(p + at);
    return _mm512_maskz_loadu_epi8(there, left ? p + at : p);
}

/* Index for two registers of half words, the second of which begins at half word `second`: of each of up to eight
 * blocks of `words`, `of` half words from the first-th on. */
#define WORD_AT(i, words, first, of) ((i) / (of) % 8 * (words) + (first) + (i) % (of))
#define WORD(i, words, first, of, second)                                                                              \
    (short)(WORD_AT(i, words, first, of) < 32 ? WORD_AT(i, words, first, of)                                           \
                                              : WORD_AT(i, words, first, of) - (second) + 32)
#define WORDS_8(i, ...)                                                                                                \
    WORD((i) + 7, __VA_ARGS__), WORD((i) + 6, __VA_ARGS__), WORD((i) + 5, __VA_ARGS__), WORD((i) + 4, __VA_ARGS__),    \
        WORD((i) + 3, __VA_ARGS__), WORD((i) + 2, __VA_ARGS__), WORD((i) + 1, __VA_ARGS__), WORD(i, __VA_ARGS__)
#define WORDS(...)                                                                                                     \
    _mm512_set_epi16(WORDS_8(24, __VA_ARGS__), WORDS_8(16, __VA_ARGS__), WORDS_8(8, __VA_ARGS__),                      \
                     WORDS_8(0, __VA_ARGS__))

/* ---- Q8_0: four blocks of d and 16 bytes, whose values 0 to 15 are one register, and the others the next */

INLINE void turn_q8_0(const int8_t *q, int8_t *to)
{
    for (size_t at = 0; at < 256; at += 128) {
        const __m512i a = _mm512_loadu_si512(q + at), b = _mm512_loadu_si512(q + at + 64);
        _mm512_storeu_si512(to + at, _mm512_shuffle_i32x4(a, b, 0x88));
        _mm512_storeu_si512(to + at + 64, _mm512_shuffle_i32x4(a, b, 0xdd));
    }
}

INLINE void run_q8_0(const struct run *g, const struct turned_row *x, const int rows, const bool full, __m512i *out,
                     __m512i *heads)
{
    const __m512i bits = WORDS(9, 1, 8, 4), d = _mm512_set4_epi32(27, 18, 9, 0);
    __m512i z[4][4];
    *heads = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; k++) {
        const size_t at = 4 * Q8_HIGH * k, bytes = g->n * Q8_HIGH;
        const __m512i a = load_at(g->high, at, bytes, full), b = load_at(g->high, at + 8, bytes, full),
                      /* with the signs turned, values are 128 too large and have no sign */
            h = _mm512_xor_si512(_mm512_permutex2var_epi16(a, bits, b), bytes512(0x88)),
                      l = g->low ? load_at(g->low, 64 * k, g->n * Q8_LOW, full) : _mm512_setzero_si512(),
                      first = select_bits(0xf0, _mm512_slli_epi16(h, 4), l),
                      second = select_bits(0xf0, h, _mm512_srli_epi16(l, 4));
        *heads = _mm512_or_si512(*heads, _mm512_maskz_permutexvar_epi16((__mmask32)0xff << 8 * k, d, a));
        for (int r = 0; r < rows; r++) {
            const __m512i s = _mm512_dpbusd_epi32(_mm512_setzero_si512(), first, _mm512_loadu_si512(x[r].q + 128 * k));
            z[r][k] = _mm512_dpbusd_epi32(s, second, _mm512_loadu_si512(x[r].q + 128 * k + 64));
        }
    }
    const __m512i natural = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    for (int r = 0; r < rows; r++)
        out[r] = _mm512_permutexvar_epi32(natural, sum4x4(z[r][0], z[r][1], z[r][2], z[r][3]));
}

/* ---- Q5_0: eight blocks of d, four bytes of fifth bits and eight of the two bits below these. A register has eight
 * values of each block. */

INLINE void turn_q5_0(const int8_t *q, int8_t *to)
{
    for (long long c = 0; c < 4; c++) {
        const __m512i at = _mm512_add_epi64(_mm512_set_epi64(12, 8, 4, 0, 12, 8, 4, 0), _mm512_set1_epi64(c)),
                      a = _mm512_permutex2var_epi64(_mm512_loadu_si512(q), at, _mm512_loadu_si512(q + 64)),
                      b = _mm512_permutex2var_epi64(_mm512_loadu_si512(q + 128), at, _mm512_loadu_si512(q + 192));
        _mm512_storeu_si512(to + 64 * c, _mm512_mask_blend_epi64(0xf0, a, b));
    }
}

INLINE void run_q5_0(const struct run *g, const struct turned_row *x, const int rows, const bool full, __m512i *out,
                     __m512i *heads)
{
    /* 112 bytes are 64 from the first on, and 64 up to the last: from word 24 on */
    const __m512i bits = WORDS(7, 3, 4, 24), fifth = WORDS(7, 1, 4, 24), d = WORDS(7, 0, 2, 24);
    const __m512i spread = _mm512_set4_epi32(0x08080808, 0x08080808, 0, 0),
                  one = _mm512_set1_epi64((long long)0x8040201008040201u);
    __m512i z[4][2];
    *heads = _mm512_setzero_si512();
#pragma GCC unroll 2
    for (uint32_t k = 0; k < 2; k++) {
        const size_t at = 8 * Q5_HIGH * k, bytes = g->n * Q5_HIGH;
        const __m512i a = load_at(g->high, at, bytes, full), b = load_at(g->high, at + 48, bytes, full),
                      h = _mm512_permutex2var_epi16(a, bits, b),
                      l = g->low ? load_at(g->low, 64 * k, g->n * Q5_LOW, full) : _mm512_setzero_si512(),
                      f = _mm512_permutex2var_epi16(a, fifth, b);
        const __m512i s[2] = {select_bits(0xcc, _mm512_slli_epi16(h, 2), l),
                              select_bits(0xcc, h, _mm512_srli_epi16(l, 2))};
        *heads = _mm512_or_si512(*heads, _mm512_maskz_permutex2var_epi16((__mmask32)0xffff << 16 * k, a, d, b));
        for (int r = 0; r < rows; r++)
            z[r][k] = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) { /* values 8 c to 8 c + 7 of each block */
            __m512i v = _mm512_and_si512(c < 2 ? s[c] : _mm512_srli_epi16(s[c - 2], 4), bytes512(15));
            v = _mm512_mask_add_epi8(
                v, _mm512_test_epi8_mask(_mm512_shuffle_epi8(f, _mm512_add_epi8(spread, bytes512(c))), one), v,
                bytes512(16));
            for (int r = 0; r < rows; r++)
                z[r][k] = _mm512_dpbusd_epi32(z[r][k], v, _mm512_loadu_si512(x[r].q + 256 * k + 64 * c));
        }
    }
    const __m512i natural = _mm512_set_epi32(15, 14, 11, 10, 7, 6, 3, 2, 13, 12, 9, 8, 5, 4, 1, 0);
    for (int r = 0; r < rows; r++) {
        const __m512 p = _mm512_castsi512_ps(z[r][0]), q = _mm512_castsi512_ps(z[r][1]);
        out[r] = _mm512_permutexvar_epi32(natural,
                                          _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(p, q, 0x88)),
                                                           _mm512_castps_si512(_mm512_shuffle_ps(p, q, 0xdd))));
    }
}

/* ---- the kernels */

INLINE void dot_run(const struct run *g, const struct turned_row *at, uint32_t b, const int rows, const bool full,
                    const struct kind *kind, __m512 *acc)
{
    struct turned_row x[4];
    __m512i i[4], heads;
    const __mmask16 live = full ? 0xffff : first_lanes(g->n);
    for (int r = 0; r < rows; r++)
        x[r].q = at[r].q + (size_t)b * NTX_QK;
    kind->run(g, x, rows, full, i, &heads);
    __m512 d = widen_low_halves(heads);
    if (!g->low)
        d = _mm512_mul_ps(d, _mm512_set1_ps(0.5f));
    for (int r = 0; r < rows; r++) {
        const __m512 dx = _mm512_loadu_ps(at[r].of.d + b);
        const __m512i s = _mm512_loadu_si512(at[r].of.s + b);
        i[r] = _mm512_sub_epi32(i[r], _mm512_slli_epi32(s, kind->log2_offset));
        if (!g->low)
            i[r] = to_middle(i[r], s, kind->split);
        acc[r] = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(i[r]), _mm512_mul_ps(d, dx), acc[r], live);
    }
}

INLINE void dot_parts(const struct parts *p, uint32_t nb, const struct turned_row *x, const int rows,
                      const struct kind *kind, __m512 *acc)
{
    struct run g = {p->high, p->low, LANES};
    for (int r = 0; r < rows; r++)
        acc[r] = _mm512_setzero_ps();
    uint32_t b = 0;
    for (; b + LANES <= nb; b += LANES) {
        prefetch_parts(p, b, LANES, rows);
        dot_run(&g, x, b, rows, true, kind, acc);
        g.high += LANES * p->split.high_bytes;
        if (g.low)
            g.low += LANES * p->split.low_bytes;
    }
    if (b == nb)
        return;
    g.n = nb - b;
    prefetch_parts(p, b, g.n, rows);
    dot_run(&g, x, b, rows, false, kind, acc);
}

INLINE void planes_rows(const struct planes_call *c, uint32_t r, const int rows, const struct split *split,
                        const struct kind *kind)
{
    _Alignas(64) int8_t turned[NTX_PLANES_IN];
    const uint32_t n_in = c->w->n_in, nb = n_in / NTX_QK, padded = round_up(n_in, LANES * NTX_QK);
    struct turned_row x[4];
    for (int k = 0; k < rows; k++) {
        int8_t *to = turned + (size_t)k * padded;
        x[k] = (struct turned_row){to, q8_view(c->x + (r + (size_t)k) * c->x_stride, n_in)};
        for (size_t at = 0; at < padded; at += 256)
            kind->turn(x[k].of.q + at, to + at);
    }
    for (uint32_t o = 0; o < c->w->n_out; o++) {
        const struct parts parts = parts_of(c, split, o, nb);
        __m512 acc[4];
        dot_parts(&parts, nb, x, rows, kind, acc);
        for (int k = 0; k < rows; k++)
            c->y[(r + (size_t)k) * c->ldy + o] = join_ps(acc[k]);
    }
}

#define SIMPLE_PLANES(type, offset)                                                                                    \
    INLINE void planes_rows_##type(const struct planes_call *c, uint32_t r, const int rows, const struct split *s)     \
    {                                                                                                                  \
        const struct kind kind = {run_##type, turn_##type, offset, s};                                                 \
        const bool fits = (uint32_t)rows * round_up(c->w->n_in, LANES * NTX_QK) <= NTX_PLANES_IN;                      \
        for (int k = 0; !fits && k < rows; k++)                                                                        \
            planes_rows(c, r + (uint32_t)k, 1, s, &kind);                                                              \
        if (fits)                                                                                                      \
            planes_rows(c, r, rows, s, &kind);                                                                         \
    }

SIMPLE_PLANES(q5_0, 4)
SIMPLE_PLANES(q8_0, 7)
PLANES_MATMUL(q5_0, 2, 16)
PLANES_MATMUL(q8_0, 4, 32)
