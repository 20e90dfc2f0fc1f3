/* SPDX-License-Identifier: Apache-2.0 */
/* forward_mm.c: steps that threads share.
 *
 * Products: a chunk's rows are cut into tiles, which threads take from a counter. A thread that finds no tile left goes
 * on to the next chunk at once, so a thread waits at most for bytes that have not come, never for another thread. It
 * acquires a chunk only when it holds a tile of it; the thread that finishes the last tile releases the chunk. After an
 * error no thread takes another tile: half-done chunks are released at the end of the pass.
 *
 * Kernels that pack what they multiply (ntx_cpu_ops.many) have tiles of many outputs for a part of the rows, so that
 * neither is packed often. A chunk's outputs are then taken once for each part. */
#include <errno.h>

#include "common/util.h"
#include "computed/cpu/planes.h"
#include "computed/pass/forward_impl.h"
#include "model/planes.h"

/* Of a resident chunk. */
static bool is_resident(const struct ntx_forward *f, uint32_t chunk)
{
    const struct ntx_weights_ops *ops = f->c.weights->ops;
    return ops->stays && ops->stays(f->c.weights, chunk);
}

static uint32_t product_rows(const struct ntx__mm *j, const struct ntx__product *p)
{
    return p->n_rows ? p->n_rows : j->in->n_rows;
}

static bool is_packed(const struct ntx__mm *j, const struct ntx__product *p)
{
    return j->f->c.ops->many[p->w->type] && j->f->m.many_bytes && product_rows(j, p) >= NTX_MANY_ROWS;
}

enum { PART_ROWS = 384, LEAST_OUTS = 128 /* of a tile of packed weights, but the last */ };

static uint32_t row_parts(const struct ntx__mm *j, const struct ntx__product *p)
{
    return is_packed(j, p) && p->to != NTX__BUF_LOGITS ? (product_rows(j, p) + PART_ROWS - 1) / PART_ROWS : 1;
}

/* The product for one part of its rows, whole tiles of them. */
static struct ntx__product product_part(const struct ntx__mm *j, const struct ntx__product *p, uint32_t part,
                                        uint32_t parts)
{
    struct ntx__product of = *p;
    const uint32_t n = product_rows(j, p), each = NTX_ROUND_UP((n + parts - 1) / parts, (uint32_t)NTX_MANY_TILE),
                   first = NTX_MIN(part * each, n);
    if (parts > 1) {
        of.row0 += first;
        of.n_rows = NTX_MIN(each, n - first);
    }
    return of;
}

/* Outputs to take of a chunk that has `left`, when `behind` bytes of the step follow it. A thread reads memory fastest
 * in one long run (two threads that alternate every 32 KiB get three quarters of the rate). So it takes half of its
 * share of the rest of the step, at most its share of the chunk, or all of a resident one, for which nobody waits.
 * Towards the end the tiles shrink, so that threads finish together. A tile is whole sixteens, and outweighs the cost
 * of the counter. All outputs count once for each part of the rows, and so do bytes; a tile lies within a part. */
static uint32_t tile_rows(const struct ntx__mm *j, const struct ntx__product *p, uint32_t n_out, uint64_t left,
                          uint64_t behind, bool staying)
{
    const struct ntx_weight *w = p->w;
    const uint32_t threads = j->f->c.threads, of_part = (uint32_t)((left - 1) % n_out + 1);
    uint64_t step = left * w->row_bytes + behind, chunk = (uint64_t)w->chunk_outs * w->row_bytes,
             least = product_rows(j, p) < 16 ? 32u << 10 : 128u << 10;
    if (is_packed(j, p))
        least = NTX_MAX(least, (uint64_t)LEAST_OUTS * w->row_bytes);
    uint64_t bytes = NTX_MAX(NTX_MIN(step / (2 * threads), staying ? chunk : chunk / threads), least);
    uint32_t outs = NTX_ROUND_UP((uint32_t)NTX_MIN(bytes / w->row_bytes + 1, of_part), 16);
    return NTX_MIN(outs, of_part);
}

