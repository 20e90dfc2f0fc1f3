/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling: values by hand, seeds that repeat, shares that come out as computed. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "computed/sample/noise.h"
#include "computed/sample/sampler.h"
#include "computed/sample/surprise.h"
#include "tests/lib/check.h"

#define N 8
static const float logits[N] = {1, 3, 2, -1, 3, 0, -INFINITY, 2.5f};

static struct ntx_sampler *make(struct ntx_sampling s, uint32_t n)
{
    struct ntx_sampler *p;
    CHECK_EQ(ntx_sampler_new(&s, n, &p), 0);
    return p;
}

static const struct ntx_sampling plain = {.temp = 1, .top_p = 1, .repeat_penalty = 1, .seed = 42};

static void greedy(void)
{
    struct ntx_sampling s = {.temp = 0, .top_p = 0.9f, .repeat_penalty = 2, .repeat_last = 2};
    struct ntx_sampler *p = make(s, N);
    static const float none[N] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY,
                                  -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    static const float nan[N] = {NAN, NAN, NAN, -5, NAN, NAN, NAN, NAN}, low[N] = {-4, -1, -2, -9, -9, -9, -9, -9};
    CHECK_EQ(ntx_sampler_next(p, 0, logits), 1); /* the lower of two equal ones */
    ntx_sampler_accept(p, 1);
    CHECK_EQ(ntx_sampler_next(p, 0, logits), 4); /* 3 / 2 for token 1 */
    ntx_sampler_accept(p, 4);
    CHECK_EQ(ntx_sampler_next(p, 0, logits), 7);
    ntx_sampler_accept(p, 7); /* pushes token 1 out of the last two */
    CHECK_EQ(ntx_sampler_next(p, 0, logits), 1);
    ntx_sampler_accept(p, 1);
    CHECK_EQ(ntx_sampler_next(p, 0, low), 1); /* a negative logit is multiplied: -1 * 2 = -2, still not below token 2 */
    ntx_sampler_accept(p, 1);
    CHECK_EQ(ntx_sampler_next(p, 0, low), 1); /* once, however often the token came */
    ntx_sampler_accept(p, -1);
    ntx_sampler_accept(p, 1000);
    CHECK_EQ(ntx_sampler_next(p, 0, none), 0);
    CHECK_EQ(ntx_sampler_next(p, 0, nan), 3);
    ntx_sampler_free(p);
}

/* Only generated tokens count, not those of a prompt (accepted). */
static void written(void)
{
    const struct ntx_sampling s = {
        .temp = 0, .top_p = 1, .repeat_penalty = 1, .presence_penalty = 0.25f, .frequency_penalty = 0.5f};
    struct ntx_sampler *p = make(s, N);
    CHECK_EQ(ntx_sampler_enough(p, 0), 1);
    ntx_sampler_accept(p, 1);
    CHECK_EQ(ntx_sampler_next(p, 0, logits), 1);
    ntx_sampler_wrote(p, 1); /* 3 - 0.25 - 0.5 = 2.25 */
    CHECK_EQ(ntx_sampler_next(p, 0, logits), 4);
    ntx_sampler_wrote(p, 4);
    CHECK_EQ(ntx_sampler_next(p, 0, logits), 7); /* 2.5 */
    ntx_sampler_wrote(p, 7);                     /* 1.75 */
    CHECK_EQ(ntx_sampler_next(p, 0, logits), 1);
    ntx_sampler_wrote(p, 1);               /* 3 - 0.25 - 2 * 0.5 = 1.75 */
    CHECK_EQ(ntx_sampler_enough(p, 2), 6); /* of 8: the best, 1, 4, 7, and two to come */
    CHECK_EQ(ntx_sampler_next(p, 0, logits), 4);
    ntx_sampler_wrote(p, 4);
    CHECK_EQ(ntx_sampler_next(p, 0, logits), 2);
    ntx_sampler_wrote(p, -1);
    ntx_sampler_wrote(p, N);
    ntx_sampler_free(p);
    const struct ntx_sampling lifts = {.temp = 0, .top_p = 1, .repeat_penalty = 1, .presence_penalty = -2};
    p = make(lifts, N);
    CHECK_EQ(ntx_sampler_enough(p, 0), 0);
    ntx_sampler_wrote(p, 2);
    CHECK_EQ(ntx_sampler_next(p, 0, logits), 2); /* 2 + 2 */
    ntx_sampler_free(p);
}

