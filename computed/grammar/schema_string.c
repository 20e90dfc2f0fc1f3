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

/* A format as a pattern of its texts, or of the usual ones. brief: of some of at most brief_most characters, without
 * the ambiguity that makes automata large; for a maxLength, and for patterns beside the format. */
static const struct format {
    const char *name, *pattern;
    uint32_t least, most; /* characters */
    const char *brief;
    uint32_t brief_most;
} formats[] = {
    {"date", YEAR_DATE DAY, 10, 10, NULL, 0},
    {"time", TIME, 9, 21, NULL, 0},
    {"date-time", YEAR_DATE DAY "T" TIME, 20, 32, NULL, 0},
    {"duration",
     "P([0-9]{1,4}W|[0-9]{1,4}Y([0-9]{1,4}M([0-9]{1,4}D)?)?(T[0-9]{1,4}H)?|[0-9]{1,4}M([0-9]{1,4}D)?|[0-9]{1,4}D(T[0-9]"
     "{1,4}H)?|T([0-9]{1,4}H([0-9]{1,4}M([0-9]{1,4}S)?)?|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}S))",
     3, 22, NULL, 0},
    {"email", "[A-Za-z0-9]([A-Za-z0-9_+-]{0,30})(\\.[A-Za-z0-9_+-]{1,30}){0,2}@" LABEL "(\\." LABEL "){1,3}", 5, 225,
     "[A-Za-z0-9][A-Za-z0-9_+-]{0,11}(\\.[A-Za-z0-9_+-]{1,11})?@[a-z0-9]{1,12}(\\.[a-z0-9]{1,5}){1,2}", 49},
    {"hostname", HOST, 1, 164, "[a-z0-9]{1,20}(\\.[a-z0-9]{1,12}){0,3}", 59},
    {"ipv4", IPV4_PART "(\\." IPV4_PART "){3}", 7, 15, NULL, 0},
    {"ipv6", "(" H16 ":){7}" H16 "|::(" H16 "(:" H16 "){0,5})?|" H16 "(:" H16 "){0,2}::" H16 "(:" H16 "){0,2}", 2, 39,
     NULL, 0},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", 36, 36, NULL, 0},
    {"uri",
     "https?://" HOST
     "(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~-]{0,60}){0,8}(\\?[A-Za-z0-9._~=&-]{1,120})?(#[A-Za-z0-9._~-]{1,60})?",
     8, 900,
     "https?://[a-z0-9]{1,20}(\\.[a-z0-9]{1,12}){1,3}(/[A-Za-z0-9._~-]{0,30}){0,3}(\\?[A-Za-z0-9._~=&-]{1,40})?", 201},
};

static node quoted(struct tree *t, node inside)
{
    return SEQ(t, ntx__tree_text(t, "\""), inside, ntx__tree_text(t, "\""));
}

static const struct format *find_format(const json_t *schema)
{
    const json_t *format = json_object_get(schema, "format");
    for (size_t i = 0; json_is_string(format) && i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(json_string_value(format), formats[i].name))
            return &formats[i];
    return NULL;
}

/* ---- texts for which several things hold */

void ntx__texts_pattern(struct tree *t, struct texts *x, const json_t *pattern)
{
    const size_t room = DFA_PARTS - x->n;
    x->n += room ? ntx__regex_parts(t, json_string_value(pattern), json_string_length(pattern), x->part + x->n, room)
                 : (size_t)(ntx__tree_fail(t, -EINVAL, "the schema has too many patterns of one text"), 0);
}

void ntx__texts_add(struct tree *t, struct texts *x, node n, bool not )
{
    if (x->n < DFA_PARTS)
        x->part[x->n++] = (struct dfa_part){n, not };
    else
        ntx__tree_fail(t, -EINVAL, "the schema asks for too much of one text");
}

static node any_chars(struct tree *t, uint32_t min, uint32_t max)
{
    static const struct range any = {1, 0x10ffff};
    return ntx__tree_repeat(t, ntx__tree_chars(t, &any, 1), min, max);
}

/* Bytes of UTF-8 as a sequence of characters. */
node ntx__texts_literal(struct tree *t, const char *s, size_t len)
{
    node list = ntx__tree_list(t, N_SEQ);
    for (size_t i = 0; i < len;) {
        const unsigned char c = (unsigned char)s[i++];
        unsigned n = (c >= 0xc0) + (c >= 0xe0) + (c >= 0xf0);
        uint32_t v = n ? c & (0x3fu >> n) : c;
        for (; n && i < len; n--)
            v = v << 6 | ((unsigned char)s[i++] & 0x3f);
        const struct range r = {v, v};
        ntx__tree_add(t, list, ntx__tree_chars(t, &r, 1));
    }
    return list;
}

static void add_patterns(struct tree *t, struct texts *x, const json_t *pattern)
{
    size_t i;
    json_t *one;
    if (json_is_string(pattern))
        ntx__texts_pattern(t, x, pattern);
    json_array_foreach((json_t *)(uintptr_t)pattern, i, one)
        if (!t->failed && json_is_string(one))
            ntx__texts_pattern(t, x, one);
}

