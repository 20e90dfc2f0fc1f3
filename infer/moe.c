/* moe.c: the FFN of a layer with experts.
 *
 *   x -> router (+ bias) -> softmax or sigmoid -> the n_expert_used largest (of equal ones the first) -> weights
 *   y = sigmoid(shared gate . x) * shared(x)                     where there is a shared expert, else 0; where it has no gate, shared(x)
 *   y += weight * expert(x)   for the row's experts IN ORDER OF THEIR NUMBER
 *   expert(x) = down(act(gate(x) (+ bias), up(x) (+ bias))) (+ bias)
 *
 * This order of addition is the model's accumulation order: it depends on nothing but the row's own choice, so batch, threads
 * and where experts lay change no bit. Scores are the softmax over all experts, or the sigmoid of each; where the layer has a bias for the choice,
 * those are chosen whose score with it is the largest. Weights are the scores of those chosen (without it), divided by their
 * sum where the layer says so (a sum below the least normal half is taken as that), times its scale.
 *
 * Choices of all rows are sorted by expert: an expert is asked for once and multiplies all rows that chose it together.
 * Those whose bytes are there already go first while others are being read, and the shared expert before all. */
#include <string.h>

#include "common/util.h"
#include "infer/forward_impl.h"

#define LEAST_SUM 0x1p-14f /* the least normal half */

static const struct ntx_layer_weights *layer(const struct ntx_forward *f)
{
    return &f->c.chunks->layers[f->layer];
}

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

/* A row that is not finite gives weights that are not: they must not become choices out of range. */
void ntx__moe_scores(const struct ntx_forward *f, const struct ntx_router *r, float *p)
{
    uint32_t n = f->hp->n_expert;
    if (f->vec[NTX_T_router_bias])
        f->c.ops->add(p, f->vec[NTX_T_router_bias], n);
    (r->score == NTX_SCORE_SIGMOID ? sigmoid : softmax)(f, p, n);
}

/* The best that was not taken yet, with `more` added to all; taken ones are remembered as -1, which no score is. Nothing is greater than a NaN: the
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

static void choose_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_hparams *hp = f->hp;
    const struct ntx_router *r = &ntx__steps_of(f, f->run)->router;
    float *p = f->m.moe.probs + (size_t)i * hp->n_expert, *weight = f->m.moe.weight + (size_t)i * hp->n_expert_used, sum = 0;
    uint32_t *id = f->m.moe.id + (size_t)i * hp->n_expert_used;
    ntx__moe_scores(f, r, p);
    for (uint32_t k = 0; k < hp->n_expert_used; k++) {
        uint32_t e = take_best(p, f->vec[NTX_T_router_choice], hp->n_expert);
        sum += p[e];
        insert(id, weight, k, e, p[e]);
        p[e] = -1;
    }
    float by = r->norm ? 1 / NTX_MAX(sum, LEAST_SUM) : 1;
    for (uint32_t k = 0; k < hp->n_expert_used; k++)
        weight[k] = weight[k] * by * r->scale;
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

static int route(struct ntx_forward *f)
{
    const struct ntx__product p = {.w = &layer(f)->router, .y = f->m.moe.probs, .ld = f->hp->n_expert};
    return ntx__multiply(f, &p, 1, f->m.x, f->ld_x);
}

/* ---- the expert that all rows go through */

static void shared_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_weight *down = &layer(f)->down_shared;
    float *gate = f->m.gate + i * f->ld_gate;
    f->c.ops->glu[ntx__steps_of(f, f->run)->act](gate, f->m.up + i * f->ld_gate, f->hp->n_ff_shexp, gate);
    ntx__quantize_into(f, f->m.moe.quantized, ntx__forms(&down, 1), gate, f->hp->n_ff_shexp, i);
}

/* y = sigmoid(gate) * y */
static void weigh_shared_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    float *y = f->m.y + (size_t)i * f->hp->n_embd, e = -f->m.moe.shared[i];
    f->c.ops->exp_of(&e, 0, 1);
    float by = 1 / (1 + e);
    for (uint32_t k = 0; k < f->hp->n_embd; k++)
        y[k] *= by;
}

/* The gate is a vector in the file; here it is a matrix of one row. */
static int shared_gate(struct ntx_forward *f)
{
    const struct ntx__product p = {.w = &layer(f)->shared_gate, .y = f->m.moe.shared, .ld = 1};
    return p.w->tensor == NTX_NO_TENSOR ? 0 : ntx__multiply(f, &p, 1, f->m.x, f->ld_x);
}

