/* SPDX-License-Identifier: Apache-2.0 */
/* Passes and the ring. A scheduled chunk of pass p is sequence p * n_sched + its schedule index, whichever thread waits
 * for it and in any order. So no state except the words is needed between two calls. */
#include "computed/weights/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/weights/stream_impl.h"

#define MAPS_AHEAD      2    /* passes ahead whose maps are clean when iod reads into them */
#define PASSES_LEFT_OUT 1000 /* more unused pass numbers in a row are an error of the caller */

static struct ntx_stream *stream_of(struct ntx_weights *w) { return (struct ntx_stream *)w; }

static uint64_t sequence(const struct ntx_stream *s, const struct ntx_plan_chunk *c)
{
    return s->pass * s->r->hdr->n_sched + c->sched;
}

/* ---- letting go */

/* Also updates the ring's gauge: this is where the ring's fill changes on our side. */
static bool half_free(const struct ntx_stream *s)
{
    uint32_t n_free = 0, ready = 0, n = s->r->hdr->n_desc;
    for (uint32_t i = 0; i < n; i++) {
        enum ntx_state st = ntx_word_state(atomic_load_explicit(&s->r->desc[i].word, memory_order_relaxed));
        n_free += st == NTX_FREE;
        ready += st == NTX_READY;
    }
    ntx_gauge(s->counters, NTX_C_comp_ring_ready, ready);
    return 2 * n_free >= n;
}

static void free_desc(struct ntx_stream *s, uint64_t seq)
{
    ntx__own_free_desc(s, seq);
    if (half_free(s))
        ntx__stream_wake(s);
}

static void count_skip(struct ntx_stream *s, uint32_t word, uint64_t seq)
{
    bool early = ntx_word_state(word) == NTX_SKIPPED;
    ntx_count(s->counters, early ? NTX_C_comp_skip_early : NTX_C_comp_skip_late, 1);
    if (!early)
        ntx_count(s->counters, NTX_C_comp_skip_wasted, s->r->chunks[s->r->sched[seq % s->r->hdr->n_sched]].bytes);
}

void ntx__stream_free_late(struct ntx_stream *s)
{
    if (!atomic_load_explicit(&s->n_late, memory_order_relaxed))
        return;
    pthread_mutex_lock(&s->lock);
    uint32_t n = atomic_load_explicit(&s->n_late, memory_order_relaxed), kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct ntx__late l = s->late[i];
        uint32_t w = 0;
        if (!ntx__own_settled(s, l.seq, &w)) {
            s->late[kept++] = l;
            continue;
        }
        if (l.skipped)
            count_skip(s, w, l.seq);
        free_desc(s, l.seq);
    }
    atomic_store_explicit(&s->n_late, kept, memory_order_relaxed);
    pthread_mutex_unlock(&s->lock);
}

static void add_late(struct ntx_stream *s, uint64_t seq, bool skipped)
{
    pthread_mutex_lock(&s->lock);
    uint32_t n = atomic_load_explicit(&s->n_late, memory_order_relaxed);
    s->late[n] = (struct ntx__late){seq, skipped}; /* begin made room for a whole pass */
    atomic_store_explicit(&s->n_late, n + 1, memory_order_relaxed);
    pthread_mutex_unlock(&s->lock);
}

static bool take_hold(struct ntx_stream *s, uint32_t sched, enum ntx__hold want, enum ntx__hold to)
{
    uint8_t is = (uint8_t)want;
    return atomic_compare_exchange_strong(&s->hold[sched], &is, (uint8_t)to);
}

static void release_chunk(struct ntx_weights *w, uint32_t chunk)
{
    struct ntx_stream *s = stream_of(w);
    const struct ntx_plan_chunk *c = &s->r->chunks[chunk];
    if (c->placement != NTX_PLACE_STORAGE || !take_hold(s, c->sched, NTX__HELD, NTX__GONE))
        return;
    const struct ntx_desc *d = ntx__desc_of(s, sequence(s, c));
    ntx_traced(s->counters, NTX_TRACE_COMPUTED, NTX_TR_SLOT,
               atomic_load_explicit(&s->taken_ns[c->sched], memory_order_relaxed),
               ntx_traced_now(s->counters, NTX_TRACE_COMPUTED), s->held[c->sched].slot, chunk, d->t_ready);
    free_desc(s, sequence(s, c));
}

