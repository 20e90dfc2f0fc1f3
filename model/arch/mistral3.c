/* SPDX-License-Identifier: Apache-2.0 */
/* mistral3.c: Ministral 3: llama's layers, whose scores grow with the position, in steps of the context before YaRN. */
#include "model/arch/arch_impl.h"

static int mistral3_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    float log_multiplier;
    int rc;
    if ((rc = ntx__key_f32(k, "attention.temperature_scale", 0, 0, 1e3f, &hp->temperature.scale)) ||
        (rc = ntx__key_f32(k, "rope.scaling.yarn_log_multiplier", 0, 0, 1e3f, &log_multiplier)))
        return rc;
    if (hp->temperature.scale != 0)
        hp->ctx_plain = hp->temperature.length = hp->rope_ctx_orig;
    if (hp->rope_scaling == NTX_ROPE_SCALE_YARN && hp->yarn_ext_factor != 0 &&
        !hp->yarn_magnitude_told) /* the magnitude is divided by that of this multiplier */
        hp->rope_attn_factor = (float)(hp->rope_attn_factor / ntx__yarn_magnitude(hp, (double)log_multiplier));
    return 0;
}

static void mistral3_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    ntx__add_attention(
        &m->hp, out,
        &(struct ntx__attention){
            .rope = NTX_ROPE_NORM, .qkv_bias = NTX__MAYBE, .o_bias = NTX__MAYBE, .temperature = m->hp.temperature});
    if (m->hp.n_expert)
        ntx__add_experts(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU});
    else
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"ministral-3-8b", 34, 4096, 14336, 32, 8, 128, 131072, 262144, 0, 0, 0, "", ""},
    {"ministral-3-14b", 40, 5120, 16384, 32, 8, 128, 131072, 262144, 0, 0, 0, "", ""},
    {0},
};

const struct ntx__arch ntx__arch_mistral3 = {
    .models = models,
    .experts = NTX__MAYBE,
    .expert_norm = true,
    .keys = mistral3_keys,
    .own = {"attention.temperature_scale", "rope.scaling.yarn_log_multiplier"},
    .layer = mistral3_layer,
};