/* The set of tokens that occur in 2000 draws. */
static unsigned support(struct ntx_sampling s)
{
    struct ntx_sampler *p = make(s, N);
    unsigned seen = 0;
    for (int i = 0; i < 2000; i++)
        seen |= 1u << ntx_sampler_next(p, (uint64_t)i, logits);
    ntx_sampler_free(p);
    return seen;
}

static void limits(void)
{
    struct ntx_sampling s = plain;
    CHECK_EQ(support(s), 0xbf); /* all but the impossible one */
    s.top_k = 3;
    CHECK_EQ(support(s), 1 << 1 | 1 << 4 | 1 << 7);
    s.top_k = 1;
    CHECK_EQ(support(s), 1 << 1);
    s.top_k = 0;
    /* weights e^(l - 3): 1 1 .607 .368 .135 .050 .018, sum 3.178; half is 1.589: two tokens hold 2 */
    s.top_p = 0.5f;
    CHECK_EQ(support(s), 1 << 1 | 1 << 4);
    s.top_p = 0.65f; /* 2.066: a third one */
    CHECK_EQ(support(s), 1 << 1 | 1 << 4 | 1 << 7);
    s.top_p = 0;
    CHECK_EQ(support(s), 1 << 1);
    s.top_p = 1;
    s.min_p = 0.3f;
    CHECK_EQ(support(s), 1 << 1 | 1 << 4 | 1 << 7 | 1 << 2);
    s.top_k = 4; /* sum 2.975, of which .67 is 1.99: two */
    s.top_p = 0.67f;
    CHECK_EQ(support(s), 1 << 1 | 1 << 4);
    s = plain;
    s.temp = 1e-6f;
    CHECK_EQ(support(s), 1 << 1 | 1 << 4);
}

/* Shares of 200000 draws against e^(l / temp), within five standard deviations. */
static void shares(float temp, uint32_t top_k)
{
    enum { DRAWS = 200000 };
    struct ntx_sampling s = plain;
    unsigned n[N] = {0};
    double w[N], sum = 0;
    s.temp = temp;
    s.top_k = top_k;
    struct ntx_sampler *p = make(s, N);
    for (int i = 0; i < DRAWS; i++)
        n[ntx_sampler_next(p, (uint64_t)i, logits)]++;
    for (int i = 0; i < N; i++)
        sum += w[i] = !top_k || logits[i] >= 2 ? exp(logits[i] / temp) : 0;
    for (int i = 0; i < N; i++) {
        double q = w[i] / sum, sd = sqrt(DRAWS * q * (1 - q));
        CHECK_MSG(fabs(n[i] - DRAWS * q) <= 5 * sd + 1e-9, "token %d: %u of %d draws, expected %g", i, n[i], DRAWS,
                  DRAWS * q);
    }
    ntx_sampler_free(p);
}

/* The token depends on seed and position, and not on what was drawn before. */
static void seeds(void)
{
    enum { DRAWS = 100 };
    int32_t first[DRAWS];
    unsigned same = 0, shifted = 0;
    struct ntx_sampling s = plain;
    struct ntx_sampler *p = make(s, N);
    for (int i = 0; i < DRAWS; i++)
        first[i] = ntx_sampler_next(p, (uint64_t)i, logits);
    for (int i = DRAWS; i-- > 0;)
        CHECK_EQ(ntx_sampler_next(p, (uint64_t)i, logits), first[i]);
    s.seed++;
    struct ntx_sampler *q = make(s, N);
    for (int i = 0; i < DRAWS; i++) {
        same += ntx_sampler_next(q, (uint64_t)i, logits) == first[i];
        shifted += ntx_sampler_next(p, (uint64_t)i + DRAWS, logits) == first[i];
    }
    CHECK(same < DRAWS / 2);
    CHECK(shifted < DRAWS / 2);
    ntx_sampler_free(p);
    ntx_sampler_free(q);
}

