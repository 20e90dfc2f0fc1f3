/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/worker.h"

#include <errno.h>
#include <ntx_version.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"

#define CONNECT_MS 10000 /* computed may start at the same time */
#define SLICE_MS   100

/* ---- the end */

void ntx_worker_stop(struct ntx_worker *w) { uv_stop(&w->loop); }

void ntx_worker_end(struct ntx_worker *w, int rc)
{
    if (w->ended)
        return;
    w->ended = true;
    w->rc = rc;
    if (!w->kind->ending || !w->kind->ending(w->ctx))
        ntx_worker_stop(w);
}

static void on_signal(uv_signal_t *h, int number)
{
    (void)number;
    ntx_worker_end(h->data, 0);
}

/* Nothing is written to this pipe, so a readable pipe is at its end. */
static void on_alive(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    uv_poll_stop(h);
    ntx_worker_end(h->data, 0);
}

static bool supervisor_gone(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return fd >= 0 && poll(&p, 1, 0) > 0;
}

/* ---- links */

void ntx_worker_epoch(struct ntx_worker *w, uint64_t epoch)
{
    w->epoch = epoch;
    ntx_link_set_epoch(w->computed, epoch);
    if (w->other)
        ntx_link_set_epoch(w->other, epoch);
}

int ntx_worker_hello(struct ntx_worker *w)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__Hello h = NTX__HELLO__INIT;
    m.body_case = NTX__PEER__BODY_HELLO;
    m.hello = &h;
    h.role = (char *)(uintptr_t)w->kind->name;
    h.instance = w->instance;
    h.build = (char *)NTX_BUILD;
    return ntx_link_send(w->computed, &m);
}

/* The answer shows that the loop runs. */
static void answer_ping(struct ntx_worker *w, const Ntx__Ping *ping)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__Ping back = NTX__PING__INIT;
    m.body_case = NTX__PEER__BODY_PONG;
    m.pong = &back;
    back.count = ping->count;
    (void)ntx_link_send(w->computed, &m); /* if it is lost, the next ping comes in a second */
}

static void on_computed(void *ctx, const Ntx__Peer *m)
{
    struct ntx_worker *w = ctx;
    if (m->body_case == NTX__PEER__BODY_PING) {
        answer_ping(w, m->ping);
        return;
    }
    w->kind->from_computed(w->ctx, m);
}

static void on_other(void *ctx, const Ntx__Peer *m)
{
    struct ntx_worker *w = ctx;
    if (w->kind->from_other)
        w->kind->from_other(w->ctx, m);
}

/* The predictor binds the link between the two. */
static void on_peers(struct ntx_worker *w, const struct ntx_attach_msg *m)
{
    char path[256];
    struct ntx_err err = {0};
    bool binds = w->kind->role == NTX_ROLE_PREDICTOR;
    uint32_t other = binds ? m->iod_instance : m->predictor_instance;
    if (other == w->other_instance)
        return;
    ntx_link_close(w->other);
    w->other = NULL;
    w->other_instance = other;
    if (!other)
        return;
    ntx_link_address(path, sizeof path, w->dir, "pi", binds ? w->instance : other, binds ? other : w->instance);
    if (ntx_link_open(&w->loop, path, binds, on_other, w, &w->other, &err))
        ntx_log(NTX_LOG_WARN, "no %s: %s", w->kind->hints, err.text);
    else
        ntx_link_set_epoch(w->other, w->epoch);
}

/* ---- the attach socket */

void ntx_worker_answer(struct ntx_worker *w, struct ntx_attach_msg *m)
{
    m->role = w->kind->role;
    int rc = ntx_attach_send(w->sock, m, NULL, 0);
    if (rc)
        ntx_worker_end(w, ntx_err_set(w->err, rc, "cannot answer ntx-computed: %s", strerror(-rc)));
}

