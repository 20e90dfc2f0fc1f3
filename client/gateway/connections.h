/* SPDX-License-Identifier: Apache-2.0 */
/* connections.h: the clients' connections, and which one is cut off when there are too many. An idle connection costs
 * as much as an active one: a header that comes byte by byte or never, an answer that nobody reads. So a connection
 * whose request is served is active and stays; of the idle ones, the oldest is cut off when there are more than `most`.
 *
 *   accepted --> idle --complete request, valid key--> active --answered--> idle, as the youngest
 *
 * For all threads. */
#ifndef NTX_CLIENT_GATEWAY_CONNECTIONS_H
#define NTX_CLIENT_GATEWAY_CONNECTIONS_H

#include <pthread.h>
#include <stdbool.h>

struct ntx_connection {
    struct ntx_connection *older, *younger; /* among idle connections */
    int fd;
    bool kept, cut;
};

struct ntx_connections {
    pthread_mutex_t lock;
    struct ntx_connection *oldest, *youngest; /* idle connections that are not cut off */
    unsigned n, most;                         /* all connections except those cut off; above `most`, an idle one is cut
                                          * off */
};

int ntx_connections_init(struct ntx_connections *g, unsigned most);
void ntx_connections_end(struct ntx_connections *g); /* after all connections are gone */
/* A new connection, idle at first. fd: its socket, open until ntx_connection_gone. NULL: no memory; it is then not
 * counted. */
struct ntx_connection *ntx_connection_new(struct ntx_connections *g, int fd);
void ntx_connection_gone(struct ntx_connections *g, struct ntx_connection *s); /* NULL does nothing */
void ntx_connection_set_active(struct ntx_connections *g, struct ntx_connection *s,
                               bool kept); /* NULL does nothing; false: idle again */

#endif
