/* SPDX-License-Identifier: Apache-2.0 */
/* Receivers of descriptors, as the main thread sees them (receiver.h has the reasons). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/server/server_impl.h"
#include "computed/server/receiver.h"

#define REQUEST_S      10 /* for a client to send a whole request with descriptors */
#define LOOK_S         60 /* to read headers and samples, */
#define KNOWN_LOOK_S   20 /* of a known model, for which others may wait, */
#define HANGING_LOOK_S 5  /* and while the folders of models do not answer */
#define MOST_OF_USER   4
#define MOST           16

static const int first_free = 10; /* above a receiver's own descriptors */

static int spawn_receiver(struct ntx_fd_receiver *t, int theirs, int conn)
{
    char *argv[] = {(char *)"ntx-computed", (char *)"--receive", (char *)(conn >= 0 ? "1" : "0"), NULL};
    posix_spawn_file_actions_t a;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int high[2] = {fcntl(theirs, F_DUPFD_CLOEXEC, first_free),
                   conn >= 0 ? fcntl(conn, F_DUPFD_CLOEXEC, first_free) : -1};
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&a);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawn_file_actions_addopen(&a, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_addopen(&a, 1, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&a, high[0], NTX_RECEIVER_SOCK);
    if (conn >= 0)
        posix_spawn_file_actions_adddup2(&a, high[1], NTX_RECEIVER_CONN);
    int rc = high[0] < 0 || (conn >= 0 && high[1] < 0)
                 ? -EMFILE
                 : -posix_spawn(&t->pid, "/proc/self/exe", &a, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&a);
    posix_spawnattr_destroy(&attr);
    for (int i = 0; i < 2; i++)
        if (high[i] >= 0)
            close(high[i]);
    return rc;
}

static void on_receiver_closed(uv_handle_t *h)
{
    struct ntx_fd_receiver *t = h->data;
    if (--t->handles)
        return;
    for (struct ntx_fd_receiver **p = &t->server->receivers; *p; p = &(*p)->next)
        if (*p == t) {
            *p = t->next;
            break;
        }
    close(t->pidfd);
    free(t->body);
    free(t);
}

static void close_handle(uv_poll_t *h)
{
    if (!uv_is_closing((uv_handle_t *)h))
        uv_close((uv_handle_t *)h, on_receiver_closed);
}

static void close_io(struct ntx_fd_receiver *t)
{
    if (t->sock < 0)
        return;
    close_handle(&t->io);
    close(t->sock);
    t->sock = -1;
}

void ntx__fd_receiver_end(struct ntx_fd_receiver *t)
{
    if (!t)
        return;
    if (t->conn)
        t->conn->receiver = NULL;
    t->conn = NULL;
    t->pending_load = NULL;
    if (!t->reaped)
        kill(t->pid, SIGKILL);
    close_io(t);
}

static void on_death(uv_poll_t *h, int status, int events)
{
    struct ntx_fd_receiver *t = h->data;
    siginfo_t info = {0};
    (void)status;
    (void)events;
    if (waitid(P_PID, (id_t)t->pid, &info, WEXITED | WNOHANG) || !info.si_pid)
        return;
    t->reaped = true;
    close_handle(&t->death); /* its last message is still read */
}

/* It has failed: the waiting client or load gets the reason. */
static void fail_receiver(struct ntx_fd_receiver *t, int rc, const char *why)
{
    struct ntx_conn *c = t->conn;
    struct ntx_pending_load *o = t->pending_load;
    ntx__fd_receiver_end(t);
    if (c) {
        ntx_log(NTX_LOG_WARN, "client %llu: an invalid or incomplete request with descriptors; connection closed",
                (unsigned long long)ntx_reply_queue_client(c->replies));
        ntx__conn_close(c);
    } else if (o) {
        ntx__pending_load_verdict(o, rc, why, NULL, 0);
    }
}

/* Reads the request that came with the descriptors, in pieces. */
static int read_body(struct ntx_fd_receiver *t)
{
    bool head = t->have < sizeof t->len;
    char *to = head ? (char *)&t->len + t->have : (char *)t->body + (t->have - sizeof t->len);
    size_t want = head ? sizeof t->len - t->have : t->len + sizeof t->len - t->have;
    ssize_t n = recv(t->sock, to, want, MSG_DONTWAIT);
    if (n <= 0)
        return n < 0 ? -errno : -EPIPE;
    t->have += (size_t)n;
    if (t->have == sizeof t->len && (!t->len || t->len > NTX_RECEIVER_MAX || !(t->body = malloc(t->len))))
        return -EMSGSIZE;
    if (t->have < sizeof t->len + t->len || t->have == sizeof t->len)
        return 0;
    struct ntx_conn *c = t->conn;
    t->asked = true;
    t->have = 0;
    t->since_ns = ntx_now_ns();
    ntx__conn_taken(c, t->body, t->len);
    return 0;
}

