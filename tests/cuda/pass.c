/* pass.c: whole passes on a device (argument: the plug-in's path) against the CPU's: chunks on the device, on the host and streamed
 * through a short ring, in every mixture; decoding gives the CPU's bits, prompts its values within F16's rounding. */
#include <errno.h>

#include "tests/cuda/device_rig.h"
#include "tests/forward/trees.h"

static void mixtures(struct world *w, const struct mk_options *make, enum ntx_kv_type kv_type, const struct way *ways, size_t n_ways, double prompts_off)
{
    const struct rig_options o = {.make = *make, .chunk_bytes = 20000, .kv_type = kv_type, .max_rows = N}; /* experts come in several groups */
    size_t n;
    float *want = same_every_way(w, &o, ways, n_ways, make->arch, make->type);
    w->mix = "dhs";
    w->share = UINT32_MAX;
    float *got = logits_of(w, o, N, 7, true, &n), *again = logits_of(w, o, N, 4, true, &n);
    double off = worst(got, want, n);
    CHECK_MSG(off < prompts_off, "%s: prompts are off by %g of the largest logit", make->type, off);
    CHECK_MSG(!memcmp(got, again, n * sizeof *got), "%s: prompts depend on how they are cut into passes", make->type);
    asked_alone(w, o, true, got, "prompts");
    printf("%s %s: bits equal in all mixtures, prompts within %.2g\n", make->arch, make->type, off);
    free(got), free(again), free(want);
}

/* Experts on the device, in place, and copied; a router of random weights may turn either way on a prompt's rounding. */
static void experts(struct world *w)
{
    static const struct way ways[] = {{"hd", 1, 0, 5, 0}, {"dhs", 2, 4, N, 40}};
    static const struct mixture is[] = {
        {"qwen2moe", "Q4_K_M", 6, 3, 256}, {"llama", "F16", 4, 2, 0}, {"qwen3moe", "Q8_0", 5, 5, 0}, {"gpt-oss", "Q8_0", 5, 3, 0},
        {"glm4moe", "Q8_0", 6, 3, 512}, {"glm4moe", "Q4_K_M", 6, 3, 256}, {"minimax-m2", "Q8_0", 6, 2, 0}, {"olmoe", "Q4_K_M", 5, 3, 0}, {"granitemoe", "Q8_0", 5, 3, 256},
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct mk_options make = small_mixture(&is[i], 1, i % 2);
        make.nextn = make.dense;
        mixtures(w, &make, NTX_KV_F16, ways, 2, 1);
    }
}

/* So many rows that experts, and matrices where nothing is widened, take them through the integer matrix units; passes of which are cut at other places, too. Where each has its chunks changes no bit. */
static void crowds(struct world *w)
{
    enum { ROWS = 41 };
    static const struct mixture is[] = {{"qwen2moe", "Q4_K_M", 6, 3, 256}, {"gpt-oss", "Q8_0", 5, 3, 0}};
    static const char *const mix[] = {"d", "dhs"};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options o = {.make = small_mixture(&is[i], 1, false), .chunk_bytes = 20000, .kv_type = NTX_KV_F16, .max_rows = ROWS};
        size_t n;
        float *want = logits_of(NULL, o, ROWS, ROWS, false, &n);
        for (uint32_t k = 0; k < 4; k++) {
            w->mix = mix[k % 2];
            w->in_flight = 2;
            w->share = UINT32_MAX;
            float *got = logits_of(w, o, ROWS, k < 2 ? ROWS : 23, false, &n);
            CHECK_MSG(!memcmp(got, want, n * sizeof *got), "%s, %u rows, mixture %s: not the CPU's bits (off by %g)", is[i].arch, ROWS, w->mix, worst(got, want, n));
            free(got);
        }
        free(want);
    }
    puts("many rows of experts: bits equal");
}

/* ---- layers whose steps no kernel does in one go: norms behind attention and FFN, capped scores and logits, two tables of angles, widths, K and V by layer, experts
 * beside a dense FFN, inputs of each layer; matrices that are one in the file; experts whose input is weighed; attention over latents, its matrices apart and one;
 * recurrent states */

static struct mk_options gemma4(uint32_t i)
{
    struct mk_options make = small_model(i ? "Q8_0" : "Q4_K_M", 6);
    rig_gemma4(&make, i);
    make.window = 3;
    return make;
}

static struct mk_options other(const char *arch, const char *type, uint32_t layers)
{
    struct mk_options make = small_model(type, layers);
    make.arch = arch;
    make.window = 3;
    make.rope_freqs = !strcmp(arch, "phi3");
    make.rope_orig = 64;
    make.experts = strcmp(arch, "llama4") ? 0 : 6;
    make.expert_every = 2;
    return make;
}

static struct mk_options latent(const char *type, bool joined, uint32_t q_lora)
{
    struct mk_options make = rig_latent();
    make.type = type;
    make.heads = 4;
    make.layers = 2;
    make.kv_joined = joined;
    make.q_lora = q_lora;
    return make;
}

/* Delta nets, and attention with a gate in every third layer. */
static struct mk_options recurrent(const char *arch, const char *type)
{
    struct mk_options make = small_model(type, 3);
    make.arch = arch;
    make.ff = 96;
    make.experts = strcmp(arch, "qwen35") ? 6 : 0;
    make.head_dim = 32;
    make.rotated = 16;
    make.attention_every = 3;
    make.delta_head = strcmp(arch, "qwen3next") ? 64 : 48;
    make.delta_heads = 6;
    make.delta_keys = 3;
    return make;
}

