/* SPDX-License-Identifier: Apache-2.0 */
#include "client/client.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/run_dir.h"
#include "client/supervise.h"
#include "client/where.h"
#include "common/util.h"

#define PATH_ROOM 256

struct ntx_client {
    int sock;
    uint64_t next_id;
    struct ntx_frame_in in;
    struct ntx_supervisor *sup; /* private pipelines and `up` */
    char path[PATH_ROOM];       /* of the socket, if nothing was started */
    char dir[200];
    int mark;   /* private pipeline: locked mark of our directory (run_dir.h), which we remove; else -1 */
    bool among; /* several machines: wait for them */
};

static struct {
    int fd; /* signalfd, -1: none */
    int last;
    sigset_t before; /* the mask to restore */
} signals = {.fd = -1};

static int catch_signals(struct ntx_err *err)
{
    sigset_t set;
    struct sigaction hup;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (!sigaction(SIGHUP, NULL, &hup) && hup.sa_handler != SIG_IGN) /* nohup */
        sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    if (signals.fd >= 0)
        return 0;
    if ((signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        return ntx_err_set(err, -errno, "signalfd: %s", strerror(errno));
    sigprocmask(SIG_BLOCK, &set, &signals.before);
    return 0;
}

/* A pending signal that no call took ends the program here. */
static void release_signals(void)
{
    if (signals.fd < 0)
        return;
    close(signals.fd);
    signals.fd = -1;
    sigprocmask(SIG_SETMASK, &signals.before, NULL);
}

int ntx_client_signalled(void) { return signals.last; }

static int open_socket(const char *path, struct ntx_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return ntx_err_set(err, -ENAMETOOLONG,
                           "%s: the socket's path is longer than %zu bytes; use a shorter NTX_RUNTIME", path,
                           sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, strlen(path));
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return ntx_err_set(err, -errno, "socket: %s", strerror(errno));
    if (connect(s, (struct sockaddr *)&a, sizeof a)) {
        int e = errno;
        close(s);
        if (e == EACCES)
            return ntx_err_set(err, -e, "%s: permission denied; the service's socket is for members of group ntx",
                               path);
        return ntx_err_set(
            err, -e, "%s: %s; no daemons run there (start them with `ntx up MODEL` or `systemctl start ntx.target`)",
            path, strerror(e));
    }
    return s;
}

/* Connects a socket and returns its path. */
static int connect_to(const char *socket_path, char path[PATH_ROOM], struct ntx_err *err)
{
    struct ntx_where w;
    int rc = socket_path ? 0 : ntx_where(false, &w, err);
    if (rc)
        return rc;
    if (socket_path)
        snprintf(path, PATH_ROOM, "%s", socket_path);
    else
        snprintf(path, PATH_ROOM, "%s/ntx.sock", w.dir);
    return open_socket(path, err);
}

int ntx_client_there(const char *socket_path, struct ntx_err *err)
{
    char path[PATH_ROOM];
    int s = connect_to(socket_path, path, err);
    if (s >= 0)
        close(s);
    return NTX_MIN(s, 0);
}

int ntx_client_connect(const char *socket_path, struct ntx_client **out, struct ntx_err *err)
{
    char path[PATH_ROOM] = "";
    int s = connect_to(socket_path, path, err);
    if (s < 0)
        return s;
    struct ntx_client *c = calloc(1, sizeof *c);
    if (c)
        memcpy(c->path, path, sizeof path);
    int rc = c ? catch_signals(err) : ntx_err_set(err, -ENOMEM, "no memory");
    if (rc) {
        close(s);
        free(c);
        return rc;
    }
    c->sock = s;
    c->mark = -1;
    *out = c;
    return 0;
}

/* Fails if other daemons already serve this directory. */
static int check_taken(int sock, const char *path, pid_t ours, struct ntx_err *err)
{
    struct ucred who = {0};
    socklen_t n = sizeof who;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &n) || who.pid == ours) /* the process that called listen() */
        return 0;
    return ntx_err_set(
        err, -EADDRINUSE,
        "%s: another ntx-computed (pid %d) answers there: stop it (ntx stop), or set NTX_RUNTIME to another directory",
        path, (int)who.pid);
}

