/* plan.c: keys and tensors of the architectures, types as llama.cpp's quantiser picks them for its mixes.
 *
 * Which tensors a layer has, their names and shapes are the product's own (model/tensors.h, and the architecture's layers); here is in which order they
 * are written, how large their values are, and which keys say so. */
#include "tests/mkmodel/plan.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch.h"
#include "model/quant.h"

struct recipe {
    const char *name;
    uint32_t file_type; /* general.file_type */
    uint32_t base;      /* most tensors */
    uint32_t more;      /* output; of a mix also half of attn_v and ffn_down */
    bool mix;
};

static const struct recipe recipes[] = {
    {"F32", 0, NTX_F32, NTX_F32, false},     {"F16", 1, NTX_F16, NTX_F16, false},
    {"BF16", 32, NTX_BF16, NTX_BF16, false}, {"Q4_0", 2, NTX_Q4_0, NTX_Q6_K, false},
    {"Q4_1", 3, NTX_Q4_1, NTX_Q6_K, false},  {"Q5_0", 8, NTX_Q5_0, NTX_Q6_K, false},
    {"Q5_1", 9, NTX_Q5_1, NTX_Q6_K, false},  {"Q8_0", 7, NTX_Q8_0, NTX_Q8_0, false},
    {"Q2_K", 10, NTX_Q2_K, NTX_Q6_K, false}, {"Q3_K", 11, NTX_Q3_K, NTX_Q6_K, false},
    {"Q4_K", 14, NTX_Q4_K, NTX_Q6_K, false}, {"Q5_K", 16, NTX_Q5_K, NTX_Q6_K, false},
    {"Q6_K", 18, NTX_Q6_K, NTX_Q6_K, false}, {"Q4_K_M", 15, NTX_Q4_K, NTX_Q6_K, true},
    {"Q5_K_M", 17, NTX_Q5_K, NTX_Q6_K, true}, {"MXFP4", 38, NTX_MXFP4, NTX_Q8_0, false},
    {"IQ4_NL", 25, NTX_IQ4_NL, NTX_Q6_K, false},
    {"IQ4_XS", 30, NTX_IQ4_XS, NTX_Q6_K, false},
    {"IQ3_XXS", 23, NTX_IQ3_XXS, NTX_Q6_K, false},
    {"IQ3_S", 26, NTX_IQ3_S, NTX_Q6_K, false},
    {"IQ2_XXS", 19, NTX_IQ2_XXS, NTX_Q6_K, false},
    {"IQ2_XS", 20, NTX_IQ2_XS, NTX_Q6_K, false},
    {"IQ2_S", 28, NTX_IQ2_S, NTX_Q6_K, false},
    {"IQ1_S", 24, NTX_IQ1_S, NTX_Q6_K, false},
    {"IQ1_M", 31, NTX_IQ1_M, NTX_Q6_K, false},
    {"TQ1_0", 36, NTX_TQ1_0, NTX_Q6_K, false},
    {"TQ2_0", 37, NTX_TQ2_0, NTX_Q6_K, false},
    {"NVFP4", 39, NTX_NVFP4, NTX_Q6_K, false},
    {"NVFP4_ALL", 39, NTX_NVFP4, NTX_NVFP4, false},
    {"Q1_0", 40, NTX_Q1_0, NTX_Q6_K, false},
    {"Q2_0", 41, NTX_Q2_0, NTX_Q6_K, false},
};

static const struct recipe *find_recipe(const char *name)
{
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (!strcmp(recipes[i].name, name))
            return &recipes[i];
    return NULL;
}

const char *mk_type_names(void)
{
    return "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K Q4_K_M Q5_K_M MXFP4 IQ4_NL "
           "IQ4_XS IQ3_XXS IQ3_S IQ2_XXS IQ2_XS IQ2_S IQ1_S IQ1_M TQ1_0 TQ2_0 NVFP4 NVFP4_ALL Q1_0 Q2_0";
}

bool mk_type_known(const char *type)
{
    return find_recipe(type) != NULL;
}

struct plan {
    struct mk_file *f;
    const struct mk_options *o;
    const struct recipe *recipe;
    uint32_t head, n_vocab;
    struct ntx_hparams hp;    /* as far as widths go */
    struct ntx_dims dims[NTX_MAX_LAYERS];
};

/* Rows that are no whole blocks get a simpler type, as other writers do it. */
static uint32_t fitting(uint32_t type, uint64_t n_in)
{
    if (n_in % ntx_type_info(type)->block == 0)
        return type;
    if (n_in % NTX_QK)
        return NTX_F16;
    switch (type) {
    case NTX_Q2_K: case NTX_Q3_K: return NTX_Q4_0;
    case NTX_Q4_K: return NTX_Q5_0;
    case NTX_Q5_K: return NTX_Q5_1;
    case NTX_IQ4_XS: return NTX_IQ4_NL;
    default: return NTX_Q8_0;
    }
}

