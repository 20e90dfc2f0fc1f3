/* ranks.c: rank 0's side: what it asks of the others, and how their outputs come to their places. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "infer/ranks_impl.h"

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
    uint64_t answer = NTX_MAX(rows * 3 * out, (uint64_t)logits_rows * m->hp.n_vocab) * sizeof(float); /* q, k and v at most */
    return rows * in * 2 * sizeof(float) + answer + answer / 2;
}

/* ---- the network */

static int broken(struct ntx_ranks *r, struct ntx_forward *f, int rc)
{
    if (!r->broken) {
        r->broken = rc;
        snprintf(r->why, sizeof r->why, "%s", r->c.ops->error(r->c.net));
    }
    return ntx_err_set(&f->c.weights->error, r->broken, "the other machines cannot be reached any more: %s; start all of them again", r->why);
}

static int send_all(struct ntx_ranks *r, struct ntx_forward *f, const void *bytes, size_t n)
{
    int rc = r->broken;
    for (uint32_t to = 1; to < r->size && !rc; to++)
        if (!(rc = r->c.ops->send(r->c.net, to, bytes, n)))
            ntx_count(f->c.counters, NTX_C_comp_rank_bytes, n);
    return rc ? broken(r, f, rc) : 0;
}

static int wait_all(struct ntx_ranks *r, struct ntx_forward *f)
{
    uint64_t t0 = ntx_now_ns();
    int rc = r->c.ops->wait(r->c.net, r->messages ? r->c.limit_ms : FIRST_MS); /* the first answer comes when its machine has loaded */
    ntx_count(f->c.counters, NTX_C_comp_rank_wait_ns, ntx_now_ns() - t0);
    return rc ? broken(r, f, rc) : 0;
}

static int say(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__said_head *h)
{
    int rc = send_all(r, f, h, sizeof *h);
    return rc ? rc : wait_all(r, f);
}

/* ---- products */

static bool dealt(const struct ntx__product *p, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (p[i].w->dealt)
            return true;
    return false;
}

static struct ntx_share_rows rows_of(const struct ntx_forward *f, const struct ntx__product *p, uint32_t rank)
{
    return ntx_share_of(&f->c.chunks->share, p->w->n_out, rank);
}

/* Forms that the dealt ones multiply by, and the width of their input. */
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

/* The message: header, products, rows of each form as they lie. */
static int write_products(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in, size_t *bytes)
{
    struct ntx__said_head h = {.said = NTX__SAID_PRODUCTS, .layer = f->layer, .pass = f->b->pass, .n_rows = in->n_rows, .buf = in->buf, .set = in->set};
    size_t at = sizeof h;
    h.forms = forms_of(p, n, &h.n_in);
    for (unsigned i = 0; i < n; i++)
        h.n += p[i].w->dealt;
    size_t all = at + h.n * sizeof(struct ntx__said_product);
    for (uint32_t form = 0; form < NTX_N_ACTS; form++)
        all += h.forms >> form & 1 ? in->n_rows * ntx__stride(f, in->buf, (enum ntx_act)form, h.n_in) : 0;
    if (ntx__ranks_room(&r->out, &r->out_bytes, all))
        return ntx_err_set(&f->c.weights->error, -ENOMEM, "no memory for a message of %zu bytes to other machines", all);
    memcpy(r->out, &h, sizeof h);
    for (unsigned i = 0; i < n; i++)
        if (p[i].w->dealt) {
            struct ntx__said_product s = {.kind = p[i].w->kind, .to = p[i].to, .expert = p[i].w->scale_at, .at = p[i].at, .row0 = p[i].row0, .n_rows = ntx__product_rows(&p[i], in)};
            memcpy(r->out + at, &s, sizeof s);
            at += sizeof s;
        }
    for (uint32_t form = 0; form < NTX_N_ACTS; form++)
        if (h.forms >> form & 1) {
            size_t rows = in->n_rows * ntx__stride(f, in->buf, (enum ntx_act)form, h.n_in);
            memcpy(r->out + at, form == NTX_ACT_F32 ? (const void *)f->buf[in->buf].at : f->quantized[in->set][form], rows);
            at += rows;
        }
    *bytes = all;
    return 0;
}

static size_t answer_bytes(const struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in, uint32_t rank)
{
    size_t bytes = sizeof(struct ntx__answer);
    for (unsigned i = 0; i < n; i++)
        if (p[i].w->dealt)
            bytes += (size_t)ntx__product_rows(&p[i], in) * rows_of(f, &p[i], rank).n * sizeof(float);
    return bytes;
}

static int expect(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in)
{
    int rc = r->broken;
    for (uint32_t from = 1; from < r->size && !rc; from++) {
        size_t bytes = answer_bytes(f, p, n, in, from);
        if (ntx__ranks_room(&r->in[from], &r->in_bytes[from], bytes))
            return ntx_err_set(&f->c.weights->error, -ENOMEM, "no memory for an answer of %zu bytes from another machine", bytes);
        rc = r->c.ops->take(r->c.net, from, r->in[from], bytes);
        ntx_count(f->c.counters, NTX_C_comp_rank_bytes, bytes);
    }
    return rc ? broken(r, f, rc) : 0;
}

/* To where the product's outputs go. */
static void place(struct ntx_forward *f, const struct ntx__product *p, const struct ntx__input *in, struct ntx_share_rows own, const float **y)
{
    for (uint32_t i = 0; i < ntx__product_rows(p, in); i++, *y += own.n) {
        float *row = p->to == NTX__BUF_LOGITS ? f->m.logits[i] : f->buf[p->to].at + (size_t)(p->row0 + i) * f->buf[p->to].ld + p->at;
        memcpy(row + own.row0, *y, own.n * sizeof **y);
    }
}

