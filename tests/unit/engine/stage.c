/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/engine/stage.h"

#include <errno.h>
#include <time.h>

#include "common/util.h"
#include "proto/settings.h"
#include "tests/lib/patient.h"

static void on_probe(void *ctx, const struct ntx_batch *b, const float *hidden)
{
    struct stage *g = ctx;
    (void)hidden;
    pthread_mutex_lock(&g->lock);
    CHECK(g->n_passes < MOST_PASSES && b->n_rows <= ROWS);
    struct seen_pass *p = &g->pass[g->n_passes++];
    p->n = b->n_rows;
    for (uint32_t i = 0; i < b->n_rows; i++)
        p->row[i] = (struct seen_row){b->rows[i].session, b->rows[i].pos, b->rows[i].rounded};
    pthread_cond_broadcast(&g->moved);
    while (g->allowed < g->n_passes)
        pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void on_mail(void *ctx, struct ntx_mail *m)
{
    struct stage *g = ctx;
    g->stopped |= m->kind == NTX_MAIL_STOPPED;
    if (m->kind != NTX_MAIL_REPLY)
        return;
    CHECK(g->n_replies < MOST_REPLIES);
    struct reply *to = &g->replies[g->n_replies++];
    Ntx__Reply *r = ntx_reply_decode(m->frame + 4, m->len - 4);
    CHECK(r);
    *to = (struct reply){.to = m->replies, .id = r->id, .kind = r->body_case};
    if (r->body_case == NTX__REPLY__BODY_STARTED)
        to->session = r->started->session;
    if (r->body_case == NTX__REPLY__BODY_TOKEN)
        to->token = r->token->token;
    if (r->body_case == NTX__REPLY__BODY_DONE)
        to->cached = r->done->cached_tokens;
    if (r->body_case == NTX__REPLY__BODY_ERROR)
        to->err = r->error->err;
    if (r->body_case == NTX__REPLY__BODY_ERROR || r->body_case == NTX__REPLY__BODY_DONE)
        snprintf(to->text, sizeof to->text, "%s",
                 r->body_case == NTX__REPLY__BODY_ERROR ? r->error->text : r->done->finish);
    if (m->replies == g->deaf)
        g->untaken[g->n_untaken++] = m->len;
    else
        ntx_reply_queue_sent(m->replies, m->len);
    ntx__reply__free_unpacked(r, NULL);
}

static struct rig_options options(struct stage *g, uint32_t kv_tokens)
{
    struct rig_options o = {.make = rig_model(), .max_rows = ROWS, .ctx = CTX, .kv_tokens = kv_tokens};
    o.make.layers = 2;
    if (g)
        o.skip = (struct ntx_skip_hooks){.ctx = g, .probe = on_probe};
    return o;
}

/* The parts of a loaded model that the engine needs. */
static void load(struct stage *g)
{
    struct ntx_loaded *l = &g->l;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_tokenizer_open(g->rig.gguf, &l->tok, &err), "%s", err.text);
    CHECK_EQ(ntx_settings_keep(&ntx_load_settings, &l->set), 0);
    CHECK((l->plan = calloc(1, sizeof *l->plan)) && (l->region.control = calloc(1, sizeof *l->region.control)));
    l->set.max_gap = NTX_GAP_NEVER; /* passes are held, so their times mean nothing */
    l->plan->max_rows = l->logits_rows = ROWS;
    l->plan->ctx = CTX;
    l->names[0] = (char *)"m.gguf";
    l->model = g->rig.model;
    l->ops = ntx_cpu_pick(NULL);
    l->forward = g->rig.f;
    l->kv = g->rig.pool;
    l->weights = &g->rig.w.w;
    l->counters = g->counters;
    l->max_sessions = 4;
    l->kept_bytes = 1 << 20;
    l->env = (struct ntx_session_env){
        .tok = l->tok, .n_vocab = g->rig.n_vocab, .ctx = CTX, .n_layers = g->rig.n_layers, .read_bytes = 1 << 20};
}

