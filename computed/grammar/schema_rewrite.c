/* SPDX-License-Identifier: Apache-2.0 */
/* schema_rewrite.c: keywords that are said in terms of others: conditions become alternatives, complements become
 * types, other values or absent members, and keywords of older drafts those of today. */
#include <errno.h>
#include <string.h>

#include "computed/grammar/schema.h"

enum { CONDITIONS_MOST = 8, VALUES_MOST = 500 };

struct rewriting {
    struct tree *t;
    const json_t *from, *around; /* around: what else holds, or NULL */
    json_t *out;                 /* the copy that is changed */
};

static json_t *own(const json_t *v) { return (json_t *)(uintptr_t)v; }

/* Adds a schema to allOf. Takes it. */
static void also(struct rewriting *w, json_t *schema)
{
    json_t *list = json_object_get(w->out, "allOf"), *longer = json_is_array(list) ? json_copy(list) : json_array();
    ntx__schema_step(w->t, 64 + json_array_size(list));
    json_array_append_new(longer, schema);
    json_object_set_new(w->out, "allOf", longer);
}

static json_t *absent(const char *key) { return json_pack("{s:{s:b}}", "properties", key, 0); }
static json_t *present(const char *key) { return json_pack("{s:[s]}", "required", key); }

static bool lists(const json_t *list, const char *key)
{
    size_t i;
    json_t *one;
    json_array_foreach(own(list), i, one)
        if (json_is_string(one) && !strcmp(json_string_value(one), key))
            return true;
    return false;
}

static bool is_required(const struct rewriting *w, const char *key)
{
    return lists(json_object_get(w->from, "required"), key) || lists(json_object_get(w->around, "required"), key);
}

/* Removes the keyword, since it cannot be said otherwise. */
static void leave_out(struct rewriting *w, const char *key)
{
    if (ntx__schema_drop(w->t, w->from, key, " here"))
        json_object_del(w->out, key);
}

/* ---- dependencies */

static void depend(struct rewriting *w, const char *keyword)
{
    const json_t *all = json_object_get(w->from, keyword);
    const char *key;
    json_t *one;
    if (json_object_size(all) > CONDITIONS_MOST || (all && !json_is_object(all))) {
        leave_out(w, keyword);
        return;
    }
    const json_t *left = json_object_get(w->out, "unevaluatedProperties");
    if (left && !json_is_true(left)) /* a condition on a member does not look at it, but `present` would */
        leave_out(w, "unevaluatedProperties");
    json_object_foreach(own(all), key, one) {
        json_t *then = json_is_array(one) ? json_pack("{s:O}", "required", one) : json_incref(one);
        if (is_required(w, key))
            also(w, then);
        else
            also(w, json_pack("{s:[o, {s:[o, o]}]}", "anyOf", absent(key), "allOf", present(key), then));
    }
    json_object_del(w->out, keyword);
}

/* ---- conditions */

static json_t *values_of(const json_t *s)
{
    const json_t *list = json_object_get(s, "enum"), *one = json_object_get(s, "const");
    if (one)
        return json_pack("[O]", one);
    return json_is_array(list) ? json_incref(own(list)) : NULL;
}

static const json_t *declared(const struct rewriting *w, const char *key)
{
    const json_t *out = json_object_get(json_object_get(w->from, "properties"), key);
    out = out ? out : json_object_get(json_object_get(w->around, "properties"), key);
    for (int i = 0; i < 4 && json_is_string(json_object_get(out, "$ref")) && !w->t->failed; i++)
        out = ntx__schema_target(w->t, json_string_value(json_object_get(out, "$ref")));
    return out;
}

/* A schema of the member's other values, or NULL. */
static json_t *other_values(struct rewriting *w, const char *key, const json_t * not )
{
    const json_t *is = declared(w, key);
    const char *type = json_string_value(json_object_get(is, "type"));
    json_t *all = values_of(is), *left = json_array(), *one;
    size_t i;
    if (!all && type && !strcmp(type, "boolean"))
        all = json_pack("[b, b]", 1, 0);
    if (!all) {
        json_decref(left);
        const bool text = type && !strcmp(type, "string");
        return text ? json_pack("{s:s, s:{s:O}}", "type", "string", "not", "enum", not ) : NULL;
    }
    ntx__schema_step(w->t, ntx__schema_weigh(w->t, not ) * (1 + json_array_size(all)));
    json_array_foreach(all, i, one)
        if (!w->t->failed && !ntx__schema_holds(not, one))
            json_array_append(left, one);
    json_decref(all);
    if (!json_array_size(left)) {
        json_decref(left);
        return json_false();
    }
    return json_pack("{s:o}", "enum", left);
}

