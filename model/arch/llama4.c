/* SPDX-License-Identifier: Apache-2.0 */
/* llama4.c: Llama 4. Each fourth layer has no RoPE, and its scores grow with the position, in steps of 8,192. Other
 * layers attend within chunks of positions, and norm q and k after RoPE without a scale (not in models with 128
 * experts). One of so many layers has experts, whose weights multiply their input, and a shared expert without a
 * gate. attention.sliding_window 0: no chunks. (llama.cpp uses 8,192 for any other value; no such file is known.) */
#include <errno.h>

#include "model/arch/arch_impl.h"

enum { UNTURNED_EVERY = 4, CHUNK = 8192, UNNORMED_EXPERTS = 128 };

struct own {
    uint32_t unturned_every; /* the last of so many layers has no RoPE */
};

static int llama4_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    struct own *own = ntx__own(k, sizeof *own);
    int rc;
    if (!own)
        return -ENOMEM;
    if ((rc = ntx__key_windows(k, CHUNK, UNTURNED_EVERY)) ||
        (rc = ntx__key_u32(k, "interleave_moe_layer_step", -1, 0, NTX_MAX_LAYERS, &hp->expert_every)))
        return rc;
    if (hp->window == 1)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is 1: an attention chunk needs more than one token",
                           ntx__key_of(k, "attention.sliding_window"));
    own->unturned_every = hp->window ? UNTURNED_EVERY : hp->n_layers;
    for (uint32_t l = 0; l < hp->n_layers && hp->window; l++)
        if (ntx_windowed(hp, l) !=
            ((l + 1) % UNTURNED_EVERY !=
             0)) /* other programs apply it to both, or to chunks alone: no file is known where they differ */
            return ntx_err_set(k->err, -ENOTSUP,
                               "key '%s': layer %u differs from every fourth layer without chunks: not supported",
                               ntx__key_of(k, "attention.sliding_window_pattern"), l);
    if (hp->window) {
        hp->temperature = (struct ntx_temperature){.scale = 0.1f, .length = hp->window, .ahead = 1};
        hp->ctx_plain = hp->window - 1;
    }
    hp->n_ff_shexp = hp->n_ff_exp;
    hp->router.norm = false;
    return 0;
}

static void llama4_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct own *own = hp->own;
    bool turned = (l + 1) % (own ? own->unturned_every : UNTURNED_EVERY);
    struct ntx__attention has = {
        .rope = NTX_ROPE_NORM, .unturned = !turned, .bare_norm = turned && hp->n_expert != UNNORMED_EXPERTS};
    if (!turned)
        has.temperature = hp->temperature;
    if (ntx_windowed(hp, l))
        has.window = has.chunk = hp->window;
    ntx__add_attention(hp, out, &has);
    if (hp->expert_every && (l + 1) % hp->expert_every == 0)
        ntx__add_experts(m, out,
                         &(struct ntx__experts){.act = NTX_FFN_SILU, .shared = NTX__ALWAYS, .weighs_input = true});
    else
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"llama-4-scout", 48, 5120, 16384, 40, 8, 128, 202048, 10485760, 16, 1, 8192, "interleave_moe_layer_step=1", ""},
    {"llama-4-maverick", 48, 5120, 16384, 40, 8, 128, 202048, 1048576, 128, 1, 8192, "interleave_moe_layer_step=2", ""},
    {0},
};

const struct ntx__arch ntx__arch_llama4 = {
    .models = models,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .keys = llama4_keys,
    .own = {"attention.sliding_window", "attention.sliding_window_pattern", "interleave_moe_layer_step"},
    .layer = llama4_layer,
};
