/* SPDX-License-Identifier: Apache-2.0 */
/* The main thread mends the region when iod is dead (shm/region.h, DEATH). No iod is attached meanwhile, so only
 * this process writes the words, and `own` (stream_own.c) is held. Afterwards every word that the next iod may read is
 * right: a value of the dead one stays where it can be true, and is written anew elsewhere. Compute threads go on
 * waiting. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/weights/stream_impl.h"

static uint32_t count_quarantined(const struct ntx_stream *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->r->hdr->n_slots; i++)
        n += atomic_load_explicit(&s->r->quarantine[i], memory_order_relaxed) != 0;
    return n;
}

static void quarantine_slot(struct ntx_stream *s, uint32_t slot)
{
    if (slot < s->r->hdr->n_slots)
        atomic_store_explicit(&s->r->quarantine[slot], 1, memory_order_relaxed);
}

/* ---- the ring */

static void fill_in(const struct ntx_stream *s, struct ntx_desc *d, uint64_t seq)
{
    const struct ntx_region_hdr *h = s->r->hdr;
    d->pass = seq / h->n_sched;
    d->sched = (uint32_t)(seq % h->n_sched);
    d->chunk = s->r->sched[d->sched];
    d->shift = (uint32_t)(s->r->chunks[d->chunk].offset % h->block);
}

static bool is_held(const struct ntx_stream *s, uint64_t seq)
{
    const uint32_t sched = (uint32_t)(seq % s->r->hdr->n_sched);
    return s->held[sched].seq == seq && atomic_load_explicit(&s->hold[sched], memory_order_acquire) == NTX__HELD;
}

/* The values that a descriptor at seq may have, unless compute threads hold it: iod has finished with it, or has not
 * begun. */
static bool may_stay(const struct ntx_stream *s, const struct ntx_desc *d, uint32_t w, uint64_t seq)
{
    const uint32_t lap = ntx__lap_of(s, seq);
    if (w == ntx_word(lap, NTX_READY))
        return ntx__own_fits(s, seq, d);
    return w == ntx_word(lap, NTX_FREE) || w == ntx_word(lap, NTX_SKIPPED) || w == ntx_word(lap, NTX_FAILED);
}

/* Quarantine first, then FREE: a new iod that sees the word sees that it may not use the slot. Pass and index give it
 * the lap, also beside a FREE word. Returns whether the dead iod wrote what a sound one never writes. */
static bool died_desc(struct ntx_stream *s, uint32_t i)
{
    struct ntx_desc *d = &s->r->desc[i];
    const uint64_t seq = s->at[i];
    const uint32_t w = atomic_load_explicit(&d->word, memory_order_acquire),
                   lap = ntx__lap_of(s, seq); /* the slot was written before FILLING */
    const bool held = is_held(s, seq), was_filling = w == ntx_word(lap, NTX_FILLING);
    bool stays = may_stay(s, d, w, seq);
    if (held) {
        stays = stays && ntx_word_state(w) == NTX_READY && d->slot == s->held[seq % s->r->hdr->n_sched].slot;
        d->slot = s->held[seq % s->r->hdr->n_sched].slot;
    } else if (!stays) {
        quarantine_slot(s, d->slot);
    }
    fill_in(s, d, seq);
    if (!stays)
        atomic_store_explicit(&d->word, ntx_word(lap, held ? NTX_READY : NTX_FREE), memory_order_release);
    return !stays && !was_filling;
}

/* Two descriptors that name one slot: neither has it, except one that compute threads use. */
static bool same_slots(struct ntx_stream *s)
{
    const struct ntx_region_hdr *h = s->r->hdr;
    bool any = false;
    memset(s->seen, 0, h->n_slots);
    for (uint32_t i = 0; i < h->n_desc; i++)
        if (ntx_word_state(s->r->desc[i].word) == NTX_READY)
            s->seen[s->r->desc[i].slot] += s->seen[s->r->desc[i].slot] < 2;
    for (uint32_t i = 0; i < h->n_desc; i++) {
        struct ntx_desc *d = &s->r->desc[i];
        if (ntx_word_state(d->word) != NTX_READY || s->seen[d->slot] < 2)
            continue;
        any = true;
        if (!is_held(s, s->at[i]))
            atomic_store_explicit(&d->word, ntx_word(ntx__lap_of(s, s->at[i]), NTX_FREE), memory_order_release);
    }
    return any;
}

