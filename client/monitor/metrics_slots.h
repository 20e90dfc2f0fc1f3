/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_seats.h: who is connected to ntx-metrics. An answer takes no time, so whoever stays for long wants none: when
 * all seats are taken, the one who came first has to go. So no number of connections that send nothing, or a byte now
 * and then, keeps Prometheus out.
 *
 * All of it runs in libmicrohttpd's thread. */
#ifndef NTX_CLIENT_MONITOR_METRICS_SEATS_H
#define NTX_CLIENT_MONITOR_METRICS_SEATS_H

#include <microhttpd.h>
#include <sys/queue.h>

struct ntx_seat;
TAILQ_HEAD(ntx_seat_list, ntx_seat);

struct ntx_seats {              /* set up by ntx_seats_init */
    struct ntx_seat_list taken; /* whoever came first stands first; those who were told to go are not in it */
    unsigned n, most;
};

void ntx_seats_init(struct ntx_seats *s, unsigned most);

/* For MHD_OPTION_NOTIFY_CONNECTION; arg is the struct ntx_seats. A connection that is sent away is shut down:
 * libmicrohttpd closes it then. */
void ntx_seats_notify(void *arg, struct MHD_Connection *c, void **context, enum MHD_ConnectionNotificationCode what);

#endif
