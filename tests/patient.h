/* patient.h: waiting for another thread with a limit. Time for which the process was stopped, or its machine asleep, does not count: whom it waits for was, too. */
#ifndef NTX_TESTS_PATIENT_H
#define NTX_TESTS_PATIENT_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#define PATIENT_STEP_MS 10u

/* One step of waiting for `moved`, with the lock held. False: *waited_ms, 0 before the first step, has come to the limit. */
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
