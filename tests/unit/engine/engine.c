/* SPDX-License-Identifier: Apache-2.0 */
/* The engine alone (stage.h): which rows each pass has, and the replies. */
#include <errno.h>

#include "tests/unit/engine/stage.h"

/* A prompt of several passes joins at the next one, and takes no row from a decoding session. Neither changes the
 * other's tokens. */
static void test_share(void)
{
    static struct stage g;
    int32_t ids[40], a[12], b[3];
    unsigned pass = 1;
    stage_open(&g, 4 * CTX, 4);
    rig_ids(&g.rig, 3, ids, 40);
    stage_expected(ids, 4, a, 12);
    stage_expected(ids, 40, b, 3);
    stage_generate(&g, g.ann, 1, ids, 4, 12);
    CHECK_EQ(stage_reached(&g, 1)->n, 4);
    uint64_t ann = stage_session_of(&g, 1);
    stage_generate(&g, g.bob, 2, ids, 40, 3); /* handled after the pass, then read beside the next one */
    const struct seen_pass *p = stage_next(&g, &pass);
    if (p->n == 1) {
        stage_prompts_read(&g, 2, 2);
        p = stage_next(&g, &pass);
    }
    uint64_t bob = stage_session_of(&g, 2);
    for (uint32_t read = 0; read < 40; read += ROWS - 1) {
        stage_rows_are(p, ann, 1, bob, 40 - read < ROWS - 1 ? 40 - read : ROWS - 1);
        CHECK(!p->row[0].prompt && p->row[1].prompt);
        CHECK_EQ(p->row[0].pos, 4 + pass - 2);
        CHECK_EQ(p->row[1].pos, read);
        p = stage_next(&g, &pass);
    }
    stage_rows_are(p, ann, 1, bob, 1);
    CHECK(!p->row[1].prompt);
    stage_allow(&g, UINT32_MAX);
    stage_ended(&g, 1, "length");
    stage_ended(&g, 2, "length");
    stage_same_answer(&g, 1, a, 12);
    stage_same_answer(&g, 2, b, 3);
    stage_close(&g);
}

/* --max-gap: beside an answer, a prompt has the rows that the target allows; alone, all of a pass. The tokens stay. */
static void test_gap(void)
{
    static struct stage g;
    enum { FEW = 2, LONG = 40 };
    int32_t ids[LONG], a[24], b[3], c[1];
    unsigned pass = 1;
    stage_open(&g, 4 * CTX, 4);
    rig_ids(&g.rig, 5, ids, LONG);
    stage_expected(ids, 4, a, 24);
    stage_expected(ids, LONG, b, 3);
    stage_expected(ids + 1, LONG - 2, c, 1);
    /* a row takes 1 s, as many passes have shown */
    const double rows = 1e9;
    g.e->gap = (struct ntx_gap){
        .target = 2.5e9, .base = 1e6, .rr = rows, .ry = rows * 1e9, .row = 1e9, .last = ROWS, .allowed = ROWS};
    stage_generate(&g, g.ann, 1, ids, 4, 24);
    stage_reached(&g, 1);
    stage_generate(&g, g.bob, 2, ids, LONG, 3);
    const struct seen_pass *p = stage_next(&g, &pass);
    if (p->n == 1) {
        stage_prompts_read(&g, 2, 2);
        p = stage_next(&g, &pass);
    }
    for (uint32_t read = 0; read < LONG; read += FEW) {
        stage_rows_are(p, stage_session_of(&g, 1), 1, stage_session_of(&g, 2), FEW);
        CHECK_EQ(p->row[1].pos, read);
        p = stage_next(&g, &pass);
    }
    stage_allow(&g, UINT32_MAX);
    stage_ended(&g, 1, "length");
    stage_ended(&g, 2, "length");
    stage_same_answer(&g, 1, a, 24);
    stage_same_answer(&g, 2, b, 3);
    unsigned before = g.n_passes;
    stage_generate(&g, g.ann, 3, ids + 1, LONG - 2, 1);
    stage_ended(&g, 3, "length");
    stage_same_answer(&g, 3, c, 1);
    CHECK_EQ(g.n_passes - before, (LONG - 2 + ROWS - 1) / ROWS);
    CHECK_EQ(g.pass[before].n, ROWS);
    stage_close(&g);
}

