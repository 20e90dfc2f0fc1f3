/* SPDX-License-Identifier: Apache-2.0 */
/* exec.c: statements, and the rendering as a whole. Scopes follow Jinja: a loop's body, a macro, and the blocks of
 * call, filter, with and set have their own scope, `if` has none. Assignments inside a scope are not visible
 * outside. Each iteration has a fresh scope. */
#include <errno.h>
#include <stdlib.h>

#include "model/template/tpl.h"

struct loop {
    const struct node *node; /* for loop(...) in a recursive loop */
    const struct list *items;
    size_t i;
    int64_t depth;
    struct scope *outside;
    struct val changed; /* last value of ifchanged */
};

void ntx__tpl_scope(struct ntx__tpl *t, struct scope *s, struct scope *up)
{
    *s = (struct scope){.up = up};
    t->scope = s;
}

static void set_variable(struct ntx__tpl *t, const struct str *name, struct val v)
{
    ntx__tpl_put(t, &t->scope->vars, ntx__tpl_of(name), v);
}

static void assign_field(struct ntx__tpl *t, const struct node *target, struct val v)
{
    struct val space = ntx__tpl_eval(t, target->a);
    if (space.type != V_SPACE)
        ntx__tpl_fail(t, -EINVAL, "only a namespace's fields can be set");
    if (target->name->n && target->name->p[0] == '_')
        ntx__tpl_fail(t, -EINVAL, "a namespace's field cannot begin with '_'");
    ntx__tpl_put(t, space.d, ntx__tpl_of(target->name), v);
}

static void assign(struct ntx__tpl *t, const struct node *target, struct val v)
{
    if (target->kind == E_NAME) {
        set_variable(t, target->name, v);
    } else if (target->kind == E_ATTR) {
        assign_field(t, target, v);
    } else {
        const struct list *l = ntx__tpl_iterate(t, v);
        if (l->n != target->n)
            ntx__tpl_fail(t, -EINVAL, "%zu values for %u names", l->n, target->n);
        ntx__tpl_enter(t);
        for (uint32_t i = 0; i < target->n; i++)
            assign(t, target->list[i], l->v[i]);
        t->depth--;
    }
}

/* ---- loops */

/* The elements that satisfy the loop's condition. */
static const struct list *passing(struct ntx__tpl *t, const struct node *n, const struct list *all)
{
    struct list *l = ntx__tpl_list(t, 0).l;
    struct scope inner, *outer = t->scope;
    for (size_t i = 0; i < all->n; i++) {
        ntx__tpl_scope(t, &inner, outer);
        assign(t, n->list[0], all->v[i]);
        if (ntx__tpl_truth(ntx__tpl_eval(t, n->list[1])))
            ntx__tpl_push(t, l, all->v[i]);
    }
    t->scope = outer;
    return l;
}

static struct list *snapshot(struct ntx__tpl *t, const struct list *from)
{
    struct list *l = ntx__tpl_list(t, from->n).l;
    if (from->n)
        memcpy(l->v, from->v, from->n * sizeof *l->v);
    l->n = from->n;
    return l;
}

static enum flow run_loop(struct ntx__tpl *t, const struct node *n, struct val items, int64_t depth)
{
    struct scope *outer = t->scope;
    const struct list *all = snapshot(t, ntx__tpl_iterate(t, items)); /* the body may append */
    struct loop *loop = ntx__tpl_alloc(t, sizeof *loop);
    struct val name = ntx__tpl_text(t, "loop");
    *loop = (struct loop){.node = n, .items = n->list[1] ? passing(t, n, all) : all, .depth = depth, .outside = outer};
    for (; loop->i < loop->items->n; loop->i++) {
        struct scope *inner = ntx__tpl_alloc(t, sizeof *inner); /* a macro made here keeps it */
        ntx__tpl_scope(t, inner, outer);
        ntx__tpl_put(t, &inner->vars, name, (struct val){.type = V_LOOP, .loop = loop});
        assign(t, n->list[0], loop->items->v[loop->i]);
        if (ntx__tpl_exec(t, n->b) == FLOW_BREAK)
            break;
    }
    if (!loop->items->n && n->c) {
        ntx__tpl_scope(t, ntx__tpl_alloc(t, sizeof(struct scope)), outer);
        ntx__tpl_exec(t, n->c);
    }
    t->scope = outer;
    return FLOW_ON;
}

