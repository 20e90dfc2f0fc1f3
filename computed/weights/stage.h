/* SPDX-License-Identifier: Apache-2.0 */
/* stage.h: reads for a second consumer, the encode of a picture (shm/region.h, THE STAGE). A pass of it lists its reads
 * in their order of use. ntx-iod makes them in that order, as soon as they are allowed: when nothing that is still used
 * lies at their places.
 *
 *   begin(list)   allow(n)...   wait(n)...   end
 *
 * One pass at a time. Any thread; begin and end by one. A pass ends with an error when a read has failed for good, when
 * ntx-iod does not come back, or when it is unwanted. A death of ntx-iod ends none: the next one reads again. Then no
 * further read begins before those of the dead one are proved finished, since they may still come. */
#ifndef NTX_COMPUTED_WEIGHTS_STAGE_H
#define NTX_COMPUTED_WEIGHTS_STAGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_STAGE_REQUESTS 64u /* of a region with a stage; so many reads wait for ntx-iod at most */

struct ntx_stage;
struct ntx_stream;

struct ntx_stage_read {
    uint64_t offset; /* in the file */
    uint32_t bytes;
    uint64_t at; /* place of the first byte in the stage, congruent to offset modulo the region's block */
};

struct ntx_stage_pass {
    uint32_t file; /* of the region */
    const struct ntx_stage_read *reads;
    uint32_t n;
    const atomic_bool *unwanted; /* may be NULL */
};

struct ntx_stage *ntx_stream_stage(struct ntx_stream *s); /* NULL: the region has none. It lives as long as s */
uint8_t *ntx_stage_memory(const struct ntx_stage *g);
/* Waits for what is left of the pass before. `reads` must stay until end. */
int ntx_stage_begin(struct ntx_stage *g, const struct ntx_stage_pass *p, struct ntx_err *err);
/* The first n reads of the list may be made. */
void ntx_stage_allow(struct ntx_stage *g, uint32_t n);
/* Waits until the first n reads are done. -ECANCELED: unwanted. After a failure, all callers get the same errno. */
int ntx_stage_wait(struct ntx_stage *g, uint32_t n, struct ntx_err *err);
/* Cancels the reads that are left. */
void ntx_stage_end(struct ntx_stage *g);

#endif
