/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/sample/surprise.h"

#include <math.h>
#include <stdlib.h>

#include "computed/sample/noise.h"

#define LOG_2 0.6931471805599453
enum { RANKS = 100 }; /* tokens by which version 1 estimates the tail */

static uint64_t mass_of_first(const struct ntx_weighed *w, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += w[i].mass;
    return sum;
}

/* log of the sum of e^-below. */
static double log_total(uint64_t mass) { return ntx_noise_log((double)mass * 0x1p-30); }

/* By the distance in `below`, then by id, so that the order is one and the same for any order before. */
static int by_distance(const void *a, const void *b)
{
    const struct ntx_weighed *x = a, *y = b;
    if (x->below != y->below)
        return x->below < y->below ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

uint32_t ntx_typical_keep(struct ntx_weighed *w, uint32_t n, double share)
{
    qsort(w, n, sizeof *w, by_distance); /* one order of sums */
    const uint64_t all = mass_of_first(w, n);
    const double total = log_total(all);
    double mean = 0, sum = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += (double)w[i].mass / (double)all * (w[i].below + total);
    for (uint32_t i = 0; i < n; i++)
        w[i].below = fabs(w[i].below + total - mean);
    qsort(w, n, sizeof *w, by_distance);
    while (kept < n && sum < share * (double)all)
        sum += w[kept++].mass;
    return kept ? kept : 1;
}

/* e^x, by the series for the rest of x / log 2. */
static double exp_of(double x)
{
    if (x > 700 || x < -700)
        return x > 0 ? HUGE_VAL : 0;
    const int n = (int)(x / LOG_2);
    const double r = x - n * LOG_2;
    double sum = 1;
    for (int k = 20; k > 0; k--)
        sum = 1 + r * sum / k;
    return ldexp(sum, n);
}

/* The rank at which the surprise reaches mu, if probabilities fall as rank^-s; s is fitted to the first ranks. */
static double rank_of(const struct ntx_weighed *w, uint32_t n, double mu, uint32_t n_vocab)
{
    double ti_bi = 0, ti_ti = 0;
    for (uint32_t i = 0; i + 1 < n && i + 1 < RANKS; i++) {
        const double t = ntx_noise_log((double)(i + 2) / (double)(i + 1));
        ti_bi += t * (w[i + 1].below - w[i].below);
        ti_ti += t * t;
    }
    const double s = ti_ti > 0 ? ti_bi / ti_ti : 0;
    if (!(s > 0))
        return HUGE_VAL;
    const double vocab = ntx_noise_log((double)n_vocab), e = s - 1;
    const double tail = fabs(e) < 1e-9 ? 1 / vocab : e / (1 - exp_of(-e * vocab));
    return exp_of((ntx_noise_log(tail) + mu * LOG_2) / s);
}

uint32_t ntx_mirostat_keep(struct ntx_weighed *w, uint32_t n, uint32_t version, double mu, uint32_t n_vocab)
{
    uint32_t kept = 1;
    qsort(w, n, sizeof *w, by_distance);
    if (version == 1) {
        const double rank = rank_of(w, n, mu, n_vocab);
        if (rank >= 2)
            kept = rank < n ? (uint32_t)rank : n;
        return kept;
    }
    const double total = log_total(mass_of_first(w, n));
    while (kept < n && (w[kept].below + total) / LOG_2 <= mu)
        kept++;
    return kept;
}

double ntx_mirostat_next(double mu, double tau, double eta, uint32_t mass, uint64_t of)
{
    const double surprise = ntx_noise_log((double)of / (double)mass) / LOG_2;
    return mu - eta * (surprise - tau);
}
