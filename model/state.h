/* SPDX-License-Identifier: Apache-2.0 */
/* state.h: what a layer keeps of the tokens before, as entries of a table. From it follow the memory for it and where
 * each lies in that, what a snapshot or a file of it has, what is taken back when a text is cut (computed/state/kv.h),
 * and what the planner counts.
 *
 *   ROWS  one for so many positions: K and V of heads, or a latent that both are made of, with the keys that positions
 *         are chosen by in V's place. There is one for
 *         each, until it is written anew; of a window only those of the last positions
 *   TAIL  the last inputs of a convolution, or of what is pooled; of one that adds what follows from the last tokens
 *         (computed/pass/grams.c) another, behind its fold, and these tokens
 *   FOLD  a matrix of each head that every token is folded into
 *
 * Tails and folds are what all tokens so far made: there are no positions in them, and so no holes, no trees, and no
 * way back but to where a copy was made. */
#ifndef NTX_MODEL_STATE_H
#define NTX_MODEL_STATE_H

#include "model/arch.h"

enum ntx_keep { NTX_KEEP_ROWS, NTX_KEEP_TAIL, NTX_KEEP_FOLD };

struct ntx_kept_state {
    uint8_t keep;
    bool windowed;        /* ROWS: of the last positions */
    bool beside;          /* ROWS: a second kind that the layer keeps, always in F16 */
    uint16_t every;       /* ROWS: so many positions have one */
    uint32_t heads, k, v; /* ROWS: values of a head's row */
    size_t floats;        /* TAIL, FOLD */
};

#define NTX_STATES_MOST 3 /* of a layer */

uint32_t ntx_states_of(const struct ntx_hparams *hp, uint32_t layer,
                       struct ntx_kept_state out[NTX_STATES_MOST]); /* how many */
static inline size_t ntx_fold_floats(const struct ntx_hparams *hp)
{
    return (size_t)hp->delta.heads * hp->delta.head * hp->delta.head;
}
/* Of what follows from the last tokens: inputs of its convolution, the oldest first, and behind them the tokens, int32,
 * likewise. */
static inline size_t ntx_grams_floats(const struct ntx_hparams *hp)
{
    return (size_t)(hp->grams.taps - 1) * hp->grams.n * hp->streams.n * hp->n_embd + hp->grams.n - 1;
}
size_t ntx_state_floats(const struct ntx_hparams *hp, uint32_t layer); /* of its tail and fold together */
bool ntx_keeps_rows_only(
    const struct ntx_hparams *hp); /* each layer: texts can be cut anywhere, branch, and have holes */

#endif
