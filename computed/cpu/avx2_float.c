/* SPDX-License-Identifier: Apache-2.0 */
/* avx2_float.c: products with F32, F16 and BF16: the 32 lanes in four registers per output and row of x; two outputs,
 * or two rows, at once. The last n % 32 elements are copied to a padded buffer, and lanes without one keep their bits.
 * */
#include "computed/cpu/avx2.h"

enum { STEP = 32 };

typedef __m256 load_fn(const uint8_t *w); /* 8 weights */

INLINE __m256 load_f32(const uint8_t *w) { return _mm256_loadu_ps((const float *)(const void *)w); }
INLINE __m256 load_f16(const uint8_t *w) { return _mm256_cvtph_ps(load128(w)); }
INLINE __m256 load_bf16(const uint8_t *w)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(w)), 16));
}

/* Lanes of one output and one row. */
struct lanes {
    __m256 a[4];
};

struct pair {
    const uint8_t *w[2];
    const float *x[2];
};

/* The last n < 32 elements from k on, of output o and row r. */
INLINE void tail_step(const struct pair *p, size_t k, uint32_t n, int o, int r, size_t bytes, load_fn *load,
                      struct lanes *acc)
{
    uint8_t w[STEP * 4] = {0};
    float x[STEP] = {0};
    memcpy(w, p->w[o] + k * bytes, n * bytes);
    memcpy(x, p->x[r] + k, n * sizeof *x);
    for (uint32_t g = 0; g * 8 < n; g++)
        acc->a[g] = fma_live(load(w + 8 * g * bytes), _mm256_loadu_ps(x + 8 * g), acc->a[g], first_lanes(n - 8 * g));
}

INLINE void dots(const struct pair *p, uint32_t n, const int outs, const int rows, size_t bytes, load_fn *load,
                 float out[2][2])
{
    struct lanes acc[2][2];
    for (int o = 0; o < outs; o++)
        for (int r = 0; r < rows; r++)
            for (int g = 0; g < 4; g++)
                acc[o][r].a[g] = _mm256_setzero_ps();
    const enum reach ahead = ntx__cpu_fetch_far ? REACH_FAR : REACH_NEAR;
    size_t k = 0;
    for (; k + STEP <= n; k += STEP) {
        for (int o = 0; o < outs; o++)
            prefetch_weights(p->w[o] + k * bytes, STEP * bytes, 2048, ahead);
        for (size_t g = 0; g < 4; g++)
            for (int o = 0; o < outs; o++) {
                __m256 w = load(p->w[o] + (k + 8 * g) * bytes);
                for (int r = 0; r < rows; r++)
                    acc[o][r].a[g] = _mm256_fmadd_ps(w, _mm256_loadu_ps(p->x[r] + k + 8 * g), acc[o][r].a[g]);
            }
    }
    for (int o = 0; o < outs; o++)
        for (int r = 0; r < rows; r++) {
            struct lanes *l = &acc[o][r];
            if (k < n)
                tail_step(p, k, n - (uint32_t)k, o, r, bytes, load, l);
            out[o][r] = join_halves(_mm256_add_ps(l->a[0], l->a[2]), _mm256_add_ps(l->a[1], l->a[3]));
        }
}

INLINE void float_rows(const struct shape *s, uint32_t row, const int rows, size_t bytes, load_fn *load)
{
    struct pair p;
    float out[2][2];
    for (int r = 0; r < rows; r++)
        p.x[r] = (const float *)(const void *)(s->x + (row + (size_t)r) * s->x_stride);
    for (uint32_t o = 0; o < s->n_out;) {
        int here = rows == 1 && s->n_out - o >= 2 ? 2 : 1;
        for (int k = 0; k < here; k++)
            p.w[k] = s->w + (o + (size_t)k) * s->row_bytes;
        if (here == 2)
            dots(&p, s->n_in, 2, rows, bytes, load, out);
        else
            dots(&p, s->n_in, 1, rows, bytes, load, out);
        for (int k = 0; k < here; k++, o++)
            for (int r = 0; r < rows; r++)
                s->y[(row + (size_t)r) * s->ldy + o] = out[k][r];
    }
}

#define FLOAT_ROWS(type, k, bytes)                                                                                     \
    static void rows##k##_##type(const struct shape *s, uint32_t r) { float_rows(s, r, k, bytes, load_##type); }
#define FLOAT_MATMUL(type, bytes)                                                                                      \
    FLOAT_ROWS(type, 1, bytes)                                                                                         \
    FLOAT_ROWS(type, 2, bytes)                                                                                         \
    MATMUL_BY_ROWS(type)

FLOAT_MATMUL(f32, 4)
FLOAT_MATMUL(f16, 2)
FLOAT_MATMUL(bf16, 2)
