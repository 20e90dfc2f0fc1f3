/* SPDX-License-Identifier: Apache-2.0 */
/* arch_families.c: families that recombine pieces of others: the steps of a layer, what differs from its neighbours,
 * and what is refused. */
#include "model/chunk.h"
#include "model/state.h"
#include "tests/unit/model/opened.h"

#define ATTENTION     "NORM* MM MM* MM* "
#define WITH_QK_NORMS ATTENTION "NORM NORM* ROPE ROPE* PUT* ATTEND "

static struct mk_options options_of(const char *arch)
{
    struct mk_options o = moe_options(arch);
    o.layers = 4;
    o.dense = 1;
    o.window = 9;
    o.biases = true;
    o.shared_ff = 96; /* two of 48 */
    if (!strcmp(arch, "cohere2") || !strcmp(arch, "qwen2vl") || !strcmp(arch, "qwen3vl") || !strcmp(arch, "glm4") ||
        !strcmp(arch, "seed_oss") || !strcmp(arch, "apertus"))
        o.experts = 0;
    return o;
}

static const struct {
    const char *arch, *steps; /* of layer 1 */
    enum ntx_rope_kind rope;
} families[] = {
    {"qwen2vl", ATTENTION "BIAS BIAS* BIAS* ROPE ROPE* PUT* ATTEND MM ADD NORM MM MM GLU MM ADD", NTX_ROPE_NEOX},
    {"qwen3vl", WITH_QK_NORMS "MM ADD NORM MM MM GLU MM ADD", NTX_ROPE_NEOX},
    {"qwen3vlmoe", WITH_QK_NORMS "MM ADD NORM ROUTE EXPERTS ADD", NTX_ROPE_NEOX},
    {"glm4", ATTENTION "BIAS BIAS* BIAS* ROPE ROPE* PUT* ATTEND MM NORM ADD NORM MM MM GLU MM NORM ADD", NTX_ROPE_NORM},
    {"hunyuan-moe", ATTENTION "ROPE ROPE* NORM NORM* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD", NTX_ROPE_NEOX},
    {"hy_v3", WITH_QK_NORMS "MM ADD NORM ROUTE EXPERTS ADD", NTX_ROPE_NEOX},
    {"dots1", WITH_QK_NORMS "MM ADD NORM ROUTE EXPERTS ADD", NTX_ROPE_NEOX},
    {"ernie4_5-moe", ATTENTION "ROPE ROPE* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD", NTX_ROPE_NORM},
    {"seed_oss", ATTENTION "BIAS BIAS* BIAS* ROPE ROPE* PUT* ATTEND MM ADD NORM MM MM GLU MM ADD", NTX_ROPE_NEOX},
    {"afmoe", ATTENTION "MM NORM NORM* ROPE ROPE* PUT* ATTEND GATE MM NORM ADD NORM ROUTE EXPERTS NORM ADD",
     NTX_ROPE_NEOX},
    {"exaone-moe", WITH_QK_NORMS "MM ADD NORM ROUTE EXPERTS ADD", NTX_ROPE_NEOX},
    {"bailingmoe2", WITH_QK_NORMS "MM ADD NORM ROUTE EXPERTS ADD", NTX_ROPE_NEOX},
    {"laguna", ATTENTION "MM NORM NORM* ROPE ROPE* PUT* ATTEND GATE MM ADD NORM ROUTE EXPERTS ADD", NTX_ROPE_NEOX},
    {"apertus", WITH_QK_NORMS "MM ADD NORM MM MAP MM ADD", NTX_ROPE_NEOX},
    {"grok",
     ATTENTION "ROPE ROPE* PUT* ATTEND MM NORM ADD NORM MM MM GLU MM SCALE SCALE ROUTE EXPERTS ADD SCALE NORM ADD",
     NTX_ROPE_NEOX},
    {"grovemoe", WITH_QK_NORMS "MM ADD NORM ROUTE ADJUGATE ADJSUM EXPERTS ADD ADD", NTX_ROPE_NEOX},
    {"dbrx",
     "SCALE* LAYERNORM* MM MM* MM* MAP MAP* MAP* ROPE ROPE* PUT* ATTEND MM ADD SCALE LAYERNORM ROUTE EXPERTS ADD",
     NTX_ROPE_NEOX},
    {"cohere2", "SCALE* LAYERNORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM ADD SCALE MM MM GLU MM ADD", NTX_ROPE_NORM},
    {"cohere2moe", "SCALE* LAYERNORM* MM MM* MM* ROPE ROPE* PUT* ATTEND MM ADD SCALE ROUTE EXPERTS SCALE ADD",
     NTX_ROPE_NORM},
    {"minimax-m3",
     ATTENTION "MM MM* NORM NORM* ROPE ROPE* PUT* NORM ROPE NORM* ROPE* PUT* INDEX_TOPK ATTEND MM ADD NORM ROUTE "
               "EXPERTS ADD",
     NTX_ROPE_NEOX},
    {"mimo2", ATTENTION "ROPE ROPE* SCALE* PUT* ATTEND MM ADD NORM ROUTE EXPERTS ADD", NTX_ROPE_NEOX},
};

