/* SPDX-License-Identifier: Apache-2.0 */
/* Draft trees: rows of a session that share positions give the values of the same tokens one after another, bit for
 * bit; an accepted path stays, the rest is forgotten. */
#include "shm/region.h" /* NTX_MAP_WORDS */
#include "tests/unit/pass/trees.h"

/* ---- trees against chains */

static void same_as_chains(const struct rig_options *of)
{
    static const uint32_t bases[] = {1, 27, 249}; /* nearly from the beginning; across the end of a block; of a part */
    struct rig r;
    rig_open(&r, of);
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        tree_same_as_chains(&r, bases[i], of->make.type);
    rig_close(&r);
}

static void of_all_kinds(void)
{
    static const struct {
        const char *arch, *type, *kernel;
        enum ntx_kv_type kv;
        uint32_t head_dim, experts, threads;
        bool windows;
    } is[] = {
        {"llama", "F32", NULL, NTX_KV_F16, 0, 0, 2, false},
        {"llama", "Q8_0", NULL, NTX_KV_Q8_0, 0, 0, 1, false},
        {"qwen3", "Q4_K_M", "generic", NTX_KV_Q8_0, 96, 0, 3, false},
        {"qwen3", "F16", "avx2", NTX_KV_Q8_0, 128, 0, 2, false},
        {"gpt-oss", "Q8_0", NULL, NTX_KV_F16, 64, 6, 2, false},
        {"gpt-oss", "Q8_0", NULL, NTX_KV_Q8_0, 64, 6, 2, false},
        {"qwen3moe", "Q4_K", NULL, NTX_KV_F16, 0, 6, 2, false},
        {"gpt-oss", "F32", NULL, NTX_KV_Q8_0, 64, 6, 2, true},
        {"gpt-oss", "Q8_0", NULL, NTX_KV_F16, 64, 6, 1, true},
        {"llama", "Q8_0", NULL, NTX_KV_Q4_0, 0, 0, 1, false},
        {"qwen3", "Q4_K_M", "avx2", NTX_KV_Q4_0, 96, 0, 3, false},
        {"gpt-oss", "F32", NULL, NTX_KV_Q4_0, 64, 6, 2, true},
        {"deepseek2", "Q8_0", NULL, NTX_KV_F16, 96, 8, 2, false},
        {"deepseek32", "Q8_0", NULL, NTX_KV_F16, 96, 8, 2, false},
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options o = {.make = rig_model(),
                                .kv_type = is[i].kv,
                                .kernel = rig_kernel(is[i].kernel),
                                .threads = is[i].threads,
                                .windows = is[i].windows};
        if (!ntx_cpu_pick(o.kernel))
            continue;
        if (!strcmp(is[i].arch, "deepseek2"))
            o.make = rig_mla();
        if (!strcmp(is[i].arch, "deepseek32"))
            o.make = rig_choosing();
        o.make.arch = is[i].arch;
        o.make.type = is[i].type;
        o.make.layers = 2;
        o.make.window = 40;
        o.make.head_dim = is[i].head_dim;
        o.make.experts = is[i].experts;
        o.make.ff = 256;
        same_as_chains(&o);
    }
}

/* ---- layers that rows skip: holes are in slots, too */

enum { PROBE = 1 };

/* A token skips layers by its number. */
static void decide(void *ctx, const struct ntx_batch *b, uint64_t *skip)
{
    (void)ctx;
    for (uint32_t i = 0; i < b->n_rows; i++)
        skip[i * NTX_MAP_WORDS] = (uint64_t)(b->rows[i].token % 4) << (PROBE + 1);
}

static void same_with_skips(void)
{
    for (int propagate = 0; propagate < 2; propagate++) {
        struct rig_options o = {.make = rig_model(), .kv_type = propagate ? NTX_KV_Q8_0 : NTX_KV_F16};
        o.make.type = "Q8_0";
        o.skip = (struct ntx_skip_hooks){.probe_layer = PROBE, .propagate = propagate, .decide = decide};
        same_as_chains(&o);
        o.make = rig_choosing();
        o.make.arch = "glm-dsa";
        o.make.type = "Q8_0";
        o.make.layers = 4;
        o.make.index_every = 2; /* a layer with an indexer may be skipped, and the one that uses its top-k not */
        o.kv_type = NTX_KV_F16;
        same_as_chains(&o);
    }
}

/* ---- invalid trees */

static void refused(void)
{
    struct rig r;
    struct rig_options o = {.make = rig_model(), .ctx = 64};
    o.make.layers = 1;
    rig_open(&r, &o);
    struct ntx_kv_seq *kv = rig_seq(&r, 64);
    static const struct {
        uint32_t pos, n, path[3];
    } is[] = {
        {5, 2, {5, 5}},
        {5, 2, {4, 4}},
        {5, 2, {6, 5}},
        {5, 2, {3, 7}},
        {5, 2, {6, 64}},
        {1, 3, {0, 1, 2}},
        {5, NTX_PATH_MAX + 1, {0}},
        {64, 1, {64}},
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct ntx_row row = {.token = 3, .pos = is[i].pos, .n_path = is[i].n, .path = is[i].path, .kv = kv};
        CHECK_EQ(rig_run(&r, &row, 1), -22);
        CHECK(r.w.w.error.text[0]);
        CHECK_EQ(ntx_forward_commit(r.f, kv, is[i].pos + 1 - is[i].n, is[i].path, is[i].n), -22);
    }
    ntx_kv_seq_free(kv);
    rig_close(&r);
}

int main(void)
{
    of_all_kinds();
    same_with_skips();
    refused();
    return 0;
}
