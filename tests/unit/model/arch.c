/* SPDX-License-Identifier: Apache-2.0 */
/* arch.c: hyper-parameters and tensors of the architectures, their defaults, and what is refused by name. Special
 * cases of some architectures are in arch_attention.c, arch_experts.c, arch_latents.c and arch_states.c. */
#include "model/quant.h"
#include "tests/unit/model/opened.h"

static void check_llama(void)
{
    struct mk_options o = make_options();
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    CHECK_STR(h->arch, "llama");
    CHECK_STR(h->name, "tiny");
    CHECK(h->n_layers == 2 && h->n_embd == 64 && h->n_ff == 96 && h->n_head == 4 && h->n_head_kv == 2 &&
          h->ctx_train == 128);
    CHECK(h->head_k == 16 && h->head_v == 16 && h->rope_dim == 16 && rope_of(x.m) == NTX_ROPE_NORM &&
          h->rope_base == 10000);
    CHECK(h->rms_eps == 1e-5f && h->rope_scaling == NTX_ROPE_SCALE_NONE && h->rope_factor == 1 &&
          h->rope_attn_factor == 1);
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

/* Checks the steps of a layer, and those that run for a row that only stores its K and V. */
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
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s%s", i ? " " : "",
                 ntx_op_name((enum ntx_op)l->step[i].op), l->step[i].feeds ? "*" : "");
    CHECK_STR(got, want);
    close_model(&x);
}

static void check_steps(void)
{
    expect_steps("phi3", 0, false, "NORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM ADD NORM MM MM GLU MM ADD");
    expect_steps("llama4", 4, false,
                 "NORM* MM MM* MM* ROPE ROPE* NORM NORM* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD");
    expect_steps(
        "gemma4", 0, false,
        "NORM* MM MM* MM* NORM* NORM NORM* ROPE ROPE* PUT* ATTEND MM NORM ADD NORM MM MM GLU MM NORM ADD SCALE");
    expect_steps("gemma2", 0, false, "NORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM NORM ADD NORM MM MM GLU MM NORM ADD");
    expect_steps("gemma3", 0, false,
                 "NORM* MM MM* MM* NORM NORM* ROPE ROPE* PUT* ATTEND MM NORM ADD NORM MM MM GLU MM NORM ADD");
    expect_steps("smollm3", 0, false, "NORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM ADD NORM MM MM GLU MM ADD");
    expect_steps("llama", 0, false, "NORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM ADD NORM MM MM GLU MM ADD");
    expect_steps("llama", 4, true,
                 "NORM* MM MM* MM* BIAS BIAS* BIAS* ROPE ROPE* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD");
    expect_steps("qwen3", 0, false, "NORM* MM MM* MM* NORM NORM* ROPE ROPE* PUT* ATTEND MM ADD NORM MM MM GLU MM ADD");
    expect_steps("deepseek", 4, false, "NORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD");
    expect_steps("glm4moe", 4, false, "NORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD");
    expect_steps("minimax-m2", 4, false,
                 "NORM* MM MM* MM* NORM NORM* ROPE ROPE* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD");
    expect_steps("olmoe", 4, false, "NORM* MM MM* MM* NORM NORM* ROPE ROPE* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD");
    expect_steps("gpt-oss", 4, false,
                 "NORM* MM MM* MM* BIAS BIAS* BIAS* ROPE ROPE* PUT* ATTEND MM BIAS ADD NORM ROUTE EXPERTS ADD");
}

static void check_qwen(void)
{
    struct mk_options o = make_options();
    o.arch = "qwen2";
    o.rope_scaling = "yarn";
    o.rope_factor = 4;
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    CHECK(rope_of(x.m) == NTX_ROPE_NEOX && h->rope_scaling == NTX_ROPE_SCALE_YARN && h->rope_factor == 4 &&
          h->rope_ctx_orig == 32);
    CHECK(h->yarn_ext_factor == 1 && h->yarn_beta_fast == 32 && h->yarn_beta_slow == 1 && h->rope_attn_factor == 1);
    CHECK_STR(name_of(&x, x.m->layers[0].k_bias), "blk.0.attn_k.bias");
    close_model(&x);
    o.yarn_magnitude = 1; /* the whole magnitude, not a factor of that of 4 */
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
    CHECK(rope_of(x.m) == NTX_ROPE_NEOX && h->rope_scaling == NTX_ROPE_SCALE_LINEAR && h->rope_factor == 4 &&
          h->head_k == 24);
    CHECK(h->yarn_ext_factor == 0 && h->rope_dim == 24);
    CHECK_STR(name_of(&x, x.m->layers[1].q_norm), "blk.1.attn_q_norm.weight");
    CHECK_EQ(ntx_gguf_tensor_at(x.g, x.m->layers[1].q)->ne[1], 96);
    close_model(&x);
}

