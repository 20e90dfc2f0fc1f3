/* SPDX-License-Identifier: Apache-2.0 */
/* Bits that must not depend on circumstances: threads, kernels, chunk sizes, a short ring, how rows are batched, who
 * else is in the batch, or what a KV block held before. */
#include <errno.h>
#include <math.h>

#include "tests/lib/emulated.h"
#include "tests/unit/pass/rig.h"

#define N   41
#define FEW 20 /* of them for the generic kernel, which is slow: a row's values do not depend on those behind it */

static const char *const types[] = {"F32",    "F16",     "BF16",  "Q4_0",  "Q5_1",  "Q8_0",
                                    "Q4_K_M", "Q5_K_M",  "Q6_K",  "MXFP4", "Q2_K",  "IQ4_NL",
                                    "IQ4_XS", "IQ3_XXS", "IQ2_S", "IQ1_M", "TQ1_0", "NVFP4_ALL"};
#ifdef NTX_SANITIZED
#define TYPES_STEP                                                                                                     \
    3 /* cpu_matmul and cpu_columns give each type's kernels to the sanitizers; what is around them is the same for    \
         all */
#else
#define TYPES_STEP 1
#endif

/* Rows without a wanted output leave K, V and states in the last layer, and do not affect the others: passes with only
 * such rows, beside others, and one by one. */
static void asked_alone(const struct rig_options *of, const float *want)
{
    static const struct {
        uint32_t step, every;
    } ways[] = {{N, N}, {7, N}, {16, 3}, {5, 2}, {1, 4}};
    struct rig r;
    static unsigned turn;
    const unsigned every = thinned_step(2, sizeof ways / sizeof *ways);
    rig_open(&r, of);
    for (size_t i = turn++ % every; i < sizeof ways / sizeof *ways; i += every)
        rig_check_asked(&r, N, ways[i].step, ways[i].every, false, want, of->make.type);
    rig_close(&r);
}

static void same_by_circumstance(const struct rig_options *of)
{
    const struct mk_options *make = &of->make;
    struct rig_options base = *of;
    base.threads = 1;
    size_t n;
    float *want = rig_logits(&base, N, N, &n);
    const struct {
        uint32_t threads, step, window;
        uint64_t chunk_bytes;
        const char *kernel;
        uint32_t stay_every;
    } ways[] = {
        {1, FEW, 0, 0, "generic", 0},    {1, 1, 0, 64 << 10, NULL, 0},     {2, N, 0, 64 << 10, NULL, 0},
        {3, N, 3, 4096, NULL, 0},        {3, 1, 1, 4096, NULL, 0},         {2, 7, 2, 20000, NULL, 0},
        {5, 16, 3, 1000, NULL, 0},       {2, 4, 0, 4 << 20, "generic", 0}, {2, 5, 0, 1 << 20, "avx2", 0},
        {2, 33, 4, 9000, "avx512", 0},   {2, 1, 0, 20000, NULL, 1},        {3, 7, 0, 64 << 10, NULL, 2},
        {1, N, 0, 4 << 20, "avx512", 1}, {2, 6, 0, 4 << 20, "generic", 1},
    };
    static unsigned turn;
    const unsigned every = thinned_step(2, 4);
    for (size_t i = turn++ % every; i < sizeof ways / sizeof *ways; i += every) {
        struct rig_options o = base;
        o.kernel = rig_kernel(ways[i].kernel);
        if (!ntx_cpu_pick(o.kernel))
            continue;
        o.threads = ways[i].threads;
        o.window = ways[i].window;
        o.chunk_bytes = ways[i].chunk_bytes;
        o.stay_every = ways[i].stay_every;
        float *got = rig_logits(&o, o.kernel && !strcmp(o.kernel, "generic") ? FEW : N, ways[i].step, &n);
        CHECK_MSG(!memcmp(got, want, n * sizeof *got), "type %s, way %zu", make->type, i);
        free(got);
    }
    asked_alone(&base, want);
    free(want);
}

