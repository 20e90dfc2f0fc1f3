/* SPDX-License-Identifier: Apache-2.0 */
/* arch_states.c: recurrent layers: qwen3next, qwen35, kimi-linear, glm5-next, qwen4exp; granitehybrid, falcon-h1,
 * nemotron_h, lfm2 and lfm2moe. */
#include "model/chunk.h"
#include "model/state.h"
#include "tests/unit/model/opened.h"

/* Fused rows: for each key head q and k, then v of its heads and their gates, in runs of a head. */
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
    CHECK(x.m->hp.delta_joined && x.m->hp.experts_fused && l->delta_mix == l->delta_gate &&
          l->expert_gate == NTX_NO_TENSOR);
    CHECK_STR(name_of(&x, l->delta_mix), "blk.0.ssm_in.weight");
    CHECK_STR(name_of(&x, l->expert_gate_up), "blk.0.ffn_gate_up_exps.weight");
    for (int small = 0; small < 2; small++) {
        CHECK(!ntx_chunks_make(x.m, small ? 7 * 64 * 4 : 1 << 20, &c, &err));
        const struct ntx_weight *mix = &c->layers[0].delta_mix, *gate = &c->layers[0].delta_gate;
        const struct ntx_chunk *q = &c->list[mix->chunk0], *z = &c->list[gate->chunk0];
        const uint32_t of_head = 16 / mix->chunk_outs;
        const uint64_t head = 16 * (uint64_t)mix->row_bytes;
        CHECK(mix->n_out == 12 * 16 && gate->n_out == 6 * 16 && mix->n_chunks == 12 * of_head &&
              (small || of_head == 1));
        static const uint32_t at[] = {0, 6, 12, 1, 7, 13, 2, 3, 8, 9, 14, 15}, gates[] = {4, 5, 10, 11, 16, 17};
        for (uint32_t i = 0; i < 12; i++)
            CHECK_EQ(q[i * of_head].offset - q->offset, at[i] * head);
        for (uint32_t i = 0; i < 6; i++)
            CHECK_EQ(z[i * of_head].offset - q->offset, gates[i] * head);
        ntx_chunks_free(c);
    }
    close_model(&x);
}

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
    CHECK(h->n_layers == 4 && h->n_nextn == 1 && ntx_count_recurrent(h) == 2 && ntx_is_recurrent(h, 0) &&
          !ntx_is_recurrent(h, 1));
    CHECK(h->delta.taps == 4 && h->delta.head == 32 && h->delta.heads == 6 && h->delta.key_heads == 3);
    CHECK(delta->delta.tiled == !next && delta->feeds && !ntx_layer_find(&l[0], NTX_OP_ATTEND));
    CHECK(rope->rope.rotated == 8 && rope->rope.pairs == NTX_ROPE_NEOX && !ntx_layer_find(&l[1], NTX_OP_CONV));
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

