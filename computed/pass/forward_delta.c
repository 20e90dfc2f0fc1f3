/* SPDX-License-Identifier: Apache-2.0 */
/* forward_delta.c: layers with a recurrent state (recur.h): the convolution, and the gated delta net after it. Tokens
 * of a session go one after the other, in one order; channels, heads, and the columns of a head in parallel. So values
 * do not depend on the split of a text into passes. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"

enum { CHANNELS = 256 /* channels of the convolution at a time */, PANEL_MOST = 32 };

struct ntx__turn ntx__turn_of(const struct ntx_forward *f, uint32_t i)
{
    const uint32_t *row = f->m.turn_rows + f->m.turns[i];
    return (struct ntx__turn){f->b->rows[*row].kv, row, f->m.turns[i + 1] - f->m.turns[i]};
}

/* ---- rows by session */

static int check_row(struct ntx_forward *f, uint32_t i, uint32_t pos)
{
    const struct ntx_row *r = &f->b->rows[i];
    if (r->pos != pos || r->n_path > 1 || !ntx__in_place(r))
        return ntx_err_set(&f->c.weights->error, -EINVAL,
                           "row %u: position %u of a session whose recurrent state goes on at %u: there are no trees "
                           "of rows, and none is computed again",
                           i, r->pos, pos);
    return 0;
}

static bool first_of_session(const struct ntx_batch *b, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (b->rows[k].kv == b->rows[i].kv)
            return false;
    return true;
}

int ntx__recur_begin(struct ntx_forward *f)
{
    const struct ntx_batch *b = f->b;
    uint32_t *turns = f->m.turns, n = 0;
    int rc = 0;
    f->n_turns = 0;
    for (uint32_t i = 0; i < b->n_rows && turns && !rc; i++) {
        if (!first_of_session(b, i))
            continue;
        uint32_t at = b->rows[i].pos ? ntx_recur_at(b->rows[i].kv) : 0;
        turns[f->n_turns++] = n;
        for (uint32_t k = i; k < b->n_rows && !rc; k++)
            if (b->rows[k].kv == b->rows[i].kv && !(rc = check_row(f, k, at++)))
                f->m.turn_rows[n++] = k;
    }
    for (uint32_t i = 0; i < f->n_turns && !rc; i++)
        ntx_recur_begin(b->rows[f->m.turn_rows[turns[i]]].kv, b->rows[f->m.turn_rows[turns[i]]].pos);
    if (turns)
        turns[f->n_turns] = n;
    return rc;
}

void ntx__recur_end(struct ntx_forward *f)
{
    for (uint32_t i = 0; i < f->n_turns; i++) {
        struct ntx__turn t = ntx__turn_of(f, i);
        ntx_recur_step(t.kv, t.n);
    }
}

/* ---- CONV */

struct channels { /* some channels of a turn */
    const struct ntx_forward *f;
    struct ntx__turn turn;
    const float *tail;
    const struct ntx_step *step;
    uint32_t first, n;
    uint32_t back; /* rows before a row that it sees at most */
};

/* The input `back` rows before row k. */
static const float *input_before(const struct channels *c, uint32_t k, uint32_t back)
{
    static const float zeros[CHANNELS];
    const uint8_t in = c->step->in[0];
    if (k >= back)
        return ntx__of_batch(c->f, in, c->turn.row[k - back]) + c->first;
    return c->tail ? c->tail + (size_t)(c->back - (back - k)) * c->step->width + c->first : zeros;
}

/* Copies the rows before row k that later rows see. */
static void put_tail(const struct channels *c, uint32_t k, float *tail)
{
    for (uint32_t j = 0; tail && j < c->back; j++)
        memcpy(tail + (size_t)j * c->step->width + c->first, input_before(c, k, c->back - j), c->n * sizeof *tail);
}

typedef float float4 __attribute__((vector_size(16)));
typedef int32_t int4 __attribute__((vector_size(16)));