/* rows of a chunk, as in the file or interleaved */
struct bytes {
    const uint8_t *at, *high; /* high: their high bits, if these are low bits */
    bool interleaved;         /* whole slices of them */
};

/* Multiplies y [rows x n] by the weight's scale. */
static void scale_outputs(float by, uint32_t n, float *y, size_t ld, uint32_t rows)
{
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < n; i++)
            y[r * ld + i] *= by;
}

struct rows { /* of activations */
    const uint8_t *x;
    size_t stride;
    uint32_t n;
};

static void multiply_planes(const struct ntx__mm *j, const struct ntx__product *p, struct bytes w, struct rows x,
                            uint32_t n, float *y, size_t ld, unsigned thread)
{
    const struct ntx_planes_weights parts = {p->w->type, n, p->w->n_in, w.high ? w.high : w.at, w.high ? w.at : NULL};
    ntx_cpu_multiply_planes(j->f->c.ops, &parts, x.x, x.stride, x.n, y, ld, j->f->m.lanes[thread].slice);
}

/* part: of the input's rows; a chunk's outputs belong to one part. */
static void multiply_part(const struct ntx__mm *j, const struct ntx__product *p, struct bytes w, uint32_t part,
                          uint32_t n, float *y, size_t ld, unsigned thread)
{
    const struct ntx_cpu_ops *ops = j->f->c.ops;
    const uint32_t type = p->w->type, n_in = p->w->n_in;
    enum ntx_act form = ntx_act_for(type);
    const uint8_t *x = form == NTX_ACT_F32 ? (const uint8_t *)(j->f->buf[j->in->buf].at + j->in->at)
                                           : j->f->quantized[j->in->set][form];
    size_t stride = ntx__stride(j->f, j->in->buf, form, n_in) * (p->parts && form != NTX_ACT_F32 ? p->parts : 1);
    x += p->row0 * stride + part * ntx_act_row_bytes(form, n_in);
    const bool planes = ntx_planes_of(type);
    if (planes)
        multiply_planes(j, p, w, (struct rows){x, stride, product_rows(j, p)}, n, y, ld, thread);
    uint32_t slices = w.interleaved ? n / NTX_SLICE_OUTS * NTX_SLICE_OUTS : 0;
    if (slices)
        ops->interleaved[type](w.at, p->w->row_bytes, slices, n_in, x, stride, product_rows(j, p), y, ld);
    if (!slices && !planes && is_packed(j, p))
        ops->many[type](w.at, p->w->row_bytes, n, n_in, x, stride, product_rows(j, p), y, ld,
                        j->f->m.lanes[thread].many, j->f->m.many_bytes);
    else if (n > slices && !planes)
        ops->matmul[type](w.at + (size_t)slices * p->w->row_bytes, p->w->row_bytes, n - slices, n_in, x, stride,
                          product_rows(j, p), y + slices, ld);
    if (p->w->scaled)
        scale_outputs(j->f->m.tiles[p->w->chunk0].scale, n, y, ld, product_rows(j, p));
}

/* n logits of a row, of the tokens from `token` on. */
static void put_logits(struct ntx_forward *f, uint32_t row, uint32_t token, float *y, uint32_t n)
{
    if (f->m.logits[row]) {
        __builtin_memcpy(f->m.logits[row] + token, y, n * sizeof *y);
        return;
    }
    if (f->hp->logit_cap != 0)
        f->c.ops->cap(y, f->hp->logit_cap, n);
    ntx_best_offer(f->b->rows[f->m.live[row]].few, (int32_t)token, y, n);
}

/* Outputs at a time: of few rows several tiles' worth, which fit the same buffer, so that the kernel runs longer. */
static uint32_t logit_outs(const struct ntx__mm *j)
{
    enum { MOST_TILES = 64 };
    return NTX__LOGIT_TILE * NTX_MIN(NTX_MAX(ntx__block(&j->f->c) / j->in->n_rows, 1u), (uint32_t)MOST_TILES);
}