static struct mk_options deepseek(void)
{
    struct mk_options make = other("deepseek", "Q8_0", 2);
    make.experts = 6;
    make.experts_used = 3;
    make.shared_ff = 256;
    make.dense = 1;
    return make;
}

/* Windows with more heads than layers without one, gates of heads, bounded activations. */
static struct mk_options step35(void)
{
    struct mk_options make = other("step35", "Q8_0", 4);
    make.experts = 6;
    make.experts_used = 3;
    make.shared_ff = 256;
    make.window_heads = 6;
    make.dense = make.qk_norms = make.biases = 1;
    return make;
}

/* Attention to chosen positions: by each layer, or by every second one for the next, too. */
static struct mk_options choosing(const char *arch, const char *type, uint32_t most, uint32_t every)
{
    struct mk_options make = rig_choosing();
    make.arch = arch;
    make.type = type;
    make.heads = 2;
    make.layers = every ? 4 : 2;
    make.index_most = most;
    make.index_every = every;
    return make;
}

/* Delta nets that forget by the key, and attention over latents that turns nothing. */
static struct mk_options kda(void)
{
    struct mk_options make = rig_kda();
    make.type = "Q8_0";
    make.heads = 2;
    make.layers = 2;
    return make;
}

/* Such, and positions chosen some at a time, in several residual streams. */
static struct mk_options streamed(void)
{
    struct mk_options make = rig_streamed();
    make.type = "Q8_0";
    make.heads = 2;
    make.layers = 2;
    make.index_pool = 2;
    make.index_most = 1;
    make.index_heads = 18;
    return make;
}

/* Blocks of positions chosen by their mean, streams without a matrix, and what follows from the last tokens. */
static struct mk_options blocks(void)
{
    struct mk_options make = rig_blocks();
    make.type = "Q8_0";
    make.heads = 2;
    make.layers = 2;
    make.gram_layer = 1;
    make.index_pool = 2;
    make.index_most = 1;
    return make;
}

static void architectures(struct world *w)
{
    static const struct way ways[] = {{"dhs", 2, 4, 5, 40}, {"d", 1, 0, N, 0}};
    const struct mk_options all[] = {
        other("gemma2", "Q8_0", 2), other("gemma3", "Q4_K_M", 6), gemma4(0), gemma4(1), gemma4(2), other("phi3", "Q4_K_M", 2), other("llama4", "Q8_0", 4),
        latent("Q8_0", false, 0), latent("Q4_K_M", true, 64), latent("F16", false, 64),
        recurrent("qwen3next", "Q8_0"), recurrent("qwen35", "Q8_0"), recurrent("qwen35moe", "Q8_0"), deepseek(), step35(),
        choosing("deepseek32", "Q8_0", 3, 0), choosing("glm-dsa", "Q4_K_M", 4, 2), choosing("hy_v4", "Q8_0", 2, 2), kda(), streamed(), blocks(),
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct rig_options o = {.make = all[i], .chunk_bytes = 20000, .max_rows = N};
        free(same_every_way(w, &o, ways, i % 4 ? 1 : 2, all[i].arch, all[i].type));
        printf("%s %s: bits equal\n", all[i].arch, all[i].type);
    }
    mixtures(w, &all[0], NTX_KV_Q8_0, ways, 1, 0.05);
    mixtures(w, &all[7], NTX_KV_F16, ways, 1, 1);
}

/* ---- packed models: groups on the device, in place, and copied, by layer; which of them rows use, in every mode */

static struct rig_options packed_options(const char *ffn, bool gate_in)
{
    struct rig_options o = {.make = small_model("Q8_0", 3), .chunk_bytes = 50000, .pack = 6000, .pack_gate = gate_in, .ffn = ffn};
    o.make.arch = gate_in ? "llama" : "llama-relu";
    o.make.ff = 250 / 32 * 32 + 30; /* the last group is not full */
    return o;
}

/* Layers that share matrices, and add to them: the shared ones are all on the device; and adapters, of which each row has its own (tests/delta/lora_test.py). */
static void deltas(struct world *w)
{
    static const struct way ways[] = {{"d", 1, 0, 4, 0}, {"hs", 2, 4, N, 64}, {"dsh", 1, 2, 2, UINT32_MAX}};
    static const char *const types[] = {"F16", "Q8_0"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct mk_options make = rig_model();
        make.type = types[i];
        make.layers = 2;
        make.shared = true;
        make.plus = 32;
        mixtures(w, &make, NTX_KV_F16, ways, sizeof ways / sizeof *ways, i ? 0.05 : 0.02);
    }
}

static void packed(struct world *w)
{
    static const struct { const char *ffn; bool gate_in; } is[] = {
        {NULL, false}, {NULL, true}, {"threshold=0.3", false}, {"topk=0.2", false}, {"predicted=0.3", false}, {"predicted=0.3,learned", true}, {"predicted=0.4", true},
    };
    static const struct way ways[] = {{"d", 1, 0, 4, 0}, {"h", 1, 0, 3, 0}, {"hs", 2, 4, N, 64}, {"dsh", 1, 2, 2, UINT32_MAX}, {"sd", 3, 4, 5, UINT32_MAX}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options o = packed_options(is[i].ffn, is[i].gate_in);
        free(same_every_way(w, &o, ways, sizeof ways / sizeof *ways, "packed", o.ffn ? o.ffn : "off"));
    }
    puts("packed models: bits equal in all mixtures and modes");
}

