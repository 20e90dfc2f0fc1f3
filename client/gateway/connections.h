/* SPDX-License-Identifier: Apache-2.0 */
/* guests.h: who has a connection, and who must leave when they are many. A stranger costs us a connection for as long
 * as he likes: a header that comes byte by byte, one that never comes, an answer that nobody reads. So one that is
 * served is kept, and of the others the oldest goes as soon as there are more than some: whoever sends what he has to
 * say at once gets his place, and strangers take it from each other.
 *
 *   accepted --> stranger --request whole, its key right--> kept --answered--> stranger, of the youngest age more than
 *     MOST: the oldest stranger is cut off
 *
 * Of all threads. */
#ifndef NTX_CLIENT_GATEWAY_GUESTS_H
#define NTX_CLIENT_GATEWAY_GUESTS_H

#include <pthread.h>
#include <stdbool.h>

struct ntx_guest {
    struct ntx_guest *older, *younger; /* among strangers */
    int fd;
    bool kept, cut;
};

struct ntx_guests {
    pthread_mutex_t lock;
    struct ntx_guest *oldest, *youngest; /* strangers that are not cut off */
    unsigned n, most;                    /* all connections but those cut off; more than these, and a stranger goes */
};

int ntx_guests_init(struct ntx_guests *g, unsigned most);
void ntx_guests_end(struct ntx_guests *g); /* when all have gone */
/* A new one, a stranger. fd: its socket, open until ntx_guest_gone. NULL: no memory; such a one is not counted. */
struct ntx_guest *ntx_guest_new(struct ntx_guests *g, int fd);
void ntx_guest_gone(struct ntx_guests *g, struct ntx_guest *s);            /* NULL is fine */
void ntx_guest_keep(struct ntx_guests *g, struct ntx_guest *s, bool kept); /* NULL is fine; false: a stranger again */

#endif
