/* SPDX-License-Identifier: Apache-2.0 */
/* An iod writes nonsense over everything that it may write, and dies: the next one finds every word right, and the
 * bytes stay right. */
#include "common/util.h"
#include "tests/unit/weights/engine.h"

static uint32_t nonsense(struct engine *e, unsigned kind, uint32_t word)
{
    static const uint32_t constant[] = {0, UINT32_MAX, 0x80000001u, 0xf1f1f1f1u};
    enum ntx_state st = (enum ntx_state)rnd(e, 16);
    if (kind < sizeof constant / sizeof *constant)
        return constant[kind];
    if (kind == 4) /* of the right lap, but nothing that was read: indistinguishable from data */
        return ntx_word(ntx_word_gen(word),
                        st == NTX_READY || (st == NTX_SKIPPED) || st == NTX_FAILED ? NTX_FILLING : st);
    return rnd(e, UINT32_MAX) << 1 | 1;
}

static void scribble(struct engine *e, unsigned kind)
{
    const struct ntx_region *r = &e->r;
    for (uint32_t *p = (uint32_t *)r->desc; kind != 4 && p < (uint32_t *)(r->desc + r->hdr->n_desc); p++)
        *p = nonsense(e, kind, 0);
    for (uint32_t *p = (uint32_t *)r->demand; kind != 4 && p < (uint32_t *)(r->demand + ntx_region_all_demands(r->hdr));
         p++)
        *p = nonsense(e, kind, 0);
    for (uint32_t i = 0; i < r->hdr->n_desc && kind == 4; i++) {
        atomic_store(&r->desc[i].word, nonsense(e, kind, atomic_load(&r->desc[i].word)));
        r->desc[i].slot = rnd(e, 3);
    }
    for (uint32_t i = 0; i < ntx_region_all_demands(r->hdr) && kind == 4; i++)
        atomic_store(&r->demand[i].word, nonsense(e, kind, atomic_load(&r->demand[i].word)));
    for (uint32_t i = 0; i < r->hdr->n_chunks; i++)
        atomic_store(&r->state[i], nonsense(e, kind, 0));
    atomic_store(&r->ring->iod_asleep, 77);
    atomic_store(&r->ring->drive_until, ntx_now_ns() + 90000000000u);
}

/* The next iod takes the laps from pass and index (iod/core_pick.c): it finds each descriptor where computed has it. */
static void check_words(const struct engine *e)
{
    const struct ntx_region_hdr *h = e->r.hdr;
    for (uint32_t i = 0; i < h->n_desc; i++) {
        const struct ntx_desc *d = &e->r.desc[i];
        uint32_t w = atomic_load((_Atomic uint32_t *)&d->word);
        CHECK(ntx_word_state(w) == NTX_FREE || ntx_word_state(w) == NTX_READY);
        CHECK_EQ((d->pass * h->n_sched + d->sched) / h->n_desc, ntx_word_gen(w));
        CHECK_EQ((d->pass * h->n_sched + d->sched) % h->n_desc, i);
    }
    for (uint32_t i = 0; i < h->n_chunks; i++) {
        uint32_t w = atomic_load(&e->r.state[i]);
        CHECK(w == ntx_word(0, NTX_FREE) ||
              (e->r.chunks[i].placement == NTX_PLACE_HOST && w == ntx_word(0, NTX_READY)));
    }
    for (uint32_t i = 0; i < ntx_region_all_demands(h); i++)
        CHECK(ntx_word_state(atomic_load(&e->r.demand[i].word)) == NTX_FREE ||
              ntx_word_state(atomic_load(&e->r.demand[i].word)) == NTX_POSTED);
    CHECK_EQ(atomic_load(&e->r.ring->iod_asleep), 0);
    CHECK_EQ(atomic_load(&e->r.ring->drive_until), 0);
}

static void check_whole(const struct engine *e, uint32_t chunk, const void *bytes)
{
    for (unsigned t = 0; t < THREADS; t++)
        check_bytes(e, chunk, bytes, t);
}

enum { HOLD = 4 }; /* chunks that are in use meanwhile, one of them in the arena */

