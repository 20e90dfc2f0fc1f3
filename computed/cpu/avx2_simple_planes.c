/* SPDX-License-Identifier: Apache-2.0 */
/* avx2_simple_planes.c: products with Q5_0 and Q8_0 in high and low bits (model/planes.h), one or two rows of x at a
 * time. A register has a part of four blocks, or of two: as many as a register of low bits has, which lie side by side.
 * So the steps that join serve all of these. x is brought into their order once a call. Integer sums of a block are
 * exact, so the bits are those of the whole type.
 *
 * If the last eight blocks are not complete, the row's last one is repeated; its lanes are dropped at the end. So
 * nothing after the weights is read. */
#include "computed/cpu/avx2.h"
#include "computed/cpu/avx2_planes.h"
#include "computed/cpu/simple_planes.h"

enum { AHEAD = 2048 }; /* bytes to fetch ahead of use */

/* Sums of a run's blocks for each row of x, a lane a block. full: n is 8. */
typedef void run_fn(const struct run *g, const struct turned_row *x, const int rows, const bool full, __m256i *out);
/* Brings 128 values of x into order. */
typedef void turn_fn(const int8_t *q, int8_t *to);

struct kind {
    run_fn *run;
    turn_fn *turn;
    size_t high_bytes; /* of a block */
    int log2_offset;   /* of the integers; 0: they are signed */
    const struct split *split;
};

/* Block k, or the last. */
INLINE size_t number(const struct run *g, uint32_t k, const bool full) { return full || k < g->n ? k : g->n - 1; }

INLINE __m256i two_lanes(const uint8_t *a, const uint8_t *b)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(a)), load128(b), 1);
}

INLINE __m128i two_words(const uint8_t *a, const uint8_t *b)
{
    return _mm_castpd_si128(
        _mm_loadh_pd(_mm_castsi128_pd(_mm_loadl_epi64((const void *)a)), (const double *)(const void *)b));
}

/* Eight bytes of each of four blocks from the k-th on. */
INLINE __m256i four_words(const struct run *g, const uint8_t *p, const size_t block_bytes, uint32_t k, const bool full)
{
    return _mm256_set_m128i(
        two_words(p + number(g, k + 2, full) * block_bytes, p + number(g, k + 3, full) * block_bytes),
        two_words(p + number(g, k, full) * block_bytes, p + number(g, k + 1, full) * block_bytes));
}

/* ---- Q8_0: two blocks of d and 16 bytes, whose values 0 to 15 are one register, and the others the next */

INLINE void turn_q8_0(const int8_t *q, int8_t *to)
{
    for (size_t at = 0; at < 128; at += 64) {
        const __m256i a = load256(q + at), b = load256(q + at + 32);
        _mm256_storeu_si256((void *)(to + at), _mm256_permute2x128_si256(a, b, 0x20));
        _mm256_storeu_si256((void *)(to + at + 32), _mm256_permute2x128_si256(a, b, 0x31));
    }
}

/* 32 products of signed values in 8 sums; 128 * 127 twice still fits an int16. */
INLINE __m256i signed_dot(__m256i size, __m256i w, const int8_t *x)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(size, _mm256_sign_epi8(load256(x), w)), _mm256_set1_epi16(1));
}

INLINE void run_q8_0(const struct run *g, const struct turned_row *x, const int rows, const bool full, __m256i *out)
{
    __m256i z[2][4];
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; k++) {
        const size_t a = number(g, 2 * k, full), b = number(g, 2 * k + 1, full);
        const __m256i h = two_lanes(g->high + a * Q8_HIGH + 2, g->high + b * Q8_HIGH + 2);
        __m256i l = _mm256_setzero_si256(), w[2], size[2];
        if (g->low)
            l = full ? load256(g->low + 32 * k) : two_lanes(g->low + a * Q8_LOW, g->low + b * Q8_LOW);
        select_two(0xf0, h, l, 4, &w[0], &w[1]);
        size[0] = _mm256_abs_epi8(w[0]);
        size[1] = _mm256_abs_epi8(w[1]);
        for (int r = 0; r < rows; r++)
            z[r][k] = _mm256_add_epi32(signed_dot(size[0], w[0], x[r].q + 64 * k),
                                       signed_dot(size[1], w[1], x[r].q + 64 * k + 32));
    }
    for (int r = 0; r < rows; r++)
        out[r] = _mm256_permutevar8x32_epi32(sum4x4(z[r]), _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
}

