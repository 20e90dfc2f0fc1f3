/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c: hyper-parameters. Names of keys are those of the GGUF specification. Values that ntx would compute wrongly
 * are refused by name. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/printable.h"
#include "common/util.h"
#include "model/arch/arch_impl.h"

#define MAX_VOCAB (1u << 24)

const char *ntx__key_of(struct ntx__keys *k, const char *suffix)
{
    snprintf(k->key, sizeof k->key, "%s.%s", k->name, suffix);
    return k->key;
}

static int bad_key(struct ntx__keys *k, const char *what)
{
    return ntx_err_set(k->err, -EINVAL, "key '%s' %s", k->key, what);
}

/* The key may have another number for each layer. */
static bool differs(const struct ntx__keys *k)
{
    return k->arch->per_layer ||
           (k->arch->kv_heads_tell && !strcmp(k->key + strlen(k->name), ".attention.head_count_kv"));
}

/* Reads an array of equal numbers as one; if layers may differ, the largest. */
static int u64_of_array(struct ntx__keys *k, const struct ntx_gguf_kv *kv, uint64_t *v)
{
    const uint8_t *p = kv->data;
    if (kv->elem != NTX_GGUF_U32 && kv->elem != NTX_GGUF_I32)
        return bad_key(k, "is not an array of 32-bit integers");
    if (!kv->count)
        return bad_key(k, "is an empty array");
    int32_t x, most = -1;
    for (uint64_t i = 0; i < kv->count; i++) {
        if (!differs(k) && memcmp(p, p + 4 * i, 4))
            return bad_key(k, "differs between layers, which is not supported");
        memcpy(&x, p + 4 * i, sizeof x);
        if (x < 0)
            return bad_key(k, "is negative");
        most = NTX_MAX(most, x);
    }
    *v = (uint64_t)most;
    return 0;
}

int ntx__key_u32(struct ntx__keys *k, const char *suffix, int64_t fallback, uint64_t min, uint64_t max, uint32_t *out)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, suffix));
    uint64_t v = (uint64_t)fallback;
    if (!kv && fallback < 0)
        return bad_key(k, "is missing");
    if (kv && kv->type == NTX_GGUF_ARR) {
        int rc = u64_of_array(k, kv, &v);
        if (rc)
            return rc;
    } else if (kv && ntx_gguf_u64(k->g, k->key, &v)) {
        return bad_key(k, "is not a positive integer");
    }
    if (v < min || v > max)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is %llu; %llu to %llu are possible", k->key,
                           (unsigned long long)v, (unsigned long long)min, (unsigned long long)max);
    *out = (uint32_t)v;
    return 0;
}

int ntx__key_f32(struct ntx__keys *k, const char *suffix, float fallback, float min, float max, float *out)
{
    float v = fallback;
    int rc = ntx_gguf_f32(k->g, ntx__key_of(k, suffix), &v);
    if (rc && rc != -ENOENT)
        return bad_key(k, "is not a floating-point number");
    if (rc && isnan(fallback))
        return bad_key(k, "is missing");
    if (!(v >= min && v <= max))
        return ntx_err_set(k->err, -EINVAL, "key '%s' is %g; %g to %g are possible", k->key, (double)v, (double)min,
                           (double)max);
    *out = v;
    return 0;
}

/* Copies general.name, cut at a whole character. */
static void copy_name(struct ntx__keys *k)
{
    struct ntx_str s;
    if (!ntx_gguf_str(k->g, "general.name", &s))
        ntx_printable(k->hp->name, sizeof k->hp->name, s.p, s.n);
}

/* Keys that change the computation and that no architecture here supports: they are refused, unless the value is
 * neutral. Keys whose feature has tensors of its own need no entry: unknown tensors are refused anyway. */