/* After nonsense the targets of the dead iod's reads are unknown: no slot is filled again before they are proved
 * finished. */
static void died_ring(struct ntx_stream *s)
{
    const struct ntx_region_hdr *h = s->r->hdr;
    bool odd = false;
    for (uint32_t i = 0; i < h->n_desc && h->n_sched; i++)
        odd |= died_desc(s, i);
    odd |= h->n_sched && same_slots(s);
    for (uint32_t i = 0; odd && i < h->n_slots; i++)
        quarantine_slot(s, i);
    s->odd |= odd;
}

/* ---- the arena */

static uint32_t host_word(struct ntx_stream *s, uint32_t i, uint32_t w)
{
    const uint32_t gen = ntx_word_gen(w);
    if (atomic_load_explicit(&s->taken[i], memory_order_relaxed))
        return ntx_word(0, NTX_READY); /* it was true when it was used, and the bytes may have been re-arranged since */
    if (!ntx__own_has_memory(s, i))
        return ntx_word(0, NTX_SKIPPED);
    if (w == ntx_word(0, NTX_READY) || (ntx_word_state(w) == NTX_FAILED && gen && gen < 4096))
        return w;
    return ntx_word(0, NTX_FREE);
}

/* The same bytes will land in the same place, early or late. Until then they are not re-arranged. */
static void died_host(struct ntx_stream *s)
{
    for (uint32_t i = 0; i < s->r->hdr->n_chunks; i++) {
        const bool host = s->r->chunks[i].placement == NTX_PLACE_HOST;
        uint32_t w = atomic_load_explicit(&s->r->state[i], memory_order_acquire), is = host ? host_word(s, i, w) : 0;
        if (w == is)
            continue;
        s->odd |= w != ntx_word(0, NTX_FILLING);
        if (host && is == ntx_word(0, NTX_FREE))
            atomic_store_explicit(&s->quarantined_host[i], 1,
                                  memory_order_relaxed); /* whoever sees the word's next state sees this */
        atomic_store_explicit(&s->r->state[i], is, memory_order_release);
    }
}

/* ---- demands */

/* A frame's entry is read again into the same frame (the same bytes to the same place). No other entry is, before the
 * old read is proved finished. */
static void died_demands(struct ntx_stream *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ntx_region_all_demands(s->r->hdr); i++) {
        struct ntx_demand *d = &s->r->demand[i];
        struct ntx_read_request *a = &s->r->request[i];
        const uint32_t w = atomic_load_explicit(&d->word, memory_order_acquire), gen = ntx__own_gen(s, i);
        const bool posted = ntx_word_state(s->said[i]) == NTX_POSTED;
        if (w == s->said[i] || (posted && w == ntx_word(gen, NTX_FAILED)) ||
            (posted && w == ntx_word(gen, NTX_READY) && d->shift == a->offset % s->r->hdr->block))
            continue;
        s->odd |= !posted || w != ntx_word(gen, NTX_FILLING);
        atomic_store_explicit(&a->quarantined, 1, memory_order_relaxed);
        atomic_store_explicit(&d->word, s->said[i], memory_order_release);
        n += posted;
    }
    atomic_fetch_add_explicit(&s->r->control->demand_posted, n, memory_order_release);
}

/* iod may have set a word and died before it woke the waiters. */
static void wake_waiters(struct ntx_stream *s)
{
    for (uint32_t i = 0; i < s->r->hdr->n_desc; i++)
        ntx_futex_wake(&s->r->desc[i].word);
    for (uint32_t i = 0; i < s->r->hdr->n_chunks; i++)
        if (s->r->chunks[i].placement == NTX_PLACE_HOST)
            ntx_futex_wake(&s->r->state[i]);
    for (uint32_t i = 0; i < ntx_region_all_demands(s->r->hdr); i++)
        ntx_futex_wake(&s->r->demand[i].word);
}

void ntx_stream_iod_died(struct ntx_stream *s)
{
    pthread_mutex_lock(&s->own);
    s->odd = false;
    died_ring(s);
    died_host(s);
    died_demands(s);
    atomic_store_explicit(&s->r->ring->iod_asleep, 0, memory_order_release); /* its next writer is the next iod */
    atomic_store_explicit(&s->r->ring->drive_until, 0, memory_order_relaxed);
    pthread_mutex_unlock(&s->own);
    wake_waiters(s);
    if (s->odd)
        ntx_log(NTX_LOG_WARN, "ntx-iod left words in the shared memory that it never writes when it is well; they are "
                              "put right for the next one");
    ntx_gauge(s->counters, NTX_C_comp_quarantined_slots, count_quarantined(s));
}