/* ---- Q5_0: four blocks of d, four bytes of fifth bits and eight of the two bits below these. A register has eight
 * values of each block. */

INLINE void turn_q5_0(const int8_t *q, int8_t *to)
{
    const __m256i a = load256(q), b = load256(q + 32), c = load256(q + 64), d = load256(q + 96),
                  ab = _mm256_unpacklo_epi64(a, b), cd = _mm256_unpacklo_epi64(c, d), /* words 0 and 2 */
        ab1 = _mm256_unpackhi_epi64(a, b), cd1 = _mm256_unpackhi_epi64(c, d);
    _mm256_storeu_si256((void *)to, _mm256_permute2x128_si256(ab, cd, 0x20));
    _mm256_storeu_si256((void *)(to + 32), _mm256_permute2x128_si256(ab1, cd1, 0x20));
    _mm256_storeu_si256((void *)(to + 64), _mm256_permute2x128_si256(ab, cd, 0x31));
    _mm256_storeu_si256((void *)(to + 96), _mm256_permute2x128_si256(ab1, cd1, 0x31));
}

INLINE void run_q5_0(const struct run *g, const struct turned_row *x, const int rows, const bool full, __m256i *out)
{
    const __m256i bits = _mm256_set1_epi64x((long long)0x8040201008040201u),
                  spread = _mm256_set_epi64x(0x0808080808080808, 0, 0x0808080808080808, 0);
    __m256i z[2][2];
#pragma GCC unroll 2
    for (uint32_t k = 0; k < 2; k++) {
        const __m256i h = four_words(g, g->high + 6, Q5_HIGH, 4 * k, full),
                      f = four_words(g, g->high + 2, Q5_HIGH, 4 * k, full);
        __m256i l = _mm256_setzero_si256(), s[2], pairs[2];
        if (g->low)
            l = full ? load256(g->low + 32 * k) : four_words(g, g->low, Q5_LOW, 4 * k, full);
        select_two(0xcc, h, l, 2, &s[0], &s[1]);
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) { /* values 8 c to 8 c + 7 of each block */
            const __m256i set = _mm256_shuffle_epi8(f, _mm256_add_epi8(spread, bytes256(c)));
            __m256i v = _mm256_and_si256(c < 2 ? s[c] : _mm256_srli_epi16(s[c - 2], 4), bytes256(15));
            v = _mm256_or_si256(v,
                                _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(set, bits), bits), bytes256(16)));
            for (int r = 0; r < rows; r++) { /* four sums of two products of 5 bits and 8 fit an int16 */
                const __m256i p = _mm256_maddubs_epi16(v, load256(x[r].q + 128 * k + 32 * c));
                pairs[r] = c ? _mm256_add_epi16(pairs[r], p) : p;
            }
        }
        for (int r = 0; r < rows; r++)
            z[r][k] = _mm256_madd_epi16(pairs[r], _mm256_set1_epi16(1));
    }
    for (int r = 0; r < rows; r++)
        out[r] = _mm256_permute4x64_epi64(_mm256_hadd_epi32(z[r][0], z[r][1]), 0xd8);
}

/* ---- the kernels */

