/* SPDX-License-Identifier: Apache-2.0 */
/* http_guard.h: what libmicrohttpd lets pass or answers badly, for the programs that serve HTTP with it (a thread a
 * connection).
 *
 * Where a request ends, and whose it is, must be beyond doubt: a proxy before us that sees another end than we do takes
 * what follows for somebody else's request (RFC 9112, 6.3 and 11.2). libmicrohttpd takes the first of two lengths,
 * prefers chunks to a length, reads a body in a coding that it does not know to the connection's end, lets blanks stand
 * before a header's colon, where they make another name of it, appends a folded line to the header's name, ends a value
 * at a NUL, takes LF alone for a line's end, and takes a header line without a name for the end of the header. A length
 * that is no number it answers with two header blocks. And it closes a connection with unread bytes, so that the client
 * loses the answer. */
#ifndef NTX_CLIENT_HTTP_GUARD_H
#define NTX_CLIENT_HTTP_GUARD_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct ntx_http_guard {
    pthread_key_t socket; /* of the request that this thread reads the header of, plus 1 */
};
int ntx_http_guard_init(struct ntx_http_guard *g); /* 0 or a negative errno */
void ntx_http_guard_end(struct ntx_http_guard *g);

/* For MHD_OPTION_URI_LOG_CALLBACK and MHD_OPTION_EXTERNAL_LOGGER (with MHD_USE_ERROR_LOG), with the guard. */
void *ntx_http_guard_uri(void *guard, const char *uri, struct MHD_Connection *c);
void ntx_http_guard_log(void *guard, const char *fmt, va_list ap);

/* method and version are those that libmicrohttpd gave. Why a request whose header is read must be refused, and its
 * connection ended; NULL: it need not. *unsupported: it is right, but not taken. */
const char *ntx_http_bad(struct MHD_Connection *c, const char *method, const char *version, bool *unsupported);
bool ntx_http_has_body(struct MHD_Connection *c); /* its header says that there is one */

int ntx_http_socket(struct MHD_Connection *c);
/* An answer past libmicrohttpd, where that takes none any more: its header, text[0..len), and the end of what is sent.
 * */
void ntx_http_tell(int fd, const char *status, const char *type, const char *text, size_t len);
/* After the last answer: what the client still sends is read and dropped, for 2 s and 64 MiB at most, so that it gets
 * to read the answer. */
void ntx_http_linger(int fd);

#endif