static const struct {
    const char *suffix;
    double neutral[2]; /* neutral numbers and truth values; NAN: no other */
} not_computed[] = {
    {"attention.causal", {1, NAN}},
    {"attention.clamp_kqv", {0, NAN}},
    {"attention.compress_ratios", {0, NAN}},
    {"attention.indexer.head_count", {0, NAN}},
    {"attention.indexer.top_k", {0, NAN}},
    {"attention.key_length_mla", {0, NAN}},
    {"attention.kv_lora_rank", {0, NAN}},
    {"attention.max_alibi_bias", {0, NAN}},
    {"attention.output_scale", {0, 1}},
    {"attention.q_lora_rank", {0, NAN}},
    {"attention.relative_buckets_count", {0, NAN}},
    {"attention.shared_kv_layers", {0, NAN}},
    {"attention.temperature_length", {0, NAN}},
    {"attention.temperature_scale", {0, NAN}},
    {"attention.value_length_mla", {0, NAN}},
    {"attention.value_scale", {0, 1}},
    {"attn_logit_softcapping", {0, NAN}},
    {"embedding_scale", {0, 1}},
    {"expert_group_scale", {0, 1}},
    {"final_logit_softcapping", {0, NAN}},
    {"full_attention_interval", {0, 1}},
    {"hash_layer_count", {0, NAN}},
    {"hyper_connection.count", {0, 1}},
    {"interleave_moe_layer_step", {0, 1}},
    {"leading_dense_block_count", {0, NAN}},
    {"logit_scale", {0, 1}},
    {"moe_every_n_layers", {0, 1}},
    {"nextn_predict_layers", {0, NAN}},
    {"rescale_every_n_layers", {0, NAN}},
    {"residual_scale", {0, 1}},
    {"rope.scaling.alpha", {0, 1}},
    {"rope.scaling.yarn_log_multiplier", {0, NAN}},
    {"router_logit_softcapping", {0, NAN}},
    {"swiglu_clamp_exp", {0, NAN}},
    {"swiglu_clamp_shexp", {0, NAN}},
    {"swin_norm", {0, NAN}},
    {"use_parallel_residual", {0, NAN}},
};

/* The key's value if it is one number or truth value, else NAN. */
static double number_of(struct ntx__keys *k)
{
    uint64_t u;
    float f;
    bool b;
    if (!ntx_gguf_u64(k->g, k->key, &u))
        return (double)u;
    if (!ntx_gguf_f32(k->g, k->key, &f))
        return (double)f;
    return ntx_gguf_bool(k->g, k->key, &b) ? NAN : b;
}

static int not_supported(struct ntx__keys *k)
{
    return ntx_err_set(
        k->err, -ENOTSUP,
        "key '%s' changes what a model computes, and ntx does not compute it: this %s model is not supported", k->key,
        k->name);
}

/* The architecture's file reads this key. */
static bool is_own(const struct ntx__keys *k, const char *suffix)
{
    for (int i = 0; i < NTX__OWN_KEYS && k->arch->own[i]; i++)
        if (!strcmp(k->arch->own[i], suffix))
            return true;
    return false;
}

/* M-RoPE sections: in a text all positions but the fourth are equal. */
static int refuse_sections(struct ntx__keys *k)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "rope.dimension_sections"));
    uint32_t fourth = 0;
    if (is_own(k, "rope.dimension_sections") || !kv)
        return 0;
    if (kv->type == NTX_GGUF_ARR && (kv->elem == NTX_GGUF_I32 || kv->elem == NTX_GGUF_U32) && kv->count <= 4) {
        if (kv->count == 4)
            memcpy(&fourth, (const uint8_t *)kv->data + 12, 4);
        return fourth ? not_supported(k) : 0;
    }
    return number_of(k) == 0 ? 0 : not_supported(k);
}

/* The fourth section, of files that have one, is empty (refuse_sections, ntx__check_sections). */
static void get_sections(struct ntx__keys *k)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "rope.dimension_sections"));
    if (kv && kv->type == NTX_GGUF_ARR && (kv->elem == NTX_GGUF_I32 || kv->elem == NTX_GGUF_U32) && kv->count >= 3)
        memcpy(k->hp->rope_sections, kv->data, sizeof k->hp->rope_sections);
    k->hp->rope_interleaved = k->arch->interleaved;
}

