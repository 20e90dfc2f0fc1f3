/* SPDX-License-Identifier: Apache-2.0 */
/* Anthropic's shapes. Reasoning is a block of type thinking, without a signature; events of a stream name themselves
 * twice. A call that max_tokens cut is the last block: with its complete members as input, or in a stream with as
 * much of the JSON as was written. */
#include <stdlib.h>
#include <string.h>

#include "client/gateway/answer.h"
#include "common/util.h"

static void send_event(struct ntx_buf *out, const char *name, json_t *data)
{
    ntx_buf_format(out, "event: %s\ndata: ", name);
    ntx_buf_json(out, data);
    ntx_buf_text(out, "\n\n");
}

/* input_tokens are those that were not cached; a stream's first event cannot know the cached ones yet. */
static json_t *json_of_usage(const struct ntx_answer *a)
{
    json_int_t cached = NTX_MIN(a->cached_tokens, a->prompt_tokens), in = a->prompt_tokens - cached;
    return json_pack("{s:I, s:i, s:I, s:I}", "input_tokens", in, "cache_creation_input_tokens", 0,
                     "cache_read_input_tokens", cached, "output_tokens", (json_int_t)ntx_answer_tokens(a));
}

static const char *stop_reason(const struct ntx_choice *c)
{
    if (!c->finish)
        return NULL;
    if (*c->finish == 'l')
        return "max_tokens";
    if (ntx_answer_called(c))
        return "tool_use";
    return c->stop ? "stop_sequence" : "end_turn";
}
static json_t *stop_of(const struct ntx_choice *c)
{
    return c->stop && !ntx_answer_called(c) ? ntx_json_text(c->stop, strlen(c->stop)) : json_null();
}

static json_t *json_of_message(const struct ntx_answer *a, json_t *content)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:s?, s:o, s:o}", "id", a->id, "type", "message", "role", "assistant",
                     "model", ntx_json_text(a->model, strlen(a->model)), "content", content, "stop_reason",
                     stop_reason(&a->choice[0]), "stop_sequence", stop_of(&a->choice[0]), "usage", json_of_usage(a));
}

static json_t *json_of_block(bool thought, json_t *text)
{
    return thought ? json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking", text, "signature", "")
                   : json_pack("{s:s, s:o}", "type", "text", "text", text);
}

static json_t *call_block(const struct ntx_tool_call *c, json_t *input)
{
    return json_pack("{s:s, s:s, s:O, s:o}", "type", "tool_use", "id", c->id, "name", c->name, "input", input);
}

static void anthropic_whole(struct ntx_answer *a, struct ntx_buf *out)
{
    const struct ntx_choice *c = &a->choice[0];
    json_t *content = json_array();
    if (c->thought.n)
        json_array_append_new(content, json_of_block(true, ntx_json_text(c->thought.p, c->thought.n)));
    if (c->text.n)
        json_array_append_new(content, json_of_block(false, ntx_json_text(c->text.p, c->text.n)));
    for (unsigned i = 0; i < c->n_calls; i++)
        json_array_append_new(content, call_block(&c->call[i], json_incref(c->call[i].arguments)));
    json_t *j = json_of_message(a, content);
    ntx_answer_add_timings(a, j);
    ntx_buf_json(out, j);
}

/* ---- streams */

static void begin_stream(struct ntx_answer *a, struct ntx_buf *out)
{
    send_event(out, "message_start",
               json_pack("{s:s, s:o}", "type", "message_start", "message", json_of_message(a, json_array())));
}

static void close_block(struct ntx_answer *a, struct ntx_buf *out)
{
    if (!a->block_open)
        return;
    send_event(out, "content_block_stop", json_pack("{s:s, s:i}", "type", "content_block_stop", "index", a->block++));
    a->block_open = false;
}

static void send_piece(struct ntx_answer *a, unsigned choice, bool thought, const char *text, size_t len,
                       struct ntx_buf *out)
{
    (void)choice;
    if (a->block_open && a->block_thought != thought)
        close_block(a, out);
    if (!a->block_open)
        send_event(out, "content_block_start",
                   json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", a->block, "content_block",
                             json_of_block(thought, json_string(""))));
    a->block_open = true;
    a->block_thought = thought;
    send_event(out, "content_block_delta",
               json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index", a->block, "delta", "type",
                         thought ? "thinking_delta" : "text_delta", thought ? "thinking" : "text",
                         ntx_json_text(text, len)));
}

static void send_call(struct ntx_answer *a, unsigned choice, unsigned i, struct ntx_buf *out)
{
    const struct ntx_tool_call *c = &a->choice[choice].call[i];
    char *text = c->cut ? NULL : json_dumps(c->arguments, JSON_COMPACT);
    json_t *partial = text ? ntx_json_text(text, strlen(text)) : ntx_json_text(c->text, strlen(c->text));
    close_block(a, out);
    send_event(out, "content_block_start",
               json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", a->block, "content_block",
                         call_block(c, json_object())));
    a->block_open = true;
    send_event(out, "content_block_delta",
               json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index", a->block, "delta", "type",
                         "input_json_delta", "partial_json", partial));
    close_block(a, out);
    free(text);
}

static void end_choice(struct ntx_answer *a, unsigned choice, struct ntx_buf *out)
{
    close_block(a, out);
    json_t *j = json_pack("{s:s, s:{s:s?, s:o}, s:o}", "type", "message_delta", "delta", "stop_reason",
                          stop_reason(&a->choice[choice]), "stop_sequence", stop_of(&a->choice[choice]), "usage",
                          json_of_usage(a));
    ntx_answer_add_timings(a, j);
    ntx_answer_add_kept(a, j);
    send_event(out, "message_delta", j);
    send_event(out, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void send_ping(struct ntx_answer *a, const struct ntx_event *e, struct ntx_buf *out)
{
    (void)a;
    (void)e;
    send_event(out, "ping", json_pack("{s:s}", "type", "ping"));
}

/* A prompt that is too long is told in Anthropic's words, by which agents know that they must shorten it. */
static void anthropic_fault(const struct ntx_fault *f, struct ntx_buf *out)
{
    char text[sizeof f->text + 80] = "";
    if (f->tokens > f->context)
        snprintf(text, sizeof text, "prompt is too long: %u tokens > %u maximum (", f->tokens, f->context);
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, "%s%s", f->text, n ? ")" : "");
    ntx_buf_json(out, json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type",
                                ntx_fault_info(f->kind)->anthropic, "message", ntx_json_text(text, strlen(text))));
}

static void anthropic_error(const struct ntx_fault *f, struct ntx_buf *out)
{
    ntx_buf_text(out, "event: error\ndata: ");
    anthropic_fault(f, out);
    ntx_buf_text(out, "\n\n");
}

static void write_count(struct ntx_answer *a, struct ntx_buf *out)
{
    ntx_buf_json(out, json_pack("{s:I}", "input_tokens", (json_int_t)a->prompt_tokens));
}

const struct ntx_shape ntx_anthropic = {"msg_",          "text/event-stream", true, begin_stream, send_piece,
                                        send_call,       end_choice,          NULL, send_ping,    anthropic_whole,
                                        anthropic_fault, anthropic_error};
const struct ntx_shape ntx_anthropic_count = {
    "msg_", "text/event-stream", false,           NULL,           NULL, NULL, NULL, NULL,
    NULL,   write_count,         anthropic_fault, anthropic_error};
