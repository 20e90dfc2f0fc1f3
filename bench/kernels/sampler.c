/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.c: the cost of sampling a token from a large vocabulary: bench_sampler [VOCAB [DRAWS]]. The logits are
 * like a model's: normal with a deviation of 2, and thirty that stand out. CSV: method, its settings, microseconds
 * per draw (median and 99th percentile). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/util.h"
#include "computed/sample/sampler.h"

static float normal(uint32_t *h)
{
    float sum = 0;
    for (int i = 0; i < 12; i++) {
        *h = *h * 1664525u + 1013904223u;
        sum += (float)(*h >> 8) * 0x1p-24f;
    }
    return sum - 6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, const struct ntx_sampling *s, const float *l, uint32_t n_vocab, unsigned n,
                    double *us)
{
    struct ntx_sampler *p;
    if (ntx_sampler_new(s, n_vocab, &p))
        return;
    unsigned long sum = 0;
    for (unsigned i = 0; i < n; i++) {
        uint64_t t0 = ntx_now_ns();
        sum += (unsigned long)ntx_sampler_next(p, i, l);
        us[i] = (double)(ntx_now_ns() - t0) / 1000;
    }
    qsort(us, n, sizeof *us, by_value);
    printf("%s,%g,%u,%g,%g,%.1f,%.1f,%lu\n", name, (double)s->temp, s->top_k, (double)s->top_p, (double)s->min_p,
           us[n / 2], us[n * 99 / 100], sum);
    ntx_sampler_free(p);
}

int main(int argc, char **argv)
{
    uint32_t n_vocab = argc > 1 ? (uint32_t)atoi(argv[1]) : 151936, h = 1;
    unsigned n = argc > 2 ? (unsigned)atoi(argv[2]) : 300;
    float *l = malloc(n_vocab * sizeof *l);
    double *us = malloc(n * sizeof *us);
    if (!l || !us || !n_vocab || !n)
        return 111;
    for (uint32_t i = 0; i < n_vocab; i++)
        l[i] = 2 * normal(&h) + (i % 4999 ? 0 : 12 + 2 * normal(&h));
    printf("way,temp,top_k,top_p,min_p,us,us_p99,sum\n");
    const struct {
        const char *name;
        struct ntx_sampling s;
    } ways[] = {
        {"greedy", {.temp = 0, .top_p = 1}},
        {"all", {.temp = 0.8f, .top_p = 1}},
        {"top-k", {.temp = 0.8f, .top_k = 40, .top_p = 1}},
        {"top-p", {.temp = 0.8f, .top_p = 0.95f}},
        {"min-p", {.temp = 0.8f, .top_p = 1, .min_p = 0.05f}},
        {"default", {.temp = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f}},
        {"penalties",
         {.temp = 0.8f,
          .top_k = 40,
          .top_p = 0.95f,
          .repeat_penalty = 1.1f,
          .repeat_last = 64,
          .presence_penalty = 0.5f}},
        {"top-p, flat", {.temp = 5, .top_p = 0.95f}},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        measure(ways[i].name, &ways[i].s, l, n_vocab, n, us);
    free(l);
    free(us);
    return 0;
}
