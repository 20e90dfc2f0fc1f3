/* SPDX-License-Identifier: Apache-2.0 */
/* eval.c: expressions. */
#include <errno.h>
#include <math.h>

#include "model/template/tpl.h"

static struct val undefined(const struct str *name) { return (struct val){.type = V_UNDEF, .s = name}; }

static struct val variable(struct ntx__tpl *t, const struct str *name)
{
    if (!name)
        return t->piped;
    for (const struct scope *s = t->scope; s; s = s->up) {
        struct val *v = ntx__tpl_find_name(t, &s->vars, name);
        if (v)
            return *v;
    }
    struct val *v = ntx__tpl_find_name(t, &t->globals, name);
    return v ? *v : undefined(name);
}

struct val ntx__tpl_attr(struct ntx__tpl *t, struct val v, const struct str *name)
{
    if (v.type == V_UNDEF)
        ntx__tpl_undefined(t, v);
    if (v.type == V_LOOP)
        return ntx__tpl_loop_attr(t, v.loop, name);
    if (v.type != V_SPACE) {
        struct val m = ntx__tpl_method(t, v, name);
        if (m.type != V_UNDEF)
            return m;
    }
    struct val *found = v.type == V_DICT || v.type == V_SPACE ? ntx__tpl_find_name(t, v.d, name) : NULL;
    return found ? *found : undefined(name);
}

static struct val element(struct ntx__tpl *t, struct val v, int64_t i)
{
    int64_t n = (int64_t)ntx__tpl_length(t, v);
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n)
        return undefined(NULL);
    if (v.type != V_STR)
        return v.l->v[i];
    size_t at = ntx__tpl_offset(v.s->p, v.s->n, (size_t)i);
    return ntx__tpl_sub(t, v.s, at, at + ntx__tpl_offset(v.s->p + at, v.s->n - at, 1));
}

struct val ntx__tpl_item(struct ntx__tpl *t, struct val v, struct val key)
{
    if (v.type == V_UNDEF)
        ntx__tpl_undefined(t, v);
    if (v.type == V_DICT) {
        struct val *found = ntx__tpl_find(t, v.d, key);
        if (found)
            return *found;
    }
    if (ntx__tpl_whole(key) && (v.type == V_LIST || v.type == V_TUPLE || v.type == V_STR))
        return element(t, v, ntx__tpl_i(key));
    if (key.type == V_STR)
        return ntx__tpl_attr(t, v, key.s);
    return undefined(NULL);
}

/* Bounds of a slice of n elements, by Python's rules. */
static int64_t bound(struct ntx__tpl *t, struct val v, int64_t otherwise, int64_t n, bool down)
{
    if (v.type == V_NONE || v.type == V_UNDEF)
        return otherwise;
    if (!ntx__tpl_whole(v))
        ntx__tpl_fail(t, -EINVAL, "a slice has integers as its bounds, not a %s", ntx__tpl_type(v));
    int64_t i = ntx__tpl_i(v);
    i = i < 0 ? i + n : i;
    int64_t least = down ? -1 : 0, most = down ? n - 1 : n;
    if (i < least)
        return least;
    return i > most ? most : i;
}

struct val ntx__tpl_slice(struct ntx__tpl *t, struct val v, const struct val bounds[3])
{
    if (v.type == V_UNDEF)
        ntx__tpl_undefined(t, v);
    if (v.type != V_STR && v.type != V_LIST && v.type != V_TUPLE)
        ntx__tpl_fail(t, -EINVAL, "a %s cannot be sliced", ntx__tpl_type(v));
    int64_t n = (int64_t)ntx__tpl_length(t, v), step = ntx__tpl_whole(bounds[2]) ? ntx__tpl_i(bounds[2]) : 1;
    if (!step || step == INT64_MIN)
        ntx__tpl_fail(t, -EINVAL, "a slice cannot have this step");
    int64_t from = bound(t, bounds[0], step < 0 ? n - 1 : 0, n, step < 0),
            to = bound(t, bounds[1], step < 0 ? -1 : n, n, step < 0);
    if (v.type == V_STR && step == 1) {
        size_t a = ntx__tpl_offset(v.s->p, v.s->n, (size_t)from);
        return from < to ? ntx__tpl_sub(t, v.s, a, a + ntx__tpl_offset(v.s->p + a, v.s->n - a, (size_t)(to - from)))
                         : ntx__tpl_text(t, "");
    }
    const struct list *all = ntx__tpl_iterate(t, v);
    struct val r = ntx__tpl_list(t, 0);
    struct buf b = {0};
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        if (v.type == V_STR)
            ntx__tpl_add_str(t, &b, all->v[i].s);
        else
            ntx__tpl_push(t, r.l, all->v[i]);
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    r.type = v.type;
    return v.type == V_STR ? ntx__tpl_taken(t, &b) : r;
}

static struct val slice(struct ntx__tpl *t, const struct node *n)
{
    struct val v = ntx__tpl_eval(t, n->a), bounds[3];
    for (int i = 0; i < 3; i++)
        bounds[i] = n->list[i] ? ntx__tpl_eval(t, n->list[i]) : (struct val){.type = V_NONE};
    return ntx__tpl_slice(t, v, bounds);
}

