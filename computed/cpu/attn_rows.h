/* SPDX-License-Identifier: Apache-2.0 */
/* attn_rows.h: attention of several rows of a pass at adjacent positions of one context, together. The bits are those
 * of attn.h for each row, but K and V are read and unpacked once for all. Included by ops.h, compiled per instruction
 * set.
 *
 * A vector here is a query head of a row. K of BATCH positions is transposed, so that the lanes of a register are
 * positions: lane l of attn.h's sums is then a register, and the tree adds registers. V is unpacked in its own order.
 * Rows end at different positions: scores after a row's end are ignored, and its sums leave V out. */
#ifndef NTX_COMPUTED_CPU_ATTN_ROWS_H
#define NTX_COMPUTED_CPU_ATTN_ROWS_H

#include "computed/cpu/attn.h"

enum {
    VECTORS = 4,                   /* of a tile of scores */
    COLUMNS = WIDTH == 16 ? 1 : 2, /* registers of positions of a tile of scores */
    AT_ONCE = WIDTH == 16 ? 4 : 1, /* lanes of sums that a tile of scores has at a time */
    WEIGHED = 4,                   /* vectors of a tile of values */
    SPREAD = WIDTH == 16 ? 6 : 1,  /* most vectors of 16 values of a tile of values */
    FEW = 10,                      /* for at most so many vectors K is not transposed */
};
_Static_assert(NTX_ATTN_VECTORS % VECTORS == 0 && NTX_ATTN_VECTORS % WEIGHED == 0 && BATCH % (COLUMNS * WIDTH) == 0,
               "whole tiles");

struct many {
    float q[NTX_ATTN_VECTORS * NTX_MAX_HEAD];   /* padded with 0 to multiples of 16 values and of VECTORS */
    float out[NTX_ATTN_VECTORS * NTX_MAX_HEAD]; /* the same */
    float w[NTX_ATTN_VECTORS][PART];            /* scores, then weights */
    float rows[BATCH * NTX_MAX_HEAD];           /* unpacked rows of K or V */
    float turned[NTX_MAX_HEAD * BATCH];         /* transposed K: [values][BATCH] */
    float max[NTX_ATTN_VECTORS];
    struct f16 sum[NTX_ATTN_VECTORS];
    const uint8_t *k[PART], *v[PART];
    uint32_t n_vectors, first, n; /* n: positions of the part up to the last row's end */
};

/* Positions of the part that a vector's row sees. */
INLINE uint32_t seen(const struct ntx_attn *a, const struct many *t, uint32_t vector)
{
    uint32_t end = a->n_pos + (a->level ? 0 : NTX_MIN(vector / a->n_q, a->n_rows - 1));
    return end < t->first ? 0 : NTX_MIN(end - t->first, (uint32_t)PART);
}

/* Positions of the part that lie before the vector's window. */
INLINE uint32_t unseen(const struct ntx_attn *a, const struct many *t, uint32_t vector)
{
    uint32_t from = ntx_attn_from(a, NTX_MIN(vector / a->n_q, a->n_rows - 1));
    return from < t->first ? 0 : NTX_MIN(from - t->first, (uint32_t)PART);
}

/* The first batch: that of the part's first position that any row sees. */
INLINE uint32_t first_batch(const struct ntx_attn *a, const struct many *t) { return unseen(a, t, 0) / BATCH * BATCH; }

/* Converts a row of n values to floats, padded with 0 to a multiple of 16. */
INLINE void unpack(const uint8_t *row, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i += 16)
        store16(out + i, kv_load(row + 2 * (size_t)i, n - i));
}

/* Unpacks BATCH rows from p on; rows that do not exist are 0. The next ones are fetched meanwhile, since a head's runs
 * are too short for the hardware prefetcher. */
INLINE void unpack_batch(struct many *t, const uint8_t *const *rows, uint32_t p, uint32_t width)
{
    const uint32_t ld = round_up(width, 16);
    for (uint32_t r = 0; r < BATCH; r++) {
        for (uint32_t at = 0; p + r + BATCH < t->n && at < 2 * width; at += 64)
            fetch_at(rows[p + r + BATCH], at);
        if (p + r < t->n && rows[p + r])
            unpack(rows[p + r], width, t->rows + r * ld);
        else
            memset(t->rows + r * ld, 0, ld * sizeof(float));
    }
}

/* ---- scores */

