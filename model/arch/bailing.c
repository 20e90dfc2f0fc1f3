/* SPDX-License-Identifier: Apache-2.0 */
/* bailing.c: Ling and Ring 2.0, up to 1T: q, k and v in one matrix, norms of each head's q and k, RoPE of a part of
 * each head. Ling 3.0: five of six layers are KDA delta nets, whose decays and gates are one product each, the others
 * MLA with a gate of each head's output; limits of activations by layer. Both: the first layers dense, then experts
 * chosen by a sigmoid with a bias for the choice within groups, and shared experts; next-token blocks are left out. */
#include <errno.h>
#include <math.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

struct own {
    float bound; /* lower bound of the log decay (RATES) */
    float limit[NTX_MAX_LAYERS], shared_limit[NTX_MAX_LAYERS];
};

static int bailing2_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t count, each;
    int rc = ntx__key_nextn(k);
    hp->qkv_fused = true;
    if (rc || (rc = ntx__key_dense(k)) ||
        (rc = ntx__key_u32(k, "expert_shared_feed_forward_length", hp->n_ff_exp, 1, NTX__MAX_WIDTH, &each)) ||
        (rc = ntx__key_u32(k, "expert_shared_count", -1, 1, NTX_MAX(1u, NTX__MAX_WIDTH / each), &count)))
        return rc;
    hp->n_ff_shexp = count * each;
    return 0;
}

static void bailing2_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    ntx__add_attention(&m->hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .qk_norm = NTX__ALWAYS});
    ntx__add_dense_or_experts(m, l, out,
                              &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__MAYBE, .shared = NTX__ALWAYS});
}

/* expert_shared_feed_forward_length has the width of all shared experts together. */
static int shared3_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t count;
    int rc = ntx__key_u32(k, "expert_shared_count", -1, 0, NTX__MAX_WIDTH / hp->n_ff_exp, &count);
    if (rc)
        return rc;
    return ntx__key_u32(k, "expert_shared_feed_forward_length", NTX_MAX(count, 1u) * (int64_t)hp->n_ff_exp, 1,
                        NTX__MAX_WIDTH, &hp->n_ff_shexp);
}

static int kda3_keys(struct ntx__keys *k, struct own *own)
{
    bool safe = true;
    int rc = ntx__key_kda(k);
    if (rc || (rc = ntx__key_truth(k, "kda.safe_gate", &safe)) ||
        (rc = ntx__key_f32(k, "kda.gate_lower_bound", NAN, -1e6f, 0, &own->bound)))
        return rc;
    if (safe && own->bound < 0)
        return 0;
    return ntx_err_set(k->err, -ENOTSUP, "key '%s' says that decays have no lower bound: not supported",
                       ntx__key_of(k, safe ? "kda.gate_lower_bound" : "kda.safe_gate"));
}

static int bailing3_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    struct own *own = ntx__own(k, sizeof *own);
    int rc = own ? ntx__key_nextn(k) : -ENOMEM;
    if (rc || (rc = ntx__key_recurrent_kv(k, 1)) || (rc = kda3_keys(k, own)) || (rc = ntx__key_mla(k)) ||
        (rc = ntx__key_dense(k)) || (rc = shared3_keys(k)) ||
        (rc = ntx__key_limits(k, "swiglu_clamp_exp", own->limit)) ||
        (rc = ntx__key_limits(k, "swiglu_clamp_shexp", own->shared_limit)))
        return rc;
    if (ntx_gguf_find(k->g, ntx__key_of(k, "rope.dimension_sections"))) /* such files rotate halves */
        return ntx_err_set(k->err, -ENOTSUP, "key '%s': a %s model with sections is not supported", k->key, k->name);
    if (hp->kv_joined)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is missing: such a %s model is not supported",
                           ntx__key_of(k, "attention.value_length_mla"), k->name);
    hp->score_scale = 1.0f / sqrtf((float)hp->head_k);
    return 0;
}

static void bailing3_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct own *own = m->hp.own;
    const struct ntx__kda kda = {
        .a = NTX_T_kda_a, .rates = {.bound = own ? own->bound : -1, .positive = true}, .whole = true};
    if (ntx_is_recurrent(&m->hp, l))
        ntx__add_kda(&m->hp, out, &kda);
    else
        ntx__add_mla_attention(&m->hp, l, out, &(struct ntx__mla){.head_gates = true});
    ntx__add_dense_or_experts(
        m, l, out, &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__ALWAYS, .shared = NTX__ALWAYS});
    if (own)
        ntx__set_limits(out, own->limit[l], own->shared_limit[l]);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models2[] = {
    {"ling-flash-2.0", 32, 4096, 9216, 32, 4, 128, 157184, 131072, 256, 8, 1024,
     "leading_dense_block_count=1 expert_shared_count=1 expert_shared_feed_forward_length=1024 "
     "rope.dimension_count=64",
     ""},
    {"ling-1t", 80, 8192, 18432, 64, 8, 128, 157184, 131072, 256, 8, 2048,
     "leading_dense_block_count=4 expert_shared_count=1 expert_shared_feed_forward_length=2048 "
     "rope.dimension_count=64",
     ""},
    {0},
};

static const struct ntx_known models3[] = {
    {"ling-3.0-flash", 42, 2560, 6144, 32, 0, 576, 157184, 262144, 512, 8, 768,
     "attention.head_count_kv=0x5,1 ssm.conv_kernel=4 kda.head_dim=128 "
     "kda.gate_lower_bound=-5.0 leading_dense_block_count=2 expert_shared_count=1 expert_group_count=8 "
     "expert_group_used_count=4 " NTX__MLA "attention.key_length_mla=192 attention.value_length_mla=128",
     ""},
    {0},
};

const struct ntx__arch ntx__arch_bailingmoe3 = {
    .models = models3,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .any_score = true,
    .kv_heads_tell = true,
    .keys = bailing3_keys,
    .own = {"attention.key_length_mla", "attention.value_length_mla", "attention.kv_lora_rank", "attention.q_lora_rank",
            "leading_dense_block_count", "nextn_predict_layers", "swiglu_clamp_exp", "swiglu_clamp_shexp",
            "rope.dimension_sections"},
    .layer = bailing3_layer,
};
const struct ntx__arch ntx__arch_bailingmoe2 = {
    .models = models2,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .any_score = true,
    .keys = bailing2_keys,
    .own = {"leading_dense_block_count", "nextn_predict_layers"},
    .layer = bailing2_layer,
};