static void refuse_deltas(void)
{
    struct mk_options o = delta_options("qwen35");
    refuse(&o, "qwen35.ssm.conv_kernel", "qwen35.ssm.conv_kernal", -EINVAL, "key 'qwen35.ssm.conv_kernel' is missing");
    refuse(&o, "qwen35.rope.dimension_sections", "qwen35.rope.dimension_zections", -EINVAL,
           "key 'qwen35.rope.dimension_sections' is missing, or not a list");
    refuse(&o, "qwen35.full_attention_interval", "qwen35.full_attention_intervul", -EINVAL,
           "tensor 'blk.1.attn_qkv.weight' is missing; a qwen35 model needs it");
    refuse(&o, "blk.0.ssm_norm.weight", "blk.0.ssm_nurm.weight", -EINVAL, "tensor 'blk.0.ssm_norm.weight' is missing");
    o.delta_head = 24;
    refuse(&o, NULL, NULL, -ENOTSUP, "a delta net of 144 values in 6 heads of 24 over 3 key heads is not supported");
    o.delta_head = 0;
    o.delta_keys = 4;
    refuse(&o, NULL, NULL, -ENOTSUP, "a delta net of 192 values in 6 heads of 32 over 4 key heads is not supported");
    o.delta_keys = 3;
    o.head_dim = 48; /* not the default width of a head */
    refuse(&o, "qwen35.attention.value_length", "qwen35.attention.value_lengtx", -ENOTSUP,
           "heads of 48 values of K and ");
    o.head_dim = 0;
    o.attention_every = 8;
    refuse(&o, NULL, NULL, -ENOTSUP, "a qwen35 model without a layer of attention is not supported");
}

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
    const struct ntx_step *delta = ntx_layer_find(&l[1], NTX_OP_DELTA), *conv = ntx_layer_find(&l[1], NTX_OP_CONV),
                          *a = ntx_layer_find(&l[2], NTX_OP_ATTEND);
    const struct ntx_router *r = &ntx_layer_find(&l[1], NTX_OP_ROUTE)->route;
    const uint32_t n = o.heads * 32;
    CHECK(ntx_count_recurrent(h) == 4 && ntx_is_recurrent(h, 1) && !ntx_is_recurrent(h, 2) && h->n_dense == 1 &&
          h->n_ff_shexp == 96);
    CHECK(h->delta.taps == 4 && h->delta.head == 32 && h->delta.heads == o.heads && h->delta.key_heads == o.heads);
    CHECK(delta->delta.by_key && delta->width == 32 && delta->heads == o.heads && conv->n_weights == 3 &&
          conv->width == 3 * n);
    CHECK(h->kv_lora == 40 && h->head_k == 24 && h->head_v == 20 && ntx_kept_k(h, 2) == 48 && h->n_head_kv == 1);
    CHECK(a->attend.mla && fabsf(a->scale * sqrtf(24) - 1) < 1e-6f && !ntx_layer_find(&l[2], NTX_OP_ROPE) &&
          !ntx_layer_find(&l[1], NTX_OP_ATTEND));
    CHECK(r->score == NTX_SCORE_SIGMOID && r->norm && fabsf(r->scale - 2.446f) < 1e-6f &&
          !ntx_layer_find(&l[0], NTX_OP_ROUTE));
    CHECK_STR(name_of(&x, l[0].kda_conv_v), "blk.0.ssm_conv1d_v.weight");
    CHECK_STR(name_of(&x, l[0].kda_out), "blk.0.attn_output.weight");
    CHECK_STR(name_of(&x, l[2].kda_out), "none");
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_V), 3 * n);
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_A), n);
    struct ntx_chunks *c = NULL;
    CHECK_EQ(ntx_chunks_make(x.m, 1 << 20, &c, NULL), 0);
    CHECK(c->layers[0].kda_conv_q.n_out == n &&
          c->layers[0].kda_conv_q.n_in == 4); /* though the file has a dimension of one between */
    ntx_chunks_free(c);
    close_model(&x);
}

static void refuse_kimi(void)
{
    struct mk_options o = kimi_options();
    refuse(&o, "kimi-linear.kda.head_dim", "kimi-linear.kda.head_din", -EINVAL,
           "key 'kimi-linear.kda.head_dim' is missing");
    refuse(&o, "kimi-linear.attention.head_count_kv", "kimi-linear.attention.head_count_kw", -EINVAL,
           "key 'kimi-linear.attention.head_count_kv' is not a list of a number for each layer");
    refuse(&o, "blk.0.ssm_f_b.weight", "blk.0.ssm_f_c.weight", -EINVAL,
           "tensor 'blk.0.ssm_f_b.weight' is missing; a kimi-linear model needs it");
    refuse(&o, "blk.2.attn_k_b.weight", "blk.2.attn_k_c.weight", -EINVAL,
           "tensor 'blk.2.attn_k_b.weight' is missing; a kimi-linear model needs it");
    refuse(&o, "kimi-linear.attention.key_length_mla", "kimi-linear.attention.key_length_mlb", -EINVAL,
           "key 'kimi-linear.attention.key_length_mla' is missing");
    o.delta_head = 24;
    refuse(&o, NULL, NULL, -ENOTSUP, "key 'kimi-linear.kda.head_dim' is 24; multiples of 16 are supported");
    o.delta_head = 0;
    o.attention_every = 8;
    refuse(&o, NULL, NULL, -EINVAL, "key 'kimi-linear.attention.head_count_kv' is 0; 1 to ");
    o.attention_every = 3;
    o.q_lora = 36;
    refuse(&o, NULL, NULL, -ENOTSUP,
           "key 'kimi-linear.attention.q_lora_rank' says that q is made in two products: such a kimi-linear model is "
           "not supported");
}

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
    const struct ntx_step *choose = ntx_layer_find(&l[1], NTX_OP_INDEX_TOPK),
                          *rates = ntx_layer_find(&l[0], NTX_OP_RATES);
    CHECK(h->n_layers == 6 && h->n_nextn == 1 && ntx_count_recurrent(h) == 3 && !ntx_is_recurrent(h, 1) &&
          h->rope_dim == 0 && h->head_k == 24 && h->n_dense == 1);
    CHECK(h->index.heads == 20 && h->index.head == 48 && h->index.every == 3 && h->index.most == 7 &&
          ntx_has_indexer(h, 1) && !ntx_has_indexer(h, 3) && ntx_has_indexer(h, 5) && !ntx_has_indexer(h, 0));
    CHECK(ntx_kept_k(h, 1) == 40 && ntx_kept_v(h, 1) == 96 && ntx_kept_v(h, 3) == 0); /* a key, and its weight */
    CHECK(choose->index_topk.keys && choose->index_topk.every == 3 && choose->index_topk.most == 7 &&
          !ntx_layer_find(&l[3], NTX_OP_INDEX_TOPK) && ntx_layer_find(&l[3], NTX_OP_ATTEND)->attend.topk);
    CHECK(rates->rates.bound == -5 && ntx_layer_find(&l[0], NTX_OP_DELTA)->delta.by_key &&
          ntx_layer_find(&l[0], NTX_OP_UNIT)->unit.eps == 1e-6f);
    CHECK(h->streams.n == 4 && h->streams.rounds == 20 && h->limit == 1.5f && h->shared_limit == 1.5f &&
          ntx_layer_find(&l[0], NTX_OP_GLU)->glu.hidden.limit == 1.5f);
    CHECK(!ntx_layer_find(&l[1], NTX_OP_ROPE) && !ntx_layer_find(&l[1], NTX_OP_HADAMARD) &&
          ntx_layer_find(&l[5], NTX_OP_MIX) && !ntx_layer_find(&l[5], NTX_OP_ADD));
    CHECK_STR(name_of(&x, l[1].index_place), "blk.1.indexer_compressor_ape.weight");
    CHECK_STR(name_of(&x, l[3].index_gate), "none");
    CHECK_STR(name_of(&x, l[0].delta_a), "blk.0.ssm_a");
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_STREAMS), 4 * o.embd);
    close_model(&x);
}

