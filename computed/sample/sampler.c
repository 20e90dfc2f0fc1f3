/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.c: nothing is sorted. Top-k and top-p are selections by count and by mass. They, min-p and the draw scan all
 * tokens in blocks and examine few singly: where top-p keeps much of a vocabulary, only those in the bin of logits in
 * which its set ends. Masses are integers, so sums do not depend on their order. */
#include "computed/sample/sampler.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "computed/sample/noise.h"
#include "computed/sample/surprise.h"

#define BLOCK 64u   /* tokens scanned together */
#define NEAR  8.0f  /* nats below the best logit; top-p mostly ends before */
#define FAR   22.0f /* nats without mass: 2^30 e^-22 < 1 */

struct ntx_sampler {
    struct ntx_sampling s;
    uint32_t n_vocab;
    float far;       /* for struct scale */
    float *l;        /* [n_vocab] the logits after penalties and filters */
    int32_t *list;   /* [n_vocab] ids of the candidates */
    uint32_t n;      /* number of candidates; ALL: every token, none listed */
    int32_t *recent; /* [repeat_last] ring of tokens */
    uint32_t n_recent, at_recent;
    uint32_t *written;           /* [n_vocab] how often each token was generated; NULL: no penalty needs it */
    uint32_t n_written;          /* number of different ones */
    struct ntx_weighed *weighed; /* [n_vocab] for filters by surprise; NULL: there are none */
    double mu, next_mu;          /* mirostat's bound; after the token that was drawn last */
    bool drawn;                  /* there is a next_mu */
};
#define ALL UINT32_MAX

static bool is_typical(const struct ntx_sampling *s) { return s->typical_p > 0 && s->typical_p < 1; }

/* Some filter needs the surprise of tokens. */
static bool is_surprising(const struct ntx_sampling *s) { return s->mirostat || is_typical(s); }

int ntx_sampler_new(const struct ntx_sampling *s, uint32_t n_vocab, struct ntx_sampler **out)
{
    if (!n_vocab || n_vocab > INT32_MAX || !(s->temp >= 0) || !(s->repeat_penalty >= 0))
        return -EINVAL;
    struct ntx_sampler *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->s = *s;
    p->n_vocab = n_vocab;
    p->far = -FAR;
    p->l = malloc(n_vocab * sizeof *p->l);
    p->list = malloc(n_vocab * sizeof *p->list);
    p->recent = s->repeat_last ? malloc(s->repeat_last * sizeof *p->recent) : NULL;
    bool counts = s->presence_penalty != 0 || s->frequency_penalty != 0;
    p->written = counts ? calloc(n_vocab, sizeof *p->written) : NULL;
    p->weighed = is_surprising(s) ? malloc(n_vocab * sizeof *p->weighed) : NULL;
    p->mu = 2 * (double)s->mirostat_tau;
    if (!p->l || !p->list || (s->repeat_last && !p->recent) || (counts && !p->written) ||
        (is_surprising(s) && !p->weighed)) {
        ntx_sampler_free(p);
        return -ENOMEM;
    }
    *out = p;
    return 0;
}

void ntx_sampler_free(struct ntx_sampler *s)
{
    if (!s)
        return;
    free(s->l);
    free(s->list);
    free(s->recent);
    free(s->written);
    free(s->weighed);
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
    s->mu = s->drawn ? s->next_mu : s->mu;
    s->drawn = false;
    if (s->written && token >= 0 && (uint32_t)token < s->n_vocab)
        s->n_written += !s->written[token]++;
}

/* ---- penalties */

static float penalised(float logit, float penalty) { return logit > 0 ? logit / penalty : logit * penalty; }

static bool punishes(const struct ntx_sampler *s) { return s->s.repeat_penalty != 0 && s->s.repeat_penalty != 1; }

static float less_written(const struct ntx_sampler *s, float logit, int32_t id)
{
    uint32_t n = s->written ? s->written[id] : 0;
    return n ? logit - s->s.presence_penalty - s->s.frequency_penalty * (float)n : logit;
}

/* A NaN can never be drawn. */
static inline float or_minus_infinity(float logit) { return logit == logit ? logit : -INFINITY; }

