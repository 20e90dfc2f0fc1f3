/* SPDX-License-Identifier: Apache-2.0 */
/* core_pick.c: picks the next job from the words of the region alone. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "iod/core_impl.h"

#define GEN_MASK 0x0fffffffu

/* How far a word's generation is ahead of a lap. Both have 28 bits and are close to each other. */
static int32_t gen_ahead(uint32_t gen, uint64_t lap) { return (int32_t)((gen - (uint32_t)lap) << 4) >> 4; }

/* Acquire pairs with computed's release of FREE or POSTED: the slot is free, the request is written. seq_cst keeps
 * these loads after the store of iod_asleep (core.c); it costs nothing more here. */
static uint32_t load_word(const _Atomic uint32_t *w)
{
    return atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)w, memory_order_seq_cst);
}

static bool test_bit(const uint64_t *words, uint32_t i)
{
    return i < NTX_MAP_WORDS * 64 && words[i / 64] >> (i % 64) & 1;
}

static bool is_dropped(const struct ntx_region *r, uint64_t pass, uint32_t layer)
{
    struct ntx_pass_map *m = &r->pass_map[pass % NTX_PASS_MAPS];
    /* Pairs with computed's release of `pass` after it cleared the bits: no bit of an older pass is seen. */
    if (layer >= NTX_MAP_WORDS * 64 || atomic_load_explicit(&m->pass, memory_order_acquire) != pass)
        return false;
    return atomic_load_explicit(&m->drop[layer / 64], memory_order_relaxed) >> (layer % 64) & 1;
}

static bool is_hinted(const struct ntx_iod_core *c, uint64_t pass, uint32_t layer)
{
    const struct ntx__hint *h = &c->hints[pass % NTX_PASS_MAPS];
    return h->pass == pass && test_bit(h->skip, layer);
}

/* A descriptor's lap has 28 bits. Its pass and sched, from the last fill, give the rest. A torn pair is off by less
 * than a pass, so the nearest lap is still right. */
uint64_t ntx__iod_find_cursor(const struct ntx_region *r)
{
    const struct ntx_region_hdr *h = r->hdr;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < h->n_desc; i++) {
        const struct ntx_desc *d = &r->desc[i];
        uint32_t w = load_word(&d->word);
        uint64_t lap = (d->pass * h->n_sched + d->sched) / h->n_desc;
        lap += (uint64_t)(int64_t)gen_ahead(ntx_word_gen(w), lap);
        if (ntx_word_state(w) != NTX_FREE)
            lap++;
        least = NTX_MIN(least, lap * h->n_desc + i);
    }
    return least;
}

/* Moves the cursor past sequences that are read or skipped, also those of a previous process. */
static void advance_cursor(struct ntx_iod_core *c)
{
    const uint32_t n = c->r->hdr->n_desc;
    for (;; c->cursor++) {
        uint32_t w = load_word(&c->r->desc[c->cursor % n].word);
        int32_t ahead = gen_ahead(ntx_word_gen(w), c->cursor / n);
        if (ahead < 0)
            return;
        enum ntx_state s = ntx_word_state(w);
        if (ahead == 0 && (s == NTX_FREE || s == NTX_FILLING))
            return;
    }
}

static void skip_sequence(struct ntx_iod_core *c, uint64_t seq, uint64_t now)
{
    const struct ntx_region_hdr *h = c->r->hdr;
    struct ntx_desc *d = &c->r->desc[seq % h->n_desc];
    d->pass = seq / h->n_sched;
    d->sched = (uint32_t)(seq % h->n_sched);
    d->chunk = c->r->sched[d->sched];
    d->err = 0;
    d->t_issue = d->t_ready = now;
    ntx__iod_set_word(c, &d->word, (uint32_t)(seq / h->n_desc) & GEN_MASK, NTX_SKIPPED);
    ntx_count(c->counters, NTX_C_iod_skipped_chunks, 1);
}

/* The first sequence to read: one without a hint if there is one. UINT64_MAX: none. */
static uint64_t ring_sequence(struct ntx_iod_core *c, uint64_t now)
{
    const struct ntx_region_hdr *h = c->r->hdr;
    uint64_t held_back = UINT64_MAX;
    if (!h->n_sched || !h->n_desc)
        return UINT64_MAX;
    advance_cursor(c);
    for (uint64_t s = c->cursor; s < c->cursor + h->n_desc; s++) {
        uint32_t w = load_word(&c->r->desc[s % h->n_desc].word);
        int32_t ahead = gen_ahead(ntx_word_gen(w), s / h->n_desc);
        if (ahead < 0)
            break; /* not consumed yet, nor are later ones */
        if (ahead > 0 || ntx_word_state(w) != NTX_FREE)
            continue;
        uint64_t pass = s / h->n_sched;
        uint32_t layer = c->r->chunks[c->r->sched[s % h->n_sched]].layer;
        if (is_dropped(c->r, pass, layer))
            skip_sequence(c, s, now);
        else if (!is_hinted(c, pass, layer))
            return s;
        else if (held_back == UINT64_MAX)
            held_back = s;
    }
    return held_back;
}

