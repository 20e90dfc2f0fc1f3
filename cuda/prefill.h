/* SPDX-License-Identifier: Apache-2.0 */
/* prefill.h: attention of prompt rows over paged KV, on the matrix units (Dao et al., "FlashAttention", arXiv
 * 2205.14135).
 *
 * A block takes a tile: the query heads that share a KV head, of some adjacent rows of one session, at most
 * NTX_GPU_TILE queries. It goes over the positions a KV block at a time: keys and values are loaded once for all
 * queries, as F16; a warp multiplies its 16 queries with the 32 keys, updates each query's maximum and sum (online
 * softmax), and adds the weighted values. Positions that a query may not see, and holes, have weight 0 exactly, and
 * blocks of positions begin at 0; so a row's value does not depend on the rows that share its tile. It differs from
 * attend.h by F16 rounding. */
#ifndef NTX_CUDA_PREFILL_H
#define NTX_CUDA_PREFILL_H

#include "cuda/rotate.h"

#define TILE_THREADS 128u
#define KEYS         32u                      /* positions of a KV block */
#define KEY_LD       (NTX_GPU_TILE_HEAD + 8u) /* values per row; 8 more, so that a warp's words use all 32 banks */
#define VALUE_LD     (KEYS + 8u)

struct tile_memory { /* read in words */
    uint16_t q[NTX_GPU_TILE * KEY_LD] __attribute__((aligned(16))), k[KEYS * KEY_LD],
        v[NTX_GPU_TILE_HEAD * VALUE_LD]; /* v: [value][position] */
};

struct tile_state { /* of a thread: queries lane / 4 and lane / 4 + 8 of its warp */
    float out[NTX_GPU_TILE_HEAD / 8][4], top[2], sum[2];
    uint32_t pos[2];
};

DEV uint32_t word_at(const uint16_t *p) { return *(const uint32_t *)(const void *)p; }

DEV uint32_t pair(float low, float high) { return (uint32_t)f16_bits(low) | (uint32_t)f16_bits(high) << 16; }

DEV uint16_t kv_half(const struct ntx_gpu_kv *kv, const uint8_t *row, uint32_t e)
{
    return kv->q8 ? f16_bits(kv_value(kv, row, e)) : *(const uint16_t *)(const void *)(row + 2 * e);
}

DEV uint32_t up8(uint32_t n) { return (n + 7) / 8 * 8; }

/* Loads the tile's queries: query m is row m / per_kv and head m % per_kv. Queries after the last are zero. */
DEV void load_queries(const struct ntx_gpu_prefill *p, uint32_t first, uint32_t rows, uint32_t kv_head, uint16_t *q)
{
    const struct ntx_gpu_kv *kv = &p->kv;
    uint32_t per_kv = kv->n_head / kv->n_head_kv;
    for (uint32_t m = TID / WARP; m < NTX_GPU_TILE; m += TILE_THREADS / WARP) {
        const float *x = p->q + (first + m / per_kv) * p->ld_q + (kv_head * per_kv + m % per_kv) * kv->head_k;
        for (uint32_t e = TID % WARP; e < up8(kv->head_k); e += WARP)
            q[m * KEY_LD + e] = f16_bits(query_value(kv, m < rows * per_kv && e < kv->head_k ? x[e] : 0) * p->scale);
    }
}

/* Loads positions [from, from + KEYS). Those from `end` on, and holes, are zero. */
DEV void load_keys(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t kv_head, uint32_t from, uint32_t end,
                   struct tile_memory *m)
{
    const uint8_t *k = k_at(kv, row, kv_head, from), *v = v_at(kv, row, kv_head, from);
    uint64_t kb = kv_row_bytes(kv, kv->head_k), vb = kv_row_bytes(kv, kv->head_v);
    for (uint32_t t = TID / WARP; t < KEYS; t += TILE_THREADS / WARP) {
        int there = from + t < end && !is_hole(kv, row, from + t);
        for (uint32_t e = TID % WARP; e < up8(kv->head_k); e += WARP)
            m->k[t * KEY_LD + e] = there && e < kv->head_k ? kv_half(kv, k + t * kb, e) : 0;
        for (uint32_t e = TID % WARP; e < up8(kv->head_v); e += WARP)
            m->v[e * VALUE_LD + t] = there && e < kv->head_v ? kv_half(kv, v + t * vb, e) : 0;
    }
}

/* s[j]: scores of positions 8 j + 2 t, + 1 for the thread's two queries. */
DEV void score_keys(const struct tile_memory *m, uint32_t width, float s[KEYS / 8][4])
{
    uint32_t g = TID % WARP / 4, t = TID % 4;
    const uint16_t *q = m->q + (TID / WARP * 16 + g) * KEY_LD + 2 * t, *k = m->k + g * KEY_LD + 2 * t;
    UNROLL
    for (uint32_t j = 0; j < KEYS / 8; j++)
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
    for (uint32_t e = 0; e < width; e += 8) {
        uint32_t a[2] = {word_at(q + e), word_at(q + 8 * KEY_LD + e)};
        UNROLL
        for (uint32_t j = 0; j < KEYS / 8; j++)
            matrix_units(s[j], a, word_at(k + 8 * j * KEY_LD + e));
    }
}

