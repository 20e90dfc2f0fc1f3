/* SPDX-License-Identifier: Apache-2.0 */
/* kv.h: paged KV: blocks of NTX_KV_BLOCK tokens, a block table per session. F16, Q8_0 or Q4_0. This is where all lies
 * that sessions keep (model/state.h): rows of all positions; rows of a window in a ring of blocks that holds the window
 * and what one pass adds; tails and folds on sides (recur.h). A sequence has all of that, and whatever is done to one
 * (a snapshot, a copy, cutting it, writing it to a file) is done to all kinds (kv_impl.h): who calls need not ask which
 * its model has. A layer that keeps K of several positions (forward_pool.c) has them, and the keys that they are chosen
 * by in V's place, in blocks of all positions, as layer n_layers + its number; they are F16 whatever the type, and each
 * lies in the block of the last position that it is of. So do keys that positions are chosen by, where V is a layer's
 * own. NTX_KV_CLUSTER blocks with neighbouring numbers (the pool's last ones: as many as are left) lie together, so
 * that attention reads long runs: [layer][head]{ K [block], V [block] }, a head's block of NTX_KV_BLOCK positions as
 * cpu.h has it. A session reserves all blocks that it may need when it is admitted; nothing is preempted. Not
 * thread-safe: the engine thread calls, compute threads only read addresses.
 *
 * A block has users: the sequences that see it, and perhaps the keeper, who keeps it for sequences to come (prefix.h).
 * What only the keeper has is spare: it counts as free, and is given up when a block is to be taken and none is. So a
 * sequence may be promised its blocks, and take each when it comes to it.
 *
 *     blocks = taken by sequences + promised to them + available          free + spare = promised + available */
#ifndef NTX_COMPUTED_STATE_KV_H
#define NTX_COMPUTED_STATE_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/cpu/cpu.h"
#include "computed/state/recur.h"
#include "model/arch.h"
#include "shm/drive.h"

#define NTX_KV_BLOCK   32
#define NTX_KV_CLUSTER 16

struct ntx_kv_pool;
struct ntx_kv_seq; /* one session's table, with its holes (positions without KV in a layer, which skipped it) */

/* "f16", "q8_0", "q4_0"; NULL and "" are f16. -EINVAL for others, and for a type that the model's heads do not suit. */
int ntx_kv_type_of(const char *name, const struct ntx_hparams *hp, enum ntx_kv_type *type, struct ntx_err *err);
const char *ntx_kv_type_name(enum ntx_kv_type type);

uint64_t ntx_kv_block_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type); /* over all layers */
uint64_t ntx_kv_layer_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, uint32_t layer,
                            bool beside); /* of it, the rows that one keeps; or those of a second kind */
double ntx_kv_layer_reads(const struct ntx_hparams *hp, enum ntx_kv_type type, uint32_t layer,
                          uint32_t positions); /* bytes that a row's attention in a layer reads behind so many
                                                  positions: of a window or of those chosen no more than these */

struct ntx_kv_shape {       /* of a pool */
    uint32_t blocks;        /* of layers that keep all positions */
    uint32_t window_blocks; /* of layers with a window; 0: they keep all positions like the others */
    uint32_t
        ring; /* window blocks of a session at most: positions are NTX_KV_BLOCK * ring apart where they share a place */
    uint64_t ram; /* memory for blocks of layers that keep all positions, where they take more: then they lie in a file
                     (kv_file.h). 0: they are in memory */
    uint32_t states; /* sides of recurrent states, where the model keeps such (recur.h): two for each session, two more
                        for marks */
};
/* For so many sessions of ctx tokens, and shorter ones in their place: all that it needs where passes have at most so
 * many rows. `all`: every layer keeps all positions. blocks UINT32_MAX: that many are not possible. */
struct ntx_kv_shape ntx_kv_shape_for(const struct ntx_hparams *hp, uint32_t ctx, uint32_t sessions, uint32_t rows,
                                     bool all);
/* Room for n more marks, where the model's texts go on from such; and what each of them takes, 0: they do not. */
void ntx_kv_shape_snapshots(const struct ntx_hparams *hp, uint32_t n, struct ntx_kv_shape *shape);
uint64_t ntx_kv_snapshot_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *shape);
uint64_t ntx_kv_shape_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type,
                            const struct ntx_kv_shape *shape); /* of memory; UINT64_MAX: more than that */
