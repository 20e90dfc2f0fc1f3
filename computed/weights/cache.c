/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/weights/cache.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"

#define NOT_IN_HEAP UINT32_MAX
#define END         NTX_NO_FRAME /* end of a list */

enum { FEW_ROWS = 16 };
#define LEARNS       (1.0f / 1024) /* learning rate of the mixture's shares, per use */
#define STEP         0.02f         /* learning rate of the weights of scores and counts */
#define LEAST_CHANCE 1e-3f         /* a smaller chance counts as this one in logarithms */
enum { N_SCORES = 2, N_BY = N_SCORES + 1 };
static const float score_half[N_SCORES] = {8, 128}; /* rows */
static const float by_at_first[N_BY] = {0.5f, 0.4f, 0.5f};
#define NO_COUNT 1e-20f /* smaller floats would be denormal, and slow */

/* Half-lives in rows, and the share of each at first. The rest up to 1 is the share of "all experts alike". */
static const struct ntx_cache_policy mixed = {3, {0.5f, 8, 128}, {0.1f, 0.4f, 0.4f}};

struct place { /* one frame */
    uint32_t bundle, holds;
    uint32_t before, after; /* in one of its class's lists */
    uint8_t class;
    bool prefetched;
};

struct list {
    uint32_t first, last;
};

struct layer {
    float rows[NTX_CACHE_HALVES]; /* decayed number of rows, for each half-life */
    float scored[N_SCORES];       /* decayed number of rows with scores; 0: none are known */
    float used;                   /* experts per row in the last pass */
    bool stale;                   /* the counts are newer than the keys */
    uint32_t n, *heap;            /* bundles that are used and not held, least valuable first; room for n_expert */
};

struct ntx_cache {
    uint32_t n_layers, n_expert;
    struct ntx_frames frames;
    struct ntx_cache_policy policy; /* with the shares learned so far */
    float all_alike;                /* share of "all experts alike" */
    bool all_fit;                   /* everything fits: nothing is counted */
    float *count;                   /* [n_layers x halves x n_expert] decayed number of rows routed to each */
    float *score;                   /* [n_layers x N_SCORES x n_expert] decayed sums of scores */
    float *log_chance;              /* [bundles] log of the chance by counts, when the keys were made */
    float by[N_BY];                 /* weights of the two scores and of log_chance */
    double *key;                    /* [bundles] the chance that the layer's next row uses it */
    uint32_t *frame_of;             /* [bundles] */
    uint32_t *heap_at;              /* [bundles] index in its heap */
    uint32_t *heap_room;            /* [bundles] memory of all heaps */
    struct layer *layer;            /* [n_layers] */
    struct place *place;            /* [frames] */
    struct {
        uint32_t n_used, n_prefetched; /* frames with used and with prefetched bundles */
        uint32_t spare;                /* frames kept for prefetches */
        struct list empty, prefetched; /* frames that are not held, oldest first */
    } class[NTX_FRAME_CLASSES];
};

static uint32_t layer_of(const struct ntx_cache *c, uint32_t bundle) { return bundle / c->n_expert; }
static uint8_t class_of(const struct ntx_cache *c, uint32_t bundle) { return c->frames.class_of[layer_of(c, bundle)]; }

static float *counts(const struct ntx_cache *c, uint32_t layer, uint32_t half)
{
    return c->count + ((size_t)layer * c->policy.n + half) * c->n_expert;
}

static float *scores_of(const struct ntx_cache *c, uint32_t layer, uint32_t half)
{
    return c->score + ((size_t)layer * N_SCORES + half) * c->n_expert;
}

/* Minus the expected time to the next use, in layers: 1 / chance - 1 rows pass before the row that uses it. */
static double eviction_value(const struct ntx_cache *c, uint32_t layer, double key, uint32_t now)
{
    uint32_t to_go = (layer + c->n_layers - now - 1) % c->n_layers + 1;
    return -(to_go + c->n_layers * (1 / (key + 1e-6) - 1));
}

/* ---- heaps */

static bool less(const struct ntx_cache *c, uint32_t a, uint32_t b) { return c->key[a] < c->key[b]; }

static void set_at(struct ntx_cache *c, struct layer *h, uint32_t i, uint32_t bundle)
{
    h->heap[i] = bundle;
    c->heap_at[bundle] = i;
}

