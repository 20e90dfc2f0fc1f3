/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c: the keys of an architecture's files. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mkmodel/describe_impl.h"

static const struct {
    const char *arch;
    unsigned keys;
} own_keys[] = {
    {"llama", UNSAID_LENGTH},
    {"llama-relu", UNSAID_LENGTH},
    {"qwen2", UNSAID_LENGTH},
    {"qwen2moe", UNSAID_LENGTH | SHARED_WIDTH},
    {"gpt-oss", WINDOW},
    {"glm4moe", SHARED_COUNT | SIGMOID | DENSE},
    {"minimax-m2", SIGMOID},
    {"minimax-m3", SHARED_COUNT | SIGMOID | DENSE},
    {"mistral3", TEMPERATURE},
    {"granite", SCALES},
    {"granitemoe", SCALES | SHARED_WIDTH},
    {"granitehybrid", SCALES | SHARED_WIDTH | SCANS},
    {"falcon-h1", SCANS},
    {"nemotron_h", SCANS | ALONE},
    {"nemotron_h_moe", SCANS | ALONE | SHARED_WIDTH | SIGMOID},
    {"lfm2", SHORT},
    {"lfm2moe", SHORT | SIGMOID | DENSE},
    {"gemma2", WINDOW | CAPS | EMBED_SCALED},
    {"gemma3", WINDOW | WINDOW_BASE | EMBED_SCALED},
    {"deepseek", SHARED_COUNT | DENSE},
    {"deepseek2", SHARED_COUNT | DENSE | MLA},
    {"mistral4", SHARED_COUNT | DENSE | MLA},
    {"deepseek32", SHARED_COUNT | DENSE | MLA | SIGMOID | CHOICE},
    {"glm-dsa", SHARED_COUNT | DENSE | MLA | SIGMOID | CHOICE},
    {"deepseek4", SHARED_COUNT | WINDOW | POOLED},
    {"dbrx", MEANS},
    {"kimi-k3", SHARED_COUNT | DENSE | MLA | SIGMOID | KDA | BOUND},
    {"kimi-linear", SHARED_COUNT | DENSE | MLA | SIGMOID | KDA},
    {"glm5-next", SHARED_COUNT | DENSE | MLA | SIGMOID | KDA | CHOICE | STREAMED},
    {"qwen3next", SHARED_WIDTH | DELTA},
    {"qwen35", DELTA | SECTIONS},
    {"qwen35moe", SHARED_WIDTH | DELTA | SECTIONS},
    {"qwen4exp", SHARED_WIDTH | DELTA | SECTIONS | BLOCKS},
    {"gemma4", GEMMA4 | WINDOW | WINDOW_BASE | EMBED_SCALED},
    {"llama4", EXPERT_EVERY},
    {"hy_v4", SHARED_COUNT | DENSE | MLA | SIGMOID | CHOICE | GATED},
    {"step35", STEP | BY_LAYER | SHARED_WIDTH | WINDOW | WINDOW_BASE | SIGMOID | DENSE},
    {"qwen2vl", SECTIONS},
    {"qwen3vl", SECTIONS},
    {"qwen3vlmoe", SECTIONS},
    {"hunyuan-moe", SHARED_WIDTH},
    {"hy_v3", SHARED_WIDTH | SIGMOID | DENSE},
    {"dots1", SHARED_COUNT | SIGMOID | DENSE},
    {"ernie4_5-moe", SHARED_WIDTH | DENSE | EXPERT_EVERY},
    {"afmoe", SHARED_COUNT | SIGMOID | DENSE | WINDOW | EMBED_SCALED},
    {"exaone-moe", SHARED_WIDTH | SIGMOID | DENSE | WINDOW},
    {"bailingmoe2", SHARED_COUNT | SIGMOID | DENSE},
    {"bailingmoe3", SHARED_COUNT | DENSE | MLA | SIGMOID | KDA | BOUND},
    {"laguna", BY_LAYER | SHARED_WIDTH | WINDOW | WINDOW_BASE | SIGMOID | DENSE},
    {"mimo2", BY_LAYER | WINDOW | WINDOW_BASE | SIGMOID | DENSE},
    {"apertus", XIELU},
    {"cohere2", WINDOW | MEANS | EMBED_SCALED},
    {"cohere2moe", WINDOW | MEANS | SHARED_WIDTH | SHARED_COUNT | SIGMOID | DENSE | EMBED_SCALED},
};

