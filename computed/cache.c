#include "computed/cache.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct use {
    uint64_t last; /* pass */
    float count;   /* as of that pass */
};

struct moment {
    uint64_t pass;
    uint32_t layer;
};

typedef float value_fn(const struct ntx_cache *c, uint32_t bundle, struct moment now);

struct ntx_cache {
    uint32_t n_layers, n_expert, n_frames;
    value_fn *value;
    struct use *use;     /* [bundles] */
    uint32_t *frame_of;  /* [bundles] */
    uint32_t *bundle_of; /* [n_frames] */
};

/* ---- policies */

static float aged(const struct use *u, uint64_t pass)
{
    return u->count * exp2f(-(float)(pass - u->last) / NTX_CACHE_HALF);
}

static float lru(const struct ntx_cache *c, uint32_t bundle, struct moment now)
{
    return -(float)(now.pass - c->use[bundle].last);
}

static float lfu(const struct ntx_cache *c, uint32_t bundle, struct moment now)
{
    return aged(&c->use[bundle], now.pass);
}

/* A bundle used in each of many passes has a count of 1 / (1 - 2^(-1/half)): the count over that is the chance that a pass
 * uses it. On average 1 / chance - 1 passes go by without, before the one that does. */
static float next(const struct ntx_cache *c, uint32_t bundle, struct moment now)
{
    float most = 1 / (1 - exp2f(-1 / NTX_CACHE_HALF)), chance = aged(&c->use[bundle], now.pass) / most;
    uint32_t layer = bundle / c->n_expert, to_go = (layer + c->n_layers - now.layer - 1) % c->n_layers + 1;
    return -((float)to_go + (float)c->n_layers * (1 / (chance + 1e-6f) - 1));
}

static const struct {
    const char *name;
    value_fn *value;
} policies[] = {{"lru", lru}, {"lfu", lfu}, {"next", next}};

const char *ntx_cache_policies(void) { return "lru, lfu, next"; }

/* ---- frames */

uint32_t ntx_cache_frame(const struct ntx_cache *c, uint32_t bundle) { return c->frame_of[bundle]; }
uint32_t ntx_cache_bundle(const struct ntx_cache *c, uint32_t frame) { return c->bundle_of[frame]; }

void ntx_cache_use(struct ntx_cache *c, uint32_t bundle, uint64_t pass)
{
    struct use *u = &c->use[bundle];
    u->count = aged(u, pass) + 1;
    u->last = pass;
}

uint32_t ntx_cache_choose(const struct ntx_cache *c, uint64_t pass, uint32_t layer, bool (*may)(void *ctx, uint32_t frame), void *ctx)
{
    const struct moment now = {pass, layer};
    uint32_t best = NTX_NO_FRAME;
    float least = INFINITY;
    for (uint32_t f = 0; f < c->n_frames; f++) {
        if (!may(ctx, f))
            continue;
        if (c->bundle_of[f] == NTX_NO_BUNDLE)
            return f;
        float value = c->value(c, c->bundle_of[f], now);
        if (best == NTX_NO_FRAME || value < least) {
            best = f;
            least = value;
        }
    }
    return best;
}

void ntx_cache_drop(struct ntx_cache *c, uint32_t frame)
{
    if (c->bundle_of[frame] != NTX_NO_BUNDLE)
        c->frame_of[c->bundle_of[frame]] = NTX_NO_FRAME;
    c->bundle_of[frame] = NTX_NO_BUNDLE;
}

void ntx_cache_put(struct ntx_cache *c, uint32_t frame, uint32_t bundle)
{
    ntx_cache_drop(c, frame);
    c->bundle_of[frame] = bundle;
    c->frame_of[bundle] = frame;
}

/* ---- making */

uint64_t ntx_cache_bytes(uint32_t n_bundles, uint32_t n_frames)
{
    return sizeof(struct ntx_cache) + (uint64_t)n_bundles * (sizeof(struct use) + sizeof(uint32_t)) + (uint64_t)n_frames * sizeof(uint32_t);
}

static value_fn *find(const char *name)
{
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        if (!strcmp(policies[i].name, name))
            return policies[i].value;
    return NULL;
}

int ntx_cache_new(uint32_t n_layers, uint32_t n_expert, uint32_t n_frames, const char *policy, struct ntx_cache **out)
{
    value_fn *value = find(policy ? policy : NTX_CACHE_POLICY);
    size_t n = (size_t)n_layers * n_expert;
    if (!value)
        return -EINVAL;
    struct ntx_cache *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    *c = (struct ntx_cache){.n_layers = n_layers, .n_expert = n_expert, .n_frames = n_frames, .value = value};
    c->use = calloc(n, sizeof *c->use);
    c->frame_of = malloc(n * sizeof *c->frame_of);
    c->bundle_of = malloc(n_frames * sizeof *c->bundle_of);
    if (!c->use || !c->frame_of || !c->bundle_of) {
        ntx_cache_free(c);
        return -ENOMEM;
    }
    memset(c->frame_of, 0xff, n * sizeof *c->frame_of); /* NTX_NO_FRAME */
    memset(c->bundle_of, 0xff, n_frames * sizeof *c->bundle_of);
    *out = c;
    return 0;
}

void ntx_cache_free(struct ntx_cache *c)
{
    if (!c)
        return;
    free(c->use);
    free(c->frame_of);
    free(c->bundle_of);
    free(c);
}
