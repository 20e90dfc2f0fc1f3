/* SPDX-License-Identifier: Apache-2.0 */
/* A request comes in: it is checked, gets a session, and its prompt becomes tokens. */
#include <errno.h>
#include <stdlib.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"

#define MAX_SESSIONS 64 /* of one client, idle ones included */

static const char no_memory[] =
    "busy: requests under way take all the memory that --ram leaves for what they hold; try "
    "again later, or load the model with a larger --ram";

/* ---- main thread: a job for the engine thread */

static int queue_job(struct ntx_engine *e, enum ntx_job_kind kind, struct ntx_reply_queue *replies,
                     struct ntx_request *req)
{
    struct ntx_job *j = calloc(1, sizeof *j);
    if (!j) {
        ntx_request_free(req);
        return -ENOMEM;
    }
    *j = (struct ntx_job){
        .kind = kind, .replies = replies ? ntx_reply_queue_ref(replies) : NULL, .req = req, .asked_ns = ntx_now_ns()};
    if (kind == NTX_JOB_REQUEST)
        atomic_fetch_add(&e->n_working, 1);
    pthread_mutex_lock(&e->lock);
    *e->last_job = j;
    e->last_job = &j->next;
    ntx__engine_unwanted(e, j);
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    return 0;
}

int ntx_engine_submit(struct ntx_engine *e, struct ntx_reply_queue *replies, struct ntx_request *req)
{
    return queue_job(e, NTX_JOB_REQUEST, replies, req);
}

int ntx_engine_client_gone(struct ntx_engine *e, struct ntx_reply_queue *replies)
{
    return queue_job(e, NTX_JOB_GONE, replies, NULL);
}

void ntx_engine_cancel_all(struct ntx_engine *e) { queue_job(e, NTX_JOB_CANCEL_ALL, NULL, NULL); }
void ntx_engine_quit(struct ntx_engine *e) { queue_job(e, NTX_JOB_QUIT, NULL, NULL); }

/* ---- the list of sessions */

void ntx__engine_append(struct ntx_engine *e, struct ntx_session *s)
{
    struct ntx_session **p = &e->sessions;
    while (*p)
        p = &(*p)->next;
    s->next = NULL;
    *p = s;
}

void ntx__engine_unlink(struct ntx_engine *e, struct ntx_session *s)
{
    for (struct ntx_session **p = &e->sessions; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            return;
        }
}

static uint32_t count_of_client(const struct ntx_engine *e, const struct ntx_reply_queue *replies)
{
    uint32_t n = 0;
    for (const struct ntx_session *s = e->sessions; s; s = s->next)
        n += s->replies == replies;
    return n;
}

static struct ntx_session *find_session(struct ntx_engine *e, const struct ntx_reply_queue *replies, uint64_t id)
{
    for (struct ntx_session *s = e->sessions; s; s = s->next)
        if (s->replies == replies && s->id == id)
            return s;
    return NULL;
}

uint32_t ntx__engine_count(const struct ntx_engine *e, enum ntx_session_state state)
{
    uint32_t n = 0;
    for (const struct ntx_session *s = e->sessions; s; s = s->next)
        n += s->state == state;
    return n;
}

/* ---- from a request to tokens */

/* The session of a request: a new one, or the client's kept one. NULL: the request was answered with an error. */
static struct ntx_session *session_for(struct ntx_engine *e, const struct ntx_job *j)
{
    uint64_t id = j->req->kind == NTX_REQUEST_GENERATE ? j->req->session : 0;
    struct ntx_session *s = NULL;
    char text[96];
    if (!id && count_of_client(e, j->replies) >= MAX_SESSIONS) {
        ntx__engine_refuse(e, j, -EMFILE, "this client keeps too many sessions: close some");
        return NULL;
    }
    if (!id) {
        if (ntx_session_new(j->replies, ++e->last_session, &s))
            ntx__engine_refuse(e, j, -ENOMEM, "no memory for a session");
        else
            ntx__engine_append(e, s);
        return s;
    }
    s = find_session(e, j->replies, id);
    if (s && s->state == NTX_SESSION_IDLE)
        return s;
    snprintf(text, sizeof text,
             s ? "session %llu is still busy with a request" : "session %llu is not there any more: begin a new one",
             (unsigned long long)id);
    ntx__engine_refuse(e, j, s ? -EBUSY : -ENOENT, text);
    return NULL;
}

static void count_pictures(struct ntx_engine *e, const struct ntx_prompt *p)
{
    ntx_count(e->c.counters, NTX_C_comp_pictures, atomic_load(&p->n_seen));
    ntx_count(e->c.counters, NTX_C_comp_pictures_encoded, p->n_encoded);
    ntx_count(e->c.counters, NTX_C_comp_picture_ns, p->encode_ns);
    ntx_count(e->c.counters, NTX_C_comp_picture_rows, p->n > 0 ? ntx_image_spans_rows(&p->spans) : 0);
}

