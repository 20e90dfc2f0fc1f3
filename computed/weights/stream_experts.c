/* SPDX-License-Identifier: Apache-2.0 */
/* Experts on demand. A frame of the arena holds the three parts of one expert, each widened to whole blocks, one behind
 * the other; cache.c says which expert is in which frame. Each part that is being read has a read request in the
 * region. When the part has come, the request is freed and the bytes stay.
 *
 * All of this runs on the engine thread, between steps, except ntx__stream_acquire_expert, with which compute threads
 * only look. A frame is not replaced while its expert is in use, or while one of its parts has a request (posted, being
 * read, or quarantined). So the death of iod needs nothing here: its reads are posted again for the same place
 * (stream_death.c), and its late DMA finds the same expert there. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/weights/stream_experts.h"

/* ---- finished reads */

static void forget_part(struct ntx__experts *x, uint32_t frame, uint32_t demand)
{
    struct ntx__frame *f = &x->frame[frame];
    for (int p = 0; p < NTX_EXPERT_PARTS; p++)
        if (f->part[p].demand == demand)
            f->part[p].demand = NTX__NO_DEMAND;
    if (--f->pending)
        return;
    if (f->failed)
        ntx_cache_drop(x->cache, frame);
    f->failed = f->cancelled = false;
    ntx_cache_let_go(x->cache, frame);
}

void ntx__release_demand(struct ntx_stream *s, uint32_t i)
{
    struct ntx__experts *x = s->experts;
    forget_part(x, x->owner[i], i);
    x->owner[i] = NTX_NO_FRAME;
    x->n_free++;
}

static void settle_demand(struct ntx_stream *s, uint32_t i)
{
    struct ntx__experts *x = s->experts;
    struct ntx__frame *f = &x->frame[x->owner[i]];
    struct ntx_demand *d = ntx__demand_of(s, i);
    uint32_t w = atomic_load_explicit(&d->word, memory_order_acquire);
    enum ntx_state st = ntx__demand_state(w);
    if (!ntx__settled(w, ntx__own_gen(s, ntx__number_of(s, i))) ||
        (st == NTX_FAILED && f->pins)) /* in use: the thread that acquires it must see the failure */
        return;
    f->failed |= st == NTX_FAILED;
    if (atomic_load_explicit(&ntx__request_of(s, i)->quarantined, memory_order_acquire))
        return;
    if (st == NTX_READY || f->cancelled)
        ntx__prefetch_settled(
            s, i, st == NTX_READY ? ntx__request_of(s, i)->bytes : NTX_MIN(d->got, ntx__request_of(s, i)->bytes));
    ntx__own_free_demand(s, ntx__number_of(s, i));
    ntx__release_demand(s, i);
}

void ntx__settle(struct ntx_stream *s)
{
    struct ntx__experts *x = s->experts;
    for (uint32_t i = 0; i < x->n_demands && x->n_free < x->n_demands; i++)
        if (x->owner[i] != NTX_NO_FRAME)
            settle_demand(s, i);
}

/* ---- requests */

static void pin(struct ntx__experts *x, uint32_t frame)
{
    x->frame[frame].pins++;
    ntx_cache_hold(x->cache, frame);
}

static void unpin(struct ntx__experts *x, uint32_t frame)
{
    x->frame[frame].pins--;
    ntx_cache_let_go(x->cache, frame);
}

static uint32_t free_demand(struct ntx__experts *x)
{
    uint32_t i = x->next;
    while (x->owner[i] != NTX_NO_FRAME)
        i = (i + 1) % x->n_demands;
    x->next = (i + 1) % x->n_demands; /* so they are read in the order of posting */
    x->n_free--;
    return i;
}

const struct ntx_chunk *ntx__bundle_chunk(const struct ntx__experts *x, uint32_t bundle, int part)
{
    const struct ntx_layer_weights *w = &x->chunks->layers[bundle / x->chunks->n_expert];
    return &x->chunks->list[ntx_expert_chunk(w, bundle % x->chunks->n_expert, (enum ntx_expert_part)part)];
}

