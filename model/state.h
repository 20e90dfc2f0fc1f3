/* SPDX-License-Identifier: Apache-2.0 */
/* state.h: the state that a layer keeps of earlier tokens, as a table. From it follow its memory and layout, the
 * contents of a snapshot or of a state file, what is dropped when a text is cut (computed/state/kv.h), and the
 * planner's counts.
 *
 *   ROWS  one entry for one or more positions: K and V of heads; or an MLA latent, with the indexer's key in V's
 *         place. An entry stays until it is overwritten; with a window only the last positions are kept
 *   TAIL  the last inputs of a convolution, or of pooling. A layer with n-gram embeddings (computed/pass/grams.c) has
 *         another one behind its fold, with the last tokens
 *   FOLD  a matrix for each head, updated by every token; none where the convolution is all
 *
 * Tails and folds depend on all tokens so far. They have no positions, so no holes and no trees, and they go back
 * only to where a copy was made. */
#ifndef NTX_MODEL_STATE_H
#define NTX_MODEL_STATE_H

#include "model/arch.h"

enum ntx_keep { NTX_KEEP_ROWS, NTX_KEEP_TAIL, NTX_KEEP_FOLD };

struct ntx_kept_state {
    uint8_t keep;
    bool windowed;        /* ROWS: only the last positions */
    bool beside;          /* ROWS: a second kind of rows, always F16 */
    uint16_t every;       /* ROWS: positions for one entry */
    uint32_t heads, k, v; /* ROWS: heads, and values of K and V of a head */
    size_t floats;        /* TAIL, FOLD */
};

#define NTX_STATES_MOST 4 /* most states of a layer */

uint32_t ntx_states_of(const struct ntx_hparams *hp, uint32_t layer,
                       struct ntx_kept_state out[NTX_STATES_MOST]); /* returns their number */
static inline size_t ntx_fold_floats(const struct ntx_hparams *hp)
{
    return (size_t)hp->delta.heads * hp->delta.keys * hp->delta.head;
}
/* Floats of the n-gram state: inputs of its convolution, oldest first, then the last tokens (int32), likewise. */
static inline size_t ntx_grams_floats(const struct ntx_hparams *hp)
{
    return (size_t)(hp->grams.taps - 1) * hp->grams.n * hp->streams.n * hp->n_embd + hp->grams.n - 1;
}
size_t ntx_state_floats(const struct ntx_hparams *hp, uint32_t layer); /* of tail and fold together */
bool ntx_keeps_rows_only(
    const struct ntx_hparams *hp); /* all layers have only rows: texts can be cut anywhere, branch, and have holes */

#endif
