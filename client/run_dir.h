/* run_dir.h: the runtime directory of a captive pipeline, "ntx-run-XXXXXX" in $XDG_RUNTIME_DIR, $TMPDIR or /tmp: 0700, flat (sockets
 * and the counters' file), gone when `ntx` ends. One that was killed with SIGKILL could not remove its own; the next start does. */
#ifndef NTX_CLIENT_RUN_DIR_H
#define NTX_CLIENT_RUN_DIR_H

#include <stddef.h>

#include "common/err.h"

/* Removes those of the same user's dead runs, then makes one. */
int ntx_run_dir_make(char *dir, size_t n, struct ntx_err *err);
void ntx_run_dir_remove(const char *dir);

#endif
