/* SPDX-License-Identifier: Apache-2.0 */
/* schema.c: turns a JSON Schema into the tree of JSON texts that are valid under it, or of some of them; never of
 * others.
 *
 * docs/usage/grammars.md lists the keywords. schema_rewrite.c says some in terms of others, and constants are those for
 * which the validator (valid.h) says that all of the schema holds.
 *
 * If properties are declared without additionalProperties, there are no others. Members come in the declared order.
 * Annotations and unknown keywords are ignored. Known keywords that cannot be enforced are refused by name and place,
 * or left out and noted (schema_drop.c). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "computed/grammar/schema.h"
#include "computed/grammar/valid.h"

enum { STEPS_MOST = 1 << 22 }; /* also of validations of constants */

static struct schemas *of(struct tree *t) { return t->schema; }

bool ntx__schema_step(struct tree *t, uint64_t n)
{
    uint64_t *steps = &of(t)->steps;
    *steps = n > STEPS_MOST - *steps ? STEPS_MOST : *steps + n;
    if (*steps == STEPS_MOST)
        ntx__tree_fail(t, -E2BIG,
                       "the schema takes too much work: too many schemas, members or values are joined or compared "
                       "(allOf, anyOf, oneOf, $ref, enum)");
    return !t->failed;
}

uint64_t ntx__schema_weigh(struct tree *t, const json_t *v)
{
    uint64_t out = 1 + json_string_length(v) / 16;
    const char *key;
    json_t *one;
    size_t i;
    if (!ntx__schema_step(t, out))
        return out;
    json_array_foreach((json_t *)(uintptr_t)v, i, one) {
        if (t->failed)
            break;
        out += ntx__schema_weigh(t, one);
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, one) {
        if (!ntx__schema_step(t, strlen(key) / 16))
            break;
        out += strlen(key) / 16 + ntx__schema_weigh(t, one);
    }
    return out;
}

bool ntx__schema_holds(const json_t *list, const json_t *v)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
        if (json_equal(one, v))
            return true;
    return false;
}

/* A step takes at most about 12 bytes, so the limit of steps also bounds memory. */
json_t *ntx__schema_copy(struct tree *t, const json_t *v)
{
    uint64_t steps = 32 + 8 * json_object_size(v) + json_array_size(v);
    const char *key;
    json_t *one;
    json_object_foreach((json_t *)(uintptr_t)v, key, one)
        steps += strlen(key) / 8;
    json_t *out = ntx__schema_step(t, steps) ? json_copy((json_t *)(uintptr_t)v) : NULL;
    if (!out)
        ntx__tree_fail(t, -ENOMEM, "no memory for the schema");
    return out;
}

json_t *ntx__schema_keep(struct tree *t, json_t *made)
{
    if (!made || json_array_append_new(of(t)->kept, made)) {
        ntx__tree_fail(t, -ENOMEM, "no memory for the schema");
        return NULL;
    }
    return made;
}

bool ntx__schema_annotation(const char *key)
{
    static const char *const all[] = {
        "title",    "description", "default",    "examples",        "example",          "$schema",       "$id",
        "$comment", "$anchor",     "deprecated", "readOnly",        "writeOnly",        "$defs",         "definitions",
        "strict",   "name",        "nullable",   "contentEncoding", "contentMediaType", "discriminator", "id"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(key, all[i]))
            return true;
    return key[0] == 'x' && key[1] == '-';
}

bool ntx__schema_says(const json_t *schema, const char *except)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)schema, key, v)
        if (!ntx__schema_annotation(key) && !(except && !strcmp(key, except)))
            return true;
    return false;
}

uint32_t ntx__schema_count(struct tree *t, const json_t *schema, const char *key, uint32_t otherwise)
{
    const json_t *v = json_object_get(schema, key);
    double d = json_number_value(v);
    if (!v)
        return otherwise;
    if (!json_is_number(v) || d < 0 || d != floor(d))
        ntx__tree_fail(t, -EINVAL, "the schema's '%s' must be a whole number of at least 0", key);
    if (d >= 0 && d < 1e9)
        return (uint32_t)d;
    return otherwise == NO_LIMIT ? NO_LIMIT : 1u << 30;
}

