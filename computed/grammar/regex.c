/* SPDX-License-Identifier: Apache-2.0 */
/* regex.c: regular expressions of schemas (ECMA-262): literals, classes, groups, alternatives, quantifiers; ^ and $
 * at the ends of a top-level alternative. \d, \w, \s and their complements are ASCII classes, so that every dialect
 * agrees. Lookaround, backreferences and \b are refused. In a JSON string, characters that need an escape are
 * written as one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "computed/grammar/impl.h"

#define UNBOUNDED UINT64_MAX
enum { RANGES = 512 };

struct reader {
    struct tree *t;
    const char *p, *end;
    bool plain; /* not inside a JSON string */
    unsigned nest;
};

struct part {
    node n;
    uint64_t lo, hi; /* characters */
    node what;       /* set if the part is one repeated character: `from` to `to` times */
    uint32_t from, to;
    bool starts, ends; /* it has these anchors */
};

static struct part fail_regex(struct reader *r, const char *why)
{
    ntx__tree_fail(r->t, -EINVAL, "the pattern %s", why);
    return (struct part){0};
}

/* ---- sets of characters */

struct chars {
    struct range list[RANGES];
    size_t n;
    bool ascii; /* it contains a class like \w */
};

static void add_range(struct chars *c, uint32_t lo, uint32_t hi)
{
    if (c->n < RANGES && lo <= hi)
        c->list[c->n++] = (struct range){lo, hi};
}

/* Removes the characters lo to hi from c. */
static void take_out(struct chars *c, uint32_t lo, uint32_t hi)
{
    size_t n = c->n;
    for (size_t i = 0; i < n; i++) {
        struct range r = c->list[i];
        if (r.hi < lo || r.lo > hi)
            continue;
        c->list[i] = r.lo < lo ? (struct range){r.lo, lo - 1} : (struct range){1, 0};
        if (r.hi > hi)
            add_range(c, hi + 1, r.hi);
    }
    for (size_t i = 0; i < c->n;)
        if (c->list[i].lo > c->list[i].hi)
            c->list[i] = c->list[--c->n];
        else
            i++;
}

static void invert(struct chars *c)
{
    struct chars out = {.n = 0, .ascii = c->ascii};
    add_range(&out, 0, c->ascii ? 0x7f : 0x10ffff);
    for (size_t i = 0; i < c->n; i++)
        take_out(&out, c->list[i].lo, c->list[i].hi);
    *c = out;
}

static bool has(const struct chars *c, uint32_t x)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->list[i].lo <= x && x <= c->list[i].hi)
            return true;
    return false;
}

/* The escape of x in a JSON string. NUL has no escape that all readers accept. */
static node escape(struct tree *t, uint32_t x)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    char text[8] = "\\u00";
    const char *f = strchr(from, (int)x);
    text[4] = "0123456789abcdef"[x >> 4];
    text[5] = "0123456789abcdef"[x & 15];
    if (f) {
        text[1] = to[f - from];
        text[2] = 0;
    }
    return ntx__tree_text(t, text);
}

static node chars_node(struct reader *r, struct chars *c)
{
    if (r->plain)
        return ntx__tree_chars(r->t, c->list, c->n);
    node list = ntx__tree_list(r->t, N_ALT);
    for (uint32_t x = 1; x < 0x5d; x++)
        if ((x < 0x20 || x == '"' || x == '\\') && has(c, x))
            ntx__tree_add(r->t, list, escape(r->t, x));
    take_out(c, 0, 0x1f);
    take_out(c, '"', '"');
    take_out(c, '\\', '\\');
    ntx__tree_add(r->t, list, ntx__tree_chars(r->t, c->list, c->n));
    return list;
}

static struct part one(struct reader *r, struct chars *c)
{
    if (c->n >= RANGES)
        return fail_regex(r, "has too many characters in brackets");
    node n = chars_node(r, c);
    return (struct part){.n = n, .lo = 1, .hi = 1, .what = n, .from = 1, .to = 1};
}