/* One pass in which it happens; entries are requested, and chunks are in use. */
static void scribbled_pass(struct engine *e, unsigned kind)
{
    static uint8_t out[3 * ENTRY_BYTES];
    const int32_t ids[3] = {5, 7, 11};
    const void *bytes[HOLD];
    const uint32_t n = e->r.hdr->n_chunks;
    CHECK_EQ(e->w->ops->begin(e->w, e->pass), 0);
    for (uint32_t i = 0; i < HOLD; i++)
        CHECK_EQ(e->w->ops->acquire(e->w, i, &bytes[i]), 0);
    fake_kill(&e->iod);
    CHECK_EQ(e->w->ops->request_entries(e->w, 1, ENTRIES_AT, ENTRY_BYTES, ids, 3, out), 0);
    fake_land(&e->iod, false);
    scribble(e, kind);
    ntx_stream_iod_died(e->s);
    check_words(e);
    for (uint32_t i = 0; i < e->r.hdr->n_slots; i++)
        CHECK_EQ(e->r.quarantine[i], 1); /* the targets of the dead iod's reads are unknown */
    e->iod.n_under_way = 0;
    fake_start(&e->iod);
    if (kind & 1)
        usleep(2000);
    ntx_stream_end_quarantine(e->s);
    CHECK_EQ(e->w->ops->entries_there(e->w), 0);
    for (uint32_t i = 0; i < sizeof out; i++)
        CHECK_EQ(out[i], pattern(1, ENTRIES_AT + (uint64_t)ids[i / ENTRY_BYTES] * ENTRY_BYTES + i % ENTRY_BYTES));
    for (uint32_t i = HOLD; i < n; i++) {
        const void *b = NULL;
        for (uint32_t k = 0; k < HOLD && i == 2 * HOLD;
             k++) { /* nothing else was read into their slots; the next chunks need them */
            check_whole(e, k, bytes[k]);
            e->w->ops->release(e->w, k);
        }
        CHECK_MSG(!e->w->ops->acquire(e->w, i, &b), "kind %u, chunk %u: %s", kind, i, e->w->error.text);
        check_whole(e, i, b);
        e->w->ops->release(e->w, i);
    }
    e->w->ops->end(e->w);
    e->pass++;
}

static void case_scribbles(void)
{
    struct engine e;
    set_up(&e, &normal, 20);
    fake_start(&e.iod);
    for (unsigned round = 0; round < 60; round++) {
        scribbled_pass(&e, round % 6);
        CHECK_MSG(!run_pass(&e, round % 3 ? 0 : 4, 9), "%s", e.w->error.text);
    }
    fake_kill(&e.iod);
    tear_down(&e);
}

/* Chunks without memory stay unread, whatever was written. */
static void case_scribbled_memory(void)
{
    struct engine e;
    uint32_t n;
    set_up(&e, &normal, 20);
    n = e.r.hdr->n_chunks;
    ntx_stream_await_memory(e.s);
    const uint64_t half = e.r.hdr->off_arena + e.r.hdr->arena_bytes / 2;
    ntx_stream_memory_there(e.s, half);
    scribble(&e, 1);
    ntx_stream_iod_died(e.s);
    for (uint32_t i = 0; i < n; i++)
        CHECK_EQ(atomic_load(&e.r.state[i]),
                 ntx_word(0, host_chunk(&e, i) && end_of(&e, i) > half ? NTX_SKIPPED : NTX_FREE));
    ntx_stream_memory_there(e.s, e.r.bytes);
    ntx_stream_end_quarantine(e.s);
    fake_start(&e.iod);
    CHECK_EQ(run_pass(&e, 0, 3), 0);
    fake_kill(&e.iod);
    tear_down(&e);
}

/* ntx_stream_delivered, which counts deaths without progress (computed/workers/workers_lost.c). */
static void case_delivered(void)
{
    struct engine e;
    bool more = false;
    set_up(&e, &normal, 20);
    CHECK_EQ(ntx_stream_delivered(e.s, &more), 0);
    CHECK(more);
    e.iod.max_ticks = 1000000000;
    fake_start(&e.iod); /* reads, but nothing comes */
    usleep(20000);
    fake_kill(&e.iod);
    ntx_stream_iod_died(e.s);
    ntx_stream_end_quarantine(e.s);
    CHECK_EQ(ntx_stream_delivered(e.s, &more), 0);
    CHECK(more);
    e.iod.n_under_way = 0;
    e.iod.max_ticks = 1;
    fake_start(&e.iod);
    CHECK_EQ(run_pass(&e, 4, 5), 0);
    wait_until_host_ready(&e);
    uint64_t end = ntx_now_ns() + 20000000000u, now, one = 1;
    /* Asleep, it leaves less than half of the ring free until somebody wakes it (shm/region.h). */
    CHECK_EQ(write(e.wake_fd, &one, sizeof one), sizeof one);
    while ((now = ntx_stream_delivered(e.s, &more), more))
        CHECK(ntx_now_ns() < end);
    CHECK(now >= e.r.hdr->n_chunks);
    fake_kill(&e.iod);
    ntx_stream_iod_died(e.s); /* nothing was under way: nothing is lost */
    CHECK_EQ(ntx_stream_delivered(e.s, &more), now);
    CHECK(!more);
    tear_down(&e);
}

int main(void)
{
    ntx_log_init("scribbles", NTX_LOG_ERR); /* each case logs a warning */
    case_scribbles();
    case_scribbled_memory();
    case_delivered();
    return 0;
}
