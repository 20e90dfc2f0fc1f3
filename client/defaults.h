/* SPDX-License-Identifier: Apache-2.0 */
/* defaults.h: a user's default model and options, from $XDG_CONFIG_HOME/ntx/ntx.conf (~/.config without it):
 *
 *   [model]              as in the service's /etc/ntx/ntx.conf; path may be a name of `ntx list`
 *   path = OWNER/REPO:Q4_K_M
 *   ram = 16G
 *   [options]            any option of `ntx run`, without its dashes
 *   temp = 0.6
 *
 * The command line overrides the file. If the file names no model, the service's model is the default; the service's
 * other keys do not apply. */
#ifndef NTX_CLIENT_DEFAULTS_H
#define NTX_CLIENT_DEFAULTS_H

#include "common/err.h"

#define NTX_DEFAULTS 32 /* keys at most */

struct ntx_defaults {
    const char *model; /* NULL: none */
};

/* Calls take for each key except [model] path. The values stay valid. */
int ntx_defaults_read(struct ntx_defaults *d,
                      int (*take)(void *arg, const char *section, const char *name, const char *value,
                                  struct ntx_err *err),
                      void *arg, struct ntx_err *err);

#endif