/* Two sessions read their prompts, which choose groups; then both write, together. */
static float *prompted(struct world *w, bool gate_in, size_t *size)
{
    enum { PROMPT = 9, WRITTEN = 3 };
    struct rig_options o = packed_options("prompt=0.3", gate_in);
    struct rig r;
    struct ntx_kv_seq *kv[2];
    struct ntx_ffn_set *set[2];
    struct ntx_row rows[PROMPT];
    int32_t ids[2][PROMPT + WRITTEN];
    world_rig(w, &r, &o);
    float *logits = malloc((*size = (size_t)2 * WRITTEN * r.n_vocab) * sizeof *logits);
    for (uint32_t t = 0; t < 2; t++) {
        rig_ids(&r, 5 + t, ids[t], PROMPT + WRITTEN);
        kv[t] = rig_seq(&r, PROMPT + WRITTEN);
        set[t] = ntx_ffn_set_new(r.model);
        for (uint32_t i = 0; i < PROMPT; i++)
            rows[i] = (struct ntx_row){.token = ids[t][i], .pos = i, .kv = kv[t], .rounded = true, .all_groups = true, .add = set[t]};
        CHECK_MSG(!rig_run(&r, rows, PROMPT), "%s", r.w.w.error.text);
        ntx_ffn_set_choose(set[t], 0.3f);
    }
    for (uint32_t i = 0; i < WRITTEN; i++) {
        for (uint32_t t = 0; t < 2; t++)
            rows[t] = (struct ntx_row){.token = ids[t][PROMPT + i], .pos = PROMPT + i, .kv = kv[t], .ffn = set[t], .logits = logits + (size_t)(2 * i + t) * r.n_vocab};
        CHECK_MSG(!rig_run(&r, rows, 2), "%s", r.w.w.error.text);
    }
    for (uint32_t t = 0; t < 2; t++) {
        ntx_kv_seq_free(kv[t]);
        ntx_ffn_set_free(set[t]);
    }
    world_close(w, &r);
    return logits;
}

/* Prompts through the matrix units may choose otherwise where groups are nearly alike; without them bits are the CPU's. */
static void packed_prompts(struct world *w)
{
    static const char *const mix[] = {"dhs", "hds", "d"};
    for (int i = 0; i < 6; i++) {
        size_t n;
        w->mix = mix[i / 2];
        w->in_flight = 2;
        w->share = i < 2 ? 0 : UINT32_MAX;
        if (w->fake)
            w->fake->no_dense = 1;
        float *want = prompted(NULL, i % 2, &n), *exact = prompted(w, i % 2, &n);
        CHECK_MSG(!w->fake || !memcmp(exact, want, n * sizeof *want), "packed, prompt: not the CPU's bits (off by %g)", worst(exact, want, n));
        if (w->fake)
            w->fake->no_dense = 0;
        float *got = prompted(w, i % 2, &n);
        double off = worst(got, want, n);
        CHECK_MSG(off < 1, "packed, prompt: off by %g", off);
        free(want), free(got), free(exact);
    }
    puts("packed models: groups by the prompt");
}

/* A row of decoding has the same bits whoever shares its pass: alone, or before a prompt's rows. */
static void in_company(struct world *w)
{
    struct rig r;
    struct rig_options o = {.make = small_model("Q4_K_M", 2)};
    float *alone, *beside;
    struct ntx_row rows[12];
    int32_t ids[12];
    w->mix = "dhs";
    w->in_flight = 2;
    world_rig(w, &r, &o);
    rig_ids(&r, 3, ids, 12);
    alone = malloc(r.n_vocab * sizeof *alone), beside = malloc(r.n_vocab * sizeof *beside);
    struct ntx_kv_seq *a = rig_seq(&r, 8), *b = rig_seq(&r, 8), *c = rig_seq(&r, 16);
    rows[0] = (struct ntx_row){.token = ids[0], .kv = a, .logits = alone};
    CHECK_EQ(rig_run(&r, rows, 1), 0);
    rows[0] = (struct ntx_row){.token = ids[0], .kv = b, .logits = beside};
    for (uint32_t i = 1; i < 12; i++)
        rows[i] = (struct ntx_row){.token = ids[i], .pos = i - 1, .kv = c, .rounded = true, .all_groups = true};
    CHECK_EQ(rig_run(&r, rows, 12), 0);
    CHECK_SAME(alone, beside, r.n_vocab);
    CHECK_EQ(rig_run(&r, rows + 1, 11), 0); /* no row wants logits: the output is skipped */
    ntx_kv_seq_free(a), ntx_kv_seq_free(b), ntx_kv_seq_free(c);
    world_close(w, &r);
    free(alone), free(beside);
}

/* More positions than one split of attention. */
static void long_context(struct world *w)
{
    struct rig_options o = {.make = small_model("Q8_0", 1)};
    o.make.heads = 2;
    o.make.kv = 1;
    size_t n;
    float *want = logits_of(NULL, o, LONG, 60, false, &n);
    w->mix = "d";
    w->in_flight = 1;
    float *got = logits_of(w, o, LONG, 60, false, &n);
    size_t equal = (size_t)NTX_GPU_SPLIT * (n / LONG);
    CHECK_MSG(!memcmp(got, want, equal * sizeof *got), "positions of one split differ");
    double off = worst(got + equal, want + equal, n - equal);
    CHECK_MSG(off < 1e-4, "split attention is off by %g", off);
    free(got), free(want);
}

