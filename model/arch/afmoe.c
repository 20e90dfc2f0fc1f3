/* SPDX-License-Identifier: Apache-2.0 */
/* afmoe.c: Trinity (AFMoE): norms of each head's q and k, and before and after attention and FFN; a gate of each
 * value of attention's output. Three of four layers have a window; every fourth has no RoPE. The first layers are
 * dense, the others have experts chosen by a sigmoid with a bias for the choice, and shared experts. The embedding is
 * scaled by the root of its width. */
#include <math.h>

#include "model/arch/arch_impl.h"

enum { EVERY = 4 };

static int afmoe_keys(struct ntx__keys *k)
{
    int rc = ntx__key_windows(k, 0, EVERY);
    k->hp->embd_scale = sqrtf((float)k->hp->n_embd);
    if (rc || (rc = ntx__key_dense(k)))
        return rc;
    return ntx__key_shared_count(k);
}

static void afmoe_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct ntx__attention attention = {.rope = NTX_ROPE_NEOX,
                                             .qk_norm = NTX__ALWAYS,
                                             .value_gates = true,
                                             .post_norm = true,
                                             .unturned = l % EVERY == EVERY - 1,
                                             .window = ntx_windowed(hp, l) ? hp->window : 0};
    const struct ntx__experts experts = {
        .act = NTX_FFN_SILU, .choice = NTX__ALWAYS, .shared = hp->n_ff_shexp ? NTX__ALWAYS : NTX__NEVER};
    ntx__add_attention(hp, out, &attention);
    if (l < hp->n_dense)
        ntx__add_dense_normed(m, l, out, NTX_FFN_SILU);
    else
        ntx__add_experts_normed(m, out, &experts);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"trinity-mini", 32, 2048, 6144, 32, 4, 128, 200192, 131072, 128, 8, 1024,
     "leading_dense_block_count=2 expert_shared_count=1 attention.sliding_window=2048", ""},
    {0},
};

const struct ntx__arch ntx__arch_afmoe = {
    .models = models,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .any_score = true,
    .keys = afmoe_keys,
    .own = {"leading_dense_block_count", "attention.sliding_window", "attention.sliding_window_pattern"},
    .layer = afmoe_layer,
};
