/* device_mm.c: a step that multiplies, with each chunk where it lives.
 *
 *   engine thread   input down -> launches for device chunks -> wait for the input -> copied chunks: acquire, copy, launch -> helps
 *   pool            (the CPU's share of host chunks, tile by tile) .................................................... -> results up
 */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "infer/device/device_impl.h"

#define TILE_BYTES (64u << 10)

struct job {
    struct ntx_device *d;
    const struct ntx__device_product *p;
    unsigned n_products;
    const struct ntx__device_input *in;
    uint32_t dense_from, dense_to; /* rows that go through the matrix units; x16 holds them */
};

static size_t ld_of(const struct ntx__device_product *p)
{
    return p->ld_y ? p->ld_y : p->w->n_out;
}

static uint32_t rows_of(const struct job *j, const struct ntx__device_product *p)
{
    return p->n_rows ? p->n_rows : j->in->n;
}

/* Input rows in the form of a product: on the device, or the host's copy of it. */
static size_t stride_of(const struct job *j, enum ntx_act form)
{
    return form == NTX_ACT_F32 ? j->in->ld * sizeof(float) : j->d->stride[form];
}

static const uint8_t *device_x(const struct job *j, enum ntx_act form)
{
    return form == NTX_ACT_F32 ? (const uint8_t *)j->in->x : j->in->quantized[form];
}

/* ---- launches: rows of weights that lie on the device, as outputs row0.. of a product */

static int launch_exact(const struct job *j, const struct ntx__device_product *p, const uint8_t *w, uint32_t row0, uint32_t n_rows, uint32_t from, uint32_t to)
{
    struct ntx_device *d = j->d;
    enum ntx_act form = ntx_act_for(p->w->type);
    struct ntx_gpu_product g = {
        .w = w, .x = device_x(j, form) + from * stride_of(j, form), .y = p->y + from * ld_of(p) + row0, .row_bytes = p->w->row_bytes,
        .x_stride = stride_of(j, form), .ldy = ld_of(p), .type = p->w->type, .n_out = n_rows, .n_in = p->w->n_in, .n_rows = to - from,
    };
    return from < to ? d->ops->launch(d->compute, NTX_GPU_PRODUCT, &g) : 0;
}

static int dense_group(const struct job *j, const struct ntx__device_product *p, uint32_t row0, uint32_t n_rows, uint32_t first, uint32_t to)
{
    struct ntx_device *d = j->d;
    uint32_t at = first - j->dense_from;
    struct ntx_gpu_scale s = {
        .z = d->m.z, .y = p->y + first * ld_of(p) + row0, .exponents = d->m.exponents + at, .ldy = ld_of(p), .n_out = n_rows,
        .n_rows = NTX_MIN(to - first, NTX__DENSE_ROWS),
    };
    int rc = d->ops->dense(d->compute, d->m.w16, d->m.x16 + (uint64_t)at * p->w->n_in, d->m.z, n_rows, p->w->n_in, NTX__DENSE_ROWS);
    return rc ? rc : d->ops->launch(d->compute, NTX_GPU_SCALE, &s);
}

static int launch_dense(const struct job *j, const struct ntx__device_product *p, const uint8_t *w, uint32_t row0, uint32_t n_rows, uint32_t to)
{
    struct ntx_device *d = j->d;
    for (uint32_t o = 0; o < n_rows && j->dense_from < to; o += p->w->chunk_rows) { /* w16 holds one chunk */
        uint32_t some = NTX_MIN(n_rows - o, p->w->chunk_rows);
        struct ntx_gpu_widen g = {.w = w + (uint64_t)o * p->w->row_bytes, .out = d->m.w16, .row_bytes = p->w->row_bytes,
                                  .type = p->w->type, .n_out = some, .n_in = p->w->n_in};
        int rc = d->ops->launch(d->compute, NTX_GPU_WIDEN, &g);
        for (uint32_t r = j->dense_from; !rc && r < to; r += NTX__DENSE_ROWS)
            rc = dense_group(j, p, row0 + o, some, r, to);
        if (rc)
            return rc;
    }
    return 0;
}

