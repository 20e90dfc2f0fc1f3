/* SPDX-License-Identifier: Apache-2.0 */
/* kv.h: paged KV cache: blocks of NTX_KV_BLOCK tokens, a block table per session; F16, Q8_0 or Q4_0. Everything that
 * sessions keep is here (model/state.h): rows of all positions; rows of a sliding window, in a ring of blocks that
 * holds the window and what one pass adds; and recurrent state buffers (recur.h). A sequence has all of these, and each
 * operation on a sequence (snapshot, copy, truncation, writing to a file) covers all kinds (kv_impl.h), so callers need
 * not know which ones the model has.
 *
 * A layer that keeps K of several positions pooled (forward_pool.c) has them, with their index keys in V's place, in
 * blocks of all positions, as layer n_layers + its number. They are always F16, and each is in the block of the last
 * position that it covers. The same holds for index keys of a layer that has V of its own.
 *
 * NTX_KV_CLUSTER blocks with consecutive numbers form a cluster (the pool's last one may be smaller). Its memory is
 * contiguous, so that attention reads long runs: [layer][head]{ K [block], V [block] }; cpu.h has the layout of a
 * head's block. A session reserves all blocks that it may need when it is admitted; nothing is preempted. Not
 * thread-safe: the engine thread calls; compute threads only read addresses.
 *
 * A block has users: the sequences that see it, and perhaps the keeper, which keeps it for later sequences (prefix.h).
 * A block that only the keeper has is spare: it counts as free, and is evicted when a block is wanted and none is free.
 * So a sequence may be promised blocks, and take each when it reaches it.
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
struct ntx_kv_seq; /* one session's table, with its holes: positions without KV in a layer that was skipped */

/* "f16", "q8_0", "q4_0"; NULL and "" are f16. -EINVAL: another name, or a type that the size of the model's heads does
 * not allow. */
int ntx_kv_type_of(const char *name, const struct ntx_hparams *hp, enum ntx_kv_type *type, struct ntx_err *err);
const char *ntx_kv_type_name(enum ntx_kv_type type);

uint64_t ntx_kv_block_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type); /* over all layers */
/* Bytes of one block of a layer: of its own rows, or (beside) of the second kind. */
uint64_t ntx_kv_layer_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, uint32_t layer, bool beside);
/* Bytes that one row's attention in a layer reads at so many positions; a window or the indexer top-k limits them. */
double ntx_kv_layer_reads(const struct ntx_hparams *hp, enum ntx_kv_type type, uint32_t layer, uint32_t positions);

struct ntx_kv_shape {       /* a pool's */
    uint32_t blocks;        /* of layers that keep all positions */
    uint32_t window_blocks; /* of layers with a window; 0: these layers keep all positions, too */
    /* Window blocks of a session at most: positions NTX_KV_BLOCK * ring apart share a place. */
    uint32_t ring;
    /* Memory for blocks of layers that keep all positions, if they take more: then they are in a file (kv_file.h). 0:
     * they are in memory. */
    uint64_t ram;
    /* Recurrent state buffers (recur.h), if the model has any: two for each session, two more for snapshots. */
    uint32_t states;
};
/* The shape for so many sessions of ctx tokens (or more, shorter ones), with passes of at most `rows` rows. all: every
 * layer keeps all positions. blocks UINT32_MAX: so many are not possible. */
struct ntx_kv_shape ntx_kv_shape_for(const struct ntx_hparams *hp, uint32_t ctx, uint32_t sessions, uint32_t rows,
                                     bool all);
/* Adds room for n snapshots, if the model's texts need them to go on. */
void ntx_kv_shape_snapshots(const struct ntx_hparams *hp, uint32_t n, struct ntx_kv_shape *shape);
uint64_t ntx_kv_snapshot_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *shape);
/* Bytes of memory; UINT64_MAX: more than that. */
uint64_t ntx_kv_shape_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *shape);
/* Sets shape->ram to `ram` if not all blocks fit into that. -ENOSPC: too little for a pass. */
int ntx_kv_shape_limit(const struct ntx_hparams *hp, enum ntx_kv_type type, uint64_t ram, struct ntx_kv_shape *shape,
                       struct ntx_err *err);