/* The layers that a mix gives more bits: the first and last eighth and every third between. */
static bool more_bits(uint32_t layer, uint32_t n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static void add_matrix(struct plan *p, const char *name, uint64_t n_in, uint64_t n_out, float std, bool more)
{
    uint32_t type = fitting(more ? p->recipe->more : p->recipe->base, n_in);
    mk_tensor_add(p->f, name, type, n_in, n_out, std);
}

static void add_vector(struct plan *p, const char *name, uint64_t n, float mean, float std)
{
    struct mk_tensor *t = mk_tensor_add(p->f, name, NTX_F32, n, 0, std);
    if (t)
        t->mean = mean;
}

/* Keys that not all architectures' files have. */
enum { UNSAID_LENGTH = 1 /* of heads, where it follows from the others */, SHARED_WIDTH = 2, WINDOW = 4, SHARED_COUNT = 8, SIGMOID = 16, DENSE = 32, TEMPERATURE = 64 /* with YaRN */, SCALES = 128,
       CAPS = 256, WINDOW_BASE = 512, EMBED_SCALED = 1024 /* no key, but the embedding's values are smaller */, LATENT = 4096, DELTA = 2048, SECTIONS = 8192 /* of pairs */, GEMMA4 = 16384, EXPERT_EVERY = 32768, CHOICE = 65536 /* of positions */, POOLED = 131072, KDA = 262144, STREAMED = 524288, BLOCKS = 1048576 /* of positions that are chosen, streams, and what follows from tokens */, STEP = 2097152, GATED = 4194304 /* latents */ };
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

static bool says(const struct mk_options *o, unsigned key)
{
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        if (!strcmp(own_keys[i].arch, o->arch))
            return own_keys[i].keys & key;
    return false;
}

static bool is_gpt_oss(const struct mk_options *o) { return !strcmp(o->arch, "gpt-oss"); }
static uint32_t expert_ff(const struct mk_options *o) { return o->expert_ff ? o->expert_ff : o->ff; }
static uint32_t shared_ff(const struct mk_options *o) { return !strcmp(o->arch, "llama4") ? expert_ff(o) : o->shared_ff ? o->shared_ff : o->ff; }

/* ---- a layer's tensors */

enum spread { PLAIN, OF_IN /* divided by the root of the row's length */, OF_EMBD /* or of the layer's width */ };

/* In the order in which converters write a layer: not the order of execution. Each expert's output is as large as a dense FFN's; the router is decided
 * enough that rounding seldom turns it; biases of gates are so large that some reach the limit of the activation. */
static const struct {
    enum ntx_tensor tensor;
    float mean, std;
    enum spread spread;
    bool more, not_experts; /* of the recipe's better type: in some layers of a mix; where only experts are of the other */
} values[] = {
    {NTX_T_attn_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_router, 0, 2, OF_EMBD, false, false},
    {NTX_T_expert_down, 0, 1, OF_IN, true, false},
    {NTX_T_expert_gate, 0, 1, OF_EMBD, false, false},
    {NTX_T_expert_up, 0, 1, OF_EMBD, false, false},
    {NTX_T_router_choice, 0, 0.2f, PLAIN, false, false},
    {NTX_T_router_bias, 0, 1, PLAIN, false, false},
    {NTX_T_expert_down_bias, 0, 0.3f, PLAIN, false, false},
    {NTX_T_expert_gate_bias, 0, 4, PLAIN, false, false},
    {NTX_T_expert_up_bias, 0, 4, PLAIN, false, false},
    {NTX_T_shared_gate, 0, 1, OF_EMBD, false, false},
    {NTX_T_down_shared, 0, 1, OF_IN, true, false},
    {NTX_T_gate_shared, 0, 1, OF_EMBD, false, false},
    {NTX_T_up_shared, 0, 1, OF_EMBD, false, false},
    {NTX_T_down, 0, 1, OF_IN, true, false},
    {NTX_T_gate, 0, 1, OF_EMBD, false, false},
    {NTX_T_up, 0, 1, OF_EMBD, false, false},
    {NTX_T_ffn_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_k, 0, 1.5f, OF_EMBD, false, true},
    {NTX_T_o, 0, 0.7f, OF_IN, false, true},
    {NTX_T_q, 0, 1.5f, OF_EMBD, false, true},
    {NTX_T_v, 0, 1, OF_EMBD, true, true},
    {NTX_T_q_a, 0, 1, OF_EMBD, false, true},
    {NTX_T_q_a_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_q_b, 0, 1.5f, OF_IN, false, true},
    {NTX_T_kv_a, 0, 1, OF_EMBD, false, true},
    {NTX_T_kv_a_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_k_b, 0, 1.2f, OF_IN, false, true},
    {NTX_T_kv_b, 0, 1.2f, OF_IN, false, true},
    {NTX_T_v_b, 0, 1.2f, OF_IN, false, true},
    {NTX_T_index_q, 0, 1.5f, OF_IN, false, true},
    {NTX_T_index_k, 0, 1, OF_EMBD, false, true},
    {NTX_T_index_k_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_index_k_bias, 0, 0.1f, PLAIN, false, false},
    {NTX_T_index_gate, 0, 1, OF_EMBD, false, true},
    {NTX_T_index_place, 0, 0.5f, PLAIN, false, false},
    {NTX_T_index_heads, 0, 1, OF_EMBD, false, true},
    {NTX_T_kv, 0, 1, OF_EMBD, false, true},
    {NTX_T_kv_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_pool, 0, 1, OF_EMBD, false, true},
    {NTX_T_pool_gate, 0, 1, OF_EMBD, false, true},
    {NTX_T_pool_place, 0, 0.5f, PLAIN, false, false},
    {NTX_T_pool_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_key_pool, 0, 1, OF_EMBD, false, true},
    {NTX_T_key_pool_gate, 0, 1, OF_EMBD, false, true},
    {NTX_T_key_pool_place, 0, 0.5f, PLAIN, false, false},
    {NTX_T_key_pool_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_o_a, 0, 1, OF_IN, false, true},
    {NTX_T_o_b, 0, 1, OF_IN, false, true},
    {NTX_T_attn_mix, 0, 1, OF_IN, false, true},
    {NTX_T_attn_mix_scale, 0.7f, 0.1f, PLAIN, false, false},
    {NTX_T_attn_mix_base, 0, 1, PLAIN, false, false},
    {NTX_T_ffn_mix, 0, 1, OF_IN, false, true},
    {NTX_T_ffn_mix_scale, 0.7f, 0.1f, PLAIN, false, false},
    {NTX_T_ffn_mix_base, 0, 1, PLAIN, false, false},
    {NTX_T_head_mix, 0, 1, OF_IN, false, true},
    {NTX_T_head_mix_scale, 0.7f, 0.1f, PLAIN, false, false},
    {NTX_T_head_mix_base, 0, 1, PLAIN, false, false},
    {NTX_T_token_experts, 0, 0, PLAIN, false, false},
    {NTX_T_block_q, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_block_k, 0, 1, OF_EMBD, false, false},
    {NTX_T_block_q_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_block_k_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_attn_low_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_attn_spread, 0, 4, OF_IN, false, false},
    {NTX_T_attn_low, 0, 4, OF_IN, false, false},
    {NTX_T_attn_high, 0, 2, OF_IN, false, false},
    {NTX_T_ffn_low_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_ffn_spread, 0, 4, OF_IN, false, false},
    {NTX_T_ffn_low, 0, 4, OF_IN, false, false},
    {NTX_T_ffn_high, 0, 2, OF_IN, false, false},
    {NTX_T_head_low_norm, 3, 0.1f, PLAIN, false, false},
    {NTX_T_head_low, 0, 2, OF_IN, false, false},
    {NTX_T_head_high, 0, 2, OF_IN, false, false},
    {NTX_T_gram_key, 0, 1, OF_IN, false, false},
    {NTX_T_gram_value, 0, 1, OF_IN, false, false},
    {NTX_T_gram_key_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_gram_query_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_gram_conv_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_gram_conv, 0, 1, OF_IN, false, false},
    {NTX_T_q_bias, 0, 0.5f, PLAIN, false, false},
    {NTX_T_k_bias, 0, 0.5f, PLAIN, false, false},
    {NTX_T_v_bias, 0, 0.3f, PLAIN, false, false},
    {NTX_T_q_gated, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_delta_mix, 0, 1, OF_EMBD, false, false},
    {NTX_T_delta_gate, 0, 1, OF_EMBD, false, false},
    {NTX_T_delta_beta, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_delta_alpha, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_delta_rates, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_delta_conv, 0, 1, OF_IN, false, false},
    {NTX_T_delta_dt, -1.5f, 1, PLAIN, false, false},
    {NTX_T_delta_a, -0.5f, 0.1f, PLAIN, false, false},
    {NTX_T_delta_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_delta_out, 0, 0.7f, OF_IN, false, false},
    {NTX_T_kda_q, 0, 1, OF_EMBD, false, false},
    {NTX_T_kda_k, 0, 1, OF_EMBD, false, false},
    {NTX_T_kda_v, 0, 1, OF_EMBD, false, false},
    {NTX_T_kda_conv_q, 0, 1, OF_IN, false, false},
    {NTX_T_kda_conv_k, 0, 1, OF_IN, false, false},
    {NTX_T_kda_conv_v, 0, 1, OF_IN, false, false},
    {NTX_T_kda_f_a, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_kda_f_b, 0, 1.5f, OF_IN, false, false},
    {NTX_T_kda_g_a, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_kda_g_b, 0, 1.5f, OF_IN, false, false},
    {NTX_T_kda_dt, -1.5f, 1, PLAIN, false, false},
    {NTX_T_kda_a, -0.5f, 0.1f, PLAIN, false, false},
    {NTX_T_kda_out, 0, 0.7f, OF_IN, false, false},
    {NTX_T_o_bias, 0, 0.3f, PLAIN, false, false},
    {NTX_T_head_gate, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_latent_gate, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_sinks, 1, 1, PLAIN, false, false},
    {NTX_T_q_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_k_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_q_norm_all, 1, 0.1f, PLAIN, false, false},
    {NTX_T_k_norm_all, 1, 0.1f, PLAIN, false, false},
    {NTX_T_attn_post_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_ffn_post_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_router_scale, 1, 0.1f, PLAIN, false, false},
    {NTX_T_expert_scale, 1, 0.2f, PLAIN, false, false},
    {NTX_T_expert_gate_up, 0, 1, OF_EMBD, false, false},
    {NTX_T_ffn_pre_norm_2, 1, 0.1f, PLAIN, false, false},
    {NTX_T_ffn_post_norm_1, 1, 0.1f, PLAIN, false, false},
    {NTX_T_ffn_post_norm_2, 1, 0.1f, PLAIN, false, false},
    {NTX_T_layer_scale, 0.8f, 0.1f, PLAIN, false, false},
    {NTX_T_inputs_proj, 0, 1, PLAIN, false, false},
    {NTX_T_inputs_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_input_gate, 0, 1, OF_EMBD, false, false},
    {NTX_T_input_proj, 0, 1, OF_IN, false, false},
    {NTX_T_input_norm, 1, 0.1f, PLAIN, false, false},
};

static uint32_t value_dim(const struct mk_options *o, uint32_t head) { return o->value_dim ? o->value_dim : head; }
static uint32_t or_else(uint32_t n, uint32_t fallback) { return n ? n : fallback; }
static uint32_t attention_every(const struct mk_options *o) { return or_else(o->attention_every, 4); }

static bool is_phi3(const struct mk_options *o) { return !strcmp(o->arch, "phi3"); }
static bool is_gemma4(const struct mk_options *o) { return !strcmp(o->arch, "gemma4"); }

/* Each third layer has no window, wider heads and other K and V heads; the last ones read what others keep, and have wider FFNs. */
static void gemma4_widths(struct plan *p)
{
    const struct mk_options *o = p->o;
    const uint32_t own = o->layers - o->shared_kv;
    p->hp.dims = p->dims;
    for (uint32_t l = 0; l < o->layers; l++) {
        bool full = l % 3 == 2;
        struct ntx_dims *d = &p->dims[l];
        *d = (struct ntx_dims){o->heads, full && o->full_kv ? o->full_kv : o->kv, p->head, p->head, l < own ? o->ff : 2 * o->ff, l};
        if (!full && o->window_head)
            d->head_k = d->head_v = o->window_head;
        if (l >= own)
            d->kv_of = own - (full ? 1 : 2);
        if (!full)
            p->hp.windowed[l / 64] |= (uint64_t)1 << l % 64;
    }
}

/* Each third layer has no window, and `heads` heads; activations of some are bounded. */
static void step_widths(struct plan *p)
{
    const struct mk_options *o = p->o;
    p->hp.dims = p->dims;
    for (uint32_t l = 0; l < o->layers + o->nextn; l++) {
        bool full = l % 3 == 0;
        p->dims[l] = (struct ntx_dims){full ? o->heads : or_else(o->window_heads, o->heads), o->kv, p->head, p->head, o->ff, l};
        p->hp.windowed[l / 64] |= (uint64_t)!full << l % 64;
    }
}

static bool is_pooled(const struct mk_options *o) { return !strcmp(o->arch, "deepseek4"); }
static uint32_t ratio_of(uint32_t layer) { return layer % 3 == 1 ? 4 : layer % 3 == 2 ? 128 : 0; }

/* Layers in turn pool nothing, 4 and 128 positions; those that pool 4 choose. */
static void pooled_widths(struct plan *p)
{
    const struct mk_options *o = p->o;
    p->hp.v_is_k = true;
    p->hp.rope_dim = o->rotated;
    p->hp.streams.n = NTX_STREAMS;
    p->hp.streams.rounds = 20;
    p->hp.o_parts = or_else(o->o_parts, 2);
    p->hp.o_lora = or_else(o->o_lora, 32);
    p->hp.n_expert_used = o->experts_used;
    p->hp.n_token_experts = o->hashed;
    p->hp.index.heads = or_else(o->index_heads, 8);
    p->hp.index.head = or_else(o->index_head, 64);
    for (uint32_t l = 0; l < o->layers; l++) {
        p->hp.pool[l] = (uint16_t)ratio_of(l);
        p->hp.index.in[l / 64] |= (uint64_t)(ratio_of(l) == 4) << l % 64;
    }
}

/* Layers that attend: of so many the first chooses. Blocks behind the layers all do. */
static void streamed_widths(struct plan *p)
{
    const struct mk_options *o = p->o;
    p->hp.streams.n = NTX_STREAMS;
    p->hp.streams.rounds = 20;
    p->hp.index.every = or_else(o->index_pool, 4);
    memset(p->hp.index.in, 0, sizeof p->hp.index.in);
    for (uint32_t l = 0; l < o->layers + o->nextn; l++)
        if (l >= o->layers || (!ntx_is_recurrent(&p->hp, l) && l / attention_every(o) % or_else(o->index_every, 1) == 0))
            p->hp.index.in[l / 64] |= (uint64_t)1 << l % 64;
}

/* Of its table each head has some rows more than the one before. */
static void block_widths(struct plan *p)
{
    const struct mk_options *o = p->o;
    struct ntx_hparams *hp = &p->hp;
    hp->streams.n = NTX_STREAMS;
    hp->streams.low = or_else(o->low_rank, 16);
    hp->index.heads = or_else(o->index_heads, 8);
    hp->index.head = or_else(o->index_head, 64);
    hp->index.most = or_else(o->index_most, 24);
    hp->index.every = or_else(o->index_pool, 4);
    hp->index_beside = hp->no_output_norm = true;
    for (uint32_t l = 0; l < o->layers; l++)
        hp->index.in[l / 64] |= (uint64_t)!ntx_is_recurrent(hp, l) << l % 64;
    hp->grams.layer = o->gram_layer;
    if (!o->gram_layer)
        return;
    hp->grams.n = 3;
    hp->grams.taps = 4;
    hp->grams.heads = 2 * or_else(o->gram_heads, 2);
    hp->grams.width = o->embd / hp->grams.heads;
    hp->grams.eos = 2;
    for (uint32_t h = 0; h < hp->grams.heads; h++) {
        hp->grams.first[h] = hp->grams.rows;
        hp->grams.size[h] = or_else(o->gram_rows, 97) + 6 * h;
        hp->grams.rows += hp->grams.size[h];
    }
    hp->grams.rows = (hp->grams.rows + 127) / 128 * 128;
}

/* With gates, where heads that choose are asked for. */
static bool chooses(const struct mk_options *o) { return says(o, CHOICE) && (!says(o, GATED) || o->index_heads); }

static void find_widths(struct plan *p)
{
    const struct mk_options *o = p->o;
    p->hp = (struct ntx_hparams){.n_layers = o->layers, .n_embd = o->embd, .n_ff = o->ff, .n_head = o->heads, .n_head_kv = o->kv, .head_k = p->head, .head_v = value_dim(o, p->head),
                                 .rope_dim = o->kv_lora ? o->rotated : p->head, .kv_lora = o->kv_lora, .q_lora = o->q_lora, .kv_joined = o->kv_joined, .n_dense = o->dense, .n_expert = o->experts, .n_ff_exp = expert_ff(o), .n_ff_shexp = shared_ff(o),
                                 .n_input = o->layer_input, .v_of_k = o->no_v, .experts_fused = o->fused, .delta_joined = o->delta_joined,
                                 .qkv_fused = is_phi3(o) && !o->no_v, .gate_up_fused = is_phi3(o), .expert_every = o->expert_every ? o->expert_every : 1};
    p->hp.delta.head = or_else(o->delta_head, 32);
    p->hp.delta.heads = or_else(o->delta_heads, 4);
    p->hp.delta.key_heads = or_else(o->delta_keys, 2);
    p->hp.delta.taps = or_else(o->delta_taps, 4);
    if (says(o, KDA))
        p->hp.delta.heads = p->hp.delta.key_heads = o->heads;
    if (chooses(o)) {
        p->hp.index.heads = or_else(o->index_heads, 8);
        p->hp.index.head = or_else(o->index_head, 64);
        p->hp.index.most = or_else(o->index_most, 24);
        for (uint32_t l = 0; l < o->layers + o->nextn; l += or_else(o->index_every, 1))
            p->hp.index.in[l / 64] |= (uint64_t)1 << l % 64;
    }
    ntx_set_recurrent(&p->hp, attention_every(o)); /* architectures without such layers do not look */
    if (is_gemma4(o))
        gemma4_widths(p);
    if (says(o, STEP))
        step_widths(p);
    if (is_pooled(o))
        pooled_widths(p);
    if (says(o, STREAMED))
        streamed_widths(p);
    if (says(o, GATED))
        p->hp.streams.n = NTX_STREAMS;
    if (says(o, BLOCKS))
        block_widths(p);
}

bool mk_arch_known(const char *arch)
{
    struct ntx_layer l;
    return mk_is_head(arch) || ntx_layer_describe(arch, &(struct ntx_hparams){.n_expert = 1}, 0, &l);
}

bool mk_arch_experts(const char *arch, uint32_t n)
{
    struct ntx_layer l;
    return ntx_layer_describe(arch, &(struct ntx_hparams){.n_expert = n, .expert_every = 1}, 0, &l) && ntx_layer_find(&l, NTX_OP_EXPERTS);
}

/* What the architecture leaves open. */
static bool chosen(const struct mk_options *o, enum ntx_tensor t)
{
    bool norm = t == NTX_T_q_norm || t == NTX_T_k_norm, bias = t == NTX_T_q_bias || t == NTX_T_k_bias || t == NTX_T_v_bias;
    bool always = !strcmp(o->arch, "qwen2moe"); /* its published files have them all */
    return t == NTX_T_layer_scale || t == NTX_T_expert_scale || (t == NTX_T_router_choice && o->biases) || (norm && o->qk_norms) || (bias && (o->biases || always));
}

static bool takes(const struct mk_options *o, const struct ntx_layer *l, enum ntx_tensor t)
{
    for (const struct ntx_step *s = l->step; s < l->step + l->n_steps; s++)
        for (uint8_t i = 0; i < s->n_weights; i++)
            if (s->weight[i] == t)
                return !(s->maybe >> i & 1) || chosen(o, t);
    return false;
}

/* Shape and type; a matrix has that of the recipe. */
/* Of several that are one in the file, the first is all of them. */
static struct mk_tensor *add_kind(struct plan *p, const char *name, uint32_t layer, enum ntx_tensor kind, bool more)
{
    const struct ntx_tensor_kind *k = &ntx_tensor_kinds[kind];
    struct ntx_whole whole = {.shape = ntx_shape_of(&p->hp, layer, kind)};
    ntx_whole_of(&p->hp, layer, kind, &whole);
    const struct ntx_shape shape = whole.shape;
    uint32_t n_in = shape.n_in, n_out = shape.n_out;
    bool floats = k->use == NTX_USE_RESIDENT || k->use == NTX_USE_VECTOR || k->use == NTX_USE_ROWS || kind == NTX_T_index_place;
    uint32_t type = k->use == NTX_USE_NUMBERS ? NTX_I32 : floats ? NTX_F32 : fitting(more ? p->recipe->more : p->recipe->base, n_in);
    bool joined = kind == NTX_T_kv_b; /* its heads are written as one matrix */
    struct mk_tensor *t = mk_tensor_add(p->f, name, type, n_in, k->use == NTX_USE_VECTOR ? 0 : joined ? n_out * shape.n_each : n_out, 0);
    if (t && k->use == NTX_USE_NUMBERS)
        t->below = p->hp.n_expert;
    if (t && kind >= NTX_T_kda_conv_q && kind <= NTX_T_kda_conv_v) { /* with a dimension of one between */
        t->n_dims = 3;
        t->ne[2] = n_out;
        t->ne[1] = 1;
    }
    if (t && !joined && (k->use == NTX_USE_EXPERT || k->use == NTX_USE_HEADS)) {
        t->n_dims = 3;
        t->ne[2] = shape.n_each;
    }
    return t;
}

static float deviation(const struct mk_options *o, size_t i, uint64_t n_in)
{
    float by = values[i].spread == OF_EMBD ? 1 / sqrtf((float)o->embd) : values[i].spread == OF_IN ? 1 / sqrtf((float)n_in) : 1;
    return values[i].std * by;
}

/* "X.scale", and for attention's output "X.input_scale", beside "X.weight". */
static void add_scale(struct plan *p, const char *weight, uint64_t n)
{
    char name[80];
    int stem = (int)strlen(weight) - (int)strlen(".weight");
    if (!p->o->scales || stem < 0 || strcmp(weight + stem, ".weight"))
        return;
    snprintf(name, sizeof name, "%.*s.scale", stem, weight);
    add_vector(p, name, n, 0.8f, 0.2f);
    snprintf(name, sizeof name, "%.*s.input_scale", stem, weight);
    if (strstr(weight, "attn_output"))
        add_vector(p, name, n, 3, 1);
}

/* What it gives is added to the residual stream. */
static bool leads_out(enum ntx_tensor t)
{
    return t == NTX_T_o || t == NTX_T_down || t == NTX_T_down_shared || t == NTX_T_expert_down || t == NTX_T_delta_out;
}

/* What is added to a matrix's outputs. */
static void add_plus(struct plan *p, uint32_t l, enum ntx_tensor of)
{
    const enum ntx_tensor low = ntx_low_of(of);
    const struct ntx_shape s = ntx_shape_of(&p->hp, l, of);
    char name[64];
    if (!p->o->plus || low == NTX_N_TENSORS)
        return;
    for (int part = of == NTX_T_up ? NTX_REST : NTX_LOW; part <= (of == NTX_T_up ? NTX_REST : NTX_HIGH); part++) {
        const uint32_t n_in = part == NTX_HIGH ? p->o->plus : s.n_in, n_out = part == NTX_LOW ? p->o->plus : s.n_out;
        snprintf(name, sizeof name, "blk.%u.%s", l, ntx_tensor_kinds[low + part].name);
        struct mk_tensor *t = mk_tensor_add(p->f, name, fitting(p->recipe->base, n_in), n_in, n_out, 0);
        if (t)
            t->std = 0.7f / sqrtf((float)n_in);
    }
}

static void add_layer(struct plan *p, uint32_t l)
{
    const struct mk_options *o = p->o;
    bool mixed = p->recipe->mix && more_bits(l, o->layers), experts_only = is_gpt_oss(o) && p->recipe->base != NTX_F32;
    struct ntx_layer layer;
    char name[64];
    ntx_layer_describe(o->arch, &p->hp, l, &layer);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct ntx_whole whole = {.name = ntx_tensor_name(o->arch, values[i].tensor)};
        bool mixes = values[i].tensor >= NTX_T_attn_mix && values[i].tensor <= NTX_T_ffn_mix_base;
        if ((mixes && l >= o->layers && says(o, STREAMED)) || !takes(o, &layer, values[i].tensor) || (ntx_whole_of(&p->hp, l, values[i].tensor, &whole) && whole.row0))
            continue;
        if (ntx_is_models(values[i].tensor))
            snprintf(name, sizeof name, "%s", ntx_tensor_name(o->arch, values[i].tensor));
        else
            snprintf(name, sizeof name, "blk.%u.%s", l, whole.name);
        add_plus(p, l, values[i].tensor);
        if (o->shared && l && ntx_is_matrix(values[i].tensor))
            continue;
        struct mk_tensor *t = add_kind(p, name, l, values[i].tensor, (values[i].more && mixed) || (values[i].not_experts && experts_only));
        if (!t)
            return;
        bool unscaled = is_gemma4(o) && (values[i].tensor == NTX_T_q_norm || values[i].tensor == NTX_T_k_norm); /* scores are not divided */
        t->mean = unscaled ? 0.35f : values[i].mean;
        t->std = deviation(o, i, t->ne[0]) * (o->nextn_agrees != 0 && leads_out(values[i].tensor) ? o->nextn_agrees : 1);
        if (ntx_is_scalable(values[i].tensor))
            add_scale(p, name, ntx_tensor_kinds[values[i].tensor].use == NTX_USE_EXPERT ? o->experts : 1);
    }
}

