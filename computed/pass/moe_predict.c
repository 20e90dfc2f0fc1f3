/* SPDX-License-Identifier: Apache-2.0 */
/* moe_predict.c: predicts the experts of the next layer that has any: its router, applied to its input if attention
 * and FFNs added nothing until then (router_lookahead.c): the state before this layer's FFN, or the residual streams.
 * The stream counts how often the prediction is right.
 *
 * For prompts with so many rows that nearly all experts are wanted, nothing is predicted: all are staged, those of the
 * first layer with experts when the pass begins.
 *
 * Experts that follow from tokens are known: those of layer 0 when the pass begins.
 *
 * If some of this layer's experts are still being read, the prediction waits for the output of the others and of the
 * shared one, which improves its input (moe.c). The drive is busy until then; if it recently was not, the prediction is
 * made twice.
 *
 * The CPU predicts while the drive reads what this layer wants; it costs a product with the router, and those on the
 * way there. A prediction affects only reads, not values: they may begin before the layer asks (weights.h). Its buffers
 * are those of the experts, which are not in use yet. */
#include <math.h>
#include <string.h>

#include "computed/pass/forward_impl.h"

#include "common/util.h"

/* The next layer with a router; n_layers: there is none. */
static uint32_t next_routed(const struct ntx_forward *f)
{
    uint32_t l = f->layer + 1;
    while (l < f->hp->n_layers && f->c.chunks->layers[l].router.tensor == NTX_NO_TENSOR)
        l++;
    return l;
}

static const struct ntx_layer_weights *next_layer(const struct ntx_forward *f)
{
    return &f->c.chunks->layers[next_routed(f)];
}

static bool is_there(struct ntx_weights *w, const struct ntx_weight *bias)
{
    return bias->tensor == NTX_NO_TENSOR || w->ops->there(w, bias->chunk0);
}

/* Someone would read them: this machine, or others. */
static bool is_useful(const struct ntx_forward *f, uint32_t layer)
{
    return f->c.weights->ops->prefetch_experts &&
           (!ntx__moe_held(f, layer) ||
            (f->back->prefetch && f->c.chunks->layers[layer].expert[NTX_EXPERT_GATE].dealt));
}

static int prefetch(struct ntx_forward *f, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    if (n && !ntx__moe_held(f, layer))
        f->c.weights->ops->prefetch_experts(f->c.weights, layer, experts, n);
    return n && f->back->prefetch ? f->back->prefetch(f, layer, experts, n) : 0;
}

static bool can_predict(const struct ntx_forward *f, struct ntx__lookahead *lookahead)
{
    struct ntx_weights *w = f->c.weights;
    const struct ntx_layer_weights *next = next_layer(f);
    return w->ops->there(w, next->router.chunk0) && is_there(w, &next->router_bias) &&
           is_there(w, &next->router_select) && ntx__find_lookahead(f->c.model, f->layer, lookahead) &&
           ntx__lookahead_open(f, lookahead);
}

static void take_router_input(struct ntx_forward *f, uint32_t row, unsigned i)
{
    const struct ntx_weight *router = &next_layer(f)->router;
    float *x = f->m.moe.x + row * f->ld_x;
    memcpy(x, f->m.moe.lookahead[NTX_BUF_X] + i * f->ld_x, f->hp->n_embd * sizeof *x);
    ntx__quantize_into(f, f->m.moe.quantized, ntx__forms(&router, 1), x, f->hp->n_embd, row);
}

static void score_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    float *p = f->m.moe.probs + (size_t)i * f->hp->n_expert;
    const struct ntx_router *r = &ntx_layer_find(&f->c.model->layers[next_routed(f)], NTX_OP_ROUTE)->route;
    ntx__moe_scores(f, r, p);
    ntx__moe_leave_groups(r, p, f->vec[NTX_T_router_select], f->hp->n_expert);
    if (f->vec[NTX_T_router_select])
        f->c.ops->add(p, f->vec[NTX_T_router_select], f->hp->n_expert);
}

