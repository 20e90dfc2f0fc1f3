/* SPDX-License-Identifier: Apache-2.0 */
/* make_region.h: a small region with a plan, for tests. File 0 holds pattern bytes (a function of the offset). Its
 * chunks follow one another at unaligned offsets, `per_layer` to a layer, every third one in the arena. File 1 holds
 * the entries of a table. */
#ifndef NTX_TESTS_UNIT_SHM_MAKE_REGION_H
#define NTX_TESTS_UNIT_SHM_MAKE_REGION_H

#include "common/util.h"
#include "shm/region.h"
#include "tests/lib/check.h"

#define BLOCK       4096u
#define ENTRY_BYTES 1300u
#define N_ENTRIES   200u

struct shape {
    uint32_t n_layers, per_layer, n_desc, n_slots, n_demands, n_bundle_demands;
    uint32_t chunk_bytes; /* at most; sizes vary */
    bool host;            /* every third chunk is in the arena */
    uint32_t n_stage_reads, stage_blocks;
};

static inline uint8_t pattern(uint32_t file, uint64_t offset)
{
    uint64_t x = (offset + 1) * 0x9e3779b97f4a7c15u + file * 0x1234567u;
    return (uint8_t)(x >> 56 ^ x >> 29);
}

static inline uint32_t chunk_size(const struct shape *s, uint32_t i)
{
    return s->chunk_bytes - i * 37 % (s->chunk_bytes / 2);
}
static inline uint64_t first_offset(void) { return 777; }

static inline void make_region(const struct shape *s, struct ntx_region *r)
{
    uint32_t n = (s->n_layers + 1) * s->per_layer, n_sched = 0;
    uint64_t arena = 0, offset = first_offset();
    for (uint32_t i = 0; i < n; offset += chunk_size(s, i++)) {
        if (s->host && i % 3 == 0)
            arena += NTX_ROUND_UP(offset % BLOCK + chunk_size(s, i), (uint64_t)BLOCK);
        else
            n_sched++;
    }
    struct ntx_region_geometry g = {
        .block = BLOCK,
        .n_files = 2,
        .n_chunks = n,
        .n_sched = n_sched,
        .n_desc = s->n_desc,
        .n_slots = s->n_slots,
        .n_demands = s->n_demands,
        .n_bundle_demands = s->n_bundle_demands,
        .n_stage_reads = s->n_stage_reads,
        .stage_bytes = (uint64_t)s->stage_blocks * BLOCK,
        .n_probes = 3,
        .n_layers = s->n_layers,
        .n_embd = 100,
        .arena_bytes = arena,
        .epoch = 42,
        .slot_bytes = NTX_ROUND_UP(s->chunk_bytes + 2 * BLOCK, BLOCK),
        .frame_bytes = 2 * BLOCK,
    };
    struct ntx_err err = {0};
    char note[512];
    CHECK_MSG(!ntx_region_create(&g, r, note, sizeof note, &err), "%s", err.text);
    r->hdr->file_bytes[0] = offset + 5;
    r->hdr->file_bytes[1] = (uint64_t)ENTRY_BYTES * N_ENTRIES + 99;
    uint64_t where = r->hdr->off_arena;
    uint32_t sched = 0;
    offset = first_offset();
    for (uint32_t i = 0; i < n; i++) {
        struct ntx_plan_chunk *c = &r->chunks[i];
        *c = (struct ntx_plan_chunk){.offset = offset, .bytes = chunk_size(s, i), .layer = i / s->per_layer};
        if (s->host && i % 3 == 0) {
            c->placement = NTX_PLACE_HOST;
            c->where = where + offset % BLOCK;
            where += NTX_ROUND_UP(offset % BLOCK + c->bytes, (uint64_t)BLOCK);
        } else {
            c->placement = NTX_PLACE_STORAGE;
            c->sched = sched;
            r->sched[sched++] = i;
        }
        offset += c->bytes;
    }
    CHECK_EQ(sched, n_sched);
    CHECK_MSG(!ntx_region_publish(r, &err), "%s", err.text);
}

#endif
