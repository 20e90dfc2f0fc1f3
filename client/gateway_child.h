/* SPDX-License-Identifier: Apache-2.0 */
/* gateway_child.h: ntx-gateway as a child of `ntx serve`. A child that dies is started again on the same socket,
 * which this process holds: so no connection is refused, at most it waits. The child ends with this process, however
 * that ends. */
#ifndef NTX_CLIENT_GATEWAY_CHILD_H
#define NTX_CLIENT_GATEWAY_CHILD_H

#include <stddef.h>

#include "common/err.h"

struct ntx_gateway_child;

struct ntx_gateway_options { /* borrowed texts from the command line; all except listen may be NULL */
    const char *listen, *key_file, *cors, *hosts, *stable, *stall, *keep, *manage, *manage_key_file, *image_hosts;
    const char *beside[3]; /* runtime directories of further daemons; NULL: no more */
};

/* Binds the address and reads the key before any daemon is started: a port in use, or an address that other machines
 * reach without a key, is refused here. */
int ntx_gateway_child_new(const struct ntx_gateway_options *o, struct ntx_gateway_child **out, struct ntx_err *err);
/* Names the further daemons before it is started. */
void ntx_gateway_child_beside(struct ntx_gateway_child *g, unsigned i, const char *dir);
/* Starts it beside the daemons of dir. SIGINT and SIGTERM are blocked by then: its thread leaves them to the
 * caller's. */
int ntx_gateway_child_start(struct ntx_gateway_child *g, const char *dir, struct ntx_err *err);
/* Its base URL, "http://127.0.0.1:8080", or "unix:/path". */
void ntx_gateway_child_url(const struct ntx_gateway_child *g, char *buf, size_t n);
void ntx_gateway_child_free(struct ntx_gateway_child *g); /* ends it; NULL does nothing */

#endif
