/* SPDX-License-Identifier: Apache-2.0 */
/* A request for an answer, from its body to the last byte: complete, or as a stream that begins when ntx-computed
 * has taken the prompt. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/echo.h"
#include "client/gateway/http.h"
#include "common/util.h"

enum { ALIVE_MS = 5000, BLOCK = 16384, START_TRIES = 5 };

struct job {
    struct ntx_api_request *request;
    struct ntx_call *call;
    struct ntx_answer answer;
    const struct ntx_http *http;
    struct MHD_Connection *conn;
    struct ntx_buf out; /* of a stream: still to send, from `at` on */
    size_t at;
    struct ntx_request *q;
    bool over, begun; /* begun: a stream has sent its beginning */
    bool started;     /* ntx-computed has the request */
    unsigned tries;   /* starts again, since its model was not there any more */
    uint64_t load_ns; /* how long it waited for its model */
    char note[128];   /* of the first choice */
};

static void job_free(void *arg)
{
    struct job *j = arg;
    ntx_call_close(j->call);
    ntx_answer_free(&j->answer);
    ntx_buf_free(&j->out);
    ntx_api_request_free(j->request);
    free(j);
}

/* How long the prompt is, and how long it may be: each API has words for that. */
static void measure_prompt(const struct job *j, struct ntx_fault *f)
{
    const struct ntx_api_request *a = j->request;
    const struct ntx_api_request_prompt *p = a->messages ? NULL : a->prompts;
    const struct ntx_call_text t = {
        .talk = p ? NULL : a, .text = p ? p->text : NULL, .len = p ? p->len : 0, .bos = p != NULL};
    struct ntx_gate *gate = ntx__http_gate((struct ntx_http *)(uintptr_t)j->http);
    const unsigned place = ntx__http_place(j->q);
    struct ntx_event e = {.n_ids = p ? p->n_tokens : 0};
    struct ntx_err err;
    struct ntx_call *c = NULL;
    json_t *status = NULL;
    if (ntx_gate_look(gate, place, &status, &err) || ntx_call_open(gate, place, NTX_NO_CALLER, false, &c, &err)) {
        json_decref(status);
        return;
    }
    const json_int_t most = json_integer_value(json_object_get(status, "ctx"));
    if (most > 0 && ((p && p->tokens) || (!ntx_call_text(c, &t, &err) && !ntx_call_next(c, ALIVE_MS, &e, &err)))) {
        f->tokens = (uint32_t)e.n_ids;
        f->context = (uint32_t)most;
    }
    json_decref(status);
    ntx_call_close(c);
}

static int take_fault(const struct job *j, int rc, const struct ntx_err *err, struct ntx_fault *f)
{
    const enum ntx_fault_kind kind = ntx_fault_of(rc);
    const char *param = NULL;
    if (kind == NTX_FAULT_CONTEXT)
        param = j->request->messages ? "messages" : "prompt";
    ntx_fault(f, kind, param, "%s", err->text[0] ? err->text : strerror(-rc));
    if (kind == NTX_FAULT_CONTEXT)
        measure_prompt(j, f);
    return -1;
}

/* Gets the model's format of calls, and fits the settings of reasoning to it. */
int ntx__fit_to_model(struct ntx_call *c, struct ntx_api_request *a, const struct ntx_reply_format **out,
                      struct ntx_err *err)
{
    struct ntx_event e;
    int rc = ntx_call_status(c, err);
    if (!rc)
        rc = ntx_call_next(c, ALIVE_MS, &e, err);
    json_t *j = !rc && e.kind == NTX_EVENT_STATUS ? json_loads(e.text, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(j, "reply_format"));
    if (out)
        *out = NULL;
    if (out && a->tools)
        *out = ntx_reply_by_name(name && *name ? name : "plain");
    if (!rc && ntx_api_request_think(a, j))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    json_decref(j);
    return rc;
}