bool mk__says(const struct mk_options *o, unsigned key)
{
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        if (!strcmp(own_keys[i].arch, o->arch))
            return own_keys[i].keys & key;
    return false;
}

void mk__kv_u32(struct model *m, const char *suffix, uint32_t v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->o->arch, suffix);
    mk_kv_u32(m->f, key, v);
}

static void kv_f32(struct model *m, const char *suffix, float v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->o->arch, suffix);
    mk_kv_f32(m->f, key, v);
}

static void add_rope_keys(struct model *m, uint32_t orig)
{
    const struct mk_options *o = m->o;
    char key[96];
    kv_f32(m, "rope.freq_base", o->rope_base);
    const uint32_t rotated = o->rotated ? o->rotated : m->head;
    mk__kv_u32(m, "rope.dimension_count", mk__says(o, STREAMED) ? 0 : rotated);
    if (is_phi3(o) && o->rope_freqs) {
        mk__kv_u32(m, "rope.scaling.original_context_length", orig);
        kv_f32(m, "rope.scaling.attn_factor", 1.19f);
    }
    if (!strcmp(o->rope_scaling, "none"))
        return;
    snprintf(key, sizeof key, "%s.rope.scaling.type", o->arch);
    mk_kv_str(m->f, key, o->rope_scaling);
    kv_f32(m, "rope.scaling.factor", o->rope_factor);
    mk__kv_u32(m, "rope.scaling.original_context_length", orig);
    if (o->yarn_magnitude != 0)
        kv_f32(m, "rope.scaling.yarn_attn_factor", o->yarn_magnitude);
    if (mk__says(o, MLA) && o->log_multiplier != 0)
        kv_f32(m, "rope.scaling.yarn_log_multiplier", o->log_multiplier);
    if (!mk__says(o, TEMPERATURE))
        return;
    kv_f32(m, "attention.temperature_scale", 0.1f);
    kv_f32(m, "rope.scaling.yarn_log_multiplier", 1);
}

static void kv_bool(struct model *m, const char *suffix, bool v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->o->arch, suffix);
    mk_kv_bool(m->f, key, v);
}

/* Adds M-RoPE sections: pairs alternate between three. */
static void add_sections(struct model *m)
{
    uint32_t pairs = or_else(m->o->rotated, m->head) / 2;
    const uint32_t n[4] = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
    char key[96];
    snprintf(key, sizeof key, "%s.rope.dimension_sections", m->o->arch);
    mk_kv_arr(m->f, key, NTX_GGUF_I32, n, 4);
}

static void add_delta_keys(struct model *m)
{
    const struct ntx_hparams hp = m->hp;
    mk__kv_u32(m, "ssm.conv_kernel", hp.delta.taps);
    mk__kv_u32(m, "ssm.state_size", hp.delta.head);
    mk__kv_u32(m, "ssm.group_count", hp.delta.key_heads);
    mk__kv_u32(m, "ssm.time_step_rank", hp.delta.heads);
    mk__kv_u32(m, "ssm.inner_size", hp.delta.heads * hp.delta.head);
    mk__kv_u32(m, "full_attention_interval", attention_every(m->o));
}

static void kv_u32s(struct model *m, const char *suffix, const uint32_t *v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->o->arch, suffix);
    mk_kv_arr(m->f, key, NTX_GGUF_U32, v, m->o->layers);
}

static void add_kda_keys(struct model *m)
{
    uint32_t kv[NTX_MAX_LAYERS + 16];
    char key[96];
    for (uint32_t l = 0; l < m->o->layers + m->o->nextn; l++)
        kv[l] = l >= m->o->layers || !ntx_is_recurrent(&m->hp, l);
    snprintf(key, sizeof key, "%s.attention.head_count_kv", m->o->arch);
    mk_kv_arr(m->f, key, NTX_GGUF_U32, kv, m->o->layers + m->o->nextn);
    mk__kv_u32(m, "ssm.conv_kernel", m->hp.delta.taps);
    mk__kv_u32(m, "kda.head_dim", m->hp.delta.head);
}

