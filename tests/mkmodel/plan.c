/* plan.c: keys and tensors of the architectures, types as llama.cpp's quantiser picks them for its mixes. */
#include "tests/mkmodel/plan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch.h"
#include "model/quant.h"

struct recipe {
    const char *name;
    uint32_t file_type; /* general.file_type */
    uint32_t base;      /* most tensors */
    uint32_t more;      /* output; of a mix also half of attn_v and ffn_down */
    bool mix;
};

static const struct recipe recipes[] = {
    {"F32", 0, NTX_F32, NTX_F32, false},     {"F16", 1, NTX_F16, NTX_F16, false},
    {"BF16", 32, NTX_BF16, NTX_BF16, false}, {"Q4_0", 2, NTX_Q4_0, NTX_Q6_K, false},
    {"Q4_1", 3, NTX_Q4_1, NTX_Q6_K, false},  {"Q5_0", 8, NTX_Q5_0, NTX_Q6_K, false},
    {"Q5_1", 9, NTX_Q5_1, NTX_Q6_K, false},  {"Q8_0", 7, NTX_Q8_0, NTX_Q8_0, false},
    {"Q2_K", 10, NTX_Q2_K, NTX_Q6_K, false}, {"Q3_K", 11, NTX_Q3_K, NTX_Q6_K, false},
    {"Q4_K", 14, NTX_Q4_K, NTX_Q6_K, false}, {"Q5_K", 16, NTX_Q5_K, NTX_Q6_K, false},
    {"Q6_K", 18, NTX_Q6_K, NTX_Q6_K, false}, {"Q4_K_M", 15, NTX_Q4_K, NTX_Q6_K, true},
    {"Q5_K_M", 17, NTX_Q5_K, NTX_Q6_K, true}, {"MXFP4", 38, NTX_MXFP4, NTX_Q8_0, false},
};

static const struct recipe *find_recipe(const char *name)
{
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (!strcmp(recipes[i].name, name))
            return &recipes[i];
    return NULL;
}

const char *mk_type_names(void)
{
    return "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K Q4_K_M Q5_K_M MXFP4";
}

bool mk_type_known(const char *type)
{
    return find_recipe(type) != NULL;
}

struct plan {
    struct mk_file *f;
    const struct mk_options *o;
    const struct recipe *recipe;
    uint32_t head, n_vocab;
};

/* Rows that are no whole blocks get a simpler type, as other writers do it. */
static uint32_t fitting(uint32_t type, uint64_t n_in)
{
    if (n_in % ntx_type_info(type)->block == 0)
        return type;
    if (n_in % NTX_QK)
        return NTX_F16;
    switch (type) {
    case NTX_Q2_K: case NTX_Q3_K: return NTX_Q4_0;
    case NTX_Q4_K: return NTX_Q5_0;
    case NTX_Q5_K: return NTX_Q5_1;
    default: return NTX_Q8_0;
    }
}

