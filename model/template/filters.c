/* SPDX-License-Identifier: Apache-2.0 */
/* filters.c: the table of filters, and the filters on single values; filters_seq.c has those on sequences. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "model/template/tpl.h"

static const struct val nothing = {.type = V_NONE};

#define FILTER(name) static struct val f_##name(struct ntx__tpl *t, struct val v, const struct args *a)
/* A filter without arguments. */
#define PLAIN(name, result)                                                                                            \
    FILTER(name)                                                                                                       \
    {                                                                                                                  \
        (void)a;                                                                                                       \
        return result;                                                                                                 \
    }

PLAIN(length, ntx__tpl_int((int64_t)ntx__tpl_length(t, v)))
PLAIN(string, v.type == V_STR ? v : ntx__tpl_of(ntx__tpl_string(t, v)))
PLAIN(upper, ntx__tpl_upper(t, ntx__tpl_string(t, v)))
PLAIN(lower, ntx__tpl_lower(t, ntx__tpl_string(t, v)))
PLAIN(title, ntx__tpl_title(t, ntx__tpl_string(t, v), true))
PLAIN(capitalize, ntx__tpl_capital(t, ntx__tpl_string(t, v)))

FILTER(safe)
{
    (void)a;
    v = ntx__tpl_of(ntx__tpl_string(t, v));
    v.safe = true;
    return v;
}

FILTER(escape)
{
    if (v.type == V_STR && v.safe)
        return v;
    v = ntx__tpl_escape(t, ntx__tpl_string(t, v));
    return f_safe(t, v, a);
}

FILTER(default)
{
    bool also_false = ntx__tpl_truth(ntx__tpl_given(a, 1, "boolean", nothing));
    if (v.type != V_UNDEF && (!also_false || ntx__tpl_truth(v)))
        return v;
    return ntx__tpl_given(a, 0, "default_value", ntx__tpl_text(t, ""));
}

FILTER(trim) { return ntx__tpl_strip(t, ntx__tpl_string(t, v), ntx__tpl_given(a, 0, "chars", nothing), true, true); }

FILTER(replace)
{
    const struct str *old = ntx__tpl_string(t, ntx__tpl_given(a, 0, "old", nothing)),
                     *by = ntx__tpl_string(t, ntx__tpl_given(a, 1, "new", nothing));
    return ntx__tpl_replace(t, ntx__tpl_string(t, v), old, by, ntx__tpl_given_int(t, a, 2, "count", -1));
}

FILTER(indent)
{
    struct val width = ntx__tpl_given(a, 0, "width", ntx__tpl_int(4));
    bool first = ntx__tpl_truth(ntx__tpl_given(a, 1, "first", nothing)),
         blank = ntx__tpl_truth(ntx__tpl_given(a, 2, "blank", nothing));
    struct val by = width.type == V_STR ? width : ntx__tpl_binary(t, OP_MUL, ntx__tpl_text(t, " "), width);
    struct buf text = {0}, out = {0};
    ntx__tpl_add_val(t, &text, v);
    ntx__tpl_add_text(t, &text, "\n"); /* keeps a newline at the end */
    const struct list *lines = ntx__tpl_lines(t, ntx__tpl_taken(t, &text).s, false).l;
    for (size_t i = 0; i < lines->n; i++) {
        if (i)
            ntx__tpl_add_text(t, &out, "\n");
        if (i ? blank || lines->v[i].s->n : first)
            ntx__tpl_add_str(t, &out, by.s);
        ntx__tpl_add_str(t, &out, lines->v[i].s);
    }
    return ntx__tpl_taken(t, &out);
}

