/* SPDX-License-Identifier: Apache-2.0 */
/* pieces_scan.c: keys and steps of Mamba-2 scans behind a convolution (Dao and Gu 2024, arXiv 2405.21060), and of short
 * convolutions (LFM2). */
#include <errno.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

int ntx__key_scan(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t inner;
    int rc;
    if ((rc = ntx__key_u32(k, "ssm.conv_kernel", -1, 2, NTX_DELTA_TAPS_MAX, &hp->delta.taps)) ||
        (rc = ntx__key_u32(k, "ssm.inner_size", -1, 1, NTX__MAX_WIDTH / 2, &inner)) ||
        (rc = ntx__key_u32(k, "ssm.time_step_rank", -1, 1, inner, &hp->delta.heads)) ||
        (rc = ntx__key_u32(k, "ssm.group_count", -1, 1, hp->delta.heads, &hp->delta.key_heads)) ||
        (rc = ntx__key_u32(k, "ssm.state_size", -1, 1, NTX_MIN((uint64_t)NTX_MAX_HEAD, NTX__MAX_WIDTH / 4u),
                           &hp->delta.keys)))
        return rc;
    hp->delta.head = inner / hp->delta.heads;
    if (inner % hp->delta.heads || hp->delta.heads % hp->delta.key_heads || hp->delta.head % NTX_DELTA_HEAD_STEP ||
        hp->delta.keys % NTX_DELTA_HEAD_STEP || hp->delta.head > NTX_MAX_HEAD ||
        (uint64_t)hp->delta.key_heads * hp->delta.keys > NTX__MAX_WIDTH / 4)
        return ntx_err_set(
            k->err, -ENOTSUP,
            "a Mamba-2 scan of %u values in %u heads and %u groups, with states of %u, is not supported: "
            "the widths of a head and of a state are multiples of %u, and groups divide the heads",
            inner, hp->delta.heads, hp->delta.key_heads, hp->delta.keys, NTX_DELTA_HEAD_STEP);
    return 0;
}

void ntx__add_scan_convolution(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_CONV, NTX_BUF_Q, NTX_BUF_V);
    s->width = ntx_width(hp, 0, NTX_DIM_DELTA_MIX);
    s->conv.taps = hp->delta.taps;
    s->conv.bias = true;
    ntx__takes(s, NTX_T_delta_conv, NTX__ALWAYS);
    ntx__takes(s, NTX_T_scan_conv_bias, NTX__ALWAYS);
}

/* Gates the output, then norms each group. */
static void gate_scan(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx__presence norm)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_GLU, NTX_BUF_ATTN, NTX_BUF_Z);
    s->in[1] = NTX_BUF_ATTN;
    s->width = hp->delta.heads * hp->delta.head;
    s->glu.hidden.act = NTX_FFN_SILU;
    if (norm == NTX__NEVER)
        return;
    ntx__norm(l, NTX_BUF_ATTN, NTX_BUF_ATTN, NTX_T_scan_norm, norm, hp->delta.key_heads,
              ntx_width(hp, 0, NTX_DIM_SCAN_GROUP));
    l->step[l->n_steps - 1].norm.each = true;
}

void ntx__add_scan_alone(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx__presence norm)
{
    ntx__add_product(l, NTX_BUF_Z, NTX_BUF_X, NTX_T_scan_gate);
    ntx__add_product(l, NTX_BUF_V, NTX_BUF_X, NTX_T_scan_mix);
    ntx__add_product(l, NTX_BUF_K, NTX_BUF_X, NTX_T_scan_dt);
    ntx__add_scan_convolution(hp, l);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_SCAN, NTX_BUF_ATTN, NTX_BUF_Q);
    s->in[1] = NTX_BUF_K;
    s->heads = hp->delta.heads;
    s->width = hp->delta.head;
    s->scan.groups = hp->delta.key_heads;
    s->scan.keys = hp->delta.keys;
    ntx__takes(s, NTX_T_delta_dt, NTX__ALWAYS);
    ntx__takes(s, NTX_T_scan_a, NTX__ALWAYS);
    ntx__takes(s, NTX_T_scan_d, NTX__ALWAYS);
    gate_scan(hp, l, norm);
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_delta_out);
}

void ntx__add_scan(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    ntx__norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_scan_alone(hp, l, NTX__ALWAYS);
    ntx__add_state(hp, l);
}

void ntx__add_short(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    ntx__norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_product(l, NTX_BUF_Z, NTX_BUF_X, NTX_T_short_gate);
    ntx__add_product(l, NTX_BUF_ATTN, NTX_BUF_X, NTX_T_short_out_gate);
    ntx__add_product(l, NTX_BUF_V, NTX_BUF_X, NTX_T_short_in);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_SHORTCONV, NTX_BUF_ATTN, NTX_BUF_V);
    s->in[1] = NTX_BUF_Z;
    s->width = hp->n_embd;
    s->shortconv.taps = hp->delta.taps;
    ntx__takes(s, NTX_T_short_conv, NTX__ALWAYS);
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_short_out);
    ntx__add_state(hp, l);
}