/* Resident chunks are re-arranged as far as a pass gets: a failed one leaves none half done. */
static void same_after_failures(const char *arch, const char *type)
{
    struct rig r;
    struct rig_options o = {.make = rig_model(), .threads = 3, .chunk_bytes = 30000, .stay_every = 1};
    int32_t ids[N];
    size_t n;
    o.make.layers = 2;
    o.make.arch = arch;
    o.make.attention_every = 2;
    o.make.type = type;
    float *want = rig_logits(&o, N, N, &n), *got = malloc(n * sizeof *got);
    rig_open(&r, &o);
    rig_ids(&r, 5, ids, N); /* as rig_logits */
    for (uint32_t c = 0; c < r.chunks->n; c += 3 * emulated_step(5)) {
        struct ntx_kv_seq *kv = rig_seq(&r, N);
        struct ntx_row row = {.token = ids[0], .kv = kv, .logits = got};
        r.w.fail_chunk = c;
        CHECK_EQ(rig_run(&r, &row, 1), -EIO);
        r.w.fail_chunk = UINT32_MAX;
        rig_feed(&r, kv, ids, N, 0, 5, got);
        CHECK_MSG(!memcmp(got, want, n * sizeof *got), "type %s, after a failure at chunk %u", type, c);
        ntx_kv_seq_free(kv);
    }
    rig_close(&r);
    free(want), free(got);
}

/* Three sessions of different lengths, prefill beside decode in the same passes, against each session alone. */
static void same_in_company(const struct rig_options *of)
{
    enum { SESSIONS = 3, LENGTH = 24 };
    static const uint32_t prompt[SESSIONS] = {9, 1, 17};
    static unsigned turn;
    if (turn++ % emulated_step(3))
        return;
    struct rig r;
    struct rig_options o = *of;
    o.threads = 2;
    o.max_rows = 32;
    struct ntx_kv_seq *kv[SESSIONS];
    int32_t ids[SESSIONS][LENGTH];
    rig_open(&r, &o);
    size_t row = r.n_vocab;
    float *alone = malloc(SESSIONS * LENGTH * row * sizeof *alone),
          *together = malloc(SESSIONS * LENGTH * row * sizeof *together);
    for (uint32_t s = 0; s < SESSIONS; s++) {
        struct ntx_kv_seq *k = rig_seq(&r, LENGTH);
        rig_ids(&r, s, ids[s], LENGTH);
        rig_feed(&r, k, ids[s], LENGTH, 0, LENGTH, alone + s * LENGTH * row);
        ntx_kv_seq_free(k);
    }
    for (uint32_t s = 0; s < SESSIONS; s++) /* blocks that others have used */
        kv[s] = rig_seq(&r, LENGTH);
    for (uint32_t pos[SESSIONS] = {0}, n = 1; n;) {
        struct ntx_row rows[32];
        n = 0;
        for (uint32_t s = 0; s < SESSIONS; s++) {
            uint32_t take = !pos[s] ? prompt[s] : pos[s] < LENGTH;
            for (uint32_t i = 0; i < take; i++, pos[s]++)
                rows[n++] = (struct ntx_row){.token = ids[s][pos[s]],
                                             .pos = pos[s],
                                             .kv = kv[s],
                                             .logits = together + (s * LENGTH + pos[s]) * row};
        }
        if (n)
            CHECK_EQ(rig_run(&r, rows, n), 0);
    }
    CHECK_SAME(alone, together, SESSIONS * LENGTH * row);
    for (uint32_t s = 0; s < SESSIONS; s++)
        ntx_kv_seq_free(kv[s]);
    rig_close(&r);
    free(alone), free(together);
}

/* Chunks that only rows with logits use. */
static uint32_t end_of_last(const struct rig *r)
{
    const struct ntx_layer_weights *w = &r->chunks->layers[r->n_layers - 1];
    const struct ntx_layer *l = &r->model->layers[r->n_layers - 1];
    uint32_t n = 0;
    for (const struct ntx_step *s = l->step; s < l->step + l->n_steps; s++)
        for (uint8_t i = 0; i < s->n_weights && s->op != NTX_OP_NORM; i++)
            n += s->feeds ? 0 : w->of[s->weight[i]].n_chunks + w->of[s->weight[i]].scaled;
    return n + w->ffn_norm.n_chunks; /* q's norm is taken with k's */
}

/* Logits only where wanted: the other rows' values stay the same, and a pass without any does not touch the output
 * matrix. */
