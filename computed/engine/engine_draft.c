/* SPDX-License-Identifier: Apache-2.0 */
/* Speculative decoding: the proposals of decoding sessions, and their verification. Plain decoding is a proposal of one
 * row. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"
#include "computed/engine/monitor.h"

/* ---- propose */

/* Depth at which the answer ends at the latest: by max_tokens, the context or its KV. */
static uint32_t depth_limit(const struct ntx_engine *e, const struct ntx_session *s)
{
    uint32_t room = NTX_MIN(e->l->env.ctx, ntx_kv_seq_room(s->kv)) - s->n_tokens;
    return s->max_tokens ? NTX_MIN(room, s->max_tokens - s->generated - 1) : room;
}

/* Every skip_verify-th token skips nothing, and its result adapts the policy: so no draft reaches beyond it. */
static uint32_t depth_until_verify(const struct ntx_engine *e, const struct ntx_session *s)
{
    uint32_t every = e->l->skips ? e->l->set.skip_verify : 0, left = every ? every - 1 - s->decoded % every : 0;
    if (!every)
        return UINT32_MAX;
    return left ? left - 1 : 0;
}

/* A GPU skips layers for all rows of a pass at once, so a tree cannot skip. */
static bool drafts_impossible(const struct ntx_engine *e) { return e->l->skips && e->l->device; }

#define SHADOW_LEAST  0.05
#define EXPANDED_MOST 320u /* nodes of a drafter's tree */
#define WAITED_FOR    0.02 /* least chance of a node */
#define FEW_NODES     16u
#define REPEATS       0.8 /* chance of the first node of look-up */
#define COLD_MOST     64u /* passes */
static struct ntx_draft_text draft_text(const struct ntx_engine *e, const struct ntx_session *s)
{
    return (struct ntx_draft_text){.session = s->id,
                                   .tokens = s->tokens,
                                   .n = s->n_tokens,
                                   .n_prompt = s->n_tokens - s->generated,
                                   .n_vocab = e->l->env.n_vocab,
                                   .sampling = &s->sampling,
                                   .kv = ntx_session_todo(s) == 1 ? s->kv : NULL,
                                   .adapter = s->adapter};
}

/* Nodes that the draft model expands: for as many drafts as recently, and some more for the next proposal. Unused ones
 * cost the pass a core. */
static uint32_t nodes_to_expand(const struct ntx_engine *e)
{
    uint32_t lately = e->policy.drafted < 1 ? NTX_DRAFT_NODES / 2 : (uint32_t)(1.5 * e->policy.drafted),
             nodes = e->l->set.draft_nodes ? e->l->set.draft_nodes
                                           : NTX_MIN(NTX_MAX(lately, FEW_NODES), NTX_DRAFT_NODES / 2);
    return NTX_MIN(5 * nodes, EXPANDED_MOST);
}

void ntx__engine_draft_ahead(struct ntx_engine *e, struct ntx_session *s)
{
    const struct ntx_draft_text t = draft_text(e, s);
    for (unsigned i = 0; i < e->n_files && !s->images.n && !drafts_impossible(e) && e->policy.turn.on; i++)
        if (e->file[i].part)
            ntx_draft_file_request(&e->file[i], &t, nodes_to_expand(e));
}

/* A draft model that still works on an answered text would delay the next one. */
void ntx__engine_draft_end(struct ntx_engine *e, const struct ntx_session *s)
{
    for (unsigned i = 0; i < e->n_files; i++)
        if (e->file[i].part)
            ntx_draft_file_leave(&e->file[i], s->id);
}

/* How long to wait for a tree: a part of a pass, or of the plain passes that it saves, as long as trees bring tokens. A
 * late or wrong drafter is waited for less and less. */
static uint64_t draft_patience(const struct ntx_engine *e, double plain)
{
    const struct ntx_draft_policy *p = &e->policy;
    double pass = NTX_MAX(
        plain, ntx_pace_of(&p->pace, ntx_pace_union(p->expert_share, 1 + p->drafted))); /* as many drafts as recently */
    double worth = NTX_MIN(p->gain * plain / 2, pass), most = p->asked ? NTX_MAX(pass, 1e8) : NTX_MAX(pass / 4, worth);
    return (uint64_t)(NTX_MIN(most, 1e9) * NTX_MIN(p->gain / 2, 1.0));
}