static void check_steps(void)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct mk_options o = options_of(families[i].arch);
        char got[400] = "";
        if (!strcmp(o.arch, "hunyuan-moe"))
            o.shared_ff = 80;
        struct opened x = open_model(&o);
        const struct ntx_layer *l = &x.m->layers[1];
        for (uint32_t s = 0; s < l->n_steps; s++)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s%s", s ? " " : "",
                     ntx_op_name((enum ntx_op)l->step[s].op), l->step[s].feeds ? "*" : "");
        CHECK_STR(got, families[i].steps);
        CHECK_MSG(rope_of(x.m) == families[i].rope, "%s", o.arch);
        close_model(&x);
    }
}

/* Parts of layers that a search removed: attention, all but its last matrix, FFNs, and everything. */
static void check_holes(void)
{
    struct mk_options o = options_of("deci");
    o.experts = 0;
    o.layers = 6;
    struct opened x = open_model(&o);
    const struct ntx_layer *l = x.m->layers;
    struct ntx_kept_state kept[NTX_STATES_MOST];
    CHECK(ntx_layer_find(&l[0], NTX_OP_ATTEND) && ntx_layer_find(&l[0], NTX_OP_GLU));
    CHECK(!ntx_layer_find(&l[1], NTX_OP_ATTEND) && ntx_layer_find(&l[1], NTX_OP_GLU) && l[1].o == NTX_NO_TENSOR);
    CHECK(!ntx_layer_find(&l[2], NTX_OP_ATTEND) && l[2].q == NTX_NO_TENSOR && l[2].o != NTX_NO_TENSOR);
    CHECK(l[3].n_steps == 1 && l[3].step[0].op == NTX_OP_SCALE && l[3].step[0].out == NTX_BUF_X);
    CHECK(ntx_layer_find(&l[5], NTX_OP_ATTEND) && !ntx_layer_find(&l[5], NTX_OP_GLU));
    CHECK(ntx_dims_of(&x.m->hp, 4).n_head_kv == 2 * o.kv && ntx_states_of(&x.m->hp, 5, kept) == 1 &&
          ntx_states_of(&x.m->hp, 1, kept) == 0 && ntx_states_of(&x.m->hp, 3, kept) == 0);
    CHECK_STR(ntx_pack_refuses(&x.m->hp),
              "the number of neurons may differ from layer to layer, and groups are made for one number");
    close_model(&x);
}

