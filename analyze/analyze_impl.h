/* analyze_impl.h: what the files of analyze/ share. */
#ifndef NTX_ANALYZE_ANALYZE_IMPL_H
#define NTX_ANALYZE_ANALYZE_IMPL_H

#include <stdbool.h>
#include <stddef.h>

#include "analyze/analyze.h"
#include "model/quantize.h"

/* ---- pair.c */

struct ntx__matrix {
    const struct ntx_gguf_tensor *t;
    int fd;
    uint64_t row;     /* its first, in the tensor */
};

struct ntx__pair_job {
    struct ntx__matrix a, b;
    uint64_t in, out;
    bool columns;     /* its neurons are columns */
    const uint32_t *types;
    struct ntx_quantizer *const *quantizer; /* [NTX_ANALYZE_TYPES] */
    const struct ntx_analyze_options *o;
};

int ntx__compare(const struct ntx__pair_job *j, struct ntx_likeness *is, struct ntx_err *err);

/* ---- products.c: matrices are row-major; k a multiple of 16 */

/* y[rows x k] = d[rows x n] w[n x k] */
void ntx__times(const float *d, size_t rows, size_t n, const float *w, size_t k, float *y);
/* z[n x k] += d[rows x n]' q[rows x k] */
void ntx__times_transposed(const float *d, size_t rows, size_t n, const float *q, size_t k, float *z);
struct ntx__eigen { /* for k columns */
    double *a, *v;
    float *w, *rows;
};
bool ntx__eigen_init(struct ntx__eigen *e, size_t k); /* false: no memory; free it all the same */
void ntx__eigen_free(struct ntx__eigen *e);

/* y[n x k] becomes an orthonormal basis of its columns; where these depend on each other, some become 0. */
void ntx__orthonormal(float *y, size_t n, size_t k, struct ntx__eigen *e);
/* Squares of the singular values of y[n x k], falling. value: [k]. */
void ntx__squared_singular(const float *y, size_t n, size_t k, double *value, struct ntx__eigen *e);
/* Normal values that depend on nothing but their number. */
void ntx__normal(float *x, size_t n);

/* ---- extremes.c */

/* Location of the Gumbel distribution (of largest values) that makes x[n] likeliest. */
double ntx__gumbel_location(const double *x, size_t n);
/* Where the largest of m |cosines| with random vectors of n values is expected: the Gumbel distribution's location. */
double ntx__chance_cosine(double m, double n);

#endif
