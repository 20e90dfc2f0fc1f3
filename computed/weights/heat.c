/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/weights/heat.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define HEAT_HALF 65536.0f /* rows */
#define NO_HEAT   1e-6f    /* a smaller count is none */

int ntx_heat_new(uint32_t n_layers, uint32_t n_expert, struct ntx_heat **out)
{
    struct ntx_heat *h = calloc(1, sizeof *h);
    if (!h)
        return -ENOMEM;
    *h = (struct ntx_heat){n_layers, n_expert, calloc((size_t)n_layers * n_expert + 1, sizeof *h->uses),
                           calloc(n_layers + 1, sizeof *h->rows)};
    if (!h->uses || !h->rows) {
        ntx_heat_free(h);
        return -ENOMEM;
    }
    *out = h;
    return 0;
}

void ntx_heat_free(struct ntx_heat *h)
{
    if (!h)
        return;
    free(h->uses);
    free(h->rows);
    free(h);
}

/* The counts, and the list of bundles to read first. */
uint64_t ntx_heat_bytes(uint32_t n_bundles) { return (uint64_t)n_bundles * (sizeof(float) + sizeof(uint32_t)); }

void ntx_heat_count(struct ntx_heat *h, uint32_t layer, const uint32_t *experts, const uint32_t *rows, uint32_t n,
                    uint32_t n_rows)
{
    const float left = exp2f(-(float)n_rows / HEAT_HALF);
    float *uses = h->uses + (size_t)layer * h->n_expert;
    for (uint32_t e = 0; e < h->n_expert; e++)
        uses[e] = uses[e] * left < NO_HEAT ? 0 : uses[e] * left;
    for (uint32_t i = 0; i < n; i++)
        uses[experts[i]] += (float)rows[i];
    h->rows[layer] = h->rows[layer] * left + (float)n_rows;
}

float ntx_heat_share(const struct ntx_heat *h, uint32_t bundle)
{
    const float rows = h->rows[bundle / h->n_expert];
    return rows > 0 ? fminf(h->uses[bundle] / rows, 1) : 0;
}

static int compare_hot(const void *a, const void *b, void *heat)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const float p = ntx_heat_share(heat, x), q = ntx_heat_share(heat, y);
    if (p != q)
        return p < q ? 1 : -1;
    return x < y ? -1 : 1;
}

uint32_t ntx_heat_order(const struct ntx_heat *h, uint32_t *list)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < h->n_layers * h->n_expert; b++)
        if (ntx_heat_share(h, b) > 0)
            list[n++] = b;
    qsort_r(list, n, sizeof *list, compare_hot, (void *)(uintptr_t)h);
    return n;
}
