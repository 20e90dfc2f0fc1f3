/* SPDX-License-Identifier: Apache-2.0 */
/* A pass over several machines (here threads, each with its own chunks and pass) gives the bits of one machine: for all
 * kinds of layers, any parts, batches, threads and kernels. A failure on one of them fails the pass with its text, and
 * the next pass succeeds. */
#include <errno.h>
#include <pthread.h>

#include "computed/ranks/ranks_impl.h"
#include "tests/lib/emulated.h"
#include "tests/unit/pass/rig.h"
#include "tests/unit/ranks/net_threads.h"

#define N 41

static const char *const names[NTX_RANKS_MAX] = {"first", "second", "third", "fourth"};

struct rank {
    struct rig rig;
    struct ntx_share share;
    struct ntx_ranks *ranks;
    atomic_bool stop;
    pthread_t thread;
    int rc;
};

struct machines {
    uint32_t n;
    struct net_wire *wire;
    struct rank at[4];
};

static void *follow(void *ctx)
{
    struct rank *r = ctx;
    r->rc = ntx_ranks_follow(r->ranks, r->rig.f, &r->stop);
    return NULL;
}

static void machines_open(struct machines *m, const struct rig_options *of, const struct ntx_share *share)
{
    static const char *const kernels[] = {NULL, "generic", "avx2", "avx512"}; /* of different machines */
    memset(m, 0, sizeof *m);
    m->n = share->n;
    m->wire = net_wire_new(m->n);
    for (uint32_t i = 0; i < m->n; i++) {
        struct rank *r = &m->at[i];
        struct rig_options o = *of;
        const struct ntx_ranks_config c = {
            .ops = &net_threads, .net = net_at(m->wire, i), .names = names, .limit_ms = 20000};
        CHECK_EQ(ntx_ranks_new(&c, &r->ranks), 0);
        r->share = *share;
        r->share.rank = i;
        o.share = &r->share;
        o.ranks = r->ranks;
        o.backend = i ? NULL : ntx_ranks_backend(r->ranks);
        o.threads = 1 + i % 2;
        o.kernel = rig_kernel(kernels[i]);
        o.kernel = ntx_cpu_pick(o.kernel) ? o.kernel : NULL;
        rig_open(&r->rig, &o);
        if (i)
            CHECK_EQ(pthread_create(&r->thread, NULL, follow, r), 0);
    }
}

static void machines_close(struct machines *m, int rc)
{
    const uint32_t n = m->n;
    CHECK(n <= sizeof m->at / sizeof *m->at);
    ntx_ranks_quit(m->at[0].ranks);
    for (uint32_t i = 0; i < n; i++) {
        struct rank *r = &m->at[i];
        if (i) {
            atomic_store(&r->stop, rc != 0);
            pthread_join(r->thread, NULL);
            CHECK_MSG(r->rc == rc, "rank %u ended with %d: %s", i, r->rc, r->rig.w.w.error.text);
        }
        rig_close(&r->rig);
        ntx_ranks_free(r->ranks);
    }
    net_wire_free(m->wire);
}

/* Rank 0's logits for some tokens, in passes of `step` rows. */
static float *shared_logits(const struct rig_options *of, const struct ntx_share *share, uint32_t step)
{
    struct machines m;
    int32_t ids[N];
    machines_open(&m, of, share);
    struct rig *r = &m.at[0].rig;
    float *got = malloc((size_t)N * r->n_vocab * sizeof *got);
    struct ntx_kv_seq *kv = rig_seq(r, N);
    rig_ids(r, 5, ids, N); /* as rig_logits */
    rig_feed(r, kv, ids, N, 0, step, got);
    ntx_kv_seq_free(kv);
    uint64_t all = 0;
    for (uint32_t i = 1; i < m.n; i++)
        all += ntx_ranks_messages(m.at[i].ranks);
    if (share->split == NTX_SPLIT_ROWS)
        CHECK_EQ(all, (m.n - 1) * ntx_ranks_messages(m.at[0].ranks));
    CHECK(all >= ntx_ranks_messages(m.at[0].ranks)); /* of a whole layer one machine answers */
    CHECK(all > 0);
    machines_close(&m, 0);
    return got;
}

