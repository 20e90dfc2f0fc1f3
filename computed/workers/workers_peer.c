/* SPDX-License-Identifier: Apache-2.0 */
/* One worker, from its connection to its death. */
#include <errno.h>
#include <fcntl.h>
#include <ntx_version.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/workers/workers_impl.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

const char *ntx__role_name(enum ntx_role role) { return role == NTX_ROLE_IOD ? "ntx-iod" : "ntx-predictor"; }

/* The pidfd of a peer; from the socket where the kernel supports it (Linux 6.5), since a pid may have been reused. */
static int peer_pidfd(int sock, pid_t pid)
{
    int fd = -1;
    socklen_t n = sizeof fd;
    if (!getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &n))
        return fd;
    return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

/* ---- death */

bool ntx__peer_gone(const struct ntx__peer *p)
{
    struct pollfd f = {p->pidfd, POLLIN, 0};
    return p->pidfd < 0 ? p->leaving : poll(&f, 1, 0) == 1;
}

static void on_peer_closed(uv_handle_t *h)
{
    struct ntx__peer *p = h->data;
    if (!--p->handles)
        free(p);
}

static void unlink_newcomer(struct ntx__peer *p)
{
    struct ntx__peer **at = &p->w->newcomers;
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
}

void ntx__peer_close(struct ntx__peer *p)
{
    if (p->closing)
        return;
    p->closing = true;
    unlink_newcomer(p);
    ntx_link_close(p->link);
    p->link = NULL;
    ntx__ring_close(&p->ring);
    uv_close((uv_handle_t *)&p->sock_poll, on_peer_closed);
    if (p->pidfd >= 0)
        uv_close((uv_handle_t *)&p->pid_poll, on_peer_closed);
    close(p->sock);
    if (p->pidfd >= 0)
        close(p->pidfd);
}

/* After a death: keeps the ring that proves the reads finished, or records that nothing can. */
static void keep_ring(struct ntx__peer *p)
{
    struct ntx_workers *w = p->w;
    if (!w->offer.there || !p->attached)
        return;
    if (p->ring.open) {
        struct ntx__ring *more = realloc(w->dead_rings, (w->n_dead_rings + 1) * sizeof *more);
        if (more) {
            w->dead_rings = more;
            more[w->n_dead_rings++] = p->ring;
            p->ring = (struct ntx__ring){0};
            return;
        }
        p->ring_missing = true;
    }
    if (p->ring_missing) {
        w->unproved = true;
        ntx_log(NTX_LOG_WARN, "ntx-iod died, and its reads cannot be proved finished: their slots stay out of use "
                              "until the model is loaded again");
    }
}

/* Removes the workers' pair socket: the predictor bound it, and cannot remove it. */
void ntx__workers_unlink_pair(struct ntx_workers *w)
{
    char address[128];
    ntx_link_address(address, sizeof address, w->dir, "pi", w->told_predictor, w->told_iod);
    if (w->told_predictor && w->told_iod && *address)
        unlink(address);
}

static void tell_peers(struct ntx_workers *w)
{
    uint32_t iod = w->worker[NTX_ROLE_IOD] ? w->worker[NTX_ROLE_IOD]->instance : 0;
    uint32_t predictor = w->worker[NTX_ROLE_PREDICTOR] ? w->worker[NTX_ROLE_PREDICTOR]->instance : 0;
    if (iod != w->told_iod || predictor != w->told_predictor)
        ntx__workers_unlink_pair(w);
    w->told_iod = iod;
    w->told_predictor = predictor;
    for (int role = 1; role < NTX__ROLES; role++) {
        struct ntx__peer *p = w->worker[role];
        struct ntx_attach_msg m = {
            .kind = NTX_AT_PEERS,
            .iod_instance = iod,
            .predictor_instance = predictor,
        };
        if (p && !p->leaving && ntx_attach_send(p->sock, &m, NULL, 0))
            ntx__peer_expel(p, "it takes no messages");
    }
}

