/* SPDX-License-Identifier: Apache-2.0 */
/* text.c: values as text, in Python's forms: str(), repr() and json.dumps(). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <utf8proc.h>

#include "model/template/tpl.h"

static void grow_buf(struct ntx__tpl *t, struct buf *b, size_t more)
{
    size_t room = b->room ? 2 * b->room : 64;
    if (more > t->arena->limit / 4 || b->n > t->arena->limit / 4)
        ntx__tpl_fail(t, -ENOBUFS, "it takes more than %zu MiB of memory", t->arena->limit >> 20);
    while (room < b->n + more)
        room *= 2;
    char *p = ntx__tpl_alloc(t, 2 * room);
    if (b->n) {
        memcpy(p, b->p, b->n);
        memcpy(p + room, b->mark, b->n);
    }
    b->p = p;
    b->mark = (uint8_t *)p + room;
    b->room = room;
}

void ntx__tpl_add(struct ntx__tpl *t, struct buf *b, const char *p, size_t n, const uint8_t *marks)
{
    if (!n)
        return;
    if (n > b->room - b->n)
        grow_buf(t, b, n);
    memcpy(b->p + b->n, p, n);
    if (marks)
        memcpy(b->mark + b->n, marks, n);
    else
        memset(b->mark + b->n, 0, n);
    b->n += n;
    ntx__tpl_charge(t, n);
}

void ntx__tpl_add_str(struct ntx__tpl *t, struct buf *b, const struct str *s)
{
    ntx__tpl_add(t, b, s->p, s->n, ntx__tpl_marks(s));
}
void ntx__tpl_add_text(struct ntx__tpl *t, struct buf *b, const char *text)
{
    ntx__tpl_add(t, b, text, strlen(text), NULL);
}

struct val ntx__tpl_taken(struct ntx__tpl *t, const struct buf *b)
{
    struct str *s = ntx__tpl_str(t, NULL, b->n, 0);
    if (b->n) {
        memcpy(s->p, b->p, b->n);
        memcpy(s->p + b->n, b->mark, b->n);
    }
    return ntx__tpl_of(s);
}

/* ---- numbers */

/* The fewest digits that read back as f, in Python's choice of notation. */
static void put_double(double f, char out[40])
{
    char digits[32];
    int precision = 0;
    if (!isfinite(f)) {
        const char *infinite = f > 0 ? "inf" : "-inf";
        snprintf(out, 40, "%s", isnan(f) ? "nan" : infinite);
        return;
    }
    do
        snprintf(digits, sizeof digits, "%.*e", precision, f);
    while (strtod(digits, NULL) != f && ++precision < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16)
        snprintf(out, 40, "%s", digits);
    else
        snprintf(out, 40, "%.*f", precision > exponent ? (precision - exponent) : 1, f);
}

static void add_float(struct ntx__tpl *t, struct buf *b, double f)
{
    char text[40];
    put_double(f, text);
    ntx__tpl_add_text(t, b, text);
}

static void add_int(struct ntx__tpl *t, struct buf *b, int64_t i)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)i);
    ntx__tpl_add_text(t, b, text);
}

/* ---- str and repr */

static bool printable(uint32_t c)
{
    if (c == ' ')
        return true;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

static void add_quoted(struct ntx__tpl *t, struct buf *b, const struct str *s)
{
    const char *quote = memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n) ? "\"" : "'";
    const uint8_t *marks = ntx__tpl_marks(s);
    uint32_t c;
    ntx__tpl_add_text(t, b, quote);
    for (size_t i = 0, n; i < s->n; i += n) {
        char text[16] = "";
        n = ntx__tpl_char(s->p + i, s->n - i, &c);
        if (c == '\n')
            snprintf(text, sizeof text, "\\n");
        else if (c == '\r')
            snprintf(text, sizeof text, "\\r");
        else if (c == '\t')
            snprintf(text, sizeof text, "\\t");
        else if (c == '\\' || c == (unsigned char)*quote)
            snprintf(text, sizeof text, "\\%c", (char)c);
        else if (!printable(c) && c < 0x100)
            snprintf(text, sizeof text, "\\x%02x", c);
        else if (!printable(c))
            snprintf(text, sizeof text, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        if (*text)
            ntx__tpl_add_text(t, b, text);
        else
            ntx__tpl_add(t, b, s->p + i, n, marks + i);
    }
    ntx__tpl_add_text(t, b, quote);
}

static void add_sequence(struct ntx__tpl *t, struct buf *b, const struct list *l, bool tuple)
{
    ntx__tpl_add_text(t, b, tuple ? "(" : "[");
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            ntx__tpl_add_text(t, b, ", ");
        ntx__tpl_add_repr(t, b, l->v[i]);
    }
    const char *tuple_end = l->n == 1 ? ",)" : ")";
    ntx__tpl_add_text(t, b, tuple ? tuple_end : "]");
}