/* shape->ram becomes `ram` where less than all blocks fit into that. -ENOSPC: a pass cannot do with so little. */
int ntx_kv_shape_limit(const struct ntx_hparams *hp, enum ntx_kv_type type, uint64_t ram, struct ntx_kv_shape *shape,
                       struct ntx_err *err);
/* What a pass of so many rows reads from the file, at so many positions of one sequence; where positions are chosen, an
 * expectation (kv_file.h). asked: somebody wants more of them than they leave in the layers' state; else the last layer
 * attends for none. */
uint64_t ntx_kv_shape_reads(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *shape,
                            uint32_t positions, uint32_t rows, bool asked);
/* Whether a pass of so many rows, over sequences of so many positions in all, reads from the file only those that its
 * rows choose. */
bool ntx_kv_pass_has_topk(const struct ntx_hparams *hp, uint32_t rows, uint64_t positions);
int ntx_kv_pool_new(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *shape,
                    struct ntx_kv_pool **out, struct ntx_err *err);
/* Before its first block is taken, of a pool whose shape has `ram`: its blocks lie in an unnamed file in `dir`, and
 * have so much memory. drive: --link nvme, or that of nobody. */
int ntx_kv_pool_spill(struct ntx_kv_pool *p, const char *dir, uint64_t ram, struct ntx_drive drive,
                      struct ntx_err *err);
struct ntx_kv_file *ntx_kv_pool_file(const struct ntx_kv_pool *p); /* NULL: all is in memory */
void ntx_kv_pool_free(struct ntx_kv_pool *p);
uint32_t ntx_kv_pool_blocks(const struct ntx_kv_pool *p);
uint32_t ntx_kv_pool_used(const struct ntx_kv_pool *p); /* of those that keep all positions: taken or promised */
/* give_up: unkeeps a block that nobody else uses, one at least; asked only while there are such. give_up_snapshot:
 * frees a mark; false: none that it could. */
void ntx_kv_pool_keeper(struct ntx_kv_pool *p, bool (*give_up)(void *keeper), bool (*give_up_snapshot)(void *keeper),
                        void *keeper);
/* What is done to a pool's blocks beside passes: what `from` has is copied to `to`, whole or one position of it. Who
 * has K and V of other heads of the same blocks (ranks.h) is told, in order, and does the same. kind: of kv_impl.h. */
#define NTX_KV_WHOLE UINT16_MAX
struct ntx_kv_change {
    uint32_t kind, from, to;
    uint16_t from_at, to_at; /* positions of a block; or WHOLE, both */
};
void ntx_kv_pool_watch(struct ntx_kv_pool *p, void (*changed)(void *ctx, const struct ntx_kv_change *c), void *ctx);
int ntx_kv_pool_change(struct ntx_kv_pool *p,
                       const struct ntx_kv_change *c); /* -EINVAL: it has no such blocks, or positions */
void ntx_kv_moved(const struct ntx_kv_seq *s, uint32_t from,
                  uint32_t to);                          /* K and V of a position were copied: who watches is told */
void ntx_kv_keep(struct ntx_kv_pool *p, uint32_t block); /* which a sequence has */
void ntx_kv_unkeep(struct ntx_kv_pool *p, uint32_t block);
bool ntx_kv_lost(const struct ntx_kv_pool *p,
                 uint32_t block); /* it lies in a file, and could not be read: nobody goes on from it */
bool ntx_kv_spare(const struct ntx_kv_pool *p, uint32_t block); /* only the keeper has it */

/* -EAGAIN when the pool has not that many blocks free now, -ENOSPC when it never can. */
int ntx_kv_seq_new(struct ntx_kv_pool *p, uint32_t n_tokens, struct ntx_kv_seq **out);
/* As ntx_kv_seq_new, but it has only the n_shared first blocks, which others have or the keeper, and the rest when it
 * comes to them. */
int ntx_kv_seq_promise(struct ntx_kv_pool *p, uint32_t n_tokens, const uint32_t *shared, uint32_t n_shared,
                       struct ntx_kv_seq **out);
void ntx_kv_seq_reach(
    struct ntx_kv_seq *s,
    uint32_t pos); /* within its room: it has the block of pos, and all before it. A pass does it for its rows */
