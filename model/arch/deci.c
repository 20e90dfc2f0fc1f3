/* SPDX-License-Identifier: Apache-2.0 */
/* deci.c: Llama-Nemotron and DeciLM: llama's layers, of which a search has removed parts: a layer may have other
 * numbers of heads and another FFN, one matrix in place of attention, no attention, no FFN, or nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch/arch_impl.h"

static uint32_t number_of_layer(struct ntx__keys *k, const char *suffix, uint32_t l, uint32_t all)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, suffix));
    uint32_t v = kv && kv->type == NTX_GGUF_ARR ? 0 : all; /* of 32-bit integers, since the largest was read */
    if (kv && kv->type == NTX_GGUF_ARR && l < kv->count)
        memcpy(&v, (const uint8_t *)kv->data + 4 * (size_t)l, 4);
    return v;
}

static int deci_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    struct ntx_dims *d = calloc(hp->n_layers, sizeof *d);
    bool attends = false;
    if (!d)
        return ntx_err_set(k->err, -ENOMEM, "no memory for %u layers", hp->n_layers);
    hp->dims = k->m->dims = d;
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        d[l] = (struct ntx_dims){number_of_layer(k, "attention.head_count", l, hp->n_head),
                                 number_of_layer(k, "attention.head_count_kv", l, hp->n_head_kv),
                                 hp->head_k,
                                 hp->head_v,
                                 number_of_layer(k, "feed_forward_length", l, hp->n_ff),
                                 l};
        const bool linear = d[l].n_head && !d[l].n_head_kv;
        if ((!d[l].n_head && d[l].n_head_kv) || (d[l].n_head_kv && d[l].n_head % d[l].n_head_kv) ||
            (linear && d[l].n_head * hp->head_v != hp->n_embd))
            return ntx_err_set(k->err, -EINVAL, "layer %u has %u heads and %u of keys and values: that is not possible",
                               l, d[l].n_head, d[l].n_head_kv);
        attends |= d[l].n_head_kv > 0;
    }
    return attends ? 0
                   : ntx_err_set(k->err, -ENOTSUP, "a %s model without a layer of attention is not supported", k->name);
}

/* h += o(norm(h)) */
static void add_linear(const struct ntx_hparams *hp, struct ntx_layer *out)
{
    ntx__norm(out, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_product(out, NTX_BUF_Y, NTX_BUF_X, NTX_T_o);
    ntx__add_state(hp, out);
}

static void deci_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct ntx_dims d = ntx_dims_of(hp, l);
    if (d.n_head_kv) {
        ntx__add_attention(hp, out, &(struct ntx__attention){.layer = l, .rope = NTX_ROPE_NORM, .o_bias = NTX__MAYBE});
    } else if (d.n_head) {
        add_linear(hp, out);
    }
    if (d.n_ff)
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
    if (out->n_steps)
        return;
    struct ntx_step *s = ntx_layer_add(out, NTX_OP_SCALE, NTX_BUF_X, NTX_BUF_H); /* a layer has at least one step */
    s->width = hp->n_embd;
    s->scale = 1;
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"llama-3.3-nemotron-super-49b", 80, 8192, 0, 0, 0, 128, 128256, 131072, 0, 0, 0,
     "attention.head_count=64x6,0x2,64x3,0,64x30,0x10,64,0x18,64x9 "
     "attention.head_count_kv=8x6,0x2,8x3,0,8x30,0x10,8,0x18,8x9 "
     "feed_forward_length=14336,28672x5,14336x2,28672x3,17920,28672x30,7168,14336x2,7168,28672,7168,14336,7168x3,28672,"
     "7168,5632x2,7168,5632x3,7168x2,2816x2,5632x2,2816x2,5632,2816x2,28672x9",
     ""},
    {0},
};

const struct ntx__arch ntx__arch_deci = {.models = models, .per_layer = true, .keys = deci_keys, .layer = deci_layer};
