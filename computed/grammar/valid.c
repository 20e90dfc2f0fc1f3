/* SPDX-License-Identifier: Apache-2.0 */
/* valid.c: the keywords, one function each; a table names them. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "computed/grammar/valid.h"

#include <ctype.h>
#include <math.h>
#include <pcre2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { STEPS_MOST = 1 << 22, DEEPEST = 250, PATTERNS = 32, MATCH_STEPS = 50000, OF_MATCH = 128 };

/* Where in the value: a list from the innermost part to the whole. */
struct place {
    const struct place *above;
    const char *key; /* NULL: item i */
    size_t i;
};

struct check {
    const json_t *root;
    struct ntx_valid_why *why;
    unsigned steps, most, depth, n_patterns;
    bool lost; /* the result is not known */
    struct {
        const json_t *of;
        pcre2_code *code;
    } pattern[PATTERNS];
};

/* One value under one schema. seen: names of members, or numbers of items, that some keyword has looked at; kept for
 * unevaluatedProperties and unevaluatedItems. */
struct look {
    struct check *c;
    const json_t *schema, *value;
    const struct place *at;
    json_t *seen;
};

static json_t *own_json(const json_t *v) { return (json_t *)(uintptr_t)v; }

static bool valid_under(const struct look *l, const json_t *schema, const json_t *value, const struct place *at,
                        json_t *seen);

static void see(const struct look *l, const char *key, size_t i)
{
    char number[24];
    snprintf(number, sizeof number, "%zu", i);
    if (l->seen)
        json_object_set_new(l->seen, key ? key : number, json_true());
}

static bool is_seen(const struct look *l, const char *key, size_t i)
{
    char number[24];
    snprintf(number, sizeof number, "%zu", i);
    return json_object_get(l->seen, key ? key : number) != NULL;
}

static bool step(struct check *c, size_t n)
{
    c->steps += n < c->most ? (unsigned)n : c->most;
    if (c->steps >= c->most) {
        c->steps = c->most;
        c->lost = true;
    }
    return !c->lost;
}

/* ---- values */

static bool equal(struct check *c, const json_t *a, const json_t *b)
{
    const char *key;
    size_t i;
    json_t *one;
    if (!step(c, 1 + json_string_length(a) / 16))
        return false;
    if (json_is_number(a) && json_is_number(b))
        return json_is_integer(a) && json_is_integer(b) ? json_integer_value(a) == json_integer_value(b)
                                                        : json_number_value(a) == json_number_value(b);
    if (json_typeof(a) != json_typeof(b) || json_object_size(a) != json_object_size(b) ||
        json_array_size(a) != json_array_size(b))
        return false;
    json_array_foreach(own_json(a), i, one)
        if (!equal(c, one, json_array_get(b, i)))
            return false;
    json_object_foreach(own_json(a), key, one) {
        const json_t *other = json_object_get(b, key);
        if (!other || !equal(c, one, other))
            return false;
    }
    return json_is_array(a) || json_is_object(a) || json_equal(a, b);
}

static pcre2_code *code_of(struct check *c, const json_t *pattern)
{
    int e;
    PCRE2_SIZE at;
    for (unsigned i = 0; i < c->n_patterns; i++)
        if (c->pattern[i].of == pattern)
            return c->pattern[i].code;
    if (c->n_patterns == PATTERNS)
        pcre2_code_free(c->pattern[--c->n_patterns].code);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)json_string_value(pattern), json_string_length(pattern),
                                     PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX | PCRE2_NEVER_BACKSLASH_C, &e,
                                     &at, NULL);
    c->pattern[c->n_patterns].of = pattern;
    c->pattern[c->n_patterns++].code = code;
    return code;
}

static bool run_pattern(struct check *c, const pcre2_code *code, const char *text, size_t len)
{
    pcre2_match_data *d = code ? pcre2_match_data_create(1, NULL) : NULL;
    pcre2_match_context *m = d ? pcre2_match_context_create(NULL) : NULL;
    int rc = PCRE2_ERROR_NOMEMORY;
    if (m) {
        pcre2_set_match_limit(m, MATCH_STEPS);
        rc = pcre2_match(code, (PCRE2_SPTR)text, len, 0, 0, d, m);
    }
    pcre2_match_context_free(m);
    pcre2_match_data_free(d);
    c->lost |= rc < 0 && rc != PCRE2_ERROR_NOMATCH;
    return step(c, OF_MATCH + (unsigned)(len / 16)) && rc >= 0;
}

