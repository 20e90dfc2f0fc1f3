/* SPDX-License-Identifier: Apache-2.0 */
/* weak.h: runs the product's own code as a few threads of a machine with a weak order of memory, in many ways, and says
 * which of them goes wrong.
 *
 *   the code under test    compiled with -fsanitize=thread, so that each of its accesses to memory is a call
 *   weak.c                 what is called: in place of TSan's own library
 *   scenarios              functions that are threads here, one at a time on one stack each; another goes on only at an
 *                          atomic access to shared memory
 *
 * THE MODEL is C11's without consume, as a machine of views. Each atomic place has all its stores, in the order in
 * which they were made. A thread has for each place the newest store that it must know of; a load takes any from there
 * on, so it may be old news. A store that releases carries what its thread knows, and a load that acquires takes that
 * over; read-modify-writes take the newest store and hand on what it carried; fences as C11 has them. An access that is
 * seq_cst also knows the last seq_cst store to its place. Accesses that are not atomic have a clock: two of them, of
 * which one writes and neither happens before the other, are a data race, and that is a failure. Memory shared by RACY
 * is for seqlocks: there plain accesses are relaxed atomics of four bytes. Arm's own model allows less than this but in
 * one point: there a relaxed load may be made after a store that follows it in the program, which views cannot show.
 * Two stores of different threads to one place always stand in the order in which they were made here.
 *
 * A run fails when a data race is met, when weak_fail is called, or when all threads sleep and one has not ended (a
 * wake-up was lost; sleeping by futex has no time limit here). Which thread goes on and which store a load takes comes
 * from a seed, or, exhaustively, from all choices within bounds. */
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
    void (*setup)(void); /* before each run: puts shared memory to its start */
};

struct weak_how {
    uint64_t seeds;    /* runs, if they are drawn */
    uint32_t first;    /* seed */
    int switches, old; /* exhaustively: how often a thread that could go on gives way, and how often a load takes an old
                          store, at most; -1: drawn */
    uint64_t most;     /* exhaustively: runs, at most; 0: as many as there are */
    int weaken;        /* WEAK_..., or a site: that one is relaxed */
};
enum { WEAK_NONE = -1, WEAK_ACQUIRE = -2, WEAK_RELEASE = -3, WEAK_SEQ_CST = -4 /* has acquire and release only */ };

struct weak_result {
    bool failed, whole; /* whole: all choices within the bounds were made */
    uint64_t runs, steps;
    char why[400];
};

void weak_run(const struct weak_scenario *s, const struct weak_how *how, struct weak_result *r);

/* Places in the code under test whose order is stronger than relaxed, as far as they were met. */
int weak_sites(void);
const void *weak_site(int i);

/* Before runs. */
enum weak_kind { WEAK_CHECKED, WEAK_RACY };
void weak_forget(void); /* nothing is shared any more */
void weak_share(const void *at, size_t bytes, enum weak_kind kind);

/* In threads. */
void weak_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
unsigned weak_choose(unsigned n);              /* 0..n - 1 */
void weak_yield(void);                         /* others may go on here */
void weak_pause(unsigned most);                /* others take up to so many steps, if they can */
void weak_reads(const void *at, size_t bytes); /* what is not made by the code under test: devices, copies */
void weak_writes(const void *at, size_t bytes);
uint32_t weak_acquire(const void *word); /* an atomic load of a scenario's own */
void weak_post(unsigned event);          /* a count in the kernel, as an eventfd's; orders as a lock does */
void weak_await(unsigned event);         /* sleeps until it is not 0, then makes it 0 */
void weak_sleep_while(const void *word, uint32_t seen); /* futex */
void weak_wake(const void *word);
void weak_kill(unsigned thread); /* it runs no more; what it stored is seen by the caller */

#endif
