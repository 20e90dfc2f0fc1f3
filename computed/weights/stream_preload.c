/* SPDX-License-Identifier: Apache-2.0 */
/* Preloading: between passes, the experts that earlier loads of the model used most are read into empty frames
 * (heat.h), as prefetch reads, so that other reads go first. Nothing is evicted for them. What a pass cancels is read
 * later, if there is still room. All of this runs on the engine thread. */
#include <stdlib.h>

#include "common/util.h"
#include "computed/weights/stream_experts.h"

struct ntx_heat *ntx_stream_heat(struct ntx_stream *s) { return s->experts ? s->experts->heat : NULL; }

void ntx_stream_preload(struct ntx_stream *s)
{
    struct ntx__experts *x = s->experts;
    const uint32_t n = x->heat->n_expert;
    float *share = calloc(n, sizeof *share);
    x->hot = malloc((size_t)x->heat->n_layers * n * sizeof *x->hot);
    for (uint32_t l = 0; share && l < x->heat->n_layers; l++) {
        if (!x->chunks->layers[l].expert[NTX_EXPERT_DOWN].n_chunks)
            x->heat->rows[l] = 0; /* the file may say otherwise */
        for (uint32_t e = 0; e < n; e++)
            share[e] = ntx_heat_share(x->heat, ntx__bundle_of(x, l, e));
        ntx_cache_begin(x->cache, l, share);
    }
    free(share);
    x->n_hot = x->hot ? ntx_heat_order(x->heat, x->hot) : 0;
}

/* Whether a bundle was posted. */
static bool preload_bundle(struct ntx_stream *s, uint32_t bundle)
{
    struct ntx__experts *x = s->experts;
    if (ntx_cache_frame(x->cache, bundle) != NTX_NO_FRAME || !ntx_cache_has_room(x->cache, bundle))
        return false;
    const uint32_t f = ntx__make_place(s, bundle / x->heat->n_expert, bundle, NTX_CACHE_WANTED);
    if (f == NTX_NO_FRAME)
        return false;
    x->frame[f].preloaded = true;
    for (int p = 0; p < NTX_EXPERT_PARTS; p++)
        ntx__post_part(s, f, p, true);
    return true;
}

bool ntx_stream_preload_more(struct ntx_stream *s)
{
    struct ntx__experts *x = s->experts;
    uint32_t added = 0;
    if (!x || !x->hot)
        return false;
    ntx__settle(s);
    if (x->hot_pass != s->begun) /* a pass may have cancelled some */
        x->next_hot = 0;
    x->hot_pass = s->begun;
    for (; x->next_hot < x->n_hot && 2 * x->n_free > x->n_demands; x->next_hot++)
        added += preload_bundle(s, x->hot[x->next_hot]);
    if (added)
        ntx__posted(s, added * NTX_EXPERT_PARTS);
    if (x->next_hot < x->n_hot || x->n_free < x->n_demands)
        return true;
    free(x->hot);
    x->hot = NULL;
    return false;
}