static json_t *branch(const struct rewriting *w, json_t *when, const char *key)
{
    const json_t *then = json_object_get(w->from, key);
    return then ? json_pack("{s:[o, O]}", "allOf", when, then) : when;
}

/* The one member that the condition asks for, and its values (NULL: any). */
static const char *discriminator(const json_t *condition, json_t **values, bool *required)
{
    const json_t *properties = json_object_get(condition, "properties"), *list = json_object_get(condition, "required");
    const char *key, *out = NULL;
    json_t *one;
    *values = NULL;
    json_object_foreach(own(condition), key, one)
        if (strcmp(key, "properties") && strcmp(key, "required") && strcmp(key, "type") && !ntx__schema_annotation(key))
            return NULL;
    if (json_object_size(properties) > 1 || json_array_size(list) > 1)
        return NULL;
    json_object_foreach(own(properties), key, one) {
        *values = values_of(one);
        if (!*values || ntx__schema_says(one, json_object_get(one, "const") ? "const" : "enum"))
            return NULL;
        out = key;
    }
    *required = json_array_size(list) == 1;
    const char *name = json_string_value(json_array_get(list, 0));
    if (*required && (!name || (out && strcmp(name, out))))
        return NULL;
    return out ? out : name;
}

static void drop_condition(struct rewriting *w)
{
    leave_out(w, "if");
    json_object_del(w->out, "then");
    json_object_del(w->out, "else");
}

static void condition(struct rewriting *w)
{
    const json_t *condition = json_object_get(w->from, "if");
    json_t *values = NULL, *others = NULL, *any;
    bool required = false;
    if (!json_object_get(w->from, "then") && !json_object_get(w->from, "else")) {
        json_object_del(w->out, "if");
        return;
    }
    const char *key = discriminator(condition, &values, &required);
    if (key && values && json_array_size(values) <= VALUES_MOST)
        others = other_values(w, key, values);
    if (!key || (values && !others) || w->t->failed) {
        json_decref(values);
        json_decref(others);
        drop_condition(w);
        return;
    }
    any = json_array();
    json_t *is = present(key);
    if (values) {
        json_object_set_new(is, "properties", json_pack("{s:{s:O}}", key, "enum", values));
        json_t *is_other = present(key);
        json_object_set_new(is_other, "properties", json_pack("{s:O}", key, others));
        json_array_append_new(any, branch(w, is_other, "else"));
    }
    json_array_insert_new(any, 0, branch(w, is, "then"));
    if (!is_required(w, key))
        json_array_append_new(any, branch(w, absent(key), required ? "else" : "then"));
    json_object_del(w->out, "if");
    json_object_del(w->out, "then");
    json_object_del(w->out, "else");
    also(w, json_pack("{s:o}", "anyOf", any));
    json_decref(values);
    json_decref(others);
}

/* ---- complements */

static const char *const types[] = {"object", "array", "string", "number", "integer", "boolean", "null"};

static bool names_type(const json_t *type, const char *name)
{
    if (!type)
        return false;
    return json_is_string(type) ? !strcmp(json_string_value(type), name) : lists(type, name);
}

static bool exclude_types(struct rewriting *w, const json_t *excluded)
{
    const json_t *have = json_object_get(w->out, "type");
    json_t *left = json_array();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const bool integer = !strcmp(types[i], "integer"), may = !have || names_type(have, types[i]);
        if (!strcmp(types[i], "number") && may && names_type(excluded, "integer") && !names_type(excluded, "number")) {
            json_decref(left);
            return false; /* numbers that are no integers */
        }
        if (may && !names_type(excluded, types[i]) && !(integer && (names_type(excluded, "number") || !have)))
            json_array_append_new(left, json_string(types[i]));
    }
    if (json_array_size(left))
        json_object_set(w->out, "type", left);
    else
        also(w, json_false());
    json_decref(left);
    return true;
}

static bool exclude_values(struct rewriting *w, const json_t *values)
{
    const json_t *type = json_object_get(w->out, "type"), *before = json_object_get(w->out, NTX__NOT_TEXTS);
    json_t *texts = before ? json_copy(own(before)) : json_array(), *nothing = json_string("null"), *one;
    const bool only_texts = json_is_string(type) && names_type(type, "string");
    bool null = false, good = !json_is_string(type) || only_texts;
    size_t i;
    json_array_foreach(own(values), i, one) {
        if (json_is_string(one))
            json_array_append(texts, one);
        null |= json_is_null(one);
        good &= only_texts || json_is_string(one) || json_is_null(one);
    }
    good &= json_array_size(texts) < DFA_PARTS - 10;
    if (good && !only_texts) /* any of its types, which are said now, since a list of texts implies none */
        good = exclude_types(w, null ? nothing : NULL);
    if (good && json_array_size(texts))
        json_object_set(w->out, NTX__NOT_TEXTS, texts);
    json_decref(texts);
    json_decref(nothing);
    return good;
}

