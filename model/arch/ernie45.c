/* SPDX-License-Identifier: Apache-2.0 */
/* ernie45.c: ERNIE 4.5 with experts: llama's attention; the first layers dense, then experts by a softmax with a bias
 * for the choice, beside a shared one or not. */
#include <errno.h>

#include "model/arch/arch_impl.h"

static int ernie_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t step;
    int rc = ntx__key_dense(k);
    if (rc || (rc = ntx__key_u32(k, "interleave_moe_layer_step", 1, 1, NTX_MAX_LAYERS, &step)) ||
        (rc = ntx__key_u32(k, "expert_shared_feed_forward_length", 0, 0, NTX__MAX_WIDTH, &hp->n_ff_shexp)))
        return rc;
    hp->router.norm = true;
    return step == 1 ? 0
                     : ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u: only 1 (experts in each layer) is supported",
                                   ntx__key_of(k, "interleave_moe_layer_step"), step);
}

static void ernie_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx__experts experts = {
        .act = NTX_FFN_SILU, .choice = NTX__MAYBE, .shared = m->hp.n_ff_shexp ? NTX__ALWAYS : NTX__NEVER};
    ntx__add_attention(&m->hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NORM});
    ntx__add_dense_or_experts(m, l, out, &experts);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"ernie-4.5-21b-a3b", 28, 2560, 12288, 20, 4, 128, 103424, 131072, 64, 6, 1536,
     "leading_dense_block_count=1 interleave_moe_layer_step=1 expert_shared_feed_forward_length=3072", ""},
    {"ernie-4.5-300b-a47b", 54, 8192, 28672, 64, 8, 128, 103424, 131072, 64, 8, 3584,
     "leading_dense_block_count=3 interleave_moe_layer_step=1", ""},
    {0},
};

const struct ntx__arch ntx__arch_ernie4_5_moe = {
    .models = models,
    .experts = NTX__ALWAYS,
    .keys = ernie_keys,
    .own = {"leading_dense_block_count", "interleave_moe_layer_step"},
    .layer = ernie_layer,
};
