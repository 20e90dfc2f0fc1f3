/* SPDX-License-Identifier: Apache-2.0 */
/* region_impl.h: what the files of shm/region share. region.c makes and maps, region_check.c knows what a valid region
 * looks like, region_pages.c brings its memory in. */
#ifndef NTX_SHM_REGION_IMPL_H
#define NTX_SHM_REGION_IMPL_H

#include "shm/region.h"

/* Where everything lies in its part: a pure function of the geometry, so that whoever attaches computes it again. */
struct ntx__region_layout {
    uint64_t off_chunks, off_sched;                  /* plan */
    uint64_t off_quarantine, off_pass, off_requests; /* orders */
    uint64_t off_state, off_desc, off_demand;        /* ring */
    uint64_t off_frames, off_arena;                  /* bytes */
    uint64_t bytes[NTX_REGION_PARTS];                /* of each part, not rounded to pages but for the last */
};

/* -EINVAL with the reason for an impossible geometry, -EOVERFLOW when it does not fit 63 bits. */
int ntx__region_layout(const struct ntx_region_geometry *g, struct ntx__region_layout *l, struct ntx_err *err);

/* The header that begins the plan, of a part of plan_bytes, against its own geometry, and the parts' sizes against
 * both. */
int ntx__region_check_header(const struct ntx_region_hdr *h, const struct ntx_segment part[NTX_REGION_PARTS],
                             struct ntx__region_layout *l, struct ntx_err *err);
/* Every entry of the plan table and of the schedule; the header has been checked. */
int ntx__region_check_plan(const struct ntx_region *r, struct ntx_err *err);

/* The tables' memory, and r->pages for the rest. */
int ntx__region_bring_in_front(struct ntx_region *r, struct ntx_err *err);

#endif
