/* SPDX-License-Identifier: Apache-2.0 */
/* The known models, as OpenAI's, llama-server's and Ollama's lists show them; loads and unloads by request. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/gateway/http.h"
#include "client/gateway/request_fields.h"
#include "common/util.h"

static const char *text_in(const json_t *known, const char *what)
{
    const char *s = json_string_value(json_object_get(known, what));
    return s ? s : "";
}

static json_int_t number_in(const json_t *known, const char *what)
{
    return json_integer_value(json_object_get(known, what));
}

/* ---- OpenAI's and llama-server's */

/* As llama-server's router has it. */
static const char *status_of(const struct ntx_turns_state *s, const char *id)
{
    const unsigned at = ntx_turns_place_of(s, id);
    if (at == s->n_places)
        return "unloaded";
    return strcmp(s->place[at].loaded, id) ? "loading" : "loaded";
}

static json_t *json_of_one(const json_t *known, const struct ntx_turns_state *s, json_int_t ctx)
{
    const char *id = text_in(known, "id"), *state = status_of(s, id);
    json_t *names = json_deep_copy(json_object_get(known, "names"));
    const bool is_loaded = !strcmp(state, "loaded");
    json_array_remove(names, 0);
    json_t *j = json_pack("{s:s, s:s, s:I, s:s, s:o, s:{s:s}, s:{s:I, s:I, s:I}}", "id", id, "object", "model",
                          "created", number_in(known, "changed"), "owned_by", "ntx", "aliases", names, "status",
                          "value", state, "meta", "n_ctx_train", number_in(known, "ctx"), "n_params",
                          number_in(known, "parameters"), "size", number_in(known, "bytes"));
    if (is_loaded && ctx)
        json_object_set_new(j, "context_length", json_integer(ctx));
    else if (number_in(known, "ctx"))
        json_object_set_new(j, "context_length", json_integer(number_in(known, "ctx")));
    return j;
}

static void add_adapters(json_t *data, const json_t *status, json_t *of)
{
    size_t i;
    json_t *adapter;
    json_array_foreach(json_object_get(status, "adapters"), i, adapter) {
        json_t *one = json_copy(of);
        json_object_set_new(one, "id", json_sprintf("%s:%s", text_in(of, "id"), json_string_value(adapter)));
        json_object_set(one, "parent", json_object_get(of, "id"));
        json_array_append_new(data, one);
    }
}

json_t *ntx__models_data(struct ntx_request *q, const json_t *list)
{
    struct ntx_gate *g = ntx__http_gate(q->http);
    struct ntx_turns_state s;
    struct ntx_err ignored;
    json_t *data = json_array();
    size_t i;
    const json_t *known;
    ntx_turns_look(g->turns, &s);
    json_array_foreach(list, i, known) {
        const unsigned at = ntx_turns_place_of(&s, text_in(known, "id"));
        json_t *status = NULL;
        if (at < s.n_places && !strcmp(s.place[at].loaded, text_in(known, "id")) &&
            ntx_gate_look(g, at, &status, &ignored))
            status = NULL;
        json_t *one = json_of_one(known, &s, json_integer_value(json_object_get(status, "ctx")));
        json_array_append_new(data, one);
        add_adapters(data, status, one);
        json_decref(status);
    }
    return data;
}

/* ---- Ollama's */

static void write_time(char *buf, size_t n, time_t t)
{
    struct tm tm;
    strftime(buf, n, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &tm));
}

/* 1543714304 -> "1.5B" */
static void write_parameters(char *buf, size_t n, json_int_t parameters)
{
    if (parameters >= 1000000000)
        snprintf(buf, n, "%.1fB", (double)parameters / 1e9);
    else
        snprintf(buf, n, "%.2fM", (double)parameters / 1e6);
}

json_t *ntx__models_entry(const json_t *known)
{
    char when[40], parameters[24] = "";
    const char *arch = text_in(known, "arch");
    write_time(when, sizeof when, (time_t)number_in(known, "changed"));
    if (number_in(known, "parameters"))
        write_parameters(parameters, sizeof parameters, number_in(known, "parameters"));
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:{s:s, s:s, s:s, s:[s], s:s, s:s}}", "name", text_in(known, "id"),
                     "model", text_in(known, "id"), "modified_at", when, "size", number_in(known, "bytes"), "digest",
                     text_in(known, "digest"), "details", "parent_model", "", "format", "gguf", "family", arch,
                     "families", arch, "parameter_size", parameters, "quantization_level", text_in(known, "type"));
}

/* ---- loads and unloads */

