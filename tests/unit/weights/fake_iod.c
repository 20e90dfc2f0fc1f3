/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/weights/fake_iod.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

static uint32_t rnd(struct fake_iod *f, uint32_t n)
{
    f->seed = f->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(f->seed >> 33) % n;
}

static uint32_t load(_Atomic uint32_t *w) { return atomic_load_explicit(w, memory_order_acquire); }

static void set(_Atomic uint32_t *w, uint32_t gen, enum ntx_state st)
{
    atomic_store_explicit(w, ntx_word(gen, st), memory_order_release);
    ntx_futex_wake(w);
}

static void land(const struct fill *l)
{
    for (uint64_t i = 0; i < l->bytes; i++)
        l->to[i] = pattern(l->file, l->offset + i);
}

static void finish(struct fake_iod *f, uint32_t i)
{
    struct fill l = f->under_way[i];
    f->under_way[i] = f->under_way[--f->n_under_way];
    bool failed = l.chunk != UINT32_MAX ? l.chunk == f->fail_chunk : f->fail_demand;
    if (failed) {
        if (l.chunk == UINT32_MAX)
            f->fail_demand = false;
        else
            f->fail_chunk = UINT32_MAX;
        if (l.desc)
            l.desc->err = -EIO;
        if (l.demand)
            l.demand->err = -EIO;
        set(l.word, l.desc || l.demand ? l.gen : EIO, NTX_FAILED);
        return;
    }
    land(&l);
    atomic_fetch_add(&f->read_chunks, l.chunk != UINT32_MAX);
    set(l.word, l.gen, NTX_READY);
}

static void put_under_way(struct fake_iod *f, struct fill l)
{
    l.ticks = rnd(f, f->max_ticks + 1);
    f->under_way[f->n_under_way++] = l;
    atomic_store_explicit(l.word, ntx_word(l.gen, NTX_FILLING), memory_order_release);
}

static bool take_demand(struct fake_iod *f)
{
    const struct ntx_region_hdr *h = f->r->hdr;
    for (uint32_t i = 0; i < ntx_region_all_demands(h); i++) {
        struct ntx_demand *d = &f->r->demand[i];
        uint32_t w = load(&d->word);
        if (ntx_word_state(w) != NTX_POSTED)
            continue;
        const struct ntx_read_request *a = &f->r->request[i];
        uint8_t *to = i < h->n_demands ? ntx_region_frame(f->r, i) : f->r->base + a->dest;
        d->shift = (uint32_t)(a->offset % BLOCK);
        put_under_way(f, (struct fill){.file = a->file,
                                       .offset = a->offset,
                                       .bytes = a->bytes,
                                       .to = to + d->shift,
                                       .word = &d->word,
                                       .gen = ntx_word_gen(w),
                                       .chunk = UINT32_MAX,
                                       .demand = d});
        return true;
    }
    return false;
}

static bool take_host(struct fake_iod *f)
{
    for (uint32_t i = 0; i < f->r->hdr->n_chunks; i++) {
        const struct ntx_plan_chunk *c = &f->r->chunks[i];
        if (c->placement == NTX_PLACE_HOST && ntx_word_state(load(&f->r->state[i])) == NTX_FREE) {
            put_under_way(f, (struct fill){.file = c->file,
                                           .offset = c->offset,
                                           .bytes = c->bytes,
                                           .to = f->r->base + c->where,
                                           .word = &f->r->state[i],
                                           .chunk = i});
            return true;
        }
    }
    return false;
}

static uint64_t next_sequence(struct fake_iod *f)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < f->r->hdr->n_desc; i++) {
        uint32_t w = load(&f->r->desc[i].word);
        if (ntx_word_state(w) == NTX_FREE)
            least = NTX_MIN(least, (uint64_t)ntx_word_gen(w) * f->r->hdr->n_desc + i);
    }
    return least;
}

static uint32_t free_slot(struct fake_iod *f)
{
    for (uint32_t s = 0; s < f->r->hdr->n_slots; s++) {
        bool held = load(&f->r->quarantine[s]) != 0;
        for (uint32_t i = 0; i < f->r->hdr->n_desc; i++) {
            enum ntx_state st = ntx_word_state(load(&f->r->desc[i].word));
            held |= (st == NTX_FILLING || st == NTX_READY) && f->r->desc[i].slot == s;
        }
        if (!held)
            return s;
    }
    return UINT32_MAX;
}

