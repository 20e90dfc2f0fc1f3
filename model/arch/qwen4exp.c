/* SPDX-License-Identifier: Apache-2.0 */
/* qwen4exp.c: Qwen3.8-Flash-Next (transformers' qwen4_exp).
 *
 * Three of four layers are gated delta nets, the others attention with a gated output to blocks of positions that an
 * indexer chooses. Four residual streams are mixed value by value, by two small products of all of them
 * (computed/pass/hyper_connections.c). Experts, and a shared expert with a gate. One layer adds n-gram embeddings
 * from a large table (computed/pass/grams.c). The last layer mixes the streams once more, which is also the output
 * norm. M-RoPE as in qwen35.c. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

/* Reads a list of at least n numbers, each at most `most`. */
static int read_numbers(struct ntx__keys *k, const char *suffix, uint32_t n, uint64_t most, uint64_t *out)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, suffix));
    const bool wide = kv && (kv->elem == NTX_GGUF_U64 || kv->elem == NTX_GGUF_I64),
               narrow = kv && (kv->elem == NTX_GGUF_U32 || kv->elem == NTX_GGUF_I32);
    if (!kv || kv->type != NTX_GGUF_ARR || (!wide && !narrow) || kv->count < n)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is missing, or not a list of %u integers", k->key, n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t v = 0;
        memcpy(&v, (const uint8_t *)kv->data + (size_t)i * (wide ? 8 : 4), wide ? 8 : 4);
        if (v > most)
            return ntx_err_set(k->err, -EINVAL, "key '%s' has %llu; up to %llu is possible", k->key,
                               (unsigned long long)v, (unsigned long long)most);
        out[i] = v;
    }
    return 0;
}

/* Keys of the n-gram hashes. Products stay below 2^63, so signed and unsigned arithmetic agree. */
static int table_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint64_t first[NTX_GRAM_HEADS_MAX], size[NTX_GRAM_HEADS_MAX];
    int rc = read_numbers(k, "ple.layer_multipliers", hp->grams.n, INT64_MAX / hp->n_vocab, hp->grams.by);
    if (rc || (rc = read_numbers(k, "ple.head_offsets", hp->grams.heads, INT32_MAX, first)) ||
        (rc = read_numbers(k, "ple.head_vocab_sizes", hp->grams.heads, INT32_MAX, size)))
        return rc;
    for (uint32_t h = 0; h < hp->grams.heads; h++) {
        if (!size[h] || first[h] + size[h] > INT32_MAX)
            return ntx_err_set(k->err, -EINVAL,
                               "key '%s': head %u has %llu entries from %llu on; 1 to %d in all are possible", k->key,
                               h, (unsigned long long)size[h], (unsigned long long)first[h], INT32_MAX);
        hp->grams.first[h] = (uint32_t)first[h];
        hp->grams.size[h] = (uint32_t)size[h];
        hp->grams.entries = NTX_MAX(hp->grams.entries, (uint32_t)(first[h] + size[h]));
    }
    const struct ntx_gguf_tensor *t = ntx_end_tensor(k->g, NTX_END_gram_embd);
    if (t && t->ne[1] > hp->grams.entries && t->ne[1] <= INT32_MAX) /* entries that no hash reaches pad the table */
        hp->grams.entries = (uint32_t)t->ne[1];
    return 0;
}

/* The layer that adds n-gram embeddings; without the key there is none. */
static int gram_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "ple.layers"));
    uint64_t layer = 0;
    uint32_t each;
    const uint32_t n = kv && kv->type == NTX_GGUF_ARR ? (uint32_t)NTX_MIN(kv->count, 1u) : 1;
    int rc = kv ? read_numbers(k, "ple.layers", n, hp->n_layers - 1, &layer) : 0;
    if (rc || !kv || !kv->count)
        return rc;
    if (kv->count > 1 || !ntx_is_recurrent(hp, (uint32_t)layer))
        return ntx_err_set(k->err, -ENOTSUP, "key '%s': one layer, which is a delta net, is supported", k->key);
    if ((rc = ntx__key_u32(k, "ple.ngram_size", -1, 2, NTX_GRAM_MAX, &hp->grams.n)) ||
        (rc = ntx__key_u32(k, "ple.heads_per_ngram", -1, 1, NTX_GRAM_HEADS_MAX / (hp->grams.n - 1), &each)) ||
        (rc = ntx__key_u32(k, "ple.conv_kernel", -1, 2, NTX_DELTA_TAPS_MAX, &hp->grams.taps)) ||
        (rc = ntx__key_u32(k, "ple.eos_token_id", -1, 0, hp->n_vocab - 1, &hp->grams.eos)) ||
        (rc = ntx__key_u32(k, "embedding_length_per_layer_input", -1, 1, NTX__MAX_WIDTH, &hp->grams.width)))
        return rc;
    hp->grams.layer = (uint32_t)layer + 1;
    hp->grams.heads = (hp->grams.n - 1) * each;
    if ((uint64_t)hp->grams.heads * hp->grams.width != hp->n_embd)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u: %u entries of a table, %u values together, are supported",
                           k->key, hp->grams.width, hp->grams.heads, hp->n_embd);
    return table_keys(k);
}