static void wanted_only(const struct mk_options *make)
{
    struct rig r;
    const struct rig_options o = {.make = *make};
    int32_t ids[N];
    rig_open(&r, &o);
    rig_ids(&r, 5, ids, N);
    struct ntx_kv_seq *a = rig_seq(&r, N), *b = rig_seq(&r, N);
    float *all = malloc((size_t)N * r.n_vocab * sizeof *all), *last = malloc(r.n_vocab * sizeof *last);
    struct ntx_row rows[N];
    rig_feed(&r, a, ids, N, 0, N, all);
    CHECK_EQ(r.w.n_acquired, r.chunks->n);
    CHECK_EQ(r.w.n_drops, 0);
    rig_feed(&r, b, ids, N - 3, 0, N, NULL);
    CHECK_EQ(r.w.n_drops, 2);
    CHECK(r.w.drops[0] == r.n_layers && r.w.drops[1] == NTX_END_OF_LAST(r.n_layers));
    CHECK(!r.w.drop_at[0] && !r.w.drop_at[1]);
    CHECK_EQ(r.w.n_skipped, r.chunks->output.n_chunks + 1 + end_of_last(&r));
    CHECK_EQ(r.w.n_acquired + r.w.n_skipped, r.chunks->n);
    for (uint32_t i = 0; i < 3; i++)
        rows[i] = (struct ntx_row){.token = ids[N - 3 + i], .pos = N - 3 + i, .kv = b, .logits = i == 1 ? last : NULL};
    CHECK_EQ(rig_run(&r, rows, 3), 0);
    CHECK_SAME(last, all + (size_t)(N - 2) * r.n_vocab, r.n_vocab);
    ntx_kv_seq_free(a);
    ntx_kv_seq_free(b);
    rig_close(&r);
    free(all), free(last);
}

static void same_with_experts(void)
{
    static const struct {
        const char *arch, *type;
        uint32_t n, used;
    } is[] = {
        {"llama", "F32", 8, 2},       {"qwen2moe", "Q4_K_M", 6, 3}, {"qwen3moe", "Q8_0", 20, 20},
        {"qwen3moe", "F16", 9, 1},    {"gpt-oss", "Q8_0", 6, 3},    {"gpt-oss", "F32", 4, 4},
        {"glm4moe", "Q4_K_M", 9, 3},  {"minimax-m2", "Q8_0", 9, 3}, {"olmoe", "F16", 8, 4},
        {"granitemoe", "Q8_0", 8, 4}, {"step35", "Q4_K_M", 6, 3},   {"laguna", "Q8_0", 6, 3},
        {"mimo2", "F32", 6, 3},       {"minimax-m3", "Q8_0", 6, 3}, {"deci", "Q8_0", 0, 0},
        {"dbrx", "Q8_0", 6, 3},       {"grovemoe", "Q8_0", 6, 3},   {"grovemoe", "F32", 9, 4},
        {"grok", "Q4_K_M", 6, 2},
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct mk_options make = rig_model();
        make.layers = 2;
        make.arch = is[i].arch;
        make.type = is[i].type;
        make.experts = is[i].n;
        make.experts_used = is[i].used;
        make.ff = 256;
        make.window = 5;
        make.dense = make.nextn = make.biases = make.qk_norms = !strcmp(make.arch, "glm4moe");
        make.rotated = 16;
        make.scales = i % 2;
        if (i >= 10) {
            const bool deci = !strcmp(make.arch, "deci");
            make.layers = deci ? 6 : 4; /* of each kind: with and without a window, or limited activations */
            make.window_heads = 6;
            make.rotated = deci ? 0 : 16;
            make.dense = make.qk_norms = make.biases = !deci;
        }
        make.full_kv = !strcmp(make.arch, "mimo2");
        if (make.full_kv)
            make.value_dim = 16;
        same_by_circumstance(&(struct rig_options){.make = make});
        same_in_company(&(struct rig_options){.make = make});
    }
}

/* MLA, with matrices of heads in two tensors and in one, and experts in groups. */
static void same_with_mla(void)
{
    static const struct {
        const char *type;
        uint32_t q_lora;
        bool joined;
    } is[] = {{"F32", 96, false}, {"Q4_K_M", 256, false}, {"Q8_0", 0, true}, {"F16", 64, true}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct mk_options make = rig_mla();
        make.type = is[i].type;
        make.q_lora = is[i].q_lora;
        make.kv_joined = is[i].joined;
        make.sigmoid = make.biases = !i;
        same_by_circumstance(&(struct rig_options){.make = make});
        same_in_company(&(struct rig_options){.make = make});
    }
}

/* Indexer top-k: in each layer, or in some for those after them. */
static void same_with_choices(void)
{
    static const struct {
        const char *arch, *type;
        uint32_t most, every;
    } is[] = {{"deepseek32", "F32", 5, 0},
              {"deepseek32", "Q4_K_M", 17, 0},
              {"glm-dsa", "Q8_0", 1, 2},
              {"glm-dsa", "F32", 11, 3},
              {"hy_v4", "Q4_K_M", 7, 2}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct mk_options make = rig_choosing();
        make.arch = is[i].arch;
        make.type = is[i].type;
        make.index_most = is[i].most;
        make.index_every = is[i].every;
        same_by_circumstance(&(struct rig_options){.make = make});
        same_in_company(&(struct rig_options){.make = make});
    }
}

