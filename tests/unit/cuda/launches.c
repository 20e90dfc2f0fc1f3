/* SPDX-License-Identifier: Apache-2.0 */
/* launches.c: the number of launches and of host waits in a pass on a device (argument: the plug-in's path). Routed
 * and joined experts on the device have the CPU's bits. */
#include "tests/unit/cuda/device_rig.h"

/* ---- few launches: equal matrices, and the experts of a wave, share a launch */

static uint64_t launches_of(struct world *w, const struct mk_options *make, uint32_t n_rows, uint64_t *syncs)
{
    struct rig r;
    struct rig_options o = {.make = *make, .max_rows = n_rows < 16 ? 16 : n_rows};
    struct ntx_row rows[64];
    w->mix = "d";
    world_rig(w, &r, &o);
    float *logits = malloc(n_rows * r.n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, n_rows);
    for (uint32_t i = 0; i < n_rows; i++)
        rows[i] = (struct ntx_row){.token = (int32_t)(5 + i), .pos = i, .kv = kv, .logits = logits + i * r.n_vocab};
    const uint64_t before = w->fake->launches, waited = w->fake->syncs;
    CHECK_EQ(rig_run(&r, rows, n_rows), 0);
    const uint64_t n = w->fake->launches - before;
    *syncs = w->fake->syncs - waited;
    ntx_kv_seq_free(kv);
    world_close(w, &r);
    free(logits);
    return n;
}

/* Checks the launches of a layer, the host's waits in a pass of the first model (`syncs`), and those of a further
 * layer. The second model has two layers more. */
static void launches_are(struct world *w, const struct mk_options make[2], uint32_t n_rows, uint64_t launches,
                         uint64_t syncs, uint64_t syncs_of_layer)
{
    uint64_t short_syncs, long_syncs, less = launches_of(w, &make[0], n_rows, &short_syncs),
                                      more = launches_of(w, &make[1], n_rows, &long_syncs);
    CHECK_EQ((more - less) / 2, launches);
    CHECK_EQ(short_syncs, syncs);
    CHECK_EQ((long_syncs - short_syncs) / 2, syncs_of_layer);
}

static void launches(struct world *w)
{
    struct mk_options dense[2] = {small_model("Q8_0", 1), small_model("Q8_0", 3)}, experts[2] = {dense[0], dense[1]};
    for (int i = 0; i < 2 && w->fake; i++) {
        experts[i].arch = "qwen3moe";
        experts[i].experts = 32;
        experts[i].experts_used = 8;
    }
    if (!w->fake)
        return;
    /* norm; q, k and v; rotation; attention; its values quantised; o; what it adds, and a norm; gate and up; what they
     * give; down */
    launches_are(w, dense, 1, 10, 1, 0);
    launches_are(w, dense, 5, 10, 1, 0);
    /* in place of the last three: router; its choice; gates and ups of eight; what they give; their downs; their sum */
    launches_are(w, experts, 1, 13, 1, 0);
    launches_are(w, experts, 2, 13, 1, 0);
    /* more rows: their choices are sorted by expert. Of each wave, of as many as buffers hold, 16 or 64: gathered;
     * gates and ups; what they give; downs; their sum */
    launches_are(w, experts, 3, 10 + 2 * 5, 1, 0);
    launches_are(w, experts, 5, 10 + 3 * 5, 1, 0);
    launches_are(w, experts, 64, 10 + 8 * 5, 1, 0);
    puts("few launches: 10 of a dense layer, 13 of one with experts, 5 more a wave of a prompt's; the host waits once");
}

/* ---- experts chosen on the device: by each kind of router, by few rows; and by the host where they are more, or where
 * it looks on */

