/* arch.c: the table of architectures, and the reading of hyper-parameters and tensors by it.
 *
 * A new architecture of the same family is one line in `archs`, plus a row in `slots` for each tensor of a new kind.
 * Key names: the GGUF specification. Every tensor of the file must be one that the table names: what is not
 * computed with would make the output silently wrong. */
#include "model/arch.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "model/quant.h"

#define MAX_WIDTH (1u << 20) /* of a row of a matrix; a bound for arithmetic further on, far above real models */
#define MAX_VOCAB (1u << 24)

enum group { BASE, FFN_NORM, POST_NORM /* its other name */, QKV_BIAS, O_BIAS, QK_NORM, SINKS, DENSE, EXPERTS, EACH_EXPERT /* a matrix for each, in one tensor */, EXPERT_BIAS, SHARED, N_GROUPS };
enum presence { NEVER, MAYBE, ALWAYS }; /* of DENSE and EXPERTS a model has one: MAYBE says that its keys tell which */

struct arch {
    const char *name;
    enum ntx_rope_kind rope;
    enum presence has[N_GROUPS];
    enum ntx_ffn_act act;
    bool expert_norm; /* unless a key says otherwise */
    uint32_t window_every; /* the same; 0: a window is every layer's */
};

static const struct arch archs[] = {
    {"llama", NTX_ROPE_NORM, {[BASE] = ALWAYS, [QKV_BIAS] = MAYBE, [O_BIAS] = MAYBE, [DENSE] = MAYBE, [EXPERTS] = MAYBE}, NTX_FFN_SILU, true, 0},
    {"llama-relu", NTX_ROPE_NORM, {[BASE] = ALWAYS, [QKV_BIAS] = MAYBE, [O_BIAS] = MAYBE, [DENSE] = ALWAYS}, NTX_FFN_RELU, false, 0},
    {"qwen2", NTX_ROPE_NEOX, {[BASE] = ALWAYS, [QKV_BIAS] = ALWAYS, [O_BIAS] = MAYBE, [DENSE] = ALWAYS}, NTX_FFN_SILU, false, 0},
    {"qwen3", NTX_ROPE_NEOX, {[BASE] = ALWAYS, [QK_NORM] = ALWAYS, [DENSE] = ALWAYS}, NTX_FFN_SILU, false, 0},
    {"qwen2moe", NTX_ROPE_NEOX, {[BASE] = ALWAYS, [QKV_BIAS] = MAYBE, [O_BIAS] = MAYBE, [EXPERTS] = ALWAYS, [SHARED] = ALWAYS}, NTX_FFN_SILU, false, 0},
    {"qwen3moe", NTX_ROPE_NEOX, {[BASE] = ALWAYS, [QK_NORM] = ALWAYS, [EXPERTS] = ALWAYS}, NTX_FFN_SILU, true, 0},
    {"gpt-oss", NTX_ROPE_NEOX,
     {[BASE] = ALWAYS, [POST_NORM] = ALWAYS, [QKV_BIAS] = ALWAYS, [O_BIAS] = ALWAYS, [SINKS] = ALWAYS, [EXPERTS] = ALWAYS, [EXPERT_BIAS] = ALWAYS},
     NTX_FFN_SILU_CLAMPED, true, 2},
};
#define N_ARCHS (sizeof archs / sizeof *archs)

/* Widths that a shape is made of; NONE is the second one of a vector. */
enum dim { NONE, EMBD, FF, HEADS_K, KV_HEADS_K, KV_HEADS_V, HEADS_V, HEAD_K, HEADS, EXPERT_FF, SHARED_FF, N_EXPERTS };

struct slot {
    const char *name; /* after "blk.N." */
    size_t at;        /* in struct ntx_layer_tensors */
    enum dim in, out;
    enum group group;
};

