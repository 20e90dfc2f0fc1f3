/* SPDX-License-Identifier: Apache-2.0 */
/* router_lookahead.c: the input of the next router, if that layer's attention adds nothing, nor layers without experts
 * before it, nor this layer's FFN more than is known of it (f->moe.some). The steps from this layer's experts to that
 * router are found backwards from the router: a step makes its input, an earlier step makes that step's input, and so
 * on up to the residual stream, or streams and their weights, which are known. What attention adds to the stream is
 * left out; where streams are mixed with one another (SPREAD), they are mixed with an input of zero.
 *
 * The CPU does these steps, a few rows at a time, in separate buffers, beside those of the experts. No value of the
 * pass follows from them, only reads (moe_predict.c). */
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"

/* ---- finding the steps */

/* Kinds of steps on the way, by their effect on `out`. */
enum change { NO_WAY, MAKES /* of its inputs alone */, CHANGES /* what was there counts, too */ };
static const uint8_t changes[NTX_N_OPS] = {
    [NTX_OP_NORM] = MAKES,     [NTX_OP_MM] = MAKES,    [NTX_OP_MIXW] = MAKES,   [NTX_OP_MIX] = MAKES,
    [NTX_OP_MAP] = MAKES,      [NTX_OP_SCALE] = MAKES, [NTX_OP_GATE] = CHANGES, [NTX_OP_BIAS] = CHANGES,
    [NTX_OP_SPREAD] = CHANGES, [NTX_OP_ADD] = CHANGES, [NTX_OP_RECALL] = MAKES};

static uint32_t buffer_bit(uint8_t buf) { return buf ? 1u << buf : 0; }

/* With an input of zero it leaves the streams as they are. */
static bool adds_alone(const struct ntx_step *s)
{
    return s->op == NTX_OP_ADD || (s->op == NTX_OP_SPREAD && (s->scale != 0 || s->spread.each));
}

/* Adds steps [first, end) of a layer that make any of the buffers *wanted, which become the buffers wanted before them.
 * with_y: part of Y's addition is known. False: there is no way. */
static bool walk_back(struct ntx__lookahead *lookahead, uint32_t layer, const struct ntx_step *first,
                      const struct ntx_step *end, bool with_y, uint32_t *wanted)
{
    for (const struct ntx_step *s = end; s-- > first;) {
        const bool comes = with_y && s->in[0] == NTX_BUF_Y;
        if (!(*wanted & buffer_bit(s->out)) || (adds_alone(s) && !comes))
            continue;
        if (changes[s->op] == NO_WAY || s->offset || s->from || lookahead->first == 0)
            return false;
        *wanted &= changes[s->op] == MAKES ? ~buffer_bit(s->out) : UINT32_MAX;
        *wanted |= buffer_bit(s->in[1]) | (s->op == NTX_OP_SPREAD && !comes ? 0 : buffer_bit(s->in[0]));
        lookahead->buffers |= *wanted | buffer_bit(s->in[0]);
        lookahead->step[--lookahead->first] = (struct ntx__lookahead_step){s, layer};
    }
    return true;
}

static bool find_lookahead(const struct ntx_model *m, uint32_t layer, bool with_y, struct ntx__lookahead *lookahead)
{
    *lookahead = (struct ntx__lookahead){
        .first = NTX__WAY_STEPS, .buffers = buffer_bit(NTX_BUF_X), .from = buffer_bit(NTX_BUF_X), .with_y = with_y};
    const struct ntx_layer *l = &m->layers[layer];
    const struct ntx_step *experts = ntx_layer_find(l, NTX_OP_EXPERTS), *route = NULL;
    uint32_t at = layer + 1;
    while (at < m->hp.n_layers && !(route = ntx_layer_find(&m->layers[at], NTX_OP_ROUTE)))
        at++;
    bool found = experts && route && walk_back(lookahead, at, m->layers[at].step, route, false, &lookahead->from);
    while (found && --at > layer)
        found = walk_back(lookahead, at, m->layers[at].step, m->layers[at].step + m->layers[at].n_steps, false,
                          &lookahead->from);
    found = found && walk_back(lookahead, layer, experts + 1, l->step + l->n_steps, with_y, &lookahead->from);
    lookahead->from &= ~buffer_bit(NTX_BUF_Y); /* the known part of it (set_out), or nothing */
    return found &&
           !(lookahead->from & ~(buffer_bit(NTX_BUF_H) | buffer_bit(NTX_BUF_STREAMS) | buffer_bit(NTX_BUF_MIX)));
}

bool ntx__find_lookahead(const struct ntx_model *m, uint32_t layer, struct ntx__lookahead *lookahead)
{
    return find_lookahead(m, layer, true, lookahead) || find_lookahead(m, layer, false, lookahead);
}

uint32_t ntx__lookahead_buffers(const struct ntx_model *m)
{
    uint32_t buffers = 0;
    struct ntx__lookahead lookahead;
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        if (ntx__find_lookahead(m, l, &lookahead))
            buffers |= lookahead.buffers;
    return buffers;
}

/* ---- running the steps */

static const struct ntx_weight *step_weight(const struct ntx_forward *f, const struct ntx__lookahead_step *at,
                                            uint8_t i)
{
    return &f->c.chunks->layers[at->layer].of[at->step->weight[i]];
}

