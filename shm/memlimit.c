/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/memlimit.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"

/* A memory hierarchy as this process sees it. */
struct tree {
    bool found, v2;
    char mount[PATH_MAX];  /* where it is mounted */
    char root[PATH_MAX];   /* part of the hierarchy that this mount shows */
    char cgroup[PATH_MAX]; /* the cgroup of this process, from the hierarchy's root */
};

/* Reads the number after `key` at the start of a line, or the file's first number when key is "". False when absent. */
static bool read_number(const char *path, const char *key, uint64_t *out)
{
    char line[256];
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = false;
    size_t n = strlen(key);
    while (!ok && fgets(line, sizeof line, f)) {
        char *end;
        if (strncmp(line, key, n))
            continue;
        errno = 0;
        unsigned long long v = strtoull(line + n, &end, 10);
        ok = end != line + n && !errno; /* "max" is no number: no limit */
        if (ok)
            *out = v;
    }
    fclose(f);
    return ok;
}

/* A line of mountinfo: ... ROOT MOUNTPOINT ... - FSTYPE SOURCE SUPEROPTIONS */
static void take_mount(char *line, struct tree *v1, struct tree *v2)
{
    char root[PATH_MAX], mount[PATH_MAX], type[32], options[512];
    char *tail = strstr(line, " - ");
    if (!tail || sscanf(line, "%*d %*d %*s %4095s %4095s", root, mount) != 2 ||
        sscanf(tail + 3, "%31s %*s %511s", type, options) != 2)
        return;
    struct tree *t = NULL;
    if (!strcmp(type, "cgroup2"))
        t = v2;
    else if (!strcmp(type, "cgroup") && (!strcmp(options, "memory") || strstr(options, ",memory")))
        t = v1;
    if (!t || t->found)
        return;
    t->found = true;
    snprintf(t->mount, sizeof t->mount, "%s", mount);
    snprintf(t->root, sizeof t->root, "%s", root);
}

/* A line of PROC/self/cgroup: ID:CONTROLLERS:PATH */
static void take_cgroup(char *line, struct tree *v1, struct tree *v2)
{
    line[strcspn(line, "\n")] = 0;
    char *a = strchr(line, ':'), *b = a ? strchr(a + 1, ':') : NULL;
    if (!b)
        return;
    *a = *b = 0;
    if (!a[1] && !strcmp(line, "0"))
        snprintf(v2->cgroup, sizeof v2->cgroup, "%s", b + 1);
    for (char *save = NULL, *c = strtok_r(a + 1, ",", &save); c; c = strtok_r(NULL, ",", &save))
        if (!strcmp(c, "memory"))
            snprintf(v1->cgroup, sizeof v1->cgroup, "%s", b + 1);
}

static void for_each_line(const char *proc, const char *name, void (*take)(char *, struct tree *, struct tree *),
                          struct tree *v1, struct tree *v2)
{
    char path[PATH_MAX], *line = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "%s/self/%s", proc, name);
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    while (getline(&line, &room, f) > 0)
        take(line, v1, v2);
    free(line);
    fclose(f);
}

/* Takes limit and use from a cgroup's directory. The kernel reclaims the page cache under pressure, so it counts as
 * free. */
static void take_limit(const char *dir, bool v2, struct ntx_memlimit *m)
{
    char path[2 * PATH_MAX + 64];
    uint64_t limit, used = 0, cache = 0, active = 0;
    snprintf(path, sizeof path, "%s/%s", dir, v2 ? "memory.max" : "memory.limit_in_bytes");
    if (!read_number(path, "", &limit) || limit >= (uint64_t)1 << 62)
        return;
    snprintf(path, sizeof path, "%s/%s", dir, v2 ? "memory.current" : "memory.usage_in_bytes");
    read_number(path, "", &used);
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    read_number(path, v2 ? "inactive_file " : "total_inactive_file ", &cache);
    read_number(path, v2 ? "active_file " : "total_active_file ", &active);
    cache = NTX_MIN(cache + active, used);
    used -= cache;
    uint64_t left = limit > used ? limit - used : 0;
    m->cgroup_limit = NTX_MIN(m->cgroup_limit, limit);
    m->cgroup_left = NTX_MIN(m->cgroup_left, left);
}

/* The tightest limit may be that of any ancestor that the mount shows. */
static void take_tree(struct tree *t, struct ntx_memlimit *m)
{
    char dir[2 * PATH_MAX];
    if (!t->found || !t->cgroup[0])
        return;
    char *cgroup = t->cgroup;
    size_t n = strlen(t->root);
    if (n > 1 && !strncmp(cgroup, t->root, n)) /* a container's mount begins below the real root */
        cgroup += n;
    if (!strncmp(cgroup, "/..", 3)) /* a cgroup outside this namespace: only the mount itself can be read */
        cgroup[0] = 0;
    for (;;) {
        snprintf(dir, sizeof dir, "%s%s", t->mount, strcmp(cgroup, "/") ? cgroup : "");
        if (strlen(dir) < PATH_MAX)
            take_limit(dir, t->v2, m);
        char *slash = strrchr(cgroup, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

void ntx_memlimit_read_at(const char *proc, struct ntx_memlimit *m)
{
    char path[PATH_MAX];
    uint64_t kib = UINT64_MAX / 1024;
    struct tree *t = calloc(2, sizeof *t);
    *m = (struct ntx_memlimit){.cgroup_limit = UINT64_MAX, .cgroup_left = UINT64_MAX};
    snprintf(path, sizeof path, "%s/meminfo", proc);
    read_number(path, "MemAvailable:", &kib);
    m->mem_available = NTX_MIN(kib, UINT64_MAX / 1024) * 1024;
    if (t) {
        t[1].v2 = true;
        for_each_line(proc, "mountinfo", take_mount, &t[0], &t[1]);
        for_each_line(proc, "cgroup", take_cgroup, &t[0], &t[1]);
        take_tree(&t[0], m);
        take_tree(&t[1], m);
    }
    free(t);
    m->available = NTX_MIN(m->mem_available, m->cgroup_left);
}

void ntx_memlimit_read(struct ntx_memlimit *m) { ntx_memlimit_read_at("/proc", m); }