#define AT(field) offsetof(struct ntx_layer_tensors, field)
static const struct slot slots[] = {
    {"attn_norm.weight", AT(attn_norm), EMBD, NONE, BASE},
    {"attn_q.weight", AT(attn_q), EMBD, HEADS_K, BASE},
    {"attn_k.weight", AT(attn_k), EMBD, KV_HEADS_K, BASE},
    {"attn_v.weight", AT(attn_v), EMBD, KV_HEADS_V, BASE},
    {"attn_q.bias", AT(attn_q_bias), HEADS_K, NONE, QKV_BIAS},
    {"attn_k.bias", AT(attn_k_bias), KV_HEADS_K, NONE, QKV_BIAS},
    {"attn_v.bias", AT(attn_v_bias), KV_HEADS_V, NONE, QKV_BIAS},
    {"attn_q_norm.weight", AT(attn_q_norm), HEAD_K, NONE, QK_NORM},
    {"attn_k_norm.weight", AT(attn_k_norm), HEAD_K, NONE, QK_NORM},
    {"attn_output.weight", AT(attn_output), HEADS_V, EMBD, BASE},
    {"attn_output.bias", AT(attn_output_bias), EMBD, NONE, O_BIAS},
    {"attn_sinks.weight", AT(attn_sinks), HEADS, NONE, SINKS},
    {"ffn_norm.weight", AT(ffn_norm), EMBD, NONE, FFN_NORM},
    {"post_attention_norm.weight", AT(ffn_norm), EMBD, NONE, POST_NORM},
    {"ffn_gate.weight", AT(ffn_gate), EMBD, FF, DENSE},
    {"ffn_up.weight", AT(ffn_up), EMBD, FF, DENSE},
    {"ffn_down.weight", AT(ffn_down), FF, EMBD, DENSE},
    {"ffn_gate_inp.weight", AT(ffn_gate_inp), EMBD, N_EXPERTS, EXPERTS},
    {"ffn_gate_inp.bias", AT(ffn_gate_inp_bias), N_EXPERTS, NONE, EXPERT_BIAS},
    {"ffn_gate_exps.bias", AT(ffn_gate_exps_bias), EXPERT_FF, N_EXPERTS, EXPERT_BIAS},
    {"ffn_up_exps.bias", AT(ffn_up_exps_bias), EXPERT_FF, N_EXPERTS, EXPERT_BIAS},
    {"ffn_down_exps.bias", AT(ffn_down_exps_bias), EMBD, N_EXPERTS, EXPERT_BIAS},
    {"ffn_gate_inp_shexp.weight", AT(ffn_gate_inp_shexp), EMBD, NONE, SHARED},
    {"ffn_gate_shexp.weight", AT(ffn_gate_shexp), EMBD, SHARED_FF, SHARED},
    {"ffn_up_shexp.weight", AT(ffn_up_shexp), EMBD, SHARED_FF, SHARED},
    {"ffn_down_shexp.weight", AT(ffn_down_shexp), SHARED_FF, EMBD, SHARED},
    {"ffn_gate_exps.weight", AT(ffn_gate_exps), EMBD, EXPERT_FF, EACH_EXPERT},
    {"ffn_up_exps.weight", AT(ffn_up_exps), EMBD, EXPERT_FF, EACH_EXPERT},
    {"ffn_down_exps.weight", AT(ffn_down_exps), EXPERT_FF, EMBD, EACH_EXPERT},
};
#define N_SLOTS (sizeof slots / sizeof *slots)

const char *ntx_arch_names(void)
{
    return "llama, llama-relu, qwen2, qwen3, qwen2moe, qwen3moe, gpt-oss";
}

/* A model being opened. */
struct opening {
    const struct ntx_gguf *g;
    const struct arch *arch;
    struct ntx_model *m;
    uint8_t *used; /* per tensor of the file */
    struct ntx_err *err;
    char key[96];  /* the last key asked for */
};

/* "llama.block_count" of "block_count". */
static const char *key_of(struct opening *o, const char *suffix)
{
    snprintf(o->key, sizeof o->key, "%s.%s", o->arch->name, suffix);
    return o->key;
}

static int bad_key(struct opening *o, const char *what)
{
    return ntx_err_set(o->err, -EINVAL, "key '%s' %s", o->key, what);
}

