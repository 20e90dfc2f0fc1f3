/* SPDX-License-Identifier: Apache-2.0 */
/* largest.h: selects the k largest of n values; of equal ones, the first. */
#ifndef NTX_COMPUTED_SAMPLE_LARGEST_H
#define NTX_COMPUTED_SAMPLE_LARGEST_H

#include <stdbool.h>
#include <stdint.h>

struct ntx_cut {
    float least;    /* least value that is kept */
    uint32_t equal; /* how many of the values equal to it are kept */
};

/* k from 1 to n; scratch: [n]. No value may be NaN. */
struct ntx_cut ntx_cut_at(const float *v, float *scratch, uint32_t n, uint32_t k);

/* Whether a value is kept. Call it once for each value, in order. */
static inline bool ntx_cut_keeps(struct ntx_cut *c, float v)
{
    bool keep = v > c->least || (v == c->least && c->equal);
    c->equal -= keep && v == c->least;
    return keep;
}

#endif
