/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints of the answer (response_format, format, tool_choice, strict tools), logit biases and logprobs. */
#include <stdlib.h>
#include <string.h>

#include "client/gateway/request_fields.h"

static int no_memory(struct ntx_fault *f) { return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory"); }

static int constrain(struct ntx_api_request *a, const char *kind, const json_t *what, struct ntx_fault *f)
{
    free(a->constraint);
    a->constraint_kind = kind;
    a->constraint = json_dumps(what, JSON_ENCODE_ANY | JSON_COMPACT);
    return a->constraint ? 0 : no_memory(f);
}

int ntx__request_schema(struct ntx_api_request *a, const json_t *schema, bool strict, const char *param,
                        struct ntx_fault *f)
{
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return ntx_fault(f, NTX_FAULT_INVALID, param, "'%s' must have a schema, which is an object", param);
    ntx_unenforced_free(&a->unenforced);
    if (ntx_unenforced_look(&a->unenforced, schema, NULL, strict ? NTX_SCHEMA_STRICT : NTX_SCHEMA_CLOSEST, param, f))
        return -1;
    return constrain(a, a->unenforced.keywords ? "closest" : "schema", schema, f);
}

int ntx__request_format(struct ntx_api_request *a, const json_t *format, const char *param, struct ntx_fault *f)
{
    const char *type = json_string_value(json_object_get(format, "type"));
    const json_t *inner = json_object_get(format, "json_schema");
    if (!strcmp(param, "response_format") && json_is_object(format) &&
        ntx_fields_read(NTX_FIELDS_FORMAT, format, NULL, &a->ignored, f))
        return -1;
    if (!strcmp(param, "response_format") && json_is_object(inner) &&
        ntx_fields_read(NTX_FIELDS_SCHEMA, inner, NULL, &a->ignored, f))
        return -1;
    if (!format || json_is_null(format) || (type && !strcmp(type, "text")))
        return 0;
    if (inner && !json_is_null(inner) && !json_is_object(inner))
        return ntx_fault(f, NTX_FAULT_INVALID, param, "'json_schema' of '%s' must be an object", param);
    if (type && !strcmp(type, "json_schema")) /* Responses have a flat schema */
        return ntx__request_schema(a, json_object_get(inner ? inner : format, "schema"),
                                   json_is_true(json_object_get(inner ? inner : format, "strict")), param, f);
    if (!type || strcmp(type, "json_object"))
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, param, "'%s' is of type text, json_object or json_schema", param);
    json_t *object = json_pack("{s:s}", "type", "object");
    int rc = object ? constrain(a, "schema", object, f) : no_memory(f);
    json_decref(object);
    return rc;
}

static bool any_strict(const json_t *tools)
{
    size_t i;
    json_t *tool;
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool)
        if (json_is_true(json_object_get(json_object_get(tool, "function"), "strict")))
            return true;
    return false;
}

static bool is_left_out(const struct ntx_api_request *a, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach(a->left_out, i, one)
        if (!strcmp(json_string_value(one), name))
            return true;
    return false;
}

/* Looks at the parameters of the tools that may be called. A schema that fails ends a soft constraint later. */
static int look_at_tools(struct ntx_api_request *a, const json_t *tools, const char *only, bool soft,
                         struct ntx_fault *f)
{
    size_t i;
    json_t *tool;
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
        const json_t *fn = json_object_get(tool, "function"), *schema = json_object_get(fn, "parameters");
        const char *name = json_string_value(json_object_get(fn, "name"));
        enum ntx_schema_use use = soft ? NTX_SCHEMA_MAY_FAIL : NTX_SCHEMA_CLOSEST;
        if (!json_is_object(schema) || !name || (only && strcmp(only, name)))
            continue;
        if (json_is_true(json_object_get(fn, "strict")))
            use = NTX_SCHEMA_STRICT;
        if (ntx_unenforced_look(&a->unenforced, schema, name, use, "tools", f))
            return -1;
    }
    return 0;
}

static bool is_allowed(const json_t *names, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)names, i, one)
        if (name && !strcmp(json_string_value(one), name))
            return true;
    return false;
}

/* Tools that allowed_tools names, which alone may be called, though the prompt shows all. NULL with f. */
static json_t *allowed_of(struct ntx_api_request *a, const json_t *tools, struct ntx_fault *f)
{
    json_t *out = json_array(), *one;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)tools, i, one) {
        const char *name = json_string_value(json_object_get(json_object_get(one, "function"), "name"));
        if (is_allowed(a->allowed, name))
            json_array_append(out, one);
        else if (name)
            json_object_del(a->offered, name);
    }
    if (json_array_size(out) == json_array_size(a->allowed))
        return out;
    json_decref(out);
    ntx_fault(f, NTX_FAULT_INVALID, "tool_choice", "'allowed_tools' names a function that is not one of 'tools'");
    return NULL;
}

