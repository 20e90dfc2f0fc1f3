/* SPDX-License-Identifier: Apache-2.0 */
/* attend.h: attention of decode rows over paged KV (prompt rows: prefill.h). A block of threads takes some heads of
 * one row that share K and V, and NTX_GPU_SPLIT positions. If a row has more positions, the maxima, sums and unscaled
 * values of the splits are joined in the order of the splits. Splits and order depend on the row's position alone, so
 * a row's value does not depend on the other rows of the pass.
 *
 * Within a split the order of operations is that of computed/cpu/cpu.h (`attend`), so up to NTX_GPU_SPLIT positions
 * give the CPU's bits. */
#ifndef NTX_CUDA_ATTEND_H
#define NTX_CUDA_ATTEND_H

#include "cuda/product.h"
#include "cuda/rotate.h"

DEV uint32_t splits_of(uint32_t positions) { return (positions + NTX_GPU_SPLIT - 1) / NTX_GPU_SPLIT; }

/* The entries that a row attends to: positions, or a list. */
struct entries {
    uint32_t n, from; /* positions [from, n); listed: n entries */
    int listed;
    uint32_t window;      /* the list begins with this many slots from `from` on, */
    const uint32_t *topk; /* then has these slots or numbers of pooled K; NULL: numbers from 0 on */
};

/* lists: constant; 0: no row has a list. */
DEV struct entries entries_of(const struct ntx_gpu_attend *a, uint32_t row, const int lists)
{
    const uint32_t pos = a->kv.pos[row], n_topk = lists && a->n_topk ? a->n_topk[row] : UINT32_MAX;
    struct entries e = {pos + 1, seen_from(a->window, pos), lists && (n_topk != UINT32_MAX || a->most_entries), 0,
                        NULL};
    if (!e.listed)
        return e;
    if (n_topk != UINT32_MAX)
        e.topk = a->topk + (uint64_t)row * a->max_topk;
    e.window = a->most_entries ? pos + 1 - e.from : 0;
    if (n_topk != UINT32_MAX)
        e.n = e.window + n_topk;
    else
        e.n = e.window + (a->pooled.base ? (pos + 1) / a->every : 0);
    return e;
}

/* The number of splits that lie before the window. */
DEV uint32_t splits_before(const struct entries *e) { return e->listed ? 0 : e->from / NTX_GPU_SPLIT; }

DEV_AND_HOST uint32_t most_of(const struct ntx_gpu_attend *a)
{
    return a->most_entries ? a->most_entries : a->most_pos;
}

DEV uint32_t splits_most(const struct ntx_gpu_attend *a) { return splits_of(most_of(a)); }

/* K or V of entry t of a list. */
DEV const uint8_t *listed_at(const struct ntx_gpu_attend *a, const struct entries *e, uint32_t row, uint32_t kv_head,
                             uint32_t t, int v)
{
    uint32_t number = e->from + t;
    if (t >= e->window)
        number = e->topk ? e->topk[t - e->window] : t - e->window;
    if (t >= e->window && a->pooled.base)
        return pooled_in(&a->pooled, row, number, a->every);
    return v ? v_in(&a->kv, row, kv_head, number) : k_in(&a->kv, row, kv_head, number);
}

/* The place of a split's result, which is to be multiplied by *by. A single split goes to the row; several go to the
 * partial results, with their maximum and sum. */
DEV float *place_of_split(const struct ntx_gpu_attend *a, const struct entries *of, uint32_t head, float top, float sum,
                          float *by, int writes)
{
    const uint32_t width = a->kv.head_v + 2;
    *by = sum == 0 ? 0 : 1.0f / sum;
    if (splits_of(of->n) - splits_before(of) < 2)
        return a->out + BY * a->ld_out + head * a->kv.head_v;
    float *out = a->partial + (((uint64_t)BY * a->kv.n_head + head) * splits_most(a) + BZ) * width;
    *by = 1;
    if (writes) {
        out[width - 2] = top;
        out[width - 1] = sum;
    }
    return out;
}

