/* SPDX-License-Identifier: Apache-2.0 */
/* arch_mla.c: MLA, indexers, and pooled K: deepseek2, deepseek32, glm-dsa, hy_v4, deepseek4. */
#include "tests/unit/model/opened.h"

static struct mk_options mla_options(bool joined)
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
    o.expert_groups = 3;
    o.expert_groups_used = 2;
    o.sigmoid = !joined;
    return o;
}

static void check_deepseek2(void)
{
    for (int joined = 0; joined < 2; joined++) {
        struct mk_options o = mla_options(joined);
        struct opened x = open_model(&o);
        const struct ntx_hparams *h = &x.m->hp;
        const struct ntx_layer *l = &x.m->layers[1];
        const struct ntx_router *r = &ntx_layer_find(l, NTX_OP_ROUTE)->route;
        const struct ntx_step *a = ntx_layer_find(l, NTX_OP_ATTEND), *rope = ntx_layer_find(l, NTX_OP_ROPE);
        CHECK(h->n_layers == 3 && h->n_nextn == 1 && h->n_dense == 1 && h->n_ff_shexp == 96 && h->n_expert == 6);
        CHECK(h->head_k == 24 && h->head_v == 20 && h->kv_lora == 40 && h->kv_joined == joined &&
              h->q_lora == (joined ? 0 : 36) && h->n_head_kv == 1);
        CHECK(ntx_kept_heads(h, 0) == 1 && ntx_kept_k(h, 0) == 48 && ntx_kept_v(h, 0) == 0);
        CHECK(r->score == (joined ? NTX_SCORE_SOFTMAX : NTX_SCORE_SIGMOID) && r->norm == !joined &&
              r->n_expert_groups == 3 && r->expert_groups_used == 2);
        CHECK(a->attend.mla && a->width == 80 && fabsf(a->scale * sqrtf(24) - 1) < 1e-6f);
        CHECK(rope->rope.pairs == NTX_ROPE_NORM && rope->rope.rotated == 8 && rope->offset == 40 && rope->width == 48);
        CHECK_STR(name_of(&x, l->kv_b), joined ? "blk.1.attn_kv_b.weight" : "none");
        CHECK_STR(name_of(&x, l->k_b), joined ? "none" : "blk.1.attn_k_b.weight");
        CHECK_STR(name_of(&x, l->q_b), joined ? "none" : "blk.1.attn_q_b.weight");
        CHECK_STR(name_of(&x, l->q), joined ? "blk.1.attn_q.weight" : "none");
        CHECK_STR(name_of(&x, x.m->layers[0].router), "none");
        close_model(&x);
    }
}

/* DeepSeek-V2 ranks groups by their best expert; with a bias for the choice (V3), and with Mistral 4, by the two
 * best. */
static void check_groups(void)
{
    for (int which = 0; which < 4; which++) {
        struct mk_options o = mla_options(false);
        o.nextn = 0;
        o.arch = which == 3 ? "mistral4" : "deepseek2";
        o.sigmoid = which == 1;
        o.biases = which == 2;
        struct opened x = open_model(&o);
        const struct ntx_layer *l = &x.m->layers[1];
        const struct ntx_router *r = &ntx_layer_find(l, NTX_OP_ROUTE)->route;
        CHECK(r->n_expert_groups == 3 && r->expert_groups_by_best == !which &&
              (r->score == NTX_SCORE_SIGMOID) == (which == 1) && (l->router_select != NTX_NO_TENSOR) == (which == 2));
        close_model(&x);
    }
}

/* With YaRN scores have a magnitude; RoPE has none if a key gives the multiplier: 1 in DeepSeek-V3, 0.707 in V2. */
static void check_magnitudes(void)
{
    static const struct {
        float tenth, by, told;
    } is[] = {{0.1f, 1, 0}, {0.0707f, 0.707f, 0}, {0, 0, 0}, {0.1f, 1, 1.3f}, {0, 0, 1.3f}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct mk_options o = mla_options(false);
        o.rope_scaling = "yarn";
        o.rope_factor = 40;
        o.rope_orig = 16;
        o.log_multiplier = is[i].tenth;
        o.yarn_magnitude = is[i].told;
        struct opened x = open_model(&o);
        float whole = 1 + 0.1f * logf(40), told = is[i].told, m = told > 0 ? 1 : whole;
        if (is[i].by > 0)
            m = 1 + 0.1f * is[i].by * logf(40);
        CHECK(fabsf(x.m->hp.rope_attn_factor * (told > 0 || is[i].by > 0 ? whole : 1) - (told > 0 ? told : 1)) < 1e-6f);
        CHECK(fabsf(ntx_layer_find(x.m->layers, NTX_OP_ATTEND)->scale * sqrtf(24) - m * m) < 1e-5f);
        close_model(&x);
    }
}

