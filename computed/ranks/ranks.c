/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c: rank 0: its messages to the others, and their outputs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/ranks/ranks_impl.h"

#define LIMIT_MS 60000u
#define FIRST_MS 1800000u

int ntx__ranks_room(uint8_t **p, size_t *has, size_t bytes)
{
    if (bytes <= *has)
        return 0;
    uint8_t *grown = malloc(NTX_MAX(bytes, *has + *has / 2));
    if (!grown)
        return -ENOMEM;
    free(*p);
    *p = grown;
    *has = NTX_MAX(bytes, *has + *has / 2);
    return 0;
}

uint64_t ntx_ranks_bytes(const struct ntx_model *m, uint32_t max_rows, uint32_t logits_rows)
{
    uint64_t in = 0, out = 0, rows = NTX_MAX(max_rows, m->hp.n_expert_used);
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        for (int t = 0; t < NTX_N_TENSORS; t++)
            if (m->layers[l].tensor[t] != NTX_NO_TENSOR && ntx_is_matrix((enum ntx_tensor)t)) {
                const struct ntx_shape s = ntx_shape_of(&m->hp, l, (enum ntx_tensor)t);
                in = NTX_MAX(in, (uint64_t)s.n_in);
                out = NTX_MAX(out, (uint64_t)s.n_out);
            }
    uint64_t answer = NTX_MAX(rows * 3 * out, (uint64_t)logits_rows * m->hp.n_vocab) *
                      sizeof(float);                                         /* q, k and v at most */
    const uint64_t kv = m->hp.kv_share ? rows * 3 * out * sizeof(float) : 0; /* and the message of attention */
    return rows * in * 2 * sizeof(float) + kv + answer + answer / 2;
}

/* ---- the network */

int ntx__ranks_broken(struct ntx_ranks *r, struct ntx_forward *f, int rc)
{
    if (!r->broken) {
        r->broken = rc;
        snprintf(r->why, sizeof r->why, "%s", r->c.ops->error(r->c.net));
    }
    return ntx_err_set(&f->c.weights->error, r->broken,
                       "the other machines cannot be reached any more: %s; start all of them again", r->why);
}

/* The rank has products of this layer. */
static bool has_products(const struct ntx_forward *f, uint32_t rank)
{
    return ntx_share_has_outputs(&f->c.chunks->share, f->layer, rank);
}

/* Sends to the ranks that have rows of a layer; NTX__ALL: to all. */
static int send_all(struct ntx_ranks *r, struct ntx_forward *f, const void *bytes, size_t n, uint32_t layer)
{
    int rc = r->broken;
    for (uint32_t to = 1; to < r->size && !rc; to++)
        if ((layer == NTX__ALL || ntx_share_has_outputs(&f->c.chunks->share, layer, to)) &&
            !(rc = r->c.ops->send(r->c.net, to, bytes, n)))
            ntx_count(f->c.counters, NTX_C_comp_rank_bytes, n);
    return rc ? ntx__ranks_broken(r, f, rc) : 0;
}

/* The first answer of a machine comes when it has loaded. */
static uint32_t limit_of(const struct ntx_ranks *r, const struct ntx_forward *f)
{
    for (uint32_t i = 1; i < r->size; i++)
        if (!r->heard[i] && (has_products(f, i) || !r->messages))
            return FIRST_MS;
    return r->c.limit_ms;
}

int ntx__ranks_wait(struct ntx_ranks *r, struct ntx_forward *f)
{
    uint64_t t0 = ntx_now_ns();
    int rc = r->c.ops->wait(r->c.net, limit_of(r, f));
    r->waited_ns = ntx_now_ns() - t0;
    ntx_count(f->c.counters, NTX_C_comp_rank_wait_ns, r->waited_ns);
    return rc ? ntx__ranks_broken(r, f, rc) : 0;
}

