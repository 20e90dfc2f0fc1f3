/* SPDX-License-Identifier: Apache-2.0 */
/* avx512_many.c: products with F16 and BF16 for many rows of x, in the order of NTX_RULE_FLOAT (cpu.h).
 *
 * Outputs lie side by side in a register, so no sum goes across one. Lane l of a product (values l, l + 32, ...) is a
 * register for each row and 16 outputs, and lanes come in the order of the tree, so that it is computed on the way.
 *
 *   weights  [lane][step][32 outputs]   floats, packed once for a band of rows
 *   x        [lane][step][12 rows]      packed once for all outputs of a call
 *
 * A step of a tile is two loads of weights, twelve broadcasts of x and 24 fused products in as many registers. On Zen 4
 * that is 95 % of the processor's rate; the rest is lost by the two copies, about a third of a cycle a value. */
#include "common/util.h"
#include "computed/cpu/avx512.h"

enum {
    ROWS = 12,  /* of a tile */
    PANELS = 2, /* of 16 outputs, of a tile */
    WIDE = 16 * PANELS,
    SUMS = 32, /* lanes of a product */
    LEVELS = 5 /* of their tree */
};
_Static_assert(ROWS == NTX_MANY_TILE && WIDE == NTX_MANY_OUTS, "ntx_many_bytes counts with these");

static const uint8_t turn_of[SUMS] = {0, 16, 8, 24, 4, 20, 12, 28, 2, 18, 10, 26, 6, 22, 14, 30,
                                      1, 17, 9, 25, 5, 21, 13, 29, 3, 19, 11, 27, 7, 23, 15, 31}; /* its own inverse */

typedef __m512 load_fn(const uint8_t *w, size_t k, __mmask16 live);

INLINE __m512 load_f16(const uint8_t *w, size_t k, __mmask16 live)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(live, w + 2 * k));
}

INLINE __m512 load_bf16(const uint8_t *w, size_t k, __mmask16 live)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(live, w + 2 * k)), 16));
}

INLINE __m512 load_f32(const uint8_t *w, size_t k, __mmask16 live) { return _mm512_maskz_loadu_ps(live, w + 4 * k); }

/* ---- panels */