static const struct ntx_share shares[] = {
    {.n = 2, .part = {1, 1}},
    {.n = 3, .part = {1, 4, 2}},
    {.n = 2, .part = {1, 50}},
    {.n = 4, .part = {1, 1, 1, 1}},
    /* K and V by heads; some machines may have none */
    {.n = 2, .part = {1, 1}, .split = NTX_SPLIT_HEADS},
    {.n = 3, .part = {1, 4, 2}, .split = NTX_SPLIT_HEADS},
    /* whole layers */
    {.n = 2, .part = {1, 1}, .split = NTX_SPLIT_LAYERS, .owner = {1, 0, 1, 0, NTX_SHARE_ALL}},
    {.n = 3, .part = {1, 1, 1}, .split = NTX_SPLIT_LAYERS, .owner = {2, 1, 0, 2, NTX_SHARE_ALL}},
    {.n = 2, .part = {1, 1}, .split = NTX_SPLIT_LAYERS, .owner = {1, 1, 1, 1}}};

#define N_SHARES (sizeof shares / sizeof *shares)
static const struct ntx_share *const whole_layers = shares + N_SHARES - 2; /* over three machines */

/* For the splits without a bit in `leave`. */
static void same(const struct rig_options *of, uint32_t leave)
{
    static const uint32_t steps[] = {N, 1, 7, 16, 7, 1, N, 7, 1};
    static unsigned turn;
    const unsigned every = thinned_step(2, 2);
    size_t n;
    float *want = rig_logits(of, N, N, &n);
    for (size_t i = turn++ % every; i < N_SHARES; i += every) {
        if (leave >> i & 1)
            continue;
        float *got = shared_logits(of, &shares[i], steps[i]);
        CHECK_MSG(!memcmp(got, want, n * sizeof *got), "%s in %s over %u machines, %zu", of->make.arch, of->make.type,
                  shares[i].n, i);
        free(got);
    }
    free(want);
}

static void of_all_kinds(void)
{
    static const char *const types[] = {"F32", "F16", "Q8_0", "Q4_K_M", "Q5_1", "MXFP4", "IQ3_XXS", "NVFP4_ALL"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct rig_options o = {
            .make = rig_model(), .window = i % 2 ? 3 : 0, .stay_every = i % 3, .chunk_bytes = 20000};
        o.make.layers = 2;
        o.make.type = types[i];
        o.make.scales = i == 7;
        same(&o, 1 << (6 + i % 3) | 1 << (6 + (i + 1) % 3));
    }
}

static void of_all_architectures(void)
{
    static const struct {
        const char *arch, *type;
        uint32_t experts, used;
    } is[] = {
        {"qwen2moe", "Q4_K_M", 6, 3}, {"qwen3moe", "Q8_0", 20, 20}, {"gpt-oss", "Q8_0", 6, 3},
        {"gemma3", "Q8_0", 0, 0},     {"phi3", "Q4_K_M", 0, 0},     {"qwen35", "Q8_0", 0, 0},
        {"qwen35moe", "F16", 6, 2},   {"llama4", "Q8_0", 6, 1},
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options o = {.make = rig_model()};
        o.make.arch = is[i].arch;
        o.make.type = is[i].type;
        o.make.experts = is[i].experts;
        o.make.experts_used = is[i].used;
        o.make.layers = 4;
        o.make.window = 5;
        o.make.rotated = 16;
        o.make.attention_every = 2;
        o.make.expert_every = i == 7 ? 2 : 0;
        same(&o, 1 << (6 + i % 2) | 1 << 8);
    }
    struct rig_options o = {.make = rig_mla()};
    o.make.type = "Q8_0";
    same(&o, 1 << 6);
    o.make = rig_pooled();
    same(&o, 1 << 6);
    o.make = rig_streamed();
    same(&o, 1 << 6);
    o.make = rig_blocks();
    same(&o, 1 << 6);
    o.make = rig_model(); /* limits of FFNs, of experts and of shared ones, which differ from layer to layer */
    o.make.arch = "step35";
    o.make.type = "Q8_0";
    o.make.layers = 6;
    o.make.window = 5;
    o.make.window_heads = 6;
    o.make.rotated = 16;
    o.make.dense = 2;
    o.make.experts = 6;
    o.make.experts_used = 2;
    same(&o, 1 << 6 | 1 << 8);
}

/* layers that every row skips are read nowhere */
struct skipper {
    uint32_t layer;
};
static void decide(void *ctx, const struct ntx_batch *b, uint64_t *skip)
{
    const struct skipper *s = ctx;
    for (uint32_t i = 0; i < b->n_rows; i++)
        skip[i * NTX_MAP_WORDS] |= (uint64_t)1 << s->layer;
}

