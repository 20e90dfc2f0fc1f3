/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.c: parameters as tools have them: of MCP servers, OpenAPI documents, pydantic and zod. The shapes are those
 * that their generators write; names and combinations are drawn from a seed. */
#include "tests/unit/grammar/walk.h"

static unsigned pick(uint64_t *seed, unsigned n) { return (unsigned)(walk_random(seed) % n); }

/* The texts of members' schemas. */
static const char *const mcp[] = {
    "{\"type\":\"string\",\"description\":\"Path of the file\"}",
    "{\"type\":\"number\",\"description\":\"Lines\",\"default\":100}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1}",
    "{\"type\":\"string\",\"enum\":[\"asc\",\"desc\"],\"default\":\"asc\"}",
    "{\"type\":\"boolean\"}",
    "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}}",
    "{\"type\":\"object\",\"additionalProperties\":true}",
    "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"oldText\":{\"type\":\"string\"},\"newText\":{"
    "\"type\":\"string\"}},\"required\":[\"oldText\",\"newText\"],\"additionalProperties\":false}}",
    "{\"type\":[\"string\",\"null\"]}",
    "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":\"string\"}}]}",
    "{}",
    "{\"type\":\"STRING\"}",
    "{\"type\":\"array\",\"items\":{}}",
    "{\"type\":\"object\",\"patternProperties\":{\"^[A-Za-z_][A-Za-z0-9_]*$\":{\"type\":\"string\"}},"
    "\"additionalProperties\":false}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true}",
};
static const char *const openapi[] = {
    "{\"type\":\"integer\",\"format\":\"int64\",\"minimum\":1,\"example\":7}",
    "{\"type\":\"string\",\"format\":\"date-time\",\"nullable\":true}",
    "{\"type\":\"string\",\"format\":\"uuid\"}",
    "{\"type\":\"integer\",\"minimum\":1,\"maximum\":100,\"default\":20}",
    "{\"type\":\"string\",\"pattern\":\"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$\",\"maxLength\":63}",
    "{\"type\":\"string\",\"pattern\":\"^(?!-)[a-z0-9-]{1,39}(?<!-)$\"}",
    "{\"type\":\"string\",\"format\":\"email\",\"maxLength\":254}",
    "{\"type\":\"number\",\"format\":\"double\",\"multipleOf\":0.01,\"minimum\":0}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"enum\":[\"read\",\"write\",\"admin\"]},\"uniqueItems\":true}",
    "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\"}}},{\"type\":\"object\","
    "\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":1}},\"required\":[\"name\"]}]}",
    "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"kind\":{\"type\":\"string\",\"enum\":[\"card\"]},\"number\":{"
    "\"type\":\"string\",\"pattern\":\"^[0-9]{13,19}$\"}},\"required\":[\"kind\",\"number\"]},{\"type\":\"object\","
    "\"properties\":{\"kind\":{\"type\":\"string\",\"enum\":[\"iban\"]}},\"required\":[\"kind\"]}],\"discriminator\":{"
    "\"propertyName\":\"kind\"}}",
    "{\"type\":\"string\",\"not\":{\"enum\":[\"\",\"none\"]}}",
    "{\"type\":\"object\",\"minProperties\":1,\"additionalProperties\":{\"type\":\"integer\"}}",
    "{\"type\":\"string\",\"format\":\"byte\"}",
    "{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}",
};
static const char *const pydantic[] = {
    "{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"string\",\"pattern\":\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"}],"
    "\"title\":\"Price\"}",
    "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}],\"default\":null,\"title\":\"N\"}",
    "{\"items\":{\"type\":\"string\"},\"title\":\"Tags\",\"type\":\"array\",\"uniqueItems\":true}",
    "{\"multipleOf\":0.01,\"title\":\"Amount\",\"type\":\"number\"}",
    "{\"exclusiveMinimum\":0,\"maximum\":1.5,\"type\":\"number\"}",
    "{\"additionalProperties\":{\"type\":\"integer\"},\"propertyNames\":{\"pattern\":\"^[a-z]+$\"},\"type\":"
    "\"object\"}",
    "{\"additionalProperties\":{\"type\":\"integer\"},\"propertyNames\":{\"enum\":[\"r\",\"g\",\"b\"]},\"type\":"
    "\"object\"}",
    "{\"patternProperties\":{\"^[a-z]{2}$\":{\"type\":\"string\"}},\"type\":\"object\"}",
    "{\"maxItems\":2,\"minItems\":2,\"prefixItems\":[{\"type\":\"number\"},{\"type\":\"number\"}],\"type\":\"array\"}",
    "{\"format\":\"uri\",\"maxLength\":2083,\"minLength\":1,\"type\":\"string\"}",
    "{\"format\":\"duration\",\"type\":\"string\"}",
    "{\"$ref\":\"#/$defs/Item\"}",
    "{\"items\":{\"$ref\":\"#/$defs/Item\"},\"type\":\"array\"}",
    "{\"const\":\"fixed\",\"title\":\"C\",\"type\":\"string\"}",
    "{\"$ref\":\"#/$defs/Colour\",\"default\":\"red\"}",
    "{\"items\":{\"$ref\":\"#/$defs/Colour\"},\"type\":\"array\",\"uniqueItems\":true}",
};
static const char *const zod[] = {
    "{\"type\":\"string\",\"minLength\":1,\"maxLength\":200}",
    "{\"type\":\"string\",\"format\":\"email\",\"pattern\":\"^(?!\\\\.)(?!.*\\\\.\\\\.)([A-Za-z0-9_'+\\\\-\\\\.]*)"
    "[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\\\-]*\\\\.)+[A-Za-z]{2,}$\"}",
    "{\"type\":\"integer\",\"exclusiveMinimum\":0,\"maximum\":9007199254740991}",
    "{\"type\":\"integer\",\"minimum\":-9007199254740991,\"maximum\":9007199254740991}",
    "{\"type\":\"string\",\"pattern\":\"^https:\\\\/\\\\/\"}",
    "{\"anyOf\":[{\"type\":\"string\",\"const\":\"a\"},{\"type\":\"string\",\"const\":\"b\"}]}",
    "{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},\"additionalProperties\":{\"type\":\"number\"}}",
    "{\"not\":{}}",
    "{\"type\":\"string\",\"pattern\":\"^[\\\\p{L}\\\\p{N}_ -]{1,32}$\"}",
    "{\"type\":\"array\",\"items\":[{\"type\":\"string\"},{\"type\":\"number\"}],\"minItems\":2,\"maxItems\":2}",
    "{\"allOf\":[{\"type\":\"string\",\"minLength\":3},{\"type\":\"string\",\"pattern\":\"^[a-z-]+$\"}]}",
    "{\"type\":[\"number\",\"null\"],\"multipleOf\":0.5}",
    "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
};

