/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of a request: its start, its tokens, its end or error, its statistics. */
#include <errno.h>
#include <stdlib.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"
#include "computed/engine/monitor.h"
#include "computed/engine/stats.h"

/* A request counts as work from its submission until just before its last reply, so that a client that has the reply
 * sees it counted. */
static void count_off(struct ntx_engine *e) { atomic_fetch_sub(&e->n_working, 1); }

void ntx__engine_leave_request(struct ntx_engine *e, struct ntx_session *s)
{
    if (s->reading) {
        s->reading->session = NULL;
        atomic_store(&s->reading->unwanted, true);
        s->reading = NULL;
    }
    ntx_request_free(s->unread);
    s->unread = NULL;
    ntx__engine_draft_end(e, s);
    s->preempted = s->again = false;
    if (s->state != NTX_SESSION_IDLE)
        count_off(e);
    s->state = NTX_SESSION_IDLE;
}

void ntx__engine_drop(struct ntx_engine *e, struct ntx_session *s)
{
    ntx__engine_leave_request(e, s);
    ntx__engine_unlink(e, s);
    ntx_session_free(s);
}

void ntx__engine_refuse(struct ntx_engine *e, const struct ntx_job *j, int err, const char *text)
{
    count_off(e);
    ntx_mail_error(e->c.mail, j->replies, j->req->id, err, "%s", text);
}

void ntx__engine_confirm(struct ntx_engine *e, const struct ntx_job *j)
{
    count_off(e);
    ntx_mail_done(e->c.mail, j->replies, j->req->id, "", NULL);
}

void ntx__engine_refuse_session(struct ntx_engine *e, struct ntx_session *s, int err, const char *text)
{
    ntx__engine_leave_request(e, s);
    ntx_mail_error(e->c.mail, s->replies, s->request, err, "%s", text);
    if (!s->n_tokens)
        ntx__engine_drop(e, s);
}

void ntx__engine_send_started(struct ntx_engine *e, struct ntx_session *s)
{
    const struct ntx_started m = {.session = s->id,
                                  .prompt_tokens = s->run.prompt_tokens,
                                  .seed = s->run.seed,
                                  .context = s->n_tokens,
                                  .ctx = e->l->env.ctx,
                                  .note = s->note,
                                  .think_note = s->think_note};
    ntx_mail_started(e->c.mail, s->replies, s->request, &m);
}

/* A token that ends the answer has no bytes to show. */
static struct ntx_token_prob token_prob(const struct ntx_engine *e, int32_t token, float logprob, bool top, char *buf)
{
    const struct ntx_tokenizer *tok = e->l->env.tok;
    int n = !top && ntx_tokenizer_is_eog(tok, token) ? 0
                                                     : ntx_detokenize_one(tok, token, false, true, buf, NTX_TOKEN_MAX);
    return (struct ntx_token_prob){token, logprob, buf, n > 0 ? (size_t)n : 0};
}

static void send_token_probs(struct ntx_engine *e, struct ntx_session *s, int32_t token, const char *text, size_t len,
                             const struct ntx_token_top *t)
{
    struct ntx_token_prob top[NTX_TOP_MOST];
    char *buf = malloc((t->n + 1) * (size_t)NTX_TOKEN_MAX);
    if (!buf) {
        ntx_mail_token(e->c.mail, s->replies, s->request, token, text, len, NULL);
        return;
    }
    for (uint32_t i = 0; i < t->n; i++)
        top[i] = token_prob(e, t->top[i].id, t->top[i].logit, true, buf + (i + 1) * (size_t)NTX_TOKEN_MAX);
    const struct ntx_token_probs probs = {.it = token_prob(e, token, t->logprob, false, buf), .top = top, .n = t->n};
    ntx_mail_token(e->c.mail, s->replies, s->request, token, text, len, &probs);
    free(buf);
}

void ntx__engine_send_token(struct ntx_engine *e, struct ntx_session *s, int32_t token, const char *text, size_t len)
{
    const struct ntx_token_top *t = token >= 0 ? ntx_constraint_token_top(s->constraint) : NULL;
    if (t)
        send_token_probs(e, s, token, text, len, t);
    else
        ntx_mail_token(e->c.mail, s->replies, s->request, token, text, len, NULL);
}

static void send_score(struct ntx_engine *e, struct ntx_session *s)
{
    char *stats = s->one_by_one ? ntx_stats_run(&s->run, e->l, e->c.counters) : NULL;
    const struct ntx_scores scores = {s->nll, s->each, s->best, s->best_token, s->n_tokens - s->from};
    ntx_mail_score(e->c.mail, s->replies, s->request, &scores, stats);
    free(stats);
}

/* Sends the text that was held back because it could have become a stop string. */
static void flush_text(struct ntx_engine *e, struct ntx_session *s)
{
    const char *text;
    size_t n;
    if (s->text && !ntx_text_take(s->text, true, &text, &n) && n)
        ntx__engine_send_token(e, s, -1, text, n);
}

/* Cancelled before it knew its tokens. */
static void finish_unbegun(struct ntx_engine *e, struct ntx_session *s)
{
    ntx__engine_leave_request(e, s);
    ntx_mail_done(e->c.mail, s->replies, s->request, "cancel", NULL);
    if (!s->n_tokens || !s->keep)
        ntx__engine_drop(e, s);
}

void ntx__engine_finish(struct ntx_engine *e, struct ntx_session *s, const char *finish)
{
    if (s->state == NTX_SESSION_READING) {
        finish_unbegun(e, s);
        return;
    }
    ntx__engine_keep(e, s, !s->keep);
    flush_text(e, s);
    s->run.finish = finish;
    s->run.thinking = ntx_thought_tokens(s->thought);
    s->run.predictor_lost = s->predictor_lost;
    ntx_run_ended(&s->run, e->c.counters);
    if (s->kind == NTX_SESSION_SCORE && !*finish) {
        ntx__engine_leave_request(e, s);
        send_score(e, s);
        ntx__engine_drop(e, s);
        return;
    }
    ntx_monitor_answer(e->c.counters, s);
    char *stats = ntx_stats_run(&s->run, e->l, e->c.counters);
    ntx__engine_leave_request(e, s);
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
    ntx__engine_leave_request(e, s);
    ntx_mail_error(e->c.mail, s->replies, s->request, err, "%s", text);
    ntx__engine_drop(e, s);
}

void ntx__engine_gauges(struct ntx_engine *e)
{
    ntx_gauge(e->c.counters, NTX_C_comp_sessions, ntx__engine_count(e, NTX_SESSION_RUNNING));
    ntx_gauge(e->c.counters, NTX_C_comp_queued,
              ntx__engine_count(e, NTX_SESSION_READING) + ntx__engine_count(e, NTX_SESSION_QUEUED));
    ntx_gauge(e->c.counters, NTX_C_comp_kv_blocks_used, ntx_kv_pool_used(e->l->kv));
    ntx_gauge(e->c.counters, NTX_C_comp_kv_blocks_kept, e->prefix ? ntx_prefix_blocks(e->prefix) : 0);
    ntx_monitor_sessions(e->c.counters, e->sessions);
}
