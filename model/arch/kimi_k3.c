/* SPDX-License-Identifier: Apache-2.0 */
/* kimi_k3.c: Kimi K3: KDA delta nets beside gated MLA without RoPE, the first layers dense, then experts that work on
 * latents, and shared experts that do not; SITU activations. Every `every` layers the residual stream is put aside, and
 * begins anew with attention's output. Before attention, before the FFN and at the end, what is put aside and the
 * stream are mixed ("attention residuals", arXiv 2603.15031). */
#include <errno.h>
#include <math.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

struct own {
    uint32_t every;
    float bound;         /* lower bound of the log decay (RATES); 0: none */
    float bend, bend_up; /* of SITU */
};

static int own_keys(struct ntx__keys *k, struct own *own)
{
    struct ntx_hparams *hp = k->hp;
    int rc;
    if ((rc = ntx__key_u32(k, "attn_res.block_size", -1, 1, NTX_MAX_LAYERS, &own->every)) ||
        (rc = ntx__key_f32(k, "kda.gate_lower_bound", 0, -1e6f, 0, &own->bound)) ||
        (rc = ntx__key_f32(k, "activation.situ_beta", NAN, 1e-6f, 1e6f, &own->bend)) ||
        (rc = ntx__key_f32(k, "activation.situ_linear_beta", NAN, -1e6f, 1e6f, &own->bend_up)) ||
        (rc = ntx__key_u32(k, "expert_latent_length", -1, 1, hp->n_embd, &hp->n_latent)))
        return rc;
    own->bend_up = NTX_MAX(own->bend_up, 0.0f);
    if ((hp->n_layers - 1) / own->every >= NTX_RECALLS)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u: at most %d outputs of layers can be put aside",
                           ntx__key_of(k, "attn_res.block_size"), own->every, NTX_RECALLS);
    return 0;
}

static int k3_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    struct own *own = ntx__own(k, sizeof *own);
    uint32_t shared;
    int rc = own ? 0 : -ENOMEM;
    if (rc || (rc = ntx__key_recurrent_kv(k, 1)) || (rc = ntx__key_kda(k)) || (rc = ntx__key_mla(k)) ||
        (rc = own_keys(k, own)) || (rc = ntx__key_dense(k)) ||
        (rc = ntx__key_u32(k, "expert_shared_count", -1, 1, NTX_MAX(1u, NTX__MAX_WIDTH / hp->n_ff_exp), &shared)))
        return rc;
    if (hp->kv_joined)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is missing: such a %s model is not supported",
                           ntx__key_of(k, "attention.value_length_mla"), k->name);
    hp->n_ff_shexp = shared * hp->n_ff_exp;
    hp->score_scale = 1.0f / sqrtf((float)hp->head_k);
    return 0;
}

/* out = mix of H and of the `aside` states that were put aside */
static void add_recall(const struct ntx_hparams *hp, struct ntx_layer *l, uint32_t aside, enum ntx_buf out,
                       enum ntx_tensor by)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_RECALL, out, NTX_BUF_H);
    s->in[1] = NTX_BUF_STREAMS;
    s->heads = aside;
    s->width = hp->n_embd;
    ntx__takes(s, by, NTX__ALWAYS);
}

static void add_situ(const struct own *own, struct ntx_layer *l, uint32_t n, enum ntx_buf to, enum ntx_tensor down)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_GLU, NTX_BUF_GATE, NTX_BUF_GATE);
    s->in[1] = NTX_BUF_UP;
    s->width = n;
    s->glu.hidden = (struct ntx_activation){.act = NTX_FFN_SITU, .bend = own->bend, .bend_up = own->bend_up};
    ntx__add_product(l, to, NTX_BUF_GATE, down);
}

/* All products of X come first: the shared expert's hidden values are quantised where X was. */
static void add_latent_experts(const struct ntx_model *m, const struct own *own, struct ntx_layer *l)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct ntx__experts has = {.act = NTX_FFN_SITU, .choice = NTX__ALWAYS};
    ntx__add_product(l, NTX_BUF_GATE, NTX_BUF_X, NTX_T_gate_beside);
    ntx__add_product(l, NTX_BUF_UP, NTX_BUF_X, NTX_T_up_beside);
    ntx__add_product(l, NTX_BUF_ATTN, NTX_BUF_X, NTX_T_latent_down);
    ntx__add_route(m, l, &has);
    add_situ(own, l, hp->n_ff_shexp, NTX_BUF_BESIDE, NTX_T_down_beside);
    ntx__copy_values(l, NTX_BUF_X, NTX_BUF_ATTN, hp->n_latent);
    ntx__add_routed(m, l, &has);
    struct ntx_step *s = &l->step[l->n_steps - 1];
    s->experts.hidden.bend = own->bend;
    s->experts.hidden.bend_up = own->bend_up;
    ntx__copy_values(l, NTX_BUF_ATTN, NTX_BUF_Y, hp->n_latent);
    ntx__norm(l, NTX_BUF_ATTN, NTX_BUF_ATTN, NTX_T_latent_norm, NTX__MAYBE, 1, hp->n_latent);
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_latent_up);
    ntx_layer_add(l, NTX_OP_ADD, NTX_BUF_Y, NTX_BUF_BESIDE)->width = hp->n_embd;
}

