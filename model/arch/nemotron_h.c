/* SPDX-License-Identifier: Apache-2.0 */
/* nemotron_h.c: Nemotron-H and Nemotron Nano 2: a layer is a Mamba-2 scan, or attention without RoPE, or an FFN without
 * a gate, whose activation is the square of ReLU. Two lists of the file tell which: a layer without K and V heads and
 * without an FFN is a scan. Nemotron 3 has experts in place of FFNs, and a shared expert; in the larger models experts
 * work on latents, between two more products. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch/arch_impl.h"

static uint32_t of_layer(struct ntx__keys *k, const char *suffix, uint32_t l, uint32_t all)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, suffix));
    uint32_t v = all;
    if (kv && kv->type == NTX_GGUF_ARR) { /* of 32-bit integers, since the largest was read */
        v = 0;
        if (l < kv->count)
            memcpy(&v, (const uint8_t *)kv->data + 4 * (size_t)l, 4);
    }
    return v;
}

/* ff: width of an FFN, or of the shared expert in its place */
static int layer_kinds(struct ntx__keys *k, uint32_t ff)
{
    struct ntx_hparams *hp = k->hp;
    struct ntx_dims *d = calloc(hp->n_layers, sizeof *d);
    uint32_t attends = 0;
    if (!d)
        return ntx_err_set(k->err, -ENOMEM, "no memory for %u layers", hp->n_layers);
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        const bool has_ffn = of_layer(k, "feed_forward_length", l, hp->n_ff);
        d[l] = (struct ntx_dims){hp->n_head,       of_layer(k, "attention.head_count_kv", l, hp->n_head_kv),
                                 hp->head_k,       hp->head_v,
                                 has_ffn ? ff : 0, l};
        if (d[l].n_head_kv && (d[l].n_head_kv != hp->n_head_kv || d[l].n_ff)) {
            free(d);
            return ntx_err_set(k->err, -ENOTSUP,
                               "layer %u has %u heads of K and V and an FFN of %u: in a %s model all layers of "
                               "attention have %u, and no FFN",
                               l, of_layer(k, "attention.head_count_kv", l, hp->n_head_kv),
                               of_layer(k, "feed_forward_length", l, hp->n_ff), k->name, hp->n_head_kv);
        }
        attends += d[l].n_head_kv > 0;
        if (!d[l].n_head_kv && !d[l].n_ff)
            hp->recurrent[l / 64] |= (uint64_t)1 << l % 64;
    }
    hp->dims = k->m->dims = d;
    return attends ? 0
                   : ntx_err_set(k->err, -ENOTSUP, "a %s model without a layer of attention is not supported", k->name);
}

static int nemotron_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc = ntx__key_scan(k);
    if (!rc && hp->n_head % hp->n_head_kv)
        return ntx_err_set(k->err, -EINVAL, "%u heads are not a multiple of %u key/value heads", hp->n_head,
                           hp->n_head_kv);
    return rc ? rc : layer_kinds(k, hp->n_ff);
}

/* In pruned models ("Puzzle") experts differ from layer to layer. */
static int refuse_lists(struct ntx__keys *k)
{
    static const char *const keys[] = {"expert_used_count", "expert_feed_forward_length"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, keys[i]));
        for (uint64_t l = 1; kv && kv->type == NTX_GGUF_ARR && l < kv->count; l++)
            if (memcmp(kv->data, (const uint8_t *)kv->data + 4 * l, 4)) /* of 32-bit integers, since it was read */
                return ntx_err_set(k->err, -ENOTSUP, "key '%s' differs between layers, which is not supported", k->key);
    }
    return 0;
}

