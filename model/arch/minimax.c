/* SPDX-License-Identifier: Apache-2.0 */
/* minimax.c: MiniMax-M2: norms of q and k over all heads, RoPE of half of each head, experts chosen by a sigmoid
 * with a bias for the choice. */
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

const struct ntx__arch ntx__arch_minimax_m2 = {.experts = NTX__ALWAYS,
                                               .score = NTX_SCORE_SIGMOID,
                                               .any_score = true,
                                               .keys = minimax_keys,
                                               .layer = minimax_layer,
                                               .models = models};
