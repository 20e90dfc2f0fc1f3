/* SPDX-License-Identifier: Apache-2.0 */
/* route.h: routing on the device: selects each row's experts as computed/pass/moe.c does, and sorts the routed rows by
 * expert. The host does not need the result.
 *
 * A warp takes a row; its scores are in shared memory. Sums that the CPU adds in an order are added in that order by
 * all threads; each of the largest scores is found by the whole warp. */
#ifndef NTX_CUDA_ROUTE_H
#define NTX_CUDA_ROUTE_H

#include "cuda/moe.h"

#define ROUTE_TAKEN (-1.0f) /* replaces a score that is taken; scores are never negative */

struct route_memory { /* shared */
    float score[NTX_GPU_EXPERTS], group[NTX_GPU_EXPERTS], weight[NTX_GPU_EXPERTS_USED];
    uint32_t expert[NTX_GPU_EXPERTS_USED], best;
};

/* Softmax over n scores. */
DEV void route_softmax(float *p, uint32_t n)
{
    float most = -INFINITY, sum = 0;
    for (uint32_t e = TID; e < n; e += WARP)
        most = p[e] > most ? p[e] : most;
    UNROLL
    for (uint32_t m = WARP / 2; m; m /= 2) {
        const float other = xor_f(most, m);
        most = other > most ? other : most;
    }
    for (uint32_t e = TID; e < n; e += WARP)
        p[e] = exp_exact(p[e] - most);
    SYNC();
    for (uint32_t e = 0; e < n; e++)
        sum += p[e];
    SYNC();
    for (uint32_t e = TID; e < n; e += WARP)
        p[e] /= sum;
}

DEV float route_score(float x, uint32_t by)
{
    if (by == NTX_SCORE_SIGMOID)
        return 1 / (1 + exp_exact(-x));
    if (by == NTX_SCORE_SQRT_SOFTPLUS)
        return (float)sqrt(x > 20 ? (double)x : log1p(exp((double)x)));
    return x;
}

DEV void route_scores(const struct ntx_gpu_route *a, const float *logits, float *p)
{
    for (uint32_t e = TID; e < a->n_expert; e += WARP)
        p[e] = route_score(a->bias ? logits[e] + a->bias[e] : logits[e], a->by.score);
    if (a->by.score == NTX_SCORE_SOFTMAX)
        route_softmax(p, a->n_expert);
    SYNC();
}

DEV float route_value(const struct ntx_gpu_route *a, const float *p, uint32_t e)
{
    return a->choice ? p[e] + a->choice[e] : p[e];
}

/* The score of expert group g: the sum of its two largest scores, or its largest score. */
DEV float route_group(const struct ntx_gpu_route *a, const float *p, uint32_t g, uint32_t each)
{
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t e = g * each; e < (g + 1) * each; e++) {
        const float v = route_value(a, p, e), less = v > first ? first : v;
        first = v > first ? v : first;
        second = less > second ? less : second;
    }
    return a->by.expert_groups_by_best ? first : first + second;
}

/* Removes the experts of groups that are not selected; of equal groups the last one is removed first. */
DEV void route_drop_groups(const struct ntx_gpu_route *a, struct route_memory *m)
{
    const uint32_t n = a->by.n_expert_groups, each = n ? a->n_expert / n : 0;
    for (uint32_t g = TID; g < n; g += WARP)
        m->group[g] = route_group(a, m->score, g, each);
    SYNC();
    for (uint32_t out = a->by.expert_groups_used; out < n; out++) {
        uint32_t least = 0;
        float score = INFINITY;
        for (uint32_t g = 0; g < n; g++)
            if (m->group[g] <= score) {
                score = m->group[g];
                least = g;
            }
        SYNC();
        for (uint32_t e = TID; e < each; e += WARP)
            m->score[least * each + e] = ROUTE_TAKEN;
        if (!TID)
            m->group[least] = INFINITY;
        SYNC();
    }
}

