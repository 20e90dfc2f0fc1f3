/* SPDX-License-Identifier: Apache-2.0 */
/* Requests become sessions, wait for KV blocks, and end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"
#include "computed/engine/monitor.h"
#include "computed/engine/stats.h"
#include "computed/plan/budget.h"

#define MAX_SESSIONS 64 /* of one client, idle ones included */

static void append(struct ntx_engine *e, struct ntx_session *s)
{
    struct ntx_session **p = &e->sessions;
    while (*p)
        p = &(*p)->next;
    s->next = NULL;
    *p = s;
}

static void unlink_session(struct ntx_engine *e, struct ntx_session *s)
{
    for (struct ntx_session **p = &e->sessions; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            return;
        }
}

static uint32_t count_of(const struct ntx_engine *e, const struct ntx_reply_queue *replies)
{
    uint32_t n = 0;
    for (const struct ntx_session *s = e->sessions; s; s = s->next)
        n += s->replies == replies;
    return n;
}

static struct ntx_session *find(struct ntx_engine *e, const struct ntx_reply_queue *replies, uint64_t id)
{
    for (struct ntx_session *s = e->sessions; s; s = s->next)
        if (s->replies == replies && s->id == id)
            return s;
    return NULL;
}

/* A request counts as business from its submission until just before its last reply: so whoever has that reply sees it
 * counted off. */
static void count_off(struct ntx_engine *e) { atomic_fetch_sub(&e->n_working, 1); }

static void leave(struct ntx_engine *e, struct ntx_session *s)
{
    if (s->reading) { /* nobody waits for its tokens any more */
        s->reading->session = NULL;
        atomic_store(&s->reading->unwanted, true);
        s->reading = NULL;
    }
    ntx_request_free(s->unread);
    s->unread = NULL;
    s->put_by = s->again = false;
    if (s->state != NTX_SESSION_IDLE)
        count_off(e);
    s->state = NTX_SESSION_IDLE;
}

void ntx__engine_drop(struct ntx_engine *e, struct ntx_session *s)
{
    leave(e, s);
    unlink_session(e, s);
    ntx_session_free(s);
}

static void refuse(struct ntx_engine *e, const struct ntx_job *j, int err, const char *text)
{
    count_off(e);
    ntx_mail_error(e->c.mail, j->replies, j->req->id, err, "%s", text);
}

static void confirm(struct ntx_engine *e, const struct ntx_job *j)
{
    count_off(e);
    ntx_mail_done(e->c.mail, j->replies, j->req->id, "", NULL);
}

/* The bytes of a token that ends an answer are nobody's. */
static struct ntx_token_prob prob_of(const struct ntx_engine *e, int32_t token, float logprob, bool top, char *buf)
{
    const struct ntx_tokenizer *tok = e->l->env.tok;
    int n = !top && ntx_tokenizer_is_eog(tok, token) ? 0
                                                     : ntx_detokenize_one(tok, token, false, true, buf, NTX_TOKEN_MAX);
    return (struct ntx_token_prob){token, logprob, buf, n > 0 ? (size_t)n : 0};
}

static void send_told(struct ntx_engine *e, struct ntx_session *s, int32_t token, const char *text, size_t len,
                      const struct ntx_told *t)
{
    struct ntx_token_prob top[NTX_TOP_MOST];
    char *buf = malloc((t->n + 1) * (size_t)NTX_TOKEN_MAX);
    if (!buf) {
        ntx_mail_token(e->c.mail, s->replies, s->request, token, text, len, NULL);
        return;
    }
    for (uint32_t i = 0; i < t->n; i++)
        top[i] = prob_of(e, t->top[i].id, t->top[i].logit, true, buf + (i + 1) * (size_t)NTX_TOKEN_MAX);
    const struct ntx_token_told told = {.it = prob_of(e, token, t->logprob, false, buf), .top = top, .n = t->n};
    ntx_mail_token(e->c.mail, s->replies, s->request, token, text, len, &told);
    free(buf);
}

