/* SPDX-License-Identifier: Apache-2.0 */
/* memlimit.h: how much memory this process may still take: MemAvailable, and the limit of its memory cgroup and of each
 * of that group's ancestors (v1 and v2). A shared mapping beyond a cgroup's limit is not refused by the kernel: the
 * process is killed in the middle of a page fault. So whoever takes much memory asks here first. */
#ifndef NTX_SHM_MEMLIMIT_H
#define NTX_SHM_MEMLIMIT_H

#include <stdint.h>

struct ntx_memlimit {
    uint64_t available;     /* bytes: what can be taken now; the smaller of the two below */
    uint64_t mem_available; /* the machine's MemAvailable */
    uint64_t cgroup_limit;  /* of the tightest group: UINT64_MAX while there is none */
    uint64_t cgroup_left;   /* its limit less what it holds that cannot be reclaimed at once */
};

/* Never fails: what cannot be read does not limit. */
void ntx_memlimit_read(struct ntx_memlimit *m);

/* The same from other roots ("/proc", "/sys/fs/cgroup" is taken from PROC/self/mountinfo), for tests. */
void ntx_memlimit_read_at(const char *proc, struct ntx_memlimit *m);

#endif
