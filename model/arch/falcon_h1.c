/* SPDX-License-Identifier: Apache-2.0 */
/* falcon_h1.c: Falcon-H1: each layer adds attention and a Mamba-2 scan of the same normed state, then an FFN. */
#include <string.h>

#include "model/arch/arch_impl.h"

static int falcon_keys(struct ntx__keys *k)
{
    memset(k->hp->recurrent, 0, sizeof k->hp->recurrent);
    for (uint32_t l = 0; l < k->hp->n_layers; l++)
        k->hp->recurrent[l / 64] |= (uint64_t)1 << l % 64;
    k->hp->recurrent_attends = true;
    return ntx__key_scan(k);
}

/* The scan goes first; its output waits beside the state, which attention then adds to. */
static void falcon_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    ntx__norm(out, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_scan_alone(hp, out, NTX__MAYBE);
    struct ntx_step *s = ntx_layer_add(out, NTX_OP_SCALE, NTX_BUF_BESIDE, NTX_BUF_Y);
    s->width = hp->n_embd;
    s->scale = 1;
    s = ntx_layer_add(out, NTX_OP_SCALE, NTX_BUF_X, NTX_BUF_X); /* quantised anew for the products */
    s->width = hp->n_embd;
    s->scale = 1;
    ntx__add_attention(hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .normed = true, .o_bias = NTX__MAYBE});
    ntx_layer_add(out, NTX_OP_ADD, NTX_BUF_H, NTX_BUF_BESIDE)->width = hp->n_embd;
    ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

/* ---- models by name (model/arch.h) */

#define SCAN "ssm.conv_kernel=4 ssm.state_size=256 "
static const struct ntx_known models[] = {
    {"falcon-h1-7b", 44, 3072, 12288, 12, 2, 128, 130048, 262144, 0, 0, 0,
     SCAN "ssm.group_count=1 ssm.time_step_rank=24 ssm.inner_size=3072", ""},
    {"falcon-h1-34b", 72, 5120, 21504, 20, 4, 128, 261120, 262144, 0, 0, 0,
     SCAN "ssm.group_count=2 ssm.time_step_rank=32 ssm.inner_size=4096", ""},
    {0},
};

const struct ntx__arch ntx__arch_falcon_h1 = {
    .models = models, .keys = falcon_keys, .layer = falcon_layer, .names = {[NTX_T_ffn_norm] = "ffn_norm"}};
