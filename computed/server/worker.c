/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from and to the workers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/util.h"
#include "computed/server/server_impl.h"

#define TELL_MS 1000 /* in which running answers learn why they end */

static bool has_region(const struct ntx_server *s)
{
    return s->loaded && (s->state == NTX_MODEL_WAITING || s->state == NTX_MODEL_FILLING || s->state == NTX_MODEL_READY);
}

/* The stream exists, and no work thread is making it. */
static bool has_stream(const struct ntx_server *s)
{
    return has_region(s) || (s->state == NTX_MODEL_UNLOADING && s->loaded && s->loaded->stream);
}

static int send_iod_config(struct ntx_server *s)
{
    const struct ntx_loaded *l = s->loaded;
    Ntx__IodConfig m = NTX__IOD_CONFIG__INIT;
    Ntx__Peer p = NTX__PEER__INIT;
    m.rate_bps = l->set.link_nvme;
    m.inflight_bytes = l->plan->inflight_bytes;
    m.piece_bytes = l->plan->piece_bytes;
    m.source = (char *)(uintptr_t)(*l->set.source ? l->set.source : "auto");
    m.fault = l->iod_fault;
    p.body_case = NTX__PEER__BODY_IOD_CONFIG;
    p.iod_config = &m;
    return ntx_workers_send(s->workers, NTX_ROLE_IOD, &p);
}

static int send_policy(struct ntx_server *s)
{
    Ntx__PolicySet m = NTX__POLICY_SET__INIT;
    Ntx__Peer p = NTX__PEER__INIT;
    m.policy = (char *)(uintptr_t)(ntx_skip_off(s->loaded->set.skip) ? "none" : s->loaded->set.skip);
    m.fault = s->loaded->predictor_fault;
    m.model = s->loaded->digest;
    p.body_case = NTX__PEER__BODY_POLICY_SET;
    p.policy_set = &m;
    return ntx_workers_send(s->workers, NTX_ROLE_PREDICTOR, &p);
}

/* Sends what could not be sent before; a full socket is tried again at the next tick. A worker that is gone connects
 * again by itself. */
void ntx__worker_owed(struct ntx_server *s)
{
    if (!has_region(s)) {
        s->iod_owed = s->policy_owed = false;
        return;
    }
    if (s->iod_owed) {
        int rc = send_iod_config(s);
        s->iod_owed = rc == -EAGAIN;
        s->iod_ready = !rc;
    }
    if (s->policy_owed)
        s->policy_owed = send_policy(s) == -EAGAIN;
    ntx__model_workers_ready(s);
}

static void iod_is_back(struct ntx_server *s)
{
    if (s->no_iod && has_region(s) && !s->draining && !s->spoilt)
        ntx_stream_abort(s->loaded->stream, 0, NULL);
    s->no_iod = false;
}

/* Called before its hello: a request that comes in between waits for this worker, and is not refused because of an
 * earlier one. */
static void on_admitted(void *ctx, enum ntx_role role)
{
    struct ntx_server *s = ctx;
    s->refused[role][0] = 0;
    if (role != NTX_ROLE_IOD)
        return;
    s->had_iod = true;
    if (!ntx_workers_lost(s->workers, role))
        iod_is_back(s);
}

static void on_hello(void *ctx, enum ntx_role role, uint32_t instance)
{
    struct ntx_server *s = ctx;
    ntx_log(NTX_LOG_DEBUG, "%s %u is there", role == NTX_ROLE_IOD ? "ntx-iod" : "ntx-predictor", instance);
    if (!has_region(s))
        return;
    if (role == NTX_ROLE_IOD)
        s->iod_owed = true;
    else
        s->policy_owed = true;
    ntx__worker_owed(s);
    if (s->iod_owed || s->policy_owed)
        ntx__model_tick(s);
}

static void on_policy(struct ntx_server *s, const Ntx__PolicyState *m)
{
    struct ntx_loaded *l = s->loaded;
    if (s->state == NTX_MODEL_WAITING) {
        if (m->error && *m->error) {
            ntx__model_fail(s, -EINVAL, "%s", m->error);
            return;
        }
        if (m->probe_layer >= l->model->hp.n_layers) {
            ntx__model_fail(s, -EPROTO, "ntx-predictor probes layer %u of a model with %u", m->probe_layer,
                            l->model->hp.n_layers);
            return;
        }
        l->skips = m->skips;
        l->probe_layer = m->probe_layer;
        s->policy_ready = true;
        ntx__model_workers_ready(s);
    } else if (s->skip) { /* it was restarted: asks again for missing decisions */
        ntx_skip_resend(s->skip);
    }
}