/* The best expert that is not taken yet; of equal ones the first. */
DEV uint32_t route_best(const struct ntx_gpu_route *a, struct route_memory *m)
{
    float most = -INFINITY;
    uint32_t best = UINT32_MAX;
    for (uint32_t e = TID; e < a->n_expert; e += WARP) {
        const float v = route_value(a, m->score, e);
        if (!(m->score[e] < 0) && (best == UINT32_MAX || v > most)) {
            most = v;
            best = e;
        }
    }
    UNROLL
    for (uint32_t k = WARP / 2; k; k /= 2) {
        const float v = xor_f(most, k);
        const uint32_t e = (uint32_t)xor_i((int32_t)best, k);
        if (e != UINT32_MAX && (best == UINT32_MAX || v > most || (!(most > v) && e < best))) {
            most = v;
            best = e;
        }
    }
    if (!TID) /* threads may disagree if scores are NaN */
        m->best = best;
    SYNC();
    return m->best;
}

/* Writes the k-th expert to its place in the order of the row's expert numbers. */
DEV void route_write(const struct ntx_gpu_route *a, const struct route_memory *m, uint32_t k, float by)
{
    uint32_t c = BX * a->used;
    for (uint32_t j = 0; j < a->used; j++)
        c += m->expert[j] < m->expert[k];
    a->weight[c] = m->weight[k] * by * a->by.scale * (a->factor ? a->factor[m->expert[k]] : 1);
    a->expert[c] = m->expert[k];
    a->place[c] = c;
    a->row[c] = BX;
}

KERNEL(route_rows, struct ntx_gpu_route)
{
    SHARED struct route_memory m;
    float sum = 0;
    route_scores(&a, a.logits + BX * a.ld_logits, m.score);
    route_drop_groups(&a, &m);
    for (uint32_t k = 0; k < a.used; k++) {
        const uint32_t e = route_best(&a, &m);
        const float p = m.score[e];
        sum += p;
        SYNC();
        if (!TID) {
            m.expert[k] = e;
            m.weight[k] = p;
            m.score[e] = ROUTE_TAKEN;
        }
        SYNC();
    }
    const float all = sum > NTX_LEAST_WEIGHTS ? sum : NTX_LEAST_WEIGHTS, by = a.by.norm ? 1 / all : 1;
    for (uint32_t k = TID; k < a.used; k += WARP)
        route_write(&a, &m, k, by);
}

/* ---- routed rows by expert: a block of threads per expert; each block counts all routed rows. A thread takes
 * adjacent routed rows, so that rows of an expert keep their order. */

#define SORT_THREADS 256u
#define SORT_EXPERTS (NTX_GPU_EXPERTS / SORT_THREADS) /* per thread */

struct sort_memory { /* shared */
    uint32_t first[NTX_GPU_EXPERTS + 1], sums[SORT_THREADS];
};

/* The sum of n over the threads before this one. */
DEV uint32_t sort_before(uint32_t n, uint32_t *sums)
{
    SYNC();
    sums[TID] = n;
    SYNC();
    for (uint32_t m = 1; m < SORT_THREADS; m *= 2) {
        const uint32_t more = TID >= m ? sums[TID - m] : 0;
        SYNC();
        sums[TID] += more;
        SYNC();
    }
    return sums[TID] - n;
}

/* Turns counts into the number of each expert's first routed row; the element after the last is the total. */
DEV void sort_firsts(struct sort_memory *m)
{
    uint32_t own = 0;
    SYNC();
    UNROLL
    for (uint32_t k = 0; k < SORT_EXPERTS; k++)
        own += m->first[TID * SORT_EXPERTS + k];
    uint32_t at = sort_before(own, m->sums);
    UNROLL
    for (uint32_t k = 0; k < SORT_EXPERTS; k++) {
        const uint32_t n = m->first[TID * SORT_EXPERTS + k];
        m->first[TID * SORT_EXPERTS + k] = at;
        at += n;
    }
    if (TID == SORT_THREADS - 1)
        m->first[NTX_GPU_EXPERTS] = at;
    SYNC();
}