static int moe_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc = refuse_lists(k);
    if (rc || (rc = ntx__key_nextn(k)) ||
        (rc = ntx__key_u32(k, "expert_shared_feed_forward_length", -1, 1, NTX__MAX_WIDTH, &hp->n_ff)) ||
        (rc = ntx__key_u32(k, "moe_latent_size", 0, 0, hp->n_embd, &hp->n_latent)))
        return rc;
    if (hp->n_ff_exp % 2)
        return ntx_err_set(k->err, -ENOTSUP, "experts of %u values are not supported: their matrix is halved",
                           hp->n_ff_exp);
    hp->experts_fused = hp->experts_ungated = true;
    return nemotron_keys(k);
}

/* out = down(relu(UP)^2), where relu(up)^2 = relu(up) * up */
static void add_squared(const struct ntx_hparams *hp, uint32_t l, struct ntx_layer *out, enum ntx_buf to)
{
    struct ntx_step *s = ntx_layer_add(out, NTX_OP_GLU, NTX_BUF_GATE, NTX_BUF_UP);
    s->in[1] = NTX_BUF_UP;
    s->width = ntx_dims_of(hp, l).n_ff;
    s->glu.hidden.act = NTX_FFN_RELU;
    ntx__add_product(out, to, NTX_BUF_GATE, NTX_T_down);
}

