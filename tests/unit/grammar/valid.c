/* SPDX-License-Identifier: Apache-2.0 */
/* valid.c: a validator of JSON Schema, keyword by keyword; an unknown keyword fails the test. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <string.h>

#include "tests/lib/check.h"
#include "tests/unit/grammar/walk.h"

static json_t *own(const json_t *v) { return (json_t *)(uintptr_t)v; }

static size_t characters(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static bool matches(const char *pattern, const char *text)
{
    int e;
    PCRE2_SIZE at;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX, &e, &at, NULL);
    CHECK_MSG(re != NULL, "pattern %s", pattern);
    pcre2_match_data *d = pcre2_match_data_create_from_pattern(re, NULL);
    bool yes = pcre2_match(re, (PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0, 0, d, NULL) >= 0;
    pcre2_match_data_free(d);
    pcre2_code_free(re);
    return yes;
}

static bool is_type(const json_t *v, const char *type)
{
    double d = json_number_value(v);
    if (!strcmp(type, "object"))
        return json_is_object(v);
    if (!strcmp(type, "array"))
        return json_is_array(v);
    if (!strcmp(type, "string"))
        return json_is_string(v);
    if (!strcmp(type, "number"))
        return json_is_number(v);
    if (!strcmp(type, "integer"))
        return json_is_number(v) && d == floor(d);
    return !strcmp(type, "boolean") ? json_is_boolean(v) : json_is_null(v);
}

static bool is_types(const json_t *v, const json_t *type)
{
    size_t i;
    json_t *one;
    json_array_foreach(own(type), i, one)
        if (is_type(v, json_string_value(one)))
            return true;
    return json_is_string(type) && is_type(v, json_string_value(type));
}

static bool format(const char *name, const char *s)
{
    static const char *const table[][2] = {
        {"date", "^(?!0000)\\d{4}-(0\\d|1[0-2])-([0-2]\\d|3[01])$"},
        {"uuid", "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
        {"ipv4", "^((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)(\\.|$)){4}(?<!\\.)$"},
        {"email", "^[^@\\s]+@[a-z0-9.-]+$"},
        {"date-time", "^\\d{4}-\\d\\d-\\d\\dT([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?(Z|[-+]\\d\\d:\\d\\d)$"},
        {"time", "^\\d\\d:\\d\\d:\\d\\d"},
        {"hostname", "^[a-z0-9.-]+$"},
        {"ipv6", "^[0-9a-f:]+$"},
        {"duration", "^P(?=.)"},
        {"uri", "^https?://"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(name, table[i][0]))
            return matches(table[i][1], s);
    return true;
}

static bool any(const json_t *root, const json_t *list, const json_t *v, unsigned *n)
{
    size_t i;
    json_t *one;
    const char *why;
    *n = 0;
    json_array_foreach(own(list), i, one)
        *n += valid(root, one, v, &why);
    return *n > 0;
}

static bool members(const json_t *root, const json_t *s, const json_t *v, const char **why)
{
    const json_t *properties = json_object_get(s, "properties"), *more = json_object_get(s, "additionalProperties");
    const char *key;
    json_t *one;
    json_object_foreach(own(v), key, one) {
        const json_t *declared = json_object_get(properties, key);
        if (declared ? !valid(root, declared, one, why) : more && !valid(root, more, one, why))
            return false;
    }
    return true;
}

static bool items(const json_t *root, const json_t *s, const json_t *v, const char **why)
{
    const json_t *prefix = json_object_get(s, "prefixItems"), *rest = json_object_get(s, "items");
    size_t i;
    json_t *one;
    json_array_foreach(own(v), i, one) {
        const json_t *is = i < json_array_size(prefix) ? json_array_get(prefix, i) : rest;
        if (is && !valid(root, is, one, why))
            return false;
    }
    return true;
}

static bool requires(const json_t *list, const json_t *v)
{
    size_t i;
    json_t *one;
    json_array_foreach(own(list), i, one)
        if (!json_object_get(v, json_string_value(one)))
            return false;
    return true;
}

static bool listed(const json_t *list, const json_t *v)
{
    size_t i;
    json_t *one;
    json_array_foreach(own(list), i, one)
        if (json_equal(one, v) ||
            (json_is_number(one) && json_is_number(v) && json_number_value(one) == json_number_value(v)))
            return true;
    return false;
}

static bool holds(const json_t *root, const json_t *s, const char *key, const json_t *k, const json_t *v,
                  const char **why)
{
    double x = json_number_value(v), y = json_number_value(k);
    bool number = json_is_number(v), object = json_is_object(v), array = json_is_array(v);
    const char *text = json_string_value(v);
    unsigned n;
    size_t i;
    json_t *one;
    if (!strcmp(key, "type"))
        return is_types(v, k);
    if (!strcmp(key, "enum"))
        return listed(k, v);
    if (!strcmp(key, "const"))
        return json_equal(k, v);
    if (!strcmp(key, "minimum"))
        return !number || x >= y;
    if (!strcmp(key, "maximum"))
        return !number || x <= y;
    if (!strcmp(key, "exclusiveMinimum"))
        return !number || x > y;
    if (!strcmp(key, "exclusiveMaximum"))
        return !number || x < y;
    if (!strcmp(key, "multipleOf"))
        return !number || fmod(x, y) == 0;
    if (!strcmp(key, "minLength"))
        return !text || (double)characters(text) >= y;
    if (!strcmp(key, "maxLength"))
        return !text || (double)characters(text) <= y;
    if (!strcmp(key, "pattern"))
        return !text || matches(json_string_value(k), text);
    if (!strcmp(key, "format"))
        return !text || format(json_string_value(k), text);
    if (!strcmp(key, "minItems"))
        return !array || (double)json_array_size(v) >= y;
    if (!strcmp(key, "maxItems"))
        return !array || (double)json_array_size(v) <= y;
    if (!strcmp(key, "minProperties"))
        return !object || (double)json_object_size(v) >= y;
    if (!strcmp(key, "maxProperties"))
        return !object || (double)json_object_size(v) <= y;
    if (!strcmp(key, "required"))
    return !object || requires(k, v);
    if (!strcmp(key, "properties") || !strcmp(key, "additionalProperties"))
        return !object || members(root, s, v, why);
    if (!strcmp(key, "items") || !strcmp(key, "prefixItems"))
        return !array || items(root, s, v, why);
    if (!strcmp(key, "anyOf"))
        return any(root, k, v, &n);
    if (!strcmp(key, "oneOf"))
        return any(root, k, v, &n) && n == 1;
    if (!strcmp(key, "allOf")) {
        json_array_foreach(own(k), i, one)
            if (!valid(root, one, v, why))
                return false;
        return true;
    }
    CHECK_MSG(strchr("$dtu", key[0]), "the validator does not know %s",
              key); /* $defs, description, title, default, uniqueItems */
    return true;
}

static const json_t *target(const json_t *root, const char *ref)
{
    CHECK(!strncmp(ref, "#", 1));
    const json_t *at = root;
    char name[100];
    for (const char *p = ref + 1; *p == '/'; p += strcspn(p, "/")) {
        p++;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, "/"), p);
        char *slash = strstr(name, "~1");
        if (slash) {
            *slash = '/';
            memmove(slash + 1, slash + 2, strlen(slash + 2) + 1);
        }
        at = json_object_get(at, name);
    }
    CHECK(at != NULL);
    return at;
}

bool valid(const json_t *root, const json_t *s, const json_t *v, const char **why)
{
    const char *key;
    json_t *k;
    if (json_is_boolean(s))
        return json_is_true(s);
    json_object_foreach(own(s), key, k) {
        bool is = !strcmp(key, "$ref") ? valid(root, target(root, json_string_value(k)), v, why)
                                       : holds(root, s, key, k, v, why);
        if (!is) {
            *why = key;
            return false;
        }
    }
    return true;
}
