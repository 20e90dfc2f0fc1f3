#include "predictor/service.h"

#include <errno.h>
#include <ntx_version.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/util.h"
#include "predictor/service_impl.h"

#define HELLO_MS 100
#define IDLE_MS 1000
#define CONNECT_MS 10000 /* computed may start at the same time as we */
#define CONNECT_SLICE_MS 100

static void stop(struct ntx__service *s, int rc)
{
    s->rc = rc;
    uv_stop(&s->loop);
}

/* ---- the attached board ---- */

static void drop_board(struct ntx__service *s)
{
    ntx__service_drop_delayed(s);
    ntx_policy_free(s->policy);
    s->policy = NULL;
    if (s->sidecar >= 0)
        close(s->sidecar);
    s->sidecar = -1;
    free(s->hidden);
    s->hidden = NULL;
    ntx_board_close(&s->board);
    s->epoch = 0;
    s->configured = s->state_pending = s->hinted = false;
}

static int take_board(struct ntx__service *s, uint64_t epoch, int fd, struct ntx_err *err)
{
    drop_board(s);
    int rc = ntx_board_attach(fd, &s->board, err);
    if (rc)
        return rc;
    if (s->board.epoch != epoch) {
        drop_board(s);
        return ntx_err_set(err, -ESTALE, "the probe board is of another epoch");
    }
    s->hidden = calloc(ntx_board_floats(&s->board), sizeof *s->hidden);
    if (!s->hidden) {
        drop_board(s);
        return ntx_err_set(err, -ENOMEM, "no memory for a hidden state");
    }
    s->epoch = epoch;
    return 0;
}

static void set_epoch(struct ntx__service *s)
{
    ntx_link_set_epoch(s->computed, s->epoch);
    if (s->iod)
        ntx_link_set_epoch(s->iod, s->epoch);
}

/* ---- the link to computed: Hello until PolicySet, then probes ---- */

static void say_hello(struct ntx__service *s)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__Hello h = NTX__HELLO__INIT;
    m.body_case = NTX__PEER__BODY_HELLO;
    m.hello = &h;
    h.role = (char *)"predictor";
    h.instance = s->instance;
    h.build = (char *)NTX_BUILD;
    (void)ntx_link_send(s->computed, &m);
}

static void send_state(struct ntx__service *s)
{
    Ntx__Peer m = NTX__PEER__INIT;
    Ntx__PolicyState st = NTX__POLICY_STATE__INIT;
    m.body_case = NTX__PEER__BODY_POLICY_STATE;
    m.policy_state = &st;
    st.policy = s->policy_text;
    st.error = s->policy_error;
    if (s->policy) {
        st.skips = s->policy->skips;
        st.probe_layer = s->policy->probe_layer;
    }
    s->state_pending = ntx_link_send(s->computed, &m) != 0; /* again at the next tick */
}

static void set_policy(struct ntx__service *s, const Ntx__PolicySet *m)
{
    struct ntx_err err = {0};
    struct ntx_policy_sidecar sidecar = {s->sidecar, m->model};
    struct ntx_policy_shape shape = {s->board.n_layers, s->board.n_embd, &sidecar};
    uint64_t start = s->counters ? ntx_counter_get(s->counters, NTX_C_pred_starts) : 1;
    ntx__service_drop_delayed(s);
    ntx_policy_free(s->policy);
    s->policy = NULL;
    int rc = ntx_predictor_fault_parse(m->fault, start, &s->fault, &err);
    if (!rc)
        rc = ntx_policy_new(m->policy, &shape, &s->policy, &err);
    snprintf(s->policy_text, sizeof s->policy_text, "%s", *m->policy ? m->policy : "none");
    snprintf(s->policy_error, sizeof s->policy_error, "%.*s", (int)sizeof s->policy_error - 1, rc ? err.text : "");
    s->configured = true;
    send_state(s);
}

static void on_computed(void *ctx, const Ntx__Peer *m)
{
    struct ntx__service *s = ctx;
    if (!s->epoch)
        return;
    if (m->body_case == NTX__PEER__BODY_PROBE)
        ntx__service_probe(s, m->probe);
    else if (m->body_case == NTX__PEER__BODY_POLICY_SET)
        set_policy(s, m->policy_set);
}

static void on_iod(void *ctx, const Ntx__Peer *m)
{
    (void)ctx;
    (void)m; /* iod has nothing to tell us */
}

