/* SPDX-License-Identifier: Apache-2.0 */
/* attn_shared.h: the steps of attention of one row that threads share (cpu.h). They call what attn.h and attn_q8.h
 * call for a part, in the same order, and keep scores, factors and sums outside. So the bits are the same. Included by
 * ops.h, compiled per instruction set.
 *
 * A thread prefetches the same of the next part: K while K is multiplied, V while V is. */
#ifndef NTX_COMPUTED_CPU_ATTN_SHARED_H
#define NTX_COMPUTED_CPU_ATTN_SHARED_H

#include "computed/cpu/attn_q8.h"

/* Scores, then weights, of head g from position `first` on. */
INLINE float *round_weights(const struct ntx_attn_round *r, uint32_t g, uint32_t first)
{
    return r->w + (size_t)g * r->ld + (first - r->first);
}

INLINE float round_factor(const struct ntx_attn_round *r, uint32_t g, uint32_t first)
{
    return r->by[g * (r->ld / PART) + (first - r->first) / PART];
}

static void attn_weights(const struct ntx_attn *a, const struct ntx_attn_round *r, uint32_t g)
{
    struct ntx_attn_sum *s = &r->sum[g];
    float max = s->max;
    struct f16 sum = load16(s->lanes);
    if (r->first == ntx_attn_begins(a))
        begin_head(a, g, &max, &sum);
    for (uint32_t first = r->first; first < r->end; first += PART)
        r->by[g * (r->ld / PART) + (first - r->first) / PART] = softmax_part(
            a, round_weights(r, g, first), NTX_MIN((uint32_t)PART, r->end - first), &max, &sum);
    s->max = max;
    store16(s->lanes, sum);
}

/* Multiplies the sums by 1 / the weights' sum, after the last round. */
INLINE void end_values(const struct ntx_attn *a, const struct ntx_attn_round *r, uint32_t e, uint32_t end)
{
    for (uint32_t g = 0; r->end == a->n_pos && g < a->n_q; g++) {
        const float by = r->sum[g].max == -INFINITY ? 1 : 1.0f / join16(load16(r->sum[g].lanes));
        for (uint32_t i = e; i < end; i++)
            a->out[(size_t)g * a->head_v + i] *= by;
    }
}

INLINE void begin_values(const struct ntx_attn *a, const struct ntx_attn_round *r, uint32_t e, uint32_t end)
{
    for (uint32_t g = 0; r->first == ntx_attn_begins(a) && g < a->n_q; g++)
        memset(a->out + (size_t)g * a->head_v + e, 0, (end - e) * sizeof *a->out);
}

/* ---- F16 */

static void f16_scores(const struct ntx_attn *a, const struct ntx_attn_round *r, uint32_t from, uint32_t to)
{
    struct part t;
    float pad[NTX_ATTN_HEADS * NTX_MAX_HEAD];
    const float *q = whole_lanes(a, pad);
    t.first = from;
    t.n_next = NTX_MIN((uint32_t)PART, to - from);
    find_rows(a, a->k, 2 * (size_t)a->head_k, from, t.n_next, t.k[from / PART % 2]);
    for (; t.first < to; t.first += PART) {
        t.gaps = has_gaps(a, t.first);
        t.n = t.n_next;
        t.n_next = NTX_MIN((uint32_t)PART, to - t.first - t.n);
        find_rows(a, a->k, 2 * (size_t)a->head_k, t.first + t.n, t.n_next, t.k[t.first / PART % 2 ^ 1]);
        fetch_ahead(&t, t.k[t.first / PART % 2 ^ 1], t.n_next, a->head_k);
        all_scores(a, &t, q);
        for (uint32_t g = 0; g < a->n_q; g++)
            memcpy(round_weights(r, g, t.first), t.w[g], t.n * sizeof *t.w[g]);
    }
}

static void f16_values(const struct ntx_attn *a, const struct ntx_attn_round *r, uint32_t e, uint32_t end)
{
    struct part t;
    const uint8_t *next[PART];
    begin_values(a, r, e, end);
    t.first = r->first;
    t.n_next = NTX_MIN((uint32_t)PART, r->end - r->first);
    find_rows(a, a->v, v_row_bytes(a), t.first, t.n_next, next);
    for (; t.first < r->end; t.first += PART) {
        t.n = t.n_next;
        memcpy(t.v, next, t.n * sizeof *next);
        t.n_next = NTX_MIN((uint32_t)PART, r->end - t.first - t.n);
        find_rows(a, a->v, v_row_bytes(a), t.first + t.n, t.n_next, next);
        fetch_ahead(&t, next, t.n_next, end);
        for (uint32_t g = 0; g < a->n_q; g++) {
            memcpy(t.w[g], round_weights(r, g, t.first), t.n * sizeof *t.w[g]);
            t.by[g] = round_factor(r, g, t.first);
        }
        all_values(a, &t, e, end);
    }
    end_values(a, r, e, end);
}

/* ---- Q8_0 */

static void q8_0_scores(const struct ntx_attn *a, const struct ntx_attn_round *r, uint32_t from, uint32_t to)
{
    struct q8 t;
    q8_begin(a, &t, false);
    fetch_blocks(&t, a->k, PART, t.fetch_k, a->head_k / 4);
    t.ahead_end = to;
    for (t.first = from; t.first < to; t.first += PART) {
        t.n = NTX_MIN((uint32_t)PART, to - t.first);
        q8_scores(a, &t, NULL);
        for (uint32_t g = 0; g < a->n_q; g++)
            memcpy(round_weights(r, g, t.first), t.w[g], t.n * sizeof *t.w[g]);
    }
}

static void q8_0_values(const struct ntx_attn *a, const struct ntx_attn_round *r, uint32_t e, uint32_t end)
{
    struct q8 t;
    t.n_vectors = a->n_q;
    t.end = a->n_pos;
    t.from_v = e;
    t.to_v = end;
    begin_values(a, r, e, end);
    fetch_blocks(&t, a->v, PART, 0, 1);
    t.ahead_alike = true;
    t.ahead_end = r->end;
    for (t.first = r->first; t.first < r->end; t.first += PART) {
        t.n = NTX_MIN((uint32_t)PART, r->end - t.first);
        for (uint32_t g = 0; g < a->n_q; g++) {
            const struct f16 by = splat(round_factor(r, g, t.first));
            float *out = a->out + (size_t)g * a->head_v;
            memcpy(t.w[g], round_weights(r, g, t.first), round_up(t.n, 16) * sizeof *t.w[g]);
            for (uint32_t i = e; i < end; i += 16)
                store16(out + i, mul16(load16(out + i), by));
        }
        q8_find(a, &t, NULL);
        q8_widen(a, &t);
        q8_values(a, &t);
    }
    end_values(a, r, e, end);
}

#endif
