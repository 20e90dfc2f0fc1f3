/* SPDX-License-Identifier: Apache-2.0 */
#include "client/trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/util.h"

#define PERIOD_NS 10000000
#define AT_ONCE   1024
#define MOST      (4u << 20) /* records kept: 256 MB; later ones count as missed */

struct ntx_tracer {
    const struct ntx_counters *c;
    pthread_t thread;
    pthread_mutex_t lock; /* guards stop */
    pthread_cond_t wake;
    bool running, stop;
    uint64_t begin_ns, next[NTX_N_TRACES], missed;
    struct ntx_trace_event *events;
    size_t n, room;
};

static bool grow_events(struct ntx_tracer *t, unsigned more)
{
    if (t->n + more <= t->room)
        return true;
    size_t room = NTX_MAX(t->room * 2, (size_t)8192);
    void *p = room <= MOST ? realloc(t->events, room * sizeof *t->events) : NULL;
    if (!p)
        return false;
    t->events = p;
    t->room = room;
    return true;
}

static void drain_rings(struct ntx_tracer *t)
{
    struct ntx_trace_record r[AT_ONCE];
    for (unsigned who = 0; who < NTX_N_TRACES; who++) {
        unsigned n;
        while ((n = ntx_trace_take(&t->c->trace[who], &t->next[who], r, AT_ONCE, &t->missed))) {
            bool room = grow_events(t, n);
            if (!room)
                t->missed += n;
            for (unsigned i = 0; room && i < n; i++)
                if (r[i].t0 >= t->begin_ns) /* events that began before the recording have no beginning in it */
                    t->events[t->n++] = (struct ntx_trace_event){r[i], who};
        }
    }
}

static void *record_loop(void *arg)
{
    struct ntx_tracer *t = arg;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        struct timespec at;
        pthread_mutex_unlock(&t->lock);
        drain_rings(t);
        pthread_mutex_lock(&t->lock);
        uint64_t until = ntx_now_ns() + PERIOD_NS;
        at = (struct timespec){(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        if (!t->stop)
            pthread_cond_timedwait(&t->wake, &t->lock, &at);
    }
    pthread_mutex_unlock(&t->lock);
    drain_rings(t);
    return NULL;
}

int ntx_tracer_start(const char *dir, struct ntx_tracer **out, struct ntx_err *err)
{
    struct ntx_tracer *t = calloc(1, sizeof *t);
    pthread_condattr_t attr;
    if (!t)
        return ntx_err_set(err, -ENOMEM, "no memory");
    int rc = ntx_counters_open(dir, &t->c, err);
    if (rc) {
        free(t);
        return rc;
    }
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->wake, &attr);
    pthread_condattr_destroy(&attr);
    t->begin_ns = ntx_now_ns();
    for (unsigned who = 0; who < NTX_N_TRACES; who++) /* skip earlier events */
        t->next[who] = atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&t->c->trace[who].head,
                                            memory_order_relaxed);
    if ((rc = -pthread_create(&t->thread, NULL, record_loop, t))) {
        ntx_tracer_free(t);
        return ntx_err_set(err, rc, "cannot record: %s", strerror(-rc));
    }
    t->running = true;
    *out = t;
    return 0;
}

static void end_recording(struct ntx_tracer *t)
{
    if (!t->running)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    t->running = false;
}

int ntx_tracer_write(struct ntx_tracer *t, const char *path, struct ntx_trace_summary *s, struct ntx_err *err)
{
    end_recording(t);
    ntx_trace_sort(t->events, t->n);
    return ntx_trace_export(path, t->events, t->n, t->missed, s, err);
}

void ntx_tracer_free(struct ntx_tracer *t)
{
    if (!t)
        return;
    end_recording(t);
    ntx_counters_close((struct ntx_counters *)(uintptr_t)t->c);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
    free(t->events);
    free(t);
}