static int shared(struct ntx_forward *f)
{
    const struct ntx_layer_weights *w = layer(f);
    const struct ntx__product in[] = {
        {.w = &w->gate_shared, .y = f->m.gate, .ld = f->ld_gate},
        {.w = &w->up_shared, .y = f->m.up, .ld = f->ld_gate},
    };
    const struct ntx__product out = {.w = &w->down_shared, .y = f->m.y, .ld = f->hp->n_embd};
    int rc;
    if (w->down_shared.tensor == NTX_NO_TENSOR) {
        memset(f->m.y, 0, (size_t)f->n_live * f->hp->n_embd * sizeof(float));
        return 0;
    }
    if ((rc = shared_gate(f)) || (rc = ntx__multiply(f, in, 2, f->m.x, f->ld_x)))
        return rc;
    ntx__each(f, shared_row, f->n_live);
    const struct ntx__input hidden = {.x = f->m.gate, .ld = f->ld_gate, .quantized = f->m.moe.quantized, .n_rows = f->n_live};
    if ((rc = ntx__multiply_by(f, &out, 1, &hidden)))
        return rc;
    if (w->shared_gate.tensor != NTX_NO_TENSOR)
        ntx__each(f, weigh_shared_row, f->n_live);
    return 0;
}

/* ---- a wave of experts: choices [first, first + n) by number; buffers begin with the first */

static void gather_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx__moe_mem *m = &f->m.moe;
    const struct ntx_weight *const in[] = {&layer(f)->expert[NTX_EXPERT_GATE], &layer(f)->expert[NTX_EXPERT_UP]};
    uint32_t row = m->row[f->moe.first + i], forms = ntx__forms(in, 2), n = f->hp->n_embd;
    if (forms >> NTX_ACT_F32 & 1)
        memcpy(m->x + i * f->ld_x, f->m.x + row * f->ld_x, n * sizeof(float));
    for (int form = NTX_ACT_F32 + 1; form < NTX_N_ACTS; form++) {
        size_t bytes = ntx_act_row_bytes((enum ntx_act)form, n);
        if (forms >> form & 1)
            memcpy((uint8_t *)m->quantized[form] + i * bytes, (const uint8_t *)f->m.quantized[form] + row * bytes, bytes);
    }
}

/* x [n] of choice i of the wave, and its expert's bias. */
static void add_bias(struct ntx_forward *f, uint32_t i, enum ntx_expert_part part, float *x, uint32_t n)
{
    const float *bias = f->vec[NTX_T_expert_gate_bias + part];
    if (bias)
        f->c.ops->add(x, bias + (size_t)f->m.moe.expert[f->moe.first + i] * n, n);
}

static void glu_choice(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_weight *down = &layer(f)->expert[NTX_EXPERT_DOWN];
    float *gate = f->m.moe.gate + i * f->ld_expert, *up = f->m.moe.up + i * f->ld_expert;
    add_bias(f, i, NTX_EXPERT_GATE, gate, f->hp->n_ff_exp);
    add_bias(f, i, NTX_EXPERT_UP, up, f->hp->n_ff_exp);
    f->c.ops->glu[ntx__steps_of(f, f->run)->act](gate, up, f->hp->n_ff_exp, gate);
    ntx__quantize_into(f, f->m.moe.quantized, ntx__forms(&down, 1), gate, f->hp->n_ff_exp, i);
}

/* A row's choices are in order of expert, and so are the waves. */
static void add_choices_of_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx__moe_mem *m = &f->m.moe;
    uint32_t n_embd = f->hp->n_embd, used = f->hp->n_expert_used;
    for (uint32_t k = i * used; k < (i + 1) * used; k++) {
        uint32_t choice = m->place[k] - f->moe.first; /* below it wraps around */
        if (choice >= f->moe.n)
            continue;
        float *y = m->y + (size_t)choice * n_embd;
        add_bias(f, choice, NTX_EXPERT_DOWN, y, n_embd);
        f->c.ops->add_scaled(f->m.y + (size_t)i * n_embd, m->weight[k], y, n_embd);
    }
}

static struct ntx__product product(struct ntx_forward *f, uint32_t expert, enum ntx_expert_part part, struct ntx_weight *w, float *y, size_t ld)
{
    const struct ntx__moe_mem *m = &f->m.moe;
    *w = ntx_expert_weight(layer(f), expert, part);
    return (struct ntx__product){.w = w, .y = y, .ld = ld, .row0 = m->first[expert] - f->moe.first,
                                 .n_rows = m->first[expert + 1] - m->first[expert]};
}

/* Experts wanted[at .. at + n), those that are there first. */
static void order(struct ntx_forward *f, uint32_t at, uint32_t n)
{
    struct ntx__moe_mem *m = &f->m.moe;
    uint32_t k = 0;
    for (int late = 0; late < 2; late++)
        for (uint32_t i = at; i < at + n; i++)
            if (m->late[i] == late)
                m->order[k++] = m->wanted[i];
}

/* One product per expert and part. */
static unsigned list_products(struct ntx_forward *f, uint32_t n, const enum ntx_expert_part *parts, unsigned n_parts)
{
    struct ntx__moe_mem *m = &f->m.moe;
    float *const y[] = {m->gate, m->up, m->y};
    const size_t ld[] = {f->ld_expert, f->ld_expert, f->hp->n_embd};
    unsigned k = 0;
    for (uint32_t i = 0; i < n; i++)
        for (unsigned part = 0; part < n_parts; part++, k++)
            m->products[k] = product(f, m->order[i], parts[part], &m->weights[k], y[parts[part]], ld[parts[part]]);
    return k;
}

