/* SPDX-License-Identifier: Apache-2.0 */
/* others.h: how busy the machine is with other processes, for tests of rates: they may explain a low rate. */
#ifndef NTX_TESTS_LIB_OTHERS_H
#define NTX_TESTS_LIB_OTHERS_H

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/lib/check.h"

struct others { /* in clock ticks */
    double all, idle, own;
};

static inline struct others others_now(void)
{
    struct others o = {0};
    struct rusage u;
    double t[8]; /* user nice system idle iowait irq softirq steal */
    FILE *f = fopen("/proc/stat", "r");
    CHECK(f && !getrusage(RUSAGE_SELF, &u));
    CHECK(fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) ==
          8);
    fclose(f);
    for (int i = 0; i < 8; i++)
        o.all += t[i];
    o.idle = t[3] + t[4];
    o.own = ((double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
             (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6) *
            (double)sysconf(_SC_CLK_TCK);
    return o;
}

/* Share of all processors' time since then that was neither idle nor ours. */
static inline double others_share(struct others since)
{
    struct others now = others_now();
    double all = now.all - since.all;
    return all > 0 ? 1 - (now.idle - since.idle + now.own - since.own) / all : 0;
}

#endif
