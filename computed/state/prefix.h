/* SPDX-License-Identifier: Apache-2.0 */
/* prefix.h: the prefix store: kept beginnings of texts, for later texts that begin alike. It is the keeper of a pool
 * (kv.h): a tree whose edges are runs of tokens.
 *
 *     scope --[32 tokens]-- block --[32]-- block --[32]-- block
 *                              \--[32]-- block --[9]-- block that is filled in part
 *
 * A node is a block of the pool and its tokens; the path to it determines its values. Whole blocks are shared; of a
 * block within which a text departs, the new text gets a copy. The first block computed for a path is kept; a sequence
 * that computed the same releases its own for it.
 *
 * Nobody waits for memory because of the store: a block that only the keeper has counts as free (kv.h). Evicted first
 * is the end of a path: among those that nobody uses, the one with the lowest worth by its cost to compute and the time
 * since its last use (GreedyDual: Young 1994; all blocks are of one size).
 *
 * Where blocks alone are not enough, since layers keep only a window, or a recurrent state, a text goes on from a
 * snapshot (kv.h). There is one where a text ended, one behind the last whole block of each pass over a prompt, and one
 * where texts were seen to diverge: the next text that comes there uses it. Without a snapshot on its path nothing is
 * found. If there is no room for another one, the cheapest to compute again goes: its cost is the distance from the
 * snapshot before it.
 *
 * A scope is the owner of texts: texts of different scopes share nothing, but all share those of NTX_PREFIX_ALL. Engine
 * thread only. */
#ifndef NTX_COMPUTED_STATE_PREFIX_H
#define NTX_COMPUTED_STATE_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/state/kv.h"

struct ntx_prefix;

#define NTX_PREFIX_ALL 0 /* the scope whose texts are for all */

struct ntx_prefix_config {
    struct ntx_kv_pool *pool; /* borrowed */
    /* Cost of computing a block, and of each token before it; in any unit. */
    double block_cost, token_cost;
};

int ntx_prefix_new(const struct ntx_prefix_config *c, struct ntx_prefix **out);
void ntx_prefix_free(struct ntx_prefix *p);             /* no sequence takes a block afterwards */
uint64_t ntx_prefix_block_bytes(void);                  /* bytes that it takes for each block of the pool */
uint32_t ntx_prefix_blocks(const struct ntx_prefix *p); /* blocks that it keeps now */

/* How many of these tokens `begin` would find. */
uint32_t ntx_prefix_found(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n);
/* A sequence with room for n_room tokens that has what is kept of ids[0 .. n), except at least the last one: *n_past
 * tokens. Returns like ntx_kv_seq_new. */
int ntx_prefix_begin(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n, uint32_t n_room,
                     struct ntx_kv_seq **out, uint32_t *n_past);
/* The same for a sequence that has n_past of these tokens, and may have been overtaken by another since. Returns how
 * many it has now. Not for models that need snapshots. */
uint32_t ntx_prefix_follow(struct ntx_prefix *p, uint64_t scope, struct ntx_kv_seq *kv, const int32_t *ids, uint32_t n,
                           uint32_t n_past);
/* kv has the values of ids[0 .. n), as any text with this beginning would: keeps its whole blocks. */
enum ntx_prefix_when {
    NTX_PREFIX_ON,     /* it goes on writing */
    NTX_PREFIX_PROMPT, /* the prompt, or a pass of it, is done: a snapshot is put behind its last whole block */
    NTX_PREFIX_LAST,   /* it is about to be freed: a partly filled block is kept, too, with a snapshot */
};
void ntx_prefix_keep(struct ntx_prefix *p, uint64_t scope, struct ntx_kv_seq *kv, const int32_t *ids, uint32_t n,
                     enum ntx_prefix_when when);
/* Snapshots behind whole blocks of ids[0 .. n), before their end: the first `most` of them. They are valid until the
 * next call that changes the store. */
uint32_t ntx_prefix_snapshots(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n,
                              struct ntx_kv_snapshot **out, uint32_t most);
/* Adds a snapshot for ids[0 .. its tokens), whole blocks that are kept. Takes it over; frees it if there is one, or the
 * blocks are not kept. */
void ntx_prefix_put_snapshot(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, struct ntx_kv_snapshot *m);
/* The next pass adds ids[n_past .. to) of a prompt to kv: if a snapshot will be wanted within it, the pass leaves its
 * state (ntx_kv_snapshot_ahead). */
void ntx_prefix_prepare(struct ntx_prefix *p, uint64_t scope, struct ntx_kv_seq *kv, const int32_t *ids,
                        uint32_t n_past, uint32_t to);
/* Pins what is kept of ids[0 .. n): it is evicted last. Pins of scopes other than NTX_PREFIX_ALL are bounded to one in
 * NTX_PREFIX_PINS of the pool's blocks, the last used ones. */
#define NTX_PREFIX_PINS 4
void ntx_prefix_pin(struct ntx_prefix *p, uint64_t scope, const int32_t *ids, uint32_t n);

#endif