/* ---- F16: a block of threads takes some heads that share K and V. It reads these once, tile by tile, by the widest
 * loads; the next tile is loaded while one is used */

#define KV_TILE  9472u /* bytes of a tile: rows of some positions */
#define KV_PAD   32u   /* bytes between rows, so that two rows use different banks */
#define KV_LOADS 5u    /* loads of 16 bytes of a thread for a tile */

struct heads {                            /* some heads of a row that share K and V */
    uint32_t row, head, n_heads, kv_head; /* head: the first */
    uint32_t first, n;                    /* entries of this split */
    struct entries of;
};

/* Sets the block's heads of row BY, and its BZ-th split within the window. Returns whether this split exists. */
DEV int heads_of_block(const struct ntx_gpu_attend *a, const uint32_t heads, const int lists, struct heads *g)
{
    const uint32_t shared = a->kv.n_head / a->kv.n_head_kv, parts = (shared + heads - 1) / heads,
                   at = BX % parts * heads;
    g->row = row_of_pass(&a->kv, BY);
    g->kv_head = BX / parts;
    g->head = g->kv_head * shared + at;
    g->n_heads = shared - at < heads ? shared - at : heads;
    g->of = entries_of(a, g->row, lists);
    g->first = (splits_before(&g->of) + BZ) * NTX_GPU_SPLIT;
    if (g->first >= g->of.n)
        return 0;
    g->n = g->of.n - g->first < NTX_GPU_SPLIT ? g->of.n - g->first : NTX_GPU_SPLIT;
    return 1;
}

DEV int heads_have(const struct ntx_gpu_attend *a, const struct heads *g, uint32_t t, const int lists)
{
    return t < g->n &&
           ((lists && g->of.listed) || (g->first + t >= g->of.from && !is_hole(&a->kv, g->row, g->first + t)));
}

/* K or V of entry t of the split; NULL: it has none. */
DEV const uint8_t *entry_of_heads(const struct ntx_gpu_attend *a, const struct heads *g, uint32_t t, int v,
                                  const int lists)
{
    const uint32_t p = g->first + t;
    if (!heads_have(a, g, t, lists))
        return NULL;
    if (lists && g->of.listed)
        return listed_at(a, &g->of, g->row, g->kv_head, p, v);
    return v ? v_at(&a->kv, g->row, g->kv_head, p) : k_at(&a->kv, g->row, g->kv_head, p);
}

/* Positions of a tile with rows of `row` bytes: 8, 16 or 32. */
DEV uint32_t tile_of_rows(uint32_t row)
{
    const uint32_t most = KV_TILE / (row + KV_PAD);
    if (most >= 32)
        return 32;
    return most >= 16 ? 16 : 8;
}

/* The first row of a tile. Only for rows without paths, holes and lists: then a tile is adjacent rows of one KV
 * block. */
DEV const uint8_t *tile_at(const struct ntx_gpu_attend *a, const struct heads *g, uint32_t t0, int v)
{
    return v ? v_in(&a->kv, g->row, g->kv_head, g->first + t0) : k_in(&a->kv, g->row, g->kv_head, g->first + t0);
}

DEV void fetch_piece(const uint8_t *from, uint32_t *words)
{
    words[0] = words[1] = words[2] = words[3] = 0;
    if (from)
        load_words4(from, words);
}

/* Loads this thread's part of the rows from entry t0 on; entries without KV are 0. */
DEV void fetch_tile(const struct ntx_gpu_attend *a, const struct heads *g, uint32_t t0, uint32_t tile, uint32_t row,
                    int v, const int lists, uint32_t (*words)[4])
{
    const uint32_t pieces = row / 16;
    if (lists || a->kv.paths || a->kv.holes) {
        UNROLL
        for (uint32_t j = 0; j < KV_LOADS; j++) {
            const uint32_t i = TID + j * HEAD_THREADS, t = i / pieces;
            const uint8_t *from = t < tile ? entry_of_heads(a, g, t0 + t, v, lists) : NULL;
            fetch_piece(from ? from + i % pieces * 16 : NULL, words[j]);
        }
        return;
    }
    const uint8_t *base = tile_at(a, g, t0, v);
    const uint64_t stride = v ? v_row_bytes(&a->kv) : row;
    const uint32_t end = g->n - t0 < tile ? g->n - t0 : tile,
                   before = g->of.from > g->first + t0 ? g->of.from - g->first - t0 : 0;
    UNROLL
    for (uint32_t j = 0; j < KV_LOADS; j++) {
        const uint32_t i = TID + j * HEAD_THREADS, t = i / pieces;
        fetch_piece(t < end && t >= before ? base + t * stride + i % pieces * 16 : NULL, words[j]);
    }
}