void ntx__engine_send_token(struct ntx_engine *e, struct ntx_session *s, int32_t token, const char *text, size_t len)
{
    const struct ntx_told *t = token >= 0 ? ntx_constraint_told(s->constraint) : NULL;
    if (t)
        send_told(e, s, token, text, len, t);
    else
        ntx_mail_token(e->c.mail, s->replies, s->request, token, text, len, NULL);
}

static void send_score(struct ntx_engine *e, struct ntx_session *s)
{
    char *stats = s->one_by_one ? ntx_stats_run(&s->run, e->l, e->c.counters) : NULL;
    ntx_mail_score(e->c.mail, s->replies, s->request, s->nll, s->each, s->n_tokens - s->from, stats);
    free(stats);
}

/* Text that was held back in case it became a stop string is shown after all. */
static void flush_text(struct ntx_engine *e, struct ntx_session *s)
{
    const char *text;
    size_t n;
    if (s->text && !ntx_text_take(s->text, true, &text, &n) && n)
        ntx__engine_send_token(e, s, -1, text, n);
}

/* Cancelled before it has begun. */
static void never_began(struct ntx_engine *e, struct ntx_session *s)
{
    leave(e, s);
    ntx_mail_done(e->c.mail, s->replies, s->request, "cancel", NULL);
    if (!s->n_tokens || !s->keep)
        ntx__engine_drop(e, s);
}

void ntx__engine_finish(struct ntx_engine *e, struct ntx_session *s, const char *finish)
{
    if (s->state == NTX_SESSION_READING) {
        never_began(e, s);
        return;
    }
    ntx__engine_keep(e, s, !s->keep);
    flush_text(e, s);
    s->run.finish = finish;
    s->run.predictor_lost = s->predictor_lost;
    ntx_run_ended(&s->run, e->c.counters);
    if (s->kind == NTX_SESSION_SCORE && !*finish) {
        leave(e, s);
        send_score(e, s);
        ntx__engine_drop(e, s);
        return;
    }
    ntx_monitor_answer(e->c.counters, s);
    char *stats = ntx_stats_run(&s->run, e->l, e->c.counters);
    leave(e, s);
    const struct ntx_answered d = {
        .finish = finish, .stop = ntx_text_stop(s->text), .stats_json = stats, .cached_tokens = s->run.cached_tokens};
    ntx_mail_answered(e->c.mail, s->replies, s->request, &d);
    free(stats);
    if (s->kind != NTX_SESSION_GENERATE || !s->keep) {
        ntx__engine_drop(e, s);
        return;
    }
    ntx_session_rest(s);
}

void ntx__engine_fail(struct ntx_engine *e, struct ntx_session *s, int err, const char *text)
{
    leave(e, s);
    ntx_mail_error(e->c.mail, s->replies, s->request, err, "%s", text);
    ntx__engine_drop(e, s);
}

/* The session that a request works on: a new one, or the client's kept one; NULL when it has been answered with an
 * error. */
static struct ntx_session *session_for(struct ntx_engine *e, const struct ntx_job *j)
{
    uint64_t id = j->req->kind == NTX_REQUEST_GENERATE ? j->req->session : 0;
    struct ntx_session *s = NULL;
    char text[96];
    if (!id && count_of(e, j->replies) >= MAX_SESSIONS) {
        refuse(e, j, -EMFILE, "this client keeps too many sessions: close some");
        return NULL;
    }
    if (!id) {
        if (ntx_session_new(j->replies, ++e->last_session, &s))
            refuse(e, j, -ENOMEM, "no memory for a session");
        else
            append(e, s);
        return s;
    }
    s = find(e, j->replies, id);
    if (s && s->state == NTX_SESSION_IDLE)
        return s;
    snprintf(text, sizeof text,
             s ? "session %llu is still busy with a request" : "session %llu is not there any more: begin a new one",
             (unsigned long long)id);
    refuse(e, j, s ? -EBUSY : -ENOENT, text);
    return NULL;
}

