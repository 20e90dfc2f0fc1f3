/* SPDX-License-Identifier: Apache-2.0 */
/* Memory limits from the files of both cgroup versions, as hosts and containers show them. */
#include "shm/memlimit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/util.h"
#include "tests/lib/check.h"
#include "tests/lib/temporary.h"

static char root[128];

static void put(const char *text, const char *fmt, ...)
{
    char path[512], tail[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(tail, sizeof tail, fmt, ap);
    va_end(ap);
    snprintf(path, sizeof path, "%s/%s", root, tail);
    for (char *p = path + strlen(root) + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            mkdir(path, 0700);
            *p = '/';
        }
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

static struct ntx_memlimit get(void)
{
    char proc[300];
    struct ntx_memlimit m;
    snprintf(proc, sizeof proc, "%s/proc", root);
    ntx_memlimit_read_at(proc, &m);
    return m;
}

static void mounts(const char *fmt)
{
    char text[1024];
    snprintf(text, sizeof text, fmt, root);
    put(text, "proc/self/mountinfo");
}

int main(void)
{
    temporary_dir(root, sizeof root, "memlimit");
    struct ntx_memlimit m = get();
    CHECK_EQ(m.cgroup_limit, UINT64_MAX); /* nothing can be read: nothing limits */

    put("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n", "proc/meminfo");
    m = get();
    CHECK_EQ(m.available, 8000 * 1024);
    CHECK_EQ(m.cgroup_left, UINT64_MAX);

    /* version 2: the parent has the tighter limit, and its page cache counts as free */
    mounts("30 24 0:26 / %s/cg rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
    put("0::/a/b\n", "proc/self/cgroup");
    put("max\n", "cg/a/b/memory.max");
    put("5000000\n", "cg/a/memory.max");
    put("3000000\n", "cg/a/memory.current");
    put("anon 1\nfile 2\ninactive_file 700000\nactive_file 300000\n", "cg/a/memory.stat");
    m = get();
    CHECK_EQ(m.cgroup_limit, 5000000);
    CHECK_EQ(m.cgroup_left, 3000000);
    CHECK_EQ(m.available, 3000000);
    put("1000000\n", "cg/a/b/memory.max");
    put("1500000\n", "cg/a/b/memory.current");
    m = get();
    CHECK_EQ(m.cgroup_left, 0);
    CHECK_EQ(m.cgroup_limit, 1000000);

    /* version 1 in a container: the mount begins below the hierarchy's root; no limit is a huge number */
    mounts("31 24 0:27 /docker/x %s/mem rw - cgroup cgroup rw,memory\n");
    put("4:memory:/docker/x/y\n3:cpu,cpuacct:/z\n0::/\n", "proc/self/cgroup");
    put("4000000\n", "mem/y/memory.limit_in_bytes");
    put("1000000\n", "mem/y/memory.usage_in_bytes");
    put("inactive_file 5\ntotal_inactive_file 250000\ntotal_active_file 0\n", "mem/y/memory.stat");
    put("9223372036854771712\n", "mem/memory.limit_in_bytes");
    m = get();
    CHECK_EQ(m.cgroup_limit, 4000000);
    CHECK_EQ(m.cgroup_left, 3250000);

    /* a group outside the namespace: the mount itself counts */
    put("4:memory:/../other\n", "proc/self/cgroup");
    put("6000000\n", "mem/memory.limit_in_bytes");
    m = get();
    CHECK_EQ(m.cgroup_limit, 6000000);

    /* this machine's own files give plausible values */
    ntx_memlimit_read(&m);
    CHECK(m.available > 1 << 20 && m.available <= m.mem_available);
    char command[160];
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(!system(command));
    return 0;
}
