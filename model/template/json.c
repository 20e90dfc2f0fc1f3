/* SPDX-License-Identifier: Apache-2.0 */
/* json.c: reads JSON: the variables, and texts that a template parses.
 *
 * jansson cannot replace it. It refuses lone surrogates, invalid UTF-8, raw control characters and integers of more
 * than 64 bits, which conversations contain and transformers accepts. It also allocates outside of the arena,
 * without limits or cancellation, and does not mark the origin of bytes. */
#include <errno.h>
#include <stdlib.h>

#include "model/template/tpl.h"

struct reader {
    struct ntx__tpl *t;
    const char *p, *end, *begin;
    uint8_t mark;
    unsigned depth;
};

static _Noreturn void fail_read(struct reader *r, const char *what)
{
    ntx__tpl_fail(r->t, -EINVAL, "%s at byte %zu of the JSON", what, (size_t)(r->p - r->begin));
}

static void skip_blanks(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

static bool take_char(struct reader *r, char c)
{
    skip_blanks(r);
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
            fail_read(r, "a broken escape");
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
        fail_read(r, "a broken escape");
    r->p++;
    uint32_t c = hex4(r);
    if (c >= 0xd800 && c < 0xdc00 && r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u') {
        r->p += 2;
        uint32_t low = hex4(r);
        return low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00) : 0xfffd;
    }
    return c >= 0xd800 && c < 0xe000 ? 0xfffd : c;
}

/* Reads a string after its opening quote. */
static struct val read_string(struct reader *r)
{
    const char *end = r->p;
    while (end < r->end && *end != '"')
        end += 1 + (*end == '\\');
    if (end >= r->end)
        fail_read(r, "a string has no end");
    struct str *s = ntx__tpl_str(r->t, NULL, (size_t)(end - r->p), 0); /* decoding never grows a string */
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

static struct val read_json_number(struct reader *r)
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
    if (!real && errno) /* more than 64 bits: a float */
        v = ntx__tpl_float(strtod(text, &end));
    if (end != text + n || !n || text[0] == '+')
        fail_read(r, "a broken value");
    r->p += n;
    return v;
}

static struct val read_value(struct reader *r);

static struct val read_list(struct reader *r)
{
    struct val v = ntx__tpl_list(r->t, 0);
    if (take_char(r, ']'))
        return v;
    do
        ntx__tpl_push(r->t, v.l, read_value(r));
    while (take_char(r, ','));
    if (!take_char(r, ']'))
        fail_read(r, "a list has no end");
    return v;
}

static struct val read_object(struct reader *r)
{
    struct val v = ntx__tpl_dict(r->t);
    if (take_char(r, '}'))
        return v;
    do {
        if (!take_char(r, '"'))
            fail_read(r, "a key is missing");
        struct val k = read_string(r);
        if (!take_char(r, ':'))
            fail_read(r, "a ':' is missing");
        ntx__tpl_put(r->t, v.d, k, read_value(r));
    } while (take_char(r, ','));
    if (!take_char(r, '}'))
        fail_read(r, "an object has no end");
    return v;
}

static bool take_word(struct reader *r, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, w, n))
        return false;
    r->p += n;
    return true;
}

static struct val read_value(struct reader *r)
{
    struct val v;
    if (++r->depth > NTX__TPL_NEST)
        fail_read(r, "too many levels");
    skip_blanks(r);
    if (take_char(r, '{'))
        v = read_object(r);
    else if (take_char(r, '['))
        v = read_list(r);
    else if (take_char(r, '"'))
        v = read_string(r);
    else if (take_word(r, "true"))
        v = ntx__tpl_bool(true);
    else if (take_word(r, "false"))
        v = ntx__tpl_bool(false);
    else if (take_word(r, "null"))
        v = (struct val){.type = V_NONE};
    else
        v = read_json_number(r);
    r->depth--;
    return v;
}

struct val ntx__tpl_json(struct ntx__tpl *t, const char *p, size_t n, uint8_t mark)
{
    struct reader r = {.t = t, .p = p, .end = p + n, .begin = p, .mark = mark};
    struct val v = read_value(&r);
    skip_blanks(&r);
    if (r.p < r.end)
        fail_read(&r, "something more");
    return v;
}

/* The text, marked as the template's own. */
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

static void prepare_messages(struct ntx__tpl *t, const struct list *messages)
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
        prepare_messages(t, e->l);
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
