/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/server/server_impl.h"

#define SAY_NS 10000000000ull /* least time between two such log lines */

static void on_connect(uv_poll_t *poll, int status, int events);

static void on_again(uv_timer_t *t)
{
    struct ntx_server *s = t->data;
    if (s->listen_fd >= 0 && !uv_is_closing((uv_handle_t *)&s->listen_poll))
        uv_poll_start(&s->listen_poll, UV_READABLE, on_connect);
}

/* No descriptor or memory for a client. It stays in the queue and the socket stays readable, so polling pauses. */
static void pause_listening(struct ntx_server *s, int err)
{
    uint64_t now = ntx_now_ns();
    s->n_refused++;
    if (s->n_refused == 1 || now - s->refused_ns > SAY_NS) {
        ntx_log(NTX_LOG_WARN, "cannot accept a client: %s (so far %llu times)", strerror(err),
                (unsigned long long)s->n_refused);
        s->refused_ns = now;
    }
    uv_poll_stop(&s->listen_poll);
    uv_timer_start(&s->again, on_again, NTX_ACCEPT_MS, 0);
}

static void on_connect(uv_poll_t *poll, int status, int events)
{
    struct ntx_server *s = poll->data;
    (void)status;
    (void)events;
    for (;;) {
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0) {
            if (errno != EAGAIN)
                pause_listening(s, errno);
            return;
        }
        ntx__conn_new(s, fd);
    }
}

/* Removes the socket file of a killed daemon, on which nothing listens. */
static int clear_path(const struct sockaddr_un *a, struct ntx_err *err)
{
    struct stat st;
    if (lstat(a->sun_path, &st))
        return errno == ENOENT ? 0 : ntx_err_set(err, -errno, "%s: %s", a->sun_path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return ntx_err_set(err, -EEXIST, "%s: there is something that is no socket: remove it", a->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ntx_err_set(err, -errno, "cannot make a socket: %s", strerror(errno));
    bool alive = !connect(fd, (const struct sockaddr *)a, sizeof *a) || errno == EAGAIN;
    close(fd);
    if (alive)
        return ntx_err_set(
            err, -EADDRINUSE,
            "%s: another ntx-computed answers there: stop it (ntx stop), or choose another --runtime directory",
            a->sun_path);
    return unlink(a->sun_path)
               ? ntx_err_set(err, -errno, "%s: cannot remove the stale socket: %s", a->sun_path, strerror(errno))
               : 0;
}

/* Binds under another name and renames it once it listens, so that a client that sees the name is never refused. */
static int bind_and_listen(struct ntx_server *s, const struct sockaddr_un *a, struct ntx_err *err)
{
    mode_t mode = s->c.service ? 0660 : 0600, mask = umask(0777 & ~mode);
    struct sockaddr_un made = {.sun_family = AF_UNIX};
    snprintf(made.sun_path, sizeof made.sun_path, "%s/new.sock", s->c.dir); /* as long as ntx.sock */
    unlink(made.sun_path);
    int rc = bind(s->listen_fd, (const struct sockaddr *)&made, sizeof made) ? -errno : 0;
    umask(mask);
    if (!rc && (listen(s->listen_fd, 64) || rename(made.sun_path, a->sun_path))) {
        rc = -errno;
        unlink(made.sun_path);
    }
    if (rc)
        return ntx_err_set(err, rc, "%s: cannot listen: %s", a->sun_path, strerror(-rc));
    snprintf(s->socket_path, sizeof s->socket_path, "%s", a->sun_path);
    return 0;
}

/* Removes sockets of links that killed daemons left. Their names have numbers that are never used again. */
void ntx__clear_links(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    struct stat st;
    while (d && (e = readdir(d)))
        if (strlen(e->d_name) > 3 && e->d_name[2] == '.' &&
            (!strncmp(e->d_name, "ci", 2) || !strncmp(e->d_name, "cp", 2) || !strncmp(e->d_name, "pi", 2)) &&
            !fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISSOCK(st.st_mode))
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
}

int ntx__listen(struct ntx_server *s, struct ntx_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if ((size_t)snprintf(a.sun_path, sizeof a.sun_path, "%s/ntx.sock", s->c.dir) >= sizeof a.sun_path)
        return ntx_err_set(err, -ENAMETOOLONG, "%s: too long for a socket's path; choose a shorter --runtime directory",
                           s->c.dir);
    int rc = clear_path(&a, err);
    if (rc)
        return rc;
    s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->listen_fd < 0)
        return ntx_err_set(err, -errno, "cannot make a socket: %s", strerror(errno));
    if ((rc = bind_and_listen(s, &a, err)))
        return rc;
    if ((rc = uv_poll_init(s->loop, &s->listen_poll, s->listen_fd)))
        return ntx_err_set(err, rc, "cannot watch the socket: %s", uv_strerror(rc));
    s->listen_poll.data = s; /* from here on it must be closed */
    rc = uv_poll_start(&s->listen_poll, UV_READABLE, on_connect);
    return rc ? ntx_err_set(err, rc, "cannot watch the socket: %s", uv_strerror(rc)) : 0;
}

static void on_listen_closed(uv_handle_t *h)
{
    struct ntx_server *s = h->data;
    close(s->listen_fd);
    s->listen_fd = -1;
}

void ntx__unlisten(struct ntx_server *s)
{
    if (s->socket_path[0])
        unlink(s->socket_path);
    s->socket_path[0] = 0;
    if (s->listen_poll.data && !uv_is_closing((uv_handle_t *)&s->listen_poll))
        uv_close((uv_handle_t *)&s->listen_poll, on_listen_closed);
}
