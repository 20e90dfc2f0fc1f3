/* SPDX-License-Identifier: Apache-2.0 */
/* net_threads.h: a struct ntx_net over threads of this process, for tests. */
#ifndef NTX_TESTS_UNIT_RANKS_NET_THREADS_H
#define NTX_TESTS_UNIT_RANKS_NET_THREADS_H

#include "computed/ranks/net.h"

struct net_wire; /* shared by all ranks */
struct net_wire *net_wire_new(uint32_t size);
void net_wire_free(struct net_wire *w);
struct ntx_net *net_at(struct net_wire *w, uint32_t rank); /* lives with the wire */
void net_wire_cut(struct net_wire *w, uint32_t rank);      /* nothing comes from that rank any more */
extern const struct ntx_net_ops net_threads;

#endif
