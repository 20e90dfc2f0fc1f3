/* SPDX-License-Identifier: Apache-2.0 */
/* Compares one pair of matrices. Some outputs are quantised, a sample of neurons is fetched, and the rounds of
 * lowrank.c run over the difference; the first round also adds up the sums and finds the neurons' cosines. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/delta/analyze_impl.h"
#include "common/util.h"
#include "model/quant.h"

#define SAMPLE    256u /* neurons whose nearest neighbours are searched; a multiple of 16 */
#define QUANTISED 64u  /* outputs for judging types */

struct side { /* one matrix of the pair */
    const struct ntx__matrix *m;
    float *x;        /* [piece x in] */
    float *sample;   /* [in x SAMPLE], or for columns [piece x SAMPLE] */
    float *dots;     /* dot products of the other's neurons with this sample: [piece x SAMPLE], or for columns [in x
                      * SAMPLE] */
    double *lengths; /* squares, of the sample: [SAMPLE] */
    double *columns; /* squares, of all columns: [in] */
    double nearest[SAMPLE];
};

struct pair {
    const struct ntx__pair_job *j;
    struct side side[2]; /* A, B */
    uint8_t *raw;
    struct ntx__low low; /* of the difference */
    double dot, square[2], difference;
    struct ntx_err *err;
};

/* ---- weights of a file */

static int read_outputs(struct pair *p, const struct ntx__matrix *m, uint64_t first, uint64_t n, float *x)
{
    return ntx__read_outputs(m, first, n, p->raw, x, p->err);
}

static int read_piece(void *ctx, uint64_t first, uint64_t n, float *d)
{
    struct pair *p = ctx;
    int rc = read_outputs(p, p->side[0].m, first, n, p->side[0].x);
    if (!rc)
        rc = read_outputs(p, p->side[1].m, first, n, p->side[1].x);
    for (size_t i = 0; !rc && i < n * p->j->in; i++)
        d[i] = p->side[1].x[i] - p->side[0].x[i];
    return rc;
}

/* ---- quantisation of some outputs */

static int measure_types(struct pair *p, struct ntx_likeness *is)
{
    const struct ntx__pair_job *j = p->j;
    struct ntx__rounding by;
    uint64_t n = NTX_MIN(j->out, QUANTISED);
    double square = 0;
    int rc = ntx__rounding_init(&by, j->in) ? 0 : ntx_err_set(p->err, -ENOMEM, "no memory");
    for (uint64_t r = 0; r < n && !rc; r++) {
        if ((rc = read_piece(p, r * j->out / n, 1, p->low.d)))
            break;
        for (uint64_t i = 0; i < j->in; i++)
            square += (double)p->side[1].x[i] * (double)p->side[1].x[i];
        for (uint32_t t = 0; t < NTX_ANALYZE_TYPES && j->types[t] != NTX_TYPE_LIMIT; t++) {
            is->by_type[t] += ntx__round(&by, j->types[t], j->quantizer[t], p->low.d);
            is->own[t] += ntx__round(&by, j->types[t], j->quantizer[t], p->side[1].x);
        }
    }
    for (uint32_t t = 0; t < NTX_ANALYZE_TYPES && !rc; t++) {
        is->by_type[t] = square > 0 ? sqrt(is->by_type[t] / square) : 0;
        is->own[t] = square > 0 ? sqrt(is->own[t] / square) : 0;
    }
    ntx__rounding_free(&by);
    return rc;
}

/* ---- neurons */

static uint64_t count_neurons(const struct ntx__pair_job *j) { return j->columns ? j->in : j->out; }
static uint32_t count_sampled(const struct ntx__pair_job *j) { return (uint32_t)NTX_MIN(count_neurons(j), SAMPLE); }

/* Fetches the sample's weights as columns of a matrix. */
static int fetch_sample(struct pair *p, struct side *s)
{
    const struct ntx__pair_job *j = p->j;
    uint32_t n = count_sampled(j);
    int rc = 0;
    for (uint32_t i = 0; i < n && !j->columns && !rc; i++) {
        if ((rc = read_outputs(p, s->m, (uint64_t)i * j->out / n, 1, s->x)))
            break;
        for (uint64_t c = 0; c < j->in; c++) {
            s->sample[c * SAMPLE + i] = s->x[c];
            s->lengths[i] += (double)s->x[c] * (double)s->x[c];
        }
    }
    return rc;
}

static void keep_nearest(struct side *s, uint32_t i, double dot, double square, double other)
{
    double cosine = square > 0 && other > 0 ? fabs(dot) / sqrt(square * other) : 0;
    s->nearest[i] = fmax(s->nearest[i], fmin(cosine, 1));
}

/* Compares these outputs of the other matrix with the sample. */
static void look_at_outputs(struct pair *p, struct side *s, const struct side *other, uint64_t n)
{
    size_t in = p->j->in;
    ntx__times(other->x, n, in, s->sample, SAMPLE, s->dots);
    for (uint64_t r = 0; r < n; r++) {
        double square = 0;
        for (size_t i = 0; i < in; i++)
            square += (double)other->x[r * in + i] * (double)other->x[r * in + i];
        for (uint32_t i = 0; i < count_sampled(p->j); i++)
            keep_nearest(s, i, (double)s->dots[r * SAMPLE + i], s->lengths[i], square);
    }
}

/* These outputs have a part of each column: adds up dot products. */
static void look_at_columns(struct pair *p, struct side *s, const struct side *other, uint64_t some)
{
    size_t in = p->j->in;
    uint32_t n = count_sampled(p->j);
    for (uint64_t r = 0; r < some; r++) {
        const float *x = s->x + r * in;
        for (uint32_t i = 0; i < n; i++) {
            float v = s->sample[r * SAMPLE + i] = x[(uint64_t)i * in / n];
            s->lengths[i] += (double)v * (double)v;
        }
        for (size_t c = 0; c < in; c++)
            s->columns[c] += (double)x[c] * (double)x[c];
    }
    ntx__times_transposed(other->x, some, in, s->sample, SAMPLE, s->dots);
}

