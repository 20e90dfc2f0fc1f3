/* SPDX-License-Identifier: Apache-2.0 */
/* text.c: reads the rules of a grammar's text. */
#include "computed/grammar/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/printable.h"

struct reader {
    struct tree *t;
    const char *p, *end, *start;
    unsigned nest;
};

static node fail_text(struct reader *r, const char *what)
{
    unsigned line = 1;
    for (const char *c = r->start; c < r->p; c++)
        line += *c == '\n';
    return ntx__tree_fail(r->t, -EINVAL, "line %u of the grammar: %s", line, what);
}

static bool skip_blanks(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void skip(struct reader *r)
{
    while (r->p < r->end && (skip_blanks(*r->p) || *r->p == '#')) {
        if (*r->p == '#')
            while (r->p < r->end && *r->p != '\n')
                r->p++;
        else
            r->p++;
    }
}

static bool at(const struct reader *r, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(r->end - r->p) >= n && !memcmp(r->p, text, n);
}

static bool take_literal(struct reader *r, const char *text)
{
    if (!at(r, text))
        return false;
    r->p += strlen(text);
    return true;
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
}

static size_t name_length(const struct reader *r)
{
    size_t n = 0;
    if (r->p < r->end && *r->p == '.')
        return 0;
    while (r->p + n < r->end && name_char(r->p[n]))
        n++;
    return n;
}

/* A rule begins here: a name, then ::= */
static bool rule_begins(const struct reader *r)
{
    struct reader q = *r;
    q.p += name_length(r);
    if (q.p == r->p)
        return false;
    skip(&q);
    return at(&q, "::=");
}

/* ---- characters */

static bool hex_digits(struct reader *r, unsigned n, uint32_t *out)
{
    uint32_t v = 0;
    for (unsigned i = 0; i < n; i++, r->p++) {
        if (r->p >= r->end || ntx__hex_digit(*r->p) < 0)
            return false;
        v = v << 4 | (uint32_t)ntx__hex_digit(*r->p);
    }
    *out = v;
    return v <= 0x10ffff;
}

/* Reads a UTF-8 character; invalid bytes are an error. */
static bool plain_char(struct reader *r, uint32_t *out)
{
    unsigned char c = (unsigned char)*r->p;
    unsigned n = ntx_utf8_bytes(c);
    if (!n || (size_t)(r->end - r->p) < n)
        return false;
    uint32_t v = n == 1 ? c : c & (0x7fu >> n);
    for (unsigned i = 1; i < n; i++) {
        if (((unsigned char)r->p[i] & 0xc0) != 0x80)
            return false;
        v = v << 6 | ((unsigned char)r->p[i] & 0x3f);
    }
    r->p += n;
    *out = v;
    return v <= 0x10ffff;
}

static bool one_char(struct reader *r, uint32_t *out)
{
    static const char from[] = "nrt\\\"[]-^'", to[] = "\n\r\t\\\"[]-^'";
    if (r->p >= r->end)
        return false;
    if (*r->p != '\\')
        return plain_char(r, out);
    if (++r->p >= r->end)
        return false;
    const char c = *r->p++, *f = c ? strchr(from, c) : NULL;
    if (f) {
        *out = (unsigned char)to[f - from];
        return true;
    }
    return (c == 'x' && hex_digits(r, 2, out)) || (c == 'u' && hex_digits(r, 4, out)) ||
           (c == 'U' && hex_digits(r, 8, out));
}

static size_t utf8(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = 2 + (c >= 0x800) + (c >= 0x10000);
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00u >> n & 0xf0) | c);
    return n;
}

/* Reads a quoted text into buf, which is large enough. -1: r has failed. */
static long quoted(struct reader *r, char *buf)
{
    size_t n = 0;
    while (r->p < r->end && *r->p != '"') {
        uint32_t c;
        if (!one_char(r, &c) || (c >= 0xd800 && c < 0xe000)) {
            fail_text(r, "no such escape or character in a text");
            return -1;
        }
        n += utf8(c, buf + n);
    }
    if (!take_literal(r, "\"")) {
        fail_text(r, "a text has no end");
        return -1;
    }
    return (long)n;
}

enum how { HOW_TEXT, HOW_UNTIL, HOW_MARK, HOW_CONTROL };

