/* SPDX-License-Identifier: Apache-2.0 */
/* Four rounds over D's outputs, piece by piece:
 *
 *   1  y = D z, z random;   then a basis of y
 *   2  w = D' y;            then a basis of w (the power iteration)
 *   3  y = D w;             then a basis of y
 *   4  w = D' y, whose singular values are those of D within the basis: what is left of |D| is the error */
#include "client/delta/lowrank.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "model/quant.h"

#define PIECE (1u << 20) /* floats of a piece of one matrix */
#define SPARE 16u        /* columns of the basis beyond the largest rank */

int ntx__read_outputs(const struct ntx__matrix *m, uint64_t first, uint64_t n, uint8_t *raw, float *x,
                      struct ntx_err *err)
{
    size_t each = ntx_row_bytes(m->t->type, m->t->ne[0]), bytes = each * n, done = 0;
    off_t at = (off_t)(m->t->offset + (m->out0 + first) * each);
    while (done < bytes) {
        ssize_t got = pread(m->fd, raw + done, bytes - done, at + (off_t)done);
        if (got <= 0)
            return ntx_err_set(err, got ? -errno : -ENODATA, "tensor '%s' cannot be read: %s", m->t->name,
                               got ? strerror(errno) : "the file ends");
        done += (size_t)got;
    }
    const struct ntx_type_info *type = ntx_type_info(m->t->type);
    type->dequant(raw, x, m->t->ne[0] * n / type->block);
    float sum = 0;
    for (size_t i = 0; i < m->t->ne[0] * n; i++)
        sum += x[i] * 0; /* 0, or NaN */
    return sum == 0 ? 0
                    : ntx_err_set(err, -EINVAL, "tensor '%s' has a weight that is no number; the model is broken",
                                  m->t->name);
}

size_t ntx__low_columns(uint32_t rank) { return NTX_ROUND_UP(rank + SPARE, 16u); }
size_t ntx__low_piece(uint64_t in, uint64_t out) { return NTX_MIN(NTX_MAX(PIECE / in, 4u), out); }

bool ntx__low_init(struct ntx__low *l)
{
    l->d = malloc(l->n * l->in * sizeof *l->d);
    l->y = malloc(l->out * l->k * sizeof *l->y);
    l->z = malloc(l->in * l->k * sizeof *l->z);
    l->w = malloc(l->in * l->k * sizeof *l->w);
    return ntx__eigen_init(&l->eigen, l->k) && l->d && l->y && l->z && l->w;
}

void ntx__low_free(struct ntx__low *l)
{
    free(l->d);
    free(l->y);
    free(l->z);
    free(l->w);
    ntx__eigen_free(&l->eigen);
}

/* Computes d times z into y, or d' times y into w. */
static int one_round(struct ntx__low *l, bool transposed, bool first)
{
    int rc = 0;
    if (transposed)
        memset(l->w, 0, l->in * l->k * sizeof *l->w);
    for (uint64_t at = 0; at < l->out && !rc; at += l->n) {
        uint64_t n = NTX_MIN(l->n, l->out - at);
        if ((rc = l->read(l->ctx, at, n, l->d)))
            break;
        if (first && l->seen)
            l->seen(l->ctx, n);
        if (transposed)
            ntx__times_transposed(l->d, n, l->in, l->y + at * l->k, l->k, l->w);
        else
            ntx__times(l->d, n, l->in, l->z, l->k, l->y + at * l->k);
    }
    return rc;
}

static bool zeros(const float *x, size_t n)
{
    while (n && x[n - 1] == 0)
        n--;
    return !n;
}

int ntx__low_basis(struct ntx__low *l)
{
    ntx__normal(l->z, l->in * l->k);
    int rc = one_round(l, false, true);
    if (!rc && zeros(l->y, l->out * l->k)) {
        memset(l->w, 0, l->in * l->k * sizeof *l->w);
        return 0;
    }
    if (rc)
        return rc;
    ntx__orthonormal(l->y, l->out, l->k, &l->eigen);
    if ((rc = one_round(l, true, false)))
        return rc;
    memcpy(l->z, l->w, l->in * l->k * sizeof *l->z);
    ntx__orthonormal(l->z, l->in, l->k, &l->eigen);
    if ((rc = one_round(l, false, false)))
        return rc;
    ntx__orthonormal(l->y, l->out, l->k, &l->eigen);
    return one_round(l, true, false);
}
