/* SPDX-License-Identifier: Apache-2.0 */
/* glm5next.c: GLM-5.3-Flash: KDA delta nets beside MLA without RoPE, with an indexer that chooses blocks of
 * positions; hyper-connections before and after attention and FFNs (computed/pass/hyper_connections.c), whose
 * streams' mean is the output; the first layers dense, then experts chosen by a sigmoid with a bias for the choice,
 * and shared experts, with limits of gates. Next-token blocks may follow. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

struct own {
    float bound; /* lower bound of the log decay (RATES); 0: none */
};

static int bound_key(struct ntx__keys *k)
{
    struct own *own = ntx__own(k, sizeof *own);
    if (!own)
        return -ENOMEM;
    const bool there = ntx_gguf_find(k->g, ntx__key_of(k, "kda.gate_lower_bound"));
    int rc = ntx__key_f32(k, "kda.gate_lower_bound", 0, -1e6f, 0, &own->bound);
    return !rc && there && own->bound == 0
               ? ntx_err_set(k->err, -ENOTSUP, "key '%s' is 0: nothing would be forgotten, which is not supported",
                             k->key)
               : rc;
}

/* The layers of attention that have an indexer: those of a list, or all. The first one must have it. */
static int find_choosing(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "attention.indexer.types"));
    const size_t size = kv ? ntx_gguf_scalar_bytes(kv->elem) : 0;
    bool any = false;
    if (kv && (kv->type != NTX_GGUF_ARR ||
               (kv->elem != NTX_GGUF_BOOL && kv->elem != NTX_GGUF_U32 && kv->elem != NTX_GGUF_I32) ||
               kv->count < hp->n_layers))
        return ntx_err_set(k->err, -EINVAL, "key '%s' is not a list of a number or truth value for each of %u layers",
                           k->key, hp->n_layers);
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        uint32_t is = !kv;
        if (kv)
            memcpy(&is, (const uint8_t *)kv->data + l * size, size);
        if (ntx_is_recurrent(hp, l))
            continue;
        any |= is != 0;
        if (!any)
            return ntx_err_set(
                k->err, -EINVAL,
                "key '%s': layer %u does not choose positions, and has nobody before it to choose for it", k->key, l);
        hp->index.in[l / 64] |= (uint64_t)(is != 0) << l % 64;
    }
    return 0;
}

static int read_index_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    bool tail = false;
    int rc;
    if ((rc = ntx__key_u32(k, "attention.indexer.head_count", -1, 1, NTX_INDEX_HEADS_MAX, &hp->index.heads)) ||
        (rc = ntx__key_u32(k, "attention.indexer.key_length", -1, 16, NTX_INDEX_HEAD_MAX, &hp->index.head)) ||
        (rc = ntx__key_u32(k, "attention.indexer.kpool", -1, 2, NTX_INDEX_EVERY_MAX, &hp->index.every)) ||
        (rc = ntx__key_u32(k, "attention.indexer.top_k", -1, hp->index.every, INT32_MAX, &hp->index.most)))
        return rc;
    if (hp->index.head % 16)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u; multiples of 16 are supported",
                           ntx__key_of(k, "attention.indexer.key_length"), hp->index.head);
    if (hp->index.most % hp->index.every)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is %u: positions are chosen %u at a time", k->key, hp->index.most,
                           hp->index.every);
    hp->index.most /= hp->index.every;
    if (ntx_gguf_bool(k->g, ntx__key_of(k, "attention.indexer.kpool_select_tail"), &tail) || !tail)
        return ntx_err_set(k->err, -ENOTSUP,
                           "key '%s' is missing, or not true: a row would not see itself, which is not supported",
                           k->key);
    return find_choosing(k);
}

static int attention_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    float eps;
    int rc;
    if ((rc = ntx__key_recurrent_kv(k, 1)) || (rc = ntx__key_kda(k)) || (rc = bound_key(k)) || (rc = ntx__key_mla(k)) ||
        (rc = ntx__key_f32(k, "attention.layer_norm_epsilon", NAN, 0, 1, &eps)))
        return rc;
    if (hp->rope_dim)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u: only 0 is supported with a %s model",
                           ntx__key_of(k, "rope.dimension_count"), hp->rope_dim, k->name);
    if (hp->kv_joined || !hp->q_lora)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is missing; a %s model needs it",
                           ntx__key_of(k, hp->q_lora ? "attention.value_length_mla" : "attention.q_lora_rank"),
                           k->name);
    if (!(fabsf(eps - 1e-6f) < 1e-9f))
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %g: only 1e-06 is supported",
                           ntx__key_of(k, "attention.layer_norm_epsilon"), (double)eps);
    if (!ntx_count_recurrent(hp))
        return ntx_err_set(k->err, -ENOTSUP, "key '%s': a %s model without a layer that keeps a state is not supported",
                           ntx__key_of(k, "attention.head_count_kv"), k->name);
    hp->score_scale = 1.0f / sqrtf((float)hp->head_k);
    return read_index_keys(k);
}

