/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/reply.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/util.h"
#include "proto/frame.h"

struct ntx_reply_queue {
    atomic_uint refs;
    struct ntx_output_budget *output_budget;
    uint64_t client, scope;
    atomic_size_t pending;
    atomic_bool closed, lost, rests, stalls;
};

void ntx_output_budget_init(struct ntx_output_budget *o, uint32_t max_clients)
{
    atomic_init(&o->pending, 0);
    o->share = NTX_OUTPUT_BUDGET_FULL / 2 / NTX_MAX(max_clients, 1u);
}

struct ntx_reply_queue *ntx_reply_queue_new(struct ntx_output_budget *o, uint64_t client)
{
    struct ntx_reply_queue *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    atomic_init(&s->refs, 1);
    s->output_budget = o;
    s->client = client;
    return s;
}

struct ntx_reply_queue *ntx_reply_queue_ref(struct ntx_reply_queue *s)
{
    atomic_fetch_add(&s->refs, 1);
    return s;
}

void ntx_reply_queue_unref(struct ntx_reply_queue *s)
{
    if (s && atomic_fetch_sub(&s->refs, 1) == 1)
        free(s);
}

uint64_t ntx_reply_queue_client(const struct ntx_reply_queue *s) { return s->client; }
void ntx_reply_queue_whose(struct ntx_reply_queue *s, uint64_t scope) { s->scope = scope; }
uint64_t ntx_reply_queue_scope(const struct ntx_reply_queue *s) { return s->scope; }
void ntx_reply_queue_close(struct ntx_reply_queue *s) { atomic_store(&s->closed, true); }
bool ntx_reply_queue_closed(const struct ntx_reply_queue *s) { return atomic_load(&s->closed); }
void ntx_reply_queue_lose(struct ntx_reply_queue *s) { atomic_store(&s->lost, true); }
bool ntx_reply_queue_lost(const struct ntx_reply_queue *s) { return atomic_load(&s->lost); }

static size_t remaining(size_t limit, size_t used) { return used < limit ? limit - used : 0; }

static size_t queue_room(const struct ntx_output_budget *o, size_t pending, size_t all)
{
    return NTX_MAX(remaining(o->share, pending),
                   NTX_MIN(remaining(NTX_REPLY_QUEUE_FULL, pending), remaining(NTX_OUTPUT_BUDGET_FULL / 2, all)));
}

size_t ntx_reply_queue_room(const struct ntx_reply_queue *s)
{
    return queue_room(s->output_budget, atomic_load(&s->pending), atomic_load(&s->output_budget->pending));
}

void ntx_reply_queue_stall(struct ntx_reply_queue *s, bool stalls) { atomic_store(&s->stalls, stalls); }
bool ntx_reply_queue_stalls(const struct ntx_reply_queue *s)
{
    return atomic_load(&s->stalls) || !ntx_reply_queue_room(s);
}

/* Both sides store before they look, so the second one sees the other's store. */
void ntx_reply_queue_rest(struct ntx_reply_queue *s)
{
    atomic_store(&s->rests, true);
    if (!atomic_load(&s->pending))
        atomic_store(&s->rests, false);
}

bool ntx_reply_queue_rests(const struct ntx_reply_queue *s) { return atomic_load(&s->rests); }

/* Whether the queue was full is decided by the values subtracted here. A look before the subtraction could miss that
 * the engine filled it in between, and nothing would wake the engine. */
bool ntx_reply_queue_sent(struct ntx_reply_queue *s, size_t bytes)
{
    struct ntx_output_budget *o = s->output_budget;
    bytes += NTX_REPLY_QUEUE_FRAME;
    size_t pending = atomic_fetch_sub(&s->pending, bytes), all = atomic_fetch_sub(&o->pending, bytes);
    bool wakes = pending == bytes && atomic_exchange(&s->rests, false);
    return wakes || !queue_room(o, pending, all) ||
           (all >= NTX_OUTPUT_BUDGET_FULL / 2 && all - bytes < NTX_OUTPUT_BUDGET_FULL / 2);
}

