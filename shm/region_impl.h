/* region_impl.h: what the files of shm/region share. region.c makes and maps, region_check.c knows what a valid region looks like,
 * region_pages.c brings its memory in. */
#ifndef NTX_SHM_REGION_IMPL_H
#define NTX_SHM_REGION_IMPL_H

#include "shm/region.h"

/* Where everything lies: a pure function of the geometry, so that whoever attaches can compute it again and compare. */
struct ntx__region_layout {
    uint64_t off_chunks, off_sched, off_state, off_desc, off_taint, off_pass, off_demand, off_probe, off_probe_data;
    uint64_t front_end; /* end of the tables; up to off_slots nothing is ever touched */
    uint64_t off_slots, off_frames, off_arena;
    uint64_t bytes;
};

/* -EINVAL with the reason for an impossible geometry, -EOVERFLOW when it does not fit 63 bits. */
int ntx__region_layout(const struct ntx_region_geometry *g, struct ntx__region_layout *l, struct ntx_err *err);

/* Header against its own geometry and the size of the file. */
int ntx__region_check_header(const struct ntx_region_hdr *h, uint64_t file_bytes, struct ntx_err *err);
/* Every entry of the plan table and of the schedule; the header has been checked. */
int ntx__region_check_plan(const struct ntx_region *r, struct ntx_err *err);

/* The tables' memory, and r->pages for the rest. */
int ntx__region_bring_in_front(struct ntx_region *r, uint64_t front_end, struct ntx_err *err);

#endif