static int refuse_unsupported(struct ntx__keys *k)
{
    if (!is_own(k, "attention.sliding_window_pattern") &&
        ntx_gguf_find(k->g, ntx__key_of(k, "attention.sliding_window_pattern")))
        return ntx_err_set(k->err, -ENOTSUP, "key '%s': a sliding window with a pattern is not supported", k->key);
    for (size_t i = 0; i < sizeof not_computed / sizeof *not_computed; i++) {
        if (is_own(k, not_computed[i].suffix) || !ntx_gguf_find(k->g, ntx__key_of(k, not_computed[i].suffix)))
            continue;
        double v = number_of(k);
        if (v != not_computed[i].neutral[0] && v != not_computed[i].neutral[1])
            return not_supported(k);
    }
    return refuse_sections(k);
}

/* Widths of heads and RoPE of layers with a window must equal those of the others. */
static int refuse_window_widths(struct ntx__keys *k)
{
    const struct ntx_hparams *hp = k->hp;
    const struct {
        const char *suffix;
        uint32_t same;
    } widths[] = {{"attention.key_length_swa", hp->head_k},
                  {"attention.value_length_swa", hp->head_v},
                  {"rope.dimension_count_swa", hp->rope_dim}};
    for (size_t i = 0; hp->window && i < sizeof widths / sizeof *widths; i++)
        if (!is_own(k, widths[i].suffix) && ntx_gguf_find(k->g, ntx__key_of(k, widths[i].suffix)) &&
            number_of(k) != widths[i].same)
            return not_supported(k);
    return 0;
}

/* Two keys whose neutral value is another key's value. */
static int refuse_scales(struct ntx__keys *k)
{
    const struct ntx_hparams *hp = k->hp;
    float scale = 0, base = hp->rope_base;
    int rc = ntx_gguf_f32(k->g, ntx__key_of(k, "attention.scale"), &scale);
    if ((rc && rc != -ENOENT) ||
        (!is_own(k, "attention.scale") && scale != 0 && !(fabs((double)scale * sqrt(hp->head_k) - 1) < 1e-5)))
        return not_supported(k);
    rc = ntx_gguf_f32(k->g, ntx__key_of(k, "rope.freq_base_swa"), &base);
    return (rc && rc != -ENOENT) || (!is_own(k, "rope.freq_base_swa") && hp->window && base != hp->rope_base)
               ? not_supported(k)
               : 0;
}

static int get_vocab(struct ntx__keys *k)
{
    const struct ntx_gguf_kv *tokens = ntx_gguf_find(k->g, "tokenizer.ggml.tokens");
    const struct ntx_gguf_tensor *t = ntx_end_tensor(k->g, NTX_END_token_embd);
    uint32_t n = 0;
    if (!t)
        return ntx_err_set(k->err, -EINVAL, "tensor 'token_embd.weight' is missing");
    if (t->ne[1] > MAX_VOCAB)
        return ntx_err_set(k->err, -EINVAL, "tensor 'token_embd.weight' has %llu rows; %u are possible",
                           (unsigned long long)t->ne[1], MAX_VOCAB);
    if (tokens && tokens->type == NTX_GGUF_ARR) {
        if (tokens->count != t->ne[1])
            return ntx_err_set(k->err, -EINVAL,
                               "the vocabulary has %llu tokens, but tensor 'token_embd.weight' has %llu rows",
                               (unsigned long long)tokens->count, (unsigned long long)t->ne[1]);
        n = (uint32_t)t->ne[1];
    } else {
        int rc = ntx__key_u32(k, "vocab_size", (int64_t)t->ne[1], 1, MAX_VOCAB, &n);
        if (rc)
            return rc;
    }
    k->hp->n_vocab = n;
    return 0;
}

