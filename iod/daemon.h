/* SPDX-License-Identifier: Apache-2.0 */
/* daemon.h: ntx-iod as a process: one libuv loop, one thread of ours, asleep nowhere else.
 *
 *   region.sock   WELCOME, PEERS, ATTACH, DETACH    the region comes and goes (reader.h)
 *   link ci.I     Hello until IodConfig; IodError    to and from computed
 *   link pi.P.I   Hint                               from the predictor, which may be absent
 *   alive pipe, SIGTERM, end of region.sock          finish the reads under way (at most 10 s), and return
 *
 * It holds nothing that cannot be had again from the region: it may be killed between any two instructions. */
#ifndef NTX_IOD_DAEMON_H
#define NTX_IOD_DAEMON_H

#include "common/err.h"
#include "iod/ring.h"

struct ntx_iod_options {
    const char *dir;           /* runtime directory */
    int alive_fd;              /* its end of file is the end of the supervisor, and of us; -1: none */
    struct ntx_iod_ring *ring; /* NULL: each region gets one of its own */
};

/* Once, before all else: makes the ring, asks for short slices of processor time, and gives up for good every right
 * that reading does not need (common/sandbox.h). No byte of others has been looked at by then. */
int ntx_iod_lock_in(const char *dir, struct ntx_iod_ring *ring, struct ntx_err *err);

/* Waits up to 10 s for computed, then runs until told to end (0), or until something is wrong (negative errno, text in
 * err). */
int ntx_iod_run(const struct ntx_iod_options *o, struct ntx_err *err);

#endif
