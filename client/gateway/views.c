/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/aliases.h"
#include "client/gateway/http.h"
#include "client/monitor/metrics_text.h"
#include "common/util.h"
#include "ntx_version.h"

/* The status of ntx-computed, or NULL with f. */
static json_t *get_status(struct ntx_request *q, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    json_t *j = NULL;
    int rc = ntx_gate_look(ntx__http_gate(q->http), ntx__http_place(q), &j, &err);
    if (rc)
        ntx_fault(f, ntx_fault_of(rc), NULL, "%s", err.text[0] ? err.text : strerror(-rc));
    return j;
}

/* Why no request is answered, with llama-server's words where it has some. */
static const char *why_not(const char *state, const json_t *reasons, const struct ntx_fault *f)
{
    const char *first = json_string_value(json_array_get(reasons, 0));
    if (!strcmp(state, "loading"))
        return "Loading model";
    if (!strcmp(state, "unloading"))
        return "the model is being unloaded";
    if (!strcmp(state, "stopping"))
        return "ntx-computed is shutting down";
    if (first)
        return first;
    return *f->text ? f->text : "no model is loaded: load one first (ntx load MODEL)";
}

/* Whether requests are answered although no model is loaded: they load the known one that they name. */
static bool is_swapped(struct ntx_request *q, const char *state)
{
    struct ntx_err ignored;
    struct ntx_turns_state s;
    json_t *known = NULL;
    const bool some = !ntx_gate_models(ntx__http_gate(q->http), &known, &ignored) && json_array_size(known);
    json_decref(known);
    ntx_turns_look(ntx__http_gate(q->http)->turns, &s);
    return some && (!strcmp(state, "empty") || *s.place[0].loading);
}

/* As in llama-server: {"status": "ok"}, or 503 with an error. Our fields beside it: the service's state and the
 * reason. */
enum MHD_Result ntx__serve_health(struct ntx_request *q)
{
    struct ntx_fault f = {0};
    json_t *j = get_status(q, &f), *reasons = json_object_get(j, "reasons"), *said;
    const char *state = json_string_value(json_object_get(j, "state"));
    bool serving = json_is_true(json_object_get(j, "serving"));
    if (!state)
        state = f.kind == NTX_FAULT_LOADING ? "loading" : "down";
    if (!serving && j && is_swapped(q, state))
        serving = true;
    if (serving)
        said = json_pack("{s:s}", "status", "ok");
    else
        said = json_pack("{s:{s:i, s:s, s:s}, s:s}", "error", "code", MHD_HTTP_SERVICE_UNAVAILABLE, "message",
                         why_not(state, reasons, &f), "type", "unavailable_error", "status", state);
    if (said && json_array_size(reasons)) {
        json_object_set_new(said, "state", json_string(state));
        json_object_set(said, "reasons", reasons);
    } else if (said && *f.text) {
        json_object_set_new(said, "reasons", json_pack("[s]", f.text));
    }
    if (!serving && strcmp(state, "empty"))
        q->retry_s = strcmp(state, "loading") ? ntx_fault_info(NTX_FAULT_DOWN)->retry_s
                                              : ntx_fault_info(NTX_FAULT_LOADING)->retry_s;
    json_decref(j);
    return ntx__reply_json(q, serving ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, said);
}

/* There is no model yet, or none at all. */
static void fault_no_model(const json_t *status, struct ntx_fault *f)
{
    const char *state = json_string_value(json_object_get(status, "state")),
               *why = json_string_value(json_array_get(json_object_get(status, "reasons"), 0));
    if (state && !strcmp(state, "loading"))
        ntx_fault(f, NTX_FAULT_LOADING, NULL, "the model is being loaded: try again soon");
    else
        ntx_fault(f, NTX_FAULT_EMPTY, NULL, "%s", why ? why : "no model is loaded: load one first (ntx load MODEL)");
}

/* Daemons of an earlier version have a name alone. */
static json_t *id_of(const json_t *status)
{
    json_t *id = json_object_get(status, "id");
    return id ? id : json_object_get(status, "model");
}

