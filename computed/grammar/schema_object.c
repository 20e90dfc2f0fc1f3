/* SPDX-License-Identifier: Apache-2.0 */
/* schema_object.c: objects and arrays. Members come in their order, and optional ones may be left out. So the rest
 * after member i is a rule, made twice: after an earlier member, with a comma, and as the first one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "computed/grammar/schema.h"

enum { MEMBERS_MOST = 2000 };

static node space(struct tree *t) { return ntx__schema_common(t, C_SPACE); }
static node comma(struct tree *t) { return SEQ(t, ntx__tree_text(t, ","), space(t)); }

/* ---- names of undeclared members: plain characters without escapes, so that none is a declared name in another
 * form */

struct names {
    struct tree *t;
    const char **list; /* [n] sorted */
};

static node rest_of_name(struct tree *t)
{
    static const struct range plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x10ffff}};
    return ntx__tree_repeat(t, ntx__tree_chars(t, plain, 3), 0, NO_LIMIT);
}

/* A plain character that is not taken; a non-ASCII one only with `beyond`. */
static node none_of(struct tree *t, const bool taken[128], bool beyond)
{
    struct range list[129];
    size_t n = 0;
    for (uint32_t c = 0x20; c < 0x80; c++)
        if (!taken[c])
            list[n++] = (struct range){c, c};
    if (beyond)
        list[n++] = (struct range){0x80, 0x10ffff};
    return ntx__tree_chars(t, list, n);
}

/* All names but list[from..to), after `depth` bytes. Non-ASCII characters are taken whole: names that contain them
 * differ from others in their ASCII characters, or else nothing that begins like them is allowed. */
static node other_names(struct names *s, size_t from, size_t to, size_t depth)
{
    struct tree *t = s->t;
    bool taken[128] = {['"'] = true, ['\\'] = true}; /* taken by names, or never plain */
    size_t i = from;
    node out = ntx__tree_list(t, N_ALT);
    if (depth > NEST)
        return ntx__tree_fail(t, -EINVAL,
                              "additionalProperties beside a member with a name of more than %u bytes is not supported",
                              NEST);
    if (i < to && !s->list[i][depth])
        i++;
    else
        ntx__tree_add(t, out, ntx__tree_list(t, N_EMPTY));
    while (i < to && (unsigned char)s->list[i][depth] < 0x80) {
        const char c = s->list[i][depth];
        size_t end = i;
        while (end < to && s->list[end][depth] == c)
            end++;
        if (c >= 0x20 && !taken[(unsigned char)c])
            ntx__tree_add(t, out, SEQ(t, ntx__tree_bytes(t, &c, 1), other_names(s, i, end, depth + 1)));
        taken[(unsigned char)c] = true;
        i = end;
    }
    ntx__tree_add(t, out, SEQ(t, none_of(t, taken, i == to), rest_of_name(t)));
    return out;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static node other_name(struct tree *t, const json_t *properties)
{
    size_t n = 0;
    const char *key, **list = malloc((json_object_size(properties) + 1) * sizeof *list);
    json_t *v;
    if (!list)
        return ntx__tree_fail(t, -ENOMEM, "no memory for the schema");
    json_object_foreach((json_t *)(uintptr_t)properties, key, v)
        list[n++] = key;
    qsort(list, n, sizeof *list, by_text);
    struct names s = {t, list};
    node out = n ? SEQ(t, ntx__tree_text(t, "\""), other_names(&s, 0, n, 0), ntx__tree_text(t, "\""))
                 : ntx__schema_common(t, C_STRING);
    free(list);
    return out;
}

/* ---- members */

struct object {
    struct tree *t;
    const json_t *properties, *required;
    uint32_t extra;        /* rule + 1 of an additional member; 0: none allowed */
    uint32_t extras;       /* most additional members */
    uint32_t first, later; /* least ones, without and behind other members; 0 or 1, since one name may come twice */
};

static bool is_required(const struct object *o, const char *key)
{
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)(uintptr_t)o->required, i, v)
        if (json_is_string(v) && !strcmp(json_string_value(v), key))
            return true;
    return false;
}

static node pair(struct tree *t, node name, node value)
{
    return SEQ(t, name, ntx__tree_text(t, ":"), space(t), value);
}

static node extras(struct object *o, bool first)
{
    struct tree *t = o->t;
    const uint32_t least = first ? o->first : o->later;
    if (!o->extra || !o->extras)
        return ntx__tree_list(t, least ? N_NEVER : N_EMPTY);
    uint32_t more = o->extras == NO_LIMIT ? NO_LIMIT : o->extras - first;
    node rest = ntx__tree_repeat(t, SEQ(t, comma(t), ntx__tree_rule(t, o->extra - 1)), first ? 0 : least, more);
    return first ? ntx__tree_repeat(t, SEQ(t, ntx__tree_rule(t, o->extra - 1), rest), least, 1) : rest;
}

