/* SPDX-License-Identifier: Apache-2.0 */
/* moe.h: before and after the experts' products: gathers routed rows, and adds their results to the rows. */
#ifndef NTX_CUDA_MOE_H
#define NTX_CUDA_MOE_H

#include "cuda/vector.h"

#define WIDTH_THREADS 256u

/* The weight of routed row first + i. */
DEV float routed_weight(const struct ntx_gpu_gather *a, uint32_t i)
{
    uint32_t k = a->rows[i] * a->used;
    while (a->place[k] != a->first + i)
        k++;
    return a->weight[k];
}

KERNEL(gather_rows, struct ntx_gpu_gather)
{
    uint32_t k = BX * WIDTH_THREADS + TID;
    if (4ull * k >= a.bytes)
        return;
    if (a.weight)
        ((float *)(void *)((uint8_t *)a.to + BY * a.to_stride))[k] =
            ((const float *)(const void *)((const uint8_t *)a.from + a.rows[BY] * a.from_stride))[k] *
            routed_weight(&a, BY);
    else
        ((uint32_t *)(void *)((uint8_t *)a.to + BY * a.to_stride))[k] = ((
            const uint32_t *)(const void *)((const uint8_t *)a.from + (a.rows ? a.rows[BY] : BY) * a.from_stride))[k];
}

/* As in computed/pass/moe.c: the product is rounded before it is added, and experts are added in order. */
KERNEL(combine_rows, struct ntx_gpu_combine)
{
    uint32_t e = BX * WIDTH_THREADS + TID, i = BY;
    if (e >= a.n)
        return;
    float y = a.y[i * a.ld_y + e];
    if (a.gate)
        y *= 1.0f / (1.0f + exp_exact(-a.gate[i]));
    for (uint32_t k = i * a.used; k < (i + 1) * a.used; k++)
        if (a.place[k] - a.first < a.n_choices) { /* below `first` the difference wraps around */
            float z = a.z[(uint64_t)(a.place[k] - a.first) * a.n + e];
            if (a.bias)
                z += a.bias[(uint64_t)a.expert[a.place[k]] * a.n + e];
            y += (a.weight ? a.weight[k] : 1) * z;
        }
    a.y[i * a.ld_y + e] = y;
}

int ntx__launch_gather(struct ntx_gpu_stream *s, const struct ntx_gpu_gather *p)
{
    if (p->bytes % 4 || p->from_stride % 4 || p->to_stride % 4)
        return -EINVAL;
    RETURN_LAUNCH(s, gather_rows, (uint32_t)((p->bytes / 4 + WIDTH_THREADS - 1) / WIDTH_THREADS), p->n_rows, 1,
                  WIDTH_THREADS, *p);
}

int ntx__launch_combine(struct ntx_gpu_stream *s, const struct ntx_gpu_combine *p)
{
    RETURN_LAUNCH(s, combine_rows, (p->n + WIDTH_THREADS - 1) / WIDTH_THREADS, p->n_rows, 1, WIDTH_THREADS, *p);
}

#endif
