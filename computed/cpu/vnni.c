/* SPDX-License-Identifier: Apache-2.0 */
/* vnni.c: many rows of x at once, with vectors (AVX-512 VNNI). The order is the same as everywhere (cpu.h): a register
 * holds the exact integer sums of one block for a row and 16 outputs, which are then added to the float accumulators
 * of lane b % 16.
 *
 * A band of rows, as many as leave room in the second-level cache, passes over two slices of 16 outputs at a time. Of
 * each slice a panel (panel.h) is unpacked and multiplied by the band's rows, six or four at a time: four values of x,
 * broadcast to a register, serve both slices. (Broadcast from memory for each product they would cost as much as the
 * product.) A panel has blocks of one lane, whose accumulators stay in registers for it; lanes are ordered so that the
 * tree over them is computed on the way. */
#include "common/util.h"
#include "computed/cpu/panel.h"

enum {
    TILE = 6,  /* rows of a tile */
    SMALL = 4, /* rows of a small tile */
    SLICES = MAX_SLICES,
    MAX_TILES = 22,         /* most tiles of a band */
    BAND_BYTES = 800 << 10, /* bytes of x in a band, but at least four tiles */
};

/* Sums of a tile. */
typedef float tile_sums[TILE][SLICES][PANEL_OUTS];

struct pass {
    const struct shape *shape;
    const char *x;                   /* first row of the band */
    float *y;                        /* the slices' first output of that row */
    uint32_t n_rows, n_tiles, n_out; /* n_out: of the slices */
    struct x_parts at;
    struct {
        const char *x[TILE];
        uint32_t first;
        uint32_t rows; /* 6 or 4; the last may not exist: then it has the last row's x, and no y */
    } tiles[MAX_TILES];
    tile_sums *lane, (*tree)[MAX_TILES]; /* [tile], [level][tile] */
};

INLINE __m512i load512(const void *p) { return _mm512_load_si512(p); }

INLINE __m512i spread_dword(const char *x)
{
    int32_t v;
    memcpy(&v, x, 4);
    return _mm512_set1_epi32(v);
}

INLINE void load_tile_rows(const struct pass *ps, uint32_t t, const int rows, const char *x[TILE])
{
    for (int r = 0; r < rows; r++)
        x[r] = ps->tiles[t].x[r];
}

/* Unrolled over all sums of a tile: in a loop the compiler would keep them in memory. */
#define EACH_SUM(what)                                                                                                 \
    {                                                                                                                  \
        _Pragma("GCC unroll 2") for (int s = 0; s < slices; s++)                                                       \
            _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++) what;                                               \
    }

/* Loads a lane's sums before its panel p: 0, or the sums of earlier panels. */
INLINE void start_lane(const struct pass *ps, const struct panels *p, uint32_t t, const int rows, const int slices,
                       __m512 v[SLICES][TILE])
{
    if (p->first)
        EACH_SUM(v[s][r] = _mm512_setzero_ps())
    else
        EACH_SUM(v[s][r] = _mm512_load_ps(ps->lane[t][r][s]))
}

/* After panel p: stores the sums for the lane's next panel, or joins them with other lanes; after the last lane stores
 * y. */
INLINE void end_lane(const struct pass *ps, const struct panels *p, uint32_t t, const int rows, const int slices,
                     __m512 v[SLICES][TILE])
{
    tile_sums *to = &ps->lane[t];
    if (p->last) {
        uint32_t level = p->turns_log2;
        if (level)
            EACH_SUM(v[s][r] = _mm512_add_ps(v[s][r], _mm512_setzero_ps()))
        for (; p->turn >> level & 1; level++)
            EACH_SUM(v[s][r] = _mm512_add_ps(_mm512_load_ps(ps->tree[level][t][r][s]), v[s][r]))
        if (level == TREE_LEVELS) {
            EACH_SUM(if (ps->tiles[t].first + (uint32_t)r < ps->n_rows) _mm512_mask_storeu_ps(
                ps->y + (ps->tiles[t].first + (uint32_t)r) * ps->shape->ldy + s * PANEL_OUTS,
                first_lanes(ps->n_out - (uint32_t)s * PANEL_OUTS), v[s][r]))
            return;
        }
        to = &ps->tree[level][t];
    }
    EACH_SUM(_mm512_store_ps((*to)[r][s], v[s][r]))
}

/* Multiplies n rows of the panels from `from` on by x at x[r]. raise_x: the panels' values are signed, and x is raised
 * by 128. */
