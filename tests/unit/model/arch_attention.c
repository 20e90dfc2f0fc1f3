/* SPDX-License-Identifier: Apache-2.0 */
/* arch_attention.c: architectures with special attention or RoPE: windows, caps, chunks, fused matrices. */
#include "model/chunk.h"
#include "tests/unit/model/opened.h"

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
    const struct ntx_temperature *t = &ntx_layer_find(x.m->layers, NTX_OP_ATTEND)->attend.temperature;
    CHECK(t->length == 32 && t->scale == 0.1f && !t->ahead);
    CHECK(fabsf(x.m->hp.rope_attn_factor * (1 + 0.1f * logf(4)) - 1) < 1e-6f);
    close_model(&x);
    o.yarn_magnitude = 1.3f; /* given, and not divided */
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
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    CHECK(h->embd_scale == sqrtf((float)h->n_embd) && h->rope_base_window == h->rope_base / 4 &&
          h->rope_factor_window == 1 && h->logit_cap == 0);
    for (uint32_t l = 0; l < 7; l++) {
        const struct ntx_layer *layer = &x.m->layers[l];
        CHECK_EQ(window_of(layer), l == 5 ? 0u : 9u);
        CHECK_EQ(ntx_layer_find(layer, NTX_OP_ROPE)->rope.angles, l == 5 ? NTX_ROTATION_ALL : NTX_ROTATION_WINDOW);
        CHECK_EQ(ntx_layer_find(layer, NTX_OP_GLU)->glu.hidden.act, NTX_FFN_GELU);
    }
    CHECK_STR(name_of(&x, x.m->layers[1].attn_post_norm), "blk.1.post_attention_norm.weight");
    CHECK_STR(name_of(&x, x.m->layers[1].ffn_post_norm), "blk.1.post_ffw_norm.weight");
    close_model(&x);
    x = open_with(&o, add_pairs);
    CHECK_EQ(x.m->hp.windowed[0], 1 | 1 << 2 | 1 << 4 | 1 << 6);
    close_model(&x);
    refuse_with(&o, add_window_dim, -ENOTSUP, "key 'gemma3.rope.dimension_count_swa' changes what a model computes");
}

static void check_gemma2(void)
{
    struct mk_options o = gemma_options("gemma2");
    struct opened x = open_model(&o);
    const struct ntx_step *attend = ntx_layer_find(&x.m->layers[2], NTX_OP_ATTEND);
    CHECK(attend->attend.cap == 5 && x.m->hp.logit_cap == 8 && attend->attend.window == 9 &&
          !window_of(&x.m->layers[3]));
    CHECK(ntx_layer_find(&x.m->layers[2], NTX_OP_ROPE)->rope.angles == NTX_ROTATION_ALL &&
          attend->scale == 1 / sqrtf((float)x.m->hp.head_k));
    close_model(&x);
    o.layers = 46; /* the largest one */
    x = open_model(&o);
    CHECK(x.m->hp.score_scale == 1 / sqrtf((float)(x.m->hp.n_embd / x.m->hp.n_head)));
    close_model(&x);
    refuse_with(&o, add_window_base, -ENOTSUP, "key 'gemma2.rope.freq_base_swa' changes what a model computes");
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
    CHECK(h->head_k == 32 && h->n_input == 8 && h->logit_cap == 8 && h->rope_dim == 32 && h->rope_dim_window == 16 &&
          !h->v_of_k && h->n_ff == 2 * o.ff);
    for (uint32_t l = 0; l < 6; l++) {
        const struct ntx_layer *layer = &x.m->layers[l];
        struct ntx_dims d = ntx_dims_of(h, l);
        bool full = l % 3 == 2;
        CHECK(d.head_k == (full ? 32 : 16) && d.n_head_kv == (full ? 1 : o.kv) && d.n_ff == (l < 3 ? o.ff : 2 * o.ff) &&
              d.kv_of == kv_of[l]);
        CHECK(window_of(layer) == (full ? 0 : 9) && ntx_layer_find(layer, NTX_OP_ATTEND)->scale == 1 &&
              !ntx_layer_find(layer, NTX_OP_PUT) == (l > 2));
        CHECK(ntx_layer_find(layer, NTX_OP_ROPE)->rope.rotated == (full ? 32 : 16) &&
              !ntx_layer_find(layer, NTX_OP_INPUTS) == (l > 0));
        CHECK((layer->k == NTX_NO_TENSOR) == (l > 2));
    }
    CHECK_STR(name_of(&x, x.m->input_embd), "per_layer_token_embd.weight");
    CHECK_STR(name_of(&x, x.m->layers[0].inputs_proj), "per_layer_model_proj.weight");
    CHECK_STR(name_of(&x, x.m->layers[4].input_proj), "blk.4.proj.weight");
    close_model(&x);
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
    CHECK(ntx_layer_find(l, NTX_OP_ROUTE)->route.norm && l->expert_gate == NTX_NO_TENSOR);
    CHECK_STR(name_of(&x, l->expert_gate_up), "blk.2.ffn_gate_up_exps.weight");
    CHECK_STR(name_of(&x, l->expert_scale), "blk.2.ffn_down_exps.scale");
    CHECK_STR(name_of(&x, l->router_scale), "blk.2.ffn_gate_inp.scale");
    close_model(&x);
}

