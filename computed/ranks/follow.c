/* SPDX-License-Identifier: Apache-2.0 */
/* follow.c: the other ranks: checks rank 0's messages, multiplies by the own rows, and sends the outputs back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/ranks/ranks_impl.h"

/* In a pass rank 0 waits for one rank after another, and for its own drive: it counts as gone only after that time. */
#define FIRST_SILENT 5

struct follower {
    struct ntx_ranks *r;
    struct ntx_forward *f;
    bool passing; /* a pass has begun */
    int failed;   /* errno of its failure here, which its answers report */
    struct ntx__message_head h;
    struct ntx__message_product listed[2 * 1024]; /* the message's products, */
    struct ntx__product p[2 * 1024];              /* the same as products of the pass, */
    struct ntx_weight w[2 * 1024];                /* and their weights */
    uint32_t wanted[1024];
    /* Experts that will probably be wanted; read once those of the layer before are requested. */
    uint32_t prefetch[1024], prefetched_layer, n_prefetched;
    uint8_t late[1024];
    struct ntx__glu glu; /* HIDDEN */
    struct {
        uint32_t layer, n_rows, n;
        uint8_t buf;
        bool here;
    } hidden;                   /* KEPT: an input that the next products may take */
    const uint8_t *number;      /* in the message: n_rows u32, if repeated rows were sent once */
    const uint8_t *choice, *by; /* SUMMED: n_rows choices, n_live floats; */
    uint8_t *kept;              /* a copy of both, since the message does not last */
    size_t kept_bytes;
};

static int refuse_message(struct ntx_forward *f, const char *what)
{
    return ntx_err_set(
        &f->c.weights->error, -EBADMSG,
        "a message from the first machine has %s: are all machines of the same build, with the same model?", what);
}

/* ---- reading a message */

static const struct ntx_weight *product_weight(const struct ntx_forward *f, uint32_t layer,
                                               const struct ntx__message_product *s)
{
    if (s->kind == NTX_N_TENSORS)
        return &f->c.chunks->output;
    return layer < f->hp->n_layers && s->kind < NTX_N_TENSORS ? &f->c.chunks->layers[layer].of[s->kind] : NULL;
}

static int check_product(struct follower *x, const struct ntx__message_product *s)
{
    const struct ntx_weight *w = product_weight(x->f, x->h.layer, s);
    if (!w || w->tensor == NTX_NO_TENSOR || !w->dealt || w->n_in != x->h.n_in ||
        !(x->h.forms >> ntx_act_for(w->type) & 1))
        return refuse_message(x->f, "a matrix that is not dealt");
    if (ntx__is_expert(s->kind) && s->expert >= x->f->hp->n_expert)
        return refuse_message(x->f, "an expert that is not there");
    bool logits = s->kind == NTX_N_TENSORS;
    if ((logits != (s->to == NTX__BUF_LOGITS)) || s->to >= NTX__N_BUFS ||
        (!logits && (!x->f->buf[s->to].at || s->at + (uint64_t)w->n_out > x->f->buf[s->to].ld)))
        return refuse_message(x->f, "outputs that have no place");
    bool choices = s->to >= NTX__BUF_ROUTED_X && s->to <= NTX__BUF_ROUTED_Y;
    if (!s->n_rows || (x->h.n_rows > x->f->c.max_rows && !choices) || s->row0 + (uint64_t)s->n_rows > x->h.n_rows ||
        (logits && s->row0))
        return refuse_message(x->f, "rows that are not there");
    return 0;
}

static bool is_hidden(const struct follower *x, uint32_t i)
{
    const struct ntx__message_product *s = &x->listed[i];
    return s->to == (i % 2 ? x->h.up : x->h.gate) && !s->at &&
           product_weight(x->f, x->h.layer, s)->n_out == product_weight(x->f, x->h.layer, x->listed)->n_out;
}

static bool is_glu(const struct ntx__message_head *h)
{
    return h->then == NTX__THEN_HIDDEN || h->then == NTX__THEN_KEPT;
}

