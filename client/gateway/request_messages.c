/* SPDX-License-Identifier: Apache-2.0 */
/* Anthropic's Messages. */
#include <string.h>

#include "client/gateway/request_fields.h"

static bool is_block(const json_t *block, const char *type)
{
    const char *is = json_string_value(json_object_get(block, "type"));
    return is && !strcmp(is, type);
}

/* A tool result becomes its own message, before the user's text. */
static int add_result(struct ntx_api_request *a, const json_t *block, struct ntx_fault *f)
{
    json_t *content = json_object_get(block, "content"),
           *none = content && !json_is_null(content) ? NULL : json_string("");
    int rc = ntx__request_message(a, "tool", none ? none : content, "messages", f);
    json_decref(none);
    json_t *failed = json_object_get(block, "is_error");
    if (!json_is_true(failed))
        failed = NULL;
    if (rc)
        return rc;
    json_t *fields = json_pack("{s:O*, s:O*}", "tool_call_id", json_object_get(block, "tool_use_id"), "is_error",
                               failed);
    return ntx__request_set_fields(a, fields, f);
}

static json_t *call_of(const json_t *block)
{
    return json_pack("{s:O*, s:{s:O*, s:O*}}", "id", json_object_get(block, "id"), "function", "name",
                     json_object_get(block, "name"), "arguments", json_object_get(block, "input"));
}

/* Joins the text of the reasoning blocks; takes text and returns it with the block added. */
static json_t *with_thought(json_t *text, const json_t *block)
{
    const char *more = json_string_value(json_object_get(block, "thinking"));
    json_t *all = NULL;
    if (more)
        all = json_sprintf("%s%s", text ? json_string_value(text) : "", more);
    if (!all)
        return text;
    json_decref(text);
    return all;
}

/* Results become messages, calls and reasoning become fields, and the rest is the message's text. */
static int add_blocks(struct ntx_api_request *a, const char *role, const json_t *content, struct ntx_fault *f)
{
    json_t *rest = json_array(), *calls = json_array(), *list = NULL, *thought = NULL, *block;
    size_t i;
    int rc = 0;
    json_array_foreach((json_t *)(uintptr_t)content, i, block) {
        rc = rc || is_block(block, "text") ? rc
                                           /* text blocks are checked where they are added */
                                           : ntx_fields_read(NTX_FIELDS_PART, block, NULL, &a->ignored, f);
        if (*role == 'u' && is_block(block, "tool_result"))
            rc = rc ? rc : add_result(a, block, f);
        else if (*role == 'a' && is_block(block, "tool_use"))
            json_array_append_new(calls, call_of(block));
        else if (*role == 'a' && is_block(block, "thinking"))
            thought = with_thought(thought, block);
        else
            json_array_append(rest, block);
    }
    bool speaks = json_array_size(rest) || json_array_size(calls) || thought || !json_array_size(content);
    if (!rc && speaks)
        rc = ntx__request_message(a, role, rest, "messages", f);
    if (!rc && json_array_size(calls) && !(list = ntx__request_calls(a, calls, f)))
        rc = -1;
    if (!rc && (list || json_string_length(thought)))
        rc = ntx__request_set_fields(a,
                                     json_pack("{s:o*, s:O*}", "tool_calls", list, "reasoning_content",
                                               json_string_length(thought) ? thought : NULL),
                                     f);
    json_decref(thought);
    json_decref(rest);
    json_decref(calls);
    return rc;
}

static int add_message(struct ntx_api_request *a, const json_t *m, struct ntx_fault *f)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    if (!json_is_object(m))
        return ntx_fault(f, NTX_FAULT_INVALID, "messages", "messages: each must be an object");
    if (ntx_fields_read(NTX_FIELDS_CLAUDE_MESSAGE, m, a, &a->ignored, f))
        return -1;
    bool system = role && (!strcmp(role, "system") || !strcmp(role, "developer"));
    if (!system && (!role || (strcmp(role, "user") && strcmp(role, "assistant"))))
        return ntx_fault(f, NTX_FAULT_INVALID, "messages", "messages: a role is user, assistant or system");
    const json_t *content = json_object_get(m, "content");
    if (system)
        return ntx__request_message(a, "system", content, "messages", f);
    role = *role == 'u' ? "user" : "assistant";
    if (json_is_array(content))
        return add_blocks(a, role, content, f);
    return ntx__request_message(a, role, content, "messages", f);
}

