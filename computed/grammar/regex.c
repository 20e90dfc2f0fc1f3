/* SPDX-License-Identifier: Apache-2.0 */
/* regex.c: regular expressions of schemas and of %regex (ECMA-262, and what Python shares with it): literals,
 * classes, groups, alternatives, quantifiers; ^ and $ at the ends of a top-level alternative. \d, \w, \s and their
 * complements are ASCII classes, so that every dialect agrees. Lookaheads behind a fixed number of characters, and
 * lookbehinds at the end, become expressions of the whole text, for dfa.c; others, backreferences and \b are
 * refused. In a JSON string, characters that need an escape are written as one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "computed/grammar/schema.h"

#define UNBOUNDED UINT64_MAX
enum { RANGES = 2048, LOOKS = 12, CATEGORIES = 32, TOP_OF_CATEGORIES = 0xffff };

struct reader {
    struct tree *t;
    const char *p, *end;
    bool plain;                   /* not inside a JSON string */
    bool framed;                  /* without an anchor, it matches anywhere in the text */
    unsigned nest, look;          /* look: nesting of the lookaround being read; 0: none */
    unsigned n_categories;        /* \p{..} so far */
    struct dfa_part looks[LOOKS]; /* [n_looks] of the one alternative that has any; plain trees of whole texts */
    size_t n_looks;
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
    uint32_t top; /* of its complement's characters, where it contains a class like \w or \p{L}; 0: the last one */
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
    struct chars out = {.n = 0, .top = c->top};
    add_range(&out, 0, c->top ? c->top : 0x10ffff);
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

static node json_chars(struct tree *t, struct chars *c)
{
    node list = ntx__tree_list(t, N_ALT);
    for (uint32_t x = 1; x < 0x5d; x++)
        if ((x < 0x20 || x == '"' || x == '\\') && has(c, x))
            ntx__tree_add(t, list, escape(t, x));
    take_out(c, 0, 0x1f);
    take_out(c, '"', '"');
    take_out(c, '\\', '\\');
    ntx__tree_add(t, list, ntx__tree_chars(t, c->list, c->n));
    return list;
}

node ntx__regex_json(struct tree *t, const struct range *r, size_t n)
{
    struct chars c = {.n = 0};
    node list = ntx__tree_list(t, N_ALT);
    for (size_t i = 0; i < n; i++) { /* so many at a time as fit */
        add_range(&c, r[i].lo, r[i].hi);
        if (c.n < RANGES - 8 && i + 1 < n)
            continue;
        ntx__tree_add(t, list, json_chars(t, &c));
        c.n = 0;
    }
    return list;
}