/* The loaded model, if there is one. */
static json_t *json_of_models(const json_t *status)
{
    json_t *name = id_of(status);
    const json_t *ctx = json_object_get(status, "ctx");
    if (!json_is_string(name))
        return json_array();
    const json_int_t since = json_integer_value(json_object_get(status, "file_changed"));
    json_t *list = json_pack("[{s:O, s:s, s:I, s:s, s:I}]", "id", name, "object", "model", "created", since, "owned_by",
                             "ntx", "context_length", json_integer_value(ctx)),
           *adapter;
    size_t i;
    json_array_foreach(json_object_get(status, "adapters"), i, adapter)
        json_array_append_new(list,
                              json_pack("{s:o, s:s, s:I, s:s, s:I, s:O}", "id",
                                        json_sprintf("%s:%s", json_string_value(name), json_string_value(adapter)),
                                        "object", "model", "created", since, "owned_by", "ntx", "context_length",
                                        json_integer_value(ctx), "parent", name));
    return list;
}

/* The known models, or else the loaded one; NULL with f. */
static json_t *models_data(struct ntx_request *q, struct ntx_fault *f)
{
    struct ntx_err ignored;
    json_t *known = NULL, *data = NULL, *j;
    if (!ntx_gate_models(ntx__http_gate(q->http), &known, &ignored) && json_array_size(known))
        data = ntx__models_data(q, known);
    json_decref(known);
    if (data || !(j = get_status(q, f)))
        return data;
    data = json_of_models(j);
    json_decref(j);
    return data;
}

enum MHD_Result ntx__serve_models(struct ntx_request *q)
{
    struct ntx_fault f;
    json_t *data = models_data(q, &f);
    return data ? ntx__reply_json(q, MHD_HTTP_OK, json_pack("{s:s, s:o}", "object", "list", "data", data))
                : ntx__reply_fault(q, &f);
}

enum MHD_Result ntx__serve_model(struct ntx_request *q)
{
    struct ntx_fault f;
    json_t *list = models_data(q, &f), *m, *found = NULL;
    size_t i;
    json_array_foreach(list, i, m)
        if (!strcmp(json_string_value(json_object_get(m, "id")), q->of))
            found = json_incref(m);
    if (list && !found)
        ntx_fault(&f, NTX_FAULT_PATH, NULL, "no model '%.100s' is loaded: see /v1/models", q->of);
    json_decref(list);
    return found ? ntx__reply_json(q, MHD_HTTP_OK, found) : ntx__reply_fault(q, &f);
}

/* ---- Ollama's */

/* The loaded model's entry, where no list has it; NULL: none is loaded. */
static json_t *json_of_entry(const json_t *status)
{
    json_t *id = id_of(status);
    if (!json_is_string(id))
        return NULL;
    json_t *known = json_pack("{s:O, s:O*, s:O*, s:O*, s:O*, s:O*, s:O*}", "id", id, "bytes",
                              json_object_get(status, "file_bytes"), "changed", json_object_get(status, "file_changed"),
                              "parameters", json_object_get(status, "parameters"), "arch",
                              json_object_get(status, "arch"), "type", json_object_get(status, "type"), "digest",
                              json_object_get(status, "digest"));
    json_t *entry = known ? ntx__models_entry(known) : NULL;
    json_decref(known);
    return entry;
}

static json_int_t bytes_in(const json_t *status, const char *what)
{
    return json_integer_value(json_object_get(status, what));
}

/* Ollama's entry of the known model of this name; NULL: there is none. */
static json_t *known_named(struct ntx_request *q, const char *name)
{
    struct ntx_fault f;
    struct ntx_err ignored;
    struct ntx_gate *g = ntx__http_gate(q->http);
    json_t *list = NULL, *entry = NULL;
    if (name && *name && !ntx_gate_models(g, &list, &ignored) && json_array_size(list)) {
        const json_t *known = ntx_models_find(g, list, name, &f);
        entry = known ? ntx__models_entry(known) : NULL;
    }
    json_decref(list);
    return entry;
}

