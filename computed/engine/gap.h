/* SPDX-License-Identifier: Apache-2.0 */
/* gap.h: how many rows of prompts a pass has while answers are written. Each of these rows makes the pass longer, and
 * with it the gap between two tokens of every answer. So their number follows a target for the time of a pass:
 * --max-gap, or twice a pass without prompts where that is more (a large model, or one that a drive streams: there more
 * rows of a prompt cost little). The model of the time, learned from the recent passes:
 *
 *     ns of a pass = base + row x rows of prompts + deep x the sum of their positions
 *
 * base is the recent mean of passes without prompts. Where none came for a while, one pass has no row of a prompt. The
 * number at most doubles from pass to pass, so a wrong model costs little. Pure; it changes no token, since the value
 * of a row depends on its own session alone. */
#ifndef NTX_COMPUTED_ENGINE_GAP_H
#define NTX_COMPUTED_ENGINE_GAP_H

#include <stdbool.h>
#include <stdint.h>

#define NTX_GAP_S     0.35  /* default target */
#define NTX_GAP_NEVER 3600u /* a target of so many seconds: there is no limit */

struct ntx_gap {
    double target;             /* ns; 0: there is no limit */
    double base;               /* ns; 0: unknown */
    double rr, rd, dd, ry, dy; /* recent sums of products over rows; r: rows, d: positions, y: ns beyond base */
    double row, deep;          /* ns, as fitted */
    uint32_t allowed, last;    /* rows: for the next pass; that the last one beside answers might have */
    uint32_t since;            /* passes beside answers since base was measured */
};

void ntx_gap_begin(struct ntx_gap *g, double seconds /* 0: the default */);
/* Rows of prompts for a pass beside answers, 0 to `most`. depth: mean position of the prompts' next rows. */
uint32_t ntx_gap_rows(struct ntx_gap *g, double depth, uint32_t most);
/* A pass took so long. rows, depths: of prompts, and the sum of their positions. answers: it had rows of answers. */
void ntx_gap_pass(struct ntx_gap *g, uint32_t rows, double depths, bool answers, double ns);

#endif
