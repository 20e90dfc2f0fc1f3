/* SPDX-License-Identifier: Apache-2.0 */
/* best.h: the k largest logits of each row, so that the host need not download all of them.
 *
 * One block takes NTX_GPU_BEST_PART values of a row; another block selects among the candidates of all parts. The k-th
 * largest is found by radix selection: for each byte of the logits' order, the block counts how many values have it,
 * and goes on with the values whose byte is that of the k-th. Of equal values those with the lowest numbers are taken,
 * as the sampler does. They are written in the order of their numbers. NaN counts as minus infinity, which no sampler
 * draws. */
#ifndef NTX_CUDA_BEST_H
#define NTX_CUDA_BEST_H

#include "cuda/dialect.h"

#define BEST_THREADS 512u
#define BEST_AHEAD   8u /* loads of a thread that are in flight together */

DEV float without_nan(float x) { return x == x ? x : -INFINITY; }

/* An integer with the order of the floats; -0 equals 0. */
DEV uint32_t order_of(float x)
{
    uint32_t u = f_bits(without_nan(x) + 0.0f);
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* The order of the want-th largest value; *equal: how many values of this order are taken. Values are `step` floats
 * apart. */
DEV uint32_t threshold(const float *x, uint32_t n, const uint32_t step, uint32_t want,
                       uint32_t *count /* shared [256] */, uint32_t *equal)
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
                v[j] = i0 + j * BEST_THREADS < n ? x[(i0 + j * BEST_THREADS) * step] : 0;
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

/* Sum of v over the threads before this one; shared: [BEST_THREADS], [BEST_THREADS / WARP]. */
DEV uint32_t sum_before(uint32_t v, uint32_t *each, uint32_t *warps)
{
    int32_t all = (int32_t)v;
    UNROLL
    for (uint32_t m = WARP / 2; m; m /= 2)
        all += xor_i(all, m);
    each[TID] = v;
    if (TID % WARP == 0)
        warps[TID / WARP] = (uint32_t)all;
    SYNC();
    uint32_t sum = 0;
    for (uint32_t w = 0; w < TID / WARP; w++)
        sum += warps[w];
    for (uint32_t i = TID / WARP * WARP; i < TID; i++)
        sum += each[i];
    SYNC();
    return sum;
}

struct best_memory { /* shared */
    uint32_t count[256], each[BEST_THREADS], warps[BEST_THREADS / WARP];
};

/* This thread's values [from, to). at: place of the first one that is taken; same: values of order `limit` before
 * it. */
struct best_share {
    uint32_t from, to, at, same, limit, wanted;
};

DEV struct best_share best_share_of(const float *x, uint32_t n, const uint32_t step, uint32_t k, struct best_memory *m)
{
    struct best_share s;
    s.limit = threshold(x, n, step, k, m->count, &s.wanted);
    const uint32_t share = (n + BEST_THREADS - 1) / BEST_THREADS;
    s.from = TID * share < n ? TID * share : n;
    s.to = s.from + share < n ? s.from + share : n;
    uint32_t larger = 0, equal = 0;
    for (uint32_t i = s.from; i < s.to; i++) {
        const uint32_t o = order_of(x[i * step]);
        larger += o > s.limit;
        equal += o == s.limit;
    }
    const uint32_t before = sum_before(larger, m->each, m->warps);
    s.same = sum_before(equal, m->each, m->warps);
    s.at = before + (s.same < s.wanted ? s.same : s.wanted);
    return s;
}

/* Whether x is taken. Called for each of the thread's values in order. */
DEV int best_takes(struct best_share *s, float x)
{
    const uint32_t o = order_of(x);
    return o > s->limit || (o == s->limit && s->same++ < s->wanted);
}

/* The k largest of part BX of row BY. If the part is smaller, the rest is filled with minus infinity. */
KERNEL_OF(BEST_THREADS, best_of_part, struct ntx_gpu_best)
{
    SHARED struct best_memory m;
    const uint32_t first = BX * NTX_GPU_BEST_PART,
                   n = a.n - first < NTX_GPU_BEST_PART ? a.n - first : NTX_GPU_BEST_PART, k = a.k < n ? a.k : n;
    const float *x = a.x + BY * a.ld_x + first;
    struct ntx_gpu_candidate *out = a.some + ((uint64_t)BY * a.parts + BX) * a.k;
    struct best_share s = best_share_of(x, n, 1, k, &m);
    for (uint32_t i = s.from; i < s.to; i++)
        if (best_takes(&s, x[i])) {
            out[s.at].logit = without_nan(x[i]);
            out[s.at++].id = (int32_t)(first + i);
        }
    for (uint32_t i = k + TID; i < a.k; i += BEST_THREADS) {
        out[i].logit = -INFINITY;
        out[i].id = -1;
    }
}

/* The k largest of row BX, from its parts' candidates, which are in the order of their numbers. */
KERNEL_OF(BEST_THREADS, best_of_parts, struct ntx_gpu_best)
{
    SHARED struct best_memory m;
    const struct ntx_gpu_candidate *some = a.some + (uint64_t)BX * a.parts * a.k;
    struct ntx_gpu_candidate *out = a.out + (uint64_t)BX * a.k;
    struct best_share s = best_share_of(&some->logit, a.parts * a.k, sizeof *some / sizeof(float), a.k, &m);
    for (uint32_t i = s.from; i < s.to; i++)
        if (best_takes(&s, some[i].logit))
            out[s.at++] = some[i];
}

KERNEL_OF(BEST_THREADS, best_of_row, struct ntx_gpu_best)
{
    SHARED struct best_memory m;
    const float *x = a.x + BX * a.ld_x;
    struct ntx_gpu_candidate *out = a.out + (uint64_t)BX * a.k;
    struct best_share s = best_share_of(x, a.n, 1, a.k, &m);
    for (uint32_t i = s.from; i < s.to; i++)
        if (best_takes(&s, x[i])) {
            out[s.at].logit = without_nan(x[i]);
            out[s.at++].id = (int32_t)i;
        }
}

static int launch_parts(struct ntx_gpu_stream *s, const struct ntx_gpu_best *p)
{
    RETURN_LAUNCH(s, best_of_part, p->parts, p->n_rows, 1, BEST_THREADS, *p);
}

int ntx__launch_best(struct ntx_gpu_stream *s, const struct ntx_gpu_best *p)
{
    struct ntx_gpu_best a = *p;
    a.parts = (a.n + NTX_GPU_BEST_PART - 1) / NTX_GPU_BEST_PART;
    if (!a.k || a.k > a.n || a.k > NTX_GPU_BEST_PART)
        return -EINVAL;
    if (a.parts == 1)
        RETURN_LAUNCH(s, best_of_row, a.n_rows, 1, 1, BEST_THREADS, a);
    int rc = launch_parts(s, &a);
    if (rc)
        return rc;
    RETURN_LAUNCH(s, best_of_parts, a.n_rows, 1, 1, BEST_THREADS, a);
}

#endif
