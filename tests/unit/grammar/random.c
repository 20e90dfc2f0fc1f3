/* SPDX-License-Identifier: Apache-2.0 */
/* random.c: random schemas from a seed, with every supported keyword in every place. Each statement draws once,
 * since compilers may evaluate arguments in any order. */
#include <stdio.h>

#include "tests/unit/grammar/walk.h"

static unsigned pick(uint64_t *seed, unsigned n) { return (unsigned)(walk_random(seed) % n); }

static json_t *schema(uint64_t *seed, unsigned depth, unsigned n_refs);

static json_t *string_schema(uint64_t *seed)
{
    static const char *const patterns[] = {"^[a-z]+$",
                                           "^\\d{3}-\\d{4}$",
                                           "^(red|green|blue)$",
                                           "[0-9]$",
                                           "^x",
                                           "a.c",
                                           "^[^\\s]{2,5}$",
                                           "^$",
                                           "^\\w+@\\w+\\.(com|org)$",
                                           "^[A-Z][a-z]*( [A-Z][a-z]*)*$",
                                           "^\"quoted\"$",
                                           "^\\\\$",
                                           "^[\\\\\"/]+$",
                                           "^\\u00e9+$",
                                           "^[à-ü]{1,3}$",
                                           "^a|b$",
                                           "^(?:ab){2,}$",
                                           "^[-+]?[0-9]+$",
                                           "^.*$",
                                           "^[^a-z]$"};
    static const char *const formats[] = {"date",  "time",     "date-time", "uuid", "ipv4", "ipv6",
                                          "email", "hostname", "duration",  "uri",  "other"};
    json_t *s = json_pack("{s:s}", "type", "string");
    switch (pick(seed, 5)) {
    case 0:
        json_object_set_new(s, "pattern", json_string(patterns[pick(seed, sizeof patterns / sizeof *patterns)]));
        break;
    case 1: json_object_set_new(s, "format", json_string(formats[pick(seed, sizeof formats / sizeof *formats)])); break;
    case 2: {
        unsigned min = pick(seed, 30);
        json_object_set_new(s, "minLength", json_integer(min));
        json_object_set_new(s, "maxLength", json_integer(min + pick(seed, 60)));
        break;
    }
    case 3: json_object_set_new(s, "maxLength", json_integer(pick(seed, 5000))); break;
    default: break;
    }
    return s;
}

static json_t *number_schema(uint64_t *seed)
{
    bool integer = pick(seed, 2);
    static const double steps[] = {1, 0.5, 0.01, 0.001, 10, 250};
    double step = integer ? 1 + pick(seed, 9) : steps[pick(seed, 6)], a = step * ((double)pick(seed, 4000) - 2000),
           b = a + step * (double)pick(seed, 3000);
    json_t *s = json_pack("{s:s}", "type", integer ? "integer" : "number");
    if (integer && pick(seed, 4) == 0) {
        json_object_set_new(s, "multipleOf", json_integer(1 + pick(seed, 40)));
        if (pick(seed, 2))
            json_object_set_new(s, "minimum", json_integer(0));
        return s;
    }
    if (pick(seed, 2))
        json_object_set_new(s, pick(seed, 3) ? "minimum" : "exclusiveMinimum", json_real(a));
    if (pick(seed, 2))
        json_object_set_new(s, pick(seed, 3) ? "maximum" : "exclusiveMaximum", json_real(b + 2 * step));
    return s;
}

static json_t *object_schema(uint64_t *seed, unsigned depth, unsigned n_refs)
{
    static const char *const names[] = {"name",    "id",  "a",     "b",    "nam",          "names", "caf\xc3\xa9",
                                        "quo\"te", "x y", "value", "type", "\xe6\x97\xa5", "item"};
    json_t *properties = json_object(), *required = json_array(),
           *s = json_pack("{s:s, s:o}", "type", "object", "properties", properties);
    unsigned n = pick(seed, 6);
    for (unsigned i = 0; i < n; i++) {
        const char *name = names[pick(seed, sizeof names / sizeof *names)];
        if (json_object_get(properties, name))
            continue;
        json_object_set_new(properties, name, schema(seed, depth + 1, n_refs));
        if (pick(seed, 2))
            json_array_append_new(required, json_string(name));
    }
    json_object_set_new(s, "required", required);
    if (pick(seed, 3) == 0)
        json_object_set_new(s, "additionalProperties", pick(seed, 2) ? json_false() : schema(seed, depth + 1, n_refs));
    if (pick(seed, 6) == 0)
        json_object_set_new(s, "minProperties", json_integer((json_int_t)json_array_size(required)));
    if (pick(seed, 6) == 0)
        json_object_set_new(s, "maxProperties", json_integer((json_int_t)json_object_size(properties) + pick(seed, 4)));
    return s;
}

