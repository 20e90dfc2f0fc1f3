/* SPDX-License-Identifier: Apache-2.0 */
/* dfa.c: several expressions as one: a text must match each, or must not (lookaheads, lengths, excluded names). All
 * become one automaton of several starts; its sets of states are found by subset construction, so that "not" is a
 * question of which sets accept. The result is a rule for each set. */
#include <stdlib.h>
#include <string.h>

#include "computed/grammar/schema.h"

enum { NFA_MOST = 16384, DFA_MOST = 4000, CLASSES_MOST = 256, EDGES_MOST = 60000, WORK_MOST = 1 << 21, DEEPEST = 400 };

struct nfa_state {
    enum { A_CHARS, A_SPLIT, A_ACCEPT } kind;
    uint32_t x, next; /* CHARS: set x, then next. SPLIT: x or next. ACCEPT: part x */
};

struct interval {
    uint32_t lo, hi, class;
};

struct edge {
    uint32_t from, to;
    struct set classes;
};

struct dfa {
    struct tree *t;
    const struct dfa_part *part;
    size_t n_parts;
    struct nfa_state *nfa; /* [n_nfa] */
    uint32_t n_nfa;
    node sets[CLASSES_MOST]; /* the N_CHARS nodes */
    uint32_t n_sets, depth;
    struct interval *cut; /* [n_cut] characters that all sets treat alike, in order */
    uint32_t n_cut, n_classes;
    struct set of_class[CLASSES_MOST];   /* the sets that have its characters */
    uint32_t *item, n_items, items_room; /* lists of NFA states */
    struct {
        uint32_t first, n, rule;
        bool accepts, lives;
    } * state; /* [n] */
    uint32_t n, *slot, *mark, *stack, turn;
    struct edge *edge; /* [n_edges] */
    uint32_t n_edges;
    struct {
        struct set classes;
        node chars;
    } * made; /* [n_made] */
    uint32_t n_made;
    uint64_t work;
    bool large; /* a limit is exceeded, or there is no memory */
};

enum { SLOTS = 16384 };

static void set_bit(struct set *s, uint32_t i) { s->bit[i >> 6] |= 1ull << (i & 63); }

static bool spend(struct dfa *d, uint64_t n)
{
    d->work += n;
    d->large |= d->work > WORK_MOST;
    return !d->large && !d->t->failed;
}

/* ---- tree -> NFA */

static uint32_t nfa_add(struct dfa *d, struct nfa_state s)
{
    if (d->n_nfa == NFA_MOST || !spend(d, 1)) {
        d->large = true;
        return 0;
    }
    d->nfa[d->n_nfa] = s;
    return d->n_nfa++;
}

static bool same_chars(const struct tree *t, node a, node b)
{
    const struct tree_node *x = &t->nodes[a], *y = &t->nodes[b];
    return x->b == y->b && !memcmp(t->ranges + x->a, t->ranges + y->a, x->b * sizeof *t->ranges);
}

static uint32_t set_index(struct dfa *d, node at)
{
    for (uint32_t i = 0; i < d->n_sets; i++)
        if (same_chars(d->t, d->sets[i], at))
            return i;
    if (d->n_sets == CLASSES_MOST) {
        d->large = true;
        return 0;
    }
    d->sets[d->n_sets] = at;
    return d->n_sets++;
}

static uint32_t nfa_of(struct dfa *d, node at, uint32_t next);

static uint32_t nfa_of_list(struct dfa *d, const struct tree_node *n, uint32_t next)
{
    uint32_t out = 0, many = 0;
    node *all = NULL;
    for (node k = n->a; k; k = d->t->nodes[k].next)
        many++;
    if (!(all = malloc((many + 1) * sizeof *all)))
        return d->large = true, 0;
    many = 0;
    for (node k = n->a; k; k = d->t->nodes[k].next)
        all[many++] = k;
    out = n->kind == N_SEQ ? next : 0;
    while (many-- > 0)
        if (n->kind == N_SEQ)
            out = nfa_of(d, all[many], out);
        else
            out = nfa_add(d, (struct nfa_state){A_SPLIT, nfa_of(d, all[many], next), out});
    free(all);
    return out;
}