/* Transposes four channels' four taps. */
static void transpose_four(const float *from, float *to, size_t ld)
{
    float4 c[4];
    memcpy(c, from, sizeof c);
    const float4 a = __builtin_shuffle(c[0], c[1], (int4){0, 4, 1, 5}),
                 b = __builtin_shuffle(c[2], c[3], (int4){0, 4, 1, 5});
    const float4 d = __builtin_shuffle(c[0], c[1], (int4){2, 6, 3, 7}),
                 e = __builtin_shuffle(c[2], c[3], (int4){2, 6, 3, 7});
    const float4 taps[4] = {__builtin_shuffle(a, b, (int4){0, 1, 4, 5}), __builtin_shuffle(a, b, (int4){2, 3, 6, 7}),
                            __builtin_shuffle(d, e, (int4){0, 1, 4, 5}), __builtin_shuffle(d, e, (int4){2, 3, 6, 7})};
    for (uint32_t j = 0; j < 4; j++)
        memcpy(to + j * ld, &taps[j], sizeof taps[j]);
}

/* [n channels][taps] to [taps][n]; nearly all models have four taps. */
static void transpose_taps(const float *from, uint32_t n, uint32_t taps, float *to)
{
    uint32_t k = 0;
    for (; taps == 4 && k + 4 <= n; k += 4)
        transpose_four(from + k * 4, to + k, n);
    for (; k < n; k++)
        for (uint32_t j = 0; j < taps; j++)
            to[j * n + k] = from[k * taps + j];
}

/* For each of its lists of weights. */
static uint32_t blocks_of(const struct ntx_step *s) { return (s->width / s->n_weights + CHANNELS - 1) / CHANNELS; }

static void convolve(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint32_t each = s->width / s->n_weights, blocks = blocks_of(s), block = item % (s->n_weights * blocks),
                   of = block / blocks, at0 = block % blocks * CHANNELS;
    const uint32_t first = of * each + at0;
    const uint32_t apart = s->conv.dilation ? s->conv.dilation : 1;
    struct channels c = {.f = f,
                         .turn = ntx__turn_of(f, item / (s->n_weights * blocks)),
                         .first = first,
                         .n = NTX_MIN(each - at0, (uint32_t)CHANNELS),
                         .step = s,
                         .back = (s->conv.taps - 1) * apart};
    const uint32_t at = ntx_recur_at(c.turn.kv);
    float w[NTX_DELTA_TAPS_MAX * CHANNELS];
    const float *x[NTX_DELTA_TAPS_MAX],
        *all = (s->conv.dilation ? f->m.gram_taps : f->vec[s->weight[of]]) + (size_t)at0 * s->conv.taps;
    c.tail = s->conv.dilation ? ntx__grams_in(f, ntx_recur_fold(c.turn.kv, f->layer))
                              : ntx_recur_tail(c.turn.kv, f->layer);
    transpose_taps(all, c.n, s->conv.taps, w);
    for (uint32_t k = 0; k < c.turn.n; k++) {
        for (uint32_t j = 0; j < s->conv.taps; j++)
            x[j] = input_before(&c, k, (s->conv.taps - 1 - j) * apart);
        f->c.ops->conv(w, x, s->conv.taps, c.n, ntx__of_batch(f, s->out, c.turn.row[k]) + first);
    }
    put_tail(&c, c.turn.n,
             s->conv.dilation ? ntx__grams_in(f, ntx_recur_next_fold(c.turn.kv, f->layer))
                              : ntx_recur_next_tail(c.turn.kv, f->layer));
    for (uint32_t k = 1; k <= c.turn.n; k++)
        put_tail(&c, k,
                 s->conv.dilation ? ntx__grams_in(f, ntx_recur_stop_fold(c.turn.kv, at + k, f->layer))
                                  : ntx_recur_stop_tail(c.turn.kv, at + k, f->layer));
}

int ntx__cpu_conv(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(f, r);
    int rc = ntx__take_run(f, r);
    if (rc)
        return rc;
    if (s->conv.dilation)
        ntx__grams_keep(f, s);
    ntx__each(f, convolve, f->n_turns * s->n_weights * blocks_of(s));
    ntx__give_run(f, r);
    return 0;
}

/* ---- DELTA */

struct head { /* a panel of a head: columns [first, first + n) */
    uint32_t head, key_head, first, n;
};

