/* SPDX-License-Identifier: Apache-2.0 */
/* parse_expr.c: expressions, by recursive descent; each level binds tighter than the one that calls it:
 *
 *   a if b else c, or, and, not, == != < <= > >= in (chained), + -, ~, * / // %, **, unary - +,
 *   postfix . [] (), | filter, is test
 *
 * As in Jinja, a filter binds tighter than any operator: a + b|f is a + (b|f). */
#include <errno.h>
#include <stdio.h>

#include "model/template/tpl.h"

struct node *ntx__tpl_node(struct parser *p, enum nkind kind)
{
    struct node *n = ntx__tpl_alloc(p->t, sizeof *n);
    n->kind = kind;
    n->line = p->at->line;
    return n;
}

void ntx__tpl_deeper(struct parser *p)
{
    if (++p->depth > NTX__TPL_NEST)
        ntx__tpl_fail(p->t, -EINVAL, "more than %d levels in each other", NTX__TPL_NEST);
}

bool ntx__tpl_op(const struct parser *p, enum op op) { return p->at->kind == T_OP && p->at->op == op; }

bool ntx__tpl_take(struct parser *p, enum op op)
{
    bool is = ntx__tpl_op(p, op);
    p->at += is;
    return is;
}

bool ntx__tpl_word(const struct parser *p, const char *word)
{
    return p->at->kind == T_NAME && ntx__tpl_is(p->at->v.s, word);
}

bool ntx__tpl_take_word(struct parser *p, const char *word)
{
    bool is = ntx__tpl_word(p, word);
    p->at += is;
    return is;
}

static _Noreturn void unexpected(struct parser *p, const char *wanted)
{
    char got[48] = "the end of the mark";
    p->t->line = p->at->line;
    if (p->at->kind == T_NAME || p->at->kind == T_STRING)
        snprintf(got, sizeof got, "'%.*s'", (int)(p->at->v.s->n < 40 ? p->at->v.s->n : 40), p->at->v.s->p);
    else if (p->at->kind == T_OP)
        snprintf(got, sizeof got, "an operator");
    else if (p->at->kind == T_INT || p->at->kind == T_FLOAT)
        snprintf(got, sizeof got, "a number");
    ntx__tpl_fail(p->t, -EINVAL, "expected %s, not %s", wanted, got);
}

void ntx__tpl_expect(struct parser *p, enum op op, const char *what)
{
    if (!ntx__tpl_take(p, op))
        unexpected(p, what);
}

const struct str *ntx__tpl_expect_name(struct parser *p)
{
    if (p->at->kind != T_NAME)
        unexpected(p, "a name");
    return p->at++->v.s;
}

/* Arrays double, so their size is not stored: they are full at powers of two. */
static bool full(uint32_t n) { return !(n & (n - 1)); }

void ntx__tpl_list_add(struct parser *p, struct node *n, struct node *child)
{
    if (full(n->n)) {
        struct node **list = ntx__tpl_alloc(p->t, (n->n ? 2 * (size_t)n->n : 1) * sizeof *list);
        if (n->n)
            memcpy(list, n->list, n->n * sizeof *list);
        n->list = list;
    }
    n->list[n->n++] = child;
}

void ntx__tpl_arg_add(struct parser *p, struct node *n, struct arg a)
{
    if (full(n->n_args)) {
        struct arg *args = ntx__tpl_alloc(p->t, (n->n_args ? 2 * (size_t)n->n_args : 1) * sizeof *args);
        if (n->n_args)
            memcpy(args, n->args, n->n_args * sizeof *args);
        n->args = args;
    }
    n->args[n->n_args++] = a;
}

static struct node *binary(struct parser *p, enum nkind kind, enum op op, struct node *a, struct node *b)
{
    struct node *n = ntx__tpl_node(p, kind);
    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    return n;
}

static struct node *constant(struct parser *p, struct val v)
{
    struct node *n = ntx__tpl_node(p, E_CONST);
    n->value = v;
    return n;
}

static struct node *name(struct parser *p)
{
    static const struct {
        const char *word;
        struct val v;
    } words[] = {
        {"true", {.type = V_BOOL, .b = true}},
        {"True", {.type = V_BOOL, .b = true}},
        {"false", {.type = V_BOOL}},
        {"False", {.type = V_BOOL}},
        {"none", {.type = V_NONE}},
        {"None", {.type = V_NONE}},
    };
    const struct str *s = p->at->v.s;
    struct node *n = ntx__tpl_node(p, E_NAME);
    n->name = s;
    p->at++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (ntx__tpl_is(s, words[i].word))
            return constant(p, words[i].v);
    p->varargs |= ntx__tpl_is(s, "varargs");
    p->kwargs |= ntx__tpl_is(s, "kwargs");
    p->caller |= ntx__tpl_is(s, "caller");
    return n;
}

