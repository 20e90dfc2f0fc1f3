/* SPDX-License-Identifier: Apache-2.0 */
/* value.c: the arena, strings, lists and dicts of the interpreter, and operations on any value. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/template/tpl.h"

#define BLOCK 65536

struct block {
    struct block *before;
    size_t room, used;
    _Alignas(16) char data[];
};

void ntx__tpl_fail(struct ntx__tpl *t, int rc, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    t->rc = t->line ? ntx_err_set(t->err, rc, "chat template, line %u: %s", t->line, text)
                    : ntx_err_set(t->err, rc, "chat template: %s", text);
    longjmp(t->out, 1);
}

void ntx__tpl_charge(struct ntx__tpl *t, size_t bytes)
{
    if (!t->limits) /* parsing: the length of the source bounds it */
        return;
    uint64_t n = 1 + bytes / 64;
    if ((t->steps & 1023) + n > 1023 && t->limits->cancel && atomic_load(t->limits->cancel))
        ntx__tpl_fail(t, -ECANCELED, "canceled");
    t->steps += n;
    if (t->steps > t->limits->steps)
        ntx__tpl_fail(t, -ENOBUFS, "it takes more than %llu steps", (unsigned long long)t->limits->steps);
}

void ntx__tpl_charge_text(struct ntx__tpl *t, struct val v) { ntx__tpl_charge(t, v.type == V_STR ? 16 * v.s->n : 0); }

void ntx__tpl_enter(struct ntx__tpl *t)
{
    if (++t->depth > NTX__TPL_DEPTH)
        ntx__tpl_fail(t, -ENOBUFS, "it nests deeper than %d levels", NTX__TPL_DEPTH);
    ntx__tpl_charge(t, 0);
}

void *ntx__tpl_alloc(struct ntx__tpl *t, size_t bytes)
{
    struct arena *a = t->arena;
    bytes = (bytes + 15) & ~(size_t)15;
    if (!a->last || bytes > a->last->room - a->last->used) {
        size_t room = bytes > BLOCK / 4 ? bytes : BLOCK;
        if (room > a->limit - a->bytes)
            ntx__tpl_fail(t, -ENOBUFS, "it takes more than %zu MiB of memory", a->limit >> 20);
        struct block *b = calloc(1, sizeof *b + room);
        if (!b)
            ntx__tpl_fail(t, -ENOMEM, "no memory");
        b->room = room;
        a->bytes += room;
        if (a->last && room != BLOCK) { /* a large block is inserted behind the one that still has room */
            b->before = a->last->before;
            a->last->before = b;
            b->used = bytes;
            ntx__tpl_charge(t, bytes);
            return b->data;
        }
        b->before = a->last;
        a->last = b;
    }
    void *p = a->last->data + a->last->used;
    a->last->used += bytes;
    ntx__tpl_charge(t, bytes);
    return p;
}

void ntx__tpl_arena_free(struct arena *a)
{
    while (a->last) {
        struct block *b = a->last;
        a->last = b->before;
        free(b);
    }
}

struct str *ntx__tpl_str(struct ntx__tpl *t, const char *p, size_t n, uint8_t mark)
{
    if (n > t->arena->limit / 2)
        ntx__tpl_fail(t, -ENOBUFS, "it takes more than %zu MiB of memory", t->arena->limit >> 20);
    struct str *s = ntx__tpl_alloc(t, sizeof *s + 2 * n);
    s->n = n;
    if (p && n) {
        memcpy(s->p, p, n);
        memset(s->p + n, mark, n);
    }
    return s;
}

struct val ntx__tpl_text(struct ntx__tpl *t, const char *literal)
{
    return ntx__tpl_of(ntx__tpl_str(t, literal, strlen(literal), 0));
}

struct val ntx__tpl_sub(struct ntx__tpl *t, const struct str *s, size_t from, size_t to)
{
    if (from >= to)
        return ntx__tpl_of(ntx__tpl_str(t, NULL, 0, 0));
    struct str *r = ntx__tpl_str(t, NULL, to - from, 0);
    memcpy(r->p, s->p + from, r->n);
    memcpy(r->p + r->n, s->p + s->n + from, r->n);
    return ntx__tpl_of(r);
}

bool ntx__tpl_is(const struct str *s, const char *text) { return strlen(text) == s->n && !memcmp(s->p, text, s->n); }