static struct ntx__peer *successor(struct ntx_workers *w, enum ntx_role role)
{
    struct ntx__peer *p = w->newcomers;
    while (p && p->wants != role)
        p = p->next;
    return p;
}

void ntx__peer_dead(struct ntx__peer *p)
{
    struct ntx_workers *w = p->w;
    enum ntx_role role = p->role;
    if (p->closing)
        return;
    if (role == NTX_ROLE_IOD)
        keep_ring(p);
    ntx__peer_close(p);
    if (!role)
        return;
    w->worker[role] = NULL;
    if (w->cb.died)
        w->cb.died(w->cb.ctx, role);
    if (role == NTX_ROLE_IOD && w->offer.there)
        ntx__workers_check_drained(w);
    ntx__trials_died(w, role);
    ntx__workers_check_detached(w);
    struct ntx__peer *next = successor(w, role);
    if (next && !w->worker[role])
        ntx__peer_admit(next, role);
    else
        tell_peers(w);
}

/* Handles a closed socket. The process is not dead yet and may still submit reads, so it is killed. */
static void kill_peer(struct ntx__peer *p)
{
    p->leaving = true;
    uv_poll_stop(&p->sock_poll);
    if (!p->role || p->pidfd < 0 || ntx__peer_gone(p))
        ntx__peer_dead(p);
    else if (p->pid != getpid()) /* tests have workers in their own process */
        syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
}

void ntx__peer_expel(struct ntx__peer *p, const char *why)
{
    if (p->leaving || p->closing)
        return;
    ntx_log(NTX_LOG_WARN, "%s (pid %d) is ended: %s", p->role ? ntx__role_name(p->role) : "a worker", (int)p->pid, why);
    shutdown(p->sock, SHUT_RDWR);
    kill_peer(p);
}

static void on_pidfd(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    ntx__peer_dead(h->data);
}

/* ---- messages */

void ntx__peer_refuse(struct ntx__peer *p, bool for_good, const char *fmt, ...)
{
    struct ntx_workers *w = p->w;
    struct ntx_attach_msg m = {.kind = NTX_AT_REFUSED, .instance = for_good};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(m.text, sizeof m.text, fmt, ap);
    va_end(ap);
    ntx_log(strcmp(w->refused, m.text) ? NTX_LOG_WARN : NTX_LOG_DEBUG, "refused a worker (pid %d): %s", (int)p->pid,
            m.text);
    snprintf(w->refused, sizeof w->refused, "%s", m.text);
    ntx_attach_send(p->sock, &m, NULL, 0);
    if (for_good && p->claimed && w->cb.refused)
        w->cb.refused(w->cb.ctx, p->claimed, m.text);
    ntx__peer_close(p);
}

void ntx__peer_offer(struct ntx__peer *p)
{
    const struct ntx__region_offer *o = &p->w->offer;
    if (!o->there || p->leaving)
        return;
    /* Each worker gets only the descriptors that it needs: only ntx-iod reads files and sees weights. */
    bool iod = p->role == NTX_ROLE_IOD;
    if (iod) /* the last one may have changed the shared flags: a wake must never block */
        fcntl(o->to_iod[NTX_REGION_PARTS], F_SETFL, O_NONBLOCK);
    int to_predictor[2 + NTX_DRAFTERS * NTX_DRAFTER_FDS] = {o->board, p->w->sidecar};
    struct ntx_attach_msg m = {
        .kind = NTX_AT_ATTACH, .role = p->role, .epoch = o->epoch, .n_files = iod ? o->n_files : p->w->sidecar >= 0};
    unsigned n = (iod ? NTX_IOD_FDS : NTX_PREDICTOR_FDS) + m.n_files;
    m.drafters = iod ? 0 : p->w->n_drafters;
    for (unsigned i = 0; i < m.drafters; i++) {
        const int *fd = p->w->drafter[i];
        memcpy(to_predictor + n, fd, sizeof p->w->drafter[i]);
        m.lent |= fd[3] >= 0 ? 1u << i : 0;
        to_predictor[n + 3] = fd[3] >= 0 ? fd[3] : fd[2];
        n += NTX_DRAFTER_FDS;
    }
    ntx_link_set_epoch(p->link, o->epoch);
    p->attached = p->hello_seen = false;
    p->holds = true;
    if (ntx_attach_send(p->sock, &m, iod ? o->to_iod : to_predictor, n))
        ntx__peer_expel(p, "it takes no messages");
}

