/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/sample/largest.h"

#include <string.h>

/* The k-th largest of v[0..n), k from 1; reorders v. */
static float kth_largest(float *v, uint32_t n, uint32_t k)
{
    uint32_t low = 0, high = n;
    for (;;) { /* it is in [low, high) */
        float pivot = v[low + (high - low) / 2];
        uint32_t more = low, same = low;
        for (uint32_t i = low; i < high; i++) { /* larger ones to the front, then equal ones */
            float x = v[i];
            if (x > pivot) {
                v[i] = v[same];
                v[same++] = v[more];
                v[more++] = x;
            } else if (x == pivot) {
                v[i] = v[same];
                v[same++] = x;
            }
        }
        if (k <= more - low) {
            high = more;
        } else if (k <= same - low) {
            return pivot;
        } else {
            k -= same - low;
            low = same;
        }
    }
}

struct ntx_cut ntx_cut_at(const float *v, float *scratch, uint32_t n, uint32_t k)
{
    memcpy(scratch, v, n * sizeof *v);
    struct ntx_cut c = {.least = kth_largest(scratch, n, k), .equal = k};
    for (uint32_t i = 0; i < n; i++)
        c.equal -= v[i] > c.least;
    return c;
}
