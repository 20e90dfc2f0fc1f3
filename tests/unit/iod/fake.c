/* SPDX-License-Identifier: Apache-2.0 */
#include "fake.h"

#include "common/util.h"
#include "tests/lib/check.h"

static void on_state(void *ctx, _Atomic uint32_t *word, enum ntx_state s)
{
    struct fake *f = ctx;
    CHECK_EQ(ntx_word_state(*word), s);
    f->n_state[s]++;
}

static void on_failed(void *ctx, const struct ntx_iod_failure *e)
{
    struct fake *f = ctx;
    f->failure = *e;
    f->n_failures++;
}

static void *table(size_t n, size_t size)
{
    void *p = aligned_alloc(128, NTX_ROUND_UP(n * size + 1, 128));
    CHECK(p);
    memset(p, 0, n * size);
    return p;
}

static void place_chunks(struct fake *f, const struct fake_shape *s)
{
    struct ntx_region_hdr *h = f->r.hdr;
    uint64_t where = h->off_arena;
    for (uint32_t i = 0; i < s->n_chunks; i++) {
        struct ntx_plan_chunk *p = &f->r.chunks[i];
        p->offset = 1000 + (uint64_t)i * s->chunk_bytes;
        p->bytes = s->chunk_bytes;
        p->layer = i / 2;
        if (s->host_every && i % s->host_every == 0) {
            p->placement = NTX_PLACE_HOST;
            p->where = where + p->offset % h->block;
            where = NTX_ROUND_UP(p->where + p->bytes, h->block);
        } else {
            p->placement = NTX_PLACE_STORAGE;
            p->sched = h->n_sched;
            f->r.sched[h->n_sched++] = i;
        }
    }
    h->file_bytes[0] = 1000 + (uint64_t)s->n_chunks * s->chunk_bytes;
}

void fake_new(struct fake *f, const struct fake_shape *s)
{
    *f = (struct fake){.now = 1000};
    struct ntx_region_hdr *h = f->r.hdr = table(1, sizeof(*h));
    h->block = FAKE_BLOCK;
    h->n_files = 1;
    h->n_chunks = s->n_chunks;
    h->n_desc = s->n_desc;
    h->n_slots = s->n_slots;
    h->n_demands = s->n_demands;
    h->n_bundle_demands = s->n_bundle_demands;
    h->n_stage_reads = s->n_stage_reads;
    h->slot_bytes = NTX_ROUND_UP(s->chunk_bytes, FAKE_BLOCK) + 2 * FAKE_BLOCK;
    h->frame_bytes = 4 * FAKE_BLOCK;
    h->off_frames = h->n_slots * h->slot_bytes;
    h->off_arena = h->off_frames + h->n_demands * h->frame_bytes;
    f->r.chunks = table(s->n_chunks, sizeof(*f->r.chunks));
    f->r.sched = table(s->n_chunks, sizeof(*f->r.sched));
    f->r.state = table(s->n_chunks, sizeof(*f->r.state));
    f->r.desc = table(s->n_desc, sizeof(*f->r.desc));
    f->r.quarantine = table(s->n_slots, sizeof(*f->r.quarantine));
    f->r.pass_map = table(NTX_PASS_MAPS, sizeof(*f->r.pass_map));
    h->arena_bytes = FAKE_ARENA;
    h->off_stage = h->off_arena + FAKE_ARENA;
    h->stage_bytes = s->n_stage_reads ? FAKE_ARENA : 0;
    f->r.demand = table(ntx_region_all_demands(h), sizeof(*f->r.demand));
    f->r.request = table(ntx_region_all_demands(h), sizeof(*f->r.request));
    f->r.control = table(1, sizeof(*f->r.control));
    f->r.ring = table(1, sizeof(*f->r.ring));
    for (int i = 0; i < NTX_PASS_MAPS; i++)
        f->r.pass_map[i].pass = UINT64_MAX;
    place_chunks(f, s);
    fake_restart(f, s);
}

void fake_restart(struct fake *f, const struct fake_shape *s)
{
    struct ntx_iod_hooks hooks = {.ctx = f, .state = on_state, .failed = on_failed};
    struct ntx_iod_limits limits = {.inflight_bytes = s->inflight, .piece_bytes = s->piece};
    ntx_iod_core_free(f->core);
    CHECK_EQ(ntx_iod_core_new(&f->r, &f->counters, &limits, &hooks, &f->core, NULL), 0);
}

void fake_free(struct fake *f)
{
    ntx_iod_core_free(f->core);
    free(f->r.hdr);
    free(f->r.chunks);
    free(f->r.sched);
    free((void *)f->r.state);
    free(f->r.desc);
    free((void *)f->r.quarantine);
    free(f->r.pass_map);
    free(f->r.demand);
    free(f->r.request);
    free(f->r.control);
    free(f->r.ring);
}

struct ntx_iod_read fake_next(struct fake *f)
{
    struct ntx_iod_read rd;
    if (!ntx_iod_core_next(f->core, ++f->now, &rd))
        rd = (struct ntx_iod_read){.tag = UINT64_MAX, .chunk = UINT32_MAX};
    return rd;
}

void fake_done(struct fake *f, const struct ntx_iod_read *rd, int32_t result)
{
    struct ntx_iod_read was;
    bool good = ntx_iod_core_done(f->core, ++f->now, rd->tag, result, &was);
    CHECK_EQ(good, result >= (int32_t)rd->expect);
    CHECK(!good || (was.tag == rd->tag && was.offset == rd->offset));
}

unsigned fake_settle(struct fake *f)
{
    unsigned n = 0;
    for (struct ntx_iod_read rd; (rd = fake_next(f)).tag != UINT64_MAX; n++)
        fake_done(f, &rd, (int32_t)rd.expect);
    return n;
}

uint32_t fake_word(const struct fake *f, uint32_t desc) { return f->r.desc[desc].word; }

void fake_consume(struct fake *f, uint64_t seq, enum ntx_state state)
{
    struct ntx_region_hdr *h = f->r.hdr;
    struct ntx_desc *d = &f->r.desc[seq % h->n_desc];
    uint32_t lap = (uint32_t)(seq / h->n_desc);
    CHECK_MSG(d->word == ntx_word(lap, state), "sequence %llu: word %#x", (unsigned long long)seq, d->word);
    CHECK_EQ(d->pass, seq / h->n_sched);
    CHECK_EQ(d->sched, seq % h->n_sched);
    CHECK_EQ(d->chunk, f->r.sched[d->sched]);
    if (state == NTX_READY)
        CHECK_EQ(d->shift, f->r.chunks[d->chunk].offset % h->block);
    d->word = ntx_word(lap + 1, NTX_FREE);
}
