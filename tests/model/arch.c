/* arch.c: hyper-parameters and tensors of the architectures, their defaults, and what is refused by name. */
#include "model/arch.h"
#include "model/chunk.h"
#include "model/quant.h"

#include <errno.h>
#include <math.h>

#include "tests/model/make.h"

struct opened {
    uint8_t *bytes;
    size_t n;
    struct ntx_gguf *g;
    struct ntx_model *m;
};

static enum ntx_rope_kind rope_of(const struct ntx_model *m) { return (enum ntx_rope_kind)ntx_layer_find(m->layers, NTX_OP_ROPE)->pairs; }

static struct opened open_model(const struct mk_options *o)
{
    struct opened x = {0};
    struct ntx_err err = {0};
    x.bytes = make_bytes(o, &x.n);
    x.g = parse_ok(x.bytes, x.n);
    CHECK_MSG(!ntx_model_open(x.g, &x.m, &err), "%s", err.text);
    return x;
}

static void close_model(struct opened *x)
{
    ntx_model_free(x->m);
    ntx_gguf_free(x->g);
    free(x->bytes);
}

static const char *name_of(const struct opened *x, uint32_t tensor)
{
    return tensor == NTX_NO_TENSOR ? "none" : ntx_gguf_tensor_at(x->g, tensor)->name;
}

static void check_llama(void)
{
    struct mk_options o = make_options();
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    CHECK_STR(h->arch, "llama");
    CHECK_STR(h->name, "tiny");
    CHECK(h->n_layers == 2 && h->n_embd == 64 && h->n_ff == 96 && h->n_head == 4 && h->n_head_kv == 2 && h->ctx_train == 128);
    CHECK(h->head_k == 16 && h->head_v == 16 && h->rope_dim == 16 && rope_of(x.m) == NTX_ROPE_NORM && h->rope_base == 10000);
    CHECK(h->rms_eps == 1e-5f && h->rope_scaling == NTX_ROPE_SCALE_NONE && h->rope_factor == 1 && h->rope_attn_factor == 1);
    CHECK_EQ(h->n_vocab, ntx_gguf_find(x.g, "tokenizer.ggml.tokens")->count);
    CHECK_STR(name_of(&x, x.m->token_embd), "token_embd.weight");
    CHECK_STR(name_of(&x, x.m->output), "output.weight");
    CHECK_STR(name_of(&x, x.m->layers[1].down), "blk.1.ffn_down.weight");
    CHECK_STR(name_of(&x, x.m->layers[0].q_bias), "none");
    CHECK_EQ(x.m->rope_freqs, NTX_NO_TENSOR);
    close_model(&x);
}

static void check_llama3(void)
{
    struct mk_options o = make_options();
    o.tied = o.rope_freqs = o.biases = true;
    o.rope_base = 500000;
    o.rope_factor = 8;
    o.rope_orig = 16;
    struct opened x = open_model(&o);
    CHECK_EQ(x.m->output, x.m->token_embd);
    CHECK_STR(name_of(&x, x.m->rope_freqs), "rope_freqs.weight");
    CHECK_STR(name_of(&x, x.m->layers[1].v_bias), "blk.1.attn_v.bias");
    float freqs[8];
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(x.g, x.m->rope_freqs);
    CHECK_EQ(t->bytes, sizeof freqs);
    memcpy(freqs, x.bytes + t->offset, sizeof freqs);
    CHECK(freqs[0] > 1 && freqs[0] < 2); /* wave of 6.3 in a context of 16: on the ramp */
    CHECK(freqs[1] == 8 && freqs[7] == 8);
    close_model(&x);
}

static void check_qwen(void)
{
    struct mk_options o = make_options();
    o.arch = "qwen2";
    o.rope_scaling = "yarn";
    o.rope_factor = 4;
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    CHECK(rope_of(x.m) == NTX_ROPE_NEOX && h->rope_scaling == NTX_ROPE_SCALE_YARN && h->rope_factor == 4 && h->rope_ctx_orig == 32);
    CHECK(h->yarn_ext_factor == 1 && h->yarn_beta_fast == 32 && h->yarn_beta_slow == 1 && h->rope_attn_factor == 1);
    CHECK_STR(name_of(&x, x.m->layers[0].k_bias), "blk.0.attn_k.bias");
    close_model(&x);
    o.yarn_magnitude = 1; /* the whole of it, not a factor of what follows from 4 */
    x = open_model(&o);
    CHECK(fabsf(x.m->hp.rope_attn_factor * (1 + 0.1f * logf(4)) - 1) < 1e-6f);
    close_model(&x);
    o.rope_scaling = "linear";
    x = open_model(&o);
    CHECK(x.m->hp.rope_attn_factor == 1);
    close_model(&x);
    o.yarn_magnitude = 0;
    o.arch = "qwen3";
    o.rope_scaling = "linear";
    o.head_dim = 24;
    x = open_model(&o);
    h = &x.m->hp;
    CHECK(rope_of(x.m) == NTX_ROPE_NEOX && h->rope_scaling == NTX_ROPE_SCALE_LINEAR && h->rope_factor == 4 && h->head_k == 24);
    CHECK(h->yarn_ext_factor == 0 && h->rope_dim == 24);
    CHECK_STR(name_of(&x, x.m->layers[1].q_norm), "blk.1.attn_q_norm.weight");
    CHECK_EQ(ntx_gguf_tensor_at(x.g, x.m->layers[1].q)->ne[1], 96);
    close_model(&x);
}

/* A model bent by hand; p[0..n) is a llama model with a linear rope scaling, to be freed by finish(). */
static uint8_t *base(size_t *n)
{
    struct mk_options o = make_options();
    o.rope_scaling = "linear";
    o.rope_factor = 2;
    return make_bytes(&o, n);
}

static void finish(uint8_t *p, size_t n, int rc, const char *text)
{
    struct ntx_gguf *g = parse_ok(p, n);
    struct ntx_model *m = NULL;
    struct ntx_err err = {0};
    int got = ntx_model_open(g, &m, &err);
    CHECK_MSG(got == rc && err.code == rc && !m, "%d '%s', expected %d '%s'", got, err.text, rc, text);
    CHECK_MSG(strstr(err.text, text), "'%s', expected '%s'", err.text, text);
    ntx_gguf_free(g);
    free(p);
}

static void refuse_number(const char *key, uint32_t v, int rc, const char *text)
{
    size_t n;
    uint8_t *p = base(&n);
    set_u32(p, n, key, v);
    finish(p, n, rc, text);
}

static void refuse_real(const char *key, float v, const char *text)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    refuse_number(key, bits, -EINVAL, text);
}

static void refuse_renamed(const char *from, const char *to, int rc, const char *text)
{
    size_t n;
    uint8_t *p = base(&n);
    rename_in(p, n, from, to);
    finish(p, n, rc, text);
}

static void check_numbers(void)
{
    refuse_number("llama.block_count", 0, -EINVAL, "key 'llama.block_count' is 0; 1 to 512");
    refuse_number("llama.block_count", 513, -EINVAL, "is 513");
    refuse_number("llama.block_count", 3, -EINVAL, "tensor 'blk.2.attn_norm.weight' is missing; a llama model needs it");
    refuse_number("llama.block_count", 1, -ENOTSUP, "tensor 'blk.1.");
    refuse_number("llama.embedding_length", 1u << 31, -EINVAL, "is 2147483648");
    refuse_number("llama.embedding_length", 128, -EINVAL, "tensor 'token_embd.weight' is 64 x ");
    refuse_number("llama.feed_forward_length", 95, -EINVAL, "is 64 x 96 x 1 x 1, expected 64 x 95");
    refuse_number("llama.attention.head_count", 0, -EINVAL, "'llama.attention.head_count' is 0");
    refuse_number("llama.attention.head_count", 3, -EINVAL, "3 heads are not a multiple of 2");
    refuse_number("llama.attention.head_count_kv", 4, -EINVAL, "tensor 'blk.0.attn_k.weight' is 64 x 32");
    refuse_number("llama.rope.dimension_count", 7, -EINVAL, "7 rotated dimensions");
    refuse_number("llama.rope.dimension_count", 18, -EINVAL, "is 18; 2 to 16");
    refuse_number("llama.context_length", 0, -EINVAL, "'llama.context_length' is 0");
    refuse_real("llama.attention.layer_norm_rms_epsilon", -1, "layer_norm_rms_epsilon' is -1");
    refuse_real("llama.rope.freq_base", 0, "freq_base' is 0");
    refuse_number("llama.rope.freq_base", 0x7fc00000, -EINVAL, "freq_base' is nan");
    refuse_real("llama.rope.scaling.factor", 0.5f, "factor' is 0.5; a scaling of at least 1");
}

static void check_names(void)
{
    refuse_renamed("general.architecture", "general.architectura", -EINVAL, "no key 'general.architecture'");
    refuse_renamed("llama.block_count", "llama.blick_count", -EINVAL, "key 'llama.block_count' is missing");
    refuse_renamed("blk.1.attn_k.weight", "blk.1.attn_j.weight", -EINVAL, "tensor 'blk.1.attn_k.weight' is missing");
    refuse_renamed("token_embd.weight", "token_ombd.weight", -EINVAL, "tensor 'token_embd.weight' is missing");
}

static void check_texts(void)
{
    size_t n;
    uint8_t *p = base(&n);
    memcpy(value_of(p, n, "general.architecture") + 12, "gem\nn", 5);
    finish(p, n, -ENOTSUP, "architecture 'gem?n' is not supported; known are llama, llama-relu, qwen2, qwen3, qwen2moe, ");
    p = base(&n);
    memcpy(value_of(p, n, "llama.rope.scaling.type") + 12, "longer", 6);
    finish(p, n, -EINVAL, "key 'llama.rope.scaling.type' names a scaling that is not supported");
    p = base(&n);
    memcpy(value_of(p, n, "token_embd.weight") + 12, &(uint64_t){5}, 8);
    finish(p, n, -EINVAL, "tokens, but tensor 'token_embd.weight' has 5 rows");
    p = base(&n);
    memcpy(value_of(p, n, "blk.0.attn_norm.weight") + 12, &(uint32_t){1}, 4); /* its type */
    finish(p, n, -EINVAL, "tensor 'blk.0.attn_norm.weight' is F16 in 1 dimensions; it must be an F32 vector");
}

static void add_experts(struct mk_file *f) { mk_kv_u32(f, "llama.expert_count", 8); }
static void add_pattern(struct mk_file *f) { mk_kv_u32(f, "llama.attention.sliding_window_pattern", 4); }
static void add_tensor(struct mk_file *f) { mk_tensor_add(f, "blk.0.odd.weight", 0, 8, 0, 1); }
static void add_window(struct mk_file *f) { mk_kv_u32(f, "llama.attention.sliding_window", 100); }
static void add_equal(struct mk_file *f) { mk_kv_arr(f, "llama.attention.head_count_kv", NTX_GGUF_I32, (int32_t[]){2, 2}, 2); }
static void add_unequal(struct mk_file *f) { mk_kv_arr(f, "llama.attention.head_count_kv", NTX_GGUF_U32, (int32_t[]){2, 4}, 2); }
static void add_empty(struct mk_file *f) { mk_kv_arr(f, "llama.attention.head_count_kv", NTX_GGUF_U32, NULL, 0); }
static void add_old_scale(struct mk_file *f) { mk_kv_f32(f, "llama.rope.scale_linear", 4); }

static uint8_t *with(void (*extra)(struct mk_file *f), size_t *n)
{
    struct mk_options o = make_options();
    uint8_t *p = make_bytes_with(&o, extra, n);
    if (extra == add_equal || extra == add_unequal || extra == add_empty)
        rename_in(p, *n, "llama.attention.head_count_kv", "llama.attention.heed_count_kv"); /* the one number */
    return p;
}

