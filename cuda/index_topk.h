/* SPDX-License-Identifier: Apache-2.0 */
/* index_topk.h: sparse attention's indexer (computed/pass/index_topk.c): scores of all positions by small keys, and
 * the top-k of them. Nothing is downloaded to the host.
 *
 * A block of threads scores INDEX_POSITIONS positions of a row: 16 lanes times runs of positions, where lane h % 16
 * has query h. A product adds its values in order, queries of a lane one after another, and lanes are joined by the
 * fixed tree: the CPU's bits. Queries and keys of a round are in shared memory; rows are an odd number of words apart,
 * so that lanes use different banks. */
#ifndef NTX_CUDA_INDEX_TOPK_H
#define NTX_CUDA_INDEX_TOPK_H

#include "cuda/best.h"
#include "cuda/product.h"
#include "cuda/kv.h"

#define INDEX_THREADS   128u
#define INDEX_EACH      4u /* positions of a thread */
#define INDEX_POSITIONS (INDEX_THREADS / 16 * INDEX_EACH)

/* The number of entries (positions, or pooled keys) that a row at pos selects from. */
DEV uint32_t entries_at(uint32_t every, uint32_t pos) { return every ? (pos + 1) / every : pos + 1; }

/* The key of entry p; NULL: the position has none. */
DEV const uint16_t *key_of(const struct ntx_gpu_index *a, uint32_t row, uint32_t p)
{
    if (a->every && a->pooled)
        return (const uint16_t *)(const void *)pooled_in(&a->kv, row, p, a->every);
    if (a->every)
        return (const uint16_t *)(const void *)k_in(&a->kv, row, 0, (p + 1) * a->every - 1);
    return is_hole(&a->kv, row, p) ? NULL : (const uint16_t *)(const void *)k_at(&a->kv, row, 0, p);
}

/* Loads 16 queries from h0 on; queries that do not exist are 0. */
DEV void load_index_queries(const struct ntx_gpu_index *a, const float *q, uint32_t h0, float *to)
{
    for (uint32_t k = TID; k < 16 * a->width; k += INDEX_THREADS) {
        const uint32_t h = k / a->width, i = k % a->width;
        to[h * (NTX_GPU_INDEX_HEAD + 1) + i] = h0 + h < a->heads ? q[(h0 + h) * a->width + i] : 0;
    }
}

DEV void load_index_keys(const struct ntx_gpu_index *a, uint32_t row, uint32_t first, uint32_t n, uint16_t *to,
                         uint32_t *there)
{
    for (uint32_t t = TID / 16; t < INDEX_POSITIONS; t += INDEX_THREADS / 16) {
        const uint16_t *key = t < n ? key_of(a, row, first + t) : NULL;
        for (uint32_t i = TID % 16; i < a->width; i += 16)
            to[t * (NTX_GPU_INDEX_HEAD + 2) + i] = key ? key[i] : 0;
        if (TID % 16 == 0)
            there[t] = key != NULL;
    }
}

/* Adds the scores of this thread's query for its positions. */
DEV void add_query(const struct ntx_gpu_index *a, const float *q, const uint16_t *keys, float weight, float *sum)
{
    float acc[INDEX_EACH];
    UNROLL
    for (uint32_t j = 0; j < INDEX_EACH; j++)
        acc[j] = 0;
    for (uint32_t i = 0; i < a->width; i++) {
        UNROLL
        for (uint32_t j = 0; j < INDEX_EACH; j++)
            acc[j] = fmaf(q[i], widen_half(keys[j * (NTX_GPU_INDEX_HEAD + 2) + i]), acc[j]);
    }
    UNROLL
    for (uint32_t j = 0; j < INDEX_EACH; j++)
        sum[j] = fmaf(weight, acc[j] < 0 ? 0 : acc[j], sum[j]);
}

/* Row BY of the launch, entries from BX * INDEX_POSITIONS on. */
KERNEL(index_scores, struct ntx_gpu_index)
{
    SHARED float q[16 * (NTX_GPU_INDEX_HEAD + 1)];
    SHARED uint16_t keys[INDEX_POSITIONS * (NTX_GPU_INDEX_HEAD + 2)];
    SHARED uint32_t there[INDEX_POSITIONS];
    const uint32_t row = row_of_pass(&a.kv, BY), all = entries_at(a.every, a.kv.pos[row]), first = BX * INDEX_POSITIONS,
                   lane = TID % 16, mine = TID / 16 * INDEX_EACH;
    float sum[INDEX_EACH] = {0};
    if (first >= all)
        return;
    const uint32_t n = all - first < INDEX_POSITIONS ? all - first : INDEX_POSITIONS;
    load_index_keys(&a, row, first, n, keys, there);
    for (uint32_t h0 = 0; h0 < a.heads; h0 += 16) {
        const uint32_t h = h0 + lane;
        SYNC();
        load_index_queries(&a, a.q + BY * a.ld_q, h0, q);
        SYNC();
        float weight = 0;
        if (h < a.heads)
            weight = a.weights ? a.weights[BY * a.ld_weights + h] * a.scale : a.scale;
        add_query(&a, q + lane * (NTX_GPU_INDEX_HEAD + 1), keys + mine * (NTX_GPU_INDEX_HEAD + 2), weight, sum);
    }
    UNROLL
    for (uint32_t j = 0; j < INDEX_EACH; j++) {
        const float v = join_16_threads(sum[j]);
        if (!lane && mine + j < n)
            a.score[BY * a.ld_score + first + mine + j] = there[mine + j] && v == v ? v : -INFINITY;
    }
}