void ntx__post_part(struct ntx_stream *s, uint32_t frame, int part, bool early)
{
    struct ntx__experts *x = s->experts;
    const struct ntx_chunk *c = ntx__bundle_chunk(x, ntx_cache_bundle(x->cache, frame), part);
    struct ntx__part *p = &x->frame[frame].part[part];
    uint32_t i = free_demand(x);
    struct ntx_read_request *a = ntx__request_of(s, i);
    x->owner[i] = frame;
    x->frame[frame].pending++;
    p->demand = i;
    p->gen = ntx__own_gen(s, ntx__number_of(s, i));
    a->file = c->file;
    a->offset = c->offset;
    a->bytes = (uint32_t)c->bytes;
    a->dest = NTX_ROUND_DOWN(p->bytes, (uint64_t)s->r->hdr->block);
    atomic_store_explicit(&a->early, early ? NTX_PREFETCH_READ : NTX_DEMAND_READ, memory_order_relaxed);
    ntx__own_post(s, ntx__number_of(s, i));
}

uint32_t ntx__make_place(struct ntx_stream *s, uint32_t now, uint32_t bundle, enum ntx_cache_for why)
{
    struct ntx__experts *x = s->experts;
    uint64_t block = s->r->hdr->block, at;
    uint32_t class, f = NTX_NO_FRAME;
    if (x->n_free >= NTX_EXPERT_PARTS)
        f = ntx_cache_take(x->cache, bundle, now, why);
    if (f == NTX_NO_FRAME)
        return f;
    at = x->at + ntx_frames_place(&x->frames, f, &class);
    x->frame[f].preloaded = false;
    for (int p = 0; p < NTX_EXPERT_PARTS; p++) {
        const struct ntx_chunk *c = ntx__bundle_chunk(x, bundle, p);
        x->frame[f].part[p] = (struct ntx__part){.bytes = at + c->offset % block, .demand = NTX__NO_DEMAND};
        at += NTX_ROUND_UP(c->offset % block + c->bytes, block);
    }
    return f;
}

/* The posts precede this, and the load of iod_asleep follows: iod sees the words, or we see that it sleeps. */
void ntx__posted(struct ntx_stream *s, uint32_t n)
{
    atomic_fetch_add_explicit(&s->r->control->demand_posted, n, memory_order_seq_cst);
    ntx__stream_wake(s);
}

/* Inserts the frame behind those that at least as many rows share. */
static void add_place(struct ntx__experts *x, uint32_t n, uint32_t frame, uint8_t rows)
{
    uint32_t i = n;
    for (; i && x->added_rows[i - 1] < rows; i--) {
        x->added[i] = x->added[i - 1];
        x->added_rows[i] = x->added_rows[i - 1];
    }
    x->added[i] = frame;
    x->added_rows[i] = rows;
}

/* Posts gate and up of all experts before down: that is the order of use. */
static void post_added(struct ntx_stream *s, uint32_t n)
{
    for (int down = 0; down < 2; down++)
        for (uint32_t i = 0; i < n; i++)
            for (int p = 0; p < NTX_EXPERT_PARTS; p++)
                if ((p == NTX_EXPERT_DOWN) == down)
                    ntx__post_part(s, s->experts->added[i], p, false);
    if (n)
        ntx__posted(s, n * NTX_EXPERT_PARTS);
}

enum { CACHED, LOADING, ABSENT };
#define GIVE_WAY 8 /* experts: their reads keep a drive busy */

/* All frames hold experts that are wanted later: the last of them, before *end, gives up its frame to one wanted
 * now. */