void ntx__engine_read(struct ntx_engine *e, struct ntx_reading *r)
{
    struct ntx_session *s = r->session;
    struct ntx_err err = {0};
    if (!s)
        return;
    s->reading = NULL;
    count_pictures(e, &r->prompt);
    int rc = ntx_session_generate(s, &e->l->env, r->req, &r->prompt, &err);
    if (rc)
        ntx__engine_refuse_session(e, s, rc, err.text);
    else
        ntx__engine_enqueue(e, s, r->asked_ns);
}

static void read_prompt(struct ntx_engine *e, struct ntx_session *s)
{
    struct ntx_err err = {0};
    struct ntx_reading *r = calloc(1, sizeof *r);
    int rc = r ? ntx_session_prompt(s, &e->l->env, s->unread, &r->unwanted, &r->prompt, &err)
               : ntx_err_set(&err, -ENOMEM, "no memory for a prompt");
    if (rc) {
        ntx_reading_free(r);
        ntx__engine_refuse_session(e, s, rc, err.text);
        return;
    }
    r->session = s;
    r->asked_ns = s->unread_ns;
    r->req = s->unread;
    r->replies = ntx_reply_queue_ref(s->replies);
    s->unread = NULL;
    s->reading = r;
    s->reading_tokens = (uint32_t)(ntx_session_wants(&e->l->env, r->req) / sizeof *s->tokens);
    ntx_reader_put(e->reader, r);
}

static int read_token_request(struct ntx_engine *e, struct ntx_session *s, const struct ntx_request *q,
                              struct ntx_err *err)
{
    if (q->kind == NTX_REQUEST_LOGITS)
        return ntx_session_logits(s, &e->l->env, q, err);
    if (q->kind == NTX_REQUEST_SCORE)
        return ntx_session_score(s, &e->l->env, q, err);
    if (q->kind == NTX_REQUEST_STATES && e->l->capture_rows)
        return ntx_session_states(s, &e->l->env, q, err);
    return ntx_err_set(err, -EINVAL, "states are only given by a model that was loaded for calibration");
}

static void read_tokens(struct ntx_engine *e, struct ntx_session *s)
{
    struct ntx_err err = {0};
    int rc = read_token_request(e, s, s->unread, &err);
    ntx_request_free(s->unread);
    s->unread = NULL;
    if (rc)
        ntx__engine_refuse_session(e, s, rc, err.text);
    else
        ntx__engine_enqueue(e, s, s->unread_ns);
}

/* s alone holds memory, so waiting would free none. */
static bool holds_all(const struct ntx_engine *e, const struct ntx_session *s)
{
    for (const struct ntx_session *o = e->sessions; o; o = o->next)
        if (o != s && o->state != NTX_SESSION_IDLE && !o->unread && !ntx__session_rests(o))
            return false;
    return true;
}

/* The most bytes that a queued session will take when it runs, beyond those it has. A prompt's tokens leave them
 * free. */
static uint64_t most_of_queue(const struct ntx_engine *e, const struct ntx_request *m)
{
    uint64_t most = m->constraint ? e->l->env.constraint_bytes : 0;
    for (const struct ntx_session *s = e->sessions; s; s = s->next)
        most = s->state == NTX_SESSION_QUEUED ? NTX_MAX(most, ntx_session_more(s)) : most;
    return most;
}

static struct ntx_session *first_unread(const struct ntx_engine *e)
{
    struct ntx_session *s = e->sessions;
    while (s && !s->unread)
        s = s->next;
    return s;
}

/* Reads requests in their order, as long as there is memory for their tokens. The rest waits. */
void ntx__engine_read_more(struct ntx_engine *e)
{
    for (struct ntx_session *s; (s = first_unread(e));) {
        uint64_t more = ntx_session_wants(&e->l->env, s->unread) + most_of_queue(e, s->unread);
        if (!ntx__engine_make_room(e, more) && !holds_all(e, s))
            return;
        ntx__engine_allow_masks(e, more);
        if (s->unread->kind == NTX_REQUEST_GENERATE)
            read_prompt(e, s);
        else
            read_tokens(e, s);
    }
}

static struct ntx_session *still_unread(const struct ntx_engine *e, uint64_t id)
{
    struct ntx_session *s = e->sessions;
    while (s && !(s->id == id && s->unread))
        s = s->next;
    return s;
}

uint64_t ntx__engine_client(const struct ntx_reply_queue *replies, uint64_t named)
{
    const uint64_t behind = 1ull << 63; /* connections are counted from 1 */
    return named ? named | behind : ntx_reply_queue_client(replies);
}

