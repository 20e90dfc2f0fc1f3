/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: K and indexer keys that stand for several positions (computed/pass/forward_pool.c,
 * computed/pass/index_topk.c) on a device. Rows that are not pooled yet are a recurrent state (delta.c). Pooled rows
 * are stored behind the rows of single positions, in blocks of layers without a window. */
#include <string.h>

#include "computed/gpu/device_impl.h"

bool ntx__device_pools(const struct ntx_hparams *hp) { return hp->v_is_k || hp->index_beside; }

/* Averaged keys are rotated by the model's frequencies; pooled K by frequencies without divisors (forward_pool.c). */
int ntx__device_bring_freq(struct ntx_device *d)
{
    int rc = 0;
    for (int t = 0; t < NTX_N_TURNS && !rc; t++) {
        const uint32_t n = ntx_rope_dim(d->hp, (enum ntx_rotation)t) / 2;
        if (d->hp->v_is_k)
            ntx_rope_frequencies(d->hp, (enum ntx_rotation)t, NULL, d->host.freq[t]);
        else
            memcpy(d->host.freq[t], d->f->m.freq, n * sizeof *d->f->m.freq);
        rc = n ? d->ops->upload(ntx__queue(d), d->m.freq[t], d->host.freq[t], n * sizeof(double)) : 0;
    }
    return rc;
}

static const struct ntx_weight *weight_of(const struct ntx_device *d, const struct ntx_step *s, int i)
{
    return &d->c.chunks->layers[d->f->layer].of[s->weight[i]];
}

static void set_places(const struct ntx_device *d, const struct ntx_weight *w, struct ntx_gpu_pool *g)
{
    g->places = d->at[w->chunk0];
    g->place_type = w->type;
    g->place_bytes = w->row_bytes;
}

int ntx__device_join_keys(struct ntx_device *d, const struct ntx_step *s)
{
    struct ntx_gpu_pool g = {.kv = ntx__device_keys(d, 0),
                             .n_rows = d->now.n_all,
                             .every = s->index_topk.every,
                             .spans = 1,
                             .width = s->width,
                             .eps = d->hp->rms_eps};
    if (!s->index_topk.mean) {
        set_places(d, weight_of(d, s, 0), &g);
    } else {
        g.norm = ntx__device_vector(d, weight_of(d, s, 0));
        g.freq = d->m.freq[NTX_ROTATION_ALL];
        g.magnitude = ntx_rope_magnitude(d->hp, NTX_ROTATION_ALL);
        g.rotated = d->hp->rope_dim;
        g.neox = 1;
    }
    return ntx__device_go(d, NTX_GPU_POOL, &g, "keys of several positions");
}

struct ntx_gpu_kv ntx__device_pooled(const struct ntx_device *d)
{
    struct ntx_gpu_kv kv = ntx__device_kv(d, 0);
    kv.base = d->m.kv[0];
    kv.block_bytes = d->kv_block_bytes[0];
    kv.tables = d->m.tables[0];
    kv.layer_offset = d->kv_at[d->hp->n_layers + d->f->layer];
    return kv;
}

int ntx__device_pool(struct ntx_forward *f, const struct ntx__run *r)
{
    struct ntx_device *d = f->c.device;
    const struct ntx_step *s = ntx__steps_of(f, r);
    const uint64_t span = (uint64_t)s->pool.every * s->pool.spans;
    struct ntx_gpu_pool g = {
        .value = d->m.buf[s->in[0]],
        .weight = d->m.buf[s->in[1]],
        .norm = ntx__device_vector(d, weight_of(d, s, 1)),
        .freq = d->m.freq[s->pool.rope.angles],
        .states = d->m.states,
        .turns = d->m.turns,
        .turn_rows = d->m.turn_rows,
        .places_of_rows = ntx__device_turn_places(d),
        .kv = s->pool.keys ? ntx__device_keys(d, 0) : ntx__device_pooled(d),
        .magnitude = ntx_rope_magnitude(f->hp, (enum ntx_rotation)s->pool.rope.angles),
        .state_offset = ntx_recur_layer(f->hp, f->layer, NTX_KEEP_TAIL) +
                        (s->pool.keys ? span * 2 * s->pool.spans * f->hp->head_k * sizeof(float) : 0),
        .ld_value = f->buf[s->in[0]].ld,
        .ld_weight = f->buf[s->in[1]].ld,
        .n_rows = f->b->n_rows,
        .n_turns = f->n_turns,
        .every = s->pool.every,
        .spans = s->pool.spans,
        .width = s->width,
        .rotated = s->pool.rope.rotated,
        .offset = s->offset,
        .hadamard = s->pool.keys,
        .eps = f->hp->rms_eps,
    };
    set_places(d, weight_of(d, s, 0), &g);
    int rc = ntx__device_go(d, NTX_GPU_POOL, &g, "pooled K");
    return rc ? rc : ntx__device_go(d, NTX_GPU_UNPOOLED, &g, "rows to be pooled");
}

/* A row without a top-k list has at most max_topk pooled positions. */
void ntx__device_attend_pooled(const struct ntx_device *d, const struct ntx_step *s, struct ntx_gpu_attend *g)
{
    const uint32_t most = ntx__device_most_pos(d), pooled = s->attend.every ? most / s->attend.every : 0;
    g->most_pos = most;
    g->most_entries = NTX_MIN(s->attend.window, most) + (g->n_topk ? NTX_MIN(pooled, d->max_topk) : pooled);
    g->every = s->attend.every;
    if (s->attend.every)
        g->pooled = ntx__device_pooled(d);
}