/* Bytes that a pass of so many rows reads from the file, at so many positions of one sequence; with an indexer top-k,
 * the expectation (kv_file.h). asked: outputs are wanted, not only the layers' state; otherwise the last layer does not
 * attend. */
uint64_t ntx_kv_shape_reads(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *shape,
                            uint32_t positions, uint32_t rows, bool asked);
/* Whether a pass of so many rows, over so many positions in all, reads only the top-k positions from the file. */
bool ntx_kv_pass_has_topk(const struct ntx_hparams *hp, uint32_t rows, uint64_t positions);
int ntx_kv_pool_new(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *shape,
                    struct ntx_kv_pool **out, struct ntx_err *err);
/* Before the first block is taken, if the shape has `ram`: the pool's blocks are then in an unnamed file in `dir`, with
 * `ram` bytes of memory. drive: the emulated one of --link nvme, or none. */
int ntx_kv_pool_spill(struct ntx_kv_pool *p, const char *dir, uint64_t ram, struct ntx_drive drive,
                      struct ntx_err *err);
struct ntx_kv_file *ntx_kv_pool_file(const struct ntx_kv_pool *p); /* NULL: all of it is in memory */
void ntx_kv_pool_free(struct ntx_kv_pool *p);
uint32_t ntx_kv_pool_blocks(const struct ntx_kv_pool *p);
uint32_t ntx_kv_pool_used(const struct ntx_kv_pool *p); /* of the blocks for all positions: taken or promised */
/* give_up: evicts at least one block that nobody else uses; called only while there are such blocks. give_up_snapshot:
 * frees a snapshot; false: none can be freed. */
void ntx_kv_pool_keeper(struct ntx_kv_pool *p, bool (*give_up)(void *keeper), bool (*give_up_snapshot)(void *keeper),
                        void *keeper);
/* A change of a pool's blocks outside passes: block `from` is copied to `to`, whole or one position of it. A holder of
 * other heads of the same blocks (ranks.h) receives the changes in order and repeats them. kind: see kv_impl.h. */
#define NTX_KV_WHOLE UINT16_MAX
struct ntx_kv_change {
    uint32_t kind, from, to;
    uint16_t from_at, to_at; /* positions of a block; or NTX_KV_WHOLE, both */
};
void ntx_kv_pool_watch(struct ntx_kv_pool *p, void (*changed)(void *ctx, const struct ntx_kv_change *c), void *ctx);
/* -EINVAL: the pool has no such blocks or positions. */
int ntx_kv_pool_change(struct ntx_kv_pool *p, const struct ntx_kv_change *c);
/* K and V of a position were copied: reports it to the pool's watcher. */
void ntx_kv_moved(const struct ntx_kv_seq *s, uint32_t from, uint32_t to);
void ntx_kv_keep(struct ntx_kv_pool *p, uint32_t block); /* a block of a sequence */
void ntx_kv_unkeep(struct ntx_kv_pool *p, uint32_t block);
/* The block is in a file and could not be read: nothing can go on from it. */
bool ntx_kv_lost(const struct ntx_kv_pool *p, uint32_t block);
bool ntx_kv_spare(const struct ntx_kv_pool *p, uint32_t block); /* only the keeper has it */

/* -EAGAIN: not so many blocks are free now, -ENOSPC: the pool is too small. */
int ntx_kv_seq_new(struct ntx_kv_pool *p, uint32_t n_tokens, struct ntx_kv_seq **out);
/* Like ntx_kv_seq_new, but the sequence has only the n_shared first blocks, which others or the keeper have; it takes
 * the rest as it reaches them. */
int ntx_kv_seq_promise(struct ntx_kv_pool *p, uint32_t n_tokens, const uint32_t *shared, uint32_t n_shared,
                       struct ntx_kv_seq **out);
