/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: the choices, in this order: chunk size and context, rows per pass, ring, and resident chunks with the rest of
 * the budget.
 *
 * Chunk sizes are tried from the preferred one downwards, past the size for streaming if not everything is resident,
 * until the ring that they need is small beside the memory left for weights. Each size has a least memory (one row, and
 * the smallest ring, or no ring if the whole model is smaller). The least of all sizes is the budget that a refusal
 * names, and exactly that budget succeeds. */
#include "computed/plan/plan_impl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/gpu/device.h"
#include "computed/state/kv.h"
#include "model/planes.h"

#define CHUNK_MAX        (4ull << 20) /* for a model that is all in memory: one long run per thread */
#define CHUNK_MIN        (64ull << 10)
#define CHUNKS_PER_LAYER 8
#define RING_GOOD        (8 * NTX__INFLIGHT) /* evens out layers that take longer to compute */
#define RING_BUSY        (4 * NTX__INFLIGHT)
#define RING_LEAST       (NTX__INFLIGHT / 4) /* below, the drive waits for slots: before rows and resident chunks */
#define ROWS_FEW         16u /* these come before that ring: a prompt reads the model once for so many tokens */
#define DESC_MIN         3u
#define DESC_GOOD        8u
#define ROWS_MAX         512u
#define CTX_MOST         4096u /* if no context was requested */
#define CTX_LEAST        128u
/* Lists of this size may be made under any budget, within what the processes have beside it. */
#define LISTS_LEAST      (24ull << 20)

struct planner {
    const struct ntx_model *m;
    const struct ntx_plan_request *r;
    struct ntx_err *err;
    uint32_t ctx; /* wanted */
    /* Of a read, and of a chunk of a model that is not all in memory: few bytes are then in the ring at a time, so that
     * the drive writes to cached memory. */
    uint64_t read_bytes;
    uint64_t smallest; /* least budget of all sizes tried so far */
    bool on_device;
    bool too_many;   /* chunks of a size; smaller sizes have even more */
    uint64_t listed; /* bytes of a size's lists, where these alone were too much */
};

/* a chunk size, with the choices made for it */
struct option {
    uint64_t chunk_bytes;
    struct ntx_chunks *chunks;
    struct ntx__sizes sizes;
    struct ntx__shape shape;
    struct ntx_frames one, classes; /* classes of frames: one for all experts, or by size; without frames yet */
    uint64_t window;                /* for groups on demand, if none is resident */
    uint32_t n_desc;
    bool resident; /* everything fits: no ring, no frames */
    bool dense;    /* everything but experts fits: no ring */
    bool prefetch;
};

/* ---- bytes of a shape, with only fixed chunks resident, and with everything */

/* Some parts of the model are read on demand. */
static bool has_on_demand(const struct option *o) { return o->sizes.n_bundles || o->sizes.groups; }

/* The experts of one layer that a row wants. */
static uint32_t least_frames(const struct option *o)
{
    return o->sizes.n_bundles ? o->shape.model->hp.n_expert_used : 0;
}

/* n frames: by size if each class has twice as many as a row wants, else all of one size. */
static struct ntx_frames frames_of(const struct option *o, uint32_t n)
{
    struct ntx_frames f = o->classes;
    uint32_t least = least_frames(o);
    if (!least)
        return (struct ntx_frames){0};
    for (uint32_t k = 0; k < f.n_classes; k++)
        if ((uint64_t)n * f.class[k].n_bundles / o->sizes.n_bundles < 2 * least)
            f = o->one;
    ntx_frames_share(&f, n, least, o->prefetch ? least : 0); /* as many as are predicted for a row of one layer */
    return f;
}

/* Groups of the next layer are prefetched if they are known, or if its gate is resident. Otherwise the ring has more
 * use for the second window: it keeps the drive busy while a layer waits for its groups. */
static uint32_t windows(const struct option *o, bool streamed)
{
    return o->prefetch && (!streamed || ntx_ffn_mode_groups(&o->shape.ffn)) ? NTX__WINDOWS : 1;
}

static uint64_t streamed_total(const struct option *o, uint32_t n_desc)
{
    struct ntx__shape s = o->shape;
    s.n_desc = n_desc;
    s.n_sched = o->sizes.n_matrix;
    s.slot_bytes = o->sizes.slot;
    s.arena_bytes = o->sizes.fixed;
    s.frames = frames_of(o, least_frames(o));
    s.n_windows = windows(o, true);
    s.window_bytes = o->window;
    return ntx__plan_bill(&s).total;
}