static void check_extra_keys(void)
{
    size_t n;
    uint8_t *p = with(add_experts, &n);
    finish(p, n, -EINVAL, "key 'llama.expert_used_count' is missing");
    p = with(add_pattern, &n);
    finish(p, n, -ENOTSUP, "a sliding window with a pattern");
    p = with(add_unequal, &n);
    finish(p, n, -EINVAL, "key 'llama.attention.head_count_kv' differs between layers");
    p = with(add_tensor, &n);
    finish(p, n, -ENOTSUP, "tensor 'blk.0.odd.weight' has no place in a llama model of 2 layers");
    p = with(add_empty, &n);
    finish(p, n, -EINVAL, "is an empty array");
}

static struct mk_options moe_options(const char *arch)
{
    struct mk_options o = make_options();
    o.arch = arch;
    o.experts = 6;
    o.expert_ff = 48;
    o.shared_ff = 80;
    return o;
}

static void check_experts(void)
{
    static const struct { const char *arch, *first_gate; uint32_t shared; bool norm; } is[] = {
        {"llama", "none", 0, true}, {"qwen2moe", "blk.1.ffn_gate_inp_shexp.weight", 80, false}, {"qwen3moe", "none", 0, true},
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct mk_options o = moe_options(is[i].arch);
        struct opened x = open_model(&o);
        const struct ntx_hparams *h = &x.m->hp;
        CHECK(h->n_expert == 6 && h->n_expert_used == 2 && h->n_ff_exp == 48 && h->n_ff_shexp == is[i].shared);
        CHECK(h->router.norm == is[i].norm && h->router.scale == 1);
        CHECK_STR(name_of(&x, x.m->layers[1].router), "blk.1.ffn_gate_inp.weight");
        CHECK_STR(name_of(&x, x.m->layers[1].expert_down), "blk.1.ffn_down_exps.weight");
        CHECK_STR(name_of(&x, x.m->layers[1].shared_gate), is[i].first_gate);
        CHECK_STR(name_of(&x, x.m->layers[1].gate), "none");
        close_model(&x);
    }
}

static void add_every_third(struct mk_file *f) { mk_kv_u32(f, "gpt-oss.attention.sliding_window_pattern", 3); }
static void add_softmax_of_chosen(struct mk_file *f) { mk_kv_u32(f, "gpt-oss.expert_gating_func", 3); }

static void refuse_gpt_oss(const char *old, const char *new, int rc, const char *text)
{
    struct mk_options o = moe_options("gpt-oss");
    size_t n;
    uint8_t *p = make_bytes_with(&o, NULL, &n);
    rename_in(p, n, old, new);
    finish(p, n, rc, text);
}

static uint32_t window_of(const struct ntx_layer *l) { return ntx_layer_find(l, NTX_OP_ATTEND)->window; }