/* The routed rows of expert e in wave w: returns how many, and sets the first. */
DEV uint32_t sort_range(const struct ntx_gpu_sort *a, const struct sort_memory *m, uint32_t e, uint32_t w,
                        uint32_t *from)
{
    const uint32_t begin = w * a->wave, end = begin + a->wave, to = m->first[e + 1] < end ? m->first[e + 1] : end;
    *from = m->first[e] > begin ? m->first[e] : begin;
    return to > *from ? to - *from : 0;
}

/* Writes the expert's tiles of wave w after those of earlier experts. The last expert marks the rest as empty. */
DEV void sort_tiles(const struct ntx_gpu_sort *a, const struct sort_memory *m, uint32_t e, uint32_t w)
{
    struct ntx_gpu_tile *tile = a->tiles + (uint64_t)w * a->n_tiles;
    uint32_t from, n = sort_range(a, m, e, w, &from), at = 0, before;
    if (!n && e + 1 < a->n_expert)
        return;
    for (uint32_t i = 0; i < e; i++)
        at += (sort_range(a, m, i, w, &before) + a->high - 1) / a->high;
    for (uint32_t i = 0; i < n; i += a->high, at++) {
        tile[at].expert = e;
        tile[at].first = from + i - w * a->wave;
        tile[at].n = n - i < a->high ? n - i : a->high;
    }
    for (; e + 1 == a->n_expert && at < a->n_tiles; at++)
        tile[at].n = 0;
}

KERNEL(sort_choices, struct ntx_gpu_sort)
{
    SHARED struct sort_memory m;
    const uint32_t n = a.n_rows * a.used, each = (n + SORT_THREADS - 1) / SORT_THREADS,
                   from = TID * each < n ? TID * each : n, to = n - from < each ? n : from + each, e = BX;
    uint32_t mine = 0;
    for (uint32_t i = TID; i < NTX_GPU_EXPERTS; i += SORT_THREADS)
        m.first[i] = 0;
    SYNC();
    for (uint32_t c = from; c < to; c++) {
        count_one(&m.first[a.selected[c]]);
        mine += a.selected[c] == e;
    }
    const uint32_t before = sort_before(mine, m.sums);
    sort_firsts(&m);
    uint32_t number = m.first[e] + before;
    for (uint32_t c = from; c < to; c++)
        if (a.selected[c] == e) {
            a.place[c] = number;
            a.row[number] = c / a.used;
            a.expert[number++] = e;
        }
    for (uint32_t w = TID; w * a.wave < n; w += SORT_THREADS)
        sort_tiles(&a, &m, e, w);
}

int ntx__launch_sort(struct ntx_gpu_stream *s, const struct ntx_gpu_sort *p)
{
    if (!p->n_expert || p->n_expert > NTX_GPU_EXPERTS || !p->wave || !p->high ||
        p->n_tiles < NTX_GPU_TILES(p->wave, p->n_expert, p->high))
        return -EINVAL;
    RETURN_LAUNCH(s, sort_choices, p->n_expert, 1, 1, SORT_THREADS, *p);
}

int ntx__launch_route(struct ntx_gpu_stream *s, const struct ntx_gpu_route *p)
{
    const uint32_t groups = p->by.n_expert_groups,
                   used = p->by.expert_groups_used < groups ? p->by.expert_groups_used : groups,
                   left = groups ? p->n_expert / groups * used : p->n_expert;
    if (p->n_expert > NTX_GPU_EXPERTS || !p->used || p->used > NTX_GPU_EXPERTS_USED || p->used > left)
        return -EINVAL;
    RETURN_LAUNCH(s, route_rows, p->n_rows, 1, 1, WARP, *p);
}

#endif
