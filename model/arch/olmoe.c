/* SPDX-License-Identifier: Apache-2.0 */
/* olmoe.c: OLMoE: norms of q and k over all heads; experts by a softmax that is not normalised. */
#include "model/arch/arch_impl.h"

static int olmoe_keys(struct ntx__keys *k)
{
    k->hp->n_ff_exp = k->hp->n_ff;
    k->hp->router.norm = false;
    return 0;
}

static void olmoe_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    (void)l;
    ntx__add_attention(&m->hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .qk_norm_all = NTX__ALWAYS});
    ntx__add_experts(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU});
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"olmoe-7b", 16, 2048, 1024, 16, 16, 128, 50304, 4096, 64, 8, 1024, "", ""},
    {0},
};

const struct ntx__arch ntx__arch_olmoe = {
    .experts = NTX__ALWAYS, .keys = olmoe_keys, .layer = olmoe_layer, .models = models};