/* The same for logits of several rows, each with its own place. */
static void multiply_logits(const struct ntx__mm *j, const struct ntx__product *p, struct bytes w, uint32_t row,
                            uint32_t n, unsigned thread)
{
    float *y = j->f->m.lanes[thread].logits;
    const size_t high = w.high ? ntx_row_bytes(ntx_planes_of(p->w->type)->high, p->w->n_in) : 0;
    const uint32_t outs = logit_outs(j);
    for (uint32_t at = 0; at < n; at += outs) {
        uint32_t is_in_place = NTX_MIN(n - at, outs);
        const struct bytes tile = {w.at + (size_t)at * p->w->row_bytes, w.high ? w.high + at * high : NULL,
                                   w.interleaved};
        multiply_part(j, p, tile, 0, is_in_place, y, outs, thread);
        for (uint32_t r = 0; r < j->in->n_rows; r++)
            put_logits(j->f, r, row + at, y + (size_t)r * outs, is_in_place);
    }
}

/* Computes outputs [row, row + n) of a product, from the bytes of those rows. */
static void compute_outputs(const struct ntx__mm *j, const struct ntx__product *p, struct bytes w, uint32_t row,
                            uint32_t n, unsigned thread)
{
    const size_t ld = j->f->buf[p->to].ld;
    bool logits = p->to == NTX__BUF_LOGITS;
    if (logits && (j->in->n_rows > 1 || !j->f->m.logits[0]))
        multiply_logits(j, p, w, row, n, thread);
    else
        multiply_part(j, p, w, p->parts ? row / (p->w->n_out / p->parts) : 0, n,
                      (logits ? j->f->m.logits[0] : j->f->buf[p->to].at + p->row0 * ld + p->at) + row, ld, thread);
}

static const uint8_t *high_bits(const struct ntx_forward *f, const struct ntx_weight *w, uint32_t chunk, uint32_t out)
{
    if (!ntx_planes_low(w->type))
        return NULL;
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(f->c.model->gguf, w->tensor);
    const uint64_t row = (f->c.chunks->list[chunk].offset - t->offset) / w->row_bytes + out;
    return f->c.high + t->high + row * ntx_row_bytes(ntx_planes_of(w->type)->high, w->n_in);
}

/* A resident chunk is interleaved when it is first multiplied: outputs [out, out + n), a tile, which no other thread
 * uses. */
static struct bytes interleaved(struct ntx_forward *f, const struct ntx_weight *w, uint32_t chunk, const uint8_t *bytes,
                                uint32_t out, uint32_t n, unsigned thread)
{
    struct bytes b = {bytes + (size_t)out * w->row_bytes, high_bits(f, w, chunk, out),
                      f->c.ops->interleave[w->type] && !f->back->own_bytes && is_resident(f, chunk)};
    for (uint32_t i = 0; b.interleaved && i < n / NTX_SLICE_OUTS; i++) {
        uint8_t *done = &f->m.interleaved[f->m.first_slice[chunk] + out / NTX_SLICE_OUTS + i];
        if (!*done)
            f->c.ops->interleave[w->type]((uint8_t *)(uintptr_t)b.at + (size_t)i * NTX_SLICE_OUTS * w->row_bytes,
                                          w->row_bytes, f->m.lanes[thread].slice);
        *done = 1;
    }
    return b;
}

void ntx__fail(struct ntx_forward *f, int rc)
{
    int none = 0;
    atomic_compare_exchange_strong(&f->failed, &none, rc);
}