/* A block behind the layers, which predicts tokens. */
static void add_nextn(struct plan *p, uint32_t l)
{
    static const struct { const char *name; uint32_t n_in; bool matrix; } more[] = {{"eh_proj", 2, true}, {"enorm", 1, false}, {"hnorm", 1, false}, {"shared_head_norm", 1, false}};
    char name[64];
    add_layer(p, l);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        snprintf(name, sizeof name, "blk.%u.nextn.%s.weight", l, more[i].name);
        struct mk_tensor *t = more[i].matrix && p->o->nextn_agrees != 0 ? mk_tensor_add(p->f, name, NTX_F32, 2 * (uint64_t)p->o->embd, p->o->embd, 0) : NULL;
        if (t)
            t->unit = true;
        else if (more[i].matrix)
            add_matrix(p, name, (uint64_t)more[i].n_in * p->o->embd, p->o->embd, 1 / sqrtf((float)p->o->embd), false);
        else
            add_vector(p, name, p->o->embd, 1, 0.1f);
    }
}

/* Each tensor of each layer must have a row of values. */
static int check_values(const struct plan *p, struct ntx_err *err)
{
    for (uint32_t l = 0; l < p->o->layers; l++) {
        struct ntx_layer layer;
        bool has[NTX_N_TENSORS] = {false};
        if (!ntx_layer_describe(p->o->arch, &p->hp, l, &layer))
            return ntx_err_set(err, -EINVAL, "no architecture '%.40s'", p->o->arch);
        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
            has[values[i].tensor] = true;
        for (int t = 0; t < NTX_N_TENSORS; t++)
            if (!has[t] && takes(p->o, &layer, (enum ntx_tensor)t))
                return ntx_err_set(err, -EINVAL, "nothing says how large the values of '%s' are", ntx_tensor_kinds[t].name);
    }
    return 0;
}

