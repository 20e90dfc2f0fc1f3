/* SPDX-License-Identifier: Apache-2.0 */
/* call.c: calls: arguments, macros, the table of functions, methods. */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "model/template/tpl.h"

#define RANGE_MAX 100000 /* as in Jinja's sandbox */

/* ---- arguments */

static void spread_argument(struct ntx__tpl *t, struct list *by_place, struct dict *by_name, struct val v,
                            unsigned stars)
{
    if (stars == 1) {
        const struct list *l = ntx__tpl_iterate(t, v);
        for (size_t i = 0; i < l->n; i++)
            ntx__tpl_push(t, by_place, l->v[i]);
        return;
    }
    if (v.type != V_DICT)
        ntx__tpl_fail(t, -EINVAL, "** wants a dict, not a %s", ntx__tpl_type(v));
    for (size_t i = 0; i < v.d->n; i++)
        if (v.d->e[i].k.type == V_STR)
            ntx__tpl_put(t, by_name, v.d->e[i].k, v.d->e[i].v);
}

struct args ntx__tpl_args(struct ntx__tpl *t, const struct node *n)
{
    if (!n->n_args)
        return (struct args){0};
    struct list *by_place = ntx__tpl_list(t, n->n_args).l;
    struct dict by_name = {0};
    for (uint32_t i = 0; i < n->n_args; i++) {
        struct val v = ntx__tpl_eval(t, n->args[i].value);
        if (n->args[i].stars)
            spread_argument(t, by_place, &by_name, v, n->args[i].stars);
        else if (n->args[i].name)
            ntx__tpl_put(t, &by_name, ntx__tpl_of(n->args[i].name), v);
        else
            ntx__tpl_push(t, by_place, v);
    }
    struct args a = {
        .n = by_place->n, .v = by_place->v, .n_kw = by_name.n, .kw = ntx__tpl_alloc(t, by_name.n * sizeof *a.kw)};
    for (size_t i = 0; i < by_name.n; i++)
        a.kw[i] = (struct kwarg){by_name.e[i].k.s, by_name.e[i].v};
    return a;
}

struct val ntx__tpl_given(const struct args *a, size_t place, const char *name, struct val otherwise)
{
    if (place < a->n)
        return a->v[place];
    for (size_t i = 0; i < a->n_kw; i++)
        if (ntx__tpl_is(a->kw[i].name, name))
            return a->kw[i].v;
    return otherwise;
}

int64_t ntx__tpl_given_int(struct ntx__tpl *t, const struct args *a, size_t place, const char *name, int64_t otherwise)
{
    struct val v = ntx__tpl_given(a, place, name, (struct val){.type = V_NONE});
    if (v.type == V_NONE)
        return otherwise;
    if (!ntx__tpl_whole(v))
        ntx__tpl_fail(t, -EINVAL, "%s is to be an int, not a %s", name, ntx__tpl_type(v));
    return ntx__tpl_i(v);
}

/* ---- macros */

static void put_variable(struct ntx__tpl *t, struct scope *s, const char *name, struct val v)
{
    ntx__tpl_put(t, &s->vars, ntx__tpl_text(t, name), v);
}

static bool is_parameter(const struct node *n, const struct str *name)
{
    for (uint32_t i = 0; i < n->n_args; i++)
        if (n->args[i].name->n == name->n && !memcmp(n->args[i].name->p, name->p, name->n))
            return true;
    return false;
}

static void by_name(struct ntx__tpl *t, const struct node *n, const struct args *a, struct scope *s)
{
    struct val kwargs = ntx__tpl_dict(t);
    for (size_t i = 0; i < a->n_kw; i++) {
        if (is_parameter(n, a->kw[i].name) || (n->caller && ntx__tpl_is(a->kw[i].name, "caller")))
            ntx__tpl_put(t, &s->vars, ntx__tpl_of(a->kw[i].name), a->kw[i].v);
        else if (n->kwargs)
            ntx__tpl_put(t, kwargs.d, ntx__tpl_of(a->kw[i].name), a->kw[i].v);
        else
            ntx__tpl_fail(t, -EINVAL, "macro '%.*s' takes no argument '%.*s'", (int)(n->name->n < 40 ? n->name->n : 40),
                          n->name->p, (int)(a->kw[i].name->n < 40 ? a->kw[i].name->n : 40), a->kw[i].name->p);
    }
    if (n->kwargs)
        put_variable(t, s, "kwargs", kwargs);
}

static void by_place(struct ntx__tpl *t, const struct node *n, const struct args *a, struct scope *s)
{
    struct val more = ntx__tpl_list(t, 0);
    for (size_t i = 0; i < a->n; i++) {
        if (i < n->n_args)
            ntx__tpl_put(t, &s->vars, ntx__tpl_of(n->args[i].name), a->v[i]);
        else if (n->flag)
            ntx__tpl_push(t, more.l, a->v[i]);
        else
            ntx__tpl_fail(t, -EINVAL, "macro '%.*s' takes %u arguments, not %zu",
                          (int)(n->name->n < 40 ? n->name->n : 40), n->name->p, n->n_args, a->n);
    }
    more.type = V_TUPLE;
    if (n->flag)
        put_variable(t, s, "varargs", more);
}

