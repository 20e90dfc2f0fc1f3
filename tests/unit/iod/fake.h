/* SPDX-License-Identifier: Apache-2.0 */
/* fake.h: a region in plain memory (tables only, no slots), a core on it, and a record of the hooks' calls. */
#ifndef NTX_TESTS_UNIT_IOD_FAKE_H
#define NTX_TESTS_UNIT_IOD_FAKE_H

#include "iod/core.h"

#define FAKE_BLOCK 4096u
#define FAKE_ARENA (16u << 20)

struct fake_shape {
    uint32_t n_chunks, n_desc, n_slots, n_demands, n_bundle_demands;
    uint32_t chunk_bytes;
    uint32_t host_every; /* every host_every-th chunk (from 0) is in the arena; 0: none */
    uint64_t inflight, piece;
    uint32_t n_stage_reads; /* with a stage of FAKE_ARENA */
};

struct fake {
    struct ntx_region r;
    struct ntx_counters counters;
    struct ntx_iod_core *core;
    uint64_t now;
    unsigned n_state[6];            /* reported transitions, by state */
    struct ntx_iod_failure failure; /* the last one */
    unsigned n_failures;
};

/* Chunk i: layer i / 2, at offset 1000 + i * chunk_bytes of file 0, whose size ends with the last chunk. */
void fake_new(struct fake *f, const struct fake_shape *s);
void fake_free(struct fake *f);
/* A new core on the present words, as a restarted iod makes it. */
void fake_restart(struct fake *f, const struct fake_shape *s);

/* The next read, or tag UINT64_MAX. */
struct ntx_iod_read fake_next(struct fake *f);
void fake_done(struct fake *f, const struct ntx_iod_read *rd, int32_t result);
/* Issues and completes reads until none is left. Returns the number of reads. */
unsigned fake_settle(struct fake *f);

uint32_t fake_word(const struct fake *f, uint32_t desc);
/* computed's side: checks that sequence seq is in `state` with the right fields, and frees it. */
void fake_consume(struct fake *f, uint64_t seq, enum ntx_state state);

#endif