static void add_mapping(struct ntx__tpl *t, struct buf *b, const struct dict *d)
{
    ntx__tpl_add_text(t, b, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            ntx__tpl_add_text(t, b, ", ");
        ntx__tpl_add_repr(t, b, d->e[i].k);
        ntx__tpl_add_text(t, b, ": ");
        ntx__tpl_add_repr(t, b, d->e[i].v);
    }
    ntx__tpl_add_text(t, b, "}");
}

void ntx__tpl_add_repr(struct ntx__tpl *t, struct buf *b, struct val v)
{
    ntx__tpl_enter(t);
    if (v.type == V_STR)
        add_quoted(t, b, v.s);
    else if (v.type == V_UNDEF)
        ntx__tpl_add_text(t, b, "Undefined");
    else if (v.type == V_LIST || v.type == V_TUPLE)
        add_sequence(t, b, v.l, v.type == V_TUPLE);
    else if (v.type == V_DICT)
        add_mapping(t, b, v.d);
    else
        ntx__tpl_add_val(t, b, v);
    t->depth--;
}

void ntx__tpl_add_val(struct ntx__tpl *t, struct buf *b, struct val v)
{
    switch (v.type) {
    case V_UNDEF: return;
    case V_NONE: ntx__tpl_add_text(t, b, "None"); return;
    case V_BOOL: ntx__tpl_add_text(t, b, v.b ? "True" : "False"); return;
    case V_INT: add_int(t, b, v.i); return;
    case V_FLOAT: add_float(t, b, v.f); return;
    case V_STR: ntx__tpl_add_str(t, b, v.s); return;
    case V_LIST:
    case V_TUPLE:
    case V_DICT: ntx__tpl_add_repr(t, b, v); return;
    case V_SPACE:
        ntx__tpl_add_text(t, b, "<Namespace ");
        add_mapping(t, b, v.d);
        ntx__tpl_add_text(t, b, ">");
        return;
    default: ntx__tpl_fail(t, -EINVAL, "a %s cannot be written", ntx__tpl_type(v));
    }
}

const struct str *ntx__tpl_string(struct ntx__tpl *t, struct val v)
{
    struct buf b = {0};
    if (v.type == V_STR)
        return v.s;
    ntx__tpl_add_val(t, &b, v);
    return ntx__tpl_taken(t, &b).s;
}

/* ---- JSON */

static void json_string(struct ntx__tpl *t, struct buf *b, const struct str *s, bool ascii)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const uint8_t *marks = ntx__tpl_marks(s);
    uint32_t c;
    ntx__tpl_add_text(t, b, "\"");
    for (size_t i = 0, n; i < s->n; i += n) {
        char text[24] = "";
        n = ntx__tpl_char(s->p + i, s->n - i, &c);
        const char *f = c && c < 0x80 ? strchr(from, (char)c) : NULL;
        if (f)
            snprintf(text, sizeof text, "\\%c", to[f - from]);
        else if (c >= 0x10000 && ascii)
            snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
        else if (c < 0x20 || (ascii && c > 0x7e && c != 0x7f))
            snprintf(text, sizeof text, "\\u%04x", c);
        if (*text) {
            uint8_t same[24];
            memset(same, marks[i], sizeof same);
            ntx__tpl_add(t, b, text, strlen(text), same);
        } else {
            ntx__tpl_add(t, b, s->p + i, n, marks + i);
        }
    }
    ntx__tpl_add_text(t, b, "\"");
}