static bool matches(struct check *c, const json_t *pattern, const char *text, size_t len)
{
    if (!json_is_string(pattern)) {
        c->lost = true;
        return false;
    }
    return run_pattern(c, code_of(c, pattern), text, len);
}

static size_t characters(const json_t *v)
{
    const char *s = json_string_value(v);
    size_t n = 0;
    for (size_t i = 0; i < json_string_length(v); i++)
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

/* ---- keywords of any value. k is the keyword's value */

static bool is_type(const json_t *v, const char *type)
{
    const double d = json_number_value(v);
    if (!strcasecmp(type, "object"))
        return json_is_object(v);
    if (!strcasecmp(type, "array"))
        return json_is_array(v);
    if (!strcasecmp(type, "string"))
        return json_is_string(v);
    if (!strcasecmp(type, "number"))
        return json_is_number(v);
    if (!strcasecmp(type, "integer"))
        return json_is_number(v) && d == floor(d);
    return !strcasecmp(type, "boolean") ? json_is_boolean(v) : !strcasecmp(type, "null") && json_is_null(v);
}

static bool k_type(const struct look *l, const json_t *k)
{
    size_t i;
    json_t *one;
    json_array_foreach(own_json(k), i, one)
        if (json_is_string(one) && is_type(l->value, json_string_value(one)))
            return true;
    return json_is_string(k) && is_type(l->value, json_string_value(k));
}

static bool k_enum(const struct look *l, const json_t *k)
{
    size_t i;
    json_t *one;
    json_array_foreach(own_json(k), i, one)
        if (equal(l->c, one, l->value))
            return true;
    return false;
}

static bool k_none_of(const struct look *l, const json_t *k) { return !k_enum(l, k); }
static bool k_const(const struct look *l, const json_t *k) { return equal(l->c, k, l->value); }

static bool holds_here(const struct look *l, const json_t *schema, bool keep)
{
    json_t *seen = l->seen ? json_object() : NULL;
    const bool yes = valid_under(l, schema, l->value, l->at, seen);
    if (yes && keep && seen)
        json_object_update(l->seen, seen);
    json_decref(seen);
    return yes;
}

static unsigned count_holding(const struct look *l, const json_t *list)
{
    size_t i;
    json_t *one;
    unsigned n = 0;
    json_array_foreach(own_json(list), i, one)
        n += holds_here(l, one, true);
    return n;
}

static bool k_any_of(const struct look *l, const json_t *k) { return count_holding(l, k) > 0; }
static bool k_one_of(const struct look *l, const json_t *k) { return count_holding(l, k) == 1; }
static bool k_all_of(const struct look *l, const json_t *k)
{
    size_t i;
    json_t *one;
    json_array_foreach(own_json(k), i, one)
        if (!holds_here(l, one, true))
            return false;
    return true;
}
static bool k_not(const struct look *l, const json_t *k) { return !holds_here(l, k, false); }

static bool k_if(const struct look *l, const json_t *k)
{
    const json_t *branch = json_object_get(l->schema, holds_here(l, k, true) ? "then" : "else");
    return !branch || holds_here(l, branch, true);
}

const json_t *ntx_valid_named(const json_t *doc, const char *key, const char *text, unsigned depth)
{
    const json_t *is = json_object_get(doc, key), *out = NULL;
    const char *name;
    size_t i;
    json_t *one;
    if (json_is_string(is) && !strcmp(json_string_value(is), text))
        return doc;
    json_object_foreach(own_json(doc), name, one)
        if (!out && depth && strcmp(name, "enum") && strcmp(name, "const"))
            out = ntx_valid_named(one, key, text, depth - 1);
    json_array_foreach(own_json(doc), i, one)
        if (!out && depth)
            out = ntx_valid_named(one, key, text, depth - 1);
    return out;
}

/* A part of a JSON pointer, decoded; out has room for n + 1 bytes. */
static void decode(const char *part, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        unsigned x;
        if (part[i] == '~' && i + 1 < n && (part[i + 1] == '0' || part[i + 1] == '1'))
            *out++ = part[++i] == '0' ? '~' : '/';
        else if (part[i] == '%' && i + 2 < n && sscanf(part + i + 1, "%2x", &x) == 1 && x)
            *out++ = (char)x, i += 2;
        else
            *out++ = part[i];
    }
    *out = 0;
}

