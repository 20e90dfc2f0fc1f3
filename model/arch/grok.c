/* SPDX-License-Identifier: Apache-2.0 */
/* grok.c: Grok 1 and 2: norms before and after attention and FFN, scores with a factor and a cap, GELU, a few large
 * experts. In Grok 2 a dense FFN of the same input is added to them, and the sum divided by the root of 2.
 *
 * Computed as in llama.cpp of October 2026: the experts' weights are divided by their sum, and neither
 * router_logit_softcapping nor attention.temperature_length is applied (docs/models.md). */
#include <errno.h>

#include "model/arch/arch_impl.h"

/* Of files that do not say so: Grok 1's. */
#define EMBEDDING_SCALE 78.38367176906169f
#define LOGIT_SCALE     0.5773502691896257f
#define OUTPUT_SCALE    0.08838834764831845f
#define SCORE_CAP       30
#define BETA_FAST       8

struct own {
    float cap;     /* of scores */
    bool dense;    /* a dense FFN beside the experts */
    bool old_name; /* of the last norm */
};

static int grok_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    struct own *own = ntx__own(k, sizeof *own);
    float magnitude;
    int rc = own ? 0 : -ENOMEM;
    if (rc || (rc = ntx__key_f32(k, "embedding_scale", EMBEDDING_SCALE, 1e-6f, 1e6f, &hp->embd_scale)) ||
        (rc = ntx__key_f32(k, "logit_scale", LOGIT_SCALE, 1e-6f, 1e6f, &hp->logit_scale)) ||
        (rc = ntx__key_f32(k, "final_logit_softcapping", 0, 0, 1e6f, &hp->logit_cap)) ||
        (rc = ntx__key_f32(k, "attention.output_scale", OUTPUT_SCALE, 1e-6f, 1e6f, &hp->score_scale)) ||
        (rc = ntx__key_f32(k, "attn_logit_softcapping", SCORE_CAP, 1e-3f, 1e6f, &own->cap)) ||
        (rc = ntx__key_f32(k, "rope.scaling.yarn_beta_fast", BETA_FAST, 0, 1e6f, &hp->yarn_beta_fast)) ||
        (rc = ntx__key_f32(k, "rope.scaling.yarn_attn_factor", 1, 0, 1e3f, &magnitude)))
        return rc;
    if (hp->yarn_magnitude_told) { /* here it multiplies the magnitude that follows from the factor */
        hp->rope_attn_factor = magnitude;
        hp->yarn_magnitude_told = false;
    }
    own->dense = ntx__has(k, 0, ntx_tensor_kinds[NTX_T_up].name);
    own->old_name = ntx__has(k, 0, ntx__arch_grok.names[NTX_T_ffn_post_norm_1]);
    return 0;
}

static void grok_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct own usual = {.cap = SCORE_CAP, .dense = true}, *own = hp->own ? hp->own : &usual;
    ntx__add_attention(
        hp, out,
        &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .post_norm = true, .scale = hp->score_scale, .cap = own->cap});
    ntx__norm(out, NTX_BUF_X, NTX_BUF_H, NTX_T_ffn_norm, NTX__ALWAYS, 1, hp->n_embd);
    if (own->dense) {
        ntx__add_dense_alone(m, l, out, NTX_FFN_GELU);
        ntx__copy_values(out, NTX_BUF_BESIDE, NTX_BUF_Y, hp->n_embd);
        ntx__copy_values(out, NTX_BUF_X, NTX_BUF_X, hp->n_embd); /* quantised anew */
    }
    ntx__add_experts_alone(m, out, &(struct ntx__experts){.act = NTX_FFN_GELU});
    if (own->dense) {
        ntx_layer_add(out, NTX_OP_ADD, NTX_BUF_Y, NTX_BUF_BESIDE)->width = hp->n_embd;
        ntx__copy_values(out, NTX_BUF_Y, NTX_BUF_Y, hp->n_embd);
        out->step[out->n_steps - 1].scale = 0.70710678f;
    }
    ntx__norm(out, NTX_BUF_Y, NTX_BUF_Y, own->old_name ? NTX_T_ffn_post_norm_1 : NTX_T_ffn_post_norm, NTX__ALWAYS, 1,
              hp->n_embd);
    ntx__add_state(hp, out);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"grok-1", 64, 6144, 32768, 48, 8, 128, 131072, 8192, 8, 2, 32768, "", ""},
    {"grok-2", 64, 8192, 32768, 64, 8, 128, 131072, 131072, 8, 2, 16384,
     "embedding_scale=90.50966799187809 logit_scale=0.5 final_logit_softcapping=50.0", "blk.0.ffn_up.weight"},
    {0},
};

const struct ntx__arch ntx__arch_grok = {
    .models = models,
    .experts = NTX__ALWAYS,
    .expert_norm = true,
    .keys = grok_keys,
    .own = {"embedding_scale", "logit_scale", "final_logit_softcapping", "attention.output_scale",
            "attn_logit_softcapping", "router_logit_softcapping", "attention.temperature_length"},
    .layer = grok_layer,
    .names = {[NTX_T_attn_post_norm] = "attn_output_norm.weight", [NTX_T_ffn_post_norm_1] = "layer_output_norm.weight"},
};