static uint32_t count_queued(const struct ntx_engine *e)
{
    uint32_t n = 0;
    for (const struct ntx_session *s = e->sessions; s; s = s->next)
        n += s->state == NTX_SESSION_QUEUED || s->state == NTX_SESSION_READING;
    return n;
}

/* Those that know their tokens: who is still being read stands behind them. */
static uint32_t count_in_line(const struct ntx_engine *e)
{
    uint32_t n = 0;
    for (const struct ntx_session *s = e->sessions; s; s = s->next)
        n += s->state == NTX_SESSION_QUEUED;
    return n;
}

/* It waits for its client, not for us. */
static bool rests(const struct ntx_session *s) { return s->put_by && ntx_reply_queue_rests(s->replies); }

static void send_started(struct ntx_engine *e, struct ntx_session *s)
{
    const struct ntx_started m = {.session = s->id,
                                  .prompt_tokens = s->run.prompt_tokens,
                                  .seed = s->run.seed,
                                  .context = s->n_tokens,
                                  .ctx = e->l->env.ctx,
                                  .note = s->note};
    ntx_mail_started(e->c.mail, s->replies, s->request, &m);
}

/* ---- what sessions hold counts in the budget */

static uint64_t bytes_of(const struct ntx_engine *e, const struct ntx_session *s)
{
    return ntx_session_bytes(s, &e->l->env) +
           (s->ffn && s->state == NTX_SESSION_IDLE ? ntx_ffn_set_bytes(e->l->model) : 0);
}

static uint64_t bytes_held(const struct ntx_engine *e, const struct ntx_reply_queue *replies)
{
    uint64_t bytes = 0;
    for (const struct ntx_session *s = e->sessions; s; s = s->next)
        bytes += !replies || s->replies == replies ? bytes_of(e, s) : 0;
    return bytes;
}

/* The conversation that nobody has gone on with for longest, of the client that holds most and has any: sessions stand
 * in the order of their requests. */
static struct ntx_session *least_wanted(const struct ntx_engine *e)
{
    struct ntx_session *best = NULL;
    uint64_t most = 0;
    for (struct ntx_session *s = e->sessions; s; s = s->next) {
        if (s->state != NTX_SESSION_IDLE || (best && s->replies == best->replies))
            continue;
        uint64_t bytes = bytes_held(e, s->replies);
        if (!best || bytes > most) {
            best = s;
            most = bytes;
        }
    }
    return best;
}

/* Masks that no answer has may take the memory that nobody has, but for so much. */
static void allow_masks(struct ntx_engine *e, uint64_t more)
{
    uint64_t bytes = bytes_held(e, NULL) + more;
    ntx_words_allow(e->l->words, e->l->kept_bytes > bytes ? e->l->kept_bytes - bytes : 0);
}

/* For so many bytes more; masks that no answer has make way (allow_masks). False: there is none as long as those who
 * have it hold it. */
static bool make_room(struct ntx_engine *e, uint64_t more)
{
    struct ntx_words *w = e->l->words;
    while (bytes_held(e, NULL) + ntx_words_bytes(w) + more > e->l->kept_bytes + ntx_words_idle(w)) {
        struct ntx_session *s = least_wanted(e);
        if (ntx_words_trim(w))
            continue;
        if (!s)
            return false;
        ntx__engine_drop(e, s);
    }
    return true;
}

