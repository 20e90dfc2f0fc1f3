/* SPDX-License-Identifier: Apache-2.0 */
/* A request whose tokens are known waits for a slot and KV, gets them, and runs. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"
#include "computed/plan/budget.h"

/* ---- the memory that sessions hold counts in the budget */

static uint64_t session_bytes(const struct ntx_engine *e, const struct ntx_session *s)
{
    return ntx_session_bytes(s, &e->l->env) +
           (s->ffn && s->state == NTX_SESSION_IDLE ? ntx_ffn_set_bytes(e->l->model) : 0);
}

static uint64_t bytes_held(const struct ntx_engine *e, const struct ntx_reply_queue *replies)
{
    uint64_t bytes = 0;
    for (const struct ntx_session *s = e->sessions; s; s = s->next)
        bytes += !replies || s->replies == replies ? session_bytes(e, s) : 0;
    return bytes;
}

/* The idle session to drop: the longest idle one of the client that holds most. Sessions are in the order of their
 * requests. */
static struct ntx_session *session_to_drop(const struct ntx_engine *e)
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

void ntx__engine_allow_masks(struct ntx_engine *e, uint64_t more)
{
    uint64_t bytes = bytes_held(e, NULL) + more;
    ntx_words_allow(e->l->words, e->l->kept_bytes > bytes ? e->l->kept_bytes - bytes : 0);
}

bool ntx__engine_make_room(struct ntx_engine *e, uint64_t more)
{
    struct ntx_words *w = e->l->words;
    while (bytes_held(e, NULL) + ntx_words_bytes(w) + more > e->l->kept_bytes + ntx_words_idle(w)) {
        struct ntx_session *s = session_to_drop(e);
        if (ntx_words_trim(w))
            continue;
        if (!s)
            return false;
        ntx__engine_drop(e, s);
    }
    return true;
}