/* Takes all blocks up to the one of position pos. A pass does this for its rows. */
void ntx_kv_seq_reach(struct ntx_kv_seq *s, uint32_t pos);
/* The next block of the sequence is this one of the keeper's, shared. */
void ntx_kv_seq_join(struct ntx_kv_seq *s, uint32_t block);
/* The same with a copy of the block. -EIO: the block is in a file and cannot be read; nothing has changed. */
int ntx_kv_seq_copy(struct ntx_kv_seq *s, uint32_t block);
/* Replaces the sequence's i-th block by this one, which has the same values. */
void ntx_kv_seq_swap(struct ntx_kv_seq *s, uint32_t i, uint32_t block);
void ntx_kv_seq_free(struct ntx_kv_seq *s);
/* The first n_tokens of s as another sequence, with room for n_room tokens: a snapshot of a session, or a session from
 * a snapshot. Whole blocks are shared and counted; the block that n_tokens ends in, and windows, are copied. A block is
 * free when its last user is. -ENODATA: the window before n_tokens is gone, or the recurrent state is at another token;
 * else as ntx_kv_seq_new. (Host KV only; a device has its own.) */
int ntx_kv_seq_fork(struct ntx_kv_seq *s, uint32_t n_tokens, uint32_t n_room, struct ntx_kv_seq **out);
/* The sequence goes on at position pos: later blocks are released and promised again, and a shared block that contains
 * pos becomes a copy. -EAGAIN: too few blocks are free, since others keep the shared ones; nothing has changed. -EIO:
 * the block cannot be read. */
int ntx_kv_own(struct ntx_kv_seq *s, uint32_t pos);
bool ntx_kv_shared(const struct ntx_kv_seq *s, uint32_t pos); /* others see its block: it must not be written */
/* A snapshot: what a sequence has at one token besides its blocks, as a copy of the windows before it and of its
 * recurrent state there. With it and the blocks another sequence goes on from that token. Snapshots use what sessions
 * leave of both, and are freed when that is wanted. -ENODATA: the state is gone; -EAGAIN: no room. A recurrent state
 * can be copied where a pass ended, or within the next pass if ntx_kv_snapshot_ahead was called before it. */
struct ntx_kv_snapshot;
/* Blocks alone are not enough: a text goes on from a snapshot, or from its beginning. */
bool ntx_kv_pool_snapshots(const struct ntx_kv_pool *p);
void ntx_kv_snapshot_ahead(struct ntx_kv_seq *s, uint32_t n_tokens);
void ntx_kv_snapshot_passed(struct ntx_kv_seq *s); /* drops what ntx_kv_snapshot_ahead asked for */
int ntx_kv_snapshot_new(struct ntx_kv_seq *s, uint32_t n_tokens, struct ntx_kv_snapshot **out);
void ntx_kv_snapshot_put(struct ntx_kv_snapshot *m, struct ntx_kv_seq *s);
void ntx_kv_snapshot_free(struct ntx_kv_snapshot *m);
uint32_t ntx_kv_snapshot_tokens(const struct ntx_kv_snapshot *m);
/* An empty snapshot, to be filled by ntx_kv_snapshot_each_part. must: others are freed for it. -EAGAIN: no room. */
int ntx_kv_snapshot_blank(struct ntx_kv_pool *p, uint32_t n_tokens, bool must, struct ntx_kv_snapshot **out);
/* Calls `part` for all memory of the first n_tokens of s, in an order that model, type and ring shape decide: to write
 * it out, or to fill it (filled; call ntx_kv_restored afterwards). Ends with the first value of `part` that is not 0. s
 * has the blocks, and no more tokens than that if layers have windows or a recurrent state. */
typedef int ntx_kv_part_fn(void *ctx, void *at, size_t bytes);
int ntx_kv_each_part(const struct ntx_kv_seq *s, uint32_t n_tokens, bool filled, ntx_kv_part_fn *part, void *ctx);
uint64_t ntx_kv_parts_bytes(const struct ntx_kv_seq *s, uint32_t n_tokens); /* bytes of all parts */
/* The same for a snapshot's memory; filled: it is valid afterwards. */
int ntx_kv_snapshot_each_part(struct ntx_kv_snapshot *m, bool filled, ntx_kv_part_fn *part, void *ctx);
uint64_t ntx_kv_snapshot_bytes_of(struct ntx_kv_snapshot *m);
void ntx_kv_restored(struct ntx_kv_seq *s, uint32_t n_tokens);
/* The numbers in the pool of the blocks that it has taken. */
const uint32_t *ntx_kv_seq_blocks(const struct ntx_kv_seq *s, uint32_t *n);
/* Blocks of the window ring: block i of the text is the i % n-th of these; n 0: there is none. */
const uint32_t *ntx_kv_seq_ring(const struct ntx_kv_seq *s, uint32_t *n);
uint32_t ntx_kv_seq_room(const struct ntx_kv_seq *s); /* tokens */
enum ntx_kv_type ntx_kv_seq_type(const struct ntx_kv_seq *s);
/* A pass whose blocks are in a file (otherwise these do nothing): what it reads of each of its sequences, written from
 * position `from` on; its begin, layers and end. joined: the first position whose key is pooled into one that the pass
 * writes (at most `from`); every layer reads the keys from there on. starts: before a layer writes; wants: 0 once the
 * layer's K and V are in memory. Both: negative errno if the file cannot be read or written. */
