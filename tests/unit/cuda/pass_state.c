/* SPDX-License-Identifier: Apache-2.0 */
/* pass_state.c: whole passes of layers whose state is not one row per token: skipped layers, trees, windows as
 * rings. */
#include "tests/unit/cuda/pass.h"
#include "tests/unit/pass/trees.h"

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
static float *skipping(struct world *w, const char *arch, bool propagate, const char *ffn, struct skipper *s,
                       size_t *size)
{
    struct rig r;
    /* down in columns: groups of blocks' rows stay with the host */
    struct rig_options o = {.make = small_model("Q8_0", LAYERS),
                            .window = 6,
                            .ffn = ffn,
                            .pack = ffn ? 6000 : 0,
                            .down_type = ffn ? NTX_Q8_0 : 0};
    struct ntx_row rows[SKIP_ROWS + 2];
    struct ntx_kv_seq *kv[SKIP_ROWS + 1];
    if (!strcmp(arch, "glm-dsa"))
        o.make = pass_choosing(arch, "Q8_0", 2, 2);
    o.make.layers = LAYERS;
    o.make.arch = arch;
    *s = (struct skipper){0};
    o.skip = (struct ntx_skip_hooks){
        .ctx = s, .probe_layer = PROBE, .propagate = propagate, .probe = probe, .decide = decide};
    world_rig(w, &r, &o);
    *size = (size_t)SKIP_PASSES * SKIP_ROWS * r.n_vocab;
    float *logits = malloc(*size * sizeof *logits);
    for (uint32_t i = 0; i <= SKIP_ROWS; i++)
        kv[i] = rig_seq(&r, 2 * SKIP_PASSES);
    for (uint32_t p = 0; p < SKIP_PASSES; p++) {
        for (uint32_t i = 0; i < SKIP_ROWS; i++)
            rows[i] = (struct ntx_row){.token = (int32_t)(7 * p + i),
                                       .pos = p,
                                       .kv = kv[i],
                                       .logits = logits + (p * SKIP_ROWS + i) * r.n_vocab,
                                       .may_skip = true};
        for (uint32_t i = 0; i < 2; i++)
            rows[SKIP_ROWS + i] = (struct ntx_row){.token = (int32_t)(3 * p + i),
                                                   .pos = 2 * p + i,
                                                   .kv = kv[SKIP_ROWS],
                                                   .rounded = true,
                                                   .all_groups = true};
        CHECK_MSG(!rig_run(&r, rows, p == 1 ? SKIP_ROWS : SKIP_ROWS + 2), "%s",
                  r.w.w.error.text); /* alone in the second: a layer is dropped */
        CHECK_EQ(r.w.n_drops, p == 1);
    }
    CHECK_EQ(ntx_forward_skipped(r.f), SKIP_PASSES * SKIP_ROWS + 2);
    for (uint32_t i = 0; i <= SKIP_ROWS; i++)
        ntx_kv_seq_free(kv[i]);
    world_close(w, &r);
    return logits;
}

void pass_skips(struct world *w)
{
    static const char *const ffn[] = {NULL, NULL, "predicted=0.4", "topk=0.3", NULL, NULL, NULL, NULL},
                             *const arch[] = {
                                 "llama",  "llama",   "llama",  "llama", "gemma2",
                                 "gemma2", "glm-dsa", "glm-dsa"}; /* the third and fourth of packed models, whose groups
                                                                     are predicted from states */
    for (int i = 0; i < 8; i++) {
        struct skipper cpu, gpu;
        size_t n;
        float *want = skipping(NULL, arch[i], i % 2, ffn[i], &cpu, &n);
        w->mix = "dsh";
        w->in_flight = 2;
        float *got = skipping(w, arch[i], i % 2, ffn[i], &gpu, &n);
        CHECK_MSG(!memcmp(got, want, n * sizeof *got), "skipped layers (%s, %s): not the CPU's bits (off by %g)",
                  i % 2 ? "propagate" : "holes", ffn[i] ? ffn[i] : "dense", worst(got, want, n));
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

/* The device's logits of the tree are those of its chains and of the CPU. */
void pass_trees(struct world *w)
{
    static const struct {
        const char *arch;
        enum ntx_kv_type kv;
        bool skips;
        uint32_t base;
    } is[] = {
        {"qwen3", NTX_KV_F16, true, 29},       {"llama", NTX_KV_Q8_0, true, 30},
        {"gpt-oss", NTX_KV_Q8_0, false, 27},   {"deepseek2", NTX_KV_F16, false, 28},
        {"deepseek32", NTX_KV_F16, false, 28},
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
            o.make = pass_mla("Q8_0", false, 0);
        if (!strcmp(is[i].arch, "deepseek32"))
            o.make = pass_choosing("deepseek32", "Q8_0", 9, 0), o.make.layers = 1;
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
        CHECK_MSG(!memcmp(a.logits, b.logits, n * sizeof *a.logits), "%s: a tree on the device has not the CPU's bits",
                  is[i].arch);
        free(a.logits), free(b.logits);
    }
    puts("trees: bits equal to their chains', and to the CPU's");
}

/* ---- windows with no spare room: a ring that is overwritten several times has the bits of a cache that keeps all */

enum { WRAPS = 70 };

static void same_in_rings(struct world *w, struct rig_options o, const char *what)
{
    size_t n;
    float *want = logits_of(NULL, o, WRAPS, 20, false, &n), *prompt = logits_of(w, o, WRAPS, 20, true, &n);
    o.windows = true;
    float *got = logits_of(w, o, WRAPS, 20, false, &n), *cut = logits_of(w, o, WRAPS, 7, true, &n);
    CHECK_MSG(!memcmp(got, want, n * sizeof *got), "%s: not the CPU's bits, off by %g", what, worst(got, want, n));
    CHECK_MSG(!memcmp(cut, prompt, n * sizeof *cut), "%s: prompts are not as where all is kept, off by %g", what,
              worst(cut, prompt, n));
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
    tree_decode(&r, kv, base + t.depth[TREE_ROWS - 1], (const int32_t[]){11}, 1,
                t.logits + (size_t)TREE_ROWS * r.n_vocab);
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

void pass_windows(struct world *w)
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
    /* of a layer; and there is a table more */
    CHECK_EQ(before - after, (128 - 9) * 2 * 2 * 32 * (o.make.embd / o.make.heads) * 2 - 128 * 4);
    same_in_rings(w, o, "gpt-oss");
    tree_in_rings(w, o);
    puts("windows: bits equal in rings");
}