/* ---- layer skip: a pattern of layers and rows, on both sides */

enum { SKIP_ROWS = 3, SKIP_PASSES = 4, LAYERS = 6, PROBE = 1 };

struct skipper {
    unsigned pass, probes;
    float shown; /* values of the first row's states as they were shown */
};

static void probe(void *ctx, const struct ntx_batch *b, const float *hidden)
{
    struct skipper *s = ctx;
    s->probes++;
    (void)b;
    s->shown += hidden[7];
}

/* Row i of pass p skips other layers than its neighbours; layer 4 is skipped by all in the second pass. */
static void decide(void *ctx, const struct ntx_batch *b, uint64_t *skip)
{
    struct skipper *s = ctx;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        uint64_t mask = (uint64_t)1 << (2 + (i + s->pass) % 4);
        skip[i * NTX_MAP_WORDS] = s->pass == 1 ? mask | 1 << 4 : mask;
    }
    s->pass++;
}

/* Three sessions decode, a fourth reads its prompt beside them; logits of the three, in all passes. */
static float *skipping(struct world *w, const char *arch, bool propagate, const char *ffn, struct skipper *s, size_t *size)
{
    struct rig r;
    struct rig_options o = {.make = small_model("Q8_0", LAYERS), .window = 6, .ffn = ffn, .pack = ffn ? 6000 : 0};
    struct ntx_row rows[SKIP_ROWS + 2];
    struct ntx_kv_seq *kv[SKIP_ROWS + 1];
    if (!strcmp(arch, "glm-dsa"))
        o.make = choosing(arch, "Q8_0", 2, 2);
    o.make.layers = LAYERS;
    o.make.arch = arch;
    *s = (struct skipper){0};
    o.skip = (struct ntx_skip_hooks){.ctx = s, .probe_layer = PROBE, .propagate = propagate, .probe = probe, .decide = decide};
    world_rig(w, &r, &o);
    *size = (size_t)SKIP_PASSES * SKIP_ROWS * r.n_vocab;
    float *logits = malloc(*size * sizeof *logits);
    for (uint32_t i = 0; i <= SKIP_ROWS; i++)
        kv[i] = rig_seq(&r, 2 * SKIP_PASSES);
    for (uint32_t p = 0; p < SKIP_PASSES; p++) {
        for (uint32_t i = 0; i < SKIP_ROWS; i++)
            rows[i] = (struct ntx_row){.token = (int32_t)(7 * p + i), .pos = p, .kv = kv[i], .logits = logits + (p * SKIP_ROWS + i) * r.n_vocab, .may_skip = true};
        for (uint32_t i = 0; i < 2; i++)
            rows[SKIP_ROWS + i] = (struct ntx_row){.token = (int32_t)(3 * p + i), .pos = 2 * p + i, .kv = kv[SKIP_ROWS], .rounded = true, .all_groups = true};
        CHECK_MSG(!rig_run(&r, rows, p == 1 ? SKIP_ROWS : SKIP_ROWS + 2), "%s", r.w.w.error.text); /* alone in the second: a layer is dropped */
        CHECK_EQ(r.w.n_drops, p == 1);
    }
    CHECK_EQ(ntx_forward_skipped(r.f), SKIP_PASSES * SKIP_ROWS + 2);
    for (uint32_t i = 0; i <= SKIP_ROWS; i++)
        ntx_kv_seq_free(kv[i]);
    world_close(w, &r);
    return logits;
}

static void skips(struct world *w)
{
    static const char *const ffn[] = {NULL, NULL, "predicted=0.4", "topk=0.3", NULL, NULL, NULL, NULL}, *const arch[] = {"llama", "llama", "llama", "llama", "gemma2", "gemma2", "glm-dsa", "glm-dsa"}; /* the third and fourth of packed models, whose groups are predicted from states */
    for (int i = 0; i < 8; i++) {
        struct skipper cpu, gpu;
        size_t n;
        float *want = skipping(NULL, arch[i], i % 2, ffn[i], &cpu, &n);
        w->mix = "dsh";
        w->in_flight = 2;
        float *got = skipping(w, arch[i], i % 2, ffn[i], &gpu, &n);
        CHECK_MSG(!memcmp(got, want, n * sizeof *got), "skipped layers (%s, %s): not the CPU's bits (off by %g)", i % 2 ? "propagate" : "holes", ffn[i] ? ffn[i] : "dense",
                  worst(got, want, n));
        CHECK_EQ(gpu.probes, cpu.probes);
        CHECK(gpu.shown == cpu.shown);
        free(got), free(want);
    }
    puts("layers skipped with holes and with KV propagated: bits equal");
}

/* ---- rows of trees */

static void decide_by_token(void *ctx, const struct ntx_batch *b, uint64_t *skip)
{
    (void)ctx;
    for (uint32_t i = 0; i < b->n_rows; i++)
        skip[i * NTX_MAP_WORDS] = (uint64_t)(b->rows[i].token % 2) << 1;
}