/* ---- rules shared by all schemas */

static node make_common(struct tree *t, enum common which)
{
    switch (which) {
    case C_SPACE: return ntx__regex_plain(t, "( |\n {0,16})?");
    case C_CHAR:
        return ntx__regex_plain(t, "[^\"\\\\\\x00-\\x1f]|\\\\([\"\\\\/"
                                   "bfnrt]|u(0(0(0[1-9a-fA-F]|[1-9a-fA-F][0-9a-fA-F])|[1-9a-fA-F][0-9a-fA-F]{2})"
                                   "|[1-9a-cA-CeEfF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}))");
    case C_STRING:
        return SEQ(t, ntx__tree_text(t, "\""), ntx__tree_repeat(t, ntx__schema_common(t, C_CHAR), 0, NO_LIMIT),
                   ntx__tree_text(t, "\""));
    case C_NUMBER: return ntx__regex_plain(t, "-?(0|[1-9][0-9]{0,15})(\\.[0-9]{1,15})?([eE][-+]?[0-9]{1,2})?");
    case C_INTEGER: return ntx__regex_plain(t, "0|-?[1-9][0-9]{0,15}");
    case C_ANY:
        return ALT(t, ntx__schema_common(t, C_OBJECT), ntx__schema_common(t, C_ARRAY), ntx__schema_common(t, C_STRING),
                   ntx__schema_common(t, C_NUMBER), ntx__regex_plain(t, "true|false|null"));
    case C_OBJECT: return ntx__schema_object(t, NULL);
    case C_ARRAY: return ntx__schema_array(t, NULL);
    }
    return 0;
}

node ntx__schema_common(struct tree *t, enum common which)
{
    uint32_t *rule = &of(t)->common[which];
    if (!*rule) {
        uint32_t r = ntx__tree_rule_new(t, NULL, 0);
        *rule = r + 1;
        ntx__tree_define(t, r, make_common(t, which));
    }
    return ntx__tree_rule(t, *rule - 1);
}

node ntx__schema_literal(struct tree *t, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    node out = text ? ntx__tree_text(t, text) : ntx__tree_fail(t, -ENOMEM, "no memory for the schema");
    free(text);
    return out;
}

/* ---- references */

/* Decodes ~1 and ~0 of a JSON pointer, and %XX of a URI, into out, which is as long as part. */
static void unescape(const char *part, size_t n, char *out)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned x;
        if (part[i] == '~' && i + 1 < n && (part[i + 1] == '0' || part[i + 1] == '1'))
            out[k++] = part[++i] == '0' ? '~' : '/';
        else if (part[i] == '%' && i + 2 < n && sscanf(part + i + 1, "%2x", &x) == 1 && x)
            out[k++] = (char)x, i += 2;
        else
            out[k++] = part[i];
    }
    out[k] = 0;
}

static const json_t *member(const json_t *at, const char *part, size_t n)
{
    char *name = malloc(n + 1), *end;
    if (!name)
        return NULL;
    unescape(part, n, name);
    const json_t *out = json_object_get(at, name);
    unsigned long i = strtoul(name, &end, 10);
    if (json_is_array(at) && *name && !*end)
        out = json_array_get(at, i);
    free(name);
    return out;
}