static struct head head_of(const struct ntx_forward *f, const struct ntx_step *s, uint32_t item)
{
    uint32_t n = ntx_recur_panel(f->hp), panels = s->width / n, h = item / panels % s->heads;
    return (struct head){h, s->delta.tiled ? h % s->delta.key_heads : h / (s->heads / s->delta.key_heads),
                         item % panels * n, n};
}

static const float *mix_row(const struct ntx_forward *f, uint32_t row) { return ntx__of_batch(f, NTX_BUF_Q, row); }

/* The decay of a head: one value, or one for each key. */
static const float *decay_of(const struct ntx_forward *f, const struct ntx_step *s, uint32_t row, const struct head *h)
{
    return ntx__of_batch(f, NTX_BUF_A, row) + h->head * (s->delta.by_key ? s->width : 1);
}

/* The keys that S is read by before the row is folded in. If each key has its own decay, the keys are multiplied by it,
 * so that S need not be. */
static const float *read_keys(const struct ntx_forward *f, const struct ntx_step *s, uint32_t row, const struct head *h,
                              float *keys)
{
    const float *k = mix_row(f, row) + (s->delta.key_heads + h->key_head) * (size_t)s->width,
                *g = decay_of(f, s, row, h);
    for (uint32_t i = 0; s->delta.by_key && i < s->width; i++)
        keys[i] = g[i] * k[i];
    return s->delta.by_key ? keys : k;
}

/* The new part of v: b (v - g S'k) */
static void new_part(const struct ntx_forward *f, const struct ntx_step *s, uint32_t row, const struct head *h,
                     const float *v, const float *seen, float *d)
{
    float g = s->delta.by_key ? 1 : *decay_of(f, s, row, h), b = ntx__of_batch(f, NTX_BUF_K, row)[h->head];
    for (uint32_t i = 0; i < h->n; i++)
        d[i] = b * (v[i] - g * seen[i]);
}

static void fold_panel(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const struct head h = head_of(f, s, item);
    const struct ntx__turn t = ntx__turn_of(f, item / (s->heads * (s->width / h.n)));
    size_t at = ((size_t)h.head * s->width + h.first) * s->width,
           k0 = (s->delta.key_heads + h.key_head) * (size_t)s->width, q0 = h.key_head * (size_t)s->width;
    size_t v0 = (2 * s->delta.key_heads + h.head) * (size_t)s->width + h.first,
           out0 = h.head * (size_t)s->width + h.first;
    const float *from = ntx_recur_fold(t.kv, f->layer);
    const uint32_t pos = ntx_recur_at(t.kv);
    float *to = ntx_recur_next_fold(t.kv, f->layer) + at, d[PANEL_MOST], seen[PANEL_MOST], out[PANEL_MOST],
          keys[NTX_MAX_HEAD];
    struct ntx_delta_net a = {.from = from ? from + at : to,
                              .to = to,
                              .n_keys = s->width,
                              .n_values = h.n,
                              .d = d,
                              .out = out,
                              .seen = seen,
                              .next_k = read_keys(f, s, t.row[0], &h, keys)};
    if (!from)
        memset(to, 0, (size_t)s->width * h.n * sizeof *to);
    f->c.ops->delta(&a);
    for (uint32_t i = 0; i < t.n; i++, a.from = to) {
        const float *mix = mix_row(f, t.row[i]);
        new_part(f, s, t.row[i], &h, mix + v0, seen, d);
        a.k = mix + k0;
        a.q = mix + q0;
        a.next_k = read_keys(f, s, t.row[NTX_MIN(i + 1, t.n - 1)], &h, keys);
        a.decays = s->delta.by_key ? decay_of(f, s, t.row[i], &h) : NULL;
        a.decay = *decay_of(f, s, t.row[i], &h);
        f->c.ops->delta(&a);
        float *y = ntx__of_batch(f, NTX_BUF_ATTN, t.row[i]) + out0;
        for (uint32_t v = 0; v < h.n; v++)
            y[v] = out[v] * s->scale;
        float *stop = ntx_recur_stop_fold(t.kv, pos + i + 1, f->layer);
        if (stop)
            memcpy(stop + at, to, (size_t)s->width * h.n * sizeof *to);
    }
}

int ntx__cpu_delta(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(f, r);
    ntx__each(f, fold_panel, f->n_turns * s->heads * (s->width / ntx_recur_panel(f->hp)));
    return 0;
}