FILTER(tojson)
{
    struct buf b = {0};
    struct json_form f = {.ascii = ntx__tpl_truth(ntx__tpl_given(a, 0, "ensure_ascii", nothing)),
                          .sort = ntx__tpl_truth(ntx__tpl_given(a, 3, "sort_keys", nothing))};
    struct val indent = ntx__tpl_given(a, 1, "indent", nothing),
               separators = ntx__tpl_given(a, 2, "separators", nothing);
    if (indent.type != V_NONE) {
        f.indented = true;
        f.indent = indent.type == V_STR ? indent.s : ntx__tpl_binary(t, OP_MUL, ntx__tpl_text(t, " "), indent).s;
    }
    if (separators.type != V_NONE) {
        const struct list *l = ntx__tpl_iterate(t, separators);
        if (l->n != 2)
            ntx__tpl_fail(t, -EINVAL, "tojson wants two separators");
        f.item = ntx__tpl_string(t, l->v[0]);
        f.key = ntx__tpl_string(t, l->v[1]);
    }
    ntx__tpl_add_json(t, &b, v, &f, 0);
    return ntx__tpl_taken(t, &b);
}

FILTER(fromjson)
{
    (void)a;
    const struct str *s = ntx__tpl_string(t, v);
    uint8_t mark = 0;
    for (size_t i = 0; i < s->n; i++)
        mark |= ntx__tpl_marks(s)[i];
    return ntx__tpl_json(t, s->p, s->n, mark);
}

/* Parses a number with nothing but white space around it. */
static bool read_number(const struct str *s, double *f, int64_t *i, bool *whole, int base)
{
    char text[64], *end;
    if (!s->n || s->n >= sizeof text)
        return false;
    memcpy(text, s->p, s->n);
    text[s->n] = 0;
    errno = 0;
    *i = strtoll(text, &end, base);
    end += strspn(end, " \t\r\n");
    *whole = !*end && end != text && !errno;
    *f = strtod(text, &end);
    end += strspn(end, " \t\r\n");
    return *whole || (!*end && end != text);
}

FILTER(int)
{
    struct val otherwise = ntx__tpl_given(a, 0, "default", ntx__tpl_int(0));
    double f;
    int64_t i;
    bool whole;
    if (ntx__tpl_whole(v))
        return ntx__tpl_int(ntx__tpl_i(v));
    if (v.type == V_FLOAT) {
        f = v.f;
        whole = false;
    } else if (v.type != V_STR ||
               !read_number(v.s, &f, &i, &whole, (int)ntx__tpl_given_int(t, a, 1, "base", 10) == 16 ? 16 : 10)) {
        return otherwise;
    }
    if (whole)
        return ntx__tpl_int(i);
    return isfinite(f) && fabs(f) < 9e18 ? ntx__tpl_int((int64_t)f) : otherwise;
}

FILTER(float)
{
    double f;
    int64_t i;
    bool whole;
    (void)t;
    if (ntx__tpl_whole(v))
        return ntx__tpl_float((double)ntx__tpl_i(v));
    if (v.type == V_FLOAT)
        return v;
    if (v.type == V_STR && read_number(v.s, &f, &i, &whole, 10))
        return ntx__tpl_float(f);
    return ntx__tpl_given(a, 0, "default", ntx__tpl_float(0));
}

FILTER(abs)
{
    (void)a;
    if (v.type == V_FLOAT)
        return ntx__tpl_float(fabs(v.f));
    if (!ntx__tpl_whole(v))
        ntx__tpl_fail(t, -EINVAL, "abs of a %s", ntx__tpl_type(v));
    return ntx__tpl_i(v) < 0 ? ntx__tpl_binary(t, OP_SUB, ntx__tpl_int(0), v) : ntx__tpl_int(ntx__tpl_i(v));
}

FILTER(round)
{
    int64_t digits = ntx__tpl_given_int(t, a, 0, "precision", 0);
    const struct str *how = ntx__tpl_string(t, ntx__tpl_given(a, 1, "method", ntx__tpl_text(t, "common")));
    double f = NAN, by = pow(10, (double)digits);
    if (v.type == V_FLOAT)
        f = v.f;
    else if (ntx__tpl_whole(v))
        f = (double)ntx__tpl_i(v);
    if (isnan(f))
        ntx__tpl_fail(t, -EINVAL, "round of a %s", ntx__tpl_type(v));
    if (ntx__tpl_whole(v) && ntx__tpl_is(how, "common"))
        return v;
    if (ntx__tpl_is(how, "ceil"))
        return ntx__tpl_float(ceil(f * by) / by);
    if (ntx__tpl_is(how, "floor"))
        return ntx__tpl_float(floor(f * by) / by);
    return ntx__tpl_float(nearbyint(f * by) / by);
}

