/* SPDX-License-Identifier: Apache-2.0 */
/* mm.c: a step of matrix products, with each chunk multiplied where it is placed.
 *
 *   engine thread   download the input -> launch device chunks -> wait for the input -> copied chunks: acquire, copy,
 *                   launch -> help the pool
 *   pool            multiply the CPU's share of host chunks, tile by tile -> upload the results
 *
 * Prompt rows go through the matrix units panel by panel: outputs [i P, (i + 1) P) of a matrix and NTX__DENSE_ROWS
 * rows, where P depends on the matrix's shape alone (ntx__device_panel). Chunks are widened to F16 in their panel's
 * place. A panel is multiplied when it is full, or when the next chunk belongs to another one; then only the outputs
 * that are present are used. So the library's arguments depend on the matrix, and a value's place on its output: chunk
 * borders and placement change no bit. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/gpu/device_impl.h"

struct job {
    struct ntx_device *d;
    struct ntx__mm mm;                /* products, input, and the CPU's share */
    uint32_t dense_from, dense_to;    /* rows for the matrix units, stored in x16 */
    struct ntx_gpu_product *together; /* products not launched yet; type NTX_TYPE_LIMIT: none */
    struct panel *panel;
};

struct panel { /* outputs [from, to) are in w16 and not multiplied yet; from == to: none */
    const struct ntx__product *p;
    uint32_t first; /* the panel's first output */
    uint32_t from, to;
    uint32_t rows_to; /* rows [dense_from, rows_to) */
};

static size_t ld_of(const struct job *j, const struct ntx__product *p) { return j->d->f->buf[p->to].ld; }
static float *y_of(const struct job *j, const struct ntx__product *p) { return j->d->m.buf[p->to] + p->at; }

static uint32_t product_rows(const struct job *j, const struct ntx__product *p)
{
    return p->n_rows ? p->n_rows : j->mm.in->n_rows;
}

/* Bytes from one input row to the next, in the product's form. */
static size_t stride_of(const struct job *j, const struct ntx__product *p)
{
    enum ntx_act form = ntx_act_for(p->w->type);
    return ntx__stride(j->d->f, j->mm.in->buf, form, p->w->n_in) * (p->parts && form != NTX_ACT_F32 ? p->parts : 1);
}

/* The part of the input rows that output `row` is computed from; 0: rows are whole. */
static uint32_t part_at(const struct ntx__product *p, uint32_t row)
{
    return p->parts ? row / (p->w->n_out / p->parts) : 0;
}

static const uint8_t *x_of(const struct job *j, const struct ntx__product *p, uint32_t row)
{
    enum ntx_act form = ntx_act_for(p->w->type);
    const uint8_t *x = form == NTX_ACT_F32 ? (const uint8_t *)(j->d->m.buf[j->mm.in->buf] + j->mm.in->at)
                                           : j->d->m.quantized[j->mm.in->set][form];
    return x + part_at(p, row) * ntx_act_row_bytes(form, p->w->n_in);
}

/* ---- launches of outputs out0.. of a product, with weights in device memory */

/* Launches the products that wait for one another. */
static int launch_together(const struct job *j)
{
    const bool any = j->together->type != NTX_TYPE_LIMIT;
    int rc = any ? ntx__device_launch(j->d, NTX_GPU_PRODUCT, j->together) : 0;
    j->together->type = NTX_TYPE_LIMIT;
    return rc;
}

/* Most rows of the kernel that is used for n rows: 1, 2, 4, 8, or any number. */
static uint32_t row_class(uint32_t n)
{
    if (n <= 2)
        return n;
    if (n <= 4)
        return 4;
    return n <= NTX_GPU_ROWS ? NTX_GPU_ROWS : UINT32_MAX;
}

static bool go_together(const struct ntx_gpu_product *a, const struct ntx_gpu_product *b)
{
    return a->type == b->type && a->row_bytes == b->row_bytes && a->x_stride == b->x_stride && a->n_in == b->n_in &&
           a->n_others + 1 < NTX_GPU_TOGETHER && row_class(a->n_rows) == row_class(b->n_rows);
}