static void sift_up(struct ntx_cache *c, struct layer *h, uint32_t i)
{
    uint32_t bundle = h->heap[i];
    for (; i && less(c, bundle, h->heap[(i - 1) / 2]); i = (i - 1) / 2)
        set_at(c, h, i, h->heap[(i - 1) / 2]);
    set_at(c, h, i, bundle);
}

static void sift_down(struct ntx_cache *c, struct layer *h, uint32_t i)
{
    uint32_t bundle = h->heap[i];
    for (uint32_t k; (k = 2 * i + 1) < h->n; i = k) {
        k += k + 1 < h->n && less(c, h->heap[k + 1], h->heap[k]);
        if (!less(c, h->heap[k], bundle))
            break;
        set_at(c, h, i, h->heap[k]);
    }
    set_at(c, h, i, bundle);
}

static void heap_add(struct ntx_cache *c, uint32_t bundle)
{
    struct layer *h = &c->layer[layer_of(c, bundle)];
    h->heap[h->n] = bundle;
    sift_up(c, h, h->n++);
}

static void heap_remove(struct ntx_cache *c, uint32_t bundle)
{
    struct layer *h = &c->layer[layer_of(c, bundle)];
    uint32_t i = c->heap_at[bundle], moved = h->heap[--h->n];
    c->heap_at[bundle] = NOT_IN_HEAP;
    if (moved == bundle)
        return;
    set_at(c, h, i, moved);
    sift_up(c, h, i);
    sift_down(c, h, c->heap_at[moved]);
}

/* ---- counts */

/* Weight of one of the last n rows, on average: each older row counts less. */
static float row_weight(float half, uint32_t n)
{
    return (1 - exp2f(-(float)n / half)) / (1 - exp2f(-1 / half)) / (float)n;
}

/* One step of expectation maximisation for each use: a half-life's share grows with its part in the prediction. */
static void learn_shares(struct ntx_cache *c, uint32_t layer, uint32_t expert)
{
    const struct layer *l = &c->layer[layer];
    struct ntx_cache_policy *p = &c->policy;
    float said[NTX_CACHE_HALVES], alike = c->all_alike * l->used / (float)c->n_expert, all = alike;
    for (uint32_t k = 0; k < p->n; k++)
        all += said[k] = l->rows[k] > NO_COUNT ? p->share[k] * counts(c, layer, k)[expert] / l->rows[k] : 0;
    for (uint32_t k = 0; all > 0 && k < p->n; k++)
        p->share[k] += LEARNS * (said[k] / all - p->share[k]);
    c->all_alike += all > 0 ? LEARNS * (alike / all - c->all_alike) : 0;
}

static void age_counts(struct ntx_cache *c, uint32_t layer, uint32_t rows)
{
    struct layer *l = &c->layer[layer];
    for (uint32_t k = 0; k < c->policy.n; k++) {
        const float left = exp2f(-(float)rows / c->policy.half[k]);
        float *n = counts(c, layer, k);
        for (uint32_t e = 0; e < c->n_expert; e++)
            n[e] = n[e] * left < NO_COUNT ? 0 : n[e] * left;
        l->rows[k] *= left;
    }
}

static void add_scores(struct ntx_cache *c, uint32_t layer, const float *scores, uint32_t n_rows)
{
    struct layer *l = &c->layer[layer];
    for (uint32_t k = 0; k < N_SCORES; k++) {
        const float left = exp2f(-(float)n_rows / score_half[k]),
                    more = row_weight(score_half[k], n_rows) * (float)n_rows;
        float *x = scores_of(c, layer, k);
        for (uint32_t e = 0; e < c->n_expert; e++)
            x[e] = x[e] * left + more * scores[e];
        l->scored[k] = l->scored[k] * left + more;
    }
}

/* Sets the layer's keys from the counts. */
static void key_from_counts(struct ntx_cache *c, uint32_t layer)
{
    struct layer *l = &c->layer[layer];
    double *key = c->key + (size_t)layer * c->n_expert;
    for (uint32_t e = 0; e < c->n_expert; e++)
        key[e] = c->all_alike * l->used / (float)c->n_expert;
    for (uint32_t k = 0; k < c->policy.n; k++) {
        const float by = l->rows[k] > NO_COUNT ? c->policy.share[k] / l->rows[k] : 0, *n = counts(c, layer, k);
        for (uint32_t e = 0; e < c->n_expert; e++)
            key[e] += by * n[e];
    }
}

