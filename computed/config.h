/* config.h: ntx.conf, what the service's administrator decides once. Read at start, before there are threads.
 *
 *     [model]    path ram ctx threads sessions rows backend kernel source skip ffn_sparse kv_type
 *     [links]    nvme
 *     [clients]  max per_user idle stall admin queue_wait stop_grace
 *
 * INI: "key = value", comments begin with '#' or ';' at the start of a line or with " ;" behind a value. Every key may be left out.
 * deploy/ntx.conf holds all of them with their defaults and is the manual for people; a test keeps the two together.
 * An unknown section or key, a key given twice and a value out of range are refused with file, line and what would be right: a
 * misspelt limit must not silently become no limit. */
#ifndef NTX_COMPUTED_CONFIG_H
#define NTX_COMPUTED_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct ntx_config {
    /* [model]: zero or "" leaves the choice to the load (Load in proto/ntx.proto has the same fields) */
    char model[4096];       /* absolute path of the GGUF to load at start, "" for none */
    char also[4096];        /* the same model on another drive, "" for none */
    uint64_t ram;           /* bytes, 0: the default of --ram */
    uint32_t ctx;           /* tokens per session */
    uint32_t threads;
    uint32_t sessions;      /* full-context sessions to reserve KV for */
    uint32_t rows;          /* per pass at most */
    char backend[16];       /* "auto" or "cpu" or "cuda" */
    char kernel[16];        /* "" for the best */
    char source[16];        /* iod's: "auto", "uring" or "pread" */
    char skip[160];         /* "off" or a policy */
    char ffn_sparse[32];    /* "off", "threshold=T", "topk=F" */
    char kv_type[16];       /* "f16" or "q8_0" */

    /* [links] */
    double link_nvme;       /* bytes per second to emulate, 0: as fast as it is */

    /* [clients] */
    uint32_t max_clients;   /* connections at once */
    uint32_t max_per_user;  /* of these; 0: three quarters of them */
    uint32_t idle_ms;       /* after which one with a conversation may have to make room */
    uint32_t stall_ms;      /* for a request to come as a whole, and for a reply to be taken */
    char admin[8];          /* "owner" or "group": who may stop the service and load with more than `ram` */
    bool queue_wait;        /* a request that memory has no room for waits; else it is refused */
    uint32_t stop_grace_ms; /* how long running answers may take after SIGTERM or `ntx stop` */

    /* [metrics]: read by ntx-metrics itself; here so that the key is known */
    char metrics_listen[160];
};

void ntx_config_defaults(struct ntx_config *c);

/* What the three daemons may take together: ram, what processes add to it, and what the kernel keeps for them. 0: no limit, since ram is none. */
uint64_t ntx_config_memory_max(const struct ntx_config *c);

/* Defaults, then the file. -errno of opening it, -EINVAL for what is in it. c is untouched on failure. */
int ntx_config_load(const char *path, struct ntx_config *c, struct ntx_err *err);

#endif