/* One number for all layers, given once or as an array of equal ones. */
static int u64_of_array(struct opening *o, const struct ntx_gguf_kv *kv, uint64_t *v)
{
    const uint8_t *p = kv->data;
    if (kv->elem != NTX_GGUF_U32 && kv->elem != NTX_GGUF_I32)
        return bad_key(o, "is not an array of 32-bit integers");
    if (!kv->count)
        return bad_key(o, "is an empty array");
    for (uint64_t i = 1; i < kv->count; i++)
        if (memcmp(p, p + 4 * i, 4))
            return bad_key(o, "differs between layers, which is not supported");
    int32_t x;
    memcpy(&x, p, sizeof x);
    if (x < 0)
        return bad_key(o, "is negative");
    *v = (uint64_t)x;
    return 0;
}

/* An integer in [min, max]; `fallback` when absent, or an error where that is -1. */
static int get_u32(struct opening *o, const char *suffix, int64_t fallback, uint64_t min, uint64_t max, uint32_t *out)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(o->g, key_of(o, suffix));
    uint64_t v = (uint64_t)fallback;
    if (!kv && fallback < 0)
        return bad_key(o, "is missing");
    if (kv && kv->type == NTX_GGUF_ARR) {
        int rc = u64_of_array(o, kv, &v);
        if (rc)
            return rc;
    } else if (kv && ntx_gguf_u64(o->g, o->key, &v)) {
        return bad_key(o, "is not a positive integer");
    }
    if (v < min || v > max)
        return ntx_err_set(o->err, -EINVAL, "key '%s' is %llu; %llu to %llu are possible", o->key, (unsigned long long)v,
                           (unsigned long long)min, (unsigned long long)max);
    *out = (uint32_t)v;
    return 0;
}

static int get_f32(struct opening *o, const char *suffix, float fallback, float min, float max, float *out)
{
    float v = fallback;
    int rc = ntx_gguf_f32(o->g, key_of(o, suffix), &v);
    if (rc && rc != -ENOENT)
        return bad_key(o, "is not a floating-point number");
    if (!(v >= min && v <= max))
        return ntx_err_set(o->err, -EINVAL, "key '%s' is %g; %g to %g are possible", o->key, (double)v, (double)min, (double)max);
    *out = v;
    return 0;
}

static int find_arch(struct opening *o)
{
    struct ntx_str s;
    int rc = ntx_gguf_str(o->g, "general.architecture", &s);
    if (rc)
        return ntx_err_set(o->err, -EINVAL, "no key 'general.architecture': this GGUF holds no language model");
    for (size_t i = 0; i < N_ARCHS; i++)
        if (s.n == strlen(archs[i].name) && !memcmp(s.p, archs[i].name, s.n)) {
            o->arch = &archs[i];
            return 0;
        }
    char name[48]; /* somebody else's text: letters only into our message */
    size_t n = s.n < sizeof name - 1 ? s.n : sizeof name - 1;
    for (size_t i = 0; i < n; i++)
        name[i] = s.p[i] > 0x20 && s.p[i] < 0x7f ? s.p[i] : '?';
    name[n] = 0;
    return ntx_err_set(o->err, -ENOTSUP, "architecture '%s' is not supported; known are %s", name, ntx_arch_names());
}

/* general.name, cut to fit at a whole character. */
static void copy_name(struct opening *o)
{
    struct ntx_str s;
    char *out = o->m->hp.name;
    size_t n, room = sizeof o->m->hp.name - 1;
    if (ntx_gguf_str(o->g, "general.name", &s))
        return;
    n = s.n < room ? s.n : room;
    while (n < s.n && n && (s.p[n] & 0xc0) == 0x80)
        n--;
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f ? ' ' : s.p[i];
}

/* What ntx would compute wrongly is refused by name. */
static int refuse_unsupported(struct opening *o)
{
    if (!o->arch->window_every && ntx_gguf_find(o->g, key_of(o, "attention.sliding_window_pattern")))
        return ntx_err_set(o->err, -ENOTSUP, "key '%s': a sliding window with a pattern is not supported", o->key);
    return 0;
}