/* What a layer of each kind is made of, and which of its steps a row goes through that leaves its K and V only. */
static void expect_steps(const char *arch, uint32_t experts, bool biases, const char *want)
{
    struct mk_options o = make_options();
    char got[400] = "";
    o.arch = arch;
    o.experts = experts;
    o.biases = biases;
    struct opened x = open_model(&o);
    const struct ntx_layer *l = &x.m->layers[1];
    for (uint32_t i = 0; i < l->n_steps; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s%s", i ? " " : "", ntx_op_name((enum ntx_op)l->step[i].op), l->step[i].feeds ? "*" : "");
    CHECK_STR(got, want);
    close_model(&x);
}

static void check_unturned(void)
{
    struct mk_options o = make_options();
    o.arch = "smollm3";
    o.layers = 9;
    struct opened x = open_model(&o);
    for (uint32_t l = 0; l < 9; l++)
        CHECK(!ntx_layer_find(&x.m->layers[l], NTX_OP_ROPE) == (l == 3 || l == 7));
    close_model(&x);
}

static void check_mistral3(void)
{
    struct mk_options o = make_options();
    o.arch = "mistral3";
    o.rope_scaling = "yarn";
    o.rope_factor = 4;
    o.rope_orig = 32;
    struct opened x = open_model(&o);
    CHECK(x.m->hp.ctx_train == o.ctx && x.m->hp.rope_ctx_orig == 32 && x.m->hp.ctx_plain == 32);
    const struct ntx_temperature *t = &ntx_layer_find(x.m->layers, NTX_OP_ATTEND)->temperature;
    CHECK(t->length == 32 && t->scale == 0.1f && !t->ahead);
    CHECK(fabsf(x.m->hp.rope_attn_factor * (1 + 0.1f * logf(4)) - 1) < 1e-6f);
    close_model(&x);
    o.yarn_magnitude = 1.3f; /* told, and not divided */
    x = open_model(&o);
    CHECK(fabsf(x.m->hp.rope_attn_factor * (1 + 0.1f * logf(4)) - 1.3f) < 1e-6f);
    close_model(&x);
}

static void check_granite(void)
{
    struct mk_options o = make_options();
    o.arch = "granite";
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    CHECK(h->embd_scale == 12 / 0.25f && h->logit_scale == 1 / 6.0f && h->rms_eps == 1e-5f / 0.0625f);
    CHECK(ntx_layer_find(x.m->layers, NTX_OP_ATTEND)->scale == 0.1f);
    close_model(&x);
}

static void add_pairs(struct mk_file *f) { mk_kv_u32(f, "gemma3.attention.sliding_window_pattern", 2); }
static void add_window_dim(struct mk_file *f) { mk_kv_u32(f, "gemma3.rope.dimension_count_swa", 8); }
static void add_window_base(struct mk_file *f) { mk_kv_f32(f, "gemma2.rope.freq_base_swa", 12345); }

static struct mk_options gemma_options(const char *arch)
{
    struct mk_options o = make_options();
    o.arch = arch;
    o.layers = 7;
    o.window = 9;
    return o;
}

static void check_gemma3(void)
{
    struct mk_options o = gemma_options("gemma3");
    struct ntx_model *m;
    struct ntx_err err = {0};
    size_t n;
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    CHECK(h->embd_scale == sqrtf((float)h->n_embd) && h->rope_base_window == h->rope_base / 4 && h->rope_factor_window == 1 && h->logit_cap == 0);
    for (uint32_t l = 0; l < 7; l++) {
        const struct ntx_layer *layer = &x.m->layers[l];
        CHECK_EQ(window_of(layer), l == 5 ? 0u : 9u);
        CHECK_EQ(ntx_layer_find(layer, NTX_OP_ROPE)->turn, l == 5 ? NTX_TURN_ALL : NTX_TURN_WINDOW);
        CHECK_EQ(ntx_layer_find(layer, NTX_OP_GLU)->hidden.act, NTX_FFN_GELU);
    }
    CHECK_STR(name_of(&x, x.m->layers[1].attn_post_norm), "blk.1.post_attention_norm.weight");
    CHECK_STR(name_of(&x, x.m->layers[1].ffn_post_norm), "blk.1.post_ffw_norm.weight");
    close_model(&x);
    uint8_t *p = make_bytes_with(&o, add_pairs, &n);
    struct ntx_gguf *g = parse_ok(p, n);
    CHECK_MSG(!ntx_model_open(g, &m, &err), "%s", err.text);
    CHECK_EQ(m->hp.windowed[0], 1 | 1 << 2 | 1 << 4 | 1 << 6);
    ntx_model_free(m);
    ntx_gguf_free(g);
    free(p);
    p = make_bytes_with(&o, add_window_dim, &n);
    finish(p, n, -ENOTSUP, "key 'gemma3.rope.dimension_count_swa' changes what a model computes");
}

static void check_gemma2(void)
{
    struct mk_options o = gemma_options("gemma2");
    size_t n;
    struct opened x = open_model(&o);
    const struct ntx_step *attend = ntx_layer_find(&x.m->layers[2], NTX_OP_ATTEND);
    CHECK(attend->cap == 5 && x.m->hp.logit_cap == 8 && attend->window == 9 && !window_of(&x.m->layers[3]));
    CHECK(ntx_layer_find(&x.m->layers[2], NTX_OP_ROPE)->turn == NTX_TURN_ALL && attend->scale == 1 / sqrtf((float)x.m->hp.head_k));
    close_model(&x);
    o.layers = 46; /* the largest one */
    x = open_model(&o);
    CHECK(x.m->hp.score_scale == 1 / sqrtf((float)(x.m->hp.n_embd / x.m->hp.n_head)));
    close_model(&x);
    uint8_t *p = make_bytes_with(&o, add_window_base, &n);
    finish(p, n, -ENOTSUP, "key 'gemma2.rope.freq_base_swa' changes what a model computes");
}

static struct mk_options gemma4_options(void)
{
    struct mk_options o = gemma_options("gemma4");
    o.layers = 6;
    o.head_dim = 32;
    o.window_head = 16;
    o.full_kv = 1;
    o.shared_kv = 3;
    o.layer_input = 8;
    return o;
}

static void check_gemma4(void)
{
    struct mk_options o = gemma4_options();
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    static const uint32_t kv_of[] = {0, 1, 2, 1, 1, 2};
    CHECK(h->head_k == 32 && h->n_input == 8 && h->logit_cap == 8 && h->rope_dim == 32 && h->rope_dim_window == 16 && !h->v_of_k && h->n_ff == 2 * o.ff);
    for (uint32_t l = 0; l < 6; l++) {
        const struct ntx_layer *layer = &x.m->layers[l];
        struct ntx_dims d = ntx_dims_of(h, l);
        bool full = l % 3 == 2;
        CHECK(d.head_k == (full ? 32 : 16) && d.n_head_kv == (full ? 1 : o.kv) && d.n_ff == (l < 3 ? o.ff : 2 * o.ff) && d.kv_of == kv_of[l]);
        CHECK(window_of(layer) == (full ? 0 : 9) && ntx_layer_find(layer, NTX_OP_ATTEND)->scale == 1 && !ntx_layer_find(layer, NTX_OP_PUT) == (l > 2));
        CHECK(ntx_layer_find(layer, NTX_OP_ROPE)->rotated == (full ? 32 : 16) && !ntx_layer_find(layer, NTX_OP_INPUTS) == (l > 0));
        CHECK((layer->k == NTX_NO_TENSOR) == (l > 2));
    }
    CHECK_STR(name_of(&x, x.m->input_embd), "per_layer_token_embd.weight");
    CHECK_STR(name_of(&x, x.m->layers[0].inputs_proj), "per_layer_model_proj.weight");
    CHECK_STR(name_of(&x, x.m->layers[4].input_proj), "blk.4.proj.weight");
    close_model(&x);
}

static struct mk_options scaled_options(void)
{
    struct mk_options o = moe_options("qwen3moe");
    o.experts = 4;
    o.expert_ff = 64;
    o.type = "NVFP4_ALL";
    o.scales = true;
    return o;
}

/* "X.scale" beside "X.weight", of experts one each; "X.input_scale" is nobody's, and does no harm. */
static void check_scales(void)
{
    struct mk_options o = scaled_options();
    struct opened x = open_model(&o);
    const struct ntx_layer *l = &x.m->layers[1];
    CHECK_STR(name_of(&x, l->scale[NTX_T_q]), "blk.1.attn_q.scale");
    CHECK_STR(name_of(&x, l->scale[NTX_T_expert_down]), "blk.1.ffn_down_exps.scale");
    CHECK_EQ(ntx_gguf_tensor(x.m->gguf, "blk.1.ffn_down_exps.scale")->ne[0], 4);
    CHECK_STR(name_of(&x, x.m->output_scale), "output.scale");
    CHECK(l->scale[NTX_T_router] == NTX_NO_TENSOR && l->scale[NTX_T_attn_norm] == NTX_NO_TENSOR);
    close_model(&x);
}

static void add_wide_scale(struct mk_file *f) { mk_tensor_add(f, "blk.0.attn_q.scale", NTX_F32, 3, 0, 1); }
static void add_half_scale(struct mk_file *f) { mk_tensor_add(f, "blk.0.ffn_up.scale", NTX_F16, 1, 0, 1); }
static void add_embd_scale(struct mk_file *f) { mk_tensor_add(f, "token_embd.scale", NTX_F32, 1, 0, 1); }
static void add_input_scale(struct mk_file *f) { mk_tensor_add(f, "blk.0.odd.input_scale", NTX_F32, 1, 0, 1); }

static void refuse_scales(void)
{
    size_t n;
    uint8_t *p = with(add_wide_scale, &n);
    finish(p, n, -EINVAL, "tensor 'blk.0.attn_q.scale' is 3 x 1 x 1 x 1, expected 1 x 1");
    p = with(add_half_scale, &n);
    finish(p, n, -EINVAL, "tensor 'blk.0.ffn_up.scale' is F16 in 1 dimensions; it must be an F32 vector");
    p = with(add_embd_scale, &n);
    finish(p, n, -ENOTSUP, "tensor 'token_embd.scale' has no place in a llama model of 2 layers; ntx quantize MODEL OUT.gguf Q8_0 puts such scales into the weights");
    p = with(add_input_scale, &n);
    finish(p, n, -ENOTSUP, "tensor 'blk.0.odd.input_scale' has no place");
}

static void check_gemma4_experts(void)
{
    struct mk_options o = gemma4_options();
    o.shared_kv = o.layer_input = 0;
    o.experts = 4;
    o.fused = o.no_v = true;
    struct opened x = open_model(&o);
    const struct ntx_layer *l = &x.m->layers[2];
    CHECK(x.m->hp.v_of_k && x.m->hp.experts_fused && l->v == NTX_NO_TENSOR && x.m->layers[1].v != NTX_NO_TENSOR);
    CHECK(ntx_layer_find(l, NTX_OP_ROUTE)->router.norm && l->expert_gate == NTX_NO_TENSOR);
    CHECK_STR(name_of(&x, l->expert_gate_up), "blk.2.ffn_gate_up_exps.weight");
    CHECK_STR(name_of(&x, l->expert_scale), "blk.2.ffn_down_exps.scale");
    CHECK_STR(name_of(&x, l->router_scale), "blk.2.ffn_gate_inp.scale");
    close_model(&x);
}

static void refuse_gemma4(const char *old, const char *new, int rc, const char *text)
{
    struct mk_options o = gemma4_options();
    size_t n;
    uint8_t *p = make_bytes_with(&o, NULL, &n);
    rename_in(p, n, old, new);
    finish(p, n, rc, text);
}

static void refuse_gemma4s(void)
{
    refuse_gemma4("gemma4.attention.sliding_window_pattern", "gemma4.attention.sliding_window_pettern", -EINVAL, "key 'gemma4.attention.sliding_window_pattern' is missing, or no array");
    refuse_gemma4("gemma4.embedding_length_per_layer_input", "gemma4.embedding_length_per_layer_inpat", -EINVAL, "key 'gemma4.embedding_length_per_layer_input' is missing");
    refuse_gemma4("gemma4.attention.shared_kv_layers", "gemma4.attention.shared_kv_loyers", -EINVAL, "tensor 'blk.3.attn_k.weight' is missing");
    refuse_gemma4("gemma4.attention.key_length_swa", "gemma4.attention.key_length_swo", -ENOTSUP, "heads of 32 and 32 values, within a window of 32 and 16");
    refuse_gemma4("blk.4.inp_gate.weight", "blk.4.inp_gote.weight", -EINVAL, "tensor 'blk.4.inp_gate.weight' is missing");
    struct mk_options o = gemma4_options();
    size_t n;
    o.shared_kv = 2; /* layer 4 would read layer 2, which has no window */
    uint8_t *p = make_bytes_with(&o, NULL, &n);
    finish(p, n, -ENOTSUP, "layer 4 would read what layer 2 keeps, which is of another kind");
}

static void check_phi3(void)
{
    struct mk_options o = make_options();
    struct ntx_chunks *c;
    struct ntx_err err = {0};
    o.arch = "phi3";
    o.rope_freqs = true;
    o.rope_orig = 64;
    struct opened x = open_model(&o);
    const struct ntx_layer *l = &x.m->layers[1];
    CHECK(x.m->hp.qkv_fused && x.m->hp.gate_up_fused && l->q == l->k && l->k == l->v && l->gate == l->up && x.m->hp.rope_attn_factor == 1.19f && x.m->hp.rope_ctx_orig == 64);
    CHECK_STR(name_of(&x, l->q), "blk.1.attn_qkv.weight");
    CHECK_STR(name_of(&x, l->up), "blk.1.ffn_up.weight");
    CHECK_STR(name_of(&x, x.m->rope_long), "rope_factors_long.weight");
    CHECK(!ntx_chunks_make(x.m, 1 << 20, &c, &err));
    const struct ntx_layer_weights *w = &c->layers[1];
    const struct ntx_hparams *h = &x.m->hp;
    CHECK(w->q.n_out == h->n_head * h->head_k && w->k.n_out == h->n_head_kv * h->head_k && w->up.n_out == h->n_ff && w->gate.n_out == h->n_ff);
    CHECK_EQ(c->list[w->k.chunk0].offset - c->list[w->q.chunk0].offset, (uint64_t)w->q.n_out * w->q.row_bytes);
    CHECK_EQ(c->list[w->v.chunk0].offset - c->list[w->k.chunk0].offset, (uint64_t)w->k.n_out * w->k.row_bytes);
    CHECK_EQ(c->list[w->up.chunk0].offset - c->list[w->gate.chunk0].offset, (uint64_t)w->gate.n_out * w->gate.row_bytes);
    ntx_chunks_free(c);
    close_model(&x);
}

/* Of each key head q and k, v of its heads and their gates, in runs of a head. */
static void check_joined(void)
{
    struct mk_options o = moe_options("qwen3next");
    struct ntx_chunks *c;
    struct ntx_err err = {0};
    o.layers = 4;
    o.delta_head = 16;
    o.delta_heads = 6;
    o.delta_keys = 3;
    o.delta_joined = o.fused = true;
    struct opened x = open_model(&o);
    const struct ntx_layer *l = x.m->layers;
    CHECK(x.m->hp.delta_joined && x.m->hp.experts_fused && l->delta_mix == l->delta_gate && l->expert_gate == NTX_NO_TENSOR);
    CHECK_STR(name_of(&x, l->delta_mix), "blk.0.ssm_in.weight");
    CHECK_STR(name_of(&x, l->expert_gate_up), "blk.0.ffn_gate_up_exps.weight");
    for (int small = 0; small < 2; small++) {
        CHECK(!ntx_chunks_make(x.m, small ? 7 * 64 * 4 : 1 << 20, &c, &err));
        const struct ntx_weight *mix = &c->layers[0].delta_mix, *gate = &c->layers[0].delta_gate;
        const struct ntx_chunk *q = &c->list[mix->chunk0], *z = &c->list[gate->chunk0];
        const uint32_t of_head = 16 / mix->chunk_rows;
        const uint64_t head = 16 * (uint64_t)mix->row_bytes;
        CHECK(mix->n_out == 12 * 16 && gate->n_out == 6 * 16 && mix->n_chunks == 12 * of_head && (small || of_head == 1));
        static const uint32_t at[] = {0, 6, 12, 1, 7, 13, 2, 3, 8, 9, 14, 15}, gates[] = {4, 5, 10, 11, 16, 17};
        for (uint32_t i = 0; i < 12; i++)
            CHECK_EQ(q[i * of_head].offset - q->offset, at[i] * head);
        for (uint32_t i = 0; i < 6; i++)
            CHECK_EQ(z[i * of_head].offset - q->offset, gates[i] * head);
        ntx_chunks_free(c);
    }
    close_model(&x);
}

static void check_llama4(void)
{
    struct mk_options o = moe_options("llama4");
    o.layers = 4;
    o.expert_every = 2;
    o.ctx = 100000;
    struct opened x = open_model(&o);
    const struct ntx_layer *l = x.m->layers;
    CHECK(x.m->hp.ctx_plain == 8191 && x.m->hp.ctx_train == 100000 && x.m->hp.n_ff_shexp == x.m->hp.n_ff_exp);
    for (uint32_t i = 0; i < 4; i++) {
        const struct ntx_step *s = ntx_layer_find(&l[i], NTX_OP_ATTEND);
        CHECK(s->window == (i < 3 ? 8192 : 0) && s->stretch == s->window && s->temperature.length == (i < 3 ? 0 : 8192) && s->temperature.ahead == (i == 3));
        CHECK(!ntx_layer_find(&l[i], NTX_OP_ROPE) == (i == 3) && !ntx_layer_find(&l[i], NTX_OP_EXPERTS) == (i % 2 == 0));
        CHECK(i % 2 == 0 || (ntx_layer_find(&l[i], NTX_OP_EXPERTS)->weighs_input && !ntx_layer_find(&l[i], NTX_OP_ROUTE)->router.norm));
    }
    close_model(&x);
    size_t n;
    o.stretch_pattern = 3;
    uint8_t *p = make_bytes_with(&o, NULL, &n);
    finish(p, n, -ENOTSUP, "key 'llama4.attention.sliding_window_pattern' has layer 2 otherwise than each fourth without stretches");
    o.stretch_pattern = 4; /* as it is without the key */
    o.experts = 128; /* their q and k are not normed */
    x = open_model(&o);
    CHECK_EQ(x.m->layers[0].n_steps + 2, 18);
    close_model(&x);
}

static void check_steps(void)
{
    check_phi3();
    check_joined();
    check_llama4();
    expect_steps("phi3", 0, false, "NORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM ADD NORM MM MM GLU MM ADD");
    expect_steps("llama4", 4, false, "NORM* MM MM* MM* ROPE ROPE* NORM NORM* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD");
    check_gemma4();
    check_gemma4_experts();
    refuse_gemma4s();
    expect_steps("gemma4", 0, false, "NORM* MM MM* MM* NORM* NORM NORM* ROPE ROPE* PUT* ATTEND MM NORM ADD NORM MM MM GLU MM NORM ADD SCALE");
    check_gemma3();
    check_gemma2();
    expect_steps("gemma2", 0, false, "NORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM NORM ADD NORM MM MM GLU MM NORM ADD");
    expect_steps("gemma3", 0, false, "NORM* MM MM* MM* NORM NORM* ROPE ROPE* PUT* ATTEND MM NORM ADD NORM MM MM GLU MM NORM ADD");
    check_granite();
    check_mistral3();
    check_unturned();
    expect_steps("smollm3", 0, false, "NORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM ADD NORM MM MM GLU MM ADD");
    expect_steps("llama", 0, false, "NORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM ADD NORM MM MM GLU MM ADD");
    expect_steps("llama", 4, true, "NORM* MM MM* MM* BIAS BIAS* BIAS* ROPE ROPE* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD");
    expect_steps("qwen3", 0, false, "NORM* MM MM* MM* NORM NORM* ROPE ROPE* PUT* ATTEND MM ADD NORM MM MM GLU MM ADD");
    expect_steps("deepseek", 4, false, "NORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD");
    expect_steps("glm4moe", 4, false, "NORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD");
    expect_steps("minimax-m2", 4, false, "NORM* MM MM* MM* NORM NORM* ROPE ROPE* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD");
    expect_steps("olmoe", 4, false, "NORM* MM MM* MM* NORM NORM* ROPE ROPE* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD");
    expect_steps("gpt-oss", 4, false, "NORM* MM MM* MM* BIAS BIAS* BIAS* ROPE ROPE* PUT* ATTEND MM BIAS ADD NORM ROUTE EXPERTS ADD");
}

static void check_gpt_oss(void)
{
    struct mk_options o = moe_options("gpt-oss");
    o.window = 9;
    o.layers = 4;
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    CHECK(rope_of(x.m) == NTX_ROPE_NEOX && ntx_layer_find(x.m->layers, NTX_OP_EXPERTS)->hidden.act == NTX_FFN_SILU_CLAMPED && ntx_layer_find(x.m->layers, NTX_OP_ROUTE)->router.norm && h->n_ff_exp == 48 && h->ctx_train > 9);
    CHECK(window_of(&x.m->layers[0]) == 9 && window_of(&x.m->layers[1]) == 0 && window_of(&x.m->layers[2]) == 9 && window_of(&x.m->layers[3]) == 0);
    CHECK_STR(name_of(&x, x.m->layers[1].ffn_norm), "blk.1.post_attention_norm.weight");
    CHECK_STR(name_of(&x, x.m->layers[1].sinks), "blk.1.attn_sinks.weight");
    CHECK_STR(name_of(&x, x.m->layers[3].router_bias), "blk.3.ffn_gate_inp.bias");
    CHECK_STR(name_of(&x, x.m->layers[3].expert_up_bias), "blk.3.ffn_up_exps.bias");
    CHECK_STR(name_of(&x, x.m->layers[3].expert_down_bias), "blk.3.ffn_down_exps.bias");
    close_model(&x);
    refuse_gpt_oss("blk.1.attn_sinks.weight", "blk.1.attn_sunks.weight", -EINVAL, "tensor 'blk.1.attn_sinks.weight' is missing; a gpt-oss model needs it");
    refuse_gpt_oss("blk.0.ffn_up_exps.bias", "blk.0.ffn_op_exps.bias", -EINVAL, "tensor 'blk.0.ffn_up_exps.bias' is missing");
    refuse_gpt_oss("blk.0.post_attention_norm.weight", "blk.0.past_attention_norm.weight", -EINVAL, "tensor 'blk.0.post_attention_norm.weight' is missing");
    refuse_gpt_oss("gpt-oss.attention.sliding_window", "gpt-oss.attention.sliding_windaw", -EINVAL, "key 'gpt-oss.attention.sliding_window' is missing");
    o = moe_options("gpt-oss");
    size_t n;
    uint8_t *p = make_bytes_with(&o, NULL, &n);
    memcpy(value_of(p, n, "blk.0.ffn_down_exps.bias") + 12 + 8, &(uint32_t){1}, 4); /* its type */
    finish(p, n, -EINVAL, "tensor 'blk.0.ffn_down_exps.bias' is F16; it must be F32");
    o.layers = 3;
    o.window = 9;
    void (*const extra[])(struct mk_file *) = {add_every_third, add_softmax_of_chosen};
    for (int i = 0; i < 2; i++) {
        struct ntx_model *m;
        struct ntx_err err = {0};
        p = make_bytes_with(&o, extra[i], &n);
        struct ntx_gguf *g = parse_ok(p, n);
        CHECK_MSG(!ntx_model_open(g, &m, &err), "%s", err.text);
        CHECK(m->hp.router.norm && m->hp.windowed[0] == (i ? 1u | 1u << 2 : 1u | 1u << 1));
        CHECK(!window_of(&m->layers[i ? 1 : 2]));
        ntx_model_free(m);
        ntx_gguf_free(g);
        free(p);
    }
}

/* ---- qwen3next, qwen35 */

static struct mk_options delta_options(const char *arch)
{
    struct mk_options o = moe_options(arch);
    if (!strcmp(arch, "qwen35"))
        o.experts = 0;
    o.layers = 4;
    o.nextn = 1;
    o.rotated = 8;
    o.attention_every = 2;
    o.delta_heads = 6;
    o.delta_keys = 3;
    return o;
}

static void check_delta(const char *arch)
{
    struct mk_options o = delta_options(arch);
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    const struct ntx_layer *l = x.m->layers;
    const struct ntx_step *delta = ntx_layer_find(&l[0], NTX_OP_DELTA), *rope = ntx_layer_find(&l[1], NTX_OP_ROPE);
    bool next = !strcmp(arch, "qwen3next");
    CHECK(h->n_layers == 4 && h->n_nextn == 1 && ntx_count_recurrent(h) == 2 && ntx_is_recurrent(h, 0) && !ntx_is_recurrent(h, 1));
    CHECK(h->delta.taps == 4 && h->delta.head == 32 && h->delta.heads == 6 && h->delta.key_heads == 3);
    CHECK(delta->tiled == !next && delta->feeds && !ntx_layer_find(&l[0], NTX_OP_ATTEND));
    CHECK(rope->rotated == 8 && rope->pairs == NTX_ROPE_NEOX && !ntx_layer_find(&l[1], NTX_OP_CONV));
    CHECK_STR(name_of(&x, l[0].delta_mix), "blk.0.attn_qkv.weight");
    CHECK_STR(name_of(&x, l[0].delta_rates), next ? "blk.0.ssm_ba.weight" : "none");
    CHECK_STR(name_of(&x, l[2].delta_alpha), next ? "none" : "blk.2.ssm_alpha.weight");
    CHECK_STR(name_of(&x, l[2].delta_a), "blk.2.ssm_a");
    CHECK_STR(name_of(&x, l[1].q_gated), "blk.1.attn_q.weight");
    CHECK_STR(name_of(&x, l[1].delta_mix), "none");
    CHECK_STR(name_of(&x, l[3].ffn_norm), "blk.3.post_attention_norm.weight");
    CHECK_STR(name_of(&x, l[0].shared_gate), h->n_expert ? "blk.0.ffn_gate_inp_shexp.weight" : "none");
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_V), (2 * 3 + 6) * 32);
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_Z), 6 * 32);
    close_model(&x);
}