static const json_t *target_of(const struct look *l, const char *ref)
{
    const json_t *at = l->c->root;
    char name[256];
    if (ref[0] == '#' && ref[1] && ref[1] != '/')
        return ntx_valid_named(at, "$anchor", ref + 1, DEEPEST);
    if (ref[0] != '#')
        return ntx_valid_named(at, "$id", ref, DEEPEST);
    for (const char *p = ref + 1; *p == '/' && at;) {
        const size_t n = strcspn(++p, "/");
        if (n >= sizeof name)
            return NULL;
        decode(p, n, name);
        at = json_is_array(at) ? json_array_get(at, strtoul(name, NULL, 10)) : json_object_get(at, name);
        p += n;
    }
    return at;
}

static bool k_ref(const struct look *l, const json_t *k)
{
    const json_t *target = json_is_string(k) ? target_of(l, json_string_value(k)) : NULL;
    l->c->lost |= !target;
    return target && holds_here(l, target, true);
}

static bool k_lost(const struct look *l, const json_t *k)
{
    (void)k;
    l->c->lost = true;
    return false;
}

/* ---- numbers, strings */

static bool k_minimum(const struct look *l, const json_t *k)
{
    return json_number_value(l->value) >= json_number_value(k);
}
static bool k_maximum(const struct look *l, const json_t *k)
{
    return json_number_value(l->value) <= json_number_value(k);
}
static bool k_above(const struct look *l, const json_t *k)
{
    return json_number_value(l->value) > json_number_value(k);
}
static bool k_below(const struct look *l, const json_t *k)
{
    return json_number_value(l->value) < json_number_value(k);
}

/* Decimal steps like 0.01 have no exact double. */
static bool k_multiple(const struct look *l, const json_t *k)
{
    const double of = json_number_value(k), n = json_number_value(l->value) / of;
    return of > 0 && isfinite(n) && fabs(n - round(n)) <= 1e-9 * fmax(1, fabs(n) * 1e-6);
}

static bool k_min_length(const struct look *l, const json_t *k)
{
    return (double)characters(l->value) >= json_number_value(k);
}
static bool k_max_length(const struct look *l, const json_t *k)
{
    return (double)characters(l->value) <= json_number_value(k);
}
static bool k_pattern(const struct look *l, const json_t *k)
{
    size_t i;
    json_t *one;
    json_array_foreach(own_json(k), i, one) /* of several schemas that were merged */
        if (!matches(l->c, one, json_string_value(l->value), json_string_length(l->value)))
            return false;
    if (json_is_array(k))
        return true;
    return matches(l->c, k, json_string_value(l->value), json_string_length(l->value));
}

