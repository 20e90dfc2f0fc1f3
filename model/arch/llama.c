/* llama.c: Llama 1 to 3.x, Mistral, and with experts Mixtral; llama-relu is the same with relu(gate) * up. */
#include "model/arch/arch_impl.h"

static void attention(const struct ntx_model *m, struct ntx_layer *out)
{
    const struct ntx__attention has = {.rope = NTX_ROPE_NORM, .qkv_bias = NTX__MAYBE, .o_bias = NTX__MAYBE};
    ntx__add_attention(&m->hp, out, &has);
}

static void layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
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

const struct ntx__arch ntx__arch_llama = {.experts = NTX__MAYBE, .expert_norm = true, .layer = layer};
const struct ntx__arch ntx__arch_llama_relu = {.layer = relu};
