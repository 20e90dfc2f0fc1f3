/* SPDX-License-Identifier: Apache-2.0 */
/* http_conf.h: the settings of the programs that serve HTTP: origins and names, and the check of [gateway] and
 * [metrics] in ntx.conf. */
#ifndef NTX_CLIENT_HTTP_CONF_H
#define NTX_CLIENT_HTTP_CONF_H

#include <stdbool.h>
#include <stdint.h>

#include "client/keep.h"
#include "common/err.h"
#include "proto/config_check.h"

#define NTX_HTTP_CORS     16u
#define NTX_HTTP_HOSTS    16u

#define NTX_GATEWAY_WHERE "127.0.0.1:8080" /* examples of addresses */
#define NTX_METRICS_WHERE "127.0.0.1:9464"

/* Splits text in place into origins ("https://example.org", "*") or names of hosts ("example.org"), with blanks or
 * commas between them. -EINVAL: too many, or one is wrong. */
int ntx_origins_split(char *text, const char *to[NTX_HTTP_CORS], unsigned *n, struct ntx_err *err);
/* Patterns of hosts (client/pull/fence.h). */
int ntx_image_hosts_split(char *text, const char *to[NTX_HTTP_HOSTS], unsigned *n, struct ntx_err *err);
int ntx_hosts_split(char *text, const char *to[NTX_HTTP_HOSTS], unsigned *n, struct ntx_err *err);

/* --manage yes without --manage-key-file, where other machines reach the address. */
extern const char ntx_manage_refusal[];

/* Checks [gateway] and [metrics], for ntx_config_check. */
void ntx_http_conf_check(const struct ntx_config *c, struct ntx_config_errors *e);

#endif
