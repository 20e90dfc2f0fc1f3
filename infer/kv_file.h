/* kv_file.h: K and V of more positions than there is memory for. A pool's blocks are mapped from an unnamed file, so that each has its address whether it is in
 * memory or not; this decides what is, so that what a pass reads comes before its layer's turn, in long reads, and the file's pages never take more than they may.
 *
 *     a layer's part of a cluster (NTX_KV_CLUSTER blocks) is a run: runs are read, and dropped, whole
 *     of each layer the youngest clusters stay; the older ones of layer l are read while layers before it are computed, and are dropped when it is done
 *
 * What falls beside this (a copy, a prefix that is restored) comes in by itself, page by page: slower, never wrong. What is dropped is written first where that
 * has not happened yet, which a full cluster sees once. The file has all its room from the start: a full disk is an error there, and never later.
 *
 * The engine's thread calls; a thread of its own reads and drops. */
#ifndef NTX_INFER_KV_FILE_H
#define NTX_INFER_KV_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct ntx_kv_layout {
    uint64_t block_bytes;
    uint32_t n_blocks, cluster, n_layers;
    const size_t *before, *row; /* [n_layers] bytes of a block that lie before the layer's, and that it has itself: 0 where it reads none from here */
};

/* The least that a pass can do with when it reads all blocks: two layers of them, and a cluster that is written. */
uint64_t ntx_kv_file_least(const struct ntx_kv_layout *l);
/* Bytes that a pass over n_blocks reads with so much memory. */
uint64_t ntx_kv_file_reads(const struct ntx_kv_layout *l, uint32_t n_blocks, uint64_t most);

/* An unnamed file of so many bytes in the directory; its descriptor. The error says what to do: no room, or a directory that lies in memory itself. */
int ntx_kv_file_open(const char *dir, uint64_t bytes, struct ntx_err *err);

struct ntx_kv_file;
/* Maps the file at `base`, over what is there, and owns fd, also when it fails. */
int ntx_kv_file_new(int fd, void *base, const struct ntx_kv_layout *l, uint64_t most, struct ntx_kv_file **out, struct ntx_err *err);
void ntx_kv_file_free(struct ntx_kv_file *f); /* the mapping stays, the caller's */

/* A pass: first what it will read (blocks of a sequence, the last ones youngest), then its layers in order. wants: returns when the layer's runs are there; -EIO where
 * the drive failed. */
void ntx_kv_file_add(struct ntx_kv_file *f, const uint32_t *blocks, uint32_t n);
void ntx_kv_file_begin(struct ntx_kv_file *f);
int ntx_kv_file_wants(struct ntx_kv_file *f, uint32_t layer);
void ntx_kv_file_done(struct ntx_kv_file *f, uint32_t layer);
void ntx_kv_file_end(struct ntx_kv_file *f); /* the first layers are read ahead for the next pass */

struct ntx_kv_file_stats { uint64_t read_bytes, dropped_bytes, held_bytes, held_most, waited_ns; };
struct ntx_kv_file_stats ntx_kv_file_stats(struct ntx_kv_file *f);

#endif
