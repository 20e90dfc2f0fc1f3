/* SPDX-License-Identifier: Apache-2.0 */
/* glm4moe.c: GLM-4.5 to 4.7 and Air: the first layers dense, then experts chosen by a sigmoid with a bias for the
 * choice, and a shared expert without a gate; RoPE of half of each head. Next-token blocks follow. */
#include "model/arch/arch_impl.h"

static int glm4moe_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t shared;
    int rc = ntx__key_nextn(k);
    if (rc || (rc = ntx__key_u32(k, "leading_dense_block_count", 0, 0, hp->n_layers, &hp->n_dense)) ||
        (rc = ntx__key_u32(k, "expert_shared_count", -1, 0, NTX__MAX_WIDTH / hp->n_ff_exp, &shared)))
        return rc;
    hp->n_ff_shexp = shared * hp->n_ff_exp;
    return 0;
}

static void glm4moe_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx__attention has = {.rope = NTX_ROPE_NEOX, .qkv_bias = NTX__MAYBE, .qk_norm = NTX__MAYBE};
    const struct ntx__experts experts = {
        .act = NTX_FFN_SILU, .choice = NTX__ALWAYS, .shared = m->hp.n_ff_shexp ? NTX__ALWAYS : NTX__NEVER};
    ntx__add_attention(&m->hp, out, &has);
    if (l < m->hp.n_dense)
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
    else
        ntx__add_experts(m, out, &experts);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"glm-4.5-air", 46, 4096, 10944, 96, 8, 128, 151552, 131072, 128, 8, 1408,
     "leading_dense_block_count=1 expert_shared_count=1", ""},
    {"glm-4.6", 92, 5120, 12288, 96, 8, 128, 151552, 202752, 160, 8, 1536,
     "leading_dense_block_count=3 expert_shared_count=1", ""},
    {0},
};

const struct ntx__arch ntx__arch_glm4moe = {
    .models = models,
    .nextn = true,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .any_score = true,
    .keys = glm4moe_keys,
    .own = {"leading_dense_block_count", "nextn_predict_layers"},
    .layer = glm4moe_layer,
    .names = {[NTX_T_ffn_norm] = "post_attention_norm.weight"},
};
