/* device_moe.c: the FFN of a layer with experts on a device: moe.c's hands.
 *
 *   router on the device -> logits down -> the CPU chooses -> lists up
 *   per wave of experts: rows gathered by choice -> gate, up (+ bias) -> act(gate) * up -> down (+ bias), each expert where it lives -> added to its rows
 *
 * All rows of all these products are exact, prompts' too: a choice must not depend on rounding that others share. */
#include <string.h>

#include "common/util.h"
#include "infer/device/device_impl.h"

static const struct ntx_layer_weights *layer(const struct ntx_forward *f)
{
    return &f->c.chunks->layers[f->layer];
}

static uint32_t forms_of(const struct ntx_weight *w) { return ntx__forms(&w, 1); }

static int route(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    const struct ntx__device_product p = {.w = &layer(f)->router, .y = d->m.moe.probs};
    const struct ntx__device_input in = ntx__device_normed(d, f->n_live, 0, 0);
    uint64_t bytes = (uint64_t)f->n_live * d->hp->n_expert * sizeof(float);
    int rc = ntx__device_multiply(d, &p, 1, &in);
    if (rc)
        return rc;
    if ((rc = d->ops->download(d->compute, d->host.probs, d->m.moe.probs, bytes)) || (rc = d->ops->stream_sync(d->compute)))
        return ntx__device_fail(d, rc, "the router's logits");
    memcpy(f->m.moe.probs, d->host.probs, bytes);
    return 0;
}

/* The CPU looks a layer ahead, from the states that go into this FFN. */
static int predict(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    const struct ntx_layer_weights *next = layer(f) + 1;
    if (f->layer + 1 == d->hp->n_layers || next->router.tensor == NTX_NO_TENSOR ||
        d->c.table[ntx_expert_chunk(next, 0, NTX_EXPERT_GATE)].placement != NTX_PLACE_FRAME)
        return 0;
    int rc = ntx__device_states(f);
    return rc ? rc : ntx__moe_predict(f);
}

/* The lists of the layer before are on the device since its router's logits came down. */
static int chosen(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    uint64_t bytes = (uint64_t)f->n_live * d->hp->n_expert_used * 4;
    int rc;
    memcpy(d->host.row, f->m.moe.row, bytes);
    memcpy(d->host.place, f->m.moe.place, bytes);
    memcpy(d->host.weight, f->m.moe.weight, bytes);
    if ((rc = d->ops->upload(d->compute, d->m.moe.row, d->host.row, bytes)) || (rc = d->ops->upload(d->compute, d->m.moe.place, d->host.place, bytes)) ||
        (rc = d->ops->upload(d->compute, d->m.moe.weight, d->host.weight, bytes)))
        return ntx__device_fail(d, rc, "the choice of experts");
    if (layer(f)->expert_bias[NTX_EXPERT_DOWN].tensor == NTX_NO_TENSOR) /* then nobody asks whose a choice is */
        return 0;
    memcpy(d->host.expert, f->m.moe.expert, bytes);
    rc = d->ops->upload(d->compute, d->m.moe.expert, d->host.expert, bytes);
    return rc ? ntx__device_fail(d, rc, "whose choices they are") : 0;
}

/* ---- the expert that all rows go through */

static int shared(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    const struct ntx_layer_weights *w = layer(f);
    uint32_t n = f->n_live, ff = d->hp->n_ff_shexp;
    const struct ntx__device_product gate = {.w = &w->shared_gate, .y = d->m.moe.shared}, in[] = {
        {.w = &w->gate_shared, .y = d->m.gate, .ld_y = NTX__DEVICE_LD(ff), .host_y = f->m.gate},
        {.w = &w->up_shared, .y = d->m.up, .host_y = f->m.up},
    }, out = {.w = &w->down_shared, .y = d->m.y, .host_y = f->m.y};
    const struct ntx__device_input x = ntx__device_normed(d, n, 0, 0);
    const struct ntx__device_input hidden = {.x = d->m.gate, .ld = NTX__DEVICE_LD(ff), .quantized = d->m.moe.quantized, .n = n};
    int rc;
    if (w->down_shared.tensor == NTX_NO_TENSOR) {
        rc = d->ops->fill(d->compute, d->m.y, 0, (uint64_t)n * d->hp->n_embd * sizeof(float));
        return rc ? ntx__device_fail(d, rc, "experts' sum") : 0;
    }
    if ((gate.w->tensor != NTX_NO_TENSOR && (rc = ntx__device_multiply(d, &gate, 1, &x))) || (rc = ntx__device_multiply(d, in, 2, &x)) ||
        (rc = ntx__device_quantize(d, d->m.gate, d->m.up, ff, n, forms_of(&w->down_shared), d->m.moe.quantized, NULL)))
        return rc;
    return ntx__device_multiply(d, &out, 1, &hidden);
}

/* ---- a wave of experts */

static int gather_form(struct ntx_device *d, const void *from, void *to, uint64_t stride, uint64_t bytes)
{
    const struct ntx_gpu_gather g = {.from = from, .to = to, .rows = d->m.moe.row + d->f->moe.first, .from_stride = stride, .to_stride = stride, .bytes = bytes,
                                     .n_rows = d->f->moe.n};
    return ntx__device_go(d, NTX_GPU_GATHER, &g, "gathering rows");
}