static void check_deltas(void)
{
    check_delta("qwen3next");
    check_delta("qwen35");
    check_delta("qwen35moe");
}

static void refuse_delta(const struct mk_options *o, const char *old, const char *new, int rc, const char *text)
{
    size_t n;
    uint8_t *p = make_bytes_with(o, NULL, &n);
    if (old)
        rename_in(p, n, old, new);
    finish(p, n, rc, text);
}

static void refuse_deltas(void)
{
    struct mk_options o = delta_options("qwen35");
    refuse_delta(&o, "qwen35.ssm.conv_kernel", "qwen35.ssm.conv_kernal", -EINVAL, "key 'qwen35.ssm.conv_kernel' is missing");
    refuse_delta(&o, "qwen35.rope.dimension_sections", "qwen35.rope.dimension_zections", -EINVAL, "key 'qwen35.rope.dimension_sections' is missing, or not a list");
    refuse_delta(&o, "qwen35.full_attention_interval", "qwen35.full_attention_intervul", -EINVAL, "tensor 'blk.1.attn_qkv.weight' is missing; a qwen35 model needs it");
    refuse_delta(&o, "blk.0.ssm_norm.weight", "blk.0.ssm_nurm.weight", -EINVAL, "tensor 'blk.0.ssm_norm.weight' is missing");
    o.delta_head = 24;
    refuse_delta(&o, NULL, NULL, -ENOTSUP, "a delta net of 144 values in 6 heads of 24 over 3 key heads is not supported");
    o.delta_head = 0;
    o.delta_keys = 4;
    refuse_delta(&o, NULL, NULL, -ENOTSUP, "a delta net of 192 values in 6 heads of 32 over 4 key heads is not supported");
    o.delta_keys = 3;
    o.head_dim = 48; /* not what heads have that nobody told the length of */
    refuse_delta(&o, "qwen35.attention.value_length", "qwen35.attention.value_lengtx", -ENOTSUP, "heads of 48 values of K and ");
    o.head_dim = 0;
    o.attention_every = 8;
    refuse_delta(&o, NULL, NULL, -ENOTSUP, "a qwen35 model without a layer of attention is not supported");
}

/* ---- kimi-linear */

static struct mk_options kimi_options(void)
{
    struct mk_options o = moe_options("kimi-linear");
    o.layers = 5;
    o.dense = 1;
    o.shared_ff = 96;
    o.head_dim = 24;
    o.rotated = 8;
    o.value_dim = 20;
    o.kv_lora = 40;
    o.attention_every = 3;
    o.expert_scale = 2.446f;
    return o;
}

static void check_kimi(void)
{
    struct mk_options o = kimi_options();
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    const struct ntx_layer *l = x.m->layers;
    const struct ntx_step *delta = ntx_layer_find(&l[1], NTX_OP_DELTA), *conv = ntx_layer_find(&l[1], NTX_OP_CONV), *a = ntx_layer_find(&l[2], NTX_OP_ATTEND);
    const struct ntx_router *r = &ntx_layer_find(&l[1], NTX_OP_ROUTE)->router;
    const uint32_t n = o.heads * 32;
    CHECK(ntx_count_recurrent(h) == 4 && ntx_is_recurrent(h, 1) && !ntx_is_recurrent(h, 2) && h->n_dense == 1 && h->n_ff_shexp == 96);
    CHECK(h->delta.taps == 4 && h->delta.head == 32 && h->delta.heads == o.heads && h->delta.key_heads == o.heads);
    CHECK(delta->by_key && delta->width == 32 && delta->heads == o.heads && conv->n_weights == 3 && conv->width == 3 * n);
    CHECK(h->kv_lora == 40 && h->head_k == 24 && h->head_v == 20 && ntx_kept_k(h, 2) == 48 && h->n_head_kv == 1);
    CHECK(a->latent && fabsf(a->scale * sqrtf(24) - 1) < 1e-6f && !ntx_layer_find(&l[2], NTX_OP_ROPE) && !ntx_layer_find(&l[1], NTX_OP_ATTEND));
    CHECK(r->score == NTX_SCORE_SIGMOID && r->norm && fabsf(r->scale - 2.446f) < 1e-6f && !ntx_layer_find(&l[0], NTX_OP_ROUTE));
    CHECK_STR(name_of(&x, l[0].kda_conv_v), "blk.0.ssm_conv1d_v.weight");
    CHECK_STR(name_of(&x, l[0].kda_out), "blk.0.attn_output.weight");
    CHECK_STR(name_of(&x, l[2].kda_out), "none");
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_V), 3 * n);
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_A), n);
    struct ntx_chunks *c = NULL;
    CHECK_EQ(ntx_chunks_make(x.m, 1 << 20, &c, NULL), 0);
    CHECK(c->layers[0].kda_conv_q.n_out == n && c->layers[0].kda_conv_q.n_in == 4); /* though the file has a dimension of one between */
    ntx_chunks_free(c);
    close_model(&x);
}