/* Blocks have the same size in all layers of attention, and each has an indexer. */
static int block_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint64_t every[NTX_MAX_LAYERS];
    int rc = read_numbers(k, "attention.compress_ratios", hp->n_layers, INT32_MAX, every);
    for (uint32_t l = 0; !rc && l < hp->n_layers; l++) {
        if (ntx_is_recurrent(hp, l))
            continue;
        if (every[l] < 2 || every[l] > NTX_INDEX_BLOCK_MAX || (hp->index.every && hp->index.every != every[l]))
            return ntx_err_set(
                k->err, -ENOTSUP,
                "key '%s' is %llu for layer %u: blocks of 2 to %d positions, the same in all layers, are supported",
                k->key, (unsigned long long)every[l], l, NTX_INDEX_BLOCK_MAX);
        hp->index.every = (uint32_t)every[l];
        hp->index.in[l / 64] |= (uint64_t)1 << l % 64;
    }
    return rc;
}

static int read_index_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc;
    if ((rc = block_keys(k)) ||
        (rc = ntx__key_u32(k, "attention.indexer.head_count", -1, 1, NTX_INDEX_HEADS_MAX, &hp->index.heads)) ||
        (rc = ntx__key_u32(k, "attention.indexer.key_length", -1, NTX_MAX(hp->rope_dim, 16u), NTX_INDEX_HEAD_MAX,
                           &hp->index.head)) ||
        (rc = ntx__key_u32(k, "attention.indexer.top_k", -1, hp->index.every, INT32_MAX, &hp->index.most)))
        return rc;
    if (hp->index.most % hp->index.every)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is %u: positions are chosen %u at a time", k->key, hp->index.most,
                           hp->index.every);
    if (hp->index.head % 16)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u; multiples of 16 are supported",
                           ntx__key_of(k, "attention.indexer.key_length"), hp->index.head);
    hp->index.most /= hp->index.every;
    hp->index.pairs = NTX_ROPE_NEOX;
    hp->index_beside = true;
    return 0;
}

static int stream_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc = ntx__key_stream_count(k);
    return rc ? rc : ntx__key_u32(k, "hyper_connection.low_rank", -1, 1, NTX__MAX_WIDTH, &hp->streams.low);
}

static int qwen4exp_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc;
    if (hp->n_layers > NTX_MAX_LAYERS / 2)
        return ntx_err_set(k->err, -ENOTSUP, "%u layers: up to %d are supported", hp->n_layers, NTX_MAX_LAYERS / 2);
    if (hp->head_k != hp->head_v) /* gates of the output are stored beside q */
        return ntx_err_set(k->err, -ENOTSUP, "heads of %u values of K and %u of V are not supported", hp->head_k,
                           hp->head_v);
    if ((rc = ntx__key_recurrent(k)) || (rc = ntx__key_delta(k)) || (rc = ntx__check_sections(k)) ||
        (rc = stream_keys(k)) || (rc = read_index_keys(k)) || (rc = gram_keys(k)))
        return rc;
    if (!ntx_count_recurrent(hp))
        return ntx_err_set(k->err, -ENOTSUP, "key '%s': a %s model without a delta net is not supported",
                           ntx__key_of(k, "full_attention_interval"), k->name);
    hp->no_output_norm = true;
    ntx__find_fused_experts(k);
    return ntx__key_u32(k, "expert_shared_feed_forward_length", hp->n_ff, 1, NTX__MAX_WIDTH, &hp->n_ff_shexp);
}

/* ---- a layer */

static struct ntx_step *add_step(struct ntx_layer *l, enum ntx_op op, enum ntx_buf out, enum ntx_buf in, uint32_t heads,
                                 uint32_t width)
{
    struct ntx_step *s = ntx_layer_add(l, op, out, in);
    s->heads = heads;
    s->width = width;
    return s;
}

static struct ntx_step *of_streams(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_op op, enum ntx_buf out,
                                   enum ntx_buf in)
{
    return add_step(l, op, out, in, hp->streams.n, hp->n_embd);
}

static void norm_streams(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in,
                         enum ntx_tensor scale)
{
    struct ntx_step *s = of_streams(hp, l, NTX_OP_NORM, out, in);
    s->norm.each = true;
    ntx_step_takes(s, scale, false);
}

