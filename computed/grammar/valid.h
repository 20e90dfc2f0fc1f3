/* SPDX-License-Identifier: Apache-2.0 */
/* valid.h: the keywords of a schema that an automaton cannot enforce, and whether a JSON value is valid under a JSON
 * Schema (draft 2020-12, and the older keywords items as a list, additionalItems and dependencies). For answers whose
 * schema an automaton cannot enforce whole. References lead within the document; formats are those of schema_string.c.
 * Schemas and values are not trusted: work and depth are bounded. */
#ifndef NTX_COMPUTED_GRAMMAR_VALID_H
#define NTX_COMPUTED_GRAMMAR_VALID_H

#include <jansson.h>
#include <stdbool.h>

#include "common/err.h"

/* The keywords that an automaton cannot enforce, [{keyword, at}], at being a JSON pointer in the form #/a/b; an empty
 * list: all are enforced. strict: any of them is an error instead. -EINVAL, -E2BIG, -ENOMEM. */
int ntx_schema_look(const char *json, size_t len, bool strict, json_t **dropped, struct ntx_err *err);

enum ntx_valid {
    NTX_VALID_NO,
    NTX_VALID_YES,
    NTX_VALID_UNKNOWN
}; /* UNKNOWN: too much work, or a reference or a
                                                                      pattern that cannot be followed */

struct ntx_valid_why {
    char keyword[40]; /* that does not hold */
    char place[120];  /* JSON pointer of the part of the value that breaks it; "" is the whole value */
};

/* root: the document that references point into; schema: root, or a part of it. why may be NULL. */
enum ntx_valid ntx_valid(const json_t *root, const json_t *schema, const json_t *value, struct ntx_valid_why *why);
/* Likewise, within so many steps of work; *took: those that it took. */
enum ntx_valid ntx_valid_within(const json_t *root, const json_t *schema, const json_t *value, unsigned most,
                                unsigned *took);
/* The first schema in the document that has this key with this text ($anchor, $id), or NULL. */
const json_t *ntx_valid_named(const json_t *doc, const char *key, const char *text, unsigned depth);

#endif
