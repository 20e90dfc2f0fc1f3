/* SPDX-License-Identifier: Apache-2.0 */
/* service.h: the predictor process: attached to computed, linked to computed and iod; one libuv loop and one thread,
 * and one more for each drafter (drafting.h).
 *
 *   region.sock  WELCOME, PEERS, ATTACH, DETACH      links and the board come and go (service.c)
 *   link cp.P    Hello -> PolicySet -> PolicyState   repeated every 100 ms until answered (service.c)
 *                ProbeNotice -> Decision             board, policy, fault (decide.c)
 *   link pi.P.I  Hint to iod, which may be absent; no process waits for it
 *
 * It has no state that matters: it can be killed at any instant, and computed asks its successor again. */
#ifndef NTX_PREDICTOR_SERVICE_H
#define NTX_PREDICTOR_SERVICE_H

#include "common/err.h"

struct ntx_service_config {
    const char *dir; /* runtime directory */
    int alive_fd;    /* end of file means that the supervisor has ended, and ends us; -1: none */
};

/* Called once, first of all: enters the sandbox (common/sandbox.h). No bytes of others were read before. */
int ntx_service_lock_in(const char *dir, struct ntx_err *err);

/* Returns when the process is to end: 0 after SIGTERM, the supervisor's end or computed's, else a negative errno with
 * the reason. */
int ntx_service_run(const struct ntx_service_config *c, struct ntx_err *err);

#endif
