/* SPDX-License-Identifier: Apache-2.0 */
/* The daemons' status, shared by concurrent callers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/call.h"
#include "client/monitor/metrics_text.h"
#include "common/util.h"

enum { LOOK_MS = 10000, AGAIN_S = 30 };

/* An orderly end removes the counters' file. If it is still there, it says whether a model was served. */
int ntx_gate_gone(struct ntx_gate *g, const char *dir, struct ntx_err *err)
{
    const struct ntx_counters *c = NULL;
    uint64_t now = ntx_now_ns(), none = 0;
    if (ntx_counters_open(dir, &c, NULL))
        return 0;
    bool had_model = atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)&c->mon.n_layers, memory_order_acquire) != 0;
    ntx_counters_close((struct ntx_counters *)(uintptr_t)c);
    atomic_compare_exchange_strong(&g->gone_ns, &none, now);
    if (now - atomic_load(&g->gone_ns) > AGAIN_S * 1000000000ull)
        return 0; /* nobody starts it again */
    return ntx_err_set(err, -EHOSTDOWN, "ntx-computed has ended unexpectedly, and is started again%s: try again soon",
                       had_model ? "; then the model that it served is loaded again" : "");
}

static int fetch_status(struct ntx_gate *g, unsigned place, char **out, struct ntx_err *err)
{
    struct ntx_call *c = NULL;
    struct ntx_event e;
    int rc = ntx_call_open(g, place, NTX_NO_CALLER, false, &c, err);
    if (!rc)
        rc = ntx_call_status(c, err);
    if (!rc)
        rc = ntx_call_next(c, LOOK_MS, &e, err);
    if (rc == -ETIMEDOUT)
        ntx_err_set(err, rc, "ntx-computed has not answered for %d s: is it stopped?", LOOK_MS / 1000);
    *out = !rc && e.kind == NTX_EVENT_STATUS ? strdup(e.text) : NULL;
    ntx_call_close(c);
    if (*out || rc)
        return *out ? 0 : rc;
    return ntx_err_set(err, -EPROTO, "ntx-computed sends no status");
}

int ntx_gate_look(struct ntx_gate *g, unsigned place, json_t **out, struct ntx_err *err)
{
    uint64_t now = ntx_now_ns();
    pthread_mutex_lock(&g->look[place].lock);
    if (g->look[place].since_ns <
        now) { /* nobody has asked since this call began: ask, also for those who come meanwhile */
        g->look[place].since_ns = ntx_now_ns();
        free(g->look[place].said);
        g->look[place].err = (struct ntx_err){0};
        g->look[place].rc = fetch_status(g, place, &g->look[place].said, &g->look[place].err);
    }
    int rc = g->look[place].rc;
    *out = g->look[place].said ? json_loads(g->look[place].said, 0, NULL) : NULL;
    if (rc)
        *err = g->look[place].err;
    pthread_mutex_unlock(&g->look[place].lock);
    return rc || *out ? rc
                      : ntx_err_set(err, -EPROTO, "ntx-computed's status is no JSON, or there is no memory for it");
}
