/* SPDX-License-Identifier: Apache-2.0 */
/* web.h: GET requests, one after the other, over libcurl: with ranges; redirects are followed by hand, so that a
 * token stays with its host; and errors that may pass are told from those that will not.
 *
 * Nothing waits for ever: a connection must be made within 20 s, an answer's header must be smaller than 256 KiB,
 * and an answer that brings less than 1 KiB a second for stall_s seconds, or takes longer than its request allows,
 * is broken off (-EAGAIN).
 *
 * HTTP and HTTPS only; HTTPS never leads to HTTP. The part of a URL after '?' (signatures) is in no message. For one
 * thread. */
#ifndef NTX_CLIENT_PULL_WEB_H
#define NTX_CLIENT_PULL_WEB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_WEB_UNKNOWN UINT64_MAX
#define NTX_WEB_URL     2048 /* of a requested URL; those of redirects may be longer */

struct ntx_web;

/* token: NULL for none; it is sent to `home` ("https://host") only, and over HTTP only to this machine. */
int ntx_web_open(const char *home, const char *token, unsigned stall_s, struct ntx_web **out, struct ntx_err *err);
/* Each host, also of redirects, must be one that f allows, and no proxy is asked. Else -EACCES. Borrowed. */
struct ntx_fence;
void ntx_web_fence(struct ntx_web *w, const struct ntx_fence *f);
void ntx_web_close(struct ntx_web *w);

struct ntx_web_answer {
    uint64_t from, size; /* position of its bytes, and size of the whole */
    char etag[200];      /* only strong ones, else "" */
    char sha256[65];     /* of the whole, as the home reports it, in lower case, or "" */
    bool more;           /* a list continues at another URL (Link: rel="next") */
};

struct ntx_web_request {
    const char *url;
    uint64_t from, to; /* to 0: up to the end, else without this byte */
    const char
        *if_range;   /* an ETag: the range is wanted of this version only, else the whole is sent. NULL or "": of any
                      * version */
    unsigned most_s; /* seconds for the whole answer; 0: no limit unless it stalls */
    /* Takes the bytes, in order. Not 0: ends, and ntx_web_get returns it. NULL: only the answer's header is wanted. */
    int (*take)(void *arg, const struct ntx_web_answer *a, const void *p, size_t n);
    void *arg;
};

/* 0: all that was asked for, or more, has come. -EAGAIN: another try may succeed (no connection, it broke, 429,
 * 5xx); -EACCES: 401 or 403; -ENOENT: 404; -ERANGE: nothing follows `from`; the result of take; others. */
int ntx_web_get(struct ntx_web *w, const struct ntx_web_request *q, struct ntx_web_answer *a, struct ntx_err *err);

/* The scheme, host and port of a URL: "https://host:443". false: not an HTTP URL, or one with a name and password. */
bool ntx_web_origin(const char *url, char origin[300]);

#endif