static void refuse_kimi(void)
{
    struct mk_options o = kimi_options();
    refuse_delta(&o, "kimi-linear.kda.head_dim", "kimi-linear.kda.head_din", -EINVAL, "key 'kimi-linear.kda.head_dim' is missing");
    refuse_delta(&o, "kimi-linear.attention.head_count_kv", "kimi-linear.attention.head_count_kw", -EINVAL, "key 'kimi-linear.attention.head_count_kv' is not a list of a number for each layer");
    refuse_delta(&o, "blk.0.ssm_f_b.weight", "blk.0.ssm_f_c.weight", -EINVAL, "tensor 'blk.0.ssm_f_b.weight' is missing; a kimi-linear model needs it");
    refuse_delta(&o, "blk.2.attn_k_b.weight", "blk.2.attn_k_c.weight", -EINVAL, "tensor 'blk.2.attn_k_b.weight' is missing; a kimi-linear model needs it");
    refuse_delta(&o, "kimi-linear.attention.key_length_mla", "kimi-linear.attention.key_length_mlb", -EINVAL, "key 'kimi-linear.attention.key_length_mla' is missing");
    o.delta_head = 24;
    refuse_delta(&o, NULL, NULL, -ENOTSUP, "key 'kimi-linear.kda.head_dim' is 24; multiples of 16 are supported");
    o.delta_head = 0;
    o.attention_every = 8;
    refuse_delta(&o, NULL, NULL, -EINVAL, "key 'kimi-linear.attention.head_count_kv' is 0; 1 to ");
    o.attention_every = 3;
    o.q_lora = 36;
    refuse_delta(&o, NULL, NULL, -ENOTSUP, "key 'kimi-linear.attention.q_lora_rank' says that q is made in two products: such a kimi-linear model is not supported");
}

/* ---- step35 */

static struct mk_options step_options(void)
{
    struct mk_options o = moe_options("step35");
    o.layers = 6;
    o.nextn = 1;
    o.dense = 2;
    o.window = 9;
    o.heads = 4;
    o.kv = 2;
    o.head_dim = 16;
    o.window_heads = 6;
    o.qk_norms = true;
    return o;
}

/* Each third layer sees all, turns half of each head and has fewer heads; limits are as each layer's keys say: of gates, where SiLU gives that much. */
static void check_step(void)
{
    struct mk_options o = step_options();
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    const struct ntx_layer *l = x.m->layers;
    CHECK(h->n_layers == 6 && h->n_nextn == 1 && h->n_dense == 2 && h->n_ff_shexp == 80 && h->window == 9 && h->router.score == NTX_SCORE_SIGMOID);
    for (uint32_t i = 0; i < 6; i++) {
        const struct ntx_step *rope = ntx_layer_find(&l[i], NTX_OP_ROPE), *gate = ntx_layer_find(&l[i], NTX_OP_GATE), *e = ntx_layer_find(&l[i], NTX_OP_EXPERTS);
        const bool all = i % 3 == 0;
        CHECK(window_of(&l[i]) == (all ? 0 : 9) && rope->heads == (all ? 4 : 6) && rope->rotated == (all ? 8 : 16) && rope->turn == (all ? NTX_TURN_ALL : NTX_TURN_WINDOW));
        CHECK(gate->by_head && gate->heads == rope->heads && gate->width == 16 * gate->heads);
        CHECK((e != NULL) == (i >= 2));
        if (!e) {
            const struct ntx_step *glu = ntx_layer_find(&l[i], NTX_OP_GLU);
            CHECK(glu->hidden.limit == (i == 1 ? 0.75f : 0));
            continue;
        }
        CHECK(e->hidden.limit == (i % 2 ? 0.5f : 0) && e->shared.limit == (i % 3 == 1 ? 0.75f : 0) && (e->hidden.gate_limit > 0) == (e->hidden.limit > 0));
        if (e->hidden.limit > 0)
            CHECK(fabsf(e->hidden.gate_limit / (1 + expf(-e->hidden.gate_limit)) - e->hidden.limit) < 1e-6f);
    }
    CHECK_STR(name_of(&x, l[2].head_gate), "blk.2.attn_gate.weight");
    close_model(&x);
    refuse_delta(&o, "step35.attention.sliding_window_pattern", "step35.attention.sliding_window_pottern", -EINVAL, "key 'step35.attention.sliding_window_pattern' is missing, or no array");
    refuse_delta(&o, "blk.1.attn_gate.weight", "blk.1.attn_gete.weight", -EINVAL, "tensor 'blk.1.attn_gate.weight' is missing; a step35 model needs it");
    refuse_delta(&o, "step35.leading_dense_block_count", "step35.leading_dense_block_caunt", -EINVAL, "tensor 'blk.0.ffn_gate_inp.weight' is missing; a step35 model needs it");
    refuse_delta(&o, "step35.expert_shared_feed_forward_length", "step35.expert_shared_feed_forward_lengtx", -EINVAL, "key 'step35.expert_shared_feed_forward_length' is missing");
    o.window = 0;
    refuse_delta(&o, NULL, NULL, -ENOTSUP, "key 'step35.attention.sliding_window' is 0: a step35 model without a window is not supported");
    o.window = 9;
    o.rope_scaling = "yarn";
    o.rope_factor = 4;
    refuse_delta(&o, NULL, NULL, -ENOTSUP, "and rope.scaling: not supported");
}

/* ---- glm5-next */

static struct mk_options glm5_options(void)
{
    struct mk_options o = kimi_options();
    o.arch = "glm5-next";
    o.layers = 6;
    o.nextn = 1;
    o.rotated = 0;
    o.q_lora = 36;
    o.attention_every = 2;
    o.index_heads = 20;
    o.index_head = 48;
    o.index_pool = 3;
    o.index_most = 7;
    o.index_every = 2;
    o.delta_bound = 5;
    return o;
}

static void check_glm5(void)
{
    struct mk_options o = glm5_options();
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    const struct ntx_layer *l = x.m->layers;
    const struct ntx_step *choose = ntx_layer_find(&l[1], NTX_OP_CHOOSE), *rates = ntx_layer_find(&l[0], NTX_OP_RATES);
    CHECK(h->n_layers == 6 && h->n_nextn == 1 && ntx_count_recurrent(h) == 3 && !ntx_is_recurrent(h, 1) && h->rope_dim == 0 && h->head_k == 24 && h->n_dense == 1);
    CHECK(h->index.heads == 20 && h->index.head == 48 && h->index.every == 3 && h->index.most == 7 && ntx_chooses(h, 1) && !ntx_chooses(h, 3) && ntx_chooses(h, 5) && !ntx_chooses(h, 0));
    CHECK(ntx_kept_k(h, 1) == 40 && ntx_kept_v(h, 1) == 96 && ntx_kept_v(h, 3) == 0); /* a key, and what it weighs */
    CHECK(choose->keys && choose->every == 3 && choose->most == 7 && !ntx_layer_find(&l[3], NTX_OP_CHOOSE) && ntx_layer_find(&l[3], NTX_OP_ATTEND)->chosen);
    CHECK(rates->bound == -5 && ntx_layer_find(&l[0], NTX_OP_DELTA)->by_key && ntx_layer_find(&l[0], NTX_OP_UNIT)->eps == 1e-6f);
    CHECK(h->streams.n == 4 && h->streams.rounds == 20 && h->limit == 1.5f && h->shared_limit == 1.5f && ntx_layer_find(&l[0], NTX_OP_GLU)->hidden.limit == 1.5f);
    CHECK(!ntx_layer_find(&l[1], NTX_OP_ROPE) && !ntx_layer_find(&l[1], NTX_OP_HADAMARD) && ntx_layer_find(&l[5], NTX_OP_MIX) && !ntx_layer_find(&l[5], NTX_OP_ADD));
    CHECK_STR(name_of(&x, l[1].index_place), "blk.1.indexer_compressor_ape.weight");
    CHECK_STR(name_of(&x, l[3].index_gate), "none");
    CHECK_STR(name_of(&x, l[0].delta_a), "blk.0.ssm_a");
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_STREAMS), 4 * o.embd);
    close_model(&x);
}

static void refuse_glm5(void)
{
    struct mk_options o = glm5_options();
    refuse_delta(&o, "glm5-next.attention.indexer.kpool_select_tail", "glm5-next.attention.indexer.kpool_select_tale", -ENOTSUP, "key 'glm5-next.attention.indexer.kpool_select_tail' is missing, or not true");
    refuse_delta(&o, "glm5-next.attention.layer_norm_epsilon", "glm5-next.attention.layer_norm_epsilom", -EINVAL, "key 'glm5-next.attention.layer_norm_epsilon' is missing");
    refuse_delta(&o, "glm5-next.hyper_connection.epsilon", "glm5-next.hyper_connection.epsilom", -EINVAL, "key 'glm5-next.hyper_connection.epsilon' is missing");
    refuse_delta(&o, "glm5-next.attention.q_lora_rank", "glm5-next.attention.q_lora_rang", -EINVAL, "key 'glm5-next.attention.q_lora_rank' is missing; a glm5-next model needs it");
    refuse_delta(&o, "blk.1.indexer_compressor_ape.weight", "blk.1.indexer_compressor_apt.weight", -EINVAL, "tensor 'blk.1.indexer_compressor_ape.weight' is missing; a glm5-next model needs it");
    refuse_delta(&o, "blk.2.hc_ffn_base.weight", "blk.2.hc_ffn_bass.weight", -EINVAL, "tensor 'blk.2.hc_ffn_base.weight' is missing; a glm5-next model needs it");
    o.index_head = 40;
    refuse_delta(&o, NULL, NULL, -ENOTSUP, "key 'glm5-next.attention.indexer.key_length' is 40; multiples of 16 are supported");
    o.index_head = 48;
    o.attention_every = 1;
    refuse_delta(&o, NULL, NULL, -ENOTSUP, "key 'glm5-next.attention.head_count_kv': a glm5-next model without a layer that keeps a state is not supported");
}

/* ---- qwen4exp */

static struct mk_options qwen4_options(void)
{
    struct mk_options o = delta_options("qwen35moe");
    o.arch = "qwen4exp";
    o.nextn = 0;
    o.layers = 6;
    o.attention_every = 3;
    o.experts = 8;
    o.index_heads = 20;
    o.index_head = 48;
    o.index_pool = 3;
    o.index_most = 7;
    o.low_rank = 24;
    o.gram_layer = 2;
    o.gram_heads = 4;
    return o;
}

static void check_qwen4(void)
{
    struct mk_options o = qwen4_options();
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    const struct ntx_layer *l = x.m->layers;
    const struct ntx_step *choose = ntx_layer_find(&l[2], NTX_OP_CHOOSE), *conv = ntx_layer_find(&l[1], NTX_OP_CONV), *spread = ntx_layer_find(&l[0], NTX_OP_SPREAD);
    CHECK(h->n_layers == 6 && ntx_count_recurrent(h) == 4 && !ntx_is_recurrent(h, 2) && ntx_chooses(h, 5) && !ntx_chooses(h, 4) && h->index_beside && h->no_output_norm);
    CHECK(h->index.heads == 20 && h->index.head == 48 && h->index.every == 3 && h->index.most == 7 && ntx_kept_v(h, 2) == h->head_v);
    CHECK(choose->keys && choose->mean && choose->every == 3 && choose->most == 7 && choose->in[1] == NTX_BUF_NONE && ntx_layer_find(&l[2], NTX_OP_ATTEND)->chosen);
    CHECK(h->streams.n == 4 && h->streams.low == 24 && spread->scale == 0.25f && ntx_layer_find(&l[0], NTX_OP_NORM)->each && ntx_layer_find(&l[0], NTX_OP_MAP)->scale == 0.25f);
    CHECK(h->grams.layer == 2 && h->grams.n == 3 && h->grams.heads == 8 && h->grams.width == o.embd / 8 && h->grams.taps == 4 && h->grams.eos == 2);
    CHECK(h->grams.first[1] == 97 && h->grams.size[7] == 97 + 42 && h->grams.rows == 1024 && h->grams.by[0] % 2 == 1 && h->grams.by[1] > UINT32_MAX);
    CHECK(conv->apart == 3 && conv->taps == 4 && conv->width == 4 * o.embd && conv->in[0] == NTX_BUF_GATES && !ntx_layer_find(&l[0], NTX_OP_GRAMS));
    CHECK(ntx_layer_find(&l[0], NTX_OP_UNIT)->eps == 1e-6f && ntx_layer_find(&l[0], NTX_OP_DELTA)->tiled && !ntx_layer_find(&l[5], NTX_OP_ADD));
    CHECK_STR(name_of(&x, l[1].gram_conv), "blk.1.ple_conv1d.weight");
    CHECK_STR(name_of(&x, l[5].head_high), "output_hc_up.weight");
    CHECK_STR(name_of(&x, l[4].head_high), "none");
    CHECK_STR(name_of(&x, l[2].block_k), "blk.2.indexer.k_proj.weight");
    CHECK_STR(name_of(&x, x.m->gram_embd), "per_layer_token_embd.weight");
    CHECK_STR(name_of(&x, x.m->output_norm), "none");
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_NORMED), 4 * o.embd);
    close_model(&x);
}

