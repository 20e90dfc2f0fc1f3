/* SPDX-License-Identifier: Apache-2.0 */
/* arch_experts.c: routers, experts and shared ones. */
#include "tests/unit/model/opened.h"

static void check_experts(void)
{
    static const struct {
        const char *arch, *first_gate;
        uint32_t shared;
        bool norm;
    } is[] = {
        {"llama", "none", 0, true},
        {"qwen2moe", "blk.1.ffn_gate_inp_shexp.weight", 80, false},
        {"qwen3moe", "none", 0, true},
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
static void add_softmax_of_routed(struct mk_file *f) { mk_kv_u32(f, "gpt-oss.expert_gating_func", 3); }

static void check_gpt_oss(void)
{
    struct mk_options o = moe_options("gpt-oss");
    o.window = 9;
    o.layers = 4;
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    CHECK(rope_of(x.m) == NTX_ROPE_NEOX &&
          ntx_layer_find(x.m->layers, NTX_OP_EXPERTS)->experts.hidden.act == NTX_FFN_SILU_CLAMPED &&
          ntx_layer_find(x.m->layers, NTX_OP_ROUTE)->route.norm && h->n_ff_exp == 48 && h->ctx_train > 9);
    CHECK(window_of(&x.m->layers[0]) == 9 && window_of(&x.m->layers[1]) == 0 && window_of(&x.m->layers[2]) == 9 &&
          window_of(&x.m->layers[3]) == 0);
    CHECK_STR(name_of(&x, x.m->layers[1].ffn_norm), "blk.1.post_attention_norm.weight");
    CHECK_STR(name_of(&x, x.m->layers[1].sinks), "blk.1.attn_sinks.weight");
    CHECK_STR(name_of(&x, x.m->layers[3].router_bias), "blk.3.ffn_gate_inp.bias");
    CHECK_STR(name_of(&x, x.m->layers[3].expert_up_bias), "blk.3.ffn_up_exps.bias");
    CHECK_STR(name_of(&x, x.m->layers[3].expert_down_bias), "blk.3.ffn_down_exps.bias");
    close_model(&x);
    for (int oss = 0; oss < 2; oss++) { /* its configuration has "truncate": false */
        struct mk_options yarn = oss ? o : moe_options("qwen3moe");
        yarn.rope_scaling = "yarn";
        yarn.rope_factor = 32;
        yarn.rope_orig = 16;
        x = open_model(&yarn);
        CHECK(x.m->hp.rope_scaling == NTX_ROPE_SCALE_YARN && x.m->hp.yarn_exact == oss);
        close_model(&x);
    }
    o = moe_options("gpt-oss");
    refuse(&o, "blk.1.attn_sinks.weight", "blk.1.attn_sunks.weight", -EINVAL,
           "tensor 'blk.1.attn_sinks.weight' is missing; a gpt-oss model needs it");
    refuse(&o, "blk.0.ffn_up_exps.bias", "blk.0.ffn_op_exps.bias", -EINVAL,
           "tensor 'blk.0.ffn_up_exps.bias' is missing");
    refuse(&o, "blk.0.post_attention_norm.weight", "blk.0.past_attention_norm.weight", -EINVAL,
           "tensor 'blk.0.post_attention_norm.weight' is missing");
    refuse(&o, "gpt-oss.attention.sliding_window", "gpt-oss.attention.sliding_windaw", -EINVAL,
           "key 'gpt-oss.attention.sliding_window' is missing");
    size_t n;
    uint8_t *p = make_bytes_with(&o, NULL, &n);
    memcpy(value_of(p, n, "blk.0.ffn_down_exps.bias") + 12 + 8, &(uint32_t){1}, 4); /* its type */
    finish(p, n, -EINVAL, "tensor 'blk.0.ffn_down_exps.bias' is F16; it must be F32");
    o.layers = 3;
    o.window = 9;
    void (*const extra[])(struct mk_file *) = {add_every_third, add_softmax_of_routed};
    for (int i = 0; i < 2; i++) {
        x = open_with(&o, extra[i]);
        CHECK(x.m->hp.router.norm && x.m->hp.windowed[0] == (i ? 1u | 1u << 2 : 1u | 1u << 1));
        CHECK(!window_of(&x.m->layers[i ? 1 : 2]));
        close_model(&x);
    }
}

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
    const struct ntx_router *r = &ntx_layer_find(&l[1], NTX_OP_ROUTE)->route;
    CHECK(h->n_layers == 3 && h->n_nextn == 1 && h->n_dense == 1 && h->n_ff_shexp == 96);
    CHECK(r->score == NTX_SCORE_SIGMOID && r->norm && r->scale == 2.5f);
    CHECK(rope_of(x.m) == NTX_ROPE_NEOX && ntx_layer_find(l, NTX_OP_ROPE)->rope.rotated == 8 &&
          ntx_layer_find(l, NTX_OP_ROPE)->width == h->head_k);
    CHECK(ntx_layer_find(&l[0], NTX_OP_GLU) && !ntx_layer_find(&l[0], NTX_OP_EXPERTS) &&
          !ntx_layer_find(&l[1], NTX_OP_GLU));
    CHECK_STR(name_of(&x, l[0].router), "none");
    CHECK_STR(name_of(&x, l[0].ffn_norm), "blk.0.post_attention_norm.weight");
    CHECK_STR(name_of(&x, l[1].gate), "none");
    CHECK_STR(name_of(&x, l[2].router_select), "blk.2.exp_probs_b.bias");
    CHECK_STR(name_of(&x, l[2].shared_gate), "none");
    CHECK_STR(name_of(&x, l[2].down_shared), "blk.2.ffn_down_shexp.weight");
    for (uint32_t i = 0; i < h->n_layers; i++) /* nothing of the block behind them */
        for (int t = 0; t < NTX_N_TENSORS; t++) {
            static const char *const blocks[] = {"blk.0.", "blk.1.", "blk.2."};
            CHECK(l[i].tensor[t] == NTX_NO_TENSOR || !strncmp(name_of(&x, l[i].tensor[t]), blocks[i], 6));
        }
    close_model(&x);
}

static void refuse_glms(void)
{
    const struct mk_options o = glm_options();
    refuse(&o, "blk.1.exp_probs_b.bias", "blk.1.exp_probs_c.bias", -EINVAL,
           "tensor 'blk.1.exp_probs_b.bias' is missing; a glm4moe model needs it");
    refuse(&o, "glm4moe.expert_shared_count", "glm4moe.expert_shared_caunt", -EINVAL,
           "key 'glm4moe.expert_shared_count' is missing");
    refuse(&o, "blk.3.nextn.enorm.weight", "blk.3.nexto.enorm.weight", -ENOTSUP,
           "tensor 'blk.3.nexto.enorm.weight' has no place in a glm4moe model of 3 layers");
    refuse(&o, "blk.3.nextn.enorm.weight", "blk.4.nextn.enorm.weight", -ENOTSUP,
           "tensor 'blk.4.nextn.enorm.weight' has no place");
    refuse(&o, "glm4moe.nextn_predict_layers", "glm4moe.nextn_predict_liyers", -ENOTSUP,
           "tensor 'blk.3.nextn.eh_proj.weight' has no place in a glm4moe model of 4 layers");
    refuse(&o, "glm4moe.leading_dense_block_count", "glm4moe.leading_dense_block_caunt", -EINVAL,
           "tensor 'blk.0.ffn_gate_inp.weight' is missing");
}

static void add_scale(struct mk_file *f)
{
    mk_kv_f32(f, "qwen3moe.expert_weights_scale", 2.5f);
    mk_kv_bool(f, "qwen3moe.expert_weights_norm", false);
}
static void add_uneven_groups(struct mk_file *f) { mk_kv_u32(f, "qwen3moe.expert_group_count", 4); }
static void add_single_groups(struct mk_file *f) { mk_kv_u32(f, "qwen3moe.expert_group_count", 6); }
static void add_groups(struct mk_file *f) { mk_kv_u32(f, "qwen3moe.expert_group_count", 3); }
static void add_used_groups(struct mk_file *f)
{
    add_groups(f);
    mk_kv_u32(f, "qwen3moe.expert_group_used_count", 1);
}
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

static void check_expert_refusals(void)
{
    struct mk_options o = make_options();
    refuse_moe(NULL, "qwen3moe.expert_count", 0, -EINVAL, "key 'qwen3moe.expert_count' is 0; 1 to 1024 are possible");
    refuse_moe(NULL, "qwen3moe.expert_count", 5000, -EINVAL,
               "key 'qwen3moe.expert_count' is 5000; 1 to 1024 are possible");
    refuse_moe(NULL, "qwen3moe.expert_count", 5, -EINVAL,
               "tensor 'blk.0.ffn_gate_inp.weight' is 64 x 6 x 1 x 1, expected 64 x 5");
    refuse_moe(NULL, "qwen3moe.expert_used_count", 0, -EINVAL,
               "key 'qwen3moe.expert_used_count' is 0; 1 to 6 are possible");
    refuse_moe(NULL, "qwen3moe.expert_used_count", 7, -EINVAL,
               "key 'qwen3moe.expert_used_count' is 7; 1 to 6 are possible");
    refuse_moe(NULL, "qwen3moe.expert_feed_forward_length", 64, -EINVAL, "is 64 x 48 x 6 x 1, expected 64 x 64 x 6");
    refuse_moe(NULL, "qwen3moe.expert_feed_forward_length", 0, -EINVAL,
               "key 'qwen3moe.expert_feed_forward_length' is 0");
    refuse_moe(add_uneven_groups, NULL, 0, -EINVAL,
               "key 'qwen3moe.expert_group_count' is 4: 6 experts are not so many groups of two or more");
    refuse_moe(add_single_groups, NULL, 0, -EINVAL,
               "key 'qwen3moe.expert_group_count' is 6: 6 experts are not so many groups of two or more");
    refuse_moe(add_groups, NULL, 0, -EINVAL, "key 'qwen3moe.expert_group_used_count' is missing");
    refuse_moe(add_used_groups, "qwen3moe.expert_used_count", 3, -EINVAL,
               "key 'qwen3moe.expert_group_used_count' is 1: a row uses 3 experts, more than there are in so many of 3 "
               "groups");
    refuse_moe(add_sigmoid, NULL, 0, -ENOTSUP, "key 'qwen3moe.expert_gating_func' is 2: only a softmax");
    refuse_moe(add_norm_number, NULL, 0, -EINVAL, "key 'qwen3moe.expert_weights_norm' is neither true nor false");
    o.arch = "qwen3";
    refuse_with(&o, add_qwen3_experts, -ENOTSUP, "key 'qwen3.expert_count' is 4: a qwen3 model has no experts");
    o = moe_options("qwen3moe");
    struct opened x = open_with(&o, add_scale);
    CHECK(x.m->hp.router.scale == 2.5f && !x.m->hp.router.norm);
    close_model(&x);
}

int main(void)
{
    check_experts();
    check_expert_refusals();
    check_gpt_oss();
    check_glm4moe();
    refuse_glms();
    return 0;
}
