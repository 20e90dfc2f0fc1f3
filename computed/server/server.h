/* SPDX-License-Identifier: Apache-2.0 */
/* server.h: ntx-computed's main thread: clients on ntx.sock, the workers, the loaded model, the shutdown.
 *
 *   clients --frames--> server --jobs--> engine (computes)
 *                         |  ^--------mail---'
 *                         +--> workers: region, configuration, probes
 *
 * One model at a time:
 *
 *   EMPTY -> (UNLOADING) -> BUILDING -> WAITING -> FILLING -> READY -> UNLOADING -> EMPTY
 *             of the one     region      workers    host       |
 *             before                     configured arena      the requester gets Loaded
 *
 * Before that, a load is checked and planned while the current model goes on (fd_receivers.c, open.c). If a load
 * fails after the old model was unloaded, the old one is loaded again. Answers are generated from FILLING on: a pass
 * waits for the chunks that it needs. Requests that come while a model is being loaded wait for it. Everything here
 * runs in the loop's thread. */
#ifndef NTX_COMPUTED_SERVER_SERVER_H
#define NTX_COMPUTED_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/err.h"
#include "proto/ntx.pb-c.h"

struct ntx_server;

/* Connections over the limit. They may ask for the status and for a stop, and any other request is refused with the
 * reason. If another user comes, one user never has all of them. */
#define NTX_MAX_OVER_LIMIT                  16
/* Descriptors that clients may take: one each, and those of three models: one that was passed in, one that is being
 * loaded, and the loaded one, with as many again to watch its files. */
#define NTX_SERVER_DESCRIPTORS(max_clients) ((max_clients) + NTX_MAX_OVER_LIMIT + 4u * NTX_MAX_FILES)

struct ntx_server_config {
    const char *dir;       /* runtime directory */
    bool service;          /* socket for the group (0660) instead of the user alone (0600) */
    uint32_t max_clients;  /* connections at once; one more takes the slot of an idle one, or is over the limit */
    uint32_t max_per_user; /* most of them for one user */
    uint32_t idle_s;       /* seconds after which one with a conversation counts as idle */
    uint32_t max_requests; /* in progress at once, per client */
    uint32_t max_queue;    /* requests that may wait for memory; 0: refused at once */
    uint32_t grace_ms;     /* for running answers, if a Stop names no time */
    /* a client that takes no replies, or sends only a part of a request, for so long is disconnected */
    uint32_t stall_s;
    /* values for fields that a Load leaves at zero, or NULL. Members of a service's group may not ask for more
     * memory. */
    const Ntx__Load *defaults;
    const char *known_list; /* models that can be loaded by name (computed/engine/catalog.h); NULL, "": none */
    bool each_state;        /* each of them has a folder of its own for its texts */
    /* file with the text of the warm prefix (warm_prefix.c); NULL, "": none */
    const char *warm_prefix;
    bool share_all;                /* users share prefixes of texts */
    bool group_admin;              /* of a service: the group may administer it, too */
    struct ntx_machines *machines; /* machines that share a model with this one (machines.h); NULL: one machine */
    /* keeps the served model for the next ntx-computed, should this one die (keeper.h); or NULL */
    struct ntx_keeper *keep;
    bool faults; /* of a service started for tests: a Load may have fault rules */
};

/* Listens, and waits for workers. */
int ntx_server_new(uv_loop_t *loop, const struct ntx_server_config *c, struct ntx_server **out, struct ntx_err *err);
/* Loads the model that a dead ntx-computed served. 1: it is being loaded, or cannot be, as status and log say. 0: none
 * was kept. */
int ntx_server_load_kept(struct ntx_server *s);
/* Loads a model for no client; the outcome is logged. */
int ntx_server_load(struct ntx_server *s, const Ntx__Load *m, struct ntx_err *err);
/* Refuses new requests, lets running answers finish for grace_ms, then ends them with "cancel". All handles are closed,
 * and so the loop ends. A second call only shortens the time. */
void ntx_server_shutdown(struct ntx_server *s, uint32_t grace_ms);
/* Why it ended by itself, after telling its clients; NULL: it did not. */
const char *ntx_server_lost(const struct ntx_server *s);
/* The loop was left after the last deadline: a thread may still use the server's data, so nothing may be freed. leave
 * removes its files; then the process ends. */
bool ntx_server_stuck(const struct ntx_server *s);
void ntx_server_leave(struct ntx_server *s);
void ntx_server_free(struct ntx_server *s); /* after the loop has ended; NULL is fine */

#endif
