/* SPDX-License-Identifier: Apache-2.0 */
/* build.c: turns the tree into states. A state is made after its followers, so they have lower numbers within a
 * rule, except in loops. */
#include "computed/grammar/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STATES_MOST = 1 << 17, SETS_MOST = 1 << 14, SET_SLOTS = 1 << 15, DEEPEST = 3 * NEST, STEPS_MOST = 1 << 21 };

uint32_t ntx__build_state(struct ntx_grammar *g, enum state_kind kind, uint32_t x, uint32_t next)
{
    if (g->n == g->room) {
        uint32_t room = g->room ? 2 * g->room : 256;
        struct state *p = g->n < STATES_MOST ? realloc(g->states, room * sizeof *p) : NULL;
        if (!p)
            return 1;
        g->states = p;
        g->room = room;
    }
    g->states[g->n] = (struct state){kind, x, next};
    return g->n++;
}

static uint32_t set_of(struct ntx_grammar *g, const struct set *s)
{
    uint64_t h = (s->bit[0] * 0x9e3779b97f4a7c15u) ^ (s->bit[1] * 0xbf58476d1ce4e5b9u) ^
                 (s->bit[2] * 0x94d049bb133111ebu) ^ (s->bit[3] * 0xd6e8feb86659fd93u);
    uint32_t at = (uint32_t)(h >> 40) % SET_SLOTS;
    for (; g->set_slots[at]; at = (at + 1) % SET_SLOTS)
        if (!memcmp(&g->sets[g->set_slots[at] - 1], s, sizeof *s))
            return g->set_slots[at] - 1;
    if (g->n_sets == g->sets_room) {
        uint32_t room = g->sets_room ? 2 * g->sets_room : 64;
        struct set *p = g->n_sets < SETS_MOST ? realloc(g->sets, room * sizeof *p) : NULL;
        if (!p)
            return UINT32_MAX;
        g->sets = p;
        g->sets_room = room;
    }
    g->sets[g->n_sets] = *s;
    g->set_slots[at] = ++g->n_sets;
    return g->n_sets - 1;
}

uint32_t ntx__build_bytes(struct ntx_grammar *g, const struct set *s, uint32_t next)
{
    uint32_t set = set_of(g, s);
    return set == UINT32_MAX ? 1 : ntx__build_state(g, S_BYTES, set, next);
}

struct builder {
    struct tree *t;
    struct ntx_grammar *g;
    unsigned depth, steps; /* steps: repetitions of nothing make no states, but take time */
};

static uint32_t build(struct builder *b, node at, uint32_t next);

static uint32_t build_text(struct builder *b, const struct tree_node *n, uint32_t next)
{
    for (uint32_t i = n->b; i-- > 0;) {
        unsigned c = (unsigned char)b->t->pool[n->a + i];
        struct set s = {{0}};
        s.bit[c >> 6] = 1ull << (c & 63);
        next = ntx__build_bytes(b->g, &s, next);
    }
    return next;
}

static uint32_t build_list(struct builder *b, const struct tree_node *n, uint32_t next)
{
    uint32_t many = 0, alternative = 0;
    for (node k = n->a; k; k = b->t->nodes[k].next)
        many++;
    node *all = malloc((many + 1) * sizeof *all);
    if (!all)
        return 1;
    many = 0;
    for (node k = n->a; k; k = b->t->nodes[k].next)
        all[many++] = k;
    uint32_t at = n->kind == N_SEQ ? next : 1;
    while (many-- > 0) {
        alternative = build(b, all[many], n->kind == N_SEQ ? at : next);
        const bool only = n->kind == N_SEQ || at == 1;
        at = only ? alternative : ntx__build_state(b->g, S_SPLIT, alternative, at);
    }
    free(all);
    return at;
}

static uint32_t build_repeat(struct builder *b, const struct tree_node *n, uint32_t next)
{
    uint32_t at = next;
    if (n->c == NO_LIMIT) {
        at = ntx__build_state(b->g, S_SPLIT, 1, next);
        uint32_t body = build(b, n->a, at);
        if (at > 1)
            b->g->states[at].x = body;
    }
    for (uint32_t i = n->b; n->c != NO_LIMIT && i < n->c; i++)
        at = ntx__build_state(b->g, S_SPLIT, build(b, n->a, at), next);
    for (uint32_t i = 0; i < n->b; i++)
        at = build(b, n->a, at);
    return at;
}

