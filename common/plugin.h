/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h: opens a plug-in of ntx (for a GPU, MPI) when it is needed: the file that an environment variable names,
 * else the one beside the program, else the one in ../lib/ntx of it, else the loader's. */
#ifndef NTX_COMMON_PLUGIN_H
#define NTX_COMMON_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

/* *fn: the address of `symbol`. global: libraries opened later see its symbols. -ENODEV with the loader's message. path
 * [n]: where it was found. */
int ntx_plugin_open(const char *library, const char *variable, const char *symbol, bool global, char *path, size_t n,
                    void **handle, void **fn, struct ntx_err *err);

#endif