static bool dropped(struct fake_iod *f, uint64_t pass, uint32_t layer)
{
    struct ntx_pass_map *m = &f->r->pass_map[pass % NTX_PASS_MAPS];
    return !f->skips_nothing && atomic_load_explicit(&m->pass, memory_order_acquire) == pass &&
           (m->drop[layer / 64] >> layer % 64 & 1);
}

static bool take_scheduled(struct fake_iod *f)
{
    const struct ntx_region_hdr *h = f->r->hdr;
    uint64_t seq = h->n_sched ? next_sequence(f) : UINT64_MAX;
    if (seq == UINT64_MAX)
        return false;
    struct ntx_desc *d = &f->r->desc[seq % h->n_desc];
    uint32_t sched = (uint32_t)(seq % h->n_sched), chunk = f->r->sched[sched], lap = (uint32_t)(seq / h->n_desc);
    const struct ntx_plan_chunk *c = &f->r->chunks[chunk];
    uint32_t slot = free_slot(f);
    bool skip = dropped(f, seq / h->n_sched, c->layer);
    if (!skip && slot == UINT32_MAX)
        return false;
    d->pass = seq / h->n_sched;
    d->sched = sched;
    d->chunk = chunk;
    if (skip) {
        set(&d->word, lap, NTX_SKIPPED);
        return true;
    }
    if (chunk == f->wrong_chunk) {
        d->chunk++;
        f->wrong_chunk = UINT32_MAX;
    }
    d->slot = slot;
    d->shift = (uint32_t)(c->offset % BLOCK);
    put_under_way(f, (struct fill){.file = c->file,
                                   .offset = c->offset,
                                   .bytes = c->bytes,
                                   .to = ntx_region_slot(f->r, slot) + d->shift,
                                   .word = &d->word,
                                   .gen = lap,
                                   .chunk = chunk,
                                   .desc = d});
    return true;
}

static bool take(struct fake_iod *f)
{
    return take_demand(f) || (rnd(f, 2) && take_host(f)) || take_scheduled(f) || take_host(f);
}

/* Like iod: sets iod_asleep, looks once more, and only then sleeps. No timeout: a lost wake hangs the test. */
static void sleep_until_woken(struct fake_iod *f)
{
    struct pollfd p = {f->wake_fd, POLLIN, 0};
    uint64_t n;
    atomic_store_explicit(&f->r->ring->iod_asleep, 1, memory_order_seq_cst);
    bool found = take(f);
    if (!found && !atomic_load(&f->killed)) {
        atomic_fetch_add(&f->sleeps, 1);
        poll(&p, 1, -1);
        if (read(f->wake_fd, &n, sizeof n) == sizeof n)
            atomic_fetch_add(&f->wakes, 1);
    }
    atomic_store_explicit(&f->r->ring->iod_asleep, 0, memory_order_seq_cst);
}

static void step(struct fake_iod *f)
{
    bool busy = f->n_under_way < FAKE_DEPTH && take(f);
    for (uint32_t i = 0; i < f->n_under_way;) {
        busy = true;
        if (!f->under_way[i].ticks--)
            finish(f, i);
        else
            i++;
    }
    if (!busy)
        sleep_until_woken(f);
    else if (f->max_ticks)
        sched_yield();
}

static void *run(void *arg)
{
    struct fake_iod *f = arg;
    while (!atomic_load(&f->killed))
        step(f);
    return NULL;
}

void fake_start(struct fake_iod *f)
{
    atomic_store(&f->killed, false);
    CHECK(!pthread_create(&f->thread, NULL, run, f));
}

void fake_kill(struct fake_iod *f)
{
    uint64_t one = 1;
    atomic_store(&f->killed, true);
    CHECK_EQ(write(f->wake_fd, &one, sizeof one), sizeof one);
    CHECK(!pthread_join(f->thread, NULL));
}

/* As a drive's DMA, which no thread does: readers find the same bytes before and after it. */
__attribute__((no_sanitize("thread"))) static void land_late(const struct fill *l)
{
    for (uint64_t i = 0; i < l->bytes; i++)
        l->to[i] = pattern(l->file, l->offset + i);
}

void fake_land(struct fake_iod *dead, bool all)
{
    for (uint32_t i = 0; i < dead->n_under_way; i++)
        if (dead->under_way[i].desc || all)
            land_late(&dead->under_way[i]);
    dead->n_under_way = 0;
}