/* A request without a prompt to read has rows in the very next pass, after decode rows. */
static void test_join(void)
{
    static struct stage g;
    int32_t ids[8];
    unsigned pass = 1;
    stage_open(&g, 4 * CTX, 4);
    rig_ids(&g.rig, 4, ids, 8);
    stage_generate(&g, g.ann, 1, ids, 2, 5);
    stage_reached(&g, 1);
    stage_submit(&g, g.bob,
                 (struct ntx_request){.kind = NTX_REQUEST_LOGITS, .id = 2, .tokens = ids, .n_tokens = 3, .from = 1});
    const struct seen_pass *p = stage_next(&g, &pass);
    CHECK(p->n == 4 && p->row[0].session == stage_session_of(&g, 1) && !p->row[0].prompt && p->row[1].prompt &&
          p->row[1].pos == 0);
    p = stage_next(&g, &pass);
    CHECK_EQ(p->n, 1);
    stage_ended(&g, 2, "");
    CHECK(stage_find(&g, 2, NTX__REPLY__BODY_LOGITS, 1) && !stage_find(&g, 2, NTX__REPLY__BODY_LOGITS, 2));
    stage_submit(&g, g.bob,
                 (struct ntx_request){.kind = NTX_REQUEST_LOGITS, .id = 3, .tokens = ids, .n_tokens = 3, .from = 3});
    stage_next(&g, &pass);
    CHECK_EQ(stage_reply(&g, 3, NTX__REPLY__BODY_ERROR, 0)->err, -EINVAL);
    stage_close(&g);
}

/* KV for one context and a block: the first request runs first, though a later one would fit already. */
static void test_order(void)
{
    static struct stage g;
    int32_t ids[8];
    unsigned pass = 1;
    stage_open(&g, CTX + NTX_KV_BLOCK, 2);
    rig_ids(&g.rig, 4, ids, 8);
    stage_generate(&g, g.ann, 1, ids, 4, 0);
    stage_reached(&g, 1);
    stage_generate(&g, g.bob, 2, ids, 5, 0);
    stage_generate(&g, g.bob, 3, ids, 3, 1);
    stage_generate(&g, g.bob, 4, ids, 3, 1);
    stage_next(&g, &pass);
    stage_prompts_read(&g, 2, 4);
    stage_rows_are(stage_next(&g, &pass), stage_session_of(&g, 1), 1, 0, 0);
    CHECK_EQ(stage_reply(&g, 4, NTX__REPLY__BODY_ERROR, 0)->err, -EBUSY); /* two wait already */
    stage_submit(&g, g.ann, (struct ntx_request){.kind = NTX_REQUEST_CANCEL, .id = 5, .target = 1});
    const struct seen_pass *p = stage_next(&g, &pass);
    stage_ended(&g, 1, "cancel");
    stage_ended(&g, 5, "");
    stage_rows_are(p, stage_session_of(&g, 2), 5, stage_session_of(&g, 3), 3);
    stage_close(&g);
}

/* A request that is cancelled, or whose client has gone, is not in the next pass. The others' tokens stay the same. */
static void test_leave(void)
{
    static struct stage g;
    int32_t ids[8], want[9];
    unsigned pass = 1;
    stage_open(&g, 4 * CTX, 4);
    rig_ids(&g.rig, 6, ids, 8);
    stage_expected(ids, 5, want, 9);
    stage_generate(&g, g.ann, 1, ids, 5, 9);
    stage_reached(&g, 1);
    stage_generate(&g, g.ann, 2, ids, 3, 9);
    stage_generate(&g, g.bob, 3, ids, 4, 9);
    stage_next(&g, &pass);
    stage_prompts_read(&g, 2, 3);
    stage_next(&g, &pass);
    CHECK_EQ(stage_next(&g, &pass)->n, 3);
    stage_submit(&g, g.ann, (struct ntx_request){.kind = NTX_REQUEST_CANCEL, .id = 4, .target = 2});
    stage_rows_are(stage_next(&g, &pass), stage_session_of(&g, 1), 1, stage_session_of(&g, 3), 1);
    stage_ended(&g, 2, "cancel");
    CHECK_EQ(ntx_engine_client_gone(g.e, g.bob), 0);
    stage_rows_are(stage_next(&g, &pass), stage_session_of(&g, 1), 1, 0, 0);
    stage_submit(&g, g.ann, (struct ntx_request){.kind = NTX_REQUEST_CLOSE, .id = 6, .session = 77});
    stage_allow(&g, UINT32_MAX);
    CHECK_EQ(stage_reply(&g, 6, NTX__REPLY__BODY_ERROR, 0)->err, -ENOENT);
    stage_ended(&g, 1, "length");
    stage_same_answer(&g, 1, want, 9);
    CHECK(!stage_find(&g, 3, NTX__REPLY__BODY_DONE, 0));
    stage_close(&g);
}