static void refuse_mla(void)
{
    const struct mk_options o = mla_options(false);
    refuse_key(&o, "deepseek2.attention.kv_lora_rank", 0, -EINVAL,
               "key 'deepseek2.attention.kv_lora_rank' is 0; 1 to 1016 are possible");
    refuse_key(&o, "deepseek2.attention.kv_lora_rank", 32, -EINVAL,
               "key 'deepseek2.attention.key_length' is 48, of 1 heads: latents of 32 values with 8 rotated ones");
    refuse(&o, "deepseek2.attention.kv_lora_rank", "deepseek2.attention.kv_lara_rank", -EINVAL,
           "key 'deepseek2.attention.kv_lora_rank' is missing");
    refuse(&o, "deepseek2.attention.key_length_mla", "deepseek2.attention.key_length_mlo", -EINVAL,
           "key 'deepseek2.attention.key_length_mla' is missing");
    refuse(&o, "deepseek2.attention.value_length_mla", "deepseek2.attention.value_length_mlo", -EINVAL,
           "key 'deepseek2.attention.key_length_mla' is 24; 0 to 0 are possible");
    refuse_key(&o, "deepseek2.attention.key_length_mla", 8, -EINVAL,
               "8 of a head's 8 values are rotated: some are not in a deepseek2 model");
    refuse_key(&o, "deepseek2.attention.q_lora_rank", 35, -EINVAL, "is 64 x 36 x 1 x 1, expected 64 x 35");
    refuse(&o, "blk.1.attn_v_b.weight", "blk.1.attn_w_b.weight", -EINVAL,
           "tensor 'blk.1.attn_v_b.weight' is missing; a deepseek2 model needs it");
}

static struct mk_options choosing_options(const char *arch, uint32_t every)
{
    struct mk_options o = mla_options(false);
    o.arch = arch;
    o.layers = 5;
    o.index_heads = 20;
    o.index_head = 48;
    o.index_most = 7;
    o.index_every = every;
    return o;
}

