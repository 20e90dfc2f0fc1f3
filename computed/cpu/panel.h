/* SPDX-License-Identifier: Apache-2.0 */
/* panel.h: products for many rows, by panels: 16 outputs times 256 columns of weights as small integers, unpacked once
 * for all rows (panel.c), and multiplied by matrix tiles (AMX-INT8, amx.c) or vectors (VNNI, vnni.c). In a plane, row
 * k holds columns 4 k .. 4 k + 3 of each of the 16 outputs: the layout of a tile's right factor and of VNNI's left
 * one.
 *
 * Simple blocks: one plane of signed bytes for tiles, of unsigned ones (with the type's offset) for vectors. Blocks of
 * several 32s are split into these. NVFP4, whose 16 values share a scale (d of the first, m of the others): signed
 * bytes also for vectors, and x is raised by 128.
 *
 * Super-blocks, for tiles: scale * q has up to 14 bits, so it is split into two planes of bytes. The exact sum over a
 * block is (low plane . x) + 2^high_bits * (high plane . x), with no scale left inside the integers. Q4_K, Q5_K: q
 * times the scale's low and high three bits, both unsigned (high_bits 3). Q3_K, Q6_K, i-quants and ternary types: the
 * product's low byte, unsigned, and its high byte, signed (high_bits 8). Q2_K needs one plane.
 *
 * Super-blocks, for vectors: q in the low plane; each sub-block's sum is multiplied by its scale, and begins with a
 * correction of q's offset. Q2_K as for tiles. */
#ifndef NTX_COMPUTED_CPU_PANEL_H
#define NTX_COMPUTED_CPU_PANEL_H

#include "computed/cpu/avx512.h"
#include "computed/cpu/interleaved.h"
#include "computed/cpu/split.h"

enum {
    PANEL_OUTS = 16,
    PANEL_COLS = 256,
    MAX_BLOCKS = 8, /* blocks of a panel: one super-block or eight simple ones */
};

struct panel {
    uint8_t low[PANEL_COLS / 4][PANEL_OUTS * 4] __attribute__((aligned(64)));
    uint8_t high[PANEL_COLS / 4][PANEL_OUTS * 4]; /* for tiles */
    /* for vectors: scale of each sub-block; NVFP4: -128 times the sum of each 16 values */
    int32_t scale[16][PANEL_OUTS];
    float d[MAX_BLOCKS][PANEL_OUTS], m[MAX_BLOCKS][PANEL_OUTS];
    int32_t mins[8][PANEL_OUTS]; /* super-blocks with minima: pairs of int16, for pairs of sums of x */
};

/* The source of a panel's blocks: 16 rows of w (if n_out < 16, the last is repeated), or an interleaved slice. */
struct panel_from {
    const uint8_t *w;
    size_t row_bytes;
    uint32_t n_out;
    uint32_t blocks; /* of a row */
    /* the panel's first block (32 values or a super-block); the others, b + LANES, ..., share its lane */
    uint32_t b;
    uint32_t place; /* interleaved: number of its tile; the others follow it */
    /* of weights in high and low bits, whose high bits are w: rows of low bits; NULL: the middle */
    const uint8_t *low;
    size_t low_row_bytes;
};

/* Fills p with n_blocks blocks. */
typedef void panel_fn(const struct panel_from *from, uint32_t n_blocks, struct panel *p);

/* ntx__panel_: for tiles, ntx__panel_vec_: for vectors; from rows, from interleaved slices, or from rows in high and
 * low bits or in high bits alone. */
#define PANEL_DECLARE(TYPE, type, ...) panel_fn ntx__panel_##type, ntx__panel_vec_##type;
#define PANEL_DECLARE_INTERLEAVED(TYPE, type, ...)                                                                     \
    panel_fn ntx__panel_interleaved_##type, ntx__panel_vec_interleaved_##type;
AVX512_BLOCKS(PANEL_DECLARE)
INTERLEAVED_TYPES(PANEL_DECLARE_INTERLEAVED)
#define PANEL_DECLARE_PLANES(WHOLE, whole, bits, ...)                                                                  \
    panel_fn ntx__panel_vec_planes_##whole##_##bits, ntx__panel_vec_high_##whole##_##bits;
NTX_PLANES(PANEL_DECLARE_PLANES)

/* ---- shared by amx.c and vnni.c */

/* Byte offsets of the scales and the sums (int32 of 32 values, int16 of 32 or 16) in a quantised row of x. */
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

/* The weights of a type. */
struct panel_kind {
    panel_fn *fill;
    uint32_t block; /* 32 or 256 values */
    bool interleaved;
};

