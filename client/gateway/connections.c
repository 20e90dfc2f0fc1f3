/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/connections.h"

#include <stdlib.h>
#include <sys/socket.h>

int ntx_connections_init(struct ntx_connections *g, unsigned most)
{
    *g = (struct ntx_connections){.most = most};
    return -pthread_mutex_init(&g->lock, NULL);
}

void ntx_connections_end(struct ntx_connections *g) { pthread_mutex_destroy(&g->lock); }

static void unlink_connection(struct ntx_connections *g, struct ntx_connection *s)
{
    *(s->older ? &s->older->younger : &g->oldest) = s->younger;
    *(s->younger ? &s->younger->older : &g->youngest) = s->older;
    s->older = s->younger = NULL;
}

static void link_youngest(struct ntx_connections *g, struct ntx_connection *s)
{
    s->older = g->youngest;
    *(s->older ? &s->older->younger : &g->oldest) = s;
    g->youngest = s;
}

/* The connection's thread notices the end of its socket and closes it. */
static void cut_oldest(struct ntx_connections *g)
{
    struct ntx_connection *s = g->oldest;
    unlink_connection(g, s);
    s->cut = true;
    g->n--;
    shutdown(s->fd, SHUT_RDWR);
}

struct ntx_connection *ntx_connection_new(struct ntx_connections *g, int fd)
{
    struct ntx_connection *s = calloc(1, sizeof *s);
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

void ntx_connection_gone(struct ntx_connections *g, struct ntx_connection *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&g->lock);
    if (!s->cut) {
        if (!s->kept)
            unlink_connection(g, s);
        g->n--;
    }
    pthread_mutex_unlock(&g->lock);
    free(s);
}

void ntx_connection_set_active(struct ntx_connections *g, struct ntx_connection *s, bool kept)
{
    if (!s)
        return;
    pthread_mutex_lock(&g->lock);
    if (!s->cut && s->kept != kept) {
        s->kept = kept;
        if (kept)
            unlink_connection(g, s);
        else
            link_youngest(g, s);
    }
    pthread_mutex_unlock(&g->lock);
}
