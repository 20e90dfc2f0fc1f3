/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/server/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/server/server_impl.h"

#define SLOW_MS  1000
#define FLUSH_MS 500 /* for clients to take their last replies */
#define HARD_MS                                                                                                        \
    8000 /* after the grace the loop is left, whatever is open; while a state is being written, after its last byte */
#define LEAVE_MS 4000 /* after that, for the process to end */

static void tell_predictor(struct ntx_server *s, const struct ntx_mail *m)
{
    Ntx__ProbeNotice n = NTX__PROBE_NOTICE__INIT;
    Ntx__Peer p = NTX__PEER__INIT;
    n.index = m->probe_index;
    n.gen = m->probe_gen;
    n.pass = m->pass;
    p.body_case = NTX__PEER__BODY_PROBE;
    p.probe = &n;
    ntx_workers_send(s->workers, NTX_ROLE_PREDICTOR, &p); /* if lost, the engine asks again */
}

static void on_mail(void *ctx, struct ntx_mail *m)
{
    struct ntx_server *s = ctx;
    struct ntx_conn *c;
    switch (m->kind) {
    case NTX_MAIL_REPLY:
        if (s->warm_prefix && m->replies == s->warm_prefix)
            ntx__warm_prefix_reply(s, m->frame + 4, m->len - 4);
        if (!(c = ntx__conn_of(s, m->replies))) {
            ntx__conn_sent(s, m->replies, m->len);
            return;
        }
        c->requests -= m->last && c->requests;
        if (m->last)
            ntx__admission_done(c, m->id);
        ntx__conn_send(c, m->frame, m->len);
        m->frame = NULL;
        return;
    case NTX_MAIL_PROBE: tell_predictor(s, m); return;
    case NTX_MAIL_IDLE:
        ntx__conns_check(s);
        ntx__server_step(s);
        return;
    case NTX_MAIL_GPU_LOST:
        s->lost = "the GPU is lost: ending, so that a new process may find it again";
        ntx_server_shutdown(s, 0); /* the supervisor starts a new process, and only that may get the GPU back */
        return;
    case NTX_MAIL_RANKS_LOST:
        s->lost = "another machine is lost: ending, so that all may be started again";
        ntx_server_shutdown(s, 0);
        return;
    case NTX_MAIL_FOLLOWED: ntx__model_followed(s); return;
    case NTX_MAIL_STOPPED: ntx__model_engine_stopped(s); return;
    }
}

uint64_t ntx__server_awake(struct ntx_server *s)
{
    uint64_t now = ntx_now_ns();
    s->awake_ns += NTX_MIN(now - s->looked_ns, 2 * SLOW_MS * (uint64_t)1000000); /* on_slow calls it every second */
    s->looked_ns = now;
    return s->awake_ns;
}

static void on_hard_end(uv_timer_t *t)
{
    struct ntx_server *s = t->data;
    ntx_log(NTX_LOG_ERR, "the end took too long; leaving");
    s->stuck = true;
    uv_stop(s->loop);
}

/* Makes systemd wait at least so long from now on, whatever TimeoutStopSec says. */
static void extend_stop_timeout(const char *state, uint64_t ms)
{
    char text[80];
    snprintf(text, sizeof text, "%sEXTEND_TIMEOUT_USEC=%llu", state, (unsigned long long)(ms + LEAVE_MS) * 1000);
    ntx_notify(text);
}

/* A state that is being written at shutdown is waited for as long as it grows: a large one on a slow drive takes
 * minutes. */
static void wait_for_state(struct ntx_server *s)
{
    const uint64_t saved = s->draining && s->engine ? ntx_engine_saved(s->engine) : s->saved;
    if (saved == s->saved)
        return;
    s->saved = saved;
    extend_stop_timeout("", HARD_MS);
    if (uv_timer_get_due_in(&s->hard) < HARD_MS)
        uv_timer_start(&s->hard, on_hard_end, HARD_MS, 0);
}

static void on_slow(uv_timer_t *t)
{
    wait_for_state(t->data);
    ntx__health_tick(t->data);
    ntx__conns_check(t->data);
    ntx__fd_receivers_check(t->data);
    ntx__pending_loads_check(t->data);
    ntx__known_tick(t->data);
}

static void on_pulse(uv_timer_t *t)
{
    struct ntx_server *s = t->data;
    if (s->engine && ntx_engine_busy(s->engine))
        ntx_engine_tell_progress(s->engine);
    else
        uv_timer_stop(t);
}