/* out = mean of the streams, each value gated by two products of all normed streams. */
static void mix_streams(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf out, enum ntx_tensor low)
{
    ntx__add_product(l, NTX_BUF_Q_LOW, NTX_BUF_NORMED, low);
    add_step(l, NTX_OP_MAP, NTX_BUF_Q_LOW, NTX_BUF_Q_LOW, 1, hp->streams.low)->scale = 1.0f / (float)hp->streams.n;
    ntx__add_product(l, NTX_BUF_GATES, NTX_BUF_Q_LOW, (enum ntx_tensor)(low + 1));
    add_step(l, NTX_OP_GATE, NTX_BUF_NORMED, NTX_BUF_NORMED, 1, hp->streams.n * hp->n_embd)->in[1] = NTX_BUF_GATES;
    of_streams(hp, l, NTX_OP_MIX, out, NTX_BUF_NORMED);
}

/* X of the streams, and in MIX the weights of Y in each: by tensor `norm` and the three after it. */
static void enter_block(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_tensor norm)
{
    norm_streams(hp, l, NTX_BUF_NORMED, NTX_BUF_STREAMS, norm);
    ntx__add_product(l, NTX_BUF_MIX, NTX_BUF_NORMED, (enum ntx_tensor)(norm + 1));
    mix_streams(hp, l, NTX_BUF_X, (enum ntx_tensor)(norm + 2));
}

static void leave_block(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    struct ntx_step *s = of_streams(hp, l, NTX_OP_SPREAD, NTX_BUF_STREAMS, NTX_BUF_Y);
    s->in[1] = NTX_BUF_MIX;
    s->scale = 1.0f / (float)hp->streams.n;
}

/* Streams += gated n-gram embedding, and a convolution of it. */
static void add_grams(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    const uint32_t all = hp->streams.n * hp->n_embd;
    add_step(l, NTX_OP_GRAMS, NTX_BUF_X, NTX_BUF_NONE, hp->grams.heads, hp->n_embd);
    ntx__add_product(l, NTX_BUF_NORMED, NTX_BUF_X, NTX_T_gram_key);
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_X, NTX_T_gram_value);
    norm_streams(hp, l, NTX_BUF_NORMED, NTX_BUF_NORMED, NTX_T_gram_key_norm);
    norm_streams(hp, l, NTX_BUF_GATES, NTX_BUF_STREAMS, NTX_T_gram_query_norm);
    struct ntx_step *s = of_streams(hp, l, NTX_OP_DOTGATE, NTX_BUF_NORMED, NTX_BUF_GATES);
    s->in[1] = NTX_BUF_Y;
    s->scale = 1.0f / sqrtf((float)hp->n_embd);
    norm_streams(hp, l, NTX_BUF_GATES, NTX_BUF_NORMED, NTX_T_gram_conv_norm);
    s = add_step(l, NTX_OP_CONV, NTX_BUF_Q, NTX_BUF_GATES, 1, all);
    s->conv.taps = hp->grams.taps;
    s->conv.dilation = hp->grams.n;
    ntx_step_takes(s, NTX_T_gram_conv, false);
    add_step(l, NTX_OP_ADD, NTX_BUF_NORMED, NTX_BUF_Q, 1, all);
    add_step(l, NTX_OP_ADD, NTX_BUF_STREAMS, NTX_BUF_NORMED, 1, all);
}

static void norm_heads(struct ntx_layer *l, enum ntx_buf b, enum ntx_tensor scale, uint32_t heads, uint32_t width)
{
    ntx_step_takes(add_step(l, NTX_OP_NORM, b, b, heads, width), scale, false);
}

static void rotate(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf b, uint32_t heads, uint32_t width)
{
    struct ntx_step *s = add_step(l, NTX_OP_ROPE, b, b, heads, width);
    s->rope.rotated = hp->rope_dim;
    s->rope.pairs = NTX_ROPE_NEOX;
}

/* Chooses blocks by queries in POOL and a key of each position in KEYS, whose means are normed and rotated. */
static void add_block_choice(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    struct ntx_step *s = add_step(l, NTX_OP_INDEX_TOPK, NTX_BUF_NONE, NTX_BUF_POOL, hp->index.heads, hp->index.head);
    s->index_topk.most = hp->index.most;
    s->index_topk.every = hp->index.every;
    s->index_topk.keys = s->index_topk.mean = true;
    s->scale = 1.0f / sqrtf((float)hp->index.head);
    ntx_step_takes(s, NTX_T_block_k_norm, false);
}