/* The layers that a mix gives more bits: the first and last eighth and every third between. */
static bool more_bits(uint32_t layer, uint32_t n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static void add_matrix(struct plan *p, const char *name, uint64_t n_in, uint64_t n_out, float std, bool more)
{
    uint32_t type = fitting(more ? p->recipe->more : p->recipe->base, n_in);
    mk_tensor_add(p->f, name, type, n_in, n_out, std);
}

static void add_vector(struct plan *p, const char *name, uint64_t n, float mean, float std)
{
    struct mk_tensor *t = mk_tensor_add(p->f, name, NTX_F32, n, 0, std);
    if (t)
        t->mean = mean;
}

static bool is_gpt_oss(const struct mk_options *o) { return !strcmp(o->arch, "gpt-oss"); }
static bool has_shared(const struct mk_options *o) { return !strcmp(o->arch, "qwen2moe"); }
static uint32_t expert_ff(const struct mk_options *o) { return o->expert_ff ? o->expert_ff : o->ff; }
static uint32_t shared_ff(const struct mk_options *o) { return o->shared_ff ? o->shared_ff : o->ff; }

/* ---- a layer's tensors: names and shapes are the model's (model/tensors.h); here is how large their values are */

enum when { ALWAYS, DENSE, EXPERTS, SHARED, QKV_BIASES, QK_NORMS, GPT_OSS };
enum spread { PLAIN, OF_IN /* divided by the root of the row's length */, OF_EMBD /* or of the layer's width */ };

/* In the order in which converters write a layer: not the order of execution. Each expert's output is as large as a dense FFN's; the router is decided
 * enough that rounding seldom turns it; biases of gates are so large that some reach the limit of the activation. */
static const struct {
    enum ntx_tensor tensor;
    enum when when;
    float mean, std;
    enum spread spread;
    bool more, not_experts; /* of the recipe's better type: in some layers of a mix; where only experts are of the other */
} values[] = {
    {NTX_T_attn_norm, ALWAYS, 1, 0.1f, PLAIN, false, false},
    {NTX_T_router, EXPERTS, 0, 2, OF_EMBD, false, false},
    {NTX_T_expert_down, EXPERTS, 0, 1, OF_IN, true, false},
    {NTX_T_expert_gate, EXPERTS, 0, 1, OF_EMBD, false, false},
    {NTX_T_expert_up, EXPERTS, 0, 1, OF_EMBD, false, false},
    {NTX_T_router_bias, GPT_OSS, 0, 1, PLAIN, false, false},
    {NTX_T_expert_down_bias, GPT_OSS, 0, 0.3f, PLAIN, false, false},
    {NTX_T_expert_gate_bias, GPT_OSS, 0, 4, PLAIN, false, false},
    {NTX_T_expert_up_bias, GPT_OSS, 0, 4, PLAIN, false, false},
    {NTX_T_shared_gate, SHARED, 0, 1, OF_EMBD, false, false},
    {NTX_T_down_shared, SHARED, 0, 1, OF_IN, true, false},
    {NTX_T_gate_shared, SHARED, 0, 1, OF_EMBD, false, false},
    {NTX_T_up_shared, SHARED, 0, 1, OF_EMBD, false, false},
    {NTX_T_down, DENSE, 0, 1, OF_IN, true, false},
    {NTX_T_gate, DENSE, 0, 1, OF_EMBD, false, false},
    {NTX_T_up, DENSE, 0, 1, OF_EMBD, false, false},
    {NTX_T_ffn_norm, ALWAYS, 1, 0.1f, PLAIN, false, false},
    {NTX_T_k, ALWAYS, 0, 1.5f, OF_EMBD, false, true},
    {NTX_T_o, ALWAYS, 0, 0.7f, OF_IN, false, true},
    {NTX_T_q, ALWAYS, 0, 1.5f, OF_EMBD, false, true},
    {NTX_T_v, ALWAYS, 0, 1, OF_EMBD, true, true},
    {NTX_T_q_bias, QKV_BIASES, 0, 0.5f, PLAIN, false, false},
    {NTX_T_k_bias, QKV_BIASES, 0, 0.5f, PLAIN, false, false},
    {NTX_T_v_bias, QKV_BIASES, 0, 0.3f, PLAIN, false, false},
    {NTX_T_o_bias, GPT_OSS, 0, 0.3f, PLAIN, false, false},
    {NTX_T_sinks, GPT_OSS, 1, 1, PLAIN, false, false},
    {NTX_T_q_norm, QK_NORMS, 1, 0.1f, PLAIN, false, false},
    {NTX_T_k_norm, QK_NORMS, 1, 0.1f, PLAIN, false, false},
};

static bool wanted(const struct mk_options *o, enum when w)
{
    switch (w) {
    case DENSE: return !o->experts;
    case EXPERTS: return o->experts;
    case SHARED: return o->experts && has_shared(o);
    case QKV_BIASES: return !strncmp(o->arch, "qwen2", 5) || o->biases || is_gpt_oss(o);
    case QK_NORMS: return !strncmp(o->arch, "qwen3", 5);
    case GPT_OSS: return is_gpt_oss(o);
    default: return true;
    }
}

static struct ntx_hparams widths(const struct plan *p)
{
    const struct mk_options *o = p->o;
    return (struct ntx_hparams){.n_embd = o->embd, .n_ff = o->ff, .n_head = o->heads, .n_head_kv = o->kv, .head_k = p->head, .head_v = p->head,
                                .n_expert = o->experts, .n_ff_exp = expert_ff(o), .n_ff_shexp = shared_ff(o)};
}

/* Shape and type; a matrix has that of the recipe. */
static struct mk_tensor *add_kind(struct plan *p, const char *name, const struct ntx_tensor_kind *k, bool more)
{
    const struct ntx_hparams hp = widths(p);
    uint32_t n_in = ntx_width(&hp, k->in), n_out = ntx_width(&hp, k->out);
    bool floats = k->use == NTX_USE_RESIDENT || k->use == NTX_USE_VECTOR || k->use == NTX_USE_ROWS;
    uint32_t type = floats ? NTX_F32 : fitting(more ? p->recipe->more : p->recipe->base, n_in);
    struct mk_tensor *t = mk_tensor_add(p->f, name, type, n_in, k->use == NTX_USE_VECTOR ? 0 : n_out, 0);
    if (t && k->use == NTX_USE_EXPERT) {
        t->n_dims = 3;
        t->ne[2] = p->o->experts;
    }
    return t;
}

static void add_layer(struct plan *p, uint32_t l)
{
    const struct mk_options *o = p->o;
    bool mixed = p->recipe->mix && more_bits(l, o->layers), experts_only = is_gpt_oss(o) && p->recipe->base != NTX_F32;
    char name[64];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (!wanted(o, values[i].when))
            continue;
        snprintf(name, sizeof name, "blk.%u.%s", l, ntx_tensor_name(o->arch, values[i].tensor));
        struct mk_tensor *t = add_kind(p, name, &ntx_tensor_kinds[values[i].tensor], (values[i].more && mixed) || (values[i].not_experts && experts_only));
        if (!t)
            return;
        t->mean = values[i].mean;
        t->std = values[i].spread == OF_EMBD ? values[i].std * (1 / sqrtf((float)o->embd)) : values[i].spread == OF_IN ? values[i].std / sqrtf((float)t->ne[0]) : values[i].std;
    }
}

