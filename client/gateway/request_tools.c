/* SPDX-License-Identifier: Apache-2.0 */
/* Tools: the tools that a request offers, in the form of the models' templates (OpenAI's and transformers'), and the
 * calls and results of earlier turns. */
#include <stdlib.h>
#include <string.h>

#include "client/gateway/buf.h"
#include "client/gateway/request_fields.h"
#include "model/reply/reply.h"

static int no_memory(struct ntx_fault *f) { return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory"); }

static int check_function(const json_t *fn, struct ntx_fault *f)
{
    const json_t *schema = json_object_get(fn, "parameters");
    if (!json_is_object(fn) || !json_string_length(json_object_get(fn, "name")))
        return ntx_fault(f, NTX_FAULT_INVALID, "tools", "a tool must be an object with a name");
    const json_t *about = json_object_get(fn, "description"), *strict = json_object_get(fn, "strict");
    if (about && !json_is_null(about) && !json_is_string(about))
        return ntx_fault(f, NTX_FAULT_INVALID, "tools", "the description of a tool must be a string");
    if (strict && !json_is_null(strict) && !json_is_boolean(strict))
        return ntx_fault(f, NTX_FAULT_INVALID, "tools", "'strict' of a tool must be true or false");
    if (schema && !json_is_null(schema) && !json_is_object(schema))
        return ntx_fault(f, NTX_FAULT_INVALID, "tools", "the parameters of a tool must be an object");
    return 0;
}

bool ntx__request_offers(struct ntx_api_request *a, const json_t *tool, const char *type)
{
    json_t *is = json_object_get(tool, "type"), *name = json_object_get(tool, "name");
    if (!json_is_string(is) || !strcmp(json_string_value(is), type))
        return true; /* without a type: checked like any other */
    name = name ? name : json_object_get(json_object_get(tool, json_string_value(is)), "name");
    a->left_out = a->left_out ? a->left_out : json_array();
    json_array_append(a->left_out, is);
    if (json_is_string(name))
        json_array_append(a->left_out, name);
    ntx_ignored_add(&a->ignored, "tools", json_string_value(is));
    return false;
}

/* Drops the members that are not followed: a template would write them into the prompt. */
static json_t *keep_members(const json_t *from, const char *const *names)
{
    const char *name;
    json_t *out = json_object(), *v;
    json_object_foreach((json_t *)(uintptr_t)from, name, v)
        for (size_t i = 0; names[i]; i++)
            if (!strcmp(name, names[i]))
                json_object_set(out, name, v);
    return out;
}

static json_t *from_openai(const json_t *tool)
{
    static const char *const mine[] = {"type", "function", NULL}, *const of_function[] = {"name", "description",
                                                                                          "parameters", "strict", NULL};
    json_t *out = keep_members(tool, mine);
    json_object_set_new(out, "function", keep_members(json_object_get(tool, "function"), of_function));
    return out;
}

/* Converts Anthropic's form to OpenAI's. */
static json_t *from_anthropic(const json_t *tool, struct ntx_fault *f)
{
    json_t *name = json_object_get(tool, "name"), *about = json_object_get(tool, "description"),
           *schema = json_object_get(tool, "input_schema");
    json_t *fn = json_pack("{s:O*, s:O*, s:O*, s:O*}", "name", name, "description", about, "parameters", schema,
                           "strict", json_object_get(tool, "strict")),
           *out = NULL;
    if (!check_function(fn, f))
        out = json_pack("{s:s, s:O}", "type", "function", "function", fn);
    json_decref(fn);
    return out;
}

int ntx__request_tools(struct ntx_api_request *a, const json_t *list, bool anthropic, struct ntx_fault *f)
{
    size_t i;
    json_t *tool, *all = json_array();
    if (list && !json_is_null(list) && !json_is_array(list)) {
        json_decref(all);
        return ntx_fault(f, NTX_FAULT_INVALID, "tools", "'tools' must be a list");
    }
    int rc = 0;
    json_array_foreach((json_t *)(uintptr_t)list, i, tool) {
        if (!ntx__request_offers(a, tool, anthropic ? "custom" : "function"))
            continue;
        if ((rc = ntx_fields_read(anthropic ? NTX_FIELDS_CLAUDE_TOOL : NTX_FIELDS_TOOL, tool, NULL, &a->ignored, f)))
            break;
        if (!anthropic &&
            (rc = ntx_fields_read(NTX_FIELDS_FUNCTION, json_object_get(tool, "function"), NULL, &a->ignored, f)))
            break;
        json_t *one = NULL;
        if (anthropic)
            one = from_anthropic(tool, f);
        else if (!check_function(json_object_get(tool, "function"), f))
            one = from_openai(tool);
        if (!one) {
            rc = -1;
            break;
        }
        a->offered = a->offered ? a->offered : json_object();
        json_object_set(a->offered, json_string_value(json_object_get(json_object_get(one, "function"), "name")), one);
        json_array_append_new(all, one);
    }
    if (!rc && json_array_size(all)) {
        json_t *variables = json_pack("{s:O}", "tools", all);
        a->variables = json_dumps(variables, JSON_COMPACT);
        json_decref(variables);
        a->tools = true;
        rc = a->variables ? 0 : no_memory(f);
    }
    json_decref(all);
    return rc;
}

/* ---- earlier turns */

/* For the message that was added last. Takes fields. */
int ntx__request_set_fields(struct ntx_api_request *a, json_t *fields, struct ntx_fault *f)
{
    struct ntx_api_request_message *m = &a->messages[a->n_messages - 1];
    m->fields = fields ? json_dumps(fields, JSON_COMPACT) : NULL;
    json_decref(fields);
    return m->fields ? 0 : no_memory(f);
}

/* Reads the first n bytes and `end`. NULL: they are no object. */
static json_t *read_object(const char *text, size_t n, const char *end)
{
    struct ntx_buf b = {0};
    struct ntx_fault f;
    ntx_buf_add(&b, text, n);
    ntx_buf_text(&b, end);
    json_t *j = b.bad ? NULL : ntx__json_load(b.p, b.n, 0, &f);
    if (!j && !b.bad) /* an integer beyond 64 bits */
        j = ntx__json_load(b.p, b.n, JSON_DECODE_INT_AS_REAL, &f);
    ntx_buf_free(&b);
    return j;
}

static bool says_nothing(const json_t *v)
{
    static const char *const words[] = {"", "null", "[]", "{}", "\"\""};
    const char *text = json_string_value(v);
    size_t from = text ? strspn(text, " \t\r\n") : 0, n = text ? strlen(text + from) : 0;
    while (n && strchr(" \t\r\n", text[from + n - 1]))
        n--;
    for (size_t i = 0; text && i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && !memcmp(text + from, words[i], n))
            return true;
    return !v || json_is_null(v) || (json_is_array(v) && !json_array_size(v));
}

/* Templates need arguments as an object; OpenAI's API has them as text. Of a text that is not one (a call that was
 * cut, or that a small model wrote wrongly) the complete members are kept, and the rest is reported as ignored. */
static json_t *arguments_of(struct ntx_api_request *a, const json_t *v)
{
    json_t *j = NULL;
    if (json_is_object(v))
        return json_incref((json_t *)(uintptr_t)v);
    if (json_is_string(v))
        j = read_object(json_string_value(v), json_string_length(v), "");
    if (!j && !says_nothing(v)) {
        ntx_ignored_add(&a->ignored, "messages.tool_calls", "arguments");
        const char *text = json_is_string(v) ? json_string_value(v) : "";
        size_t whole = ntx_reply_whole(text, strlen(text));
        j = whole ? read_object(text, whole, "}") : NULL;
    }
    return j ? j : json_object();
}

json_t *ntx__request_calls(struct ntx_api_request *a, const json_t *calls, struct ntx_fault *f)
{
    size_t i;
    json_t *call, *out = json_array();
    json_array_foreach((json_t *)(uintptr_t)calls, i, call) {
        json_t *fn = json_object_get(call, "function"), *name = json_object_get(fn, "name"),
               *id = json_object_get(call, "id");
        if (!json_is_string(name)) {
            json_decref(out);
            ntx_fault(f, NTX_FAULT_INVALID, "messages", "a call of tool_calls must have a function with a name");
            return NULL;
        }
        json_array_append_new(out, json_pack("{s:O*, s:s, s:{s:O, s:o}}", "id", json_is_null(id) ? NULL : id, "type",
                                             "function", "function", "name", name, "arguments",
                                             arguments_of(a, json_object_get(fn, "arguments"))));
    }
    return out;
}
