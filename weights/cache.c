#include "weights/cache.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NOT_IN_HEAP UINT32_MAX
#define END NTX_NO_FRAME /* of a list */

struct use {
    uint64_t last; /* pass */
    double count;  /* as of that pass */
    double key;    /* the policy's, of these two */
};

struct place { /* a frame */
    uint32_t bundle, holds;
    uint32_t before, after; /* in one of its class's lists */
    uint8_t class;
    bool prefetched;
};

struct list {
    uint32_t first, last;
};

struct heap { /* of a layer: used bundles that are not held, the least valuable first */
    uint32_t n, *bundle; /* [n_expert] */
};

struct policy {
    const char *name;
    double (*key)(const struct ntx_cache *c, const struct use *u);                                 /* orders the bundles of a layer */
    double (*value)(const struct ntx_cache *c, uint32_t layer, double key, struct ntx_moment now); /* orders those of all */
};

struct ntx_cache {
    uint32_t n_layers, n_expert;
    struct ntx_frames frames;
    const struct policy *policy;
    double half;            /* passes */
    struct use *use;        /* [bundles] */
    uint32_t *frame_of;     /* [bundles] */
    uint32_t *heap_at;      /* [bundles] where in its heap */
    uint32_t *heap_room;    /* [bundles] what the heaps lie in */
    struct heap *heap;      /* [n_layers] */
    struct place *place;    /* [frames] */
    struct {
        uint32_t n_used, n_prefetched; /* frames with such bundles */
        uint32_t spare;                /* kept for those that are prefetched */
        struct list empty, prefetched; /* frames that are not held, the oldest first */
    } class[NTX_FRAME_CLASSES];
};

static uint32_t layer_of(const struct ntx_cache *c, uint32_t bundle) { return bundle / c->n_expert; }
static uint8_t class_of(const struct ntx_cache *c, uint32_t bundle) { return c->frames.class_of[layer_of(c, bundle)]; }

/* ---- policies */

static double last_use(const struct ntx_cache *c, const struct use *u)
{
    (void)c;
    return (double)u->last;
}

static double as_it_is(const struct ntx_cache *c, uint32_t layer, double key, struct ntx_moment now)
{
    (void)c;
    (void)layer;
    (void)now;
    return key;
}

/* The pass at which the count will have come down to 1, in half-lives: the same order as the counts of any one pass have. */
static double ageing_count(const struct ntx_cache *c, const struct use *u) { return log2(u->count) + (double)u->last / c->half; }

/* A bundle used in each of many passes has a count of 1 / (1 - 2^(-1/half)): the count over that is the chance that a pass
 * uses it. On average 1 / chance - 1 passes go by without, before the one that does. */
static double layers_to_go(const struct ntx_cache *c, uint32_t layer, double key, struct ntx_moment now)
{
    double most = 1 / (1 - exp2(-1 / c->half)), chance = exp2(key - (double)now.pass / c->half) / most;
    uint32_t to_go = (layer + c->n_layers - now.layer - 1) % c->n_layers + 1;
    return -(to_go + c->n_layers * (1 / (chance + 1e-6) - 1));
}

static const struct policy policies[] = {
    {"lru", last_use, as_it_is}, {"lfu", ageing_count, as_it_is}, {"next", ageing_count, layers_to_go}};

/* ---- heaps */

static bool less(const struct ntx_cache *c, uint32_t a, uint32_t b) { return c->use[a].key < c->use[b].key; }

static void set_at(struct ntx_cache *c, struct heap *h, uint32_t i, uint32_t bundle)
{
    h->bundle[i] = bundle;
    c->heap_at[bundle] = i;
}

static void rise(struct ntx_cache *c, struct heap *h, uint32_t i)
{
    uint32_t bundle = h->bundle[i];
    for (; i && less(c, bundle, h->bundle[(i - 1) / 2]); i = (i - 1) / 2)
        set_at(c, h, i, h->bundle[(i - 1) / 2]);
    set_at(c, h, i, bundle);
}

static void sift_down(struct ntx_cache *c, struct heap *h, uint32_t i)
{
    uint32_t bundle = h->bundle[i];
    for (uint32_t k; (k = 2 * i + 1) < h->n; i = k) {
        k += k + 1 < h->n && less(c, h->bundle[k + 1], h->bundle[k]);
        if (!less(c, h->bundle[k], bundle))
            break;
        set_at(c, h, i, h->bundle[k]);
    }
    set_at(c, h, i, bundle);
}

static void heap_add(struct ntx_cache *c, uint32_t bundle)
{
    struct heap *h = &c->heap[layer_of(c, bundle)];
    h->bundle[h->n] = bundle;
    rise(c, h, h->n++);
}

static void heap_remove(struct ntx_cache *c, uint32_t bundle)
{
    struct heap *h = &c->heap[layer_of(c, bundle)];
    uint32_t i = c->heap_at[bundle], moved = h->bundle[--h->n];
    c->heap_at[bundle] = NOT_IN_HEAP;
    if (moved == bundle)
        return;
    set_at(c, h, i, moved);
    rise(c, h, i);
    sift_down(c, h, c->heap_at[moved]);
}

