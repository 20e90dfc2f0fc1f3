/* SPDX-License-Identifier: Apache-2.0 */
/* region_check.c: validates a region. An attached region may hold anything: no value is used before it was checked
 * here, and all arithmetic is checked for overflow. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/util.h"
#include "shm/region_impl.h"

#define LIMIT ((uint64_t)1 << 59) /* bytes of a part, so that sums of parts do not overflow */

/* A cursor over a part. `over` stays set after an overflow. */
struct cursor {
    uint64_t at;
    bool over;
};

static uint64_t place_array(struct cursor *c, uint64_t align, uint64_t count, uint64_t size)
{
    uint64_t start, len, end;
    c->over |= __builtin_add_overflow(c->at, align - 1, &start);
    start = start / align * align;
    c->over |= __builtin_mul_overflow(count, size, &len);
    c->over |= __builtin_add_overflow(start, len, &end) || end > LIMIT;
    c->at = end;
    return start;
}

static int check_geometry(const struct ntx_region_geometry *g, struct ntx_err *err)
{
    const char *bad = NULL;
    if (g->block < 512 || g->block > 65536 || (g->block & (g->block - 1)))
        bad = "block is no power of two from 512 to 65536";
    else if (g->n_files < 1 || g->n_files > NTX_MAX_FILES)
        bad = "n_files is not 1 to 100";
    else if (g->n_layers < 1 || NTX_END_OF_LAST(g->n_layers) >= NTX_MAP_WORDS * 64)
        bad = "n_layers is not 1 to 574";
    else if (g->n_sched > g->n_chunks)
        bad = "more chunks are scheduled than there are";
    else if (g->n_sched && (!g->n_desc || !g->slot_bytes))
        bad = "a schedule but no ring";
    else if ((uint64_t)g->n_demands + g->n_bundle_demands + g->n_stage_reads > UINT32_MAX)
        bad = "too many demands";
    else if (g->n_slots < g->n_desc)
        bad = "fewer slots than descriptors";
    else if (g->slot_bytes % g->block || g->frame_bytes % g->block || g->arena_bytes % g->block ||
             g->stage_bytes % g->block)
        bad = "slots, frames, arena or stage are no multiple of block";
    else if (g->slot_bytes > UINT32_MAX || g->frame_bytes > UINT32_MAX)
        bad = "a slot or frame of 4 GiB or more";
    return bad ? ntx_err_set(err, -EINVAL, "shared region: %s", bad) : 0;
}

int ntx__region_layout(const struct ntx_region_geometry *g, struct ntx__region_layout *l, struct ntx_err *err)
{
    int rc = check_geometry(g, err);
    if (rc)
        return rc;
    uint64_t page = NTX_MAX(g->block, 4096u), demands = (uint64_t)g->n_demands + g->n_bundle_demands + g->n_stage_reads;
    struct cursor plan = {sizeof(struct ntx_region_hdr), false}, control = {sizeof(struct ntx_control_page), false},
                  ring = {sizeof(struct ntx_ring), false}, bytes = {0, false};
    l->off_chunks = place_array(&plan, 64, g->n_chunks, sizeof(struct ntx_plan_chunk));
    l->off_sched = place_array(&plan, 64, g->n_sched, sizeof(uint32_t));
    l->off_quarantine = place_array(&control, 64, g->n_slots, sizeof(uint32_t));
    l->off_pass = place_array(&control, 128, NTX_PASS_MAPS, sizeof(struct ntx_pass_map));
    l->off_requests = place_array(&control, 64, demands, sizeof(struct ntx_read_request));
    l->off_state = place_array(&ring, 64, g->n_chunks, sizeof(uint32_t));
    l->off_desc = place_array(&ring, 64, g->n_desc, sizeof(struct ntx_desc));
    l->off_demand = place_array(&ring, 64, demands, sizeof(struct ntx_demand));
    place_array(&bytes, 1, g->n_slots, g->slot_bytes);
    l->off_frames = place_array(&bytes, page, g->n_demands, g->frame_bytes);
    l->off_arena = place_array(&bytes, page, 1, g->arena_bytes);
    l->off_stage = place_array(&bytes, page, 1, g->stage_bytes);
    place_array(&bytes, NTX_HUGE, !bytes.at, NTX_HUGE); /* the part is never empty */
    l->bytes[NTX_REGION_PLAN] = plan.at;
    l->bytes[NTX_REGION_CONTROL] = control.at;
    l->bytes[NTX_REGION_RING] = ring.at;
    l->bytes[NTX_REGION_BYTES] = bytes.at;
    if (plan.over || control.over || ring.over || bytes.over || !ntx_board_bytes(g->n_probes, g->n_layers, g->n_embd))
        return ntx_err_set(err, -EOVERFLOW, "shared region: its parts together overflow");
    return 0;
}