#define COUNT(x) (sizeof(x) / sizeof *(x))

static json_t *member(uint64_t *seed, unsigned kind)
{
    static const char *const *const lists[] = {mcp, openapi, pydantic, zod};
    static const unsigned n[] = {COUNT(mcp), COUNT(openapi), COUNT(pydantic), COUNT(zod)};
    return json_loads(lists[kind][pick(seed, n[kind])], JSON_DECODE_ANY, NULL);
}

/* Relations of members: conditions, dependencies, alternatives. */
static void relate(uint64_t *seed, json_t *s)
{
    static const char *const all[] = {
        "{\"if\":{\"properties\":{\"mode\":{\"const\":\"file\"}}},\"then\":{\"required\":[\"path\"]}}",
        "{\"allOf\":[{\"if\":{\"properties\":{\"mode\":{\"const\":\"file\"}},\"required\":[\"mode\"]},\"then\":{"
        "\"required\":[\"path\"]}},{\"if\":{\"properties\":{\"mode\":{\"const\":\"url\"}},\"required\":[\"mode\"]},"
        "\"then\":{\"required\":[\"url\"]}}]}",
        "{\"dependentRequired\":{\"path\":[\"mode\"]}}",
        "{\"anyOf\":[{\"required\":[\"path\"]},{\"required\":[\"url\"]}]}",
        "{\"oneOf\":[{\"required\":[\"path\"]},{\"required\":[\"url\"]}]}",
        "{\"not\":{\"required\":[\"path\",\"url\"]}}",
        "{\"dependencies\":{\"url\":[\"mode\"]}}",
        "{\"minProperties\":1}",
    };
    json_t *more = json_loads(all[pick(seed, COUNT(all))], 0, NULL),
           *fields = json_pack("{s:{s:s, s:[s, s, s]}, s:{s:s}, s:{s:s, s:s}}", "mode", "type", "string", "enum",
                               "file", "url", "none", "path", "type", "string", "url", "type", "string", "format",
                               "uri");
    json_object_update(json_object_get(s, "properties"), fields);
    json_object_update(s, more);
    json_decref(fields);
    json_decref(more);
}

json_t *tool_schema(uint64_t *seed)
{
    static const char *const names[] = {"query", "limit",  "filter", "owner", "repo",   "title", "body",
                                        "since", "labels", "amount", "items", "config", "tags",  "x-id"};
    const unsigned kind = pick(seed, 4), n = 1 + pick(seed, 6), related = pick(seed, 5), closed = pick(seed, 3);
    json_t *properties = json_object(), *required = json_array(),
           *s = json_pack("{s:s, s:o, s:o}", "type", "object", "properties", properties, "required", required);
    for (unsigned i = 0; i < n; i++) {
        const char *name = names[pick(seed, COUNT(names))];
        const bool is_new = !json_object_get(properties, name);
        json_t *one = member(seed, kind);
        if (is_new && pick(seed, 2) && json_object_size(one) != json_object_size(json_object_get(one, "not")) + 1)
            json_array_append_new(required, json_string(name));
        if (is_new)
            json_object_set(properties, name, one);
        json_decref(one);
    }
    if (closed)
        json_object_set_new(s, "additionalProperties", json_false());
    else if (pick(seed, 6) == 0)
        json_array_append_new(required, json_string("undeclared"));
    if (!related)
        relate(seed, s);
    if (kind == 2)
        json_object_set_new(
            s, "$defs",
            json_loads("{\"Item\":{\"properties\":{\"sku\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{3}-\\\\d{4}$\"},"
                       "\"parts\":{\"items\":{\"$ref\":\"#/$defs/Item\"},\"type\":\"array\"}},\"required\":[\"sku\"],"
                       "\"type\":\"object\"},\"Colour\":{\"enum\":[\"red\",\"green\",\"blue\"],\"type\":\"string\"}}",
                       0, NULL));
    if (kind == 3)
        json_object_set_new(s, "$schema", json_string("http://json-schema.org/draft-07/schema#"));
    return s;
}
