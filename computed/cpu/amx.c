/* SPDX-License-Identifier: Apache-2.0 */
/* amx.c: many rows of x at once, with matrix tiles (AMX). The order is the same as everywhere (cpu.h): a tile holds
 * the exact integer sums of one block for 16 rows and 16 outputs, which are then added to the float accumulators of
 * lane b % 16.
 *
 * A band of rows (as many as keep x and the accumulators in the second-level cache) passes over 16 outputs at a time:
 *
 *   for each 256 columns: weights -> panel (once); for each 16 rows: tiles, then acc[rows][lane b % 16] += ...
 *   then the tree over the 16 lanes.
 *
 * A last tile that is not full starts earlier, so that its first rows are computed twice, with the same result. */
#include "computed/cpu/panel.h"

enum {
    TILE_ROWS = 16,
    MIN_ROWS = 5,         /* for fewer rows the vector kernels are faster */
    MAX_TILES = 16,       /* of rows in a band */
    BAND_BYTES = 3 << 19, /* of x in a band */
};

/* acc[tile][lane][row][out] */
typedef float tile_acc[LANES][TILE_ROWS][PANEL_OUTS];

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0 1: sums of the low and high plane; 2 3: the same for a second set of rows; 4 5: x; 6 7: weights. */
static void configure(uint32_t rows, uint32_t cols)
{
    struct tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.row_bytes[t] = 64;
        c.rows[t] = (uint8_t)(t < 6 ? rows : cols / 4);
    }
    c.row_bytes[4] = c.row_bytes[5] = (uint16_t)cols;
    _tile_loadconfig(&c);
}

struct kind {
    struct panel_kind weights;
    uint32_t high_bits; /* 0: one plane */
    bool has_min;
    uint32_t min_pairs; /* super-blocks: 4 (minima of 32 values) or 8 (of 16) */
    bool halves;        /* simple blocks: each 16 values have a scale */
};

/* One pass over a band: 16 outputs. */
struct pass {
    const struct kind *kind;
    const char *x; /* first row of the band */
    size_t x_stride;
    struct x_parts at;
    uint32_t rows; /* in a tile: 16, or all of x */
    uint32_t n_tiles;
    uint32_t first[MAX_TILES]; /* row of each tile */
    tile_acc *acc;
};

struct sums {
    int32_t low[TILE_ROWS][PANEL_OUTS] __attribute__((aligned(64)));
    int32_t high[TILE_ROWS][PANEL_OUTS];
};

INLINE void store_tiles(const uint32_t high_bits, struct sums out[2])
{
    _tile_stored(0, out[0].low, 64);
    _tile_stored(2, out[1].low, 64);
    if (high_bits) {
        _tile_stored(1, out[0].high, 64);
        _tile_stored(3, out[1].high, 64);
    }
}

/* Sums of a super-block for two sets of rows. */
INLINE void tiles_super(const struct panel *p, const char *xa, const char *xb, size_t stride, const uint32_t high_bits,
                        struct sums out[2])
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t s = 0; s < 4; s++) {
        _tile_loadd(4, xa + 64 * s, stride);
        _tile_loadd(5, xb + 64 * s, stride);
        _tile_loadd(6, p->low[16 * s], 64);
        if (high_bits) {
            _tile_loadd(7, p->high[16 * s], 64);
            _tile_dpbsud(0, 4, 6);
            _tile_dpbsud(2, 5, 6);
            if (high_bits == 8) {
                _tile_dpbssd(1, 4, 7);
                _tile_dpbssd(3, 5, 7);
            } else {
                _tile_dpbsud(1, 4, 7);
                _tile_dpbsud(3, 5, 7);
            }
        } else {
            _tile_dpbssd(0, 4, 6);
            _tile_dpbssd(2, 5, 6);
        }
    }
    store_tiles(high_bits, out);
}