void ntx_kv_pass_add(const struct ntx_kv_seq *s, uint32_t joined, uint32_t from, uint32_t n_tokens);
/* attends: how many layers attend; later ones read only what they write to, and pool. */
void ntx_kv_pass_begin(const struct ntx_kv_seq *any, uint32_t attends, bool chooses);
int ntx_kv_pass_starts(const struct ntx_kv_seq *any, uint32_t layer);
int ntx_kv_pass_wants(const struct ntx_kv_seq *any, uint32_t layer);
/* Before attention of a layer with indexer top-k: ntx_kv_pass_set_topk for each position, then ntx_kv_pass_topk: 0 once
 * they are in memory, or negative errno. */
bool ntx_kv_pass_requests_topk(const struct ntx_kv_seq *any);
void ntx_kv_pass_set_topk(const struct ntx_kv_seq *s, uint32_t layer, uint32_t pos);
int ntx_kv_pass_topk(const struct ntx_kv_seq *any);
void ntx_kv_pass_done(const struct ntx_kv_seq *any, uint32_t layer);
void ntx_kv_pass_end(const struct ntx_kv_seq *any);
/* Outside passes, before a layer's values at pos are read or written: brings them into memory, where they stay until
 * two other places were touched (kv_file.h). Negative errno: they cannot be read. */
int ntx_kv_touch(const struct ntx_kv_seq *s, uint32_t layer, uint32_t pos, bool written);
/* A head's K or V of a layer, in the block of position pos. */
void *ntx_kv_k(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos);
void *ntx_kv_v(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos);
/* Heads that the layer keeps itself: 0 if its attention reads another layer's. */
uint32_t ntx_kv_heads(const struct ntx_kv_seq *s, uint32_t layer);
/* Copies one head's K of position `from` of a block to position `to` of another block, or the same. */
void ntx_kv_copy_k(const struct ntx_kv_seq *s, uint32_t layer, const void *block, uint32_t from, void *to_block,
                   uint32_t to);
void ntx_kv_copy_v(const struct ntx_kv_seq *s, uint32_t layer, const void *block, uint32_t from, void *to_block,
                   uint32_t to);
size_t ntx_kv_k_bytes(const struct ntx_kv_seq *s, uint32_t layer),
    ntx_kv_v_bytes(const struct ntx_kv_seq *s, uint32_t layer); /* bytes of a head's block */
/* Position `to` gets the holes of `from`, in each layer. */
void ntx_kv_move_holes(struct ntx_kv_seq *s, uint32_t from, uint32_t to);
void ntx_kv_set_hole(struct ntx_kv_seq *s, uint32_t layer, uint32_t pos);
/* Forgets holes of positions >= n_tokens, which are about to be written. */
void ntx_kv_truncate(struct ntx_kv_seq *s, uint32_t n_tokens);
/* Truncates the session to n_tokens. Returns how many it can go on with: fewer if the window before them, or their
 * recurrent state, is gone; at worst 0. */
uint32_t ntx_kv_return(struct ntx_kv_seq *s, uint32_t n_tokens);
uint32_t ntx_kv_reach(const struct ntx_kv_seq *s, uint32_t n_tokens); /* how many tokens it could go on with */
/* Position pos is about to be written: later ones are no longer valid. */
void ntx_kv_written(struct ntx_kv_seq *s, uint32_t pos);
/* A bit per position; NULL: the layer has no hole. */
const uint8_t *ntx_kv_holes(const struct ntx_kv_seq *s, uint32_t layer);

#endif
