/* attn.h: attention of the query heads that share a KV head, over one row's context. Included by ops.h, compiled per instruction set.
 *
 * Online softmax over parts of PART positions, counted from 0: per part the scores of all heads, then the new maximum m, the sums of
 * weights and of weighted values scaled to it, and the part's own added. So K and V are read once, and nothing grows with the
 * context. What is dear to unpack, or has more heads than a tile, is unpacked to floats a few rows at a time. Parts, lanes and the order
 * of positions are fixed, hence so are the bits: however heads and rows are grouped into tiles, which only saves loads and joins. */
#ifndef NTX_COMPUTED_CPU_ATTN_H
#define NTX_COMPUTED_CPU_ATTN_H

#include "common/util.h"
#include "computed/cpu/lanes.h"

enum {
    PART = 256,                   /* positions: as many as NTX_GPU_SPLIT, so that up to there a GPU gives the same bits */
    TILE = WIDTH == 16 ? 16 : 4,  /* scores, or groups of 16 values, at once: accumulators that registers hold */
    HEADS = WIDTH == 16 ? 4 : 2,  /* of a tile, at most */
    GROUPS = TILE / HEADS,        /* of 16 values, of a tile of values */
    BATCH = 16,                   /* rows unpacked at a time, fewer where heads are wide */
    AHEAD = 16,                   /* rows of K are fetched so far ahead of use; V is fetched while its part is scored: blocks lie apart, and are
                                     too short for the processor to see a stream, so from memory this doubles the rate (bench/LOG.md) */
    FLOATS = NTX_N_KV,            /* the type of unpacked rows */
    BATCH_VALUES = 4096,
    Q8_BYTES = 34,                /* f16 scale, 32 int8 */
};
_Static_assert(BATCH_VALUES >= NTX_MAX_HEAD, "a row fits");

struct part { /* one part of the context, for all heads of the call */
    float w[NTX_ATTN_HEADS][PART]; /* scores, then weights; minus infinity and 0 for holes and behind the end */
    float by[NTX_ATTN_HEADS];      /* what the sums so far are multiplied by */
    const uint8_t *k[PART + AHEAD], *v[PART]; /* rows, NULL for holes; of K also the next part's first, for fetching */
    float floats[BATCH_VALUES];    /* unpacked rows, each filled up with 0 to a multiple of 16 */
    uint32_t first, n;
};

