/* SPDX-License-Identifier: Apache-2.0 */
/* schema_names.c: members whose names a schema does not list: patternProperties, propertyNames, and required members
 * that are not declared. The names of each kind of member are an expression of what they match and do not match. */
#include <errno.h>
#include <string.h>

#include "computed/grammar/schema.h"
#include "computed/grammar/valid.h"

enum { PATTERNS_MOST = 4, LITERALS_MOST = 300 };

static json_t *mutable_json(const json_t *v) { return (json_t *)(uintptr_t)v; }

static bool name_holds(struct tree *t, const json_t *schema, const char *name)
{
    unsigned took = 0;
    json_t *text = json_string(name);
    const struct schemas *s = t->schema;
    const bool yes = ntx_valid_within(s->doc, schema, text, 1 << 18, &took) == NTX_VALID_YES;
    ntx__schema_step(t, took);
    json_decref(text);
    return yes && !t->failed;
}

static bool name_matches(struct tree *t, const char *pattern, const char *name)
{
    json_t *schema = json_pack("{s:s}", "pattern", pattern);
    const bool yes = name_holds(t, schema, name);
    json_decref(schema);
    return yes;
}

/* The schemas that patternProperties has for a member of this name; NULL: none. */
static json_t *by_patterns(struct tree *t, const json_t *patterns, const char *name)
{
    const char *pattern;
    json_t *schema, *all = NULL;
    json_object_foreach(mutable_json(patterns), pattern, schema)
        if (!t->failed && name_matches(t, pattern, name)) {
            all = all ? all : json_array();
            json_array_append(all, schema);
        }
    return all;
}

const json_t *ntx__schema_declare(struct tree *t, const json_t *schema)
{
    const json_t *properties = json_object_get(schema, "properties"), *names = json_object_get(schema, "propertyNames"),
                 *patterns = json_object_get(schema, "patternProperties"),
                 *more = json_object_get(schema, "additionalProperties");
    json_t *out = ntx__schema_keep(t, properties ? ntx__schema_copy(t, properties) : json_object()), *one;
    const char *key;
    size_t i;
    if (!out)
        return NULL;
    json_array_foreach(json_object_get(schema, "required"), i, one)
        if (json_is_string(one) && !json_object_get(properties, json_string_value(one)) && ntx__schema_step(t, 16)) {
            json_t *pattern = by_patterns(t, patterns, json_string_value(one));
            json_object_set(out, json_string_value(one), pattern || !more ? json_true() : mutable_json(more));
            json_decref(pattern);
        }
    json_t *all = json_object_size(patterns) || names ? json_copy(out) : json_object();
    json_object_foreach(all, key, one) {
        json_t *list = t->failed ? NULL : by_patterns(t, patterns, key);
        if (names && !t->failed && !name_holds(t, names, key))
            json_object_set_new(out, key, json_false());
        else if (list) {
            json_array_insert(list, 0, one);
            json_object_set_new(out, key, json_pack("{s:O}", "allOf", list));
        }
        json_decref(list);
    }
    json_decref(all);
    return t->failed ? NULL : out;
}

/* Adds what propertyNames asks for. false: it asks for something else, or allows no name. */
static bool add_names(struct tree *t, struct texts *x, const json_t *names, unsigned depth)
{
    static const char *const known[] = {"type",      "pattern", "format", "minLength",
                                        "maxLength", "enum",    "const",  "allOf"};
    const char *key, *ref = json_string_value(json_object_get(names, "$ref"));
    json_t *one;
    size_t i;
    if (depth > 8 || t->failed || json_is_false(names))
        return false;
    if (ref && !ntx__schema_says(names, "$ref"))
        return (names = ntx__schema_target(t, ref)) && add_names(t, x, names, depth + 1);
    json_object_foreach(mutable_json(names), key, one) {
        bool found = ntx__schema_annotation(key);
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            found |= !strcmp(key, known[k]);
        if (!found)
            ntx__tree_fail(t, -EINVAL,
                           "the schema's 'propertyNames' is supported with pattern, format, minLength, "
                           "maxLength, enum and const");
    }
    json_array_foreach(json_object_get(names, "allOf"), i, one)
        if (!add_names(t, x, one, depth + 1))
            return false;
    if (!t->failed)
        ntx__texts_schema(t, x, names);
    return !t->failed;
}