struct wanted { /* limits of a proposal */
    uint32_t most, deep;
    double cost, pass, worth; /* least chance of a node; ns of a plain pass; tokens that a ns is worth */
};

static void wait_for_models(struct ntx_engine *e, struct ntx_session *s, const struct wanted *w)
{
    const struct ntx_draft_text t = draft_text(e, s);
    uint64_t t0 = ntx_now_ns(), end = t0 + draft_patience(e, w->pass);
    double cost = e->policy.asked ? w->cost : NTX_MAX(w->cost, WAITED_FOR);
    bool late = false, any = false;
    for (unsigned i = 0; i < e->n_files; i++)
        if (e->file[i].part)
            ntx_draft_file_request(&e->file[i], &t, nodes_to_expand(e));
    for (unsigned i = 0; i < e->n_files; i++) {
        uint64_t now = ntx_now_ns();
        late |= e->file[i].part && !ntx_draft_file_wait(&e->file[i], &t, w->most, cost, e->policy.asked ? 0 : w->worth,
                                                        end > now ? end - now : 0);
        any |= e->file[i].part != NULL;
    }
    if (e->by_states) {
        ntx_draft_file_grow(e->by_states, &t, w->most, cost, e->policy.asked || e->left ? 0 : w->worth);
        any = true;
    }
    if (late && w->pass > 0)
        e->policy.gain *= 0.9;
    uint64_t waited = any ? ntx_now_ns() - t0 : 0;
    s->run.draft_ns += waited;
    ntx_count(e->c.counters, NTX_C_comp_draft_wait_ns, waited);
}

/* A draft model takes part in its turns, all else always. None of them sees images: such a text drafts by itself. */
static bool takes_part(const struct ntx_engine *e, const struct ntx_session *s, unsigned file)
{
    return !s->images.n && (e->file[file].drafter_file || e->policy.turn.on);
}

/* Looking up costs one search of the text. In long texts or short passes, not every pass does it in vain. */
static void look_up(struct ntx_engine *e, const struct ntx_session *s, struct ntx_draft *d, const struct wanted *w)
{
    uint64_t t0 = ntx_now_ns();
    ntx_draft_lookup(d, &e->draft_stats.chances, s->tokens, s->n_tokens, w->most, w->deep,
                     NTX_MIN(w->cost, SHADOW_LEAST));
    e->looked_ns = (double)(ntx_now_ns() - t0);
}

/* Whether the text repeats so surely that drafts of the layers in memory are not worth the time: they take it from the
 * pass, while a draft model works beside it. */
static bool repeats_surely(const struct ntx_engine *e, const struct ntx_draft *looked)
{
    return e->by_states && !e->left && looked->n > 1 &&
           ntx_draft_chance(&e->draft_stats.chances, looked->kind[1], 1, looked->said[1]) >= REPEATS;
}

static void propose_tree(struct ntx_engine *e, struct ntx_session *s, struct ntx_draft *d, const struct wanted *w)
{
    const struct ntx_draft_text t = draft_text(e, s);
    unsigned n = 0;
    bool looks = e->lookup && (e->policy.asked || ntx_draft_look_due(&e->policy.look));
    for (unsigned i = 0; i < e->n_files; i++)
        n += takes_part(e, s, i);
    unsigned several = n + looks > 1, k = 0;
    double cost = several ? w->cost / 4 : w->cost; /* a node that several propose is worth more */
    e->looked_ns = 0;
    if (looks)
        look_up(e, s, several ? &e->parts[k++] : d, w);
    if (n && e->policy.turn.on && !(looks && !e->policy.asked && repeats_surely(e, several ? e->parts : d)))
        wait_for_models(e, s, w);
    for (unsigned i = 0; i < e->n_files; i++)
        if (takes_part(e, s, i))
            ntx_draft_from_file(&e->file[i], several ? &e->parts[k++] : d, &e->draft_stats.chances, &t, w->most,
                                w->deep, cost);
    if (several)
        ntx_draft_join(d, e->parts, k, &e->draft_stats.chances, w->most, w->cost);
    else if (!n && !looks)
        ntx_draft_root(d, s->tokens[s->n_tokens - 1], s->n_tokens);
}