void ntx__server_pulse(struct ntx_server *s)
{
    if (!uv_is_closing((uv_handle_t *)&s->pulse) && !uv_is_active((uv_handle_t *)&s->pulse))
        uv_timer_start(&s->pulse, on_pulse, NTX_PROGRESS_MS, NTX_PROGRESS_MS);
}

static void init_timers(struct ntx_server *s)
{
    uv_timer_t *timers[] = {&s->tick, &s->pulse, &s->slow, &s->grace, &s->hard, &s->again};
    for (unsigned i = 0; i < sizeof timers / sizeof *timers; i++) {
        uv_timer_init(s->loop, timers[i]);
        timers[i]->data = s;
    }
    uv_timer_start(&s->slow, on_slow, SLOW_MS, SLOW_MS);
    uv_unref((uv_handle_t *)&s->slow);
    uv_unref((uv_handle_t *)&s->pulse);
    uv_unref((uv_handle_t *)&s->hard);
    uv_unref((uv_handle_t *)&s->again);
}

/* Epochs of regions must differ between successive daemons in one directory, too: so it is the time since boot, since
 * the wall clock may jump. */
static uint64_t first_epoch(void) { return ntx_now_ns() / 1000; }

static int open_server(struct ntx_server *s, struct ntx_err *err)
{
    struct ntx_workers_cb cb = ntx__worker_callbacks(s);
    int rc = ntx__listen(s, err); /* first: it finds out whether another daemon runs here */
    if (rc)
        return rc;
    ntx__clear_links(s->c.dir);
    if ((rc = ntx_mailbox_new(s->loop, on_mail, s, &s->mail)))
        return ntx_err_set(err, rc, "cannot make the mailbox: %s", uv_strerror(rc));
    if ((rc = ntx_counters_create(s->c.dir, &s->counters, &s->counters_fd, err)))
        return rc;
    ntx_gauge(s->counters, NTX_C_comp_pid, (uint64_t)getpid());
    return ntx_workers_new(s->loop, s->c.dir, s->counters_fd, s->counters, &cb, &s->workers, err);
}

static void close_handles(struct ntx_server *s)
{
    uv_handle_t *timers[] = {(uv_handle_t *)&s->tick,  (uv_handle_t *)&s->pulse, (uv_handle_t *)&s->slow,
                             (uv_handle_t *)&s->grace, (uv_handle_t *)&s->hard,  (uv_handle_t *)&s->again};
    for (unsigned i = 0; i < sizeof timers / sizeof *timers; i++)
        if (!uv_is_closing(timers[i]))
            uv_close(timers[i], NULL);
    ntx__fd_receivers_close(s);
    ntx__unlisten(s);
    ntx_workers_free(s->workers);
    s->workers = NULL;
    ntx_mailbox_free(s->mail);
    s->mail = NULL;
}