/* Divisors of the rotation frequencies as Llama 3.1 defines them: long waves are stretched by the factor, short ones
 * kept, a ramp between (low_freq_factor 1, high_freq_factor 4). */
static float *llama3_freqs(const struct mk_options *o, uint32_t dim, uint32_t orig)
{
    float *v = malloc(dim / 2 * sizeof *v);
    if (!v)
        return NULL;
    for (uint32_t i = 0; i < dim / 2; i++) {
        double wave = 2 * M_PI * pow((double)o->rope_base, 2.0 * i / dim);
        double smooth = fmin(fmax((orig / wave - 1) / 3, 0), 1);
        v[i] = (float)(1 / ((1 - smooth) / (double)o->rope_factor + smooth));
    }
    return v;
}

static void add_tensors(struct plan *p, float *freqs)
{
    const struct mk_options *o = p->o;
    float s = 1 / sqrtf((float)o->embd);
    if (freqs) {
        struct mk_tensor *t = mk_tensor_add(p->f, "rope_freqs.weight", NTX_F32, p->head / 2, 0, 0);
        if (t)
            t->values = freqs;
    }
    add_matrix(p, "token_embd.weight", o->embd, p->n_vocab, o->tied ? s : 1, o->tied || is_gpt_oss(o));
    for (uint32_t l = 0; l < o->layers; l++)
        add_layer(p, l);
    add_vector(p, "output_norm.weight", o->embd, o->tied ? o->logit_scale : 1, 0.1f);
    if (!o->tied)
        add_matrix(p, "output.weight", o->embd, p->n_vocab, o->logit_scale * s, true);
}

