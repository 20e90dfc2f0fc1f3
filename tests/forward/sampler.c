/* Sampling: values by hand, seeds that repeat, shares that come out as computed. */
#include <errno.h>
#include <math.h>

#include "infer/sampler.h"
#include "tests/check.h"

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
    static const float none[N] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    static const float nan[N] = {NAN, NAN, NAN, -5, NAN, NAN, NAN, NAN}, low[N] = {-4, -1, -2, -9, -9, -9, -9, -9};
    CHECK_EQ(ntx_sampler_next(p, logits), 1); /* the lower of two equal ones */
    ntx_sampler_accept(p, 1);
    CHECK_EQ(ntx_sampler_next(p, logits), 4); /* 3 / 2 for token 1 */
    ntx_sampler_accept(p, 4);
    CHECK_EQ(ntx_sampler_next(p, logits), 7);
    ntx_sampler_accept(p, 7);                 /* pushes token 1 out of the last two */
    CHECK_EQ(ntx_sampler_next(p, logits), 1);
    ntx_sampler_accept(p, 1);
    CHECK_EQ(ntx_sampler_next(p, low), 1);    /* a negative logit is multiplied: -1 * 2 = -2, still not below token 2 */
    ntx_sampler_accept(p, 1);
    CHECK_EQ(ntx_sampler_next(p, low), 1);    /* once, however often the token came */
    ntx_sampler_accept(p, -1);
    ntx_sampler_accept(p, 1000);
    CHECK_EQ(ntx_sampler_next(p, none), 0);
    CHECK_EQ(ntx_sampler_next(p, nan), 3);
    ntx_sampler_free(p);
}

/* Only what was written counts: what a prompt brought (accepted) does not. */
static void written(void)
{
    const struct ntx_sampling s = {.temp = 0, .top_p = 1, .repeat_penalty = 1, .presence_penalty = 0.25f, .frequency_penalty = 0.5f};
    struct ntx_sampler *p = make(s, N);
    CHECK_EQ(ntx_sampler_enough(p, 0), 1);
    ntx_sampler_accept(p, 1);
    CHECK_EQ(ntx_sampler_next(p, logits), 1);
    ntx_sampler_wrote(p, 1); /* 3 - 0.25 - 0.5 = 2.25 */
    CHECK_EQ(ntx_sampler_next(p, logits), 4);
    ntx_sampler_wrote(p, 4);
    CHECK_EQ(ntx_sampler_next(p, logits), 7); /* 2.5 */
    ntx_sampler_wrote(p, 7); /* 1.75 */
    CHECK_EQ(ntx_sampler_next(p, logits), 1);
    ntx_sampler_wrote(p, 1); /* 3 - 0.25 - 2 * 0.5 = 1.75 */
    CHECK_EQ(ntx_sampler_enough(p, 2), 6); /* of 8: the best, 1, 4, 7, and two to come */
    CHECK_EQ(ntx_sampler_next(p, logits), 4);
    ntx_sampler_wrote(p, 4);
    CHECK_EQ(ntx_sampler_next(p, logits), 2);
    ntx_sampler_wrote(p, -1);
    ntx_sampler_wrote(p, N);
    ntx_sampler_free(p);
    const struct ntx_sampling lifts = {.temp = 0, .top_p = 1, .repeat_penalty = 1, .presence_penalty = -2};
    p = make(lifts, N);
    CHECK_EQ(ntx_sampler_enough(p, 0), 0);
    ntx_sampler_wrote(p, 2);
    CHECK_EQ(ntx_sampler_next(p, logits), 2); /* 2 + 2 */
    ntx_sampler_free(p);
}

/* Which tokens ever come, in 2000 draws. */
static unsigned support(struct ntx_sampling s)
{
    struct ntx_sampler *p = make(s, N);
    unsigned seen = 0;
    for (int i = 0; i < 2000; i++)
        seen |= 1u << ntx_sampler_next(p, logits);
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
        n[ntx_sampler_next(p, logits)]++;
    for (int i = 0; i < N; i++)
        sum += w[i] = !top_k || logits[i] >= 2 ? exp(logits[i] / temp) : 0;
    for (int i = 0; i < N; i++) {
        double q = w[i] / sum, sd = sqrt(DRAWS * q * (1 - q));
        CHECK_MSG(fabs(n[i] - DRAWS * q) <= 5 * sd + 1e-9, "token %d: %u of %d draws, expected %g", i, n[i], DRAWS, DRAWS * q);
    }
    ntx_sampler_free(p);
}