/* Takes a tile: its first output, counted over all parts of the rows, and the number of outputs; 0: none is left. */
static uint32_t take_tile(const struct ntx__mm *j, const struct ntx__product *p, uint32_t chunk, uint64_t behind,
                          uint64_t *out)
{
    struct ntx__tile *t = &j->f->m.tiles[chunk];
    const uint32_t n_out = j->f->c.chunks->list[chunk].n_out, parts = row_parts(j, p);
    const uint64_t all = (uint64_t)n_out * parts;
    const bool staying = parts > 1 || is_resident(j->f, chunk);
    uint32_t n;
    *out = atomic_load_explicit(&t->next, memory_order_relaxed);
    do {
        if (*out >= all)
            return 0;
        n = tile_rows(j, p, n_out, all - *out, behind * parts, staying);
    } while (
        !atomic_compare_exchange_weak_explicit(&t->next, out, *out + n, memory_order_relaxed, memory_order_relaxed));
    return n;
}

/* Takes tiles of one chunk until none is left. False after a failure, here or elsewhere. */
static bool walk_chunk(const struct ntx__mm *j, const struct ntx__product *p, uint32_t chunk, uint64_t behind,
                       unsigned thread)
{
    struct ntx_forward *f = j->f;
    struct ntx__tile *t = &f->m.tiles[chunk];
    const struct ntx_chunk *c = &f->c.chunks->list[chunk];
    const void *bytes = NULL;
    const uint32_t parts = row_parts(j, p);
    while (!atomic_load_explicit(&f->failed, memory_order_relaxed)) {
        uint64_t at;
        const uint32_t n = take_tile(j, p, chunk, behind, &at), out = (uint32_t)(at % c->n_out);
        if (!n)
            return true;
        const struct ntx__product of = product_part(j, p, (uint32_t)(at / c->n_out), parts);
        int rc = bytes ? 0 : ntx__acquire(f, chunk, &bytes);
        if (!rc && at < c->n_out)
            rc = ntx__finite_outs(f, chunk, (const uint8_t *)bytes + (size_t)out * p->w->row_bytes, out, n);
        if (rc) {
            ntx__fail(f, rc);
            return false;
        }
        compute_outputs(j, &of, interleaved(f, p->w, chunk, bytes, out, n, thread), c->out0 + out, n, thread);
        /* acq_rel: the other threads' reads of the chunk precede its release */
        if (atomic_fetch_add_explicit(&t->done, n, memory_order_acq_rel) + n == (uint64_t)c->n_out * parts) {
            ntx__finite_done(f, chunk);
            ntx__release(f, chunk);
        }
    }
    return false;
}

static bool is_in_place(const struct ntx__mm *j, uint32_t chunk)
{
    return !j->where || j->where[chunk] == NTX__IN_PLACE;
}

void ntx__mm_walk(const struct ntx__mm *j, unsigned thread)
{
    uint64_t behind = j->bytes;
    for (unsigned i = 0; i < j->n; i++) {
        const struct ntx__product *p = &j->products[i];
        for (uint32_t c = p->w->chunk0; c < p->w->chunk0 + p->w->n_chunks; c++) {
            if (!is_in_place(j, c))
                continue;
            behind -= j->f->c.chunks->list[c].bytes;
            if (!walk_chunk(j, p, c, behind, thread))
                return;
        }
    }
}

/* Such chunks are not part of the stream's order. */
static bool is_unordered(const struct ntx_chunk *c) { return c->fixed || c->expert || c->on_demand; }

static const char *tensor_of(const struct ntx_forward *f, uint32_t chunk)
{
    return ntx_gguf_tensor_at(f->c.model->gguf, f->c.chunks->list[chunk].tensor)->name;
}

static int refuse_turn(struct ntx_forward *f, uint32_t chunk, uint32_t turn)
{
    uint32_t last = f->c.chunks->n - 1;
    return ntx_err_set(
        &f->c.weights->error, -EPROTO,
        "layer %u takes tensor '%s' when it is the turn of '%s': weights are read in the order of the steps", f->layer,
        tensor_of(f, chunk), tensor_of(f, NTX_MIN(turn, last)));
}

