/* SPDX-License-Identifier: Apache-2.0 */
/* moe.c: the FFN of a layer with experts, with the operations of any back end. The CPU routes, from the router's
 * logits; or a back end that has all experts, and then nothing comes to the host.
 *
 *   x -> router (+ bias) -> softmax, sigmoid or root of softplus -> the n_expert_used largest (of equal ones the
 *     first), or those of the row's token -> weights
 *   y = sigmoid(shared gate . x) * shared(x) with a shared expert, else 0; without its gate, shared(x)
 *   y += weight * expert(x)   for the row's experts IN ORDER OF THEIR NUMBER
 *   or expert(weight * x), where the layer says so
 *   expert(x) = down(act(gate(x) (+ bias), up(x) (+ bias))) (+ bias)
 *     with gates and ups limited, where the layer has a limit
 *
 * Without gates, gate(x) is up(x): the halves of up go as gate and up through the cache, and land side by side.
 *
 * This order is the model's accumulation order: it depends only on the row's own routing, so batch, threads and the
 * place of experts change no bit. Scores are the softmax over all experts, or the sigmoid of each, or the root of its
 * softplus. With a selection bias, the experts with the largest score plus bias are selected. With expert groups, they
 * come from the groups with the largest sum of their two largest scores, or with the largest score, as the router says.
 * Weights are the scores of the selected (without the bias), divided by their sum where the layer says so (a sum below
 * the least normal half counts as that), times its scale, and the expert's.
 *
 * The choices of all rows are sorted by expert: an expert is requested once and multiplies all of its rows together.
 * Experts in memory go first while others are read, and the shared expert before all. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"
#include "model/numbers.h"

#define TAKEN (-1.0f) /* in place of a score, which is never negative */

/* ---- routing */

static void sigmoid(const struct ntx_forward *f, float *p, uint32_t n)
{
    for (uint32_t e = 0; e < n; e++)
        p[e] = -p[e];
    f->c.ops->exp_of(p, 0, n);
    for (uint32_t e = 0; e < n; e++)
        p[e] = 1 / (1 + p[e]);
}

static void softmax(const struct ntx_forward *f, float *p, uint32_t n)
{
    float most = p[0], sum = 0;
    for (uint32_t e = 1; e < n; e++)
        most = NTX_MAX(most, p[e]);
    f->c.ops->exp_of(p, most, n);
    for (uint32_t e = 0; e < n; e++)
        sum += p[e];
    for (uint32_t e = 0; e < n; e++)
        p[e] /= sum;
}

static void sqrt_softplus(const struct ntx_forward *f, float *p, uint32_t n)
{
    (void)f;
    for (uint32_t e = 0; e < n; e++)
        p[e] = (float)sqrt(p[e] > 20 ? (double)p[e] : log1p(exp((double)p[e])));
}

/* A row that is not finite gives such weights, but its choices must stay in range. */
void ntx__moe_scores(const struct ntx_forward *f, const struct ntx_router *r, float *p)
{
    uint32_t n = f->hp->n_expert;
    if (f->vec[NTX_T_router_bias])
        f->c.ops->add(p, f->vec[NTX_T_router_bias], n);
    switch (r->score) {
    case NTX_SCORE_SIGMOID: sigmoid(f, p, n); break;
    case NTX_SCORE_SQRT_SOFTPLUS: sqrt_softplus(f, p, n); break;
    default: softmax(f, p, n);
    }
}

/* The best that is not taken yet, with `more` added to all. Nothing is greater than a NaN: the first free one is then
 * taken. */
static uint32_t take_best(const float *p, const float *more, uint32_t n)
{
    uint32_t best = 0;
    while (p[best] < 0)
        best++;
    for (uint32_t e = best + 1; e < n; e++)
        if (p[e] >= 0 && (more ? p[e] + more[e] > p[best] + more[best] : p[e] > p[best]))
            best = e;
    return best;
}

/* Keeps id ascending. */
static void insert_sorted(uint32_t *id, float *weight, uint32_t n, uint32_t e, float w)
{
    while (n && id[n - 1] > e) {
        id[n] = id[n - 1];
        weight[n] = weight[n - 1];
        n--;
    }
    id[n] = e;
    weight[n] = w;
}

