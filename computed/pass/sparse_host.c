/* SPDX-License-Identifier: Apache-2.0 */
/* sparse_host.c: groups of a packed layer's neurons (sparse.c) on the CPU, in place. Groups that no row uses are left
 * out, and not read.
 *
 *   batch by batch of groups, in order of their numbers:
 *     each group:   up = its up rows . x;  hidden = act(gate) * up, 0 where act is 0
 *     each part of the width, by one thread:   y += hidden_j * down_j, j increasing, hidden_j that are 0 left out;
 *       where groups have rows of down instead of columns:   y += rows of the group . its hidden values
 *
 * Where layers share groups and add to them (model/pack.h), the added rows are in groups of the same neurons, which are
 * read for the pass instead; the shared groups are all in memory:
 *   up = fmaf(s, added up rows . z, up), then hidden values as before;
 *   v += hidden_j * added down_j, j increasing, by one thread
 *
 * Threads share the width in the second step, so that the sum of each value of y goes over the neurons in one order,
 * for any thread and any split of groups into batches and chunks. Weights are used in place, whole groups at a time. */
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"

#define PART_LEAST  256u         /* values of a part of the width: a whole block of any type */
#define BATCH_BYTES (512u << 10) /* bytes of a batch at least, where groups are selected */
/* with so many rows, parts are as small as possible, so that their y stay in a cache */
#define MANY_ROWS   8u

static float *gate_of(const struct ntx_forward *f, uint32_t row) { return f->m.gate + row * f->ld_gate; }
static float *up_of(const struct ntx_forward *f, uint32_t row) { return f->m.up + (size_t)row * f->hp->n_ff; }

static bool adds_to_part(const struct ntx_forward *f, enum ntx_pack_part part)
{
    return ntx_pack_adds(&ntx__layer_weights(f)->pack, part);
}

static uint32_t group_at(const struct ntx_forward *f, uint32_t i) { return f->m.groups.wanted[f->groups.first + i]; }

/* Bytes of the i-th group of the batch. */
static const uint8_t *group_of(const struct ntx_forward *f, uint32_t i)
{
    return f->groups.base ? f->groups.base + (size_t)group_at(f, i) * ntx__layer_weights(f)->pack.group_bytes
                          : f->m.groups.at[i];
}

/* ---- the values of a group's neurons */

static uint32_t neurons_of(const struct ntx_forward *f, uint32_t group, uint32_t *first)
{
    uint32_t each = ntx__layer_weights(f)->pack.group;
    *first = group * each;
    return NTX_MIN(each, f->hp->n_ff - *first);
}

/* y[row][first ..) = rows of one part of a group . x of each live row */
static void multiply_part(struct ntx_forward *f, const uint8_t *group, enum ntx_pack_part part, uint32_t n, float *y,
                          size_t ld)
{
    const struct ntx_pack_layer *p = &ntx__layer_weights(f)->pack;
    enum ntx_act form = ntx_act_for(p->type[part]);
    const void *x = form == NTX_ACT_F32 ? f->m.x : f->m.quantized[form];
    size_t stride = form == NTX_ACT_F32 ? f->ld_x * sizeof(float) : ntx_act_row_bytes(form, f->hp->n_embd);
    f->c.ops->matmul[p->type[part]](group + p->at[part], p->row_bytes[part], n, f->hp->n_embd, x, stride, f->n_live, y,
                                    ld);
}

/* Adds to the ups of the i-th group's n neurons from `first` on. */
static void add_ups(struct ntx_forward *f, uint32_t i, uint32_t first, uint32_t n)
{
    const struct ntx_pack_added *a = &ntx__layer_weights(f)->pack.added[NTX_PACK_UP];
    const enum ntx_act form = ntx_act_for(a->type);
    const uint8_t buf = a->whole ? NTX_BUF_X : NTX_BUF_LOW;
    void *const *quantized = a->whole ? f->m.quantized : f->m.low_quantized;
    const void *z = form == NTX_ACT_F32 ? f->buf[buf].at : quantized[form];
    const float by = ntx__steps_of(f, f->run)->scale;
    f->c.ops->matmul[a->type](f->m.groups.at[i] + a->at, a->row_bytes, n, a->rank, z,
                              ntx__stride(f, buf, form, a->rank), f->n_live, f->m.groups.added + first, f->hp->n_ff);
    for (uint32_t r = 0; r < f->n_live; r++) {
        float *up = up_of(f, r) + first;
        const float *added = f->m.groups.added + (size_t)r * f->hp->n_ff + first;
        for (uint32_t k = 0; k < n; k++)
            up[k] = fmaf(by, added[k], up[k]);
    }
}