int ntx__turn(struct ntx_forward *f, uint32_t chunk, uint32_t n)
{
    const struct ntx_chunks *c = f->c.chunks;
    if (f->predicts || is_unordered(&c->list[chunk]))
        return 0;
    while (f->next_chunk < chunk && is_unordered(&c->list[f->next_chunk]))
        f->next_chunk++;
    if (f->next_chunk != chunk)
        return refuse_turn(f, chunk, f->next_chunk);
    f->next_chunk = chunk + n;
    return 0;
}

/* The engine thread took the turn, before it woke the others. */
int ntx__acquire(struct ntx_forward *f, uint32_t chunk, const void **bytes)
{
    if (chunk >= f->next_chunk && !f->predicts && !is_unordered(&f->c.chunks->list[chunk]))
        return refuse_turn(f, chunk, f->next_chunk);
    return f->c.weights->ops->acquire(f->c.weights, chunk, bytes);
}

static int take_scale(struct ntx_forward *f, const struct ntx_weight *w)
{
    const struct ntx_weight scale = {.chunk0 = w->scale};
    const float *v = NULL;
    int rc = w->scaled ? ntx__take(f, &scale, &v) : 0;
    if (rc || !v)
        return rc;
    f->m.tiles[w->chunk0].scale = v[w->scale_at];
    ntx__give(f, &scale);
    return 0;
}

int ntx__mm_begin(struct ntx__mm *j)
{
    struct ntx_forward *f = j->f;
    for (unsigned i = 0; i < j->n; i++) {
        const struct ntx_weight *w = j->products[i].w;
        if (!w->n_chunks) /* another machine's */
            continue;
        int rc = ntx__turn(f, w->chunk0, w->n_chunks);
        if (rc || (rc = take_scale(f, w)))
            return rc;
        for (uint32_t c = w->chunk0; c < w->chunk0 + w->n_chunks; c++) {
            j->bytes += is_in_place(j, c) ? f->c.chunks->list[c].bytes : 0;
            atomic_store_explicit(&f->m.tiles[c].next, 0, memory_order_relaxed); /* ntx_pool_run publishes it */
            atomic_store_explicit(&f->m.tiles[c].done, 0, memory_order_relaxed);
        }
    }
    return 0;
}

/* The number of the tensor's matrix that it begins; UINT32_MAX: none, it is a later part of a matrix whose inputs the
 * first part has added. */
static uint32_t number_of(const struct ntx_forward *f, const struct ntx_weight *w)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(f->c.model->gguf, w->tensor);
    const uint64_t at = f->c.chunks->list[w->chunk0].offset - t->offset, matrix = t->ne[1] * w->row_bytes;
    return at % matrix ? UINT32_MAX : (uint32_t)(at / matrix);
}

/* Choices' rows have floats only if a matrix wants them or they were weighed; the rows that they were made of always
 * have. */
static void add_inputs(struct ntx_forward *f, const struct ntx__product *p, const struct ntx__input *in)
{
    uint32_t matrix = number_of(f, p->w), n = p->n_rows ? p->n_rows : in->n_rows;
    bool routed = in->buf == NTX__BUF_ROUTED_X && !ntx__weighs_input(f);
    for (uint32_t i = p->row0; i < p->row0 + n && matrix != UINT32_MAX; i++)
        for (uint32_t part = 0; part < NTX_MAX(p->parts, 1u); part++)
            ntx_input_sums_add(f->c.sums, p->w->tensor, matrix,
                               routed ? f->m.x + f->m.moe.row[f->moe.first + i] * f->ld_x
                                      : f->buf[in->buf].at + in->at + (size_t)i * f->buf[in->buf].ld +
                                            (size_t)part * p->w->n_in,
                               0, 1);
}

static void walk_mm(void *ctx, unsigned thread) { ntx__mm_walk(ctx, thread); }

