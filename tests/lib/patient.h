/* SPDX-License-Identifier: Apache-2.0 */
/* patient.h: waits with a time limit that grows on a busy machine; patient.py and patient.sh do the same. When it waits
 * for another thread, time in which this process was stopped or the machine slept does not count, since that thread did
 * not run either. */
#ifndef NTX_TESTS_LIB_PATIENT_H
#define NTX_TESTS_LIB_PATIENT_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PATIENT_STEP_MS 10u
#define PATIENT_SPIN_NS 5000000u

static inline uint64_t patient_clock(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* How much longer something takes now than on an idle machine, at least 1. It is the larger of two ratios: a thread's
 * wall time to its processor time, and the runnable processes to the processors. */
static inline double patient_factor_now(void)
{
    const uint64_t wall = patient_clock(CLOCK_MONOTONIC), used = patient_clock(CLOCK_THREAD_CPUTIME_ID);
    while (patient_clock(CLOCK_THREAD_CPUTIME_ID) - used < PATIENT_SPIN_NS)
        ;
    double took = (double)(patient_clock(CLOCK_MONOTONIC) - wall) / PATIENT_SPIN_NS, load = 0;
    unsigned running = 1;
    FILE *f = fopen("/proc/loadavg", "r");
    if (f) {
        if (fscanf(f, "%lf %*f %*f %u/", &load, &running) != 2)
            load = 0;
        fclose(f);
    }
    const double others = (double)running - 1,
                 wants = (load > others ? load : others) / (double)sysconf(_SC_NPROCESSORS_ONLN);
    took = took > wants ? took : wants;
    return took > 1 ? took : 1;
}

/* The same, measured at most once a second: some tests wait thousands of times. */
static inline double patient_factor(void)
{
    static _Thread_local uint64_t at;
    static _Thread_local double known;
    const uint64_t now = patient_clock(CLOCK_MONOTONIC);
    if (!at || now - at > 1000000000u) {
        known = patient_factor_now();
        at = now;
    }
    return known;
}

/* A limit for an idle machine, stretched for the present load. */
static inline uint64_t patient_ns(uint64_t ns) { return (uint64_t)((double)ns * patient_factor()); }

/* One step of waiting for `moved`, with the lock held. False: *waited_ms (0 before the first step) has reached the
 * limit. */
static inline bool patient_wait(pthread_cond_t *moved, pthread_mutex_t *lock, unsigned *waited_ms, unsigned limit_ms)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += PATIENT_STEP_MS * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(moved, lock, &t) == ETIMEDOUT)
        *waited_ms += PATIENT_STEP_MS;
    return *waited_ms < limit_ms;
}

#endif
