/* SPDX-License-Identifier: Apache-2.0 */
/* llama-server's views of the server: /props, /slots, /apply-template; vLLM's /tokenizer_info; and /rerank, which no
 * model here has. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/http.h"
#include "client/gateway/request_fields.h"
#include "ntx_version.h"

enum { STEP_MS = 5000 };

static json_t *status_of(struct ntx_request *q, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    json_t *j = NULL;
    int rc = ntx_gate_look(ntx__http_gate(q->http), ntx__http_place(q), &j, &err);
    if (rc)
        ntx_fault(f, ntx_fault_of(rc), NULL, "%s", err.text[0] ? err.text : strerror(-rc));
    return j;
}

static json_int_t number_in(const json_t *status, const char *name)
{
    return json_integer_value(json_object_get(status, name));
}

/* Defaults of requests: those of api_request.c. */
static json_t *json_of_defaults(const json_t *status)
{
    return json_pack("{s:I, s:{s:f, s:i, s:f, s:f, s:f, s:i}}", "n_ctx", number_in(status, "ctx"), "params",
                     "temperature", 0.8, "top_k", 40, "top_p", 0.95, "min_p", 0.05, "repeat_penalty", 1.0, "n_predict",
                     -1);
}

/* The template of the model's file; NULL with f. */
static json_t *template_of(struct ntx_request *q, struct ntx_fault *f)
{
    const struct ntx_call_text t = {.template = true};
    struct ntx_err err = {0};
    struct ntx_call *c = NULL;
    struct ntx_event e;
    const struct ntx_caller by = ntx__http_caller(q);
    int rc = ntx_call_open(ntx__http_gate(q->http), ntx__http_place(q), &by, false, &c, &err);
    rc = rc ? rc : ntx_call_text(c, &t, &err);
    rc = rc ? rc : ntx_call_next(c, STEP_MS, &e, &err);
    json_t *text = !rc && e.kind == NTX_EVENT_WORDS ? ntx_json_text(e.text, e.len) : NULL;
    if (!text)
        ntx_fault(f, ntx_fault_of(rc ? rc : -EPROTO), NULL, "%s", err.text[0] ? err.text : strerror(-rc));
    ntx_call_close(c);
    return text;
}

/* The status and the template; false with f. */
static bool read_views(struct ntx_request *q, json_t **status, json_t **text, struct ntx_fault *f)
{
    *status = status_of(q, f);
    *text = *status ? template_of(q, f) : NULL;
    if (!*text)
        json_decref(*status);
    return *text != NULL;
}

/* vLLM's: programs that count tokens themselves, such as lm-eval, ask it first, then /tokenize. */
enum MHD_Result ntx__serve_tokenizer(struct ntx_request *q)
{
    struct ntx_fault f = {0};
    json_t *j, *text;
    if (!read_views(q, &j, &text, &f))
        return ntx__reply_fault(q, &f);
    json_t *made = json_pack("{s:O?, s:O?, s:o, s:I}", "bos_token", json_object_get(j, "bos_token"), "eos_token",
                             json_object_get(j, "eos_token"), "chat_template",
                             *json_string_value(text) ? json_incref(text) : json_null(), "model_max_length",
                             number_in(j, "ctx"));
    json_decref(text);
    json_decref(j);
    return ntx__reply_json(q, MHD_HTTP_OK, made);
}

/* llama-server has "" for a token that the vocabulary lacks. */
static json_t *token_in(const json_t *status, const char *name)
{
    json_t *text = json_object_get(status, name);
    return text ? json_incref(text) : json_string("");
}

/* Its id in /v1/models. */
static void loaded_id(const struct ntx_request *q, char name[128])
{
    struct ntx_turns_state s;
    const unsigned place = ntx__http_place(q);
    ntx_turns_look(ntx__http_gate(q->http)->turns, &s);
    if (place < s.n_places && *s.place[place].loaded)
        snprintf(name, 128, "%.127s", s.place[place].loaded);
    else
        ntx__model_name(ntx__http_gate(q->http), place, name);
}

enum MHD_Result ntx__serve_props(struct ntx_request *q)
{
    struct ntx_fault f = {0};
    char model[128];
    json_t *j, *text;
    if (!read_views(q, &j, &text, &f))
        return ntx__reply_fault(q, &f);
    loaded_id(q, model);
    json_t *made = json_pack(
        "{s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:{s:b, s:b}, s:s}", "default_generation_settings", json_of_defaults(j),
        "total_slots", number_in(j, "max_sessions"), "model_alias", ntx_json_text(model, strlen(model)), "model_path",
        ntx_json_text(model, strlen(model)), "chat_template", text, "bos_token", token_in(j, "bos_token"), "eos_token",
        token_in(j, "eos_token"), "modalities", "vision", 0, "audio", 0, "build_info", "ntx " NTX_BUILD);
    json_decref(j);
    return ntx__reply_json(q, MHD_HTTP_OK, made);
}

