/* SPDX-License-Identifier: Apache-2.0 */
/* weak.h: runs the product's code as a few threads of an emulated machine with a weak memory order, in many schedules,
 * and reports the schedules that fail.
 *
 *   the code under test    compiled with -fsanitize=thread, so that each of its memory accesses is a call
 *   weak.c                 defines the called functions, in place of TSan's own library
 *   scenarios              functions that are the threads: coroutines with a stack each; a switch happens only at an
 *                          atomic access to shared memory
 *
 * THE MODEL is C11's without consume, as a machine of views. Each atomic place keeps all its stores, in the order in
 * which they were made. A thread has, for each place, the newest store that it must know of; a load takes any store
 * from there on, so it may return an old value. A release store carries the view of its thread, and an acquire load
 * takes it over. Read-modify-writes take the newest store and pass on what it carried. Fences follow C11. A seq_cst
 * access also knows the last seq_cst store to its place. Plain accesses have a clock: two of them, one a write, with no
 * order between them are a data race, which is a failure. RACY memory is for seqlocks: there plain accesses are relaxed
 * atomics of four bytes. Arm's model allows less than this, with one exception: a relaxed load may be made after a
 * store that follows it in the program, which views cannot show. Two stores of different threads to one place are
 * always ordered as they were made.
 *
 * A run fails when it meets a data race, when weak_fail is called, or when all threads sleep and one has not ended (a
 * lost wake-up; a futex sleep has no time limit here). A seed chooses the next thread and the store that a load takes;
 * or, in an exhaustive run, all choices within bounds are tried. */
#ifndef NTX_TESTS_SHM_WEAK_H
#define NTX_TESTS_SHM_WEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEAK_THREADS = 4, WEAK_EVENTS = 4 };

struct weak_scenario {
    const char *name;
    unsigned n; /* threads */
    void (*thread[WEAK_THREADS])(void);
    void (*setup)(void); /* before each run: resets shared memory */
};

struct weak_how {
    uint64_t seeds;    /* random runs */
    uint32_t first;    /* seed */
    int switches, old; /* exhaustive: most thread switches, and most loads of an old store; -1: random */
    uint64_t most;     /* exhaustive: most runs; 0: no limit */
    int weaken;        /* WEAK_..., or the number of a site, which becomes relaxed */
};
/* seq_cst becomes acquire and release */
enum { WEAK_NONE = -1, WEAK_ACQUIRE = -2, WEAK_RELEASE = -3, WEAK_SEQ_CST = -4 };

struct weak_result {
    bool failed, whole; /* whole: all choices within the bounds were made */
    uint64_t runs, steps;
    char why[400];
};

void weak_run(const struct weak_scenario *s, const struct weak_how *how, struct weak_result *r);

/* Sites in the code under test whose order is stronger than relaxed and that were reached. */
int weak_sites(void);
const void *weak_site(int i);

/* Before runs. */
enum weak_kind { WEAK_CHECKED, WEAK_RACY };
void weak_forget(void); /* no memory is shared any more */
void weak_share(const void *at, size_t bytes, enum weak_kind kind);

/* In threads. */
void weak_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
unsigned weak_choose(unsigned n);              /* 0..n - 1 */
void weak_yield(void);                         /* a thread switch may happen here */
void weak_pause(unsigned most);                /* other threads take up to this many steps */
void weak_reads(const void *at, size_t bytes); /* accesses by devices and copies, outside the code under test */
void weak_writes(const void *at, size_t bytes);
uint32_t weak_acquire(const void *word); /* an atomic load by the scenario */
void weak_post(unsigned event);          /* a kernel counter, as an eventfd's; it orders memory as a lock does */
void weak_await(unsigned event);         /* sleeps until the counter is not 0, then sets it to 0 */
void weak_sleep_while(const void *word, uint32_t seen); /* futex */
void weak_wake(const void *word);
void weak_kill(unsigned thread); /* ends a thread; the caller sees all that it stored */

#endif
