/* SPDX-License-Identifier: Apache-2.0 */
/* recur.h: what a pass reads and writes of tails and folds (model/state.h). Those of all layers together are a side: it
 * does not grow with the text, and is what all tokens up to `at` made of it.
 *
 * A sequence has two sides. A pass reads one, `now`, and writes the other, `next`; when it is over, ntx_recur_step
 * makes next the one that counts. So a pass that failed, or was cancelled, has changed nothing; and the side before is
 * still there to go back to, until the next pass. What it will be within the next pass that pass leaves on a side of
 * its own as it comes by (a stop: ntx_kv_snapshot_ahead), for a mark.
 *
 *   side     [layers]{ tail, fold }
 *   tail     of a convolution: float [taps - 1][its width], the oldest first; of what is to be pooled: forward_pool.c
 *   fold     float [heads][panels][head: by key][panel: by value] columns of a panel lie together: a panel stays in the
 *            first cache for all rows of a pass
 *
 * Of a sequence of a model that keeps such. Not thread-safe: the engine thread calls; compute threads fill what
 * ntx_recur_next gave, each its own part. */
#ifndef NTX_COMPUTED_STATE_RECUR_H
#define NTX_COMPUTED_STATE_RECUR_H

#include "model/state.h"

#define NTX_RECUR_STOPS 3 /* of a sequence in a pass */

struct ntx_kv_seq;

/* Columns of a head's matrix that lie together. */
static inline uint32_t ntx_recur_panel(const struct ntx_hparams *hp) { return hp->delta.head % 32 ? 16 : 32; }

uint64_t ntx_recur_bytes(const struct ntx_hparams *hp); /* of a sequence's two sides; 0: the model keeps no such */
uint32_t ntx_recur_at(const struct ntx_kv_seq *s);      /* tokens in it */

/* A pass begins with the token at position pos: 0 begins anew. -EINVAL: it is another's turn. */
int ntx_recur_begin(struct ntx_kv_seq *s, uint32_t pos);
/* Of a layer. NULL: nothing yet, which counts as zeros. */
const float *ntx_recur_tail(const struct ntx_kv_seq *s, uint32_t layer);
const float *ntx_recur_fold(const struct ntx_kv_seq *s, uint32_t layer);
float *ntx_recur_next_tail(const struct ntx_kv_seq *s, uint32_t layer); /* to be filled, all of it */
float *ntx_recur_next_fold(const struct ntx_kv_seq *s, uint32_t layer);
/* Of a stop with the first n tokens, to be filled; NULL: there is none. */
float *ntx_recur_stop_tail(const struct ntx_kv_seq *s, uint32_t n, uint32_t layer);
float *ntx_recur_stop_fold(const struct ntx_kv_seq *s, uint32_t n, uint32_t layer);
/* Where these lie, in bytes from the beginning of all sides: for a device, which has them in the same places. */
uint64_t ntx_recur_buffer(const struct ntx_kv_seq *s, bool next);
uint64_t ntx_recur_layer(const struct ntx_hparams *hp, uint32_t layer,
                         enum ntx_keep keep); /* its tail or fold, from a side's beginning on */
/* What was filled counts: n tokens more. */
void ntx_recur_step(struct ntx_kv_seq *s, uint32_t n);

#endif