static void begin_request(struct ntx_engine *e, struct ntx_job *j)
{
    struct ntx_session *s = session_for(e, j);
    if (!s)
        return;
    const uint64_t id = s->id;
    s->request = j->req->id;
    s->client = ntx__engine_client(j->replies, j->req->client);
    s->reserve = s->reading_tokens = 0;
    s->state = NTX_SESSION_READING;
    s->unread = j->req;
    s->unread_ns = j->asked_ns;
    j->req = NULL;
    ntx__engine_unlink(e, s);
    ntx__engine_append(e, s);
    uint32_t waiting = ntx__engine_count(e, NTX_SESSION_READING) + ntx__engine_count(e, NTX_SESSION_QUEUED);
    if (waiting > e->c.max_queue + e->l->max_sessions) {
        ntx__engine_refuse_session(e, s, -EBUSY, "busy: too many requests wait already; try again later");
        return;
    }
    ntx__engine_read_more(e);
    if (!(s = still_unread(e, id)))
        return;
    if (!e->c.max_queue)
        ntx__engine_refuse_session(e, s, -EBUSY, no_memory);
    else
        ntx_mail_progress(e->c.mail, s->replies, s->request, "queue", 0, waiting);
}

/* ---- the other jobs */

/* Runs between passes, so no pass adds to the sums meanwhile. */
static void send_input_sums(struct ntx_engine *e, const struct ntx_job *j)
{
    uint32_t tensor = j->req->tensor;
    if (!e->l->sums) {
        ntx__engine_refuse(e, j, -EINVAL, "sums of inputs are only given by a model that was loaded for them");
        return;
    }
    for (uint32_t i = 0; i < ntx_input_sums_matrices(e->l->sums, tensor); i++) {
        float count;
        uint32_t n;
        const float *sum = ntx_input_sums_of(e->l->sums, tensor, i, &n, &count);
        const struct ntx_states_row m = {.row = i, .state = {sum, n}, .similar = {&count, 1}};
        ntx_mail_states(e->c.mail, j->replies, j->req->id, &m);
    }
    ntx__engine_confirm(e, j);
}

static void cancel_request(struct ntx_engine *e, const struct ntx_job *j)
{
    uint64_t target = j->req->target;
    for (struct ntx_session *s = e->sessions, *next; s; s = next) {
        next = s->next;
        if (s->replies == j->replies && s->request == target && s->state != NTX_SESSION_IDLE)
            ntx__engine_finish(e, s, "cancel");
    }
    ntx__engine_confirm(e, j);
}

/* Keeps its state for texts with the same beginning. */
static void drop_idle(struct ntx_engine *e, struct ntx_session *s)
{
    if (s->state == NTX_SESSION_IDLE && s->n_past)
        ntx__engine_keep(e, s, true);
    ntx__engine_drop(e, s);
}

static void close_session(struct ntx_engine *e, const struct ntx_job *j)
{
    struct ntx_session *s = find_session(e, j->replies, j->req->session);
    if (!s) {
        ntx__engine_refuse(e, j, -ENOENT, "there is no such session");
        return;
    }
    s->keep = false;
    if (s->state != NTX_SESSION_IDLE)
        ntx__engine_finish(e, s, "cancel");
    else
        drop_idle(e, s);
    ntx__engine_confirm(e, j);
}

static void drop_client(struct ntx_engine *e, const struct ntx_reply_queue *replies)
{
    for (struct ntx_session *s = e->sessions, *next; s; s = next) {
        next = s->next;
        if (s->replies == replies)
            drop_idle(e, s);
    }
}

static void cancel_all(struct ntx_engine *e)
{
    for (struct ntx_session *s = e->sessions, *next; s; s = next) {
        next = s->next;
        if (s->state != NTX_SESSION_IDLE)
            ntx__engine_finish(e, s, "cancel");
    }
}

void ntx__engine_job(struct ntx_engine *e, struct ntx_job *j)
{
    switch (j->kind) {
    case NTX_JOB_GONE: drop_client(e, j->replies); return;
    case NTX_JOB_CANCEL_ALL: cancel_all(e); return;
    case NTX_JOB_QUIT:
        cancel_all(e);
        e->quit = true;
        return;
    case NTX_JOB_REQUEST:
        if (j->req->kind == NTX_REQUEST_CANCEL)
            cancel_request(e, j);
        else if (j->req->kind == NTX_REQUEST_CLOSE)
            close_session(e, j);
        else if (j->req->kind == NTX_REQUEST_SUMS)
            send_input_sums(e, j);
        else
            begin_request(e, j);
        return;
    }
}