/* A group's score: the sum of its two largest scores, or its largest one; NaNs do not count. */
static float group_score(const struct ntx_router *r, const float *p, const float *more, uint32_t n)
{
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t e = 0; e < n; e++) {
        float v = more ? p[e] + more[e] : p[e];
        if (v > first) {
            second = first;
            first = v;
        } else if (v > second) {
            second = v;
        }
    }
    return r->expert_groups_by_best ? first : first + second;
}

void ntx__moe_leave_groups(const struct ntx_router *r, float *p, const float *more, uint32_t n)
{
    const uint32_t each = r->n_expert_groups ? n / r->n_expert_groups : n;
    for (uint32_t out = r->expert_groups_used; out < r->n_expert_groups; out++) {
        uint32_t least = 0;
        float score = INFINITY;
        for (uint32_t g = 0; g < r->n_expert_groups; g++) { /* of equal ones the last goes first */
            const float *bias = more ? more + g * each : NULL;
            float s = p[g * each] == TAKEN ? INFINITY : group_score(r, p + g * each, bias, each);
            if (s <= score) {
                score = s;
                least = g;
            }
        }
        for (uint32_t e = least * each; e < (least + 1) * each; e++)
            p[e] = TAKEN;
    }
}

static bool is_image(const struct ntx_forward *f, uint32_t i) { return f->b->rows[f->m.live[i]].values; }

/* The bias of the row's choice, or NULL. */
static const float *choice_bias(const struct ntx_forward *f, uint32_t i)
{
    return is_image(f, i) && f->vec[NTX_T_router_sees] ? f->vec[NTX_T_router_sees] : f->vec[NTX_T_router_select];
}

static float take_largest(struct ntx_forward *f, const struct ntx_router *r, const float *more, float *p, uint32_t *id,
                          float *weight)
{
    const uint32_t n = f->hp->n_expert;
    float sum = 0;
    ntx__moe_leave_groups(r, p, more, n);
    for (uint32_t k = 0; k < f->hp->n_expert_used; k++) {
        uint32_t e = take_best(p, more, n);
        sum += p[e];
        insert_sorted(id, weight, k, e, p[e]);
        p[e] = TAKEN;
    }
    return sum;
}

/* The experts of the row's token, from the table; NULL: the router selects. */
static const int32_t *numbers_of(const struct ntx_forward *f, uint32_t i)
{
    const float *all = is_image(f, i) ? NULL : f->vec[NTX_T_token_experts];
    return all ? (const int32_t *)(const void *)all + (size_t)f->b->rows[f->m.live[i]].token * f->hp->n_expert_used
               : NULL;
}

/* id[] has them already, in the table's order, copied by check_numbers(). */
static float take_numbered(struct ntx_forward *f, const float *p, uint32_t *id, float *weight)
{
    float sum = 0;
    for (uint32_t k = 0; k < f->hp->n_expert_used; k++) {
        const uint32_t e = id[k];
        sum += p[e];
        insert_sorted(id, weight, k, e, p[e]);
    }
    return sum;
}

/* The cache wants the routing and the scores. */
static bool wants_scores(const struct ntx_forward *f)
{
    return f->c.weights->ops->routed && !ntx__moe_held(f, f->layer) && !f->vec[NTX_T_token_experts];
}

/* Normalises x [n] to mean 0 and standard deviation 1; 0 where that is impossible. */
static void standardize(float *x, uint32_t n)
{
    float sum = 0, squares = 0;
    for (uint32_t e = 0; e < n; e++)
        sum += x[e];
    const float mean = sum / (float)n;
    for (uint32_t e = 0; e < n; e++)
        squares += (x[e] - mean) * (x[e] - mean);
    const float by = sqrtf((float)n / squares);
    const bool some = isfinite(by) && isfinite(mean);
    for (uint32_t e = 0; e < n; e++)
        x[e] = some ? (x[e] - mean) * by : 0;
}

/* p: the row's logits; or its scores, for a router that selects by more than these. */
static void keep_scores(const struct ntx_forward *f, uint32_t i, const float *p, const float *more)
{
    const uint32_t n = f->hp->n_expert;
    float *x = f->m.moe.scores + (size_t)i * n;
    memcpy(x, p, n * sizeof *x);
    if (more)
        f->c.ops->add(x, more, n);
    standardize(x, n);
}