/* Sums the n rows' scores into the first row's. */
static float *join_rows(struct ntx_forward *f, uint32_t n)
{
    float *sum = f->m.moe.probs;
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t e = 0; e < f->hp->n_expert; e++)
            sum[e] += sum[(size_t)i * f->hp->n_expert + e];
    return sum;
}

/* The n largest; those taken become -INFINITY, which no score is. Nothing is greater than a NaN, so there are always
 * n. */
static void take_largest(float *p, uint32_t n_expert, uint32_t *best, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t e = 0;
        while (e + 1 < n_expert && p[e] == -INFINITY)
            e++;
        for (uint32_t i = e + 1; i < n_expert; i++)
            if (p[i] > p[e])
                e = i;
        best[k] = e;
        p[e] = -INFINITY;
    }
}

static int take_biases(struct ntx_forward *f, const struct ntx_layer_weights *w)
{
    int rc = ntx__take(f, &w->router_bias, &f->vec[NTX_T_router_bias]);
    return rc ? rc : ntx__take(f, &w->router_select, &f->vec[NTX_T_router_select]);
}

static void give_biases(struct ntx_forward *f, const struct ntx_layer_weights *w)
{
    ntx__give(f, &w->router_bias);
    ntx__give(f, &w->router_select);
}

/* Experts of a layer that follow from tokens, for these rows of the batch (NULL: all); 0: they do not, or the table is
 * not in memory. */
static uint32_t list_numbered(struct ntx_forward *f, uint32_t layer, const uint32_t *rows, uint32_t n_rows,
                              uint32_t *list)
{
    const struct ntx_weight *w = &f->c.chunks->layers[layer].token_experts;
    const float *all = NULL;
    uint32_t n = 0, used = f->hp->n_expert_used;
    if (w->tensor == NTX_NO_TENSOR || !f->c.weights->ops->there(f->c.weights, w->chunk0) || ntx__take(f, w, &all))
        return 0;
    for (uint32_t i = 0; i < n_rows * used; i++) {
        const uint32_t row = rows ? rows[i / used] : i / used;
        if (f->b->rows[row].values)
            continue; /* the router selects */
        uint32_t at = 0,
                 e = (uint32_t)((const int32_t *)(const void *)all)[(size_t)f->b->rows[row].token * used + i % used];
        while (at < n && list[at] != e)
            at++;
        if (at == n && e < f->hp->n_expert)
            list[n++] = e;
    }
    ntx__give(f, w);
    return n;
}

/* So few rows run the last layer in full that they want fewer than all experts. */
static bool few_asked(const struct ntx_forward *f)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        n += ntx__asked(f, i);
    return n * f->hp->n_expert_used < 4 * (uint64_t)f->hp->n_expert;
}

/* Stages experts of the next layer from `layer` on that has any, for these rows of the batch (NULL: all). False: they
 * must be predicted. */
static bool stage_experts(struct ntx_forward *f, uint32_t layer, const uint32_t *rows, uint32_t n_rows)
{
    const struct ntx_weights_ops *ops = f->c.weights->ops;
    uint32_t *list = f->m.moe.predicted;
    if (!ops->stage_experts || f->back->prefetch)
        return false;
    while (layer < f->hp->n_layers && f->c.chunks->layers[layer].router.tensor == NTX_NO_TENSOR)
        layer++;
    if (layer == f->hp->n_layers || ntx__moe_held(f, layer))
        return true;
    if (ntx__is_last(f, layer) && few_asked(f))
        return false;
    const uint32_t n = list_numbered(f, layer, rows, n_rows, list);
    if (n || f->c.chunks->layers[layer].token_experts.tensor == NTX_NO_TENSOR) /* otherwise they will be known */
        ops->stage_experts(f->c.weights, layer, list, n);
    return true;
}

