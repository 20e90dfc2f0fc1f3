/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h: the process frame that both workers share.
 *
 *   region.sock  WELCOME, PEERS, ATTACH, DETACH     connected in short slices, so that the supervisor's end is noticed;
 *                                                   its end ends us
 *   link c?.N    Hello; messages of computed        opened after WELCOME; N is our instance number
 *   link pi.P.I  between the two workers            opened and closed as PEERS says
 *   alive pipe, SIGTERM, SIGINT                     the end
 *
 * One libuv loop, one thread. Arguments and exit codes are in common/worker_main.h, rights in common/sandbox.h. */
#ifndef NTX_PROTO_WORKER_H
#define NTX_PROTO_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/err.h"
#include "proto/attach.h"
#include "proto/link.h"
#include "shm/counters.h"

struct ntx_worker_kind {
    enum ntx_role role;
    const char *name;     /* as in Hello */
    const char *computed; /* the link's name: "ci" */
    const char *hints;    /* purpose of the link to the other worker, for a log line */
    enum ntx_counter pid; /* counter for our process id */
    /* ctx is the worker's. attach may take fds over (it sets each to -1); the rest is closed. Both answer by
     * ntx_worker_answer, at once or later. */
    void (*attach)(void *ctx, const struct ntx_attach_msg *m, int *fds, unsigned n_fds);
    void (*detach)(void *ctx, const struct ntx_attach_msg *m);
    void (*from_computed)(void *ctx, const Ntx__Peer *m);
    void (*from_other)(void *ctx, const Ntx__Peer *m);
    int (*begin)(void *ctx); /* the loop is about to run */
    /* true: the worker has work to finish, and then calls ntx_worker_stop. NULL: never. */
    bool (*ending)(void *ctx);
    /* The loop has ended: frees the worker's data; its handles are closed after that. NULL: nothing to free. */
    void (*closing)(void *ctx);
};

struct ntx_worker { /* the fields up to `computed` may be read */
    const struct ntx_worker_kind *kind;
    void *ctx;
    uv_loop_t loop;
    struct ntx_counters *counters;
    uint32_t instance;
    bool ended;                        /* the end has begun */
    struct ntx_link *computed, *other; /* other: NULL: there is none */
    const char *dir;
    int alive_fd, sock, rc;
    uint32_t other_instance;
    uint64_t epoch;
    struct ntx_err *err;
    uv_poll_t attach, alive;
    uv_signal_t term, interrupt;
};

/* Fills in w, waits up to 10 s for computed, then runs until it is told to end (0) or fails (negative errno, text in
 * err). */
int ntx_worker_run(struct ntx_worker *w, const struct ntx_worker_kind *kind, void *ctx, const char *dir, int alive_fd,
                   struct ntx_err *err);

/* Sets the epoch of the attached region, 0: none. Links drop messages of another epoch. */
void ntx_worker_epoch(struct ntx_worker *w, uint64_t epoch);
int ntx_worker_hello(struct ntx_worker *w);                             /* on an error like -EAGAIN, call it again */
void ntx_worker_answer(struct ntx_worker *w, struct ntx_attach_msg *m); /* to ATTACH and DETACH */
/* Ends the worker when its current work is finished; ntx_worker_run then returns rc. */
void ntx_worker_end(struct ntx_worker *w, int rc);
void ntx_worker_stop(struct ntx_worker *w); /* the work is finished */

#endif