const json_t *ntx__schema_target(struct tree *t, const char *ref)
{
    const json_t *at = of(t)->doc;
    if (*ref != '#' || (ref[1] && ref[1] != '/')) {
        const bool named = ntx__schema_step(t, 16 + ntx__schema_weigh(t, at) / 4);
        const char *key = *ref == '#' ? "$anchor" : "$id";
        const json_t *out = named ? ntx_valid_named(at, key, ref + (*ref == '#'), NEST) : NULL;
        if (!out)
            ntx__tree_fail(t, -EINVAL,
                           "$ref '%.80s' is not supported: references within the schema (#/$defs/NAME) are, and ntx "
                           "fetches none from elsewhere",
                           ref);
        return out;
    }
    for (const char *p = ref + 1; *p && at && ntx__schema_step(t, 4 + strcspn(p + 1, "/") / 8);) {
        size_t n = strcspn(++p, "/");
        at = member(at, p, n);
        p += n;
    }
    if (!at || t->failed)
        ntx__tree_fail(t, -EINVAL, "$ref '%.80s' leads to nothing in the schema", ref);
    return t->failed ? NULL : at;
}

/* The rule of a schema, made on first use. */
static node ruled(struct tree *t, const json_t *schema, node (*make)(struct tree *t, const json_t *schema))
{
    struct schemas *s = of(t);
    if (!ntx__schema_step(t, s->n / 16))
        return 0;
    for (unsigned i = 0; i < s->n; i++)
        if (s->seen[i].at == schema)
            return ntx__tree_rule(t, s->seen[i].rule);
    if (s->n == s->room) {
        unsigned room = 2 * s->room + 16;
        struct seen *p = realloc(s->seen, room * sizeof *p);
        if (!p)
            return ntx__tree_fail(t, -ENOMEM, "no memory for the schema");
        s->seen = p;
        s->room = room;
    }
    uint32_t rule = ntx__tree_rule_new(t, NULL, 0);
    s->seen[s->n++] = (struct seen){schema, rule};
    node body = make(t, schema);
    ntx__tree_define(t, rule, body);
    return ntx__tree_rule(t, rule);
}

static node reference_with(struct tree *t, const json_t *schema)
{
    const json_t *target = ntx__schema_target(t, json_string_value(json_object_get(schema, "$ref")));
    const json_t *rest = target ? ntx__schema_without(t, schema, "$ref") : NULL,
                 *both = rest ? ntx__schema_both(t, rest, target) : NULL;
    return both ? ntx__schema_value(t, both) : 0;
}

static node reference(struct tree *t, const json_t *schema)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    if (!ref)
        return ntx__tree_fail(t, -EINVAL, "the schema's '$ref' must be a string");
    if (ntx__schema_says(schema, "$ref"))
        return ruled(t, schema, reference_with);
    const json_t *target = ntx__schema_target(t, ref);
    return target ? ruled(t, target, ntx__schema_value) : 0;
}

/* ---- unions */

static node all_of(struct tree *t, const json_t *schema)
{
    const json_t *list = json_object_get(schema, "allOf"), *both = ntx__schema_without(t, schema, "allOf");
    size_t i;
    json_t *one;
    if (!json_is_array(list) || !json_array_size(list))
        return ntx__tree_fail(t, -EINVAL, "the schema's 'allOf' must be a list with something in it");
    if (both && json_array_size(list) > 1) /* what is left over of one schema would be that of the others */
        json_object_set_new((json_t *)(uintptr_t)both, "ntx: beside", json_true());
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
        if (!both || !(both = ntx__schema_both(t, both, one)))
            return 0;
    return ntx__schema_value(t, both);
}

static void check_apart(struct tree *t, const json_t *list)
{
    size_t n = json_array_size(list);
    if (n > 64)
        ntx__tree_fail(t, -EINVAL, "oneOf with more than 64 alternatives is not supported: use anyOf");
    for (size_t i = 0; i < n && !t->failed; i++)
        for (size_t k = i + 1; k < n && !t->failed; k++)
            if (!ntx__schema_apart(t, json_array_get(list, i), json_array_get(list, k)) && !t->failed)
                ntx__tree_fail(t, -EINVAL,
                               "oneOf is supported where its alternatives exclude each other (by type, or by a "
                               "required member with different constants): use anyOf");
}