static void line(struct ntx__tpl *t, struct buf *b, const struct json_form *f, unsigned level)
{
    if (!f->indented)
        return;
    ntx__tpl_add_text(t, b, "\n");
    for (unsigned i = 0; i < level; i++)
        ntx__tpl_add_str(t, b, f->indent);
}

static void between(struct ntx__tpl *t, struct buf *b, const struct json_form *f)
{
    if (f->item)
        ntx__tpl_add_str(t, b, f->item);
    else
        ntx__tpl_add_text(t, b, f->indented ? "," : ", ");
}

static void json_list(struct ntx__tpl *t, struct buf *b, const struct list *l, const struct json_form *f,
                      unsigned level)
{
    if (!l->n) {
        ntx__tpl_add_text(t, b, "[]");
        return;
    }
    ntx__tpl_add_text(t, b, "[");
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            between(t, b, f);
        line(t, b, f, level + 1);
        ntx__tpl_add_json(t, b, l->v[i], f, level + 1);
    }
    line(t, b, f, level);
    ntx__tpl_add_text(t, b, "]");
}

static void json_key(struct ntx__tpl *t, struct buf *b, struct val k, const struct json_form *f)
{
    if (k.type == V_NONE)
        k = ntx__tpl_text(t, "null");
    else if (k.type == V_BOOL)
        k = ntx__tpl_text(t, k.b ? "true" : "false");
    json_string(t, b, ntx__tpl_string(t, k), f->ascii);
    if (f->key)
        ntx__tpl_add_str(t, b, f->key);
    else
        ntx__tpl_add_text(t, b, ": ");
}

static void json_dict(struct ntx__tpl *t, struct buf *b, struct val v, const struct json_form *f, unsigned level)
{
    if (!v.d->n) {
        ntx__tpl_add_text(t, b, "{}");
        return;
    }
    struct val keys = {.type = V_LIST, .l = ntx__tpl_iterate(t, v)};
    if (f->sort)
        keys = ntx__tpl_f_sort(t, keys,
                               &(struct args){.n = 2, .v = (struct val[]){ntx__tpl_bool(false), ntx__tpl_bool(true)}});
    ntx__tpl_add_text(t, b, "{");
    for (size_t i = 0; i < keys.l->n; i++) {
        if (i)
            between(t, b, f);
        line(t, b, f, level + 1);
        const struct val *e = f->sort ? ntx__tpl_find(t, v.d, keys.l->v[i]) : &v.d->e[i].v;
        if (!e) /* a tuple with a NaN is not equal to itself */
            ntx__tpl_fail(t, -EINVAL, "a key is not found again");
        json_key(t, b, keys.l->v[i], f);
        ntx__tpl_add_json(t, b, *e, f, level + 1);
    }
    line(t, b, f, level);
    ntx__tpl_add_text(t, b, "}");
}

void ntx__tpl_add_json(struct ntx__tpl *t, struct buf *b, struct val v, const struct json_form *f, unsigned level)
{
    ntx__tpl_enter(t);
    switch (v.type) {
    case V_NONE: ntx__tpl_add_text(t, b, "null"); break;
    case V_BOOL: ntx__tpl_add_text(t, b, v.b ? "true" : "false"); break;
    case V_FLOAT:
        if (isfinite(v.f))
            add_float(t, b, v.f);
        else if (isnan(v.f))
            ntx__tpl_add_text(t, b, "NaN");
        else
            ntx__tpl_add_text(t, b, v.f > 0 ? "Infinity" : "-Infinity");
        break;
    case V_INT: add_int(t, b, v.i); break;
    case V_STR: json_string(t, b, v.s, f->ascii); break;
    case V_LIST:
    case V_TUPLE: json_list(t, b, v.l, f, level); break;
    case V_DICT: json_dict(t, b, v, f, level); break;
    default: ntx__tpl_fail(t, -EINVAL, "what is %s has no JSON", ntx__tpl_type(v));
    }
    t->depth--;
}
