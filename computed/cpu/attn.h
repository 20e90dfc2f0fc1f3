/* SPDX-License-Identifier: Apache-2.0 */
/* attn.h: attention of the query heads that share a KV head, over one row's context, with K and V in F16 (Q8_0:
 * attn_q8.h). Included by ops.h, compiled per instruction set.
 *
 * Online softmax over parts of PART positions, counted from 0. For each part: the scores of all heads, the new maximum
 * m, earlier sums of weights and of weighted values scaled to m, and the part's sums added. So K and V are read once,
 * and no memory grows with the context. Parts, lanes and the order of positions are fixed, and therefore the bits:
 * they do not depend on how heads and rows are grouped into tiles, which only saves loads and joins. Several rows
 * together: attn_rows.h. */
#ifndef NTX_COMPUTED_CPU_ATTN_H
#define NTX_COMPUTED_CPU_ATTN_H

#include "common/util.h"
#include "computed/cpu/lanes.h"
#include "model/arch.h"

enum {
    PART = NTX_ATTN_PART, /* positions; equal to NTX_GPU_SPLIT, so that a GPU gives the same bits up to there */
    HEADS = 4,            /* most heads of a tile */
    TILE = 16,            /* most scores, or vectors of 16 values, at once: accumulators that registers hold */
    VECS = 4,             /* most vectors of 16 values of a tile of values */
    BATCH = 32,           /* rows that are scored for all heads, or unpacked, at a time */
};

INLINE int rows_of_tile(const int heads)
{
    if (WIDTH == 16)
        return heads == 3 ? 4 : TILE / heads;
    return heads == 3 ? 2 : 4 / heads;
}
INLINE int vecs_of_tile(const int heads)
{
    if (WIDTH == 16)
        return VECS;
    return heads == 4 ? 1 : 2;
}

struct part { /* one part of the context, for all heads of the call */
    /* scores, then weights; holes and positions after the end have minus infinity, then 0 */
    float w[NTX_ATTN_HEADS][PART];
    float by[NTX_ATTN_HEADS];            /* factor for the sums of earlier parts */
    const uint8_t *k[2][PART], *v[PART]; /* rows, NULL for holes; K of this part and of the next, alternating */
    uint32_t first, n, n_next;
    bool gaps; /* some of k and v are NULL */
    /* Rows that the present products prefetch, by place in the part, and values of each that are read. */
    const uint8_t *const *ahead;
    uint32_t n_ahead, ahead_values;
};

struct rows { /* n <= BATCH rows, from place p of the part on */
    const uint8_t *const *at;
    uint32_t p, n;
};

/* ---- K and V as they are stored */

/* Loads 16 values; if n < 16, the rest are 0. */
INLINE struct f16 kv_load(const uint8_t *at, uint32_t n)
{
    const uint16_t *h = (const uint16_t *)(const void *)at;
    return n < 16 ? load_part_f16(h, n) : load16_f16(h);
}

/* Finds rows first .. first + n of K or V; NULL for holes, and for positions that no row of the call sees. */
INLINE void find_rows(const struct ntx_attn *a, const void *const *blocks, size_t row_bytes, uint32_t first, uint32_t n,
                      const uint8_t **rows)
{
    const uint32_t from = ntx_attn_from(a, 0);
    for (uint32_t i = 0; i < n;) {
        uint32_t p = first + i, in = p % a->block_tokens, end = NTX_MIN(n, i + a->block_tokens - in);
        const uint8_t *at = first + end > from ? blocks[p / a->block_tokens] : NULL;
        for (; i < end; i++, in++)
            rows[i] = first + i < from || (a->hole && a->hole[(first + i) / 8] >> ((first + i) % 8) & 1)
                          ? NULL
                          : at + in * row_bytes;
    }
}

/* Bytes of a position of V. */
INLINE size_t v_row_bytes(const struct ntx_attn *a) { return 2 * (size_t)(a->v_in_k ? a->head_k : a->head_v); }

INLINE bool has_gaps(const struct ntx_attn *a, uint32_t first) { return a->hole || first < ntx_attn_from(a, 0); }

/* The first part: that of the first visible position. */
INLINE uint32_t first_part(const struct ntx_attn *a) { return ntx_attn_from(a, 0) / PART * PART; }

/* V is prefetched while its part is scored, and the next part's K while values are summed: a head's runs are too short
 * for the hardware prefetcher. One line at a time between the products: many at once delay the products' own loads
 * (docs/log/kernels-x86.md). */
