/* SPDX-License-Identifier: Apache-2.0 */
/* Requests about known models (computed/engine/catalog.h): the list, and loads by name. Each waits for a scan that
 * began after it, so that new and vanished files count. A thread scans, one scan at a time. Where a scan takes long (a
 * drive that does not answer), requests get the result of the one before. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"
#include "common/util.h"
#include "computed/server/server_impl.h"

#define SOON_NS 500000000ull  /* so long a scan is waited for if there is an earlier result, */
#define HANG_NS 3000000000ull /* and if there is none; then it is said to hang */

struct known_scan {
    uv_work_t work;
    struct ntx_server *server;
    char *list;
    struct ntx_catalog found;
    struct ntx_parked *asked; /* the requests that wait for this scan */
    int rc;
};

static void free_asked(struct ntx_parked *h)
{
    for (struct ntx_parked *next; h; h = next) {
        next = h->next;
        ntx__request__free_unpacked(h->req, NULL);
        ntx_reply_queue_unref(h->replies);
        free(h);
    }
}

const char *ntx__known_loaded(const struct ntx_server *s)
{
    if (!s->loaded || !s->load)
        return "";
    if (s->load->known && *s->load->known)
        return s->load->known;
    const bool ours = (s->load->path && *s->load->path) || !s->c.service;
    const struct ntx_catalog_model *m = ours ? ntx_catalog_at(&s->known, s->loaded->names[0]) : NULL;
    return m ? m->name[0] : "";
}

bool ntx__known_other(const struct ntx_server *s, const Ntx__Request *req)
{
    return req->known && *req->known && strcmp(req->known, ntx__known_loaded(s));
}

static void send_list(struct ntx_server *s, struct ntx_conn *c, const Ntx__Request *req)
{
    Ntx__StatusRep m = NTX__STATUS_REP__INIT;
    Ntx__Reply r = NTX__REPLY__INIT;
    const bool other = s->loaded && !*ntx__known_loaded(s);
    json_t *j = json_pack("{s:o, s:s, s:b, s:b}", "models", ntx_catalog_json(&s->known), "loaded", ntx__known_loaded(s),
                          "other", other, "fresh",
                          !s->had_load && (!s->known_defaults || s->on_request)); /* else the list's sender loads one */
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    m.json = text;
    r.id = req->id;
    r.body_case = NTX__REPLY__BODY_STATUS;
    r.status = &m;
    if (text)
        ntx_mail_reply(s->mail, c->replies, &r, true);
    else
        ntx_mail_error(s->mail, c->replies, req->id, -ENOMEM, "no memory");
    free(text);
}

static void load_named(struct ntx_server *s, struct ntx_conn *c, const Ntx__Request *req)
{
    const struct ntx_catalog_model *m = ntx_catalog_find(&s->known, req->load->known);
    struct ntx_near near;
    struct ntx_err err = {0};
    int rc = m ? ntx__load_known(c, req, m, &err) : -ENOENT;
    if (!rc)
        return;
    if (!s->known.n && !s->known_list && !s->c.service) { /* `ntx serve` gives a successor its list a moment later */
        ntx_mail_error(s->mail, c->replies, req->id, -EHOSTDOWN, "no list of models is here yet: try again soon");
        return;
    }
    ntx_near_begin(&near, req->load->known, "");
    for (unsigned i = 0; !m && i < s->known.n; i++)
        ntx_near_offer(&near, s->known.m[i].name[0], strlen(s->known.m[i].name[0]));
    if (!m)
        ntx_err_set(&err, rc, "'%.200s' is no known model%s", req->load->known, near.hint);
    ntx_mail_error(s->mail, c->replies, req->id, rc, "%s", err.text);
}

/* ---- the queue, and the load that is under way */

#define QUEUE_NS 5000000000ull

