/* SPDX-License-Identifier: Apache-2.0 */
/* Requests about known models (computed/engine/catalog.h): the list, and loads by name. Each waits for a scan that
 * began after it, so that new and vanished files count. A thread scans, one scan at a time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"
#include "common/util.h"
#include "computed/server/server_impl.h"

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
    json_t *j = json_pack("{s:o, s:s, s:b}", "models", ntx_catalog_json(&s->known), "loaded", ntx__known_loaded(s),
                          "other", other);
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
    if (!s->known.n) { /* `ntx serve` gives a successor its list a moment later */
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

static void scan_work(uv_work_t *w)
{
    struct known_scan *k = w->data;
    k->rc = ntx_catalog_scan(k->list, &k->server->known, &k->found);
}

static void begin_scan(struct ntx_server *s);

static void after_scan(uv_work_t *w, int status)
{
    struct known_scan *k = w->data;
    struct ntx_server *s = k->server;
    (void)status;
    s->scanning = false;
    if (!k->rc) {
        ntx_catalog_free(&s->known);
        s->known = k->found;
    }
    for (struct ntx_parked *h = s->closed ? NULL : k->asked; h; h = h->next) {
        struct ntx_conn *c = ntx__conn_of(s, h->replies);
        if (!c)
            continue;
        if (k->rc)
            ntx_mail_error(s->mail, c->replies, h->req->id, k->rc, "the list of models cannot be read: %s",
                           strerror(-k->rc));
        else if (h->req->body_case == NTX__REQUEST__BODY_LOAD)
            load_named(s, c, h->req);
        else
            send_list(s, c, h->req);
    }
    free_asked(k->asked);
    free(k->list);
    free(k);
    if (s->asked && !s->closed)
        begin_scan(s);
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
    s->scanning = true;
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
    return 0;
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
    if (!s->scanning)
        begin_scan(s);
}