static bool k_format(const struct look *l, const json_t *k)
{
    static const char *const table[][2] = {
        {"date", "^(?!0000)\\d{4}-(0\\d|1[0-2])-([0-2]\\d|3[01])$"},
        {"uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
        {"ipv4", "^((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)(\\.|$)){4}(?<!\\.)$"},
        {"email", "^[^@\\s]+@[A-Za-z0-9.-]+$"},
        {"date-time", "^\\d{4}-\\d\\d-\\d\\d[Tt]([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?([Zz]|[-+]\\d\\d:\\d\\d)$"},
        {"time", "^\\d\\d:\\d\\d:\\d\\d"},
        {"hostname", "^[A-Za-z0-9.-]+$"},
        {"ipv6", "^[0-9a-fA-F:.]+$"},
        {"duration", "^P(?=.)"},
        {"uri", "^[A-Za-z][A-Za-z0-9+.-]*:"}};
    pcre2_code *code = NULL;
    int e;
    PCRE2_SIZE at;
    for (size_t i = 0; json_is_string(k) && i < sizeof table / sizeof *table; i++)
        if (!strcmp(json_string_value(k), table[i][0]))
            code = pcre2_compile((PCRE2_SPTR)table[i][1], PCRE2_ZERO_TERMINATED, PCRE2_DOLLAR_ENDONLY, &e, &at, NULL);
    const bool yes = !code || run_pattern(l->c, code, json_string_value(l->value), json_string_length(l->value));
    pcre2_code_free(code);
    return yes;
}

/* ---- arrays */

static bool valid_item(const struct look *l, const json_t *schema, size_t i)
{
    const struct place at = {l->at, NULL, i};
    return valid_under(l, schema, json_array_get(l->value, i), &at, NULL);
}

static bool see_item(const struct look *l, const json_t *schema, size_t i)
{
    see(l, NULL, i);
    return valid_item(l, schema, i);
}

/* The number of first items that prefixItems, or items as a list, decides about. */
static size_t prefix_of(const struct look *l)
{
    const json_t *prefix = json_object_get(l->schema, "prefixItems"), *items = json_object_get(l->schema, "items");
    return json_array_size(prefix ? prefix : items);
}

static bool k_prefix(const struct look *l, const json_t *k)
{
    for (size_t i = 0; i < json_array_size(k) && i < json_array_size(l->value); i++)
        if (!see_item(l, json_array_get(k, i), i))
            return false;
    return true;
}

static bool later_items(const struct look *l, const json_t *k)
{
    for (size_t i = prefix_of(l); i < json_array_size(l->value); i++)
        if (!see_item(l, k, i))
            return false;
    return true;
}

static bool k_items(const struct look *l, const json_t *k)
{
    return json_is_array(k) ? k_prefix(l, k) : later_items(l, k);
}

static bool k_more_items(const struct look *l, const json_t *k)
{
    return !json_is_array(json_object_get(l->schema, "items")) || later_items(l, k);
}

static bool k_contains(const struct look *l, const json_t *k)
{
    const json_t *min = json_object_get(l->schema, "minContains"), *max = json_object_get(l->schema, "maxContains");
    double n = 0;
    for (size_t i = 0; i < json_array_size(l->value); i++)
        if (valid_item(l, k, i)) {
            see(l, NULL, i);
            n++;
        }
    return n >= (min ? json_number_value(min) : 1) && (!max || n <= json_number_value(max));
}

static bool k_min_items(const struct look *l, const json_t *k)
{
    return (double)json_array_size(l->value) >= json_number_value(k);
}
static bool k_max_items(const struct look *l, const json_t *k)
{
    return (double)json_array_size(l->value) <= json_number_value(k);
}

static bool k_unique(const struct look *l, const json_t *k)
{
    const size_t n = json_array_size(l->value);
    for (size_t i = 0; json_is_true(k) && i < n; i++)
        for (size_t j = i + 1; j < n; j++)
            if (equal(l->c, json_array_get(l->value, i), json_array_get(l->value, j)))
                return false;
    return true;
}

static bool k_left_items(const struct look *l, const json_t *k)
{
    for (size_t i = 0; i < json_array_size(l->value); i++)
        if (!is_seen(l, NULL, i) && !see_item(l, k, i))
            return false;
    return true;
}

/* ---- objects */

static bool valid_member(const struct look *l, const json_t *schema, const char *key, const json_t *value)
{
    const struct place at = {l->at, key, 0};
    see(l, key, 0);
    return valid_under(l, schema, value, &at, NULL);
}

static bool k_properties(const struct look *l, const json_t *k)
{
    const char *key;
    json_t *one;
    json_object_foreach(own_json(k), key, one) {
        const json_t *v = json_object_get(l->value, key);
        if (v && !valid_member(l, one, key, v))
            return false;
    }
    return true;
}

/* patterns are keys of an object, so they have no json_t of their own. */
static bool key_matches(const struct look *l, const char *pattern, const char *key)
{
    int e;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX | PCRE2_NEVER_BACKSLASH_C, &e,
                                     &at, NULL);
    const bool yes = run_pattern(l->c, code, key, strlen(key));
    pcre2_code_free(code);
    return yes;
}

