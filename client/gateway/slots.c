/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/slots.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/util.h"

enum { SLOTS = 16, PARKED = 6, LOOKS = 2, STALLED_MS = 1000, ADDRESS = 16 };

enum state { WAITING, HELD, PARKED_NOW, CUT };

struct ntx_slot {
    struct ntx_slot *next;
    struct ntx_slots *of;
    enum state state;
    int wake, client;
    uint8_t address[ADDRESS];
    uint64_t by; /* the client: a hash of its address and its key */
    bool takes;
    uint64_t since_ns; /* with takes: when that began */
};

struct ntx_slots_config ntx_slots_share(unsigned clients, bool local)
{
    const unsigned rest = clients > LOOKS ? clients - LOOKS : 1, parked = NTX_MIN(rest / 4, (unsigned)PARKED);
    const unsigned most = NTX_MIN(rest - parked, (unsigned)SLOTS), others = local ? 0 : NTX_MIN(most / 8 + 1, most - 1);
    return (struct ntx_slots_config){.most = most, .address_most = most - others, .parked_most = parked};
}

int ntx_slots_init(struct ntx_slots *s, const struct ntx_slots_config *c)
{
    *s = (struct ntx_slots){.c = *c};
    return -pthread_mutex_init(&s->lock, NULL);
}

void ntx_slots_end(struct ntx_slots *s) { pthread_mutex_destroy(&s->lock); }

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

/* FNV-1a. Whoever finds two keys with one hash is only one client more seldom. */
static uint64_t hash_bytes(uint64_t h, const void *p, size_t n)
{
    for (const uint8_t *b = p; n; n--)
        h = (h ^ *b++) * 0x100000001b3;
    return h;
}

static uint64_t hash_client(const uint8_t address[ADDRESS], const char *key)
{
    uint64_t h = hash_bytes(0xcbf29ce484222325, address, ADDRESS);
    h = hash_bytes(h, key ? key : "", key ? strlen(key) : 0);
    return h ? h : 1;
}

/* ---- with the lock held */

static unsigned held_by(const struct ntx_slots *s, const uint8_t address[ADDRESS])
{
    unsigned n = 0;
    for (const struct ntx_slot *t = s->first; t; t = t->next)
        n += t->state == HELD && !memcmp(t->address, address, ADDRESS);
    return n;
}

static unsigned held_by_client(const struct ntx_slots *s, uint64_t client)
{
    unsigned n = 0;
    for (const struct ntx_slot *t = s->first; t; t = t->next)
        n += t->state == HELD && t->by == client;
    return n;
}

static struct ntx_slot *next_one(const struct ntx_slots *s)
{
    struct ntx_slot *best = NULL;
    unsigned least = s->c.address_most, least_client = 0;
    for (struct ntx_slot *t = s->first; t; t = t->next) {
        unsigned has = t->state == WAITING ? held_by(s, t->address) : UINT32_MAX, client = held_by_client(s, t->by);
        if (has > least || has >= s->c.address_most || (has == least && client >= least_client))
            continue;
        best = t;
        least = has;
        least_client = client;
    }
    return best;
}

static void wake_waiter(struct ntx_slot *t)
{
    uint64_t one = 1;
    if (write(t->wake, &one, sizeof one) != sizeof one)
        return; /* it is readable already */
}

static void give_slots(struct ntx_slots *s)
{
    for (struct ntx_slot *t; s->held < s->c.most && (t = next_one(s));) {
        t->state = HELD;
        t->takes = false;
        s->held++;
        wake_waiter(t);
    }
}

static void leave_line(struct ntx_slot *t)
{
    t->of->held -= t->state == HELD;
    t->of->parked -= t->state == PARKED_NOW;
}

static void unlink_slot(struct ntx_slot *t)
{
    struct ntx_slot **p = &t->of->first;
    while (*p != t)
        p = &(*p)->next;
    *p = t->next;
}

static void line_up(struct ntx_slot *t)
{
    struct ntx_slot **p = &t->of->first;
    while (*p)
        p = &(*p)->next;
    t->next = NULL;
    t->state = WAITING;
    *p = t;
}

