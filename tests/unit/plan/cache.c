/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c: what is evicted under each policy, that frames and bundles always agree, and that wrong predictions change
 * nothing. frames.c: which layers share frames. */
#include "computed/weights/cache.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/check.h"

enum { LAYERS = 4, EXPERTS = 8, BUNDLES = LAYERS * EXPERTS };

/* Counts with one half-life, beside the daemon's mixture (NULL). */
static const struct ntx_cache_policy half_12 = {1, {12}, {1}}, half_1000 = {1, {1000}, {1}},
                                     most_recent = {1, {0.5f}, {1}};

/* All layers are of one size. */
static struct ntx_frames frames(uint32_t n, uint32_t spare)
{
    const uint64_t bytes[LAYERS] = {4096, 4096, 4096, 4096};
    struct ntx_frames f;
    ntx_frames_sort(&f, bytes, LAYERS, EXPERTS, NTX_FRAME_CLASSES);
    CHECK_EQ(f.n_classes, 1);
    ntx_frames_share(&f, n, 1, spare);
    CHECK_EQ(f.n, n);
    return f;
}

static struct ntx_cache *fresh(const struct ntx_cache_policy *policy, uint32_t n, uint32_t spare)
{
    struct ntx_cache *c;
    struct ntx_frames f = frames(n, spare);
    CHECK_EQ(ntx_cache_new(&f, LAYERS, EXPERTS, policy, &c), 0);
    return c;
}

static void choose(struct ntx_cache *c, uint32_t bundle)
{
    ntx_cache_count(c, bundle / EXPERTS, (const uint32_t[]){bundle % EXPERTS}, (const uint32_t[]){1}, 1, 1, NULL);
}

/* A pass of one row uses the bundle. Returns the evicted bundle, NTX_NO_BUNDLE: none. */
static uint32_t use(struct ntx_cache *c, uint32_t bundle)
{
    choose(c, bundle);
    uint32_t gone = NTX_NO_BUNDLE, had[BUNDLES];
    if (ntx_cache_frame(c, bundle) == NTX_NO_FRAME) {
        for (uint32_t b = 0; b < BUNDLES; b++)
            had[b] = ntx_cache_frame(c, b);
        uint32_t f = ntx_cache_take(c, bundle, bundle / EXPERTS, false);
        CHECK(f != NTX_NO_FRAME);
        ntx_cache_let_go(c, f);
        for (uint32_t b = 0; b < BUNDLES; b++)
            if (b != bundle && had[b] != ntx_cache_frame(c, b)) {
                CHECK_EQ(gone, NTX_NO_BUNDLE);
                CHECK_EQ(had[b], f);
                gone = b;
            }
    }
    ntx_cache_use(c, bundle);
    return gone;
}

static uint32_t prefetch(struct ntx_cache *c, uint32_t bundle)
{
    uint32_t f = ntx_cache_take(c, bundle, 0, true);
    if (f != NTX_NO_FRAME) {
        CHECK(ntx_cache_is_prefetched(c, f));
        CHECK_EQ(ntx_cache_bundle(c, f), bundle);
        ntx_cache_let_go(c, f);
    }
    return f;
}

static uint32_t count(const struct ntx_cache *c)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < BUNDLES; b++) {
        uint32_t f = ntx_cache_frame(c, b);
        n += f != NTX_NO_FRAME;
        if (f != NTX_NO_FRAME)
            CHECK_EQ(ntx_cache_bundle(c, f), b);
    }
    return n;
}

static uint32_t random_bundle(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 40) % BUNDLES;
}

/* ---- policies */

/* The same policies over all bundles of one layer, computed by their definition. */
struct plain {
    bool there[EXPERTS];
    double routed[3000][EXPERTS]; /* by pass */
    double share[3], alike;
    uint32_t n;
};

enum { PASSES = 3000 };
static const double half[] = {0.5, 8, 128};

/* An expert's share of the decayed counts before `pass`. */
static double counted(const struct plain *p, double by_half, uint32_t e, uint64_t pass)
{
    double n = 0, all = 0;
    for (uint64_t before = pass; before-- > 0 && pass - before < 30 * by_half + 2;) {
        double left = pow(2, -(double)(pass - 1 - before) / by_half);
        n += left * p->routed[before][e];
        all += left;
    }
    return n / all;
}