/* The model that the body names, as a known one; *list owns it. NULL with f. */
static const json_t *read_named(struct ntx_request *q, json_t **body, json_t **list, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    struct ntx_gate *g = ntx__http_gate(q->http);
    *body = ntx__json_read(q->body.n ? q->body.p : "", q->body.n, f);
    const char *name = json_string_value(json_object_get(*body, "model"));
    int rc = *body ? ntx_gate_models(g, list, &err) : 0;
    if (*body && (!name || !*name))
        ntx_fault(f, NTX_FAULT_INVALID, "model", "'model' must be the name of a model");
    else if (rc)
        ntx_fault(f, ntx_fault_of(rc), NULL, "%s", err.text);
    else if (*body && !json_array_size(*list))
        ntx_fault(f, NTX_FAULT_UNSUPPORTED, "model",
                  "no models are known by name, only the loaded one is there: list them with `ntx serve MODEL...`, or "
                  "[model] models in ntx.conf");
    else if (*body)
        return ntx_models_find(g, *list, name, f);
    return NULL;
}

enum MHD_Result ntx__serve_load(struct ntx_request *q)
{
    struct ntx_fault f = {0};
    json_t *body = NULL, *list = NULL;
    const json_t *known = read_named(q, &body, &list, &f);
    ntx__http_patience(q->http, q->conn, true);
    int rc = known ? ntx__http_turn(q, text_in(known, "id"), -1, &f) : -1;
    ntx__http_patience(q->http, q->conn, false);
    json_decref(list);
    json_decref(body);
    return rc ? ntx__reply_fault(q, &f) : ntx__reply_json(q, MHD_HTTP_OK, json_pack("{s:b}", "success", 1));
}

enum MHD_Result ntx__serve_unload(struct ntx_request *q)
{
    struct ntx_fault f = {0};
    json_t *body = NULL, *list = NULL;
    const json_t *known = read_named(q, &body, &list, &f);
    const bool was = known && ntx_turns_unload(ntx__http_gate(q->http)->turns, text_in(known, "id"));
    if (known && !was)
        ntx_fault(&f, NTX_FAULT_INVALID, "model", "model '%.200s' is not loaded", text_in(known, "id"));
    json_decref(list);
    json_decref(body);
    return was ? ntx__reply_json(q, MHD_HTTP_OK, json_pack("{s:b}", "success", 1)) : ntx__reply_fault(q, &f);
}

static enum MHD_Result reply_done(struct ntx_request *q, const struct ntx_api_request *a, const char *model,
                                  const char *why)
{
    char now[40];
    write_time(now, sizeof now, time(NULL));
    json_t *j = json_pack("{s:s, s:s, s:b, s:s}", "model", model, "created_at", now, "done", 1, "done_reason", why);
    if (a->api == NTX_API_OLLAMA_CHAT)
        json_object_set_new(j, "message", json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    else
        json_object_set_new(j, "response", json_string(""));
    return ntx__reply_json(q, MHD_HTTP_OK, j);
}

int ntx__models_unload(struct ntx_request *q, const char *name, char id[NTX_KNOWN_NAME], struct ntx_fault *f)
{
    struct ntx_gate *g = ntx__http_gate(q->http);
    struct ntx_err err = {0};
    json_t *list = NULL;
    int rc = ntx_gate_models(g, &list, &err);
    if (rc)
        ntx_fault(f, ntx_fault_of(rc), NULL, "%s", err.text);
    else if (!json_array_size(list))
        rc = ntx_fault(
            f, NTX_FAULT_UNSUPPORTED, "keep_alive",
            "the loaded model stays: no models are known by name (`ntx serve MODEL...`, or [model] models in "
            "ntx.conf)");
    const json_t *known = rc ? NULL : ntx_models_find(g, list, name, f);
    if (known)
        ntx_turns_unload(g->turns, text_in(known, "id"));
    snprintf(id, NTX_KNOWN_NAME, "%s", text_in(known, "id"));
    json_decref(list);
    return known ? 0 : -1;
}

enum MHD_Result ntx__serve_preload(struct ntx_request *q, const struct ntx_api_request *a)
{
    struct ntx_fault f = {0};
    char model[NTX_KNOWN_NAME] = "";
    const bool ends = a->keeps && !a->keep_ms;
    int rc = ends ? ntx__models_unload(q, a->model, model, &f) : ntx__http_turn(q, a->model, -1, &f);
    if (rc)
        return ntx__reply_fault(q, &f);
    if (!ends)
        ntx__http_model(q, model);
    if (q->turn && a->keeps)
        ntx_turn_keep(q->turn, a->keep_ms);
    return reply_done(q, a, model, ends ? "unload" : "load");
}
