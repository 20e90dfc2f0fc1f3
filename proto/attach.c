/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/attach.h"

#include <errno.h>
#include <ntx_version.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/util.h"

#define MAX_FILES       (NTX_ATTACH_MAX_FDS - NTX_IOD_FDS) /* as NTX_MAX_FILES of the region */
#define WELCOME_WAIT_MS 5000
#define RETRY_MS        10

static unsigned fds_of_kind(const struct ntx_attach_msg *m)
{
    switch (m->kind) {
    case NTX_AT_WELCOME: return 1;
    case NTX_AT_ATTACH:
        return (m->role == NTX_ROLE_IOD ? NTX_IOD_FDS : NTX_PREDICTOR_FDS + m->drafters * NTX_DRAFTER_FDS) + m->n_files;
    default: return 0;
    }
}

static unsigned most_files(const struct ntx_attach_msg *m)
{
    if (m->kind != NTX_AT_ATTACH)
        return 0;
    return m->role == NTX_ROLE_IOD ? MAX_FILES : 1;
}

static bool is_valid(const struct ntx_attach_msg *m, size_t len, unsigned n_fds)
{
    if (len != sizeof *m || m->magic != NTX_ATTACH_MAGIC || m->version != NTX_ATTACH_VERSION)
        return false;
    if (m->kind < NTX_AT_HELLO || m->kind > NTX_AT_DETACHED || m->role > NTX_ROLE_PREDICTOR)
        return false;
    if ((m->kind == NTX_AT_HELLO || m->kind == NTX_AT_ATTACH) && !m->role)
        return false;
    if (m->n_files > most_files(m) ||
        m->drafters > (m->kind == NTX_AT_ATTACH && m->role == NTX_ROLE_PREDICTOR ? NTX_DRAFTERS : 0))
        return false;
    if (!memchr(m->build, 0, sizeof m->build) || !memchr(m->text, 0, sizeof m->text))
        return false;
    return n_fds == fds_of_kind(m);
}

int ntx_attach_send(int sock, struct ntx_attach_msg *m, const int *fds, unsigned n_fds)
{
    m->magic = NTX_ATTACH_MAGIC;
    m->version = NTX_ATTACH_VERSION;
    if (!is_valid(m, sizeof *m, n_fds))
        return -EINVAL;
    return ntx_send_fds(sock, m, sizeof *m, fds, n_fds);
}

int ntx_attach_recv(int sock, struct ntx_attach_msg *m, int *fds, unsigned *n_fds)
{
    struct {
        struct ntx_attach_msg m;
        char more; /* shows that a packet is too long */
    } in;
    int got[NTX_ATTACH_MAX_FDS];
    unsigned n = NTX_ATTACH_MAX_FDS;
    int rc = ntx_recv_fds(sock, &in, sizeof in.m + sizeof in.more, got, &n);
    if (rc == -ECONNRESET) /* the peer ended without reading all that we sent */
        return 0;
    if (rc <= 0)
        return rc;
    if (!is_valid(&in.m, (size_t)rc, n)) {
        while (n)
            close(got[--n]);
        return -EPROTO;
    }
    *m = in.m;
    memcpy(fds, got, n * sizeof *fds);
    *n_fds = n;
    return 1;
}

int ntx_attach_socket(const char *dir, struct sockaddr_un *a, struct ntx_err *err)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path, sizeof a->sun_path, "%s/region.sock", dir);
    if (n < 0 || (size_t)n >= sizeof a->sun_path)
        return ntx_err_set(err, -ENAMETOOLONG, "%s: the runtime directory's path is too long for a socket", dir);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return s < 0 ? ntx_err_set(err, -errno, "cannot make a socket: %s", strerror(errno)) : s;
}

/* Connects as soon as computed listens, within wait_ms. */
static int connect_socket(const char *dir, unsigned wait_ms, int *out, struct ntx_err *err)
{
    struct sockaddr_un a;
    uint64_t end = ntx_now_ns() + (uint64_t)wait_ms * 1000000u;
    int s = ntx_attach_socket(dir, &a, err);
    if (s < 0)
        return s;
    while (connect(s, (struct sockaddr *)&a, sizeof a)) {
        int rc = -errno;
        bool soon = rc == -ENOENT || rc == -ECONNREFUSED || rc == -EAGAIN || rc == -EINTR;
        if (!soon || ntx_now_ns() >= end) {
            close(s);
            return ntx_err_set(err, rc, "%s: cannot reach ntx-computed: %s%s", a.sun_path, strerror(-rc),
                               soon ? "; is it running?" : "");
        }
        poll(NULL, 0, RETRY_MS);
    }
    *out = s;
    return 0;
}

static int wait_welcome(int s, uint32_t *instance, int *counters_fd, struct ntx_err *err)
{
    struct pollfd p = {s, POLLIN, 0};
    struct ntx_attach_msg m;
    int fds[NTX_ATTACH_MAX_FDS], rc;
    unsigned n = 0;
    uint64_t end = ntx_now_ns() + WELCOME_WAIT_MS * (uint64_t)1000000u;
    while ((rc = ntx_attach_recv(s, &m, fds, &n)) == -EAGAIN) {
        uint64_t now = ntx_now_ns();
        if (now >= end)
            return ntx_err_set(err, -ETIMEDOUT, "ntx-computed did not answer within %d s", WELCOME_WAIT_MS / 1000);
        poll(&p, 1, (int)((end - now) / 1000000u) + 1);
    }
    if (!rc)
        return ntx_err_set(err, -ECONNRESET, "ntx-computed closed the connection");
    if (rc < 0)
        return ntx_err_set(err, rc == -EPROTO ? -EPERM : rc,
                           "ntx-computed speaks another version of the attach protocol (this is version %u)",
                           NTX_ATTACH_VERSION);
    if (m.kind == NTX_AT_REFUSED)
        return ntx_err_set(err, m.instance ? -EPERM : -EBUSY, "refused by ntx-computed: %s", m.text);
    if (m.kind != NTX_AT_WELCOME) {
        while (n)
            close(fds[--n]);
        return ntx_err_set(err, -EPROTO, "ntx-computed answered with message %u in place of a welcome", m.kind);
    }
    *instance = m.instance;
    *counters_fd = fds[0];
    return 0;
}

int ntx_attach_connect(const char *dir, enum ntx_role role, unsigned wait_ms, uint32_t *instance, int *counters_fd,
                       struct ntx_err *err)
{
    struct ntx_attach_msg m = {.kind = NTX_AT_HELLO, .role = role, .pid = getpid()};
    int s = -1;
    int rc = connect_socket(dir, wait_ms, &s, err);
    if (rc)
        return rc;
    snprintf(m.build, sizeof m.build, "%s", NTX_BUILD);
    if ((rc = ntx_attach_send(s, &m, NULL, 0))) {
        ntx_err_set(err, rc, "ntx-computed closed the connection: %s", strerror(-rc));
        goto fail;
    }
    if ((rc = wait_welcome(s, instance, counters_fd, err)))
        goto fail;
    return s;
fail:
    close(s);
    return rc;
}