/* Whether s needs more than the budget has even when it runs alone. */
static bool exceeds_budget(struct ntx_engine *e, const struct ntx_session *s, struct ntx_err *err)
{
    uint64_t bytes = session_bytes(e, s), more = ntx_session_more(s), shared = ntx_constraint_shared(s->constraint);
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

/* ---- the queue */

void ntx__engine_enqueue(struct ntx_engine *e, struct ntx_session *s, uint64_t asked_ns)
{
    s->run.asked_ns = asked_ns;
    ntx__engine_unlink(e, s); /* to the end of the queue */
    ntx__engine_append(e, s);
    s->state = NTX_SESSION_QUEUED;
    s->turn = ++e->last_turn;
    struct ntx_err err = {0};
    if (exceeds_budget(e, s, &err)) {
        ntx__engine_fail(e, s, err.code, err.text);
        return;
    }
    if (s->kind == NTX_SESSION_GENERATE)
        ntx__engine_send_started(e, s);
    ntx__engine_admit(e);
    uint32_t waiting = ntx__engine_count(e, NTX_SESSION_QUEUED);
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

/* Frees the KV of an idle session. Its tokens stay and are computed again when it goes on, to the same values. Under
 * layer skips, or where groups are left out in decode rows, the values would differ: then nothing is freed. */
static bool free_idle_kv(struct ntx_engine *e)
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

static int reserve_kv(struct ntx_engine *e, struct ntx_session *s)
{
    int rc;
    do
        rc = ntx__engine_begin(e, s);
    while (rc == -EAGAIN && free_idle_kv(e));
    return rc;
}

static bool make_ffn_set(struct ntx_engine *e, struct ntx_session *s)
{
    if (e->l->ffn.kind == NTX_FFN_PROMPT && !s->ffn)
        s->ffn = ntx_ffn_set_new(e->l->model);
    return e->l->ffn.kind != NTX_FFN_PROMPT || s->ffn;
}

/* s decodes, and its client takes no replies: a queued session may have its place. Its KV is computed again later, so s
 * is preempted only where that gives the same values. */
static bool may_preempt(const struct ntx_engine *e, const struct ntx_session *s)
{
    bool same = e->exact && !e->l->device;
    return same && s->state == NTX_SESSION_RUNNING && s->kind == NTX_SESSION_GENERATE && s->generated && !s->again &&
           ntx_reply_queue_stalls(s->replies);
}

static void preempt(struct ntx_engine *e, struct ntx_session *s)
{
    ntx_log(NTX_LOG_DEBUG, "session %llu is preempted: its client takes no replies, and others wait",
            (unsigned long long)s->id);
    ntx__engine_keep(e, s, true);
    ntx_kv_seq_free(s->kv);
    s->kv = NULL;
    s->n_past = s->n_exact = s->n_kept = 0;
    ntx_sampler_free(s->sampler);
    s->sampler = NULL;
    ntx_constraint_rest(s->constraint);
    s->preempted = true;
    s->state = NTX_SESSION_QUEUED;
    ntx_reply_queue_rest(s->replies);
}

static bool preempt_one(struct ntx_engine *e)
{
    for (struct ntx_session *s = e->sessions; s; s = s->next)
        if (may_preempt(e, s)) {
            preempt(e, s);
            return true;
        }
    return false;
}

/* Gives s all that it needs to run. -EAGAIN: not now; -EBUSY: the memory for its constraint is in use; another error,
 * with err: s can never run. */
static int get_resources(struct ntx_engine *e, struct ntx_session *s, struct ntx_err *err)
{
    uint32_t running = ntx__engine_count(e, NTX_SESSION_RUNNING);
    uint64_t more = ntx_session_more(s);
    if (running >= e->l->max_sessions)
        return -EAGAIN;
    if (more && !ntx__engine_make_room(e, more) && running)
        return -EBUSY;
    ntx__engine_allow_masks(e, more);
    int rc = reserve_kv(e, s);
    if (rc == -EAGAIN)
        return rc;
    if (rc == -ENOSPC)
        return ntx_err_set(err, rc,
                           "KV for %u tokens does not fit: %u blocks of %d tokens are all there are; load the model "
                           "with a smaller --ctx or a larger --ram",
                           s->reserve, ntx_kv_pool_blocks(e->l->kv), NTX_KV_BLOCK);
    if (rc)
        return ntx_err_set(err, rc, "the earlier state of this text cannot be restored: %s; send the request again",
                           strerror(-rc));
    if (!make_ffn_set(e, s))
        return ntx_err_set(err, -ENOMEM, "no memory for the neurons of the session's prompt");
    if (s->kind == NTX_SESSION_GENERATE && ntx_session_start(s, &e->l->env))
        return ntx_err_set(err, -ENOMEM, "no memory for sampling");
    return 0;
}

static uint64_t last_turn(const struct ntx_engine *e, uint64_t client)
{
    for (unsigned i = 0; i < NTX_CLIENT_TURNS; i++)
        if (e->client_turn[i].client == client)
            return e->client_turn[i].turn;
    return 0;
}

/* Replaces the client whose turn was longest ago. */
static void take_turn(struct ntx_engine *e, uint64_t client)
{
    struct ntx__client_turn *to = e->client_turn;
    for (unsigned i = 0; i < NTX_CLIENT_TURNS && to->client != client; i++)
        if (e->client_turn[i].client == client || e->client_turn[i].turn < to->turn)
            to = &e->client_turn[i];
    *to = (struct ntx__client_turn){client, ++e->last_turn};
}

static void run_session(struct ntx_engine *e, struct ntx_session *s)
{
    s->state = NTX_SESSION_RUNNING;
    take_turn(e, s->client);
    s->again = s->preempted;
    s->preempted = false;
    if (s->again)
        return;
    s->n_prompt = ntx_session_todo(s);
    ntx_run_admitted(&s->run, e->c.counters);
}

/* The next session to run: by arrival, but after the sessions that came before its client's last one began. So clients
 * take turns, and none starves. plain: only sessions that need no memory for a constraint. */
static struct ntx_session *next_queued(const struct ntx_engine *e, bool plain)
{
    struct ntx_session *best = NULL;
    uint64_t least = UINT64_MAX;
    for (struct ntx_session *s = e->sessions; s; s = s->next) {
        uint64_t turn = NTX_MAX(s->turn, last_turn(e, s->client));
        if (s->state != NTX_SESSION_QUEUED || ntx__session_rests(s) || (plain && ntx_session_more(s)) || turn >= least)
            continue;
        best = s;
        least = turn;
    }
    return best;
}

void ntx__engine_admit(struct ntx_engine *e)
{
    bool plain = false;
    for (struct ntx_session *s; (s = next_queued(e, plain));) {
        struct ntx_err err = {0};
        int rc = get_resources(e, s, &err);
        if (!rc)
            run_session(e, s);
        else if (err.code)
            ntx__engine_fail(e, s, rc, err.text);
        else if (preempt_one(e))
            continue;
        /* keeps the order of the queue */
        else if (rc == -EAGAIN)
            return;
        else
            plain = true;
    }
}
