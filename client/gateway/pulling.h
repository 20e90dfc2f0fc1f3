/* SPDX-License-Identifier: Apache-2.0 */
/* pulling.h: `ntx pull` as a child process, for /api/pull. The gateway itself connects to nobody: names, checks and
 * places are those of the command, which reports its steps as JSON lines (client/commands/pull.c). */
#ifndef NTX_CLIENT_GATEWAY_PULLING_H
#define NTX_CLIENT_GATEWAY_PULLING_H

#include <jansson.h>
#include <sys/types.h>

#include "client/gateway/buf.h"
#include "common/err.h"

struct ntx_pulling {
    pid_t pid;
    int fd; /* its output */
    struct ntx_buf in;
    size_t at;     /* of the next line */
    bool is_ended; /* no more output comes */
};

/* name: of the hub, or a short one; it may not begin with '-'. */
int ntx_pulling_start(const char *name, struct ntx_pulling *p, struct ntx_err *err);
/* Its next step: *out, free with json_decref; NULL at the end. -ETIMEDOUT after timeout_ms; -ECANCELED: the client of
 * client_fd is gone; -ESHUTDOWN: quit_fd is readable. */
int ntx_pulling_next(struct ntx_pulling *p, int client_fd, int quit_fd, int timeout_ms, json_t **out);
/* Ends the process if it still runs; what it has fetched stays, and the next pull goes on with it. */
void ntx_pulling_end(struct ntx_pulling *p);

#endif
