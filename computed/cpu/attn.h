/* attn.h: attention of the query heads that share a KV head, over one row's context. Included by ops.h, compiled per instruction set.
 *
 * Online softmax over parts of PART positions, counted from 0: per part the scores of all heads, then the new maximum m, the sums of
 * weights and of weighted values scaled to it, and the part's own added. So K and V are read once, and nothing grows with the
 * context. Parts, lanes and the order of positions are fixed, hence so are the bits: however heads are grouped into tiles, which
 * only saves unpacking K and V and joining lanes one by one. */
#ifndef NTX_COMPUTED_CPU_ATTN_H
#define NTX_COMPUTED_CPU_ATTN_H

#include "computed/cpu/lanes.h"

enum {
    PART = 256,                      /* positions: as many as NTX_GPU_SPLIT, so that up to there a GPU gives the same bits */
    TILE = WIDTH == 16 ? 8 : 4,      /* scores at once: accumulators that registers hold */
    VALUE_HEADS = WIDTH == 16 ? 4 : 2, /* heads x groups of 16 values at once */
    VALUE_GROUPS = WIDTH == 16 ? 4 : 2,
    Q8_BYTES = 34,                   /* f16 scale, 32 int8 */
    AHEAD_ROWS = 16,                 /* positions whose K is fetched ahead of use; V is fetched while its part is scored. Blocks lie apart, and are too
                                        short for the processor to see a stream: from memory this doubles the rate (bench/LOG.md) */
};

#define STEP(type) ((type) == NTX_KV_F16 ? 16u : 32u) /* values after which the next are stored like the first */

struct part { /* one part of the context, for all heads of the call */
    float w[NTX_ATTN_HEADS][PART]; /* scores, then weights; minus infinity and 0 for holes and behind the end */
    float by[NTX_ATTN_HEADS];      /* what the sums so far are multiplied by */
    uint32_t first, n;
};

/* ---- K and V as they are stored */

INLINE struct f16 bytes16(const int8_t *q)
{
#if defined(__AVX512F__)
    return (struct f16){{(fpart)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)q)))}};
#elif defined(__AVX2__)
    struct f16 v;
    EACH_PART v.p[i] = (fpart)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(q + 8 * i))));
    return v;
#else
    float f[16];
    for (int i = 0; i < 16; i++)
        f[i] = (float)q[i];
    return load16(f);
#endif
}

INLINE float scale_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
#if defined(__F16C__)
    return _cvtsh_ss(h);
#else
    return f16_to_f32(h);
#endif
}

INLINE size_t kv_row(const int type, uint32_t n) { return type == NTX_KV_F16 ? 2 * (size_t)n : (size_t)n / 32 * Q8_BYTES; }

/* Values i .. i + 15 of a row; of F16 only `n` of them where n < 16. */
INLINE struct f16 kv_load(const int type, const uint8_t *row, uint32_t i, uint32_t n)
{
    if (type == NTX_KV_F16 && n < 16)
        return load_part_f16((const uint16_t *)(const void *)row + i, n);
    if (type == NTX_KV_F16)
        return load16_f16((const uint16_t *)(const void *)row + i);
    const uint8_t *b = row + i / 32 * Q8_BYTES;
    return mul16(bytes16((const int8_t *)b + 2 + i % 32), splat(scale_at(b)));
}

static void q8_store(const float *x, void *dst, uint32_t n)
{
    uint8_t *b = dst;
    for (uint32_t i = 0; i < n; i += 32, b += Q8_BYTES) {
        int32_t sums[2];
        uint16_t d = f32_to_f16(pack_block(x + i, 2, (int8_t *)b + 2, sums));
        memcpy(b, &d, sizeof d);
    }
}

INLINE const uint8_t *row_at(const struct ntx_attn *a, const void *const *blocks, uint32_t p, size_t row_bytes)
{
    return (const uint8_t *)blocks[p / a->block_tokens] + p % a->block_tokens * row_bytes;
}

INLINE bool is_hole(const struct ntx_attn *a, uint32_t p)
{
    return a->hole && a->hole[p / 8] >> (p % 8) & 1;
}

/* ---- scores */

/* The sums of n vectors (a power of two up to TILE), each by the fixed tree. */
INLINE void join_all(const struct f16 *v, const int n, float *out)
{
#if defined(__AVX512F__)
    if (n == 8) { /* each level halves the lanes of a vector, so two share one from then on */
        const ipart lo8 = {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23}, lo4 = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
        const ipart lo2 = {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29}, even = {0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14};
        fpart a[4], b[2], c;
        for (int i = 0; i < 4; i++)
            a[i] = __builtin_shuffle(v[2 * i].p[0], v[2 * i + 1].p[0], lo8) + __builtin_shuffle(v[2 * i].p[0], v[2 * i + 1].p[0], lo8 + 8);
        for (int i = 0; i < 2; i++)
            b[i] = __builtin_shuffle(a[2 * i], a[2 * i + 1], lo4) + __builtin_shuffle(a[2 * i], a[2 * i + 1], lo4 + 4);
        c = __builtin_shuffle(b[0], b[1], lo2) + __builtin_shuffle(b[0], b[1], lo2 + 2);
        c = __builtin_shuffle(c, even) + __builtin_shuffle(c, even + 1);
        memcpy(out, &c, 8 * sizeof *out);
        return;
    }
#endif
    for (int i = 0; i < n; i++)
        out[i] = join16(v[i]);
}

