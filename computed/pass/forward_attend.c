/* SPDX-License-Identifier: Apache-2.0 */
/* forward_attend.c: ATTEND on the CPU.
 *
 * An item of work is a few query heads that share a KV head, of one row, or of several rows at neighbouring positions
 * of a session. K and V of all rows are stored already: a row sees those of its batch up to its own position.
 *
 * Where threads would be idle, or read the same K and V, they share a row's attention instead: scores by positions,
 * weights by query heads, sums of V by the values of a head, with a barrier after each step. */
#include <math.h>
#include <string.h>

#include "computed/pass/forward_impl.h"
#include "computed/pass/kv_form.h"
#include "computed/pass/rope.h"

enum { ITEMS_PER_THREAD = 4 }; /* attention items per thread, at least, so that threads end together */

/* The most query heads of an item so that there are `items` of them at least: all that share a KV head, so that its K
 * and V are read once, if possible. */
static uint32_t heads_at_once(const struct ntx_forward *f, uint32_t items)
{
    const struct ntx_dims w = ntx_dims_of(f->hp, f->layer);
    uint32_t shared = w.n_head / w.n_head_kv, n = shared;
    while (n > NTX_ATTN_HEADS || (n > 1 && f->n_live * w.n_head / n < items))
        do
            n--;
        while (shared % n);
    return n;
}

/* Rows of an item at most: as many as one call takes; fewer if threads would be idle. */
static uint32_t rows_at_once(const struct ntx_forward *f)
{
    uint32_t heads = heads_at_once(f, f->c.threads), items = ntx_dims_of(f->hp, f->layer).n_head / heads;
    return NTX_MAX(1u, NTX_MIN(NTX_ATTN_VECTORS / heads, f->n_live * items / (ITEMS_PER_THREAD * f->c.threads)));
}

/* A row with a top-k of its own is attended alone. */
static bool is_attended_alone(const struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    return f->hp->v_is_k || (s->attend.topk && ntx__has_topk(f, f->m.live[i]));
}

/* Position pos may begin another attention chunk, or another temperature: rows before it are not attended with it. */
static bool begins_group_at(const struct ntx_step *s, uint32_t pos)
{
    const struct ntx_temperature *t = &s->attend.temperature;
    return (s->attend.chunk && pos % s->attend.chunk == 0) ||
           (t->length && (pos + (uint64_t)t->ahead) % t->length == 0);
}

static float temperature_at(const struct ntx_temperature *t, uint32_t pos)
{
    return t->length ? (float)(1 + (double)t->scale * log1p((double)((pos + (uint64_t)t->ahead) / t->length))) : 1;
}

/* Later positions that a row sees. */
static uint32_t sees_ahead(const struct ntx_step *s, const struct ntx_row *row)
{
    return s->attend.causal ? 0 : row->ahead;
}

static uint32_t attended_place(const struct ntx_step *s, const struct ntx_row *row)
{
    return s->attend.columns ? row->by_columns : row->pos;
}

/* The first of the positions that a row sees, if not a window bounds them. */
static uint32_t sees_from(const struct ntx_step *s, const struct ntx_row *row)
{
    const uint32_t place = attended_place(s, row);
    if (s->attend.chunk)
        return row->pos / s->attend.chunk * s->attend.chunk;
    if (s->attend.band)
        return place - NTX_MIN(place, s->attend.band);
    return s->attend.block ? row->block : 0;
}

/* The end of the positions that a row sees. */
static uint32_t sees_to(const struct ntx_step *s, const struct ntx_row *row)
{
    if (s->attend.band)
        return NTX_MIN(attended_place(s, row) + s->attend.band, row->pos + sees_ahead(s, row)) + 1;
    return s->attend.block && row->n_block ? row->block + row->n_block : row->pos + 1 + sees_ahead(s, row);
}

/* Rows of a block that see the same positions. */
static bool sees_alike(const struct ntx_step *s, const struct ntx_row *a, const struct ntx_row *b)
{
    return sees_ahead(s, a) && !s->attend.window && !s->attend.chunk && !s->attend.band &&
           ntx_kv_seq_type(a->kv) == NTX_KV_F16 && sees_to(s, a) == sees_to(s, b) &&
           (!s->attend.block || a->block == b->block);
}

