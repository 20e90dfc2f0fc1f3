/* SPDX-License-Identifier: Apache-2.0 */
/* core.h: what ntx-iod reads next. Pure: it sees a region (memory), is told the time and the results, and says what to
 * read; it makes no system call. One thread.
 *
 *        next() ---> read ---> source ---> result ---> done()
 *          |                                             |
 *          +---- FILLING ---- words of the region ---- READY | FAILED ----> hooks.state (wake whoever waits)
 *
 * Order. Demands first, but those marked early last of all, and few reads of them at a time: a demand that comes
 * meanwhile waits for no more. Of those that are given up when they have been begun, nothing more is read. Then the
 * schedule and the host arena, in order of use: a host chunk that is not READY counts as wanted in the pass being
 * executed, a ring sequence in its own pass, and the earlier one is read first. So a cold start reads the model once in
 * the order in which the first pass consumes it, computing overlaps from the first chunk on, and once the arena is full
 * only the ring is left. When the ring is full, the rest of the arena is read.
 *
 * Limits. Not bytes of chunks but bytes in flight: a chunk is read in equal pieces of at most piece_bytes, and at least
 * half of that. Of bundles that a layer waits for there may be more: it waits for all of them, and nothing that is
 * wanted sooner can come. Where layers demand bundles, few reads into slots are in flight at a time: a demand waits
 * behind them, and compute for the demand.
 *
 * Failures. A piece that fails or comes short is tried again NTX_IOD_TRIES times in all; then its chunk is FAILED, once
 * none of its pieces is in flight. A word never leaves FILLING while a read into its slot could still land.
 *
 * Nothing here outlives the process: ntx_iod_core_new derives all from the region's words (shm/region.h, DEATH).
 *
 * A FAILED host chunk has no field for the reason, so the generation bits of its word hold the positive errno. */
#ifndef NTX_IOD_CORE_H
#define NTX_IOD_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "iod/read.h"
#include "shm/counters.h"
#include "shm/region.h"

#define NTX_IOD_TRIES       4
#define NTX_IOD_EARLY_READS 4 /* in flight at once, of early demands */
#define NTX_IOD_DEEPER      4 /* times the bytes in flight, of bundles that are awaited */
#define NTX_IOD_RING_READS  4 /* and into slots, where there are bundles on demand */

/* A read's tag, for the log of a dead iod's ring and for finding the job again:
 *   63..62 kind   61..60 tries before this one   59..38 slot, frame or chunk   37..16 generation   15..0 piece */
enum ntx_iod_kind { NTX_IOD_SLOT, NTX_IOD_FRAME, NTX_IOD_CHUNK };
static inline enum ntx_iod_kind ntx_iod_tag_kind(uint64_t t) { return (enum ntx_iod_kind)(t >> 62); }
static inline uint32_t ntx_iod_tag_tries(uint64_t t) { return (uint32_t)(t >> 60) & 3; }
static inline uint32_t ntx_iod_tag_index(uint64_t t) { return (uint32_t)(t >> 38) & 0x3fffff; }
static inline uint32_t ntx_iod_tag_piece(uint64_t t) { return (uint32_t)t & 0xffff; }

struct ntx_iod_failure {
    uint32_t chunk; /* UINT32_MAX: a demand */
    uint32_t file;
    uint64_t offset; /* of the piece that failed */
    uint32_t bytes;
    int err; /* negative errno; -ENODATA: the file ended early */
};

struct ntx_iod_hooks {
    void *ctx;
    /* A word has just got state s: whoever waits on it is to be woken (not for FILLING: nobody waits for that). */
    void (*state)(void *ctx, _Atomic uint32_t *word, enum ntx_state s);
    /* A chunk or demand is about to become FAILED. */
    void (*failed)(void *ctx, const struct ntx_iod_failure *f);
};

struct ntx_iod_limits {
    uint64_t inflight_bytes; /* 0: 4 MiB. One piece is always allowed */
    uint64_t piece_bytes;    /* 0: 512 KiB. Rounded up to whole blocks */
};

struct ntx_iod_core;

/* Takes up the words of an attached region (so its plan is validated) as they are. The region and the counters (may be
 * NULL) must outlive the core. -E2BIG: more chunks than a tag can name. */
int ntx_iod_core_new(const struct ntx_region *r, struct ntx_counters *counters, const struct ntx_iod_limits *limits,
                     const struct ntx_iod_hooks *hooks, struct ntx_iod_core **out, struct ntx_err *err);
void ntx_iod_core_free(struct ntx_iod_core *c);

/* 1: *out is to be read now. 0: nothing until something changes (then see ntx_iod_core_idle). */
int ntx_iod_core_next(struct ntx_iod_core *c, uint64_t now_ns, struct ntx_iod_read *out);
/* The same, and the region is told whether ntx-iod sleeps (iod_asleep): so after 0 the caller may sleep until a result
 * or computed's eventfd comes. */
int ntx_iod_core_next_read(struct ntx_iod_core *c, uint64_t now_ns, struct ntx_iod_read *out);
/* The result of a read: bytes or negative errno. Returns true, and in *rd which read it was, when it brought its bytes.
 * */
bool ntx_iod_core_done(struct ntx_iod_core *c, uint64_t now_ns, uint64_t tag, int32_t result, struct ntx_iod_read *rd);

/* After next() gave 0: true when nothing is wanted (only computed can change that), false when the limits hold it back
 * (the next result changes that). */
bool ntx_iod_core_idle(const struct ntx_iod_core *c);
uint64_t ntx_iod_core_inflight(const struct ntx_iod_core *c);

/* Layers likely to be dropped from pass `pass` (bit l of byte l / 8): their chunks are read after the others that the
 * ring has room for, never left out. */
void ntx_iod_core_hint(struct ntx_iod_core *c, uint64_t pass, const uint8_t *skip, size_t n);

#endif
