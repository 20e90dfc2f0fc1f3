/* SPDX-License-Identifier: Apache-2.0 */
/* computed's own record of the words. ntx-iod can write all of the ring's part of the region, so a broken or hijacked
 * one may leave anything there. After its death each word's value follows from this record, in memory that iod does not
 * have: each descriptor's sequence, the chunks taken, and the state of each read request (stream_death.c).
 *
 * `own` guards the record, and is held whenever computed changes a word. So a death is handled between two changes. */
#include <errno.h>
#include <stdlib.h>

#include "common/util.h"
#include "computed/weights/stream_impl.h"

/* ---- the ring */

/* seq_cst, because the wake after it loads iod_asleep: either iod's last look at the words (after it set iod_asleep)
 * sees this store, or we see that it sleeps. Release: our reads of the slot are over before iod sees FREE. */
void ntx__own_free_desc(struct ntx_stream *s, uint64_t seq)
{
    const uint32_t n = s->r->hdr->n_desc;
    struct ntx_desc *d = ntx__desc_of(s, seq);
    pthread_mutex_lock(&s->own);
    enum ntx_state st = ntx_word_state(atomic_load_explicit(&d->word, memory_order_relaxed));
    s->let_go += st == NTX_READY || st == NTX_SKIPPED;
    s->at[seq % n] = seq + n;
    atomic_store_explicit(&d->word, ntx_word(ntx__lap_of(s, seq + n), NTX_FREE), memory_order_seq_cst);
    pthread_mutex_unlock(&s->own);
}

bool ntx__own_settled(struct ntx_stream *s, uint64_t seq, uint32_t *word)
{
    pthread_mutex_lock(&s->own);
    bool turn = s->at[seq % s->r->hdr->n_desc] == seq;
    pthread_mutex_unlock(&s->own);
    *word = atomic_load_explicit(&ntx__desc_of(s, seq)->word, memory_order_acquire);
    return turn && ntx__settled(*word, ntx__lap_of(s, seq));
}

bool ntx__own_fits(const struct ntx_stream *s, uint64_t seq, const struct ntx_desc *d)
{
    const struct ntx_region_hdr *h = s->r->hdr;
    const uint32_t sched = (uint32_t)(seq % h->n_sched), chunk = s->r->sched[sched];
    return d->pass == seq / h->n_sched && d->sched == sched && d->chunk == chunk && d->slot < h->n_slots &&
           d->shift == s->r->chunks[chunk].offset % h->block;
}

int ntx__own_take(struct ntx_stream *s, uint64_t seq, struct ntx_desc *d)
{
    const uint32_t sched = (uint32_t)(seq % s->r->hdr->n_sched);
    const struct ntx_desc *from = ntx__desc_of(s, seq);
    pthread_mutex_lock(&s->own);
    /* Acquire: pairs with iod's release of READY; the descriptor's fields and the bytes are there. */
    int rc = atomic_load_explicit(&from->word, memory_order_acquire) == ntx_word(ntx__lap_of(s, seq), NTX_READY);
    d->slot = ntx__desc_slot(from);
    d->chunk = __atomic_load_n(&from->chunk, __ATOMIC_RELAXED);
    d->sched = __atomic_load_n(&from->sched, __ATOMIC_RELAXED);
    d->pass = __atomic_load_n(&from->pass, __ATOMIC_RELAXED);
    d->shift = __atomic_load_n(&from->shift, __ATOMIC_RELAXED);
    if (rc && (s->at[seq % s->r->hdr->n_desc] != seq || !ntx__own_fits(s, seq, d)))
        rc = -EPROTO;
    if (rc > 0 && atomic_load_explicit(&s->hold[sched], memory_order_relaxed) == NTX__NONE) {
        uint8_t none = NTX__NONE;
        s->held[sched] = (struct ntx__held){seq, d->slot};
        /* a thread that sees it sees where the bytes are */
        atomic_compare_exchange_strong(&s->hold[sched], &none, NTX__HELD);
    }
    pthread_mutex_unlock(&s->own);
    return rc;
}

/* ---- the arena */

bool ntx__own_has_memory(const struct ntx_stream *s, uint32_t chunk)
{
    const struct ntx_plan_chunk *c = &s->r->chunks[chunk];
    return NTX_ROUND_UP(c->where + c->bytes, (uint64_t)s->r->hdr->block) <= s->memory_end;
}

bool ntx__own_take_host(struct ntx_stream *s, uint32_t chunk)
{
    pthread_mutex_lock(&s->own);
    bool there = ntx_word_state(atomic_load_explicit(&s->r->state[chunk], memory_order_acquire)) == NTX_READY;
    if (there)
        atomic_store_explicit(&s->taken[chunk], 1, memory_order_release);
    pthread_mutex_unlock(&s->own);
    return there;
}

/* ---- read requests */

/* The request is written before this. seq_cst: this store precedes the load of iod_asleep. */
void ntx__own_post(struct ntx_stream *s, uint32_t i)
{
    pthread_mutex_lock(&s->own);
    s->said[i] = ntx_word(ntx__own_gen(s, i), NTX_POSTED);
    atomic_store_explicit(&s->r->demand[i].word, s->said[i], memory_order_seq_cst);
    pthread_mutex_unlock(&s->own);
}

void ntx__own_free_demand(struct ntx_stream *s, uint32_t i)
{
    pthread_mutex_lock(&s->own);
    s->let_go += ntx_word_state(atomic_load_explicit(&s->r->demand[i].word, memory_order_relaxed)) == NTX_READY;
    s->said[i] = ntx_word(ntx__own_gen(s, i) + 1, NTX_FREE);
    atomic_store_explicit(&s->r->demand[i].word, s->said[i], memory_order_release);
    pthread_mutex_unlock(&s->own);
}

/* iod leaves POSTED by compare and exchange, too: only one side gets it. */
bool ntx__own_take_back(struct ntx_stream *s, uint32_t i)
{
    pthread_mutex_lock(&s->own);
    uint32_t posted = s->said[i], next = ntx_word(ntx_word_gen(posted) + 1, NTX_FREE);
    bool back = ntx_word_state(posted) == NTX_POSTED &&
                atomic_compare_exchange_strong(&s->r->demand[i].word, &posted, next);
    if (back)
        s->said[i] = next;
    pthread_mutex_unlock(&s->own);
    return back;
}

/* ---- making */

int ntx__own_new(struct ntx_stream *s)
{
    const struct ntx_region_hdr *h = s->r->hdr;
    s->at = calloc(h->n_desc + 1, sizeof *s->at);
    s->held = calloc(h->n_sched + 1, sizeof *s->held);
    s->taken = calloc(h->n_chunks + 1, sizeof *s->taken);
    s->said = calloc((size_t)ntx_region_all_demands(h) + 1, sizeof *s->said);
    s->seen = calloc(h->n_slots + 1, 1);
    s->memory_end = UINT64_MAX;
    if (!s->at || !s->held || !s->taken || !s->said || !s->seen)
        return -ENOMEM;
    for (uint32_t i = 0; i < h->n_desc; i++)
        s->at[i] = i;
    return -pthread_mutex_init(&s->own, NULL);
}

/* It may be half made: then one of the arrays is missing, and the mutex was not made. */
void ntx__own_free(struct ntx_stream *s)
{
    if (s->at && s->held && s->taken && s->said && s->seen)
        pthread_mutex_destroy(&s->own);
    free(s->at);
    free(s->held);
    free(s->taken);
    free(s->said);
    free(s->seen);
}
