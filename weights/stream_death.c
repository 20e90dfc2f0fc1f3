/* What the main thread does to the region when iod is dead (shm/region.h, DEATH). No iod is attached meanwhile, so FILLING and
 * POSTED words have no other writer than this thread; compute threads go on waiting on them. */
#include <errno.h>

#include "weights/stream_impl.h"

static uint32_t count_tainted(const struct ntx_stream *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->r->hdr->n_slots; i++)
        n += atomic_load_explicit(&s->r->taint[i], memory_order_relaxed) != 0;
    return n;
}

static bool filling(_Atomic uint32_t *word, uint32_t *w)
{
    *w = atomic_load_explicit(word, memory_order_acquire); /* the slot was written before FILLING */
    return ntx_word_state(*w) == NTX_FILLING;
}

/* Taint first, then FREE: a new iod that sees the word sees that the slot is not to be had. */
static void died_ring(struct ntx_stream *s)
{
    uint32_t w;
    for (uint32_t i = 0; i < s->r->hdr->n_desc; i++) {
        struct ntx_desc *d = &s->r->desc[i];
        if (!filling(&d->word, &w))
            continue;
        uint32_t slot = ntx__desc_slot(d);
        if (slot < s->r->hdr->n_slots)
            atomic_store_explicit(&s->r->taint[slot], 1, memory_order_relaxed);
        atomic_store_explicit(&d->word, ntx_word(ntx_word_gen(w), NTX_FREE), memory_order_release);
    }
}

/* The same bytes will land in the same place, early or late; until then they are not re-arranged. */
static void died_host(struct ntx_stream *s)
{
    uint32_t w;
    for (uint32_t i = 0; i < s->r->hdr->n_chunks; i++)
        if (filling(&s->r->state[i], &w)) {
            atomic_store_explicit(&s->tainted_host[i], 1, memory_order_relaxed); /* seen by whoever sees what comes of the word */
            atomic_store_explicit(&s->r->state[i], ntx_word(0, NTX_FREE), memory_order_release);
        }
}

/* The entry that a frame was being read for is read again into that frame (the same bytes to the same place), but no other one
 * is until the old read is proved finished. */
static void died_demands(struct ntx_stream *s)
{
    uint32_t w, n = 0;
    for (uint32_t i = 0; i < ntx_region_all_demands(s->r->hdr); i++) {
        struct ntx_demand *d = &s->r->demand[i];
        if (!filling(&d->word, &w))
            continue;
        atomic_store_explicit(&s->r->ask[i].tainted, 1, memory_order_relaxed);
        atomic_store_explicit(&d->word, ntx_word(ntx_word_gen(w), NTX_POSTED), memory_order_release);
        n++;
    }
    atomic_fetch_add_explicit(&s->r->orders->demand_posted, n, memory_order_release);
}

/* A word that iod had set when it died, and whose waiters it had not woken yet. */
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
    died_ring(s);
    died_host(s);
    died_demands(s);
    wake_waiters(s);
    atomic_store_explicit(&s->r->ring->iod_asleep, 0, memory_order_release); /* its next writer is the next iod */
    ntx_gauge(s->counters, NTX_C_comp_tainted_slots, count_tainted(s));
}

void ntx_stream_untaint(struct ntx_stream *s)
{
    for (uint32_t i = 0; i < s->r->hdr->n_slots; i++)
        atomic_store_explicit(&s->r->taint[i], 0, memory_order_seq_cst);
    for (uint32_t i = 0; i < s->r->hdr->n_chunks; i++)
        atomic_store_explicit(&s->tainted_host[i], 0, memory_order_release);
    for (uint32_t i = 0; i < ntx_region_all_demands(s->r->hdr); i++) {
        atomic_store_explicit(&s->r->ask[i].tainted, 0, memory_order_release);
        ntx_futex_wake(&s->r->ask[i].tainted);
    }
    ntx_gauge(s->counters, NTX_C_comp_tainted_slots, 0);
    ntx__stream_wake(s); /* it may sleep for want of a slot */
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

uint64_t ntx_stream_host_ready(const struct ntx_stream *s)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->r->hdr->n_chunks; i++)
        if (s->r->chunks[i].placement == NTX_PLACE_HOST &&
            ntx_word_state(atomic_load_explicit(&s->r->state[i], memory_order_relaxed)) == NTX_READY)
            bytes += s->r->chunks[i].bytes;
    return bytes;
}
