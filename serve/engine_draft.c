/* What sessions that write propose, and the path that holds. Plain writing is a proposal of one row. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "serve/engine_impl.h"
#include "serve/monitor.h"

/* ---- propose */

/* None beyond where the answer ends: by its length, the context's, or the KV that it has. */
static uint32_t deepest(const struct ntx_engine *e, const struct ntx_session *s)
{
    uint32_t room = NTX_MIN(e->l->env.ctx, ntx_kv_seq_room(s->kv)) - s->n_tokens;
    return s->max_tokens ? NTX_MIN(room, s->max_tokens - s->generated - 1) : room;
}

/* What a policy of layer skip decides for a token may depend on what it decided before: there a session proposes nothing. */
uint32_t ntx__engine_propose(struct ntx_engine *e, uint32_t i, uint32_t most)
{
    struct ntx_session *s = e->live[i];
    struct ntx_draft *d = &e->drafts[i];
    uint32_t deep = deepest(e, s), room = ntx_kv_seq_room(s->kv) - s->n_past, writers = 0;
    if (e->l->skips || !deep)
        return 1;
    for (uint32_t k = 0; k < e->n_live; k++)
        writers += ntx_session_decoding(e->live[k]);
    double plain = ntx_pace_of(&e->pace, writers) / writers; /* all of them wait for a row more */
    if (plain <= 0)
        return 1;
    double cost = e->l->set.draft_nodes ? 0 : ntx_pace_row(&e->pace) / plain;
    most = NTX_MIN(NTX_MIN(most, room), e->l->set.draft_nodes ? 1 + e->l->set.draft_nodes : NTX_DRAFT_NODES);
    ntx_draft_lookup(d, &e->chances, s->tokens, s->n_tokens, most, deep, cost);
    s->draft = d;
    return d->n;
}

/* Prompts' rows cost what they cost: only passes without any tell. */
void ntx__engine_paced(struct ntx_engine *e, uint64_t ns)
{
    if (e->lookup && !e->rows[e->n_rows - 1].rounded)
        ntx_pace_add(&e->pace, e->n_rows, (double)ns);
}

/* ---- verify */

struct drawn {
    int32_t token;
    const char *finish, *text;
    size_t len;
};

static void tell(struct ntx_engine *e, struct ntx_session *s, const struct drawn *t)
{
    uint64_t before = s->run.generated ? s->run.last_ns : 0;
    ntx_run_token(&s->run, e->c.counters);
    ntx_monitor_token(e->c.counters, s, before);
    ntx_count(e->c.counters, NTX_C_comp_tokens, 1);
    ntx__engine_send_token(e, s, t->token, t->text, t->len);
    if (t->finish)
        ntx__engine_finish(e, s, t->finish);
}

/* The rows that held are what the session goes on with. */
static int commit(struct ntx_engine *e, struct ntx_session *s, const uint32_t *slots, uint32_t n)
{
    if (!s->draft || s->draft->n == 1)
        return 0;
    int rc = ntx_forward_commit(e->l->forward, s->kv, s->n_past - n, slots, n);
    if (rc)
        ntx__engine_fail(e, s, rc, e->l->weights->error.text);
    return rc;
}

static int draw(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *row, struct drawn *t)
{
    int rc = ntx_session_sample(s, &e->l->env, row, &t->token, &t->finish, &t->text, &t->len);
    if (rc)
        ntx__engine_fail(e, s, rc, strerror(-rc));
    return rc;
}

void ntx__engine_give_token(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *row)
{
    struct drawn t;
    if (!draw(e, s, row, &t))
        tell(e, s, &t);
}

void ntx__engine_verify(struct ntx_engine *e, struct ntx_session *s)
{
    const struct ntx_row *rows = e->rows + s->first_row;
    const struct ntx_draft *d = s->draft;
    uint32_t slots[NTX_DRAFT_NODES], n = 0, at = 0, next;
    struct drawn t;
    s->run.written_passes++;
    s->run.draft_nodes += s->take - 1;
    do {
        slots[n++] = ntx_row_slot(&rows[at]);
        if (ntx__engine_finite(e, s, &rows[at], 1))
            return;
        ntx__engine_learn(e, s, &rows[at], 1, true);
        s->run.committed++;
        s->n_past++;
        if (draw(e, s, &rows[at], &t))
            return;
        next = d && !t.finish ? ntx_draft_follow(d, &e->chances, at, t.token) : 0;
        if (!next && commit(e, s, slots, n))
            return;
        tell(e, s, &t);
        at = next;
    } while (next);
}