/* Fills attn_rows with the first live row of each group of neighbours, and n_live behind the last. */
static uint32_t group_rows(struct ntx_forward *f)
{
    const struct ntx_step *step = ntx__steps_of(f, f->run);
    uint32_t n = 0, most = rows_at_once(f), *first = f->m.attn_rows;
    for (uint32_t i = 0; i < f->n_live; i++) {
        const struct ntx_row *row = ntx__live_row(f, i), *before = i ? ntx__live_row(f, i - 1) : NULL;
        if (!i || i - first[n - 1] == most || row->kv != before->kv || row->pos != before->pos + 1 ||
            !ntx__in_place(row) || !ntx__in_place(before) ||
            ((sees_ahead(step, row) || sees_ahead(step, before)) && !sees_alike(step, before, row)) ||
            begins_group_at(step, row->pos) || is_attended_alone(f, step, i) || is_attended_alone(f, step, i - 1))
            first[n++] = i;
    }
    first[n] = f->n_live;
    return n;
}

/* Makes a's queries those of K and V as they are stored; room: for them. */
static void form_query(const struct ntx_forward *f, const struct ntx_row *row, uint32_t kv_head,
                       struct ntx_kv_query *room, struct ntx_attn *a)
{
    const enum ntx_kv_type type = ntx_kv_seq_type(row->kv);
    if (f->c.kv_form && type != NTX_KV_F16)
        ntx_kv_form_query(f->c.kv_form, f->c.ops, type, ntx_dims_of(f->hp, f->layer).kv_of, kv_head,
                          (float)ntx_rope_magnitude(f->hp, NTX_ROTATION_ALL), room, a);
}

/* Attention of n_q query heads from `head` on, of the group's rows; without K and V, which the lane will have. */
static struct ntx_attn attention_of(const struct ntx_forward *f, const uint32_t *group, uint32_t head, uint32_t n_q,
                                    const struct ntx__lane *lane)
{
    const struct ntx_step *step = ntx__steps_of(f, f->run);
    const struct ntx_dims w = ntx_dims_of(f->hp, f->layer);
    const struct ntx_row *row = ntx__live_row(f, group[0]);
    return (struct ntx_attn){
        .q = f->buf[NTX_BUF_Q].at + group[0] * f->buf[NTX_BUF_Q].ld + (size_t)head * w.head_k,
        .out = f->m.attn + group[0] * f->ld_attn + (size_t)head * w.head_v,
        .n_q = n_q,
        .n_rows = group[1] - group[0],
        .ld_q = f->buf[NTX_BUF_Q].ld,
        .ld_out = f->ld_attn,
        .k = lane->k,
        .v = lane->v,
        .block_tokens = NTX_KV_BLOCK,
        .n_pos = sees_to(step, row),
        .level = sees_ahead(step, row) != 0,
        .head_k = w.head_k,
        .head_v = w.head_v,
        .scale = step->scale * temperature_at(&step->attend.temperature, row->pos),
        .cap = step->attend.cap,
        .window = step->attend.window ? step->attend.window + sees_ahead(step, row) : 0,
        .first = sees_from(step, row),
        .sinks = f->c.model->layers[f->layer].sinks != NTX_NO_TENSOR ? f->vec[NTX_T_sinks] + head : NULL,
        .hole = ntx_kv_holes(row->kv, f->layer),
    };
}

/* The first query head of the n-th n_q ones that this machine has, and its KV head among these. */
static uint32_t nth_head(const struct ntx_forward *f, uint32_t n, uint32_t n_q, uint32_t *kv_head)
{
    const struct ntx_dims w = ntx_dims_of(f->hp, f->layer);
    const uint32_t shared = w.n_head / w.n_head_kv, first = ntx_own_heads(f->hp, f->layer).first;
    *kv_head = n * n_q / shared;
    return first * shared + n * n_q;
}

