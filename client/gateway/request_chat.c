/* SPDX-License-Identifier: Apache-2.0 */
/* Chat completions: messages with roles. */
#include <stdlib.h>
#include <string.h>

#include "client/gateway/request_fields.h"
#include "client/gateway/buf.h"

enum { STOP_MOST = 4096, MESSAGES_MOST = 16384 }; /* the limits of proto/frame.h and frame_valid.c */

int ntx__request_stops(struct ntx_api_request *a, const json_t *v, const char *name, struct ntx_fault *f)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (!v || json_is_null(v))
        return 0;
    if (n > NTX_API_REQUEST_STOPS)
        return ntx_fault(f, NTX_FAULT_INVALID, name, "'%s' has %zu strings, %u are possible", name, n,
                         NTX_API_REQUEST_STOPS);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
        size_t len = json_string_length(s);
        if (json_is_string(s) && !len)
            continue; /* it would end no answer */
        if (!len || len > STOP_MOST || strlen(json_string_value(s)) != len)
            return ntx_fault(f, NTX_FAULT_INVALID, name,
                             "'%s' must be a string, or several, of 1 to %d bytes without NUL", name, STOP_MOST);
        if (!(a->stops[a->n_stops++] = strdup(json_string_value(s))))
            return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    }
    return 0;
}

int ntx__request_openai(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    const json_t *so = json_object_get(body, "stream_options");
    if (so && !json_is_null(so) && !json_is_object(so))
        return ntx_fault(f, NTX_FAULT_INVALID, "stream_options", "'stream_options' must be an object");
    if (json_is_object(so) && !a->stream)
        return ntx_fault(f, NTX_FAULT_INVALID, "stream_options", "'stream_options' is for streams only");
    if (json_is_object(so) && ntx_fields_read(NTX_FIELDS_STREAM_OPTIONS, so, a, &a->ignored, f))
        return -1;
    return ntx__request_stops(a, json_object_get(body, "stop"), "stop", f) ||
                   ntx__request_bias(a, json_object_get(body, "logit_bias"), f)
               ? -1
               : 0;
}

/* ---- messages */

static int add_part(struct ntx_api_request *a, struct ntx_buf *b, struct ntx_api_request_images *images,
                    const json_t *part, bool system, const char *param, struct ntx_fault *f)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text");
    if (!type)
        return ntx_fault(f, NTX_FAULT_INVALID, param, "a part of a message's content has no type");
    if (!strcmp(type, "thinking") || !strcmp(type, "redacted_thinking"))
        return 0; /* a part of earlier answers, not text */
    if (ntx__request_is_picture(type))
        return ntx__request_picture(a, part, param, b->n, images, f);
    if (strcmp(type, "text") && strcmp(type, "input_text") && strcmp(type, "output_text")) {
        const char *why = ntx__request_no_part(type);
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, param, "content of type '%.40s' is not supported: %s", type,
                         why ? why : "text and pictures are");
    }
    if (!json_is_string(text))
        return ntx_fault(f, NTX_FAULT_INVALID, param, "a part of type text has no text");
    if (ntx_fields_read(NTX_FIELDS_PART, part, NULL, &a->ignored, f))
        return -1;
    if (system && ntx__request_is_volatile(json_string_value(text))) {
        ntx_ignored_add(&a->ignored, "system", "x-anthropic-billing-header");
        return 0;
    }
    ntx_buf_add(b, json_string_value(text), json_string_length(text));
    return 0;
}

static int content_of(struct ntx_api_request *a, struct ntx_buf *b, struct ntx_api_request_images *images,
                      const json_t *content, bool system, const char *param, struct ntx_fault *f)
{
    size_t i;
    json_t *part;
    if (json_is_string(content)) {
        ntx_buf_add(b, json_string_value(content), json_string_length(content));
        return 0;
    }
    if (!json_is_array(content))
        return ntx_fault(f, NTX_FAULT_INVALID, param, "%s%s must be a string, or a list of parts of text and pictures",
                         strcmp(param, "messages") ? param : "the content of a message",
                         strcmp(param, "messages") ? ":" : "");
    json_array_foreach((json_t *)(uintptr_t)content, i, part)
        if (add_part(a, b, images, part, system, param, f))
            return -1;
    return 0;
}

int ntx__request_message(struct ntx_api_request *a, const char *role, const json_t *content, const char *param,
                         struct ntx_fault *f)
{
    struct ntx_buf b = {0};
    struct ntx_api_request_images images = {0};
    struct ntx_api_request_message *m;
    int rc = content_of(a, &b, &images, content, !strcmp(role, "system"), param, f);
    if (!rc && a->n_messages >= MESSAGES_MOST)
        rc = ntx_fault(f, NTX_FAULT_INVALID, param, "more than %d messages", MESSAGES_MOST);
    ntx_buf_add(&b, "", 1); /* terminates the text, even an empty one */
    if (!rc && (b.bad || !(m = realloc(a->messages, (a->n_messages + 1) * sizeof *m))))
        rc = ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    if (rc) {
        ntx_buf_free(&b);
        ntx__request_images_free(&images);
        return rc;
    }
    a->messages = m;
    m[a->n_messages++] = (struct ntx_api_request_message){.role = role, .text = b.p, .len = b.n - 1, .images = images};
    return 0;
}