static void add_ffn(const struct ntx_hparams *hp, uint32_t l, struct ntx_layer *out)
{
    ntx__norm(out, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_product(out, NTX_BUF_UP, NTX_BUF_X, NTX_T_up);
    add_squared(hp, l, out, NTX_BUF_Y);
    ntx__add_state(hp, out);
}

/* All products of X come first: the shared expert's hidden values are quantised where X was. So X, or the latents in
 * its place, are quantised anew for the experts. */
static void add_experts(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct ntx__experts has = {.act = NTX_FFN_RELU, .choice = NTX__ALWAYS};
    ntx__norm(out, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_product(out, NTX_BUF_UP, NTX_BUF_X, NTX_T_up);
    if (hp->n_latent)
        ntx__add_product(out, NTX_BUF_ATTN, NTX_BUF_X, NTX_T_latent_down);
    ntx__add_route(m, out, &has);
    add_squared(hp, l, out, NTX_BUF_BESIDE);
    ntx__copy_values(out, NTX_BUF_X, hp->n_latent ? NTX_BUF_ATTN : NTX_BUF_X, ntx_expert_width(hp));
    ntx__add_routed(m, out, &has);
    if (hp->n_latent) {
        ntx__copy_values(out, NTX_BUF_ATTN, NTX_BUF_Y, hp->n_latent);
        ntx__add_product(out, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_latent_up);
    }
    ntx_layer_add(out, NTX_OP_ADD, NTX_BUF_Y, NTX_BUF_BESIDE)->width = hp->n_embd;
    ntx__add_state(hp, out);
}

/* False: the layer is neither a scan nor attention. */
static bool add_mixer(const struct ntx_hparams *hp, uint32_t l, struct ntx_layer *out)
{
    if (ntx_is_recurrent(hp, l))
        ntx__add_scan(hp, out);
    else if (ntx_dims_of(hp, l).n_head_kv)
        ntx__add_attention(
            hp, out,
            &(struct ntx__attention){.layer = l, .unturned = true, .qkv_bias = NTX__MAYBE, .o_bias = NTX__MAYBE});
    else
        return false;
    return true;
}

static void nemotron_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    if (!add_mixer(&m->hp, l, out))
        add_ffn(&m->hp, l, out);
}

static void moe_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    if (!add_mixer(&m->hp, l, out))
        add_experts(m, l, out);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"nemotron-nano-9b-v2", 56, 4480, 0, 40, 0, 128, 131072, 131072, 0, 0, 0,
     "attention.head_count_kv=0x14,8,0x6,8,0x8,8,0x8,8,0x16 feed_forward_length=0,15680,0,15680,0,15680,0x2,15680,0,"
     "15680,0,15680,0x2,15680,0,15680,0,15680,0x2,15680,0,15680,0,15680,0,15680,0x2,15680,0,15680,0,15680,0,15680,0x2,"
     "15680,0,15680,0x2,15680,0,15680,0,15680,0,15680,0,15680,0,15680 ssm.conv_kernel=4 ssm.state_size=128 "
     "ssm.group_count=8 ssm.time_step_rank=128 ssm.inner_size=10240",
     ""},
    {0},
};
/* Ultra: 48 scans, 48 with experts and 12 with attention; their order is a guess, which no byte depends on. */
static const struct ntx_known moe_models[] = {
    {"nemotron-3-nano-30b-a3b", 52, 2688, 0, 32, 0, 128, 131072, 262144, 128, 6, 1856,
     "attention.head_count_kv=0x5,2,0x6,2,0x6,2,0x6,2,0x6,2,0x8,2,0x9 feed_forward_length=0,1856,0,"
     "1856,0x2,1856,0,1856,0,1856,0x2,1856,0,1856,0,1856,0x2,1856,0,1856,0,1856,0x2,1856,0,1856,0,"
     "1856,0x2,1856,0,1856,0,1856,0,1856,0x2,1856,0,1856,0,1856,0,1856,0,1856 ssm.conv_kernel=4 "
     "ssm.state_size=128 ssm.group_count=8 ssm.time_step_rank=64 ssm.inner_size=4096 "
     "expert_shared_feed_forward_length=3712 expert_weights_scale=2.5",
     ""},
    {"nemotron-3-super-120b-a12b", 88, 4096, 0, 32, 0, 128, 131072, 262144, 512, 22, 2688,
     "attention.head_count_kv=0x7,2,0x8,2,0x8,2,0x10,2,0x10,2,0x10,2,0x10,2,0x8,2,0x9 "
     "feed_forward_length=0,2688,0,2688,0,2688,0x2,2688,0,2688,0,2688,0,2688,0x2,2688,0,2688,0,2688,0,"
     "2688,0x2,2688,0,2688,0,2688,0,2688,0,2688,0x2,2688,0,2688,0,2688,0,2688,0,2688,0x2,2688,0,2688,"
     "0,2688,0,2688,0,2688,0x2,2688,0,2688,0,2688,0,2688,0,2688,0x2,2688,0,2688,0,2688,0,2688,0x2,"
     "2688,0,2688,0,2688,0,2688,0,2688 ssm.conv_kernel=4 ssm.state_size=128 ssm.group_count=8 "
     "ssm.time_step_rank=128 ssm.inner_size=8192 expert_shared_feed_forward_length=5376 "
     "expert_weights_scale=5.0 moe_latent_size=1024",
     ""},
    {"nemotron-3-ultra-550b-a55b", 108, 8192, 0, 64, 0, 128, 131072, 262144, 512, 22, 5120,
     "attention.head_count_kv=0x5,2,0x3 feed_forward_length=0,5120,0,5120,0x2,5120,0,5120 ssm.conv_kernel=4 "
     "ssm.state_size=128 ssm.group_count=8 ssm.time_step_rank=256 ssm.inner_size=16384 "
     "expert_shared_feed_forward_length=10240 expert_weights_scale=5.0 moe_latent_size=2048",
     ""},
    {0},
};

const struct ntx__arch ntx__arch_nemotron_h = {
    .models = models, .per_layer = true, .unturned = true, .keys = nemotron_keys, .layer = nemotron_layer};
const struct ntx__arch ntx__arch_nemotron_h_moe = {.models = moe_models,
                                                   .experts = NTX__ALWAYS,
                                                   .score = NTX_SCORE_SIGMOID,
                                                   .per_layer = true,
                                                   .unturned = true,
                                                   .keys = moe_keys,
                                                   .own = {"nextn_predict_layers"},
                                                   .layer = moe_layer,
                                                   .names = {[NTX_T_up] = "ffn_up_shexp.weight",
                                                             [NTX_T_down] = "ffn_down_shexp.weight",
                                                             [NTX_T_expert_gate_up] = "ffn_up_exps.weight"}};