/* Blocks that each head of K and V chooses: the same in all circumstances. While there are no more blocks than it may
 * choose, the bits are those of a model that reads everything. */
static void same_with_topk_blocks(void)
{
    static const struct {
        const char *type;
        uint32_t block, most, kv;
    } is[] = {{"F32", 4, 3, 2}, {"Q8_0", 3, 1, 4}, {"Q4_K_M", 7, 2, 1}, {"F16", 2, 6, 2}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options o = {.make = rig_model()};
        size_t n;
        o.make.arch = "minimax-m3";
        o.make.type = is[i].type;
        o.make.layers = 3;
        o.make.dense = 1;
        o.make.experts = 6;
        o.make.experts_used = 3;
        o.make.ff = o.make.shared_ff = 256;
        o.make.rotated = 16;
        o.make.kv = is[i].kv;
        o.make.index_pool = is[i].block;
        o.make.index_most = is[i].most;
        same_by_circumstance(&o);
        same_in_company(&o);
        float *some = rig_logits(&o, N, 9, &n);
        o.make.index_most = N;
        float *all = rig_logits(&o, N, 9, &n);
        const size_t each = n / N, reach = (size_t)is[i].block * is[i].most;
        CHECK_SAME(some, all, reach * each);
        for (size_t p = reach; p < N; p++)
            CHECK_MSG(memcmp(some + p * each, all + p * each, each * sizeof *some), "row %zu reads all blocks", p);
        free(some), free(all);
    }
}

/* While a row sees at most the top-k, it attends to all; beyond that not. */
static void choices_begin(void)
{
    struct rig_options o = {.make = rig_choosing()};
    size_t n;
    o.make.index_most = 30;
    float *a = rig_logits(&o, N, 9, &n);
    o.make.index_most = N;
    float *all = rig_logits(&o, N, 9, &n);
    const size_t each = n / N;
    CHECK_SAME(a, all, 30 * each);
    for (size_t p = 30; p < N; p++)
        CHECK_MSG(memcmp(a + p * each, all + p * each, each * sizeof *a), "row %zu attends to all", p);
    free(a), free(all);
}

/* Packed in groups of neurons: the same in all circumstances, for all group sizes and places of the gate. */
static void same_packed(void)
{
    static const char *const of[] = {"F32", "Q8_0", "Q4_K_M", "Q5_1", "MXFP4"};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct rig_options o = {.make = rig_model(), .pack = 8000, .pack_gate = i % 2, .chunk_bytes = 32 << 10};
        size_t n;
        o.make.layers = 2;
        o.make.ff = 768;
        o.make.type = of[i];
        o.make.arch = i == 2 ? "llama-relu" : "llama";
        if (i == 4) { /* 13 rows of 153 bytes, before rows that must be aligned */
            o.pack = 4200;
            o.make.embd = 288;
            o.down_type = NTX_Q8_0;
        }
        same_by_circumstance(&o);
        same_in_company(&o);
        float *a = rig_logits(&o, N, 9, &n);
        o.pack = 150000;
        o.pack_gate = !o.pack_gate;
        float *b = rig_logits(&o, N, 9, &n);
        CHECK_SAME(a, b, n);
        free(a), free(b);
    }
}

/* Norms after attention and FFN, capped scores and logits, two bases of rotation. */
static void same_gemma(void)
{
    static const struct {
        const char *arch, *type;
        uint32_t layers;
    } is[] = {{"gemma2", "Q8_0", 2}, {"gemma3", "Q4_K_M", 6}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct mk_options make = rig_model();
        make.arch = is[i].arch;
        make.type = is[i].type;
        make.layers = is[i].layers;
        make.window = 11;
        make.ff = 256;
        same_by_circumstance(&(struct rig_options){.make = make});
        same_in_company(&(struct rig_options){.make = make});
        same_by_circumstance(&(struct rig_options){.make = make, .pack = 8000});
    }
}

/* Widths of heads and FFNs by layer, K and V of other layers, experts beside a dense FFN, inputs of each layer. */
static void same_gemma4(void)
{
    for (int i = 0; i < 3; i++) {
        struct mk_options make = rig_model();
        make.type = i ? "Q8_0" : "Q4_K_M";
        make.layers = 6;
        make.ff = 256;
        rig_gemma4(&make, (uint32_t)i);
        make.window = 11;
        same_by_circumstance(&(struct rig_options){.make = make});
        same_in_company(&(struct rig_options){.make = make});
    }
}