static void refuse_qwen4(void)
{
    struct mk_options o = qwen4_options();
    refuse_delta(&o, "qwen4exp.hyper_connection.low_rank", "qwen4exp.hyper_connection.low_rang", -EINVAL, "key 'qwen4exp.hyper_connection.low_rank' is missing");
    refuse_delta(&o, "qwen4exp.attention.compress_ratios", "qwen4exp.attention.compress_ratioz", -EINVAL, "key 'qwen4exp.attention.compress_ratios' is missing, or not a list of 6 integers");
    refuse_delta(&o, "qwen4exp.ple.layer_multipliers", "qwen4exp.ple.layer_multiplierz", -EINVAL, "key 'qwen4exp.ple.layer_multipliers' is missing, or not a list of 3 integers");
    refuse_delta(&o, "qwen4exp.ple.head_vocab_sizes", "qwen4exp.ple.head_vocab_zizes", -EINVAL, "key 'qwen4exp.ple.head_vocab_sizes' is missing, or not a list of 8 integers");
    refuse_delta(&o, "qwen4exp.ple.eos_token_id", "qwen4exp.ple.eos_token_ix", -EINVAL, "key 'qwen4exp.ple.eos_token_id' is missing");
    refuse_delta(&o, "qwen4exp.ple.layers", "qwen4exp.ple.layerz", -ENOTSUP, "tensor 'per_layer_token_embd.weight' has no place in a qwen4exp model of 6 layers");
    refuse_delta(&o, "per_layer_token_embd.weight", "per_layer_token_emb_.weight", -EINVAL, "tensor 'per_layer_token_embd.weight' is missing; a qwen4exp model needs it");
    refuse_delta(&o, "blk.1.ple_norm_conv.weight", "blk.1.ple_norm_cone.weight", -EINVAL, "tensor 'blk.1.ple_norm_conv.weight' is missing; a qwen4exp model needs it");
    refuse_delta(&o, "blk.5.indexer.k_norm.weight", "blk.5.indexer.k_nora.weight", -EINVAL, "tensor 'blk.5.indexer.k_norm.weight' is missing; a qwen4exp model needs it");
    refuse_delta(&o, "output_hc_down.weight", "output_hc_dawn.weight", -EINVAL, "tensor 'output_hc_down.weight' is missing; a qwen4exp model needs it");
    o.gram_layer = 3;
    refuse_delta(&o, NULL, NULL, -ENOTSUP, "key 'qwen4exp.ple.layers': one layer, which is a delta net, is supported");
    o.gram_layer = 2;
    o.index_head = 40;
    refuse_delta(&o, NULL, NULL, -ENOTSUP, "key 'qwen4exp.attention.indexer.key_length' is 40; multiples of 16 are supported");
}

/* ---- glm4moe */

static struct mk_options glm_options(void)
{
    struct mk_options o = moe_options("glm4moe");
    o.layers = 3;
    o.dense = o.nextn = 1;
    o.shared_ff = 96; /* two of 48 */
    o.rotated = 8;
    o.expert_scale = 2.5f;
    return o;
}

static void check_glm4moe(void)
{
    struct mk_options o = glm_options();
    o.biases = o.qk_norms = true;
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    const struct ntx_layer *l = x.m->layers;
    const struct ntx_router *r = &ntx_layer_find(&l[1], NTX_OP_ROUTE)->router;
    CHECK(h->n_layers == 3 && h->n_nextn == 1 && h->n_dense == 1 && h->n_ff_shexp == 96);
    CHECK(r->score == NTX_SCORE_SIGMOID && r->norm && r->scale == 2.5f);
    CHECK(rope_of(x.m) == NTX_ROPE_NEOX && ntx_layer_find(l, NTX_OP_ROPE)->rotated == 8 && ntx_layer_find(l, NTX_OP_ROPE)->width == h->head_k);
    CHECK(ntx_layer_find(&l[0], NTX_OP_GLU) && !ntx_layer_find(&l[0], NTX_OP_EXPERTS) && !ntx_layer_find(&l[1], NTX_OP_GLU));
    CHECK_STR(name_of(&x, l[0].router), "none");
    CHECK_STR(name_of(&x, l[0].ffn_norm), "blk.0.post_attention_norm.weight");
    CHECK_STR(name_of(&x, l[1].gate), "none");
    CHECK_STR(name_of(&x, l[2].router_choice), "blk.2.exp_probs_b.bias");
    CHECK_STR(name_of(&x, l[2].shared_gate), "none");
    CHECK_STR(name_of(&x, l[2].down_shared), "blk.2.ffn_down_shexp.weight");
    for (uint32_t i = 0; i < h->n_layers; i++) /* nothing of the block behind them */
        for (int t = 0; t < NTX_N_TENSORS; t++)
            CHECK(l[i].tensor[t] == NTX_NO_TENSOR || !strncmp(name_of(&x, l[i].tensor[t]), i ? i == 1 ? "blk.1." : "blk.2." : "blk.0.", 6));
    close_model(&x);
}

static void refuse_glm(const char *old, const char *new, int rc, const char *text)
{
    struct mk_options o = glm_options();
    size_t n;
    uint8_t *p = make_bytes_with(&o, NULL, &n);
    rename_in(p, n, old, new);
    finish(p, n, rc, text);
}

static void refuse_glms(void)
{
    refuse_glm("blk.1.exp_probs_b.bias", "blk.1.exp_probs_c.bias", -EINVAL, "tensor 'blk.1.exp_probs_b.bias' is missing; a glm4moe model needs it");
    refuse_glm("glm4moe.expert_shared_count", "glm4moe.expert_shared_caunt", -EINVAL, "key 'glm4moe.expert_shared_count' is missing");
    refuse_glm("blk.3.nextn.enorm.weight", "blk.3.nexto.enorm.weight", -ENOTSUP, "tensor 'blk.3.nexto.enorm.weight' has no place in a glm4moe model of 3 layers");
    refuse_glm("blk.3.nextn.enorm.weight", "blk.4.nextn.enorm.weight", -ENOTSUP, "tensor 'blk.4.nextn.enorm.weight' has no place");
    refuse_glm("glm4moe.nextn_predict_layers", "glm4moe.nextn_predict_liyers", -ENOTSUP, "tensor 'blk.3.nextn.eh_proj.weight' has no place in a glm4moe model of 4 layers");
    refuse_glm("glm4moe.leading_dense_block_count", "glm4moe.leading_dense_block_caunt", -EINVAL, "tensor 'blk.0.ffn_gate_inp.weight' is missing");
}

static void add_scale(struct mk_file *f) { mk_kv_f32(f, "qwen3moe.expert_weights_scale", 2.5f); mk_kv_bool(f, "qwen3moe.expert_weights_norm", false); }
static void add_uneven_groups(struct mk_file *f) { mk_kv_u32(f, "qwen3moe.expert_group_count", 4); }
static void add_single_groups(struct mk_file *f) { mk_kv_u32(f, "qwen3moe.expert_group_count", 6); }
static void add_groups(struct mk_file *f) { mk_kv_u32(f, "qwen3moe.expert_group_count", 3); }
static void add_used_groups(struct mk_file *f) { add_groups(f); mk_kv_u32(f, "qwen3moe.expert_group_used_count", 1); }
static void add_sigmoid(struct mk_file *f) { mk_kv_u32(f, "qwen3moe.expert_gating_func", 2); }
static void add_norm_number(struct mk_file *f) { mk_kv_u32(f, "qwen3moe.expert_weights_norm", 1); }
static void add_qwen3_experts(struct mk_file *f) { mk_kv_u32(f, "qwen3.expert_count", 4); }

static void refuse_moe(void (*extra)(struct mk_file *f), const char *key, uint32_t v, int rc, const char *text)
{
    struct mk_options o = moe_options("qwen3moe");
    size_t n;
    uint8_t *p = make_bytes_with(&o, extra, &n);
    if (key)
        set_u32(p, n, key, v);
    finish(p, n, rc, text);
}

/* ---- deepseek2 */

static struct mk_options latent_options(bool joined)
{
    struct mk_options o = moe_options("deepseek2");
    o.layers = 3;
    o.dense = o.nextn = 1;
    o.shared_ff = 96;
    o.head_dim = 24;
    o.rotated = 8;
    o.value_dim = 20;
    o.kv_lora = 40;
    o.q_lora = joined ? 0 : 36;
    o.kv_joined = joined;
    o.groups = 3;
    o.groups_used = 2;
    o.sigmoid = !joined;
    return o;
}

static void check_deepseek2(void)
{
    for (int joined = 0; joined < 2; joined++) {
        struct mk_options o = latent_options(joined);
        struct opened x = open_model(&o);
        const struct ntx_hparams *h = &x.m->hp;
        const struct ntx_layer *l = &x.m->layers[1];
        const struct ntx_router *r = &ntx_layer_find(l, NTX_OP_ROUTE)->router;
        const struct ntx_step *a = ntx_layer_find(l, NTX_OP_ATTEND), *rope = ntx_layer_find(l, NTX_OP_ROPE);
        CHECK(h->n_layers == 3 && h->n_nextn == 1 && h->n_dense == 1 && h->n_ff_shexp == 96 && h->n_expert == 6);
        CHECK(h->head_k == 24 && h->head_v == 20 && h->kv_lora == 40 && h->kv_joined == joined && h->q_lora == (joined ? 0 : 36) && h->n_head_kv == 1);
        CHECK(ntx_kept_heads(h, 0) == 1 && ntx_kept_k(h, 0) == 48 && ntx_kept_v(h, 0) == 0);
        CHECK(r->score == (joined ? NTX_SCORE_SOFTMAX : NTX_SCORE_SIGMOID) && r->norm == !joined && r->n_groups == 3 && r->groups_used == 2);
        CHECK(a->latent && a->width == 80 && fabsf(a->scale * sqrtf(24) - 1) < 1e-6f);
        CHECK(rope->pairs == NTX_ROPE_NORM && rope->rotated == 8 && rope->offset == 40 && rope->width == 48);
        CHECK_STR(name_of(&x, l->kv_b), joined ? "blk.1.attn_kv_b.weight" : "none");
        CHECK_STR(name_of(&x, l->k_b), joined ? "none" : "blk.1.attn_k_b.weight");
        CHECK_STR(name_of(&x, l->q_b), joined ? "none" : "blk.1.attn_q_b.weight");
        CHECK_STR(name_of(&x, l->q), joined ? "blk.1.attn_q.weight" : "none");
        CHECK_STR(name_of(&x, x.m->layers[0].router), "none");
        close_model(&x);
    }
}