static void add_scan_keys(struct model *m)
{
    mk__kv_u32(m, "ssm.conv_kernel", m->hp.delta.taps);
    mk__kv_u32(m, "ssm.state_size", m->hp.delta.keys);
    if (!is_jamba(m->o))
        mk__kv_u32(m, "ssm.group_count", m->hp.delta.key_heads);
    mk__kv_u32(m, "ssm.time_step_rank", is_jamba(m->o) ? m->hp.delta.rank : m->hp.delta.heads);
    mk__kv_u32(m, "ssm.inner_size", m->hp.delta.heads * m->hp.delta.head);
}

/* Whether recurrent layers are told by a list of K and V heads. */
static bool lists_kv(const struct model *m)
{
    return (mk__says(m->o, SCANS) && !m->hp.recurrent_attends) || mk__says(m->o, SHORT) || is_jamba(m->o) ||
           is_deci(m->o);
}

static void add_kv_list(struct model *m)
{
    uint32_t kv[NTX_MAX_LAYERS];
    for (uint32_t l = 0; l < m->o->layers; l++)
        kv[l] = ntx_is_recurrent(&m->hp, l) && !is_deci(m->o) ? 0 : ntx_dims_of(&m->hp, l).n_head_kv;
    kv_u32s(m, "attention.head_count_kv", kv);
}

static void add_head_list(struct model *m)
{
    uint32_t heads[NTX_MAX_LAYERS];
    for (uint32_t l = 0; l < m->o->layers; l++)
        heads[l] = ntx_dims_of(&m->hp, l).n_head;
    kv_u32s(m, "attention.head_count", heads);
}

static void add_ff_list(struct model *m)
{
    uint32_t ff[NTX_MAX_LAYERS];
    for (uint32_t l = 0; l < m->o->layers; l++)
        ff[l] = ntx_dims_of(&m->hp, l).n_ff;
    kv_u32s(m, "feed_forward_length", ff);
}

static void add_choice_keys(struct model *m)
{
    uint32_t chooses[NTX_MAX_LAYERS];
    mk__kv_u32(m, "attention.indexer.head_count", m->hp.index.heads);
    mk__kv_u32(m, "attention.indexer.key_length", m->hp.index.head);
    mk__kv_u32(m, "attention.indexer.top_k", m->hp.index.most * or_else(m->hp.index.every, 1));
    for (uint32_t l = 0; l < m->o->layers; l++)
        chooses[l] = ntx_has_indexer(&m->hp, l);
    if (m->o->index_every || mk__says(m->o, GATED))
        kv_u32s(m, "attention.indexer.types", chooses);
}

static void add_stream_keys(struct model *m)
{
    mk__kv_u32(m, "hyper_connection.count", NTX_STREAMS);
    if (m->hp.streams.rounds)
        mk__kv_u32(m, "hyper_connection.sinkhorn_iterations", m->hp.streams.rounds);
    else
        kv_f32(m, "hyper_connection.magnitude", 1.5f);
    kv_f32(m, "hyper_connection.epsilon", 1e-6f);
}

static void add_limits(struct model *m)
{
    const struct mk_options *o = m->o;
    float limits[NTX_MAX_LAYERS + 16];
    char key[96];
    for (uint32_t l = 0; l < o->layers + o->nextn; l++)
        limits[l] = 1.5f;
    snprintf(key, sizeof key, "%s.swiglu_clamp_exp", o->arch);
    mk_kv_arr(m->f, key, NTX_GGUF_F32, limits, o->layers + o->nextn);
}

static void add_streamed_keys(struct model *m)
{
    const struct mk_options *o = m->o;
    add_limits(m);
    mk__kv_u32(m, "attention.indexer.kpool", m->hp.index.every);
    kv_bool(m, "attention.indexer.kpool_select_tail", true);
    kv_f32(m, "attention.layer_norm_epsilon", 1e-6f);
    if (o->delta_bound != 0)
        kv_f32(m, "kda.gate_lower_bound", -o->delta_bound);
    add_stream_keys(m);
}

static void kv_list(struct model *m, const char *suffix, uint32_t elem, const void *v, size_t n)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->o->arch, suffix);
    mk_kv_arr(m->f, key, elem, v, n);
}

