/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h: K and indexer keys that stand for several positions (computed/pass/forward_pool.c,
 * computed/pass/index_topk.c): a softmax over positions, value by value, or their mean. The result is normed, rotated
 * by the angles of the first position, Hadamard-transformed, and stored. A block of threads computes one. Angles are
 * computed here, in double precision as on the host. */
#ifndef NTX_CUDA_POOL_H
#define NTX_CUDA_POOL_H

#include "cuda/rotate.h"
#include "cuda/value.h"

struct pooling {              /* of one pooled row */
    uint32_t row, last, from; /* it stands for positions [from, last] */
    uint32_t first, at;       /* first position of the turn, and the number of its row */
    const float *state;       /* rows of positions before `first` */
};

DEV struct pooling pooling_of(const struct ntx_gpu_pool *a)
{
    struct pooling p = {a->turns ? a->turn_rows[BX] : row_of_pass(&a->kv, BX), 0, 0, 0, 0, NULL};
    const uint32_t span = a->every * a->spans;
    p.last = a->kv.pos[p.row];
    p.from = p.last + 1 < span ? 0 : p.last + 1 - span;
    if (a->turns) {
        uint32_t t = 0;
        while (a->turns[t].first + a->turns[t].n <= BX)
            t++;
        p.at = a->turns[t].first;
        p.first = a->kv.pos[a->turn_rows[p.at]];
        p.state = (const float *)(const void *)(a->states + a->turns[t].from + a->state_offset);
    }
    return p;
}

/* Value c of position pos, or its weight: from the pass or the state; without turns, from the KV cache. */
DEV float pool_source(const struct ntx_gpu_pool *a, const struct pooling *p, uint32_t pos, uint32_t c, int weight)
{
    const uint32_t wide = a->spans * a->width;
    if (!a->turns)
        return f16_at(k_in(&a->kv, p->row, 0, pos) + 2 * (c + (weight ? wide : 0)));
    if (pos >= p->first)
        return (weight
                    ? a->weight
                    : a->value)[a->places_of_rows[p->at + pos - p->first] * (weight ? a->ld_weight : a->ld_value) + c];
    return p->state[(uint64_t)(pos % (a->every * a->spans)) * 2 * wide + (weight ? wide : 0) + c];
}

/* The offset in a row of values: the last `width` values for the last `every` positions, the first for those before. */
DEV uint32_t span_offset(const struct ntx_gpu_pool *a, const struct pooling *p, uint32_t pos)
{
    return pos + a->every > p->last ? (a->spans - 1) * a->width : 0;
}

DEV float pool_weight(const struct ntx_gpu_pool *a, const struct pooling *p, uint32_t pos, uint32_t c)
{
    return pool_source(a, p, pos, c, 1) +
           float_or_value(a->place_type, (const uint8_t *)a->places + pos % a->every * a->place_bytes, c);
}

DEV float pool_by_softmax(const struct ntx_gpu_pool *a, const struct pooling *p, uint32_t c)
{
    float most = 0, sum = 0, out = 0;
    for (uint32_t pos = p->from; pos <= p->last; pos++) {
        const float w = pool_weight(a, p, pos, span_offset(a, p, pos) + c);
        most = pos == p->from || w > most ? w : most;
    }
    for (uint32_t pos = p->from; pos <= p->last; pos++) {
        const uint32_t at = span_offset(a, p, pos) + c;
        const float e = exp_exact(pool_weight(a, p, pos, at) - most);
        sum += e;
        out += e * pool_source(a, p, pos, at, 0);
    }
    return out / sum;
}

DEV float pool_by_mean(const struct ntx_gpu_pool *a, const struct pooling *p, uint32_t c)
{
    float sum = 0;
    for (uint32_t pos = p->from; pos <= p->last; pos++)
        sum += pool_source(a, p, pos, c, 0);
    return sum / (float)a->every;
}

