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
    const json_t *frame[NEST + 1]; /* [depth] schemas that are being read, from the outermost */
    bool closest;                  /* what cannot be enforced is dropped */
    bool placed;                   /* the error says where */
    json_t *dropped;               /* [{keyword, at}] */
    uint64_t steps;                /* steps of work that grows faster than the text: copies, comparisons */
    uint32_t common[8];            /* rule + 1; 0: not made yet */
};

enum common { C_SPACE, C_CHAR, C_STRING, C_NUMBER, C_INTEGER, C_ANY, C_OBJECT, C_ARRAY };

node ntx__schema_value(struct tree *t, const json_t *schema);
node ntx__schema_common(struct tree *t, enum common which);
node ntx__schema_literal(struct tree *t, const json_t *value); /* the value's JSON text */
json_t *ntx__schema_keep(struct tree *t, json_t *made);        /* takes ownership; NULL: t has failed */
bool ntx__schema_step(struct tree *t, uint64_t n); /* counts work; false: t has failed, or exceeded the limit */
uint64_t ntx__schema_weigh(struct tree *t,
                           const json_t *v); /* approximate work of a comparison with v; counts as much itself */
bool ntx__schema_holds(const json_t *list, const json_t *v);       /* v is a value of the list */
json_t *ntx__schema_copy(struct tree *t, const json_t *v);         /* a shallow copy; NULL: t has failed */
const json_t *ntx__schema_target(struct tree *t, const char *ref); /* NULL: t has failed */
json_t *ntx__schema_without(struct tree *t, const json_t *schema, const char *key); /* a copy; NULL: t has failed */
bool ntx__schema_made(struct tree *t, const json_t *v);                             /* it is not part of the document */
/* The keyword cannot be enforced: true if it is to be left out, and is noted; else t fails, and says why. */
bool ntx__schema_drop(struct tree *t, const json_t *schema, const char *key, const char *why);
/* Likewise, after t has failed because of the keyword; the failure is undone. */
bool ntx__schema_forgive(struct tree *t, const json_t *schema, const char *key);
void ntx__schema_tell_place(struct tree *t);                     /* adds the place to an error, once */
bool ntx__schema_annotation(const char *key);                    /* the keyword is an annotation */
bool ntx__schema_says(const json_t *schema, const char *except); /* it has keywords besides annotations and
                                                                      `except` (or NULL) */
/* A keyword's number of characters, items or members, or `otherwise`. */
uint32_t ntx__schema_count(struct tree *t, const json_t *schema, const char *key, uint32_t otherwise);

/* ---- schema_rewrite.c: keywords in terms of others */
/* A schema that says the same, or less, without if, then, else, dependentRequired, dependentSchemas, dependencies, not,
 * $dynamicRef and keywords of older drafts. around: a schema that holds as well, or NULL. NULL: t has failed. */
const json_t *ntx__schema_rewrite(struct tree *t, const json_t *schema, const json_t *around);

/* ---- schema_merge.c */
const json_t *ntx__schema_both(struct tree *t, const json_t *a,
                               const json_t *b);                          /* valid where both are; NULL: t has failed */
bool ntx__schema_apart(struct tree *t, const json_t *a, const json_t *b); /* certainly no value is valid under both */

/* ---- schema_string.c: texts for which several things hold */
#define NTX__NOT_TEXTS "ntx: not these" /* a list of texts that a string is not; only in schemas that were made */
struct texts {
    struct dfa_part part[DFA_PARTS];
    size_t n;
};
void ntx__texts_add(struct tree *t, struct texts *x, node n, bool not );
void ntx__texts_pattern(struct tree *t, struct texts *x, const json_t *pattern);
void ntx__texts_schema(struct tree *t, struct texts *x, const json_t *schema);
node ntx__texts_literal(struct tree *t, const char *s, size_t len);
node ntx__texts_node(struct tree *t, struct texts *x); /* inside of a JSON string; 0: t has failed */

/* ---- schema_names.c */
/* The declared members, with those that are only required, and with what patternProperties and propertyNames say of
 * each. NULL: t has failed. */
const json_t *ntx__schema_declare(struct tree *t, const json_t *schema);
/* Other members, name and value, by patternProperties, and (open) those of no pattern, by more. 0: none is possible, or
 * t has failed. */
node ntx__schema_others(struct tree *t, const json_t *schema, const json_t *declared, const json_t *more, bool open);

/* ---- schema_set.c, schema_object.c, schema_string.c, schema_number.c */
node ntx__schema_set(struct tree *t, const json_t *items, uint32_t min, uint32_t max); /* 0: not of few values */
node ntx__schema_object(struct tree *t, const json_t *schema);
node ntx__schema_array(struct tree *t, const json_t *schema);
node ntx__schema_string(struct tree *t, const json_t *schema);
node ntx__schema_number(struct tree *t, const json_t *schema, bool integer);

#endif