static void add_block_keys(struct model *m)
{
    const struct ntx_hparams *hp = &m->hp;
    uint32_t ratios[NTX_MAX_LAYERS];
    for (uint32_t l = 0; l < m->o->layers; l++)
        ratios[l] = ntx_has_indexer(hp, l) ? hp->index.every : 0;
    kv_u32s(m, "attention.compress_ratios", ratios);
    mk__kv_u32(m, "attention.indexer.head_count", hp->index.heads);
    mk__kv_u32(m, "attention.indexer.key_length", hp->index.head);
    mk__kv_u32(m, "attention.indexer.top_k", hp->index.most * hp->index.every);
    mk__kv_u32(m, "hyper_connection.count", NTX_STREAMS);
    mk__kv_u32(m, "hyper_connection.low_rank", hp->streams.low);
}

/* Needs the vocabulary: products of hashes stay below 2^63. */
void mk__add_gram_keys(struct model *m)
{
    const struct ntx_hparams *hp = &m->hp;
    uint64_t by[NTX_GRAM_MAX], first[NTX_GRAM_HEADS_MAX], size[NTX_GRAM_HEADS_MAX];
    const uint32_t layer = hp->grams.layer - 1;
    if (!hp->grams.layer)
        return;
    for (uint32_t i = 0; i < hp->grams.n; i++)
        by[i] = (i + 1) * 0x9e3779b97f4a7c15u % ((uint64_t)INT64_MAX / hp->n_vocab) | 1;
    for (uint32_t h = 0; h < hp->grams.heads; h++) {
        first[h] = hp->grams.first[h];
        size[h] = hp->grams.size[h];
    }
    kv_list(m, "ple.layers", NTX_GGUF_I32, &layer, 1);
    mk__kv_u32(m, "ple.ngram_size", hp->grams.n);
    mk__kv_u32(m, "ple.heads_per_ngram", hp->grams.heads / (hp->grams.n - 1));
    mk__kv_u32(m, "ple.conv_kernel", hp->grams.taps);
    mk__kv_u32(m, "ple.eos_token_id", hp->grams.eos);
    mk__kv_u32(m, "embedding_length_per_layer_input", hp->grams.width);
    kv_list(m, "ple.layer_multipliers", NTX_GGUF_U64, by, hp->grams.n);
    kv_list(m, "ple.head_offsets", NTX_GGUF_U64, first, hp->grams.heads);
    kv_list(m, "ple.head_vocab_sizes", NTX_GGUF_U64, size, hp->grams.heads);
}

static void add_pooled_keys(struct model *m)
{
    const struct mk_options *o = m->o;
    uint32_t ratios[NTX_MAX_LAYERS];
    float limits[NTX_MAX_LAYERS];
    char key[96];
    for (uint32_t l = 0; l < o->layers + o->nextn; l++) {
        ratios[l] = m->hp.pool[l];
        limits[l] = 1.5f;
    }
    snprintf(key, sizeof key, "%s.attention.compress_ratios", o->arch);
    mk_kv_arr(m->f, key, NTX_GGUF_U32, ratios, o->layers + o->nextn);
    snprintf(key, sizeof key, "%s.swiglu_clamp_exp", o->arch);
    mk_kv_arr(m->f, key, NTX_GGUF_F32, limits, o->layers + o->nextn);
    mk__kv_u32(m, "attention.q_lora_rank", o->q_lora);
    mk__kv_u32(m, "attention.indexer.head_count", m->hp.index.heads);
    mk__kv_u32(m, "attention.indexer.key_length", m->hp.index.head);
    mk__kv_u32(m, "attention.indexer.top_k", or_else(o->index_most, 24));
    mk__kv_u32(m, "attention.output_group_count", m->hp.o_parts);
    mk__kv_u32(m, "attention.output_lora_rank", m->hp.o_lora);
    kv_f32(m, "attention.compress_rope_freq_base", 16 * o->rope_base);
    add_stream_keys(m);
    mk__kv_u32(m, "hash_layer_count", o->hashed);
    mk__kv_u32(m, "embedding_length_out", NTX_STREAMS * o->embd);
    if (o->expert_scale == 0)
        kv_f32(m, "expert_weights_scale", 1.5f);
    mk__kv_u32(m, "expert_gating_func", 4);
    kv_bool(m, "expert_weights_norm", true);
}

