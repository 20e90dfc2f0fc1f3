/* SPDX-License-Identifier: Apache-2.0 */
/* tpl.h: shared by the files of the interpreter.
 *
 *      lex.c  ->  parse.c (statements), parse_expr.c  ->  struct node  ->  exec.c (statements), eval.c (expressions)
 *                                                                             call.c: macros, functions, arguments
 *      value.c  the arena, strings, lists, dicts       text.c    values as text: str(), repr(), JSON out
 *      ops.c    operators                              json.c    JSON in
 *      filters.c, filters_seq.c, tests.c, methods.c    the tables      format.c   "%" and str.format
 *
 * All memory of a parse or a rendering comes from one arena, which is freed as a whole, so a failure longjmps out
 * from any depth: no function in between has anything to clean up. Values are small and passed by value; strings are
 * immutable. */
#ifndef NTX_MODEL_TEMPLATE_TPL_H
#define NTX_MODEL_TEMPLATE_TPL_H

#include <setjmp.h>
#include <string.h>

#include "model/template/template.h"

#define NTX__TPL_SOURCE_MAX ((size_t)1 << 20)
#define NTX__TPL_STEPS      50000000u
#define NTX__TPL_DEPTH      600 /* nesting of expressions, statements and calls */
#define NTX__TPL_NEST       200 /* nesting of parentheses, blocks, JSON values */

struct str { /* n bytes of text, then n marks (1: a user's byte) */
    size_t n;
    char p[];
};

enum vtype {
    V_UNDEF,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_SPACE,
    V_MACRO,
    V_METHOD,
    V_FUNC,
    V_LOOP
};

struct val {
    uint8_t type;
    bool safe; /* V_STR: HTML that needs no escaping (only + uses it) */
    union {
        bool b;
        int64_t i;
        double f;
        const struct str *s; /* V_UNDEF: the missing name, or NULL */
        struct list *l;      /* V_LIST, V_TUPLE */
        struct dict *d;      /* V_DICT, V_SPACE */
        struct macro *m;
        struct method *bound;
        struct loop *loop;
        const struct func *func;
    };
};

struct list {
    size_t n, room;
    struct val *v;
};

struct pair {
    struct val k, v;
};

struct dict { /* keeps the order of insertion */
    size_t n, room;
    struct pair *e;
};

struct scope {
    struct scope *up;
    struct dict vars; /* keys are strings */
};

struct buf {
    char *p;
    uint8_t *mark;
    size_t n, room;
};

struct block;
struct arena {
    struct block *last;
    size_t bytes, limit;
};

/* ---- what a template is made of */

enum nkind {
    /* expressions */
    E_CONST,
    E_NAME,
    E_LIST,
    E_TUPLE,
    E_DICT,
    E_ATTR,
    E_ITEM,
    E_SLICE,
    E_CALL,
    E_FILTER,
    E_TEST,
    E_BINARY,
    E_NEG,
    E_POS,
    E_NOT,
    E_AND,
    E_OR,
    E_COND,
    E_COMPARE,
    E_CONCAT,
    /* statements */
    S_TEXT,
    S_PRINT,
    S_IF,
    S_FOR,
    S_SET,
    S_SET_BLOCK,
    S_MACRO,
    S_CALL,
    S_FILTER,
    S_WITH,
    S_BREAK,
    S_CONTINUE,
    S_GROUP,
};

enum op {
    OP_NONE,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_TILDE,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
    OP_ASSIGN,
    OP_DOT,
    OP_COMMA,
    OP_COLON,
    OP_PIPE,
    OP_LPAREN,
    OP_RPAREN,
    OP_LBRACKET,
    OP_RBRACKET,
    OP_LBRACE,
    OP_RBRACE,
    OP_SEMICOLON,
};

struct arg {                /* an argument of a call, or a parameter of a macro with its default */
    const struct str *name; /* NULL: positional */
    struct node *value;     /* NULL: no default */
    uint8_t stars;          /* 1: *value, 2: **value */
};

struct node {
    uint8_t kind, op;
    bool flag;           /* E_TEST: `is not`; S_FOR: recursive; S_MACRO, S_CALL: the body uses varargs */
    bool kwargs, caller; /* S_MACRO, S_CALL: the body uses them */
    uint32_t line;
    uint32_t n, n_args;
    const struct str *name;
    struct node *a, *b, *c;
    struct node **list; /* [n] elements; E_COMPARE, E_DICT: operands in turn; S_IF: condition, body, ..., and an else
                           if n is odd */
    struct arg *args;   /* [n_args] */
    uint8_t *ops;       /* E_COMPARE: [n - 1] */
    struct val value;
};

