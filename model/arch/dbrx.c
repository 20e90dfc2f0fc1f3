/* SPDX-License-Identifier: Apache-2.0 */
/* dbrx.c: DBRX: norms that subtract the mean, without a bias; q, k and v in one matrix of the file, clamped; experts
 * chosen by a softmax, whose weights are divided by their sum. */
#include <errno.h>
#include <math.h>

#include "model/arch/arch_impl.h"

struct own {
    float eps;   /* of norms */
    float clamp; /* of q, k and v; 0: none */
};

static int dbrx_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    struct own *own = ntx__own(k, sizeof *own);
    int rc = own ? 0 : -ENOMEM;
    if (rc || (rc = ntx__key_f32(k, "attention.layer_norm_epsilon", NAN, 1e-12f, 1, &own->eps)) ||
        (rc = ntx__key_f32(k, "attention.clamp_kqv", 0, 0, 1e9f, &own->clamp)))
        return rc;
    hp->n_ff_exp = hp->n_ff;
    hp->router.norm = true;
    hp->no_output_norm = true; /* the last layer does it */
    hp->qkv_fused = ntx__has(k, 0, ntx_whole_names[NTX_WHOLE_qkv]);
    return 0;
}

static void dbrx_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct own *own = hp->own, usual = {.eps = 1e-5f, .clamp = 8};
    own = own ? own : &usual;
    ntx__copy_values(out, NTX_BUF_X, NTX_BUF_H, hp->n_embd);
    ntx__mean_norm(hp, out, NTX_BUF_X, NTX_T_attn_norm, own->eps);
    ntx__add_attention(hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .normed = true, .clamp = own->clamp});
    ntx__copy_values(out, NTX_BUF_X, NTX_BUF_H, hp->n_embd);
    ntx__mean_norm(hp, out, NTX_BUF_X, NTX_T_ffn_norm, own->eps);
    ntx__add_experts_alone(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU});
    ntx__add_state(hp, out);
    if (l == hp->n_layers - 1)
        ntx__mean_norm(hp, out, NTX_BUF_H, NTX_T_end_norm, own->eps);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"dbrx", 40, 6144, 10752, 48, 8, 128, 100352, 32768, 16, 4, 10752,
     "attention.layer_norm_epsilon=0.00001 attention.clamp_kqv=8.0", "blk.0.attn_qkv.weight"},
    {0},
};

const struct ntx__arch ntx__arch_dbrx = {
    .models = models,
    .experts = NTX__ALWAYS,
    .layer_norm = true,
    .keys = dbrx_keys,
    .own = {"attention.clamp_kqv"},
    .layer = dbrx_layer,
    .names = {[NTX_T_ffn_norm] = "attn_output_norm.weight"},
};
