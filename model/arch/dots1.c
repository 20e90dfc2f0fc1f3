/* SPDX-License-Identifier: Apache-2.0 */
/* dots1.c: dots.llm1: norms of each head's q and k; the first layers dense, then experts chosen by a sigmoid with a
 * bias for the choice, and shared experts. */
#include "model/arch/arch_impl.h"

static int dots1_keys(struct ntx__keys *k)
{
    int rc = ntx__key_dense(k);
    return rc ? rc : ntx__key_shared_count(k);
}

static void dots1_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    ntx__add_attention(&m->hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .qk_norm = NTX__ALWAYS});
    ntx__add_dense_or_experts(m, l, out,
                              &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__MAYBE, .shared = NTX__ALWAYS});
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"dots.llm1", 62, 4096, 10944, 32, 32, 128, 152064, 32768, 128, 6, 1408,
     "leading_dense_block_count=1 expert_shared_count=2", ""},
    {0},
};

const struct ntx__arch ntx__arch_dots1 = {
    .models = models,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .any_score = true,
    .keys = dots1_keys,
    .own = {"leading_dense_block_count"},
    .layer = dots1_layer,
};