static node text_node(struct reader *r, enum how how)
{
    char *buf = malloc((size_t)(r->end - r->p) + 2);
    if (!buf)
        return ntx__tree_fail(r->t, -ENOMEM, "no memory for the grammar");
    buf[0] = NTX_GRAMMAR_CONTROL;
    long n = quoted(r, buf + 1);
    node out = 0;
    if (n >= 0 && how == HOW_TEXT)
        out = ntx__tree_bytes(r->t, buf + 1, (size_t)n);
    else if (n > 64 || n == 0)
        out = fail_text(r, "a mark has 1 to 64 bytes");
    else if (n > 0 && how == HOW_UNTIL)
        out = ntx__tree_until(r->t, buf + 1, (size_t)n);
    else if (n > 0 && how == HOW_CONTROL)
        out = ntx__tree_bytes(r->t, buf, (size_t)n + 1);
    else if (n > 0)
        out = ALT(r->t, ntx__tree_bytes(r->t, buf + 1, (size_t)n), ntx__tree_bytes(r->t, buf, (size_t)n + 1));
    free(buf);
    return out;
}

enum { RANGES = 1024 };

/* The complement of ranges in any order. */
static node all_but(struct tree *t, struct range *r, size_t n)
{
    struct range out[RANGES + 1];
    uint32_t from = 0;
    size_t k = 0;
    for (;;) {
        const struct range *next = NULL;
        for (size_t i = 0; i < n; i++)
            if (r[i].hi >= from && (!next || r[i].lo < next->lo))
                next = &r[i];
        if (!next)
            break;
        if (next->lo > from)
            out[k++] = (struct range){from, next->lo - 1};
        from = next->hi + 1;
    }
    if (from <= 0x10ffff)
        out[k++] = (struct range){from, 0x10ffff};
    return ntx__tree_chars(t, out, k);
}

static node class_node(struct reader *r)
{
    struct range list[RANGES];
    size_t n = 0;
    bool not = take_literal(r, "^");
    while (r->p < r->end && *r->p != ']') {
        struct range *x = &list[n];
        if (n == RANGES)
            return fail_text(r, "too many characters in brackets");
        if (!one_char(r, &x->lo))
            return fail_text(r, "no such escape or character in brackets");
        x->hi = x->lo;
        if (r->p + 1 < r->end && r->p[0] == '-' && r->p[1] != ']') {
            r->p++;
            if (!one_char(r, &x->hi) || x->hi < x->lo)
                return fail_text(r, "a range in brackets has no end, or one before its beginning");
        }
        n++;
    }
    if (!take_literal(r, "]"))
        return fail_text(r, "brackets have no end");
    return not ? all_but(r->t, list, n) : ntx__tree_chars(r->t, list, n);
}

/* ---- expressions */

static node alternatives(struct reader *r);

static node json_node(struct reader *r, bool closest)
{
    size_t took = 0;
    r->t->closest = closest;
    node out = ntx__schema_read(r->t, r->p, (size_t)(r->end - r->p), &took);
    r->p += took;
    return out;
}

/* A regular expression, in quotes as any text. */
static node regex_node(struct reader *r)
{
    skip(r);
    if (!take_literal(r, "\""))
        return fail_text(r, "%regex is followed by a text");
    char *buf = malloc((size_t)(r->end - r->p) + 1);
    if (!buf)
        return ntx__tree_fail(r->t, -ENOMEM, "no memory for the grammar");
    long n = quoted(r, buf);
    node out = n >= 0 ? ntx__regex_whole(r->t, buf, (size_t)n) : 0;
    free(buf);
    return out;
}

static node parenthesised(struct reader *r)
{
    if (++r->nest > NEST)
        return fail_text(r, "parentheses within each other are too many");
    node out = alternatives(r);
    r->nest--;
    skip(r);
    return take_literal(r, ")") ? out : fail_text(r, "a parenthesis has no end");
}