/* The same for one set of rows: out[0] has the first half of the columns, out[1] the second. Two accumulators are used
 * since products of one tile wait for one another. */
INLINE void tiles_halves(const struct panel *p, const char *x, size_t stride, const uint32_t high_bits,
                         struct sums out[2])
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t s = 0; s < 2; s++) {
        _tile_loadd(4, x + 64 * s, stride);
        _tile_loadd(5, x + 64 * (s + 2), stride);
        _tile_loadd(6, p->low[16 * s], 64);
        _tile_loadd(7, p->low[16 * (s + 2)], 64);
        if (!high_bits) {
            _tile_dpbssd(0, 4, 6);
            _tile_dpbssd(2, 5, 7);
            continue;
        }
        _tile_dpbsud(0, 4, 6);
        _tile_dpbsud(2, 5, 7);
        _tile_loadd(6, p->high[16 * s], 64);
        _tile_loadd(7, p->high[16 * (s + 2)], 64);
        if (high_bits == 8) {
            _tile_dpbssd(1, 4, 6);
            _tile_dpbssd(3, 5, 7);
        } else {
            _tile_dpbsud(1, 4, 6);
            _tile_dpbsud(3, 5, 7);
        }
    }
    store_tiles(high_bits, out);
}

/* Sums of a tile's columns, from the panel's row `row` on, for two sets of rows. */
INLINE void tiles_simple(const struct panel *p, uint32_t row, const char *xa, const char *xb, size_t stride,
                         struct sums out[2])
{
    _tile_zero(0);
    _tile_zero(2);
    _tile_loadd(6, p->low[row], 64);
    _tile_loadd(4, xa, stride);
    _tile_loadd(5, xb, stride);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(2, 5, 6);
    _tile_stored(0, out[0].low, 64);
    _tile_stored(2, out[1].low, 64);
}

/* acc (+)= a * b; the first block of a lane starts from +0. */
INLINE __m512 start_or_add(__m512 a, __m512 b, const float *acc, bool start)
{
    return _mm512_fmadd_ps(a, b, start ? _mm512_setzero_ps() : _mm512_load_ps(acc));
}

/* The tree over the 16 lanes of one row, whose accumulators are `apart` floats per lane; stores n_out outputs to y. */
INLINE void join_row(const float *acc, size_t apart, uint32_t blocks, uint32_t n_out, float *y)
{
    __m512 v[LANES];
    for (uint32_t l = 0; l < LANES; l++)
        v[l] = l < blocks ? _mm512_load_ps(acc + l * apart) : _mm512_setzero_ps();
    for (int step = LANES / 2; step; step /= 2)
        for (int l = 0; l < step; l++)
            v[l] = _mm512_add_ps(v[l], v[l + step]);
    _mm512_mask_storeu_ps(y, first_lanes(n_out), v[0]);
}

INLINE float x_scale(const struct pass *ps, const char *x, uint32_t b)
{
    float d;
    memcpy(&d, x + ps->at.d_at + 4 * (size_t)b, 4);
    return d;
}

INLINE __m512i sums_of(const struct sums *s, uint32_t r, const bool halves, const uint32_t high_bits)
{
    __m512i low = _mm512_load_si512(s[0].low[r]), high;
    if (halves)
        low = _mm512_add_epi32(low, _mm512_load_si512(s[1].low[r]));
    if (!high_bits)
        return low;
    high = _mm512_load_si512(s[0].high[r]);
    if (halves)
        high = _mm512_add_epi32(high, _mm512_load_si512(s[1].high[r]));
    return _mm512_add_epi32(low, _mm512_slli_epi32(high, high_bits));
}