/* A pass that fails ends the sessions that had rows in it, with the reason. The engine goes on. */
static void test_fail(void)
{
    static struct stage g;
    int32_t ids[8], want[4];
    char text[64];
    stage_open(&g, 4 * CTX, 4);
    rig_ids(&g.rig, 7, ids, 8);
    stage_expected(ids, 5, want, 4);
    g.rig.w.forgive = true;
    g.rig.w.fail_chunk = g.rig.chunks->n - 1;
    stage_generate(&g, g.ann, 1, ids, 5, 4);
    stage_reached(&g, 1);
    stage_allow(&g, UINT32_MAX);
    CHECK_EQ(stage_reply(&g, 1, NTX__REPLY__BODY_ERROR, 0)->err, -EIO);
    snprintf(text, sizeof text, "chunk %u cannot be read", g.rig.w.fail_chunk);
    CHECK_STR(stage_reply(&g, 1, NTX__REPLY__BODY_ERROR, 0)->text, text);
    CHECK(!stage_find(&g, 1, NTX__REPLY__BODY_TOKEN, 0));
    g.rig.w.fail_chunk = UINT32_MAX;
    stage_generate(&g, g.ann, 2, ids, 5, 4);
    stage_ended(&g, 2, "length");
    stage_same_answer(&g, 2, want, 4);
    stage_close(&g);
}

/* A kept session goes on where it was: only new tokens are fed. */
static void test_keep(void)
{
    static struct stage g;
    int32_t ids[12], both[12], first[2], second[2];
    stage_open(&g, 4 * CTX, 4);
    rig_ids(&g.rig, 8, ids, 8);
    stage_expected(ids, 4, first, 2);
    memcpy(both, ids, 4 * sizeof *ids);
    memcpy(both + 4, first, sizeof first);
    memcpy(both + 6, ids + 4, 4 * sizeof *ids);
    stage_expected(both, 10, second, 2);
    stage_allow(&g, UINT32_MAX);
    struct ntx_request q = stage_generation(1, ids, 4, 2);
    q.keep = true;
    stage_submit(&g, g.ann, q);
    stage_ended(&g, 1, "length");
    stage_same_answer(&g, 1, first, 2);
    q = stage_generation(2, ids + 4, 4, 2);
    q.session = stage_session_of(&g, 1);
    stage_submit(&g, g.bob, q); /* a session of another client */
    CHECK_EQ(stage_reply(&g, 2, NTX__REPLY__BODY_ERROR, 0)->err, -ENOENT);
    unsigned before = g.n_passes;
    q.id = 3;
    stage_submit(&g, g.ann, q);
    stage_ended(&g, 3, "length");
    stage_same_answer(&g, 3, second, 2);
    CHECK_EQ(g.pass[before].n, 5); /* the last token drawn, and the four */
    CHECK_EQ(g.pass[before].row[0].pos, 5);
    stage_close(&g);
}

/* ---- prefixes */

static void answers(struct stage *g, struct ntx_reply_queue *who, uint64_t id, const int32_t *ids, uint32_t n_ids,
                    uint32_t n, uint32_t cached)
{
    int32_t want[CTX];
    stage_expected(ids, n_ids, want, n);
    stage_generate(g, who, id, ids, n_ids, n);
    stage_ended(g, id, "length");
    stage_same_answer(g, id, want, n);
    CHECK_EQ(stage_reply(g, id, NTX__REPLY__BODY_DONE, 0)->cached, cached);
}

/* A text with a known prefix computes only its new tokens: from any token on, after an answer too, with drafts or
 * without. Another user's text does not share it. */