/* The entry of a place's loaded model; NULL: it has none. A model that stays until it is unloaded stays for a hundred
 * years, which Ollama's client shows as "forever". Streamed weights are not counted. */
static json_t *json_of_running(struct ntx_request *q, const json_t *status, const struct ntx_turns_place *p)
{
    const time_t stays = p->left_ms < 0 ? (time_t)100 * 365 * 86400 : (time_t)(p->left_ms / 1000),
                 then = time(NULL) + stays;
    struct tm tm;
    char until[40];
    strftime(until, sizeof until, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&then, &tm));
    const char *back = json_string_value(json_object_get(status, "backend"));
    const json_int_t kv = bytes_in(status, "bytes_kv"), card = bytes_in(status, "bytes_device"),
                     size = bytes_in(status, "bytes_host") + card + kv;
    json_t *one = json_of_entry(status), *known = known_named(q, p->loaded);
    json_t *more = json_pack("{s:s, s:I, s:I, s:I}", "expires_at", until, "size_vram",
                             back && strcmp(back, "cpu") ? card + kv : 0, "context_length", bytes_in(status, "ctx"),
                             "size", size);
    if (one && known)
        json_object_update(one, known);
    if (one) {
        json_object_del(one, "modified_at"); /* Ollama has it for files only */
        json_object_update(one, more);
    }
    json_decref(known);
    json_decref(more);
    return one;
}

enum MHD_Result ntx__serve_ollama_ps(struct ntx_request *q)
{
    struct ntx_gate *g = ntx__http_gate(q->http);
    struct ntx_fault f = {0};
    struct ntx_turns_state s;
    json_t *list = json_array();
    ntx_turns_look(g->turns, &s);
    for (unsigned i = 0; i < s.n_places; i++) {
        struct ntx_err err = {0};
        json_t *status = NULL, *one;
        int rc = ntx_gate_look(g, i, &status, &err);
        if (rc && !f.kind)
            ntx_fault(&f, ntx_fault_of(rc), NULL, "%s", err.text[0] ? err.text : strerror(-rc));
        if (!rc && (one = json_of_running(q, status, &s.place[i])))
            json_array_append_new(list, one);
        json_decref(status);
    }
    if (!f.kind || json_array_size(list))
        return ntx__reply_json(q, MHD_HTTP_OK, json_pack("{s:o}", "models", list));
    json_decref(list);
    return ntx__reply_fault(q, &f);
}

enum MHD_Result ntx__serve_ollama_version(struct ntx_request *q)
{
    return ntx__reply_json(q, MHD_HTTP_OK, json_pack("{s:s}", "version", NTX_BUILD));
}

/* An entry of a known model, and one for each name that requests gave it. */
static void add_entries(json_t *entries, const json_t *known)
{
    json_t *entry = ntx__models_entry(known), *alias;
    size_t i;
    json_array_append_new(entries, entry);
    json_array_foreach(json_object_get(known, "aliases"), i, alias) {
        json_t *same = json_copy(entry);
        json_object_set(same, "name", alias);
        json_object_set(same, "model", alias);
        json_array_append_new(entries, same);
    }
}

enum MHD_Result ntx__serve_ollama_tags(struct ntx_request *q)
{
    struct ntx_fault f;
    struct ntx_err ignored;
    json_t *known = NULL, *j, *each, *entries = json_array();
    size_t i;
    if (!ntx_gate_models(ntx__http_gate(q->http), &known, &ignored))
        json_array_foreach(known, i, each)
            add_entries(entries, each);
    json_decref(known);
    if (json_array_size(entries))
        return ntx__reply_json(q, MHD_HTTP_OK, json_pack("{s:o}", "models", entries));
    if (!(j = get_status(q, &f))) {
        json_decref(entries);
        return ntx__reply_fault(q, &f);
    }
    json_t *one = json_of_entry(j);
    json_decref(j);
    if (one)
        json_array_append_new(entries, one);
    return ntx__reply_json(q, MHD_HTTP_OK, json_pack("{s:o}", "models", entries));
}