static int read_verdict(struct ntx_fd_receiver *t)
{
    struct ntx_receiver_verdict v;
    int fds[NTX_MAX_FILES];
    unsigned n_fds = NTX_MAX_FILES;
    int n = ntx_recv_fds(t->sock, &v, sizeof v, fds, &n_fds); /* so few bytes come at once */
    if (n != sizeof v) {
        for (unsigned i = 0; n > 0 && i < n_fds; i++)
            close(fds[i]);
        return n < 0 ? n : -EPIPE;
    }
    struct ntx_pending_load *o = t->pending_load;
    v.text[sizeof v.text - 1] = 0;
    ntx__fd_receiver_end(t);
    ntx__pending_load_verdict(o, v.rc, v.text, fds, n_fds);
    return 0;
}

static void on_io(uv_poll_t *h, int status, int events)
{
    struct ntx_fd_receiver *t = h->data;
    (void)events;
    int rc = -EPIPE;
    if (status < 0)
        rc = status;
    else if (t->conn && !t->asked)
        rc = read_body(t);
    else if (t->pending_load)
        rc = read_verdict(t);
    if (rc && rc != -EAGAIN && rc != -EINTR)
        fail_receiver(t, -EIO,
                      "the process that checks the model's files ended: a file may be damaged in an unknown way");
}

static bool too_many(const struct ntx_server *s, uid_t uid)
{
    unsigned all = 0, of_user = 0;
    for (const struct ntx_fd_receiver *t = s->receivers; t; t = t->next) {
        all++;
        of_user += t->uid == uid;
    }
    return all >= MOST || of_user >= MOST_OF_USER;
}

static int watch_receiver(struct ntx_fd_receiver *t)
{
    struct ntx_server *s = t->server;
    t->pidfd = (int)syscall(SYS_pidfd_open, t->pid, 0);
    if (t->pidfd < 0)
        return -errno;
    fcntl(t->sock, F_SETFL, O_NONBLOCK);
    uv_poll_init(s->loop, &t->io, t->sock);
    uv_poll_init(s->loop, &t->death, t->pidfd);
    t->io.data = t->death.data = t;
    t->handles = 2;
    uv_poll_start(&t->io, UV_READABLE | UV_DISCONNECT, on_io);
    uv_poll_start(&t->death, UV_READABLE, on_death);
    uv_unref((uv_handle_t *)&t->death); /* shutdown does not wait for one that cannot die */
    return 0;
}

int ntx__fd_receiver_new(struct ntx_server *s, struct ntx_conn *c, struct ntx_fd_receiver **out)
{
    int pair[2], rc;
    uid_t uid = c ? c->uid : geteuid();
    if (c && too_many(s, uid))
        return -EBUSY;
    struct ntx_fd_receiver *t = calloc(1, sizeof *t);
    if (!t || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
        free(t);
        return t ? -errno : -ENOMEM;
    }
    *t = (struct ntx_fd_receiver){
        .server = s, .uid = uid, .sock = pair[0], .conn = c, .asked = !c, .since_ns = ntx_now_ns()};
    rc = spawn_receiver(t, pair[1], c ? c->fd : -1);
    close(pair[1]);
    if (!rc && (rc = watch_receiver(t)))
        kill(t->pid, SIGKILL);
    if (rc) {
        close(pair[0]);
        free(t);
        return rc;
    }
    t->next = s->receivers;
    s->receivers = t;
    *out = t;
    return 0;
}

int ntx__fd_receiver_order(struct ntx_fd_receiver *t, struct ntx_pending_load *o, const Ntx__Load *m, bool foreign)
{
    struct ntx_receiver_order order = {.foreign = foreign,
                                       .load_bytes = t->conn ? 0 : (uint32_t)ntx__load__get_packed_size(m)};
    uint8_t *body = malloc(sizeof order + order.load_bytes);
    if (!body)
        return -ENOMEM;
    memcpy(body, &order, sizeof order);
    if (order.load_bytes)
        ntx__load__pack(m, body + sizeof order);
    size_t n = sizeof order + order.load_bytes;
    int rc = send(t->sock, body, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n ? 0 : -EPIPE;
    free(body);
    if (t->conn)
        t->conn->receiver = NULL;
    t->conn = NULL;
    t->pending_load = o;
    t->since_ns = ntx_now_ns();
    return rc;
}

static uint64_t look_s(const struct ntx_server *s, const struct ntx_pending_load *o)
{
    if (!o->load->known || !*o->load->known)
        return LOOK_S;
    return s->scan_hangs ? HANGING_LOOK_S : KNOWN_LOOK_S;
}

void ntx__fd_receivers_check(struct ntx_server *s)
{
    uint64_t now = ntx_now_ns();
    for (struct ntx_fd_receiver *t = s->receivers, *next; t; t = next) {
        next = t->next;
        if (t->conn && now - t->since_ns > REQUEST_S * 1000000000ull)
            fail_receiver(t, -ETIMEDOUT, "");
        else if (t->pending_load && now - t->since_ns > look_s(s, t->pending_load) * 1000000000ull)
            fail_receiver(t, -ETIMEDOUT,
                          "the model's files could not be read in time: does their file system still answer?");
    }
}

void ntx__fd_receivers_close(struct ntx_server *s)
{
    for (struct ntx_fd_receiver *t = s->receivers; t; t = t->next) {
        ntx__fd_receiver_end(t);
        close_handle(&t->death);
    }
}
