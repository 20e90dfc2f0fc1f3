/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/ranks/net_threads.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/check.h"
#include "tests/lib/patient.h"

struct message {
    struct message *next;
    size_t n;
    uint8_t bytes[];
};

struct wanted {
    uint32_t from;
    void *to;
    size_t n;
};

struct ntx_net {
    struct net_wire *wire;
    uint32_t rank;
    struct wanted wanted[64];
    unsigned n_wanted;
    struct message *last; /* of next */
};

struct net_wire {
    uint32_t size;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    struct message *queue[16][16]; /* [to][from] */
    bool cut[16];
    struct ntx_net net[16];
};

struct net_wire *net_wire_new(uint32_t size)
{
    struct net_wire *w = calloc(1, sizeof *w);
    CHECK(w && size <= 16);
    w->size = size;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->moved, NULL);
    for (uint32_t i = 0; i < size; i++)
        w->net[i] = (struct ntx_net){.wire = w, .rank = i};
    return w;
}

void net_wire_free(struct net_wire *w)
{
    for (uint32_t to = 0; to < w->size; to++) {
        free(w->net[to].last);
        for (uint32_t from = 0; from < w->size; from++)
            for (struct message *m = w->queue[to][from], *next; m; m = next) {
                next = m->next;
                free(m);
            }
    }
    free(w);
}

struct ntx_net *net_at(struct net_wire *w, uint32_t rank) { return &w->net[rank]; }

void net_wire_cut(struct net_wire *w, uint32_t rank)
{
    pthread_mutex_lock(&w->lock);
    w->cut[rank] = true;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
}

static uint32_t rank(const struct ntx_net *n) { return n->rank; }
static uint32_t size(const struct ntx_net *n) { return n->wire->size; }
static const char *name(const struct ntx_net *n) { return n->rank ? "another" : "first"; }
static const char *error(const struct ntx_net *n) { return n->wire->cut[1] ? "a wire is cut" : ""; }

static int send(struct ntx_net *n, uint32_t to, const void *bytes, size_t len)
{
    struct message *m = malloc(sizeof *m + len), **at;
    CHECK(m);
    m->next = NULL;
    m->n = len;
    memcpy(m->bytes, bytes, len);
    pthread_mutex_lock(&n->wire->lock);
    for (at = &n->wire->queue[to][n->rank]; *at; at = &(*at)->next)
        ;
    *at = m;
    pthread_cond_broadcast(&n->wire->moved);
    pthread_mutex_unlock(&n->wire->lock);
    return 0;
}

static int take(struct ntx_net *n, uint32_t from, void *bytes, size_t len)
{
    CHECK(n->n_wanted < 64);
    n->wanted[n->n_wanted++] = (struct wanted){from, bytes, len};
    return 0;
}

/* The next message; NULL after the limit, when stopped, or when the wire is cut. */
static struct message *receive(struct ntx_net *n, uint32_t from, uint32_t limit_ms, const atomic_bool *stop)
{
    struct net_wire *w = n->wire;
    struct message **at = &w->queue[n->rank][from], *m;
    unsigned waited_ms = 0;
    pthread_mutex_lock(&w->lock);
    while (!*at && !w->cut[from] && !(stop && atomic_load(stop)) &&
           patient_wait(&w->moved, &w->lock, &waited_ms, limit_ms))
        ;
    m = w->cut[from] ? NULL : *at;
    if (m)
        *at = m->next;
    pthread_mutex_unlock(&w->lock);
    return m;
}

static int wait(struct ntx_net *n, uint32_t limit_ms)
{
    int rc = 0;
    for (unsigned i = 0; i < n->n_wanted && !rc; i++) {
        struct message *m = receive(n, n->wanted[i].from, limit_ms, NULL);
        rc = m ? 0 : -ETIMEDOUT;
        if (m) {
            CHECK(m->n <= n->wanted[i].n);
            memcpy(n->wanted[i].to, m->bytes, m->n);
            free(m);
        }
    }
    n->n_wanted = 0;
    return rc;
}

static int next(struct ntx_net *n, uint32_t from, const void **bytes, size_t *len, uint32_t limit_ms,
                const atomic_bool *stop)
{
    free(n->last);
    n->last = receive(n, from, limit_ms ? limit_ms : UINT32_MAX, stop);
    if (!n->last && n->wire->cut[from])
        return -EIO;
    if (!n->last)
        return stop && atomic_load(stop) ? -ECANCELED : -ETIMEDOUT;
    *bytes = n->last->bytes;
    *len = n->last->n;
    return 0;
}

static int gather(struct ntx_net *n, const void *mine, size_t len, void *all)
{
    for (uint32_t i = 0; i < n->wire->size; i++)
        if (i != n->rank) {
            send(n, i, mine, len);
            take(n, i, (uint8_t *)all + i * len, len);
        }
    memcpy((uint8_t *)all + n->rank * len, mine, len);
    return wait(n, 60000);
}

const struct ntx_net_ops net_threads = {
    .abi = NTX_NET_ABI,
    .rank = rank,
    .size = size,
    .name = name,
    .gather = gather,
    .send = send,
    .take = take,
    .wait = wait,
    .next = next,
    .error = error,
};