DEV void norm_pooled(const struct ntx_gpu_pool *a, float *x, double *sums)
{
    double sum = 0;
    for (uint32_t c = TID; c < a->width; c += HEAD_THREADS)
        sum += (double)x[c] * (double)x[c];
    const float scale = (float)(1.0 / sqrt(block_sum(sum, sums) / a->width + (double)a->eps));
    for (uint32_t c = TID; c < a->width; c += HEAD_THREADS)
        x[c] = x[c] * scale * a->norm[c];
    SYNC();
}

DEV void rotate_pooled(const struct ntx_gpu_pool *a, float *x, uint32_t pos)
{
    for (uint32_t i = TID; i < a->rotated / 2; i += HEAD_THREADS) {
        const double angle = pos * a->freq[i];
        const float cs = (float)(cos(angle) * a->magnitude), sn = (float)(sin(angle) * a->magnitude);
        float *u = x + a->offset + (a->neox ? i : 2 * i),
              *v = x + a->offset + (a->neox ? i + a->rotated / 2 : 2 * i + 1);
        const float was = *u;
        *u = was * cs - *v * sn;
        *v = was * sn + *v * cs;
    }
    SYNC();
}

KERNEL(pool_rows, struct ntx_gpu_pool)
{
    SHARED float x[NTX_GPU_HEAD_MAX];
    SHARED double sums[WARPS];
    const struct pooling p = pooling_of(&a);
    if ((p.last + 1) % a.every)
        return;
    for (uint32_t c = TID; c < a.width; c += HEAD_THREADS)
        x[c] = a.places ? pool_by_softmax(&a, &p, c) : pool_by_mean(&a, &p, c);
    SYNC();
    if (a.norm)
        norm_pooled(&a, x, sums);
    if (a.rotated)
        rotate_pooled(&a, x, p.last + 1 - a.every);
    if (a.hadamard)
        hadamard_by(x, a.width, a.hadamard_scale, HEAD_THREADS);
    uint8_t *to = a.turns ? pooled_in(&a.kv, p.row, p.last / a.every, a.every) : k_in(&a.kv, p.row, 0, p.last);
    for (uint32_t c = TID; c < a.width; c += HEAD_THREADS)
        *(uint16_t *)(void *)(to + 2 * c) = f16_bits(x[c]);
}

/* Stores rows that are not pooled yet: value BX * HEAD_THREADS + TID of turn BY's state. The state has a row for each
 * of the last positions, at its number modulo the span. */
KERNEL(keep_unpooled, struct ntx_gpu_pool)
{
    const struct ntx_gpu_turn t = a.turns[BY];
    const uint32_t span = a.every * a.spans, wide = a.spans * a.width, k = BX * HEAD_THREADS + TID, i = k / (2 * wide),
                   c = k % (2 * wide);
    const struct pooling p = {0,       0,
                              0,       a.kv.pos[a.turn_rows[t.first]],
                              t.first, (const float *)(const void *)(a.states + t.from + a.state_offset)};
    const uint32_t end = p.first + t.n;
    if (i >= span || i >= end)
        return;
    const uint32_t pos = (end - 1 - i) / span * span + i;
    if (pos >= p.first || !t.fresh)
        ((float *)(void *)(a.states + t.to + a.state_offset))[k] = pool_source(&a, &p, pos, c % wide, c >= wide);
}

int ntx__launch_pool(struct ntx_gpu_stream *s, const struct ntx_gpu_pool *p)
{
    if (!p->every || !p->spans || p->width > NTX_GPU_HEAD_MAX)
        return -EINVAL;
    struct ntx_gpu_pool a = *p;
    a.hadamard_scale = hadamard_scale(a.width);
    RETURN_LAUNCH(s, pool_rows, a.n_rows, 1, 1, HEAD_THREADS, a);
}

int ntx__launch_unpooled(struct ntx_gpu_stream *s, const struct ntx_gpu_pool *p)
{
    RETURN_LAUNCH(s, keep_unpooled, (p->every * p->spans * 2 * p->spans * p->width + HEAD_THREADS - 1) / HEAD_THREADS,
                  p->n_turns, 1, HEAD_THREADS, *p);
}

#endif