INLINE void multiply_panel(__m512i acc[SLICES][TILE], const struct panel *p, size_t from, const int n,
                           const char *const x[TILE], size_t at, const int rows, const int slices, const bool raise_x)
{
#pragma GCC unroll 8
    for (int k = 0; k < n; k++) {
        __m512i w[SLICES];
#pragma GCC unroll 2
        for (int s = 0; s < slices; s++)
            w[s] = load512(p[s].low[from + (size_t)k]);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m512i v = spread_dword(x[r] + at + 4 * (size_t)k);
            if (raise_x)
                v = _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80));
#pragma GCC unroll 2
            for (int s = 0; s < slices; s++)
                acc[s][r] = raise_x ? _mm512_dpbusd_epi32(acc[s][r], v, w[s]) : _mm512_dpbusd_epi32(acc[s][r], w[s], v);
        }
    }
}

/* Start values of a row's sub-block sums: -2^offset times the sum of x, of 16 values each or of 32. */
INLINE void less_offset(const char *sums, const bool of_16, const unsigned offset, int32_t *start)
{
    const __m256i s = _mm256_loadu_si256((const void *)sums);
    if (of_16)
        _mm512_store_si512(
            start, _mm512_slli_epi32(_mm512_sub_epi32(_mm512_setzero_si512(), _mm512_cvtepi16_epi32(s)), offset));
    else
        _mm256_store_si256(
            (void *)start,
            _mm256_slli_epi32(
                _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_cvtepi16_epi32(_mm256_castsi256_si128(s))), offset));
}

INLINE void begin_sums(__m512i acc[SLICES][TILE], const int32_t start[TILE][16], const size_t i, const int rows,
                       const int slices, const bool offset)
{
    for (int r = 0; r < rows; r++) {
        acc[0][r] = offset ? _mm512_set1_epi32(start[r][i]) : _mm512_setzero_si512();
        if (slices > 1)
            acc[1][r] = acc[0][r];
    }
}

/* One super-block. sub: values that share a scale; 0: no scale is left inside the integers. offset: log2 of the
 * weights' offset; 0: none. */
INLINE void tile_super(const struct pass *ps, const struct panels *panels, uint32_t t, const int rows, const int slices,
                       const int sub, const unsigned offset, const int min_pairs)
{
    const char *x[TILE];
    __m512 v[SLICES][TILE];
    __m512i total[SLICES][TILE];
    _Alignas(64) int32_t start[TILE][16];
    const struct panel *p = panels->of;
    const bool of_16 = sub == 16;
    const int offset_pairs = of_16 ? 8 : 4;
    const size_t b = panels->b, q_at = b * NTX_QKK,
                 sums_at = ps->at.sums_at + b * 4 * (size_t)(offset ? offset_pairs : min_pairs);
    load_tile_rows(ps, t, rows, x);
    for (int r = 0; offset && r < rows; r++)
        less_offset(x[r] + sums_at, of_16, offset, start[r]);
    for (int s = 0; s < slices; s++)
        for (int r = 0; r < rows; r++)
            total[s][r] = _mm512_setzero_si512();
    const int step = sub ? sub : 32;
    for (int i = 0; i < NTX_QKK / step; i++) {
        __m512i acc[SLICES][TILE];
        const size_t from = (size_t)(i * step / 4), at = q_at + (size_t)(i * step);
        begin_sums(acc, start, i, rows, slices, offset);
        if (!sub) {
            multiply_panel(acc, p, from, step / 4, x, at, rows, slices, false);
            for (int s = 0; s < slices; s++)
                for (int r = 0; r < rows; r++)
                    total[s][r] = _mm512_add_epi32(total[s][r], acc[s][r]);
            continue;
        }
        multiply_panel(acc, p, from, step / 4, x, at, rows, slices, false);
        for (int s = 0; s < slices; s++)
            for (int r = 0; r < rows; r++)
                total[s][r] = _mm512_add_epi32(total[s][r], _mm512_mullo_epi32(acc[s][r], load512(p[s].scale[i])));
    }
    start_lane(ps, panels, t, rows, slices, v);
    for (int s = 0; s < slices; s++)
        for (int r = 0; r < rows; r++) {
            __m512 dx = _mm512_castsi512_ps(spread_dword(x[r] + ps->at.d_at + 4 * b));
            v[s][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[s][r]), _mm512_mul_ps(_mm512_load_ps(p[s].d[0]), dx),
                                      v[s][r]);
            if (min_pairs) {
                __m512i j = _mm512_setzero_si512();
                for (int k = 0; k < min_pairs; k++)
                    j = _mm512_dpwssd_epi32(j, load512(p[s].mins[k]), spread_dword(x[r] + sums_at + 4 * k));
                v[s][r] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(j), _mm512_mul_ps(_mm512_load_ps(p[s].m[0]), dx),
                                           v[s][r]);
            }
        }
    end_lane(ps, panels, t, rows, slices, v);
}

