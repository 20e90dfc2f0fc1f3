/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's shapes: chat completions and completions. A model's reasoning is `reasoning_content`, as in other servers
 * of such models. */
#include <stdio.h>
#include <string.h>

#include "client/gateway/answer.h"
#include "ntx_version.h"

static json_t *json_of_usage(const struct ntx_answer *a)
{
    json_int_t in = a->prompt_tokens, out = ntx_answer_tokens(a);
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "prompt_tokens", in, "completion_tokens", out, "total_tokens",
                     in + out, "prompt_tokens_details", "cached_tokens", (json_int_t)a->cached_tokens,
                     "completion_tokens_details", "reasoning_tokens", a->timings.thinking_n);
}

static json_t *reply_head(const struct ntx_answer *a, const char *object, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:o, s:s, s:o}", "id", a->id, "object", object, "created", (json_int_t)a->created,
                     "model", ntx_json_text(a->model, strlen(a->model)), "system_fingerprint", "ntx-" NTX_BUILD,
                     "choices", choices);
}

/* The last chunk has the timings: that with the usage, if that is wanted. */
static void send_chunk(const struct ntx_answer *a, const char *object, json_t *choices, json_t *use,
                       struct ntx_buf *out)
{
    json_t *j = reply_head(a, object, choices);
    const bool last = use || !a->request->usage;
    if (j && a->request->usage)
        json_object_set_new(j, "usage", use ? use : json_null());
    else
        json_decref(use);
    if (last) {
        ntx_answer_add_timings(a, j);
        ntx_answer_add_kept(a, j);
    }
    ntx_buf_text(out, "data: ");
    ntx_buf_json(out, j);
    ntx_buf_text(out, "\n\n");
}

static void end_stream(const struct ntx_answer *a, const char *object, struct ntx_buf *out)
{
    if (a->request->usage)
        send_chunk(a, object, json_array(), json_of_usage(a), out);
    ntx_buf_text(out, "data: [DONE]\n\n");
}

/* ---- chat */

static const char chunk[] = "chat.completion.chunk";

/* An answer with calls is not at its end: it waits for their results. */
static const char *finish_reason(const struct ntx_choice *c)
{
    return c->finish && *c->finish == 's' && ntx_answer_called(c) ? "tool_calls" : c->finish;
}

static void send_delta(struct ntx_answer *a, unsigned i, json_t *delta, struct ntx_buf *out)
{
    const char *why = finish_reason(&a->choice[i]);
    send_chunk(a, chunk,
               json_pack("[{s:i, s:o, s:o, s:s?}]", "index", (int)i, "delta", delta, "logprobs",
                         ntx_answer_logprobs(&a->choice[i]), "finish_reason", why),
               NULL, out);
}

static void chat_begin(struct ntx_answer *a, struct ntx_buf *out)
{
    for (unsigned i = 0; i < a->n; i++)
        send_delta(a, i, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), out);
}

static void chat_piece(struct ntx_answer *a, unsigned i, bool thought, const char *text, size_t len,
                       struct ntx_buf *out)
{
    send_delta(a, i, json_pack("{s:o}", thought ? "reasoning_content" : "content", ntx_json_text(text, len)), out);
}

static void chat_call(struct ntx_answer *a, unsigned i, unsigned call, struct ntx_buf *out)
{
    send_delta(a, i, json_pack("{s:o}", "tool_calls", ntx_answer_calls(&a->choice[i], call, true)), out);
}

static void chat_finish(struct ntx_answer *a, unsigned i, struct ntx_buf *out) { send_delta(a, i, json_object(), out); }

static void chat_end(struct ntx_answer *a, struct ntx_buf *out) { end_stream(a, chunk, out); }

static json_t *json_of_message(const struct ntx_choice *c)
{
    bool silent = c->n_calls && !c->text.n;
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content",
                          silent ? json_null() : ntx_json_text(c->text.p, c->text.n));
    if (m && c->thought.n)
        json_object_set_new(m, "reasoning_content", ntx_json_text(c->thought.p, c->thought.n));
    if (m && c->n_calls)
        json_object_set_new(m, "tool_calls", ntx_answer_calls(c, 0, false));
    return m;
}