/* Whether the expert cache is full. Before, passes read experts that later ones find in memory, so they predict
 * nothing. */
static bool is_warm(const struct ntx_engine *e)
{
    const struct ntx_counters *c = e->c.counters;
    return e->pass > COLD_MOST ||
           ntx_counter_get(c, NTX_C_comp_expert_misses) + ntx_counter_get(c, NTX_C_comp_prefetch_hits) >=
               e->l->plan->frames.n;
}

uint32_t ntx__engine_propose(struct ntx_engine *e, uint32_t i, uint32_t most)
{
    struct ntx_session *s = e->live[i];
    struct ntx_draft *d = &e->drafts[i];
    struct ntx_draft_policy *p = &e->policy;
    uint32_t deep = NTX_MIN(depth_limit(e, s), depth_until_verify(e, s)),
             room = ntx_kv_seq_room(s->kv) + 1 - s->n_tokens, writers = 0;
    if (drafts_impossible(e) || !deep)
        return 1;
    for (uint32_t k = 0; k < e->n_live; k++)
        writers += ntx_session_decoding(e->live[k]);
    double plain = ntx_draft_policy_plain(p, writers);
    most = NTX_MIN(NTX_MIN(most, room), p->asked ? 1 + p->asked : NTX_DRAFT_NODES);
    ntx_draft_chances_drift(&e->draft_stats.chances);
    d->asked_ns = ntx_now_ns();
    propose_tree(e, s, d,
                 &(struct wanted){most, deep, ntx_draft_policy_least(p, writers), plain > 0 ? plain : e->last_ns,
                                  ntx_draft_policy_worth(p, writers)});
    if (e->chains)
        ntx_draft_straighten(d);
    const uint32_t proposed = d->n;
    ntx_draft_policy_cut(p, d, &e->draft_stats.chances, writers);
    d->taken_ns = ntx_now_ns();
    ntx_draft_policy_proposed(p, d->n - 1);
    if (d->n > 1) {
        s->draft = d;
        return d->n;
    }
    p->look.over_ns += e->looked_ns;
    d->n = proposed; /* its first nodes are learned from, though they are not computed */
    s->shadow = d;
    return 1;
}

/* Learns from passes without prompt rows: those would blur the cost of a decode row. */
void ntx__engine_paced(struct ntx_engine *e, uint64_t ns)
{
    double waited = (double)(ntx_counter_get(e->c.counters, NTX_C_comp_stall_ns) - e->stall_ns);
    bool decodes = !e->rows[e->n_rows - 1].rounded;
    e->draft_news += e->drafting;
    e->heat_news += e->heat && e->heat_news < UINT32_MAX;
    if (decodes)
        e->last_ns = (double)ns;
    if (e->drafting && !decodes)
        ntx_draft_policy_prompt(&e->policy, e->n_rows, (double)ns, waited);
    else if (e->drafting && is_warm(e))
        ntx_draft_policy_pass(&e->policy, e->n_rows, (double)ns, waited);
}

void ntx__engine_turn(struct ntx_engine *e, uint64_t ns)
{
    struct ntx_draft_policy *p = &e->policy;
    uint64_t stall = ntx_counter_get(e->c.counters, NTX_C_comp_stall_ns), waited = stall - e->stall_ns;
    e->stall_ns = stall;
    bool writing = e->n_rows && !e->rows[e->n_rows - 1].rounded && e->pass_tokens, on = p->turn.on;
    ntx_draft_look_pass(&p->look, (double)ns);
    if (e->drafting && writing)
        e->draft_news += e->pass_tokens - 1; /* the pass itself has been counted */
    if (e->drafting && writing && is_warm(e))
        ntx_draft_policy_wrote(p, e->pass_tokens, e->pass_looked, e->pass_texts, (double)ns, (double)waited);
    for (unsigned i = 0; i < e->n_files && on && !p->turn.on; i++)
        if (e->file[i].part)
            ntx_draft_file_rest(&e->file[i]);
}

