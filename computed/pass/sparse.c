/* SPDX-License-Identifier: Apache-2.0 */
/* sparse.c: the FFN of a packed layer, whose neurons are in groups (model/pack.h), with the operations of any back end.
 *
 *   x -> gate (its own matrix, or from the groups; where layers add to shared groups, an earlier step)
 *   --ffn-sparse (ffn_mode.h): gate = 0 for neurons that the row does not use (sparse_choose.c), or hidden = 0 in
 *     groups that it does not use (sparse_predict.c)
 *   then the groups, in order of their numbers:  up, hidden = act(gate) * up, y += hidden_j * down_j
 *
 * The CPU selects the groups; the gates and states for that are fetched before. A back end may leave a layer's groups
 * to the host, which computes them in place (sparse_host.c): then x and the gates are fetched, too, and y is sent. All
 * rows are exact, also a prompt's. */
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"

/* ---- selection */

/* Groups of this layer; returns how many. */
static uint32_t choose_groups(struct ntx_forward *f)
{
    uint32_t *list = f->m.groups.wanted, all = ntx__layer_weights(f)->pack.n_groups;
    uint32_t n = ntx_ffn_mode_groups(&f->c.ffn) ? ntx__join_groups(f, list)
                                                : ntx__choose_groups(f, f->layer, f->m.gate, list);
    ntx_count(f->c.counters, NTX_C_comp_ffn_neurons, (uint64_t)f->n_live * f->hp->n_ff);
    ntx_count(f->c.counters, NTX_C_comp_ffn_active, atomic_load_explicit(&f->groups.active, memory_order_relaxed));
    ntx_count(f->c.counters, NTX_C_comp_ffn_groups, all);
    ntx_count(f->c.counters, NTX_C_comp_ffn_groups_used, n);
    return n;
}

static int compute_groups(struct ntx_forward *f, bool host, bool all, uint32_t n)
{
    return host ? ntx__host_groups(f, all, n) : f->back->groups(f, all, n);
}

static int sum_groups(struct ntx_forward *f, bool host)
{
    struct ntx_weights *w = f->c.weights;
    if (f->c.ffn.kind == NTX_FFN_ALL)
        return compute_groups(f, host, true, 0);
    uint32_t n = choose_groups(f);
    int rc = w->ops->want_groups ? w->ops->want_groups(w, f->layer, f->m.groups.wanted, n) : 0;
    if (!rc)
        rc = ntx_ffn_mode_groups(&f->c.ffn) ? ntx__predict_groups(f, f->layer + 1) : ntx__prefetch_groups(f);
    return rc ? rc : compute_groups(f, host, false, n);
}

/* ---- where */

/* The CPU needs the states: groups are predicted from them, or the next layer's may be prefetched. */
static bool looks_at_states(const struct ntx_forward *f)
{
    if (f->c.ffn.kind == NTX_FFN_PREDICTED)
        return f->groups.n_decode > 0;
    if (f->c.ffn.kind == NTX_FFN_ALL || ntx_ffn_mode_groups(&f->c.ffn) || f->layer + 1 == f->hp->n_layers ||
        !f->c.weights->ops->prefetch_groups)
        return false;
    uint32_t last = ntx__layer_weights(f)[1].groups.chunk0 + ntx__layer_weights(f)[1].groups.n_chunks - 1;
    return !ntx__has(f, last) && !(f->c.weights->ops->there && f->c.weights->ops->there(f->c.weights, last));
}

/* Fetches what the CPU needs of this layer: gates to select by, states, and all of the input if it computes. */
static int fetch_inputs(struct ntx_forward *f, bool host)
{
    const struct ntx_layer_weights *w = ntx__layer_weights(f);
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

static int run_on_host(struct ntx_forward *f)
{
    const struct ntx__rows y = {.buf = NTX_BUF_Y, .n = f->n_live, .forms = 1u << NTX_ACT_F32};
    int rc = ntx__settle_chunks(f); /* frees ring slots for the next chunks */
    if (rc || (rc = sum_groups(f, true)))
        return rc;
    ntx__watch_groups(f);
    return f->back->send ? f->back->send(f, &y) : 0;
}

static int run_on_back_end(struct ntx_forward *f)
{
    int rc = sum_groups(f, false);
    if (!rc)
        rc = ntx__settle_chunks(f); /* copied chunks may be evicted afterwards */
    if (!rc && ntx__watches_groups(f) && !(rc = ntx__fetch(f, NTX_BUF_GATE, 0, f->n_live)))
        ntx__watch_groups(f);
    return rc;
}

int ntx__run_groups(struct ntx_forward *f, const struct ntx__run *r)
{
    bool host = !f->back->groups_by_host || f->back->groups_by_host(f);
    int rc = ntx__steps_of(f, r)->weight[0] == NTX_T_gate ? ntx__gates(f) : 0;
    if (rc || (rc = fetch_inputs(f, host)))
        return rc;
    return host ? run_on_host(f) : run_on_back_end(f);
}
