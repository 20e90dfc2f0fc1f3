/* SPDX-License-Identifier: Apache-2.0 */
/* The members of the running pass: the sessions that have rows in it. The main thread looks at them when a request is
 * cancelled or a client leaves. Once no member is wanted any more, the pass is cut short at its next chunk, since with
 * a slow drive its end may be many seconds away. A pass with other members goes on to its end. Either way the queued
 * job does the rest, before the next pass: the KV that a cut pass has written lies behind n_past, and is written again
 * if the session goes on.
 *
 * The lock that guards jobs guards the members, too: a job is either seen by ntx__engine_join(), or finds the members
 * there. */
#include "computed/engine/engine_impl.h"

static bool job_concerns(const struct ntx_job *j, const struct ntx__member *r)
{
    if (j->kind != NTX_JOB_REQUEST)
        return j->kind != NTX_JOB_GONE || j->replies == r->replies;
    if (j->replies != r->replies)
        return false;
    if (j->req->kind == NTX_REQUEST_CANCEL)
        return j->req->target == r->request;
    return j->req->kind == NTX_REQUEST_CLOSE && j->req->session == r->session;
}

/* Removes the members that j concerns. True: this left none. */
static bool remove_members(struct ntx_engine *e, const struct ntx_job *j)
{
    uint32_t kept = 0, had = e->n_members;
    for (uint32_t i = 0; i < had; i++)
        if (!job_concerns(j, &e->members[i]))
            e->members[kept++] = e->members[i];
    e->n_members = kept;
    return had && !kept;
}

static struct ntx__member member_of(const struct ntx_session *s)
{
    bool writes = ntx_session_decoding(s);
    return (struct ntx__member){.replies = s->replies,
                                .request = s->request,
                                .session = s->id,
                                .prompt = writes ? 0 : s->n_prompt,
                                .todo = ntx_session_todo(s),
                                .take = s->take};
}

bool ntx__engine_join(struct ntx_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->n_members = 0;
    e->member_pass = e->pass;
    for (uint32_t i = 0; i < e->n_live; i++)
        if (e->live[i]->take)
            e->members[e->n_members++] = member_of(e->live[i]);
    e->joined_ns = ntx_now_ns();
    e->joined_bytes = ntx_counter_get(e->c.counters, NTX_C_iod_bytes_read);
    for (const struct ntx_job *j = e->jobs; j; j = j->next)
        remove_members(e, j);
    bool any = e->n_members;
    pthread_mutex_unlock(&e->lock);
    return any;
}

bool ntx__engine_leave(struct ntx_engine *e)
{
    pthread_mutex_lock(&e->lock);
    bool any = e->n_members;
    e->n_members = 0;
    pthread_mutex_unlock(&e->lock);
    return any;
}

void ntx__engine_unwanted(struct ntx_engine *e, const struct ntx_job *j)
{
    if (!remove_members(e, j))
        return;
    if (e->l->stream)
        ntx_stream_cancel(e->l->stream, e->member_pass);
    ntx_skip_cancel(e->c.skip, e->member_pass);
}