static node chars_node(struct reader *r, struct chars *c)
{
    if (!r->plain)
        return json_chars(r->t, c);
    if (r->framed)
        take_out(c, 0, 0);
    return ntx__tree_chars(r->t, c->list, c->n);
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
    struct chars s = {.top = 0x7f};
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
    c->top = c->top ? c->top : 0x7f;
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

/* The general categories of a name (L, Lu, Letter, ...), as bits of utf8proc's numbers; 0: no such name. */
static uint64_t categories(const char *name, size_t n)
{
    static const char *const all[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                      "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                      "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
    static const char *const longer[][2] = {{"Letter", "L"},
                                            {"Uppercase_Letter", "Lu"},
                                            {"Lowercase_Letter", "Ll"},
                                            {"Number", "N"},
                                            {"Decimal_Number", "Nd"},
                                            {"Punctuation", "P"},
                                            {"Symbol", "S"},
                                            {"Mark", "M"},
                                            {"Separator", "Z"},
                                            {"Space_Separator", "Zs"}};
    uint64_t out = 0;
    for (size_t i = 0; i < sizeof longer / sizeof *longer; i++)
        if (strlen(longer[i][0]) == n && !memcmp(name, longer[i][0], n))
            return categories(longer[i][1], strlen(longer[i][1]));
    for (size_t i = 0; n && n <= 2 && i < sizeof all / sizeof *all; i++)
        if (!memcmp(all[i], name, n))
            out |= 1ull << i;
    return out;
}

/* Reads \p{NAME} or \P{NAME} behind its backslash and adds its characters of the Basic Multilingual Plane to c. */
static bool category_escape(struct reader *r, struct chars *c)
{
    const char *from = r->p, *end;
    if (r->end - from < 4 || (*from != 'p' && *from != 'P') || from[1] != '{' ||
        !(end = memchr(from, '}', (size_t)(r->end - from))))
        return false;
    const uint64_t wanted = categories(from + 2, (size_t)(end - from) - 2);
    if (!wanted || ++r->n_categories > CATEGORIES || (r->t->schema && !ntx__schema_step(r->t, 1 << 15)))
        return false;
    uint32_t lo = 0;
    bool in = false;
    for (uint32_t x = 1; x <= TOP_OF_CATEGORIES + 1; x++) {
        bool is = (wanted >> utf8proc_category((utf8proc_int32_t)x) & 1) == (*from == 'p');
        is = is && x <= TOP_OF_CATEGORIES;
        if (is && !in)
            lo = x;
        if (in && !is)
            add_range(c, lo, x - 1);
        in = is;
    }
    c->top = c->top ? c->top : TOP_OF_CATEGORIES;
    r->p = end + 1;
    return true;
}

/* Reads one end of a range in brackets, or a class into c (*class). */
static bool bracket_char(struct reader *r, struct chars *c, uint32_t *out, bool *class)
{
    *class = false;
    if (*r->p != '\\')
        return *out = utf8(r), true;
    if (++r->p < r->end && category_escape(r, c))
        return *class = true;
    if (r->p < r->end && class_escape(*r->p, c)) {
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

/* Reads ?: or the name of a group. */
static bool group_begins(struct reader *r)
{
    const char *p = r->p + 1, *end = NULL;
    if (p < r->end && *p == ':') {
        r->p = p + 1;
        return true;
    }
    p += p < r->end && *p == 'P';
    if (r->end - p > 1 && *p == '<' && p[1] != '=' && p[1] != '!')
        end = memchr(p, '>', (size_t)(r->end - p));
    r->p = end ? end + 1 : r->p;
    return end;
}

static struct part parenthesised(struct reader *r)
{
    if (++r->nest > NEST)
        return fail_regex(r, "has too many parentheses within each other");
    if (r->p < r->end && *r->p == '?' && !group_begins(r))
        return fail_regex(r, "looks around in a place, or has a kind of group, that is not supported");
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
        if (category_escape(r, &c))
            return one(r, &c);
        if (r->p < r->end && class_escape(*r->p, &c))
            return r->p++, one(r, &c);
        if (!escaped(r, &x))
            return fail_regex(r, "has an escape that is not supported (backreferences and \\b are not)");
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

static node plain_any(struct tree *t, uint32_t min, uint32_t max)
{
    static const struct range any = {1, 0x10ffff};
    return ntx__tree_repeat(t, ntx__tree_chars(t, &any, 1), min, max);
}

static bool looks_at(const struct reader *r, const char *text)
{
    const size_t n = strlen(text);
    return (size_t)(r->end - r->p) >= n && !memcmp(r->p, text, n);
}

/* Reads a lookahead behind exactly n characters, or (back) a lookbehind at the end, as an expression of the whole text.
 * Its tree is a plain one, which is thrown away if the pattern is not read as such. */
static void look(struct reader *r, bool back, uint64_t n)
{
    const bool not = looks_at(r, back ? "(?<!" : "(?!"), plain = r->plain;
    if (r->nest || r->n_looks == LOOKS || n > 1000) {
        fail_regex(r, "looks around in a place that is not supported");
        return;
    }
    r->p += back ? 4 : 3;
    r->plain = true;
    r->look = !back;
    r->nest = 1;
    struct part p = alternatives(r);
    r->nest = r->look = 0;
    r->plain = plain;
    if (r->p >= r->end || *r->p++ != ')') {
        fail_regex(r, "has a parenthesis without an end");
        return;
    }
    if ((p.starts && (n || back)) || (back && p.ends)) {
        fail_regex(r, "has ^ or $ within a group that looks around: that is not supported");
        return;
    }
    node whole = back ? SEQ(r->t, plain_any(r->t, 0, NO_LIMIT), p.n)
                      : SEQ(r->t, plain_any(r->t, (uint32_t)n, (uint32_t)n), p.n);
    r->looks[r->n_looks++] = (struct dfa_part){whole, not };
}

/* Reads the lookarounds that are here. true: there were some. */
static bool looks(struct reader *r, struct part *so_far)
{
    bool any = false;
    while (!r->t->failed && (looks_at(r, "(?=") || looks_at(r, "(?!"))) {
        if (so_far->lo != so_far->hi)
            fail_regex(r, "looks ahead in a place that is not supported");
        else
            look(r, false, so_far->lo);
        so_far->starts = any = true; /* unanchored, it holds at the beginning, too */
    }
    while (!r->t->failed && (looks_at(r, "(?<=") || looks_at(r, "(?<!"))) {
        look(r, true, 0);
        if (!r->t->failed && (r->p >= r->end || *r->p != '$'))
            fail_regex(r, "looks behind in a place that is not supported");
        any = true;
    }
    return any;
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
        if (looks(r, &out)) {
            out.what = 0;
            n++;
            continue;
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
    if (r->look && r->nest == r->look) {
        if (!p.ends)
            p.n = SEQ(r->t, p.n, plain_any(r->t, 0, NO_LIMIT));
        return p;
    }
    if (!r->framed || r->nest || r->t->failed || (p.starts && p.ends))
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
        if (r->n_looks && !r->nest)
            return fail_regex(r, "looks around in one of its alternatives: that is not supported");
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

size_t ntx__regex_parts(struct tree *t, const char *text, size_t len, struct dfa_part *out, size_t room)
{
    struct reader r = {.t = t, .p = text, .end = text + len, .plain = true, .framed = true};
    struct part p = alternatives(&r);
    if (!t->failed && r.p < r.end)
        fail_regex(&r, "closes a parenthesis that was not opened");
    if (!t->failed && r.n_looks + 1 > room)
        fail_regex(&r, "has too many parts that look around");
    if (t->failed)
        return 0;
    out[0] = (struct dfa_part){p.n, false};
    memcpy(out + 1, r.looks, r.n_looks * sizeof *out);
    return r.n_looks + 1;
}

node ntx__regex_read(struct tree *t, const struct regex_request *a)
{
    struct reader r = {.t = t, .p = a->text, .end = a->text + a->len, .framed = true};
    struct part p = alternatives(&r);
    uint64_t max = a->max == NO_LIMIT ? UNBOUNDED : a->max;
    if (!t->failed && r.p < r.end)
        fail_regex(&r, "closes a parenthesis that was not opened");
    if (t->failed)
        return 0;
    if (r.n_looks)
        return NTX__REGEX_DFA;
    if (p.lo >= a->min && p.hi <= max)
        return p.n;
    if (p.lo > max || p.hi < a->min)
        return ntx__tree_list(t, N_NEVER);
    if (p.what && p.starts && p.ends) /* ^x*$ */
        return ntx__tree_repeat(t, p.what, p.from > a->min ? p.from : a->min, p.to < a->max ? p.to : a->max);
    return NTX__REGEX_DFA;
}

node ntx__regex_plain(struct tree *t, const char *text)
{
    struct reader r = {.t = t, .p = text, .end = text + strlen(text), .plain = true};
    return alternatives(&r).n;
}

node ntx__regex_whole(struct tree *t, const char *text, size_t len)
{
    struct reader r = {.t = t, .p = text, .end = text + len, .plain = true};
    struct dfa_part parts[LOOKS + 1] = {{alternatives(&r).n, false}};
    if (!t->failed && r.p < r.end)
        fail_regex(&r, "closes a parenthesis that was not opened");
    if (t->failed || !r.n_looks)
        return parts[0].n;
    memcpy(parts + 1, r.looks, r.n_looks * sizeof *parts);
    return ntx__dfa(t, parts, r.n_looks + 1, false);
}