static int gather(struct ntx_device *d)
{
    const struct ntx_weight *const in[] = {&layer(d->f)->expert[NTX_EXPERT_GATE], &layer(d->f)->expert[NTX_EXPERT_UP]};
    uint32_t forms = ntx__forms(in, 2), n = d->hp->n_embd;
    int rc = forms >> NTX_ACT_F32 & 1 ? gather_form(d, d->m.x, d->m.moe.x, NTX__DEVICE_LD(n) * sizeof(float), NTX__DEVICE_LD(n) * sizeof(float)) : 0;
    for (int form = NTX_ACT_F32 + 1; !rc && form < NTX_N_ACTS; form++)
        if (forms >> form & 1)
            rc = gather_form(d, d->m.quantized[form], d->m.moe.quantized[form], d->stride[form], ntx_act_row_bytes((enum ntx_act)form, n));
    return rc;
}

/* These parts of experts order[0 .. n), each for the choices that fell on it. */
static int multiply(struct ntx_device *d, uint32_t n, const enum ntx_expert_part *parts, unsigned n_parts, const struct ntx__device_input *in)
{
    struct ntx_forward *f = d->f;
    const struct ntx__moe_mem *m = &f->m.moe;
    const struct ntx__device_product to[NTX_EXPERT_PARTS] = {
        [NTX_EXPERT_GATE] = {.y = d->m.moe.gate, .ld_y = NTX__DEVICE_LD(d->hp->n_ff_exp), .host_y = m->gate},
        [NTX_EXPERT_UP] = {.y = d->m.moe.up, .host_y = m->up},
        [NTX_EXPERT_DOWN] = {.y = d->m.moe.y, .host_y = m->y},
    };
    unsigned k = 0;
    for (uint32_t i = 0; i < n; i++)
        for (unsigned part = 0; part < n_parts; part++, k++) {
            uint32_t e = m->order[i];
            m->weights[k] = ntx_expert_weight(layer(f), e, parts[part]);
            d->products[k] = to[parts[part]];
            d->products[k].w = &m->weights[k];
            d->products[k].row0 = m->first[e] - f->moe.first;
            d->products[k].n_rows = m->first[e + 1] - m->first[e];
        }
    return ntx__device_multiply(d, d->products, k, in);
}

static int combine(struct ntx_device *d)
{
    const struct ntx_forward *f = d->f;
    const struct ntx_gpu_combine g = {
        .y = d->m.y, .z = d->m.moe.y, .gate = !f->moe.first && layer(f)->shared_gate.tensor != NTX_NO_TENSOR ? d->m.moe.shared : NULL, .weight = d->m.moe.weight, .place = d->m.moe.place,
        .bias = ntx__device_vector(d, &layer(f)->expert_bias[NTX_EXPERT_DOWN]), .expert = d->m.moe.expert,
        .ld_y = d->hp->n_embd, .used = d->hp->n_expert_used, .first = f->moe.first, .n_choices = f->moe.n, .n = d->hp->n_embd, .n_rows = f->n_live,
    };
    return ntx__device_go(d, NTX_GPU_COMBINE, &g, "experts' sum");
}

static int wave(struct ntx_forward *f, uint32_t n)
{
    static const enum ntx_expert_part in[] = {NTX_EXPERT_GATE, NTX_EXPERT_UP}, out[] = {NTX_EXPERT_DOWN};
    struct ntx_device *d = f->c.device;
    const struct ntx__device_input x = {.x = d->m.moe.x, .ld = NTX__DEVICE_LD(d->hp->n_embd), .quantized = d->m.moe.quantized, .n = f->moe.n};
    const struct ntx__device_input hidden = {.x = d->m.moe.gate, .ld = NTX__DEVICE_LD(d->hp->n_ff_exp), .quantized = d->m.moe.quantized, .n = f->moe.n};
    const struct ntx_weight *bias = layer(f)->expert_bias;
    const struct ntx__device_biases biases = {ntx__device_vector(d, &bias[NTX_EXPERT_GATE]), ntx__device_vector(d, &bias[NTX_EXPERT_UP]),
                                              d->m.moe.expert + f->moe.first};
    int rc;
    if ((rc = gather(d)) || (rc = multiply(d, n, in, 2, &x)) ||
        (rc = ntx__device_quantize(d, d->m.moe.gate, d->m.moe.up, d->hp->n_ff_exp, f->moe.n, forms_of(&layer(f)->expert[NTX_EXPERT_DOWN]), d->m.moe.quantized, &biases)) ||
        (rc = multiply(d, n, out, 1, &hidden)) || (rc = combine(d)))
        return rc;
    rc = ntx__device_settle(d); /* those that were copied may be replaced after this */
    return rc ? ntx__device_fail(d, rc, "a copy") : 0;
}

const struct ntx__moe_hands ntx__device_experts = {.route = route, .chosen = chosen, .predict = predict, .shared = shared, .wave = wave};
