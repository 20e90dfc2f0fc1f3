/* SPDX-License-Identifier: Apache-2.0 */
/* smollm3.c: SmolLM3: llama's layers; each fourth one has no RoPE. */
#include "model/arch/arch_impl.h"

enum { UNTURNED_EVERY = 4 };

static void smollm3_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx__attention has = {
        .rope = NTX_ROPE_NORM, .qkv_bias = NTX__MAYBE, .unturned = l % UNTURNED_EVERY == UNTURNED_EVERY - 1};
    ntx__add_attention(&m->hp, out, &has);
    ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"smollm3-3b", 36, 2048, 11008, 16, 4, 128, 128256, 65536, 0, 0, 0, "", ""},
    {0},
};

const struct ntx__arch ntx__arch_smollm3 = {.layer = smollm3_layer, .models = models};
