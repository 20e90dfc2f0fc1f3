/* SPDX-License-Identifier: Apache-2.0 */
/* region_impl.h: shared by the files of shm/region. region.c makes and maps, region_check.c validates, region_pages.c
 * populates the memory. */
#ifndef NTX_SHM_REGION_IMPL_H
#define NTX_SHM_REGION_IMPL_H

#include "shm/region.h"

/* Offsets in each part: a pure function of the geometry, so that a process that attaches computes them again. */
struct ntx__region_layout {
    uint64_t off_chunks, off_sched;                  /* plan */
    uint64_t off_quarantine, off_pass, off_requests; /* control page */
    uint64_t off_state, off_desc, off_demand;        /* ring */
    uint64_t off_frames, off_arena, off_stage;       /* bytes */
    uint64_t bytes[NTX_REGION_PARTS];                /* of each part; only the last is rounded to pages */
};

/* -EINVAL with the reason for an invalid geometry, -EOVERFLOW when a part would be too large. */
int ntx__region_layout(const struct ntx_region_geometry *g, struct ntx__region_layout *l, struct ntx_err *err);

/* Checks the header at the start of the plan part against its own geometry, and the parts' sizes against both. */
int ntx__region_check_header(const struct ntx_region_hdr *h, const struct ntx_segment part[NTX_REGION_PARTS],
                             struct ntx__region_layout *l, struct ntx_err *err);
/* Checks every entry of the plan table and of the schedule. The header must have been checked. */
int ntx__region_check_plan(const struct ntx_region *r, struct ntx_err *err);

/* Populates the tables' memory, and advises huge pages for the bytes part. */
int ntx__region_bring_in_front(struct ntx_region *r, struct ntx_err *err);

#endif