static void openai_whole(struct ntx_answer *a, const char *object, json_t *(*choice)(struct ntx_choice *c, int i),
                         struct ntx_buf *out)
{
    json_t *choices = json_array();
    for (unsigned i = 0; i < a->n; i++)
        json_array_append_new(choices, choice(&a->choice[i], (int)i));
    json_t *j = reply_head(a, object, choices);
    if (j)
        json_object_set_new(j, "usage", json_of_usage(a));
    ntx_answer_add_timings(a, j);
    ntx_buf_json(out, j);
}

static json_t *chat_choice(struct ntx_choice *c, int i)
{
    return json_pack("{s:i, s:o, s:o, s:s}", "index", i, "message", json_of_message(c), "logprobs",
                     ntx_answer_logprobs(c), "finish_reason", finish_reason(c));
}

static void chat_whole(struct ntx_answer *a, struct ntx_buf *out)
{
    openai_whole(a, "chat.completion", chat_choice, out);
}

/* ---- completions */

static json_t *text_choice(struct ntx_choice *c, int i)
{
    return json_pack("{s:o, s:i, s:o, s:s}", "text", ntx_json_text(c->text.p, c->text.n), "index", i, "logprobs",
                     ntx_answer_logprobs(c), "finish_reason", c->finish);
}

static void text_whole(struct ntx_answer *a, struct ntx_buf *out)
{
    openai_whole(a, "text_completion", text_choice, out);
}

static void text_piece(struct ntx_answer *a, unsigned i, bool thought, const char *text, size_t len,
                       struct ntx_buf *out)
{
    (void)thought;
    json_t *choices = json_pack("[{s:o, s:i, s:o, s:s?}]", "text", ntx_json_text(text, len), "index", (int)i,
                                "logprobs", ntx_answer_logprobs(&a->choice[i]), "finish_reason", a->choice[i].finish);
    send_chunk(a, "text_completion", choices, NULL, out);
}

static void text_begin(struct ntx_answer *a, struct ntx_buf *out)
{
    for (unsigned i = 0; a->request->shows_prompt && i < a->n; i++)
        text_piece(a, i, false, a->request->prompts[i / a->request->n].shown,
                   a->request->prompts[i / a->request->n].n_shown, out);
}

static void text_finish(struct ntx_answer *a, unsigned i, struct ntx_buf *out) { text_piece(a, i, false, "", 0, out); }

static void text_end(struct ntx_answer *a, struct ntx_buf *out) { end_stream(a, "text_completion", out); }

/* ---- both */

/* A comment, which readers of event streams skip. */
static void send_comment(struct ntx_answer *a, const struct ntx_event *e, struct ntx_buf *out)
{
    (void)a;
    if (!e || !e->total)
        ntx_buf_text(out, ": waiting\n\n");
    else
        ntx_buf_format(out, ": prompt %llu/%llu\n\n", (unsigned long long)e->done, (unsigned long long)e->total);
}

static void openai_fault(const struct ntx_fault *f, struct ntx_buf *out)
{
    const struct ntx_fault_info *i = ntx_fault_info(f->kind);
    char text[sizeof f->text + 240];
    snprintf(text, sizeof text, "%s", f->text);
    if (f->tokens > f->context) /* OpenAI's words, which clients look for */
        snprintf(text, sizeof text,
                 "This model's maximum context length is %u tokens. However, your prompt has %u tokens. Shorten it, or "
                 "load the model with a larger --ctx.",
                 f->context, f->tokens);
    ntx_buf_json(out, json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message", ntx_json_text(text, strlen(text)),
                                "type", i->openai, "param",
                                *f->param ? ntx_json_text(f->param, strlen(f->param)) : json_null(), "code", i->code));
}

static void openai_error(const struct ntx_fault *f, struct ntx_buf *out)
{
    ntx_buf_text(out, "data: ");
    openai_fault(f, out);
    ntx_buf_text(out, "\n\n");
}

const struct ntx_shape ntx_openai_chat = {"chatcmpl-",  "text/event-stream", true,         chat_begin,
                                          chat_piece,   chat_call,           chat_finish,  chat_end,
                                          send_comment, chat_whole,          openai_fault, openai_error};
const struct ntx_shape ntx_openai_text = {"cmpl-",      "text/event-stream", false,    text_begin,   text_piece,
                                          NULL,         text_finish,         text_end, send_comment, text_whole,
                                          openai_fault, openai_error};