static void columns_nearest(struct pair *p, struct side *s, const struct side *other)
{
    for (uint64_t c = 0; c < p->j->in && p->j->columns; c++)
        for (uint32_t i = 0; i < count_sampled(p->j); i++)
            keep_nearest(s, i, (double)s->dots[c * SAMPLE + i], s->lengths[i], other->columns[c]);
}

static void likeness_of_neurons(struct pair *p, struct ntx_likeness *is)
{
    const struct ntx__pair_job *j = p->j;
    for (int s = 0; s < 2; s++) {
        columns_nearest(p, &p->side[s], &p->side[!s]);
        is->docs += 0.5 * ntx__gumbel_location(p->side[s].nearest, count_sampled(j));
    }
    is->docs_chance = ntx__chance_cosine((double)count_neurons(j), (double)(j->columns ? j->out : j->in));
}

/* ---- the rounds */

static void add_sums(struct pair *p, uint64_t n)
{
    for (uint64_t i = 0; i < n * p->j->in; i++) {
        double a = (double)p->side[0].x[i], b = (double)p->side[1].x[i];
        p->dot += a * b;
        p->square[0] += a * a;
        p->square[1] += b * b;
        p->difference += (b - a) * (b - a);
    }
}

static void first_round(void *ctx, uint64_t n)
{
    struct pair *p = ctx;
    add_sums(p, n);
    for (int s = 0; s < 2; s++)
        (p->j->columns ? look_at_columns : look_at_outputs)(p, &p->side[s], &p->side[!s], n);
}

static int errors_by_rank(struct pair *p, struct ntx_likeness *is)
{
    const struct ntx_analyze_options *o = p->j->o;
    double *value = malloc(p->low.k * sizeof *value);
    if (!value)
        return ntx_err_set(p->err, -ENOMEM, "no memory");
    ntx__squared_singular(p->low.w, p->j->in, p->low.k, value, &p->low.eigen);
    for (uint32_t i = 0; i < o->n_ranks; i++) {
        double left = p->difference;
        uint64_t r = NTX_MIN(o->ranks[i], NTX_MIN(p->j->in, p->j->out));
        for (uint64_t v = 0; v < r; v++)
            left -= value[v];
        left = r == NTX_MIN(p->j->in, p->j->out) ? 0 : left; /* the full rank leaves nothing */
        is->by_rank[i] = p->square[1] > 0 ? sqrt(fmax(left, 0) / p->square[1]) : 0;
    }
    free(value);
    return 0;
}

/* ---- memory */

static bool take_side(struct pair *p, struct side *s, const struct ntx__matrix *m)
{
    const struct ntx__pair_job *j = p->j;
    uint64_t sample = j->columns ? p->low.n : j->in, dots = j->columns ? j->in : p->low.n;
    *s = (struct side){.m = m,
                       .x = malloc(p->low.n * j->in * sizeof *s->x),
                       .sample = calloc(sample * SAMPLE, sizeof *s->sample),
                       .dots = calloc(dots * SAMPLE, sizeof *s->dots),
                       .lengths = calloc(SAMPLE, sizeof *s->lengths),
                       .columns = calloc(j->in, sizeof *s->columns)};
    return s->x && s->sample && s->dots && s->lengths && s->columns;
}

static bool take_memory(struct pair *p)
{
    const struct ntx__pair_job *j = p->j;
    bool sides = take_side(p, &p->side[0], &j->a) & take_side(p, &p->side[1], &j->b);
    p->raw = malloc(p->low.n * NTX_MAX(ntx_row_bytes(j->a.t->type, j->in), ntx_row_bytes(j->b.t->type, j->in)));
    return ntx__low_init(&p->low) && sides && p->raw;
}

static void give_memory(struct pair *p)
{
    for (int s = 0; s < 2; s++) {
        free(p->side[s].x);
        free(p->side[s].sample);
        free(p->side[s].dots);
        free(p->side[s].lengths);
        free(p->side[s].columns);
    }
    free(p->raw);
    ntx__low_free(&p->low);
}

int ntx__compare(const struct ntx__pair_job *j, struct ntx_likeness *is, struct ntx_err *err)
{
    struct pair p = {.j = j,
                     .low = {.in = j->in,
                             .out = j->out,
                             .k = ntx__low_columns(j->o->ranks[j->o->n_ranks - 1]),
                             .n = ntx__low_piece(j->in, j->out)},
                     .err = err};
    p.low.read = read_piece;
    p.low.seen = first_round;
    p.low.ctx = &p;
    *is = (struct ntx_likeness){0};
    int rc = take_memory(&p)
                 ? measure_types(&p, is)
                 : ntx_err_set(err, -ENOMEM, "no memory to compare '%s' with '%s'", j->a.t->name, j->b.t->name);
    for (int s = 0; s < 2 && !rc; s++)
        rc = fetch_sample(&p, &p.side[s]);
    if (!rc && !(rc = ntx__low_basis(&p.low))) {
        double lengths = sqrt(p.square[0] * p.square[1]);
        is->cosine = lengths > 0 ? p.dot / lengths : 0;
        is->change = p.square[1] > 0 ? sqrt(p.difference / p.square[1]) : 0;
        likeness_of_neurons(&p, is);
        if (p.difference > 0)
            rc = errors_by_rank(&p, is);
    }
    give_memory(&p);
    return rc;
}
