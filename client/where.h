/* SPDX-License-Identifier: Apache-2.0 */
/* where.h: finds the daemons of a command without --socket: those of $NTX_RUNTIME if it is set; else those of `ntx
 * up`, else the service's, and for commands that only read, else a private `ntx run` of the same user. Daemons exist
 * if their socket accepts a connection. */
#ifndef NTX_CLIENT_WHERE_H
#define NTX_CLIENT_WHERE_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/err.h"

#define NTX_SERVICE_DIR "/run/ntx"

struct ntx_where {
    char dir[200]; /* the runtime directory */
    pid_t run;     /* pid of the private `ntx run` that it belongs to, else 0 */
};

/* looks: a private run will do. -ENOENT: no daemons run; w->dir is then the first place searched. -EBUSY: several
 * private runs, which the text lists. */
int ntx_where(bool looks, struct ntx_where *w, struct ntx_err *err);
/* Whether daemons listen in this runtime directory. When in doubt, yes: without permission, connecting reports the
 * reason. */
bool ntx_where_answers(const char *dir);

#endif
