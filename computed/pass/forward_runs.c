/* SPDX-License-Identifier: Apache-2.0 */
/* forward_runs.c: groups a layer's steps into runs, neighbours that are done in one go, and finds each run's chunks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "computed/pass/forward_impl.h"
#include "model/planes.h"

static bool continues_run(const struct ntx_step *first, const struct ntx_step *s)
{
    const struct ntx_op_kind *k = &ntx_op_kinds[first->op];
    if (k->by == NTX_BY_ROWS)
        return ntx_op_kinds[s->op].by == NTX_BY_ROWS;
    return s->op == first->op &&
           (k->does & NTX_DOES_JOIN || (k->does & NTX_DOES_JOIN_INPUT && s->in[0] == first->in[0]));
}

/* Without chunks and forms. */
static void make_runs(const struct ntx_layer *l, struct ntx__runs *out)
{
    out->n = 0;
    for (uint32_t i = 0, n; i < l->n_steps; i += n) {
        struct ntx__run *r = &out->run[out->n++];
        *r = (struct ntx__run){
            .op = l->step[i].op, .by = ntx_op_kinds[l->step[i].op].by, .first = (uint8_t)i, .feeds = l->step[i].feeds};
        for (n = 1; i + n < l->n_steps && continues_run(&l->step[i], &l->step[i + n]); n++)
            r->feeds |= l->step[i + n].feeds;
        r->n = (uint8_t)n;
    }
}

/* "BIAS ADD NORM" */
static void name_steps(const struct ntx_step *s, uint32_t n, char *out, size_t size)
{
    *out = 0;
    for (size_t at = 0; n-- && at < size; s++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", at ? " " : "", ntx_op_name((enum ntx_op)s->op));
}

int ntx_backend_can(const struct ntx_backend *b, const struct ntx_model *m, uint32_t ctx, struct ntx_err *why)
{
    struct ntx__runs runs;
    for (uint32_t l = 0; b && b->can && l < m->hp.n_layers; l++) {
        make_runs(&m->layers[l], &runs);
        for (const struct ntx__run *r = runs.run; r < runs.run + runs.n; r++)
            if (!b->can(m, &m->layers[l], r)) {
                char steps[128];
                if (r->op == NTX_OP_GROUPS && (m->delta.base || m->delta.any))
                    return ntx_err_set(why, -ENOTSUP,
                                       "groups of neurons that layers share, and add to (ntx pack of a model with "
                                       "deltas), are computed on the CPU only");
                name_steps(&m->layers[l].step[r->first], r->n, steps, sizeof steps);
                return ntx_err_set(why, -ENOTSUP, "what layer %u does (%s) is computed on the CPU only", l, steps);
            }
    }
    for (uint64_t i = 0; b && b->can && i < ntx_gguf_n_tensors(m->gguf); i++)
        if (ntx_planes_of(ntx_gguf_tensor_at(m->gguf, i)->type))
            return ntx_err_set(why, -ENOTSUP,
                               "weights in high and low bits (ntx pack --planes) are multiplied by the CPU only; ntx "
                               "pack --join makes the model whole again");
    if (b && b->can && m->hp.ctx_plain && ctx > m->hp.ctx_plain)
        return ntx_err_set(why, -ENOTSUP,
                           "attention of a %s model in a context of more than %u tokens is computed on the CPU only",
                           m->hp.arch, m->hp.ctx_plain);
    return 0;
}

/* A run's chunks reach to the next run's. */
static void find_chunks(const struct ntx_layer *l, uint32_t layer, const struct ntx_layer_weights *w, uint32_t end,
                        struct ntx__runs *out)
{
    for (uint32_t k = out->n; k-- > 0;) {
        struct ntx__run *r = &out->run[k];
        r->chunk0 = r->end = end;
        for (uint32_t i = r->first + r->n; i-- > r->first;)
            if (l->step[i].n_weights &&
                w->of[l->step[i].weight[0]].layer == layer) /* otherwise the chunks are another layer's */
                r->chunk0 = w->of[l->step[i].weight[0]].chunk0;
        end = r->chunk0;
    }
}

/* A weight that multiplies what a step reads, not an intermediate value of the step. */
static bool takes_input(const struct ntx_step *s, enum ntx_tensor t)
{
    return ntx_is_matrix(t) && !(ntx_op_kinds[s->op].does & NTX_DOES_WITHIN) &&
           (s->op != NTX_OP_EXPERTS || ntx_tensor_kinds[t].in == NTX_DIM_EMBD ||
            ntx_tensor_kinds[t].in == NTX_DIM_EXPERT_IN);
}

static uint32_t forms_of_step(const struct ntx_step *s, const struct ntx_layer_weights *w)
{
    uint32_t forms = 0;
    for (uint8_t i = 0; i < s->n_weights; i++)
        if (takes_input(s, (enum ntx_tensor)s->weight[i]))
            forms |= 1u << ntx_act_for(w->of[s->weight[i]].type);
    if (s->op == NTX_OP_GROUPS)
        forms |= ntx__forms((const struct ntx_weight *const[]){&w->gate, &w->up}, 2) |
                 (w->pack.added[NTX_PACK_UP].whole ? 1u << ntx_act_for(w->pack.added[NTX_PACK_UP].type) : 0);
    return forms;
}

/* Forms wanted of the run's output, until it is overwritten. */
static void find_forms(const struct ntx_model *m, uint32_t layer, const struct ntx_layer_weights *w, struct ntx__run *r)
{
    const struct ntx_layer *l = &m->layers[layer];
    const struct ntx_step *last = &l->step[r->first + r->n - 1];
    r->width = ntx_step_end(&m->hp, layer, last);
    r->parts = 1;
    if (last->out == NTX_BUF_H || (r->by != NTX_BY_ROWS && !(ntx_op_kinds[r->op].does & NTX_DOES_LEAVE)))
        return;
    for (const struct ntx_step *s = last + 1; s < l->step + l->n_steps && last->out; s++) {
        if (s->in[0] == last->out)
            r->forms |= forms_of_step(s, w);
        if (s->in[0] == last->out && s->op == NTX_OP_MM && s->mm.parts) {
            r->parts = s->mm.parts;
            r->width = w->of[s->weight[0]].n_in;
        }
        if (s->out == last->out)
            break;
    }
}

struct ntx__runs *ntx__runs_of(const struct ntx_model *m, const struct ntx_chunks *c)
{
    struct ntx__runs *all = calloc(m->hp.n_layers, sizeof *all);
    for (uint32_t l = m->hp.n_layers, end = c->output_norm.chunk0; all && l-- > 0; end = all[l].run[0].chunk0) {
        make_runs(&m->layers[l], &all[l]);
        find_chunks(&m->layers[l], l, &c->layers[l], end, &all[l]);
        for (uint32_t k = 0; k < all[l].n; k++)
            find_forms(m, l, &c->layers[l], &all[l].run[k]);
    }
    return all;
}
