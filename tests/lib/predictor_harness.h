/* SPDX-License-Identifier: Apache-2.0 */
/* predictor_harness.h: a replacement for ntx-computed: region, attach socket, link; and iod's end of the hints. A test
 * calls harness_start, then talks. Each wait has a deadline and fails the test when it passes. */
#ifndef NTX_TESTS_LIB_PREDICTOR_HARNESS_H
#define NTX_TESTS_LIB_PREDICTOR_HARNESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "proto/attach.h"
#include "proto/link.h"
#include "shm/counters.h"
#include "shm/region.h"

#define HARNESS_EPOCH  21
#define HARNESS_LAYERS 8

struct harness_decision {
    uint32_t index, gen, row;
    uint64_t pass, skip, at_ns;
};

struct harness {
    char dir[64];
    uv_loop_t loop;
    int listener, sock, counters_fd, wake_fd, alive[2];
    struct ntx_counters *counters;
    struct ntx_region region;
    struct ntx_link *link, *iod;
    char pair[128]; /* the socket that the predictor bound for iod; empty: none */
    pid_t pid;
    uint32_t instance;
    int sidecar;       /* set before harness_attach: the policy's sidecar; -1 none */
    const char *model; /* set before harness_policy: the digest that the sidecar has */

    unsigned hellos, states, decisions, hints;
    char build[64], policy[64], error[256];
    bool skips;
    uint32_t probe_layer;
    struct harness_decision decision[64]; /* in order of arrival */
    uint64_t hint_pass, hint_skip;
};

/* Makes directory, region (8 layers of width 32) and listening socket; starts no predictor. */
void harness_start(struct harness *h);
void harness_start_for(struct harness *h, uint32_t n_layers, uint32_t n_embd);
/* Starts the program; waits for its HELLO and sends WELCOME. The instance grows. */
void harness_spawn(struct harness *h);
void harness_attach(struct harness *h); /* sends ATTACH and waits for ATTACHED */
/* Waits for Hello, sends PolicySet, and waits for PolicyState. */
void harness_policy(struct harness *h, const char *policy, const char *fault);
void harness_peers(struct harness *h, uint32_t iod_instance);
/* Puts a probe on the board, without a message. */
void harness_show(struct harness *h, uint32_t index, uint32_t gen, uint64_t pass, uint32_t row);
void harness_notice(struct harness *h, uint32_t index, uint32_t gen, uint64_t pass);
/* Runs the loop until *count is `want`. */
void harness_wait(struct harness *h, const unsigned *count, unsigned want);
void harness_run(struct harness *h, unsigned ms);               /* for tests that no more messages come */
bool harness_recv(struct harness *h, struct ntx_attach_msg *m); /* false: end of file */
/* Waits for the predictor's end (caused elsewhere), closes its link and socket, and returns waitpid's status. */
int harness_reap(struct harness *h);
void harness_end(struct harness *h);

#endif