struct val ntx__tpl_list(struct ntx__tpl *t, size_t room)
{
    struct list *l = ntx__tpl_alloc(t, sizeof *l);
    if (room > t->arena->limit / sizeof *l->v)
        ntx__tpl_fail(t, -ENOBUFS, "it takes more than %zu MiB of memory", t->arena->limit >> 20);
    l->v = ntx__tpl_alloc(t, room * sizeof *l->v);
    l->room = room;
    return (struct val){.type = V_LIST, .l = l};
}

void ntx__tpl_push(struct ntx__tpl *t, struct list *l, struct val v)
{
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 4;
        struct val *p = ntx__tpl_alloc(t, room * sizeof *p);
        if (l->n)
            memcpy(p, l->v, l->n * sizeof *p);
        l->v = p;
        l->room = room;
    }
    l->v[l->n++] = v;
}

struct val ntx__tpl_dict(struct ntx__tpl *t)
{
    return (struct val){.type = V_DICT, .d = ntx__tpl_alloc(t, sizeof(struct dict))};
}

struct val *ntx__tpl_find(struct ntx__tpl *t, const struct dict *d, struct val key)
{
    if (key.type == V_STR)
        return ntx__tpl_find_name(t, d, key.s);
    for (size_t i = 0; i < d->n; i++)
        if (ntx__tpl_equal(t, d->e[i].k, key))
            return &d->e[i].v;
    return NULL;
}

struct val *ntx__tpl_find_name(struct ntx__tpl *t, const struct dict *d, const struct str *name)
{
    char last = name->n ? name->p[name->n - 1] : 0; /* names of equal length mostly differ at their ends */
    for (size_t i = 0; i < d->n; i++) {
        const struct str *k = d->e[i].k.s;
        if (d->e[i].k.type != V_STR || k->n != name->n || (name->n && k->p[name->n - 1] != last))
            continue;
        if (name->n > 64)
            ntx__tpl_charge(t, name->n);
        if (!memcmp(k->p, name->p, name->n)) {
            ntx__tpl_charge(t, 2 * i);
            return &d->e[i].v;
        }
    }
    ntx__tpl_charge(t, 2 * d->n);
    return NULL;
}

void ntx__tpl_put(struct ntx__tpl *t, struct dict *d, struct val key, struct val v)
{
    if (key.type == V_LIST || key.type == V_DICT)
        ntx__tpl_fail(t, -EINVAL, "a %s cannot be a key", ntx__tpl_type(key));
    if (key.type == V_FLOAT && isnan(key.f))
        ntx__tpl_fail(t, -EINVAL, "NaN cannot be a key: it would not be found again");
    struct val *old = ntx__tpl_find(t, d, key);
    if (old) {
        *old = v;
        return;
    }
    if (d->n == d->room) {
        size_t room = d->room ? 2 * d->room : 4;
        struct pair *e = ntx__tpl_alloc(t, room * sizeof *e);
        if (d->n)
            memcpy(e, d->e, d->n * sizeof *e);
        d->e = e;
        d->room = room;
    }
    d->e[d->n++] = (struct pair){key, v};
}

bool ntx__tpl_truth(struct val v)
{
    switch (v.type) {
    case V_UNDEF:
    case V_NONE: return false;
    case V_BOOL: return v.b;
    case V_INT: return v.i != 0;
    case V_FLOAT: return v.f != 0;
    case V_STR: return v.s->n != 0;
    case V_LIST:
    case V_TUPLE: return v.l->n != 0;
    case V_DICT: return v.d->n != 0;
    default: return true;
    }
}

static bool is_number(struct val v) { return v.type == V_BOOL || v.type == V_INT || v.type == V_FLOAT; }
static double real(struct val v) { return v.type == V_FLOAT ? v.f : (double)ntx__tpl_i(v); }

static bool same_lists(struct ntx__tpl *t, const struct list *a, const struct list *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = ntx__tpl_equal(t, a->v[i], b->v[i]);
    return same;
}

static bool same_dicts(struct ntx__tpl *t, const struct dict *a, const struct dict *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        struct val *v = ntx__tpl_find(t, b, a->e[i].k);
        same = v && ntx__tpl_equal(t, a->e[i].v, *v);
    }
    return same;
}