/* The least slot that no descriptor holds and that is not quarantined; n_slots: none. The least slot keeps few in use
 * while compute waits for the drive, so that bytes land where a cache still has the lines (on a virtio drive 8 MiB of
 * buffers are read a third faster than 40 MiB). */
static uint32_t free_slot(struct ntx_iod_core *c)
{
    const struct ntx_region_hdr *h = c->r->hdr;
    memset(c->held, 0, h->n_slots);
    for (uint32_t i = 0; i < h->n_desc; i++) {
        const struct ntx_desc *d = &c->r->desc[i];
        enum ntx_state s = ntx_word_state(load_word(&d->word));
        if ((s == NTX_FILLING || s == NTX_READY) && d->slot < h->n_slots)
            c->held[d->slot] = 1;
    }
    for (uint32_t i = 0; i < h->n_slots; i++)
        if (!c->held[i] && !load_word(&c->r->quarantine[i]))
            return i;
    return h->n_slots;
}

static bool ring_job(struct ntx_iod_core *c, uint64_t seq, struct ntx__job *j)
{
    const struct ntx_region_hdr *h = c->r->hdr;
    uint32_t slot = free_slot(c);
    if (slot == h->n_slots)
        return false;
    uint32_t sched = (uint32_t)(seq % h->n_sched), chunk = c->r->sched[sched];
    const struct ntx_plan_chunk *p = &c->r->chunks[chunk];
    struct ntx_desc *d = &c->r->desc[seq % h->n_desc];
    *j = (struct ntx__job){.kind = NTX_IOD_SLOT,
                           .index = slot,
                           .word = &d->word,
                           .gen = (uint32_t)(seq / h->n_desc) & GEN_MASK,
                           .desc = d,
                           .chunk = chunk,
                           .sched = sched,
                           .pass = seq / h->n_sched};
    ntx__iod_job_range(c, j, p->file, p->offset, p->bytes, slot * h->slot_bytes);
    return true;
}

static uint32_t host_chunk(struct ntx_iod_core *c)
{
    const struct ntx_region *r = c->r;
    /* loaded before the words: a word set FREE later changes it again */
    uint32_t again = load_word(&r->control->host_again);
    if (again != c->host_again) {
        c->host_again = again;
        c->host_next = 0;
    }
    while (c->host_next < r->hdr->n_chunks && (r->chunks[c->host_next].placement != NTX_PLACE_HOST ||
                                               ntx_word_state(load_word(&r->state[c->host_next])) != NTX_FREE))
        c->host_next++;
    return c->host_next;
}

static void host_job(struct ntx_iod_core *c, uint32_t chunk, struct ntx__job *j)
{
    const struct ntx_plan_chunk *p = &c->r->chunks[chunk];
    _Atomic uint32_t *word = &c->r->state[chunk];
    *j = (struct ntx__job){
        .kind = NTX_IOD_CHUNK, .index = chunk, .word = word, .gen = ntx_word_gen(load_word(word)), .chunk = chunk};
    ntx__iod_job_range(c, j, p->file, p->offset, p->bytes, p->where - p->offset % c->r->hdr->block);
}

bool ntx__iod_pick_bulk(struct ntx_iod_core *c, uint64_t now, struct ntx__job *j)
{
    const struct ntx_region_hdr *h = c->r->hdr;
    uint32_t host = host_chunk(c);
    uint64_t seq = ring_sequence(c, now);
    bool have_host = host < h->n_chunks;
    if (seq != UINT64_MAX) {
        /* Chunk numbers are the order of use within a pass. */
        uint64_t pass = seq / h->n_sched,
                 current = atomic_load_explicit(&c->r->control->current_pass, memory_order_relaxed);
        bool host_first = have_host && (pass > current || (pass == current && host < c->r->sched[seq % h->n_sched]));
        if (!host_first && ring_job(c, seq, j))
            return true;
    }
    if (have_host)
        host_job(c, host, j);
    return have_host;
}

