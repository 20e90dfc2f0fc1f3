/* SPDX-License-Identifier: Apache-2.0 */
/* listen.h: the address of a program that serves HTTP: "127.0.0.1:8080", "[::1]:8080" or "unix:/path". Numbers only:
 * no name is looked up. */
#ifndef NTX_CLIENT_LISTEN_H
#define NTX_CLIENT_LISTEN_H

#include <stdbool.h>

#include "common/err.h"

/* Returns a listening socket (non-blocking, close-on-exec), or a negative errno: -EINVAL for an invalid address (the
 * text names `like` as an example), -EADDRINUSE when another program listens there. A unix socket is made with mode
 * 0660 and replaces a socket file that nobody serves. */
int ntx_listen(const char *where, const char *like, struct ntx_err *err);
int ntx_listen_check(const char *where, const char *like, struct ntx_err *err); /* the address only; 0 or -EINVAL */
void ntx_listen_end(const char *where); /* after the socket was closed: removes a unix socket's path */

/* Whether only processes of this machine can connect to the address. */
bool ntx_listen_is_local(const char *where);

/* Whether a request's Host header (HOST or HOST:PORT) is localhost or a loopback address. With DNS rebinding, a web
 * page binds its own name to 127.0.0.1, and sends that name. */
bool ntx_host_is_local(const char *host);
bool ntx_host_is(const char *host, const char *name); /* whether host is this name, with any port */

/* How long a client may stall: seconds from 1 to NTX_STALL_MOST. */
#define NTX_STALL_MOST 3600
bool ntx_stall_read(const char *text, unsigned *seconds);

#endif