static void test_prefix(const char *draft)
{
    static struct stage g;
    int32_t ids[40], other[40], more[CTX], *at;
    stage_open_with(&g, 6 * CTX, 4, draft, true);
    ntx_reply_queue_whose(g.ann, 5);
    ntx_reply_queue_whose(g.bob, 6);
    stage_allow(&g, UINT32_MAX);
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
    stage_expected(ids, 40, at = more + 40, 5);
    memcpy(at + 5, other, 10 * sizeof *other);
    answers(&g, g.ann, 6, more, 55, 3, 44); /* the answer's last token was never fed */
    answers(&g, g.ann, 7, more, 55, 3, 54);
    answers(&g, g.bob, 8, more, 55, 3, 44);
    CHECK_EQ(ntx_counter_get(g.counters, NTX_C_comp_cached_tokens), 39 + 35 + 32 + 44 + 54 + 44);
    stage_close(&g);
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
    stage_open_with(&g, 6 * CTX, 4, NULL, true);
    for (int i = 0; i < 3; i++) {
        rig_ids(&g.rig, 3, ids[i], 40);
        ids[i][36] = 7 + i;
        stage_expected(ids[i], 40, want[i], 4);
    }
    stage_generate(&g, g.ann, 1, ids[0], 40, 4);
    stage_reached(&g, 1);
    stage_generate(&g, g.ann, 2, ids[1], 40, 4);
    stage_generate(&g, g.bob, 3, ids[2], 40, 4);
    unsigned pass = 1;
    stage_next(&g, &pass);
    stage_prompts_read(&g, 2, 3);
    stage_next(&g, &pass);
    CHECK_EQ(g.pass[pass - 1].n, ROWS);
    stage_submit(&g, g.ann, (struct ntx_request){.kind = NTX_REQUEST_CANCEL, .id = 4, .target = 1});
    stage_allow(&g, UINT32_MAX);
    stage_ended(&g, 1, "cancel");
    stage_ended(&g, 2, "length");
    stage_ended(&g, 3, "length");
    stage_same_answer(&g, 2, want[1], 4);
    stage_same_answer(&g, 3, want[2], 4);
    uint64_t one = stage_session_of(&g, 1), two = stage_session_of(&g, 2), three = stage_session_of(&g, 3);
    CHECK(rows_of(&g, one, 0, 32) && rows_of(&g, two, 0, 32));
    CHECK_EQ(rows_of(&g, one, 0, 32) + rows_of(&g, two, 0, 32) + rows_of(&g, three, 0, 32), 32);
    CHECK(stage_reply(&g, 3, NTX__REPLY__BODY_DONE, 0)->cached >= 32);
    stage_close(&g);
}

/* Kept prefixes never make a request wait: a text that needs all blocks gets them at once. */
static void test_prefix_evicted(void)
{
    static struct stage g;
    int32_t ids[40], other[40];
    stage_open_with(&g, CTX, 0, NULL, true);
    stage_allow(&g, UINT32_MAX);
    rig_ids(&g.rig, 3, ids, 40);
    rig_ids(&g.rig, 4, other, 40);
    answers(&g, g.ann, 1, ids, 40, 5, 0);
    answers(&g, g.ann, 2, other, 40, 20, 0);
    answers(&g, g.ann, 3, ids, 40, 5, 0);
    answers(&g, g.ann, 4, ids, 40, 5, 39);
    stage_generate(&g, g.ann, 5, other, 20, 0); /* up to the end of the context */
    stage_ended(&g, 5, "length");
    stage_close(&g);
}

/* ---- memory of all requests */