void stage_open_with(struct stage *g, uint32_t kv_tokens, uint32_t max_queue, const char *draft, bool shares)
{
    struct ntx_err err = {0};
    memset(g, 0, sizeof *g);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->moved, NULL);
    struct rig_options o = options(g, kv_tokens);
    rig_open(&g->rig, &o);
    CHECK((g->counters = calloc(1, sizeof *g->counters)));
    load(g);
    g->l.set.no_prefix_cache = !shares;
    free((char *)(uintptr_t)g->l.set.draft);
    CHECK((g->l.set.draft = strdup(draft ? draft : "off")));
    struct ntx_skip_config skip = {.region = &g->l.region, .counters = g->counters, .max_rows = ROWS};
    CHECK_EQ(ntx_skip_new(&skip, &g->skip), 0);
    CHECK_EQ(uv_loop_init(&g->loop), 0);
    CHECK_EQ(ntx_mailbox_new(&g->loop, on_mail, g, &g->mail), 0);
    ntx_output_budget_init(&g->output_budget, 4);
    CHECK((g->ann = ntx_reply_queue_new(&g->output_budget, 1)) && (g->bob = ntx_reply_queue_new(&g->output_budget, 2)));
    struct ntx_engine_config c = {
        .loaded = &g->l, .skip = g->skip, .counters = g->counters, .mail = g->mail, .max_queue = max_queue};
    CHECK_MSG(!ntx_engine_new(&c, &g->e, &err), "%s", err.text);
}

void stage_open(struct stage *g, uint32_t kv_tokens, uint32_t max_queue)
{
    stage_open_with(g, kv_tokens, max_queue, NULL, false);
}

