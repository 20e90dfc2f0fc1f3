/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: which client is next, which gives up its slot and when, and which is cut off. The addresses are those of
 * loopback sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/gateway/slots.h"
#include "tests/lib/check.h"

#define S 1000000000ull

/* Our end of a connection from 127.0.0.X; *theirs is the other one. */
static int from(unsigned x, int *theirs)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, b = a;
    socklen_t n = sizeof a;
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
    b.sin_addr.s_addr = htonl(0x7f000000 | x);
    CHECK(l >= 0 && c >= 0 && !bind(l, (struct sockaddr *)&a, sizeof a) && !listen(l, 1) &&
          !getsockname(l, (struct sockaddr *)&a, &n));
    CHECK(!bind(c, (struct sockaddr *)&b, sizeof b) && !connect(c, (struct sockaddr *)&a, sizeof a));
    int s = accept(l, NULL, NULL);
    CHECK(s >= 0);
    close(l);
    *theirs = c;
    return s;
}

static bool is_cut(int theirs)
{
    char c;
    return recv(theirs, &c, 1, MSG_DONTWAIT) == 0;
}

static struct ntx_slot *keyed(struct ntx_slots *s, int fd, const char *key)
{
    struct ntx_slot *t;
    CHECK_EQ(ntx_slot_new(s, &(struct ntx_caller){.fd = fd, .key = key}, 0, &t), 0);
    return t;
}

static struct ntx_slot *slot(struct ntx_slots *s, int fd) { return keyed(s, fd, NULL); }