int ntx_server_new(uv_loop_t *loop, const struct ntx_server_config *c, struct ntx_server **out, struct ntx_err *err)
{
    struct ntx_server *s = calloc(1, sizeof *s);
    if (!s)
        return ntx_err_set(err, -ENOMEM, "no memory");
    s->c = *c;
    s->loop = loop;
    s->listen_fd = s->counters_fd = -1;
    s->last_parked = &s->held;
    s->known_list = c->known_list && *c->known_list ? strdup(c->known_list) : NULL;
    s->each_state = c->each_state;
    ntx_output_budget_init(&s->output_budget, c->max_clients + NTX_MAX_OVER_LIMIT);
    s->started_ns = s->looked_ns = ntx_now_ns();
    s->epoch = first_epoch();
    init_timers(s);
    int rc = open_server(s, err);
    if (rc) {
        s->closed = true;
        close_handles(s);
        uv_run(loop, UV_RUN_DEFAULT);
        ntx_server_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

int ntx_server_load_kept(struct ntx_server *s)
{
    struct ntx_kept k;
    struct ntx_err err = {0};
    int rc = s->c.keep ? ntx_keeper_take(s->c.keep, &k, &err) : 0;
    if (rc < 0)
        ntx__health_set(s, NTX_MON_PART_LOAD, NTX_MON_STOPPED, "%s: load a model (ntx load MODEL)", err.text);
    if (rc <= 0)
        return rc < 0;
    ntx__health_set(s, NTX_MON_PART_LOAD, NTX_MON_STOPPED,
                    "ntx-computed had ended unexpectedly, and the model that it served is loaded again: %s",
                    k.load->names[0]);
    ntx__pending_load_again(s, k.load, k.fds, k.n_fds, true);
    k.n_fds = 0; /* the pending load has them */
    ntx_kept_free(&k);
    return 1;
}

int ntx_server_load(struct ntx_server *s, const Ntx__Load *m, struct ntx_err *err)
{
    char state[NTX_STATE_ROOM];
    Ntx__Load first = *m;
    first.state = ntx__first_state(s, m, state);
    int rc = ntx__pending_load_new(s, NULL, 0, &first);
    return rc ? ntx_err_set(err, rc, "cannot begin to load %s: %s", m->path, strerror(-rc)) : 0;
}

/* The model is unloaded: clients get their last replies, then everything is closed. */
static void on_flush_end(uv_timer_t *t)
{
    struct ntx_server *s = t->data;
    while (s->conns)
        ntx__conn_close(s->conns);
}

static void finish_shutdown(struct ntx_server *s)
{
    if (!s->closed) {
        s->closed = true;
        if (s->stopper.replies)
            ntx_mail_done(s->mail, s->stopper.replies, s->stopper.id, "", NULL);
        ntx__requester_clear(&s->stopper);
        ntx_mailbox_flush(s->mail);
        uv_timer_start(&s->grace, on_flush_end, FLUSH_MS, 0);
        for (struct ntx_conn *c = s->conns, *next; c; c = next) {
            next = c->next;
            ntx__conn_finish(c);
        }
    }
    if (!s->conns && s->mail)
        close_handles(s);
}

void ntx__server_step(struct ntx_server *s)
{
    if (!s->draining) {
        ntx__pending_loads_go(s);
        ntx__health_look(s);
        return;
    }
    if (!s->ending && s->engine && ntx_engine_busy(s->engine))
        return;
    s->ending = true;
    if (s->state == NTX_MODEL_EMPTY && !s->pending_loads)
        finish_shutdown(s);
    else if (s->state == NTX_MODEL_WAITING || s->state == NTX_MODEL_FILLING)
        ntx__model_fail(s, -ESHUTDOWN, "ntx-computed is shutting down");
    else if (s->state == NTX_MODEL_READY)
        ntx__model_unload(s);
}

static void on_grace_end(uv_timer_t *t)
{
    struct ntx_server *s = t->data;
    if (!s->engine)
        return;
    ntx_engine_cancel_all(s->engine);
    ntx_skip_give_up(s->skip);
    ntx_stream_abort(s->loaded->stream, -ECANCELED, "ntx-computed is shutting down");
}

void ntx_server_shutdown(struct ntx_server *s, uint32_t grace_ms)
{
    if (s->closed)
        return;
    if (!s->draining)
        ntx__unlisten(s);
    extend_stop_timeout(s->draining ? "" : "STOPPING=1\n", (uint64_t)grace_ms + HARD_MS);
    s->draining = true;
    if (s->c.keep && !s->lost) /* an orderly end: the next process begins without a model */
        ntx_keeper_drop(s->c.keep);
    ntx__pending_loads_stop(s);
    uv_timer_start(&s->grace, on_grace_end, grace_ms, 0);
    uv_timer_start(&s->hard, on_hard_end, grace_ms + HARD_MS, 0);
    ntx__server_step(s);
}

const char *ntx_server_lost(const struct ntx_server *s) { return s->lost; }

bool ntx_server_stuck(const struct ntx_server *s) { return s->stuck; }

static void remove_files(const struct ntx_server *s)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/counters", s->c.dir) < sizeof path)
        unlink(path);
    ntx__clear_links(s->c.dir);
}

void ntx_server_leave(struct ntx_server *s)
{
    if (s->socket_path[0])
        unlink(s->socket_path);
    remove_files(s);
}

static void free_parked(struct ntx_server *s)
{
    for (struct ntx_parked *h = s->held, *next; h; h = next) {
        next = h->next;
        ntx__request__free_unpacked(h->req, NULL);
        ntx_reply_queue_unref(h->replies);
        free(h);
    }
}

void ntx_server_free(struct ntx_server *s)
{
    if (!s)
        return;
    free_parked(s);
    ntx__known_free(s);
    ntx_reply_queue_unref(s->warm_prefix);
    for (unsigned i = 0; i < s->n_notes; i++)
        free(s->notes[i]);
    ntx__requester_clear(&s->loader);
    ntx__requester_clear(&s->unloader);
    ntx__requester_clear(&s->stopper);
    if (s->counters) {
        ntx_counters_close(s->counters);
        close(s->counters_fd);
        remove_files(s);
    }
    free(s);
}
