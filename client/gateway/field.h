/* SPDX-License-Identifier: Apache-2.0 */
/* field.h: the fields of request bodies. One table (fields.c) says for each its type and how it is handled, one walk
 * checks a body against the table, and `ntx-gateway --fields` prints the table: docs/http-fields.md is that text.
 *
 *   honoured      it changes the answer, or its form
 *   no effect     a label, or advice on loading and caching: it cannot change the answer
 *   not followed  it asks for something that ntx lacks and an answer can do without: the answer says so (ntx_ignored)
 *   refused       it asks for something that ntx lacks and that would change the answer: 400, with its name */
#ifndef NTX_CLIENT_GATEWAY_FIELD_H
#define NTX_CLIENT_GATEWAY_FIELD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/gateway/fault.h"

/* Objects that have fields: bodies of requests, and the objects within them. */
enum ntx_fields {
    NTX_FIELDS_CHAT,
    NTX_FIELDS_TEXT,
    NTX_FIELDS_RESPONSES,
    NTX_FIELDS_EMBEDDINGS,
    NTX_FIELDS_MESSAGES,
    NTX_FIELDS_COUNT,
    NTX_FIELDS_OLLAMA_CHAT,
    NTX_FIELDS_OLLAMA_TEXT,
    NTX_FIELDS_OLLAMA_EMBED,
    NTX_FIELDS_OLLAMA_EMBEDDINGS,
    NTX_FIELDS_OLLAMA_SHOW,
    NTX_FIELDS_OLLAMA_PULL,
    NTX_FIELDS_OLLAMA_DELETE,
    NTX_FIELDS_OLLAMA_CREATE,
    NTX_FIELDS_OLLAMA_COPY,
    NTX_FIELDS_INFILL,
    NTX_FIELDS_COMPLETION,
    NTX_FIELDS_TOKENIZE,
    NTX_FIELDS_DETOKENIZE,
    NTX_FIELDS_OPTIONS,
    NTX_FIELDS_STREAM_OPTIONS,
    NTX_FIELDS_STRUCTURED,
    NTX_FIELDS_CHAT_MESSAGE,
    NTX_FIELDS_CHAT_CALL,
    NTX_FIELDS_CLAUDE_MESSAGE,
    NTX_FIELDS_PART,
    NTX_FIELDS_IMAGE_URL,
    NTX_FIELDS_IMAGE_SOURCE,
    NTX_FIELDS_ITEM,
    NTX_FIELDS_TOOL,
    NTX_FIELDS_FUNCTION,
    NTX_FIELDS_RESPONSE_TOOL,
    NTX_FIELDS_CLAUDE_TOOL,
    NTX_FIELDS_FORMAT,
    NTX_FIELDS_SCHEMA,
    NTX_FIELDS_TEXT_CONFIG,
    NTX_FIELDS_TEXT_FORMAT,
    NTX_FIELDS_REASONING,
    NTX_FIELDS_THINKING,
    NTX_FIELDS_OUTPUT_CONFIG,
    NTX_FIELDS_OUTPUT_FORMAT,
    NTX_N_FIELDS
};

enum ntx_field_kind {
    NTX_FIELD_READ,   /* honoured; its own function reads it */
    NTX_FIELD_BOOL,   /* honoured: bool */
    NTX_FIELD_COUNT,  /* honoured: uint32_t from least to most */
    NTX_FIELD_LIMIT,  /* honoured: the same, or -1, which becomes 0: no limit */
    NTX_FIELD_REAL,   /* honoured: float from least to most */
    NTX_FIELD_SEED,   /* honoured: uint64_t, any integer */
    NTX_FIELD_LABEL,  /* no effect */
    NTX_FIELD_HINT,   /* not followed, unless it has a neutral value */
    NTX_FIELD_ABSENT, /* refused, unless it has a neutral value: null, false, the number `least`, "", [], {}; with -1
                       * as `least` also 0; with 1 true in place of false */
};

struct ntx_field {
    uint64_t of; /* 1 << each of the objects that have it */
    const char *name;
    enum ntx_field_kind kind;
    size_t at; /* offset in the struct that is filled */
    double least, most;
    const char *type; /* in words, where the kind does not say it */
    const char *note; /* what it does, or why it does nothing; or NULL */
};
extern const struct ntx_field ntx_field_table[]; /* ended by a NULL name */

struct ntx_fields_info {
    const char *title;  /* for the documentation: the path, or the place of the object */
    const char *within; /* the member that holds the object; "" for a body */
    bool strict;        /* a field that the table lacks is refused if it resembles one; others are reported */
};
extern const struct ntx_fields_info ntx_fields_info[NTX_N_FIELDS];

/* Names of fields that are not followed, each once, with ", " between them: "verbosity, messages.annotations". Only
 * characters that a header may have. */
struct ntx_ignored {
    unsigned n;
    char text[480];
};
void ntx_ignored_add(struct ntx_ignored *g, const char *within, const char *name);
/* {"ignored": ["verbosity"], "note": "..."}, with the members that are not empty. */
json_t *ntx_ignored_json(const struct ntx_ignored *g, const char *note);

/* Checks an object and writes into to, which may be NULL where no kind writes. 0, or -1 with f. */
int ntx_fields_read(enum ntx_fields of, const json_t *body, void *to, struct ntx_ignored *g, struct ntx_fault *f);
void ntx_fields_print(FILE *out); /* the table, as Markdown */

#endif