static void seeds(void)
{
    enum { DRAWS = 100 };
    int32_t first[DRAWS], t;
    unsigned same = 0, limited = 0;
    struct ntx_sampling s = plain, k = plain;
    k.top_k = 7; /* the same candidates by the other way */
    for (int round = 0; round < 2; round++) {
        struct ntx_sampler *p = make(s, N);
        for (int i = 0; i < DRAWS; i++)
            if (round)
                CHECK_EQ(ntx_sampler_next(p, logits), first[i]);
            else
                first[i] = ntx_sampler_next(p, logits);
        ntx_sampler_free(p);
    }
    s.seed++;
    struct ntx_sampler *p = make(s, N), *q = make(k, N);
    for (int i = 0; i < DRAWS; i++) {
        t = ntx_sampler_next(p, logits);
        same += t == first[i];
        limited += ntx_sampler_next(q, logits) < 0;
    }
    CHECK(same < DRAWS / 2);
    CHECK_EQ(limited, 0);
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
        CHECK(l[ntx_sampler_next(p, l)] == 5);
    ntx_sampler_free(p);
    free(l);
}

static int by_logit(const void *a, const void *b)
{
    const struct ntx_candidate *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : (x->id > y->id) - (x->id < y->id);
}

/* So many of the largest as the sampler says are enough give the tokens that all give, in any order; 0 where none are. */
static void enough(void)
{
    enum { V = 500, DRAWS = 60 };
    static const struct ntx_sampling ways[] = {
        {.temp = 0, .top_p = 1, .repeat_penalty = 1}, {.temp = 0, .top_p = 1, .repeat_penalty = 1.5f, .repeat_last = 30},
        {.temp = 0.8f, .top_k = 40, .top_p = 0.9f, .repeat_penalty = 1}, {.temp = 1.2f, .top_k = 20, .top_p = 1, .min_p = 0.02f, .repeat_penalty = 2, .repeat_last = 40},
        {.temp = 0.7f, .top_k = 1, .top_p = 0.5f, .repeat_penalty = 1},
        {.temp = 0.9f, .top_k = 20, .top_p = 0.9f, .repeat_penalty = 1.2f, .repeat_last = 20, .presence_penalty = 0.3f, .frequency_penalty = 0.2f},
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
            int32_t t = ntx_sampler_next(p, l);
            CHECK_EQ(ntx_sampler_next_of(q, all, n), t);
            ntx_sampler_wrote(p, t), ntx_sampler_wrote(q, t);
        }
        ntx_sampler_free(p), ntx_sampler_free(q);
    }
    const struct ntx_sampling needs_all[] = {plain, {.temp = 1, .top_k = 40, .top_p = 1, .repeat_penalty = 0.5f, .repeat_last = 4}, {.temp = 1, .top_k = 300, .top_p = 1}};
    for (size_t w = 0; w < sizeof needs_all / sizeof *needs_all; w++) {
        struct ntx_sampler *p = make(needs_all[w], V);
        CHECK_EQ(ntx_sampler_enough(p, 0), 0);
        ntx_sampler_free(p);
    }
}

int main(void)
{
    struct ntx_sampler *p = NULL;
    struct ntx_sampling bad = plain;
    greedy();
    written();
    limits();
    shares(1, 0);
    shares(0.7f, 0);
    shares(1.5f, 4);
    seeds();
    large();
    enough();
    bad.temp = -1;
    CHECK_EQ(ntx_sampler_new(&bad, N, &p), -EINVAL);
    CHECK_EQ(ntx_sampler_new(&plain, 0, &p), -EINVAL);
    CHECK(!p);
    return 0;
}
