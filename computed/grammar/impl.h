/* SPDX-License-Identifier: Apache-2.0 */
/* impl.h: shared by the files of this folder.
 *
 *   tree.c     the tree that texts and schemas become
 *   text.c     grammar text -> tree
 *   schema.c   JSON schema -> tree: types, references, unions; schema_object.c, schema_string.c, schema_number.c;
 *              schema_merge.c: several schemas as one
 *   regex.c    regular expression (of a schema's pattern) -> tree
 *   dfa.c      several expressions that must match, or must not
 *   valid.c    whether a value is valid under a schema
 *   build.c    tree -> automaton; utf8.c: characters -> bytes
 *   check.c    checks of an automaton: it can end, and has no left recursion
 *   match.c    sets of stacks, and their transitions
 *   mask.c     sorted tokens; masks */
#ifndef NTX_COMPUTED_GRAMMAR_IMPL_H
#define NTX_COMPUTED_GRAMMAR_IMPL_H

#include "computed/grammar/grammar.h"

#define NO_LIMIT UINT32_MAX
#define NEST     200u /* nesting of parentheses, and of values in a schema */

/* ---- tree.c. After an error (err is set) nothing more is added, and results mean nothing. */

enum node_kind { N_EMPTY, N_NEVER, N_BYTES, N_CHARS, N_SEQ, N_ALT, N_REPEAT, N_RULE, N_UNTIL };

typedef uint32_t node;

struct tree_node {
    enum node_kind kind;
    uint32_t a, b, c; /* BYTES, UNTIL: offset and length in pool. CHARS: offset and number in ranges. SEQ, ALT: first
                         and last child. REPEAT: child, min, max. RULE: its index */
    node next;        /* next child of a list; 0: none */
};

struct range {
    uint32_t lo, hi; /* code points */
};

struct rule {
    char *name; /* NULL: an internal rule */
    node body;
    bool defined;
};

struct tree {
    struct tree_node *nodes; /* [n]; node 0 is NEVER, which is never part of a list */
    uint32_t n, room;
    char *pool;
    uint32_t n_pool, pool_room;
    struct range *ranges;
    uint32_t n_ranges, ranges_room;
    struct rule *rules;
    uint32_t n_rules, rules_room;
    uint32_t *rule_slots, n_rule_slots; /* hash table of names: rule + 1, or 0 */
    int failed;
    struct ntx_err *err;
    void *schema; /* data of schema.c, shared by all schemas of a text */
    bool closest; /* schemas are read as far as an automaton can enforce them */
};

int ntx__tree_init(struct tree *t, struct ntx_err *err);
void ntx__tree_free(struct tree *t);
node ntx__tree_fail(struct tree *t, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
node ntx__tree_bytes(struct tree *t, const char *p, size_t n);
node ntx__tree_text(struct tree *t, const char *text);
node ntx__tree_chars(struct tree *t, const struct range *r,
                     size_t n); /* ranges in any order, maybe overlapping; surrogates are left out */
node ntx__tree_until(struct tree *t, const char *mark, size_t n);
node ntx__tree_list(struct tree *t, enum node_kind kind);
void ntx__tree_add(struct tree *t, node list, node what);
node ntx__tree_of(struct tree *t, enum node_kind kind, const node *what, size_t n);
node ntx__tree_repeat(struct tree *t, node what, uint32_t min, uint32_t max);
node ntx__tree_rule(struct tree *t, uint32_t rule);
uint32_t ntx__tree_rule_new(struct tree *t, const char *name, size_t n);   /* name NULL: an internal rule */
uint32_t ntx__tree_rule_named(struct tree *t, const char *name, size_t n); /* existing, or new */
void ntx__tree_define(struct tree *t, uint32_t rule, node body);

#define SEQ(t, ...)                                                                                                    \
    ntx__tree_of(t, N_SEQ, (const node[]){__VA_ARGS__}, sizeof((const node[]){__VA_ARGS__}) / sizeof(node))
#define ALT(t, ...)                                                                                                    \
    ntx__tree_of(t, N_ALT, (const node[]){__VA_ARGS__}, sizeof((const node[]){__VA_ARGS__}) / sizeof(node))

/* ---- text.c, schema.c, regex.c */
int ntx__text_read(struct tree *t, const char *text, size_t len); /* reads all rules of a grammar */
node ntx__schema_read(struct tree *t, const char *json, size_t len,
                      size_t *took); /* reads a schema at the start of the text; took NULL: it must be the whole text */
void ntx__schema_free(struct tree *t);
struct regex_request {
    const char *text;
    size_t len;
    uint32_t min, max; /* limits of characters */
};
/* The inside of a JSON string in which the expression matches. REGEX_DFA: it takes its parts, and ntx__dfa. */
#define NTX__REGEX_DFA UINT32_MAX
node ntx__regex_read(struct tree *t, const struct regex_request *request);
node ntx__regex_json(struct tree *t, const struct range *r, size_t n); /* one of these characters, in a JSON string */
/* dfa.c: texts that match each part, or do not (not). Parts are trees of plain characters, without recursion. json:
 * as inside of a JSON string. 0: t has failed, or it would be too large. */
#define DFA_PARTS 40
struct dfa_part {
    node n;
    bool not ;
};
node ntx__dfa(struct tree *t, const struct dfa_part *part, size_t n, bool json);
/* The expression as parts, into out, which has room for so many; their number. 0: t has failed. */
size_t ntx__regex_parts(struct tree *t, const char *text, size_t len, struct dfa_part *out, size_t room);
/* An internal expression, anchored at both ends, outside of JSON strings. */
node ntx__regex_plain(struct tree *t, const char *text);
/* The same for anybody's expression, in valid UTF-8. 0: t has failed. */
node ntx__regex_whole(struct tree *t, const char *text, size_t len);

/* ---- the automaton */

enum state_kind { S_END, S_DEAD, S_BYTES, S_SPLIT, S_CALL };

struct state {
    enum state_kind kind;
    uint32_t x, next; /* BYTES: set x, then next. SPLIT: x or next. CALL: rule x (its first state, once built), then
                         next; next 0 (END): a tail call */
};

struct set {
    uint64_t bit[4];
};

static inline bool ntx__set_has(const struct set *s, unsigned byte) { return s->bit[byte >> 6] >> (byte & 63) & 1; }

struct ntx_grammar {
    struct state *states; /* [n]; 0: END, 1: DEAD */
    uint32_t n, room;
    struct set *sets;
    uint32_t n_sets, sets_room;
    uint32_t *set_slots;                /* [SET_SLOTS] hash table, while building */
    uint16_t *need;                     /* [n] least depth of calls to reach END; UINT16_MAX: unreachable */
    uint8_t class_of[256], sample[256]; /* classes of bytes that all sets treat alike; one byte of each class */
    uint32_t n_classes;
    uint32_t root, thinking; /* first states */
    size_t bytes;
};

int ntx__build(struct tree *t, struct ntx_grammar **out);
uint32_t ntx__build_bytes(struct ntx_grammar *g, const struct set *s, uint32_t next); /* in utf8.c, with build.c */
uint32_t ntx__build_state(struct ntx_grammar *g, enum state_kind kind, uint32_t x,
                          uint32_t next); /* 1 (DEAD): too many states */
uint32_t ntx__utf8_build(struct ntx_grammar *g, const struct range *r, uint32_t n, uint32_t next);
int ntx__check(struct ntx_grammar *g, const uint32_t *starts,
               struct ntx_err *err); /* computes need; refuses left recursion, and grammars without an end */

/* The value of a hexadecimal digit; -1: c is none. */
static inline int ntx__hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

#endif