int ntx__region_check_header(const struct ntx_region_hdr *h, const struct ntx_segment part[NTX_REGION_PARTS],
                             struct ntx__region_layout *l, struct ntx_err *err)
{
    if (h->magic != NTX_REGION_MAGIC)
        return ntx_err_set(err, -EINVAL, "shared region: wrong magic %#" PRIx64 "; this is no region of ntx", h->magic);
    if (h->version != NTX_REGION_VERSION || h->hdr_bytes != sizeof *h)
        return ntx_err_set(err, -EPROTO,
                           "shared region: version %u with a header of %u bytes, expected %u and %zu; the daemons are "
                           "of different versions",
                           h->version, h->hdr_bytes, NTX_REGION_VERSION, sizeof *h);
    struct ntx_region_geometry g = {
        .block = h->block,
        .n_files = h->n_files,
        .n_chunks = h->n_chunks,
        .n_sched = h->n_sched,
        .n_desc = h->n_desc,
        .n_slots = h->n_slots,
        .n_demands = h->n_demands,
        .n_bundle_demands = h->n_bundle_demands,
        .n_stage_reads = h->n_stage_reads,
        .n_layers = h->n_layers,
        .slot_bytes = h->slot_bytes,
        .frame_bytes = h->frame_bytes,
        .arena_bytes = h->arena_bytes,
        .stage_bytes = h->stage_bytes,
        .epoch = h->epoch,
    };
    int rc = ntx__region_layout(&g, l, err);
    if (rc)
        return rc;
    const struct {
        const char *name;
        uint64_t is, want;
    } f[] = {
        {"bytes", h->bytes, l->bytes[NTX_REGION_BYTES]},
        {"off_frames", h->off_frames, l->off_frames},
        {"off_arena", h->off_arena, l->off_arena},
        {"off_stage", h->off_stage, l->off_stage},
        {"size of the plan", part[NTX_REGION_PLAN].bytes, NTX_ROUND_UP(l->bytes[NTX_REGION_PLAN], ntx_page_bytes())},
        {"size of the control page", part[NTX_REGION_CONTROL].bytes,
         NTX_ROUND_UP(l->bytes[NTX_REGION_CONTROL], ntx_page_bytes())},
        {"size of the ring", part[NTX_REGION_RING].bytes, NTX_ROUND_UP(l->bytes[NTX_REGION_RING], ntx_page_bytes())},
        {"size of the bytes", part[NTX_REGION_BYTES].bytes, l->bytes[NTX_REGION_BYTES]},
    };
    for (size_t i = 0; i < sizeof f / sizeof *f; i++)
        if (f[i].is != f[i].want)
            return ntx_err_set(err, -EINVAL, "shared region: %s is %" PRIu64 ", expected %" PRIu64, f[i].name, f[i].is,
                               f[i].want);
    return 0;
}

/* Reads are widened to whole blocks, so the widened range must fit. */
static const char *check_host(const struct ntx_region_hdr *h, const struct ntx_plan_chunk *c)
{
    uint64_t head = c->offset % h->block, end;
    if (c->where % h->block != head)
        return "place and offset are not congruent modulo block";
    if (c->where < h->off_arena || c->where - head < h->off_arena)
        return "begins before the arena";
    if (__builtin_add_overflow(c->where, c->bytes, &end) || end > h->off_arena + h->arena_bytes ||
        NTX_ROUND_UP(end, (uint64_t)h->block) > h->off_arena + h->arena_bytes)
        return "ends behind the arena";
    return NULL;
}

static const char *check_streamed(const struct ntx_region *r, const struct ntx_plan_chunk *c, uint32_t i)
{
    const struct ntx_region_hdr *h = r->hdr;
    if (c->bytes > h->slot_bytes || h->slot_bytes - c->bytes < 2 * (uint64_t)h->block)
        return "is bigger than a slot";
    if (c->sched >= h->n_sched || r->sched[c->sched] != i)
        return "is not where the schedule has it";
    return NULL;
}

static const char *check_chunk(const struct ntx_region *r, uint32_t i)
{
    const struct ntx_region_hdr *h = r->hdr;
    const struct ntx_plan_chunk *c = &r->chunks[i];
    uint64_t end;
    if (c->file >= h->n_files)
        return "names a file that is not there";
    if (!c->bytes || __builtin_add_overflow(c->offset, c->bytes, &end) || end > h->file_bytes[c->file])
        return "lies outside its file";
    if (c->layer > NTX_END_OF_LAST(h->n_layers) && c->layer != NTX_NEVER_DROPPED)
        return "names a layer that is not there";
    switch (c->placement) {
    case NTX_PLACE_STORAGE: return check_streamed(r, c, i);
    case NTX_PLACE_HOST: return check_host(h, c);
    case NTX_PLACE_DEVICE:
    case NTX_PLACE_FRAME: return NULL;
    default: return "has an unknown placement";
    }
}

int ntx__region_check_plan(const struct ntx_region *r, struct ntx_err *err)
{
    const struct ntx_region_hdr *h = r->hdr;
    uint32_t streamed = 0;
    for (uint32_t i = 0; i < h->n_files; i++)
        if (h->file_bytes[i] > LIMIT)
            return ntx_err_set(err, -EINVAL, "shared region: file %u has an impossible size", i);
    for (uint32_t i = 0; i < h->n_chunks; i++) {
        const char *bad = check_chunk(r, i);
        if (bad)
            return ntx_err_set(err, -EINVAL, "shared region: chunk %u %s", i, bad);
        streamed += r->chunks[i].placement == NTX_PLACE_STORAGE;
    }
    if (streamed != h->n_sched) /* each streamed chunk is at its index, so equal counts make the mapping one to one */
        return ntx_err_set(err, -EINVAL, "shared region: %u chunks are streamed, but the schedule has %u", streamed,
                           h->n_sched);
    return 0;
}
