/* SPDX-License-Identifier: Apache-2.0 */
/* config.h: ntx.conf, the configuration of the service by its administrator. Read at start, before there are threads.
 *
 *     [model]    path also models at_once, and the settings of a load that proto/settings_load.c assigns to it
 *     [links]    settings of a load
 *     [clients]  max per_user idle stall admin share queue_wait stop_grace; of a load: max_gap
 *     [prefix]   file, and settings of a load: state state_max kv_ram
 *     [metrics]  listen
 *     [gateway]  listen api_key_file cors hosts stall keep_alive
 *
 * INI: "key = value"; comments begin with '#' or ';' at the start of a line, or with " ;" after a value. Every key may
 * be left out. deploy/ntx.conf has all keys with their defaults and explanations, as `ntx-computed --print-config`
 * writes it. An unknown section or key, a repeated key and a value out of range are refused with file, line and remedy:
 * a misspelt limit must not silently become no limit. */
#ifndef NTX_PROTO_CONFIG_H
#define NTX_PROTO_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"
#include "proto/settings.h"

#define NTX_CONF_FILE     "/etc/ntx/ntx.conf" /* the service's */
#define NTX_CONF_SECTIONS "[model], [links], [clients], [prefix], [metrics] and [gateway]"
#define NTX_CONF_KEYS     96 /* more than there are */

struct ntx_config {
    /* [model] and [links]: zero or "" leaves the value to the load */
    struct ntx_load_settings load;
    const char *model;  /* absolute path of the GGUF to load at start, "" for none */
    const char *also;   /* the same model on another drive, "" for none */
    const char *models; /* models that requests may name, "" for none */
    uint32_t at_once;   /* of these, loaded at a time */

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
    const char *gateway_listen, *gateway_key, *gateway_cors, *gateway_hosts, *gateway_keep, *gateway_image_hosts;
    bool gateway_stable;
    uint32_t gateway_stall_ms;

    unsigned lines[NTX_CONF_KEYS]; /* where each key (ntx_config_key) was set; 0: it was not */
    struct ntx_config_text *texts; /* values from the file */
};

/* Key i: first the settings of a load in their order, then the others; those without a section are no keys. NULL: there
 * are no more. *to: the part of c that it goes to. */
const struct ntx_setting *ntx_config_key(unsigned i, struct ntx_config *c, void **to);

void ntx_config_defaults(struct ntx_config *c);

/* Most memory of the three daemons: ram, the processes' own, and the kernel's for them. 0: no limit, since ram has
 * none. */
uint64_t ntx_config_memory_max(const struct ntx_config *c);

/* Sets defaults, then reads the file. -errno if it cannot be opened, -EINVAL for its content. c is unchanged on an
 * error. */
int ntx_config_load(const char *path, struct ntx_config *c, struct ntx_err *err);
void ntx_config_free(struct ntx_config *c); /* frees its texts */

/* Errors of a file, each of which `say` gets as "FILE:LINE: TEXT". */
struct ntx_config_errors {
    void (*say)(const char *text); /* NULL: nobody */
    const char *path;              /* set by ntx_config_read */
    unsigned n;
    struct ntx_err first;
};
void ntx_config_refuse(struct ntx_config_errors *e, unsigned line /* 0: none */, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Reads on after errors in the file; 0 then, too. */
int ntx_config_read(const char *path, struct ntx_config *c, struct ntx_config_errors *e, struct ntx_err *err);
/* The line that set a key; 0: none did. */
unsigned ntx_config_line(const struct ntx_config *c, const char *section, const char *key);

/* Prints the file with every key as a comment, its default and meaning: deploy/ntx.conf, which a test keeps equal. */
void ntx_config_print(FILE *to);

#endif
