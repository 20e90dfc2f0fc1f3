/* SPDX-License-Identifier: Apache-2.0 */
/* Reasoning settings. Every API has its own fields for them; they become one text for ntx-computed (Generate.think),
 * which knows the variables of each template (model/think.h). What the model has no use for is reported as not
 * followed, by the name of the field. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/request_fields.h"

static const char *const levels[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

static void set_state(struct ntx_api_request *a, bool on, const char *name)
{
    a->think.state = on ? NTX_THINKS_ON : NTX_THINKS_OFF;
    a->think.state_by = name;
}

int ntx__request_effort(struct ntx_api_request *a, const json_t *v, const char *name, struct ntx_fault *f)
{
    const char *word = json_string_value(v);
    if (!v || json_is_null(v))
        return 0;
    for (size_t i = 0; word && i < sizeof levels / sizeof *levels; i++) {
        if (strcmp(word, levels[i]))
            continue;
        if (i) {
            strcpy(a->think.effort, word);
            a->think.effort_by = name;
        } else {
            set_state(a, false, name);
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
    set_state(a, json_is_true(v), name);
    return 0;
}

int ntx__request_budget(struct ntx_api_request *a, const json_t *v, const char *name, struct ntx_fault *f)
{
    json_int_t n = json_integer_value(v);
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_integer(v) || n < -1 || n > INT32_MAX)
        return ntx_fault(f, NTX_FAULT_INVALID, name, "'%s' must be a number of tokens (0: no reasoning, -1: no limit)",
                         name);
    if (!n)
        set_state(a, false, name);
    a->think.budget = n > 0 ? n : 0;
    a->think.budget_by = name;
    return 0;
}

int ntx__request_reasoning(struct ntx_api_request *a, const json_t *v, struct ntx_fault *f)
{
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_object(v))
        return ntx_fault(f, NTX_FAULT_INVALID, "reasoning", "'reasoning' must be an object");
    return ntx_fields_read(NTX_FIELDS_REASONING, v, NULL, &a->ignored, f) ||
                   ntx__request_switch(a, json_object_get(v, "enabled"), "reasoning.enabled", f) ||
                   ntx__request_effort(a, json_object_get(v, "effort"), "reasoning.effort", f) ||
                   ntx__request_budget(a, json_object_get(v, "max_tokens"), "reasoning.max_tokens", f)
               ? -1
               : 0;
}

/* adaptive: the model decides; a level may come beside it (output_config). */
int ntx__request_thinking(struct ntx_api_request *a, const json_t *v, struct ntx_fault *f)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *budget = json_object_get(v, "budget_tokens");
    if (!v || json_is_null(v))
        return 0;
    if (!type || (strcmp(type, "enabled") && strcmp(type, "adaptive") && strcmp(type, "disabled")))
        return ntx_fault(f, NTX_FAULT_INVALID, "thinking",
                         "thinking: is an object of type enabled, adaptive or disabled");
    if (budget && !json_is_null(budget) && (!json_is_integer(budget) || json_integer_value(budget) < 1))
        return ntx_fault(f, NTX_FAULT_INVALID, "thinking", "thinking.budget_tokens: must be an integer of at least 1");
    if (*type == 'a')
        a->think.state = NTX_THINKS_AUTO;
    else
        set_state(a, *type == 'e', "thinking");
    return ntx__request_budget(a, budget, "thinking.budget_tokens", f) ||
                   ntx_fields_read(NTX_FIELDS_THINKING, v, NULL, &a->ignored, f)
               ? -1
               : 0;
}

bool ntx_api_request_thinks(const struct ntx_api_request *a)
{
    return a->think.state || a->think.effort[0] || a->think.budget || json_object_size(a->think.more);
}

/* ---- with the model's status */

static bool has_text(const json_t *list, const char *text)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
        if (json_is_string(one) && !strcmp(json_string_value(one), text))
            return true;
    return false;
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

/* A member of chat_template_kwargs by the name that some family has for a setting: it goes to every model. False: it
 * is none, or has another value. */
static bool take_setting(struct ntx_api_request *a, const char *name, const json_t *v)
{
    struct ntx_fault f;
    if (!strcmp(name, "enable_thinking") && json_is_boolean(v))
        return !ntx__request_switch(a, v, "chat_template_kwargs.enable_thinking", &f);
    if (!strcmp(name, "thinking") && json_is_boolean(v))
        return !ntx__request_switch(a, v, "chat_template_kwargs.thinking", &f);
    if (!strcmp(name, "reasoning_effort"))
        return !ntx__request_effort(a, v, "chat_template_kwargs.reasoning_effort", &f);
    if (!strcmp(name, "thinking_budget"))
        return !ntx__request_budget(a, v, "chat_template_kwargs.thinking_budget", &f);
    return false;
}

static void set_more(struct ntx_api_request *a, json_t *vars, const json_t *names)
{
    const char *name;
    json_t *v;
    json_object_foreach(a->think.more, name, v) {
        bool read = !is_own(name) && has_text(names, name), set = take_setting(a, name, v);
        if (read)
            json_object_set(vars, name, v);
        else if (!set || !a->messages)
            ntx_ignored_add(&a->ignored, "chat_template_kwargs", name);
    }
}

/* Reports the settings that the model has no use for, and those of a plain text, which has no template. */
static void report_unused(struct ntx_api_request *a, const json_t *can)
{
    const struct ntx_api_request_think *t = &a->think;
    bool thinks = a->messages && json_is_true(json_object_get(can, "thinks")), off = t->state == NTX_THINKS_OFF;
    if ((t->state == NTX_THINKS_ON || (off && !a->messages)) && !thinks)
        ntx_ignored_add(&a->ignored, "", t->state_by);
    if (t->effort[0] && !off && !(a->messages && json_array_size(json_object_get(can, "levels"))))
        ntx_ignored_add(&a->ignored, "", t->effort_by);
    if (t->budget && !off && !thinks)
        ntx_ignored_add(&a->ignored, "", t->budget_by);
}

static void write_setting(struct ntx_api_request_think *t)
{
    char budget[16] = "";
    const char *state = t->state == NTX_THINKS_AUTO ? "auto" : "on";
    *t->text = 0;
    if (t->state == NTX_THINKS_OFF)
        snprintf(t->text, sizeof t->text, "off");
    if (t->state == NTX_THINKS_OFF || !(t->state || t->effort[0] || t->budget))
        return;
    if (t->budget)
        snprintf(budget, sizeof budget, ",%d", (int)t->budget);
    snprintf(t->text, sizeof t->text, "%s%s%s%s", state, t->effort[0] ? "," : "", t->effort, budget);
}

int ntx_api_request_think(struct ntx_api_request *a, const json_t *status)
{
    const json_t *names = a->messages ? json_object_get(status, "template_names") : NULL;
    json_t *vars = a->variables ? json_loads(a->variables, 0, NULL) : json_object();
    set_more(a, vars, names);
    report_unused(a, json_object_get(status, "thinking"));
    if (a->messages)
        write_setting(&a->think);
    free(a->variables);
    a->variables = json_object_size(vars) ? json_dumps(vars, JSON_COMPACT) : NULL;
    int rc = vars && (a->variables || !json_object_size(vars)) ? 0 : -1;
    json_decref(vars);
    return rc;
}