static double chance(const struct plain *p, const struct ntx_cache_policy *policy, uint32_t e, uint64_t pass)
{
    double c = p->alike / EXPERTS;
    if (policy)
        return counted(p, (double)policy->half[0], e, pass);
    for (int k = 0; k < 3; k++)
        c += p->share[k] * counted(p, half[k], e, pass);
    return c;
}

static void learn(struct plain *p, uint32_t e, uint64_t pass)
{
    double all = chance(p, NULL, e, pass), said[3];
    for (int k = 0; k < 3; k++)
        said[k] = p->share[k] * counted(p, half[k], e, pass) / all;
    for (int k = 0; k < 3; k++)
        p->share[k] += (said[k] - p->share[k]) / 1024;
    p->alike += (p->alike / EXPERTS / all - p->alike) / 1024;
}

static void same_as_looking_at_all(const struct ntx_cache_policy *policy)
{
    struct ntx_cache *c = fresh(policy, 5, 0);
    struct plain *p = calloc(1, sizeof *p);
    uint64_t state = 3;
    uint32_t e = 0;
    p->share[0] = 0.1, p->share[1] = p->share[2] = 0.4, p->alike = 0.1;
    for (uint64_t pass = 0; pass < PASSES; pass++) {
        /* later, half of them are repeated */
        if (pass < PASSES / 2 || random_bundle(&state) % 2)
            e = random_bundle(&state) % EXPERTS * (random_bundle(&state) % 4 > 0); /* 0 is frequent */
        if (pass)
            learn(p, e, pass);
        p->routed[pass][e] = 1;
        const uint32_t gone = use(c, e);
        if (!p->there[e] && p->n == 5) {
            CHECK(gone < EXPERTS && p->there[gone]);
            for (uint32_t i = 0; i < EXPERTS; i++) /* none of the others is worth less, apart from rounding */
                CHECK_MSG(!p->there[i] ||
                              chance(p, policy, i, pass + 1) > chance(p, policy, gone, pass + 1) * (1 - 1e-4) - 1e-18,
                          "%s, pass %llu: %u was evicted, not %u", policy ? "half-life 12" : "mixed",
                          (unsigned long long)pass, gone, i);
            p->there[gone] = false;
            p->n--;
        } else {
            CHECK_EQ(gone, NTX_NO_BUNDLE);
        }
        p->n += !p->there[e];
        p->there[e] = true;
        CHECK_EQ(count(c), p->n);
    }
    free(p);
    ntx_cache_free(c);
}

static void use_often(struct ntx_cache *c, uint32_t bundle, int n)
{
    while (n-- > 0)
        use(c, bundle);
}

/* Hits of 4,000 rows that are routed to two of 8 experts each; half of these fit into the cache. */
static uint32_t hits(const struct ntx_cache_policy *policy, bool sticky)
{
    struct ntx_cache *c = fresh(policy, 4, 0);
    uint32_t n = 0, e[2] = {0, 1};
    uint64_t state = 29;
    for (int row = 0; row < 4000; row++) {
        if (!sticky || row % 4 == 0) { /* else the same as the row before */
            e[0] = random_bundle(&state) % EXPERTS;
            e[1] = (e[0] + 1 + random_bundle(&state) % (EXPERTS - 1)) % EXPERTS;
        }
        if (!sticky && random_bundle(&state) % 2)
            e[0] = 5, e[1] = 2; /* frequent, all the time */
        for (int i = 0; i < 2; i++)
            n += ntx_cache_frame(c, e[i]) != NTX_NO_FRAME;
        ntx_cache_count(c, 0, e, (const uint32_t[]){1, 1}, 2, 1, NULL);
        for (int i = 0; i < 2; i++)
            if (ntx_cache_frame(c, e[i]) == NTX_NO_FRAME)
                ntx_cache_let_go(c, ntx_cache_take(c, e[i], 0, NTX_CACHE_WANTED));
    }
    ntx_cache_free(c);
    return n;
}

