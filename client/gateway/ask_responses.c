/* OpenAI's Responses: items become the messages of a chat, whose reader takes them. Nothing is kept here, so a conversation comes with each request. */
#include <stdlib.h>
#include <string.h>

#include "client/gateway/ask_fields.h"
#include "client/gateway/buf.h"

static const struct ntx_field fields[] = {
    {"model", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"input", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"instructions", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"tools", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"tool_choice", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"parallel_tool_calls", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"text", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"stream", NTX_FIELD_BOOL, AT(stream), 0, 0, NULL},
    {"max_output_tokens", NTX_FIELD_COUNT, AT(max_tokens), 1, NTX_MOST_TOKENS, NULL},
    {"temperature", NTX_FIELD_REAL, AT(temp), 0, 2, NULL},
    {"top_p", NTX_FIELD_REAL, AT(top_p), 0, 1, NULL},
    {"previous_response_id", NTX_FIELD_ABSENT, 0, 0, 0, "nothing is kept: send the items of the conversation"},
    {"conversation", NTX_FIELD_ABSENT, 0, 0, 0, "nothing is kept: send the items of the conversation"},
    {"background", NTX_FIELD_ABSENT, 0, 0, 0, "nothing is kept: an answer comes with its request"},
    {"prompt", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {"max_tool_calls", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {"top_logprobs", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {"reasoning", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"include", NTX_FIELD_SKIP, 0, 0, 0, NULL}, /* of what is not there */
    {"stream_options", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {"truncation", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"store", NTX_FIELD_SKIP, 0, 0, 0, NULL}, /* true unless it is said: nobody can mean it */
    {"metadata", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {"user", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {"service_tier", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {"safety_identifier", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {"prompt_cache_key", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {"prompt_cache_retention", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {NULL, NTX_FIELD_ANY, 0, 0, 0, NULL},
};

struct items {
    json_t *messages; /* as chat completions have them */
    bool thinks;      /* there is */
    struct ntx_buf thought; /* a text that belongs to the assistant's next message */
};

/* ---- items */

/* NULL: no memory. */
static json_t *take_thought(struct items *x)
{
    json_t *text = x->thought.bad ? NULL : json_stringn(x->thought.n ? x->thought.p : "", x->thought.n);
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

/* Calls of one answer follow each other, and the text that came with them. */
static void add_call(struct items *x, const json_t *item)
{
    json_t *call = json_pack("{s:O*, s:s, s:{s:O*, s:O*}}", "id", json_object_get(item, "call_id"), "type", "function", "function", "name", json_object_get(item, "name"), "arguments",
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

/* The texts of its parts, one after the other. */
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

static int add_item(struct items *x, const json_t *item, struct ntx_fault *f)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    if (!json_is_object(item))
        return ntx_fault(f, NTX_FAULT_INVALID, "input", "an item of 'input' must be an object");
    if (!type || !strcmp(type, "message"))
        add_message(x, json_pack("{s:O*, s:O*}", "role", json_object_get(item, "role"), "content", json_object_get(item, "content")));
    else if (!strcmp(type, "function_call"))
        add_call(x, item);
    else if (!strcmp(type, "function_call_output"))
        add_message(x, json_pack("{s:s, s:O*, s:O*}", "role", "tool", "tool_call_id", json_object_get(item, "call_id"), "content", json_object_get(item, "output")));
    else if (!strcmp(type, "reasoning"))
        add_thought(x, item);
    else
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, "input", "items of type '%.40s' are not supported%s", type, !strcmp(type, "item_reference") ? ": nothing is kept" : "");
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

static int read_messages(struct ntx_ask *a, const json_t *body, struct ntx_fault *f)
{
    struct items x = {.messages = json_array()};
    json_t *system = json_object_get(body, "instructions");
    int rc = 0;
    if (system && !json_is_null(system) && !json_is_string(system))
        rc = ntx_fault(f, NTX_FAULT_INVALID, "instructions", "'instructions' must be a string");
    if (json_is_string(system))
        add_message(&x, json_pack("{s:s, s:O}", "role", "system", "content", system));
    if (!rc)
        rc = add_input(&x, json_object_get(body, "input"), f);
    if (!rc)
        rc = ntx__ask_openai_messages(a, x.messages, f);
    ntx_buf_free(&x.thought);
    json_decref(x.messages);
    return rc;
}

/* ---- tools, which lie flat here */

static json_t *nested(const json_t *tool)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    if (!type || strcmp(type, "function"))
        return json_incref((json_t *)(uintptr_t)tool); /* to be refused by its type */
    return json_pack("{s:s, s:{s:O*, s:O*, s:O*, s:O*}}", "type", "function", "function", "name", json_object_get(tool, "name"), "description", json_object_get(tool, "description"), "parameters",
                     json_object_get(tool, "parameters"), "strict", json_object_get(tool, "strict"));
}

static int read_tools(struct ntx_ask *a, const json_t *body, struct ntx_fault *f)
{
    const json_t *list = json_object_get(body, "tools");
    const char *choice;
    size_t i;
    json_t *tool;
    if (ntx__ask_tool_choice(json_object_get(body, "tool_choice"), &choice, f))
        return -1;
    if (!strcmp(choice, "none"))
        return 0;
    if (!list || json_is_null(list))
        return ntx__ask_calling(a, choice, true, f);
    if (!json_is_array(list))
        return ntx__ask_tools(a, list, false, f); /* which refuses it */
    json_t *all = json_array();
    json_array_foreach((json_t *)(uintptr_t)list, i, tool)
        json_array_append_new(all, nested(tool));
    int rc = ntx__ask_tools(a, all, false, f);
    json_decref(all);
    return rc ? rc : ntx__ask_calling(a, choice, !json_is_false(json_object_get(body, "parallel_tool_calls")), f);
}

/* What names the only thing that there is, is taken. */
static int check_words(const json_t *body, struct ntx_fault *f)
{
    const json_t *cut = json_object_get(body, "truncation"), *effort = json_object_get(json_object_get(body, "reasoning"), "effort");
    const char *word = json_string_value(cut);
    if (cut && !json_is_null(cut) && !(word && !strcmp(word, "disabled")))
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, "truncation", "'truncation' other than disabled is not supported: what does not fit is refused");
    if (effort && !json_is_null(effort))
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, "reasoning", "'reasoning.effort' is not supported: a model that thinks does so by itself");
    return 0;
}

static int keep_echo(struct ntx_ask *a, const json_t *body, struct ntx_fault *f)
{
    static const char *const told[] = {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "tool_choice"};
    if (!(a->echo = json_object()))
        return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        json_t *v = json_object_get(body, told[i]);
        if (v && !json_is_null(v))
            json_object_set(a->echo, told[i], v);
    }
    return 0;
}

int ntx__ask_responses(struct ntx_ask *a, const json_t *body, struct ntx_fault *f)
{
    if (ntx_fields_read(fields, body, a, f) || check_words(body, f) || ntx__ask_format(a, json_object_get(json_object_get(body, "text"), "format"), "text.format", f) || read_tools(a, body, f))
        return -1;
    return keep_echo(a, body, f) ? -1 : read_messages(a, body, f);
}
