/* plan_keys.c: the keys that an architecture's files have. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mkmodel/plan_impl.h"

static const struct { const char *arch; unsigned keys; } own_keys[] = {
    {"llama", UNSAID_LENGTH}, {"llama-relu", UNSAID_LENGTH}, {"qwen2", UNSAID_LENGTH}, {"qwen2moe", UNSAID_LENGTH | SHARED_WIDTH}, {"gpt-oss", WINDOW},
    {"glm4moe", SHARED_COUNT | SIGMOID | DENSE}, {"minimax-m2", SIGMOID}, {"mistral3", TEMPERATURE}, {"granite", SCALES},
    {"granitemoe", SCALES | SHARED_WIDTH}, {"gemma2", WINDOW | CAPS | EMBED_SCALED}, {"gemma3", WINDOW | WINDOW_BASE | EMBED_SCALED}, {"deepseek", SHARED_COUNT | DENSE}, {"deepseek2", SHARED_COUNT | DENSE | LATENT}, {"mistral4", SHARED_COUNT | DENSE | LATENT},
    {"deepseek32", SHARED_COUNT | DENSE | LATENT | SIGMOID | CHOICE}, {"glm-dsa", SHARED_COUNT | DENSE | LATENT | SIGMOID | CHOICE},
    {"deepseek4", SHARED_COUNT | WINDOW | POOLED},
    {"kimi-linear", SHARED_COUNT | DENSE | LATENT | SIGMOID | KDA},
    {"glm5-next", SHARED_COUNT | DENSE | LATENT | SIGMOID | KDA | CHOICE | STREAMED},
    {"qwen3next", SHARED_WIDTH | DELTA}, {"qwen35", DELTA | SECTIONS}, {"qwen35moe", SHARED_WIDTH | DELTA | SECTIONS},
    {"qwen4exp", SHARED_WIDTH | DELTA | SECTIONS | BLOCKS},
    {"gemma4", GEMMA4 | WINDOW | WINDOW_BASE | EMBED_SCALED},
    {"llama4", EXPERT_EVERY},
    {"hy_v4", SHARED_COUNT | DENSE | LATENT | SIGMOID | CHOICE | GATED},
    {"step35", STEP | SHARED_WIDTH | WINDOW | WINDOW_BASE | SIGMOID | DENSE},
};

bool mk__says(const struct mk_options *o, unsigned key)
{
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        if (!strcmp(own_keys[i].arch, o->arch))
            return own_keys[i].keys & key;
    return false;
}

void mk__kv_u32(struct plan *p, const char *suffix, uint32_t v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", p->o->arch, suffix);
    mk_kv_u32(p->f, key, v);
}

static void kv_f32(struct plan *p, const char *suffix, float v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", p->o->arch, suffix);
    mk_kv_f32(p->f, key, v);
}

static void add_rope_keys(struct plan *p, uint32_t orig)
{
    const struct mk_options *o = p->o;
    char key[96];
    kv_f32(p, "rope.freq_base", o->rope_base);
    mk__kv_u32(p, "rope.dimension_count", mk__says(o, STREAMED) ? 0 : o->rotated ? o->rotated : p->head);
    if (is_phi3(o) && o->rope_freqs) {
        mk__kv_u32(p, "rope.scaling.original_context_length", orig);
        kv_f32(p, "rope.scaling.attn_factor", 1.19f);
    }
    if (!strcmp(o->rope_scaling, "none"))
        return;
    snprintf(key, sizeof key, "%s.rope.scaling.type", o->arch);
    mk_kv_str(p->f, key, o->rope_scaling);
    kv_f32(p, "rope.scaling.factor", o->rope_factor);
    mk__kv_u32(p, "rope.scaling.original_context_length", orig);
    if (o->yarn_magnitude != 0)
        kv_f32(p, "rope.scaling.yarn_attn_factor", o->yarn_magnitude);
    if (mk__says(o, LATENT) && o->log_multiplier != 0)
        kv_f32(p, "rope.scaling.yarn_log_multiplier", o->log_multiplier);
    if (!mk__says(o, TEMPERATURE))
        return;
    kv_f32(p, "attention.temperature_scale", 0.1f);
    kv_f32(p, "rope.scaling.yarn_log_multiplier", 1);
}

static void kv_bool(struct plan *p, const char *suffix, bool v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", p->o->arch, suffix);
    mk_kv_bool(p->f, key, v);
}

/* Pairs take turns in three sections. */
static void add_sections(struct plan *p)
{
    uint32_t pairs = or_else(p->o->rotated, p->head) / 2;
    const uint32_t n[4] = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
    char key[96];
    snprintf(key, sizeof key, "%s.rope.dimension_sections", p->o->arch);
    mk_kv_arr(p->f, key, NTX_GGUF_I32, n, 4);
}