static const char *role_of(const json_t *m, struct ntx_fault *f)
{
    static const char *const roles[][2] = {{"system", "system"},       {"developer", "system"}, {"user", "user"},
                                           {"assistant", "assistant"}, {"tool", "tool"},        {"function", "tool"}};
    const char *role = json_string_value(json_object_get(m, "role"));
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(role, roles[i][0]))
            return roles[i][1];
    ntx_fault(f, role ? NTX_FAULT_UNSUPPORTED : NTX_FAULT_INVALID, "messages",
              role ? "messages of role '%.40s' are not supported" : "a message has no role", role);
    return NULL;
}

/* The assistant's reasoning before this message, as an earlier answer reported it; templates may use it. */
static json_t *thought_of(const json_t *m)
{
    json_t *v = json_object_get(m, "reasoning_content");
    v = json_string_length(v) ? v : json_object_get(m, "thinking");
    v = json_string_length(v) ? v : json_object_get(m, "reasoning");
    return json_string_length(v) ? v : NULL;
}

/* The message's other fields for the template. */
static int add_fields(struct ntx_api_request *a, const json_t *m, const json_t *calls, const char *role,
                      struct ntx_fault *f)
{
    bool tool = !strcmp(role, "tool");
    json_t *id = tool && !json_is_null(json_object_get(m, "tool_call_id")) ? json_object_get(m, "tool_call_id") : NULL,
           *name = json_object_get(m, "name"), *call;
    json_t *thought = strcmp(role, "assistant") ? NULL : thought_of(m), *list;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)calls, i, call)
        if (ntx_fields_read(NTX_FIELDS_CHAT_CALL, call, NULL, &a->ignored, f))
            return -1;
    name = name ? name : json_object_get(m, "tool_name");
    name = tool || json_string_length(name) ? name : NULL;
    if (name && !json_is_null(name) && !json_is_string(name))
        return ntx_fault(f, NTX_FAULT_INVALID, "messages", "the 'name' of a message must be a string");
    if (!(list = calls ? ntx__request_calls(a, calls, f) : NULL) && calls)
        return -1;
    if (!list && !thought && !name && !tool)
        return 0;
    return ntx__request_set_fields(a,
                                   json_pack("{s:o*, s:O*, s:O*, s:O*}", "tool_calls", list, "reasoning_content",
                                             thought, "tool_call_id", id, "name", name),
                                   f);
}

/* The calls of a message, or NULL: tool_calls, or the one of function_call, an older form. Free it. */
static json_t *calls_of(const json_t *m)
{
    json_t *calls = json_object_get(m, "tool_calls"), *older = json_object_get(m, "function_call");
    if (json_array_size(calls))
        return json_incref(calls);
    return json_is_object(older) ? json_pack("[{s:O}]", "function", older) : NULL;
}

static int add_body(struct ntx_api_request *a, const json_t *m, const json_t *calls, const char *role,
                    struct ntx_fault *f)
{
    const json_t *content = json_object_get(m, "content");
    const bool ours = !strcmp(role, "assistant") || !strcmp(role, "tool");
    if (calls && strcmp(role, "assistant"))
        return ntx_fault(f, NTX_FAULT_INVALID, "messages", "only the assistant's messages have tool_calls");
    json_t *none = (content || ours) && (!content || json_is_null(content)) ? json_string("") : NULL;
    int rc = ntx__request_message(a, role, none ? none : content, "messages", f);
    json_decref(none);
    if (!rc)
        rc = ntx__request_pictures(a, json_object_get(m, "images"), f);
    return rc ? rc : add_fields(a, m, calls, role, f);
}

static int add_message(struct ntx_api_request *a, const json_t *m, struct ntx_fault *f)
{
    if (!json_is_object(m))
        return ntx_fault(f, NTX_FAULT_INVALID, "messages", "a message must be an object");
    if (ntx_fields_read(NTX_FIELDS_CHAT_MESSAGE, m, a, &a->ignored, f))
        return -1;
    const char *role = role_of(m, f);
    if (!role)
        return -1;
    const json_t *older = json_object_get(m, "function_call");
    if (older && !json_is_null(older) && !json_is_object(older))
        return ntx_fault(f, NTX_FAULT_INVALID, "messages", "'function_call' must be an object with name and arguments");
    json_t *calls = calls_of(m);
    int rc = add_body(a, m, calls, role, f);
    json_decref(calls);
    return rc;
}

