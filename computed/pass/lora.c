/* SPDX-License-Identifier: Apache-2.0 */
/* lora.c: low-rank adds to a matrix's outputs (model/layer_delta.h), for all back ends; and the CPU's part of them. The
 * first of the two matrices was an ordinary product, into the part of LOW that this step reads. */
#include <math.h>

#include "computed/pass/forward_impl.h"

/* The current step. */
static const struct ntx_step *step_of(const struct ntx_forward *f) { return ntx__steps_of(f, f->run) + f->lora; }

static void quantize_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = step_of(f);
    const struct ntx_weight *w = ntx__weight_of(f, s);
    ntx__quantize_into(f, f->m.low_quantized, ntx__forms(&w, 1), f->m.low + i * f->buf[NTX_BUF_LOW].ld + s->from,
                       w->n_in, i);
}

static void add_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = step_of(f);
    if (!ntx__adds_to(f, s, i))
        return;
    const uint32_t n = s->n_weights ? ntx__weight_of(f, s)->n_out : s->width;
    const float *y = s->n_weights ? f->m.lora + i * f->buf[NTX_BUF_LORA].ld
                                  : f->m.low + i * f->buf[NTX_BUF_LOW].ld + s->from;
    float *out = f->buf[s->out].at + i * f->buf[s->out].ld + s->offset;
    for (uint32_t k = 0; k < n; k++)
        out[k] = fmaf(s->scale, y[k], out[k]);
}

int ntx__cpu_low(struct ntx_forward *f, const struct ntx_step *s, uint32_t n, uint32_t forms)
{
    (void)s, (void)forms;
    ntx__each(f, quantize_row, n);
    return 0;
}

int ntx__cpu_lora(struct ntx_forward *f, const struct ntx_step *s, uint32_t n)
{
    (void)s;
    ntx__each(f, add_row, n);
    return 0;
}

/* Some row uses the adapter. */
static bool is_wanted(const struct ntx_forward *f, const struct ntx_step *s, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && !ntx__adds_to(f, s, i))
        i++;
    return i < n;
}

static int add_lora(struct ntx_forward *f, const struct ntx_step *s, uint32_t n)
{
    const struct ntx__input in = {.buf = NTX_BUF_LOW, .set = NTX__OF_LOW, .at = s->from, .n_rows = n};
    int rc = 0;
    if (!is_wanted(f, s, n)) {
        const struct ntx_weight *w = s->n_weights ? ntx__weight_of(f, s) : NULL;
        return w && !(rc = ntx__settle_chunks(f)) ? ntx__skip_chunks(f, w->chunk0, w->chunk0 + w->n_chunks) : rc;
    }
    if (s->n_weights) {
        const struct ntx__product p = {.w = ntx__weight_of(f, s), .to = NTX_BUF_LORA};
        rc = f->back->low(f, s, n, ntx__forms(&p.w, 1));
        if (!rc)
            rc = f->back->multiply(f, &p, 1, &in);
    }
    return rc ? rc : f->back->lora(f, s, n);
}

/* Rows that skip the layer and leave only K and V need the adds to these alone. */
int ntx__run_lora(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(f, r);
    int rc = f->n_live ? 0 : ntx__settle_chunks(f);
    for (f->lora = 0; f->lora < r->n && !rc; f->lora++, s++) {
        const struct ntx_weight *w = s->n_weights ? ntx__weight_of(f, s) : NULL;
        if (s->feeds || f->n_live)
            rc = add_lora(f, s, f->n_live + (s->feeds ? f->n_kv_only : 0));
        else if (w)
            rc = ntx__skip_chunks(f, w->chunk0, w->chunk0 + w->n_chunks);
    }
    return rc;
}
