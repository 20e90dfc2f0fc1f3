/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch of requests. Each request gets exactly one last reply. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/plan/budget.h"
#include "computed/server/server_impl.h"
#include "proto/settings.h"

static void fail_request(struct ntx_server *s, struct ntx_reply_queue *replies, Ntx__Request *req, int err,
                         const char *text)
{
    ntx_mail_error(s->mail, replies, req->id, err, "%s", text);
    ntx__request__free_unpacked(req, NULL);
}

/* Refuses a request that was not counted as in progress. */
static void refuse_uncounted(struct ntx_server *s, struct ntx_reply_queue *replies, Ntx__Request *req, int err,
                             const char *text)
{
    ntx_mail_refusal(s->mail, replies, req->id, err, text);
    ntx__request__free_unpacked(req, NULL);
}

static void park(struct ntx_server *s, struct ntx_reply_queue *replies, Ntx__Request *req)
{
    struct ntx_parked *h = calloc(1, sizeof *h);
    if (!h) {
        fail_request(s, replies, req, -ENOMEM, "no memory");
        return;
    }
    h->replies = ntx_reply_queue_ref(replies);
    h->req = req;
    *s->last_parked = h;
    s->last_parked = &h->next;
}

static void submit_to_engine(struct ntx_server *s, struct ntx_reply_queue *replies, Ntx__Request *req)
{
    struct ntx_request *a = ntx_request_of(req);
    uint64_t id = req->id;
    if (a && ntx_engine_submit(s->engine, replies, a))
        ntx_mail_error(s->mail, replies, id, -ENOMEM, "no memory");
    else if (!a)
        fail_request(s, replies, req, -ENOMEM, "no memory");
}

static const char other_model[] = "another model has been loaded meanwhile: try again";

static bool is_up(const struct ntx_server *s)
{
    return s->engine && (s->state == NTX_MODEL_FILLING || s->state == NTX_MODEL_READY);
}

/* Generate, LogitsReq, ScoreReq, CloseSession: for the engine, or parked until the model is loaded. */
static void submit_or_park(struct ntx_server *s, struct ntx_reply_queue *replies, Ntx__Request *req)
{
    if (s->draining)
        fail_request(s, replies, req, -ESHUTDOWN, "ntx-computed is shutting down");
    else if (ntx__pending_load_of(s, replies) || s->closing) /* it has asked for another model before; or others did */
        park(s, replies, req);
    else if (is_up(s) && ntx__known_other(s, req))
        fail_request(s, replies, req, -EMEDIUMTYPE, other_model);
    else if (is_up(s)) {
        submit_to_engine(s, replies, req);
        ntx__server_pulse(s);
    } else if (s->state == NTX_MODEL_EMPTY && !ntx__pending_load_of(s, NULL))
        fail_request(s, replies, req, -ENOENT,
                     s->trouble[NTX_MON_PART_LOAD].grade ? s->trouble[NTX_MON_PART_LOAD].text
                                                         : "no model is loaded: load one first (ntx load MODEL)");
    else
        park(s, replies, req);
}

static struct ntx_parked *take_parked(struct ntx_server *s)
{
    struct ntx_parked *h = s->held;
    s->held = NULL;
    s->last_parked = &s->held;
    return h;
}

void ntx__release_parked(struct ntx_server *s)
{
    for (struct ntx_parked *h = take_parked(s), *next; h; h = next) {
        next = h->next;
        submit_or_park(s, h->replies, h->req); /* may park it again */
        ntx_reply_queue_unref(h->replies);
        free(h);
    }
}

/* Drops the parked requests of a client: all, or the one with this id. Returns how many. */
static unsigned drop_parked(struct ntx_server *s, const struct ntx_reply_queue *replies, const uint64_t *id)
{
    unsigned n = 0;
    for (struct ntx_parked **p = &s->held, *h; (h = *p);) {
        if (h->replies != replies || (id && h->req->id != *id)) {
            p = &h->next;
            continue;
        }
        *p = h->next;
        ntx__request__free_unpacked(h->req, NULL);
        ntx_reply_queue_unref(h->replies);
        free(h);
        n++;
    }
    s->last_parked = &s->held;
    while (*s->last_parked)
        s->last_parked = &(*s->last_parked)->next;
    return n;
}