static void skip_chunk(struct ntx_weights *w, uint32_t chunk)
{
    struct ntx_stream *s = stream_of(w);
    const struct ntx_plan_chunk *c = &s->r->chunks[chunk];
    if (c->placement != NTX_PLACE_STORAGE || !take_hold(s, c->sched, NTX__NONE, NTX__GONE))
        return;
    add_late(s, sequence(s, c), true); /* a read that is under way runs to its end; nobody waits for it here */
    ntx__stream_free_late(s);
}

/* ---- taking */

/* Waits until the chunk's word is READY, which is then final, or FAILED. */
static int wait_host(struct ntx_stream *s, uint32_t chunk, const struct ntx_plan_chunk *c)
{
    _Atomic uint32_t *word = &s->r->state[chunk];
    uint32_t seen = atomic_load_explicit(word, memory_order_acquire);
    struct ntx_patience patience = {0};
    uint64_t began = 0;
    if (ntx_word_state(seen) != NTX_READY && ntx_word_state(seen) != NTX_FAILED) {
        patience = ntx_patience(s->limit_ns);
        began = ntx__stream_stall_begin(s);
    }
    int rc = 0;
    while (!rc && ntx_word_state(seen) != NTX_READY && ntx_word_state(seen) != NTX_FAILED) {
        rc = ntx__stream_pause(s, word, seen, &patience, "chunk", chunk);
        seen = atomic_load_explicit(word, memory_order_acquire);
    }
    ntx__stream_stall_end(s, began, NTX_WAIT_CHUNK);
    if (!rc && ntx_word_state(seen) == NTX_FAILED) {
        rc = ntx__stream_fail_read(s, chunk, c->file, c->offset, c->bytes, ntx__iod_errno(-(int)ntx_word_gen(seen)));
    }
    return rc;
}

static int acquire_host(struct ntx_stream *s, uint32_t chunk, const struct ntx_plan_chunk *c, const void **bytes)
{
    int rc = 0;
    /* Acquire: pairs with the thread that took it first and has seen iod's bytes. */
    while (!rc && !atomic_load_explicit(&s->taken[chunk], memory_order_acquire))
        if (!(rc = wait_host(s, chunk, c)))
            ntx__own_take_host(s, chunk);
    if (!rc)
        *bytes = s->r->base + c->where;
    return rc;
}

/* iod is another process: its descriptor is checked before use. */
static int refuse_desc(struct ntx_stream *s, const struct ntx_desc *d, uint32_t chunk, const struct ntx_plan_chunk *c)
{
    if (d->pass != s->pass || d->sched != c->sched || d->chunk != chunk)
        return ntx__stream_fail(
            s, -EPROTO, "ntx-iod delivered chunk %u (pass %llu, index %u) in place of chunk %u (pass %llu, index %u)",
            d->chunk, (unsigned long long)d->pass, d->sched, chunk, (unsigned long long)s->pass, c->sched);
    return ntx__stream_fail(s, -EPROTO, "ntx-iod delivered chunk %u at slot %u + %u, which cannot be", chunk, d->slot,
                            d->shift);
}