/* Where a request's first block goes in the bytes part, and the room there. */
static uint64_t demand_place(const struct ntx_region_hdr *h, uint32_t i, uint64_t dest, uint64_t *room)
{
    const bool stage = i >= ntx_region_first_stage(h);
    const uint64_t begin = stage ? h->off_stage : h->off_arena, bytes = stage ? h->stage_bytes : h->arena_bytes;
    *room = NTX_ROUND_DOWN(h->frame_bytes, h->block);
    if (i < h->n_demands)
        return h->off_frames + i * h->frame_bytes;
    bool inside = dest % h->block == 0 && dest >= begin && dest - begin < bytes;
    *room = inside ? begin + bytes - dest : 0;
    return dest;
}

static bool demand_fits(const struct ntx_region_hdr *h, uint32_t file, uint64_t offset, uint64_t bytes, uint64_t room)
{
    return bytes && file < h->n_files && offset < h->file_bytes[file] && bytes <= h->file_bytes[file] - offset &&
           NTX_ROUND_UP(offset % h->block + bytes, (uint64_t)h->block) <= room;
}

static uint32_t request_chunk(const struct ntx_iod_core *c, uint32_t i)
{
    return i < ntx_region_first_stage(c->r->hdr) ? UINT32_MAX : NTX_STAGE_CHUNK;
}

static void refuse_demand(struct ntx_iod_core *c, uint32_t i, uint32_t gen)
{
    struct ntx_demand *d = &c->r->demand[i];
    const struct ntx_read_request *a = &c->r->request[i];
    struct ntx_iod_failure f = {
        .chunk = request_chunk(c, i), .file = a->file, .offset = a->offset, .bytes = a->bytes, .err = -EINVAL};
    c->hooks.failed(c->hooks.ctx, &f);
    d->err = -EINVAL;
    ntx__iod_set_word(c, &d->word, gen, NTX_FAILED);
    ntx_count(c->counters, NTX_C_iod_errors, 1);
}

bool ntx__iod_is_early(const struct ntx_iod_core *c, uint32_t demand)
{
    return atomic_load_explicit(&c->r->request[demand].early, memory_order_relaxed) != 0;
}

/* POSTED becomes FILLING, unless computed has just cancelled the request. The request is read only after this, since it
 * may change before. */
static bool claim_demand(struct ntx_iod_core *c, _Atomic uint32_t *word, uint32_t posted)
{
    if (!atomic_compare_exchange_strong_explicit(word, &posted, ntx_word(ntx_word_gen(posted), NTX_FILLING),
                                                 memory_order_acq_rel, memory_order_relaxed))
        return false;
    c->hooks.state(c->hooks.ctx, word, NTX_FILLING);
    return true;
}

/* A claimed demand becomes the job or is refused. */
static bool demand_job(struct ntx_iod_core *c, uint32_t i, uint32_t gen, struct ntx__job *j)
{
    const struct ntx_region_hdr *h = c->r->hdr;
    struct ntx_demand *d = &c->r->demand[i];
    const struct ntx_read_request *a = &c->r->request[i];
    uint32_t file = a->file, bytes = a->bytes;
    uint64_t offset = a->offset, room, place = demand_place(h, i, a->dest, &room);
    if (!demand_fits(h, file, offset, bytes, room)) {
        refuse_demand(c, i, gen);
        return false;
    }
    *j = (struct ntx__job){.kind = i < ntx_region_first_stage(h) ? NTX_IOD_FRAME : NTX_IOD_STAGE,
                           .index = i,
                           .word = &d->word,
                           .gen = gen,
                           .chunk = request_chunk(c, i)};
    ntx__iod_job_range(c, j, file, offset, bytes, place);
    return true;
}

/* A quarantined frame is no obstacle: computed posts into it only the read that the dead iod had there, and the late
 * DMA writes the same bytes. */
bool ntx__iod_pick_demand(struct ntx_iod_core *c, struct ntx__scan *scan, struct ntx__job *j)
{
    const bool early = scan == &c->early, any = scan == &c->stage;
    /* Loaded before the words: a post that this scan misses changes the count again. */
    uint32_t posted = load_word(&c->r->control->demand_posted);
    if (posted == scan->seen && !scan->wanted)
        return false;
    for (uint32_t k = 0; k < scan->n; k++) {
        uint32_t i = scan->first + (scan->next + k) % scan->n, w = load_word(&c->r->demand[i].word);
        if (ntx_word_state(w) != NTX_POSTED || (!any && ntx__iod_is_early(c, i) != early) ||
            !claim_demand(c, &c->r->demand[i].word, w) || !demand_job(c, i, ntx_word_gen(w), j))
            continue;
        scan->next = i - scan->first;
        scan->wanted = true;
        return true;
    }
    scan->seen = posted;
    scan->wanted = false;
    return false;
}
