/* SPDX-License-Identifier: Apache-2.0 */
/* seedoss.c: Seed-OSS: biases of q, k and v; heads that are together wider than the model. */
#include "model/arch/arch_impl.h"

static void seed_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx__attention has = {.rope = NTX_ROPE_NEOX, .qkv_bias = NTX__MAYBE, .o_bias = NTX__MAYBE};
    ntx__add_attention(&m->hp, out, &has);
    ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"seed-oss-36b", 64, 5120, 27648, 80, 8, 128, 155136, 524288, 0, 0, 0, "", ""},
    {0},
};

const struct ntx__arch ntx__arch_seed_oss = {
    .models = models, .layer = seed_layer, .names = {[NTX_T_ffn_norm] = "post_attention_norm.weight"}};