/* brief: by the format's brief pattern, if it has one. */
static void add_all(struct tree *t, struct texts *x, const json_t *schema, bool brief)
{
    const struct format *format = find_format(schema);
    brief = brief && format && format->brief;
    const uint32_t min = ntx__schema_count(t, schema, "minLength", 0),
                   max = ntx__schema_count(t, schema, "maxLength", NO_LIMIT);
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    size_t i;
    json_t *v;
    node any = list || one ? ntx__tree_list(t, N_ALT) : 0;
    add_patterns(t, x, json_object_get(schema, "pattern"));
    if (format && !t->failed)
        ntx__texts_add(t, x, ntx__regex_plain(t, brief ? format->brief : format->pattern), false);
    const bool fits = format && min <= format->least && max >= (brief ? format->brief_most : format->most);
    if (!t->failed && !fits && (min || max != NO_LIMIT))
        ntx__texts_add(t, x, any_chars(t, min, max), false);
    json_array_foreach((json_t *)(uintptr_t)list, i, v)
        if (json_is_string(v) && (!one || json_equal(one, v)))
            ntx__tree_add(t, any, ntx__texts_literal(t, json_string_value(v), json_string_length(v)));
    if (!list && json_is_string(one))
        ntx__tree_add(t, any, ntx__texts_literal(t, json_string_value(one), json_string_length(one)));
    if (any)
        ntx__texts_add(t, x, any, false);
}

void ntx__texts_schema(struct tree *t, struct texts *x, const json_t *schema) { add_all(t, x, schema, false); }

node ntx__texts_node(struct tree *t, struct texts *x)
{
    if (!x->n)
        ntx__texts_add(t, x, any_chars(t, 0, NO_LIMIT), false);
    node out = ntx__dfa(t, x->part, x->n, true);
    if (!out)
        ntx__tree_fail(t, -EINVAL,
                       "what the schema asks of one text (pattern, format, lengths, names) takes too large "
                       "an automaton together");
    return out;
}

/* ---- */

static void check_pattern(struct tree *t, const json_t *schema)
{
    const json_t *pattern = json_object_get(schema, "pattern");
    if (pattern && !json_is_string(pattern) && !(json_is_array(pattern) && ntx__schema_made(t, pattern)))
        ntx__tree_fail(t, -EINVAL, "the schema's 'pattern' must be a string");
}

/* The inside, where several things hold. */
static node several(struct tree *t, const json_t *schema, bool brief)
{
    struct texts x = {.n = 0};
    size_t i;
    json_t *one;
    add_all(t, &x, schema, brief);
    json_array_foreach(json_object_get(schema, NTX__NOT_TEXTS), i, one)
        if (json_is_string(one) && !t->failed)
            ntx__texts_add(t, &x, ntx__texts_literal(t, json_string_value(one), json_string_length(one)), true);
    if (t->failed)
        return 0;
    return brief ? ntx__texts_node(t, &x) : ntx__dfa(t, x.part, x.n, true);
}

/* The inside of a string. 0: t has failed. */
static node inside(struct tree *t, const json_t *schema)
{
    const json_t *pattern = json_object_get(schema, "pattern");
    const struct format *format = find_format(schema);
    const uint32_t min = ntx__schema_count(t, schema, "minLength", 0),
                   max = ntx__schema_count(t, schema, "maxLength", NO_LIMIT);
    if (t->failed)
        return 0;
    const bool excluded = json_object_get(schema, NTX__NOT_TEXTS);
    if (!pattern && !format && !excluded)
        return ntx__tree_repeat(t, ntx__schema_common(t, C_CHAR), min, max);
    if (format && !pattern && !excluded && min <= format->least) {
        if (max >= format->most)
            return ntx__regex_plain(t, format->pattern);
        if (format->brief && max >= format->brief_most)
            return ntx__regex_plain(t, format->brief);
    }
    if (!format && !excluded && json_is_string(pattern)) {
        const struct regex_request request = {json_string_value(pattern), json_string_length(pattern), min, max};
        const node out = ntx__regex_read(t, &request);
        if (t->failed || out != NTX__REGEX_DFA)
            return out;
    }
    const node out = several(t, schema, false);
    return out || t->failed ? out : several(t, schema, true);
}

node ntx__schema_string(struct tree *t, const json_t *schema)
{
    static const char *const order[] = {"pattern", "format", NTX__NOT_TEXTS, NULL};
    check_pattern(t, schema);
    if (t->failed)
        return 0;
    node out = inside(t, schema);
    for (size_t i = 0; order[i] && t->failed; i++) {
        if (!json_object_get(schema, order[i]) || !ntx__schema_forgive(t, schema, order[i]))
            continue;
        if (!(schema = ntx__schema_without(t, schema, order[i])))
            return 0;
        out = inside(t, schema);
    }
    return t->failed ? 0 : quoted(t, out);
}