static int get_heads(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc = ntx__key_u32(k, "attention.head_count", -1, 1, NTX__MAX_WIDTH, &hp->n_head);
    if (!rc)
        rc = ntx__key_u32(k, "attention.head_count_kv", hp->n_head, 1, NTX__MAX_WIDTH, &hp->n_head_kv);
    if (rc)
        return rc;
    if (!k->arch->per_layer && hp->n_head % hp->n_head_kv)
        return ntx_err_set(k->err, -EINVAL, "%u heads are not a multiple of %u key/value heads", hp->n_head,
                           hp->n_head_kv);
    int64_t even = hp->n_embd % hp->n_head ? -1 : (int64_t)(hp->n_embd / hp->n_head);
    if (!(rc = ntx__key_u32(k, "attention.key_length", even, 1, NTX__MAX_WIDTH / hp->n_head, &hp->head_k)))
        rc = ntx__key_u32(k, "attention.value_length", even, 1, NTX__MAX_WIDTH / hp->n_head, &hp->head_v);
    if (!rc && NTX_MAX(hp->head_k, hp->head_v) > NTX_MAX_HEAD)
        return ntx_err_set(k->err, -EINVAL, "heads of %u and %u values: up to %d are supported", hp->head_k, hp->head_v,
                           NTX_MAX_HEAD);
    return rc;
}

/* Some writers leave it out if only experts have a width. */
static int get_ffn_width(struct ntx__keys *k)
{
    bool left_out = k->arch->experts == NTX__ALWAYS && !ntx_gguf_find(k->g, ntx__key_of(k, "feed_forward_length"));
    return ntx__key_u32(k, left_out ? "expert_feed_forward_length" : "feed_forward_length", -1, 1, NTX__MAX_WIDTH,
                        &k->hp->n_ff);
}

static int get_sizes(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t window;
    int rc;
    if ((rc = ntx__key_u32(k, "block_count", -1, 1, NTX_MAX_LAYERS, &hp->n_layers)) ||
        (rc = ntx__key_u32(k, "embedding_length", -1, 1, NTX__MAX_WIDTH, &hp->n_embd)) || (rc = get_ffn_width(k)) ||
        (rc = ntx__key_u32(k, "context_length", -1, 1, INT32_MAX, &hp->ctx_train)) ||
        (rc = ntx__key_u32(k, "attention.sliding_window", 0, 0, UINT32_MAX, &window)) ||
        (rc = ntx__key_f32(k, "attention.layer_norm_rms_epsilon", k->arch->layer_norm ? 0 : NAN, 0, 1, &hp->rms_eps)))
        return rc;
    if (!is_own(k, "attention.sliding_window") && window &&
        window < hp->ctx_train) /* within the window, full attention gives the same result */
        hp->ctx_train = window;
    return 0;
}

/* Numbers and widths of experts; without a count there are none. */
static int get_expert_widths(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t each = k->arch->experts == NTX__ALWAYS ? NTX_MAX(hp->n_ff / hp->n_expert_used, 1u) : hp->n_ff;
    return ntx__key_u32(k, "expert_feed_forward_length", each, 1, NTX__MAX_WIDTH, &hp->n_ff_exp);
}

/* values of expert_gating_func */
enum { SOFTMAX = 1, SIGMOID, SOFTMAX_OF_ROUTED, SQRT_SOFTPLUS };

static bool can_score(const struct ntx__arch *a, uint32_t function)
{
    bool softmax = function == SOFTMAX || function == SOFTMAX_OF_ROUTED;
    if (a->score == NTX_SCORE_SQRT_SOFTPLUS)
        return function == SQRT_SOFTPLUS;
    if (a->any_score) /* with a bias for the choice, a softmax of the chosen differs */
        return function == SOFTMAX || function == SIGMOID;
    return a->score == NTX_SCORE_SIGMOID ? function == SIGMOID : softmax;
}