static void take_queue(struct ntx_server *s, struct ntx_conn *c, const Ntx__Request *req)
{
    const Ntx__Queue *q = req->models->queue;
    Ntx__StatusRep m = NTX__STATUS_REP__INIT;
    Ntx__Reply r = NTX__REPLY__INIT;
    s->queue.told_ns = ntx_now_ns();
    s->queue.waiting = q->waiting;
    s->queue.since_ns = s->queue.told_ns - NTX_MIN(q->waited_ms, (uint64_t)1 << 30) * 1000000;
    snprintf(s->queue.next, sizeof s->queue.next, "%s", q->next);
    ntx_gauge(s->counters, NTX_C_comp_turns_waiting, q->waiting);
    m.json = (char *)"{}";
    r.id = req->id;
    r.body_case = NTX__REPLY__BODY_STATUS;
    r.status = &m;
    ntx_mail_reply(s->mail, c->replies, &r, true);
}

/* The model that is being loaded, and since when; NULL: none. */
static const Ntx__Load *load_under_way(const struct ntx_server *s, uint64_t *since_ns)
{
    const struct ntx_pending_load *o = s->pending_loads;
    const bool transit = s->state != NTX_MODEL_EMPTY && s->state != NTX_MODEL_READY;
    while (o && (!o->load || o->dropped))
        o = o->next;
    *since_ns = s->loading_ns;
    if (transit && s->next_load)
        return s->next_load;
    if (transit && s->state != NTX_MODEL_UNLOADING)
        return s->load;
    *since_ns = o ? o->since_ns : 0;
    return o ? o->load : NULL;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *load_name(const Ntx__Load *m)
{
    if (m->known && *m->known)
        return m->known;
    return base_of(m->n_names ? m->names[0] : m->path);
}

/* For monitors. */
static void put_queue(struct ntx_server *s)
{
    uint64_t since_ns;
    const Ntx__Load *load = load_under_way(s, &since_ns);
    struct ntx_monitor *m = s->counters ? &s->counters->mon : NULL;
    if (ntx_now_ns() - s->queue.told_ns > QUEUE_NS)
        s->queue.waiting = 0;
    ntx_gauge(s->counters, NTX_C_comp_turns_waiting, s->queue.waiting);
    if (m && atomic_load(&m->loading_ns) != (load ? since_ns : 0)) {
        atomic_store(&m->loading_ns, 0);
        snprintf(m->loading, sizeof m->loading, "%.*s", (int)sizeof m->loading - 1, load ? load_name(load) : "");
        atomic_store(&m->loading_ns, load ? since_ns : 0);
    }
}

/* ---- scans */

static void scan_work(uv_work_t *w)
{
    struct known_scan *k = w->data;
    k->rc = ntx_catalog_scan(k->list, &k->server->known, &k->found);
}

static void begin_scan(struct ntx_server *s);

/* Answers from the latest result; rc: why there is none. */
static void answer_asked(struct ntx_server *s, const struct ntx_parked *h, int rc)
{
    for (; h; h = h->next) {
        struct ntx_conn *c = ntx__conn_of(s, h->replies);
        if (!c)
            continue;
        if (rc)
            ntx_mail_error(s->mail, c->replies, h->req->id, rc, "the list of models cannot be read: %s",
                           rc == -ETIMEDOUT ? "a folder or a file of it does not answer" : strerror(-rc));
        else if (h->req->body_case == NTX__REQUEST__BODY_LOAD)
            load_named(s, c, h->req);
        else
            send_list(s, c, h->req);
    }
}

static void after_scan(uv_work_t *w, int status)
{
    struct known_scan *k = w->data;
    struct ntx_server *s = k->server;
    (void)status;
    if (s->scan_hangs)
        ntx_log(NTX_LOG_INFO, "over: the folders of models answer again");
    s->scan = NULL;
    s->scan_hangs = false;
    if (!k->rc) {
        ntx_catalog_free(&s->known);
        s->known = k->found;
        s->was_scanned = true;
    }
    if (!s->closed)
        answer_asked(s, k->asked, k->rc);
    free_asked(k->asked);
    free(k->list);
    free(k);
    if (s->asked && !s->closed)
        begin_scan(s);
}

void ntx__known_tick(struct ntx_server *s)
{
    put_queue(s);
    const uint64_t for_ns = s->scan ? ntx_now_ns() - s->scan_ns : 0;
    if (for_ns < (s->was_scanned ? SOON_NS : HANG_NS))
        return;
    if (!s->scan_hangs && for_ns >= HANG_NS) {
        ntx_log(NTX_LOG_WARN, "degraded: the folders of models do not answer; the list stays as it was");
        s->scan_hangs = true;
    }
    struct ntx_parked *const asked[] = {s->scan->asked, s->asked};
    s->scan->asked = s->asked = NULL;
    for (int i = 0; i < 2; i++) {
        answer_asked(s, asked[i], s->was_scanned ? 0 : -ETIMEDOUT);
        free_asked(asked[i]);
    }
}

static void begin_scan(struct ntx_server *s)
{
    struct known_scan *k = calloc(1, sizeof *k);
    if (k)
        k->list = strdup(s->known_list ? s->known_list : "");
    if (!k || !k->list) {
        free(k);
        return; /* the next request tries again */
    }
    k->work.data = k;
    k->server = s;
    k->asked = s->asked;
    s->asked = NULL;
    s->scan = k;
    s->scan_ns = ntx_now_ns();
    uv_queue_work(s->loop, &k->work, scan_work, after_scan);
}

static int set_list(struct ntx_server *s, const Ntx__Models *m, struct ntx_err *err)
{
    if (s->c.service)
        return ntx_err_set(err, -EPERM, "this service's ntx.conf has the list of models ([model] models)");
    char *list = strdup(m->list);
    Ntx__Load *defaults = list && m->defaults ? ntx__load_copy(m->defaults) : NULL;
    if (!list || (m->defaults && !defaults)) {
        free(list);
        return ntx_err_set(err, -ENOMEM, "no memory");
    }
    ntx__known_clear(s);
    s->known_list = list;
    s->known_defaults = defaults;
    s->each_state = m->each_state;
    s->on_request = m->on_request;
    return 0;
}

void ntx__known_queue(struct ntx_server *s, json_t *status)
{
    uint64_t since_ns;
    const uint64_t now = ntx_now_ns();
    const Ntx__Load *load = load_under_way(s, &since_ns);
    put_queue(s);
    json_object_set_new(status, "models_waiting", json_integer(s->queue.waiting));
    if (s->queue.waiting && *s->queue.next) {
        json_object_set_new(status, "waiting_for", json_string(s->queue.next));
        json_object_set_new(status, "waiting_for_s", json_real((double)(now - s->queue.since_ns) / 1e9));
    }
    if (load) {
        json_object_set_new(status, "loading", json_string(load_name(load)));
        json_object_set_new(status, "loading_s", json_real((double)(now - since_ns) / 1e9));
    }
}

void ntx__known_clear(struct ntx_server *s)
{
    free(s->known_list);
    if (s->known_defaults)
        ntx__load__free_unpacked(s->known_defaults, NULL);
    s->known_list = NULL;
    s->known_defaults = NULL;
}

void ntx__known_free(struct ntx_server *s)
{
    ntx__known_clear(s);
    free_asked(s->asked);
    ntx_catalog_free(&s->known);
}

void ntx__known_request(struct ntx_conn *c, Ntx__Request *req)
{
    struct ntx_server *s = c->server;
    struct ntx_err err = {0};
    const Ntx__Models *m = req->body_case == NTX__REQUEST__BODY_MODELS ? req->models : NULL;
    if (m && m->queue) {
        take_queue(s, c, req);
        ntx__request__free_unpacked(req, NULL);
        return;
    }
    struct ntx_parked *h = calloc(1, sizeof *h), **last = &s->asked;
    int rc = h ? 0 : ntx_err_set(&err, -ENOMEM, "no memory");
    if (!rc && m && m->list && *m->list)
        rc = set_list(s, m, &err);
    if (rc) {
        ntx_mail_error(s->mail, c->replies, req->id, rc, "%s", err.text);
        ntx__request__free_unpacked(req, NULL);
        free(h);
        return;
    }
    while (*last)
        last = &(*last)->next;
    *h = (struct ntx_parked){.replies = ntx_reply_queue_ref(c->replies), .req = req};
    *last = h;
    if (!s->scan)
        begin_scan(s);
    else
        ntx__known_tick(s);
}
