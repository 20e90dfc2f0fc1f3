/* SPDX-License-Identifier: Apache-2.0 */
/* workers.h: ntx-computed's side of its two workers: the attach socket, their credentials, instances, deaths and links.
 * Runs in the main thread's libuv loop. It owns the listening region.sock, and for each worker the connection, a pidfd
 * and the nanomsg link; of ntx-iod also a duplicate of its io_uring (pidfd_getfd), which proves after its death that
 * its reads are finished. */
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
    /* A process was accepted as this worker: it will send Hello, or die. Earlier refusals are out of date. May be
     * NULL. */
    void (*admitted)(void *ctx, enum ntx_role role);
    /* A worker sent Hello on its link and is ready to be configured (answer with ntx_workers_send); again after each
     * restart. */
    void (*hello)(void *ctx, enum ntx_role role, uint32_t instance);
    /* A worker was admitted, or sent anything: it is alive. May be NULL. */
    void (*heard)(void *ctx, enum ntx_role role);
    /* Any other message of a worker. */
    void (*message)(void *ctx, enum ntx_role role, const Ntx__Peer *m);
    /* The process has ended (once; a worker whose socket closed is killed, and reported when its pidfd says so). For
     * ntx-iod: call ntx_stream_iod_died here; no new one is attached before this returns. */
    void (*died)(void *ctx, enum ntx_role role);
    /* All reads of dead ntx-iods are proved finished: the quarantine may end. */
    void (*drained)(void *ctx);
    /* After ntx_workers_detach: no worker has the region any more. Called once. */
    void (*detached)(void *ctx);
    /* A worker could not take the region; text is its own. It stays connected, without the region. May be NULL. */
    void (*attach_failed)(void *ctx, enum ntx_role role, const char *text);
    /* A process was refused as this worker for good: another build, another user. May be NULL. */
    void (*refused)(void *ctx, enum ntx_role role, const char *text);
    /* A measure of the work of this worker and its predecessors since the region was attached. Returns whether there is
     * work for it. NULL: deaths are not counted. */
    bool (*done)(void *ctx, enum ntx_role role, uint64_t *done);
    /* lost: it ended again and again before it had done anything, or did not come back; nothing should wait for it.
     * text: why, and how it ended, if known. found: later it has done something, or lived for 5 s. May be NULL. */
    void (*lost)(void *ctx, enum ntx_role role, const char *text);
    void (*found)(void *ctx, enum ntx_role role);
};

int ntx_workers_new(uv_loop_t *loop, const char *dir, int counters_fd, struct ntx_counters *counters,
                    const struct ntx_workers_cb *cb, struct ntx_workers **out, struct ntx_err *err);
/* Handles close in the loop: run it once more. Connected workers see their socket close and exit. */
void ntx_workers_free(struct ntx_workers *w);

/* Hands a region to each worker that is connected now or connects later, until detach. Descriptors are borrowed until
 * detached. The plan must have been published. The predictor gets the probe board, the sidecar, and two parts and the
 * file of each drafter. -EBUSY: a region is still attached. */
int ntx_workers_attach(struct ntx_workers *w, const struct ntx_region *r, int wake_fd, const int *files,
                       unsigned n_files);
/* Sets the skip policy's sidecar, for the predictor, with the next attach; borrowed until detached, -1: none. */
void ntx_workers_sidecar(struct ntx_workers *w, int fd);
/* Sets the drafters for the predictor likewise: requests, answers (shm/drafts.h) and file of each; n at most
 * NTX_DRAFTERS. */
void ntx_workers_drafters(struct ntx_workers *w, const int (*fds)[NTX_DRAFTER_FDS], unsigned n);
/* Detaches the region. A worker that does not let go within 5 s is killed. cb.detached comes from the loop, never from
 * within this call. */
void ntx_workers_detach(struct ntx_workers *w);
/* Why ntx_workers_attach is -EBUSY after a detach: a worker that was killed, "ntx-iod (pid 12)", still has the region,
 * since the system does not end a process that waits for a drive. False: there is none. */
bool ntx_workers_holder(const struct ntx_workers *w, char *buf, size_t n);
/* Whether an ntx-iod died whose reads can never be proved finished: cb.drained will not come. */
bool ntx_workers_unproved(const struct ntx_workers *w);
/* The text of cb.lost; NULL: it is not lost. */
const char *ntx_workers_lost(const struct ntx_workers *w, enum ntx_role role);
/* How this worker ended last, as its parent reported: "killed by signal 9, Killed". False: unknown. */
bool ntx_workers_end(const struct ntx_workers *w, enum ntx_role role, char *buf, size_t n);
pid_t ntx_workers_pid(const struct ntx_workers *w, enum ntx_role role); /* of the connected one; 0: none */
/* Pings each worker that has the region (cb.heard). Call it each second, since a message may be lost. */
void ntx_workers_ping(struct ntx_workers *w);
bool ntx_workers_present(const struct ntx_workers *w, enum ntx_role role);
/* 0, -ENOTCONN, -EAGAIN. */
int ntx_workers_send(struct ntx_workers *w, enum ntx_role role, Ntx__Peer *m);

#endif
