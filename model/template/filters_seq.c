/* SPDX-License-Identifier: Apache-2.0 */
/* filters_seq.c: the filters on sequences. Python's generators are lists here. */
#include <errno.h>

#include "model/template/tpl.h"

static const struct val nothing = {.type = V_NONE};

/* The attribute path "a.b.0" of v. */
static struct val path(struct ntx__tpl *t, struct val v, struct val attribute)
{
    if (attribute.type == V_INT)
        return ntx__tpl_item(t, v, attribute);
    const struct str *s = ntx__tpl_string(t, attribute);
    for (size_t from = 0, to; from <= s->n; from = to + 1) {
        const char *dot = memchr(s->p + from, '.', s->n - from);
        to = dot ? (size_t)(dot - s->p) : s->n;
        struct val part = ntx__tpl_sub(t, s, from, to);
        bool digits = to > from && to - from < 10;
        int64_t i = 0;
        for (size_t k = from; k < to && digits; k++) {
            digits = s->p[k] >= '0' && s->p[k] <= '9';
            i = 10 * i + (s->p[k] - '0');
        }
        v = ntx__tpl_item(t, v, digits ? ntx__tpl_int(i) : part);
    }
    return v;
}

struct val ntx__tpl_f_join(struct ntx__tpl *t, struct val v, const struct args *a)
{
    struct val between = ntx__tpl_given(a, 0, "d", nothing), attribute = ntx__tpl_given(a, 1, "attribute", nothing);
    const struct list *l = ntx__tpl_iterate(t, v);
    struct buf b = {0};
    for (size_t i = 0; i < l->n; i++) {
        if (i && between.type != V_NONE)
            ntx__tpl_add_val(t, &b, between);
        ntx__tpl_add_val(t, &b, attribute.type == V_NONE ? l->v[i] : path(t, l->v[i], attribute));
    }
    return ntx__tpl_taken(t, &b);
}

/* The arguments after the first n. */
static struct args rest(const struct args *a, size_t n)
{
    struct args r = *a;
    n = n < a->n ? n : a->n;
    if (n) {
        r.v += n;
        r.n -= n;
    }
    return r;
}

/* The elements of v; None and 0 have none. */
static const struct list *some(struct ntx__tpl *t, struct val v)
{
    return ntx__tpl_iterate(t, ntx__tpl_truth(v) ? v : (struct val){0});
}

struct val ntx__tpl_f_map(struct ntx__tpl *t, struct val v, const struct args *a)
{
    struct val attribute = ntx__tpl_given(a, SIZE_MAX, "attribute", nothing),
               otherwise = ntx__tpl_given(a, SIZE_MAX, "default", nothing);
    const struct list *l = some(t, v);
    struct val r = ntx__tpl_list(t, l->n);
    struct args more = rest(a, 1);
    if (attribute.type == V_NONE && !a->n)
        ntx__tpl_fail(t, -EINVAL, "map wants a filter or an attribute");
    for (size_t i = 0; i < l->n; i++) {
        struct val e = attribute.type == V_NONE ? ntx__tpl_filter(t, ntx__tpl_string(t, a->v[0]), l->v[i], &more)
                                                : path(t, l->v[i], attribute);
        ntx__tpl_push(t, r.l, e.type == V_UNDEF && otherwise.type != V_NONE ? otherwise : e);
    }
    return r;
}

static struct val pick(struct ntx__tpl *t, struct val v, const struct args *a, bool by_attribute, bool want)
{
    const struct list *l = some(t, v);
    struct val r = ntx__tpl_list(t, 0);
    struct args more = rest(a, by_attribute + 1u);
    if (by_attribute && !a->n)
        ntx__tpl_fail(t, -EINVAL, "an attribute is missing");
    for (size_t i = 0; i < l->n; i++) {
        struct val e = by_attribute ? path(t, l->v[i], a->v[0]) : l->v[i];
        bool holds = a->n > by_attribute ? ntx__tpl_test(t, ntx__tpl_string(t, a->v[by_attribute]), e, &more)
                                         : ntx__tpl_truth(e);
        if (holds == want)
            ntx__tpl_push(t, r.l, l->v[i]);
    }
    return r;
}

struct val ntx__tpl_f_select(struct ntx__tpl *t, struct val v, const struct args *a)
{
    return pick(t, v, a, false, true);
}
struct val ntx__tpl_f_reject(struct ntx__tpl *t, struct val v, const struct args *a)
{
    return pick(t, v, a, false, false);
}
struct val ntx__tpl_f_selectattr(struct ntx__tpl *t, struct val v, const struct args *a)
{
    return pick(t, v, a, true, true);
}
struct val ntx__tpl_f_rejectattr(struct ntx__tpl *t, struct val v, const struct args *a)
{
    return pick(t, v, a, true, false);
}