static int check_body(const struct ntx_api_request *a, const json_t *body, bool counts, struct ntx_fault *f)
{
    if (!counts && !a->max_tokens)
        return ntx_fault(f, NTX_FAULT_INVALID, "max_tokens", "max_tokens: is required");
    return json_array_size(json_object_get(body, "messages"))
               ? 0
               : ntx_fault(f, NTX_FAULT_INVALID, "messages", "messages: at least one message is required");
}

static int read_config(struct ntx_api_request *a, const json_t *v, struct ntx_fault *f)
{
    const json_t *format = json_object_get(v, "format");
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_object(v))
        return ntx_fault(f, NTX_FAULT_INVALID, "output_config", "output_config: must be an object");
    if (ntx_fields_read(NTX_FIELDS_OUTPUT_CONFIG, v, NULL, &a->ignored, f) ||
        ntx__request_effort(a, json_object_get(v, "effort"), "output_config.effort", f))
        return -1;
    if (json_is_object(format) && ntx_fields_read(NTX_FIELDS_OUTPUT_FORMAT, format, NULL, &a->ignored, f))
        return -1;
    return ntx__request_format(a, format, "output_config.format", f);
}

/* auto, any (at least one), tool (this one), or none. */
static int read_tools(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    const json_t *v = json_object_get(body, "tool_choice");
    const char *type = v && !json_is_null(v) ? json_string_value(json_object_get(v, "type")) : "auto",
               *name = json_string_value(json_object_get(v, "name"));
    bool parallel = !json_is_true(json_object_get(v, "disable_parallel_tool_use"));
    if (!type ||
        (strcmp(type, "auto") && strcmp(type, "any") && strcmp(type, "none") && !(!strcmp(type, "tool") && name)))
        return ntx_fault(f, NTX_FAULT_INVALID, "tool_choice",
                         "tool_choice: is of type auto, any, none, or tool with a name");
    if (!strcmp(type, "none"))
        return 0;
    a->parallel = parallel;
    const char *choice = "auto";
    if (!strcmp(type, "any"))
        choice = "required";
    else if (!strcmp(type, "tool"))
        choice = name;
    return ntx__request_tools(a, json_object_get(body, "tools"), true, f) ||
                   ntx__request_calling(a, choice, parallel, f)
               ? -1
               : 0;
}

int ntx__request_messages(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    const json_t *system = json_object_get(body, "system");
    size_t i;
    json_t *m;
    if (ntx_fields_read(a->api == NTX_API_COUNT ? NTX_FIELDS_COUNT : NTX_FIELDS_MESSAGES, body, a, &a->ignored, f) ||
        check_body(a, body, a->api == NTX_API_COUNT, f) ||
        ntx__request_stops(a, json_object_get(body, "stop_sequences"), "stop_sequences", f))
        return -1;
    const bool none = !system || json_is_null(system) || (json_is_string(system) && !json_string_length(system)) ||
                      (json_is_array(system) && !json_array_size(system));
    if (!none && ntx__request_message(a, "system", system, "system", f))
        return -1;
    if (ntx__request_thinking(a, json_object_get(body, "thinking"), f) ||
        read_config(a, json_object_get(body, "output_config"), f) || read_tools(a, body, f))
        return -1;
    json_array_foreach(json_object_get(body, "messages"), i, m)
        if (add_message(a, m, f))
            return -1;
    if (a->api == NTX_API_COUNT) {
        a->max_tokens = 1; /* the count comes with the answer's beginning, and no more is needed */
        a->stream = false;
    }
    return ntx__request_ends(a, f);
}
