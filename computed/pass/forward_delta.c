/* SPDX-License-Identifier: Apache-2.0 */
/* forward_delta.c: layers with a recurrent state (recur.h): the convolution, and the gated delta net or the Mamba-2
 * scan after it; and the convolution that is a layer's whole state. Tokens of a session go one after the other, in one
 * order; channels, heads, and the columns of a head in parallel. So values do not depend on the split of a text into
 * passes. */
#include <errno.h>
#include <math.h>
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

/* At the end of the pass, and at each stop. */
static void put_tails(const struct channels *c, float *next)
{
    put_tail(c, c->turn.n, next);
    for (uint32_t k = 1; k <= c->turn.n; k++)
        put_tail(c, k, ntx_recur_stop_tail(c->turn.kv, ntx_recur_at(c->turn.kv) + k, c->f->layer));
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

/* Its lists of taps; a bias is behind them. */
static uint32_t lists_of(const struct ntx_step *s) { return s->n_weights - s->conv.bias; }
/* For each list. */
static uint32_t blocks_of(const struct ntx_step *s) { return (s->width / lists_of(s) + CHANNELS - 1) / CHANNELS; }

/* A bias is one more tap, whose input is 1. Returns the number of taps. */
static uint32_t add_bias_tap(const struct ntx_forward *f, const struct channels *c, float *w, const float **x)
{
    static const float ones[] = {[0 ... CHANNELS - 1] = 1};
    const struct ntx_step *s = c->step;
    if (!s->conv.bias)
        return s->conv.taps;
    memcpy(w + s->conv.taps * c->n, f->vec[s->weight[s->n_weights - 1]] + c->first, c->n * sizeof *w);
    x[s->conv.taps] = ones;
    return s->conv.taps + 1;
}

static void convolve(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint32_t lists = lists_of(s), each = s->width / lists, blocks = blocks_of(s), block = item % (lists * blocks),
                   of = block / blocks, at0 = block % blocks * CHANNELS;
    const uint32_t first = of * each + at0;
    const uint32_t apart = s->conv.dilation ? s->conv.dilation : 1;
    struct channels c = {.f = f,
                         .turn = ntx__turn_of(f, item / (lists * blocks)),
                         .first = first,
                         .n = NTX_MIN(each - at0, (uint32_t)CHANNELS),
                         .step = s,
                         .back = (s->conv.taps - 1) * apart};
    const uint32_t at = ntx_recur_at(c.turn.kv);
    float w[(NTX_DELTA_TAPS_MAX + 1) * CHANNELS];
    const float *x[NTX_DELTA_TAPS_MAX + 1],
        *all = (s->conv.dilation ? f->m.gram_taps : f->vec[s->weight[of]]) + (size_t)at0 * s->conv.taps;
    c.tail = s->conv.dilation ? ntx__grams_in(f, ntx_recur_fold(c.turn.kv, f->layer))
                              : ntx_recur_tail(c.turn.kv, f->layer);
    transpose_taps(all, c.n, s->conv.taps, w);
    const uint32_t taps = add_bias_tap(f, &c, w, x);
    for (uint32_t k = 0; k < c.turn.n; k++) {
        for (uint32_t j = 0; j < s->conv.taps; j++)
            x[j] = input_before(&c, k, (s->conv.taps - 1 - j) * apart);
        f->c.ops->conv(w, x, taps, c.n, ntx__of_batch(f, s->out, c.turn.row[k]) + first);
    }
    if (!s->conv.dilation) {
        put_tails(&c, ntx_recur_next_tail(c.turn.kv, f->layer));
        return;
    }
    put_tail(&c, c.turn.n, ntx__grams_in(f, ntx_recur_next_fold(c.turn.kv, f->layer)));
    for (uint32_t k = 1; k <= c.turn.n; k++)
        put_tail(&c, k, ntx__grams_in(f, ntx_recur_stop_fold(c.turn.kv, at + k, f->layer)));
}

int ntx__cpu_conv(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(f, r);
    int rc = ntx__take_run(f, r);
    if (rc)
        return rc;
    if (s->conv.dilation)
        ntx__grams_keep(f, s);
    ntx__each(f, convolve, f->n_turns * lists_of(s) * blocks_of(s));
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

/* ---- SCAN */

/* x, B and C of a row, in this order. */
struct scanned {
    const float *x, *b, *c;
};

static struct scanned scanned_row(const struct ntx_forward *f, const struct ntx_step *s, uint32_t row,
                                  const struct head *h)
{
    const float *mix = ntx__of_batch(f, s->in[0], row), *groups = mix + s->heads * (size_t)s->width;
    const float *b = groups + h->key_head * (size_t)s->scan.keys;
    return (struct scanned){mix + h->head * (size_t)s->width + h->first, b, b + s->scan.groups * (size_t)s->scan.keys};
}

/* Folds one row into a panel of a head's state, and gives the row's output. */
static void scan_row(struct ntx_forward *f, uint32_t row, const struct head *h, struct ntx_delta_net *a, float *y)
{
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const struct scanned of = scanned_row(f, s, row, h);
    const double rate = ntx__softplus((double)ntx__of_batch(f, s->in[1], row)[h->head] +
                                      (double)f->vec[s->weight[0]][h->head]);
    const float skip = f->vec[s->weight[2]][h->head];
    float d[PANEL_MOST], out[PANEL_MOST], seen[PANEL_MOST];
    a->d = d;
    a->out = out;
    a->seen = seen;
    a->k = a->next_k = of.b;
    a->q = of.c;
    a->decay = (float)exp((double)f->vec[s->weight[1]][h->head] * rate);
    for (uint32_t i = 0; i < h->n; i++)
        d[i] = (float)rate * of.x[i];
    f->c.ops->delta(a);
    for (uint32_t i = 0; i < h->n; i++)
        y[i] = out[i] + skip * of.x[i];
}

static void scan_panel(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint32_t n = ntx_recur_panel(f->hp), panels = s->width / n, head = item / panels % s->heads;
    const struct head h = {head, head / (s->heads / s->scan.groups), item % panels * n, n};
    const struct ntx__turn t = ntx__turn_of(f, item / (s->heads * panels));
    const size_t at = ((size_t)h.head * s->width + h.first) * s->scan.keys, size = (size_t)s->scan.keys * n;
    const float *from = ntx_recur_fold(t.kv, f->layer);
    const uint32_t pos = ntx_recur_at(t.kv);
    float *to = ntx_recur_next_fold(t.kv, f->layer) + at;
    struct ntx_delta_net a = {.from = from ? from + at : to, .to = to, .n_keys = s->scan.keys, .n_values = n};
    if (!from)
        memset(to, 0, size * sizeof *to);
    for (uint32_t i = 0; i < t.n; i++, a.from = to) {
        scan_row(f, t.row[i], &h, &a, ntx__of_batch(f, s->out, t.row[i]) + h.head * (size_t)s->width + h.first);
        float *stop = ntx_recur_stop_fold(t.kv, pos + i + 1, f->layer);
        if (stop)
            memcpy(stop + at, to, size * sizeof *to);
    }
}

int ntx__cpu_scan(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(f, r);
    int rc = ntx__take_run(f, r);
    if (rc)
        return rc;
    ntx__each(f, scan_panel, f->n_turns * s->heads * (s->width / ntx_recur_panel(f->hp)));
    ntx__give_run(f, r);
    return 0;
}

/* ---- SHORTCONV */

/* out[i] *= sum over j of w[i][j] * x[j][i], in the order of j. */
static void convolve_plainly(const float *w, const float *const *x, uint32_t taps, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        float sum = 0;
        for (uint32_t j = 0; j < taps; j++)
            sum += w[i * taps + j] * x[j][i];
        out[i] *= sum;
    }
}

static void convolve_short(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint32_t blocks = (s->width + CHANNELS - 1) / CHANNELS, first = item % blocks * CHANNELS;
    const struct channels c = {.f = f,
                               .turn = ntx__turn_of(f, item / blocks),
                               .first = first,
                               .n = NTX_MIN(s->width - first, (uint32_t)CHANNELS),
                               .step = s,
                               .tail = ntx_recur_tail(ntx__turn_of(f, item / blocks).kv, f->layer),
                               .back = s->shortconv.taps - 1};
    const float *w = f->vec[s->weight[0]] + (size_t)first * s->shortconv.taps, *x[NTX_DELTA_TAPS_MAX];
    for (uint32_t k = 0; k < c.turn.n; k++)
        f->c.ops->mul(ntx__of_batch(f, s->in[0], c.turn.row[k]) + first,
                      ntx__of_batch(f, s->in[1], c.turn.row[k]) + first, c.n);
    for (uint32_t k = 0; k < c.turn.n; k++) {
        for (uint32_t j = 0; j < s->shortconv.taps; j++)
            x[j] = input_before(&c, k, c.back - j);
        convolve_plainly(w, x, s->shortconv.taps, c.n, ntx__of_batch(f, s->out, c.turn.row[k]) + first);
    }
    put_tails(&c, ntx_recur_next_tail(c.turn.kv, f->layer));
}

int ntx__cpu_shortconv(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(f, r);
    int rc = ntx__take_run(f, r);
    if (rc)
        return rc;
    ntx__each(f, convolve_short, f->n_turns * ((s->width + CHANNELS - 1) / CHANNELS));
    ntx__give_run(f, r);
    return 0;
}