static struct val folded(struct ntx__tpl *t, struct val v, bool case_sensitive)
{
    return v.type == V_STR && !case_sensitive ? ntx__tpl_lower(t, v.s) : v;
}

static struct val key_of(struct ntx__tpl *t, struct val v, struct val attribute, bool case_sensitive)
{
    return folded(t, attribute.type == V_NONE ? v : path(t, v, attribute), case_sensitive);
}

/* A stable merge sort by keys[i]; down: largest first, equal ones keep their order. No list takes quadratic time. */
static void merge_sort(struct ntx__tpl *t, struct val *keys, struct val *v, size_t n, bool down)
{
    if (n < 2)
        return;
    size_t half = n / 2, i = 0, k = half;
    merge_sort(t, keys, v, half, down);
    merge_sort(t, keys + half, v + half, n - half, down);
    struct val *kk = ntx__tpl_alloc(t, 2 * n * sizeof *kk), *vv = kk + n;
    for (size_t out = 0; out < n; out++) {
        int c = i < half && k < n ? ntx__tpl_order(t, keys[i], keys[k]) : 0;
        bool left = i < half && (k == n || (down ? c >= 0 : c <= 0));
        size_t from = left ? i++ : k++;
        kk[out] = keys[from];
        vv[out] = v[from];
    }
    memcpy(keys, kk, n * sizeof *keys);
    memcpy(v, vv, n * sizeof *v);
}

static struct val sorted(struct ntx__tpl *t, const struct list *l, struct val attribute, bool case_sensitive, bool down)
{
    struct val r = ntx__tpl_list(t, l->n), *keys = ntx__tpl_alloc(t, l->n * sizeof *keys);
    for (size_t i = 0; i < l->n; i++) {
        keys[i] = key_of(t, l->v[i], attribute, case_sensitive);
        ntx__tpl_push(t, r.l, l->v[i]);
    }
    merge_sort(t, keys, r.l->v, l->n, down);
    return r;
}

struct val ntx__tpl_f_sort(struct ntx__tpl *t, struct val v, const struct args *a)
{
    bool down = ntx__tpl_truth(ntx__tpl_given(a, 0, "reverse", nothing)),
         exact = ntx__tpl_truth(ntx__tpl_given(a, 1, "case_sensitive", nothing));
    return sorted(t, ntx__tpl_iterate(t, v), ntx__tpl_given(a, 2, "attribute", nothing), exact, down);
}

static struct val pairs(struct ntx__tpl *t, const struct dict *d)
{
    struct val r = ntx__tpl_list(t, d->n);
    for (size_t i = 0; i < d->n; i++) {
        struct val pair = ntx__tpl_list(t, 2);
        pair.type = V_TUPLE;
        ntx__tpl_push(t, pair.l, d->e[i].k);
        ntx__tpl_push(t, pair.l, d->e[i].v);
        ntx__tpl_push(t, r.l, pair);
    }
    return r;
}

struct val ntx__tpl_f_items(struct ntx__tpl *t, struct val v, const struct args *a)
{
    (void)a;
    if (v.type == V_UNDEF)
        return ntx__tpl_list(t, 0);
    if (v.type != V_DICT)
        ntx__tpl_fail(t, -EINVAL, "a %s has no items", ntx__tpl_type(v));
    return pairs(t, v.d);
}

struct val ntx__tpl_f_dictsort(struct ntx__tpl *t, struct val v, const struct args *a)
{
    bool exact = ntx__tpl_truth(ntx__tpl_given(a, 0, "case_sensitive", nothing)),
         down = ntx__tpl_truth(ntx__tpl_given(a, 2, "reverse", nothing));
    bool by_value = ntx__tpl_is(ntx__tpl_string(t, ntx__tpl_given(a, 1, "by", nothing)), "value");
    if (v.type == V_UNDEF)
        ntx__tpl_undefined(t, v);
    return sorted(t, ntx__tpl_f_items(t, v, a).l, ntx__tpl_int(by_value), exact, down);
}

struct val ntx__tpl_f_unique(struct ntx__tpl *t, struct val v, const struct args *a)
{
    bool exact = ntx__tpl_truth(ntx__tpl_given(a, 0, "case_sensitive", nothing));
    struct val attribute = ntx__tpl_given(a, 1, "attribute", nothing), r = ntx__tpl_list(t, 0), seen = ntx__tpl_dict(t);
    const struct list *l = ntx__tpl_iterate(t, v);
    for (size_t i = 0; i < l->n; i++) {
        struct val key = key_of(t, l->v[i], attribute, exact);
        if (!ntx__tpl_find(t, seen.d, key))
            ntx__tpl_push(t, r.l, l->v[i]);
        ntx__tpl_put(t, seen.d, key, nothing);
    }
    return r;
}

