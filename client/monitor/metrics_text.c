/* SPDX-License-Identifier: Apache-2.0 */
#include "client/monitor/metrics_text.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "common/printable.h"
#include "common/util.h"
#include "ntx_version.h"

/* Removes the suffix `end`: "iod_busy_ns" becomes "iod_busy"; false if name has another suffix. */
static bool cut_suffix(char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    if (n < k || strcmp(name + n - k, end))
        return false;
    name[n - k] = 0;
    return true;
}

/* A counter's name in Prometheus; returns the factor of its values, 0 when it is left out. */
static double metric_name(const struct ntx_counter_info *i, char *buf, size_t n)
{
    char base[96];
    const char *unit = "";
    double scale = 1;
    snprintf(base, sizeof base, "%s", i->name);
    if (cut_suffix(base, "_pid"))
        return 0;
    if (cut_suffix(base, "_ns")) {
        unit = "_seconds";
        scale = 1e-9;
    } else if (cut_suffix(base, "_bps")) {
        unit = "_bytes_per_second";
    } else if (!strcmp(i->unit, "bytes") && !strstr(base, "bytes")) {
        unit = "_bytes";
    }
    snprintf(buf, n, "ntx_%s%s%s", base, unit, i->kind == 'c' ? "_total" : "");
    return scale;
}

static void write_head(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static uint64_t get(const _Atomic uint64_t *v)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)v, memory_order_relaxed);
}

static void write_counters(FILE *f, const struct ntx_counters *c)
{
    for (int i = 0; i < NTX_N_COUNTERS; i++) {
        const struct ntx_counter_info *info = &ntx_counter_info[i];
        char name[128];
        double scale = metric_name(info, name, sizeof name);
        uint64_t v = ntx_counter_get(c, (enum ntx_counter)i);
        if (scale <= 0)
            continue;
        write_head(f, name, info->kind == 'c' ? "counter" : "gauge", info->help);
        if (scale < 1)
            fprintf(f, "%s %.9f\n", name, (double)v * scale);
        else
            fprintf(f, "%s %" PRIu64 "\n", name, v);
    }
}

/* The buckets are read one by one and summed for the count, so that the two always agree. */
static void write_histogram(FILE *f, const struct ntx_hist *h, enum ntx_histogram which)
{
    const struct ntx_hist_info *info = &ntx_hist_info[which];
    char name[128];
    uint64_t n = 0;
    snprintf(name, sizeof name, "ntx_%s_%s", info->name, info->unit);
    write_head(f, name, "histogram", info->help);
    for (unsigned i = 0; i < NTX_HIST_BOUNDS; i++) {
        n += get(&h->bucket[i]);
        fprintf(f, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, (double)ntx_hist_bound(which, i) / 1e6, n);
    }
    n += get(&h->bucket[NTX_HIST_BOUNDS]);
    fprintf(f, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.6f\n%s_count %" PRIu64 "\n", name, n, name,
            (double)get(&h->sum) / 1e6, name, n);
}

/* A label's value from bytes [room] of a file, which may hold anything. */
static void write_label(FILE *f, const char *name, const char *value, size_t room)
{
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)value, *end = p + strnlen(value, room);
    fprintf(f, "%s=\"", name);
    while (p < end) {
        utf8proc_int32_t ch;
        utf8proc_ssize_t n = utf8proc_iterate(p, end - p, &ch);
        if (n < 1 || ntx_printable_steers((uint32_t)ch))
            putc('?', f);
        else if (ch == '"' || ch == '\\')
            fprintf(f, "\\%c", (int)ch);
        else
            fwrite(p, 1, (size_t)n, f);
        p += n < 1 ? 1 : n;
    }
    putc('"', f);
}

static void write_model(FILE *f, const struct ntx_counters *c)
{
    const struct ntx_monitor *m = &c->mon;
    if (!atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)&m->n_layers, memory_order_acquire))
        return;
    write_head(f, "ntx_model_info", "gauge", "the loaded model; always 1");
    fputs("ntx_model_info{", f);
    write_label(f, "model", m->model, sizeof m->model);
    putc(',', f);
    write_label(f, "arch", m->arch, sizeof m->arch);
    putc(',', f);
    write_label(f, "kernel", m->kernel, sizeof m->kernel);
    fputs("} 1\n", f);
}

static void write_sessions(FILE *f, const struct ntx_counters *c)
{
    static const char *const names[] = {[NTX_MON_WAITING] = "waiting",
                                        [NTX_MON_READING] = "reading",
                                        [NTX_MON_WRITING] = "writing",
                                        [NTX_MON_KEPT] = "kept"};
    unsigned n[NTX_MON_KEPT + 1] = {0};
    for (unsigned i = 0; i < NTX_MON_SESSIONS; i++) {
        uint32_t s = atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)&c->mon.session[i].state,
                                          memory_order_relaxed);
        n[s <= NTX_MON_KEPT ? s : 0]++;
    }
    write_head(f, "ntx_sessions", "gauge", "sessions by state");
    for (int s = NTX_MON_WAITING; s <= NTX_MON_KEPT; s++)
        fprintf(f, "ntx_sessions{state=\"%s\"} %u\n", names[s], n[s]);
}