/* The matrices of a step are independent. Products that fit together are collected, and launched as one. */
static int launch_exact(const struct job *j, const struct ntx__product *p, const uint8_t *w, uint32_t out0,
                        uint32_t n_out, uint32_t from, uint32_t to)
{
    struct ntx_gpu_product *t = j->together, g = {
                                                 .w = w,
                                                 .x = x_of(j, p, out0) + from * stride_of(j, p),
                                                 .y = y_of(j, p) + from * ld_of(j, p) + out0,
                                                 .row_bytes = p->w->row_bytes,
                                                 .x_stride = stride_of(j, p),
                                                 .ldy = ld_of(j, p),
                                                 .type = p->w->type,
                                                 .n_out = n_out,
                                                 .n_in = p->w->n_in,
                                                 .n_rows = to - from,
                                             };
    if (from >= to)
        return 0;
    int rc = go_together(t, &g) ? 0 : launch_together(j);
    if (!rc && t->type == NTX_TYPE_LIMIT)
        *t = g;
    else if (!rc)
        t->others[t->n_others++] = (struct ntx_gpu_another){
            .w = g.w, .x = g.x, .y = g.y, .ldy = g.ldy, .n_out = g.n_out, .n_rows = g.n_rows};
    return rc;
}

/* ---- the matrix units */

static int dense_batch(const struct job *j, const struct panel *l, uint32_t outs, uint32_t first)
{
    struct ntx_device *d = j->d;
    const uint32_t at = first - j->dense_from;
    const struct ntx_gpu_scale s = {
        .z = d->m.z + (l->from - l->first),
        .y = y_of(j, l->p) + first * ld_of(j, l->p) + l->from,
        .exponents = d->m.exponents + at,
        .ldz = outs,
        .ldy = ld_of(j, l->p),
        .n_out = l->to - l->from,
        .n_rows = NTX_MIN(l->rows_to - first, NTX__DENSE_ROWS),
    };
    int rc = d->ops->dense(ntx__queue(d), d->m.w16, d->m.x16 + (uint64_t)at * l->p->w->n_in, d->m.z, outs,
                           l->p->w->n_in, NTX__DENSE_ROWS);
    return rc ? rc : ntx__device_launch(d, NTX_GPU_SCALE, &s);
}

/* Multiplies the panel's outputs, and empties it. */
static int launch_panel(const struct job *j)
{
    struct panel *l = j->panel;
    int rc = 0;
    for (uint32_t r = j->dense_from; l->from < l->to && !rc && r < l->rows_to; r += NTX__DENSE_ROWS)
        rc = dense_batch(j, l, ntx__device_panel(j->d, l->p->w), r);
    l->from = l->to = 0;
    return rc;
}

/* Widens weights to F16 in their panel, after the outputs that it has. */
static int widen_outputs(const struct job *j, const struct ntx__product *p, const uint8_t *w, uint32_t out0,
                         uint32_t n_out, uint32_t to)
{
    struct panel *l = j->panel;
    const uint32_t first = out0 - out0 % ntx__device_panel(j->d, p->w);
    const struct ntx_gpu_widen g = {.w = w,
                                    .out = j->d->m.w16 + (uint64_t)(out0 - first) * p->w->n_in,
                                    .row_bytes = p->w->row_bytes,
                                    .type = p->w->type,
                                    .n_out = n_out,
                                    .n_in = p->w->n_in};
    int rc = l->p == p && l->first == first && l->to == out0 && l->rows_to == to ? 0 : launch_panel(j);
    if (rc || (rc = ntx__device_launch(j->d, NTX_GPU_WIDEN, &g)))
        return rc;
    *l = (struct panel){
        .p = p, .first = first, .from = l->from < l->to ? l->from : out0, .to = out0 + n_out, .rows_to = to};
    return l->to == NTX_MIN(first + ntx__device_panel(j->d, p->w), p->w->n_out) ? launch_panel(j) : 0;
}

static int launch_dense(const struct job *j, const struct ntx__product *p, const uint8_t *w, uint32_t out0,
                        uint32_t n_out, uint32_t to)
{
    int rc = 0;
    for (uint32_t o = out0, some; o < out0 + n_out && j->dense_from < to && !rc; o += some) {
        some = NTX_MIN(out0 + n_out - o, ntx__device_panel(j->d, p->w) - o % ntx__device_panel(j->d, p->w));
        rc = widen_outputs(j, p, w + (uint64_t)(o - out0) * p->w->row_bytes, o, some, to);
    }
    return rc;
}

/* ---- launches for all rows */

/* Multiplies outputs out0.. by the weight's scale, if it has one. */
static int launch_scale(const struct job *j, const struct ntx__product *p, uint32_t out0, uint32_t n_out)
{
    float *y = y_of(j, p) + p->row0 * ld_of(j, p) + out0;
    const struct ntx_gpu_step g = {
        .out = y,
        .in = y,
        .ld_out = ld_of(j, p),
        .ld_in = ld_of(j, p),
        .n_rows = product_rows(j, p),
        .s = {.op = NTX_OP_SCALE, .width = n_out, .scale = j->mm.f->m.tiles[p->w->chunk0].scale}};
    int rc = p->w->scaled ? launch_together(j) : 0;
    if (!rc && p->w->scaled)
        rc = launch_panel(j);
    return rc || !p->w->scaled ? rc : ntx__device_launch(j->d, NTX_GPU_STEP, &g);
}