static void count_cpu(struct ntx__service *s)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    ntx_count(s->counters, NTX_C_pred_cpu_ns, now - s->cpu_ns);
    s->cpu_ns = now;
}

static void on_tick(uv_timer_t *t)
{
    struct ntx__service *s = t->data;
    if (s->epoch && !s->configured)
        say_hello(s);
    if (s->state_pending)
        send_state(s);
    count_cpu(s);
    bool waiting = s->epoch && (!s->configured || s->state_pending);
    uv_timer_start(t, on_tick, waiting ? HELLO_MS : IDLE_MS, 0);
}

/* ---- the attach socket ---- */

static void on_peers(struct ntx__service *s, const struct ntx_attach_msg *m)
{
    char path[256];
    struct ntx_err err;
    if (m->iod_instance == s->iod_instance)
        return;
    ntx_link_close(s->iod);
    s->iod = NULL;
    s->iod_instance = m->iod_instance;
    if (!m->iod_instance)
        return;
    ntx_link_address(path, sizeof path, s->config->dir, "pi", s->instance, s->iod_instance);
    if (ntx_link_open(&s->loop, path, true, on_iod, s, &s->iod, &err))
        ntx_log(NTX_LOG_WARN, "no hints to ntx-iod: %s", err.text);
    else
        ntx_link_set_epoch(s->iod, s->epoch);
}

static void on_attach(struct ntx__service *s, const struct ntx_attach_msg *m, int *fds)
{
    struct ntx_attach_msg answer = {.kind = NTX_AT_ATTACHED, .role = NTX_ROLE_PREDICTOR, .epoch = m->epoch, .ring_fd = -1};
    struct ntx_err err = {0};
    int rc = take_board(s, m->epoch, fds[0], &err);
    fds[0] = -1; /* taken over */
    if (!rc && m->n_files) {
        s->sidecar = fds[1]; /* of the skip policy: the only file that a predictor ever sees */
        fds[1] = -1;
    }
    if (rc)
        snprintf(answer.text, sizeof answer.text, "%.*s", (int)sizeof answer.text - 1, err.text);
    set_epoch(s);
    rc = ntx_attach_send(s->sock, &answer, NULL, 0);
    if (rc)
        stop(s, ntx_err_set(s->err, rc, "cannot answer ntx-computed: %s", strerror(-rc)));
    else
        on_tick(&s->tick); /* says Hello at once */
}

static void on_detach(struct ntx__service *s, const struct ntx_attach_msg *m)
{
    struct ntx_attach_msg answer = {.kind = NTX_AT_DETACHED, .role = NTX_ROLE_PREDICTOR, .epoch = m->epoch};
    if (m->epoch == s->epoch)
        drop_board(s);
    set_epoch(s);
    int rc = ntx_attach_send(s->sock, &answer, NULL, 0);
    if (rc)
        stop(s, ntx_err_set(s->err, rc, "cannot answer ntx-computed: %s", strerror(-rc)));
}

static void on_message(struct ntx__service *s, const struct ntx_attach_msg *m, int *fds)
{
    switch (m->kind) {
    case NTX_AT_PEERS:
        on_peers(s, m);
        break;
    case NTX_AT_ATTACH:
        on_attach(s, m, fds);
        break;
    case NTX_AT_DETACH:
        on_detach(s, m);
        break;
    default:
        stop(s, ntx_err_set(s->err, -EPROTO, "ntx-computed sent message %u, which a predictor does not expect", m->kind));
    }
}

static void on_attach_socket(uv_poll_t *poll_handle, int status, int events)
{
    struct ntx__service *s = poll_handle->data;
    (void)status;
    (void)events;
    for (;;) {
        struct ntx_attach_msg m;
        int fds[NTX_ATTACH_MAX_FDS];
        unsigned n = NTX_ATTACH_MAX_FDS;
        int rc = ntx_attach_recv(s->sock, &m, fds, &n);
        if (rc == -EAGAIN)
            return;
        if (rc == 0) {
            ntx_log(NTX_LOG_INFO, "ntx-computed is gone");
            stop(s, 0);
            return;
        }
        if (rc < 0) {
            stop(s, ntx_err_set(s->err, rc, "bad message from ntx-computed: %s", strerror(-rc)));
            return;
        }
        on_message(s, &m, fds);
        for (unsigned i = 0; i < n; i++)
            if (fds[i] >= 0)
                close(fds[i]);
    }
}

