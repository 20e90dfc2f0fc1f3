/* SPDX-License-Identifier: Apache-2.0 */
/* load_machines.c: a load on several machines. Each step that can fail on one machine is reported to all, so that none
 * waits for one that has failed. */
#include <errno.h>

#include "common/util.h"
#include "computed/engine/load.h"
#include "computed/engine/machines.h"
#include "computed/plan/budget.h"

#define FOLLOWER_CTX 256u /* tokens; a follower keeps nothing of a text but K and V by heads */

int ntx__load_share(struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err)
{
    struct ntx_err mine = {0}, ignored = {0};
    struct ntx_hw hw;
    bool have = !ntx_hw_find(&hw, &ignored);
    const char *why = ntx_machines_refusal(r->machines, &r->set, l->model->pack != NULL,
                                           l->model->delta.any || l->model->delta.base);
    if (have)
        ntx_hw_cap(&hw, r->set.link_nvme, r->set.link_h2d);
    if (why)
        ntx_err_set(&mine, -ENOTSUP, "%s", why);
    l->ram_bytes = r->set.ram ? r->set.ram : ntx_budget_default(r->reclaim_bytes);
    int rc = ntx_machines_agree(r->machines, l, &r->set, have ? &hw : NULL, &mine, &l->machine_share, err);
    if (rc)
        return rc;
    l->machines = r->machines;
    l->model->hp.kv_share = l->machine_share.split == NTX_SPLIT_HEADS ? &l->machine_share : NULL;
    if (ntx_machines_rank(l->machines))
        r->set.kv_ram = 0;
    return ntx_machines_ranks(l->machines, &l->ranks) ? ntx_err_set(err, -ENOMEM, "no memory") : 0;
}

bool ntx__load_is_first(const struct ntx_machines *m) { return !ntx_machines_rank(m); }
void ntx__load_over(struct ntx_loaded *l) { ntx_machines_over(l->machines, l->ranks); }

void ntx__load_unshared(struct ntx_machines *m, const struct ntx_loaded *l, const struct ntx_err *failed)
{
    struct ntx_err known = {0};
    struct ntx_share none;
    struct ntx_machines_pass pass = {0};
    if (ntx_machines_stage(m) == NTX_MACHINES_JOINED)
        ntx_machines_agree(m, l, &l->set, NULL, failed, &none, &known);
    else if (ntx_machines_stage(m) == NTX_MACHINES_AGREED)
        ntx_machines_pass(m, &pass, failed, &known);
}

/* As many rows as on one machine, unless the messages of so many do not fit. */
static int plan_first(struct ntx_loaded *l, const struct ntx_plan_request *asked, struct ntx_err *err)
{
    struct ntx_plan_request q = *asked;
    struct ntx_plan *p = NULL;
    int rc = ntx_plan_make(l->model, &q, &p, err);
    if (rc)
        return rc;
    for (q.max_rows = p->max_rows;; q.max_rows = q.max_rows / 2) {
        q.other_bytes = asked->other_bytes +
                        ntx_ranks_bytes(l->model, q.max_rows, NTX_MIN(q.max_rows, NTX_MAX(p->clients.logits_rows, 1u)));
        rc = ntx_plan_make(l->model, &q, &l->plan, err);
        if (rc != -ENOMEM || q.max_rows < 2)
            break;
    }
    ntx_plan_free(p);
    return rc;
}

static int plan_follower(struct ntx_loaded *l, const struct ntx_plan_request *asked,
                         const struct ntx_machines_pass *pass, struct ntx_err *err)
{
    const bool heads = l->machine_share.split == NTX_SPLIT_HEADS;
    const uint32_t rows = pass->rows;
    struct ntx_plan_request q = *asked;
    q.max_rows = rows;
    q.ctx = heads ? pass->ctx : FOLLOWER_CTX;
    q.kv = heads ? &pass->kv : NULL;
    q.sessions = 1;
    q.clients = NULL;
    q.kv_ram = 0;
    q.other_bytes += ntx_ranks_bytes(l->model, rows, NTX_MIN(rows, 32u));
    return ntx_plan_make(l->model, &q, &l->plan, err);
}

static struct ntx_machines_planned planned_bytes(const struct ntx_loaded *l, bool keeps_kv)
{
    return (struct ntx_machines_planned){keeps_kv ? l->plan->bytes_kv : 0, l->plan->bytes_host, l->plan->bytes_storage};
}

static int plan_all(struct ntx_loaded *l, const struct ntx_plan_request *q, struct ntx_err *err)
{
    struct ntx_err mine = {0};
    struct ntx_machines_pass pass = {0};
    bool first = !ntx_machines_rank(l->machines);
    if (first && !plan_first(l, q, &mine)) {
        pass = (struct ntx_machines_pass){
            .rows = l->plan->max_rows, .ctx = l->plan->ctx, .kv = l->plan->kv, .of = planned_bytes(l, false)};
        pass.kv.states = 0; /* rank 0 has the recurrent states */
    }
    int rc = ntx_machines_pass(l->machines, &pass, &mine, err);
    if (rc)
        return rc;
    if (!first && !plan_follower(l, q, &pass, &mine))
        pass.of = planned_bytes(l, l->machine_share.split == NTX_SPLIT_HEADS);
    return ntx_machines_pass(l->machines, &pass, &mine, err);
}

static void free_plan(struct ntx_loaded *l)
{
    ntx_plan_free(l->plan);
    l->plan = NULL;
}

int ntx__load_plan_shared(struct ntx_loaded *l, struct ntx_plan_request *q, struct ntx_err *err)
{
    struct ntx_err ignored = {0};
    q->share = &l->machine_share;
    int rc = plan_all(l, q, err);
    for (bool again = true; !rc && again;) {
        const struct ntx_share before = l->machine_share;
        if ((rc = ntx_machines_deal_again(l->machines, &l->machine_share, &again, err)) || !again)
            break;
        free_plan(l);
        if (!plan_all(l, q, &ignored))
            continue;
        free_plan(l); /* too much for one of the machines, which all know by now */
        l->machine_share = before;
        rc = plan_all(l, q, err);
        again = false;
    }
    return rc;
}