/* The simple blocks of a panel. offset: of the weights; 0: the type has minima. low_bits: that
 * are missing in high bits alone (split.h); 0: none. */
INLINE void tile_simple(const struct pass *ps, const struct panels *panels, uint32_t t, const int rows,
                        const int slices, const int offset, const unsigned low_bits)
{
    const char *x[TILE];
    __m512 v[SLICES][TILE];
    const struct panel *p = panels->of;
    load_tile_rows(ps, t, rows, x);
    start_lane(ps, panels, t, rows, slices, v);
    for (size_t k = 0, b = panels->b; k < panels->n; k++, b += LANES) {
        __m512i acc[SLICES][TILE];
        /* the sum of 32 bytes fits an int16, so the int32 is a pair of the sum and its sign */
        for (int r = 0; r < rows; r++) {
            acc[0][r] = _mm512_setzero_si512();
            if (offset)
                acc[0][r] = _mm512_dpwssd_epi32(acc[0][r], _mm512_set1_epi32(-offset & 0xffff),
                                                spread_dword(x[r] + ps->at.sums_at + 4 * b));
            if (slices > 1)
                acc[1][r] = acc[0][r];
        }
        multiply_panel(acc, p, 8 * k, 8, x, b * NTX_QK, rows, slices, false);
        for (int r = 0; r < rows; r++)
            for (int s = 0; s < slices; s++) {
                __m512 dx = _mm512_castsi512_ps(spread_dword(x[r] + ps->at.d_at + 4 * b));
                if (low_bits) {
                    const __m512i sum = spread_dword(x[r] + ps->at.sums_at + 4 * b);
                    acc[s][r] = _mm512_add_epi32(_mm512_add_epi32(acc[s][r], acc[s][r]),
                                                 _mm512_sub_epi32(_mm512_slli_epi32(sum, low_bits), sum));
                }
                v[s][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[s][r]), _mm512_mul_ps(_mm512_load_ps(p[s].d[k]), dx),
                                          v[s][r]);
                if (!offset)
                    v[s][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(spread_dword(x[r] + ps->at.sums_at + 4 * b)),
                                              _mm512_mul_ps(_mm512_load_ps(p[s].m[k]), dx), v[s][r]);
            }
    }
    end_lane(ps, panels, t, rows, slices, v);
}

/* The same for types whose 16 values share a scale. */
INLINE void tile_halves(const struct pass *ps, const struct panels *panels, uint32_t t, const int rows,
                        const int slices)
{
    const char *x[TILE];
    __m512 v[SLICES][TILE];
    const struct panel *p = panels->of;
    load_tile_rows(ps, t, rows, x);
    start_lane(ps, panels, t, rows, slices, v);
    for (size_t k = 0, b = panels->b; k < panels->n; k++, b += LANES)
        for (size_t half = 0; half < 2; half++) {
            __m512i acc[SLICES][TILE];
            for (int s = 0; s < slices; s++)
                for (int r = 0; r < rows; r++)
                    acc[s][r] = load512(p[s].scale[2 * k + half]);
            multiply_panel(acc, p, 8 * k + 4 * half, 4, x, b * NTX_QK + 16 * half, rows, slices, true);
            for (int r = 0; r < rows; r++) {
                __m512 dx = _mm512_castsi512_ps(spread_dword(x[r] + ps->at.d_at + 4 * b));
                for (int s = 0; s < slices; s++)
                    v[s][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[s][r]),
                                              _mm512_mul_ps(_mm512_load_ps(half ? p[s].m[k] : p[s].d[k]), dx), v[s][r]);
            }
        }
    end_lane(ps, panels, t, rows, slices, v);
}

/* Cuts a band's rows into tiles of six and up to two of four. An odd number of rows is rounded up. */
static void lay_tiles(struct pass *ps)
{
    uint32_t even = NTX_ROUND_UP(ps->n_rows, 2u), small = even % TILE ? (TILE - even % TILE) / 2 : 0,
             big = (even - SMALL * small) / TILE;
    ps->n_tiles = big + small;
    for (uint32_t t = 0, r = 0; t < ps->n_tiles; r += ps->tiles[t++].rows) {
        ps->tiles[t].rows = t < big ? TILE : SMALL;
        ps->tiles[t].first = r;
        for (uint32_t k = 0; k < ps->tiles[t].rows; k++)
            ps->tiles[t].x[k] = ps->x + NTX_MIN(r + k, ps->n_rows - 1) * ps->shape->x_stride;
    }
}

