/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.h: constrained answers: a grammar or a JSON schema becomes an automaton over bytes, and that a mask over
 * the vocabulary.
 *
 *   text ---------> tree ---> automaton (immutable)      tokens (a vocabulary's bytes, sorted; immutable)
 *   JSON schema --^                    \                /
 *                                       match: state of one answer ---> mask of the tokens that may come next
 *
 * A grammar is a list of rules; `root` is the answer:
 *
 *   root   ::= "answer: " number ("," number)*      # a comment
 *   number ::= [0-9]+ | "-" number
 *
 * "text" with the escapes \n \r \t \\ \" \xHH \uHHHH \UHHHHHHHH; [a-z], [^a-z] and . (any character); ( ) | * + ?
 * {m} {m,} {m,n}; and, beyond GBNF:
 *
 *   ~"mark"        any text in which the mark does not occur
 *   @"mark"        the text, or the vocabulary's control token of that name; control tokens come in no other way
 *   @@"mark"       the control token alone
 *   %json {...}    a JSON text that is valid under the schema (schema.c lists the supported keywords; the rest is
 *                  refused by name)
 *   %closest {...} likewise, but keywords that are not supported are left out (valid.h: ntx_schema_look names them)
 *   %regex "..."   a text that the regular expression matches as a whole (regex.c lists what is supported; the rest is
 *                  refused by name); backslashes are doubled, as in any text here
 *   thinking ::=   the answer, instead of root, if the model's template has opened a reasoning block
 *
 * Left recursion is refused; other recursion is allowed. Every answer can end: rules that cannot end are left out,
 * and no nesting begins that would exceed NTX_GRAMMAR_DEPTH. Texts are not trusted: size, states, steps and memory
 * are bounded, and an excess is an error of one line.
 *
 * A mask is found by walking the sorted tokens, byte by byte, over sets of stacks whose transitions are cached (a
 * lazy deterministic automaton). Masks are cached, too. For states where any plain text may follow (inside a JSON
 * string) a mask of all plain tokens exists from the start. */
#ifndef NTX_COMPUTED_GRAMMAR_GRAMMAR_H
#define NTX_COMPUTED_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_GRAMMAR_TEXT    (256u << 10) /* most bytes of a grammar's text */
#define NTX_GRAMMAR_DEPTH   256u         /* nested rules */
#define NTX_GRAMMAR_CONTROL '\xff'       /* precedes the name of a control token; no text contains this byte */

struct ntx_grammar;
/* Compiles a grammar, or a schema. The result is immutable; threads may share it. -EINVAL: err says what is wrong or
 * not supported; -E2BIG; -ENOMEM. */
int ntx_grammar_compile(const char *text, size_t len, struct ntx_grammar **out, struct ntx_err *err);
int ntx_grammar_of_schema(const char *json, size_t len, struct ntx_grammar **out, struct ntx_err *err);
void ntx_grammar_free(struct ntx_grammar *g);
size_t ntx_grammar_bytes(const struct ntx_grammar *g);

/* The sorted vocabulary. bytes: writes a token's text into buf and returns its length; 0: the token never comes.
 * Control tokens begin with NTX_GRAMMAR_CONTROL. */
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
/* Sets the bound of ntx_masks_bytes, 0 at first. Beyond it, masks whose last use is longest ago are freed. */
void ntx_masks_allow(struct ntx_masks *k, size_t bytes);
void ntx_masks_forget(struct ntx_masks *k, const struct ntx_grammar *g); /* before g is freed; no match of it is left */
uint64_t ntx_masks_computed(struct ntx_masks *k);                        /* masks computed since it was made */

struct ntx_match_config {
    const struct ntx_grammar *grammar; /* borrowed */
    const struct ntx_tokens *tokens;   /* borrowed; NULL: no masks */
    struct ntx_masks *masks;           /* borrowed, of these tokens alone; NULL: masks are kept for this answer alone */
    size_t memory;                     /* bytes that it may take, grammar and tokens not counted; at least 256 KiB */
    bool thinking;                     /* the answer begins in a thought */
};

/* The state of one answer. Not thread-safe. */
struct ntx_match;
int ntx_match_new(const struct ntx_match_config *c, struct ntx_match **out);
void ntx_match_free(struct ntx_match *m);
size_t ntx_match_bytes(const struct ntx_match *m);
void ntx_match_rest(struct ntx_match *m); /* frees all that can be recomputed; without memory for that, nothing
                                             changes */

/* Computes the mask: bit i % 32 of word i / 32 is token i; valid until the next call. lead: the next token's leading
 * space is not shown and does not count. *none: no token may come (the answer must end, or is stuck). -E2BIG: the
 * grammar exceeds the memory or work limit here; -ENOMEM. */
int ntx_match_mask(struct ntx_match *m, bool lead, const uint32_t **mask, bool *none);
/* Appends bytes to the answer. -EINVAL: they may not come here, and m is unchanged; -E2BIG, -ENOMEM. */
int ntx_match_take(struct ntx_match *m, const char *bytes, size_t n);
bool ntx_match_may_end(const struct ntx_match *m);
bool ntx_match_must_end(struct ntx_match *m); /* it may end, and no byte may follow */

#endif
