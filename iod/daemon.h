/* SPDX-License-Identifier: Apache-2.0 */
/* daemon.h: the ntx-iod process: one libuv loop and one thread, which sleeps only in the loop.
 *
 *   region.sock   WELCOME, PEERS, ATTACH, DETACH     a region comes and goes (reader.h)
 *   link ci.I     Hello until IodConfig; IodError    to and from computed
 *   link pi.P.I   Hint                               from the predictor, which may be absent
 *   alive pipe, SIGTERM, end of region.sock          finish the reads in flight (at most 10 s) and return
 *
 * All its state can be derived from the region, so it may be killed at any instant. */
#ifndef NTX_IOD_DAEMON_H
#define NTX_IOD_DAEMON_H

#include "common/err.h"
#include "iod/ring.h"

struct ntx_iod_options {
    const char *dir;           /* runtime directory */
    int alive_fd;              /* end of file means that the supervisor has ended, and ends us; -1: none */
    struct ntx_iod_ring *ring; /* NULL: a ring is made for each region */
};

/* Called once, first of all: makes the ring, asks for short time slices, and enters the sandbox (common/sandbox.h). No
 * bytes of others were read before. */
int ntx_iod_sandbox(const char *dir, struct ntx_iod_ring *ring, struct ntx_err *err);

/* Waits up to 10 s for computed, then runs until it is told to end (0) or fails (negative errno, text in err). */
int ntx_iod_run(const struct ntx_iod_options *o, struct ntx_err *err);

#endif
