/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h: what both workers are as processes; what each does for its living is its own.
 *
 *   region.sock  WELCOME, PEERS, ATTACH, DETACH connected to, in slices so that the supervisor's end is noticed; its
 *                end is ours
 *   link c?.N    Hello; what computed says          opened with the first, under our instance's number
 *   link pi.P.I  between the two workers            comes and goes as PEERS says
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
    const char *hints;    /* what the link to the other worker is for, in a log line */
    enum ntx_counter pid; /* where our number stands */
    /* ctx is the worker's. fds are ours to take (each taken is set to -1); what is left of them is closed. Both answer,
     * at once or later. */
    void (*attach)(void *ctx, const struct ntx_attach_msg *m, int *fds, unsigned n_fds);
    void (*detach)(void *ctx, const struct ntx_attach_msg *m);
    void (*from_computed)(void *ctx, const Ntx__Peer *m);
    void (*from_other)(void *ctx, const Ntx__Peer *m);
    int (*begin)(void *ctx);    /* the loop is about to run */
    bool (*ending)(void *ctx);  /* true: there is something to finish first, then ntx_worker_stop; NULL: never */
    void (*closing)(void *ctx); /* the loop has ended: what is the worker's is let go; its handles are closed after
                                   that. NULL: nothing */
};

struct ntx_worker { /* the fields up to `computed` may be read */
    const struct ntx_worker_kind *kind;
    void *ctx;
    uv_loop_t loop;
    struct ntx_counters *counters;
    uint32_t instance;
    bool ended;                        /* it is to end, or about to */
    struct ntx_link *computed, *other; /* other: NULL while there is none */
    const char *dir;
    int alive_fd, sock, rc;
    uint32_t other_instance;
    uint64_t epoch;
    struct ntx_err *err;
    uv_poll_t attach, alive;
    uv_signal_t term, interrupt;
};

/* Waits up to 10 s for computed, then runs until told to end (0), or until something is wrong (negative errno, text in
 * err). w is filled here. */
int ntx_worker_run(struct ntx_worker *w, const struct ntx_worker_kind *kind, void *ctx, const char *dir, int alive_fd,
                   struct ntx_err *err);

void ntx_worker_epoch(struct ntx_worker *w,
                      uint64_t epoch);      /* of the region at hand, 0: none. Links drop what is of another */
int ntx_worker_hello(struct ntx_worker *w); /* -EAGAIN and the like: to be said again */
void ntx_worker_answer(struct ntx_worker *w, struct ntx_attach_msg *m); /* to ATTACH and DETACH */
void ntx_worker_end(struct ntx_worker *w,
                    int rc); /* as soon as what is under way is finished; rc as ntx_worker_run gives it */
void ntx_worker_stop(struct ntx_worker *w); /* it is */

#endif
