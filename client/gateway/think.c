/* SPDX-License-Identifier: Apache-2.0 */
/* Reasoning settings. Every API has its own fields for them; a model's template has variables, if any:
 * enable_thinking (Qwen, GLM), thinking (DeepSeek, Granite), reasoning_effort (gpt-oss), thinking_budget (Seed).
 * Settings that the template lacks are reported as not followed. */
#include <stdlib.h>
#include <string.h>

#include "client/gateway/request_fields.h"

int ntx__request_effort(struct ntx_api_request *a, const json_t *v, const char *name, struct ntx_fault *f)
{
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    const char *word = json_string_value(v);
    if (!v || json_is_null(v))
        return 0;
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i]))
            continue;
        if (i) {
            strcpy(a->think.effort, word);
            a->think.effort_by = name;
        } else {
            a->think.state = NTX_THINK_OFF;
            a->think.state_by = name;
        }
        return 0;
    }
    return ntx_fault(f, NTX_FAULT_INVALID, name, "'%s' is none, minimal, low, medium, high, xhigh or max", name);
}

int ntx__request_switch(struct ntx_api_request *a, const json_t *v, const char *name, struct ntx_fault *f)
{
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_boolean(v))
        return ntx_fault(f, NTX_FAULT_INVALID, name, "'%s' must be true or false%s", name,
                         strcmp(name, "think") ? "" : ", or a word: low, medium, high");
    a->think.state = json_is_true(v) ? NTX_THINK_ON : NTX_THINK_OFF;
    a->think.state_by = name;
    return 0;
}

bool ntx_api_request_thinks(const struct ntx_api_request *a)
{
    return a->think.state || a->think.effort[0] || a->think.budget || json_object_size(a->think.more);
}

static bool reads_variable(const json_t *names, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)names, i, one)
        if (!strcmp(json_string_value(one), name))
            return true;
    return false;
}

/* False: the template does not read it. A value that the request set itself stays. Takes value. */
static bool set_variable(json_t *vars, const json_t *names, const char *name, json_t *value)
{
    bool there = reads_variable(names, name);
    if (there && !json_object_get(vars, name))
        json_object_set_new(vars, name, value);
    else
        json_decref(value);
    return there;
}

/* Variables of the conversation, which only ntx sets. */
static bool is_own(const char *name)
{
    static const char *const own[] = {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(name, own[i]))
            return true;
    return false;
}

static void set_more(struct ntx_api_request *a, json_t *vars, const json_t *names)
{
    const char *name;
    json_t *v;
    json_object_foreach(a->think.more, name, v)
        if (is_own(name) || !set_variable(vars, names, name, json_incref(v)))
            ntx_ignored_add(&a->ignored, "chat_template_kwargs", name);
}

int ntx_api_request_think(struct ntx_api_request *a, const json_t *names)
{
    struct ntx_api_request_think *t = &a->think;
    json_t *vars = a->variables ? json_loads(a->variables, 0, NULL) : json_object();
    bool off = t->state == NTX_THINK_OFF, on = t->state == NTX_THINK_ON || (t->effort[0] && !off);
    names = a->messages ? names : NULL; /* a plain text has no template */
    set_more(a, vars, names);
    bool first = (off || on) && set_variable(vars, names, "enable_thinking", json_boolean(on)),
         second = (off || on) && set_variable(vars, names, "thinking", json_boolean(on));
    bool degrees = t->effort[0] && !off && set_variable(vars, names, "reasoning_effort", json_string(t->effort));
    if (t->state && !first && !second && !degrees)
        ntx_ignored_add(&a->ignored, "", t->state_by);
    if (t->effort[0] && !off && !degrees)
        ntx_ignored_add(&a->ignored, "", t->effort_by);
    if (t->budget && !off && !set_variable(vars, names, "thinking_budget", json_integer(t->budget)))
        ntx_ignored_add(&a->ignored, "", t->budget_by);
    free(a->variables);
    a->variables = json_object_size(vars) ? json_dumps(vars, JSON_COMPACT) : NULL;
    int rc = vars && (a->variables || !json_object_size(vars)) ? 0 : -1;
    json_decref(vars);
    return rc;
}