static node any_of(struct tree *t, const json_t *schema, const char *key)
{
    const json_t *list = json_object_get(schema, key);
    bool more = ntx__schema_says(schema, key);
    const json_t *rest = more ? ntx__schema_without(t, schema, key) : NULL;
    node out = ntx__tree_list(t, N_ALT);
    size_t i;
    json_t *one;
    if (!json_is_array(list) || !json_array_size(list))
        return ntx__tree_fail(t, -EINVAL, "the schema's '%s' must be a list with something in it", key);
    if (*key == 'o')
        check_apart(t, list);
    if (*key == 'o' && t->failed)
        ntx__schema_forgive(t, schema, key);
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        const json_t *both = more && rest ? ntx__schema_both(t, rest, one) : one;
        if (t->failed || !both)
            return 0;
        ntx__tree_add(t, out, ntx__schema_value(t, both));
    }
    return out;
}

/* ---- types */

static const char *const types[] = {"object", "array", "string", "number", "integer", "boolean", "null"};
enum { N_TYPES = 7 };

static unsigned type_bit(struct tree *t, const json_t *name)
{
    for (unsigned i = 0; i < N_TYPES && json_is_string(name); i++)
        if (!strcasecmp(json_string_value(name), types[i]))
            return 1u << i;
    ntx__tree_fail(
        t, -EINVAL,
        "the schema's type '%.40s' is none: there are object, array, string, number, integer, boolean and null",
        json_is_string(name) ? json_string_value(name) : "?");
    return 0;
}

/* Types that the keywords imply if `type` is missing. 0: none implies any. */
static unsigned meant(const json_t *schema)
{
    static const struct {
        const char *key;
        unsigned type;
    } keys[] = {{"properties", 0},
                {"required", 0},
                {"additionalProperties", 0},
                {"minProperties", 0},
                {"maxProperties", 0},
                {"items", 1},
                {"prefixItems", 1},
                {"minItems", 1},
                {"maxItems", 1},
                {"uniqueItems", 1},
                {"unevaluatedItems", 1},
                {"patternProperties", 0},
                {"propertyNames", 0},
                {"unevaluatedProperties", 0},
                {"minLength", 2},
                {"maxLength", 2},
                {"pattern", 2},
                {"format", 2},
                {"minimum", 3},
                {"maximum", 3},
                {"exclusiveMinimum", 3},
                {"exclusiveMaximum", 3},
                {"multipleOf", 3}};
    unsigned out = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(schema, keys[i].key))
            out |= 1u << keys[i].type;
    return out;
}

static unsigned types_of(struct tree *t, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned out = 0;
    size_t i;
    json_t *one;
    if (!type)
        return meant(schema);
    if (!json_is_array(type))
        return type_bit(t, type);
    json_array_foreach((json_t *)(uintptr_t)type, i, one)
        out |= type_bit(t, one);
    if (!out)
        ntx__tree_fail(t, -EINVAL, "the schema's list of types is empty");
    return out & 1u << 3 ? out & ~(1u << 4) : out; /* every integer is a number */
}

static node of_type(struct tree *t, const json_t *schema, unsigned type)
{
    switch (type) {
    case 0: return ntx__schema_object(t, schema);
    case 1: return ntx__schema_array(t, schema);
    case 2: return ntx__schema_string(t, schema);
    case 3: return ntx__schema_number(t, schema, false);
    case 4: return ntx__schema_number(t, schema, true);
    case 5: return ntx__regex_plain(t, "true|false");
    default: return ntx__tree_text(t, "null");
    }
}

static node by_type(struct tree *t, const json_t *schema)
{
    unsigned all = types_of(t, schema);
    if (!all)
        return t->failed ? 0 : ntx__schema_common(t, C_ANY);
    node out = ntx__tree_list(t, N_ALT);
    for (unsigned i = 0; i < N_TYPES; i++)
        if (all >> i & 1)
            ntx__tree_add(t, out, of_type(t, schema, i));
    return out;
}

/* ---- constants */

