/* SPDX-License-Identifier: Apache-2.0 */
/* aliases.h: names that requests gave to known models (/api/copy, /api/create). They are in aliases.json, in the folder
 * of models of `ntx pull`: {"NAME": "PATH of the model"}. The file is read for each list, so that gateways share it.
 * Callers hold the lock of the list of models. */
#ifndef NTX_CLIENT_GATEWAY_ALIASES_H
#define NTX_CLIENT_GATEWAY_ALIASES_H

#include <jansson.h>
#include <stdbool.h>

#include "common/err.h"

/* Letters, digits and . _ - : /, and not more than a known model's name may have. */
bool ntx_alias_valid(const char *name);
/* Adds to each model of the list its aliases: to `names`, and as a list `aliases`. */
void ntx_aliases_add(json_t *models);
/* Gives a name to the model of this path, also in place of another one; path NULL: takes the name away, -ENOENT if
 * there is none. */
int ntx_aliases_set(const char *name, const char *path, struct ntx_err *err);
/* Takes all names of this path away. */
int ntx_aliases_drop(const char *path, struct ntx_err *err);

#endif
