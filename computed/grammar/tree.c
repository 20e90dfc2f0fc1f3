/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/grammar/impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_MOST = 1 << 18, POOL_MOST = 1 << 20, RANGES_MOST = 1 << 17, RULES_MOST = 1 << 16, COPIES = 16 };

node ntx__tree_fail(struct tree *t, int rc, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    if (t->failed)
        return 0;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    t->failed = ntx_err_set(t->err, rc, "%s", text);
    return 0;
}

/* Makes room for n more entries of a list; false: t has failed. */
static bool grow_list(struct tree *t, void *list, uint32_t have, uint32_t *room, size_t n, size_t size, uint32_t most)
{
    void **p = list;
    if (t->failed)
        return false;
    if (n > most - have) {
        ntx__tree_fail(t, -E2BIG, "the grammar is too large");
        return false;
    }
    if (have + n <= *room)
        return true;
    size_t want = 2 * (have + n) + 64;
    void *q = realloc(*p, want * size);
    if (!q) {
        ntx__tree_fail(t, -ENOMEM, "no memory for the grammar");
        return false;
    }
    *p = q;
    *room = (uint32_t)want;
    return true;
}

static node add_node(struct tree *t, struct tree_node n)
{
    if (!grow_list(t, &t->nodes, t->n, &t->room, 1, sizeof n, NODES_MOST))
        return 0;
    t->nodes[t->n] = n;
    return t->n++;
}

int ntx__tree_init(struct tree *t, struct ntx_err *err)
{
    *t = (struct tree){.err = err};
    add_node(t, (struct tree_node){.kind = N_NEVER});
    return t->failed;
}

void ntx__tree_free(struct tree *t)
{
    for (uint32_t i = 0; i < t->n_rules; i++)
        free(t->rules[i].name);
    free(t->rules);
    free(t->rule_slots);
    free(t->nodes);
    free(t->pool);
    free(t->ranges);
}

static node pooled(struct tree *t, enum node_kind kind, const char *p, size_t n)
{
    if (!n)
        return ntx__tree_list(t, N_EMPTY);
    if (!grow_list(t, &t->pool, t->n_pool, &t->pool_room, n, 1, POOL_MOST))
        return 0;
    memcpy(t->pool + t->n_pool, p, n);
    t->n_pool += (uint32_t)n;
    return add_node(t, (struct tree_node){.kind = kind, .a = t->n_pool - (uint32_t)n, .b = (uint32_t)n});
}

node ntx__tree_bytes(struct tree *t, const char *p, size_t n) { return pooled(t, N_BYTES, p, n); }
node ntx__tree_text(struct tree *t, const char *text) { return pooled(t, N_BYTES, text, strlen(text)); }
node ntx__tree_until(struct tree *t, const char *mark, size_t n) { return pooled(t, N_UNTIL, mark, n); }

static int by_lo(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Joins ranges in place; returns their number. */
static uint32_t join_ranges(struct range *r, uint32_t n)
{
    uint32_t out = 0;
    qsort(r, n, sizeof *r, by_lo);
    for (uint32_t i = 0; i < n; i++) {
        if (out && r[i].lo <= r[out - 1].hi + 1)
            r[out - 1].hi = r[i].hi > r[out - 1].hi ? r[i].hi : r[out - 1].hi;
        else
            r[out++] = r[i];
    }
    return out;
}

node ntx__tree_chars(struct tree *t, const struct range *r, size_t n)
{
    if (!grow_list(t, &t->ranges, t->n_ranges, &t->ranges_room, 2 * n + 1, sizeof *r, RANGES_MOST))
        return 0;
    struct range *to = t->ranges + t->n_ranges;
    uint32_t k = 0;
    for (size_t i = 0; i < n; i++) {
        struct range low = {r[i].lo, r[i].hi < 0xd7ff ? r[i].hi : 0xd7ff},
                     high = {r[i].lo > 0xe000 ? r[i].lo : 0xe000, r[i].hi < 0x10ffff ? r[i].hi : 0x10ffff};
        if (low.lo <= low.hi)
            to[k++] = low;
        if (high.lo <= high.hi)
            to[k++] = high;
    }
    k = join_ranges(to, k);
    if (!k)
        return add_node(t, (struct tree_node){.kind = N_NEVER});
    t->n_ranges += k;
    return add_node(t, (struct tree_node){.kind = N_CHARS, .a = t->n_ranges - k, .b = k});
}

node ntx__tree_list(struct tree *t, enum node_kind kind) { return add_node(t, (struct tree_node){.kind = kind}); }

void ntx__tree_add(struct tree *t, node list, node what)
{
    if (t->failed || !what)
        return;
    struct tree_node *l = &t->nodes[list];
    if (l->b)
        t->nodes[l->b].next = what;
    else
        l->a = what;
    l->b = what;
}

node ntx__tree_of(struct tree *t, enum node_kind kind, const node *what, size_t n)
{
    node list = ntx__tree_list(t, kind);
    for (size_t i = 0; i < n; i++)
        ntx__tree_add(t, list, what[i]);
    return list;
}

node ntx__tree_rule(struct tree *t, uint32_t rule)
{
    return add_node(t, (struct tree_node){.kind = N_RULE, .a = rule});
}

/* The slot of a rule's name in the index, or its free slot. */
static uint32_t *slot_of(struct tree *t, const char *name, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)name[i]) * 16777619u;
    for (h ^= h >> 15;; h++) {
        uint32_t *slot = &t->rule_slots[h & (t->n_rule_slots - 1)];
        const char *have = *slot ? t->rules[*slot - 1].name : NULL;
        if (!have || (strlen(have) == n && !memcmp(have, name, n)))
            return slot;
    }
}