static void on_heard(struct ntx__peer *p)
{
    struct ntx_workers *w = p->w;
    p->unanswered = 0;
    if (p->role && w->cb.heard)
        w->cb.heard(w->cb.ctx, p->role);
}

static void on_link(void *ctx, const Ntx__Peer *m)
{
    struct ntx__peer *p = ctx;
    struct ntx_workers *w = p->w;
    if (p->leaving)
        return;
    on_heard(p);
    if (m->body_case == NTX__PEER__BODY_PONG)
        return;
    if (m->body_case != NTX__PEER__BODY_HELLO) {
        if (p->attached && w->cb.message)
            w->cb.message(w->cb.ctx, p->role, m);
        return;
    }
    if (m->hello->instance != p->instance)
        return;
    p->hello_seen = true;
    if (p->attached && w->cb.hello)
        w->cb.hello(w->cb.ctx, p->role, p->instance);
}

static void on_attached(struct ntx__peer *p, const struct ntx_attach_msg *m)
{
    struct ntx_workers *w = p->w;
    if (m->text[0]) {
        ntx_log(NTX_LOG_ERR, "%s could not attach: %s", ntx__role_name(p->role), m->text);
        p->holds = false;
        ntx__workers_check_detached(w);
        if (w->cb.attach_failed)
            w->cb.attach_failed(w->cb.ctx, p->role, m->text);
        return;
    }
    if (p->attached)
        return;
    if (p->role == NTX_ROLE_IOD && m->ring_fd >= 0) {
        struct ntx_err why;
        ntx__ring_close(&p->ring);
        p->ring_missing = ntx__ring_duplicate(p->pidfd, m, &p->ring, &why) != 0;
        if (p->ring_missing)
            ntx_log(NTX_LOG_WARN,
                    "no duplicate of ntx-iod's ring (%s): should it die, the slots it was reading into stay out of use",
                    why.text);
    }
    p->attached = true;
    if (p->hello_seen && w->cb.hello)
        w->cb.hello(w->cb.ctx, p->role, p->instance);
}

static void on_hello(struct ntx__peer *p, const struct ntx_attach_msg *m)
{
    struct ntx_workers *w = p->w;
    struct ntx__peer *old;
    if (p->wants)
        return;
    p->claimed = m->role;
    if (p->uid != geteuid() && p->uid != 0) { /* not earlier: before its HELLO it would not read the reason */
        ntx__peer_refuse(p, true, "it runs as user %u, ntx-computed as user %u", (unsigned)p->uid, (unsigned)geteuid());
        return;
    }
    if (strcmp(m->build, NTX_BUILD)) {
        ntx__peer_refuse(p, true,
                         "it is build %s, ntx-computed is build %s; install daemons of one build and restart them",
                         m->build, NTX_BUILD);
        return;
    }
    /* the successor connects before the pidfd event comes */
    if ((old = w->worker[m->role]) && ntx__peer_gone(old))
        ntx__peer_dead(old);
    if (!(old = w->worker[m->role]))
        ntx__peer_admit(p, m->role);
    else if (old->leaving)
        p->wants = m->role;
    else
        ntx__peer_refuse(p, false, "%s runs already (pid %d)", ntx__role_name(m->role), (int)old->pid);
}

static void on_message(struct ntx__peer *p, const struct ntx_attach_msg *m)
{
    struct ntx_workers *w = p->w;
    on_heard(p);
    switch (m->kind) {
    case NTX_AT_HELLO:
        if (!p->role)
            on_hello(p, m);
        return;
    case NTX_AT_ATTACHED:
        if (p->holds && w->offer.there && m->epoch == w->offer.epoch)
            on_attached(p, m);
        return;
    case NTX_AT_DETACHED:
        p->holds = p->attached = false;
        ntx__ring_close(&p->ring); /* duplicated again with the next region */
        ntx__workers_check_detached(w);
        return;
    default: /* a kind that only ntx-computed sends */ ntx__peer_expel(p, "it sent a message that no worker sends");
    }
}