static void add_delta_keys(struct plan *p)
{
    const struct ntx_hparams hp = p->hp;
    mk__kv_u32(p, "ssm.conv_kernel", hp.delta.taps);
    mk__kv_u32(p, "ssm.state_size", hp.delta.head);
    mk__kv_u32(p, "ssm.group_count", hp.delta.key_heads);
    mk__kv_u32(p, "ssm.time_step_rank", hp.delta.heads);
    mk__kv_u32(p, "ssm.inner_size", hp.delta.heads * hp.delta.head);
    mk__kv_u32(p, "full_attention_interval", attention_every(p->o));
}

static void kv_u32s(struct plan *p, const char *suffix, const uint32_t *v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", p->o->arch, suffix);
    mk_kv_arr(p->f, key, NTX_GGUF_U32, v, p->o->layers);
}

static void add_kda_keys(struct plan *p)
{
    uint32_t kv[NTX_MAX_LAYERS + 16];
    char key[96];
    for (uint32_t l = 0; l < p->o->layers + p->o->nextn; l++)
        kv[l] = l >= p->o->layers || !ntx_is_recurrent(&p->hp, l);
    snprintf(key, sizeof key, "%s.attention.head_count_kv", p->o->arch);
    mk_kv_arr(p->f, key, NTX_GGUF_U32, kv, p->o->layers + p->o->nextn);
    mk__kv_u32(p, "ssm.conv_kernel", p->hp.delta.taps);
    mk__kv_u32(p, "kda.head_dim", p->hp.delta.head);
}

static void add_choice_keys(struct plan *p)
{
    uint32_t chooses[NTX_MAX_LAYERS];
    mk__kv_u32(p, "attention.indexer.head_count", p->hp.index.heads);
    mk__kv_u32(p, "attention.indexer.key_length", p->hp.index.head);
    mk__kv_u32(p, "attention.indexer.top_k", p->hp.index.most * or_else(p->hp.index.every, 1));
    for (uint32_t l = 0; l < p->o->layers; l++)
        chooses[l] = ntx_chooses(&p->hp, l);
    if (p->o->index_every || mk__says(p->o, GATED))
        kv_u32s(p, "attention.indexer.types", chooses);
}

static void add_stream_keys(struct plan *p)
{
    mk__kv_u32(p, "hyper_connection.count", NTX_STREAMS);
    if (p->hp.streams.rounds)
        mk__kv_u32(p, "hyper_connection.sinkhorn_iterations", p->hp.streams.rounds);
    else
        kv_f32(p, "hyper_connection.magnitude", 1.5f);
    kv_f32(p, "hyper_connection.epsilon", 1e-6f);
}

static void add_limits(struct plan *p)
{
    const struct mk_options *o = p->o;
    float limits[NTX_MAX_LAYERS + 16];
    char key[96];
    for (uint32_t l = 0; l < o->layers + o->nextn; l++)
        limits[l] = 1.5f;
    snprintf(key, sizeof key, "%s.swiglu_clamp_exp", o->arch);
    mk_kv_arr(p->f, key, NTX_GGUF_F32, limits, o->layers + o->nextn);
}

static void add_streamed_keys(struct plan *p)
{
    const struct mk_options *o = p->o;
    add_limits(p);
    mk__kv_u32(p, "attention.indexer.kpool", p->hp.index.every);
    kv_bool(p, "attention.indexer.kpool_select_tail", true);
    kv_f32(p, "attention.layer_norm_epsilon", 1e-6f);
    if (o->delta_bound != 0)
        kv_f32(p, "kda.gate_lower_bound", -o->delta_bound);
    add_stream_keys(p);
}

