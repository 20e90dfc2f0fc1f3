/* SPDX-License-Identifier: Apache-2.0 */
/* sparse_predict.c: groups of neurons that a decode row uses, known before its layer is computed (--ffn-sparse
 * predicted, prompt).
 *
 * predicted: from the row's state before the FFN of layer l - 1 (for layer 0: the embedding). A row that skips that
 * layer has had the same state since. The prediction for layer l is made there, so that reads begin while layer l - 1
 * is computed, and layer l requests nothing else:
 *
 *     FFN of l - 1: wants its groups -> predicts those of l -> they are prefetched -> its products
 *     FFN of l: wants the predicted groups
 *
 * By the gate: layer l's norm and gate matrix on that state. A gate matrix that is not resident is multiplied once, in
 * its turn, by the rows' own states and by the kept ones: the same values, only later. Learned: the sidecar's network
 * of layer l.
 *
 * prompt: the session's set (ffn_set.h), to which rows that use all groups add: a prompt's. */
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"
#include "computed/sample/largest.h"

static float *state_of(const struct ntx_forward *f, uint32_t k)
{
    return f->m.h + (size_t)f->m.groups.decode[k] * f->hp->n_embd;
}
static uint8_t *uses_of(const struct ntx_forward *f, uint32_t layer, uint32_t k)
{
    return f->m.groups.uses[layer % 2] + (size_t)k * f->m.groups.stride;
}
static bool is_known(const struct ntx_forward *f, uint32_t layer) { return f->groups.known[layer % 2] == layer; }

void ntx__begin_groups(struct ntx_forward *f)
{
    f->groups.n_decode = 0;
    f->groups.known[0] = f->groups.known[1] = f->groups.kept = f->groups.predicted = UINT32_MAX;
    for (uint32_t i = 0; f->c.ffn.kind == NTX_FFN_PREDICTED && i < f->b->n_rows; i++) {
        f->m.groups.number[i] = f->groups.n_decode;
        if (!f->b->rows[i].all_groups)
            f->m.groups.decode[f->groups.n_decode++] = i;
    }
}

const uint8_t *ntx__groups_of(const struct ntx_forward *f, uint32_t row, uint32_t layer)
{
    const struct ntx_row *r = &f->b->rows[row];
    if (r->all_groups || !ntx_ffn_mode_groups(&f->c.ffn))
        return NULL;
    return f->c.ffn.kind == NTX_FFN_PROMPT ? ntx_ffn_set_uses(r->ffn, layer)
                                           : uses_of(f, layer, f->m.groups.number[row]);
}

/* ---- from scores to groups */

static void choose_by(struct ntx_forward *f, uint32_t k, const float *score, float *scratch)
{
    uint32_t l = f->groups.layer, n = f->c.chunks->layers[l].pack.n_groups;
    uint8_t *uses = uses_of(f, l, k);
    if (f->c.ffn.value > 0) {
        struct ntx_cut cut = ntx_cut_at(score, scratch, n, ntx_ffn_share(f->c.ffn.value, n));
        for (uint32_t g = 0; g < n; g++)
            uses[g] = ntx_cut_keeps(&cut, score[g]);
    } else {
        for (uint32_t g = 0; g < n; g++)
            uses[g] = score[g] >= f->c.ffn.nets->limit[l];
    }
}

static void choose_by_network(struct ntx_forward *f, uint32_t k, unsigned thread)
{
    float *score = f->m.groups.scratch + (size_t)thread * 2 * f->hp->n_ff;
    void *steps = f->m.groups.steps + (size_t)thread * f->m.groups.steps_bytes;
    ntx_mlp_logits(f->c.ffn.nets->mlp[f->groups.layer], state_of(f, k), steps, score);
    for (uint32_t g = 0; g < f->c.chunks->layers[f->groups.layer].pack.n_groups; g++)
        score[g] = score[g] == score[g] ? score[g] : -INFINITY;
    choose_by(f, k, score, score + f->hp->n_ff);
}

/* Sum of the squares of a group's values. */
static float energy(const float *v, uint32_t n)
{
    float sum = 0;
    for (uint32_t j = 0; j < n; j++)
        sum += v[j] * v[j];
    return sum;
}