static struct val call_macro(struct ntx__tpl *t, const struct macro *m, const struct args *a)
{
    const struct node *n = m->node;
    struct scope *before = t->scope, *s = ntx__tpl_alloc(t, sizeof *s);
    struct buf text = {0}, *buf = t->buf;
    uint32_t line = t->line;
    s->up = m->scope;
    if (n->caller && n->kind == S_MACRO)
        put_variable(t, s, "caller", (struct val){.type = V_UNDEF, .s = ntx__tpl_text(t, "caller").s});
    by_place(t, n, a, s);
    by_name(t, n, a, s);
    t->scope = s;
    for (uint32_t i = 0; i < n->n_args; i++)
        if (!ntx__tpl_find_name(t, &s->vars, n->args[i].name))
            ntx__tpl_put(t, &s->vars, ntx__tpl_of(n->args[i].name),
                         n->args[i].value ? ntx__tpl_eval(t, n->args[i].value)
                                          : (struct val){.type = V_UNDEF, .s = n->args[i].name});
    t->buf = &text;
    ntx__tpl_exec(t, n->b);
    t->buf = buf;
    t->scope = before;
    t->line = line;
    return ntx__tpl_taken(t, &text);
}

/* ---- functions */

static struct val f_range(struct ntx__tpl *t, const struct args *a)
{
    int64_t v[3] = {0, 0, 1};
    if (!a->n || a->n > 3)
        ntx__tpl_fail(t, -EINVAL, "range takes one to three numbers");
    for (size_t i = 0; i < a->n; i++)
        v[a->n == 1 ? 1 : i] = ntx__tpl_given_int(t, a, i, "range", 0);
    if (!v[2])
        ntx__tpl_fail(t, -EINVAL, "range cannot have a step of 0");
    struct val r = ntx__tpl_list(t, 0);
    for (int64_t i = v[0]; v[2] > 0 ? i < v[1] : i > v[1];) {
        if (r.l->n == RANGE_MAX)
            ntx__tpl_fail(t, -ENOBUFS, "a range of more than %d numbers", RANGE_MAX);
        ntx__tpl_push(t, r.l, ntx__tpl_int(i));
        if (__builtin_add_overflow(i, v[2], &i))
            break;
    }
    return r;
}

static struct val f_dict(struct ntx__tpl *t, const struct args *a)
{
    struct val r = ntx__tpl_dict(t), from = ntx__tpl_given(a, 0, "", (struct val){.type = V_NONE});
    if (from.type == V_DICT) {
        for (size_t i = 0; i < from.d->n; i++)
            ntx__tpl_put(t, r.d, from.d->e[i].k, from.d->e[i].v);
    } else if (from.type != V_NONE) {
        const struct list *l = ntx__tpl_iterate(t, from);
        for (size_t i = 0; i < l->n; i++) {
            const struct list *pair = ntx__tpl_iterate(t, l->v[i]);
            if (pair->n != 2)
                ntx__tpl_fail(t, -EINVAL, "dict wants pairs");
            ntx__tpl_put(t, r.d, pair->v[0], pair->v[1]);
        }
    }
    for (size_t i = 0; i < a->n_kw; i++)
        ntx__tpl_put(t, r.d, ntx__tpl_of(a->kw[i].name), a->kw[i].v);
    return r;
}

static struct val f_namespace(struct ntx__tpl *t, const struct args *a)
{
    struct val r = f_dict(t, a);
    r.type = V_SPACE;
    return r;
}

static struct val f_raise(struct ntx__tpl *t, const struct args *a)
{
    const struct str *s = ntx__tpl_string(t, ntx__tpl_given(a, 0, "message", (struct val){.type = V_NONE}));
    t->line = 0;
    ntx__tpl_fail(t, -EINVAL, "it refuses: %.*s", (int)(s->n < 300 ? s->n : 300), s->p);
}

static struct val f_now(struct ntx__tpl *t, const struct args *a)
{
    const struct str *s = ntx__tpl_string(t, ntx__tpl_given(a, 0, "format", (struct val){.type = V_NONE}));
    char format[256], text[1024];
    time_t now = (time_t)t->limits->now;
    struct tm tm;
    if (s->n >= sizeof format || memchr(s->p, 0, s->n) || !localtime_r(&now, &tm))
        ntx__tpl_fail(t, -EINVAL, "strftime_now cannot do this");
    memcpy(format, s->p, s->n);
    format[s->n] = 0;
    size_t n = s->n ? strftime(text, sizeof text, format, &tm) : 0;
    uint8_t people = 0; /* a user's format makes users' text */
    for (size_t i = 0; i < s->n; i++)
        people |= ntx__tpl_marks(s)[i];
    return ntx__tpl_of(ntx__tpl_str(t, text, n, people));
}

static const struct func functions[] = {
    {"range", f_range},           {"dict", f_dict},        {"namespace", f_namespace},
    {"raise_exception", f_raise}, {"strftime_now", f_now},
};

void ntx__tpl_globals(struct ntx__tpl *t)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        ntx__tpl_put(t, &t->globals, ntx__tpl_text(t, functions[i].name),
                     (struct val){.type = V_FUNC, .func = &functions[i]});
}

struct val ntx__tpl_call(struct ntx__tpl *t, struct val f, const struct args *a)
{
    struct val r;
    ntx__tpl_enter(t);
    switch (f.type) {
    case V_MACRO: r = call_macro(t, f.m, a); break;
    case V_METHOD: r = ntx__tpl_method_call(t, f.bound, a); break;
    case V_FUNC: r = f.func->call(t, a); break;
    case V_LOOP: r = ntx__tpl_recurse(t, f.loop, ntx__tpl_given(a, 0, "iterable", (struct val){0})); break;
    case V_UNDEF: ntx__tpl_undefined(t, f);
    default: ntx__tpl_fail(t, -EINVAL, "a %s cannot be called", ntx__tpl_type(f));
    }
    t->depth--;
    return r;
}