/* Matrices that are one in the file; experts whose input is weighted, in every second layer. */
static void same_fused_and_weighed(void)
{
    struct mk_options make = rig_model();
    make.layers = 2;
    make.arch = "phi3";
    make.type = "Q4_K_M";
    make.rope_freqs = true;
    make.rope_orig = 64;
    same_by_circumstance(&(struct rig_options){.make = make});
    same_in_company(&(struct rig_options){.make = make});
    make.arch = "llama4";
    make.type = "Q8_0";
    make.rope_freqs = false;
    make.experts = 6;
    make.ff = 256;
    make.layers = 4;
    make.expert_every = 2;
    same_by_circumstance(&(struct rig_options){.make = make});
    same_in_company(&(struct rig_options){.make = make});
    make.chunk = 9; /* rows on both sides of several boundaries */
    same_by_circumstance(&(struct rig_options){.make = make});
}

/* Layers with a window keep a ring of blocks: logits are those of a cache that keeps all, for passes of any size, and
 * after a conversation was truncated. */
static void same_with_windows(const char *arch, enum ntx_kv_type type)
{
    enum { LONG = 500, CUT = 470 };
    struct rig_options o = {.make = rig_model(), .kv_type = type, .max_rows = 40, .ctx = 512};
    struct rig r;
    int32_t ids[LONG];
    size_t n;
    o.make.arch = arch;
    o.make.type = "Q8_0";
    o.make.experts = 4;
    o.make.layers = 3;
    o.make.ff = 128;
    o.make.head_dim = 64;
    o.make.window_head = 32;
    o.make.full_kv = 1;
    o.make.window = 50;
    float *want = rig_logits(&o, LONG, 40, &n), *got;
    o.windows = true;
    for (uint32_t step = 7; step <= 40; step += 33) {
        got = rig_logits(&o, LONG, step, &n);
        CHECK_MSG(!memcmp(got, want, n * sizeof *got), "windows only, passes of %u rows", step);
        free(got);
    }
    rig_open(&r, &o);
    rig_ids(&r, 5, ids, LONG); /* as rig_logits */
    struct ntx_kv_seq *kv = rig_seq(&r, LONG);
    got = malloc(n * sizeof *got);
    rig_feed(&r, kv, ids, LONG, 0, 40, NULL);
    CHECK_EQ(ntx_kv_return(kv, CUT), CUT); /* the window before it is still there */
    rig_feed(&r, kv, ids + CUT, LONG - CUT, CUT, 11, got);
    CHECK_SAME(got, want + (size_t)CUT * r.n_vocab, (size_t)(LONG - CUT) * r.n_vocab);
    CHECK_EQ(ntx_kv_return(kv, 300), 0); /* that one is not */
    CHECK_EQ(ntx_kv_return(kv, 0), 0);
    rig_feed(&r, kv, ids, 60, 0, 20, got);
    CHECK_SAME(got, want, 60 * (size_t)r.n_vocab);
    CHECK_EQ(ntx_kv_return(kv, 30), 30); /* nothing was overwritten yet */
    ntx_kv_seq_free(kv);
    rig_close(&r);
    free(want), free(got);
}

/* A shared prefix: a text from a snapshot has the bits of a separate sequence, whatever the first owner does
 * meanwhile. */
