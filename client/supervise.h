/* SPDX-License-Identifier: Apache-2.0 */
/* supervise.h: starts the three daemons as children and restarts the workers when they die (private mode, `ntx up`).
 *
 * Children get the read end of a pipe whose write end only this process holds: when this process ends, for any reason,
 * they see end of file and exit. They are in their own process groups, so that Ctrl-C reaches only the client. A thread
 * waits for deaths (pidfds). Workers are started again after 20 ms (up to a second while they end before ntx-computed
 * has met them). ntx-computed is not: ntx_supervisor_lost and the closed client socket report its end. Its model is
 * kept for the next one (computed/server/keeper.h). */
#ifndef NTX_CLIENT_SUPERVISE_H
#define NTX_CLIENT_SUPERVISE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

#define NTX_SUPERVISOR_DESCRIPTORS                                                                                     \
    (2 * NTX_DAEMON_DESCRIPTORS) /* ntx-computed inherits the limit, and has 32 clients */

struct ntx_supervisor;

/* dir: the existing runtime directory. quiet: the daemons' warnings and errors stay in memory (replies inform the
 * clients; the end of ntx-computed is reported with its last line); else they go to stderr. among: ntx-computed
 * joins other machines that mpirun started. The programs are expected beside this one. */
int ntx_supervisor_start(const char *dir, bool quiet, bool among, struct ntx_supervisor **out, struct ntx_err *err);

/* Checks that the three programs exist in the expected place. */
int ntx_supervisor_check(struct ntx_err *err);

/* With quiet daemons: at the end, print ntx-computed's warnings that name `about` (a path). */
void ntx_supervisor_tell(struct ntx_supervisor *s, const char *about);

/* Ends all three, ntx-computed first (SIGTERM each, SIGKILL after 5 s), and reaps them. NULL does nothing. */
void ntx_supervisor_stop(struct ntx_supervisor *s);

/* True once ntx-computed is gone; *how then describes its end ("killed by signal 9", "exit code 111"). */
bool ntx_supervisor_lost(struct ntx_supervisor *s, char *how, size_t n);

/* ntx-computed refused a worker for good (another build): nothing is started any more, ntx-computed is ended after
 * it had the time to answer, and *how of its end names the worker. */
bool ntx_supervisor_unfit(struct ntx_supervisor *s);

/* Reports once that an answer was written without ntx-predictor, and how that ended. told: already reported. */
void ntx_supervisor_tell_predictor(struct ntx_supervisor *s, bool told);

/* Process id of ntx-computed, 0 if it does not run. */
pid_t ntx_supervisor_computed(struct ntx_supervisor *s);

/* A descriptor that becomes readable when ntx-computed is gone. */
int ntx_supervisor_fd(const struct ntx_supervisor *s);

/* Starts ntx-computed again after its end (`ntx up`). */
int ntx_supervisor_revive(struct ntx_supervisor *s, struct ntx_err *err);

/* The directory of this program and the other ntx programs. */
int ntx_bin_dir(char *buf, size_t n);

#endif