static struct ntx_request constrained(uint64_t id, const int32_t *ids, uint32_t n_ids, uint32_t n)
{
    static const char text[] = "root ::= [^x]{40,}";
    struct ntx_request q = stage_generation(id, ids, n_ids, n);
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
    stage_open(g, 6 * CTX, max_queue);
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
    stage_close(g);
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
    stage_expected(ids, 5, want, 6);
    uint64_t words = ntx_words_bytes(g.l.words);
    for (uint64_t id = 1; id <= 4; id++)
        stage_submit(&g, g.ann, constrained(id, ids, 5, 6));
    stage_generate(&g, g.ann, 5, ids, 5, 6);
    stage_allow(&g, UINT32_MAX);
    for (uint64_t id = 1; id <= 5; id++)
        stage_ended(&g, id, "length");
    for (uint64_t id = 2; id <= 4; id++) /* the same draws */
        for (unsigned i = 0; i < 6; i++)
            CHECK_EQ(stage_reply(&g, id, NTX__REPLY__BODY_TOKEN, i)->token,
                     stage_reply(&g, 1, NTX__REPLY__BODY_TOKEN, i)->token);
    stage_same_answer(&g, 5, want, 6);
    CHECK_EQ(most_at_once(&g), 3);
    uint64_t computed = ntx_words_masks(g.l.words); /* each mask once, by simultaneous answers, too */
    CHECK_EQ(computed, 6);
    stage_submit(&g, g.ann, constrained(6, ids, 5, 6));
    stage_ended(&g, 6, "length");
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
    stage_allow(&g, UINT32_MAX);
    stage_submit(&g, g.ann, constrained(1, ids, 5, 6));
    CHECK_EQ(stage_reply(&g, 1, NTX__REPLY__BODY_ERROR, 0)->err, -EOVERFLOW);
    CHECK(strstr(stage_reply(&g, 1, NTX__REPLY__BODY_ERROR, 0)->text, "takes up to") &&
          strstr(stage_reply(&g, 1, NTX__REPLY__BODY_ERROR, 0)->text, " KiB here"));
    CHECK(strstr(stage_reply(&g, 1, NTX__REPLY__BODY_ERROR, 0)->text, "with --ram 14M or more"));
    stage_generate(&g, g.ann, 2, ids, 5, 6);
    stage_ended(&g, 2, "length");
    close_narrow(&g);
    open_narrow(&g, 1, 0);
    stage_submit(&g, g.ann, constrained(1, ids, 5, 6));
    stage_reached(&g, 1);
    stage_submit(&g, g.bob, constrained(2, ids, 5, 6));
    stage_allow(&g, UINT32_MAX);
    CHECK_EQ(stage_reply(&g, 2, NTX__REPLY__BODY_ERROR, 0)->err, -EBUSY);
    stage_ended(&g, 1, "length");
    close_narrow(&g);
}

/* Memory for the tokens of one prompt at a time: the others wait unread, and get answers. One that waits is cancelled
 * like any other. */
static void test_unread(void)
{
    static struct stage g;
    int32_t ids[8], want[4];
    stage_open(&g, 6 * CTX, 8);
    rig_ids(&g.rig, 4, ids, 8);
    stage_expected(ids, 5, want, 4);
    g.l.kept_bytes = sizeof(struct ntx_session) * 6 + 64;
    for (uint64_t id = 1; id <= 4; id++)
        stage_generate(&g, id & 1 ? g.ann : g.bob, id, ids, 5, 4);
    stage_submit(&g, g.bob,
                 (struct ntx_request){.kind = NTX_REQUEST_LOGITS, .id = 5, .tokens = ids, .n_tokens = 3, .from = 2});
    stage_generate(&g, g.ann, 6, ids, 5, 4);
    stage_submit(&g, g.ann, (struct ntx_request){.kind = NTX_REQUEST_CANCEL, .id = 7, .target = 6});
    stage_allow(&g, UINT32_MAX);
    for (uint64_t id = 1; id <= 4; id++) {
        stage_ended(&g, id, "length");
        stage_same_answer(&g, id, want, 4);
    }
    stage_ended(&g, 5, "");
    stage_ended(&g, 6, "cancel");
    CHECK(!stage_find(&g, 6, NTX__REPLY__BODY_STARTED, 0));
    stage_close(&g);
}

/* Clients take turns in the queue: a client with three requests does not delay another one for all of them. behind: all
 * come by one connection, which names its clients, as ntx-gateway does. */