static int send_header(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__message_head *h)
{
    int rc = send_all(r, f, h, sizeof *h, NTX__ALL);
    return rc ? rc : ntx__ranks_wait(r, f);
}

/* ---- products */

static bool any_split(const struct ntx__product *p, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (p[i].w->dealt)
            return true;
    return false;
}

static struct ntx_share_range outs_of(const struct ntx_forward *f, const struct ntx__product *p, uint32_t rank)
{
    return ntx_share_of(&f->c.chunks->share, p->w->layer, p->w->n_out, rank);
}

/* Forms that the split products multiply, and the width of their input. */
static uint32_t forms_of(const struct ntx__product *p, unsigned n, uint32_t *n_in)
{
    uint32_t forms = 0;
    for (unsigned i = 0; i < n; i++)
        if (p[i].w->dealt) {
            forms |= 1u << ntx_act_for(p[i].w->type);
            *n_in = p[i].w->n_in;
        }
    return forms;
}

/* ---- use of outputs on the other ranks */

/* Gates and ups come in pairs, and each rank has the same rows of both. Only rank 0 has biases of experts. */
static bool sends_glu(const struct ntx_forward *f, const struct ntx__product *p, unsigned n,
                      const struct ntx__input *in)
{
    const struct ntx__glu *g = in->glu;
    if (!g || n % 2 || (g->of_choices && (f->vec[NTX_T_expert_gate_bias] || f->vec[NTX_T_expert_gate_bias + 1])))
        return false;
    for (unsigned i = 0; i < n; i++)
        if (!p[i].w->dealt || p[i].parts || p[i].at || p[i].to != (i % 2 ? g->up : g->gate) || p[i].w->n_out != g->n)
            return false;
    return true;
}

/* Every rank can add its rows of Y. */
static bool sends_sums(const struct ntx_forward *f)
{
    const struct ntx_layer_weights *l = ntx__layer_weights(f);
    return l->expert[NTX_EXPERT_DOWN].dealt && !f->vec[NTX_T_expert_gate_bias + NTX_EXPERT_DOWN] &&
           (l->down_shared.tensor == NTX_NO_TENSOR || l->down_shared.dealt);
}

/* One machine has all of the layer's split matrices. */
static bool layer_is_whole(const struct ntx_forward *f) { return ntx_share_whole(&f->c.chunks->share, f->layer); }

static void set_then(const struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in,
                     struct ntx__message_head *h)
{
    if (sends_glu(f, p, n, in)) {
        h->then = in->glu->passes && layer_is_whole(f) ? NTX__THEN_KEPT : NTX__THEN_HIDDEN;
        h->step = (uint8_t)(in->glu->step - f->c.model->layers[f->layer].step);
        h->of_shared = in->glu->of_shared;
        h->gate = in->glu->gate;
        h->up = in->glu->up;
    } else if (in->summed && sends_sums(f)) {
        bool choices = in->buf == NTX__BUF_ROUTED_GATE;
        h->then = choices ? NTX__THEN_SUMMED : NTX__THEN_STAY;
        h->n_live = f->n_live;
        if (!choices)
            return;
        const bool clears = !f->moe.first && ntx__layer_weights(f)->down_shared.tensor == NTX_NO_TENSOR;
        h->flags = (uint8_t)((clears ? NTX__SUM_CLEARS : 0) | (f->moe.weigh ? NTX__SUM_WEIGHS : 0) |
                             (f->moe.last ? NTX__SUM_LAST : 0));
    }
}

/* ---- the message: header, products, indexes of the choices' rows, choices, rows of each form as in memory */

/* Choices of one row have the same input, unless it is weighted: it is sent once. number [n_rows]: each choice's index
 * among the rows sent, whose places are in `from`. Returns their number. */