static void with_skips(const struct ntx_share *share)
{
    struct skipper s = {.layer = 2};
    struct machines m;
    struct rig alone;
    struct rig_options o = {.make = rig_model(), .skip = {.ctx = &s, .probe_layer = 0, .decide = decide}};
    int32_t ids[N];
    o.make.type = "Q8_0";
    rig_open(&alone, &o);
    machines_open(&m, &o, share);
    rig_ids(&alone, 3, ids, N);
    struct rig *r[] = {&alone, &m.at[0].rig};
    float *got[2];
    for (int i = 0; i < 2; i++) {
        struct ntx_row rows[N];
        struct ntx_kv_seq *kv = rig_seq(r[i], N);
        got[i] = calloc((size_t)N * r[i]->n_vocab, sizeof(float));
        for (uint32_t k = 0; k < N; k++)
            rows[k] = (struct ntx_row){
                .token = ids[k], .pos = k, .kv = kv, .may_skip = true, .logits = k + 1 == N ? got[i] : NULL};
        CHECK_EQ(rig_run(r[i], rows, N), 0);
        CHECK_EQ(ntx_forward_skipped(r[i]->f), N);
        ntx_kv_seq_free(kv);
    }
    CHECK_SAME(got[0], got[1], alone.n_vocab);
    machines_close(&m, 0);
    CHECK_EQ(m.at[1].rig.w.n_drops, 1);
    CHECK_EQ(m.at[1].rig.w.drops[0], 2);
    rig_close(&alone);
    free(got[0]), free(got[1]);
}

/* Experts that a layer will probably want are reported to machines that have some of them. */
static void prefetched(void)
{
    struct rig alone;
    struct rig_options o = {.make = rig_model()};
    int32_t ids[2];
    float *logits;
    o.make.arch = "qwen3moe";
    o.make.type = "Q8_0";
    o.make.experts = 20;
    o.make.experts_used = 3;
    o.make.layers = 4;
    rig_open(&alone, &o);
    mem_weights_prefetch(&alone.w);
    logits = calloc(2 * (size_t)alone.n_vocab, sizeof *logits);
    rig_ids(&alone, 4, ids, 2);
    struct ntx_row row = {.token = ids[0], .kv = rig_seq(&alone, N), .logits = logits};
    CHECK_EQ(rig_run(&alone, &row, 1), 0);
    CHECK_EQ(alone.w.n_prefetched, 3); /* of all layers but the first */
    ntx_kv_seq_free(row.kv);
    for (size_t i = 0; i < 2; i++) {
        const struct ntx_share *share = i ? whole_layers : &shares[1];
        struct machines m;
        machines_open(&m, &o, share);
        for (uint32_t k = 0; k < m.n; k++)
            mem_weights_prefetch(&m.at[k].rig.w);
        row = (struct ntx_row){.token = ids[0], .kv = rig_seq(&m.at[0].rig, N), .logits = logits + alone.n_vocab};
        CHECK_EQ(rig_run(&m.at[0].rig, &row, 1), 0);
        CHECK_SAME(logits, logits + alone.n_vocab, alone.n_vocab);
        ntx_kv_seq_free(row.kv);
        machines_close(&m, 0);
        for (uint32_t k = 0; k < m.n; k++)
            for (uint32_t l = 1; l < 4; l++) {
                uint64_t want = !i || share->owner[l] == k ? alone.w.prefetch[l] : 0;
                CHECK_MSG(m.at[k].rig.w.prefetch[l] == want, "rank %u, layer %u: %llx, expected %llx", k, l,
                          (unsigned long long)m.at[k].rig.w.prefetch[l], (unsigned long long)want);
            }
    }
    rig_close(&alone);
    free(logits);
}

/* A machine that cannot read reports it to rank 0; the next pass succeeds. (Settings for a machine's thread are made
 * before its first message, here and below: the end of a pass has no answer, so the thread may still be busy with
 * it.) */
