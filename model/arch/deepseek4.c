/* SPDX-License-Identifier: Apache-2.0 */
/* deepseek4.c: DeepSeek V4.
 *
 * Hyper-connections before and after attention and experts (computed/pass/hyper_connections.c). All heads share one
 * K, which is also V. A row sees a window of them, and pooled K that stand for 4 positions each, of which an indexer
 * chooses, or for 128 (computed/pass/forward_pool.c). Since V is rotated like K, the output of attention is rotated
 * back. The first layers' experts depend on the token alone; rows of images are routed there, too, by a bias of theirs.
 * Layers without pooled K have a RoPE base of their own, without YaRN; YaRN scales no magnitudes. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

enum { RATIOS_FAR = 128 };

static int ratio_of(struct ntx__keys *k, const struct ntx_gguf_kv *kv, uint32_t l)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t ratio;
    memcpy(&ratio, (const uint8_t *)kv->data + 4 * (size_t)l, sizeof ratio);
    if (ratio != 0 && ratio != NTX_POOL_OVERLAPS && ratio != RATIOS_FAR)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u of layer %u: 0, %d and %d are supported", k->key, ratio, l,
                           NTX_POOL_OVERLAPS, RATIOS_FAR);
    hp->pool[l] = (uint16_t)ratio;
    hp->index.in[l / 64] |= (uint64_t)(ratio == NTX_POOL_OVERLAPS) << l % 64;
    hp->windowed[l / 64] |= (uint64_t)1 << l % 64;
    return 0;
}

static int ratios(struct ntx__keys *k)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "attention.compress_ratios"));
    int rc = 0;
    if (!kv || kv->type != NTX_GGUF_ARR || (kv->elem != NTX_GGUF_U32 && kv->elem != NTX_GGUF_I32) ||
        kv->count < k->hp->n_layers)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is not a list of a number for each of %u layers", k->key,
                           k->hp->n_layers);
    if (k->hp->n_layers > NTX_MAX_LAYERS / 2)
        return ntx_err_set(k->err, -ENOTSUP, "%u layers that pool what they keep: up to %d are supported",
                           k->hp->n_layers, NTX_MAX_LAYERS / 2);
    for (uint32_t l = 0; l < k->hp->n_layers && !rc; l++)
        rc = ratio_of(k, kv, l);
    if (!rc && !ntx_count_recurrent(k->hp))
        return ntx_err_set(k->err, -ENOTSUP,
                           "key '%s': a %s model whose layers see nothing but their windows is not supported", k->key,
                           k->name);
    return rc;
}

static int output_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc = ntx__key_u32(k, "attention.output_group_count", -1, 1, hp->n_head, &hp->o_parts);
    if (rc || (rc = ntx__key_u32(k, "attention.output_lora_rank", -1, 1, NTX__MAX_WIDTH / hp->o_parts, &hp->o_lora)))
        return rc;
    const uint32_t n_in = hp->n_head / hp->o_parts * hp->head_v;
    return hp->n_head % hp->o_parts || n_in % 16
               ? ntx_err_set(k->err, -ENOTSUP,
                             "%u heads of %u values in %u parts: equal parts of a multiple of 16 are supported",
                             hp->n_head, hp->head_v, hp->o_parts)
               : 0;
}

static int read_index_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc;
    if ((rc = ntx__key_u32(k, "attention.indexer.head_count", -1, 1, NTX_INDEX_HEADS_MAX, &hp->index.heads)) ||
        (rc = ntx__key_u32(k, "attention.indexer.key_length", -1, NTX_MAX(hp->rope_dim, 16u), NTX_INDEX_HEAD_MAX,
                           &hp->index.head)) ||
        (rc = ntx__key_u32(k, "attention.indexer.top_k", -1, 1, UINT32_MAX / RATIOS_FAR, &hp->index.most)))
        return rc;
    hp->index.pairs = NTX_ROPE_NORM;
    return hp->index.head % 16 ? ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u; multiples of 16 are supported",
                                             ntx__key_of(k, "attention.indexer.key_length"), hp->index.head)
                               : 0;
}

/* Layers that pool use the model's RoPE base and YaRN, the others a plain base. */
static int rope_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    hp->rope_dim_window = hp->rope_dim;
    hp->rope_base_window = hp->rope_base;
    hp->rope_factor_window = 1;
    hp->plain_window = true;
    if (!hp->yarn_magnitude_told)
        hp->rope_attn_factor = hp->rope_scaling == NTX_ROPE_SCALE_YARN && hp->yarn_ext_factor != 0
                                   ? (float)(1 / ntx__yarn_magnitude(hp, 1))
                                   : 1;
    return ntx__key_f32(k, "attention.compress_rope_freq_base", NAN, 1, 1e12f, &hp->rope_base);
}

