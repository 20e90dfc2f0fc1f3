/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls that ntx-iod needs; all others are refused. */
#include "common/sandbox.h"

#include <fcntl.h>
#include <linux/prctl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "iod/daemon.h"

#define SLICE_NS 100000u /* time slice: the shortest that Linux grants */

static const struct ntx_sandbox_call calls[] = {
    {SCMP_SYS(io_uring_enter), 0, {0}}, /* of the ring, which can only read (ring.h) */
    {SCMP_SYS(io_uring_register), 1, SCMP_CMP(1, SCMP_CMP_EQ, IORING_REGISTER_BUFFERS)},
    {SCMP_SYS(io_uring_register), 1, SCMP_CMP(1, SCMP_CMP_EQ, IORING_UNREGISTER_BUFFERS)},
    {SCMP_SYS(pread64), 0, {0}},
    {SCMP_SYS(fstatfs), 0, {0}},   /* is the model in memory (tmpfs)? */
    {SCMP_SYS(fadvise64), 0, {0}}, /* reads without O_DIRECT are dropped from the page cache */
    /* so that computed may duplicate the ring */
    {SCMP_SYS(prctl), 1, SCMP_CMP(0, SCMP_CMP_EQ, PR_SET_PTRACER)},
};

/* Where all processors compute, a result would wait milliseconds for a free one, while the drive is idle. A thread with
 * short time slices (Linux 6.12) may interrupt threads with long ones when it has had less than its share, and we use
 * few per cent. Without this only speed is lost. */
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

int ntx_iod_sandbox(const char *dir, struct ntx_iod_ring *ring, struct ntx_err *err)
{
    const struct ntx_sandbox needs = {.calls = calls, .n_calls = sizeof calls / sizeof *calls};
    ntx_iod_ring_open(ring); /* on failure the reader reports it */
    take_short_slices();
    return ntx_sandbox(&needs, dir, err);
}