static void add_attention(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    const struct {
        enum ntx_buf to;
        enum ntx_tensor by;
    } products[] = {{NTX_BUF_Q, NTX_T_q_gated},
                    {NTX_BUF_K, NTX_T_k},
                    {NTX_BUF_V, NTX_T_v},
                    {NTX_BUF_POOL, NTX_T_block_q},
                    {NTX_BUF_KEYS, NTX_T_block_k}};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        ntx__add_product(l, products[i].to, NTX_BUF_X, products[i].by);
    add_step(l, NTX_OP_SPLIT, NTX_BUF_Q, NTX_BUF_Q, hp->n_head, hp->head_k)->in[1] = NTX_BUF_Z;
    norm_heads(l, NTX_BUF_Q, NTX_T_q_norm, hp->n_head, hp->head_k);
    norm_heads(l, NTX_BUF_K, NTX_T_k_norm, hp->n_head_kv, hp->head_k);
    norm_heads(l, NTX_BUF_POOL, NTX_T_block_q_norm, hp->index.heads, hp->index.head);
    rotate(hp, l, NTX_BUF_Q, hp->n_head, hp->head_k);
    rotate(hp, l, NTX_BUF_K, hp->n_head_kv, hp->head_k);
    rotate(hp, l, NTX_BUF_POOL, hp->index.heads, hp->index.head);
    ntx_layer_add(l, NTX_OP_PUT, NTX_BUF_NONE, NTX_BUF_K)->in[1] = NTX_BUF_V;
    ntx_layer_add(l, NTX_OP_PUT, NTX_BUF_NONE, NTX_BUF_KEYS)->put.keys = true;
    add_block_choice(hp, l);
    struct ntx_step *s = add_step(l, NTX_OP_ATTEND, NTX_BUF_ATTN, NTX_BUF_Q, 1, hp->n_head * hp->head_v);
    s->attend.topk = true;
    s->scale = hp->score_scale != 0 ? hp->score_scale : 1.0f / sqrtf((float)hp->head_k);
    add_step(l, NTX_OP_GATE, NTX_BUF_ATTN, NTX_BUF_ATTN, 1, hp->n_head * hp->head_v)->in[1] = NTX_BUF_Z;
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_o);
}

/* H: the input of the output matrix; before the last layer the streams' mean, for code that looks at H. */
static void join_streams(const struct ntx_hparams *hp, uint32_t at, struct ntx_layer *l)
{
    if (at + 1 < hp->n_layers) {
        ntx__streams_mean(hp, l);
        return;
    }
    norm_streams(hp, l, NTX_BUF_NORMED, NTX_BUF_STREAMS, NTX_T_head_low_norm);
    mix_streams(hp, l, NTX_BUF_H, NTX_T_head_low);
}

static void qwen4exp_layer(const struct ntx_model *m, uint32_t at, struct ntx_layer *l)
{
    const struct ntx_hparams *hp = &m->hp;
    if (!at)
        ntx__streams_begin(hp, l);
    if (ntx_has_grams(hp, at))
        add_grams(hp, l);
    enter_block(hp, l, NTX_T_attn_low_norm);
    if (ntx_is_recurrent(hp, at))
        ntx__add_delta_alone(hp, l, false, true);
    else
        add_attention(hp, l);
    leave_block(hp, l);
    enter_block(hp, l, NTX_T_ffn_low_norm);
    ntx__add_experts_alone(
        m, l, &(struct ntx__experts){.act = NTX_FFN_SILU, .shared = NTX__ALWAYS, .shared_gate = NTX__ALWAYS});
    leave_block(hp, l);
    join_streams(hp, at, l);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    /* Width from the table's 51B parameters; streams and entries from transformers' defaults; the indexer and an
     * expert's width are guesses that fit 125B parameters, 6B active. */
    {"qwen3.8-flash-next", 48, 2560, 0, 16, 2, 256, 248320, 262144, 512, 10, 384,
     "expert_shared_feed_forward_length=384 ssm.time_step_rank=32 ssm.inner_size=4096 hyper_connection.count=4 "
     "hyper_connection.low_rank=320 attention.compress_ratios=0x3,16 "
     "ple.layers=1, ple.ngram_size=3 ple.heads_per_ngram=8 ple.conv_kernel=4 ple.eos_token_id=0 "
     "embedding_length_per_layer_input=160 ple.layer_multipliers=1,3,5, ple.head_offsets=0x15,300000045 "
     "ple.head_vocab_sizes=20000003x16" NTX__INDEXER("16") NTX__QWEN_DELTA NTX__QWEN_TURN,
     ""},
    {0},
};

const struct ntx__arch ntx__arch_qwen4exp = {
    .models = models,
    .experts = NTX__ALWAYS,
    .expert_norm = true,
    .interleaved = true,
    .keys = qwen4exp_keys,
    .layer = qwen4exp_layer,
    .own = {"full_attention_interval", "rope.dimension_sections", "attention.compress_ratios",
            "attention.indexer.head_count", "attention.indexer.top_k", "hyper_connection.count"},
};
