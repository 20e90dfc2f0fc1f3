/* SPDX-License-Identifier: Apache-2.0 */
/* The engine alone: a small model in memory, requests as structs, no socket and no daemon. Each pass stops at the skip
 * policy's probe until the test lets it go on, so the rows of each pass are known exactly. */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"
#include "proto/frame.h"
#include "proto/settings.h"
#include "tests/lib/patient.h"
#include "tests/unit/pass/rig.h"

enum { ROWS = 8, CTX = 64, MOST_PASSES = 256, MOST_REPLIES = 1024, DEADLINE_MS = 60000 };

struct seen_row {
    uint64_t session;
    uint32_t pos;
    bool prompt;
};

struct seen_pass {
    uint32_t n;
    struct seen_row row[ROWS];
};

struct reply {
    const struct ntx_reply_queue *to;
    uint64_t id, session;
    Ntx__Reply__BodyCase kind;
    int32_t token, err;
    uint32_t cached;
    char text[256]; /* text of an error, or why the answer ended */
};

struct stage {
    struct rig rig;
    struct ntx_loaded l;
    struct ntx_counters *counters;
    struct ntx_skip *skip;
    struct ntx_engine *e;
    uv_loop_t loop;
    struct ntx_output_budget output_budget;
    struct ntx_mailbox *mail;
    struct ntx_reply_queue *ann, *bob;
    bool stopped;
    const struct ntx_reply_queue *deaf;      /* takes no replies: */
    size_t untaken[MOST_REPLIES], n_untaken; /* lengths of the replies that wait for it */
    struct reply replies[MOST_REPLIES];
    unsigned n_replies;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t moved;
    struct seen_pass pass[MOST_PASSES];
    unsigned n_passes, allowed;
};

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

static void open_any_stage(struct stage *g, uint32_t kv_tokens, uint32_t max_queue, const char *draft, bool shares)
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

static void open_stage(struct stage *g, uint32_t kv_tokens, uint32_t max_queue)
{
    open_any_stage(g, kv_tokens, max_queue, NULL, false);
}

