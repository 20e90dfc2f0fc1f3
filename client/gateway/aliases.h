/* SPDX-License-Identifier: Apache-2.0 */
/* aliases.h: names that requests gave to known models (/api/copy, /api/create). They are in aliases.json, in the folder
 * of models of `ntx pull`: {"NAME": "PATH of the model"}, or {"NAME": {"path": PATH, "system": TEXT, "parameters":
 * {...}}} for one with defaults of its own. The file is read for each list, so that gateways share it. Callers hold the
 * lock of the list of models. */
#ifndef NTX_CLIENT_GATEWAY_ALIASES_H
#define NTX_CLIENT_GATEWAY_ALIASES_H

#include <jansson.h>
#include <stdbool.h>

#include "common/err.h"

/* Letters, digits and . _ - : /, and not more than a known model's name may have. */
bool ntx_alias_valid(const char *name);
/* Adds to each model of the list its aliases: to `names`, as a list `aliases`, and the defaults of those that have some
 * as an object `made` {NAME: {system, parameters}}. */
void ntx_aliases_add(json_t *models);
/* Gives a name to the model of this path, also in place of another one; made: its defaults, or NULL. path NULL: takes
 * the name away, -ENOENT if there is none. */
int ntx_aliases_set(const char *name, const char *path, const json_t *made, struct ntx_err *err);
/* The defaults of the model that has this alias, borrowed from the list; NULL: none. */
const json_t *ntx_aliases_made(const json_t *models, const char *name);
/* Takes all names of this path away. */
int ntx_aliases_drop(const char *path, struct ntx_err *err);

#endif
