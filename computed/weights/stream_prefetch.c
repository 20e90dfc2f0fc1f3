/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetch reads: experts that the next layer may want are read while nothing else is to be read (shm/region.h: enum
 * ntx_early). They never change which wanted experts the cache holds (cache.h). When the layer comes, wanted experts
 * among them are read like any missing ones, and the others are cancelled: iod then asks the drive for no more of them.
 * For a layer whose predictions were mostly wrong of late nothing is prefetched until they are right again, since a
 * read that has begun delays demand reads; its spare frames then serve wanted experts. No prediction, right, wrong or
 * late, changes a byte that is computed with. All of this runs on the engine thread. */
#include "common/util.h"
#include "computed/weights/stream_experts.h"

enum { RECENT = 64 /* wanted experts */ };
static const float LEAST_RECALL = 0.2f;

static uint32_t part_bytes(const struct ntx__experts *x, uint32_t frame, int part)
{
    return (uint32_t)ntx__bundle_chunk(x, ntx_cache_bundle(x->cache, frame), part)->bytes;
}

static bool is_early(struct ntx_stream *s, uint32_t demand)
{
    return atomic_load_explicit(&ntx__request_of(s, demand)->early, memory_order_relaxed) != NTX_DEMAND_READ;
}

void ntx__prefetch_settled(struct ntx_stream *s, uint32_t i, uint32_t bytes)
{
    if (is_early(s, i))
        ntx_count(s->counters,
                  s->experts->frame[s->experts->owner[i]].preloaded ? NTX_C_comp_preload_bytes
                                                                    : NTX_C_comp_prefetch_bytes,
                  bytes);
}

/* A prefetched part that is now wanted counts as used if iod has begun it. */
static bool count_part(struct ntx_stream *s, uint32_t frame, int part)
{
    const struct ntx__experts *x = s->experts;
    uint32_t i = x->frame[frame].part[part].demand, bytes = part_bytes(x, frame, part);
    bool has_begun = i == NTX__NO_DEMAND || ntx_word_state(atomic_load_explicit(&ntx__demand_of(s, i)->word,
                                                                                memory_order_relaxed)) != NTX_POSTED;
    if (has_begun)
        ntx_count(s->counters, NTX_C_comp_prefetch_used_bytes, bytes);
    if (has_begun && i != NTX__NO_DEMAND) /* else it was counted when it settled */
        ntx_count(s->counters, NTX_C_comp_prefetch_bytes, bytes);
    return has_begun;
}

void ntx__promote_prefetch(struct ntx_stream *s, uint32_t frame)
{
    struct ntx__experts *x = s->experts;
    uint32_t n = 0;
    for (int p = 0; p < NTX_EXPERT_PARTS; p++) {
        uint32_t i = x->frame[frame].part[p].demand;
        if (i == NTX__NO_DEMAND || !is_early(s, i))
            continue;
        atomic_store_explicit(&ntx__request_of(s, i)->early, NTX_DEMAND_READ, memory_order_relaxed);
        n++;
    }
    if (n)
        ntx__posted(s, n);
}

/* A class keeps spare frames if any of its layers is prefetched. */
static void keep_spares(struct ntx__experts *x)
{
    bool hold_cached[NTX_FRAME_CLASSES] = {false};
    for (uint32_t l = 0; l < x->chunks->n_layers; l++)
        hold_cached[x->frames.class_of[l]] |= x->recall[l] >= LEAST_RECALL;
    for (uint32_t k = 0; k < x->frames.n_classes; k++)
        ntx_cache_keep_spare(x->cache, k, hold_cached[k]);
}

static void note_recall(struct ntx__experts *x, uint32_t layer, bool right)
{
    const float was = x->recall[layer];
    x->recall[layer] += ((float)right - was) / RECENT;
    if ((was >= LEAST_RECALL) != (x->recall[layer] >= LEAST_RECALL))
        keep_spares(x);
}