struct val ntx__tpl_f_list(struct ntx__tpl *t, struct val v, const struct args *a)
{
    const struct list *l = ntx__tpl_iterate(t, v);
    struct val r = ntx__tpl_list(t, l->n);
    (void)a;
    for (size_t i = 0; i < l->n; i++)
        ntx__tpl_push(t, r.l, l->v[i]);
    return r;
}

struct val ntx__tpl_f_first(struct ntx__tpl *t, struct val v, const struct args *a)
{
    const struct list *l = ntx__tpl_iterate(t, v);
    (void)a;
    return l->n ? l->v[0] : (struct val){0};
}

struct val ntx__tpl_f_last(struct ntx__tpl *t, struct val v, const struct args *a)
{
    const struct list *l = ntx__tpl_iterate(t, v);
    (void)a;
    return l->n ? l->v[l->n - 1] : (struct val){0};
}

static struct val extreme(struct ntx__tpl *t, struct val v, const struct args *a, int sign)
{
    bool exact = ntx__tpl_truth(ntx__tpl_given(a, 0, "case_sensitive", nothing));
    struct val attribute = ntx__tpl_given(a, 1, "attribute", nothing), best = {0}, key = {0};
    const struct list *l = ntx__tpl_iterate(t, v);
    for (size_t i = 0; i < l->n; i++) {
        struct val k = key_of(t, l->v[i], attribute, exact);
        if (!i || sign * ntx__tpl_order(t, k, key) > 0) {
            best = l->v[i];
            key = k;
        }
    }
    return best;
}

struct val ntx__tpl_f_min(struct ntx__tpl *t, struct val v, const struct args *a) { return extreme(t, v, a, -1); }
struct val ntx__tpl_f_max(struct ntx__tpl *t, struct val v, const struct args *a) { return extreme(t, v, a, 1); }

struct val ntx__tpl_f_sum(struct ntx__tpl *t, struct val v, const struct args *a)
{
    struct val attribute = ntx__tpl_given(a, 0, "attribute", nothing),
               total = ntx__tpl_given(a, 1, "start", ntx__tpl_int(0));
    const struct list *l = ntx__tpl_iterate(t, v);
    for (size_t i = 0; i < l->n; i++)
        total = ntx__tpl_binary(t, OP_ADD, total, attribute.type == V_NONE ? l->v[i] : path(t, l->v[i], attribute));
    return total;
}

struct val ntx__tpl_f_reverse(struct ntx__tpl *t, struct val v, const struct args *a)
{
    (void)a;
    if (v.type == V_STR)
        return ntx__tpl_slice(t, v, (const struct val[]){nothing, nothing, ntx__tpl_int(-1)});
    const struct list *l = ntx__tpl_iterate(t, v);
    struct val r = ntx__tpl_list(t, l->n);
    for (size_t i = l->n; i; i--)
        ntx__tpl_push(t, r.l, l->v[i - 1]);
    return r;
}

struct val ntx__tpl_f_batch(struct ntx__tpl *t, struct val v, const struct args *a)
{
    int64_t size = ntx__tpl_given_int(t, a, 0, "linecount", 0);
    struct val fill = ntx__tpl_given(a, 1, "fill_with", nothing), r = ntx__tpl_list(t, 0), part = nothing;
    const struct list *l = ntx__tpl_iterate(t, v);
    if (size < 1 || (fill.type != V_NONE && size > 100000))
        ntx__tpl_fail(t, -EINVAL, "batch of %lld", (long long)size);
    for (size_t i = 0; i < l->n; i++) {
        if (i % (size_t)size == 0)
            ntx__tpl_push(t, r.l, part = ntx__tpl_list(t, 0));
        ntx__tpl_push(t, part.l, l->v[i]);
    }
    while (fill.type != V_NONE && part.type == V_LIST && part.l->n < (size_t)size)
        ntx__tpl_push(t, part.l, fill);
    return r;
}

struct val ntx__tpl_f_groupby(struct ntx__tpl *t, struct val v, const struct args *a)
{
    struct val attribute = ntx__tpl_given(a, 0, "attribute", nothing), r = ntx__tpl_list(t, 0), group = nothing,
               last = nothing;
    const struct list *l = sorted(t, ntx__tpl_iterate(t, v), attribute, false, false).l;
    for (size_t i = 0; i < l->n; i++) {
        struct val key = key_of(t, l->v[i], attribute, false);
        if (!i || !ntx__tpl_equal(t, key, last)) {
            group = ntx__tpl_list(t, 0);
            struct val pair = ntx__tpl_list(t, 2);
            pair.type = V_TUPLE;
            ntx__tpl_push(t, pair.l, path(t, l->v[i], attribute));
            ntx__tpl_push(t, pair.l, group);
            ntx__tpl_push(t, r.l, pair);
        }
        ntx__tpl_push(t, group.l, l->v[i]);
        last = key;
    }
    return r;
}
