/* SPDX-License-Identifier: Apache-2.0 */
/* mla.c: attention over MLA latents (computed/pass/mla.c) on a device. q is multiplied by its head's first matrix; all
 * heads attend to the one latent per position; the result is multiplied by the head's second matrix. Both matrices are
 * always on the device. A launch computes all heads of as many rows as the scratch memory allows. */
#include "computed/gpu/device_impl.h"

uint64_t ntx__device_mla_form(const struct ntx_device *d)
{
    uint32_t most = NTX_ROUND_UP(NTX_MAX(d->hp->kv_lora, d->hp->head_k), 256u);
    size_t bytes = 0;
    for (int form = NTX_ACT_F32; form < NTX_N_ACTS; form++)
        bytes = NTX_MAX(bytes, ntx_act_row_bytes((enum ntx_act)form, most));
    return bytes;
}

/* y [n x heads] = W x: each head has its matrix of n_outs outputs, of which out0.. are computed. x: n rows of adjacent
 * heads, `each` floats per head. */
struct heads {
    const struct ntx_weight *w;
    uint32_t n_outs, out0, n_out;
    float *x, *y;
    uint64_t each, ldy, y_each;
    uint32_t n;
};

/* Writes x to m.mla_x in the form that the matrices need. */
static int form_heads(struct ntx_device *d, const struct heads *h, enum ntx_act form, size_t stride)
{
    const uint32_t n = h->n * d->hp->n_head;
    const struct ntx_gpu_gather f32 = {.from = h->x,
                                       .to = d->m.mla_x,
                                       .from_stride = h->each * sizeof(float),
                                       .to_stride = stride,
                                       .bytes = h->w->n_in * sizeof(float),
                                       .n_rows = n};
    const struct ntx_gpu_quantize g = {.x = h->x,
                                       .q8 = form == NTX_ACT_Q8 ? d->m.mla_x : NULL,
                                       .q8k = form == NTX_ACT_Q8K ? d->m.mla_x : NULL,
                                       .ld_x = h->each,
                                       .q8_stride = stride,
                                       .q8k_stride = stride,
                                       .n = h->w->n_in,
                                       .n_rows = n};
    return form == NTX_ACT_F32 ? ntx__device_go(d, NTX_GPU_GATHER, &f32, "q of heads")
                               : ntx__device_go(d, NTX_GPU_QUANTIZE, &g, "quantising");
}

static int multiply_heads(struct ntx_device *d, const struct heads *h)
{
    enum ntx_act form = ntx_act_for(h->w->type);
    size_t stride = ntx_act_row_bytes(form, h->w->n_in);
    int rc = form_heads(d, h, form, stride);
    const struct ntx_gpu_product g = {
        .w = d->at[h->w->chunk0] + (uint64_t)h->out0 * h->w->row_bytes,
        .x = d->m.mla_x,
        .y = h->y,
        .heads = {.w = (uint64_t)h->n_outs * h->w->row_bytes, .x = stride, .y = h->y_each, .n = d->hp->n_head},
        .row_bytes = h->w->row_bytes,
        .x_stride = d->hp->n_head * stride,
        .ldy = h->ldy,
        .type = h->w->type,
        .n_out = h->n_out,
        .n_in = h->w->n_in,
        .n_rows = h->n,
    };
    return rc ? rc : ntx__device_go(d, NTX_GPU_PRODUCT, &g, "heads' matrices");
}

/* mla_q = the sum of kv_b's columns for K, weighted by q. */
static int add_columns(struct ntx_device *d, const float *q, uint64_t ld_q, uint32_t n)
{
    const struct ntx_hparams *hp = d->hp;
    const struct ntx_weight *w = &ntx__device_layer(d)->kv_b;
    const uint32_t plain = hp->head_k - hp->rope_dim, kept = ntx_kept_k(hp, 0);
    const struct ntx_gpu_columns g = {
        .w = d->at[w->chunk0],
        .hidden = q,
        .y = d->m.mla_q,
        .groups = {.bytes = w->row_bytes, .n = plain, .size = 1, .n_neurons = plain},
        .heads = {.w = (uint64_t)(plain + hp->head_v) * w->row_bytes, .x = hp->head_k, .y = kept, .n = hp->n_head},
        .row_bytes = w->row_bytes,
        .ld_hidden = ld_q,
        .ld_y = (uint64_t)hp->n_head * kept,
        .type = w->type,
        .n = hp->kv_lora,
        .n_rows = n,
    };
    int rc = ntx__device_zero(d, d->m.mla_q, (uint64_t)n * hp->n_head * kept * sizeof(float));
    return rc ? ntx__device_fail(d, rc, "q for MLA latents") : ntx__device_go(d, NTX_GPU_COLUMNS, &g, "heads' columns");
}