/* Divisors of the rotation frequencies as Llama 3.1 defines them: long waves are stretched by the factor, short ones
 * kept, a ramp between (low_freq_factor 1, high_freq_factor 4). */
static float *llama3_freqs(const struct mk_options *o, uint32_t dim, uint32_t orig)
{
    float *v = malloc(dim / 2 * sizeof *v);
    if (!v)
        return NULL;
    for (uint32_t i = 0; i < dim / 2; i++) {
        double wave = 2 * M_PI * pow((double)o->rope_base, 2.0 * i / dim);
        double smooth = fmin(fmax((orig / wave - 1) / 3, 0), 1);
        v[i] = (float)(1 / ((1 - smooth) / (double)o->rope_factor + smooth));
    }
    return v;
}

/* Of half a head's values, and ones behind them. */
static float *half_freqs(const struct mk_options *o, uint32_t dim, uint32_t orig)
{
    float *half = llama3_freqs(o, dim / 2, orig), *v = half ? realloc(half, dim / 2 * sizeof *v) : NULL;
    for (uint32_t i = dim / 4; v && i < dim / 2; i++)
        v[i] = 1;
    if (!v)
        free(half);
    return v;
}

/* Phi's: those for long contexts, then those for short ones. */
static float *two_freqs(uint32_t dim)
{
    float *v = malloc(dim * sizeof *v);
    for (uint32_t i = 0; v && i < dim / 2; i++) {
        v[i] = 1 + 3.0f * (float)i / (float)dim;
        v[dim / 2 + i] = 1 + 0.5f * (float)i / (float)dim;
    }
    return v;
}

