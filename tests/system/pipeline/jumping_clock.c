/* SPDX-License-Identifier: Apache-2.0 */
/* jumping_clock.c: to be preloaded: the clock on the wall jumps at every look at it, by days forth and by years back.
 * CLOCK_MONOTONIC stays as it is: nobody can set that one. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t jump(void)
{
    static const time_t days[] = {1, -4000, 3000, -1, 0, 12};
    static atomic_uint n;
    return 86400 * days[n++ % 6];
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, t);
    if (!rc && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI))
        t->tv_sec += jump();
    return rc;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *t)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t)
        *t = now.tv_sec;
    return now.tv_sec;
}
