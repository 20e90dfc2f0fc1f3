/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/machines_impl.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/plugin.h"
#include "common/util.h"
#include "computed/engine/load.h"

#define LIBRARY  "libntx-mpi.so"
#define VARIABLE "NTX_MPI_LIBRARY"

static int open_plugin(struct ntx_machines *m, struct ntx_err *err)
{
    char path[PATH_MAX + 64];
    struct ntx_err why = {0};
    const struct ntx_net_ops *(*table)(void);
    if (ntx_plugin_open(LIBRARY, VARIABLE, NTX_NET_SYMBOL, true, path, sizeof path, &m->library, (void **)&table, &why))
        return ntx_err_set(err, -ENODEV,
                           "several machines need MPI, and this build's plug-in for it cannot be loaded: %s; install "
                           "libopenmpi-dev and build again",
                           why.text);
    if (table()->abi != NTX_NET_ABI)
        return ntx_err_set(err, -ENODEV, "%s is not the MPI plug-in of this build", path);
    m->ops = table();
    return 0;
}

int ntx__machines_meet(struct ntx_machines *m, const void *mine, size_t n, void *all, struct ntx_err *err)
{
    int rc = m->ops->gather(m->net, mine, n, all);
    return rc ? ntx_err_set(err, rc, "the other machines cannot be reached: %s", m->ops->error(m->net)) : 0;
}

static int learn_names(struct ntx_machines *m, struct ntx_err *err)
{
    char mine[NTX_NET_NAME], all[NTX_RANKS_MAX][NTX_NET_NAME];
    snprintf(mine, sizeof mine, "%s", m->ops->name(m->net));
    int rc = ntx__machines_meet(m, mine, sizeof mine, all, err);
    for (uint32_t i = 0; i < m->size && !rc; i++) {
        all[i][NTX_NET_NAME - 1] = 0;
        snprintf(m->name[i], sizeof m->name[i], "%.*s (rank %u)", (int)NTX_NET_NAME - 1, all[i], i);
        m->names[i] = m->name[i];
    }
    return rc;
}

int ntx_machines_join(struct ntx_machines **out, struct ntx_err *err)
{
    char why[256] = "";
    struct ntx_machines *m = calloc(1, sizeof *m);
    int rc = m ? open_plugin(m, err) : ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc && (rc = m->ops->open(&m->net, why, sizeof why)))
        rc = ntx_err_set(err, rc, "%s: is this started by mpirun?", why);
    if (!rc) {
        m->rank = m->ops->rank(m->net);
        m->size = m->ops->size(m->net);
        rc = m->size > NTX_RANKS_MAX
                 ? ntx_err_set(err, -E2BIG, "%u machines: at most %u can share a model", m->size, NTX_RANKS_MAX)
                 : learn_names(m, err);
    }
    if (rc) {
        ntx_machines_leave(m, false);
        return rc;
    }
    *out = m;
    return 0;
}

void ntx_machines_leave(struct ntx_machines *m, bool together)
{
    if (!m)
        return;
    if (m->net)
        m->ops->close(m->net, together);
    free(m); /* the library stays loaded: MPI's threads may run in it */
}

void ntx_machines_over(struct ntx_machines *m, struct ntx_ranks *r)
{
    if (!m->rank)
        m->over = !ntx_ranks_quit(r);
}

bool ntx_machines_ended(const struct ntx_machines *m) { return m && m->over; }
uint32_t ntx_machines_rank(const struct ntx_machines *m) { return m->rank; }
const char *ntx_machines_name(const struct ntx_machines *m, uint32_t rank) { return m->names[rank]; }

const char *ntx_machines_refusal(const struct ntx_machines *m, const struct ntx_load_settings *set, bool packed,
                                 bool deltas)
{
    if (m->stage != NTX_MACHINES_JOINED)
        return "machines that share a model have it for as long as they run: start them again for another one";
    if (packed)
        return "a packed model (ntx pack) runs on one machine only";
    if (set->lora && *set->lora)
        return "--lora: adapters run on one machine only";
    if (deltas)
        return "a model whose layers share matrices, or add to them, runs on one machine only";
    return *set->backend && strcmp(set->backend, "cpu") && strcmp(set->backend, "auto")
               ? "several machines compute on their CPUs only: --backend cpu"
               : NULL;
}

uint64_t ntx_machines_kv_bytes(const struct ntx_machines *m, uint32_t rank) { return m->planned_of[rank].kv; }

int ntx_machines_ranks(struct ntx_machines *m, struct ntx_ranks **out)
{
    const struct ntx_ranks_config c = {.ops = m->ops, .net = m->net, .names = m->names};
    return ntx_ranks_new(&c, out);
}

static void *follower_main(void *arg)
{
    struct ntx_machines *m = arg;
    int rc = ntx_ranks_follow(m->loaded->ranks, m->loaded->forward, &m->stop);
    m->over = !rc;
    m->ended(m->ctx, rc, rc ? m->loaded->weights->error.text : "");
    return NULL;
}

int ntx_machines_follow(struct ntx_machines *m, struct ntx_loaded *l,
                        void (*ended)(void *ctx, int rc, const char *text), void *ctx)
{
    m->loaded = l;
    m->ended = ended;
    m->ctx = ctx;
    atomic_store(&m->stop, false);
    return -pthread_create(&m->thread, NULL, follower_main, m);
}

void ntx_machines_stop(struct ntx_machines *m) { atomic_store(&m->stop, true); }
void ntx_machines_joined(struct ntx_machines *m) { pthread_join(m->thread, NULL); }