/* The tree's logits of the device are its chains', and the CPU's. */
static void trees(struct world *w)
{
    static const struct { const char *arch; enum ntx_kv_type kv; bool skips; uint32_t base; } is[] = {
        {"qwen3", NTX_KV_F16, true, 29}, {"llama", NTX_KV_Q8_0, true, 30}, {"gpt-oss", NTX_KV_Q8_0, false, 27}, {"deepseek2", NTX_KV_F16, false, 28}, {"deepseek32", NTX_KV_F16, false, 28},
    };
    w->mix = "dhs";
    w->in_flight = 2;
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options o = {.make = small_model("Q8_0", 2), .kv_type = is[i].kv};
        struct rig on, cpu;
        struct tree a = {0}, b = {0};
        struct ntx_row rows[TREE_ROWS];
        o.make.arch = is[i].arch;
        if (!strcmp(is[i].arch, "deepseek2"))
            o.make = latent("Q8_0", false, 0);
        if (!strcmp(is[i].arch, "deepseek32"))
            o.make = choosing("deepseek32", "Q8_0", 9, 0), o.make.layers = 1;
        o.make.window = 12;
        o.make.experts = strcmp(is[i].arch, "gpt-oss") ? o.make.experts : 4;
        if (is[i].skips)
            o.skip = (struct ntx_skip_hooks){.decide = decide_by_token};
        world_rig(w, &on, &o);
        tree_same_as_chains(&on, is[i].base, is[i].arch);
        struct ntx_kv_seq *kv = rig_seq(&on, 64);
        tree_make(&a, &on, is[i].base);
        tree_prefix(&on, kv, is[i].base);
        tree_rows(&a, &on, kv, rows);
        CHECK_MSG(!rig_run(&on, rows, TREE_ROWS), "%s", on.w.w.error.text);
        ntx_kv_seq_free(kv);
        size_t n = (size_t)TREE_ROWS * on.n_vocab;
        world_close(w, &on);
        world_rig(NULL, &cpu, &o);
        kv = rig_seq(&cpu, 64);
        tree_make(&b, &cpu, is[i].base);
        tree_prefix(&cpu, kv, is[i].base);
        tree_rows(&b, &cpu, kv, rows);
        CHECK_EQ(rig_run(&cpu, rows, TREE_ROWS), 0);
        ntx_kv_seq_free(kv);
        world_close(NULL, &cpu);
        CHECK_MSG(!memcmp(a.logits, b.logits, n * sizeof *a.logits), "%s: a tree on the device has not the CPU's bits", is[i].arch);
        free(a.logits), free(b.logits);
    }
    puts("trees: bits equal to their chains', and to the CPU's");
}

/* ---- windows that keep no more than they need: a ring that is written over several times has the bits of a cache that keeps all */

enum { WRAPS = 70 };

static void same_in_rings(struct world *w, struct rig_options o, const char *what)
{
    size_t n;
    float *want = logits_of(NULL, o, WRAPS, 20, false, &n), *prompt = logits_of(w, o, WRAPS, 20, true, &n);
    o.windows = true;
    float *got = logits_of(w, o, WRAPS, 20, false, &n), *cut = logits_of(w, o, WRAPS, 7, true, &n);
    CHECK_MSG(!memcmp(got, want, n * sizeof *got), "%s: not the CPU's bits, off by %g", what, worst(got, want, n));
    CHECK_MSG(!memcmp(cut, prompt, n * sizeof *cut), "%s: prompts are not as where all is kept, off by %g", what, worst(cut, prompt, n));
    free(want), free(prompt), free(got), free(cut);
}

/* A tree whose slots lie on both sides of the ring's end, and what is decoded behind an accepted path. */
static float *tree_behind(struct world *w, const struct rig_options *o, uint32_t ring)
{
    const uint32_t base = 92;
    struct rig r;
    struct tree t = {0};
    struct ntx_row rows[TREE_ROWS];
    world_rig(w, &r, (struct rig_options[]){*o});
    CHECK_EQ(r.kv.ring, ring);
    struct ntx_kv_seq *kv = rig_seq(&r, base + 32);
    tree_make(&t, &r, base);
    t.logits = realloc(t.logits, (TREE_ROWS + 1) * (size_t)r.n_vocab * sizeof *t.logits);
    CHECK(t.logits);
    tree_prefix(&r, kv, base);
    tree_rows(&t, &r, kv, rows);
    CHECK_MSG(!rig_run(&r, rows, TREE_ROWS), "%s", r.w.w.error.text);
    CHECK_EQ(ntx_forward_commit(r.f, kv, base, t.path[TREE_ROWS - 1], t.depth[TREE_ROWS - 1]), 0);
    tree_decode(&r, kv, base + t.depth[TREE_ROWS - 1], (const int32_t[]){11}, 1, t.logits + (size_t)TREE_ROWS * r.n_vocab);
    ntx_kv_seq_free(kv);
    world_close(w, &r);
    return t.logits;
}

static void tree_in_rings(struct world *w, struct rig_options o)
{
    o.max_rows = 64;
    float *want = tree_behind(NULL, &o, 0), *got;
    o.windows = true;
    got = tree_behind(w, &o, 3);
    CHECK_MSG(!memcmp(got, want, (TREE_ROWS + 1) * 548 * sizeof *got), "a tree in rings has not the CPU's bits");
    free(want), free(got);
}

static uint64_t bytes_of(struct world *w, struct rig_options o, struct ntx_kv_shape *shape)
{
    struct rig r;
    struct ntx_copy_share share;
    world_rig(w, &r, &o);
    const struct ntx_device_config c = world_config(w, &r, &o, &share);
    const uint64_t bytes = ntx_device_bytes(&c);
    *shape = r.kv;
    world_close(w, &r);
    return bytes;
}