/* Groups that share a KV head follow one another, so that the next finds in the cache what the last one read. */
static void attend_heads(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    const struct ntx_step *step = ntx__steps_of(f, f->run);
    struct ntx__lane *lane = &f->m.lanes[thread];
    const uint32_t *group = f->m.attn_rows + item % f->n_attn_groups, n_q = heads_at_once(f, f->c.threads);
    uint32_t kv_head;
    const uint32_t head = nth_head(f, item / f->n_attn_groups, n_q, &kv_head);
    const struct ntx_row *row = ntx__live_row(f, group[0]), *last = ntx__live_row(f, group[1] - 1);
    struct ntx_attn a = attention_of(f, group, head, n_q, lane);
    struct ntx_kv_query room;
    if (f->hp->v_is_k)
        ntx__attend_pooled(f, step, f->m.live[group[0]], lane, &a);
    else if (is_attended_alone(f, step, group[0]))
        ntx__attend_topk(f, f->m.live[group[0]], kv_head, lane, &a);
    for (uint32_t b = ntx_attn_from(&a, 0) / NTX_KV_BLOCK;
         a.block_tokens > 1 && b <= (sees_to(step, last) - 1) / NTX_KV_BLOCK; b++) {
        lane->k[b] = ntx_kv_k(row->kv, f->layer, kv_head, b * NTX_KV_BLOCK);
        lane->v[b] = ntx_kv_v(row->kv, f->layer, kv_head, b * NTX_KV_BLOCK);
    }
    if (a.block_tokens > 1 && !ntx__in_place(row))
        ntx__attend_path(f, row, kv_head, lane, &a);
    if (step->attend.mla)
        ntx__mla_begin(f, lane, group[0], head, &a);
    form_query(f, row, ntx_own_heads(f->hp, f->layer).first + kv_head, &room, &a);
    f->c.ops->attend[ntx_kv_seq_type(row->kv)](&a);
    if (step->attend.mla)
        ntx__mla_end(f, lane, group[0], head, &a);
}

/* All rows of some heads, in their order: sums over rows are the same for any number of threads. */
static void attend_all_rows(struct ntx_forward *f, uint32_t heads, unsigned thread)
{
    for (uint32_t g = 0; g < f->n_attn_groups; g++)
        attend_heads(f, heads * f->n_attn_groups + g, thread);
}

/* ---- one row, shared by all threads */

/* Sets of query heads that share K and V, as many as a call takes. */
static uint32_t shared_sets(const struct ntx_forward *f)
{
    const struct ntx_dims w = ntx_dims_of(f->hp, f->layer);
    return ntx_own_heads(f->hp, f->layer).n * (w.n_head / w.n_head_kv) / heads_at_once(f, 1);
}

/* Whether threads share the only row: it sees enough, and its sets of heads cannot be divided evenly. */
static bool is_shared(const struct ntx_forward *f)
{
    const struct ntx_step *step = ntx__steps_of(f, f->run);
    if (f->n_live != 1 || !f->m.attn_rounds.ld || f->c.sums || step->attend.mla || is_attended_alone(f, step, 0))
        return false;
    const struct ntx_row *row = ntx__live_row(f, 0);
    const struct ntx_attn a = attention_of(f, f->m.attn_rows, 0, 1, &f->m.lanes[0]);
    const uint32_t sets = shared_sets(f);
    return ntx__in_place(row) && f->c.ops->attn_scores[ntx_kv_seq_type(row->kv)] &&
           a.n_pos - ntx_attn_from(&a, 0) >= NTX__SHARED_POSITIONS && sets % f->c.threads &&
           sets < ITEMS_PER_THREAD * f->c.threads;
}

/* The round for a set of heads. */
static struct ntx_attn_round round_of(const struct ntx_forward *f, uint32_t set)
{
    const struct ntx__attn_rounds *m = &f->m.attn_rounds;
    const size_t first = (size_t)set * heads_at_once(f, 1);
    return (struct ntx_attn_round){.first = f->round.first,
                                   .end = f->round.end,
                                   .ld = m->ld,
                                   .w = m->w + first * m->ld,
                                   .by = m->by + first * (m->ld / NTX_ATTN_PART),
                                   .sum = m->sum + first};
}

static uint32_t round_ranges(const struct ntx_forward *f)
{
    return (f->round.end - f->round.first + f->round.range - 1) / f->round.range;
}

static void share_scores(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    const uint32_t set = item / round_ranges(f), from = f->round.first + item % round_ranges(f) * f->round.range,
                   to = NTX_MIN(from + f->round.range, f->round.end);
    const struct ntx_row *row = ntx__live_row(f, 0);
    const struct ntx_attn_round r = round_of(f, set);
    struct ntx_kv_query room;
    uint32_t kv_head;
    const uint32_t n_q = heads_at_once(f, 1), head = nth_head(f, set, n_q, &kv_head);
    struct ntx_attn a = attention_of(f, f->m.attn_rows, head, n_q, &f->m.lanes[thread]);
    for (uint32_t b = NTX_MAX(from, ntx_attn_from(&a, 0)) / NTX_KV_BLOCK; b * NTX_KV_BLOCK < to; b++)
        f->m.lanes[thread].k[b] = ntx_kv_k(row->kv, f->layer, kv_head, b * NTX_KV_BLOCK);
    form_query(f, row, ntx_own_heads(f->hp, f->layer).first + kv_head, &room, &a);
    f->c.ops->attn_scores[ntx_kv_seq_type(row->kv)](&a, &r, from, to);
}