void ntx__conns_drop_queue(struct ntx_server *s, struct ntx_reply_queue *replies)
{
    drop_parked(s, replies, NULL);
    ntx__pending_loads_drop(s, replies);
    if (s->engine)
        ntx_engine_client_gone(s->engine, replies);
}

static void cancel_request(struct ntx_server *s, struct ntx_reply_queue *replies, Ntx__Request *req)
{
    uint64_t target = req->cancel->target;
    if (drop_parked(s, replies, &target))
        ntx_mail_done(s->mail, replies, target, "cancel", NULL);
    if (s->engine) {
        submit_to_engine(s, replies, req);
        return;
    }
    ntx_mail_done(s->mail, replies, req->id, "", NULL);
    ntx__request__free_unpacked(req, NULL);
}

bool ntx__in_transit(const struct ntx_server *s) { return s->state != NTX_MODEL_EMPTY && s->state != NTX_MODEL_READY; }

bool ntx__answers_run(const struct ntx_server *s)
{
    return s->state == NTX_MODEL_READY && s->engine && ntx_engine_busy(s->engine);
}

const char *ntx__load_refusal(const struct ntx_server *s)
{
    if (s->draining)
        return "ntx-computed is shutting down";
    if (ntx__answers_run(s))
        return "answers are being generated: wait for them, or cancel them";
    return NULL;
}

static bool is_unset(const char *text) { return !text || !*text; }

/* Fills fields that a Load leaves open with the configuration's. own: it brings its own model, to which files that the
 * configuration names do not belong. */
static Ntx__Load with_defaults(const Ntx__Load *m, const Ntx__Load *d, bool own)
{
    Ntx__Load q = *m;
    if (d)
        ntx_settings_fill(&ntx_load_settings, &q, d);
    if (own && is_unset(m->lora))
        q.lora = m->lora;
    if (own && is_unset(m->chat_template))
        q.chat_template = m->chat_template;
    if (own && is_unset(m->draft) && ntx_draft_files(q.draft))
        q.draft = m->draft;
    if (own && is_unset(m->skip) && ntx_skip_learned(q.skip))
        q.skip = m->skip;
    return q;
}

/* A private pipeline has one user. A service is administered by its own user and root, and by the group if ntx.conf
 * allows it. */
static bool may_administer(const struct ntx_conn *c)
{
    const struct ntx_server_config *s = &c->server->c;
    return !s->service || s->group_admin || !c->uid || c->uid == geteuid();
}

/* Most memory for a model: the configuration's, or else what this machine has left. */
static uint64_t ram_limit(const struct ntx_server *s)
{
    uint64_t named = s->c.defaults ? s->c.defaults->ram_bytes : 0;
    return named ? named : ntx_budget_default(s->loaded_bytes);
}

/* Refuses settings that a client may not ask for. A path would be opened with the daemon's rights, which the client
 * lacks. */
static int check_rights(const struct ntx_conn *c, const Ntx__Load *m, struct ntx_err *err)
{
    char asked[32], most[32];
    uint64_t limit;
    if ((m->path && *m->path) || m->n_also)
        return ntx_err_set(err, -EPERM, "a client passes the model's descriptors, not its path");
    if (m->chat_template && *m->chat_template == '/')
        return ntx_err_set(err, -EPERM, "a client passes the chat template's text, not its path");
    if (!c->receiver && (ntx_lora_files(m->lora) || ntx_draft_files(m->draft)))
        return ntx_err_set(err, -EPERM,
                           "a client passes descriptors of adapters (--lora) and drafters (--draft), not their paths; "
                           "they come with those of the model");
    if (m->fault && *m->fault && c->server->c.service && !c->server->c.faults)
        return ntx_err_set(err, -EPERM, "this service was not started for tests: it takes no fault rules (--fault)");
    if (c->server->c.service && ((m->state && *m->state) || m->kv_ram))
        return ntx_err_set(err, -EPERM,
                           "this service's ntx.conf sets where state is kept, and how much of K and V stays in memory "
                           "([prefix] state, kv_ram), not --state or --kv-ram");
    if (may_administer(c) || m->ram_bytes <= (limit = ram_limit(c->server)))
        return 0;
    return ntx_err_set(
        err, -EPERM,
        "--ram %s is more than the %s that this service may use ([model] ram in its ntx.conf): ask for less; only its "
        "administrators may exceed that",
        ntx_format_size(m->ram_bytes, asked, sizeof asked), ntx_format_size(limit, most, sizeof most));
}