static void refuse_glm5(void)
{
    struct mk_options o = glm5_options();
    refuse(&o, "glm5-next.attention.indexer.kpool_select_tail", "glm5-next.attention.indexer.kpool_select_tale",
           -ENOTSUP, "key 'glm5-next.attention.indexer.kpool_select_tail' is missing, or not true");
    refuse(&o, "glm5-next.attention.layer_norm_epsilon", "glm5-next.attention.layer_norm_epsilom", -EINVAL,
           "key 'glm5-next.attention.layer_norm_epsilon' is missing");
    refuse(&o, "glm5-next.hyper_connection.epsilon", "glm5-next.hyper_connection.epsilom", -EINVAL,
           "key 'glm5-next.hyper_connection.epsilon' is missing");
    refuse(&o, "glm5-next.attention.q_lora_rank", "glm5-next.attention.q_lora_rang", -EINVAL,
           "key 'glm5-next.attention.q_lora_rank' is missing; a glm5-next model needs it");
    refuse(&o, "blk.1.indexer_compressor_ape.weight", "blk.1.indexer_compressor_apt.weight", -EINVAL,
           "tensor 'blk.1.indexer_compressor_ape.weight' is missing; a glm5-next model needs it");
    refuse(&o, "blk.2.hc_ffn_base.weight", "blk.2.hc_ffn_bass.weight", -EINVAL,
           "tensor 'blk.2.hc_ffn_base.weight' is missing; a glm5-next model needs it");
    o.index_head = 40;
    refuse(&o, NULL, NULL, -ENOTSUP,
           "key 'glm5-next.attention.indexer.key_length' is 40; multiples of 16 are supported");
    o.index_head = 48;
    o.attention_every = 1;
    refuse(&o, NULL, NULL, -ENOTSUP,
           "key 'glm5-next.attention.head_count_kv': a glm5-next model without a layer that keeps a state is not "
           "supported");
}

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
    const struct ntx_step *choose = ntx_layer_find(&l[2], NTX_OP_INDEX_TOPK),
                          *conv = ntx_layer_find(&l[1], NTX_OP_CONV), *spread = ntx_layer_find(&l[0], NTX_OP_SPREAD);
    CHECK(h->n_layers == 6 && ntx_count_recurrent(h) == 4 && !ntx_is_recurrent(h, 2) && ntx_has_indexer(h, 5) &&
          !ntx_has_indexer(h, 4) && h->index_beside && h->no_output_norm);
    CHECK(h->index.heads == 20 && h->index.head == 48 && h->index.every == 3 && h->index.most == 7 &&
          ntx_kept_v(h, 2) == h->head_v);
    CHECK(choose->index_topk.keys && choose->index_topk.mean && choose->index_topk.every == 3 &&
          choose->index_topk.most == 7 && choose->in[1] == NTX_BUF_NONE &&
          ntx_layer_find(&l[2], NTX_OP_ATTEND)->attend.topk);
    CHECK(h->streams.n == 4 && h->streams.low == 24 && spread->scale == 0.25f &&
          ntx_layer_find(&l[0], NTX_OP_NORM)->norm.each && ntx_layer_find(&l[0], NTX_OP_MAP)->scale == 0.25f);
    CHECK(h->grams.layer == 2 && h->grams.n == 3 && h->grams.heads == 8 && h->grams.width == o.embd / 8 &&
          h->grams.taps == 4 && h->grams.eos == 2);
    CHECK(h->grams.first[1] == 97 && h->grams.size[7] == 97 + 42 && h->grams.entries == 1024 &&
          h->grams.by[0] % 2 == 1 && h->grams.by[1] > UINT32_MAX);
    CHECK(conv->conv.dilation == 3 && conv->conv.taps == 4 && conv->width == 4 * o.embd &&
          conv->in[0] == NTX_BUF_GATES && !ntx_layer_find(&l[0], NTX_OP_GRAMS));
    CHECK(ntx_layer_find(&l[0], NTX_OP_UNIT)->unit.eps == 1e-6f && ntx_layer_find(&l[0], NTX_OP_DELTA)->delta.tiled &&
          !ntx_layer_find(&l[5], NTX_OP_ADD));
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
    refuse(&o, "qwen4exp.hyper_connection.low_rank", "qwen4exp.hyper_connection.low_rang", -EINVAL,
           "key 'qwen4exp.hyper_connection.low_rank' is missing");
    refuse(&o, "qwen4exp.attention.compress_ratios", "qwen4exp.attention.compress_ratioz", -EINVAL,
           "key 'qwen4exp.attention.compress_ratios' is missing, or not a list of 6 integers");
    refuse(&o, "qwen4exp.ple.layer_multipliers", "qwen4exp.ple.layer_multiplierz", -EINVAL,
           "key 'qwen4exp.ple.layer_multipliers' is missing, or not a list of 3 integers");
    refuse(&o, "qwen4exp.ple.head_vocab_sizes", "qwen4exp.ple.head_vocab_zizes", -EINVAL,
           "key 'qwen4exp.ple.head_vocab_sizes' is missing, or not a list of 8 integers");
    refuse(&o, "qwen4exp.ple.eos_token_id", "qwen4exp.ple.eos_token_ix", -EINVAL,
           "key 'qwen4exp.ple.eos_token_id' is missing");
    refuse(&o, "qwen4exp.ple.layers", "qwen4exp.ple.layerz", -ENOTSUP,
           "tensor 'per_layer_token_embd.weight' has no place in a qwen4exp model of 6 layers");
    refuse(&o, "per_layer_token_embd.weight", "per_layer_token_emb_.weight", -EINVAL,
           "tensor 'per_layer_token_embd.weight' is missing; a qwen4exp model needs it");
    refuse(&o, "blk.1.ple_norm_conv.weight", "blk.1.ple_norm_cone.weight", -EINVAL,
           "tensor 'blk.1.ple_norm_conv.weight' is missing; a qwen4exp model needs it");
    refuse(&o, "blk.5.indexer.k_norm.weight", "blk.5.indexer.k_nora.weight", -EINVAL,
           "tensor 'blk.5.indexer.k_norm.weight' is missing; a qwen4exp model needs it");
    refuse(&o, "output_hc_down.weight", "output_hc_dawn.weight", -EINVAL,
           "tensor 'output_hc_down.weight' is missing; a qwen4exp model needs it");
    o.gram_layer = 3;
    refuse(&o, NULL, NULL, -ENOTSUP, "key 'qwen4exp.ple.layers': one layer, which is a delta net, is supported");
    o.gram_layer = 2;
    o.index_head = 40;
    refuse(&o, NULL, NULL, -ENOTSUP,
           "key 'qwen4exp.attention.indexer.key_length' is 40; multiples of 16 are supported");
}