/* Corrects the keys by the router's scores. */
static void correct_by_scores(struct ntx_cache *c, uint32_t layer)
{
    const struct layer *l = &c->layer[layer];
    double *key = c->key + (size_t)layer * c->n_expert, sum = 0, most = -INFINITY;
    float *log_chance = c->log_chance + (size_t)layer * c->n_expert;
    const float *some = scores_of(c, layer, 0), *many = scores_of(c, layer, 1), by_some = c->by[0] / l->scored[0],
                by_many = c->by[1] / l->scored[1];
    for (uint32_t e = 0; e < c->n_expert; e++) {
        log_chance[e] = logf(fmaxf((float)key[e], LEAST_CHANCE));
        key[e] = by_some * some[e] + by_many * many[e] + c->by[2] * log_chance[e];
        most = fmax(most, key[e]);
    }
    for (uint32_t e = 0; e < c->n_expert; e++)
        sum += key[e] = expf((float)(key[e] - most));
    for (uint32_t e = 0; e < c->n_expert; e++)
        key[e] = fmin(key[e] / sum * l->used, 1);
}

static void make_keys(struct ntx_cache *c, uint32_t layer)
{
    key_from_counts(c, layer);
    if (c->layer[layer].scored[0] > 0)
        correct_by_scores(c, layer);
}

/* One gradient step of the log-likelihood: observed minus expected, for each weight. */
static void learn_scores(struct ntx_cache *c, uint32_t layer, const uint32_t *experts, const uint32_t *rows, uint32_t n,
                         float used)
{
    const struct layer *l = &c->layer[layer];
    const float *x[N_BY] = {scores_of(c, layer, 0), scores_of(c, layer, 1),
                            c->log_chance + (size_t)layer * c->n_expert},
                per[N_BY] = {1 / l->scored[0], 1 / l->scored[1], 1};
    const double *key = c->key + (size_t)layer * c->n_expert;
    double all = 0;
    for (uint32_t e = 0; e < c->n_expert; e++)
        all += key[e];
    for (uint32_t k = 0; k < N_BY; k++) {
        double had = 0, expected = 0;
        for (uint32_t i = 0; i < n; i++)
            had += (double)rows[i] * (double)x[k][experts[i]];
        for (uint32_t e = 0; e < c->n_expert; e++)
            expected += key[e] * (double)x[k][e];
        c->by[k] += STEP * per[k] * (float)(had / (double)used - expected / all);
    }
}

void ntx_cache_count(struct ntx_cache *c, uint32_t layer, const uint32_t *experts, const uint32_t *rows, uint32_t n,
                     uint32_t n_rows, const float *scores)
{
    struct layer *l = &c->layer[layer];
    uint64_t used = 0;
    if (c->all_fit)
        return;
    for (uint32_t i = 0; i < n; i++)
        used += rows[i];
    if (!n_rows || !used) {
        l->stale = true;
        return;
    }
    if (l->stale && l->scored[0] > 0)
        make_keys(c, layer); /* with the state before this pass */
    if (n_rows <= FEW_ROWS && l->scored[0] > 0)
        learn_scores(c, layer, experts, rows, n, (float)used);
    for (uint32_t i = 0; i < n && n_rows <= FEW_ROWS && l->used > 0; i++)
        learn_shares(c, layer, experts[i]);
    l->stale = true;
    age_counts(c, layer, n_rows);
    for (uint32_t k = 0; k < c->policy.n; k++) {
        const float each = row_weight(c->policy.half[k], n_rows);
        for (uint32_t i = 0; i < n; i++)
            counts(c, layer, k)[experts[i]] += each * (float)rows[i];
        l->rows[k] += each * (float)n_rows;
    }
    if (scores && c->policy.n > 1)
        add_scores(c, layer, scores, n_rows);
    l->used = (float)used / (float)n_rows;
}

/* As if so many rows had been counted: the layer's own rows soon outweigh them. */
#define BEGIN_ROWS 32.0f
void ntx_cache_begin(struct ntx_cache *c, uint32_t layer, const float *share)
{
    struct layer *l = &c->layer[layer];
    float used = 0;
    for (uint32_t e = 0; e < c->n_expert; e++)
        used += share[e];
    if (used <= 0 || l->used > 0)
        return;
    for (uint32_t k = 0; k < c->policy.n; k++) {
        const float rows = fminf(BEGIN_ROWS, c->policy.half[k]);
        for (uint32_t e = 0; e < c->n_expert; e++)
            counts(c, layer, k)[e] = rows * share[e];
        l->rows[k] = rows;
    }
    l->used = used;
    l->stale = true;
}

