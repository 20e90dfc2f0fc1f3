/* SPDX-License-Identifier: Apache-2.0 */
/* config.h: ntx.conf, what the service's administrator decides once. Read at start, before there are threads.
 *
 *     [model]    path also, and the settings of a load that proto/settings_load.c says belong here
 *     [links]    the same
 *     [clients]  max per_user idle stall admin share queue_wait stop_grace
 *     [prefix]   file, and the settings of a load that belong here: state state_max kv_ram
 *     [metrics]  listen
 *
 * INI: "key = value", comments begin with '#' or ';' at the start of a line or with " ;" behind a value. Every key may
 * be left out. deploy/ntx.conf holds all of them with their defaults and is the manual for people: `ntx-computed
 * --print-config` wrote it. An unknown section or key, a key given twice and a value out of range are refused with
 * file, line and what would be right: a misspelt limit must not silently become no limit. */
#ifndef NTX_COMPUTED_CONFIG_H
#define NTX_COMPUTED_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"
#include "proto/settings.h"

struct ntx_config {
    /* [model] and [links]: zero or "" leaves the choice to the load */
    struct ntx_load_settings load;
    const char *model; /* absolute path of the GGUF to load at start, "" for none */
    const char *also;  /* the same model on another drive, "" for none */

    /* [clients] */
    uint32_t max_clients;   /* connections at once */
    uint32_t max_per_user;  /* of these; 0: three quarters of them */
    uint32_t idle_ms;       /* after which one with a conversation may have to make room */
    uint32_t stall_ms;      /* for a request to come as a whole, and for a reply to be taken */
    const char *admin;      /* "owner" or "group": who may stop the service and load with more than `ram` */
    const char *share;      /* "user" or "all": whose prefixes a client's text may go on from */
    bool queue_wait;        /* a request that memory has no room for waits; else it is refused */
    uint32_t stop_grace_ms; /* how long running answers may take after SIGTERM or `ntx stop` */

    const char *prefix_file; /* [prefix]: a text that conversations begin with, "" for none */

    /* [metrics]: read by ntx-metrics itself; here so that the key is known */
    const char *metrics_listen;
    /* [gateway]: read by ntx-gateway, in the same way */
    const char *gateway_listen, *gateway_key, *gateway_cors, *gateway_hosts;
    uint32_t gateway_stall_ms;

    struct ntx_config_text *texts; /* that the file gave */
};

void ntx_config_defaults(struct ntx_config *c);

/* What the three daemons may take together: ram, what processes add to it, and what the kernel keeps for them. 0: no
 * limit, since ram is none. */
uint64_t ntx_config_memory_max(const struct ntx_config *c);

/* Defaults, then the file. -errno of opening it, -EINVAL for what is in it. c is untouched on failure. */
int ntx_config_load(const char *path, struct ntx_config *c, struct ntx_err *err);
void ntx_config_free(struct ntx_config *c); /* its texts */

/* The file with every key as a comment, its default and what it means: deploy/ntx.conf, which a test keeps the same. */
void ntx_config_print(FILE *to);

#endif
