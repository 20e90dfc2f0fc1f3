/* SPDX-License-Identifier: Apache-2.0 */
/* gptoss.c: gpt-oss: attention with sinks, with a window in every other layer; experts with biases and a clamped
 * activation. */
#include "model/arch/arch_impl.h"

enum { WINDOW_EVERY = 2 };

/* The published configurations have "truncate": false for YaRN (transformers' configuration_gpt_oss.py, and the
 * model's own code, which has no floor and ceiling there); no key of a file says so. llama.cpp rounds the ends of
 * the ramp; the model's own code is right. */
static int gptoss_keys(struct ntx__keys *k)
{
    k->hp->yarn_exact = true;
    return ntx__key_windows(k, -1, WINDOW_EVERY);
}

static void gptoss_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct ntx__attention has = {
        .rope = NTX_ROPE_NEOX,
        .qkv_bias = NTX__ALWAYS,
        .o_bias = NTX__ALWAYS,
        .sinks = NTX__ALWAYS,
        .window = ntx_windowed(hp, l) ? hp->window : 0,
    };
    ntx__add_attention(hp, out, &has);
    ntx__add_experts(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU_CLAMPED, .biases = NTX__ALWAYS});
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"gpt-oss-20b", 24, 2880, 2880, 64, 8, 64, 201088, 131072, 32, 4, 2880, "attention.sliding_window=128", ""},
    {"gpt-oss-120b", 36, 2880, 2880, 64, 8, 64, 201088, 131072, 128, 4, 2880, "attention.sliding_window=128", ""},
    {0},
};

const struct ntx__arch ntx__arch_gpt_oss = {
    .models = models,
    .experts = NTX__ALWAYS,
    .expert_norm = true,
    .keys = gptoss_keys,
    .own = {"attention.sliding_window", "attention.sliding_window_pattern"},
    .layer = gptoss_layer,
    .names = {[NTX_T_ffn_norm] = "post_attention_norm.weight"},
};
