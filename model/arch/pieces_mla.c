/* SPDX-License-Identifier: Apache-2.0 */
/* pieces_mla.c: keys and steps of multi-head latent attention (MLA), to all positions or to the top-k of an indexer. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

/* ---- keys */

/* llama.cpp's MLA files store per-head widths in keys of their own; the generic keys then are the widths of the
 * latent. */
static int own_widths(struct ntx__keys *k, uint32_t head_k, uint32_t head_v)
{
    struct ntx_hparams *hp = k->hp;
    if (hp->head_k != hp->kv_lora + hp->rope_dim || hp->n_head_kv != 1)
        return ntx_err_set(
            k->err, -EINVAL,
            "key '%s' is %u, of %u heads: latents of %u values with %u rotated ones, of one head, are possible",
            ntx__key_of(k, "attention.key_length"), hp->head_k, hp->n_head_kv, hp->kv_lora, hp->rope_dim);
    hp->head_k = head_k;
    hp->head_v = head_v;
    return 0;
}

int ntx__key_mla(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t head_k, head_v;
    int rc;
    if ((rc = ntx__key_u32(k, "attention.kv_lora_rank", -1, 1, NTX_MAX_HEAD - hp->rope_dim, &hp->kv_lora)) ||
        (rc = ntx__key_u32(k, "attention.q_lora_rank", 0, 0, NTX__MAX_WIDTH, &hp->q_lora)) ||
        (rc = ntx__key_u32(k, "attention.value_length_mla", 0, 0, NTX_MAX_HEAD, &head_v)) ||
        (rc = ntx__key_u32(k, "attention.key_length_mla", head_v ? -1 : 0, head_v != 0, head_v ? NTX_MAX_HEAD : 0,
                           &head_k)))
        return rc;
    hp->kv_joined = !head_v;
    if (head_v && (rc = own_widths(k, head_k, head_v)))
        return rc;
    if (hp->head_k <= hp->rope_dim)
        return ntx_err_set(k->err, -EINVAL, "%u of a head's %u values are rotated: some are not in a %s model",
                           hp->rope_dim, hp->head_k, k->name);
    hp->n_head_kv = 1;
    return 0;
}

/* Entry l of a list, or a single value. */
static uint32_t type_of(const struct ntx_gguf_kv *kv, uint32_t l)
{
    uint32_t is = 0;
    size_t size = ntx_gguf_scalar_bytes(kv->type == NTX_GGUF_ARR ? kv->elem : kv->type);
    memcpy(&is, (const uint8_t *)kv->data + (kv->type == NTX_GGUF_ARR ? l * size : 0), size);
    return is;
}

static int check_types(struct ntx__keys *k, const struct ntx_gguf_kv *kv, const struct ntx__indexer *has)
{
    const struct ntx_hparams *hp = k->hp;
    const enum ntx_gguf_vtype elem = kv->type == NTX_GGUF_ARR ? kv->elem : kv->type;
    if (has->all)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is not supported with a %s model, where each layer chooses",
                           k->key, k->name);
    if (elem != NTX_GGUF_BOOL && elem != NTX_GGUF_U32 && elem != NTX_GGUF_I32)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is not a list of numbers or truth values", k->key);
    if (kv->type == NTX_GGUF_ARR && kv->count != hp->n_layers && kv->count != hp->n_layers + hp->n_nextn)
        return ntx_err_set(k->err, -EINVAL, "key '%s' tells of %llu layers; there are %u", k->key,
                           (unsigned long long)kv->count, hp->n_layers);
    return type_of(kv, 0)
               ? 0
               : ntx_err_set(
                     k->err, -EINVAL,
                     "key '%s': the first layer does not choose positions, and has nobody before it to choose for it",
                     k->key);
}