struct val ntx__tpl_recurse(struct ntx__tpl *t, struct loop *l, struct val items)
{
    struct buf text = {0}, *outer = t->buf;
    struct scope *scope = t->scope;
    if (!l->node->flag)
        ntx__tpl_fail(t, -EINVAL, "the loop is not recursive");
    t->buf = &text;
    t->scope = l->outside;
    run_loop(t, l->node, items, l->depth + 1);
    t->buf = outer;
    t->scope = scope;
    return ntx__tpl_taken(t, &text);
}

struct val ntx__tpl_loop_attr(struct ntx__tpl *t, struct loop *l, const struct str *name)
{
    size_t n = l->items->n, i = l->i;
    const struct {
        const char *name;
        struct val v;
    } fields[] = {
        {"index", ntx__tpl_int((int64_t)i + 1)},
        {"index0", ntx__tpl_int((int64_t)i)},
        {"revindex", ntx__tpl_int((int64_t)(n - i))},
        {"revindex0", ntx__tpl_int((int64_t)(n - i) - 1)},
        {"first", ntx__tpl_bool(!i)},
        {"last", ntx__tpl_bool(i + 1 == n)},
        {"length", ntx__tpl_int((int64_t)n)},
        {"depth", ntx__tpl_int(l->depth + 1)},
        {"depth0", ntx__tpl_int(l->depth)},
        {"previtem", i ? l->items->v[i - 1] : (struct val){0}},
        {"nextitem", i + 1 < n ? l->items->v[i + 1] : (struct val){0}},
    };
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
        if (ntx__tpl_is(name, fields[k].name))
            return fields[k].v;
    return ntx__tpl_method(t, (struct val){.type = V_LOOP, .loop = l}, name);
}

struct val ntx__tpl_loop_cycle(struct ntx__tpl *t, struct loop *l, const struct args *a)
{
    if (!a->n)
        ntx__tpl_fail(t, -EINVAL, "loop.cycle needs values");
    return a->v[l->i % a->n];
}

struct val ntx__tpl_loop_changed(struct ntx__tpl *t, struct loop *l, const struct args *a)
{
    struct val v = ntx__tpl_list(t, a->n);
    for (size_t i = 0; i < a->n; i++)
        ntx__tpl_push(t, v.l, a->v[i]);
    bool changed = !ntx__tpl_equal(t, v, l->changed);
    l->changed = v;
    return ntx__tpl_bool(changed);
}

/* ---- the others */

/* The text that the body writes, in a scope of its own. */
static struct val captured(struct ntx__tpl *t, const struct node *body)
{
    struct buf text = {0}, *buf = t->buf;
    struct scope *outer = t->scope;
    t->buf = &text;
    ntx__tpl_scope(t, ntx__tpl_alloc(t, sizeof(struct scope)), outer);
    ntx__tpl_exec(t, body);
    t->scope = outer;
    t->buf = buf;
    return ntx__tpl_taken(t, &text);
}

static struct val piped(struct ntx__tpl *t, const struct node *filters, struct val v)
{
    struct val before = t->piped;
    t->piped = v;
    v = ntx__tpl_eval(t, filters);
    t->piped = before;
    return v;
}

static void set_block(struct ntx__tpl *t, const struct node *n)
{
    struct val v = captured(t, n->list[0]);
    assign(t, n->b, n->a ? piped(t, n->a, v) : v);
}

static struct val macro_of(struct ntx__tpl *t, const struct node *n)
{
    struct macro *m = ntx__tpl_alloc(t, sizeof *m);
    *m = (struct macro){.node = n, .scope = t->scope};
    return (struct val){.type = V_MACRO, .m = m};
}

static void call_block(struct ntx__tpl *t, const struct node *n)
{
    struct val callee = ntx__tpl_eval(t, n->a->a);
    struct args a = ntx__tpl_args(t, n->a);
    struct kwarg *kw = ntx__tpl_alloc(t, (a.n_kw + 1) * sizeof *kw);
    if (a.n_kw)
        memcpy(kw, a.kw, a.n_kw * sizeof *kw);
    kw[a.n_kw++] = (struct kwarg){n->name, macro_of(t, n)};
    a.kw = kw;
    ntx__tpl_add_val(t, t->buf, ntx__tpl_call(t, callee, &a));
}