/* A large vocabulary: the best 40 of 150000 are found whatever their order. */
static void large(void)
{
    enum { V = 150000 };
    float *l = malloc(V * sizeof *l);
    for (uint32_t i = 0; i < V; i++)
        l[i] = (float)((i * 2654435761u) >> 8 & 0xffff) * 1e-6f;
    for (uint32_t i = 0; i < 40; i++)
        l[(i * 3727) % V] = 5;
    struct ntx_sampling s = plain;
    s.top_k = 40;
    struct ntx_sampler *p = make(s, V);
    for (int i = 0; i < 50; i++)
        CHECK(l[ntx_sampler_next(p, (uint64_t)i, l)] == 5);
    ntx_sampler_free(p);
    free(l);
}

static int by_logit(const void *a, const void *b)
{
    const struct ntx_candidate *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : (x->id > y->id) - (x->id < y->id);
}

/* As many of the largest as the sampler asks for give the tokens that all give, in any order; 0: all are needed. */
static void enough(void)
{
    enum { V = 500, DRAWS = 60 };
    static const struct ntx_sampling ways[] = {
        {.temp = 0, .top_p = 1, .repeat_penalty = 1},
        {.temp = 0, .top_p = 1, .repeat_penalty = 1.5f, .repeat_last = 30},
        {.temp = 0.8f, .top_k = 40, .top_p = 0.9f, .repeat_penalty = 1},
        {.temp = 1.2f, .top_k = 20, .top_p = 1, .min_p = 0.02f, .repeat_penalty = 2, .repeat_last = 40},
        {.temp = 0.7f, .top_k = 1, .top_p = 0.5f, .repeat_penalty = 1},
        {.temp = 0.9f,
         .top_k = 20,
         .top_p = 0.9f,
         .repeat_penalty = 1.2f,
         .repeat_last = 20,
         .presence_penalty = 0.3f,
         .frequency_penalty = 0.2f},
    };
    struct ntx_candidate all[V];
    float l[V];
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct ntx_sampler *p = make(ways[w], V), *q = make(ways[w], V);
        for (uint32_t i = 0; i < DRAWS; i++) {
            for (uint32_t v = 0; v < V; v++) {
                l[v] = (float)(int32_t)((v * 2654435761u + i * 40503u) >> 12 & 255) * 0.02f - 2; /* many equal ones */
                all[v] = (struct ntx_candidate){l[v], (int32_t)v};
            }
            qsort(all, V, sizeof *all, by_logit);
            uint32_t n = ntx_sampler_enough(q, 0);
            CHECK(n && n <= NTX_BEST_MAX);
            for (uint32_t k = 0; k < n / 2; k++) { /* backwards */
                struct ntx_candidate c = all[k];
                all[k] = all[n - 1 - k];
                all[n - 1 - k] = c;
            }
            int32_t t = ntx_sampler_next(p, i, l);
            CHECK_EQ(ntx_sampler_next_of(q, i, all, n), t);
            ntx_sampler_wrote(p, t), ntx_sampler_wrote(q, t);
        }
        ntx_sampler_free(p), ntx_sampler_free(q);
    }
    const struct ntx_sampling needs_all[] = {
        plain,
        {.temp = 1, .top_k = 40, .top_p = 1, .repeat_penalty = 0.5f, .repeat_last = 4},
        {.temp = 1, .top_k = 300, .top_p = 1}};
    for (size_t w = 0; w < sizeof needs_all / sizeof *needs_all; w++) {
        struct ntx_sampler *p = make(needs_all[w], V);
        CHECK_EQ(ntx_sampler_enough(p, 0), 0);
        ntx_sampler_free(p);
    }
}

/* ---- the same by sorting everything and drawing all noises */

struct sorted {
    struct ntx_candidate c[5000];
    uint32_t n;
};

static int32_t plainly(const struct ntx_sampling *s, const float *l, uint32_t v, uint64_t position)
{
    static struct sorted o;
    double total = 0, kept = 0, most = -INFINITY;
    uint32_t k = s->top_k && s->top_k < v ? s->top_k : v, n = 0;
    int32_t id = -1;
    for (uint32_t i = 0; i < v; i++)
        o.c[i] = (struct ntx_candidate){l[i], (int32_t)i};
    qsort(o.c, v, sizeof *o.c, by_logit);
    for (uint32_t i = 0; i < k; i++)
        total += exp(((double)o.c[i].logit - (double)o.c[0].logit) / (double)s->temp);
    for (; n < k && !(n && kept >= (double)s->top_p * total && s->top_p < 1); n++)
        kept += exp(((double)o.c[n].logit - (double)o.c[0].logit) / (double)s->temp);
    struct ntx_noise noise = ntx_noise_at(s->seed, position);
    for (uint32_t i = 0; i < n; i++) {
        double x = (double)o.c[i].logit / (double)s->temp + ntx_noise_of(&noise, o.c[i].id);
        if (x <= most || exp(((double)o.c[i].logit - (double)o.c[0].logit) / (double)s->temp) < (double)s->min_p)
            continue;
        most = x;
        id = o.c[i].id;
    }
    return id;
}

