/* SPDX-License-Identifier: Apache-2.0 */
/* slots.h: which requests may compute. ntx-computed accepts few connections, so there are few slots, and a request
 * without one waits in line.
 *
 *   WAITING --next in line--> HELD --its client takes nothing for a second, and others wait--> PARKED
 *      ^----------------------------- its client takes again ----------------------------------'
 *
 * The next request is that of the address with the fewest slots; among these, of the client with the fewest (an address
 * and an API key); among these, the oldest. So a client with many requests does not keep others waiting. ntx-computed
 * lets the same clients take turns (ntx_slot_client). Where other machines can connect, one address never gets all
 * slots. An IPv6 address counts by its first 64 bits, which belong to one site.
 *
 * A parked stream keeps its unfinished answer (ntx-computed pauses it and takes nothing else for it), and goes on when
 * a slot is free again. The number of parked streams is limited: above it, the one that was parked longest is cut off.
 * All streams are cut off when they take nothing for `stall` (http.h).
 *
 * The set may be used by any thread, a slot by its own thread. */
#ifndef NTX_CLIENT_GATEWAY_SLOTS_H
#define NTX_CLIENT_GATEWAY_SLOTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct ntx_slots_config {
    unsigned most, address_most; /* slots in all, and of one address */
    unsigned parked_most;
    bool refuse; /* without a free slot, a request is refused */
};

/* Shares the `clients` connections that ntx-computed gives one user: some for status requests, some for parked
 * streams, the rest are slots. */
struct ntx_slots_config ntx_slots_share(unsigned clients, bool local);

struct ntx_slots {
    struct ntx_slots_config c;
    pthread_mutex_t lock;
    struct ntx_slot *first; /* all, in the order of their waiting line */
    unsigned held, parked;
};
int ntx_slots_init(struct ntx_slots *s, const struct ntx_slots_config *c);
void ntx_slots_end(struct ntx_slots *s);
/* Takes slots from stalled streams for waiting requests; now: in nanoseconds. Waiting threads call it every
 * NTX_SLOTS_LOOK_MS. */
void ntx_slots_look(struct ntx_slots *s, uint64_t now);
#define NTX_SLOTS_LOOK_MS 250

struct ntx_caller {  /* a client, as its request shows it */
    int fd;          /* its socket; -1: none */
    const char *key; /* the API key that it sent, or NULL */
};

struct ntx_slot;
/* Enters the waiting line. The client's socket stays open as long as the slot exists. -ENOMEM, -EMFILE, -ENFILE;
 * -EBUSY: full, and waiting is disabled. */
int ntx_slot_new(struct ntx_slots *s, const struct ntx_caller *by, uint64_t now, struct ntx_slot **out);
uint64_t ntx_slot_client(const struct ntx_slot *t); /* a number for its client, not 0 */
void ntx_slot_free(struct ntx_slot *t);             /* NULL does nothing */
bool ntx_slot_held(struct ntx_slot *t);             /* false: it waits; after it was parked it is in the line again */
int ntx_slot_fd(const struct ntx_slot *t);          /* becomes readable when the slot is held */
/* true: its client has data to take, and the thread has nothing else to do; false: it took the data. */
void ntx_slot_takes(struct ntx_slot *t, bool takes, uint64_t now);

#endif
