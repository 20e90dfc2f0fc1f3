/* SPDX-License-Identifier: Apache-2.0 */
/* pass_kinds.c: whole passes of each kind of layer: experts, and the features of architectures that no other test
 * has. */
#include "tests/unit/cuda/pass.h"

void pass_mixtures(struct world *w, const struct mk_options *make, enum ntx_kv_type kv_type, const struct way *ways,
                   size_t n_ways, double prompts_off)
{
    const struct rig_options o = {.make = *make,
                                  .chunk_bytes = small_chunk(make),
                                  .kv_type = kv_type,
                                  .max_rows = N}; /* experts come in several groups */
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

/* Experts on the device, in place, and copied. A router of random weights may decide either way when a prompt is
 * rounded. */
void pass_experts(struct world *w)
{
    static const struct way ways[] = {{"hd", 1, 0, 5, 0}, {"dhs", 2, 4, N, 40}};
    static const struct mixture is[] = {
        {"qwen2moe", "Q4_K_M", 6, 3, 256}, {"llama", "F16", 4, 2, 0},      {"qwen3moe", "Q8_0", 5, 5, 0},
        {"gpt-oss", "Q8_0", 5, 3, 0},      {"glm4moe", "Q8_0", 6, 3, 512}, {"glm4moe", "Q4_K_M", 6, 3, 256},
        {"minimax-m2", "Q8_0", 6, 2, 0},   {"olmoe", "Q4_K_M", 5, 3, 0},   {"granitemoe", "Q8_0", 5, 3, 256},
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct mk_options make = small_mixture(&is[i], 1, i % 2);
        make.nextn = make.dense;
        pass_mixtures(w, &make, NTX_KV_F16, ways, 2, 1);
    }
}

/* Enough rows that experts, and matrices that are not widened, use the integer matrix units; such passes are also
 * cut at other places. The placement of chunks changes no bit. */
void pass_crowds(struct world *w)
{
    enum { ROWS = 41 };
    static const struct mixture is[] = {{"qwen2moe", "Q4_K_M", 6, 3, 256}, {"gpt-oss", "Q8_0", 5, 3, 0}};
    static const char *const mix[] = {"d", "dhs"};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct rig_options o = {.make = small_mixture(&is[i], 1, false), .kv_type = NTX_KV_F16, .max_rows = ROWS};
        o.chunk_bytes = small_chunk(&o.make);
        size_t n;
        float *want = logits_of(NULL, o, ROWS, ROWS, false, &n);
        for (uint32_t k = 0; k < 4; k++) {
            w->mix = mix[k % 2];
            w->in_flight = 2;
            w->share = UINT32_MAX;
            float *got = logits_of(w, o, ROWS, k < 2 ? ROWS : 23, false, &n);
            CHECK_MSG(!memcmp(got, want, n * sizeof *got), "%s, %u rows, mixture %s: not the CPU's bits (off by %g)",
                      is[i].arch, ROWS, w->mix, worst(got, want, n));
            free(got);
        }
        free(want);
    }
    puts("many rows of experts: bits equal");
}

/* ---- layers with steps that have no fused kernel: norms after attention and FFN, capped scores and logits, two
 * tables of angles, widths and K and V by layer, experts beside a dense FFN, inputs of each layer; matrices that are
 * one in the file; weighted inputs of experts; MLA with split and fused matrices; recurrent states */

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

struct mk_options pass_mla(const char *type, bool joined, uint32_t q_lora)
{
    struct mk_options make = rig_mla();
    make.type = type;
    make.heads = 4;
    make.layers = 2;
    make.kv_joined = joined;
    make.q_lora = q_lora;
    return make;
}

/* Delta nets, and attention with a gate in every third layer. Of the last layer rows that nobody asks anything leave K,
 * V or state alone: of four it is a delta net. */
static struct mk_options recurrent(const char *arch, const char *type, uint32_t layers)
{
    struct mk_options make = small_model(type, layers);
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

/* Attention to an indexer's top-k: of each layer, or of every second layer for the next one, too. */
struct mk_options pass_choosing(const char *arch, const char *type, uint32_t most, uint32_t every)
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

/* Delta nets with a decay for each key, and MLA without RoPE. */
static struct mk_options kda(void)
{
    struct mk_options make = rig_kda();
    make.type = "Q8_0";
    make.heads = 2;
    make.layers = 2;
    return make;
}

/* Such with bounded decays made by one product, and gates of MLA's heads. */
static struct mk_options ling(void)
{
    struct mk_options make = kda();
    make.arch = "bailingmoe3";
    make.shared_ff = 256;
    return make;
}

/* Windows with other heads and another RoPE, softplus gates; or scaled V and sinks. */
static struct mk_options by_layer(const char *arch)
{
    struct mk_options make = step35();
    make.arch = arch;
    make.qk_norms = false;
    if (!strcmp(arch, "mimo2")) {
        make.full_kv = 1;
        make.value_dim = 16;
    }
    return make;
}

/* Such, and positions chosen some at a time, in several residual streams. */
struct mk_options pass_streamed(void)
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

void pass_architectures(struct world *w)
{
    static const struct way ways[] = {{"dhs", 2, 4, 5, 40}, {"d", 1, 0, N, 0}};
    const struct mk_options all[] = {
        other("gemma2", "Q8_0", 2),
        other("gemma3", "Q4_K_M", 6),
        gemma4(0),
        gemma4(1),
        gemma4(2),
        other("phi3", "Q4_K_M", 2),
        other("llama4", "Q8_0", 4),
        pass_mla("Q8_0", false, 0),
        pass_mla("Q4_K_M", true, 64),
        pass_mla("F16", false, 64),
        other("apertus", "Q8_0", 2),
        other("cohere2", "Q8_0", 4),
        recurrent("qwen3next", "Q8_0", 3),
        recurrent("qwen35", "Q8_0", 4),
        recurrent("qwen35moe", "Q8_0", 3),
        deepseek(),
        step35(),
        pass_choosing("deepseek32", "Q8_0", 3, 0),
        pass_choosing("glm-dsa", "Q4_K_M", 4, 2),
        pass_choosing("hy_v4", "Q8_0", 2, 2),
        kda(),
        ling(),
        by_layer("laguna"),
        by_layer("mimo2"),
        pass_streamed(),
        blocks(),
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct rig_options o = {.make = all[i], .chunk_bytes = small_chunk(&all[i]), .max_rows = N};
        free(same_every_way(w, &o, ways, i % 4 ? 1 : 2, all[i].arch, all[i].type));
        printf("%s %s: bits equal\n", all[i].arch, all[i].type);
    }
    pass_mixtures(w, &all[0], NTX_KV_Q8_0, ways, 1, 0.05);
    pass_mixtures(w, &all[7], NTX_KV_F16, ways, 1, 1);
}

/* ---- K that stand for several positions, of which some are chosen; behind a window that goes round */

void pass_pooled(struct world *w)
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