/* Logits like a model's (a few stand out) and flat ones, vocabularies that are no multiple of a block, and settings
 * with different sets. The masses are rounded to 2^-30, so top-p could differ by a token if a sum came that near to it;
 * here none does. */
static void as_plainly(void)
{
    static const uint32_t sizes[] = {1, 2, 63, 64, 65, 1000, 4097};
    static const float temps[] = {0.05f, 0.7f, 1, 3};
    static const struct ntx_sampling ways[] = {
        {.top_p = 1},
        {.top_p = 1, .top_k = 1},
        {.top_p = 1, .top_k = 40},
        {.top_p = 1, .top_k = 1200},
        {.top_p = 0.9f},
        {.top_p = 0.999f},
        {.top_p = 0.3f, .top_k = 50},
        {.top_p = 1, .min_p = 0.05f},
        {.top_p = 0.95f, .top_k = 40, .min_p = 0.05f},
        {.top_p = 0.5f, .min_p = 1e-12f},
        {.top_p = 1, .min_p = 1},
        {.top_p = 0},
    };
    float l[4097];
    uint64_t position = 0;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (int round = 0; round < 28 * 4; round++) {
            uint32_t v = sizes[round % 7], h = 12345u + (uint32_t)round;
            float wide = round & 1 ? 20 : 0.5f;
            struct ntx_sampling s = ways[w];
            s.temp = temps[round / 7 % 4];
            s.seed = (uint64_t)round;
            for (uint32_t i = 0; i < v; i++) {
                h = h * 1664525u + 1013904223u;
                float u = (float)(h >> 8) * 0x1p-24f;
                l[i] = i % 53 == 3 ? NAN : wide * u * u * u;
                if (i % 97 == 5)
                    l[i] = -INFINITY;
            }
            l[v / 2] = 1;
            struct ntx_sampler *p = make(s, v);
            int32_t got = ntx_sampler_next(p, position, l);
            for (uint32_t i = 0; i < v; i++)
                l[i] = isnan(l[i]) ? -INFINITY : l[i];
            int32_t want = plainly(&s, l, v, position++);
            CHECK_MSG(got == want, "way %zu, round %d: token %d, plainly %d", w, round, got, want);
            ntx_sampler_free(p);
        }
}

/* ---- chi-square test of draws over positions, and over seeds, against the softmax of a vocabulary with chances from
 * 0.13 to 0.002 */

static void chi_square(bool seeds_differ, struct ntx_sampling s, uint32_t n_kept)
{
    enum { V = 100, DRAWS = 100000 };
    float l[V];
    double w[V] = {0}, sum = 0, x = 0;
    unsigned n[V] = {0};
    for (int i = 0; i < V; i++)
        l[i] = -0.04f * (float)((i * 37) % V); /* the i-th largest is token i * 73 % 100 */
    struct ntx_sampler *p = make(s, V);
    for (uint32_t i = 0; i < DRAWS; i++) {
        if (seeds_differ) {
            ntx_sampler_free(p);
            s.seed = i;
            p = make(s, V);
        }
        n[ntx_sampler_next(p, seeds_differ ? 7 : i, l)]++;
    }
    ntx_sampler_free(p);
    for (int i = 0; i < V; i++)
        sum += w[i] = (uint32_t)((i * 37) % V) < n_kept ? exp((double)l[i] / (double)s.temp) : 0;
    for (int i = 0; i < V; i++)
        if (w[i] > 0)
            x += (n[i] - DRAWS * w[i] / sum) * (n[i] - DRAWS * w[i] / sum) / (DRAWS * w[i] / sum);
        else
            CHECK_EQ(n[i], 0);
    double df = n_kept - 1, z = (x - df) / sqrt(2 * df); /* about normal */
    CHECK_MSG(fabs(z) < 4, "chi-square %g of %g degrees of freedom", x, df);
}

/* Two tokens' noises at a position, one token's at two positions, and one's under two seeds are independent: sums of
 * products of uniform values. */