/* Rebuilds the layer's heap from its present counts. */
static void sort_layer(struct ntx_cache *c, uint32_t layer)
{
    struct layer *l = &c->layer[layer];
    make_keys(c, layer);
    for (uint32_t i = l->n / 2; i-- > 0;)
        sift_down(c, l, i);
    l->stale = false;
}

/* The frame of the class's least valuable used bundle that is not held. */
static uint32_t least_valuable(struct ntx_cache *c, uint8_t class, uint32_t now)
{
    uint32_t best = NTX_NO_FRAME;
    double least_value = INFINITY;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        if (!c->layer[l].n || c->frames.class_of[l] != class)
            continue;
        if (c->layer[l].stale)
            sort_layer(c, l);
        uint32_t bundle = c->layer[l].heap[0];
        double v = eviction_value(c, l, c->key[bundle], now);
        if (best == NTX_NO_FRAME || v < least_value) {
            best = c->frame_of[bundle];
            least_value = v;
        }
    }
    return best;
}

/* ---- lists of frames */

static struct list *list_of(struct ntx_cache *c, const struct place *p)
{
    return p->prefetched ? &c->class[p->class].prefetched : &c->class[p->class].empty;
}

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

/* Frames that may be evicted are in a heap or a list; held ones are in neither. */
static void make_evictable(struct ntx_cache *c, uint32_t frame)
{
    const struct place *p = &c->place[frame];
    if (used(p))
        heap_add(c, p->bundle);
    else
        list_add(c, frame);
}

static void make_held(struct ntx_cache *c, uint32_t frame)
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
        make_held(c, frame);
}

void ntx_cache_let_go(struct ntx_cache *c, uint32_t frame)
{
    if (!--c->place[frame].holds)
        make_evictable(c, frame);
}

/* The frame is held: it is in no heap or list. */
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

void ntx_cache_use(struct ntx_cache *c, uint32_t bundle)
{
    const uint32_t frame = c->frame_of[bundle];
    if (frame == NTX_NO_FRAME || !c->place[frame].prefetched)
        return;
    struct place *p = &c->place[frame];
    ntx_cache_hold(c, frame); /* the frame moves from the prefetched list to the heap */
    c->class[p->class].n_used++;
    c->class[p->class].n_prefetched--;
    p->prefetched = false;
    ntx_cache_let_go(c, frame);
}

static uint32_t choose_for_wanted(struct ntx_cache *c, uint8_t class, uint32_t now)
{
    const struct ntx_frame_class *k = &c->frames.class[class];
    const struct list *empty = &c->class[class].empty, *prefetched = &c->class[class].prefetched;
    uint32_t victim = NTX_NO_FRAME;
    const uint32_t spare = c->class[class].spare;
    if (c->class[class].n_prefetched > spare && empty->first == END && prefetched->first != END)
        return prefetched->first; /* a staged bundle that nobody used */
    if (c->class[class].n_used >= k->n - spare || empty->first == END)
        victim = least_valuable(c, class, now);
    if (victim != NTX_NO_FRAME)
        return victim;
    return empty->first != END ? empty->first : prefetched->first;
}

bool ntx_cache_has_room(const struct ntx_cache *c, uint32_t bundle)
{
    const uint8_t class = class_of(c, bundle);
    return c->class[class].empty.first != END &&
           c->class[class].n_used < c->frames.class[class].n - c->class[class].spare;
}

/* Prefetched bundles hold at most the frames kept for them. So wanted bundles find an empty frame until all are
 * used. */
static uint32_t choose_for_prefetch(struct ntx_cache *c, uint8_t class, uint32_t now)
{
    const struct ntx_frame_class *k = &c->frames.class[class];
    const struct list *empty = &c->class[class].empty, *prefetched = &c->class[class].prefetched;
    if (c->class[class].n_prefetched >= c->class[class].spare || (empty->first == END && prefetched->first != END))
        return prefetched->first;
    if (empty->first != END)
        return empty->first;
    return c->class[class].n_used > k->n - c->class[class].spare ? least_valuable(c, class, now) : NTX_NO_FRAME;
}

