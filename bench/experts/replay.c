/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c: recorded routing of experts, replayed through computed/weights/cache.h: the hit rate of each policy at
 * several sizes of the cache. CSV on stdout.
 *
 *   bench_experts [FILE...]     a trace (picks.py makes one from a run's): lines "LAYERS EXPERTS" once, then "LAYER E E
 *                               E ..." for each layer of each pass in order
 *
 * Without files, synthetic traces (24 layers of 64 experts, 8 used, 400 passes, seeded): `even` all experts equally
 * likely; `skew` Zipf (exponent 1, another order in each layer); `drift` the same, but the order changes every 60
 * passes; `sticky` half of a token's experts are those of the token before; `both` is `skew` with three of them.
 *
 * Policies: next:HALF counts with one half-life, mixed is the daemon's. The last two columns are shares of bytes, not
 * of experts: one pool in which every other layer's experts are larger, with eviction of the least frequently used, and
 * cost-aware (greedy-dual by size and frequency). */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "computed/weights/cache.h"

enum {
    LAYERS = 24,
    EXPERTS = 64,
    USED = 8,
    PASSES = 400,
    DRIFT = 60,
    LINE = 8192,
    MOST = 4096 /* experts of a layer */
};

struct trace {
    uint32_t layers, experts;
    uint64_t n, room;
    uint32_t *bundle; /* [n] */
    uint32_t *pass;   /* [n] */
};

static int add(struct trace *t, uint32_t pass, uint32_t bundle)
{
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 4096;
        uint32_t *b = realloc(t->bundle, t->room * sizeof *b), *p = realloc(t->pass, t->room * sizeof *p);
        t->bundle = b ? b : t->bundle;
        t->pass = p ? p : t->pass;
        if (!b || !p)
            return -1;
    }
    t->bundle[t->n] = bundle;
    t->pass[t->n++] = pass;
    return 0;
}

/* The experts of a layer of a pass are held until all of them are in the cache. */
static uint64_t hits_of(struct ntx_cache *c, const struct trace *t, uint64_t from, uint64_t to)
{
    static uint32_t expert[MOST], rows[MOST]; /* a row each */
    const uint32_t layer = t->bundle[from] / t->experts;
    uint64_t hits = 0;
    for (uint64_t i = from; i < to; i++) {
        uint32_t f = ntx_cache_frame(c, t->bundle[i]);
        hits += f != NTX_NO_FRAME;
        if (f != NTX_NO_FRAME)
            ntx_cache_hold(c, f);
        expert[i - from] = t->bundle[i] % t->experts;
        rows[i - from] = 1;
    }
    ntx_cache_count(c, layer, expert, rows, (uint32_t)(to - from), 1, NULL);
    for (uint64_t i = from; i < to; i++)
        if (ntx_cache_frame(c, t->bundle[i]) == NTX_NO_FRAME)
            ntx_cache_take(c, t->bundle[i], layer, NTX_CACHE_WANTED);
    for (uint64_t i = from; i < to; i++)
        if (ntx_cache_frame(c, t->bundle[i]) != NTX_NO_FRAME)
            ntx_cache_let_go(c, ntx_cache_frame(c, t->bundle[i]));
    return hits;
}

static double hit_rate(const struct trace *t, uint32_t frames, const struct ntx_cache_policy *policy)
{
    static uint64_t bytes[NTX_MAX_LAYERS]; /* all alike */
    struct ntx_frames f;
    struct ntx_cache *c;
    uint64_t hits = 0;
    for (uint32_t l = 0; l < t->layers; l++)
        bytes[l] = 1;
    ntx_frames_sort(&f, bytes, t->layers, t->experts, 1);
    ntx_frames_share(&f, frames, 1, 0);
    if (ntx_cache_new(&f, t->layers, t->experts, policy, &c))
        return NAN;
    for (uint64_t i = 0, end; i < t->n; i = end) {
        for (end = i;
             end < t->n && t->pass[end] == t->pass[i] && t->bundle[end] / t->experts == t->bundle[i] / t->experts;
             end++)
            ;
        hits += hits_of(c, t, i, end);
    }
    ntx_cache_free(c);
    return (double)hits / (double)t->n;
}

/* ---- sizes differ and all share one pool: the possible gain of a cost-aware policy over classes of frames
 * (computed/weights/frames.h) */

enum {
    SMALL = 2654208,
    LARGE = 3063808
};                      /* bytes of an expert, in every other layer: Q4_K with the last matrix in Q4_K and in Q6_K */
#define READ_S    60e-6 /* what a read costs beside its bytes */
#define RATE      1.8e9
#define POOL_HALF 12 /* passes */

struct held {
    bool in;
    double last, count, key;
};

static double cost_aware(const struct held *h, double clock, double bytes)
{
    return clock + h->count * (3 * READ_S + bytes / RATE) / bytes;
}

/* Greedy-dual by size and frequency, or with `plain` least frequently used with ageing. Returns the share of bytes
 * that were hits. */
