#include "iod/daemon.h"

#include <errno.h>
#include <ntx_version.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "common/util.h"
#include "iod/reader.h"
#include "proto/attach.h"
#include "proto/link.h"

#define CONNECT_MS 10000 /* computed may start at the same time as we */
#define SLICE_MS 100
#define HELLO_MS 100
#define HELLO_SOON_MS 5  /* while the link is not up */
#define DRAIN_MS 10000

struct iod {
    const struct ntx_iod_options *options;
    struct ntx_err *err;
    int rc;
    uv_loop_t loop;
    uv_poll_t attach, alive;
    uv_signal_t term, interrupt;
    uv_timer_t hello;
    int sock;
    uint32_t instance, predictor_instance;
    struct ntx_link *computed, *predictor;
    struct ntx_counters *counters;
    struct ntx_reader *reader; /* NULL while no region is attached */
    uint64_t epoch;
    bool detaching;            /* DETACHED is owed when the reader is closed */
    bool ending;
};

/* ---- the end */

static void end(struct iod *d, int rc)
{
    if (d->ending)
        return;
    d->ending = true;
    d->rc = rc;
    if (d->reader)
        ntx_reader_stop(d->reader, DRAIN_MS);
    else
        uv_stop(&d->loop);
}

static void answer(struct iod *d, struct ntx_attach_msg *m)
{
    m->role = NTX_ROLE_IOD;
    int rc = ntx_attach_send(d->sock, m, NULL, 0);
    if (rc)
        end(d, ntx_err_set(d->err, rc, "cannot answer ntx-computed: %s", strerror(-rc)));
}

static void set_epoch(struct iod *d, uint64_t epoch)
{
    d->epoch = epoch;
    ntx_link_set_epoch(d->computed, epoch);
    if (d->predictor)
        ntx_link_set_epoch(d->predictor, epoch);
}

static void send_detached(struct iod *d, uint64_t epoch)
{
    struct ntx_attach_msg m = {.kind = NTX_AT_DETACHED, .epoch = epoch};
    d->detaching = false;
    answer(d, &m);
}

static void on_reader_closed(void *ctx)
{
    struct iod *d = ctx;
    uint64_t epoch = d->epoch;
    d->reader = NULL;
    set_epoch(d, 0);
    if (d->ending)
        uv_stop(&d->loop);
    else if (d->detaching)
        send_detached(d, epoch);
}

/* ---- links */

static void on_told(void *ctx, const struct ntx_iod_failure *f, const char *text)
{
    struct iod *d = ctx;
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__IodError e = NTX__IOD_ERROR__INIT;
    m.body_case = NTX__PEER__BODY_IOD_ERROR;
    m.iod_error = &e;
    e.chunk = f ? f->chunk : UINT32_MAX;
    e.file = f && f->file < NTX_MAX_FILES ? f->file : UINT32_MAX;
    e.offset = f ? f->offset : 0;
    e.err = f ? f->err : 0;
    e.text = (char *)text;
    if (e.file == UINT32_MAX)
        ntx_log(f ? NTX_LOG_WARN : NTX_LOG_INFO, "%s", text);
    else
        ntx_log(NTX_LOG_WARN, "file %u of the model: %s", e.file, text);
    (void)ntx_link_send(d->computed, &m); /* the word carries the fact; losing this loses the words for it */
}

static void on_hello_timer(uv_timer_t *t)
{
    struct iod *d = t->data;
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__Hello h = NTX__HELLO__INIT;
    if (!d->reader || d->ending || ntx_reader_configured(d->reader))
        return;
    m.body_case = NTX__PEER__BODY_HELLO;
    m.hello = &h;
    h.role = (char *)"iod";
    h.instance = d->instance;
    h.build = (char *)NTX_BUILD;
    int rc = ntx_link_send(d->computed, &m);
    uv_timer_start(t, on_hello_timer, rc ? HELLO_SOON_MS : HELLO_MS, 0);
}

static void on_computed(void *ctx, const Ntx__Peer *m)
{
    struct iod *d = ctx;
    if (m->body_case != NTX__PEER__BODY_IOD_CONFIG || !d->reader)
        return;
    uint64_t start = ntx_counter_get(d->counters, NTX_C_iod_starts);
    struct ntx_reader_config c = {
        .rate_bps = m->iod_config->rate_bps,
        .inflight_bytes = m->iod_config->inflight_bytes,
        .piece_bytes = m->iod_config->piece_bytes,
        .source = m->iod_config->source,
        .fault = m->iod_config->fault,
        .start = start ? (uint32_t)start : 1,
    };
    ntx_reader_configure(d->reader, &c);
}

