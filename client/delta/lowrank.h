/* SPDX-License-Identifier: Apache-2.0 */
/* lowrank.h: the best low-rank approximation of a matrix that is read piece by piece: randomised SVD with one power
 * iteration (Halko, Martinsson and Tropp, 2011). Used by ntx analyze and by the writer of such matrices
 * (client/delta/make.h). */
#ifndef NTX_CLIENT_DELTA_LOWRANK_H
#define NTX_CLIENT_DELTA_LOWRANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "model/gguf.h"
#include "model/quantize.h"

struct ntx__matrix {
    const struct ntx_gguf_tensor *t;
    int fd;
    uint64_t out0; /* its first output, in the tensor */
};
/* The weights of outputs first .. first + n, as floats x[n x ne[0]]; raw: room for their bytes. -EINVAL: one is not
 * finite. */
int ntx__read_outputs(const struct ntx__matrix *m, uint64_t first, uint64_t n, uint8_t *raw, float *x,
                      struct ntx_err *err);

/* ---- products.c: columns vary fastest; k a multiple of 16 */

/* y[m x k] = d[m x n] w[n x k] */
void ntx__times(const float *d, size_t m, size_t n, const float *w, size_t k, float *y);
/* z[n x k] += d[m x n]' q[m x k] */
void ntx__times_transposed(const float *d, size_t m, size_t n, const float *q, size_t k, float *z);
struct ntx__eigen { /* for k columns */
    double *a, *v;
    float *w, *some; /* some: [64 x k] */
};
bool ntx__eigen_init(struct ntx__eigen *e, size_t k); /* false: no memory; call ntx__eigen_free all the same */
void ntx__eigen_free(struct ntx__eigen *e);

/* y[n x k] becomes an orthonormal basis of its columns; if these depend on each other, some become 0. */
void ntx__orthonormal(float *y, size_t n, size_t k, struct ntx__eigen *e);
/* Squares of the singular values of y[n x k], falling. value: [k]. */
void ntx__squared_singular(const float *y, size_t n, size_t k, double *value, struct ntx__eigen *e);
/* Rotates y's columns so that they are orthogonal, longest first, and x[m x k]'s in the same way: x y' is unchanged.
 * value [k]: squares of their lengths. */
void ntx__orthogonal_by_size(float *y, size_t n, float *x, size_t m, size_t k, double *value, struct ntx__eigen *e);
/* Normal values that depend only on their index. */
void ntx__normal(float *x, size_t n);

/* ---- lowrank.c */

struct ntx__low { /* of D [out x in] */
    uint64_t in, out;
    size_t k, n;                                                  /* columns of the bases; outputs of a piece */
    int (*read)(void *ctx, uint64_t first, uint64_t n, float *d); /* reads outputs of D */
    void (*seen)(void *ctx,
                 uint64_t n); /* called after each piece of the first round, in which each comes once; or NULL */
    void *ctx;
    float *d, *y, *z, *w; /* piece [n x in]; y [out x k], z and w [in x k] */
    struct ntx__eigen eigen;
};

size_t ntx__low_columns(uint32_t rank);           /* k for that rank */
size_t ntx__low_piece(uint64_t in, uint64_t out); /* outputs of a piece of a MiB or so */
bool ntx__low_init(struct ntx__low *l);           /* allocates; false: no memory; call ntx__low_free all the same */
void ntx__low_free(struct ntx__low *l);
/* Reads D four times; then D is about y w', with y orthonormal. If D is zero, all is zero. */
int ntx__low_basis(struct ntx__low *l);

/* ---- rounding.c: n values in a type */

struct ntx__rounding {
    uint64_t n;
    float *weights, *back; /* back: the values after rounding */
    uint8_t *blocks;
};
bool ntx__rounding_init(struct ntx__rounding *r, uint64_t n); /* false: no memory; call ntx__rounding_free all the
                                                               * same */
void ntx__rounding_free(struct ntx__rounding *r);
/* The sum of squared errors. */
double ntx__round(struct ntx__rounding *r, uint32_t type, const struct ntx_quantizer *q, const float *x);

#endif