/* An eventfd instead of uv_async: where uv_async_send's write wakes the main thread on the sender's own processor,
 * libuv waits in a loop for the sender, which cannot run. */
struct ntx_mailbox {
    pthread_mutex_t lock;
    struct ntx_mail *first, **last;
    int fd;
    uv_poll_t poll;
    ntx_mail_cb *cb;
    void *ctx;
};

static void free_mail(struct ntx_mail *m)
{
    ntx_reply_queue_unref(m->replies);
    free(m->frame);
    free(m);
}

static struct ntx_mail *take_mails(struct ntx_mailbox *b)
{
    pthread_mutex_lock(&b->lock);
    struct ntx_mail *m = b->first;
    b->first = NULL;
    b->last = &b->first;
    pthread_mutex_unlock(&b->lock);
    return m;
}

void ntx_mailbox_flush(struct ntx_mailbox *b)
{
    for (struct ntx_mail *m = take_mails(b), *next; m; m = next) {
        next = m->next;
        b->cb(b->ctx, m);
        free_mail(m);
    }
}

/* The count is taken before the mails: a mail that comes in between is taken, or has its own wake-up. */
static void on_mail(uv_poll_t *poll, int status, int events)
{
    struct ntx_mailbox *b = poll->data;
    (void)status;
    (void)events;
    eventfd_t n;
    (void)eventfd_read(b->fd, &n);
    ntx_mailbox_flush(b);
}

int ntx_mailbox_new(uv_loop_t *loop, ntx_mail_cb *cb, void *ctx, struct ntx_mailbox **out)
{
    struct ntx_mailbox *b = calloc(1, sizeof *b);
    if (!b)
        return UV_ENOMEM;
    b->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int rc = b->fd < 0 ? -errno : uv_poll_init(loop, &b->poll, b->fd);
    if (rc) {
        if (b->fd >= 0)
            close(b->fd);
        free(b);
        return rc;
    }
    pthread_mutex_init(&b->lock, NULL);
    b->last = &b->first;
    b->poll.data = b;
    b->cb = cb;
    b->ctx = ctx;
    uv_poll_start(&b->poll, UV_READABLE, on_mail);
    *out = b;
    return 0;
}

static void on_poll_closed(uv_handle_t *h)
{
    struct ntx_mailbox *b = h->data;
    for (struct ntx_mail *m = take_mails(b), *next; m; m = next) {
        next = m->next;
        free_mail(m);
    }
    pthread_mutex_destroy(&b->lock);
    close(b->fd);
    free(b);
}

void ntx_mailbox_free(struct ntx_mailbox *b)
{
    if (b)
        uv_close((uv_handle_t *)&b->poll, on_poll_closed);
}

static void post_mail(struct ntx_mailbox *b, struct ntx_mail *m)
{
    pthread_mutex_lock(&b->lock);
    const bool wakes = !b->first;
    *b->last = m;
    b->last = &m->next;
    pthread_mutex_unlock(&b->lock);
    if (wakes)
        (void)eventfd_write(b->fd, 1);
}

void ntx_mail_reply(struct ntx_mailbox *b, struct ntx_reply_queue *replies, const Ntx__Reply *r, bool last)
{
    if (ntx_reply_queue_closed(replies))
        return;
    struct ntx_mail *m = calloc(1, sizeof *m);
    if (!m || ntx_reply_encode(r, &m->frame, &m->len)) {
        free(m);
        ntx_reply_queue_lose(replies);
        ntx_mail_note(b, NTX_MAIL_IDLE); /* wakes the main thread, which looks for lost queues */
        return;
    }
    m->kind = NTX_MAIL_REPLY;
    m->replies = ntx_reply_queue_ref(replies);
    m->last = last;
    m->id = r->id;
    atomic_fetch_add(&replies->pending, m->len + NTX_REPLY_QUEUE_FRAME);
    atomic_fetch_add(&replies->output_budget->pending, m->len + NTX_REPLY_QUEUE_FRAME);
    post_mail(b, m);
}