/* Whether a load must be refused now. One that waits goes on to its files. */
static int check_time(const struct ntx_server *s, const Ntx__Load *m, struct ntx_err *err)
{
    const char *why = ntx__load_refusal(s);
    const bool waits = m->when != NTX__WHEN__REFUSE && ntx__answers_run(s) && !s->draining;
    return why && !waits ? ntx_err_set(err, -EBUSY, "%s", why) : 0;
}

/* Two processes do not share a prefix store (computed/engine/prefix_store.h): where several have models of one list,
 * each model has a folder of its own. */
static char *state_of(const struct ntx_server *s, char *state, const char *id, char buf[NTX_STATE_ROOM])
{
    if (!s->each_state || is_unset(state))
        return state;
    if (mkdir(state, 0700) && errno != EEXIST)
        return state; /* the store reports it */
    int n = snprintf(buf, NTX_STATE_ROOM, "%.900s/", state);
    snprintf(buf + n, NTX_STATE_ROOM - (size_t)n, "%s", id);
    for (char *c = buf + n; *c; c++)
        *c = *c == '/' || (*c == '.' && c == buf + n) ? '_' : *c;
    return buf;
}

char *ntx__first_state(const struct ntx_server *s, const Ntx__Load *m, char buf[NTX_STATE_ROOM])
{
    struct ntx_catalog found;
    char *path = s->each_state && !is_unset(m->state) && s->known_list ? realpath(m->path, NULL) : NULL,
         *state = m->state;
    if (path && !ntx_catalog_scan(s->known_list, NULL, &found)) {
        const struct ntx_catalog_model *k = ntx_catalog_at(&found, path);
        state = k ? state_of(s, m->state, k->name[0], buf) : state;
        ntx_catalog_free(&found);
    }
    free(path);
    return state;
}

int ntx__load_known(struct ntx_conn *c, const Ntx__Request *req, const struct ntx_catalog_model *k, struct ntx_err *err)
{
    struct ntx_server *s = c->server;
    const Ntx__Load *d = s->known_defaults ? s->known_defaults : s->c.defaults;
    char *configured = d && d->path && *d->path ? realpath(d->path, NULL) : NULL;
    const bool same = configured && !strcmp(configured, k->path), own = !same;
    char state[NTX_STATE_ROOM];
    Ntx__Load m = s->known_defaults ? *d : with_defaults(req->load, d, own);
    free(configured);
    int rc = check_time(s, req->load, err);
    if (!rc)
        rc = check_rights(c, req->load, err);
    m.when = req->load->when;
    m.beside_bytes = req->load->beside_bytes;
    m.path = k->path;
    m.known = k->name[0];
    m.state = state_of(s, m.state, m.known, state);
    if (same) {
        m.also = d->also;
        m.n_also = d->n_also;
    }
    if (!rc && (rc = ntx__pending_load_new(s, c, req->id, &m)))
        ntx_err_set(err, rc, "cannot begin to open the model: %s", strerror(-rc));
    return rc;
}

static void begin_load(struct ntx_conn *c, Ntx__Request *req)
{
    struct ntx_server *s = c->server;
    struct ntx_err err = {0};
    Ntx__Load m = with_defaults(req->load, s->c.defaults, c->receiver != NULL);
    int rc = check_time(s, req->load, &err);
    m.known = (char *)"";
    m.beside_bytes = 0;
    if (!rc && c->no_receiver)
        rc = ntx_err_set(&err, -EBUSY, "too many models are being opened: wait until that is done");
    if (!rc)
        rc = check_rights(c, req->load, &err);
    if (!c->receiver && s->c.defaults) {
        m.path = s->c.defaults->path;
        m.also = s->c.defaults->also;
        m.n_also = s->c.defaults->n_also;
    }
    if (!rc && !c->receiver && !(m.path && *m.path))
        rc = ntx_err_set(&err, -EINVAL, "neither a path nor descriptors of a model were given");
    if (!rc && (rc = ntx__pending_load_new(s, c, req->id, &m)))
        ntx_err_set(&err, rc, "cannot begin to open the model: %s", strerror(-rc));
    if (rc)
        fail_request(s, c->replies, req, rc, err.text);
    else
        ntx__request__free_unpacked(req, NULL);
}

