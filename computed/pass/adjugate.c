/* SPDX-License-Identifier: Apache-2.0 */
/* adjugate.c: adjugate experts (GroveMoE, arXiv:2508.07785). `each` neighbouring experts form group g, which has a
 * small expert of its own. It is added to each of them that a row uses:
 *
 *   y = scale * sum over the row's experts e of weight(e) * down_g(act(gate_g x) * up_g x), g = e / each
 *
 * The matrices of all groups are always in memory. A thread computes the hidden values of one of a row's experts, later
 * some outputs of a row, in the order of its experts: bits depend neither on the split nor on other rows. */
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"

enum { OUTPUTS = 256 }; /* of a row, at a time */

/* y [n] = outputs [first, first + n) of the group's matrix t, which has n_out, times x. */
static void multiply(struct ntx_forward *f, unsigned thread, enum ntx_tensor t, uint32_t group, uint32_t n_out,
                     uint32_t first, uint32_t n, const float *x, float *y)
{
    const struct ntx_weight *w = &ntx__layer_weights(f)->of[t];
    const enum ntx_act form = ntx_act_for(w->type);
    const uint8_t *rows = (const uint8_t *)(const void *)f->vec[t] + ((size_t)group * n_out + first) * w->row_bytes;
    void *in = f->m.lanes[thread].adjugate_x;
    f->c.ops->act_quantize[form](x, in, w->n_in);
    f->c.ops->matmul[w->type](rows, w->row_bytes, n, w->n_in, in, ntx_act_row_bytes(form, w->n_in), 1, y, n);
}

static uint32_t group_of(const struct ntx_forward *f, uint32_t choice)
{
    return f->m.moe.id[choice] / f->hp->adjugate.each;
}

static void hidden_of_choice(struct ntx_forward *f, uint32_t choice, unsigned thread)
{
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint32_t row = choice / s->heads, group = group_of(f, choice);
    const float *x = f->buf[s->in[0]].at + row * f->buf[s->in[0]].ld;
    float *out = f->buf[s->out].at + row * f->buf[s->out].ld + (size_t)(choice % s->heads) * s->width,
          up[NTX_ADJUGATE_MAX];
    multiply(f, thread, NTX_T_adjugate_gate, group, s->width, 0, s->width, x, out);
    multiply(f, thread, NTX_T_adjugate_up, group, s->width, 0, s->width, x, up);
    f->c.ops->glu[NTX_FFN_SILU](out, up, s->width, out);
}

static void sum_outputs(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint32_t parts = (s->width + OUTPUTS - 1) / OUTPUTS, row = item / parts, first = item % parts * OUTPUTS,
                   n = NTX_MIN(s->width - first, (uint32_t)OUTPUTS), used = f->hp->n_expert_used,
                   ff = f->hp->adjugate.ff;
    const float *x = f->buf[s->in[0]].at + row * f->buf[s->in[0]].ld;
    float *out = f->buf[s->out].at + row * f->buf[s->out].ld + first, y[OUTPUTS];
    memset(out, 0, n * sizeof *out);
    for (uint32_t k = 0; k < used; k++) {
        const uint32_t choice = row * used + k;
        multiply(f, thread, NTX_T_adjugate_down, group_of(f, choice), s->width, first, n, x + (size_t)k * ff, y);
        f->c.ops->add_scaled(out, s->scale * f->m.moe.weight[choice], y, n);
    }
}

/* For `ntx calibrate`: the inputs of each group's matrix t, width values of each choice at x + row * ld. */
static void note_inputs(struct ntx_forward *f, enum ntx_tensor t, const float *x, size_t ld, uint32_t of_choice)
{
    for (uint32_t c = 0, used = f->hp->n_expert_used; c < f->n_live * used; c++)
        ntx_input_sums_add(f->c.sums, ntx__layer_weights(f)->of[t].tensor, group_of(f, c),
                           x + c / used * ld + (size_t)(c % used) * of_choice, 0, 1);
}

static int run_items(struct ntx_forward *f, const struct ntx__run *r, uint32_t n_items,
                     void (*fn)(struct ntx_forward *f, uint32_t item, unsigned thread))
{
    const struct ntx_step *s = ntx__steps_of(f, r);
    int rc = ntx__take_run(f, r);
    if (rc)
        return rc;
    for (uint8_t i = 0; i < s->n_weights && f->c.sums; i++)
        note_inputs(f, (enum ntx_tensor)s->weight[i], f->buf[s->in[0]].at, f->buf[s->in[0]].ld,
                    s->op == NTX_OP_ADJSUM ? f->hp->adjugate.ff : 0);
    ntx__each(f, fn, n_items);
    ntx__give_run(f, r);
    return 0;
}

int ntx__cpu_adjugate(struct ntx_forward *f, const struct ntx__run *r)
{
    return run_items(f, r, f->n_live * ntx__steps_of(f, r)->heads, hidden_of_choice);
}

int ntx__cpu_adjsum(struct ntx_forward *f, const struct ntx__run *r)
{
    return run_items(f, r, f->n_live * ((ntx__steps_of(f, r)->width + OUTPUTS - 1) / OUTPUTS), sum_outputs);
}