static void one_fails(const struct ntx_share *share)
{
    struct machines m;
    struct rig_options o = {.make = rig_model()};
    int32_t ids[N];
    size_t n;
    float *want = rig_logits(&o, N, N, &n), *got = malloc(n * sizeof *got);
    machines_open(&m, &o, share);
    struct rig *r = &m.at[0].rig;
    rig_ids(r, 5, ids, N);
    for (uint32_t i = 0; i < 3; i++)
        m.at[i].rig.w.forgive = true;
    for (uint32_t who = 0; who < 3; who++) {
        struct ntx_kv_seq *kv = rig_seq(r, N);
        struct ntx_row row = {.token = ids[0], .kv = kv, .logits = got};
        m.at[who].rig.w.fail_chunk = 5 + who;
        CHECK_EQ(rig_run(r, &row, 1), -EIO);
        CHECK_MSG(strstr(r->w.w.error.text, who ? names[who] : "chunk") != NULL, "'%s'", r->w.w.error.text);
        m.at[who].rig.w.fail_chunk = UINT32_MAX;
        rig_feed(r, kv, ids, N, 0, 9, got);
        CHECK_SAME(got, want, n);
        ntx_kv_seq_free(kv);
    }
    machines_close(&m, 0);
    free(want), free(got);
}