static int find_choosing(struct ntx__keys *k, const struct ntx__indexer *has)
{
    struct ntx_hparams *hp = k->hp;
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "attention.indexer.types"));
    int rc = kv ? check_types(k, kv, has) : 0;
    for (uint32_t l = 0; l < hp->n_layers && !rc; l++) {
        bool chooses = kv ? type_of(kv, l) != 0 : !has->fourth || l < 2 || l % 4 == 2;
        hp->index.in[l / 64] |= (uint64_t)chooses << l % 64;
    }
    return rc;
}

int ntx__key_indexer(struct ntx__keys *k, const struct ntx__indexer *has)
{
    struct ntx_hparams *hp = k->hp;
    int rc;
    if ((rc = ntx__key_u32(k, "attention.indexer.head_count", -1, 1, NTX_INDEX_HEADS_MAX, &hp->index.heads)) ||
        (rc = ntx__key_u32(k, "attention.indexer.key_length", -1, NTX_MAX(hp->rope_dim, 16u), NTX_INDEX_HEAD_MAX,
                           &hp->index.head)) ||
        (rc = ntx__key_u32(k, "attention.indexer.top_k", -1, 1, UINT32_MAX, &hp->index.most)))
        return rc;
    if (hp->kv_joined || !hp->q_lora)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is missing; a %s model needs it",
                           ntx__key_of(k, hp->q_lora ? "attention.value_length_mla" : "attention.q_lora_rank"),
                           k->name);
    if (hp->index.head % 16)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u; multiples of 16 are supported",
                           ntx__key_of(k, "attention.indexer.key_length"), hp->index.head);
    hp->index.pairs = has->pairs;
    return find_choosing(k, has);
}

/* ---- steps */

/* RoPE of the last rope_dim values of each run of `width`. */
static void rotate_behind(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf b, uint32_t heads,
                          uint32_t width)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ROPE, b, b);
    s->heads = heads;
    s->width = width;
    s->rope.rotated = hp->rope_dim;
    s->offset = width - hp->rope_dim;
    s->rope.pairs = NTX_ROPE_NORM;
}

/* RoPE of the indexer's queries or keys at their start, then a Hadamard transform, which keeps dot products (up to
 * rounding). With keys_behind: RoPE at their end, and no transform. */
static void rotate_index(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__mla *has, enum ntx_buf b,
                         uint32_t heads)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ROPE, b, b);
    s->rope.rotated = hp->rope_dim;
    s->rope.pairs = (uint8_t)hp->index.pairs;
    s->heads = heads;
    s->width = hp->index.head;
    if (has->keys_behind) {
        s->offset = hp->index.head - hp->rope_dim;
        return;
    }
    s = ntx_layer_add(l, NTX_OP_HADAMARD, b, b);
    s->heads = heads;
    s->width = hp->index.head;
}

static void add_index_products(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    ntx__add_product(l, NTX_BUF_V, NTX_BUF_X, NTX_T_index_k);
    if (hp->index.every) {
        ntx__add_product(l, NTX_BUF_V, NTX_BUF_X, NTX_T_index_gate);
        l->step[l->n_steps - 1].offset = hp->index.head;
    }
    ntx__add_product(l, NTX_BUF_A, NTX_BUF_X, NTX_T_index_heads);
}

static void add_index_key(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__mla *has)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_LAYERNORM, NTX_BUF_V, NTX_BUF_V);
    s->width = hp->index.head;
    s->layernorm.eps = has->keys_behind ? hp->rms_eps : 0;
    ntx__takes(s, NTX_T_index_k_norm, NTX__ALWAYS);
    ntx__takes(s, NTX_T_index_k_bias, NTX__ALWAYS);
    if (!hp->index.every)
        rotate_index(hp, l, has, NTX_BUF_V, 1);
}

static void add_indexer(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__mla *has)
{
    if (!hp->index.every)
        rotate_index(hp, l, has, NTX_BUF_Z, hp->index.heads);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_INDEX_TOPK, NTX_BUF_NONE, NTX_BUF_Z);
    s->in[1] = NTX_BUF_A;
    s->heads = hp->index.heads;
    s->width = hp->index.head;
    s->index_topk.most = hp->index.most;
    s->scale = 1.0f / sqrtf((float)hp->index.head * (float)hp->index.heads);
    s->index_topk.every = hp->index.every;
    s->index_topk.keys = hp->index.every != 0;
    ntx__takes(s, NTX_T_index_place, hp->index.every ? NTX__ALWAYS : NTX__NEVER);
}

