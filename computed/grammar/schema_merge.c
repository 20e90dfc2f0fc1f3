/* SPDX-License-Identifier: Apache-2.0 */
/* schema_merge.c: merges several schemas into one that is valid where all of them are (allOf, and keywords beside
 * $ref and anyOf), and decides whether two exclude each other. */
#include <errno.h>
#include <string.h>

#include "computed/grammar/schema.h"

/* How two values of a keyword are merged. */
enum how {
    HOW_MOST,
    HOW_LEAST,
    HOW_UNION,
    HOW_TYPE,
    HOW_ENUM,
    HOW_PROPERTIES,
    HOW_PATTERN,
    HOW_CONST,
    HOW_EITHER,
    HOW_MULTIPLE,
    HOW_ALL
};

static enum how how(const char *key)
{
    static const struct {
        const char *key;
        enum how how;
    } table[] = {{"minimum", HOW_MOST},
                 {"exclusiveMinimum", HOW_MOST},
                 {"minLength", HOW_MOST},
                 {"minItems", HOW_MOST},
                 {"minProperties", HOW_MOST},
                 {"maximum", HOW_LEAST},
                 {"exclusiveMaximum", HOW_LEAST},
                 {"maxLength", HOW_LEAST},
                 {"maxItems", HOW_LEAST},
                 {"maxProperties", HOW_LEAST},
                 {"required", HOW_UNION},
                 {"type", HOW_TYPE},
                 {"enum", HOW_ENUM},
                 {"properties", HOW_PROPERTIES},
                 {"patternProperties", HOW_PROPERTIES},
                 {"pattern", HOW_PATTERN},
                 {"const", HOW_CONST},
                 {"uniqueItems", HOW_EITHER},
                 {"multipleOf", HOW_MULTIPLE},
                 {NTX__NOT_TEXTS, HOW_UNION},
                 {"propertyNames", HOW_ALL},
                 {"items", HOW_ALL}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(key, table[i].key))
            return table[i].how;
    return HOW_ALL;
}

static json_t *own(const json_t *v) { return (json_t *)(uintptr_t)v; }

static json_t *as_list(const json_t *v) { return json_is_array(v) ? json_incref(own(v)) : json_pack("[O]", v); }

/* The intersection of two lists, or their union; NULL: t has failed. */
static json_t *both_in(struct tree *t, const json_t *a, const json_t *b, bool join)
{
    json_t *x = as_list(a), *y = as_list(b), *out = json_array(), *one;
    size_t i;
    if (!ntx__schema_step(t, json_array_size(x) * (2 + ntx__schema_weigh(t, y)) + json_array_size(y) + 32)) {
        json_decref(x);
        json_decref(y);
        json_decref(out);
        return NULL;
    }
    json_array_foreach(x, i, one)
        if (join || ntx__schema_holds(y, one))
            json_array_append(out, one);
    json_array_foreach(y, i, one)
        if (join && !ntx__schema_holds(x, one))
            json_array_append(out, one);
    json_decref(x);
    json_decref(y);
    return out;
}

static json_t *both_types(struct tree *t, const json_t *a, const json_t *b)
{
    json_t *out = both_in(t, a, b, false), *integer = json_string("integer"), *number = json_string("number");
    for (int i = 0; i < 2 && out; i++) { /* every integer is a number */
        json_t *x = as_list(i ? a : b), *y = as_list(i ? b : a);
        if (ntx__schema_holds(x, integer) && ntx__schema_holds(y, number) && !ntx__schema_holds(out, integer))
            json_array_append(out, integer);
        json_decref(x);
        json_decref(y);
    }
    json_decref(integer);
    json_decref(number);
    return out;
}

static bool equal(struct tree *t, const json_t *a, const json_t *b)
{
    ntx__schema_weigh(t, a);
    ntx__schema_weigh(t, b);
    return !t->failed && json_equal(a, b);
}

static json_t *values(const json_t *s)
{
    const json_t *list = json_object_get(s, "enum"), *one = json_object_get(s, "const");
    if (one)
        return json_pack("[O]", one);
    return json_is_array(list) ? json_incref(own(list)) : NULL;
}

static bool values_apart(struct tree *t, const json_t *a, const json_t *b)
{
    json_t *x = values(a), *y = values(b), *both = x && y ? both_in(t, x, y, false) : NULL;
    bool apart = both && !json_array_size(both);
    json_decref(x);
    json_decref(y);
    json_decref(both);
    return apart;
}

static json_t *both_properties(struct tree *t, const json_t *a, const json_t *b)
{
    json_t *out = ntx__schema_copy(t, a), *v;
    const char *key;
    json_object_foreach(own(b), key, v) {
        if (!ntx__schema_step(t, 8 + strlen(key) / 8))
            break;
        const json_t *mine = json_object_get(a, key);
        if (mine && values_apart(t, mine, v)) { /* seen at once, so that alternatives end early */
            json_object_set_new(out, key, json_false());
            continue;
        }
        json_t *both = mine && !equal(t, mine, v) && ntx__schema_step(t, 48) ? json_pack("{s:[O, O]}", "allOf", mine, v)
                                                                             : NULL;
        if (both && !ntx__schema_keep(t, json_incref(both)))
            break;
        json_object_set(out, key, both ? both : v);
        json_decref(both);
    }
    return out;
}