DEV void store_tile(uint32_t tile, uint32_t row, uint32_t (*words)[4], uint32_t *shared)
{
    const uint32_t pieces = row / 16;
    SYNC();
    UNROLL
    for (uint32_t j = 0; j < KV_LOADS; j++) {
        const uint32_t i = TID + j * HEAD_THREADS, t = i / pieces;
        if (t < tile)
            store_words4(shared + (t * (row + KV_PAD) + i % pieces * 16) / 4, words[j]);
    }
    SYNC();
}

/* Loads q: value by value, with all heads' values adjacent. */
DEV void load_heads(const struct ntx_gpu_attend *a, const struct heads *g, const uint32_t heads, float *q)
{
    for (uint32_t k = TID; k < heads * a->kv.head_k; k += HEAD_THREADS) {
        const uint32_t h = k / a->kv.head_k, e = k % a->kv.head_k;
        q[e * heads + h] = h < g->n_heads ? a->q[BY * a->ld_q + (g->head + h) * a->kv.head_k + e] : 0;
    }
}

/* Loads n adjacent floats of shared memory. */
DEV void load_adjacent(const float *p, const uint32_t n, float *v)
{
    UNROLL
    for (uint32_t i = 0; i + 4 <= n; i += 4) {
        uint32_t w[4];
        load_words4(p + i, w);
        UNROLL
        for (uint32_t k = 0; k < 4; k++)
            v[i + k] = bits_f(w[k]);
    }
    UNROLL
    for (uint32_t i = n / 4 * 4; i < n; i++)
        v[i] = p[i];
}

DEV float score_of(const struct ntx_gpu_attend *a, float s) { return a->cap != 0 ? capped(s, a->cap) : s; }

/* score[t][head] of a tile. 16 threads share an entry: each takes every 16th value. */
DEV void score_tile(const struct ntx_gpu_attend *a, const struct heads *g, const uint32_t heads, uint32_t t0,
                    uint32_t tile, const uint16_t *k, uint32_t stride, const float *q, float *score, const int lists)
{
    const uint32_t lane = TID % 16;
    for (uint32_t t = TID / 16; t < tile; t += HEAD_THREADS / 16) {
        float acc[8];
        UNROLL
        for (uint32_t h = 0; h < heads; h++)
            acc[h] = 0;
        for (uint32_t e = lane; e < a->kv.head_k; e += 16) {
            float v[8];
            const float x = widen_half(k[t * stride + e]);
            load_adjacent(q + e * heads, heads, v);
            UNROLL
            for (uint32_t h = 0; h < heads; h++)
                acc[h] = fmaf(x, v[h], acc[h]);
        }
        const int there = heads_have(a, g, t0 + t, lists);
        UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            const float s = join_16_threads(acc[h]) * a->scale;
            if (!lane)
                score[(t0 + t) * heads + h] = !there ? -INFINITY : score_of(a, s);
        }
    }
}

/* Turns scores into weights (softmax). 16 threads share a head: lane p % 16 takes position p. tops, sums: shared
 * [heads]. */