/* The layer's step whose activation applies to gates and ups. NULL: none. */
static const struct ntx_step *glu_step(const struct follower *x)
{
    const struct ntx_layer *l = x->h.layer < x->f->hp->n_layers ? &x->f->c.model->layers[x->h.layer] : NULL;
    const struct ntx_step *s = l && x->h.step < l->n_steps ? &l->step[x->h.step] : NULL;
    return s && (s->op == NTX_OP_EXPERTS || (s->op == NTX_OP_GLU && !x->h.of_shared)) ? s : NULL;
}

/* Checks the use of the outputs. */
static int check_then(const struct follower *x)
{
    const struct ntx_layer_weights *l = x->h.layer < x->f->hp->n_layers ? &x->f->c.chunks->layers[x->h.layer] : NULL;
    const struct ntx_step *step = glu_step(x);
    bool right = x->h.then == NTX__THEN_NOTHING ? !x->h.flags : x->h.then <= NTX__THEN_SUMMED && l != NULL;
    if (right && is_glu(&x->h)) {
        right = !x->h.flags && step && x->h.n % 2 == 0 && x->h.gate != x->h.up;
        for (uint32_t i = 0; i < x->h.n && right; i++)
            right = is_hidden(x, i);
    } else if (right && x->h.then != NTX__THEN_NOTHING) {
        uint8_t to = x->h.then == NTX__THEN_STAY ? NTX_BUF_Y : NTX__BUF_ROUTED_Y;
        right = x->h.n_live && x->h.n_live <= x->f->c.max_rows && x->f->buf[NTX_BUF_Y].at &&
                l->expert[NTX_EXPERT_DOWN].dealt && (x->h.then == NTX__THEN_SUMMED || !x->h.flags);
        for (uint32_t i = 0; i < x->h.n && right; i++)
            right = x->listed[i].to == to && !x->listed[i].at &&
                    product_weight(x->f, x->h.layer, &x->listed[i])->n_out == x->f->hp->n_embd;
    }
    return right ? 0 : refuse_message(x->f, "outputs of another kind");
}

/* Takes the indexes of rows and the choices, which precede the input. */
static int take_lists(struct follower *x, const uint8_t **at, const uint8_t *end)
{
    const size_t numbers = x->h.n_distinct ? x->h.n_rows * sizeof(uint32_t) : 0,
                 choices = x->h.then == NTX__THEN_SUMMED ? x->h.n_rows * sizeof(struct ntx__sent_routed) : 0;
    const size_t by = x->h.flags & NTX__SUM_WEIGHS ? x->h.n_live * sizeof(float) : 0, all = numbers + choices + by;
    if (x->h.n_distinct > x->h.n_rows || all > (size_t)(end - *at))
        return refuse_message(x->f, "lists of another length");
    if (ntx__ranks_room(&x->kept, &x->kept_bytes, all + 1)) /* never NULL */
        return ntx_err_set(&x->f->c.weights->error, -ENOMEM, "no memory for lists of %zu bytes", all);
    if (all)
        memcpy(x->kept, *at, all);
    x->number = x->kept;
    x->choice = x->kept + numbers;
    x->by = x->choice + choices;
    *at += all;
    for (uint32_t i = 0; i < x->h.n_rows; i++) {
        uint32_t number = 0;
        struct ntx__sent_routed c = {0};
        if (numbers)
            memcpy(&number, x->number + i * sizeof number, sizeof number);
        if (choices)
            memcpy(&c, x->choice + i * sizeof c, sizeof c);
        if ((numbers && number >= x->h.n_distinct) || (choices && c.row >= x->h.n_live))
            return refuse_message(x->f, "rows that are not there");
    }
    return 0;
}

/* Copies rows of one form, each as often as it is wanted. */
static void spread_rows(const struct follower *x, const uint8_t *from, uint8_t *to, size_t stride)
{
    for (uint32_t i = 0; i < x->h.n_rows; i++) {
        uint32_t number;
        memcpy(&number, x->number + i * sizeof number, sizeof number);
        memcpy(to + i * stride, from + number * stride, stride);
    }
}

static void quantize_kept(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    const struct ntx__message_head *h = f->c.ranks->asked;
    (void)thread;
    ntx__quantize_into(f, f->quantized[h->set], h->forms, f->buf[h->buf].at + i * f->buf[h->buf].ld, h->n_in, i);
}

