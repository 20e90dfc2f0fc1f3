/* SPDX-License-Identifier: Apache-2.0 */
/* forward_steps.c: reports the values of steps for watched rows. A run's steps are reported when the run is over, since
 * a back end may do them in one go: the final values of each buffer that it wrote. */
#include <stdio.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"

static const char *const buffers[NTX_N_BUFS] = {
    [NTX_BUF_H] = "H",
    [NTX_BUF_X] = "X",
    [NTX_BUF_Q_LOW] = "Q_LOW",
    [NTX_BUF_Q] = "Q",
    [NTX_BUF_K] = "K",
    [NTX_BUF_V] = "V",
    [NTX_BUF_ATTN] = "ATTN",
    [NTX_BUF_GATE] = "GATE",
    [NTX_BUF_UP] = "UP",
    [NTX_BUF_Y] = "Y",
    [NTX_BUF_Z] = "Z",
    [NTX_BUF_A] = "A",
    [NTX_BUF_BESIDE] = "BESIDE",
    [NTX_BUF_INPUTS] = "INPUTS",
    [NTX_BUF_STREAMS] = "STREAMS",
    [NTX_BUF_MIX] = "MIX",
    [NTX_BUF_POOL] = "POOL",
    [NTX_BUF_POOL_GATE] = "POOL_GATE",
    [NTX_BUF_KEYS] = "KEYS",
    [NTX_BUF_KEYS_GATE] = "KEYS_GATE",
    [NTX_BUF_NORMED] = "NORMED",
    [NTX_BUF_GATES] = "GATES",
    [NTX_BUF_LOW] = "LOW",
    [NTX_BUF_LORA] = "PLUS",
};

void ntx_forward_watch(struct ntx_forward *f, ntx_watch_fn *fn, void *ctx)
{
    f->watch = fn;
    f->watch_ctx = ctx;
}

void ntx__watch_begin(struct ntx_forward *f)
{
    f->watched = false;
    for (uint32_t i = 0; f->watch && i < f->b->n_rows; i++)
        f->watched |= f->b->rows[i].watched;
}

/* one buffer, of the first n live rows */
struct shown {
    struct ntx_step_values v; /* all but the values */
    const float *at;
    size_t ld;
    bool by_batch; /* rows of the batch, not of the layer */
    uint32_t n;
};

static void show_values(struct ntx_forward *f, struct shown s)
{
    for (uint32_t i = 0; i < s.n; i++) {
        const struct ntx_row *row = &f->b->rows[f->m.live[i]];
        s.v.values = s.at + (s.by_batch ? f->m.live[i] : i) * s.ld;
        if (row->watched)
            f->watch(f->watch_ctx, row, &s.v);
    }
}

/* Brings the buffer's rows to the host. 1: they are nowhere. */
static int find_values(struct ntx_forward *f, enum ntx_buf b, struct shown *s)
{
    s->by_batch = ntx__by_batch((uint8_t)b);
    s->at = f->buf[b].at;
    s->ld = f->buf[b].ld;
    if (f->run->by == NTX_BY_ROWS && f->back->unseen >> b & 1)
        return 1;
    return ntx__fetch(f, b, 0, s->by_batch ? f->b->n_rows : s->n);
}

static int show_step(struct ntx_forward *f, const struct ntx_step *s)
{
    char name[NTX_STEP_NAME];
    const char *weight = s->n_weights ? ntx_tensor_kinds[s->weight[0]].name : "";
    struct shown out = {
        .v = {.layer = f->layer,
              .step = (uint32_t)(s - f->c.model->layers[f->layer].step),
              .name = name,
              .buffer = buffers[s->out],
              .width = ntx_step_width(f->hp, f->layer, s)},
        .n = f->n_live + (s->feeds ? f->n_kv_only : 0),
    };
    snprintf(name, sizeof name, "%s%s%s", ntx_op_name((enum ntx_op)s->op), *weight ? " " : "", weight);
    int rc = out.n ? find_values(f, (enum ntx_buf)s->out, &out) : 1;
    if (!rc)
        show_values(f, out);
    return rc < 0 ? rc : 0;
}

enum { MOST_EXPERTS = 64 }; /* of a row; further ones are not shown */

/* The numbers of each row's experts, and their weights. */
static void show_route(struct ntx_forward *f, const struct ntx_step *s)
{
    uint32_t used = f->hp->n_expert_used, n = NTX_MIN(used, (uint32_t)MOST_EXPERTS);
    float ids[MOST_EXPERTS];
    struct ntx_step_values v = {
        .layer = f->layer, .step = (uint32_t)(s - f->c.model->layers[f->layer].step), .name = "ROUTE", .width = n};
    for (uint32_t i = 0; i < f->n_live; i++) {
        const struct ntx_row *row = &f->b->rows[f->m.live[i]];
        for (uint32_t k = 0; k < n; k++)
            ids[k] = (float)f->m.moe.id[i * used + k];
        v.buffer = "EXPERTS";
        v.values = ids;
        if (row->watched)
            f->watch(f->watch_ctx, row, &v);
        v.buffer = "SHARES";
        v.values = f->m.moe.weight + (size_t)i * used;
        if (row->watched)
            f->watch(f->watch_ctx, row, &v);
    }
}

static bool written_later(const struct ntx_step *s, const struct ntx_step *last)
{
    for (const struct ntx_step *t = s + 1; t <= last; t++)
        if (t->out == s->out)
            return true;
    return false;
}

int ntx__watch_run(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_step *first = ntx__steps_of(f, r), *last = first + r->n - 1;
    int rc = 0;
    for (const struct ntx_step *s = first; s <= last && !rc; s++)
        if (s->op == NTX_OP_ROUTE)
            show_route(f, s);
        else if (s->out && !written_later(s, last))
            rc = show_step(f, s);
    return rc;
}

void ntx__watch_embedded(struct ntx_forward *f)
{
    struct ntx_step_values v = {.layer = 0, .name = "EMBED", .buffer = "H", .width = f->hp->n_embd};
    for (uint32_t i = 0; i < f->b->n_rows; i++) {
        v.values = f->m.h + (size_t)i * f->hp->n_embd;
        if (f->b->rows[i].watched)
            f->watch(f->watch_ctx, &f->b->rows[i], &v);
    }
}

void ntx__watch_logits(struct ntx_forward *f)
{
    struct ntx_step_values v = {
        .layer = f->hp->n_layers, .name = "OUTPUT", .buffer = "LOGITS", .width = f->hp->n_vocab};
    for (uint32_t i = 0; i < f->b->n_rows; i++) {
        const struct ntx_row *row = &f->b->rows[i];
        v.values = row->logits;
        if (row->watched && row->logits && !row->n_best)
            f->watch(f->watch_ctx, row, &v);
    }
}