/* The longest stalled stream in this state. only: of this address; NULL: of any. */
static struct ntx_slot *most_stalled(const struct ntx_slots *s, enum state state, const uint8_t *only)
{
    struct ntx_slot *best = NULL;
    for (struct ntx_slot *t = s->first; t; t = t->next)
        if (t->state == state && t->takes && (!only || !memcmp(t->address, only, ADDRESS)) &&
            (!best || t->since_ns < best->since_ns))
            best = t;
    return best;
}

/* The stream's thread notices the end of its socket. */
static void cut_one(struct ntx_slots *s)
{
    struct ntx_slot *t = most_stalled(s, PARKED_NOW, NULL);
    if (!t)
        return;
    ntx_log(NTX_LOG_WARN, "a client takes nothing of its stream, and %u more do so: it is cut off", s->c.parked_most);
    s->parked--;
    t->state = CUT;
    if (t->client >= 0)
        shutdown(t->client, SHUT_RDWR);
}

static void park(struct ntx_slots *s, struct ntx_slot *t)
{
    t->state = PARKED_NOW;
    s->held--;
    if (++s->parked > s->c.parked_most)
        cut_one(s);
    give_slots(s);
}

static void park_stalled(struct ntx_slots *s, uint64_t now)
{
    for (struct ntx_slot *t = s->first; t; t = t->next) {
        if (t->state != WAITING)
            continue;
        /* For an address at its limit, another address's slot would be of no use. */
        const uint8_t *only = held_by(s, t->address) >= s->c.address_most ? t->address : NULL;
        struct ntx_slot *by = most_stalled(s, HELD, only);
        if (by && now > by->since_ns && now - by->since_ns > STALLED_MS * 1000000ull)
            park(s, by);
    }
}

/* ---- */

void ntx_slots_look(struct ntx_slots *s, uint64_t now)
{
    pthread_mutex_lock(&s->lock);
    park_stalled(s, now);
    pthread_mutex_unlock(&s->lock);
}

int ntx_slot_new(struct ntx_slots *s, const struct ntx_caller *by, uint64_t now, struct ntx_slot **out)
{
    struct ntx_slot *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    *t = (struct ntx_slot){.of = s, .client = by->fd, .wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    if (t->wake < 0) {
        int rc = -errno;
        free(t);
        return rc;
    }
    address_of(by->fd, t->address);
    t->by = hash_client(t->address, by->key);
    pthread_mutex_lock(&s->lock);
    line_up(t);
    give_slots(s);
    park_stalled(s, now);
    bool refused = s->c.refuse && t->state != HELD;
    pthread_mutex_unlock(&s->lock);
    if (refused) {
        ntx_slot_free(t);
        return -EBUSY;
    }
    *out = t;
    return 0;
}

void ntx_slot_free(struct ntx_slot *t)
{
    if (!t)
        return;
    struct ntx_slots *s = t->of;
    pthread_mutex_lock(&s->lock);
    leave_line(t);
    unlink_slot(t);
    give_slots(s);
    pthread_mutex_unlock(&s->lock);
    close(t->wake);
    free(t);
}

bool ntx_slot_held(struct ntx_slot *t)
{
    uint64_t n;
    pthread_mutex_lock(&t->of->lock);
    if (t->state == PARKED_NOW) {
        leave_line(t);
        unlink_slot(t);
        line_up(t);
        give_slots(t->of);
    }
    bool held = t->state == HELD;
    if (read(t->wake, &n, sizeof n) < 0)
        n = 0; /* there was nothing to read */
    pthread_mutex_unlock(&t->of->lock);
    return held;
}

int ntx_slot_fd(const struct ntx_slot *t) { return t->wake; }

uint64_t ntx_slot_client(const struct ntx_slot *t) { return t->by; }

void ntx_slot_takes(struct ntx_slot *t, bool takes, uint64_t now)
{
    pthread_mutex_lock(&t->of->lock);
    t->takes = takes;
    t->since_ns = now;
    pthread_mutex_unlock(&t->of->lock);
}
