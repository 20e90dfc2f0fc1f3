/* SPDX-License-Identifier: Apache-2.0 */
/* One pass: which sessions have rows in it, the run, and its results. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"
#include "computed/pass/finite.h"
#include "computed/engine/monitor.h"

static size_t logits_reply_bytes(const struct ntx_engine *e) { return e->l->env.n_vocab * sizeof(float) + 64; }

static size_t states_reply_bytes(const struct ntx_engine *e)
{
    return ntx_capture_floats(e->l->model, e->l->capture_ffns) * sizeof(float) + 64;
}

/* The sessions that may have rows. A client that takes no replies stops its own sessions only. */
static void collect_live(struct ntx_engine *e)
{
    e->n_live = 0;
    for (struct ntx_session *s = e->sessions; s; s = s->next)
        if (s->state == NTX_SESSION_RUNNING && ntx_reply_queue_room(s->replies) &&
            !ntx_reply_queue_closed(s->replies)) {
            s->take = 0;
            s->draft = NULL;
            s->shadow = NULL;
            e->live[e->n_live++] = s;
        }
    ntx__engine_follow(e);
}

struct budget {
    uint32_t rows, logits, few, probes, states, decode;
    const struct ntx_session *shown; /* the session whose steps this pass shows */
};

/* A row's step values may be tens of MiB, more than a reply queue holds: so one session shows its steps in a pass.
 * Sessions take turns. */
static bool may_show_steps(struct budget *b, const struct ntx_session *s)
{
    if (s->steps && !b->shown)
        b->shown = s;
    return !s->steps || b->shown == s;
}

#define CAPTURE_EVERY 8 /* one of so many prompt tokens is captured for the skip policy */

/* Calibration rows that a pass may have beside the captures of the skip policy. */
static uint32_t state_rows(const struct ntx_engine *e)
{
    uint32_t others = e->max_rows / CAPTURE_EVERY + 2 * e->l->max_sessions;
    return e->l->capture_rows > others ? e->l->capture_rows - others : 0;
}

/* Gives s up to n more rows, as long as there is room for their logits. False: none. */
static bool add_rows(struct ntx_session *s, struct budget *b, uint32_t n)
{
    uint32_t before = s->take;
    while (n && b->rows && s->take < ntx_session_ready(s)) {
        const uint32_t at = s->n_past + s->take, k = ntx_image_spans_together(&s->images, at);
        bool logits = ntx_session_wants_logits(s, at + k - 1), state = s->kind == NTX_SESSION_STATES;
        if ((logits && !b->logits) || (state && !b->states) || k > n || k > b->rows)
            break;
        b->logits -= logits;
        b->states -= state;
        b->rows -= k;
        s->take += k;
        n -= k;
    }
    return s->take > before;
}

/* Rows whose logits fit the client's reply queue, with those before them that give none; at least one, or s would never
 * go on. Queues share the free output budget, so each gets a part of it. */
static uint32_t reply_room(const struct ntx_engine *e, const struct ntx_session *s)
{
    if (s->kind != NTX_SESSION_LOGITS && s->kind != NTX_SESSION_STATES)
        return UINT32_MAX;
    size_t reply = s->kind == NTX_SESSION_LOGITS ? logits_reply_bytes(e) + ntx__engine_steps_bytes(e, s)
                                                 : states_reply_bytes(e);
    size_t room = ntx_reply_queue_room(s->replies) / e->n_live / reply;
    size_t silent = s->kind == NTX_SESSION_LOGITS && !s->steps && s->n_past < s->from ? s->from - s->n_past : 0;
    return (uint32_t)NTX_MAX(room + silent, (size_t)1);
}

static bool reads_prompt(const struct ntx_session *s) { return !ntx_session_decoding(s) && !s->waits; }

/* Whether none of the sessions before live[i] reads a prompt of the same client. */
static bool is_first_of_client(const struct ntx_engine *e, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (reads_prompt(e->live[k]) && e->live[k]->client == e->live[i]->client)
            return false;
    return true;
}

/* Rows that s may have more, where clients have equal parts of `rows`. each: and a client's prompts equal parts of
 * those. */
