/* SPDX-License-Identifier: Apache-2.0 */
/* planes.c: bench_planes [MIB [SECONDS]]: products with weights in high and low bits (computed/cpu/planes.h) beside
 * those of the whole type, one thread, rows of 1536 values, weights from memory (MIB, 64; or from the cache with 0).
 * They take turns. CSV: type, instruction set, rows, and CPU time of the joined ones and of high bits alone, each as a
 * part of the whole type's, by the best of the passes within SECONDS (0.5) for each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/util.h"
#include "computed/cpu/planes.h"
#include "model/planes.h"

enum { N_IN = 1536, MOST_ROWS = 16, SOME_OUTS = 64 };

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct lab {
    const struct ntx_cpu_ops *ops;
    const struct ntx_planes *p;
    uint8_t *whole, *high, *low, *x, *joined;
    uint32_t n_out;
    size_t x_stride;
    float *y;
};

enum way { WHOLE, JOINED, HIGH, WAYS };

static double pass_s(const struct lab *l, enum way way, uint32_t rows)
{
    const size_t row = ntx_row_bytes(l->p->whole, N_IN), high = ntx_row_bytes(l->p->high, N_IN),
                 low = ntx_row_bytes(l->p->low, N_IN);
    const double from = cpu_s();
    for (uint32_t o = 0; o < l->n_out; o += SOME_OUTS) { /* as threads take tiles */
        const struct ntx_planes_weights w = {way == HIGH ? l->p->high : l->p->low, SOME_OUTS, N_IN, l->high + o * high,
                                             way == HIGH ? NULL : l->low + o * low};
        if (way == WHOLE)
            l->ops->matmul[l->p->whole](l->whole + o * row, row, SOME_OUTS, N_IN, l->x, l->x_stride, rows, l->y,
                                        SOME_OUTS);
        else
            ntx_cpu_multiply_planes(l->ops, &w, l->x, l->x_stride, rows, l->y, SOME_OUTS, l->joined);
    }
    return cpu_s() - from;
}

static void fill(uint8_t *p, size_t n)
{
    uint32_t seed = 7;
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
}

static void measure(struct lab *l, size_t bytes, double seconds)
{
    const size_t row = ntx_row_bytes(l->p->whole, N_IN);
    float x[N_IN];
    const enum ntx_act form = ntx_act_for(l->p->whole);
    l->n_out = NTX_MAX((uint32_t)(bytes / row) / SOME_OUTS, 1u) * SOME_OUTS;
    l->whole = malloc(l->n_out * row);
    l->high = malloc(l->n_out * ntx_row_bytes(l->p->high, N_IN) + 64);
    l->low = malloc(l->n_out * ntx_row_bytes(l->p->low, N_IN) + 64);
    l->joined = malloc(NTX_PLANES_OUTS * row);
    l->x_stride = NTX_ROUND_UP(ntx_act_row_bytes(form, N_IN), 64);
    l->x = aligned_alloc(64, MOST_ROWS * l->x_stride);
    l->y = malloc(sizeof *l->y * MOST_ROWS * SOME_OUTS);
    if (!l->whole || !l->high || !l->low || !l->joined || !l->x || !l->y)
        exit(1);
    fill(l->whole, l->n_out * row);
    for (uint32_t o = 0; o < l->n_out; o++)
        ntx_planes_split(l->p, l->whole + o * row, l->high + o * ntx_row_bytes(l->p->high, N_IN),
                         l->low + o * ntx_row_bytes(l->p->low, N_IN), N_IN / ntx_type_info(l->p->whole)->block);
    for (uint32_t i = 0; i < N_IN; i++)
        x[i] = (float)(i % 17) - 8;
    for (uint32_t r = 0; r < MOST_ROWS; r++)
        l->ops->act_quantize[form](x, l->x + r * l->x_stride, N_IN);
    for (uint32_t rows = 1; rows <= MOST_ROWS; rows *= 2) {
        double best[WAYS] = {1e9, 1e9, 1e9};
        for (double end = cpu_s() + WAYS * seconds; cpu_s() < end;)
            for (int way = 0; way < WAYS; way++)
                best[way] = NTX_MIN(best[way], pass_s(l, (enum way)way, rows));
        printf("%s,%s,%u,%.2f,%.2f,%.1f\n", ntx_type_info(l->p->low)->name, l->ops->name, rows,
               best[JOINED] / best[WHOLE], best[HIGH] / best[WHOLE],
               (double)l->n_out * (double)row / best[WHOLE] / 1e9);
        (void)fflush(stdout);
    }
    free(l->whole);
    free(l->high);
    free(l->low);
    free(l->joined);
    free(l->x);
    free(l->y);
}

int main(int argc, char **argv)
{
    const size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
    const double seconds = argc > 2 ? strtod(argv[2], NULL) : 0.5;
    static const char *const sets[] = {"avx512", "avx2", "neon"};
    puts("type,set,rows,joined,high,whole_gb_s");
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
        for (uint32_t t = NTX_PLANES_FIRST; t < NTX_TYPE_LIMIT; t++) {
            struct lab l = {.ops = ntx_cpu_pick(sets[s]), .p = ntx_planes_of(t)};
            if (l.ops && l.p->low == t)
                measure(&l, mib ? mib << 20 : 128 << 10, seconds);
        }
    return 0;
}