/* Experts in frames; groups on demand in windows, except kept_groups thousandths; all else resident. */
static uint64_t dense_total(const struct option *o, uint32_t n_frames, uint32_t kept_groups)
{
    struct ntx__shape s = o->shape;
    s.n_desc = 0;
    s.arena_bytes = o->sizes.fixed + o->sizes.matrix;
    s.window_bytes = o->window;
    if (kept_groups)
        s.arena_bytes += ntx__plan_groups(o->chunks, kept_groups, &s.window_bytes);
    s.n_windows = windows(o, false);
    s.frames = frames_of(o, n_frames);
    return ntx__plan_bill(&s).total;
}

static uint64_t resident_total(const struct option *o)
{
    struct ntx__shape s = o->shape;
    s.n_desc = 0;
    s.arena_bytes = o->sizes.fixed + o->sizes.matrix + o->sizes.experts + o->sizes.groups;
    return ntx__plan_bill(&s).total;
}

static uint32_t least_desc(const struct planner *p) { return p->r->ring_slots ? p->r->ring_slots : DESC_MIN; }

static uint64_t ring_bytes(uint32_t n_desc, uint64_t slot) { return (n_desc + ntx__plan_spares(n_desc, slot)) * slot; }

/* Streamed with so many descriptors, or without a ring if that takes less. */
static uint64_t total_with(const struct option *o, uint32_t n_desc, uint32_t ctx, uint32_t rows)
{
    struct option t = *o;
    t.shape.ctx = ctx;
    t.shape.rows = rows;
    uint64_t streamed = streamed_total(&t, n_desc), resident = resident_total(&t),
             dense = dense_total(&t, least_frames(&t), 0);
    return NTX_MIN(NTX_MIN(streamed, resident), dense);
}

static uint64_t least_total(const struct planner *p, const struct option *o, uint32_t ctx, uint32_t rows)
{
    return total_with(o, least_desc(p), ctx, rows);
}

/* Descriptors of a ring that keeps a drive busy, as far as they leave room for a few rows. */
static uint32_t fair_desc(const struct planner *p, const struct option *o)
{
    uint32_t n = least_desc(p);
    uint64_t slot = o->sizes.slot;
    if (p->r->ring_slots || !slot || o->chunk_bytes > p->read_bytes)
        return n;
    struct option t = *o;
    t.shape.rows = NTX_MAX(o->shape.rows, NTX_MIN(ROWS_FEW, p->ctx));
    while ((n < DESC_GOOD || ring_bytes(n + 1, slot) <= RING_LEAST) && streamed_total(&t, n + 1) <= p->r->ram_bytes)
        n++;
    return n;
}

/* ---- context and rows */

static uint32_t least_ctx(const struct planner *p)
{
    uint32_t most = p->m->hp.ctx_train;
    if (p->r->ctx)
        return p->r->ctx;
    return most ? NTX_MIN(most, CTX_LEAST) : CTX_LEAST;
}

uint32_t ntx_plan_ctx(const struct ntx_hparams *hp, uint32_t ctx)
{
    if (ctx)
        return ctx;
    return hp->ctx_train ? NTX_MIN(hp->ctx_train, CTX_MOST) : CTX_MOST;
}

/* If no context was requested: the smallest of the model's own, 4096 and what a quarter of the budget holds for all
 * sessions; in whole blocks. */
static uint32_t default_ctx(const struct planner *p)
{
    uint32_t most = ntx_plan_ctx(&p->m->hp, 0);
    double blocks = floor((double)(p->r->ram_bytes / 4) / (double)ntx_kv_block_bytes(&p->m->hp, p->r->kv_type) /
                          NTX_MAX(p->r->sessions, 1u));
    return (uint32_t)NTX_MAX(NTX_MIN(blocks * NTX_KV_BLOCK, (double)most), (double)least_ctx(p));
}

