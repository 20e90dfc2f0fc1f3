/* SPDX-License-Identifier: Apache-2.0 */
/* plan_fit.c: the cost of a set of choices, exactly as the region, the KV pool and the forward pass will take it; and
 * the placement of chunks. */
#include "computed/plan/plan_impl.h"

#include <string.h>

#include "common/util.h"
#include "computed/weights/cache.h"
#include "computed/weights/heat.h"
#include "computed/weights/stage.h"
#include "computed/state/kv.h"
#include "computed/state/prefix.h"
#include "model/planes.h"

#define FRAME_LIST_BYTES 64u /* that computed keeps for a frame */

/* A chunk's read: its range widened to whole blocks. */
static uint64_t wide_bytes(const struct ntx_chunk *c)
{
    return NTX_ROUND_UP(c->offset + c->bytes, NTX__BLOCK) - NTX_ROUND_DOWN(c->offset, NTX__BLOCK);
}

/* Bytes of a slot for it. */
static uint64_t slot_for(const struct ntx_chunk *c)
{
    return NTX_ROUND_UP(c->bytes, NTX__BLOCK) + 2 * NTX__BLOCK; /* for any offset; region.h requires it */
}

/* Slots for reads of a dead iod that may still be in flight: as many as are in flight at once, at least two. */
uint32_t ntx__plan_spares(uint32_t n_desc, uint64_t slot_bytes)
{
    if (!slot_bytes) /* nothing is streamed: all of it is on a GPU */
        return n_desc ? 2 : 0;
    uint64_t inflight = NTX_MIN((uint64_t)NTX__INFLIGHT, n_desc * slot_bytes / 4);
    return n_desc ? (uint32_t)NTX_MAX(inflight / slot_bytes + 1, 2u) : 0;
}

/* An impossible shape is reported once the plan is complete. */
struct ntx_kv_shape ntx__plan_kv(const struct ntx__shape *s)
{
    if (s->kv)
        return *s->kv;
    struct ntx_kv_shape shape = ntx_kv_shape_for(&s->model->hp, s->ctx, s->sessions, s->rows, s->kv_all);
    struct ntx_err ignored = {0};
    ntx_kv_shape_snapshots(&s->model->hp, s->snapshots, &shape);
    (void)ntx_kv_shape_limit(&s->model->hp, s->kv_type, s->kv_ram, &shape, &ignored);
    return shape;
}

static uint32_t count_files(const struct ntx_model *m)
{
    uint32_t n = 1;
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(m->gguf); i++)
        n = NTX_MAX(n, ntx_gguf_tensor_at(m->gguf, i)->file + 1);
    return n;
}

static uint32_t demand_reads(const struct ntx__shape *s)
{
    if (s->frames.n)
        return NTX__BUNDLE_READS;
    return s->window_bytes ? NTX__GROUP_READS : 0;
}

struct ntx_region_geometry ntx__plan_geometry(const struct ntx__shape *s)
{
    return (struct ntx_region_geometry){
        .block = NTX__BLOCK,
        .n_files = count_files(s->model) + (s->stage > 0),
        .n_chunks = s->chunks->n,
        .n_sched = s->n_desc ? s->n_sched : 0,
        .n_desc = s->n_desc,
        .n_slots = s->n_desc + ntx__plan_spares(s->n_desc, s->slot_bytes),
        .n_demands = NTX_MAX(s->rows, s->model->hp.grams.heads) + NTX__SPARE_DEMANDS,
        .n_bundle_demands = demand_reads(s),
        .n_stage_reads = s->stage ? NTX_STAGE_REQUESTS : 0,
        .n_probes = s->rows,
        .n_layers = s->model->hp.n_layers,
        .n_embd = s->model->hp.n_embd,
        .slot_bytes = s->n_desc ? s->slot_bytes : 0,
        .frame_bytes = NTX_ROUND_UP(
            (uint64_t)NTX_MAX(s->chunks->token_embd.row_bytes,
                              NTX_MAX(s->chunks->input_embd.row_bytes, s->chunks->gram_embd.row_bytes)) +
                NTX__BLOCK - 1,
            NTX__BLOCK),
        .arena_bytes = s->arena_bytes + ntx_frames_bytes(&s->frames) + s->n_windows * s->window_bytes,
        .stage_bytes = s->stage,
    };
}