/* Length of the mark's prefix at the end of the text, after c follows the first n bytes of the mark (Knuth, Morris,
 * Pratt). */
static unsigned follows(const char *mark, unsigned n, unsigned char c)
{
    char text[65];
    memcpy(text, mark, n);
    text[n] = (char)c;
    for (unsigned k = n + 1; k > 0; k--)
        if (!memcmp(text + n + 1 - k, mark, k))
            return k;
    return 0;
}

static uint32_t build_until(struct builder *b, const struct tree_node *n, uint32_t next)
{
    const char *mark = b->t->pool + n->a;
    uint32_t at[64];
    for (uint32_t i = 0; i < n->b; i++)
        at[i] = ntx__build_state(b->g, S_SPLIT, 1, next);
    for (unsigned i = 0; i < n->b; i++) {
        struct set to[66] = {{{0}}};
        for (unsigned c = 0; c < 255; c++) /* not the byte of control tokens */
            to[follows(mark, i, (unsigned char)c)].bit[c >> 6] |= 1ull << (c & 63);
        uint32_t all = 1;
        for (unsigned k = 0; k <= i + 1 && k < n->b; k++)
            if (to[k].bit[0] | to[k].bit[1] | to[k].bit[2] | to[k].bit[3]) {
                uint32_t one = ntx__build_bytes(b->g, &to[k], at[k]);
                all = all == 1 ? one : ntx__build_state(b->g, S_SPLIT, one, all);
            }
        if (at[i] > 1)
            b->g->states[at[i]].x = all;
    }
    return at[0];
}

static uint32_t build_node(struct builder *b, const struct tree_node *n, uint32_t next)
{
    switch (n->kind) {
    case N_EMPTY: return next;
    case N_NEVER: return 1;
    case N_BYTES: return build_text(b, n, next);
    case N_CHARS: return ntx__utf8_build(b->g, b->t->ranges + n->a, n->b, next);
    case N_SEQ:
    case N_ALT: return build_list(b, n, next);
    case N_REPEAT: return build_repeat(b, n, next);
    case N_RULE: return ntx__build_state(b->g, S_CALL, n->a, next);
    case N_UNTIL: return build_until(b, n, next);
    }
    return 1;
}

static uint32_t build(struct builder *b, node at, uint32_t next)
{
    if (++b->depth > DEEPEST) {
        ntx__tree_fail(b->t, -E2BIG, "the grammar is nested too deeply");
        return 1;
    }
    bool more = b->g->n < STATES_MOST && ++b->steps < STEPS_MOST;
    uint32_t out = more ? build_node(b, &b->t->nodes[at], next) : 1;
    b->depth--;
    return out;
}

/* Computes classes of bytes that all sets treat alike. */
static void find_classes(struct ntx_grammar *g)
{
    g->n_classes = 1;
    memset(g->class_of, 0, sizeof g->class_of);
    for (uint32_t i = 0; i < g->n_sets && g->n_classes < 256; i++) {
        uint16_t in[256], out[256];
        uint32_t n = 0;
        memset(in, 0xff, sizeof in);
        memset(out, 0xff, sizeof out);
        for (unsigned c = 0; c < 256; c++) {
            uint16_t *to = ntx__set_has(&g->sets[i], c) ? &in[g->class_of[c]] : &out[g->class_of[c]];
            if (*to == 0xffff)
                *to = (uint16_t)n++;
            g->class_of[c] = (uint8_t)*to;
        }
        g->n_classes = n;
    }
    for (unsigned c = 256; c-- > 0;)
        g->sample[g->class_of[c]] = (uint8_t)c;
}

