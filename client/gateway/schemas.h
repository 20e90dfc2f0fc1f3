/* SPDX-License-Identifier: Apache-2.0 */
/* schemas.h: schemas of a request that an automaton cannot enforce whole: which keywords are left out, and whether the
 * answer keeps to them all the same. */
#ifndef NTX_CLIENT_GATEWAY_SCHEMAS_H
#define NTX_CLIENT_GATEWAY_SCHEMAS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "client/gateway/fault.h"

struct ntx_unenforced {
    json_t *keywords; /* [{keyword, at, tool}], at being a JSON pointer in its schema; NULL: all are enforced */
    json_t *schemas;  /* {tool: schema}, "" being the answer's; those of `keywords` */
};

/* The handling of a schema that cannot be enforced whole. */
enum ntx_schema_use { NTX_SCHEMA_STRICT, NTX_SCHEMA_CLOSEST, NTX_SCHEMA_MAY_FAIL };
/* tool: its name, or NULL. 0, or -1 with f, which names the tool, the keyword and its place. */
int ntx_unenforced_look(struct ntx_unenforced *u, const json_t *schema, const char *tool, enum ntx_schema_use use,
                        const char *param, struct ntx_fault *f);
void ntx_unenforced_free(struct ntx_unenforced *u);
/* "uniqueItems at #/properties/s, ..." for a header, without the characters that end one. */
void ntx_unenforced_text(const struct ntx_unenforced *u, char *out, size_t room);

/* The result, over all of an answer's values. */
struct ntx_kept {
    bool unknown;   /* a value was cut short, or too much work to check */
    json_t *broken; /* [{keyword, at, tool}], at being a JSON pointer in the value; NULL: none */
};
void ntx_kept_value(struct ntx_kept *k, const struct ntx_unenforced *u, const char *tool, const json_t *value);
void ntx_kept_text(struct ntx_kept *k, const struct ntx_unenforced *u, const char *text, size_t len);
/* Adds unenforced, kept (true, false or null) and broken to the member `ntx` of an answer. */
void ntx_kept_add(const struct ntx_kept *k, const struct ntx_unenforced *u, json_t *ntx);

#endif