enum { MAX_SLICES = 2 };

/* Panels that are multiplied by the rows of x: one of each of one or two slices, of blocks b, b + LANES, ... */
struct panels {
    struct panel of[MAX_SLICES];
    uint32_t slices, b, n;
    uint32_t turn, turns_log2; /* number of the lane in ntx__lane_order; turns that its sum covers */
    bool first, last;          /* panel of its lane */
    struct {                   /* weights to prefetch meanwhile, and their low bits */
        const uint8_t *at[MAX_SLICES];
        size_t bytes; /* of each slice */
    } next, next_low;
};

typedef void panels_fn(const void *pass, const struct panels *p);

/* Prefetches share t of n of the next weights to the second-level cache; all at once would stall the processor.
 * Prefetches after the weights' end do not fault. */
INLINE void fetch_share(const struct panels *p, uint32_t t, uint32_t n)
{
    for (uint32_t k = 0; k < p->slices; k++) {
        for (size_t at = p->next.bytes * t / n / 64 * 64, to = p->next.bytes * (t + 1) / n; at < to; at += 64)
            _mm_prefetch((const char *)p->next.at[k] + at, _MM_HINT_T1);
        if (!p->next_low.bytes)
            continue;
        for (size_t at = p->next_low.bytes * t / n / 64 * 64, to = p->next_low.bytes * (t + 1) / n; at < to; at += 64)
            _mm_prefetch((const char *)p->next_low.at[k] + at, _MM_HINT_T1);
    }
}

/* Selects what to prefetch while the n blocks before the done-th are multiplied. Interleaved slices: the next panels.
 * Rows, where a panel is spread over many lines: the same part of the next slices. low: NULL, or their low bits. */
INLINE void fetch_ahead(struct panels *p, const struct panel_kind *kind, const struct shape *s,
                        const struct low_rows *low, uint32_t o, uint32_t done, uint32_t blocks)
{
    const size_t slice = PANEL_OUTS * s->row_bytes, tile = slice / blocks,
                 low_slice = low ? PANEL_OUTS * low->row_bytes : 0, low_tile = low_slice / blocks;
    for (uint32_t k = 0; k < p->slices; k++) {
        const uint8_t *here = s->w + o * s->row_bytes + k * slice, *next = here + p->slices * slice;
        if (!kind->interleaved)
            p->next.at[k] = next + (done - p->n) * tile;
        else
            p->next.at[k] = done < blocks ? here + done * tile : next;
        if (low)
            p->next_low.at[k] = low->w + o * low->row_bytes + (k + p->slices) * low_slice + (done - p->n) * low_tile;
    }
    p->next.bytes = p->n * tile;
    p->next_low.bytes = p->n * low_tile;
}

/* Multiplies one or two slices from output o on, lane by lane: each panel by all rows, by `rows`. low: NULL, or the low
 * bits of weights in two parts. */
INLINE void multiply_panels(const struct panel_kind *kind, const struct shape *s, const struct low_rows *low,
                            uint32_t o, uint32_t slices, const void *pass, panels_fn *rows)
{
    struct panels p;
    const uint32_t blocks = s->n_in / kind->block, most = PANEL_COLS / kind->block;
    p.slices = slices;
    p.turn = 0;
    for (uint32_t done = 0; p.turn < LANES; p.turn += 1u << p.turns_log2) {
        const uint32_t lane = ntx__lane_order[p.turn];
        p.turns_log2 = ntx__turns_log2(blocks, p.turn);
        for (p.b = lane; p.b < blocks; p.b += LANES * most) {
            const uint32_t left = (blocks - p.b + LANES - 1) / LANES;
            p.n = left < most ? left : most;
            p.first = p.b == lane;
            p.last = left <= most;
            for (uint32_t k = 0; k < slices; k++) {
                uint32_t at = o + k * PANEL_OUTS, n_out = s->n_out - at < PANEL_OUTS ? s->n_out - at : PANEL_OUTS;
                struct panel_from from = {.w = s->w + at * s->row_bytes,
                                          .row_bytes = s->row_bytes,
                                          .n_out = n_out,
                                          .blocks = blocks,
                                          .b = p.b,
                                          .place = done};
                if (low) {
                    from.low = low->w + at * low->row_bytes;
                    from.low_row_bytes = low->row_bytes;
                }
                kind->fill(&from, p.n, &p.of[k]);
            }
            done += p.n;
            fetch_ahead(&p, kind, s, low, o, done, blocks);
            rows(pass, &p);
        }
    }
}

#endif
