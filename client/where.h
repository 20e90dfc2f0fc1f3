/* SPDX-License-Identifier: Apache-2.0 */
/* where.h: which daemons a command means when nobody says so: $NTX_RUNTIME's if that is set; else those of `ntx up`,
 * else the service's, and for commands that only look, else a private `ntx run` of the same user. Daemons are there
 * when their socket can be connected to. */
#ifndef NTX_CLIENT_WHERE_H
#define NTX_CLIENT_WHERE_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/err.h"

#define NTX_SERVICE_DIR "/run/ntx"

struct ntx_where {
    char dir[200]; /* the runtime directory */
    pid_t run;     /* of the private `ntx run` that it belongs to, else 0 */
};

/* looks: a private run will do. -ENOENT when no daemons run; w->dir is then where the first would be looked for. -EBUSY
 * when there are several private runs: the text lists them. */
int ntx_where(bool looks, struct ntx_where *w, struct ntx_err *err);
/* Somebody listens in this runtime directory. When in doubt, yes: who may not look at it is to be told that. */
bool ntx_where_answers(const char *dir);

#endif
