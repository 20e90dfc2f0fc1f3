/* SPDX-License-Identifier: Apache-2.0 */
/* core_impl.h: internals of the core, shared by core.c (jobs, pieces, results) and core_pick.c (the next job). */
#ifndef NTX_IOD_CORE_IMPL_H
#define NTX_IOD_CORE_IMPL_H

#include "iod/core.h"

/* One chunk or demand being read: the blocks [start, end) of a file go to `dest` in the region's bytes, in n_pieces. */
struct ntx__job {
    bool used;
    enum ntx_iod_kind kind;
    uint32_t index;         /* slot, request or chunk */
    _Atomic uint32_t *word; /* its state word */
    uint32_t gen;
    struct ntx_desc *desc; /* SLOT */
    uint32_t chunk;        /* UINT32_MAX: a demand; NTX_STAGE_CHUNK: of the stage */
    uint32_t sched;        /* SLOT */
    uint64_t pass;         /* SLOT */
    uint32_t file;
    uint32_t shift; /* first wanted byte - start */
    uint64_t start, end, dest;
    uint32_t piece_bytes, n_pieces;
    uint32_t next;     /* pieces begun */
    uint32_t inflight; /* pieces that the source has */
    uint32_t retries;  /* pieces in the retry queue */
    uint32_t early;    /* pieces in flight that were issued as prefetch */
    int err;
    bool cancelled; /* err is -ECANCELED: the prefetch was cancelled */
    uint32_t got;   /* bytes read so far */
    uint64_t began; /* ns */
    uint64_t err_offset;
    uint32_t err_bytes;
};

/* Each job has a piece in flight or in the retry queue, except the four cur_* jobs. */
#define NTX__MAX_JOBS (NTX_IOD_MAX_READS + 4)

struct ntx__hint {
    uint64_t pass;
    uint64_t skip[NTX_MAP_WORDS];
};

struct ntx_iod_core {
    const struct ntx_region *r;
    struct ntx_counters *counters;
    struct ntx_iod_hooks hooks;
    uint64_t limit_bytes;
    uint32_t piece_bytes;

    uint64_t cursor;       /* least ring sequence that may still have to be read */
    uint32_t host_next;    /* least chunk that may still have to be read into the arena */
    uint32_t host_again;   /* the region's, when host_next was last set to 0 */
    struct ntx__scan {     /* scan of the demand reads, of the prefetch reads, and of the stage's */
        uint32_t first, n; /* requests that it looks at */
        uint32_t next;     /* the scan starts here, round robin */
        uint32_t seen;     /* demand_posted when no POSTED word was left */
        bool wanted;
    } demands, early, stage;
    uint8_t *held; /* [n_slots] scratch */
    struct ntx__hint hints[NTX_PASS_MAPS];

    struct ntx__job jobs[NTX__MAX_JOBS];
    struct ntx__job *cur_demand, *cur_bulk, *cur_early, *cur_stage; /* jobs with pieces that are not yet issued */
    uint64_t retry[NTX_IOD_MAX_READS];                              /* tags to read again, oldest first */
    uint32_t n_retry;

    uint64_t inflight_bytes;
    uint32_t inflight_reads;
    uint32_t ring_reads;              /* reads into slots in flight */
    uint32_t early_reads;             /* prefetch reads in flight */
    uint32_t stage_reads;             /* reads into the stage in flight */
    uint64_t beside;                  /* bytes of others that were issued since the last read into the stage */
    uint64_t busy_since;              /* ns; while reads are in flight */
    uint64_t window_bytes, window_ns; /* bytes of the current rate window, and the time they took */
    bool idle, asleep;
};

/* Sets a word's state and calls the hook. */
void ntx__iod_set_word(struct ntx_iod_core *c, _Atomic uint32_t *word, uint32_t gen, enum ntx_state s);
/* Fills in file range, destination and pieces for `bytes` wanted at `offset`; the blocks go to `dest` and on. */
void ntx__iod_job_range(const struct ntx_iod_core *c, struct ntx__job *j, uint32_t file, uint64_t offset,
                        uint64_t bytes, uint64_t dest);

/* The next job of a class; false: none. On the way, dropped chunks become SKIPPED and invalid demands FAILED. The
 * returned demand is claimed: its word is FILLING. */
bool ntx__iod_pick_demand(struct ntx_iod_core *c, struct ntx__scan *scan, struct ntx__job *j);
bool ntx__iod_pick_bulk(struct ntx_iod_core *c, uint64_t now_ns, struct ntx__job *j);
bool ntx__iod_is_early(const struct ntx_iod_core *c, uint32_t demand);
/* The least ring sequence that the words leave to read. */
uint64_t ntx__iod_find_cursor(const struct ntx_region *r);

#endif