/* Waits for the daemon's socket to answer, by polling: nothing else reports a new socket. */
static int wait_socket(struct ntx_client *c, struct ntx_err *err)
{
    char path[256], how[320];
    snprintf(path, sizeof path, "%s/ntx.sock", c->dir);
    for (uint64_t end = ntx_now_ns() + (c->among ? 600 : 20) * 1000000000ull; ntx_now_ns() < end;) {
        int s = open_socket(path, err);
        if (s >= 0) {
            c->sock = s;
            *err = (struct ntx_err){0}; /* drop the errors of earlier attempts */
            return check_taken(s, path, ntx_supervisor_computed(c->sup), err);
        }
        if (ntx_supervisor_lost(c->sup, how, sizeof how))
            return ntx_err_set(err, -EPIPE, "ntx-computed did not start (%s)", how);
        struct pollfd p = {.fd = ntx_supervisor_fd(c->sup), .events = POLLIN};
        poll(&p, 1, 5);
    }
    return ntx_err_prefix(err, "ntx-computed does not answer");
}

static int start_daemons(struct ntx_client *c, bool quiet, struct ntx_client **out, struct ntx_err *err)
{
    int rc = catch_signals(err); /* before there are threads */
    if (!rc)
        rc = ntx_supervisor_start(c->dir, quiet, c->among, &c->sup, err);
    if (!rc)
        rc = wait_socket(c, err);
    if (rc) {
        ntx_client_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

static struct ntx_client *new_client(void)
{
    struct ntx_client *c = calloc(1, sizeof *c);
    if (c)
        c->sock = c->mark = -1;
    return c;
}

static int start_captive(bool quiet, bool among, struct ntx_client **out, struct ntx_err *err)
{
    struct ntx_client *c = new_client();
    if (!c)
        return ntx_err_set(err, -ENOMEM, "no memory");
    c->among = among;
    int rc = ntx_need_descriptors(NTX_SUPERVISOR_DESCRIPTORS, err); /* before anything is made that must be removed */
    if (!rc)
        rc = ntx_run_dir_make(c->dir, sizeof c->dir, &c->mark, err);
    if (rc) {
        free(c);
        return rc;
    }
    return start_daemons(c, quiet, out, err);
}

int ntx_client_captive(bool quiet, struct ntx_client **out, struct ntx_err *err)
{
    return start_captive(quiet, false, out, err);
}

int ntx_client_among(struct ntx_client **out, struct ntx_err *err) { return start_captive(false, true, out, err); }

int ntx_client_up(const char *dir, bool among, struct ntx_client **out, struct ntx_err *err)
{
    struct ntx_client *c = new_client();
    if (!c)
        return ntx_err_set(err, -ENOMEM, "no memory");
    c->among = among;
    snprintf(c->dir, sizeof c->dir, "%s", dir);
    char path[256];
    snprintf(path, sizeof path, "%s/ntx.sock", dir);
    int there = open_socket(path, NULL), rc = there < 0 ? 0 : check_taken(there, path, 0, err);
    if (there >= 0)
        close(there);
    if (rc) {
        free(c);
        return rc;
    }
    return start_daemons(c, false, out, err);
}

struct ntx_supervisor *ntx_client_supervisor(struct ntx_client *c) { return c->sup; }

int ntx_client_reconnect(struct ntx_client *c, struct ntx_err *err)
{
    if (c->sock >= 0)
        close(c->sock);
    c->sock = -1;
    ntx_frame_free(&c->in);
    c->in = (struct ntx_frame_in){0};
    if (c->sup)
        return wait_socket(c, err);
    int s = open_socket(c->path, err);
    c->sock = NTX_MAX(s, -1);
    return NTX_MIN(s, 0);
}

const char *ntx_client_dir(const struct ntx_client *c) { return c->dir; }

void ntx_client_free(struct ntx_client *c)
{
    if (!c)
        return;
    if (c->sock >= 0)
        close(c->sock);
    ntx_supervisor_stop(c->sup);
    if (c->mark >= 0)
        ntx_run_dir_remove(c->dir, c->mark);
    ntx_frame_free(&c->in);
    free(c);
    release_signals();
}

/* The reason why the connection ended, as far as this side knows. */
static int connection_lost(struct ntx_client *c, struct ntx_err *err)
{
    char how[320];
    if (!c->sup)
        return ntx_err_set(err, -EPIPE, "the daemon closed the connection; see its log, then try again");
    struct pollfd p = {.fd = ntx_supervisor_fd(c->sup), .events = POLLIN};
    poll(&p, 1, 1000);
    if (!ntx_supervisor_lost(c->sup, how, sizeof how))
        return ntx_err_set(err, -EPIPE, "ntx-computed closed the connection");
    if (ntx_supervisor_unfit(c->sup))
        return ntx_err_set(err, -EPROTO, "%s", how);
    return ntx_err_set(err, -EPIPE, "ntx-computed ended (%s); the answer under way is lost: run again", how);
}

int ntx_client_send(struct ntx_client *c, Ntx__Request *m, const int *fds, unsigned n_fds, uint64_t *id,
                    struct ntx_err *err)
{
    m->id = ++c->next_id;
    if (!ntx_request_valid(m))
        return ntx_err_set(err, -EINVAL, "an option is too long: names may have %u bytes, other texts %u", NTX_WORD_MAX,
                           NTX_OPTION_MAX);
    int rc = ntx_frame_send_request(c->sock, m, fds, n_fds);
    if (rc == -EPIPE || rc == -ECONNRESET)
        return connection_lost(c, err);
    if (rc == -EMSGSIZE)
        return ntx_err_set(err, rc, "the prompt is too long: a request may have %u MiB, pictures included",
                           NTX_FRAME_MAX >> 20);
    if (rc)
        return ntx_err_set(err, rc, "cannot send the request: %s", strerror(-rc));
    if (id)
        *id = m->id;
    return 0;
}

static bool take_signal(void)
{
    struct signalfd_siginfo si;
    if (signals.fd < 0 || read(signals.fd, &si, sizeof si) != sizeof si)
        return false;
    signals.last = (int)si.ssi_signo;
    return true;
}

int ntx_client_wait(int fd, int timeout_ms)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = signals.fd, .events = POLLIN}};
    int n = poll(p, 2, timeout_ms);
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    if (!n)
        return -ETIMEDOUT;
    if (p[1].revents && take_signal())
        return -EINTR;
    return 0;
}

