/* SPDX-License-Identifier: Apache-2.0 */
/* json.c: JSON in: the variables, and what a template reads itself. */
#include <errno.h>
#include <stdlib.h>

#include "model/template/tpl.h"

struct reader {
    struct ntx__tpl *t;
    const char *p, *end, *begin;
    uint8_t mark;
    unsigned depth;
};

static _Noreturn void bad(struct reader *r, const char *what)
{
    ntx__tpl_fail(r->t, -EINVAL, "%s at byte %zu of the JSON", what, (size_t)(r->p - r->begin));
}

static void blanks(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

static bool take(struct reader *r, char c)
{
    blanks(r);
    bool is = r->p < r->end && *r->p == c;
    r->p += is;
    return is;
}

static uint32_t hex4(struct reader *r)
{
    uint32_t c = 0;
    for (int i = 0; i < 4; i++, r->p++) {
        char d = r->p < r->end ? (char)(*r->p | 0x20) : 0;
        if (!(r->p < r->end && ((*r->p >= '0' && *r->p <= '9') || (d >= 'a' && d <= 'f'))))
            bad(r, "a broken escape");
        c = c << 4 | (uint32_t)(*r->p <= '9' ? *r->p - '0' : d - 'a' + 10);
    }
    return c;
}

static uint32_t escaped(struct reader *r)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *f = r->p < r->end && *r->p ? strchr(from, *r->p) : NULL;
    if (f) {
        r->p++;
        return (unsigned char)to[f - from];
    }
    if (r->p >= r->end || *r->p != 'u')
        bad(r, "a broken escape");
    r->p++;
    uint32_t c = hex4(r);
    if (c >= 0xd800 && c < 0xdc00 && r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u') {
        r->p += 2;
        uint32_t low = hex4(r);
        return low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00) : 0xfffd;
    }
    return c >= 0xd800 && c < 0xe000 ? 0xfffd : c;
}

/* Behind the quote. */
static struct val string(struct reader *r)
{
    const char *end = r->p;
    while (end < r->end && *end != '"')
        end += 1 + (*end == '\\');
    if (end >= r->end)
        bad(r, "a string has no end");
    struct str *s = ntx__tpl_str(r->t, NULL, (size_t)(end - r->p), 0); /* no escape makes more than it takes */
    size_t n = 0;
    while (r->p < end) {
        if (*r->p == '\\') {
            r->p++;
            n += ntx__tpl_put_char(escaped(r), s->p + n);
        } else {
            s->p[n++] = *r->p++;
        }
    }
    r->p++;
    if (n == s->n) {
        memset(s->p + n, r->mark, n);
        return ntx__tpl_of(s);
    }
    return ntx__tpl_of(ntx__tpl_str(r->t, s->p, n, r->mark));
}

static struct val number(struct reader *r)
{
    char text[400], *end;
    size_t n = 0;
    bool real = false;
    while (r->p + n < r->end && n < sizeof text - 1 && r->p[n] && strchr("+-0123456789.eE", r->p[n])) {
        real |= r->p[n] == '.' || r->p[n] == 'e' || r->p[n] == 'E';
        text[n] = r->p[n];
        n++;
    }
    text[n] = 0;
    errno = 0;
    struct val v = real ? ntx__tpl_float(strtod(text, &end)) : ntx__tpl_int(strtoll(text, &end, 10));
    if (!real && errno) /* more than 64 bits */
        v = ntx__tpl_float(strtod(text, &end));
    if (end != text + n || !n || text[0] == '+')
        bad(r, "a broken value");
    r->p += n;
    return v;
}

static struct val value(struct reader *r);

static struct val list(struct reader *r)
{
    struct val v = ntx__tpl_list(r->t, 0);
    if (take(r, ']'))
        return v;
    do
        ntx__tpl_push(r->t, v.l, value(r));
    while (take(r, ','));
    if (!take(r, ']'))
        bad(r, "a list has no end");
    return v;
}