static void windows(struct world *w)
{
    struct rig_options o = {.make = small_model("Q8_0", 2), .max_rows = 20, .ctx = 512};
    struct ntx_kv_shape all, rings;
    o.make.arch = "gpt-oss";
    o.make.experts = 4;
    o.make.window = 12;
    w->mix = "dhs";
    w->in_flight = 2;
    const uint64_t before = bytes_of(w, o, &all);
    o.windows = true;
    const uint64_t after = bytes_of(w, o, &rings);
    o.windows = false;
    CHECK(!all.ring && rings.ring == 1 && rings.window_blocks == 9 && rings.blocks == all.blocks);
    CHECK_EQ(before - after, (128 - 9) * 2 * 2 * 32 * 64 * 2 - 128 * 4); /* of a layer; and there is a table more */
    same_in_rings(w, o, "gpt-oss");
    tree_in_rings(w, o);
    puts("windows: bits equal in rings");
}

/* ---- K that stand for several positions, of which some are chosen; behind a window that goes round */

static void pooled(struct world *w)
{
    struct rig_options o = {.make = rig_pooled(), .chunk_bytes = 20000, .max_rows = 20, .windows = true};
    size_t n;
    o.make.type = "Q8_0";
    o.make.heads = 2;
    o.make.index_heads = 3;
    w->mix = "dhs";
    w->in_flight = 2;
    w->share = 40;
    float *want = logits_of(NULL, o, 131, 19, false, &n), *got = logits_of(w, o, 131, 19, false, &n);
    CHECK_MSG(!memcmp(got, want, n * sizeof *got), "deepseek4: not the CPU's bits (off by %g)", worst(got, want, n));
    struct rig r;
    world_rig(w, &r, &o);
    rig_check_asked(&r, 131, 19, 5, false, want, "deepseek4");
    world_close(w, &r);
    free(want), free(got);
    puts("pooled K: bits equal");
}

/* ---- the largest logits instead of all */

static void best_logits(struct world *w)
{
    struct rig r;
    struct rig_options o = {.make = small_model("F16", 1)};
    struct ntx_candidate best[2][NTX_BEST_MAX];
    struct ntx_row rows[3];
    w->mix = "d";
    world_rig(w, &r, &o);
    float *all = malloc(3 * r.n_vocab * sizeof *all);
    struct ntx_kv_seq *kv[3];
    for (uint32_t i = 0; i < 3; i++) {
        kv[i] = rig_seq(&r, 1);
        rows[i] = (struct ntx_row){.token = 5, .kv = kv[i], .logits = all + i * r.n_vocab};
    }
    for (uint32_t i = 0; i < 2; i++) {
        rows[i].best = best[i];
        rows[i].n_best = 17 + 3 * i;
    }
    CHECK_MSG(!rig_run(&r, rows, 3), "%s", r.w.w.error.text);
    for (uint32_t i = 0; i < 2; i++) {
        float least = INFINITY;
        uint32_t larger = 0;
        CHECK_EQ(rows[i].n_best, 20);
        for (uint32_t k = 0; k < 20; k++) {
            CHECK(best[i][k].logit == all[2 * r.n_vocab + (uint32_t)best[i][k].id]);
            least = fminf(least, best[i][k].logit);
        }
        for (uint32_t v = 0; v < r.n_vocab; v++)
            larger += all[2 * r.n_vocab + v] > least;
        CHECK(larger < 20);
    }
    CHECK_EQ(rows[2].n_best, 0);
    for (uint32_t i = 0; i < 3; i++)
        ntx_kv_seq_free(kv[i]);
    world_close(w, &r);
    free(all);
}

static void dense_models(struct world *w)
{
    static const struct way ways[] = {
        {"d", 1, 0, 4, UINT32_MAX}, {"h", 1, 0, 3, UINT32_MAX}, {"s", 1, 1, 2, UINT32_MAX}, {"s", 3, 4, 7, UINT32_MAX}, {"sdhhd", 1, 2, 3, 32}, {"ddhs", 4, 5, N, 0}, {"h", 2, 0, N, 40},
    };
    static const char *const types[] = {"Q8_0", "F16", "Q4_K_M"};
    for (unsigned i = 0; i < 3; i++) {
        struct mk_options make = small_model(types[i], i ? 1 : 2);
        make.arch = i == 1 ? "qwen3" : i == 2 ? "llama-relu" : "qwen2";
        mixtures(w, &make, i == 0 ? NTX_KV_Q8_0 : NTX_KV_F16, ways + i, i ? 4 : 7, 0.05);
    }
}

/* ---- what steps gave (ntx_forward_watch): of every step that a device shows the CPU's bits, and it shows all but what its kernels keep to themselves */

struct seen {
    uint32_t layer, step, pos, width;
    char buffer[16];
    float *values;
};
struct diary {
    struct seen seen[4096];
    size_t n;
};

static void note(void *ctx, const struct ntx_row *row, const struct ntx_step_values *v)
{
    struct diary *d = ctx;
    struct seen *s = &d->seen[d->n++];
    CHECK(d->n < sizeof d->seen / sizeof *d->seen && strlen(v->buffer) < sizeof s->buffer && row->pos % 2 == 0);
    *s = (struct seen){v->layer, v->step, row->pos, v->width, "", malloc(v->width * sizeof(float))};
    strcpy(s->buffer, v->buffer);
    memcpy(s->values, v->values, v->width * sizeof(float));
}

