/* SPDX-License-Identifier: Apache-2.0 */
#include "client/monitor/top_sample.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"

#define NOW(name)        (t->b.v[NTX_C_##name])
#define DIFF(from, name) ((double)(t->b.v[NTX_C_##name] - (from)->v[NTX_C_##name]))

static uint64_t get(const _Atomic uint64_t *v)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)v, memory_order_relaxed);
}
static uint32_t get32(const _Atomic uint32_t *v)
{
    return atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)v, memory_order_acquire);
}

static void read_counters(const struct ntx_counters *c, struct ntx_top_sample *s)
{
    s->t_ns = ntx_now_ns();
    for (int i = 0; i < NTX_N_COUNTERS; i++)
        s->v[i] = ntx_counter_get(c, (enum ntx_counter)i);
    for (int i = 0; i < (int)NTX_MON_RANKS; i++) {
        const struct ntx_mon_rank *m = &c->mon.rank[i];
        s->rank[i].read = get(&m->bytes_read);
        s->rank[i].stall = get(&m->stall_ns);
        s->rank[i].multiply = get(&m->multiply_ns);
        s->rank[i].message = get(&m->message_ns);
    }
}

static uint64_t pss_of(uint64_t pid)
{
    char path[64], line[256];
    unsigned long long kb = 0;
    snprintf(path, sizeof path, "/proc/%" PRIu64 "/smaps_rollup", pid);
    FILE *f = fopen(path, "r");
    while (f && !kb && fgets(line, sizeof line, f))
        if (sscanf(line, "Pss: %llu kB", &kb) != 1)
            kb = 0;
    if (f)
        fclose(f);
    return kb * 1024;
}