/* Whether s takes more than there is when nobody else has anything. */
static bool too_big(struct ntx_engine *e, const struct ntx_session *s, struct ntx_err *err)
{
    uint64_t bytes = bytes_of(e, s), more = ntx_session_more(s), shared = ntx_constraint_shared(s->constraint);
    if (bytes + more + shared <= e->l->kept_bytes)
        return false;
    char ram[96];
    const struct ntx_session_env *v = &e->l->env;
    const struct ntx_budget_refused r = {.other = bytes + more + shared - NTX_MIN(bytes + more, v->constraint_bytes)};
    if (more)
        ntx_err_set(
            err, -EOVERFLOW,
            "an answer held to a grammar, a schema or calls takes up to %llu KiB here, %llu KiB of them for the "
            "vocabulary: more memory than --ram leaves for requests (%llu KiB); %s",
            (unsigned long long)(bytes + more + shared) >> 10, (unsigned long long)shared >> 10,
            (unsigned long long)e->l->kept_bytes >> 10,
            ntx_constraint_ram(v->n_vocab, v->constrains_from, &r, ram, sizeof ram));
    else
        ntx_err_set(err, -ENOBUFS,
                    "the request's %u tokens take %llu KiB, and --ram leaves %llu KiB for requests: shorten it, or "
                    "load the model with a larger --ram",
                    s->n_tokens, (unsigned long long)(bytes + 1023) >> 10, (unsigned long long)e->l->kept_bytes >> 10);
    return true;
}

static const char no_room[] = "busy: requests under way take all the memory that --ram leaves for what they hold; try "
                              "again later, or load the model with a larger --ram";

/* ---- from a request to a session that waits for its turn */

/* The request of s comes to nothing. What was said before stays. */
static void refuse_session(struct ntx_engine *e, struct ntx_session *s, int err, const char *text)
{
    leave(e, s);
    ntx_mail_error(e->c.mail, s->replies, s->request, err, "%s", text);
    if (!s->n_tokens)
        ntx__engine_drop(e, s);
}

/* It knows its tokens. */
static void stand_in_line(struct ntx_engine *e, struct ntx_session *s, uint64_t asked_ns)
{
    s->run.asked_ns = asked_ns;
    unlink_session(e, s); /* it stands at the end of the line */
    append(e, s);
    s->state = NTX_SESSION_QUEUED;
    s->turn = ++e->last_turn;
    struct ntx_err err = {0};
    if (too_big(e, s, &err)) {
        ntx__engine_fail(e, s, err.code, err.text);
        return;
    }
    if (s->kind == NTX_SESSION_GENERATE)
        send_started(e, s);
    ntx__engine_admit(e);
    uint32_t waiting = count_in_line(e);
    if (s->state != NTX_SESSION_QUEUED)
        return;
    if (waiting > e->c.max_queue) {
        char text[256];
        snprintf(text, sizeof text, "busy: %u of %u KV blocks are taken and %u requests wait already; try again later",
                 ntx_kv_pool_used(e->l->kv), ntx_kv_pool_blocks(e->l->kv), waiting - 1);
        ntx__engine_fail(e, s, -EBUSY, text);
        return;
    }
    ntx_mail_progress(e->c.mail, s->replies, s->request, "queue", 0, waiting);
}

void ntx__engine_read(struct ntx_engine *e, struct ntx_reading *r)
{
    struct ntx_session *s = r->session;
    struct ntx_err err = {0};
    if (!s)
        return;
    s->reading = NULL;
    int rc = ntx_session_generate(s, &e->l->env, r->req, &r->prompt, &err);
    if (rc)
        refuse_session(e, s, rc, err.text);
    else
        stand_in_line(e, s, r->asked_ns);
}

static void read_prompt(struct ntx_engine *e, struct ntx_session *s)
{
    struct ntx_err err = {0};
    struct ntx_reading *r = calloc(1, sizeof *r);
    int rc = r ? ntx_session_prompt(s, &e->l->env, s->unread, &r->unwanted, &r->prompt, &err)
               : ntx_err_set(&err, -ENOMEM, "no memory for a prompt");
    if (rc) {
        ntx_reading_free(r);
        refuse_session(e, s, rc, err.text);
        return;
    }
    r->session = s;
    r->asked_ns = s->unread_ns;
    r->req = s->unread;
    s->unread = NULL;
    s->reading = r;
    s->reading_tokens = (uint32_t)(ntx_session_wants(&e->l->env, r->req) / sizeof *s->tokens);
    ntx_reader_put(e->reader, r);
}

