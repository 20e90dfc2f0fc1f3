/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: fork and join by two words. `round` counts the functions started, and wakes the workers. `gate` is open
 * while a function may be entered, and counts the workers inside. Each word has a flag that a thread sleeps on it, so
 * that a futex call is made only then, and once: a worker that was woken may wait for a processor over many rounds. */
#include "computed/cpu/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/util.h"

#define SPIN_NS     50000
#define SPIN_POLLS  64         /* reads of the word between two reads of the clock */
#define STACK_BYTES (2u << 20) /* attention of several rows takes 900 KiB, and the thread sanitizer 700 KiB */
#define OPEN        (1u << 31)

struct worker {
    struct ntx_pool *pool;
    pthread_t thread;
    unsigned index;
};

struct ntx_pool {
    unsigned n_threads, n_started;
    bool spin; /* false if threads outnumber processors: a spinning thread would delay the one it waits for */
    /* The caller writes fn, ctx and run while the gate is closed and no worker is inside. */
    ntx_pool_fn *fn;
    void *ctx;
    uint32_t run; /* the value of `round`, or the next one while the gate is open and `round` is not counted yet */
    _Alignas(64) _Atomic uint32_t round; /* written by the caller */
    _Atomic uint32_t workers_sleep;      /* set by workers, cleared by the caller */
    _Atomic bool stop;                   /* written by the caller, before `round` */
    _Alignas(64) _Atomic uint32_t gate;  /* OPEN: written by the caller; the count below it: by workers */
    _Atomic uint32_t caller_sleeps;      /* written by the caller */
    struct worker workers[];
};

static void sleep_on(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void wake_all(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* yield does nothing on most cores */
#endif
}

/* Returns whether (*word == v) becomes `equal` within the spinning time. */
static bool spin_until(const struct ntx_pool *p, _Atomic uint32_t *word, uint32_t v, bool equal)
{
    uint64_t end = p->spin ? ntx_now_ns() + SPIN_NS : 0;
    do {
        for (int i = 0; i < SPIN_POLLS; i++) {
            if ((atomic_load_explicit(word, memory_order_acquire) == v) == equal)
                return true;
            pause_cpu();
        }
    } while (p->spin && ntx_now_ns() < end);
    return false;
}

static void wait_round(struct ntx_pool *p, uint32_t seen)
{
    if (spin_until(p, &p->round, seen, false))
        return;
    /* seq_cst, pairs with next_round(): either it sees the flag, or this thread sees the new round */
    for (;;) {
        atomic_store(&p->workers_sleep, 1);
        if (atomic_load(&p->round) != seen)
            return;
        sleep_on(&p->round, seen);
    }
}

/* Returns false if the function has ended already. Acquire: fn and ctx are those of the open round. */
static bool enter_gate(struct ntx_pool *p)
{
    uint32_t g = atomic_load_explicit(&p->gate, memory_order_relaxed);
    while (g & OPEN)
        if (atomic_compare_exchange_weak_explicit(&p->gate, &g, g + 1, memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

/* seq_cst, pairs with wait_for_workers(): either it sees no worker inside, or this thread sees that it sleeps. */
static void leave_gate(struct ntx_pool *p)
{
    if (atomic_fetch_sub(&p->gate, 1) == 1 && atomic_load(&p->caller_sleeps))
        wake_all(&p->gate);
}

static void *run_worker(void *arg)
{
    struct worker *w = arg;
    struct ntx_pool *p = w->pool;
    uint32_t seen = 0, ran = 0;
    for (;;) {
        wait_round(p, seen);
        seen = atomic_load_explicit(&p->round, memory_order_acquire);
        if (atomic_load_explicit(&p->stop, memory_order_relaxed))
            return NULL;
        if (seen == ran || !enter_gate(p))
            continue;
        ran = p->run; /* may be later than `seen`, even before `round` is counted; it must not run twice */
        p->fn(p->ctx, w->index);
        leave_gate(p);
    }
}

static void next_round(struct ntx_pool *p)
{
    atomic_fetch_add(&p->round, 1);
    if (atomic_load(&p->workers_sleep)) {
        atomic_store(&p->workers_sleep, 0); /* set before `round` changed: woken now; later: it sees the new round */
        wake_all(&p->round);
    }
}

static void wait_for_workers(struct ntx_pool *p)
{
    atomic_fetch_and(&p->gate, ~OPEN);
    if (spin_until(p, &p->gate, 0, true))
        return;
    atomic_store(&p->caller_sleeps, 1);
    for (uint32_t n; (n = atomic_load(&p->gate));)
        sleep_on(&p->gate, n);
    atomic_store(&p->caller_sleeps, 0);
}

void ntx_pool_run(struct ntx_pool *p, ntx_pool_fn *fn, void *ctx)
{
    if (!p->n_started) {
        fn(ctx, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->run = atomic_load_explicit(&p->round, memory_order_relaxed) + 1;
    atomic_store_explicit(&p->gate, OPEN, memory_order_release); /* publishes the three values above to enter_gate() */
    next_round(p);
    fn(ctx, 0);
    wait_for_workers(p);
}

unsigned ntx_pool_threads(const struct ntx_pool *p) { return p->n_threads; }

static bool enough_processors(unsigned n)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) || (unsigned)CPU_COUNT(&set) >= n;
}

/* Workers block all signals, which the main thread handles. */
static int start_workers(struct ntx_pool *p)
{
    pthread_attr_t attr;
    sigset_t all, old;
    int rc = pthread_attr_init(&attr);
    if (rc)
        return -rc;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (!rc && p->n_started + 1 < p->n_threads) {
        struct worker *w = &p->workers[p->n_started];
        *w = (struct worker){.pool = p, .index = p->n_started + 1};
        rc = pthread_create(&w->thread, &attr, run_worker, w);
        p->n_started += !rc;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return -rc;
}

int ntx_pool_new(unsigned n_threads, struct ntx_pool **out, struct ntx_err *err)
{
    if (!n_threads || n_threads > 1024)
        return ntx_err_set(err, -EINVAL, "%u compute threads; 1 to 1024 are possible", n_threads);
    size_t bytes = NTX_ROUND_UP(sizeof(struct ntx_pool) + (n_threads - 1) * sizeof(struct worker), 64);
    struct ntx_pool *p = aligned_alloc(64, bytes);
    if (!p)
        return ntx_err_set(err, -ENOMEM, "no memory for %u compute threads", n_threads);
    memset(p, 0, bytes);
    p->n_threads = n_threads;
    p->spin = enough_processors(n_threads);
    int rc = start_workers(p);
    if (rc) {
        ntx_err_set(err, rc, "cannot start compute thread %u of %u: %s", p->n_started + 1, n_threads, strerror(-rc));
        ntx_pool_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

void ntx_pool_free(struct ntx_pool *p)
{
    if (!p)
        return;
    atomic_store_explicit(&p->stop, true, memory_order_relaxed); /* published by the round */
    next_round(p);
    for (unsigned i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    free(p);
}