/* All of it is in this machine's memory. */
static bool is_there(const struct ntx_forward *f, const struct ntx_weight *w)
{
    bool all = w->n_chunks && !w->dealt;
    for (uint32_t c = w->chunk0; all && c < w->chunk0 + w->n_chunks; c++)
        all = f->c.weights->ops->there(f->c.weights, c);
    return all;
}

bool ntx__lookahead_open(const struct ntx_forward *f, const struct ntx__lookahead *lookahead)
{
    for (const struct ntx__lookahead_step *at = lookahead->step + lookahead->first;
         at < lookahead->step + NTX__WAY_STEPS; at++)
        for (uint8_t i = 0; i < at->step->n_weights; i++)
            if (!is_there(f, step_weight(f, at, i)))
                return false;
    return true;
}

static int multiply_step(struct ntx_forward *f, const struct ntx__lookahead_step *at, uint32_t n)
{
    const struct ntx_step *s = at->step;
    const struct ntx_weight *w = step_weight(f, at, 0);
    const struct ntx__product p = {.w = w, .to = s->out};
    const struct ntx__input in = {.buf = s->in[0], .set = NTX__OF_WAY, .n_rows = n};
    for (uint32_t i = 0; i < n; i++)
        ntx__quantize_into(f, f->m.moe.lookahead_quantized, ntx__forms(&w, 1),
                           f->buf[s->in[0]].at + i * f->buf[s->in[0]].ld, w->n_in, i);
    f->predicts = true;
    const int rc = ntx__cpu_multiply(f, &p, 1, &in);
    f->predicts = false;
    return rc;
}

static int do_step(struct ntx_forward *f, const struct ntx__lookahead_step *at, uint32_t n)
{
    const struct ntx_step *s = at->step;
    uint8_t taken = 0;
    int rc = 0;
    if (s->op == NTX_OP_MM)
        return multiply_step(f, at, n);
    while (taken < s->n_weights && !(rc = ntx__take(f, step_weight(f, at, taken), &f->vec[s->weight[taken]])))
        taken++;
    for (uint32_t i = 0; !rc && i < n; i++)
        ntx__cpu_row(f, s, i);
    while (taken-- > 0)
        ntx__give(f, step_weight(f, at, taken));
    return rc;
}

/* Swaps the buffers in or out; meanwhile `rows` numbers the rows of the batch. */
static void trade_buffers(struct ntx_forward *f, const struct ntx__lookahead *lookahead, uint32_t **rows)
{
    uint32_t *live = f->m.live;
    for (uint8_t b = 1; b < NTX_N_BUFS; b++)
        if (lookahead->buffers >> b & 1) {
            float *at = f->buf[b].at;
            f->buf[b].at = f->m.moe.lookahead[b];
            f->m.moe.lookahead[b] = at;
        }
    f->m.live = *rows;
    *rows = live;
}

/* Rows of the batch, with what they have. */
static void set_inputs(struct ntx_forward *f, const struct ntx__lookahead *lookahead, const uint32_t *rows, uint32_t n)
{
    for (uint8_t b = 1; b < NTX_N_BUFS; b++)
        for (uint32_t i = 0; lookahead->from >> b & 1 && i < n; i++)
            memcpy(f->m.moe.lookahead[b] + i * f->buf[b].ld, ntx__of_batch(f, b, rows[i]),
                   f->buf[b].ld * sizeof(float));
    for (uint32_t i = 0; lookahead->with_y && f->moe.some && lookahead->buffers >> NTX_BUF_Y & 1 && i < n; i++)
        ntx__so_far(f, f->m.place[rows[i]], f->m.moe.lookahead[NTX_BUF_Y] + i * f->buf[NTX_BUF_Y].ld);
}

/* Attention's output is not known. */
static void zero_y(struct ntx_forward *f, const struct ntx__lookahead *lookahead, uint32_t n)
{
    if (lookahead->buffers >> NTX_BUF_Y & 1)
        memset(f->m.moe.lookahead[NTX_BUF_Y], 0, n * f->buf[NTX_BUF_Y].ld * sizeof(float));
}

int ntx__run_lookahead(struct ntx_forward *f, const struct ntx__lookahead *lookahead, const uint32_t *rows, uint32_t n,
                       ntx__item_fn *arrived)
{
    uint32_t own[NTX__WAY_ROWS], *numbers = own;
    int rc = 0;
    for (uint8_t b = 1; b < NTX_N_BUFS && !rc; b++)
        if (lookahead->from >> b & 1)
            rc = ntx__fetch(f, b, 0, ntx__by_batch(b) ? f->b->n_rows : f->n_live);
    for (uint32_t i = 0; i < NTX__WAY_ROWS; i++)
        own[i] = i;
    for (uint32_t first = 0, some; first < n && !rc; first += some) {
        const struct ntx__lookahead_step *at = lookahead->step + lookahead->first,
                                         *end = lookahead->step + NTX__WAY_STEPS;
        some = NTX_MIN(n - first, NTX__WAY_ROWS);
        zero_y(f, lookahead, some);
        set_inputs(f, lookahead, rows + first, some);
        trade_buffers(f, lookahead, &numbers);
        for (; at < end && at->layer == f->layer && !rc; at++)
            rc = do_step(f, at, some);
        trade_buffers(f, lookahead, &numbers);
        zero_y(f, lookahead, some);
        trade_buffers(f, lookahead, &numbers);
        for (; at < end && !rc; at++)
            rc = do_step(f, at, some);
        trade_buffers(f, lookahead, &numbers);
        for (uint32_t i = 0; i < some; i++)
            arrived(f, first + i, i);
    }
    return rc;
}