static void energies(const struct ntx_forward *f, uint32_t layer, const float *v, float *out)
{
    const struct ntx_pack_layer *p = &f->c.chunks->layers[layer].pack;
    for (uint32_t g = 0; g < p->n_groups; g++)
        out[g] = energy(v + g * p->group, NTX_MIN(p->group, f->hp->n_ff - g * p->group));
}

static void choose_row_by_gates(struct ntx_forward *f, uint32_t k, unsigned thread)
{
    float *m = f->m.groups.scratch + (size_t)thread * 2 * f->hp->n_ff, *score = m + f->hp->n_ff;
    ntx__magnitudes(f, f->groups.gate + k * f->ld_gate, m);
    energies(f, f->groups.layer, m, score);
    choose_by(f, k, score, m);
}

/* gate: [kept rows x ld_gate] */
static void choose_by_gates(struct ntx_forward *f, uint32_t layer, float *gate)
{
    f->groups.layer = layer;
    f->groups.gate = gate;
    ntx__each(f, choose_row_by_gates, f->groups.n_decode);
    f->groups.known[layer % 2] = layer;
}

/* ---- prediction */

static const struct ntx_layer_weights *weights_of(const struct ntx_forward *f, uint32_t layer)
{
    return &f->c.chunks->layers[layer];
}

static void norm_kept(struct ntx_forward *f, uint32_t k, unsigned thread)
{
    (void)thread;
    const struct ntx_weight *gate = &weights_of(f, f->groups.layer)->gate;
    float *x = f->m.groups.x + k * f->ld_x;
    f->c.ops->rmsnorm(state_of(f, k), f->vec[NTX_T_ffn_norm], f->hp->rms_eps, f->hp->n_embd, x);
    ntx__quantize_into(f, f->m.groups.quantized, ntx__forms(&gate, 1), x, f->hp->n_embd, k);
}

static int predict_by_gate(struct ntx_forward *f, uint32_t layer)
{
    const struct ntx_weight *norm = &weights_of(f, layer)->ffn_norm;
    int rc = ntx__take(f, norm, &f->vec[NTX_T_ffn_norm]);
    if (rc)
        return rc;
    ntx__each(f, norm_kept, f->groups.n_decode);
    ntx__give(f, norm);
    f->groups.kept = layer;
    if (!ntx__gate_there(f, layer))
        return 0;
    if (!(rc = ntx__gates_early(f, layer, f->groups.n_decode)))
        choose_by_gates(f, layer, f->m.groups.gate);
    return rc;
}

/* For all decode rows, by their states in m.h. */
static int predict_layer(struct ntx_forward *f, uint32_t layer)
{
    if (!f->groups.n_decode)
        return 0;
    f->groups.layer = layer;
    if (!f->c.ffn.learned)
        return predict_by_gate(f, layer);
    ntx__each(f, choose_by_network, f->groups.n_decode);
    f->groups.known[layer % 2] = layer;
    return 0;
}

/* Rows in m.groups.x that this layer's gate matrix must still multiply. */
static uint32_t kept_rows(const struct ntx_forward *f)
{
    return f->groups.kept == f->layer && !is_known(f, f->layer) ? f->groups.n_decode : 0;
}

/* Puts the kept rows behind the rows' own inputs; their gates are used only for the prediction. */
static int append_kept(struct ntx_forward *f, uint32_t kept, uint32_t forms)
{
    const struct ntx__rows behind = {
        .buf = NTX_BUF_X, .set = NTX__OF_LAYER, .row0 = f->n_live, .n = kept, .forms = forms, .width = f->hp->n_embd};
    for (uint32_t k = 0; k < kept; k++) {
        float *x = f->m.x + (f->n_live + k) * f->ld_x;
        memcpy(x, f->m.groups.x + k * f->ld_x, f->hp->n_embd * sizeof *x);
        ntx__quantize(f, forms, x, f->hp->n_embd, f->n_live + k);
    }
    return kept && f->back->send ? f->back->send(f, &behind) : 0;
}

