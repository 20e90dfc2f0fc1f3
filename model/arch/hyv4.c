/* SPDX-License-Identifier: Apache-2.0 */
/* hyv4.c: Hy 4: MLA with a sink of each head and a gate of each output value, with an indexer in some layers;
 * residual streams that each get a weighted output, but are not mixed with one another
 * (computed/pass/hyper_connections.c); the first layers dense, then experts chosen by a sigmoid with a bias for the
 * choice, with limits of gates, and shared experts. RoPE rotates neighbouring pairs, as in llama.cpp, vLLM and MLX;
 * transformers 5.23 rotates halves. */
#include <errno.h>
#include <math.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

struct own {
    float most; /* largest weight of the output in a stream */
};

static int stream_keys(struct ntx__keys *k)
{
    struct own *own = ntx__own(k, sizeof *own);
    int rc = own ? ntx__key_stream_count(k) : -ENOMEM;
    if (rc || (rc = ntx__key_f32(k, "hyper_connection.epsilon", NAN, 0, 1, &k->hp->streams.eps)))
        return rc;
    return ntx__key_f32(k, "hyper_connection.magnitude", NAN, 0, 1e6f, &own->most);
}

/* Reads the indexer's keys, if the file has any. */
static int indexer_keys(struct ntx__keys *k)
{
    uint32_t most;
    int rc = ntx__key_u32(k, "attention.indexer.top_k", 0, 0, UINT32_MAX, &most);
    if (rc || !most)
        return rc;
    if (!ntx_gguf_find(k->g, ntx__key_of(k, "attention.indexer.types")))
        return ntx_err_set(k->err, -EINVAL, "key '%s' is missing: which layers choose positions", k->key);
    return ntx__key_indexer(k, &(struct ntx__indexer){.pairs = NTX_ROPE_NORM});
}

static int hyv4_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t shared;
    int rc;
    if ((rc = ntx__key_mla(k)) || (rc = stream_keys(k)) ||
        (rc = ntx__key_u32(k, "leading_dense_block_count", 0, 0, hp->n_layers, &hp->n_dense)) ||
        (rc = ntx__key_u32(k, "expert_shared_count", -1, 1, NTX_MAX(1u, NTX__MAX_WIDTH / hp->n_ff_exp), &shared)) ||
        (rc = ntx__key_limit(k, "swiglu_clamp_exp", 0, &hp->limit)))
        return rc;
    if (hp->kv_joined || !hp->q_lora)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is missing; a %s model needs it",
                           ntx__key_of(k, hp->q_lora ? "attention.value_length_mla" : "attention.q_lora_rank"),
                           k->name);
    if (hp->rope_scaling != NTX_ROPE_SCALE_NONE)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s': a %s model with scaled rotation is not supported",
                           ntx__key_of(k, "rope.scaling.type"), k->name);
    hp->n_ff_shexp = shared * hp->n_ff_exp;
    hp->score_scale = 1.0f / sqrtf((float)hp->head_k);
    return indexer_keys(k);
}

/* SPREAD adds to each stream without mixing them. */
static void keep_apart(const struct own *own, struct ntx_layer *l)
{
    for (struct ntx_step *s = l->step; s < l->step + l->n_steps; s++) {
        if (s->op == NTX_OP_MIXW)
            s->scale = own ? own->most : 0;
        if (s->op == NTX_OP_SPREAD)
            s->spread.each = true;
    }
}

static void hyv4_layer(const struct ntx_model *m, uint32_t at, struct ntx_layer *l)
{
    const struct ntx_hparams *hp = &m->hp;
    if (!at)
        ntx__streams_begin(hp, l);
    ntx__streams_enter(hp, l, NTX_T_attn_mix, NTX_T_attn_norm);
    ntx__add_mla_alone(hp, at, l, &(struct ntx__mla){.gated = true, .keys_behind = true});
    ntx__streams_leave(hp, l);
    ntx__streams_enter(hp, l, NTX_T_ffn_mix, NTX_T_ffn_norm);
    if (at < hp->n_dense)
        ntx__add_dense_alone(m, at, l, NTX_FFN_SILU);
    else
        ntx__add_experts_alone(
            m, l, &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__MAYBE, .shared = NTX__ALWAYS});
    ntx__streams_leave(hp, l);
    ntx__streams_join(hp, at, l);
    keep_apart(hp->own, l);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    /* transformers' defaults */
    {"hy-4", 34, 2816, 6912, 32, 1, 576, 120832, 262144, 256, 8, 768,
     NTX__MLA "attention.q_lora_rank=1536 attention.key_length_mla=256 attention.value_length_mla=256 "
              "leading_dense_block_count=1 expert_shared_count=1 swiglu_clamp_exp=10.0 hyper_connection.count=4 "
              "hyper_connection.magnitude=2.0 hyper_connection.epsilon=0.000001 "
              "attention.indexer.types=1x2,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1" NTX__INDEXER("16"),
     ""},
    {0},
};

const struct ntx__arch ntx__arch_hy_v4 = {
    .models = models,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .any_score = true,
    .keys = hyv4_keys,
    .layer = hyv4_layer,
    .own = {"attention.key_length_mla", "attention.value_length_mla", "attention.kv_lora_rank", "attention.q_lora_rank",
            "leading_dense_block_count", "attention.indexer.head_count", "attention.indexer.top_k",
            "hyper_connection.count", "swiglu_clamp_exp"},
};
