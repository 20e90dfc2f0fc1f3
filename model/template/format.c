/* SPDX-License-Identifier: Apache-2.0 */
/* format.c: "%s %d" % values, and "{} {name:>8}".format(values), as far as templates use them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/template/tpl.h"

struct spec {
    bool left, zero, plus, center;
    char fill;
    int width, precision; /* precision -1: none */
    char kind;
};

static double real(struct ntx__tpl *t, struct val v)
{
    if (v.type == V_FLOAT)
        return v.f;
    if (!ntx__tpl_whole(v))
        ntx__tpl_fail(t, -EINVAL, "a number is wanted, not a %s", ntx__tpl_type(v));
    return (double)ntx__tpl_i(v);
}

static int64_t to_whole(struct ntx__tpl *t, struct val v)
{
    double f = real(t, v);
    if (v.type == V_FLOAT && !(fabs(f) < 9e18))
        ntx__tpl_fail(t, -EINVAL, "a number is too large");
    return v.type == V_FLOAT ? (int64_t)f : ntx__tpl_i(v);
}

/* Formats the value, without padding. */
static struct val bare(struct ntx__tpl *t, const struct spec *s, struct val v)
{
    char text[512];
    int precision = s->precision < 0 ? 6 : s->precision;
    struct buf b = {0};
    switch (s->kind) {
    case 'd':
    case 'i': snprintf(text, sizeof text, s->plus ? "%+lld" : "%lld", (long long)to_whole(t, v)); break;
    case 'x': snprintf(text, sizeof text, "%llx", (unsigned long long)to_whole(t, v)); break;
    case 'f':
    case 'F': snprintf(text, sizeof text, s->plus ? "%+.*f" : "%.*f", precision, real(t, v)); break;
    case 'e': snprintf(text, sizeof text, "%.*e", precision, real(t, v)); break;
    case 'g': snprintf(text, sizeof text, "%.*g", precision, real(t, v)); break;
    case 'r': ntx__tpl_add_repr(t, &b, v); return ntx__tpl_taken(t, &b);
    case 's':
        ntx__tpl_add_val(t, &b, v);
        if (s->precision >= 0)
            b.n = ntx__tpl_offset(b.p ? b.p : "", b.n, (size_t)s->precision);
        return ntx__tpl_taken(t, &b);
    default: ntx__tpl_fail(t, -EINVAL, "a format that is not known: '%c'", s->kind);
    }
    return ntx__tpl_text(t, text);
}

static void put_padded(struct ntx__tpl *t, struct buf *out, const struct spec *s, struct val v)
{
    const struct str *text = bare(t, s, v).s;
    int missing = s->width - (int)ntx__tpl_count(text->p, text->n > 4096 ? 4096 : text->n);
    int before = s->center ? missing / 2 : missing;
    if (s->left)
        before = 0;
    bool sign = s->zero && text->n && (text->p[0] == '-' || text->p[0] == '+');
    if (sign)
        ntx__tpl_add(t, out, text->p, 1, ntx__tpl_marks(text));
    for (int i = 0; i < missing && i < before; i++)
        ntx__tpl_add(t, out, s->zero ? "0" : &s->fill, 1, NULL);
    ntx__tpl_add(t, out, text->p + sign, text->n - sign, ntx__tpl_marks(text) + sign);
    for (int i = before < 0 ? 0 : before; i < missing; i++)
        ntx__tpl_add(t, out, &s->fill, 1, NULL);
}

static int read_digits(struct ntx__tpl *t, const struct str *f, size_t *i)
{
    int n = 0;
    for (; *i < f->n && f->p[*i] >= '0' && f->p[*i] <= '9'; ++*i)
        if ((n = 10 * n + (f->p[*i] - '0')) > 300)
            ntx__tpl_fail(t, -EINVAL, "a format is too wide");
    return n;
}

static struct val of_dict(struct ntx__tpl *t, const struct str *f, size_t *i, struct val v)
{
    const char *end = memchr(f->p + *i, ')', f->n - *i);
    if (!end || v.type != V_DICT)
        ntx__tpl_fail(t, -EINVAL, "%%(name) wants a dict");
    struct val *found = ntx__tpl_find(t, v.d, ntx__tpl_sub(t, f, *i + 1, (size_t)(end - f->p)));
    if (!found)
        ntx__tpl_fail(t, -EINVAL, "a name of the format is not in the dict");
    *i = (size_t)(end - f->p) + 1;
    return *found;
}