static void kv_list(struct plan *p, const char *suffix, uint32_t elem, const void *v, size_t n)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", p->o->arch, suffix);
    mk_kv_arr(p->f, key, elem, v, n);
}

static void add_block_keys(struct plan *p)
{
    const struct ntx_hparams *hp = &p->hp;
    uint32_t ratios[NTX_MAX_LAYERS];
    for (uint32_t l = 0; l < p->o->layers; l++)
        ratios[l] = ntx_chooses(hp, l) ? hp->index.every : 0;
    kv_u32s(p, "attention.compress_ratios", ratios);
    mk__kv_u32(p, "attention.indexer.head_count", hp->index.heads);
    mk__kv_u32(p, "attention.indexer.key_length", hp->index.head);
    mk__kv_u32(p, "attention.indexer.top_k", hp->index.most * hp->index.every);
    mk__kv_u32(p, "hyper_connection.count", NTX_STREAMS);
    mk__kv_u32(p, "hyper_connection.low_rank", hp->streams.low);
}

/* Once the vocabulary is known: hashes of tokens stay below 2^63. */
void mk__add_gram_keys(struct plan *p)
{
    const struct ntx_hparams *hp = &p->hp;
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
    kv_list(p, "ple.layers", NTX_GGUF_I32, &layer, 1);
    mk__kv_u32(p, "ple.ngram_size", hp->grams.n);
    mk__kv_u32(p, "ple.heads_per_ngram", hp->grams.heads / (hp->grams.n - 1));
    mk__kv_u32(p, "ple.conv_kernel", hp->grams.taps);
    mk__kv_u32(p, "ple.eos_token_id", hp->grams.eos);
    mk__kv_u32(p, "embedding_length_per_layer_input", hp->grams.width);
    kv_list(p, "ple.layer_multipliers", NTX_GGUF_U64, by, hp->grams.n);
    kv_list(p, "ple.head_offsets", NTX_GGUF_U64, first, hp->grams.heads);
    kv_list(p, "ple.head_vocab_sizes", NTX_GGUF_U64, size, hp->grams.heads);
}

static void add_pooled_keys(struct plan *p)
{
    const struct mk_options *o = p->o;
    uint32_t ratios[NTX_MAX_LAYERS];
    float limits[NTX_MAX_LAYERS];
    char key[96];
    for (uint32_t l = 0; l < o->layers + o->nextn; l++) {
        ratios[l] = p->hp.pool[l];
        limits[l] = 1.5f;
    }
    snprintf(key, sizeof key, "%s.attention.compress_ratios", o->arch);
    mk_kv_arr(p->f, key, NTX_GGUF_U32, ratios, o->layers + o->nextn);
    snprintf(key, sizeof key, "%s.swiglu_clamp_exp", o->arch);
    mk_kv_arr(p->f, key, NTX_GGUF_F32, limits, o->layers + o->nextn);
    mk__kv_u32(p, "attention.q_lora_rank", o->q_lora);
    mk__kv_u32(p, "attention.indexer.head_count", p->hp.index.heads);
    mk__kv_u32(p, "attention.indexer.key_length", p->hp.index.head);
    mk__kv_u32(p, "attention.indexer.top_k", or_else(o->index_most, 24));
    mk__kv_u32(p, "attention.output_group_count", p->hp.o_parts);
    mk__kv_u32(p, "attention.output_lora_rank", p->hp.o_lora);
    kv_f32(p, "attention.compress_rope_freq_base", 16 * o->rope_base);
    add_stream_keys(p);
    mk__kv_u32(p, "hash_layer_count", o->hashed);
    mk__kv_u32(p, "embedding_length_out", NTX_STREAMS * o->embd);
    if (o->expert_scale == 0)
        kv_f32(p, "expert_weights_scale", 1.5f);
    mk__kv_u32(p, "expert_gating_func", 4);
    kv_bool(p, "expert_weights_norm", true);
}