/* ---- life ---- */

static void on_signal(uv_signal_t *h, int number)
{
    (void)number;
    stop(h->data, 0);
}

/* Nothing is ever written to that pipe: anything that can be read is its end. */
static void on_alive(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    stop(h->data, 0);
}

static bool supervisor_gone(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return fd >= 0 && poll(&p, 1, 0) > 0;
}

/* In slices, so that the end of the supervisor is noticed. */
static int connect_computed(struct ntx__service *s, int *counters_fd)
{
    uint64_t end = ntx_now_ns() + CONNECT_MS * 1000000ull;
    int rc;
    do {
        rc = ntx_attach_connect(s->config->dir, NTX_ROLE_PREDICTOR, CONNECT_SLICE_MS, &s->instance, counters_fd, s->err);
    } while ((rc == -ENOENT || rc == -ECONNREFUSED || rc == -EAGAIN) && ntx_now_ns() < end && !supervisor_gone(s->config->alive_fd));
    if (rc >= 0)
        s->sock = rc;
    return rc < 0 ? rc : 0;
}

static int map_counters(struct ntx__service *s, int fd)
{
    int rc = ntx_counters_map(fd, &s->counters, s->err);
    close(fd);
    if (!rc)
        ntx_gauge(s->counters, NTX_C_pred_pid, (uint64_t)getpid());
    return rc;
}

static int watch(struct ntx__service *s)
{
    char path[256];
    int rc = 0;
    ntx_link_address(path, sizeof path, s->config->dir, "cp", s->instance, 0);
    if ((rc = ntx_link_open(&s->loop, path, false, on_computed, s, &s->computed, s->err)))
        return rc;
    uv_poll_init(&s->loop, &s->attach, s->sock);
    uv_signal_init(&s->loop, &s->term);
    uv_signal_init(&s->loop, &s->interrupt);
    uv_timer_init(&s->loop, &s->tick);
    uv_timer_init(&s->loop, &s->death);
    s->attach.data = s->term.data = s->interrupt.data = s->tick.data = s;
    if (s->config->alive_fd >= 0) {
        rc = uv_poll_init(&s->loop, &s->alive, s->config->alive_fd);
        if (rc)
            return ntx_err_set(s->err, rc, "--alive-fd %d: %s", s->config->alive_fd, uv_strerror(rc));
        s->alive.data = s;
        uv_poll_start(&s->alive, UV_READABLE | UV_DISCONNECT, on_alive);
    }
    uv_poll_start(&s->attach, UV_READABLE | UV_DISCONNECT, on_attach_socket);
    uv_signal_start(&s->term, on_signal, SIGTERM);
    uv_signal_start(&s->interrupt, on_signal, SIGINT);
    on_tick(&s->tick);
    return 0;
}

static void close_handle(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

static void end(struct ntx__service *s)
{
    count_cpu(s);
    drop_board(s);
    ntx_link_close(s->computed);
    ntx_link_close(s->iod);
    uv_walk(&s->loop, close_handle, NULL); /* ours; links and delayed decisions are closing already */
    uv_run(&s->loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->loop);
    if (s->sock >= 0)
        close(s->sock);
    ntx_counters_close(s->counters);
}

int ntx_service_run(const struct ntx_service_config *c, struct ntx_err *err)
{
    struct ntx__service s = {.config = c, .sock = -1, .sidecar = -1, .err = err};
    int counters_fd = -1;
    int rc = uv_loop_init(&s.loop);
    if (rc)
        return ntx_err_set(err, rc, "no event loop: %s", uv_strerror(rc));
    ntx_notify("READY=1\nSTATUS=waiting for ntx-computed"); /* started after us, so that it is stopped before us */
    rc = connect_computed(&s, &counters_fd);
    if (!rc)
        rc = map_counters(&s, counters_fd);
    if (!rc)
        rc = watch(&s);
    if (!rc) {
        ntx_log(NTX_LOG_INFO, "attached as instance %u", s.instance);
        ntx_notify("STATUS=attached to ntx-computed");
        uv_run(&s.loop, UV_RUN_DEFAULT);
        rc = s.rc;
    } else if (supervisor_gone(c->alive_fd)) {
        rc = 0;
    }
    end(&s);
    return rc;
}