/* Sets *q to n rows from `row` on, without padding between rows. There is padding if another layer's rows are wider. */
static int remove_padding(struct ntx_device *d, uint32_t row, uint32_t n, float **q)
{
    const uint64_t ld = d->f->buf[NTX_BUF_Q].ld, each = (uint64_t)d->hp->n_head * d->hp->head_k;
    const struct ntx_gpu_gather g = {.from = d->m.buf[NTX_BUF_Q] + row * ld,
                                     .to = d->m.mla_rows,
                                     .from_stride = ld * sizeof(float),
                                     .to_stride = each * sizeof(float),
                                     .bytes = each * sizeof(float),
                                     .n_rows = n};
    *q = ld == each ? d->m.buf[NTX_BUF_Q] + row * ld : d->m.mla_rows;
    return ld == each ? 0 : ntx__device_go(d, NTX_GPU_GATHER, &g, "q of heads");
}

/* Computes q of n rows from `row` on for MLA latents; the rotated part is copied. */
static int absorb_q(struct ntx_device *d, uint32_t row, uint32_t n)
{
    const struct ntx_hparams *hp = d->hp;
    const uint32_t kept = ntx_kept_k(hp, 0), plain = hp->head_k - hp->rope_dim;
    const uint64_t ld_q = (uint64_t)hp->n_head * hp->head_k;
    float *q;
    int rc = remove_padding(d, row, n, &q);
    if (rc)
        return rc;
    const struct heads k = {.w = &ntx__device_layer(d)->k_b,
                            .n_outs = hp->kv_lora,
                            .n_out = hp->kv_lora,
                            .x = q,
                            .y = d->m.mla_q,
                            .each = hp->head_k,
                            .ldy = (uint64_t)hp->n_head * kept,
                            .y_each = kept,
                            .n = n};
    rc = hp->kv_joined ? add_columns(d, q, ld_q, n) : multiply_heads(d, &k);
    const struct ntx_gpu_gather turned = {.from = q + plain,
                                          .to = d->m.mla_q + hp->kv_lora,
                                          .from_stride = hp->head_k * sizeof(float),
                                          .to_stride = kept * sizeof(float),
                                          .bytes = hp->rope_dim * sizeof(float),
                                          .n_rows = n * hp->n_head};
    return rc || !hp->rope_dim ? rc : ntx__device_go(d, NTX_GPU_GATHER, &turned, "q of heads");
}

static int attend_rows(struct ntx_device *d, const struct ntx_step *s, uint32_t row, uint32_t n)
{
    const struct ntx_hparams *hp = d->hp;
    const uint32_t plain = hp->kv_joined ? hp->head_k - hp->rope_dim : 0;
    struct ntx_gpu_attend g = {
        .q = d->m.mla_q,
        .out = d->m.mla_out,
        .partial = d->m.partial,
        .kv = ntx__device_kv(d, row),
        .ld_q = (uint64_t)hp->n_head * ntx_kept_k(hp, 0),
        .ld_out = (uint64_t)hp->n_head * hp->kv_lora,
        .n_rows = n,
        .most_pos = ntx__device_whole_splits(d),
        .sinks = ntx__device_vector(d, &ntx__device_layer(d)->sinks),
        .scale = s->scale,
    };
    const struct heads v = {.w = hp->kv_joined ? &ntx__device_layer(d)->kv_b : &ntx__device_layer(d)->v_b,
                            .n_outs = plain + hp->head_v,
                            .out0 = plain,
                            .n_out = hp->head_v,
                            .x = d->m.mla_out,
                            .y = d->m.buf[NTX_BUF_ATTN] + (uint64_t)row * d->f->ld_attn,
                            .each = hp->kv_lora,
                            .ldy = d->f->ld_attn,
                            .y_each = hp->head_v,
                            .n = n};
    int rc = absorb_q(d, row, n);
    ntx__device_lists(d, s, &g);
    if (!rc)
        rc = ntx__device_go(d, NTX_GPU_ATTEND, &g, "attention over MLA latents");
    return rc ? rc : multiply_heads(d, &v);
}

int ntx__device_attend_mla(struct ntx_device *d, const struct ntx_step *s)
{
    int rc = ntx__device_drop_holes(d, s);
    for (uint32_t r = 0; r < d->now.n_live && !rc; r += d->attend_rows)
        rc = attend_rows(d, s, r, NTX_MIN(d->now.n_live - r, d->attend_rows));
    return rc;
}