static uint32_t distinct_rows(struct ntx_ranks *r, const struct ntx_forward *f, const struct ntx__input *in,
                              uint32_t **number, uint32_t **from)
{
    const uint32_t *row = f->m.moe.row + f->moe.first, most = f->n_live;
    uint32_t n = 0;
    if (in->buf != NTX__BUF_ROUTED_X || ntx__weighs_input(f) ||
        ntx__ranks_room(&r->rows, &r->rows_bytes, (2 * (size_t)in->n_rows + most) * sizeof **number))
        return 0;
    *number = (uint32_t *)(void *)r->rows;
    *from = *number + in->n_rows;
    uint32_t *seen = *from + in->n_rows;
    memset(seen, 0xff, most * sizeof *seen);
    for (uint32_t i = 0; i < in->n_rows; i++) {
        if (seen[row[i]] == UINT32_MAX) {
            seen[row[i]] = n;
            (*from)[n++] = i;
        }
        (*number)[i] = seen[row[i]];
    }
    return n < in->n_rows ? n : 0;
}

static uint8_t *put_bytes(uint8_t *to, const void *bytes, size_t n)
{
    memcpy(to, bytes, n);
    return to + n;
}

static uint8_t *put_choices(const struct ntx_forward *f, const struct ntx__message_head *h, uint8_t *to)
{
    for (uint32_t i = 0; i < h->n_rows; i++)
        to = put_bytes(to, &(struct ntx__sent_routed){f->m.moe.row[f->moe.first + i], ntx__routed_weight(f, i)},
                       sizeof(struct ntx__sent_routed));
    for (uint32_t i = 0; h->flags & NTX__SUM_WEIGHS && i < h->n_live; i++)
        to = put_bytes(to, &(float){ntx__shared_weight(f, i)}, sizeof(float));
    return to;
}

static uint8_t *put_rows(const struct ntx_forward *f, const struct ntx__message_head *h, const uint32_t *from,
                         uint8_t *to)
{
    for (uint32_t form = 0; form < NTX_N_ACTS && !h->kept; form++) {
        const uint8_t *rows = form == NTX_ACT_F32 ? (const void *)f->buf[h->buf].at : f->quantized[h->set][form];
        const size_t stride = ntx__stride(f, h->buf, (enum ntx_act)form, h->n_in);
        for (uint32_t i = 0; h->forms >> form & 1 && i < h->n_distinct; i++)
            to = put_bytes(to, rows + from[i] * stride, stride);
        if (h->forms >> form & 1 && !h->n_distinct)
            to = put_bytes(to, rows, h->n_rows * stride);
    }
    return to;
}

static size_t message_bytes(const struct ntx_forward *f, const struct ntx__message_head *h)
{
    size_t n = sizeof *h + h->n * sizeof(struct ntx__message_product) +
               (h->n_distinct ? h->n_rows * sizeof(uint32_t) : 0);
    if (h->then == NTX__THEN_SUMMED)
        n += h->n_rows * sizeof(struct ntx__sent_routed) + (h->flags & NTX__SUM_WEIGHS ? h->n_live * sizeof(float) : 0);
    const uint32_t rows = h->n_distinct ? h->n_distinct : h->n_rows;
    for (uint32_t form = 0; form < NTX_N_ACTS && !h->kept; form++)
        n += h->forms >> form & 1 ? rows * ntx__stride(f, h->buf, (enum ntx_act)form, h->n_in) : 0;
    return n;
}