static void kv_u32(struct plan *p, const char *suffix, uint32_t v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", p->o->arch, suffix);
    mk_kv_u32(p->f, key, v);
}

static void kv_f32(struct plan *p, const char *suffix, float v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", p->o->arch, suffix);
    mk_kv_f32(p->f, key, v);
}

static void add_rope_keys(struct plan *p, uint32_t orig)
{
    const struct mk_options *o = p->o;
    char key[96];
    kv_f32(p, "rope.freq_base", o->rope_base);
    kv_u32(p, "rope.dimension_count", p->head);
    if (!strcmp(o->rope_scaling, "none"))
        return;
    snprintf(key, sizeof key, "%s.rope.scaling.type", o->arch);
    mk_kv_str(p->f, key, o->rope_scaling);
    kv_f32(p, "rope.scaling.factor", o->rope_factor);
    kv_u32(p, "rope.scaling.original_context_length", orig);
}

static void add_keys(struct plan *p, uint32_t orig)
{
    const struct mk_options *o = p->o;
    mk_kv_str(p->f, "general.architecture", o->arch);
    mk_kv_str(p->f, "general.name", o->name);
    mk_kv_u32(p->f, "general.file_type", p->recipe->file_type);
    mk_kv_u32(p->f, "general.quantization_version", 2);
    kv_u32(p, "block_count", o->layers);
    kv_u32(p, "context_length", o->ctx);
    kv_u32(p, "embedding_length", o->embd);
    kv_u32(p, "feed_forward_length", o->experts && !strcmp(o->arch, "llama") ? expert_ff(o) : o->ff);
    kv_u32(p, "attention.head_count", o->heads);
    kv_u32(p, "attention.head_count_kv", o->kv);
    kv_f32(p, "attention.layer_norm_rms_epsilon", 1e-5f);
    if (p->head * o->heads != o->embd || !strncmp(o->arch, "qwen3", 5) || is_gpt_oss(o)) {
        kv_u32(p, "attention.key_length", p->head);
        kv_u32(p, "attention.value_length", p->head);
    }
    if (o->experts) {
        kv_u32(p, "expert_count", o->experts);
        kv_u32(p, "expert_used_count", o->experts_used);
    }
    if (o->experts && strcmp(o->arch, "llama"))
        kv_u32(p, "expert_feed_forward_length", expert_ff(o));
    if (o->experts && has_shared(o))
        kv_u32(p, "expert_shared_feed_forward_length", shared_ff(o));
    if (is_gpt_oss(o))
        kv_u32(p, "attention.sliding_window", o->window);
    add_rope_keys(p, orig);
}

int mk_plan(struct mk_file *f, const struct mk_options *o, float **freqs, struct ntx_err *err)
{
    struct plan p = {.f = f, .o = o, .recipe = find_recipe(o->type), .head = o->head_dim ? o->head_dim : o->embd / o->heads};
    uint32_t orig = o->rope_orig ? o->rope_orig : (uint32_t)((float)o->ctx / o->rope_factor);
    float *v = NULL;
    f->version = o->version;
    f->seed = o->seed;
    f->repeat = o->repeat_layers;
    if (f->repeat)
        mk_kv_bool(f, "ntx.shared_tensors", true);
    add_keys(&p, orig);
    int rc = mk_vocab(f, o, &p.n_vocab, err);
    if (rc)
        return rc;
    kv_u32(&p, "vocab_size", p.n_vocab);
    if (o->rope_freqs && !(v = llama3_freqs(o, p.head, orig)))
        return ntx_err_set(err, -ENOMEM, "out of memory");
    add_tensors(&p, v);
    *freqs = v;
    return 0;
}
