/* SPDX-License-Identifier: Apache-2.0 */
/* iod_harness.h: a small replacement for ntx-computed (region.sock, region, link and consumer) around a real ntx-iod
 * process. All of it runs in the test's thread; each wait has a deadline and fails the test when it passes. */
#ifndef NTX_TESTS_LIB_IOD_HARNESS_H
#define NTX_TESTS_LIB_IOD_HARNESS_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "proto/attach.h"
#include "proto/link.h"
#include "shm/counters.h"
#include "shm/region.h"

struct harness_shape {
    uint64_t file_bytes;
    uint32_t chunk_bytes; /* the file is cut into chunks of this size; the last is smaller */
    uint32_t host_every;  /* every host_every-th chunk, from 0, is in the arena; 0: none */
    uint32_t n_desc, n_slots, n_demands, frame_bytes;
};

struct harness_config {
    const char *source, *fault;
    double rate_bps;
    uint64_t inflight, piece; /* 0: iod's default */
};

struct harness {
    char dir[64];
    uv_loop_t loop;
    int listener, counters_fd, wake_fd, file_fd;
    struct ntx_counters *counters;
    struct ntx_region region;
    uint64_t seq; /* the next sequence to consume */

    struct harness_config config;
    pid_t pid; /* 0: there is no iod */
    int sock, alive[2], exit_status;
    uint32_t instance;
    struct ntx_link *link;
    bool attached, configured;
    unsigned n_errors, n_notices;
    int err;        /* of the last IodError that is no notice */
    char text[512]; /* of the last IodError */

    int ring_dup; /* duplicate of iod's io_uring, -1 none */
    void *ring_map;
    struct ntx_attach_msg ring; /* the ATTACHED message with the ring */
    char note[256];             /* note of ntx_region_create */
};

/* Makes region and runtime directory. file: a descriptor of the model, taken over (each iod gets a duplicate). */
void harness_open(struct harness *h, const struct harness_shape *s, int file);
void harness_close(struct harness *h);

/* Starts ntx-iod and waits until it is configured. */
void harness_start(struct harness *h, const struct harness_config *c);
/* Runs the loop once; wait_ms: waits that long at most for an event. */
void harness_turn(struct harness *h, int wait_ms);
/* Waits until iod has ended (it must be ending); exit_status as from waitpid. */
void harness_wait_exit(struct harness *h);
bool harness_exited(struct harness *h);
/* computed's work after a death (shm/region.h): quarantine, words back to FREE. Waits until iod has ended. */
void harness_bury(struct harness *h);
/* True when the duplicate of the dead iod's ring shows that all reads that the kernel took are done. */
bool harness_drained(const struct harness *h);
void harness_drop_ring(struct harness *h);
void harness_end_quarantine(struct harness *h);

/* Sends DETACH and waits for DETACHED. */
void harness_detach(struct harness *h);
void harness_attach(struct harness *h); /* again, until configured */

/* Waits until h->seq is READY, FAILED or SKIPPED, or iod has ended (then it returns FILLING). */
enum ntx_state harness_wait_seq(struct harness *h);
/* The bytes of h->seq in its slot; checks its fields first. */
const uint8_t *harness_bytes(struct harness *h, const struct ntx_plan_chunk **chunk);
/* Frees h->seq and goes on to the next. */
void harness_release(struct harness *h);
void harness_wake(struct harness *h);
enum ntx_state harness_wait_word(struct harness *h, _Atomic uint32_t *word, uint32_t state_mask);
/* returns the demand's generation */
uint32_t harness_post(struct harness *h, uint32_t frame, uint64_t offset, uint32_t bytes);

#endif
