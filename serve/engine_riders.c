/* Who rides in the pass that runs. The main thread looks at it when a request is cancelled or a client leaves: once nobody in the pass is
 * wanted any more, the pass is cut short at its next chunk, since with a slow drive its end may be many seconds away. A pass that carries anybody
 * else goes on to its end. Either way the job that was queued does the rest, before the next pass: what a pass that was cut short has
 * written to the KV lies behind n_past and is written again, should the session go on.
 *
 * All of it is guarded by the lock, under which jobs are queued, too: a job is either seen by board(), or finds the riders there. */
#include "serve/engine_impl.h"

static bool concerns(const struct ntx_job *j, const struct ntx__rider *r)
{
    if (j->kind != NTX_JOB_REQUEST)
        return j->kind != NTX_JOB_GONE || j->sink == r->sink;
    if (j->sink != r->sink)
        return false;
    if (j->req->body_case == NTX__REQUEST__BODY_CANCEL)
        return j->req->cancel->target == r->request;
    return j->req->body_case == NTX__REQUEST__BODY_CLOSE_SESSION && j->req->close_session->session == r->session;
}

/* Takes whom j concerns off; true when this left none. */
static bool take_off(struct ntx_engine *e, const struct ntx_job *j)
{
    uint32_t kept = 0, had = e->n_riders;
    for (uint32_t i = 0; i < had; i++)
        if (!concerns(j, &e->riders[i]))
            e->riders[kept++] = e->riders[i];
    e->n_riders = kept;
    return had && !kept;
}

static struct ntx__rider rider(const struct ntx_session *s)
{
    bool writes = ntx_session_decoding(s);
    return (struct ntx__rider){.sink = s->sink, .request = s->request, .session = s->id, .prompt = writes ? 0 : s->n_prompt, .todo = ntx_session_todo(s), .take = s->take};
}

bool ntx__engine_board(struct ntx_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->n_riders = 0;
    e->riding = e->pass;
    for (uint32_t i = 0; i < e->n_live; i++)
        if (e->live[i]->take)
            e->riders[e->n_riders++] = rider(e->live[i]);
    e->boarded_ns = ntx_now_ns();
    e->boarded_bytes = ntx_counter_get(e->c.counters, NTX_C_iod_bytes_read);
    for (const struct ntx_job *j = e->jobs; j; j = j->next)
        take_off(e, j);
    bool any = e->n_riders;
    pthread_mutex_unlock(&e->lock);
    return any;
}

bool ntx__engine_alight(struct ntx_engine *e)
{
    pthread_mutex_lock(&e->lock);
    bool any = e->n_riders;
    e->n_riders = 0;
    pthread_mutex_unlock(&e->lock);
    return any;
}

void ntx__engine_unwanted(struct ntx_engine *e, const struct ntx_job *j)
{
    if (!take_off(e, j))
        return;
    ntx_stream_cancel(e->l->stream, e->riding);
    ntx_skip_cancel(e->c.skip, e->riding);
}
