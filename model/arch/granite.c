/* SPDX-License-Identifier: Apache-2.0 */
/* granite.c: Granite 3 and 4, dense or with experts: llama's layers, with scales of the embedding, scores, residual
 * additions and logits. In the hybrid models of Granite 4 most layers are Mamba-2 scans instead of attention. The
 * residual additions are not scaled here: the residual stream is divided by that scale from the embedding on. Norms do
 * not change by that, if their epsilon is divided by the square of the scale. */
#include <errno.h>
#include <math.h>

#include "model/arch/arch_impl.h"

static int granite_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    float embedding, residual, logits;
    int rc;
    if ((rc = ntx__key_f32(k, "embedding_scale", 1, 0, 1e6f, &embedding)) ||
        (rc = ntx__key_f32(k, "residual_scale", 1, 0, 1e3f, &residual)) ||
        (rc = ntx__key_f32(k, "logit_scale", NAN, 1e-6f, 1e6f, &logits)) ||
        (rc = ntx__key_f32(k, "attention.scale", 0, 0, 1e3f, &hp->score_scale)))
        return rc;
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

static int plain_keys(struct ntx__keys *k)
{
    bool turned = true;
    int rc = granite_keys(k);
    if (!rc && !ntx_gguf_bool(k->g, ntx__key_of(k, "rope.scaling.finetuned"), &turned) && !turned)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is false: a %s model without rotation is not supported", k->key,
                           k->name);
    return rc;
}

struct hybrid {
    bool unturned; /* attention without RoPE */
};

static int hybrid_keys(struct ntx__keys *k)
{
    struct hybrid *own = ntx__own(k, sizeof *own);
    bool turned = true;
    int rc = own ? granite_keys(k) : -ENOMEM;
    if (rc || (rc = ntx__key_recurrent_kv(k, k->hp->n_head_kv)) || (rc = ntx__key_scan(k)))
        return rc;
    own->unturned = !ntx_gguf_bool(k->g, ntx__key_of(k, "rope.scaling.finetuned"), &turned) && !turned;
    return 0;
}

static void add_ffn(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    if (m->hp.n_expert)
        ntx__add_experts(
            m, out, &(struct ntx__experts){.act = NTX_FFN_SILU, .shared = m->hp.n_ff_shexp ? NTX__ALWAYS : NTX__NEVER});
    else
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

static void hybrid_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct hybrid *own = hp->own;
    if (ntx_is_recurrent(hp, l))
        ntx__add_scan(hp, out);
    else
        ntx__add_attention(hp, out,
                           &(struct ntx__attention){.rope = NTX_ROPE_NORM,
                                                    .qkv_bias = NTX__MAYBE,
                                                    .o_bias = NTX__MAYBE,
                                                    .scale = hp->score_scale,
                                                    .unturned = own && own->unturned});
    add_ffn(m, l, out);
}

static void granite_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    ntx__add_attention(
        hp, out,
        &(struct ntx__attention){
            .rope = NTX_ROPE_NORM, .qkv_bias = NTX__MAYBE, .o_bias = NTX__MAYBE, .scale = hp->score_scale});
    add_ffn(m, l, out);
}

#define OWN                                                                                                            \
    {                                                                                                                  \
        "embedding_scale", "residual_scale", "logit_scale", "attention.scale"                                          \
    }
/* ---- models by name (model/arch.h) */

#define SCAN "ssm.conv_kernel=4 ssm.state_size=128 ssm.group_count=1 "
static const struct ntx_known models[] = {
    {"granite-3.3-8b", 40, 4096, 12800, 32, 8, 128, 49159, 131072, 0, 0, 0, "logit_scale=16.0", ""},
    {0},
};
static const struct ntx_known models_moe[] = {
    {"granite-3.1-3b-a800m", 32, 1536, 512, 24, 8, 64, 49155, 131072, 40, 8, 512, "logit_scale=6.0", ""},
    {0},
};
static const struct ntx_known models_hybrid[] = {
    {"granite-4.0-h-tiny", 40, 1536, 512, 12, 0, 128, 100352, 131072, 64, 6, 512,
     "attention.head_count_kv=0x5,4,0x9,4,0x9,4,0x9,4,0x4 logit_scale=6.0 " SCAN
     "ssm.time_step_rank=48 ssm.inner_size=3072 expert_shared_feed_forward_length=1024",
     ""},
    {"granite-4.0-h-small", 40, 4096, 768, 32, 0, 128, 100352, 131072, 72, 10, 768,
     "attention.head_count_kv=0x5,8,0x9,8,0x9,8,0x9,8,0x4 logit_scale=16.0 " SCAN
     "ssm.time_step_rank=128 ssm.inner_size=8192 expert_shared_feed_forward_length=1536",
     ""},
    {0},
};

const struct ntx__arch ntx__arch_granite = {.experts = NTX__MAYBE,
                                            .expert_norm = true,
                                            .keys = plain_keys,
                                            .own = OWN,
                                            .layer = granite_layer,
                                            .models = models};
const struct ntx__arch ntx__arch_granitemoe = {.experts = NTX__ALWAYS,
                                               .expert_norm = true,
                                               .keys = plain_keys,
                                               .own = OWN,
                                               .layer = granite_layer,
                                               .models = models_moe};
const struct ntx__arch ntx__arch_granitehybrid = {.experts = NTX__MAYBE,
                                                  .expert_norm = true,
                                                  .kv_heads_tell = true,
                                                  .keys = hybrid_keys,
                                                  .own = OWN,
                                                  .layer = hybrid_layer,
                                                  .models = models_hybrid};
