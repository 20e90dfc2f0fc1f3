/* SPDX-License-Identifier: Apache-2.0 */
/* exaonemoe.c: K-EXAONE: norms of each head's q and k; layers with a window, which have RoPE, and layers without
 * both. The first layers are dense, the others have experts chosen by a sigmoid with a bias for the choice, and shared
 * ones. Next-token blocks are left out. */
#include "model/arch/arch_impl.h"

enum { EVERY = 4 };

static int exaone_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc = ntx__key_nextn(k);
    if (rc || (rc = ntx__key_windows(k, -1, EVERY)) || (rc = ntx__key_dense(k)))
        return rc;
    return ntx__key_u32(k, "expert_shared_feed_forward_length", hp->n_ff_exp, 1, NTX__MAX_WIDTH, &hp->n_ff_shexp);
}

static void exaone_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const bool windowed = ntx_windowed(&m->hp, l);
    const struct ntx__attention attention = {
        .rope = NTX_ROPE_NEOX, .qk_norm = NTX__ALWAYS, .unturned = !windowed, .window = windowed ? m->hp.window : 0};
    ntx__add_attention(&m->hp, out, &attention);
    ntx__add_dense_or_experts(m, l, out,
                              &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__MAYBE, .shared = NTX__ALWAYS});
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"k-exaone-236b-a23b", 48, 6144, 18432, 64, 8, 128, 153600, 262144, 128, 8, 2048,
     "leading_dense_block_count=1 expert_shared_feed_forward_length=2048 attention.sliding_window=128", ""},
    {0},
};

const struct ntx__arch ntx__arch_exaone_moe = {
    .models = models,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .any_score = true,
    .keys = exaone_keys,
    .own = {"leading_dense_block_count", "nextn_predict_layers", "attention.sliding_window",
            "attention.sliding_window_pattern"},
    .layer = exaone_layer,
};