/* With YaRN scores have a magnitude, and what is rotated has none where a key tells the multiplier: DeepSeek-V3's is 1, V2's 0.707. */
static void check_magnitudes(void)
{
    static const struct { float tenth, by, told; } is[] = {{0.1f, 1, 0}, {0.0707f, 0.707f, 0}, {0, 0, 0}, {0.1f, 1, 1.3f}, {0, 0, 1.3f}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct mk_options o = latent_options(false);
        o.rope_scaling = "yarn";
        o.rope_factor = 40;
        o.rope_orig = 16;
        o.log_multiplier = is[i].tenth;
        o.yarn_magnitude = is[i].told;
        struct opened x = open_model(&o);
        float whole = 1 + 0.1f * logf(40), told = is[i].told, m = is[i].by > 0 ? 1 + 0.1f * is[i].by * logf(40) : told > 0 ? 1 : whole;
        CHECK(fabsf(x.m->hp.rope_attn_factor * (told > 0 || is[i].by > 0 ? whole : 1) - (told > 0 ? told : 1)) < 1e-6f);
        CHECK(fabsf(ntx_layer_find(x.m->layers, NTX_OP_ATTEND)->scale * sqrtf(24) - m * m) < 1e-5f);
        close_model(&x);
    }
}

/* ---- deepseek32, glm-dsa */

static struct mk_options choosing_options(const char *arch, uint32_t every)
{
    struct mk_options o = latent_options(false);
    o.arch = arch;
    o.layers = 5;
    o.index_heads = 20;
    o.index_head = 48;
    o.index_most = 7;
    o.index_every = every;
    return o;
}

/* Hy 4: a gate and sinks, keys of which the end is rotated, streams that are not mixed with one another. */
static void check_hy4(void)
{
    struct mk_options o = choosing_options("hy_v4", 2);
    o.nextn = 0;
    o.dense = 1;
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    const struct ntx_layer *l = x.m->layers;
    const struct ntx_step *weigh = ntx_layer_find(l, NTX_OP_MIXW), *gate = ntx_layer_find(l, NTX_OP_GATE), *a = ntx_layer_find(l, NTX_OP_ATTEND), *norm = ntx_layer_find(l, NTX_OP_LAYERNORM);
    const struct ntx_step *experts = ntx_layer_find(&l[1], NTX_OP_EXPERTS);
    CHECK(h->streams.n == 4 && !h->streams.rounds && h->router.score == NTX_SCORE_SIGMOID && h->n_dense == 1);
    CHECK(weigh->width == 8 && weigh->scale == 1.5f && !weigh->rounds && ntx_layer_find(l, NTX_OP_SPREAD)->each && ntx_layer_find(&l[4], NTX_OP_MIX)->heads == 4);
    CHECK(gate->in[1] == NTX_BUF_POOL_GATE && gate->width == h->n_head * h->head_v && !gate->by_head && a->latent && a->chosen && ntx_chooses(h, 0) && !ntx_chooses(h, 1) && ntx_chooses(h, 2));
    CHECK(norm->eps == h->rms_eps && norm[1].op == NTX_OP_ROPE && norm[1].offset == 40 && norm[1].rotated == 8 && norm[1].pairs == NTX_ROPE_NORM && !ntx_layer_find(l, NTX_OP_HADAMARD));
    CHECK(experts->hidden.limit == 1.5f && experts->hidden.gate_limit == 1.5f && experts->shared.limit == 0 && ntx_layer_find(l, NTX_OP_GLU)->hidden.limit == 0);
    CHECK_STR(name_of(&x, l[1].latent_gate), "blk.1.attn_gate.weight");
    CHECK_STR(name_of(&x, l[1].sinks), "blk.1.attn_sinks.weight");
    CHECK_STR(name_of(&x, l[4].head_mix), "output_hc_fn.weight");
    close_model(&x);
    refuse_delta(&o, "hy_v4.hyper_connection.magnitude", "hy_v4.hyper_connection.magnituda", -EINVAL, "key 'hy_v4.hyper_connection.magnitude' is missing");
    refuse_delta(&o, "hy_v4.attention.indexer.types", "hy_v4.attention.indexer.tipes", -EINVAL, "key 'hy_v4.attention.indexer.types' is missing: which layers choose positions");
    refuse_delta(&o, "blk.3.attn_sinks.weight", "blk.3.attn_sonks.weight", -EINVAL, "tensor 'blk.3.attn_sinks.weight' is missing; a hy_v4 model needs it");
    refuse_delta(&o, "hy_v4.attention.q_lora_rank", "hy_v4.attention.q_lora_runk", -EINVAL, "key 'hy_v4.attention.q_lora_rank' is missing");
    o.rope_scaling = "yarn";
    o.rope_factor = 4;
    refuse_delta(&o, NULL, NULL, -ENOTSUP, "a hy_v4 model with scaled rotation is not supported");
    o.rope_scaling = "none";
    o.index_heads = 0; /* all positions */
    x = open_model(&o);
    CHECK(!x.m->hp.index.head && !ntx_layer_find(x.m->layers, NTX_OP_CHOOSE) && !ntx_layer_find(x.m->layers, NTX_OP_ATTEND)->chosen);
    close_model(&x);
}

/* Layers that choose have queries, keys and weights of their own, and keep the keys; the others go by them. */
static void check_choosing(const char *arch, uint32_t every)
{
    struct mk_options o = choosing_options(arch, every);
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    CHECK(h->index.heads == 20 && h->index.head == 48 && h->index.most == 7 && h->router.score == NTX_SCORE_SIGMOID);
    for (uint32_t i = 0; i < 5; i++) {
        const struct ntx_layer *l = &x.m->layers[i];
        const struct ntx_step *c = ntx_layer_find(l, NTX_OP_CHOOSE), *put = ntx_layer_find(l, NTX_OP_PUT), *turn = ntx_layer_find(l, NTX_OP_HADAMARD);
        bool chooses = !every || i % every == 0;
        CHECK(ntx_layer_find(l, NTX_OP_ATTEND)->chosen && ntx_chooses(h, i) == chooses && (c != NULL) == chooses && (l->index_k != NTX_NO_TENSOR) == chooses);
        CHECK(ntx_kept_k(h, i) == 48 && ntx_kept_v(h, i) == (chooses ? 48 : 0) && put->in[1] == (chooses ? NTX_BUF_V : NTX_BUF_NONE));
        CHECK(!c || (c->heads == 20 && c->width == 48 && c->most == 7 && fabsf(c->scale * sqrtf(960) - 1) < 1e-6f));
        CHECK(!c || (turn[-1].rotated == 8 && !turn[-1].offset && turn[-1].pairs == (strcmp(arch, "glm-dsa") ? NTX_ROPE_NEOX : NTX_ROPE_NORM)));
    }
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_Z), 960);
    close_model(&x);
}

/* GLM-5.2's files without a list go by their context's length; where layers that go by another's choice have the tensors all the same, they are let be. */
static void check_unread(void)
{
    struct mk_options o = choosing_options("glm-dsa", 0);
    o.ctx = 1 << 20;
    struct opened x = open_model(&o);
    for (uint32_t l = 0; l < 5; l++)
        CHECK(ntx_chooses(&x.m->hp, l) == (l < 3) && (x.m->layers[l].index_k != NTX_NO_TENSOR) == (l < 3));
    close_model(&x);
}

static void refuse_choice(const char *arch, const char *key, uint32_t v, const char *renamed, int rc, const char *text)
{
    struct mk_options o = choosing_options(arch, strcmp(arch, "glm-dsa") ? 0 : 2);
    size_t n;
    uint8_t *p = make_bytes_with(&o, NULL, &n);
    if (renamed)
        rename_in(p, n, key, renamed);
    else
        set_u32(p, n, key, v);
    finish(p, n, rc, text);
}

static void refuse_choices(void)
{
    refuse_choice("deepseek32", "deepseek32.attention.indexer.head_count", 129, NULL, -EINVAL, "key 'deepseek32.attention.indexer.head_count' is 129; 1 to 128 are possible");
    refuse_choice("deepseek32", "deepseek32.attention.indexer.key_length", 40, NULL, -ENOTSUP, "key 'deepseek32.attention.indexer.key_length' is 40; multiples of 16 are supported");
    refuse_choice("deepseek32", "deepseek32.attention.indexer.key_length", 64, NULL, -EINVAL, "is 64 x 48 x 1 x 1, expected 64 x 64");
    refuse_choice("deepseek32", "deepseek32.attention.indexer.top_k", 0, NULL, -EINVAL, "key 'deepseek32.attention.indexer.top_k' is 0; 1 to 4294967295 are possible");
    refuse_choice("deepseek32", "deepseek32.attention.indexer.top_k", 0, "deepseek32.attention.indexer.types", -EINVAL, "key 'deepseek32.attention.indexer.top_k' is missing");
    refuse_choice("glm-dsa", "glm-dsa.attention.indexer.types", 0, "glm-dsa.attention.indexer.tipes", -EINVAL, "tensor 'blk.1.indexer.attn_k.weight' is missing; a glm-dsa model needs it");
    refuse_choice("glm-dsa", "glm-dsa.attention.q_lora_rank", 0, "glm-dsa.attention.q_lora_runk", -EINVAL, "key 'glm-dsa.attention.q_lora_rank' is missing; a glm-dsa model needs it");
    refuse_choice("glm-dsa", "blk.2.indexer.k_norm.bias", 0, "blk.2.indexer.k_nurm.bias", -EINVAL, "tensor 'blk.2.indexer.k_norm.bias' is missing; a glm-dsa model needs it");
}

/* ---- deepseek4 */

static struct mk_options pooled_options(void)
{
    struct mk_options o = moe_options("deepseek4");
    o.layers = 4;
    o.heads = 4;
    o.kv = 1;
    o.head_dim = 48;
    o.rotated = 16;
    o.q_lora = 36;
    o.o_parts = 4;
    o.o_lora = 20;
    o.shared_ff = 2 * o.expert_ff;
    o.window = 11;
    o.hashed = 2;
    o.index_heads = 12;
    o.index_head = 32;
    o.index_most = 7;
    o.nextn = 1;
    return o;
}

/* YaRN is of layers that pool, and scales no magnitude, of none; a magnitude that the file tells is theirs, and the others, which have no YaRN, have none. */
static void check_pooled_yarn(void)
{
    struct mk_options o = pooled_options();
    o.rope_scaling = "yarn";
    o.rope_factor = 8;
    for (int told = 0; told < 2; told++) {
        o.yarn_magnitude = told ? 1.3f : 0;
        struct opened x = open_model(&o);
        const struct ntx_hparams *h = &x.m->hp;
        CHECK(h->rope_scaling == NTX_ROPE_SCALE_YARN && h->rope_factor == 8 && h->rope_factor_window == 1 && h->plain_window);
        CHECK(fabsf(h->rope_attn_factor * (1 + 0.1f * logf(8)) - (told ? 1.3f : 1)) < 1e-6f);
        close_model(&x);
    }
}

