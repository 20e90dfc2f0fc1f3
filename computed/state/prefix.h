/* SPDX-License-Identifier: Apache-2.0 */
/* prefix.h: beginnings of texts whose K and V are kept for those who begin alike. The keeper of a pool (kv.h): a tree
 * whose edges are runs of tokens.
 *
 *     scope --[32 tokens]-- block --[32]-- block --[32]-- block
 *                              \--[32]-- block --[9]-- block that is filled in part
 *
 * A node is a block of the pool and the tokens in it; the path to it says all that its values depend on. Whole blocks
 * are shared as they are; of one that a text leaves within, the newcomer gets a copy. Whoever computed a block first
 * has it kept; another one that came to the same lets its own go for it.
 *
 * Nobody waits for memory because of it: what only the keeper has counts as free (kv.h). What goes first is the end of
 * a path, of those that nobody uses the one whose time to compute, and the time since it was last wanted, are worth
 * least (GreedyDual: Young 1994; all blocks are of one size).
 *
 * Where blocks alone do not do, since layers keep a window only, or a recurrent state, a text goes on from a mark
 * (kv.h). There is one where a text ended, one behind the last whole block of each pass over a prompt, and one where
 * texts were seen to part: who comes there the next time finds it. Where no mark is, nothing is found. Where there is
 * no room for one more, the one goes without which least is computed again: what lies between it and the mark before
 * it.
 *
 * A scope is whose texts they are: texts of different scopes share nothing, but all share those of NTX_PREFIX_ALL.
 * Engine thread only. */
#ifndef NTX_COMPUTED_STATE_PREFIX_H
#define NTX_COMPUTED_STATE_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/state/kv.h"

struct ntx_prefix;

#define NTX_PREFIX_ALL 0 /* a scope whose texts are for every scope */

struct ntx_prefix_config {
    struct ntx_kv_pool *pool; /* borrowed */
    double block_cost,
        token_cost; /* of computing a block: so much, and for each token before it so much more; in any unit */
};

int ntx_prefix_new(const struct ntx_prefix_config *c, struct ntx_prefix **out);
void ntx_prefix_free(struct ntx_prefix *p);             /* no sequence takes a block any more */
uint64_t ntx_prefix_block_bytes(void);                  /* that it takes for each block of the pool */
uint32_t ntx_prefix_blocks(const struct ntx_prefix *p); /* that it keeps now */

uint32_t ntx_prefix_found(struct ntx_prefix *p, uint64_t scope, const int32_t *ids,
                          uint32_t n); /* tokens of them that begin would find */
/* A sequence with room for n_room tokens that has what is kept of ids[0 .. n), but for the last one at least: *n_past
 * tokens. As ntx_kv_seq_new in what it returns. */
int ntx_prefix_begin(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n, uint32_t n_room,
                     struct ntx_kv_seq **out, uint32_t *n_past);
/* The same for a sequence that has n_past tokens of them, and may have been overtaken since: returns how many it has
 * now. Not with marks. */
uint32_t ntx_prefix_follow(struct ntx_prefix *p, uint64_t scope, struct ntx_kv_seq *kv, const int32_t *ids, uint32_t n,
                           uint32_t n_past);
/* kv has the values of ids[0 .. n), as any text that begins so would have: its whole blocks are kept. */
enum ntx_prefix_when {
    NTX_PREFIX_ON,     /* it goes on, writing */
    NTX_PREFIX_PROMPT, /* it goes on, or has yet to: of what it was asked; a mark is put behind its last whole block */
    NTX_PREFIX_LAST,   /* it is about to be freed: a part of a block is kept, too, with a mark */
};
void ntx_prefix_keep(struct ntx_prefix *p, uint64_t scope, struct ntx_kv_seq *kv, const int32_t *ids, uint32_t n,
                     enum ntx_prefix_when when);
/* Marks behind whole blocks of ids[0 .. n), before their end: the first `most` of them. They stay as long as nothing
 * else is done here. */
uint32_t ntx_prefix_snapshots(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n,
                              struct ntx_kv_snapshot **out, uint32_t most);
/* One for ids[0 .. its tokens), whole blocks that are kept. Takes it over; where there is one, or those are not kept,
 * it is freed. */
void ntx_prefix_put_snapshot(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, struct ntx_kv_snapshot *m);
/* The pass that comes adds ids[n_past .. to) of a prompt to kv: where a mark will be wanted within it, it leaves what
 * that takes (ntx_kv_snapshot_ahead). */
void ntx_prefix_prepare(struct ntx_prefix *p, uint64_t scope, struct ntx_kv_seq *kv, const int32_t *ids,
                        uint32_t n_past, uint32_t to);
/* What is kept of ids[0 .. n) goes after all else: of texts that are not for all, so many as one in NTX_PREFIX_PINS of
 * the pool's blocks, those that were wanted last. */
#define NTX_PREFIX_PINS 4
void ntx_prefix_pin(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n);

#endif
