/* SPDX-License-Identifier: Apache-2.0 */
#include "client/monitor/metrics_seats.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>

struct ntx_seat {
    TAILQ_ENTRY(ntx_seat) link;
    int fd;
    bool gone;
};

void ntx_seats_init(struct ntx_seats *s, unsigned most)
{
    *s = (struct ntx_seats){.most = most};
    TAILQ_INIT(&s->taken);
}

static void send_away(struct ntx_seats *s, struct ntx_seat *seat)
{
    TAILQ_REMOVE(&s->taken, seat, link);
    s->n--;
    seat->gone = true;
    shutdown(seat->fd, SHUT_RDWR);
}

static void *sit_down(struct ntx_seats *s, struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct ntx_seat *seat = info ? calloc(1, sizeof *seat) : NULL;
    if (!seat)
        return NULL; /* libmicrohttpd's own limits are left */
    seat->fd = info->connect_fd;
    TAILQ_INSERT_TAIL(&s->taken, seat, link);
    if (++s->n > s->most)
        send_away(s, TAILQ_FIRST(&s->taken));
    return seat;
}

static void stand_up(struct ntx_seats *s, struct ntx_seat *seat)
{
    if (seat && !seat->gone) {
        TAILQ_REMOVE(&s->taken, seat, link);
        s->n--;
    }
    free(seat);
}

void ntx_seats_notify(void *arg, struct MHD_Connection *c, void **context, enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        *context = sit_down(arg, c);
    else
        stand_up(arg, *context);
}
