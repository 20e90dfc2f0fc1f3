/* SPDX-License-Identifier: Apache-2.0 */
/* pieces_delta.c: keys and steps of delta nets behind a convolution: gated delta nets (one decay per head) and KDA
 * (one decay per key channel). */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

/* ---- keys */

/* Sets the bits of hp->recurrent by the file's list. */
static int read_recurrent_list(struct ntx__keys *k, const struct ntx_gguf_kv *kv)
{
    struct ntx_hparams *hp = k->hp;
    size_t size = kv->elem == NTX_GGUF_BOOL ? 1 : 4;
    if (kv->type != NTX_GGUF_ARR || (kv->elem != NTX_GGUF_BOOL && kv->elem != NTX_GGUF_U32 && kv->elem != NTX_GGUF_I32))
        return ntx_err_set(k->err, -EINVAL, "key '%s' is not a list of truth values", k->key);
    if (kv->count != hp->n_layers + hp->n_nextn)
        return ntx_err_set(k->err, -EINVAL, "key '%s' tells of %llu layers; there are %u", k->key,
                           (unsigned long long)kv->count, hp->n_layers + hp->n_nextn);
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        uint32_t is = 0;
        memcpy(&is, (const uint8_t *)kv->data + l * size, size);
        hp->recurrent[l / 64] |= (uint64_t)(is != 0) << l % 64;
    }
    return 0;
}

int ntx__key_recurrent(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "attention.recurrent_layers"));
    uint32_t every;
    int rc = kv ? read_recurrent_list(k, kv) : ntx__key_u32(k, "full_attention_interval", 4, 1, NTX_MAX_LAYERS, &every);
    if (rc)
        return rc;
    if (!kv)
        ntx_set_recurrent(hp, every);
    return ntx_count_recurrent(hp) < hp->n_layers
               ? 0
               : ntx_err_set(k->err, -ENOTSUP, "key '%s': a %s model without a layer of attention is not supported",
                             k->key, k->name);
}

int ntx__key_delta(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t inner;
    int rc;
    if ((rc = ntx__key_u32(k, "ssm.conv_kernel", -1, 2, NTX_DELTA_TAPS_MAX, &hp->delta.taps)) ||
        (rc = ntx__key_u32(k, "ssm.state_size", -1, NTX_DELTA_HEAD_STEP, NTX_MAX_HEAD, &hp->delta.head)) ||
        (rc = ntx__key_u32(k, "ssm.time_step_rank", -1, 1, NTX__MAX_WIDTH / 3 / hp->delta.head, &hp->delta.heads)) ||
        (rc = ntx__key_u32(k, "ssm.group_count", -1, 1, hp->delta.heads, &hp->delta.key_heads)) ||
        (rc = ntx__key_u32(k, "ssm.inner_size", -1, 1, NTX__MAX_WIDTH, &inner)))
        return rc;
    if (hp->delta.head % NTX_DELTA_HEAD_STEP || hp->delta.heads % hp->delta.key_heads ||
        inner != hp->delta.heads * hp->delta.head)
        return ntx_err_set(k->err, -ENOTSUP,
                           "a delta net of %u values in %u heads of %u over %u key heads is not supported: the width "
                           "of a head is a multiple of %u, and key heads divide the others",
                           inner, hp->delta.heads, hp->delta.head, hp->delta.key_heads, NTX_DELTA_HEAD_STEP);
    hp->delta.keys = hp->delta.head;
    return 0;
}

/* KDA has as many heads as attention. */
int ntx__key_kda(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc;
    if ((rc = ntx__key_u32(k, "ssm.conv_kernel", -1, 2, NTX_DELTA_TAPS_MAX, &hp->delta.taps)) ||
        (rc = ntx__key_u32(k, "kda.head_dim", -1, NTX_DELTA_HEAD_STEP,
                           NTX_MIN((uint64_t)NTX_MAX_HEAD, NTX__MAX_WIDTH / 3 / hp->n_head), &hp->delta.head)))
        return rc;
    hp->delta.heads = hp->delta.key_heads = hp->n_head;
    hp->delta.keys = hp->delta.head;
    if (hp->delta.head % NTX_DELTA_HEAD_STEP)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u; multiples of %u are supported", k->key, hp->delta.head,
                           NTX_DELTA_HEAD_STEP);
    return 0;
}

/* ---- steps */

/* Convolves q, k and v; q and k get length 1. */
static void add_convolution(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_tensor first, int n, float eps)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_CONV, NTX_BUF_Q, NTX_BUF_V);
    s->width = ntx_width(hp, 0, NTX_DIM_DELTA_MIX);
    s->conv.taps = hp->delta.taps;
    for (int i = 0; i < n; i++)
        ntx__takes(s, (enum ntx_tensor)((int)first + i), NTX__ALWAYS);
    s = ntx_layer_add(l, NTX_OP_UNIT, NTX_BUF_Q, NTX_BUF_Q);
    s->heads = 2 * hp->delta.key_heads;
    s->width = hp->delta.head;
    s->unit.eps = eps;
}

static void add_rates(const struct ntx_hparams *hp, struct ntx_layer *l, bool joined)
{
    if (joined)
        ntx__split(l, NTX_BUF_K, NTX_BUF_A, hp->delta.key_heads, hp->delta.heads / hp->delta.key_heads);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_RATES, NTX_BUF_A, NTX_BUF_A);
    s->in[1] = NTX_BUF_K;
    s->heads = s->width = hp->delta.heads;
    ntx__takes(s, NTX_T_delta_dt, NTX__ALWAYS);
    ntx__takes(s, NTX_T_delta_a, NTX__ALWAYS);
}

