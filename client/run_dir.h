/* SPDX-License-Identifier: Apache-2.0 */
/* run_dir.h: the runtime directory of a private pipeline, "ntx-run-XXXXXX" in $XDG_RUNTIME_DIR, $TMPDIR or /tmp: mode
 * 0700, flat, removed when `ntx` ends. After SIGKILL, the next start removes it.
 *
 *   ntx-run-XXXXXX/.ntx-run                 the mark: made with the directory, and locked (flock) while its `ntx` lives
 *                  ntx.sock, region.sock    and the other sockets of the daemons
 *                  counters
 *
 * A directory without the mark is not ours, whatever its name, and is never touched. In one with the mark exactly these
 * names are removed, and then the directory if it is empty. */
#ifndef NTX_CLIENT_RUN_DIR_H
#define NTX_CLIENT_RUN_DIR_H

#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

/* Removes directories of the same user's dead runs, then makes one. *mark: the locked mark; keep it open until the
 * run is over. */
int ntx_run_dir_make(char *dir, size_t n, int *mark, struct ntx_err *err);
/* Call after the daemons have ended. Closes mark. */
void ntx_run_dir_remove(const char *dir, int mark);

/* Calls see(dir, pid of its `ntx`, arg) for each live run of the same user in the places that this environment
 * names. */
void ntx_run_dir_living(void (*see)(const char *dir, pid_t pid, void *arg), void *arg);

#endif
