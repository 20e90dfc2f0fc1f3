/* SPDX-License-Identifier: Apache-2.0 */
/* moe.c: the FFN of a layer with experts, by the operations of any back end. The CPU chooses, from the router's logits;
 * or a back end that has all experts, and then nothing comes to the host.
 *
 *   x -> router (+ bias) -> softmax, sigmoid or root of softplus -> the n_expert_used largest, or those of the row's
 *     token (of equal ones the first) -> weights
 *   y = sigmoid(shared gate . x) * shared(x) where there is a shared expert, else 0; where it has no gate, shared(x)
 *   y += weight * expert(x)   for the row's experts IN ORDER OF THEIR NUMBER
 *   or expert(weight * x), where the layer says so
 *   expert(x) = down(act(gate(x) (+ bias), up(x) (+ bias))) (+ bias) gates and ups within the layer's limit, where it
 *     has one
 *
 * This order of addition is the model's accumulation order: it depends on nothing but the row's own choice, so batch,
 * threads and where experts lay change no bit. Scores are the softmax over all experts, or the sigmoid of each, or the
 * root of its softplus; where the layer has a bias for the choice, those are chosen whose score with it is the largest;
 * where experts are in groups, out of those groups whose two largest have the largest sum, or whose largest one is the
 * largest, as the router says. Weights are the scores of those chosen (without it), divided by their sum where the
 * layer says so (a sum below the least normal half is taken as that), times its scale, and the expert's.
 *
 * Choices of all rows are sorted by expert: an expert is asked for once and multiplies all rows that chose it together.
 * Those whose bytes are there already go first while others are being read, and the shared expert before all. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"
#include "model/numbers.h"

#define TAKEN (-1.0f) /* in place of a score, which is never negative */

static const struct ntx_layer_weights *layer(const struct ntx_forward *f) { return &f->c.chunks->layers[f->layer]; }

/* ---- which experts */

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

/* A row that is not finite gives weights that are not: they must not become choices out of range. */
void ntx__moe_scores(const struct ntx_forward *f, const struct ntx_router *r, float *p)
{
    uint32_t n = f->hp->n_expert;
    if (f->vec[NTX_T_router_bias])
        f->c.ops->add(p, f->vec[NTX_T_router_bias], n);
    (r->score == NTX_SCORE_SIGMOID ? sigmoid : r->score == NTX_SCORE_SQRT_SOFTPLUS ? sqrt_softplus : softmax)(f, p, n);
}

/* The best that was not taken yet, with `more` added to all. Nothing is greater than a NaN: the
 * first free one is taken. */
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
static void insert(uint32_t *id, float *weight, uint32_t n, uint32_t e, float w)
{
    while (n && id[n - 1] > e) {
        id[n] = id[n - 1];
        weight[n] = weight[n - 1];
        n--;
    }
    id[n] = e;
    weight[n] = w;
}

/* A group is worth its two largest scores together, or its largest one; a NaN is none of them. */
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
            float s = p[g * each] == TAKEN ? INFINITY
                                           : group_score(r, p + g * each, more ? more + g * each : NULL, each);
            if (s <= score) {
                score = s;
                least = g;
            }
        }
        for (uint32_t e = least * each; e < (least + 1) * each; e++)
            p[e] = TAKEN;
    }
}

static float take_largest(struct ntx_forward *f, const struct ntx_router *r, float *p, uint32_t *id, float *weight)
{
    const uint32_t n = f->hp->n_expert;
    float sum = 0;
    ntx__moe_leave_groups(r, p, f->vec[NTX_T_router_select], n);
    for (uint32_t k = 0; k < f->hp->n_expert_used; k++) {
        uint32_t e = take_best(p, f->vec[NTX_T_router_select], n);
        sum += p[e];
        insert(id, weight, k, e, p[e]);
        p[e] = TAKEN;
    }
    return sum;
}

/* The experts of the row's token, in the table; NULL: the router chooses. */
static const int32_t *numbers_of(const struct ntx_forward *f, uint32_t i)
{
    const float *all = f->vec[NTX_T_token_experts];
    return all ? (const int32_t *)(const void *)all + (size_t)f->b->rows[f->m.live[i]].token * f->hp->n_expert_used
               : NULL;
}

/* id[] has them already, in the table's order, as check_numbers() copied them. */
static float take_numbered(struct ntx_forward *f, const float *p, uint32_t *id, float *weight)
{
    float sum = 0;
    for (uint32_t k = 0; k < f->hp->n_expert_used; k++) {
        const uint32_t e = id[k];
        sum += p[e];
        insert(id, weight, k, e, p[e]);
    }
    return sum;
}