/* Replaces the prompt of an infill by tokens, with the model's own around the texts. */
static int make_infill(struct ntx_call *c, struct ntx_api_request *a, struct ntx_err *err)
{
    struct ntx_event e;
    struct ntx_api_request_prompt *p = a->prompts;
    struct ntx_call_text t = {
        .text = p->text, .len = p->len, .suffix = a->suffix, .n_suffix = a->n_suffix, .bos = true, .infill = true};
    int rc = ntx_call_text(c, &t, err);
    if (!rc)
        rc = ntx_call_next(c, -1, &e, err);
    if (!rc && (e.kind != NTX_EVENT_WORDS || !e.n_ids))
        rc = ntx_err_set(err, -EPROTO, "ntx-computed sent an unexpected reply");
    if (!rc && !(p->tokens = malloc(e.n_ids * sizeof *p->tokens)))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    if (rc)
        return rc;
    memcpy(p->tokens, e.ids, e.n_ids * sizeof *p->tokens);
    p->n_tokens = e.n_ids;
    free(p->text);
    p->text = NULL;
    p->len = 0;
    return 0;
}

/* Counts the tokens of the conversation, with no limit by the context. */
static bool has_pictures(const struct ntx_api_request *a)
{
    for (size_t i = 0; i < a->n_messages; i++)
        if (a->messages[i].images.n)
            return true;
    return false;
}

/* How many rows a picture becomes is known when it has become them. They are kept for the request that follows, and the
 * answer is not waited for. */
static int count_pictures(struct job *j, struct ntx_err *err)
{
    struct ntx_event e = {.kind = NTX_EVENT_PROGRESS};
    int rc = ntx_call_request(j->call, j->request, err);
    while (!rc && e.kind == NTX_EVENT_PROGRESS)
        rc = ntx_call_next(j->call, -1, &e, err);
    if (!rc && e.kind != NTX_EVENT_STARTED)
        rc = ntx_err_set(err, -EPROTO, "ntx-computed sent an unexpected reply");
    j->answer.prompt_tokens = rc ? 0 : e.prompt_tokens;
    j->answer.left = 0;
    return rc;
}

static int count_prompt(struct job *j, struct ntx_err *err)
{
    const struct ntx_call_text t = {.talk = j->request};
    struct ntx_event e;
    if (has_pictures(j->request))
        return count_pictures(j, err);
    int rc = ntx_call_text(j->call, &t, err);
    if (!rc)
        rc = ntx_call_next(j->call, -1, &e, err);
    if (!rc && e.kind != NTX_EVENT_WORDS)
        rc = ntx_err_set(err, -EPROTO, "ntx-computed sent an unexpected reply");
    j->answer.prompt_tokens = rc ? 0 : (uint32_t)e.n_ids;
    j->answer.left = 0;
    return rc;
}

/* Gives the request to ntx-computed; its model is loaded. */
static int start_job(struct job *j, struct ntx_err *err)
{
    struct ntx_request *q = j->q;
    const struct ntx_reply_format *format = NULL;
    char model[128];
    const struct ntx_caller by = ntx__http_caller(q);
    int rc = ntx_call_open(ntx__http_gate(q->http), ntx_turn_place(q->turn), &by, true, &j->call, err);
    if (!rc && q->turn)
        ntx_call_for(j->call, ntx_turn_model(q->turn));
    if (q->turn && j->request->keeps)
        ntx_turn_keep(q->turn, j->request->keep_ms);
    ntx__http_model(q, model);
    if (!rc && (j->request->tools || ntx_api_request_thinks(j->request)))
        rc = ntx__fit_to_model(j->call, j->request, &format, err);
    q->ignored = j->request->ignored;
    ntx_unenforced_text(&j->request->unenforced, q->unenforced, sizeof q->unenforced);
    if (!rc && j->request->suffix)
        rc = make_infill(j->call, j->request, err);
    if (!rc && j->request->shows_prompt)
        rc = ntx_echo_read(j->call, j->request, err);
    int made = ntx_answer_init(&j->answer, j->request, q->route->shape, model, format);
    rc = rc ? rc : made;
    if (!rc && j->request->api == NTX_API_COUNT)
        rc = count_prompt(j, err);
    else if (!rc && !j->request->no_answer)
        rc = ntx_call_request(j->call, j->request, err);
    j->started = !rc;
    return rc;
}

/* Whether a start that failed is tried again: another model was loaded meanwhile, or the daemons ended before there was
 * an answer. Then the request waits for its model again. */
static bool starts_again(struct job *j, int rc)
{
    if (!j->q->turn || !ntx_models_lost(rc) || j->answer.first_ns || j->begun || j->tries++ == START_TRIES)
        return false;
    ntx_call_close(j->call);
    ntx_answer_free(&j->answer);
    j->call = NULL;
    j->answer = (struct ntx_answer){0};
    j->started = false;
    ntx_turn_lost(j->q->turn);
    return true;
}

