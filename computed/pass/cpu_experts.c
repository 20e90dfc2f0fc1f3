/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_experts.c: the operations of experts (moe.c) besides products, on the CPU. */
#include <string.h>

#include "computed/pass/forward_impl.h"

/* ---- rows of a wave's choices */

/* The router's weight of choice number c. */
static float choice_weight(const struct ntx_forward *f, uint32_t c)
{
    const struct ntx__moe_mem *m = &f->m.moe;
    uint32_t k = m->row[c] * f->hp->n_expert_used;
    while (m->place[k] != c)
        k++;
    return m->weight[k];
}

float ntx__routed_weight(const struct ntx_forward *f, uint32_t i)
{
    return ntx__weighs_input(f) ? 1 : choice_weight(f, f->moe.first + i);
}

/* The row times the choice's weight. */
static void weigh_row(struct ntx_forward *f, uint32_t i, uint32_t row, uint32_t forms)
{
    float *x = f->m.moe.x + i * f->ld_x, by = choice_weight(f, f->moe.first + i);
    const uint32_t n = ntx_expert_width(f->hp);
    for (uint32_t k = 0; k < n; k++)
        x[k] = f->m.x[row * f->ld_x + k] * by;
    ntx__quantize_into(f, f->m.moe.quantized, forms, x, n, i);
}

static void gather_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx__moe_mem *m = &f->m.moe;
    const struct ntx_weight *const in[] = {&ntx__layer_weights(f)->expert[NTX_EXPERT_GATE],
                                           &ntx__layer_weights(f)->expert[NTX_EXPERT_UP]};
    uint32_t row = m->row[f->moe.first + i], forms = ntx__forms(in, 2), n = ntx_expert_width(f->hp);
    if (ntx__weighs_input(f)) {
        weigh_row(f, i, row, forms);
        return;
    }
    if (forms >> NTX_ACT_F32 & 1)
        memcpy(m->x + i * f->ld_x, f->m.x + row * f->ld_x, n * sizeof(float));
    for (int form = NTX_ACT_F32 + 1; form < NTX_N_ACTS; form++) {
        size_t bytes = ntx_act_row_bytes((enum ntx_act)form, n);
        if (forms >> form & 1)
            memcpy((uint8_t *)m->quantized[form] + i * bytes, (const uint8_t *)f->m.quantized[form] + row * bytes,
                   bytes);
    }
}

int ntx__cpu_gather(struct ntx_forward *f)
{
    ntx__each(f, gather_row, f->moe.n);
    return 0;
}

/* ---- hidden values */

/* Adds its expert's bias to x [n] of choice i of the wave. */
static void add_bias(struct ntx_forward *f, uint32_t i, enum ntx_expert_part part, float *x, uint32_t n)
{
    const float *bias = f->vec[NTX_T_expert_gate_bias + part];
    if (bias)
        f->c.ops->add(x, bias + (size_t)f->m.moe.expert[f->moe.first + i] * n, n);
}

static void limit_values(float *gate, float *up, float gates, float ups, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        gate[k] = gate[k] > gates ? gates : gate[k];
        const float below = up[k] < -ups ? -ups : up[k];
        up[k] = up[k] > ups ? ups : below;
    }
}

/* Some values at a time; the functions are those of soft caps and of gates. */
static void activate_situ(const struct ntx_forward *f, const struct ntx_activation *by, const float *gate,
                          const float *up, uint32_t n, float *out)
{
    enum { SOME = 256 };
    float g[SOME], u[SOME];
    for (uint32_t k = 0, some; k < n; k += some) {
        some = NTX_MIN(n - k, (uint32_t)SOME);
        memcpy(g, gate + k, some * sizeof *g);
        memcpy(u, up + k, some * sizeof *u);
        if (by->bend_up != 0)
            f->c.ops->cap(u, by->bend_up, some);
        for (uint32_t i = 0; i < some; i++)
            out[k + i] = g[i];
        f->c.ops->cap(out + k, by->bend, some);
        f->c.ops->sigmoid(g, some);
        f->c.ops->mul(out + k, g, some);
        f->c.ops->mul(out + k, u, some);
    }
}

