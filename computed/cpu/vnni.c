/* vnni.c: many rows of x at once, with vectors. The same order as everywhere (cpu.h): a register holds the exact integer sums of one
 * block for a row and 16 outputs, which then go to the float accumulators of lane b % 16.
 *
 * A band of rows passes over 16 outputs at a time; a panel (panel.h) is unpacked once and meets 8 rows at a time: four columns of 16
 * outputs against four values of x, spread over a register. A last tile that is not full starts early (or, of fewer rows than a
 * tile, repeats the last row) and has accumulators of its own, so that what is done twice is done from the start. */
#include "common/util.h"
#include "computed/cpu/panel.h"

enum {
    MIN_ROWS = 5,   /* below, avx512_*.c are faster */
    TILE = 8,       /* rows at once */
    MAX_ROWS = 128, /* of a band */
    MAX_TILES = MAX_ROWS / TILE,
};

struct tile {
    uint32_t first, rows; /* 8 or 4 */
};

struct pass {
    const char *x; /* first row of the band */
    size_t x_stride;
    uint32_t n_rows, n_tiles;
    struct x_parts at;
    struct tile tiles[MAX_TILES];
    float (*acc)[MAX_TILES][TILE][PANEL_OUTS]; /* [lane][tile][row][out] */
};

INLINE __m512i load512(const void *p) { return _mm512_load_si512(p); }

INLINE __m512i spread(const char *x)
{
    int32_t v;
    memcpy(&v, x, 4);
    return _mm512_set1_epi32(v);
}

INLINE const char *row_of(const struct pass *ps, const struct tile *t, uint32_t r)
{
    uint32_t row = t->first + r;
    return ps->x + (row < ps->n_rows ? row : ps->n_rows - 1) * ps->x_stride;
}

/* acc[r] += four columns of 16 outputs, n times, with x at x[r]. */
INLINE void multiply(__m512i *acc, const uint8_t (*w)[PANEL_OUTS * 4], const int n, const char *const *x, size_t at, const int rows)
{
#pragma GCC unroll 8
    for (int k = 0; k < n; k++) {
        __m512i v = load512(w[k]);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            acc[r] = _mm512_dpbusd_epi32(acc[r], v, spread(x[r] + at + 4 * (size_t)k));
    }
}

/* One super-block; sub: values that share a scale, 0: none is left inside the integers. offset: taken back by the sums of x. */
INLINE void tile_super(const struct pass *ps, const struct panel *p, uint32_t b, uint32_t t, const int rows, const int sub, const bool offset,
                       const int min_pairs)
{
    const char *x[TILE];
    __m512i total[TILE];
    const size_t q_at = (size_t)b * NTX_QKK, sums_at = ps->at.sums_at + (size_t)b * 4 * (size_t)(offset ? 8 : min_pairs);
    for (int r = 0; r < rows; r++) {
        x[r] = row_of(ps, &ps->tiles[t], (uint32_t)r);
        total[r] = _mm512_setzero_si512();
        for (int k = 0; offset && k < 8; k++)
            total[r] = _mm512_dpwssd_epi32(total[r], load512(p->mins[k]), spread(x[r] + sums_at + 4 * k));
    }
    const int step = sub ? sub : 32;
    for (int s = 0; s < NTX_QKK / step; s++) {
        __m512i acc[TILE], scale = load512(p->scale[s]);
        if (!sub) {
            multiply(total, p->low + s * step / 4, step / 4, x, q_at + (size_t)(s * step), rows);
            continue;
        }
        for (int r = 0; r < rows; r++)
            acc[r] = _mm512_setzero_si512();
        multiply(acc, p->low + s * step / 4, step / 4, x, q_at + (size_t)(s * step), rows);
        for (int r = 0; r < rows; r++)
            total[r] = _mm512_add_epi32(total[r], _mm512_mullo_epi32(acc[r], scale));
    }
    __m512 d = _mm512_load_ps(p->d[0]), m = _mm512_load_ps(p->m[0]);
    for (int r = 0; r < rows; r++) {
        float *to = ps->acc[b % LANES][t][r];
        __m512 dx = _mm512_castsi512_ps(spread(x[r] + ps->at.d_at + 4 * (size_t)b));
        __m512 v = start_or_add(_mm512_cvtepi32_ps(total[r]), _mm512_mul_ps(d, dx), to, b < LANES);
        if (min_pairs) {
            __m512i j = _mm512_setzero_si512();
            for (int k = 0; k < min_pairs; k++)
                j = _mm512_dpwssd_epi32(j, load512(p->mins[k]), spread(x[r] + sums_at + 4 * k));
            v = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(j), _mm512_mul_ps(m, dx), v);
        }
        _mm512_store_ps(to, v);
    }
}

/* The simple blocks b .. b + n - 1 of a panel; offset 0: the type has minima. */
INLINE void tile_simple(const struct pass *ps, const struct panel *p, uint32_t b, uint32_t n, uint32_t t, const int rows, const int offset)
{
    const char *x[TILE];
    for (int r = 0; r < rows; r++)
        x[r] = row_of(ps, &ps->tiles[t], (uint32_t)r);
    for (uint32_t k = 0; k < n; k++, b++) {
        __m512i acc[TILE];
        for (int r = 0; r < rows; r++) { /* the sum of 32 bytes fits an int16, so a pair of them is it and its sign */
            acc[r] = _mm512_setzero_si512();
            if (offset)
                acc[r] = _mm512_dpwssd_epi32(acc[r], _mm512_set1_epi32(-offset & 0xffff), spread(x[r] + ps->at.sums_at + 4 * (size_t)b));
        }
        multiply(acc, p->low + 8 * k, 8, x, (size_t)b * NTX_QK, rows);
        __m512 d = _mm512_load_ps(p->d[k]), m = _mm512_load_ps(p->m[k]);
        for (int r = 0; r < rows; r++) {
            float *to = ps->acc[b % LANES][t][r];
            __m512 dx = _mm512_castsi512_ps(spread(x[r] + ps->at.d_at + 4 * (size_t)b));
            __m512 v = start_or_add(_mm512_cvtepi32_ps(acc[r]), _mm512_mul_ps(d, dx), to, b < LANES);
            if (!offset)
                v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(spread(x[r] + ps->at.sums_at + 4 * (size_t)b)), _mm512_mul_ps(m, dx), v);
            _mm512_store_ps(to, v);
        }
    }
}