/* Waits for the model, and starts. -ETIMEDOUT: the model is not there yet. */
static int await_model(struct job *j, int timeout_ms, struct ntx_err *err)
{
    struct ntx_gate *g = ntx__http_gate(j->q->http);
    int rc = 0;
    while (!rc && !j->started) {
        const uint64_t from = ntx_now_ns();
        rc = ntx_models_wait(g, j->q->turn, ntx__http_client(j->conn), timeout_ms, err);
        j->load_ns += ntx_now_ns() - from;
        if (rc == -ETIMEDOUT)
            return rc;
        rc = rc ? rc : start_job(j, err);
        j->answer.load_ns = j->load_ns;
        if (rc && starts_again(j, rc))
            rc = 0;
    }
    return rc;
}

/* Reads the request, and starts it; a stream starts later if its model is not there yet. */
static struct job *job_new(struct ntx_request *q, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    j->http = q->http;
    j->conn = q->conn;
    j->q = q;
    const struct ntx_api_request_makes makes = {ntx_models_made, ntx__http_gate(q->http)};
    int rc = ntx_api_request_read(q->route->api, q->body.n ? q->body.p : "", q->body.n, &makes, &j->request, f);
    ntx__http_body_done(q);
    if (!rc && j->request->loads)
        return j;
    rc = rc ? rc : ntx_models_turn(ntx__http_gate(q->http), j->request->model, &q->turn, f);
    if (!rc && (rc = await_model(j, j->request->stream ? ALIVE_MS : -1, &err)) && rc != -ETIMEDOUT)
        take_fault(j, rc, &err, f);
    if (!rc || rc == -ETIMEDOUT)
        return j;
    job_free(j);
    return NULL;
}

/* Adds the next event to the answer. -ETIMEDOUT: none within ALIVE_MS. */
static int take_event(struct job *j, struct ntx_event *e, struct ntx_err *err)
{
    int rc = await_model(j, ALIVE_MS, err);
    rc = rc ? rc : ntx_call_next(j->call, ALIVE_MS, e, err);
    if (rc && starts_again(j, rc))
        return -ETIMEDOUT;
    if (!rc && e->kind == NTX_EVENT_STARTED && !e->choice)
        snprintf(j->note, sizeof j->note, "%s", e->note);
    if (!rc)
        rc = ntx_answer_take(&j->answer, e, &j->out, err);
    if (!rc && (j->answer.bad || j->out.bad))
        rc = ntx_err_set(err, -ENOMEM, "no memory for the answer");
    return rc;
}

/* Adds the ignored fields at the end of the answer's object. Streams have a header for them. */
static void add_ignored(const struct job *j, struct ntx_buf *out)
{
    const struct ntx_ignored *g = &j->request->ignored;
    if ((!g->n && !*j->note && !j->request->unenforced.keywords) || !out->n || out->bad)
        return;
    json_t *ntx = ntx_ignored_json(g, j->note);
    ntx_kept_add(&j->answer.kept, &j->request->unenforced, ntx);
    out->n--;
    ntx_buf_text(out, ",\"ntx\":");
    ntx_buf_json(out, ntx);
    ntx_buf_text(out, "}");
}

static bool goes_on(const struct job *j) { return !j->started || j->answer.left; }

static enum MHD_Result serve_whole(struct ntx_request *q, struct job *j)
{
    struct ntx_err err = {0};
    struct ntx_fault f = {0};
    struct ntx_event e;
    struct ntx_buf out = {0};
    int rc = 0;
    if (j->request->no_answer)
        ntx_answer_without(&j->answer, &out);
    while (goes_on(j) && (!rc || rc == -ETIMEDOUT))
        rc = take_event(j, &e, &err);
    if (rc && goes_on(j)) {
        take_fault(j, rc, &err, &f);
        job_free(j);
        return rc == -ECANCELED ? MHD_NO : ntx__reply_fault(q, &f);
    }
    j->answer.shape->whole(&j->answer, &out);
    add_ignored(j, &out);
    memcpy(q->note, j->note, sizeof q->note);
    job_free(j);
    return ntx__reply(q, MHD_HTTP_OK, "application/json", &out);
}

/* ---- streams */