static void hidden_of_group(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    uint32_t first, n = neurons_of(f, group_at(f, i), &first);
    if (ntx_pack_has_gate(&ntx__layer_weights(f)->pack))
        multiply_part(f, group_of(f, i), NTX_PACK_GATE, n, f->m.gate + first, f->ld_gate);
    multiply_part(f, group_of(f, i), NTX_PACK_UP, n, f->m.up + first, f->hp->n_ff);
    if (adds_to_part(f, NTX_PACK_UP))
        add_ups(f, i, first, n);
    for (uint32_t r = 0; r < f->n_live; r++) {
        const uint8_t *uses = ntx__groups_of(f, f->m.live[r], f->layer);
        if (uses && !uses[group_at(f, i)])
            memset(gate_of(f, r) + first, 0, n * sizeof(float));
        else
            f->c.ops->glu[ntx__packed_act(f, f->layer)](gate_of(f, r) + first, up_of(f, r) + first, n,
                                                        gate_of(f, r) + first);
    }
}

/* ---- down */

static uint32_t part_width(const struct ntx_forward *f)
{
    uint32_t n = f->hp->n_embd,
             each = f->n_live < MANY_ROWS ? NTX_ROUND_UP(n, f->c.threads) / f->c.threads : PART_LEAST;
    return NTX_MIN(NTX_ROUND_UP(each, PART_LEAST), n);
}

static uint32_t parts_of(const struct ntx_forward *f) { return (f->hp->n_embd + part_width(f) - 1) / part_width(f); }

static void add_thin_columns(struct ntx_forward *f)
{
    const struct ntx_pack_added *a = &ntx__layer_weights(f)->pack.added[NTX_PACK_DOWN];
    float *v = f->m.low + ntx__steps_of(f, f->run)->offset;
    uint32_t first;
    for (uint32_t g = 0; g < f->groups.n; g++) {
        uint32_t n = neurons_of(f, group_at(f, g), &first);
        f->c.ops->columns[a->type](f->m.groups.at[g] + a->at, a->row_bytes, n, a->rank, f->m.gate + first, f->ld_gate,
                                   f->n_live, v, f->buf[NTX_BUF_LOW].ld);
    }
}

/* Adds the products of a block's rows of down, outputs k .. k + width, with its n hidden values from `first` on. */
static void add_rows(struct ntx_forward *f, const uint8_t *rows, uint32_t first, uint32_t n, uint32_t k, uint32_t width,
                     unsigned thread)
{
    const struct ntx_pack_layer *p = &ntx__layer_weights(f)->pack;
    const uint32_t type = p->type[NTX_PACK_DOWN], n_embd = f->hp->n_embd;
    const enum ntx_act form = ntx_act_for(type);
    const size_t stride = form == NTX_ACT_F32 ? f->ld_gate * sizeof(float) : ntx_act_row_bytes(form, n);
    const float *hidden = f->m.gate + first;
    uint8_t *quantized = f->m.groups.hidden + thread * f->m.groups.hidden_bytes;
    for (uint32_t r = 0; r < f->n_live && form != NTX_ACT_F32; r++)
        f->c.ops->act_quantize[form](hidden + r * f->ld_gate, quantized + r * stride, n);
    f->c.ops->matmul[type](rows, p->row_bytes[NTX_PACK_DOWN], width, n,
                           form == NTX_ACT_F32 ? (const void *)hidden : quantized, stride, f->n_live,
                           f->m.groups.product + k, n_embd);
    for (uint32_t r = 0; r < f->n_live; r++) {
        float *y = f->m.y + (size_t)r * n_embd + k;
        const float *product = f->m.groups.product + (size_t)r * n_embd + k;
        for (uint32_t o = 0; o < width; o++)
            y[o] += product[o];
    }
}

/* The part after the last one is the added columns'. */
static void add_columns(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    if (i == parts_of(f)) {
        add_thin_columns(f);
        return;
    }
    const struct ntx_pack_layer *p = &ntx__layer_weights(f)->pack;
    uint32_t type = p->type[NTX_PACK_DOWN], k = i * part_width(f), width = NTX_MIN(part_width(f), f->hp->n_embd - k),
             first;
    size_t at = p->at[NTX_PACK_DOWN] +
                (p->down_rows ? (size_t)k * p->row_bytes[NTX_PACK_DOWN] : ntx_row_bytes(type, k));
    for (uint32_t g = 0; g < f->groups.n; g++) {
        uint32_t n = neurons_of(f, group_at(f, g), &first);
        /* block by block, so that a group's size changes no bit */
        const uint32_t block = ntx_type_info(type)->block;
        for (uint32_t b = 0; p->down_rows && b < n; b += block)
            add_rows(f, group_of(f, g) + at + ntx_row_bytes(type, b), first + b, block, k, width, thread);
        if (!p->down_rows)
            f->c.ops->columns[type](group_of(f, g) + at, p->row_bytes[NTX_PACK_DOWN], n, width, f->m.gate + first,
                                    f->ld_gate, f->n_live, f->m.y + k, f->hp->n_embd);
    }
}

static void compute_batch(struct ntx_forward *f)
{
    ntx__each(f, hidden_of_group, f->groups.n);
    ntx__each(f, add_columns, parts_of(f) + adds_to_part(f, NTX_PACK_DOWN));
}

/* ---- all groups, a chunk at a time: it may have to make room in the ring for the next */