static void refuse_gemma4s(void)
{
    struct mk_options o = gemma4_options();
    refuse(&o, "gemma4.attention.sliding_window_pattern", "gemma4.attention.sliding_window_pettern", -EINVAL,
           "key 'gemma4.attention.sliding_window_pattern' is missing, or no array");
    refuse(&o, "gemma4.embedding_length_per_layer_input", "gemma4.embedding_length_per_layer_inpat", -EINVAL,
           "key 'gemma4.embedding_length_per_layer_input' is missing");
    refuse(&o, "gemma4.attention.shared_kv_layers", "gemma4.attention.shared_kv_loyers", -EINVAL,
           "tensor 'blk.3.attn_k.weight' is missing");
    refuse(&o, "gemma4.attention.key_length_swa", "gemma4.attention.key_length_swo", -ENOTSUP,
           "heads of 32 and 32 values, within a window of 32 and 16");
    refuse(&o, "blk.4.inp_gate.weight", "blk.4.inp_gote.weight", -EINVAL, "tensor 'blk.4.inp_gate.weight' is missing");
    o.shared_kv = 2; /* layer 4 would read layer 2, which has no window */
    refuse(&o, NULL, NULL, -ENOTSUP, "layer 4 would read what layer 2 keeps, which is of another kind");
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
    CHECK(x.m->hp.qkv_fused && x.m->hp.gate_up_fused && l->q == l->k && l->k == l->v && l->gate == l->up &&
          x.m->hp.rope_attn_factor == 1.19f && x.m->hp.rope_ctx_orig == 64);
    CHECK_STR(name_of(&x, l->q), "blk.1.attn_qkv.weight");
    CHECK_STR(name_of(&x, l->up), "blk.1.ffn_up.weight");
    CHECK_STR(name_of(&x, x.m->rope_long), "rope_factors_long.weight");
    CHECK(!ntx_chunks_make(x.m, 1 << 20, &c, &err));
    const struct ntx_layer_weights *w = &c->layers[1];
    const struct ntx_hparams *h = &x.m->hp;
    CHECK(w->q.n_out == h->n_head * h->head_k && w->k.n_out == h->n_head_kv * h->head_k && w->up.n_out == h->n_ff &&
          w->gate.n_out == h->n_ff);
    CHECK_EQ(c->list[w->k.chunk0].offset - c->list[w->q.chunk0].offset, (uint64_t)w->q.n_out * w->q.row_bytes);
    CHECK_EQ(c->list[w->v.chunk0].offset - c->list[w->k.chunk0].offset, (uint64_t)w->k.n_out * w->k.row_bytes);
    CHECK_EQ(c->list[w->up.chunk0].offset - c->list[w->gate.chunk0].offset,
             (uint64_t)w->gate.n_out * w->gate.row_bytes);
    ntx_chunks_free(c);
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
        CHECK(s->attend.window == (i < 3 ? 8192 : 0) && s->attend.chunk == s->attend.window &&
              s->attend.temperature.length == (i < 3 ? 0 : 8192) && s->attend.temperature.ahead == (i == 3));
        CHECK(!ntx_layer_find(&l[i], NTX_OP_ROPE) == (i == 3) &&
              !ntx_layer_find(&l[i], NTX_OP_EXPERTS) == (i % 2 == 0));
        CHECK(i % 2 == 0 || (ntx_layer_find(&l[i], NTX_OP_EXPERTS)->experts.weighs_input &&
                             !ntx_layer_find(&l[i], NTX_OP_ROUTE)->route.norm));
    }
    close_model(&x);
    o.chunk_pattern = 3;
    refuse(&o, NULL, NULL, -ENOTSUP,
           "key 'llama4.attention.sliding_window_pattern': layer 2 differs from every fourth layer without chunks");
    o.chunk_pattern = 4; /* the default */
    o.experts = 128;     /* models with so many do not norm q and k */
    x = open_model(&o);
    CHECK_EQ(x.m->layers[0].n_steps + 2, 18);
    close_model(&x);
}

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

