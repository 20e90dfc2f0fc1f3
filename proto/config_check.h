/* SPDX-License-Identifier: Apache-2.0 */
/* config_check.h: checks ntx.conf as `nginx -t` does: every key and value, the files that it names, and settings that
 * do not go together. Root checks files as the service's users; others check them as themselves. */
#ifndef NTX_PROTO_CONFIG_CHECK_H
#define NTX_PROTO_CONFIG_CHECK_H

#include "proto/config.h"

#define NTX_CONF_USER         "ntx" /* of the units: for [model] and [prefix] */
#define NTX_CONF_GATEWAY_USER "ntx-gateway"

/* Further checks of a program, by the user of [model] or of [gateway]. Errors go to ntx_config_refuse. */
struct ntx_config_checks {
    void (*model)(const struct ntx_config *c, struct ntx_config_errors *e);   /* or NULL */
    void (*gateway)(const struct ntx_config *c, struct ntx_config_errors *e); /* or NULL */
    bool homes_hidden; /* the units' ProtectHome counts: set where the check runs outside of the unit */
};

/* Prints each error to stderr as FILE:LINE: TEXT, or "FILE: ok" to stdout. Returns the number of errors. */
unsigned ntx_config_check(const char *path, const struct ntx_config_checks *checks);

#endif