static void begin_unload(struct ntx_conn *c, Ntx__Request *req)
{
    struct ntx_server *s = c->server;
    const char *why = ntx__load_refusal(s);
    if (s->state == NTX_MODEL_EMPTY)
        why = "no model is loaded";
    else if (ntx__in_transit(s))
        why = "a model is being loaded or unloaded: wait until that is done";
    if (why) {
        fail_request(s, c->replies, req, s->state == NTX_MODEL_EMPTY ? -ENOENT : -EBUSY, why);
        return;
    }
    s->unloader = (struct ntx_requester){ntx_reply_queue_ref(c->replies), req->id};
    if (s->c.keep) /* the next ntx-computed loads none, either */
        ntx_keeper_drop(s->c.keep);
    ntx__request__free_unpacked(req, NULL);
    ntx__model_unload(s);
}

static void send_status(struct ntx_conn *c, Ntx__Request *req)
{
    Ntx__StatusRep m = NTX__STATUS_REP__INIT;
    Ntx__Reply r = NTX__REPLY__INIT;
    if (!(m.json = ntx__status(c->server))) {
        fail_request(c->server, c->replies, req, -ENOMEM, "no memory");
        return;
    }
    r.id = req->id;
    r.body_case = NTX__REPLY__BODY_STATUS;
    r.status = &m;
    ntx_mail_reply(c->server->mail, c->replies, &r, true);
    free(m.json);
    ntx__request__free_unpacked(req, NULL);
}

static void begin_stop(struct ntx_conn *c, Ntx__Request *req)
{
    struct ntx_server *s = c->server;
    uint32_t grace = req->stop->grace_ms ? req->stop->grace_ms : s->c.grace_ms;
    if (!may_administer(c)) {
        fail_request(
            s, c->replies, req, -EPERM,
            "only root and the service's own user may stop it; its ntx.conf can let the group, too ([clients] admin = "
            "group)");
        return;
    }
    if (s->stopper.replies) {
        fail_request(s, c->replies, req, -EALREADY, "ntx-computed is shutting down already");
        return;
    }
    s->stopper = (struct ntx_requester){ntx_reply_queue_ref(c->replies), req->id};
    ntx__request__free_unpacked(req, NULL);
    ntx_server_shutdown(s, grace);
}

void ntx__request(struct ntx_conn *c, Ntx__Request *req, size_t bytes)
{
    struct ntx_server *s = c->server;
    if (c->requests >= NTX_MIN(s->c.max_requests, (uint32_t)NTX_MAX_REQUESTS)) {
        refuse_uncounted(s, c->replies, req, -EAGAIN,
                         "too many requests of this client are under way: wait for their answers");
        return;
    }
    /* their replies and admitted bytes could not be told apart */
    if (ntx__admission_has(c, req->id)) {
        refuse_uncounted(s, c->replies, req, -EEXIST,
                         "a request of this client with the same id is under way: give each its own");
        return;
    }
    if ((c->receiver || c->no_receiver) && req->body_case != NTX__REQUEST__BODY_LOAD) {
        refuse_uncounted(s, c->replies, req, -EINVAL,
                         "descriptors came with a request that takes none: only a load brings "
                         "files");
        return;
    }
    c->requests++;
    ntx__admission_took(c, req->id, bytes);
    c->talks |= req->body_case == NTX__REQUEST__BODY_GENERATE && req->generate->keep;
    switch (req->body_case) {
    case NTX__REQUEST__BODY_LOAD:
        if (*req->load->known && !c->receiver && !c->no_receiver)
            ntx__known_request(c, req);
        else
            begin_load(c, req);
        return;
    case NTX__REQUEST__BODY_MODELS: ntx__known_request(c, req); return;
    case NTX__REQUEST__BODY_UNLOAD: begin_unload(c, req); return;
    case NTX__REQUEST__BODY_STATUS: send_status(c, req); return;
    case NTX__REQUEST__BODY_STOP: begin_stop(c, req); return;
    case NTX__REQUEST__BODY_TEXT:
        if (is_up(s) && ntx__known_other(s, req))
            fail_request(s, c->replies, req, -EMEDIUMTYPE, other_model);
        else
            ntx__text_request(c, req);
        return;
    case NTX__REQUEST__BODY_CANCEL: cancel_request(s, c->replies, req); return;
    default: submit_or_park(s, c->replies, req); return;
    }
}
