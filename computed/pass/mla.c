/* SPDX-License-Identifier: Apache-2.0 */
/* mla.c: attention over latents (multi-head latent attention; DeepSeek-V2, arXiv 2405.04434). What is kept of a
 * position is one vector for all heads: a normed latent, and a rotated part of a key behind it. A head's K and V would
 * be products of the latent with two matrices of the head's own; they are never made. Instead q goes through the one
 * and what was attended through the other (the absorbed form):
 *
 *   score(p) = (K_h' q_h) . latent(p) + q_h,rotated . key(p)          y_h = V_h (sum over p of weight(p) latent(p))
 *
 * So all heads attend to one head of kv_lora + rope_dim values, of which the first kv_lora are V, too. The matrices
 * always lie in memory. A file has them apart (K_h' turned over, so that q is a row for it: quantised as every
 * product's input is), or a head's rows of K before those of V, whose columns q then weighs, as floats.
 *
 * A thread takes some heads of some rows through all three; bits do not depend on which. */
#include <string.h>

#include "computed/pass/forward_impl.h"
#include "computed/pass/input_sums.h"

static const struct ntx_layer_weights *layer(const struct ntx_forward *f) { return &f->c.chunks->layers[f->layer]; }

/* Row r of a head's matrix of a weight that has `rows` for each. */
static const uint8_t *matrix(const struct ntx_forward *f, enum ntx_tensor t, uint32_t head, uint32_t rows, uint32_t r)
{
    return (const uint8_t *)(const void *)f->vec[t] + ((size_t)head * rows + r) * layer(f)->of[t].row_bytes;
}

/* y [n x ldy] = W x of n vectors, ldx floats apart. head: whose W is. */
static void multiply(struct ntx_forward *f, const struct ntx__lane *lane, const struct ntx_weight *w, uint32_t head,
                     const uint8_t *rows, uint32_t n_out, const float *x, size_t ldx, uint32_t n, float *y, size_t ldy)
{
    enum ntx_act form = ntx_act_for(w->type);
    size_t stride = ntx_act_row_bytes(form, w->n_in);
    if (f->c.sums && !f->hp->kv_joined)
        ntx_input_sums_add(f->c.sums, w->tensor, head, x, ldx, n);
    for (uint32_t i = 0; i < n; i++)
        f->c.ops->act_quantize[form](x + i * ldx, (uint8_t *)lane->mla_x + i * stride, w->n_in);
    f->c.ops->matmul[w->type](rows, w->row_bytes, n_out, w->n_in, lane->mla_x, stride, n, y, ldy);
}

/* The part of q that is not rotated, for latents. */
static void absorb(struct ntx_forward *f, const struct ntx__lane *lane, uint32_t head, const struct ntx_attn *a,
                   float *to, size_t ld)
{
    const struct ntx_hparams *hp = f->hp;
    const struct ntx_weight *k = &layer(f)->k_b, *kv = &layer(f)->kv_b;
    const uint32_t plain = hp->head_k - hp->rope_dim;
    if (!hp->kv_joined) {
        multiply(f, lane, k, head, matrix(f, NTX_T_k_b, head, hp->kv_lora, 0), hp->kv_lora, a->q, a->ld_q, a->n_rows,
                 to, ld);
        return;
    }
    for (uint32_t i = 0; i < a->n_rows; i++)
        memset(to + i * ld, 0, hp->kv_lora * sizeof *to);
    f->c.ops->columns[kv->type](matrix(f, NTX_T_kv_b, head, plain + hp->head_v, 0), kv->row_bytes, plain, hp->kv_lora,
                                a->q, a->ld_q, a->n_rows, to, ld);
}

void ntx__mla_begin(struct ntx_forward *f, const struct ntx__lane *lane, uint32_t row, uint32_t head,
                    struct ntx_attn *a)
{
    const struct ntx_hparams *hp = f->hp;
    const uint32_t kept = ntx_kept_k(hp, 0), plain = hp->head_k - hp->rope_dim;
    const size_t ld = (size_t)a->n_q * kept;
    for (uint32_t h = 0; h < a->n_q; h++) {
        struct ntx_attn one = *a;
        float *to = lane->mla_q + (size_t)h * kept;
        one.q = f->m.q + row * f->buf[NTX_BUF_Q].ld + (size_t)(head + h) * hp->head_k;
        absorb(f, lane, head + h, &one, to, ld);
        for (uint32_t i = 0; i < a->n_rows; i++)
            memcpy(to + i * ld + hp->kv_lora, one.q + i * a->ld_q + plain, hp->rope_dim * sizeof *to);
    }
    a->q = lane->mla_q;
    a->ld_q = ld;
    a->out = lane->mla_out;
    a->ld_out = (size_t)a->n_q * hp->kv_lora;
    a->head_k = kept;
    a->head_v = hp->kv_lora;
    a->v = a->k;
    a->v_in_k = true;
}

void ntx__mla_end(struct ntx_forward *f, const struct ntx__lane *lane, uint32_t row, uint32_t head,
                  const struct ntx_attn *a)
{
    const struct ntx_hparams *hp = f->hp;
    const bool joined = hp->kv_joined;
    const uint32_t plain = joined ? hp->head_k - hp->rope_dim : 0;
    const enum ntx_tensor t = joined ? NTX_T_kv_b : NTX_T_v_b;
    for (uint32_t h = 0; h < a->n_q; h++)
        multiply(f, lane, &layer(f)->of[t], head + h, matrix(f, t, head + h, plain + hp->head_v, plain), hp->head_v,
                 a->out + (size_t)h * hp->kv_lora, a->ld_out, a->n_rows,
                 f->m.attn + row * f->ld_attn + (size_t)(head + h) * hp->head_v, f->ld_attn);
}
