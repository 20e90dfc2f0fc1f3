/* SPDX-License-Identifier: Apache-2.0 */
/* nemotron_h.c: Nemotron-H and Nemotron Nano 2: a layer is a Mamba-2 scan, or attention without RoPE, or an FFN without
 * a gate, whose activation is the square of ReLU. Two lists of the file tell which: a layer without K and V heads and
 * without an FFN is a scan. */
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

static int layer_kinds(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    struct ntx_dims *d = calloc(hp->n_layers, sizeof *d);
    uint32_t attends = 0;
    if (!d)
        return ntx_err_set(k->err, -ENOMEM, "no memory for %u layers", hp->n_layers);
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        d[l] = (struct ntx_dims){hp->n_head, of_layer(k, "attention.head_count_kv", l, hp->n_head_kv), hp->head_k,
                                 hp->head_v, of_layer(k, "feed_forward_length", l, hp->n_ff),          l};
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
    return rc ? rc : layer_kinds(k);
}

/* relu(up)^2 = relu(up) * up */
static void add_ffn(const struct ntx_hparams *hp, uint32_t l, struct ntx_layer *out)
{
    ntx__norm(out, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_product(out, NTX_BUF_UP, NTX_BUF_X, NTX_T_up);
    struct ntx_step *s = ntx_layer_add(out, NTX_OP_GLU, NTX_BUF_GATE, NTX_BUF_UP);
    s->in[1] = NTX_BUF_UP;
    s->width = ntx_dims_of(hp, l).n_ff;
    s->glu.hidden.act = NTX_FFN_RELU;
    ntx__add_product(out, NTX_BUF_Y, NTX_BUF_GATE, NTX_T_down);
    ntx__add_state(hp, out);
}

static void nemotron_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    if (ntx_is_recurrent(hp, l))
        ntx__add_scan(hp, out);
    else if (ntx_dims_of(hp, l).n_head_kv)
        ntx__add_attention(
            hp, out,
            &(struct ntx__attention){.layer = l, .unturned = true, .qkv_bias = NTX__MAYBE, .o_bias = NTX__MAYBE});
    else
        add_ffn(hp, l, out);
}

const struct ntx__arch ntx__arch_nemotron_h = {
    .per_layer = true, .unturned = true, .keys = nemotron_keys, .layer = nemotron_layer};
