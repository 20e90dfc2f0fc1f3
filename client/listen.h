/* SPDX-License-Identifier: Apache-2.0 */
/* listen.h: where a program that serves HTTP listens: "127.0.0.1:8080", "[::1]:8080" or "unix:/path". Numbers only, so
 * that no name is looked up. */
#ifndef NTX_CLIENT_LISTEN_H
#define NTX_CLIENT_LISTEN_H

#include <stdbool.h>

#include "common/err.h"

/* A socket that listens (non-blocking, close-on-exec), or a negative errno: -EINVAL when `where` is no such address
 * (the text names `like`, which is one), -EADDRINUSE when somebody else serves there. A unix socket is made 0660, in
 * place of one that nobody serves any more. */
int ntx_listen(const char *where, const char *like, struct ntx_err *err);
void ntx_listen_end(const char *where); /* after the socket was closed: a unix socket's path goes */

/* Whether only this machine's processes reach what listens there. */
bool ntx_listen_is_local(const char *where);

/* Whether a request's Host header (HOST or HOST:PORT) names this machine to itself: localhost or a loopback address. A
 * page of a name that was bound to 127.0.0.1 for the purpose (DNS rebinding) sends its own name there. */
bool ntx_host_is_local(const char *host);
bool ntx_host_is(const char *host, const char *name); /* whether it names this one, whatever the port */

/* How long a client may take nothing: seconds from 1 to NTX_STALL_MOST. */
#define NTX_STALL_MOST 3600
bool ntx_stall_read(const char *text, unsigned *seconds);

#endif