static int run_chunk(struct ntx_forward *f, uint32_t chunk)
{
    const struct ntx_chunk *c = &f->c.chunks->list[chunk];
    const void *bytes;
    int rc = ntx__acquire(f, chunk, &bytes);
    if (rc)
        return rc;
    f->groups.first = 0;
    f->groups.n = c->n_out;
    for (uint32_t i = 0; i < c->n_out; i++) {
        f->m.groups.wanted[i] = c->out0 + i;
        f->m.groups.at[i] = (const uint8_t *)bytes + (size_t)i * ntx_read_groups(ntx__layer_weights(f))->row_bytes;
        if ((rc = ntx__finite_group(f, chunk, f->m.groups.at[i], i)))
            return rc;
    }
    compute_batch(f);
    f->c.weights->ops->release(f->c.weights, chunk);
    return 0;
}

static int run_all(struct ntx_forward *f)
{
    const struct ntx_weight *w = ntx_read_groups(ntx__layer_weights(f));
    int rc = ntx__turn(f, w->chunk0, w->n_chunks);
    for (uint32_t c = w->chunk0; c < w->chunk0 + w->n_chunks && !rc; c++)
        rc = run_chunk(f, c);
    return rc;
}

/* ---- selected groups */

static uint32_t chunk_of(const struct ntx_forward *f, uint32_t i)
{
    const struct ntx_weight *w = ntx_read_groups(ntx__layer_weights(f));
    return w->chunk0 + f->m.groups.wanted[i] / w->chunk_outs;
}

/* Takes groups wanted[i ..) into the batch, chunk by chunk, until it is large enough. *end: the first one not taken. */
static int take_batch(struct ntx_forward *f, uint32_t i, uint32_t n, uint32_t *end)
{
    uint32_t bytes = ntx_read_groups(ntx__layer_weights(f))->row_bytes;
    f->groups.first = i;
    for (f->groups.n = 0; i < n && f->groups.n * (uint64_t)bytes < BATCH_BYTES;) {
        uint32_t chunk = chunk_of(f, i);
        const void *p;
        int rc = ntx__acquire(f, chunk, &p);
        if (rc)
            return rc;
        for (; i < n && chunk_of(f, i) == chunk; i++) {
            uint32_t row = f->m.groups.wanted[i] - f->c.chunks->list[chunk].out0;
            const uint8_t *group = (const uint8_t *)p + (size_t)row * bytes;
            if ((rc = ntx__finite_group(f, chunk, group, row)))
                return rc;
            f->m.groups.at[f->groups.n++] = group;
        }
    }
    *end = i;
    return 0;
}

static void release_batch(struct ntx_forward *f)
{
    for (uint32_t i = f->groups.first; i < f->groups.first + f->groups.n; i++)
        if (i == f->groups.first || chunk_of(f, i) != chunk_of(f, i - 1))
            f->c.weights->ops->release(f->c.weights, chunk_of(f, i));
}

static int run_batches(struct ntx_forward *f, uint32_t n)
{
    int rc = 0;
    for (uint32_t i = 0, end; i < n && !rc; i = end) {
        if ((rc = take_batch(f, i, n, &end)))
            return rc;
        compute_batch(f);
        release_batch(f);
    }
    return rc;
}

/* ---- added rows of shared groups */

static void begin_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_pack_added *up = &ntx__layer_weights(f)->pack.added[NTX_PACK_UP];
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    float *low = f->m.low + i * f->buf[NTX_BUF_LOW].ld;
    if (adds_to_part(f, NTX_PACK_UP) && !up->whole)
        ntx__quantize_into(f, f->m.low_quantized, 1u << ntx_act_for(up->type), low, up->rank, i);
    memset(low + s->offset, 0, s->width * sizeof *low);
}

/* The shared groups are taken whole, until the layer is done. */
static int begin_added(struct ntx_forward *f)
{
    const struct ntx_weight *shared = &ntx__layer_weights(f)->groups;
    const void *bytes = NULL;
    int rc = 0;
    f->groups.base = NULL;
    if (!ntx__layer_weights(f)->pack.added_bytes)
        return 0;
    if ((rc = ntx__acquire(f, shared->chunk0, &bytes)))
        return rc;
    for (uint32_t i = 0; i < shared->n_out && !rc; i++)
        rc = ntx__finite_group(f, shared->chunk0, (const uint8_t *)bytes + (size_t)i * shared->row_bytes, i);
    f->groups.base = bytes;
    ntx__each(f, begin_row, f->n_live);
    return rc;
}

static void end_added(struct ntx_forward *f)
{
    if (f->groups.base)
        f->c.weights->ops->release(f->c.weights, ntx__layer_weights(f)->groups.chunk0);
    f->groups.base = NULL;
}

int ntx__host_groups(struct ntx_forward *f, bool all, uint32_t n)
{
    int rc = begin_added(f);
    memset(f->m.y, 0, (size_t)f->n_live * f->hp->n_embd * sizeof *f->m.y);
    if (!rc)
        rc = all ? run_all(f) : run_batches(f, n);
    end_added(f);
    return rc;
}
