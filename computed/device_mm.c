/* device_mm.c: a step that multiplies, with each chunk where it lives.
 *
 *   engine thread   input down -> launches for device chunks -> wait for the input -> streamed chunks: acquire, copy, launch -> helps
 *   pool            (the CPU's share of host chunks, tile by tile) .................................................... -> results up
 *
 * A stage is used again when the compute behind its event is over; a ring's slot is given back when its copy is. Never more chunks
 * are held than in_flight, so the ring never waits for us while we wait for it. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/device_impl.h"

#define TILE_BYTES (64u << 10)

struct job {
    struct ntx_device *d;
    const struct ntx__device_product *p;
    unsigned n_products;
    const float *x;
    uint32_t n, n_exact;
    bool copy;      /* host chunks are copied, not multiplied in place */
    bool narrowed;  /* x16 holds the prompts' rows */
};

int ntx__device_fail(struct ntx_device *d, int rc, const char *what)
{
    const char *why = d->ops->error(d->c.gpu);
    return ntx_err_set(&d->f->c.weights->error, rc, "GPU, %s: %s", what, *why ? why : strerror(-rc));
}

static size_t ld_of(const struct ntx__device_product *p)
{
    return p->ld_y ? p->ld_y : p->w->n_out;
}

static int placement(const struct job *j, uint32_t chunk)
{
    int p = (int)j->d->c.table[chunk].placement;
    return p == NTX_PLACE_HOST && j->copy ? NTX_PLACE_STORAGE : p;
}

/* ---- launches: rows of weights that lie on the device, as outputs row0.. of a product */

static int launch_exact(const struct job *j, const struct ntx__device_product *p, const uint8_t *w, uint32_t row0, uint32_t n_rows, uint32_t n)
{
    struct ntx_device *d = j->d;
    enum ntx_act form = ntx_act_for(p->w->type);
    struct ntx_gpu_product g = {
        .w = w, .x = form == NTX_ACT_F32 ? (const void *)j->x : d->m.packed[form], .y = p->y + row0, .row_bytes = p->w->row_bytes,
        .x_stride = form == NTX_ACT_F32 ? NTX__DEVICE_LD(p->w->n_in) * sizeof(float) : d->stride[form], .ldy = ld_of(p),
        .type = p->w->type, .n_out = n_rows, .n_in = p->w->n_in, .n_rows = n,
    };
    return n ? d->ops->launch(d->compute, NTX_GPU_PRODUCT, &g) : 0;
}

static int dense_group(const struct job *j, const struct ntx__device_product *p, uint32_t row0, uint32_t n_rows, uint32_t first)
{
    struct ntx_device *d = j->d;
    uint32_t at = first - j->n_exact;
    struct ntx_gpu_scale s = {
        .z = d->m.z, .y = p->y + first * ld_of(p) + row0, .exponents = d->m.exponents + at, .ldy = ld_of(p), .n_out = n_rows,
        .n_rows = NTX_MIN(j->n - first, NTX__DENSE_ROWS),
    };
    int rc = d->ops->dense(d->compute, d->m.w16, d->m.x16 + (uint64_t)at * p->w->n_in, d->m.z, n_rows, p->w->n_in, NTX__DENSE_ROWS);
    return rc ? rc : d->ops->launch(d->compute, NTX_GPU_SCALE, &s);
}

static int launch_dense(const struct job *j, const struct ntx__device_product *p, const uint8_t *w, uint32_t row0, uint32_t n_rows)
{
    struct ntx_device *d = j->d;
    for (uint32_t o = 0; o < n_rows; o += p->w->chunk_rows) { /* w16 holds one chunk */
        uint32_t some = NTX_MIN(n_rows - o, p->w->chunk_rows);
        struct ntx_gpu_widen g = {.w = w + (uint64_t)o * p->w->row_bytes, .out = d->m.w16, .row_bytes = p->w->row_bytes,
                                  .type = p->w->type, .n_out = some, .n_in = p->w->n_in};
        int rc = d->ops->launch(d->compute, NTX_GPU_WIDEN, &g);
        for (uint32_t r = j->n_exact; !rc && r < j->n; r += NTX__DENSE_ROWS)
            rc = dense_group(j, p, row0 + o, some, r);
        if (rc)
            return rc;
    }
    return 0;
}