struct rows { /* n of them, from place p of the part on; ld: values from one unpacked row to the next */
    const uint8_t *const *at;
    uint32_t p, n, ld;
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

#if defined(__AVX2__)
INLINE struct f16 splat_lane(__m128 v, const int lane)
{
    struct f16 s;
#if defined(__AVX512F__)
    s.p[0] = (fpart)_mm512_permutexvar_ps(_mm512_set1_epi32(lane), _mm512_castps128_ps512(v));
#else
    EACH_PART s.p[i] = (fpart)_mm256_permutevar8x32_ps(_mm256_castps128_ps256(v), _mm256_set1_epi32(lane));
#endif
    return s;
}
#endif

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

/* Values i .. i + 15 of row r, of which there are n (F16: else 0). */
INLINE struct f16 kv_load(const int type, const struct part *t, const struct rows *rows, uint32_t r, uint32_t i, uint32_t n)
{
    if (type == FLOATS)
        return load16(t->floats + (size_t)r * rows->ld + i);
    const uint16_t *h = (const uint16_t *)(const void *)rows->at[r] + i;
    return n < 16 ? load_part_f16(h, n) : load16_f16(h);
}

/* A row of n values, filled up with 0 to a multiple of 16. */
INLINE void unpack(const int type, const uint8_t *row, uint32_t n, float *out)
{
    const uint16_t *h = (const void *)row;
    uint32_t i = 0;
    if (type == NTX_KV_F16) {
        for (; i + 16 <= n; i += 16)
            store16(out + i, load16_f16(h + i));
        if (i < n)
            store16(out + i, load_part_f16(h + i, n - i));
        return;
    }
#if defined(__AVX2__)
    for (; i + 128 <= n; i += 128, row += 4 * Q8_BYTES) { /* four scales are widened at once */
        uint16_t d[4];
        for (int j = 0; j < 4; j++)
            memcpy(&d[j], row + j * Q8_BYTES, sizeof *d);
        const __m128 four = _mm_cvtph_ps(_mm_cvtsi64_si128((long long)(d[0] | (uint64_t)d[1] << 16 | (uint64_t)d[2] << 32 | (uint64_t)d[3] << 48)));
        for (int j = 0; j < 8; j++)
            store16(out + i + 16 * j, mul16(bytes16((const int8_t *)row + j / 2 * Q8_BYTES + 2 + j % 2 * 16), splat_lane(four, j / 2)));
    }
#endif
    for (; i < n; i += 32, row += Q8_BYTES)
        for (int j = 0; j < 32; j += 16)
            store16(out + i + j, mul16(bytes16((const int8_t *)row + 2 + j), splat(scale_at(row))));
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

/* Where the rows first .. first + n of K or V are. */
INLINE void find_rows(const struct ntx_attn *a, const void *const *blocks, size_t row_bytes, uint32_t first, uint32_t n, const uint8_t **rows)
{
    for (uint32_t i = 0; i < n;) {
        uint32_t p = first + i, in = p % a->block_tokens, end = NTX_MIN(n, i + a->block_tokens - in);
        const uint8_t *at = blocks[p / a->block_tokens];
        for (; i < end; i++, in++)
            rows[i] = a->hole && a->hole[(first + i) / 8] >> ((first + i) % 8) & 1 ? NULL : at + in * row_bytes;
    }
}

INLINE void fetch_row(const uint8_t *row, size_t bytes)
{
    for (size_t at = 0; row && at < bytes; at += 64)
        __builtin_prefetch(row + at);
}

/* ---- scores */

/* The sums of n vectors, each by the fixed tree; v and out have room for a power of two of them. */
INLINE void join_all(struct f16 *v, int n, float *out)
{
#if defined(__AVX512F__)
    if (n > 4) { /* each level halves the lanes of a vector, so two share one from then on */
        const ipart lo8 = {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23}, lo4 = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
        const ipart lo2 = {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29}, lo1 = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
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

/* q.k of `heads` heads from g on with n rows from row r on: 16 lanes over the head's elements, then the fixed tree. */
INLINE void score_tile(const struct ntx_attn *a, struct part *t, const int type, const float *q, const struct rows *rows, uint32_t g, const int heads, uint32_t r,
                       const int n)
{
    struct f16 acc[TILE];
    float sum[TILE];
    const uint32_t ld = round_up(a->head_k, 16);
    for (int i = 0; i < TILE; i++)
        acc[i] = splat(0);
    for (uint32_t i = 0; i < a->head_k; i += 16) {
        struct f16 x[HEADS];
        for (int h = 0; h < heads; h++)
            x[h] = load16(q + ((size_t)g + (uint32_t)h) * ld + i);
        for (int j = 0; j < n; j++) {
            struct f16 k = kv_load(type, t, rows, r + (uint32_t)j, i, a->head_k - i);
            for (int h = 0; h < heads; h++)
                acc[h * n + j] = fma16(k, x[h], acc[h * n + j]);
        }
    }
    join_all(acc, heads * n, sum);
    for (int h = 0; h < heads; h++)
        for (int j = 0; j < n; j++)
            t->w[g + (uint32_t)h][rows->p + r + (uint32_t)j] = sum[h * n + j] * a->scale;
}

INLINE void fetch(const struct ntx_attn *a, const struct part *t, const int type, uint32_t p, uint32_t n)
{
    for (uint32_t r = p; r < p + n; r++) {
        fetch_row(t->v[r], kv_row(type, a->head_v));
        fetch_row(t->k[r + AHEAD], kv_row(type, a->head_k));
    }
}

INLINE void scores(const struct ntx_attn *a, struct part *t, const int type, const float *q, const struct rows *rows, uint32_t g, const int heads)
{
    const uint32_t n = heads == 3 ? TILE / 4 : TILE / (uint32_t)heads;
    for (uint32_t r = 0; r < rows->n;) {
        bool whole = r + n <= rows->n;
        for (uint32_t j = 0; whole && type != FLOATS && a->hole && j < n; j++)
            whole = rows->at[r + j];
        if (type != FLOATS && !g)
            fetch(a, t, type, rows->p + r, whole ? n : 1);
        if (whole)
            score_tile(a, t, type, q, rows, g, heads, r, (int)n);
        else if (rows->at[r])
            score_tile(a, t, type, q, rows, g, heads, r, 1);
        r += whole ? n : 1;
    }
}

INLINE void scores_of_all(const struct ntx_attn *a, struct part *t, const int type, const float *q, const struct rows *rows)
{
    for (uint32_t g = 0; g < a->n_q; g += HEADS)
        switch (NTX_MIN(a->n_q - g, (uint32_t)HEADS)) {
        case 1: scores(a, t, type, q, rows, g, 1); break;
        case 2: scores(a, t, type, q, rows, g, 2); break;
        case 3: scores(a, t, type, q, rows, g, HEADS > 3 ? 3 : 1); break;
        default: scores(a, t, type, q, rows, g, HEADS);
        }
}

/* Whether rows are unpacked before the heads use them. */
INLINE bool by_floats(const struct ntx_attn *a, const int type) { return type != NTX_KV_F16 || a->n_q > HEADS; }

INLINE void all_scores(const struct ntx_attn *a, struct part *t, const int type, const float *q)
{
    struct rows rows = {t->k, 0, t->n, round_up(a->head_k, 16)};
    if (!by_floats(a, type))
        scores_of_all(a, t, NTX_KV_F16, q, &rows);
    for (uint32_t batch = NTX_MIN(BATCH, BATCH_VALUES / rows.ld); by_floats(a, type) && rows.p < t->n; rows.p += rows.n) {
        rows.at = t->k + rows.p;
        rows.n = NTX_MIN(batch, t->n - rows.p);
        fetch(a, t, type, rows.p, rows.n);
        for (uint32_t r = 0; r < rows.n; r++)
            if (rows.at[r])
                unpack(type, rows.at[r], a->head_k, t->floats + (size_t)r * rows.ld);
            else
                memset(t->floats + (size_t)r * rows.ld, 0, rows.ld * sizeof(float));
        scores_of_all(a, t, FLOATS, q, &rows);
    }
    for (uint32_t r = 0; r < t->n && a->hole; r++)
        for (uint32_t g = 0; g < a->n_q && !t->k[r]; g++)
            t->w[g][r] = -INFINITY;
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

/* out[e .. e + 16 * groups) of `heads` heads += weight * v over the rows, in their order. part: of a last group only so many. */
INLINE void value_tile(const struct ntx_attn *a, const struct part *t, const int type, const struct rows *rows, uint32_t g, const int heads, uint32_t e,
                       const int groups, uint32_t part)
{
    struct f16 acc[TILE];
    float *out = a->out + (size_t)g * a->head_v + e;
    for (int h = 0; h < heads; h++)
        for (int j = 0; j < groups; j++) {
            const float *at = out + (size_t)h * a->head_v + 16 * j;
            acc[h * groups + j] = part < 16 ? load_part(at, part) : load16(at);
        }
    for (uint32_t r = 0; r < rows->n; r++) {
        if (!rows->at[r])
            continue;
        struct f16 v[GROUPS];
        for (int j = 0; j < groups; j++)
            v[j] = kv_load(type, t, rows, r, e + 16 * (uint32_t)j, part);
        for (int h = 0; h < heads; h++) {
            struct f16 w = splat(t->w[g + (uint32_t)h][rows->p + r]);
            for (int j = 0; j < groups; j++)
                acc[h * groups + j] = fma16(w, v[j], acc[h * groups + j]);
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

INLINE void values(const struct ntx_attn *a, const struct part *t, const int type, const struct rows *rows, uint32_t g, const int heads)
{
    uint32_t e = 0;
    for (; e + 16 * GROUPS <= a->head_v; e += 16 * GROUPS)
        value_tile(a, t, type, rows, g, heads, e, GROUPS, 16);
    for (; e + 16 <= a->head_v; e += 16)
        value_tile(a, t, type, rows, g, heads, e, 1, 16);
    if (e < a->head_v)
        value_tile(a, t, type, rows, g, heads, e, 1, a->head_v - e);
}

INLINE void values_of_all(const struct ntx_attn *a, const struct part *t, const int type, const struct rows *rows)
{
    for (uint32_t g = 0; g < a->n_q; g += HEADS)
        switch (NTX_MIN(a->n_q - g, (uint32_t)HEADS)) {
        case 1: values(a, t, type, rows, g, 1); break;
        case 2: values(a, t, type, rows, g, 2); break;
        case 3: values(a, t, type, rows, g, HEADS > 3 ? 3 : 1); break;
        default: values(a, t, type, rows, g, HEADS);
        }
}

INLINE void all_values(const struct ntx_attn *a, struct part *t, const int type)
{
    struct rows rows = {t->v, 0, t->n, round_up(a->head_v, 16)};
    for (uint32_t g = 0; g < a->n_q; g++)
        for (uint32_t i = 0; i < a->head_v; i++)
            a->out[(size_t)g * a->head_v + i] *= t->by[g];
    if (!by_floats(a, type))
        values_of_all(a, t, NTX_KV_F16, &rows);
    for (uint32_t batch = NTX_MIN(BATCH, BATCH_VALUES / rows.ld); by_floats(a, type) && rows.p < t->n; rows.p += rows.n) {
        rows.at = t->v + rows.p;
        rows.n = NTX_MIN(batch, t->n - rows.p);
        for (uint32_t r = 0; r < rows.n; r++)
            if (rows.at[r])
                unpack(type, rows.at[r], a->head_v, t->floats + (size_t)r * rows.ld);
        values_of_all(a, t, FLOATS, &rows);
    }
}

/* ---- the whole */

/* q with its rows filled up to a multiple of 16, in pad where they are not. */
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

INLINE void attend_type(const struct ntx_attn *a, const int type)
{
    struct part t;
    float max[NTX_ATTN_HEADS], pad[NTX_ATTN_HEADS * NTX_MAX_HEAD];
    const float *q = whole_lanes(a, pad);
    struct f16 sum[NTX_ATTN_HEADS];
    memset(a->out, 0, (size_t)a->n_q * a->head_v * sizeof *a->out);
    for (uint32_t g = 0; g < a->n_q; g++) {
        max[g] = -INFINITY;
        sum[g] = splat(0);
    }
    for (t.first = 0; t.first < a->n_pos; t.first += PART) {
        t.n = NTX_MIN((uint32_t)PART, a->n_pos - t.first);
        uint32_t ahead = NTX_MIN((uint32_t)PART + AHEAD, a->n_pos - t.first);
        memset(t.k, 0, sizeof t.k);
        find_rows(a, a->k, kv_row(type, a->head_k), t.first, ahead, t.k);
        find_rows(a, a->v, kv_row(type, a->head_v), t.first, t.n, t.v);
        all_scores(a, &t, type, q);
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