static int get_vocab(struct opening *o)
{
    const struct ntx_gguf_kv *tokens = ntx_gguf_find(o->g, "tokenizer.ggml.tokens");
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor(o->g, "token_embd.weight");
    uint32_t n = 0;
    if (!t)
        return ntx_err_set(o->err, -EINVAL, "tensor 'token_embd.weight' is missing");
    if (t->ne[1] > MAX_VOCAB)
        return ntx_err_set(o->err, -EINVAL, "tensor 'token_embd.weight' has %llu rows; %u are possible", (unsigned long long)t->ne[1], MAX_VOCAB);
    if (tokens && tokens->type == NTX_GGUF_ARR) {
        if (tokens->count != t->ne[1])
            return ntx_err_set(o->err, -EINVAL, "the vocabulary has %llu tokens, but tensor 'token_embd.weight' has %llu rows",
                               (unsigned long long)tokens->count, (unsigned long long)t->ne[1]);
        n = (uint32_t)t->ne[1];
    } else {
        int rc = get_u32(o, "vocab_size", (int64_t)t->ne[1], 1, MAX_VOCAB, &n);
        if (rc)
            return rc;
    }
    o->m->hp.n_vocab = n;
    return 0;
}

static int get_heads(struct opening *o)
{
    struct ntx_hparams *hp = &o->m->hp;
    int rc = get_u32(o, "attention.head_count", -1, 1, MAX_WIDTH, &hp->n_head);
    if (!rc)
        rc = get_u32(o, "attention.head_count_kv", hp->n_head, 1, MAX_WIDTH, &hp->n_head_kv);
    if (rc)
        return rc;
    if (hp->n_head % hp->n_head_kv)
        return ntx_err_set(o->err, -EINVAL, "%u heads are not a multiple of %u key/value heads", hp->n_head, hp->n_head_kv);
    int64_t even = hp->n_embd % hp->n_head ? -1 : (int64_t)(hp->n_embd / hp->n_head);
    if (!(rc = get_u32(o, "attention.key_length", even, 1, MAX_WIDTH / hp->n_head, &hp->head_k)))
        rc = get_u32(o, "attention.value_length", even, 1, MAX_WIDTH / hp->n_head, &hp->head_v);
    if (!rc && NTX_MAX(hp->head_k, hp->head_v) > NTX_MAX_HEAD)
        return ntx_err_set(o->err, -EINVAL, "heads of %u and %u values: up to %d are supported", hp->head_k, hp->head_v, NTX_MAX_HEAD);
    return rc;
}

static int get_sizes(struct opening *o)
{
    struct ntx_hparams *hp = &o->m->hp;
    uint32_t window;
    int rc;
    if ((rc = get_u32(o, "block_count", -1, 1, NTX_MAX_LAYERS, &hp->n_layers)) ||
        (rc = get_u32(o, "embedding_length", -1, 1, MAX_WIDTH, &hp->n_embd)) ||
        (rc = get_u32(o, "feed_forward_length", -1, 1, MAX_WIDTH, &hp->n_ff)) ||
        (rc = get_u32(o, "context_length", -1, 1, INT32_MAX, &hp->ctx_train)) ||
        (rc = get_u32(o, "attention.sliding_window", o->arch->window_every ? -1 : 0, 0, UINT32_MAX, &window)) ||
        (rc = get_f32(o, "attention.layer_norm_rms_epsilon", -1, 0, 1, &hp->rms_eps)))
        return rc;
    if (o->arch->window_every) {
        hp->window = window;
        return get_u32(o, "attention.sliding_window_pattern", o->arch->window_every, 1, NTX_MAX_LAYERS, &hp->window_every);
    }
    if (window && window < hp->ctx_train) /* within the window, full attention is the same thing */
        hp->ctx_train = window;
    return 0;
}