/* Adds the sums of super-block b (halves: in two parts) to the accumulators of a tile. */
INLINE void scale_super(const struct pass *ps, const struct panel *p, const struct sums *s, const bool halves,
                        uint32_t b, uint32_t tile, const uint32_t high_bits, const uint32_t min_pairs)
{
    const char *x = ps->x + ps->first[tile] * ps->x_stride;
    __m512 d = _mm512_load_ps(p->d[0]), m = _mm512_load_ps(p->m[0]);
    for (uint32_t r = 0; r < ps->rows; r++, x += ps->x_stride) {
        float *acc = ps->acc[tile][b % LANES][r];
        __m512 dx = _mm512_set1_ps(x_scale(ps, x, b));
        __m512i i = sums_of(s, r, halves, high_bits);
        __m512 v = start_or_add(_mm512_cvtepi32_ps(i), _mm512_mul_ps(d, dx), acc, b < LANES);
        if (min_pairs) {
            const char *xs = x + ps->at.sums_at + (size_t)b * 4 * min_pairs;
            __m512i j = _mm512_setzero_si512();
            for (uint32_t k = 0; k < min_pairs; k++) {
                int32_t pair;
                memcpy(&pair, xs + 4 * k, 4);
                j = _mm512_dpwssd_epi32(j, _mm512_load_si512(p->mins[k]), _mm512_set1_epi32(pair));
            }
            v = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(j), _mm512_mul_ps(m, dx), v);
        }
        _mm512_store_ps(acc, v);
    }
}

/* Adds the sums of simple block b, or of half of it, to the accumulators of a tile. k: number of b in its panel. */
INLINE void scale_simple(const struct pass *ps, const struct panel *p, const struct sums *s, uint32_t b, uint32_t k,
                         uint32_t tile, const bool has_min, const bool second)
{
    const char *x = ps->x + ps->first[tile] * ps->x_stride;
    __m512 d = _mm512_load_ps(second ? p->m[k] : p->d[k]), m = _mm512_load_ps(p->m[k]);
    for (uint32_t r = 0; r < ps->rows; r++, x += ps->x_stride) {
        float *acc = ps->acc[tile][b % LANES][r];
        __m512 dx = _mm512_set1_ps(x_scale(ps, x, b));
        __m512 v = start_or_add(_mm512_cvtepi32_ps(_mm512_load_si512(s->low[r])), _mm512_mul_ps(d, dx), acc,
                                b < LANES && !second);
        if (has_min) {
            int32_t xs;
            memcpy(&xs, x + ps->at.sums_at + 4 * (size_t)b, 4);
            v = _mm512_fmadd_ps(_mm512_set1_ps((float)xs), _mm512_mul_ps(m, dx), v);
        }
        _mm512_store_ps(acc, v);
    }
}

/* Multiplies two tiles of rows, t and u (which may be the same), by a panel whose first block is b. halves: 2 if each
 * half of a simple block has a scale. */
INLINE void panel_rows(const struct pass *ps, const struct panel *p, uint32_t b, uint32_t n_blocks, uint32_t t,
                       uint32_t u, const bool super, const uint32_t halves, const uint32_t high_bits,
                       const uint32_t min_pairs)
{
    struct sums s[2];
    const char *xa = ps->x + ps->first[t] * ps->x_stride, *xb = ps->x + ps->first[u] * ps->x_stride;
    if (super && u == t) {
        tiles_halves(p, xa + (size_t)b * NTX_QKK, ps->x_stride, high_bits, s);
        scale_super(ps, p, s, true, b, t, high_bits, min_pairs);
        return;
    }
    if (super) {
        tiles_super(p, xa + (size_t)b * NTX_QKK, xb + (size_t)b * NTX_QKK, ps->x_stride, high_bits, s);
        scale_super(ps, p, &s[0], false, b, t, high_bits, min_pairs);
        scale_super(ps, p, &s[1], false, b, u, high_bits, min_pairs);
        return;
    }
    for (uint32_t k = 0; k < n_blocks; k++, b += LANES) {
        size_t at = (size_t)b * NTX_QK;
        for (uint32_t half = 0; half < halves; half++) {
            size_t more = half * (NTX_QK / 2);
            tiles_simple(p, 8 * k + 4 * half, xa + at + more, xb + at + more, ps->x_stride, s);
            scale_simple(ps, p, &s[0], b, k, t, min_pairs != 0, half);
            if (u != t)
                scale_simple(ps, p, &s[1], b, k, u, min_pairs != 0, half);
        }
    }
}

