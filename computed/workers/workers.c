/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket and the public calls. */
#include "computed/workers/workers.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/workers/workers_impl.h"

#define DRAIN_LOOK_MS      5
#define DETACH_PATIENCE_MS 5000
#define PING_AGAIN         4 /* ping calls until a silent worker is pinged again: a stopped one gets no pile of them */

static void for_workers(struct ntx_workers *w, void (*fn)(struct ntx__peer *p))
{
    for (int role = 1; role < NTX__ROLES; role++)
        if (w->worker[role])
            fn(w->worker[role]);
}

/* ---- connections */

static void accept_peer(struct ntx_workers *w, int sock)
{
    struct ucred who = {0};
    socklen_t n = sizeof who;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &n) || ntx__peer_new(w, sock, &who))
        close(sock);
}

static void on_listen(uv_poll_t *h, int status, int events)
{
    struct ntx_workers *w = h->data;
    int sock;
    (void)events;
    while (status >= 0 && (sock = accept4(w->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
        accept_peer(w, sock);
}

/* Removes a socket that a killed ntx-computed left. The caller makes sure that none runs here. */
static int listen_at(const char *dir, int *out, struct ntx_err *err)
{
    struct sockaddr_un a;
    int s = ntx_attach_socket(dir, &a, err);
    if (s < 0)
        return s;
    unlink(a.sun_path);
    /* Connecting fails before listen(), so the mode holds from the first moment. */
    if (bind(s, (struct sockaddr *)&a, sizeof a) || chmod(a.sun_path, 0600) || listen(s, 16)) {
        int rc = ntx_err_set(err, -errno, "%s: %s", a.sun_path, strerror(errno));
        close(s);
        return rc;
    }
    *out = s;
    return 0;
}

/* ---- reads of dead ntx-iods */

void ntx__workers_check_drained(struct ntx_workers *w)
{
    for (unsigned i = 0; i < w->n_dead_rings;)
        if (ntx__ring_drained(&w->dead_rings[i])) {
            ntx__ring_close(&w->dead_rings[i]);
            w->dead_rings[i] = w->dead_rings[--w->n_dead_rings];
        } else {
            i++;
        }
    if (w->n_dead_rings) {
        uv_timer_again(&w->drain_timer);
        return;
    }
    uv_timer_stop(&w->drain_timer);
    if (!w->unproved && w->cb.drained)
        w->cb.drained(w->cb.ctx);
}

static void on_drain_timer(uv_timer_t *t) { ntx__workers_check_drained(t->data); }

/* Drops the rings: their region is not used again, and the kernel keeps its pages as long as it needs them. */
static void forget_rings(struct ntx_workers *w)
{
    while (w->n_dead_rings)
        ntx__ring_close(&w->dead_rings[--w->n_dead_rings]);
    free(w->dead_rings);
    w->dead_rings = NULL;
    w->unproved = false;
    uv_timer_stop(&w->drain_timer);
}

/* ---- attach and detach */

static bool is_held(const struct ntx_workers *w)
{
    for (int role = 1; role < NTX__ROLES; role++)
        if (w->worker[role] && w->worker[role]->holds)
            return true;
    return false;
}

static void expel_holder(struct ntx__peer *p)
{
    if (p->holds)
        ntx__peer_expel(p, "it did not let go of the model within 5 s");
}

static void on_detach_timer(uv_timer_t *t)
{
    struct ntx_workers *w = t->data;
    if (!w->detaching)
        return;
    if (!is_held(w)) {
        w->detaching = false;
        if (w->cb.detached)
            w->cb.detached(w->cb.ctx);
    } else if (w->detach_overdue) {
        for_workers(w, expel_holder);
    } else {
        w->detach_overdue = true;
        uv_timer_start(t, on_detach_timer, DETACH_PATIENCE_MS, 0);
    }
}

void ntx__workers_check_detached(struct ntx_workers *w)
{
    if (w->detaching && !is_held(w))
        uv_timer_start(&w->detach_timer, on_detach_timer, 0, 0);
}

int ntx_workers_attach(struct ntx_workers *w, const struct ntx_region *r, int wake_fd, const int *files,
                       unsigned n_files)
{
    struct ntx__region_offer *o = &w->offer;
    if (o->there || w->detaching)
        return -EBUSY;
    if (!n_files || n_files > NTX_MAX_FILES)
        return -EINVAL;
    *o = (struct ntx__region_offer){
        .there = true, .epoch = r->hdr->epoch, .n_files = n_files, .board = r->board.part.fd};
    for (int i = 0; i < NTX_REGION_PARTS; i++)
        o->to_iod[i] = r->part[i].fd;
    o->to_iod[NTX_REGION_PARTS] = wake_fd;
    memcpy(o->to_iod + NTX_IOD_FDS, files, n_files * sizeof *files);
    ntx__trials_begin(w);
    for_workers(w, ntx__peer_offer);
    return 0;
}

void ntx_workers_sidecar(struct ntx_workers *w, int fd) { w->sidecar = fd; }

void ntx_workers_drafters(struct ntx_workers *w, const int (*fds)[NTX_DRAFTER_FDS], unsigned n)
{
    w->n_drafters = n;
    if (n)
        memcpy(w->drafter, fds, n * sizeof *fds);
}

static void send_detach(struct ntx__peer *p)
{
    struct ntx_attach_msg m = {.kind = NTX_AT_DETACH, .epoch = p->w->offer.epoch};
    if (p->holds && !p->leaving && ntx_attach_send(p->sock, &m, NULL, 0))
        ntx__peer_expel(p, "it takes no messages");
}

void ntx_workers_detach(struct ntx_workers *w)
{
    if (!w->offer.there)
        return;
    for_workers(w, send_detach);
    w->offer.there = false;
    ntx__trials_end(w);
    forget_rings(w);
    w->detaching = true;
    w->detach_overdue = false;
    uv_timer_start(&w->detach_timer, on_detach_timer, 0, 0);
}

bool ntx_workers_holder(const struct ntx_workers *w, char *buf, size_t n)
{
    for (int role = 1; w->detaching && role < NTX__ROLES; role++)
        if (w->worker[role] && w->worker[role]->holds)
            return snprintf(buf, n, "%s (pid %d)", ntx__role_name(role), (int)w->worker[role]->pid) > 0;
    return false;
}

bool ntx_workers_unproved(const struct ntx_workers *w) { return w->unproved; }

bool ntx_workers_present(const struct ntx_workers *w, enum ntx_role role)
{
    return w->worker[role] && !w->worker[role]->leaving;
}

pid_t ntx_workers_pid(const struct ntx_workers *w, enum ntx_role role)
{
    return ntx_workers_present(w, role) ? w->worker[role]->pid : 0;
}

static void ping_peer(struct ntx__peer *p)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__Ping body = NTX__PING__INIT;
    if (!p->attached || p->leaving || p->unanswered++ % PING_AGAIN)
        return;
    m.body_case = NTX__PEER__BODY_PING;
    m.ping = &body;
    body.count = ++p->pings;
    (void)ntx_link_send(p->link, &m);
}

void ntx_workers_ping(struct ntx_workers *w) { for_workers(w, ping_peer); }

int ntx_workers_send(struct ntx_workers *w, enum ntx_role role, Ntx__Peer *m)
{
    return ntx_workers_present(w, role) ? ntx_link_send(w->worker[role]->link, m) : -ENOTCONN;
}

/* ---- new and free */

static void on_workers_closed(uv_handle_t *h)
{
    struct ntx_workers *w = h->data;
    if (!--w->handles)
        free(w);
}

static void close_all(struct ntx_workers *w)
{
    uv_close((uv_handle_t *)&w->listen_poll, on_workers_closed);
    uv_close((uv_handle_t *)&w->drain_timer, on_workers_closed);
    uv_close((uv_handle_t *)&w->detach_timer, on_workers_closed);
    for (enum ntx_role role = NTX_ROLE_IOD; role <= NTX_ROLE_PREDICTOR; role++)
        uv_close((uv_handle_t *)&w->trials[role].timer, on_workers_closed);
}

int ntx_workers_new(uv_loop_t *loop, const char *dir, int counters_fd, struct ntx_counters *counters,
                    const struct ntx_workers_cb *cb, struct ntx_workers **out, struct ntx_err *err)
{
    struct ntx_workers *w = calloc(1, sizeof *w);
    if (!w)
        return ntx_err_set(err, -ENOMEM, "no memory for the workers");
    int rc = listen_at(dir, &w->listen_fd, err);
    if (rc) {
        free(w);
        return rc;
    }
    w->loop = loop;
    w->sidecar = -1;
    ntx_workers_drafters(w, NULL, 0);
    w->cb = *cb;
    snprintf(w->dir, sizeof w->dir, "%s", dir);
    w->counters_fd = counters_fd;
    w->counters = counters;
    w->listen_poll.data = w->drain_timer.data = w->detach_timer.data = w;
    /* Numbers that the last ntx-computed did not use: its workers may still be ending. */
    w->instance[NTX_ROLE_IOD] = w->instance[NTX_ROLE_PREDICTOR] = (uint32_t)getpid() % 100000 * 10000;
    if ((rc = uv_poll_init(loop, &w->listen_poll, w->listen_fd))) {
        ntx_err_set(err, rc, "cannot watch the workers' socket: %s", uv_strerror(rc));
        close(w->listen_fd);
        free(w);
        return rc;
    }
    uv_timer_init(loop, &w->drain_timer);
    uv_timer_init(loop, &w->detach_timer);
    w->handles = 3;
    for (enum ntx_role role = NTX_ROLE_IOD; role <= NTX_ROLE_PREDICTOR; role++, w->handles++) {
        uv_timer_init(loop, &w->trials[role].timer);
        w->trials[role].timer.data = w;
        ntx__trials_forget_end(w, role);
    }
    /* sets the period for uv_timer_again */
    uv_timer_start(&w->drain_timer, on_drain_timer, DRAIN_LOOK_MS, DRAIN_LOOK_MS);
    uv_timer_stop(&w->drain_timer);
    if ((rc = uv_poll_start(&w->listen_poll, UV_READABLE, on_listen))) {
        ntx_err_set(err, rc, "cannot watch the workers' socket: %s", uv_strerror(rc));
        close_all(w);
        close(w->listen_fd);
        return rc;
    }
    *out = w;
    return 0;
}

void ntx_workers_free(struct ntx_workers *w)
{
    char path[sizeof w->dir + 16];
    if (!w)
        return;
    for_workers(w, ntx__peer_close);
    while (w->newcomers)
        ntx__peer_close(w->newcomers);
    if (w->offer.there)
        forget_rings(w);
    ntx__workers_unlink_pair(w);
    ntx__trials_forget_end(w, NTX_ROLE_IOD);
    ntx__trials_forget_end(w, NTX_ROLE_PREDICTOR);
    snprintf(path, sizeof path, "%s/region.sock", w->dir);
    unlink(path);
    close_all(w);
    close(w->listen_fd);
}
