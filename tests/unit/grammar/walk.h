/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h: a small vocabulary, random texts under masks, and a validator of JSON schemas that shares no code with the
 * product. */
#ifndef NTX_TESTS_UNIT_GRAMMAR_WALK_H
#define NTX_TESTS_UNIT_GRAMMAR_WALK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "computed/grammar/grammar.h"

uint64_t walk_random(uint64_t *state);

/* Tokens: all bytes, then pieces of JSON and words. */
struct ntx_tokens *walk_tokens(void);
uint32_t walk_vocabulary(void);
const char *walk_token(uint32_t id, size_t *len);

/* walk_printable: prefer printable ASCII; walk_marks: marks of tool calls are allowed while ending. */
extern bool walk_printable, walk_marks;

/* Draws a random text that the grammar accepts, malloc'd; after `patience` tokens it heads for the end. check:
 * compares masks with the effect of each token. */
char *walk_text(const struct ntx_grammar *g, uint64_t *seed, unsigned patience, bool check, size_t *len);

/* v is valid under the schema, which is `root` or in it. *why: a keyword that fails. */
bool valid(const json_t *root, const json_t *schema, const json_t *v, const char **why);

/* A random schema of what is supported. */
json_t *random_schema(uint64_t *seed);

/* Parameters of a tool as generators write them (shapes.c). */
json_t *tool_schema(uint64_t *seed);

#endif