static void write_layers(FILE *f, const struct ntx_counters *c)
{
    uint32_t n = atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)&c->mon.n_layers, memory_order_acquire);
    if (!n)
        return;
    write_head(f, "ntx_layer_skipped_total", "counter", "passes that left this layer out");
    for (uint32_t i = 0; i < NTX_MIN(n, (uint32_t)NTX_MON_LAYERS); i++)
        fprintf(f, "ntx_layer_skipped_total{layer=\"%u\"} %" PRIu64 "\n", i, get(&c->mon.layer[i].skipped));
}

static void rank_metric(FILE *f, const struct ntx_counters *c, uint32_t n, const char *name, const char *help,
                        size_t at, double by)
{
    write_head(f, name, strstr(name, "_total") ? "counter" : "gauge", help);
    for (uint32_t i = 1; i < n; i++) {
        fprintf(f, "%s{", name);
        write_label(f, "machine", c->mon.rank[i].name, sizeof c->mon.rank[i].name);
        fprintf(f, "} %.9g\n",
                by * (double)get((const _Atomic uint64_t *)(const void *)((const char *)&c->mon.rank[i] + at)));
    }
}

static void write_ranks(FILE *f, const struct ntx_counters *c)
{
    uint32_t n = NTX_MIN(atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)&c->mon.n_ranks, memory_order_acquire),
                         (uint32_t)NTX_MON_RANKS);
    if (!n)
        return;
    rank_metric(f, c, n, "ntx_machine_read_bytes_total",
                "bytes that another machine that shares the model has read from its drive",
                offsetof(struct ntx_mon_rank, bytes_read), 1);
    rank_metric(f, c, n, "ntx_machine_stall_seconds_total", "time that it waited for its drive",
                offsetof(struct ntx_mon_rank, stall_ns), 1e-9);
    rank_metric(f, c, n, "ntx_machine_multiply_seconds_total", "time that it was at products, waiting in it",
                offsetof(struct ntx_mon_rank, multiply_ns), 1e-9);
    rank_metric(f, c, n, "ntx_machine_message_seconds_total",
                "time that the first machine waited for its answers while it was not at products",
                offsetof(struct ntx_mon_rank, message_ns), 1e-9);
    rank_metric(f, c, n, "ntx_machine_kv_bytes", "its memory for keys and values (--split heads)",
                offsetof(struct ntx_mon_rank, kv_bytes), 1);
}

/* Whether the process of these counters lives. EPERM: it does, as another user. */
static bool is_alive(const struct ntx_counters *c)
{
    pid_t pid = c ? (pid_t)ntx_counter_get(c, NTX_C_comp_pid) : 0;
    return pid > 0 && (!kill(pid, 0) || errno == EPERM);
}

/* dead: the daemon was killed and left its counters. */
static void write_service(FILE *f, const struct ntx_counters *c, bool dead)
{
    uint32_t now = dead ? NTX_MON_N_SERVICES
                        : atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)&c->mon.service, memory_order_acquire);
    write_head(f, "ntx_state", "gauge", "1 for the state that the service is in");
    for (uint32_t i = 0; i < NTX_MON_N_SERVICES; i++)
        fprintf(f, "ntx_state{state=\"%s\"} %d\n", ntx_mon_service_name[i], i == now);
    fprintf(f, "ntx_state{state=\"down\"} %d\n", dead);
    write_head(f, "ntx_trouble", "gauge",
               "state of the service: 0 in order, 1 degraded, 2 unable to answer requests (`ntx status` "
               "has the reason)");
    for (int i = 0; i < NTX_MON_N_PARTS; i++) {
        uint32_t grade = atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)&c->mon.trouble[i].grade,
                                              memory_order_acquire);
        fprintf(f, "ntx_trouble{part=\"%s\"} %u\n", ntx_mon_part_name[i], dead ? 0 : grade);
    }
}

/* The model that is being loaded. */
static void write_loading(FILE *f, const struct ntx_counters *c)
{
    const uint64_t since = atomic_load((_Atomic uint64_t *)(uintptr_t)&c->mon.loading_ns), now = ntx_now_ns();
    if (!since)
        return;
    write_head(f, "ntx_loading_seconds", "gauge", "time since the model that is being loaded was asked for");
    fputs("ntx_loading_seconds{", f);
    write_label(f, "model", c->mon.loading, sizeof c->mon.loading);
    fprintf(f, "} %.3f\n", (double)(now - NTX_MIN(since, now)) / 1e9);
}

static void write_all(FILE *f, const struct ntx_counters *c)
{
    const bool dead = c && !is_alive(c);
    write_head(f, "ntx_up", "gauge", "1 while ntx-computed is there");
    fprintf(f, "ntx_up %d\n", c && !dead);
    write_head(f, "ntx_build_info", "gauge", "version of ntx; always 1");
    fputs("ntx_build_info{version=\"" NTX_VERSION "\",commit=\"" NTX_COMMIT "\"} 1\n", f);
    if (!c)
        return;
    write_head(f, "ntx_uptime_seconds", "gauge", "time since ntx-computed began");
    fprintf(f, "ntx_uptime_seconds %.3f\n", (double)(ntx_now_ns() - c->started_ns) / 1e9);
    write_service(f, c, dead);
    if (!dead)
        write_loading(f, c);
    write_model(f, c);
    write_counters(f, c);
    write_sessions(f, c);
    write_layers(f, c);
    write_ranks(f, c);
    for (int h = 0; h < NTX_N_HISTOGRAMS; h++)
        write_histogram(f, &c->mon.hist[h], (enum ntx_histogram)h);
}

char *ntx_metrics_text(const struct ntx_counters *c, size_t *len)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, len);
    if (!f)
        return NULL;
    write_all(f, c);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}
