/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/delta/make_impl.h"
#include "common/util.h"
#include "model/quant.h"

#define SAMPLE    64u /* outputs for judging a type's error */
#define RANK_STEP 8u
#define RANK_MOST 256u /* largest rank tried */
#define CLOSE     0.98 /* of the bound: the rest is for rounding to F16 */

struct work {
    const struct ntx__matrix_job *j;
    struct ntx__low low;
    struct ntx__rounding by;
    float *x, *one, *b; /* [piece x in]; [in], an output's weights; [piece x rank] */
    uint8_t *raw;       /* [piece] as in a file */
    struct ntx__made *made;
    struct ntx_err *err;
};

static double square_of(const float *x, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Reads W - base; w->x is W. */
static int read_piece(void *ctx, uint64_t first, uint64_t n, float *d)
{
    struct work *w = ctx;
    const struct ntx__matrix_job *j = w->j;
    if (j->o->stop && *j->o->stop)
        return ntx_err_set(w->err, -EINTR, "interrupted");
    int rc = ntx__read_outputs(&j->m, first, n, w->raw, w->x, w->err);
    if (!rc)
        rc = ntx__read_outputs(&j->base, first, n, w->raw, d, w->err);
    for (uint64_t i = 0; i < n * j->in && !rc; i++)
        d[i] = w->x[i] - d[i];
    return rc;
}

static void add_squares(void *ctx, uint64_t n)
{
    struct work *w = ctx;
    w->made->square += square_of(w->x, n * w->j->in);
    w->made->difference += square_of(w->low.d, n * w->j->in);
}

/* The sum of squares that errors are relative to. */
static double error_base(const struct work *w) { return w->j->o->base.gguf ? w->made->difference : w->made->square; }

/* ---- types */

static uint64_t type_bytes(const struct ntx__matrix_job *j, uint32_t type)
{
    return ntx_row_bytes(type, j->in) * j->out;
}

/* Finds the smallest type within the bound: for the difference its index in the list, and the bytes of the matrix
 * alone. */
static int judge_types(struct work *w, uint32_t *of_difference)
{
    const struct ntx__matrix_job *j = w->j;
    const uint64_t n = NTX_MIN(j->out, SAMPLE);
    double own[NTX__TYPES] = {0}, delta[NTX__TYPES] = {0}, square = 0, difference = 0;
    int rc = 0;
    for (uint64_t r = 0; r < n; r++) {
        if ((rc = read_piece(w, r * j->out / n, 1, w->one)))
            return rc;
        square += square_of(w->x, j->in);
        difference += square_of(w->one, j->in);
        for (uint32_t t = 0; t < j->types->n; t++) {
            delta[t] += ntx__round(&w->by, j->types->type[t], j->types->q[t], w->one);
            own[t] += ntx__round(&w->by, j->types->type[t], j->types->q[t], w->x);
        }
    }
    const double most = j->o->error * j->o->error;
    w->made->alone_bytes = j->m.t->bytes;
    *of_difference = j->types->n - 1;
    for (uint32_t t = j->types->n; t-- > 0;) {
        if (!j->o->base.gguf && own[t] <= most * square)
            w->made->alone_bytes = NTX_MIN(w->made->alone_bytes, type_bytes(j, j->types->type[t]));
        if (delta[t] <= CLOSE * most * (j->o->base.gguf ? difference : square))
            *of_difference = t;
    }
    return 0;
}

/* Writes D in that type, output by output. */
static int write_typed(struct work *w, uint32_t at)
{
    const struct ntx__matrix_job *j = w->j;
    const uint32_t type = j->types->type[at];
    const uint64_t each = ntx_row_bytes(type, j->in);
    struct ntx__made *made = w->made;
    int rc = 0;
    made->how = NTX__TYPED;
    made->type = type;
    made->bytes = each * j->out;
    made->part[0] = ntx__spool_take(j->spool, made->bytes);
    made->left = 0;
    for (uint64_t first = 0; first < j->out && !rc; first += w->low.n) {
        const uint64_t n = NTX_MIN(w->low.n, j->out - first);
        rc = read_piece(w, first, n, w->low.d);
        for (uint64_t r = 0; r < n && !rc; r++) {
            made->left += ntx__round(&w->by, type, j->types->q[at], w->low.d + r * j->in);
            rc = ntx__spool_write(j->spool, &made->part[0], (first + r) * each, w->by.blocks, each, w->err);
        }
    }
    return rc;
}

/* ---- thin matrices */

static uint64_t rank_bytes(const struct ntx__matrix_job *j, uint64_t rank) { return rank * (j->in + j->out) * 2; }

/* The smallest rank within the bound; 0: none. */
static uint32_t judge_ranks(struct work *w, const double *value, uint32_t most)
{
    double left = w->made->difference, bound = CLOSE * w->j->o->error * w->j->o->error * error_base(w);
    for (uint32_t r = 0; r < most; r++) {
        if (r && r % RANK_STEP == 0 && left <= bound)
            return r;
        left -= value[r];
    }
    return left <= bound ? most : 0;
}

/* Rounds the first `rank` columns of x [n x k] as they will be written; the rounded values replace them. */
static void round_columns(float *x, uint64_t n, size_t k, uint32_t rank, const double *factor, uint16_t *half,
                          bool across)
{
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < rank; c++) {
            const uint16_t h = ntx_f32_to_f16((float)((double)x[i * k + c] * factor[c]));
            half[across ? c * n + i : i * rank + c] = h;
            x[i * k + c] = ntx_f16_to_f32(h);
        }
}

