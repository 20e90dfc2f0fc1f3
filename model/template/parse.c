/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c: statements. A body is an S_GROUP; its caller looks for its end. */
#include <errno.h>
#include <stdlib.h>

#include "model/template/tpl.h"

static struct node *parse_body(struct parser *p, const char *const *ends);

static _Noreturn void fail_parse(struct parser *p, const char *what)
{
    p->t->line = p->at->line;
    ntx__tpl_fail(p->t, -EINVAL, "%s", what);
}

static void block_end(struct parser *p)
{
    if (p->at->kind != T_BLOCK_END)
        fail_parse(p, "expected the end of the block '%}'");
    p->at++;
}

/* body() stops at "{% word" before the word; this skips "word %}". */
static struct node *body_to(struct parser *p, const char *word)
{
    const char *const ends[] = {word, NULL};
    struct node *n = parse_body(p, ends);
    p->at++;
    if (p->at->kind == T_NAME) /* "endmacro name" */
        p->at++;
    block_end(p);
    return n;
}

static struct node *parse_if(struct parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct node *n = ntx__tpl_node(p, S_IF);
    for (;;) {
        ntx__tpl_list_add(p, n, ntx__tpl_tuple_expr(p));
        block_end(p);
        ntx__tpl_list_add(p, n, parse_body(p, ends));
        if (!ntx__tpl_take_word(p, "elif"))
            break;
    }
    if (ntx__tpl_take_word(p, "else")) {
        block_end(p);
        ntx__tpl_list_add(p, n, body_to(p, "endif"));
        return n;
    }
    p->at++;
    block_end(p);
    return n;
}

/* a: the sequence; b: the body; c: else; list: target, and condition or NULL */
static struct node *parse_for(struct parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    struct node *n = ntx__tpl_node(p, S_FOR);
    ntx__tpl_list_add(p, n, ntx__tpl_target(p));
    if (!ntx__tpl_take_word(p, "in"))
        fail_parse(p, "expected 'in'");
    struct node *first = ntx__tpl_or_expr(p);
    if (ntx__tpl_op(p, OP_COMMA)) {
        n->a = ntx__tpl_node(p, E_TUPLE);
        ntx__tpl_list_add(p, n->a, first);
        while (ntx__tpl_take(p, OP_COMMA))
            ntx__tpl_list_add(p, n->a, ntx__tpl_or_expr(p));
    } else {
        n->a = first;
    }
    ntx__tpl_list_add(p, n, ntx__tpl_take_word(p, "if") ? ntx__tpl_expr(p) : NULL);
    n->flag = ntx__tpl_take_word(p, "recursive");
    block_end(p);
    p->loops++;
    n->b = parse_body(p, ends);
    p->loops--;
    if (ntx__tpl_take_word(p, "else")) {
        block_end(p);
        n->c = body_to(p, "endfor");
        return n;
    }
    p->at++;
    block_end(p);
    return n;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = ntx__tpl_node(p, S_SET), *target = ntx__tpl_target(p);
    if (ntx__tpl_take(p, OP_ASSIGN)) {
        n->a = ntx__tpl_tuple_expr(p);
        n->b = target;
        block_end(p);
        return n;
    }
    n->kind = S_SET_BLOCK;
    n->b = target;
    if (ntx__tpl_take(p, OP_PIPE)) { /* the text is the input of the filters: an E_NAME without a name */
        n->c = ntx__tpl_node(p, E_NAME);
        n->a = ntx__tpl_filters(p, n->c, true);
    }
    block_end(p);
    struct node *text = body_to(p, "endset");
    ntx__tpl_list_add(p, n, text);
    return n;
}

static void parameters(struct parser *p, struct node *n)
{
    while (!ntx__tpl_op(p, OP_RPAREN)) {
        struct arg a = {.name = ntx__tpl_expect_name(p)};
        if (ntx__tpl_take(p, OP_ASSIGN))
            a.value = ntx__tpl_expr(p);
        ntx__tpl_arg_add(p, n, a);
        if (!ntx__tpl_take(p, OP_COMMA))
            break;
    }
    ntx__tpl_expect(p, OP_RPAREN, "')'");
}

/* The body, and which implicit names it uses; outer loops do not reach into it. */
static void macro_body(struct parser *p, struct node *n, const char *end)
{
    struct parser outer = *p;
    p->varargs = p->kwargs = p->caller = false;
    p->loops = 0;
    n->b = body_to(p, end);
    n->flag = p->varargs;
    n->kwargs = p->kwargs;
    n->caller = p->caller;
    p->varargs |= outer.varargs;
    p->kwargs |= outer.kwargs;
    p->caller |= outer.caller;
    p->loops = outer.loops;
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = ntx__tpl_node(p, S_MACRO);
    n->name = ntx__tpl_expect_name(p);
    ntx__tpl_expect(p, OP_LPAREN, "'('");
    parameters(p, n);
    block_end(p);
    macro_body(p, n, "endmacro");
    return n;
}

