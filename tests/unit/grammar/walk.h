/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h: a small vocabulary, texts drawn at random under masks, and a validator of JSON schemas that shares nothing
 * with the product's. */
#ifndef NTX_TESTS_UNIT_GRAMMAR_WALK_H
#define NTX_TESTS_UNIT_GRAMMAR_WALK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "computed/grammar/grammar.h"

uint64_t walk_random(uint64_t *state);

/* All bytes, then pieces of JSON, words, and what is drawn at random. */
struct ntx_tokens *walk_tokens(void);
uint32_t walk_vocabulary(void);
const char *walk_token(uint32_t id, size_t *len);

/* Set: what is drawn is printable ASCII where it can be; on its way to the end marks of tool calls come, too. */
extern bool walk_printable, walk_marks;

/* Draws a text that the grammar holds for, malloc'd; after `patience` tokens it makes for the end. check: masks are
 * compared with what each token does. */
char *walk_text(const struct ntx_grammar *g, uint64_t *seed, unsigned patience, bool check, size_t *len);

/* Whether v is valid under the schema, which is at `root` or in it. *why: a keyword that does not hold. */
bool valid(const json_t *root, const json_t *schema, const json_t *v, const char **why);

/* A random schema of what is supported. */
json_t *random_schema(uint64_t *seed);

#endif