static void same_from_snapshots(bool windows, struct mk_options (*mla)(void))
{
    enum { PREFIX = 75, MORE = 20 };
    struct rig_options o = {.make = rig_model(), .max_rows = 40, .ctx = 512, .windows = windows, .kv_tokens = 1024};
    struct rig r;
    struct ntx_kv_seq *kv, *snapshot, *one, *other;
    int32_t ids[PREFIX + MORE];
    size_t n;
    if (mla)
        o.make = mla();
    else
        o.make.arch = windows ? "gpt-oss" : "llama";
    o.make.type = "Q8_0";
    o.make.experts = mla ? 8 : 0;
    if (windows)
        o.make.experts = 4;
    o.make.layers = 3;
    o.make.ff = 128;
    o.make.head_dim = 64;
    o.make.window = 50;
    float *want = rig_logits(&o, PREFIX + MORE, 40, &n), *got = malloc(n * sizeof *got);
    rig_open(&r, &o);
    rig_ids(&r, 5, ids, PREFIX + MORE); /* as rig_logits */
    size_t tail = (size_t)MORE * r.n_vocab, at = (size_t)PREFIX * r.n_vocab;
    kv = rig_seq(&r, PREFIX + MORE);
    rig_feed(&r, kv, ids, PREFIX, 0, 40, NULL);
    uint32_t used = ntx_kv_pool_used(r.pool);
    CHECK_EQ(ntx_kv_seq_fork(kv, PREFIX, PREFIX, &snapshot), 0);
    CHECK_EQ(ntx_kv_pool_used(r.pool), used + 1); /* two of its three blocks are shared */
    CHECK(ntx_kv_shared(kv, 63) && !ntx_kv_shared(kv, 64) && ntx_kv_shared(snapshot, 0) &&
          !ntx_kv_shared(snapshot, 64));
    rig_feed(&r, kv, ids, MORE, PREFIX, 7, NULL); /* its owner goes on otherwise */
    CHECK_EQ(ntx_kv_seq_fork(snapshot, PREFIX, PREFIX + MORE, &one), 0);
    CHECK_EQ(ntx_kv_seq_fork(snapshot, PREFIX, PREFIX + MORE, &other), 0);
    rig_feed(&r, other, ids, MORE, PREFIX, 20, NULL);
    rig_feed(&r, one, ids + PREFIX, MORE, PREFIX, 20, got);
    CHECK_SAME(got, want + at, tail);
    struct ntx_row row = {.token = 3, .pos = 40, .kv = kv};
    CHECK_EQ(rig_run(&r, &row, 1), -EINVAL); /* shared blocks are not written */
    CHECK_EQ(ntx_kv_own(kv, 40), 0);
    CHECK(ntx_kv_shared(kv, 31) && !ntx_kv_shared(kv, 32));
    CHECK_EQ(ntx_kv_return(kv, 40), 40);
    rig_feed(&r, kv, ids, 30, 40, 10, NULL); /* in copies */
    ntx_kv_seq_free(one), ntx_kv_seq_free(kv);
    CHECK_EQ(ntx_kv_seq_fork(snapshot, PREFIX, PREFIX + MORE, &one), 0);
    rig_feed(&r, one, ids + PREFIX, MORE, PREFIX, 1, got);
    CHECK_SAME(got, want + at, tail);
    CHECK_EQ(ntx_kv_seq_fork(one, 96 + 1, 97, &kv), -ENODATA);
    ntx_kv_seq_free(one), ntx_kv_seq_free(other), ntx_kv_seq_free(snapshot);
    CHECK_EQ(ntx_kv_pool_used(r.pool), 0);
    rig_close(&r);
    free(want), free(got);
}

/* A prompt in two passes, split at each place. */
static void each_split(struct rig *r, const int32_t *ids, const float *want, float *got)
{
    for (uint32_t cut = 1; cut < N; cut += thinned_step(1, 5)) {
        struct ntx_kv_seq *kv = rig_seq(r, N);
        rig_feed(r, kv, ids, cut, 0, cut, got);
        rig_feed(r, kv, ids + cut, N - cut, cut, N - cut, got + (size_t)cut * r->n_vocab);
        CHECK_SAME(got, want, (size_t)N * r->n_vocab);
        ntx_kv_seq_free(kv);
    }
}

/* Recurrent states in all circumstances, in company, from an earlier state, and copies of them. */
static void states_stand(struct rig_options o)
{
    struct ntx_kv_seq *kv, *copy;
    struct rig r;
    int32_t ids[N];
    size_t n;
    same_by_circumstance(&o);
    same_in_company(&o);
    float *want = rig_logits(&o, N, N, &n), *got = malloc(n * sizeof *got);
    rig_open(&r, &o);
    rig_ids(&r, 5, ids, N); /* as rig_logits */
    kv = rig_seq(&r, N);
    rig_feed(&r, kv, ids, 17, 0, 9, NULL);
    CHECK_EQ(ntx_kv_seq_fork(kv, 16, N, &copy), -ENODATA);
    CHECK_EQ(ntx_kv_seq_fork(kv, 17, N, &copy), 0);
    rig_feed(&r, kv, ids, 5, 17, 5, NULL); /* goes on otherwise, and goes back */
    CHECK_EQ(ntx_kv_return(kv, 17), 17);
    rig_feed(&r, kv, ids + 17, N - 17, 17, 7, got);
    CHECK_SAME(got, want + 17 * (size_t)r.n_vocab, (N - 17) * (size_t)r.n_vocab);
    rig_feed(&r, copy, ids + 17, N - 17, 17, 1, got);
    CHECK_SAME(got, want + 17 * (size_t)r.n_vocab, (N - 17) * (size_t)r.n_vocab);
    struct ntx_row row = {.token = 3, .pos = 20, .kv = kv};
    CHECK_EQ(rig_run(&r, &row, 1), -EINVAL); /* the state is at another token */
    CHECK_EQ(ntx_kv_return(kv, 20), 0);
    rig_feed(&r, kv, ids, N, 0, 11, got);
    CHECK_SAME(got, want, n);
    ntx_kv_seq_free(kv), ntx_kv_seq_free(copy);
    each_split(&r, ids, want, got);
    rig_close(&r);
    free(want), free(got);
}