/* What a layer does that pools nothing (0, 3), 4 positions (1), and 128 (2); experts follow from the token in two layers, and the last one joins the streams. */
static void check_pooled(void)
{
    struct mk_options o = pooled_options();
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    static const uint32_t every[] = {0, 4, 128, 0}, spans[] = {0, 2, 1, 0};
    CHECK(h->streams.n == 4 && h->streams.rounds == 20 && h->v_is_k && h->o_parts == 4 && h->o_lora == 20 && h->router.score == NTX_SCORE_SQRT_SOFTPLUS && h->limit == 1.5f);
    CHECK(h->rope_base_window == o.rope_base && h->rope_base == 16 * o.rope_base && h->plain_window && h->n_nextn == 1 && ntx_count_recurrent(h) == 2);
    for (uint32_t i = 0; i < 4; i++) {
        const struct ntx_layer *l = &x.m->layers[i];
        const struct ntx_step *pool = ntx_layer_find(l, NTX_OP_POOL), *attend = ntx_layer_find(l, NTX_OP_ATTEND), *choose = ntx_layer_find(l, NTX_OP_CHOOSE);
        CHECK(h->pool[i] == every[i] && ntx_pool_spans(h, i) == spans[i] && attend->every == every[i] && attend->window == 11 && ntx_windowed(h, i));
        CHECK((pool != NULL) == (every[i] != 0) && (!pool || (pool->every == every[i] && pool->spans == spans[i] && pool->offset == 32 && pool->turn == NTX_TURN_ALL)));
        CHECK((choose != NULL) == (i == 1) && attend->chosen == (i == 1) && (!choose || (choose->every == 4 && choose->most == 7)));
        CHECK(attend[1].back && attend[1].turn == (every[i] ? NTX_TURN_ALL : NTX_TURN_WINDOW) && attend[2].parts == 4);
        CHECK((l->token_experts != NTX_NO_TENSOR) == (i < 2) && (l->router_choice != NTX_NO_TENSOR) == (i >= 2) && (l->head_mix != NTX_NO_TENSOR) == (i == 3));
        CHECK(ntx_kept_k(h, i) == 48 && !ntx_kept_v(h, i));
    }
    CHECK_EQ(ntx_pool_row(h, 1), 2 * 2 * (48 + 32));
    CHECK_EQ(ntx_pool_row(h, 2), 2 * 48);
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_STREAMS), 4 * o.embd);
    close_model(&x);
}

static void refuse_pooled(const char *key, uint32_t v, const char *renamed, int rc, const char *text)
{
    struct mk_options o = pooled_options();
    size_t n;
    uint8_t *p = make_bytes_with(&o, NULL, &n);
    if (renamed)
        rename_in(p, n, key, renamed);
    else
        set_u32(p, n, key, v);
    finish(p, n, rc, text);
}

static void refuse_pools(void)
{
    refuse_pooled("deepseek4.hyper_connection.count", 2, NULL, -ENOTSUP, "key 'deepseek4.hyper_connection.count' is 2; 4 residual streams are supported");
    refuse_pooled("deepseek4.hyper_connection.epsilon", 0, "deepseek4.hyper_connection.epsilom", -EINVAL, "key 'deepseek4.hyper_connection.epsilon' is missing");
    refuse_pooled("deepseek4.attention.compress_ratios", 0, "deepseek4.attention.compress_ratiom", -EINVAL, "key 'deepseek4.attention.compress_ratios' is not a list of a number for each of 4 layers");
    refuse_pooled("deepseek4.attention.output_group_count", 3, NULL, -ENOTSUP, "4 heads of 48 values in 3 parts: equal parts of a multiple of 16 are supported");
    refuse_pooled("deepseek4.attention.output_lora_rank", 24, NULL, -EINVAL, "tensor 'blk.0.attn_output_a.weight' is 48 x 80 x 1 x 1, expected 48 x 96");
    refuse_pooled("deepseek4.attention.head_count_kv", 2, NULL, -ENOTSUP, "2 heads of K of 48 values, and V of 48: one of a multiple of 16, which is both, is supported with a deepseek4 model");
    refuse_pooled("deepseek4.attention.indexer.key_length", 40, NULL, -ENOTSUP, "key 'deepseek4.attention.indexer.key_length' is 40; multiples of 16 are supported");
    refuse_pooled("deepseek4.expert_gating_func", 2, NULL, -ENOTSUP, "key 'deepseek4.expert_gating_func' is 2: with this architecture only the root of a softplus (4) is supported");
    refuse_pooled("deepseek4.hash_layer_count", 3, NULL, -EINVAL, "tensor 'blk.2.ffn_gate_tid2eid.weight' is missing; a deepseek4 model needs it");
    refuse_pooled("deepseek4.hash_layer_count", 5, NULL, -EINVAL, "key 'deepseek4.hash_layer_count' is 5; 0 to 4 are possible");
    refuse_pooled("blk.1.indexer_compressor_ape.weight", 0, "blk.1.indexer_compressor_ap_.weight", -EINVAL, "tensor 'blk.1.indexer_compressor_ape.weight' is missing; a deepseek4 model needs it");
    refuse_pooled("output_hc_base.weight", 0, "output_hc_bass.weight", -EINVAL, "tensor 'output_hc_base.weight' is missing; a deepseek4 model needs it");
    refuse_pooled("deepseek4.swiglu_clamp_exp", 0, "deepseek4.swiglu_clamp_exq", -EINVAL, "key 'deepseek4.swiglu_clamp_exp' is missing");
}

static void refuse_latent(const char *key, uint32_t v, const char *renamed, int rc, const char *text)
{
    struct mk_options o = latent_options(false);
    size_t n;
    uint8_t *p = make_bytes_with(&o, NULL, &n);
    if (renamed)
        rename_in(p, n, key, renamed);
    else
        set_u32(p, n, key, v);
    finish(p, n, rc, text);
}

static void refuse_latents(void)
{
    refuse_latent("deepseek2.attention.kv_lora_rank", 0, NULL, -EINVAL, "key 'deepseek2.attention.kv_lora_rank' is 0; 1 to 1016 are possible");
    refuse_latent("deepseek2.attention.kv_lora_rank", 32, NULL, -EINVAL, "key 'deepseek2.attention.key_length' is 48, of 1 heads: latents of 32 values with 8 rotated ones");
    refuse_latent("deepseek2.attention.kv_lora_rank", 0, "deepseek2.attention.kv_lara_rank", -EINVAL, "key 'deepseek2.attention.kv_lora_rank' is missing");
    refuse_latent("deepseek2.attention.key_length_mla", 0, "deepseek2.attention.key_length_mlo", -EINVAL, "key 'deepseek2.attention.key_length_mla' is missing");
    refuse_latent("deepseek2.attention.value_length_mla", 0, "deepseek2.attention.value_length_mlo", -EINVAL, "key 'deepseek2.attention.key_length_mla' is 24; 0 to 0 are possible");
    refuse_latent("deepseek2.attention.key_length_mla", 8, NULL, -EINVAL, "8 of a head's 8 values are rotated: some are not in a deepseek2 model");
    refuse_latent("deepseek2.attention.q_lora_rank", 35, NULL, -EINVAL, "is 64 x 36 x 1 x 1, expected 64 x 35");
    refuse_latent("blk.1.attn_v_b.weight", 0, "blk.1.attn_w_b.weight", -EINVAL, "tensor 'blk.1.attn_v_b.weight' is missing; a deepseek2 model needs it");
}

static void check_expert_refusals(void)
{
    struct mk_options o = make_options();
    size_t n;
    refuse_moe(NULL, "qwen3moe.expert_count", 0, -EINVAL, "key 'qwen3moe.expert_count' is 0; 1 to 1024 are possible");
    refuse_moe(NULL, "qwen3moe.expert_count", 5000, -EINVAL, "key 'qwen3moe.expert_count' is 5000; 1 to 1024 are possible");
    refuse_moe(NULL, "qwen3moe.expert_count", 5, -EINVAL, "tensor 'blk.0.ffn_gate_inp.weight' is 64 x 6 x 1 x 1, expected 64 x 5");
    refuse_moe(NULL, "qwen3moe.expert_used_count", 0, -EINVAL, "key 'qwen3moe.expert_used_count' is 0; 1 to 6 are possible");
    refuse_moe(NULL, "qwen3moe.expert_used_count", 7, -EINVAL, "key 'qwen3moe.expert_used_count' is 7; 1 to 6 are possible");
    refuse_moe(NULL, "qwen3moe.expert_feed_forward_length", 64, -EINVAL, "is 64 x 48 x 6 x 1, expected 64 x 64 x 6");
    refuse_moe(NULL, "qwen3moe.expert_feed_forward_length", 0, -EINVAL, "key 'qwen3moe.expert_feed_forward_length' is 0");
    refuse_moe(add_uneven_groups, NULL, 0, -EINVAL, "key 'qwen3moe.expert_group_count' is 4: 6 experts are not so many groups of two or more");
    refuse_moe(add_single_groups, NULL, 0, -EINVAL, "key 'qwen3moe.expert_group_count' is 6: 6 experts are not so many groups of two or more");
    refuse_moe(add_groups, NULL, 0, -EINVAL, "key 'qwen3moe.expert_group_used_count' is missing");
    refuse_moe(add_used_groups, "qwen3moe.expert_used_count", 3, -EINVAL, "key 'qwen3moe.expert_group_used_count' is 1: a row uses 3 experts, more than there are in so many of 3 groups");
    refuse_moe(add_sigmoid, NULL, 0, -ENOTSUP, "key 'qwen3moe.expert_gating_func' is 2: only a softmax");
    refuse_moe(add_norm_number, NULL, 0, -EINVAL, "key 'qwen3moe.expert_weights_norm' is neither true nor false");
    o.arch = "qwen3";
    uint8_t *p = make_bytes_with(&o, add_qwen3_experts, &n);
    finish(p, n, -ENOTSUP, "key 'qwen3.expert_count' is 4: a qwen3 model has no experts");
    o = moe_options("qwen3moe");
    struct ntx_model *m;
    struct ntx_err err = {0};
    p = make_bytes_with(&o, add_scale, &n);
    struct ntx_gguf *g = parse_ok(p, n);
    CHECK_MSG(!ntx_model_open(g, &m, &err), "%s", err.text);
    CHECK(m->hp.router.scale == 2.5f && !m->hp.router.norm);
    ntx_model_free(m);
    ntx_gguf_free(g);
    free(p);
}

/* Accepted; what became of it. */
static struct ntx_hparams accepted(void (*extra)(struct mk_file *f))
{
    struct ntx_err err = {0};
    struct ntx_model *m;
    size_t n;
    uint8_t *p = with(extra, &n);
    struct ntx_gguf *g = parse_ok(p, n);
    CHECK_MSG(!ntx_model_open(g, &m, &err), "%s", err.text);
    struct ntx_hparams h = m->hp;
    ntx_model_free(m);
    ntx_gguf_free(g);
    free(p);
    return h;
}

int main(void)
{
    check_llama();
    check_llama3();
    check_steps();
    check_qwen();
    check_numbers();
    check_names();
    check_texts();
    check_extra_keys();
    check_experts();
    check_expert_refusals();
    check_scales();
    refuse_scales();
    check_gpt_oss();
    check_deltas();
    refuse_deltas();
    check_step();
    check_kimi();
    refuse_kimi();
    check_glm5();
    refuse_glm5();
    check_qwen4();
    refuse_qwen4();
    check_glm4moe();
    refuse_glms();
    check_deepseek2();
    check_magnitudes();
    refuse_latents();
    check_choosing("deepseek32", 0);
    check_choosing("glm-dsa", 0);
    check_choosing("glm-dsa", 2);
    check_hy4();
    check_unread();
    refuse_choices();
    check_pooled();
    check_pooled_yarn();
    refuse_pools();
    CHECK_EQ(accepted(add_equal).n_head_kv, 2);
    CHECK_EQ(accepted(add_window).ctx_train, 100);
    struct ntx_hparams h = accepted(add_old_scale);
    CHECK(h.rope_scaling == NTX_ROPE_SCALE_LINEAR && h.rope_factor == 4);
    return 0;
}