static void routes(struct world *w)
{
    static const struct way ways[] = {{"d", 1, 0, 1, 0}, {"d", 1, 0, 2, 0}, {"d", 1, 0, N, 0}};
    static const struct mixture is[] = {
        {"qwen2moe", "Q4_K_M", 12, 3, 256},   {"qwen3moe", "Q8_0", 40, 5, 0},
        {"gpt-oss", "Q8_0", 13, 3, 0},        {"llama", "F16", 8, 2, 0},
        {"glm4moe", "Q8_0", 12, 3, 512},      {"minimax-m2", "Q8_0", 9, 2, 0},
        {"granitemoe", "Q4_K_M", 12, 3, 256}, {"qwen3moe", "Q8_0", 1, 1, 0},
        {"llama4", "Q8_0", 6, 1, 0},
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct mk_options make = small_mixture(&is[i], 2, i % 2);
        make.expert_every = strcmp(make.arch, "llama4") ? 0 : 2;
        const struct rig_options o = {.make = make, .chunk_bytes = small_chunk(&make), .max_rows = N};
        free(same_every_way(w, &o, ways, sizeof ways / sizeof *ways, "chosen on the device,", make.arch));
    }
    puts("experts chosen on the device: bits equal");
}

/* ---- graphs: passes of a few rows with the launches of the pass before */

enum { WRITTEN = 6, OUTPUT = 3 /* launches behind the layers, too few for a graph */ };

/* Logits of WRITTEN passes of one token and as many of two rows. */
static float *written(struct world *w, const struct mk_options *make, size_t *size)
{
    struct rig r;
    struct rig_options o = {.make = *make, .max_rows = 16};
    struct ntx_row rows[2];
    world_rig(w, &r, &o);
    float *logits = malloc((*size = (size_t)3 * WRITTEN * r.n_vocab) * sizeof *logits), *at = logits;
    struct ntx_kv_seq *kv[2] = {rig_seq(&r, WRITTEN), rig_seq(&r, 2 * WRITTEN)};
    for (uint32_t i = 0; i < 2 * WRITTEN; i++) {
        const uint32_t n = i < WRITTEN ? 1 : 2;
        for (uint32_t k = 0; k < n; k++, at += r.n_vocab)
            rows[k] = (struct ntx_row){.token = (int32_t)(5 + i + 7 * k),
                                       .pos = n == 1 ? i : 2 * (i - WRITTEN) + k,
                                       .kv = kv[n - 1],
                                       .logits = at};
        CHECK_MSG(!rig_run(&r, rows, n), "%s", r.w.w.error.text);
    }
    ntx_kv_seq_free(kv[0]), ntx_kv_seq_free(kv[1]);
    world_close(w, &r);
    return logits;
}

static void written_is(struct world *w, const struct mk_options *make, const float *want, const char *how)
{
    size_t n;
    float *got = written(w, make, &n);
    CHECK_MSG(!memcmp(got, want, n * sizeof *got), "%s, %s: not the CPU's bits (off by %g)", make->arch, how,
              worst(got, want, n));
    free(got);
}

/* Launches of one pass come in parts: before what goes up with the rows that want logits, and behind it. */
static void graphs_of(struct world *w, const struct mk_options *make, uint64_t launches)
{
    struct ntx_fake_control *c = w->fake;
    size_t n;
    float *want = written(NULL, make, &n);
    w->mix = "d";
    const uint64_t plain = c->launches;
    c->captures = c->graphs = c->graph_launches = c->updates = 0;
    w->no_graphs = true;
    written_is(w, make, want, "without graphs");
    w->no_graphs = false;
    CHECK_EQ(c->launches - plain, 2 * WRITTEN * launches);
    CHECK_EQ(c->captures, 0);
    const uint64_t before = c->launches;
    written_is(w, make, want, "graphs");
    /* the first pass of each number of rows is launched as it is, the second is recorded, and all but the first go as
     * graphs */
    const uint64_t parts = c->graphs - 1;
    CHECK(parts % 2 == 0 && parts >= 2);
    CHECK_EQ(c->captures, parts + 1); /* at load it is tried */
    CHECK_EQ(c->updates, 0);
    CHECK_EQ(c->graph_launches - 1, parts * (WRITTEN - 1));
    CHECK_EQ(c->launches - before, 2 * (launches + (WRITTEN - 1) * OUTPUT));
    for (c->no_graphs = 1; c->no_graphs < 3; c->no_graphs++)
        written_is(w, make, want, c->no_graphs == 1 ? "nothing is recorded" : "no graph can be made");
    c->no_graphs = 0;
    free(want);
}