/* Decodes one reply to any request: 1 and *out, or 0 when more bytes are needed. */
static int decode_reply(struct ntx_client *c, Ntx__Reply **out, struct ntx_err *err)
{
    const uint8_t *body;
    size_t len;
    int rc = ntx_frame_next(&c->in, &body, &len);
    if (rc < 0)
        return ntx_err_set(err, rc, "the daemon sent a malformed frame; are ntx and the daemons of one version?");
    if (!rc)
        return 0;
    *out = ntx_reply_decode(body, len);
    return *out ? 1
                : ntx_err_set(err, -EPROTO,
                              "the daemon sent a malformed reply; are ntx and the daemons of one version?");
}

static int read_bytes(struct ntx_client *c, int timeout_ms, struct ntx_err *err)
{
    uint8_t buf[65536];
    int rc = ntx_client_wait(c->sock, timeout_ms);
    if (rc == -ETIMEDOUT)
        return ntx_err_set(err, rc, "no answer within %d ms", timeout_ms);
    if (rc)
        return ntx_err_set(err, rc, "%s", rc == -EINTR ? "interrupted" : strerror(-rc));
    ssize_t n = recv(c->sock, buf, sizeof buf, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return connection_lost(c, err);
    return ntx_frame_feed(&c->in, buf, (size_t)n);
}

int ntx_client_any(struct ntx_client *c, int timeout_ms, Ntx__Reply **out, struct ntx_err *err)
{
    for (;;) {
        int rc = decode_reply(c, out, err);
        if (rc)
            return rc < 0 ? rc : 0;
        if ((rc = read_bytes(c, timeout_ms, err)))
            return rc;
    }
}

int ntx_client_next(struct ntx_client *c, uint64_t id, int timeout_ms, Ntx__Reply **out, struct ntx_err *err)
{
    for (;;) {
        Ntx__Reply *r = NULL;
        int rc = ntx_client_any(c, timeout_ms, &r, err);
        if (rc)
            return rc;
        if (r->id == id && r->body_case == NTX__REPLY__BODY_ERROR && r->error->err == -ESHUTDOWN && c->sup &&
            ntx_supervisor_unfit(c->sup)) {
            ntx__reply__free_unpacked(r, NULL);
            return connection_lost(c, err); /* the daemon gave the reason for its end */
        }
        if (r->id == id && r->body_case == NTX__REPLY__BODY_ERROR) {
            rc = ntx_err_set(err, r->error->err < 0 ? r->error->err : -EIO, "%s", r->error->text);
            ntx__reply__free_unpacked(r, NULL);
            return rc;
        }
        if (r->id == id) {
            *out = r;
            return 0;
        }
        ntx__reply__free_unpacked(r, NULL);
    }
}

bool ntx_client_more(struct ntx_replies *p, int *rc, struct ntx_err *err)
{
    bool over = *rc || (p->reply && p->reply->body_case == p->last);
    if (p->reply)
        ntx__reply__free_unpacked(p->reply, NULL);
    p->reply = NULL;
    if (!over)
        *rc = ntx_client_next(p->client, p->id, -1, &p->reply, err);
    return !over && !*rc;
}