static struct mk_options scan_options(const char *arch)
{
    struct mk_options o = make_options();
    o.arch = arch;
    o.layers = 6;
    o.attention_every = 3;
    o.delta_head = 32;
    o.delta_heads = 6;
    o.delta_keys = 2;
    return o;
}

static uint32_t n_states(const struct opened *x, uint32_t layer)
{
    struct ntx_kept_state kept[NTX_STATES_MOST];
    return ntx_states_of(&x->m->hp, layer, kept);
}

static void check_granite(void)
{
    struct mk_options o = scan_options("granitehybrid");
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    const struct ntx_layer *l = x.m->layers;
    const struct ntx_step *scan = ntx_layer_find(&l[0], NTX_OP_SCAN), *conv = ntx_layer_find(&l[0], NTX_OP_CONV);
    CHECK(ntx_count_recurrent(h) == 4 && ntx_is_recurrent(h, 0) && !ntx_is_recurrent(h, 2));
    CHECK(h->delta.head == 32 && h->delta.heads == 6 && h->delta.key_heads == 2 && h->delta.keys == 48);
    CHECK(scan->scan.groups == 2 && scan->scan.keys == 48 && scan->feeds && conv->conv.bias && conv->n_weights == 2);
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_V), 6 * 32 + 2 * 2 * 48);
    CHECK_EQ(ntx_fold_floats(h), 6 * 32 * 48);
    CHECK_STR(name_of(&x, l[0].scan_gate), "blk.0.ssm_in.weight");
    CHECK(l[0].scan_gate == l[0].scan_mix && l[0].scan_mix == l[0].scan_dt);
    CHECK_STR(name_of(&x, l[0].scan_norm), "blk.0.ssm_norm.weight");
    CHECK(n_states(&x, 0) == 2 && n_states(&x, 2) == 1);
    close_model(&x);
}