/* In place of the next block that it was to take: this one, which the keeper has; or a copy of it. */
void ntx_kv_seq_join(struct ntx_kv_seq *s, uint32_t block);
int ntx_kv_seq_copy(struct ntx_kv_seq *s,
                    uint32_t block); /* -EIO: it lies in a file that cannot be read, and nothing has changed */
void ntx_kv_seq_swap(struct ntx_kv_seq *s, uint32_t i,
                     uint32_t block); /* its i-th becomes this one, with the same values */
void ntx_kv_seq_free(struct ntx_kv_seq *s);
/* The first n_tokens of s as a sequence of its own, with room for n_room tokens: a snapshot, and a session again from a
 * snapshot. Whole blocks are shared and counted; of the block that n_tokens ends in, and of windows, it has copies. A
 * block is free when its last user is. -ENODATA: the window before n_tokens is not there any more, or a recurrent state
 * stands elsewhere; else as ntx_kv_seq_new. (Of the host's cache: a device has its own.) */
int ntx_kv_seq_fork(struct ntx_kv_seq *s, uint32_t n_tokens, uint32_t n_room, struct ntx_kv_seq **out);
/* The sequence goes on at position pos: what it has behind it is let go and promised again, and a shared block that pos
 * is within becomes a copy. -EAGAIN: not so many are free, since others keep what they share with it, and nothing has
 * changed. -EIO: what it goes on from cannot be read. */
int ntx_kv_own(struct ntx_kv_seq *s, uint32_t pos);
bool ntx_kv_shared(const struct ntx_kv_seq *s, uint32_t pos); /* others see its block: it must not be written */
/* What a sequence has at one token besides its blocks: a copy of the windows before it, and its recurrent state there.
 * With it, and the blocks, another one goes on from there. Marks take what sessions have to spare of both, and are
 * given up as that is wanted. -ENODATA: it is not there any more; -EAGAIN: no room. A recurrent state can be marked
 * where a pass ended, and within the next pass where that was said before it. */
struct ntx_kv_snapshot;
bool ntx_kv_pool_snapshots(
    const struct ntx_kv_pool *p); /* blocks alone do not do: a text goes on from a mark, or from its beginning */
void ntx_kv_snapshot_ahead(struct ntx_kv_seq *s, uint32_t n_tokens);
void ntx_kv_snapshot_passed(struct ntx_kv_seq *s); /* of what was said nothing more is wanted */
int ntx_kv_snapshot_new(struct ntx_kv_seq *s, uint32_t n_tokens, struct ntx_kv_snapshot **out);
void ntx_kv_snapshot_put(struct ntx_kv_snapshot *m, struct ntx_kv_seq *s);
void ntx_kv_snapshot_free(struct ntx_kv_snapshot *m);
uint32_t ntx_kv_snapshot_tokens(const struct ntx_kv_snapshot *m);
/* One that is to be filled by ntx_kv_snapshot_each_part. must: others are given up for it. -EAGAIN: no room. */
int ntx_kv_snapshot_blank(struct ntx_kv_pool *p, uint32_t n_tokens, bool must, struct ntx_kv_snapshot **out);
/* All memory that the first n_tokens of s are in, in one order, which model, type and shape of rings decide: to be
 * written out, or to be filled, and then it has them (`filled`, then restored). Ends with what part returned, where
 * that is not 0. s has its blocks, and no more tokens than that where layers have windows or a recurrent state. */
typedef int ntx_kv_part_fn(void *ctx, void *at, size_t bytes);
int ntx_kv_each_part(const struct ntx_kv_seq *s, uint32_t n_tokens, bool filled, ntx_kv_part_fn *part, void *ctx);
uint64_t ntx_kv_parts_bytes(const struct ntx_kv_seq *s, uint32_t n_tokens); /* of all that */
int ntx_kv_snapshot_each_part(struct ntx_kv_snapshot *m, bool filled, ntx_kv_part_fn *part,
                              void *ctx); /* the same of a mark; filled: it is one then */
uint64_t ntx_kv_snapshot_bytes_of(struct ntx_kv_snapshot *m);
void ntx_kv_restored(struct ntx_kv_seq *s, uint32_t n_tokens);
const uint32_t *ntx_kv_seq_blocks(const struct ntx_kv_seq *s,
                                  uint32_t *n); /* their numbers in the pool: those that it has taken */