static void on_iod_error(struct ntx_server *s, const Ntx__IodError *m)
{
    const char *name = m->file < s->loaded->n_files ? s->loaded->names[m->file] : NULL;
    char named[sizeof s->iod_text];
    const char *text = m->text ? m->text : "";
    if (m->err && name) {
        snprintf(named, sizeof named, "%s: %s", name, text);
        text = named;
    }
    if (!m->err) {
        ntx__model_note(s, text);
        return;
    }
    ntx_log(NTX_LOG_DEBUG, "ntx-iod: %s", text); /* the request or load that needs it gets the error */
    snprintf(s->iod_text, sizeof s->iod_text, "%s", text);
    if (m->file == UINT32_MAX)
        ntx_stream_io_refused(s->loaded->stream, text);
    else
        ntx_stream_io_error(s->loaded->stream, m->chunk, text);
}

static void on_decision(struct ntx_server *s, const Ntx__Decision *m)
{
    const struct ntx_skip_answer a = {
        .index = m->index, .gen = m->gen, .row = m->row, .pass = m->pass, .skip = m->skip.data, .n_skip = m->skip.len};
    ntx_skip_decision(s->skip, &a);
}

static void on_message(void *ctx, enum ntx_role role, const Ntx__Peer *m)
{
    struct ntx_server *s = ctx;
    if (!has_region(s))
        return;
    if (role == NTX_ROLE_IOD && m->body_case == NTX__PEER__BODY_IOD_ERROR)
        on_iod_error(s, m->iod_error);
    else if (role == NTX_ROLE_PREDICTOR && m->body_case == NTX__PEER__BODY_POLICY_STATE)
        on_policy(s, m->policy_state);
    else if (role == NTX_ROLE_PREDICTOR && m->body_case == NTX__PEER__BODY_DECISION && s->skip)
        on_decision(s, m->decision);
}

/* No ntx-iod can help here: every slot may still be written to. */
static void fail_unprovable(struct ntx_server *s)
{
    static const char text[] =
        "ntx-iod died, and what it was reading may still come at any time, to any place: load the model again";
    if (s->spoilt)
        return;
    s->spoilt = true;
    if (s->state == NTX_MODEL_WAITING || (s->state == NTX_MODEL_FILLING && s->loader.replies)) {
        ntx__model_fail(s, -EIO, "%s", text);
    } else if (!s->draining) {
        ntx_log(NTX_LOG_ERR, "%s", text);
        ntx_stream_abort(s->loaded->stream, -EIO, text);
    }
}

static void on_died(void *ctx, enum ntx_role role)
{
    struct ntx_server *s = ctx;
    s->refused[role][0] = 0;
    ntx__health_heard(s, role); /* it is away since now */
    /* the pid may become another process's */
    ntx_gauge(s->counters, role == NTX_ROLE_IOD ? NTX_C_iod_pid : NTX_C_pred_pid, 0);
    if (role == NTX_ROLE_IOD) {
        s->iod_ready = s->iod_owed = false;
        if (has_stream(s))
            ntx_stream_iod_died(s->loaded->stream);
        if (has_region(s) && ntx_workers_unproved(s->workers)) {
            ntx_stream_unproved(s->loaded->stream);
            if (ntx_stream_no_place(s->loaded->stream))
                fail_unprovable(s);
        }
    } else {
        s->policy_owed = false;
        if (s->state == NTX_MODEL_WAITING)
            s->policy_ready = false;
    }
    if (!s->closed)
        ntx_log(NTX_LOG_INFO, "%s is gone; waiting for its successor",
                role == NTX_ROLE_IOD ? "ntx-iod" : "ntx-predictor");
}

/* Whether work is expected of a predictor: decisions for a pass, or drafts for decoding sessions. */
static bool predictor_wanted(const struct ntx_server *s)
{
    if (s->state == NTX_MODEL_WAITING)
        return !s->policy_ready;
    bool drafts = s->loaded->n_drafters && ntx_counter_get(s->counters, NTX_C_comp_sessions);
    return drafts || (s->skip && ntx_skip_waits(s->skip));
}

static bool on_done(void *ctx, enum ntx_role role, uint64_t *done)
{
    struct ntx_server *s = ctx;
    bool wanted = false;
    if (role == NTX_ROLE_IOD && has_stream(s))
        *done = ntx_stream_delivered(s->loaded->stream, &wanted);
    if (role == NTX_ROLE_PREDICTOR)
        *done = ntx_counter_get(s->counters, NTX_C_comp_decisions) +
                ntx_counter_get(s->counters, NTX_C_pred_draft_rows);
    return has_region(s) && (role == NTX_ROLE_IOD ? wanted : predictor_wanted(s));
}

