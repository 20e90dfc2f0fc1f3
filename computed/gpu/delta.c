/* SPDX-License-Identifier: Apache-2.0 */
/* delta.c: layers with a recurrent state (computed/pass/forward_delta.c) on a device. The host tracks which state
 * buffer of a session is valid and how many tokens it covers (computed/state/recur.h). The values are in device memory
 * only, in the same order. */
#include "computed/gpu/device_impl.h"

int ntx__device_turns(struct ntx_device *d)
{
    const struct ntx_forward *f = d->f;
    int rc;
    for (uint32_t i = 0; i < f->n_turns; i++) {
        const uint32_t first = f->m.turns[i], row = f->m.turn_rows[first];
        const struct ntx_kv_seq *r = f->b->rows[row].kv;
        d->host.turns[i] = (struct ntx_gpu_turn){.from = ntx_recur_buffer(r, false),
                                                 .to = ntx_recur_buffer(r, true),
                                                 .first = first,
                                                 .n = f->m.turns[i + 1] - first,
                                                 .fresh = !ntx_recur_at(r)};
    }
    if (!f->n_turns)
        return 0;
    rc = d->ops->upload(ntx__queue(d), d->m.turns, d->host.turns, f->n_turns * sizeof *d->host.turns);
    return rc ? rc : d->ops->upload(ntx__queue(d), d->m.turn_rows, f->m.turn_rows, f->b->n_rows * 4ull);
}

const uint32_t *ntx__device_turn_places(const struct ntx_device *d)
{
    return d->ends && ntx__is_last(d->f, d->f->layer) ? d->m.turn_places : d->m.turn_rows;
}

static struct ntx_gpu_recur recur_args(const struct ntx_device *d, uint8_t in, uint8_t out)
{
    return (struct ntx_gpu_recur){
        .x = d->m.buf[in],
        .y = d->m.buf[out],
        .states = d->m.states,
        .turns = d->m.turns,
        .rows = ntx__device_turn_places(d),
        .layer_offset = ntx_recur_layer(d->hp, d->f->layer, NTX_KEEP_TAIL),
        .ld_x = d->f->buf[in].ld,
        .ld_y = d->f->buf[out].ld,
        .n_turns = d->f->n_turns,
    };
}

int ntx__device_conv(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(f, r);
    struct ntx_gpu_recur g = recur_args(f->c.device, s->in[0], s->out);
    if (s->conv.dilation) {
        const struct ntx_weight *w = ntx__weight_of(f, s);
        g.layer_offset = ntx_recur_layer(f->hp, f->layer, NTX_KEEP_FOLD) + ntx_fold_floats(f->hp) * sizeof(float);
        g.apart = s->conv.dilation;
        g.type = w->type;
        g.row_bytes = w->row_bytes;
        ntx__grams_keep_tokens(f);
    }
    for (uint8_t i = 0; i < s->n_weights; i++)
        g.w[i] = ntx__device_vector(f->c.device, &f->c.chunks->layers[f->layer].of[s->weight[i]]);
    g.lists = s->n_weights;
    g.width = s->width;
    g.taps = s->conv.taps;
    return ntx__device_go(f->c.device, NTX_GPU_CONV, &g, "a convolution");
}

/* Table rows that follow from tokens (n-grams): the host reads them and sends them. */
int ntx__device_grams(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_device *d = f->c.device;
    const struct ntx_step *s = ntx__steps_of(f, r);
    const struct ntx__rows rows = {.buf = s->out,
                                   .set = NTX__OF_LAYER,
                                   .n = d->now.n_all,
                                   .forms = r->forms | 1u << NTX_ACT_F32,
                                   .width = r->width};
    int rc = ntx__cpu_grams(f, r);
    return rc ? rc : ntx__device_send(f, &rows);
}

int ntx__device_delta(struct ntx_forward *f, const struct ntx__run *r)
{
    struct ntx_device *d = f->c.device;
    const struct ntx_step *s = ntx__steps_of(f, r);
    struct ntx_gpu_recur g = recur_args(d, s->in[0], s->out);
    g.layer_offset = ntx_recur_layer(f->hp, f->layer, NTX_KEEP_FOLD);
    g.keeps = d->m.buf[NTX_BUF_A];
    g.ld_keeps = f->buf[NTX_BUF_A].ld;
    g.takes = d->m.buf[s->in[1]];
    g.ld_takes = f->buf[s->in[1]].ld;
    g.width = s->width;
    g.heads = s->heads;
    g.key_heads = s->delta.key_heads;
    g.tiled = s->delta.tiled;
    g.by_key = s->delta.by_key;
    g.panel = ntx_recur_panel(f->hp);
    g.scale = s->scale;
    return ntx__device_go(d, NTX_GPU_DELTA, &g, "a delta net");
}
