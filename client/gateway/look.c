/* How the daemons are, for all who ask at once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/call.h"
#include "common/util.h"

enum { LOOK_MS = 10000 };

static int look(struct ntx_gate *g, char **out, struct ntx_err *err)
{
    struct ntx_call *c = NULL;
    struct ntx_event e;
    int rc = ntx_call_open(g, -1, false, &c, err);
    if (!rc)
        rc = ntx_call_status(c, err);
    if (!rc)
        rc = ntx_call_next(c, LOOK_MS, &e, err);
    *out = !rc && e.kind == NTX_EVENT_STATUS ? strdup(e.text) : NULL;
    ntx_call_close(c);
    return *out ? 0 : rc ? rc : ntx_err_set(err, -EPROTO, "ntx-computed tells no status");
}

int ntx_gate_look(struct ntx_gate *g, json_t **out, struct ntx_err *err)
{
    uint64_t now = ntx_now_ns();
    pthread_mutex_lock(&g->look.lock);
    if (g->look.since_ns < now) { /* nobody has asked since we came: we do, for those who come meanwhile, too */
        g->look.since_ns = ntx_now_ns();
        free(g->look.said);
        g->look.err = (struct ntx_err){0};
        g->look.rc = look(g, &g->look.said, &g->look.err);
    }
    int rc = g->look.rc;
    *out = g->look.said ? json_loads(g->look.said, 0, NULL) : NULL;
    if (rc)
        *err = g->look.err;
    pthread_mutex_unlock(&g->look.lock);
    return rc || *out ? rc : ntx_err_set(err, -EPROTO, "ntx-computed's status is no JSON, or there is no memory for it");
}