struct ntx_template {
    struct arena arena;
    struct node *root;
};

/* ---- a parse or a rendering under way */

struct ntx__tpl {
    jmp_buf out;
    struct ntx_err *err;
    int rc;
    struct arena *arena;
    uint32_t line;
    unsigned depth;
    /* rendering */
    const struct ntx_template_limits *limits;
    uint64_t steps;
    struct buf *buf;
    struct dict globals;
    struct scope *scope;
    struct val piped; /* input of the filters of a block: E_NAME without a name */
};

_Noreturn void ntx__tpl_fail(struct ntx__tpl *t, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void ntx__tpl_charge(struct ntx__tpl *t, size_t bytes);      /* counts a step, and steps for the bytes */
void ntx__tpl_charge_text(struct ntx__tpl *t, struct val v); /* counts the steps to read v, if it is a text */
void ntx__tpl_enter(struct ntx__tpl *t);                     /* one level deeper; leave with t->depth-- */

/* ---- value.c */
void *ntx__tpl_alloc(struct ntx__tpl *t, size_t bytes); /* zeroed */
void ntx__tpl_arena_free(struct arena *a);
struct str *ntx__tpl_str(struct ntx__tpl *t, const char *p, size_t n, uint8_t mark); /* p NULL: not filled */
static inline const uint8_t *ntx__tpl_marks(const struct str *s) { return (const uint8_t *)s->p + s->n; }
struct val ntx__tpl_text(struct ntx__tpl *t, const char *literal);
struct val ntx__tpl_sub(struct ntx__tpl *t, const struct str *s, size_t from, size_t to);
bool ntx__tpl_is(const struct str *s, const char *text);
struct val ntx__tpl_list(struct ntx__tpl *t, size_t room);
void ntx__tpl_push(struct ntx__tpl *t, struct list *l, struct val v);
struct val ntx__tpl_dict(struct ntx__tpl *t);
struct val *ntx__tpl_find(struct ntx__tpl *t, const struct dict *d, struct val key); /* NULL: absent */
struct val *ntx__tpl_find_name(struct ntx__tpl *t, const struct dict *d, const struct str *name);
void ntx__tpl_put(struct ntx__tpl *t, struct dict *d, struct val key, struct val v);
bool ntx__tpl_truth(struct val v);
bool ntx__tpl_equal(struct ntx__tpl *t, struct val a, struct val b);
int ntx__tpl_order(struct ntx__tpl *t, struct val a, struct val b); /* <0, 0, >0; fails if there is no order */
const char *ntx__tpl_type(struct val v);                            /* Python's name of the type */
_Noreturn void ntx__tpl_undefined(struct ntx__tpl *t, struct val v);
size_t ntx__tpl_length(struct ntx__tpl *t, struct val v);
struct list *ntx__tpl_iterate(struct ntx__tpl *t, struct val v); /* elements: characters, keys, ... */
static inline struct val ntx__tpl_int(int64_t i) { return (struct val){.type = V_INT, .i = i}; }
static inline struct val ntx__tpl_bool(bool b) { return (struct val){.type = V_BOOL, .b = b}; }
static inline struct val ntx__tpl_float(double f) { return (struct val){.type = V_FLOAT, .f = f}; }
static inline struct val ntx__tpl_of(const struct str *s) { return (struct val){.type = V_STR, .s = s}; }
static inline bool ntx__tpl_whole(struct val v) { return v.type == V_INT || v.type == V_BOOL; }
static inline int64_t ntx__tpl_i(struct val v) { return v.type == V_BOOL ? v.b : v.i; }

/* ---- chars.c: UTF-8; an invalid byte counts as a character */
size_t ntx__tpl_char(const char *p, size_t n, uint32_t *c); /* bytes of the first character */
size_t ntx__tpl_put_char(uint32_t c, char out[4]);
size_t ntx__tpl_count(const char *p, size_t n);
size_t ntx__tpl_offset(const char *p, size_t n, size_t chars); /* offset of that character, or n */
bool ntx__tpl_space(uint32_t c);                               /* as Python's str.isspace */
bool ntx__tpl_line_end(uint32_t c);                            /* as Python's str.splitlines */

/* ---- text.c */
void ntx__tpl_add(struct ntx__tpl *t, struct buf *b, const char *p, size_t n,
                  const uint8_t *marks); /* marks NULL: the template's bytes */
void ntx__tpl_add_str(struct ntx__tpl *t, struct buf *b, const struct str *s);
void ntx__tpl_add_text(struct ntx__tpl *t, struct buf *b, const char *text);
void ntx__tpl_add_val(struct ntx__tpl *t, struct buf *b, struct val v);  /* str() */
void ntx__tpl_add_repr(struct ntx__tpl *t, struct buf *b, struct val v); /* repr() */
struct val ntx__tpl_taken(struct ntx__tpl *t, const struct buf *b);
const struct str *ntx__tpl_string(struct ntx__tpl *t, struct val v); /* str() */

struct json_form {
    bool ascii, sort, indented;
    const struct str *indent, *item, *key; /* one level of indentation, separators of items and keys; NULL: the
                                              defaults */
};
void ntx__tpl_add_json(struct ntx__tpl *t, struct buf *b, struct val v, const struct json_form *f, unsigned level);

/* ---- json.c */
struct val ntx__tpl_json(struct ntx__tpl *t, const char *p, size_t n, uint8_t mark);
struct val ntx__tpl_variables(struct ntx__tpl *t, const char *p, size_t n);

/* ---- lex.c */
enum tkind { T_DATA, T_PRINT, T_PRINT_END, T_BLOCK, T_BLOCK_END, T_NAME, T_INT, T_FLOAT, T_STRING, T_OP, T_END };
struct token {
    uint8_t kind, op;
    uint32_t line;
    struct val v; /* T_DATA, T_NAME, T_STRING: the text; T_INT, T_FLOAT */
};
struct tokens {
    struct token *v;
    size_t n, room;
};
void ntx__tpl_lex(struct ntx__tpl *t, const char *text, size_t len, struct tokens *out);

/* ---- parse.c, parse_expr.c */
struct parser {
    struct ntx__tpl *t;
    struct token *at;
    unsigned depth, loops;
    bool varargs, kwargs, caller; /* the body used them */
};
struct node *ntx__tpl_parse(struct ntx__tpl *t, struct tokens *tokens);
struct node *ntx__tpl_node(struct parser *p, enum nkind kind);
struct node *ntx__tpl_expr(struct parser *p);                               /* includes "a if b else c" */
struct node *ntx__tpl_tuple_expr(struct parser *p);                         /* includes "a, b" */
struct node *ntx__tpl_or_expr(struct parser *p);                            /* excludes "if" */
struct node *ntx__tpl_target(struct parser *p);                             /* target of for and set */
struct node *ntx__tpl_filters(struct parser *p, struct node *a, bool open); /* a|f|g; open: the first filter has no
                                                                               '|' */
struct node *ntx__tpl_postfix(struct parser *p, struct node *a);
struct node *ntx__tpl_primary(struct parser *p);
void ntx__tpl_list_add(struct parser *p, struct node *n, struct node *child);
void ntx__tpl_arg_add(struct parser *p, struct node *n, struct arg a);
bool ntx__tpl_op(const struct parser *p, enum op op); /* the next token is this operator */
bool ntx__tpl_take(struct parser *p, enum op op);     /* and if so, skips it */
bool ntx__tpl_word(const struct parser *p, const char *word);
bool ntx__tpl_take_word(struct parser *p, const char *word);
void ntx__tpl_expect(struct parser *p, enum op op, const char *what);
const struct str *ntx__tpl_expect_name(struct parser *p);
void ntx__tpl_deeper(struct parser *p); /* one level deeper; leave with p->depth-- */

/* ---- eval.c, ops.c */
struct val ntx__tpl_eval(struct ntx__tpl *t, const struct node *n);
struct val ntx__tpl_attr(struct ntx__tpl *t, struct val v, const struct str *name);
struct val ntx__tpl_item(struct ntx__tpl *t, struct val v, struct val key);
struct val ntx__tpl_binary(struct ntx__tpl *t, enum op op, struct val a, struct val b);
bool ntx__tpl_compare(struct ntx__tpl *t, enum op op, struct val a, struct val b);
bool ntx__tpl_in(struct ntx__tpl *t, struct val a, struct val b);
struct val ntx__tpl_slice(struct ntx__tpl *t, struct val v, const struct val bounds[3]);

/* ---- exec.c */
enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
enum flow ntx__tpl_exec(struct ntx__tpl *t, const struct node *n);
void ntx__tpl_scope(struct ntx__tpl *t, struct scope *s, struct scope *up); /* makes s the current scope */
struct val ntx__tpl_recurse(struct ntx__tpl *t, struct loop *l, struct val items);
struct val ntx__tpl_loop_attr(struct ntx__tpl *t, struct loop *l, const struct str *name);
struct args;
struct val ntx__tpl_loop_cycle(struct ntx__tpl *t, struct loop *l, const struct args *a);
struct val ntx__tpl_loop_changed(struct ntx__tpl *t, struct loop *l, const struct args *a);

/* ---- call.c */
struct kwarg {
    const struct str *name;
    struct val v;
};
struct args {
    size_t n, n_kw;
    struct val *v;
    struct kwarg *kw;
};
struct macro {
    const struct node *node;
    struct scope *scope;
};
struct method {
    struct val self;
    const struct method_row *row;
};
struct func {
    const char *name;
    struct val (*call)(struct ntx__tpl *t, const struct args *a);
};
struct args ntx__tpl_args(struct ntx__tpl *t, const struct node *n);
struct val ntx__tpl_call(struct ntx__tpl *t, struct val callee, const struct args *a);
/* An argument by position or by name; `otherwise` if it is missing. */
struct val ntx__tpl_given(const struct args *a, size_t place, const char *name, struct val otherwise);
int64_t ntx__tpl_given_int(struct ntx__tpl *t, const struct args *a, size_t place, const char *name, int64_t otherwise);
void ntx__tpl_globals(struct ntx__tpl *t);

/* ---- tables */
struct val ntx__tpl_filter(struct ntx__tpl *t, const struct str *name, struct val v, const struct args *a);
bool ntx__tpl_test(struct ntx__tpl *t, const struct str *name, struct val v, const struct args *a);
bool ntx__tpl_has_filter(const struct str *name);
bool ntx__tpl_has_test(const struct str *name);
struct val ntx__tpl_method(struct ntx__tpl *t, struct val v, const struct str *name); /* V_UNDEF: no such method */
struct val ntx__tpl_method_call(struct ntx__tpl *t, const struct method *m, const struct args *a);
struct val ntx__tpl_percent(struct ntx__tpl *t, const struct str *format, struct val v);
struct val ntx__tpl_str_format(struct ntx__tpl *t, const struct str *format, const struct args *a);

/* filters_seq.c */
typedef struct val ntx__tpl_filter_fn(struct ntx__tpl *t, struct val v, const struct args *a);
ntx__tpl_filter_fn ntx__tpl_f_join, ntx__tpl_f_map, ntx__tpl_f_select, ntx__tpl_f_reject, ntx__tpl_f_selectattr,
    ntx__tpl_f_rejectattr, ntx__tpl_f_sort, ntx__tpl_f_dictsort, ntx__tpl_f_unique, ntx__tpl_f_items, ntx__tpl_f_list,
    ntx__tpl_f_first, ntx__tpl_f_last, ntx__tpl_f_min, ntx__tpl_f_max, ntx__tpl_f_sum, ntx__tpl_f_reverse,
    ntx__tpl_f_batch, ntx__tpl_f_groupby;

/* text operations shared by filters and methods (methods.c) */
struct val ntx__tpl_strip(struct ntx__tpl *t, const struct str *s, struct val chars, bool left, bool right);
struct val ntx__tpl_replace(struct ntx__tpl *t, const struct str *s, const struct str *old, const struct str *by,
                            int64_t most);
struct val ntx__tpl_upper(struct ntx__tpl *t, const struct str *s);
struct val ntx__tpl_lower(struct ntx__tpl *t, const struct str *s);
struct val ntx__tpl_title(struct ntx__tpl *t, const struct str *s, bool words);
struct val ntx__tpl_capital(struct ntx__tpl *t, const struct str *s);
struct val ntx__tpl_lines(struct ntx__tpl *t, const struct str *s, bool keep_ends);
struct val ntx__tpl_escape(struct ntx__tpl *t, const struct str *s);

#endif