static void add_gemma4_keys(struct plan *p)
{
    const struct mk_options *o = p->o;
    uint32_t ff[NTX_MAX_LAYERS], kv[NTX_MAX_LAYERS];
    uint8_t pattern[NTX_MAX_LAYERS];
    char key[96];
    for (uint32_t l = 0; l < o->layers; l++) {
        ff[l] = p->dims[l].n_ff;
        kv[l] = p->dims[l].n_head_kv;
        pattern[l] = ntx_windowed(&p->hp, l);
    }
    kv_u32s(p, "feed_forward_length", ff);
    kv_u32s(p, "attention.head_count_kv", kv);
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", o->arch);
    mk_kv_arr(p->f, key, NTX_GGUF_BOOL, pattern, o->layers);
    mk__kv_u32(p, "attention.key_length_swa", p->dims[0].head_k);
    mk__kv_u32(p, "attention.value_length_swa", p->dims[0].head_v);
    mk__kv_u32(p, "rope.dimension_count_swa", p->dims[0].head_k);
    mk__kv_u32(p, "attention.shared_kv_layers", o->shared_kv);
    mk__kv_u32(p, "embedding_length_per_layer_input", o->layer_input);
    kv_f32(p, "final_logit_softcapping", 8);
}

static void add_step_keys(struct plan *p)
{
    const struct mk_options *o = p->o;
    const uint32_t n = o->layers + o->nextn;
    uint32_t heads[NTX_MAX_LAYERS + 16], kv[NTX_MAX_LAYERS + 16];
    uint8_t pattern[NTX_MAX_LAYERS + 16];
    float limits[NTX_MAX_LAYERS + 16], shared_limits[NTX_MAX_LAYERS + 16];
    for (uint32_t l = 0; l < n; l++) {
        limits[l] = l % 2 ? 0.5f : 0;
        shared_limits[l] = l % 3 == 1 ? 0.75f : 0;
        heads[l] = p->dims[l].n_head;
        kv[l] = p->dims[l].n_head_kv;
        pattern[l] = ntx_windowed(&p->hp, l);
    }
    kv_list(p, "attention.head_count", NTX_GGUF_U32, heads, n);
    kv_list(p, "attention.head_count_kv", NTX_GGUF_U32, kv, n);
    kv_list(p, "attention.sliding_window_pattern", NTX_GGUF_BOOL, pattern, n);
    kv_list(p, "swiglu_clamp_exp", NTX_GGUF_F32, limits, n);
    kv_list(p, "swiglu_clamp_shexp", NTX_GGUF_F32, shared_limits, n);
}

static void add_router_keys(struct plan *p)
{
    const struct mk_options *o = p->o;
    if (mk__says(o, SHARED_COUNT))
        mk__kv_u32(p, "expert_shared_count", shared_ff(o) / expert_ff(o));
    if (mk__says(o, DENSE))
        mk__kv_u32(p, "leading_dense_block_count", o->experts ? o->dense : o->layers);
    if (o->nextn)
        mk__kv_u32(p, "nextn_predict_layers", o->nextn);
    if (o->expert_scale != 0)
        kv_f32(p, "expert_weights_scale", o->expert_scale);
    if (o->groups) {
        mk__kv_u32(p, "expert_group_count", o->groups);
        mk__kv_u32(p, "expert_group_used_count", o->groups_used);
    }
    if (!mk__says(o, SIGMOID) && !o->sigmoid)
        return;
    mk__kv_u32(p, "expert_gating_func", 2);
    kv_bool(p, "expert_weights_norm", true);
}

/* In the older way or the newer (model/arch/deepseek2.c). */
static void add_latent_keys(struct plan *p)
{
    const struct mk_options *o = p->o;
    mk__kv_u32(p, "attention.kv_lora_rank", o->kv_lora);
    if (o->q_lora)
        mk__kv_u32(p, "attention.q_lora_rank", o->q_lora);
    mk__kv_u32(p, "attention.key_length", o->kv_joined ? p->head : o->kv_lora + o->rotated);
    mk__kv_u32(p, "attention.value_length", o->kv_joined ? value_dim(o, p->head) : o->kv_lora);
    if (o->kv_joined)
        return;
    mk__kv_u32(p, "attention.key_length_mla", p->head);
    mk__kv_u32(p, "attention.value_length_mla", value_dim(o, p->head));
}