const uint32_t *ntx_kv_seq_ring(
    const struct ntx_kv_seq *s,
    uint32_t *n); /* of windows: block i of the text lies in the i % n-th of these; n 0: there are none */
uint32_t ntx_kv_seq_room(const struct ntx_kv_seq *s); /* tokens */
enum ntx_kv_type ntx_kv_seq_type(const struct ntx_kv_seq *s);
/* A pass, where blocks lie in a file (nothing to do elsewhere): what it reads of each of its sequences, writing from
 * position `from` on, its begin, its layers, its end. joined: the first position whose key goes into one that the pass
 * writes (at most `from`); every layer reads the keys from there on. starts: before a layer writes; wants: 0 once the
 * layer's K and V are in memory. Both: negative errno where the file cannot be read or written. */
void ntx_kv_pass_add(const struct ntx_kv_seq *s, uint32_t joined, uint32_t from, uint32_t n_tokens);
void ntx_kv_pass_begin(
    const struct ntx_kv_seq *any, uint32_t attends,
    bool chooses); /* attends: so many layers; those behind read no more than what they write to, and join */
int ntx_kv_pass_starts(const struct ntx_kv_seq *any, uint32_t layer);
int ntx_kv_pass_wants(const struct ntx_kv_seq *any, uint32_t layer);
/* Where a pass chooses, before attention of a layer that reads chosen positions: each of them; and then 0 once they are
 * in memory, or negative errno. */
bool ntx_kv_pass_requests_topk(const struct ntx_kv_seq *any);
void ntx_kv_pass_set_topk(const struct ntx_kv_seq *s, uint32_t layer, uint32_t pos);
int ntx_kv_pass_topk(const struct ntx_kv_seq *any);
void ntx_kv_pass_done(const struct ntx_kv_seq *any, uint32_t layer);
void ntx_kv_pass_end(const struct ntx_kv_seq *any);
/* Beside a pass, before a layer's values at pos are read or written: they are in memory until those of two other places
 * were touched (kv_file.h). Negative errno: they cannot be had. */
int ntx_kv_touch(const struct ntx_kv_seq *s, uint32_t layer, uint32_t pos, bool written);
/* What a head has in a layer of the block that position pos is in. */
void *ntx_kv_k(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos);
void *ntx_kv_v(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos);
uint32_t ntx_kv_heads(const struct ntx_kv_seq *s,
                      uint32_t layer); /* that the layer keeps itself: 0 where its attention reads another's */
/* What position `from` of a block has, to position `to` of another (or the same), of one head. */
void ntx_kv_copy_k(const struct ntx_kv_seq *s, uint32_t layer, const void *block, uint32_t from, void *to_block,
                   uint32_t to);
void ntx_kv_copy_v(const struct ntx_kv_seq *s, uint32_t layer, const void *block, uint32_t from, void *to_block,
                   uint32_t to);
size_t ntx_kv_k_bytes(const struct ntx_kv_seq *s, uint32_t layer),
    ntx_kv_v_bytes(const struct ntx_kv_seq *s, uint32_t layer); /* of a head's block */
void ntx_kv_move_holes(struct ntx_kv_seq *s, uint32_t from,
                       uint32_t to); /* position `to` has those of `from`, in each layer */
void ntx_kv_set_hole(struct ntx_kv_seq *s, uint32_t layer, uint32_t pos);
void ntx_kv_truncate(struct ntx_kv_seq *s,
                     uint32_t n_tokens); /* forget holes of positions >= n_tokens, which are about to be written */
/* The session goes back to n_tokens. Returns with how many it can go on: as many, or fewer where the window before
 * them, or what all of them were folded into, is not there any more: as many as that is there of, at worst 0. */
uint32_t ntx_kv_return(struct ntx_kv_seq *s, uint32_t n_tokens);
uint32_t ntx_kv_reach(const struct ntx_kv_seq *s, uint32_t n_tokens); /* with how many it could */
void ntx_kv_written(struct ntx_kv_seq *s, uint32_t pos); /* is about to be: what was behind it counts no more */
/* bit per position, NULL when the layer has no hole */
const uint8_t *ntx_kv_holes(const struct ntx_kv_seq *s, uint32_t layer);

#endif