static struct val object(struct reader *r)
{
    struct val v = ntx__tpl_dict(r->t);
    if (take(r, '}'))
        return v;
    do {
        if (!take(r, '"'))
            bad(r, "a key is missing");
        struct val k = string(r);
        if (!take(r, ':'))
            bad(r, "a ':' is missing");
        ntx__tpl_put(r->t, v.d, k, value(r));
    } while (take(r, ','));
    if (!take(r, '}'))
        bad(r, "an object has no end");
    return v;
}

static bool word(struct reader *r, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, w, n))
        return false;
    r->p += n;
    return true;
}

static struct val value(struct reader *r)
{
    struct val v;
    if (++r->depth > NTX__TPL_NEST)
        bad(r, "too many levels");
    blanks(r);
    if (take(r, '{'))
        v = object(r);
    else if (take(r, '['))
        v = list(r);
    else if (take(r, '"'))
        v = string(r);
    else if (word(r, "true"))
        v = ntx__tpl_bool(true);
    else if (word(r, "false"))
        v = ntx__tpl_bool(false);
    else if (word(r, "null"))
        v = (struct val){.type = V_NONE};
    else
        v = number(r);
    r->depth--;
    return v;
}

struct val ntx__tpl_json(struct ntx__tpl *t, const char *p, size_t n, uint8_t mark)
{
    struct reader r = {.t = t, .p = p, .end = p + n, .begin = p, .mark = mark};
    struct val v = value(&r);
    blanks(&r);
    if (r.p < r.end)
        bad(&r, "something more");
    return v;
}

/* The same text as the template's own. */
static struct val trusted(struct ntx__tpl *t, const struct str *s)
{
    return ntx__tpl_of(ntx__tpl_str(t, s->p, s->n, 0));
}

static bool is_role(const struct str *s)
{
    for (size_t i = 0; i < s->n; i++) {
        char c = s->p[i], low = (char)(c | 0x20);
        if (!((low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'))
            return false;
    }
    return true;
}

static void alias_reasoning(struct ntx__tpl *t, struct dict *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct val *v = ntx__tpl_find(t, message, ntx__tpl_text(t, names[i])), thought;
        if (!v || v->type == V_NONE)
            continue;
        thought = *v;
        ntx__tpl_put(t, message, ntx__tpl_text(t, "reasoning_content"), thought);
        if (!ntx__tpl_find(t, message, ntx__tpl_text(t, "thinking")))
            ntx__tpl_put(t, message, ntx__tpl_text(t, "thinking"), thought);
        return;
    }
}

static void prepare(struct ntx__tpl *t, const struct list *messages)
{
    struct val role = ntx__tpl_text(t, "role");
    for (size_t i = 0; i < messages->n; i++) {
        if (messages->v[i].type != V_DICT)
            continue;
        struct val *v = ntx__tpl_find(t, messages->v[i].d, role);
        if (v && v->type == V_STR && is_role(v->s))
            *v = trusted(t, v->s);
        alias_reasoning(t, messages->v[i].d);
    }
}

struct val ntx__tpl_variables(struct ntx__tpl *t, const char *p, size_t n)
{
    static const char *const own[] = {"bos_token", "eos_token"};
    struct val v = ntx__tpl_json(t, p, n, 1), *e;
    if (v.type != V_DICT)
        ntx__tpl_fail(t, -EINVAL, "the variables are no JSON object");
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if ((e = ntx__tpl_find(t, v.d, ntx__tpl_text(t, own[i]))) && e->type == V_STR)
            *e = trusted(t, e->s);
    if ((e = ntx__tpl_find(t, v.d, ntx__tpl_text(t, "messages"))) && e->type == V_LIST)
        prepare(t, e->l);
    return v;
}

int ntx_template_check_object(const char *text, size_t len, const atomic_bool *cancel, struct ntx_err *err)
{
    struct arena arena = {.limit = (size_t)256 << 20};
    struct ntx_template_limits limits = {.steps = NTX__TPL_STEPS, .cancel = cancel};
    struct ntx__tpl t = {.err = err, .arena = &arena, .limits = &limits};
    if (!setjmp(t.out) && ntx__tpl_json(&t, text, len, 1).type != V_DICT)
        t.rc = ntx_err_set(err, -EINVAL, "it is no JSON object");
    ntx__tpl_arena_free(&arena);
    return t.rc;
}