void ntx__activate(const struct ntx_forward *f, const struct ntx_activation *by, float *gate, float *up, uint32_t n,
                   float *out)
{
    if (by->limit != 0)
        limit_values(gate, up, by->gate_limit, by->limit, n);
    if (by->act == NTX_FFN_SITU)
        activate_situ(f, by, gate, up, n, out);
    else
        f->c.ops->glu[by->act](gate, up, n, out);
}

void ntx__hidden(const struct ntx_forward *f, const struct ntx__glu *g, uint32_t i, uint32_t at, uint32_t n)
{
    float *gate = f->buf[g->gate].at + i * f->buf[g->gate].ld + at, *up = f->buf[g->up].at + i * f->buf[g->up].ld + at;
    ntx__activate(f, ntx__glu_by(g), gate, up, n, gate);
}

static void glu_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx__glu *g = f->glu;
    i += g->row0;
    float *gate = f->buf[g->gate].at + i * f->buf[g->gate].ld, *up = f->buf[g->up].at + i * f->buf[g->up].ld;
    if (g->of_choices && !f->hidden) {
        add_bias(f, i, NTX_EXPERT_GATE, gate, g->n);
        add_bias(f, i, NTX_EXPERT_UP, up, g->n);
    }
    if (!f->hidden)
        ntx__hidden(f, g, i, 0, g->n);
    ntx__quantize_into(f, f->quantized[g->set], g->forms, gate, g->n, i);
}

int ntx__cpu_glu(struct ntx_forward *f, const struct ntx__glu *g)
{
    f->glu = g;
    if (!f->away)
        ntx__each(f, glu_row, g->n_rows);
    f->hidden = f->away = false;
    return 0;
}

/* ---- weighted sum */

float ntx__shared_weight(const struct ntx_forward *f, uint32_t i)
{
    float e = -f->m.moe.shared[i];
    f->c.ops->exp_of(&e, 0, 1);
    return 1 / (1 + e);
}

static void weigh_shared(struct ntx_forward *f, uint32_t i)
{
    float *y = f->m.y + (size_t)i * f->hp->n_embd, by = ntx__shared_weight(f, i);
    for (uint32_t k = 0; k < f->hp->n_embd; k++)
        y[k] *= by;
}

void ntx__so_far(struct ntx_forward *f, uint32_t i, float *y)
{
    const struct ntx__moe_mem *m = &f->m.moe;
    const uint32_t n_embd = f->hp->n_embd, n = ntx_expert_width(f->hp);
    const float *shared = f->m.y + (size_t)i * n_embd, by = f->moe.weigh ? ntx__shared_weight(f, i) : 1;
    for (uint32_t k = 0; k < n; k++)
        y[k] = shared[k] * by;
    for (uint32_t h = 0; h < f->moe.n_here; h++)
        for (uint32_t c = m->first[m->order[h]]; c < m->first[m->order[h] + 1]; c++)
            if (m->row[c] == i)
                f->c.ops->add_scaled(y, ntx__routed_weight(f, c - f->moe.first),
                                     m->y + (size_t)(c - f->moe.first) * n_embd, n);
}

/* A row's choices are in the order of experts, and so are the waves. */
static void add_choices_of_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx__moe_mem *m = &f->m.moe;
    const uint32_t n_embd = f->hp->n_embd, n = ntx_expert_width(f->hp), used = f->hp->n_expert_used;
    if (f->moe.weigh)
        weigh_shared(f, i);
    for (uint32_t k = i * used; k < (i + 1) * used; k++) {
        uint32_t choice = m->place[k] - f->moe.first; /* below it wraps around */
        if (choice >= f->moe.n)
            continue;
        float *y = m->y + (size_t)choice * n_embd;
        add_bias(f, choice, NTX_EXPERT_DOWN, y, n);
        f->c.ops->add_scaled(f->m.y + (size_t)i * n_embd, ntx__weighs_input(f) ? 1 : m->weight[k], y, n);
    }
}

int ntx__cpu_combine(struct ntx_forward *f)
{
    ntx__each(f, add_choices_of_row, f->n_live);
    return 0;
}