/* Gemma 4 turns a quarter of each pair's frequencies. */
static float *quarter_freqs(uint32_t dim)
{
    float *v = malloc(dim / 2 * sizeof *v);
    for (uint32_t i = 0; v && i < dim / 2; i++)
        v[i] = i < dim / 8 ? 1 : 1e30f;
    return v;
}

/* A matrix of the model's, where it has it. */
static void add_end(struct plan *p, enum ntx_end t, float std, bool more)
{
    const struct ntx_shape shape = ntx_end_shape(&p->hp, t);
    if (ntx_end_has(&p->hp, t) != NTX_NEVER)
        add_matrix(p, ntx_end_kinds[t].name, shape.n_in, shape.n_out, std, more);
}

static void add_tensors(struct plan *p, float *freqs)
{
    const struct mk_options *o = p->o;
    float s = 1 / sqrtf((float)o->embd);
    const enum ntx_end lists[] = {is_phi3(o) ? NTX_END_rope_long : NTX_END_rope_freqs, NTX_END_rope_short};
    uint32_t half = (o->rotated ? o->rotated : p->head) / 2;
    for (int i = 0; i < (is_phi3(o) ? 2 : 1) && freqs; i++) {
        struct mk_tensor *t = mk_tensor_add(p->f, ntx_end_kinds[lists[i]].name, NTX_F32, half, 0, 0);
        if (t)
            t->values = freqs + i * half;
    }
    add_end(p, NTX_END_token_embd, o->tied || says(o, EMBED_SCALED) ? s : 1, o->tied || is_gpt_oss(o));
    add_end(p, NTX_END_input_embd, 1 / sqrtf((float)o->layer_input), false);
    add_end(p, NTX_END_gram_embd, 1, false);
    for (uint32_t l = 0; l < o->layers; l++)
        add_layer(p, l);
    for (uint32_t l = o->layers; l < o->layers + o->nextn; l++)
        add_nextn(p, l);
    if (ntx_end_has(&p->hp, NTX_END_output_norm) == NTX_ALWAYS)
        add_vector(p, ntx_end_kinds[NTX_END_output_norm].name, o->embd, o->tied ? o->logit_scale : 1, 0.1f);
    if (!o->tied)
        add_end(p, NTX_END_output, o->logit_scale * s, true);
    if (!o->tied && p->recipe->more == NTX_NVFP4)
        add_scale(p, ntx_end_kinds[NTX_END_output].name, 1);
}

