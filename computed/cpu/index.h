/* SPDX-License-Identifier: Apache-2.0 */
/* index.h: indexer scores of positions: part of ops.h. A lane is a query, and a query's product adds its values in
 * order; so only the sum over queries is joined, once per position. */

enum { INDEX_KEYS = 4 /* positions at a time */, INDEX_VECS = NTX_INDEX_HEADS_MAX / 16 };

/* Transposes q: lane g of vector v of value i is query 16 v + g; queries that do not exist are 0. */
INLINE void index_transpose(const struct ntx_index *a, uint32_t vecs, float *turned)
{
    memset(turned, 0, (size_t)a->width * vecs * 16 * sizeof *turned);
    for (uint32_t h = 0; h < a->heads; h++)
        for (uint32_t i = 0; i < a->width; i++)
            turned[((size_t)i * vecs + h / 16) * 16 + h % 16] = a->q[(size_t)h * a->width + i];
}

/* Products of 16 or 32 queries with INDEX_KEYS positions' keys. */
INLINE void index_multiply(const float *q, uint32_t vecs, uint32_t width, const float (*key)[NTX_INDEX_HEAD_MAX],
                           struct f16 (*acc)[2], const int wide)
{
    for (int j = 0; j < INDEX_KEYS; j++)
        acc[j][0] = acc[j][1] = splat(0);
    for (uint32_t i = 0; i < width; i++, q += 16 * (size_t)vecs) {
        struct f16 x[2] = {load16(q), load16(wide > 1 ? q + 16 : q)};
        for (int j = 0; j < INDEX_KEYS; j++) {
            struct f16 by = splat(key[j][i]);
            for (int v = 0; v < wide; v++)
                acc[j][v] = fma16(x[v], by, acc[j][v]);
        }
    }
}

/* Adds 16 or 32 queries' part of INDEX_KEYS positions' sums. */
INLINE void index_tile(const float *q, uint32_t vecs, uint32_t width, const float (*key)[NTX_INDEX_HEAD_MAX],
                       const float *weights, struct f16 *sum, const int wide)
{
    struct f16 acc[INDEX_KEYS][2];
    index_multiply(q, vecs, width, key, acc, wide);
    for (int v = 0; v < wide; v++)
        for (int j = 0; j < INDEX_KEYS; j++)
            sum[j] = fma16(load16(weights + 16 * v), max16(acc[j][v], splat(0)), sum[j]);
}

/* Keys that are NULL count as 0 here. */
INLINE void index_widen(const uint16_t *const *key, uint32_t width, float (*wide)[NTX_INDEX_HEAD_MAX])
{
    for (int j = 0; j < INDEX_KEYS; j++)
        for (uint32_t i = 0; i < width; i += 16)
            store16(wide[j] + i, key[j] ? load16_f16(key[j] + i) : splat(0));
}

/* Scores of INDEX_KEYS positions. */
INLINE void index_score_keys(const struct ntx_index *a, const float *turned, const float *weights, uint32_t vecs,
                             const uint16_t *const *key, float *score)
{
    float wide[INDEX_KEYS][NTX_INDEX_HEAD_MAX];
    struct f16 sum[INDEX_KEYS];
    for (int j = 0; j < INDEX_KEYS; j++)
        sum[j] = splat(0);
    index_widen(key, a->width, wide);
    uint32_t v = 0;
    for (; WIDTH == 16 && v + 2 <= vecs; v += 2)
        index_tile(turned + 16 * (size_t)v, vecs, a->width, wide, weights + 16 * v, sum, 2);
    for (; v < vecs; v++)
        index_tile(turned + 16 * (size_t)v, vecs, a->width, wide, weights + 16 * v, sum, 1);
    for (int j = 0; j < INDEX_KEYS; j++)
        score[j] = join16(sum[j]);
}

/* The same with each query's product apart: score[h * ld + j]. */
INLINE void index_score_apart(const struct ntx_index *a, const float *turned, uint32_t vecs, const uint16_t *const *key,
                              float *score, uint32_t n)
{
    float wide[INDEX_KEYS][NTX_INDEX_HEAD_MAX], product[16];
    struct f16 acc[INDEX_KEYS][2];
    index_widen(key, a->width, wide);
    for (uint32_t v = 0; v < vecs; v++) {
        index_multiply(turned + 16 * (size_t)v, vecs, a->width, wide, acc, 1);
        for (uint32_t j = 0; j < n; j++) {
            store16(product, acc[j][0]);
            for (uint32_t h = 16 * v; h < NTX_MIN(a->heads, 16 * v + 16); h++)
                score[h * a->ld + j] = key[j] && product[h % 16] == product[h % 16] ? product[h % 16] : -INFINITY;
        }
    }
}

static void index_scores(const struct ntx_index *a)
{
    float turned[NTX_INDEX_HEAD_MAX * NTX_INDEX_HEADS_MAX], weights[NTX_INDEX_HEADS_MAX] = {0}, score[INDEX_KEYS];
    const uint32_t vecs = (a->heads + 15) / 16;
    index_transpose(a, vecs, turned);
    if (!a->ld)
        memcpy(weights, a->weights, a->heads * sizeof *weights);
    for (uint32_t p = 0; p < a->n; p += INDEX_KEYS) {
        const uint16_t *key[INDEX_KEYS];
        uint32_t n = NTX_MIN((uint32_t)INDEX_KEYS, a->n - p);
        for (uint32_t j = 0; j < INDEX_KEYS; j++)
            key[j] = j < n ? a->key[p + j] : NULL;
        if (a->ld) {
            index_score_apart(a, turned, vecs, key, a->score + p, n);
            continue;
        }
        index_score_keys(a, turned, weights, vecs, key, score);
        for (uint32_t j = 0; j < n; j++)
            a->score[p + j] = key[j] && score[j] == score[j] ? score[j] : -INFINITY;
    }
}
