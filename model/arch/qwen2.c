/* SPDX-License-Identifier: Apache-2.0 */
/* qwen2.c: Qwen 1.5 to 2.5: biases of q, k and v; with experts, also a shared one. The text part of Qwen2-VL and
 * 2.5-VL is the same: its RoPE has sections of pairs. */
#include "model/arch/arch_impl.h"

static void dense(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx__attention has = {.rope = NTX_ROPE_NEOX, .qkv_bias = NTX__ALWAYS, .o_bias = NTX__MAYBE};
    ntx__add_attention(&m->hp, out, &has);
    ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

static int shared_width(struct ntx__keys *k)
{
    return ntx__key_u32(k, "expert_shared_feed_forward_length", k->hp->n_ff, 1, NTX__MAX_WIDTH, &k->hp->n_ff_shexp);
}

static void moe(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    (void)l;
    const struct ntx__attention has = {.rope = NTX_ROPE_NEOX, .qkv_bias = NTX__MAYBE, .o_bias = NTX__MAYBE};
    ntx__add_attention(&m->hp, out, &has);
    ntx__add_experts(m, out,
                     &(struct ntx__experts){.act = NTX_FFN_SILU, .shared = NTX__ALWAYS, .shared_gate = NTX__ALWAYS});
}

const struct ntx__arch ntx__arch_qwen2 = {.layer = dense};
const struct ntx__arch ntx__arch_qwen2vl = {.layer = dense};
const struct ntx__arch ntx__arch_qwen2moe = {.experts = NTX__ALWAYS, .keys = shared_width, .layer = moe};