static int write_products(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__product *p, unsigned n,
                          const struct ntx__input *in, struct ntx__message_head *h, size_t *bytes)
{
    uint32_t *number = NULL, *from = NULL;
    *h = (struct ntx__message_head){.type = NTX__MSG_PRODUCTS,
                                    .layer = f->layer,
                                    .pass = f->b->pass,
                                    .n_rows = in->n_rows,
                                    .buf = in->buf,
                                    .set = in->set,
                                    .kept = r->kept};
    h->forms = forms_of(p, n, &h->n_in);
    for (unsigned i = 0; i < n; i++)
        h->n += p[i].w->dealt;
    set_then(f, p, n, in, h);
    h->n_distinct = distinct_rows(r, f, in, &number, &from);
    *bytes = message_bytes(f, h);
    if (ntx__ranks_room(&r->out, &r->out_bytes, *bytes))
        return ntx_err_set(&f->c.weights->error, -ENOMEM, "no memory for a message of %zu bytes to other machines",
                           *bytes);
    uint8_t *to = put_bytes(r->out, h, sizeof *h);
    for (unsigned i = 0; i < n; i++)
        if (p[i].w->dealt)
            to = put_bytes(to,
                           &(struct ntx__message_product){.kind = p[i].w->kind,
                                                          .to = p[i].to,
                                                          .expert = p[i].w->scale_at,
                                                          .at = p[i].at,
                                                          .row0 = p[i].row0,
                                                          .n_rows = ntx__product_rows(&p[i], in)},
                           sizeof(struct ntx__message_product));
    if (h->n_distinct)
        to = put_bytes(to, number, h->n_rows * sizeof *number);
    if (h->then == NTX__THEN_SUMMED)
        to = put_choices(f, h, to);
    put_rows(f, h, from, to);
    return 0;
}

bool ntx__answered(const struct ntx__message_head *h, uint8_t to)
{
    return h->then == NTX__THEN_NOTHING || (h->then == NTX__THEN_HIDDEN && to == h->gate);
}

static size_t answer_floats(const struct ntx_forward *f, const struct ntx__product *p, unsigned n,
                            const struct ntx__input *in, const struct ntx__message_head *h, uint32_t rank)
{
    size_t floats = h->flags & NTX__SUM_LAST
                        ? (size_t)h->n_live * ntx_share_of(&f->c.chunks->share, f->layer, f->hp->n_embd, rank).n
                        : 0;
    for (unsigned i = 0; i < n; i++)
        if (p[i].w->dealt && ntx__answered(h, p[i].to))
            floats += (size_t)ntx__product_rows(&p[i], in) * outs_of(f, &p[i], rank).n;
    return floats;
}

int ntx__ranks_expect(struct ntx_ranks *r, struct ntx_forward *f, uint32_t from, size_t floats)
{
    const size_t bytes = sizeof(struct ntx__answer) + NTX_MAX(floats * sizeof(float), (size_t)NTX__ANSWER_TEXT);
    if (ntx__ranks_room(&r->in[from], &r->in_bytes[from], bytes))
        return ntx_err_set(&f->c.weights->error, -ENOMEM, "no memory for an answer of %zu bytes from another machine",
                           bytes);
    int rc = r->c.ops->take(r->c.net, from, r->in[from], bytes);
    ntx_count(f->c.counters, NTX_C_comp_rank_bytes, bytes);
    return rc ? ntx__ranks_broken(r, f, rc) : 0;
}

static int expect_answers(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__product *p, unsigned n,
                          const struct ntx__input *in, const struct ntx__message_head *h)
{
    int rc = r->broken ? ntx__ranks_broken(r, f, r->broken) : 0;
    for (uint32_t from = 1; from < r->size && !rc; from++)
        if (has_products(f, from))
            rc = ntx__ranks_expect(r, f, from, answer_floats(f, p, n, in, h, from));
    return rc;
}

/* Copies a rank's outputs to their place. */
static void place_outputs(struct ntx_forward *f, const struct ntx__product *p, const struct ntx__input *in,
                          struct ntx_share_range own, const float **y)
{
    for (uint32_t i = 0; i < ntx__product_rows(p, in); i++, *y += own.n) {
        float *row = p->to == NTX__BUF_LOGITS ? f->m.logits[i]
                                              : f->buf[p->to].at + (size_t)(p->row0 + i) * f->buf[p->to].ld + p->at;
        memcpy(row + own.first, *y, own.n * sizeof **y);
    }
}

/* Estimates the rank's clock offset: the time of an exchange without the products is split equally before and after
 * them. */