static bool readable(const struct ntx_slot *t)
{
    struct pollfd p = {.fd = ntx_slot_fd(t), .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* One address has three waiting clients: another address that comes last is next, since it holds fewest slots. */
static void test_addresses(void)
{
    struct ntx_slots s;
    int other[2], a = from(1, &other[0]), b = from(2, &other[1]);
    CHECK_EQ(ntx_slots_init(&s, &(struct ntx_slots_config){.most = 2, .address_most = 2, .parked_most = 1}), 0);
    struct ntx_slot *a1 = slot(&s, a), *a2 = slot(&s, a), *a3 = slot(&s, a), *a4 = slot(&s, a), *b1 = slot(&s, b),
                    *b2 = slot(&s, b);
    CHECK(ntx_slot_held(a1) && ntx_slot_held(a2) && !ntx_slot_held(a3) && !ntx_slot_held(a4) && !ntx_slot_held(b1));
    ntx_slot_free(a1);
    CHECK(readable(b1) && ntx_slot_held(b1) && !ntx_slot_held(a3));
    ntx_slot_free(a2); /* a holds none now, b one */
    CHECK(ntx_slot_held(a3) && !ntx_slot_held(b2) && !ntx_slot_held(a4));
    ntx_slot_free(a3);
    CHECK(ntx_slot_held(a4) && !ntx_slot_held(b2));
    ntx_slot_free(b1);
    CHECK(ntx_slot_held(b2));
    ntx_slot_free(a4);
    ntx_slot_free(b2);
    ntx_slots_end(&s);
    close(a), close(b), close(other[0]), close(other[1]);
}

/* Clients of one address are told apart by their keys: one that comes last is next, since it holds fewest slots. The
 * address counts first, so further keys give an address no more than its turn. */
static void test_keys(void)
{
    struct ntx_slots s;
    int other[2], a = from(1, &other[0]), b = from(2, &other[1]);
    CHECK_EQ(ntx_slots_init(&s, &(struct ntx_slots_config){.most = 3, .address_most = 3, .parked_most = 1}), 0);
    struct ntx_slot *x[5], *y, *z;
    for (int i = 0; i < 5; i++)
        x[i] = keyed(&s, a, "Bearer x");
    y = keyed(&s, a, "Bearer y");
    CHECK(ntx_slot_client(x[0]) == ntx_slot_client(x[4]) && ntx_slot_client(x[0]) != ntx_slot_client(y));
    CHECK(ntx_slot_held(x[2]) && !ntx_slot_held(x[3]) && !ntx_slot_held(y));
    ntx_slot_free(x[0]);
    CHECK(ntx_slot_held(y) && !ntx_slot_held(x[3]));
    z = keyed(&s, b, "Bearer x");
    CHECK(ntx_slot_client(z) != ntx_slot_client(x[1]) && !ntx_slot_held(z));
    struct ntx_slot *w = keyed(&s, a, "Bearer w");
    ntx_slot_free(x[1]);
    CHECK(ntx_slot_held(z) && !ntx_slot_held(w));
    ntx_slot_free(x[2]);
    CHECK(ntx_slot_held(x[3]) && !ntx_slot_held(w)); /* x holds none, either, and came first */
    ntx_slot_free(y);
    CHECK(ntx_slot_held(w) && !ntx_slot_held(x[4]));
    ntx_slot_free(x[3]), ntx_slot_free(x[4]), ntx_slot_free(z), ntx_slot_free(w);
    ntx_slots_end(&s);
    close(a), close(b), close(other[0]), close(other[1]);
}

/* If other machines connect, one address leaves a slot to them, and one of its stalled streams gives way. */
static void test_share_of_address(void)
{
    struct ntx_slots s;
    int other[2], a = from(1, &other[0]), b = from(2, &other[1]);
    CHECK_EQ(ntx_slots_init(&s, &(struct ntx_slots_config){.most = 3, .address_most = 2, .parked_most = 1}), 0);
    struct ntx_slot *a1 = slot(&s, a), *a2 = slot(&s, a), *a3 = slot(&s, a), *b1 = slot(&s, b);
    CHECK(ntx_slot_held(a1) && ntx_slot_held(a2) && !ntx_slot_held(a3) && ntx_slot_held(b1));
    ntx_slot_takes(b1, true, 1 * S);
    ntx_slots_look(&s, 9 * S); /* b's slot would not help a3 */
    CHECK(ntx_slot_held(b1) && !ntx_slot_held(a3));
    ntx_slot_takes(a2, true, 2 * S);
    ntx_slots_look(&s, 9 * S);
    CHECK(ntx_slot_held(b1) && ntx_slot_held(a3));
    ntx_slot_free(a1), ntx_slot_free(a2), ntx_slot_free(a3), ntx_slot_free(b1);
    ntx_slots_end(&s);
    close(a), close(b), close(other[0]), close(other[1]);
}

/* No client loses a slot while none waits, nor within the first second. One that lost its slot waits for one again when
 * it takes replies. Clients beyond the number that may be parked are cut off. */
static void test_stalled(void)
{
    struct ntx_slots s;
    int theirs[3], ours[3], other, b = from(9, &other);
    struct ntx_slot *a[3], *w[4];
    CHECK_EQ(ntx_slots_init(&s, &(struct ntx_slots_config){.most = 3, .address_most = 3, .parked_most = 1}), 0);
    for (int i = 0; i < 3; i++) {
        ours[i] = from(1, &theirs[i]);
        a[i] = slot(&s, ours[i]);
        ntx_slot_takes(a[i], true, (uint64_t)(i + 1) * S);
    }
    ntx_slots_look(&s, 100 * S);
    for (int i = 0; i < 3; i++) {
        CHECK(ntx_slot_held(a[i]));
        ntx_slot_takes(a[i], true, (uint64_t)(i + 1) * S);
    }
    w[0] = slot(&s, b);
    ntx_slots_look(&s, 2 * S);
    CHECK(!ntx_slot_held(w[0])); /* nobody has stalled for more than a second */
    ntx_slots_look(&s, 2 * S + S / 2);
    CHECK(ntx_slot_held(w[0]) && ntx_slot_held(a[1]) && ntx_slot_held(a[2]));
    ntx_slot_takes(a[0], false, 3 * S); /* it takes again */
    CHECK(!ntx_slot_held(a[0]));
    ntx_slot_free(w[0]);
    CHECK(ntx_slot_held(a[0]) && !is_cut(theirs[0]));
    w[0] = slot(&s, b);
    w[1] = slot(&s, b);
    ntx_slots_look(&s, 9 * S); /* a[1] and a[2] give way, and one may be parked: the first to stall is cut off */
    CHECK(ntx_slot_held(w[0]) && ntx_slot_held(w[1]));
    CHECK(is_cut(theirs[1]) && !is_cut(theirs[2]) && !is_cut(theirs[0]));
    CHECK(!ntx_slot_held(a[1]));
    ntx_slot_free(w[0]);
    CHECK(!ntx_slot_held(a[1]) && ntx_slot_held(a[2]));
    for (int i = 0; i < 3; i++)
        ntx_slot_free(a[i]), close(ours[i]), close(theirs[i]);
    ntx_slot_free(w[1]);
    CHECK_EQ(s.held, 0);
    CHECK_EQ(s.parked, 0);
    ntx_slots_end(&s);
    close(b), close(other);
}

static void test_refuse(void)
{
    struct ntx_slots s;
    struct ntx_slot *t;
    CHECK_EQ(ntx_slots_init(&s, &(struct ntx_slots_config){.most = 1, .address_most = 1, .refuse = true}), 0);
    struct ntx_slot *a = slot(&s, -1);
    CHECK_EQ(ntx_slot_new(&s, &(struct ntx_caller){.fd = -1}, 0, &t), -EBUSY);
    ntx_slot_free(a);
    CHECK_EQ(ntx_slot_new(&s, &(struct ntx_caller){.fd = -1}, 0, &t), 0);
    ntx_slot_free(t);
    ntx_slots_end(&s);
}

static void test_shares(void)
{
    struct ntx_slots_config c = ntx_slots_share(24, true);
    CHECK(c.most == 16 && c.address_most == 16 && c.parked_most == 5);
    c = ntx_slots_share(24, false);
    CHECK(c.most == 16 && c.address_most == 13);
    c = ntx_slots_share(5, false);
    CHECK(c.most == 3 && c.address_most == 2 && c.parked_most == 0);
    for (unsigned n = 1; n < 100; n++) {
        c = ntx_slots_share(n, n & 1);
        CHECK(c.most >= 1 && c.address_most >= 1 && c.address_most <= c.most &&
              (n < 4 || c.most + c.parked_most + 2 <= n));
    }
}

int main(void)
{
    test_addresses();
    test_keys();
    test_share_of_address();
    test_stalled();
    test_refuse();
    test_shares();
    return 0;
}
