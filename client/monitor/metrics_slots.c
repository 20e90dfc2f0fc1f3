/* SPDX-License-Identifier: Apache-2.0 */
#include "client/monitor/metrics_slots.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>

struct ntx_slot {
    TAILQ_ENTRY(ntx_slot) link;
    int fd;
    bool gone;
};

void ntx_slots_init(struct ntx_slots *s, unsigned most)
{
    *s = (struct ntx_slots){.most = most};
    TAILQ_INIT(&s->taken);
}

static void cut_off(struct ntx_slots *s, struct ntx_slot *slot)
{
    TAILQ_REMOVE(&s->taken, slot, link);
    s->n--;
    slot->gone = true;
    shutdown(slot->fd, SHUT_RDWR);
}

static void *take_slot(struct ntx_slots *s, struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct ntx_slot *slot = info ? calloc(1, sizeof *slot) : NULL;
    if (!slot)
        return NULL; /* libmicrohttpd's own limits remain */
    slot->fd = info->connect_fd;
    TAILQ_INSERT_TAIL(&s->taken, slot, link);
    if (++s->n > s->most)
        cut_off(s, TAILQ_FIRST(&s->taken));
    return slot;
}

static void free_slot(struct ntx_slots *s, struct ntx_slot *slot)
{
    if (slot && !slot->gone) {
        TAILQ_REMOVE(&s->taken, slot, link);
        s->n--;
    }
    free(slot);
}

void ntx_slots_notify(void *arg, struct MHD_Connection *c, void **context, enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        *context = take_slot(arg, c);
    else
        free_slot(arg, *context);
}
