/* SPDX-License-Identifier: Apache-2.0 */
/* recur.h: recurrent state: what a pass reads and writes of tails and folds (model/state.h). Those of all layers
 * together are a state buffer. It does not grow with the text, and depends on all tokens up to `at`.
 *
 * A sequence has two buffers. A pass reads one, `now`, and writes the other, `next`; at its end ntx_recur_step swaps
 * them. So a pass that failed or was cancelled has changed nothing, and the previous state can be gone back to until
 * the next pass. A state within the next pass is left in another buffer as the pass comes by (a stop:
 * ntx_kv_snapshot_ahead), for a snapshot.
 *
 *   buffer   [layers]{ tail, fold }
 *   tail     of a convolution: float [taps - 1][its width], oldest first; of pooled positions: see forward_pool.c
 *   fold     float [heads][panels][keys][panel: by value] columns of a panel are contiguous: a panel stays in
 *            the first-level cache for all rows of a pass
 *
 * For sequences of models that have such state. Not thread-safe: the engine thread calls; compute threads fill what the
 * ntx_recur_next functions return, each its own part. */
#ifndef NTX_COMPUTED_STATE_RECUR_H
#define NTX_COMPUTED_STATE_RECUR_H

#include "model/state.h"

#define NTX_RECUR_STOPS 3 /* of a sequence in a pass */

struct ntx_kv_seq;

/* Columns of a head's matrix that are contiguous. */
static inline uint32_t ntx_recur_panel(const struct ntx_hparams *hp) { return hp->delta.head % 32 ? 16 : 32; }

/* bytes of a sequence's two buffers; 0: the model has no such state */
uint64_t ntx_recur_bytes(const struct ntx_hparams *hp);
uint32_t ntx_recur_at(const struct ntx_kv_seq *s); /* tokens in it */

/* A pass begins with the token at position pos; 0 starts afresh. -EINVAL: the state is at another token. */
int ntx_recur_begin(struct ntx_kv_seq *s, uint32_t pos);
/* Of a layer. NULL: no token yet, which counts as zeros. */
const float *ntx_recur_tail(const struct ntx_kv_seq *s, uint32_t layer);
const float *ntx_recur_fold(const struct ntx_kv_seq *s, uint32_t layer);
float *ntx_recur_next_tail(const struct ntx_kv_seq *s, uint32_t layer); /* to be filled, all of it */
float *ntx_recur_next_fold(const struct ntx_kv_seq *s, uint32_t layer);
/* Of a stop with the first n tokens, to be filled; NULL: there is none. */
float *ntx_recur_stop_tail(const struct ntx_kv_seq *s, uint32_t n, uint32_t layer);
float *ntx_recur_stop_fold(const struct ntx_kv_seq *s, uint32_t n, uint32_t layer);
/* Offsets in bytes from the beginning of all buffers: for a device, which has them in the same places. */
uint64_t ntx_recur_buffer(const struct ntx_kv_seq *s, bool next);
/* Offset of a layer's tail or fold within a buffer. */
uint64_t ntx_recur_layer(const struct ntx_hparams *hp, uint32_t layer, enum ntx_keep keep);
/* The filled buffer becomes valid: n tokens more. */
void ntx_recur_step(struct ntx_kv_seq *s, uint32_t n);

#endif