/* The shapes of experts; a model without a count has none. */
static int get_expert_widths(struct opening *o)
{
    struct ntx_hparams *hp = &o->m->hp;
    uint32_t shared = o->arch->has[SHARED] != NEVER ? hp->n_ff : 0;
    uint32_t each = o->arch->has[DENSE] == NEVER ? NTX_MAX(hp->n_ff / hp->n_expert_used, 1u) : hp->n_ff;
    int rc = get_u32(o, "expert_feed_forward_length", each, 1, MAX_WIDTH, &hp->n_ff_exp);
    if (!rc && shared)
        rc = get_u32(o, "expert_shared_feed_forward_length", shared, 1, MAX_WIDTH, &hp->n_ff_shexp);
    return rc;
}

/* Groups of experts and other functions than softmax belong to architectures that are not here. */
enum { SOFTMAX_OF_CHOSEN = 3 };

static int get_router(struct opening *o)
{
    uint32_t groups, function;
    int rc = get_u32(o, "expert_group_count", 1, 0, UINT32_MAX, &groups);
    if (rc || (rc = get_u32(o, "expert_gating_func", 1, 0, UINT32_MAX, &function)))
        return rc;
    if (groups > 1)
        return ntx_err_set(o->err, -ENOTSUP, "experts in %u groups are not supported", groups);
    if (function > 1 && function != SOFTMAX_OF_CHOSEN)
        return ntx_err_set(o->err, -ENOTSUP, "key '%s' is %u: only a softmax (1), or one of those chosen (3), is supported", key_of(o, "expert_gating_func"), function);
    o->m->hp.expert_norm |= function == SOFTMAX_OF_CHOSEN; /* the same as a softmax divided by the sum of those chosen */
    return 0;
}

static int get_experts(struct opening *o)
{
    struct ntx_hparams *hp = &o->m->hp;
    bool never = o->arch->has[EXPERTS] == NEVER, always = o->arch->has[EXPERTS] == ALWAYS;
    int rc = get_u32(o, "expert_count", always ? -1 : 0, always, NTX_MAX_EXPERTS, &hp->n_expert);
    if (rc || !hp->n_expert)
        return rc;
    if (never)
        return ntx_err_set(o->err, -ENOTSUP, "key '%s' is %u: a %s model has no experts", o->key, hp->n_expert, o->arch->name);
    if ((rc = get_u32(o, "expert_used_count", -1, 1, hp->n_expert, &hp->n_expert_used)) || (rc = get_router(o)) ||
        (rc = get_expert_widths(o)) || (rc = get_f32(o, "expert_weights_scale", 1, 0, 1e6f, &hp->expert_scale)))
        return rc;
    if (hp->expert_scale == 0) /* how some writers say "none" */
        hp->expert_scale = 1;
    hp->expert_norm |= o->arch->expert_norm;
    rc = ntx_gguf_bool(o->g, key_of(o, "expert_weights_norm"), &hp->expert_norm);
    return rc && rc != -ENOENT ? bad_key(o, "is neither true nor false") : 0;
}

/* rope.scaling.*: without a type a factor means linear, and the oldest files call it rope.scale_linear. */
static int get_scaling(struct opening *o)
{
    struct ntx_hparams *hp = &o->m->hp;
    struct ntx_str type = {"linear", 6};
    float factor, old;
    int rc = ntx_gguf_str(o->g, key_of(o, "rope.scaling.type"), &type);
    if (rc == -EINVAL)
        return bad_key(o, "is not a string");
    if ((rc = get_f32(o, "rope.scale_linear", 0, 0, 1e6f, &old)) || (rc = get_f32(o, "rope.scaling.factor", old, 0, 1e6f, &factor)))
        return rc;
    factor = factor == 0 ? 1 : factor;
    hp->rope_factor = 1;
    if (type.n == 4 && !memcmp(type.p, "none", 4))
        return 0;
    if (factor < 1)
        return ntx_err_set(o->err, -EINVAL, "key '%s' is %g; a scaling of at least 1 is possible", o->key, (double)factor);
    if (type.n == 6 && !memcmp(type.p, "linear", 6)) {
        hp->rope_scaling = factor == 1 ? NTX_ROPE_SCALE_NONE : NTX_ROPE_SCALE_LINEAR;
    } else if (type.n == 4 && !memcmp(type.p, "yarn", 4)) {
        hp->rope_scaling = NTX_ROPE_SCALE_YARN;
    } else {
        key_of(o, "rope.scaling.type");
        return bad_key(o, "names a scaling that is not supported; none, linear and yarn are");
    }
    hp->rope_factor = factor;
    return 0;
}

