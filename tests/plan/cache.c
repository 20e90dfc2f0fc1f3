/* cache.c: what is replaced under each policy, that frames and bundles always agree, and what predictions may not do.
 * frames.c: which layers share frames. */
#include "weights/cache.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "tests/check.h"

enum { LAYERS = 4, EXPERTS = 8, BUNDLES = LAYERS * EXPERTS };

/* All layers alike. */
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

static struct ntx_cache *fresh(const char *policy, uint32_t n, uint32_t spare)
{
    struct ntx_cache *c;
    struct ntx_frames f = frames(n, spare);
    CHECK_EQ(ntx_cache_new(&f, LAYERS, EXPERTS, policy, &c), 0);
    return c;
}

/* Returns the bundle that had to go, NTX_NO_BUNDLE: none. */
static uint32_t use(struct ntx_cache *c, uint32_t bundle, uint64_t pass)
{
    uint32_t gone = NTX_NO_BUNDLE, had[BUNDLES];
    if (ntx_cache_frame(c, bundle) == NTX_NO_FRAME) {
        for (uint32_t b = 0; b < BUNDLES; b++)
            had[b] = ntx_cache_frame(c, b);
        uint32_t f = ntx_cache_take(c, bundle, (struct ntx_moment){pass, bundle / EXPERTS}, false);
        CHECK(f != NTX_NO_FRAME);
        ntx_cache_let_go(c, f);
        for (uint32_t b = 0; b < BUNDLES; b++)
            if (b != bundle && had[b] != ntx_cache_frame(c, b)) {
                CHECK_EQ(gone, NTX_NO_BUNDLE);
                CHECK_EQ(had[b], f);
                gone = b;
            }
    }
    ntx_cache_use(c, bundle, pass);
    return gone;
}

static uint32_t prefetch(struct ntx_cache *c, uint32_t bundle)
{
    uint32_t f = ntx_cache_take(c, bundle, (struct ntx_moment){0, 0}, true);
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

/* The same by looking at every bundle: for each policy, by its definition. */
struct plain {
    bool there[BUNDLES];
    uint64_t last[BUNDLES];
    double count[BUNDLES];
    uint32_t n;
};

static double plain_value(const struct plain *p, const char *policy, uint32_t b, uint64_t pass)
{
    double aged = p->count[b] * pow(2, -(double)(pass - p->last[b]) / NTX_CACHE_HALF), most = 1 / (1 - pow(2, -1 / NTX_CACHE_HALF));
    return policy[1] == 'r' ? (double)p->last[b] : policy[0] == 'l' ? aged : -1 / (aged / most + 1e-6);
}

/* Every expert of one layer: `next` knows no other order than the count's. */
static void same_as_looking_at_all(const char *policy)
{
    struct ntx_cache *c = fresh(policy, 5, 0);
    struct plain p = {0};
    uint64_t state = 3;
    for (uint64_t pass = 0; pass < 3000; pass++) {
        uint32_t b = random_bundle(&state) % EXPERTS * (random_bundle(&state) % 4 > 0), least = NTX_NO_BUNDLE; /* 0 is liked */
        if (!p.there[b] && p.n == 5) {
            for (uint32_t i = 0; i < EXPERTS; i++)
                if (p.there[i] && (least == NTX_NO_BUNDLE || plain_value(&p, policy, i, pass) < plain_value(&p, policy, least, pass)))
                    least = i;
            p.there[least] = false;
            p.n--;
        }
        CHECK_EQ(use(c, b, pass), least);
        p.n += !p.there[b];
        p.there[b] = true;
        p.count[b] = p.count[b] * pow(2, -(double)(pass - p.last[b]) / NTX_CACHE_HALF) + 1;
        p.last[b] = pass;
        CHECK_EQ(count(c), p.n);
    }
    ntx_cache_free(c);
}

static void policies(void)
{
    struct ntx_cache *c;
    struct ntx_frames f = frames(2, 0);
    static const char *const bad[] = {"mru", "", "lr", "lfu:", "lfu:0", "lfu:-1", "lfu:4x", "lfu4", ":4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_EQ(ntx_cache_new(&f, LAYERS, EXPERTS, bad[i], &c), -EINVAL);
    c = fresh("lru", 2, 0); /* 1 is used most, but longer ago */
    for (uint64_t pass = 0; pass < 9; pass++)
        use(c, 1, pass);
    use(c, 2, 9);
    CHECK_EQ(use(c, 3, 10), 1);
    ntx_cache_free(c);
    c = fresh("lfu", 2, 0);
    for (uint64_t pass = 0; pass < 9; pass++)
        use(c, 1, pass);
    use(c, 2, 9);
    CHECK_EQ(use(c, 3, 10), 2);
    use(c, 3, 60); /* by then the count of 1 is next to nothing */
    CHECK_EQ(use(c, 2, 62), 1);
    ntx_cache_free(c);
    c = fresh("lfu:1000", 2, 0); /* by then it still is much */
    for (uint64_t pass = 0; pass < 9; pass++)
        use(c, 1, pass);
    use(c, 3, 60);
    CHECK_EQ(use(c, 2, 62), 3);
    ntx_cache_free(c);
    for (uint32_t now = 0; now < 3; now += 2) { /* equally often: the layer that has just been computed is the furthest */
        c = fresh("next", 2, 0);
        use(c, 0 * EXPERTS + 3, 7);
        use(c, 2 * EXPERTS + 3, 7);
        CHECK_EQ(use(c, now * EXPERTS + 4, 8), now * EXPERTS + 3);
        ntx_cache_free(c);
    }
}

/* ---- holding and dropping */

static void held(void)
{
    struct ntx_cache *c = fresh(NULL, 3, 0);
    uint64_t state = 11;
    for (uint32_t i = 0; i < 5000; i++)
        use(c, random_bundle(&state), i / LAYERS);
    CHECK_EQ(count(c), 3);
    uint32_t keep = ntx_cache_bundle(c, 1);
    ntx_cache_hold(c, 1);
    ntx_cache_hold(c, 1);
    ntx_cache_let_go(c, 1);
    for (uint32_t i = 0; i < 500; i++)
        use(c, random_bundle(&state), 2000 + i);
    CHECK_EQ(ntx_cache_bundle(c, 1), keep);
    ntx_cache_hold(c, 0);
    ntx_cache_hold(c, 2);
    for (uint32_t b = 0; b < BUNDLES; b++)
        if (ntx_cache_frame(c, b) == NTX_NO_FRAME) {
            CHECK_EQ(ntx_cache_take(c, b, (struct ntx_moment){3000, 0}, false), NTX_NO_FRAME);
            CHECK_EQ(ntx_cache_take(c, b, (struct ntx_moment){3000, 0}, true), NTX_NO_FRAME);
        }
    ntx_cache_drop(c, 2); /* held: nobody gets it yet */
    CHECK_EQ(ntx_cache_bundle(c, 2), NTX_NO_BUNDLE);
    CHECK_EQ(count(c), 2);
    ntx_cache_let_go(c, 2);
    ntx_cache_let_go(c, 0);
    uint32_t other = keep == 0;
    while (ntx_cache_frame(c, other) != NTX_NO_FRAME)
        other++;
    CHECK_EQ(use(c, other, 3001), NTX_NO_BUNDLE); /* into the empty one */
    CHECK_EQ(ntx_cache_frame(c, other), 2);
    ntx_cache_free(c);
}

/* ---- predictions */

/* Whatever is predicted, wrongly, what is cached is what would be without: that which is used is in a cache of the size without the spare
 * frames at the same times. */
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
        use(with, b, i / LAYERS);
        use(without, b, i / LAYERS);
    }
    CHECK_EQ(count(without), 11);
    CHECK_EQ(count(with), 14);
    ntx_cache_free(with);
    ntx_cache_free(without);
}