static uint32_t nfa_of_repeat(struct dfa *d, const struct tree_node *n, uint32_t next)
{
    uint32_t at = next;
    if (n->c == NO_LIMIT) {
        at = nfa_add(d, (struct nfa_state){A_SPLIT, 0, next});
        uint32_t body = nfa_of(d, n->a, at);
        d->nfa[at].x = at ? body : 0;
    }
    for (uint32_t i = n->b; n->c != NO_LIMIT && i < n->c && !d->large; i++)
        at = nfa_add(d, (struct nfa_state){A_SPLIT, nfa_of(d, n->a, at), next});
    for (uint32_t i = 0; i < n->b && !d->large; i++)
        at = nfa_of(d, n->a, at);
    return at;
}

/* State 0 is a dead end. */
static uint32_t nfa_of(struct dfa *d, node at, uint32_t next)
{
    const struct tree_node n = d->t->nodes[at];
    uint32_t out = 0;
    if (d->large || ++d->depth > DEEPEST || !spend(d, 1))
        return d->large = true, 0;
    switch (n.kind) {
    case N_EMPTY: out = next; break;
    case N_CHARS: out = nfa_add(d, (struct nfa_state){A_CHARS, set_index(d, at), next}); break;
    case N_SEQ:
    case N_ALT: out = nfa_of_list(d, &n, next); break;
    case N_REPEAT: out = nfa_of_repeat(d, &n, next); break;
    case N_RULE: out = nfa_of(d, d->t->rules[n.a].body, next); break;
    case N_NEVER: break;
    default: d->large = true;
    }
    d->depth--;
    return out;
}

/* ---- classes of characters */