static void independent(void)
{
    enum { DRAWS = 100000 };
    double c[4] = {0};
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct ntx_noise n = ntx_noise_at(1, i), m = ntx_noise_at(2, i), next = ntx_noise_at(1, i + 1);
        double a = exp(-exp(-ntx_noise_of(&n, 17))) - 0.5;
        c[0] += a * (exp(-exp(-ntx_noise_of(&n, 18))) - 0.5);
        c[1] += a * (exp(-exp(-ntx_noise_of(&next, 17))) - 0.5);
        c[2] += a * (exp(-exp(-ntx_noise_of(&m, 17))) - 0.5);
        c[3] += a * a;
    }
    for (int i = 0; i < 3; i++)
        CHECK_MSG(fabs(c[i]) < 4.5 * sqrt(DRAWS) / 12, "correlation %d: %g", i, c[i]);
    CHECK(fabs(c[3] - DRAWS / 12.0) < 4.5 * sqrt(DRAWS / 180.0));
}

/* Bits that every machine gives: the expected ones were computed on one. */
static void bits(void)
{
    uint64_t sum = 0;
    for (uint64_t at = 0; at < 8; at++) {
        struct ntx_noise n = ntx_noise_at(42, at);
        for (int32_t t = 0; t < 1000; t++) {
            double g = ntx_noise_of(&n, t);
            uint64_t b;
            memcpy(&b, &g, sizeof b);
            sum = (sum ^ b) * 0x100000001b3ULL;
        }
    }
    CHECK_MSG(sum == 0x72637658ec7bad0fULL, "0x%llx", (unsigned long long)sum);
}

/* A mask and a bias come between the penalties and the filters. */
static void changed_between(void)
{
    struct ntx_sampling s = plain;
    s.temp = 0;
    struct ntx_sampler *p = make(s, N);
    ntx_sampler_take(p, logits);
    ntx_sampler_values(p)[1] = -INFINITY;
    ntx_sampler_values(p)[7] += 2;
    CHECK_EQ(ntx_sampler_draw(p, 0), 7);
    ntx_sampler_free(p);
    s.temp = 1;
    s.top_k = 1;
    p = make(s, N);
    for (uint64_t i = 0; i < 100; i++) {
        ntx_sampler_take(p, logits);
        ntx_sampler_values(p)[1] = -INFINITY;
        CHECK_EQ(ntx_sampler_draw(p, i), 4);
    }
    ntx_sampler_free(p);
}

/* Surprise of tokens 1, 4: 1.156 nats or 1.667 bits; 7: 1.656, 2.389; 2: 2.156, 3.110; 0: 3.156, 4.553. Mean 1.522. */
static void typical(void)
{
    struct ntx_sampling s = plain;
    s.typical_p = 0.15f;
    CHECK_EQ(support(s), 1 << 7);
    s.typical_p = 0.4f; /* 0.191 + 0.315 */
    CHECK_EQ(support(s), 1 << 7 | 1 << 1);
    s.typical_p = 0.6f;
    CHECK_EQ(support(s), 1 << 7 | 1 << 1 | 1 << 4);
    s.typical_p = 0.9f;
    CHECK_EQ(support(s), 1 << 7 | 1 << 1 | 1 << 4 | 1 << 2);
    s.typical_p = 1;
    CHECK_EQ(support(s), 0xbf);
    s.typical_p = 0.15f; /* min-p is of the best that stays */
    s.min_p = 0.9f;
    CHECK_EQ(support(s), 1 << 7);
    s.temp = 0;
    CHECK_EQ(support(s), 1 << 1);
}

/* Draws until the token comes, which is then written; returns the set of tokens that may follow. */
static unsigned after_token(struct ntx_sampling s, int32_t token)
{
    struct ntx_sampler *p = make(s, N);
    unsigned seen = 0;
    uint64_t at = 0;
    while (ntx_sampler_next(p, at, logits) != token)
        CHECK(++at < 1000);
    ntx_sampler_wrote(p, token);
    for (uint64_t i = 0; i < 2000; i++) /* draws alone change nothing */
        seen |= 1u << ntx_sampler_next(p, i, logits);
    ntx_sampler_free(p);
    return seen;
}