static void choose_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_hparams *hp = f->hp;
    const struct ntx_router *r = &ntx__steps_of(f, f->run)->route;
    float *p = f->m.moe.probs + (size_t)i * hp->n_expert, *weight = f->m.moe.weight + (size_t)i * hp->n_expert_used,
          sum;
    uint32_t *id = f->m.moe.id + (size_t)i * hp->n_expert_used;
    const bool tells = wants_scores(f), by_logits = r->score == NTX_SCORE_SOFTMAX && !f->vec[NTX_T_router_select];
    if (tells && by_logits)
        keep_scores(f, i, p, f->vec[NTX_T_router_bias]);
    ntx__moe_scores(f, r, p);
    if (tells && !by_logits)
        keep_scores(f, i, p, choice_bias(f, i));
    sum = numbers_of(f, i) ? take_numbered(f, p, id, weight) : take_largest(f, r, choice_bias(f, i), p, id, weight);
    float by = r->norm ? 1 / NTX_MAX(sum, NTX_LEAST_WEIGHTS) : 1;
    for (uint32_t k = 0; k < hp->n_expert_used; k++)
        weight[k] = weight[k] * by * r->scale * (f->vec[NTX_T_expert_scale] ? f->vec[NTX_T_expert_scale][id[k]] : 1);
}

/* Numbers the choices by expert; returns the number of experts. */
static uint32_t sort_choices(struct ntx_forward *f)
{
    struct ntx__moe_mem *m = &f->m.moe;
    uint32_t used = f->hp->n_expert_used, n = f->n_live * used, wanted = 0, at = 0;
    memset(m->first, 0, (f->hp->n_expert + 1) * sizeof *m->first);
    for (uint32_t c = 0; c < n; c++)
        m->first[m->id[c]]++;
    for (uint32_t e = 0; e <= f->hp->n_expert; e++) {
        uint32_t count = m->first[e];
        if (count)
            m->wanted[wanted++] = e;
        m->first[e] = at;
        at += count;
    }
    for (uint32_t c = 0; c < n; c++) {
        m->place[c] = m->first[m->id[c]]++;
        m->row[m->place[c]] = c / used;
        m->expert[m->place[c]] = m->id[c];
    }
    for (uint32_t e = f->hp->n_expert; e > 0; e--) /* each has moved to the beginning of the next one */
        m->first[e] = m->first[e - 1];
    m->first[0] = 0;
    return wanted;
}

/* ---- the shared expert */

static uint32_t weight_forms(const struct ntx_weight *w) { return ntx__forms(&w, 1); }

static bool has_shared(const struct ntx_forward *f)
{
    return ntx__layer_weights(f)->down_shared.tensor != NTX_NO_TENSOR;
}
static bool weighs_shared(const struct ntx_forward *f)
{
    return ntx__layer_weights(f)->shared_gate.tensor != NTX_NO_TENSOR;
}

/* The gate is a vector in the file; here it is a matrix of one row. It is applied with the first wave's sum. */
static int run_shared(struct ntx_forward *f)
{
    const struct ntx_layer_weights *w = ntx__layer_weights(f);
    const struct ntx__product gate = {.w = &w->shared_gate, .to = NTX__BUF_SHARED},
                              out = {.w = &w->down_shared, .to = NTX_BUF_Y};
    const struct ntx__product in[] = {{.w = &w->gate_shared, .to = NTX_BUF_GATE},
                                      {.w = &w->up_shared, .to = NTX_BUF_UP}};
    const struct ntx__glu glu = {.gate = NTX_BUF_GATE,
                                 .up = NTX_BUF_UP,
                                 .set = NTX__OF_ROUTED,
                                 .step = ntx__steps_of(f, f->run),
                                 .of_shared = true,
                                 .n = f->hp->n_ff_shexp,
                                 .n_rows = f->n_live,
                                 .forms = weight_forms(out.w),
                                 .passes = true};
    const struct ntx__input x = {.buf = NTX_BUF_X, .set = NTX__OF_LAYER, .n_rows = f->n_live, .glu = &glu};
    const struct ntx__input hidden = {.buf = NTX_BUF_GATE, .set = NTX__OF_ROUTED, .n_rows = f->n_live, .summed = true};
    int rc;
    if (!has_shared(f))
        return f->back->clear(f, NTX_BUF_Y);
    if ((weighs_shared(f) && (rc = ntx__multiply(f, &gate, 1, NTX_BUF_X))) || (rc = f->back->multiply(f, in, 2, &x)) ||
        (rc = f->back->glu(f, &glu)))
        return rc;
    return f->back->multiply(f, &out, 1, &hidden);
}