static void on_message(struct ntx_worker *w, const struct ntx_attach_msg *m, int *fds, unsigned n_fds)
{
    switch (m->kind) {
    case NTX_AT_PEERS: on_peers(w, m); break;
    case NTX_AT_ATTACH: w->kind->attach(w->ctx, m, fds, n_fds); break;
    case NTX_AT_DETACH: w->kind->detach(w->ctx, m); break;
    default:
        ntx_worker_end(w, ntx_err_set(w->err, -EPROTO, "ntx-computed sent message %u, which ntx-%s does not expect",
                                      m->kind, w->kind->name));
    }
    for (unsigned i = 0; i < n_fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static void on_attach_socket(uv_poll_t *h, int status, int events)
{
    struct ntx_worker *w = h->data;
    struct ntx_attach_msg m;
    int fds[NTX_ATTACH_MAX_FDS], rc = 0;
    unsigned n;
    (void)status;
    (void)events;
    while (!w->ended && (rc = ntx_attach_recv(w->sock, &m, fds, &n)) > 0)
        on_message(w, &m, fds, n);
    if (!w->ended && rc == -EAGAIN)
        return;
    uv_poll_stop(h);
    if (w->ended)
        return;
    if (!rc)
        ntx_log(NTX_LOG_INFO, "ntx-computed is gone"); /* it died or ended */
    ntx_worker_end(w, rc ? ntx_err_set(w->err, rc, "bad message from ntx-computed: %s", strerror(-rc)) : 0);
}

/* ---- life */

/* In short slices, so that the end of the supervisor is noticed. */
static int connect_computed(struct ntx_worker *w)
{
    uint64_t give_up = ntx_now_ns() + CONNECT_MS * 1000000ull;
    int counters = -1, rc;
    do
        rc = ntx_attach_connect(w->dir, w->kind->role, SLICE_MS, &w->instance, &counters, w->err);
    while ((rc == -ENOENT || rc == -ECONNREFUSED || rc == -EAGAIN) && ntx_now_ns() < give_up &&
           !supervisor_gone(w->alive_fd));
    if (rc < 0)
        return rc;
    w->sock = rc;
    rc = ntx_counters_map(counters, &w->counters, w->err);
    close(counters);
    if (!rc)
        ntx_gauge(w->counters, w->kind->pid, (uint64_t)getpid());
    return rc;
}

static int watch_events(struct ntx_worker *w)
{
    char path[256];
    ntx_link_address(path, sizeof path, w->dir, w->kind->computed, w->instance, 0);
    int rc = ntx_link_open(&w->loop, path, false, on_computed, w, &w->computed, w->err);
    if (rc)
        return rc;
    uv_signal_init(&w->loop, &w->term);
    uv_signal_init(&w->loop, &w->interrupt);
    w->attach.data = w->alive.data = w->term.data = w->interrupt.data = w;
    if ((rc = uv_poll_init(&w->loop, &w->attach, w->sock)))
        return ntx_err_set(w->err, rc, "region.sock: %s", uv_strerror(rc));
    uv_poll_start(&w->attach, UV_READABLE | UV_DISCONNECT, on_attach_socket);
    if (w->alive_fd >= 0) {
        if ((rc = uv_poll_init(&w->loop, &w->alive, w->alive_fd)))
            return ntx_err_set(w->err, rc, "--alive-fd %d: %s", w->alive_fd, uv_strerror(rc));
        uv_poll_start(&w->alive, UV_READABLE | UV_DISCONNECT, on_alive);
    }
    uv_signal_start(&w->term, on_signal, SIGTERM);
    uv_signal_start(&w->interrupt, on_signal, SIGINT);
    return w->kind->begin(w->ctx);
}

static void close_handle(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

static void clean_up(struct ntx_worker *w)
{
    if (w->kind->closing)
        w->kind->closing(w->ctx);
    ntx_link_close(w->computed);
    ntx_link_close(w->other);
    uv_walk(&w->loop, close_handle, NULL); /* the links' handles are closing already */
    uv_run(&w->loop, UV_RUN_DEFAULT);
    uv_loop_close(&w->loop);
    if (w->sock >= 0)
        close(w->sock);
    ntx_counters_close(w->counters);
}

int ntx_worker_run(struct ntx_worker *w, const struct ntx_worker_kind *kind, void *ctx, const char *dir, int alive_fd,
                   struct ntx_err *err)
{
    *w = (struct ntx_worker){.kind = kind, .ctx = ctx, .dir = dir, .alive_fd = alive_fd, .sock = -1, .err = err};
    int rc = uv_loop_init(&w->loop);
    if (rc)
        return ntx_err_set(err, rc, "no event loop: %s", uv_strerror(rc));
    /* systemd starts computed after us, so that it stops it before us */
    ntx_notify("READY=1\nSTATUS=waiting for ntx-computed");
    rc = connect_computed(w);
    if (!rc)
        rc = watch_events(w);
    if (!rc) {
        ntx_log(NTX_LOG_INFO, "attached as instance %u", w->instance);
        ntx_notify("STATUS=attached to ntx-computed");
        uv_run(&w->loop, UV_RUN_DEFAULT);
        rc = w->rc;
    } else if (supervisor_gone(alive_fd)) {
        rc = 0;
    }
    clean_up(w);
    return rc;
}
