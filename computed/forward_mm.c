/* forward_mm.c: the parts of a step that threads share.
 *
 * Multiplying: a chunk's rows are cut into tiles, which threads take from a counter. A thread that finds no tile left goes on to the
 * next chunk at once, so a thread is at most held up by bytes that have not arrived, never by another thread. It asks for a
 * chunk's bytes only when it holds a tile of it; whoever finishes the last tile releases the chunk. After an error nobody
 * takes a tile any more: the chunks left half done are let go by ntx_weights' end. */
#include "common/util.h"
#include "computed/forward_impl.h"

struct job {
    struct ntx_forward *f;
    const struct ntx__product *products;
    unsigned n;
    const float *x;
    size_t ld_x;
};

/* Rows of a tile: enough bytes to outweigh the counter and, with many rows, the reading of the activations; whole groups
 * of 16; and at least two tiles for each thread where the chunk has that many rows. */
static uint32_t tile_rows(const struct ntx_forward *f, const struct ntx__product *p)
{
    uint32_t bytes = f->n_live < 16 ? 32u << 10 : 128u << 10;
    uint32_t share = p->w->chunk_rows / (2 * f->c.threads);
    uint32_t rows = NTX_MIN(NTX_MAX(bytes / p->w->row_bytes, 1u), NTX_MAX(share, 1u));
    rows = NTX_ROUND_UP(rows, 16);
    return p->rows && f->n_live > 1 ? NTX_MIN(rows, (uint32_t)NTX__LOGIT_TILE) : rows;
}

/* Outputs [row, row + n) of a product, from the bytes of those rows. */
static void compute(const struct job *j, const struct ntx__product *p, const uint8_t *bytes, uint32_t row, uint32_t n, unsigned thread)
{
    struct ntx_forward *f = j->f;
    const struct ntx_weight *w = p->w;
    enum ntx_act form = ntx_act_for(w->type);
    const void *x = form == NTX_ACT_F32 ? (const void *)j->x : f->m.packed[form];
    size_t stride = form == NTX_ACT_F32 ? j->ld_x * sizeof(float) : ntx_act_row_bytes(form, w->n_in);
    bool scatter = p->rows && f->n_live > 1;
    float *y = scatter ? f->m.lanes[thread].logits : p->rows ? p->rows[0] + row : p->y + row;
    size_t ld = scatter ? NTX__LOGIT_TILE : p->ld;
    f->c.ops->matmul[w->type](bytes, w->row_bytes, n, w->n_in, x, stride, f->n_live, y, ld);
    for (uint32_t r = 0; scatter && r < f->n_live; r++)
        __builtin_memcpy(p->rows[r] + row, y + r * ld, n * sizeof *y);
}

static void fail(struct ntx_forward *f, int rc)
{
    int none = 0;
    atomic_compare_exchange_strong(&f->failed, &none, rc);
}

/* Takes tiles of one chunk until none is left. False after a failure, here or elsewhere. */
static bool walk_chunk(const struct job *j, const struct ntx__product *p, uint32_t chunk, unsigned thread)
{
    struct ntx_forward *f = j->f;
    struct ntx__tile *t = &f->m.tiles[chunk];
    const struct ntx_chunk *c = &f->c.chunks->list[chunk];
    uint32_t rows = tile_rows(f, p), n_tiles = (c->n_rows + rows - 1) / rows;
    const void *bytes = NULL;
    while (!atomic_load_explicit(&f->failed, memory_order_relaxed)) {
        uint32_t i = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
        if (i >= n_tiles)
            return true;
        int rc = bytes ? 0 : f->c.weights->ops->acquire(f->c.weights, chunk, &bytes);
        if (rc) {
            fail(f, rc);
            return false;
        }
        uint32_t row = i * rows;
        compute(j, p, (const uint8_t *)bytes + (size_t)row * p->w->row_bytes, c->row0 + row, NTX_MIN(rows, c->n_rows - row), thread);
        /* acq_rel: the others' reads of the chunk are over before it is released */
        if (atomic_fetch_add_explicit(&t->done, 1, memory_order_acq_rel) + 1 == n_tiles)
            f->c.weights->ops->release(f->c.weights, chunk);
    }
    return false;
}

static void walk(void *ctx, unsigned thread)
{
    const struct job *j = ctx;
    for (unsigned i = 0; i < j->n; i++) {
        const struct ntx__product *p = &j->products[i];
        for (uint32_t c = 0; c < p->w->n_chunks; c++)
            if (!walk_chunk(j, p, p->w->chunk0 + c, thread))
                return;
    }
}

int ntx__multiply(struct ntx_forward *f, const struct ntx__product *p, unsigned n, const float *x, size_t ld_x)
{
    struct job j = {.f = f, .products = p, .n = n, .x = x, .ld_x = ld_x};
    for (unsigned i = 0; i < n; i++)
        for (uint32_t c = 0; c < p[i].w->n_chunks; c++) {
            struct ntx__tile *t = &f->m.tiles[p[i].w->chunk0 + c];
            atomic_store_explicit(&t->next, 0, memory_order_relaxed); /* published by ntx_pool_run */
            atomic_store_explicit(&t->done, 0, memory_order_relaxed);
        }
    ntx_pool_run(f->pool, walk, &j);
    return atomic_load_explicit(&f->failed, memory_order_relaxed);
}

void ntx__pack(struct ntx_forward *f, uint32_t forms, const float *x, uint32_t n, uint32_t i)
{
    for (int form = NTX_ACT_F32 + 1; form < NTX_N_ACTS; form++)
        if (forms >> form & 1)
            f->c.ops->act_pack[form](x, (uint8_t *)f->m.packed[form] + i * ntx_act_row_bytes((enum ntx_act)form, n), n);
}

struct items {
    struct ntx_forward *f;
    ntx__item_fn *fn;
    uint32_t n;
    _Atomic uint32_t next;
};

static void work_items(void *ctx, unsigned thread)
{
    struct items *it = ctx;
    for (uint32_t i; (i = atomic_fetch_add_explicit(&it->next, 1, memory_order_relaxed)) < it->n;)
        it->fn(it->f, i, thread);
}

void ntx__each(struct ntx_forward *f, ntx__item_fn *fn, uint32_t n)
{
    struct items it = {.f = f, .fn = fn, .n = n};
    if (n < 2) /* a row costs less than waking the workers */
        work_items(&it, 0);
    else
        ntx_pool_run(f->pool, work_items, &it);
}

int ntx__take(struct ntx_forward *f, const struct ntx_weight *w, const float **v)
{
    const void *bytes = NULL;
    int rc = w->tensor == NTX_NO_TENSOR ? 0 : f->c.weights->ops->acquire(f->c.weights, w->chunk0, &bytes);
    if (!rc)
        *v = bytes;
    return rc;
}

void ntx__give(struct ntx_forward *f, const struct ntx_weight *w)
{
    if (w->tensor != NTX_NO_TENSOR)
        f->c.weights->ops->release(f->c.weights, w->chunk0);
}