/* Groups of experts; if a row's experts come from all groups, there are none. */
static int get_groups(struct ntx__keys *k)
{
    const struct ntx_hparams *hp = k->hp;
    uint32_t n, used;
    int rc = ntx__key_u32(k, "expert_group_count", 0, 0, hp->n_expert, &n);
    if (rc || n < 2)
        return rc;
    if (hp->n_expert % n || hp->n_expert / n < 2)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is %u: %u experts are not so many groups of two or more", k->key,
                           n, hp->n_expert);
    if ((rc = ntx__key_u32(k, "expert_group_used_count", -1, 1, n, &used)))
        return rc;
    if (hp->n_expert_used > used * (hp->n_expert / n))
        return ntx_err_set(k->err, -EINVAL,
                           "key '%s' is %u: a row uses %u experts, more than there are in so many of %u groups", k->key,
                           used, hp->n_expert_used, n);
    k->hp->router.n_expert_groups = used < n ? n : 0;
    k->hp->router.expert_groups_used = used < n ? used : 0;
    return 0;
}

static int get_router(struct ntx__keys *k)
{
    static const uint8_t function_of[] = {
        [NTX_SCORE_SOFTMAX] = SOFTMAX, [NTX_SCORE_SIGMOID] = SIGMOID, [NTX_SCORE_SQRT_SOFTPLUS] = SQRT_SOFTPLUS};
    static const char *const only[] = {
        [NTX_SCORE_SOFTMAX] = "only a softmax (1), or one of those chosen (3), is",
        [NTX_SCORE_SIGMOID] = "with this architecture only a sigmoid (2) is",
        [NTX_SCORE_SQRT_SOFTPLUS] = "with this architecture only the root of a softplus (4) is"};
    uint32_t function;
    int rc = get_groups(k);
    if (rc || (rc = ntx__key_u32(k, "expert_gating_func", 0, 0, UINT32_MAX, &function)))
        return rc;
    if (!function)
        function = function_of[k->arch->score];
    if (!can_score(k->arch, function))
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u: %s supported", ntx__key_of(k, "expert_gating_func"),
                           function,
                           k->arch->any_score ? "only a softmax (1) or a sigmoid (2) is" : only[k->arch->score]);
    k->hp->router.score = NTX_SCORE_SOFTMAX;
    if (function == SIGMOID)
        k->hp->router.score = NTX_SCORE_SIGMOID;
    else if (function == SQRT_SOFTPLUS)
        k->hp->router.score = NTX_SCORE_SQRT_SOFTPLUS;
    k->hp->router.norm |= function == SOFTMAX_OF_ROUTED; /* equals a softmax divided by the sum of the chosen */
    return 0;
}

static int get_experts(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    bool never = k->arch->experts == NTX__NEVER, always = k->arch->experts == NTX__ALWAYS;
    int rc = ntx__key_u32(k, "expert_count", always ? -1 : 0, always, NTX_MAX_EXPERTS, &hp->n_expert);
    if (rc || !hp->n_expert)
        return rc;
    if (never)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u: a %s model has no experts", k->key, hp->n_expert,
                           k->name);
    if ((rc = ntx__key_u32(k, "expert_used_count", -1, 1, hp->n_expert, &hp->n_expert_used)) || (rc = get_router(k)) ||
        (rc = get_expert_widths(k)) || (rc = ntx__key_f32(k, "expert_weights_scale", 1, 0, 1e6f, &hp->router.scale)))
        return rc;
    if (hp->router.scale == 0) /* some writers mean "none" by 0 */
        hp->router.scale = 1;
    hp->router.norm |= k->arch->expert_norm;
    rc = ntx_gguf_bool(k->g, ntx__key_of(k, "expert_weights_norm"), &hp->router.norm);
    return rc && rc != -ENOENT ? bad_key(k, "is neither true nor false") : 0;
}