/* Each head of K and V chooses blocks, behind the dense layers. A device reads all positions. */
static void check_blocks(void)
{
    struct mk_options o = options_of("minimax-m3");
    struct ntx_kept_state kept[NTX_STATES_MOST];
    o.ctx = 100000;
    struct opened x = open_model(&o);
    const struct ntx_hparams *hp = &x.m->hp;
    const struct ntx_step *choice = ntx_layer_find(&x.m->layers[1], NTX_OP_INDEX_TOPK);
    CHECK(hp->ctx_train == 100000 && hp->ctx_plain == 16 * 128 && hp->n_dense == 1 && hp->n_ff_shexp == 96);
    CHECK(choice->heads == hp->n_head_kv && choice->width == 64 && choice->index_topk.most == 16 &&
          choice->index_topk.block == 128 && choice->index_topk.last == 1 && !choice->index_topk.keys);
    CHECK(!ntx_layer_find(&x.m->layers[0], NTX_OP_INDEX_TOPK) &&
          !ntx_layer_find(&x.m->layers[0], NTX_OP_ATTEND)->attend.topk &&
          ntx_layer_find(&x.m->layers[1], NTX_OP_ATTEND)->attend.topk);
    CHECK(ntx_states_of(hp, 0, kept) == 1 && ntx_states_of(hp, 1, kept) == 2 && kept[1].beside && kept[1].k == 64 &&
          !kept[1].v);
    CHECK(ntx_layer_find(&x.m->layers[1], NTX_OP_EXPERTS)->experts.shared.act == NTX_FFN_SILU_CLAMPED);
    CHECK(ntx_layer_find(&x.m->layers[0], NTX_OP_GLU)->glu.hidden.act == NTX_FFN_SILU_CLAMPED);
    close_model(&x);
    refuse(&o, "minimax-m3.attention.indexer.block_size", "minimax-m3.attention.indexer.block_sizf", -EINVAL,
           "key 'minimax-m3.attention.indexer.block_size' is missing");
    refuse(&o, "minimax-m3.attention.indexer.head_count", "minimax-m3.attention.indexer.head_counu", -EINVAL,
           "key 'minimax-m3.attention.indexer.head_count' is missing");
}

/* Layers without RoPE or without a window, gates and factors. */
static void check_windows(void)
{
    struct mk_options o = options_of("afmoe");
    struct opened x = open_model(&o);
    const struct ntx_layer *l = x.m->layers;
    CHECK(x.m->hp.embd_scale == sqrtf((float)x.m->hp.n_embd) && x.m->hp.n_dense == 1 && x.m->hp.n_ff_shexp == 96);
    CHECK(window_of(&l[0]) == 9 && window_of(&l[2]) == 9 && !window_of(&l[3]) && ntx_layer_find(&l[2], NTX_OP_ROPE) &&
          !ntx_layer_find(&l[3], NTX_OP_ROPE));
    const struct ntx_step *gate = ntx_layer_find(&l[1], NTX_OP_GATE);
    CHECK(!gate->gate.by_head && !gate->gate.softplus && gate->width == x.m->hp.n_head * x.m->hp.head_v);
    CHECK_STR(name_of(&x, l[1].mla_gate), "blk.1.attn_gate.weight");
    CHECK_STR(name_of(&x, l[0].ffn_post_norm), "blk.0.post_ffw_norm.weight");
    close_model(&x);
    o = options_of("exaone-moe");
    x = open_model(&o);
    l = x.m->layers;
    CHECK(window_of(&l[2]) == 9 && !window_of(&l[3]) && ntx_layer_find(&l[2], NTX_OP_ROPE) &&
          !ntx_layer_find(&l[3], NTX_OP_ROPE));
    close_model(&x);
}