static void mail_error(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, int err, const char *text,
                       bool last)
{
    Ntx__Error e = NTX__ERROR__INIT;
    e.err = err;
    e.text = (char *)(uintptr_t)text;
    Ntx__Reply r = NTX__REPLY__INIT;
    r.id = id;
    r.body_case = NTX__REPLY__BODY_ERROR;
    r.error = &e;
    ntx_mail_reply(b, replies, &r, last);
}

void ntx_mail_error(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, int err, const char *fmt, ...)
{
    char text[640];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    mail_error(b, replies, id, err, text, true);
}

void ntx_mail_refusal(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, int err, const char *text)
{
    mail_error(b, replies, id, err, text, false);
}

void ntx_mail_answered(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id,
                       const struct ntx_answered *a)
{
    Ntx__Done d = NTX__DONE__INIT;
    d.finish = (char *)(uintptr_t)a->finish;
    d.stop = (char *)(uintptr_t)(a->stop ? a->stop : "");
    d.stats_json = (char *)(uintptr_t)(a->stats_json ? a->stats_json : "");
    d.cached_tokens = a->cached_tokens;
    Ntx__Reply r = NTX__REPLY__INIT;
    r.id = id;
    r.body_case = NTX__REPLY__BODY_DONE;
    r.done = &d;
    ntx_mail_reply(b, replies, &r, true);
}

void ntx_mail_done(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, const char *finish,
                   const char *stats_json)
{
    ntx_mail_answered(b, replies, id, &(struct ntx_answered){.finish = finish, .stats_json = stats_json});
}

void ntx_mail_how_far(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, const struct ntx_how_far *p)
{
    Ntx__Progress m = NTX__PROGRESS__INIT;
    Ntx__Reply r = NTX__REPLY__INIT;
    m.phase = (char *)(uintptr_t)p->phase;
    m.done = p->done;
    m.total = p->total;
    m.bytes_per_s = p->bytes_per_s;
    m.left_s = p->left_s;
    m.layer = p->layer;
    m.layers = p->layers;
    m.prompt_done = p->prompt_done;
    m.prompt_total = p->prompt_total;
    r.id = id;
    r.body_case = NTX__REPLY__BODY_PROGRESS;
    r.progress = &m;
    ntx_mail_reply(b, replies, &r, false);
}

void ntx_mail_progress(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, const char *phase,
                       uint64_t done, uint64_t total)
{
    ntx_mail_how_far(b, replies, id, &(struct ntx_how_far){.phase = phase, .done = done, .total = total});
}

void ntx_mail_started(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, const struct ntx_started *s)
{
    Ntx__Started m = NTX__STARTED__INIT;
    Ntx__Reply r = NTX__REPLY__INIT;
    m.session = s->session;
    m.prompt_tokens = s->prompt_tokens;
    m.seed = s->seed;
    m.context = s->context;
    m.ctx = s->ctx;
    if (s->note)
        m.note = (char *)(uintptr_t)s->note;
    if (s->think_note)
        m.think_note = (char *)(uintptr_t)s->think_note;
    r.id = id;
    r.body_case = NTX__REPLY__BODY_STARTED;
    r.started = &m;
    ntx_mail_reply(b, replies, &r, false);
}

enum { TOP_MOST = 20 };

void ntx_mail_token(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, int32_t token,
                    const char *text, size_t len, const struct ntx_token_probs *probs)
{
    Ntx__Token t = NTX__TOKEN__INIT;
    Ntx__Reply r = NTX__REPLY__INIT;
    Ntx__TopToken top[TOP_MOST], *list[TOP_MOST];
    if (probs) {
        t.own = (ProtobufCBinaryData){probs->it.len, (uint8_t *)(uintptr_t)probs->it.own};
        t.logprob = probs->it.logprob;
        t.top = list;
        for (t.n_top = 0; t.n_top < probs->n && t.n_top < TOP_MOST; t.n_top++) {
            const struct ntx_token_prob *p = &probs->top[t.n_top];
            ntx__top_token__init(list[t.n_top] = &top[t.n_top]);
            top[t.n_top].token = p->token;
            top[t.n_top].logprob = p->logprob;
            top[t.n_top].own = (ProtobufCBinaryData){p->len, (uint8_t *)(uintptr_t)p->own};
        }
    }
    t.token = token;
    t.text = (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)text};
    r.id = id;
    r.body_case = NTX__REPLY__BODY_TOKEN;
    r.token = &t;
    ntx_mail_reply(b, replies, &r, false);
}

