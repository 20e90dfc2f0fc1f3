/* SPDX-License-Identifier: Apache-2.0 */
/* avx512_float.c: products with F32, F16 and BF16: two registers of 16 lanes per output and row of x; several outputs
 * and rows at once, so that a loaded weight and a loaded x are each used more than once and the adds overlap. */
#include "computed/cpu/avx512.h"

/* 16 weights from element k on, those in `live`. */
typedef __m512 load_fn(const uint8_t *w, size_t k, __mmask16 live);

INLINE __m512 load_f32(const uint8_t *w, size_t k, __mmask16 live) { return _mm512_maskz_loadu_ps(live, w + 4 * k); }

INLINE __m512 load_f16(const uint8_t *w, size_t k, __mmask16 live)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(live, w + 2 * k));
}

INLINE __m512 load_bf16(const uint8_t *w, size_t k, __mmask16 live)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(live, w + 2 * k)), 16));
}

enum { MAX_OUTS = 4, MAX_ROWS = 4 };

struct tile {
    const uint8_t *w[MAX_OUTS];
    const float *x[MAX_ROWS];
};

/* acc[o][r] += w[o] * x[r] for 16 elements from k on; lanes outside `live` keep their bits. */
INLINE void tile_step(const struct tile *t, size_t k, __mmask16 live, const int outs, const int rows, load_fn *load,
                      __m512 acc[MAX_OUTS][MAX_ROWS])
{
    __m512 x[MAX_ROWS];
    for (int r = 0; r < rows; r++)
        x[r] = _mm512_maskz_loadu_ps(live, t->x[r] + k);
    for (int o = 0; o < outs; o++) {
        __m512 w = load(t->w[o], k, live);
        for (int r = 0; r < rows; r++)
            acc[o][r] = live == 0xffff ? _mm512_fmadd_ps(w, x[r], acc[o][r])
                                       : _mm512_mask3_fmadd_ps(w, x[r], acc[o][r], live);
    }
}

/* Prefetches the next outputs' weights. For outputs side by side, a fixed distance would fetch some bytes twice and
 * others late. */
INLINE void fetch_next(const uint8_t *w, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(w + at, 0, 1);
}

/* next: bytes from these outputs' weights to the next outputs' weights. */
INLINE void tile_dots(const struct tile *t, uint32_t n, size_t next, const int outs, const int rows, size_t bytes,
                      load_fn *load, float out[MAX_OUTS][MAX_ROWS])
{
    __m512 low[MAX_OUTS][MAX_ROWS], high[MAX_OUTS][MAX_ROWS];
    for (int o = 0; o < outs; o++)
        for (int r = 0; r < rows; r++)
            low[o][r] = high[o][r] = _mm512_setzero_ps();
    const enum reach reach = reach_for(rows);
    size_t k = 0;
    for (; k + 32 <= n; k += 32) {
        for (int o = 0; o < outs; o++) {
            if (reach != REACH_NEAR)
                fetch_next(t->w[o] + next + k * bytes, 32 * bytes);
            if (reach != REACH_FAR)
                prefetch_weights(t->w[o] + k * bytes, 32 * bytes, 2048, REACH_NEAR);
        }
        tile_step(t, k, 0xffff, outs, rows, load, low);
        tile_step(t, k + 16, 0xffff, outs, rows, load, high);
    }
    if (k < n)
        tile_step(t, k, first_lanes(n - (uint32_t)k), outs, rows, load, low);
    if (k + 16 < n)
        tile_step(t, k + 16, first_lanes(n - (uint32_t)k - 16), outs, rows, load, high);
    for (int o = 0; o < outs; o++)
        for (int r = 0; r < rows; r++)
            out[o][r] = join_ps(_mm512_add_ps(low[o][r], high[o][r]));
}

INLINE void float_rows(const struct shape *s, uint32_t r, const int rows, size_t bytes, load_fn *load)
{
    struct tile t;
    float out[MAX_OUTS][MAX_ROWS];
    const int outs = rows <= 2 ? 4 : 3; /* as many accumulators as registers allow */
    for (int k = 0; k < rows; k++)
        t.x[k] = (const float *)(const void *)(s->x + (r + (size_t)k) * s->x_stride);
    for (uint32_t o = 0; o < s->n_out;) {
        int here = s->n_out - o >= (uint32_t)outs ? outs : 1;
        for (int k = 0; k < here; k++)
            t.w[k] = s->w + (o + (size_t)k) * s->row_bytes;
        if (here == outs)
            tile_dots(&t, s->n_in, (size_t)outs * s->row_bytes, outs, rows, bytes, load, out);
        else
            tile_dots(&t, s->n_in, s->row_bytes, 1, rows, bytes, load, out);
        for (int k = 0; k < here; k++, o++)
            for (int row = 0; row < rows; row++)
                s->y[(r + (size_t)row) * s->ldy + o] = out[k][row];
    }
}

#define FLOAT_ROWS(type, k, bytes)                                                                                     \
    static void rows##k##_##type(const struct shape *s, uint32_t r) { float_rows(s, r, k, bytes, load_##type); }
#define FLOAT_MATMUL(type, bytes)                                                                                      \
    FLOAT_ROWS(type, 1, bytes)                                                                                         \
    FLOAT_ROWS(type, 2, bytes)                                                                                         \
    FLOAT_ROWS(type, 4, bytes)                                                                                         \
    MATMUL_BY_ROWS(type)

FLOAT_MATMUL(f32, 4)
FLOAT_MATMUL(f16, 2)
FLOAT_MATMUL(bf16, 2)