/* Transposes WIDTH rows of WIDTH values: log2(WIDTH) steps of the same perfect shuffle. */
INLINE void transpose_square(const float *x, size_t ld, float *y, size_t ld_y)
{
    fpart v[WIDTH], u[WIDTH];
    ipart low, high;
    for (int i = 0; i < WIDTH; i++) {
        low[i] = i / 2 + i % 2 * WIDTH;
        high[i] = low[i] + WIDTH / 2;
        memcpy(&v[i], x + (size_t)i * ld, sizeof v[i]);
    }
    for (int n = 1; n < WIDTH; n *= 2) {
        for (int i = 0; i < WIDTH / 2; i++) {
            u[2 * i] = __builtin_shuffle(v[i], v[i + WIDTH / 2], low);
            u[2 * i + 1] = __builtin_shuffle(v[i], v[i + WIDTH / 2], high);
        }
        for (int i = 0; i < WIDTH; i++)
            v[i] = u[i];
    }
    for (int i = 0; i < WIDTH; i++)
        memcpy(y + (size_t)i * ld_y, &v[i], sizeof v[i]);
}

INLINE void transpose_batch(struct many *t, uint32_t ld)
{
    for (uint32_t i = 0; i < ld; i += WIDTH)
        for (uint32_t r = 0; r < BATCH; r += WIDTH)
            transpose_square(t->rows + r * ld + i, ld, t->turned + i * BATCH + r, BATCH);
}

/* Lanes of sums that are computed together are 8, 4 and 12 from the first. */
INLINE uint32_t lane_off(int l) { return (uint32_t)(l % 2 * 8 + l / 2 * 4); }

/* Adds the products of values `at` + lane_off(0), ... that are below `end`. */
INLINE void score_step(const float *q, const float *k, uint32_t ld, uint32_t at, uint32_t end,
                       fpart acc[AT_ONCE][VECTORS][COLUMNS])
{
#pragma GCC unroll 4
    for (int l = 0; l < AT_ONCE; l++) {
        const uint32_t i = at + lane_off(l);
        fpart y[COLUMNS];
        if (i >= end)
            continue;
        memcpy(y, k + (size_t)i * BATCH, sizeof y);
#pragma GCC unroll 4
        for (int h = 0; h < VECTORS; h++) {
            fpart x = q[(size_t)h * ld + i] - (fpart){0};
#pragma GCC unroll 2
            for (int c = 0; c < COLUMNS; c++)
                acc[l][h][c] = fma_part(y[c], x, acc[l][h][c]);
        }
    }
}

#define EACH_SCORE(what)                                                                                               \
    _Pragma("GCC unroll 4") for (int h = 0; h < VECTORS; h++)                                                          \
        _Pragma("GCC unroll 2") for (int c = 0; c < COLUMNS; c++) what

/* q.k of VECTORS vectors from m on for COLUMNS * WIDTH transposed positions. The 16 lanes are computed in the order of
 * the tree, 0 8 4 12 2 10 6 14 1 ..., AT_ONCE at a time, so that a sum waits only for the next of its level. */
INLINE void score_vectors(const struct ntx_attn *a, struct many *t, uint32_t ld, uint32_t m, uint32_t column, float *w)
{
    static const uint8_t order[16] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
    const float *q = t->q + (size_t)m * ld, *k = t->turned + column;
    fpart waits[4][VECTORS][COLUMNS], acc[AT_ONCE][VECTORS][COLUMNS];
    const uint32_t whole = a->head_k / 16 * 16;
    for (int step = 0; step < 16; step += AT_ONCE) {
#pragma GCC unroll 4
        for (int l = 0; l < AT_ONCE; l++)
            EACH_SCORE(acc[l][h][c] = (fpart){0});
        for (uint32_t i = 0; i < whole; i += 16)
            score_step(q, k, ld, order[step] + i, UINT32_MAX, acc);
        if (whole < a->head_k)
            score_step(q, k, ld, order[step] + whole, a->head_k, acc);
        int level = 0;
        if (AT_ONCE == 4) {
            EACH_SCORE(acc[0][h][c] = (acc[0][h][c] + acc[1][h][c]) +
                                      (acc[AT_ONCE - 2][h][c] + acc[AT_ONCE - 1][h][c]));
            level = 2;
        }
        for (; step >> level & 1; level++)
            EACH_SCORE(acc[0][h][c] = waits[level][h][c] + acc[0][h][c]);
        if (level < 4)
            EACH_SCORE(waits[level][h][c] = acc[0][h][c]);
    }
    EACH_SCORE({
        fpart s = acc[0][h][c] * a->scale;
        memcpy(w + h * PART + c * WIDTH, &s, sizeof s);
    });
}