void ntx_sampler_take(struct ntx_sampler *s, const float *logits)
{
    float *l = s->l;
    s->n = ALL;
    for (uint32_t i = 0; i < s->n_vocab; i++)
        l[i] = or_minus_infinity(logits[i]);
    for (uint32_t i = 0; punishes(s) && i < s->n_recent; i++) /* once, however often the token came */
        l[s->recent[i]] = penalised(or_minus_infinity(logits[s->recent[i]]), s->s.repeat_penalty);
    for (uint32_t i = 0; s->written && i < s->n_vocab; i++)
        l[i] = less_written(s, l[i], (int32_t)i);
}

static bool is_recent(const struct ntx_sampler *s, int32_t id)
{
    for (uint32_t i = 0; i < s->n_recent; i++)
        if (s->recent[i] == id)
            return true;
    return false;
}

static void take_some(struct ntx_sampler *s, const struct ntx_candidate *best, uint32_t n)
{
    s->n = n;
    for (uint32_t i = 0; i < n; i++) {
        float l = or_minus_infinity(best[i].logit);
        s->list[i] = best[i].id;
        s->l[best[i].id] = less_written(
            s, punishes(s) && is_recent(s, best[i].id) ? penalised(l, s->s.repeat_penalty) : l, best[i].id);
    }
}

float *ntx_sampler_values(struct ntx_sampler *s) { return s->l; }

/* ---- the order of candidates: by logit, then by id */

static bool before(const struct ntx_sampler *s, int32_t a, int32_t b)
{
    return s->l[a] > s->l[b] || (s->l[a] == s->l[b] && a < b);
}

static float largest_logit(const float *l, uint32_t n)
{
    float lane[16], most;
    uint32_t i = 0;
    for (int j = 0; j < 16; j++)
        lane[j] = -INFINITY;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++)
            lane[j] = l[i + j] > lane[j] ? l[i + j] : lane[j];
    most = lane[0];
    for (int j = 1; j < 16; j++)
        most = lane[j] > most ? lane[j] : most;
    for (; i < n; i++)
        most = l[i] > most ? l[i] : most;
    return most;
}

static bool any_from(const float *l, float bar)
{
    uint32_t any = 0;
    for (uint32_t j = 0; j < BLOCK; j++)
        any |= l[j] >= bar;
    return any;
}

static int32_t best_token(const struct ntx_sampler *s)
{
    if (s->n == ALL) {
        float most = largest_logit(s->l, s->n_vocab);
        uint32_t id = 0;
        while (id + BLOCK <= s->n_vocab && !any_from(s->l + id, most))
            id += BLOCK;
        while (s->l[id] != most)
            id++;
        return (int32_t)id;
    }
    int32_t b = s->list[0];
    for (uint32_t i = 1; i < s->n; i++)
        b = before(s, s->list[i], b) ? s->list[i] : b;
    return b;
}

/* ---- mass: e^((logit - best) / temp) in units of 2^-30, cut off below them */

struct scale {
    float most, rate; /* the best logit; 1 / temp */
    /* -FAR, hidden from the compiler: a constant would put a branch into the loops, which were then not vectorised */
    float far;
};

/* 2^n e^r with x = n log 2 + r, |r| <= log 2 / 2, and the series for e^r. log 2 has two parts, so that n times the
 * first is exact. */
static inline uint32_t mass_of(const struct scale *c, float logit)
{
    float x = (logit - c->most) * c->rate;
    x = x > c->far ? x : c->far;
    int32_t n = (int32_t)(x * 1.44269504f - 0.5f);
    float r = x - (float)n * 0.693359375f + (float)n * 2.12194440e-4f;
    float y = 1 + r * (1 + r * (0.5f + r * (1 / 6.0f + r * (1 / 24.0f + r * (1 / 120.0f + r * (1 / 720.0f))))));
    int32_t bits = (n + 30 + 127) * (1 << 23);
    float power;
    memcpy(&power, &bits, sizeof power);
    return (uint32_t)(int32_t)(y * power);
}

static uint64_t mass_of_all(const struct ntx_sampler *s, const struct scale *scale)
{
    const struct scale c = *scale;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++)
        sum += mass_of(&c, s->l[i]);
    return sum;
}

static uint64_t mass_of_list(const struct ntx_sampler *s, const struct scale *c)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n; i++)
        sum += mass_of(c, s->l[s->list[i]]);
    return sum;
}

/* ---- selection */

static uint64_t candidate_weight(const struct ntx_sampler *s, const struct scale *c, int32_t id)
{
    return c ? mass_of(c, s->l[id]) : 1;
}

/* Partitions list[low, high) by a pivot: candidates that come before it, then the pivot. Returns the pivot's place, and
 * adds the weights before it to *weight. */