static void same_with_states(const char *arch, bool joined)
{
    struct rig_options o = {.make = rig_model()};
    o.make.arch = arch;
    o.make.layers = 4;
    o.make.ff = 96;
    o.make.experts = strcmp(arch, "qwen35") ? 6 : 0;
    o.make.head_dim = 32;
    o.make.rotated = 16;
    o.make.attention_every = 3;
    o.make.delta_head = strcmp(arch, "qwen3next") ? 64 : 48; /* panels of 32, and of 16 */
    o.make.delta_heads = 6;
    o.make.delta_keys = 3;
    o.make.delta_joined = joined;
    o.make.fused = joined;
    states_stand(o);
}

/* Mamba-2 scans and short convolutions, alone, beside attention, and where a layer is only one thing. */
static void same_with_scans(void)
{
    static const struct {
        const char *arch, *type;
        uint32_t experts, head, latent;
    } of[] = {
        {"granitehybrid", "F32", 0, 48, 0}, {"granitehybrid", "Q8_0", 6, 64, 0},  {"falcon-h1", "Q8_0", 0, 32, 0},
        {"nemotron_h", "Q8_0", 0, 32, 0},   {"nemotron_h_moe", "F32", 6, 32, 64}, {"nemotron_h_moe", "Q8_0", 6, 32, 0},
        {"jamba", "F32", 0, 0, 0},          {"jamba", "Q8_0", 6, 0, 0},           {"lfm2", "F32", 0, 0, 0},
        {"lfm2moe", "Q8_0", 6, 0, 0}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct rig_options o = {.make = rig_model()};
        o.make.arch = of[i].arch;
        o.make.type = of[i].type;
        o.make.layers = 4;
        o.make.ff = 96;
        o.make.experts = of[i].experts;
        o.make.latent = of[i].latent;
        o.make.expert_ff = strcmp(of[i].arch, "granitehybrid") && strcmp(of[i].arch, "jamba")
                               ? 64
                               : 0; /* there experts are as wide as the FFN */
        o.make.attention_every = 2;
        o.make.delta_head = of[i].head;
        o.make.delta_heads = 6;
        o.make.delta_keys = 3;
        o.make.delta_taps = 3;
        states_stand(o);
    }
}

/* Delta nets with a decay for each key, in panels of 16 and of 32, beside MLA. */
static void same_with_kda(void)
{
    static const char *const of[] = {"F32", "Q8_0", "Q4_K_M"};
    struct rig_options o = {.make = rig_kda()};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        o.make.type = of[i];
        static const uint32_t heads[] = {48, 64, 256};
        o.make.delta_head = heads[NTX_MIN(i, (size_t)2)];
        states_stand(o);
        struct mk_options more =
            rig_streamed(); /* and a top-k of groups of three positions, whose keys passes split anywhere */
        more.type = of[i];
        states_stand((struct rig_options){.make = more});
        struct mk_options recalls = o.make; /* and a stream that begins anew, while earlier ones are mixed with it */
        recalls.arch = "kimi-k3";
        recalls.layers = 5;
        recalls.latent = i == 2 ? 256 : 96;
        recalls.q_lora = i ? 256 : 0;
        states_stand((struct rig_options){.make = recalls});
    }
}

/* Hyper-connections mixed value by value, a top-k of blocks, keys beside V, and n-gram entries. */
static void same_with_blocks(void)
{
    struct rig_options o = {.make = rig_blocks()};
    states_stand(o);
    o.make.type = "Q4_K_M";
    o.make.delta_head = 128;
    o.make.gram_layer = 1;
    states_stand(o);
    o.make.layers = o.make.gram_layer = 3; /* the last */
    states_stand(o);
}