/* A product of some rows only (an expert's) does not use the matrix units: then dense_from is the end of the rows. */
static int launch_outputs(const struct job *j, const struct ntx__product *p, const uint8_t *w, uint32_t out0,
                          uint32_t n_out)
{
    uint32_t from = p->row0, to = p->row0 + product_rows(j, p), a = NTX_MIN(j->dense_from, to),
             b = NTX_MIN(j->dense_to, to);
    int rc = launch_exact(j, p, w, out0, n_out, from, a);
    if (!rc)
        rc = launch_dense(j, p, w, out0, n_out, b);
    if (!rc)
        rc = launch_exact(j, p, w, out0, n_out, b, to);
    return rc ? rc : launch_scale(j, p, out0, n_out);
}

/* Converts prompt rows to F16 for the matrix units. Without cuBLAS, they are multiplied exactly. */
static int narrow_rows(struct job *j)
{
    struct ntx_device *d = j->d;
    const struct ntx__input *in = j->mm.in;
    uint32_t n_in = j->mm.products->w->n_in, n = in->n_rounded;
    size_t ld = d->f->buf[in->buf].ld;
    j->dense_from = j->dense_to = in->n_rows;
    if (!n || d->no_dense || j->mm.products->parts)
        return 0;
    struct ntx_gpu_narrow g = {
        .x = d->m.buf[in->buf] + in->rounded0 * ld,
        .out = d->m.x16,
        .exponents = d->m.exponents,
        .ld_x = ld,
        .n = n_in,
        .n_rows = n,
        .n_padded = NTX_ROUND_UP(n, NTX__DENSE_ROWS),
    };
    j->dense_from = in->rounded0;
    j->dense_to = j->dense_from + n;
    return ntx__device_launch(d, NTX_GPU_NARROW, &g);
}

static int launch_resident(const struct job *j)
{
    for (unsigned i = 0; i < j->mm.n; i++) {
        const struct ntx__product *p = &j->mm.products[i];
        uint32_t end = p->w->chunk0 + p->w->n_chunks;
        for (uint32_t c = p->w->chunk0; c < end;) {
            const struct ntx_chunk *list = j->d->c.chunks->list;
            uint32_t first = c, outs = 0;
            for (; c < end && j->d->where[c] == NTX__ON_DEVICE &&
                   part_at(p, list[c].out0) == part_at(p, list[first].out0);
                 c++)
                outs += list[c].n_out;
            int rc = outs ? launch_outputs(j, p, j->d->at[first], list[first].out0, outs) : 0;
            if (rc)
                return ntx__device_fail(j->d, rc, "a product");
            c += !outs;
        }
    }
    int rc = launch_together(j);
    if (!rc)
        rc = launch_panel(j);
    return rc ? ntx__device_fail(j->d, rc, "a product") : 0;
}

/* ---- copied chunks: the engine thread launches them */

static int multiply_copied(const struct job *j, const struct ntx__product *p, uint32_t chunk)
{
    struct ntx_device *d = j->d;
    const struct ntx_chunk *c = &d->c.chunks->list[chunk];
    struct ntx__stage *s;
    int rc = ntx__device_bring(d, chunk, NULL, &s);
    if (rc)
        return rc;
    rc = launch_outputs(j, p, s->bytes, c->out0, c->n_out);
    if (!rc)
        rc = launch_together(j); /* before the stage is used again */
    return rc ? ntx__device_fail(d, rc, "a streamed product") : ntx__device_used(d, s);
}

static int multiply_all_copied(const struct job *j)
{
    for (unsigned i = 0; i < j->mm.n; i++)
        for (uint32_t k = 0; k < j->mm.products[i].w->n_chunks; k++) {
            uint32_t chunk = j->mm.products[i].w->chunk0 + k;
            int rc = j->d->where[chunk] == NTX__COPIED ? multiply_copied(j, &j->mm.products[i], chunk) : 0;
            if (rc)
                return rc;
        }
    int rc = launch_panel(j);
    return rc ? ntx__device_fail(j->d, rc, "a product") : 0;
}

static void multiply_on_thread(void *ctx, unsigned thread)
{
    const struct job *j = ctx;
    int rc = thread ? 0 : multiply_all_copied(j);
    if (rc)
        ntx__fail(j->d->f, rc);
    ntx__mm_walk(&j->mm, thread);
}