static uint64_t activation_bytes(const struct ntx__shape *s)
{
    const struct ntx_forward_config c = {
        .model = s->model,
        .chunks = s->chunks,
        .threads = s->threads,
        .max_rows = s->rows,
        .ctx = s->ctx,
        .ffn = s->ffn,
        .widths = &s->widths,
    };
    return ntx_forward_bytes(&c);
}

/* The pool, a bit per position and layer for holes, and the prefix store. */
static uint64_t kv_bytes(const struct ntx__shape *s)
{
    const struct ntx_kv_shape kv = ntx__plan_kv(s);
    uint64_t bytes = ntx_kv_shape_bytes(&s->model->hp, s->kv_type, &kv),
             more = s->model->hp.n_layers * (NTX_KV_BLOCK / 8) + 13 + ntx_prefix_block_bytes();
    return bytes == UINT64_MAX || __builtin_add_overflow(bytes, more * ((uint64_t)kv.blocks + kv.window_blocks), &bytes)
               ? UINT64_MAX
               : bytes;
}

struct ntx__bill ntx__plan_bill(const struct ntx__shape *s)
{
    struct ntx_region_geometry g = ntx__plan_geometry(s);
    uint64_t lists = (uint64_t)s->chunks->n * NTX__LIST_BYTES;
    if (s->frames.n) /* and for frames: stream_experts.c */
        lists += ntx_cache_bytes(s->chunks->n_layers * s->chunks->n_expert, s->frames.n) +
                 ntx_heat_bytes(s->chunks->n_layers * s->chunks->n_expert) + (uint64_t)s->frames.n * FRAME_LIST_BYTES;
    if (s->window_bytes) /* stream_groups.c: a word for each group of a window, a list, and the reads */
        lists += s->window_bytes / NTX_PACK_BLOCK * (s->n_windows + 3) * sizeof(uint32_t) + NTX__GROUP_READS * 16;
    struct ntx__bill b = {
        .region = ntx_region_bytes(&g), .kv = kv_bytes(s), .activations = activation_bytes(s), .other = lists};
    bool over = !b.region;
    over |= __builtin_add_overflow(b.other, s->other, &b.other);
    over |= __builtin_add_overflow(b.other, ntx_planes_bytes(s->model, s->chunks), &b.other);
    over |= __builtin_add_overflow(b.region, b.kv, &b.total);
    over |= __builtin_add_overflow(b.total, b.activations, &b.total);
    over |= __builtin_add_overflow(b.total, b.other, &b.total);
    if (over)
        b.total = UINT64_MAX;
    return b;
}

/* Experts and groups on demand are not read in a fixed order, so they are never scheduled. */
static bool is_unscheduled(const struct ntx_chunk *c) { return c->fixed || c->expert || c->on_demand; }

/* Resident chunks of a layer's groups. */
static uint32_t kept_of(const struct ntx_weight *groups, uint32_t kept)
{
    return (uint32_t)((uint64_t)groups->n_chunks * kept / NTX__ALL);
}

static bool kept_group(const struct ntx_chunks *c, uint32_t i, uint32_t kept)
{
    const struct ntx_weight *w = ntx_read_groups(&c->layers[c->list[i].layer]);
    return i - w->chunk0 < kept_of(w, kept);
}

uint64_t ntx__plan_groups(const struct ntx_chunks *c, uint32_t kept, uint64_t *window)
{
    uint64_t stay = 0, most = 0;
    for (uint32_t i = 0; i < c->n;) {
        uint32_t layer = c->list[i].layer;
        uint64_t rest = 0;
        for (; i < c->n && c->list[i].layer == layer; i++)
            if (c->list[i].on_demand && !c->list[i].device)
                *(kept_group(c, i, kept) ? &stay : &rest) += wide_bytes(&c->list[i]);
        most = NTX_MAX(most, rest);
    }
    *window = most;
    return stay;
}

/* The first chunk, from i on, of a bundle that is not on the device; c->n: none. */
static uint32_t next_bundle(const struct ntx_chunks *c, uint32_t i)
{
    while (i < c->n && (!c->list[i].expert || c->list[i].device))
        i++;
    return i;
}