/* rope.scaling.*: a factor without a type means linear; the oldest files call it rope.scale_linear. */
static int get_scaling(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    struct ntx_str type = {"linear", 6};
    float factor, old;
    int rc = ntx_gguf_str(k->g, ntx__key_of(k, "rope.scaling.type"), &type);
    if (rc == -EINVAL)
        return bad_key(k, "is not a string");
    if ((rc = ntx__key_f32(k, "rope.scale_linear", 0, 0, 1e6f, &old)) ||
        (rc = ntx__key_f32(k, "rope.scaling.factor", old, 0, 1e6f, &factor)))
        return rc;
    factor = factor == 0 ? 1 : factor;
    hp->rope_factor = 1;
    if (type.n == 4 && !memcmp(type.p, "none", 4))
        return 0;
    if (factor < 1)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is %g; a scaling of at least 1 is possible", k->key,
                           (double)factor);
    if (type.n == 6 && !memcmp(type.p, "linear", 6)) {
        hp->rope_scaling = factor == 1 ? NTX_ROPE_SCALE_NONE : NTX_ROPE_SCALE_LINEAR;
    } else if (type.n == 4 && !memcmp(type.p, "yarn", 4)) {
        hp->rope_scaling = NTX_ROPE_SCALE_YARN;
    } else {
        ntx__key_of(k, "rope.scaling.type");
        return bad_key(k, "names a scaling that is not supported; none, linear and yarn are");
    }
    hp->rope_factor = factor;
    return 0;
}

double ntx__yarn_magnitude(const struct ntx_hparams *hp, double by)
{
    return 1 + 0.1 * by * log((double)hp->rope_factor);
}

/* attn_factor multiplies the magnitude that follows from YaRN's factor (files of Phi 3, without YaRN, use it so).
 * yarn_attn_factor is the whole magnitude: converters store transformers' attention_factor there, which replaces the
 * formula. Without YaRN it is ignored, as in transformers. */
static int get_yarn(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    bool yarn = hp->rope_scaling == NTX_ROPE_SCALE_YARN;
    float a, whole;
    int rc;
    if ((rc = ntx__key_f32(k, "rope.scaling.attn_factor", 1, 0, 1e3f, &a)) ||
        (rc = ntx__key_f32(k, "rope.scaling.yarn_attn_factor", 0, 0, 1e3f, &whole)) ||
        (rc = ntx__key_f32(k, "rope.scaling.yarn_ext_factor", yarn ? 1 : 0, -1, 1, &hp->yarn_ext_factor)) ||
        (rc = ntx__key_f32(k, "rope.scaling.yarn_beta_fast", 32, 0, 1e6f, &hp->yarn_beta_fast)) ||
        (rc = ntx__key_f32(k, "rope.scaling.yarn_beta_slow", 1, 0, 1e6f, &hp->yarn_beta_slow)) ||
        (rc = ntx__key_u32(k, "rope.scaling.original_context_length", hp->ctx_train, 1, INT32_MAX, &hp->rope_ctx_orig)))
        return rc;
    if (hp->yarn_ext_factor < 0) /* negative means the default of the type */
        hp->yarn_ext_factor = yarn ? 1 : 0;
    hp->rope_attn_factor = a;
    hp->yarn_magnitude_told = yarn && whole != 0;
    if (hp->yarn_magnitude_told)
        hp->rope_attn_factor = (float)((double)a * (double)whole /
                                       (hp->yarn_ext_factor != 0 ? ntx__yarn_magnitude(hp, 1) : 1));
    return 0;
}

static int get_rope(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc;
    if ((rc = ntx__key_u32(k, "rope.dimension_count", hp->head_k, k->arch->unturned ? 0 : 2, hp->head_k,
                           &hp->rope_dim)) ||
        (rc = ntx__key_f32(k, "rope.freq_base", 10000, 1, 1e12f, &hp->rope_base)))
        return rc;
    if (hp->rope_dim % 2)
        return ntx_err_set(k->err, -EINVAL, "%u rotated dimensions are not pairs", hp->rope_dim);
    if (!(rc = get_scaling(k)))
        rc = get_yarn(k);
    return rc;
}

/* Reads a truth value or number of each layer. */
static int windows_of_array(struct ntx__keys *k, const struct ntx_gguf_kv *kv)
{
    size_t size = ntx_gguf_scalar_bytes(kv->elem);
    if (kv->elem != NTX_GGUF_BOOL && kv->elem != NTX_GGUF_U32 && kv->elem != NTX_GGUF_I32)
        return bad_key(k, "is an array of neither truth values nor 32-bit integers");
    if (kv->count < k->hp->n_layers)
        return bad_key(k, "has fewer elements than there are layers");
    for (uint32_t l = 0; l < k->hp->n_layers; l++) {
        uint32_t v = 0;
        memcpy(&v, (const uint8_t *)kv->data + l * size, size);
        k->hp->windowed[l / 64] |= (uint64_t)(v != 0) << l % 64;
    }
    return 0;
}