static enum flow with(struct ntx__tpl *t, const struct node *n)
{
    struct scope *outer = t->scope, *inner = ntx__tpl_alloc(t, sizeof *inner);
    struct val values = ntx__tpl_list(t, n->n / 2);
    for (uint32_t i = 1; i < n->n; i += 2)
        ntx__tpl_push(t, values.l, ntx__tpl_eval(t, n->list[i]));
    ntx__tpl_scope(t, inner, outer);
    for (uint32_t i = 0; i < n->n; i += 2)
        assign(t, n->list[i], values.l->v[i / 2]);
    enum flow f = ntx__tpl_exec(t, n->b);
    t->scope = outer;
    return f;
}

static enum flow branch(struct ntx__tpl *t, const struct node *n)
{
    uint32_t i = 0;
    for (; i + 1 < n->n; i += 2)
        if (ntx__tpl_truth(ntx__tpl_eval(t, n->list[i])))
            return ntx__tpl_exec(t, n->list[i + 1]);
    return i < n->n ? ntx__tpl_exec(t, n->list[i]) : FLOW_ON;
}

static enum flow group(struct ntx__tpl *t, const struct node *n)
{
    enum flow f = FLOW_ON;
    for (uint32_t i = 0; i < n->n && f == FLOW_ON; i++)
        f = ntx__tpl_exec(t, n->list[i]);
    return f;
}

static enum flow exec(struct ntx__tpl *t, const struct node *n)
{
    switch (n->kind) {
    case S_TEXT: ntx__tpl_add_str(t, t->buf, n->value.s); break;
    case S_PRINT: ntx__tpl_add_val(t, t->buf, ntx__tpl_eval(t, n->a)); break;
    case S_IF: return branch(t, n);
    case S_FOR: return run_loop(t, n, ntx__tpl_eval(t, n->a), 0);
    case S_SET: assign(t, n->b, ntx__tpl_eval(t, n->a)); break;
    case S_SET_BLOCK: set_block(t, n); break;
    case S_MACRO: set_variable(t, n->name, macro_of(t, n)); break;
    case S_CALL: call_block(t, n); break;
    case S_FILTER: ntx__tpl_add_val(t, t->buf, piped(t, n->a, captured(t, n->b))); break;
    case S_WITH: return with(t, n);
    case S_BREAK: return FLOW_BREAK;
    case S_CONTINUE: return FLOW_CONTINUE;
    default: return group(t, n);
    }
    return FLOW_ON;
}

enum flow ntx__tpl_exec(struct ntx__tpl *t, const struct node *n)
{
    ntx__tpl_enter(t);
    t->line = n->line;
    enum flow f = exec(t, n);
    t->depth--;
    return f;
}

/* ---- a rendering */

static int hand_out(const struct buf *b, const struct ntx_template_limits *limits, struct ntx_template_text *out,
                    struct ntx_err *err)
{
    if (b->n > limits->output)
        return ntx_err_set(err, -ENOBUFS, "chat template: it writes more than %zu KiB", limits->output >> 10);
    char *p = malloc(2 * b->n + 1);
    if (!p)
        return ntx_err_set(err, -ENOMEM, "no memory for what the chat template writes");
    if (b->n) {
        memcpy(p, b->p, b->n);
        memcpy(p + b->n + 1, b->mark, b->n);
    }
    p[b->n] = 0;
    *out = (struct ntx_template_text){.text = p, .people = (uint8_t *)p + b->n + 1, .len = b->n};
    return 0;
}

static struct ntx_template_limits with_defaults(const struct ntx_template_limits *given)
{
    struct ntx_template_limits l = given ? *given : (struct ntx_template_limits){0};
    l.memory = l.memory ? l.memory : (size_t)256 << 20;
    l.output = l.output ? l.output : (size_t)64 << 20;
    l.steps = l.steps ? l.steps : NTX__TPL_STEPS;
    return l;
}

int ntx_template_render(const struct ntx_template *tpl, const char *variables, size_t len,
                        const struct ntx_template_limits *limits, struct ntx_template_text *out, struct ntx_err *err)
{
    struct ntx_template_limits l = with_defaults(limits);
    struct arena arena = {.limit = l.memory};
    struct buf text = {0};
    struct scope root = {0}, given = {0};
    struct ntx__tpl t = {.err = err, .arena = &arena, .limits = &l, .buf = &text};
    int rc = 0;
    if (!setjmp(t.out)) {
        ntx__tpl_globals(&t);
        given.vars = *ntx__tpl_variables(&t, variables, len).d;
        ntx__tpl_scope(&t, &root, &given);
        ntx__tpl_exec(&t, tpl->root);
        rc = hand_out(&text, &l, out, err);
    } else {
        rc = t.rc;
    }
    ntx__tpl_arena_free(&arena);
    return rc;
}