INLINE void fetch_at(const uint8_t *row, size_t at)
{
    if (row)
        __builtin_prefetch(row + at, 0, 2);
}

/* ---- scores */

/* The sums of n vectors by the fixed tree; v and out have room for n rounded up to a power of two. */
INLINE void join_all(struct f16 *v, int n, float *out)
{
#if defined(__AVX512F__)
    if (n > 4) { /* each level halves the lanes of a vector, so two vectors share one from then on */
        const ipart lo8 = {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23},
                    lo4 = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
        const ipart lo2 = {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29},
                    lo1 = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
        const ipart *lo[] = {&lo8, &lo4, &lo2, &lo1};
        fpart x[16];
        n = n > 8 ? 16 : 8;
        for (int i = 0; i < n; i++)
            x[i] = v[i].p[0];
        for (int level = 0, step = 8; level < 4; level++, step /= 2)
            for (int i = 0; i < (n >> level) / 2 || !i; i++)
                x[i] = __builtin_shuffle(x[2 * i], x[n >> level > 1 ? 2 * i + 1 : 0], *lo[level]) +
                       __builtin_shuffle(x[2 * i], x[n >> level > 1 ? 2 * i + 1 : 0], *lo[level] + step);
        memcpy(out, x, (size_t)n * sizeof *out);
        return;
    }
#endif
    for (int i = 0; i < n; i++)
        out[i] = join16(v[i]);
}

/* q.k of `heads` heads from g on for n rows from row r on: 16 lanes over the head's values, then the fixed tree. */
INLINE void score_tile(const struct ntx_attn *a, struct part *t, const float *q, const struct rows *rows, uint32_t g,
                       const int heads, uint32_t r, const int n)
{
    struct f16 acc[TILE];
    float sum[TILE], *w = t->w[g] + rows->p + r;
    const float *x_of[HEADS];
    const uint8_t *at[TILE];
    for (int i = 0; i < TILE; i++)
        acc[i] = splat(0);
    for (int h = 0; h < heads; h++)
        x_of[h] = q + (g + (size_t)h) * round_up(a->head_k, 16);
    for (int j = 0; j < n; j++)
        at[j] = rows->at[r + (uint32_t)j];
    for (uint32_t i = 0; i < a->head_k; i += 16) {
        struct f16 x[HEADS];
        for (int h = 0; h < heads; h++)
            x[h] = load16(x_of[h] + i);
        for (int j = 0; !g && j < n && i % 32 == 0 && i < t->ahead_values; j++)
            if (rows->p + r + (uint32_t)j < t->n_ahead)
                fetch_at(t->ahead[rows->p + r + (uint32_t)j], 2 * (size_t)i);
        for (int j = 0; j < n; j++) {
            struct f16 k = kv_load(at[j] + 2 * (size_t)i, a->head_k - i);
            for (int h = 0; h < heads; h++)
                acc[h * n + j] = fma16(k, x[h], acc[h * n + j]);
        }
    }
    join_all(acc, heads * n, sum);
    for (int i = 0; i < TILE; i++)
        sum[i] = i < heads * n ? sum[i] * a->scale : 0;
    for (int h = 0; h < heads; h++)
        memcpy(w + h * PART, sum + h * n, (size_t)n * sizeof *sum);
}

INLINE void scores(const struct ntx_attn *a, struct part *t, const float *q, const struct rows *rows, uint32_t g,
                   const int heads)
{
    const uint32_t n = (uint32_t)rows_of_tile(heads);
    for (uint32_t r = 0; r < rows->n;) {
        bool whole = r + n <= rows->n;
        for (uint32_t j = 0; whole && t->gaps && j < n; j++)
            whole = rows->at[r + j];
        if (whole)
            score_tile(a, t, q, rows, g, heads, r, (int)n);
        else if (rows->at[r])
            score_tile(a, t, q, rows, g, heads, r, 1);
        r += whole ? n : 1;
    }
}

/* Heads of the tile from g on; tiles are about equally wide. */
INLINE uint32_t tile_heads(const struct ntx_attn *a, uint32_t g)
{
    uint32_t tiles = (a->n_q + HEADS - 1) / HEADS;
    return !g ? (a->n_q + tiles - 1) / tiles : a->n_q - g;
}

