/* SPDX-License-Identifier: Apache-2.0 */
/* llama.c: Llama 1 to 3.x, Mistral, and with experts Mixtral; llama-relu is the same with relu(gate) * up. */
#include "model/arch/arch_impl.h"

static void attention(const struct ntx_model *m, struct ntx_layer *out)
{
    const struct ntx__attention has = {.rope = NTX_ROPE_NORM, .qkv_bias = NTX__MAYBE, .o_bias = NTX__MAYBE};
    ntx__add_attention(&m->hp, out, &has);
}

static void llama_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    attention(m, out);
    if (m->hp.n_expert)
        ntx__add_experts(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU});
    else
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

static void relu(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    attention(m, out);
    ntx__add_dense(m, l, out, NTX_FFN_RELU);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"llama-2-7b", 32, 4096, 11008, 32, 32, 128, 32000, 4096, 0, 0, 0, "", ""},
    {"llama-2-13b", 40, 5120, 13824, 40, 40, 128, 32000, 4096, 0, 0, 0, "", ""},
    {"llama-2-70b", 80, 8192, 28672, 64, 8, 128, 32000, 4096, 0, 0, 0, "", ""},
    {"llama-8b", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 0, 0, 0, "", ""},
    {"llama-70b", 80, 8192, 28672, 64, 8, 128, 128256, 131072, 0, 0, 0, "", ""},
    {"mixtral-8x7b", 32, 4096, 14336, 32, 8, 128, 32000, 32768, 8, 2, 14336, "", ""},
    {0},
};

const struct ntx__arch ntx__arch_llama = {
    .experts = NTX__MAYBE, .expert_norm = true, .layer = llama_layer, .models = models};
const struct ntx__arch ntx__arch_llama_relu = {.own_name = true, .layer = relu};