/* ntx has no fixed slots: an entry stands for each session that may run at once, busy ones first. */
enum MHD_Result ntx__serve_slots(struct ntx_request *q)
{
    struct ntx_fault f = {0};
    json_t *j = status_of(q, &f), *list = json_array();
    if (!j) {
        json_decref(list);
        return ntx__reply_fault(q, &f);
    }
    const json_int_t n = number_in(j, "max_sessions"), busy = number_in(j, "sessions");
    for (json_int_t i = 0; i < n; i++)
        json_array_append_new(
            list, json_pack("{s:I, s:I, s:b}", "id", i, "n_ctx", number_in(j, "ctx"), "is_processing", i < busy));
    json_decref(j);
    struct ntx_buf b = {0};
    ntx_buf_json(&b, list);
    return ntx__reply(q, MHD_HTTP_OK, "application/json", &b);
}

/* ---- the prompt of a chat, as text */

static int render_prompt(struct ntx_call *c, struct ntx_api_request *a, json_t **text, struct ntx_err *err)
{
    const struct ntx_call_text t = {.talk = a};
    struct ntx_event e;
    int rc = ntx__fit_to_model(c, a, NULL, err);
    rc = rc ? rc : ntx_call_text(c, &t, err);
    rc = rc ? rc : ntx_call_next(c, STEP_MS, &e, err);
    if (!rc && e.kind != NTX_EVENT_WORDS)
        rc = ntx_err_set(err, -EPROTO, "ntx-computed sent an unexpected reply");
    *text = rc ? NULL : ntx_json_text(e.text, e.len);
    return rc;
}

/* The text with llama-server's mark in place of each picture. */
static char *text_with_marks(const struct ntx_api_request_message *m, size_t *len)
{
    char *text = NULL;
    size_t from = 0;
    FILE *f = open_memstream(&text, len);
    for (size_t i = 0; f && i < m->images.n; i++) {
        const size_t at = m->images.list[i].at;
        fprintf(f, "%.*s<__media__>", (int)(at - from), m->text + from);
        from = at;
    }
    if (f)
        fwrite(m->text + from, 1, m->len - from, f);
    if (f && !fclose(f))
        return text;
    free(text);
    return NULL;
}

static int mark_pictures(struct ntx_api_request *a, struct ntx_fault *f)
{
    for (struct ntx_api_request_message *m = a->messages; m < a->messages + a->n_messages; m++) {
        size_t len;
        char *text = m->images.n ? text_with_marks(m, &len) : NULL;
        if (m->images.n && !text)
            return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
        if (!text)
            continue;
        free(m->text);
        m->text = text;
        m->len = len;
        ntx__request_images_free(&m->images);
    }
    return 0;
}

enum MHD_Result ntx__serve_template(struct ntx_request *q)
{
    struct ntx_fault f = {0};
    struct ntx_err err = {0};
    struct ntx_api_request *a = NULL;
    struct ntx_call *c = NULL;
    json_t *text = NULL;
    const struct ntx_api_request_makes makes = {ntx_models_made, ntx__http_gate(q->http)};
    if (ntx_api_request_read(NTX_API_CHAT, q->body.n ? q->body.p : "", q->body.n, &makes, &a, &f))
        return ntx__reply_fault(q, &f);
    ntx__http_body_done(q);
    if (mark_pictures(a, &f) || ntx__http_turn(q, a->model, -1, &f)) {
        ntx_api_request_free(a);
        return ntx__reply_fault(q, &f);
    }
    const struct ntx_caller by = ntx__http_caller(q);
    int rc = ntx_call_open(ntx__http_gate(q->http), ntx__http_place(q), &by, true, &c, &err);
    if (!rc && q->turn)
        ntx_call_for(c, ntx_turn_model(q->turn));
    rc = rc ? rc : render_prompt(c, a, &text, &err);
    q->ignored = a->ignored;
    ntx_call_close(c);
    ntx_api_request_free(a);
    if (rc) {
        ntx_fault(&f, ntx_fault_of(rc), NULL, "%s", err.text[0] ? err.text : strerror(-rc));
        return ntx__reply_fault(q, &f);
    }
    return ntx__reply_json(q, MHD_HTTP_OK, json_pack("{s:o}", "prompt", text));
}

enum MHD_Result ntx__serve_rerank(struct ntx_request *q)
{
    struct ntx_fault f = {0};
    ntx_fault(&f, NTX_FAULT_UNSUPPORTED, NULL,
              "ntx runs no reranker models: rank by the cosine of two texts' /v1/embeddings instead");
    return ntx__reply_fault(q, &f);
}