/* ---- a wave of experts: choices [first, first + n) by number; buffers begin with the first. Every row is exact, also
 * beside others: routing must not depend on rounding. */

static uint32_t rows_of_expert(const struct ntx__moe_mem *m, uint32_t expert)
{
    return m->first[expert + 1] - m->first[expert];
}

/* Orders experts wanted[at .. at + n): those in memory first, then those with more rows, which are read first. */
static void order_wave(struct ntx_forward *f, uint32_t at, uint32_t n)
{
    struct ntx__moe_mem *m = &f->m.moe;
    uint32_t k = 0;
    for (uint32_t i = at; i < at + n; i++)
        if (!m->late[i])
            m->order[k++] = m->wanted[i];
    f->moe.n_here = k;
    for (uint32_t i = at, here = k; i < at + n; i++) {
        uint32_t to = k;
        if (!m->late[i])
            continue;
        for (; to > here && rows_of_expert(m, m->order[to - 1]) < rows_of_expert(m, m->wanted[i]); to--)
            m->order[to] = m->order[to - 1];
        m->order[to] = m->wanted[i];
        k++;
    }
}

static bool is_ungated(const struct ntx_forward *f) { return ntx__steps_of(f, f->run)->experts.ungated; }

/* One product per expert m.order[from .. from + n) and part, for its choices. */
static unsigned list_products(struct ntx_forward *f, uint32_t from, uint32_t n, const enum ntx_expert_part *parts,
                              unsigned n_parts)
{
    struct ntx__moe_mem *m = &f->m.moe;
    const bool ungated = is_ungated(f);
    unsigned k = 0;
    for (uint32_t i = from; i < from + n; i++)
        for (unsigned part = 0; part < n_parts; part++, k++) {
            const uint32_t e = m->order[i];
            const bool half = ungated && parts[part] == NTX_EXPERT_UP;
            m->weights[k] = ntx_expert_weight(ntx__layer_weights(f), e, parts[part]);
            m->products[k] = (struct ntx__product){.w = &m->weights[k],
                                                   .to = (uint8_t)(NTX__BUF_ROUTED_GATE + (half ? 0 : parts[part])),
                                                   .at = half ? f->hp->n_ff_exp / 2 : 0,
                                                   .row0 = m->first[e] - f->moe.first,
                                                   .n_rows = m->first[e + 1] - m->first[e]};
        }
    return k;
}

static int multiply_parts(struct ntx_forward *f, uint32_t from, uint32_t n, const enum ntx_expert_part *parts,
                          unsigned n_parts, const struct ntx__input *in)
{
    if (f->moe.by_back)
        return f->back->multiply_routed(f, parts, n_parts);
    return f->back->multiply(f, f->m.moe.products, list_products(f, from, n, parts, n_parts), in);
}

/* For some experts of a wave, whose choices are not contiguous. */
static int glu_in_turn(struct ntx_forward *f, const struct ntx__glu *all, uint32_t from, uint32_t n)
{
    const struct ntx__moe_mem *m = &f->m.moe;
    int rc = 0;
    for (uint32_t i = from; i < from + n && !rc; i++) {
        struct ntx__glu g = *all;
        g.row0 = m->first[m->order[i]] - f->moe.first;
        g.n_rows = rows_of_expert(m, m->order[i]);
        rc = f->back->glu(f, &g);
    }
    return rc;
}

