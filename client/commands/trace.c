/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "client/commands/trace.h"
#include "client/where.h"
#include "common/util.h"

int ntx_trace_finish(struct ntx_tracer *t, const struct ntx_options *o, const char *path, struct ntx_err *err)
{
    struct ntx_trace_summary s;
    int rc = ntx_tracer_write(t, path, &s, err);
    if (rc || o->quiet)
        return rc;
    ntx_say("%s: %.2f s; reading %.2f s, computing %.2f s, both at once %.2f s (%.0f %% of the computing); open it at "
            "ui.perfetto.dev",
            path, s.wall, s.reading, s.computing, s.both, s.computing > 0 ? 100 * s.both / s.computing : 0);
    if (s.drafting > 0)
        ntx_say("drafting %.2f s, %.0f %% of it while a pass ran", s.drafting, 100 * s.hidden / s.drafting);
    if (s.missed)
        fprintf(stderr, "ntx: %llu events were not recorded: too many, or too fast\n", (unsigned long long)s.missed);
    return 0;
}

/* These signals end the recording early; the trace is written all the same. */
static void hold_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigprocmask(SIG_BLOCK, set, NULL);
}

static void wait_seconds(double seconds, const sigset_t *set)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (sigtimedwait(set, NULL, &t) < 0 && errno == EINTR)
        ;
}

int ntx_cmd_trace(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_tracer *t = NULL;
    struct ntx_where w;
    sigset_t ends;
    if (!o->out)
        return fputs("ntx: trace needs -o FILE\n", stderr), NTX_EXIT_USAGE;
    hold_signals(&ends);
    int rc = ntx_where(true, &w, &err);
    if (!rc)
        rc = ntx_tracer_start(w.dir, &t, &err);
    if (!rc) {
        wait_seconds(o->trace_seconds, &ends);
        rc = ntx_trace_finish(t, o, o->out, &err);
    }
    ntx_tracer_free(t);
    return rc ? ntx_fail(&err) : 0;
}
