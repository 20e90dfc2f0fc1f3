/* SPDX-License-Identifier: Apache-2.0 */
#include "predictor/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/util.h"
#include "predictor/service_impl.h"

#define HELLO_MS 100
#define IDLE_MS  1000

/* ---- the attached board ---- */

static void drop_board(struct ntx__service *s)
{
    for (unsigned i = 0; i < NTX_DRAFTERS; i++) {
        ntx_drafting_stop(s->drafting[i]);
        s->drafting[i] = NULL;
    }
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

/* ---- the link to computed: Hello until PolicySet, then probes ---- */

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
    s->state_pending = ntx_link_send(s->w.computed, &m) != 0; /* on failure again at the next tick */
}

static void set_policy(struct ntx__service *s, const Ntx__PolicySet *m)
{
    struct ntx_err err = {0};
    struct ntx_policy_sidecar sidecar = {s->sidecar, m->model};
    struct ntx_policy_shape shape = {s->board.n_layers, s->board.n_embd, &sidecar};
    uint64_t start = s->w.counters ? ntx_counter_get(s->w.counters, NTX_C_pred_starts) : 1;
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

static void count_cpu(struct ntx__service *s)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    ntx_count(s->w.counters, NTX_C_pred_cpu_ns, now - s->cpu_ns);
    s->cpu_ns = now;
}

static void on_tick(uv_timer_t *t)
{
    struct ntx__service *s = t->data;
    if (s->epoch && !s->configured)
        (void)ntx_worker_hello(&s->w); /* on failure again at the next tick */
    if (s->state_pending)
        send_state(s);
    count_cpu(s);
    bool waiting = s->epoch && (!s->configured || s->state_pending);
    uv_timer_start(t, on_tick, waiting ? HELLO_MS : IDLE_MS, 0);
}

/* ---- the attach socket ---- */

static void on_attach(void *ctx, const struct ntx_attach_msg *m, int *fds, unsigned n_fds)
{
    struct ntx__service *s = ctx;
    struct ntx_attach_msg answer = {.kind = NTX_AT_ATTACHED, .epoch = m->epoch, .ring_fd = -1};
    struct ntx_err err = {0};
    int *drafts = fds + n_fds - m->drafters * NTX_DRAFTER_FDS;
    int rc = take_board(s, m->epoch, fds[0], &err);
    fds[0] = -1; /* taken over */
    if (!rc && m->n_files) {
        s->sidecar = fds[1]; /* of the skip policy */
        fds[1] = -1;
    }
    for (unsigned i = 0; i < m->drafters && !rc; i++, drafts += NTX_DRAFTER_FDS) {
        const int lent = m->lent >> i & 1 ? drafts[3] : -1;
        rc = ntx_drafting_start(drafts[0], drafts[1], drafts[2], lent, m->epoch, i, s->w.counters, &s->drafting[i],
                                &err);
        drafts[0] = drafts[1] = drafts[2] = -1;
        drafts[3] = lent < 0 ? drafts[3] : -1;
    }
    if (rc)
        snprintf(answer.text, sizeof answer.text, "%.*s", (int)sizeof answer.text - 1, err.text);
    ntx_worker_epoch(&s->w, s->epoch);
    ntx_worker_answer(&s->w, &answer);
    on_tick(&s->tick); /* says Hello at once */
}

static void on_detach(void *ctx, const struct ntx_attach_msg *m)
{
    struct ntx__service *s = ctx;
    struct ntx_attach_msg answer = {.kind = NTX_AT_DETACHED, .epoch = m->epoch};
    if (m->epoch == s->epoch)
        drop_board(s);
    ntx_worker_epoch(&s->w, s->epoch);
    ntx_worker_answer(&s->w, &answer);
}

/* ---- life ---- */

static int on_begin(void *ctx)
{
    struct ntx__service *s = ctx;
    uv_timer_init(&s->w.loop, &s->tick);
    uv_timer_init(&s->w.loop, &s->death);
    s->tick.data = s;
    on_tick(&s->tick);
    return 0;
}

static void on_closing(void *ctx)
{
    struct ntx__service *s = ctx;
    count_cpu(s);
    drop_board(s);
}

int ntx_service_run(const struct ntx_service_config *c, struct ntx_err *err)
{
    static const struct ntx_worker_kind kind = {
        .role = NTX_ROLE_PREDICTOR,
        .name = "predictor",
        .computed = "cp",
        .hints = "hints to ntx-iod",
        .pid = NTX_C_pred_pid,
        .attach = on_attach,
        .detach = on_detach,
        .from_computed = on_computed,
        .begin = on_begin,
        .closing = on_closing,
    };
    struct ntx__service s = {.sidecar = -1};
    return ntx_worker_run(&s.w, &kind, &s, c->dir, c->alive_fd, err);
}