/* ---- where each chunk is multiplied */

/* How many 64ths of a product's host bytes are copied. With prompt rows all are: a row's value must not depend on
 * the other rows of its pass. */
static uint32_t share_of(const struct job *j, const struct ntx__product *p)
{
    if (j->mm.in->n_rounded && !j->d->no_dense)
        return 64;
    return j->d->share.of[p->w->type][NTX_MIN(product_rows(j, p), NTX_SHARE_ROWS)];
}

static enum ntx__where place_of_chunk(const struct job *j, uint32_t chunk, uint32_t share, int64_t *debt)
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

/* Sets where each chunk of the step is multiplied. The copied share of host chunks is spread evenly over them. Returns
 * how many are multiplied in place. */
static uint32_t place_chunks(const struct job *j)
{
    int64_t debt = 0; /* bytes x 64 that are still to be copied */
    uint32_t n = 0;
    for (unsigned i = 0; i < j->mm.n; i++)
        for (uint32_t k = 0; k < j->mm.products[i].w->n_chunks; k++) {
            uint32_t chunk = j->mm.products[i].w->chunk0 + k;
            j->d->where[chunk] = place_of_chunk(j, chunk, share_of(j, &j->mm.products[i]), &debt);
            n += j->d->where[chunk] == NTX__IN_PLACE;
        }
    return n;
}

/* ---- the CPU's input and results */

/* Downloads the input in the forms that the products need; d->input is recorded after it. */
static int download_input(const struct job *j)
{
    struct ntx_device *d = j->d;
    uint32_t parts = j->mm.products->parts; /* if set, there is one product */
    struct ntx__rows r = {
        .buf = j->mm.in->buf, .set = j->mm.in->set, .n = j->mm.in->n_rows, .width = j->mm.products->w->n_in};
    for (unsigned i = 0; i < j->mm.n; i++)
        r.forms |= 1u << ntx_act_for(j->mm.products[i].w->type);
    if (r.forms == 1u << NTX_ACT_F32 || !j->mm.products->parts)
        parts = 1;
    r.n *= parts;
    int rc = ntx__device_copy_rows(d, &r, false);
    return rc ? rc : d->ops->event_record(d->input, ntx__queue(d));
}

static int upload_outputs(const struct job *j, const struct ntx__product *p, uint32_t out0, uint32_t n_out)
{
    size_t ld = ld_of(j, p), at = p->row0 * ld + out0;
    const float *from = p->to == NTX__BUF_LOGITS ? j->d->host.logits : j->d->f->buf[p->to].at + p->at;
    return n_out ? j->d->ops->upload_rows(ntx__queue(j->d), y_of(j, p) + at, ld * sizeof(float), from + at,
                                          ld * sizeof(float), n_out * sizeof(float), product_rows(j, p))
                 : 0;
}

static int upload_results(const struct job *j)
{
    struct ntx_device *d = j->d;
    for (unsigned i = 0; i < j->mm.n; i++) {
        const struct ntx__product *p = &j->mm.products[i];
        for (uint32_t c = p->w->chunk0, end = c + p->w->n_chunks; c < end;) {
            uint32_t out0 = d->c.chunks->list[c].out0, outs = 0;
            for (; c < end && d->where[c] == NTX__IN_PLACE; c++)
                outs += d->c.chunks->list[c].n_out;
            int rc = upload_outputs(j, p, out0, outs);
            if (rc)
                return ntx__device_fail(d, rc, "results of the CPU");
            c += !outs;
        }
    }
    return 0;
}

int ntx__device_multiply(struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in)
{
    struct ntx_device *d = f->c.device;
    struct ntx_gpu_product together = {.type = NTX_TYPE_LIMIT};
    struct panel panel = {0};
    struct job j = {.d = d,
                    .together = &together,
                    .panel = &panel,
                    .mm = {.f = f, .products = p, .n = n, .in = in, .where = d->where}};
    uint32_t in_place = place_chunks(&j);
    int rc = ntx__mm_begin(&j.mm);
    if (rc)
        return rc;
    rc = in_place ? download_input(&j) : 0;
    if (!rc)
        rc = narrow_rows(&j);
    if (rc)
        return ntx__device_fail(d, rc, "a step's input");
    if ((rc = launch_resident(&j)))
        return rc;
    if (!in_place)
        return multiply_all_copied(&j);
    if ((rc = d->ops->event_sync(d->input)))
        return ntx__device_fail(d, rc, "a step's input");
    ntx_pool_run(f->pool, multiply_on_thread, &j);
    rc = atomic_load_explicit(&f->failed, memory_order_relaxed);
    return rc ? rc : upload_results(&j);
}
