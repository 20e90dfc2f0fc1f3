/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's Responses: an answer as a list of items: reasoning, messages, calls. A stream reports each item from its
 * beginning to its end in numbered events. */
#include <stdio.h>
#include <string.h>

#include "client/gateway/answer.h"

/* ---- items */

/* The item's id is derived from the answer's. */
static const char *item_id(const struct ntx_answer *a, const char *prefix, int i, char buf[80])
{
    snprintf(buf, 80, "%s_%s%d", prefix, strchr(a->id, '_') + 1, i);
    return buf;
}

static json_t *text_part(json_t *text)
{
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", text, "annotations", "logprobs");
}

/* Takes content. */
static json_t *message_item(const struct ntx_answer *a, int i, const char *status, json_t *content)
{
    char id[80];
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", item_id(a, "msg", i, id), "status", status,
                     "role", "assistant", "content", content);
}

static json_t *thought_item(const struct ntx_answer *a, int i, const char *status, json_t *content)
{
    char id[80];
    return json_pack("{s:s, s:s, s:s, s:[], s:o}", "type", "reasoning", "id", item_id(a, "rs", i, id), "status", status,
                     "summary", "content", content);
}

static json_t *thought_part(json_t *text) { return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text); }

static json_t *call_item(const struct ntx_answer *a, int i, const char *status, const struct ntx_tool_call *c,
                         bool whole)
{
    char id[80];
    return json_pack("{s:s, s:s, s:s, s:O, s:s, s:o}", "type", "function_call", "id", item_id(a, "fc", i, id),
                     "call_id", c->id, "name", c->name, "status", status, "arguments",
                     ntx_json_text(whole ? c->text : "", whole ? strlen(c->text) : 0));
}

/* ---- complete answers */

static json_t *json_of_usage(const struct ntx_answer *a)
{
    json_int_t in = a->prompt_tokens, out = ntx_answer_tokens(a);
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", in, "input_tokens_details", "cached_tokens",
                     (json_int_t)a->cached_tokens, "output_tokens", out, "output_tokens_details", "reasoning_tokens",
                     a->timings.thinking_n, "total_tokens", in + out);
}

/* Flat again, as in the request. */
static json_t *json_of_tools(const struct ntx_answer *a)
{
    json_t *v = a->request->variables ? json_loads(a->request->variables, 0, NULL) : NULL, *list = json_array(), *tool;
    size_t i;
    json_array_foreach(json_object_get(v, "tools"), i, tool) {
        json_t *flat = json_pack("{s:s}", "type", "function");
        json_object_update_missing(flat, json_object_get(tool, "function"));
        json_array_append_new(list, flat);
    }
    json_decref(v);
    return list;
}

/* Takes output. */
static json_t *json_of_response(const struct ntx_answer *a, json_t *output)
{
    const char *finish = a->choice[0].finish;
    bool cut = finish && *finish == 'l';
    const char *status = cut ? "incomplete" : "completed";
    json_t *j = json_pack("{s:s, s:s, s:I, s:s, s:o, s:o, s:n, s:n, s:n, s:{}, s:b, s:f, s:s, s:o, s:f, s:n}", "id",
                          a->id, "object", "response", "created_at", (json_int_t)a->created, "status",
                          finish ? status : "in_progress", "model", ntx_json_text(a->model, strlen(a->model)), "output",
                          output, "error", "instructions", "previous_response_id", "metadata", "parallel_tool_calls", 1,
                          "temperature", (double)a->request->temp, "tool_choice", "auto", "tools", json_of_tools(a),
                          "top_p", (double)a->request->top_p, "max_output_tokens");
    json_object_set_new(j, "incomplete_details", cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null());
    json_object_update_existing(j, a->request->echo);
    json_object_set_new(j, "usage", finish ? json_of_usage(a) : json_null());
    if (finish)
        ntx_answer_add_timings(a, j);
    return j;
}

static void responses_whole(struct ntx_answer *a, struct ntx_buf *out)
{
    const struct ntx_choice *c = &a->choice[0];
    json_t *output = json_array();
    const char *status = *c->finish == 'l' && !(c->n_calls && c->call[c->n_calls - 1].cut)
                             ? "incomplete"
                             : "completed"; /* of the message; a call that was cut is incomplete itself */
    int n = 0;
    if (c->thought.n)
        json_array_append_new(output,
                              thought_item(a, n++, "completed",
                                           json_pack("[o]", thought_part(ntx_json_text(c->thought.p, c->thought.n)))));
    if (c->text.n || !c->n_calls)
        json_array_append_new(
            output, message_item(a, n++, status, json_pack("[o]", text_part(ntx_json_text(c->text.p, c->text.n)))));
    for (unsigned i = 0; i < c->n_calls; i++)
        json_array_append_new(output,
                              call_item(a, n++, c->call[i].cut ? "incomplete" : "completed", &c->call[i], true));
    ntx_buf_json(out, json_of_response(a, output));
}

/* ---- streams. data is taken. a->block counts items; the text of the current one is in the choice's buffers */

static void send_event(struct ntx_answer *a, struct ntx_buf *out, const char *name, json_t *data)
{
    json_object_set_new(data, "type", json_string(name));
    json_object_set_new(data, "sequence_number", json_integer(a->sequence++));
    ntx_buf_format(out, "event: %s\ndata: ", name);
    ntx_buf_json(out, data);
    ntx_buf_text(out, "\n\n");
}

static void begin_stream(struct ntx_answer *a, struct ntx_buf *out)
{
    a->items = json_array();
    send_event(a, out, "response.created", json_pack("{s:o}", "response", json_of_response(a, json_array())));
    send_event(a, out, "response.in_progress", json_pack("{s:o}", "response", json_of_response(a, json_array())));
}