void ntx__add_delta(const struct ntx_hparams *hp, struct ntx_layer *l, bool joined)
{
    ntx__norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_delta_alone(hp, l, joined, false);
    ntx__add_state(hp, l);
}

/* Norms and gates the output of each head. */
static void gate_delta(const struct ntx_hparams *hp, struct ntx_layer *l, bool sigmoid)
{
    ntx__norm(l, NTX_BUF_ATTN, NTX_BUF_ATTN, NTX_T_delta_norm, NTX__ALWAYS, hp->delta.heads, hp->delta.head);
    struct ntx_step *s = ntx_layer_add(l, sigmoid ? NTX_OP_GATE : NTX_OP_GLU, NTX_BUF_ATTN,
                                       sigmoid ? NTX_BUF_ATTN : NTX_BUF_Z);
    s->in[1] = sigmoid ? NTX_BUF_Z : NTX_BUF_ATTN;
    s->width = hp->delta.heads * hp->delta.head;
    if (!sigmoid)
        s->glu.hidden.act = NTX_FFN_SILU;
}

void ntx__add_delta_alone(const struct ntx_hparams *hp, struct ntx_layer *l, bool joined, bool sigmoid)
{
    ntx__add_product(l, NTX_BUF_V, NTX_BUF_X, NTX_T_delta_mix);
    ntx__add_product(l, NTX_BUF_Z, NTX_BUF_X, NTX_T_delta_gate);
    ntx__add_product(l, NTX_BUF_K, NTX_BUF_X, joined ? NTX_T_delta_rates : NTX_T_delta_beta);
    if (!joined)
        ntx__add_product(l, NTX_BUF_A, NTX_BUF_X, NTX_T_delta_alpha);
    add_convolution(hp, l, NTX_T_delta_conv, 1, sigmoid ? 1e-6f : 0);
    add_rates(hp, l, joined);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_DELTA, NTX_BUF_ATTN, NTX_BUF_Q);
    s->in[1] = NTX_BUF_K;
    s->heads = hp->delta.heads;
    s->delta.key_heads = hp->delta.key_heads;
    s->width = hp->delta.head;
    s->delta.tiled = !joined;
    s->scale = 1.0f / sqrtf((float)hp->delta.head);
    gate_delta(hp, l, sigmoid);
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_delta_out);
}

/* A second product of n values: copies them first, so that they are quantised for it. */
static void multiply_twice(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf between, uint32_t n,
                           enum ntx_tensor second)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_SCALE, between, between);
    s->width = n;
    s->scale = 1;
    ntx__add_product(l, out, between, second);
}

static void add_kda_products(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__kda *has)
{
    const uint32_t n = hp->delta.heads * hp->delta.head;
    for (uint32_t i = 0; i < 3; i++) {
        ntx__add_product(l, NTX_BUF_V, NTX_BUF_X, (enum ntx_tensor)(NTX_T_kda_q + i));
        l->step[l->n_steps - 1].offset = i * n;
    }
    ntx__add_product(l, NTX_BUF_K, NTX_BUF_X, NTX_T_delta_beta);
    if (has->whole) {
        ntx__add_product(l, NTX_BUF_A, NTX_BUF_X, NTX_T_kda_f);
        ntx__add_product(l, NTX_BUF_Z, NTX_BUF_X, NTX_T_kda_g);
        return;
    }
    ntx__add_product(l, NTX_BUF_Q_LOW, NTX_BUF_X, NTX_T_kda_f_a);
    if (has->whole_gate)
        ntx__add_product(l, NTX_BUF_Z, NTX_BUF_X, NTX_T_kda_g);
    else
        ntx__add_product(l, NTX_BUF_Y, NTX_BUF_X, NTX_T_kda_g_a);
    multiply_twice(l, NTX_BUF_A, NTX_BUF_Q_LOW, hp->delta.head, NTX_T_kda_f_b);
    if (!has->whole_gate)
        multiply_twice(l, NTX_BUF_Z, NTX_BUF_Y, hp->delta.head, NTX_T_kda_g_b);
}

void ntx__add_kda(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__kda *has)
{
    ntx__norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_kda_alone(hp, l, has);
    ntx__add_state(hp, l);
}

void ntx__add_kda_alone(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__kda *has)
{
    const uint32_t n = hp->delta.heads * hp->delta.head;
    add_kda_products(hp, l, has);
    add_convolution(hp, l, NTX_T_kda_conv_q, 3, hp->streams.n ? 1e-6f : 0);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_RATES, NTX_BUF_A, NTX_BUF_A);
    s->in[1] = NTX_BUF_K;
    s->heads = hp->delta.heads;
    s->width = n;
    ntx__takes(s, NTX_T_kda_dt, NTX__ALWAYS);
    ntx__takes(s, has->a, NTX__ALWAYS);
    s->rates = has->rates;
    s = ntx_layer_add(l, NTX_OP_DELTA, NTX_BUF_ATTN, NTX_BUF_Q);
    s->in[1] = NTX_BUF_K;
    s->heads = s->delta.key_heads = hp->delta.heads;
    s->width = hp->delta.head;
    s->delta.by_key = true;
    s->scale = 1.0f / sqrtf((float)hp->delta.head);
    ntx__norm(l, NTX_BUF_ATTN, NTX_BUF_ATTN, NTX_T_delta_norm, NTX__ALWAYS, hp->delta.heads, hp->delta.head);
    s = ntx_layer_add(l, NTX_OP_GATE, NTX_BUF_ATTN, NTX_BUF_ATTN);
    s->in[1] = NTX_BUF_Z;
    s->width = n;
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_kda_out);
}