/* A product that takes some rows only (an expert's) has none of the matrix units. */
static int launch(const struct job *j, const struct ntx__device_product *p, const uint8_t *w, uint32_t row0, uint32_t n_rows)
{
    uint32_t from = p->row0, to = p->row0 + rows_of(j, p), a = NTX_MIN(j->dense_from, to), b = NTX_MIN(j->dense_to, to);
    int rc = launch_exact(j, p, w, row0, n_rows, from, a);
    if (!rc)
        rc = launch_dense(j, p, w, row0, n_rows, b);
    return rc ? rc : launch_exact(j, p, w, row0, n_rows, b, to);
}

/* Prompts' rows as F16. Where there is no cuBLAS they stay with the others, for good. */
static int narrow(struct job *j)
{
    struct ntx_device *d = j->d;
    uint32_t n_in = j->p->w->n_in, n = j->in->n_dense;
    j->dense_from = j->dense_to = j->in->n;
    if (!n || d->no_dense)
        return 0;
    struct ntx_gpu_narrow g = {
        .x = j->in->x + j->in->first_dense * j->in->ld, .out = d->m.x16, .exponents = d->m.exponents, .ld_x = j->in->ld, .n = n_in, .n_rows = n,
        .n_padded = NTX_ROUND_UP(n, NTX__DENSE_ROWS),
    };
    j->dense_from = j->in->first_dense;
    j->dense_to = j->dense_from + n;
    return d->ops->launch(d->compute, NTX_GPU_NARROW, &g);
}

static int launch_resident(const struct job *j)
{
    for (unsigned i = 0; i < j->n_products; i++) {
        const struct ntx__device_product *p = &j->p[i];
        uint32_t end = p->w->chunk0 + p->w->n_chunks;
        for (uint32_t c = p->w->chunk0; c < end;) {
            const struct ntx_chunk *list = j->d->c.chunks->list;
            uint32_t first = c, rows = 0;
            for (; c < end && j->d->where[c] == NTX__ON_DEVICE; c++)
                rows += list[c].n_rows;
            int rc = rows ? launch(j, p, j->d->at[first], list[first].row0, rows) : 0;
            if (rc)
                return ntx__device_fail(j->d, rc, "a product");
            c += !rows;
        }
    }
    return 0;
}

/* ---- copied chunks, by the engine thread */

static int copy_chunk(const struct job *j, const struct ntx__device_product *p, uint32_t chunk)
{
    struct ntx_device *d = j->d;
    const struct ntx_chunk *c = &d->c.chunks->list[chunk];
    struct ntx__stage *s;
    int rc = ntx__device_bring(d, chunk, NULL, &s);
    if (rc)
        return rc;
    rc = launch(j, p, s->bytes, c->row0, c->n_rows);
    return rc ? ntx__device_fail(d, rc, "a streamed product") : ntx__device_used(d, s);
}