static int build_rules(struct tree *t, struct ntx_grammar *g, uint32_t *starts)
{
    struct builder b = {.t = t, .g = g};
    ntx__build_state(g, S_END, 0, 0);
    ntx__build_state(g, S_DEAD, 0, 0);
    for (uint32_t i = 0; i < t->n_rules && !t->failed && g->n < STATES_MOST; i++)
        starts[i] = build(&b, t->rules[i].body, 0);
    if (g->n >= STATES_MOST || g->n_sets >= SETS_MOST || b.steps >= STEPS_MOST)
        ntx__tree_fail(t, -E2BIG,
                       "the grammar has more than %d states: fewer repetitions within each other, or fewer "
                       "alternatives, make it smaller",
                       STATES_MOST);
    return t->failed;
}

static uint32_t start_of(const struct tree *t, const char *name, const uint32_t *starts)
{
    for (uint32_t i = 0; i < t->n_rules; i++)
        if (t->rules[i].name && !strcmp(t->rules[i].name, name))
            return starts[i];
    return UINT32_MAX;
}

static int finish_grammar(struct tree *t, struct ntx_grammar *g, const uint32_t *starts)
{
    if ((g->root = start_of(t, "root", starts)) == UINT32_MAX)
        return ntx_err_set(t->err, -EINVAL, "the grammar has no rule 'root'");
    g->thinking = start_of(t, "thinking", starts);
    if (g->thinking == UINT32_MAX)
        g->thinking = g->root;
    find_classes(g);
    int rc = ntx__check(g, starts, t->err);
    for (uint32_t i = 0; !rc && i < g->n; i++)
        if (g->states[i].kind == S_CALL)
            g->states[i].x = starts[g->states[i].x];
    g->bytes = sizeof *g + g->room * sizeof *g->states + g->sets_room * sizeof *g->sets + g->n * sizeof *g->need;
    return rc;
}

int ntx__build(struct tree *t, struct ntx_grammar **out)
{
    struct ntx_grammar *g = calloc(1, sizeof *g);
    uint32_t *starts = calloc(t->n_rules + 1, sizeof *starts);
    if (g)
        g->set_slots = calloc(SET_SLOTS, sizeof *g->set_slots);
    int rc = t->failed;
    if (!rc && !(g && starts && g->set_slots))
        rc = ntx_err_set(t->err, -ENOMEM, "no memory for the grammar");
    if (!rc)
        rc = build_rules(t, g, starts);
    if (!rc)
        rc = finish_grammar(t, g, starts);
    if (g) {
        free(g->set_slots);
        g->set_slots = NULL;
    }
    free(starts);
    if (rc)
        ntx_grammar_free(g);
    else
        *out = g;
    return rc;
}

void ntx_grammar_free(struct ntx_grammar *g)
{
    if (!g)
        return;
    free(g->set_slots);
    free(g->states);
    free(g->sets);
    free(g->need);
    free(g);
}

size_t ntx_grammar_bytes(const struct ntx_grammar *g) { return g->bytes; }

static int compile(const char *text, size_t len, int (*read)(struct tree *t, const char *text, size_t len),
                   struct ntx_grammar **out, struct ntx_err *err)
{
    struct tree t;
    if (len > NTX_GRAMMAR_TEXT)
        return ntx_err_set(err, -E2BIG, "the grammar has %zu bytes, %u are possible", len, NTX_GRAMMAR_TEXT);
    int rc = ntx__tree_init(&t, err);
    if (!rc)
        rc = read(&t, text, len);
    if (!rc)
        rc = ntx__build(&t, out);
    ntx__schema_free(&t);
    ntx__tree_free(&t);
    return rc;
}

int ntx_grammar_compile(const char *text, size_t len, struct ntx_grammar **out, struct ntx_err *err)
{
    return compile(text, len, ntx__text_read, out, err);
}

static int schema_alone(struct tree *t, const char *json, size_t len)
{
    uint32_t root = ntx__tree_rule_new(t, "root", 4);
    ntx__tree_define(t, root, ntx__schema_read(t, json, len, NULL));
    return t->failed;
}

int ntx_grammar_of_schema(const char *json, size_t len, struct ntx_grammar **out, struct ntx_err *err)
{
    return compile(json, len, schema_alone, out, err);
}
