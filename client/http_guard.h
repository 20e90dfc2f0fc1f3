/* SPDX-License-Identifier: Apache-2.0 */
/* http_guard.h: checks that libmicrohttpd lacks, for the programs that serve HTTP with it (a thread a connection).
 *
 * The end of a request must be beyond doubt: if a proxy sees another end than we do, the rest becomes another client's
 * request (RFC 9112, 6.3 and 11.2: request smuggling). libmicrohttpd
 *   - takes the first of two lengths, and prefers chunks to a length;
 *   - reads a body with an unknown transfer coding to the connection's end;
 *   - allows blanks before a header's colon, which make another name;
 *   - appends a folded line to the header's name, and ends a value at a NUL;
 *   - takes LF alone for a line's end, and a header line without a name for the end of the header;
 *   - answers an invalid length with two header blocks;
 *   - closes a connection with unread bytes, so that the client loses the answer. */
#ifndef NTX_CLIENT_HTTP_GUARD_H
#define NTX_CLIENT_HTTP_GUARD_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct ntx_http_guard {
    pthread_key_t socket; /* of the request whose header this thread reads, plus 1 */
};
int ntx_http_guard_init(struct ntx_http_guard *g); /* 0 or a negative errno */
void ntx_http_guard_end(struct ntx_http_guard *g);

/* For MHD_OPTION_URI_LOG_CALLBACK and MHD_OPTION_EXTERNAL_LOGGER (with MHD_USE_ERROR_LOG), with the guard. */
void *ntx_http_guard_uri(void *guard, const char *uri, struct MHD_Connection *c);
void ntx_http_guard_log(void *guard, const char *fmt, va_list ap);

/* method and version are libmicrohttpd's. Returns why a request whose header was read must be refused and its
 * connection ended; NULL: no reason. *unsupported: it is valid, but not supported. */
const char *ntx_http_bad(struct MHD_Connection *c, const char *method, const char *version, bool *unsupported);
bool ntx_http_has_body(struct MHD_Connection *c); /* the header announces a body */

int ntx_http_socket(struct MHD_Connection *c);
/* Sends an answer without libmicrohttpd, where that accepts none any more: its header, text[0..len), and the end of
 * the output. */
void ntx_http_tell(int fd, const char *status, const char *type, const char *text, size_t len);
/* After the last answer: reads and drops the client's input, for at most 2 s and 64 MiB, so that the client can read
 * the answer. */
void ntx_http_linger(int fd);

#endif