static uint32_t place_of_later(struct ntx_stream *s, uint32_t layer, const uint32_t *experts, uint32_t now,
                               uint32_t *end)
{
    struct ntx__experts *x = s->experts;
    uint32_t f = NTX_NO_FRAME;
    while (f == NTX_NO_FRAME && *end > now + 1) {
        uint32_t later = --*end;
        if (x->where[later] == ABSENT)
            continue;
        x->where[later] = ABSENT;
        unpin(x, ntx_cache_frame(x->cache, ntx__bundle_of(x, layer, experts[later])));
        f = ntx__make_place(s, layer, ntx__bundle_of(x, layer, experts[now]), NTX_CACHE_WANTED);
    }
    return f;
}

/* Pins the first experts of the list that are in memory or can get a frame; returns how many. must: one at least,
 * unless all frames are quarantined or being read into. */
static uint32_t take_experts(struct ntx_stream *s, uint32_t layer, const uint32_t *experts, uint32_t n, bool must,
                             uint8_t *late)
{
    struct ntx__experts *x = s->experts;
    uint8_t *where = x->where;
    uint32_t taken, added = 0, hits = 0, end = n;
    for (uint32_t i = 0; i < n; i++) { /* present ones first: none of them may be replaced by another */
        uint32_t f = ntx_cache_frame(x->cache, ntx__bundle_of(x, layer, experts[i]));
        bool here = f != NTX_NO_FRAME && !x->frame[f].failed && !x->frame[f].cancelled;
        where[i] = ABSENT;
        if (here) {
            where[i] = x->frame[f].pending ? LOADING : CACHED;
            pin(x, f);
            ntx__promote_prefetch(s, f);
        }
    }
    ntx__cancel_prefetches(s, NTX__NO_LAYER);
    for (taken = 0; taken < n; taken++) {
        uint32_t bundle = ntx__bundle_of(x, layer, experts[taken]);
        if (where[taken] == ABSENT) {
            uint32_t held = ntx_cache_frame(x->cache, bundle); /* a failed or cancelled one that is not settled yet */
            uint32_t f = held == NTX_NO_FRAME ? ntx__make_place(s, layer, bundle, NTX_CACHE_WANTED) : NTX_NO_FRAME;
            if (f == NTX_NO_FRAME && held == NTX_NO_FRAME && must && taken < GIVE_WAY)
                f = place_of_later(s, layer, experts, taken, &end);
            if (f == NTX_NO_FRAME)
                break;
            pin(x, f);
            add_place(x, added++, f, late[taken]);
            x->n_free -= NTX_EXPERT_PARTS; /* promised */
        }
        hits += ntx__count_prefetched(s, layer, experts[taken],
                                      where[taken] == ABSENT ? NTX_NO_FRAME : ntx_cache_frame(x->cache, bundle));
        ntx_cache_use(x->cache, bundle);
    }
    for (uint32_t i = taken; i < n; i++)
        if (where[i] != ABSENT)
            unpin(x, ntx_cache_frame(x->cache, ntx__bundle_of(x, layer, experts[i])));
    x->n_free += added * NTX_EXPERT_PARTS;
    post_added(s, added);
    ntx_count(s->counters, NTX_C_comp_expert_hits, hits);
    ntx_count(s->counters, NTX_C_comp_expert_misses, taken - hits);
    for (uint32_t i = 0; i < taken; i++)
        late[i] = where[i] != CACHED;
    return taken;
}

void ntx__stream_routed(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, const uint32_t *times,
                        uint32_t n, uint32_t of, const float *scores)
{
    struct ntx_stream *s = (struct ntx_stream *)w;
    if (!s->experts)
        return;
    ntx_cache_count(s->experts->cache, layer, experts, times, n, of, scores);
    ntx_heat_count(s->experts->heat, layer, experts, times, n, of);
}