/* Nothing can be read: fails the load or the requests that wait, and those that come meanwhile. */
static void on_iod_lost(struct ntx_server *s, const char *text)
{
    ntx_log(NTX_LOG_ERR, "%s", text);
    if (s->state == NTX_MODEL_WAITING || (s->state == NTX_MODEL_FILLING && s->loader.replies)) {
        ntx__model_fail(s, -EIO, "%s", text);
    } else if (has_region(s) && !s->draining) {
        s->no_iod = true;
        if (!s->spoilt)
            ntx_stream_abort(s->loaded->stream, -EIO, text);
    }
}

/* Goes on without a predictor: all layers are computed, and no draft model drafts. */
static void on_predictor_lost(struct ntx_server *s, const char *text)
{
    char note[480];
    snprintf(note, sizeof note, "%s; going on without it", text);
    ntx__model_note(s, note);
    if (s->skip)
        ntx_skip_away(s->skip, true);
    if (s->state != NTX_MODEL_WAITING || s->policy_ready)
        return;
    s->loaded->predictor_lost = true;
    s->loaded->skips = false;
    s->policy_owed = false;
    s->policy_ready = true;
    ntx__model_workers_ready(s);
}

static void on_lost(void *ctx, enum ntx_role role, const char *text)
{
    struct ntx_server *s = ctx;
    if (!has_region(s))
        return;
    if (role == NTX_ROLE_IOD)
        on_iod_lost(s, text);
    else
        on_predictor_lost(s, text);
}

static void on_found(void *ctx, enum ntx_role role)
{
    struct ntx_server *s = ctx;
    if (role == NTX_ROLE_IOD)
        iod_is_back(s);
    else if (s->skip)
        ntx_skip_away(s->skip, false);
}

bool ntx__worker_do_without(struct ntx_server *s)
{
    char how[160], text[300];
    if (!s->iod_ready || s->policy_ready || !ntx_workers_end(s->workers, NTX_ROLE_PREDICTOR, how, sizeof how))
        return false;
    snprintf(text, sizeof text, "ntx-predictor did not get ready within %d s: it ended, the last time %s",
             NTX_WORKERS_MS / 1000, how);
    on_predictor_lost(s, text);
    return true;
}

const char *ntx__worker_unfit(const struct ntx_server *s)
{
    for (enum ntx_role role = NTX_ROLE_IOD; role <= NTX_ROLE_PREDICTOR; role++)
        if (s->refused[role][0] && !ntx_workers_present(s->workers, role))
            return s->refused[role];
    return NULL;
}

/* Ends waits for a worker that will not come. */
static void on_refused(void *ctx, enum ntx_role role, const char *text)
{
    struct ntx_server *s = ctx;
    if (ntx_workers_present(s->workers, role))
        return;
    snprintf(s->refused[role], sizeof s->refused[role], "%s was refused: %s",
             role == NTX_ROLE_IOD ? "ntx-iod" : "ntx-predictor", text);
    if (s->state == NTX_MODEL_WAITING) {
        ntx__model_fail(s, -EPROTO, "%s", s->refused[role]);
    } else if (role == NTX_ROLE_IOD && s->engine && has_region(s) && !s->draining) {
        s->no_iod = true;
        ntx_stream_abort(s->loaded->stream, -EPROTO, s->refused[role]);
    }
    /* the installed version has changed since we were started */
    if (role == NTX_ROLE_IOD && s->had_iod && s->c.service && !s->draining) {
        s->lost = "no ntx-iod of this build is there any more: ending, so that what is installed now is started";
        ntx_server_shutdown(s, TELL_MS);
    }
}

static void on_drained(void *ctx)
{
    struct ntx_server *s = ctx;
    if (has_stream(s))
        ntx_stream_end_quarantine(s->loaded->stream);
}

static void on_heard(void *ctx, enum ntx_role role) { ntx__health_heard(ctx, role); }

static void on_detached(void *ctx) { ntx__model_detached(ctx); }

struct ntx_workers_cb ntx__worker_callbacks(struct ntx_server *s)
{
    return (struct ntx_workers_cb){.ctx = s,
                                   .admitted = on_admitted,
                                   .heard = on_heard,
                                   .hello = on_hello,
                                   .message = on_message,
                                   .died = on_died,
                                   .refused = on_refused,
                                   .done = on_done,
                                   .lost = on_lost,
                                   .found = on_found,
                                   .drained = on_drained,
                                   .detached = on_detached};
}
