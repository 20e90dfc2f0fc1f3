/* panel.h: products for many rows, by panels: 16 outputs by 256 columns of weights as small integers, unpacked once for all rows
 * (panel.c). Multiplied by matrix tiles (AMX-INT8, amx.c) or by vectors (VNNI, vnni.c). In a plane, row k holds columns
 * 4 k .. 4 k + 3 of each of the 16 outputs: what a tile wants as its right factor, and VNNI as its left one.
 *
 * Simple blocks: one plane, for tiles of signed bytes, for vectors of unsigned ones (more by the type's offset).
 * Super-blocks, for tiles: scale * q has up to 14 bits, so it goes into two planes of bytes; the exact sum over a block is then
 * (low plane . x) + 2^high_bits * (high plane . x), with no scale left inside the integers. Q4_K, Q5_K: q times the scale's low and
 * high three bits, both unsigned (high_bits 3). Q3_K, Q6_K: the product's low byte, unsigned, and its high byte, signed (high_bits 8).
 * Q2_K needs one plane.
 * Super-blocks, for vectors: q as it is in the low plane; each sub-block's sum is multiplied by its scale. Q2_K as for tiles. */
#ifndef NTX_COMPUTED_CPU_PANEL_H
#define NTX_COMPUTED_CPU_PANEL_H

#include "computed/cpu/avx512.h"
#include "computed/cpu/woven.h"

enum {
    PANEL_OUTS = 16,
    PANEL_COLS = 256,
    MAX_BLOCKS = 8, /* in a panel: one super-block or eight simple ones */
    MAX_PANEL_BYTES = 272, /* of a row: eight blocks of Q8_0 */
};

struct panel {
    uint8_t low[PANEL_COLS / 4][PANEL_OUTS * 4] __attribute__((aligned(64)));
    uint8_t high[PANEL_COLS / 4][PANEL_OUTS * 4]; /* for tiles */
    int32_t scale[16][PANEL_OUTS];                /* for vectors: of each sub-block */
    float d[MAX_BLOCKS][PANEL_OUTS], m[MAX_BLOCKS][PANEL_OUTS];
    int32_t mins[8][PANEL_OUTS]; /* super-blocks: pairs of int16, to meet pairs of sums of x; for vectors also -offset * scale */
};

/* Fills p from n_blocks blocks of 16 rows of weights. */
typedef void panel_fn(const uint8_t *const w[PANEL_OUTS], uint32_t n_blocks, struct panel *p);

struct panel_kind {
    panel_fn *pack;
    uint32_t block;       /* 32 or 256 values */
    uint32_t block_bytes;
    uint32_t high_bits;   /* 0: one plane */
    bool has_min;
    uint32_t min_pairs;   /* super-blocks: 4 (minima of 32 values) or 8 (of 16) */
    ntx__unweave_fn *unweave; /* NULL: the weights are not woven */
};

panel_fn ntx__panel_q4_0, ntx__panel_q4_1, ntx__panel_q5_0, ntx__panel_q5_1, ntx__panel_q8_0; /* for tiles */
panel_fn ntx__panel_q2_k, ntx__panel_q3_k, ntx__panel_q4_k, ntx__panel_q5_k, ntx__panel_q6_k;
panel_fn ntx__panel_vec_q4_0, ntx__panel_vec_q4_1, ntx__panel_vec_q5_0, ntx__panel_vec_q5_1, ntx__panel_vec_q8_0; /* for vectors */
panel_fn ntx__panel_vec_q2_k, ntx__panel_vec_q3_k, ntx__panel_vec_q4_k, ntx__panel_vec_q5_k, ntx__panel_vec_q6_k;

/* ---- what amx.c and vnni.c share */

/* Where a packed row of x has its scales and its sums (int32 of 32, int16 of 32 or of 16), in bytes from its start. */
struct x_parts {
    size_t d_at, sums_at;
};

INLINE struct x_parts x_parts_of(const void *x, uint32_t n_in, const bool super, const bool sums32)
{
    const char *row = x;
    if (!super) {
        struct q8_row v = q8_view(x, n_in);
        return (struct x_parts){(size_t)((const char *)v.d - row), (size_t)((const char *)v.s - row)};
    }
    struct q8k_row v = q8k_view(x, n_in);
    return (struct x_parts){(size_t)((const char *)v.d - row), (size_t)((const char *)(sums32 ? v.s32 : v.s16) - row)};
}

/* acc (+)= a * b; the first block of a lane starts from +0. */
INLINE __m512 start_or_add(__m512 a, __m512 b, const float *acc, bool start)
{
    return _mm512_fmadd_ps(a, b, start ? _mm512_setzero_ps() : _mm512_load_ps(acc));
}

/* Fetches a panel's weights while another is multiplied: 16 rows are too many runs for the processor's own prefetchers. Behind the
 * weights' end this reads nothing. */
INLINE void fetch_panel(const uint8_t *w, size_t row_bytes, size_t bytes)
{
    for (uint32_t o = 0; o < PANEL_OUTS; o++)
        for (size_t at = 0; at < bytes + 63; at += 64)
            _mm_prefetch((const char *)w + o * row_bytes + at, _MM_HINT_T0);
}

/* 16 outputs (or the n_out < 16 last): each panel in turn against all rows, by `rows`. */
INLINE void multiply_panels(const struct panel_kind *kind, const uint8_t *w, size_t row_bytes, uint32_t n_out, uint32_t n_in, const void *pass,
                            void (*rows)(const void *pass, const struct panel *p, uint32_t b, uint32_t n_blocks))
{
    struct panel panel;
    const uint8_t *at[PANEL_OUTS];
    uint8_t unwoven[PANEL_OUTS][MAX_PANEL_BYTES];
    uint32_t blocks = n_in / kind->block, step = PANEL_COLS / kind->block;
    for (uint32_t b = 0; b < blocks; b += step) {
        uint32_t here = blocks - b < step ? blocks - b : step;
        if (kind->unweave) {
            for (uint32_t k = 0; k < here; k++)
                kind->unweave(w, blocks, b + k, unwoven[0] + k * kind->block_bytes, sizeof unwoven[0]);
            for (uint32_t o = 0; o < PANEL_OUTS; o++)
                at[o] = unwoven[o];
            kind->pack(at, here, &panel);
            fetch_ahead(w + (size_t)(b + step) * kind->block_bytes * PANEL_OUTS, (size_t)step * kind->block_bytes * PANEL_OUTS, 0, false);
            rows(pass, &panel, b, here);
            continue;
        }
        for (uint32_t o = 0; o < PANEL_OUTS; o++)
            at[o] = w + (o < n_out ? o : n_out - 1) * row_bytes + (size_t)b * kind->block_bytes;
        kind->pack(at, here, &panel);
        size_t next = (size_t)(b + step) * kind->block_bytes; /* after the last, those of the next 16 outputs */
        fetch_panel(w + (b + step < blocks ? next : PANEL_OUTS * row_bytes), row_bytes, (size_t)step * kind->block_bytes);
        rows(pass, &panel, b, here);
    }
}

/* The tree over the 16 lanes of one row, whose accumulators lie `apart` floats from one lane to the next; n_out outputs to y. */
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

#endif
