/* SPDX-License-Identifier: Apache-2.0 */
/* mem_weights.h: ntx_weights over files in memory, strict about the protocol of computed/pass/weights.h.
 *
 * A chunk is copied when it is first acquired and freed when released, so that sanitizers see a use after release (and
 * it is poisoned for all others). `window` acts as a short ring: a matrix chunk is available only while it is less than
 * `window` matrix chunks beyond the first one that is neither released nor skipped (vectors are always resident). Any
 * breach of the protocol fails the test. */
#ifndef NTX_TESTS_UNIT_PASS_MEM_WEIGHTS_H
#define NTX_TESTS_UNIT_PASS_MEM_WEIGHTS_H

#include <pthread.h>
#include <stdbool.h>

#include "computed/pass/weights.h"
#include "model/chunk.h"
#include "shm/region.h"

enum mem_state { MEM_IDLE, MEM_HELD, MEM_RELEASED, MEM_SKIPPED };

struct mem_weights {
    struct ntx_weights w;
    const struct ntx_chunks *chunks;
    uint8_t *files[8];
    size_t file_bytes[8];
    uint32_t window; /* 0: none */
    /* With a device: its chunks, and vectors, are never acquired; host chunks are resident. */
    const struct ntx_plan_chunk *table;
    /* One of so many chunks that are not vectors is resident once acquired, and may be re-arranged; 0: none. */
    uint32_t stay_every;
    size_t slack; /* bytes after a chunk that may be read */
    bool forgive; /* a pass may end with chunks held, since something else failed */
    /* faults, set by the test between passes */
    uint32_t fail_chunk; /* UINT32_MAX: none */
    bool fail_rows, fail_begin;
    unsigned late_of; /* one of so many experts must still be read, until the end of its layer; 0: none */
    /* state */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool open, failed;
    uint64_t pass;
    enum mem_state *state; /* [chunks->n] */
    uint8_t **copy;
    uint32_t *rank;      /* [chunks->n + 1] matrix chunks before this one */
    uint32_t first_open; /* least chunk neither released nor skipped */
    /* records */
    unsigned begins, ends, entry_reads;
    uint32_t n_acquired, n_skipped; /* chunks in the last pass */
    uint32_t drops[600];            /* layers announced in the last pass, in order */
    unsigned n_drops;
    uint32_t drop_at[600]; /* chunks acquired by then */
    unsigned n_prefetched; /* number of prefetches of experts, */
    uint64_t prefetch[64]; /* the last one's experts by layer, as bits; */
    uint64_t wanted[64];   /* experts that rows of the last pass were routed to */
};

/* Before the first pass. */
void mem_weights_table(struct mem_weights *m, const struct ntx_plan_chunk *table);
/* fds: the model's parts, read whole. */
void mem_weights_init(struct mem_weights *m, const int *fds, unsigned n_fds);
void mem_weights_chunks(struct mem_weights *m, const struct ntx_chunks *c); /* once they are known */
/* Prefetches of experts (in layers below 64) are only recorded. A resident chunk is in memory once it was acquired, and
 * may be taken before its turn. */
void mem_weights_prefetch(struct mem_weights *m);
void mem_weights_done(struct mem_weights *m);

#endif
