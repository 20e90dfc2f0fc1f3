#include "infer/recur.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/util.h"

#define NOWHERE UINT32_MAX

struct ntx_recur_pool {
    uint8_t *base;
    uint64_t side_bytes;
    size_t tail;         /* floats of a layer's, which its fold follows */
    uint32_t n, n_free;
    uint32_t *free;      /* [n_free] numbers of sides */
    size_t place[NTX_MAX_LAYERS]; /* floats of layers before it */
};

struct stop {
    uint32_t at, side;
    bool done; /* the pass that was to come by there did */
};

struct ntx_recur {
    struct ntx_recur_pool *pool;
    uint32_t side[2];
    uint32_t at[2];      /* of each side; NOWHERE: it is being written, or was when a pass failed */
    int now;
    struct stop stop[NTX_RECUR_STOPS];
    uint32_t n_stops;
};

struct ntx_recur_snap {
    struct ntx_recur_pool *pool;
    uint32_t at, side;
};

int ntx_recur_pool_new(const struct ntx_hparams *hp, uint32_t n_sides, struct ntx_recur_pool **out, struct ntx_err *err)
{
    uint64_t bytes;
    struct ntx_recur_pool *p = calloc(1, sizeof *p);
    bool over = __builtin_mul_overflow(ntx_recur_bytes(hp) / 2, n_sides, &bytes) || bytes > SIZE_MAX / 2;
    void *base = !p || over || !bytes ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || !(p->free = calloc(n_sides, sizeof *p->free))) {
        if (base != MAP_FAILED)
            munmap(base, bytes);
        free(p);
        return ntx_err_set(err, -ENOMEM, "no memory for %u recurrent states of %llu bytes each", n_sides, (unsigned long long)ntx_recur_bytes(hp) / 2);
    }
    madvise(base, bytes, MADV_HUGEPAGE); /* a refusal costs speed only */
    p->base = base;
    p->side_bytes = ntx_recur_bytes(hp) / 2;
    p->tail = ntx__recur_tail(hp);
    for (p->n = n_sides; p->n_free < n_sides; p->n_free++)
        p->free[p->n_free] = n_sides - 1 - p->n_free; /* low ones first, so that idle ones stay untouched */
    for (uint32_t l = 1; l < hp->n_layers; l++)
        p->place[l] = p->place[l - 1] + ntx__recur_floats(hp, l - 1);
    *out = p;
    return 0;
}

void ntx_recur_pool_free(struct ntx_recur_pool *p)
{
    if (!p)
        return;
    munmap(p->base, p->n * p->side_bytes);
    free(p->free);
    free(p);
}

uint32_t ntx_recur_pool_left(const struct ntx_recur_pool *p) { return p->n_free; }

static uint32_t take(struct ntx_recur_pool *p) { return p->free[--p->n_free]; }
static void give(struct ntx_recur_pool *p, uint32_t side) { p->free[p->n_free++] = side; }
static void *place_of(const struct ntx_recur_pool *p, uint32_t side) { return p->base + side * p->side_bytes; }

int ntx_recur_new(struct ntx_recur_pool *p, struct ntx_recur **out)
{
    if (p->n_free < 2)
        return -EAGAIN;
    struct ntx_recur *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    *r = (struct ntx_recur){.pool = p, .at = {0, NOWHERE}};
    for (int i = 0; i < 2; i++)
        r->side[i] = take(p);
    *out = r;
    return 0;
}

void ntx_recur_free(struct ntx_recur *r)
{
    if (!r)
        return;
    ntx_recur_unstop(r);
    for (int i = 2; i--;)
        give(r->pool, r->side[i]);
    free(r);
}

uint32_t ntx_recur_at(const struct ntx_recur *r) { return r->at[r->now]; }

static void copy(const struct ntx_recur_pool *p, uint32_t from, uint32_t to) { memcpy(place_of(p, to), place_of(p, from), p->side_bytes); }

/* Which side has the first n tokens; -1: none. */
static int find(const struct ntx_recur *r, uint32_t n) { return r->at[r->now] == n ? r->now : r->at[!r->now] == n ? !r->now : -1; }

int ntx_recur_copy(const struct ntx_recur *r, uint32_t n, struct ntx_recur *to)
{
    int from = n ? find(r, n) : r->now;
    if (from < 0)
        return -ENODATA;
    if (n)
        copy(r->pool, r->side[from], to->side[to->now]);
    to->at[to->now] = n;
    to->at[!to->now] = NOWHERE;
    return 0;
}

uint32_t ntx_recur_return(struct ntx_recur *r, uint32_t n)
{
    int to = find(r, n);
    if (to >= 0)
        r->now = to;
    else
        r->at[r->now] = 0;
    return r->at[r->now];
}

/* ---- snapshots */

int ntx_recur_stop(struct ntx_recur *r, uint32_t n)
{
    if (r->n_stops == NTX_RECUR_STOPS || !r->pool->n_free)
        return -EAGAIN;
    r->stop[r->n_stops++] = (struct stop){.at = n, .side = take(r->pool)};
    return 0;
}