static void set_clock(struct ntx_ranks *r, uint32_t from, const struct ntx__answer *a, uint64_t now)
{
    uint64_t there = a->end_ns - a->begin_ns, here = now - r->sent_ns, beside = here > there ? here - there : 0;
    if (r->clock[from].least_ns && beside >= r->clock[from].least_ns)
        return;
    r->clock[from].least_ns = NTX_MAX(beside, (uint64_t)1);
    r->clock[from].ahead_ns = (int64_t)(a->begin_ns - r->sent_ns - beside / 2);
}

/* The part of the last wait that the rank's products do not explain. */
static uint64_t message_of(const struct ntx_ranks *r, const struct ntx__answer *a, uint64_t now)
{
    const uint64_t there = a->end_ns - a->begin_ns, here = now - r->sent_ns;
    return NTX_MIN(r->waited_ns, here > there ? here - there : 0);
}

int ntx__ranks_see(struct ntx_ranks *r, struct ntx_forward *f, uint32_t from, uint64_t now)
{
    struct ntx_counters *c = f->c.counters;
    struct ntx__answer answer, *a = &answer;
    memcpy(a, r->in[from], sizeof *a);
    r->heard[from] = true;
    set_clock(r, from, a, now);
    if (c && from < NTX_MON_RANKS) {
        struct ntx_mon_rank *m = &c->mon.rank[from];
        atomic_store_explicit(&m->bytes_read, a->bytes_read, memory_order_relaxed);
        atomic_store_explicit(&m->stall_ns, a->stall_ns, memory_order_relaxed);
        atomic_store_explicit(&m->multiply_ns, a->multiply_ns, memory_order_relaxed);
        atomic_store_explicit(&m->ring_ready, a->ring_ready, memory_order_relaxed);
        atomic_store_explicit(&m->ring_slots, a->ring_slots, memory_order_relaxed);
        atomic_fetch_add_explicit(&m->message_ns, message_of(r, a, now), memory_order_relaxed);
    }
    uint64_t ahead = (uint64_t)r->clock[from].ahead_ns, stall = a->stall_ns - r->clock[from].stall_ns;
    ntx_traced(c, NTX_TRACE_COMPUTED, NTX_TR_RANK, a->begin_ns - ahead, a->end_ns - ahead, from, f->layer, stall);
    r->clock[from].stall_ns = a->stall_ns;
    return a->rc ? ntx_err_set(&f->c.weights->error, a->rc, "%s: %.*s", r->c.names[from], (int)NTX__ANSWER_TEXT - 1,
                               (const char *)r->in[from] + sizeof *a)
                 : 0;
}

static int collect_answers(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__product *p, unsigned n,
                           const struct ntx__input *in, const struct ntx__message_head *h)
{
    uint64_t now = ntx_now_ns();
    for (uint32_t from = 1; from < r->size; from++) {
        const float *y = (const void *)(r->in[from] + sizeof(struct ntx__answer));
        int rc = has_products(f, from) ? ntx__ranks_see(r, f, from, now) : 0;
        if (rc)
            return rc;
        if (!has_products(f, from))
            continue;
        for (unsigned i = 0; i < n; i++)
            if (p[i].w->dealt && ntx__answered(h, p[i].to))
                place_outputs(f, &p[i], in, outs_of(f, &p[i], from), &y);
    }
    f->hidden = h->then == NTX__THEN_HIDDEN;
    r->due = h->flags & NTX__SUM_LAST;
    return 0;
}

static void hide_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    const struct ntx_ranks *r = f->c.ranks;
    (void)thread;
    ntx__hidden(f, r->glu, i, r->own.first, r->own.n);
}

void ntx__ranks_hide(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__glu *glu, struct ntx_share_range own,
                     uint32_t n_rows)
{
    r->glu = glu;
    r->own = own;
    ntx__each(f, hide_row, n_rows);
}