DEV void weigh_heads(const struct ntx_gpu_attend *a, const struct heads *g, const uint32_t heads, float *score,
                     float *tops, float *sums)
{
    const uint32_t h = TID / 16, lane = TID % 16, some = h < heads ? g->n : 0;
    const float sink = h < g->n_heads && a->sinks && !BZ ? a->sinks[g->head + h] : -INFINITY;
    float top = sink, sum = 0;
    for (uint32_t t = lane; t < some; t += 16)
        top = score[t * heads + h] > top ? score[t * heads + h] : top;
    UNROLL
    for (uint32_t m = 8; m; m /= 2) {
        const float other = xor_f(top, m);
        top = other > top ? other : top;
    }
    if (!lane && sink > -INFINITY)
        sum = exp_exact(sink - top);
    for (uint32_t t = lane; t < some; t += 16) {
        const float w = top > -INFINITY ? exp_exact(score[t * heads + h] - top) : 0;
        score[t * heads + h] = w;
        sum += w;
    }
    sum = join_16_threads(sum);
    if (!lane && h < heads) {
        tops[h] = top;
        sums[h] = sum;
    }
    SYNC();
}

/* Adds a tile's weighted values: value TID + HEAD_THREADS * j of each head, entry after entry. */
DEV void add_tile(const struct ntx_gpu_attend *a, const uint32_t heads, const uint32_t each, uint32_t n,
                  const uint16_t *v, uint32_t stride, const float *weight, float (*acc)[8])
{
    for (uint32_t t = 0; t < n; t++) {
        float w[8];
        load_adjacent(weight + t * heads, heads, w);
        UNROLL
        for (uint32_t j = 0; j < each; j++) {
            const uint32_t e = TID + j * HEAD_THREADS;
            const float x = e < a->kv.head_v ? widen_half(v[t * stride + e]) : 0;
            UNROLL
            for (uint32_t h = 0; h < heads; h++)
                acc[j][h] = fmaf(w[h], x, acc[j][h]);
        }
    }
}

struct heads_memory { /* shared */
    float *q, *score, *tops, *sums;
    uint32_t *tile;
};

DEV void score_heads(const struct ntx_gpu_attend *a, const struct heads *g, const uint32_t heads,
                     const struct heads_memory *m, const int lists)
{
    const uint32_t row = 2 * a->kv.head_k, tile = tile_of_rows(row);
    uint32_t words[KV_LOADS][4];
    fetch_tile(a, g, 0, tile, row, 0, lists, words);
    load_heads(a, g, heads, m->q);
    for (uint32_t t = 0; t < g->n; t += tile) {
        store_tile(tile, row, words, m->tile);
        if (t + tile < g->n)
            fetch_tile(a, g, t + tile, tile, row, 0, lists, words);
        score_tile(a, g, heads, t, tile, (const uint16_t *)(const void *)m->tile, (row + KV_PAD) / 2, m->q, m->score,
                   lists);
    }
}

DEV void attend_heads(const struct ntx_gpu_attend *a, const uint32_t heads, const uint32_t each,
                      const struct heads_memory *m, const int lists)
{
    const struct ntx_gpu_kv *kv = &a->kv;
    struct heads g;
    if (!heads_of_block(a, heads, lists, &g))
        return;
    const uint32_t row = 2 * kv->head_v, tile = tile_of_rows(row);
    uint32_t words[KV_LOADS][4];
    float acc[5][8];
    score_heads(a, &g, heads, m, lists);
    fetch_tile(a, &g, 0, tile, row, 1, lists, words);
    SYNC();
    weigh_heads(a, &g, heads, m->score, m->tops, m->sums);
    UNROLL
    for (uint32_t j = 0; j < each; j++)
        UNROLL
    for (uint32_t h = 0; h < heads; h++)
        acc[j][h] = 0;
    for (uint32_t t = 0; t < g.n; t += tile) {
        store_tile(tile, row, words, m->tile);
        if (t + tile < g.n)
            fetch_tile(a, &g, t + tile, tile, row, 1, lists, words);
        add_tile(a, heads, each, g.n - t < tile ? g.n - t : tile, (const uint16_t *)(const void *)m->tile,
                 (row + KV_PAD) / 2, m->score + t * heads, acc);
    }
    UNROLL
    for (uint32_t h = 0; h < heads; h++) {
        float by, *out = h < g.n_heads ? place_of_split(a, &g.of, g.head + h, m->tops[h], m->sums[h], &by, !TID) : NULL;
        UNROLL
        for (uint32_t j = 0; j < each; j++)
            if (out && TID + j * HEAD_THREADS < kv->head_v)
                out[TID + j * HEAD_THREADS] = acc[j][h] * by;
    }
}