static int by_code_point(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t class_of(struct dfa *d, const struct set *s)
{
    for (uint32_t i = 0; i < d->n_classes; i++)
        if (!memcmp(&d->of_class[i], s, sizeof *s))
            return i;
    if (d->n_classes == CLASSES_MOST)
        return d->large = true, 0;
    d->of_class[d->n_classes] = *s;
    return d->n_classes++;
}

static bool in_set(const struct tree *t, node chars, uint32_t c)
{
    uint32_t lo = t->nodes[chars].a, hi = lo + t->nodes[chars].b;
    while (lo < hi) { /* ranges are sorted */
        const uint32_t mid = lo + (hi - lo) / 2;
        if (c > t->ranges[mid].hi)
            lo = mid + 1;
        else if (c < t->ranges[mid].lo)
            hi = mid;
        else
            return true;
    }
    return false;
}

static void find_cuts(struct dfa *d)
{
    const struct tree *t = d->t;
    uint32_t n = 0, *at;
    for (uint32_t i = 0; i < d->n_sets; i++)
        n += 2 * t->nodes[d->sets[i]].b;
    at = malloc((n + 1) * sizeof *at);
    d->cut = malloc((n + 1) * sizeof *d->cut);
    if (!at || !d->cut || !spend(d, n)) {
        free(at);
        d->large = true;
        return;
    }
    n = 0;
    for (uint32_t i = 0; i < d->n_sets; i++)
        for (uint32_t k = 0; k < t->nodes[d->sets[i]].b; k++) {
            at[n++] = t->ranges[t->nodes[d->sets[i]].a + k].lo;
            at[n++] = t->ranges[t->nodes[d->sets[i]].a + k].hi + 1;
        }
    qsort(at, n, sizeof *at, by_code_point);
    for (uint32_t i = 0; i + 1 < n && spend(d, d->n_sets); i++) {
        struct set in = {{0}};
        bool any = false;
        for (uint32_t k = 0; k < d->n_sets && at[i] < at[i + 1]; k++)
            if (in_set(t, d->sets[k], at[i])) {
                set_bit(&in, k);
                any = true;
            }
        if (any)
            d->cut[d->n_cut++] = (struct interval){at[i], at[i + 1] - 1, class_of(d, &in)};
    }
    free(at);
}

/* ---- sets of states */

static void push(struct dfa *d, uint32_t *n, uint32_t at)
{
    if (at && d->mark[at] != d->turn) {
        d->mark[at] = d->turn;
        d->stack[(*n)++] = at;
    }
}

static bool room_for_items(struct dfa *d, uint32_t n)
{
    if (d->n_items + n <= d->items_room)
        return true;
    const uint32_t room = 2 * (d->n_items + n) + 1024;
    uint32_t *p = room < 1u << 23 ? realloc(d->item, room * sizeof *p) : NULL;
    if (!p)
        return d->large = true, false;
    d->item = p;
    d->items_room = room;
    return true;
}

/* The set of what is on the stack, and behind it; its number. The empty set is one like others. */
static uint32_t intern(struct dfa *d, uint32_t n)
{
    const uint32_t first = d->n_items;
    uint32_t h = 2166136261u;
    while (n > 0 && spend(d, 1)) {
        const uint32_t at = d->stack[--n];
        const struct nfa_state *s = &d->nfa[at];
        if (s->kind == A_SPLIT) {
            push(d, &n, s->x);
            push(d, &n, s->next);
        } else if (room_for_items(d, 1))
            d->item[d->n_items++] = at;
    }
    const uint32_t many = d->n_items - first;
    qsort(d->item + first, many, sizeof *d->item, by_code_point);
    for (uint32_t i = first; i < d->n_items; i++)
        h = (h ^ d->item[i]) * 16777619u;
    for (h ^= h >> 15; d->slot[h % SLOTS]; h++) {
        const uint32_t s = d->slot[h % SLOTS] - 1;
        if (d->state[s].n == many && !memcmp(d->item + d->state[s].first, d->item + first, many * sizeof *d->item)) {
            d->n_items = first;
            return s;
        }
    }
    if (d->n == DFA_MOST)
        return d->large = true, 0;
    uint64_t accepted = 0;
    for (uint32_t i = first; i < d->n_items; i++)
        if (d->nfa[d->item[i]].kind == A_ACCEPT)
            accepted |= 1ull << d->nfa[d->item[i]].x;
    bool accepts = true;
    for (size_t i = 0; i < d->n_parts; i++)
        accepts &= (accepted >> i & 1) != d->part[i].not ;
    d->state[d->n].first = first;
    d->state[d->n].n = many;
    d->state[d->n].accepts = d->state[d->n].lives = accepts;
    d->slot[h % SLOTS] = d->n + 1;
    return d->n++;
}

static uint32_t follow(struct dfa *d, uint32_t state, uint32_t class)
{
    uint32_t n = 0;
    d->turn++;
    for (uint32_t i = 0; i < d->state[state].n; i++) {
        const struct nfa_state *s = &d->nfa[d->item[d->state[state].first + i]];
        if (s->kind == A_CHARS && ntx__set_has(&d->of_class[class], s->x))
            push(d, &n, s->next);
    }
    spend(d, 1 + d->state[state].n / 4);
    return intern(d, n);
}

static void add_edges(struct dfa *d, uint32_t from)
{
    const uint32_t begin = d->n_edges;
    for (uint32_t c = 0; c < d->n_classes && !d->large; c++) {
        const uint32_t to = follow(d, from, c);
        uint32_t i = begin;
        while (i < d->n_edges && d->edge[i].to != to)
            i++;
        if (i == d->n_edges && d->n_edges == EDGES_MOST) {
            d->large = true;
            return;
        }
        if (i == d->n_edges)
            d->edge[d->n_edges++] = (struct edge){from, to, {{0}}};
        set_bit(&d->edge[i].classes, c);
    }
}

/* Sets from which no end is reached are dropped. */
static void find_living(struct dfa *d)
{
    for (bool more = true; more && !d->large;) {
        more = false;
        for (uint32_t i = d->n_edges; i-- > 0;)
            if (d->state[d->edge[i].to].lives && !d->state[d->edge[i].from].lives)
                more = d->state[d->edge[i].from].lives = true;
        spend(d, d->n_edges / 4);
    }
}

/* ---- DFA -> tree */

static node chars_of(struct dfa *d, const struct set *classes, bool json)
{
    for (uint32_t i = 0; i < d->n_made; i++)
        if (!memcmp(&d->made[i].classes, classes, sizeof *classes))
            return d->made[i].chars;
    struct range *r = malloc((d->n_cut + 1) * sizeof *r);
    size_t n = 0;
    if (!r)
        return d->large = true, 0;
    for (uint32_t i = 0; i < d->n_cut; i++)
        if (ntx__set_has(classes, d->cut[i].class))
            r[n++] = (struct range){d->cut[i].lo, d->cut[i].hi};
    const node out = json ? ntx__regex_json(d->t, r, n) : ntx__tree_chars(d->t, r, n);
    free(r);
    if (d->n_made < CLASSES_MOST) {
        d->made[d->n_made].classes = *classes;
        d->made[d->n_made++].chars = out;
    }
    return out;
}

static node emit(struct dfa *d, bool json)
{
    struct tree *t = d->t;
    if (!d->state[0].lives)
        return ntx__tree_list(t, N_NEVER);
    node *body = calloc(d->n, sizeof *body);
    if (!body)
        return d->large = true, 0;
    for (uint32_t i = 0; i < d->n; i++) {
        d->state[i].rule = d->state[i].lives ? ntx__tree_rule_new(t, NULL, 0) : 0;
        body[i] = ntx__tree_list(t, N_ALT);
        if (d->state[i].accepts)
            ntx__tree_add(t, body[i], ntx__tree_list(t, N_EMPTY));
    }
    for (uint32_t i = 0; i < d->n_edges && !t->failed; i++) {
        const struct edge *e = &d->edge[i];
        if (!d->state[e->to].lives)
            continue;
        const node copy = ntx__tree_repeat(t, chars_of(d, &e->classes, json), 1, 1);
        ntx__tree_add(t, body[e->from], SEQ(t, copy, ntx__tree_rule(t, d->state[e->to].rule)));
    }
    for (uint32_t i = 0; i < d->n; i++)
        if (d->state[i].lives)
            ntx__tree_define(t, d->state[i].rule, body[i]);
    free(body);
    return ntx__tree_rule(t, d->state[0].rule);
}

static bool begin(struct dfa *d)
{
    d->nfa = malloc(NFA_MOST * sizeof *d->nfa);
    d->state = malloc(DFA_MOST * sizeof *d->state);
    d->slot = calloc(SLOTS, sizeof *d->slot);
    d->mark = calloc(NFA_MOST, sizeof *d->mark);
    d->stack = malloc(NFA_MOST * sizeof *d->stack);
    d->edge = malloc(EDGES_MOST * sizeof *d->edge);
    d->made = malloc(CLASSES_MOST * sizeof *d->made);
    return d->nfa && d->state && d->slot && d->mark && d->stack && d->edge && d->made;
}

static void end(struct dfa *d)
{
    free(d->nfa);
    free(d->state);
    free(d->slot);
    free(d->mark);
    free(d->stack);
    free(d->edge);
    free(d->made);
    free(d->cut);
    free(d->item);
}

node ntx__dfa(struct tree *t, const struct dfa_part *part, size_t n, bool json)
{
    static const struct range any = {1, 0x10ffff};
    struct dfa d = {.t = t, .part = part, .n_parts = n};
    uint32_t starts[DFA_PARTS];
    node out = 0;
    if (t->failed || n > DFA_PARTS)
        return 0;
    if (begin(&d)) {
        nfa_add(&d, (struct nfa_state){A_SPLIT, 0, 0});
        set_index(&d, ntx__tree_chars(t, &any, 1)); /* "not" may leave any character */
        for (size_t i = 0; i < n; i++)
            starts[i] = nfa_of(&d, part[i].n, nfa_add(&d, (struct nfa_state){A_ACCEPT, (uint32_t)i, 0}));
        if (!d.large)
            find_cuts(&d);
        uint32_t on = 0;
        d.turn++;
        for (size_t i = 0; i < n && !d.large; i++)
            push(&d, &on, starts[i]);
        if (!d.large)
            intern(&d, on);
        for (uint32_t i = 0; i < d.n && !d.large; i++)
            add_edges(&d, i);
        find_living(&d);
        if (!d.large && !t->failed)
            out = emit(&d, json);
    }
    if (t->schema)
        ntx__schema_step(t, d.work / 8);
    end(&d);
    return d.large || t->failed ? 0 : out;
}