int ntx__cpu_multiply(struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in)
{
    struct ntx__mm j = {.f = f, .products = p, .n = n, .in = in};
    int rc = ntx__mm_begin(&j);
    if (rc)
        return rc;
    bool refuse_turn = f->predicts || in->set == NTX__OF_EARLY; /* these rows may be the next layer's */
    for (unsigned i = 0; i < n && f->c.sums && !refuse_turn; i++)
        add_inputs(f, &p[i], in);
    ntx_pool_run(f->pool, walk_mm, &j);
    return atomic_load_explicit(&f->failed, memory_order_relaxed);
}

void ntx__quantize_into(struct ntx_forward *f, void *const *quantized, uint32_t forms, const float *x, uint32_t n,
                        uint32_t i)
{
    for (int form = NTX_ACT_F32 + 1; form < NTX_N_ACTS; form++)
        if (forms >> form & 1)
            f->c.ops->act_quantize[form](x, (uint8_t *)quantized[form] + i * ntx_act_row_bytes((enum ntx_act)form, n),
                                         n);
}

void ntx__quantize(struct ntx_forward *f, uint32_t forms, const float *x, uint32_t n, uint32_t i)
{
    ntx__quantize_into(f, f->m.quantized, forms, x, n, i);
}

enum { ITEM_TURNS = 16 }; /* turns of a thread at the counter: more keep threads apart, fewer end together */

struct items {
    struct ntx_forward *f;
    ntx__item_fn *fn;
    uint32_t n, each; /* each: taken at a time */
    _Atomic uint32_t next;
};

static void work_items(void *ctx, unsigned thread)
{
    struct items *it = ctx;
    for (uint32_t i; (i = atomic_fetch_add_explicit(&it->next, it->each, memory_order_relaxed)) < it->n;)
        for (uint32_t end = NTX_MIN(i + it->each, it->n); i < end; i++)
            it->fn(it->f, i, thread);
}

void ntx__each(struct ntx_forward *f, ntx__item_fn *fn, uint32_t n)
{
    struct items it = {.f = f, .fn = fn, .n = n, .each = NTX_MAX(n / (ITEM_TURNS * f->c.threads), 1u)};
    if (n < 2) /* a row costs less than waking the workers */
        work_items(&it, 0);
    else
        ntx_pool_run(f->pool, work_items, &it);
}

int ntx__take(struct ntx_forward *f, const struct ntx_weight *w, const float **v)
{
    const void *bytes = NULL;
    int rc = w->tensor == NTX_NO_TENSOR ? 0 : ntx__acquire(f, w->chunk0, &bytes);
    if (!rc && bytes && !(rc = ntx__finite_outs(f, w->chunk0, bytes, 0, f->c.chunks->list[w->chunk0].n_out)))
        ntx__finite_done(f, w->chunk0);
    if (!rc)
        *v = bytes;
    return rc;
}

void ntx__give(struct ntx_forward *f, const struct ntx_weight *w)
{
    if (w->tensor != NTX_NO_TENSOR)
        ntx__release(f, w->chunk0);
}

int ntx__take_run(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(f, r);
    int rc = 0;
    for (uint32_t k = 0; k < r->n; k++)
        for (uint8_t i = 0; i < s[k].n_weights && !rc; i++)
            rc = ntx__take(f, &f->c.chunks->layers[f->layer].of[s[k].weight[i]], &f->vec[s[k].weight[i]]);
    return rc;
}

void ntx__give_run(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(f, r);
    for (uint32_t k = 0; k < r->n; k++)
        for (uint8_t i = 0; i < s[k].n_weights; i++)
            ntx__give(f, &f->c.chunks->layers[f->layer].of[s[k].weight[i]]);
}

int ntx__skip_chunks(struct ntx_forward *f, uint32_t first, uint32_t end)
{
    int rc = 0;
    for (uint32_t c = first; c < end && !(rc = ntx__turn(f, c, 1)); c++)
        f->c.weights->ops->skip(f->c.weights, c);
    return rc;
}
