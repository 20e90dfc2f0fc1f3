/* SPDX-License-Identifier: Apache-2.0 */
/* stream_experts.h: between stream_experts.c (experts that a layer wants) and stream_prefetch.c (experts that the next
 * layer may want). */
#ifndef NTX_COMPUTED_WEIGHTS_STREAM_EXPERTS_H
#define NTX_COMPUTED_WEIGHTS_STREAM_EXPERTS_H

#include "computed/weights/cache.h"
#include "computed/weights/stream_impl.h"

#define NTX__NO_DEMAND UINT32_MAX

struct ntx__part {
    uint64_t bytes;       /* where its first byte is in the region's bytes */
    uint32_t demand, gen; /* while it is being read, else NTX__NO_DEMAND */
};

struct ntx__frame {
    struct ntx__part part[NTX_EXPERT_PARTS];
    uint32_t pins, pending; /* wants that have it; parts with a demand. The cache holds it once for each pin, and once
                               while any is pending */
    bool failed;            /* a part is missing, and will not come: to be dropped as soon as none is on its way */
    bool cancelled;         /* nor may one that is on its way: nobody has it until all have ended */
};

struct ntx__experts {
    const struct ntx_chunks *chunks;
    struct ntx_cache *cache;
    struct ntx_frames frames;
    uint64_t at;                      /* of the first, in the region's bytes */
    struct ntx__frame *frame;         /* [frames.n] */
    uint32_t *owner;                  /* [n_bundle_demands] frame that it reads for, NTX_NO_FRAME: it is free */
    uint32_t n_demands, n_free, next; /* of those: there are, free, to be looked at first */
    uint32_t *added;                  /* [n_expert] frames that a want fills, or a prefetch keeps */
    uint8_t *added_rows;              /* [n_expert] rows that share each, of a want: the most first */
    uint8_t *where;                   /* [n_expert] of a want's experts: whether each is here, coming or missing */
    uint32_t predicted_layer;         /* that `predicted` is about; NTX__NO_LAYER: none */
    uint64_t predicted_pass;
    bool *predicted; /* [n_expert] */
    float *recall; /* [n_layers] of what each wanted of late, the share that was predicted; negative: nothing was yet */
    uint32_t staged_layer,
        staged;  /* whose experts are being staged, NTX__NO_LAYER: none are; the next one to look at */
    bool *stage; /* [n_expert] whether it is one of them */
};
#define NTX__NO_LAYER UINT32_MAX

static inline struct ntx_demand *ntx__demand_of(struct ntx_stream *s, uint32_t i)
{
    return &s->r->demand[s->r->hdr->n_demands + i];
}
static inline uint32_t ntx__number_of(const struct ntx_stream *s, uint32_t i) { return s->r->hdr->n_demands + i; }
static inline struct ntx_read_request *ntx__request_of(struct ntx_stream *s, uint32_t i)
{
    return &s->r->ask[s->r->hdr->n_demands + i];
}
static inline uint32_t ntx__bundle_of(const struct ntx__experts *x, uint32_t layer, uint32_t expert)
{
    return layer * x->chunks->n_expert + expert;
}
const struct ntx_chunk *ntx__bundle_chunk(const struct ntx__experts *x, uint32_t bundle, int part);

/* ---- stream_experts.c */
void ntx__settle(struct ntx_stream *s);
/* Gives the bundle a frame, if there is one for it and demands enough. The demands are promised: to be posted. */
uint32_t ntx__make_place(struct ntx_stream *s, uint32_t now, uint32_t bundle,
                         enum ntx_cache_for why); /* now: the layer at hand */
void ntx__post_part(struct ntx_stream *s, uint32_t frame, int part, bool early);
void ntx__posted(struct ntx_stream *s, uint32_t n); /* that many parts: iod is to look */
/* Part of a frame that demand i was for: it is there, or will not come. The demand is free. */
void ntx__release_demand(struct ntx_stream *s, uint32_t i);

/* ---- stream_prefetch.c */
void ntx__prefetch_settled(struct ntx_stream *s, uint32_t i, uint32_t bytes); /* demand i has brought so many */
void ntx__promote_prefetch(struct ntx_stream *s, uint32_t frame);             /* now somebody waits for it */
/* Early reads of frames that nobody has pinned: what iod has not begun is not read, and what it has begun is given up.
 * but_layer: of that layer's experts those stay that are predicted and have been begun; NTX__NO_LAYER: none. */
void ntx__cancel_prefetches(struct ntx_stream *s, uint32_t but_layer);
/* A wanted expert, in `frame` or none, before it counts as used. True where it is there, or at least begun. */
bool ntx__count_prefetched(struct ntx_stream *s, uint32_t layer, uint32_t expert, uint32_t frame);

#endif
