/* SPDX-License-Identifier: Apache-2.0 */
/* net.h: the network between machines that share a model: a table of functions. The plug-in libntx-mpi.so (net.c)
 * implements it over MPI and is opened at run time, so that only users of several machines need MPI; the tests
 * implement it over threads.
 *
 * Every machine is a rank. Messages between two ranks arrive in the order of sending. One thread at a time calls.
 * Functions return 0 or a negative errno; error() then gives the text. Buffers of send and take belong to the call
 * until `wait` has returned. */
#ifndef NTX_COMPUTED_RANKS_NET_H
#define NTX_COMPUTED_RANKS_NET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NTX_NET_ABI    2u
#define NTX_NET_SYMBOL "ntx_net_ops"
#define NTX_NET_NAME   64u

struct ntx_net;

/* Emulates a slower network on one machine: a message counts as arrived only when it would be. 0: no emulation. */
struct ntx_net_link {
    double bytes_per_s;
    double latency_s; /* per message */
};

struct ntx_net_ops {
    uint32_t abi;
    /* Joins the others; returns when all have joined. why [n]: text of a failure. */
    int (*open)(struct ntx_net **out, char *why, size_t n);
    void (*close)(struct ntx_net *net, bool together); /* together: waits until all others close, too */
    void (*link)(struct ntx_net *net, const struct ntx_net_link *link); /* the same on all ranks, between messages */
    uint32_t (*rank)(const struct ntx_net *net);
    uint32_t (*size)(const struct ntx_net *net);
    const char *(*name)(const struct ntx_net *net); /* of this machine, below NTX_NET_NAME bytes */
    /* all: n bytes of each rank, on every rank. */
    int (*gather)(struct ntx_net *net, const void *mine, size_t n, void *all);
    int (*send)(struct ntx_net *net, uint32_t to, const void *bytes, size_t n);
    /* Receives the next message from that rank, of at most n bytes. */
    int (*take)(struct ntx_net *net, uint32_t from, void *bytes, size_t n);
    /* Waits for everything begun; -ETIMEDOUT: the network is unusable afterwards. */
    int (*wait)(struct ntx_net *net, uint32_t limit_ms);
    /* Receives a rank's next message, of any length; *bytes is valid until the next call. -ECANCELED once *stop is set;
     * limit_ms 0: no limit, else like `wait`. */
    int (*next)(struct ntx_net *net, uint32_t from, const void **bytes, size_t *n, uint32_t limit_ms,
                const atomic_bool *stop);
    const char *(*error)(const struct ntx_net *net);
};

#endif