/* Somebody keeps experts by what rows choose, and nearly choose. */
static bool tells_scores(const struct ntx_forward *f)
{
    return f->c.weights->ops->chosen && !ntx__moe_held(f, f->layer) && !f->vec[NTX_T_token_experts];
}

/* x [n]: as so many standard deviations above their mean; where there is no such thing, 0. */
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

/* p: the row's logits, or, of a router whose choice goes by more than these, its scores. */
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
    const bool tells = tells_scores(f), by_logits = r->score == NTX_SCORE_SOFTMAX && !f->vec[NTX_T_router_select];
    if (tells && by_logits)
        keep_scores(f, i, p, f->vec[NTX_T_router_bias]);
    ntx__moe_scores(f, r, p);
    if (tells && !by_logits)
        keep_scores(f, i, p, f->vec[NTX_T_router_select]);
    sum = f->vec[NTX_T_token_experts] ? take_numbered(f, p, id, weight) : take_largest(f, r, p, id, weight);
    float by = r->norm ? 1 / NTX_MAX(sum, NTX_LEAST_WEIGHTS) : 1;
    for (uint32_t k = 0; k < hp->n_expert_used; k++)
        weight[k] = weight[k] * by * r->scale * (f->vec[NTX_T_expert_scale] ? f->vec[NTX_T_expert_scale][id[k]] : 1);
}

/* Numbers the choices by expert; returns how many experts there are. */
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
    for (uint32_t e = f->hp->n_expert; e > 0; e--) /* each has moved to the next one's beginning */
        m->first[e] = m->first[e - 1];
    m->first[0] = 0;
    return wanted;
}

/* ---- the expert that all rows go through */

static uint32_t forms_of(const struct ntx_weight *w) { return ntx__forms(&w, 1); }

static bool has_shared(const struct ntx_forward *f) { return layer(f)->down_shared.tensor != NTX_NO_TENSOR; }
static bool weighs_shared(const struct ntx_forward *f) { return layer(f)->shared_gate.tensor != NTX_NO_TENSOR; }

/* The gate is a vector in the file; here it is a matrix of one row. What it says is done with the first wave's sum. */
static int shared(struct ntx_forward *f)
{
    const struct ntx_layer_weights *w = layer(f);
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
                                 .forms = forms_of(out.w),
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

/* ---- a wave of experts: choices [first, first + n) by number; buffers begin with the first. Every row is exact,
 * whoever shares its pass: a choice must not depend on rounding. */

static uint32_t rows_of(const struct ntx__moe_mem *m, uint32_t expert)
{
    return m->first[expert + 1] - m->first[expert];
}

/* Experts wanted[at .. at + n), those that are there first; of the others those first that more rows share, as they are
 * read. */
static void order(struct ntx_forward *f, uint32_t at, uint32_t n)
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
        for (; to > here && rows_of(m, m->order[to - 1]) < rows_of(m, m->wanted[i]); to--)
            m->order[to] = m->order[to - 1];
        m->order[to] = m->wanted[i];
        k++;
    }
}