/* Heads and RoPE by layer. */
static void check_layers(void)
{
    struct mk_options o = options_of("laguna");
    o.window_heads = 6;
    o.rotated = 8;
    o.rope_scaling = "yarn";
    o.rope_factor = 4;
    struct opened x = open_model(&o);
    const struct ntx_layer *l = x.m->layers;
    const struct ntx_step *full = ntx_layer_find(&l[0], NTX_OP_ROPE), *near = ntx_layer_find(&l[1], NTX_OP_ROPE);
    CHECK(full->heads == 4 && full->rope.rotated == 8 && near->heads == 6 && near->rope.rotated == 16);
    CHECK(full->rope.angles == NTX_ROTATION_ALL && near->rope.angles == NTX_ROTATION_WINDOW && !window_of(&l[0]) &&
          window_of(&l[1]) == 9);
    CHECK(x.m->hp.rope_factor_window == 1 && x.m->hp.plain_window && x.m->hp.rope_base_window == o.rope_base / 4);
    const struct ntx_step *gate = ntx_layer_find(&l[1], NTX_OP_GATE);
    CHECK(gate->gate.by_head && gate->gate.softplus && gate->heads == 6);
    close_model(&x);
    o = options_of("mimo2");
    o.full_kv = 1;
    o.value_dim = 8;
    x = open_model(&o);
    l = x.m->layers;
    CHECK(ntx_dims_of(&x.m->hp, 0).n_head_kv == 1 && ntx_dims_of(&x.m->hp, 1).n_head_kv == 2);
    const struct ntx_step *scale = ntx_layer_find(&l[1], NTX_OP_SCALE);
    CHECK(scale->scale == 0.7f && scale->width == 16 && scale->out == NTX_BUF_V);
    CHECK_STR(name_of(&x, l[1].sinks), "blk.1.attn_sinks.weight");
    CHECK(ntx_layer_find(&l[0], NTX_OP_GLU) && !ntx_layer_find(&l[0], NTX_OP_EXPERTS));
    close_model(&x);
}

static void check_bailing(void)
{
    struct mk_options o = options_of("bailingmoe2");
    o.shared_ff = 48;
    struct opened x = open_model(&o);
    CHECK_STR(name_of(&x, x.m->layers[1].k), "blk.1.attn_qkv.weight");
    close_model(&x);
    o = options_of("bailingmoe3");
    o.head_dim = 24;
    o.rotated = 8;
    o.value_dim = 16;
    o.kv_lora = 32;
    o.delta_head = 16;
    o.attention_every = 2;
    o.shared_ff = 48;
    x = open_model(&o);
    const struct ntx_layer *l = x.m->layers;
    const struct ntx_step *rates = ntx_layer_find(&l[0], NTX_OP_RATES), *gate = ntx_layer_find(&l[1], NTX_OP_GATE);
    CHECK(rates->rates.bound == -5 && rates->rates.positive && ntx_layer_find(&l[0], NTX_OP_DELTA)->delta.by_key);
    CHECK_STR(name_of(&x, l[0].kda_f), "blk.0.ssm_f_a.weight");
    CHECK(gate->gate.by_head && !gate->gate.softplus && gate->heads == x.m->hp.n_head &&
          ntx_layer_find(&l[1], NTX_OP_ATTEND)->attend.mla);
    close_model(&x);
    refuse(&o, "bailingmoe3.kda.gate_lower_bound", "bailingmoe3.kda.gate_lower_baund", -EINVAL,
           "key 'bailingmoe3.kda.gate_lower_bound' is missing");
}

static void check_apertus(void)
{
    struct mk_options o = options_of("apertus");
    struct opened x = open_model(&o);
    const struct ntx_map_step *m = &ntx_layer_find(&x.m->layers[1], NTX_OP_MAP)->map;
    CHECK(m->kind == NTX_MAP_XIELU && m->beta == 0.5f && m->eps == -1e-6f);
    CHECK(fabsf(m->alpha_p - 0.854355f) < 1e-5f && fabsf(m->alpha_n - 0.903186f) < 1e-5f); /* softplus(0.3), (-0.7) */
    CHECK_STR(ntx_pack_refuses(&x.m->hp), "its FFNs have no gates");
    close_model(&x);
    refuse(&o, "xielu.alpha_n", "xielu.alpha_m", -EINVAL, "key 'xielu.alpha_n' is missing");
}