static struct node *parse_strings(struct parser *p) /* adjacent strings are joined */
{
    struct buf b = {0};
    while (p->at->kind == T_STRING)
        ntx__tpl_add_str(p->t, &b, p->at++->v.s);
    return constant(p, ntx__tpl_taken(p->t, &b));
}

static struct node *parse_list(struct parser *p)
{
    struct node *n = ntx__tpl_node(p, E_LIST);
    while (!ntx__tpl_op(p, OP_RBRACKET)) {
        ntx__tpl_list_add(p, n, ntx__tpl_expr(p));
        if (!ntx__tpl_take(p, OP_COMMA))
            break;
    }
    ntx__tpl_expect(p, OP_RBRACKET, "']'");
    return n;
}

static struct node *dict(struct parser *p)
{
    struct node *n = ntx__tpl_node(p, E_DICT);
    while (!ntx__tpl_op(p, OP_RBRACE)) {
        ntx__tpl_list_add(p, n, ntx__tpl_expr(p));
        ntx__tpl_expect(p, OP_COLON, "':'");
        ntx__tpl_list_add(p, n, ntx__tpl_expr(p));
        if (!ntx__tpl_take(p, OP_COMMA))
            break;
    }
    ntx__tpl_expect(p, OP_RBRACE, "'}'");
    return n;
}

/* Parses a, b up to its end; explicit: in parentheses, where it may be empty. */
static struct node *parse_tuple(struct parser *p, bool explicit, struct node *(*element)(struct parser *))
{
    struct node *n = ntx__tpl_node(p, E_TUPLE), *first = NULL;
    bool comma = false;
    while (!(p->at->kind >= T_PRINT_END && p->at->kind <= T_BLOCK_END && p->at->kind != T_BLOCK) &&
           !ntx__tpl_op(p, OP_RPAREN) && !ntx__tpl_word(p, "in")) {
        first = element(p);
        ntx__tpl_list_add(p, n, first);
        if (!ntx__tpl_take(p, OP_COMMA))
            break;
        comma = true;
    }
    if (n->n == 1 && !comma)
        return first;
    if (!n->n && !explicit)
        unexpected(p, "an expression");
    return n;
}

struct node *ntx__tpl_tuple_expr(struct parser *p) { return parse_tuple(p, false, ntx__tpl_expr); }

static struct node *target_element(struct parser *p)
{
    if (ntx__tpl_take(p, OP_LPAREN)) {
        ntx__tpl_deeper(p);
        struct node *n = parse_tuple(p, false, target_element);
        p->depth--;
        ntx__tpl_expect(p, OP_RPAREN, "')'");
        return n;
    }
    struct node *n = ntx__tpl_node(p, E_NAME);
    n->name = ntx__tpl_expect_name(p);
    return n;
}

struct node *ntx__tpl_target(struct parser *p)
{
    struct node *n = parse_tuple(p, false, target_element);
    if (n->kind == E_NAME && ntx__tpl_take(p, OP_DOT)) {
        struct node *attr = ntx__tpl_node(p, E_ATTR);
        attr->a = n;
        attr->name = ntx__tpl_expect_name(p);
        return attr;
    }
    return n;
}

struct node *ntx__tpl_primary(struct parser *p)
{
    struct node *n;
    switch (p->at->kind) {
    case T_NAME: return name(p);
    case T_STRING: return parse_strings(p);
    case T_INT:
    case T_FLOAT:
        n = constant(p, p->at->v);
        p->at++;
        return n;
    }
    ntx__tpl_deeper(p);
    if (ntx__tpl_take(p, OP_LPAREN)) {
        n = parse_tuple(p, true, ntx__tpl_expr);
        ntx__tpl_expect(p, OP_RPAREN, "')'");
    } else if (ntx__tpl_take(p, OP_LBRACKET)) {
        n = parse_list(p);
    } else if (ntx__tpl_take(p, OP_LBRACE)) {
        n = dict(p);
    } else {
        unexpected(p, "an expression");
    }
    p->depth--;
    return n;
}

