/* SPDX-License-Identifier: Apache-2.0 */
#include "client/http_guard.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "common/util.h"

enum { LINGER_MS = 2000, LINE_BYTES = 32 << 10 };
#define LINGER_BYTES (64u << 20)

int ntx_http_socket(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    return i ? i->connect_fd : -1;
}

/* ---- invalid lengths */

int ntx_http_guard_init(struct ntx_http_guard *g) { return -pthread_key_create(&g->socket, NULL); }
void ntx_http_guard_end(struct ntx_http_guard *g) { pthread_key_delete(g->socket); }

void *ntx_http_guard_uri(void *guard, const char *uri, struct MHD_Connection *c)
{
    struct ntx_http_guard *g = guard;
    (void)uri;
    pthread_setspecific(g->socket, (void *)(intptr_t)(ntx_http_socket(c) + 1));
    return NULL; /* the state of the request */
}

/* libmicrohttpd logs before it answers; the bytes that it then sends are lost. */
void ntx_http_guard_log(void *guard, const char *fmt, va_list ap)
{
    static const char text[] = "the Content-Length header is no number that is taken\n";
    struct ntx_http_guard *g = guard;
    int fd = (int)(intptr_t)pthread_getspecific(g->socket) - 1;
    (void)ap;
    if (fd < 0 || !strstr(fmt, "Content-Length"))
        return;
    pthread_setspecific(g->socket, NULL);
    ntx_http_tell(fd, strstr(fmt, "large") ? "413 Content Too Large" : "400 Bad Request", "text/plain; charset=utf-8",
                  text, sizeof text - 1);
}

/* ---- ambiguous headers */

struct header {
    unsigned lengths, codings, hosts, origins, bearers, keys;
    bool unknown, packed, bad, nameless, misnamed, control, folded, bare_lf;
    const char *end; /* of the value before this header, or of the request line */
};

static bool is_token(const char *s)
{
    const char *p = s;
    while (*p > ' ' && *p < 127 && !strchr("\"(),/:;<=>?@[\\]{}", *p))
        p++;
    return p > s && !*p;
}

static bool is_number(const char *s) { return *s && !s[strspn(s, "0123456789")]; }

static bool has_control(const char *s)
{
    for (; *s; s++)
        if (((unsigned char)*s < ' ' && *s != '\t') || *s == 127)
            return true;
    return false;
}

/* For a folded line (obsolete since RFC 7230) the library makes a longer name, stored elsewhere. Normally the value
 * follows its name. */
static bool is_folded(const char *name, const char *value) { return value && (uintptr_t)value < (uintptr_t)name; }

/* A value ends at its first NUL: the bytes up to the next header must be a line's end. */
static bool has_rest(const char *end, const char *name)
{
    if (!end || (uintptr_t)name <= (uintptr_t)end || (uintptr_t)name - (uintptr_t)end > LINE_BYTES)
        return false;
    for (; end < name; end++)
        if (*end && !strchr(" \t\r\n", *end))
            return true;
    return false;
}

/* The library replaced each CR and LF by a NUL, in place. */
static bool is_bare_lf(const char *end, const char *name) { return end && (uintptr_t)name - (uintptr_t)end == 1; }

/* Why the header's last line, which ends at `end`, and the empty line after it are not lines; NULL: they are. */
static const char *wrong_end(struct MHD_Connection *c, const char *method, const char *end)
{
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (!i || !end || end < method || i->header_size < (size_t)(end - method) || i->header_size > LINE_BYTES)
        return NULL;
    size_t n = i->header_size - (size_t)(end - method);
    if (n < 4)
        return "a line ends by LF alone: each must end by CR and LF";
    return n > 4 && !end[1] && !end[2] ? "a header line has no name" : NULL;
}

static enum MHD_Result check_header(void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct header *f = arg;
    (void)kind;
    f->folded |= is_folded(name, value);
    f->control |= has_rest(f->end, name);
    f->bare_lf |= is_bare_lf(f->end, name);
    f->end = value && !is_folded(name, value) ? value + strlen(value) : NULL;
    value = value ? value : "";
    f->nameless |= !*name;
    f->misnamed |= *name && !is_token(name);
    f->control |= has_control(value);
    if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
        f->lengths++;
        f->bad |= !is_number(value);
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
        f->codings++;
        f->unknown |= strcasecmp(value, "chunked");
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_ENCODING)) {
        f->packed |= *value && strcasecmp(value, "identity");
    }
    f->hosts += !strcasecmp(name, MHD_HTTP_HEADER_HOST);
    f->origins += !strcasecmp(name, MHD_HTTP_HEADER_ORIGIN);
    f->bearers += !strcasecmp(name, MHD_HTTP_HEADER_AUTHORIZATION);
    f->keys += !strcasecmp(name, "x-api-key");
    return MHD_YES;
}

const char *ntx_http_bad(struct MHD_Connection *c, const char *method, const char *version, bool *unsupported)
{
    struct header f = {.end = version + strlen(version)};
    bool old = !strcmp(version, MHD_HTTP_VERSION_1_0);
    MHD_get_connection_values(c, MHD_HEADER_KIND, check_header, &f);
    *unsupported = false;
    if (f.folded)
        return "a header goes on in a second line";
    if (f.bare_lf)
        return "a line ends by LF alone: each must end by CR and LF";
    const char *end = wrong_end(c, method, f.end);
    if (end || f.nameless)
        return end ? end : "a header line has no name";
    if (f.misnamed)
        return "a header's name has a blank or another character that no name has";
    if (f.bad || f.lengths > 1 || f.codings > 1 || f.hosts > 1 || (f.lengths && f.codings) || (old && f.codings))
        return "the headers leave open where the body ends, or whose it is: there must be one Host, and one "
               "Content-Length or one Transfer-Encoding (which HTTP/1.0 has not)";
    if (!f.hosts && !old)
        return "the Host header is missing";
    if (f.control)
        return "a header has a control character in its value";
    if (f.origins > 1)
        return "there must be one Origin header at most";
    if (f.bearers > 1 || f.keys > 1)
        return "there must be one Authorization and one x-api-key header at most";
    if (f.unknown)
        return "of transfer codings there is 'chunked'";
    *unsupported = f.packed;
    return f.packed ? "a compressed body (Content-Encoding) is not supported" : NULL;
}

bool ntx_http_has_body(struct MHD_Connection *c)
{
    const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return (length && strspn(length, "0") != strlen(length)) ||
           MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING);
}

/* ---- the end of a connection */

void ntx_http_tell(int fd, const char *status, const char *type, const char *text, size_t len)
{
    char head[256];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %s\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", status,
                     type, len);
    const struct iovec parts[] = {{head, (size_t)n}, {(void *)(uintptr_t)text, len}};
    const struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = 2};
    if (sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) /* a few hundred bytes: they fit, or the client does not
                                                            * read */
        ntx_http_linger(fd);
}

void ntx_http_linger(int fd)
{
    char buf[16384];
    size_t got = 0;
    uint64_t end = ntx_now_ns() + LINGER_MS * 1000000ull, now;
    shutdown(fd, SHUT_WR);
    while (got < LINGER_BYTES && (now = ntx_now_ns()) < end) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)((end - now) / 1000000) + 1) <= 0)
            return;
        ssize_t n = recv(fd, buf, sizeof buf, MSG_DONTWAIT);
        if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
            return;
        got += n > 0 ? (size_t)n : 0;
    }
}