void mk__add_keys(struct plan *p, uint32_t orig)
{
    const struct mk_options *o = p->o;
    mk_kv_str(p->f, "general.architecture", o->arch);
    mk_kv_str(p->f, "general.name", o->name);
    uint32_t *base = o->shared ? calloc(o->layers, sizeof *base) : NULL;
    if (base)
        mk_kv_arr(p->f, "ntx.delta.base", NTX_GGUF_U32, base, o->layers);
    free(base);
    mk_kv_u32(p->f, "general.file_type", p->recipe->file_type);
    mk_kv_u32(p->f, "general.quantization_version", 2);
    mk__kv_u32(p, "block_count", o->layers + o->nextn);
    mk__kv_u32(p, "context_length", o->ctx);
    mk__kv_u32(p, "embedding_length", o->embd);
    if (is_gemma4(o))
        add_gemma4_keys(p);
    else
        mk__kv_u32(p, "feed_forward_length", o->experts && !strcmp(o->arch, "llama") ? expert_ff(o) : o->ff);
    if (mk__says(o, STEP))
        add_step_keys(p);
    else
        mk__kv_u32(p, "attention.head_count", o->heads);
    if (mk__says(o, KDA))
        add_kda_keys(p);
    else if (!is_gemma4(o) && !mk__says(o, STEP))
        mk__kv_u32(p, "attention.head_count_kv", !mk__says(o, LATENT) ? o->kv : o->kv_joined ? o->heads : 1);
    kv_f32(p, "attention.layer_norm_rms_epsilon", 1e-5f);
    if (mk__says(o, LATENT)) {
        add_latent_keys(p);
    } else if (p->head * o->heads != o->embd || !mk__says(o, UNSAID_LENGTH)) {
        mk__kv_u32(p, "attention.key_length", p->head);
        mk__kv_u32(p, "attention.value_length", p->head);
    }
    if (o->experts) {
        mk__kv_u32(p, "expert_count", o->experts);
        mk__kv_u32(p, "expert_used_count", o->experts_used);
    }
    if ((o->experts || mk__says(o, LATENT)) && strcmp(o->arch, "llama"))
        mk__kv_u32(p, "expert_feed_forward_length", expert_ff(o));
    if (o->experts && mk__says(o, SHARED_WIDTH))
        mk__kv_u32(p, "expert_shared_feed_forward_length", shared_ff(o));
    if (mk__says(o, WINDOW))
        mk__kv_u32(p, "attention.sliding_window", o->window);
    if (mk__says(o, CAPS)) {
        kv_f32(p, "attn_logit_softcapping", 5);
        kv_f32(p, "final_logit_softcapping", 8);
    }
    if (mk__says(o, EXPERT_EVERY))
        mk__kv_u32(p, "interleave_moe_layer_step", o->expert_every ? o->expert_every : 1);
    if (o->stretch)
        mk__kv_u32(p, "attention.sliding_window", o->stretch);
    if (o->stretch_pattern)
        mk__kv_u32(p, "attention.sliding_window_pattern", o->stretch_pattern);
    if (o->temperature) {
        kv_f32(p, "attention.temperature_scale", 0.1f);
        mk__kv_u32(p, "attention.temperature_length", o->temperature);
    }
    if (mk__says(o, WINDOW_BASE))
        kv_f32(p, "rope.freq_base_swa", o->rope_base / 4);
    if (mk__says(o, SCALES)) {
        kv_f32(p, "embedding_scale", 12);
        kv_f32(p, "residual_scale", 0.25f);
        kv_f32(p, "attention.scale", 0.1f);
        kv_f32(p, "logit_scale", 6);
    }
    if (mk__says(o, DELTA))
        add_delta_keys(p);
    if (chooses(o))
        add_choice_keys(p);
    if (mk__says(o, POOLED))
        add_pooled_keys(p);
    if (mk__says(o, STREAMED))
        add_streamed_keys(p);
    if (mk__says(o, GATED)) {
        add_limits(p);
        add_stream_keys(p);
    }
    if (mk__says(o, BLOCKS))
        add_block_keys(p);
    if (mk__says(o, SECTIONS))
        add_sections(p);
    add_router_keys(p);
    add_rope_keys(p, orig);
}