/* The fields of an event on the current item and its part. */
static json_t *item_fields(const struct ntx_answer *a, const char *prefix)
{
    char id[80];
    return json_pack("{s:s, s:i, s:i}", "item_id", item_id(a, prefix, a->block, id), "output_index", a->block,
                     "content_index", 0);
}

static void item_event(struct ntx_answer *a, struct ntx_buf *out, const char *name, json_t *item)
{
    send_event(a, out, name, json_pack("{s:i, s:o}", "output_index", a->block, "item", item));
}

static void open_item(struct ntx_answer *a, bool thought, struct ntx_buf *out)
{
    json_t *j = item_fields(a, thought ? "rs" : "msg");
    item_event(a, out, "response.output_item.added",
               thought ? thought_item(a, a->block, "in_progress", json_array())
                       : message_item(a, a->block, "in_progress", json_array()));
    json_object_set_new(j, "part", thought ? thought_part(json_string("")) : text_part(json_string("")));
    send_event(a, out, "response.content_part.added", j);
    a->block_open = true;
    a->block_thought = thought;
}

static void close_item(struct ntx_answer *a, struct ntx_buf *out)
{
    bool thought = a->block_thought;
    struct ntx_buf *text = &a->choice[0].text;
    const char *prefix = thought ? "rs" : "msg", *finish = a->choice[0].finish;
    if (!a->block_open)
        return;
    json_t *said = ntx_json_text(text->p, text->n),
           *part = thought ? thought_part(json_incref(said)) : text_part(json_incref(said)),
           *j = item_fields(a, prefix);
    json_object_set_new(j, "text", said);
    if (!thought)
        json_object_set_new(j, "logprobs", json_array());
    send_event(a, out, thought ? "response.reasoning_text.done" : "response.output_text.done", j);
    j = item_fields(a, prefix);
    json_object_set(j, "part", part);
    send_event(a, out, "response.content_part.done", j);
    const char *status = finish && *finish == 'l' ? "incomplete" : "completed";
    json_t *item = thought ? thought_item(a, a->block, status, json_pack("[o]", part))
                           : message_item(a, a->block, status, json_pack("[o]", part));
    json_array_append(a->items, item);
    item_event(a, out, "response.output_item.done", item);
    a->block++;
    a->block_open = false;
    ntx_buf_free(text);
}

static void send_piece(struct ntx_answer *a, unsigned choice, bool thought, const char *text, size_t len,
                       struct ntx_buf *out)
{
    if (a->block_open && a->block_thought != thought)
        close_item(a, out);
    if (!a->block_open)
        open_item(a, thought, out);
    json_t *j = item_fields(a, thought ? "rs" : "msg");
    ntx_buf_add(&a->choice[choice].text, text, len);
    json_object_set_new(j, "delta", ntx_json_text(text, len));
    if (!thought)
        json_object_set_new(j, "logprobs", json_array());
    send_event(a, out, thought ? "response.reasoning_text.delta" : "response.output_text.delta", j);
}

static void send_call(struct ntx_answer *a, unsigned choice, unsigned i, struct ntx_buf *out)
{
    const struct ntx_tool_call *c = &a->choice[choice].call[i];
    char id[80];
    close_item(a, out);
    item_id(a, "fc", a->block, id);
    item_event(a, out, "response.output_item.added", call_item(a, a->block, "in_progress", c, false));
    send_event(a, out, "response.function_call_arguments.delta",
               json_pack("{s:s, s:i, s:o}", "item_id", id, "output_index", a->block, "delta",
                         ntx_json_text(c->text, strlen(c->text))));
    send_event(a, out, "response.function_call_arguments.done",
               json_pack("{s:s, s:i, s:O, s:o}", "item_id", id, "output_index", a->block, "name", c->name, "arguments",
                         ntx_json_text(c->text, strlen(c->text))));
    json_t *item = call_item(a, a->block, c->cut ? "incomplete" : "completed", c, true);
    json_array_append(a->items, item);
    item_event(a, out, "response.output_item.done", item);
    a->block++;
}

static void end_choice(struct ntx_answer *a, unsigned choice, struct ntx_buf *out)
{
    const struct ntx_choice *c = &a->choice[choice];
    if (!a->block_open && !json_array_size(a->items)) /* an empty answer */
        open_item(a, false, out);
    close_item(a, out);
    json_t *response = json_of_response(a, json_incref(a->items));
    ntx_answer_add_kept(a, response);
    send_event(a, out, *c->finish == 'l' ? "response.incomplete" : "response.completed",
               json_pack("{s:o}", "response", response));
}

static void send_in_progress(struct ntx_answer *a, const struct ntx_event *e, struct ntx_buf *out)
{
    ntx_openai_chat.alive(a, e, out);
}
static void responses_fault(const struct ntx_fault *f, struct ntx_buf *out) { ntx_openai_chat.fault(f, out); }

static void responses_error(const struct ntx_fault *f, struct ntx_buf *out)
{
    ntx_buf_text(out, "event: error\ndata: ");
    ntx_buf_json(out, json_pack("{s:s, s:s?, s:o, s:n}", "type", "error", "code", ntx_fault_info(f->kind)->code,
                                "message", ntx_json_text(f->text, strlen(f->text)), "param"));
    ntx_buf_text(out, "\n\n");
}

const struct ntx_shape ntx_openai_responses = {
    "resp_",         "text/event-stream", true, begin_stream,     send_piece,
    send_call,       end_choice,          NULL, send_in_progress, responses_whole,
    responses_fault, responses_error};
