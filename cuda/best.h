/* best.h: the k largest logits of each row, so that a sampler that wants no more need not be sent all of them.
 *
 * A block per row. The k-th largest is found a byte at a time: of each byte of the logits' order, how many values have it is counted, and
 * the values of the byte where the k-th lies go on. Of equal ones those with the least numbers are taken, as the sampler does.
 * Written in the order of their numbers. NaN counts as minus infinity, which no sampler draws. */
#ifndef NTX_CUDA_BEST_H
#define NTX_CUDA_BEST_H

#include "cuda/dialect.h"

#define BEST_THREADS 512u
#define BEST_AHEAD 8u /* logits of a thread whose loads are in flight together */

DEV float without_nan(float x) { return x == x ? x : -INFINITY; }

/* Orders as the floats do; -0 as 0. */
DEV uint32_t order_of(float x)
{
    uint32_t u = f_bits(without_nan(x) + 0.0f);
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* The largest order of which at least `want` values are no smaller; *equal: how many of that very order are wanted. */
DEV uint32_t threshold(const float *x, uint32_t n, uint32_t want, uint32_t *count /* shared [256] */, uint32_t *equal)
{
    uint32_t found = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (uint32_t i = TID; i < 256; i += BEST_THREADS)
            count[i] = 0;
        SYNC();
        for (uint32_t i0 = TID; i0 < n; i0 += BEST_AHEAD * BEST_THREADS) {
            float v[BEST_AHEAD];
            UNROLL
            for (uint32_t j = 0; j < BEST_AHEAD; j++)
                v[j] = i0 + j * BEST_THREADS < n ? x[i0 + j * BEST_THREADS] : 0;
            UNROLL
            for (uint32_t j = 0; j < BEST_AHEAD; j++) {
                uint32_t o = order_of(v[j]);
                if (i0 + j * BEST_THREADS < n && (shift == 24 || (o ^ found) >> (shift + 8) == 0))
                    count_one(&count[o >> shift & 255]);
            }
        }
        SYNC();
        uint32_t byte = 255;
        for (; count[byte] < want; byte--)
            want -= count[byte];
        found |= byte << shift;
        SYNC();
    }
    *equal = want;
    return found;
}

/* Sum over the threads before this one; each thread's value is in shared [BEST_THREADS]. */
DEV uint32_t sum_before(const uint32_t *shared)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < TID; i++)
        sum += shared[i];
    return sum;
}

KERNEL(best_of_row, struct ntx_gpu_best)
{
    SHARED uint32_t count[256], larger_ones[BEST_THREADS], equal_ones[BEST_THREADS];
    const float *x = a.x + BX * a.ld_x;
    struct ntx_gpu_candidate *out = a.out + (uint64_t)BX * a.k;
    uint32_t wanted, limit = threshold(x, a.n, a.k, count, &wanted);
    uint32_t share = (a.n + BEST_THREADS - 1) / BEST_THREADS, from = TID * share, to = from + share < a.n ? from + share : a.n;
    larger_ones[TID] = equal_ones[TID] = 0;
    for (uint32_t i = from; i < to; i++) {
        larger_ones[TID] += order_of(x[i]) > limit;
        equal_ones[TID] += order_of(x[i]) == limit;
    }
    SYNC();
    uint32_t before = sum_before(larger_ones), same = sum_before(equal_ones);
    uint32_t at = before + (same < wanted ? same : wanted);
    for (uint32_t i = from; i < to; i++) {
        uint32_t o = order_of(x[i]);
        if (o < limit || (o == limit && same++ >= wanted))
            continue;
        out[at].logit = without_nan(x[i]);
        out[at++].id = (int32_t)i;
    }
}

int ntx__launch_best(struct ntx_gpu_stream *s, const struct ntx_gpu_best *p)
{
    if (!p->k || p->k > p->n)
        return -EINVAL;
    RETURN_LAUNCH(s, best_of_row, p->n_rows, 1, 1, BEST_THREADS, *p);
}

#endif
