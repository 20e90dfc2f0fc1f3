/* SPDX-License-Identifier: Apache-2.0 */
/* hunyuan.c: Hunyuan-A13B: norms of each head's q and k behind RoPE, experts by a softmax beside a shared one. Hy3:
 * norms before RoPE, the first layers dense, then experts chosen by a sigmoid with a bias for the choice beside a
 * shared one; next-token blocks may follow. */
#include "model/arch/arch_impl.h"

static int moe_keys(struct ntx__keys *k)
{
    k->hp->router.norm = true;
    return ntx__key_u32(k, "expert_shared_feed_forward_length", k->hp->n_ff, 1, NTX__MAX_WIDTH, &k->hp->n_ff_shexp);
}

static void moe_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    (void)l;
    ntx__add_attention(&m->hp, out,
                       &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .qk_norm = NTX__ALWAYS, .turned_norm = true});
    ntx__add_experts(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU, .shared = NTX__ALWAYS});
}

/* Files do not say how many layers are dense: those have no router. */
static int find_dense(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    if (ntx_gguf_find(k->g, ntx__key_of(k, "leading_dense_block_count")))
        return ntx__key_dense(k);
    while (hp->n_dense < hp->n_layers && !ntx__has(k, hp->n_dense, ntx_tensor_kinds[NTX_T_router].name))
        hp->n_dense++;
    return 0;
}

static int hy3_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc = ntx__key_nextn(k);
    if (rc || (rc = find_dense(k)) ||
        (rc = ntx__key_u32(k, "expert_shared_feed_forward_length", hp->n_ff_exp, 1, NTX__MAX_WIDTH, &hp->n_ff_shexp)))
        return rc;
    ntx__find_fused_experts(k);
    return 0;
}

static void hy3_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    ntx__add_attention(&m->hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .qk_norm = NTX__ALWAYS});
    ntx__add_dense_or_experts(m, l, out,
                              &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__MAYBE, .shared = NTX__ALWAYS});
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models_moe[] = {
    {"hunyuan-a13b", 32, 4096, 3072, 32, 8, 128, 128167, 262144, 64, 8, 3072, "expert_shared_feed_forward_length=3072",
     ""},
    {0},
};
static const struct ntx_known models_hy3[] = {
    {"hy3", 80, 4096, 13312, 64, 8, 128, 120832, 131072, 192, 8, 1536,
     "leading_dense_block_count=1 expert_shared_feed_forward_length=1536", ""},
    {0},
};

const struct ntx__arch ntx__arch_hunyuan_moe = {
    .models = models_moe, .experts = NTX__ALWAYS, .keys = moe_keys, .layer = moe_layer};
const struct ntx__arch ntx__arch_hy_v3 = {
    .models = models_hy3,
    .nextn = true,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .any_score = true,
    .keys = hy3_keys,
    .own = {"leading_dense_block_count", "nextn_predict_layers"},
    .layer = hy3_layer,
    .names = {[NTX_T_router_select] = "exp_probs_b"},
};