INLINE void all_scores(const struct ntx_attn *a, struct part *t, const float *q)
{
    const uint8_t *const *k = t->k[t->first / PART % 2];
    for (struct rows rows = {k, 0, 0}; rows.p < t->n; rows.p += rows.n) {
        rows.at = k + rows.p;
        rows.n = NTX_MIN((uint32_t)BATCH, t->n - rows.p);
        for (uint32_t g = 0; g < a->n_q; g += tile_heads(a, g))
            switch (tile_heads(a, g)) {
            case 1: scores(a, t, q, &rows, g, 1); break;
            case 2: scores(a, t, q, &rows, g, 2); break;
            case 3: scores(a, t, q, &rows, g, 3); break;
            default: scores(a, t, q, &rows, g, 4);
            }
    }
    for (uint32_t r = 0; r < t->n && t->gaps; r++)
        for (uint32_t g = 0; g < a->n_q && !k[r]; g++)
            t->w[g][r] = -INFINITY;
}

/* ---- weights */

/* The maximum and sum that head g begins with: those of its attention sink, if it has one. */
INLINE void begin_head(const struct ntx_attn *a, uint32_t g, float *max, struct f16 *sum)
{
    *max = a->sinks ? a->sinks[g] : -INFINITY;
    *sum = splat(0);
    sum->p[0][0] = a->sinks ? 1 : 0;
}

/* Caps scores (cap16); NaN is kept. */
INLINE void cap_scores(float *w, uint32_t n, float most)
{
    for (uint32_t p = 0; p < n; p += 16)
        store16(w + p, cap16(load16(w + p), most));
}

/* Turns n scores of a head into weights e^(score - max). *max and the 16 lanes of *sum continue from earlier parts.
 * Returns the factor for the sums of these. w is written up to a multiple of 16. */
INLINE float softmax_part(const struct ntx_attn *a, float *w, uint32_t n, float *max, struct f16 *sum)
{
    uint32_t end = round_up(n, 16);
    for (uint32_t p = n; p < end; p++)
        w[p] = -INFINITY;
    if (a->cap != 0)
        cap_scores(w, end, a->cap);
    struct f16 top = splat(*max);
    for (uint32_t p = 0; p < end; p += 16)
        top = max16(top, load16(w + p));
    float now = top16(top);
    if (now == -INFINITY) { /* only holes so far */
        memset(w, 0, end * sizeof *w);
        return 1;
    }
    struct f16 by = exp16(splat(*max - now));
    *sum = mul16(*sum, by);
    for (uint32_t p = 0; p < end; p += 16) {
        struct f16 e = exp16(sub16(load16(w + p), splat(now)));
        store16(w + p, e);
        *sum = add16(*sum, e);
    }
    *max = now;
    return by.p[0][0];
}

/* ---- values */

/* out[e .. e + 16 * vecs) of `heads` heads += weight * v over the rows, in order. part: values of a last vector, if
 * fewer than 16. */