static int expert_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t shared;
    int rc;
    if ((rc = ntx__key_u32(k, "expert_shared_count", -1, 1, NTX__MAX_WIDTH / hp->n_ff_exp, &shared)) ||
        (rc = ntx__key_u32(k, "hash_layer_count", -1, 0, hp->n_layers, &hp->n_token_experts)) ||
        (rc = ntx__key_limit(k, "swiglu_clamp_exp", NAN, &hp->limit)) ||
        (rc = ntx__key_limit(k, "swiglu_clamp_shexp", hp->limit, &hp->shared_limit)))
        return rc;
    hp->n_ff_shexp = shared * hp->n_ff_exp;
    return 0;
}

static int deepseek4_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc = ntx__key_nextn(k);
    if (rc || (rc = ntx__key_u32(k, "attention.q_lora_rank", -1, 1, NTX__MAX_WIDTH, &hp->q_lora)) ||
        (rc = ntx__key_u32(k, "attention.sliding_window", -1, 1, INT32_MAX, &hp->window)) ||
        (rc = ntx__key_streams(k)) || (rc = output_keys(k)) || (rc = read_index_keys(k)) || (rc = rope_keys(k)) ||
        (rc = expert_keys(k)))
        return rc;
    hp->v_is_k = true;
    if (hp->n_head_kv != 1 || hp->head_k != hp->head_v || hp->head_k % 16)
        return ntx_err_set(k->err, -ENOTSUP,
                           "%u heads of K of %u values, and V of %u: one of a multiple of 16, which is both, is "
                           "supported with a %s model",
                           hp->n_head_kv, hp->head_k, hp->head_v, k->name);
    return ratios(k);
}

/* ---- a layer */

/* RoPE of the last rope_dim values of each run of `width`. */
static struct ntx_step *add_rope(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l, enum ntx_op op,
                                 enum ntx_buf b, uint32_t heads, uint32_t width)
{
    struct ntx_step *s = ntx_layer_add(l, op, b == NTX_BUF_POOL || b == NTX_BUF_KEYS ? NTX_BUF_NONE : b, b);
    s->heads = heads;
    s->width = width;
    s->offset = width - hp->rope_dim;
    *(op == NTX_OP_POOL ? &s->pool.rope : &s->rope) = (struct ntx_rope_step){
        .rotated = hp->rope_dim,
        .pairs = NTX_ROPE_NORM,
        .angles = hp->pool[layer] ? NTX_ROTATION_ALL : NTX_ROTATION_WINDOW};
    return s;
}

static void add_pool(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l, bool keys_of)
{
    struct ntx_step *s = add_rope(hp, layer, l, NTX_OP_POOL, keys_of ? NTX_BUF_KEYS : NTX_BUF_POOL, 1,
                                  keys_of ? hp->index.head : hp->head_k);
    s->in[1] = keys_of ? NTX_BUF_KEYS_GATE : NTX_BUF_POOL_GATE;
    s->pool.every = hp->pool[layer];
    s->pool.spans = ntx_pool_spans(hp, layer);
    s->pool.keys = keys_of;
    ntx_step_takes(s, keys_of ? NTX_T_key_pool_place : NTX_T_pool_place, false);
    ntx_step_takes(s, keys_of ? NTX_T_key_pool_norm : NTX_T_pool_norm, false);
}

