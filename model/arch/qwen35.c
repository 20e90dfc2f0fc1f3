/* qwen35.c: Qwen3-Next, Qwen 3.5 and 3.6: three of four layers are gated delta nets, the others attention with a gate of its output, norms of each head's q
 * and k, and a part of each head rotated. Dense, or with experts of which one, weighed by a gate, takes every row. Blocks that foretell tokens may follow.
 *
 * The rotation of 3.5 is for texts, pictures and their places at once, by sections of its pairs; in a text all of these count the same. */
#include <errno.h>
#include <string.h>

#include "model/arch/arch_impl.h"

/* Bit l of hp->recurrent, by the file's list. */
static int listed(struct ntx__keys *k, const struct ntx_gguf_kv *kv)
{
    struct ntx_hparams *hp = k->hp;
    size_t size = kv->elem == NTX_GGUF_BOOL ? 1 : 4;
    if (kv->type != NTX_GGUF_ARR || (kv->elem != NTX_GGUF_BOOL && kv->elem != NTX_GGUF_U32 && kv->elem != NTX_GGUF_I32))
        return ntx_err_set(k->err, -EINVAL, "key '%s' is not a list of truth values", k->key);
    if (kv->count != hp->n_layers + hp->n_nextn)
        return ntx_err_set(k->err, -EINVAL, "key '%s' tells of %llu layers; there are %u", k->key, (unsigned long long)kv->count, hp->n_layers + hp->n_nextn);
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        uint32_t is = 0;
        memcpy(&is, (const uint8_t *)kv->data + l * size, size);
        hp->recurrent[l / 64] |= (uint64_t)(is != 0) << l % 64;
    }
    return 0;
}

int ntx__key_recurrent(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "attention.recurrent_layers"));
    uint32_t every;
    int rc = kv ? listed(k, kv) : ntx__key_u32(k, "full_attention_interval", 4, 1, NTX_MAX_LAYERS, &every);
    if (rc)
        return rc;
    if (!kv)
        ntx_set_recurrent(hp, every);
    return ntx_count_recurrent(hp) < hp->n_layers ? 0 : ntx_err_set(k->err, -ENOTSUP, "key '%s': a %s model without a layer of attention is not supported", k->key, k->name);
}

int ntx__key_delta(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t inner;
    int rc;
    if ((rc = ntx__key_u32(k, "ssm.conv_kernel", -1, 2, NTX_DELTA_TAPS_MAX, &hp->delta.taps)) ||
        (rc = ntx__key_u32(k, "ssm.state_size", -1, NTX_DELTA_HEAD_STEP, NTX_MAX_HEAD, &hp->delta.head)) ||
        (rc = ntx__key_u32(k, "ssm.time_step_rank", -1, 1, NTX__MAX_WIDTH / 3 / hp->delta.head, &hp->delta.heads)) ||
        (rc = ntx__key_u32(k, "ssm.group_count", -1, 1, hp->delta.heads, &hp->delta.key_heads)) ||
        (rc = ntx__key_u32(k, "ssm.inner_size", -1, 1, NTX__MAX_WIDTH, &inner)))
        return rc;
    if (hp->delta.head % NTX_DELTA_HEAD_STEP || hp->delta.heads % hp->delta.key_heads || inner != hp->delta.heads * hp->delta.head)
        return ntx_err_set(k->err, -ENOTSUP, "a delta net of %u values in %u heads of %u over %u key heads is not supported: the width of a head is a multiple of %u, and key heads divide the others",
                           inner, hp->delta.heads, hp->delta.head, hp->delta.key_heads, NTX_DELTA_HEAD_STEP);
    return 0;
}

/* A pair that no section has would not be turned at all. */
int ntx__check_sections(struct ntx__keys *k)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "rope.dimension_sections"));
    uint32_t n[4], all = 0;
    if (!kv || kv->type != NTX_GGUF_ARR || (kv->elem != NTX_GGUF_I32 && kv->elem != NTX_GGUF_U32) || kv->count < 3 || kv->count > 4)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is missing, or not a list of three or four integers", k->key);
    for (uint64_t i = 0; i < kv->count; i++) {
        memcpy(&n[i], (const uint8_t *)kv->data + 4 * i, sizeof n[i]);
        if (n[i] > NTX_MAX_HEAD)
            return ntx_err_set(k->err, -EINVAL, "key '%s': a section of %u pairs is not possible", k->key, n[i]);
        all += n[i];
    }
    for (uint32_t i = 0; i < k->hp->rope_dim / 2; i++)
        if (!all || i % all >= 3 * n[i % all % 3])
            return ntx_err_set(k->err, -ENOTSUP, "key '%s' leaves pair %u of %u without a section: this %s model is not supported", k->key, i, k->hp->rope_dim / 2, k->name);
    return 0;
}

static int next_keys(struct ntx__keys *k)
{
    int rc = ntx__key_nextn(k);
    if (!rc && k->hp->head_k != k->hp->head_v) /* the gate of the output lies beside q */
        return ntx_err_set(k->err, -ENOTSUP, "heads of %u values of K and %u of V are not supported", k->hp->head_k, k->hp->head_v);
    if (rc || (rc = ntx__key_recurrent(k)) || (rc = ntx__key_delta(k)))
        return rc;
    ntx__find_fused_experts(k);
    return k->arch->experts == NTX__NEVER ? 0 : ntx__key_u32(k, "expert_shared_feed_forward_length", k->hp->n_ff, 1, NTX__MAX_WIDTH, &k->hp->n_ff_shexp);
}

/* Older files of Qwen3-Next have q, k, v and the gate of a delta net in one matrix. */
static int older_keys(struct ntx__keys *k)
{
    int rc = next_keys(k);
    uint32_t first = 0;
    while (!rc && first < k->hp->n_layers && !ntx_is_recurrent(k->hp, first))
        first++;
    k->hp->delta_joined = !rc && ntx__has(k, first, "ssm_in.weight");
    return rc;
}

static int keys(struct ntx__keys *k)
{
    int rc = next_keys(k);
    return rc ? rc : ntx__check_sections(k);
}

static void mixer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out, bool joined)
{
    if (ntx_is_recurrent(&m->hp, l))
        ntx__add_delta(&m->hp, out, joined);
    else
        ntx__add_attention(&m->hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .qk_norm = NTX__ALWAYS, .gated = true, .scale = m->hp.score_scale});
}

static void experts(const struct ntx_model *m, struct ntx_layer *out)
{
    ntx__add_experts(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU, .shared = NTX__ALWAYS, .shared_gate = NTX__ALWAYS});
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

#define NAMES {[NTX_T_ffn_norm] = "post_attention_norm.weight"}

const struct ntx__arch ntx__arch_qwen3next = {
    .nextn = true, .experts = NTX__ALWAYS, .expert_norm = true, .keys = older_keys, .own = {"full_attention_interval", "nextn_predict_layers"}, .layer = next, .names = NAMES,
};
const struct ntx__arch ntx__arch_qwen35 = {
    .nextn = true, .keys = keys, .own = {"full_attention_interval", "nextn_predict_layers", "rope.dimension_sections"}, .layer = dense, .names = NAMES,
};
const struct ntx__arch ntx__arch_qwen35moe = {
    .nextn = true, .experts = NTX__ALWAYS, .expert_norm = true, .keys = keys, .own = {"full_attention_interval", "nextn_predict_layers", "rope.dimension_sections"}, .layer = moe, .names = NAMES,
};
