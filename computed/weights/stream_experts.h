/* SPDX-License-Identifier: Apache-2.0 */
/* stream_experts.h: shared by stream_experts.c (experts that a layer wants) and stream_prefetch.c (experts that the
 * next layer may want) and stream_preload.c (experts that earlier loads used most). */
#ifndef NTX_COMPUTED_WEIGHTS_STREAM_EXPERTS_H
#define NTX_COMPUTED_WEIGHTS_STREAM_EXPERTS_H

#include "computed/weights/cache.h"
#include "computed/weights/heat.h"
#include "computed/weights/stream_impl.h"

#define NTX__NO_DEMAND UINT32_MAX

struct ntx__part {
    uint64_t bytes;       /* offset of its first byte in the region */
    uint32_t demand, gen; /* its read request while it is read, else NTX__NO_DEMAND */
};

struct ntx__frame {
    struct ntx__part part[NTX_EXPERT_PARTS];
    /* pins: wants that use it. pending: parts with a request. The cache holds the frame once for each pin, and once
     * while any part is pending. */
    uint32_t pins, pending;
    bool failed;    /* a part is missing and will not come: dropped once no part is being read */
    bool preloaded; /* its reads were made before anybody wanted it */
    bool cancelled; /* nor will parts that are being read: not used until all their reads have ended */
};

struct ntx__experts {
    const struct ntx_chunks *chunks;
    struct ntx_cache *cache;
    struct ntx_frames frames;
    uint64_t at;                      /* region offset of the first frame */
    struct ntx__frame *frame;         /* [frames.n] */
    uint32_t *owner;                  /* [n_bundle_demands] the frame that it reads for, NTX_NO_FRAME: free */
    uint32_t n_demands, n_free, next; /* requests in all; free ones; the first to try */
    uint32_t *added;                  /* [n_expert] frames that a want fills, or a prefetch holds */
    uint8_t *added_rows;              /* [n_expert] rows that share each frame of a want, falling */
    uint8_t *where;                   /* [n_expert] of a want's experts: CACHED, LOADING or ABSENT */
    uint32_t predicted_layer;         /* the layer of `predicted`; NTX__NO_LAYER: none */
    uint64_t predicted_pass;
    bool *predicted; /* [n_expert] */
    float *recall;   /* [n_layers] share of recently wanted experts that were predicted; negative: no prediction yet */
    /* The layer being staged, NTX__NO_LAYER: none; the next expert to look at. */
    uint32_t staged_layer, staged;
    bool *stage;           /* [n_expert] it is to be staged */
    struct ntx_heat *heat; /* uses, over the loads */
    uint32_t *hot;         /* [n_hot] bundles to preload, the hottest first; NULL: none are left */
    uint32_t n_hot, next_hot;
    uint64_t hot_pass; /* the pass before which next_hot was reached */
};
#define NTX__NO_LAYER UINT32_MAX

static inline struct ntx_demand *ntx__demand_of(struct ntx_stream *s, uint32_t i)
{
    return &s->r->demand[s->r->hdr->n_demands + i];
}
static inline uint32_t ntx__number_of(const struct ntx_stream *s, uint32_t i) { return s->r->hdr->n_demands + i; }
static inline struct ntx_read_request *ntx__request_of(struct ntx_stream *s, uint32_t i)
{
    return &s->r->request[s->r->hdr->n_demands + i];
}
static inline uint32_t ntx__bundle_of(const struct ntx__experts *x, uint32_t layer, uint32_t expert)
{
    return layer * x->chunks->n_expert + expert;
}
const struct ntx_chunk *ntx__bundle_chunk(const struct ntx__experts *x, uint32_t bundle, int part);

/* ---- stream_experts.c */
void ntx__settle(struct ntx_stream *s);
/* Gives the bundle a frame, if there is one and enough requests are free. The caller must post them. now: the layer
 * that is computed. */
uint32_t ntx__make_place(struct ntx_stream *s, uint32_t now, uint32_t bundle, enum ntx_cache_for why);
void ntx__post_part(struct ntx_stream *s, uint32_t frame, int part, bool early);
/* Tells iod that n parts were posted. */
void ntx__posted(struct ntx_stream *s, uint32_t n);
/* Request i has ended, well or not: frees it for another part. */
void ntx__release_demand(struct ntx_stream *s, uint32_t i);

/* ---- stream_prefetch.c */
/* Counts the bytes that request i brought. */
void ntx__prefetch_settled(struct ntx_stream *s, uint32_t i, uint32_t bytes);
/* Promotes the frame's prefetch reads to demand reads. */
void ntx__promote_prefetch(struct ntx_stream *s, uint32_t frame);
/* Cancels prefetch reads into frames that nobody has pinned: those not begun are withdrawn, those begun are marked
 * cancelled. but_layer: keep begun reads of this layer's experts that are still predicted; NTX__NO_LAYER: none. */
void ntx__cancel_prefetches(struct ntx_stream *s, uint32_t but_layer);
/* Counts a wanted expert, in `frame` or none, before its use. True if it is in memory, or its read has begun. */
bool ntx__count_prefetched(struct ntx_stream *s, uint32_t layer, uint32_t expert, uint32_t frame);

#endif