static void mirostat(void)
{
    struct ntx_sampling s = plain;
    s.mirostat = 2;
    s.mirostat_tau = 1;
    s.mirostat_eta = 1;
    s.top_k = 1; /* and the like count for nothing */
    CHECK_EQ(support(s), 1 << 1 | 1 << 4);
    s.mirostat_tau = 0.1f;
    CHECK_EQ(support(s), 1 << 1);
    s.mirostat_tau = 1.25f;
    CHECK_EQ(support(s), 1 << 1 | 1 << 4 | 1 << 7);
    CHECK_EQ(after_token(s, 7), 1 << 1);          /* 2.5 - (log2(2.607 / 0.607) - 1.25) = 1.647 */
    CHECK_EQ(after_token(s, 1), 1 << 1 | 1 << 4); /* 2.5 - (log2(2.607) - 1.25) = 2.368 */
    struct ntx_sampler *p = make(s, N);
    CHECK_EQ(ntx_sampler_enough(p, 0), 0);
    ntx_sampler_free(p);
    s.temp = 0;
    CHECK_EQ(support(s), 1 << 1);
}

/* The rank of version 1 by the published formulas, with libm. */
static double rank_by_formula(const struct ntx_weighed *w, uint32_t n, double mu, double vocab)
{
    double a = 0, b = 0;
    for (uint32_t i = 0; i + 1 < n && i < 99; i++) {
        double t = log((double)(i + 2) / (i + 1));
        a += t * (w[i + 1].below - w[i].below);
        b += t * t;
    }
    double s = a / b, e = s - 1;
    return pow(e * pow(2, mu) / (1 - pow(vocab, -e)), 1 / s);
}

static void mirostat_by_rank(void)
{
    struct ntx_weighed w[400];
    unsigned several = 0;
    for (uint32_t seed = 0; seed < 200; seed++) {
        const double slope = 0.3 + 0.02 * seed, mu = 1 + 0.05 * seed;
        const struct ntx_noise noise = ntx_noise_at(seed, 0);
        for (int32_t i = 0; i < 400; i++) {
            const double below = i ? slope * log(i + 1) + 0.05 * fabs(ntx_noise_of(&noise, i)) : 0;
            w[i] = (struct ntx_weighed){i, (uint32_t)(exp(-below) * 0x1p30) + 1, below};
        }
        const uint32_t got = ntx_mirostat_keep(w, 400, 1, mu, 400);
        const double want = rank_by_formula(w, 400, mu, 400);
        if (fabs(want - round(want)) < 1e-6)
            continue;
        CHECK_MSG(got == (uint32_t)fmax(1, fmin(400, want)), "seed %u: %u, not %g", seed, got, want);
        several += got > 1 && got < 400;
    }
    CHECK_MSG(several > 50, "%u", several);
    struct ntx_weighed same[3] = {{0, 1u << 30, 0}, {1, 1u << 30, 0}, {2, 1u << 30, 0}};
    CHECK_EQ(ntx_mirostat_keep(same, 3, 1, 5, 3), 3);
    CHECK_EQ(ntx_mirostat_keep(same, 1, 1, 5, 3), 1);
    CHECK_EQ(ntx_mirostat_keep(same, 1, 2, 5, 3), 1);
    CHECK_EQ(ntx_typical_keep(same, 1, 0.5), 1);
}

int main(void)
{
    struct ntx_sampler *p = NULL;
    struct ntx_sampling bad = plain;
    greedy();
    written();
    limits();
    typical();
    mirostat();
    mirostat_by_rank();
    shares(1, 0);
    shares(0.7f, 0);
    shares(1.5f, 4);
    seeds();
    large();
    enough();
    as_plainly();
    chi_square(false, plain, 100);
    chi_square(true, plain, 100);
    chi_square(false, (struct ntx_sampling){.temp = 0.8f, .top_p = 1, .top_k = 40, .repeat_penalty = 1, .seed = 3}, 40);
    chi_square(true, (struct ntx_sampling){.temp = 2, .top_p = 1, .min_p = 0.5f, .repeat_penalty = 1},
               35); /* 0.04 * 34 / 2 < log 2 */
    independent();
    bits();
    changed_between();
    bad.temp = -1;
    CHECK_EQ(ntx_sampler_new(&bad, N, &p), -EINVAL);
    CHECK_EQ(ntx_sampler_new(&plain, 0, &p), -EINVAL);
    CHECK(!p);
    return 0;
}
