/* SPDX-License-Identifier: Apache-2.0 */
#include "common/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_FDS 128 /* below the kernel's 253; more than the parts of a split model */

int ntx_send_fds(int sock, const void *buf, size_t len, const int *fds, unsigned n_fds)
{
    union {
        char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } ctl;
    struct iovec iov = {(void *)buf, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (!len || n_fds > MAX_FDS)
        return -EINVAL;
    if (n_fds) {
        memset(&ctl, 0, sizeof ctl);
        msg.msg_control = ctl.bytes;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    ssize_t n;
    do
        n = sendmsg(sock, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    if ((size_t)n < len) /* a stream socket may accept fewer; the descriptors went with the first byte */
        return ntx_write_all(sock, (const char *)buf + n, len - (size_t)n);
    return 0;
}

int ntx_recv_fds(int sock, void *buf, size_t len, int *fds, unsigned *n_fds)
{
    union {
        char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } ctl;
    struct iovec iov = {buf, len};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.bytes, .msg_controllen = sizeof ctl.bytes};
    unsigned room = n_fds ? *n_fds : 0, got = 0;
    ssize_t n;
    do
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        unsigned k = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (unsigned i = 0; i < k; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
            if (got < room)
                fds[got++] = fd;
            else
                close(fd);
        }
    }
    if (n_fds)
        *n_fds = got;
    return (int)n;
}

int ntx_write_all(int fd, const void *buf, size_t len)
{
    const char *p = buf;
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int ntx_read_all(int fd, void *buf, size_t len)
{
    char *p = buf;
    while (len) {
        ssize_t n = read(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? -errno : -EPIPE;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int ntx_read_at(int fd, void *buf, size_t len, uint64_t at)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? -errno : -ENODATA;
        done += (size_t)n;
    }
    return 0;
}

const char *ntx_read_error(int rc) { return rc == -ENODATA ? "the file ends too early" : strerror(-rc); }

int ntx_notify_fds(const char *state, const int *fds, unsigned n_fds)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!path || strlen(path) >= sizeof a.sun_path)
        return -ENOENT;
    memcpy(a.sun_path, path, strlen(path));
    if (*path == '@')
        a.sun_path[0] = 0; /* abstract name */
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return -errno;
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    int rc = connect(s, (struct sockaddr *)&a, len) ? -errno : ntx_send_fds(s, state, strlen(state), fds, n_fds);
    close(s);
    return rc;
}

void ntx_notify(const char *state) { (void)ntx_notify_fds(state, NULL, 0); }