static uint32_t fair_rows(const struct ntx_engine *e, const struct ntx_session *s, uint32_t rows, uint32_t n_clients,
                          bool each)
{
    uint32_t prompts = 0, taken = 0, share = NTX_MAX(rows / n_clients, 1u);
    for (uint32_t i = 0; i < e->n_live; i++)
        if (reads_prompt(e->live[i]) && e->live[i]->client == s->client) {
            prompts++;
            taken += e->live[i]->take;
        }
    if (taken >= share)
        return 0;
    return each ? NTX_MIN(NTX_MAX(share / prompts, 1u), share - taken) : share - taken;
}

/* An image whose rows see one another takes them all at once, whatever share its session has: sessions take turns. */
static void begin_image(struct ntx_engine *e, struct budget *b, uint32_t first, uint32_t rows)
{
    for (uint32_t i = 0; i < e->n_live; i++) {
        struct ntx_session *s = e->live[(first + i) % e->n_live];
        const uint32_t k = reads_prompt(s) ? ntx_image_spans_together(&s->images, s->n_past) : 1;
        if (k == 1 || k > rows)
            continue;
        b->rows = NTX_MAX(b->rows, k);
        add_rows(s, b, k);
        return;
    }
}

static void share_among_prompts(struct ntx_engine *e, struct budget *b, uint32_t first)
{
    uint32_t n_clients = 0, rows = b->rows;
    for (uint32_t i = 0; i < e->n_live; i++)
        n_clients += reads_prompt(e->live[i]) && is_first_of_client(e, i);
    for (int round = 0; round < 3; round++) /* a fair share for each, the rest of its client's, then any in order */
        for (uint32_t i = 0; i < e->n_live && b->rows; i++) {
            struct ntx_session *s = e->live[(first + i) % e->n_live];
            if (!reads_prompt(s) || !may_show_steps(b, s))
                continue;
            uint32_t most = reply_room(e, s), share = b->rows;
            if (round < 2)
                share = fair_rows(e, s, rows, n_clients, !round);
            add_rows(s, b, most > s->take ? NTX_MIN(share, most - s->take) : 0);
        }
}

/* Rows that prompts may have in this pass. Beside answers they follow --max-gap (gap.h). */
static uint32_t prompt_rows(struct ntx_engine *e, const struct budget *b, uint32_t n_prompts)
{
    double depths = 0;
    bool answers = false;
    for (uint32_t i = 0; i < e->n_live; i++) {
        const struct ntx_session *s = e->live[i];
        if (ntx_session_decoding(s))
            answers |= s->take && s->kind == NTX_SESSION_GENERATE;
        else if (reads_prompt(s))
            depths += s->n_past;
    }
    return answers ? ntx_gap_rows(&e->gap, depths / n_prompts, b->rows) : b->rows;
}

/* Whether a token of s after `more` others needs only its row's largest logits. It is then that of all logits. */
static bool draws_from_few(const struct ntx_engine *e, const struct ntx_session *s, uint32_t more)
{
    if (!e->draws_few || s->kind != NTX_SESSION_GENERATE || s->constraint || s->steps != NTX_STEPS_NONE)
        return false;
    const uint32_t enough = ntx_sampler_enough(s->sampler, more);
    return enough && enough <= NTX_BEST_FEW;
}

/* The rows that are left go to drafts. */
static void add_draft(struct ntx_engine *e, struct budget *b, uint32_t i)
{
    struct ntx_session *s = e->live[i];
    if (s->kind == NTX_SESSION_GENERATE && !ntx_session_decoding(s))
        ntx__engine_draft_ahead(e, s);
    if (!b->rows || s->take < ntx_session_todo(s) || s->kind != NTX_SESSION_GENERATE || !ntx_session_decoding(s))
        return;
    uint32_t *logits = e->n_few && draws_from_few(e, s, NTX_DRAFT_NODES) ? &b->few : &b->logits;
    uint32_t more = ntx__engine_propose(e, i, 1 + NTX_MIN(NTX_MIN(b->rows, *logits), NTX_MIN(b->decode, b->probes))) -
                    1;
    b->rows -= more;
    *logits -= more;
    b->decode -= more;
    b->probes -= more;
    s->take += more;
}

/* Rows that answers leave to prompts: one, or those of an image whose rows see one another. If that is all of a pass,
 * only every second one. */