/* A staged bundle never evicts another staged one. */
static uint32_t choose_for_staged(struct ntx_cache *c, uint8_t class, uint32_t now)
{
    const uint32_t empty = c->class[class].empty.first;
    return empty != END ? empty : least_valuable(c, class, now);
}

static uint32_t choose_frame(struct ntx_cache *c, uint8_t class, uint32_t now, enum ntx_cache_for why)
{
    switch (why) {
    case NTX_CACHE_STAGED: return choose_for_staged(c, class, now);
    case NTX_CACHE_PREFETCHED: return choose_for_prefetch(c, class, now);
    default: return choose_for_wanted(c, class, now);
    }
}

void ntx_cache_keep_spare(struct ntx_cache *c, uint32_t class, bool keep)
{
    c->class[class].spare = keep ? c->frames.class[class].spare : 0;
}

uint32_t ntx_cache_take(struct ntx_cache *c, uint32_t bundle, uint32_t now, enum ntx_cache_for why)
{
    uint8_t class = class_of(c, bundle);
    const bool prefetched = why != NTX_CACHE_WANTED;
    uint32_t frame = choose_frame(c, class, now, why);
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
    return sizeof(struct ntx_cache) + NTX_MAX_LAYERS * sizeof(struct layer) +
           (uint64_t)n_bundles * ((mixed.n + N_SCORES + 1) * sizeof(float) + sizeof(double) + 3 * sizeof(uint32_t)) +
           (uint64_t)n_frames * sizeof(struct place);
}

static void lay_out(struct ntx_cache *c)
{
    uint64_t n = (uint64_t)c->n_layers * c->n_expert;
    memset(c->frame_of, 0xff, n * sizeof *c->frame_of); /* NTX_NO_FRAME */
    memset(c->heap_at, 0xff, n * sizeof *c->heap_at);
    for (uint32_t l = 0; l < c->n_layers; l++)
        c->layer[l].heap = c->heap_room + (size_t)l * c->n_expert;
    c->all_fit = true;
    for (uint32_t k = 0; k < c->frames.n_classes; k++) {
        c->all_fit &= c->frames.class[k].n >= c->frames.class[k].n_bundles;
        c->class[k].empty = c->class[k].prefetched = (struct list){END, END};
        c->class[k].spare = c->frames.class[k].spare;
    }
    for (uint32_t f = 0; f < c->frames.n; f++) {
        uint32_t class;
        ntx_frames_place(&c->frames, f, &class);
        c->place[f] = (struct place){.bundle = NTX_NO_BUNDLE, .class = (uint8_t) class};
        list_add(c, f);
    }
}

int ntx_cache_new(const struct ntx_frames *f, uint32_t n_layers, uint32_t n_expert,
                  const struct ntx_cache_policy *policy, struct ntx_cache **out)
{
    const struct ntx_cache_policy p = policy ? *policy : mixed;
    size_t n = (size_t)n_layers * n_expert;
    struct ntx_cache *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    *c = (struct ntx_cache){.n_layers = n_layers, .n_expert = n_expert, .frames = *f, .policy = p, .all_alike = 1};
    for (uint32_t k = 0; k < p.n; k++)
        c->all_alike -= p.share[k];
    c->count = calloc(n, p.n * sizeof *c->count);
    c->score = calloc(n, N_SCORES * sizeof *c->score);
    c->log_chance = calloc(n, sizeof *c->log_chance);
    c->key = calloc(n, sizeof *c->key);
    c->frame_of = malloc(n * sizeof *c->frame_of);
    c->heap_at = malloc(n * sizeof *c->heap_at);
    c->heap_room = malloc(n * sizeof *c->heap_room);
    c->layer = calloc(n_layers, sizeof *c->layer);
    c->place = calloc(f->n, sizeof *c->place);
    memcpy(c->by, by_at_first, sizeof c->by);
    if (!c->count || !c->score || !c->log_chance || !c->key || !c->frame_of || !c->heap_at || !c->heap_room ||
        !c->layer || !c->place) {
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
    free(c->count);
    free(c->score);
    free(c->log_chance);
    free(c->key);
    free(c->frame_of);
    free(c->heap_at);
    free(c->heap_room);
    free(c->layer);
    free(c->place);
    free(c);
}
