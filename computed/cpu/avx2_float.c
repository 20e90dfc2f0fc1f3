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

/* Tiles of three outputs and four rows: weights are unpacked once for four rows. Each of the four registers of a pair's
 * lanes is summed in a walk of its own, over some of the elements at a time: all sums of a walk are in registers, and
 * what it reads is in the first cache. The order of a lane's sum is that of dots. */
enum { TILE_OUTS = 3, TILE_ROWS = 4, WALK = 1024 };

struct tile {
    const uint8_t *w[TILE_OUTS];
    const float *x[TILE_ROWS];
    struct lanes acc[TILE_OUTS][TILE_ROWS];
};

INLINE void walk_tile(struct tile *t, size_t k, size_t end, int g, size_t bytes, load_fn *load)
{
    __m256 acc[TILE_OUTS][TILE_ROWS];
    for (int o = 0; o < TILE_OUTS; o++)
        for (int r = 0; r < TILE_ROWS; r++)
            acc[o][r] = t->acc[o][r].a[g];
    for (k += 8 * (size_t)g; k < end; k += STEP) {
        __m256 w[TILE_OUTS];
        for (int o = 0; o < TILE_OUTS; o++)
            w[o] = load(t->w[o] + k * bytes);
        for (int r = 0; r < TILE_ROWS; r++) {
            const __m256 x = _mm256_loadu_ps(t->x[r] + k);
            for (int o = 0; o < TILE_OUTS; o++)
                acc[o][r] = _mm256_fmadd_ps(w[o], x, acc[o][r]);
        }
    }
    for (int o = 0; o < TILE_OUTS; o++)
        for (int r = 0; r < TILE_ROWS; r++)
            t->acc[o][r].a[g] = acc[o][r];
}

INLINE void end_pair(struct tile *t, uint32_t n, size_t bytes, load_fn *load, int o, int r, float *y)
{
    const struct pair p = {.w = {t->w[o]}, .x = {t->x[r]}};
    const uint32_t whole = n / STEP * STEP;
    struct lanes *l = &t->acc[o][r];
    if (whole < n)
        tail_step(&p, whole, n - whole, 0, 0, bytes, load, l);
    *y = join_halves(_mm256_add_ps(l->a[0], l->a[2]), _mm256_add_ps(l->a[1], l->a[3]));
}

INLINE void float_tile(const struct shape *s, uint32_t o, uint32_t row, size_t bytes, load_fn *load)
{
    struct tile t;
    const size_t whole = s->n_in / STEP * STEP;
    memset(t.acc, 0, sizeof t.acc);
    for (uint32_t i = 0; i < TILE_OUTS; i++)
        t.w[i] = s->w + (o + i) * s->row_bytes;
    for (uint32_t r = 0; r < TILE_ROWS; r++)
        t.x[r] = (const float *)(const void *)(s->x + (row + r) * s->x_stride);
    for (size_t k = 0; k < whole; k += WALK)
        for (int g = 0; g < 4; g++)
            walk_tile(&t, k, k + WALK < whole ? k + WALK : whole, g, bytes, load);
    for (uint32_t i = 0; i < TILE_OUTS; i++)
        for (uint32_t r = 0; r < TILE_ROWS; r++)
            end_pair(&t, s->n_in, bytes, load, (int)i, (int)r, &s->y[(row + r) * s->ldy + o + i]);
}

/* The outputs behind the last whole tile are computed by pairs of rows. */
INLINE void float_tiles(const struct shape *s, uint32_t row, size_t bytes, load_fn *load)
{
    struct shape rest = *s;
    uint32_t o = 0;
    for (; s->n_out - o >= TILE_OUTS; o += TILE_OUTS)
        float_tile(s, o, row, bytes, load);
    rest.w += o * s->row_bytes;
    rest.y += o;
    rest.n_out -= o;
    for (uint32_t r = 0; rest.n_out && r < TILE_ROWS; r += 2)
        float_rows(&rest, row + r, 2, bytes, load);
}

#define FLOAT_ROWS(type, k, bytes)                                                                                     \
    static void rows##k##_##type(const struct shape *s, uint32_t r) { float_rows(s, r, k, bytes, load_##type); }
#define FLOAT_MATMUL(type, bytes)                                                                                      \
    FLOAT_ROWS(type, 1, bytes)                                                                                         \
    FLOAT_ROWS(type, 2, bytes)                                                                                         \
    static void rows4_##type(const struct shape *s, uint32_t r) { float_tiles(s, r, bytes, load_##type); }             \
    MATMUL_BY_MANY(type, rows4_##type, TILE_ROWS)

FLOAT_MATMUL(f32, 4)
FLOAT_MATMUL(f16, 2)
FLOAT_MATMUL(bf16, 2)
