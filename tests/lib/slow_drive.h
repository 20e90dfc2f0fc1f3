/* SPDX-License-Identifier: Apache-2.0 */
/* slow_drive.h: a cgroup in which the drive of a file is slow, so that reads outlive their process. The block layer
 * throttles it: blkio of cgroup v1, or io of v2. Needs root and one of the two; else slow_drive_make() returns
 * false. */
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

/* Throttles the drive that holds fd to `rate` bytes per second. It must be the whole disk: a partition has no
 * throttle. */
static inline bool slow_drive_make(struct slow_drive *s, int fd, uint32_t rate)
{
    char path[96], rule[64];
    struct stat st;
    unsigned maj, min;
    if (geteuid() || fstat(fd, &st))
        return false;
    maj = major(st.st_dev), min = minor(st.st_dev);
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/partition", maj, min);
    bool part = !access(path, F_OK); /* the parent of a whole NVMe disk is the controller, no block device */
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
                "+io"); /* fails when it is on already, or impossible; the next line finds out */
    return slow__try(s, "/sys/fs/cgroup", "io.max", rule);
}

/* Puts the calling process and its later children into the group. */
static inline bool slow_drive_enter(const struct slow_drive *s) { return slow__write(s->group, "cgroup.procs", "0"); }

/* Call it when no other process is in the group. */
static inline void slow_drive_leave(const struct slow_drive *s)
{
    slow__write(s->parent, "cgroup.procs", "0");
    rmdir(s->group);
}

#endif