/* q.k of `heads` heads from g on with `rows` positions from p on: 16 lanes over the head's elements, then the fixed tree. */
INLINE void score_tile(const struct ntx_attn *a, struct part *t, const int type, uint32_t g, const int heads, uint32_t p, const int rows)
{
    struct f16 acc[TILE];
    const uint8_t *k[TILE];
    float sum[TILE];
    const float *q = a->q + (size_t)g * a->head_k;
    const int n_acc = heads * rows > 4 ? TILE : heads * rows; /* all of them are quicker to join than most */
    for (int i = 0; i < n_acc; i++)
        acc[i] = splat(0);
    for (int r = 0; r < rows; r++)
        k[r] = row_at(a, a->k, p + (uint32_t)r, kv_row(type, a->head_k));
    for (uint32_t i = 0; i < a->head_k; i += STEP(type))
        for (uint32_t j = 0; j < STEP(type); j += 16) {
            uint32_t n = a->head_k - i - j;
            for (int r = 0; r < rows; r++) {
                struct f16 kv = kv_load(type, k[r] + kv_row(type, i), j, n);
                for (int h = 0; h < heads; h++) {
                    const float *at = q + (size_t)h * a->head_k + i + j;
                    acc[h * rows + r] = fma16(kv, n < 16 ? load_part(at, n) : load16(at), acc[h * rows + r]);
                }
            }
        }
    join_all(acc, n_acc, sum);
    for (int h = 0; h < heads; h++)
        for (int r = 0; r < rows; r++)
            t->w[g + (uint32_t)h][p - t->first + (uint32_t)r] = sum[h * rows + r] * a->scale;
}

INLINE void fetch_row(const uint8_t *row, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(row + at);
}

INLINE void fetch(const struct ntx_attn *a, const int type, uint32_t p, const int rows)
{
    size_t k = kv_row(type, a->head_k), v = kv_row(type, a->head_v);
    for (uint32_t r = p; r < p + (uint32_t)rows; r++) {
        fetch_row(row_at(a, a->v, r, v), v);
        if (r + AHEAD_ROWS < a->n_pos)
            fetch_row(row_at(a, a->k, r + AHEAD_ROWS, k), k);
    }
}

/* All positions of the part for a few heads, in tiles where no hole is near. */
INLINE void scores(const struct ntx_attn *a, struct part *t, const int type, uint32_t g, const int heads)
{
    const int rows = TILE / heads;
    uint32_t p = t->first, end = t->first + t->n;
    while (p < end) {
        if (!a->hole && p + (uint32_t)rows <= end) {
            if (!g)
                fetch(a, type, p, rows);
            score_tile(a, t, type, g, heads, p, rows);
            p += (uint32_t)rows;
            continue;
        }
        if (!is_hole(a, p))
            score_tile(a, t, type, g, heads, p, 1);
        for (int h = 0; h < heads && is_hole(a, p); h++)
            t->w[g + (uint32_t)h][p - t->first] = -INFINITY;
        p++;
    }
}

INLINE void all_scores(const struct ntx_attn *a, struct part *t, const int type)
{
    for (uint32_t g = 0; g < a->n_q;) {
        uint32_t left = a->n_q - g;
        if (TILE >= 8 && left >= 8)
            scores(a, t, type, g, TILE >= 8 ? 8 : 4), g += 8;
        else if (left >= 4)
            scores(a, t, type, g, 4), g += 4;
        else if (left == 3)
            scores(a, t, type, g, 3), g += 3;
        else if (left >= 2)
            scores(a, t, type, g, 2), g += 2;
        else
            scores(a, t, type, g, 1), g += 1;
    }
}

/* ---- weights */

/* Turns the scores of a head into weights e^(score - max); the maximum and the 16 lanes of their sum go on from the parts before. */
INLINE void weigh(struct part *t, uint32_t g, float *max, struct f16 *sum)
{
    float *w = t->w[g];
    uint32_t end = round_up(t->n, 16);
    for (uint32_t p = t->n; p < end; p++)
        w[p] = -INFINITY;
    struct f16 top = splat(*max);
    for (uint32_t p = 0; p < end; p += 16)
        top = max16(top, load16(w + p));
    float now = top16(top);
    if (now == -INFINITY) { /* nothing but holes up to here */
        t->by[g] = 1;
        memset(w, 0, end * sizeof *w);
        return;
    }
    struct f16 by = exp16(splat(*max - now));
    *sum = mul16(*sum, by);
    for (uint32_t p = 0; p < end; p += 16) {
        struct f16 e = exp16(sub16(load16(w + p), splat(now)));
        store16(w + p, e);
        *sum = add16(*sum, e);
    }
    *max = now;
    t->by[g] = by.p[0][0];
}

