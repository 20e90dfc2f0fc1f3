/* SPDX-License-Identifier: Apache-2.0 */
/* minimax.c: MiniMax-M2: norms of q and k over all heads, RoPE of half of each head, experts chosen by a sigmoid with
 * a bias for the choice. MiniMax-M3: norms of each head, leading dense layers, a shared expert, and the clamped SwiGLU
 * of gpt-oss. Behind the dense layers each head of K and V reads `top_k` blocks of positions only: those where the
 * product of a small query with one of the positions' small keys is largest, and the last ones always. */
#include <errno.h>

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

static int block_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc;
    if ((rc = ntx__key_u32(k, "attention.indexer.head_count", -1, 1, NTX_INDEX_BLOCK_HEADS, &hp->index.heads)) ||
        (rc = ntx__key_u32(k, "attention.indexer.top_k", -1, 1, UINT16_MAX, &hp->index.most)) ||
        (rc = ntx__key_u32(k, "attention.indexer.block_size", -1, 1, UINT16_MAX, &hp->index.block)) ||
        (rc = ntx__key_u32(k, "attention.indexer.local_blocks", -1, 1, hp->index.most, &hp->index.last)) ||
        (rc = ntx__key_u32(k, "attention.indexer.key_length", -1, NTX_MAX(hp->rope_dim, 16u), NTX_INDEX_HEAD_MAX,
                           &hp->index.head)))
        return rc;
    if (hp->index.head % 16)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u; multiples of 16 are supported", k->key, hp->index.head);
    if (hp->index.heads != hp->n_head_kv)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is %u, but %u heads of K and V choose blocks",
                           ntx__key_of(k, "attention.indexer.head_count"), hp->index.heads, hp->n_head_kv);
    hp->index_beside = true;
    hp->ctx_plain = (uint32_t)ntx_index_reach(hp); /* a device reads all positions */
    for (uint32_t l = hp->n_dense; l < hp->n_layers; l++)
        hp->index.in[l / 64] |= (uint64_t)1 << l % 64;
    return 0;
}

static int minimax3_keys(struct ntx__keys *k)
{
    int rc;
    if ((rc = ntx__key_dense(k)) || (rc = ntx__key_shared_count(k)))
        return rc;
    return block_keys(k);
}

static void minimax3_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    ntx__add_attention(
        &m->hp, out,
        &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .qk_norm = NTX__ALWAYS, .blocks = ntx_has_indexer(&m->hp, l)});
    ntx__add_dense_or_experts(m, l, out,
                              &(struct ntx__experts){.act = NTX_FFN_SILU_CLAMPED,
                                                     .choice = NTX__ALWAYS,
                                                     .shared = m->hp.n_ff_shexp ? NTX__ALWAYS : NTX__NEVER});
}

static const struct ntx_known models3[] = {
    {"minimax-m3", 60, 6144, 12288, 64, 4, 128, 200064, 524288, 128, 4, 3072,
     "rope.dimension_count=64 leading_dense_block_count=3 expert_shared_count=1 expert_weights_scale=2.0 "
     "attention.indexer.head_count=4 attention.indexer.key_length=128 attention.indexer.top_k=16 "
     "attention.indexer.block_size=128 attention.indexer.local_blocks=1",
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
    .kept = {[NTX_T_block_q] = true, [NTX_T_block_k] = true},
    .models = models3};
const struct ntx__arch ntx__arch_minimax_m2 = {.experts = NTX__ALWAYS,
                                               .score = NTX_SCORE_SIGMOID,
                                               .any_score = true,
                                               .keys = minimax_keys,
                                               .layer = minimax_layer,
                                               .models = models};
