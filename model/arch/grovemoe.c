/* SPDX-License-Identifier: Apache-2.0 */
/* grovemoe.c: GroveMoE (arXiv:2508.07785): Qwen 3 with experts, and beside them adjugate experts, which are smaller.
 * Neighbouring experts form a group, and each group has one. It reads what the experts read, and counts as often as
 * experts of its group are chosen, with their weights. */
#include <errno.h>
#include <math.h>

#include "model/arch/arch_impl.h"

static int grove_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc;
    if ((rc = ntx__key_u32(k, "expert_chunk_feed_forward_length", hp->head_k, 1, NTX_ADJUGATE_MAX, &hp->adjugate.ff)) ||
        (rc = ntx__key_f32(k, "expert_group_scale", NAN, -1e6f, 1e6f, &hp->adjugate.scale)) ||
        (rc = ntx__key_u32(k, "experts_per_group", -1, 1, hp->n_expert, &hp->adjugate.each)))
        return rc;
    if (hp->n_expert % hp->adjugate.each)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is %u, but %u experts do not form such groups", k->key,
                           hp->adjugate.each, hp->n_expert);
    return 0;
}

/* beside = what the adjugate experts make of x; the row's experts are known. */
static void add_adjugates(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ADJUGATE, NTX_BUF_Z, NTX_BUF_X);
    s->heads = hp->n_expert_used;
    s->width = hp->adjugate.ff;
    ntx__takes(s, NTX_T_adjugate_gate, NTX__ALWAYS);
    ntx__takes(s, NTX_T_adjugate_up, NTX__ALWAYS);
    s = ntx_layer_add(l, NTX_OP_ADJSUM, NTX_BUF_BESIDE, NTX_BUF_Z);
    s->width = hp->n_embd;
    s->scale = hp->adjugate.scale;
    ntx__takes(s, NTX_T_adjugate_down, NTX__ALWAYS);
}

static void grove_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct ntx__experts experts = {.act = NTX_FFN_SILU};
    (void)l;
    ntx__add_attention(hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .qk_norm = NTX__ALWAYS});
    ntx__norm(out, NTX_BUF_X, NTX_BUF_H, NTX_T_ffn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_route(m, out, &experts);
    add_adjugates(hp, out);
    ntx__add_routed(m, out, &experts);
    ntx_layer_add(out, NTX_OP_ADD, NTX_BUF_Y, NTX_BUF_BESIDE)->width = hp->n_embd;
    ntx__add_state(hp, out);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"grovemoe-33b", 48, 2048, 6144, 32, 4, 128, 151936, 40960, 128, 8, 768,
     "expert_chunk_feed_forward_length=128 experts_per_group=2 expert_group_scale=0.05", ""},
    {0},
};

const struct ntx__arch ntx__arch_grovemoe = {
    .models = models,
    .experts = NTX__ALWAYS,
    .expert_norm = true,
    .keys = grove_keys,
    .own = {"expert_group_scale"},
    .layer = grove_layer,
};