/* The word that changes when the expert may get a frame: the end of a cancelled read, or of a quarantine. */
static _Atomic uint32_t *obstacle(struct ntx_stream *s, uint32_t layer, uint32_t expert)
{
    struct ntx__experts *x = s->experts;
    const uint32_t f = ntx_cache_frame(x->cache, ntx__bundle_of(x, layer, expert));
    for (int p = 0; f != NTX_NO_FRAME && p < NTX_EXPERT_PARTS; p++) {
        const uint32_t i = x->frame[f].part[p].demand;
        if (i != NTX__NO_DEMAND &&
            ntx__demand_state(atomic_load_explicit(&ntx__demand_of(s, i)->word, memory_order_acquire)) == NTX_FILLING)
            return &ntx__demand_of(s, i)->word;
    }
    return &ntx__request_of(s, 0)->quarantined;
}

int ntx__stream_want(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n, bool must,
                     uint8_t *late)
{
    struct ntx_stream *s = (struct ntx_stream *)w;
    struct ntx_patience patience = ntx_patience(s->limit_ns);
    if (!s->experts) {
        memset(late, 0, n);
        return (int)n;
    }
    s->experts->staged_layer = NTX__NO_LAYER;
    ntx__settle(s);
    uint32_t taken = take_experts(s, layer, experts, n, must, late);
    while (!taken &&
           must) { /* all frames are quarantined, or still read into for a cancelled prefetch or a failed pass */
        _Atomic uint32_t *t = obstacle(s, layer, experts[0]);
        int rc = ntx__stream_pause(s, t, atomic_load_explicit(t, memory_order_relaxed), &patience,
                                   "a free frame for expert", experts[0]);
        if (rc)
            return rc;
        ntx__settle(s);
        taken = take_experts(s, layer, experts, n, must, late);
    }
    return (int)taken;
}

void ntx__stream_done(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    struct ntx_stream *s = (struct ntx_stream *)w;
    struct ntx__experts *x = s->experts;
    for (uint32_t i = 0; x && i < n; i++) {
        uint32_t f = ntx_cache_frame(x->cache, ntx__bundle_of(x, layer, experts[i]));
        if (f != NTX_NO_FRAME && x->frame[f].pins)
            unpin(x, f);
    }
}

void ntx__experts_end(struct ntx_stream *s)
{
    if (s->experts)
        s->experts->staged_layer = NTX__NO_LAYER;
    for (uint32_t f = 0; s->experts && f < s->experts->frames.n; f++)
        while (s->experts->frame[f].pins)
            unpin(s->experts, f);
}

/* ---- acquire */

static int wait_part(struct ntx_stream *s, const struct ntx__part *p, uint32_t chunk, const struct ntx_plan_chunk *c)
{
    struct ntx_demand *d = ntx__demand_of(s, p->demand);
    uint32_t word = 0;
    int rc = ntx__stream_wait(s, &d->word, p->gen, NTX_WAIT_EXPERT, chunk, &word);
    if (rc)
        return rc;
    if (ntx__demand_state(word) == NTX_FAILED)
        return ntx__stream_fail_read(s, NTX__NO_CHUNK, c->file, c->offset, c->bytes, ntx__iod_errno(d->err));
    if (d->shift != c->offset % s->r->hdr->block)
        return ntx__stream_fail(s, -EPROTO, "ntx-iod delivered chunk %u at %u, which cannot be", chunk, d->shift);
    return 0;
}

int ntx__stream_acquire_expert(struct ntx_stream *s, uint32_t chunk, const struct ntx_plan_chunk *c, const void **bytes)
{
    struct ntx__experts *x = s->experts;
    if (!x)
        return ntx__stream_fail(s, -EINVAL, "chunk %u is an expert's, but there are no frames", chunk);
    uint32_t k = chunk - x->chunks->layers[c->layer].expert[NTX_EXPERT_GATE].chunk0;
    uint32_t f = ntx_cache_frame(x->cache, ntx__bundle_of(x, c->layer, k / NTX_EXPERT_PARTS));
    if (f == NTX_NO_FRAME || !x->frame[f].pins)
        return ntx__stream_fail(s, -EINVAL, "chunk %u is of an expert that was not asked for", chunk);
    const struct ntx__part *p = &x->frame[f].part[k % NTX_EXPERT_PARTS];
    int rc = p->demand == NTX__NO_DEMAND ? 0 : wait_part(s, p, chunk, c);
    if (!rc)
        *bytes = s->r->base + p->bytes;
    return rc;
}