/* The least common multiple; NULL: t has failed, or it is not known. */
static json_t *both_multiples(struct tree *t, const json_t *a, const json_t *b)
{
    json_int_t x = json_integer_value(a), y = json_integer_value(b), p = x, q = y;
    if (!json_is_integer(a) || !json_is_integer(b) || x < 1 || y < 1 || x > 1000000 || y > 1000000) {
        ntx__tree_fail(t, -EINVAL, "two schemas that must both hold differ in 'multipleOf': that is not supported");
        ntx__schema_forgive(t, NULL, "multipleOf");
        return NULL;
    }
    while (q) {
        const json_int_t rest = p % q;
        p = q;
        q = rest;
    }
    return json_integer(x / p * y);
}

/* Merges a keyword that differs in both. */
static void merge_key(struct tree *t, json_t *out, const char *key, const json_t *a, const json_t *b)
{
    double x = json_number_value(a), y = json_number_value(b);
    json_t *v = NULL;
    switch (how(key)) {
    case HOW_MOST: v = json_incref(own(x > y ? a : b)); break;
    case HOW_LEAST: v = json_incref(own(x < y ? a : b)); break;
    case HOW_UNION: v = both_in(t, a, b, true); break;
    case HOW_TYPE: v = both_types(t, a, b); break;
    case HOW_ENUM: v = both_in(t, a, b, false); break;
    case HOW_PROPERTIES: v = both_properties(t, a, b); break;
    case HOW_PATTERN:
        v = both_in(t, a, b, true);
        ntx__schema_keep(t, json_incref(v));
        break;
    case HOW_CONST: v = json_array(); break;
    case HOW_EITHER: v = json_incref(own(json_is_true(a) ? a : b)); break;
    case HOW_MULTIPLE: v = both_multiples(t, a, b); break;
    case HOW_ALL:
        if (!strcmp(key, "items") || !strcmp(key, "propertyNames"))
            v = json_pack("{s:[O, O]}", "allOf", a, b);
        else if (!strcmp(key, "$ref") || !strcmp(key, "anyOf") || !strcmp(key, "oneOf") || !strcmp(key, "allOf")) {
            json_t *list = json_object_get(out, "allOf"), *longer = list ? ntx__schema_copy(t, list) : json_array();
            json_t *more = ntx__schema_step(t, 64) ? json_pack("{s:O}", key, b) : NULL;
            json_array_append_new(longer, more);
            json_object_set_new(out, "allOf", longer);
            return;
        } else {
            ntx__tree_fail(t, -EINVAL, "two schemas that must both hold differ in '%.40s': that is not supported", key);
            ntx__schema_forgive(t, out, key);
            return;
        }
    }
    if (v && json_is_array(v) && !json_array_size(v)) /* the intersection is empty */
        json_object_set_new(out, "allOf", json_pack("[b]", 0));
    else if (v)
        json_object_set(out, key, v);
    json_decref(v);
}

/* A schema that allows no other members cannot be merged with one that has more. */
static void check_closed(struct tree *t, const json_t *closed, const json_t *other, json_t *out)
{
    const json_t *more = json_object_get(closed, "additionalProperties"), *mine = json_object_get(closed, "properties");
    const char *key;
    json_t *v;
    const bool patterns = json_object_size(json_object_get(other, "patternProperties"));
    if (more && !json_is_true(more) && patterns && !json_object_get(closed, "patternProperties") && !t->failed)
        ntx__tree_fail(t, -EINVAL,
                       "patternProperties and additionalProperties of two schemas that must both hold are "
                       "not supported");
    else if (!more || json_is_true(more) ||
             !ntx__schema_step(t, json_object_size(json_object_get(other, "properties"))))
        return;
    json_object_foreach(json_object_get(other, "properties"), key, v)
        if (!json_object_get(mine, key) && !json_is_false(v) && !t->failed)
            ntx__tree_fail(
                t, -EINVAL,
                "two schemas must both hold, and one has no member '%.60s', which the other has: that is not supported",
                key);
    if (t->failed && ntx__schema_forgive(t, closed, "additionalProperties"))
        json_object_del(out, "additionalProperties");
}

/* The `items` of one schema hold for the first items that only the other one has, too. */
static void spread_items(struct tree *t, const json_t *one, const json_t *other, json_t *out)
{
    const json_t *prefix = json_object_get(other, "prefixItems"), *items = json_object_get(one, "items");
    json_t *both = json_array(), *each;
    size_t i;
    if (json_is_array(prefix) && items && !json_is_array(items) && !json_object_get(one, "prefixItems") &&
        ntx__schema_step(t, 48 * (unsigned)json_array_size(prefix))) {
        json_array_foreach(own(prefix), i, each)
            json_array_append_new(both, json_pack("{s:[O, O]}", "allOf", each, items));
        json_object_set(out, "prefixItems", both);
    }
    json_decref(both);
}