/* A machine that is gone fails this pass and all later ones, with a text. */
static void one_is_gone(void)
{
    struct machines m;
    struct rig_options o = {.make = rig_model()};
    machines_open(&m, &o, &shares[0]);
    m.at[1].rig.w.forgive = true;
    struct rig *r = &m.at[0].rig;
    float *logits = malloc(r->n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(r, N);
    struct ntx_row row = {.token = 1, .kv = kv, .logits = logits};
    CHECK_EQ(rig_run(r, &row, 1), 0);
    net_wire_cut(m.wire, 1);
    r->w.forgive = true;
    for (int i = 0; i < 2; i++) {
        row.pos = 1;
        CHECK_EQ(rig_run(r, &row, 1), -ETIMEDOUT);
        CHECK_MSG(strstr(r->w.w.error.text, "cannot be reached any more: a wire is cut; start all of them again") !=
                      NULL,
                  "'%s'", r->w.w.error.text);
        CHECK(ntx_ranks_lost(m.at[0].ranks));
    }
    ntx_kv_seq_free(kv);
    machines_close(&m, -ECANCELED);
    free(logits);
}

/* Rank 0 is silent in the middle of a pass: followers do not wait forever. Between passes they do. */
static void first_is_silent(void)
{
    static const struct ntx__message_head begin = {.type = NTX__MSG_BEGIN};
    struct machines m;
    struct rig_options o = {.make = rig_model()};
    machines_open(&m, &o, &shares[0]);
    m.at[1].ranks->c.limit_ms = 20;
    m.at[1].rig.w.forgive = true;
    net_threads.send(net_at(m.wire, 0), 1, &begin, sizeof begin);
    pthread_join(m.at[1].thread, NULL);
    CHECK_EQ(m.at[1].rc, -ETIMEDOUT);
    CHECK_MSG(strstr(m.at[1].rig.w.w.error.text, "the first machine cannot be reached") != NULL, "'%s'",
              m.at[1].rig.w.w.error.text);
    CHECK_EQ(pthread_create(&m.at[1].thread, NULL, follow, &m.at[1]), 0); /* as machines_close expects */
    machines_close(&m, 0);
}

/* Malformed messages are refused, with a text, and nothing is touched. */
static void strange_messages(void)
{
    struct net_wire *wire;
    for (uint32_t kind = 0; kind < 40; kind++) {
        struct machines m;
        struct rig_options o = {.make = rig_model()};
        uint32_t words[64] = {0};
        o.make.layers = 2;
        machines_open(&m, &o, &shares[0]);
        wire = m.wire;
        m.at[1].rig.w.forgive = true;
        words[0] = 1;
        CHECK_EQ(net_threads.send(net_at(wire, 0), 1, words, 56), 0); /* begins a pass */
        for (uint32_t i = 0; i < 64; i++)
            words[i] = (kind * 2654435761u + i * 40503u) >> (kind % 24);
        words[0] = 2;
        words[1] %= 3;
        words[4] = kind % 3;
        net_threads.send(net_at(wire, 0), 1, words, kind == 7 ? 3 : 56 + kind * 5);
        struct ntx__message_head h;
        memcpy(&h, words, sizeof h);
        if (kind != 7 && !ntx__has_answer(&h)) { /* then the next answer reports it */
            h.then = UINT8_MAX;
            net_threads.send(net_at(wire, 0), 1, &h, sizeof h);
        }
        if (kind == 7) {
            pthread_join(m.at[1].thread, NULL);
            CHECK_EQ(m.at[1].rc, -EBADMSG);
            pthread_create(&m.at[1].thread, NULL, follow, &m.at[1]);
        } else {
            struct {
                int32_t rc;
                uint32_t zero;
                uint64_t seen[5];
                char text[NTX__ANSWER_TEXT];
            } a;
            CHECK_EQ(net_threads.take(net_at(wire, 0), 1, &a, sizeof a), 0);
            CHECK_EQ(net_threads.wait(net_at(wire, 0), 20000), 0);
            CHECK_EQ(a.rc, -EBADMSG);
            CHECK_MSG(strstr(a.text, "are all machines of the same build") != NULL, "'%s'", a.text);
        }
        machines_close(&m, 0);
    }
}

/* Texts with K and V by heads on other machines: one is fed, forked, truncated, goes on with an accepted draft path,
 * and its windows wrap around. */
#define LONG 150
static float *live(struct rig *r)
{
    int32_t ids[LONG];
    float *all = calloc(6 * (size_t)r->n_vocab, sizeof *all), *to = all;
    struct ntx_kv_seq *text, *fork;
    struct ntx_kv_snapshot *mark = NULL;
    CHECK_EQ(ntx_kv_seq_promise(r->pool, LONG, NULL, 0, &text), 0);
    rig_ids(r, 6, ids, LONG);
    rig_feed(r, text, ids, 41, 0, 41, NULL);
    CHECK_EQ(ntx_kv_seq_fork(text, 40, LONG, &fork), 0); /* its last block is a copy */
    struct ntx_row both[] = {{.token = 5, .pos = 41, .kv = text, .logits = to},
                             {.token = 7, .pos = 40, .kv = fork, .logits = to + r->n_vocab}};
    CHECK_EQ(rig_run(r, both, 2), 0);
    to += 2 * r->n_vocab;
    /* a tree of three branches, the last of which is accepted */
    uint32_t paths[3][2] = {{41, 42}, {41, 43}, {41, 44}};
    struct ntx_row tree[4] = {{.token = 9, .pos = 41, .kv = fork, .n_path = 1, .path = paths[0]}};
    CHECK_EQ(rig_run(r, &(struct ntx_row){.token = 8, .pos = 40, .kv = fork}, 1), 0);
    for (uint32_t i = 0; i < 3; i++)
        tree[1 + i] = (struct ntx_row){
            .token = (int32_t)(11 + i), .pos = 42, .kv = fork, .n_path = 2, .path = paths[i], .logits = to};
    CHECK_EQ(rig_run(r, tree, 4), 0);
    CHECK_EQ(ntx_forward_commit(r->f, fork, 41, paths[2], 2), 0);
    CHECK_EQ(rig_run(r, &(struct ntx_row){.token = 14, .pos = 43, .kv = fork, .logits = to + r->n_vocab}, 1), 0);
    to += 2 * r->n_vocab;
    /* shared blocks become copies; windows are put into a snapshot and restored */
    CHECK_EQ(ntx_kv_return(text, 33), 33);
    ntx_kv_seq_free(fork);
    CHECK_EQ(ntx_kv_seq_fork(text, 33, LONG, &fork), 0);
    if (ntx_kv_pool_snapshots(r->pool))
        CHECK_EQ(ntx_kv_snapshot_new(text, 33, &mark), 0);
    CHECK_EQ(ntx_kv_own(text, 20), 0);
    CHECK_EQ(ntx_kv_return(text, 20), 20);
    rig_feed(r, text, ids + 20, LONG - 20, 20, 30, NULL);
    ntx_kv_seq_free(text);
    if (mark) {
        uint32_t n;
        const uint32_t *blocks = ntx_kv_seq_blocks(fork, &n);
        CHECK_EQ(ntx_kv_seq_promise(r->pool, LONG, blocks, 1, &text), 0);
        ntx_kv_seq_reach(text, 33);
        ntx_kv_seq_free(text);
        CHECK_EQ(ntx_kv_seq_promise(r->pool, LONG, blocks, 1, &text), 0);
        CHECK_EQ(ntx_kv_seq_copy(text, blocks[1]), 0);
        ntx_kv_snapshot_put(mark, text);
        CHECK_EQ(rig_run(r, &(struct ntx_row){.token = 3, .pos = 33, .kv = text, .logits = to}, 1), 0);
        ntx_kv_seq_free(text);
        ntx_kv_snapshot_free(mark);
    }
    for (uint32_t i = 33; i < LONG; i += 39)
        rig_feed(r, fork, ids + i, 39, i, 13, NULL);
    CHECK_EQ(rig_run(r, &(struct ntx_row){.token = 4, .pos = LONG - 1, .kv = fork, .logits = to + r->n_vocab}, 1), 0);
    ntx_kv_seq_free(fork);
    return all;
}

static void lives_of_texts(void)
{
    static const struct {
        const char *arch;
        enum ntx_kv_type type;
        bool windows;
    } is[] = {{"llama", NTX_KV_F16, false},
              {"llama", NTX_KV_Q8_0, false},
              {"qwen3", NTX_KV_Q4_0, false},
              {"gpt-oss", NTX_KV_F16, true},
              {"gemma3", NTX_KV_Q8_0, true}};
    static const struct ntx_share by_heads = {.n = 2, .part = {1, 1}, .split = NTX_SPLIT_HEADS};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options o = {
            .make = rig_model(), .kv_type = is[i].type, .windows = is[i].windows, .ctx = LONG + 10, .max_rows = 64};
        struct machines m;
        struct rig alone;
        o.make.arch = is[i].arch;
        o.make.type = "Q8_0";
        o.make.window = 20;
        if (!strcmp(is[i].arch, "gpt-oss"))
            o.make.experts = 4, o.make.experts_used = 2;
        rig_open(&alone, &o);
        machines_open(&m, &o, &by_heads);
        CHECK(m.at[1].rig.model->hp.kv_share != NULL);
        float *want = live(&alone), *got = live(&m.at[0].rig);
        for (size_t k = 0; k < 6; k++)
            CHECK_MSG(!memcmp(want + k * alone.n_vocab, got + k * alone.n_vocab, alone.n_vocab * sizeof *got),
                      "%s, kind %zu: step %zu", is[i].arch, i, k);
        machines_close(&m, 0);
        rig_close(&alone);
        free(want), free(got);
    }
}

