/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/region.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "common/util.h"
#include "shm/memlimit.h"
#include "shm/region_impl.h"

static const struct {
    const char *name;
    enum ntx_segment_use use;
    uint64_t align;
} parts[NTX_REGION_PARTS] = {
    [NTX_REGION_PLAN] = {"ntx-plan", NTX_SEGMENT_CONSTANT, 0},
    [NTX_REGION_CONTROL] = {"ntx-control", NTX_SEGMENT_OWNED, 0},
    [NTX_REGION_RING] = {"ntx-ring", NTX_SEGMENT_SHARED, 0},
    [NTX_REGION_BYTES] = {"ntx-bytes", NTX_SEGMENT_SHARED, NTX_HUGE},
};

/* The plan counts twice: as a part, and as the creator's own copy. */
static uint64_t total_bytes(const struct ntx__region_layout *l, const struct ntx_region_geometry *g)
{
    const uint64_t page = ntx_page_bytes();
    uint64_t board = ntx_board_bytes(g->n_probes, g->n_layers, g->n_embd),
             sum = NTX_ROUND_UP(l->bytes[NTX_REGION_PLAN], page) + NTX_ROUND_UP(board, page);
    for (int i = 0; i < NTX_REGION_PARTS; i++)
        sum += NTX_ROUND_UP(l->bytes[i], page); /* each is below 2^62 >> 3 (region_check.c) */
    return board ? sum : 0;
}

uint64_t ntx_region_bytes(const struct ntx_region_geometry *g)
{
    struct ntx__region_layout l;
    return ntx__region_layout(g, &l, NULL) ? 0 : total_bytes(&l, g);
}

static void set_pointers(struct ntx_region *r, const struct ntx__region_layout *l, uint8_t *plan)
{
    uint8_t *control = r->part[NTX_REGION_CONTROL].at, *ring = r->part[NTX_REGION_RING].at;
    r->hdr = (struct ntx_region_hdr *)plan;
    r->chunks = (struct ntx_plan_chunk *)(plan + l->off_chunks);
    r->sched = (uint32_t *)(plan + l->off_sched);
    r->control = (struct ntx_control_page *)control;
    r->quarantine = (_Atomic uint32_t *)(control + l->off_quarantine);
    r->pass_map = (struct ntx_pass_map *)(control + l->off_pass);
    r->request = (struct ntx_read_request *)(control + l->off_requests);
    r->ring = (struct ntx_ring *)ring;
    r->state = (_Atomic uint32_t *)(ring + l->off_state);
    r->desc = (struct ntx_desc *)(ring + l->off_desc);
    r->demand = (struct ntx_demand *)(ring + l->off_demand);
    r->base = r->part[NTX_REGION_BYTES].at;
    r->bytes = r->part[NTX_REGION_BYTES].bytes;
}

static void write_header(struct ntx_region_hdr *h, const struct ntx_region_geometry *g,
                         const struct ntx__region_layout *l)
{
    *h = (struct ntx_region_hdr){
        .magic = NTX_REGION_MAGIC,
        .version = NTX_REGION_VERSION,
        .hdr_bytes = sizeof *h,
        .epoch = g->epoch,
        .bytes = l->bytes[NTX_REGION_BYTES],
        .block = g->block,
        .n_files = g->n_files,
        .n_chunks = g->n_chunks,
        .n_sched = g->n_sched,
        .n_desc = g->n_desc,
        .n_slots = g->n_slots,
        .n_demands = g->n_demands,
        .n_bundle_demands = g->n_bundle_demands,
        .n_stage_reads = g->n_stage_reads,
        .n_layers = g->n_layers,
        .slot_bytes = g->slot_bytes,
        .frame_bytes = g->frame_bytes,
        .arena_bytes = g->arena_bytes,
        .stage_bytes = g->stage_bytes,
        .off_frames = l->off_frames,
        .off_arena = l->off_arena,
        .off_stage = l->off_stage,
    };
}

static int check_room(uint64_t bytes, struct ntx_err *err)
{
    struct ntx_memlimit m;
    char want[32], have[32];
    ntx_memlimit_read(&m);
    if (bytes <= m.available)
        return 0;
    return ntx_err_set(err, -ENOMEM,
                       "the shared region takes %s (%llu bytes), but only %s (%llu bytes) of memory can be had (%s); "
                       "use --ram with at most that",
                       ntx_format_size(bytes, want, sizeof want), (unsigned long long)bytes,
                       ntx_format_size(m.available, have, sizeof have), (unsigned long long)m.available,
                       m.cgroup_left < m.mem_available ? "the limit of the memory cgroup"
                                                       : "MemAvailable of this machine");
}

