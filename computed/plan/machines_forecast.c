/* SPDX-License-Identifier: Apache-2.0 */
/* machines_forecast.c: the forecast for machines and a model of which only profile and outline exist (machines.h). */
#include "computed/plan/machines.h"

#include "common/util.h"
#include "model/planes.h"

static struct ntx_share_work work_of(const struct ntx_outline *o)
{
    const struct ntx_hparams *hp = &o->model->hp;
    return (struct ntx_share_work){
        .dense = (double)(ntx_outline_bytes(o, NTX_PART_DENSE) + ntx_outline_bytes(o, NTX_PART_HEAD) +
                          ntx_planes_bytes(o->model, NULL)), /* high bits stay in memory before all else */
        .experts = (double)ntx_outline_bytes(o, NTX_PART_EXPERT),
        .used = hp->n_expert ? (double)hp->n_expert_used / hp->n_expert : 0};
}

int ntx_machines_forecast(const struct ntx_outline *o, const struct ntx_machines_request *request, enum ntx_split split,
                          struct ntx_machines_forecast *out, struct ntx_err *err)
{
    struct ntx_share_machine of[NTX_RANKS_MAX];
    struct ntx_share_work work = work_of(o);
    if (!request->no_text)
        ntx_machines_text(&o->model->hp, request->kv_type, request->ctx, 1, &work);
    for (uint32_t i = 0; i < request->n && i < NTX_RANKS_MAX; i++)
        of[i] = ntx_machines_can(o->model, &request->hw[i], request->budget[i]);
    return ntx_machines_predict(o->model, &work, of, request->n, &request->link, split, out, err);
}