void ntx_mail_score(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id,
                    const struct ntx_scores *scores, const char *stats_json)
{
    Ntx__Score m = NTX__SCORE__INIT;
    Ntx__Reply r = NTX__REPLY__INIT;
    m.nll = scores->nll;
    m.count = scores->n;
    m.each = (float *)(uintptr_t)scores->each;
    m.best = (float *)(uintptr_t)scores->best;
    m.best_token = (int32_t *)(uintptr_t)scores->best_token;
    m.n_each = m.n_best = m.n_best_token = scores->n;
    if (stats_json)
        m.stats_json = (char *)(uintptr_t)stats_json;
    r.id = id;
    r.body_case = NTX__REPLY__BODY_SCORE;
    r.score = &m;
    ntx_mail_reply(b, replies, &r, true);
}

static ProtobufCBinaryData pack_floats(struct ntx_floats f)
{
    return (ProtobufCBinaryData){f.n * sizeof *f.v, (uint8_t *)(uintptr_t)f.v};
}

void ntx_mail_logits(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, uint32_t row,
                     const float *logits, uint32_t n)
{
    Ntx__LogitsRow m = NTX__LOGITS_ROW__INIT;
    Ntx__Reply r = NTX__REPLY__INIT;
    m.row = row;
    m.f32 = pack_floats((struct ntx_floats){logits, n});
    r.id = id;
    r.body_case = NTX__REPLY__BODY_LOGITS;
    r.logits = &m;
    ntx_mail_reply(b, replies, &r, false);
}

void ntx_mail_states(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id,
                     const struct ntx_states_row *s)
{
    Ntx__StatesRow m = NTX__STATES_ROW__INIT;
    Ntx__Reply r = NTX__REPLY__INIT;
    m.row = s->row;
    m.state = pack_floats(s->state);
    m.similar = pack_floats(s->similar);
    m.ffn_state = pack_floats(s->ffn_state);
    m.ffn_energy = pack_floats(s->ffn_energy);
    r.id = id;
    r.body_case = NTX__REPLY__BODY_STATES;
    r.states = &m;
    ntx_mail_reply(b, replies, &r, false);
}

void ntx_mail_step(struct ntx_mailbox *b, struct ntx_reply_queue *replies, uint64_t id, const struct ntx_step_row *s)
{
    Ntx__StepRow m = NTX__STEP_ROW__INIT;
    Ntx__Reply r = NTX__REPLY__INIT;
    m.row = s->row;
    m.layer = s->layer;
    m.step = s->step;
    m.name = (char *)(uintptr_t)s->name;
    m.buffer = (char *)(uintptr_t)s->buffer;
    m.width = s->width;
    m.digest = s->digest;
    m.min = s->min;
    m.max = s->max;
    m.mean = s->mean;
    if (s->values)
        m.values = pack_floats((struct ntx_floats){s->values, s->width});
    r.id = id;
    r.body_case = NTX__REPLY__BODY_STEP;
    r.step = &m;
    ntx_mail_reply(b, replies, &r, false);
}

void ntx_mail_probe(struct ntx_mailbox *b, uint32_t index, uint32_t gen, uint64_t pass)
{
    struct ntx_mail *m = calloc(1, sizeof *m);
    /* the pass asks again */
    if (!m)
        return;
    m->kind = NTX_MAIL_PROBE;
    m->probe_index = index;
    m->probe_gen = gen;
    m->pass = pass;
    post_mail(b, m);
}

void ntx_mail_note(struct ntx_mailbox *b, enum ntx_mail_kind kind)
{
    struct ntx_mail *m = calloc(1, sizeof *m);
    if (!m)
        return;
    m->kind = kind;
    post_mail(b, m);
}