/* Runs experts m.order[from .. from + n); all: the whole wave. */
static int run_experts(struct ntx_forward *f, uint32_t from, uint32_t n, bool all)
{
    static const enum ntx_expert_part in[] = {NTX_EXPERT_GATE, NTX_EXPERT_UP}, out[] = {NTX_EXPERT_DOWN};
    const bool ungated = is_ungated(f);
    const struct ntx__glu glu = {.gate = NTX__BUF_ROUTED_GATE,
                                 .up = ungated ? NTX__BUF_ROUTED_GATE : NTX__BUF_ROUTED_UP,
                                 .set = NTX__OF_ROUTED,
                                 .of_choices = true,
                                 .step = ntx__steps_of(f, f->run),
                                 .n = f->hp->n_ff_exp,
                                 .n_rows = f->moe.n,
                                 .forms = weight_forms(&ntx__layer_weights(f)->expert[NTX_EXPERT_DOWN]),
                                 .passes = true};
    const struct ntx__input x = {
        .buf = NTX__BUF_ROUTED_X, .set = NTX__OF_ROUTED, .n_rows = f->moe.n, .glu = ungated ? NULL : &glu};
    const struct ntx__input hidden = {
        .buf = NTX__BUF_ROUTED_GATE, .set = NTX__OF_ROUTED, .n_rows = f->moe.n, .summed = true};
    int rc = multiply_parts(f, from, n, in, 2, &x);
    if (rc || (rc = all ? f->back->glu(f, &glu) : glu_in_turn(f, &glu, from, n)))
        return rc;
    return multiply_parts(f, from, n, out, 1, &hidden);
}

/* The drive still reads experts for this layer. */
static bool is_reading(const struct ntx_forward *f, uint32_t n)
{
    const struct ntx_weight down = ntx_expert_weight(ntx__layer_weights(f), f->m.moe.order[n - 1], NTX_EXPERT_DOWN);
    return !f->c.weights->ops->there(f->c.weights, down.chunk0);
}

/* Experts in memory first. While the drive reads the others, predicts the next layer's from what is known of Y. */
static int run_in_turns(struct ntx_forward *f, uint32_t n)
{
    int rc = f->moe.n_here ? run_experts(f, 0, f->moe.n_here, false) : 0;
    f->moe.rests = !is_reading(f, n);
    f->moe.some = true;
    if (!rc)
        rc = ntx__moe_predict(f);
    f->moe.some = false;
    if (rc || (rc = f->back->gather(f))) /* again: the prediction used their buffers */
        return rc;
    return run_experts(f, f->moe.n_here, n - f->moe.n_here, false);
}

/* Runs experts m.order[0 .. n), choices [f->moe.first, + f->moe.n). */
static int run_wave(struct ntx_forward *f, uint32_t n, bool in_turns)
{
    int rc = f->back->gather(f);
    if (rc || (rc = in_turns ? run_in_turns(f, n) : run_experts(f, 0, n, true)) || (rc = f->back->combine(f)))
        return rc;
    return ntx__settle_chunks(f); /* copied experts may be evicted afterwards */
}

/* As many as the buffers hold. */
static uint32_t choices_of_wave(const struct ntx_forward *f) { return NTX_MAX(f->c.max_rows, f->hp->n_expert_used); }

/* How many of wanted[at .. end) are computed together. */
static uint32_t wave_size(const struct ntx_forward *f, uint32_t at, uint32_t end)
{
    const struct ntx__moe_mem *m = &f->m.moe;
    uint32_t n = 1, room = choices_of_wave(f);
    while (at + n < end && m->first[m->wanted[at + n] + 1] - m->first[m->wanted[at]] <= room)
        n++;
    return n;
}

/* They need not be requested: the back end has them, or another machine. */
bool ntx__moe_held(const struct ntx_forward *f, uint32_t layer_weights)
{
    const struct ntx_weight *w = &f->c.chunks->layers[layer_weights].expert[NTX_EXPERT_GATE];
    return !w->n_chunks || ntx__has(f, w->chunk0);
}

/* The mean over all rows, in the first row's place. */
static const float *mean_scores(const struct ntx_forward *f)
{
    const uint32_t n = f->hp->n_expert;
    float *x = f->m.moe.scores;
    for (uint32_t i = 1; i < f->n_live; i++)
        f->c.ops->add(x, x + (size_t)i * n, n);
    for (uint32_t e = 0; e < n && f->n_live > 1; e++)
        x[e] /= (float)f->n_live;
    return x;
}