/* The largest n in [low, high] with fits(n); fits(low) is known. */
static uint32_t search_largest(uint32_t low, uint32_t high,
                               bool (*fits)(const struct planner *, const struct option *, uint32_t),
                               const struct planner *p, const struct option *o)
{
    while (low < high) {
        uint32_t mid = low + (high - low + 1) / 2;
        if (fits(p, o, mid))
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

static uint32_t least_rows(const struct planner *p)
{
    return p->r->max_rows ? p->r->max_rows : NTX_MAX(p->r->least_rows, 1u);
}

static bool ctx_fits(const struct planner *p, const struct option *o, uint32_t ctx)
{
    return least_total(p, o, ctx, least_rows(p)) <= p->r->ram_bytes;
}

/* Each row costs activations, a probe and an embedding frame: together at most this part of the budget. If experts
 * stream, each pass of a prompt reads nearly all of them, so that fewer passes are worth some frames. */
static uint64_t rows_most(const struct planner *p, const struct option *one)
{
    bool experts_stream = p->m->hp.n_expert && resident_total(one) > p->r->ram_bytes;
    return p->r->ram_bytes / (experts_stream ? 5 : 8);
}

static bool rows_fit(const struct planner *p, const struct option *o, uint32_t rows)
{
    struct option t = *o, one = *o;
    t.shape.rows = rows;
    one.shape.rows = 1;
    uint64_t more = resident_total(&t) - resident_total(&one) + ntx__plan_bill(&one.shape).activations;
    return more <= rows_most(p, &one) && total_with(o, fair_desc(p, &one), o->shape.ctx, rows) <= p->r->ram_bytes;
}

/* ---- ring */

/* With whole layers on several machines (model/share.h) the drive reads ahead while others compute: into all free
 * memory, if need be. */
static uint64_t ahead_bytes(const struct planner *p, uint64_t must_stream)
{
    const struct ntx_share *s = p->r->share;
    return s && s->split == NTX_SPLIT_LAYERS
               ? (uint64_t)ntx_share_ahead(s, s->rank, p->m->hp.n_layers, (double)must_stream)
               : 0;
}

/* Descriptors for four times the bytes in flight, if there is room: all slots together take at most an eighth of the
 * free memory. If that is too little to keep the drive busy (half of the ring being read, half ready), they take up to
 * half of it, since a half-idle drive costs more time than resident chunks would save. The least ring that keeps it
 * busy takes whatever is free. Never more than must be streamed, except for reading ahead of a turn. */
static void choose_ring(const struct planner *p, struct option *o)
{
    uint64_t slot = o->sizes.slot, resident = resident_total(o), ram = p->r->ram_bytes;
    o->resident = resident <= ram;
    o->dense = !o->resident && has_on_demand(o) && dense_total(o, least_frames(o), 0) <= ram;
    o->n_desc = o->resident || o->dense ? 0 : least_desc(p);
    if (!o->n_desc || p->r->ring_slots)
        return;
    if (has_on_demand(o)) /* bytes to read if there were no frames */
        resident = dense_total(o, least_frames(o), 0);
    uint64_t floor_total = streamed_total(o, DESC_MIN), spare = ram - floor_total;
    uint64_t target = NTX_MAX(spare / 8, NTX_MIN(spare / 2, RING_BUSY));
    target = NTX_MAX(target, NTX_MAX(RING_LEAST, ring_bytes(fair_desc(p, o), slot)));
    target = NTX_MIN(NTX_MAX(target, ring_bytes(DESC_MIN, slot)), NTX_MAX(resident - ram, ring_bytes(DESC_GOOD, slot)));
    const uint64_t in_turn = ahead_bytes(p, resident - ram), most = NTX_MAX(RING_GOOD, in_turn);
    while (o->n_desc * slot < most && (ring_bytes(o->n_desc + 1, slot) <= target || o->n_desc * slot < in_turn) &&
           streamed_total(o, o->n_desc + 1) <= ram)
        o->n_desc++;
}

/* ---- snapshots */

/* Texts with a known beginning go on from snapshots (computed/state/prefix.h), where layers have windows or recurrent
 * states: a few thousand tokens of a long prompt are worth more than the weights in their place. */
enum { MARKS_MOST = 30, MARKS_SHARE = 32 };

static bool snapshots_fit(const struct planner *p, const struct option *o, uint32_t n)
{
    struct option t = *o;
    const struct ntx_kv_shape kv = ntx__plan_kv(&o->shape);
    t.shape.snapshots = n;
    uint64_t total;
    if (o->resident)
        total = resident_total(&t);
    else
        total = o->dense ? dense_total(&t, least_frames(&t), 0) : streamed_total(&t, t.n_desc);
    return n * ntx_kv_snapshot_bytes(&p->m->hp, p->r->kv_type, &kv) <= p->r->ram_bytes / MARKS_SHARE &&
           total <= p->r->ram_bytes;
}

static void choose_snapshots(const struct planner *p, struct option *o)
{
    const struct ntx_kv_shape kv = ntx__plan_kv(&o->shape);
    if (!p->r->no_prefixes && !p->r->vram_bytes && !p->on_device &&
        ntx_kv_snapshot_bytes(&p->m->hp, p->r->kv_type, &kv))
        o->shape.snapshots = search_largest(0, MARKS_MOST, snapshots_fit, p, o);
}

/* ---- resident tables */

static void measure_sizes(struct option *o)
{
    o->sizes = ntx__plan_sizes(o->chunks);
    o->shape.widths = ntx_forward_widths(o->shape.model, o->chunks);
}

/* All entries of a table become resident if the whole model is and there is room. A table that is also a matrix is not
 * stored twice. */
static int keep_entries(const struct planner *p, struct option *o, enum ntx_end table)
{
    struct ntx_weight *w = &o->chunks->end[table];
    if (w->tensor == NTX_NO_TENSOR || w->tensor == o->chunks->output.tensor ||
        (uint64_t)w->n_out * w->row_bytes > p->r->ram_bytes)
        return 0;
    int rc = ntx_chunks_keep_entries(o->chunks, p->m, w, o->chunk_bytes, p->err);
    if (rc)
        return rc;
    measure_sizes(o);
    if (resident_total(o) > p->r->ram_bytes) {
        ntx_chunks_drop_entries(o->chunks, w);
        measure_sizes(o);
    }
    return 0;
}

/* Not with a GPU, which has resident data in its own memory, nor with several machines, of which one alone reads
 * rows. */
static int keep_tables(const struct planner *p, struct option *o)
{
    if (!o->resident || p->on_device || p->r->vram_bytes || p->r->device_bytes || p->r->share)
        return 0;
    int rc = keep_entries(p, o, NTX_END_token_embd);
    return rc || !p->m->hp.n_input ? rc : keep_entries(p, o, NTX_END_input_embd);
}

/* ---- one chunk size */

/* So that a chunk, read in whole blocks from any offset, is at most `size`: one read, not two halves. */
static uint64_t in_blocks(uint64_t size) { return size > 2 * NTX__BLOCK ? size - NTX__BLOCK : size; }

static bool stopped(const struct planner *p)
{
    return p->r->stop && atomic_load_explicit(p->r->stop, memory_order_relaxed);
}

/* Makes the chunks of a size. If its lists alone exceed the budget, and a size that was tried before, it can neither be
 * chosen nor be the smallest; then it is not made (-ENOSPC), which bounds the cost of a file that claims to be huge. */
static int make_chunks(struct planner *p, uint64_t chunk_bytes, struct ntx_chunks **out)
{
    uint64_t useful = NTX_MAX(p->r->ram_bytes, p->smallest == UINT64_MAX ? LISTS_LEAST : p->smallest) / NTX__LIST_BYTES;
    struct ntx_chunk_bounds b = {.most = NTX_MIN(useful, (uint64_t)NTX_CHUNKS_MAX),
                                 .stop = p->r->stop,
                                 .share = p->r->share,
                                 .apart = p->r->apart};
    int rc = ntx_chunks_make_bounded(p->m, in_blocks(chunk_bytes), &b, out, p->err);
    if (rc != -E2BIG)
        return rc;
    b = (struct ntx_chunk_bounds){
        .most = NTX_CHUNKS_MAX, .stop = p->r->stop, .share = p->r->share, .apart = p->r->apart, .count_only = true};
    struct ntx_chunks *c;
    p->too_many = true;
    if (p->smallest != UINT64_MAX)
        return -ENOSPC;
    if ((rc = ntx_chunks_make_bounded(p->m, in_blocks(chunk_bytes), &b, &c, p->err)))
        return rc;
    p->listed = c->n * NTX__LIST_BYTES + c->fixed_bytes;
    ntx_chunks_free(c);
    return -ENOSPC;
}

/* -ENOSPC: not even the least fits. */
static int try_chunk_size(struct planner *p, uint64_t chunk_bytes, struct option *o)
{
    *o = (struct option){.chunk_bytes = chunk_bytes, .prefetch = p->r->prefetch};
    int rc = make_chunks(p, chunk_bytes, &o->chunks);
    if (rc)
        return rc;
    if (p->r->ffn.kind != NTX_FFN_ALL)
        ntx_chunks_on_demand(o->chunks);
    ntx__plan_device(o->chunks, p->r->device_bytes, NTX_DEVICE_CHUNK_EXTRA);
    o->sizes = ntx__plan_sizes(o->chunks);
    o->one = ntx__plan_classes(o->chunks, 1);
    o->classes = ntx__plan_classes(o->chunks, NTX_FRAME_CLASSES);
    o->shape = (struct ntx__shape){
        .model = p->m,
        .chunks = o->chunks,
        .other = p->r->other_bytes,
        .stage = p->r->stage_bytes,
        .ctx = least_ctx(p),
        .sessions = NTX_MAX(p->r->sessions, 1u),
        .kv_type = p->r->kv_type,
        .kv = p->r->kv,
        .kv_all = p->r->kv_all,
        .kv_ram = p->r->kv_ram,
        .ffn = p->r->ffn,
        .threads = NTX_MAX(p->r->threads, 1u),
        .rows = least_rows(p),
        .widths = ntx_forward_widths(p->m, o->chunks),
    };
    ntx__plan_groups(o->chunks, 0, &o->window);
    if (stopped(p))
        return ntx_err_set(p->err, -ECANCELED, "cancelled");
    uint64_t least = least_total(p, o, o->shape.ctx, o->shape.rows);
    p->smallest = NTX_MIN(p->smallest, least);
    if (least > p->r->ram_bytes || least == UINT64_MAX)
        return -ENOSPC;
    o->shape.ctx = search_largest(o->shape.ctx, p->ctx, ctx_fits, p, o);
    if (!p->r->max_rows) {
        uint64_t most = NTX_MIN((uint64_t)o->shape.ctx * o->shape.sessions, (uint64_t)ROWS_MAX);
        uint32_t rows = search_largest(least_rows(p), NTX_MAX((uint32_t)most, least_rows(p)), rows_fit, p, o);
        o->shape.rows = rows > 16 ? NTX_ROUND_DOWN(rows, 16) : rows;
    }
    choose_ring(p, o);
    return 0;
}

static uint64_t preferred_chunk(const struct planner *p)
{
    uint64_t layer = 0, size = CHUNK_MAX;
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(p->m->gguf); i++)
        layer += ntx_gguf_tensor_at(p->m->gguf, i)->bytes;
    layer /= p->m->hp.n_layers;
    while (size > CHUNK_MIN && size > layer / CHUNKS_PER_LAYER)
        size /= 2;
    return size;
}

/* The largest chunk size with a comfortable ring, else the one with the longest ring. */
static int choose_chunk_size(struct planner *p, struct option *best)
{
    uint64_t size = p->r->chunk_bytes ? p->r->chunk_bytes : preferred_chunk(p),
             last = p->r->chunk_bytes ? size : CHUNK_MIN;
    memset(best, 0, sizeof *best);
    for (; size >= last && !p->too_many; size /= 2) {
        struct option o;
        int rc = try_chunk_size(p, size, &o);
        if (!rc && (!best->chunks || o.resident || (o.dense && !best->resident) ||
                    (!best->dense && o.n_desc > best->n_desc))) {
            struct ntx_chunks *other = best->chunks;
            *best = o;
            o.chunks = other;
        }
        ntx_chunks_free(o.chunks);
        if (rc && rc != -ENOSPC) {
            ntx_chunks_free(best->chunks);
            return rc;
        }
        if (best->chunks && (best->resident || best->dense ||
                             (size <= p->read_bytes && (best->n_desc >= DESC_GOOD || p->r->ring_slots))))
            break;
    }
    return best->chunks ? 0 : -ENOSPC;
}

static int refuse_plan(const struct planner *p)
{
    char need[32], have[32], kv[32], budget[32];
    struct ntx_kv_shape shape = ntx_kv_shape_for(&p->m->hp, least_ctx(p), NTX_MAX(p->r->sessions, 1u), least_rows(p),
                                                 p->r->kv_all);
    if (ntx_kv_shape_limit(&p->m->hp, p->r->kv_type, p->r->kv_ram, &shape, p->err))
        return p->err->code;
    uint64_t kv_bytes = ntx_kv_shape_bytes(&p->m->hp, p->r->kv_type, &shape);
    if (p->smallest == UINT64_MAX && p->listed)
        return ntx_err_set(p->err, -ENOMEM,
                           "the smallest memory budget that would do is more than %s (%llu bytes), for the lists of "
                           "the model's chunks alone; the "
                           "budget is %s (%llu bytes)",
                           ntx_format_size(p->listed, need, sizeof need), (unsigned long long)p->listed,
                           ntx_format_size(p->r->ram_bytes, have, sizeof have), (unsigned long long)p->r->ram_bytes);
    if (p->smallest == UINT64_MAX)
        return ntx_err_set(p->err, -EOVERFLOW, "a context of %u tokens for %u sessions is more than any memory holds",
                           least_ctx(p), NTX_MAX(p->r->sessions, 1u));
    return ntx_err_set(p->err, -ENOMEM,
                       "the smallest memory budget that would do is %s (%llu bytes), of which a context of %u tokens "
                       "takes %s; the budget is %s "
                       "(%llu bytes): use --ram %s or more, or a smaller --ctx",
                       ntx_format_size(p->smallest, need, sizeof need), (unsigned long long)p->smallest, least_ctx(p),
                       ntx_format_size(kv_bytes, kv, sizeof kv), ntx_format_size(p->r->ram_bytes, have, sizeof have),
                       (unsigned long long)p->r->ram_bytes,
                       ntx_format_exact(NTX_ROUND_UP(p->smallest, 1ull << 20), budget, sizeof budget));
}

/* ---- the rest of the budget */

/* The largest arena within the budget, in whole blocks. */
static uint64_t largest_arena(const struct planner *p, const struct option *o)
{
    struct ntx__shape s = o->shape;
    s.n_desc = o->n_desc;
    s.n_sched = o->sizes.n_matrix;
    s.slot_bytes = o->sizes.slot;
    s.frames = frames_of(o, least_frames(o));
    s.n_windows = windows(o, true);
    ntx__plan_groups(o->chunks, 0, &s.window_bytes);
    uint64_t low = o->sizes.fixed / NTX__BLOCK, high = low + o->sizes.matrix / NTX__BLOCK;
    while (low < high) {
        uint64_t mid = low + (high - low + 1) / 2;
        s.arena_bytes = mid * NTX__BLOCK;
        if (ntx__plan_bill(&s).total <= p->r->ram_bytes)
            low = mid;
        else
            high = mid - 1;
    }
    return low * NTX__BLOCK;
}

static uint32_t most_frames(const struct planner *p, const struct option *o)
{
    uint32_t low = least_frames(o), high = o->sizes.n_bundles;
    while (low < high) {
        uint32_t mid = low + (high - low + 1) / 2;
        if (dense_total(o, mid, 0) <= p->r->ram_bytes)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

/* Thousandths of each layer's groups. */
static uint32_t most_groups(const struct planner *p, const struct option *o)
{
    uint32_t low = 0, high = NTX__ALL;
    while (low < high) {
        uint32_t mid = low + (high - low + 1) / 2;
        if (dense_total(o, least_frames(o), mid) <= p->r->ram_bytes)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

static void sum_placement(const struct ntx_model *m, struct ntx_plan *p)
{
    for (uint32_t i = 0; i < p->chunks->n; i++) {
        uint32_t place = p->table[i].placement;
        if (p->chunks->list[i].lookup)
            continue;
        uint64_t *bytes = &p->bytes_storage;
        if (place == NTX_PLACE_HOST)
            bytes = &p->bytes_host;
        else if (place == NTX_PLACE_DEVICE)
            bytes = &p->bytes_device;
        *bytes += p->table[i].bytes;
    }
    p->bytes_model = p->bytes_host + p->bytes_storage + p->bytes_device;
    p->bytes_rows = p->chunks->lookup_bytes;
    p->bytes_at_load = p->bytes_host + p->bytes_rows;
    uint64_t frames = NTX_MIN(ntx_frames_bytes(&p->frames), p->bytes_storage);
    const uint64_t high = ntx_planes_bytes(m, p->chunks);
    p->bytes_host += frames + high;
    p->bytes_storage -= frames;
    p->bytes_model += high;
}

/* Fills in the plan; the shape shrinks to what the placement uses. */
static void fill_plan(const struct planner *q, struct option *o, struct ntx_plan *p)
{
    struct ntx__shape *s = &o->shape;
    bool frames = !o->resident && o->sizes.n_bundles;
    uint64_t room = o->resident || o->dense ? o->sizes.fixed + o->sizes.matrix : largest_arena(q, o);
    uint32_t kept = 0;
    if (o->resident)
        kept = NTX__ALL;
    else if (o->dense && o->sizes.groups)
        kept = most_groups(q, o);
    ntx__plan_groups(o->chunks, kept, &s->window_bytes);
    s->n_windows = windows(o, !o->dense && !o->resident);
    if (q->r->layers && !o->resident && !o->dense)
        p->n_without = ntx__plan_without(o->chunks, room, p->without);
    s->n_sched = ntx__plan_place(o->chunks, room, frames, kept, p->n_without ? p->without : NULL, p->table, p->sched,
                                 &s->slot_bytes, &s->arena_bytes);
    s->n_desc = s->n_sched ? o->n_desc : 0;
    if (frames)
        s->frames = frames_of(o, o->dense ? most_frames(q, o) : least_frames(o));
    struct ntx__bill b = ntx__plan_bill(s);
    p->geo = ntx__plan_geometry(s);
    p->chunks = o->chunks;
    p->frames = s->frames;
    p->n_windows = s->window_bytes ? s->n_windows : 0;
    p->window_bytes = s->window_bytes;
    p->read_gap = q->r->hw ? ntx_hw_read_gap(q->r->hw) : 0;
    p->ctx = s->ctx;
    p->kv_type = s->kv_type;
    p->kv = ntx__plan_kv(s);
    p->max_rows = s->rows;
    p->threads = s->threads;
    p->chunk_bytes = o->chunk_bytes;
    p->inflight_bytes = NTX__INFLIGHT;
    p->piece_bytes = q->read_bytes;
    p->bytes_kv = b.kv;
    p->bytes_activations = b.activations;
    p->bytes_region = b.region;
    p->bytes_total = b.total;
    p->on_device = q->on_device;
    p->multiply = p->on_device ? q->r->multiply : NTX_MULTIPLY_CPU;
    sum_placement(q->m, p);
    ntx__plan_predict(q->m, q->r->hw, p);
}

/* For this request unchanged: with a GPU that has device_bytes left, or without one. */
static int plan_once(const struct ntx_model *m, const struct ntx_plan_request *r, bool on_device, struct ntx_plan **out,
                     struct ntx_err *err)
{
    struct planner q = {.m = m, .r = r, .err = err, .smallest = UINT64_MAX, .on_device = on_device};
    struct option o;
    q.ctx = r->ctx ? r->ctx : default_ctx(&q);
    q.read_bytes = ntx_hw_read_bytes(r->hw);
    int rc = choose_chunk_size(&q, &o);
    if (rc)
        return rc == -ENOSPC ? refuse_plan(&q) : rc;
    choose_snapshots(&q, &o);
    if ((rc = keep_tables(&q, &o))) {
        ntx_chunks_free(o.chunks);
        return rc;
    }
    struct ntx_plan *p = calloc(1, sizeof *p);
    if (p) {
        p->table = calloc(o.chunks->n, sizeof *p->table);
        p->sched = calloc(o.chunks->n, sizeof *p->sched);
    }
    if (!p || !p->table || !p->sched) {
        ntx_chunks_free(o.chunks);
        ntx_plan_free(p);
        return ntx_err_set(err, -ENOMEM, "no memory for a plan");
    }
    fill_plan(&q, &o, p);
    *out = p;
    return 0;
}

/* ---- clients, and a GPU */

/* The request with what clients take of `ram`; 0: the fewest, and with `constrains` room for a constrained answer. */
static struct ntx_plan_request with_clients(const struct ntx_model *m, const struct ntx_plan_request *r, uint64_t ram,
                                            bool constrains, struct ntx_budget_clients *n)
{
    struct ntx_plan_request q = *r;
    *n = (struct ntx_budget_clients){0};
    if (!r->clients)
        return q;
    *n = ntx_budget_clients(m->hp.n_vocab, r->clients->choosing_bytes, r->clients->least_rows, r->clients->trees, ram);
    if (constrains)
        ntx_budget_constrain(m->hp.n_vocab, n);
    q.other_bytes += n->bytes + n->sessions * r->clients->watched_bytes;
    return q;
}

/* The first plan was made without the GPU: it gives context, rows and chunks. The GPU's remaining memory takes
 * matrices. */
static int plan_gpu(const struct ntx_model *m, struct ntx_plan_request *q, struct ntx_plan **plan, struct ntx_err *err)
{
    struct ntx_plan *first = *plan, *p = NULL;
    const struct ntx_device_config c = {
        .model = m,
        .chunks = first->chunks,
        .table = first->table,
        .max_rows = first->max_rows,
        .ctx = first->ctx,
        .kv = first->kv,
        .logits_rows = NTX_MIN(NTX_MAX(first->clients.logits_rows, 1u), first->max_rows),
        .in_flight = NTX_PLAN_IN_FLIGHT,
        .kv_type = first->kv_type,
        .ffn = q->ffn,
    };
    const uint64_t need = ntx_device_bytes(&c), host = ntx_device_host_bytes(&c);
    first->device_need = need;
    if (need > q->vram_bytes)
        return 0;
    q->device_bytes = q->unified ? 0 : q->vram_bytes - need;
    q->ctx = first->ctx;
    q->max_rows = first->max_rows;
    q->chunk_bytes = first->chunk_bytes;
    if (first->bytes_total + host <= q->ram_bytes || first->geo.n_desc)
        q->other_bytes += host;
    if (q->unified) /* one budget, which has KV already */
        q->other_bytes += need - NTX_MIN(need, first->bytes_kv);
    int rc = plan_once(m, q, true, &p, err);
    if (rc == -ENOMEM && q->unified)
        return 0;
    if (rc)
        return rc;
    p->device_need = need;
    p->clients = first->clients;
    ntx_plan_free(first);
    *plan = p;
    return 0;
}

int ntx_plan_make(const struct ntx_model *m, const struct ntx_plan_request *r, struct ntx_plan **out,
                  struct ntx_err *err)
{
    struct ntx_budget_clients clients;
    struct ntx_plan_request q = with_clients(m, r, r->ram_bytes, false, &clients);
    struct ntx_plan *p = NULL;
    int rc = plan_once(m, &q, r->device_bytes > 0, &p, err);
    if (rc == -ENOMEM && m->delta.base) {
        q.apart = true;
        rc = plan_once(m, &q, r->device_bytes > 0, &p, err);
    }
    if (rc == -ENOMEM && clients.constrains) {
        q = with_clients(m, r, 0, true, &clients);
        q.apart = m->delta.base != NULL;
        rc = plan_once(m, &q, r->device_bytes > 0, &p, err);
    }
    if (rc == -ENOMEM && r->clients) { /* so that the smallest budget in a refusal does not depend on the given one */
        q = with_clients(m, r, 0, false, &clients);
        q.apart = m->delta.base != NULL;
        rc = plan_once(m, &q, r->device_bytes > 0, &p, err);
    }
    if (rc)
        return rc;
    p->clients = clients;
    if (r->vram_bytes)
        rc = plan_gpu(m, &q, &p, err);
    if (rc)
        ntx_plan_free(p);
    else
        *out = p;
    return rc;
}

/* Plans for a budget of 0, with which no size of chunks fits: the search then tries them all, and knows the smallest
 * budget. */
static uint64_t smallest_of(const struct ntx_model *m, const struct ntx_plan_request *r, bool constrains)
{
    struct ntx_budget_clients fewest;
    struct ntx_plan_request none = with_clients(m, r, 0, constrains, &fewest);
    struct ntx_err ignored = {0};
    struct planner q = {.m = m, .r = &none, .err = &ignored, .smallest = UINT64_MAX};
    struct option o;
    none.ram_bytes = 0;
    none.apart = m->delta.base != NULL;
    q.ctx = r->ctx ? r->ctx : default_ctx(&q);
    q.read_bytes = ntx_hw_read_bytes(r->hw);
    return choose_chunk_size(&q, &o) == -ENOSPC ? q.smallest : 0;
}

uint64_t ntx_plan_smallest(const struct ntx_model *m, const struct ntx_plan_request *r)
{
    return smallest_of(m, r, false);
}

uint64_t ntx_plan_constrains_from(const struct ntx_model *m, const struct ntx_plan_request *r)
{
    uint64_t all = smallest_of(m, r, true);
    return all ? NTX_MAX(all, ntx_budget_constrains_from(m->hp.n_vocab)) : 0;
}

void ntx_plan_free(struct ntx_plan *p)
{
    if (!p)
        return;
    ntx_chunks_free(p->chunks);
    free(p->table);
    free(p->sched);
    free(p);
}
