/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/call.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/gateway/models.h"
#include "client/where.h"
#include "common/util.h"
#include "proto/frame.h"
#include "proto/settings.h"

enum { MOST_TOKENS = 1 << 28, SEND_MS = 30000, STATUS_ID = 1, FIRST_ID = 2 }; /* choice i is request FIRST_ID + i */

struct ntx_call {
    struct ntx_gate *gate;
    int sock, client;
    struct ntx_slot *slot; /* NULL: a status request needs none */
    const char *known;     /* NULL: any model */
    struct ntx_frame_in in;
    Ntx__Reply *last; /* owns the texts of the last event */
};

/* ---- the gate */

enum { TURNS = 256 }; /* as many as there may be connections (http.c) */

static int set_places(struct ntx_gate *g, const char *const *dirs, unsigned n, struct ntx_err *err)
{
    g->n_places = NTX_MIN(NTX_MAX(n, 1u), NTX_PLACES);
    for (unsigned i = 0; dirs && i < n && i < NTX_PLACES; i++) {
        if (dirs[i] && strlen(dirs[i]) >= sizeof g->dir[i])
            return ntx_err_set(err, -EINVAL, "%s: longer than %zu bytes", dirs[i], sizeof g->dir[i] - 1);
        snprintf(g->dir[i], sizeof g->dir[i], "%s", dirs[i] ? dirs[i] : "");
    }
    return 0;
}

int ntx_gate_open(struct ntx_gate *g, const char *const *dirs, unsigned n, const struct ntx_slots_config *slots,
                  int64_t keep_ms, struct ntx_err *err)
{
    int rc = set_places(g, dirs, n, err);
    if (rc)
        return rc;
    g->quit = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (g->quit < 0)
        return ntx_err_set(err, -errno, "eventfd: %s", strerror(errno));
    for (unsigned i = 0; !rc && i < NTX_PLACES; i++)
        rc = -pthread_mutex_init(&g->look[i].lock, NULL);
    if (!rc)
        rc = -pthread_mutex_init(&g->models.lock, NULL);
    if (!rc)
        rc = ntx_slots_init(&g->slots, slots);
    if (!rc)
        rc = ntx_turns_new(&(struct ntx_turns_config){.load = ntx_models_load,
                                                      .tell = ntx_models_tell,
                                                      .arg = g,
                                                      .places = g->n_places,
                                                      .most = slots->refuse ? 0 : TURNS,
                                                      .keep_ms = keep_ms},
                           &g->turns);
    return rc ? ntx_err_set(err, rc, "no lock: %s", strerror(-rc)) : 0;
}

void ntx_gate_quit(struct ntx_gate *g)
{
    uint64_t one = 1;
    if (write(g->quit, &one, sizeof one) != sizeof one)
        return; /* write fails only with a full counter, which cannot happen */
}

void ntx_gate_close(struct ntx_gate *g)
{
    ntx_turns_free(g->turns);
    ntx_slots_end(&g->slots);
    close(g->quit);
    free(g->models.said);
    pthread_mutex_destroy(&g->models.lock);
    for (unsigned i = 0; i < NTX_PLACES; i++) {
        free(g->look[i].said);
        pthread_mutex_destroy(&g->look[i].lock);
    }
}

int ntx_gate_where(const struct ntx_gate *g, unsigned place, char dir[200], struct ntx_err *err)
{
    struct ntx_where w;
    const char *given = g->dir[place];
    int rc = *given ? 0 : ntx_where(false, &w, err);
    snprintf(dir, 200, "%s", *given ? given : w.dir);
    return rc;
}

/* ---- waiting */

static int check_gone(const struct ntx_call *c, const struct pollfd p[3], struct ntx_err *err)
{
    if (p[2].revents)
        return ntx_err_set(err, -ESHUTDOWN, "the gateway is shutting down");
    return c->client >= 0 && p[1].revents ? ntx_err_set(err, -ECANCELED, "the client is gone") : 0;
}