static void policies(void)
{
    struct ntx_cache *c;
    c = fresh(&most_recent, 2, 0); /* 1 is used most, but longer ago */
    use_often(c, 1, 9);
    use(c, 2);
    CHECK_EQ(use(c, 3), 1);
    ntx_cache_free(c);
    c = fresh(&half_12, 2, 0);
    use_often(c, 1, 9);
    use(c, 2);
    CHECK_EQ(use(c, 3), 2);
    for (int i = 0; i < 50; i++)
        choose(c, 7);
    use(c, 3); /* by now the count of 1 is nearly 0 */
    CHECK_EQ(use(c, 2), 1);
    ntx_cache_free(c);
    c = fresh(&half_1000, 2, 0); /* the count of 1 is still high */
    use_often(c, 1, 9);
    for (int i = 0; i < 50; i++)
        choose(c, 7);
    use(c, 3);
    CHECK_EQ(use(c, 2), 3);
    ntx_cache_free(c);
    for (uint32_t now = 0; now < 3;
         now += 2) { /* equally often: the layer just computed is the furthest from its next use */
        c = fresh(&half_12, 2, 0);
        use(c, 0 * EXPERTS + 3);
        use(c, 2 * EXPERTS + 3);
        choose(c, (2 - now) * EXPERTS + 4); /* a row of either layer since */
        CHECK_EQ(use(c, now * EXPERTS + 4), now * EXPERTS + 3);
        ntx_cache_free(c);
    }
    /* The mixture is as good as the half-life that suits each text. */
    CHECK(hits(&most_recent, true) > 1.05 * hits(&half_12, true) && hits(NULL, true) > 0.99 * hits(&most_recent, true));
    CHECK(hits(&half_12, false) > 1.05 * hits(&most_recent, false) && hits(NULL, false) > 0.99 * hits(&half_12, false));
}

enum { MANY = 64, ROUTED = 4 };
enum told { NOTHING, SCORES, NOISE /* distributed like scores, but unrelated to the experts */ };

static struct ntx_cache *one_layer(uint32_t n)
{
    struct ntx_frames f;
    struct ntx_cache *c;
    ntx_frames_sort(&f, (const uint64_t[]){4096}, 1, MANY, NTX_FRAME_CLASSES);
    ntx_frames_share(&f, n, ROUTED, 0);
    CHECK_EQ(ntx_cache_new(&f, 1, MANY, NULL, &c), 0);
    return c;
}

static float normal(uint64_t *state)
{
    float sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (float)(random_bundle(state) % 4096) / 4096;
    return sum;
}

/* Each expert's own score plus noise; normalised. */
static void draw_scores(const float *own, uint64_t *state, float *x)
{
    float mean = 0, squares = 0;
    for (uint32_t e = 0; e < MANY; e++)
        mean += (x[e] = 0.5f * own[e] + normal(state)) / MANY;
    for (uint32_t e = 0; e < MANY; e++)
        squares += (x[e] - mean) * (x[e] - mean);
    for (uint32_t e = 0; e < MANY; e++)
        x[e] = (x[e] - mean) / sqrtf(squares / MANY);
}

static void best_of(const float *x, uint32_t *best)
{
    for (uint32_t k = 0; k < ROUTED; k++) {
        best[k] = UINT32_MAX;
        for (uint32_t e = 0; e < MANY; e++) {
            bool taken = false;
            for (uint32_t i = 0; i < k; i++)
                taken |= best[i] == e;
            if (!taken && (best[k] == UINT32_MAX || x[e] > x[best[k]]))
                best[k] = e;
        }
    }
}

/* Misses of so many rows, with a third of the bundles in the cache. */
static uint32_t misses(uint32_t n_rows, enum told told)
{
    struct ntx_cache *c = one_layer(MANY / 3);
    uint64_t state = 31;
    float own[MANY], x[MANY], other[MANY];
    uint32_t n = 0, e[ROUTED];
    for (uint32_t i = 0; i < MANY; i++)
        own[i] = normal(&state);
    for (uint32_t row = 0; row < n_rows; row++) {
        draw_scores(own, &state, x);
        draw_scores((const float[MANY]){0}, &state, other);
        best_of(x, e);
        for (uint32_t k = 0; k < ROUTED; k++)
            n += ntx_cache_frame(c, e[k]) == NTX_NO_FRAME;
        const float *scores = told == SCORES ? x : other;
        ntx_cache_count(c, 0, e, (const uint32_t[ROUTED]){1, 1, 1, 1}, ROUTED, 1, told == NOTHING ? NULL : scores);
        for (uint32_t k = 0; k < ROUTED; k++)
            if (ntx_cache_frame(c, e[k]) == NTX_NO_FRAME)
                ntx_cache_let_go(c, ntx_cache_take(c, e[k], 0, NTX_CACHE_WANTED));
    }
    ntx_cache_free(c);
    return n;
}

