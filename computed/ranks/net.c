/* SPDX-License-Identifier: Apache-2.0 */
/* net.c: net.h over MPI, as a plug-in, so that only users of mpirun need MPI.
 *
 * Waiting: MPI's own functions spin, and would take a core from compute threads. Here requests are polled; between
 * polls the core is yielded (sched_yield) while an answer may be near, and then the thread sleeps, longer each time.
 *
 * Emulated link: each message carries its arrival time: when its sender's link was free, plus the time for its bytes,
 * plus the latency. The clock is the machine's, so all ranks must be on one machine. */
#include "computed/ranks/net.h"

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TAG            1
#define MOST_REQUESTS  64
#define YIELD_NS       1000000ull /* time of yielding before the first sleep */
#define SLEEP_LEAST_NS 20000ull
#define SLEEP_MOST_NS  1000000ull

struct request {    /* beside the MPI_Request of the same number */
    void *to;       /* emulated link: the final place of a received message */
    uint8_t *bytes; /* its place until then; or of a message being sent. Owned */
    size_t n;
    uint32_t peer;
};

struct ntx_net {
    MPI_Comm comm;
    int rank, size;
    char name[NTX_NET_NAME];
    char why[MPI_MAX_ERROR_STRING + 64];
    MPI_Request mpi[MOST_REQUESTS];
    struct request of[MOST_REQUESTS];
    int n;
    struct ntx_net_link link;
    uint64_t out_free, in_free; /* ns; of the emulated link */
    uint8_t *last;              /* the message that `next` returned */
    size_t last_bytes;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_ns(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

/* Time during which this process was stopped, or its machine asleep, does not count: the others may have been, too. */
#define STEP_MOST_NS 100000000ull
struct patience {
    uint64_t last, waited, sleep; /* ns */
};

static void be_patient(struct patience *p)
{
    uint64_t now = now_ns();
    if (p->last)
        p->waited += now - p->last < STEP_MOST_NS ? now - p->last : STEP_MOST_NS;
    p->last = now;
    if (p->waited < YIELD_NS) {
        sched_yield();
        return;
    }
    p->sleep = p->sleep ? p->sleep + p->sleep / 4 : SLEEP_LEAST_NS;
    if (p->sleep > SLEEP_MOST_NS)
        p->sleep = SLEEP_MOST_NS;
    sleep_ns(p->sleep);
}

static int failed(struct ntx_net *net, int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (rc == MPI_SUCCESS)
        return 0;
    MPI_Error_string(rc, text, &n);
    snprintf(net->why, sizeof net->why, "%s: %s", what, text);
    return -EIO;
}

/* ---- emulated link */

static bool is_emulated(const struct ntx_net *net) { return net->link.bytes_per_s > 0 || net->link.latency_s > 0; }

static uint64_t passing_ns(const struct ntx_net *net, size_t n)
{
    return net->link.bytes_per_s > 0 ? (uint64_t)((double)n * 1e9 / net->link.bytes_per_s) : 0;
}

/* Arrival time of a message that is sent now. */
static uint64_t arrival(struct ntx_net *net, size_t n)
{
    uint64_t now = now_ns();
    net->out_free = (net->out_free > now ? net->out_free : now) + passing_ns(net, n);
    return net->out_free + (uint64_t)(net->link.latency_s * 1e9);
}

/* Messages arrive one after another. */
static void await_arrival(struct ntx_net *net, uint64_t at, size_t n)
{
    uint64_t after = net->in_free + passing_ns(net, n), now;
    net->in_free = at > after ? at : after;
    while ((now = now_ns()) < net->in_free)
        if (net->in_free - now > 100000)
            sleep_ns(net->in_free - now - 60000);
        else
            sched_yield();
}

/* ---- requests */

static int begin_transfer(struct ntx_net *net, uint32_t peer, void *to, uint8_t *bytes, size_t n)
{
    net->of[net->n] = (struct request){to, bytes, n, peer};
    net->n++;
    return 0;
}

static int refuse_length(struct ntx_net *net, size_t n)
{
    if (net->n == MOST_REQUESTS)
        snprintf(net->why, sizeof net->why, "more than %d messages at once", MOST_REQUESTS);
    else if (n + sizeof(uint64_t) > INT_MAX)
        snprintf(net->why, sizeof net->why, "a message of %zu bytes: at most %d are possible", n, INT_MAX);
    else
        return 0;
    return -EMSGSIZE;
}

static int send_message(struct ntx_net *net, uint32_t to, const void *bytes, size_t n)
{
    uint8_t *copy = NULL;
    int rc = refuse_length(net, n);
    if (rc)
        return rc;
    if (is_emulated(net)) {
        uint64_t at = arrival(net, n);
        if (!(copy = malloc(n + sizeof at)))
            return -ENOMEM;
        memcpy(copy, &at, sizeof at);
        memcpy(copy + sizeof at, bytes, n);
        bytes = copy;
        n += sizeof at;
    }
    if ((rc = failed(net, MPI_Isend(bytes, (int)n, MPI_BYTE, (int)to, TAG, net->comm, &net->mpi[net->n]), "sending"))) {
        free(copy);
        return rc;
    }
    return begin_transfer(net, to, NULL, copy, n);
}

static int take_message(struct ntx_net *net, uint32_t from, void *bytes, size_t n)
{
    uint8_t *copy = NULL;
    int rc = refuse_length(net, n);
    if (rc)
        return rc;
    if (is_emulated(net) && !(copy = malloc(n + sizeof(uint64_t))))
        return -ENOMEM;
    rc = failed(net,
                MPI_Irecv(copy ? copy : bytes, (int)(n + (copy ? sizeof(uint64_t) : 0)), MPI_BYTE, (int)from, TAG,
                          net->comm, &net->mpi[net->n]),
                "receiving");
    if (rc) {
        free(copy);
        return rc;
    }
    return begin_transfer(net, from, bytes, copy, n);
}

/* Copies a message of an emulated link to its place. */
static void deliver(struct ntx_net *net, int i)
{
    struct request *q = &net->of[i];
    uint64_t at;
    if (q->to && q->bytes) {
        memcpy(&at, q->bytes, sizeof at);
        await_arrival(net, at, q->n);
        memcpy(q->to, q->bytes + sizeof at, q->n);
    }
    free(q->bytes);
    q->bytes = NULL;
}

static int fail_late(struct ntx_net *net, uint32_t peer, uint32_t limit_ms)
{
    snprintf(net->why, sizeof net->why, "rank %u gave nothing for %u s", peer, limit_ms / 1000);
    return -ETIMEDOUT;
}

/* The peer of the first unfinished message. */
static uint32_t awaited(struct ntx_net *net)
{
    int i = 0, done = 1;
    while (i < net->n && MPI_Test(&net->mpi[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done)
        i++;
    return net->of[i < net->n ? i : 0].peer;
}

static int wait_all(struct ntx_net *net, uint32_t limit_ms)
{
    struct patience p = {0};
    int done = 0, rc = 0;
    while (net->n && !rc && !done) {
        rc = failed(net, MPI_Testall(net->n, net->mpi, &done, MPI_STATUSES_IGNORE), "waiting");
        if (rc || done)
            break;
        if (p.waited > limit_ms * 1000000ull)
            return fail_late(net, awaited(net), limit_ms); /* the requests are MPI's until the process ends */
        be_patient(&p);
    }
    for (int i = 0; i < net->n && !rc; i++)
        deliver(net, i);
    if (!rc)
        net->n = 0;
    return rc;
}

/* ---- whole messages of any length */

static int make_message_room(struct ntx_net *net, size_t n)
{
    if (n <= net->last_bytes)
        return 0;
    free(net->last);
    net->last_bytes = 0;
    if (!(net->last = malloc(n)))
        return -ENOMEM;
    net->last_bytes = n;
    return 0;
}

static int next_message(struct ntx_net *net, uint32_t from, const void **bytes, size_t *n, uint32_t limit_ms,
                        const atomic_bool *stop)
{
    struct patience p = {0};
    MPI_Message message;
    MPI_Status status;
    MPI_Request request;
    int there = 0, len = 0, rc = 0;
    while (!rc && !there) {
        rc = failed(net, MPI_Improbe((int)from, TAG, net->comm, &there, &message, &status), "waiting");
        if (!rc && !there) {
            if (stop && atomic_load(stop))
                return -ECANCELED;
            if (limit_ms && p.waited > limit_ms * 1000000ull)
                return fail_late(net, from, limit_ms);
            be_patient(&p);
        }
    }
    if (rc || (rc = failed(net, MPI_Get_count(&status, MPI_BYTE, &len), "receiving")))
        return rc;
    if (make_message_room(net, (size_t)len)) {
        snprintf(net->why, sizeof net->why, "no memory for a message of %d bytes", len);
        return -ENOMEM;
    }
    rc = failed(net, MPI_Imrecv(net->last, len, MPI_BYTE, &message, &request), "receiving");
    p = (struct patience){0};
    for (there = 0; !rc && !there;)
        if (!(rc = failed(net, MPI_Test(&request, &there, MPI_STATUS_IGNORE), "receiving")) && !there)
            be_patient(&p);
    if (rc)
        return rc;
    *bytes = net->last;
    *n = (size_t)len;
    if (is_emulated(net) && *n >= sizeof(uint64_t)) {
        uint64_t at;
        memcpy(&at, net->last, sizeof at);
        *n -= sizeof at;
        *bytes = net->last + sizeof at;
        await_arrival(net, at, *n);
    }
    return 0;
}

/* No limit: the others may still be loading. */
static int gather_all(struct ntx_net *net, const void *mine, size_t n, void *all)
{
    struct patience p = {0};
    MPI_Request request;
    int done = 0,
        rc = failed(net, MPI_Iallgather(mine, (int)n, MPI_BYTE, all, (int)n, MPI_BYTE, net->comm, &request), "meeting");
    while (!rc && !done)
        if (!(rc = failed(net, MPI_Test(&request, &done, MPI_STATUS_IGNORE), "meeting")) && !done)
            be_patient(&p);
    return rc;
}

/* ---- open and close */

static uint32_t own_rank(const struct ntx_net *net) { return (uint32_t)net->rank; }
static uint32_t n_ranks(const struct ntx_net *net) { return (uint32_t)net->size; }
static const char *own_name(const struct ntx_net *net) { return net->name; }
static const char *last_error(const struct ntx_net *net) { return net->why; }
static void set_link(struct ntx_net *net, const struct ntx_net_link *link) { net->link = *link; }

static void close_net(struct ntx_net *net, bool together)
{
    if (!net)
        return;
    if (together) {
        MPI_Comm_free(&net->comm);
        MPI_Finalize();
    }
    free(net->last);
    free(net);
}

static int open_net(struct ntx_net **out, char *why, size_t n)
{
    char host[MPI_MAX_PROCESSOR_NAME];
    int have = 0, len = 0;
    struct ntx_net *net = calloc(1, sizeof *net);
    if (!net)
        return -ENOMEM;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &have) != MPI_SUCCESS || have < MPI_THREAD_SERIALIZED) {
        snprintf(why, n, "MPI does not start, or does not let threads call in turn");
        free(net);
        return -ENODEV;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &net->comm);
    MPI_Comm_set_errhandler(net->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(net->comm, &net->rank);
    MPI_Comm_size(net->comm, &net->size);
    MPI_Get_processor_name(host, &len);
    snprintf(net->name, sizeof net->name, "%.*s", (int)sizeof net->name - 1, host);
    *out = net;
    return 0;
}

static const struct ntx_net_ops ops = {
    .abi = NTX_NET_ABI,
    .open = open_net,
    .close = close_net,
    .link = set_link,
    .rank = own_rank,
    .size = n_ranks,
    .name = own_name,
    .gather = gather_all,
    .send = send_message,
    .take = take_message,
    .wait = wait_all,
    .next = next_message,
    .error = last_error,
};

const struct ntx_net_ops *ntx_net_ops(void);
const struct ntx_net_ops *ntx_net_ops(void) { return &ops; }