void ntx__engine_show(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *rows, uint32_t n)
{
    const struct ntx_draft_text t = draft_text(e, s);
    for (uint32_t i = 0; e->by_states && i < n; i++)
        if (rows[i].left)
            ntx_draft_file_show(e->by_states, &t, rows[i].pos, rows[i].left, e->policy.turn.on);
}

/* ---- verify */

struct drawn {
    int32_t token;
    const char *finish, *text;
    size_t len;
};

static void send_drawn(struct ntx_engine *e, struct ntx_session *s, const struct drawn *t)
{
    uint64_t before = s->run.generated ? s->run.last_ns : 0;
    ntx_run_token(&s->run, e->c.counters);
    ntx_monitor_token(e->c.counters, s, before);
    ntx_count(e->c.counters, NTX_C_comp_tokens, 1);
    ntx__engine_send_token(e, s, t->token, t->text, t->len);
    if (t->finish)
        ntx__engine_finish(e, s, t->finish);
}

struct held {                          /* the accepted path through a session's tree */
    uint32_t n, by[NTX_DRAFT_SOURCES]; /* nodes with node 0; those proposed by each source (several may propose one) */
    uint32_t by_files;                 /* by any file */
    uint64_t nodes[2];                 /* bits */
};

static void hold_node(struct held *h, const struct ntx_draft *d, uint32_t node)
{
    h->n++;
    h->nodes[node / 64] |= 1ull << node % 64;
    if (!node)
        return;
    unsigned files = 0;
    for (unsigned i = 0; i < NTX_DRAFT_SOURCES; i++) {
        bool his = ntx_draft_source(d->kind[node]) == i || d->also[node][i] != NTX_DRAFT_ALONE;
        h->by[i] += his;
        files += his && i >= NTX_DRAFT_BY_FILE;
    }
    h->by_files += files > 0;
}

static void count_held(struct ntx_engine *e, struct ntx_session *s, const struct held *h)
{
    const struct ntx_draft *d = s->draft;
    uint32_t lookup = h->by[NTX_DRAFT_BY_LOOKUP], file = h->by_files;
    struct ntx_counters *c = e->c.counters;
    ntx_draft_stats_rank(&e->draft_stats.ranks[ntx__engine_draft_place(e)], d->n - 1, h->nodes);
    for (unsigned i = 0; i < NTX_DRAFT_SOURCES; i++)
        s->run.draft_hits[i] += h->by[i];
    s->run.draft_file_hits += file;
    e->pass_looked += lookup;
    ntx_count(c, NTX_C_comp_draft_hits, h->n - 1);
    ntx_count(c, NTX_C_comp_draft_hits_lookup, lookup);
    ntx_count(c, NTX_C_comp_draft_hits_file, file);
    ntx_traced(c, NTX_TRACE_COMPUTED, NTX_TR_DRAFT, d->asked_ns, d->taken_ns,
               (d->n - 1) | (h->n - 1) << 8 | lookup << 16 | file << 24, e->pass - 1, s->id);
    ntx_traced(c, NTX_TRACE_COMPUTED, NTX_TR_PATH, d->taken_ns, ntx_traced_now(c, NTX_TRACE_COMPUTED), (uint32_t)s->id,
               h->nodes[0], h->nodes[1]);
}

/* The session goes on from the accepted rows. Recurrent state that went beyond them can only return to the begin of the
 * pass: the accepted rows are then computed again first in the next pass, to the same values. */