/* [a], [a:b], [a:b:c] */
static struct node *parse_subscript(struct parser *p, struct node *a)
{
    struct node *parts[3] = {NULL, NULL, NULL};
    unsigned colons = 0;
    while (!ntx__tpl_op(p, OP_RBRACKET)) {
        if (ntx__tpl_take(p, OP_COLON)) {
            if (++colons > 2)
                unexpected(p, "']'");
        } else if (parts[colons]) {
            unexpected(p, "']'");
        } else {
            parts[colons] = ntx__tpl_expr(p);
        }
    }
    p->at++;
    if (!colons && !parts[0])
        unexpected(p, "a subscript");
    if (!colons)
        return binary(p, E_ITEM, OP_NONE, a, parts[0]);
    struct node *n = binary(p, E_SLICE, OP_NONE, a, NULL);
    for (int i = 0; i < 3; i++)
        ntx__tpl_list_add(p, n, parts[i]);
    return n;
}

/* Parses arguments after the '('. */
static void parse_arguments(struct parser *p, struct node *n)
{
    while (!ntx__tpl_op(p, OP_RPAREN)) {
        struct arg a = {0};
        if (ntx__tpl_take(p, OP_MUL))
            a.stars = 1;
        else if (ntx__tpl_take(p, OP_POW))
            a.stars = 2;
        else if (p->at->kind == T_NAME && p->at[1].kind == T_OP && p->at[1].op == OP_ASSIGN) {
            a.name = p->at->v.s;
            p->at += 2;
        }
        a.value = ntx__tpl_expr(p);
        ntx__tpl_arg_add(p, n, a);
        if (!ntx__tpl_take(p, OP_COMMA))
            break;
    }
    ntx__tpl_expect(p, OP_RPAREN, "')'");
}

static struct node *call(struct parser *p, struct node *a)
{
    struct node *n = binary(p, E_CALL, OP_NONE, a, NULL);
    parse_arguments(p, n);
    return n;
}

struct node *ntx__tpl_postfix(struct parser *p, struct node *a)
{
    ntx__tpl_deeper(p);
    for (;;) {
        if (ntx__tpl_take(p, OP_DOT)) {
            if (p->at->kind == T_INT) {
                a = binary(p, E_ITEM, OP_NONE, a, constant(p, p->at->v));
                p->at++;
            } else {
                a = binary(p, E_ATTR, OP_NONE, a, NULL);
                a->name = ntx__tpl_expect_name(p);
            }
        } else if (ntx__tpl_take(p, OP_LBRACKET)) {
            a = parse_subscript(p, a);
        } else if (ntx__tpl_take(p, OP_LPAREN)) {
            a = call(p, a);
        } else {
            break;
        }
    }
    p->depth--;
    return a;
}

static const struct str *dotted(struct parser *p)
{
    struct buf b = {0};
    ntx__tpl_add_str(p->t, &b, ntx__tpl_expect_name(p));
    while (ntx__tpl_take(p, OP_DOT)) {
        ntx__tpl_add_text(p->t, &b, ".");
        ntx__tpl_add_str(p->t, &b, ntx__tpl_expect_name(p));
    }
    return ntx__tpl_taken(p->t, &b).s;
}

static struct node *filter(struct parser *p, struct node *a)
{
    struct node *n = binary(p, E_FILTER, OP_NONE, a, NULL);
    n->name = dotted(p);
    if (ntx__tpl_take(p, OP_LPAREN))
        parse_arguments(p, n);
    return n;
}

static struct node *test(struct parser *p, struct node *a)
{
    struct node *n = binary(p, E_TEST, OP_NONE, a, NULL);
    n->flag = ntx__tpl_take_word(p, "not");
    n->name = dotted(p);
    bool value = p->at->kind == T_NAME || p->at->kind == T_STRING || p->at->kind == T_INT || p->at->kind == T_FLOAT ||
                 ntx__tpl_op(p, OP_LBRACKET) || ntx__tpl_op(p, OP_LBRACE);
    if (ntx__tpl_take(p, OP_LPAREN))
        parse_arguments(p, n);
    else if (value && !ntx__tpl_word(p, "else") && !ntx__tpl_word(p, "or") && !ntx__tpl_word(p, "and") &&
             !ntx__tpl_word(p, "if") && !ntx__tpl_word(p, "is"))
        ntx__tpl_arg_add(p, n, (struct arg){.value = ntx__tpl_postfix(p, ntx__tpl_primary(p))});
    return n;
}

struct node *ntx__tpl_filters(struct parser *p, struct node *a, bool open)
{
    if (open)
        a = filter(p, a);
    for (;;) {
        if (ntx__tpl_take(p, OP_PIPE))
            a = filter(p, a);
        else if (!open && ntx__tpl_take_word(p, "is"))
            a = test(p, a);
        else if (!open && ntx__tpl_take(p, OP_LPAREN))
            a = call(p, a);
        else
            return a;
    }
}