static void right_prefetches(void)
{
    struct ntx_cache *c = fresh("lru", 6, 2); /* a quarter of 5 beyond the least: one spare frame */
    for (uint32_t b = 0; b < 5; b++)
        CHECK_EQ(use(c, b, b), NTX_NO_BUNDLE);
    CHECK_EQ(use(c, 5, 5), 0); /* the sixth is kept for predictions */
    uint32_t f = prefetch(c, 9);
    CHECK_EQ(prefetch(c, 10), f); /* an older prediction goes, none of those used */
    CHECK_EQ(ntx_cache_frame(c, 9), NTX_NO_FRAME);
    CHECK_EQ(count(c), 6);
    use(c, 10, 6); /* it came true: one of the used ones is too many, and goes when its frame is wanted */
    CHECK(!ntx_cache_is_prefetched(c, f));
    CHECK_EQ(count(c), 6);
    CHECK(prefetch(c, 11) != NTX_NO_FRAME);
    CHECK_EQ(ntx_cache_frame(c, 1), NTX_NO_FRAME);
    CHECK_EQ(ntx_cache_frame(c, 10), f);
    ntx_cache_hold(c, ntx_cache_frame(c, 11));
    CHECK_EQ(prefetch(c, 12), NTX_NO_FRAME); /* the spare frame is being read into */
    CHECK_EQ(use(c, 12, 7), 2);
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

/* A bundle only ever gets a frame of its class. */
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
        use(c, b, i / LAYERS);
        CHECK_EQ(ntx_cache_frame(c, b) < 8, b / EXPERTS % 2 == 0);
        if (ntx_cache_frame(c, g) == NTX_NO_FRAME)
            prefetch(c, g);
        if (ntx_cache_frame(c, g) != NTX_NO_FRAME)
            CHECK_EQ(ntx_cache_frame(c, g) < 8, g / EXPERTS % 2 == 0);
    }
    CHECK_EQ(count(c), 16);
    ntx_cache_free(c);
}

int main(void)
{
    same_as_looking_at_all("lru");
    same_as_looking_at_all("lfu");
    same_as_looking_at_all("next");
    policies();
    held();
    wrong_prefetches_change_nothing();
    right_prefetches();
    classes();
    classes_in_the_cache();
    return 0;
}
