/* SPDX-License-Identifier: Apache-2.0 */
/* What ntx-iod needs, and nothing besides. */
#include "common/sandbox.h"

#include <fcntl.h>
#include <linux/prctl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "iod/daemon.h"

#define SLICE_NS 100000u /* of a processor: the least that Linux grants */

static const struct ntx_sandbox_call calls[] = {
    {SCMP_SYS(io_uring_enter), 0, {0}}, /* of the ring that it has: that can read, and no more (ring.h) */
    {SCMP_SYS(io_uring_register), 1, SCMP_CMP(1, SCMP_CMP_EQ, IORING_REGISTER_BUFFERS)},
    {SCMP_SYS(io_uring_register), 1, SCMP_CMP(1, SCMP_CMP_EQ, IORING_UNREGISTER_BUFFERS)},
    {SCMP_SYS(pread64), 0, {0}},
    {SCMP_SYS(fstatfs), 0, {0}},   /* does the model lie in memory? */
    {SCMP_SYS(fadvise64), 0, {0}}, /* what does not go by O_DIRECT leaves the page cache */
    {SCMP_SYS(prctl), 1,
     SCMP_CMP(0, SCMP_CMP_EQ, PR_SET_PTRACER)}, /* so that computed may have a duplicate of the ring */
};

/* Where all processors compute, a result would wait until one of them comes to rest: milliseconds, in which the drive
 * has nothing to do. Who asks for short slices of time (Linux 6.12) may interrupt those who have long ones, if he has
 * had less than his share: and we take some per cent. A refusal, or an older kernel, costs speed only. */
static void take_short_slices(void)
{
    struct { /* struct sched_attr of linux/sched/types.h, which cannot be included beside sched.h */
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } a = {.size = sizeof a};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) || a.policy != SCHED_OTHER)
        return;
    a.runtime = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &a, 0);
}

int ntx_iod_lock_in(const char *dir, struct ntx_iod_ring *ring, struct ntx_err *err)
{
    const struct ntx_sandbox needs = {.calls = calls, .n_calls = sizeof calls / sizeof *calls};
    ntx_iod_ring_open(ring); /* where there is none to be had, the reader says so */
    take_short_slices();
    return ntx_sandbox(&needs, dir, err);
}
