/* SPDX-License-Identifier: Apache-2.0 */
/* Quarantined slots on a throttled drive: after kill -9, reads still land in the dead iod's slots while its successor
 * fills others. The test checks that bytes change there after the death, that none of them reaches a consumed chunk,
 * and that nothing changes once the dead ring shows as many completions as submissions. It needs root and a cgroup that
 * throttles the drive (slow_drive.h); else it is skipped. */
#include <signal.h>
#include <unistd.h>

#include "common/util.h"
#include "temp.h"
#include "tests/lib/check.h"
#include "tests/lib/iod_harness.h"
#include "tests/lib/patient.h"
#include "tests/lib/slow_drive.h"

#define RATE 41943040u
#define MARK 0xa5

static const struct harness_shape shape = {.file_bytes = 16 * 1048576 + 4321,
                                           .chunk_bytes = 1048576,
                                           .n_desc = 4,
                                           .n_slots = 16,
                                           .n_demands = 1,
                                           .frame_bytes = 8192};

static struct slow_drive slow;
static void leave(void) { slow_drive_leave(&slow); }

static void consume_good(struct harness *h)
{
    const struct ntx_plan_chunk *p;
    CHECK_EQ(harness_wait_seq(h), NTX_READY);
    const uint8_t *bytes = harness_bytes(h, &p);
    CHECK(temp_same(bytes, p->offset, p->bytes));
    harness_release(h);
}

static void mark_quarantined(struct harness *h)
{
    for (uint32_t i = 0; i < shape.n_slots; i++)
        if (h->region.quarantine[i])
            memset(ntx_region_slot(&h->region, i), MARK, h->region.hdr->slot_bytes);
}

/* Bytes in quarantined slots that differ from MARK. */
static uint64_t count_landed(struct harness *h)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < shape.n_slots; i++)
        for (uint64_t k = 0; h->region.quarantine[i] && k < h->region.hdr->slot_bytes; k++)
            n += ntx_region_slot(&h->region, i)[k] != MARK;
    return n;
}

/* Kills iod once. Returns the bytes that landed after its death. */
static uint64_t die_once(struct harness *h)
{
    kill(h->pid, SIGKILL);
    harness_bury(h);
    struct harness dead = *h; /* keeps its ring until all its reads are done */
    h->ring_map = NULL;
    h->ring_dup = -1;
    mark_quarantined(h);
    harness_start(h, &h->config);
    consume_good(h);
    for (uint64_t until = ntx_now_ns() + patient_ns(20000000000ull); !harness_drained(&dead);)
        CHECK(ntx_now_ns() < until);
    uint64_t n = count_landed(h);
    consume_good(h);
    CHECK_EQ(count_landed(h), n);
    harness_drop_ring(&dead);
    harness_end_quarantine(h);
    return n;
}

int main(void)
{
    struct harness h;
    int file = temp_file(NULL, shape.file_bytes);
    if (!slow_drive_make(&slow, file, RATE))
        SKIP("needs " SLOW_DRIVE_NEEDS);
    atexit(leave);
    if (!slow_drive_enter(&slow))
        SKIP("cannot enter %s", slow.group);
    harness_open(&h, &shape, file);
    harness_start(&h, &(struct harness_config){.inflight = 3 << 20, .piece = 512 << 10});
    uint64_t bytes = 0;
    if (!h.ring_map) {
        harness_close(&h);
        SKIP("no io_uring here");
    }
    for (unsigned k = 0; k < 8; k++) {
        consume_good(&h);
        bytes += die_once(&h);
    }
    harness_close(&h);
    printf("%llu bytes landed after their process had ended, none of them in a chunk\n", (unsigned long long)bytes);
    if (!bytes)
        SKIP("the throttle did not take: no read outlived its process");
    return 0;
}