static void add_gemma4_keys(struct model *m)
{
    const struct mk_options *o = m->o;
    uint32_t ff[NTX_MAX_LAYERS], kv[NTX_MAX_LAYERS];
    uint8_t pattern[NTX_MAX_LAYERS];
    char key[96];
    for (uint32_t l = 0; l < o->layers; l++) {
        ff[l] = m->dims[l].n_ff;
        kv[l] = m->dims[l].n_head_kv;
        pattern[l] = ntx_windowed(&m->hp, l);
    }
    kv_u32s(m, "feed_forward_length", ff);
    kv_u32s(m, "attention.head_count_kv", kv);
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", o->arch);
    mk_kv_arr(m->f, key, NTX_GGUF_BOOL, pattern, o->layers);
    mk__kv_u32(m, "attention.key_length_swa", m->dims[0].head_k);
    mk__kv_u32(m, "attention.value_length_swa", m->dims[0].head_v);
    mk__kv_u32(m, "rope.dimension_count_swa", m->dims[0].head_k);
    mk__kv_u32(m, "attention.shared_kv_layers", o->shared_kv);
    mk__kv_u32(m, "embedding_length_per_layer_input", o->layer_input);
    kv_f32(m, "final_logit_softcapping", 8);
}

/* Heads and windows of each layer. */
static void add_layer_keys(struct model *m)
{
    const struct mk_options *o = m->o;
    const uint32_t n = o->layers + o->nextn;
    uint32_t heads[NTX_MAX_LAYERS + 16], kv[NTX_MAX_LAYERS + 16];
    uint8_t pattern[NTX_MAX_LAYERS + 16];
    for (uint32_t l = 0; l < n; l++) {
        heads[l] = m->dims[l].n_head;
        kv[l] = m->dims[l].n_head_kv;
        pattern[l] = ntx_windowed(&m->hp, l);
    }
    kv_list(m, "attention.head_count", NTX_GGUF_U32, heads, n);
    kv_list(m, "attention.head_count_kv", NTX_GGUF_U32, kv, n);
    kv_list(m, "attention.sliding_window_pattern", NTX_GGUF_BOOL, pattern, n);
    if (o->rotated && !strcmp(o->arch, "laguna"))
        mk__kv_u32(m, "rope.dimension_count_swa", m->head);
    if (!strcmp(o->arch, "mimo2"))
        kv_f32(m, "attention.value_scale", 0.7f);
}

static void add_step_keys(struct model *m)
{
    const uint32_t n = m->o->layers + m->o->nextn;
    float limits[NTX_MAX_LAYERS + 16], shared_limits[NTX_MAX_LAYERS + 16];
    for (uint32_t l = 0; l < n; l++) {
        limits[l] = l % 2 ? 0.5f : 0;
        shared_limits[l] = l % 3 == 1 ? 0.75f : 0;
    }
    kv_list(m, "swiglu_clamp_exp", NTX_GGUF_F32, limits, n);
    kv_list(m, "swiglu_clamp_shexp", NTX_GGUF_F32, shared_limits, n);
}

/* The numbers of an activation for each layer; these keys have no architecture before them. */
static void add_xielu_keys(struct model *m)
{
    float p[4][NTX_MAX_LAYERS];
    static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    for (uint32_t l = 0; l < m->o->layers; l++) {
        p[0][l] = 0.2f + 0.1f * (float)l;
        p[1][l] = -1 + 0.3f * (float)l;
        p[2][l] = 0.5f;
        p[3][l] = -1e-6f;
    }
    for (int i = 0; i < 4; i++)
        mk_kv_arr(m->f, keys[i], NTX_GGUF_F32, p[i], m->o->layers);
}

static void add_router_keys(struct model *m)
{
    const struct mk_options *o = m->o;
    if (mk__says(o, SHARED_COUNT))
        mk__kv_u32(m, "expert_shared_count", shared_ff(o) / expert_ff(o));
    if (mk__says(o, DENSE))
        mk__kv_u32(m, "leading_dense_block_count", o->experts ? o->dense : o->layers);
    if (o->nextn)
        mk__kv_u32(m, "nextn_predict_layers", o->nextn);
    if (o->expert_scale != 0 && !is_grove(o))
        kv_f32(m, "expert_weights_scale", o->expert_scale);
    if (o->expert_groups) {
        mk__kv_u32(m, "expert_group_count", o->expert_groups);
        mk__kv_u32(m, "expert_group_used_count", o->expert_groups_used);
    }
    if (!mk__says(o, SIGMOID) && !o->sigmoid)
        return;
    mk__kv_u32(m, "expert_gating_func", 2);
    kv_bool(m, "expert_weights_norm", true);
}

