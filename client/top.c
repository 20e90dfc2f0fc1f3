/* ntx-top: the pipeline at a glance. Reads the counters' file (read-only shared memory) and /proc; asks the daemons nothing, so it
 * works while they are busy and costs them nothing. Rates are differences between two samples. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"
#include "client/options.h"
#include "common/util.h"
#include "ntx_version.h"
#include "shm/counters.h"

struct sample {
    uint64_t t_ns;
    uint64_t v[NTX_N_COUNTERS];
};

struct options {
    bool once;
    double interval;
    const char *dir;
};

static void take(const struct ntx_counters *c, struct sample *s)
{
    s->t_ns = ntx_now_ns();
    for (int i = 0; i < NTX_N_COUNTERS; i++)
        s->v[i] = ntx_counter_get(c, (enum ntx_counter)i);
}

/* Proportional set size of a process in bytes; resident size where the former may not be read; 0 when it is gone. */
static uint64_t memory_of(uint64_t pid)
{
    char path[64], line[256];
    unsigned long long kb, pages;
    uint64_t bytes = 0;
    snprintf(path, sizeof path, "/proc/%" PRIu64 "/smaps_rollup", pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Pss: %llu kB", &kb) == 1)
            bytes = kb * 1024;
    if (f)
        fclose(f);
    if (bytes)
        return bytes;
    snprintf(path, sizeof path, "/proc/%" PRIu64 "/statm", pid);
    if ((f = fopen(path, "r"))) {
        if (fscanf(f, "%*u %llu", &pages) == 1)
            bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
        fclose(f);
    }
    return bytes;
}

#define NOW(name) (b->v[NTX_C_##name])
#define DIFF(name) ((double)(b->v[NTX_C_##name] - a->v[NTX_C_##name]))

static void bar(double share, int width)
{
    int full = (int)(NTX_MAX(0.0, NTX_MIN(1.0, share)) * width + 0.5);
    putchar('[');
    for (int i = 0; i < width; i++)
        putchar(i < full ? '#' : '.');
    putchar(']');
}

static void show_process(const char *name, uint64_t pid, double cpu_ns, double s)
{
    char buf[32];
    if (!pid) {
        printf("  %-14s -\n", name);
        return;
    }
    printf("  %-14s pid %-8" PRIu64 " cpu %6.1f %%   memory %s\n", name, pid, cpu_ns / s / 1e7, ntx_format_size(memory_of(pid), buf, sizeof buf));
}

/* What the pipeline waits for, from where the time went. A pass may last longer than the interval, and is counted at its end:
 * while sessions generate, all of the interval is theirs. */
static const char *limit(const struct sample *a, const struct sample *b)
{
    double interval = (double)(b->t_ns - a->t_ns);
    double pass = NOW(comp_sessions) ? NTX_MAX(interval, DIFF(comp_pass_ns)) : DIFF(comp_pass_ns);
    double stall = NTX_MAX(DIFF(comp_stall_ns), DIFF(iod_busy_ns) - DIFF(comp_cpu_ns));
    if (pass <= 0)
        return "nothing: idle";
    if (stall > 0.5 * pass)
        return "the drive";
    if (stall > 0.1 * pass)
        return "the drive and computing, about even";
    return "computing (memory or arithmetic)";
}

static void show(const struct sample *a, const struct sample *b)
{
    char m[32], h[32], st[32];
    double s = (double)(b->t_ns - a->t_ns) / 1e9;
    double rate = DIFF(iod_bytes_read) / s, ceiling = (double)(NOW(comp_ceiling_bps) ? NOW(comp_ceiling_bps) : NOW(iod_best_bps));
    double model = (double)NTX_MAX(NOW(comp_bytes_model), 1u);
    show_process("ntx-computed", NOW(comp_pid), DIFF(comp_cpu_ns), s);
    show_process("ntx-iod", NOW(iod_pid), DIFF(iod_cpu_ns), s);
    show_process("ntx-predictor", NOW(pred_pid), DIFF(pred_cpu_ns), s);
    printf("  drive     ");
    bar(ceiling > 0 ? rate / ceiling : 0, 20);
    if (ceiling > 0)
        printf(" %.2f of %.2f GB/s (%s), %.1f MB in flight\n", rate / 1e9, ceiling / 1e9, NOW(comp_ceiling_bps) ? "emulated" : "its best so far",
               (double)NOW(iod_inflight) / 1e6);
    else
        printf(" %.2f GB/s (ceiling not known yet), %.1f MB in flight\n", rate / 1e9, (double)NOW(iod_inflight) / 1e6);
    printf("  ring      ");
    bar((double)NOW(comp_ring_ready) / (double)NTX_MAX(NOW(comp_ring_slots), 1u), 20);
    printf(" %" PRIu64 " of %" PRIu64 " slots ready, %" PRIu64 " tainted\n", NOW(comp_ring_ready), NOW(comp_ring_slots), NOW(comp_tainted_slots));
    printf("  model     ");
    bar((double)NOW(comp_bytes_host) / model, 20);
    printf(" %s: %s in RAM, %s read for each pass\n", ntx_format_size(NOW(comp_bytes_model), m, sizeof m),
           ntx_format_size(NOW(comp_bytes_host), h, sizeof h), ntx_format_size(NOW(comp_bytes_storage), st, sizeof st));
    printf("  sessions   %" PRIu64 " generating, %" PRIu64 " waiting; KV %" PRIu64 " of %" PRIu64 " blocks\n", NOW(comp_sessions), NOW(comp_queued),
           NOW(comp_kv_blocks_used), NOW(comp_kv_blocks));
    printf("  tokens     %.2f tok/s generated, %.2f tok/s of prompt, %.2f passes/s\n", DIFF(comp_tokens) / s, DIFF(comp_prompt_tokens) / s,
           DIFF(comp_passes) / s);
    printf("  predictor  %.1f decisions/s; skipped chunks: %" PRIu64 " early, %" PRIu64 " late\n", DIFF(comp_decisions) / s, NOW(comp_skip_early),
           NOW(comp_skip_late));
    printf("  limit      %s\n", limit(a, b));
}

static error_t parse_opt(int key, char *arg, struct argp_state *st)
{
    struct options *o = st->input;
    char *end;
    switch (key) {
    case 'o': o->once = true; return 0;
    case 'd':
        o->interval = strtod(arg, &end);
        if (*end || !(o->interval >= 0.05 && o->interval <= 3600))
            argp_error(st, "'%s' is not a number of seconds from 0.05 to 3600", arg);
        return 0;
    case 'r': o->dir = arg; return 0;
    case ARGP_KEY_ARG: argp_error(st, "unexpected argument '%s'", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Two samples, the second after the interval; -EINTR when a signal came meanwhile. */
static int wait_interval(double seconds)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    return sigtimedwait(&set, NULL, &t) > 0 ? -EINTR : 0;
}

static int watch(const struct options *o, const char *dir, struct ntx_err *err)
{
    const struct ntx_counters *c;
    struct sample a, b;
    int rc = ntx_counters_open(dir, &c, err);
    if (rc)
        return rc;
    take(c, &a);
    do {
        if ((rc = wait_interval(o->interval)))
            break;
        take(c, &b);
        if (!o->once)
            fputs("\033[H\033[2J", stdout);
        printf("ntx-top %s   %s\n", NTX_VERSION, dir);
        show(&a, &b);
        fflush(stdout);
        a = b;
    } while (!o->once);
    ntx_counters_close((struct ntx_counters *)(uintptr_t)c);
    return rc == -EINTR ? 0 : rc;
}

const char *argp_program_version = "ntx-top " NTX_BUILD;

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"once", 'o', NULL, 0, "print once and exit", 0},
        {"interval", 'd', "SECONDS", 0, "time between samples (default 1)", 0},
        {"runtime", 'r', "DIR", 0, "the daemons' runtime directory (default: as ntx finds it)", 0},
        {0},
    };
    static const struct argp argp = {options, parse_opt, "", "What the daemons do right now: rates, memory, placement, and what limits.", NULL, NULL, NULL};
    struct options o = {.interval = 1};
    struct ntx_err err = {0};
    char dir[256];
    argp_err_exit_status = NTX_EXIT_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    ntx_client_signals();
    if (o.dir)
        snprintf(dir, sizeof dir, "%s", o.dir);
    else if (ntx_runtime_dir(false, dir, sizeof dir, &err))
        return fprintf(stderr, "ntx-top: %s\n", err.text), NTX_EXIT_FAILED;
    char path[300];
    snprintf(path, sizeof path, "%s/counters", dir);
    if (!o.dir && !getenv("NTX_RUNTIME") && access(path, F_OK) && !access("/run/ntx/counters", F_OK))
        snprintf(dir, sizeof dir, "/run/ntx");
    int rc = watch(&o, dir, &err);
    if (rc)
        return fprintf(stderr, "ntx-top: %s; no daemons run there (start them with `ntx up MODEL` or `systemctl start ntx.target`)\n", err.text), NTX_EXIT_FAILED;
    return 0;
}
