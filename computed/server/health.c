/* SPDX-License-Identifier: Apache-2.0 */
/* Health of the service. Each part that may have trouble (shm/monitor.h) goes into the status, into the counters' file
 * for monitors, and into the log when it changes. Checked every second, and for each status. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/util.h"
#include "computed/server/server_impl.h"

#define SILENT_S 5 /* a worker silent for so long is reported */
#define AWAY_S   2 /* a restarted worker is back long before that */
#define SECOND   1000000000ull

void ntx__health_well(struct ntx_server *s, enum ntx_mon_part part)
{
    struct ntx_trouble *t = &s->trouble[part];
    if (t->grade != NTX_MON_WELL)
        ntx_log(NTX_LOG_INFO, "over: %s", t->text);
    *t = (struct ntx_trouble){0};
}

void ntx__health_set(struct ntx_server *s, enum ntx_mon_part part, enum ntx_mon_grade grade, const char *fmt, ...)
{
    struct ntx_trouble *t = &s->trouble[part], now = {.grade = grade};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(now.text, sizeof now.text, fmt, ap);
    va_end(ap);
    if (grade == t->grade && !strcmp(now.text, t->text))
        return;
    ntx_log(NTX_LOG_WARN, "degraded: %s", now.text);
    *t = now;
}

/* Whether a process is stopped by SIGSTOP or a terminal: state T in /proc. A debugger's state t comes and goes; if it
 * stays, the worker is silent. */
static bool is_stopped(pid_t pid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    const char *name_end = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    if (f)
        fclose(f);
    return name_end && name_end[1] == ' ' && name_end[2] == 'T';
}

static void check_worker(struct ntx_server *s, enum ntx_role role, uint64_t awake)
{
    const bool iod = role == NTX_ROLE_IOD;
    const enum ntx_mon_part part = iod ? NTX_MON_PART_IOD : NTX_MON_PART_PREDICTOR;
    /* without decisions and drafts everything is computed */
    const enum ntx_mon_grade grade = iod ? NTX_MON_STOPPED : NTX_MON_SERVED;
    const char *name = iod ? "ntx-iod" : "ntx-predictor",
               *so = iod ? "no weights are read" : "it skips and drafts nothing";
    const pid_t pid = ntx_workers_pid(s->workers, role);
    const uint64_t silent_s = (awake - s->heard_ns[role]) / SECOND;
    if (!pid && s->refused[role][0])
        ntx__health_set(s, part, grade, "%s", s->refused[role]);
    else if (!pid && silent_s >= AWAY_S)
        ntx__health_set(s, part, grade, "%s is not running, so %s: whoever started it is to start it again", name, so);
    else if (pid && is_stopped(pid))
        ntx__health_set(s, part, grade, "%s (pid %d) is stopped (SIGSTOP), so %s: kill -CONT %d lets it go on", name,
                        (int)pid, so, (int)pid);
    else if (pid && silent_s >= SILENT_S)
        ntx__health_set(s, part, grade,
                        "%s (pid %d) has not answered for %d s, so %s: if it stays so, end it (kill -9 %d), and it is "
                        "started again",
                        name, (int)pid, SILENT_S, so, (int)pid);
    else if (pid)
        ntx__health_well(s, part);
}

/* A model is loaded, or its last parts are being read. */
static bool is_serving(const struct ntx_server *s)
{
    return s->engine && (s->state == NTX_MODEL_FILLING || s->state == NTX_MODEL_READY);
}

static enum ntx_mon_service service_state(const struct ntx_server *s)
{
    static const enum ntx_mon_service of[] = {
        [NTX_MODEL_EMPTY] = NTX_MON_SERVICE_EMPTY,      [NTX_MODEL_UNLOADING] = NTX_MON_SERVICE_UNLOADING,
        [NTX_MODEL_BUILDING] = NTX_MON_SERVICE_LOADING, [NTX_MODEL_WAITING] = NTX_MON_SERVICE_LOADING,
        [NTX_MODEL_FILLING] = NTX_MON_SERVICE_LOADING,  [NTX_MODEL_READY] = NTX_MON_SERVICE_READY};
    if (s->draining)
        return NTX_MON_SERVICE_STOPPING;
    if (s->state == NTX_MODEL_EMPTY && ntx__pending_load_of(s, NULL))
        return NTX_MON_SERVICE_LOADING;
    for (int i = 0; s->state == NTX_MODEL_READY && i < NTX_MON_N_PARTS; i++)
        if (s->trouble[i].grade != NTX_MON_WELL)
            return NTX_MON_SERVICE_DEGRADED;
    return of[s->state];
}

static void publish_health(struct ntx_server *s)
{
    struct ntx_monitor *m = &s->counters->mon;
    for (int i = 0; i < NTX_MON_N_PARTS; i++) {
        memcpy(m->trouble[i].text, s->trouble[i].text, sizeof m->trouble[i].text);
        atomic_store_explicit(&m->trouble[i].grade, s->trouble[i].grade, memory_order_release);
    }
    atomic_store_explicit(&m->service, service_state(s), memory_order_release);
}

enum ntx_mon_service ntx__health_look(struct ntx_server *s)
{
    const uint64_t awake = ntx__server_awake(s);
    for (enum ntx_role role = NTX_ROLE_IOD; s->workers && role <= NTX_ROLE_PREDICTOR; role++) {
        if (is_serving(s) && !s->draining)
            check_worker(s, role, awake);
        else
            ntx__health_well(s, role == NTX_ROLE_IOD ? NTX_MON_PART_IOD : NTX_MON_PART_PREDICTOR);
    }
    if (s->counters)
        publish_health(s);
    return service_state(s);
}

void ntx__health_tick(struct ntx_server *s)
{
    ntx__health_look(s);
    if (s->workers)
        ntx_workers_ping(s->workers);
    ntx__files_look(s);
}

void ntx__health_heard(struct ntx_server *s, enum ntx_role role) { s->heard_ns[role] = ntx__server_awake(s); }

bool ntx__health_serves(const struct ntx_server *s)
{
    bool can = s->state == NTX_MODEL_READY && s->engine && !s->draining;
    for (int i = 0; i < NTX_MON_N_PARTS; i++)
        can &= s->trouble[i].grade != NTX_MON_STOPPED;
    return can;
}