static bool k_patterns(const struct look *l, const json_t *k)
{
    const char *key, *pattern;
    json_t *one, *schema;
    json_object_foreach(own_json(l->value), key, one) {
        json_object_foreach(own_json(k), pattern, schema) {
            if (!step(l->c, 64))
                return false;
            if (key_matches(l, pattern, key) && !valid_member(l, schema, key, one))
                return false;
        }
    }
    return true;
}

static bool is_declared(const struct look *l, const char *key)
{
    const char *pattern;
    json_t *one;
    if (json_object_get(json_object_get(l->schema, "properties"), key))
        return true;
    json_object_foreach(json_object_get(l->schema, "patternProperties"), pattern, one)
        if (key_matches(l, pattern, key))
            return true;
    return false;
}

static bool k_more(const struct look *l, const json_t *k)
{
    const char *key;
    json_t *one;
    json_object_foreach(own_json(l->value), key, one)
        if (!is_declared(l, key) && !valid_member(l, k, key, one))
            return false;
    return true;
}

static bool k_left(const struct look *l, const json_t *k)
{
    const char *key;
    json_t *one;
    json_object_foreach(own_json(l->value), key, one)
        if (!is_seen(l, key, 0) && !valid_member(l, k, key, one))
            return false;
    return true;
}

static bool k_names(const struct look *l, const json_t *k)
{
    const char *key;
    json_t *one;
    json_object_foreach(own_json(l->value), key, one) {
        json_t *name = json_string(key);
        const bool yes = valid_under(l, k, name, l->at, NULL);
        json_decref(name);
        if (!yes)
            return false;
    }
    return true;
}

static bool k_required(const struct look *l, const json_t *k)
{
    size_t i;
    json_t *one;
    json_array_foreach(own_json(k), i, one)
        if (json_is_string(one) && !json_object_get(l->value, json_string_value(one)))
            return false;
    return true;
}

static bool k_min_members(const struct look *l, const json_t *k)
{
    return (double)json_object_size(l->value) >= json_number_value(k);
}
static bool k_max_members(const struct look *l, const json_t *k)
{
    return (double)json_object_size(l->value) <= json_number_value(k);
}

static bool k_dependent(const struct look *l, const json_t *k)
{
    const char *key;
    json_t *one;
    json_object_foreach(own_json(k), key, one) {
        if (!json_object_get(l->value, key))
            continue;
        if (json_is_array(one) ? !k_required(l, one) : !holds_here(l, one, true))
            return false;
    }
    return true;
}

/* ---- */

enum of { OF_ANY, OF_NUMBER, OF_STRING, OF_ARRAY, OF_OBJECT };

/* In this order: unevaluated members and items come after all that looks at them. */
static const struct {
    const char *key;
    enum of of;
    bool (*holds)(const struct look *l, const json_t *k);
} keywords[] = {{"type", OF_ANY, k_type},
                {"enum", OF_ANY, k_enum},
                {"const", OF_ANY, k_const},
                {"minimum", OF_NUMBER, k_minimum},
                {"maximum", OF_NUMBER, k_maximum},
                {"exclusiveMinimum", OF_NUMBER, k_above},
                {"exclusiveMaximum", OF_NUMBER, k_below},
                {"multipleOf", OF_NUMBER, k_multiple},
                {"minLength", OF_STRING, k_min_length},
                {"maxLength", OF_STRING, k_max_length},
                {"pattern", OF_STRING, k_pattern},
                {"format", OF_STRING, k_format},
                {"ntx: not these", OF_STRING, k_none_of},
                {"minItems", OF_ARRAY, k_min_items},
                {"maxItems", OF_ARRAY, k_max_items},
                {"prefixItems", OF_ARRAY, k_prefix},
                {"items", OF_ARRAY, k_items},
                {"additionalItems", OF_ARRAY, k_more_items},
                {"contains", OF_ARRAY, k_contains},
                {"uniqueItems", OF_ARRAY, k_unique},
                {"minProperties", OF_OBJECT, k_min_members},
                {"maxProperties", OF_OBJECT, k_max_members},
                {"required", OF_OBJECT, k_required},
                {"propertyNames", OF_OBJECT, k_names},
                {"properties", OF_OBJECT, k_properties},
                {"patternProperties", OF_OBJECT, k_patterns},
                {"additionalProperties", OF_OBJECT, k_more},
                {"dependentRequired", OF_OBJECT, k_dependent},
                {"dependentSchemas", OF_OBJECT, k_dependent},
                {"dependencies", OF_OBJECT, k_dependent},
                {"$ref", OF_ANY, k_ref},
                {"$dynamicRef", OF_ANY, k_lost},
                {"$recursiveRef", OF_ANY, k_lost},
                {"allOf", OF_ANY, k_all_of},
                {"anyOf", OF_ANY, k_any_of},
                {"oneOf", OF_ANY, k_one_of},
                {"not", OF_ANY, k_not},
                {"if", OF_ANY, k_if},
                {"unevaluatedItems", OF_ARRAY, k_left_items},
                {"unevaluatedProperties", OF_OBJECT, k_left}};