static node symbol(struct reader *r)
{
    static const struct range any = {0, 0x10ffff};
    size_t n;
    if (take_literal(r, "\""))
        return text_node(r, HOW_TEXT);
    if (take_literal(r, "~\""))
        return text_node(r, HOW_UNTIL);
    if (take_literal(r, "@\""))
        return text_node(r, HOW_MARK);
    if (take_literal(r, "@@\""))
        return text_node(r, HOW_CONTROL);
    if (take_literal(r, "["))
        return class_node(r);
    if (take_literal(r, "("))
        return parenthesised(r);
    if (take_literal(r, "%json"))
        return json_node(r, false);
    if (take_literal(r, "%closest"))
        return json_node(r, true);
    if (take_literal(r, "%regex"))
        return regex_node(r);
    if (take_literal(r, "."))
        return ntx__tree_chars(r->t, &any, 1);
    if (!(n = name_length(r)))
        return fail_text(
            r, "a text, brackets, a parenthesis or a rule's name is missing, or a character has no meaning here");
    node out = ntx__tree_rule(r->t, ntx__tree_rule_named(r->t, r->p, n));
    r->p += n;
    return out;
}

static bool read_count(struct reader *r, uint32_t *out)
{
    uint64_t v = 0;
    const char *from = r->p;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++)
        v = v > UINT32_MAX ? v : v * 10 + (uint64_t)(*r->p - '0');
    *out = v < UINT32_MAX ? (uint32_t)v : UINT32_MAX - 1;
    return r->p > from;
}

static node braces(struct reader *r, node what)
{
    uint32_t min, max;
    skip(r);
    if (!read_count(r, &min))
        return fail_text(r, "{m}, {m,} or {m,n} is expected");
    skip(r);
    max = min;
    if (take_literal(r, ",")) {
        skip(r);
        if (!read_count(r, &max))
            max = NO_LIMIT;
    }
    skip(r);
    if (!take_literal(r, "}") || max < min)
        return fail_text(r, "{m}, {m,} or {m,n} with m <= n is expected");
    return ntx__tree_repeat(r->t, what, min, max);
}

static node repeated(struct reader *r)
{
    node out = symbol(r);
    for (unsigned n = 0; !r->t->failed && r->p < r->end; n++) {
        if (n == NEST)
            return fail_text(r, "too many repetitions of each other");
        if (take_literal(r, "*"))
            out = ntx__tree_repeat(r->t, out, 0, NO_LIMIT);
        else if (take_literal(r, "+"))
            out = ntx__tree_repeat(r->t, out, 1, NO_LIMIT);
        else if (take_literal(r, "?"))
            out = ntx__tree_repeat(r->t, out, 0, 1);
        else if (take_literal(r, "{"))
            out = braces(r, out);
        else
            break;
    }
    return out;
}

static node sequence(struct reader *r)
{
    node list = ntx__tree_list(r->t, N_SEQ);
    for (skip(r); !r->t->failed && r->p < r->end && *r->p != '|' && *r->p != ')' && !rule_begins(r); skip(r))
        ntx__tree_add(r->t, list, repeated(r));
    return list;
}

static node alternatives(struct reader *r)
{
    node first = sequence(r), list = 0;
    for (skip(r); !r->t->failed && take_literal(r, "|"); skip(r)) {
        list = list ? list : ALT(r->t, first);
        ntx__tree_add(r->t, list, sequence(r));
    }
    return list ? list : first;
}

static void rule(struct reader *r)
{
    size_t n = name_length(r);
    uint32_t id = ntx__tree_rule_named(r->t, r->p, n);
    if (!n || r->t->failed) {
        fail_text(r, "a rule begins with its name and ::=");
        return;
    }
    if (r->t->rules[id].defined) {
        fail_text(r, "a rule of this name is there already");
        return;
    }
    r->p += n;
    skip(r);
    if (!take_literal(r, "::=")) {
        fail_text(r, "a rule begins with its name and ::=");
        return;
    }
    node body = alternatives(r);
    ntx__tree_define(r->t, id, body);
    skip(r);
    if (!r->t->failed && r->p < r->end && !rule_begins(r))
        fail_text(r, "a parenthesis is closed that was not opened");
}

int ntx__text_read(struct tree *t, const char *text, size_t len)
{
    struct reader r = {.t = t, .p = text, .end = text + len, .start = text};
    for (skip(&r); !t->failed && r.p < r.end; skip(&r))
        rule(&r);
    for (uint32_t i = 0; !t->failed && i < t->n_rules; i++)
        if (!t->rules[i].defined)
            ntx__tree_fail(t, -EINVAL, "the grammar has no rule '%.60s'", t->rules[i].name ? t->rules[i].name : "");
    return t->failed;
}