/* Rows at even positions are watched. */
static void watched(struct world *w, const struct rig_options *o, struct diary *d)
{
    struct rig_options on = *o;
    struct rig r;
    int32_t ids[N];
    struct ntx_row rows[N];
    world_rig(w, &r, &on);
    rig_ids(&r, 5, ids, N);
    float *logits = malloc((size_t)N * r.n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, N);
    ntx_forward_watch(r.f, note, d);
    for (uint32_t i = 0; i < N; i++)
        rows[i] = (struct ntx_row){.token = ids[i], .pos = i, .kv = kv, .logits = logits + (size_t)i * r.n_vocab, .watched = i % 2 == 0};
    CHECK_MSG(!rig_run(&r, rows, N), "%s", r.w.w.error.text);
    CHECK_SAME(d->seen[d->n - 1].values, logits + (size_t)(N - 1) * r.n_vocab, r.n_vocab);
    ntx_kv_seq_free(kv);
    world_close(w, &r);
    free(logits);
}

static const struct seen *find_seen(const struct diary *d, const struct seen *s)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->seen[i].layer == s->layer && d->seen[i].step == s->step && d->seen[i].pos == s->pos && !strcmp(d->seen[i].buffer, s->buffer))
            return &d->seen[i];
    return NULL;
}

static void same_steps(struct world *w, const struct rig_options *o, const char *mix, const char *what)
{
    static struct diary cpu, device;
    cpu.n = device.n = 0;
    watched(NULL, o, &cpu);
    w->mix = mix;
    watched(w, o, &device);
    for (size_t i = 0; i < device.n; i++) {
        const struct seen *got = &device.seen[i], *want = find_seen(&cpu, got);
        CHECK_MSG(want && want->width == got->width && !memcmp(want->values, got->values, got->width * sizeof(float)), "%s, %s: layer %u, step %u, %s of row %u", what, mix,
                  got->layer, got->step, got->buffer, got->pos);
    }
    for (size_t i = 0; i < cpu.n; i++) { /* K is turned, and Y gets its bias, on the way */
        const struct seen *s = &cpu.seen[i];
        CHECK_MSG(find_seen(&device, s) || strchr("KVY", *s->buffer), "%s, %s: layer %u, step %u, %s is not shown", what, mix, s->layer, s->step, s->buffer);
    }
    CHECK(device.n > cpu.n * 3 / 4);
    for (size_t i = 0; i < cpu.n; i++)
        free(cpu.seen[i].values);
    for (size_t i = 0; i < device.n; i++)
        free(device.seen[i].values);
}

static void steps(struct world *w)
{
    struct rig_options o = {.make = small_model("Q8_0", 2), .chunk_bytes = 20000, .max_rows = N};
    w->in_flight = 2;
    w->share = 40;
    o.make.arch = "qwen2";
    same_steps(w, &o, "d", "dense");
    same_steps(w, &o, "dhs", "dense");
    o.make.arch = "gpt-oss";
    o.make.experts = 4;
    o.make.experts_used = 2;
    same_steps(w, &o, "dh", "experts");
    o = packed_options("predicted=0.4", false);
    o.max_rows = N;
    same_steps(w, &o, "dhs", "packed");
    o = (struct rig_options){.make = streamed(), .chunk_bytes = 20000, .max_rows = N};
    same_steps(w, &o, "dhs", "streams");
    puts("what steps gave: the CPU's bits");
}

/* ---- a GPU whose memory is the host's: chunks are multiplied where they are, in a ring that gives each out again once it is used, and none is copied */

static uint64_t uploads(struct world *w, const struct rig_options *o, bool in_place, const float *want, uint64_t *matrices)
{
    struct rig_options on = *o;
    struct rig r;
    size_t n;
    w->in_place = false;
    world_rig(w, &r, &on);
    *matrices = 0;
    for (uint32_t i = 0; i < r.chunks->n; i++)
        *matrices += r.chunks->list[i].fixed ? 0 : r.chunks->list[i].bytes;
    world_close(w, &r);
    uint64_t before = w->fake->uploaded;
    w->in_place = in_place;
    float *got = logits_of(w, on, N, 1, false, &n);
    w->in_place = false;
    CHECK_MSG(!memcmp(got, want, n * sizeof *got), "%s, %s: not the CPU's bits", o->make.type, in_place ? "in place" : "copied");
    free(got);
    return w->fake->uploaded - before;
}

static void in_place(struct world *w)
{
    static const char *const types[] = {"Q4_K_M", "Q8_0", "F16"};
    size_t n;
    if (!w->fake)
        return;
    w->share = 64;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const struct rig_options o = {.make = small_model(types[i], 2), .chunk_bytes = 20000, .max_rows = N, .window = 5};
        float *want = logits_of(NULL, (struct rig_options){.make = o.make, .chunk_bytes = o.chunk_bytes, .max_rows = N}, N, N, false, &n);
        w->mix = "hss";
        w->in_flight = 2;
        uint64_t matrices, copied = uploads(w, &o, false, want, &matrices), there = uploads(w, &o, true, want, &matrices);
        CHECK_MSG(copied - there == N * matrices, "%s: %llu bytes of weights were to be copied in %d passes, and %llu less are in place", types[i],
                  (unsigned long long)(N * matrices), N, (unsigned long long)(copied - there));
        printf("%s: in place: the same bits, %llu bytes of weights not copied\n", types[i], (unsigned long long)(copied - there));
        free(want);
    }
    struct mk_options moe = small_model("Q4_K_M", 1);
    moe.arch = "qwen3moe";
    moe.experts = 5;
    moe.experts_used = 2;
    static const struct way ways[] = {{"h", 1, 0, N, 0}, {"hs", 2, 5, 3, 0}};
    w->in_place = true;
    free(same_every_way(w, &(struct rig_options){.make = moe, .chunk_bytes = 20000, .max_rows = N}, ways, 2, "experts in place", moe.type));
    w->in_place = false;
}

