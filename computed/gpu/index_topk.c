/* SPDX-License-Identifier: Apache-2.0 */
/* index_topk.c: sparse attention (computed/pass/index_topk.c) on a device. Indexer keys are stored as in the host's
 * layout: behind K of the layer, or in their own part of the block. Scores and top-k lists never leave the device. A
 * row's list is used until a later layer of the pass makes a new one. */
#include "computed/gpu/device_impl.h"

struct ntx_gpu_kv ntx__device_keys(const struct ntx_device *d, uint32_t row)
{
    const struct ntx_hparams *hp = d->hp;
    struct ntx_gpu_kv kv = ntx__device_kv(d, row);
    if (hp->v_is_k || hp->index_beside) { /* stored in the blocks of layers without a window */
        kv.base = d->m.kv[0];
        kv.block_bytes = d->kv_block_bytes[0];
        kv.tables = d->m.tables[0];
        kv.layer_offset = d->kv_at[hp->n_layers + d->f->layer] +
                          (hp->v_is_k
                               ? NTX_MAX(NTX_KV_BLOCK / NTX_MAX(hp->pool[d->f->layer], 1u), 1u) * 2ull * hp->head_k
                               : 0);
    } else {
        kv.layer_offset += (uint64_t)kv.n_head_kv * NTX_KV_BLOCK * 2 * kv.head_k;
    }
    kv.head_k = kv.head_v = hp->index_beside ? hp->index.head : ntx_index_kept(hp);
    kv.n_head = kv.n_head_kv = kv.v_in_k = 1;
    return kv;
}

int ntx__device_forget(struct ntx_device *d)
{
    return d->m.n_topk ? d->ops->fill(ntx__queue(d), d->m.n_topk, 0xff, d->f->b->n_rows * 4ull) : 0;
}

/* Live rows [row, row + n). */
static int choose_rows(struct ntx_device *d, const struct ntx_step *s, uint32_t row, uint32_t n)
{
    const struct ntx_forward *f = d->f;
    const uint8_t q = s->in[0], weights = s->in[1];
    const struct ntx_gpu_kv keys = ntx__device_keys(d, row);
    const struct ntx_gpu_index score = {
        .q = d->m.buf[q] + row * f->buf[q].ld,
        .weights = weights ? d->m.buf[weights] + row * f->buf[weights].ld : NULL,
        .score = d->m.scores,
        .kv = keys,
        .ld_q = f->buf[q].ld,
        .ld_weights = f->buf[weights].ld,
        .ld_score = d->c.ctx,
        .n_rows = n,
        .most_pos = ntx__device_whole_splits(d),
        .heads = s->heads,
        .width = s->width,
        .every = s->index_topk.every,
        .pooled = s->index_topk.every && !s->index_topk.keys,
        .scale = s->scale,
    };
    const struct ntx_gpu_index_topk choice = {.score = d->m.scores,
                                              .n_topk = d->m.n_topk,
                                              .topk = d->m.topk,
                                              .kv = keys,
                                              .ld_score = d->c.ctx,
                                              .n_rows = n,
                                              .most = s->index_topk.most,
                                              .max_topk = d->max_topk,
                                              .every = s->index_topk.every,
                                              .each = s->index_topk.keys ? s->index_topk.every : 1,
                                              .tail = s->index_topk.keys,
                                              .pooled = s->index_topk.every && !s->index_topk.keys};
    int rc = ntx__device_go(d, NTX_GPU_INDEX, &score, "scores of positions");
    return rc ? rc : ntx__device_go(d, NTX_GPU_INDEX_TOPK, &choice, "the choice of positions");
}

int ntx__device_index_topk(struct ntx_forward *f, const struct ntx__run *r)
{
    struct ntx_device *d = f->c.device;
    int rc = ntx__steps_of(f, r)->index_topk.keys && d->m.n_topk ? ntx__device_join_keys(d, ntx__steps_of(f, r)) : 0;
    for (uint32_t i = 0; d->m.n_topk && i < d->now.n_live && !rc; i += d->score_rows)
        rc = choose_rows(d, ntx__steps_of(f, r), i, NTX_MIN(d->now.n_live - i, d->score_rows));
    return rc;
}

static bool lists(const struct ntx_device *d, const struct ntx_step *s) { return s->attend.topk && d->m.n_topk; }

int ntx__device_drop_holes(struct ntx_device *d, const struct ntx_step *s)
{
    const struct ntx_gpu_index_topk g = {.n_topk = d->m.n_left,
                                         .topk = d->m.left,
                                         .from_n = d->m.n_topk,
                                         .from = d->m.topk,
                                         .kv = ntx__device_kv(d, 0),
                                         .n_rows = d->now.n_live,
                                         .max_topk = d->max_topk};
    return lists(d, s) && d->with_holes ? ntx__device_go(d, NTX_GPU_INDEX_TOPK, &g, "KV holes in indexer top-k") : 0;
}

/* A row without a list has at most max_topk positions, unless it skipped the layers that make lists. */
void ntx__device_lists(const struct ntx_device *d, const struct ntx_step *s, struct ntx_gpu_attend *g)
{
    if (!lists(d, s))
        return;
    g->n_topk = d->with_holes ? d->m.n_left : d->m.n_topk;
    g->topk = d->with_holes ? d->m.left : d->m.topk;
    g->max_topk = d->max_topk;
    if (!d->f->c.skip.decide)
        g->most_pos = NTX_MIN(g->most_pos, d->max_topk);
}