static int get_yarn(struct opening *o)
{
    struct ntx_hparams *hp = &o->m->hp;
    bool yarn = hp->rope_scaling == NTX_ROPE_SCALE_YARN;
    float a, b;
    int rc;
    if ((rc = get_f32(o, "rope.scaling.attn_factor", 1, 0, 1e3f, &a)) ||
        (rc = get_f32(o, "rope.scaling.yarn_attn_factor", 1, 0, 1e3f, &b)) ||
        (rc = get_f32(o, "rope.scaling.yarn_ext_factor", yarn ? 1 : 0, -1, 1, &hp->yarn_ext_factor)) ||
        (rc = get_f32(o, "rope.scaling.yarn_beta_fast", 32, 0, 1e6f, &hp->yarn_beta_fast)) ||
        (rc = get_f32(o, "rope.scaling.yarn_beta_slow", 1, 0, 1e6f, &hp->yarn_beta_slow)) ||
        (rc = get_u32(o, "rope.scaling.original_context_length", hp->ctx_train, 1, INT32_MAX, &hp->rope_ctx_orig)))
        return rc;
    hp->rope_attn_factor = a * b;
    if (hp->yarn_ext_factor < 0) /* "as the type says" */
        hp->yarn_ext_factor = yarn ? 1 : 0;
    return 0;
}

static int get_rope(struct opening *o)
{
    struct ntx_hparams *hp = &o->m->hp;
    int rc;
    hp->rope_kind = o->arch->rope;
    if ((rc = get_u32(o, "rope.dimension_count", hp->head_k, 2, hp->head_k, &hp->rope_dim)) ||
        (rc = get_f32(o, "rope.freq_base", 10000, 1, 1e12f, &hp->rope_base)))
        return rc;
    if (hp->rope_dim % 2)
        return ntx_err_set(o->err, -EINVAL, "%u rotated dimensions are not pairs", hp->rope_dim);
    if (!(rc = get_scaling(o)))
        rc = get_yarn(o);
    return rc;
}

static int get_hparams(struct opening *o)
{
    int rc = find_arch(o);
    if (rc)
        return rc;
    snprintf(o->m->hp.arch, sizeof o->m->hp.arch, "%s", o->arch->name);
    o->m->hp.ffn_act = o->arch->act;
    copy_name(o);
    if ((rc = refuse_unsupported(o)) || (rc = get_sizes(o)) || (rc = get_experts(o)) || (rc = get_heads(o)) || (rc = get_vocab(o)))
        return rc;
    return get_rope(o);
}

static int get_pack(struct opening *o)
{
    const struct ntx_hparams *hp = &o->m->hp;
    int rc = ntx_pack_read(o->g, hp->n_layers, hp->n_embd, hp->n_ff, &o->m->pack, o->err);
    if (!rc && o->m->pack && hp->n_expert)
        return ntx_err_set(o->err, -ENOTSUP, "a model with experts cannot be packed: its experts are bundles already");
    return rc;
}

static uint32_t width(const struct ntx_hparams *hp, enum dim d)
{
    switch (d) {
    case EMBD: return hp->n_embd;
    case FF: return hp->n_ff;
    case HEADS_K: return hp->n_head * hp->head_k;
    case KV_HEADS_K: return hp->n_head_kv * hp->head_k;
    case KV_HEADS_V: return hp->n_head_kv * hp->head_v;
    case HEADS_V: return hp->n_head * hp->head_v;
    case HEAD_K: return hp->head_k;
    case HEADS: return hp->n_head;
    case EXPERT_FF: return hp->n_ff_exp;
    case SHARED_FF: return hp->n_ff_shexp;
    case N_EXPERTS: return hp->n_expert;
    default: return 0;
    }
}

