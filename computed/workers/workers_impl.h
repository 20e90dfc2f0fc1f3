/* SPDX-License-Identifier: Apache-2.0 */
/* workers_impl.h: inside of the workers, shared by its files. All in the main thread's loop.
 *
 *   workers.c         the listening socket, who may come in, the public calls
 *   workers_peer.c    one worker from its welcome to its death
 *   workers_ring.c    the duplicate of iod's ring, and what it proves
 *   workers_lost.c    workers that end before they have done anything
 *
 *   newcomer --HELLO--> worker --ATTACH--> holds region --ATTACHED--> attached (its Hello is passed on)
 *                         |                     |
 *                         +------ dead <--------+   pidfd readable. A closed socket alone is not death: the process is
 *                                                   killed, and dead when it is gone; until then its reads may begin.
 *                                                     */
#ifndef NTX_COMPUTED_WORKERS_WORKERS_IMPL_H
#define NTX_COMPUTED_WORKERS_WORKERS_IMPL_H

#include <sys/socket.h>

#include "computed/workers/workers.h"
#include "proto/link.h"
#include "shm/region.h"

#define NTX__ROLES     3   /* indexed by enum ntx_role */
#define NTX__NEWCOMERS 16u /* connections that have not been admitted */

/* A worker's io_uring, held open so that it stays when the worker dies. */
struct ntx__ring {
    bool open;
    int fd;
    void *map; /* NULL: the worker did not say where the words lie; they are read from fdinfo */
    size_t bytes;
    const _Atomic uint32_t *sq_head, *cq_tail;
};

int ntx__ring_duplicate(int pidfd, const struct ntx_attach_msg *m, struct ntx__ring *out, struct ntx_err *err);
/* The process is dead, so the SQ head stands still: every request it handed over has its completion. */
bool ntx__ring_drained(const struct ntx__ring *r);
void ntx__ring_close(struct ntx__ring *r); /* a zeroed one is fine */

struct ntx__peer {
    struct ntx_workers *w;
    struct ntx__peer *next; /* among the newcomers */
    int sock, pidfd;        /* pidfd -1: the kernel has none */
    pid_t pid;
    uid_t uid;
    uv_poll_t sock_poll, pid_poll;
    unsigned handles; /* open uv handles: the memory goes with the last */
    bool closing;
    enum ntx_role role;  /* 0: a newcomer */
    enum ntx_role asks;  /* said HELLO */
    enum ntx_role wants; /* said HELLO, and waits for its predecessor to be gone */
    uint32_t instance;
    struct ntx_link *link;
    bool leaving;          /* socket closed, or thrown out: death is awaited */
    bool holds;            /* was given the region, and has not let go */
    bool attached;         /* and said so */
    bool hello_seen;       /* its Hello came before that */
    struct ntx__ring ring; /* iod's */
    uint64_t pings;        /* sent */
    unsigned unanswered;   /* calls of ntx_workers_ping since it was heard */
    bool ring_missing;     /* it has one, but no duplicate could be had */
};

struct ntx__trials {     /* of a role, since the region is offered */
    unsigned deaths;     /* in a row, without anything done */
    uint64_t done;       /* cb.done's measure at the last death */
    uint64_t since_ns;   /* the first of these deaths */
    uint64_t offered_ns; /* when the present one got the region */
    bool lost;
    char why[400];    /* it is */
    uv_timer_t timer; /* none has come; or: it gets the region; or, of a lost one: has it done something? */
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
    uv_timer_t drain_timer;  /* looks at dead rings */
    uv_timer_t detach_timer; /* 0 ms: is anybody holding? then the patience with those who do not let go */
    unsigned handles;
    bool detaching, detach_overdue;
    struct ntx__peer *worker[NTX__ROLES], *newcomers;
    uint32_t instance[NTX__ROLES];
    uint32_t told_iod, told_predictor; /* the instances that the workers were told of */
    char refused[256];                 /* the last refusal that was logged: whoever starts them may try for ever */
    struct ntx__region_offer offer;
    int sidecar;                                /* of the next or present offer; -1: none */
    int drafter[NTX_DRAFTERS][NTX_DRAFTER_FDS]; /* likewise */
    unsigned n_drafters;
    struct ntx__trials trials[NTX__ROLES];
    struct ntx__ring *dead_rings; /* of iods that died with reads under way */
    unsigned n_dead_rings;
    bool unproved; /* an iod died whose reads can never be proved finished: taint stays until detach */
};

/* Takes sock over, unless it fails. */
int ntx__peer_new(struct ntx_workers *w, int sock, const struct ucred *who);
void ntx__peer_close(struct ntx__peer *p);
void ntx__peer_refuse(struct ntx__peer *p, bool for_good, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void ntx__peer_expel(struct ntx__peer *p, const char *why); /* kills the process; death follows */
void ntx__peer_offer(struct ntx__peer *p);                  /* the region, if there is one */
bool ntx__peer_gone(const struct ntx__peer *p);             /* its process has ended */
void ntx__peer_dead(struct ntx__peer *p);
void ntx__peer_admit(struct ntx__peer *p, enum ntx_role role);

void ntx__trials_begin(struct ntx_workers *w); /* a region is about to be offered */
void ntx__trials_end(struct ntx_workers *w);
void ntx__trials_died(struct ntx_workers *w, enum ntx_role role); /* cb.died has returned */
void ntx__trials_admitted(struct ntx__peer *p);                   /* offers it the region, now or later */
void ntx__trials_forget_end(const struct ntx_workers *w, enum ntx_role role);

void ntx__workers_unlink_pair(struct ntx_workers *w); /* the socket between the two that were told of each other */
void ntx__workers_check_drained(struct ntx_workers *w);
void ntx__workers_check_detached(struct ntx_workers *w); /* soon, from the loop */

#endif