/* The three parts of a bundle are neighbours in the list. */
static uint64_t bundle_bytes(const struct ntx_chunks *c, uint32_t i)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < NTX_EXPERT_PARTS; p++)
        bytes += wide_bytes(&c->list[i + p]);
    return bytes;
}

static void size_experts(const struct ntx_chunks *c, struct ntx__sizes *s)
{
    for (uint32_t i = next_bundle(c, 0); i < c->n; i = next_bundle(c, i + NTX_EXPERT_PARTS)) {
        s->experts += bundle_bytes(c, i);
        s->n_bundles++;
    }
}

struct ntx_frames ntx__plan_classes(const struct ntx_chunks *c, uint32_t n_classes)
{
    uint64_t most[NTX_MAX_LAYERS] = {0};
    struct ntx_frames f;
    for (uint32_t i = next_bundle(c, 0); i < c->n; i = next_bundle(c, i + NTX_EXPERT_PARTS))
        most[c->list[i].layer] = NTX_MAX(most[c->list[i].layer], bundle_bytes(c, i));
    ntx_frames_sort(&f, most, c->n_layers, c->n_expert, n_classes);
    return f;
}

static bool is_group(const struct ntx_chunks *c, const struct ntx_chunk *k)
{
    return k->layer < c->n_layers &&
           (c->layers[k->layer].groups.tensor == k->tensor || c->layers[k->layer].groups_added.tensor == k->tensor);
}

/* Marks matrices of the output, or of the layers in turn, until one does not fit. Returns the bytes left. */
static uint64_t device_matrices(struct ntx_chunks *c, bool output, uint64_t bytes, uint64_t extra)
{
    for (uint32_t i = 0; i < c->n; i++) {
        struct ntx_chunk *k = &c->list[i];
        if (is_unscheduled(k) || is_group(c, k) || (k->layer == c->n_layers) != output)
            continue;
        k->device = k->bytes + extra <= bytes;
        if (!k->device)
            break;
        bytes -= k->bytes + extra;
    }
    return bytes;
}

/* Marks all of these chunks, or none. */
static uint64_t device_bundle(struct ntx_chunks *c, uint32_t first, uint32_t n, uint64_t bytes, uint64_t extra)
{
    uint64_t all = 0;
    for (uint32_t i = first; i < first + n; i++)
        all += c->list[i].bytes + extra;
    if (all > bytes)
        return bytes;
    for (uint32_t i = first; i < first + n; i++)
        c->list[i].device = true;
    return bytes - all;
}

/* First what every row of decoding needs: the output, then all but experts and groups of neurons. A layer's experts are
 * all on the device or none, so that none is requested; likewise its groups, whose values are added in one order. */
void ntx__plan_device(struct ntx_chunks *c, uint64_t bytes, uint64_t extra)
{
    bytes = device_matrices(c, true, bytes, extra);
    bytes = device_matrices(c, false, bytes, extra);
    for (uint32_t layer = 0; layer < c->n_layers; layer++) {
        const struct ntx_layer_weights *w = &c->layers[layer];
        if (w->expert[NTX_EXPERT_GATE].tensor != NTX_NO_TENSOR)
            bytes = device_bundle(c, w->expert[NTX_EXPERT_GATE].chunk0, c->n_expert * NTX_EXPERT_PARTS, bytes, extra);
        if (w->groups.tensor != NTX_NO_TENSOR && !w->pack.down_rows) /* the CPU alone multiplies rows of groups */
            bytes = device_bundle(c, w->groups.chunk0, w->groups.n_chunks, bytes, extra);
    }
}

static uint64_t *size_for(struct ntx__sizes *s, const struct ntx_chunk *c)
{
    if (c->fixed)
        return &s->fixed;
    return c->on_demand ? &s->groups : &s->matrix;
}

struct ntx__sizes ntx__plan_sizes(const struct ntx_chunks *c)
{
    struct ntx__sizes s = {0};
    size_experts(c, &s);
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->list[i].device)
            continue;
        if (!c->list[i].expert)
            *size_for(&s, &c->list[i]) += wide_bytes(&c->list[i]);
        if (is_unscheduled(&c->list[i]))
            continue;
        s.slot = NTX_MAX(s.slot, slot_for(&c->list[i]));
        s.n_matrix++;
    }
    return s;
}

