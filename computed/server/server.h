/* SPDX-License-Identifier: Apache-2.0 */
/* server.h: ntx-computed's main thread: clients on ntx.sock, the workers, the model that is loaded, the end.
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
 * Before that a load is looked at and planned, while the model that is there goes on (takers.c, open.c). One that fails
 * nevertheless after its predecessor had to go brings that one back. Answers are generated from FILLING on: a pass
 * waits for the chunks that it needs. Requests that come while a model is on its way wait for it. Everything here runs
 * in the loop's thread. */
#ifndef NTX_COMPUTED_SERVER_SERVER_H
#define NTX_COMPUTED_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/err.h"
#include "proto/ntx.pb-c.h"

struct ntx_server;

/* Connections beyond the limit: they may ask for the status and for the end, and are told why there is no more. Never
 * all of them are one user's where another one comes. */
#define NTX_MAX_GUESTS                      16
/* That clients may take: each has one, and all together may have passed in the files of one model, while two others are
 * loaded and being loaded; the loaded one's are watched. */
#define NTX_SERVER_DESCRIPTORS(max_clients) ((max_clients) + NTX_MAX_GUESTS + 4u * NTX_MAX_FILES)

struct ntx_server_config {
    const char *dir;       /* runtime directory */
    bool service;          /* socket for the group (0660) instead of the user alone (0600) */
    uint32_t max_clients;  /* connections at once; one more takes the place of one that is idle, or may only ask for the
                              status and the end */
    uint32_t max_per_user; /* of these */
    uint32_t idle_s;       /* after which one with a conversation counts as idle */
    uint32_t max_requests; /* under way at once, per client */
    uint32_t max_queue;    /* requests that may wait for memory; 0: refused at once */
    uint32_t grace_ms;     /* for running answers, at a Stop that names no time */
    uint32_t stall_s; /* a client that takes none of its replies, or sends a part of a request and not the rest, for so
                         long is dropped */
    const Ntx__Load *defaults; /* values for what a Load leaves at zero; NULL: none. A service's member may not ask for
                                  more memory than it names */
    const char *
        warm_prefix; /* file with a text that is computed as soon as a model is there (warm_prefix.c); NULL, "": none */
    bool share_all;  /* prefixes of texts are shared between users, too */
    bool group_admin;              /* of a service: members may do what else only its user and root may */
    struct ntx_machines *machines; /* that share a model with this one (machines.h); NULL: it is alone */
    struct ntx_keeper *keep;       /* where the served model is kept for the next ntx-computed, should this one die
                                      (keeper.h); NULL: nowhere */
    bool faults;                   /* of a service: a Load may have fault rules, since this one was started for tests */
};

/* Listens, and waits for workers. */
int ntx_server_new(uv_loop_t *loop, const struct ntx_server_config *c, struct ntx_server **out, struct ntx_err *err);
/* Loads the model that an ntx-computed served that died. 1: it is on its way, or cannot be, which the status and the
 * log tell; 0: none was kept. */
int ntx_server_load_kept(struct ntx_server *s);
/* Loads a model on the daemon's own behalf; what becomes of it is logged. */
int ntx_server_load(struct ntx_server *s, const Ntx__Load *m, struct ntx_err *err);
/* Refuses what is new, lets running answers finish for grace_ms, then ends them with "cancel"; all handles get closed
 * and so the loop ends. A second call only shortens the time. */
void ntx_server_shutdown(struct ntx_server *s, uint32_t grace_ms);
const char *ntx_server_lost(
    const struct ntx_server *s); /* why it ended by itself, after its clients were told; NULL: it did not */
/* The loop was left at the end of all patience: a thread may still be at work on what the server has, so nothing of it
 * may be freed. leave removes its files; then the process ends. */
bool ntx_server_stuck(const struct ntx_server *s);
void ntx_server_leave(struct ntx_server *s);
void ntx_server_free(struct ntx_server *s); /* after the loop has ended; NULL is fine */

#endif