/* A field that names the only possible value is accepted. */
static int check_words(const json_t *body, struct ntx_fault *f)
{
    const json_t *modes = json_object_get(body, "modalities");
    const char *word = json_string_value(json_array_get(modes, 0));
    if (modes && !json_is_null(modes) && !(json_array_size(modes) == 1 && word && !strcmp(word, "text")))
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, "modalities", "'modalities' other than text are not supported");
    return 0;
}

int ntx__request_ends(const struct ntx_api_request *a, struct ntx_fault *f)
{
    const struct ntx_api_request_message *last = &a->messages[a->n_messages - 1];
    if (!strcmp(last->role, "assistant") && last->fields && strstr(last->fields, "\"tool_calls\""))
        return ntx_fault(f, NTX_FAULT_INVALID, "messages",
                         "the last message has calls of tools: send their results after it");
    return 0;
}

/* vLLM's fields. Without them a last message of the assistant is continued, as llama-server does. */
static int check_continues(const struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    static const char field[] = "continue_final_message", other[] = "add_generation_prompt";
    const json_t *on = json_object_get(body, field), *begins = json_object_get(body, other);
    const bool last = !strcmp(a->messages[a->n_messages - 1].role, "assistant");
    if ((on && !json_is_null(on) && !json_is_boolean(on)) ||
        (begins && !json_is_null(begins) && !json_is_boolean(begins)))
        return ntx_fault(f, NTX_FAULT_INVALID, field, "'%s' and '%s' must be true or false", field, other);
    if (json_is_true(on) && json_is_true(begins))
        return ntx_fault(f, NTX_FAULT_INVALID, field, "'%s' and '%s' exclude each other", field, other);
    if (json_is_true(on) && !last)
        return ntx_fault(f, NTX_FAULT_INVALID, field, "'%s': the last message is not the assistant's", field);
    if (json_is_false(begins) && !last)
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, other,
                         "'%s' may be false only where the last message is the assistant's", other);
    if (last && (json_is_true(begins) || json_is_false(on)))
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, "messages",
                         "the last message is the assistant's, which can only be continued ('%s')", field);
    return 0;
}

int ntx__request_openai_messages(struct ntx_api_request *a, const json_t *messages, struct ntx_fault *f)
{
    size_t i;
    json_t *m;
    if (!json_array_size(messages))
        return ntx_fault(f, NTX_FAULT_INVALID, "messages", "'messages' must be a list of at least one message");
    json_array_foreach((json_t *)(uintptr_t)messages, i, m)
        if (add_message(a, m, f))
            return -1;
    return ntx__request_ends(a, f);
}

static int read_thinking(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    json_t *more = json_object_get(body, "chat_template_kwargs");
    if (more && !json_is_null(more) && !json_is_object(more))
        return ntx_fault(f, NTX_FAULT_INVALID, "chat_template_kwargs", "'chat_template_kwargs' must be an object");
    a->think.more = json_is_object(more) ? json_incref(more) : NULL;
    static const char *const budgets[] = {"thinking_budget", "thinking_budget_tokens", "thinking_token_budget",
                                          "reasoning_budget", "reasoning_budget_tokens"};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++)
        if (ntx__request_budget(a, json_object_get(body, budgets[i]), budgets[i], f))
            return -1;
    return ntx__request_reasoning(a, json_object_get(body, "reasoning"), f) ||
                   ntx__request_thinking(a, json_object_get(body, "thinking"), f) ||
                   ntx__request_effort(a, json_object_get(body, "reasoning_effort"), "reasoning_effort", f) ||
                   ntx__request_switch(a, json_object_get(body, "enable_thinking"), "enable_thinking", f)
               ? -1
               : 0;
}

int ntx__request_chat(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    if (ntx_fields_read(NTX_FIELDS_CHAT, body, a, &a->ignored, f) || ntx__request_openai(a, body, f) ||
        check_words(body, f) || read_thinking(a, body, f))
        return -1;
    const char *choice;
    if (ntx__request_logprobs(a, body, true, f) ||
        ntx__request_format(a, json_object_get(body, "response_format"), "response_format", f) ||
        ntx__request_guides(a, body, f) ||
        ntx__request_tool_choice(a, json_object_get(body, "tool_choice"), &choice, f))
        return -1;
    if (strcmp(choice, "none") && (ntx__request_tools(a, json_object_get(body, "tools"), false, f) ||
                                   ntx__request_calling(a, choice, a->parallel, f)))
        return -1;
    return ntx__request_openai_messages(a, json_object_get(body, "messages"), f) || check_continues(a, body, f) ? -1
                                                                                                                : 0;
}