/* Hy 4: gates and sinks, indexer keys with RoPE at the end, streams that are not mixed. */
static void check_hy4(void)
{
    struct mk_options o = choosing_options("hy_v4", 2);
    o.nextn = 0;
    o.dense = 1;
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    const struct ntx_layer *l = x.m->layers;
    const struct ntx_step *weigh = ntx_layer_find(l, NTX_OP_MIXW), *gate = ntx_layer_find(l, NTX_OP_GATE),
                          *a = ntx_layer_find(l, NTX_OP_ATTEND), *norm = ntx_layer_find(l, NTX_OP_LAYERNORM);
    const struct ntx_step *experts = ntx_layer_find(&l[1], NTX_OP_EXPERTS);
    CHECK(h->streams.n == 4 && !h->streams.rounds && h->router.score == NTX_SCORE_SIGMOID && h->n_dense == 1);
    CHECK(weigh->width == 8 && weigh->scale == 1.5f && !weigh->mixw.rounds &&
          ntx_layer_find(l, NTX_OP_SPREAD)->spread.each && ntx_layer_find(&l[4], NTX_OP_MIX)->heads == 4);
    CHECK(gate->in[1] == NTX_BUF_POOL_GATE && gate->width == h->n_head * h->head_v && !gate->gate.by_head &&
          a->attend.mla && a->attend.topk && ntx_has_indexer(h, 0) && !ntx_has_indexer(h, 1) && ntx_has_indexer(h, 2));
    CHECK(norm->layernorm.eps == h->rms_eps && norm[1].op == NTX_OP_ROPE && norm[1].offset == 40 &&
          norm[1].rope.rotated == 8 && norm[1].rope.pairs == NTX_ROPE_NORM && !ntx_layer_find(l, NTX_OP_HADAMARD));
    CHECK(experts->experts.hidden.limit == 1.5f && experts->experts.hidden.gate_limit == 1.5f &&
          experts->experts.shared.limit == 0 && ntx_layer_find(l, NTX_OP_GLU)->glu.hidden.limit == 0);
    CHECK_STR(name_of(&x, l[1].mla_gate), "blk.1.attn_gate.weight");
    CHECK_STR(name_of(&x, l[1].sinks), "blk.1.attn_sinks.weight");
    CHECK_STR(name_of(&x, l[4].head_mix), "output_hc_fn.weight");
    close_model(&x);
    refuse(&o, "hy_v4.hyper_connection.magnitude", "hy_v4.hyper_connection.magnituda", -EINVAL,
           "key 'hy_v4.hyper_connection.magnitude' is missing");
    refuse(&o, "hy_v4.attention.indexer.types", "hy_v4.attention.indexer.tipes", -EINVAL,
           "key 'hy_v4.attention.indexer.types' is missing: which layers choose positions");
    refuse(&o, "blk.3.attn_sinks.weight", "blk.3.attn_sonks.weight", -EINVAL,
           "tensor 'blk.3.attn_sinks.weight' is missing; a hy_v4 model needs it");
    refuse(&o, "hy_v4.attention.q_lora_rank", "hy_v4.attention.q_lora_runk", -EINVAL,
           "key 'hy_v4.attention.q_lora_rank' is missing");
    o.rope_scaling = "yarn";
    o.rope_factor = 4;
    refuse(&o, NULL, NULL, -ENOTSUP, "a hy_v4 model with scaled rotation is not supported");
    o.rope_scaling = "none";
    o.index_heads = 0; /* all positions */
    x = open_model(&o);
    CHECK(!x.m->hp.index.head && !ntx_layer_find(x.m->layers, NTX_OP_INDEX_TOPK) &&
          !ntx_layer_find(x.m->layers, NTX_OP_ATTEND)->attend.topk);
    close_model(&x);
}

/* Layers with an indexer have its queries, keys and weights, and cache the keys; the others reuse its choice. */
static void check_choosing(const char *arch, uint32_t every)
{
    struct mk_options o = choosing_options(arch, every);
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    CHECK(h->index.heads == 20 && h->index.head == 48 && h->index.most == 7 && h->router.score == NTX_SCORE_SIGMOID);
    for (uint32_t i = 0; i < 5; i++) {
        const struct ntx_layer *l = &x.m->layers[i];
        const struct ntx_step *c = ntx_layer_find(l, NTX_OP_INDEX_TOPK), *put = ntx_layer_find(l, NTX_OP_PUT),
                              *turn = ntx_layer_find(l, NTX_OP_HADAMARD);
        bool chooses = !every || i % every == 0;
        CHECK(ntx_layer_find(l, NTX_OP_ATTEND)->attend.topk && ntx_has_indexer(h, i) == chooses &&
              (c != NULL) == chooses && (l->index_k != NTX_NO_TENSOR) == chooses);
        CHECK(ntx_kept_k(h, i) == 48 && ntx_kept_v(h, i) == (chooses ? 48 : 0) &&
              put->in[1] == (chooses ? NTX_BUF_V : NTX_BUF_NONE));
        CHECK(!c || (c->heads == 20 && c->width == 48 && c->index_topk.most == 7 &&
                     fabsf(c->scale * sqrtf(960) - 1) < 1e-6f));
        CHECK(!c || (turn[-1].rope.rotated == 8 && !turn[-1].offset &&
                     turn[-1].rope.pairs == (strcmp(arch, "glm-dsa") ? NTX_ROPE_NEOX : NTX_ROPE_NORM)));
    }
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_Z), 960);
    close_model(&x);
}

/* GLM-5.2's files without a list: the context decides. Indexer tensors in other layers are accepted and ignored. */
static void check_unread(void)
{
    struct mk_options o = choosing_options("glm-dsa", 0);
    o.ctx = 1 << 20;
    struct opened x = open_model(&o);
    for (uint32_t l = 0; l < 5; l++)
        CHECK(ntx_has_indexer(&x.m->hp, l) == (l < 3) && (x.m->layers[l].index_k != NTX_NO_TENSOR) == (l < 3));
    close_model(&x);
}