static int launch(const struct job *j, const struct ntx__device_product *p, const uint8_t *w, uint32_t row0, uint32_t n_rows)
{
    int rc = launch_exact(j, p, w, row0, n_rows, j->narrowed ? j->n_exact : j->n);
    if (!rc && j->narrowed)
        rc = launch_dense(j, p, w, row0, n_rows);
    return rc;
}

/* Prompts' rows as F16. Where there is no cuBLAS they stay with the others, for good. */
static int narrow(struct job *j)
{
    struct ntx_device *d = j->d;
    uint32_t n_in = j->p->w->n_in, n = j->n - j->n_exact;
    if (!n || d->no_dense)
        return 0;
    struct ntx_gpu_narrow g = {
        .x = j->x + j->n_exact * NTX__DEVICE_LD(n_in), .out = d->m.x16, .exponents = d->m.exponents, .ld_x = NTX__DEVICE_LD(n_in), .n = n_in, .n_rows = n,
        .n_padded = NTX_ROUND_UP(n, NTX__DENSE_ROWS),
    };
    int rc = d->ops->launch(d->compute, NTX_GPU_NARROW, &g);
    j->narrowed = !rc;
    return rc;
}

static int launch_resident(const struct job *j)
{
    for (unsigned i = 0; i < j->n_products; i++) {
        const struct ntx__device_product *p = &j->p[i];
        uint32_t end = p->w->chunk0 + p->w->n_chunks;
        for (uint32_t c = p->w->chunk0; c < end;) {
            const struct ntx_chunk *list = j->d->c.chunks->list;
            uint32_t first = c, rows = 0;
            for (; c < end && placement(j, c) == NTX_PLACE_DEVICE; c++)
                rows += list[c].n_rows;
            int rc = rows ? launch(j, p, j->d->at[first], list[first].row0, rows) : 0;
            if (rc)
                return ntx__device_fail(j->d, rc, "a product");
            c += !rows;
        }
    }
    return 0;
}

/* ---- streamed chunks, by the engine thread */

static int give_back(struct ntx_device *d, struct ntx__stage *s)
{
    if (s->chunk == NTX__NO_CHUNK)
        return 0;
    int rc = d->ops->event_sync(s->copied);
    if (!rc) {
        d->f->c.weights->ops->release(d->f->c.weights, s->chunk);
        s->chunk = NTX__NO_CHUNK;
    }
    return rc;
}

/* Slots whose copies are over; asks only, in the order of the copies. */
static int give_back_finished(struct ntx_device *d)
{
    for (uint32_t k = 0; k < d->n_stages; k++) {
        struct ntx__stage *s = &d->stages[(d->next_stage + k) % d->n_stages];
        int rc = s->chunk == NTX__NO_CHUNK ? 1 : d->ops->event_query(s->copied);
        if (rc <= 0)
            return rc;
        if ((rc = give_back(d, s)))
            return rc;
    }
    return 0;
}

int ntx__device_settle(struct ntx_device *d)
{
    int rc = 0;
    for (uint32_t k = 0; k < d->n_stages; k++) {
        int one = give_back(d, &d->stages[k]);
        rc = rc ? rc : one;
        if (one)
            d->stages[k].chunk = NTX__NO_CHUNK; /* the weights' end lets go of it */
    }
    return rc;
}

