/* SPDX-License-Identifier: Apache-2.0 */
/* supervise.h: starts the three daemons as children and restarts the workers when they die (captive mode, `ntx up`).
 *
 * Children get the read end of a pipe whose write end only this process holds: when this process ends, however it ends,
 * they see end of file and exit. They are in their own process groups, so that Ctrl-C reaches only the client. A thread
 * waits for deaths (pidfds); workers are started again after 20 ms (up to a second where they end before ntx-computed
 * has met them), ntx-computed is not: its end is told through ntx_supervisor_wait and by the closed client socket. The
 * model that it served is kept for the next one (computed/server/keeper.h). */
#ifndef NTX_CLIENT_SUPERVISE_H
#define NTX_CLIENT_SUPERVISE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

#define NTX_SUPERVISOR_DESCRIPTORS                                                                                     \
    (2 * NTX_DAEMON_DESCRIPTORS) /* ntx-computed inherits the limit, and has 32 clients */

struct ntx_supervisor;

/* dir: the runtime directory, existing. quiet: the daemons' warnings and errors are kept in memory (clients are told by
 * replies what concerns them; how computed ended is told with its last line); else they go to stderr. among:
 * ntx-computed joins other machines that mpirun started. The programs are looked for beside this one. */
int ntx_supervisor_start(const char *dir, bool quiet, bool among, struct ntx_supervisor **out, struct ntx_err *err);

/* Whether the three programs are where they are looked for. */
int ntx_supervisor_check(struct ntx_err *err);

/* Where the daemons are quiet: what ntx-computed warned of that names this (a path) is told when they are ended. */
void ntx_supervisor_tell(struct ntx_supervisor *s, const char *about);

/* Ends all three, computed first (SIGTERM each, SIGKILL after 5 s), and reaps them. NULL is fine. */
void ntx_supervisor_stop(struct ntx_supervisor *s);

/* True once ntx-computed is gone; then *how says how ("killed by signal 9", "exit code 111"). */
bool ntx_supervisor_lost(struct ntx_supervisor *s, char *how, size_t n);

/* A worker was refused by ntx-computed for good (another build): then nothing is started any more, ntx-computed is
 * ended once it has had the time to answer, and its end's *how says which worker. */
bool ntx_supervisor_unfit(struct ntx_supervisor *s);

/* An answer was written without ntx-predictor: that is told, once, with how it ended. told: somebody has told it. */
void ntx_supervisor_tell_predictor(struct ntx_supervisor *s, bool told);

/* ntx-computed's process, 0 where none runs. */
pid_t ntx_supervisor_computed(struct ntx_supervisor *s);

/* A descriptor that becomes readable when ntx-computed is gone. */
int ntx_supervisor_fd(const struct ntx_supervisor *s);

/* Starts ntx-computed again after its death (`ntx up`). */
int ntx_supervisor_revive(struct ntx_supervisor *s, struct ntx_err *err);

/* The directory that this program lies in, where the others of the house do, too. */
int ntx_bin_dir(char *buf, size_t n);

#endif