INLINE void value_tile(const struct ntx_attn *a, const struct part *t, const struct rows *rows, uint32_t g,
                       const int heads, uint32_t e, const int vecs, uint32_t part)
{
    struct f16 acc[TILE];
    float *out = a->out + (size_t)g * a->head_v + e;
    for (int h = 0; h < heads; h++)
        for (int j = 0; j < vecs; j++) {
            const float *at = out + (size_t)h * a->head_v + 16 * j;
            acc[h * vecs + j] = part < 16 ? load_part(at, part) : load16(at);
        }
    const float *w = t->w[g] + rows->p;
    for (uint32_t r = 0; r < rows->n; r++, w++) {
        const uint8_t *at = rows->at[r];
        if (!at)
            continue;
        if (!g && rows->p + r < t->n_ahead)
            for (int j = 0; j < vecs && e + 16 * (uint32_t)j < t->ahead_values; j += 2)
                fetch_at(t->ahead[rows->p + r], 2 * (e + 16 * (size_t)j));
        struct f16 v[VECS];
        for (int j = 0; j < vecs; j++)
            v[j] = kv_load(at + 2 * (e + 16 * (size_t)j), part);
        for (int h = 0; h < heads; h++) {
            struct f16 by = splat(w[h * PART]);
            for (int j = 0; j < vecs; j++)
                acc[h * vecs + j] = fma16(by, v[j], acc[h * vecs + j]);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int j = 0; j < vecs; j++) {
            float *at = out + (size_t)h * a->head_v + 16 * j;
            if (part < 16)
                store_part(at, acc[h * vecs + j], part);
            else
                store16(at, acc[h * vecs + j]);
        }
}

/* Values [e, end) of each head. */
INLINE void values(const struct ntx_attn *a, const struct part *t, const struct rows *rows, uint32_t g, const int heads,
                   uint32_t e, uint32_t end)
{
    const int vecs = vecs_of_tile(heads);
    for (; e + 16 * (uint32_t)vecs <= end; e += 16 * (uint32_t)vecs)
        value_tile(a, t, rows, g, heads, e, vecs, 16);
    for (; e + 16 <= end; e += 16)
        value_tile(a, t, rows, g, heads, e, 1, 16);
    if (e < end)
        value_tile(a, t, rows, g, heads, e, 1, end - e);
}

INLINE void all_values(const struct ntx_attn *a, struct part *t, uint32_t e, uint32_t end)
{
    for (uint32_t g = 0; g < a->n_q; g++)
        for (uint32_t i = e; i < end; i++)
            a->out[(size_t)g * a->head_v + i] *= t->by[g];
    for (struct rows rows = {t->v, 0, 0}; rows.p < t->n; rows.p += rows.n) {
        rows.at = t->v + rows.p;
        rows.n = NTX_MIN((uint32_t)BATCH, t->n - rows.p);
        for (uint32_t g = 0; g < a->n_q; g += tile_heads(a, g))
            switch (tile_heads(a, g)) {
            case 1: values(a, t, &rows, g, 1, e, end); break;
            case 2: values(a, t, &rows, g, 2, e, end); break;
            case 3: values(a, t, &rows, g, 3, e, end); break;
            default: values(a, t, &rows, g, 4, e, end);
            }
    }
}

/* ---- attention of a row */

INLINE void fetch_ahead(struct part *t, const uint8_t *const *rows, uint32_t n, uint32_t values)
{
    t->ahead = rows;
    t->n_ahead = n;
    t->ahead_values = values;
}

/* q with rows of a multiple of 16 values; copied to pad if necessary. */
INLINE const float *whole_lanes(const struct ntx_attn *a, float *pad)
{
    uint32_t ld = round_up(a->head_k, 16);
    if (ld == a->head_k)
        return a->q;
    memset(pad, 0, (size_t)a->n_q * ld * sizeof *pad);
    for (uint32_t g = 0; g < a->n_q; g++)
        memcpy(pad + (size_t)g * ld, a->q + (size_t)g * a->head_k, a->head_k * sizeof *pad);
    return pad;
}

INLINE void attend_row(const struct ntx_attn *a)
{
    struct part t;
    float max[NTX_ATTN_HEADS], pad[NTX_ATTN_HEADS * NTX_MAX_HEAD];
    const float *q = whole_lanes(a, pad);
    struct f16 sum[NTX_ATTN_HEADS];
    memset(a->out, 0, (size_t)a->n_q * a->head_v * sizeof *a->out);
    for (uint32_t g = 0; g < a->n_q; g++)
        begin_head(a, g, &max[g], &sum[g]);
    t.first = first_part(a);
    t.n_next = NTX_MIN((uint32_t)PART, a->n_pos - t.first);
    find_rows(a, a->k, 2 * (size_t)a->head_k, t.first, t.n_next, t.k[t.first / PART % 2]);
    for (; t.first < a->n_pos; t.first += PART) {
        t.gaps = has_gaps(a, t.first);
        t.n = t.n_next;
        t.n_next = NTX_MIN((uint32_t)PART, a->n_pos - t.first - t.n);
        find_rows(a, a->k, 2 * (size_t)a->head_k, t.first + t.n, t.n_next, t.k[t.first / PART % 2 ^ 1]);
        find_rows(a, a->v, v_row_bytes(a), t.first, t.n, t.v);
        fetch_ahead(&t, t.v, t.n, a->head_v);
        all_scores(a, &t, q);
        for (uint32_t g = 0; g < a->n_q; g++)
            t.by[g] = softmax_part(a, t.w[g], t.n, &max[g], &sum[g]);
        fetch_ahead(&t, t.k[t.first / PART % 2 ^ 1], t.n_next, a->head_k);
        all_values(a, &t, 0, a->head_v);
    }
    for (uint32_t g = 0; g < a->n_q && max[g] != -INFINITY; g++) {
        float by = 1.0f / join16(sum[g]);
        for (uint32_t i = 0; i < a->head_v; i++)
            a->out[(size_t)g * a->head_v + i] *= by;
    }
}

static void f16_store_row(const float *x, void *block, uint32_t at, uint32_t n)
{
    f16_store(x, (uint16_t *)block + (size_t)at * n, n);
}

#endif
