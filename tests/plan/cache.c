/* cache.c: what is replaced under each policy, and that frames and bundles always agree. */
#include "computed/cache.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/check.h"

enum { LAYERS = 4, EXPERTS = 8 };

static bool any(void *ctx, uint32_t frame)
{
    (void)ctx;
    (void)frame;
    return true;
}

static bool not_one(void *ctx, uint32_t frame) { return frame != *(const uint32_t *)ctx; }

static struct ntx_cache *fresh(const char *policy, uint32_t frames)
{
    struct ntx_cache *c;
    CHECK_EQ(ntx_cache_new(LAYERS, EXPERTS, frames, policy, &c), 0);
    return c;
}

static void add(struct ntx_cache *c, uint32_t bundle, uint64_t pass)
{
    uint32_t f = ntx_cache_frame(c, bundle);
    if (f == NTX_NO_FRAME)
        ntx_cache_put(c, ntx_cache_choose(c, pass, bundle / EXPERTS, any, NULL), bundle);
    ntx_cache_use(c, bundle, pass);
}

static uint32_t victim(struct ntx_cache *c, uint64_t pass, uint32_t layer)
{
    return ntx_cache_bundle(c, ntx_cache_choose(c, pass, layer, any, NULL));
}

static void frames_and_bundles(void)
{
    struct ntx_cache *c = fresh(NULL, 3);
    uint32_t busy;
    for (uint32_t i = 0; i < 5000; i++)
        add(c, (i * 2654435761u >> 7) % (LAYERS * EXPERTS), i / LAYERS);
    for (uint32_t f = 0; f < 3; f++)
        CHECK_EQ(ntx_cache_frame(c, ntx_cache_bundle(c, f)), f);
    uint32_t n = 0;
    for (uint32_t b = 0; b < LAYERS * EXPERTS; b++)
        n += ntx_cache_frame(c, b) != NTX_NO_FRAME;
    CHECK_EQ(n, 3);
    busy = ntx_cache_choose(c, 2000, 0, any, NULL);
    CHECK(ntx_cache_choose(c, 2000, 0, not_one, &busy) != busy);
    ntx_cache_drop(c, busy);
    CHECK_EQ(ntx_cache_bundle(c, busy), NTX_NO_BUNDLE);
    CHECK_EQ(ntx_cache_choose(c, 2000, 0, any, NULL), busy);
    ntx_cache_free(c);
}

static void policies(void)
{
    struct ntx_cache *c;
    CHECK_EQ(ntx_cache_new(LAYERS, EXPERTS, 2, "mru", &c), -EINVAL);
    c = fresh("lru", 2); /* 1 is used most, but longer ago */
    for (uint64_t pass = 0; pass < 9; pass++)
        add(c, 1, pass);
    add(c, 2, 9);
    CHECK_EQ(victim(c, 10, 0), 1);
    ntx_cache_free(c);
    c = fresh("lfu", 2);
    for (uint64_t pass = 0; pass < 9; pass++)
        add(c, 1, pass);
    add(c, 2, 9);
    CHECK_EQ(victim(c, 10, 0), 2);
    add(c, 2, 60); /* by then the count of 1 is next to nothing */
    add(c, 2, 61);
    CHECK_EQ(victim(c, 62, 0), 1);
    ntx_cache_free(c);
    c = fresh("next", 2); /* equally often: the layer that has just been computed is the furthest */
    add(c, 0 * EXPERTS + 3, 7);
    add(c, 2 * EXPERTS + 3, 7);
    CHECK_EQ(victim(c, 8, 0), 0 * EXPERTS + 3);
    CHECK_EQ(victim(c, 8, 2), 2 * EXPERTS + 3);
    ntx_cache_free(c);
}

int main(void)
{
    frames_and_bundles();
    policies();
    return 0;
}