static uint32_t rows_kept(const struct ntx_engine *e)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < e->n_live; i++)
        if (reads_prompt(e->live[i]))
            most = NTX_MAX(most, ntx_image_spans_together(&e->live[i]->images, e->live[i]->n_past));
    return most < e->max_rows || e->pass & 1 ? most : 0;
}

/* One row for each decoding session, with those that it computes again (engine_draft.c); the rest for prompts: at least
 * one row where a pass has two. Each pass begins with another session, so that all are served in turn. */
static void share_rows(struct ntx_engine *e)
{
    struct budget b = {e->max_rows,   e->l->logits_rows,
                       e->n_few,      e->l->skips ? ntx_skip_room(e->c.skip) : UINT32_MAX,
                       state_rows(e), e->l->ffn.kind == NTX_FFN_PREDICTED ? NTX_DECODE_ROWS : UINT32_MAX,
                       NULL};
    uint32_t first = (uint32_t)(e->pass % e->n_live), n_prompts = 0;
    for (uint32_t i = 0; i < e->n_live; i++)
        n_prompts += reads_prompt(e->live[i]);
    const uint32_t spare = n_prompts ? rows_kept(e) : 0;
    for (uint32_t i = 0; i < e->n_live && b.rows > spare && b.probes; i++) {
        struct ntx_session *s = e->live[(first + i) % e->n_live];
        if (ntx_session_decoding(s) && may_show_steps(&b, s) && add_rows(s, &b, ntx_session_ready(s))) {
            b.probes--;
            b.decode -= b.decode > 0;
        }
    }
    if (n_prompts) {
        uint32_t rows = prompt_rows(e, &b, n_prompts);
        /* drafts would take the time that the prompts leave to answers */
        bool drafts = rows == b.rows;
        const uint32_t left = b.rows;
        b.rows = rows;
        begin_image(e, &b, first, left);
        share_among_prompts(e, &b, first);
        b.rows = drafts ? b.rows : 0;
    }
    for (uint32_t i = 0; i < e->n_live && e->drafting; i++)
        add_draft(e, &b, (first + i) % e->n_live);
}

/* One of so many generated tokens skips nothing, which shows whether the policy is still right. */
static bool verifies(const struct ntx_engine *e, const struct ntx_session *s)
{
    uint32_t every = e->l->set.skip_verify;
    return e->l->skips && every && s->decoded % every == every - 1;
}

static bool captures(const struct ntx_engine *e, const struct ntx_session *s, uint32_t pos)
{
    return s->kind == NTX_SESSION_STATES ||
           (e->l->skips && e->l->set.skip_adapt && pos % CAPTURE_EVERY == CAPTURE_EVERY - 1);
}

/* share_rows gave rows only where there are captures. */
static struct ntx_capture *next_capture(struct ntx_engine *e, const struct ntx_session *s, uint32_t i)
{
    ntx_capture_place(&e->captures[i], e->capture_memory + i * ntx_capture_floats(e->l->model, e->l->capture_ffns),
                      s->state_layer, e->l->model, e->l->capture_ffns);
    if (s->kind == NTX_SESSION_STATES) {
        e->captures[i].ffn_first = s->ffn_first;
        e->captures[i].ffn_layers = s->ffn_layers;
    }
    if (s->kind != NTX_SESSION_STATES)
        e->captures[i].state = NULL;
    return &e->captures[i];
}

/* Chooses the session's groups of neurons, once its prompt has been read. */
static struct ntx_ffn_set *session_ffn_set(const struct ntx_engine *e, struct ntx_session *s)
{
    if (s->ffn && !s->ffn->current)
        ntx_ffn_set_choose(s->ffn, e->l->ffn.value);
    return s->ffn;
}

struct made_rows { /* of this pass, until now */
    uint32_t logits, few, captures;
};

static struct ntx_best *next_few(struct ntx_engine *e, const struct ntx_session *s, uint32_t more,
                                 struct made_rows *made)
{
    struct ntx_best *b = &e->few[made->few++];
    ntx_best_begin(b, ntx_sampler_enough(s->sampler, more));
    return b;
}