static uint32_t rule_of(struct tree *t, node body)
{
    uint32_t r = ntx__tree_rule_new(t, NULL, 0);
    ntx__tree_define(t, r, body);
    return r;
}

/* Makes the rules of the rest, from the last member to the first. */
static node members(struct object *o)
{
    struct tree *t = o->t;
    const char *keys[MEMBERS_MOST], *key;
    json_t *v;
    size_t n = 0;
    json_object_foreach((json_t *)(uintptr_t)o->properties, key, v)
        keys[n++] = key; /* the array has room for all */
    uint32_t later = rule_of(t, extras(o, false)), first = rule_of(t, extras(o, true));
    while (n-- > 0 && !t->failed) {
        node name = ntx__schema_literal(t, ntx__schema_keep(t, json_string(keys[n])));
        uint32_t member = rule_of(t, pair(t, name, ntx__schema_value(t, json_object_get(o->properties, keys[n]))));
        node with = SEQ(t, ntx__tree_rule(t, member), ntx__tree_rule(t, later)),
             behind = SEQ(t, comma(t), ntx__tree_rule(t, member), ntx__tree_rule(t, later));
        if (!is_required(o, keys[n])) {
            with = ALT(t, with, ntx__tree_rule(t, first));
            behind = ALT(t, behind, ntx__tree_rule(t, later));
        }
        first = rule_of(t, with);
        later = rule_of(t, behind);
    }
    return ntx__tree_rule(t, first);
}

/* Checks minProperties and maxProperties: declared members must not be able to break them. */
static void check_counts(struct object *o, const json_t *schema)
{
    struct tree *t = o->t;
    uint32_t declared = (uint32_t)json_object_size(o->properties), required = 0;
    uint32_t min = ntx__schema_count(t, schema, "minProperties", 0),
             max = ntx__schema_count(t, schema, "maxProperties", NO_LIMIT);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o->properties, key, v)
        required += is_required(o, key);
    if (min > required && min > 1 && (min > required + 1 || declared > required))
        ntx__tree_fail(t, -EINVAL,
                       "minProperties is supported up to 1, and where as many declared members, or one less, are "
                       "required");
    if (t->failed)
        ntx__schema_forgive(t, schema, "minProperties");
    else if (min > required)
        o->first = o->later = 1;
    if (!required && declared)
        o->later = 0;
    if (max < declared) {
        ntx__tree_fail(t, -EINVAL, "maxProperties below the number of declared members is not supported");
        ntx__schema_forgive(t, schema, "maxProperties");
        max = NO_LIMIT;
    }
    o->extras = max == NO_LIMIT ? NO_LIMIT : max - declared;
}

static void check_required(struct object *o)
{
    size_t i;
    json_t *v;
    if (o->required && !json_is_array(o->required))
        ntx__tree_fail(o->t, -EINVAL, "the schema's 'required' must be a list");
    json_array_foreach((json_t *)(uintptr_t)o->required, i, v)
        if (!json_is_string(v))
            ntx__tree_fail(o->t, -EINVAL, "the schema's 'required' must be a list of names");
}

/* Sets the rule of additional members. */
static void find_extras(struct object *o, const json_t *schema, const json_t *more)
{
    struct tree *t = o->t;
    static const char *const keys[] = {"patternProperties", "propertyNames"};
    const bool open = !json_is_false(more) && (more || !(json_object_size(json_object_get(schema, "properties")) ||
                                                         json_object_size(json_object_get(schema, keys[0]))));
    if (json_object_size(json_object_get(schema, keys[0])) || json_object_get(schema, keys[1])) {
        const node other = ntx__schema_others(t, schema, o->properties, more, open);
        if (other && !t->failed) {
            o->extra = 1 + rule_of(t, other);
            return;
        }
        if (!t->failed)
            return;
        bool forgiven = true;
        for (int i = 0; i < 2; i++)
            if (json_object_get(schema, keys[i]))
                forgiven = i && forgiven && !t->failed ? ntx__schema_drop(t, schema, keys[i], "")
                                                       : ntx__schema_forgive(t, schema, keys[i]);
        if (t->failed || !forgiven)
            return;
        more = open ? more : json_true();
    } else if (!open) {
        return;
    }
    o->extra = 1 + rule_of(t, pair(t, other_name(t, o->properties),
                                   more ? ntx__schema_value(t, more) : ntx__schema_common(t, C_ANY)));
}