/* Experts without gates, of latents; the shared expert is a plain FFN beside them. */
static void check_ungated(void)
{
    struct mk_options o = scan_options("nemotron_h_moe");
    o.experts = 6;
    o.expert_ff = 96;
    o.shared_ff = 160;
    o.latent = 64;
    struct opened x = open_model(&o);
    const struct ntx_layer *l = &x.m->layers[2];
    const struct ntx_step *experts = ntx_layer_find(l, NTX_OP_EXPERTS);
    CHECK(n_states(&x, 0) == 2 && n_states(&x, 1) == 1 && n_states(&x, 2) == 0);
    CHECK(experts->experts.ungated && experts->experts.hidden.act == NTX_FFN_RELU);
    CHECK_EQ(ntx_step_width(&x.m->hp, 2, experts), 64);
    CHECK(l->expert_gate == NTX_NO_TENSOR && l->expert_up == NTX_NO_TENSOR && l->gate_shared == NTX_NO_TENSOR);
    CHECK_STR(name_of(&x, l->expert_gate_up), "blk.2.ffn_up_exps.weight");
    CHECK_STR(name_of(&x, l->up), "blk.2.ffn_up_shexp.weight");
    CHECK_STR(name_of(&x, l->latent_up), "blk.2.ffn_latent_up.weight");
    const struct ntx_shape half = ntx_shape_of(&x.m->hp, 2, NTX_T_expert_gate_up);
    CHECK(half.n_in == 64 && half.n_out == 96 && half.n_each == 6);
    CHECK(ntx_dims_of(&x.m->hp, 2).n_ff == 160 && x.m->hp.router.score == NTX_SCORE_SIGMOID);
    close_model(&x);
    refuse(&o, "nemotron_h_moe.expert_shared_feed_forward_length", "nemotron_h_moe.expert_shared_feed_forward_lengtj",
           -EINVAL, "key 'nemotron_h_moe.expert_shared_feed_forward_length' is missing");
    o.expert_ff = 97;
    refuse(&o, NULL, NULL, -ENOTSUP, "experts of 97 values are not supported");
}