static void share_weights(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    const uint32_t n_q = heads_at_once(f, 1), set = item / n_q;
    const struct ntx_attn_round r = round_of(f, set);
    uint32_t kv_head;
    const uint32_t head = nth_head(f, set, n_q, &kv_head);
    const struct ntx_attn a = attention_of(f, f->m.attn_rows, head, n_q, &f->m.lanes[thread]);
    f->c.ops->attn_weights(&a, &r, item % n_q);
}

static void share_values(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    const uint32_t n_q = heads_at_once(f, 1), head_v = ntx_dims_of(f->hp, f->layer).head_v,
                   slices = (head_v + f->round.slice - 1) / f->round.slice, e = item % slices * f->round.slice;
    const struct ntx_row *row = ntx__live_row(f, 0);
    const struct ntx_attn_round r = round_of(f, item / slices);
    uint32_t kv_head;
    const uint32_t head = nth_head(f, item / slices, n_q, &kv_head);
    const struct ntx_attn a = attention_of(f, f->m.attn_rows, head, n_q, &f->m.lanes[thread]);
    for (uint32_t b = NTX_MAX(r.first, ntx_attn_from(&a, 0)) / NTX_KV_BLOCK; b * NTX_KV_BLOCK < r.end; b++)
        f->m.lanes[thread].v[b] = ntx_kv_v(row->kv, f->layer, kv_head, b * NTX_KV_BLOCK);
    f->c.ops->attn_values[ntx_kv_seq_type(row->kv)](&a, &r, e, NTX_MIN(e + f->round.slice, head_v));
}

/* The least number of slices of V's values with which threads have equally many. */
static uint32_t slices_of(uint32_t sets, uint32_t threads)
{
    uint32_t n = 1;
    while (sets * n % threads)
        n++;
    return n;
}

static void attend_shared(struct ntx_forward *f)
{
    enum { RANGES = 2 /* of scores, per thread and set */, SLICE = 32 /* values: a cache line of V in F16 */ };
    const struct ntx_attn a = attention_of(f, f->m.attn_rows, 0, 1, &f->m.lanes[0]);
    const uint32_t sets = shared_sets(f), heads = sets * heads_at_once(f, 1), slices = slices_of(sets, f->c.threads);
    f->round.slice = NTX_ROUND_UP((a.head_v + slices - 1) / slices, SLICE);
    for (f->round.first = ntx_attn_begins(&a); f->round.first < a.n_pos; f->round.first = f->round.end) {
        f->round.end = NTX_MIN(f->round.first + f->m.attn_rounds.ld, a.n_pos);
        f->round.range = NTX_ROUND_UP(
            (f->round.end - f->round.first + RANGES * f->c.threads - 1) / (RANGES * f->c.threads), NTX_ATTN_PART);
        ntx__each(f, share_scores, sets * round_ranges(f));
        ntx__each(f, share_weights, heads);
        ntx__each(f, share_values, sets * ((a.head_v + f->round.slice - 1) / f->round.slice));
    }
}

static void quantize_attended(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    ntx__quantize(f, f->run->forms, ntx__layer_row(f, NTX_BUF_ATTN, i), f->run->width, i);
}

void ntx__attend_own(struct ntx_forward *f)
{
    const struct ntx_dims w = ntx_dims_of(f->hp, f->layer);
    f->n_attn_groups = group_rows(f);
    const uint32_t items = ntx_own_heads(f->hp, f->layer).n * (w.n_head / w.n_head_kv) / heads_at_once(f, f->c.threads);
    if (is_shared(f))
        attend_shared(f);
    else if (f->c.sums)
        ntx__each(f, attend_all_rows, items);
    else
        ntx__each(f, attend_heads, f->n_attn_groups * items);
}

void ntx__attended(struct ntx_forward *f) { ntx__each(f, quantize_attended, f->n_live); }

int ntx__cpu_attend(struct ntx_forward *f, const struct ntx__run *r)
{
    int rc = ntx__take_run(f, r);
    if (rc)
        return rc;
    ntx__attend_own(f);
    ntx__give_run(f, r);
    ntx__attended(f);
    return 0;
}
