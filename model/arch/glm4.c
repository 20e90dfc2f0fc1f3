/* SPDX-License-Identifier: Apache-2.0 */
/* glm4.c: GLM-4 of 2025 (9B, 32B) and the text part of GLM-4.1V, dense: norms before and after attention and FFN,
 * gate and up in one matrix, RoPE of half of each head. Files with RoPE sections rotate halves, others adjacent
 * pairs. */
#include <errno.h>

#include "model/arch/arch_impl.h"

struct own {
    enum ntx_rope_kind rope;
};

static int glm4_keys(struct ntx__keys *k)
{
    struct own *own = ntx__own(k, sizeof *own);
    if (!own)
        return -ENOMEM;
    own->rope = ntx_gguf_find(k->g, ntx__key_of(k, "rope.dimension_sections")) ? NTX_ROPE_NEOX : NTX_ROPE_NORM;
    k->hp->gate_up_fused = true;
    return ntx__key_nextn(k);
}

static void glm4_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct own *own = m->hp.own;
    const struct ntx__attention has = {
        .rope = own ? own->rope : NTX_ROPE_NORM, .qkv_bias = NTX__MAYBE, .post_norm = true};
    ntx__add_attention(&m->hp, out, &has);
    ntx__add_dense_normed(m, l, out, NTX_FFN_SILU);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"glm-4-32b", 61, 6144, 23040, 48, 2, 128, 151552, 32768, 0, 0, 0, "rope.dimension_count=64", ""},
    {0},
};

const struct ntx__arch ntx__arch_glm4 = {
    .keys = glm4_keys, .own = {"nextn_predict_layers"}, .layer = glm4_layer, .models = models};
