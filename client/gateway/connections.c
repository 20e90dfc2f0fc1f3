/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/guests.h"

#include <stdlib.h>
#include <sys/socket.h>

int ntx_guests_init(struct ntx_guests *g, unsigned most)
{
    *g = (struct ntx_guests){.most = most};
    return -pthread_mutex_init(&g->lock, NULL);
}

void ntx_guests_end(struct ntx_guests *g) { pthread_mutex_destroy(&g->lock); }

static void unlink_guest(struct ntx_guests *g, struct ntx_guest *s)
{
    *(s->older ? &s->older->younger : &g->oldest) = s->younger;
    *(s->younger ? &s->younger->older : &g->youngest) = s->older;
    s->older = s->younger = NULL;
}

static void link_youngest(struct ntx_guests *g, struct ntx_guest *s)
{
    s->older = g->youngest;
    *(s->older ? &s->older->younger : &g->oldest) = s;
    g->youngest = s;
}

/* Its thread sees the end of its socket, and closes it. */
static void cut_oldest(struct ntx_guests *g)
{
    struct ntx_guest *s = g->oldest;
    unlink_guest(g, s);
    s->cut = true;
    g->n--;
    shutdown(s->fd, SHUT_RDWR);
}

struct ntx_guest *ntx_guest_new(struct ntx_guests *g, int fd)
{
    struct ntx_guest *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->fd = fd;
    pthread_mutex_lock(&g->lock);
    if (g->n >= g->most && g->oldest)
        cut_oldest(g);
    link_youngest(g, s);
    g->n++;
    pthread_mutex_unlock(&g->lock);
    return s;
}

void ntx_guest_gone(struct ntx_guests *g, struct ntx_guest *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&g->lock);
    if (!s->cut) {
        if (!s->kept)
            unlink_guest(g, s);
        g->n--;
    }
    pthread_mutex_unlock(&g->lock);
    free(s);
}

void ntx_guest_keep(struct ntx_guests *g, struct ntx_guest *s, bool kept)
{
    if (!s)
        return;
    pthread_mutex_lock(&g->lock);
    if (!s->cut && s->kept != kept) {
        s->kept = kept;
        if (kept)
            unlink_guest(g, s);
        else
            link_youngest(g, s);
    }
    pthread_mutex_unlock(&g->lock);
}
