/* SPDX-License-Identifier: Apache-2.0 */
#include "client/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 512, NAME_ROOM = 256 }; /* DNS names have at most 253 characters */

static int check_unix(const char *path, struct ntx_err *err)
{
    const size_t room = sizeof((struct sockaddr_un *)0)->sun_path;
    return *path && strlen(path) < room
               ? 0
               : ntx_err_set(err, -EINVAL, "unix:%s: a path of 1 to %zu bytes is expected", path, room - 1);
}

static int listen_unix(const char *path, struct ntx_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int rc = check_unix(path, err);
    if (rc)
        return rc;
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ntx_err_set(err, -errno, "socket: %s", strerror(errno));
    if (!connect(fd, (struct sockaddr *)&a, sizeof a)) {
        close(fd);
        return ntx_err_set(err, -EADDRINUSE,
                           "unix:%s: somebody serves there already; stop that one, or give another path", path);
    }
    struct stat st;
    if (!lstat(path, &st) && S_ISSOCK(st.st_mode)) /* left by a killed program */
        unlink(path);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) || chmod(path, 0660) || listen(fd, BACKLOG)) {
        ntx_err_set(err, -errno, "unix:%s: %s", path, strerror(errno));
        close(fd);
        return err->code;
    }
    return fd;
}

static int listen_at(const struct addrinfo *a, const char *where, struct ntx_err *err)
{
    int one = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ntx_err_set(err, -errno, "%s: socket: %s", where, strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, BACKLOG)) {
        const char *advice = "";
        if (errno == EADDRINUSE)
            advice = "; stop the program that does, or give another port";
        else if (errno == EACCES)
            advice = "; ports below 1024 are for root";
        ntx_err_set(err, -errno, "%s: cannot listen there: %s%s", where, strerror(errno), advice);
        close(fd);
        return err->code;
    }
    return fd;
}

/* Digits up to 65535; getaddrinfo wraps larger ones. */
static bool is_port(const char *s)
{
    size_t n = strlen(s);
    return n && n <= 5 && strspn(s, "0123456789") == n && atoi(s) <= UINT16_MAX;
}

/* "127.0.0.1:PORT", "[::1]:PORT"; numbers only, so that no name is looked up. */
static int find_address(const char *where, const char *like, struct addrinfo **a, struct ntx_err *err)
{
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    char host[128];
    const char *colon = strrchr(where, ':');
    size_t n = colon ? (size_t)(colon - where) : 0;
    if (!n || n >= sizeof host)
        return ntx_err_set(err, -EINVAL, "'%s' is no address to listen at; write %s or unix:/path", where, like);
    if (!is_port(colon + 1))
        return ntx_err_set(err, -EINVAL, "'%s': the port is no number from 0 to %d", where, UINT16_MAX);
    bool v6 = where[0] == '[' && where[n - 1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(v6 ? n - 2 : n), where + v6);
    int rc = getaddrinfo(host, colon + 1, &hints, a);
    if (rc)
        return ntx_err_set(err, -EINVAL, "'%s' is no address to listen at (%s); write %s or unix:/path", where,
                           gai_strerror(rc), like);
    return 0;
}

static int listen_tcp(const char *where, const char *like, struct ntx_err *err)
{
    struct addrinfo *a;
    int rc = find_address(where, like, &a, err);
    if (rc)
        return rc;
    int fd = listen_at(a, where, err);
    freeaddrinfo(a);
    return fd;
}

int ntx_listen_check(const char *where, const char *like, struct ntx_err *err)
{
    struct addrinfo *a;
    if (!strncmp(where, "unix:", 5))
        return check_unix(where + 5, err);
    int rc = find_address(where, like, &a, err);
    if (!rc)
        freeaddrinfo(a);
    return rc;
}

int ntx_listen(const char *where, const char *like, struct ntx_err *err)
{
    return strncmp(where, "unix:", 5) ? listen_tcp(where, like, err) : listen_unix(where + 5, err);
}

void ntx_listen_end(const char *where)
{
    if (!strncmp(where, "unix:", 5))
        unlink(where + 5);
}

/* ---- reachability */

/* The host of HOST, HOST:PORT or [HOST]:PORT. */
static bool split_host(const char *text, char host[NAME_ROOM])
{
    bool v6 = *text == '[';
    size_t n = strcspn(text + v6, v6 ? "]" : ":");
    if (n >= NAME_ROOM || (v6 && text[n + 1] != ']'))
        return false;
    memcpy(host, text + v6, n);
    host[n] = 0;
    const char *rest = text + v6 + n + v6;
    return !*rest || (*rest == ':' && (!rest[1] || is_port(rest + 1)));
}

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool ntx_listen_is_local(const char *where)
{
    char host[NAME_ROOM];
    return !strncmp(where, "unix:", 5) || (split_host(where, host) && is_loopback(host));
}

bool ntx_host_is(const char *text, const char *name)
{
    char host[NAME_ROOM];
    return split_host(text, host) && !strcasecmp(host, name);
}

bool ntx_host_is_local(const char *text)
{
    char host[NAME_ROOM];
    return split_host(text, host) && (!strcasecmp(host, "localhost") || is_loopback(host));
}

bool ntx_stall_read(const char *text, unsigned *seconds)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || v < 1 || v > NTX_STALL_MOST)
        return false;
    *seconds = (unsigned)v;
    return true;
}
