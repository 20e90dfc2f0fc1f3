/* SPDX-License-Identifier: Apache-2.0 */
/* median.c: the median of several rounds. On a shared machine, memory, drive and processor can each lose half of
 * their rate within seconds. */
#include <stddef.h>
#include <stdlib.h>

#include "client/doctor/doctor_impl.h"
#include "common/util.h"

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ntx__doctor_quantile(double *v, unsigned n, unsigned quarters)
{
    qsort(v, n, sizeof *v, compare_doubles);
    return v[n * quarters / 4];
}

/* Median of the double at this offset of each round. */
static double median(const struct ntx_hw *rounds, unsigned n, size_t offset)
{
    double v[NTX_DOCTOR_ROUNDS];
    n = NTX_MIN(n, (unsigned)NTX_DOCTOR_ROUNDS);
    for (unsigned i = 0; i < n; i++)
        v[i] = *(const double *)(const void *)((const char *)&rounds[i] + offset);
    qsort(v, n, sizeof *v, compare_doubles);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Attention computes from caches, so others only make it slower: the round counts in which a score was fastest. */
static void least_attend(const struct ntx_hw *rounds, unsigned n, struct ntx_hw *out)
{
    enum { OPS = 512 }; /* of a score with a head of 128 values */
    for (int t = 0; t < NTX_N_KV; t++)
        for (int many = 0; many < 2; many++) {
            double least = 0;
            for (unsigned i = 0; i < n; i++) {
                const struct ntx_hw_attend *a = &rounds[i].attend[t][many];
                const double s = a->flops > 0 ? OPS / a->flops + a->score_s : 0;
                if (s > 0 && (least <= 0 || s < least)) {
                    least = s;
                    out->attend[t][many] = *a;
                }
            }
        }
}

void ntx__doctor_median(const struct ntx_hw *rounds, unsigned n, struct ntx_hw *out)
{
#define MEDIAN(field) out->field = median(rounds, n, offsetof(struct ntx_hw, field))
    MEDIAN(ram_bps_1);
    MEDIAN(ram_bps);
    MEDIAN(layer_s);
    least_attend(rounds, n, out);
    MEDIAN(value_s);
    MEDIAN(dot_s);
    MEDIAN(read_s);
    out->in_flight = rounds->in_flight;
    out->n_reads = rounds->n_reads;
    out->n_streams = rounds->n_streams;
    out->n_kernels = rounds->n_kernels;
    for (unsigned i = 0; i < out->n_reads; i++) {
        out->reads[i] = rounds->reads[i];
        MEDIAN(reads[i].bps);
    }
    for (unsigned i = 0; i < out->n_streams; i++) {
        out->streams[i] = rounds->streams[i];
        MEDIAN(streams[i].bps);
    }
    for (unsigned i = 0; i < out->n_kernels; i++) {
        out->kernels[i] = rounds->kernels[i];
        MEDIAN(kernels[i].bps);
        MEDIAN(kernels[i].bps_1);
        MEDIAN(kernels[i].dot_s);
        if (out->kernels[i].rows ==
            1) { /* a kernel with better prefetching than plain reads shows the memory's real rate */
            out->ram_bps = NTX_MAX(out->ram_bps, out->kernels[i].bps);
            out->ram_bps_1 = NTX_MAX(out->ram_bps_1, out->kernels[i].bps_1);
        }
    }
#undef MEDIAN
}
