/* amx.h: products for many rows with matrix tiles (AMX-INT8), between amx_pack.c and amx.c.
 *
 * 16 outputs by 256 columns of weights become a panel of small integers. Super-blocks: scale * q has up to 14 bits, so it
 * goes into two planes of bytes; the exact sum over a block is then (low plane . x) + 2^high_bits * (high plane . x), with no scale
 * left inside the integers. Q4_K, Q5_K: q times the scale's low and high three bits, both unsigned (high_bits 3). Q3_K, Q6_K: the
 * product's low byte, unsigned, and its high byte, signed (high_bits 8). Others need one plane, signed. A plane is laid out as a
 * tile wants its right factor: row k holds columns 4 k .. 4 k + 3 of each of the 16 outputs. */
#ifndef NTX_COMPUTED_CPU_AMX_H
#define NTX_COMPUTED_CPU_AMX_H

#include "computed/cpu/avx512.h"

enum {
    PANEL_OUTS = 16,
    PANEL_COLS = 256,
    TILE_ROWS = 16,
    MAX_BLOCKS = 8, /* in a panel: one super-block or eight simple ones */
};

struct panel {
    uint8_t low[PANEL_COLS / 4][PANEL_OUTS * 4] __attribute__((aligned(64)));
    uint8_t high[PANEL_COLS / 4][PANEL_OUTS * 4];
    float d[MAX_BLOCKS][PANEL_OUTS], m[MAX_BLOCKS][PANEL_OUTS];
    int32_t mins[8][PANEL_OUTS]; /* super-blocks: pairs of int16, to meet pairs of sums of x */
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
};

panel_fn ntx__panel_q4_0, ntx__panel_q4_1, ntx__panel_q5_0, ntx__panel_q5_1, ntx__panel_q8_0; /* amx_pack.c */
panel_fn ntx__panel_q2_k, ntx__panel_q3_k, ntx__panel_q4_k, ntx__panel_q5_k, ntx__panel_q6_k;

#endif
