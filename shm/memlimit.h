/* SPDX-License-Identifier: Apache-2.0 */
/* memlimit.h: how much memory this process may still take: MemAvailable, and the limits of its memory cgroup and of all
 * ancestors (v1 and v2). The kernel does not refuse a shared mapping beyond a cgroup's limit; it kills the process at a
 * later page fault. So code that takes much memory calls this first. */
#ifndef NTX_SHM_MEMLIMIT_H
#define NTX_SHM_MEMLIMIT_H

#include <stdint.h>

struct ntx_memlimit {
    uint64_t available;     /* bytes that can be taken now: the smaller of mem_available and cgroup_left */
    uint64_t mem_available; /* the machine's MemAvailable */
    uint64_t cgroup_limit;  /* of the tightest group; UINT64_MAX: no limit */
    uint64_t cgroup_left;   /* its limit minus its use that cannot be reclaimed */
};

/* Never fails: a value that cannot be read is no limit. */
void ntx_memlimit_read(struct ntx_memlimit *m);

/* The same with another root than "/proc", for tests. The path of /sys/fs/cgroup comes from PROC/self/mountinfo. */
void ntx_memlimit_read_at(const char *proc, struct ntx_memlimit *m);

#endif