/* Pairs of rows, then of pairs, within parts of 4 columns; then the parts. */
INLINE void transpose(const __m512 in[16], __m512 out[16])
{
    __m512 a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_ps(in[i], in[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(in[i], in[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            const __m512d low = _mm512_castps_pd(a[i + j]), high = _mm512_castps_pd(a[i + j + 2]);
            b[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            b[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    for (int j = 0; j < 4; j++) {
        const __m512 even0 = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x88),
                     odd0 = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xdd),
                     even1 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x88),
                     odd1 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xdd);
        out[j] = _mm512_shuffle_f32x4(even0, even1, 0x88);
        out[4 + j] = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
        out[8 + j] = _mm512_shuffle_f32x4(even0, even1, 0xdd);
        out[12 + j] = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
    }
}

/* Packs n rows of n_in values, `stride` bytes apart, into columns `ld` apart. */
INLINE void pack(const uint8_t *from, size_t stride, const int n, uint32_t n_in, float *to, const size_t ld,
                 load_fn *load)
{
    const size_t steps = (n_in + SUMS - 1) / SUMS;
    const __mmask16 rows = first_lanes((uint32_t)n);
    for (uint32_t k = 0; k < n_in; k += 16) {
        const __mmask16 live = first_lanes(n_in - k);
        __m512 in[16], out[16];
        for (int r = 0; r < 16; r++)
            in[r] = r < n ? load(from + (size_t)r * stride, k, live) : _mm512_setzero_ps();
        transpose(in, out);
        for (uint32_t j = 0; j < 16; j++)
            _mm512_mask_storeu_ps(to + (turn_of[k % SUMS + j] * steps + k / SUMS) * ld, rows, out[j]);
    }
}

/* ---- products */

struct tile {
    const float *w, *x; /* packed */
    float *y;
    size_t ldy;
    uint32_t n_in;
};

/* Unrolled over all sums of a tile: in a loop the compiler would keep them in memory. */
#define EACH_SUM(what)                                                                                                 \
    _Pragma("GCC unroll 2") for (int p = 0; p < panels; p++) _Pragma("GCC unroll 12") for (int r = 0; r < ROWS; r++)   \
        what

INLINE void multiply_tile(const struct tile *t, const int panels)
{
    float waits[LEVELS][PANELS][ROWS][16] __attribute__((aligned(64)));
    const uint32_t steps = (t->n_in + SUMS - 1) / SUMS, rest = t->n_in % SUMS ? t->n_in % SUMS : SUMS;
    for (uint32_t turn = 0; turn < SUMS; turn++) {
        const float *w = t->w + (size_t)turn * steps * WIDE, *x = t->x + (size_t)turn * steps * ROWS;
        __m512 sum[PANELS][ROWS];
        EACH_SUM(sum[p][r] = _mm512_setzero_ps());
        for (uint32_t i = 0, n = steps - (turn_of[turn] >= rest); i < n; i++, w += WIDE, x += ROWS) {
            __m512 of[PANELS];
            for (int p = 0; p < panels; p++)
                of[p] = _mm512_load_ps(w + 16 * p);
#pragma GCC unroll 12
            for (int r = 0; r < ROWS; r++) {
                const __m512 by = _mm512_set1_ps(x[r]);
#pragma GCC unroll 2
                for (int p = 0; p < panels; p++)
                    sum[p][r] = _mm512_fmadd_ps(of[p], by, sum[p][r]);
            }
        }
        uint32_t level = 0;
        for (; turn >> level & 1; level++)
            EACH_SUM(sum[p][r] = _mm512_add_ps(_mm512_load_ps(waits[level][p][r]), sum[p][r]));
        if (level < LEVELS)
            EACH_SUM(_mm512_store_ps(waits[level][p][r], sum[p][r]));
        else
            EACH_SUM(_mm512_storeu_ps(t->y + (size_t)r * t->ldy + 16 * p, sum[p][r]));
    }
}

static void multiply_wide(const struct tile *t) { multiply_tile(t, PANELS); }
static void multiply_narrow(const struct tile *t) { multiply_tile(t, 1); }

/* Multiplies all whole sixteens of outputs by a band of whole tiles. */
INLINE void multiply_band(const struct shape *s, uint32_t n_rows, float *scratch, load_fn *load)
{
    const size_t width = NTX_ROUND_UP(s->n_in, (uint32_t)SUMS);
    float *x = scratch + WIDE * width;
    for (uint32_t r = 0; r < n_rows; r += ROWS)
        pack((const uint8_t *)s->x + r * s->x_stride, s->x_stride, ROWS, s->n_in, x + r * width, ROWS, load_f32);
    for (uint32_t o = 0, n; o + 16 <= s->n_out; o += n) {
        n = s->n_out - o >= WIDE ? WIDE : 16;
        for (uint32_t p = 0; p < n; p += 16)
            pack(s->w + (o + p) * s->row_bytes, s->row_bytes, 16, s->n_in, scratch + p, WIDE, load);
        for (uint32_t r = 0; r < n_rows; r += ROWS) {
            const struct tile t = {scratch, x + r * width, s->y + r * s->ldy + o, s->ldy, s->n_in};
            if (n == WIDE)
                multiply_wide(&t);
            else
                multiply_narrow(&t);
        }
    }
}

/* Rows and outputs beside whole tiles go by the kernel for few rows. */
INLINE void multiply_many(const struct shape *s, uint32_t n_rows, void *scratch, size_t scratch_bytes, load_fn *load,
                          ntx_matmul_fn *few)
{
    const size_t width = NTX_ROUND_UP(s->n_in, (uint32_t)SUMS) * sizeof(float), room = scratch_bytes / width;
    const uint32_t most = room > WIDE ? (uint32_t)NTX_MIN((room - WIDE) / ROWS, (size_t)UINT32_MAX / ROWS) : 0,
                   tiles = most ? n_rows / ROWS : 0, bands = most ? (tiles + most - 1) / most : 0,
                   outs = s->n_out / 16 * 16;
    uint32_t r = 0;
    for (uint32_t band = 0; band < bands; band++) { /* about equal ones */
        const uint32_t n = (tiles - r / ROWS + bands - band - 1) / (bands - band) * ROWS;
        struct shape of = *s;
        of.x += r * s->x_stride;
        of.y += r * s->ldy;
        multiply_band(&of, n, scratch, load);
        r += n;
    }
    if (r && outs < s->n_out)
        few(s->w + outs * s->row_bytes, s->row_bytes, s->n_out - outs, s->n_in, s->x, s->x_stride, r, s->y + outs,
            s->ldy);
    if (r < n_rows)
        few(s->w, s->row_bytes, s->n_out, s->n_in, s->x + r * s->x_stride, s->x_stride, n_rows - r, s->y + r * s->ldy,
            s->ldy);
}

#define MANY(TYPE, type)                                                                                               \
    void ntx__many512_##type(const void *w, size_t row_bytes, uint32_t n_out, uint32_t n_in, const void *x,            \
                             size_t x_stride, uint32_t n_rows, float *y, size_t ldy, void *scratch, size_t bytes)      \
    {                                                                                                                  \
        const struct shape s = {w, x, y, row_bytes, x_stride, ldy, n_out, n_in, NULL};                                 \
        multiply_many(&s, n_rows, scratch, bytes, load_##type, ntx__mm512_##type);                                     \
    }
AVX512_MANY(MANY)