/* The first of several callers takes the sequence: 1; 0: the word has changed, try again; or a negative errno. */
static int take_ring(struct ntx_stream *s, uint32_t chunk, const struct ntx_plan_chunk *c)
{
    uint64_t seq = sequence(s, c);
    struct ntx_desc *d = ntx__desc_of(s, seq), copy;
    uint32_t word = 0;
    int rc = ntx__stream_wait(s, &d->word, ntx__lap_of(s, seq), NTX_WAIT_CHUNK, chunk, &word);
    if (rc)
        return rc;
    if (ntx_word_state(word) == NTX_FAILED)
        return ntx__stream_fail_read(s, chunk, c->file, c->offset, c->bytes, ntx__iod_errno(d->err));
    if (ntx_word_state(word) == NTX_SKIPPED)
        return ntx__stream_fail(s, -EPROTO, "chunk %u was left out, though its layer %u is computed", chunk, c->layer);
    if ((rc = ntx__own_take(s, seq, &copy)) < 0)
        return refuse_desc(s, &copy, chunk, c);
    if (!rc)
        return 0;
    atomic_store_explicit(&s->taken_ns[c->sched], ntx_traced_now(s->counters, NTX_TRACE_COMPUTED),
                          memory_order_relaxed);
    return 1;
}

static int acquire_ring(struct ntx_stream *s, uint32_t chunk, const struct ntx_plan_chunk *c, const void **bytes)
{
    int rc = 0;
    while (!rc && atomic_load_explicit(&s->hold[c->sched], memory_order_acquire) != NTX__HELD)
        rc = take_ring(s, chunk, c);
    if (rc < 0)
        return rc;
    *bytes = ntx_region_slot(s->r, s->held[c->sched].slot) + c->offset % s->r->hdr->block;
    return 0;
}

static int acquire_chunk(struct ntx_weights *w, uint32_t chunk, const void **bytes)
{
    struct ntx_stream *s = stream_of(w);
    if (chunk >= s->r->hdr->n_chunks)
        return ntx__stream_fail(s, -EINVAL, "there is no chunk %u", chunk);
    int rc = ntx__stream_check_abort(
        s); /* also where nothing must be waited for: a pass over a resident model can be long, too */
    if (rc)
        return rc;
    const struct ntx_plan_chunk *c = &s->r->chunks[chunk];
    switch (c->placement) {
    case NTX_PLACE_HOST: return acquire_host(s, chunk, c, bytes);
    case NTX_PLACE_STORAGE: return acquire_ring(s, chunk, c, bytes);
    case NTX_PLACE_FRAME:
        return s->groups ? ntx__stream_acquire_groups(s, chunk, c, bytes)
                         : ntx__stream_acquire_expert(s, chunk, c, bytes);
    default: return ntx__stream_fail(s, -ENOTSUP, "chunk %u has its place on a device", chunk);
    }
}

/* ---- passes */

/* iod obeys a map only while it has the pass's number, so the bits are cleared first. iod's acquire of `pass` pairs
 * with this release. */
static void prepare_map(struct ntx_stream *s, uint64_t pass)
{
    struct ntx_pass_map *m = &s->r->pass_map[pass % NTX_PASS_MAPS];
    if (atomic_load_explicit(&m->pass, memory_order_relaxed) == pass)
        return;
    for (int i = 0; i < NTX_MAP_WORDS; i++)
        atomic_store_explicit(&m->drop[i], 0, memory_order_relaxed);
    atomic_store_explicit(&m->pass, pass, memory_order_release);
}

static void drop_layer(struct ntx_weights *w, uint32_t layer)
{
    struct ntx_stream *s = stream_of(w);
    if (layer < NTX_MON_LAYERS && s->counters)
        atomic_fetch_add_explicit(&s->counters->mon.layer[layer].skipped, 1, memory_order_relaxed);
    if (layer < NTX_MAP_WORDS * 64)
        atomic_fetch_or_explicit(&s->r->pass_map[s->pass % NTX_PASS_MAPS].drop[layer / 64], (uint64_t)1 << (layer % 64),
                                 memory_order_relaxed);
}

static void start_pass(struct ntx_stream *s, uint64_t pass)
{
    s->pass = pass;
    s->next_pass = pass + 1;
    for (uint32_t i = 0; i < s->r->hdr->n_sched; i++)
        atomic_store_explicit(&s->hold[i], NTX__NONE, memory_order_relaxed);
    for (uint64_t p = pass; p <= pass + MAPS_AHEAD; p++)
        prepare_map(s, p);
}

