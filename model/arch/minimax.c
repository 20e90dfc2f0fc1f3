/* SPDX-License-Identifier: Apache-2.0 */
/* minimax.c: MiniMax-M2: norms of q and k over all heads, RoPE of half of each head, experts chosen by a sigmoid with
 * a bias for the choice. MiniMax-M3: norms of each head, leading dense layers, a shared expert, and the clamped SwiGLU
 * of gpt-oss. There the heads that share K and V read `top_k` blocks of positions that an indexer chooses. That choice
 * is not computed: within so many blocks all positions are read, and the context ends there. */
#include "common/util.h"
#include "model/arch/arch_impl.h"

static int minimax_keys(struct ntx__keys *k)
{
    k->hp->n_ff_exp = k->hp->n_ff; /* expert_feed_forward_length is ignored */
    k->hp->router.norm = true;
    return 0;
}

static void minimax_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    (void)l;
    ntx__add_attention(&m->hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .qk_norm_all = NTX__ALWAYS});
    ntx__add_experts(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__ALWAYS});
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"minimax-m2", 62, 3072, 1536, 48, 8, 128, 200064, 196608, 256, 8, 1536, "", ""},
    {0},
};

static int minimax3_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t most, block;
    int rc;
    if ((rc = ntx__key_dense(k)) || (rc = ntx__key_shared_count(k)) ||
        (rc = ntx__key_u32(k, "attention.indexer.top_k", -1, 1, UINT16_MAX, &most)) ||
        (rc = ntx__key_u32(k, "attention.indexer.block_size", -1, 1, UINT16_MAX, &block)))
        return rc;
    hp->ctx_train = NTX_MIN(hp->ctx_train, most * block);
    return 0;
}

static void minimax3_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    ntx__add_attention(&m->hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .qk_norm = NTX__ALWAYS});
    ntx__add_dense_or_experts(m, l, out,
                              &(struct ntx__experts){.act = NTX_FFN_SILU_CLAMPED,
                                                     .choice = NTX__ALWAYS,
                                                     .shared = m->hp.n_ff_shexp ? NTX__ALWAYS : NTX__NEVER});
}

static const struct ntx_known models3[] = {
    {"minimax-m3", 60, 6144, 12288, 64, 4, 128, 200064, 524288, 128, 4, 3072,
     "rope.dimension_count=64 leading_dense_block_count=3 expert_shared_count=1 expert_weights_scale=2.0 "
     "attention.indexer.top_k=16 attention.indexer.block_size=128",
     ""},
    {0},
};

const struct ntx__arch ntx__arch_minimax_m3 = {
    .experts = NTX__ALWAYS,
    .expert_norm = true,
    .score = NTX_SCORE_SIGMOID,
    .keys = minimax3_keys,
    .own = {"leading_dense_block_count", "attention.indexer.head_count", "attention.indexer.top_k"},
    .layer = minimax3_layer,
    .unread = {"indexer.q_proj.weight", "indexer.k_proj.weight", "indexer.q_norm.weight", "indexer.k_norm.weight"},
    .models = models3};
const struct ntx__arch ntx__arch_minimax_m2 = {.experts = NTX__ALWAYS,
                                               .score = NTX_SCORE_SIGMOID,
                                               .any_score = true,
                                               .keys = minimax_keys,
                                               .layer = minimax_layer,
                                               .models = models};