/* One product per expert m.order[from .. from + n) and part, for the choices that fell on it. */
static unsigned list_products(struct ntx_forward *f, uint32_t from, uint32_t n, const enum ntx_expert_part *parts,
                              unsigned n_parts)
{
    struct ntx__moe_mem *m = &f->m.moe;
    unsigned k = 0;
    for (uint32_t i = from; i < from + n; i++)
        for (unsigned part = 0; part < n_parts; part++, k++) {
            uint32_t e = m->order[i];
            m->weights[k] = ntx_expert_weight(layer(f), e, parts[part]);
            m->products[k] = (struct ntx__product){.w = &m->weights[k],
                                                   .to = (uint8_t)(NTX__BUF_ROUTED_GATE + parts[part]),
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

/* Of some experts of a wave, whose choices lie apart. */
static int glu_in_turn(struct ntx_forward *f, const struct ntx__glu *all, uint32_t from, uint32_t n)
{
    const struct ntx__moe_mem *m = &f->m.moe;
    int rc = 0;
    for (uint32_t i = from; i < from + n && !rc; i++) {
        struct ntx__glu g = *all;
        g.row0 = m->first[m->order[i]] - f->moe.first;
        g.n_rows = rows_of(m, m->order[i]);
        rc = f->back->glu(f, &g);
    }
    return rc;
}

/* Experts m.order[from .. from + n), of a wave of so many or more. */
static int run_experts(struct ntx_forward *f, uint32_t from, uint32_t n, bool all)
{
    static const enum ntx_expert_part in[] = {NTX_EXPERT_GATE, NTX_EXPERT_UP}, out[] = {NTX_EXPERT_DOWN};
    const struct ntx__glu glu = {.gate = NTX__BUF_ROUTED_GATE,
                                 .up = NTX__BUF_ROUTED_UP,
                                 .set = NTX__OF_ROUTED,
                                 .of_choices = true,
                                 .step = ntx__steps_of(f, f->run),
                                 .n = f->hp->n_ff_exp,
                                 .n_rows = f->moe.n,
                                 .forms = forms_of(&layer(f)->expert[NTX_EXPERT_DOWN]),
                                 .passes = true};
    const struct ntx__input x = {.buf = NTX__BUF_ROUTED_X, .set = NTX__OF_ROUTED, .n_rows = f->moe.n, .glu = &glu};
    const struct ntx__input hidden = {
        .buf = NTX__BUF_ROUTED_GATE, .set = NTX__OF_ROUTED, .n_rows = f->moe.n, .summed = true};
    int rc = multiply_parts(f, from, n, in, 2, &x);
    if (rc || (rc = all ? f->back->glu(f, &glu) : glu_in_turn(f, &glu, from, n)))
        return rc;
    return multiply_parts(f, from, n, out, 1, &hidden);
}

/* The drive has not read all that this layer waits for. */
static bool reads_on(const struct ntx_forward *f, uint32_t n)
{
    const struct ntx_weight down = ntx_expert_weight(layer(f), f->m.moe.order[n - 1], NTX_EXPERT_DOWN);
    return !f->c.weights->ops->there(f->c.weights, down.chunk0);
}

/* Those that are there, and then, while the drive reads the others, what the next layer will want, by so much more. */
static int run_in_turns(struct ntx_forward *f, uint32_t n)
{
    int rc = f->moe.n_here ? run_experts(f, 0, f->moe.n_here, false) : 0;
    f->moe.rests = !reads_on(f, n);
    f->moe.some = true;
    if (!rc)
        rc = ntx__moe_predict(f);
    f->moe.some = false;
    if (rc || (rc = f->back->gather(f))) /* anew: it was guessed in their place */
        return rc;
    return run_experts(f, f->moe.n_here, n - f->moe.n_here, false);
}

/* Experts m.order[0 .. n), choices [f->moe.first, + f->moe.n). */
static int run_wave(struct ntx_forward *f, uint32_t n, bool in_turns)
{
    int rc = f->back->gather(f);
    if (rc || (rc = in_turns ? run_in_turns(f, n) : run_experts(f, 0, n, true)) || (rc = f->back->combine(f)))
        return rc;
    return ntx__settle_chunks(f); /* those that were copied may be replaced after this */
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

/* They are asked of nobody: the back end has them, or another machine. */
bool ntx__moe_held(const struct ntx_forward *f, uint32_t layer)
{
    const struct ntx_weight *w = &f->c.chunks->layers[layer].expert[NTX_EXPERT_GATE];
    return !w->n_chunks || ntx__has(f, w->chunk0);
}

/* Of all rows, in the first one's place. */
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

/* How many rows chose each of these: what stays in memory follows from it. */
static void say_chosen(struct ntx_forward *f)
{
    const struct ntx__moe_mem *m = &f->m.moe;
    struct ntx_weights *w = f->c.weights;
    if (!w->ops->chosen || ntx__moe_held(f, f->layer))
        return;
    for (uint32_t i = 0; i < f->moe.n_wanted; i++)
        m->order[i] = rows_of(m, m->wanted[i]); /* not in use yet */
    w->ops->chosen(w, f->layer, m->wanted, m->order, f->moe.n_wanted, f->n_live,
                   layer(f)->token_experts.tensor == NTX_NO_TENSOR ? mean_scores(f) : NULL);
}

/* Asks for experts wanted[taken .. n); returns how many are taken now. */
static int want(struct ntx_forward *f, uint32_t taken, uint32_t n, bool must)
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

/* Experts wanted[at .. at + n) together. */
static int step_wave(struct ntx_forward *f, uint32_t at, uint32_t n, bool in_turns)
{
    struct ntx__moe_mem *m = &f->m.moe;
    f->moe.first = m->first[m->wanted[at]];
    f->moe.n = m->first[m->wanted[at + n - 1] + 1] - f->moe.first;
    order(f, at, n);
    f->moe.weigh = !at && weighs_shared(f);
    f->moe.last = at + n == f->moe.n_wanted;
    int rc = run_wave(f, n, in_turns);
    if (!rc && f->c.weights->ops->done && !ntx__moe_held(f, f->layer))
        f->c.weights->ops->done(f->c.weights, f->layer, m->wanted + at, n);
    return rc;
}

/* The table was checked at load (model/numbers.h), but it lies in memory that others write to: each row's
 * experts are copied and then checked. One that is not there, or that a row takes twice, would be written
 * behind the end of a buffer. */
static int check_numbers(struct ntx_forward *f)
{
    const uint32_t used = f->hp->n_expert_used;
    for (uint32_t i = 0; f->vec[NTX_T_token_experts] && i < f->n_live; i++) {
        uint32_t *id = f->m.moe.id + (size_t)i * used;
        memcpy(id, numbers_of(f, i), used * sizeof *id);
        int rc = ntx_numbers_check(f->c.model, f->layer, f->b->rows[f->m.live[i]].token, id, &f->c.weights->error);
        if (rc)
            return rc;
    }
    return 0;
}

static const enum ntx_tensor with_router[] = {NTX_T_router_bias, NTX_T_router_select, NTX_T_expert_scale,
                                              NTX_T_token_experts};
#define N_WITH_ROUTER (sizeof with_router / sizeof *with_router)

/* Nobody on the host asks who was chosen: not who reads what the next layer with experts will want, nor who looks on.
 * */
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
    const struct ntx__product logits = {.w = &layer(f)->router, .to = NTX__BUF_PROBS};
    int rc = ntx__multiply(f, &logits, 1, NTX_BUF_X);
    (void)r;
    f->moe.by_back = routed_by_back(f);
    if (rc || f->moe.by_back)
        return rc ? rc : f->back->route(f);
    rc = ntx__fetch(f, NTX__BUF_PROBS, 0, f->n_live);
    for (size_t i = 0; i < N_WITH_ROUTER && !rc; i++)
        rc = ntx__take(f, &layer(f)->of[with_router[i]], &f->vec[with_router[i]]);
    if (rc || (rc = check_numbers(f)))
        return rc;
    ntx__each(f, choose_row, f->n_live);
    for (size_t i = 0; i < N_WITH_ROUTER; i++)
        ntx__give(f, &layer(f)->of[with_router[i]]);
    f->moe.n_wanted = sort_choices(f);
    if (f->c.trace_experts)
        trace_wanted(f, f->moe.n_wanted);
    return f->back->chosen ? f->back->chosen(f) : 0;
}

/* Few rows, of whose experts some are being read: then what is there is made use of before it is guessed what the next
 * layer wants. */
static bool guesses_later(const struct ntx_forward *f)
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
    say_chosen(f);
    const bool in_turn = wave_size(f, 0, n) < n; /* then they are read in the order of the waves */
    bool later = false;
    for (uint32_t i = 0; i < n; i++)
        f->m.moe.late[i] = in_turn ? 1 : (uint8_t)NTX_MIN(rows_of(&f->m.moe, f->m.moe.wanted[i]), 255u);
    for (uint32_t at = 0, taken = 0, wave; at < n; at += wave) {
        int more = taken < n ? want(f, taken, n, taken == at) : 0;
        if (more < 0)
            return more;
        taken += (uint32_t)more;
        later = !in_turn && !at && taken == n && guesses_later(f);
        if (more && taken == n && (!later || f->moe.rests) &&
            (rc = ntx__moe_predict(f))) /* behind the last reads of this layer */
            return rc;
        if (!at && (rc = shared(f)))
            return rc;
        wave = wave_size(f, at, taken);
        if ((rc = step_wave(f, at, wave, later)))
            return rc;
    }
    return 0;
}

/* So many choices as buffers hold, whosever they are. */
static int waves_of_back(struct ntx_forward *f)
{
    const uint32_t n = f->n_live * f->hp->n_expert_used, room = choices_of_wave(f);
    int rc = shared(f);
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
    const struct ntx_weight *bias = layer(f)->expert_bias;
    int rc = 0;
    for (int part = 0; part < NTX_EXPERT_PARTS && !rc; part++)
        rc = ntx__take(f, &bias[part], &f->vec[NTX_T_expert_gate_bias + part]);
    if (rc || (rc = f->moe.by_back ? waves_of_back(f) : waves_in_turn(f)))
        return rc;
    for (int part = 0; part < NTX_EXPERT_PARTS; part++)
        ntx__give(f, &bias[part]);
    return 0;
}