/* ---- layers that draft */

static bool has_bit(const uint64_t *bits, uint32_t layer) { return bits[layer / 64] >> layer % 64 & 1; }

/* n of the layers, evenly over the half of them that is missed least (docs/log/drafts.md): reads in several places keep
 * the drive busier than one run of layers. */
static void spread_layers(uint32_t n_layers, uint32_t n, uint64_t *out)
{
    const uint32_t first = n_layers / 7, span = NTX_MAX(n_layers / 2, n);
    memset(out, 0, NTX_MAX_LAYERS / 8);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t layer = first + (2 * i + 1) * span / (2 * n);
        out[layer / 64] |= 1ull << layer % 64;
    }
}

uint32_t ntx__plan_without(const struct ntx_chunks *c, uint64_t arena_bytes, uint64_t *without)
{
    const struct ntx__sizes all = ntx__plan_sizes(c);
    const uint64_t room = arena_bytes - all.fixed, most = c->n_layers * 2ull / 3;
    uint64_t streamed = 0;
    for (uint32_t n = 1; n <= most && room < all.matrix; n++, streamed = 0) {
        spread_layers(c->n_layers, n, without);
        for (uint32_t i = 0; i < c->n; i++)
            if (!is_unscheduled(&c->list[i]) && c->list[i].layer < c->n_layers && has_bit(without, c->list[i].layer))
                streamed += wide_bytes(&c->list[i]);
        if (streamed >= all.matrix - room)
            return n;
    }
    memset(without, 0, NTX_MAX_LAYERS / 8);
    return 0;
}

/* Whether a chunk is one of those that may be scheduled. */
static bool may_stream(const struct ntx_chunk *k, const uint64_t *without, uint32_t n_layers)
{
    return !is_unscheduled(k) && (!without || (k->layer < n_layers && has_bit(without, k->layer)));
}

/* Bytes of such chunks. */
static uint64_t may_stream_bytes(const struct ntx_chunks *c, const uint64_t *without)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n; i++)
        bytes += !c->list[i].device && may_stream(&c->list[i], without, c->n_layers) ? wide_bytes(&c->list[i]) : 0;
    return bytes;
}

/* A chunk becomes resident if the share of bytes that may be resident, of all bytes up to and with this chunk, leaves
 * room for it. So at any point of the list the bytes streamed so far are within a chunk of their fair share. */
uint32_t ntx__plan_place(const struct ntx_chunks *c, uint64_t arena_bytes, bool frames, uint32_t kept_groups,
                         const uint64_t *without, struct ntx_plan_chunk *table, uint32_t *sched, uint64_t *slot,
                         uint64_t *arena)
{
    const struct ntx__sizes all = ntx__plan_sizes(c);
    const uint64_t some = without ? may_stream_bytes(c, without) : all.matrix,
                   room = NTX_MIN(arena_bytes - all.fixed, all.matrix) - (all.matrix - some);
    uint64_t seen = 0, kept = 0, used = 0, most = 0;
    uint32_t n_sched = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct ntx_chunk *k = &c->list[i];
        uint64_t wide = wide_bytes(k);
        table[i] = (struct ntx_plan_chunk){.offset = k->offset, .bytes = k->bytes, .file = k->file, .layer = k->layer};
        if (k->device) {
            table[i].placement = NTX_PLACE_DEVICE;
            continue;
        }
        if ((k->expert && frames) || (k->on_demand && !kept_group(c, i, kept_groups))) {
            table[i].placement = NTX_PLACE_FRAME;
            continue;
        }
        const bool streams = may_stream(k, without, c->n_layers);
        seen += streams ? wide : 0;
        if (!streams || kept + wide <= (uint64_t)((unsigned __int128)room * seen / some)) {
            kept += streams ? wide : 0;
            table[i].placement = NTX_PLACE_HOST;
            table[i].where = used + k->offset % NTX__BLOCK;
            used += wide;
            continue;
        }
        table[i].placement = NTX_PLACE_STORAGE;
        table[i].sched = n_sched;
        sched[n_sched++] = i;
        most = NTX_MAX(most, slot_for(k));
    }
    *slot = most;
    *arena = used;
    return n_sched;
}
