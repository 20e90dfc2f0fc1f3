/* SPDX-License-Identifier: Apache-2.0 */
/* workers_impl.h: internals of workers.h, shared by its files. All in the main thread's loop.
 *
 *   workers.c         the listening socket and the public calls
 *   workers_peer.c    one worker from its connection to its death
 *   workers_ring.c    the duplicate of ntx-iod's io_uring, which proves its reads finished
 *   workers_lost.c    workers that end before they have done anything
 *
 *   newcomer --HELLO--> worker --ATTACH--> holds region --ATTACHED--> attached (its Hello is passed on)
 *                         |                     |
 *                         +------ dead <--------+   pidfd readable
 *
 * A closed socket alone is not death: the process is killed, and dead once it has ended. Until then it may start
 * reads. */
#ifndef NTX_COMPUTED_WORKERS_WORKERS_IMPL_H
#define NTX_COMPUTED_WORKERS_WORKERS_IMPL_H

#include <sys/socket.h>

#include "computed/workers/workers.h"
#include "proto/link.h"
#include "shm/region.h"

#define NTX__ROLES     3   /* indexed by enum ntx_role */
#define NTX__NEWCOMERS 16u /* most connections that are not admitted yet */

/* A worker's io_uring, held open so that it outlives the worker. */
struct ntx__ring {
    bool open;
    int fd;
    void *map; /* NULL: the worker did not report its layout, so fdinfo is read */
    size_t bytes;
    const _Atomic uint32_t *sq_head, *cq_tail;
};

int ntx__ring_duplicate(int pidfd, const struct ntx_attach_msg *m, struct ntx__ring *out, struct ntx_err *err);
/* Whether all its reads are finished. The process is dead, so the SQ head is constant: each submitted request must have
 * its completion. */
bool ntx__ring_drained(const struct ntx__ring *r);
void ntx__ring_close(struct ntx__ring *r); /* a zeroed one is fine */

struct ntx__peer {
    struct ntx_workers *w;
    struct ntx__peer *next; /* among the newcomers */
    int sock, pidfd;        /* pidfd -1: not supported by the kernel */
    pid_t pid;
    uid_t uid;
    uv_poll_t sock_poll, pid_poll;
    unsigned handles; /* open uv handles; the memory is freed with the last */
    bool closing;
    enum ntx_role role;    /* 0: a newcomer */
    enum ntx_role claimed; /* role of its HELLO */
    enum ntx_role wants;   /* role of its HELLO, while it waits for its predecessor to end */
    uint32_t instance;
    struct ntx_link *link;
    bool leaving;          /* its socket is closed, and its death is awaited */
    bool holds;            /* it was given the region, and has not let go */
    bool attached;         /* it has confirmed the region */
    bool hello_seen;       /* its Hello came before that */
    struct ntx__ring ring; /* ntx-iod's */
    uint64_t pings;        /* pings sent */
    unsigned unanswered;   /* calls of ntx_workers_ping since its last message */
    bool ring_missing;     /* it has a ring, but it could not be duplicated */
};

struct ntx__trials {     /* of a role, since the region was offered */
    unsigned deaths;     /* deaths in a row without any work done */
    uint64_t done;       /* cb.done at the last death */
    uint64_t since_ns;   /* time of the first of these deaths */
    uint64_t offered_ns; /* when the present worker got the region */
    bool lost;
    char why[400];    /* why it is lost */
    uv_timer_t timer; /* until: none has come; it gets the region; a lost one is checked */
};

struct ntx__region_offer {
    bool there;
    uint64_t epoch;
    int to_iod[NTX_ATTACH_MAX_FDS]; /* parts, wake eventfd, files */
    unsigned n_files;
    int board;
};

struct ntx_workers {
    uv_loop_t *loop;
    struct ntx_workers_cb cb;
    char dir[100];
    int counters_fd, listen_fd;
    struct ntx_counters *counters;
    uv_poll_t listen_poll;
    uv_timer_t drain_timer;  /* checks dead rings */
    uv_timer_t detach_timer; /* first 0 ms: does a worker hold the region? then the time until holders are killed */
    unsigned handles;
    bool detaching, detach_overdue;
    struct ntx__peer *worker[NTX__ROLES], *newcomers;
    uint32_t instance[NTX__ROLES];
    uint32_t told_iod, told_predictor; /* instances that the workers were told */
    char refused[256];                 /* the last refusal logged, since a supervisor may retry for ever */
    struct ntx__region_offer offer;
    int sidecar;                                /* of the next or present offer; -1: none */
    int drafter[NTX_DRAFTERS][NTX_DRAFTER_FDS]; /* likewise */
    unsigned n_drafters;
    struct ntx__trials trials[NTX__ROLES];
    struct ntx__ring *dead_rings; /* of ntx-iods that died with reads in flight */
    unsigned n_dead_rings;
    bool unproved; /* an ntx-iod died whose reads can never be proved finished: the quarantine lasts until detach */
};

/* Takes sock over, unless it fails. */
int ntx__peer_new(struct ntx_workers *w, int sock, const struct ucred *who);
void ntx__peer_close(struct ntx__peer *p);
void ntx__peer_refuse(struct ntx__peer *p, bool for_good, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *ntx__role_name(enum ntx_role role);
void ntx__peer_expel(struct ntx__peer *p, const char *why); /* kills the process; its death follows */
void ntx__peer_offer(struct ntx__peer *p);                  /* gives it the region, if there is one */
bool ntx__peer_gone(const struct ntx__peer *p);             /* whether its process has ended */
void ntx__peer_dead(struct ntx__peer *p);
void ntx__peer_admit(struct ntx__peer *p, enum ntx_role role);

void ntx__trials_begin(struct ntx_workers *w); /* a region is about to be offered */
void ntx__trials_end(struct ntx_workers *w);
void ntx__trials_died(struct ntx_workers *w, enum ntx_role role); /* cb.died has returned */
void ntx__trials_admitted(struct ntx__peer *p);                   /* offers it the region, now or later */
void ntx__trials_forget_end(const struct ntx_workers *w, enum ntx_role role);

void ntx__workers_unlink_pair(struct ntx_workers *w); /* removes the socket between the two workers */
void ntx__workers_check_drained(struct ntx_workers *w);
void ntx__workers_check_detached(struct ntx_workers *w); /* soon, from the loop */

#endif
