/* SPDX-License-Identifier: Apache-2.0 */
/* kv_file.h: K and V of more positions than fit into memory. They are in an unnamed file, and memory has what a pass is
 * about to read. This part decides what is where, so that data comes before its layer's turn, in long reads, and memory
 * stays within its bound.
 *
 *   a part: what one layer keeps of positions (rows). A layer may have two parts, and several layers may read one.
 *   a run: a part of a cluster (NTX_KV_CLUSTER blocks), in whole pages. Runs are read, written and dropped whole. A run
 *     in memory has an address of its own.
 *   in the file a part's runs are consecutive: one read brings neighbours up to 1 MiB, each to its place; 8 MiB are
 *     under way.
 *   the youngest clusters of each layer stay in memory; older ones of layer l are read while earlier layers are
 *     computed, and are dropped when the layer is done.
 *   where attention reads only an indexer top-k, K is a part apart from the index keys, and its runs are one block, or
 *     as many as fill whole pages: a pass of few rows reads the keys ahead, and the top-k of K once it is known.
 *
 * The memory is the process's own, so the kernel can drop no page of it, and every byte comes by a read that may fail.
 * A fault of the drive is an error of the pass that wanted the data, and the next pass tries again. A run that changed
 * since it was read is written to the file before it is dropped; a full cluster is written once. If the write fails,
 * the run stays in memory, and the pass fails. The file is allocated in full at the start, so a full disk is an error
 * then, never later.
 *
 * So code that uses blocks outside a pass (a copy, a prefix that is saved or restored) must touch them first.
 *
 * The engine thread calls; a separate thread reads and drops. */
#ifndef NTX_COMPUTED_STATE_KV_FILE_H
#define NTX_COMPUTED_STATE_KV_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "shm/drive.h"

#define NTX_KV_READS 3 /* parts that a layer reads at most */

struct ntx_kv_part {
    size_t row;   /* bytes of one block; 0: nothing */
    uint32_t run; /* blocks of a run: the cluster, or a power of two that divides it. 0: the cluster */
    bool topk;    /* a pass may select what it reads of it (ntx_kv_file_set_topk) */
};

struct ntx_kv_layout {
    uint32_t n_blocks, cluster, n_layers, n_parts;
    const struct ntx_kv_part *part;        /* [n_parts] */
    const uint16_t (*reads)[NTX_KV_READS]; /* [n_layers] parts; NTX_KV_NO_PART: none */
    uint32_t topk;                         /* positions that a row selects of a top-k part, each in one block */
};
#define NTX_KV_NO_PART UINT16_MAX

uint64_t ntx_kv_file_bytes(const struct ntx_kv_layout *l); /* bytes of the file */
/* The least memory for a pass that reads all blocks: two layers of them, a cluster that is written, and two runs that
 * are touched outside passes. */
uint64_t ntx_kv_file_least(const struct ntx_kv_layout *l);
/* Bytes that a pass over n_blocks reads with so much memory, if `attends` layers attend. rows > 0: so many rows select
 * a top-k, independently (an expectation; most select near each other, which is less). */
uint64_t ntx_kv_file_reads(const struct ntx_kv_layout *l, uint32_t n_blocks, uint64_t most, uint32_t attends,
                           uint32_t rows);

/* Opens an unnamed file of so many bytes in the directory. Returns its descriptor. The error says what to do: no room,
 * or a directory that is itself in memory. */
int ntx_kv_file_open(const char *dir, uint64_t bytes, struct ntx_err *err);

struct ntx_kv_file;
/* Owns fd, also when it fails. drive: the emulated one that sets the speed of passes' reads. */
int ntx_kv_file_new(int fd, const struct ntx_kv_layout *l, uint64_t most, struct ntx_drive drive,
                    struct ntx_kv_file **out, struct ntx_err *err);
void ntx_kv_file_free(struct ntx_kv_file *f);

/* Address of the block's run; NULL: not in memory. It is valid until the pass has finished the last layer that reads
 * it, or two others were touched. During a pass any thread may call it for runs that were waited for, or that the pass
 * writes. */
void *ntx_kv_file_at(const struct ntx_kv_file *f, uint32_t block, uint32_t part);

/* A pass. First add: the blocks of each sequence, youngest last; those from `written` on are written. Then its layers
 * in order. Every layer reads the parts without top-k of blocks from `joined` on, where keys of older positions are
 * pooled with new ones. attends: so many layers attend; later ones read only these, the clusters that are written, and
 * what earlier layers read. chooses: for each layer the pass names the blocks that it reads of top-k parts (set_topk),
 * and then waits for them (topk); otherwise they are read ahead like others. starts: before the layer writes; wants:
 * returns when everything read ahead for the layer has come. These two and topk: negative errno if the drive failed. */
void ntx_kv_file_add(struct ntx_kv_file *f, const uint32_t *blocks, uint32_t n, uint32_t joined, uint32_t written);
void ntx_kv_file_begin(struct ntx_kv_file *f, uint32_t attends, bool chooses);
bool ntx_kv_file_has_topk(const struct ntx_kv_file *f);
void ntx_kv_file_set_topk(struct ntx_kv_file *f, uint32_t block, uint32_t part);
int ntx_kv_file_topk(struct ntx_kv_file *f);
int ntx_kv_file_starts(struct ntx_kv_file *f, uint32_t layer);
int ntx_kv_file_wants(struct ntx_kv_file *f, uint32_t layer);
void ntx_kv_file_done(struct ntx_kv_file *f, uint32_t layer);
void ntx_kv_file_end(struct ntx_kv_file *f); /* the first layers are read ahead for the next pass */

/* Outside passes: brings the runs of that block and part, and of another part or NTX_KV_NO_PART, into memory. They stay
 * until two others were touched, or a pass begins. written: the file's values are no longer valid. */
int ntx_kv_file_touch(struct ntx_kv_file *f, uint32_t block, uint32_t part, uint32_t other, bool written);

/* The content of the block's cluster is no longer wanted: it need not be read or written any more. */
void ntx_kv_file_forget(struct ntx_kv_file *f, uint32_t block);
/* Something of its cluster could not be read, and it was not forgotten since. */
bool ntx_kv_file_lost(struct ntx_kv_file *f, uint32_t block);

struct ntx_kv_file_stats {
    uint64_t read_bytes, written_bytes, held_bytes, held_most, waited_ns;
};
struct ntx_kv_file_stats ntx_kv_file_stats(struct ntx_kv_file *f);

#endif
