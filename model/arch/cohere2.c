/* SPDX-License-Identifier: Apache-2.0 */
/* cohere2.c: Command A and R7B, and North with experts: attention and FFN of the same normed input, side by side;
 * norms subtract the mean, without a bias; layers with a window have RoPE, the others none. With experts: the first
 * layers dense, all with RoPE; shared experts count half. */
#include <errno.h>
#include <math.h>

#include "model/arch/arch_impl.h"

enum { EVERY = 4 };

struct own {
    float eps; /* of norms that subtract the mean; 0: norms do not */
};

static int cohere_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    struct own *own = ntx__own(k, sizeof *own);
    const bool moe = k->arch == &ntx__arch_cohere2moe;
    int rc = own ? 0 : -ENOMEM;
    if (rc || (rc = moe ? ntx__key_windows_behind(k, -1, EVERY) : ntx__key_windows(k, -1, EVERY)) ||
        (rc = ntx__key_f32(k, "attention.layer_norm_epsilon", 0, 0, 1, &own->eps)) ||
        (rc = ntx__key_f32(k, "logit_scale", NAN, 1e-6f, 1e6f, &hp->logit_scale)))
        return rc;
    if (moe && hp->rms_eps != 0) /* as llama.cpp chooses */
        own->eps = 0;
    hp->no_output_norm = own->eps != 0;
    return own->eps != 0 || hp->rms_eps != 0
               ? 0
               : ntx_err_set(k->err, -EINVAL, "key '%s' is missing", ntx__key_of(k, "attention.layer_norm_epsilon"));
}

static int cohere_moe_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc = ntx__key_nextn(k);
    if (rc || (rc = cohere_keys(k)) || (rc = ntx__key_dense(k)) ||
        (rc = ntx__key_u32(k, "expert_shared_feed_forward_length", 0, 0, NTX__MAX_WIDTH, &hp->n_ff_shexp)))
        return rc;
    ntx__find_fused_experts(k);
    return 0;
}

static void copy_scaled(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in,
                        float scale)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_SCALE, out, in);
    s->width = hp->n_embd;
    s->scale = scale;
}

/* out = norm(h). Without a file (own NULL) norms subtract the mean. */
static void add_mean_norm(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf out, enum ntx_tensor t)
{
    const struct own *own = hp->own;
    if (own && own->eps == 0) {
        ntx__norm(l, out, NTX_BUF_H, t, NTX__ALWAYS, 1, hp->n_embd);
        return;
    }
    if (out != NTX_BUF_H)
        copy_scaled(hp, l, out, NTX_BUF_H, 1);
    ntx__mean_norm(hp, l, out, t, own ? own->eps : 0);
}

static void cohere_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    const bool windowed = ntx_windowed(hp, l);
    const struct ntx__attention attention = {.rope = NTX_ROPE_NORM,
                                             .normed = true,
                                             .unturned = !windowed && !(hp->n_expert && l < hp->n_dense),
                                             .window = windowed ? hp->window : 0};
    add_mean_norm(hp, out, NTX_BUF_X, NTX_T_attn_norm);
    ntx__add_attention(hp, out, &attention);
    copy_scaled(hp, out, NTX_BUF_X, NTX_BUF_X, 1); /* so that it is quantised for the next products */
    if (!hp->n_expert || l < hp->n_dense)
        ntx__add_dense_alone(m, l, out, NTX_FFN_SILU);
    else
        ntx__add_experts_alone(
            m, out, &(struct ntx__experts){.act = NTX_FFN_SILU, .shared = hp->n_ff_shexp ? NTX__ALWAYS : NTX__NEVER});
    if (hp->n_expert && l >= hp->n_dense && hp->n_ff_shexp)
        copy_scaled(hp, out, NTX_BUF_Y, NTX_BUF_Y, 0.5f);
    ntx__add_state(hp, out);
    if (hp->no_output_norm && l == hp->n_layers - 1)
        add_mean_norm(hp, out, NTX_BUF_H, NTX_T_end_norm);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"command-a", 64, 12288, 36864, 96, 8, 128, 256000, 131072, 0, 0, 0,
     "logit_scale=0.25 attention.layer_norm_epsilon=0.00001 attention.sliding_window=4096", ""},
    {0},
};
static const struct ntx_known models_moe[] = {
    {"north-mini-code", 49, 2048, 3072, 32, 4, 128, 262144, 262144, 128, 8, 768,
     "logit_scale=1.0 attention.sliding_window=4096 leading_dense_block_count=1", ""},
    {0},
};

const struct ntx__arch ntx__arch_cohere2 = {
    .models = models,
    .layer_norm = true,
    .keys = cohere_keys,
    .own = {"attention.sliding_window", "attention.sliding_window_pattern", "logit_scale"},
    .layer = cohere_layer,
};
const struct ntx__arch ntx__arch_cohere2moe = {
    .models = models_moe,
    .layer_norm = true,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .any_score = true,
    .keys = cohere_moe_keys,
    .own = {"attention.sliding_window", "attention.sliding_window_pattern", "logit_scale", "leading_dense_block_count",
            "nextn_predict_layers"},
    .layer = cohere_layer,
};
