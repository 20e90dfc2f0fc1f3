/* SPDX-License-Identifier: Apache-2.0 */
/* Pending loads: a receiver checks the files (fd_receivers.c), then a work thread opens and plans the model. The loaded
 * model serves meanwhile.
 *
 *   Load -> receiver -> verdict -> ntx_load_open -> ntx__model_switch
 *
 * Several loads may be pending. A ready one waits while a model is in transit; one that reloads an old model is dropped
 * if another was faster. The requester may leave at any time: the receiver is killed, or the thread is told to stop.
 * The thread owns its data, so nothing is freed under it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/server/server_impl.h"

#define MOST_OPENED 4   /* loads beyond the receiver: each holds a header and a vocabulary */
#define MOST_STUCK  2   /* threads that wait for a drive: others are needed */
#define OPEN_S      120 /* the receiver has read the header and samples already */

static void unlink_pending_load(struct ntx_pending_load *o)
{
    for (struct ntx_pending_load **p = &o->server->pending_loads; *p; p = &(*p)->next)
        if (*p == o) {
            *p = o->next;
            return;
        }
}

/* Ends a pending load. Requests that waited for it go on. */
static void end_pending_load(struct ntx_pending_load *o)
{
    struct ntx_server *s = o->server;
    unlink_pending_load(o);
    s->closing = false; /* another load that waits sets it again */
    ntx__requester_clear(&o->requester);
    ntx__fd_receiver_end(o->receiver);
    if (o->load)
        ntx__load__free_unpacked(o->load, NULL);
    ntx_load_request_free(o->request);
    ntx_loaded_free(o->loaded);
    free(o);
    ntx__release_parked(s);
    ntx__server_step(s);
}

static void fail_pending_load(struct ntx_pending_load *o, const struct ntx_err *e)
{
    struct ntx_server *s = o->server;
    if (!o->requester.replies && !s->draining && s->state == NTX_MODEL_EMPTY) {
        s->revived = o->revived;
        ntx__load_untold(s, o->load, e);
        s->revived = false;
    }
    ntx__requester_tell(s, &o->requester, e);
    end_pending_load(o);
}

static void open_work(uv_work_t *w)
{
    struct ntx_pending_load *o = w->data;
    o->rc = ntx_load_open(o->request, &o->loaded, &o->err);
}

/* Whether a ready load waits for the end of the present answers. */
static bool waits_for_answers(const struct ntx_pending_load *o)
{
    struct ntx_server *s = o->server;
    if (s->draining || !ntx__answers_run(s) || o->load->when == NTX__WHEN__REFUSE)
        return false;
    if (o->load->when == NTX__WHEN__FORCE && !s->closing)
        ntx_engine_cancel_all(s->engine);
    s->closing |= o->load->when != NTX__WHEN__WAIT;
    return true;
}

/* Switches to a ready load, while no model is in transit. */
static void switch_to(struct ntx_pending_load *o)
{
    struct ntx_server *s = o->server;
    const char *why = ntx__load_refusal(s);
    struct ntx_err e = {0};
    if (waits_for_answers(o))
        return;
    s->closing = false;
    if (why) {
        ntx_err_set(&e, -EBUSY, "%s", why);
        fail_pending_load(o, &e);
        return;
    }
    if (!o->again || s->state == NTX_MODEL_EMPTY) {
        s->revived = o->revived;
        s->loading_ns = o->since_ns;
        ntx__model_switch(s, &o->requester, o->loaded, o->load);
        o->requester = (struct ntx_requester){0};
        o->loaded = NULL;
        o->load = NULL;
    }
    end_pending_load(o);
}

void ntx__pending_loads_go(struct ntx_server *s)
{
    struct ntx_pending_load *first = NULL;
    if (ntx__in_transit(s))
        return;
    for (struct ntx_pending_load *o = s->pending_loads; o; o = o->next)
        if (!o->working && o->loaded && !o->dropped) /* a thread that works sets `loaded` */
            first = o;
    if (first)
        switch_to(first);
}

static void after_open(uv_work_t *w, int status)
{
    struct ntx_pending_load *o = w->data;
    (void)status;
    o->working = false;
    if (o->dropped)
        end_pending_load(o);
    else if (o->rc)
        fail_pending_load(o, &o->err);
    else
        ntx__pending_loads_go(o->server);
}

static void start_work(struct ntx_pending_load *o)
{
    struct ntx_server *s = o->server;
    o->request->reclaim_bytes = s->loaded_bytes;
    o->request->stop = &o->stop;
    o->request->machines = s->c.machines;
    o->work.data = o;
    o->working = true;
    o->work_ns = ntx_now_ns();
    uv_queue_work(s->loop, &o->work, open_work, after_open);
}

static const char *too_many_opened(const struct ntx_server *s)
{
    unsigned n = 0, stuck = 0;
    for (const struct ntx_pending_load *o = s->pending_loads; o; o = o->next) {
        n += o->request || o->loaded;
        stuck += o->stuck;
    }
    if (stuck >= MOST_STUCK)
        return "earlier loads still wait for a drive that does not answer: mend it, or start ntx-computed again";
    return n >= MOST_OPENED ? "too many models are being opened: wait until that is done" : NULL;
}