static void kv_u32(struct plan *p, const char *suffix, uint32_t v)
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
    kv_u32(p, "rope.dimension_count", says(o, STREAMED) ? 0 : o->rotated ? o->rotated : p->head);
    if (is_phi3(o) && o->rope_freqs) {
        kv_u32(p, "rope.scaling.original_context_length", orig);
        kv_f32(p, "rope.scaling.attn_factor", 1.19f);
    }
    if (!strcmp(o->rope_scaling, "none"))
        return;
    snprintf(key, sizeof key, "%s.rope.scaling.type", o->arch);
    mk_kv_str(p->f, key, o->rope_scaling);
    kv_f32(p, "rope.scaling.factor", o->rope_factor);
    kv_u32(p, "rope.scaling.original_context_length", orig);
    if (o->yarn_magnitude != 0)
        kv_f32(p, "rope.scaling.yarn_attn_factor", o->yarn_magnitude);
    if (says(o, LATENT) && o->log_multiplier != 0)
        kv_f32(p, "rope.scaling.yarn_log_multiplier", o->log_multiplier);
    if (!says(o, TEMPERATURE))
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
    kv_u32(p, "ssm.conv_kernel", hp.delta.taps);
    kv_u32(p, "ssm.state_size", hp.delta.head);
    kv_u32(p, "ssm.group_count", hp.delta.key_heads);
    kv_u32(p, "ssm.time_step_rank", hp.delta.heads);
    kv_u32(p, "ssm.inner_size", hp.delta.heads * hp.delta.head);
    kv_u32(p, "full_attention_interval", attention_every(p->o));
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
    kv_u32(p, "ssm.conv_kernel", p->hp.delta.taps);
    kv_u32(p, "kda.head_dim", p->hp.delta.head);
}