static struct ntx_row make_row(struct ntx_engine *e, struct ntx_session *s, uint32_t k, bool decoding,
                               struct made_rows *made)
{
    uint32_t again = s->draft ? ntx_session_todo(s) - 1 : 0, node = k - NTX_MIN(k, again);
    const struct ntx_draft *d = k < again ? NULL : s->draft;
    uint32_t depth = d ? d->depth[node] : k, pos = s->n_past + (d ? again : 0) + depth, more = d ? depth : 0;
    const int32_t token = d ? d->token[node] : s->tokens[pos];
    const bool drawn = d || ntx_session_wants_logits(s, pos),
               few = drawn && (!d || !node || e->n_few) && draws_from_few(e, s, d && node ? NTX_DRAFT_NODES : 0),
               logits = drawn && !few, verify = decoding && !k && verifies(e, s);
    struct ntx_row row = {
        .token = NTX_MAX(token, 0), /* of an image: the first one, as transformers' Gemma 3n does */
        .pos = pos,
        .n_path = d && !e->chains ? depth + 1 : 0,
        .path = d && !e->chains ? d->path[node] : NULL,
        .kv = s->kv,
        .logits = logits ? e->logits + (size_t)made->logits * e->l->env.n_vocab : NULL,
        .few = few ? next_few(e, s, more, made) : NULL,
        .best = e->best + (size_t)made->logits * NTX_BEST_MAX,
        .n_best = logits && e->l->device && s->kind == NTX_SESSION_GENERATE && !s->constraint
                      ? ntx_sampler_enough(s->sampler, more)
                      : 0,
        .adapter = s->adapter,
        .may_skip = decoding && !s->predictor_lost && !verify,
        .rounded = !decoding,
        .all_groups = !decoding,
        .ffn = decoding ? session_ffn_set(e, s) : NULL,
        .add = decoding ? NULL : s->ffn,
        .session = s->id,
        .similar = s->similar,
        .pool = s->pool,
        .left = e->left && s->kind == NTX_SESSION_GENERATE && !s->pinned && !s->images.n
                    ? e->left + (size_t)(s->first_row + k) * e->left_width
                    : NULL,
        .watched = s->steps != NTX_STEPS_NONE,
        .capture = verify || (!decoding && captures(e, s, pos)) ? next_capture(e, s, made->captures++) : NULL,
    };
    made->logits += logits;
    if (token < 0) {
        row.values = ntx_image_spans_values(&s->images, pos, &row.n_deep);
        row.ahead = ntx_image_spans_together(&s->images, pos) - 1;
        row.behind = ntx_image_spans_before(&s->images, pos);
    }
    row.placed = ntx_image_spans_place(&s->images, pos, row.place);
    return row;
}

/* Decode rows come first, so their numbers do not depend on prompts. */
static void lay_rows(struct ntx_engine *e)
{
    struct made_rows made = {0};
    uint32_t n = 0, seat = 0;
    for (uint32_t i = 0; i < 2 * e->n_live; i++) {
        struct ntx_session *s = e->live[i % e->n_live];
        bool decoding = ntx_session_decoding(s);
        if (decoding != (i < e->n_live))
            continue;
        s->first_row = n;
        for (uint32_t k = 0; k < s->take; k++) {
            e->rows[n] = make_row(e, s, k, decoding, &made);
            e->rows[n++].seat = seat;
        }
        seat += s->take > 0;
    }
    e->n_rows = n;
}

#define CPU_EVERY_NS 10000000u /* the kernel adds up all threads: that takes longer than all else that is counted */