static void on_predictor(void *ctx, const Ntx__Peer *m)
{
    struct iod *d = ctx;
    if (m->body_case == NTX__PEER__BODY_HINT && d->reader)
        ntx_reader_hint(d->reader, m->hint->pass, m->hint->skip.data, m->hint->skip.len);
}

/* ---- the attach socket */

static void on_peers(struct iod *d, const struct ntx_attach_msg *m)
{
    char path[256];
    struct ntx_err err = {0};
    if (m->predictor_instance == d->predictor_instance)
        return;
    ntx_link_close(d->predictor);
    d->predictor = NULL;
    d->predictor_instance = m->predictor_instance;
    if (!m->predictor_instance)
        return;
    ntx_link_address(path, sizeof(path), d->options->dir, "pi", m->predictor_instance, d->instance);
    if (ntx_link_open(&d->loop, path, false, on_predictor, d, &d->predictor, &err))
        ntx_log(NTX_LOG_WARN, "no hints from ntx-predictor: %s", err.text);
    else
        ntx_link_set_epoch(d->predictor, d->epoch);
}

static void on_attach(struct iod *d, const struct ntx_attach_msg *m, const int *fds, unsigned n_fds)
{
    struct ntx_attach_msg a = {.kind = NTX_AT_ATTACHED, .epoch = m->epoch, .ring_fd = -1};
    struct ntx_reader_hooks hooks = {.ctx = d, .told = on_told, .closed = on_reader_closed};
    struct ntx_err err = {0};
    if (d->reader) {
        end(d, ntx_err_set(d->err, -EPROTO, "ntx-computed handed over a region before the old one was let go"));
        for (unsigned i = 0; i < n_fds; i++)
            close(fds[i]);
        return;
    }
    if (ntx_reader_open(&d->loop, d->options->ring, fds, n_fds, m->epoch, d->counters, &hooks, &d->reader, &err)) {
        ntx_log(NTX_LOG_ERR, "%s", err.text);
        snprintf(a.text, sizeof(a.text), "%.*s", (int)sizeof(a.text) - 1, err.text);
    } else {
        struct ntx_source_ring ring = ntx_reader_ring(d->reader);
        a.ring_fd = ring.fd;
        a.ring_bytes = ring.bytes;
        a.ring_sq_head = ring.sq_head;
        a.ring_cq_tail = ring.cq_tail;
        set_epoch(d, m->epoch);
    }
    answer(d, &a);
    on_hello_timer(&d->hello);
}

static void on_detach(struct iod *d, const struct ntx_attach_msg *m)
{
    if (!d->reader || m->epoch != d->epoch) {
        send_detached(d, m->epoch);
        return;
    }
    d->detaching = true;
    ntx_reader_stop(d->reader, 0);
}

static void on_message(struct iod *d, const struct ntx_attach_msg *m, const int *fds, unsigned n_fds)
{
    switch (m->kind) {
    case NTX_AT_PEERS:
        on_peers(d, m);
        break;
    case NTX_AT_ATTACH:
        on_attach(d, m, fds, n_fds);
        break;
    case NTX_AT_DETACH:
        on_detach(d, m);
        break;
    default:
        end(d, ntx_err_set(d->err, -EPROTO, "ntx-computed sent message %u, which an iod does not expect", m->kind));
    }
}

static void on_attach_socket(uv_poll_t *h, int status, int events)
{
    struct iod *d = h->data;
    struct ntx_attach_msg m;
    int fds[NTX_ATTACH_MAX_FDS], rc = 0;
    unsigned n;
    (void)status;
    (void)events;
    while (!d->ending && (rc = ntx_attach_recv(d->sock, &m, fds, &n)) > 0) {
        on_message(d, &m, fds, n);
    }
    if (d->ending || rc == -EAGAIN) {
        if (d->ending)
            uv_poll_stop(h);
        return;
    }
    uv_poll_stop(h);
    if (rc)
        end(d, ntx_err_set(d->err, rc, "bad message from ntx-computed: %s", strerror(-rc)));
    else
        end(d, 0); /* it died, or lets us go */
}

/* ---- life */