static double pool_rate(const struct trace *t, unsigned percent, bool plain)
{
    struct held *h = calloc((size_t)t->layers * t->experts, sizeof *h);
    double room = 0, clock = 0, all = 0, there = 0;
    for (uint32_t b = 0; h && b < t->layers * t->experts; b++)
        room += (b / t->experts % 2 ? LARGE : SMALL) * percent / 100.0;
    for (uint64_t i = 0; h && i < t->n; i++) {
        uint32_t b = t->bundle[i], n = t->layers * t->experts;
        double bytes = b / t->experts % 2 ? LARGE : SMALL, pass = t->pass[i];
        all += bytes;
        there += h[b].in ? bytes : 0;
        room -= h[b].in ? 0 : bytes;
        h[b].in = true;
        h[b].count = (plain ? h[b].count * exp2(-(pass - h[b].last) / POOL_HALF) : h[b].count) + 1;
        h[b].last = pass;
        h[b].key = plain ? log2(h[b].count) + pass / POOL_HALF : cost_aware(&h[b], clock, bytes);
        while (room < 0) {
            uint32_t least = n;
            for (uint32_t k = 0; k < n; k++)
                if (h[k].in && k / t->experts != b / t->experts && (least == n || h[k].key < h[least].key))
                    least = k;
            if (least == n)
                break; /* only this layer is there */
            h[least].in = false;
            room += least / t->experts % 2 ? LARGE : SMALL;
            clock = plain ? clock : h[least].key;
        }
    }
    free(h);
    return there / all;
}

static const float halves[] = {0.5f, 2, 4, 12, 64, 128}; /* of next:HALF */
enum { HALVES = sizeof halves / sizeof *halves };

static void report(const char *name, const struct trace *t)
{
    static const unsigned percent[] = {10, 20, 35, 50, 75};
    for (size_t k = 0; k < sizeof percent / sizeof *percent; k++) {
        uint32_t frames = t->layers * t->experts * percent[k] / 100;
        printf("%s,%u", name, percent[k]);
        for (size_t p = 0; p < HALVES; p++)
            printf(",%.4f", hit_rate(t, frames, &(struct ntx_cache_policy){1, {halves[p]}, {1}}));
        printf(",%.4f", hit_rate(t, frames, NULL));
        printf(",%.4f,%.4f\n", pool_rate(t, percent[k], true), pool_rate(t, percent[k], false));
        fflush(stdout);
    }
}

/* ---- synthetic */

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

/* Draws an expert with weight 1 / (rank + 1)^exponent. The ranks of experts differ by layer and era. */
static uint32_t draw(uint64_t *state, double exponent, uint32_t layer, uint32_t era)
{
    double total = 0, at;
    uint32_t rank = 0;
    for (uint32_t r = 0; r < EXPERTS; r++)
        total += pow(r + 1, -exponent);
    at = uniform(state) * total;
    for (; rank + 1 < EXPERTS && (at -= pow(rank + 1, -exponent)) > 0; rank++)
        ;
    return (rank * 37 + layer * 11 + era * 23) % EXPERTS;
}

static int synthesize(struct trace *t, double exponent, uint32_t drift, uint32_t kept)
{
    static uint32_t last[LAYERS][USED];
    uint64_t state = 42;
    *t = (struct trace){.layers = LAYERS, .experts = EXPERTS};
    for (uint32_t pass = 0; pass < PASSES; pass++)
        for (uint32_t l = 0; l < LAYERS; l++) {
            uint64_t taken = 0;
            uint32_t era = drift ? pass / drift : 0;
            for (uint32_t k = 0; k < USED; k++) {
                uint32_t e = pass && k < kept ? last[l][k] : draw(&state, exponent, l, era);
                while (taken >> e & 1)
                    e = draw(&state, exponent, l, era);
                taken |= 1ull << e;
                last[l][(k + kept) % USED] = e; /* the kept ones are the newest of last time */
                if (add(t, pass, l * EXPERTS + e))
                    return -1;
            }
        }
    return 0;
}

static void free_trace(struct trace *t)
{
    free(t->bundle);
    free(t->pass);
}

static int synthetic(void)
{
    static const struct {
        const char *name;
        double exponent;
        uint32_t drift, kept;
    } kinds[] = {
        {"even", 0, 0, 0}, {"skew", 1, 0, 0}, {"drift", 1, DRIFT, 0}, {"sticky", 0, 0, USED / 2}, {"both", 1, 0, 3},
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !rc; i++) {
        struct trace t;
        rc = synthesize(&t, kinds[i].exponent, kinds[i].drift, kinds[i].kept);
        if (!rc)
            report(kinds[i].name, &t);
        free_trace(&t);
    }
    return rc;
}

/* ---- recorded */

static int read_trace(const char *path, struct trace *t)
{
    char line[LINE], *at;
    uint32_t pass = 0, last = 0, layer, e;
    int n;
    FILE *f = fopen(path, "r");
    *t = (struct trace){0};
    if (!f || !fgets(line, sizeof line, f) || sscanf(line, "%u %u", &t->layers, &t->experts) != 2 || !t->layers ||
        t->layers > NTX_MAX_LAYERS || !t->experts || t->experts > MOST) {
        fprintf(stderr, "bench_experts: %s: no trace\n", path);
        if (f)
            fclose(f);
        return -1;
    }
    while (fgets(line, sizeof line, f) && sscanf(line, "%u%n", &layer, &n) == 1 && layer < t->layers) {
        pass += layer < last;
        last = layer;
        for (at = line + n; sscanf(at, "%u%n", &e, &n) == 1 && e < t->experts; at += n)
            if (add(t, pass, layer * t->experts + e))
                break;
    }
    fclose(f);
    return 0;
}

int main(int argc, char **argv)
{
    printf("trace,percent_cached");
    for (size_t p = 0; p < HALVES; p++)
        printf(",next:%g", (double)halves[p]);
    printf(",mixed,pool lfu:12,pool cost-aware\n");
    if (argc < 2)
        return synthetic() ? 111 : 0;
    for (int i = 1; i < argc; i++) {
        struct trace t;
        if (read_trace(argv[i], &t))
            return 111;
        report(argv[i], &t);
        free_trace(&t);
    }
    return 0;
}