/* Experts that were nearly routed to are known earlier by scores; scores that say nothing soon lose their weight. */
static void scores_tell(void)
{
    const uint32_t few[] = {misses(200, NOTHING), misses(200, SCORES)},
                   many[] = {misses(3000, NOTHING), misses(3000, SCORES), misses(3000, NOISE)};
    CHECK_MSG(few[1] < 0.95 * few[0], "%u misses, and with scores %u", few[0], few[1]);
    CHECK_MSG(many[1] < 0.97 * many[0], "%u misses, and with scores %u", many[0], many[1]);
    CHECK_MSG(many[2] < 1.02 * many[0], "%u misses, and with scores that say nothing %u", many[0], many[2]);
    struct ntx_cache *c = one_layer(ROUTED + 1); /* also for a prompt's rows: all were routed to equally often */
    uint32_t all[MANY], rows[MANY];
    float x[MANY];
    for (uint32_t e = 0; e < MANY; e++) {
        all[e] = e;
        rows[e] = 4;
        x[e] = e % 2 ? 0.2f : -0.2f;
    }
    x[2] = -2.0f;
    ntx_cache_count(c, 0, all, rows, MANY, MANY, x);
    for (uint32_t e = 0; e < ROUTED + 1; e++)
        ntx_cache_let_go(c, ntx_cache_take(c, e, 0, NTX_CACHE_WANTED));
    ntx_cache_let_go(c, ntx_cache_take(c, 63, 0, NTX_CACHE_WANTED));
    CHECK_EQ(ntx_cache_frame(c, 2), NTX_NO_FRAME);
    ntx_cache_free(c);
}

/* A pass of many rows shows their preferences. */
static void rows_count(void)
{
    struct ntx_cache *c = fresh(NULL, EXPERTS - 1, 0);
    const uint32_t all[EXPERTS] = {0, 1, 2, 3, 4, 5, 6, 7}, rows[EXPERTS] = {9, 30, 2, 60, 70, 1, 40, 20};
    ntx_cache_count(c, 1, all, rows, EXPERTS, 116, NULL); /* of two experts each */
    for (uint32_t e = 1; e < EXPERTS; e++)
        ntx_cache_let_go(c, ntx_cache_take(c, EXPERTS + e, 1, NTX_CACHE_WANTED));
    CHECK_EQ(use(c, EXPERTS), EXPERTS + 5);
    CHECK_EQ(use(c, EXPERTS + 5), EXPERTS + 2);
    ntx_cache_free(c);
    for (int since = 8; since <= 16; since += 8) { /* and the counts are as old as if the rows had come one by one */
        c = fresh(NULL, 2, 0);
        ntx_cache_count(c, 1, (const uint32_t[]){1}, (const uint32_t[]){64}, 1, 64, NULL);
        ntx_cache_let_go(c, ntx_cache_take(c, EXPERTS + 1, 1, NTX_CACHE_WANTED));
        use_often(c, EXPERTS + 2, since);
        CHECK_EQ(use(c, EXPERTS + 3), EXPERTS + (since == 8 ? 2 : 1));
        ntx_cache_free(c);
    }
}

/* ---- holding and dropping */