void ntx_recur_unstop(struct ntx_recur *r)
{
    while (r->n_stops)
        give(r->pool, r->stop[--r->n_stops].side);
}

static uint32_t find_stop(const struct ntx_recur *r, uint32_t n)
{
    uint32_t i = 0;
    while (i < r->n_stops && r->stop[i].at != n)
        i++;
    return i;
}

bool ntx_recur_has(const struct ntx_recur *r, uint32_t n, bool *copies)
{
    uint32_t i = find_stop(r, n);
    *copies = i == r->n_stops || !r->stop[i].done;
    return !*copies || find(r, n) >= 0;
}

int ntx_recur_snap_new(struct ntx_recur *r, uint32_t n, struct ntx_recur_snap **out)
{
    bool copies;
    if (!ntx_recur_has(r, n, &copies))
        return -ENODATA;
    if (copies && !r->pool->n_free)
        return -EAGAIN;
    struct ntx_recur_snap *s = malloc(sizeof *s);
    if (!s)
        return -ENOMEM;
    *s = (struct ntx_recur_snap){.pool = r->pool, .at = n};
    if (copies) {
        s->side = take(r->pool);
        copy(r->pool, r->side[find(r, n)], s->side);
    } else {
        struct stop *stop = &r->stop[find_stop(r, n)];
        s->side = stop->side;
        *stop = r->stop[--r->n_stops];
    }
    *out = s;
    return 0;
}

void ntx_recur_snap_put(const struct ntx_recur_snap *s, struct ntx_recur *r)
{
    copy(s->pool, s->side, r->side[r->now]);
    r->at[r->now] = s->at;
    r->at[!r->now] = NOWHERE;
}

void ntx_recur_snap_free(struct ntx_recur_snap *s)
{
    if (!s)
        return;
    give(s->pool, s->side);
    free(s);
}

void *ntx_recur_memory(const struct ntx_recur *r, size_t *bytes)
{
    *bytes = r->pool->side_bytes;
    return place_of(r->pool, r->side[r->now]);
}

void ntx_recur_restored(struct ntx_recur *r, uint32_t n)
{
    r->at[r->now] = n;
    r->at[!r->now] = NOWHERE;
}

/* ---- passes */

int ntx_recur_begin(struct ntx_recur *r, uint32_t pos)
{
    if (!pos)
        ntx_recur_return(r, 0);
    if (r->at[r->now] != pos)
        return -EINVAL;
    r->at[!r->now] = NOWHERE;
    return 0;
}

void ntx_recur_step(struct ntx_recur *r, uint32_t n)
{
    uint32_t at = r->at[r->now] + n;
    r->now = !r->now;
    r->at[r->now] = at;
    for (uint32_t i = 0; i < r->n_stops; i++)
        r->stop[i].done |= r->stop[i].at > at - n && r->stop[i].at <= at;
}

uint64_t ntx_recur_side(const struct ntx_recur *r, bool next) { return r->side[next ? !r->now : r->now] * r->pool->side_bytes; }

uint64_t ntx_recur_layer(const struct ntx_hparams *hp, uint32_t layer)
{
    size_t before = 0;
    for (uint32_t l = 0; l < layer; l++)
        before += ntx__recur_floats(hp, l);
    return before * sizeof(float);
}

static float *layer_in(const struct ntx_recur_pool *p, uint32_t side, uint32_t layer) { return (float *)place_of(p, side) + p->place[layer]; }
static float *layer_of(const struct ntx_recur *r, int which, uint32_t layer) { return layer_in(r->pool, r->side[which], layer); }

const float *ntx_recur_tail(const struct ntx_recur *r, uint32_t layer) { return ntx_recur_at(r) ? layer_of(r, r->now, layer) : NULL; }
const float *ntx_recur_fold(const struct ntx_recur *r, uint32_t layer) { return ntx_recur_at(r) ? layer_of(r, r->now, layer) + r->pool->tail : NULL; }
float *ntx_recur_next_tail(const struct ntx_recur *r, uint32_t layer) { return layer_of(r, !r->now, layer); }
float *ntx_recur_next_fold(const struct ntx_recur *r, uint32_t layer) { return layer_of(r, !r->now, layer) + r->pool->tail; }

static float *stop_of(const struct ntx_recur *r, uint32_t n, uint32_t layer)
{
    uint32_t i = find_stop(r, n);
    return i < r->n_stops ? layer_in(r->pool, r->stop[i].side, layer) : NULL;
}

float *ntx_recur_stop_tail(const struct ntx_recur *r, uint32_t n, uint32_t layer) { return stop_of(r, n, layer); }

float *ntx_recur_stop_fold(const struct ntx_recur *r, uint32_t n, uint32_t layer)
{
    float *at = stop_of(r, n, layer);
    return at ? at + r->pool->tail : NULL;
}