static void add_indexer(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l)
{
    add_rope(hp, layer, l, NTX_OP_ROPE, NTX_BUF_Z, hp->index.heads, hp->index.head);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_HADAMARD, NTX_BUF_Z, NTX_BUF_Z);
    s->heads = hp->index.heads;
    s->width = hp->index.head;
    s = ntx_layer_add(l, NTX_OP_INDEX_TOPK, NTX_BUF_NONE, NTX_BUF_Z);
    s->in[1] = NTX_BUF_A;
    s->heads = hp->index.heads;
    s->width = hp->index.head;
    s->index_topk.most = hp->index.most;
    s->index_topk.every = hp->pool[layer];
    s->scale = 1.0f / sqrtf((float)hp->index.head * (float)hp->index.heads);
}

static void products_of_x(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l)
{
    ntx__add_product(l, NTX_BUF_Q_LOW, NTX_BUF_X, NTX_T_q_a);
    ntx__add_product(l, NTX_BUF_K, NTX_BUF_X, NTX_T_kv);
    if (hp->pool[layer]) {
        ntx__add_product(l, NTX_BUF_POOL, NTX_BUF_X, NTX_T_pool);
        ntx__add_product(l, NTX_BUF_POOL_GATE, NTX_BUF_X, NTX_T_pool_gate);
    }
    if (ntx_has_indexer(hp, layer)) {
        ntx__add_product(l, NTX_BUF_KEYS, NTX_BUF_X, NTX_T_key_pool);
        ntx__add_product(l, NTX_BUF_KEYS_GATE, NTX_BUF_X, NTX_T_key_pool_gate);
        ntx__add_product(l, NTX_BUF_A, NTX_BUF_X, NTX_T_index_heads);
    }
}

/* K, the pooled K, and q. The norm of low-rank q comes right before the product that uses it. */
static void add_k_and_q(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l)
{
    ntx_step_takes(ntx__add_norm(l, NTX_BUF_K, NTX_BUF_K, 1, hp->head_k), NTX_T_kv_norm, false);
    add_rope(hp, layer, l, NTX_OP_ROPE, NTX_BUF_K, 1, hp->head_k);
    ntx_layer_add(l, NTX_OP_PUT, NTX_BUF_NONE, NTX_BUF_K);
    ntx_step_takes(ntx__add_norm(l, NTX_BUF_Q_LOW, NTX_BUF_Q_LOW, 1, hp->q_lora), NTX_T_q_a_norm, false);
    ntx__add_product(l, NTX_BUF_Q, NTX_BUF_Q_LOW, NTX_T_q_b);
    if (ntx_has_indexer(hp, layer))
        ntx__add_product(l, NTX_BUF_Z, NTX_BUF_Q_LOW, NTX_T_index_q);
    if (hp->pool[layer])
        add_pool(hp, layer, l, false);
    if (ntx_has_indexer(hp, layer))
        add_pool(hp, layer, l, true);
    ntx__add_norm(l, NTX_BUF_Q, NTX_BUF_Q, hp->n_head, hp->head_k);
    add_rope(hp, layer, l, NTX_OP_ROPE, NTX_BUF_Q, hp->n_head, hp->head_k);
}

