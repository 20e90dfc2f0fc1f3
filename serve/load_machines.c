/* load_machines.c: a load on several machines: every step that could fail on one of them is told to all, so that none waits for one that has given up. */
#include <errno.h>

#include "common/util.h"
#include "plan/budget.h"
#include "serve/load.h"
#include "serve/machines.h"

#define FOLLOWER_CTX 256u /* tokens: nothing of a text is kept there */

int ntx__load_share(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err)
{
    struct ntx_err mine = {0}, ignored = {0};
    struct ntx_hw hw;
    bool have = !ntx_hw_find(&hw, &ignored);
    const char *why = ntx_machines_refusal(r->machines, &r->set, l->model->pack != NULL, l->model->delta.any || l->model->delta.base);
    if (have)
        ntx_hw_cap(&hw, r->set.link_nvme, r->set.link_h2d);
    if (why)
        ntx_err_set(&mine, -ENOTSUP, "%s", why);
    l->ram_bytes = r->set.ram ? r->set.ram : ntx_budget_default(r->reclaim_bytes);
    int rc = ntx_machines_agree(r->machines, l, &r->set, have ? &hw : NULL, &mine, &l->share_rows, err);
    if (rc)
        return rc;
    l->machines = r->machines;
    if (ntx_machines_rank(l->machines))
        r->set.kv_ram = 0;
    return ntx_machines_ranks(l->machines, &l->ranks) ? ntx_err_set(err, -ENOMEM, "no memory") : 0;
}

void ntx__load_unshared(struct ntx_machines *m, const struct ntx_loaded *l, const struct ntx_err *failed)
{
    struct ntx_err known = {0};
    struct ntx_share none;
    uint32_t rows = 0;
    if (ntx_machines_stage(m) == NTX_MACHINES_JOINED)
        ntx_machines_agree(m, l, &l->set, NULL, failed, &none, &known);
    else if (ntx_machines_stage(m) == NTX_MACHINES_AGREED)
        ntx_machines_rows(m, &rows, failed, &known);
}

/* As many rows as without, unless the messages of so many do not fit. */
static int plan_first(struct ntx_loaded *l, const struct ntx_plan_request *asked, struct ntx_err *err)
{
    struct ntx_plan_request q = *asked;
    struct ntx_plan *p = NULL;
    int rc = ntx_plan_make(l->model, &q, &p, err);
    if (rc)
        return rc;
    for (q.max_rows = p->max_rows;; q.max_rows = q.max_rows / 2) {
        q.other_bytes = asked->other_bytes + ntx_ranks_bytes(l->model, q.max_rows, NTX_MIN(q.max_rows, NTX_MAX(p->clients.logits_rows, 1u)));
        rc = ntx_plan_make(l->model, &q, &l->plan, err);
        if (rc != -ENOMEM || q.max_rows < 2)
            break;
    }
    ntx_plan_free(p);
    return rc;
}

static int plan_other(struct ntx_loaded *l, const struct ntx_plan_request *asked, uint32_t rows, struct ntx_err *err)
{
    struct ntx_plan_request q = *asked;
    q.max_rows = rows;
    q.ctx = FOLLOWER_CTX;
    q.sessions = 1;
    q.clients = NULL;
    q.kv_ram = 0;
    q.other_bytes += ntx_ranks_bytes(l->model, rows, NTX_MIN(rows, 32u));
    return ntx_plan_make(l->model, &q, &l->plan, err);
}

int ntx__load_plan_shared(struct ntx_loaded *l, struct ntx_plan_request *q, struct ntx_err *err)
{
    struct ntx_err mine = {0};
    uint32_t rows = 0;
    bool first = !ntx_machines_rank(l->machines);
    q->share = &l->share_rows;
    if (first && !plan_first(l, q, &mine))
        rows = l->plan->max_rows;
    int rc = ntx_machines_rows(l->machines, &rows, &mine, err);
    if (rc)
        return rc;
    if (!first)
        plan_other(l, q, rows, &mine);
    return ntx_machines_rows(l->machines, &rows, &mine, err);
}