/* The creator's copy of the plan, in private pages. */
static int own_plan(struct ntx_region *r, uint64_t bytes, struct ntx_err *err)
{
    r->own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    r->own_bytes = bytes;
    if (r->own != MAP_FAILED)
        return 0;
    r->own = NULL;
    return ntx_err_set(err, -errno, "no memory for a plan of %llu bytes: %s", (unsigned long long)bytes,
                       strerror(errno));
}

static const struct ntx_region empty = {.part = {NTX_NO_SEGMENT, NTX_NO_SEGMENT, NTX_NO_SEGMENT, NTX_NO_SEGMENT},
                                        .board = {.part = NTX_NO_SEGMENT}};

int ntx_region_begin(const struct ntx_region_geometry *g, struct ntx_region *out, struct ntx_err *err)
{
    struct ntx__region_layout l;
    struct ntx_region r = empty;
    int rc = ntx__region_layout(g, &l, err);
    if (rc || (rc = check_room(total_bytes(&l, g), err)))
        return rc;
    if ((rc = own_plan(&r, l.bytes[NTX_REGION_PLAN], err)))
        return rc;
    for (int i = NTX_REGION_PLAN + 1; !rc && i < NTX_REGION_PARTS; i++)
        rc = ntx_segment_make(parts[i].name, l.bytes[i], parts[i].use, parts[i].align, NULL, &r.part[i], err);
    if (!rc)
        rc = ntx_board_make(g->epoch, g->n_probes, g->n_layers, g->n_embd, &r.board, err);
    if (rc)
        goto fail;
    write_header(r.own, g, &l);
    set_pointers(&r, &l, r.own);
    if ((rc = ntx__region_bring_in_front(&r, err)))
        goto fail;
    for (int i = 0; i < NTX_PASS_MAPS; i++)
        atomic_store_explicit(&r.pass_map[i].pass, UINT64_MAX, memory_order_relaxed);
    *out = r;
    return 0;
fail:
    ntx_region_close(&r);
    return rc;
}

int ntx_region_create(const struct ntx_region_geometry *g, struct ntx_region *out, char *note, size_t note_len,
                      struct ntx_err *err)
{
    struct ntx_region r;
    int rc = ntx_region_begin(g, &r, err);
    if (rc)
        return rc;
    if ((rc = ntx_region_bring_in(&r, r.bytes, err))) {
        ntx_region_close(&r);
        return rc;
    }
    ntx_region_settle(&r, note, note_len);
    *out = r;
    return 0;
}

int ntx_region_publish(struct ntx_region *r, struct ntx_err *err)
{
    struct ntx_segment p, *old = &r->part[NTX_REGION_PLAN];
    int rc = ntx_segment_make(parts[NTX_REGION_PLAN].name, r->own_bytes, NTX_SEGMENT_CONSTANT, 0, r->own, &p, err);
    if (rc)
        return rc;
    ntx_segment_close(old);
    *old = p;
    return 0;
}

int ntx_region_attach(const int fd[NTX_REGION_PARTS], struct ntx_region *out, struct ntx_err *err)
{
    struct ntx__region_layout l;
    struct ntx_region r = empty;
    int rc = 0, other;
    for (int i = 0; i < NTX_REGION_PARTS; i++) {
        /* after an error too, since all descriptors are taken over */
        other = ntx_segment_take(fd[i], parts[i].use, parts[i].align, &r.part[i], rc ? NULL : err);
        rc = rc ? rc : other;
    }
    if (!rc)
        rc = ntx__region_check_header((const struct ntx_region_hdr *)r.part[NTX_REGION_PLAN].at, r.part, &l, err);
    if (rc)
        goto fail;
    set_pointers(&r, &l, r.part[NTX_REGION_PLAN].at);
    if ((rc = ntx__region_check_plan(&r, err)))
        goto fail;
    *out = r;
    return 0;
fail:
    ntx_region_close(&r);
    return rc;
}

void ntx_region_close(struct ntx_region *r)
{
    for (int i = 0; i < NTX_REGION_PARTS; i++)
        ntx_segment_close(&r->part[i]);
    ntx_board_close(&r->board);
    if (r->own)
        munmap(r->own, r->own_bytes);
    *r = empty;
}