bool ntx__expert_there(struct ntx_stream *s, uint32_t chunk)
{
    struct ntx__experts *x = s->experts;
    if (!x || !x->chunks->list[chunk].expert)
        return false;
    const uint32_t l = x->chunks->list[chunk].layer, k = chunk - x->chunks->layers[l].expert[NTX_EXPERT_GATE].chunk0,
                   f = ntx_cache_frame(x->cache, ntx__bundle_of(x, l, k / NTX_EXPERT_PARTS));
    if (f == NTX_NO_FRAME)
        return false;
    const struct ntx__part *p = &x->frame[f].part[k % NTX_EXPERT_PARTS];
    return p->demand == NTX__NO_DEMAND ||
           ntx_word_state(atomic_load_explicit(&ntx__demand_of(s, p->demand)->word, memory_order_relaxed)) == NTX_READY;
}

/* ---- making */

int ntx__experts_new(struct ntx_stream *s, const struct ntx_stream_config *c, struct ntx__experts **out)
{
    struct ntx__experts *x = calloc(1, sizeof *x);
    uint32_t n_expert = c->chunks->n_expert, n = s->r->hdr->n_bundle_demands;
    if (!x)
        return -ENOMEM;
    *x = (struct ntx__experts){.chunks = c->chunks,
                               .frames = *c->frames,
                               .at = c->frames_at,
                               .n_demands = n,
                               .n_free = n,
                               .predicted_layer = NTX__NO_LAYER,
                               .staged_layer = NTX__NO_LAYER};
    x->frame = calloc(x->frames.n, sizeof *x->frame);
    x->owner = malloc((n + 1) * sizeof *x->owner);
    x->added = calloc(n_expert, sizeof *x->added);
    x->added_rows = calloc(n_expert, 1);
    x->where = calloc(n_expert, 1);
    x->predicted = calloc(n_expert, sizeof *x->predicted);
    x->stage = calloc(n_expert, sizeof *x->stage);
    x->recall = malloc(c->chunks->n_layers * sizeof *x->recall);
    int rc = x->frame && x->owner && x->added && x->added_rows && x->where && x->predicted && x->stage && x->recall &&
                     n >= NTX_EXPERT_PARTS
                 ? 0
                 : -ENOMEM;
    if (!rc)
        rc = ntx_cache_new(c->frames, c->chunks->n_layers, n_expert, NULL, &x->cache);
    if (!rc)
        rc = ntx_heat_new(c->chunks->n_layers, n_expert, &x->heat);
    if (rc) {
        ntx__experts_free(x);
        return rc;
    }
    memset(x->owner, 0xff, n * sizeof *x->owner); /* NTX_NO_FRAME */
    for (uint32_t l = 0; l < c->chunks->n_layers; l++)
        x->recall[l] = -1;
    for (uint32_t f = 0; f < x->frames.n; f++)
        for (int p = 0; p < NTX_EXPERT_PARTS; p++)
            x->frame[f].part[p].demand = NTX__NO_DEMAND;
    ntx_gauge(s->counters, NTX_C_comp_frames, x->frames.n);
    *out = x;
    return 0;
}

void ntx__experts_free(struct ntx__experts *x)
{
    if (!x)
        return;
    ntx_cache_free(x->cache);
    ntx_heat_free(x->heat);
    free(x->hot);
    free(x->frame);
    free(x->owner);
    free(x->added);
    free(x->added_rows);
    free(x->where);
    free(x->predicted);
    free(x->stage);
    free(x->recall);
    free(x);
}
