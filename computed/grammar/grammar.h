/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.h: what an answer must be like: a grammar, or a JSON schema, becomes an automaton over bytes, and that a mask
 * over the vocabulary.
 *
 *   text ---------> tree ---> automaton (immutable)      tokens (a vocabulary's bytes, sorted; immutable)
 *   JSON schema --^                    \                /
 *                                       match: where one answer is ---> mask of the tokens that may come next
 *
 * A grammar is rules, of which `root` is the answer:
 *
 *   root   ::= "answer: " number ("," number)*      # a comment
 *   number ::= [0-9]+ | "-" number
 *
 * "text" with the escapes \n \r \t \\ \" \xHH \uHHHH \UHHHHHHHH; [a-z], [^a-z] and . (any character); ( ) | * + ? {m}
 * {m,} {m,n}; and, beyond GBNF:
 *
 *   ~"mark"        any text in which the mark does not occur
 *   @"mark"        the text, or the vocabulary's control token of that name: control tokens come in no other way
 *   @@"mark"       the control token alone
 *   %json {...}    a JSON text that the schema holds for (schema.c says which of JSON Schema is there; the rest is
 *                  refused by name)
 *   thinking ::=   if the grammar has such a rule, the answer of a model whose template has opened a thought; else that
 *                  is root, too
 *
 * Recursion may be any but to the left. What comes out has an end always: rules that cannot end are left out, and no
 * nesting is begun that would go beyond NTX_GRAMMAR_DEPTH. Texts are anybody's: size, states, steps and memory are
 * bounded, and what goes beyond is an error in one line.
 *
 * A mask is found by walking the sorted tokens, byte by byte, over sets of stacks whose transitions are kept (a
 * deterministic automaton made as it is needed). Masks are kept, too; and of states in which any plain text may go on
 * (a JSON string) a mask of all plain tokens is there from the start. */
#ifndef NTX_COMPUTED_GRAMMAR_GRAMMAR_H
#define NTX_COMPUTED_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_GRAMMAR_TEXT    (256u << 10) /* bytes of a grammar's text at most */
#define NTX_GRAMMAR_DEPTH   256u         /* rules within each other */
#define NTX_GRAMMAR_CONTROL '\xff'       /* before the name of a control token: no text has this byte */

struct ntx_grammar;
/* Immutable; any thread. -EINVAL: err says what of the text is wrong, or not possible; -E2BIG; -ENOMEM. */
int ntx_grammar_compile(const char *text, size_t len, struct ntx_grammar **out, struct ntx_err *err);
int ntx_grammar_of_schema(const char *json, size_t len, struct ntx_grammar **out, struct ntx_err *err);
void ntx_grammar_free(struct ntx_grammar *g);
size_t ntx_grammar_bytes(const struct ntx_grammar *g);

/* The vocabulary. bytes: the token's text into buf, its length; 0: it never comes. Control tokens begin with
 * NTX_GRAMMAR_CONTROL. */
struct ntx_tokens;
typedef int ntx_token_bytes_fn(void *ctx, int32_t id, char *buf, size_t room);
int ntx_tokens_new(uint32_t n, ntx_token_bytes_fn *bytes, void *ctx, struct ntx_tokens **out);
void ntx_tokens_free(struct ntx_tokens *t);
size_t ntx_tokens_bytes(const struct ntx_tokens *t);

/* Masks that were computed for an answer, kept for all answers of the same grammar and vocabulary: each is computed
 * once, as long as its memory is not wanted. Any thread. A mask that a match has counts in ntx_match_bytes; one that
 * none has counts here. */
struct ntx_masks;
int ntx_masks_new(struct ntx_masks **out);
void ntx_masks_free(struct ntx_masks *k); /* when no match has any; NULL is fine */
size_t ntx_masks_bytes(struct ntx_masks *k);
void ntx_masks_allow(struct ntx_masks *k,
                     size_t bytes); /* ntx_masks_bytes stays within this, those stay that were used last; 0 at first */
void ntx_masks_forget(struct ntx_masks *k, const struct ntx_grammar *g); /* before g is freed; no match of it is left */
uint64_t ntx_masks_computed(struct ntx_masks *k);                        /* masks computed since it was made */

struct ntx_match_config {
    const struct ntx_grammar *grammar; /* borrowed */
    const struct ntx_tokens *tokens;   /* borrowed; NULL: no masks */
    struct ntx_masks *masks;           /* borrowed, of these tokens alone; NULL: masks are kept for this answer alone */
    size_t memory;                     /* bytes that it may take, grammar and tokens not counted; at least 256 KiB */
    bool thinking;                     /* the answer begins in a thought */
};

/* One answer. Its caller's thread. */
struct ntx_match;
int ntx_match_new(const struct ntx_match_config *c, struct ntx_match **out);
void ntx_match_free(struct ntx_match *m);
size_t ntx_match_bytes(const struct ntx_match *m);
void ntx_match_rest(struct ntx_match *m); /* lets go of all that can be made anew; where there is no memory for that, it
                                             stays as it is */

/* mask: bit i % 32 of word i / 32 is token i; good until the next call. lead: a space with which the next token begins
 * is not shown, and does not count. *none: no token may come (the answer must end, or cannot go on). -E2BIG: the
 * grammar takes more memory or more work here than it may; -ENOMEM. */
int ntx_match_mask(struct ntx_match *m, bool lead, const uint32_t **mask, bool *none);
/* The answer goes on with these bytes. -EINVAL: it may not, and m is as it was; -E2BIG, -ENOMEM. */
int ntx_match_take(struct ntx_match *m, const char *bytes, size_t n);
bool ntx_match_may_end(const struct ntx_match *m);
bool ntx_match_must_end(struct ntx_match *m); /* it may end, and no byte may come */

#endif