/* Makes room in the index for one more rule, with half of it free. */
static bool index_rules(struct tree *t)
{
    if (2 * (t->n_rules + 1) <= t->n_rule_slots)
        return true;
    uint32_t n = 4 * (t->n_rules + 16), room = 64;
    while (room < n)
        room *= 2;
    uint32_t *slots = calloc(room, sizeof *slots);
    if (!slots) {
        ntx__tree_fail(t, -ENOMEM, "no memory for the grammar");
        return false;
    }
    free(t->rule_slots);
    t->rule_slots = slots;
    t->n_rule_slots = room;
    for (uint32_t i = 0; i < t->n_rules; i++)
        if (t->rules[i].name)
            *slot_of(t, t->rules[i].name, strlen(t->rules[i].name)) = i + 1;
    return true;
}

uint32_t ntx__tree_rule_new(struct tree *t, const char *name, size_t n)
{
    char *copy = name ? strndup(name, n) : NULL;
    if (name && !copy)
        ntx__tree_fail(t, -ENOMEM, "no memory for the grammar");
    if (!grow_list(t, &t->rules, t->n_rules, &t->rules_room, 1, sizeof *t->rules, RULES_MOST) || !index_rules(t)) {
        free(copy);
        return 0;
    }
    t->rules[t->n_rules] = (struct rule){.name = copy};
    if (copy)
        *slot_of(t, copy, strlen(copy)) = t->n_rules + 1;
    return t->n_rules++;
}

uint32_t ntx__tree_rule_named(struct tree *t, const char *name, size_t n)
{
    uint32_t have = t->failed || !t->n_rule_slots ? 0 : *slot_of(t, name, n);
    return have ? have - 1 : ntx__tree_rule_new(t, name, n);
}

void ntx__tree_define(struct tree *t, uint32_t rule, node body)
{
    if (t->failed)
        return;
    t->rules[rule].body = body;
    t->rules[rule].defined = true;
}

/* ---- repetition. Few copies are written out. Many are rules: power k is 2^k copies, and up to n copies is
 *
 *   upto(n) = power(k) upto(n - 2^k) | upto(2^k - 1)        2^k <= n < 2^(k+1)
 *
 * so that a million copies need some forty rules, and a stack is never deeper than k. */

struct many {
    struct tree *t;
    uint32_t power[32], below[32]; /* rules; below[k]: up to 2^k - 1 copies. 0: not made yet, else rule + 1 */
    node what;
};

static uint32_t rule_of(struct many *m, node body)
{
    uint32_t r = ntx__tree_rule_new(m->t, NULL, 0);
    ntx__tree_define(m->t, r, body);
    return r + 1;
}

static node power(struct many *m, uint32_t k)
{
    if (!m->power[0])
        m->power[0] = rule_of(m, m->what);
    for (uint32_t i = 1; i <= k; i++)
        if (!m->power[i])
            m->power[i] = rule_of(
                m, SEQ(m->t, ntx__tree_rule(m->t, m->power[i - 1] - 1), ntx__tree_rule(m->t, m->power[i - 1] - 1)));
    return ntx__tree_rule(m->t, m->power[k] - 1);
}

static node below(struct many *m, uint32_t k)
{
    for (uint32_t i = 0; i <= k; i++)
        if (!m->below[i])
            m->below[i] = rule_of(m,
                                  !i ? ntx__tree_list(m->t, N_EMPTY)
                                     : ALT(m->t, SEQ(m->t, power(m, i - 1), ntx__tree_rule(m->t, m->below[i - 1] - 1)),
                                           ntx__tree_rule(m->t, m->below[i - 1] - 1)));
    return ntx__tree_rule(m->t, m->below[k] - 1);
}

static uint32_t log2_of(uint32_t n)
{
    uint32_t k = 0;
    while (n >>= 1)
        k++;
    return k;
}

static node upto(struct many *m, uint32_t n)
{
    if (!n)
        return ntx__tree_list(m->t, N_EMPTY);
    uint32_t k = log2_of(n);
    if (n == (2u << k) - 1)
        return below(m, k + 1);
    node more = SEQ(m->t, power(m, k), ntx__tree_rule(m->t, rule_of(m, upto(m, n - (1u << k))) - 1));
    return ntx__tree_rule(m->t, rule_of(m, ALT(m->t, more, below(m, k))) - 1);
}

static node many(struct tree *t, node what, uint32_t min, uint32_t max)
{
    struct many m = {.t = t, .what = what};
    node list = ntx__tree_list(t, N_SEQ);
    for (uint32_t k = 0; k < 31; k++)
        if (min >> k & 1)
            ntx__tree_add(t, list, power(&m, k));
    if (max == NO_LIMIT)
        ntx__tree_add(t, list, add_node(t, (struct tree_node){.kind = N_REPEAT, .a = power(&m, 0), .c = NO_LIMIT}));
    else if (max > min)
        ntx__tree_add(t, list, upto(&m, max - min));
    return list;
}

node ntx__tree_repeat(struct tree *t, node what, uint32_t min, uint32_t max)
{
    if (t->failed)
        return 0;
    if (max < min)
        return add_node(t, (struct tree_node){.kind = N_NEVER});
    if (min >= 1u << 30 || (max != NO_LIMIT && max >= 1u << 30))
        return ntx__tree_fail(t, -EINVAL, "more than 2^30 repetitions are not possible");
    if (min > COPIES || (max != NO_LIMIT && max > COPIES))
        return many(t, what, min, max);
    return add_node(t, (struct tree_node){.kind = N_REPEAT, .a = what, .b = min, .c = max});
}