/* A model to be changed by hand; p[0..n) is a llama model with linear RoPE scaling, to be freed by finish(). */
static uint8_t *base(size_t *n)
{
    struct mk_options o = make_options();
    o.rope_scaling = "linear";
    o.rope_factor = 2;
    return make_bytes(&o, n);
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
    refuse_number("llama.block_count", 3, -EINVAL,
                  "tensor 'blk.2.attn_norm.weight' is missing; a llama model needs it");
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
    finish(p, n, -ENOTSUP, "architecture 'gem?n' is not supported; `ntx plan --list` has those that are");
    p = base(&n);
    memcpy(value_of(p, n, "llama.rope.scaling.type") + 12, "longer", 6);
    finish(p, n, -EINVAL, "key 'llama.rope.scaling.type' names a scaling that is not supported");
    p = base(&n);
    memcpy(value_of(p, n, "token_embd.weight") + 12, &(uint64_t){5}, 8);
    finish(p, n, -EINVAL, "tokens, but tensor 'token_embd.weight' has 5 rows");
    p = base(&n);
    memcpy(value_of(p, n, "blk.0.attn_norm.weight") + 12, &(uint32_t){1}, 4); /* its type */
    finish(p, n, -EINVAL, "tensor 'blk.0.attn_norm.weight' is F16; it must be an F32 vector");
}

static void add_experts(struct mk_file *f) { mk_kv_u32(f, "llama.expert_count", 8); }
static void add_pattern(struct mk_file *f) { mk_kv_u32(f, "llama.attention.sliding_window_pattern", 4); }
static void add_tensor(struct mk_file *f) { mk_tensor_add(f, "blk.0.odd.weight", 0, 8, 0, 1); }
static void add_window(struct mk_file *f) { mk_kv_u32(f, "llama.attention.sliding_window", 100); }
static void add_equal(struct mk_file *f)
{
    mk_kv_arr(f, "llama.attention.head_count_kv", NTX_GGUF_I32, (int32_t[]){2, 2}, 2);
}
static void add_unequal(struct mk_file *f)
{
    mk_kv_arr(f, "llama.attention.head_count_kv", NTX_GGUF_U32, (int32_t[]){2, 4}, 2);
}
static void add_empty(struct mk_file *f) { mk_kv_arr(f, "llama.attention.head_count_kv", NTX_GGUF_U32, NULL, 0); }
static void add_old_scale(struct mk_file *f) { mk_kv_f32(f, "llama.rope.scale_linear", 4); }

static uint8_t *with(void (*extra)(struct mk_file *f), size_t *n)
{
    struct mk_options o = make_options();
    uint8_t *p = make_bytes_with(&o, extra, n);
    if (extra == add_equal || extra == add_unequal || extra == add_empty)
        rename_in(p, *n, "llama.attention.head_count_kv", "llama.attention.heed_count_kv"); /* the only number */
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

static struct mk_options scaled_options(void)
{
    struct mk_options o = moe_options("qwen3moe");
    o.experts = 4;
    o.expert_ff = 64;
    o.type = "NVFP4_ALL";
    o.scales = true;
    return o;
}

/* "X.scale" beside "X.weight", one for each expert; "X.input_scale" is ignored. */
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
    finish(p, n, -EINVAL, "tensor 'blk.0.ffn_up.scale' is F16; it must be an F32 vector");
    p = with(add_embd_scale, &n);
    finish(p, n, -ENOTSUP,
           "tensor 'token_embd.scale' has no place in a llama model of 2 layers; ntx quantize MODEL OUT.gguf Q8_0 puts "
           "such scales into the weights");
    p = with(add_input_scale, &n);
    finish(p, n, -ENOTSUP, "tensor 'blk.0.odd.input_scale' has no place");
}

/* The hyper-parameters of an accepted model. */
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
    check_scales();
    refuse_scales();
    CHECK_EQ(accepted(add_equal).n_head_kv, 2);
    CHECK_EQ(accepted(add_window).ctx_train, 100);
    struct ntx_hparams h = accepted(add_old_scale);
    CHECK(h.rope_scaling == NTX_ROPE_SCALE_LINEAR && h.rope_factor == 4);
    return 0;
}