static void add_choice_keys(struct plan *p)
{
    uint32_t chooses[NTX_MAX_LAYERS];
    kv_u32(p, "attention.indexer.head_count", p->hp.index.heads);
    kv_u32(p, "attention.indexer.key_length", p->hp.index.head);
    kv_u32(p, "attention.indexer.top_k", p->hp.index.most * or_else(p->hp.index.every, 1));
    for (uint32_t l = 0; l < p->o->layers; l++)
        chooses[l] = ntx_chooses(&p->hp, l);
    if (p->o->index_every || says(p->o, GATED))
        kv_u32s(p, "attention.indexer.types", chooses);
}

static void add_stream_keys(struct plan *p)
{
    kv_u32(p, "hyper_connection.count", NTX_STREAMS);
    if (p->hp.streams.rounds)
        kv_u32(p, "hyper_connection.sinkhorn_iterations", p->hp.streams.rounds);
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
    kv_u32(p, "attention.indexer.kpool", p->hp.index.every);
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
    kv_u32(p, "attention.indexer.head_count", hp->index.heads);
    kv_u32(p, "attention.indexer.key_length", hp->index.head);
    kv_u32(p, "attention.indexer.top_k", hp->index.most * hp->index.every);
    kv_u32(p, "hyper_connection.count", NTX_STREAMS);
    kv_u32(p, "hyper_connection.low_rank", hp->streams.low);
}

/* Once the vocabulary is known: hashes of tokens stay below 2^63. */
static void add_gram_keys(struct plan *p)
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
    kv_u32(p, "ple.ngram_size", hp->grams.n);
    kv_u32(p, "ple.heads_per_ngram", hp->grams.heads / (hp->grams.n - 1));
    kv_u32(p, "ple.conv_kernel", hp->grams.taps);
    kv_u32(p, "ple.eos_token_id", hp->grams.eos);
    kv_u32(p, "embedding_length_per_layer_input", hp->grams.width);
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
    kv_u32(p, "attention.q_lora_rank", o->q_lora);
    kv_u32(p, "attention.indexer.head_count", p->hp.index.heads);
    kv_u32(p, "attention.indexer.key_length", p->hp.index.head);
    kv_u32(p, "attention.indexer.top_k", or_else(o->index_most, 24));
    kv_u32(p, "attention.output_group_count", p->hp.o_parts);
    kv_u32(p, "attention.output_lora_rank", p->hp.o_lora);
    kv_f32(p, "attention.compress_rope_freq_base", 16 * o->rope_base);
    add_stream_keys(p);
    kv_u32(p, "hash_layer_count", o->hashed);
    kv_u32(p, "embedding_length_out", NTX_STREAMS * o->embd);
    if (o->expert_scale == 0)
        kv_f32(p, "expert_weights_scale", 1.5f);
    kv_u32(p, "expert_gating_func", 4);
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
    kv_u32(p, "attention.key_length_swa", p->dims[0].head_k);
    kv_u32(p, "attention.value_length_swa", p->dims[0].head_v);
    kv_u32(p, "rope.dimension_count_swa", p->dims[0].head_k);
    kv_u32(p, "attention.shared_kv_layers", o->shared_kv);
    kv_u32(p, "embedding_length_per_layer_input", o->layer_input);
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
    if (says(o, SHARED_COUNT))
        kv_u32(p, "expert_shared_count", shared_ff(o) / expert_ff(o));
    if (says(o, DENSE))
        kv_u32(p, "leading_dense_block_count", o->experts ? o->dense : o->layers);
    if (o->nextn)
        kv_u32(p, "nextn_predict_layers", o->nextn);
    if (o->expert_scale != 0)
        kv_f32(p, "expert_weights_scale", o->expert_scale);
    if (o->groups) {
        kv_u32(p, "expert_group_count", o->groups);
        kv_u32(p, "expert_group_used_count", o->groups_used);
    }
    if (!says(o, SIGMOID) && !o->sigmoid)
        return;
    kv_u32(p, "expert_gating_func", 2);
    kv_bool(p, "expert_weights_norm", true);
}