static void add_mixer(const struct ntx_hparams *hp, const struct own *own, uint32_t at, struct ntx_layer *l)
{
    ntx__norm(l, NTX_BUF_X, NTX_BUF_X, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    if (ntx_is_recurrent(hp, at))
        ntx__add_kda_alone(hp, l,
                           &(struct ntx__kda){.a = NTX_T_delta_a, .rates = {.bound = own->bound}, .whole_gate = true});
    else
        ntx__add_mla_alone(hp, at, l, &(struct ntx__mla){.unturned = true, .gated = true, .no_sinks = true});
}

static void k3_layer(const struct ntx_model *m, uint32_t at, struct ntx_layer *l)
{
    static const struct own usual = {.every = 2, .bound = -5, .bend = 4, .bend_up = 4};
    const struct ntx_hparams *hp = &m->hp;
    const struct own *own = hp->own ? hp->own : &usual;
    const uint32_t aside = (at + own->every - 1) / own->every, n = hp->n_embd;
    const bool begins = at % own->every == 0;
    add_recall(hp, l, aside, NTX_BUF_X, NTX_T_attn_recall);
    if (begins) {
        ntx__copy_values(l, NTX_BUF_STREAMS, NTX_BUF_H, n);
        l->step[l->n_steps - 1].offset = aside * n;
    }
    add_mixer(hp, own, at, l);
    if (begins)
        ntx__copy_values(l, NTX_BUF_H, NTX_BUF_Y, n);
    else
        ntx__add_state(hp, l);
    add_recall(hp, l, aside + begins, NTX_BUF_X, NTX_T_ffn_recall);
    ntx__norm(l, NTX_BUF_X, NTX_BUF_X, NTX_T_ffn_norm, NTX__ALWAYS, 1, n);
    if (at < hp->n_dense) {
        ntx__add_product(l, NTX_BUF_GATE, NTX_BUF_X, NTX_T_gate);
        ntx__add_product(l, NTX_BUF_UP, NTX_BUF_X, NTX_T_up);
        add_situ(own, l, hp->n_ff, NTX_BUF_Y, NTX_T_down);
    } else {
        add_latent_experts(m, own, l);
    }
    ntx__add_state(hp, l);
    if (at == hp->n_layers - 1)
        add_recall(hp, l, aside + begins, NTX_BUF_H, NTX_T_end_recall);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"kimi-k3", 93, 7168, 33792, 96, 0, 576, 163840, 1048576, 896, 16, 3072,
     "attention.head_count_kv=0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,"
     "1,0x3,"
     "1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,0x3,1,1 ssm.conv_kernel=4 kda.head_dim=128 "
     "kda.gate_lower_bound=-5.0 leading_dense_block_count=1 expert_shared_count=2 expert_latent_length=3584 "
     "attn_res.block_size=12 activation.situ_beta=4.0 activation.situ_linear_beta=25.0 "
     "attention.q_lora_rank=1536 " NTX__MLA "attention.key_length_mla=192 attention.value_length_mla=128",
     ""},
    {0},
};

const struct ntx__arch ntx__arch_kimi_k3 = {
    .models = models,
    .experts = NTX__ALWAYS,
    .expert_norm = true,
    .score = NTX_SCORE_SIGMOID,
    .kv_heads_tell = true,
    .keys = k3_keys,
    .layer = k3_layer,
    .own = {"attention.key_length_mla", "attention.value_length_mla", "attention.kv_lora_rank", "attention.q_lora_rank",
            "leading_dense_block_count"},
    .names = {[NTX_T_kda_g] = "ssm_g.weight",
              [NTX_T_latent_down] = "ffn_routed_down.weight",
              [NTX_T_latent_up] = "ffn_routed_up.weight"},
};
