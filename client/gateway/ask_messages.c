/* Anthropic's Messages. */
#include <string.h>

#include "client/gateway/ask_fields.h"

static const struct ntx_field fields[] = {
    {"model", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"messages", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"system", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"stop_sequences", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"thinking", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"tool_choice", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"stream", NTX_FIELD_BOOL, AT(stream), 0, 0, NULL},
    {"max_tokens", NTX_FIELD_COUNT, AT(max_tokens), 1, NTX_MOST_TOKENS, NULL},
    {"temperature", NTX_FIELD_REAL, AT(temp), 0, 2, NULL},
    {"top_p", NTX_FIELD_REAL, AT(top_p), 0, 1, NULL},
    {"top_k", NTX_FIELD_COUNT, AT(top_k), 0, NTX_MOST_TOKENS, NULL},
    {"tools", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {"mcp_servers", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {"container", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {"context_management", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {"output_config", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {"diagnostics", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {"speed", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {"cache_control", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {"inference_geo", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {"user_profile_id", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {"workspace_id", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {"metadata", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {"service_tier", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {NULL, NTX_FIELD_ANY, 0, 0, 0, NULL},
};

/* Whether a field is there and asks for something else than `only`. */
static bool asks_other(const json_t *v, const char *only)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    return v && !json_is_null(v) && !(type && !strcmp(type, only));
}

static int add_message(struct ntx_ask *a, const json_t *m, struct ntx_fault *f)
{
    static const struct ntx_field mine[] = {{"role", NTX_FIELD_ANY, 0, 0, 0, NULL}, {"content", NTX_FIELD_ANY, 0, 0, 0, NULL}, {NULL, NTX_FIELD_ANY, 0, 0, 0, NULL}};
    const char *role = json_string_value(json_object_get(m, "role"));
    if (!json_is_object(m))
        return ntx_fault(f, NTX_FAULT_INVALID, "messages", "messages: each must be an object");
    if (ntx_fields_read(mine, m, a, f))
        return -1;
    if (!role || (strcmp(role, "user") && strcmp(role, "assistant")))
        return ntx_fault(f, NTX_FAULT_INVALID, "messages", "messages: a role is user or assistant");
    return ntx__ask_message(a, *role == 'u' ? "user" : "assistant", json_object_get(m, "content"), "messages", f);
}

static int check(const struct ntx_ask *a, const json_t *body, bool counts, struct ntx_fault *f)
{
    if (!counts && !a->max_tokens)
        return ntx_fault(f, NTX_FAULT_INVALID, "max_tokens", "max_tokens: is required");
    if (asks_other(json_object_get(body, "thinking"), "disabled"))
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, "thinking", "'thinking' is not supported: a model that thinks does so by itself");
    if (asks_other(json_object_get(body, "tool_choice"), "none"))
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, "tool_choice", "'tool_choice' is not supported: there are no tools");
    return json_array_size(json_object_get(body, "messages")) ? 0 : ntx_fault(f, NTX_FAULT_INVALID, "messages", "messages: at least one message is required");
}

int ntx__ask_messages(struct ntx_ask *a, const json_t *body, struct ntx_fault *f)
{
    const json_t *system = json_object_get(body, "system");
    size_t i;
    json_t *m;
    if (ntx_fields_read(fields, body, a, f) || check(a, body, a->api == NTX_API_COUNT, f) || ntx__ask_stops(a, json_object_get(body, "stop_sequences"), "stop_sequences", f))
        return -1;
    if (system && !json_is_null(system) && ntx__ask_message(a, "system", system, "system", f))
        return -1;
    json_array_foreach(json_object_get(body, "messages"), i, m)
        if (add_message(a, m, f))
            return -1;
    if (a->api == NTX_API_COUNT) {
        a->max_tokens = 1; /* the count comes with the answer's beginning, and nobody waits for more */
        a->stream = false;
    }
    return ntx__ask_ends(a, f);
}