/* Chunks that the pass did not use: dropped where iod has not begun them, else released once read. So the sequences of
 * the next pass stay the same. */
static void leave_rest(struct ntx_stream *s)
{
    const struct ntx_region_hdr *h = s->r->hdr;
    bool dropped = false, any = false;
    for (uint32_t i = 0; i < h->n_sched; i++) {
        uint64_t seq = s->pass * h->n_sched + i;
        if (take_hold(s, i, NTX__HELD, NTX__GONE)) {
            free_desc(s, seq);
            any = true;
        } else if (take_hold(s, i, NTX__NONE, NTX__GONE)) {
            for (uint32_t l = 0; !dropped && l <= NTX_END_OF_LAST(h->n_layers); l++)
                drop_layer(&s->w, l);
            dropped = any = true;
            add_late(s, seq, false);
        }
    }
    ntx__stream_free_late(s);
    if (any)
        ntx__stream_wake(s);
}

/* Makes room for one more pass's sequences in `late`: at most one pass's worth may be left there. */
static int make_late_room(struct ntx_stream *s)
{
    struct ntx_patience patience = ntx_patience(s->limit_ns);
    int rc = 0;
    ntx__stream_free_late(s);
    while (!rc && atomic_load_explicit(&s->n_late, memory_order_relaxed) > s->r->hdr->n_sched) {
        struct ntx_desc *d = ntx__desc_of(s, s->late[0].seq);
        rc = ntx__stream_pause(s, &d->word, atomic_load_explicit(&d->word, memory_order_relaxed), &patience,
                               "the end of pass", s->late[0].seq / s->r->hdr->n_sched);
    }
    return rc;
}

/* Retries host chunks whose read failed: the drive's trouble may be over. The words are stored before the count, which
 * makes iod look at all words again; both before iod_asleep is read. */
static void read_again(struct ntx_stream *s)
{
    const struct ntx_region_hdr *h = s->r->hdr;
    bool any = false;
    for (uint32_t i = 0; i < h->n_chunks; i++) {
        uint32_t w = atomic_load_explicit(&s->r->state[i], memory_order_relaxed);
        if (ntx_word_state(w) == NTX_FAILED && s->r->chunks[i].placement == NTX_PLACE_HOST &&
            !atomic_load_explicit(&s->taken[i], memory_order_relaxed))
            any |= atomic_compare_exchange_strong(&s->r->state[i], &w, ntx_word(0, NTX_FREE));
    }
    if (!any)
        return;
    atomic_fetch_add(&s->r->control->host_again, 1);
    ntx__stream_wake(s);
}

void ntx_stream_await_memory(struct ntx_stream *s)
{
    s->memory_end = 0;
    for (uint32_t i = 0; i < s->r->hdr->n_chunks; i++)
        if (s->r->chunks[i].placement == NTX_PLACE_HOST)
            atomic_store_explicit(&s->r->state[i], ntx_word(0, NTX_SKIPPED), memory_order_relaxed);
}

/* Words first, then the count, as in read_again. */
void ntx_stream_memory_there(struct ntx_stream *s, uint64_t end_pass)
{
    const struct ntx_region_hdr *h = s->r->hdr;
    pthread_mutex_lock(&s->own);
    s->memory_end = end_pass;
    for (uint32_t i = 0; i < h->n_chunks; i++) {
        uint32_t w = atomic_load_explicit(&s->r->state[i], memory_order_relaxed);
        if (s->r->chunks[i].placement == NTX_PLACE_HOST && ntx_word_state(w) == NTX_SKIPPED &&
            ntx__own_has_memory(s, i))
            atomic_store_explicit(&s->r->state[i], ntx_word(0, NTX_FREE), memory_order_release);
    }
    pthread_mutex_unlock(&s->own);
    atomic_fetch_add(&s->r->control->host_again, 1);
    ntx__stream_wake(s);
}