/* ---- steps that begin within a row: a norm from a value on, in place, and a copy of what lies behind another; no architecture's layers but drafters' have them */

static struct ntx_step *insert_step(struct ntx_layer *l, uint32_t at)
{
    CHECK(l->n_steps < NTX_LAYER_STEPS);
    memmove(&l->step[at + 1], &l->step[at], (l->n_steps++ - at) * sizeof *l->step);
    return &l->step[at];
}

/* The first head of q is not normed; of what attention gives all but the last head are then a half of what q has behind the first. */
static struct ntx_device *within_rows(struct rig *r, const struct rig_options *o, void *ctx)
{
    for (uint32_t l = 0; l < r->model->hp.n_layers; l++) {
        struct ntx_layer *layer = &r->model->layers[l];
        uint32_t head = 0, i = 0;
        for (; layer->step[i].op != NTX_OP_ATTEND; i++) {
            struct ntx_step *s = &layer->step[i];
            if (s->op != NTX_OP_NORM || s->in[0] != NTX_BUF_Q)
                continue;
            CHECK(s->out == NTX_BUF_Q && s->heads == 4);
            head = s->offset = s->width;
            s->heads--;
        }
        CHECK(head);
        *insert_step(layer, i + 1) = (struct ntx_step){.op = NTX_OP_SCALE, .in = {NTX_BUF_Q}, .out = NTX_BUF_ATTN, .width = 3 * head, .from = head, .scale = 0.5f};
    }
    return ctx ? world_device(r, o, ctx) : NULL;
}

static float *logits_within(struct world *w, struct rig_options o, size_t *size)
{
    struct rig r;
    int32_t ids[N];
    struct ntx_row rows[N];
    o.device = within_rows;
    o.device_ctx = w;
    o.backend = w ? &ntx_device_backend : NULL;
    rig_open(&r, &o);
    rig_ids(&r, 5, ids, N);
    float *logits = malloc((*size = (size_t)N * r.n_vocab) * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, N);
    for (uint32_t i = 0; i < N; i++)
        rows[i] = (struct ntx_row){.token = ids[i], .pos = i, .kv = kv, .logits = logits + (size_t)i * r.n_vocab};
    CHECK_MSG(!rig_run(&r, rows, N), "%s", r.w.w.error.text);
    ntx_kv_seq_free(kv);
    world_close(w, &r);
    return logits;
}

static void within(struct world *w)
{
    struct rig_options o = {.make = small_model("Q8_0", 2), .max_rows = N};
    size_t n;
    o.make.arch = "qwen3";
    w->mix = "d";
    float *want = logits_within(NULL, o, &n), *got = logits_within(w, o, &n), *plain = logits_of(NULL, o, N, N, false, &n);
    CHECK_MSG(!memcmp(got, want, n * sizeof *got), "steps within rows: not the CPU's bits (off by %g)", worst(got, want, n));
    CHECK(memcmp(plain, want, n * sizeof *got));
    free(got), free(want), free(plain);
    puts("steps that begin within a row: bits equal");
}

/* ---- what a device refuses: heads whose rows of K or V would not lie 16-aligned */

static void refusals(struct world *w)
{
    static const struct { uint32_t k, v; bool can; } heads[] = {{64, 64, true}, {68, 64, false}, {64, 68, false}, {62, 62, false}, {72, 40, true}, {NTX_GPU_HEAD_MAX + 8, 64, false}, {64, NTX_GPU_HEAD_MAX + 8, false}};
    struct rig r;
    struct rig_options o = {.make = small_model("F16", 2)};
    struct ntx_err err = {0};
    world_rig(NULL, &r, &o);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        r.model->hp.head_k = heads[i].k;
        r.model->hp.head_v = heads[i].v;
        CHECK_EQ(ntx_backend_can(&ntx_device_backend, r.model, 0, &err), heads[i].can ? 0 : -ENOTSUP);
        CHECK_MSG(heads[i].can || !strcmp(err.text, "what layer 0 does (ATTEND) is computed on the CPU only"), "%s", err.text);
    }
    world_close(NULL, &r);
    w->mix = "d";
    puts("heads of widths that are no multiples of 8, or too wide, are refused");
}

/* More arguments: these parts alone. */
static bool wanted(int argc, char **argv, const char *part)
{
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], part))
            return true;
    return argc < 3;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct world *w);
    } parts[] = {{"dense", dense_models}, {"architectures", architectures}, {"experts", experts}, {"crowds", crowds}, {"packed", packed}, {"deltas", deltas}, {"packed-prompts", packed_prompts}, {"company", in_company}, {"long", long_context}, {"skip", skips}, {"best", best_logits}, {"trees", trees}, {"windows", windows}, {"pooled", pooled}, {"steps", steps}, {"in-place", in_place}, {"within", within}, {"refusals", refusals}};
    struct world w;
    CHECK(argc >= 2);
    setvbuf(stdout, NULL, _IOLBF, 0);
    world_open(&w, argv[1]);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (wanted(argc, argv, parts[i].name))
            parts[i].run(&w);
    gpu_close(&w.gpu);
    return 0;
}
