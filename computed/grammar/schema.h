/* SPDX-License-Identifier: Apache-2.0 */
/* schema.h: shared by the schema files; no other file includes it. A schema is a json_t that is kept until the tree
 * is complete; nodes are those of impl.h. */
#ifndef NTX_COMPUTED_GRAMMAR_SCHEMA_H
#define NTX_COMPUTED_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "computed/grammar/impl.h"

struct schemas {
    json_t *doc;  /* the document that references point into */
    json_t *kept; /* owns all values that were made or read */
    struct seen {
        const json_t *at;
        uint32_t rule;
    } * seen; /* [n] schemas that have a rule */
    unsigned n, room, depth;
    uint64_t steps;     /* steps of work that grows faster than the text: copies, comparisons */
    uint32_t common[8]; /* rule + 1; 0: not made yet */
};

enum common { C_SPACE, C_CHAR, C_STRING, C_NUMBER, C_INTEGER, C_ANY, C_OBJECT, C_ARRAY };

node ntx__schema_value(struct tree *t, const json_t *schema);
node ntx__schema_common(struct tree *t, enum common which);
node ntx__schema_literal(struct tree *t, const json_t *value); /* the value's JSON text */
json_t *ntx__schema_keep(struct tree *t, json_t *made);        /* takes ownership; NULL: t has failed */
bool ntx__schema_step(struct tree *t, uint64_t n); /* counts work; false: t has failed, or exceeded the limit */
uint64_t ntx__schema_weigh(struct tree *t,
                           const json_t *v); /* approximate work of a comparison with v; counts as much itself */
json_t *ntx__schema_copy(struct tree *t, const json_t *v);         /* a shallow copy; NULL: t has failed */
const json_t *ntx__schema_target(struct tree *t, const char *ref); /* NULL: t has failed */
bool ntx__schema_annotation(const char *key);                      /* the keyword is an annotation */
bool ntx__schema_says(const json_t *schema, const char *except);   /* it has keywords besides annotations and
                                                                      `except` (or NULL) */
/* A keyword's number of characters, items or members, or `otherwise`. */
uint32_t ntx__schema_count(struct tree *t, const json_t *schema, const char *key, uint32_t otherwise);

/* ---- schema_merge.c */
const json_t *ntx__schema_both(struct tree *t, const json_t *a,
                               const json_t *b);                          /* valid where both are; NULL: t has failed */
bool ntx__schema_apart(struct tree *t, const json_t *a, const json_t *b); /* certainly no value is valid under both */

/* ---- schema_object.c, schema_string.c, schema_number.c */
node ntx__schema_object(struct tree *t, const json_t *schema);
node ntx__schema_array(struct tree *t, const json_t *schema);
node ntx__schema_string(struct tree *t, const json_t *schema);
node ntx__schema_number(struct tree *t, const json_t *schema, bool integer);

#endif
