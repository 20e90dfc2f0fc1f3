/* SPDX-License-Identifier: Apache-2.0 */
/* jamba.c: Jamba: most layers are Mamba-1 scans (Gu and Dao 2023, arXiv 2312.00752) with norms of their rates, B and C;
 * the others are attention without RoPE. FFNs are dense, or have experts where the file has a router. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

struct own {
    uint64_t routed[NTX_MAX_LAYERS / 64]; /* layers with experts */
};

static int scan_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t inner;
    int rc;
    if ((rc = ntx__key_u32(k, "ssm.conv_kernel", -1, 2, NTX_DELTA_TAPS_MAX, &hp->delta.taps)) ||
        (rc = ntx__key_u32(k, "ssm.inner_size", -1, 1, NTX__MAX_WIDTH / 2, &inner)) ||
        (rc = ntx__key_u32(k, "ssm.time_step_rank", -1, 1, inner, &hp->delta.rank)) ||
        (rc = ntx__key_u32(k, "ssm.state_size", -1, 1, NTX_SCAN_STATE_MAX, &hp->delta.keys)))
        return rc;
    if (inner % NTX_DELTA_HEAD_STEP)
        return ntx_err_set(k->err, -ENOTSUP, "key '%s.ssm.inner_size' is %u: a multiple of %u is supported", k->name,
                           inner, NTX_DELTA_HEAD_STEP);
    hp->delta.head = NTX_DELTA_HEAD_STEP;
    hp->delta.heads = inner / NTX_DELTA_HEAD_STEP;
    return 0;
}

static int jamba_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    struct own *own = ntx__own(k, sizeof *own);
    int rc = own ? ntx__key_recurrent_kv(k, hp->n_head_kv) : -ENOMEM;
    if (rc || (rc = scan_keys(k)))
        return rc;
    hp->n_ff_exp = hp->n_ff;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        if (ntx__has(k, l, ntx_tensor_kinds[NTX_T_router].name))
            own->routed[l / 64] |= (uint64_t)1 << l % 64;
    return 0;
}

static void add_half(struct ntx_layer *out, enum ntx_tensor t, uint32_t offset)
{
    ntx__add_product(out, NTX_BUF_K, NTX_BUF_ATTN, t);
    out->step[out->n_steps - 1].offset = offset;
}

static void norm_half(struct ntx_layer *out, enum ntx_tensor t, uint32_t offset, uint32_t n)
{
    ntx__norm(out, NTX_BUF_K, NTX_BUF_K, t, NTX__ALWAYS, 1, n);
    out->step[out->n_steps - 1].offset = offset;
}

/* The convolution's output stays in Q; a copy in ATTN is quantised for the products of it. */
static void add_convolution(const struct ntx_hparams *hp, struct ntx_layer *out)
{
    ntx__add_scan_convolution(hp, out);
    struct ntx_step *s = ntx_layer_add(out, NTX_OP_SCALE, NTX_BUF_ATTN, NTX_BUF_Q);
    s->width = ntx_width(hp, 0, NTX_DIM_DELTA_VALUES);
    s->scale = 1;
}

static void add_scan(const struct ntx_hparams *hp, struct ntx_layer *out)
{
    const uint32_t n = ntx_width(hp, 0, NTX_DIM_DELTA_VALUES), keys = hp->delta.keys;
    struct ntx_step *s = ntx_layer_add(out, NTX_OP_SCANEACH, NTX_BUF_ATTN, NTX_BUF_Q);
    s->in[1] = NTX_BUF_K;
    s->width = n;
    s->scan.keys = keys;
    ntx__takes(s, NTX_T_kda_dt, NTX__ALWAYS);
    ntx__takes(s, NTX_T_each_a, NTX__ALWAYS);
    ntx__takes(s, NTX_T_each_d, NTX__ALWAYS);
    s = ntx_layer_add(out, NTX_OP_GLU, NTX_BUF_ATTN, NTX_BUF_Z);
    s->in[1] = NTX_BUF_ATTN;
    s->width = n;
    s->glu.hidden.act = NTX_FFN_SILU;
}

static void add_mamba(const struct ntx_hparams *hp, struct ntx_layer *out)
{
    const uint32_t keys = hp->delta.keys;
    ntx__norm(out, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_product(out, NTX_BUF_V, NTX_BUF_X, NTX_T_each_in);
    ntx__add_product(out, NTX_BUF_Z, NTX_BUF_X, NTX_T_each_gate);
    add_convolution(hp, out);
    ntx__add_product(out, NTX_BUF_Q_LOW, NTX_BUF_ATTN, NTX_T_each_low);
    add_half(out, NTX_T_each_b, 0);
    add_half(out, NTX_T_each_c, keys);
    norm_half(out, NTX_T_each_b_norm, 0, keys);
    norm_half(out, NTX_T_each_c_norm, keys, keys);
    ntx__norm(out, NTX_BUF_Q_LOW, NTX_BUF_Q_LOW, NTX_T_each_low_norm, NTX__ALWAYS, 1, hp->delta.rank);
    ntx__add_product(out, NTX_BUF_A, NTX_BUF_Q_LOW, NTX_T_each_dt);
    add_scan(hp, out);
    ntx__add_product(out, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_delta_out);
    ntx__add_state(hp, out);
}

static void jamba_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct own *own = hp->own;
    const bool routed = own ? own->routed[l / 64] >> l % 64 & 1 : l % 2 && hp->n_expert; /* without a file as Jamba 1 */
    if (ntx_is_recurrent(hp, l))
        add_mamba(hp, out);
    else
        ntx__add_attention(hp, out, &(struct ntx__attention){.unturned = true});
    if (routed)
        ntx__add_experts(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU});
    else
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

/* ---- models by name (model/arch.h) */

#define ROUTER(l) "blk." #l ".ffn_gate_inp.weight,"

static const struct ntx_known models[] = {
    {"jamba-1.5-mini", 32, 4096, 14336, 32, 0, 128, 65536, 262144, 16, 2, 0,
     "attention.head_count_kv=0x4,8,0x3 ssm.conv_kernel=4 ssm.inner_size=8192 ssm.state_size=16 "
     "ssm.time_step_rank=256",
     ROUTER(1) ROUTER(3) ROUTER(5) ROUTER(7) ROUTER(9) ROUTER(11) ROUTER(13) ROUTER(15) ROUTER(17) ROUTER(19) ROUTER(21)
         ROUTER(23) ROUTER(25) ROUTER(27) ROUTER(29) ROUTER(31)},
    {0},
};

const struct ntx__arch ntx__arch_jamba = {.models = models,
                                          .experts = NTX__MAYBE,
                                          .unturned = true,
                                          .kv_heads_tell = true,
                                          .keys = jamba_keys,
                                          .layer = jamba_layer};
