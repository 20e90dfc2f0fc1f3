/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/place.h"

#include <errno.h>
#include <stdio.h>

#include "common/util.h"
#include "computed/gpu/device.h"
#include "computed/pass/forward.h"

#define THREADS_MOST 256u

/* GPU memory for ntx: 0 if the GPU is not to compute, or cannot. */
static uint64_t vram_of(const struct ntx_hw *hw, const struct ntx_outline *o, const struct ntx_place_request *r,
                        struct ntx_layout *l)
{
    struct ntx_err why = {0};
    if (!hw->gpu.bytes || r->vram == UINT64_MAX || r->plan.multiply == NTX_MULTIPLY_CPU)
        return 0;
    if (ntx_backend_can(&ntx_device_backend, o->model, ntx_plan_ctx(&o->model->hp, r->plan.ctx), &why)) {
        snprintf(l->note, sizeof l->note, "the GPU is not used: %.170s", why.text);
        return 0;
    }
    if (r->plan.kv_type == NTX_KV_Q4_0) {
        snprintf(l->note, sizeof l->note, "the GPU is not used: KV in q4_0 has no kernels there");
        return 0;
    }
    if (hw->gpu.unified)
        return r->vram ? NTX_MIN(r->vram, l->ram) : l->ram;
    return r->vram ? NTX_MIN(r->vram, hw->gpu.bytes) : hw->gpu.bytes - hw->gpu.bytes * 8 / 100;
}

static void sum_up(const struct ntx_hw *hw, const struct ntx_outline *o, const struct ntx_plan *p, struct ntx_layout *l)
{
    struct ntx_load_bytes one, many;
    uint32_t text = ntx_plan_text(p);
    uint64_t kept = p->bytes_kv + p->bytes_host + p->bytes_rows;
    l->bytes[NTX_TIER_DEVICE] = p->bytes_device;
    l->bytes[NTX_TIER_HOST] = p->bytes_host;
    l->bytes[NTX_TIER_STORAGE] = p->bytes_storage;
    l->rows_bytes = p->bytes_rows;
    l->kv_bytes = p->bytes_kv;
    l->work_bytes = p->bytes_total > kept ? p->bytes_total - kept : 0;
    l->ctx = p->ctx;
    l->rows = p->max_rows;
    l->threads = p->threads;
    l->kv_type = p->kv_type;
    l->kv_token_bytes = (double)ntx_kv_block_bytes(&o->model->hp, p->kv_type) / NTX_KV_BLOCK;
    l->on_device = p->on_device;
    l->n_without = p->n_without;
    l->predicted = ntx_plan_load(o->model, p, 1, 1, text, &one) &&
                   ntx_plan_load(o->model, p, p->max_rows, p->kv.ram ? 0 : 1, text, &many) &&
                   !ntx_predict(hw, &one, &l->decode) && !ntx_predict(hw, &many, &l->prefill);
}

static void note_small_gpu(const struct ntx_plan *p, struct ntx_layout *l)
{
    char need[32], have[32];
    if (l->vram && !p->on_device)
        snprintf(l->note, sizeof l->note, "the GPU is not used: KV and work take %s of its memory, and it has %s",
                 ntx_format_size(p->device_need, need, sizeof need), ntx_format_size(l->vram, have, sizeof have));
}

int ntx_place(const struct ntx_hw *hw, const struct ntx_outline *o, const struct ntx_place_request *r,
              struct ntx_layout *out, struct ntx_err *err)
{
    const struct ntx_plan_clients clients = {.least_rows = r->logits_rows, .trees = r->trees};
    struct ntx_plan_request q = r->plan;
    struct ntx_plan *p = NULL;
    *out = (struct ntx_layout){.ctx = 0};
    q.hw = hw;
    q.clients = &clients;
    q.other_bytes += o->held_bytes;
    q.threads = NTX_MIN(q.threads ? q.threads : NTX_MAX(hw->threads, 1u), THREADS_MOST);
    q.ram_bytes = out->ram = q.ram_bytes ? q.ram_bytes
                                         : NTX_ROUND_DOWN(hw->ram_bytes - hw->ram_bytes * 15 / 100, 1ull << 20);
    q.vram_bytes = out->vram = vram_of(hw, o, r, out);
    q.unified = hw->gpu.unified;
    if (!q.ram_bytes)
        return ntx_err_set(err, -EINVAL, "the profile does not say how much memory the machine has: give --ram");
    out->smallest = r->smallest ? ntx_plan_smallest(o->model, &q) : 0;
    int rc = ntx_plan_make(o->model, &q, &p, err);
    if (rc)
        return rc;
    if (r->smallest && !p->clients.constrains)
        out->constrains_from = ntx_plan_constrains_from(o->model, &q);
    sum_up(hw, o, p, out);
    note_small_gpu(p, out);
    if (r->drafts.stats && out->predicted)
        ntx_draft_predict(hw, o->model, p, &r->drafts, &out->drafts);
    ntx_plan_free(p);
    return 0;
}
