/* SPDX-License-Identifier: Apache-2.0 */
/* step35.c: Step 3.5 Flash: attention with a gate of each head's output. Layers with a window have more heads, RoPE
 * of whole heads and another base; the others rotate half of each head. Experts chosen by a sigmoid beside a shared
 * one. In some layers the activation and its factor are clamped. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "model/arch/arch_impl.h"

struct own {
    float limit[NTX_MAX_LAYERS], shared_limit[NTX_MAX_LAYERS]; /* limits of the experts' activations and factors; of
                                                                  the shared expert's. 0: none */
};

static int window_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    const struct ntx_gguf_kv *pattern = ntx_gguf_find(k->g, ntx__key_of(k, "attention.sliding_window_pattern"));
    int rc;
    if (!pattern || pattern->type != NTX_GGUF_ARR)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is missing, or no array", k->key);
    if ((rc = ntx__key_windows(k, -1, 1)) || (rc = ntx__key_window_rope(k)))
        return rc;
    if (!hp->window)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is 0: a %s model without a window is not supported",
                           ntx__key_of(k, "attention.sliding_window"), k->name);
    if (hp->rope_dim % 4 || hp->rope_dim_window % 2 || hp->rope_scaling != NTX_ROPE_SCALE_NONE)
        return ntx_err_set(k->err, -ENOTSUP,
                           "%u rotated values of a head, of which layers without a window turn half, %u within a "
                           "window%s: not supported",
                           hp->rope_dim, hp->rope_dim_window,
                           hp->rope_scaling != NTX_ROPE_SCALE_NONE ? ", and rope.scaling" : "");
    hp->rope_dim /= 2;
    return 0;
}

/* The list of RoPE divisors is for whole heads, of which layers without a window rotate half. */
static uint32_t step35_width(const struct ntx_hparams *hp, enum ntx_dim d)
{
    return d == NTX_DIM_FREQS ? hp->rope_dim : 0;
}

static int step35_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    struct own *own = ntx__own(k, sizeof *own);
    int rc = own ? ntx__key_nextn(k) : -ENOMEM;
    if (rc || (rc = window_keys(k)) || (rc = ntx__make_dims(k)) ||
        (rc = ntx__key_u32(k, "leading_dense_block_count", 0, 0, hp->n_layers, &hp->n_dense)) ||
        (rc = ntx__key_u32(k, "expert_shared_feed_forward_length", -1, 1, NTX__MAX_WIDTH, &hp->n_ff_shexp)) ||
        (rc = ntx__key_limits(k, "swiglu_clamp_exp", own->limit)))
        return rc;
    return ntx__key_limits(k, "swiglu_clamp_shexp", own->shared_limit);
}

static void step35_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const bool windowed = ntx_windowed(&m->hp, l);
    const struct ntx__attention attention = {.layer = l,
                                             .rope = NTX_ROPE_NEOX,
                                             .qk_norm = NTX__MAYBE,
                                             .head_gates = true,
                                             .turn = windowed ? NTX_ROTATION_WINDOW : NTX_ROTATION_ALL,
                                             .window = windowed ? m->hp.window : 0};
    ntx__add_attention(&m->hp, out, &attention);
    if (l < m->hp.n_dense)
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
    else
        ntx__add_experts(m, out,
                         &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__MAYBE, .shared = NTX__ALWAYS});
    const struct own *own = m->hp.own;
    if (own)
        ntx__set_limits(out, own->limit[l], own->shared_limit[l]);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"step-3.5-flash", 45, 4096, 11264, 0, 8, 128, 128896, 262144, 288, 8, 1280,
     "attention.head_count=64x1,96x3 attention.sliding_window=512 attention.sliding_window_pattern=0x1,1x3 "
     "leading_dense_block_count=3 expert_shared_feed_forward_length=1280",
     ""},
    {0},
};

const struct ntx__arch ntx__arch_step35 = {
    .models = models,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .any_score = true,
    .per_layer = true,
    .keys = step35_keys,
    .layer = step35_layer,
    .width = step35_width,
    .own = {"attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa",
            "rope.dimension_count_swa", "leading_dense_block_count", "nextn_predict_layers", "swiglu_clamp_exp",
            "swiglu_clamp_shexp"},
};