/* The frame of the least valuable used bundle of a class that is not held. */
static uint32_t least(const struct ntx_cache *c, uint8_t class, struct ntx_moment now)
{
    uint32_t best = NTX_NO_FRAME;
    double least_value = INFINITY;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        if (!c->heap[l].n || c->frames.class_of[l] != class)
            continue;
        uint32_t bundle = c->heap[l].bundle[0];
        double value = c->policy->value(c, l, c->use[bundle].key, now);
        if (best == NTX_NO_FRAME || value < least_value) {
            best = c->frame_of[bundle];
            least_value = value;
        }
    }
    return best;
}

/* ---- lists of frames */

static struct list *list_of(struct ntx_cache *c, const struct place *p) { return p->prefetched ? &c->class[p->class].prefetched : &c->class[p->class].empty; }

static void list_add(struct ntx_cache *c, uint32_t frame)
{
    struct place *p = &c->place[frame];
    struct list *l = list_of(c, p);
    p->before = l->last;
    p->after = END;
    *(l->last == END ? &l->first : &c->place[l->last].after) = frame;
    l->last = frame;
}

static void list_remove(struct ntx_cache *c, uint32_t frame)
{
    const struct place *p = &c->place[frame];
    struct list *l = list_of(c, p);
    *(p->before == END ? &l->first : &c->place[p->before].after) = p->after;
    *(p->after == END ? &l->last : &c->place[p->after].before) = p->before;
}

/* ---- frames */

uint32_t ntx_cache_frame(const struct ntx_cache *c, uint32_t bundle) { return c->frame_of[bundle]; }
uint32_t ntx_cache_bundle(const struct ntx_cache *c, uint32_t frame) { return c->place[frame].bundle; }
bool ntx_cache_is_prefetched(const struct ntx_cache *c, uint32_t frame) { return c->place[frame].prefetched; }

static bool used(const struct place *p) { return p->bundle != NTX_NO_BUNDLE && !p->prefetched; }

/* In and out of where frames are chosen from. */
static void offer(struct ntx_cache *c, uint32_t frame)
{
    const struct place *p = &c->place[frame];
    if (used(p))
        heap_add(c, p->bundle);
    else
        list_add(c, frame);
}

static void withdraw(struct ntx_cache *c, uint32_t frame)
{
    const struct place *p = &c->place[frame];
    if (used(p))
        heap_remove(c, p->bundle);
    else
        list_remove(c, frame);
}

void ntx_cache_hold(struct ntx_cache *c, uint32_t frame)
{
    if (!c->place[frame].holds++)
        withdraw(c, frame);
}

void ntx_cache_let_go(struct ntx_cache *c, uint32_t frame)
{
    if (!--c->place[frame].holds)
        offer(c, frame);
}

/* Of a frame that is not offered. */
static void empty(struct ntx_cache *c, struct place *p)
{
    if (p->bundle != NTX_NO_BUNDLE)
        c->frame_of[p->bundle] = NTX_NO_FRAME;
    c->class[p->class].n_used -= used(p);
    c->class[p->class].n_prefetched -= p->prefetched;
    p->bundle = NTX_NO_BUNDLE;
    p->prefetched = false;
}

void ntx_cache_drop(struct ntx_cache *c, uint32_t frame)
{
    ntx_cache_hold(c, frame);
    empty(c, &c->place[frame]);
    ntx_cache_let_go(c, frame);
}

static double aged(const struct ntx_cache *c, const struct use *u, uint64_t pass) { return u->count * exp2(-(double)(pass - u->last) / c->half); }

void ntx_cache_use(struct ntx_cache *c, uint32_t bundle, uint64_t pass)
{
    struct use *u = &c->use[bundle];
    uint32_t frame = c->frame_of[bundle];
    if (frame != NTX_NO_FRAME)
        ntx_cache_hold(c, frame); /* its place in the heap is going to change */
    u->count = aged(c, u, pass) + 1;
    u->last = pass;
    u->key = c->policy->key(c, u);
    if (frame == NTX_NO_FRAME)
        return;
    struct place *p = &c->place[frame];
    c->class[p->class].n_used += p->prefetched;
    c->class[p->class].n_prefetched -= p->prefetched;
    p->prefetched = false;
    ntx_cache_let_go(c, frame);
}

static uint32_t choose(const struct ntx_cache *c, uint8_t class, struct ntx_moment now)
{
    const struct ntx_frame_class *k = &c->frames.class[class];
    const struct list *empty = &c->class[class].empty, *prefetched = &c->class[class].prefetched;
    uint32_t victim = NTX_NO_FRAME;
    const uint32_t spare = c->class[class].spare;
    if (c->class[class].n_prefetched > spare && empty->first == END && prefetched->first != END)
        return prefetched->first; /* staged, and not asked for */
    if (c->class[class].n_used >= k->n - spare || empty->first == END)
        victim = least(c, class, now);
    return victim != NTX_NO_FRAME ? victim : empty->first != END ? empty->first : prefetched->first;
}

