/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c: the operators, with Python's rules. Integers have 64 bits; an overflow is an error. */
#include <errno.h>
#include <math.h>

#include "model/template/tpl.h"

static _Noreturn void unfit(struct ntx__tpl *t, struct val a, struct val b)
{
    if (a.type == V_UNDEF || b.type == V_UNDEF)
        ntx__tpl_undefined(t, a.type == V_UNDEF ? a : b);
    ntx__tpl_fail(t, -EINVAL, "a %s and a %s do not go together here", ntx__tpl_type(a), ntx__tpl_type(b));
}

static struct val power(struct ntx__tpl *t, int64_t a, int64_t b)
{
    int64_t r = 1;
    if (b < 0)
        return ntx__tpl_float(pow((double)a, (double)b));
    if ((a == -1 && b % 2 == 0) || (!b && a >= -1 && a <= 1))
        return ntx__tpl_int(1);
    if (a >= -1 && a <= 1)
        return ntx__tpl_int(a);
    for (; b; b--)
        if (__builtin_mul_overflow(r, a, &r))
            ntx__tpl_fail(t, -EINVAL, "a number is too large");
    return ntx__tpl_int(r);
}

static struct val integers(struct ntx__tpl *t, enum op op, int64_t a, int64_t b)
{
    int64_t r = 0;
    bool over = false;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && !b)
        ntx__tpl_fail(t, -EINVAL, "a division by zero");
    if (b == -1 && a == INT64_MIN)
        over = op != OP_ADD && op != OP_SUB && op != OP_DIV;
    if (over)
        ntx__tpl_fail(t, -EINVAL, "a number is too large");
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(a, b, &r); break;
    case OP_SUB: over = __builtin_sub_overflow(a, b, &r); break;
    case OP_MUL: over = __builtin_mul_overflow(a, b, &r); break;
    case OP_DIV: return ntx__tpl_float((double)a / (double)b);
    case OP_FLOORDIV: r = a / b - (a % b && (a < 0) != (b < 0)); break;
    case OP_MOD:
        r = a % b;
        r += r && (r < 0) != (b < 0) ? b : 0;
        break;
    default: return power(t, a, b);
    }
    if (over)
        ntx__tpl_fail(t, -EINVAL, "a number is too large");
    return ntx__tpl_int(r);
}

static struct val reals(struct ntx__tpl *t, enum op op, double a, double b)
{
    double r;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        ntx__tpl_fail(t, -EINVAL, "a division by zero");
    switch (op) {
    case OP_ADD: return ntx__tpl_float(a + b);
    case OP_SUB: return ntx__tpl_float(a - b);
    case OP_MUL: return ntx__tpl_float(a * b);
    case OP_DIV: return ntx__tpl_float(a / b);
    case OP_FLOORDIV: return ntx__tpl_float(floor(a / b));
    case OP_MOD: r = fmod(a, b); return ntx__tpl_float(r != 0 && (r < 0) != (b < 0) ? r + b : r);
    default: return ntx__tpl_float(pow(a, b));
    }
}

static struct val joined(struct ntx__tpl *t, struct val a, struct val b)
{
    struct buf buf = {0};
    bool safe = a.safe || b.safe; /* HTML + text: the text is escaped */
    ntx__tpl_add_str(t, &buf, safe && !a.safe ? ntx__tpl_escape(t, a.s).s : a.s);
    ntx__tpl_add_str(t, &buf, safe && !b.safe ? ntx__tpl_escape(t, b.s).s : b.s);
    struct val v = ntx__tpl_taken(t, &buf);
    v.safe = safe;
    return v;
}

static struct val appended(struct ntx__tpl *t, struct val a, struct val b)
{
    struct val v = ntx__tpl_list(t, a.l->n + b.l->n);
    for (size_t i = 0; i < a.l->n; i++)
        ntx__tpl_push(t, v.l, a.l->v[i]);
    for (size_t i = 0; i < b.l->n; i++)
        ntx__tpl_push(t, v.l, b.l->v[i]);
    v.type = a.type;
    return v;
}

static struct val repeated(struct ntx__tpl *t, struct val v, int64_t times)
{
    size_t n = v.type == V_STR ? v.s->n : v.l->n;
    if (times > 0 && n > t->arena->limit / (size_t)times)
        ntx__tpl_fail(t, -ENOBUFS, "it takes more than %zu MiB of memory", t->arena->limit >> 20);
    struct val r = ntx__tpl_list(t, 0);
    struct buf b = {0};
    for (int64_t i = 0; n && i < times; i++) {
        if (v.type == V_STR)
            ntx__tpl_add_str(t, &b, v.s);
        for (size_t k = 0; v.type != V_STR && k < n; k++)
            ntx__tpl_push(t, r.l, v.l->v[k]);
    }
    r.type = v.type;
    return v.type == V_STR ? ntx__tpl_taken(t, &b) : r;
}

static bool sequence(struct val v) { return v.type == V_STR || v.type == V_LIST || v.type == V_TUPLE; }

struct val ntx__tpl_binary(struct ntx__tpl *t, enum op op, struct val a, struct val b)
{
    bool wa = ntx__tpl_whole(a), wb = ntx__tpl_whole(b);
    if (wa && wb)
        return integers(t, op, ntx__tpl_i(a), ntx__tpl_i(b));
    if ((wa || a.type == V_FLOAT) && (wb || b.type == V_FLOAT))
        return reals(t, op, wa ? (double)ntx__tpl_i(a) : a.f, wb ? (double)ntx__tpl_i(b) : b.f);
    if (op == OP_ADD && a.type == V_STR && b.type == V_STR)
        return joined(t, a, b);
    if (op == OP_ADD && a.type == b.type && sequence(a))
        return appended(t, a, b);
    if (op == OP_MUL && sequence(a) && wb)
        return repeated(t, a, ntx__tpl_i(b));
    if (op == OP_MUL && wa && sequence(b))
        return repeated(t, b, ntx__tpl_i(a));
    if (op == OP_MOD && a.type == V_STR)
        return ntx__tpl_percent(t, a.s, b);
    unfit(t, a, b);
}

bool ntx__tpl_in(struct ntx__tpl *t, struct val a, struct val b)
{
    if (b.type == V_STR) {
        if (a.type != V_STR)
            ntx__tpl_fail(t, -EINVAL, "only a str is looked for in a str, not a %s", ntx__tpl_type(a));
        ntx__tpl_charge(t, b.s->n);
        return !a.s->n || memmem(b.s->p, b.s->n, a.s->p, a.s->n);
    }
    if (b.type == V_DICT)
        return ntx__tpl_find(t, b.d, a) != NULL;
    const struct list *l = ntx__tpl_iterate(t, b);
    for (size_t i = 0; i < l->n; i++)
        if (ntx__tpl_equal(t, l->v[i], a))
            return true;
    return false;
}

bool ntx__tpl_compare(struct ntx__tpl *t, enum op op, struct val a, struct val b)
{
    switch (op) {
    case OP_EQ: return ntx__tpl_equal(t, a, b);
    case OP_NE: return !ntx__tpl_equal(t, a, b);
    case OP_IN: return ntx__tpl_in(t, a, b);
    case OP_NOT_IN: return !ntx__tpl_in(t, a, b);
    case OP_LT: return ntx__tpl_order(t, a, b) < 0;
    case OP_LE: return ntx__tpl_order(t, a, b) <= 0;
    case OP_GT: return ntx__tpl_order(t, a, b) > 0;
    default: return ntx__tpl_order(t, a, b) >= 0;
    }
}