/* Adds MLA keys in the old or the new form (model/arch/deepseek2.c). */
static void add_mla_keys(struct model *m)
{
    const struct mk_options *o = m->o;
    mk__kv_u32(m, "attention.kv_lora_rank", o->kv_lora);
    if (o->q_lora)
        mk__kv_u32(m, "attention.q_lora_rank", o->q_lora);
    mk__kv_u32(m, "attention.key_length", o->kv_joined ? m->head : o->kv_lora + o->rotated);
    mk__kv_u32(m, "attention.value_length", o->kv_joined ? value_dim(o, m->head) : o->kv_lora);
    if (o->kv_joined)
        return;
    mk__kv_u32(m, "attention.key_length_mla", m->head);
    mk__kv_u32(m, "attention.value_length_mla", value_dim(o, m->head));
}

/* Heads and widths. */
static void add_width_keys(struct model *m)
{
    const struct mk_options *o = m->o;
    if (is_gemma4(o))
        add_gemma4_keys(m);
    else if (mk__says(o, ALONE) || is_deci(o))
        add_ff_list(m);
    else
        mk__kv_u32(m, "feed_forward_length", o->experts && !strcmp(o->arch, "llama") ? expert_ff(o) : o->ff);
    const uint32_t mla_kv_heads = o->kv_joined ? o->heads : 1;
    if (mk__says(o, BY_LAYER))
        add_layer_keys(m);
    else if (is_deci(o))
        add_head_list(m);
    else
        mk__kv_u32(m, "attention.head_count", o->heads);
    if (mk__says(o, STEP))
        add_step_keys(m);
    if (mk__says(o, XIELU))
        add_xielu_keys(m);
    if (is_k3(o)) {
        mk__kv_u32(m, "attn_res.block_size", 2);
        kv_f32(m, "activation.situ_beta", 1.5f);
        kv_f32(m, "activation.situ_linear_beta", 2);
    }
    if (mk__says(o, BOUND))
        kv_f32(m, "kda.gate_lower_bound", o->delta_bound != 0 ? -o->delta_bound : -5);
    if (mk__says(o, KDA))
        add_kda_keys(m);
    else if (lists_kv(m))
        add_kv_list(m);
    else if (!is_gemma4(o) && !mk__says(o, BY_LAYER))
        mk__kv_u32(m, "attention.head_count_kv", mk__says(o, MLA) ? mla_kv_heads : o->kv);
    if (mk__says(o, MEANS)) {
        kv_f32(m, "attention.layer_norm_epsilon", 1e-5f);
        kv_f32(m, is_dbrx(o) ? "attention.clamp_kqv" : "logit_scale", 2);
    } else {
        kv_f32(m, "attention.layer_norm_rms_epsilon", 1e-5f);
    }
    if (mk__says(o, ALONE)) /* llama.cpp wants this one */
        kv_f32(m, "attention.layer_norm_epsilon", 1e-5f);
    if (mk__says(o, MLA)) {
        add_mla_keys(m);
    } else if (m->head * o->heads != o->embd || !mk__says(o, UNSAID_LENGTH)) {
        mk__kv_u32(m, "attention.key_length", m->head);
        mk__kv_u32(m, "attention.value_length", value_dim(o, m->head));
    }
}

static void add_expert_keys(struct model *m)
{
    const struct mk_options *o = m->o;
    if (o->experts) {
        mk__kv_u32(m, "expert_count", o->experts);
        mk__kv_u32(m, "expert_used_count", o->experts_used);
    }
    if ((o->experts || mk__says(o, MLA)) && strcmp(o->arch, "llama"))
        mk__kv_u32(m, "expert_feed_forward_length", expert_ff(o));
    if (is_k3(o))
        mk__kv_u32(m, "expert_latent_length", m->hp.n_latent);
    else if (o->latent)
        mk__kv_u32(m, "moe_latent_size", o->latent);
    if (o->experts && mk__says(o, SHARED_WIDTH))
        mk__kv_u32(m, "expert_shared_feed_forward_length", shared_ff(o));
    if (is_grove(o)) {
        mk__kv_u32(m, "expert_chunk_feed_forward_length", m->hp.adjugate.ff);
        mk__kv_u32(m, "experts_per_group", m->hp.adjugate.each);
        kv_f32(m, "expert_group_scale", o->expert_scale != 0 ? o->expert_scale : 0.5f);
    }
}

