/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of processes, from /proc/PID/smaps_rollup: pages that several share count once in the sum. */
#include <stdio.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/stats.h"

struct rollup {
    uint64_t pss, hugetlb; /* bytes */
};

static void read_rollup(pid_t pid, struct rollup *r)
{
    char path[64], line[256];
    unsigned long long kib;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "Pss: %llu", &kib) == 1)
            r->pss += kib << 10;
        else if (sscanf(line, "Shared_Hugetlb: %llu", &kib) == 1 || sscanf(line, "Private_Hugetlb: %llu", &kib) == 1)
            r->hugetlb += kib << 10;
    }
    fclose(f);
}

uint64_t ntx_stats_memory(const pid_t *pids, unsigned n)
{
    uint64_t pss = 0, hugetlb = 0;
    for (unsigned i = 0; i < n; i++) {
        struct rollup r = {0};
        if (pids[i] > 0)
            read_rollup(pids[i], &r);
        pss += r.pss;
        hugetlb = NTX_MAX(hugetlb, r.hugetlb); /* the daemons map the same pages, which no PSS divides */
    }
    return pss + hugetlb;
}
