/* SPDX-License-Identifier: Apache-2.0 */
/* fake_iod.h: a thread that acts as iod on a region made by make_region. It knows only shm/region.h, keeps several
 * fills under way, finishes them in random order, and can be killed with fills under way, whose bytes land later (as by
 * DMA). */
#ifndef NTX_TESTS_UNIT_WEIGHTS_FAKE_IOD_H
#define NTX_TESTS_UNIT_WEIGHTS_FAKE_IOD_H

#include <pthread.h>

#include "tests/unit/shm/make_region.h"

#define FAKE_DEPTH 3

struct fill { /* bytes under way */
    uint32_t file;
    uint64_t offset, bytes;
    uint8_t *to; /* place of the first exact byte */
    _Atomic uint32_t *word;
    uint32_t gen;
    uint32_t chunk; /* UINT32_MAX: a read request */
    uint32_t ticks; /* left before it lands */
    struct ntx_desc *desc;
    struct ntx_demand *demand;
};

struct fake_iod {
    /* set before fake_start */
    struct ntx_region *r;
    int wake_fd;
    uint64_t seed;
    uint32_t max_ticks;   /* slowness of a fill */
    uint32_t fail_chunk;  /* fails with EIO, once; UINT32_MAX none */
    bool fail_demand;     /* the next one fails with EIO, once */
    uint32_t wrong_chunk; /* is delivered under another number, once */
    bool skips_nothing;   /* is too late for every drop */

    /* afterwards */
    _Atomic bool killed;
    _Atomic uint64_t read_chunks, wakes, sleeps;
    struct fill under_way[FAKE_DEPTH];
    uint32_t n_under_way;
    pthread_t thread;
};

void fake_start(struct fake_iod *f);
/* Stops between two steps, at any point; joins. Fills under way stay in under_way. */
void fake_kill(struct fake_iod *f);
/* The old reads land now. all: also into the arena and frames, where the same bytes may be in use already. */
void fake_land(struct fake_iod *dead, bool all);

#endif