static void panel_all_rows(const void *pass, const struct panels *p)
{
    const struct pass *ps = pass;
    for (uint32_t t = 0; t < ps->n_tiles; t += 2) {
        uint32_t u = t + 1 < ps->n_tiles ? t + 1 : t;
        fetch_share(p, t / 2, (ps->n_tiles + 1) / 2);
        if (ps->kind->halves)
            panel_rows(ps, p->of, p->b, p->n, t, u, false, 2, 0, 0);
        else if (ps->kind->weights.block == NTX_QK)
            panel_rows(ps, p->of, p->b, p->n, t, u, false, 1, 0, ps->kind->has_min);
        else if (!ps->kind->high_bits)
            panel_rows(ps, p->of, p->b, 1, t, u, true, 1, 0, 8);
        else if (ps->kind->high_bits == 3)
            panel_rows(ps, p->of, p->b, 1, t, u, true, 1, 3, 4);
        else
            panel_rows(ps, p->of, p->b, 1, t, u, true, 1, 8, 0);
    }
}

/* Cuts a band of at least MIN_ROWS rows into tiles. */
static void lay_tiles(struct pass *ps, uint32_t n_rows)
{
    ps->rows = n_rows < TILE_ROWS ? n_rows : TILE_ROWS;
    ps->n_tiles = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
    for (uint32_t t = 0; t < ps->n_tiles; t++)
        ps->first[t] = (t + 1) * TILE_ROWS <= n_rows ? t * TILE_ROWS : n_rows - ps->rows;
}

static uint32_t band_rows(size_t x_stride)
{
    size_t tiles = BAND_BYTES / x_stride / TILE_ROWS;
    if (tiles < 2)
        tiles = 2;
    return TILE_ROWS * (uint32_t)(tiles > MAX_TILES ? MAX_TILES : tiles);
}

static void mm_tiles(const struct kind *kind, ntx_matmul_fn *few, const struct shape *s, uint32_t n_rows)
{
    tile_acc acc[MAX_TILES] __attribute__((aligned(64)));
    struct pass ps = {.kind = kind, .x_stride = s->x_stride, .acc = acc};
    bool is_super = kind->weights.block == NTX_QKK;
    const uint32_t simple_cols = kind->halves ? NTX_QK / 2 : NTX_QK;
    ps.at = x_parts_of(s->x, s->n_in, is_super, kind->min_pairs == 4);
    uint32_t band = band_rows(s->x_stride);
    for (uint32_t r = 0; r < n_rows;) {
        uint32_t here = n_rows - r < band ? n_rows - r : band;
        ps.x = s->x + r * s->x_stride;
        float *y = s->y + r * s->ldy;
        if (here < MIN_ROWS) {
            few(s->w, s->row_bytes, s->n_out, s->n_in, ps.x, s->x_stride, here, y, s->ldy);
            return;
        }
        lay_tiles(&ps, here);
        configure(ps.rows, is_super ? 64 : simple_cols);
        for (uint32_t o = 0; o < s->n_out; o += PANEL_OUTS) {
            multiply_panels(&kind->weights, s, NULL, o, 1, &ps, panel_all_rows);
            for (uint32_t t = 0; t < ps.n_tiles; t++)
                for (uint32_t k = 0; k < ps.rows; k++)
                    join_row(acc[t][0][k], TILE_ROWS * PANEL_OUTS, s->n_in / kind->weights.block,
                             s->n_out - o < PANEL_OUTS ? s->n_out - o : PANEL_OUTS, y + (ps.first[t] + k) * s->ldy + o);
        }
        _tile_release();
        r += here;
    }
}