int ntx__key_windows(struct ntx__keys *k, int64_t fallback, uint32_t every)
{
    int rc = ntx__key_u32(k, "attention.sliding_window", fallback, 0, UINT32_MAX, &k->hp->window);
    if (rc || !k->hp->window)
        return rc;
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "attention.sliding_window_pattern"));
    if (kv && kv->type == NTX_GGUF_ARR)
        return windows_of_array(k, kv);
    rc = ntx__key_u32(k, "attention.sliding_window_pattern", every, 1, NTX_MAX_LAYERS, &every);
    for (uint32_t l = 0; l < k->hp->n_layers; l++)
        k->hp->windowed[l / 64] |= (uint64_t)(l % every < every - 1) << l % 64;
    return rc;
}

int ntx__key_windows_behind(struct ntx__keys *k, int64_t fallback, uint32_t every)
{
    struct ntx_hparams *hp = k->hp;
    int rc = ntx__key_windows(k, fallback, every);
    if (rc || !hp->window || ntx_gguf_find(k->g, ntx__key_of(k, "attention.sliding_window_pattern")))
        return rc;
    memset(hp->windowed, 0, sizeof hp->windowed);
    for (uint32_t l = 0; l < hp->n_layers; l++)
        hp->windowed[l / 64] |= (uint64_t)(l % every != 0) << l % 64;
    return 0;
}

/* Reads number l of an array; another kind of key leaves *v. */
static void of_layer(struct ntx__keys *k, const char *suffix, uint32_t l, uint32_t *v)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, suffix));
    if (kv && kv->type == NTX_GGUF_ARR) /* an array of integers, since *v was read from it */
        *v = 0;
    if (kv && kv->type == NTX_GGUF_ARR && l < kv->count)
        memcpy(v, (const uint8_t *)kv->data + 4 * (size_t)l, 4);
}

/* Reads heads and widths of layer l. */
static int get_dims(struct ntx__keys *k, uint32_t l, struct ntx_dims *d)
{
    *d = ntx_dims_of(k->hp, l);
    of_layer(k, "attention.head_count", l, &d->n_head);
    of_layer(k, "attention.head_count_kv", l, &d->n_head_kv);
    of_layer(k, "feed_forward_length", l, &d->n_ff);
    if (!d->n_head || !d->n_head_kv || d->n_head % d->n_head_kv || !d->n_ff)
        return ntx_err_set(k->err, -EINVAL,
                           "layer %u has %u heads, %u of keys and values, and an FFN of %u: that is not possible", l,
                           d->n_head, d->n_head_kv, d->n_ff);
    return 0;
}

int ntx__make_dims(struct ntx__keys *k)
{
    struct ntx_dims *d = calloc(k->hp->n_layers, sizeof *d);
    if (!d)
        return ntx_err_set(k->err, -ENOMEM, "no memory for %u layers", k->hp->n_layers);
    int rc = 0;
    for (uint32_t l = 0; l < k->hp->n_layers && !rc; l++)
        rc = get_dims(k, l, &d[l]);
    k->hp->dims = k->m->dims = d;
    return rc;
}

void *ntx__own(struct ntx__keys *k, size_t size)
{
    void *own = calloc(1, size);
    if (!own)
        ntx_err_set(k->err, -ENOMEM, "no memory for the numbers of a %s model", k->name);
    k->hp->own = k->m->own = own;
    return own;
}