/* ---- values */

/* out[e .. e + 16 * groups) of `heads` heads = out * by + sum over p of weight * v, in order of p. part: of a last group only so many. */
INLINE void value_tile(const struct ntx_attn *a, const struct part *t, const int type, uint32_t g, const int heads, uint32_t e, const int groups,
                       uint32_t part)
{
    struct f16 acc[VALUE_HEADS * VALUE_GROUPS];
    float *out = a->out + (size_t)g * a->head_v + e;
    for (int h = 0; h < heads; h++)
        for (int j = 0; j < groups; j++) {
            const float *at = out + (size_t)h * a->head_v + 16 * j;
            acc[h * groups + j] = mul16(part < 16 ? load_part(at, part) : load16(at), splat(t->by[g + (uint32_t)h]));
        }
    const uint32_t inside = groups > 1 ? 0 : e % STEP(type); /* several groups begin where a block does */
    for (uint32_t p = 0; p < t->n; p++) {
        if (is_hole(a, t->first + p))
            continue;
        const uint8_t *v = row_at(a, a->v, t->first + p, kv_row(type, a->head_v)) + kv_row(type, e / STEP(type) * STEP(type));
        for (int j = 0; j < groups; j++) {
            struct f16 kv = kv_load(type, v, inside + 16 * (uint32_t)j, part);
            for (int h = 0; h < heads; h++)
                acc[h * groups + j] = fma16(splat(t->w[g + (uint32_t)h][p]), kv, acc[h * groups + j]);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int j = 0; j < groups; j++) {
            float *at = out + (size_t)h * a->head_v + 16 * j;
            if (part < 16)
                store_part(at, acc[h * groups + j], part);
            else
                store16(at, acc[h * groups + j]);
        }
}

INLINE void values(const struct ntx_attn *a, const struct part *t, const int type, uint32_t g, const int heads)
{
    uint32_t e = 0;
    for (; e + 16 * VALUE_GROUPS <= a->head_v; e += 16 * VALUE_GROUPS)
        value_tile(a, t, type, g, heads, e, VALUE_GROUPS, 16);
    for (; e + 16 <= a->head_v; e += 16)
        value_tile(a, t, type, g, heads, e, 1, 16);
    if (e < a->head_v)
        value_tile(a, t, type, g, heads, e, 1, a->head_v - e);
}

INLINE void all_values(const struct ntx_attn *a, const struct part *t, const int type)
{
    for (uint32_t g = 0; g < a->n_q;) {
        uint32_t left = a->n_q - g;
        if (VALUE_HEADS >= 4 && left >= 4)
            values(a, t, type, g, VALUE_HEADS >= 4 ? 4 : 2), g += 4;
        else if (VALUE_HEADS >= 4 && left == 3)
            values(a, t, type, g, VALUE_HEADS >= 4 ? 3 : 2), g += 3;
        else if (left >= 2)
            values(a, t, type, g, 2), g += 2;
        else
            values(a, t, type, g, 1), g += 1;
    }
}

/* ---- the whole */

INLINE void attend_type(const struct ntx_attn *a, const int type)
{
    struct part t;
    float max[NTX_ATTN_HEADS];
    struct f16 sum[NTX_ATTN_HEADS];
    memset(a->out, 0, (size_t)a->n_q * a->head_v * sizeof *a->out);
    for (uint32_t g = 0; g < a->n_q; g++) {
        max[g] = -INFINITY;
        sum[g] = splat(0);
    }
    for (t.first = 0; t.first < a->n_pos; t.first += PART) {
        t.n = a->n_pos - t.first < PART ? a->n_pos - t.first : PART;
        all_scores(a, &t, type);
        for (uint32_t g = 0; g < a->n_q; g++)
            weigh(&t, g, &max[g], &sum[g]);
        all_values(a, &t, type);
    }
    for (uint32_t g = 0; g < a->n_q && max[g] != -INFINITY; g++) {
        float by = 1.0f / join16(sum[g]);
        for (uint32_t i = 0; i < a->head_v; i++)
            a->out[(size_t)g * a->head_v + i] *= by;
    }
}

static void attend_f16(const struct ntx_attn *a) { attend_type(a, NTX_KV_F16); }
static void attend_q8_0(const struct ntx_attn *a) { attend_type(a, NTX_KV_Q8_0); }

static void f16_row(const float *x, void *dst, uint32_t n) { f16_store(x, dst, n); }

#endif