static struct node *unary(struct parser *p, bool with_filter)
{
    struct node *n;
    ntx__tpl_deeper(p);
    if (ntx__tpl_take(p, OP_SUB))
        n = binary(p, E_NEG, OP_NONE, unary(p, false), NULL);
    else if (ntx__tpl_take(p, OP_ADD))
        n = binary(p, E_POS, OP_NONE, unary(p, false), NULL);
    else
        n = ntx__tpl_primary(p);
    n = ntx__tpl_postfix(p, n);
    p->depth--;
    return with_filter ? ntx__tpl_filters(p, n, false) : n;
}

static struct node *power(struct parser *p)
{
    struct node *n = unary(p, true);
    while (ntx__tpl_take(p, OP_POW))
        n = binary(p, E_BINARY, OP_POW, n, unary(p, true));
    return n;
}

static struct node *product(struct parser *p)
{
    struct node *n = power(p);
    while (p->at->kind == T_OP &&
           (p->at->op == OP_MUL || p->at->op == OP_DIV || p->at->op == OP_FLOORDIV || p->at->op == OP_MOD)) {
        enum op op = p->at++->op;
        n = binary(p, E_BINARY, op, n, power(p));
    }
    return n;
}

static struct node *concat(struct parser *p)
{
    struct node *first = product(p);
    if (!ntx__tpl_op(p, OP_TILDE))
        return first;
    struct node *n = ntx__tpl_node(p, E_CONCAT);
    ntx__tpl_list_add(p, n, first);
    while (ntx__tpl_take(p, OP_TILDE))
        ntx__tpl_list_add(p, n, product(p));
    return n;
}

static struct node *parse_sum(struct parser *p)
{
    struct node *n = concat(p);
    while (ntx__tpl_op(p, OP_ADD) || ntx__tpl_op(p, OP_SUB)) {
        enum op op = p->at++->op;
        n = binary(p, E_BINARY, op, n, concat(p));
    }
    return n;
}

static enum op comparison(struct parser *p)
{
    if (p->at->kind == T_OP && p->at->op >= OP_EQ && p->at->op <= OP_GE)
        return p->at++->op;
    if (ntx__tpl_take_word(p, "in"))
        return OP_IN;
    if (ntx__tpl_word(p, "not") && p->at[1].kind == T_NAME && ntx__tpl_is(p->at[1].v.s, "in")) {
        p->at += 2;
        return OP_NOT_IN;
    }
    return OP_NONE;
}

static struct node *parse_compare(struct parser *p)
{
    struct node *first = parse_sum(p), *n = NULL;
    for (enum op op; (op = comparison(p)) != OP_NONE;) {
        if (!n) {
            n = ntx__tpl_node(p, E_COMPARE);
            ntx__tpl_list_add(p, n, first);
        }
        uint8_t *ops = ntx__tpl_alloc(p->t, n->n);
        if (n->n > 1)
            memcpy(ops, n->ops, n->n - 1);
        ops[n->n - 1] = (uint8_t)op;
        n->ops = ops;
        ntx__tpl_list_add(p, n, parse_sum(p));
    }
    return n ? n : first;
}

static struct node *not_expr(struct parser *p)
{
    if (!ntx__tpl_take_word(p, "not"))
        return parse_compare(p);
    ntx__tpl_deeper(p);
    struct node *n = binary(p, E_NOT, OP_NONE, not_expr(p), NULL);
    p->depth--;
    return n;
}

static struct node *and_expr(struct parser *p)
{
    struct node *n = not_expr(p);
    while (ntx__tpl_take_word(p, "and"))
        n = binary(p, E_AND, OP_NONE, n, not_expr(p));
    return n;
}

struct node *ntx__tpl_or_expr(struct parser *p)
{
    struct node *n = and_expr(p);
    while (ntx__tpl_take_word(p, "or"))
        n = binary(p, E_OR, OP_NONE, n, and_expr(p));
    return n;
}

struct node *ntx__tpl_expr(struct parser *p)
{
    ntx__tpl_deeper(p);
    struct node *n = ntx__tpl_or_expr(p);
    while (ntx__tpl_take_word(p, "if")) {
        struct node *c = binary(p, E_COND, OP_NONE, ntx__tpl_or_expr(p), n);
        if (ntx__tpl_take_word(p, "else"))
            c->c = ntx__tpl_expr(p);
        n = c;
    }
    p->depth--;
    return n;
}