static int glm5next_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t shared;
    int rc;
    if ((rc = ntx__key_nextn(k)) || (rc = attention_keys(k)) || (rc = ntx__key_streams(k)) ||
        (rc = ntx__key_u32(k, "leading_dense_block_count", 0, 0, hp->n_layers, &hp->n_dense)) ||
        (rc = ntx__key_u32(k, "expert_shared_count", -1, 1, NTX_MAX(1u, NTX__MAX_WIDTH / hp->n_ff_exp), &shared)) ||
        (rc = ntx__key_limit(k, "swiglu_clamp_exp", 0, &hp->limit)) ||
        (rc = ntx__key_limit(k, "swiglu_clamp_shexp", hp->limit, &hp->shared_limit)))
        return rc;
    hp->n_ff_shexp = shared * hp->n_ff_exp;
    return 0;
}

static void glm5next_layer(const struct ntx_model *m, uint32_t at, struct ntx_layer *l)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct own *own = hp->own;
    if (!at)
        ntx__streams_begin(hp, l);
    ntx__streams_enter(hp, l, NTX_T_attn_mix, NTX_T_attn_norm);
    if (ntx_is_recurrent(hp, at))
        ntx__add_kda_alone(hp, l, &(struct ntx__kda){.a = NTX_T_delta_a, .rates = {.bound = own ? own->bound : 0}});
    else
        ntx__add_mla_alone(hp, at, l, &(struct ntx__mla){.unturned = true});
    ntx__streams_leave(hp, l);
    ntx__streams_enter(hp, l, NTX_T_ffn_mix, NTX_T_ffn_norm);
    if (at < hp->n_dense)
        ntx__add_dense_alone(m, at, l, NTX_FFN_SILU);
    else
        ntx__add_experts_alone(
            m, l, &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__ALWAYS, .shared = NTX__ALWAYS});
    ntx__streams_leave(hp, l);
    ntx__streams_mean(hp, l);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"glm-5.3-flash", 45, 4096, 12288, 64, 0, 512, 154880, 1048576, 288, 8, 2048,
     "attention.head_count_kv=0x3,1 attention.layer_norm_epsilon=0.000001 ssm.conv_kernel=4 kda.head_dim=128 "
     "kda.gate_lower_bound=-5.0 attention.kv_lora_rank=512 rope.dimension_count=0 "
     "attention.q_lora_rank=1536 attention.key_length_mla=256 attention.value_length_mla=256 "
     "leading_dense_block_count=3 expert_shared_count=1 attention.indexer.kpool=16 "
     "attention.indexer.kpool_select_tail=true swiglu_clamp_exp=10.0 hyper_connection.count=4 "
     "hyper_connection.sinkhorn_iterations=20 hyper_connection.epsilon=0.000001" NTX__INDEXER("32"),
     ""},
    {0},
};

const struct ntx__arch ntx__arch_glm5_next = {
    .models = models,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .kv_heads_tell = true,
    .unturned = true,
    .keys = glm5next_keys,
    .layer = glm5next_layer,
    .kept = {[NTX_T_attn_mix] = true,
             [NTX_T_ffn_mix] = true,
             [NTX_T_index_q] = true,
             [NTX_T_index_k] = true,
             [NTX_T_index_heads] = true,
             [NTX_T_index_gate] = true,
             [NTX_T_index_place] = true,
             [NTX_T_kda_f_a] = true,
             [NTX_T_kda_f_b] = true,
             [NTX_T_kda_g_a] = true,
             [NTX_T_kda_g_b] = true,
             [NTX_T_delta_beta] = true,
             [NTX_T_kv_a] = true,
             [NTX_T_k_b] = true,
             [NTX_T_v_b] = true},
    .own = {"attention.key_length_mla", "attention.value_length_mla", "attention.kv_lora_rank", "attention.q_lora_rank",
            "leading_dense_block_count", "nextn_predict_layers", "attention.indexer.head_count",
            "attention.indexer.top_k", "hyper_connection.count", "swiglu_clamp_exp", "swiglu_clamp_shexp"},
};