/* Prefetched bundles hold no more frames than are kept for them, so that an empty one is always there for what is wanted, until all are used. */
static uint32_t choose_for_prefetch(const struct ntx_cache *c, uint8_t class, struct ntx_moment now)
{
    const struct ntx_frame_class *k = &c->frames.class[class];
    const struct list *empty = &c->class[class].empty, *prefetched = &c->class[class].prefetched;
    if (c->class[class].n_prefetched >= c->class[class].spare || (empty->first == END && prefetched->first != END))
        return prefetched->first;
    if (empty->first != END)
        return empty->first;
    return c->class[class].n_used > k->n - c->class[class].spare ? least(c, class, now) : NTX_NO_FRAME;
}

/* Not that of another staged one. */
static uint32_t choose_for_staged(const struct ntx_cache *c, uint8_t class, struct ntx_moment now)
{
    const uint32_t empty = c->class[class].empty.first;
    return empty != END ? empty : least(c, class, now);
}

void ntx_cache_keep_spare(struct ntx_cache *c, uint32_t class, bool keep) { c->class[class].spare = keep ? c->frames.class[class].spare : 0; }

uint32_t ntx_cache_take(struct ntx_cache *c, uint32_t bundle, struct ntx_moment now, enum ntx_cache_for why)
{
    uint8_t class = class_of(c, bundle);
    const bool prefetched = why != NTX_CACHE_WANTED;
    uint32_t frame = why == NTX_CACHE_STAGED ? choose_for_staged(c, class, now) : prefetched ? choose_for_prefetch(c, class, now) : choose(c, class, now);
    if (frame == NTX_NO_FRAME)
        return frame;
    struct place *p = &c->place[frame];
    ntx_cache_hold(c, frame);
    empty(c, p);
    p->bundle = bundle;
    p->prefetched = prefetched;
    c->frame_of[bundle] = frame;
    *(prefetched ? &c->class[class].n_prefetched : &c->class[class].n_used) += 1;
    return frame;
}

/* ---- making */

uint64_t ntx_cache_bytes(uint32_t n_bundles, uint32_t n_frames)
{
    return sizeof(struct ntx_cache) + NTX_MAX_LAYERS * sizeof(struct heap) + (uint64_t)n_bundles * (sizeof(struct use) + 3 * sizeof(uint32_t)) +
           (uint64_t)n_frames * sizeof(struct place);
}

/* *half stays as it is where the text names none. */
static const struct policy *find(const char *text, double *half)
{
    size_t len = strcspn(text, ":");
    char *end = NULL;
    if (text[len])
        *half = strtod(text + len + 1, &end);
    for (size_t i = 0; (!end || (!*end && *half > 0)) && i < sizeof policies / sizeof *policies; i++)
        if (strlen(policies[i].name) == len && !strncmp(policies[i].name, text, len))
            return &policies[i];
    return NULL;
}

static void lay_out(struct ntx_cache *c)
{
    uint64_t n = (uint64_t)c->n_layers * c->n_expert;
    memset(c->frame_of, 0xff, n * sizeof *c->frame_of); /* NTX_NO_FRAME */
    memset(c->heap_at, 0xff, n * sizeof *c->heap_at);
    for (uint32_t l = 0; l < c->n_layers; l++)
        c->heap[l].bundle = c->heap_room + (size_t)l * c->n_expert;
    for (uint32_t k = 0; k < c->frames.n_classes; k++) {
        c->class[k].empty = c->class[k].prefetched = (struct list){END, END};
        c->class[k].spare = c->frames.class[k].spare;
    }
    for (uint32_t f = 0; f < c->frames.n; f++) {
        uint32_t class;
        ntx_frames_place(&c->frames, f, &class);
        c->place[f] = (struct place){.bundle = NTX_NO_BUNDLE, .class = (uint8_t)class};
        list_add(c, f);
    }
}

int ntx_cache_new(const struct ntx_frames *f, uint32_t n_layers, uint32_t n_expert, const char *policy, struct ntx_cache **out)
{
    double half = NTX_CACHE_HALF;
    const struct policy *p = find(policy ? policy : NTX_CACHE_POLICY, &half);
    size_t n = (size_t)n_layers * n_expert;
    if (!p)
        return -EINVAL;
    struct ntx_cache *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    *c = (struct ntx_cache){.n_layers = n_layers, .n_expert = n_expert, .frames = *f, .policy = p, .half = half};
    c->use = calloc(n, sizeof *c->use);
    c->frame_of = malloc(n * sizeof *c->frame_of);
    c->heap_at = malloc(n * sizeof *c->heap_at);
    c->heap_room = malloc(n * sizeof *c->heap_room);
    c->heap = calloc(n_layers, sizeof *c->heap);
    c->place = calloc(f->n, sizeof *c->place);
    if (!c->use || !c->frame_of || !c->heap_at || !c->heap_room || !c->heap || !c->place) {
        ntx_cache_free(c);
        return -ENOMEM;
    }
    lay_out(c);
    *out = c;
    return 0;
}

void ntx_cache_free(struct ntx_cache *c)
{
    if (!c)
        return;
    free(c->use);
    free(c->frame_of);
    free(c->heap_at);
    free(c->heap_room);
    free(c->heap);
    free(c->place);
    free(c);
}
