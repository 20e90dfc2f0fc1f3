/* SPDX-License-Identifier: Apache-2.0 */
/* kimi.c: Kimi Linear: three of four layers are KDA delta nets, the others MLA without RoPE; the first layers dense,
 * then experts chosen by a sigmoid with a bias for the choice, and shared experts. */
#include <errno.h>
#include <math.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

static int kimi_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t shared;
    int rc;
    if ((rc = ntx__key_recurrent_kv(k, 1)) || (rc = ntx__key_kda(k)) || (rc = ntx__key_mla(k)) ||
        (rc = ntx__key_u32(k, "leading_dense_block_count", 0, 0, hp->n_layers, &hp->n_dense)) ||
        (rc = ntx__key_u32(k, "expert_shared_count", -1, 1, NTX_MAX(1u, NTX__MAX_WIDTH / hp->n_ff_exp), &shared)))
        return rc;
    if (hp->kv_joined || hp->q_lora)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' %s: such a %s model is not supported",
                           ntx__key_of(k, hp->q_lora ? "attention.q_lora_rank" : "attention.value_length_mla"),
                           hp->q_lora ? "says that q is made in two products" : "is missing", k->name);
    if (!hp->router.norm)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is false: shares are divided by their sum in a %s model",
                           ntx__key_of(k, "expert_weights_norm"), k->name);
    hp->n_ff_shexp = shared * hp->n_ff_exp;
    hp->score_scale = 1.0f / sqrtf((float)hp->head_k);
    return 0;
}

static void kimi_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    if (ntx_is_recurrent(&m->hp, l))
        ntx__add_kda(&m->hp, out, &(struct ntx__kda){.a = NTX_T_kda_a});
    else
        ntx__add_mla_attention(&m->hp, l, out, &(struct ntx__mla){.unturned = true});
    if (l < m->hp.n_dense)
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
    else
        ntx__add_experts(m, out,
                         &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__ALWAYS, .shared = NTX__ALWAYS});
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"kimi-linear-48b-a3b", 27, 2304, 9216, 32, 0, 576, 163840, 1048576, 256, 8, 1024,
     "attention.head_count_kv=0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x2,1 ssm.conv_kernel=4 kda.head_dim=128 "
     "leading_dense_block_count=1 expert_shared_count=1 " NTX__MLA
     "attention.key_length_mla=192 attention.value_length_mla=128",
     ""},
    {0},
};

const struct ntx__arch ntx__arch_kimi_linear = {
    .models = models,
    .experts = NTX__ALWAYS,
    .expert_norm = true,
    .score = NTX_SCORE_SIGMOID,
    .kv_heads_tell = true,
    .keys = kimi_keys,
    .own = {"attention.key_length_mla", "attention.value_length_mla", "attention.kv_lora_rank", "attention.q_lora_rank",
            "leading_dense_block_count"},
    .layer = kimi_layer,
};
