/* SPDX-License-Identifier: Apache-2.0 */
/* service.h: the predictor as a process: attached to computed, linked to computed and iod, one libuv loop, one thread,
 * and with a drafter one more (drafting.h).
 *
 *   region.sock  WELCOME, PEERS, ATTACH, DETACH      -> links and region come and go (service.c)
 *   link cp.P    Hello -> PolicySet -> PolicyState    -> every 100 ms until answered (service.c)
 *                ProbeNotice -> Decision              -> board, policy, fault (decide.c)
 *   link pi.P.I  Hint to iod, which may be absent: nothing waits for it
 *
 * It holds nothing that matters: it can be killed between any two instructions, and its successor is asked again. */
#ifndef NTX_PREDICTOR_SERVICE_H
#define NTX_PREDICTOR_SERVICE_H

#include "common/err.h"

struct ntx_service_config {
    const char *dir; /* runtime directory */
    int alive_fd;    /* its end of file is the end of the supervisor, and of us; -1: none */
};

/* Once, before all else: gives up for good every right that predicting does not need (common/sandbox.h). No byte of
 * others has been looked at by then. */
int ntx_service_lock_in(const char *dir, struct ntx_err *err);

/* Returns when it should end: 0 after SIGTERM, the supervisor's end or computed's, else a negative errno with the
 * reason. */
int ntx_service_run(const struct ntx_service_config *c, struct ntx_err *err);

#endif