/* For K and V, too: a pass without a place, and attention without one. */
static void strange_heads(void)
{
    static const struct ntx_share by_heads = {.n = 2, .part = {1, 1}, .split = NTX_SPLIT_HEADS};
    for (uint32_t kind = 0; kind < 24; kind++) {
        struct machines m;
        struct rig_options o = {.make = rig_model()};
        struct {
            struct ntx__message_head h;
            uint32_t words[64];
        } said = {{0}, {0}};
        o.make.layers = 2;
        machines_open(&m, &o, &by_heads);
        m.at[1].rig.w.forgive = true;
        said.h = (struct ntx__message_head){.type = NTX__MSG_BEGIN, .n = kind % 3, .n_rows = 1 + kind % 2};
        for (uint32_t i = 0; i < 64; i++)
            said.words[i] = kind < 12 ? (kind * 2654435761u + i * 40503u) >> (kind % 24) : 0;
        if (kind >= 12) { /* a valid one: position 0 of a text that has the first block */
            said.h.n = 0;
            said.h.n_rows = 1;
            said.words[3] = 1;
        }
        net_threads.send(net_at(m.wire, 0), 1, &said, sizeof said.h + (kind < 12 ? 4 * (3 + kind * 3) : 4 * 6));
        said.h = (struct ntx__message_head){.type = NTX__MSG_ATTEND,
                                            .layer = kind % 5 == 4 ? 99 : 0,
                                            .n_rows = 1 + (kind % 4 == 3 ? 100000 : 0),
                                            .n = kind % 3 == 2 ? UINT32_MAX : kind % 3};
        said.words[0] = kind;
        net_threads.send(net_at(m.wire, 0), 1, &said, sizeof said.h + 4 * (kind * 2));
        struct {
            struct ntx__answer a;
            char text[NTX__ANSWER_TEXT];
        } got;
        CHECK_EQ(net_threads.take(net_at(m.wire, 0), 1, &got, sizeof got), 0);
        CHECK_EQ(net_threads.wait(net_at(m.wire, 0), 20000), 0);
        CHECK_EQ(got.a.rc, -EBADMSG);
        CHECK_MSG(strstr(got.text, "keys and values that have no place") != NULL, "'%s'", got.text);
        machines_close(&m, 0);
    }
}

int main(void)
{
    of_all_kinds();
    of_all_architectures();
    with_skips(&shares[0]);
    with_skips(&shares[4]);
    with_skips(whole_layers - 1);
    lives_of_texts();
    prefetched();
    one_fails(&shares[1]);
    one_fails(whole_layers);
    one_is_gone();
    first_is_silent();
    strange_messages();
    strange_heads();
    return 0;
}
