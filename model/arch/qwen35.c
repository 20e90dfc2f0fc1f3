/* SPDX-License-Identifier: Apache-2.0 */
/* qwen35.c: Qwen3-Next, Qwen 3.5 and 3.6: three of four layers are gated delta nets, the others attention with a
 * gated output, norms of each head's q and k, and RoPE of a part of each head. Dense, or with experts and a shared
 * expert with a gate. Next-token blocks may follow. The RoPE of 3.5 has sections of pairs for text, image and place
 * (M-RoPE); in a text their positions are equal. */
#include <errno.h>
#include <string.h>

#include "model/arch/arch_impl.h"

/* Refuses sections that leave a pair out, which would not be rotated. */
int ntx__check_sections(struct ntx__keys *k)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "rope.dimension_sections"));
    uint32_t n[4], all = 0;
    if (!kv || kv->type != NTX_GGUF_ARR || (kv->elem != NTX_GGUF_I32 && kv->elem != NTX_GGUF_U32) || kv->count < 3 ||
        kv->count > 4)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is missing, or not a list of three or four integers", k->key);
    for (uint64_t i = 0; i < kv->count; i++) {
        memcpy(&n[i], (const uint8_t *)kv->data + 4 * i, sizeof n[i]);
        if (n[i] > NTX_MAX_HEAD)
            return ntx_err_set(k->err, -EINVAL, "key '%s': a section of %u pairs is not possible", k->key, n[i]);
        all += n[i];
    }
    for (uint32_t i = 0; i < k->hp->rope_dim / 2; i++)
        if (!all || i % all >= 3 * n[i % all % 3])
            return ntx_err_set(k->err, -ENOTSUP,
                               "key '%s' leaves pair %u of %u without a section: this %s model is not supported",
                               k->key, i, k->hp->rope_dim / 2, k->name);
    return 0;
}

static int next_keys(struct ntx__keys *k)
{
    int rc = ntx__key_nextn(k);
    if (!rc && k->hp->head_k != k->hp->head_v) /* gates of the output are stored beside q */
        return ntx_err_set(k->err, -ENOTSUP, "heads of %u values of K and %u of V are not supported", k->hp->head_k,
                           k->hp->head_v);
    if (rc || (rc = ntx__key_recurrent(k)) || (rc = ntx__key_delta(k)))
        return rc;
    ntx__find_fused_experts(k);
    return k->arch->experts == NTX__NEVER ? 0
                                          : ntx__key_u32(k, "expert_shared_feed_forward_length", k->hp->n_ff, 1,
                                                         NTX__MAX_WIDTH, &k->hp->n_ff_shexp);
}

/* Older files of Qwen3-Next have q, k, v and the gate of a delta net in one matrix. */
static int older_keys(struct ntx__keys *k)
{
    int rc = next_keys(k);
    uint32_t first = 0;
    while (!rc && first < k->hp->n_layers && !ntx_is_recurrent(k->hp, first))
        first++;
    k->hp->delta_joined = !rc && ntx__has(k, first, ntx_whole_names[NTX_WHOLE_delta]);
    return rc;
}

static int qwen35_keys(struct ntx__keys *k)
{
    int rc = next_keys(k);
    return rc ? rc : ntx__check_sections(k);
}

static void mixer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out, bool joined)
{
    if (ntx_is_recurrent(&m->hp, l))
        ntx__add_delta(&m->hp, out, joined);
    else
        ntx__add_attention(
            &m->hp, out,
            &(struct ntx__attention){
                .rope = NTX_ROPE_NEOX, .qk_norm = NTX__ALWAYS, .gated = true, .scale = m->hp.score_scale});
}

static void experts(const struct ntx_model *m, struct ntx_layer *out)
{
    ntx__add_experts(m, out,
                     &(struct ntx__experts){.act = NTX_FFN_SILU, .shared = NTX__ALWAYS, .shared_gate = NTX__ALWAYS});
}

static void next(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    mixer(m, l, out, true);
    experts(m, out);
}

static void dense(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    mixer(m, l, out, false);
    ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

static void moe(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    mixer(m, l, out, false);
    experts(m, out);
}

#define NAMES                                                                                                          \
    {                                                                                                                  \
        [NTX_T_ffn_norm] = "post_attention_norm.weight"                                                                \
    }

/* ---- models by name (model/arch.h) */

static const struct ntx_known models_qwen3next[] = {
    {"qwen3-next-80b-a3b", 48, 2048, 5120, 16, 2, 256, 151936, 262144, 512, 10, 512,
     "expert_shared_feed_forward_length=512 ssm.time_step_rank=32 ssm.inner_size=4096" NTX__QWEN_DELTA, ""},
    {0},
};
static const struct ntx_known models_qwen35[] = {
    {"qwen3.5-27b", 64, 5120, 17408, 24, 4, 256, 248320, 262144, 0, 0, 0,
     "ssm.time_step_rank=48 ssm.inner_size=6144" NTX__QWEN_DELTA NTX__QWEN_TURN, ""},
    {0},
};
static const struct ntx_known models_qwen35moe[] = {
    {"qwen3.5-35b-a3b", 40, 2048, 512, 16, 2, 256, 248320, 262144, 256, 8, 512,
     "expert_shared_feed_forward_length=512 ssm.time_step_rank=32 ssm.inner_size=4096" NTX__QWEN_DELTA NTX__QWEN_TURN,
     ""},
    {"qwen3.5-122b-a10b", 48, 3072, 1024, 32, 2, 256, 248320, 262144, 256, 8, 1024,
     "expert_shared_feed_forward_length=1024 ssm.time_step_rank=64 ssm.inner_size=8192" NTX__QWEN_DELTA NTX__QWEN_TURN,
     ""},
    {"qwen3.5-397b-a17b", 60, 4096, 1024, 32, 2, 256, 248320, 262144, 512, 10, 1024,
     "expert_shared_feed_forward_length=1024 ssm.time_step_rank=64 ssm.inner_size=8192" NTX__QWEN_DELTA NTX__QWEN_TURN,
     ""},
    {0},
};

const struct ntx__arch ntx__arch_qwen3next = {
    .models = models_qwen3next,
    .nextn = true,
    .experts = NTX__ALWAYS,
    .expert_norm = true,
    .keys = older_keys,
    .own = {"full_attention_interval", "nextn_predict_layers"},
    .layer = next,
    .names = NAMES,
};
const struct ntx__arch ntx__arch_qwen35 = {
    .models = models_qwen35,
    .nextn = true,
    .interleaved = true,
    .keys = qwen35_keys,
    .own = {"full_attention_interval", "nextn_predict_layers", "rope.dimension_sections"},
    .layer = dense,
    .names = NAMES,
};
const struct ntx__arch ntx__arch_qwen35moe = {
    .models = models_qwen35moe,
    .nextn = true,
    .interleaved = true,
    .experts = NTX__ALWAYS,
    .expert_norm = true,
    .keys = qwen35_keys,
    .own = {"full_attention_interval", "nextn_predict_layers", "rope.dimension_sections"},
    .layer = moe,
    .names = NAMES,
};