/* The input is the kept output of earlier products. */
static int take_kept(struct follower *x)
{
    struct ntx_forward *f = x->f;
    const bool right = x->hidden.here && x->hidden.buf == x->h.buf && x->hidden.layer == x->h.layer &&
                       x->hidden.n_rows == x->h.n_rows && x->hidden.n == x->h.n_in && !x->h.n_distinct;
    x->hidden.here = false;
    for (uint32_t form = NTX_ACT_F32 + 1; form < NTX_N_ACTS && right; form++)
        if (x->h.forms >> form & 1 && !f->quantized[x->h.set][form])
            return refuse_message(f, "an input of another form");
    if (!right)
        return refuse_message(f, "an input that was not kept");
    x->r->asked = &x->h;
    ntx__each(f, quantize_kept, x->h.n_rows);
    return 0;
}

/* Copies the input's rows to the pass's buffers. */
static int take_input(struct follower *x, const uint8_t *at, const uint8_t *end)
{
    struct ntx_forward *f = x->f;
    uint64_t most = NTX_MAX(f->c.max_rows, f->hp->n_expert_used);
    if (x->h.buf >= NTX__N_BUFS || !f->buf[x->h.buf].at || x->h.set > NTX__OF_ROUTED || !x->h.n_rows ||
        x->h.n_rows > most || x->h.n_in > f->buf[x->h.buf].ld)
        return refuse_message(f, "an input that has no place");
    if (x->h.n_rows > f->c.max_rows && x->h.set != NTX__OF_ROUTED)
        return refuse_message(f, "more rows than a pass has");
    int rc = take_lists(x, &at, end);
    if (rc)
        return rc;
    if (x->h.kept)
        return at == end ? take_kept(x) : refuse_message(f, "an input of another length");
    const uint32_t n = x->h.n_distinct ? x->h.n_distinct : x->h.n_rows;
    for (uint32_t form = 0; form < NTX_N_ACTS; form++) {
        if (!(x->h.forms >> form & 1))
            continue;
        size_t stride = ntx__stride(f, x->h.buf, (enum ntx_act)form, x->h.n_in), rows = n * stride;
        void *to = form == NTX_ACT_F32 ? (void *)f->buf[x->h.buf].at : f->quantized[x->h.set][form];
        if (!to || rows > (size_t)(end - at))
            return refuse_message(f, "an input of another length");
        if (x->h.n_distinct)
            spread_rows(x, at, to, stride);
        else
            memcpy(to, at, rows);
        at += rows;
    }
    return at == end ? 0 : refuse_message(f, "an input of another length");
}

static int take_products(struct follower *x, const uint8_t *bytes, size_t n)
{
    size_t list = x->h.n * sizeof *x->listed;
    int rc = 0;
    if (!x->h.n || x->h.n > NTX_MIN(sizeof x->listed / sizeof *x->listed, (size_t)2 * 1024) || list > n)
        return refuse_message(x->f, "another number of products");
    memcpy(x->listed, bytes, list);
    for (uint32_t i = 0; i < x->h.n && !rc; i++)
        rc = check_product(x, &x->listed[i]);
    if (!rc)
        rc = check_then(x);
    return rc ? rc : take_input(x, bytes + list, bytes + n);
}

/* ---- products */

/* Each row's logits have their own place, of which only the own rows are written. */
static int logits_room(struct follower *x)
{
    struct ntx_forward *f = x->f;
    if (ntx__ranks_room(&x->r->in[0], &x->r->in_bytes[0], (size_t)x->h.n_rows * f->hp->n_vocab * sizeof(float)))
        return ntx_err_set(&f->c.weights->error, -ENOMEM, "no memory for logits of %u rows", x->h.n_rows);
    for (uint32_t i = 0; i < x->h.n_rows; i++)
        f->m.logits[i] = (float *)(void *)x->r->in[0] + (size_t)i * f->hp->n_vocab;
    return 0;
}