static uint32_t partition_list(struct ntx_sampler *s, const struct scale *c, uint32_t low, uint32_t high,
                               uint64_t *weight)
{
    int32_t *v = s->list;
    uint32_t at = low + (uint32_t)((uint64_t)(high * 0x9e3779b1u) * (high - low) >> 32),
             end = low; /* a pseudo-random place, so no order of the logits is a bad one */
    int32_t pivot = v[at];
    v[at] = v[high - 1];
    for (uint32_t i = low; i < high - 1; i++) {
        int32_t id = v[i];
        if (!before(s, id, pivot))
            continue;
        *weight += candidate_weight(s, c, id);
        v[i] = v[end];
        v[end++] = id;
    }
    v[high - 1] = v[end];
    v[end] = pivot;
    return end;
}

/* Keeps the fewest candidates, best first, whose weights and `sum` reach `need`. The weights are masses, or 1 each with
 * c NULL. */
static void keep_best(struct ntx_sampler *s, const struct scale *c, uint64_t sum, double need)
{
    uint32_t low = 0, high = s->n;
    while (low < high) { /* all before low are kept, none from high on */
        uint64_t with = sum;
        uint32_t at = partition_list(s, c, low, high, &with);
        if ((double)with >= need && at > low) {
            high = at;
            continue;
        }
        sum = with + candidate_weight(s, c, s->list[at]);
        low = at + 1;
        if ((double)sum >= need)
            break;
    }
    s->n = low;
}

static bool any_above(const float *l, float bar)
{
    uint32_t any = 0;
    for (uint32_t j = 0; j < BLOCK; j++)
        any |= l[j] > bar;
    return any;
}

/* Lists tokens from i on with logits above bar, while there is room for a block. Returns where it stopped. */
static uint32_t list_above(struct ntx_sampler *s, float bar, uint32_t i, uint32_t room)
{
    while (i < s->n_vocab && s->n + BLOCK <= room) {
        uint32_t end = s->n_vocab - i < BLOCK ? s->n_vocab : i + BLOCK;
        if (end == i + BLOCK && !any_above(s->l + i, bar))
            i = end;
        for (; i < end; i++) {
            s->list[s->n] = (int32_t)i;
            s->n += s->l[i] > bar;
        }
    }
    return i;
}

static void list_from(struct ntx_sampler *s, float least)
{
    float bar = nextafterf(least, -INFINITY);
    s->n = 0;
    for (uint32_t i = list_above(s, bar, 0, s->n_vocab); i < s->n_vocab; i++) {
        s->list[s->n] = (int32_t)i;
        s->n += s->l[i] > bar;
    }
}

static float least_listed(const struct ntx_sampler *s)
{
    float least = s->l[s->list[0]];
    for (uint32_t i = 1; i < s->n; i++)
        least = s->l[s->list[i]] < least ? s->l[s->list[i]] : least;
    return least;
}

/* A token equal to the least of k earlier ones loses to it. So once k are found, only higher logits are listed. */
static void keep_k_of_all(struct ntx_sampler *s, uint32_t k)
{
    uint32_t room = k < s->n_vocab / 4 ? 2 * k + 16 * BLOCK : s->n_vocab, i = 0;
    if (room >= s->n_vocab) {
        list_from(s, -FLT_MAX);
        keep_best(s, NULL, 0, k);
        return;
    }
    s->n = 0;
    for (float bar = -INFINITY; i < s->n_vocab; bar = s->n == k ? least_listed(s) : bar) {
        i = list_above(s, bar, i, room);
        keep_best(s, NULL, 0, k);
    }
}

static void keep_k(struct ntx_sampler *s, uint32_t k)
{
    if (s->n == ALL)
        keep_k_of_all(s, k);
    else
        keep_best(s, NULL, 0, k);
}

/* ---- top-p where most of a vocabulary stays: tokens outside get -INFINITY, and none is listed */

#define BINS 4096u

/* Bins are in the order of tokens: a token that comes before another has no higher bin. */
static inline uint32_t bin_of(const struct scale *c, float logit)
{
    float x = (c->most - logit) * c->rate * (BINS / FAR);
    return (uint32_t)(int32_t)(x < BINS - 1 ? x : BINS - 1);
}