/* Every third layer has full attention, rotates half of each head and has fewer heads; limits differ by layer, those
 * of gates where SiLU reaches them. */
static void check_step(void)
{
    struct mk_options o = step_options();
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    const struct ntx_layer *l = x.m->layers;
    CHECK(h->n_layers == 6 && h->n_nextn == 1 && h->n_dense == 2 && h->n_ff_shexp == 80 && h->window == 9 &&
          h->router.score == NTX_SCORE_SIGMOID);
    for (uint32_t i = 0; i < 6; i++) {
        const struct ntx_step *rope = ntx_layer_find(&l[i], NTX_OP_ROPE), *gate = ntx_layer_find(&l[i], NTX_OP_GATE),
                              *e = ntx_layer_find(&l[i], NTX_OP_EXPERTS);
        const bool all = i % 3 == 0;
        CHECK(window_of(&l[i]) == (all ? 0 : 9) && rope->heads == (all ? 4 : 6) &&
              rope->rope.rotated == (all ? 8 : 16) &&
              rope->rope.angles == (all ? NTX_ROTATION_ALL : NTX_ROTATION_WINDOW));
        CHECK(gate->gate.by_head && gate->heads == rope->heads && gate->width == 16 * gate->heads);
        CHECK((e != NULL) == (i >= 2));
        if (!e) {
            const struct ntx_step *glu = ntx_layer_find(&l[i], NTX_OP_GLU);
            CHECK(glu->glu.hidden.limit == (i == 1 ? 0.75f : 0));
            continue;
        }
        CHECK(e->experts.hidden.limit == (i % 2 ? 0.5f : 0) && e->experts.shared.limit == (i % 3 == 1 ? 0.75f : 0) &&
              (e->experts.hidden.gate_limit > 0) == (e->experts.hidden.limit > 0));
        if (e->experts.hidden.limit > 0)
            CHECK(fabsf(e->experts.hidden.gate_limit / (1 + expf(-e->experts.hidden.gate_limit)) -
                        e->experts.hidden.limit) < 1e-6f);
    }
    CHECK_STR(name_of(&x, l[2].head_gate), "blk.2.attn_gate.weight");
    close_model(&x);
    refuse(&o, "step35.attention.sliding_window_pattern", "step35.attention.sliding_window_pottern", -EINVAL,
           "key 'step35.attention.sliding_window_pattern' is missing, or no array");
    refuse(&o, "blk.1.attn_gate.weight", "blk.1.attn_gete.weight", -EINVAL,
           "tensor 'blk.1.attn_gate.weight' is missing; a step35 model needs it");
    refuse(&o, "step35.leading_dense_block_count", "step35.leading_dense_block_caunt", -EINVAL,
           "tensor 'blk.0.ffn_gate_inp.weight' is missing; a step35 model needs it");
    refuse(&o, "step35.expert_shared_feed_forward_length", "step35.expert_shared_feed_forward_lengtx", -EINVAL,
           "key 'step35.expert_shared_feed_forward_length' is missing");
    o.window = 0;
    refuse(&o, NULL, NULL, -ENOTSUP,
           "key 'step35.attention.sliding_window' is 0: a step35 model without a window is not supported");
    o.window = 9;
    o.rope_scaling = "yarn";
    o.rope_factor = 4;
    refuse(&o, NULL, NULL, -ENOTSUP, "and rope.scaling: not supported");
}

int main(void)
{
    check_phi3();
    check_llama4();
    check_gemma4();
    check_gemma4_experts();
    refuse_gemma4s();
    check_gemma3();
    check_gemma2();
    check_granite();
    check_mistral3();
    check_unturned();
    check_step();
    return 0;
}