/* Mamba-1: each value has a state; a layer has experts where the file has a router. */
static void check_jamba(void)
{
    struct mk_options o = scan_options("jamba");
    o.experts = 4;
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    const struct ntx_layer *l = x.m->layers;
    const struct ntx_step *scan = ntx_layer_find(&l[0], NTX_OP_SCANEACH);
    CHECK(ntx_count_recurrent(h) == 4 && ntx_is_recurrent(h, 0) && !ntx_is_recurrent(h, 2));
    CHECK(scan->width == 2 * o.embd && scan->scan.keys == 12 && scan->feeds && scan->n_weights == 3);
    CHECK_EQ(ntx_fold_floats(h), 2 * (size_t)o.embd * 12);
    CHECK_EQ(ntx_state_floats(h, 0), 2 * (size_t)o.embd * (12 + 3));
    for (uint32_t s = 0; &l[0].step[s] < scan; s++) /* all before the scan makes its inputs, but for the gate */
        CHECK(l[0].step[s].feeds || l[0].step[s].out == NTX_BUF_Z);
    CHECK_STR(name_of(&x, l[0].each_in), "blk.0.ssm_in.weight");
    CHECK_STR(name_of(&x, l[0].each_c), "blk.0.ssm_x.weight");
    CHECK(l[0].each_in == l[0].each_gate && l[0].each_low == l[0].each_b && l[0].each_b == l[0].each_c);
    CHECK(!ntx_layer_find(&l[0], NTX_OP_EXPERTS) && ntx_layer_find(&l[1], NTX_OP_EXPERTS));
    CHECK(!ntx_layer_find(&l[2], NTX_OP_ROPE) && ntx_layer_find(&l[2], NTX_OP_ATTEND) && !h->router.norm);
    close_model(&x);
    refuse(&o, "jamba.ssm.state_size", "jamba.ssm.state_sizf", -EINVAL, "key 'jamba.ssm.state_size' is missing");
    refuse(&o, "blk.0.ssm_dt_norm.weight", "blk.0.ssm_dt_norn.weight", -EINVAL, "tensor 'blk.0.ssm_dt_norm.weight' is");
}

/* A layer with both keeps both; a layer of an FFN keeps nothing; a short convolution has no matrix. */
static void check_kinds_of_state(void)
{
    struct mk_options o = scan_options("falcon-h1");
    struct opened x = open_model(&o);
    CHECK(ntx_layer_find(&x.m->layers[3], NTX_OP_ATTEND) && ntx_layer_find(&x.m->layers[3], NTX_OP_SCAN));
    CHECK_EQ(n_states(&x, 3), 3);
    close_model(&x);
    o = scan_options("nemotron_h");
    x = open_model(&o);
    CHECK(n_states(&x, 0) == 2 && n_states(&x, 1) == 1 && n_states(&x, 2) == 0);
    CHECK(!ntx_layer_find(&x.m->layers[1], NTX_OP_ROPE) && x.m->layers[2].gate == NTX_NO_TENSOR);
    CHECK_STR(name_of(&x, x.m->layers[2].up), "blk.2.ffn_up.weight");
    close_model(&x);
    check_ungated();
    o = scan_options("lfm2");
    x = open_model(&o);
    CHECK(n_states(&x, 0) == 1 && ntx_state_floats(&x.m->hp, 0) == 3 * (size_t)o.embd && n_states(&x, 2) == 1);
    CHECK_STR(name_of(&x, x.m->layers[0].short_in), "blk.0.shortconv.in_proj.weight");
    CHECK(x.m->layers[0].short_in == x.m->layers[0].short_gate);
    close_model(&x);
}

static void refuse_scans(void)
{
    struct mk_options o = scan_options("granitehybrid");
    refuse(&o, "granitehybrid.ssm.inner_size", "granitehybrid.ssm.inner_zize", -EINVAL,
           "key 'granitehybrid.ssm.inner_size' is missing");
    refuse(&o, "blk.0.ssm_conv1d.bias", "blk.0.ssm_conv1d.bios", -EINVAL, "tensor 'blk.0.ssm_conv1d.bias' is missing");
    o.delta_head = 24;
    refuse(&o, NULL, NULL, -ENOTSUP, "a Mamba-2 scan of 144 values in 6 heads and 2 groups, with states of 48, is not");
    o.delta_head = 32;
    o.delta_keys = 4;
    refuse(&o, NULL, NULL, -ENOTSUP, "a Mamba-2 scan of 192 values in 6 heads and 4 groups");
    o = scan_options("nemotron_h");
    o.layers = 1;
    refuse(&o, NULL, NULL, -EINVAL, "key 'nemotron_h.feed_forward_length' is 0");
    o = scan_options("lfm2");
    refuse(&o, "lfm2.shortconv.l_cache", "lfm2.shortconv.l_cachf", -EINVAL, "key 'lfm2.shortconv.l_cache' is missing");
}

int main(void)
{
    check_granite();
    check_kinds_of_state();
    check_jamba();
    refuse_scans();
    check_joined();
    check_deltas();
    refuse_deltas();
    check_kimi();
    refuse_kimi();
    check_glm5();
    refuse_glm5();
    check_qwen4();
    refuse_qwen4();
    return 0;
}
