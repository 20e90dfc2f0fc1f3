/* SPDX-License-Identifier: Apache-2.0 */
/* seats.h: who may have something computed. ntx-computed has few connections, so there are few seats, and who finds
 * none waits in line.
 *
 *   WAITING --the next in line--> HELD --its client takes nothing for a second, and somebody waits--> PARKED
 *      ^--------------------------------------- its client takes again ----------------------------------'
 *
 * The next one is of the address that holds the fewest seats, and of those who came first: so an address with many
 * connections keeps no other waiting. Where other machines may come,
 * one address never has all seats. An IPv6 address counts by its first 64 bits, which one machine has to itself.
 *
 * A parked stream keeps the answer that is under way (computed lets it rest, and takes nothing else for it), and goes
 * on when a seat is free again. Only so many are parked: of more, the one that has been so for longest is cut off. All
 * are cut off when they take nothing for `stall` (http.h).
 *
 * Any thread; a seat is its own thread's. */
#ifndef NTX_CLIENT_GATEWAY_SEATS_H
#define NTX_CLIENT_GATEWAY_SEATS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct ntx_seats_config {
    unsigned most, address_most; /* seats; those of one address */
    unsigned parked_most;
    bool refuse; /* nobody waits: who finds no seat is told so */
};

/* Of `clients` connections that computed gives one user: some are for those who only look, some for the parked. */
struct ntx_seats_config ntx_seats_share(unsigned clients, bool local);

struct ntx_seats {
    struct ntx_seats_config c;
    pthread_mutex_t lock;
    struct ntx_seat *first; /* all, in the order in which they stood in line */
    unsigned held, parked;
};
int ntx_seats_init(struct ntx_seats *s, const struct ntx_seats_config *c);
void ntx_seats_end(struct ntx_seats *s);
/* Stalled streams give their seats to requests that wait; now: in nanoseconds. Whoever waits calls it every
 * NTX_SEATS_LOOK_MS. */
void ntx_seats_look(struct ntx_seats *s, uint64_t now);
#define NTX_SEATS_LOOK_MS 250

struct ntx_seat;
/* One that stands in line. client_fd: its client's socket, as long as the seat is there; -1: none. -ENOMEM, -EMFILE,
 * -ENFILE; -EBUSY: nobody waits here. */
int ntx_seat_new(struct ntx_seats *s, int client_fd, uint64_t now, struct ntx_seat **out);
void ntx_seat_free(struct ntx_seat *t);    /* NULL is fine */
bool ntx_seat_held(struct ntx_seat *t);    /* false: it waits, or is parked: then it stands in line again */
int ntx_seat_fd(const struct ntx_seat *t); /* becomes readable when it is held */
/* true: there is something for its client to take, and nothing else to do; false: it was taken. */
void ntx_seat_client(struct ntx_seat *t, bool takes, uint64_t now);

#endif
