/* SPDX-License-Identifier: Apache-2.0 */
/* workers.h: computed's side of its two workers: the attach socket, their credentials, instances, deaths and links.
 * Runs in the main thread's libuv loop. It owns: the listening region.sock, per worker the connection, a pidfd, the
 * nanomsg link, and of iod a duplicate of its io_uring (pidfd_getfd), by which old reads are proved finished after its
 * death. */
#ifndef NTX_COMPUTED_WORKERS_WORKERS_H
#define NTX_COMPUTED_WORKERS_WORKERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/err.h"
#include "proto/attach.h"
#include "proto/ntx.pb-c.h"
#include "shm/counters.h"
#include "shm/region.h"

struct ntx_workers;

struct ntx_workers_cb {
    void *ctx;
    /* A process was taken as this worker: it will say Hello, or die. What was said of those refused before it is out of
     * date. May be NULL. */
    void (*admitted)(void *ctx, enum ntx_role role);
    /* A worker said Hello on its link and is ready to be configured (answer with ntx_workers_send); again after each
     * restart. */
    void (*hello)(void *ctx, enum ntx_role role, uint32_t instance);
    /* A worker was admitted, or said anything at all: it is alive. May be NULL. */
    void (*heard)(void *ctx, enum ntx_role role);
    /* Any other message of a worker. */
    void (*message)(void *ctx, enum ntx_role role, const Ntx__Peer *m);
    /* The process is gone (once; a worker whose socket closed is killed, and reported when its pidfd says so). For iod:
     * call ntx_stream_iod_died here; no new iod is attached before this returns. */
    void (*died)(void *ctx, enum ntx_role role);
    /* All reads of dead iods are proved finished: taint may be lifted. */
    void (*drained)(void *ctx);
    /* A worker let go of the region (after ntx_workers_detach), or died. Called when none holds it any more. */
    void (*detached)(void *ctx);
    /* A worker could not take the region (its own words). May be NULL. It stays connected, without the region. */
    void (*attach_failed)(void *ctx, enum ntx_role role, const char *text);
    /* A process that wants to be this worker was refused for good: of another build, of another user. May be NULL. */
    void (*refused)(void *ctx, enum ntx_role role, const char *text);
    /* A measure of what this worker and those before it have done since the region was attached; returns whether there
     * is something to do for it. NULL: deaths are not counted. */
    bool (*done)(void *ctx, enum ntx_role role, uint64_t *done);
    /* It ended again and again before it had done anything, or did not come back (text: with how it ended, as far as
     * that is known): nobody is to wait for it. Then, some day maybe: it has done something, or has lived for 5 s. May
     * be NULL. */
    void (*lost)(void *ctx, enum ntx_role role, const char *text);
    void (*found)(void *ctx, enum ntx_role role);
};

int ntx_workers_new(uv_loop_t *loop, const char *dir, int counters_fd, struct ntx_counters *counters,
                    const struct ntx_workers_cb *cb, struct ntx_workers **out, struct ntx_err *err);
/* Handles close in the loop: run it once more. Connected workers see their socket close and exit. */
void ntx_workers_free(struct ntx_workers *w);

/* A region is there: hand it to each worker that is connected now or connects later, until detach. Descriptors are
 * borrowed until detached. -EBUSY: another region is attached or not yet let go of. The plan has been published. The
 * predictor gets the probe board, the sidecar, and of each drafter its two parts and its file. */
int ntx_workers_attach(struct ntx_workers *w, const struct ntx_region *r, int wake_fd, const int *files,
                       unsigned n_files);
/* The skip policy's sidecar, for the predictor, with the next attach; borrowed until detached, -1: none. */
void ntx_workers_sidecar(struct ntx_workers *w, int fd);
/* Drafters, for the predictor, likewise: of each asks, answers (shm/drafts.h) and its file; n at most NTX_DRAFTERS. */
void ntx_workers_drafters(struct ntx_workers *w, const int (*fds)[NTX_DRAFTER_FDS], unsigned n);
/* Who does not let go within 5 s is ended. cb.detached comes from the loop, never from within this call. */
void ntx_workers_detach(struct ntx_workers *w);
/* An iod died whose reads can never be proved finished: cb.drained will not come. */
bool ntx_workers_unproved(const struct ntx_workers *w);
/* What cb.lost said; NULL: it is not lost. */
const char *ntx_workers_lost(const struct ntx_workers *w, enum ntx_role role);
/* How this worker ended last, by whoever started it: "killed by signal 9, Killed". False: nobody says. */
bool ntx_workers_end(const struct ntx_workers *w, enum ntx_role role, char *buf, size_t n);
pid_t ntx_workers_pid(const struct ntx_workers *w, enum ntx_role role); /* of the one that is present; 0: none is */
/* Asks each worker that has the region for an answer (cb.heard). Each second: a message may be lost. */
void ntx_workers_ping(struct ntx_workers *w);
bool ntx_workers_present(const struct ntx_workers *w, enum ntx_role role);
/* 0, -ENOTCONN, -EAGAIN. */
int ntx_workers_send(struct ntx_workers *w, enum ntx_role role, Ntx__Peer *m);

#endif