/* One by one over the end of a split of attention, which has another launch behind it; their logits. */
static float *written_over(struct world *w, const struct mk_options *make, size_t *size)
{
    enum { FROM = NTX_GPU_SPLIT - 4, N_ROWS = FROM + 10, STEP = 63 };
    struct rig r;
    struct rig_options o = {.make = *make, .max_rows = 64};
    struct ntx_row rows[STEP];
    world_rig(w, &r, &o);
    float *logits = malloc((*size = (size_t)(N_ROWS - FROM) * r.n_vocab) * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, N_ROWS);
    for (uint32_t i = 0, n; i < N_ROWS; i += n) {
        n = i < FROM ? STEP : 1;
        for (uint32_t k = 0; k < n; k++)
            rows[k] = (struct ntx_row){.token = (int32_t)((i + k) % 50 + 5),
                                       .pos = i + k,
                                       .kv = kv,
                                       .logits = i < FROM ? NULL : logits + (size_t)(i - FROM) * r.n_vocab};
        CHECK_MSG(!rig_run(&r, rows, n), "%s", r.w.w.error.text);
    }
    ntx_kv_seq_free(kv);
    world_close(w, &r);
    return logits;
}

static void graphs_anew(struct world *w)
{
    struct mk_options make = small_model("Q8_0", 1);
    struct ntx_fake_control *c = w->fake;
    size_t n;
    make.heads = 2;
    make.kv = 1;
    w->no_graphs = true;
    float *want = written_over(w, &make, &n);
    w->no_graphs = false;
    c->graphs = c->updates = c->graph_launches = 0;
    float *got = written_over(w, &make, &n);
    CHECK_MSG(!memcmp(got, want, n * sizeof *got),
              "over the end of a split: other bits than without graphs (off by %g)", worst(got, want, n));
    CHECK_EQ(c->graphs - 1, 1);
    CHECK_EQ(c->updates, 1);
    CHECK_EQ(c->graph_launches - 1, 10 - 2); /* the first of each kind is launched as it is */
    free(got), free(want);
    puts("graphs: one is made anew where launches change");
}

/* The part of the graph tests that runs on a real GPU. */
static void graphs_of_card(struct world *w, const struct mk_options *make)
{
    size_t n;
    float *want = written(NULL, make, &n);
    written_is(w, make, want, "graphs");
    w->no_graphs = true;
    written_is(w, make, want, "without graphs");
    w->no_graphs = false;
    free(want);
}

static void graphs(struct world *w)
{
    struct mk_options dense = small_model("Q8_0", 2), experts = small_model("Q8_0", 6);
    uint64_t syncs;
    experts.arch = "qwen3moe";
    experts.experts = 16;
    experts.experts_used = 2;
    w->mix = "d";
    if (!w->fake) {
        graphs_of_card(w, &dense);
        graphs_of_card(w, &experts);
        return;
    }
    w->no_graphs = true;
    graphs_of(w, &dense, launches_of(w, &dense, 1, &syncs));
    w->no_graphs = true;
    graphs_of(w, &experts, launches_of(w, &experts, 1, &syncs));
    graphs_anew(w);
    puts("graphs: recorded once, launched again and again; the same bits with, without, and where there are none");
}

int main(int argc, char **argv)
{
    struct world w;
    CHECK(argc == 2);
    setvbuf(stdout, NULL, _IOLBF, 0);
    world_open(&w, argv[1]);
    launches(&w);
    routes(&w);
    graphs(&w);
    gpu_close(&w.gpu);
    return 0;
}
