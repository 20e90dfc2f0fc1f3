/* SPDX-License-Identifier: Apache-2.0 */
/* web.h: one GET after the other, over libcurl: ranges, redirects that are followed by hand so that a token stays with
 * the host that it is for, and failures told apart: those that pass by, and those that do not.
 *
 * Nothing waits for ever: a connection must be there within 20 s, an answer's header must be smaller than 256 KiB,
 * an answer that brings less than 1 KiB a second for stall_s seconds is broken off (-EAGAIN), and so is one that
 * takes longer than its ask allows.
 *
 * HTTP and HTTPS alone; from HTTPS nothing leads to HTTP. What an address carries behind its '?' (signatures) is in no
 * message. A thread's own. */
#ifndef NTX_CLIENT_PULL_WEB_H
#define NTX_CLIENT_PULL_WEB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_WEB_UNKNOWN UINT64_MAX
#define NTX_WEB_URL     2048 /* of an address that is asked for; those of redirects may be longer */

struct ntx_web;

/* token: NULL for none; it goes to `home` ("https://host") only, and over HTTP only where that is this machine. */
int ntx_web_open(const char *home, const char *token, unsigned stall_s, struct ntx_web **out, struct ntx_err *err);
void ntx_web_close(struct ntx_web *w);

struct ntx_web_answer {
    uint64_t from, size; /* where its bytes begin, and how many the whole has */
    char etag[200];      /* strong ones only, else "" */
    char sha256[65];     /* as the home tells it of the whole, in lower case, or "" */
    bool more;           /* a list goes on at another address (Link: rel="next") */
};

struct ntx_web_ask {
    const char *url;
    uint64_t from, to; /* to 0: to its end, else without this byte */
    const char
        *if_range;   /* an ETag: a part is wanted of this version only, else all of it is sent. NULL or "": of any */
    unsigned most_s; /* seconds for all of it; 0: as long as it does not stall */
    /* Bytes, in their order. Not 0: no more, and that is what ntx_web_get returns. NULL: only the answer's header is
     * wanted. */
    int (*take)(void *arg, const struct ntx_web_answer *a, const void *p, size_t n);
    void *arg;
};

/* 0: all that was asked for, or more of it, has come. -EAGAIN: it may go another time (no connection, it broke, 429,
 * 5xx); -EACCES: 401 or 403; -ENOENT: 404; -ERANGE: there is nothing behind `from`; what take gave; others. */
int ntx_web_get(struct ntx_web *w, const struct ntx_web_ask *q, struct ntx_web_answer *a, struct ntx_err *err);

/* The scheme, host and port of an address: "https://host:443". false: it is none, or none of HTTP's, or has a name and
 * password in it. */
bool ntx_web_origin(const char *url, char origin[300]);

#endif