struct kind {
    struct panel_kind weights;
    ntx_matmul_fn *few; /* for fewer than `least` rows; least is 5 or more */
    uint32_t least;
    bool sums32; /* super-blocks: sums of 32 values of x are used, not of 16 */
};

/* low: NULL, or the low bits of weights in two parts, which have at least 5 rows of x. */
static void mm_panels(const struct kind *kind, const struct shape *s, const struct low_rows *low, uint32_t n_rows,
                      panels_fn *rows)
{
    if (n_rows < kind->least) {
        kind->few(s->w, s->row_bytes, s->n_out, s->n_in, s->x, s->x_stride, n_rows, s->y, s->ldy);
        return;
    }
    _Alignas(64) tile_sums lane[MAX_TILES], tree[TREE_LEVELS][MAX_TILES];
    struct pass ps = {.shape = s,
                      .lane = lane,
                      .tree = tree,
                      .at = x_parts_of(s->x, s->n_in, kind->weights.block == NTX_QKK, kind->sums32)};
    const uint32_t most = NTX_MIN(NTX_MAX((uint32_t)(BAND_BYTES / s->x_stride), 4u * TILE), (uint32_t)MAX_TILES * TILE),
                   bands = (n_rows + most - 1) / most;
    for (uint32_t band = 0, r = 0; band < bands; band++, r += ps.n_rows) {
        ps.n_rows = (n_rows - r + bands - band - 1) / (bands - band); /* bands are about equal, so never under 5 rows */
        ps.x = s->x + r * s->x_stride;
        lay_tiles(&ps);
        for (uint32_t o = 0; o < s->n_out; o += SLICES * PANEL_OUTS) {
            ps.n_out = NTX_MIN(s->n_out - o, (uint32_t)SLICES * PANEL_OUTS);
            ps.y = s->y + r * s->ldy + o;
            multiply_panels(&kind->weights, s, low, o, ps.n_out > PANEL_OUTS ? SLICES : 1, &ps, rows);
        }
    }
}

/* Tiles with constant numbers of rows and slices, so that the compiler keeps the sums in registers. */
#define TILE_OF(r, s, call)                                                                                            \
    {                                                                                                                  \
        enum { R = r, S = s };                                                                                         \
        call;                                                                                                          \
    }

#define ROWS(type, call)                                                                                               \
    static void rows_##type(const void *pass, const struct panels *p)                                                  \
    {                                                                                                                  \
        const struct pass *ps = pass;                                                                                  \
        for (uint32_t t = 0; t < ps->n_tiles; t++) {                                                                   \
            fetch_share(p, t, ps->n_tiles);                                                                            \
            if (ps->tiles[t].rows == TILE && p->slices == SLICES)                                                      \
                TILE_OF(TILE, SLICES, call)                                                                            \
            else if (p->slices == SLICES)                                                                              \
                TILE_OF(SMALL, SLICES, call)                                                                           \
            else if (ps->tiles[t].rows == TILE)                                                                        \
                TILE_OF(TILE, 1, call)                                                                                 \
            else                                                                                                       \
                TILE_OF(SMALL, 1, call)                                                                                \
        }                                                                                                              \
    }

