/* SPDX-License-Identifier: Apache-2.0 */
/* laguna.c: Laguna: norms of each head's q and k, and a softplus gate of each head's output, or of each value. Layers
 * with a window may have other numbers of heads, and RoPE of another width and base without scaling. The first layers
 * are dense, the others have experts chosen by a sigmoid with a bias for the choice beside a shared one. */
#include <errno.h>
#include <stdio.h>

#include "model/arch/arch_impl.h"

enum { EVERY = 4 };

struct own {
    bool by_value[NTX_MAX_LAYERS]; /* gates of each value, else of each head */
};

static int window_keys(struct ntx__keys *k)
{
    int rc = ntx__key_windows_behind(k, 0, EVERY);
    return rc || !k->hp->window ? rc : ntx__key_window_rope(k);
}

static int find_gates(struct ntx__keys *k, struct own *own)
{
    for (uint32_t l = 0; l < k->hp->n_layers; l++) {
        char name[80];
        snprintf(name, sizeof name, "blk.%u.%s", l, ntx_tensor_kinds[NTX_T_mla_gate].name);
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor(k->g, name);
        own->by_value[l] = t && t->ne[1] != ntx_dims_of(k->hp, l).n_head;
    }
    return 0;
}

static int laguna_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    struct own *own = ntx__own(k, sizeof *own);
    int rc = own ? window_keys(k) : -ENOMEM;
    if (rc || (rc = ntx__make_dims(k)) || (rc = ntx__key_dense(k)) ||
        (rc = ntx__key_u32(k, "expert_shared_feed_forward_length", hp->n_ff_exp, 1, NTX__MAX_WIDTH, &hp->n_ff_shexp)))
        return rc;
    return find_gates(k, own);
}

static void laguna_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct own *own = m->hp.own;
    const bool windowed = ntx_windowed(&m->hp, l), by_value = own && own->by_value[l];
    const struct ntx__attention attention = {.layer = l,
                                             .rope = NTX_ROPE_NEOX,
                                             .qk_norm = NTX__ALWAYS,
                                             .head_gates = !by_value,
                                             .value_gates = by_value,
                                             .soft_gates = true,
                                             .turn = windowed ? NTX_ROTATION_WINDOW : NTX_ROTATION_ALL,
                                             .window = windowed ? m->hp.window : 0};
    ntx__add_attention(&m->hp, out, &attention);
    ntx__add_dense_or_experts(
        m, l, out, &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__ALWAYS, .shared = NTX__ALWAYS});
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"laguna-xs.2", 40, 2048, 8192, 0, 8, 128, 100352, 131072, 256, 8, 512,
     "attention.head_count=48,64x3 attention.sliding_window=512 leading_dense_block_count=1 "
     "expert_shared_feed_forward_length=512 "
     "rope.dimension_count=64 rope.dimension_count_swa=128",
     ""},
    {0},
};

const struct ntx__arch ntx__arch_laguna = {
    .models = models,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .any_score = true,
    .per_layer = true,
    .keys = laguna_keys,
    .layer = laguna_layer,
    .own = {"attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa",
            "rope.dimension_count_swa", "leading_dense_block_count"},
};
