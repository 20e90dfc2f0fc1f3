/* SPDX-License-Identifier: Apache-2.0 */
/* Ollama's shapes: a JSON object a line; the last one has the counts and times (in ns). */
#include <stdio.h>
#include <string.h>

#include "client/gateway/answer.h"
#include "common/util.h"

/* The current time, in UTC. */
static json_t *json_of_now(void)
{
    char text[64];
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, sizeof text - n, ".%06ldZ", t.tv_nsec / 1000);
    return json_string(text);
}

static json_t *reply_head(const struct ntx_answer *a)
{
    return json_pack("{s:o, s:o}", "model", ntx_json_text(a->model, strlen(a->model)), "created_at", json_of_now());
}

/* Sets the text in a message, or in the reply itself. */
static void set_text(const struct ntx_answer *a, json_t *j, const char *text, size_t n, const char *thought,
                     size_t n_thought)
{
    bool chat = a->request->api == NTX_API_OLLAMA_CHAT;
    json_t *to = chat ? json_pack("{s:s}", "role", "assistant") : json_incref(j);
    json_object_set_new(to, chat ? "content" : "response", ntx_json_text(text, n));
    if (n_thought)
        json_object_set_new(to, "thinking", ntx_json_text(thought, n_thought));
    if (chat)
        json_object_set_new(j, "message", to);
    else
        json_decref(to);
}

/* Ollama's calls have no ids, and their arguments are an object. A call that was cut is left out: an object could
 * not show it, and clients run calls. */
static void set_calls(const struct ntx_choice *c, unsigned from, json_t *j)
{
    json_t *list = json_array();
    for (unsigned i = from; i < c->n_calls; i++)
        if (!c->call[i].cut)
            json_array_append_new(list, json_pack("{s:{s:O, s:O}}", "function", "name", c->call[i].name, "arguments",
                                                  c->call[i].arguments));
    if (json_array_size(list))
        json_object_set(json_object_get(j, "message"), "tool_calls", list);
    json_decref(list);
}

static void set_end(const struct ntx_answer *a, json_t *j)
{
    const uint64_t now = ntx_now_ns(), first = a->first_ns ? a->first_ns : now;
    const struct ntx_timings *t = &a->timings;
    const double read = t->known ? 1e6 * t->prompt_ms : (double)(first - a->since_ns),
                 wrote = t->known ? 1e6 * t->predicted_ms : (double)(now - first);
    json_t *end = json_pack("{s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "done", 1, "done_reason", a->choice[0].finish,
                            "total_duration", (json_int_t)(now - a->since_ns + a->load_ns), "load_duration",
                            (json_int_t)a->load_ns, "prompt_eval_count", (json_int_t)a->prompt_tokens,
                            "prompt_eval_duration", (json_int_t)read, "eval_count", (json_int_t)ntx_answer_tokens(a),
                            "eval_duration", (json_int_t)wrote);
    json_object_update(j, end);
    json_decref(end);
}

static void send_line(struct ntx_buf *out, json_t *j)
{
    ntx_buf_json(out, j);
    ntx_buf_text(out, "\n");
}

static void send_piece(struct ntx_answer *a, unsigned choice, bool thought, const char *text, size_t len,
                       struct ntx_buf *out)
{
    json_t *j = reply_head(a);
    (void)choice;
    set_text(a, j, thought ? "" : text, thought ? 0 : len, text, thought ? len : 0);
    json_object_set_new(j, "done", json_false());
    send_line(out, j);
}

static void send_call(struct ntx_answer *a, unsigned choice, unsigned i, struct ntx_buf *out)
{
    if (a->choice[choice].call[i].cut)
        return;
    json_t *j = reply_head(a);
    set_text(a, j, "", 0, "", 0);
    set_calls(&a->choice[choice], i, j);
    json_object_set_new(j, "done", json_false());
    send_line(out, j);
}

static void end_choice(struct ntx_answer *a, unsigned choice, struct ntx_buf *out)
{
    json_t *j = reply_head(a);
    (void)choice;
    set_text(a, j, "", 0, "", 0);
    set_end(a, j);
    ntx_answer_add_kept(a, j);
    send_line(out, j);
}

static void ollama_whole(struct ntx_answer *a, struct ntx_buf *out)
{
    const struct ntx_choice *c = &a->choice[0];
    json_t *j = reply_head(a);
    set_text(a, j, c->text.p, c->text.n, c->thought.p, c->thought.n);
    set_calls(c, 0, j);
    set_end(a, j);
    ntx_buf_json(out, j);
}

static void ollama_fault(const struct ntx_fault *f, struct ntx_buf *out)
{
    ntx_buf_json(out, json_pack("{s:o}", "error", ntx_json_text(f->text, strlen(f->text))));
}

static void ollama_error(const struct ntx_fault *f, struct ntx_buf *out)
{
    ollama_fault(f, out);
    ntx_buf_text(out, "\n");
}

const struct ntx_shape ntx_ollama = {
    "",   "application/x-ndjson", true,         NULL,        send_piece, send_call, end_choice, NULL,
    NULL, ollama_whole,           ollama_fault, ollama_error};