#define MATMUL(name, type, fill, few, least, block, interleaved, sums32)                                               \
    DECLARE_MATMUL(name)                                                                                               \
    {                                                                                                                  \
        static const struct kind kind = {{fill, block, interleaved}, few, least, sums32};                              \
        const struct shape s = {                                                                                       \
            w, x, y, row_bytes, x_stride, ldy, n_out, n_in, (const uint8_t *)w + n_out * row_bytes};                   \
        mm_panels(&kind, &s, NULL, n_rows, rows_##type);                                                               \
    }

#define VNNI(type, block, sums32, call)                                                                                \
    ROWS(type, call)                                                                                                   \
    MATMUL(ntx__mmvec_##type, type, ntx__panel_vec_##type, ntx__mm512_##type, 5, block, false, sums32)

#define VNNI_INTERLEAVED(type, least, block, sums32, call)                                                             \
    VNNI(type, block, sums32, call)                                                                                    \
    MATMUL(ntx__interleaved_vec_##type, type, ntx__panel_vec_interleaved_##type, ntx__interleaved_##type, least,       \
           block, true, sums32)

VNNI_INTERLEAVED(q4_0, 13, NTX_QK, false, tile_simple(ps, p, t, R, S, 8, 0))
VNNI_INTERLEAVED(q4_1, 13, NTX_QK, false, tile_simple(ps, p, t, R, S, 0, 0))
VNNI_INTERLEAVED(q5_0, 13, NTX_QK, false, tile_simple(ps, p, t, R, S, 16, 0))
VNNI_INTERLEAVED(q5_1, 13, NTX_QK, false, tile_simple(ps, p, t, R, S, 0, 0))
VNNI_INTERLEAVED(q8_0, 13, NTX_QK, false, tile_simple(ps, p, t, R, S, 128, 0))
#define VNNI_LOOKUP(TYPE, type, scale, raise)                                                                          \
    VNNI_INTERLEAVED(type, 13, NTX_QK, false, tile_simple(ps, p, t, R, S, 1 << raise, 0))
NTX_LOOKUPS(VNNI_LOOKUP)
VNNI(q1_0, NTX_QK, false, tile_simple(ps, p, t, R, S, 1, 0))
VNNI(q2_0, NTX_QK, false, tile_simple(ps, p, t, R, S, 1, 0))
VNNI(nvfp4, NTX_QK, false, tile_halves(ps, p, t, R, S))
VNNI(q2_k, NTX_QKK, false, tile_super(ps, p, t, R, S, 0, 0, 8))
VNNI(q3_k, NTX_QKK, false, tile_super(ps, p, t, R, S, 16, 2, 0))
VNNI_INTERLEAVED(q4_k, 13, NTX_QKK, true, tile_super(ps, p, t, R, S, 32, 0, 4))
VNNI_INTERLEAVED(q5_k, 7, NTX_QKK, true, tile_super(ps, p, t, R, S, 32, 0, 4))
VNNI_INTERLEAVED(q6_k, 5, NTX_QKK, false, tile_super(ps, p, t, R, S, 16, 5, 0))
VNNI_INTERLEAVED(iq4_xs, 7, NTX_QKK, true, tile_super(ps, p, t, R, S, 32, 7, 0))
#define VNNI_CODES(TYPE, type, factor, sub)                                                                            \
    VNNI(type, NTX_QKK, sub != 16, tile_super(ps, p, t, R, S, sub, RAISED_LOG2, 0))
AVX512_CODES(VNNI_CODES)

/* ---- weights in high and low bits, five or more rows */

/* Of high bits alone: Q4_K's and Q5_K's panels have no offset. */
#define rows_high_q4_k rows_q4_k
#define rows_high_q5_k rows_q5_k
ROWS(high_q6_k, tile_super(ps, p, t, R, S, 16, 6, 0))
ROWS(high_q5_0, tile_simple(ps, p, t, R, S, 16, 2))
ROWS(high_q8_0, tile_simple(ps, p, t, R, S, 128, 4))

#define VNNI_PARTS(name, fill, rows, block, sums32, high_block, low_block)                                             \
    ntx_planes_fn name;                                                                                                \
    void name(const struct ntx_planes_weights *w, const void *x, size_t x_stride, uint32_t n_rows, float *y,           \
              size_t ldy)                                                                                              \
    {                                                                                                                  \
        static const struct kind kind = {{fill, block, false}, NULL, 0, sums32};                                       \
        const size_t blocks = w->n_in / (block), row = blocks * (high_block);                                          \
        const struct low_rows low = {w->low, blocks * (low_block)};                                                    \
        const struct shape s = {w->high, x, y, row, x_stride, ldy, w->n_out, w->n_in, w->high + w->n_out * row};       \
        mm_panels(&kind, &s, (low_block) ? &low : NULL, n_rows, rows);                                                 \
    }
#define VNNI_PLANES(type, bits, n, block, sums32)                                                                      \
    VNNI_PARTS(ntx__planesvec_##type##_##bits, ntx__panel_vec_planes_##type##_##bits, rows_##type, block, sums32,      \
               NTX_PLANES_HIGH_BYTES(type, bits, n), NTX_PLANES_LOW_BYTES(bits, n))                                    \
    VNNI_PARTS(ntx__highvec_##type##_##bits, ntx__panel_vec_high_##type##_##bits, rows_high_##type, block, sums32,     \
               NTX_PLANES_HIGH_BYTES(type, bits, n), 0)
VNNI_PLANES(q4_k, 1, 128, NTX_QKK, true)
VNNI_PLANES(q4_k, 2, 128, NTX_QKK, true)
VNNI_PLANES(q5_k, 2, 128, NTX_QKK, true)
VNNI_PLANES(q6_k, 2, 128, NTX_QKK, false)
VNNI_PLANES(q5_0, 2, 16, NTX_QK, false)
VNNI_PLANES(q8_0, 4, 32, NTX_QK, false)