INLINE void scores_of_rows(const struct ntx_attn *a, struct many *t)
{
    const uint32_t ld = round_up(a->head_k, 16);
    for (uint32_t p = first_batch(a, t); p < t->n; p += BATCH) {
        unpack_batch(t, t->k, p, a->head_k);
        transpose_batch(t, ld);
        for (uint32_t m = 0; m < t->n_vectors; m += VECTORS)
            for (uint32_t c = 0; c < BATCH && p + c < t->n; c += COLUMNS * WIDTH)
                score_vectors(a, t, ld, m, c, t->w[m] + p + c);
    }
    for (uint32_t p = 0; a->hole && p < t->n; p++)
        for (uint32_t m = 0; m < t->n_vectors && !t->k[p]; m++)
            t->w[m][p] = -INFINITY;
    for (uint32_t m = 0; m < t->n_vectors; m++)
        for (uint32_t p = 0, n = unseen(a, t, m); p < n; p++)
            t->w[m][p] = -INFINITY;
}

/* ---- values */

/* out[e .. e + 16 * vecs) of `vectors` vectors from m on += weight * v over unpacked rows r .. end. Row r is place p +
 * r of the part. */
INLINE void value_vectors(struct many *t, uint32_t ld, uint32_t m, const int vectors, uint32_t e, const int vecs,
                          uint32_t p, uint32_t r, uint32_t end)
{
    struct f16 acc[WEIGHED * SPREAD];
    float *out = t->out + (size_t)m * ld + e;
    const float *w = t->w[m] + p, *v = t->rows + e;
    for (int h = 0; h < vectors; h++)
        for (int j = 0; j < vecs; j++)
            acc[h * vecs + j] = load16(out + (size_t)h * ld + 16 * j);
    for (; r < end; r++) {
        if (!t->v[p + r])
            continue;
        struct f16 x[SPREAD];
        for (int j = 0; j < vecs; j++)
            x[j] = load16(v + (size_t)r * ld + 16 * j);
        for (int h = 0; h < vectors; h++) {
            struct f16 by = splat(w[(uint32_t)h * PART + r]);
            for (int j = 0; j < vecs; j++)
                acc[h * vecs + j] = fma16(by, x[j], acc[h * vecs + j]);
        }
    }
    for (int h = 0; h < vectors; h++)
        for (int j = 0; j < vecs; j++)
            store16(out + (size_t)h * ld + 16 * j, acc[h * vecs + j]);
}

INLINE void value_columns(struct many *t, uint32_t ld, uint32_t m, const int vectors, uint32_t p, uint32_t r,
                          uint32_t end)
{
    for (uint32_t e = 0, n; r < end && e < ld; e += 16 * n) {
        n = (ld - e) / 16;
        if (n > SPREAD)
            n = n < 2 * SPREAD ? (n + 1) / 2 : SPREAD; /* tiles are about equally wide */
        switch (n) {
        case 1: value_vectors(t, ld, m, vectors, e, 1, p, r, end); break;
#if defined(__AVX512F__)
        case 2: value_vectors(t, ld, m, vectors, e, 2, p, r, end); break;
        case 3: value_vectors(t, ld, m, vectors, e, 3, p, r, end); break;
        case 4: value_vectors(t, ld, m, vectors, e, 4, p, r, end); break;
        case 5: value_vectors(t, ld, m, vectors, e, 5, p, r, end); break;
        default: value_vectors(t, ld, m, vectors, e, 6, p, r, end);
#endif
        }
    }
}

/* Place n of the part as a place in the batch from p on, within 0 .. BATCH. */
INLINE uint32_t in_batch(uint32_t n, uint32_t p) { return n <= p ? 0 : NTX_MIN(n - p, (uint32_t)BATCH); }

/* Adds the batch from p on for WEIGHED vectors from m on: together where all see a row, else one by one. Later vectors
 * never begin or end earlier. */