static int only_tokens(struct ntx_engine *e, struct ntx_session *s, const struct ntx_request *q, struct ntx_err *err)
{
    if (q->kind == NTX_REQUEST_LOGITS)
        return ntx_session_logits(s, &e->l->env, q, err);
    if (q->kind == NTX_REQUEST_SCORE)
        return ntx_session_score(s, &e->l->env, q, err);
    if (q->kind == NTX_REQUEST_STATES && e->l->capture_rows)
        return ntx_session_states(s, &e->l->env, q, err);
    return ntx_err_set(err, -EINVAL, "states are only given by a model that was loaded for calibration");
}

/* Between passes, so nobody adds to them meanwhile. */
static void give_sums(struct ntx_engine *e, const struct ntx_job *j)
{
    uint32_t tensor = j->req->tensor;
    if (!e->l->sums) {
        refuse(e, j, -EINVAL, "sums of inputs are only given by a model that was loaded for them");
        return;
    }
    for (uint32_t i = 0; i < ntx_input_sums_matrices(e->l->sums, tensor); i++) {
        float count;
        uint32_t n;
        const float *sum = ntx_input_sums_of(e->l->sums, tensor, i, &n, &count);
        const struct ntx_states_row m = {.row = i, .state = {sum, n}, .similar = {&count, 1}};
        ntx_mail_states(e->c.mail, j->replies, j->req->id, &m);
    }
    confirm(e, j);
}

static void take_tokens(struct ntx_engine *e, struct ntx_session *s)
{
    struct ntx_err err = {0};
    int rc = only_tokens(e, s, s->unread, &err);
    ntx_request_free(s->unread);
    s->unread = NULL;
    if (rc)
        refuse_session(e, s, rc, err.text);
    else
        stand_in_line(e, s, s->unread_ns);
}

/* Nobody else has anything that would become free. */
static bool alone(const struct ntx_engine *e, const struct ntx_session *s)
{
    for (const struct ntx_session *o = e->sessions; o; o = o->next)
        if (o != s && o->state != NTX_SESSION_IDLE && !o->unread && !rests(o))
            return false;
    return true;
}

/* The most that one of those in line will take beyond what it has, when it runs: tokens leave as much for it. */
static uint64_t owed_to_line(const struct ntx_engine *e, const struct ntx_request *m)
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

/* Requests are read in their order, as far as there is memory for their tokens; the rest waits as it came. */
void ntx__engine_read_more(struct ntx_engine *e)
{
    for (struct ntx_session *s; (s = first_unread(e));) {
        uint64_t more = ntx_session_wants(&e->l->env, s->unread) + owed_to_line(e, s->unread);
        if (!make_room(e, more) && !alone(e, s))
            return;
        allow_masks(e, more);
        if (s->unread->kind == NTX_REQUEST_GENERATE)
            read_prompt(e, s);
        else
            take_tokens(e, s);
    }
}

static struct ntx_session *still_unread(const struct ntx_engine *e, uint64_t id)
{
    struct ntx_session *s = e->sessions;
    while (s && !(s->id == id && s->unread))
        s = s->next;
    return s;
}

static void begin(struct ntx_engine *e, struct ntx_job *j)
{
    struct ntx_session *s = session_for(e, j);
    if (!s)
        return;
    const uint64_t id = s->id;
    s->request = j->req->id;
    s->reserve = s->reading_tokens = 0; /* not known yet */
    s->state = NTX_SESSION_READING;
    s->unread = j->req;
    s->unread_ns = j->asked_ns;
    j->req = NULL;
    unlink_session(e, s);
    append(e, s);
    uint32_t waiting = count_queued(e);
    if (waiting > e->c.max_queue + e->l->max_sessions) {
        refuse_session(e, s, -EBUSY, "busy: too many requests wait already; try again later");
        return;
    }
    ntx__engine_read_more(e);
    if (!(s = still_unread(e, id)))
        return;
    if (!e->c.max_queue)
        refuse_session(e, s, -EBUSY, no_room);
    else
        ntx_mail_progress(e->c.mail, s->replies, s->request, "queue", 0, waiting);
}

