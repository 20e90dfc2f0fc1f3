/* SPDX-License-Identifier: Apache-2.0 */
/* groups.h: the FFN of a packed layer, computed from its groups of neurons in place, with the CPU's order of
 * accumulation and so its bits (computed/pass/sparse.c). Gate and up are products (product.h); then come the hidden
 * values, then the sum of the down columns, neuron by neuron.
 *
 *   columns   a block of threads adds 32 values of each column, for COLUMNS_ROWS rows. Loading warps widen the next
 *             COLUMNS_DEEP neurons' values to shared memory, a neuron per thread: these loads take longest, and all are
 *             in flight at once. Meanwhile adding warps go through this step's neurons in order, a thread for one value
 *             of each of its rows */
#ifndef NTX_CUDA_GROUPS_H
#define NTX_CUDA_GROUPS_H

#include "cuda/many.h"
#include "cuda/moe.h"

#define COLUMNS_WARPS   4u /* adding warps */
#define COLUMNS_DEEP    128u
#define COLUMNS_LD      (WARP + 4u) /* adjacent threads write to different banks */
#define COLUMNS_EACH    8           /* rows of a warp */
#define COLUMNS_ROWS    (COLUMNS_WARPS * COLUMNS_EACH)
#define COLUMNS_THREADS (COLUMNS_WARPS * WARP + COLUMNS_DEEP)

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

/* ---- columns */

struct columns_memory {
    float w[2][COLUMNS_DEEP][COLUMNS_LD] __attribute__((aligned(16))); /* the step that is added, and the next */
    float by[COLUMNS_WARPS][COLUMNS_EACH][WARP] __attribute__((aligned(16)));
};

/* Widens part b of a column of n values. */
DEV void widen_part(const uint32_t type, const uint8_t *column, uint32_t b, uint32_t n,
                    float *to /* 16-aligned [WARP] */, const int wide)
{
    struct unpacked u;
    uint32_t v[4];
    if (rule_of(type) != NTX_RULE_FLOAT)
        many_unpack(type, column, b, &u, wide);
    UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        UNROLL
        for (uint32_t c = 0; c < 4; c++) {
            const uint32_t at = b * WARP + 4 * i + c, k = at < n ? at : n - 1;
            v[c] = f_bits(rule_of(type) != NTX_RULE_FLOAT ? unpacked_value(type, &u, i, c)
                                                          : float_value(type, column, k));
        }
        store_words4(to + 4 * i, v);
    }
}

DEV uint32_t columns_of(const struct ntx_gpu_columns *a) { return a->groups.n * a->groups.size; }

/* A thread widens its neuron of a step. */
DEV void load_columns(const uint32_t type, const struct ntx_gpu_columns *a, uint32_t step, struct columns_memory *m,
                      const int wide)
{
    const uint32_t c = TID - COLUMNS_WARPS * WARP, n = columns_of(a), i = step * COLUMNS_DEEP + c,
                   ahead = i + 2 * COLUMNS_DEEP;
    const uint8_t *w = (const uint8_t *)a->w + BZ * a->heads.w;
    if (ahead < n) /* so that it will be in the L2 cache */
        prefetch_line(w + in_group(&a->groups, neuron_at(&a->groups, ahead), a->row_bytes) +
                      (uint64_t)BX * WARP / block_values(type) * block_size(type));
    if (i < n)
        widen_part(type, w + in_group(&a->groups, neuron_at(&a->groups, i), a->row_bytes), BX, a->n, m->w[step % 2][c],
                   wide);
}

/* Loads neuron i's hidden values of this warp's rows; 0 for neurons that do not exist. */
DEV void load_hidden(const struct ntx_gpu_columns *a, uint32_t i, uint32_t first, uint32_t rows, float *by,
                     const int each)
{
    const uint32_t j = i < columns_of(a) ? neuron_at(&a->groups, i) : a->groups.n_neurons;
    UNROLL
    for (int e = 0; e < each; e++) {
        const uint32_t r = TID / WARP + (uint32_t)e * COLUMNS_WARPS;
        by[e] = r < rows && j < a->groups.n_neurons
                    ? a->hidden[BZ * a->heads.x + (uint64_t)(first + r) * a->ld_hidden + j]
                    : 0;
    }
}

