/* SPDX-License-Identifier: Apache-2.0 */
/* names.h: short names of models: "qwen3-8b" is a repository of the hub. A table has the most wanted models of the
 * architectures that ntx runs. The user's file ($XDG_CONFIG_HOME/ntx/models.ini, ~/.config without it) adds names and
 * goes before the table:
 *
 *   [models]
 *   mine = OWNER/REPO            or OWNER/REPO:TYPE, or the URL of a GGUF
 *   qwen3-8b = other/Qwen3-8B-GGUF */
#ifndef NTX_CLIENT_PULL_NAMES_H
#define NTX_CLIENT_PULL_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

struct ntx_names;

/* -EINVAL: the file has a line that is no name, or names no model; err says which. */
int ntx_names_open(struct ntx_names **out, struct ntx_err *err);
void ntx_names_free(struct ntx_names *n);

/* The meaning of a name, whose case does not matter. NULL: it is no short name. */
const char *ntx_names_find(const struct ntx_names *n, const char *name);
/* The name that was perhaps meant, or NULL. */
const char *ntx_names_nearest(const struct ntx_names *n, const char *name);
/* The i-th, the user's first; NULL after the last. own: it is of the user's file. */
const char *ntx_names_at(const struct ntx_names *n, size_t i, const char **means, bool *own);

#endif