/* What /api/show tells of a model. details: taken over. */
static json_t *json_of_show(json_t *details, const char *arch, json_int_t ctx, const char *format)
{
    char key[128];
    snprintf(key, sizeof key, "%.64s.context_length", arch);
    json_t *info = json_pack("{s:s, s:I}", "general.architecture", arch, key, ctx),
           *can = json_pack("[s]", "completion");
    if (format && strcmp(format, "plain"))
        json_array_append_new(can, json_string("tools"));
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "modelfile", "", "parameters", "", "template", "", "details",
                     details, "model_info", info, "capabilities", can);
}

/* "temperature                    0.5", a line each, as Ollama has them. */
static void put_parameter(struct ntx_buf *b, const char *name, const json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT), line[64];
    snprintf(line, sizeof line, "%s%-30.30s ", b->n ? "\n" : "", name);
    ntx_buf_text(b, line);
    ntx_buf_text(b, text ? text : "");
    free(text);
}

/* The defaults of a name that /api/create made. */
static void add_made(json_t *show, const json_t *made, const char *parent)
{
    struct ntx_buf b = {0};
    const char *name;
    const json_t *v, *one;
    size_t i;
    json_object_foreach(json_object_get(made, "parameters"), name, v) {
        if (!json_is_array(v))
            put_parameter(&b, name, v);
        json_array_foreach(v, i, one)
            put_parameter(&b, name, one);
    }
    if (b.n && !b.bad)
        json_object_set_new(show, "parameters", json_stringn(b.p, b.n));
    if (json_object_get(made, "system"))
        json_object_set(show, "system", json_object_get(made, "system"));
    if (made)
        json_object_set_new(json_object_get(show, "details"), "parent_model", json_string(parent));
    ntx_buf_free(&b);
}

/* Of a known model that is not loaded, nobody knows whether it calls tools. */
static json_t *show_known(struct ntx_request *q, const json_t *list, const json_t *status, const char *name,
                          struct ntx_fault *f)
{
    struct ntx_turns_state s;
    const json_t *known = ntx_models_find(ntx__http_gate(q->http), list, name, f);
    json_t *entry = known ? ntx__models_entry(known) : NULL;
    const char *id = known ? json_string_value(json_object_get(known, "id")) : NULL;
    if (!entry)
        return NULL;
    ntx_turns_look(ntx__http_gate(q->http)->turns, &s);
    const unsigned at = ntx_turns_place_of(&s, id);
    const bool loaded = at < s.n_places && !strcmp(s.place[at].loaded, id);
    json_int_t ctx = json_integer_value(json_object_get(loaded ? status : known, "ctx"));
    json_t *show = json_of_show(json_incref(json_object_get(entry, "details")),
                                json_string_value(json_object_get(known, "arch")), ctx,
                                loaded ? json_string_value(json_object_get(status, "reply_format")) : NULL);
    json_object_set(show, "modified_at", json_object_get(entry, "modified_at"));
    add_made(show, name ? ntx_aliases_made(list, name) : NULL, id);
    json_decref(entry);
    return show;
}

static json_t *show_loaded(const json_t *status, struct ntx_fault *f)
{
    const char *arch = json_string_value(json_object_get(status, "arch"));
    json_t *entry = arch ? json_of_entry(status) : NULL;
    if (!entry) {
        fault_no_model(status, f);
        return NULL;
    }
    json_t *show = json_of_show(json_incref(json_object_get(entry, "details")), arch,
                                json_integer_value(json_object_get(status, "ctx")),
                                json_string_value(json_object_get(status, "reply_format")));
    json_object_set(show, "modified_at", json_object_get(entry, "modified_at"));
    json_decref(entry);
    return show;
}