FILTER(format)
{
    struct val values = ntx__tpl_list(t, a->n);
    for (size_t i = 0; i < a->n; i++)
        ntx__tpl_push(t, values.l, a->v[i]);
    values.type = V_TUPLE;
    return ntx__tpl_percent(t, ntx__tpl_string(t, v), values);
}

FILTER(attr)
{
    const struct str *name = ntx__tpl_string(t, ntx__tpl_given(a, 0, "name", nothing));
    return v.type == V_DICT ? ntx__tpl_method(t, v, name)
                            : ntx__tpl_attr(t, v, name); /* an attribute, never an element */
}

FILTER(wordcount)
{
    (void)a;
    const struct str *s = ntx__tpl_string(t, v);
    int64_t n = 0;
    bool in_word = false;
    uint32_t c;
    for (size_t i = 0; i < s->n;) {
        i += ntx__tpl_char(s->p + i, s->n - i, &c);
        n += !in_word && !ntx__tpl_space(c);
        in_word = !ntx__tpl_space(c);
    }
    return ntx__tpl_int(n);
}

static const struct {
    const char *name;
    ntx__tpl_filter_fn *filter;
} rows[] = {
    {"tojson", f_tojson},
    {"trim", f_trim},
    {"length", f_length},
    {"count", f_length},
    {"string", f_string},
    {"default", f_default},
    {"d", f_default},
    {"join", ntx__tpl_f_join},
    {"items", ntx__tpl_f_items},
    {"upper", f_upper},
    {"lower", f_lower},
    {"title", f_title},
    {"capitalize", f_capitalize},
    {"safe", f_safe},
    {"escape", f_escape},
    {"e", f_escape},
    {"dictsort", ntx__tpl_f_dictsort},
    {"list", ntx__tpl_f_list},
    {"replace", f_replace},
    {"select", ntx__tpl_f_select},
    {"reject", ntx__tpl_f_reject},
    {"selectattr", ntx__tpl_f_selectattr},
    {"rejectattr", ntx__tpl_f_rejectattr},
    {"map", ntx__tpl_f_map},
    {"indent", f_indent},
    {"from_json", f_fromjson},
    {"fromjson", f_fromjson},
    {"int", f_int},
    {"float", f_float},
    {"abs", f_abs},
    {"round", f_round},
    {"unique", ntx__tpl_f_unique},
    {"sort", ntx__tpl_f_sort},
    {"min", ntx__tpl_f_min},
    {"max", ntx__tpl_f_max},
    {"sum", ntx__tpl_f_sum},
    {"first", ntx__tpl_f_first},
    {"last", ntx__tpl_f_last},
    {"reverse", ntx__tpl_f_reverse},
    {"batch", ntx__tpl_f_batch},
    {"groupby", ntx__tpl_f_groupby},
    {"format", f_format},
    {"attr", f_attr},
    {"wordcount", f_wordcount},
};

bool ntx__tpl_has_filter(const struct str *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (ntx__tpl_is(name, rows[i].name))
            return true;
    return false;
}

struct val ntx__tpl_filter(struct ntx__tpl *t, const struct str *name, struct val v, const struct args *a)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (ntx__tpl_is(name, rows[i].name)) {
            ntx__tpl_enter(t); /* map calls filters, and is one */
            ntx__tpl_charge_text(t, v);
            struct val r = rows[i].filter(t, v, a);
            t->depth--;
            return r;
        }
    ntx__tpl_fail(t, -EINVAL, "there is no filter '%.*s'", (int)(name->n < 40 ? name->n : 40), name->p);
}