/* What a tensor is to look like. n_out 0: a vector; bytes: groups of a packed FFN. */
struct shape {
    uint32_t n_in, n_out, n_each;
    bool bytes, floats; /* floats: F32, since it is used as it is, like a vector */
};

/* Finds a tensor of [n_each x n_out x n_in]. Vectors must be F32: they are used as they are. */
static int get_shaped(struct opening *o, const char *name, struct shape s, bool required, uint32_t *out)
{
    bool vector = !s.n_out;
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor(o->g, name);
    *out = NTX_NO_TENSOR;
    if (!t)
        return required ? ntx_err_set(o->err, -EINVAL, "tensor '%s' is missing; a %s model needs it", name, o->arch->name) : 0;
    s.n_out = vector ? 1 : s.n_out;
    if (t->ne[0] != s.n_in || t->ne[1] != s.n_out || t->ne[2] != s.n_each || t->ne[3] != 1) {
        char each[16] = "";
        if (s.n_each > 1)
            snprintf(each, sizeof each, " x %u", s.n_each);
        return ntx_err_set(o->err, -EINVAL, "tensor '%s' is %llu x %llu x %llu x %llu, expected %u x %u%s", name,
                           (unsigned long long)t->ne[0], (unsigned long long)t->ne[1], (unsigned long long)t->ne[2],
                           (unsigned long long)t->ne[3], s.n_in, s.n_out, each);
    }
    if (vector && (t->n_dims != 1 || t->type != NTX_F32))
        return ntx_err_set(o->err, -EINVAL, "tensor '%s' is %s in %u dimensions; it must be an F32 vector", name,
                           ntx_type_info(t->type)->name, t->n_dims);
    if (s.floats && t->type != NTX_F32)
        return ntx_err_set(o->err, -EINVAL, "tensor '%s' is %s; it must be F32", name, ntx_type_info(t->type)->name);
    if ((t->type == NTX_I8) != s.bytes)
        return ntx_err_set(o->err, -ENOTSUP, "tensor '%s' is %s, which nothing can be multiplied by", name, ntx_type_info(t->type)->name);
    *out = (uint32_t)(t - ntx_gguf_tensor_at(o->g, 0));
    o->used[*out] = 1;
    return 0;
}

static int get_tensor(struct opening *o, const char *name, uint32_t n_in, uint32_t n_out, bool required, uint32_t *out)
{
    return get_shaped(o, name, (struct shape){.n_in = n_in, .n_out = n_out, .n_each = 1}, required, out);
}

/* A model with experts has no other FFN. */
static enum presence presence(const struct opening *o, enum group group)
{
    enum presence has = o->arch->has[group == EACH_EXPERT ? EXPERTS : group];
    if (group == FFN_NORM)
        return o->arch->has[POST_NORM] == ALWAYS ? NEVER : ALWAYS;
    if (group == DENSE && has != NEVER)
        return o->m->hp.n_expert ? NEVER : ALWAYS;
    if ((group == EXPERTS || group == EACH_EXPERT) && has != NEVER)
        return o->m->hp.n_expert ? ALWAYS : NEVER;
    return has;
}

/* Whether a packed layer has this in its groups, not by itself. */
static bool in_groups(const struct opening *o, const struct slot *s, uint32_t layer)
{
    const struct ntx_pack_layer *p = o->m->pack ? &o->m->pack[layer] : NULL;
    return p && (s->at == AT(ffn_up) || s->at == AT(ffn_down) || (s->at == AT(ffn_gate) && ntx_pack_has_gate(p)));
}