bool ntx__tpl_equal(struct ntx__tpl *t, struct val a, struct val b)
{
    ntx__tpl_charge(t, a.type == V_STR && b.type == V_STR && a.s->n == b.s->n ? a.s->n : 0);
    if (is_number(a) && is_number(b))
        return a.type == V_FLOAT || b.type == V_FLOAT ? real(a) == real(b) : ntx__tpl_i(a) == ntx__tpl_i(b);
    if (a.type != b.type)
        return false;
    ntx__tpl_enter(t);
    bool same = true;
    if (a.type == V_STR)
        same = a.s->n == b.s->n && !memcmp(a.s->p, b.s->p, a.s->n);
    else if (a.type == V_LIST || a.type == V_TUPLE)
        same = a.l == b.l || same_lists(t, a.l, b.l);
    else if (a.type == V_DICT)
        same = a.d == b.d || same_dicts(t, a.d, b.d);
    else if (a.type > V_DICT)
        same = a.d == b.d;
    t->depth--;
    return same;
}

static int order_lists(struct ntx__tpl *t, const struct list *a, const struct list *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!ntx__tpl_equal(t, a->v[i], b->v[i]))
            return ntx__tpl_order(t, a->v[i], b->v[i]);
    return a->n < b->n ? -1 : a->n > b->n;
}

int ntx__tpl_order(struct ntx__tpl *t, struct val a, struct val b)
{
    int c = 0;
    ntx__tpl_enter(t);
    size_t common = 0;
    if (a.type == V_STR && b.type == V_STR)
        common = a.s->n < b.s->n ? a.s->n : b.s->n;
    ntx__tpl_charge(t, common);
    if (ntx__tpl_whole(a) && ntx__tpl_whole(b))
        c = ntx__tpl_i(a) < ntx__tpl_i(b) ? -1 : ntx__tpl_i(a) > ntx__tpl_i(b);
    else if (is_number(a) && is_number(b))
        c = real(a) < real(b) ? -1 : real(a) > real(b);
    else if (a.type == V_STR && b.type == V_STR) { /* UTF-8 bytes have the order of their characters */
        c = memcmp(a.s->p, b.s->p, common);
        if (!c)
            c = a.s->n < b.s->n ? -1 : a.s->n > b.s->n;
    } else if (a.type == b.type && (a.type == V_LIST || a.type == V_TUPLE))
        c = order_lists(t, a.l, b.l);
    else if (a.type == V_UNDEF || b.type == V_UNDEF)
        ntx__tpl_undefined(t, a.type == V_UNDEF ? a : b);
    else
        ntx__tpl_fail(t, -EINVAL, "a %s and a %s have no order", ntx__tpl_type(a), ntx__tpl_type(b));
    t->depth--;
    return c;
}

const char *ntx__tpl_type(struct val v)
{
    static const char *const names[] = {"undefined", "none", "bool",      "int",   "float",  "str",      "list",
                                        "tuple",     "dict", "namespace", "macro", "method", "function", "loop"};
    return names[v.type];
}

void ntx__tpl_undefined(struct ntx__tpl *t, struct val v)
{
    if (v.s)
        ntx__tpl_fail(t, -EINVAL, "'%.*s' is undefined", (int)(v.s->n < 80 ? v.s->n : 80), v.s->p);
    ntx__tpl_fail(t, -EINVAL, "what is used here is undefined");
}

size_t ntx__tpl_length(struct ntx__tpl *t, struct val v)
{
    switch (v.type) {
    case V_UNDEF: return 0;
    case V_STR: ntx__tpl_charge(t, v.s->n); return ntx__tpl_count(v.s->p, v.s->n);
    case V_LIST:
    case V_TUPLE: return v.l->n;
    case V_DICT: return v.d->n;
    default: ntx__tpl_fail(t, -EINVAL, "a %s has no length", ntx__tpl_type(v));
    }
}

static struct list *chars(struct ntx__tpl *t, const struct str *s)
{
    struct list *l = ntx__tpl_list(t, ntx__tpl_count(s->p, s->n)).l;
    uint32_t c;
    for (size_t i = 0, n; i < s->n; i += n) {
        n = ntx__tpl_char(s->p + i, s->n - i, &c);
        ntx__tpl_push(t, l, ntx__tpl_sub(t, s, i, i + n));
    }
    return l;
}

struct list *ntx__tpl_iterate(struct ntx__tpl *t, struct val v)
{
    struct list *l;
    switch (v.type) {
    case V_UNDEF: return ntx__tpl_list(t, 0).l;
    case V_STR: return chars(t, v.s);
    case V_LIST:
    case V_TUPLE: return v.l;
    case V_DICT:
        l = ntx__tpl_list(t, v.d->n).l;
        for (size_t i = 0; i < v.d->n; i++)
            ntx__tpl_push(t, l, v.d->e[i].k);
        return l;
    default: ntx__tpl_fail(t, -EINVAL, "a %s is nothing to go through", ntx__tpl_type(v));
    }
}
