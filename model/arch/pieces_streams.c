/* SPDX-License-Identifier: Apache-2.0 */
/* pieces_streams.c: keys and steps of hyper-connections: residual streams that are mixed before and after attention
 * and FFNs (computed/pass/hyper_connections.c). */
#include <errno.h>
#include <math.h>

#include "model/arch/arch_impl.h"

int ntx__key_stream_count(struct ntx__keys *k)
{
    int rc = ntx__key_u32(k, "hyper_connection.count", -1, 1, UINT32_MAX, &k->hp->streams.n);
    if (!rc && k->hp->streams.n != NTX_STREAMS)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is %u; %d residual streams are supported", k->key,
                           k->hp->streams.n, NTX_STREAMS);
    return rc;
}

int ntx__key_streams(struct ntx__keys *k)
{
    int rc = ntx__key_stream_count(k);
    if (rc || (rc = ntx__key_f32(k, "hyper_connection.epsilon", NAN, 0, 1, &k->hp->streams.eps)))
        return rc;
    return ntx__key_u32(k, "hyper_connection.sinkhorn_iterations", -1, 1, 1000, &k->hp->streams.rounds);
}

static struct ntx_step *streams_step(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_op op,
                                     enum ntx_buf out, enum ntx_buf in)
{
    struct ntx_step *s = ntx_layer_add(l, op, out, in);
    s->heads = hp->streams.n;
    s->width = hp->n_embd;
    return s;
}

/* Computes the weights of the streams by tensor t and the next two. */
static void add_stream_weights(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_tensor t, uint32_t width)
{
    ntx__add_norm(l, NTX_BUF_ATTN, NTX_BUF_STREAMS, 1, hp->streams.n * hp->n_embd);
    ntx__add_product(l, NTX_BUF_MIX, NTX_BUF_ATTN, t);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_MIXW, NTX_BUF_MIX, NTX_BUF_MIX);
    s->heads = hp->streams.n;
    s->width = width;
    s->mixw.rounds = hp->streams.rounds;
    s->mixw.eps = hp->streams.eps;
    s->scale = 2;
    ntx_step_takes(s, (enum ntx_tensor)(t + 1), false);
    ntx_step_takes(s, (enum ntx_tensor)(t + 2), false);
}

void ntx__streams_enter(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_tensor mix, enum ntx_tensor norm)
{
    add_stream_weights(hp, l, mix, ntx_width(hp, 0, NTX_DIM_MIX));
    streams_step(hp, l, NTX_OP_MIX, NTX_BUF_X, NTX_BUF_STREAMS)->in[1] = NTX_BUF_MIX;
    ntx_step_takes(ntx__add_norm(l, NTX_BUF_X, NTX_BUF_X, 1, hp->n_embd), norm, false);
}

void ntx__streams_leave(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    streams_step(hp, l, NTX_OP_SPREAD, NTX_BUF_STREAMS, NTX_BUF_Y)->in[1] = NTX_BUF_MIX;
}

void ntx__streams_begin(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    streams_step(hp, l, NTX_OP_STREAMS, NTX_BUF_STREAMS, NTX_BUF_H);
}

void ntx__streams_mean(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    streams_step(hp, l, NTX_OP_MIX, NTX_BUF_H, NTX_BUF_STREAMS);
}

/* H: in the last layer the learned mix of the streams; before it their mean, for code that looks at H. */
void ntx__streams_join(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l)
{
    const bool last = layer + 1 == hp->n_layers;
    if (last)
        add_stream_weights(hp, l, NTX_T_head_mix, hp->streams.n);
    streams_step(hp, l, NTX_OP_MIX, NTX_BUF_H, NTX_BUF_STREAMS)->in[1] = last ? NTX_BUF_MIX : NTX_BUF_NONE;
}