/* Writes the slots of entry p's positions, or its number, as element `at` of a row's list. */
DEV void write_entry(const struct ntx_gpu_index_topk *a, uint32_t row, uint32_t *out, uint32_t at, uint32_t p)
{
    for (uint32_t j = 0; j < a->each; j++)
        out[at * a->each + j] = a->pooled ? p : slot_of(&a->kv, row, p * a->each + j);
}

/* The top-k of row BX of the launch. Entries with a score of minus infinity are not selected. */
KERNEL_OF(BEST_THREADS, select_topk, struct ntx_gpu_index_topk)
{
    SHARED struct best_memory m;
    const uint32_t row = row_of_pass(&a.kv, BX), pos = a.kv.pos[row], n = entries_at(a.every, pos);
    const float *x = a.score + BX * a.ld_score;
    uint32_t *out = a.topk + (uint64_t)row * a.max_topk;
    if (n <= a.most) {
        if (!TID)
            a.n_topk[row] = UINT32_MAX;
        return;
    }
    struct best_share s = best_share_of(x, n, 1, a.most, &m);
    if (s.limit == order_of(-INFINITY)) { /* fewer entries have a score */
        s.at -= s.same < s.wanted ? s.same : s.wanted;
        s.wanted = 0;
    }
    for (uint32_t i = s.from; i < s.to; i++)
        if (best_takes(&s, x[i]))
            write_entry(&a, row, out, s.at++, i);
    if (TID != BEST_THREADS - 1) /* the last thread knows the length */
        return;
    s.at *= a.each;
    for (uint32_t p = n * a.each; a.tail && p <= pos; p++)
        out[s.at++] = slot_of(&a.kv, row, p);
    a.n_topk[row] = s.at;
}

/* Row BX: copies the list without positions that have no K in this layer, since attention splits count entries. */
KERNEL_OF(BEST_THREADS, drop_holes, struct ntx_gpu_index_topk)
{
    SHARED uint32_t each[BEST_THREADS], warps[BEST_THREADS / WARP];
    const uint32_t row = row_of_pass(&a.kv, BX), n = a.from_n[row];
    const uint32_t *list = a.from + (uint64_t)row * a.max_topk;
    uint32_t *out = a.topk + (uint64_t)row * a.max_topk, some = 0;
    if (n == UINT32_MAX) {
        if (!TID)
            a.n_topk[row] = n;
        return;
    }
    const uint32_t share = (n + BEST_THREADS - 1) / BEST_THREADS, from = TID * share < n ? TID * share : n,
                   to = from + share < n ? from + share : n;
    for (uint32_t i = from; i < to; i++)
        some += !is_hole_in(&a.kv, row, list[i]);
    uint32_t at = sum_before(some, each, warps);
    for (uint32_t i = from; i < to; i++)
        if (!is_hole_in(&a.kv, row, list[i]))
            out[at++] = list[i];
    if (TID == BEST_THREADS - 1)
        a.n_topk[row] = at;
}

int ntx__launch_index(struct ntx_gpu_stream *s, const struct ntx_gpu_index *p)
{
    const uint32_t most = p->every ? p->most_pos / p->every : p->most_pos;
    if (p->width > NTX_GPU_INDEX_HEAD || p->width % 16 || p->width > p->kv.head_k)
        return -EINVAL;
    if (!most)
        return 0;
    RETURN_LAUNCH(s, index_scores, (most + INDEX_POSITIONS - 1) / INDEX_POSITIONS, p->n_rows, 1, INDEX_THREADS, *p);
}

int ntx__launch_index_topk(struct ntx_gpu_stream *s, const struct ntx_gpu_index_topk *p)
{
    if (p->from && p->kv.holes)
        RETURN_LAUNCH(s, drop_holes, p->n_rows, 1, 1, BEST_THREADS, *p);
    if (!p->most || !p->each || p->from)
        return -EINVAL;
    RETURN_LAUNCH(s, select_topk, p->n_rows, 1, 1, BEST_THREADS, *p);
}

#endif