static void test_turns(bool behind)
{
    static struct stage g;
    int32_t ids[8];
    stage_open(&g, 6 * CTX, 8);
    g.l.max_sessions = 1;
    rig_ids(&g.rig, 4, ids, 8);
    struct ntx_request q = stage_generation(1, ids, 4, 6);
    q.client = behind ? 77 : 0;
    stage_submit(&g, g.ann, q);
    stage_reached(&g, 1);
    q.max_tokens = 2;
    for (q.id = 2; q.id <= 4; q.id++)
        stage_submit(&g, g.ann, q);
    q.client = behind ? 78 : 0;
    stage_submit(&g, behind ? g.ann : g.bob, q);
    unsigned pass = 1;
    stage_next(&g, &pass);
    stage_prompts_read(&g, 2, 5);
    stage_allow(&g, UINT32_MAX);
    for (uint64_t id = 1; id <= 5; id++)
        stage_ended(&g, id, "length");
    uint64_t order[5] = {0};
    unsigned n = 0;
    for (unsigned i = 0; i < g.n_passes; i++)
        if (g.pass[i].n && (!n || order[n - 1] != g.pass[i].row[0].session))
            order[n++] = g.pass[i].row[0].session;
    CHECK_EQ(n, 5);
    CHECK(order[0] == stage_session_of(&g, 1) && order[1] == stage_session_of(&g, 2) &&
          order[2] == stage_session_of(&g, 5) && order[3] == stage_session_of(&g, 3));
    stage_close(&g);
}

/* A pass has as many rows for one client's prompt as for the three prompts of another together. */
static void test_rows_of_clients(void)
{
    static struct stage g;
    enum { LONG = 40 };
    int32_t ids[LONG];
    unsigned pass = 1;
    stage_open(&g, 8 * CTX, 8);
    rig_ids(&g.rig, 6, ids, LONG);
    stage_generate(&g, g.ann, 1, ids, 4, 2);
    stage_reached(&g, 1);
    for (uint64_t id = 2; id <= 4; id++)
        stage_generate(&g, g.ann, id, ids, LONG, 1);
    stage_generate(&g, g.bob, 5, ids, LONG, 1);
    stage_next(&g, &pass);
    stage_prompts_read(&g, 2, 5);
    for (int i = 0; i < 3; i++) {
        const struct seen_pass *p = stage_next(&g, &pass);
        uint32_t bob = 0;
        for (uint32_t k = 0; k < p->n; k++)
            bob += p->row[k].session == stage_session_of(&g, 5);
        CHECK_EQ(p->n, ROWS);
        CHECK_EQ(bob, ROWS / 2);
    }
    stage_allow(&g, UINT32_MAX);
    for (uint64_t id = 2; id <= 5; id++)
        stage_ended(&g, id, "length");
    stage_close(&g);
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
    stage_open_with(&g, 2 * CTX, 8, draft, shares);
    g.l.max_sessions = 1;
    rig_ids(&g.rig, 4, ids, 8);
    stage_expected(ids, 5, want, N);
    stage_generate(&g, g.ann, 1, ids, 5, N);
    stage_reached(&g, 1);
    g.deaf = g.ann;
    unsigned pass = 1;
    for (int i = 0; i < 4; i++)
        stage_next(&g, &pass);
    ntx_mail_logits(g.mail, g.ann, 99, 0, much, BIG);
    free(much);
    stage_generate(&g, g.bob, 2, ids + 1, 5, 4);
    stage_allow(&g, UINT32_MAX);
    stage_ended(&g, 2, "length");
    CHECK(!stage_find(&g, 1, NTX__REPLY__BODY_DONE, 0));
    unsigned before = g.n_passes;
    g.deaf = NULL;
    bool woke = false;
    for (size_t i = 0; i < g.n_untaken; i++)
        woke |= ntx_reply_queue_sent(g.ann, g.untaken[i]);
    CHECK(woke);
    ntx_engine_poke(g.e);
    stage_ended(&g, 1, "length");
    stage_same_answer(&g, 1, want, N);
    CHECK(!stage_find(&g, 1, NTX__REPLY__BODY_TOKEN, N));
    CHECK(g.pass[before].row[0].pos == 0 || shares); /* its K and V were freed */
    CHECK_EQ(stage_reply(&g, 1, NTX__REPLY__BODY_DONE, 0)->cached, 0);
    stage_close(&g);
}

int main(void)
{
    test_memory();
    test_memory_refused();
    test_unread();
    test_turns(false);
    test_turns(true);
    test_rows_of_clients();
    test_deaf(NULL, false);
    test_deaf(NULL, true);
    test_deaf("lookup", true);
    test_prefix(NULL);
    test_prefix("lookup");
    test_prefix_at_once();
    test_prefix_evicted();
    test_share();
    test_gap();
    test_join();
    test_order();
    test_leave();
    test_fail();
    test_keep();
    return 0;
}
