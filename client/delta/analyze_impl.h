/* SPDX-License-Identifier: Apache-2.0 */
/* analyze_impl.h: shared by the files of client/delta/. */
#ifndef NTX_CLIENT_DELTA_ANALYZE_IMPL_H
#define NTX_CLIENT_DELTA_ANALYZE_IMPL_H

#include <stdbool.h>
#include <stddef.h>

#include "client/delta/analyze.h"
#include "client/delta/lowrank.h"

/* ---- pair.c */

struct ntx__pair_job {
    struct ntx__matrix a, b;
    uint64_t in, out;
    bool columns; /* its neurons are columns */
    const uint32_t *types;
    struct ntx_quantizer *const *quantizer; /* [NTX_ANALYZE_TYPES] */
    const struct ntx_analyze_options *o;
};

int ntx__compare(const struct ntx__pair_job *j, struct ntx_likeness *is, struct ntx_err *err);

/* ---- extremes.c */

/* Maximum-likelihood location of a Gumbel distribution (of largest values) for x[n]. */
double ntx__gumbel_location(const double *x, size_t n);
/* Expected largest of m |cosines| with random vectors of n values: the Gumbel distribution's location. */
double ntx__chance_cosine(double m, double n);

#endif