static int copy_and_launch(const struct job *j, const struct ntx__device_product *p, uint32_t chunk, const void *bytes, struct ntx__stage *s)
{
    struct ntx_device *d = j->d;
    const struct ntx_chunk *c = &d->c.chunks->list[chunk];
    int rc;
    if ((rc = d->ops->stream_wait(d->copies, s->used)) || (rc = d->ops->upload(d->copies, s->bytes, bytes, c->bytes)) ||
        (rc = d->ops->event_record(s->copied, d->copies)) || (rc = d->ops->stream_wait(d->compute, s->copied)) ||
        (rc = launch(j, p, s->bytes, c->row0, c->n_rows)))
        return rc;
    return d->ops->event_record(s->used, d->compute);
}

static int stream_chunk(const struct job *j, const struct ntx__device_product *p, uint32_t chunk)
{
    struct ntx_device *d = j->d;
    struct ntx__stage *s = &d->stages[d->next_stage];
    const void *bytes;
    int rc;
    if ((rc = give_back_finished(d)) || (rc = give_back(d, s)))
        return ntx__device_fail(d, rc, "a copy");
    if ((rc = d->f->c.weights->ops->acquire(d->f->c.weights, chunk, &bytes)))
        return rc;
    s->chunk = chunk;
    d->next_stage = (d->next_stage + 1) % d->n_stages;
    rc = copy_and_launch(j, p, chunk, bytes, s);
    return rc ? ntx__device_fail(d, rc, "a streamed product") : 0;
}

static int stream_all(const struct job *j)
{
    for (unsigned i = 0; i < j->n_products; i++)
        for (uint32_t k = 0; k < j->p[i].w->n_chunks; k++) {
            uint32_t chunk = j->p[i].w->chunk0 + k;
            int rc = placement(j, chunk) == NTX_PLACE_STORAGE ? stream_chunk(j, &j->p[i], chunk) : 0;
            if (rc)
                return rc;
        }
    return 0;
}

/* ---- the CPU's share */

static void fail(struct ntx_forward *f, int rc)
{
    int none = 0;
    atomic_compare_exchange_strong(&f->failed, &none, rc);
}

static void multiply_tile(const struct job *j, const struct ntx__device_product *p, const uint8_t *w, uint32_t row, uint32_t n)
{
    const struct ntx_forward *f = j->d->f;
    enum ntx_act form = ntx_act_for(p->w->type);
    size_t stride = form == NTX_ACT_F32 ? NTX__DEVICE_LD(p->w->n_in) * sizeof(float) : j->d->stride[form];
    f->c.ops->matmul[p->w->type](w, p->w->row_bytes, n, p->w->n_in, j->d->host.packed[form], stride, j->n, p->host_y + row, p->w->n_out);
}

/* Takes tiles of a host chunk until none is left. */
static void walk_chunk(const struct job *j, const struct ntx__device_product *p, uint32_t chunk)
{
    struct ntx_forward *f = j->d->f;
    struct ntx__tile *t = &f->m.tiles[chunk];
    const struct ntx_chunk *c = &j->d->c.chunks->list[chunk];
    uint32_t tile = NTX_ROUND_UP(TILE_BYTES / p->w->row_bytes + 1, 16), row;
    const void *bytes = NULL;
    while (!atomic_load_explicit(&f->failed, memory_order_relaxed) &&
           (row = atomic_fetch_add_explicit(&t->next, tile, memory_order_relaxed)) < c->n_rows) {
        uint32_t n = NTX_MIN(tile, c->n_rows - row);
        int rc = bytes ? 0 : f->c.weights->ops->acquire(f->c.weights, chunk, &bytes);
        if (rc) {
            fail(f, rc);
            return;
        }
        multiply_tile(j, p, (const uint8_t *)bytes + (size_t)row * p->w->row_bytes, c->row0 + row, n);
        /* acq_rel: the others' reads of the chunk are over before it is released */
        if (atomic_fetch_add_explicit(&t->done, n, memory_order_acq_rel) + n == c->n_rows)
            f->c.weights->ops->release(f->c.weights, chunk);
    }
}