/* Rows of this layer that also run the FFN of layer `next`, in m.ahead. */
static uint32_t find_ahead(struct ntx_forward *f, uint32_t next)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_live; i++)
        if (!ntx__is_last(f, next) || ntx__asked(f, f->m.live[i]))
            f->m.ahead[n++] = f->m.live[i];
    return n;
}

/* Nearly every expert will be wanted: there are many rows, and they wanted nearly all of this layer's. A repetitive
 * text has many rows and wants few. */
static bool wants_all(const struct ntx_forward *f, uint32_t n)
{
    return (uint64_t)n * f->hp->n_expert_used >= 4 * (uint64_t)f->hp->n_expert &&
           16 * (uint64_t)f->moe.n_wanted >= 15 * (uint64_t)f->hp->n_expert;
}

/* Before any layer: with so many different tokens, one expert in 55 is left out by chance. */
static bool will_want_all(const struct ntx_forward *f)
{
    uint64_t different = 0, enough = 4 * (uint64_t)f->hp->n_expert;
    for (uint32_t i = 0; i < f->b->n_rows && different * f->hp->n_expert_used < enough; i++) {
        uint32_t k = 0;
        while (k < i && f->b->rows[k].token != f->b->rows[i].token)
            k++;
        different += k == i;
    }
    return different * f->hp->n_expert_used >= enough;
}

bool ntx__moe_predicted(const struct ntx_forward *f)
{
    const uint32_t next = next_routed(f);
    return next < f->hp->n_layers && next_layer(f)->token_experts.tensor == NTX_NO_TENSOR && is_useful(f, next);
}

int ntx__moe_predict(struct ntx_forward *f)
{
    const uint32_t next = next_routed(f), n_rows = next < f->hp->n_layers ? find_ahead(f, next) : 0;
    if (!n_rows || (wants_all(f, n_rows) && stage_experts(f, next, f->m.ahead, n_rows)))
        return 0;
    struct ntx__moe_mem *m = &f->m.moe;
    const struct ntx__input in = {.buf = NTX__BUF_ROUTED_X, .set = NTX__OF_ROUTED, .n_rows = n_rows};
    const uint32_t n_named = f->hp->n_expert_used +
                             f->hp->n_expert_used /
                                 3; /* the last ones are read when the drive would otherwise be idle */
    const uint32_t n = (uint32_t)NTX_MIN((uint64_t)n_named * n_rows, f->hp->n_expert);
    struct ntx__lookahead lookahead;
    int rc;
    if (!is_useful(f, next))
        return 0;
    if (next_layer(f)->token_experts.tensor != NTX_NO_TENSOR)
        return prefetch(f, next, m->predicted, list_numbered(f, next, f->m.ahead, n_rows, m->predicted));
    if (!can_predict(f, &lookahead))
        return 0;
    const struct ntx__product router = {.w = &next_layer(f)->router, .to = NTX__BUF_PROBS};
    if ((rc = ntx__run_lookahead(f, &lookahead, f->m.ahead, n_rows, take_router_input)))
        return rc;
    if ((rc = ntx__cpu_multiply(f, &router, 1, &in)) || (rc = take_biases(f, next_layer(f))))
        return rc;
    ntx__each(f, score_row, n_rows);
    give_biases(f, next_layer(f));
    take_largest(join_rows(f, n_rows), f->hp->n_expert, m->predicted, n);
    return prefetch(f, next, m->predicted, n);
}

int ntx__moe_begin(struct ntx_forward *f)
{
    uint32_t *list = f->m.moe.predicted;
    if (f->hp->n_expert && will_want_all(f) && stage_experts(f, 0, NULL, f->b->n_rows))
        return 0;
    return f->hp->n_token_experts && is_useful(f, 0)
               ? prefetch(f, 0, list, list_numbered(f, 0, NULL, f->b->n_rows, list))
               : 0;
}
