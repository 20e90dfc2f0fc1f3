/* SPDX-License-Identifier: Apache-2.0 */
/* granite.c: Granite 3 and 4 without recurrent layers, dense or with experts: llama's layers, with scales of the
 * embedding, scores, residual additions and logits. The residual additions are not scaled here: the residual stream
 * is divided by that scale from the embedding on. Norms do not change by that, if their epsilon is divided by the
 * square of the scale. */
#include <errno.h>
#include <math.h>

#include "model/arch/arch_impl.h"

static int granite_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    float embedding, residual, logits;
    bool turned = true;
    int rc;
    if ((rc = ntx__key_f32(k, "embedding_scale", 1, 0, 1e6f, &embedding)) ||
        (rc = ntx__key_f32(k, "residual_scale", 1, 0, 1e3f, &residual)) ||
        (rc = ntx__key_f32(k, "logit_scale", NAN, 1e-6f, 1e6f, &logits)) ||
        (rc = ntx__key_f32(k, "attention.scale", 0, 0, 1e3f, &hp->score_scale)))
        return rc;
    if (!ntx_gguf_bool(k->g, ntx__key_of(k, "rope.scaling.finetuned"), &turned) && !turned)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is false: a %s model without rotation is not supported", k->key,
                           k->name);
    residual = residual == 0 ? 1 : residual; /* some writers mean "none" by 0 */
    if (residual < 1e-4f)                    /* its square is a divisor */
        return ntx_err_set(k->err, -EINVAL, "key '%s' is %g; 0.0001 to 1000 are possible",
                           ntx__key_of(k, "residual_scale"), (double)residual);
    hp->embd_scale = (embedding == 0 ? 1 : embedding) / residual;
    hp->rms_eps /= residual * residual;
    hp->logit_scale = 1 / logits;
    if (hp->n_expert)
        hp->n_ff_exp = hp->n_ff;
    return ntx__key_u32(k, "expert_shared_feed_forward_length", 0, 0, NTX__MAX_WIDTH, &hp->n_ff_shexp);
}

static void granite_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    ntx__add_attention(
        hp, out,
        &(struct ntx__attention){
            .rope = NTX_ROPE_NORM, .qkv_bias = NTX__MAYBE, .o_bias = NTX__MAYBE, .scale = hp->score_scale});
    if (hp->n_expert)
        ntx__add_experts(
            m, out, &(struct ntx__experts){.act = NTX_FFN_SILU, .shared = hp->n_ff_shexp ? NTX__ALWAYS : NTX__NEVER});
    else
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

#define OWN                                                                                                            \
    {                                                                                                                  \
        "embedding_scale", "residual_scale", "logit_scale", "attention.scale"                                          \
    }
/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"granite-3.3-8b", 40, 4096, 12800, 32, 8, 128, 49159, 131072, 0, 0, 0, "logit_scale=16.0", ""},
    {0},
};

const struct ntx__arch ntx__arch_granite = {.experts = NTX__MAYBE,
                                            .expert_norm = true,
                                            .keys = granite_keys,
                                            .own = OWN,
                                            .layer = granite_layer,
                                            .models = models};
const struct ntx__arch ntx__arch_granitemoe = {
    .experts = NTX__ALWAYS, .expert_norm = true, .keys = granite_keys, .own = OWN, .layer = granite_layer};
