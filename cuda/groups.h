/* groups.h: the FFN of a packed layer, from its groups of neurons as they lie, with the CPU's order of accumulation and so its bits
 * (infer/sparse.c): gate and up are products (product.h), then the hidden values, then the sum of the down columns, neuron by neuron.
 *
 *   columns   a block of threads makes COLUMNS_WIDE values of y for COLUMNS_ROWS rows: COLUMNS_DEEP neurons at a time are widened by all threads, then
 *             each thread adds them, in turn, to one value of every fourth row */
#ifndef NTX_CUDA_GROUPS_H
#define NTX_CUDA_GROUPS_H

#include "cuda/moe.h"
#include "cuda/value.h"

#define COLUMNS_THREADS 256u
#define COLUMNS_WIDE 64u
#define COLUMNS_DEEP 64u
#define COLUMNS_LANES (COLUMNS_THREADS / COLUMNS_WIDE)
#define COLUMNS_EACH 8u /* rows of a thread */
#define COLUMNS_ROWS (COLUMNS_LANES * COLUMNS_EACH)

KERNEL(hidden_values, struct ntx_gpu_hidden)
{
    uint32_t i = BX * WIDTH_THREADS + TID, r = BY;
    if (i >= a.groups.n * a.groups.size)
        return;
    uint32_t j = neuron_at(&a.groups, i);
    if (j >= a.groups.n_neurons)
        return;
    float *gate = a.gate + r * a.ld_gate + j;
    if (a.uses && !a.uses[r * a.ld_uses + j / a.groups.size])
        *gate = 0;
    else
        *gate = activated(*gate, a.up[r * a.ld_up + j], a.act);
}

/* Neurons i0 .. of this block's part of the width, 0 behind the last. */
DEV void widen_columns(const struct ntx_gpu_columns *a, uint32_t i0, float *w /* shared [COLUMNS_DEEP x COLUMNS_WIDE] */)
{
    uint32_t k = BX * COLUMNS_WIDE + TID % COLUMNS_WIDE;
    UNROLL
    for (uint32_t c = TID / COLUMNS_WIDE; c < COLUMNS_DEEP; c += COLUMNS_LANES) {
        float v = 0;
        if (k < a->n && i0 + c < a->groups.n * a->groups.size) {
            uint32_t j = neuron_at(&a->groups, i0 + c);
            v = value_at(a->type, (const uint8_t *)a->w + BZ * a->heads.w + in_group(&a->groups, j, a->row_bytes), k);
        }
        w[c * COLUMNS_WIDE + TID % COLUMNS_WIDE] = v;
    }
}

DEV void take_hidden(const struct ntx_gpu_columns *a, uint32_t i0, float *h /* shared [COLUMNS_ROWS x COLUMNS_DEEP] */)
{
    for (uint32_t e = TID; e < COLUMNS_ROWS * COLUMNS_DEEP; e += COLUMNS_THREADS) {
        uint32_t r = BY * COLUMNS_ROWS + e / COLUMNS_DEEP, i = i0 + e % COLUMNS_DEEP;
        float v = 0;
        if (r < a->n_rows && i < a->groups.n * a->groups.size) {
            uint32_t j = neuron_at(&a->groups, i);
            v = j < a->groups.n_neurons ? a->hidden[BZ * a->heads.x + r * a->ld_hidden + j] : 0;
        }
        h[e] = v;
    }
}

KERNEL(add_columns, struct ntx_gpu_columns)
{
    SHARED float w[COLUMNS_DEEP * COLUMNS_WIDE];
    SHARED float h[COLUMNS_ROWS * COLUMNS_DEEP];
    uint32_t lane = TID / COLUMNS_WIDE, k = BX * COLUMNS_WIDE + TID % COLUMNS_WIDE, first = BY * COLUMNS_ROWS;
    uint32_t rows = a.n_rows - first < COLUMNS_ROWS ? a.n_rows - first : COLUMNS_ROWS;
    float acc[COLUMNS_EACH];
    UNROLL
    for (uint32_t e = 0; e < COLUMNS_EACH; e++)
        acc[e] = lane + e * COLUMNS_LANES < rows && k < a.n ? a.y[BZ * a.heads.y + (first + lane + e * COLUMNS_LANES) * a.ld_y + k] : 0;
    for (uint32_t i0 = 0; i0 < a.groups.n * a.groups.size; i0 += COLUMNS_DEEP) {
        widen_columns(&a, i0, w);
        take_hidden(&a, i0, h);
        SYNC();
        for (uint32_t c = 0; c < COLUMNS_DEEP; c++) {
            UNROLL
            for (uint32_t e = 0; e < COLUMNS_EACH; e++) {
                float by = h[(lane + e * COLUMNS_LANES) * COLUMNS_DEEP + c];
                if (by != 0) /* the same for the whole warp */
                    acc[e] = fmaf(by, w[c * COLUMNS_WIDE + TID % COLUMNS_WIDE], acc[e]);
            }
        }
        SYNC();
    }
    UNROLL
    for (uint32_t e = 0; e < COLUMNS_EACH; e++)
        if (lane + e * COLUMNS_LANES < rows && k < a.n)
            a.y[BZ * a.heads.y + (first + lane + e * COLUMNS_LANES) * a.ld_y + k] = acc[e];
}

int ntx__launch_hidden(struct ntx_gpu_stream *s, const struct ntx_gpu_hidden *p)
{
    RETURN_LAUNCH(s, hidden_values, (p->groups.n * p->groups.size + WIDTH_THREADS - 1) / WIDTH_THREADS, p->n_rows, 1, WIDTH_THREADS, *p);
}

int ntx__launch_columns(struct ntx_gpu_stream *s, const struct ntx_gpu_columns *p)
{
    RETURN_LAUNCH(s, add_columns, (p->n + COLUMNS_WIDE - 1) / COLUMNS_WIDE, (p->n_rows + COLUMNS_ROWS - 1) / COLUMNS_ROWS, p->heads.n ? p->heads.n : 1, COLUMNS_THREADS, *p);
}

#endif