static int commit_rows(struct ntx_engine *e, struct ntx_session *s, const uint32_t *slots, const struct held *h)
{
    uint32_t n = h->n;
    if (!s->draft && s->shadow)
        ntx_draft_stats_rank(&e->draft_stats.ranks[ntx__engine_draft_place(e)], 0, h->nodes);
    if (!s->draft)
        return 0;
    e->policy.gain += 0.05 * ((double)n - 1 - e->policy.gain);
    count_held(e, s, h);
    int rc = ntx_forward_commit(e->l->forward, s->kv, s->n_past - n, slots, n);
    s->n_past = ntx_kv_return(s->kv, s->n_past);
    if (rc)
        ntx__engine_fail(e, s, rc, e->l->weights->error.text);
    return rc;
}

/* -EINVAL: the grammar is at fault, not the prompt. */
static void fail_draw(struct ntx_engine *e, struct ntx_session *s, int rc)
{
    ntx__engine_fail(e, s, s->constraint && (rc == -E2BIG || rc == -EILSEQ) ? -EINVAL : rc,
                     s->constraint ? ntx_constraint_why(rc) : strerror(-rc));
}

static int draw_token(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *row, struct drawn *t)
{
    int rc = ntx_session_sample(s, &e->l->env, row, &t->token, &t->finish, &t->text, &t->len);
    if (rc)
        fail_draw(e, s, rc);
    return rc;
}

/* Adds tokens that are known without logits (the end of a thought), so that they share the next pass. A skip policy, a
 * sparse FFN and a drafter by states want each token's own row: there they come one by one. */
static void send_due(struct ntx_engine *e, struct ntx_session *s)
{
    struct drawn t = {0};
    if (e->l->skips || e->l->ffn.kind != NTX_FFN_ALL || e->left)
        return;
    while (!t.finish && ntx_session_is_due(s)) {
        int rc = ntx_session_add_due(s, &e->l->env, &t.token, &t.finish, &t.text, &t.len);
        if (rc) {
            fail_draw(e, s, rc);
            return;
        }
        send_drawn(e, s, &t);
    }
}

/* Sends a drawn token, and those that follow it in any case. s may be freed afterwards. */
static void send_all_drawn(struct ntx_engine *e, struct ntx_session *s, const struct drawn *t)
{
    bool over = t->finish != NULL;
    send_drawn(e, s, t);
    if (!over)
        send_due(e, s);
}

void ntx__engine_give_token(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *row)
{
    struct drawn t;
    if (!draw_token(e, s, row, &t))
        send_all_drawn(e, s, &t);
}

void ntx__engine_verify(struct ntx_engine *e, struct ntx_session *s)
{
    struct held held = {0};
    uint32_t slots[NTX_DRAFT_NODES], at = 0, next, again = NTX_MIN(ntx_session_todo(s) - 1, s->take);
    const struct ntx_row *rows = e->rows + s->first_row + again;
    const struct ntx_draft *d = s->draft;
    struct drawn t;
    s->again = false;
    s->n_past += again;
    if (s->take == again) /* the pass had no room for more */
        return;
    s->run.written_passes++;
    e->pass_texts++;
    s->run.draft_nodes += s->take - again - 1;
    ntx_count(e->c.counters, NTX_C_comp_draft_nodes, s->take - again - 1);
    ntx_count(e->c.counters, NTX_C_comp_draft_passes, e->drafting);
    do {
        slots[held.n] = ntx_row_slot(&rows[at]);
        hold_node(&held, d, at);
        if (ntx__engine_finite(e, s, &rows[at], 1))
            return;
        ntx__engine_learn(e, s, &rows[at], 1, true);
        s->run.committed++;
        e->pass_tokens++;
        s->n_past++;
        ntx__engine_show(e, s, &rows[at], 1);
        if (draw_token(e, s, &rows[at], &t))
            return;
        if (s->shadow)
            ntx_draft_follow(s->shadow, &e->draft_stats.chances, 0, t.token);
        bool follows = d && !t.finish && !s->predictor_lost && !ntx_session_is_due(s);
        next = follows ? ntx_draft_follow(d, &e->draft_stats.chances, at, t.token) : 0;
        if (!next && commit_rows(e, s, slots, &held))
            return;
        send_all_drawn(e, s, &t);
        at = next;
    } while (next);
}