static void held(void)
{
    struct ntx_cache *c = fresh(NULL, 3, 0);
    uint64_t state = 11;
    for (uint32_t i = 0; i < 5000; i++)
        use(c, random_bundle(&state));
    CHECK_EQ(count(c), 3);
    uint32_t keep = ntx_cache_bundle(c, 1);
    ntx_cache_hold(c, 1);
    ntx_cache_hold(c, 1);
    ntx_cache_let_go(c, 1);
    for (uint32_t i = 0; i < 500; i++)
        use(c, random_bundle(&state));
    CHECK_EQ(ntx_cache_bundle(c, 1), keep);
    ntx_cache_hold(c, 0);
    ntx_cache_hold(c, 2);
    for (uint32_t b = 0; b < BUNDLES; b++)
        if (ntx_cache_frame(c, b) == NTX_NO_FRAME) {
            CHECK_EQ(ntx_cache_take(c, b, 0, false), NTX_NO_FRAME);
            CHECK_EQ(ntx_cache_take(c, b, 0, true), NTX_NO_FRAME);
        }
    ntx_cache_drop(c, 2); /* held: nobody gets it yet */
    CHECK_EQ(ntx_cache_bundle(c, 2), NTX_NO_BUNDLE);
    CHECK_EQ(count(c), 2);
    ntx_cache_let_go(c, 2);
    ntx_cache_let_go(c, 0);
    uint32_t other = keep == 0;
    while (ntx_cache_frame(c, other) != NTX_NO_FRAME)
        other++;
    CHECK_EQ(use(c, other), NTX_NO_BUNDLE); /* into the empty one */
    CHECK_EQ(ntx_cache_frame(c, other), 2);
    ntx_cache_free(c);
}

/* ---- predictions */

/* Whatever is predicted wrongly, the cached bundles are those of a cache without the spare frames, at all times. */
static void wrong_prefetches_change_nothing(void)
{
    struct ntx_cache *with = fresh(NULL, 14, 3), *without = fresh(NULL, 11, 0);
    uint64_t state = 5;
    for (uint32_t i = 0; i < 4000; i++) {
        uint32_t b = random_bundle(&state) % 24, before = ntx_cache_frame(with, b);
        for (int k = 0; k < 3; k++) {
            uint32_t g = 24 + random_bundle(&state) % 8; /* never used */
            if (ntx_cache_frame(with, g) == NTX_NO_FRAME)
                CHECK(prefetch(with, g) != NTX_NO_FRAME);
        }
        CHECK_EQ(before, ntx_cache_frame(with, b));
        CHECK_EQ(before == NTX_NO_FRAME, ntx_cache_frame(without, b) == NTX_NO_FRAME);
        use(with, b);
        use(without, b);
    }
    CHECK_EQ(count(without), 11);
    CHECK_EQ(count(with), 14);
    ntx_cache_free(with);
    ntx_cache_free(without);
}

static void right_prefetches(void)
{
    struct ntx_cache *c = fresh(&most_recent, 6, 2); /* a quarter of 5 beyond the least: one spare frame */
    for (uint32_t b = 0; b < 5; b++)
        CHECK_EQ(use(c, b), NTX_NO_BUNDLE);
    CHECK_EQ(use(c, 5), 0); /* the sixth is kept for predictions */
    uint32_t f = prefetch(c, 9);
    CHECK_EQ(prefetch(c, 10), f); /* an older prediction is evicted, no used bundle */
    CHECK_EQ(ntx_cache_frame(c, 9), NTX_NO_FRAME);
    CHECK_EQ(count(c), 6);
    use(c, 10); /* it came true: one used bundle is too many, and is evicted when its frame is wanted */
    CHECK(!ntx_cache_is_prefetched(c, f));
    CHECK_EQ(count(c), 6);
    CHECK(prefetch(c, 11) != NTX_NO_FRAME);
    CHECK_EQ(ntx_cache_frame(c, 1), NTX_NO_FRAME);
    CHECK_EQ(ntx_cache_frame(c, 10), f);
    ntx_cache_hold(c, ntx_cache_frame(c, 11));
    CHECK_EQ(prefetch(c, 12), NTX_NO_FRAME); /* the spare frame is being read into */
    CHECK_EQ(use(c, 12), 2);
    ntx_cache_free(c);
}

/* ---- classes of frames */

