/* kimi.c: Kimi Linear: three of four layers are delta nets that forget by the key (KDA), the others attention over latents, which turns nothing; the first layers
 * dense, then experts, of which a row's are chosen by a sigmoid with a bias for the choice, and some more that every row goes through. */
#include <errno.h>
#include <math.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

/* Its heads are those of attention. */
int ntx__key_kda(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc;
    if ((rc = ntx__key_u32(k, "ssm.conv_kernel", -1, 2, NTX_DELTA_TAPS_MAX, &hp->delta.taps)) ||
        (rc = ntx__key_u32(k, "kda.head_dim", -1, NTX_DELTA_HEAD_STEP, NTX_MIN((uint64_t)NTX_MAX_HEAD, NTX__MAX_WIDTH / 3 / hp->n_head), &hp->delta.head)))
        return rc;
    hp->delta.heads = hp->delta.key_heads = hp->n_head;
    if (hp->delta.head % NTX_DELTA_HEAD_STEP)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u; multiples of %u are supported", k->key, hp->delta.head, NTX_DELTA_HEAD_STEP);
    return 0;
}

static int keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t shared;
    int rc;
    if ((rc = ntx__key_recurrent_kv(k)) || (rc = ntx__key_kda(k)) || (rc = ntx__key_latents(k)) ||
        (rc = ntx__key_u32(k, "leading_dense_block_count", 0, 0, hp->n_layers, &hp->n_dense)) ||
        (rc = ntx__key_u32(k, "expert_shared_count", -1, 1, NTX_MAX(1u, NTX__MAX_WIDTH / hp->n_ff_exp), &shared)))
        return rc;
    if (hp->kv_joined || hp->q_lora)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' %s: such a %s model is not supported", ntx__key_of(k, hp->q_lora ? "attention.q_lora_rank" : "attention.value_length_mla"),
                           hp->q_lora ? "says that q is made in two products" : "is missing", k->name);
    if (!hp->router.norm)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is false: shares are divided by their sum in a %s model", ntx__key_of(k, "expert_weights_norm"), k->name);
    hp->n_ff_shexp = shared * hp->n_ff_exp;
    hp->latents_unturned = true;
    hp->score_scale = 1.0f / sqrtf((float)hp->head_k);
    return 0;
}

static void layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    if (ntx_is_recurrent(&m->hp, l))
        ntx__add_kda(&m->hp, out);
    else
        ntx__add_latent_attention(&m->hp, l, out);
    if (l < m->hp.n_dense)
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
    else
        ntx__add_experts(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__ALWAYS, .shared = NTX__ALWAYS});
}

const struct ntx__arch ntx__arch_kimi_linear = {
    .experts = NTX__ALWAYS, .expert_norm = true, .score = NTX_SCORE_SIGMOID, .kv_heads_tell = true, .keys = keys,
    .own = {"attention.key_length_mla", "attention.value_length_mla", "attention.kv_lora_rank", "attention.q_lora_rank", "leading_dense_block_count"},
    .layer = layer,
};