/* With "auto", an impossible constraint is no fault: the model then writes calls freely. */
int ntx__request_calling(struct ntx_api_request *a, const char *choice, bool parallel, struct ntx_fault *f)
{
    bool is_auto = !choice || !strcmp(choice, "auto");
    json_t *variables = a->variables ? json_loads(a->variables, 0, NULL) : NULL,
           *all = json_object_get(variables, "tools"),
           *tools = all && a->allowed ? allowed_of(a, all, f) : json_incref(all);
    int rc = 0;
    if (all && !tools)
        rc = -1;
    else if (!is_auto && is_left_out(a, choice))
        rc = ntx_fault(
            f, NTX_FAULT_UNSUPPORTED, "tool_choice",
            "'tool_choice' asks for the tool '%.60s', which ntx cannot offer: it runs none itself, and offers "
            "functions (of type custom in Anthropic's API)",
            choice);
    else if (!tools && !is_auto)
        rc = ntx_fault(f, NTX_FAULT_INVALID, "tool_choice", "'tool_choice' asks for a tool, and there is none");
    else if (tools && a->constraint && !is_auto)
        rc = ntx_fault(f, NTX_FAULT_UNSUPPORTED, "tool_choice",
                       "an answer cannot be both a JSON text and calls: leave one of them out");
    else if (tools && !a->constraint) {
        json_t *what = json_pack("{s:O, s:s, s:b}", "tools", tools, "choice", is_auto ? "auto" : choice, "parallel",
                                 parallel);
        a->constraint_soft = is_auto && parallel && !a->allowed && !any_strict(tools);
        rc = look_at_tools(a, tools, is_auto || !strcmp(choice, "required") ? NULL : choice, a->constraint_soft, f);
        if (!rc)
            rc = what ? constrain(a, "calls", what, f) : no_memory(f);
        json_decref(what);
    }
    json_decref(tools);
    json_decref(variables);
    return rc;
}

/* {"mode": "auto" or "required", "tools": [{"type": "function", "name": ...}]}; chats have it, and the name, a level
 * deeper. Tools of other types are left out, as they are of `tools`. */
static int read_allowed(struct ntx_api_request *a, const json_t *v, const char **choice, struct ntx_fault *f)
{
    const json_t *inner = json_object_get(v, "allowed_tools"), *list;
    size_t i;
    json_t *one;
    v = inner ? inner : v;
    list = json_object_get(v, "tools");
    *choice = json_string_value(json_object_get(v, "mode"));
    if (!*choice || (strcmp(*choice, "auto") && strcmp(*choice, "required")) || !json_array_size(list))
        return ntx_fault(f, NTX_FAULT_INVALID, "tool_choice",
                         "'allowed_tools' has a mode, auto or required, and a list of tools");
    if (!(a->allowed = json_array()))
        return no_memory(f);
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        const char *type = json_string_value(json_object_get(one, "type"));
        json_t *name = json_object_get(json_object_get(one, "function"), "name");
        name = name ? name : json_object_get(one, "name");
        if (type && !strcmp(type, "function") && !json_string_length(name))
            return ntx_fault(f, NTX_FAULT_INVALID, "tool_choice", "a function of 'allowed_tools' has no name");
        if (type && !strcmp(type, "function") && !is_allowed(a->allowed, json_string_value(name)))
            json_array_append(a->allowed, name);
    }
    if (json_array_size(a->allowed))
        return 0;
    return ntx_fault(f, NTX_FAULT_UNSUPPORTED, "tool_choice",
                     "'allowed_tools' names no function: ntx runs no tool itself, and offers functions");
}

/* "auto", "none" or "required", or an object that names a function, or several (a->allowed). *choice is valid as long
 * as v. */
int ntx__request_tool_choice(struct ntx_api_request *a, const json_t *v, const char **choice, struct ntx_fault *f)
{
    const char *type = json_string_value(json_object_get(v, "type")), *word = json_string_value(v);
    const json_t *name = json_object_get(json_object_get(v, "function"), "name");
    name = name ? name : json_object_get(v, "name");
    *choice = word ? word : "auto";
    if (!v || json_is_null(v) ||
        (word && (!strcmp(word, "none") || !strcmp(word, "auto") || !strcmp(word, "required"))))
        return 0;
    if (type && !strcmp(type, "allowed_tools"))
        return read_allowed(a, v, choice, f);
    if (type && strcmp(type, "function")) { /* if that tool came, it is left out */
        *choice = json_string_length(name) ? json_string_value(name) : type;
        return 0;
    }
    if (!type || strcmp(type, "function") || !json_string_length(name))
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, "tool_choice",
                         "'tool_choice' is none, auto, required, or names a function, or several as allowed_tools");
    *choice = json_string_value(name);
    if (!strcmp(*choice, "auto") || !strcmp(*choice, "required") || !strcmp(*choice, "none"))
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, "tool_choice",
                         "a tool that must be called cannot have the name '%s'", *choice);
    return 0;
}

