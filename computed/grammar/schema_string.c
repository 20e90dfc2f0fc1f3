/* SPDX-License-Identifier: Apache-2.0 */
/* schema_string.c: strings: lengths, patterns, formats. */
#include <errno.h>
#include <string.h>

#include "computed/grammar/schema.h"

#define IPV4_PART "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define YEAR_DATE "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])" /* there is no year 0 */
#define TIME      "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])"
#define DAY                                                                                                            \
    "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"                                   \
    "02-(0[1-9]|1[0-9]|2[0-8]))"
#define LABEL "[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?"
#define HOST  LABEL "(\\." LABEL "){0,4}"
#define H16   "[0-9a-f]{1,4}"

/* A format as a pattern of its texts, or of the usual ones. */
static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", YEAR_DATE DAY},
    {"time", TIME},
    {"date-time", YEAR_DATE DAY "T" TIME},
    {"duration", "P([0-9]{1,4}W|[0-9]{1,4}Y([0-9]{1,4}M([0-9]{1,4}D)?)?(T[0-9]{1,4}H)?|[0-9]{1,4}M([0-9]{1,4}D)?|[0-9]{"
                 "1,4}D(T[0-9]{1,4}H)?"
                 "|T([0-9]{1,4}H([0-9]{1,4}M([0-9]{1,4}S)?)?|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}S))"},
    {"email", "[A-Za-z0-9]([A-Za-z0-9_+-]{0,30})(\\.[A-Za-z0-9_+-]{1,30}){0,2}@" LABEL "(\\." LABEL "){1,3}"},
    {"hostname", HOST},
    {"ipv4", IPV4_PART "(\\." IPV4_PART "){3}"},
    {"ipv6", "(" H16 ":){7}" H16 "|::(" H16 "(:" H16 "){0,5})?|" H16 "(:" H16 "){0,2}::" H16 "(:" H16 "){0,2}"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"uri", "https?://" HOST
            "(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~-]{0,60}){0,8}(\\?[A-Za-z0-9._~=&-]{1,120})?(#[A-Za-z0-9._~-]{1,60})?"},
};

static node quoted(struct tree *t, node inside)
{
    return SEQ(t, ntx__tree_text(t, "\""), inside, ntx__tree_text(t, "\""));
}

static node by_format(struct tree *t, const char *name)
{
    for (size_t i = 0; name && i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(name, formats[i].name))
            return quoted(t, ntx__regex_plain(t, formats[i].pattern));
    return 0;
}

node ntx__schema_string(struct tree *t, const json_t *schema)
{
    const json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
    uint32_t min = ntx__schema_count(t, schema, "minLength", 0),
             max = ntx__schema_count(t, schema, "maxLength", NO_LIMIT);
    bool long_enough = json_object_get(schema, "minLength") || json_object_get(schema, "maxLength");
    node known = t->failed ? 0 : by_format(t, json_string_value(format));
    if (known && (pattern || long_enough))
        return ntx__tree_fail(t, -EINVAL, "format together with pattern, minLength or maxLength is not supported");
    if (known)
        return known;
    if (pattern && !json_is_string(pattern))
        return ntx__tree_fail(t, -EINVAL, "the schema's 'pattern' must be a string");
    if (pattern) {
        struct regex_request request = {json_string_value(pattern), json_string_length(pattern), min, max};
        return quoted(t, ntx__regex_read(t, &request));
    }
    if (!long_enough)
        return ntx__schema_common(t, C_STRING);
    return quoted(t, ntx__tree_repeat(t, ntx__schema_common(t, C_CHAR), min, max));
}