/* Idle sessions give up their KV for somebody who waits; their tokens stay, and are computed again when they go on. The
 * values are the same then, but for layers that were skipped, and groups of neurons that only decode rows leave out: so
 * not with those. */
static bool push_out_idle(struct ntx_engine *e)
{
    bool same = !e->l->skips && !ntx_ffn_mode_groups(&e->l->ffn);
    for (struct ntx_session *s = e->sessions; s && same; s = s->next)
        if (s->state == NTX_SESSION_IDLE && s->kv) {
            ntx__engine_keep(e, s, true);
            ntx_kv_seq_free(s->kv);
            s->kv = NULL;
            s->n_past = 0;
            return true;
        }
    return false;
}

static int reserve(struct ntx_engine *e, struct ntx_session *s)
{
    int rc;
    do
        rc = ntx__engine_begin(e, s);
    while (rc == -EAGAIN && push_out_idle(e));
    return rc;
}

static bool make_set(struct ntx_engine *e, struct ntx_session *s)
{
    if (e->l->ffn.kind == NTX_FFN_PROMPT && !s->ffn)
        s->ffn = ntx_ffn_set_new(e->l->model);
    return e->l->ffn.kind != NTX_FFN_PROMPT || s->ffn;
}

/* It writes, and its client takes nothing of that: somebody who waits may have its place. What it has is computed
 * again, to the same values; so not where those would differ. */
static bool may_put_by(const struct ntx_engine *e, const struct ntx_session *s)
{
    bool same = e->exact && !e->l->device;
    return same && s->state == NTX_SESSION_RUNNING && s->kind == NTX_SESSION_GENERATE && s->generated && !s->again &&
           ntx_reply_queue_stalls(s->replies);
}

static void put_by(struct ntx_engine *e, struct ntx_session *s)
{
    ntx_log(NTX_LOG_DEBUG, "session %llu: its client takes nothing, and others wait: it gives way",
            (unsigned long long)s->id);
    ntx__engine_keep(e, s, true);
    ntx_kv_seq_free(s->kv);
    s->kv = NULL;
    s->n_past = s->n_exact = s->n_kept = 0;
    ntx_sampler_free(s->sampler);
    s->sampler = NULL;
    ntx_constraint_rest(s->constraint);
    s->put_by = true;
    s->state = NTX_SESSION_QUEUED;
    ntx_reply_queue_rest(s->replies);
}

static bool put_one_by(struct ntx_engine *e)
{
    for (struct ntx_session *s = e->sessions; s; s = s->next)
        if (may_put_by(e, s)) {
            put_by(e, s);
            return true;
        }
    return false;
}

static uint32_t count_running(const struct ntx_engine *e)
{
    uint32_t n = 0;
    for (const struct ntx_session *s = e->sessions; s; s = s->next)
        n += s->state == NTX_SESSION_RUNNING;
    return n;
}

/* What s needs to run is its own. 0; -EAGAIN: not now; -EBUSY: nor that memory which only constraints take; or s
 * cannot run, with err. */
static int get_all(struct ntx_engine *e, struct ntx_session *s, struct ntx_err *err)
{
    uint32_t running = count_running(e);
    uint64_t more = ntx_session_more(s);
    if (running >= e->l->max_sessions)
        return -EAGAIN;
    if (more && !make_room(e, more) && running)
        return -EBUSY;
    allow_masks(e, more);
    int rc = reserve(e, s);
    if (rc == -EAGAIN)
        return rc;
    if (rc == -ENOSPC)
        return ntx_err_set(err, rc,
                           "KV for %u tokens does not fit: %u blocks of %d tokens are all there are; load the model "
                           "with a smaller --ctx or a larger --ram",
                           s->reserve, ntx_kv_pool_blocks(e->l->kv), NTX_KV_BLOCK);
    if (rc)
        return ntx_err_set(err, rc, "what was computed of this text before cannot be had again: %s; ask again",
                           strerror(-rc));
    if (!make_set(e, s))
        return ntx_err_set(err, -ENOMEM, "no memory for what the session's prompt shows of its neurons");
    if (s->kind == NTX_SESSION_GENERATE && ntx_session_start(s, &e->l->env))
        return ntx_err_set(err, -ENOMEM, "no memory for sampling");
    return 0;
}

