/* SPDX-License-Identifier: Apache-2.0 */
/* tensors.c: tensors of the architectures, with the types that llama.cpp's quantiser picks for its mixes. Names,
 * shapes and the tensors of a layer come from the product (model/tensors.h, and the architecture's layers); here are
 * the order of writing, the size of values, and the keys that go with them. */
#include "tests/mkmodel/describe_impl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/quant.h"

static const struct recipe recipes[] = {
    {"F32", 0, NTX_F32, NTX_F32, false},
    {"F16", 1, NTX_F16, NTX_F16, false},
    {"BF16", 32, NTX_BF16, NTX_BF16, false},
    {"Q4_0", 2, NTX_Q4_0, NTX_Q6_K, false},
    {"Q4_1", 3, NTX_Q4_1, NTX_Q6_K, false},
    {"Q5_0", 8, NTX_Q5_0, NTX_Q6_K, false},
    {"Q5_1", 9, NTX_Q5_1, NTX_Q6_K, false},
    {"Q8_0", 7, NTX_Q8_0, NTX_Q8_0, false},
    {"Q2_K", 10, NTX_Q2_K, NTX_Q6_K, false},
    {"Q3_K", 11, NTX_Q3_K, NTX_Q6_K, false},
    {"Q4_K", 14, NTX_Q4_K, NTX_Q6_K, false},
    {"Q5_K", 16, NTX_Q5_K, NTX_Q6_K, false},
    {"Q6_K", 18, NTX_Q6_K, NTX_Q6_K, false},
    {"Q4_K_M", 15, NTX_Q4_K, NTX_Q6_K, true},
    {"Q5_K_M", 17, NTX_Q5_K, NTX_Q6_K, true},
    {"MXFP4", 38, NTX_MXFP4, NTX_Q8_0, false},
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

bool mk_type_known(const char *type) { return find_recipe(type) != NULL; }

/* Rows that are not whole blocks get a simpler type, as in other programs. */
static uint32_t fitting(uint32_t type, uint64_t n_in)
{
    if (n_in % ntx_type_info(type)->block == 0)
        return type;
    if (n_in % NTX_QK)
        return NTX_F16;
    switch (type) {
    case NTX_Q2_K:
    case NTX_Q3_K: return NTX_Q4_0;
    case NTX_Q4_K: return NTX_Q5_0;
    case NTX_Q5_K: return NTX_Q5_1;
    case NTX_IQ4_XS: return NTX_IQ4_NL;
    default: return NTX_Q8_0;
    }
}

/* Layers that get more bits in a mix: the first and last eighth and every third between. */
static bool more_bits(uint32_t layer, uint32_t n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static void add_matrix(struct model *m, const char *name, uint64_t n_in, uint64_t n_out, float std, bool more)
{
    uint32_t type = fitting(more ? m->recipe->more : m->recipe->base, n_in);
    mk_tensor_add(m->f, name, type, n_in, n_out, std);
}

static void add_vector(struct model *m, const char *name, uint64_t n, float mean, float std)
{
    struct mk_tensor *t = mk_tensor_add(m->f, name, NTX_F32, n, 0, std);
    if (t)
        t->mean = mean;
}

/* ---- a layer's tensors */

enum spread { PLAIN, OF_IN /* divided by the root of the row's length */, OF_EMBD /* or of the layer's width */ };

/* In the order of converters, not of execution. Each expert's output is as large as a dense FFN's. The router is
 * decided enough that rounding seldom changes the choice. Biases of gates are so large that some reach the clamp of
 * the activation. */
static const struct {
    enum ntx_tensor tensor;
    float mean, std;
    enum spread spread;
    bool more,
        not_experts; /* it has the recipe's better type, in some layers of a mix; not_experts: unless experts have
                        the other */
} values[] = {
    {NTX_T_attn_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_router, 0, 2, OF_EMBD, false, false},
    {NTX_T_expert_down, 0, 1, OF_IN, true, false},
    {NTX_T_expert_gate, 0, 1, OF_EMBD, false, false},
    {NTX_T_expert_up, 0, 1, OF_EMBD, false, false},
    {NTX_T_router_select, 0, 0.2f, PLAIN, false, false},
    {NTX_T_router_sees, 0, 0.5f, PLAIN, false, false},
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
    {NTX_T_end_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_kda_f, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_kda_g, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_kda_f_a, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_kda_f_b, 0, 1.5f, OF_IN, false, false},
    {NTX_T_kda_g_a, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_kda_g_b, 0, 1.5f, OF_IN, false, false},
    {NTX_T_kda_dt, -1.5f, 1, PLAIN, false, false},
    {NTX_T_kda_a, -0.5f, 0.1f, PLAIN, false, false},
    {NTX_T_kda_out, 0, 0.7f, OF_IN, false, false},
    {NTX_T_scan_gate, 0, 1, OF_EMBD, false, false},
    {NTX_T_scan_mix, 0, 1, OF_EMBD, false, false},
    {NTX_T_scan_dt, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_scan_conv_bias, 0, 0.3f, PLAIN, false, false},
    {NTX_T_scan_a, -0.5f, 0.1f, PLAIN, false, false},
    {NTX_T_scan_d, 1, 0.2f, PLAIN, false, false},
    {NTX_T_scan_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_each_in, 0, 1, OF_EMBD, false, false},
    {NTX_T_each_gate, 0, 1, OF_EMBD, false, false},
    {NTX_T_each_low, 0, 1, OF_IN, false, false},
    {NTX_T_each_b, 0, 1, OF_IN, false, false},
    {NTX_T_each_c, 0, 1, OF_IN, false, false},
    {NTX_T_each_low_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_each_b_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_each_c_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_each_dt, 0, 1.5f, OF_IN, false, false},
    {NTX_T_each_a, -1, 0.2f, PLAIN, false, false},
    {NTX_T_each_d, 1, 0.2f, PLAIN, false, false},
    {NTX_T_short_gate, 0, 1, OF_EMBD, false, false},
    {NTX_T_short_out_gate, 0, 1, OF_EMBD, false, false},
    {NTX_T_short_in, 0, 1, OF_EMBD, false, false},
    {NTX_T_short_conv, 0, 1, OF_IN, false, false},
    {NTX_T_short_out, 0, 0.7f, OF_IN, false, false},
    {NTX_T_o_bias, 0, 0.3f, PLAIN, false, false},
    {NTX_T_head_gate, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_mla_gate, 0, 1.5f, OF_EMBD, false, false},
    {NTX_T_sinks, 1, 1, PLAIN, false, false},
    {NTX_T_q_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_k_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_q_norm_all, 1, 0.1f, PLAIN, false, false},
    {NTX_T_k_norm_all, 1, 0.1f, PLAIN, false, false},
    {NTX_T_attn_post_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_ffn_post_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_router_scale, 1, 0.1f, PLAIN, false, false},
    {NTX_T_expert_scale, 1, 0.2f, PLAIN, false, false},
    {NTX_T_latent_down, 0, 1, OF_IN, false, false},
    {NTX_T_latent_up, 0, 1, OF_IN, false, false},
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
    {NTX_T_end_recall, 0, 1.5f, OF_IN, false, false},
    {NTX_T_attn_recall, 0, 1.5f, OF_IN, false, false},
    {NTX_T_ffn_recall, 0, 1.5f, OF_IN, false, false},
    {NTX_T_latent_norm, 1, 0.1f, PLAIN, false, false},
    {NTX_T_gate_beside, 0, 1, OF_EMBD, false, false},
    {NTX_T_up_beside, 0, 1, OF_EMBD, false, false},
    {NTX_T_down_beside, 0, 1, OF_IN, true, false},
    {NTX_T_adjugate_gate, 0, 1, OF_EMBD, false, false},
    {NTX_T_adjugate_up, 0, 1, OF_EMBD, false, false},
    {NTX_T_adjugate_down, 0, 1, OF_IN, true, false},
};

/* Optional tensors that were asked for. */
static bool wants_optional(const struct mk_options *o, enum ntx_tensor t)
{
    bool norm = t == NTX_T_q_norm || t == NTX_T_k_norm,
         bias = t == NTX_T_q_bias || t == NTX_T_k_bias || t == NTX_T_v_bias;
    bool always = !strcmp(o->arch, "qwen2moe"); /* published files have all of them */
    return t == NTX_T_layer_scale || t == NTX_T_expert_scale || t == NTX_T_latent_norm ||
           ((t == NTX_T_router_select || t == NTX_T_router_sees || t == NTX_T_sinks) && o->biases) ||
           (norm && o->qk_norms) || (bias && (o->biases || always));
}

static bool takes(const struct mk_options *o, const struct ntx_layer *l, enum ntx_tensor t)
{
    if (chooses_blocks(o) && t >= NTX_T_block_q && t <= NTX_T_block_k_norm)
        return false; /* add_blocks_indexer */
    for (const struct ntx_step *s = l->step; s < l->step + l->n_steps; s++)
        for (uint8_t i = 0; i < s->n_weights; i++)
            if (s->weight[i] == t)
                return !(s->maybe >> i & 1) || wants_optional(o, t);
    return false;
}

/* Shape and type; a matrix has that of the recipe. */
/* Of fused tensors, the first one stands for all. */
static struct mk_tensor *add_kind(struct model *m, const char *name, uint32_t layer, enum ntx_tensor kind, bool more)
{
    const struct ntx_tensor_kind *k = &ntx_tensor_kinds[kind];
    struct ntx_whole whole = {.shape = ntx_shape_of(&m->hp, layer, kind)};
    ntx_whole_of(&m->hp, layer, kind, &whole);
    const struct ntx_shape shape = whole.shape;
    uint32_t n_in = shape.n_in, n_out = shape.n_out;
    bool floats = k->use == NTX_USE_RESIDENT || k->use == NTX_USE_VECTOR || k->use == NTX_USE_VECTORS ||
                  kind == NTX_T_index_place;
    uint32_t type = fitting(more ? m->recipe->more : m->recipe->base, n_in);
    if (k->use == NTX_USE_NUMBERS)
        type = NTX_I32;
    else if (floats)
        type = NTX_F32;
    bool joined = kind == NTX_T_kv_b; /* heads are written as one matrix */
    const uint64_t rows = n_out * (joined ? shape.n_each : 1);
    struct mk_tensor *t = mk_tensor_add(m->f, name, type, n_in, k->use == NTX_USE_VECTOR ? 0 : rows, 0);
    if (t && k->use == NTX_USE_NUMBERS)
        t->below = m->hp.n_expert;
    if (t && kind >= NTX_T_kda_conv_q && kind <= NTX_T_kda_conv_v) { /* with a dimension of 1 in between */
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
    float by = 1;
    if (values[i].spread == OF_EMBD)
        by = 1 / sqrtf((float)o->embd);
    else if (values[i].spread == OF_IN)
        by = 1 / sqrtf((float)n_in);
    return values[i].std * by;
}

/* "X.scale", and for attention's output "X.input_scale", beside "X.weight". */
static void add_scale(struct model *m, const char *weight, uint64_t n)
{
    char name[80];
    int stem = (int)strlen(weight) - (int)strlen(".weight");
    if (!m->o->scales || stem < 0 || strcmp(weight + stem, ".weight"))
        return;
    snprintf(name, sizeof name, "%.*s.scale", stem, weight);
    add_vector(m, name, n, 0.8f, 0.2f);
    snprintf(name, sizeof name, "%.*s.input_scale", stem, weight);
    if (strstr(weight, "attn_output"))
        add_vector(m, name, n, 3, 1);
}

/* Its output is added to the residual stream. */
static bool leads_out(enum ntx_tensor t)
{
    return t == NTX_T_o || t == NTX_T_o_b || t == NTX_T_down || t == NTX_T_down_shared || t == NTX_T_expert_down ||
           t == NTX_T_delta_out || t == NTX_T_kda_out || t == NTX_T_adjugate_down;
}

/* Adds low-rank or full additions to a matrix. */
static void add_lora(struct model *m, uint32_t l, enum ntx_tensor of)
{
    const enum ntx_tensor low = ntx_low_of(of);
    const struct ntx_shape s = ntx_shape_of(&m->hp, l, of);
    char name[64];
    if (!m->o->lora_rank || low == NTX_N_TENSORS)
        return;
    for (int part = of == NTX_T_up ? NTX_REST : NTX_LOW; part <= (of == NTX_T_up ? NTX_REST : NTX_HIGH); part++) {
        const uint32_t n_in = part == NTX_HIGH ? m->o->lora_rank : s.n_in,
                       n_out = part == NTX_LOW ? m->o->lora_rank : s.n_out;
        snprintf(name, sizeof name, "blk.%u.%s", l, ntx_tensor_kinds[low + part].name);
        struct mk_tensor *t = mk_tensor_add(m->f, name, fitting(m->recipe->base, n_in), n_in, n_out, 0);
        if (t)
            t->std = 0.7f / sqrtf((float)n_in);
    }
}

/* An indexer of blocks, in F32 as llama.cpp's converter writes it. */
static void add_blocks_indexer(struct model *m, uint32_t l)
{
    const struct mk_options *o = m->o;
    const uint32_t head = or_else(o->index_head, 64);
    char name[64];
    if (!chooses_blocks(o) || l < o->dense)
        return;
    for (int k = 0; k < 2; k++) {
        snprintf(name, sizeof name, "blk.%u.indexer.%c_proj.weight", l, k ? 'k' : 'q');
        mk_tensor_add(m->f, name, NTX_F32, o->embd, k ? head : head * o->kv, 1 / sqrtf((float)o->embd));
        snprintf(name, sizeof name, "blk.%u.indexer.%c_norm.weight", l, k ? 'k' : 'q');
        add_vector(m, name, head, 1, 0.1f);
    }
}

static void add_layer(struct model *m, uint32_t l)
{
    const struct mk_options *o = m->o;
    bool mixed = m->recipe->mix && more_bits(l, o->layers), experts_only = is_gpt_oss(o) && m->recipe->base != NTX_F32;
    struct ntx_layer layer;
    char name[64];
    ntx_layer_describe(o->arch, &m->hp, l, &layer);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct ntx_whole whole = {.name = ntx_tensor_name(o->arch, values[i].tensor)};
        bool mixes = values[i].tensor >= NTX_T_attn_mix && values[i].tensor <= NTX_T_ffn_mix_base;
        if ((mixes && l >= o->layers && mk__says(o, STREAMED)) || !takes(o, &layer, values[i].tensor) ||
            (ntx_whole_of(&m->hp, l, values[i].tensor, &whole) && whole.out0))
            continue;
        if (ntx_is_models(values[i].tensor))
            snprintf(name, sizeof name, "%s", ntx_tensor_name(o->arch, values[i].tensor));
        else
            snprintf(name, sizeof name, "blk.%u.%s", l, whole.name);
        add_lora(m, l, values[i].tensor);
        if (o->shared && l && ntx_is_matrix(values[i].tensor))
            continue;
        struct mk_tensor *t = add_kind(m, name, l, values[i].tensor,
                                       (values[i].more && mixed) || (values[i].not_experts && experts_only));
        if (!t)
            return;
        bool unscaled = is_gemma4(o) && (values[i].tensor == NTX_T_q_norm ||
                                         values[i].tensor == NTX_T_k_norm); /* scores are not scaled */
        t->mean = unscaled ? 0.35f : values[i].mean;
        t->std = deviation(o, i, t->ne[0]) *
                 (o->nextn_agrees != 0 && leads_out(values[i].tensor) ? o->nextn_agrees : 1);
        if (ntx_is_scalable(values[i].tensor))
            add_scale(m, name, ntx_tensor_kinds[values[i].tensor].use == NTX_USE_EXPERT ? o->experts : 1);
    }
    add_blocks_indexer(m, l);
}

/* Adds a next-token block. */
static void add_nextn(struct model *m, uint32_t l)
{
    static const struct {
        const char *name;
        uint32_t n_in;
        bool matrix;
    } more[] = {{"eh_proj", 2, true}, {"enorm", 1, false}, {"hnorm", 1, false}, {"shared_head_norm", 1, false}};
    char name[64];
    add_layer(m, l);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        snprintf(name, sizeof name, "blk.%u.nextn.%s.weight", l, more[i].name);
        struct mk_tensor *t = more[i].matrix && m->o->nextn_agrees != 0
                                  ? mk_tensor_add(m->f, name, NTX_F32, 2 * (uint64_t)m->o->embd, m->o->embd, 0)
                                  : NULL;
        if (t)
            t->unit = true;
        else if (more[i].matrix)
            add_matrix(m, name, (uint64_t)more[i].n_in * m->o->embd, m->o->embd, 1 / sqrtf((float)m->o->embd), false);
        else
            add_vector(m, name, m->o->embd, 1, 0.1f);
    }
}

/* Each tensor of each layer must have a row of values. */
static int check_values(const struct model *m, struct ntx_err *err)
{
    for (uint32_t l = 0; l < m->o->layers; l++) {
        struct ntx_layer layer;
        bool has[NTX_N_TENSORS] = {false};
        if (!ntx_layer_describe(m->o->arch, &m->hp, l, &layer))
            return ntx_err_set(err, -EINVAL, "no architecture '%.40s'", m->o->arch);
        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
            has[values[i].tensor] = true;
        for (int t = 0; t < NTX_N_TENSORS; t++)
            if (!has[t] && takes(m->o, &layer, (enum ntx_tensor)t))
                return ntx_err_set(err, -EINVAL, "nothing says how large the values of '%s' are",
                                   ntx_tensor_kinds[t].name);
    }
    return 0;
}

/* RoPE divisors as Llama 3.1 defines them: long waves are stretched by the factor, short ones kept, with a ramp
 * between (low_freq_factor 1, high_freq_factor 4). */
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

/* Divisors for half a head, then ones. */
static float *half_freqs(const struct mk_options *o, uint32_t dim, uint32_t orig)
{
    float *half = llama3_freqs(o, dim / 2, orig), *v = half ? realloc(half, dim / 2 * sizeof *v) : NULL;
    for (uint32_t i = dim / 4; v && i < dim / 2; i++)
        v[i] = 1;
    if (!v)
        free(half);
    return v;
}

/* Phi 3: divisors for long contexts, then those for short ones. */
static float *two_freqs(uint32_t dim)
{
    float *v = malloc(dim * sizeof *v);
    for (uint32_t i = 0; v && i < dim / 2; i++) {
        v[i] = 1 + 3.0f * (float)i / (float)dim;
        v[dim / 2 + i] = 1 + 0.5f * (float)i / (float)dim;
    }
    return v;
}

/* Gemma 4 rotates a quarter of the pairs. */
static float *quarter_freqs(uint32_t dim)
{
    float *v = malloc(dim / 2 * sizeof *v);
    for (uint32_t i = 0; v && i < dim / 2; i++)
        v[i] = i < dim / 8 ? 1 : 1e30f;
    return v;
}

/* Adds a tensor of no layer, if the model has it. */
static void add_end(struct model *m, enum ntx_end t, float std, bool more)
{
    const struct ntx_shape shape = ntx_end_shape(&m->hp, t);
    if (ntx_end_has(&m->hp, t) != NTX_NEVER)
        add_matrix(m, ntx_end_kinds[t].name, shape.n_in, shape.n_out, std, more);
}

static void add_tensors(struct model *m, float *freqs)
{
    const struct mk_options *o = m->o;
    float s = 1 / sqrtf((float)o->embd);
    const enum ntx_end lists[] = {is_phi3(o) ? NTX_END_rope_long : NTX_END_rope_freqs, NTX_END_rope_short};
    uint32_t half = (o->rotated ? o->rotated : m->head) / 2;
    for (int i = 0; i < (is_phi3(o) ? 2 : 1) && freqs; i++) {
        struct mk_tensor *t = mk_tensor_add(m->f, ntx_end_kinds[lists[i]].name, NTX_F32, half, 0, 0);
        if (t)
            t->values = freqs + i * half;
    }
    add_end(m, NTX_END_token_embd, o->tied || mk__says(o, EMBED_SCALED) ? s : 1, o->tied || is_gpt_oss(o));
    add_end(m, NTX_END_input_embd, 1 / sqrtf((float)o->layer_input), false);
    add_end(m, NTX_END_gram_embd, 1, false);
    for (uint32_t l = 0; l < o->layers; l++)
        add_layer(m, l);
    for (uint32_t l = o->layers; l < o->layers + o->nextn; l++)
        add_nextn(m, l);
    if (ntx_end_has(&m->hp, NTX_END_output_norm) == NTX_ALWAYS)
        add_vector(m, mk__says(o, SHORT) ? "token_embd_norm.weight" : ntx_end_kinds[NTX_END_output_norm].name, o->embd,
                   o->tied ? o->logit_scale : 1, 0.1f);
    if (!o->tied)
        add_end(m, NTX_END_output, o->logit_scale * s, true);
    if (!o->tied && m->recipe->more == NTX_NVFP4)
        add_scale(m, ntx_end_kinds[NTX_END_output].name, 1);
}

int mk_describe(struct mk_file *f, const struct mk_options *o, float **freqs, struct ntx_err *err)
{
    if (mk_is_head(o->arch))
        return mk_describe_head(f, o, err);
    if (mk_is_tower(o->arch)) {
        mk_describe_tower(f, o);
        return 0;
    }
    struct model m = {
        .f = f, .o = o, .recipe = find_recipe(o->type), .head = o->head_dim ? o->head_dim : o->embd / o->heads};
    uint32_t orig = o->rope_orig ? o->rope_orig : (uint32_t)((float)o->ctx / o->rope_factor);
    float *v = NULL;
    mk__find_widths(&m);
    f->version = o->version;
    f->seed = o->seed;
    f->repeat = o->repeat_layers;
    f->holes = o->holes;
    if (f->repeat)
        mk_kv_bool(f, "ntx.shared_tensors", true);
    int rc = check_values(&m, err);
    if (rc)
        return rc;
    mk__add_keys(&m, orig);
    if ((rc = mk_vocab(f, o, &m.n_vocab, err)))
        return rc;
    mk__kv_u32(&m, "vocab_size", m.n_vocab);
    m.hp.n_vocab = m.n_vocab;
    mk__add_gram_keys(&m);
    if (o->rope_freqs || is_gemma4(o)) {
        if (is_gemma4(o))
            v = quarter_freqs(m.head);
        else if (mk__says(o, STEP))
            v = half_freqs(o, m.head, orig);
        else if (is_phi3(o))
            v = two_freqs(o->rotated ? o->rotated : m.head);
        else
            v = llama3_freqs(o, m.head, orig);
        if (!v)
            return ntx_err_set(err, -ENOMEM, "out of memory");
    }
    add_tensors(&m, v);
    *freqs = v;
    return 0;
}