/* Pooled K: a session's windows, blocks and state are all that its continuation needs, with passes split anywhere. */
static void same_with_pools(void)
{
    enum { LONG = 300, CUT = 270, MARK = 199 };
    static const char *const of[] = {"F32", "Q8_0", "Q4_K_M"};
    struct rig_options o = {.make = rig_pooled(), .max_rows = 40, .ctx = 512};
    struct ntx_kv_seq *kv;
    struct ntx_kv_snapshot *mark;
    struct rig r;
    int32_t ids[LONG];
    size_t n;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        o.make.type = of[i];
        states_stand((struct rig_options){.make = o.make});
    }
    o.make.type = "Q8_0";
    float *want = rig_logits(&o, LONG, 40, &n), *got;
    o.windows = true;
    for (uint32_t step = 3; step <= 40; step += 37) {
        got = rig_logits(&o, LONG, step, &n);
        CHECK_MSG(!memcmp(got, want, n * sizeof *got), "passes of %u rows", step);
        free(got);
    }
    got = malloc(n * sizeof *got);
    rig_open(&r, &o);
    rig_check_asked(&r, LONG, 40, 7, false, want, "deepseek4"); /* the last layer pools 128 positions */
    rig_ids(&r, 5, ids, LONG);                                  /* as rig_logits */
    kv = rig_seq(&r, LONG);
    rig_feed(&r, kv, ids, 180, 0, 40, NULL);
    ntx_kv_snapshot_ahead(kv, MARK); /* within the next pass */
    rig_feed(&r, kv, ids + 180, 40, 180, 40, NULL);
    CHECK_EQ(ntx_kv_snapshot_new(kv, MARK, &mark), 0);
    rig_feed(&r, kv, ids, CUT - 220, 220, 40, NULL); /* says something else */
    ntx_kv_snapshot_put(mark, kv);
    rig_feed(&r, kv, ids + MARK, LONG - MARK, MARK, 13, got);
    CHECK_SAME(got, want + MARK * (size_t)r.n_vocab, (LONG - MARK) * (size_t)r.n_vocab);
    ntx_kv_snapshot_free(mark);
    ntx_kv_seq_free(kv);
    rig_close(&r);
    free(want), free(got);
}

/* Layers that share one layer's matrices, and add to them. */
static void same_with_deltas(const char *type)
{
    struct rig_options o = {.make = rig_model()};
    o.make.type = type;
    o.make.layers = 3;
    o.make.shared = true;
    same_by_circumstance(&o);
    o.make.lora_rank = 32;
    same_by_circumstance(&o);
    same_in_company(&o);
}

static void of_deltas(void)
{
    same_with_deltas("F16");
    same_with_deltas("Q8_0");
}

static void same_of_types(void)
{
    struct mk_options make = rig_model();
    make.layers = 2;
    for (size_t i = 0; i < sizeof types / sizeof *types / TYPES_STEP; i++) {
        make.type = types[i * TYPES_STEP];
        make.scales = !strcmp(make.type, "NVFP4_ALL");
        make.tied = i % 2;
        make.biases = i % 3 == 1;
        same_by_circumstance(&(struct rig_options){.make = make});
    }
    make.biases = false;
    same_in_company(&(struct rig_options){.make = make});
    make.arch = "llama-relu";
    same_by_circumstance(&(struct rig_options){.make = make});
    make.arch = "qwen3";
    make.type = "Q8_0";
    make.head_dim = 64;
    same_by_circumstance(&(struct rig_options){.make = make});
    same_in_company(&(struct rig_options){.make = make});
    wanted_only(&make);
}

static void of_types(void)
{
    same_of_types();
    same_after_failures("llama", "Q4_K_M");
    same_after_failures("llama", "Q8_0");
    same_after_failures("qwen35", "Q8_0");
}

static void of_layers(void)
{
    same_gemma();
    same_gemma4();
    same_fused_and_weighed();
    same_packed();
}

static void of_experts(void)
{
    same_with_experts();
    same_with_mla();
    same_with_choices();
    choices_begin();
    same_with_topk_blocks();
}

static void of_states(void)
{
    same_with_states("qwen35", false);
    same_with_states("qwen3next", true);
    same_with_states("qwen35moe", false);
    same_with_scans();
    same_with_kda();
    same_with_blocks();
}

static void of_caches(void)
{
    same_with_pools();
    same_from_snapshots(false, NULL);
    same_from_snapshots(true, NULL);
    same_from_snapshots(false, rig_mla);
    same_from_snapshots(false, rig_choosing);
    static const struct {
        const char *arch;
        enum ntx_kv_type kv;
    } windows[] = {{"gpt-oss", NTX_KV_F16},
                   {"gpt-oss", NTX_KV_Q8_0},
                   {"gpt-oss", NTX_KV_Q4_0},
                   {"gemma4", NTX_KV_F16},
                   {"gemma4", NTX_KV_Q8_0}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i += emulated_step(4))
        same_with_windows(windows[i].arch, windows[i].kv);
}

/* Of about equal length, so that none runs alone at the end. */
static const struct {
    const char *name;
    void (*run)(void);
} sets[] = {
    {"types", of_types},   {"layers", of_layers}, {"experts", of_experts},
    {"states", of_states}, {"caches", of_caches}, {"deltas", of_deltas},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (argc == 2 && !strcmp(argv[1], sets[i].name)) {
            sets[i].run();
            return 0;
        }
    fputs("test_pass-same types|layers|experts|states|caches|deltas\n", stderr);
    return 1;
}