int ntx__gates(struct ntx_forward *f)
{
    const struct ntx__product p = {.w = &weights_of(f, f->layer)->gate, .to = NTX_BUF_GATE};
    uint32_t kept = kept_rows(f);
    const struct ntx__input in = {.buf = NTX_BUF_X, .set = NTX__OF_LAYER, .n_rows = f->n_live + kept};
    int rc = append_kept(f, kept, ntx__forms(&p.w, 1));
    if (rc || (rc = f->back->multiply(f, &p, 1, &in)) || !kept)
        return rc;
    if (!(rc = ntx__fetch(f, p.to, f->n_live, kept)))
        choose_by_gates(f, f->layer, f->m.gate + f->n_live * f->ld_gate);
    return rc;
}

/* ---- the groups of all rows */

/* Adds the row's groups to those in `used`. Returns how many neurons they have. */
static uint32_t add_groups(const struct ntx_forward *f, uint32_t row, uint32_t layer, uint8_t *used)
{
    const struct ntx_pack_layer *p = &weights_of(f, layer)->pack;
    const uint8_t *uses = ntx__groups_of(f, row, layer);
    uint32_t neurons = 0;
    for (uint32_t g = 0; g < p->n_groups; g++)
        if (!uses || uses[g]) {
            used[g] = 1;
            neurons += NTX_MIN(p->group, f->hp->n_ff - g * p->group);
        }
    return neurons;
}

static uint32_t list_used(const struct ntx_forward *f, uint32_t layer, uint32_t *list)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < weights_of(f, layer)->pack.n_groups; g++)
        if (f->m.groups.used[g])
            list[n++] = g;
    return n;
}

uint32_t ntx__join_groups(struct ntx_forward *f, uint32_t *list)
{
    uint64_t neurons = 0;
    memset(f->m.groups.used, 0, weights_of(f, f->layer)->pack.n_groups);
    for (uint32_t r = 0; r < f->n_live; r++)
        neurons += add_groups(f, f->m.live[r], f->layer, f->m.groups.used);
    atomic_store_explicit(&f->groups.active, neurons, memory_order_relaxed);
    return list_used(f, f->layer, list);
}

static bool some_use_all(const struct ntx_forward *f)
{
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        if (f->b->rows[i].all_groups)
            return true;
    return false;
}

int ntx__predict_groups(struct ntx_forward *f, uint32_t l)
{
    if (l == f->hp->n_layers && f->c.ffn.kind == NTX_FFN_PROMPT)
        l = 0; /* of the next pass: the set will be the same */
    if (!ntx_ffn_mode_groups(&f->c.ffn) || l == f->hp->n_layers || f->groups.predicted == l)
        return 0;
    f->groups.predicted = l;
    int rc = predict_layer(f, l);
    if (rc || !f->c.weights->ops->prefetch_groups || some_use_all(f) ||
        (f->c.ffn.kind == NTX_FFN_PREDICTED && !is_known(f, l)))
        return rc;
    memset(f->m.groups.used, 0, weights_of(f, l)->pack.n_groups);
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        if (!ntx__skips(f, i, l))
            add_groups(f, i, l, f->m.groups.used);
    return f->c.weights->ops->prefetch_groups(f->c.weights, l, f->m.groups.predicted,
                                              list_used(f, l, f->m.groups.predicted));
}

/* ---- energies */

static void energies_of_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_row *r = &f->b->rows[f->m.live[i]];
    float *energy = ntx__capture_ffn(r->capture, f->layer);
    if (energy)
        energies(f, f->layer, f->m.gate + i * f->ld_gate, energy);
    /* up is no longer needed */
    if (r->add)
        energies(f, f->layer, f->m.gate + i * f->ld_gate, f->m.up + (size_t)i * f->hp->n_ff);
}

static bool is_watched(const struct ntx_row *r) { return r->add || r->capture; }

bool ntx__watches_groups(const struct ntx_forward *f)
{
    for (uint32_t i = 0; i < f->n_live; i++)
        if (is_watched(&f->b->rows[f->m.live[i]]))
            return true;
    return false;
}

void ntx__watch_groups(struct ntx_forward *f)
{
    if (!ntx__watches_groups(f))
        return;
    ntx__each(f, energies_of_row, f->n_live);
    for (uint32_t i = 0; i < f->n_live; i++) {
        const struct ntx_row *r = &f->b->rows[f->m.live[i]];
        if (r->add)
            ntx_ffn_set_add(r->add, f->layer, f->m.up + (size_t)i * f->hp->n_ff);
    }
}
