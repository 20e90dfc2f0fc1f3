/* SPDX-License-Identifier: Apache-2.0 */
/* mla.c: multi-head latent attention (MLA; DeepSeek-V2, arXiv 2405.04434). A position keeps one vector for all heads: a
 * normed latent c_kv, and a rotated part of a key. A head's K and V would be products of c_kv with two of its matrices;
 * they are never made. Instead q is multiplied by the first, and the attended sum by the second (the absorbed form):
 *
 *   score(p) = (K_h' q_h) . c_kv(p) + q_h,rotated . key(p)          y_h = V_h (sum over p of weight(p) c_kv(p))
 *
 * So all heads attend to one head of kv_lora + rope_dim values, whose first kv_lora values are also V. The matrices are
 * always resident. A file has them as two tensors (K_h transposed, so that q is its input, quantised like any other),
 * or a head's rows of K before those of V; then q weighs the columns of K, as floats.
 *
 * A thread takes some heads of some rows through all three; bits do not depend on the split. */
#include <string.h>

#include "computed/pass/forward_impl.h"
#include "computed/pass/input_sums.h"

/* Row r of a head's matrix, in a weight with `rows` rows per head. */
static const uint8_t *head_matrix(const struct ntx_forward *f, enum ntx_tensor t, uint32_t head, uint32_t rows,
                                  uint32_t r)
{
    return (const uint8_t *)(const void *)f->vec[t] +
           ((size_t)head * rows + r) * ntx__layer_weights(f)->of[t].row_bytes;
}

/* y [n x ldy] = W x for n vectors, ldx floats apart. head: whose W. */
static void multiply_head(struct ntx_forward *f, const struct ntx__lane *lane, const struct ntx_weight *w,
                          uint32_t head, const uint8_t *rows, uint32_t n_out, const float *x, size_t ldx, uint32_t n,
                          float *y, size_t ldy)
{
    enum ntx_act form = ntx_act_for(w->type);
    size_t stride = ntx_act_row_bytes(form, w->n_in);
    if (f->c.sums && !f->hp->kv_joined)
        ntx_input_sums_add(f->c.sums, w->tensor, head, x, ldx, n);
    for (uint32_t i = 0; i < n; i++)
        f->c.ops->act_quantize[form](x + i * ldx, (uint8_t *)lane->mla_x + i * stride, w->n_in);
    f->c.ops->matmul[w->type](rows, w->row_bytes, n_out, w->n_in, lane->mla_x, stride, n, y, ldy);
}

/* Multiplies the part of q that is not rotated by K_h'. */
static void absorb(struct ntx_forward *f, const struct ntx__lane *lane, uint32_t head, const struct ntx_attn *a,
                   float *to, size_t ld)
{
    const struct ntx_hparams *hp = f->hp;
    const struct ntx_weight *k = &ntx__layer_weights(f)->k_b, *kv = &ntx__layer_weights(f)->kv_b;
    const uint32_t plain = hp->head_k - hp->rope_dim;
    if (!hp->kv_joined) {
        multiply_head(f, lane, k, head, head_matrix(f, NTX_T_k_b, head, hp->kv_lora, 0), hp->kv_lora, a->q, a->ld_q,
                      a->n_rows, to, ld);
        return;
    }
    for (uint32_t i = 0; i < a->n_rows; i++)
        memset(to + i * ld, 0, hp->kv_lora * sizeof *to);
    f->c.ops->columns[kv->type](head_matrix(f, NTX_T_kv_b, head, plain + hp->head_v, 0), kv->row_bytes, plain,
                                hp->kv_lora, a->q, a->ld_q, a->n_rows, to, ld);
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
        multiply_head(f, lane, &ntx__layer_weights(f)->of[t], head + h,
                      head_matrix(f, t, head + h, plain + hp->head_v, plain), hp->head_v,
                      a->out + (size_t)h * hp->kv_lora, a->ld_out, a->n_rows,
                      f->m.attn + row * f->ld_attn + (size_t)(head + h) * hp->head_v, f->ld_attn);
}