static inline void fill_bins(const struct scale *scale, const float *l, uint32_t n, uint64_t *bin /* [BINS] */)
{
    const struct scale c = *scale;
    uint32_t at[BLOCK], m[BLOCK];
    for (uint32_t j = 0; j < n; j++) {
        at[j] = bin_of(&c, l[j]);
        m[j] = mass_of(&c, l[j]);
    }
    for (uint32_t j = 0; j < n; j++)
        bin[at[j]] += m[j];
}

/* Lists the tokens of a bin, and excludes those of higher bins. */
static void cut_at_bin(struct ntx_sampler *s, const struct scale *scale, uint32_t bin)
{
    const struct scale c = *scale;
    s->n = 0;
    for (uint32_t i = 0; i < s->n_vocab; i += BLOCK) {
        uint32_t n = s->n_vocab - i < BLOCK ? s->n_vocab - i : BLOCK, any = n < BLOCK;
        float *l = s->l + i;
        for (uint32_t j = 0; n == BLOCK && j < BLOCK; j++) {
            uint32_t at = bin_of(&c, l[j]);
            any |= at == bin;
            l[j] = at > bin ? -INFINITY : l[j];
        }
        for (uint32_t j = 0; any && j < n; j++) {
            uint32_t at = bin_of(&c, l[j]);
            s->list[s->n] = (int32_t)(i + j);
            s->n += at == bin;
            l[j] = at > bin ? -INFINITY : l[j];
        }
    }
}

static void keep_p_flat(struct ntx_sampler *s, const struct scale *c)
{
    uint64_t bin[BINS] = {0}, sum = 0, total = 0;
    uint32_t i = 0, last = 0;
    for (; i + BLOCK <= s->n_vocab; i += BLOCK)
        fill_bins(c, s->l + i, BLOCK, bin);
    fill_bins(c, s->l + i, s->n_vocab - i, bin);
    for (i = 0; i < BINS; i++)
        total += bin[i];
    double need = (double)s->s.top_p * (double)total;
    while (last < BINS - 1 && (double)(sum + bin[last]) < need)
        sum += bin[last++];
    cut_at_bin(s, c, last); /* the fewest tokens that are enough end in this bin */
    uint32_t n = s->n;
    keep_best(s, c, sum, need);
    for (i = s->n; i < n; i++)
        s->l[s->list[i]] = -INFINITY;
    s->n = ALL;
}

static bool is_flat(const struct ntx_sampler *s, float bar)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++)
        n += s->l[i] > bar;
    return n > s->n_vocab / 16;
}

static inline void add_masses(const struct scale *scale, const float *l, uint32_t n, float bar, uint64_t *total,
                              uint64_t *above)
{
    const struct scale c = *scale;
    uint32_t m[BLOCK], higher[BLOCK];
    uint64_t sum[2] = {0};
    for (uint32_t j = 0; j < n; j++)
        m[j] = mass_of(&c, l[j]);
    for (uint32_t j = 0; j < n; j++)
        higher[j] = l[j] > bar ? UINT32_MAX : 0;
    for (uint32_t j = 0; j < n; j++)
        sum[0] += m[j];
    for (uint32_t j = 0; j < n; j++)
        sum[1] += m[j] & higher[j];
    *total += sum[0];
    *above += sum[1];
}

/* Whether top-p keeps this token of all: the mass before it is not enough. The first token always stays. */
static bool is_kept(const struct ntx_sampler *s, const struct scale *c, int32_t id)
{
    const float *l = s->l, bar = l[id];
    uint64_t total = 0, above = 0, same = 0;
    uint32_t i = 0;
    for (; i + BLOCK <= s->n_vocab; i += BLOCK)
        add_masses(c, l + i, BLOCK, bar, &total, &above);
    add_masses(c, l + i, s->n_vocab - i, bar, &total, &above);
    for (i = 0; i < (uint32_t)id; i++)
        same += l[i] == bar;
    above += same * mass_of(c, bar);
    return !above || (double)above < (double)s->s.top_p * (double)total;
}

static void keep_p(struct ntx_sampler *s, const struct scale *c)
{
    bool all = s->n == ALL;
    if (all && is_flat(s, c->most - NEAR / c->rate)) {
        keep_p_flat(s, c);
        return;
    }
    double need = (double)s->s.top_p * (double)(all ? mass_of_all(s, c) : mass_of_list(s, c));
    if (all)
        list_from(s, c->most - NEAR / c->rate);
    if (all && (double)mass_of_list(s, c) < need)
        list_from(s, c->most - FAR / c->rate);
    keep_best(s, c, 0, need);
}

