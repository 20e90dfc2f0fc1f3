/* SPDX-License-Identifier: Apache-2.0 */
/* sparse_prefetch.c: prefetch of the next layer's groups of neurons: its norm and its gate, applied to the state before
 * this layer's FFN, with the selection that will be made then. What attention and the FFN still add to that state is
 * not known; the stream counts how often the prediction is right.
 *
 * The CPU predicts while the drive reads what this layer uses; it costs a product with the next gate, which must be in
 * memory. Only reads follow from it, no values. A gate that layers share, without the next layer's additions, predicts
 * badly: nothing is prefetched by it. */
#include "common/util.h"
#include "computed/pass/forward_impl.h"

static const struct ntx_layer_weights *next_layer(const struct ntx_forward *f)
{
    return &f->c.chunks->layers[f->layer + 1];
}

bool ntx__gate_there(const struct ntx_forward *f, uint32_t layer)
{
    struct ntx_weights *w = f->c.weights;
    const struct ntx_weight *gate = &f->c.chunks->layers[layer].gate;
    if (w->ops->there ? !w->ops->there(w, f->c.chunks->layers[layer].ffn_norm.chunk0) : !f->back->has)
        return false;
    for (uint32_t c = gate->chunk0; c < gate->chunk0 + gate->n_chunks; c++)
        if (!ntx__has(f, c) && !(w->ops->there && w->ops->there(w, c)))
            return false;
    return true;
}

int ntx__gates_early(struct ntx_forward *f, uint32_t layer, uint32_t n_rows)
{
    const struct ntx_weight *gate = &f->c.chunks->layers[layer].gate;
    const struct ntx__product p = {.w = gate, .to = NTX__BUF_EARLY_GATE};
    const struct ntx__input in = {.buf = NTX__BUF_EARLY_X, .set = NTX__OF_EARLY, .n_rows = n_rows};
    const struct ntx__rows x = {
        .buf = in.buf, .set = in.set, .n = n_rows, .forms = ntx__forms(&gate, 1), .width = f->hp->n_embd};
    int rc = f->back->send ? f->back->send(f, &x) : 0;
    f->predicts = true;
    if (!rc)
        rc = f->back->multiply(f, &p, 1, &in);
    f->predicts = false;
    return rc ? rc : ntx__fetch(f, p.to, 0, n_rows);
}

static void norm_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_weight *gate = &next_layer(f)->gate;
    float *x = f->m.groups.x + i * f->ld_x;
    f->c.ops->rmsnorm(f->m.h + (size_t)f->m.live[i] * f->hp->n_embd, f->vec[NTX_T_ffn_norm], f->hp->rms_eps,
                      f->hp->n_embd, x);
    ntx__quantize_into(f, f->m.groups.quantized, ntx__forms(&gate, 1), x, f->hp->n_embd, i);
}

int ntx__prefetch_groups(struct ntx_forward *f)
{
    struct ntx__group_mem *m = &f->m.groups;
    if (!f->c.weights->ops->prefetch_groups || f->n_live > NTX__PREFETCH_ROWS || f->layer + 1 == f->hp->n_layers ||
        next_layer(f)->pack.adds || !ntx__gate_there(f, f->layer + 1))
        return 0;
    int rc = ntx__take(f, &next_layer(f)->ffn_norm, &f->vec[NTX_T_ffn_norm]);
    if (rc)
        return rc;
    ntx__each(f, norm_row, f->n_live);
    ntx__give(f, &next_layer(f)->ffn_norm);
    if ((rc = ntx__gates_early(f, f->layer + 1, f->n_live)))
        return rc;
    uint32_t n = ntx__choose_groups(f, f->layer + 1, m->gate, m->predicted);
    return f->c.weights->ops->prefetch_groups(f->c.weights, f->layer + 1, m->predicted, n);
}