/* Proportional set size of a process in bytes; its resident size if the former may not be read; 0 when it is gone. */
static uint64_t memory_of(uint64_t pid)
{
    char path[64];
    unsigned long long pages = 0;
    uint64_t pss = pid ? pss_of(pid) : 0;
    if (pss || !pid)
        return pss;
    snprintf(path, sizeof path, "/proc/%" PRIu64 "/statm", pid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*u %llu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void sample_processes(struct ntx_top *t, double s)
{
    static const struct {
        const char *name;
        enum ntx_counter pid, cpu;
    } of[] = {{"computed", NTX_C_comp_pid, NTX_C_comp_cpu_ns},
              {"iod", NTX_C_iod_pid, NTX_C_iod_cpu_ns},
              {"predictor", NTX_C_pred_pid, NTX_C_pred_cpu_ns}};
    for (int i = 0; i < 3; i++) {
        uint64_t pid = t->b.v[of[i].pid];
        double cpu = (double)(t->b.v[of[i].cpu] - t->a.v[of[i].cpu]) / 1e9 / s;
        t->process[i] = (struct ntx_top_process){of[i].name, pid, memory_of(pid), cpu};
    }
}

/* Finds the bottleneck of the pipeline from the time spent. A pass may last longer than the interval and is counted
 * at its end: while sessions generate, the whole interval counts. */
/* With several machines: the one that the others wait for. */
static const char *slowest_machine(struct ntx_top *t)
{
    unsigned worst = 1;
    for (unsigned i = 2; i < t->n_ranks; i++)
        worst = t->rank[i].multiply > t->rank[worst].multiply ? i : worst;
    const struct ntx_top_rank *r = &t->rank[worst];
    if (r->multiply < 0.5)
        return "the network between the machines";
    snprintf(t->limit_text, sizeof t->limit_text, "%s%.*s",
             r->stall > 0.5 * r->multiply ? "the drive of " : "computing on ", (int)sizeof t->c->mon.rank->name,
             r->name);
    return t->limit_text;
}

static const char *find_bottleneck(struct ntx_top *t)
{
    double interval = (double)(t->b.t_ns - t->pass.t_ns);
    double pass = NOW(comp_sessions) ? NTX_MAX(interval, DIFF(&t->pass, comp_pass_ns)) : DIFF(&t->pass, comp_pass_ns);
    double stall = NTX_MAX(DIFF(&t->pass, comp_stall_ns), DIFF(&t->pass, iod_busy_ns) - DIFF(&t->pass, comp_cpu_ns));
    if (pass <= 0 || !NOW(comp_sessions))
        return "nothing: idle";
    if (t->n_ranks && t->rank_wait > 0.5)
        return slowest_machine(t);
    if (stall > 0.5 * pass)
        return "the drive";
    return stall > 0.1 * pass ? "drive and computing alike" : "computing";
}

/* Rates of figures that are counted when a pass ends. During a pass the rates of the last one stay, but never more
 * than one pass in all that time. */
static void compute_pass_rates(struct ntx_top *t)
{
    double p = (double)(t->b.t_ns - t->pass.t_ns) / 1e9;
    if (NOW(comp_sessions) && !DIFF(&t->pass, comp_passes)) {
        double less = NTX_MIN(1.0, 1 / NTX_MAX(p * t->pass_s, 1e-9));
        t->pass_s *= less;
        t->tok_s *= less;
        t->prompt_s *= less;
    } else {
        t->pass_s = DIFF(&t->pass, comp_passes) / p;
        t->tok_s = DIFF(&t->pass, comp_tokens) / p;
        t->prompt_s = DIFF(&t->pass, comp_prompt_tokens) / p;
        t->draft_passes = DIFF(&t->pass, comp_draft_passes);
        t->draft_nodes = DIFF(&t->pass, comp_draft_nodes);
        t->draft_hits = DIFF(&t->pass, comp_draft_hits);
        t->draft_lookup = DIFF(&t->pass, comp_draft_hits_lookup);
        t->draft_file = DIFF(&t->pass, comp_draft_hits_file);
        t->draft_wait = NTX_MIN(DIFF(&t->pass, comp_draft_wait_ns) / 1e9 / p, 1.0);
    }
    t->ring_bps = t->pass_s * (double)NOW(comp_bytes_storage);
    t->ram_bps = t->pass_s * (double)NOW(comp_bytes_host);
    t->ram_best_bps = NTX_MAX(t->ram_best_bps, t->ram_bps);
    t->stall = NTX_MIN(DIFF(&t->pass, comp_stall_ns) / 1e9 / p, 1.0);
}

/* Figures of other machines since the last pass that ended; they report with each message. */
static void sample_ranks(struct ntx_top *t)
{
    double s = (double)(t->b.t_ns - t->pass.t_ns) / 1e9;
    t->n_ranks = NTX_MIN(get32(&t->c->mon.n_ranks), (uint32_t)NTX_MON_RANKS);
    t->rank_bps = DIFF(&t->pass, comp_rank_bytes) / s;
    t->rank_wait = NTX_MIN(DIFF(&t->pass, comp_rank_wait_ns) / 1e9 / s, 1.0);
    for (unsigned i = 1; i < t->n_ranks; i++)
        t->rank[i] = (struct ntx_top_rank){
            t->c->mon.rank[i].name,
            (double)(t->b.rank[i].read - t->pass.rank[i].read) / s,
            NTX_MIN((double)(t->b.rank[i].stall - t->pass.rank[i].stall) / 1e9 / s, 1.0),
            NTX_MIN((double)(t->b.rank[i].multiply - t->pass.rank[i].multiply) / 1e9 / s, 1.0),
            NTX_MIN((double)(t->b.rank[i].message - t->pass.rank[i].message) / 1e9 / s, 1.0),
            get(&t->c->mon.rank[i].kv_bytes),
            get32(&t->c->mon.rank[i].ring_ready),
            get32(&t->c->mon.rank[i].ring_slots)};
}

static void compute_rates(struct ntx_top *t)
{
    double s = (double)(t->b.t_ns - t->a.t_ns) / 1e9;
    t->uptime_s = t->b.t_ns > t->c->started_ns ? (double)(t->b.t_ns - t->c->started_ns) / 1e9 : 0;
    t->drive_bps = DIFF(&t->a, iod_bytes_read) / s;
    t->emulated = NOW(comp_ceiling_bps) != 0;
    t->drive_ceiling_bps = (double)(t->emulated ? NOW(comp_ceiling_bps) : NOW(iod_best_bps));
    compute_pass_rates(t);
    t->decisions_s = DIFF(&t->a, comp_decisions) / s;
    sample_ranks(t);
    t->limit = find_bottleneck(t);
    sample_processes(t, s);
}

static void sample_service(struct ntx_top *t)
{
    const struct ntx_monitor *m = &t->c->mon;
    t->service = (enum ntx_mon_service)NTX_MIN(get32(&m->service), (uint32_t)NTX_MON_N_SERVICES - 1);
    for (int i = 0; i < NTX_MON_N_PARTS; i++) {
        uint32_t grade = get32(&m->trouble[i].grade);
        t->trouble[i].grade = grade > NTX_MON_STOPPED ? NTX_MON_WELL : (enum ntx_mon_grade)grade;
        memcpy(t->trouble[i].text, m->trouble[i].text, sizeof t->trouble[i].text);
        t->trouble[i].text[sizeof t->trouble[i].text - 1] = 0;
    }
}

static void sample_layers(struct ntx_top *t)
{
    double passes = (double)(NOW(comp_passes) - t->layer_passes),
           decisions = (double)(NOW(comp_decisions) - t->layer_decisions);
    bool fresh = NOW(comp_passes) != t->layer_passes;
    t->n_layers = NTX_MIN(get32(&t->c->mon.n_layers), (uint32_t)NTX_MON_LAYERS);
    for (unsigned i = 0; i < t->n_layers; i++) {
        const struct ntx_mon_layer *m = &t->c->mon.layer[i];
        double d = (double)get(&m->device), h = (double)get(&m->host), s = (double)get(&m->storage),
               all = NTX_MAX(d + h + s, 1.0);
        uint64_t skipped = get(&m->skipped), predicted = get(&m->predicted);
        struct ntx_top_layer *l = &t->layer[i];
        l->device = d / all;
        l->host = h / all;
        l->storage = s / all;
        if (!fresh)
            continue;
        l->skipped = skipped > t->layer_skipped[i] ? (double)(skipped - t->layer_skipped[i]) / passes : 0;
        l->predicted = predicted > t->layer_predicted[i] && decisions > 0
                           ? (double)(predicted - t->layer_predicted[i]) / decisions
                           : 0;
        t->layer_skipped[i] = skipped;
        t->layer_predicted[i] = predicted;
    }
    if (fresh) {
        t->layer_passes = NOW(comp_passes);
        t->layer_decisions = NOW(comp_decisions);
    }
}

static void sample_sessions(struct ntx_top *t)
{
    t->n_sessions = 0;
    for (unsigned i = 0; i < NTX_MON_SESSIONS; i++) {
        const struct ntx_mon_session *m = &t->c->mon.session[i];
        uint64_t asked = get(&m->asked_ns), first = get(&m->first_ns), last = get(&m->last_ns);
        struct ntx_top_session s = {
            .id = get(&m->id),
            .state = (enum ntx_mon_state)get32(&m->state),
            .prompt = get32(&m->prompt),
            .past = get32(&m->past),
            .generated = get32(&m->generated),
        };
        if (s.state == NTX_MON_NONE || s.state > NTX_MON_KEPT)
            continue;
        s.age_s = asked && t->b.t_ns > asked ? (double)(t->b.t_ns - asked) / 1e9 : 0;
        s.ttft_s = first > asked ? (double)(first - asked) / 1e9 : 0;
        s.tok_s = s.generated > 1 && last > first ? (s.generated - 1) * 1e9 / (double)(last - first) : 0;
        t->session[t->n_sessions++] = s;
    }
}

static void append_history(float *history, unsigned n, double v)
{
    if (n == NTX_TOP_HISTORY)
        memmove(history, history + 1, (NTX_TOP_HISTORY - 1) * sizeof *history);
    history[NTX_MIN(n, NTX_TOP_HISTORY - 1u)] = (float)v;
}

void ntx_top_begin(struct ntx_top *t, const struct ntx_counters *c)
{
    *t = (struct ntx_top){.c = c};
    read_counters(c, &t->b);
    t->a = t->pass = t->b;
    t->layer_passes = NOW(comp_passes);
    t->layer_decisions = NOW(comp_decisions);
    for (unsigned i = 0; i < NTX_MON_LAYERS; i++) {
        t->layer_skipped[i] = get(&c->mon.layer[i].skipped);
        t->layer_predicted[i] = get(&c->mon.layer[i].predicted);
    }
}

void ntx_top_step(struct ntx_top *t)
{
    if (t->b.v[NTX_C_comp_passes] != t->pass.v[NTX_C_comp_passes])
        t->pass = t->b;
    t->a = t->b;
    read_counters(t->c, &t->b);
    if (t->b.t_ns == t->a.t_ns)
        t->b.t_ns++;
    if (!NOW(comp_sessions)) /* without sessions, nothing waits for a pass */
        t->pass = t->a;
    compute_rates(t);
    sample_service(t);
    sample_layers(t);
    sample_sessions(t);
    append_history(t->drive_history, t->n_history, t->drive_bps / 1e9);
    append_history(t->tok_history, t->n_history, t->tok_s);
    append_history(t->stall_history, t->n_history, t->stall);
    t->n_history = NTX_MIN(t->n_history + 1, (unsigned)NTX_TOP_HISTORY);
}
