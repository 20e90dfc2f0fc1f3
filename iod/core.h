/* SPDX-License-Identifier: Apache-2.0 */
/* core.h: decides what ntx-iod reads next. Pure: it sees a region (memory), gets the time and the results, and returns
 * the next read. It makes no system call. One thread.
 *
 *        next() ---> read ---> source ---> result ---> done()
 *          |                                             |
 *          +---- FILLING ---- words of the region ---- READY | FAILED ----> hooks.state (wake the waiting thread)
 *
 * Order. Demand reads come first, prefetch reads last. Few prefetch reads are in flight at a time, so that a new demand
 * waits behind few. When a prefetch read is cancelled, no more of its pieces are read. Between the two come the
 * schedule and the host arena in order of use: a host chunk that is not READY counts as wanted in the current pass, a
 * ring sequence in its own pass, and the earlier one is read first. So a cold start reads the model once, in the order
 * in which the first pass consumes it; compute overlaps from the first chunk on. Once the arena is full only the ring
 * is left. When the ring is full, the rest of the arena is read.
 *
 * The stage (an encode of a picture) comes last of all, with few reads in flight. Where a text is bound by the drive,
 * something else is always wanted: then the stage gets a read after NTX_IOD_STAGE_SHARE times as many other bytes.
 *
 * Limits. The limit is on bytes in flight, not on chunks: a chunk is read in equal pieces of at most piece_bytes and at
 * least half of that. Bundles that a layer waits for may exceed the limit: the layer needs all of them before anything
 * else. In models with bundles on demand, few reads into slots are in flight at a time: a demand waits behind them, and
 * compute waits for the demand.
 *
 * Failures. A piece that fails or comes short is tried NTX_IOD_TRIES times in all. Then its chunk becomes FAILED, once
 * none of its pieces is in flight. A word never leaves FILLING while a read into its slot could still land.
 *
 * No state outlives the process: ntx_iod_core_new derives all of it from the region's words (shm/region.h, DEATH OF
 * IOD).
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
#define NTX_IOD_EARLY_READS 4 /* prefetch reads in flight at once */
#define NTX_IOD_DEEPER      4 /* bundles that a layer waits for may have this many times the bytes in flight */
#define NTX_IOD_RING_READS  4 /* reads into slots in flight at once, in models with bundles on demand */
#define NTX_IOD_STAGE_READS 2 /* reads into the stage in flight at once */
#define NTX_IOD_STAGE_SHARE 8 /* pieces of others for each piece of the stage */

/* A read's tag names the job, also in a dead iod's ring:
 *
 *   63..62 kind   61..60 tries before this one   59..38 slot, request or chunk   37..16 generation   15..0 piece */
enum ntx_iod_kind { NTX_IOD_SLOT, NTX_IOD_FRAME, NTX_IOD_CHUNK, NTX_IOD_STAGE };
static inline enum ntx_iod_kind ntx_iod_tag_kind(uint64_t t) { return (enum ntx_iod_kind)(t >> 62); }
static inline uint32_t ntx_iod_tag_tries(uint64_t t) { return (uint32_t)(t >> 60) & 3; }
static inline uint32_t ntx_iod_tag_index(uint64_t t) { return (uint32_t)(t >> 38) & 0x3fffff; }
static inline uint32_t ntx_iod_tag_piece(uint64_t t) { return (uint32_t)t & 0xffff; }

struct ntx_iod_failure {
    uint32_t chunk; /* UINT32_MAX: a demand; NTX_STAGE_CHUNK: of the stage */
    uint32_t file;
    uint64_t offset; /* offset of the piece that failed */
    uint32_t bytes;
    int err; /* negative errno; -ENODATA: the file ended early */
};

struct ntx_iod_hooks {
    void *ctx;
    /* A word has just become s. Waiters are to be woken, but not for FILLING. */
    void (*state)(void *ctx, _Atomic uint32_t *word, enum ntx_state s);
    /* A chunk or demand is about to become FAILED. */
    void (*failed)(void *ctx, const struct ntx_iod_failure *f);
};

struct ntx_iod_limits {
    uint64_t inflight_bytes; /* 0: 4 MiB. One piece is always allowed */
    uint64_t piece_bytes;    /* 0: 512 KiB. Rounded up to whole blocks */
};

struct ntx_iod_core;

/* Makes a core that continues from the words of an attached region (whose plan is validated). The region and the
 * counters (may be NULL) must outlive the core. -E2BIG: more chunks than a tag can name. */
int ntx_iod_core_new(const struct ntx_region *r, struct ntx_counters *counters, const struct ntx_iod_limits *limits,
                     const struct ntx_iod_hooks *hooks, struct ntx_iod_core **out, struct ntx_err *err);
void ntx_iod_core_free(struct ntx_iod_core *c);

/* 1: read *out now. 0: nothing to read until something changes (see ntx_iod_core_idle). */
int ntx_iod_core_next(struct ntx_iod_core *c, uint64_t now_ns, struct ntx_iod_read *out);
/* The same, and sets iod_asleep in the region. After 0 the caller may sleep until a result or computed's eventfd
 * comes. */
int ntx_iod_core_next_read(struct ntx_iod_core *c, uint64_t now_ns, struct ntx_iod_read *out);
/* Takes the result of a read: bytes or negative errno. Returns true when the read brought its bytes; *rd is then the
 * read. */
bool ntx_iod_core_done(struct ntx_iod_core *c, uint64_t now_ns, uint64_t tag, int32_t result, struct ntx_iod_read *rd);

/* After next() returned 0: true when nothing is wanted (only computed can change that), false when the limits hold
 * reads back (the next result changes that). */
bool ntx_iod_core_idle(const struct ntx_iod_core *c);
uint64_t ntx_iod_core_inflight(const struct ntx_iod_core *c);

/* Layers that pass `pass` will probably skip (bit l of byte l / 8). Their chunks are read after the others that the
 * ring has room for, but never left out. */
void ntx_iod_core_hint(struct ntx_iod_core *c, uint64_t pass, const uint8_t *skip, size_t n);

#endif