static bool concerns(enum of of, const json_t *v)
{
    switch (of) {
    case OF_NUMBER: return json_is_number(v);
    case OF_STRING: return json_is_string(v);
    case OF_ARRAY: return json_is_array(v);
    case OF_OBJECT: return json_is_object(v);
    default: return true;
    }
}

static size_t write_place(const struct place *at, char *out, size_t room)
{
    size_t n = at->above ? write_place(at->above, out, room) : 0;
    if (n >= room)
        return n;
    int more = at->key ? snprintf(out + n, room - n, "/%s", at->key) : snprintf(out + n, room - n, "/%zu", at->i);
    return n + (more > 0 ? (size_t)more : 0);
}

static bool blame(const struct look *l, const char *key)
{
    struct ntx_valid_why *why = l->c->why;
    if (!why || *why->keyword)
        return false;
    snprintf(why->keyword, sizeof why->keyword, "%s", key);
    if (l->at)
        write_place(l->at, why->place, sizeof why->place);
    return false;
}

static bool all_hold(const struct look *l)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        const json_t *k = json_object_get(l->schema, keywords[i].key);
        if (!k || !concerns(keywords[i].of, l->value))
            continue;
        struct ntx_valid_why before = l->c->why ? *l->c->why : (struct ntx_valid_why){.keyword = ""};
        if (!keywords[i].holds(l, k))
            return blame(l, keywords[i].key);
        if (l->c->why) /* a branch that failed, of several */
            *l->c->why = before;
    }
    return true;
}

static bool valid_under(const struct look *l, const json_t *schema, const json_t *value, const struct place *at,
                        json_t *seen)
{
    struct check *c = l->c;
    if (!step(c, 4) || json_is_boolean(schema))
        return json_is_true(schema) || (!c->lost && blame(&(struct look){.c = c, .at = at}, "false"));
    if (!json_is_object(schema) || c->depth >= DEEPEST) {
        c->lost = true;
        return false;
    }
    const bool needs = json_object_get(schema, "unevaluatedProperties") || json_object_get(schema, "unevaluatedItems");
    struct look here = {c, schema, value, at, seen};
    if (needs && !seen)
        here.seen = json_object();
    c->depth++;
    const bool yes = all_hold(&here);
    c->depth--;
    if (here.seen != seen)
        json_decref(here.seen);
    return yes;
}

static enum ntx_valid run(struct check *c, const json_t *schema, const json_t *value)
{
    const bool yes = valid_under(&(struct look){.c = c}, schema, value, NULL, NULL);
    for (unsigned i = 0; i < c->n_patterns; i++)
        pcre2_code_free(c->pattern[i].code);
    if (c->lost)
        return NTX_VALID_UNKNOWN;
    return yes ? NTX_VALID_YES : NTX_VALID_NO;
}

enum ntx_valid ntx_valid(const json_t *root, const json_t *schema, const json_t *value, struct ntx_valid_why *why)
{
    struct check c = {.root = root, .why = why, .most = STEPS_MOST};
    if (why)
        *why = (struct ntx_valid_why){.keyword = ""};
    return run(&c, schema, value);
}

enum ntx_valid ntx_valid_within(const json_t *root, const json_t *schema, const json_t *value, unsigned most,
                                unsigned *took)
{
    struct check c = {.root = root, .most = most};
    enum ntx_valid out = run(&c, schema, value);
    *took = c.steps;
    return out;
}