/* Adds \d and the like to c; false: not a class. */
static bool class_escape(char e, struct chars *c)
{
    struct chars s = {.ascii = true};
    switch (e | 0x20) {
    case 'd': add_range(&s, '0', '9'); break;
    case 'w': add_range(&s, '0', '9'), add_range(&s, 'a', 'z'), add_range(&s, 'A', 'Z'), add_range(&s, '_', '_'); break;
    case 's': add_range(&s, '\t', '\r'), add_range(&s, ' ', ' '); break;
    default: return false;
    }
    if (e < 'a')
        invert(&s);
    for (size_t i = 0; i < s.n; i++)
        add_range(c, s.list[i].lo, s.list[i].hi);
    c->ascii = true;
    return true;
}

static bool hex_digits(struct reader *r, unsigned n, uint32_t *out)
{
    *out = 0;
    for (unsigned i = 0; i < n; i++, r->p++) {
        if (r->p >= r->end || ntx__hex_digit(*r->p) < 0)
            return false;
        *out = *out << 4 | (uint32_t)ntx__hex_digit(*r->p);
    }
    return *out < 0xd800 || *out > 0xdfff;
}

/* Reads the character after a backslash. */
static bool escaped(struct reader *r, uint32_t *out)
{
    static const char from[] = "nrtfv", to[] = "\n\r\t\f\v";
    if (r->p >= r->end)
        return false;
    char e = *r->p++;
    const char *f = e ? strchr(from, e) : NULL;
    if (f)
        return *out = (unsigned char)to[f - from], true;
    if (e == 'x' || e == 'u')
        return hex_digits(r, e == 'x' ? 2 : 4, out);
    *out = (unsigned char)e;
    return !((e >= '0' && e <= '9') || (e >= 'a' && e <= 'z') || (e >= 'A' && e <= 'Z') ||
             (unsigned char)e >= 0x80); /* escaped punctuation is itself */
}

/* jansson has checked that the text is UTF-8. */
static uint32_t utf8(struct reader *r)
{
    unsigned char c = (unsigned char)*r->p++;
    unsigned n = (c >= 0x80) + (c >= 0xe0) + (c >= 0xf0); /* bytes that follow */
    uint32_t v = n ? c & (0x3fu >> n) : c;
    for (; n && r->p < r->end; n--)
        v = v << 6 | ((unsigned char)*r->p++ & 0x3f);
    return v;
}

/* Reads one end of a range in brackets, or a class into c (*class). */
static bool bracket_char(struct reader *r, struct chars *c, uint32_t *out, bool *class)
{
    *class = false;
    if (*r->p != '\\')
        return *out = utf8(r), true;
    if (++r->p < r->end && class_escape(*r->p, c)) {
        r->p++;
        return *class = true;
    }
    if (r->p < r->end && *r->p == 'b')
        return r->p++, *out = '\b', true;
    return escaped(r, out);
}

static struct part brackets(struct reader *r)
{
    struct chars c = {.n = 0};
    bool not = r->p < r->end && *r->p == '^', class, class2;
    r->p += not ;
    while (r->p < r->end && *r->p != ']') {
        uint32_t lo, hi;
        if (!bracket_char(r, &c, &lo, &class))
            return fail_regex(r, "has an escape in brackets that is not known");
        if (class)
            continue;
        hi = lo;
        if (r->end - r->p > 1 && r->p[0] == '-' && r->p[1] != ']') {
            r->p++;
            if (!bracket_char(r, &c, &hi, &class2) || class2 || hi < lo)
                return fail_regex(r, "has a range in brackets that is none");
        }
        add_range(&c, lo, hi);
    }
    if (r->p++ >= r->end)
        return fail_regex(r, "has brackets without an end");
    if (not )
        invert(&c);
    return one(r, &c);
}