static int copy_all(const struct job *j)
{
    for (unsigned i = 0; i < j->n_products; i++)
        for (uint32_t k = 0; k < j->p[i].w->n_chunks; k++) {
            uint32_t chunk = j->p[i].w->chunk0 + k;
            int rc = j->d->where[chunk] == NTX__COPIED ? copy_chunk(j, &j->p[i], chunk) : 0;
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
    size_t stride = stride_of(j, form);
    const uint8_t *x = (const uint8_t *)j->d->host.quantized[form] + p->row0 * stride;
    f->c.ops->matmul[p->w->type](w, p->w->row_bytes, n, p->w->n_in, x, stride, rows_of(j, p), p->host_y + (size_t)p->row0 * p->w->n_out + row, p->w->n_out);
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
        if (rc || (rc = ntx__finite_rows(f, chunk, (const uint8_t *)bytes + (size_t)row * p->w->row_bytes, row, n))) {
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
    int rc = thread ? 0 : copy_all(j);
    if (rc)
        fail(j->d->f, rc);
    for (unsigned i = 0; i < j->n_products; i++)
        for (uint32_t k = 0; k < j->p[i].w->n_chunks; k++)
            if (j->d->where[j->p[i].w->chunk0 + k] == NTX__IN_PLACE)
                walk_chunk(j, &j->p[i], j->p[i].w->chunk0 + k);
}

/* How many 64ths of a product's host bytes are copied. Prompts': all, for a row's value must not depend on who shares its pass. */
static uint32_t share_of(const struct job *j, const struct ntx__device_product *p)
{
    if (j->in->n_dense && !j->d->no_dense)
        return 64;
    return j->d->share.of[p->w->type][NTX_MIN(rows_of(j, p), NTX_SHARE_ROWS)];
}

static enum ntx__where decide(const struct job *j, uint32_t chunk, uint32_t share, int64_t *debt)
{
    int64_t bytes = (int64_t)j->d->c.chunks->list[chunk].bytes;
    if (j->d->at[chunk])
        return NTX__ON_DEVICE;
    if (j->d->c.table[chunk].placement == NTX_PLACE_STORAGE)
        return NTX__COPIED;
    *debt += bytes * share;
    if (!share || *debt < 32 * bytes)
        return NTX__IN_PLACE;
    *debt -= 64 * bytes;
    return NTX__COPIED;
}

/* Where each chunk of the step is multiplied: host chunks by the share, spread evenly, rounded at the half of one. Makes the tiles of those in
 * place ready; returns how many these are. */
static uint32_t decide_all(const struct job *j)
{
    int64_t debt = 0; /* bytes x 64 that should have been copied and were not */
    uint32_t n = 0;
    for (unsigned i = 0; i < j->n_products; i++)
        for (uint32_t k = 0; k < j->p[i].w->n_chunks; k++) {
            uint32_t chunk = j->p[i].w->chunk0 + k;
            struct ntx__tile *t = &j->d->f->m.tiles[chunk];
            j->d->where[chunk] = decide(j, chunk, share_of(j, &j->p[i]), &debt);
            if (j->d->where[chunk] != NTX__IN_PLACE)
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
    uint32_t forms = 0;
    int rc = 0;
    for (unsigned i = 0; i < j->n_products; i++)
        forms |= 1u << ntx_act_for(j->p[i].w->type);
    for (int form = 0; form < NTX_N_ACTS; form++)
        if (!rc && forms >> form & 1)
            rc = d->ops->download(d->compute, d->host.quantized[form], device_x(j, (enum ntx_act)form), j->in->n * stride_of(j, (enum ntx_act)form));
    return rc ? rc : d->ops->event_record(d->input, d->compute);
}

static int send_rows(const struct job *j, const struct ntx__device_product *p, uint32_t row0, uint32_t n_rows)
{
    uint64_t ld = p->w->n_out * sizeof(float);
    float *to = p->y + p->row0 * ld_of(p) + row0, *from = p->host_y + (size_t)p->row0 * p->w->n_out + row0;
    return n_rows ? j->d->ops->upload_rows(j->d->compute, to, ld_of(p) * sizeof(float), from, ld, n_rows * sizeof(float), rows_of(j, p)) : 0;
}

static int send_results(const struct job *j)
{
    struct ntx_device *d = j->d;
    for (unsigned i = 0; i < j->n_products; i++) {
        const struct ntx__device_product *p = &j->p[i];
        for (uint32_t c = p->w->chunk0, end = c + p->w->n_chunks; c < end;) {
            uint32_t row0 = d->c.chunks->list[c].row0, rows = 0;
            for (; c < end && d->where[c] == NTX__IN_PLACE; c++)
                rows += d->c.chunks->list[c].n_rows;
            int rc = send_rows(j, p, row0, rows);
            if (rc)
                return ntx__device_fail(d, rc, "results of the CPU");
            c += !rows;
        }
    }
    return 0;
}

int ntx__device_multiply(struct ntx_device *d, const struct ntx__device_product *p, unsigned n_products, const struct ntx__device_input *in)
{
    struct job j = {.d = d, .p = p, .n_products = n_products, .in = in};
    int rc = 0;
    for (unsigned i = 0; i < n_products && !rc; i++)
        rc = ntx__turn(d->f, p[i].w->chunk0, p[i].w->n_chunks);
    if (rc)
        return rc;
    uint32_t in_place = decide_all(&j);
    rc = in_place ? bring_input(&j) : 0;
    if (!rc)
        rc = narrow(&j);
    if (rc)
        return ntx__device_fail(d, rc, "a step's input");
    if ((rc = launch_resident(&j)))
        return rc;
    if (!in_place)
        return copy_all(&j);
    if ((rc = d->ops->event_sync(d->input)))
        return ntx__device_fail(d, rc, "a step's input");
    ntx_pool_run(d->f->pool, work, &j);
    rc = atomic_load_explicit(&d->f->failed, memory_order_relaxed);
    return rc ? rc : send_results(&j);
}
