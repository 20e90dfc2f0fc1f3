/* SPDX-License-Identifier: Apache-2.0 */
/* fence.h: which hosts an HTTP client may ask for others, so that nobody reaches this machine's own network through it
 * (server-side request forgery). A host is allowed by a pattern of the operator's:
 *
 *   example.org        this name, at ports 80 and 443
 *   *.example.org      names below it, likewise
 *   example.org:8443   at this port
 *   192.0.2.7:8000     an address, also a private one, since the operator wrote it
 *   *                  all names, at ports 80 and 443
 *
 * A name must have public addresses: those of the connection itself are looked at, not of an earlier look-up. */
#ifndef NTX_COMMON_FENCE_H
#define NTX_COMMON_FENCE_H

#include <stdbool.h>
#include <sys/socket.h>

struct ntx_fence {
    const char *const *pattern; /* [n] */
    unsigned n;
};

bool ntx_fence_is_pattern(const char *text);
/* origin: "https://host:443", as ntx_web_origin writes it. *address: the host is an address that a pattern names. */
bool ntx_fence_allows(const struct ntx_fence *f, const char *origin, bool *address);
/* Not of this machine, of a private network, of several machines, or without a meaning of its own (RFC 6890). */
bool ntx_fence_is_public(const struct sockaddr *a);

#endif
