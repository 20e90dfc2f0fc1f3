/* SPDX-License-Identifier: Apache-2.0 */
/* check.c: computes the least depth of calls from each state to its end (so that what can never end is never begun),
 * and finds rules that call themselves before any byte. */
#include "computed/grammar/impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NEVER      UINT16_MAX
#define STEPS_MOST (1u << 27)

struct checked {
    struct ntx_grammar *g;
    const uint32_t *starts;
    bool *empty; /* [n] END is reachable without a byte */
};

static uint16_t need_of(const struct checked *c, const struct state *s)
{
    const uint16_t *need = c->g->need;
    switch (s->kind) {
    case S_END: return 0;
    case S_DEAD: return NEVER;
    case S_BYTES: return need[s->next];
    case S_SPLIT: return need[s->x] < need[s->next] ? need[s->x] : need[s->next];
    case S_CALL: break;
    }
    uint16_t in = need[c->starts[s->x]], after = need[s->next];
    if (!s->next || in >= NEVER - 1 || after == NEVER)
        return !s->next ? in : NEVER;
    return in + 1 > after ? (uint16_t)(in + 1) : after;
}

static bool empty_of(const struct checked *c, const struct state *s)
{
    switch (s->kind) {
    case S_END: return true;
    case S_SPLIT: return c->empty[s->x] || c->empty[s->next];
    case S_CALL: return c->empty[c->starts[s->x]] && c->empty[s->next];
    default: return false;
    }
}

/* Iterates until nothing changes. */
static int find_depths(const struct checked *c, struct ntx_err *err)
{
    struct ntx_grammar *g = c->g;
    memset(g->need, 0xff, g->n * sizeof *g->need);
    uint64_t steps = 0;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < g->n; i++) {
            uint16_t need = need_of(c, &g->states[i]);
            bool empty = empty_of(c, &g->states[i]);
            more |= need != g->need[i] || empty != c->empty[i];
            g->need[i] = need;
            c->empty[i] = empty;
        }
        if ((steps += g->n) > STEPS_MOST)
            return ntx_err_set(err, -E2BIG,
                               "the grammar is too complicated: its rules go through each other in too long chains");
    }
    return 0;
}

/* ---- left recursion: a cycle of steps without a byte that contains a call (R. Tarjan, "Depth-first search and
 * linear graph algorithms") */

struct walk {
    const struct checked *c;
    uint32_t *index, *low, *stack,
        *path; /* [n] index 0: not visited. path: the number of the next edge is in the upper bits of edge */
    uint8_t *edge, *on;
    uint32_t n, n_stack, n_path;
};

/* The k-th successor without a byte; UINT32_MAX: none. */
static uint32_t step_of(const struct walk *w, uint32_t at, unsigned k)
{
    const struct checked *c = w->c;
    const struct state *s = &c->g->states[at];
    if (k > 1 || (s->kind != S_SPLIT && s->kind != S_CALL))
        return UINT32_MAX;
    if (s->kind == S_SPLIT)
        return k ? s->next : s->x;
    if (!k)
        return c->starts[s->x];
    return c->empty[c->starts[s->x]] ? s->next : UINT32_MAX;
}

static void enter_state(struct walk *w, uint32_t at)
{
    w->index[at] = w->low[at] = ++w->n;
    w->on[at] = 1;
    w->stack[w->n_stack++] = at;
    w->path[w->n_path++] = at;
}

/* A complete component is on the stack: its calls must lead out of it. */
static bool leave_state(struct walk *w, uint32_t at)
{
    uint32_t from = w->n_stack;
    while (w->stack[--from] != at)
        ;
    bool left = false;
    for (uint32_t i = from; i < w->n_stack; i++) {
        const struct state *s = &w->c->g->states[w->stack[i]];
        uint32_t to = s->kind == S_CALL ? w->c->starts[s->x] : 0;
        left |= s->kind == S_CALL && w->on[to] && w->low[to] >= w->index[at] && w->index[to] >= w->index[at];
    }
    while (w->n_stack > from)
        w->on[w->stack[--w->n_stack]] = 0;
    return left;
}

static bool left_from(struct walk *w, uint32_t start)
{
    bool left = false;
    enter_state(w, start);
    while (w->n_path) {
        uint32_t at = w->path[w->n_path - 1], to = step_of(w, at, w->edge[at]++);
        if (to == UINT32_MAX) {
            w->n_path--;
            if (w->low[at] == w->index[at])
                left |= leave_state(w, at);
            if (w->n_path) {
                uint32_t before = w->path[w->n_path - 1];
                w->low[before] = w->low[at] < w->low[before] ? w->low[at] : w->low[before];
            }
        } else if (w->c->g->need[to] != NEVER && !w->index[to])
            enter_state(w, to);
        else if (w->on[to] && w->index[to] < w->low[at])
            w->low[at] = w->index[to];
    }
    return left;
}

static int no_left_recursion(const struct checked *c, struct ntx_err *err)
{
    uint32_t n = c->g->n;
    uint32_t *all = calloc(4 * (size_t)n, sizeof *all);
    uint8_t *marks = calloc(2 * (size_t)n, 1);
    struct walk w = {.c = c,
                     .index = all,
                     .low = all + n,
                     .stack = all + 2 * (size_t)n,
                     .path = all + 3 * (size_t)n,
                     .edge = marks,
                     .on = marks + n};
    bool left = false;
    for (uint32_t i = 0; all && marks && i < n && !left; i++)
        if (!w.index[i] && c->g->need[i] != NEVER)
            left = left_from(&w, i);
    int rc = 0;
    if (!all || !marks)
        rc = ntx_err_set(err, -ENOMEM, "no memory for the grammar");
    else if (left)
        rc = ntx_err_set(
            err, -EINVAL,
            "the grammar has a rule that begins with itself (left recursion), which is not possible: write "
            "it with * or +, or let it end with itself");
    free(all);
    free(marks);
    return rc;
}

static int ends(const struct ntx_grammar *g, uint32_t at, struct ntx_err *err)
{
    if (g->need[at] == NEVER)
        return ntx_err_set(err, -EINVAL,
                           "nothing can be written that the grammar (or the schema) holds for: it contradicts itself, "
                           "or goes on without an end");
    return g->need[at] <= NTX_GRAMMAR_DEPTH
               ? 0
               : ntx_err_set(err, -E2BIG, "the grammar's rules must go %u levels deep, %u are possible", g->need[at],
                             NTX_GRAMMAR_DEPTH);
}

int ntx__check(struct ntx_grammar *g, const uint32_t *starts, struct ntx_err *err)
{
    struct checked c = {g, starts, calloc(g->n, sizeof *c.empty)};
    g->need = malloc(g->n * sizeof *g->need);
    int rc = c.empty && g->need ? find_depths(&c, err) : ntx_err_set(err, -ENOMEM, "no memory for the grammar");
    if (!rc)
        rc = ends(g, g->root, err);
    if (!rc)
        rc = ends(g, g->thinking, err);
    if (!rc)
        rc = no_left_recursion(&c, err);
    free(c.empty);
    return rc;
}