static struct node *parse_call(struct parser *p)
{
    struct node *n = ntx__tpl_node(p, S_CALL);
    if (ntx__tpl_take(p, OP_LPAREN))
        parameters(p, n);
    n->a = ntx__tpl_expr(p);
    if (n->a->kind != E_CALL)
        fail_parse(p, "a call block needs a call");
    block_end(p);
    n->name = ntx__tpl_text(p->t, "caller").s;
    macro_body(p, n, "endcall");
    return n;
}

static struct node *parse_filter(struct parser *p)
{
    struct node *n = ntx__tpl_node(p, S_FILTER);
    n->c = ntx__tpl_node(p, E_NAME);
    n->a = ntx__tpl_filters(p, n->c, true);
    block_end(p);
    n->b = body_to(p, "endfilter");
    return n;
}

static struct node *parse_with(struct parser *p)
{
    struct node *n = ntx__tpl_node(p, S_WITH);
    while (p->at->kind != T_BLOCK_END) {
        if (n->n)
            ntx__tpl_expect(p, OP_COMMA, "','");
        ntx__tpl_list_add(p, n, ntx__tpl_target(p));
        ntx__tpl_expect(p, OP_ASSIGN, "'='");
        ntx__tpl_list_add(p, n, ntx__tpl_expr(p));
    }
    block_end(p);
    n->b = body_to(p, "endwith");
    return n;
}

static struct node *parse_jump(struct parser *p, enum nkind kind)
{
    struct node *n = ntx__tpl_node(p, kind);
    if (!p->loops)
        fail_parse(p, "break and continue need a loop around them");
    block_end(p);
    return n;
}

static struct node *parse_break(struct parser *p) { return parse_jump(p, S_BREAK); }
static struct node *parse_continue(struct parser *p) { return parse_jump(p, S_CONTINUE); }

static struct node *parse_generation(struct parser *p) /* marks the model's text, for training */
{
    struct node *n = ntx__tpl_node(p, S_WITH);
    block_end(p);
    n->b = body_to(p, "endgeneration");
    return n;
}

static struct node *statement(struct parser *p)
{
    static const struct {
        const char *word;
        struct node *(*parse)(struct parser *);
    } rows[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call},
        {"filter", parse_filter},
        {"with", parse_with},
        {"break", parse_break},
        {"continue", parse_continue},
        {"generation", parse_generation},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (ntx__tpl_take_word(p, rows[i].word))
            return rows[i].parse(p);
    if (p->at->kind != T_NAME)
        fail_parse(p, "a block begins with a word");
    p->t->line = p->at->line;
    ntx__tpl_fail(p->t, -EINVAL, "there is no block '%.*s' here", (int)(p->at->v.s->n < 40 ? p->at->v.s->n : 40),
                  p->at->v.s->p);
}

static bool ends_here(const struct parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (ntx__tpl_word(p, *ends))
            return true;
    return false;
}

static struct node *print(struct parser *p)
{
    struct node *n = ntx__tpl_node(p, S_PRINT);
    n->a = ntx__tpl_tuple_expr(p);
    if (p->at->kind != T_PRINT_END)
        fail_parse(p, "expected the end of the print mark '}}'");
    p->at++;
    return n;
}

/* Parses up to "{% END" and skips all but the word; ends NULL: up to the end of the text. */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
    struct node *group = ntx__tpl_node(p, S_GROUP), *n;
    ntx__tpl_deeper(p);
    for (;;) {
        p->t->line = p->at->line;
        if (p->at->kind == T_DATA) {
            n = ntx__tpl_node(p, S_TEXT);
            n->value = p->at++->v;
        } else if (p->at->kind == T_PRINT) {
            p->at++;
            n = print(p);
        } else if (p->at->kind == T_BLOCK) {
            p->at++;
            if (ends_here(p, ends))
                break;
            n = statement(p);
        } else if (!ends) {
            break;
        } else {
            while (ends[1])
                ends++;
            ntx__tpl_fail(p->t, -EINVAL, "the block of line %u has no '{%% %s %%}'", group->line, *ends);
        }
        ntx__tpl_list_add(p, group, n);
    }
    p->depth--;
    return group;
}

struct node *ntx__tpl_parse(struct ntx__tpl *t, struct tokens *tokens)
{
    struct parser p = {.t = t, .at = tokens->v};
    return parse_body(&p, NULL);
}

int ntx_template_parse(const char *text, size_t len, struct ntx_template **out, struct ntx_err *err)
{
    struct ntx__tpl t = {.err = err};
    struct tokens tokens = {0};
    if (len > NTX__TPL_SOURCE_MAX)
        return ntx_err_set(err, -EFBIG, "a chat template of %zu bytes: more than 1 MiB", len);
    struct ntx_template *volatile made = calloc(1, sizeof *made);
    if (!made)
        return ntx_err_set(err, -ENOMEM, "no memory for a chat template");
    made->arena.limit = 128 * NTX__TPL_SOURCE_MAX;
    t.arena = &made->arena;
    if (setjmp(t.out)) {
        ntx_template_free(made);
        return t.rc;
    }
    ntx__tpl_lex(&t, text, len, &tokens);
    made->root = ntx__tpl_parse(&t, &tokens);
    *out = made;
    return 0;
}

void ntx_template_free(struct ntx_template *t)
{
    if (!t)
        return;
    ntx__tpl_arena_free(&t->arena);
    free(t);
}