static void work(void *ctx, unsigned thread)
{
    const struct job *j = ctx;
    int rc = thread ? 0 : stream_all(j);
    if (rc)
        fail(j->d->f, rc);
    for (unsigned i = 0; i < j->n_products; i++)
        for (uint32_t k = 0; k < j->p[i].w->n_chunks; k++)
            if (placement(j, j->p[i].w->chunk0 + k) == NTX_PLACE_HOST)
                walk_chunk(j, &j->p[i], j->p[i].w->chunk0 + k);
}

/* Counts the host chunks and makes their tiles ready. */
static uint32_t prepare_host(const struct job *j)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < j->n_products; i++)
        for (uint32_t k = 0; k < j->p[i].w->n_chunks; k++) {
            uint32_t chunk = j->p[i].w->chunk0 + k;
            struct ntx__tile *t = &j->d->f->m.tiles[chunk];
            if (placement(j, chunk) != NTX_PLACE_HOST)
                continue;
            atomic_store_explicit(&t->next, 0, memory_order_relaxed); /* published by ntx_pool_run */
            atomic_store_explicit(&t->done, 0, memory_order_relaxed);
            n++;
        }
    return n;
}

/* The input in the forms that the products want, to the host; j->d->input passes when it is there. */
static int bring_input(const struct job *j)
{
    struct ntx_device *d = j->d;
    uint32_t forms = 0, n_in = j->p->w->n_in;
    int rc = 0;
    for (unsigned i = 0; i < j->n_products; i++)
        forms |= 1u << ntx_act_for(j->p[i].w->type);
    for (int form = 0; form < NTX_N_ACTS; form++) {
        const void *from = form == NTX_ACT_F32 ? (const void *)j->x : d->m.packed[form];
        uint64_t bytes = form == NTX_ACT_F32 ? j->n * NTX__DEVICE_LD(n_in) * sizeof(float) : j->n * d->stride[form];
        if (!rc && forms >> form & 1)
            rc = d->ops->download(d->compute, d->host.packed[form], from, bytes);
    }
    return rc ? rc : d->ops->event_record(d->input, d->compute);
}

static int send_results(const struct job *j)
{
    struct ntx_device *d = j->d;
    for (unsigned i = 0; i < j->n_products; i++) {
        const struct ntx__device_product *p = &j->p[i];
        for (uint32_t c = p->w->chunk0, end = c + p->w->n_chunks; c < end;) {
            uint32_t row0 = d->c.chunks->list[c].row0, rows = 0;
            for (; c < end && placement(j, c) == NTX_PLACE_HOST; c++)
                rows += d->c.chunks->list[c].n_rows;
            uint64_t ld = p->w->n_out * sizeof(float);
            int rc = rows ? d->ops->upload_rows(d->compute, p->y + row0, ld_of(p) * sizeof(float), p->host_y + row0, ld, rows * sizeof(float), j->n) : 0;
            if (rc)
                return ntx__device_fail(d, rc, "results of the CPU");
            c += !rows;
        }
    }
    return 0;
}

int ntx__device_multiply(struct ntx_device *d, const struct ntx__device_product *p, unsigned n_products, const float *x, uint32_t n, uint32_t n_exact)
{
    struct job j = {.d = d, .p = p, .n_products = n_products, .x = x, .n = n, .n_exact = n_exact};
    j.copy = n_exact < n || n >= d->c.copy_rows;
    uint32_t host = prepare_host(&j);
    int rc = host ? bring_input(&j) : 0;
    if (!rc)
        rc = narrow(&j);
    if (rc)
        return ntx__device_fail(d, rc, "a step's input");
    if ((rc = launch_resident(&j)))
        return rc;
    if (!host)
        return stream_all(&j);
    if ((rc = d->ops->event_sync(d->input)))
        return ntx__device_fail(d, rc, "a step's input");
    ntx_pool_run(d->f->pool, work, &j);
    rc = atomic_load_explicit(&d->f->failed, memory_order_relaxed);
    return rc ? rc : send_results(&j);
}
