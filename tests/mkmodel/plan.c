/* plan.c: keys and tensors of the architectures, types as llama.cpp's quantiser picks them for its mixes. */
#include "tests/mkmodel/plan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static const char *in_layer(char buf[64], uint32_t layer, const char *name)
{
    snprintf(buf, 64, "blk.%u.%s", layer, name);
    return buf;
}

static void add_biases(struct plan *p, uint32_t l)
{
    const struct mk_options *o = p->o;
    char n[64];
    add_vector(p, in_layer(n, l, "attn_q.bias"), o->heads * p->head, 0, 0.5f);
    add_vector(p, in_layer(n, l, "attn_k.bias"), o->kv * p->head, 0, 0.5f);
    add_vector(p, in_layer(n, l, "attn_v.bias"), o->kv * p->head, 0, 0.3f);
}

static bool is_gpt_oss(const struct mk_options *o) { return !strcmp(o->arch, "gpt-oss"); }

/* n_each matrices in one tensor. */
static void add_experts_of(struct plan *p, const char *name, uint64_t n_in, uint64_t n_out, float std, bool more)
{
    add_matrix(p, name, n_in, n_out, std, more);
    struct mk_tensor *t = p->f->failed ? NULL : &p->f->tensors[p->f->n_tensors - 1];
    if (t) {
        t->n_dims = 3;
        t->ne[2] = p->o->experts;
    }
}

/* A row of floats for each expert. */
static void add_rows(struct plan *p, const char *name, uint64_t n, float std)
{
    mk_tensor_add(p->f, name, NTX_F32, n, p->o->experts, std);
}

/* Those of gates are so large that some reach the limit of the activation. */
static void add_expert_biases(struct plan *p, uint32_t l, uint32_t ff)
{
    char n[64];
    add_vector(p, in_layer(n, l, "ffn_gate_inp.bias"), p->o->experts, 0, 1);
    add_rows(p, in_layer(n, l, "ffn_down_exps.bias"), p->o->embd, 0.3f);
    add_rows(p, in_layer(n, l, "ffn_gate_exps.bias"), ff, 4);
    add_rows(p, in_layer(n, l, "ffn_up_exps.bias"), ff, 4);
}

static uint32_t expert_ff(const struct mk_options *o) { return o->expert_ff ? o->expert_ff : o->ff; }
static uint32_t shared_ff(const struct mk_options *o) { return o->shared_ff ? o->shared_ff : o->ff; }
static bool has_shared(const struct mk_options *o) { return !strcmp(o->arch, "qwen2moe"); }

/* Each expert's output is as large as a dense FFN's; the router is decided enough that rounding seldom turns it. */
static void add_moe(struct plan *p, uint32_t l, bool more)
{
    const struct mk_options *o = p->o;
    float s = 1 / sqrtf((float)o->embd);
    uint32_t ff = expert_ff(o), sff = shared_ff(o);
    char n[64];
    mk_tensor_add(p->f, in_layer(n, l, "ffn_gate_inp.weight"), NTX_F32, o->embd, o->experts, 2 * s);
    add_experts_of(p, in_layer(n, l, "ffn_down_exps.weight"), ff, o->embd, 1 / sqrtf((float)ff), more);
    add_experts_of(p, in_layer(n, l, "ffn_gate_exps.weight"), o->embd, ff, s, false);
    add_experts_of(p, in_layer(n, l, "ffn_up_exps.weight"), o->embd, ff, s, false);
    if (is_gpt_oss(o))
        add_expert_biases(p, l, ff);
    if (!has_shared(o))
        return;
    add_vector(p, in_layer(n, l, "ffn_gate_inp_shexp.weight"), o->embd, 0, s);
    add_matrix(p, in_layer(n, l, "ffn_down_shexp.weight"), sff, o->embd, 1 / sqrtf((float)sff), more);
    add_matrix(p, in_layer(n, l, "ffn_gate_shexp.weight"), o->embd, sff, s, false);
    add_matrix(p, in_layer(n, l, "ffn_up_shexp.weight"), o->embd, sff, s, false);
}

static void add_ffn(struct plan *p, uint32_t l, bool more)
{
    const struct mk_options *o = p->o;
    float s = 1 / sqrtf((float)o->embd);
    char n[64];
    if (o->experts) {
        add_moe(p, l, more);
        return;
    }
    add_matrix(p, in_layer(n, l, "ffn_down.weight"), o->ff, o->embd, 1 / sqrtf((float)o->ff), more);
    add_matrix(p, in_layer(n, l, "ffn_gate.weight"), o->embd, o->ff, s, false);
    add_matrix(p, in_layer(n, l, "ffn_up.weight"), o->embd, o->ff, s, false);
}

/* In the order in which converters write a layer: not the order of execution. */
static void add_layer(struct plan *p, uint32_t l)
{
    const struct mk_options *o = p->o;
    uint64_t q = (uint64_t)o->heads * p->head, kv = (uint64_t)o->kv * p->head;
    bool more = p->recipe->mix && more_bits(l, o->layers), experts_only = is_gpt_oss(o) && p->recipe->base != NTX_F32; /* are of the type */
    float s = 1 / sqrtf((float)o->embd);
    char n[64];
    add_vector(p, in_layer(n, l, "attn_norm.weight"), o->embd, 1, 0.1f);
    add_ffn(p, l, more);
    add_vector(p, in_layer(n, l, is_gpt_oss(o) ? "post_attention_norm.weight" : "ffn_norm.weight"), o->embd, 1, 0.1f);
    add_matrix(p, in_layer(n, l, "attn_k.weight"), o->embd, kv, 1.5f * s, experts_only);
    add_matrix(p, in_layer(n, l, "attn_output.weight"), q, o->embd, 0.7f / sqrtf((float)q), experts_only);
    add_matrix(p, in_layer(n, l, "attn_q.weight"), o->embd, q, 1.5f * s, experts_only);
    add_matrix(p, in_layer(n, l, "attn_v.weight"), o->embd, kv, s, more || experts_only);
    if (!strncmp(o->arch, "qwen2", 5) || o->biases || is_gpt_oss(o))
        add_biases(p, l);
    if (is_gpt_oss(o)) {
        add_vector(p, in_layer(n, l, "attn_output.bias"), o->embd, 0, 0.3f);
        add_vector(p, in_layer(n, l, "attn_sinks.weight"), o->heads, 1, 1);
    }
    if (!strncmp(o->arch, "qwen3", 5)) {
        add_vector(p, in_layer(n, l, "attn_q_norm.weight"), p->head, 1, 0.1f);
        add_vector(p, in_layer(n, l, "attn_k_norm.weight"), p->head, 1, 0.1f);
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
