/* launches.c: how much a pass asks of a device (argument: the plug-in's path): launches, and how often the host waits. What is chosen, and joined, on the device has the CPU's bits. */
#include "tests/cuda/device_rig.h"

/* ---- few launches: matrices that are alike, and of experts those of a wave, go together */

static uint64_t launches_of(struct world *w, const struct mk_options *make, uint32_t n_rows, uint64_t *syncs)
{
    struct rig r;
    struct rig_options o = {.make = *make, .max_rows = 16};
    struct ntx_row rows[8];
    w->mix = "d";
    world_rig(w, &r, &o);
    float *logits = malloc(n_rows * r.n_vocab * sizeof *logits);
    struct ntx_kv_seq *kv = rig_seq(&r, 8);
    for (uint32_t i = 0; i < n_rows; i++)
        rows[i] = (struct ntx_row){.token = 5, .pos = i, .kv = kv, .logits = logits + i * r.n_vocab};
    const uint64_t before = w->fake->launches, waited = w->fake->syncs;
    CHECK_EQ(rig_run(&r, rows, n_rows), 0);
    const uint64_t n = w->fake->launches - before;
    *syncs = w->fake->syncs - waited;
    ntx_kv_seq_free(kv);
    world_close(w, &r);
    free(logits);
    return n;
}

/* Of a layer; the host waits as often in a pass. */
static void launches_are(struct world *w, const struct mk_options make[2], uint32_t n_rows, uint64_t launches, uint64_t syncs, uint64_t syncs_of_layer)
{
    uint64_t short_syncs, long_syncs, less = launches_of(w, &make[0], n_rows, &short_syncs), more = launches_of(w, &make[1], n_rows, &long_syncs);
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
    /* norm; q, k and v; rotation; attention; its values quantised; o; what it adds, and a norm; gate and up; what they give; down */
    launches_are(w, dense, 1, 10, 1, 0);
    launches_are(w, dense, 5, 10, 1, 0);
    /* in place of the last three: router; its choice; gates and ups of eight; what they give; their downs; their sum */
    launches_are(w, experts, 1, 13, 1, 0);
    launches_are(w, experts, 2, 13, 1, 0);
    /* more rows than the device chooses for: a launch of one row and one of two or more of gates and ups, and of downs, as many as are wanted; and the host waits for the router's logits */
    uint64_t syncs;
    launches_of(w, &experts[0], 3, &syncs);
    CHECK_EQ(syncs, 2);
    puts("few launches: 10 of a dense layer, 13 of one with experts; the host waits once");
}

/* ---- experts chosen on the device: by each kind of router, by few rows; and by the host where they are more, or where it looks on */

static void routes(struct world *w)
{
    static const struct way ways[] = {{"d", 1, 0, 1, 0}, {"d", 1, 0, 2, 0}, {"d", 1, 0, N, 0}};
    static const struct { const char *arch, *type; uint32_t n, used, shared; } is[] = {
        {"qwen2moe", "Q4_K_M", 12, 3, 256}, {"qwen3moe", "Q8_0", 40, 5, 0}, {"gpt-oss", "Q8_0", 13, 3, 0}, {"llama", "F16", 8, 2, 0},
        {"glm4moe", "Q8_0", 12, 3, 512}, {"minimax-m2", "Q8_0", 9, 2, 0}, {"granitemoe", "Q4_K_M", 12, 3, 256}, {"qwen3moe", "Q8_0", 1, 1, 0},
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct mk_options make = small_model(is[i].type, 2);
        make.arch = is[i].arch;
        make.experts = is[i].n;
        make.experts_used = is[i].used;
        make.shared_ff = is[i].shared;
        make.window = 3;
        make.scales = i % 2;
        make.dense = !strcmp(make.arch, "glm4moe");
        const struct rig_options o = {.make = make, .chunk_bytes = 20000, .max_rows = N};
        free(same_every_way(w, &o, ways, sizeof ways / sizeof *ways, "chosen on the device,", make.arch));
    }
    puts("experts chosen on the device: bits equal");
}

int main(int argc, char **argv)
{
    struct world w;
    CHECK(argc == 2);
    setvbuf(stdout, NULL, _IOLBF, 0);
    world_open(&w, argv[1]);
    launches(&w);
    routes(&w);
    gpu_close(&w.gpu);
    return 0;
}
