/* SPDX-License-Identifier: Apache-2.0 */
/* sparse.c: the FFN of a packed layer, whose neurons lie in groups (model/pack.h), by the operations of any back end.
 *
 *   x -> gate (its own matrix, or from the groups; where layers add to what they share, a step before this one)
 *   --ffn-sparse (ffn_mode.h): gate = 0 for neurons that the row does not use (sparse_choose.c), or hidden = 0 in
 *     groups that it does not use
 *   (sparse_predict.c)
 *   then the groups, in order of their numbers:  up, hidden = act(gate) * up, y += hidden_j * down_j
 *
 * Which groups are used is the CPU's to say; the gates and states that it says it from are fetched before. A back end
 * may leave a layer's groups to the host, which computes them where they lie (sparse_host.c): then x and the gates are
 * fetched too, and y is sent. All rows are exact, prompts' too. */
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"

static const struct ntx_layer_weights *layer(const struct ntx_forward *f) { return &f->c.chunks->layers[f->layer]; }

/* ---- what is chosen */

/* Those of this layer; returns how many. */
static uint32_t choose_groups(struct ntx_forward *f)
{
    uint32_t *list = f->m.groups.wanted, all = layer(f)->pack.n_groups;
    uint32_t n = ntx_ffn_mode_groups(&f->c.ffn) ? ntx__join_groups(f, list)
                                                : ntx__choose_groups(f, f->layer, f->m.gate, list);
    ntx_count(f->c.counters, NTX_C_comp_ffn_neurons, (uint64_t)f->n_live * f->hp->n_ff);
    ntx_count(f->c.counters, NTX_C_comp_ffn_active, atomic_load_explicit(&f->groups.active, memory_order_relaxed));
    ntx_count(f->c.counters, NTX_C_comp_ffn_groups, all);
    ntx_count(f->c.counters, NTX_C_comp_ffn_groups_used, n);
    return n;
}

static int compute(struct ntx_forward *f, bool host, bool all, uint32_t n)
{
    return host ? ntx__host_groups(f, all, n) : f->back->groups(f, all, n);
}

static int sum(struct ntx_forward *f, bool host)
{
    struct ntx_weights *w = f->c.weights;
    if (f->c.ffn.kind == NTX_FFN_ALL)
        return compute(f, host, true, 0);
    uint32_t n = choose_groups(f);
    int rc = w->ops->want_groups ? w->ops->want_groups(w, f->layer, f->m.groups.wanted, n) : 0;
    if (!rc)
        rc = ntx_ffn_mode_groups(&f->c.ffn) ? ntx__predict_groups(f, f->layer + 1) : ntx__prefetch_groups(f);
    return rc ? rc : compute(f, host, false, n);
}

/* ---- by whom */

/* The states are the CPU's to look at: where groups are predicted from them, and where the next layer's may be
 * prefetched. */
static bool looks_at_states(const struct ntx_forward *f)
{
    if (f->c.ffn.kind == NTX_FFN_PREDICTED)
        return f->groups.n_decode > 0;
    if (f->c.ffn.kind == NTX_FFN_ALL || ntx_ffn_mode_groups(&f->c.ffn) || f->layer + 1 == f->hp->n_layers ||
        !f->c.weights->ops->prefetch_groups)
        return false;
    uint32_t last = layer(f)[1].groups.chunk0 + layer(f)[1].groups.n_chunks - 1;
    return !ntx__has(f, last) && !(f->c.weights->ops->there && f->c.weights->ops->there(f->c.weights, last));
}

/* What the CPU needs of this layer: gates to choose by, states, and all of the input where it computes. */
static int bring(struct ntx_forward *f, bool host)
{
    const struct ntx_layer_weights *w = layer(f);
    const uint32_t floats = 1u << NTX_ACT_F32,
                   forms = ntx__forms((const struct ntx_weight *const[]){&w->gate, &w->up}, 2);
    bool chooses = f->c.ffn.kind != NTX_FFN_ALL && !ntx_ffn_mode_groups(&f->c.ffn);
    struct ntx__rows r[3];
    unsigned n = 0;
    if (!ntx_pack_has_gate(&w->pack) && (chooses || host))
        r[n++] = (struct ntx__rows){.buf = NTX_BUF_GATE, .n = f->n_live, .forms = floats};
    if (looks_at_states(f))
        r[n++] = (struct ntx__rows){.buf = NTX_BUF_H, .n = f->b->n_rows, .forms = floats};
    if (host)
        r[n++] = (struct ntx__rows){
            .buf = NTX_BUF_X, .set = NTX__OF_LAYER, .n = f->n_live, .forms = forms, .width = f->hp->n_embd};
    return n && f->back->fetch ? f->back->fetch(f, r, n) : 0;
}

static int by_host(struct ntx_forward *f)
{
    const struct ntx__rows y = {.buf = NTX_BUF_Y, .n = f->n_live, .forms = 1u << NTX_ACT_F32};
    int rc = ntx__settle_chunks(f); /* the ring's slots are free for what is to come */
    if (rc || (rc = sum(f, true)))
        return rc;
    ntx__watch_groups(f);
    return f->back->send ? f->back->send(f, &y) : 0;
}

static int by_back_end(struct ntx_forward *f)
{
    int rc = sum(f, false);
    if (!rc)
        rc = ntx__settle_chunks(f); /* those that were copied may be replaced after this */
    if (!rc && ntx__watches_groups(f) && !(rc = ntx__fetch(f, NTX_BUF_GATE, 0, f->n_live)))
        ntx__watch_groups(f);
    return rc;
}

int ntx__run_groups(struct ntx_forward *f, const struct ntx__run *r)
{
    bool host = !f->back->groups_by_host || f->back->groups_by_host(f);
    int rc = ntx__steps_of(f, r)->weight[0] == NTX_T_gate ? ntx__gates(f) : 0;
    if (rc || (rc = bring(f, host)))
        return rc;
    return host ? by_host(f) : by_back_end(f);
}