static void classes(void)
{
    const uint64_t mixed[6] = {3 << 20, 2 << 20, (3 << 20) - 4096, 2 << 20, 1 << 20, (2 << 20) - 40960};
    struct ntx_frames f;
    uint32_t class;
    ntx_frames_sort(&f, mixed, 6, 10, NTX_FRAME_CLASSES);
    CHECK_EQ(f.n_classes, 3);
    const uint8_t of[] = {0, 1, 0, 1, 2, 1};
    const uint32_t bundles[] = {20, 30, 10};
    for (int l = 0; l < 6; l++)
        CHECK_EQ(f.class_of[l], of[l]);
    for (int k = 0; k < 3; k++)
        CHECK_EQ(f.class[k].n_bundles, bundles[k]);
    ntx_frames_share(&f, 30, 2, 4); /* half of all */
    CHECK_EQ(f.n, 30);
    CHECK_EQ(f.class[0].n, 10);
    CHECK_EQ(f.class[1].n, 15);
    CHECK_EQ(f.class[2].n, 5);
    CHECK_EQ(f.class[0].spare, 2);
    CHECK_EQ(f.class[1].spare, 3);
    CHECK_EQ(f.class[2].spare, 0);
    CHECK_EQ(ntx_frames_bytes(&f), (10u * 3 + 15u * 2 + 5u) << 20);
    CHECK_EQ(ntx_frames_place(&f, 9, &class), 27u << 20);
    CHECK_EQ(class, 0);
    CHECK_EQ(ntx_frames_place(&f, 10, &class), 30u << 20);
    CHECK_EQ(class, 1);
    CHECK_EQ(ntx_frames_place(&f, 29, &class), 64u << 20);
    CHECK_EQ(class, 2);
    ntx_frames_share(&f, 0, 2, 4);
    CHECK_EQ(f.n, 6);
    CHECK_EQ(f.class[1].spare, 0);
    ntx_frames_share(&f, 1000, 2, 4);
    CHECK_EQ(f.n, 60);
    ntx_frames_sort(&f, mixed, 6, 10, 2); /* the rest goes into the last class that is large enough */
    CHECK_EQ(f.n_classes, 2);
    CHECK_EQ(f.class[1].n_bundles, 40);
    ntx_frames_sort(&f, mixed, 6, 10, 1);
    CHECK_EQ(f.class[0].n_bundles, 60);
    CHECK_EQ(f.class[0].bytes, 3 << 20);
}

/* A bundle only gets frames of its class. */
static void classes_in_the_cache(void)
{
    const uint64_t bytes[LAYERS] = {8192, 4096, 8192, 4096};
    struct ntx_frames f;
    struct ntx_cache *c;
    uint64_t state = 17;
    ntx_frames_sort(&f, bytes, LAYERS, EXPERTS, NTX_FRAME_CLASSES);
    ntx_frames_share(&f, 16, 2, 1);
    CHECK_EQ(ntx_cache_new(&f, LAYERS, EXPERTS, NULL, &c), 0);
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t b = random_bundle(&state), g = random_bundle(&state);
        use(c, b);
        CHECK_EQ(ntx_cache_frame(c, b) < 8, b / EXPERTS % 2 == 0);
        if (ntx_cache_frame(c, g) == NTX_NO_FRAME)
            prefetch(c, g);
        if (ntx_cache_frame(c, g) != NTX_NO_FRAME)
            CHECK_EQ(ntx_cache_frame(c, g) < 8, g / EXPERTS % 2 == 0);
    }
    CHECK_EQ(count(c), 16);
    ntx_cache_free(c);
}

/* Counts of earlier loads decide first; rows of this load soon outweigh them. */
static void begun(void)
{
    struct ntx_cache *c = fresh(NULL, 2, 0);
    const float share[EXPERTS] = {0.1f, 0.9f, 0.5f};
    CHECK(ntx_cache_has_room(c, 0));
    ntx_cache_begin(c, 0, share);
    for (uint32_t b = 1; b < 3; b++)
        ntx_cache_let_go(c, ntx_cache_take(c, b, 0, NTX_CACHE_WANTED));
    CHECK(!ntx_cache_has_room(c, 0));
    ntx_cache_let_go(c, ntx_cache_take(c, 0, 0, NTX_CACHE_WANTED));
    CHECK(ntx_cache_frame(c, 1) != NTX_NO_FRAME && ntx_cache_frame(c, 2) == NTX_NO_FRAME);
    for (uint32_t i = 0; i < 200; i++)
        CHECK_EQ(use(c, 0), NTX_NO_BUNDLE);
    CHECK_EQ(use(c, 3), 1);
    ntx_cache_begin(c, 0, share); /* too late: it has been counted */
    CHECK_EQ(use(c, 1), 3);
    ntx_cache_free(c);
}

int main(void)
{
    begun();
    same_as_looking_at_all(&half_12);
    same_as_looking_at_all(NULL);
    policies();
    rows_count();
    scores_tell();
    held();
    wrong_prefetches_change_nothing();
    right_prefetches();
    classes();
    classes_in_the_cache();
    return 0;
}