static void keep_from(struct ntx_sampler *s, float least)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        s->list[n] = s->list[i];
        n += s->l[s->list[i]] >= least;
    }
    s->n = n;
}

static struct scale scale_of(const struct ntx_sampler *s, float most)
{
    return (struct scale){most, 1 / s->s.temp < FLT_MAX ? 1 / s->s.temp : FLT_MAX, s->far};
}

static float least_by_min_p(const struct ntx_sampler *s, float most)
{
    return s->s.min_p > 0 ? (float)((double)most + (double)s->s.temp * ntx_noise_log((double)s->s.min_p)) : -INFINITY;
}

/* Applies the filters by surprise. Tokens without mass are left out. */
static void keep_by_surprise(struct ntx_sampler *s, const struct scale *c)
{
    uint32_t n = 0;
    if (s->n == ALL)
        list_from(s, c->most - FAR / c->rate);
    for (uint32_t i = 0; i < s->n; i++) {
        const int32_t id = s->list[i];
        const uint32_t mass = mass_of(c, s->l[id]);
        if (mass)
            s->weighed[n++] = (struct ntx_weighed){id, mass, (double)((c->most - s->l[id]) * c->rate)};
    }
    n = s->s.mirostat ? ntx_mirostat_keep(s->weighed, n, s->s.mirostat, s->mu, s->n_vocab)
                      : ntx_typical_keep(s->weighed, n, (double)s->s.typical_p);
    for (uint32_t i = 0; i < n; i++)
        s->list[i] = s->weighed[i].id;
    s->n = n;
}

/* Applies top-k, typical, top-p and min-p. The best token always stays, except with
 * typical. */
static void filter(struct ntx_sampler *s, float most)
{
    const struct scale c = scale_of(s, most);
    if (s->s.mirostat) {
        keep_by_surprise(s, &c);
        return;
    }
    if (s->s.top_k && s->s.top_k < (s->n == ALL ? s->n_vocab : s->n))
        keep_k(s, s->s.top_k);
    if (is_typical(&s->s)) {
        keep_by_surprise(s, &c);
        most = s->l[best_token(s)];
    }
    if (s->s.top_p < 1)
        keep_p(s, &c);
    float least = least_by_min_p(s, most);
    if (s->s.min_p > 0 && s->n == ALL)
        list_from(s, least);
    else if (s->s.min_p > 0)
        keep_from(s, least);
}

/* ---- draw */

struct draw {
    struct ntx_noise noise;
    struct ntx_noise_bar bar;
    int32_t id;
    double x;
};

static void try_token(const struct ntx_sampler *s, struct draw *d, int32_t id)
{
    double x = (double)s->l[id] / (double)s->s.temp + ntx_noise_of(&d->noise, id);
    if (x < d->x || (x == d->x && id >= d->id))
        return;
    d->id = id;
    d->x = x;
    d->bar = ntx_noise_bar(x, s->s.temp);
}

static bool may_win(const struct draw *d, const float *l, uint32_t i)
{
    uint32_t any = 0;
    const struct ntx_noise noise = d->noise;
    const struct ntx_noise_bar bar = d->bar;
    for (uint32_t j = i; j < i + BLOCK; j++)
        any |= ntx_noise_may_reach(&noise, &bar, l[j], j);
    return any;
}

static void draw_of_all(const struct ntx_sampler *s, struct draw *d)
{
    for (uint32_t i = 0; i < s->n_vocab; i += BLOCK) {
        uint32_t end = s->n_vocab - i < BLOCK ? s->n_vocab : i + BLOCK;
        if (end == i + BLOCK && !may_win(d, s->l, i))
            continue;
        for (uint32_t j = i; j < end; j++)
            if (ntx_noise_may_reach(&d->noise, &d->bar, s->l[j], j))
                try_token(s, d, (int32_t)j);
    }
}

static struct draw begin_draw(const struct ntx_sampler *s, uint64_t position, int32_t top)
{
    struct draw d = {.noise = ntx_noise_at(s->s.seed, position), .id = INT32_MAX, .x = -INFINITY};
    try_token(s, &d, top);
    return d;
}

/* Where top-p keeps many tokens, draws from all of them before finding its set. If the token drawn is in the set, as it
 * mostly is, it is also the draw from the set. */