static void count_cpu(struct ntx_engine *e, uint64_t now)
{
    struct timespec cpu;
    if (now - e->cpu_at_ns < CPU_EVERY_NS)
        return;
    e->cpu_at_ns = now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    ntx_gauge(e->c.counters, NTX_C_comp_cpu_ns, (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec);
}

static void count_pass(struct ntx_engine *e, uint64_t t0)
{
    ntx_count(e->c.counters, NTX_C_comp_passes, 1);
    ntx_count(e->c.counters, NTX_C_comp_rows, e->n_rows);
    uint64_t now = ntx_now_ns();
    ntx_count(e->c.counters, NTX_C_comp_pass_ns, now - t0);
    ntx_traced(e->c.counters, NTX_TRACE_COMPUTED, NTX_TR_PASS, t0, now, e->n_rows, e->pass - 1, 0);
    count_cpu(e, now);
}

static void learn_gap(struct ntx_engine *e, uint64_t ns)
{
    uint32_t prompts = 0;
    double depths = 0;
    for (uint32_t i = e->n_rows; i-- && e->rows[i].rounded; prompts++)
        depths += e->rows[i].pos;
    ntx_gap_pass(&e->gap, prompts, depths, prompts < e->n_rows, (double)ns);
}

/* The file is checked again before any token of the pass is shown. */
static int run_pass(struct ntx_engine *e, struct ntx_err *err)
{
    struct ntx_batch b = {.pass = e->pass, .rows = e->rows, .n_rows = e->n_rows};
    uint64_t t0 = ntx_now_ns();
    atomic_store_explicit(&e->l->region.control->current_pass, e->pass, memory_order_relaxed);
    int rc = ntx_forward_run(e->l->forward, &b);
    e->pass++;
    ntx_gauge(e->c.counters, NTX_C_comp_pass_layer, 0);
    count_pass(e, t0);
    if (!rc) {
        uint64_t ns = ntx_now_ns() - t0;
        learn_gap(e, ns);
        ntx__engine_paced(e, ns);
        return ntx_loaded_check(e->l, err);
    }
    if (e->l->device && ntx_device_lost(e->l->device))
        ntx_mail_note(e->c.mail, NTX_MAIL_GPU_LOST);
    if (e->l->ranks && ntx_ranks_lost(e->l->ranks))
        ntx_mail_note(e->c.mail, NTX_MAIL_RANKS_LOST);
    const struct ntx_err *ours = ntx_forward_error(e->l->forward), *why = ours->text[0] ? ours : &e->l->weights->error;
    return ntx_err_set(err, rc, "%s", why->text[0] ? why->text : strerror(-rc));
}

static void send_logits(struct ntx_engine *e, struct ntx_session *s, uint32_t first_pos, const struct ntx_row *rows)
{
    for (uint32_t k = 0; k < s->take; k++) {
        if (rows[k].logits)
            ntx_mail_logits(e->c.mail, s->replies, s->request, first_pos + k, rows[k].logits, e->l->env.n_vocab);
    }
}

static void send_states(struct ntx_engine *e, struct ntx_session *s, uint32_t first_pos, const struct ntx_row *rows)
{
    const struct ntx_hparams *hp = &e->l->model->hp;
    for (uint32_t k = 0; k < s->take; k++) {
        const struct ntx_capture *y = rows[k].capture;
        const struct ntx_states_row m = {
            .row = first_pos + k,
            .state = {y->state, hp->n_embd},
            .similar = {y->similar, 3 * (size_t)hp->n_layers},
            .ffn_state = {y->ffn_state, (size_t)s->ffn_layers * hp->n_embd},
            .ffn_energy = {y->ffn_energy, (size_t)s->ffn_layers * y->units},
        };
        ntx_mail_states(e->c.mail, s->replies, s->request, &m);
    }
}

static int send_pooled(struct ntx_engine *e, struct ntx_session *s)
{
    uint32_t n = e->l->env.n_embd;
    const struct ntx_states_row m = {.row = s->n_tokens, .state = {s->pool, n}};
    for (uint32_t i = 0; i < n; i++)
        s->pool[i] /= (float)s->n_tokens;
    if (!ntx_floats_finite(s->pool, n)) {
        ntx__engine_fail(
            e, s, -EDOM,
            "the model's values for this text went beyond what a float holds, though its weights are numbers");
        return -EDOM;
    }
    ntx_mail_states(e->c.mail, s->replies, s->request, &m);
    return 0;
}

/* Takes the captures and skips of a session's rows, of any kind. */
void ntx__engine_learn(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *rows, uint32_t n,
                       bool decoding)
{
    for (uint32_t k = 0; k < n; k++)
        if (rows[k].capture && s->kind != NTX_SESSION_STATES &&
            ntx_session_saw(s, rows[k].capture->similar, e->l->model->hp.n_layers))
            ntx_log(NTX_LOG_WARN, "no memory for what a session has seen: its skip policy does not adapt");
    if (!decoding)
        return;
    s->decoded++;
    if (rows->may_skip) {
        const uint32_t row = (uint32_t)(rows - e->rows);
        s->run.skipped_layers += ntx_skip_layers(e->c.skip, row);
        s->predictor_lost |= ntx_skip_lost(e->c.skip, row);
    }
    if (s->kind != NTX_SESSION_GENERATE)
        ntx_run_token(&s->run, e->c.counters);
}

static bool logits_finite(const struct ntx_engine *e, const struct ntx_row *row)
{
    if (row->few)
        return !atomic_load_explicit(&row->few->infinite, memory_order_relaxed);
    for (uint32_t i = 0; i < row->n_best; i++)
        if (!ntx_floats_finite(&row->best[i].logit, 1))
            return false;
    return !row->logits || row->n_best || ntx_floats_finite(row->logits, e->l->env.n_vocab);
}

/* Weights are checked (finite.h), but finite ones may still overflow. */
int ntx__engine_finite(struct ntx_engine *e, struct ntx_session *s, const struct ntx_row *rows, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        if (!logits_finite(e, &rows[k])) {
            ntx__engine_fail(e, s, -EDOM,
                             "the model's values for this text went beyond what a float holds (a logit is a NaN or an "
                             "infinity), though its weights are numbers: "
                             "it cannot answer; is it a damaged or unfinished model?");
            return -EDOM;
        }
    return 0;
}

/* Handles the results of one session's rows. It may be freed afterwards. */
static void give_results(struct ntx_engine *e, struct ntx_session *s)
{
    const struct ntx_row *rows = e->rows + s->first_row;
    uint32_t take = s->take, pos = s->n_past;
    bool decoding = ntx_session_decoding(s);
    if (decoding && s->kind == NTX_SESSION_GENERATE) {
        ntx__engine_verify(e, s);
        return;
    }
    if (ntx__engine_finite(e, s, rows, take))
        return;
    if (!decoding)
        ntx_count(e->c.counters, NTX_C_comp_prompt_tokens, take);
    ntx__engine_learn(e, s, rows, take, decoding);
    s->n_exact += !decoding && s->n_exact == s->n_past ? take : 0;
    s->n_past += take;
    for (uint32_t k = 0; k < take && s->kind == NTX_SESSION_SCORE; k++)
        if (rows[k].logits)
            ntx_session_score_row(s, pos + k, rows[k].logits, e->l->env.n_vocab);
    if (s->kind == NTX_SESSION_LOGITS)
        send_logits(e, s, pos, rows);
    if (s->kind == NTX_SESSION_STATES)
        send_states(e, s, pos, rows);
    if (s->kind == NTX_SESSION_GENERATE)
        ntx__engine_show(e, s, rows, take);
    if (ntx_session_todo(s)) {
        if (s->kind != NTX_SESSION_LOGITS && s->kind != NTX_SESSION_STATES && !s->again)
            ntx_mail_progress(e->c.mail, s->replies, s->request, "prompt", s->n_prompt - ntx_session_todo(s),
                              s->n_prompt);
        return;
    }
    if (s->pool && send_pooled(e, s))
        return;
    if (s->kind == NTX_SESSION_GENERATE && !s->pinned)
        ntx__engine_give_token(e, s, &rows[take - 1]);
    else
        ntx__engine_finish(e, s, "");
}

bool ntx__engine_pass(struct ntx_engine *e)
{
    struct ntx_err err = {0};
    uint64_t t0 = ntx_now_ns();
    collect_live(e);
    if (!e->n_live)
        return false;
    e->pass_tokens = e->pass_texts = e->pass_looked = 0;
    share_rows(e);
    ntx__engine_prepare_prefixes(e);
    lay_rows(e);
    if (!e->n_rows)
        return false;
    /* the queued jobs end its sessions */
    if (!ntx__engine_join(e))
        return true;
    int rc = run_pass(e, &err);
    if (!ntx__engine_leave(e) && rc == -ECANCELED)
        return true;
    for (uint32_t i = 0; i < e->n_live; i++) {
        struct ntx_session *s = e->live[i];
        if (!s->take)
            continue;
        if (rc == -ECANCELED)
            ntx__engine_finish(e, s, "cancel");
        else if (rc)
            ntx__engine_fail(e, s, rc, err.text);
        else
            give_results(e, s);
    }
    for (struct ntx_session *s = e->sessions; s; s = s->next)
        if (s->state == NTX_SESSION_RUNNING)
            ntx__engine_keep(e, s, false);
    ntx__engine_turn(e, ntx_now_ns() - t0);
    return true;
}
