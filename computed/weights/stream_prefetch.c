/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetches: the experts that the next layer may want are read while nothing else is to be read (shm/region.h: enum
 * ntx_early). What the cache holds is not touched by them (cache.h); when the layer has come, those that it wants are
 * read like any that are missing, and those that it does not want are taken back, or given up where iod has begun them:
 * it then asks the drive for no more of them. A layer whose predictions have mostly been wrong of late has nothing read
 * for it until they are right again: what has begun holds up what is wanted. Frames that were kept for that are the
 * cache's then. Whether a prediction was right, was in time, or was made at all, changes no byte that is computed with.
 * All by the engine thread. */
#include "common/util.h"
#include "computed/weights/stream_experts.h"

enum { RECENT = 64 /* experts that were wanted */ };
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
        ntx_count(s->counters, NTX_C_comp_prefetch_bytes, bytes);
}

/* Of a part that was asked for early, when somebody comes to want it: it counts as prefetched once iod has begun it. */
static bool count_part(struct ntx_stream *s, uint32_t frame, int part)
{
    const struct ntx__experts *x = s->experts;
    uint32_t i = x->frame[frame].part[part].demand, bytes = part_bytes(x, frame, part);
    bool begun = i == NTX__NO_DEMAND ||
                 ntx_word_state(atomic_load_explicit(&ntx__demand_of(s, i)->word, memory_order_relaxed)) != NTX_POSTED;
    if (begun)
        ntx_count(s->counters, NTX_C_comp_prefetch_used_bytes, bytes);
    if (begun && i != NTX__NO_DEMAND) /* else it was counted when it settled */
        ntx_count(s->counters, NTX_C_comp_prefetch_bytes, bytes);
    return begun;
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

/* Frames are kept for predictions where some are read. */
static void keep_spares(struct ntx__experts *x)
{
    bool keep[NTX_FRAME_CLASSES] = {false};
    for (uint32_t l = 0; l < x->chunks->n_layers; l++)
        keep[x->frames.class_of[l]] |= x->recall[l] >= LEAST_RECALL;
    for (uint32_t k = 0; k < x->frames.n_classes; k++)
        ntx_cache_keep_spare(x->cache, k, keep[k]);
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
    bool begun = false;
    if (x->predicted_layer == layer && x->predicted_pass == s->pass) {
        ntx_count(s->counters, NTX_C_comp_prefetch_wanted, 1);
        ntx_count(s->counters, NTX_C_comp_prefetch_right, x->predicted[expert]);
        note_recall(x, layer, x->predicted[expert]);
    }
    if (frame == NTX_NO_FRAME || !ntx_cache_is_prefetched(x->cache, frame))
        return frame != NTX_NO_FRAME;
    for (int p = 0; p < NTX_EXPERT_PARTS; p++)
        begun |= count_part(s, frame, p);
    ntx_count(s->counters, NTX_C_comp_prefetch_hits, begun);
    return begun;
}

/* False: iod has begun it, or it has ended. iod leaves POSTED by compare and exchange, too: one of us gets it. */
static bool take_demand_back(struct ntx_stream *s, uint32_t i)
{
    if (!ntx__own_take_back(s, ntx__number_of(s, i)))
        return false;
    s->experts->frame[s->experts->owner[i]].failed = true;
    ntx__release_demand(s, i);
    return true;
}

static bool begun(struct ntx_stream *s, const struct ntx__frame *f)
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
    return bundle / n == layer && x->predicted[bundle % n] && !x->frame[frame].failed && begun(s, &x->frame[frame]);
}

void ntx__cancel_prefetches(struct ntx_stream *s, uint32_t but_layer)
{
    struct ntx__experts *x = s->experts;
    for (uint32_t i = 0; i < x->n_demands && x->n_free < x->n_demands; i++) {
        const uint32_t f = x->owner[i];
        if (f == NTX_NO_FRAME || x->frame[f].pins || !is_early(s, i) || still_predicted(s, but_layer, f) ||
            atomic_load_explicit(&ntx__request_of(s, i)->quarantined,
                                 memory_order_acquire) /* after a death it is tainted before it is posted again */
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
        x->recall[layer] = 1; /* until it shows */
        keep_spares(x);
    }
}

/* One expert after the other: half of one is of no use. Returns how many. */
static uint32_t post_prefetches(struct ntx_stream *s, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    struct ntx__experts *x = s->experts;
    uint32_t added = 0, now = (layer + x->chunks->n_layers - 1) % x->chunks->n_layers;
    for (uint32_t i = 0; i < n && 2 * x->n_free > x->n_demands; i++) { /* the other half is for those that are wanted */
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

/* Those of the next layer's that are there already are not the ones to go for the others. experts: NULL: all of them.
 * Returns how many are kept, in x->added. */
static uint32_t keep(struct ntx__experts *x, uint32_t layer, const uint32_t *experts, uint32_t n)
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

/* The others were posted. */
static void let_go(struct ntx_stream *s, uint32_t n_kept, uint32_t added)
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
    uint32_t n_kept = keep(s->experts, layer, experts, n);
    let_go(s, n_kept, post_prefetches(s, layer, experts, n));
}

/* ---- staging: what a layer wants of which as good as all is going to be wanted */

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
    uint32_t n_kept = keep(x, x->staged_layer, NULL, x->chunks->n_expert);
    let_go(s, n_kept, post_staged(s));
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