bool ntx__count_prefetched(struct ntx_stream *s, uint32_t layer, uint32_t expert, uint32_t frame)
{
    struct ntx__experts *x = s->experts;
    bool has_begun = false;
    if (x->predicted_layer == layer && x->predicted_pass == s->pass) {
        ntx_count(s->counters, NTX_C_comp_prefetch_wanted, 1);
        ntx_count(s->counters, NTX_C_comp_prefetch_right, x->predicted[expert]);
        note_recall(x, layer, x->predicted[expert]);
    }
    if (frame == NTX_NO_FRAME || !ntx_cache_is_prefetched(x->cache, frame))
        return frame != NTX_NO_FRAME;
    for (int p = 0; p < NTX_EXPERT_PARTS; p++)
        has_begun |= count_part(s, frame, p);
    ntx_count(s->counters, NTX_C_comp_prefetch_hits, has_begun);
    return has_begun;
}

/* False: iod has begun it, or it has ended. iod leaves POSTED by compare and exchange, too: only one side gets it. */
static bool take_demand_back(struct ntx_stream *s, uint32_t i)
{
    if (!ntx__own_take_back(s, ntx__number_of(s, i)))
        return false;
    s->experts->frame[s->experts->owner[i]].failed = true;
    ntx__release_demand(s, i);
    return true;
}

static bool has_begun(struct ntx_stream *s, const struct ntx__frame *f)
{
    for (int p = 0; p < NTX_EXPERT_PARTS; p++)
        if (f->part[p].demand == NTX__NO_DEMAND ||
            ntx_word_state(atomic_load_explicit(&ntx__demand_of(s, f->part[p].demand)->word, memory_order_relaxed)) !=
                NTX_POSTED)
            return true;
    return false;
}

static bool still_predicted(struct ntx_stream *s, uint32_t layer, uint32_t frame)
{
    const struct ntx__experts *x = s->experts;
    uint32_t bundle = ntx_cache_bundle(x->cache, frame), n = x->chunks->n_expert;
    return bundle / n == layer && x->predicted[bundle % n] && !x->frame[frame].failed && has_begun(s, &x->frame[frame]);
}

void ntx__cancel_prefetches(struct ntx_stream *s, uint32_t but_layer)
{
    struct ntx__experts *x = s->experts;
    for (uint32_t i = 0; i < x->n_demands && x->n_free < x->n_demands; i++) {
        const uint32_t f = x->owner[i];
        if (f == NTX_NO_FRAME || x->frame[f].pins || !is_early(s, i) || still_predicted(s, but_layer, f) ||
            atomic_load_explicit(&ntx__request_of(s, i)->quarantined,
                                 memory_order_acquire) /* after a death it is quarantined before it is posted again */
            || take_demand_back(s, i))
            continue;
        atomic_store_explicit(&ntx__request_of(s, i)->early, NTX_CANCELLED, memory_order_relaxed);
        x->frame[f].cancelled = true;
    }
}

static void set_predicted(struct ntx_stream *s, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    struct ntx__experts *x = s->experts;
    x->predicted_layer = layer;
    x->predicted_pass = s->pass;
    for (uint32_t e = 0; e < x->chunks->n_expert; e++)
        x->predicted[e] = false;
    for (uint32_t i = 0; i < n; i++)
        x->predicted[experts[i]] = true;
    if (x->recall[layer] < 0) {
        x->recall[layer] = 1; /* until it is measured */
        keep_spares(x);
    }
}

/* Expert by expert, since half of one is of no use. Returns how many were posted. */
static uint32_t post_prefetches(struct ntx_stream *s, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    struct ntx__experts *x = s->experts;
    uint32_t added = 0, now = (layer + x->chunks->n_layers - 1) % x->chunks->n_layers;
    for (uint32_t i = 0; i < n && 2 * x->n_free > x->n_demands; i++) { /* the other half is for demand reads */
        uint32_t bundle = ntx__bundle_of(x, layer, experts[i]), f;
        if (ntx_cache_frame(x->cache, bundle) != NTX_NO_FRAME)
            continue;
        if ((f = ntx__make_place(s, now, bundle, NTX_CACHE_PREFETCHED)) == NTX_NO_FRAME)
            break;
        for (int p = 0; p < NTX_EXPERT_PARTS; p++)
            ntx__post_part(s, f, p, true);
        added++;
    }
    return added;
}