static bool exclude_members(struct rewriting *w, const json_t *names)
{
    size_t i;
    json_t *one, *any = json_array();
    const char *type = json_string_value(json_object_get(w->out, "type"));
    if (!json_object_get(w->out, "properties") && !(type && !strcmp(type, "object")))
        return json_decref(any), false;
    json_array_foreach(own(names), i, one)
        if (json_is_string(one))
            json_array_append_new(any, absent(json_string_value(one)));
    also(w, json_pack("{s:o}", "anyOf", any));
    return true;
}

static bool exclude(struct rewriting *w, const json_t *what, unsigned depth)
{
    const json_t *type = json_object_get(what, "type"), *names = json_object_get(what, "required"),
                 *any = json_object_get(what, "anyOf");
    json_t *values = values_of(what), *one;
    size_t i;
    bool good = false;
    if (json_is_boolean(what) || (json_is_object(what) && !ntx__schema_says(what, NULL))) {
        if (!json_is_false(what))
            also(w, json_false());
        good = true;
    } else if (values && !ntx__schema_says(what, json_object_get(what, "const") ? "const" : "enum")) {
        good = json_array_size(values) <= VALUES_MOST && exclude_values(w, values);
    } else if (type && !ntx__schema_says(what, "type")) {
        good = exclude_types(w, type);
    } else if (json_array_size(names) && !ntx__schema_says(what, "required")) {
        good = json_array_size(names) <= CONDITIONS_MOST && exclude_members(w, names);
    } else if (json_array_size(any) && !ntx__schema_says(what, "anyOf") && depth < 4) {
        good = true;
        json_array_foreach(own(any), i, one)
            good = good && exclude(w, one, depth + 1);
    }
    json_decref(values);
    return good;
}

static void complement(struct rewriting *w)
{
    json_t *before = json_copy(w->out);
    if (!exclude(w, json_object_get(w->from, "not"), 0) && !w->t->failed) {
        json_object_clear(w->out);
        json_object_update(w->out, before);
        leave_out(w, "not");
    }
    json_decref(before);
    json_object_del(w->out, "not");
}

/* ---- */

static void rewrite_items(struct rewriting *w)
{
    json_t *items = json_object_get(w->from, "items"), *more = json_object_get(w->from, "additionalItems");
    if (json_is_array(items) && !json_object_get(w->from, "prefixItems")) {
        json_object_set(w->out, "prefixItems", items);
        if (more)
            json_object_set(w->out, "items", more);
        else
            json_object_del(w->out, "items");
    }
    json_object_del(w->out, "additionalItems");
}

static void rewrite_contains(struct rewriting *w)
{
    const json_t *min = json_object_get(w->from, "minContains");
    if (json_object_get(w->from, "contains") &&
        !(json_is_number(min) && json_number_value(min) == 0 && !json_object_get(w->from, "maxContains")))
        leave_out(w, "contains");
    json_object_del(w->out, "contains");
    json_object_del(w->out, "minContains");
    json_object_del(w->out, "maxContains");
}

const json_t *ntx__schema_rewrite(struct tree *t, const json_t *schema, const json_t *around)
{
    static const char *const concerned[] = {"not",
                                            "if",
                                            "then",
                                            "else",
                                            "dependencies",
                                            "contains",
                                            "minContains",
                                            "maxContains",
                                            "$dynamicRef",
                                            "$recursiveRef",
                                            "additionalItems",
                                            "dependentRequired",
                                            "dependentSchemas"};
    bool any = json_is_array(json_object_get(schema, "items"));
    for (size_t i = 0; i < sizeof concerned / sizeof *concerned && !any; i++)
        any = json_object_get(schema, concerned[i]);
    if (!any || t->failed)
        return t->failed ? NULL : schema;
    struct rewriting w = {t, schema, around, ntx__schema_keep(t, ntx__schema_copy(t, schema))};
    if (!w.out)
        return NULL;
    static const char *const references[] = {"$dynamicRef", "$recursiveRef"};
    for (int i = 0; i < 2; i++)
        if (json_object_get(schema, references[i]))
            leave_out(&w, references[i]);
    rewrite_items(&w);
    rewrite_contains(&w);
    static const char *const dependencies[] = {"dependencies", "dependentRequired", "dependentSchemas"};
    for (int i = 0; i < 3; i++)
        if (json_object_get(schema, dependencies[i]))
            depend(&w, dependencies[i]);
    if (json_object_get(schema, "not"))
        complement(&w);
    if (json_object_get(schema, "if"))
        condition(&w);
    json_object_del(w.out, "then");
    json_object_del(w.out, "else");
    return t->failed ? NULL : w.out;
}