static void on_socket(uv_poll_t *h, int status, int events)
{
    struct ntx__peer *p = h->data;
    struct ntx_attach_msg m;
    int fds[NTX_ATTACH_MAX_FDS], rc = status;
    unsigned n;
    (void)events;
    while (!p->closing && !p->leaving) {
        if (!status)
            rc = ntx_attach_recv(p->sock, &m, fds, &n);
        if (rc == -EAGAIN)
            return;
        if (rc == -EPROTO && !p->role)
            ntx__peer_refuse(p, true, "it does not speak version %u of the attach protocol", NTX_ATTACH_VERSION);
        else if (rc <= 0)
            kill_peer(p);
        else
            on_message(p, &m);
        while (rc > 0 && n) /* workers have no reason to send any */
            close(fds[--n]);
    }
}

/* ---- new and admit */

/* Workers send HELLO at once, so the oldest silent newcomer makes room. False: all wait for their predecessors. */
static bool room_for_newcomer(struct ntx_workers *w)
{
    struct ntx__peer *first = NULL;
    unsigned n = 0;
    for (struct ntx__peer *p = w->newcomers; p; p = p->next, n++)
        if (!p->wants)
            first = p;
    if (n >= NTX__NEWCOMERS && first)
        ntx__peer_close(first);
    return n < NTX__NEWCOMERS || first;
}

int ntx__peer_new(struct ntx_workers *w, int sock, const struct ucred *who)
{
    struct ntx__peer *p = room_for_newcomer(w) ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return -ENOMEM;
    p->w = w;
    p->sock = sock;
    p->pid = who->pid;
    p->uid = who->uid;
    p->pidfd = peer_pidfd(sock, who->pid);
    p->sock_poll.data = p->pid_poll.data = p;
    int rc = uv_poll_init(w->loop, &p->sock_poll, sock);
    if (rc) {
        if (p->pidfd >= 0)
            close(p->pidfd);
        free(p);
        return rc;
    }
    p->handles = 1;
    if (p->pidfd >= 0 && !uv_poll_init(w->loop, &p->pid_poll, p->pidfd)) {
        p->handles = 2;
    } else if (p->pidfd >= 0) {
        close(p->pidfd);
        p->pidfd = -1;
    }
    uv_poll_start(&p->sock_poll, UV_READABLE, on_socket);
    p->next = w->newcomers;
    w->newcomers = p;
    return 0;
}

void ntx__peer_admit(struct ntx__peer *p, enum ntx_role role)
{
    struct ntx_workers *w = p->w;
    bool iod = role == NTX_ROLE_IOD;
    char address[128];
    struct ntx_err err;
    uint32_t instance = ++w->instance[role];
    ntx_link_address(address, sizeof address, w->dir, iod ? "ci" : "cp", instance, 0);
    if (ntx_link_open(w->loop, address, true, on_link, p, &p->link, &err)) {
        ntx__peer_refuse(p, false, "%s", err.text);
        tell_peers(w);
        return;
    }
    struct ntx_attach_msg m = {.kind = NTX_AT_WELCOME, .role = role, .instance = instance};
    if (ntx_attach_send(p->sock, &m, &w->counters_fd, 1)) {
        ntx__peer_close(p);
        tell_peers(w);
        return;
    }
    unlink_newcomer(p);
    p->role = role;
    p->wants = 0;
    p->instance = instance;
    w->worker[role] = p;
    if (p->pidfd >= 0)
        uv_poll_start(&p->pid_poll, UV_READABLE, on_pidfd);
    ntx_count(w->counters, iod ? NTX_C_iod_starts : NTX_C_pred_starts, 1);
    on_heard(p);
    if (w->cb.admitted)
        w->cb.admitted(w->cb.ctx, role);
    tell_peers(w);
    ntx__trials_admitted(p);
}
