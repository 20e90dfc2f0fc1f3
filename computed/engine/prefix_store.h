/* SPDX-License-Identifier: Apache-2.0 */
/* prefix_store.h: prefixes that outlive the process: a directory of files, each with the whole state of one text (K and
 * V, windows, recurrent states), from which ntx-computed goes on after a restart. A file serves only the model, KV
 * type, context and build that made it, and the user whose text it is.
 *
 *   NAME.prefix   mode 0600: struct ntx_prefix_store_head, ids [n_tokens], struct ntx_prefix_store_snapshot
 *                 [n_snapshots], the parts in the order of ntx_kv_each_part, then those of each snapshot
 *   *.new         a file that is being written. It is renamed once it is complete; the next start removes leftovers.
 *
 * Where K and V alone are not enough (windows, recurrent states: the snapshots of kv.h), a file serves a text that has
 * all of its tokens, or those of one of its snapshots. Those are the snapshots that memory had at whole blocks of the
 * text. A snapshot is written if it saves at least half as much time per byte as the text itself, by the planner's cost
 * of the tokens since the snapshot before. So a file grows to three times its size at most, and large snapshots are far
 * apart. On reading, room is made for the snapshot that the text goes on from; others are read while room is free.
 *
 * Nothing is synced to the drive: the checksums show what a power cut tore. A file that is torn, foreign or of another
 * owner is logged once and not used. One of another model or build, or torn at the start, stays, but counts, and is
 * evicted first. Eviction then follows GreedyDual: least compute cost per byte, unused for longest (file times carry
 * the order over restarts). A full disk is logged once; nothing is written then, and serving goes on.
 *
 * The engine reads and writes the files itself, not ntx-iod: that one opens nothing and can write nowhere, and its
 * death in a write would quarantine K and V. A death of ntx-computed loses only the file that is being written. The
 * engine has a descriptor of the directory and opens files only by it, and no links. It uses plain calls of 1 MiB, not
 * io_uring: with the kernel's read-ahead an uncached file is restored as fast as a cached one (375 MB: 0.31 to 0.38 s
 * and 0.34 to 0.37 s; most of it is faulting in memory). Passes read K and V by io_uring (computed/state/kv_io.h).
 *
 * Engine thread only. Reading and writing block it, so it writes when it is idle. */
#ifndef NTX_COMPUTED_ENGINE_PREFIX_STORE_H
#define NTX_COMPUTED_ENGINE_PREFIX_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/state/kv.h"

#define NTX_PREFIX_STORE_VERSION   3
#define NTX_PREFIX_STORE_LEAST     64 /* tokens; shorter texts are computed as fast */
#define NTX_PREFIX_STORE_SNAPSHOTS 64 /* most snapshots of a file */

struct ntx_prefix_store_head {
    char magic[8];
    uint32_t version, n_tokens;
    uint64_t scope, body_bytes;
    uint8_t head_sum[8], body_sum[8]; /* head_sum: of this struct with zeros in its place, ids and snapshots' heads */
    uint32_t n_snapshots, zero;
    char of[200]; /* its maker: `of` of the config */
};
struct ntx_prefix_store_snapshot {
    uint32_t n_tokens, zero;
    uint64_t bytes;
    uint8_t sum[8];
};

struct ntx_prefix_store;
struct ntx_prefix_store_config {
    /* created with mode 0700 if absent; must be ours, writable by no other user, and used by no other process */
    const char *dir;
    uint64_t most; /* most bytes of all files */
    /* what values depend on, in a line: "BUILD model DIGEST options"; other files are not used */
    const char *of;
    /* a file serves only texts that have all of it or of one of its snapshots (windows, recurrent states) */
    bool whole;
    double block_cost, token_cost; /* as of prefixes (computed/state/prefix.h) */
    /* bytes written are added here; or NULL */
    atomic_ullong *written;
};

int ntx_prefix_store_open(const struct ntx_prefix_store_config *c, struct ntx_prefix_store **out, struct ntx_err *err);
void ntx_prefix_store_free(struct ntx_prefix_store *s);
uint32_t ntx_prefix_store_files(const struct ntx_prefix_store *s); /* that it can use */
struct ntx_prefix_store_others {
    uint32_t build, model, options;
    uint64_t bytes;
}; /* files that it found and that serve another build, model or option */
struct ntx_prefix_store_others ntx_prefix_store_others(const struct ntx_prefix_store *s);
/* that count, but are of another model or build, or torn */
uint32_t ntx_prefix_store_useless(const struct ntx_prefix_store *s);

/* Finds the file with most of ids[0 .. n), of this scope or of all. `whole`: all tokens of the file or of a snapshot.
 * Returns how many tokens of ids it has, with *file and its *n_tokens; 0: none. */
uint32_t ntx_prefix_store_find(const struct ntx_prefix_store *s, uint64_t scope, const int32_t *ids, uint32_t n,
                               bool whole, uint32_t *file, uint32_t *n_tokens);
const int32_t *ntx_prefix_store_ids(const struct ntx_prefix_store *s, uint32_t file, uint64_t *scope);
/* Reads its state into kv, which has room for it, and the snapshot of `wanted` tokens, if there is one, with others
 * that fit free room: *n_snapshots of them, the caller's. A damaged file is logged and dropped; kv's values are invalid
 * then. */
int ntx_prefix_store_read(struct ntx_prefix_store *s, uint32_t file, struct ntx_kv_pool *pool, struct ntx_kv_seq *kv,
                          uint32_t wanted, struct ntx_kv_snapshot *snapshots[NTX_PREFIX_STORE_SNAPSHOTS],
                          uint32_t *n_snapshots);
/* Writes the state of ids[0 .. n) in kv, with snapshots of its beginnings, the shortest first. Files of this scope that
 * the new one covers are then removed; going on from a snapshot may lose a sixteenth of their time. 0 also if a file
 * has it already, or has all but the last sixteenth of its time: of eight conversations on one document, its state is
 * stored once. */
int ntx_prefix_store_write(struct ntx_prefix_store *s, uint64_t scope, const int32_t *ids, uint32_t n,
                           struct ntx_kv_seq *kv, struct ntx_kv_snapshot *const *snapshots, uint32_t n_snapshots);

#endif
