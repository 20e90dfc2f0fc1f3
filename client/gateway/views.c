#include <stdlib.h>
#include <string.h>

#include "client/gateway/http.h"
#include "client/metrics_text.h"
#include "common/util.h"
#include "ntx_version.h"

/* computed's status as JSON, or NULL with f. */
static json_t *status(struct ntx_request *q, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    struct ntx_call *c = NULL;
    struct ntx_event e;
    int rc = ntx_call_open(ntx__http_gate(q->http), ntx__http_client(q->conn), false, &c, &err);
    if (!rc)
        rc = ntx_call_status(c, &err);
    if (!rc)
        rc = ntx_call_next(c, 10000, &e, &err);
    json_t *j = !rc && e.kind == NTX_EVENT_STATUS ? json_loads(e.text, 0, NULL) : NULL;
    ntx_call_close(c);
    if (!j)
        ntx_fault(f, rc ? ntx_fault_of(rc) : NTX_FAULT_INTERNAL, NULL, "%s", err.text[0] ? err.text : "ntx-computed tells no status");
    return j;
}

enum MHD_Result ntx__serve_health(struct ntx_request *q)
{
    struct ntx_fault f;
    json_t *j = status(q, &f);
    const char *state = json_string_value(json_object_get(j, "state"));
    bool ready = state && !strcmp(state, "ready");
    json_t *said = json_pack("{s:s}", "status", ready ? "ok" : state ? state : "down");
    json_decref(j);
    return ntx__reply_json(q, ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, said);
}

/* The loaded model, if there is one. */
static json_t *models(const json_t *status)
{
    const json_t *name = json_object_get(status, "model"), *ctx = json_object_get(status, "ctx"), *up = json_object_get(status, "uptime_s");
    if (!json_is_string(name))
        return json_array();
    json_int_t since = (json_int_t)((double)time(NULL) - json_number_value(up));
    return json_pack("[{s:O, s:s, s:I, s:s, s:I}]", "id", name, "object", "model", "created", since, "owned_by", "ntx", "context_length", json_integer_value(ctx));
}

enum MHD_Result ntx__serve_models(struct ntx_request *q)
{
    struct ntx_fault f;
    json_t *j = status(q, &f);
    if (!j)
        return ntx__reply_fault(q, &f);
    json_t *list = json_pack("{s:s, s:o}", "object", "list", "data", models(j));
    json_decref(j);
    return ntx__reply_json(q, MHD_HTTP_OK, list);
}

static const struct ntx_counters *counters(const struct ntx_gate *g)
{
    const struct ntx_counters *c = NULL;
    char dir[200];
    if (!ntx_gate_where(g, dir, NULL))
        ntx_counters_open(dir, &c, NULL); /* each time anew: computed makes another file when it starts */
    return c;
}

static void close_counters(const struct ntx_counters *c) { ntx_counters_close((struct ntx_counters *)(uintptr_t)c); }

void ntx__model_name(const struct ntx_gate *g, char name[128])
{
    const struct ntx_counters *c = counters(g);
    name[0] = 0;
    if (c) {
        size_t n = strnlen(c->mon.model, NTX_MIN(sizeof c->mon.model, (size_t)127));
        memcpy(name, c->mon.model, n);
        name[n] = 0;
    }
    close_counters(c);
}

enum MHD_Result ntx__serve_metrics(struct ntx_request *q)
{
    const struct ntx_counters *c = counters(ntx__http_gate(q->http));
    struct ntx_buf b = {0};
    b.p = ntx_metrics_text(c, &b.n);
    b.bad = !b.p;
    close_counters(c);
    return ntx__reply(q, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", &b);
}

enum MHD_Result ntx__serve_home(struct ntx_request *q)
{
    struct ntx_buf b = {0};
    ntx_buf_text(&b, "ntx-gateway " NTX_BUILD "\nGET /v1/models, POST /v1/chat/completions, POST /v1/completions, GET /health, GET /metrics\n");
    return ntx__reply(q, MHD_HTTP_OK, "text/plain; charset=utf-8", &b);
}