enum MHD_Result ntx__serve_ollama_show(struct ntx_request *q)
{
    struct ntx_fault f;
    struct ntx_err ignored;
    json_t *body = ntx__json_read(q->body.n ? q->body.p : "{}", q->body.n ? q->body.n : 2, &f), *list = NULL,
           *show = NULL;
    int rc = body ? ntx_fields_read(NTX_FIELDS_OLLAMA_SHOW, body, NULL, &q->ignored, &f) : -1;
    json_t *status = rc ? NULL : get_status(q, &f);
    const char *name = json_string_value(json_object_get(body, "model"));
    if (!name)
        name = json_string_value(json_object_get(body, "name"));
    if (status && !ntx_gate_models(ntx__http_gate(q->http), &list, &ignored) && json_array_size(list))
        show = show_known(q, list, status, name, &f);
    else if (status)
        show = show_loaded(status, &f);
    json_decref(list);
    json_decref(status);
    json_decref(body);
    return show ? ntx__reply_json(q, MHD_HTTP_OK, show) : ntx__reply_fault(q, &f);
}

/* ---- counters */

static const struct ntx_counters *open_counters(const struct ntx_gate *g, unsigned place)
{
    const struct ntx_counters *c = NULL;
    char dir[200];
    if (!ntx_gate_where(g, place, dir, NULL))
        ntx_counters_open(dir, &c, NULL); /* opened each time: ntx-computed makes another file when it starts */
    return c;
}

static void close_counters(const struct ntx_counters *c) { ntx_counters_close((struct ntx_counters *)(uintptr_t)c); }

void ntx__model_name(const struct ntx_gate *g, unsigned place, char name[128])
{
    const struct ntx_counters *c = open_counters(g, place);
    name[0] = 0;
    if (c) {
        size_t n = strnlen(c->mon.model, NTX_MIN(sizeof c->mon.model, (size_t)127));
        memcpy(name, c->mon.model, n);
        name[n] = 0;
        for (char *p = name; *p; p++) /* as status has it: computed/engine/facts.h */
            if ((unsigned char)*p <= ' ' || strchr(",\"\\\x7f", *p))
                *p = '-';
    }
    close_counters(c);
}

/* The queue for models, in Prometheus' form. */
static void add_turns(const struct ntx_gate *g, struct ntx_buf *b)
{
    struct ntx_turns_state s;
    char text[800];
    ntx_turns_look(g->turns, &s);
    snprintf(text, sizeof text,
             "# HELP ntx_gateway_turns_held Requests that have the loaded model.\n"
             "# TYPE ntx_gateway_turns_held gauge\nntx_gateway_turns_held %u\n"
             "# HELP ntx_gateway_turns_waiting Requests that wait for another model.\n"
             "# TYPE ntx_gateway_turns_waiting gauge\nntx_gateway_turns_waiting %u\n"
             "# HELP ntx_gateway_swaps_total Models that were loaded for requests.\n"
             "# TYPE ntx_gateway_swaps_total counter\nntx_gateway_swaps_total %llu\n"
             "# HELP ntx_gateway_swap_seconds Duration of the last such load.\n"
             "# TYPE ntx_gateway_swap_seconds gauge\nntx_gateway_swap_seconds %.3f\n",
             s.held, s.waiting, (unsigned long long)s.swaps, (double)s.swap_ns / 1e9);
    ntx_buf_text(b, text);
}

enum MHD_Result ntx__serve_metrics(struct ntx_request *q)
{
    const struct ntx_counters *c = open_counters(ntx__http_gate(q->http), ntx__http_place(q));
    struct ntx_buf b = {0};
    b.p = ntx_metrics_text(c, &b.n);
    b.bad = !b.p;
    b.room = b.n;
    close_counters(c);
    add_turns(ntx__http_gate(q->http), &b);
    return ntx__reply(q, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", &b);
}

/* page.html, unchanged (cmake/embed.cmake). It loads nothing and talks only to its own server. */
extern const unsigned char ntx_gateway_page[];
extern const size_t ntx_gateway_page_len;

enum MHD_Result ntx__serve_home(struct ntx_request *q)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(ntx_gateway_page_len, (void *)(uintptr_t)ntx_gateway_page,
                                                             MHD_RESPMEM_PERSISTENT);
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/html; charset=utf-8");
    MHD_add_response_header(r, "Content-Security-Policy",
                            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
                            "connect-src 'self'; form-action 'none'; "
                            "base-uri 'none'; frame-ancestors 'none'");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    return ntx__reply_queue(q, MHD_HTTP_OK, r);
}