static bool check_patterns(struct tree *t, const json_t *schema)
{
    const json_t *patterns = json_object_get(schema, "patternProperties");
    if (patterns && !json_is_object(patterns))
        ntx__tree_fail(t, -EINVAL, "the schema's 'patternProperties' must be an object");
    return !t->failed;
}

node ntx__schema_object(struct tree *t, const json_t *schema)
{
    const json_t *more = json_object_get(schema, "additionalProperties");
    struct object o = {.t = t,
                       .properties = json_object_get(schema, "properties"),
                       .required = json_object_get(schema, "required"),
                       .extras = NO_LIMIT};
    if (o.properties && !json_is_object(o.properties))
        return ntx__tree_fail(t, -EINVAL, "the schema's 'properties' must be an object");
    if (json_object_size(o.properties) > MEMBERS_MOST)
        return ntx__tree_fail(t, -E2BIG, "a schema has more than %d members", MEMBERS_MOST);
    if (!ntx__schema_step(t, json_object_size(o.properties) * json_array_size(o.required) / 4)) /* both are compared */
        return 0;
    check_required(&o);
    if (t->failed || !check_patterns(t, schema) || (schema && !(o.properties = ntx__schema_declare(t, schema))))
        return 0;
    if (json_object_size(o.properties) > MEMBERS_MOST)
        return ntx__tree_fail(t, -E2BIG, "a schema has more than %d members", MEMBERS_MOST);
    find_extras(&o, schema, more ? more : json_object_get(schema, "unevaluatedProperties"));
    if (t->failed)
        return 0;
    check_counts(&o, schema);
    if (t->failed)
        return 0;
    return SEQ(t, ntx__tree_text(t, "{"), space(t), members(&o), space(t), ntx__tree_text(t, "}"));
}

/* ---- arrays */

static node of_item(struct tree *t, const json_t *schema)
{
    return schema ? ntx__schema_value(t, schema) : ntx__schema_common(t, C_ANY);
}

/* [a, b, c, c, ...]: items behind the first i of prefixItems, which must number from min to max. */
static node items_from(struct tree *t, const json_t *prefix, size_t i, uint32_t item, uint32_t min, uint32_t max)
{
    size_t n = json_array_size(prefix);
    if (i >= n || i >= max) {
        uint32_t least = min > i ? min - (uint32_t)i : 0, most = NO_LIMIT;
        if (max != NO_LIMIT)
            most = max > i ? max - (uint32_t)i : 0;
        if (i)
            return ntx__tree_repeat(t, SEQ(t, comma(t), ntx__tree_rule(t, item)), least, most);
        if (!most)
            return ntx__tree_list(t, N_EMPTY);
        node rest = ntx__tree_repeat(t, SEQ(t, comma(t), ntx__tree_rule(t, item)), least ? least - 1 : 0,
                                     most == NO_LIMIT ? NO_LIMIT : most - 1);
        node some = SEQ(t, ntx__tree_rule(t, item), rest);
        return least ? some : ntx__tree_repeat(t, some, 0, 1);
    }
    node one = of_item(t, json_array_get(prefix, i));
    node some = i ? SEQ(t, comma(t), one, items_from(t, prefix, i + 1, item, min, max))
                  : SEQ(t, one, items_from(t, prefix, i + 1, item, min, max));
    return i < min ? some : ntx__tree_repeat(t, some, 0, 1);
}

node ntx__schema_array(struct tree *t, const json_t *schema)
{
    const json_t *prefix = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    uint32_t min = ntx__schema_count(t, schema, "minItems", 0),
             max = ntx__schema_count(t, schema, "maxItems", NO_LIMIT);
    if (json_is_array(items) || (prefix && !json_is_array(prefix)) || json_array_size(prefix) > 100)
        return ntx__tree_fail(t, -EINVAL,
                              "the schema's 'items' must be a schema, and 'prefixItems' a list of at most 100");
    if (max < min)
        return ntx__tree_list(t, N_NEVER);
    items = items ? items : json_object_get(schema, "unevaluatedItems");
    if (json_is_true(json_object_get(schema, "uniqueItems")) && max > 1) {
        const node set = json_array_size(prefix) ? 0 : ntx__schema_set(t, items, min, max);
        if (set || t->failed)
            return set;
        if (!ntx__schema_drop(t, schema, "uniqueItems", ": it is for items of an enum, booleans and null"))
            return 0;
    }
    uint32_t item = ntx__tree_rule_new(t, NULL, 0);
    ntx__tree_define(t, item, of_item(t, items));
    return SEQ(t, ntx__tree_text(t, "["), space(t), items_from(t, prefix, 0, item, min, max), space(t),
               ntx__tree_text(t, "]"));
}