/* Skips chunks up to `end` that rank 0 does not want: of dropped layers. */
static int skip_until(struct ntx_forward *f, uint32_t end)
{
    int rc = 0;
    for (uint32_t c = f->next_chunk; c < end && !rc; c++)
        if (!f->c.chunks->list[c].expert && !f->c.chunks->list[c].fixed)
            rc = ntx__skip_chunks(f, c, c + 1);
    return rc;
}

static unsigned add_product(struct follower *x, unsigned n, const struct ntx__message_product *s)
{
    const struct ntx_weight *w = product_weight(x->f, x->h.layer, s);
    x->w[n] = ntx__is_expert(s->kind) ? ntx_expert_weight(&x->f->c.chunks->layers[x->h.layer], s->expert,
                                                          (enum ntx_expert_part)(s->kind - NTX_T_expert_gate))
                                      : *w;
    x->p[n] = (struct ntx__product){.w = &x->w[n], .to = s->to, .at = s->at, .row0 = s->row0, .n_rows = s->n_rows};
    return n + 1;
}

static int run_products(struct follower *x, unsigned n)
{
    const struct ntx__input in = {.buf = x->h.buf, .set = x->h.set, .n_rows = x->h.n_rows};
    return ntx__cpu_multiply(x->f, x->p, n, &in);
}