static int begin_pass(struct ntx_weights *w, uint64_t pass)
{
    struct ntx_stream *s = stream_of(w);
    int rc = 0;
    atomic_store_explicit(&s->failed, 0, memory_order_relaxed);
    s->begun = pass;
    if (s->in_pass || pass < s->next_pass || pass - s->next_pass > PASSES_LEFT_OUT)
        return ntx__stream_fail(s, -EINVAL, "pass %llu cannot begin: %llu is the next", (unsigned long long)pass,
                                (unsigned long long)s->next_pass);
    if ((rc = ntx__stream_check_abort(s)))
        return rc;
    for (uint64_t p = s->next_pass; p <= pass; p++) {
        if ((rc = make_late_room(s)))
            return rc;
        start_pass(s, p);
        if (p < pass) /* a number whose pass never ran; iod may have read for it */
            leave_rest(s);
    }
    read_again(s);
    s->in_pass = true;
    return 0;
}

static void end_pass(struct ntx_weights *w)
{
    struct ntx_stream *s = stream_of(w);
    if (!s->in_pass)
        return;
    leave_rest(s);
    ntx__experts_end(s);
    s->asked = (struct ntx__entry_query){0}; /* entries that come later stay in their frames */
    s->in_pass = false;
}

/* ---- making */

static bool is_there(struct ntx_weights *w, uint32_t chunk)
{
    struct ntx_stream *s = stream_of(w);
    if (s->r->chunks[chunk].placement == NTX_PLACE_FRAME)
        return ntx__expert_there(s, chunk);
    return s->r->chunks[chunk].placement == NTX_PLACE_HOST &&
           ntx_word_state(atomic_load_explicit(&s->r->state[chunk], memory_order_relaxed)) == NTX_READY;
}

/* Once true, always true: only chunks that are being read become quarantined, and an acquired one is not. */
static bool is_resident(struct ntx_weights *w, uint32_t chunk)
{
    struct ntx_stream *s = stream_of(w);
    return s->r->chunks[chunk].placement == NTX_PLACE_HOST &&
           !atomic_load_explicit(&s->quarantined_host[chunk], memory_order_acquire);
}

#define OPS                                                                                                            \
    .begin = begin_pass, .acquire = acquire_chunk, .release = release_chunk, .drop_layer = drop_layer,                 \
    .skip = skip_chunk, .end = end_pass, .entries = ntx__stream_entries,                                               \
    .request_entries = ntx__stream_request_entries, .more_entries = ntx__stream_more_entries,                          \
    .entries_there = ntx__stream_entries_there, .stays = is_resident, .routed = ntx__stream_routed,                    \
    .want = ntx__stream_want, .want_groups = ntx__stream_want_groups, .done = ntx__stream_done
static const struct ntx_weights_ops ops = {OPS}, prefetching_ops = {OPS,
                                                                    .prefetch_experts = ntx__stream_prefetch_experts,
                                                                    .stage_experts = ntx__stream_stage_experts,
                                                                    .more_experts = ntx__stream_more_experts,
                                                                    .prefetch_groups = ntx__stream_prefetch_groups,
                                                                    .there = is_there};
#undef OPS

/* ---- the arena alone */

static struct ntx_stream *stream_of_resident(const struct ntx_weights *w)
{
    return (struct ntx_stream *)((uintptr_t)w - offsetof(struct ntx_stream, resident));
}

static int begin_resident(struct ntx_weights *w, uint64_t pass)
{
    (void)pass;
    atomic_store_explicit(&stream_of_resident(w)->failed, 0, memory_order_relaxed); /* of the pass before */
    return 0;
}

static int acquire_resident(struct ntx_weights *w, uint32_t chunk, const void **bytes)
{
    struct ntx_stream *s = stream_of_resident(w);
    return s->r->chunks[chunk].placement == NTX_PLACE_HOST ? acquire_chunk(&s->w, chunk, bytes) : -ENOTSUP;
}

static bool is_resident_too(struct ntx_weights *w, uint32_t chunk)
{
    return is_resident(&stream_of_resident(w)->w, chunk);
}