static void run_session(struct ntx_engine *e, struct ntx_session *s)
{
    s->state = NTX_SESSION_RUNNING;
    ntx_reply_queue_take_turn(s->replies, ++e->last_turn);
    s->again = s->put_by;
    s->put_by = false;
    if (s->again)
        return;
    s->n_prompt = ntx_session_todo(s);
    ntx_run_admitted(&s->run, e->c.counters);
}

/* Who is next: who came first, but behind those who came before its client's last one began. So clients take turns,
 * and nobody is overtaken for ever. plain: of those that
 * need no memory for a constraint. */
static struct ntx_session *first_in_line(const struct ntx_engine *e, bool plain)
{
    struct ntx_session *best = NULL;
    uint64_t least = UINT64_MAX;
    for (struct ntx_session *s = e->sessions; s; s = s->next) {
        uint64_t turn = NTX_MAX(s->turn, ntx_reply_queue_turn(s->replies));
        if (s->state != NTX_SESSION_QUEUED || rests(s) || (plain && ntx_session_more(s)) || turn >= least)
            continue;
        best = s;
        least = turn;
    }
    return best;
}

void ntx__engine_admit(struct ntx_engine *e)
{
    bool plain = false;
    for (struct ntx_session *s; (s = first_in_line(e, plain));) {
        struct ntx_err err = {0};
        int rc = get_all(e, s, &err);
        if (!rc)
            run_session(e, s);
        else if (err.code)
            ntx__engine_fail(e, s, rc, err.text);
        else if (put_one_by(e))
            continue;
        else if (rc == -EAGAIN)
            return; /* the others come after it */
        else
            plain = true;
    }
}

static void cancel(struct ntx_engine *e, const struct ntx_job *j)
{
    uint64_t target = j->req->target;
    for (struct ntx_session *s = e->sessions, *next; s; s = next) {
        next = s->next;
        if (s->replies == j->replies && s->request == target && s->state != NTX_SESSION_IDLE)
            ntx__engine_finish(e, s, "cancel");
    }
    confirm(e, j);
}

/* What it has computed stays for texts that begin so. */
static void drop_idle(struct ntx_engine *e, struct ntx_session *s)
{
    if (s->state == NTX_SESSION_IDLE && s->n_past)
        ntx__engine_keep(e, s, true);
    ntx__engine_drop(e, s);
}

static void close_session(struct ntx_engine *e, const struct ntx_job *j)
{
    struct ntx_session *s = find(e, j->replies, j->req->session);
    if (!s) {
        refuse(e, j, -ENOENT, "there is no such session");
        return;
    }
    s->keep = false;
    if (s->state != NTX_SESSION_IDLE)
        ntx__engine_finish(e, s, "cancel");
    else
        drop_idle(e, s);
    confirm(e, j);
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
            cancel(e, j);
        else if (j->req->kind == NTX_REQUEST_CLOSE)
            close_session(e, j);
        else if (j->req->kind == NTX_REQUEST_SUMS)
            give_sums(e, j);
        else
            begin(e, j);
        return;
    }
}

void ntx__engine_gauges(struct ntx_engine *e)
{
    uint32_t running = 0;
    for (const struct ntx_session *s = e->sessions; s; s = s->next)
        running += s->state == NTX_SESSION_RUNNING;
    ntx_gauge(e->c.counters, NTX_C_comp_sessions, running);
    ntx_gauge(e->c.counters, NTX_C_comp_queued, count_queued(e));
    ntx_gauge(e->c.counters, NTX_C_comp_kv_blocks_used, ntx_kv_pool_used(e->l->kv));
    ntx_gauge(e->c.counters, NTX_C_comp_kv_blocks_kept, e->prefix ? ntx_prefix_blocks(e->prefix) : 0);
    ntx_monitor_sessions(e->c.counters, e->sessions);
}