static struct part any_char(struct reader *r, bool lines)
{
    struct chars c = {.n = 0};
    add_range(&c, 1, 0x10ffff);
    if (!lines) {
        take_out(&c, '\n', '\n');
        take_out(&c, '\r', '\r');
        take_out(&c, 0x2028, 0x2029);
    }
    return one(r, &c);
}

/* ---- expressions */

static struct part alternatives(struct reader *r);

static struct part parenthesised(struct reader *r)
{
    if (++r->nest > NEST)
        return fail_regex(r, "has too many parentheses within each other");
    if (r->p < r->end && *r->p == '?') {
        if (r->end - r->p < 2 || r->p[1] != ':')
            return fail_regex(r, "has a group that looks around, or is named: that is not supported");
        r->p += 2;
    }
    struct part out = alternatives(r);
    r->nest--;
    if (r->p >= r->end || *r->p++ != ')')
        return fail_regex(r, "has a parenthesis without an end");
    if (out.starts || out.ends)
        return fail_regex(r, "has ^ or $ within parentheses: that is not supported");
    out.what = 0;
    return out;
}

static struct part atom(struct reader *r)
{
    struct chars c = {.n = 0};
    uint32_t x;
    char at = *r->p;
    if (at == '[')
        return r->p++, brackets(r);
    if (at == '(')
        return r->p++, parenthesised(r);
    if (at == '.')
        return r->p++, any_char(r, false);
    if (at == '*' || at == '+' || at == '?' || at == '{')
        return fail_regex(r, "has a quantifier with nothing before it");
    if (at == '^' || at == '$')
        return fail_regex(r, "has ^ or $ in its middle: that is not supported");
    if (at != '\\') {
        x = utf8(r);
    } else {
        r->p++;
        if (r->p < r->end && class_escape(*r->p, &c))
            return r->p++, one(r, &c);
        if (!escaped(r, &x))
            return fail_regex(r, "has an escape that is not supported (backreferences, \\b, \\p are not)");
    }
    add_range(&c, x, x);
    return one(r, &c);
}

static bool read_count(struct reader *r, uint32_t *out)
{
    const char *from = r->p;
    uint64_t v = 0;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++)
        v = v > 1u << 30 ? v : v * 10 + (uint64_t)(*r->p - '0');
    *out = (uint32_t)(v < 1u << 30 ? v : 1u << 30);
    return r->p > from;
}

/* Reads *min, *max of a quantifier; false: none. */
static bool quantifier(struct reader *r, uint32_t *min, uint32_t *max)
{
    char q = r->p < r->end ? *r->p : 0;
    if (q != '*' && q != '+' && q != '?' && q != '{')
        return false;
    r->p++;
    *min = q == '+';
    *max = q == '?' ? 1 : NO_LIMIT;
    if (q == '{') {
        bool good = read_count(r, min);
        *max = *min;
        if (good && r->p < r->end && *r->p == ',' && r->p++ && !read_count(r, max))
            *max = NO_LIMIT;
        if (!good || r->p >= r->end || *r->p++ != '}' || *max < *min)
            fail_regex(r, "has braces that are no quantifier");
    }
    if (r->p < r->end && *r->p == '?')
        r->p++; /* lazy quantifiers match the same texts */
    return true;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    if (!a || !b)
        return 0;
    return a > (1ull << 40) / b ? UNBOUNDED : a * b;
}
static uint64_t plus(uint64_t a, uint64_t b) { return a == UNBOUNDED || b == UNBOUNDED ? UNBOUNDED : a + b; }