static int multiply_own(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__product *p, unsigned n,
                        const struct ntx__input *in, const struct ntx__message_head *h)
{
    int rc = ntx__cpu_multiply(f, p, n, in);
    if (!rc && h->then == NTX__THEN_HIDDEN && outs_of(f, p, 0).n)
        ntx__ranks_hide(r, f, in->glu, outs_of(f, p, 0), in->glu->n_rows);
    return rc;
}

/* Waits for the others' outputs even if the own rows fail: the next pass must begin with nothing under way. */
static int multiply_split(struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in)
{
    struct ntx_ranks *r = f->c.ranks;
    struct ntx__message_head h;
    size_t bytes = 0;
    if (!f->predicts && r->kept && !any_split(p, n))
        return ntx_err_set(&f->c.weights->error, -EPROTO, "layer %u: another machine has kept what products here want",
                           f->layer);
    if (f->predicts || !any_split(p, n))
        return ntx__cpu_multiply(f, p, n, in);
    int rc = write_products(r, f, p, n, in, &h, &bytes);
    r->kept = false;
    r->added = h.then == NTX__THEN_SUMMED && !outs_of(f, p, 0).n;
    r->sent_ns = ntx_now_ns();
    if (rc || (rc = send_all(r, f, r->out, bytes, f->layer)) || (rc = ntx__ranks_wait(r, f)))
        return rc;
    if (h.then == NTX__THEN_KEPT) {
        f->hidden = f->away = r->kept = true;
        return 0;
    }
    if (!ntx__has_answer(&h))
        return multiply_own(r, f, p, n, in, &h);
    if ((rc = expect_answers(r, f, p, n, in, &h)))
        return rc;
    int own = multiply_own(r, f, p, n, in, &h);
    if ((rc = ntx__ranks_wait(r, f)))
        return rc;
    atomic_fetch_add_explicit(&r->messages, 1, memory_order_relaxed);
    return own ? own : collect_answers(r, f, p, n, in, &h);
}

/* For the others' rows of Y the sum made here is wrong: they have it. */
static int combine_choices(struct ntx_forward *f)
{
    struct ntx_ranks *r = f->c.ranks;
    int rc = r->added ? 0 : ntx__cpu_combine(f);
    for (uint32_t from = 1; from < r->size && r->due && !rc; from++) {
        const struct ntx_share_range own = ntx_share_of(&f->c.chunks->share, f->layer, f->hp->n_embd, from);
        const float *y = (const void *)(r->in[from] + sizeof(struct ntx__answer));
        for (uint32_t i = 0; i < f->n_live; i++, y += own.n)
            memcpy(f->m.y + (size_t)i * f->hp->n_embd + own.first, y, own.n * sizeof *y);
    }
    r->due = r->added = false;
    return rc;
}

/* They are read there while the layer before is computed, as here. */
static int prefetch_experts(struct ntx_forward *f, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    struct ntx_ranks *r = f->c.ranks;
    const struct ntx__message_head h = {.type = NTX__MSG_PREFETCH, .layer = layer, .pass = f->b->pass, .n = n};
    const size_t bytes = sizeof h + n * sizeof *experts;
    if (!f->c.chunks->layers[layer].expert[NTX_EXPERT_GATE].dealt)
        return 0;
    if (ntx__ranks_room(&r->out, &r->out_bytes, bytes))
        return ntx_err_set(&f->c.weights->error, -ENOMEM, "no memory for a message of %zu bytes to other machines",
                           bytes);
    put_bytes(put_bytes(r->out, &h, sizeof h), experts, n * sizeof *experts);
    int rc = send_all(r, f, r->out, bytes, layer);
    return rc ? rc : ntx__ranks_wait(r, f);
}

/* ---- a pass */

static bool wants_logits(const struct ntx_forward *f)
{
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        if (f->b->rows[i].logits)
            return true;
    return false;
}