void stage_allow(struct stage *g, unsigned passes)
{
    pthread_mutex_lock(&g->lock);
    g->allowed = passes;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

void stage_nap(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

void stage_close(struct stage *g)
{
    ntx_engine_quit(g->e);
    stage_allow(g, UINT32_MAX);
    for (int i = 0; !g->stopped; i++, stage_nap()) {
        CHECK(i < DEADLINE_MS);
        ntx_mailbox_flush(g->mail);
    }
    ntx_engine_free(g->e);
    CHECK_EQ(ntx_kv_pool_used(g->rig.pool), 0); /* every session has freed its KV */
    ntx_reply_queue_unref(g->ann);
    ntx_reply_queue_unref(g->bob);
    ntx_mailbox_free(g->mail);
    uv_run(&g->loop, UV_RUN_DEFAULT);
    CHECK_EQ(uv_loop_close(&g->loop), 0);
    ntx_skip_free(g->skip);
    ntx_tokenizer_free(g->l.tok);
    ntx_settings_drop(&ntx_load_settings, &g->l.set);
    free(g->l.plan);
    free(g->l.region.control);
    free(g->counters);
    rig_close(&g->rig);
}

const struct seen_pass *stage_reached(struct stage *g, unsigned pass)
{
    unsigned waited_ms = 0;
    pthread_mutex_lock(&g->lock);
    while (g->n_passes < pass)
        CHECK_MSG(patient_wait(&g->moved, &g->lock, &waited_ms, DEADLINE_MS), "pass %u never came", pass);
    pthread_mutex_unlock(&g->lock);
    return &g->pass[pass - 1];
}

const struct reply *stage_find(const struct stage *g, uint64_t id, Ntx__Reply__BodyCase kind, unsigned nth)
{
    for (unsigned i = 0; i < g->n_replies; i++)
        if (g->replies[i].id == id && g->replies[i].kind == kind && !nth--)
            return &g->replies[i];
    return NULL;
}

const struct reply *stage_reply(struct stage *g, uint64_t id, Ntx__Reply__BodyCase kind, unsigned nth)
{
    for (int i = 0; !stage_find(g, id, kind, nth); i++, stage_nap()) {
        CHECK_MSG(i < DEADLINE_MS, "no reply of kind %d to request %llu", (int)kind, (unsigned long long)id);
        ntx_mailbox_flush(g->mail);
    }
    return stage_find(g, id, kind, nth);
}

void stage_ended(struct stage *g, uint64_t id, const char *why)
{
    CHECK_STR(stage_reply(g, id, NTX__REPLY__BODY_DONE, 0)->text, why);
}

void stage_submit(struct stage *g, struct ntx_reply_queue *who, struct ntx_request q)
{
    struct ntx_request *copy = malloc(sizeof q);
    CHECK(copy);
    *copy = q;
    CHECK_EQ(ntx_engine_submit(g->e, who, copy), 0);
}

struct ntx_request stage_generation(uint64_t id, const int32_t *ids, uint32_t n_ids, uint32_t n)
{
    return (struct ntx_request){.kind = NTX_REQUEST_GENERATE,
                                .id = id,
                                .tokens = ids,
                                .n_tokens = n_ids,
                                .max_tokens = n,
                                .ignore_eos = true,
                                .raw = true,
                                .sampling = {.top_p = 1, .repeat_penalty = 1, .repeat_last = 64}};
}

void stage_generate(struct stage *g, struct ntx_reply_queue *who, uint64_t id, const int32_t *ids, uint32_t n_ids,
                    uint32_t n)
{
    stage_submit(g, who, stage_generation(id, ids, n_ids, n));
}

void stage_prompts_read(struct stage *g, uint64_t first, uint64_t last)
{
    unsigned n = 0;
    ntx_mailbox_flush(g->mail);
    for (uint64_t id = first; id <= last; id++)
        n += !stage_find(g, id, NTX__REPLY__BODY_STARTED, 0);
    for (int i = 0;; i++, stage_nap()) {
        unsigned have = 0;
        pthread_mutex_lock(&g->e->lock);
        for (const struct ntx_reading *r = g->e->read; r; r = r->next)
            have++;
        pthread_mutex_unlock(&g->e->lock);
        if (have == n)
            return;
        CHECK_MSG(i < DEADLINE_MS, "%u of %u prompts were read", have, n);
    }
}

void stage_expected(const int32_t *ids, uint32_t n_ids, int32_t *out, uint32_t n)
{
    struct rig_options o = options(NULL, CTX);
    struct rig r;
    rig_open(&r, &o);
    struct ntx_kv_seq *kv = rig_seq(&r, CTX);
    float *logits = malloc((size_t)n_ids * r.n_vocab * sizeof *logits);
    rig_feed(&r, kv, ids, n_ids, 0, ROWS, logits);
    const float *last = logits + (size_t)(n_ids - 1) * r.n_vocab;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = (int32_t)rig_argmax(last, r.n_vocab);
        rig_feed(&r, kv, &out[i], 1, n_ids + i, 1, logits);
        last = logits;
    }
    free(logits);
    ntx_kv_seq_free(kv);
    rig_close(&r);
}

void stage_same_answer(struct stage *g, uint64_t id, const int32_t *want, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        CHECK_EQ(stage_reply(g, id, NTX__REPLY__BODY_TOKEN, i)->token, want[i]);
}

uint64_t stage_session_of(struct stage *g, uint64_t id)
{
    return stage_reply(g, id, NTX__REPLY__BODY_STARTED, 0)->session;
}

void stage_rows_are(const struct seen_pass *p, uint64_t a, uint32_t n_a, uint64_t b, uint32_t n_b)
{
    CHECK_EQ(p->n, n_a + n_b);
    for (uint32_t i = 0; i < p->n; i++)
        CHECK_EQ(p->row[i].session, i < n_a ? a : b);
}

const struct seen_pass *stage_next(struct stage *g, unsigned *pass)
{
    stage_allow(g, *pass);
    return stage_reached(g, ++*pass);
}