/* As -100, false means never. */
static bool read_bias(const json_t *v, float *add)
{
    const double by = json_is_false(v) ? -100 : json_number_value(v);
    *add = (float)by;
    return (json_is_number(v) || json_is_false(v)) && by >= -100 && by <= 100;
}

/* llama-server's other form: [[token, bias]]. */
static int read_pairs(struct ntx_api_request *a, const json_t *v, struct ntx_fault *f)
{
    size_t i;
    json_t *pair;
    if (json_array_size(v) > NTX_API_REQUEST_BIASES || !(a->bias = calloc(json_array_size(v) + 1, sizeof *a->bias)))
        return ntx_fault(f, NTX_FAULT_INVALID, "logit_bias", "'logit_bias' must have at most %u tokens",
                         NTX_API_REQUEST_BIASES);
    json_array_foreach((json_t *)(uintptr_t)v, i, pair) {
        const json_t *token = json_array_get(pair, 0), *add = json_array_get(pair, 1);
        const json_int_t id = json_integer_value(token);
        float by;
        if (!json_is_integer(token) || id < 0 || id > INT32_MAX || !read_bias(add, &by))
            return ntx_fault(f, NTX_FAULT_INVALID, "logit_bias",
                             "'logit_bias' as a list must have pairs of a token's number and a bias from -100 to 100, "
                             "or false");
        a->bias[a->n_bias].token = (int32_t)id;
        a->bias[a->n_bias++].add = by;
    }
    return 0;
}

int ntx__request_bias(struct ntx_api_request *a, const json_t *v, struct ntx_fault *f)
{
    const char *key;
    json_t *one;
    if (!v || json_is_null(v))
        return 0;
    if (json_is_array(v))
        return read_pairs(a, v, f);
    if (!json_is_object(v) || json_object_size(v) > NTX_API_REQUEST_BIASES)
        return ntx_fault(f, NTX_FAULT_INVALID, "logit_bias", "'logit_bias' must be an object of at most %u tokens",
                         NTX_API_REQUEST_BIASES);
    if (!(a->bias = calloc(json_object_size(v) + 1, sizeof *a->bias)))
        return no_memory(f);
    json_object_foreach((json_t *)(uintptr_t)v, key, one) {
        char *end;
        unsigned long id = strtoul(key, &end, 10);
        float add;
        if (*key < '0' || *key > '9' || *end || id > INT32_MAX || !read_bias(one, &add))
            return ntx_fault(f, NTX_FAULT_INVALID, "logit_bias",
                             "'logit_bias' must give each token, by its number, a bias from -100 to 100, or false");
        a->bias[a->n_bias].token = (int32_t)id;
        a->bias[a->n_bias++].add = add;
    }
    return 0;
}

/* For chats: a bool, and the number of likeliest tokens; for texts: the number. */
int ntx__request_logprobs(struct ntx_api_request *a, const json_t *body, bool chat, struct ntx_fault *f)
{
    const json_t *v = json_object_get(body, "logprobs"), *top = chat ? json_object_get(body, "top_logprobs") : v;
    json_int_t n = json_integer_value(top), most = chat ? 20 : 5;
    if (v && !json_is_null(v) && !json_is_boolean(v) && chat)
        return ntx_fault(f, NTX_FAULT_INVALID, "logprobs", "'logprobs' must be true or false");
    if (!chat && json_is_false(v)) /* some clients send it */
        return 0;
    if (top && !json_is_null(top) && (!json_is_integer(top) || n < 0 || n > most))
        return ntx_fault(f, NTX_FAULT_INVALID, chat ? "top_logprobs" : "logprobs",
                         "'%s' must be an integer from 0 to %d", chat ? "top_logprobs" : "logprobs", (int)most);
    a->logprobs = chat ? json_is_true(v) : v && !json_is_null(v);
    if (n > 0 && !a->logprobs)
        return ntx_fault(f, NTX_FAULT_INVALID, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
    a->top_logprobs = a->logprobs ? (uint32_t)n : 0;
    return 0;
}