DEV void add_columns(const struct ntx_gpu_columns *a, uint32_t step, uint32_t first, uint32_t rows,
                     struct columns_memory *m, float *acc, const int each)
{
    float(*mine)[WARP] = m->by[TID / WARP], next[COLUMNS_EACH], w[4];
    load_hidden(a, step * COLUMNS_DEEP + TID % WARP, first, rows, next, each);
    for (uint32_t from = 0; from < COLUMNS_DEEP && step * COLUMNS_DEEP + from < columns_of(a); from += WARP) {
        UNROLL
        for (int e = 0; e < each; e++)
            mine[e][TID % WARP] = next[e];
        SYNC_WARP();
        if (from + WARP < COLUMNS_DEEP)
            load_hidden(a, step * COLUMNS_DEEP + from + WARP + TID % WARP, first, rows, next, each);
        for (uint32_t c = 0; c < WARP; c += 4) {
            UNROLL
            for (uint32_t k = 0; k < 4; k++)
                w[k] = m->w[step % 2][from + c + k][TID % WARP];
            UNROLL
            for (int e = 0; e < each; e++) {
                uint32_t by[4];
                load_words4(&mine[e][c], by);
                UNROLL
                for (uint32_t k = 0; k < 4; k++)
                    if (by[k] << 1) /* uniform over the warp; zeros of either sign add nothing */
                        acc[e] = fmaf(bits_f(by[k]), w[k], acc[e]);
            }
        }
        SYNC_WARP();
    }
}

DEV void sum_columns(const uint32_t type, const struct ntx_gpu_columns *a, struct columns_memory *m, const int each)
{
    const uint32_t first = BY * COLUMNS_ROWS,
                   rows = a->n_rows - first < COLUMNS_ROWS ? a->n_rows - first : COLUMNS_ROWS,
                   k = BX * WARP + TID % WARP;
    const int wide = block_size(type) % 16 == 0 && lie_at_16(a->w, a->heads.w | a->row_bytes | a->groups.bytes),
              adds = TID < COLUMNS_WARPS * WARP;
    float acc[COLUMNS_EACH], *y = a->y + BZ * a->heads.y + (uint64_t)(first + TID / WARP) * a->ld_y + k;
    UNROLL
    for (int e = 0; e < each; e++)
        acc[e] = adds && TID / WARP + (uint32_t)e * COLUMNS_WARPS < rows && k < a->n
                     ? y[(uint64_t)e * COLUMNS_WARPS * a->ld_y]
                     : 0;
    if (!adds)
        load_columns(type, a, 0, m, wide);
    SYNC();
    for (uint32_t step = 0; step * COLUMNS_DEEP < columns_of(a); step++) {
        if (adds)
            add_columns(a, step, first, rows, m, acc, each);
        else if ((step + 1) * COLUMNS_DEEP < columns_of(a))
            load_columns(type, a, step + 1, m, wide);
        SYNC();
    }
    UNROLL
    for (int e = 0; e < each; e++)
        if (adds && TID / WARP + (uint32_t)e * COLUMNS_WARPS < rows && k < a->n)
            y[(uint64_t)e * COLUMNS_WARPS * a->ld_y] = acc[e];
}

/* _1: for few rows, one per adding warp. */
#define COLUMNS(rule, TYPE, ...)                                                                                       \
    KERNEL(columns_##TYPE##_1, struct ntx_gpu_columns)                                                                 \
    {                                                                                                                  \
        SHARED struct columns_memory m;                                                                                \
        sum_columns(NTX_##TYPE, &a, &m, 1);                                                                            \
    }                                                                                                                  \
    KERNEL(columns_##TYPE##_8, struct ntx_gpu_columns)                                                                 \
    {                                                                                                                  \
        SHARED struct columns_memory m;                                                                                \
        sum_columns(NTX_##TYPE, &a, &m, COLUMNS_EACH);                                                                 \
    }
NTX_TYPES(COLUMNS)

int ntx__launch_hidden(struct ntx_gpu_stream *s, const struct ntx_gpu_hidden *p)
{
    RETURN_LAUNCH(s, hidden_values, (p->groups.n * p->groups.size + WIDTH_THREADS - 1) / WIDTH_THREADS, p->n_rows, 1,
                  WIDTH_THREADS, *p);
}

#define COLUMNS_CASE(rule, TYPE, ...)                                                                                  \
    case NTX_##TYPE:                                                                                                   \
        if (p->n_rows <= COLUMNS_WARPS)                                                                                \
            RETURN_LAUNCH(s, columns_##TYPE##_1, wide, high, heads, COLUMNS_THREADS, *p);                              \
        RETURN_LAUNCH(s, columns_##TYPE##_8, wide, high, heads, COLUMNS_THREADS, *p);

int ntx__launch_columns(struct ntx_gpu_stream *s, const struct ntx_gpu_columns *p)
{
    const uint32_t wide = (p->n + WARP - 1) / WARP, high = (p->n_rows + COLUMNS_ROWS - 1) / COLUMNS_ROWS,
                   heads = p->heads.n ? p->heads.n : 1;
    switch (p->type) {
        NTX_TYPES(COLUMNS_CASE)
    default: return -EINVAL;
    }
}

#endif