struct others {
    struct tree *t;
    const json_t *declared, *names;
    struct {
        struct texts is;
        const json_t *schema;
    } pattern[PATTERNS_MOST];
    unsigned n;
};

/* The names that match the patterns in `which` alone, and are not declared. 0: t has failed, or there are none. */
static node names_of(const struct others *o, unsigned which)
{
    struct tree *t = o->t;
    struct texts x = {.n = 0};
    const char *key;
    json_t *one;
    for (unsigned i = 0; i < o->n; i++) {
        const bool in = which >> i & 1;
        if (!in && o->pattern[i].is.n != 1)
            return ntx__tree_fail(t, -EINVAL,
                                  "patternProperties with a pattern that looks around beside other members "
                                  "is not supported");
        for (size_t k = 0; k < o->pattern[i].is.n; k++)
            ntx__texts_add(t, &x, o->pattern[i].is.part[k].n, o->pattern[i].is.part[k].not != !in);
    }
    if (json_object_size(o->declared)) {
        node list = ntx__tree_list(t, N_ALT);
        json_object_foreach(mutable_json(o->declared), key, one)
            ntx__tree_add(t, list, ntx__texts_literal(t, key, strlen(key)));
        ntx__texts_add(t, &x, list, true);
    }
    if (o->names && !json_is_true(o->names) && !add_names(t, &x, o->names, 0))
        return 0;
    return t->failed ? 0 : ntx__texts_node(t, &x);
}

static node value_of(const struct others *o, unsigned which, const json_t *more)
{
    json_t *all = json_array();
    for (unsigned i = 0; i < o->n; i++)
        if (which >> i & 1)
            json_array_append(all, mutable_json(o->pattern[i].schema));
    const json_t *schema = more;
    if (json_array_size(all) == 1)
        schema = json_array_get(all, 0);
    else if (json_array_size(all))
        schema = ntx__schema_keep(o->t, json_pack("{s:O}", "allOf", all));
    json_decref(all);
    return schema ? ntx__schema_value(o->t, schema) : ntx__schema_common(o->t, C_ANY);
}

node ntx__schema_others(struct tree *t, const json_t *schema, const json_t *declared, const json_t *more, bool open)
{
    const json_t *patterns = json_object_get(schema, "patternProperties");
    struct others o = {.t = t, .declared = declared, .names = json_object_get(schema, "propertyNames")};
    const char *pattern;
    json_t *one;
    node out = ntx__tree_list(t, N_ALT);
    bool any = false;
    if (json_object_size(patterns) > PATTERNS_MOST || json_object_size(declared) > LITERALS_MOST)
        return ntx__tree_fail(t, -EINVAL,
                              "more than %d patternProperties, or these or propertyNames beside more than %d "
                              "members, are not supported",
                              PATTERNS_MOST, LITERALS_MOST);
    json_object_foreach(mutable_json(patterns), pattern, one) {
        json_t *text = ntx__schema_keep(t, json_string(pattern));
        if (!text)
            return 0;
        o.pattern[o.n].schema = one;
        ntx__texts_pattern(t, &o.pattern[o.n++].is, text);
    }
    for (unsigned which = open ? 0 : 1; which < 1u << o.n && !t->failed; which++) {
        const node name = names_of(&o, which);
        if (!name)
            continue;
        any = true;
        ntx__tree_add(t, out,
                      SEQ(t, ntx__tree_text(t, "\""), name, ntx__tree_text(t, "\":"), ntx__schema_common(t, C_SPACE),
                          value_of(&o, which, which ? NULL : more)));
    }
    return t->failed || !any ? 0 : out;
}