/* Turns scores into weights for query h (0, 1) of the thread, and scales the output so far to the new maximum. */
DEV void weigh_keys(const struct ntx_gpu_prefill *a, uint32_t row, uint32_t from, float s[KEYS / 8][4],
                    struct tile_state *o, const uint32_t h)
{
    uint32_t t = TID % 4;
    float top = o->top[h];
    UNROLL
    for (uint32_t i = 0; i < KEYS / 4; i++) {
        float *x = &s[i / 2][2 * h + i % 2];
        uint32_t p = from + i / 2 * 8 + 2 * t + i % 2;
        if (p > o->pos[h] || p < seen_from(a->window, o->pos[h]) || is_hole(&a->kv, row, p))
            *x = -INFINITY;
        top = *x > top ? *x : top;
    }
    UNROLL
    for (uint32_t m = 1; m < 4; m *= 2) {
        float other = xor_f(top, m);
        top = other > top ? other : top;
    }
    float by = top > -INFINITY ? exp_exact(o->top[h] - top) : 1, sum = 0;
    UNROLL
    for (uint32_t i = 0; i < KEYS / 4; i++) {
        float *x = &s[i / 2][2 * h + i % 2];
        const float none = *x == *x ? 0 : *x;
        *x = *x > -INFINITY ? exp_exact(*x - top) : none;
        sum += *x;
    }
    o->top[h] = top;
    o->sum[h] = o->sum[h] * by + sum;
    UNROLL
    for (uint32_t n = 0; n < NTX_GPU_TILE_HEAD / 8; n++) {
        o->out[n][2 * h] *= by;
        o->out[n][2 * h + 1] *= by;
    }
}

DEV void add_values(const struct tile_memory *m, uint32_t width, float s[KEYS / 8][4], struct tile_state *o)
{
    const uint16_t *v = m->v + TID % WARP / 4 * VALUE_LD + 2 * (TID % 4);
    UNROLL
    for (uint32_t j = 0; j < KEYS / 8; j++) {
        uint32_t a[2] = {pair(s[j][0], s[j][1]), pair(s[j][2], s[j][3])};
        UNROLL
        for (uint32_t n = 0; n < NTX_GPU_TILE_HEAD / 8; n++)
            if (8 * n < width)
                matrix_units(o->out[n], a, word_at(v + 8 * n * VALUE_LD + 8 * j));
    }
}

DEV void store_query(const struct ntx_gpu_prefill *p, uint32_t first, uint32_t rows, uint32_t kv_head,
                     const struct tile_state *o, const uint32_t h)
{
    const struct ntx_gpu_kv *kv = &p->kv;
    uint32_t per_kv = kv->n_head / kv->n_head_kv, m = TID / WARP * 16 + TID % WARP / 4 + 8 * h;
    float sum = o->sum[h] + xor_f(o->sum[h], 1);
    sum += xor_f(sum, 2);
    if (m >= rows * per_kv)
        return;
    float *out = p->out + (first + m / per_kv) * p->ld_out + (kv_head * per_kv + m % per_kv) * kv->head_v;
    UNROLL
    for (uint32_t n = 0; n < NTX_GPU_TILE_HEAD / 8; n++)
        UNROLL
    for (uint32_t i = 0; i < 2; i++)
        if (8 * n + 2 * (TID % 4) + i < kv->head_v)
            out[8 * n + 2 * (TID % 4) + i] = o->out[n][2 * h + i] / sum;
}

KERNEL(prefill_tile, struct ntx_gpu_prefill)
{
    SHARED struct tile_memory m;
    const struct ntx_gpu_kv *kv = &a.kv;
    struct tile_state o;
    float s[KEYS / 8][4];
    uint32_t kv_head = BX, first = a.tiles[2 * BY], rows = a.tiles[2 * BY + 1], per_kv = kv->n_head / kv->n_head_kv;
    uint32_t row = row_of_pass(kv, first), end = kv->pos[row_of_pass(kv, first + rows - 1)] + 1;
    UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t query = TID / WARP * 16 + TID % WARP / 4 + 8 * h, r = query / per_kv; /* after the last: position 0 */
        o.pos[h] = r < rows ? kv->pos[row_of_pass(kv, first + r)] : 0;
        o.top[h] = a.sinks ? a.sinks[kv_head * per_kv + query % per_kv] : -INFINITY;
        o.sum[h] = a.sinks && TID % 4 == 0 ? 1 : 0; /* four threads share a query's sum */
    }
    UNROLL
    for (uint32_t n = 0; n < NTX_GPU_TILE_HEAD / 8; n++)
        o.out[n][0] = o.out[n][1] = o.out[n][2] = o.out[n][3] = 0;
    load_queries(&a, first, rows, kv_head, m.q);
    for (uint32_t from = seen_from(a.window, kv->pos[row]) / KEYS * KEYS; from < end; from += KEYS) {
        SYNC();
        load_keys(kv, row, kv_head, from, end, &m);
        SYNC();
        score_keys(&m, up8(kv->head_k), s);
        weigh_keys(&a, row, from, s, &o, 0);
        weigh_keys(&a, row, from, s, &o, 1);
        add_values(&m, kv->head_v, s, &o);
    }
    store_query(&a, first, rows, kv_head, &o, 0);
    store_query(&a, first, rows, kv_head, &o, 1);
}

int ntx__launch_prefill(struct ntx_gpu_stream *s, const struct ntx_gpu_prefill *p)
{
    const struct ntx_gpu_kv *kv = &p->kv;
    if (kv->head_k > NTX_GPU_TILE_HEAD || kv->head_v > NTX_GPU_TILE_HEAD || kv->n_head / kv->n_head_kv > NTX_GPU_TILE ||
        kv->block_tokens != KEYS)
        return -EINVAL;
    RETURN_LAUNCH(s, prefill_tile, kv->n_head_kv, p->n_tiles, 1, TILE_THREADS, *p);
}

#endif
