/* sampler.c: candidates are a heap of (logit, id), largest first; top-k, top-p and min-p only ever pop from it, so the cost is
 * one pass over the vocabulary plus what is kept. Without any of them nothing is sorted.
 * Random numbers: xoshiro256** seeded through splitmix64 (Blackman and Vigna, "Scrambled linear pseudorandom number
 * generators", 2021). Probabilities are sums of doubles in a fixed order: the token depends on logits and seed alone. */
#include "infer/sampler.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct ntx_sampler {
    struct ntx_sampling s;
    uint32_t n_vocab, n;        /* n: candidates of this token */
    uint64_t rng[4];
    struct ntx_candidate *heap; /* [n]; popped ones lie behind the heap, the last popped first */
    int32_t *recent;        /* [repeat_last] ring of tokens */
    uint32_t n_recent, at_recent;
    uint32_t *written;      /* [n_vocab] how often each token was written; NULL: no penalty wants that */
    uint32_t n_written;     /* different ones */
};

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

static uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

static uint64_t xoshiro(uint64_t s[4])
{
    uint64_t result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

/* Uniform in [0, 1), 53 bits. */
static double uniform(uint64_t s[4])
{
    return (double)(xoshiro(s) >> 11) * 0x1p-53;
}

int ntx_sampler_new(const struct ntx_sampling *s, uint32_t n_vocab, struct ntx_sampler **out)
{
    if (!n_vocab || n_vocab > INT32_MAX || !(s->temp >= 0) || !(s->repeat_penalty >= 0))
        return -EINVAL;
    struct ntx_sampler *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->s = *s;
    p->n_vocab = n_vocab;
    p->heap = malloc(n_vocab * sizeof *p->heap);
    p->recent = s->repeat_last ? malloc(s->repeat_last * sizeof *p->recent) : NULL;
    bool counts = s->presence_penalty != 0 || s->frequency_penalty != 0;
    p->written = counts ? calloc(n_vocab, sizeof *p->written) : NULL;
    if (!p->heap || (s->repeat_last && !p->recent) || (counts && !p->written)) {
        ntx_sampler_free(p);
        return -ENOMEM;
    }
    uint64_t state = s->seed;
    for (int i = 0; i < 4; i++)
        p->rng[i] = splitmix(&state);
    *out = p;
    return 0;
}

void ntx_sampler_free(struct ntx_sampler *s)
{
    if (!s)
        return;
    free(s->heap);
    free(s->recent);
    free(s->written);
    free(s);
}

void ntx_sampler_accept(struct ntx_sampler *s, int32_t token)
{
    if (!s->s.repeat_last || token < 0 || (uint32_t)token >= s->n_vocab)
        return;
    s->recent[s->at_recent] = token;
    s->at_recent = (s->at_recent + 1) % s->s.repeat_last;
    s->n_recent += s->n_recent < s->s.repeat_last;
}

void ntx_sampler_wrote(struct ntx_sampler *s, int32_t token)
{
    ntx_sampler_accept(s, token);
    if (s->written && token >= 0 && (uint32_t)token < s->n_vocab)
        s->n_written += !s->written[token]++;
}

static float penalised(float logit, float penalty) { return logit > 0 ? logit / penalty : logit * penalty; }

static bool punishes(const struct ntx_sampler *s) { return s->s.repeat_penalty != 0 && s->s.repeat_penalty != 1; }

static float less_written(const struct ntx_sampler *s, float logit, int32_t id)
{
    uint32_t n = s->written ? s->written[id] : 0;
    return n ? logit - s->s.presence_penalty - s->s.frequency_penalty * (float)n : logit;
}

/* Candidates in order of id, so that element i is token i; what is not a number can never be drawn. */
static void fill(struct ntx_sampler *s, const float *logits)
{
    s->n = s->n_vocab;
    for (uint32_t i = 0; i < s->n; i++)
        s->heap[i] = (struct ntx_candidate){isnan(logits[i]) ? -INFINITY : logits[i], (int32_t)i};
    for (uint32_t i = 0; punishes(s) && i < s->n_recent; i++) {
        struct ntx_candidate *c = &s->heap[s->recent[i]];
        if (c->id < 0) /* seen before in this loop */
            continue;
        c->logit = penalised(c->logit, s->s.repeat_penalty);
        c->id = -1;
    }
    for (uint32_t i = 0; punishes(s) && i < s->n_recent; i++)
        s->heap[s->recent[i]].id = s->recent[i];
    for (uint32_t i = 0; s->written && i < s->n; i++)
        s->heap[i].logit = less_written(s, s->heap[i].logit, (int32_t)i);
}

static bool is_recent(const struct ntx_sampler *s, int32_t id)
{
    for (uint32_t i = 0; i < s->n_recent; i++)
        if (s->recent[i] == id)
            return true;
    return false;
}

static void fill_some(struct ntx_sampler *s, const struct ntx_candidate *best, uint32_t n)
{
    s->n = n;
    for (uint32_t i = 0; i < n; i++) {
        s->heap[i] = (struct ntx_candidate){isnan(best[i].logit) ? -INFINITY : best[i].logit, best[i].id};
        if (punishes(s) && is_recent(s, best[i].id))
            s->heap[i].logit = penalised(s->heap[i].logit, s->s.repeat_penalty);
        s->heap[i].logit = less_written(s, s->heap[i].logit, best[i].id);
    }
}

static bool before(const struct ntx_candidate *a, const struct ntx_candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift(struct ntx_candidate *h, uint32_t n, uint32_t i)
{
    struct ntx_candidate c = h[i];
    for (uint32_t kid; (kid = 2 * i + 1) < n; i = kid) {
        kid += kid + 1 < n && before(&h[kid + 1], &h[kid]);
        if (!before(&h[kid], &c))
            break;
        h[i] = h[kid];
    }
    h[i] = c;
}

static void heapify(struct ntx_candidate *h, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift(h, n, i);
}

/* Takes the largest of a heap of n and leaves it at h[n - 1]. */
static void pop(struct ntx_candidate *h, uint32_t n)
{
    struct ntx_candidate top = h[0];
    h[0] = h[n - 1];
    h[n - 1] = top;
    sift(h, n - 1, 0);
}

static const struct ntx_candidate *best(const struct ntx_sampler *s)
{
    const struct ntx_candidate *b = &s->heap[0];
    for (uint32_t i = 1; i < s->n; i++)
        if (before(&s->heap[i], b))
            b = &s->heap[i];
    return b;
}

static double weight(const struct ntx_sampler *s, const struct ntx_candidate *c, float max)
{
    return exp(((double)c->logit - max) / s->s.temp);
}

/* The first of list[0], list[step], ... where the running sum of weights passes r; the last one with any weight if rounding kept
 * the sum below it. */
static int32_t walk(const struct ntx_sampler *s, const struct ntx_candidate *list, int step, uint32_t n, float max, double r)
{
    double sum = 0;
    int32_t id = list->id;
    for (uint32_t i = 0; i < n; i++, list += step) {
        double w = weight(s, list, max);
        if (w <= 0)
            continue;
        id = list->id;
        sum += w;
        if (sum > r)
            break;
    }
    return id;
}

static double sum_weights(const struct ntx_sampler *s, uint32_t n, float max)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += weight(s, &s->heap[i], max);
    return sum;
}

/* All tokens compete: drawn in order of id. */
static int32_t draw_all(struct ntx_sampler *s, float max)
{
    double total = sum_weights(s, s->n, max);
    return walk(s, s->heap, 1, s->n, max, uniform(s->rng) * total);
}

/* The i-th largest candidate of the heap, popped when first asked for; the popped lie downwards from the heap's end. */
static const struct ntx_candidate *ranked(struct ntx_sampler *s, uint32_t i, uint32_t *popped)
{
    for (; *popped <= i; ++*popped)
        pop(s->heap, s->n - *popped);
    return &s->heap[s->n - 1 - i];
}

/* Lets candidates in, largest first, while top-k, top-p and min-p do, and draws among those. */
static int32_t draw_best(struct ntx_sampler *s, float max)
{
    bool by_p = s->s.top_p < 1, by_k = s->s.top_k && s->s.top_k < s->n_vocab;
    uint32_t n = s->n, k = by_k ? s->s.top_k : n, popped = 0, keep = 0;
    double total = by_p && !by_k ? sum_weights(s, n, max) : 0, kept = 0;
    heapify(s->heap, n);
    for (uint32_t i = 0; by_p && by_k && i < k; i++)
        total += weight(s, ranked(s, i, &popped), max);
    for (; keep < k; keep++) {
        double w = weight(s, ranked(s, keep, &popped), max);
        if (keep && ((by_p && kept >= s->s.top_p * total) || w < s->s.min_p))
            break; /* the largest has weight 1 and always stays */
        kept += w;
    }
    return walk(s, &s->heap[n - 1], -1, keep, max, uniform(s->rng) * kept);
}

static int32_t next(struct ntx_sampler *s)
{
    const struct ntx_candidate top = *best(s);
    if (s->s.temp == 0 || isinf(top.logit))
        return top.id;
    bool limited = (s->s.top_k && s->s.top_k < s->n_vocab) || s->s.top_p < 1 || s->s.min_p > 0;
    return limited ? draw_best(s, top.logit) : draw_all(s, top.logit);
}

int32_t ntx_sampler_next(struct ntx_sampler *s, const float *logits)
{
    fill(s, logits);
    return next(s);
}

/* A repeat penalty above 1 only lowers, so each recent token makes room for one more candidate; one below 1 may lift any token. So it is with tokens written,
 * and 0. */
uint32_t ntx_sampler_enough(const struct ntx_sampler *s, uint32_t more)
{
    uint64_t n = s->s.temp == 0 ? 1 : s->s.top_k;
    if (!n || (punishes(s) && s->s.repeat_penalty < 1) || s->s.presence_penalty < 0 || s->s.frequency_penalty < 0)
        return 0;
    n += punishes(s) ? (uint64_t)s->n_recent + more : 0;
    n += s->written ? (uint64_t)s->n_written + more : 0;
    return n < s->n_vocab && n <= NTX_BEST_MAX ? (uint32_t)n : 0;
}

int32_t ntx_sampler_next_of(struct ntx_sampler *s, const struct ntx_candidate *best, uint32_t n)
{
    fill_some(s, best, n);
    return next(s);
}