/* Measures the difference of D from y w', after rounding. */
static int measure_low(struct work *w, uint32_t rank)
{
    const struct ntx__matrix_job *j = w->j;
    float *a = w->low.z; /* [rank x in] */
    int rc = 0;
    for (uint64_t i = 0; i < j->in; i++)
        for (uint32_t c = 0; c < rank; c++)
            a[c * j->in + i] = w->low.w[i * w->low.k + c];
    w->made->left = 0;
    for (uint64_t first = 0; first < j->out && !rc; first += w->low.n) {
        const uint64_t n = NTX_MIN(w->low.n, j->out - first);
        rc = read_piece(w, first, n, w->low.d);
        for (uint64_t r = 0; r < n && !rc; r++)
            memcpy(w->b + r * rank, w->low.y + (first + r) * w->low.k, rank * sizeof *w->b);
        if (rc)
            break;
        ntx__times(w->b, n, rank, a, j->in, w->x);
        for (uint64_t i = 0; i < n * j->in; i++)
            w->made->left += ((double)w->low.d[i] - (double)w->x[i]) * ((double)w->low.d[i] - (double)w->x[i]);
    }
    return rc;
}

static int write_low(struct work *w, uint32_t rank, const double *value)
{
    const struct ntx__matrix_job *j = w->j;
    struct ntx__made *made = w->made;
    uint16_t *half = malloc(NTX_MAX(j->in, j->out) * rank * sizeof *half);
    double *up = malloc(rank * sizeof *up), *down = malloc(rank * sizeof *down);
    int rc = half && up && down ? 0 : ntx_err_set(w->err, -ENOMEM, "no memory");
    for (uint32_t c = 0; c < rank && !rc; c++) { /* give both factors one size */
        const double length = sqrt(value[c]);
        up[c] = sqrt(length);
        down[c] = length > 0 ? 1 / sqrt(length) : 0;
    }
    made->how = NTX__LOW_RANK;
    made->rank = rank;
    made->bytes = rank_bytes(j, rank);
    if (!rc) {
        made->part[0] = ntx__spool_take(j->spool, j->in * rank * 2);
        made->part[1] = ntx__spool_take(j->spool, j->out * rank * 2);
        round_columns(w->low.w, j->in, w->low.k, rank, down, half, true);
        if (!(rc = ntx__spool_write(j->spool, &made->part[0], 0, half, made->part[0].bytes, w->err))) {
            round_columns(w->low.y, j->out, w->low.k, rank, up, half, false);
            rc = ntx__spool_write(j->spool, &made->part[1], 0, half, made->part[1].bytes, w->err);
        }
    }
    free(half);
    free(up);
    free(down);
    return rc ? rc : measure_low(w, rank);
}

