/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI's Responses: items become the messages of a chat, which its reader takes. Nothing is stored here, so a
 * conversation comes with each request. */
#include <stdlib.h>
#include <string.h>

#include "client/gateway/request_fields.h"
#include "client/gateway/buf.h"

struct items {
    struct ntx_api_request *a;
    json_t *messages;       /* in the form of chat completions */
    bool thinks;            /* there is reasoning */
    struct ntx_buf thought; /* reasoning text of the assistant's next message */
};

/* ---- items */

/* NULL: no memory. */
static json_t *take_thought(struct items *x)
{
    json_t *text = NULL;
    if (!x->thought.bad)
        text = json_stringn(x->thought.n ? x->thought.p : "", x->thought.n);
    ntx_buf_free(&x->thought);
    x->thinks = false;
    return text;
}

static json_t *last_of_assistant(const struct items *x)
{
    size_t n = json_array_size(x->messages);
    json_t *m = n ? json_array_get(x->messages, n - 1) : NULL;
    const char *role = json_string_value(json_object_get(m, "role"));
    return role && !strcmp(role, "assistant") ? m : NULL;
}

static void add_message(struct items *x, json_t *m)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    if (x->thinks && role && !strcmp(role, "assistant"))
        json_object_set_new(m, "reasoning_content", take_thought(x));
    json_array_append_new(x->messages, m);
}

/* The calls of one answer follow each other and the text that came with them. */
static void add_call(struct items *x, const json_t *item)
{
    json_t *call = json_pack("{s:O*, s:s, s:{s:O*, s:O*}}", "id", json_object_get(item, "call_id"), "type", "function",
                             "function", "name", json_object_get(item, "name"), "arguments",
                             json_object_get(item, "arguments"));
    json_t *m = x->thinks ? NULL : last_of_assistant(x);
    if (!m) {
        add_message(x, json_pack("{s:s, s:s, s:[]}", "role", "assistant", "content", "", "tool_calls"));
        m = last_of_assistant(x);
    }
    if (!json_object_get(m, "tool_calls"))
        json_object_set_new(m, "tool_calls", json_array());
    json_array_append_new(json_object_get(m, "tool_calls"), call);
}

/* Joins the texts of its parts. */
static void add_thought(struct items *x, const json_t *item)
{
    json_t *parts = json_object_get(item, "content"), *part;
    size_t i;
    json_array_foreach(parts, i, part) {
        const json_t *text = json_object_get(part, "text");
        if (!json_is_string(text))
            continue;
        ntx_buf_add(&x->thought, json_string_value(text), json_string_length(text));
        x->thinks = true;
    }
}

/* Calls that another server made itself, with what it got. They are left out, and reported. */
static bool is_foreign(const char *type)
{
    static const char *const types[] = {
        "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_list_tools",
        "mcp_call",        "compaction"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i]))
            return true;
    return false;
}

/* A call of a tool of another type, from a conversation with another server, in the form of a function's. */
static void add_other_call(struct items *x, const json_t *item, const char *name, const char *key)
{
    json_t *arguments = json_pack("{s:O*}", key, json_object_get(item, key)),
           *call = json_pack("{s:O*, s:O*, s:o}", "call_id", json_object_get(item, "call_id"), "name",
                             json_object_get(item, "name"), "arguments", arguments);
    if (!json_object_get(call, "name"))
        json_object_set_new(call, "name", json_string(name));
    add_call(x, call);
    json_decref(call);
}

static int add_item(struct items *x, const json_t *item, struct ntx_fault *f)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    if (!json_is_object(item))
        return ntx_fault(f, NTX_FAULT_INVALID, "input", "an item of 'input' must be an object");
    if (type && is_foreign(type)) {
        ntx_ignored_add(&x->a->ignored, "input", type);
        return 0;
    }
    if (ntx_fields_read(NTX_FIELDS_ITEM, item, NULL, &x->a->ignored, f))
        return -1;
    if (!type || !strcmp(type, "message"))
        add_message(x, json_pack("{s:O*, s:O*}", "role", json_object_get(item, "role"), "content",
                                 json_object_get(item, "content")));
    else if (!strcmp(type, "function_call"))
        add_call(x, item);
    else if (!strcmp(type, "custom_tool_call"))
        add_other_call(x, item, "custom", "input");
    else if (!strcmp(type, "local_shell_call"))
        add_other_call(x, item, "local_shell", "action");
    else if (!strcmp(type, "function_call_output") || !strcmp(type, "custom_tool_call_output") ||
             !strcmp(type, "local_shell_call_output"))
        add_message(x, json_pack("{s:s, s:O*, s:O*}", "role", "tool", "tool_call_id", json_object_get(item, "call_id"),
                                 "content", json_object_get(item, "output")));
    else if (!strcmp(type, "reasoning"))
        add_thought(x, item);
    else
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, "input", "items of type '%.40s' are not supported%s", type,
                         !strcmp(type, "item_reference") ? ": nothing is kept" : "");
    return 0;
}

