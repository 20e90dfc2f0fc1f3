/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_slots.h: the connections of ntx-metrics. An answer takes no time, so that a connection that stays long is
 * useless: when all slots are taken, the oldest connection is cut off. So no number of connections that send
 * nothing, or a byte now and then, keeps Prometheus out.
 *
 * All of it runs in libmicrohttpd's thread. */
#ifndef NTX_CLIENT_MONITOR_METRICS_SLOTS_H
#define NTX_CLIENT_MONITOR_METRICS_SLOTS_H

#include <microhttpd.h>
#include <sys/queue.h>

struct ntx_slot;
TAILQ_HEAD(ntx_slot_list, ntx_slot);

struct ntx_slots {              /* set up by ntx_slots_init */
    struct ntx_slot_list taken; /* the oldest first; without those that were cut off */
    unsigned n, most;
};

void ntx_slots_init(struct ntx_slots *s, unsigned most);

/* For MHD_OPTION_NOTIFY_CONNECTION; arg is the struct ntx_slots. A connection that is cut off is shut down:
 * libmicrohttpd then closes it. */
void ntx_slots_notify(void *arg, struct MHD_Connection *c, void **context, enum MHD_ConnectionNotificationCode what);

#endif