static bool draw_kept(const struct ntx_sampler *s, struct draw *d, int32_t top)
{
    const struct scale c = scale_of(s, s->l[top]);
    if (s->n != ALL || is_surprising(&s->s) || s->s.top_p >= 1 || (s->s.top_k && s->s.top_k < s->n_vocab) ||
        !is_flat(s, c.most - NEAR / c.rate))
        return false;
    draw_of_all(s, d);
    return s->l[d->id] >= least_by_min_p(s, c.most) && is_kept(s, &c, d->id);
}

int32_t ntx_sampler_draw(struct ntx_sampler *s, uint64_t position)
{
    int32_t top = best_token(s);
    if (s->s.temp == 0 || isinf(s->l[top]))
        return top;
    struct draw d = begin_draw(s, position, top);
    if (draw_kept(s, &d, top))
        return d.id;
    const struct scale c = scale_of(s, s->l[top]);
    filter(s, c.most);
    d = begin_draw(s, position, is_surprising(&s->s) ? best_token(s) : top);
    if (s->n == ALL)
        draw_of_all(s, &d);
    for (uint32_t i = 0; s->n != ALL && i < s->n; i++)
        if (ntx_noise_may_reach(&d.noise, &d.bar, s->l[s->list[i]], (uint32_t)s->list[i]))
            try_token(s, &d, s->list[i]);
    s->drawn = s->s.mirostat != 0;
    if (s->drawn)
        s->next_mu = ntx_mirostat_next(s->mu, (double)s->s.mirostat_tau, (double)s->s.mirostat_eta,
                                       mass_of(&c, s->l[d.id]), mass_of_list(s, &c));
    return d.id;
}

int32_t ntx_sampler_next(struct ntx_sampler *s, uint64_t position, const float *logits)
{
    ntx_sampler_take(s, logits);
    return ntx_sampler_draw(s, position);
}

#define DRAFTED 256u /* most candidates whose noise is computed */

/* Inserts c into the ordered out, which holds n of at most `most`. Returns the new n. */
static uint32_t insert_ranked(struct ntx_candidate *out, uint32_t n, uint32_t most, struct ntx_candidate c)
{
    uint32_t k = n;
    while (k && out[k - 1].logit < c.logit)
        k--;
    if (k == most)
        return n;
    n += n < most;
    memmove(&out[k + 1], &out[k], (n - 1 - k) * sizeof *out);
    out[k] = c;
    return n;
}

uint32_t ntx_sampler_draft(struct ntx_sampler *s, uint64_t position, float sharp, struct ntx_candidate *out,
                           uint32_t most)
{
    int32_t top = best_token(s);
    uint32_t n = 0;
    float sum = 0;
    if (isinf(s->l[top]))
        return 0;
    if (s->s.temp > 0)
        filter(s, s->l[top]);
    keep_k(s, DRAFTED);
    const struct ntx_noise noise = ntx_noise_at(s->s.seed, position);
    for (uint32_t i = 0; i < s->n; i++) {
        float x = s->l[s->list[i]] + (s->s.temp > 0 ? s->s.temp * (float)ntx_noise_of(&noise, s->list[i]) : 0);
        n = insert_ranked(out, n, most, (struct ntx_candidate){x, s->list[i]});
        s->l[s->list[i]] = x;
    }
    for (uint32_t i = 0; i < s->n; i++)
        sum += expf((s->l[s->list[i]] - out[0].logit) / sharp);
    for (uint32_t i = n; i-- > 0;)
        out[i].logit = expf((out[i].logit - out[0].logit) / sharp) / sum;
    return n;
}

/* A repeat penalty above 1 only lowers logits, so each recent token needs one more candidate; one below 1 may raise any
 * token. Presence and frequency penalties behave alike around 0. */
uint32_t ntx_sampler_enough(const struct ntx_sampler *s, uint32_t more)
{
    uint64_t n = s->s.temp == 0 ? 1 : s->s.top_k;
    if (!n || (s->s.mirostat && s->s.temp > 0) || (punishes(s) && s->s.repeat_penalty < 1) ||
        s->s.presence_penalty < 0 || s->s.frequency_penalty < 0)
        return 0;
    n += punishes(s) ? (uint64_t)s->n_recent + more : 0;
    n += s->written ? (uint64_t)s->n_written + more : 0;
    return n < s->n_vocab && n <= NTX_BEST_MAX ? (uint32_t)n : 0;
}

int32_t ntx_sampler_next_of(struct ntx_sampler *s, uint64_t position, const struct ntx_candidate *best, uint32_t n)
{
    take_some(s, best, n);
    return ntx_sampler_draw(s, position);
}