static int run_dense(struct follower *x)
{
    unsigned n = 0;
    int rc = x->listed[0].kind == NTX_N_TENSORS ? logits_room(x) : 0;
    for (uint32_t i = 0; i < x->h.n; i++)
        n = add_product(x, n, &x->listed[i]);
    if (rc || (rc = skip_until(x->f, x->w[0].chunk0)))
        return rc;
    return run_products(x, n);
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t list_experts(struct follower *x)
{
    uint32_t n = 0, distinct = 0;
    for (uint32_t i = 0; i < x->h.n && n < sizeof x->wanted / sizeof *x->wanted; i++)
        if (!i || x->listed[i].expert != x->listed[i - 1].expert)
            x->wanted[n++] = x->listed[i].expert;
    qsort(x->wanted, n, sizeof *x->wanted, by_number);
    for (uint32_t i = 0; i < n; i++)
        if (!i || x->wanted[i] != x->wanted[i - 1])
            x->wanted[distinct++] = x->wanted[i];
    return distinct;
}

static void prefetch_experts(struct follower *x)
{
    struct ntx_weights *w = x->f->c.weights;
    if (x->n_prefetched && w->ops->prefetch_experts)
        w->ops->prefetch_experts(w, x->prefetched_layer, x->prefetch, x->n_prefetched);
    x->n_prefetched = 0;
}

/* A message without an answer: an error in it only costs the prefetch. */
static void on_prefetch(struct follower *x, const uint8_t *bytes, size_t n)
{
    const struct ntx_forward *f = x->f;
    const uint32_t l = x->h.layer, many = x->h.n;
    x->n_prefetched = 0;
    if (!x->passing || x->failed || l >= f->hp->n_layers || !f->c.chunks->layers[l].expert[NTX_EXPERT_GATE].n_chunks ||
        many > sizeof x->prefetch / sizeof *x->prefetch || n != many * sizeof *x->prefetch)
        return;
    memcpy(x->prefetch, bytes, n);
    for (uint32_t i = 0; i < many; i++)
        if (x->prefetch[i] >= f->hp->n_expert)
            return;
    x->n_prefetched = many;
    x->prefetched_layer = l;
    if (!l ||
        !f->c.chunks->layers[l - 1].expert[NTX_EXPERT_GATE].n_chunks) /* no experts of this machine are wanted before */
        prefetch_experts(x);
}

/* Products of experts wanted[at .. at + n). */
static int run_some(struct follower *x, uint32_t at, uint32_t n)
{
    unsigned k = 0;
    for (uint32_t i = 0; i < x->h.n; i++)
        if (x->listed[i].expert >= x->wanted[at] && x->listed[i].expert <= x->wanted[at + n - 1])
            k = add_product(x, k, &x->listed[i]);
    return run_products(x, k);
}

/* Reports the routing of a wave as if it were a pass of so many rows. Once, with the first products. */
static void report_routing(struct follower *x, uint32_t n)
{
    struct ntx_weights *w = x->f->c.weights;
    uint32_t rows[1024] = {0}, choices = 0;
    if (!w->ops->routed || x->listed[0].kind == NTX_T_expert_down)
        return;
    for (uint32_t i = 0, at; i < x->h.n; i++) {
        if (x->listed[i].kind != x->listed[0].kind)
            continue;
        for (at = 0; at < n && x->wanted[at] != x->listed[i].expert;)
            at++;
        if (at < n)
            rows[at] += x->listed[i].n_rows;
        choices += x->listed[i].n_rows;
    }
    w->ops->routed(w, x->h.layer, x->wanted, rows, n, NTX_MAX(choices / x->f->hp->n_expert_used, 1u), NULL);
}

/* As many at a time as there are frames for. */
static int run_experts(struct follower *x)
{
    struct ntx_weights *w = x->f->c.weights;
    uint32_t n = list_experts(x);
    int rc = 0;
    report_routing(x, n);
    memset(x->late, 0, sizeof x->late); /* all equal */
    for (uint32_t at = 0, some; at < n && !rc; at += some) {
        int got = w->ops->want ? w->ops->want(w, x->h.layer, x->wanted + at, n - at, true, x->late) : (int)(n - at);
        if (got <= 0)
            return got ? got : ntx_err_set(&w->error, -EPROTO, "no frame for an expert of layer %u", x->h.layer);
        some = (uint32_t)got;
        if (at + some == n && x->h.layer + 1 == x->prefetched_layer)
            prefetch_experts(x);
        rc = run_some(x, at, some);
        if (!rc && w->ops->done)
            w->ops->done(w, x->h.layer, x->wanted + at, some);
    }
    return rc;
}

/* ---- use of the outputs */

static struct ntx_share_range outs_of(const struct ntx_forward *f, const struct follower *x, uint32_t n_out)
{
    return ntx_share_of(&f->c.chunks->share, x->h.layer, n_out, x->r->rank);
}

static void make_hidden(struct follower *x)
{
    const uint32_t n = product_weight(x->f, x->h.layer, x->listed)->n_out;
    x->glu = (struct ntx__glu){.gate = x->h.gate, .up = x->h.up, .step = glu_step(x), .of_shared = x->h.of_shared};
    ntx__ranks_hide(x->r, x->f, &x->glu, outs_of(x->f, x, n), x->h.n_rows);
    x->hidden.here = x->h.then == NTX__THEN_KEPT && outs_of(x->f, x, n).n == n;
    x->hidden.layer = x->h.layer;
    x->hidden.n_rows = x->h.n_rows;
    x->hidden.n = n;
    x->hidden.buf = x->h.gate;
}

/* Own rows of Y, summed like combine (cpu_experts.c): choices are in the order of their experts. */
static void sum_choices(struct follower *x)
{
    const struct ntx_forward *f = x->f;
    const struct ntx_share_range own = outs_of(f, x, f->hp->n_embd);
    const size_t ld = f->hp->n_embd;
    float *y = f->m.y + own.first;
    for (uint32_t i = 0; i < x->h.n_live; i++) {
        float by = 1;
        if (x->h.flags & NTX__SUM_WEIGHS)
            memcpy(&by, x->by + i * sizeof by, sizeof by);
        if (x->h.flags & NTX__SUM_CLEARS)
            memset(y + i * ld, 0, own.n * sizeof *y);
        else if (x->h.flags & NTX__SUM_WEIGHS)
            for (uint32_t k = 0; k < own.n; k++)
                y[i * ld + k] *= by;
    }
    for (uint32_t i = 0; i < x->h.n_rows; i++) {
        struct ntx__sent_routed c;
        memcpy(&c, x->choice + i * sizeof c, sizeof c);
        f->c.ops->add_scaled(y + c.row * ld, c.weight, f->m.moe.y + i * ld + own.first, own.n);
    }
}

static int attend_heads(struct follower *x, const uint8_t *bytes, size_t n)
{
    uint64_t t0 = ntx_now_ns();
    int rc = x->passing ? ntx__ranks_kv_attend(x->r, x->f, &x->h, bytes, n)
                        : refuse_message(x->f, "attention that belongs to no pass");
    x->r->multiply_ns += ntx_now_ns() - t0;
    return rc;
}

static int compute_products(struct follower *x, const uint8_t *bytes, size_t n)
{
    int rc = x->passing ? take_products(x, bytes, n) : refuse_message(x->f, "products that belong to no pass");
    if (rc)
        return rc;
    uint64_t t0 = ntx_now_ns();
    x->f->layer = x->h.layer;
    rc = ntx__is_expert(x->listed[0].kind) ? run_experts(x) : run_dense(x);
    if (!rc && is_glu(&x->h))
        make_hidden(x);
    if (!rc && x->h.then == NTX__THEN_SUMMED)
        sum_choices(x);
    x->r->multiply_ns += ntx_now_ns() - t0;
    return rc;
}

/* ---- answer */

static size_t answer_floats(const struct follower *x)
{
    if (x->h.type == NTX__MSG_ATTEND)
        return ntx__ranks_kv_floats(x->r, x->f, &x->h);
    size_t n = x->h.flags & NTX__SUM_LAST ? (size_t)x->h.n_live * outs_of(x->f, x, x->f->hp->n_embd).n : 0;
    for (uint32_t i = 0; i < x->h.n; i++) {
        const struct ntx_weight *w = product_weight(x->f, x->h.layer, &x->listed[i]);
        if (ntx__answered(&x->h, x->listed[i].to))
            n += (size_t)x->listed[i].n_rows * (w ? outs_of(x->f, x, w->n_out).n : 0);
    }
    return n;
}

static void write_outputs(const struct follower *x, float *y)
{
    const struct ntx_forward *f = x->f;
    for (uint32_t i = 0; i < x->h.n; i++) {
        const struct ntx__message_product *s = &x->listed[i];
        const struct ntx_share_range own = outs_of(f, x, product_weight(f, x->h.layer, s)->n_out);
        for (uint32_t row = 0; row < s->n_rows && ntx__answered(&x->h, s->to); row++, y += own.n) {
            const float *from = s->to == NTX__BUF_LOGITS
                                    ? f->m.logits[row]
                                    : f->buf[s->to].at + (size_t)(s->row0 + row) * f->buf[s->to].ld + s->at;
            memcpy(y, from + own.first, own.n * sizeof *y);
        }
    }
    const struct ntx_share_range own = outs_of(f, x, f->hp->n_embd);
    for (uint32_t i = 0; x->h.flags & NTX__SUM_LAST && i < x->h.n_live; i++, y += own.n)
        memcpy(y, f->m.y + (size_t)i * f->hp->n_embd + own.first, own.n * sizeof *y);
}

static int send_answer(struct follower *x, int failed)
{
    struct ntx_ranks *r = x->r;
    const struct ntx_counters *c = x->f->c.counters;
    struct ntx__answer a = {.rc = failed,
                            .ring_ready = (uint16_t)ntx_counter_get(c, NTX_C_comp_ring_ready),
                            .ring_slots = (uint16_t)ntx_counter_get(c, NTX_C_comp_ring_slots),
                            .bytes_read = ntx_counter_get(c, NTX_C_iod_bytes_read),
                            .stall_ns = ntx_counter_get(c, NTX_C_comp_stall_ns),
                            .multiply_ns = r->multiply_ns,
                            .begin_ns = r->begin_ns,
                            .end_ns = ntx_now_ns()};
    size_t bytes = sizeof a + (failed ? NTX__ANSWER_TEXT : answer_floats(x) * sizeof(float));
    int rc = ntx__ranks_room(&r->out, &r->out_bytes, bytes);
    if (rc)
        return ntx_err_set(&x->f->c.weights->error, rc, "no memory for an answer of %zu bytes", bytes);
    memcpy(r->out, &a, sizeof a);
    if (failed)
        snprintf((char *)r->out + sizeof a, NTX__ANSWER_TEXT, "%.*s", (int)NTX__ANSWER_TEXT - 1,
                 x->f->c.weights->error.text);
    else if (x->h.type == NTX__MSG_ATTEND)
        ntx__ranks_kv_write(r, x->f, &x->h, (float *)(void *)(r->out + sizeof a));
    else
        write_outputs(x, (float *)(void *)(r->out + sizeof a));
    atomic_fetch_add_explicit(&r->messages, 1, memory_order_relaxed);
    if (!(rc = r->c.ops->send(r->c.net, 0, r->out, bytes)))
        rc = r->c.ops->wait(r->c.net, r->c.limit_ms);
    return rc ? ntx_err_set(&x->f->c.weights->error, rc, "the first machine cannot be reached: %s",
                            r->c.ops->error(r->c.net))
              : 0;
}

/* whole: it did not fail elsewhere. */
static void end_pass(struct follower *x, bool whole)
{
    struct ntx_weights *w = x->f->c.weights;
    if (!x->passing)
        return;
    if (whole && !x->failed)
        skip_until(x->f, x->f->c.chunks->n);
    w->ops->end(w);
    x->passing = false;
}

static void begin_pass(struct follower *x, const uint8_t *bytes, size_t n)
{
    struct ntx_weights *w = x->f->c.weights;
    end_pass(x, false);
    x->f->next_chunk = 0;
    x->hidden.here = false;
    x->n_prefetched = 0;
    atomic_store(&x->f->failed, 0);
    x->failed = w->ops->begin(w, x->h.pass);
    x->passing = !x->failed;
    int rc = x->r->kv ? ntx__ranks_kv_take_pass(x->r, x->f, &x->h, bytes, n)
                      : 0; /* changes of blocks are applied, whatever fails */
    x->failed = x->failed ? x->failed : rc;
}

static int on_message(struct follower *x, const uint8_t *bytes, size_t n)
{
    struct ntx_weights *w = x->f->c.weights;
    switch (x->h.type) {
    case NTX__MSG_BEGIN: begin_pass(x, bytes, n); return 0;
    case NTX__MSG_END: end_pass(x, !x->h.n); return 0;
    case NTX__MSG_DROP:
        if (x->passing && !x->failed && x->h.layer <= NTX_END_OF_LAST(x->f->hp->n_layers))
            w->ops->drop_layer(w, x->h.layer);
        return 0;
    case NTX__MSG_PREFETCH: on_prefetch(x, bytes, n); return 0;
    case NTX__MSG_PRODUCTS:
    case NTX__MSG_ATTEND:
        x->r->begin_ns = ntx_now_ns();
        if (!x->failed)
            x->failed = x->h.type == NTX__MSG_ATTEND ? attend_heads(x, bytes, n) : compute_products(x, bytes, n);
        return ntx__has_answer(&x->h) ? send_answer(x, x->failed) : 0;
    default: return refuse_message(x->f, "a word that is not known");
    }
}

int ntx_ranks_follow(struct ntx_ranks *r, struct ntx_forward *f, const atomic_bool *stop)
{
    struct follower *x = calloc(1, sizeof *x);
    int rc = x && (!r->pool || (r->kv = ntx__ranks_kv_new(r, f)))
                 ? 0
                 : ntx_err_set(&f->c.weights->error, -ENOMEM, "no memory");
    struct ntx_err first = {0};
    while (!rc) {
        const void *bytes;
        size_t n;
        rc = r->c.ops->next(r->c.net, 0, &bytes, &n, x->passing ? FIRST_SILENT * r->c.limit_ms : 0, stop);
        if (rc) {
            if (rc != -ECANCELED)
                ntx_err_set(&f->c.weights->error, rc, "the first machine cannot be reached: %s",
                            r->c.ops->error(r->c.net));
            break;
        }
        if (n < sizeof x->h) {
            rc = refuse_message(f, "no header");
            break;
        }
        x->r = r;
        x->f = f;
        memcpy(&x->h, bytes, sizeof x->h);
        if (x->h.type == NTX__MSG_QUIT)
            break;
        rc = on_message(x, (const uint8_t *)bytes + sizeof x->h, n - sizeof x->h);
    }
    first = f->c.weights->error;
    if (x) {
        end_pass(x, false);
        free(x->kept);
    }
    f->c.weights->error = first;
    ntx__ranks_kv_free(r->kv);
    r->kv = NULL;
    free(x);
    return rc;
}
