/* SPDX-License-Identifier: Apache-2.0 */
/* slow_drive.h: a cgroup in which the drive under a file is slow, so that reads outlive the process that asked for
 * them. The block layer throttles it: blkio of cgroup v1, or io of v2. Needs root and one of the two; slow_drive_make()
 * says false where that is not to be had. */
#ifndef NTX_TESTS_LIB_SLOW_DRIVE_H
#define NTX_TESTS_LIB_SLOW_DRIVE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/util.h"

#define SLOW_DRIVE_NEEDS "root, and a controller (blkio of cgroup v1, or io of v2) to throttle this drive with"

struct slow_drive {
    char group[128], parent[64]; /* directories of the cgroup file system */
};

static inline bool slow__write(const char *dir, const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && !ntx_write_all(fd, text, strlen(text));
    if (fd >= 0)
        close(fd);
    return ok;
}

static inline bool slow__try(struct slow_drive *s, const char *parent, const char *file, const char *rule)
{
    snprintf(s->parent, sizeof s->parent, "%s", parent);
    snprintf(s->group, sizeof s->group, "%s/ntx-slow-%d", parent, (int)getpid());
    if (access(parent, W_OK) || mkdir(s->group, 0700))
        return false;
    if (slow__write(s->group, file, rule))
        return true;
    rmdir(s->group);
    return false;
}

/* The drive that holds fd at `rate` bytes per second. The whole disk: a partition has no throttle of its own. */
static inline bool slow_drive_make(struct slow_drive *s, int fd, uint32_t rate)
{
    char path[96], rule[64];
    struct stat st;
    unsigned maj, min;
    if (geteuid() || fstat(fd, &st))
        return false;
    maj = major(st.st_dev), min = minor(st.st_dev);
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/partition", maj, min);
    bool part = !access(path, F_OK); /* what is above a whole NVMe disk is the controller, a device of another kind */
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/../dev", maj, min);
    FILE *f = part ? fopen(path, "re") : NULL;
    if (f) {
        if (fscanf(f, "%u:%u", &maj, &min) != 2)
            maj = major(st.st_dev), min = minor(st.st_dev);
        fclose(f);
    }
    snprintf(rule, sizeof rule, "%u:%u %u", maj, min, rate);
    if (slow__try(s, "/sys/fs/cgroup/blkio", "blkio.throttle.read_bps_device", rule))
        return true;
    snprintf(rule, sizeof rule, "%u:%u rbps=%u", maj, min, rate);
    slow__write("/sys/fs/cgroup", "cgroup.subtree_control",
                "+io"); /* where it is on already, or cannot be, the next line tells */
    return slow__try(s, "/sys/fs/cgroup", "io.max", rule);
}

/* The calling process, and what it starts from now on. */
static inline bool slow_drive_enter(const struct slow_drive *s) { return slow__write(s->group, "cgroup.procs", "0"); }

/* When nobody else is in it any more. */
static inline void slow_drive_leave(const struct slow_drive *s)
{
    slow__write(s->parent, "cgroup.procs", "0");
    rmdir(s->group);
}

#endif
