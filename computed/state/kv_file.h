/* SPDX-License-Identifier: Apache-2.0 */
/* kv_file.h: K and V of more positions than there is memory for. They lie in an unnamed file, and what a pass is about
 * to read, in memory. This decides what is where, so that it comes before its layer's turn, in long reads, and memory
 * never takes more than it may.
 *
 *     a part: what one layer keeps of positions (rows; a layer may have two parts, and several may read one)
 *     a part of a cluster (NTX_KV_CLUSTER blocks) is a run, of whole pages: runs are read, written and dropped whole.
 *       While it is in memory it has an address of its own
 *     in the file a part's runs lie one after the other: a read brings as many neighbours as 1 MiB has room for, each
 *       to its place; 8 MiB are under way
 *     of each layer the youngest clusters stay; the older ones of layer l are read while layers before it are computed,
 *       and are dropped when it is done
 *     where attention reads chosen positions only, K are a part apart from the keys that they are chosen by, and its
 *       runs are a block, or as many as whole pages take:
 *     a pass with few rows reads the keys ahead, and of K what was chosen, when it was
 *
 * Memory is the process's own (no page of it is the kernel's to drop), and every byte comes by a read that may fail: a
 * drive's fault is an error of the pass that wanted them, and the next pass asks again. What was written since it was
 * read is written to the file before it is dropped, which a full cluster sees once. Where that fails it stays in
 * memory, and the pass fails. The file has all its room from the start: a full disk is an error there, and never later.
 *
 * So whoever looks at blocks beside a pass (a copy, a prefix that is saved or restored) touches them first.
 *
 * The engine's thread calls; a thread of its own reads and drops. */
#ifndef NTX_COMPUTED_STATE_KV_FILE_H
#define NTX_COMPUTED_STATE_KV_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "shm/drive.h"

#define NTX_KV_READS 3 /* parts that a layer reads at most */

struct ntx_kv_part {
    size_t row;   /* bytes that it has of a block; 0: nothing */
    uint32_t run; /* blocks of a run: the cluster, or a power of two that divides it. 0: the cluster */
    bool chosen;  /* a pass may say what it reads of it (ntx_kv_file_set_topk) */
};

struct ntx_kv_layout {
    uint32_t n_blocks, cluster, n_layers, n_parts;
    const struct ntx_kv_part *part;        /* [n_parts] */
    const uint16_t (*reads)[NTX_KV_READS]; /* [n_layers] parts; NTX_KV_NO_PART: none */
    uint32_t choices; /* what a row chooses of a part that is chosen from: so many places, each in one block */
};
#define NTX_KV_NO_PART UINT16_MAX

uint64_t ntx_kv_file_bytes(const struct ntx_kv_layout *l); /* of the file */
/* The least that a pass can do with when it reads all blocks: two layers of them, a cluster that is written, and two
 * runs for who touches some beside it. */
uint64_t ntx_kv_file_least(const struct ntx_kv_layout *l);
/* Bytes that a pass over n_blocks, of which so many layers attend, reads with so much memory. rows > 0: so many rows
 * choose, anywhere and each for itself (an expectation; they mostly choose near each other, which is less). */
uint64_t ntx_kv_file_reads(const struct ntx_kv_layout *l, uint32_t n_blocks, uint64_t most, uint32_t attends,
                           uint32_t rows);

/* An unnamed file of so many bytes in the directory; its descriptor. The error says what to do: no room, or a directory
 * that lies in memory itself. */
int ntx_kv_file_open(const char *dir, uint64_t bytes, struct ntx_err *err);

struct ntx_kv_file;
/* Owns fd, also when it fails. drive: what passes read comes as fast as from that one. */
int ntx_kv_file_new(int fd, const struct ntx_kv_layout *l, uint64_t most, struct ntx_drive drive,
                    struct ntx_kv_file **out, struct ntx_err *err);
void ntx_kv_file_free(struct ntx_kv_file *f);

/* Where the run begins that the block is in, until the pass is done with the layer that reads it last, or those two
 * others were touched; NULL: it is not in memory. From begin to end of a pass any thread may ask, of runs that were
 * waited for, or that the pass writes to. */
void *ntx_kv_file_at(const struct ntx_kv_file *f, uint32_t block, uint32_t part);

/* A pass: first what it will read (blocks of a sequence, the last ones youngest; those from `written` on it writes to),
 * then its layers in order. Every layer reads, of blocks from `joined` on, the parts that are not chosen from: keys of
 * older positions are joined with those of new ones. attends: so many of them; those behind have only these, the
 * clusters that are written to, and what layers before them read. chooses: of parts that are chosen from it says for
 * each layer which blocks it reads (choose), and then waits for those (chosen); else they are read ahead like others.
 * starts: before the layer writes anything; wants: returns when all that was read ahead for the layer is there. These,
 * and chosen: negative errno where the drive failed. */
void ntx_kv_file_add(struct ntx_kv_file *f, const uint32_t *blocks, uint32_t n, uint32_t joined, uint32_t written);
void ntx_kv_file_begin(struct ntx_kv_file *f, uint32_t attends, bool chooses);
bool ntx_kv_file_has_topk(const struct ntx_kv_file *f);
void ntx_kv_file_set_topk(struct ntx_kv_file *f, uint32_t block, uint32_t part);
int ntx_kv_file_topk(struct ntx_kv_file *f);
int ntx_kv_file_starts(struct ntx_kv_file *f, uint32_t layer);
int ntx_kv_file_wants(struct ntx_kv_file *f, uint32_t layer);
void ntx_kv_file_done(struct ntx_kv_file *f, uint32_t layer);
void ntx_kv_file_end(struct ntx_kv_file *f); /* the first layers are read ahead for the next pass */

/* Beside passes: the runs of that block and part, and of another part or NTX_KV_NO_PART, are in memory, and stay until
 * two others were touched, or a pass begins. written: their values in the file count no more. */
int ntx_kv_file_touch(struct ntx_kv_file *f, uint32_t block, uint32_t part, uint32_t other, bool written);

/* Nobody wants what its cluster has: it need not be read, or written, any more. */
void ntx_kv_file_forget(struct ntx_kv_file *f, uint32_t block);
bool ntx_kv_file_lost(struct ntx_kv_file *f,
                      uint32_t block); /* of its cluster something could not be read, and it was not forgotten since */

struct ntx_kv_file_stats {
    uint64_t read_bytes, written_bytes, held_bytes, held_most, waited_ns;
};
struct ntx_kv_file_stats ntx_kv_file_stats(struct ntx_kv_file *f);

#endif