/* In the older way or the newer (model/arch/deepseek2.c). */
static void add_latent_keys(struct plan *p)
{
    const struct mk_options *o = p->o;
    kv_u32(p, "attention.kv_lora_rank", o->kv_lora);
    if (o->q_lora)
        kv_u32(p, "attention.q_lora_rank", o->q_lora);
    kv_u32(p, "attention.key_length", o->kv_joined ? p->head : o->kv_lora + o->rotated);
    kv_u32(p, "attention.value_length", o->kv_joined ? value_dim(o, p->head) : o->kv_lora);
    if (o->kv_joined)
        return;
    kv_u32(p, "attention.key_length_mla", p->head);
    kv_u32(p, "attention.value_length_mla", value_dim(o, p->head));
}

static void add_keys(struct plan *p, uint32_t orig)
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
    kv_u32(p, "block_count", o->layers + o->nextn);
    kv_u32(p, "context_length", o->ctx);
    kv_u32(p, "embedding_length", o->embd);
    if (is_gemma4(o))
        add_gemma4_keys(p);
    else
        kv_u32(p, "feed_forward_length", o->experts && !strcmp(o->arch, "llama") ? expert_ff(o) : o->ff);
    if (says(o, STEP))
        add_step_keys(p);
    else
        kv_u32(p, "attention.head_count", o->heads);
    if (says(o, KDA))
        add_kda_keys(p);
    else if (!is_gemma4(o) && !says(o, STEP))
        kv_u32(p, "attention.head_count_kv", !says(o, LATENT) ? o->kv : o->kv_joined ? o->heads : 1);
    kv_f32(p, "attention.layer_norm_rms_epsilon", 1e-5f);
    if (says(o, LATENT)) {
        add_latent_keys(p);
    } else if (p->head * o->heads != o->embd || !says(o, UNSAID_LENGTH)) {
        kv_u32(p, "attention.key_length", p->head);
        kv_u32(p, "attention.value_length", p->head);
    }
    if (o->experts) {
        kv_u32(p, "expert_count", o->experts);
        kv_u32(p, "expert_used_count", o->experts_used);
    }
    if ((o->experts || says(o, LATENT)) && strcmp(o->arch, "llama"))
        kv_u32(p, "expert_feed_forward_length", expert_ff(o));
    if (o->experts && says(o, SHARED_WIDTH))
        kv_u32(p, "expert_shared_feed_forward_length", shared_ff(o));
    if (says(o, WINDOW))
        kv_u32(p, "attention.sliding_window", o->window);
    if (says(o, CAPS)) {
        kv_f32(p, "attn_logit_softcapping", 5);
        kv_f32(p, "final_logit_softcapping", 8);
    }
    if (says(o, EXPERT_EVERY))
        kv_u32(p, "interleave_moe_layer_step", o->expert_every ? o->expert_every : 1);
    if (o->stretch)
        kv_u32(p, "attention.sliding_window", o->stretch);
    if (o->stretch_pattern)
        kv_u32(p, "attention.sliding_window_pattern", o->stretch_pattern);
    if (o->temperature) {
        kv_f32(p, "attention.temperature_scale", 0.1f);
        kv_u32(p, "attention.temperature_length", o->temperature);
    }
    if (says(o, WINDOW_BASE))
        kv_f32(p, "rope.freq_base_swa", o->rope_base / 4);
    if (says(o, SCALES)) {
        kv_f32(p, "embedding_scale", 12);
        kv_f32(p, "residual_scale", 0.25f);
        kv_f32(p, "attention.scale", 0.1f);
        kv_f32(p, "logit_scale", 6);
    }
    if (says(o, DELTA))
        add_delta_keys(p);
    if (chooses(o))
        add_choice_keys(p);
    if (says(o, POOLED))
        add_pooled_keys(p);
    if (says(o, STREAMED))
        add_streamed_keys(p);
    if (says(o, GATED)) {
        add_limits(p);
        add_stream_keys(p);
    }
    if (says(o, BLOCKS))
        add_block_keys(p);
    if (says(o, SECTIONS))
        add_sections(p);
    add_router_keys(p);
    add_rope_keys(p, orig);
}

int mk_plan(struct mk_file *f, const struct mk_options *o, float **freqs, struct ntx_err *err)
{
    if (mk_is_head(o->arch))
        return mk_plan_head(f, o, err);
    struct plan p = {.f = f, .o = o, .recipe = find_recipe(o->type), .head = o->head_dim ? o->head_dim : o->embd / o->heads};
    uint32_t orig = o->rope_orig ? o->rope_orig : (uint32_t)((float)o->ctx / o->rope_factor);
    float *v = NULL;
    find_widths(&p);
    f->version = o->version;
    f->seed = o->seed;
    f->repeat = o->repeat_layers;
    f->holes = o->holes;
    if (f->repeat)
        mk_kv_bool(f, "ntx.shared_tensors", true);
    int rc = check_values(&p, err);
    if (rc)
        return rc;
    add_keys(&p, orig);
    if ((rc = mk_vocab(f, o, &p.n_vocab, err)))
        return rc;
    kv_u32(&p, "vocab_size", p.n_vocab);
    p.hp.n_vocab = p.n_vocab;
    add_gram_keys(&p);
    if ((o->rope_freqs || is_gemma4(o)) && !(v = is_gemma4(o) ? quarter_freqs(p.head) : says(o, STEP) ? half_freqs(o, p.head, orig) : is_phi3(o) ? two_freqs(o->rotated ? o->rotated : p.head) : llama3_freqs(o, p.head, orig)))
        return ntx_err_set(err, -ENOMEM, "out of memory");
    add_tensors(&p, v);
    *freqs = v;
    return 0;
}