/* Of a band's rows: tiles of 8 and, for a rest of up to 4, one of 4. */
static void plan_tiles(struct pass *ps)
{
    ps->n_tiles = 0;
    for (uint32_t r = 0; r < ps->n_rows; ps->n_tiles++) {
        uint32_t left = ps->n_rows - r, rows = left > TILE / 2 ? TILE : TILE / 2;
        ps->tiles[ps->n_tiles] = (struct tile){left >= rows ? r : ps->n_rows > rows ? ps->n_rows - rows : 0, rows};
        r += NTX_MIN(left, rows);
    }
}

INLINE void mm_panels(const struct panel_kind *kind, ntx_matmul_fn *few, const struct shape *s, uint32_t n_rows,
                      void (*rows)(const void *, const struct panel *, uint32_t, uint32_t), const bool sums32)
{
    _Alignas(64) float acc[LANES][MAX_TILES][TILE][PANEL_OUTS];
    struct pass ps = {.x_stride = s->x_stride, .acc = acc, .at = x_parts_of(s->x, s->n_in, kind->block == NTX_QKK, sums32)};
    for (uint32_t r = 0; r < n_rows; r += ps.n_rows) {
        ps.n_rows = NTX_MIN(n_rows - r, (uint32_t)MAX_ROWS);
        ps.x = s->x + r * s->x_stride;
        float *y = s->y + r * s->ldy;
        if (ps.n_rows < MIN_ROWS) {
            few(s->w, s->row_bytes, s->n_out, s->n_in, ps.x, s->x_stride, ps.n_rows, y, s->ldy);
            return;
        }
        plan_tiles(&ps);
        for (uint32_t o = 0; o < s->n_out; o += PANEL_OUTS) {
            uint32_t n_out = NTX_MIN(s->n_out - o, (uint32_t)PANEL_OUTS);
            multiply_panels(kind, s->w + o * s->row_bytes, s->row_bytes, n_out, s->n_in, &ps, rows);
            for (uint32_t t = 0; t < ps.n_tiles; t++)
                for (uint32_t k = 0; k < ps.tiles[t].rows && ps.tiles[t].first + k < ps.n_rows; k++)
                    join_row(acc[0][t][k], sizeof acc[0] / sizeof(float), s->n_in / kind->block, n_out, y + (ps.tiles[t].first + k) * s->ldy + o);
        }
    }
}

#define VNNI_MATMUL(type, values, sums32, call)                                                                       \
    static void rows_##type(const void *pass, const struct panel *p, uint32_t b, uint32_t n)                          \
    {                                                                                                                 \
        const struct pass *ps = pass;                                                                                 \
        (void)n;                                                                                                      \
        for (uint32_t t = 0; t < ps->n_tiles; t++)                                                                    \
            if (ps->tiles[t].rows == TILE) {                                                                          \
                enum { ROWS = TILE };                                                                                 \
                call;                                                                                                 \
            } else {                                                                                                  \
                enum { ROWS = TILE / 2 };                                                                             \
                call;                                                                                                 \
            }                                                                                                         \
    }                                                                                                                 \
    DECLARE_MATMUL(ntx__mmvec_##type)                                                                                 \
    {                                                                                                                 \
        static const struct panel_kind kind = {ntx__panel_vec_##type, values, sizeof(struct ntx_block_##type), 0, false, 0, NULL};      \
        const struct shape s = {w, x, y, row_bytes, x_stride, ldy, n_out, n_in};                                      \
        mm_panels(&kind, ntx__mm512_##type, &s, n_rows, rows_##type, sums32);                                         \
    }

VNNI_MATMUL(q4_0, NTX_QK, false, tile_simple(ps, p, b, n, t, ROWS, 8))
VNNI_MATMUL(q4_1, NTX_QK, false, tile_simple(ps, p, b, n, t, ROWS, 0))
VNNI_MATMUL(q5_0, NTX_QK, false, tile_simple(ps, p, b, n, t, ROWS, 16))
VNNI_MATMUL(q5_1, NTX_QK, false, tile_simple(ps, p, b, n, t, ROWS, 0))
VNNI_MATMUL(q8_0, NTX_QK, false, tile_simple(ps, p, b, n, t, ROWS, 128))
VNNI_MATMUL(q2_k, NTX_QKK, false, tile_super(ps, p, b, t, ROWS, 0, false, 8))
VNNI_MATMUL(q3_k, NTX_QKK, false, tile_super(ps, p, b, t, ROWS, 16, true, 0))
VNNI_MATMUL(q4_k, NTX_QKK, true, tile_super(ps, p, b, t, ROWS, 32, false, 4))
VNNI_MATMUL(q5_k, NTX_QKK, true, tile_super(ps, p, b, t, ROWS, 32, false, 4))
VNNI_MATMUL(q6_k, NTX_QKK, false, tile_super(ps, p, b, t, ROWS, 16, true, 0))