static int drop_layer(struct ntx_ranks *r, struct ntx_forward *f, uint32_t layer)
{
    return send_header(r, f, &(struct ntx__message_head){.type = NTX__MSG_DROP, .layer = layer, .pass = f->b->pass});
}

static int drop_end(struct ntx_forward *f)
{
    return ntx__last_idle(f) ? drop_layer(f->c.ranks, f, NTX_END_OF_LAST(f->hp->n_layers)) : 0;
}

static int begin_pass(struct ntx_forward *f)
{
    struct ntx_ranks *r = f->c.ranks;
    f->hidden = f->away = r->due = r->kept = r->added = false; /* leftovers of the last pass */
    struct ntx__message_head h = {.type = NTX__MSG_BEGIN, .pass = f->b->pass};
    size_t bytes = 0;
    int rc = r->pool ? ntx__ranks_kv_begin(r, f, &h, &bytes) : send_header(r, f, &h);
    if (r->pool && !rc && !(rc = send_all(r, f, r->out, bytes, NTX__ALL)))
        rc = ntx__ranks_wait(r, f);
    if (!rc && !wants_logits(f))
        rc = drop_layer(r, f, f->hp->n_layers);
    return rc ? rc : drop_end(f);
}

/* Drops later layers that every row skips. */
static int drop_skipped_layers(struct ntx_forward *f)
{
    int rc = 0;
    for (uint32_t l = f->layer + 1; l < f->hp->n_layers && !rc; l++) {
        bool all = true;
        for (uint32_t i = 0; i < f->b->n_rows && all; i++)
            all = ntx__skips(f, i, l);
        if (all)
            rc = drop_layer(f->c.ranks, f, l);
    }
    return rc ? rc : drop_end(f);
}

static int end_pass(struct ntx_forward *f, int rc)
{
    struct ntx_ranks *r = f->c.ranks;
    if (r->broken)
        return rc ? rc : ntx__ranks_broken(r, f, r->broken);
    int ended = send_header(r, f, &(struct ntx__message_head){.type = NTX__MSG_END, .pass = f->b->pass, .n = rc != 0});
    return rc ? rc : ended;
}

int ntx_ranks_new(const struct ntx_ranks_config *c, struct ntx_ranks **out)
{
    struct ntx_ranks *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    r->c = *c;
    r->c.limit_ms = c->limit_ms ? c->limit_ms : LIMIT_MS;
    r->rank = c->ops->rank(c->net);
    r->size = c->ops->size(c->net);
    r->table = ntx__cpu_backend;
    r->table.in_turns = false;
    r->table.multiply = multiply_split;
    r->table.combine = combine_choices;
    r->table.prefetch = prefetch_experts;
    ntx__ranks_kv_table(&r->table);
    r->table.begin = begin_pass;
    r->table.decided = drop_skipped_layers;
    r->table.end = end_pass;
    *out = r;
    return 0;
}

void ntx_ranks_free(struct ntx_ranks *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < NTX_RANKS_MAX; i++)
        free(r->in[i]);
    free(r->rows);
    free(r->changes);
    free(r->out);
    free(r);
}

const struct ntx_backend *ntx_ranks_backend(struct ntx_ranks *r) { return &r->table; }
bool ntx_ranks_lost(const struct ntx_ranks *r) { return r->broken; }
uint64_t ntx_ranks_messages(const struct ntx_ranks *r)
{
    return atomic_load_explicit(&r->messages, memory_order_relaxed);
}

int ntx_ranks_quit(struct ntx_ranks *r)
{
    static const struct ntx__message_head h = {.type = NTX__MSG_QUIT};
    int rc = r->broken;
    for (uint32_t to = 1; to < r->size && !rc; to++)
        rc = r->c.ops->send(r->c.net, to, &h, sizeof h);
    return rc ? rc : r->c.ops->wait(r->c.net, r->c.limit_ms);
}
