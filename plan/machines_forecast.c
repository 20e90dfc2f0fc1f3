/* machines_forecast.c: machines and a model of which only the profile and the outline are known (machines.h). */
#include "plan/machines.h"

#include "common/util.h"

static struct ntx_share_work work_of(const struct ntx_outline *o)
{
    const struct ntx_hparams *hp = &o->model->hp;
    return (struct ntx_share_work){.dense = (double)(ntx_outline_bytes(o, NTX_PART_DENSE) + ntx_outline_bytes(o, NTX_PART_HEAD)), .experts = (double)ntx_outline_bytes(o, NTX_PART_EXPERT),
                                   .used = hp->n_expert ? (double)hp->n_expert_used / hp->n_expert : 0};
}

int ntx_machines_forecast(const struct ntx_outline *o, const struct ntx_hw *hw, const uint64_t *budget, uint32_t n, const struct ntx_machines_link *link, enum ntx_split split,
                          struct ntx_machines_forecast *out, struct ntx_err *err)
{
    struct ntx_share_machine of[NTX_RANKS_MAX];
    const struct ntx_share_work work = work_of(o);
    for (uint32_t i = 0; i < n && i < NTX_RANKS_MAX; i++)
        of[i] = (struct ntx_share_machine){NTX_SHARE_KEEPS * (double)budget[i], ntx_hw_ram_bps(&hw[i], 0), ntx_hw_stream_bps(&hw[i], ntx_hw_read_bytes(&hw[i]))};
    return ntx_machines_predict(o->model, &work, of, n, link, split, out, err);
}