static int get_groups(struct opening *o, uint32_t layer)
{
    uint32_t *at = &o->m->layers[layer].ffn_groups;
    char name[80];
    *at = NTX_NO_TENSOR;
    if (!o->m->pack)
        return 0;
    snprintf(name, sizeof name, "blk.%u." NTX_PACK_TENSOR, layer);
    struct shape shape = {.n_in = o->m->pack[layer].group_bytes, .n_out = o->m->pack[layer].n_groups, .n_each = 1, .bytes = true};
    int rc = get_shaped(o, name, shape, true, at);
    if (!rc && ntx_gguf_tensor_at(o->g, *at)->offset % NTX_PACK_BLOCK)
        return ntx_err_set(o->err, -EINVAL, "tensor '%s' does not begin on a block of %u bytes, as a packed one must", name, NTX_PACK_BLOCK);
    return rc;
}

static int get_layer(struct opening *o, uint32_t layer)
{
    const struct ntx_hparams *hp = &o->m->hp;
    char name[80];
    memset(&o->m->layers[layer], 0xff, sizeof o->m->layers[layer]); /* NTX_NO_TENSOR */
    for (size_t i = 0; i < N_SLOTS; i++) {
        const struct slot *s = &slots[i];
        enum presence has = presence(o, s->group);
        uint32_t *at = (uint32_t *)((char *)&o->m->layers[layer] + s->at);
        if (has == NEVER || in_groups(o, s, layer))
            continue;
        snprintf(name, sizeof name, "blk.%u.%s", layer, s->name);
        struct shape shape = {.n_in = width(hp, s->in), .n_out = width(hp, s->out), .n_each = s->group == EACH_EXPERT ? hp->n_expert : 1,
                              .floats = s->group == EXPERT_BIAS};
        int rc = get_shaped(o, name, shape, has == ALWAYS, at);
        if (rc)
            return rc;
    }
    return get_groups(o, layer);
}

static int get_tensors(struct opening *o)
{
    struct ntx_model *m = o->m;
    int rc;
    if ((rc = get_tensor(o, "token_embd.weight", m->hp.n_embd, m->hp.n_vocab, true, &m->token_embd)) ||
        (rc = get_tensor(o, "output_norm.weight", m->hp.n_embd, 0, true, &m->output_norm)) ||
        (rc = get_tensor(o, "output.weight", m->hp.n_embd, m->hp.n_vocab, false, &m->output)) ||
        (rc = get_tensor(o, "rope_freqs.weight", m->hp.rope_dim / 2, 0, false, &m->rope_freqs)))
        return rc;
    if (m->output == NTX_NO_TENSOR)
        m->output = m->token_embd;
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        if ((rc = get_layer(o, l)))
            return rc;
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(o->g); i++)
        if (!o->used[i])
            return ntx_err_set(o->err, -ENOTSUP, "tensor '%s' has no place in a %s model of %u layers", ntx_gguf_tensor_at(o->g, i)->name,
                               o->arch->name, m->hp.n_layers);
    return 0;
}

int ntx_model_open(const struct ntx_gguf *g, struct ntx_model **out, struct ntx_err *err)
{
    struct ntx_model *m = calloc(1, sizeof *m);
    struct opening o = {.g = g, .m = m, .err = err};
    int rc = -ENOMEM;
    o.used = calloc(ntx_gguf_n_tensors(g) + 1, 1);
    if (!m || !o.used) {
        ntx_err_set(err, rc, "no memory to open a model");
        goto done;
    }
    m->gguf = g;
    rc = get_hparams(&o);
    if (!rc)
        rc = get_pack(&o);
    if (rc)
        goto done;
    m->layers = calloc(m->hp.n_layers, sizeof *m->layers);
    if (!m->layers) {
        rc = ntx_err_set(err, -ENOMEM, "no memory for %u layers", m->hp.n_layers);
        goto done;
    }
    rc = get_tensors(&o);
done:
    free(o.used);
    if (rc) {
        ntx_model_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

void ntx_model_free(struct ntx_model *m)
{
    if (!m)
        return;
    free(m->layers);
    free(m->pack);
    free(m);
}