/* Holds the next layer's experts that are in memory, so that they are not evicted for the others. experts NULL: all.
 * Returns how many, in x->added. */
static uint32_t hold_cached(struct ntx__experts *x, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t f = ntx_cache_frame(x->cache, ntx__bundle_of(x, layer, experts ? experts[i] : i));
        if (f == NTX_NO_FRAME)
            continue;
        ntx_cache_hold(x->cache, f);
        x->added[n_kept++] = f;
    }
    return n_kept;
}

/* Lets the held frames go, and reports the posts. */
static void let_kept_go(struct ntx_stream *s, uint32_t n_kept, uint32_t added)
{
    for (uint32_t i = 0; i < n_kept; i++)
        ntx_cache_let_go(s->experts->cache, s->experts->added[i]);
    if (added)
        ntx__posted(s, added * NTX_EXPERT_PARTS);
}

void ntx__stream_prefetch_experts(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    struct ntx_stream *s = (struct ntx_stream *)w;
    ntx__settle(s);
    s->experts->staged_layer = NTX__NO_LAYER;
    set_predicted(s, layer, experts, n);
    ntx__cancel_prefetches(s, layer);
    if (s->experts->recall[layer] < LEAST_RECALL)
        return;
    uint32_t n_kept = hold_cached(s->experts, layer, experts, n);
    let_kept_go(s, n_kept, post_prefetches(s, layer, experts, n));
}

/* ---- staging: for a layer that will want almost all of some experts */

static uint32_t post_staged(struct ntx_stream *s)
{
    struct ntx__experts *x = s->experts;
    const uint32_t layer = x->staged_layer, now = (layer + x->chunks->n_layers - 1) % x->chunks->n_layers;
    uint32_t added = 0, f;
    for (; x->staged < x->chunks->n_expert; x->staged++) {
        uint32_t bundle = ntx__bundle_of(x, layer, x->staged);
        if (!x->stage[x->staged] || ntx_cache_frame(x->cache, bundle) != NTX_NO_FRAME)
            continue;
        if ((f = ntx__make_place(s, now, bundle, NTX_CACHE_STAGED)) == NTX_NO_FRAME)
            break;
        for (int p = 0; p < NTX_EXPERT_PARTS; p++)
            ntx__post_part(s, f, p, true);
        added++;
    }
    return added;
}

void ntx__stream_more_experts(struct ntx_weights *w)
{
    struct ntx_stream *s = (struct ntx_stream *)w;
    struct ntx__experts *x = s->experts;
    if (!x || x->staged_layer == NTX__NO_LAYER || x->staged == x->chunks->n_expert)
        return;
    ntx__settle(s);
    if (x->n_free < NTX_EXPERT_PARTS)
        return;
    uint32_t n_kept = hold_cached(x, x->staged_layer, NULL, x->chunks->n_expert);
    let_kept_go(s, n_kept, post_staged(s));
}

void ntx__stream_stage_experts(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    struct ntx_stream *s = (struct ntx_stream *)w;
    struct ntx__experts *x = s->experts;
    if (!x)
        return;
    ntx__settle(s);
    ntx__cancel_prefetches(s, NTX__NO_LAYER);
    x->predicted_layer = NTX__NO_LAYER;
    x->staged_layer = layer;
    x->staged = 0;
    for (uint32_t e = 0; e < x->chunks->n_expert; e++)
        x->stage[e] = !n;
    for (uint32_t i = 0; i < n; i++)
        x->stage[experts[i]] = true;
    ntx__stream_more_experts(w);
}