/* The kernel for `heads` heads of at most `head` values, `each` per thread. */
#define ATTEND_HEADS(name, heads, head, each, lists)                                                                   \
    KERNEL(name, struct ntx_gpu_attend)                                                                                \
    {                                                                                                                  \
        SHARED ALIGNED16 float q[head * heads], score[NTX_GPU_SPLIT * heads];                                          \
        SHARED float tops[heads], sums[heads];                                                                         \
        SHARED ALIGNED16 uint32_t tile[KV_TILE / 4];                                                                   \
        const struct heads_memory m = {q, score, tops, sums, tile};                                                    \
        attend_heads(&a, heads, each, &m, lists);                                                                      \
    }
ATTEND_HEADS(attend_1, 1, NTX_GPU_HEAD, 2, 0)
ATTEND_HEADS(attend_2, 2, NTX_GPU_HEAD, 2, 0)
ATTEND_HEADS(attend_4, 4, NTX_GPU_HEAD, 2, 0)
ATTEND_HEADS(attend_8, 8, NTX_GPU_HEAD, 2, 0)
ATTEND_HEADS(attend_8_wide, 8, NTX_GPU_HEAD_MAX, 5, 0)
ATTEND_HEADS(attend_8_listed, 8, NTX_GPU_HEAD_MAX, 5, 1)

/* ---- Q8_0: the same, but K and V are read in place, once for all heads */

struct heads_q8 {    /* shared */
    uint32_t *words; /* [heads][head_k / 4] q as integers */
    float *scale;    /* [heads][head_k / 32] of 32 values of q */
    uint16_t *whole; /* [warps][NTX_GPU_SPLIT][heads] weights as integers, for the 32 values of V of a warp */
    float *step;     /* [warps][heads] the weight of integer 1 */
    float *score, *tops, *sums;
};

/* Quantises q; a warp takes 32 adjacent values. */
DEV void load_heads_q8(const struct ntx_gpu_attend *a, const struct heads *g, const uint32_t heads,
                       const struct heads_q8 *m)
{
    for (uint32_t h = 0; h < heads; h++) {
        const float *q = a->q + BY * a->ld_q + (g->head + (h < g->n_heads ? h : 0)) * a->kv.head_k;
        for (uint32_t e = TID; e < a->kv.head_k; e += HEAD_THREADS) {
            float inverse, scale = scale_of(top_of_warp(q[e]), &inverse);
            ((int8_t *)(m->words + h * (a->kv.head_k / 4)))[e] = (int8_t)quantised(q[e], inverse);
            m->scale[h * (a->kv.head_k / 32) + e / 32] = scale;
        }
    }
    SYNC();
}

/* q.k of all heads. 16 threads share a position: each takes a word of one of two blocks of 32 values at a time. k
 * NULL: the position has none. */
DEV void score_q8(const struct ntx_gpu_attend *a, const uint8_t *k, const uint32_t heads, const struct heads_q8 *m,
                  float *acc)
{
    const uint32_t lane = TID % 16, blocks = a->kv.head_k / 32;
    for (uint32_t b = 0; b < blocks; b += 2) {
        const uint32_t mine = b + lane / 8;
        const int there = k && mine < blocks;
        const uint8_t *at = there ? k + mine * Q8_ROW_BYTES : NULL;
        const uint32_t word = there ? half_at(at + 2 + lane % 8 * 4) | half_at(at + 4 + lane % 8 * 4) << 16 : 0;
        const float d = there ? f16_at(at) : 0;
        UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            int32_t sum = there ? dot4(word, m->words[(h * blocks + mine) * 8 + lane % 8], 0) : 0;
            const float scale = there ? d * m->scale[h * blocks + mine] : 0;
            UNROLL
            for (uint32_t k2 = 4; k2; k2 /= 2)
                sum += xor_i(sum, k2);
            const int32_t other = xor_i(sum, 8);
            const float scale_of_other = xor_f(scale, 8);
            acc[h] = fmaf((float)(lane < 8 ? sum : other), lane < 8 ? scale : scale_of_other, acc[h]);
            if (b + 1 < blocks)
                acc[h] = fmaf((float)(lane < 8 ? other : sum), lane < 8 ? scale_of_other : scale, acc[h]);
        }
    }
}