int ntx__key_recurrent_kv(struct ntx__keys *k, uint32_t heads)
{
    struct ntx_hparams *hp = k->hp;
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "attention.head_count_kv"));
    if (!kv || kv->type != NTX_GGUF_ARR || kv->count < hp->n_layers)
        return bad_key(k, "is not a list of a number for each layer");
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        uint32_t n = 0;
        of_layer(k, "attention.head_count_kv", l, &n);
        if (n && n != heads)
            return ntx_err_set(
                k->err, -EINVAL,
                "key '%s' is %u for layer %u: %u where it keeps %s, and 0 where it keeps a state, are possible", k->key,
                n, l, heads, heads == 1 ? "latents" : "K and V");
        hp->recurrent[l / 64] |= (uint64_t)!n << l % 64;
    }
    return ntx_count_recurrent(hp) < hp->n_layers
               ? 0
               : ntx_err_set(k->err, -ENOTSUP, "key '%s': a %s model without a layer of attention is not supported",
                             k->key, k->name);
}

bool ntx__has(const struct ntx__keys *k, uint32_t layer, const char *name)
{
    char full[80];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    return ntx_gguf_tensor(k->g, full);
}

int ntx__key_window_rope(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc = ntx__key_u32(k, "rope.dimension_count_swa", hp->rope_dim, 2, hp->head_k, &hp->rope_dim_window);
    if (rc || (rc = ntx__key_f32(k, "rope.freq_base_swa", hp->rope_base, 1, 1e12f, &hp->rope_base_window)))
        return rc;
    if (hp->rope_dim_window % 2)
        return ntx_err_set(k->err, -EINVAL, "%u rotated dimensions within a window are not pairs", hp->rope_dim_window);
    hp->rope_factor_window = 1;
    hp->plain_window = true;
    return 0;
}

int ntx__key_dense(struct ntx__keys *k)
{
    return ntx__key_u32(k, "leading_dense_block_count", 0, 0, k->hp->n_layers, &k->hp->n_dense);
}

int ntx__key_shared_count(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t shared;
    int rc = ntx__key_u32(k, "expert_shared_count", -1, 0, NTX__MAX_WIDTH / hp->n_ff_exp, &shared);
    if (!rc)
        hp->n_ff_shexp = shared * hp->n_ff_exp;
    return rc;
}

void ntx__find_fused_experts(struct ntx__keys *k)
{
    k->hp->experts_fused = k->hp->n_expert && ntx__has(k, k->hp->n_dense, ntx_tensor_kinds[NTX_T_expert_gate_up].name);
}

int ntx__key_nextn(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc = ntx__key_u32(k, "nextn_predict_layers", 0, 0, hp->n_layers - 1, &hp->n_nextn);
    if (!rc)
        hp->n_layers -= hp->n_nextn;
    return rc;
}

int ntx__read_keys(struct ntx__keys *k)
{
    int rc;
    k->hp->embd_scale = k->hp->logit_scale = 1;
    snprintf(k->hp->arch, sizeof k->hp->arch, "%s", k->name);
    copy_name(k);
    if ((rc = refuse_unsupported(k)) || (rc = get_sizes(k)) || (rc = get_experts(k)) || (rc = get_heads(k)) ||
        (rc = get_vocab(k)))
        return rc;
    if ((rc = get_rope(k)) || (k->arch->keys && (rc = k->arch->keys(k))))
        return rc;
    get_sections(k);
    rc = refuse_window_widths(k);
    return rc ? rc : refuse_scales(k);
}

/* Reads a number, or an array of equal numbers. */
int ntx__key_limit(struct ntx__keys *k, const char *suffix, float fallback, float *out)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, suffix));
    if (!kv || kv->type != NTX_GGUF_ARR)
        return ntx__key_f32(k, suffix, fallback, 0, 1e6f, out);
    if (kv->elem != NTX_GGUF_F32 || !kv->count)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is not a list of floating-point numbers", k->key);
    memcpy(out, kv->data, sizeof *out);
    for (uint64_t i = 1; i < kv->count; i++)
        if (memcmp(kv->data, (const uint8_t *)kv->data + 4 * i, 4))
            return ntx_err_set(k->err, -ENOTSUP, "key '%s' differs between layers, which is not supported", k->key);
    return *out >= 0 && *out <= 1e6f
               ? 0
               : ntx_err_set(k->err, -EINVAL, "key '%s' is %g; 0 to 1e+06 are possible", k->key, (double)*out);
}