/* Waits until fd is readable (POLLIN) or writable (POLLOUT). */
static int wait_for(const struct ntx_call *c, int fd, short events, int timeout_ms, struct ntx_err *err)
{
    struct pollfd p[3] = {
        {.fd = fd, .events = events}, {.fd = c->client, .events = POLLRDHUP}, {.fd = c->gate->quit, .events = POLLIN}};
    int n = poll(p, 3, timeout_ms);
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    return n ? check_gone(c, p, err) : -ETIMEDOUT;
}

/* Waits for a slot, also after one was lost. -ETIMEDOUT: none in timeout_ms; -1: no limit. */
static int wait_for_slot(struct ntx_call *c, int timeout_ms, struct ntx_err *err)
{
    const uint64_t until = ntx_now_ns() + (uint64_t)NTX_MAX(timeout_ms, 0) * 1000000;
    while (c->slot && !ntx_slot_held(c->slot)) {
        ntx_slots_look(&c->gate->slots, ntx_now_ns());
        int rc = wait_for(c, ntx_slot_fd(c->slot), POLLIN, NTX_SLOTS_LOOK_MS, err);
        if (rc && rc != -ETIMEDOUT)
            return rc;
        if (timeout_ms >= 0 && ntx_now_ns() > until)
            return -ETIMEDOUT;
    }
    return 0;
}

static int take_slot(struct ntx_call *c, const struct ntx_caller *by, struct ntx_err *err)
{
    int rc = ntx_slot_new(&c->gate->slots, by, ntx_now_ns(), &c->slot);
    if (rc)
        return ntx_err_set(err, rc,
                           rc == -EBUSY ? "busy: as many requests as there are slots for are under way, and none waits "
                                          "here ([clients] queue_wait = no); try again later"
                                        : "no slot: %s",
                           strerror(-rc));
    return wait_for_slot(c, -1, err);
}

void ntx_call_client(struct ntx_call *c, bool takes)
{
    if (c && c->slot)
        ntx_slot_takes(c->slot, takes, ntx_now_ns());
}

static int connect_computed(struct ntx_gate *g, const char *dir, struct ntx_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if ((size_t)snprintf(a.sun_path, sizeof a.sun_path, "%s/ntx.sock", dir) >= sizeof a.sun_path)
        return ntx_err_set(err, -ENAMETOOLONG, "%s: too long for a socket's path", dir);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return ntx_err_set(err, -errno, "socket: %s", strerror(errno));
    const struct timeval patience = {.tv_sec = SEND_MS /
                                               1000}; /* of connect, where many wait before us; sends do not block */
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (!connect(s, (struct sockaddr *)&a, sizeof a)) {
        atomic_store(&g->gone_ns, 0);
        return s;
    }
    int e = errno, rc;
    close(s);
    if (e != EACCES && (rc = ntx_gate_gone(g, dir, err)))
        return rc;
    return ntx_err_set(err, e == EACCES ? -e : -ECONNREFUSED, "ntx's daemons do not answer (%s)", strerror(e));
}