/* Windows, chunks and scales of attention. */
static void add_attention_keys(struct model *m)
{
    const struct mk_options *o = m->o;
    if (mk__says(o, WINDOW))
        mk__kv_u32(m, "attention.sliding_window", o->window);
    if (mk__says(o, CAPS)) {
        kv_f32(m, "attn_logit_softcapping", 5);
        kv_f32(m, "final_logit_softcapping", 8);
    }
    if (mk__says(o, EXPERT_EVERY))
        mk__kv_u32(m, "interleave_moe_layer_step", o->expert_every ? o->expert_every : 1);
    if (o->chunk)
        mk__kv_u32(m, "attention.sliding_window", o->chunk);
    if (o->chunk_pattern)
        mk__kv_u32(m, "attention.sliding_window_pattern", o->chunk_pattern);
    if (o->temperature) {
        kv_f32(m, "attention.temperature_scale", 0.1f);
        mk__kv_u32(m, "attention.temperature_length", o->temperature);
    }
    if (is_grok(o)) {
        kv_f32(m, "embedding_scale", 3);
        kv_f32(m, "logit_scale", 0.4f);
        kv_f32(m, "attention.output_scale", 0.15f);
        kv_f32(m, "attn_logit_softcapping", 5);
        kv_f32(m, "router_logit_softcapping", 30);
        kv_f32(m, "final_logit_softcapping", 8);
        mk__kv_u32(m, "attention.temperature_length", 1024);
    }
    if (mk__says(o, WINDOW_BASE))
        kv_f32(m, "rope.freq_base_swa", o->rope_base / 4);
    if (mk__says(o, SCALES)) {
        kv_f32(m, "embedding_scale", 12);
        kv_f32(m, "residual_scale", 0.25f);
        kv_f32(m, "attention.scale", 0.1f);
        kv_f32(m, "logit_scale", 6);
    }
}

/* States, choices of positions, and residual streams. */
static void add_kept_keys(struct model *m)
{
    const struct mk_options *o = m->o;
    if (mk__says(o, DELTA))
        add_delta_keys(m);
    if (mk__says(o, SCANS) || is_jamba(o))
        add_scan_keys(m);
    if (chooses_blocks(o)) {
        mk__kv_u32(m, "attention.indexer.head_count", o->kv);
        mk__kv_u32(m, "attention.indexer.key_length", m->hp.index.head);
        mk__kv_u32(m, "attention.indexer.top_k", m->hp.index.most);
        mk__kv_u32(m, "attention.indexer.block_size", m->hp.index.block);
        mk__kv_u32(m, "attention.indexer.local_blocks", 1);
    }
    if (mk__says(o, SHORT))
        mk__kv_u32(m, "shortconv.l_cache", m->hp.delta.taps);
    if (chooses(o))
        add_choice_keys(m);
    if (mk__says(o, POOLED))
        add_pooled_keys(m);
    if (mk__says(o, STREAMED))
        add_streamed_keys(m);
    if (mk__says(o, GATED)) {
        add_limits(m);
        add_stream_keys(m);
    }
    if (mk__says(o, BLOCKS))
        add_block_keys(m);
    if (mk__says(o, SECTIONS))
        add_sections(m);
}

void mk__add_keys(struct model *m, uint32_t orig)
{
    const struct mk_options *o = m->o;
    mk_kv_str(m->f, "general.architecture", o->arch);
    mk_kv_str(m->f, "general.name", o->name);
    uint32_t *base = o->shared ? calloc(o->layers, sizeof *base) : NULL;
    if (base)
        mk_kv_arr(m->f, "ntx.delta.base", NTX_GGUF_U32, base, o->layers);
    free(base);
    mk_kv_u32(m->f, "general.file_type", m->recipe->file_type);
    mk_kv_u32(m->f, "general.quantization_version", 2);
    mk__kv_u32(m, "block_count", o->layers + o->nextn);
    mk__kv_u32(m, "context_length", o->ctx);
    mk__kv_u32(m, "embedding_length", o->embd);
    add_width_keys(m);
    add_expert_keys(m);
    add_attention_keys(m);
    add_kept_keys(m);
    add_router_keys(m);
    add_rope_keys(m, orig);
}