/* score[t][head] of all entries of the split. */
DEV void score_heads_q8(const struct ntx_gpu_attend *a, const struct heads *g, const uint32_t heads,
                        const struct heads_q8 *m)
{
    for (uint32_t t = TID / 16; t < (g->n + 7) / 8 * 8; t += HEAD_THREADS / 16) {
        const int there = heads_have(a, g, t, 0);
        float acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        score_q8(a, there ? k_at(&a->kv, g->row, g->kv_head, g->first + t) : NULL, heads, m, acc);
        UNROLL
        for (uint32_t h = 0; h < heads; h++)
            if (TID % 16 == 0 && t < g->n)
                m->score[t * heads + h] = !there ? -INFINITY : score_of(a, acc[h] * a->scale);
    }
    SYNC();
}

/* Quantises a head's weights times V's scales d, for the warp's 32 values of V. A thread takes every 32nd entry. */
DEV void make_whole(const struct heads *g, const uint32_t heads, const struct heads_q8 *m, uint32_t h, const float *d)
{
    const uint32_t warp = TID / WARP;
    const float most = 32767;
    float top = 0;
    int32_t bad = 0;
    for (int pass = 0; pass < 2; pass++) {
        const float inverse = pass && !bad && top > 0x1p-100f ? most / top : 0;
        UNROLL
        for (uint32_t j = 0; j < NTX_GPU_SPLIT / WARP; j++) {
            const uint32_t t = j * WARP + TID % WARP;
            if (t >= g->n)
                continue;
            const float weight = m->score[t * heads + h], x = weight > 0 ? weight * d[j] : 0;
            if (pass)
                m->whole[(warp * NTX_GPU_SPLIT + t) * heads + h] = (uint16_t)f_bits(
                    fmaf(inverse > 0 ? x : 0, inverse, 0x1.8p23f)); /* rounds to an integer, left in the low bits */
            bad |= !(x < INFINITY);
            top = x > top ? x : top;
        }
        UNROLL
        for (uint32_t k = WARP / 2; k; k /= 2) {
            const float other = xor_f(top, k);
            bad |= xor_i(bad, k);
            top = other > top ? other : top;
        }
    }
    const float step = top > 0x1p-100f ? top / most : 0;
    if (TID % WARP == 0)
        m->step[warp * heads + h] = bad ? bits_f(0x7fc00000u) : step;
}

/* b: the number of the 32 values. */
DEV void make_all_whole(const struct ntx_gpu_attend *a, const struct heads *g, const uint32_t heads,
                        const struct heads_q8 *m, uint32_t b)
{
    float d[NTX_GPU_SPLIT / WARP];
    UNROLL
    for (uint32_t j = 0; j < NTX_GPU_SPLIT / WARP; j++) {
        const uint32_t t = j * WARP + TID % WARP;
        d[j] = heads_have(a, g, t, 0) ? f16_at(v_at(&a->kv, g->row, g->kv_head, g->first + t) + b * Q8_ROW_BYTES) : 0;
    }
    SYNC_WARP(); /* the weights of the 32 values before are not read any more */
    UNROLL
    for (uint32_t h = 0; h < heads; h++)
        make_whole(g, heads, m, h, d);
    SYNC_WARP();
}

/* Adds a value of n entries whose V are `stride` apart, times the weights from `whole` on. Eight loads are in flight
 * at a time. */
DEV void add_whole(const uint8_t *v, uint64_t stride, uint32_t n, const uint32_t heads, const uint16_t *whole,
                   int32_t *acc)
{
    for (uint32_t t = 0; t < n; t += 8) {
        int32_t x[8];
        UNROLL
        for (uint32_t j = 0; j < 8; j++)
            x[j] = t + j < n ? (int8_t)v[(t + j) * stride] : 0;
        UNROLL
        for (uint32_t j = 0; j < 8; j++)
            UNROLL
        for (uint32_t h = 0; h < heads; h++)
            acc[h] += t + j < n ? whole[(t + j) * heads + h] * x[j] : 0;
    }
}