struct val ntx__tpl_percent(struct ntx__tpl *t, const struct str *f, struct val v)
{
    struct list one = {.n = 1, .v = &v};
    const struct list *values = v.type == V_TUPLE ? v.l : &one;
    struct buf out = {0};
    size_t used = 0;
    for (size_t i = 0; i < f->n; i++) {
        if (f->p[i] != '%') {
            ntx__tpl_add(t, &out, f->p + i, 1, ntx__tpl_marks(f) + i);
            continue;
        }
        struct spec s = {.fill = ' ', .precision = -1};
        struct val e = {0};
        bool named = ++i < f->n && f->p[i] == '(';
        if (named)
            e = of_dict(t, f, &i, v);
        for (; i < f->n && f->p[i] && strchr("-0+ ", f->p[i]); i++) {
            s.left |= f->p[i] == '-';
            s.zero |= f->p[i] == '0';
            s.plus |= f->p[i] == '+';
        }
        s.zero &= !s.left;
        s.width = read_digits(t, f, &i);
        if (i < f->n && f->p[i] == '.') {
            i++;
            s.precision = read_digits(t, f, &i);
        }
        s.kind = i < f->n ? f->p[i] : 0;
        if (s.kind == '%') {
            ntx__tpl_add_text(t, &out, "%");
            continue;
        }
        if (!named && used == values->n)
            ntx__tpl_fail(t, -EINVAL, "too few values for the format");
        put_padded(t, &out, &s, named ? e : values->v[used++]);
    }
    if (v.type != V_DICT && used != values->n)
        ntx__tpl_fail(t, -EINVAL, "too many values for the format");
    return ntx__tpl_taken(t, &out);
}

/* [[fill]align][0][width][,][.precision][kind] */
static struct spec read_spec(struct ntx__tpl *t, const struct str *f, struct val v)
{
    struct spec s = {.fill = ' ', .precision = -1, .left = !ntx__tpl_whole(v) && v.type != V_FLOAT};
    size_t i = 0;
    if (f->n > 1 && strchr("<>^", f->p[1]) && f->p[1])
        s.fill = f->p[i++];
    if (i < f->n && f->p[i] && strchr("<>^", f->p[i])) {
        s.left = f->p[i] == '<';
        s.center = f->p[i++] == '^';
    }
    if (i < f->n && f->p[i] == '+') {
        s.plus = true;
        i++;
    }
    if (i < f->n && f->p[i] == '0') {
        s.zero = true;
        i++;
    }
    s.width = read_digits(t, f, &i);
    if (i < f->n && f->p[i] == '.') {
        i++;
        s.precision = read_digits(t, f, &i);
    }
    s.kind = v.type == V_FLOAT && s.precision >= 0 ? 'g' : 's';
    if (i < f->n)
        s.kind = f->p[i++];
    if (i != f->n)
        ntx__tpl_fail(t, -EINVAL, "a format that is not known");
    return s;
}

/* The field's value: a name or a position, then .name and [key]. */
static struct val field(struct ntx__tpl *t, const struct str *name, const struct args *a, size_t *next)
{
    size_t end = 0;
    while (end < name->n && name->p[end] != '.' && name->p[end] != '[')
        end++;
    struct val first = ntx__tpl_sub(t, name, 0, end), v = {0};
    char text[80];
    snprintf(text, sizeof text, "%.*s", (int)first.s->n, first.s->p);
    char *stop;
    long place = end ? strtol(text, &stop, 10) : (long)(*next)++;
    bool by_place = !end || (!*stop && place >= 0);
    v = by_place ? ntx__tpl_given(a, (size_t)place, "", v) : ntx__tpl_given(a, SIZE_MAX, text, v);
    if (v.type == V_UNDEF)
        ntx__tpl_fail(t, -EINVAL, "the format's field '%s' is not given", text);
    while (end < name->n) {
        bool key = name->p[end] == '[';
        size_t from = ++end;
        while (end < name->n && (key ? name->p[end] != ']' : name->p[end] != '.' && name->p[end] != '['))
            end++;
        v = ntx__tpl_item(t, v, ntx__tpl_sub(t, name, from, end));
        end += key;
    }
    return v;
}

static size_t replacement(struct ntx__tpl *t, const struct str *f, size_t i, const struct args *a, size_t *next,
                          struct buf *out)
{
    const char *close = memchr(f->p + i, '}', f->n - i);
    if (!close)
        ntx__tpl_fail(t, -EINVAL, "a '{' of the format has no end");
    size_t end = (size_t)(close - f->p), name = i;
    while (name < end && f->p[name] != ':' && f->p[name] != '!')
        name++;
    struct val v = field(t, ntx__tpl_sub(t, f, i, name).s, a, next);
    struct buf repr = {0};
    if (name + 1 < end && f->p[name] == '!') {
        if (f->p[name + 1] == 'r') {
            ntx__tpl_add_repr(t, &repr, v);
            v = ntx__tpl_taken(t, &repr);
        }
        name += 2;
    }
    struct spec s = read_spec(t, ntx__tpl_sub(t, f, name < end ? name + 1 : end, end).s, v);
    put_padded(t, out, &s, v);
    return end;
}

struct val ntx__tpl_str_format(struct ntx__tpl *t, const struct str *f, const struct args *a)
{
    struct buf out = {0};
    size_t next = 0;
    for (size_t i = 0; i < f->n; i++) {
        char c = f->p[i];
        if ((c == '{' || c == '}') && i + 1 < f->n && f->p[i + 1] == c)
            ntx__tpl_add(t, &out, f->p + i++, 1, NULL);
        else if (c == '{')
            i = replacement(t, f, i + 1, a, &next, &out);
        else if (c == '}')
            ntx__tpl_fail(t, -EINVAL, "a '}' of the format stands alone");
        else
            ntx__tpl_add(t, &out, f->p + i, 1, ntx__tpl_marks(f) + i);
    }
    return ntx__tpl_taken(t, &out);
}
