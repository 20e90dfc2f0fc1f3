/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/seats.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/util.h"

enum { SEATS = 16, PARKED = 6, LOOKS = 2, STALLED_MS = 1000, ADDRESS = 16 };

enum state { WAITING, HELD, PARKED_NOW, CUT };

struct ntx_seat {
    struct ntx_seat *next;
    struct ntx_seats *of;
    enum state state;
    int wake, client;
    uint8_t address[ADDRESS];
    bool takes;
    uint64_t since_ns; /* with takes: when that began */
};

struct ntx_seats_config ntx_seats_share(unsigned clients, bool local)
{
    const unsigned rest = clients > LOOKS ? clients - LOOKS : 1, parked = NTX_MIN(rest / 4, (unsigned)PARKED);
    const unsigned most = NTX_MIN(rest - parked, (unsigned)SEATS), others = local ? 0 : NTX_MIN(most / 8 + 1, most - 1);
    return (struct ntx_seats_config){.most = most, .address_most = most - others, .parked_most = parked};
}

int ntx_seats_init(struct ntx_seats *s, const struct ntx_seats_config *c)
{
    *s = (struct ntx_seats){.c = *c};
    return -pthread_mutex_init(&s->lock, NULL);
}

void ntx_seats_end(struct ntx_seats *s) { pthread_mutex_destroy(&s->lock); }

static void address_of(int fd, uint8_t to[ADDRESS])
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage room;
    } a = {0};
    socklen_t n = sizeof a;
    memset(to, 0, ADDRESS);
    if (fd < 0 || getpeername(fd, &a.any, &n))
        return;
    to[0] = (uint8_t)a.any.sa_family;
    if (a.any.sa_family == AF_INET)
        memcpy(to + 8, &a.v4.sin_addr, 4);
    else if (a.any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a.v6.sin6_addr)) {
        to[0] = AF_INET;
        memcpy(to + 8, a.v6.sin6_addr.s6_addr + 12, 4);
    } else if (a.any.sa_family == AF_INET6)
        memcpy(to + 8, a.v6.sin6_addr.s6_addr, 8);
}

/* ---- with the lock */

static unsigned held_by(const struct ntx_seats *s, const uint8_t address[ADDRESS])
{
    unsigned n = 0;
    for (const struct ntx_seat *t = s->first; t; t = t->next)
        n += t->state == HELD && !memcmp(t->address, address, ADDRESS);
    return n;
}

static struct ntx_seat *next_one(const struct ntx_seats *s)
{
    struct ntx_seat *best = NULL;
    unsigned least = s->c.address_most;
    for (struct ntx_seat *t = s->first; t && least; t = t->next) {
        unsigned has = t->state == WAITING ? held_by(s, t->address) : UINT32_MAX;
        if (has >= least)
            continue;
        best = t;
        least = has;
    }
    return best;
}

static void wake(struct ntx_seat *t)
{
    uint64_t one = 1;
    if (write(t->wake, &one, sizeof one) != sizeof one)
        return; /* it is readable already */
}

static void give(struct ntx_seats *s)
{
    for (struct ntx_seat *t; s->held < s->c.most && (t = next_one(s));) {
        t->state = HELD;
        t->takes = false;
        s->held++;
        wake(t);
    }
}

static void leave(struct ntx_seat *t)
{
    t->of->held -= t->state == HELD;
    t->of->parked -= t->state == PARKED_NOW;
}

static void unlink_seat(struct ntx_seat *t)
{
    struct ntx_seat **p = &t->of->first;
    while (*p != t)
        p = &(*p)->next;
    *p = t->next;
}

static void line_up(struct ntx_seat *t)
{
    struct ntx_seat **p = &t->of->first;
    while (*p)
        p = &(*p)->next;
    t->next = NULL;
    t->state = WAITING;
    *p = t;
}

/* The longest stalled of the streams in this state. only: of this address;
 * NULL: of any. */
static struct ntx_seat *most_stalled(const struct ntx_seats *s, enum state state, const uint8_t *only)
{
    struct ntx_seat *best = NULL;
    for (struct ntx_seat *t = s->first; t; t = t->next)
        if (t->state == state && t->takes && (!only || !memcmp(t->address, only, ADDRESS)) &&
            (!best || t->since_ns < best->since_ns))
            best = t;
    return best;
}

/* Its thread sees the end of its socket. */
static void cut_one(struct ntx_seats *s)
{
    struct ntx_seat *t = most_stalled(s, PARKED_NOW, NULL);
    if (!t)
        return;
    ntx_log(NTX_LOG_WARN, "a client takes nothing of its stream, and %u more do so: it is cut off", s->c.parked_most);
    s->parked--;
    t->state = CUT;
    if (t->client >= 0)
        shutdown(t->client, SHUT_RDWR);
}

static void park(struct ntx_seats *s, struct ntx_seat *t)
{
    t->state = PARKED_NOW;
    s->held--;
    if (++s->parked > s->c.parked_most)
        cut_one(s);
    give(s);
}

static void look(struct ntx_seats *s, uint64_t now)
{
    for (struct ntx_seat *t = s->first; t; t = t->next) {
        if (t->state != WAITING)
            continue;
        /* Of an address that has all it may have, another's seat would be of no use. */
        const uint8_t *only = held_by(s, t->address) >= s->c.address_most ? t->address : NULL;
        struct ntx_seat *by = most_stalled(s, HELD, only);
        if (by && now > by->since_ns && now - by->since_ns > STALLED_MS * 1000000ull)
            park(s, by);
    }
}

/* ---- */

void ntx_seats_look(struct ntx_seats *s, uint64_t now)
{
    pthread_mutex_lock(&s->lock);
    look(s, now);
    pthread_mutex_unlock(&s->lock);
}

int ntx_seat_new(struct ntx_seats *s, int client_fd, uint64_t now, struct ntx_seat **out)
{
    struct ntx_seat *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    *t = (struct ntx_seat){.of = s, .client = client_fd, .wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    if (t->wake < 0) {
        int rc = -errno;
        free(t);
        return rc;
    }
    address_of(client_fd, t->address);
    pthread_mutex_lock(&s->lock);
    line_up(t);
    give(s);
    look(s, now);
    bool refused = s->c.refuse && t->state != HELD;
    pthread_mutex_unlock(&s->lock);
    if (refused) {
        ntx_seat_free(t);
        return -EBUSY;
    }
    *out = t;
    return 0;
}

void ntx_seat_free(struct ntx_seat *t)
{
    if (!t)
        return;
    struct ntx_seats *s = t->of;
    pthread_mutex_lock(&s->lock);
    leave(t);
    unlink_seat(t);
    give(s);
    pthread_mutex_unlock(&s->lock);
    close(t->wake);
    free(t);
}

bool ntx_seat_held(struct ntx_seat *t)
{
    uint64_t n;
    pthread_mutex_lock(&t->of->lock);
    if (t->state == PARKED_NOW) {
        leave(t);
        unlink_seat(t);
        line_up(t);
        give(t->of);
    }
    bool held = t->state == HELD;
    if (read(t->wake, &n, sizeof n) < 0)
        n = 0; /* nothing was there */
    pthread_mutex_unlock(&t->of->lock);
    return held;
}

int ntx_seat_fd(const struct ntx_seat *t) { return t->wake; }

void ntx_seat_client(struct ntx_seat *t, bool takes, uint64_t now)
{
    pthread_mutex_lock(&t->of->lock);
    t->takes = takes;
    t->since_ns = now;
    pthread_mutex_unlock(&t->of->lock);
}