/* Norms that subtract the mean, also the last one, which is a step of the last layer. */
static void check_cohere(void)
{
    struct mk_options o = options_of("cohere2");
    struct opened x = open_model(&o);
    const struct ntx_layer *l = x.m->layers;
    CHECK(window_of(&l[2]) == 9 && !window_of(&l[3]) && !ntx_layer_find(&l[3], NTX_OP_ROPE));
    CHECK(l[3].step[l[3].n_steps - 1].op == NTX_OP_LAYERNORM && l[2].step[l[2].n_steps - 1].op == NTX_OP_ADD);
    CHECK(x.m->hp.no_output_norm && x.m->hp.logit_scale == 2 &&
          ntx_layer_find(l, NTX_OP_LAYERNORM)->layernorm.eps == 1e-5f);
    CHECK_STR(name_of(&x, l[3].end_norm), "output_norm.weight");
    close_model(&x);
    o = options_of("cohere2moe");
    x = open_model(&o);
    l = x.m->layers;
    CHECK(!window_of(&l[0]) && ntx_layer_find(&l[0], NTX_OP_ROPE) && window_of(&l[1]) == 9 && window_of(&l[3]) == 9);
    close_model(&x);
}

static void refuse_others(void)
{
    struct mk_options o = options_of("ernie4_5-moe");
    refuse_key(&o, "ernie4_5-moe.interleave_moe_layer_step", 2, -ENOTSUP,
               "key 'ernie4_5-moe.interleave_moe_layer_step' is 2: only 1 (experts in each layer) is supported");
    o = options_of("mimo2");
    refuse(&o, "mimo2.attention.sliding_window_pattern", "mimo2.attention.sliding_window_pottern", -EINVAL,
           "key 'mimo2.attention.sliding_window_pattern' is missing");
    o = options_of("hy_v3");
    o.nextn = 1;
    struct opened x = open_model(&o);
    CHECK(x.m->hp.n_nextn == 1 && x.m->hp.n_layers == 4 && x.m->hp.n_ff_shexp == 96);
    close_model(&x);
}

/* Groups of experts with an expert of their own each; their matrices stay in memory. */
static void check_grove(void)
{
    struct mk_options o = options_of("grovemoe");
    struct ntx_chunks *c;
    struct ntx_err err = {0};
    struct opened x = open_model(&o);
    const struct ntx_layer *l = &x.m->layers[1];
    CHECK(x.m->hp.adjugate.ff == 96 && x.m->hp.adjugate.each == 2 && x.m->hp.adjugate.scale == 0.5f);
    CHECK_STR(name_of(&x, l->adjugate_down), "blk.1.ffn_down_chexps.weight");
    CHECK(!ntx_chunks_make(x.m, 1 << 12, &c, &err));
    const struct ntx_chunk *up = &c->list[c->layers[1].adjugate_up.chunk0];
    CHECK(c->layers[1].adjugate_up.n_chunks == 1 && up->fixed && up->of_groups == 3 && up->n_out == 3 * 96);
    ntx_chunks_free(c);
    close_model(&x);
    refuse(&o, "grovemoe.expert_group_scale", "grovemoe.expert_group_scald", -EINVAL,
           "key 'grovemoe.expert_group_scale' is missing");
    refuse_key(&o, "grovemoe.experts_per_group", 4, -EINVAL,
               "key 'grovemoe.experts_per_group' is 4, but 6 experts do not form such groups");
    o = options_of("grok");
    x = open_model(&o);
    CHECK(x.m->hp.embd_scale == 3 && x.m->hp.logit_scale == 0.4f && x.m->hp.logit_cap == 8);
    CHECK_STR(name_of(&x, x.m->layers[1].attn_post_norm), "blk.1.attn_output_norm.weight");
    close_model(&x);
    refuse(&o, "blk.1.post_ffw_norm.weight", "blk.1.post_ffw_narm.weight", -EINVAL,
           "tensor 'blk.1.post_ffw_norm.weight' is missing");
    struct ntx_layer other;
    CHECK(!ntx_layer_describe("deepseek41", &(struct ntx_hparams){.n_layers = 1}, 0, &other)); /* no one settles it */
}

int main(void)
{
    check_grove();
    check_steps();
    check_windows();
    check_holes();
    check_blocks();
    check_layers();
    check_bailing();
    check_apertus();
    check_cohere();
    refuse_others();
    return 0;
}