static json_t *two_schemas(uint64_t *seed, unsigned depth, unsigned n_refs)
{
    json_t *second = schema(seed, depth + 1, n_refs), *first = schema(seed, depth + 1, n_refs);
    return json_pack("[o, o]", first, second);
}

static json_t *array_schema(uint64_t *seed, unsigned depth, unsigned n_refs)
{
    json_t *s = json_pack("{s:s, s:o}", "type", "array", "items", schema(seed, depth + 1, n_refs));
    unsigned min = pick(seed, 4);
    if (pick(seed, 2))
        json_object_set_new(s, "minItems", json_integer(min));
    if (pick(seed, 2))
        json_object_set_new(s, "maxItems", json_integer(min + pick(seed, 40)));
    if (pick(seed, 5) == 0)
        json_object_set_new(s, "prefixItems", two_schemas(seed, depth, n_refs));
    return s;
}

static json_t *union_schema(uint64_t *seed, unsigned depth, unsigned n_refs)
{
    bool told_apart = pick(seed, 3) == 0, both = !told_apart && pick(seed, 3) == 0; /* told apart by a constant */
    if (!told_apart && !both)
        return json_pack("{s:o}", "anyOf", two_schemas(seed, depth, n_refs));
    json_t *second = schema(seed, depth + 1, n_refs), *first = schema(seed, depth + 1, n_refs);
    if (told_apart)
        return json_pack("{s:[{s:s, s:{s:{s:s}, s:o}, s:[s]}, {s:s, s:{s:{s:s}, s:o}, s:[s]}]}", "oneOf", "type",
                         "object", "properties", "kind", "const", "one", "v", first, "required", "kind", "type",
                         "object", "properties", "kind", "const", "two", "w", second, "required", "kind");
    return json_pack("{s:[{s:s, s:{s:o}, s:[s]}, {s:{s:o}}]}", "allOf", "type", "object", "properties", "p", first,
                     "required", "p", "properties", "q", second);
}

static json_t *leaf(uint64_t *seed)
{
    switch (pick(seed, 8)) {
    case 0: return json_pack("{s:s}", "type", "boolean");
    case 1: return json_pack("{s:s}", "type", "null");
    case 2: return json_pack("{s:[s, i, b, n, {s:i}, [s]]}", "enum", "red \"x\"", 7, 1, "k", 1, "l");
    case 3: return json_pack("{s:s}", "const", "caf\xc3\xa9\n");
    case 4: return json_pack("{s:[s, s]}", "type", "integer", "null");
    case 5:
    case 6: return string_schema(seed);
    default: return number_schema(seed);
    }
}

static json_t *schema(uint64_t *seed, unsigned depth, unsigned n_refs)
{
    char ref[32];
    unsigned what = pick(seed, 10);
    if (depth > 3 || what < 4)
        return leaf(seed);
    if (what == 4 && n_refs && depth > 1) {
        snprintf(ref, sizeof ref, "#/$defs/d%u", pick(seed, n_refs));
        return json_pack("{s:s, s:s}", "$ref", ref, "description", "elsewhere");
    }
    if (what == 5 && depth > 0) {
        if (pick(seed, 3))
            return json_object();
        return json_pack("{s:s}", "type", pick(seed, 2) ? "object" : "array");
    }
    if (what < 8)
        return object_schema(seed, depth, n_refs);
    return what == 8 ? array_schema(seed, depth, n_refs) : union_schema(seed, depth, n_refs);
}

json_t *random_schema(uint64_t *seed)
{
    unsigned n_refs = pick(seed, 3);
    json_t *defs = json_object(), *s = schema(seed, 0, n_refs);
    for (unsigned i = 0; i < n_refs; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%u", i);
        json_object_set_new(defs, name, object_schema(seed, 1, n_refs));
    }
    json_object_set_new(s, "$defs", defs);
    return s;
}
