/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c: reads the system's settings and reports those that should be changed. */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/doctor/doctor_impl.h"
#include "common/util.h"

uint32_t ntx__doctor_threads(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : (uint32_t)NTX_MAX(CPU_COUNT(&set), 1);
}

/* The value in the first line of a file that begins with `key`, after its colon; the first line where key is "". */
static bool read_line(const char *path, const char *key, char *buf, size_t n)
{
    char line[512];
    FILE *f = fopen(path, "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':'), *value = *key && colon ? colon + 1 : line;
        if (strncmp(line, key, strlen(key)) || (*key && !colon))
            continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(buf, n, "%s", value + strspn(value, " \t"));
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

/* Finds a GPU by its driver, or without one by the vendor and class of a PCI device. */
static bool find_gpu(char *name, size_t n, bool *driver)
{
    static const char *const roots[] = {"/proc/driver/nvidia/gpus", "/sys/bus/pci/devices"};
    for (int k = 0; k < 2; k++) {
        DIR *d = opendir(roots[k]);
        bool found = false;
        for (struct dirent *e; d && !found && (e = readdir(d));) {
            char path[400], vendor[32] = "", class[32] = "";
            snprintf(path, sizeof path, "%s/%s/%s", roots[k], e->d_name, k ? "vendor" : "information");
            if (!k) {
                found = read_line(path, "Model", name, n);
                continue;
            }
            snprintf(name, n, "an NVIDIA GPU");
            found = read_line(path, "", vendor, sizeof vendor) && !strcmp(vendor, "0x10de");
            snprintf(path, sizeof path, "%s/%s/class", roots[k], e->d_name);
            found = found && read_line(path, "", class, sizeof class) && !strncmp(class, "0x03", 4);
        }
        if (d)
            closedir(d);
        *driver = !k;
        if (found)
            return true;
    }
    return false;
}

static unsigned numa_nodes(void)
{
    unsigned n = 0;
    DIR *d = opendir("/sys/devices/system/node");
    for (struct dirent *e; d && (e = readdir(d));)
        n += !strncmp(e->d_name, "node", 4) && e->d_name[4] >= '0' && e->d_name[4] <= '9';
    if (d)
        closedir(d);
    return NTX_MAX(n, 1u);
}

static void judge_limits(struct ntx_doctor_report *r)
{
    struct rlimit l;
    char size[32], thp[128];
    if (!getrlimit(RLIMIT_MEMLOCK, &l) && l.rlim_cur != RLIM_INFINITY && l.rlim_cur < r->hw.ram_bytes)
        ntx__doctor_say(r,
                        "Locked memory is limited to %s (ulimit -l), so weights in RAM may be paged out when idle and "
                        "the drive's buffers are not registered: "
                        "raise 'memlock' in /etc/security/limits.conf, or run ntx as its service, which asks for it.",
                        ntx_format_size(l.rlim_cur, size, sizeof size));
    if (read_line("/sys/kernel/mm/transparent_hugepage/enabled", "", thp, sizeof thp) && strstr(thp, "[never]"))
        ntx__doctor_say(r,
                        "Transparent huge pages are off: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled.");
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (online > (long)ntx__doctor_threads())
        ntx__doctor_say(r, "This process may use %u of the %ld processors (taskset, cpuset): ntx will use no more.",
                        ntx__doctor_threads(), online);
}

/* Other processes make all measurements slow, and so the predictions. */
static void judge_quiet(struct ntx_doctor_report *r)
{
    if (ntx_hw_busy(&r->hw))
        ntx__doctor_say(r,
                        "The machine was busy while it was measured (a load of %.1f on %u processors): run ntx doctor "
                        "again when it is quiet.",
                        r->hw.load * ntx__doctor_threads(), ntx__doctor_threads());
}

static void judge_hardware(struct ntx_doctor_report *r)
{
    char gpu[96] = "", why[300] = "";
    bool driver;
    unsigned nodes = numa_nodes();
    if (!ntx__doctor_gpu(r, why, sizeof why) && find_gpu(gpu, sizeof gpu, &driver))
        ntx__doctor_say(r,
                        driver ? "There is a GPU (%s) that cannot be used: %s."
                               : "There is %s, but no driver is loaded: install NVIDIA's to use it (%s).",
                        gpu, why);
    if (nodes > 1)
        ntx__doctor_say(r,
                        "Memory has %u NUMA nodes: start ntx under `numactl --interleave=all`, so that all threads "
                        "reach the weights at the same rate.",
                        nodes);
    if (!strcmp(r->hw.kernel, "generic"))
        ntx__doctor_say(r, "This CPU has no AVX2, so plain C kernels are used: they will be the limit.");
}

void ntx__doctor_machine(struct ntx_doctor_report *r)
{
    char mem[64], host[64] = "this machine";
    if (!read_line("/proc/cpuinfo", "model name", r->hw.cpu, sizeof r->hw.cpu))
        snprintf(r->hw.cpu, sizeof r->hw.cpu, "unknown");
    if (read_line("/proc/meminfo", "MemTotal", mem, sizeof mem))
        r->hw.ram_bytes = strtoull(mem, NULL, 10) << 10;
    gethostname(host, sizeof host - 1);
    snprintf(r->hw.name, sizeof r->hw.name, "%s", host);
    judge_quiet(r);
    judge_limits(r);
    judge_hardware(r);
}
