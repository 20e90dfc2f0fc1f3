/* SPDX-License-Identifier: Apache-2.0 */
#include "iod/daemon.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <uv.h>

#include "common/util.h"
#include "iod/reader.h"
#include "proto/worker.h"

#define HELLO_MS      100
#define HELLO_SOON_MS 5 /* while the link is not connected */
#define DRAIN_MS      10000

struct iod {
    struct ntx_worker w;
    const struct ntx_iod_options *options;
    struct ntx_err *err;
    uv_timer_t hello;
    struct ntx_reader *reader; /* NULL while no region is attached */
    bool detaching;            /* send DETACHED when the reader is closed */
};

/* Lets the reads in flight finish. */
static bool on_ending(void *ctx)
{
    struct iod *d = ctx;
    if (d->reader)
        ntx_reader_stop(d->reader, DRAIN_MS);
    return d->reader;
}

static void send_detached(struct iod *d, uint64_t epoch)
{
    struct ntx_attach_msg m = {.kind = NTX_AT_DETACHED, .epoch = epoch};
    d->detaching = false;
    ntx_worker_answer(&d->w, &m);
}

static void on_reader_closed(void *ctx)
{
    struct iod *d = ctx;
    uint64_t epoch = d->w.epoch;
    d->reader = NULL;
    ntx_worker_epoch(&d->w, 0);
    if (d->w.ended)
        ntx_worker_stop(&d->w);
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
    (void)ntx_link_send(d->w.computed, &m); /* the state word carries the failure; a lost message loses only the text */
}

static void on_hello_timer(uv_timer_t *t)
{
    struct iod *d = t->data;
    if (!d->reader || d->w.ended || ntx_reader_configured(d->reader))
        return;
    int rc = ntx_worker_hello(&d->w);
    uv_timer_start(t, on_hello_timer, rc ? HELLO_SOON_MS : HELLO_MS, 0);
}

static void on_computed(void *ctx, const Ntx__Peer *m)
{
    struct iod *d = ctx;
    if (m->body_case != NTX__PEER__BODY_IOD_CONFIG || !d->reader)
        return;
    uint64_t start = ntx_counter_get(d->w.counters, NTX_C_iod_starts);
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

static void on_attach(void *ctx, const struct ntx_attach_msg *m, int *fds, unsigned n_fds)
{
    struct iod *d = ctx;
    struct ntx_attach_msg a = {.kind = NTX_AT_ATTACHED, .epoch = m->epoch, .ring_fd = -1};
    struct ntx_reader_hooks hooks = {.ctx = d, .told = on_told, .closed = on_reader_closed};
    struct ntx_err err = {0};
    if (d->reader) {
        ntx_worker_end(&d->w,
                       ntx_err_set(d->err, -EPROTO, "ntx-computed handed over a region before the old one was let go"));
        return;
    }
    int rc = ntx_reader_open(&d->w.loop, d->options->ring, fds, n_fds, m->epoch, d->w.counters, &hooks, &d->reader,
                             &err);
    memset(fds, 0xff, n_fds * sizeof *fds); /* the reader owns them */
    if (rc) {
        ntx_log(NTX_LOG_ERR, "%s", err.text);
        snprintf(a.text, sizeof(a.text), "%.*s", (int)sizeof(a.text) - 1, err.text);
    } else {
        struct ntx_source_ring ring = ntx_reader_ring(d->reader);
        a.ring_fd = ring.fd;
        a.ring_bytes = ring.bytes;
        a.ring_sq_head = ring.sq_head;
        a.ring_cq_tail = ring.cq_tail;
        ntx_worker_epoch(&d->w, m->epoch);
    }
    ntx_worker_answer(&d->w, &a);
    on_hello_timer(&d->hello);
}

static void on_detach(void *ctx, const struct ntx_attach_msg *m)
{
    struct iod *d = ctx;
    if (!d->reader || m->epoch != d->w.epoch) {
        send_detached(d, m->epoch);
        return;
    }
    d->detaching = true;
    ntx_reader_stop(d->reader, 0);
}

/* ---- life */

/* computed duplicates our ring by pidfd_getfd. The Yama module allows that only to a process that we name. */
static void allow_duplicate(int sock)
{
    struct ucred peer;
    socklen_t n = sizeof(peer);
    if (!getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &n))
        (void)prctl(PR_SET_PTRACER, peer.pid, 0, 0, 0); /* EINVAL without Yama, where it is not needed */
}

static int on_begin(void *ctx)
{
    struct iod *d = ctx;
    allow_duplicate(d->w.sock);
    d->hello.data = d;
    return uv_timer_init(&d->w.loop, &d->hello);
}

int ntx_iod_run(const struct ntx_iod_options *o, struct ntx_err *err)
{
    static const struct ntx_worker_kind kind = {
        .role = NTX_ROLE_IOD,
        .name = "iod",
        .computed = "ci",
        .hints = "hints from ntx-predictor",
        .pid = NTX_C_iod_pid,
        .attach = on_attach,
        .detach = on_detach,
        .from_computed = on_computed,
        .from_other = on_predictor,
        .begin = on_begin,
        .ending = on_ending,
    };
    struct iod d = {.options = o, .err = err};
    return ntx_worker_run(&d.w, &kind, &d, o->dir, o->alive_fd, err);
}