/* unevaluatedProperties and unevaluatedItems of b do not see the members and items of a. */
static const json_t *without_left(struct tree *t, const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"unevaluatedProperties", "unevaluatedItems"};
    for (int i = 0; i < 2 && b; i++)
        if (json_object_get(b, keys[i]) && ntx__schema_says(a, NULL))
            b = ntx__schema_drop(t, b, keys[i], " beside other schemas") ? ntx__schema_without(t, b, keys[i]) : NULL;
    return b;
}

/* A member that is required may not be there. */
static bool is_impossible(struct tree *t, const json_t *s)
{
    const json_t *properties = json_object_get(s, "properties");
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(s, "required"), i, one)
        if (ntx__schema_step(t, 1) && json_is_string(one) &&
            json_is_false(json_object_get(properties, json_string_value(one))))
            return true;
    return false;
}

const json_t *ntx__schema_both(struct tree *t, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *v;
    if (json_is_false(a) || json_is_false(b))
        return ntx__schema_keep(t, json_false());
    if (json_is_true(a) || json_is_true(b))
        return json_is_true(a) ? b : a;
    if (!json_is_object(a) || !json_is_object(b)) {
        ntx__tree_fail(t, -EINVAL, "a schema must be an object, true or false");
        return NULL;
    }
    if (json_object_get(b, "$ref") &&
        !ntx__schema_says(b, "$ref")) /* so that keywords beside it are merged with its target, not with its name */
        if (!json_object_get(a, "$ref") && json_is_string(json_object_get(b, "$ref")))
            b = ntx__schema_target(t, json_string_value(json_object_get(b, "$ref")));
    if (!b || !json_is_object(b))
        return b ? ntx__schema_both(t, a, b) : NULL;
    if (!(a = ntx__schema_rewrite(t, a, b)) || !(b = ntx__schema_rewrite(t, b, a)) || !(b = without_left(t, a, b)))
        return NULL;
    json_t *out = ntx__schema_keep(t, ntx__schema_copy(t, a));
    if (!out)
        return NULL;
    json_object_foreach(own(b), key, v) {
        const json_t *mine = json_object_get(a, key);
        if (!ntx__schema_step(t, 8 + strlen(key) / 8))
            return NULL;
        if (ntx__schema_annotation(key) && mine)
            continue;
        if (!mine && (strcmp(key, "allOf") || !json_object_get(out, key)))
            json_object_set(out, key, v);
        else if (!mine)
            merge_key(t, out, key, NULL, v);
        else if (!equal(t, mine, v) && !t->failed)
            merge_key(t, out, key, mine, v);
    }
    spread_items(t, a, b, out);
    spread_items(t, b, a, out);
    check_closed(t, a, b, out);
    check_closed(t, b, a, out);
    if (t->failed)
        return NULL;
    const char *type = json_string_value(json_object_get(out, "type"));
    const bool object = type ? !strcmp(type, "object") : json_object_get(out, "properties") != NULL;
    return object && is_impossible(t, out) ? ntx__schema_keep(t, json_false()) : out;
}

/* ---- apart */

/* The target of a schema's reference, as far as needed to tell alternatives apart. */
static const json_t *behind(struct tree *t, const json_t *s)
{
    for (int i = 0; i < 8 && s && json_is_string(json_object_get(s, "$ref")) && !t->failed; i++)
        s = ntx__schema_target(t, json_string_value(json_object_get(s, "$ref")));
    return s;
}

static bool types_apart(struct tree *t, const json_t *a, const json_t *b)
{
    const json_t *x = json_object_get(a, "type"), *y = json_object_get(b, "type");
    if (!x || !y)
        return false;
    json_t *both = both_types(t, x, y);
    bool apart = both && !json_array_size(both);
    json_decref(both);
    return apart;
}

static bool requires(struct tree *t, const json_t *s, const char *key)
{
    const json_t *list = json_object_get(s, "required");
    json_t *name = json_string(key);
    ntx__schema_weigh(t, list);
    bool out = !t->failed && ntx__schema_holds(list, name);
    json_decref(name);
    return out;
}

bool ntx__schema_apart(struct tree *t, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *v;
    a = behind(t, a);
    b = behind(t, b);
    if (json_is_false(a) || json_is_false(b))
        return true;
    if (!json_is_object(a) || !json_is_object(b))
        return false;
    if (types_apart(t, a, b) || values_apart(t, a, b))
        return true;
    json_object_foreach(json_object_get(a, "properties"), key, v) {
        const json_t *other = json_object_get(json_object_get(b, "properties"), key);
        if (!ntx__schema_step(t, 4))
            return false;
        if (other && requires(t, a, key) && requires(t, b, key) &&
            (values_apart(t, behind(t, v), behind(t, other)) || types_apart(t, behind(t, v), behind(t, other))))
            return true;
    }
    return false;
}