static void refuse_choices(void)
{
    struct mk_options o = choosing_options("deepseek32", 0);
    refuse_key(&o, "deepseek32.attention.indexer.head_count", 129, -EINVAL,
               "key 'deepseek32.attention.indexer.head_count' is 129; 1 to 128 are possible");
    refuse_key(&o, "deepseek32.attention.indexer.key_length", 40, -ENOTSUP,
               "key 'deepseek32.attention.indexer.key_length' is 40; multiples of 16 are supported");
    refuse_key(&o, "deepseek32.attention.indexer.key_length", 64, -EINVAL, "is 64 x 48 x 1 x 1, expected 64 x 64");
    refuse_key(&o, "deepseek32.attention.indexer.top_k", 0, -EINVAL,
               "key 'deepseek32.attention.indexer.top_k' is 0; 1 to 4294967295 are possible");
    refuse(&o, "deepseek32.attention.indexer.top_k", "deepseek32.attention.indexer.types", -EINVAL,
           "key 'deepseek32.attention.indexer.top_k' is missing");
    o = choosing_options("glm-dsa", 2);
    refuse(&o, "glm-dsa.attention.indexer.types", "glm-dsa.attention.indexer.tipes", -EINVAL,
           "tensor 'blk.1.indexer.attn_k.weight' is missing; a glm-dsa model needs it");
    refuse(&o, "glm-dsa.attention.q_lora_rank", "glm-dsa.attention.q_lora_runk", -EINVAL,
           "key 'glm-dsa.attention.q_lora_rank' is missing; a glm-dsa model needs it");
    refuse(&o, "blk.2.indexer.k_norm.bias", "blk.2.indexer.k_nurm.bias", -EINVAL,
           "tensor 'blk.2.indexer.k_norm.bias' is missing; a glm-dsa model needs it");
}

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

/* Only layers that pool have YaRN, without magnitude; a magnitude of the file applies to them alone. */
static void check_pooled_yarn(void)
{
    struct mk_options o = pooled_options();
    o.rope_scaling = "yarn";
    o.rope_factor = 8;
    for (int told = 0; told < 2; told++) {
        o.yarn_magnitude = told ? 1.3f : 0;
        struct opened x = open_model(&o);
        const struct ntx_hparams *h = &x.m->hp;
        CHECK(h->rope_scaling == NTX_ROPE_SCALE_YARN && h->rope_factor == 8 && h->rope_factor_window == 1 &&
              h->plain_window);
        CHECK(fabsf(h->rope_attn_factor * (1 + 0.1f * logf(8)) - (told ? 1.3f : 1)) < 1e-6f);
        close_model(&x);
    }
}

/* Steps of layers that pool nothing (0, 3), 4 positions (1), and 128 (2); experts follow from the token in two
 * layers, and the last one joins the streams. */
static void check_pooled(void)
{
    struct mk_options o = pooled_options();
    struct opened x = open_model(&o);
    const struct ntx_hparams *h = &x.m->hp;
    static const uint32_t every[] = {0, 4, 128, 0}, spans[] = {0, 2, 1, 0};
    CHECK(h->streams.n == 4 && h->streams.rounds == 20 && h->v_is_k && h->o_parts == 4 && h->o_lora == 20 &&
          h->router.score == NTX_SCORE_SQRT_SOFTPLUS && h->limit == 1.5f);
    CHECK(h->rope_base_window == o.rope_base && h->rope_base == 16 * o.rope_base && h->plain_window &&
          h->n_nextn == 1 && ntx_count_recurrent(h) == 2);
    for (uint32_t i = 0; i < 4; i++) {
        const struct ntx_layer *l = &x.m->layers[i];
        const struct ntx_step *pool = ntx_layer_find(l, NTX_OP_POOL), *attend = ntx_layer_find(l, NTX_OP_ATTEND),
                              *choose = ntx_layer_find(l, NTX_OP_INDEX_TOPK);
        CHECK(h->pool[i] == every[i] && ntx_pool_spans(h, i) == spans[i] && attend->attend.every == every[i] &&
              attend->attend.window == 11 && ntx_windowed(h, i));
        CHECK((pool != NULL) == (every[i] != 0) &&
              (!pool || (pool->pool.every == every[i] && pool->pool.spans == spans[i] && pool->offset == 32 &&
                         pool->pool.rope.angles == NTX_ROTATION_ALL)));
        CHECK((choose != NULL) == (i == 1) && attend->attend.topk == (i == 1) &&
              (!choose || (choose->index_topk.every == 4 && choose->index_topk.most == 7)));
        CHECK(attend[1].rope.back && attend[1].rope.angles == (every[i] ? NTX_ROTATION_ALL : NTX_ROTATION_WINDOW) &&
              attend[2].mm.parts == 4);
        CHECK((l->token_experts != NTX_NO_TENSOR) == (i < 2) && (l->router_select != NTX_NO_TENSOR) == (i >= 2) &&
              (l->head_mix != NTX_NO_TENSOR) == (i == 3));
        CHECK(ntx_kept_k(h, i) == 48 && !ntx_kept_v(h, i));
    }
    CHECK_EQ(ntx_pool_row(h, 1), 2 * 2 * (48 + 32));
    CHECK_EQ(ntx_pool_row(h, 2), 2 * 48);
    CHECK_EQ(ntx_buf_width(x.m, NTX_BUF_STREAMS), 4 * o.embd);
    close_model(&x);
}

