/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "client/delta/lowrank.h"
#include "model/quant.h"

bool ntx__rounding_init(struct ntx__rounding *r, uint64_t n)
{
    *r = (struct ntx__rounding){.n = n,
                                .weights = malloc(n * sizeof *r->weights),
                                .back = malloc(n * sizeof *r->back),
                                .blocks = malloc(n * sizeof(float))};
    return r->weights && r->back && r->blocks;
}

void ntx__rounding_free(struct ntx__rounding *r)
{
    free(r->weights);
    free(r->back);
    free(r->blocks);
}

double ntx__round(struct ntx__rounding *r, uint32_t type, const struct ntx_quantizer *q, const float *x)
{
    const struct ntx_type_info *t = ntx_type_info(type);
    double sum = 0;
    ntx_quantize_weights(x, NULL, r->n, r->weights);
    ntx_quantize(q, x, r->weights, r->blocks, r->n / t->block);
    t->dequant(r->blocks, r->back, r->n / t->block);
    for (uint64_t i = 0; i < r->n; i++)
        sum += ((double)r->back[i] - (double)x[i]) * ((double)r->back[i] - (double)x[i]);
    return sum;
}