static struct val elements(struct ntx__tpl *t, const struct node *n)
{
    struct val v = ntx__tpl_list(t, n->n);
    for (uint32_t i = 0; i < n->n; i++)
        ntx__tpl_push(t, v.l, ntx__tpl_eval(t, n->list[i]));
    v.type = n->kind == E_TUPLE ? V_TUPLE : V_LIST;
    return v;
}

static struct val pairs(struct ntx__tpl *t, const struct node *n)
{
    struct val v = ntx__tpl_dict(t);
    for (uint32_t i = 0; i + 1 < n->n; i += 2) {
        struct val key = ntx__tpl_eval(t, n->list[i]);
        ntx__tpl_put(t, v.d, key, ntx__tpl_eval(t, n->list[i + 1]));
    }
    return v;
}

static struct val chain(struct ntx__tpl *t, const struct node *n)
{
    struct val a = ntx__tpl_eval(t, n->list[0]);
    for (uint32_t i = 1; i < n->n; i++) {
        struct val b = ntx__tpl_eval(t, n->list[i]);
        if (!ntx__tpl_compare(t, n->ops[i - 1], a, b))
            return ntx__tpl_bool(false);
        a = b;
    }
    return ntx__tpl_bool(true);
}

static struct val concat(struct ntx__tpl *t, const struct node *n)
{
    struct buf b = {0};
    for (uint32_t i = 0; i < n->n; i++)
        ntx__tpl_add_val(t, &b, ntx__tpl_eval(t, n->list[i]));
    return ntx__tpl_taken(t, &b);
}

static struct val sign(struct ntx__tpl *t, const struct node *n)
{
    struct val v = ntx__tpl_eval(t, n->a);
    if (v.type == V_UNDEF)
        ntx__tpl_undefined(t, v);
    if (v.type == V_FLOAT)
        return ntx__tpl_float(n->kind == E_NEG ? -v.f : v.f);
    if (!ntx__tpl_whole(v) || ntx__tpl_i(v) == INT64_MIN)
        ntx__tpl_fail(t, -EINVAL, "a %s has no sign", ntx__tpl_type(v));
    return ntx__tpl_int(n->kind == E_NEG ? -ntx__tpl_i(v) : ntx__tpl_i(v));
}

static struct val filtered(struct ntx__tpl *t, const struct node *n)
{
    struct val v = ntx__tpl_eval(t, n->a);
    struct args a = ntx__tpl_args(t, n);
    return ntx__tpl_filter(t, n->name, v, &a);
}

static struct val tested(struct ntx__tpl *t, const struct node *n)
{
    struct val v = ntx__tpl_eval(t, n->a);
    struct args a = ntx__tpl_args(t, n);
    return ntx__tpl_bool(ntx__tpl_test(t, n->name, v, &a) != n->flag);
}

static struct val called(struct ntx__tpl *t, const struct node *n)
{
    struct val f = ntx__tpl_eval(t, n->a);
    struct args a = ntx__tpl_args(t, n);
    t->line = n->line;
    return ntx__tpl_call(t, f, &a);
}

static struct val conditional(struct ntx__tpl *t, const struct node *n) /* b if a else c */
{
    if (ntx__tpl_truth(ntx__tpl_eval(t, n->a)))
        return ntx__tpl_eval(t, n->b);
    return n->c ? ntx__tpl_eval(t, n->c) : undefined(NULL);
}

static struct val either(struct ntx__tpl *t, const struct node *n)
{
    struct val a = ntx__tpl_eval(t, n->a);
    return ntx__tpl_truth(a) == (n->kind == E_OR) ? a : ntx__tpl_eval(t, n->b);
}

static struct val two(struct ntx__tpl *t, const struct node *n)
{
    struct val a = ntx__tpl_eval(t, n->a), b = ntx__tpl_eval(t, n->b);
    return n->kind == E_ITEM ? ntx__tpl_item(t, a, b) : ntx__tpl_binary(t, n->op, a, b);
}

static struct val eval(struct ntx__tpl *t, const struct node *n)
{
    switch (n->kind) {
    case E_CONST: return n->value;
    case E_NAME: return variable(t, n->name);
    case E_LIST:
    case E_TUPLE: return elements(t, n);
    case E_DICT: return pairs(t, n);
    case E_ATTR: return ntx__tpl_attr(t, ntx__tpl_eval(t, n->a), n->name);
    case E_ITEM:
    case E_BINARY: return two(t, n);
    case E_SLICE: return slice(t, n);
    case E_CALL: return called(t, n);
    case E_FILTER: return filtered(t, n);
    case E_TEST: return tested(t, n);
    case E_NEG:
    case E_POS: return sign(t, n);
    case E_NOT: return ntx__tpl_bool(!ntx__tpl_truth(ntx__tpl_eval(t, n->a)));
    case E_AND:
    case E_OR: return either(t, n);
    case E_COND: return conditional(t, n);
    case E_COMPARE: return chain(t, n);
    default: return concat(t, n);
    }
}

struct val ntx__tpl_eval(struct ntx__tpl *t, const struct node *n)
{
    ntx__tpl_enter(t);
    t->line = n->line;
    struct val v = eval(t, n);
    t->depth--;
    return v;
}
