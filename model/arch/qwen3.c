/* qwen3.c: Qwen 3: norms of each head's q and k; dense, or with experts. */
#include "model/arch/arch_impl.h"

static const struct ntx__attention attention = {.rope = NTX_ROPE_NEOX, .qk_norm = NTX__ALWAYS};

static void dense(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    ntx__add_attention(&m->hp, out, &attention);
    ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

static void moe(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    (void)l;
    ntx__add_attention(&m->hp, out, &attention);
    ntx__add_experts(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU});
}

const struct ntx__arch ntx__arch_qwen3 = {.layer = dense};
const struct ntx__arch ntx__arch_qwen3moe = {.experts = NTX__ALWAYS, .expert_norm = true, .layer = moe};