static void add_attend(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l)
{
    const uint32_t parts = hp->o_parts * hp->o_lora;
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ATTEND, NTX_BUF_ATTN, NTX_BUF_Q);
    s->attend.window = hp->window;
    s->attend.every = hp->pool[layer];
    s->attend.topk = ntx_has_indexer(hp, layer);
    s->scale = 1.0f / sqrtf((float)hp->head_k);
    s->width = hp->n_head * hp->head_v;
    ntx_step_takes(s, NTX_T_sinks, false);
    add_rope(hp, layer, l, NTX_OP_ROPE, NTX_BUF_ATTN, hp->n_head, hp->head_v)->rope.back = true;
    ntx__add_product(l, NTX_BUF_Q_LOW, NTX_BUF_ATTN, NTX_T_o_a);
    l->step[l->n_steps - 1].mm.parts = hp->o_parts;
    s = ntx_layer_add(l, NTX_OP_SCALE, NTX_BUF_Q_LOW, NTX_BUF_Q_LOW); /* a copy, so that it is quantised for the next
                                                                         product */
    s->width = parts;
    s->scale = 1;
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_Q_LOW, NTX_T_o_b);
}

static void deepseek4_layer(const struct ntx_model *m, uint32_t at, struct ntx_layer *l)
{
    const struct ntx_hparams *hp = &m->hp;
    const bool numbered = at < hp->n_token_experts;
    const struct ntx__experts experts = {.act = NTX_FFN_SILU,
                                         .choice = numbered ? NTX__NEVER : NTX__ALWAYS,
                                         .sees = NTX__MAYBE,
                                         .numbered = numbered ? NTX__ALWAYS : NTX__NEVER,
                                         .shared = NTX__ALWAYS};
    if (!at)
        ntx__streams_begin(hp, l);
    ntx__streams_enter(hp, l, NTX_T_attn_mix, NTX_T_attn_norm);
    products_of_x(hp, at, l);
    add_k_and_q(hp, at, l);
    if (ntx_has_indexer(hp, at))
        add_indexer(hp, at, l);
    add_attend(hp, at, l);
    ntx__streams_leave(hp, l);
    ntx__streams_enter(hp, l, NTX_T_ffn_mix, NTX_T_ffn_norm);
    ntx__add_experts_alone(m, l, &experts);
    ntx__streams_leave(hp, l);
    ntx__streams_join(hp, at, l);
}

/* ---- models by name (model/arch.h) */

#define V4(heads, parts, lora, most)                                                                                   \
    "expert_shared_count=1 rope.dimension_count=64 attention.sliding_window=128 attention.q_lora_rank=" lora           \
    " attention.output_group_count=" parts " attention.output_lora_rank=1024"                                          \
    " attention.indexer.head_count=64 attention.indexer.key_length=128 attention.indexer.top_k=" most                  \
    " attention.compress_rope_freq_base=160000.0 hyper_connection.count=4"                                             \
    " hyper_connection.sinkhorn_iterations=20 hyper_connection.epsilon=0.000001 hash_layer_count=3 "                   \
    "expert_gating_func=4 swiglu_clamp_exp=10.0 attention.compress_ratios="
#define IN_TURN "4,128,4,128,4,128,4,128,4,128,"
static const struct ntx_known models[] = {
    {"deepseek-v4-flash", 43, 4096, 0, 64, 1, 512, 129280, 1048576, 256, 6, 2048,
     V4("64", "8", "1024", "512") "0x2," IN_TURN IN_TURN IN_TURN IN_TURN "4", ""},
    {"deepseek-v4-pro", 61, 7168, 0, 128, 1, 512, 129280, 1048576, 384, 6, 3072,
     V4("128", "16", "1536", "1024") "128x3," IN_TURN IN_TURN IN_TURN IN_TURN IN_TURN "4,128,4,128,4,128,4,128", ""},
    {0},
};

const struct ntx__arch ntx__arch_deepseek4 = {
    .models = models,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SQRT_SOFTPLUS,
    .keys = deepseek4_keys,
    .layer = deepseek4_layer,
    .own = {"attention.q_lora_rank", "attention.sliding_window", "attention.indexer.head_count",
            "attention.indexer.top_k", "attention.compress_ratios", "nextn_predict_layers", "hash_layer_count",
            "hyper_connection.count", "swiglu_clamp_exp", "swiglu_clamp_shexp"},
};
