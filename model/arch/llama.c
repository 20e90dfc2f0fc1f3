/* llama.c: Llama 1 to 3.x, Mistral, and with experts Mixtral; llama-relu is the same with relu(gate) * up. */
#include "model/arch/arch_impl.h"

static void layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx__attention has = {.qkv_bias = NTX__MAYBE, .o_bias = NTX__MAYBE};
    ntx__add_attention(&m->hp, out, &has);
    if (m->hp.n_expert)
        ntx__add_experts(m, out, false, false);
    else
        ntx__add_dense(m, l, out);
}

const struct ntx__arch ntx__arch_llama = {.rope = NTX_ROPE_NORM, .act = NTX_FFN_SILU, .experts = NTX__MAYBE, .expert_norm = true, .layer = layer};
const struct ntx__arch ntx__arch_llama_relu = {.rope = NTX_ROPE_NORM, .act = NTX_FFN_RELU, .layer = layer};
