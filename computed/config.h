/* SPDX-License-Identifier: Apache-2.0 */
/* config.h: ntx.conf, the configuration of the service by its administrator. Read at start, before there are threads.
 *
 *     [model]    path also, and the settings of a load that proto/settings_load.c assigns to it
 *     [links]    settings of a load
 *     [clients]  max per_user idle stall admin share queue_wait stop_grace
 *     [prefix]   file, and settings of a load: state state_max kv_ram
 *     [metrics]  listen
 *
 * INI: "key = value"; comments begin with '#' or ';' at the start of a line, or with " ;" after a value. Every key may
 * be left out. deploy/ntx.conf has all keys with their defaults and explanations, as `ntx-computed --print-config`
 * writes it. An unknown section or key, a repeated key and a value out of range are refused with file, line and remedy:
 * a misspelt limit must not silently become no limit. */
#ifndef NTX_COMPUTED_CONFIG_H
#define NTX_COMPUTED_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"
#include "proto/settings.h"

struct ntx_config {
    /* [model] and [links]: zero or "" leaves the value to the load */
    struct ntx_load_settings load;
    const char *model; /* absolute path of the GGUF to load at start, "" for none */
    const char *also;  /* the same model on another drive, "" for none */

    /* [clients] */
    uint32_t max_clients;   /* connections at once */
    uint32_t max_per_user;  /* most of them for one user; 0: three quarters */
    uint32_t idle_ms;       /* after which one with a conversation counts as idle */
    uint32_t stall_ms;      /* time for a client to complete a request, and to take replies */
    const char *admin;      /* "owner" or "group": may stop the service and load with more than `ram` */
    const char *share;      /* "user" or "all": share prefixes of texts */
    bool queue_wait;        /* a request without memory waits; else it is refused */
    uint32_t stop_grace_ms; /* time for running answers after SIGTERM or `ntx stop` */

    const char *prefix_file; /* [prefix]: file with the warm prefix, "" for none */

    /* [metrics]: read by ntx-metrics itself; here so that the key is known */
    const char *metrics_listen;
    /* [gateway]: read by ntx-gateway, in the same way */
    const char *gateway_listen, *gateway_key, *gateway_cors, *gateway_hosts;
    bool gateway_stable;
    uint32_t gateway_stall_ms;

    struct ntx_config_text *texts; /* values from the file */
};

void ntx_config_defaults(struct ntx_config *c);

/* Most memory of the three daemons: ram, the processes' own, and the kernel's for them. 0: no limit, since ram has
 * none. */
uint64_t ntx_config_memory_max(const struct ntx_config *c);

/* Sets defaults, then reads the file. -errno if it cannot be opened, -EINVAL for its content. c is unchanged on an
 * error. */
int ntx_config_load(const char *path, struct ntx_config *c, struct ntx_err *err);
void ntx_config_free(struct ntx_config *c); /* frees its texts */

/* Prints the file with every key as a comment, its default and meaning: deploy/ntx.conf, which a test keeps equal. */
void ntx_config_print(FILE *to);

#endif