/* ---- */

/* The largest rank worth trying: above it, thin matrices are larger than the difference in that type. */
static uint32_t largest_rank(const struct ntx__matrix_job *j, uint32_t type)
{
    const uint64_t most = NTX_MIN(j->in, j->out),
                   worth = NTX_MIN(type_bytes(j, j->types->type[type]) / rank_bytes(j, 1), (uint64_t)RANK_MOST);
    return (uint32_t)NTX_MIN(most, j->o->rank ? (uint64_t)j->o->rank : NTX_MAX(worth, 1u));
}

static int choose_form(struct work *w, uint32_t type, double *value)
{
    const struct ntx__matrix_job *j = w->j;
    const uint32_t most = largest_rank(j, type);
    int rc = ntx__low_basis(&w->low);
    if (rc || w->made->difference <= 0)
        return rc;
    ntx__orthogonal_by_size(w->low.w, j->in, w->low.y, j->out, w->low.k, value, &w->low.eigen);
    if (!j->o->rank && !j->o->base.gguf &&
        w->made->difference <= CLOSE * j->o->error * j->o->error * error_base(w)) { /* the base alone is good enough */
        w->made->left = w->made->difference;
        return 0;
    }
    const uint32_t rank = j->o->rank ? most : judge_ranks(w, value, most);
    if (rank)
        return write_low(w, rank, value);
    do
        rc = write_typed(w, type);
    while (!rc && w->made->left > j->o->error * j->o->error * error_base(w) && ++type < j->types->n);
    return rc;
}

static int make_form(struct work *w)
{
    const struct ntx__matrix_job *j = w->j;
    uint32_t type = 0;
    int rc = judge_types(w, &type);
    if (rc)
        return rc;
    w->low.k = ntx__low_columns(largest_rank(j, type));
    double *value = malloc(w->low.k * sizeof *value);
    w->b = malloc(w->low.n * w->low.k * sizeof *w->b);
    rc = ntx__low_init(&w->low) && value && w->b ? choose_form(w, type, value)
                                                 : ntx_err_set(w->err, -ENOMEM, "no memory for '%s'", j->m.t->name);
    free(value);
    return rc;
}

int ntx__make_matrix(const struct ntx__matrix_job *j, struct ntx__made *made, struct ntx_err *err)
{
    struct work w = {.j = j, .made = made, .err = err};
    w.low = (struct ntx__low){.in = j->in,
                              .out = j->out,
                              .n = ntx__low_piece(j->in, j->out),
                              .read = read_piece,
                              .seen = add_squares,
                              .ctx = &w};
    *made = (struct ntx__made){.how = NTX__EQUAL};
    w.x = malloc(w.low.n * j->in * sizeof *w.x);
    w.one = malloc(j->in * sizeof *w.one);
    w.raw = malloc(w.low.n * NTX_MAX(ntx_row_bytes(j->m.t->type, j->in), ntx_row_bytes(j->base.t->type, j->in)));
    int rc = ntx__rounding_init(&w.by, j->in) && w.x && w.one && w.raw
                 ? make_form(&w)
                 : ntx_err_set(err, -ENOMEM, "no memory for '%s'", j->m.t->name);
    ntx__low_free(&w.low);
    free(w.b);
    free(w.x);
    free(w.one);
    free(w.raw);
    ntx__rounding_free(&w.by);
    return rc;
}