int ntx_call_open(struct ntx_gate *g, unsigned place, const struct ntx_caller *by, bool slot, struct ntx_call **out,
                  struct ntx_err *err)
{
    char dir[200];
    struct ntx_call *c = calloc(1, sizeof *c);
    if (!c)
        return ntx_err_set(err, -ENOMEM, "no memory");
    *c = (struct ntx_call){.gate = g, .sock = -1, .client = by->fd};
    int rc = slot ? take_slot(c, by, err) : 0;
    if (!rc)
        rc = ntx_gate_where(g, place, dir, err);
    if (!rc) {
        c->sock = connect_computed(g, dir, err);
        rc = c->sock < 0 ? c->sock : 0;
    }
    if (rc) {
        ntx_call_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void ntx_call_close(struct ntx_call *c)
{
    if (!c)
        return;
    if (c->sock >= 0)
        close(c->sock);
    ntx_slot_free(c->slot);
    ntx_frame_free(&c->in);
    if (c->last)
        ntx__reply__free_unpacked(c->last, NULL);
    free(c);
}

/* ---- requests */

/* Sends all; ntx-computed must take some of it within SEND_MS. A client that leaves meanwhile is noticed. */
static int send_all(struct ntx_call *c, const uint8_t *p, size_t n, struct ntx_err *err)
{
    while (n) {
        ssize_t k = send(c->sock, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        int rc = 0;
        if (k < 0 && errno == EAGAIN)
            rc = wait_for(c, c->sock, POLLOUT, SEND_MS, err);
        else if (k < 0 && errno != EINTR)
            rc = -errno;
        if (rc)
            return rc;
        p += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
    return 0;
}

static int send_request(struct ntx_call *c, Ntx__Request *q, struct ntx_err *err)
{
    uint8_t *frame;
    size_t n;
    if (c->slot)
        q->client = ntx_slot_client(c->slot);
    if (c->known)
        q->known = (char *)(uintptr_t)c->known;
    if (!ntx_request_valid(q))
        return ntx_err_set(err, -EINVAL, "the request is larger than ntx-computed accepts");
    int rc = ntx_request_encode(q, &frame, &n);
    if (!rc) {
        rc = send_all(c, frame, n, err);
        free(frame);
    }
    if (rc == -ECANCELED || rc == -ESHUTDOWN)
        return rc;
    if (rc == -EMSGSIZE)
        return ntx_err_set(err, rc, "the prompt is too long: a request may have %u MiB, pictures included",
                           NTX_FRAME_MAX >> 20);
    return rc ? ntx_err_set(err, rc, "ntx-computed takes no request: %s", strerror(-rc)) : 0;
}

int ntx_call_status(struct ntx_call *c, struct ntx_err *err)
{
    Ntx__StatusReq s = NTX__STATUS_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    q.id = STATUS_ID;
    q.body_case = NTX__REQUEST__BODY_STATUS;
    q.status = &s;
    return send_request(c, &q, err);
}

void ntx_call_for(struct ntx_call *c, const char *known) { c->known = known; }

int ntx_call_models(struct ntx_call *c, struct ntx_err *err)
{
    Ntx__Models m = NTX__MODELS__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    q.id = STATUS_ID;
    q.body_case = NTX__REQUEST__BODY_MODELS;
    q.models = &m;
    return send_request(c, &q, err);
}

int ntx_call_load(struct ntx_call *c, const char *known, uint64_t beside, struct ntx_err *err)
{
    Ntx__Load m = NTX__LOAD__INIT;
    Ntx__Unload u = NTX__UNLOAD__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    m.known = (char *)(uintptr_t)known;
    m.when = NTX__WHEN__DRAIN;
    m.beside_bytes = beside;
    q.id = STATUS_ID;
    q.body_case = *known ? NTX__REQUEST__BODY_LOAD : NTX__REQUEST__BODY_UNLOAD;
    if (*known)
        q.load = &m;
    else
        q.unload = &u;
    return send_request(c, &q, err);
}

int ntx_call_queue(struct ntx_call *c, const struct ntx_turns_state *s, struct ntx_err *err)
{
    Ntx__Models m = NTX__MODELS__INIT;
    Ntx__Queue w = NTX__QUEUE__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    w.waiting = s->waiting;
    w.next = (char *)(uintptr_t)s->next;
    w.waited_ms = s->waiting && *s->next ? (ntx_now_ns() - s->waiting_ns) / 1000000 : 0;
    m.queue = &w;
    q.id = STATUS_ID;
    q.body_case = NTX__REQUEST__BODY_MODELS;
    q.models = &m;
    return send_request(c, &q, err);
}

static ProtobufCBinaryData wire_bytes(const char *p, size_t n)
{
    return (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)p};
}

static size_t count_images(const struct ntx_api_request *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_messages; i++)
        n += a->messages[i].images.n;
    return n;
}

/* Fills n pointers and the images that they point to. */
static void wire_images(const struct ntx_api_request_image *from, size_t n, Ntx__Image **list, Ntx__Image *each)
{
    for (size_t i = 0; i < n; i++) {
        ntx__image__init(list[i] = &each[i]);
        each[i].at = (uint32_t)from[i].at;
        each[i].data = (ProtobufCBinaryData){from[i].n, from[i].data};
    }
}

/* The request's messages as a list of n pointers, and behind it the messages, pointers to their images, and the images;
 * or NULL. Free it. */
static Ntx__Message **wire_messages(const struct ntx_api_request *a)
{
    const size_t n = a->n_messages, n_images = count_images(a);
    Ntx__Message **list = calloc(1, (n + 1) * (sizeof *list + sizeof **list) +
                                        n_images * (sizeof(Ntx__Image *) + sizeof(Ntx__Image))),
                 *each = list ? (void *)(list + n + 1) : NULL;
    Ntx__Image **pictures = list ? (void *)(each + n + 1) : NULL,
               *picture = list ? (void *)(pictures + n_images) : NULL;
    for (size_t i = 0; list && i < n; i++) {
        const struct ntx_api_request_images *m = &a->messages[i].images;
        ntx__message__init(list[i] = &each[i]);
        each[i].role = (char *)(uintptr_t)a->messages[i].role;
        each[i].text = (ProtobufCBinaryData){a->messages[i].len, (uint8_t *)a->messages[i].text};
        each[i].fields = wire_bytes(a->messages[i].fields, a->messages[i].fields ? strlen(a->messages[i].fields) : 0);
        wire_images(m->list, m->n, pictures, picture);
        each[i].images = pictures;
        each[i].n_images = m->n;
        pictures += m->n;
        picture += m->n;
    }
    return list;
}

static ProtobufCBinaryData wire_variables(const struct ntx_api_request *a)
{
    return wire_bytes(a->variables, a->variables ? strlen(a->variables) : 0);
}

int ntx_call_text(struct ntx_call *c, const struct ntx_call_text *t, struct ntx_err *err)
{
    Ntx__TextReq m = NTX__TEXT_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    m.messages = t->talk ? wire_messages(t->talk) : NULL;
    if (t->talk && !m.messages)
        return ntx_err_set(err, -ENOMEM, "no memory");
    m.n_messages = t->talk ? t->talk->n_messages : 0;
    if (t->talk)
        m.variables = wire_variables(t->talk);
    if (t->talk && t->talk->think.text[0])
        m.think = (char *)(uintptr_t)t->talk->think.text;
    m.pieces = t->pieces;
    m.template_ = t->template;
    m.text = wire_bytes(t->text, t->len);
    m.suffix = wire_bytes(t->suffix, t->n_suffix);
    m.tokens = (int32_t *)(uintptr_t)t->tokens;
    m.n_tokens = t->n_tokens;
    m.bos = t->bos;
    m.special = t->special;
    m.infill = t->infill;
    q.id = STATUS_ID;
    q.body_case = NTX__REQUEST__BODY_TEXT;
    q.text = &m;
    int rc = send_request(c, &q, err);
    free(m.messages);
    return rc;
}

int ntx_call_score(struct ntx_call *c, const int32_t *tokens, size_t n, struct ntx_err *err)
{
    Ntx__ScoreReq m = NTX__SCORE_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    m.tokens = (int32_t *)(uintptr_t)tokens;
    m.n_tokens = n;
    m.from = 1;
    q.id = FIRST_ID;
    q.body_case = NTX__REQUEST__BODY_SCORE;
    q.score = &m;
    return send_request(c, &q, err);
}

int ntx_call_pool(struct ntx_call *c, const int32_t *tokens, size_t n, struct ntx_err *err)
{
    Ntx__LogitsReq m = NTX__LOGITS_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    m.tokens = (int32_t *)(uintptr_t)tokens;
    m.n_tokens = n;
    m.pool = true;
    q.id = FIRST_ID;
    q.body_case = NTX__REQUEST__BODY_LOGITS;
    q.logits = &m;
    return send_request(c, &q, err);
}

static void set_sampling(const struct ntx_api_request *a, Ntx__Sampling *s)
{
    s->temp = a->temp;
    s->top_k = a->top_k;
    s->top_p = a->top_p > 0 ? a->top_p : NTX_LEAST_SHARE;
    s->min_p = a->min_p;
    s->repeat_penalty = a->repeat_last ? a->repeat_penalty : 0; /* in the message, repeat_last 0 is the default */
    s->repeat_last = NTX_MIN(a->repeat_last, MOST_TOKENS);
    s->presence_penalty = a->presence_penalty;
    s->frequency_penalty = a->frequency_penalty;
    s->seed = a->seed;
    s->typical_p = a->typical_p > 0 ? a->typical_p : NTX_LEAST_SHARE;
    s->mirostat = a->mirostat;
    s->mirostat_tau = NTX_MAX(a->mirostat_tau, 0.01f); /* the least that the daemons take */
    s->mirostat_eta = NTX_MAX(a->mirostat_eta, 0.0001f);
}

static int send_choices(struct ntx_call *c, const struct ntx_api_request *a, Ntx__Generate *m, struct ntx_err *err)
{
    Ntx__Request q = NTX__REQUEST__INIT;
    int rc = 0;
    q.body_case = NTX__REQUEST__BODY_GENERATE;
    q.generate = m;
    for (unsigned i = 0; !rc && i < ntx_api_request_choices(a); i++) {
        const struct ntx_api_request_prompt *p = a->messages ? NULL : &a->prompts[i / a->n];
        if (p) {
            m->prompt = (ProtobufCBinaryData){p->len, (uint8_t *)p->text};
            m->tokens = p->tokens;
            m->n_tokens = p->n_tokens;
        }
        q.id = FIRST_ID + i;
        m->sampling->seed = a->seed + i % a->n;
        rc = send_request(c, &q, err);
    }
    return rc;
}

int ntx_call_request(struct ntx_call *c, const struct ntx_api_request *a, struct ntx_err *err)
{
    Ntx__Generate m = NTX__GENERATE__INIT;
    Ntx__Sampling s = NTX__SAMPLING__INIT;
    Ntx__Message **list = wire_messages(a);
    Ntx__Constraint must = NTX__CONSTRAINT__INIT;
    Ntx__Bias *bias = calloc(a->n_bias + 1, sizeof *bias), **biases = calloc(a->n_bias + 1, sizeof *biases);
    int rc = list && bias && biases ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
    for (size_t i = 0; !rc && i < a->n_bias; i++) {
        ntx__bias__init(biases[i] = &bias[i]);
        bias[i].token = a->bias[i].token;
        bias[i].add = a->bias[i].add;
    }
    must.kind = (char *)(uintptr_t)(a->constraint ? a->constraint_kind : "");
    must.text = wire_bytes(a->constraint, a->constraint ? strlen(a->constraint) : 0);
    must.soft = a->constraint_soft;
    m.constraint = a->constraint ? &must : NULL;
    m.bias = biases;
    m.n_bias = a->n_bias;
    m.logprobs = a->logprobs;
    m.top_logprobs = a->top_logprobs;
    m.messages = list;
    m.n_messages = a->n_messages;
    m.variables = wire_variables(a);
    m.think = a->think.text[0] ? (char *)(uintptr_t)a->think.text : m.think;
    m.raw = !a->messages;
    m.no_special = !a->special;
    m.stop = (char **)(uintptr_t)a->stops;
    m.n_stop = a->n_stops;
    m.ignore_eos = a->ignore_eos;
    m.model = a->model ? a->model : m.model;
    m.max_tokens = a->max_tokens;
    m.sampling = &s;
    set_sampling(a, &s);
    if (!rc)
        rc = send_choices(c, a, &m, err);
    free(biases);
    free(bias);
    free(list);
    return rc;
}

/* ---- replies */

static void take_progress(const Ntx__Progress *p, struct ntx_event *e)
{
    bool prompt = !strcmp(p->phase, "prompt");
    e->kind = NTX_EVENT_PROGRESS;
    e->text = p->phase;
    e->done = prompt ? p->done : p->prompt_done;
    e->total = prompt ? p->total : p->prompt_total;
    e->left_s = p->left_s;
}

static void take_logprobs(const Ntx__Token *t, struct ntx_event *e)
{
    e->has_logprob = t->own.len > 0;
    e->token[0] = (struct ntx_event_token){(const char *)t->own.data, t->own.len, t->logprob};
    for (size_t i = 0; i < t->n_top && e->n_top < 20; i++)
        e->token[++e->n_top] = (struct ntx_event_token){t->top[i]->own.len ? (const char *)t->top[i]->own.data : "",
                                                        t->top[i]->own.len, t->top[i]->logprob};
}

static int take_reply(const Ntx__Reply *r, struct ntx_event *e, struct ntx_err *err)
{
    *e = (struct ntx_event){.choice = r->id >= FIRST_ID ? (unsigned)(r->id - FIRST_ID) : 0};
    switch (r->body_case) {
    case NTX__REPLY__BODY_ERROR:
        return ntx_err_set(err, r->error->err < 0 ? r->error->err : -EIO, "%s", r->error->text);
    case NTX__REPLY__BODY_PROGRESS: take_progress(r->progress, e); return 0;
    case NTX__REPLY__BODY_STARTED:
        e->kind = NTX_EVENT_STARTED;
        e->prompt_tokens = r->started->prompt_tokens;
        e->note = r->started->note;
        return 0;
    case NTX__REPLY__BODY_TOKEN:
        e->kind = NTX_EVENT_TEXT;
        e->text = (const char *)r->token->text.data;
        e->len = r->token->text.len;
        e->tokens = r->token->token >= 0;
        take_logprobs(r->token, e);
        return 0;
    case NTX__REPLY__BODY_DONE:
        e->kind = NTX_EVENT_DONE;
        e->cached_tokens = r->done->cached_tokens;
        e->text = r->done->finish;
        e->stop = r->done->stop;
        e->stats = r->done->stats_json;
        return 0;
    case NTX__REPLY__BODY_LOADED: e->kind = NTX_EVENT_LOADED; return 0;
    case NTX__REPLY__BODY_STATUS:
        e->kind = NTX_EVENT_STATUS;
        e->text = r->status->json;
        return 0;
    case NTX__REPLY__BODY_TEXT:
        e->kind = NTX_EVENT_WORDS;
        e->text = (const char *)r->text->text.data;
        e->len = r->text->text.len;
        e->ids = r->text->tokens;
        e->n_ids = r->text->n_tokens;
        e->lengths = r->text->lengths;
        e->n_lengths = r->text->n_lengths;
        return 0;
    case NTX__REPLY__BODY_SCORE:
        if (r->score->n_each != r->score->n_best || r->score->n_each != r->score->n_best_token)
            return ntx_err_set(err, -EPROTO, "ntx-computed sent an unexpected reply");
        e->kind = NTX_EVENT_SCORE;
        e->nll = r->score->each;
        e->best = r->score->best;
        e->ids = r->score->best_token;
        e->n_ids = r->score->n_best_token;
        return 0;
    case NTX__REPLY__BODY_STATES:
        e->kind = NTX_EVENT_STATE;
        e->floats = r->states->state.data;
        e->n_floats = r->states->state.len / sizeof(float);
        return 0;
    default: return ntx_err_set(err, -EPROTO, "ntx-computed sent an unexpected reply");
    }
}

static int read_reply(struct ntx_call *c, int timeout_ms, struct ntx_err *err)
{
    uint8_t buf[65536];
    int rc = wait_for(c, c->sock, POLLIN, timeout_ms, err);
    if (rc)
        return rc;
    ssize_t n = recv(c->sock, buf, sizeof buf, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return ntx_err_set(err, -EPIPE, "ntx-computed ended during the answer: try again");
    return ntx_frame_feed(&c->in, buf, (size_t)n);
}

int ntx_call_next(struct ntx_call *c, int timeout_ms, struct ntx_event *e, struct ntx_err *err)
{
    const uint8_t *body;
    size_t len;
    int rc = wait_for_slot(c, timeout_ms, err);
    if (rc)
        return rc;
    while (!(rc = ntx_frame_next(&c->in, &body, &len)))
        if ((rc = read_reply(c, timeout_ms, err)))
            return rc;
    if (c->last)
        ntx__reply__free_unpacked(c->last, NULL);
    c->last = rc > 0 ? ntx_reply_decode(body, len) : NULL;
    return c->last ? take_reply(c->last, e, err)
                   : ntx_err_set(err, -EPROTO, "ntx-computed sends no frames of this version");
}
