/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h: a library of the house that is opened when it is wanted (a GPU's, MPI's): the file that a variable of the
 * environment names, else the one beside the program, else in ../lib/ntx of it, else where the loader looks. */
#ifndef NTX_COMMON_PLUGIN_H
#define NTX_COMMON_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

/* *fn: what `symbol` is. global: its own libraries see its symbols. -ENODEV with the loader's words. path [n]: where it
 * was found. */
int ntx_plugin_open(const char *library, const char *variable, const char *symbol, bool global, char *path, size_t n,
                    void **handle, void **fn, struct ntx_err *err);

#endif