/* Those values of enum and const for which the whole schema holds. */
static node constants(struct tree *t, const json_t *schema)
{
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    json_t *all = list ? json_incref((json_t *)(uintptr_t)list) : json_pack("[O]", one), *v;
    node out = ntx__tree_list(t, N_ALT);
    size_t i;
    if (!json_is_array(all) || !json_array_size(all))
        ntx__tree_fail(t, -EINVAL, "the schema's 'enum' must be a list with something in it");
    const bool more = ntx__schema_says(schema, list ? "enum" : "const");
    ntx__schema_weigh(t, all);
    json_array_foreach(all, i, v) {
        unsigned took = 0;
        if (t->failed)
            break;
        const bool holds = !more || ntx_valid_within(of(t)->doc, schema, v, STEPS_MOST - (unsigned)of(t)->steps,
                                                     &took) == NTX_VALID_YES;
        if (ntx__schema_step(t, took) && holds)
            ntx__tree_add(t, out, ntx__schema_literal(t, v));
    }
    json_decref(all);
    return out;
}

/* ---- */

static node dispatch(struct tree *t, const json_t *schema)
{
    if (json_is_true(schema))
        return ntx__schema_common(t, C_ANY);
    if (json_is_false(schema))
        return ntx__tree_list(t, N_NEVER);
    if (!json_is_object(schema))
        return ntx__tree_fail(t, -EINVAL, "a schema must be an object, true or false");
    if (json_object_get(schema, "type") && !types_of(t, schema))
        return 0;
    if (json_object_get(schema, "enum") || json_object_get(schema, "const"))
        return constants(t, schema);
    if (!(schema = ntx__schema_rewrite(t, schema, NULL)))
        return 0;
    if (json_object_get(schema, "$ref"))
        return reference(t, schema);
    if (json_object_get(schema, "anyOf"))
        return any_of(t, schema, "anyOf");
    if (json_object_get(schema, "oneOf"))
        return any_of(t, schema, "oneOf");
    return json_object_get(schema, "allOf") ? all_of(t, schema) : by_type(t, schema);
}

node ntx__schema_value(struct tree *t, const json_t *schema)
{
    if (t->failed || !ntx__schema_step(t, 4 + json_object_size(schema)))
        return 0;
    if (++of(t)->depth > NEST)
        return ntx__tree_fail(t, -E2BIG, "the schema has more than %u schemas within each other, or goes in a circle",
                              NEST);
    of(t)->frame[of(t)->depth] = schema;
    node out = dispatch(t, schema);
    ntx__schema_tell_place(t);
    of(t)->depth--;
    return out;
}

static bool begin_schema(struct tree *t)
{
    if (!t->schema && !(t->schema = calloc(1, sizeof(struct schemas))))
        return false;
    if (!of(t)->kept)
        of(t)->kept = json_array();
    if (!of(t)->dropped && t->closest)
        of(t)->dropped = json_array();
    of(t)->closest = t->closest;
    return of(t)->kept;
}

node ntx__schema_read(struct tree *t, const char *json, size_t len, size_t *took)
{
    json_error_t e;
    if (t->failed)
        return 0;
    if (!begin_schema(t))
        return ntx__tree_fail(t, -ENOMEM, "no memory for the schema");
    json_t *doc = json_loadb(json, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | (took ? JSON_DISABLE_EOF_CHECK : 0),
                             &e);
    if (!doc)
        return ntx__tree_fail(t, -EINVAL, "the schema is no JSON: %.120s (line %d)", e.text, e.line);
    if (took)
        *took = (size_t)e.position;
    of(t)->doc = ntx__schema_keep(t, doc);
    of(t)->depth = 0;
    return ntx__schema_value(t, doc);
}

void ntx__schema_free(struct tree *t)
{
    if (!t->schema)
        return;
    json_decref(of(t)->kept);
    json_decref(of(t)->dropped);
    free(of(t)->seen);
    free(of(t));
    t->schema = NULL;
}
