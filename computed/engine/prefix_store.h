/* SPDX-License-Identifier: Apache-2.0 */
/* prefix_store.h: prefixes that outlive the process: a directory of files, each all that was computed of one text (K
 * and V, windows, recurrent state), for ntx-computed to go on from after a restart. A file is good for the very model,
 * KV type, context and build that made it, and for the user whose text it is.
 *
 *   NAME.prefix   struct ntx_prefix_store_head, ids [n_tokens], struct ntx_prefix_store_snapshot [n_snapshots], what
 *                 ntx_kv_each_part gives, in its order, and of each mark likewise mode 0600
 *   *.new         one that is being written: it gets its name when all of it is there, and is removed at the next start
 *                 when it never got that far
 *
 * Where K and V alone do not do (windows, recurrent states: kv.h's marks), a file serves a text that has all of its
 * tokens, or those of one of its snapshots: marks that memory had behind whole blocks of the text as it was written.
 * Written are those that save at least half as much time for their bytes as the text's own do, by the planner's cost of
 * computing what lies between a snapshot and the one before it: so a file grows to three times its size at most, and
 * where a state is large they are far apart. Of what is read, the snapshot that the text goes on from has room made for
 * it; others come as far as room is free.
 *
 * Nothing is forced to the drive: what a power cut tears, the sums tell. A file that is torn, foreign, or of another
 * owner is said once, and not used; one of another model or build, or torn at the start, is left alone, but counts, and
 * goes before others when the bytes are wanted. What goes first then is what has the least cost of computing for its
 * bytes, and was not wanted for longest (GreedyDual; the order outlives the process by the files' times). A full disk
 * is said once; nothing is written then, and serving goes on.
 *
 * The engine reads and writes them itself, not ntx-iod: that one opens nothing and can write nowhere, and its death
 * would taint K and V that a write of its reads from. A death of ntx-computed loses the file that is being written, and
 * no other. It has the directory as a descriptor, and opens what is in it by that alone, as what is no link. It reads
 * and writes by plain calls of 1 MiB, not by io_uring: the kernel reads ahead of such, and a file that is not in its
 * cache is restored as fast as one that is (375 MB: 0.31 to 0.38 s and 0.34 to 0.37; what takes the time is memory that
 * is touched first). Passes read K and V by io_uring (computed/state/kv_io.h).
 *
 * Engine thread only; reading and writing block it, so it writes when nobody waits. */
#ifndef NTX_COMPUTED_ENGINE_PREFIX_STORE_H
#define NTX_COMPUTED_ENGINE_PREFIX_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/state/kv.h"

#define NTX_PREFIX_STORE_VERSION 3
#define NTX_PREFIX_STORE_LEAST   64 /* tokens: shorter texts are computed as fast */
#define NTX_PREFIX_STORE_MARKS   64 /* snapshots of a file at most */

struct ntx_prefix_store_head {
    char magic[8];
    uint32_t version, n_tokens;
    uint64_t scope, body_bytes;
    uint8_t head_sum[8], body_sum[8]; /* head_sum: of this, with zeros in its place, of ids and of marks */
    uint32_t n_snapshots, zero;
    char of[200]; /* what made it, see ntx_prefix_store_open */
};
struct ntx_prefix_store_snapshot {
    uint32_t n_tokens, zero;
    uint64_t bytes;
    uint8_t sum[8];
};

struct ntx_prefix_store;
struct ntx_prefix_store_config {
    const char *dir; /* made where it is not there, 0700; it must be ours, nobody else's to write in, and in no other
                        process's use */
    uint64_t most;   /* bytes of all files */
    const char
        *of;    /* a line of what values depend on: "BUILD model DIGEST options"; files of another one are not used */
    bool whole; /* a file serves only texts that have all of it, or of one of its snapshots: of its values a part cannot
                   be had (windows, recurrent states) */
    double block_cost, token_cost; /* as of prefixes (computed/state/prefix.h) */
    atomic_ullong
        *written; /* bytes written so far are added here, for whoever waits for the end of it; NULL: nobody does */
};

int ntx_prefix_store_open(const struct ntx_prefix_store_config *c, struct ntx_prefix_store **out, struct ntx_err *err);
void ntx_prefix_store_free(struct ntx_prefix_store *s);
uint32_t ntx_prefix_store_files(const struct ntx_prefix_store *s); /* that it could use */
struct ntx_prefix_store_others {
    uint32_t build, model, options;
    uint64_t bytes;
}; /* files as it found them that are good for something else */
struct ntx_prefix_store_others ntx_prefix_store_others(const struct ntx_prefix_store *s);
uint32_t ntx_prefix_store_useless(
    const struct ntx_prefix_store *s); /* that count, but are of another model or build, or torn */

/* The file of which most of ids[0 .. n) can be had, of the scope, or of all; `whole`: all of its tokens, or those of a
 * snapshot. Returns how many tokens of them, *file and of how many tokens it is; 0: none. */
uint32_t ntx_prefix_store_find(const struct ntx_prefix_store *s, uint64_t scope, const int32_t *ids, uint32_t n,
                               bool whole, uint32_t *file, uint32_t *n_tokens);
const int32_t *ntx_prefix_store_ids(const struct ntx_prefix_store *s, uint32_t file, uint64_t *scope);
/* Its values into kv, which has room for them, and of pool's snapshots that of `wanted` tokens, where that is one, and
 * others that there is free room for: *n_snapshots of them, the caller's. A file that cannot be believed is said, and
 * is none any more: kv's values are nothing then. */
int ntx_prefix_store_read(struct ntx_prefix_store *s, uint32_t file, struct ntx_kv_pool *pool, struct ntx_kv_seq *kv,
                          uint32_t wanted, struct ntx_kv_snapshot *snapshots[NTX_PREFIX_STORE_MARKS],
                          uint32_t *n_snapshots);
/* kv has the values of ids[0 .. n), marks are of beginnings of it, the shortest first. What is to be had of the new
 * file, of the same scope, goes when that is there; where a snapshot is gone on from, a sixteenth of its time may be
 * lost by that. 0 also where there is one that has it already, or that parted from it so late that no more than a
 * sixteenth of its time is to be computed: of eight conversations on one document its state is there once. */
int ntx_prefix_store_write(struct ntx_prefix_store *s, uint64_t scope, const int32_t *ids, uint32_t n,
                           struct ntx_kv_seq *kv, struct ntx_kv_snapshot *const *snapshots, uint32_t n_snapshots);

#endif