static int entries_beside(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes,
                          const int32_t *ids, uint32_t n, void *out)
{
    return ntx__stream_entries(&stream_of_resident(w)->w, file, offset, entry_bytes, ids, n, out);
}

static void ignore_number(struct ntx_weights *w, uint32_t number) { (void)w, (void)number; }
static void ignore_end(struct ntx_weights *w) { (void)w; }

static const struct ntx_weights_ops resident_ops = {.begin = begin_resident,
                                                    .acquire = acquire_resident,
                                                    .release = ignore_number,
                                                    .drop_layer = ignore_number,
                                                    .skip = ignore_number,
                                                    .end = ignore_end,
                                                    .entries = entries_beside,
                                                    .stays = is_resident_too};

static int init_lock(struct ntx_stream *s)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    int rc = pthread_mutex_init(&s->lock, NULL);
    if (!rc)
        rc = pthread_cond_init(&s->text_came, &a);
    pthread_condattr_destroy(&a);
    return -rc;
}

int ntx_stream_new(const struct ntx_stream_config *c, struct ntx_stream **out)
{
    const struct ntx_region_hdr *h = c->region->hdr;
    struct ntx_stream *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->w.ops = &ops;
    s->resident.ops = &resident_ops;
    s->r = c->region;
    s->counters = c->counters;
    s->wake_fd = c->wake_fd;
    s->names = c->names;
    s->text_wait_ns = (c->text_wait_ms ? c->text_wait_ms : 200) * (uint64_t)1000000u;
    s->limit_ns = (c->wait_limit_s ? c->wait_limit_s : 60) * (uint64_t)1000000000u;
    s->hold = calloc(h->n_sched + 1, sizeof *s->hold);
    s->taken_ns = calloc(h->n_sched + 1, sizeof *s->taken_ns);
    s->quarantined_host = calloc(h->n_chunks + 1, sizeof *s->quarantined_host);
    s->late = calloc(2 * (size_t)h->n_sched + 1, sizeof *s->late);
    s->entry_frame = calloc(h->n_demands + 1, sizeof *s->entry_frame);
    int rc = s->hold && s->taken_ns && s->quarantined_host && s->late && s->entry_frame ? ntx__own_new(s) : -ENOMEM;
    if (!rc && c->frames && c->frames->n)
        rc = ntx__experts_new(s, c, &s->experts);
    if (!rc && c->n_windows)
        rc = ntx__groups_new(s, c, &s->groups);
    if ((s->experts || c->n_windows > 1) && c->prefetch)
        s->w.ops = &prefetching_ops;
    if (!rc)
        rc = ntx__stage_new(s, &s->stage);
    if (!rc)
        rc = init_lock(s);
    if (rc) {
        ntx__stage_free(s->stage);
        ntx__experts_free(s->experts);
        ntx__groups_free(s->groups);
        ntx__own_free(s);
        free(s->hold);
        free(s->quarantined_host);
        free(s->taken_ns);
        free(s->late);
        free(s->entry_frame);
        free(s);
        return rc;
    }
    for (uint64_t p = 0; p <= MAPS_AHEAD; p++) /* iod may read for these before the first pass begins */
        prepare_map(s, p);
    ntx_gauge(s->counters, NTX_C_comp_ring_slots, h->n_desc);
    *out = s;
    return 0;
}

void ntx_stream_free(struct ntx_stream *s)
{
    if (!s)
        return;
    pthread_cond_destroy(&s->text_came);
    pthread_mutex_destroy(&s->lock);
    ntx__stage_free(s->stage);
    ntx__experts_free(s->experts);
    ntx__groups_free(s->groups);
    ntx__own_free(s);
    free(s->hold);
    free(s->taken_ns);
    free(s->quarantined_host);
    free(s->late);
    free(s->entry_frame);
    free(s);
}

struct ntx_weights *ntx_stream_weights(struct ntx_stream *s) { return &s->w; }

struct ntx_weights *ntx_stream_resident(struct ntx_stream *s) { return &s->resident; }