static void refuse_pools(void)
{
    const struct mk_options o = pooled_options();
    refuse_key(&o, "deepseek4.hyper_connection.count", 2, -ENOTSUP,
               "key 'deepseek4.hyper_connection.count' is 2; 4 residual streams are supported");
    refuse(&o, "deepseek4.hyper_connection.epsilon", "deepseek4.hyper_connection.epsilom", -EINVAL,
           "key 'deepseek4.hyper_connection.epsilon' is missing");
    refuse(&o, "deepseek4.attention.compress_ratios", "deepseek4.attention.compress_ratiom", -EINVAL,
           "key 'deepseek4.attention.compress_ratios' is not a list of a number for each of 4 layers");
    refuse_key(&o, "deepseek4.attention.output_group_count", 3, -ENOTSUP,
               "4 heads of 48 values in 3 parts: equal parts of a multiple of 16 are supported");
    refuse_key(&o, "deepseek4.attention.output_lora_rank", 24, -EINVAL,
               "tensor 'blk.0.attn_output_a.weight' is 48 x 80 x 1 x 1, expected 48 x 96");
    refuse_key(&o, "deepseek4.attention.head_count_kv", 2, -ENOTSUP,
               "2 heads of K of 48 values, and V of 48: one of a multiple of 16, which is both, is supported with a "
               "deepseek4 model");
    refuse_key(&o, "deepseek4.attention.indexer.key_length", 40, -ENOTSUP,
               "key 'deepseek4.attention.indexer.key_length' is 40; multiples of 16 are supported");
    refuse_key(
        &o, "deepseek4.expert_gating_func", 2, -ENOTSUP,
        "key 'deepseek4.expert_gating_func' is 2: with this architecture only the root of a softplus (4) is supported");
    refuse_key(&o, "deepseek4.hash_layer_count", 3, -EINVAL,
               "tensor 'blk.2.ffn_gate_tid2eid.weight' is missing; a deepseek4 model needs it");
    refuse_key(&o, "deepseek4.hash_layer_count", 5, -EINVAL,
               "key 'deepseek4.hash_layer_count' is 5; 0 to 4 are possible");
    refuse(&o, "blk.1.indexer_compressor_ape.weight", "blk.1.indexer_compressor_ap_.weight", -EINVAL,
           "tensor 'blk.1.indexer_compressor_ape.weight' is missing; a deepseek4 model needs it");
    refuse(&o, "output_hc_base.weight", "output_hc_bass.weight", -EINVAL,
           "tensor 'output_hc_base.weight' is missing; a deepseek4 model needs it");
    refuse(&o, "deepseek4.swiglu_clamp_exp", "deepseek4.swiglu_clamp_exq", -EINVAL,
           "key 'deepseek4.swiglu_clamp_exp' is missing");
}

int main(void)
{
    check_deepseek2();
    check_groups();
    check_magnitudes();
    refuse_mla();
    check_choosing("deepseek32", 0);
    check_choosing("glm-dsa", 0);
    check_choosing("glm-dsa", 2);
    check_hy4();
    check_unread();
    refuse_choices();
    check_pooled();
    check_pooled_yarn();
    refuse_pools();
    return 0;
}