void ntx__add_mla_attention(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l,
                            const struct ntx__mla *has)
{
    ntx__norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_mla_alone(hp, layer, l, has);
    ntx__add_state(hp, l);
}

/* Steps that feed the state come first; the norm of low-rank q comes right before the product that uses it. */
void ntx__add_mla_alone(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l, const struct ntx__mla *has)
{
    const uint32_t mla = hp->kv_lora + hp->rope_dim;
    const bool chooses = ntx_has_indexer(hp, layer);
    ntx__add_product(l, hp->q_lora ? NTX_BUF_Q_LOW : NTX_BUF_Q, NTX_BUF_X, hp->q_lora ? NTX_T_q_a : NTX_T_q);
    ntx__add_product(l, NTX_BUF_K, NTX_BUF_X, NTX_T_kv_a);
    if (has->gated || has->head_gates) /* the gates of FFNs have the buffer of attention's gates */
        ntx__add_product(l, NTX_BUF_POOL_GATE, NTX_BUF_X, has->gated ? NTX_T_mla_gate : NTX_T_head_gate);
    if (chooses)
        add_index_products(hp, l);
    ntx__norm(l, NTX_BUF_K, NTX_BUF_K, NTX_T_kv_a_norm, NTX__ALWAYS, 1, hp->kv_lora);
    if (!has->unturned)
        rotate_behind(hp, l, NTX_BUF_K, 1, mla);
    if (chooses)
        add_index_key(hp, l, has);
    ntx_layer_add(l, NTX_OP_PUT, NTX_BUF_NONE, NTX_BUF_K)->in[1] = chooses ? NTX_BUF_V : NTX_BUF_NONE;
    if (hp->q_lora) {
        ntx__norm(l, NTX_BUF_Q_LOW, NTX_BUF_Q_LOW, NTX_T_q_a_norm, NTX__ALWAYS, 1, hp->q_lora);
        ntx__add_product(l, NTX_BUF_Q, NTX_BUF_Q_LOW, NTX_T_q_b);
        if (chooses)
            ntx__add_product(l, NTX_BUF_Z, NTX_BUF_Q_LOW, NTX_T_index_q);
    }
    if (!has->unturned)
        rotate_behind(hp, l, NTX_BUF_Q, hp->n_head, hp->head_k);
    if (chooses)
        add_indexer(hp, l, has);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ATTEND, NTX_BUF_ATTN, NTX_BUF_Q);
    s->attend.mla = true;
    s->attend.topk = hp->index.head != 0;
    s->attend.temperature = hp->temperature;
    s->scale = hp->score_scale;
    s->width = hp->n_head * hp->head_v;
    ntx__takes(s, NTX_T_kv_b, hp->kv_joined ? NTX__ALWAYS : NTX__NEVER);
    ntx__takes(s, NTX_T_k_b, hp->kv_joined ? NTX__NEVER : NTX__ALWAYS);
    ntx__takes(s, NTX_T_v_b, hp->kv_joined ? NTX__NEVER : NTX__ALWAYS);
    ntx__takes(s, NTX_T_sinks, has->gated && !has->no_sinks ? NTX__ALWAYS : NTX__NEVER);
    if (has->gated || has->head_gates) {
        s = ntx_layer_add(l, NTX_OP_GATE, NTX_BUF_ATTN, NTX_BUF_ATTN);
        s->in[1] = NTX_BUF_POOL_GATE;
        s->width = hp->n_head * hp->head_v;
        s->gate.by_head = has->head_gates;
        s->heads = has->head_gates ? hp->n_head : 0;
    }
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_o);
}