void ntx__pending_loads_check(struct ntx_server *s)
{
    struct ntx_err e = {0};
    const uint64_t now = ntx_now_ns();
    ntx_err_set(&e, -ETIMEDOUT, "the model could not be opened within %d s: does its drive still answer?", OPEN_S);
    for (struct ntx_pending_load *o = s->pending_loads; o; o = o->next) {
        if (!o->working || o->dropped || now - o->work_ns < OPEN_S * 1000000000ull)
            continue;
        o->stuck = o->dropped = true; /* the thread may still come back */
        atomic_store_explicit(&o->stop, true, memory_order_relaxed);
        ntx__requester_tell(s, &o->requester, &e);
    }
}

/* Starts the work; takes the descriptors over. */
static void begin_work(struct ntx_pending_load *o, const int *fds, unsigned n_fds)
{
    struct ntx_err err = {0};
    if (ntx_load_request_new(o->load, fds, n_fds, &o->request, &err))
        fail_pending_load(o, &err);
    else
        start_work(o);
}

void ntx__pending_load_verdict(struct ntx_pending_load *o, int rc, const char *text, const int *fds, unsigned n_fds)
{
    struct ntx_err err = {0};
    o->receiver = NULL; /* it has ended */
    const char *many = rc ? NULL : too_many_opened(o->server);
    if (many) {
        rc = -EBUSY;
        text = many;
    }
    if (!rc) {
        begin_work(o, fds, n_fds);
        return;
    }
    for (unsigned i = 0; i < n_fds; i++)
        close(fds[i]);
    ntx_err_set(&err, rc, "%s", text);
    fail_pending_load(o, &err);
}

Ntx__Load *ntx__load_copy(const Ntx__Load *m)
{
    size_t n = ntx__load__get_packed_size(m);
    uint8_t *bytes = malloc(n + 1);
    Ntx__Load *copy = NULL;
    if (bytes) {
        ntx__load__pack(m, bytes);
        copy = ntx__load__unpack(NULL, n, bytes);
    }
    free(bytes);
    return copy;
}

static struct ntx_pending_load *pending_load_new(struct ntx_server *s, struct ntx_reply_queue *replies, uint64_t id,
                                                 const Ntx__Load *m)
{
    struct ntx_pending_load *o = calloc(1, sizeof *o);
    Ntx__Load *copy = o ? ntx__load_copy(m) : NULL;
    if (!copy) {
        free(o);
        return NULL;
    }
    *o = (struct ntx_pending_load){.next = s->pending_loads,
                                   .server = s,
                                   .since_ns = ntx_now_ns(),
                                   .requester = {replies ? ntx_reply_queue_ref(replies) : NULL, id},
                                   .load = copy};
    s->pending_loads = o;
    s->had_load = true;
    return o;
}

int ntx__pending_load_new(struct ntx_server *s, struct ntx_conn *c, uint64_t id, const Ntx__Load *m)
{
    struct ntx_fd_receiver *t = c ? c->receiver : NULL;
    bool foreign = c && s->c.service && c->uid && c->uid != geteuid();
    int rc = t ? 0 : ntx__fd_receiver_new(s, NULL, &t);
    if (rc)
        return rc;
    struct ntx_pending_load *o = pending_load_new(s, c ? c->replies : NULL, id, m);
    rc = o ? ntx__fd_receiver_order(t, o, m, foreign) : -ENOMEM;
    if (rc) {
        ntx__fd_receiver_end(t);
        if (o) {
            o->receiver = NULL;
            unlink_pending_load(o);
            ntx__requester_clear(&o->requester);
            ntx__load__free_unpacked(o->load, NULL);
            free(o);
        }
        return rc;
    }
    o->receiver = t;
    return 0;
}

void ntx__pending_load_again(struct ntx_server *s, const Ntx__Load *m, const int *fds, unsigned n_fds, bool revived)
{
    struct ntx_pending_load *o = pending_load_new(s, NULL, 0, m);
    for (unsigned i = 0; !o && i < n_fds; i++)
        close(fds[i]);
    if (!o)
        return;
    for (unsigned i = 0; i < n_fds; i++) /* ntx-iod left them with O_DIRECT, for aligned reads only */
        fcntl(fds[i], F_SETFL, 0);
    o->again = true;
    o->revived = revived;
    begin_work(o, fds, n_fds);
}

/* Drops a load. If a thread works on it, it ends when the thread checks `stop`. */
static void drop_pending_load(struct ntx_pending_load *o)
{
    o->dropped = true;
    if (o->working)
        atomic_store_explicit(&o->stop, true, memory_order_relaxed);
    else
        end_pending_load(o);
}

/* A load of this client, or of any. Ending one may end others, so callers search again each time. */
static struct ntx_pending_load *find_pending_load(const struct ntx_server *s, const struct ntx_reply_queue *replies)
{
    struct ntx_pending_load *o = s->pending_loads;
    while (o && (o->dropped || (replies && o->requester.replies != replies)))
        o = o->next;
    return o;
}

bool ntx__pending_load_of(const struct ntx_server *s, const struct ntx_reply_queue *replies)
{
    return find_pending_load(s, replies);
}

void ntx__pending_loads_drop(struct ntx_server *s, const struct ntx_reply_queue *replies)
{
    for (struct ntx_pending_load *o; (o = find_pending_load(s, replies));)
        drop_pending_load(o);
}

void ntx__pending_loads_stop(struct ntx_server *s)
{
    struct ntx_err e = {0};
    ntx_err_set(&e, -ESHUTDOWN, "ntx-computed is shutting down");
    for (struct ntx_pending_load *o; (o = find_pending_load(s, NULL));) {
        ntx__requester_tell(s, &o->requester, &e);
        drop_pending_load(o);
    }
}