static void allow(struct stage *g, unsigned passes)
{
    pthread_mutex_lock(&g->lock);
    g->allowed = passes;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

static void close_stage(struct stage *g)
{
    ntx_engine_quit(g->e);
    allow(g, UINT32_MAX);
    for (int i = 0; !g->stopped; i++, nap()) {
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

/* Waits until the pass of that number (from 1) has begun, and is held. */
static const struct seen_pass *reached(struct stage *g, unsigned pass)
{
    unsigned waited_ms = 0;
    pthread_mutex_lock(&g->lock);
    while (g->n_passes < pass)
        CHECK_MSG(patient_wait(&g->moved, &g->lock, &waited_ms, DEADLINE_MS), "pass %u never came", pass);
    pthread_mutex_unlock(&g->lock);
    return &g->pass[pass - 1];
}

static const struct reply *find(const struct stage *g, uint64_t id, Ntx__Reply__BodyCase kind, unsigned nth)
{
    for (unsigned i = 0; i < g->n_replies; i++)
        if (g->replies[i].id == id && g->replies[i].kind == kind && !nth--)
            return &g->replies[i];
    return NULL;
}

/* Waits for the nth reply of that kind to the request. */
static const struct reply *reply(struct stage *g, uint64_t id, Ntx__Reply__BodyCase kind, unsigned nth)
{
    for (int i = 0; !find(g, id, kind, nth); i++, nap()) {
        CHECK_MSG(i < DEADLINE_MS, "no reply of kind %d to request %llu", (int)kind, (unsigned long long)id);
        ntx_mailbox_flush(g->mail);
    }
    return find(g, id, kind, nth);
}

static void ended(struct stage *g, uint64_t id, const char *why)
{
    CHECK_STR(reply(g, id, NTX__REPLY__BODY_DONE, 0)->text, why);
}

static void submit(struct stage *g, struct ntx_reply_queue *who, struct ntx_request q)
{
    struct ntx_request *copy = malloc(sizeof q);
    CHECK(copy);
    *copy = q;
    CHECK_EQ(ntx_engine_submit(g->e, who, copy), 0);
}

static struct ntx_request generation(uint64_t id, const int32_t *ids, uint32_t n_ids, uint32_t n)
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

/* Asks for an answer of n tokens to `ids`, which must stay. */
static void generate(struct stage *g, struct ntx_reply_queue *who, uint64_t id, const int32_t *ids, uint32_t n_ids,
                     uint32_t n)
{
    submit(g, who, generation(id, ids, n_ids, n));
}

/* While a pass is held: waits until requests first to last that have not started are read; they then wait for its
 * end. */
static void prompts_read(struct stage *g, uint64_t first, uint64_t last)
{
    unsigned n = 0;
    ntx_mailbox_flush(g->mail);
    for (uint64_t id = first; id <= last; id++)
        n += !find(g, id, NTX__REPLY__BODY_STARTED, 0);
    for (int i = 0;; i++, nap()) {
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

/* The greedy answer of the forward pass alone. */
static void expected(const int32_t *ids, uint32_t n_ids, int32_t *out, uint32_t n)
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

static void same_answer(struct stage *g, uint64_t id, const int32_t *want, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        CHECK_EQ(reply(g, id, NTX__REPLY__BODY_TOKEN, i)->token, want[i]);
}

static uint64_t session_of(struct stage *g, uint64_t id) { return reply(g, id, NTX__REPLY__BODY_STARTED, 0)->session; }

/* Checks that only these sessions have rows, in this order. */
static void rows_are(const struct seen_pass *p, uint64_t a, uint32_t n_a, uint64_t b, uint32_t n_b)
{
    CHECK_EQ(p->n, n_a + n_b);
    for (uint32_t i = 0; i < p->n; i++)
        CHECK_EQ(p->row[i].session, i < n_a ? a : b);
}

static const struct seen_pass *next(struct stage *g, unsigned *pass)
{
    allow(g, *pass);
    return reached(g, ++*pass);
}

/* A prompt of several passes joins at the next one, and takes no row from a decoding session. Neither changes the
 * other's tokens. */
static void test_share(void)
{
    static struct stage g;
    int32_t ids[40], a[12], b[3];
    unsigned pass = 1;
    open_stage(&g, 4 * CTX, 4);
    rig_ids(&g.rig, 3, ids, 40);
    expected(ids, 4, a, 12);
    expected(ids, 40, b, 3);
    generate(&g, g.ann, 1, ids, 4, 12);
    CHECK_EQ(reached(&g, 1)->n, 4);
    uint64_t ann = session_of(&g, 1);
    generate(&g, g.bob, 2, ids, 40, 3); /* handled after the pass, then read beside the next one */
    const struct seen_pass *p = next(&g, &pass);
    if (p->n == 1) {
        prompts_read(&g, 2, 2);
        p = next(&g, &pass);
    }
    uint64_t bob = session_of(&g, 2);
    for (uint32_t read = 0; read < 40; read += ROWS - 1) {
        rows_are(p, ann, 1, bob, 40 - read < ROWS - 1 ? 40 - read : ROWS - 1);
        CHECK(!p->row[0].prompt && p->row[1].prompt);
        CHECK_EQ(p->row[0].pos, 4 + pass - 2);
        CHECK_EQ(p->row[1].pos, read);
        p = next(&g, &pass);
    }
    rows_are(p, ann, 1, bob, 1);
    CHECK(!p->row[1].prompt);
    allow(&g, UINT32_MAX);
    ended(&g, 1, "length");
    ended(&g, 2, "length");
    same_answer(&g, 1, a, 12);
    same_answer(&g, 2, b, 3);
    close_stage(&g);
}

/* A request without a prompt to read has rows in the very next pass, after decode rows. */
static void test_join(void)
{
    static struct stage g;
    int32_t ids[8];
    unsigned pass = 1;
    open_stage(&g, 4 * CTX, 4);
    rig_ids(&g.rig, 4, ids, 8);
    generate(&g, g.ann, 1, ids, 2, 5);
    reached(&g, 1);
    submit(&g, g.bob,
           (struct ntx_request){.kind = NTX_REQUEST_LOGITS, .id = 2, .tokens = ids, .n_tokens = 3, .from = 1});
    const struct seen_pass *p = next(&g, &pass);
    CHECK(p->n == 4 && p->row[0].session == session_of(&g, 1) && !p->row[0].prompt && p->row[1].prompt &&
          p->row[1].pos == 0);
    p = next(&g, &pass);
    CHECK_EQ(p->n, 1);
    ended(&g, 2, "");
    CHECK(find(&g, 2, NTX__REPLY__BODY_LOGITS, 1) && !find(&g, 2, NTX__REPLY__BODY_LOGITS, 2));
    submit(&g, g.bob,
           (struct ntx_request){.kind = NTX_REQUEST_LOGITS, .id = 3, .tokens = ids, .n_tokens = 3, .from = 3});
    next(&g, &pass);
    CHECK_EQ(reply(&g, 3, NTX__REPLY__BODY_ERROR, 0)->err, -EINVAL);
    close_stage(&g);
}

/* KV for one context and a block: the first request runs first, though a later one would fit already. */
static void test_order(void)
{
    static struct stage g;
    int32_t ids[8];
    unsigned pass = 1;
    open_stage(&g, CTX + NTX_KV_BLOCK, 2);
    rig_ids(&g.rig, 4, ids, 8);
    generate(&g, g.ann, 1, ids, 4, 0);
    reached(&g, 1);
    generate(&g, g.bob, 2, ids, 5, 0);
    generate(&g, g.bob, 3, ids, 3, 1);
    generate(&g, g.bob, 4, ids, 3, 1);
    next(&g, &pass);
    prompts_read(&g, 2, 4);
    rows_are(next(&g, &pass), session_of(&g, 1), 1, 0, 0);
    CHECK_EQ(reply(&g, 4, NTX__REPLY__BODY_ERROR, 0)->err, -EBUSY); /* two wait already */
    submit(&g, g.ann, (struct ntx_request){.kind = NTX_REQUEST_CANCEL, .id = 5, .target = 1});
    const struct seen_pass *p = next(&g, &pass);
    ended(&g, 1, "cancel");
    ended(&g, 5, "");
    rows_are(p, session_of(&g, 2), 5, session_of(&g, 3), 3);
    close_stage(&g);
}

/* A request that is cancelled, or whose client has gone, is not in the next pass. The others' tokens stay the same. */
static void test_leave(void)
{
    static struct stage g;
    int32_t ids[8], want[9];
    unsigned pass = 1;
    open_stage(&g, 4 * CTX, 4);
    rig_ids(&g.rig, 6, ids, 8);
    expected(ids, 5, want, 9);
    generate(&g, g.ann, 1, ids, 5, 9);
    reached(&g, 1);
    generate(&g, g.ann, 2, ids, 3, 9);
    generate(&g, g.bob, 3, ids, 4, 9);
    next(&g, &pass);
    prompts_read(&g, 2, 3);
    next(&g, &pass);
    CHECK_EQ(next(&g, &pass)->n, 3);
    submit(&g, g.ann, (struct ntx_request){.kind = NTX_REQUEST_CANCEL, .id = 4, .target = 2});
    rows_are(next(&g, &pass), session_of(&g, 1), 1, session_of(&g, 3), 1);
    ended(&g, 2, "cancel");
    CHECK_EQ(ntx_engine_client_gone(g.e, g.bob), 0);
    rows_are(next(&g, &pass), session_of(&g, 1), 1, 0, 0);
    submit(&g, g.ann, (struct ntx_request){.kind = NTX_REQUEST_CLOSE, .id = 6, .session = 77});
    allow(&g, UINT32_MAX);
    CHECK_EQ(reply(&g, 6, NTX__REPLY__BODY_ERROR, 0)->err, -ENOENT);
    ended(&g, 1, "length");
    same_answer(&g, 1, want, 9);
    CHECK(!find(&g, 3, NTX__REPLY__BODY_DONE, 0));
    close_stage(&g);
}

/* A pass that fails ends the sessions that had rows in it, with the reason. The engine goes on. */
static void test_fail(void)
{
    static struct stage g;
    int32_t ids[8], want[4];
    char text[64];
    open_stage(&g, 4 * CTX, 4);
    rig_ids(&g.rig, 7, ids, 8);
    expected(ids, 5, want, 4);
    g.rig.w.forgive = true;
    g.rig.w.fail_chunk = g.rig.chunks->n - 1;
    generate(&g, g.ann, 1, ids, 5, 4);
    reached(&g, 1);
    allow(&g, UINT32_MAX);
    CHECK_EQ(reply(&g, 1, NTX__REPLY__BODY_ERROR, 0)->err, -EIO);
    snprintf(text, sizeof text, "chunk %u cannot be read", g.rig.w.fail_chunk);
    CHECK_STR(reply(&g, 1, NTX__REPLY__BODY_ERROR, 0)->text, text);
    CHECK(!find(&g, 1, NTX__REPLY__BODY_TOKEN, 0));
    g.rig.w.fail_chunk = UINT32_MAX;
    generate(&g, g.ann, 2, ids, 5, 4);
    ended(&g, 2, "length");
    same_answer(&g, 2, want, 4);
    close_stage(&g);
}

/* A kept session goes on where it was: only new tokens are fed. */
static void test_keep(void)
{
    static struct stage g;
    int32_t ids[12], both[12], first[2], second[2];
    open_stage(&g, 4 * CTX, 4);
    rig_ids(&g.rig, 8, ids, 8);
    expected(ids, 4, first, 2);
    memcpy(both, ids, 4 * sizeof *ids);
    memcpy(both + 4, first, sizeof first);
    memcpy(both + 6, ids + 4, 4 * sizeof *ids);
    expected(both, 10, second, 2);
    allow(&g, UINT32_MAX);
    struct ntx_request q = generation(1, ids, 4, 2);
    q.keep = true;
    submit(&g, g.ann, q);
    ended(&g, 1, "length");
    same_answer(&g, 1, first, 2);
    q = generation(2, ids + 4, 4, 2);
    q.session = session_of(&g, 1);
    submit(&g, g.bob, q); /* a session of another client */
    CHECK_EQ(reply(&g, 2, NTX__REPLY__BODY_ERROR, 0)->err, -ENOENT);
    unsigned before = g.n_passes;
    q.id = 3;
    submit(&g, g.ann, q);
    ended(&g, 3, "length");
    same_answer(&g, 3, second, 2);
    CHECK_EQ(g.pass[before].n, 5); /* the last token drawn, and the four */
    CHECK_EQ(g.pass[before].row[0].pos, 5);
    close_stage(&g);
}

/* ---- prefixes */

static void answers(struct stage *g, struct ntx_reply_queue *who, uint64_t id, const int32_t *ids, uint32_t n_ids,
                    uint32_t n, uint32_t cached)
{
    int32_t want[CTX];
    expected(ids, n_ids, want, n);
    generate(g, who, id, ids, n_ids, n);
    ended(g, id, "length");
    same_answer(g, id, want, n);
    CHECK_EQ(reply(g, id, NTX__REPLY__BODY_DONE, 0)->cached, cached);
}

/* A text with a known prefix computes only its new tokens: from any token on, after an answer too, with drafts or
 * without. Another user's text does not share it. */
static void test_prefix(const char *draft)
{
    static struct stage g;
    int32_t ids[40], other[40], more[CTX], *at;
    open_any_stage(&g, 6 * CTX, 4, draft, true);
    ntx_reply_queue_whose(g.ann, 5);
    ntx_reply_queue_whose(g.bob, 6);
    allow(&g, UINT32_MAX);
    rig_ids(&g.rig, 3, ids, 40);
    memcpy(other, ids, sizeof ids);
    other[35] = ids[36];
    answers(&g, g.ann, 1, ids, 40, 5, 0);
    unsigned before = g.n_passes;
    answers(&g, g.ann, 2, ids, 40, 5, 39);
    CHECK(g.pass[before].n == 1 && g.pass[before].row[0].pos == 39);
    answers(&g, g.ann, 3, other, 40, 3, 35);
    answers(&g, g.ann, 4, ids, 33, 8, 32);
    answers(&g, g.bob, 5, ids, 40, 5, 0);
    memcpy(more, ids, sizeof ids);
    expected(ids, 40, at = more + 40, 5);
    memcpy(at + 5, other, 10 * sizeof *other);
    answers(&g, g.ann, 6, more, 55, 3, 44); /* the answer's last token was never fed */
    answers(&g, g.ann, 7, more, 55, 3, 54);
    answers(&g, g.bob, 8, more, 55, 3, 44);
    CHECK_EQ(ntx_counter_get(g.counters, NTX_C_comp_cached_tokens), 39 + 35 + 32 + 44 + 54 + 44);
    close_stage(&g);
}

static uint32_t rows_of(const struct stage *g, uint64_t session, uint32_t from, uint32_t to)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < g->n_passes; i++)
        for (uint32_t k = 0; k < g->pass[i].n; k++)
            n += g->pass[i].row[k].session == session && g->pass[i].row[k].pos >= from && g->pass[i].row[k].pos < to;
    return n;
}

/* A request that comes while its prefix is being computed waits for it and takes it over. If the computing session
 * leaves, the next one computes. */
static void test_prefix_at_once(void)
{
    static struct stage g;
    int32_t ids[3][40], want[3][4];
    open_any_stage(&g, 6 * CTX, 4, NULL, true);
    for (int i = 0; i < 3; i++) {
        rig_ids(&g.rig, 3, ids[i], 40);
        ids[i][36] = 7 + i;
        expected(ids[i], 40, want[i], 4);
    }
    generate(&g, g.ann, 1, ids[0], 40, 4);
    reached(&g, 1);
    generate(&g, g.ann, 2, ids[1], 40, 4);
    generate(&g, g.bob, 3, ids[2], 40, 4);
    unsigned pass = 1;
    next(&g, &pass);
    prompts_read(&g, 2, 3);
    next(&g, &pass);
    CHECK_EQ(g.pass[pass - 1].n, ROWS);
    submit(&g, g.ann, (struct ntx_request){.kind = NTX_REQUEST_CANCEL, .id = 4, .target = 1});
    allow(&g, UINT32_MAX);
    ended(&g, 1, "cancel");
    ended(&g, 2, "length");
    ended(&g, 3, "length");
    same_answer(&g, 2, want[1], 4);
    same_answer(&g, 3, want[2], 4);
    uint64_t one = session_of(&g, 1), two = session_of(&g, 2), three = session_of(&g, 3);
    CHECK(rows_of(&g, one, 0, 32) && rows_of(&g, two, 0, 32));
    CHECK_EQ(rows_of(&g, one, 0, 32) + rows_of(&g, two, 0, 32) + rows_of(&g, three, 0, 32), 32);
    CHECK(reply(&g, 3, NTX__REPLY__BODY_DONE, 0)->cached >= 32);
    close_stage(&g);
}

/* Kept prefixes never make a request wait: a text that needs all blocks gets them at once. */
static void test_prefix_evicted(void)
{
    static struct stage g;
    int32_t ids[40], other[40];
    open_any_stage(&g, CTX, 0, NULL, true);
    allow(&g, UINT32_MAX);
    rig_ids(&g.rig, 3, ids, 40);
    rig_ids(&g.rig, 4, other, 40);
    answers(&g, g.ann, 1, ids, 40, 5, 0);
    answers(&g, g.ann, 2, other, 40, 20, 0);
    answers(&g, g.ann, 3, ids, 40, 5, 0);
    answers(&g, g.ann, 4, ids, 40, 5, 39);
    generate(&g, g.ann, 5, other, 20, 0); /* up to the end of the context */
    ended(&g, 5, "length");
    close_stage(&g);
}

/* ---- memory of all requests */

static struct ntx_request constrained(uint64_t id, const int32_t *ids, uint32_t n_ids, uint32_t n)
{
    static const char text[] = "root ::= [^x]{40,}";
    struct ntx_request q = generation(id, ids, n_ids, n);
    q.constraint = "grammar";
    q.constraint_text = (struct ntx_bytes){text, sizeof text - 1};
    return q;
}

static uint32_t most_at_once(const struct stage *g)
{
    uint32_t most = 0;
    for (unsigned i = 0; i < g->n_passes; i++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < g->pass[i].n; k++)
            n += !k || g->pass[i].row[k].session != g->pass[i].row[k - 1].session;
        most = n > most ? n : most;
    }
    return most;
}

/* A stage with memory for the vocabulary, so many constrained answers, a few tokens and masks. */
static void open_narrow(struct stage *g, uint32_t answers, uint32_t max_queue)
{
    open_stage(g, 6 * CTX, max_queue);
    g->l.env.words = &g->l.words;
    g->l.env.constraint_bytes = 256 << 10;
    g->l.env.words_most = 1 << 20;
    struct ntx_constraint_request request = {
        .tok = g->l.tok, .words = &g->l.words, .n_vocab = g->rig.n_vocab, .memory = 256 << 10, .words_most = 1 << 20};
    struct ntx_request q = constrained(0, NULL, 0, 0);
    struct ntx_constraint *c;
    struct ntx_err err = {0};
    request.m = &q;
    CHECK_MSG(!ntx_constraint_new(&request, &c, &err), "%s", err.text);
    g->l.kept_bytes = ntx_words_bytes(g->l.words) + answers * ntx_constraint_most(c) + (128 << 10);
    ntx_constraint_free(c);
}

static void close_narrow(struct stage *g)
{
    struct ntx_words *w = g->l.words;
    close_stage(g);
    ntx_words_free(w);
}

/* Memory for two constrained answers, and four requests of one client: all get answers, two at a time, by one grammar
 * whose masks are computed once. A request that needs no such memory does not wait. */
static void test_memory(void)
{
    static struct stage g;
    int32_t ids[8], want[6];
    open_narrow(&g, 2, 8);
    rig_ids(&g.rig, 4, ids, 8);
    expected(ids, 5, want, 6);
    uint64_t words = ntx_words_bytes(g.l.words);
    for (uint64_t id = 1; id <= 4; id++)
        submit(&g, g.ann, constrained(id, ids, 5, 6));
    generate(&g, g.ann, 5, ids, 5, 6);
    allow(&g, UINT32_MAX);
    for (uint64_t id = 1; id <= 5; id++)
        ended(&g, id, "length");
    for (uint64_t id = 2; id <= 4; id++) /* the same draws */
        for (unsigned i = 0; i < 6; i++)
            CHECK_EQ(reply(&g, id, NTX__REPLY__BODY_TOKEN, i)->token, reply(&g, 1, NTX__REPLY__BODY_TOKEN, i)->token);
    same_answer(&g, 5, want, 6);
    CHECK_EQ(most_at_once(&g), 3);
    uint64_t computed = ntx_words_masks(g.l.words); /* each mask once, by simultaneous answers, too */
    CHECK_EQ(computed, 6);
    submit(&g, g.ann, constrained(6, ids, 5, 6));
    ended(&g, 6, "length");
    CHECK_EQ(ntx_words_masks(g.l.words), computed);
    CHECK(ntx_words_bytes(g.l.words) > words && ntx_words_bytes(g.l.words) <= g.l.kept_bytes);
    ntx_words_allow(g.l.words, 0);
    CHECK_EQ(ntx_words_bytes(g.l.words), words); /* only the earlier grammar */
    close_narrow(&g);
}

/* A request that exceeds a limit alone is refused with the numbers, and no other waits for it. Without a queue
 * ([clients] queue_wait), a shared limit gives -EBUSY. */
static void test_memory_refused(void)
{
    static struct stage g;
    int32_t ids[8];
    open_narrow(&g, 0, 8);
    g.l.env.constrains_from = 1;
    rig_ids(&g.rig, 4, ids, 8);
    allow(&g, UINT32_MAX);
    submit(&g, g.ann, constrained(1, ids, 5, 6));
    CHECK_EQ(reply(&g, 1, NTX__REPLY__BODY_ERROR, 0)->err, -EOVERFLOW);
    CHECK(strstr(reply(&g, 1, NTX__REPLY__BODY_ERROR, 0)->text, "takes up to") &&
          strstr(reply(&g, 1, NTX__REPLY__BODY_ERROR, 0)->text, " KiB here"));
    CHECK(strstr(reply(&g, 1, NTX__REPLY__BODY_ERROR, 0)->text, "with --ram 14M or more"));
    generate(&g, g.ann, 2, ids, 5, 6);
    ended(&g, 2, "length");
    close_narrow(&g);
    open_narrow(&g, 1, 0);
    submit(&g, g.ann, constrained(1, ids, 5, 6));
    reached(&g, 1);
    submit(&g, g.bob, constrained(2, ids, 5, 6));
    allow(&g, UINT32_MAX);
    CHECK_EQ(reply(&g, 2, NTX__REPLY__BODY_ERROR, 0)->err, -EBUSY);
    ended(&g, 1, "length");
    close_narrow(&g);
}

/* Memory for the tokens of one prompt at a time: the others wait unread, and get answers. One that waits is cancelled
 * like any other. */
static void test_unread(void)
{
    static struct stage g;
    int32_t ids[8], want[4];
    open_stage(&g, 6 * CTX, 8);
    rig_ids(&g.rig, 4, ids, 8);
    expected(ids, 5, want, 4);
    g.l.kept_bytes = sizeof(struct ntx_session) * 6 + 64;
    for (uint64_t id = 1; id <= 4; id++)
        generate(&g, id & 1 ? g.ann : g.bob, id, ids, 5, 4);
    submit(&g, g.bob,
           (struct ntx_request){.kind = NTX_REQUEST_LOGITS, .id = 5, .tokens = ids, .n_tokens = 3, .from = 2});
    generate(&g, g.ann, 6, ids, 5, 4);
    submit(&g, g.ann, (struct ntx_request){.kind = NTX_REQUEST_CANCEL, .id = 7, .target = 6});
    allow(&g, UINT32_MAX);
    for (uint64_t id = 1; id <= 4; id++) {
        ended(&g, id, "length");
        same_answer(&g, id, want, 4);
    }
    ended(&g, 5, "");
    ended(&g, 6, "cancel");
    CHECK(!find(&g, 6, NTX__REPLY__BODY_STARTED, 0));
    close_stage(&g);
}

/* Clients take turns in the queue: a client with three requests does not delay another one for all of them. */
static void test_turns(void)
{
    static struct stage g;
    int32_t ids[8];
    open_stage(&g, 6 * CTX, 8);
    g.l.max_sessions = 1;
    rig_ids(&g.rig, 4, ids, 8);
    generate(&g, g.ann, 1, ids, 4, 6);
    reached(&g, 1);
    for (uint64_t id = 2; id <= 4; id++)
        generate(&g, g.ann, id, ids, 4, 2);
    generate(&g, g.bob, 5, ids, 4, 2);
    unsigned pass = 1;
    next(&g, &pass);
    prompts_read(&g, 2, 5);
    allow(&g, UINT32_MAX);
    for (uint64_t id = 1; id <= 5; id++)
        ended(&g, id, "length");
    uint64_t order[5] = {0};
    unsigned n = 0;
    for (unsigned i = 0; i < g.n_passes; i++)
        if (g.pass[i].n && (!n || order[n - 1] != g.pass[i].row[0].session))
            order[n++] = g.pass[i].row[0].session;
    CHECK_EQ(n, 5);
    CHECK(order[0] == session_of(&g, 1) && order[1] == session_of(&g, 2) && order[2] == session_of(&g, 5) &&
          order[3] == session_of(&g, 3));
    close_stage(&g);
}

/* A client that takes no replies gives way to one that waits. When it takes them, its answer goes on with the same
 * tokens. */
static void test_deaf(const char *draft, bool shares)
{
    static struct stage g;
    enum { N = 12, BIG = 2 << 20 };
    int32_t ids[8], want[N];
    float *much = calloc(BIG, sizeof *much);
    CHECK(much);
    open_any_stage(&g, 2 * CTX, 8, draft, shares);
    g.l.max_sessions = 1;
    rig_ids(&g.rig, 4, ids, 8);
    expected(ids, 5, want, N);
    generate(&g, g.ann, 1, ids, 5, N);
    reached(&g, 1);
    g.deaf = g.ann;
    unsigned pass = 1;
    for (int i = 0; i < 4; i++)
        next(&g, &pass);
    ntx_mail_logits(g.mail, g.ann, 99, 0, much, BIG);
    free(much);
    generate(&g, g.bob, 2, ids + 1, 5, 4);
    allow(&g, UINT32_MAX);
    ended(&g, 2, "length");
    CHECK(!find(&g, 1, NTX__REPLY__BODY_DONE, 0));
    unsigned before = g.n_passes;
    g.deaf = NULL;
    bool woke = false;
    for (size_t i = 0; i < g.n_untaken; i++)
        woke |= ntx_reply_queue_sent(g.ann, g.untaken[i]);
    CHECK(woke);
    ntx_engine_poke(g.e);
    ended(&g, 1, "length");
    same_answer(&g, 1, want, N);
    CHECK(!find(&g, 1, NTX__REPLY__BODY_TOKEN, N));
    CHECK(g.pass[before].row[0].pos == 0 || shares); /* its K and V were freed */
    CHECK_EQ(reply(&g, 1, NTX__REPLY__BODY_DONE, 0)->cached, 0);
    close_stage(&g);
}

int main(void)
{
    test_memory();
    test_memory_refused();
    test_unread();
    test_turns();
    test_deaf(NULL, false);
    test_deaf(NULL, true);
    test_deaf("lookup", true);
    test_prefix(NULL);
    test_prefix("lookup");
    test_prefix_at_once();
    test_prefix_evicted();
    test_share();
    test_join();
    test_order();
    test_leave();
    test_fail();
    test_keep();
    return 0;
}
