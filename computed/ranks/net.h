/* SPDX-License-Identifier: Apache-2.0 */
/* net.h: how machines that share a model reach each other: a table of functions. libntx-mpi.so (net.c) has it over MPI
 * and is opened at run time, so that nobody else needs MPI; the tests have one over threads.
 *
 * Every machine is a rank. Messages between two ranks arrive in the order in which they were begun. One thread at a
 * time calls. Functions return 0 or a negative errno, and error() then has the words. What is sent and what is received
 * into belongs to the call until `wait` has returned. */
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

/* A slower network, played on one machine: what is sent counts as there only when it would be. 0: as it is. */
struct ntx_net_link {
    double bytes_per_s;
    double latency_s; /* of a message */
};

struct ntx_net_ops {
    uint32_t abi;
    /* Joins the others; returns when all have. why [n]: words of a failure. */
    int (*open)(struct ntx_net **out, char *why, size_t n);
    void (*close)(struct ntx_net *net, bool together); /* together: all others close, too, and are waited for */
    void (*link)(struct ntx_net *net, const struct ntx_net_link *link); /* the same on all, between messages */
    uint32_t (*rank)(const struct ntx_net *net);
    uint32_t (*size)(const struct ntx_net *net);
    const char *(*name)(const struct ntx_net *net); /* of this machine, below NTX_NET_NAME bytes */
    int (*gather)(struct ntx_net *net, const void *mine, size_t n,
                  void *all); /* all: n bytes of each rank, in every rank */
    int (*send)(struct ntx_net *net, uint32_t to, const void *bytes, size_t n);
    int (*take)(struct ntx_net *net, uint32_t from, void *bytes,
                size_t n); /* the next message from there, of n bytes at most */
    int (*wait)(struct ntx_net *net,
                uint32_t limit_ms); /* for all that was begun; -ETIMEDOUT: then nothing works any more */
    /* The next message of a rank, of any length; *bytes until the next call. -ECANCELED once *stop is set; limit_ms 0:
     * there is no limit, else as of `wait`. */
    int (*next)(struct ntx_net *net, uint32_t from, const void **bytes, size_t *n, uint32_t limit_ms,
                const atomic_bool *stop);
    const char *(*error)(const struct ntx_net *net);
};

#endif
