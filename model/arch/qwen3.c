/* SPDX-License-Identifier: Apache-2.0 */
/* qwen3.c: Qwen 3: norms of each head's q and k; dense, or with experts. Qwen3-VL's text part is the same: its RoPE
 * has sections of pairs, whose positions are equal in a text. */
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

/* ---- models by name (model/arch.h) */

static const struct ntx_known models_dense[] = {
    {"qwen3-8b", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 0, 0, 0, "", ""},
    {"qwen3-32b", 64, 5120, 25600, 64, 8, 128, 151936, 40960, 0, 0, 0, "", ""},
    {0},
};
static const struct ntx_known models[] = {
    {"qwen3-30b-a3b", 48, 2048, 6144, 32, 4, 128, 151936, 40960, 128, 8, 768, "", ""},
    {"qwen3-235b-a22b", 94, 4096, 12288, 64, 4, 128, 151936, 40960, 128, 8, 1536, "", ""},
    {0},
};

static const struct ntx_known models_vl_dense[] = {
    {"qwen3-vl-8b", 36, 4096, 12288, 32, 8, 128, 151936, 262144, 0, 0, 0, "rope.dimension_sections=24,20,20,0", ""},
    {0},
};
static const struct ntx_known models_vl[] = {
    {"qwen3-vl-235b-a22b", 94, 4096, 12288, 64, 4, 128, 151936, 262144, 128, 8, 1536,
     "rope.dimension_sections=24,20,20,0", ""},
    {0},
};

const struct ntx__arch ntx__arch_qwen3 = {.layer = dense, .models = models_dense};
const struct ntx__arch ntx__arch_qwen3vl = {.interleaved = true, .layer = dense, .models = models_vl_dense};
const struct ntx__arch ntx__arch_qwen3vlmoe = {
    .experts = NTX__ALWAYS, .expert_norm = true, .interleaved = true, .layer = moe, .models = models_vl};
const struct ntx__arch ntx__arch_qwen3moe = {
    .experts = NTX__ALWAYS, .expert_norm = true, .layer = moe, .models = models};