#define AMX_KIND(name, interleaved, fill, few, block, high_bits, has_min, min_pairs, halves)                           \
    DECLARE_MATMUL(name)                                                                                               \
    {                                                                                                                  \
        static const struct kind kind = {{fill, block, interleaved}, high_bits, has_min, min_pairs, halves};           \
        const struct shape s = {                                                                                       \
            w, x, y, row_bytes, x_stride, ldy, n_out, n_in, (const uint8_t *)w + n_out * row_bytes};                   \
        if (n_rows < MIN_ROWS)                                                                                         \
            few(w, row_bytes, n_out, n_in, x, x_stride, n_rows, y, ldy);                                               \
        else                                                                                                           \
            mm_tiles(&kind, few, &s, n_rows);                                                                          \
    }

#define AMX_MATMUL(type, ...)                                                                                          \
    AMX_KIND(ntx__mmamx_##type, false, ntx__panel_##type, ntx__mm512_##type, __VA_ARGS__, false)
#define AMX_HALVES(type)                                                                                               \
    AMX_KIND(ntx__mmamx_##type, false, ntx__panel_##type, ntx__mm512_##type, NTX_QK, 0, false, 0, true)
#define AMX_INTERLEAVED(type, ...)                                                                                     \
    AMX_KIND(ntx__interleaved_amx_##type, true, ntx__panel_interleaved_##type, ntx__interleaved_##type, __VA_ARGS__,   \
             false)

AMX_MATMUL(q4_0, NTX_QK, 0, false, 0)
AMX_MATMUL(q4_1, NTX_QK, 0, true, 0)
AMX_MATMUL(q5_0, NTX_QK, 0, false, 0)
AMX_MATMUL(q5_1, NTX_QK, 0, true, 0)
AMX_MATMUL(q8_0, NTX_QK, 0, false, 0)
AMX_MATMUL(q1_0, NTX_QK, 0, false, 0)
AMX_MATMUL(q2_0, NTX_QK, 0, false, 0)
AMX_HALVES(nvfp4)
AMX_MATMUL(q2_k, NTX_QKK, 0, true, 8)
AMX_MATMUL(q3_k, NTX_QKK, 8, false, 0)
AMX_MATMUL(q4_k, NTX_QKK, 3, true, 4)
AMX_MATMUL(q5_k, NTX_QKK, 3, true, 4)
AMX_MATMUL(q6_k, NTX_QKK, 8, false, 0)
AMX_INTERLEAVED(q4_0, NTX_QK, 0, false, 0)
AMX_INTERLEAVED(q4_1, NTX_QK, 0, true, 0)
AMX_INTERLEAVED(q5_0, NTX_QK, 0, false, 0)
AMX_INTERLEAVED(q5_1, NTX_QK, 0, true, 0)
AMX_INTERLEAVED(q8_0, NTX_QK, 0, false, 0)
AMX_INTERLEAVED(q4_k, NTX_QKK, 3, true, 4)
AMX_INTERLEAVED(q5_k, NTX_QKK, 3, true, 4)
AMX_INTERLEAVED(q6_k, NTX_QKK, 8, false, 0)
#define AMX_LOOKUP(TYPE, type, scale, raise)                                                                           \
    AMX_MATMUL(type, NTX_QK, 0, false, 0)                                                                              \
    AMX_INTERLEAVED(type, NTX_QK, 0, false, 0)
NTX_LOOKUPS(AMX_LOOKUP)
AMX_MATMUL(iq4_xs, NTX_QKK, 8, false, 0)
AMX_INTERLEAVED(iq4_xs, NTX_QKK, 8, false, 0)
#define AMX_CODES(TYPE, type, ...) AMX_MATMUL(type, NTX_QKK, 8, false, 0)
AVX512_CODES(AMX_CODES)
