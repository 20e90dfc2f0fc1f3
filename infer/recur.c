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
    size_t tail, fold;   /* floats of a layer */
    uint32_t n, n_free;
    uint32_t *free;      /* [n_free] numbers */
    uint16_t place[NTX_MAX_LAYERS]; /* number of a layer among those that are recurrent */
};

struct ntx_recur {
    struct ntx_recur_pool *pool;
    uint32_t number;
    uint32_t at[2];      /* of each side; NOWHERE: it is being written, or was when a pass failed */
    int now;
};

int ntx_recur_pool_new(const struct ntx_hparams *hp, uint32_t n, struct ntx_recur_pool **out, struct ntx_err *err)
{
    uint64_t bytes;
    struct ntx_recur_pool *p = calloc(1, sizeof *p);
    bool over = __builtin_mul_overflow(ntx_recur_bytes(hp), n, &bytes) || bytes > SIZE_MAX / 2;
    void *base = !p || over || !bytes ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || !(p->free = calloc(n, sizeof *p->free))) {
        if (base != MAP_FAILED)
            munmap(base, bytes);
        free(p);
        return ntx_err_set(err, -ENOMEM, "no memory for the recurrent state of %u sessions of %llu bytes each", n, (unsigned long long)ntx_recur_bytes(hp));
    }
    madvise(base, bytes, MADV_HUGEPAGE); /* a refusal costs speed only */
    p->base = base;
    p->side_bytes = ntx_recur_bytes(hp) / 2;
    p->tail = ntx__recur_tail(hp);
    p->fold = ntx__recur_fold(hp);
    for (p->n = n; p->n_free < n; p->n_free++)
        p->free[p->n_free] = n - 1 - p->n_free; /* low ones first, so that idle ones stay untouched */
    for (uint32_t l = 0, k = 0; l < hp->n_layers; l++)
        p->place[l] = (uint16_t)(ntx_is_recurrent(hp, l) ? k++ : 0);
    *out = p;
    return 0;
}

void ntx_recur_pool_free(struct ntx_recur_pool *p)
{
    if (!p)
        return;
    munmap(p->base, p->n * 2 * p->side_bytes);
    free(p->free);
    free(p);
}

uint32_t ntx_recur_pool_left(const struct ntx_recur_pool *p) { return p->n_free; }

int ntx_recur_new(struct ntx_recur_pool *p, struct ntx_recur **out)
{
    if (!p->n_free)
        return -EAGAIN;
    struct ntx_recur *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    *r = (struct ntx_recur){.pool = p, .number = p->free[--p->n_free], .at = {0, NOWHERE}};
    *out = r;
    return 0;
}

void ntx_recur_free(struct ntx_recur *r)
{
    if (!r)
        return;
    r->pool->free[r->pool->n_free++] = r->number;
    free(r);
}

uint32_t ntx_recur_at(const struct ntx_recur *r) { return r->at[r->now]; }

static uint8_t *side(const struct ntx_recur *r, int which) { return r->pool->base + (2ull * r->number + (unsigned)which) * r->pool->side_bytes; }

/* Which side has the first n tokens; -1: none. */
static int find(const struct ntx_recur *r, uint32_t n) { return r->at[r->now] == n ? r->now : r->at[!r->now] == n ? !r->now : -1; }

int ntx_recur_copy(const struct ntx_recur *r, uint32_t n, struct ntx_recur *to)
{
    int from = n ? find(r, n) : r->now;
    if (from < 0)
        return -ENODATA;
    if (n)
        memcpy(side(to, to->now), side(r, from), r->pool->side_bytes);
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
}

static float *layer_of(const struct ntx_recur *r, int which, uint32_t layer)
{
    return (float *)(void *)side(r, which) + r->pool->place[layer] * (r->pool->tail + r->pool->fold);
}

const float *ntx_recur_tail(const struct ntx_recur *r, uint32_t layer) { return ntx_recur_at(r) ? layer_of(r, r->now, layer) : NULL; }
const float *ntx_recur_fold(const struct ntx_recur *r, uint32_t layer) { return ntx_recur_at(r) ? layer_of(r, r->now, layer) + r->pool->tail : NULL; }
float *ntx_recur_next_tail(const struct ntx_recur *r, uint32_t layer) { return layer_of(r, !r->now, layer); }
float *ntx_recur_next_fold(const struct ntx_recur *r, uint32_t layer) { return layer_of(r, !r->now, layer) + r->pool->tail; }