DEV void add_weighted_q8(const struct ntx_gpu_attend *a, const struct heads *g, const uint32_t heads,
                         const struct heads_q8 *m, uint32_t e, int32_t *acc)
{
    const struct ntx_gpu_kv *kv = &a->kv;
    const uint32_t each = has_path(kv, g->row, g->first + g->n) ? 1 : kv->block_tokens,
                   at = e / 32 * Q8_ROW_BYTES + 2 + e % 32;
    for (uint32_t t = 0; t < g->n; t += each)
        add_whole(v_at(kv, g->row, g->kv_head, g->first + t) + at, kv_row_bytes(kv, kv->head_v),
                  g->n - t < each ? g->n - t : each, heads, m->whole + (TID / WARP * NTX_GPU_SPLIT + t) * heads, acc);
}

DEV void attend_heads_q8(const struct ntx_gpu_attend *a, const uint32_t heads, const struct heads_q8 *m)
{
    struct heads g;
    if (!heads_of_block(a, heads, 0, &g))
        return;
    load_heads_q8(a, &g, heads, m);
    score_heads_q8(a, &g, heads, m);
    weigh_heads(a, &g, heads, m->score, m->tops, m->sums);
    for (uint32_t e = TID; e < a->kv.head_v; e += HEAD_THREADS) { /* a warp has 32 adjacent values, or none */
        int32_t acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        make_all_whole(a, &g, heads, m, e / 32);
        add_weighted_q8(a, &g, heads, m, e, acc);
        UNROLL
        for (uint32_t h = 0; h < heads; h++) {
            float by,
                *out = h < g.n_heads ? place_of_split(a, &g.of, g.head + h, m->tops[h], m->sums[h], &by, !e) : NULL;
            if (out)
                out[e] = (float)acc[h] * m->step[TID / WARP * heads + h] * by;
        }
    }
}

#define ATTEND_HEADS_Q8(name, heads, head)                                                                             \
    KERNEL(name, struct ntx_gpu_attend)                                                                                \
    {                                                                                                                  \
        SHARED uint32_t words[heads * head / 4];                                                                       \
        SHARED ALIGNED16 uint16_t whole[HEAD_THREADS / WARP * NTX_GPU_SPLIT * heads];                                  \
        SHARED float scale[heads * head / 32], step[HEAD_THREADS / WARP * heads], score[NTX_GPU_SPLIT * heads],        \
            tops[heads], sums[heads];                                                                                  \
        const struct heads_q8 m = {words, scale, whole, step, score, tops, sums};                                      \
        attend_heads_q8(&a, heads, &m);                                                                                \
    }
ATTEND_HEADS_Q8(attend_q8_1, 1, NTX_GPU_HEAD)
ATTEND_HEADS_Q8(attend_q8_2, 2, NTX_GPU_HEAD)
ATTEND_HEADS_Q8(attend_q8_4, 4, NTX_GPU_HEAD)
ATTEND_HEADS_Q8(attend_q8_8, 8, NTX_GPU_HEAD)
ATTEND_HEADS_Q8(attend_q8_1_wide, 1, NTX_GPU_HEAD_MAX)
ATTEND_HEADS_Q8(attend_q8_8_wide, 8, NTX_GPU_HEAD_MAX)