void ntx_stream_unproved(struct ntx_stream *s) { atomic_store_explicit(&s->unproved, true, memory_order_relaxed); }

bool ntx_stream_no_place(const struct ntx_stream *s)
{
    return s->odd || (s->r->hdr->n_sched && count_quarantined(s) == s->r->hdr->n_slots);
}

void ntx_stream_end_quarantine(struct ntx_stream *s)
{
    for (uint32_t i = 0; i < s->r->hdr->n_slots; i++)
        atomic_store_explicit(&s->r->quarantine[i], 0, memory_order_seq_cst);
    for (uint32_t i = 0; i < s->r->hdr->n_chunks; i++)
        atomic_store_explicit(&s->quarantined_host[i], 0, memory_order_release);
    for (uint32_t i = 0; i < ntx_region_all_demands(s->r->hdr); i++) {
        atomic_store_explicit(&s->r->request[i].quarantined, 0, memory_order_release);
        ntx_futex_wake(&s->r->request[i].quarantined);
    }
    ntx_gauge(s->counters, NTX_C_comp_quarantined_slots, 0);
    ntx__stream_wake(s); /* iod may sleep for want of a slot */
}

bool ntx_stream_host_failure(const struct ntx_stream *s, char *text, size_t n)
{
    for (uint32_t i = 0; i < s->r->hdr->n_chunks; i++) {
        const struct ntx_plan_chunk *c = &s->r->chunks[i];
        uint32_t w = atomic_load_explicit(&s->r->state[i], memory_order_acquire);
        if (c->placement != NTX_PLACE_HOST || ntx_word_state(w) != NTX_FAILED)
            continue;
        ntx__stream_describe_read(s, c->file, c->offset, c->bytes, ntx__iod_errno(-(int)ntx_word_gen(w)), text, n);
        return true;
    }
    return false;
}

/* ---- progress */

static bool settled_well(uint32_t w, uint32_t gen)
{
    return w == ntx_word(gen, NTX_READY) || w == ntx_word(gen, NTX_SKIPPED);
}

uint64_t ntx_stream_delivered(struct ntx_stream *s, bool *more)
{
    const struct ntx_region_hdr *h = s->r->hdr;
    bool any = false;
    pthread_mutex_lock(&s->own);
    uint64_t n = s->let_go;
    for (uint32_t i = 0; i < h->n_desc && h->n_sched; i++) {
        uint32_t w = atomic_load_explicit(&s->r->desc[i].word, memory_order_relaxed), lap = ntx__lap_of(s, s->at[i]);
        n += settled_well(w, lap);
        any |= w == ntx_word(lap, NTX_FREE) || w == ntx_word(lap, NTX_FILLING);
    }
    for (uint32_t i = 0; i < h->n_chunks; i++) {
        uint32_t w = atomic_load_explicit(&s->r->state[i], memory_order_relaxed);
        n += s->r->chunks[i].placement == NTX_PLACE_HOST && ntx_word_state(w) == NTX_READY;
        any |= s->r->chunks[i].placement == NTX_PLACE_HOST &&
               (w == ntx_word(0, NTX_FREE) || w == ntx_word(0, NTX_FILLING));
    }
    for (uint32_t i = 0; i < ntx_region_all_demands(h); i++) {
        uint32_t w = atomic_load_explicit(&s->r->demand[i].word, memory_order_relaxed), gen = ntx__own_gen(s, i);
        n += w == ntx_word(gen, NTX_READY);
        any |= w == ntx_word(gen, NTX_POSTED) || w == ntx_word(gen, NTX_FILLING);
    }
    pthread_mutex_unlock(&s->own);
    *more = any;
    return n;
}

uint64_t ntx_stream_host_ready(const struct ntx_stream *s)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->r->hdr->n_chunks; i++)
        if (s->r->chunks[i].placement == NTX_PLACE_HOST &&
            ntx_word_state(atomic_load_explicit(&s->r->state[i], memory_order_relaxed)) == NTX_READY)
            bytes += s->r->chunks[i].bytes;
    return bytes;
}
