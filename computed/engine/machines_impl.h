/* SPDX-License-Identifier: Apache-2.0 */
/* machines_impl.h: shared by machines.c (join and leave) and machines_agree.c (the shares of a model). */
#ifndef NTX_COMPUTED_ENGINE_MACHINES_IMPL_H
#define NTX_COMPUTED_ENGINE_MACHINES_IMPL_H

#include <pthread.h>

#include "computed/engine/load.h"
#include "computed/engine/machines.h"

struct ntx_machines {
    void *library;
    const struct ntx_net_ops *ops;
    struct ntx_net *net;
    uint32_t rank, size;
    char name[NTX_RANKS_MAX][NTX_NET_NAME + 32]; /* "node7 (rank 2)" */
    const char *names[NTX_RANKS_MAX];
    enum ntx_machines_stage stage;
    bool over;        /* rank 0 has ended the work */
    unsigned planned; /* exchanges of the pass so far */
    struct ntx_machines_planned planned_of[NTX_RANKS_MAX];
    bool by_rates; /* the share goes by rates and may be dealt again. Rank 0: */
    struct ntx_share_machine can[NTX_RANKS_MAX];
    struct ntx_share_work work;
    struct ntx_share best; /* best of the `deals` shares that all have planned with */
    unsigned deals;
    pthread_t thread;
    atomic_bool stop;
    struct ntx_loaded *loaded;
    void (*ended)(void *ctx, int rc, const char *text);
    void *ctx;
};

/* Gathers n bytes of each machine on all of them. */
int ntx__machines_meet(struct ntx_machines *m, const void *mine, size_t n, void *all, struct ntx_err *err);

#endif