KERNEL(attend_join, struct ntx_gpu_attend)
{
    const struct ntx_gpu_kv *kv = &a.kv;
    const struct entries of = entries_of(&a, row_of_pass(kv, BY), 1);
    uint32_t head = BX, i = BY, width = kv->head_v + 2, n = splits_of(of.n) - splits_before(&of);
    if (n < 2)
        return;
    const float *part = a.partial + ((uint64_t)i * kv->n_head + head) * splits_most(&a) * width;
    float top = part[kv->head_v], sum = 0;
    for (uint32_t s = 1; s < n; s++) {
        float other = part[s * width + kv->head_v];
        top = other > top ? other : top;
    }
    for (uint32_t s = 0; s < n; s++)
        sum = fmaf(part[s * width + kv->head_v + 1], exp_exact(part[s * width + kv->head_v] - top), sum);
    for (uint32_t e = TID; e < kv->head_v; e += HEAD_THREADS) {
        float acc = 0;
        for (uint32_t s = 0; s < n; s++)
            acc = fmaf(part[s * width + e], exp_exact(part[s * width + kv->head_v] - top), acc);
        a.out[i * a.ld_out + head * kv->head_v + e] = acc * (1.0f / sum);
    }
}

#define RETURN_HEADS(name, heads)                                                                                      \
    RETURN_LAUNCH(s, name, p->kv.n_head_kv *((shared + heads - 1) / heads), p->n_rows, splits, HEAD_THREADS, *p)

static int launch_heads(struct ntx_gpu_stream *s, const struct ntx_gpu_attend *p, uint32_t splits)
{
    const uint32_t shared = p->kv.n_head / p->kv.n_head_kv;
    if (p->n_topk || p->most_entries)
        RETURN_HEADS(attend_8_listed, 8);
    if (p->kv.head_k > NTX_GPU_HEAD || p->kv.head_v > NTX_GPU_HEAD)
        RETURN_HEADS(attend_8_wide, 8);
    if (shared == 1)
        RETURN_HEADS(attend_1, 1);
    if (shared == 2)
        RETURN_HEADS(attend_2, 2);
    if (shared <= 4)
        RETURN_HEADS(attend_4, 4);
    RETURN_HEADS(attend_8, 8);
}

static int launch_heads_q8(struct ntx_gpu_stream *s, const struct ntx_gpu_attend *p, uint32_t splits)
{
    const uint32_t shared = p->kv.n_head / p->kv.n_head_kv,
                   wide = p->kv.head_k > NTX_GPU_HEAD || p->kv.head_v > NTX_GPU_HEAD;
    if (wide && shared > 1)
        RETURN_HEADS(attend_q8_8_wide, 8);
    if (wide)
        RETURN_HEADS(attend_q8_1_wide, 1);
    if (shared == 1)
        RETURN_HEADS(attend_q8_1, 1);
    if (shared == 2)
        RETURN_HEADS(attend_q8_2, 2);
    if (shared <= 4)
        RETURN_HEADS(attend_q8_4, 4);
    RETURN_HEADS(attend_q8_8, 8);
}

static int launch_split(struct ntx_gpu_stream *s, const struct ntx_gpu_attend *p)
{
    uint32_t all = (most_of(p) + NTX_GPU_SPLIT - 1) / NTX_GPU_SPLIT, seen = all;
    if (p->window && !p->most_entries) /* a window may begin within a split */
        seen = (p->window - 1) / NTX_GPU_SPLIT + 2;
    const uint32_t splits = seen < all ? seen : all;
    return p->kv.q8 ? launch_heads_q8(s, p, splits) : launch_heads(s, p, splits);
}

static int launch_join(struct ntx_gpu_stream *s, const struct ntx_gpu_attend *p)
{
    RETURN_LAUNCH(s, attend_join, p->kv.n_head, p->n_rows, 1, HEAD_THREADS, *p);
}

int ntx__launch_attend(struct ntx_gpu_stream *s, const struct ntx_gpu_attend *p)
{
    if (!p->most_pos || p->kv.head_k % 8 || p->kv.head_v % 8 || p->kv.head_k > NTX_GPU_HEAD_MAX ||
        p->kv.head_v > NTX_GPU_HEAD_MAX || NTX_GPU_SPLIT % p->kv.block_tokens ||
        (p->kv.q8 && (p->kv.v_in_k || p->n_topk || p->most_entries)))
        return -EINVAL;
    int rc = launch_split(s, p);
    return rc || most_of(p) <= NTX_GPU_SPLIT ? rc : launch_join(s, p);
}

#endif