static int run_wave(struct ntx_forward *f, uint32_t n)
{
    static const enum ntx_expert_part in[] = {NTX_EXPERT_GATE, NTX_EXPERT_UP}, out[] = {NTX_EXPERT_DOWN};
    struct ntx__moe_mem *m = &f->m.moe;
    ntx__each(f, gather_row, f->moe.n);
    struct ntx__input x = {.x = m->x, .ld = f->ld_x, .quantized = m->quantized, .n_rows = f->moe.n};
    int rc = ntx__multiply_by(f, m->products, list_products(f, n, in, 2), &x);
    if (rc)
        return rc;
    ntx__each(f, glu_choice, f->moe.n);
    x.x = m->gate;
    x.ld = f->ld_expert;
    if ((rc = ntx__multiply_by(f, m->products, list_products(f, n, out, 1), &x)))
        return rc;
    ntx__each(f, add_choices_of_row, f->n_live);
    return 0;
}

/* How many of wanted[at .. end) are computed together: as many as the buffers hold choices of. */
static uint32_t wave_size(const struct ntx_forward *f, uint32_t at, uint32_t end)
{
    const struct ntx__moe_mem *m = &f->m.moe;
    uint32_t n = 1, room = NTX_MAX(f->c.max_rows, f->hp->n_expert_used);
    while (at + n < end && m->first[m->wanted[at + n] + 1] - m->first[m->wanted[at]] <= room)
        n++;
    return n;
}

/* They are asked of nobody. */
bool ntx__moe_on_device(const struct ntx_forward *f, uint32_t layer)
{
    return f->c.chunks->list[f->c.chunks->layers[layer].expert[NTX_EXPERT_GATE].chunk0].device;
}

/* Asks for experts wanted[taken .. n); returns how many are taken now. */
static int want(struct ntx_forward *f, uint32_t taken, uint32_t n, bool must)
{
    struct ntx__moe_mem *m = &f->m.moe;
    struct ntx_weights *w = f->c.weights;
    if (w->ops->want && !ntx__moe_on_device(f, f->layer))
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
static int step_wave(struct ntx_forward *f, uint32_t at, uint32_t n)
{
    struct ntx__moe_mem *m = &f->m.moe;
    f->moe.first = m->first[m->wanted[at]];
    f->moe.n = m->first[m->wanted[at + n - 1] + 1] - f->moe.first;
    order(f, at, n);
    int rc = f->back->moe->wave(f, n);
    if (!rc && f->c.weights->ops->done && !ntx__moe_on_device(f, f->layer))
        f->c.weights->ops->done(f->c.weights, f->layer, m->wanted + at, n);
    return rc;
}

int ntx__moe_route(struct ntx_forward *f, const struct ntx__run *r)
{
    (void)r;
    const struct ntx_weight *bias = &layer(f)->router_bias, *choice = &layer(f)->router_choice;
    int rc = f->back->moe->route(f);
    if (rc || (rc = ntx__take(f, bias, &f->vec[NTX_T_router_bias])) || (rc = ntx__take(f, choice, &f->vec[NTX_T_router_choice])))
        return rc;
    ntx__each(f, choose_row, f->n_live);
    ntx__give(f, bias);
    ntx__give(f, choice);
    f->moe.n_wanted = sort_choices(f);
    if (f->c.trace_experts)
        trace_wanted(f, f->moe.n_wanted);
    return f->back->moe->chosen ? f->back->moe->chosen(f) : 0;
}

static int waves_in_turn(struct ntx_forward *f)
{
    const struct ntx__moe_hands *hands = f->back->moe;
    uint32_t n = f->moe.n_wanted;
    int rc;
    for (uint32_t at = 0, taken = 0, wave; at < n; at += wave) {
        int more = taken < n ? want(f, taken, n, taken == at) : 0;
        if (more < 0)
            return more;
        taken += (uint32_t)more;
        if (more && taken == n && hands->predict && (rc = hands->predict(f))) /* behind the last reads of this layer */
            return rc;
        if (!at && (rc = hands->shared(f)))
            return rc;
        wave = wave_size(f, at, taken);
        if ((rc = step_wave(f, at, wave)))
            return rc;
    }
    return 0;
}

int ntx__moe_sum(struct ntx_forward *f, const struct ntx__run *r)
{
    (void)r;
    const struct ntx_weight *bias = layer(f)->expert_bias;
    int rc = 0;
    for (int part = 0; part < NTX_EXPERT_PARTS && !rc; part++)
        rc = ntx__take(f, &bias[part], &f->vec[NTX_T_expert_gate_bias + part]);
    if (rc || (rc = waves_in_turn(f)))
        return rc;
    for (int part = 0; part < NTX_EXPERT_PARTS; part++)
        ntx__give(f, &bias[part]);
    return 0;
}

const struct ntx__moe_hands ntx__cpu_experts = {.route = route, .predict = ntx__moe_predict, .shared = shared, .wave = run_wave};