/* The other's clock against ours: what an exchange took beside the products is half before and half after them. */
static void set_clock(struct ntx_ranks *r, uint32_t from, const struct ntx__answer *a, uint64_t now)
{
    uint64_t there = a->end_ns - a->begin_ns, here = now - r->sent_ns, beside = here > there ? here - there : 0;
    if (r->clock[from].least_ns && beside >= r->clock[from].least_ns)
        return;
    r->clock[from].least_ns = NTX_MAX(beside, (uint64_t)1);
    r->clock[from].ahead_ns = (int64_t)(a->begin_ns - r->sent_ns - beside / 2);
}

static void see(struct ntx_ranks *r, struct ntx_forward *f, uint32_t from, const struct ntx__answer *a, uint64_t now)
{
    struct ntx_counters *c = f->c.counters;
    set_clock(r, from, a, now);
    if (c && from < NTX_MON_RANKS) {
        struct ntx_mon_rank *m = &c->mon.rank[from];
        atomic_store_explicit(&m->bytes_read, a->bytes_read, memory_order_relaxed);
        atomic_store_explicit(&m->stall_ns, a->stall_ns, memory_order_relaxed);
        atomic_store_explicit(&m->multiply_ns, a->multiply_ns, memory_order_relaxed);
    }
    uint64_t ahead = (uint64_t)r->clock[from].ahead_ns, stall = a->stall_ns - r->clock[from].stall_ns;
    ntx_traced(c, NTX_TRACE_COMPUTED, NTX_TR_RANK, a->begin_ns - ahead, a->end_ns - ahead, from, f->layer, stall);
    r->clock[from].stall_ns = a->stall_ns;
}

static int collect(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in)
{
    uint64_t now = ntx_now_ns();
    for (uint32_t from = 1; from < r->size; from++) {
        struct ntx__answer a;
        const float *y = (const void *)(r->in[from] + sizeof a);
        memcpy(&a, r->in[from], sizeof a);
        see(r, f, from, &a, now);
        if (a.rc)
            return ntx_err_set(&f->c.weights->error, a.rc, "%s: %.*s", r->c.names[from], (int)sizeof a.text - 1, a.text);
        for (unsigned i = 0; i < n; i++)
            if (p[i].w->dealt)
                place(f, &p[i], in, rows_of(f, &p[i], from), &y);
    }
    return 0;
}

/* The others' outputs are awaited even where our own rows fail: the next pass begins with nothing on its way. */
static int multiply(struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in)
{
    struct ntx_ranks *r = f->c.ranks;
    size_t bytes = 0;
    if (f->predicts || !dealt(p, n))
        return ntx__cpu_multiply(f, p, n, in);
    int rc = write_products(r, f, p, n, in, &bytes);
    r->sent_ns = ntx_now_ns();
    if (rc || (rc = send_all(r, f, r->out, bytes)) || (rc = wait_all(r, f)) || (rc = expect(r, f, p, n, in)))
        return rc;
    int own = ntx__cpu_multiply(f, p, n, in);
    if ((rc = wait_all(r, f)))
        return rc;
    atomic_fetch_add_explicit(&r->messages, 1, memory_order_relaxed);
    return own ? own : collect(r, f, p, n, in);
}

/* ---- a pass */

static bool wants_logits(const struct ntx_forward *f)
{
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        if (f->b->rows[i].logits)
            return true;
    return false;
}

static int drop(struct ntx_ranks *r, struct ntx_forward *f, uint32_t layer)
{
    return say(r, f, &(struct ntx__said_head){.said = NTX__SAID_DROP, .layer = layer, .pass = f->b->pass});
}

static int begin(struct ntx_forward *f)
{
    struct ntx_ranks *r = f->c.ranks;
    int rc = say(r, f, &(struct ntx__said_head){.said = NTX__SAID_BEGIN, .pass = f->b->pass});
    return rc || wants_logits(f) ? rc : drop(r, f, f->hp->n_layers);
}

/* Layers behind this one that every row skips. */
static int decided(struct ntx_forward *f)
{
    int rc = 0;
    for (uint32_t l = f->layer + 1; l < f->hp->n_layers && !rc; l++) {
        bool all = true;
        for (uint32_t i = 0; i < f->b->n_rows && all; i++)
            all = ntx__skips(f, i, l);
        if (all)
            rc = drop(f->c.ranks, f, l);
    }
    return rc;
}

static int end(struct ntx_forward *f, int rc)
{
    struct ntx_ranks *r = f->c.ranks;
    if (r->broken)
        return rc ? rc : broken(r, f, r->broken);
    int ended = say(r, f, &(struct ntx__said_head){.said = NTX__SAID_END, .pass = f->b->pass, .n = rc != 0});
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
    r->table.multiply = multiply;
    r->table.begin = begin;
    r->table.decided = decided;
    r->table.end = end;
    *out = r;
    return 0;
}

void ntx_ranks_free(struct ntx_ranks *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < NTX_RANKS_MAX; i++)
        free(r->in[i]);
    free(r->out);
    free(r);
}

const struct ntx_backend *ntx_ranks_backend(struct ntx_ranks *r) { return &r->table; }
uint64_t ntx_ranks_messages(const struct ntx_ranks *r) { return atomic_load_explicit(&r->messages, memory_order_relaxed); }

int ntx_ranks_quit(struct ntx_ranks *r)
{
    static const struct ntx__said_head h = {.said = NTX__SAID_QUIT};
    int rc = r->broken;
    for (uint32_t to = 1; to < r->size && !rc; to++)
        rc = r->c.ops->send(r->c.net, to, &h, sizeof h);
    return rc ? rc : r->c.ops->wait(r->c.net, r->c.limit_ms);
}