static void on_signal(uv_signal_t *h, int number)
{
    (void)number;
    end(h->data, 0);
}

/* Nothing is ever written to that pipe: anything that can be read is its end. */
static void on_alive(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    uv_poll_stop(h);
    end(h->data, 0);
}

static bool supervisor_gone(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return fd >= 0 && poll(&p, 1, 0) > 0;
}

/* In slices, so that the end of the supervisor is noticed. */
static int connect_computed(struct iod *d)
{
    uint64_t give_up = ntx_now_ns() + CONNECT_MS * 1000000ull;
    int counters = -1, rc;
    do
        rc = ntx_attach_connect(d->options->dir, NTX_ROLE_IOD, SLICE_MS, &d->instance, &counters, d->err);
    while ((rc == -ENOENT || rc == -ECONNREFUSED || rc == -EAGAIN) && ntx_now_ns() < give_up && !supervisor_gone(d->options->alive_fd));
    if (rc < 0)
        return rc;
    d->sock = rc;
    rc = ntx_counters_map(counters, &d->counters, d->err);
    close(counters);
    if (!rc)
        ntx_gauge(d->counters, NTX_C_iod_pid, (uint64_t)getpid());
    return rc;
}

/* computed takes a duplicate of our ring by pidfd_getfd, which the Yama module allows only to whom we name. */
static void allow_duplicate(int sock)
{
    struct ucred peer;
    socklen_t n = sizeof(peer);
    if (!getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &n))
        (void)prctl(PR_SET_PTRACER, peer.pid, 0, 0, 0); /* EINVAL without Yama: then there is no need */
}

static int watch(struct iod *d)
{
    char path[256];
    ntx_link_address(path, sizeof(path), d->options->dir, "ci", d->instance, 0);
    int rc = ntx_link_open(&d->loop, path, false, on_computed, d, &d->computed, d->err);
    if (rc)
        return rc;
    uv_timer_init(&d->loop, &d->hello);
    uv_signal_init(&d->loop, &d->term);
    uv_signal_init(&d->loop, &d->interrupt);
    d->attach.data = d->alive.data = d->term.data = d->interrupt.data = d->hello.data = d;
    if ((rc = uv_poll_init(&d->loop, &d->attach, d->sock)))
        return ntx_err_set(d->err, rc, "region.sock: %s", uv_strerror(rc));
    uv_poll_start(&d->attach, UV_READABLE | UV_DISCONNECT, on_attach_socket);
    if (d->options->alive_fd >= 0) {
        if ((rc = uv_poll_init(&d->loop, &d->alive, d->options->alive_fd)))
            return ntx_err_set(d->err, rc, "--alive-fd %d: %s", d->options->alive_fd, uv_strerror(rc));
        uv_poll_start(&d->alive, UV_READABLE | UV_DISCONNECT, on_alive);
    }
    uv_signal_start(&d->term, on_signal, SIGTERM);
    uv_signal_start(&d->interrupt, on_signal, SIGINT);
    return 0;
}

static void close_handle(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

static void clean_up(struct iod *d)
{
    ntx_link_close(d->computed);
    ntx_link_close(d->predictor);
    uv_walk(&d->loop, close_handle, NULL); /* ours: the links and the reader have closed theirs */
    uv_run(&d->loop, UV_RUN_DEFAULT);
    uv_loop_close(&d->loop);
    if (d->sock >= 0)
        close(d->sock);
    ntx_counters_close(d->counters);
}

int ntx_iod_run(const struct ntx_iod_options *o, struct ntx_err *err)
{
    struct iod d = {.options = o, .err = err, .sock = -1};
    int rc = uv_loop_init(&d.loop);
    if (rc)
        return ntx_err_set(err, rc, "no event loop: %s", uv_strerror(rc));
    ntx_notify("READY=1\nSTATUS=waiting for ntx-computed"); /* started after us, so that it is stopped before us */
    rc = connect_computed(&d);
    if (!rc)
        rc = watch(&d);
    if (!rc) {
        allow_duplicate(d.sock);
        ntx_log(NTX_LOG_INFO, "attached as instance %u", d.instance);
        ntx_notify("STATUS=attached to ntx-computed");
        uv_run(&d.loop, UV_RUN_DEFAULT);
        rc = d.rc;
    } else if (supervisor_gone(o->alive_fd)) {
        rc = 0;
    }
    clean_up(&d);
    return rc;
}