/* Reports how many rows each expert has: it decides what stays in memory. */
static void report_routing(struct ntx_forward *f)
{
    const struct ntx__moe_mem *m = &f->m.moe;
    struct ntx_weights *w = f->c.weights;
    if (!w->ops->routed || ntx__moe_held(f, f->layer))
        return;
    for (uint32_t i = 0; i < f->moe.n_wanted; i++)
        m->order[i] = rows_of_expert(m, m->wanted[i]); /* not in use yet */
    w->ops->routed(w, f->layer, m->wanted, m->order, f->moe.n_wanted, f->n_live,
                   ntx__layer_weights(f)->token_experts.tensor == NTX_NO_TENSOR ? mean_scores(f) : NULL);
}

/* Requests experts wanted[taken .. n); returns how many are taken now. */
static int want_experts(struct ntx_forward *f, uint32_t taken, uint32_t n, bool must)
{
    struct ntx__moe_mem *m = &f->m.moe;
    struct ntx_weights *w = f->c.weights;
    if (w->ops->want && !ntx__moe_held(f, f->layer))
        return w->ops->want(w, f->layer, m->wanted + taken, n - taken, must, m->late + taken);
    memset(m->late + taken, 0, n - taken);
    return (int)(n - taken);
}

/* 64 experts to a record. */
static void trace_wanted(const struct ntx_forward *f, uint32_t n)
{
    const uint32_t *wanted = f->m.moe.wanted;
    uint64_t now = ntx_now_ns();
    for (uint32_t i = 0, at = 0; at < n; i++) {
        uint64_t bits = 0;
        for (; at < n && wanted[at] / 64 == i; at++)
            bits |= (uint64_t)1 << wanted[at] % 64;
        ntx_traced(f->c.counters, NTX_TRACE_COMPUTED, NTX_TR_EXPERTS, now, now, f->layer | i << 16, f->b->pass, bits);
    }
}

/* Runs experts wanted[at .. at + n) together. */
static int take_and_run_wave(struct ntx_forward *f, uint32_t at, uint32_t n, bool in_turns)
{
    struct ntx__moe_mem *m = &f->m.moe;
    f->moe.first = m->first[m->wanted[at]];
    f->moe.n = m->first[m->wanted[at + n - 1] + 1] - f->moe.first;
    order_wave(f, at, n);
    f->moe.weigh = !at && weighs_shared(f);
    f->moe.last = at + n == f->moe.n_wanted;
    int rc = run_wave(f, n, in_turns);
    if (!rc && f->c.weights->ops->done && !ntx__moe_held(f, f->layer))
        f->c.weights->ops->done(f->c.weights, f->layer, m->wanted + at, n);
    return rc;
}

/* The table was checked at load (model/numbers.h), but its memory may change. So each row's experts are copied, then
 * checked: one that does not exist, or is taken twice, would be written beyond a buffer. */
static int check_numbers(struct ntx_forward *f)
{
    const uint32_t used = f->hp->n_expert_used;
    for (uint32_t i = 0; f->vec[NTX_T_token_experts] && i < f->n_live; i++) {
        if (!numbers_of(f, i))
            continue;
        uint32_t *id = f->m.moe.id + (size_t)i * used;
        memcpy(id, numbers_of(f, i), used * sizeof *id);
        int rc = ntx_numbers_check(f->c.model, f->layer, f->b->rows[f->m.live[i]].token, id, &f->c.weights->error);
        if (rc)
            return rc;
    }
    return 0;
}

static const enum ntx_tensor with_router[] = {NTX_T_router_bias, NTX_T_router_select, NTX_T_router_sees,
                                              NTX_T_expert_scale, NTX_T_token_experts};
#define N_WITH_ROUTER (sizeof with_router / sizeof *with_router)

/* The host does not need the routing: neither a reader of the next layer's experts, nor a watcher. */
static bool routed_by_back(const struct ntx_forward *f)
{
    uint32_t next = f->layer + 1;
    while (next < f->hp->n_layers && f->c.chunks->layers[next].router.tensor == NTX_NO_TENSOR)
        next++;
    return f->back->routes && !f->c.trace_experts && !f->c.sums && !f->watched &&
           (next == f->hp->n_layers || ntx__moe_held(f, next)) && f->back->routes(f);
}