INLINE void dot_run(const struct run *g, const struct turned_row *at, uint32_t b, const int rows, const bool full,
                    const struct kind *kind, __m256 *acc)
{
    struct turned_row x[2];
    __m256i i[2];
    uint32_t heads[8] __attribute__((aligned(32)));
    for (uint32_t k = 0; k < 8; k++)
        memcpy(&heads[k], g->high + number(g, k, full) * kind->high_bytes, 4);
    for (int r = 0; r < rows; r++)
        x[r].q = at[r].q + (size_t)b * NTX_QK;
    kind->run(g, x, rows, full, i);
    __m256 d = widen_low_halves(_mm256_load_si256((const void *)heads)), live = first_lanes(full ? 8 : g->n);
    if (!g->low)
        d = _mm256_mul_ps(d, _mm256_set1_ps(0.5f));
    for (int r = 0; r < rows; r++) {
        const __m256 dx = _mm256_loadu_ps(at[r].of.d + b);
        const __m256i s = load256(at[r].of.s + b);
        if (kind->log2_offset)
            i[r] = _mm256_sub_epi32(i[r], _mm256_slli_epi32(s, kind->log2_offset));
        if (!g->low)
            i[r] = to_middle(i[r], s, kind->split);
        acc[r] = fma_live(_mm256_cvtepi32_ps(i[r]), _mm256_mul_ps(d, dx), acc[r], live);
    }
}

INLINE void planes_rows(const struct shape *s, const struct low_rows *low, uint32_t row, const int rows,
                        const struct split *split, const struct kind *kind)
{
    _Alignas(32) int8_t turned[NTX_PLANES_IN];
    const uint32_t nb = s->n_in / NTX_QK, padded = round_up(s->n_in, LANES * NTX_QK);
    struct turned_row x[2];
    for (int r = 0; r < rows; r++) {
        int8_t *to = turned + (size_t)r * padded;
        x[r] = (struct turned_row){to, q8_view(s->x + (row + (size_t)r) * s->x_stride, s->n_in)};
        for (size_t at = 0; at < padded; at += 128)
            kind->turn(x[r].of.q + at, to + at);
    }
    for (uint32_t o = 0; o < s->n_out; o++) {
        struct run g = {s->w + o * s->row_bytes, split->low_bytes ? low->w + o * low->row_bytes : NULL, 8};
        __m256 acc[2][2];
        for (int r = 0; r < rows; r++)
            acc[0][r] = acc[1][r] = _mm256_setzero_ps();
        for (uint32_t b = 0; b < nb; b += 8) {
            prefetch_parts(g.high, g.low, 8, split, AHEAD);
            g.n = nb - b;
            if (g.n >= 8)
                dot_run(&g, x, b, rows, true, kind, acc[b / 8 % 2]);
            else
                dot_run(&g, x, b, rows, false, kind, acc[b / 8 % 2]);
            g.high += 8 * split->high_bytes;
            if (g.low)
                g.low += 8 * split->low_bytes;
        }
        for (int r = 0; r < rows; r++)
            s->y[(row + (size_t)r) * s->ldy + o] = join_halves(acc[0][r], acc[1][r]);
    }
}

#define SIMPLE_PLANES(type, offset, high_bytes)                                                                        \
    INLINE void planes_rows_##type(const struct shape *s, const struct low_rows *low, uint32_t r, const int rows,      \
                                   const struct split *split)                                                          \
    {                                                                                                                  \
        const struct kind kind = {run_##type, turn_##type, high_bytes, offset, split};                                 \
        const bool fits = (uint32_t)rows * round_up(s->n_in, LANES * NTX_QK) <= NTX_PLANES_IN;                         \
        for (int k = 0; !fits && k < rows; k++)                                                                        \
            planes_rows(s, low, r + (uint32_t)k, 1, split, &kind);                                                     \
        if (fits)                                                                                                      \
            planes_rows(s, low, r, rows, split, &kind);                                                                \
    }

SIMPLE_PLANES(q5_0, 4, Q5_HIGH)
SIMPLE_PLANES(q8_0, 0, Q8_HIGH)
PLANES_MATMUL(q5_0, 2, 16, NTX_QK)
PLANES_MATMUL(q8_0, 4, 32, NTX_QK)
