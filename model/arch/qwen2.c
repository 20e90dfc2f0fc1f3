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

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"qwen2.5-7b", 28, 3584, 18944, 28, 4, 128, 152064, 32768, 0, 0, 0, "", ""},
    {"qwen2.5-32b", 64, 5120, 27648, 40, 8, 128, 152064, 32768, 0, 0, 0, "", ""},
    {"qwen2.5-72b", 80, 8192, 29568, 64, 8, 128, 152064, 32768, 0, 0, 0, "", ""},
    {0},
};
static const struct ntx_known models_vl[] = {
    {"qwen2.5-vl-7b", 28, 3584, 18944, 28, 4, 128, 152064, 128000, 0, 0, 0, "rope.dimension_sections=16,24,24,0", ""},
    {0},
};
static const struct ntx_known models_moe[] = {
    {"qwen2-57b-a14b", 28, 3584, 18944, 28, 4, 128, 151936, 32768, 64, 8, 2560,
     "expert_shared_feed_forward_length=20480", ""},
    {0},
};

const struct ntx__arch ntx__arch_qwen2 = {.layer = dense, .models = models};
const struct ntx__arch ntx__arch_qwen2vl = {.layer = dense, .models = models_vl};
const struct ntx__arch ntx__arch_qwen2moe = {
    .experts = NTX__ALWAYS, .keys = shared_width, .layer = moe, .models = models_moe};