int ntx__run_route(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx__product logits = {.w = &ntx__layer_weights(f)->router, .to = NTX__BUF_PROBS};
    int rc = ntx__multiply(f, &logits, 1, NTX_BUF_X);
    (void)r;
    f->moe.by_back = routed_by_back(f);
    if (rc || f->moe.by_back)
        return rc ? rc : f->back->route(f);
    rc = ntx__fetch(f, NTX__BUF_PROBS, 0, f->n_live);
    for (size_t i = 0; i < N_WITH_ROUTER && !rc; i++)
        rc = ntx__take(f, &ntx__layer_weights(f)->of[with_router[i]], &f->vec[with_router[i]]);
    if (rc || (rc = check_numbers(f)))
        return rc;
    ntx__each(f, choose_row, f->n_live);
    for (size_t i = 0; i < N_WITH_ROUTER; i++)
        ntx__give(f, &ntx__layer_weights(f)->of[with_router[i]]);
    f->moe.n_wanted = sort_choices(f);
    if (f->c.trace_experts)
        trace_wanted(f, f->moe.n_wanted);
    return f->back->routed ? f->back->routed(f) : 0;
}

/* Few rows, and some of their experts are still read: the others are computed first, to improve the prediction for the
 * next layer. */
static bool predicts_late(const struct ntx_forward *f)
{
    const uint32_t n = f->moe.n_wanted;
    bool late = false;
    for (uint32_t i = 0; i < n; i++)
        late |= f->m.moe.late[i];
    return late && f->back->in_turns && (uint64_t)f->n_live * f->hp->n_expert_used < 4 * (uint64_t)f->hp->n_expert &&
           ntx__moe_predicted(f);
}

static int waves_in_turn(struct ntx_forward *f)
{
    uint32_t n = f->moe.n_wanted;
    int rc;
    report_routing(f);
    const bool in_turn = wave_size(f, 0, n) < n; /* several waves: experts are read in their order */
    bool later = false;
    for (uint32_t i = 0; i < n; i++)
        f->m.moe.late[i] = in_turn ? 1 : (uint8_t)NTX_MIN(rows_of_expert(&f->m.moe, f->m.moe.wanted[i]), 255u);
    for (uint32_t at = 0, taken = 0, wave; at < n; at += wave) {
        int more = taken < n ? want_experts(f, taken, n, taken == at) : 0;
        if (more < 0)
            return more;
        taken += (uint32_t)more;
        later = !in_turn && !at && taken == n && predicts_late(f);
        if (more && taken == n && (!later || f->moe.rests) &&
            (rc = ntx__moe_predict(f))) /* after this layer's last reads */
            return rc;
        if (!at && (rc = run_shared(f)))
            return rc;
        wave = wave_size(f, at, taken);
        if ((rc = take_and_run_wave(f, at, wave, later)))
            return rc;
    }
    return 0;
}

/* As many choices as the buffers hold, of any rows. */
static int waves_of_back(struct ntx_forward *f)
{
    const uint32_t n = f->n_live * f->hp->n_expert_used, room = choices_of_wave(f);
    int rc = run_shared(f);
    for (f->moe.first = 0; !rc && f->moe.first < n; f->moe.first += f->moe.n) {
        f->moe.n = NTX_MIN(n - f->moe.first, room);
        f->moe.weigh = !f->moe.first && weighs_shared(f);
        f->moe.last = f->moe.first + f->moe.n == n;
        rc = run_wave(f, 0, false);
    }
    return rc;
}

int ntx__run_experts(struct ntx_forward *f, const struct ntx__run *r)
{
    (void)r;
    const struct ntx_weight *bias = ntx__layer_weights(f)->expert_bias;
    int rc = 0;
    for (int part = 0; part < NTX_EXPERT_PARTS && !rc; part++)
        rc = ntx__take(f, &bias[part], &f->vec[NTX_T_expert_gate_bias + part]);
    if (rc || (rc = f->moe.by_back ? waves_of_back(f) : waves_in_turn(f)))
        return rc;
    for (int part = 0; part < NTX_EXPERT_PARTS; part++)
        ntx__give(f, &bias[part]);
    return 0;
}