static int add_input(struct items *x, const json_t *input, struct ntx_fault *f)
{
    size_t i;
    json_t *item;
    if (json_is_string(input)) {
        add_message(x, json_pack("{s:s, s:O}", "role", "user", "content", input));
        return 0;
    }
    if (!json_array_size(input))
        return ntx_fault(f, NTX_FAULT_INVALID, "input", "'input' must be a string, or a list of at least one item");
    json_array_foreach((json_t *)(uintptr_t)input, i, item)
        if (add_item(x, item, f))
            return -1;
    return 0;
}

static int read_messages(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    struct items x = {.a = a, .messages = json_array()};
    json_t *system = json_object_get(body, "instructions");
    int rc = 0;
    if (system && !json_is_null(system) && !json_is_string(system))
        rc = ntx_fault(f, NTX_FAULT_INVALID, "instructions", "'instructions' must be a string");
    if (json_string_length(system))
        add_message(&x, json_pack("{s:s, s:O}", "role", "system", "content", system));
    if (!rc)
        rc = add_input(&x, json_object_get(body, "input"), f);
    if (!rc)
        rc = ntx__request_openai_messages(a, x.messages, f);
    ntx_buf_free(&x.thought);
    json_decref(x.messages);
    return rc;
}

/* ---- tools, which have a flat form here */

static json_t *nested(const json_t *tool)
{
    return json_pack("{s:s, s:{s:O*, s:O*, s:O*, s:O*}}", "type", "function", "function", "name",
                     json_object_get(tool, "name"), "description", json_object_get(tool, "description"), "parameters",
                     json_object_get(tool, "parameters"), "strict", json_object_get(tool, "strict"));
}

static int read_tools(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    const json_t *list = json_object_get(body, "tools");
    const char *choice;
    size_t i;
    json_t *tool;
    if (ntx__request_tool_choice(a, json_object_get(body, "tool_choice"), &choice, f))
        return -1;
    if (!strcmp(choice, "none"))
        return 0;
    if (!list || json_is_null(list))
        return ntx__request_calling(a, choice, true, f);
    if (!json_is_array(list))
        return ntx__request_tools(a, list, false, f); /* which refuses it */
    json_t *all = json_array();
    int rc = 0;
    json_array_foreach((json_t *)(uintptr_t)list, i, tool) {
        if (!ntx__request_offers(a, tool, "function"))
            continue;
        rc = rc ? rc : ntx_fields_read(NTX_FIELDS_RESPONSE_TOOL, tool, NULL, &a->ignored, f);
        json_array_append_new(all, nested(tool));
    }
    rc = rc ? rc : ntx__request_tools(a, all, false, f);
    json_decref(all);
    return rc ? rc : ntx__request_calling(a, choice, a->parallel, f);
}

/* A field that names the only possible value is accepted. */
static int check_words(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    const json_t *cut = json_object_get(body, "truncation");
    const char *word = json_string_value(cut);
    if (word && !strcmp(word, "auto"))
        ntx_ignored_add(&a->ignored, "", "truncation");
    else if (cut && !json_is_null(cut) && !(word && !strcmp(word, "disabled")))
        return ntx_fault(f, NTX_FAULT_INVALID, "truncation",
                         "'truncation' is auto or disabled; too long a prompt is refused in either case");
    return 0;
}

/* Reads the nested objects. */
static int read_objects(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    static const struct {
        const char *name;
        enum ntx_fields of;
    } all[] = {{"stream_options", NTX_FIELDS_STREAM_OPTIONS}, {"text", NTX_FIELDS_TEXT_CONFIG}};
    const json_t *format = json_object_get(json_object_get(body, "text"), "format");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const json_t *v = json_object_get(body, all[i].name);
        if (v && !json_is_null(v) && !json_is_object(v))
            return ntx_fault(f, NTX_FAULT_INVALID, all[i].name, "'%s' must be an object", all[i].name);
        if (json_is_object(v) && ntx_fields_read(all[i].of, v, a, &a->ignored, f))
            return -1;
    }
    if (json_is_object(format) && ntx_fields_read(NTX_FIELDS_TEXT_FORMAT, format, NULL, &a->ignored, f))
        return -1;
    if (ntx__request_reasoning(a, json_object_get(body, "reasoning"), f))
        return -1;
    return ntx__request_format(a, format, "text.format", f);
}

static int keep_echo(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    static const char *const told[] = {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls",
                                       "tool_choice"};
    const json_t *about = json_object_get(body, "metadata");
    if (about && !json_is_null(about) && !json_is_object(about))
        return ntx_fault(f, NTX_FAULT_INVALID, "metadata", "'metadata' must be an object");
    if (!(a->echo = json_object()))
        return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        json_t *v = json_object_get(body, told[i]);
        if (v && !json_is_null(v))
            json_object_set(a->echo, told[i], v);
    }
    return 0;
}

int ntx__request_responses(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    if (ntx_fields_read(NTX_FIELDS_RESPONSES, body, a, &a->ignored, f) || check_words(a, body, f) ||
        read_objects(a, body, f) || read_tools(a, body, f))
        return -1;
    return keep_echo(a, body, f) ? -1 : read_messages(a, body, f);
}
