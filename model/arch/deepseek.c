/* SPDX-License-Identifier: Apache-2.0 */
/* deepseek.c: DeepSeek MoE, the first generation: llama's attention; the first layers dense, then experts by a
 * softmax that is not normalised, and shared experts. */
#include "model/arch/arch_impl.h"

static int deepseek_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t shared;
    int rc;
    if ((rc = ntx__key_u32(k, "leading_dense_block_count", 0, 0, hp->n_layers, &hp->n_dense)) ||
        (rc = ntx__key_u32(k, "expert_shared_count", -1, 0, NTX__MAX_WIDTH / hp->n_ff_exp, &shared)))
        return rc;
    hp->n_ff_shexp = shared * hp->n_ff_exp;
    return 0;
}

static void deepseek_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx__experts experts = {.act = NTX_FFN_SILU, .shared = m->hp.n_ff_shexp ? NTX__ALWAYS : NTX__NEVER};
    ntx__add_attention(&m->hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NORM, .qkv_bias = NTX__MAYBE});
    if (l < m->hp.n_dense)
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
    else
        ntx__add_experts(m, out, &experts);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"deepseek-moe-16b", 28, 2048, 10944, 16, 16, 128, 102400, 4096, 64, 6, 1408,
     "leading_dense_block_count=1 expert_shared_count=2", ""},
    {0},
};

const struct ntx__arch ntx__arch_deepseek = {.experts = NTX__ALWAYS,
                                             .keys = deepseek_keys,
                                             .own = {"leading_dense_block_count"},
                                             .layer = deepseek_layer,
                                             .models = models};