/* Ends a stream with the reason why it was cut. */
static void cut_short(struct job *j, int rc, const struct ntx_err *err)
{
    struct ntx_fault f;
    take_fault(j, rc, err, &f);
    j->q->route->shape->broken(&f, &j->out);
    j->over = true;
}

static void keep_alive(struct job *j)
{
    if (!j->begun && !strcmp(j->q->route->shape->type, "text/event-stream"))
        ntx_buf_text(&j->out, ": waiting for the model\n\n");
    else if (j->begun && j->answer.shape->alive)
        j->answer.shape->alive(&j->answer, NULL, &j->out);
}

static void begin_stream(struct job *j)
{
    j->begun = true;
    if (j->answer.shape->begin)
        j->answer.shape->begin(&j->answer, &j->out);
    if (j->request->no_answer)
        ntx_answer_without(&j->answer, &j->out);
}

/* Waits until there is something to send, or the end. 0, or -ECANCELED. */
static int fill_output(struct job *j)
{
    struct ntx_err err = {0};
    struct ntx_event e;
    j->out.n = j->at = 0;
    while (!j->out.n && goes_on(j) && !j->over) {
        int rc = j->begun ? 0 : await_model(j, ALIVE_MS, &err);
        if (!rc && !j->begun)
            begin_stream(j);
        if (!rc && j->answer.left)
            rc = take_event(j, &e, &err);
        if (rc == -ETIMEDOUT)
            keep_alive(j);
        else if (rc == -ECANCELED)
            return rc;
        else if (rc)
            cut_short(j, rc, &err);
    }
    return j->out.bad ? -ENOMEM : 0;
}

static ssize_t on_read(void *arg, uint64_t pos, char *buf, size_t room)
{
    struct job *j = arg;
    int rc = 0;
    (void)pos;
    ntx_call_client(j->call, false);
    if (j->at == j->out.n) {
        ntx__http_patience(j->http, j->conn, true);
        rc = fill_output(j);
        ntx__http_patience(j->http, j->conn, false);
    }
    size_t n = NTX_MIN(room, j->out.n - j->at);
    if (rc)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (!n)
        return MHD_CONTENT_READER_END_OF_STREAM;
    memcpy(buf, j->out.p + j->at, n);
    j->at += n;
    ntx_call_client(j->call, true);
    return (ssize_t)n;
}

/* Waits until ntx-computed has taken the prompt, so that a refusal gets its own HTTP status; but a client does not
 * wait long for a first byte. */
static int await_start(struct job *j, struct ntx_err *err)
{
    struct ntx_event e = {.kind = NTX_EVENT_PROGRESS};
    uint64_t until = ntx_now_ns() + ALIVE_MS * 1000000ull;
    int rc = 0;
    while (!rc && e.kind == NTX_EVENT_PROGRESS && ntx_now_ns() < until)
        rc = take_event(j, &e, err);
    j->out.n = 0; /* progress reports come before the stream's beginning */
    return rc == -ETIMEDOUT ? 0 : rc;
}

static enum MHD_Result serve_stream(struct ntx_request *q, struct job *j)
{
    struct ntx_err err = {0};
    struct ntx_fault f = {0};
    int rc = j->request->no_answer || !j->started ? 0 : await_start(j, &err);
    if (rc) {
        take_fault(j, rc, &err, &f);
        job_free(j);
        return rc == -ECANCELED ? MHD_NO : ntx__reply_fault(q, &f);
    }
    memcpy(q->note, j->note, sizeof q->note);
    if (j->started)
        begin_stream(j);
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, on_read, j, job_free);
    if (!r) {
        job_free(j);
        return MHD_NO;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, q->route->shape->type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    return ntx__reply_queue(q, MHD_HTTP_OK, r);
}

enum MHD_Result ntx__serve_answer(struct ntx_request *q)
{
    struct ntx_fault f = {0};
    ntx__http_patience(q->http, q->conn, true);
    struct job *j = job_new(q, &f);
    enum MHD_Result rc = MHD_NO;
    if (j && j->request->loads) {
        rc = ntx__serve_preload(q, j->request);
        job_free(j);
    } else if (j)
        rc = j->request->stream ? serve_stream(q, j) : serve_whole(q, j);
    else if (f.kind)
        rc = ntx__reply_fault(q, &f);
    ntx__http_patience(q->http, q->conn, false);
    return rc;
}