static struct part repeated(struct reader *r)
{
    struct part p = atom(r);
    uint32_t min, max;
    if (!r->t->failed && quantifier(r, &min, &max)) {
        bool once = p.what != 0;
        p.n = ntx__tree_repeat(r->t, p.n, min, max);
        p.lo = times(p.lo, min);
        if (max != NO_LIMIT)
            p.hi = times(p.hi, max);
        else if (p.hi)
            p.hi = UNBOUNDED;
        p.from = once ? min : 0;
        p.to = once ? max : 0;
        if (!r->t->failed && r->p < r->end && strchr("*+?{", *r->p))
            return fail_regex(r, "has a quantifier of a quantifier");
    }
    return p;
}

static struct part sequence(struct reader *r)
{
    struct part out = {.n = ntx__tree_list(r->t, N_SEQ)};
    unsigned n = 0;
    while (r->p < r->end && *r->p == '^') {
        r->p++;
        out.starts = true;
    }
    while (!r->t->failed && r->p < r->end && *r->p != '|' && *r->p != ')') {
        if (*r->p == '$' && (r->p + 1 == r->end || r->p[1] == '|' || r->p[1] == ')')) {
            r->p++;
            out.ends = true;
            break;
        }
        struct part p = repeated(r);
        ntx__tree_add(r->t, out.n, p.n);
        out.lo = plus(out.lo, p.lo);
        out.hi = plus(out.hi, p.hi);
        out.what = n++ ? 0 : p.what;
        out.from = p.from;
        out.to = p.to;
    }
    return out;
}

/* Without an anchor, a top-level alternative matches anywhere in the text. */
static struct part framed(struct reader *r, struct part p)
{
    if (r->plain || r->nest || r->t->failed || (p.starts && p.ends))
        return p;
    node list = ntx__tree_list(r->t, N_SEQ);
    if (!p.starts)
        ntx__tree_add(r->t, list, ntx__tree_repeat(r->t, any_char(r, true).n, 0, NO_LIMIT));
    ntx__tree_add(r->t, list, p.n);
    if (!p.ends)
        ntx__tree_add(r->t, list, ntx__tree_repeat(r->t, any_char(r, true).n, 0, NO_LIMIT));
    return (struct part){.n = list, .lo = p.lo, .hi = UNBOUNDED, .starts = p.starts, .ends = p.ends};
}

static struct part alternatives(struct reader *r)
{
    struct part out = framed(r, sequence(r));
    node list = 0;
    while (!r->t->failed && r->p < r->end && *r->p == '|') {
        r->p++;
        struct part p = framed(r, sequence(r));
        list = list ? list : ALT(r->t, out.n);
        ntx__tree_add(r->t, list, p.n);
        out = (struct part){.n = list,
                            .lo = p.lo < out.lo ? p.lo : out.lo,
                            .hi = p.hi > out.hi ? p.hi : out.hi,
                            .starts = out.starts | p.starts,
                            .ends = out.ends | p.ends};
    }
    return out;
}

node ntx__regex_read(struct tree *t, const struct regex_request *a)
{
    struct reader r = {.t = t, .p = a->text, .end = a->text + a->len};
    struct part p = alternatives(&r);
    uint64_t max = a->max == NO_LIMIT ? UNBOUNDED : a->max;
    if (!t->failed && r.p < r.end)
        fail_regex(&r, "closes a parenthesis that was not opened");
    if (t->failed || (p.lo >= a->min && p.hi <= max))
        return p.n;
    if (p.lo > max || p.hi < a->min)
        return ntx__tree_list(t, N_NEVER);
    if (p.what && p.starts && p.ends) /* ^x*$ */
        return ntx__tree_repeat(t, p.what, p.from > a->min ? p.from : a->min, p.to < a->max ? p.to : a->max);
    return ntx__tree_fail(t, -EINVAL,
                          "pattern together with minLength or maxLength is not supported, but where the pattern keeps "
                          "to them itself or is one class that is repeated (^[a-z]+$)");
}

node ntx__regex_plain(struct tree *t, const char *text)
{
    struct reader r = {.t = t, .p = text, .end = text + strlen(text), .plain = true};
    return alternatives(&r).n;
}