INLINE void values_of_batch(const struct ntx_attn *a, struct many *t, uint32_t ld, uint32_t m, uint32_t p)
{
    const uint32_t from = in_batch(unseen(a, t, m + WEIGHED - 1), p), to = NTX_MAX(in_batch(seen(a, t, m), p), from);
    for (uint32_t h = 0; h + 1 < WEIGHED; h++)
        value_columns(t, ld, m + h, 1, p, in_batch(unseen(a, t, m + h), p),
                      NTX_MIN(from, in_batch(seen(a, t, m + h), p)));
    value_columns(t, ld, m, WEIGHED, p, from, to);
    for (uint32_t h = 0; h < WEIGHED; h++)
        value_columns(t, ld, m + h, 1, p, to, in_batch(seen(a, t, m + h), p));
}

INLINE void values_of_rows(const struct ntx_attn *a, struct many *t)
{
    const uint32_t ld = round_up(a->head_v, 16);
    for (uint32_t p = first_batch(a, t); p < t->n; p += BATCH) {
        unpack_batch(t, t->v, p, a->head_v);
        for (uint32_t m = 0; m < t->n_vectors; m += WEIGHED)
            values_of_batch(a, t, ld, m, p);
    }
}

/* ---- attention */

INLINE void begin_rows(const struct ntx_attn *a, struct many *t)
{
    const uint32_t ld = round_up(a->head_k, 16), ld_out = round_up(a->head_v, 16), n = a->n_rows * a->n_q;
    t->n_vectors = round_up(n, NTX_MAX(VECTORS, WEIGHED));
    memset(t->q, 0, (size_t)t->n_vectors * ld * sizeof(float));
    memset(t->out, 0, (size_t)t->n_vectors * ld_out * sizeof(float));
    memset(t->w[n], 0, (t->n_vectors - n) * sizeof t->w[0]);
    for (uint32_t m = 0; m < n; m++) {
        memcpy(t->q + (size_t)m * ld, a->q + m / a->n_q * a->ld_q + (size_t)(m % a->n_q) * a->head_k,
               a->head_k * sizeof(float));
        begin_head(a, m % a->n_q, &t->max[m], &t->sum[m]);
    }
}

INLINE void softmax_rows(const struct ntx_attn *a, struct many *t)
{
    const uint32_t ld = round_up(a->head_v, 16);
    for (uint32_t m = 0; m < a->n_rows * a->n_q; m++) {
        uint32_t n = unseen(a, t, m) < seen(a, t, m) ? seen(a, t, m) : 0;
        struct f16 by = splat(n ? softmax_part(a, t->w[m], n, &t->max[m], &t->sum[m]) : 1);
        for (uint32_t i = 0; n && i < ld; i += 16)
            store16(t->out + (size_t)m * ld + i, mul16(load16(t->out + (size_t)m * ld + i), by));
    }
}

INLINE void end_rows(const struct ntx_attn *a, const struct many *t)
{
    for (uint32_t m = 0; m < a->n_rows * a->n_q; m++) {
        float *out = a->out + m / a->n_q * a->ld_out + (size_t)(m % a->n_q) * a->head_v;
        float by = t->max[m] == -INFINITY ? 1 : 1.0f / join16(t->sum[m]);
        for (uint32_t i = 0; i < a->head_v; i++)
            out[i] = t->out[(size_t)m * round_up(a->head_v, 16) + i] * by;
    }
}

INLINE void attend_together(const struct ntx_attn *a)
{
    struct many t;
    const uint32_t end = a->n_pos + (a->level ? 0 : a->n_rows - 1);
    begin_rows(a, &t);
    for (t.first = first_part(a); t.first < end; t.first += PART) {
        t.n = NTX_MIN((uint32_t)PART, end - t.first);
        find_rows(a, a->k, 2 * (size_t)a->head_k, t.first, t.n, t.k);
        find_rows(a, a->v, v_row_bytes(a), t.first, t.n, t.v);
        scores_of_rows(a, &t);
        softmax_rows(a, &t);
        values_of_rows(a, &t);
    }
    end_rows(a, &t);
}

static void attend_f16(const struct ntx_attn *a)
{
    if (a->n_rows > 1 && a->n_rows * a->n_q > FEW) {
        attend_together(a);
        return;
    }
    for (uint32_t r = 0; r < a->n_rows; r++) {
        struct ntx_attn one = *a;
        one.q += r * a->ld_q;
        one.out += r * a->ld_out;
        one.n_pos += a->level ? 0 : r;
        attend_row(&one);
    }
}

#endif
