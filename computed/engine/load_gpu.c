/* SPDX-License-Identifier: Apache-2.0 */
/* load_gpu.c: the GPU's part of loading a model. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/pass/kv_form.h"
#include "computed/engine/load.h"
#include "computed/plan/predict.h"

#define BLOCK 4096u
#define SPARE (256ull << 20) /* of the card's memory, left for its driver, its context and cuBLAS */

static bool equals(const char *s, const char *name) { return s && !strcmp(s, name); }

static bool is_named(const struct ntx_load_request *r)
{
    return r->set.backend && *r->set.backend && !equals(r->set.backend, "auto");
}

/* With `auto`, the CPU computes and a note says why; a named back end fails with the reason. */
static int go_without(const struct ntx_load_request *r, struct ntx_loaded *l, const char *why, struct ntx_err *err)
{
    ntx_gpu_back_close(&l->back);
    if (is_named(r))
        return ntx_err_set(err, -ENODEV, "--backend %s: %.400s", r->set.backend, why);
    snprintf(l->back_note, sizeof l->back_note, "computing on the CPU: %.240s", why);
    return 0;
}

/* Opens a back end if it exists and has the operations of this model's layers. */
static int try_kind(const struct ntx_load_request *r, struct ntx_loaded *l, const struct ntx_back_kind *k,
                    struct ntx_err *why)
{
    int rc = ntx_backend_can(k->table, l->model, ntx_plan_ctx(&l->model->hp, r->set.ctx), why);
    if (rc)
        return rc;
    if (r->set.capture || r->set.skip_adapt || r->set.skip_verify)
        return ntx_err_set(
            why, -ENOTSUP,
            "only the CPU looks closely at what each layer does (--skip-adapt, --skip-verify, calibrate)");
    if (!strcmp(r->set.kv_type, ntx_kv_type_name(NTX_KV_Q4_0)))
        return ntx_err_set(why, -ENOTSUP, "KV in q4_0 has no kernels there");
    if (l->kv_form && l->kv_form->n_pairs)
        return ntx_err_set(why, -ENOTSUP,
                           "KV in q8_0 must keep this model's biases of K (up to %.0f) apart, which only the CPU does: "
                           "leave --kv-type out",
                           (double)l->kv_form->most);
    if (r->set.kv_ram)
        return ntx_err_set(why, -ENOTSUP, "its KV lies in its own memory, which --kv-ram does not reach");
    return ntx_gpu_back_open(k, &l->back, why);
}

int ntx__load_pick_gpu(const struct ntx_load_request *r, struct ntx_loaded *l, struct ntx_err *err)
{
    struct ntx_err why = {0};
    bool known = !is_named(r);
    for (const struct ntx_back_kind *k = ntx_back_kinds; k->name; k++) {
        bool wanted = equals(r->set.backend, k->name);
        known |= wanted;
        if (k->library ? (wanted || !is_named(r)) && !try_kind(r, l, k, &why) : wanted)
            return 0;
    }
    return known ? go_without(r, l, why.text, err)
                 : ntx_err_set(err, -EINVAL, "there is no back end '%s'", r->set.backend);
}

static struct ntx_device_config device_config(const struct ntx_loaded *l)
{
    uint32_t n = l->plan->geo.n_desc;
    return (struct ntx_device_config){
        .ops = l->back.ops,
        .gpu = l->back.gpu,
        .model = l->model,
        .chunks = l->plan->chunks,
        .table = l->plan->table,
        .max_rows = l->plan->max_rows,
        .ctx = l->plan->ctx,
        .kv = l->plan->kv,
        .logits_rows = NTX_MIN(l->logits_rows, l->plan->max_rows),
        .in_flight = n > 1 ? NTX_MIN(n - 1, NTX_PLAN_IN_FLIGHT) : 1,
        .kv_type = l->plan->kv_type,
        .ffn = l->ffn,
        .h2d_bps = l->set.link_h2d,
        .share = &l->share,
        .no_graphs = l->set.no_gpu_graphs,
        .in_place = l->registered && l->back.info.integrated ? l->region.base : NULL,
        .in_place_bytes = l->region.bytes,
    };
}

/* Chooses the share of rows that the card multiplies, by the cost model for each type and number of rows; without a
 * measured rate, by the default. */
static void choose_share(struct ntx_loaded *l, const struct ntx_hw *hw)
{
    ntx_copy_share_default(&l->share);
    for (uint32_t i = 0; hw && i < l->plan->chunks->n; i++) {
        uint32_t type = ntx_gguf_tensor_at(l->gguf, l->plan->chunks->list[i].tensor)->type;
        bool known = i && type == ntx_gguf_tensor_at(l->gguf, l->plan->chunks->list[i - 1].tensor)->type;
        for (uint32_t rows = 1; !known && rows <= NTX_SHARE_ROWS; rows++) {
            double share = ntx_predict_share(hw, type, rows, l->plan->threads);
            if (share >= 0)
                l->share.of[type][rows] = (uint8_t)(share * 64 + 0.5);
        }
    }
}

/* Bytes of the card's memory that the plan may use, within --vram. */
uint64_t ntx__load_vram(const struct ntx_load_request *r, const struct ntx_loaded *l)
{
    if (!l->back.gpu)
        return 0;
    uint64_t card = l->back.info.free > SPARE ? l->back.info.free - SPARE : 1;
    if (l->back.info.integrated)
        card = l->ram_bytes;
    return r->set.vram ? NTX_MIN(r->set.vram, card) : card;
}

int ntx__load_plan_gpu(const struct ntx_load_request *r, struct ntx_loaded *l, const struct ntx_plan_request *q,
                       struct ntx_err *err)
{
    if (!l->back.gpu)
        return 0;
    choose_share(l, q->hw);
    if (l->plan->on_device)
        return 0;
    char a[32], b[32], why[240];
    uint64_t need = l->plan->device_need;
    snprintf(why, sizeof why,
             "KV and work of this model take %s (%llu bytes) of %s, and the budget is %s: use a smaller --ctx, or a "
             "larger %s",
             ntx_format_size(need, a, sizeof a), (unsigned long long)need,
             q->unified ? "memory for the GPU beside all else" : "GPU memory",
             ntx_format_size(q->vram_bytes, b, sizeof b), q->unified && !r->set.vram ? "--ram" : "--vram");
    return go_without(r, l, why, err);
}

/* Reads one chunk from its file. */
static int read_chunk(void *ctx, uint32_t chunk, void *to, struct ntx_err *err)
{
    const struct ntx_loaded *l = ctx;
    const struct ntx_chunk *c = &l->plan->chunks->list[chunk];
    const int rc = ntx_read_at(l->fds[c->file], to, c->bytes, c->offset);
    if (rc)
        return ntx_err_set(err, rc == -ENODATA ? -EIO : rc, "%s: %llu bytes at %llu cannot be read: %s",
                           l->names[c->file], (unsigned long long)c->bytes, (unsigned long long)c->offset,
                           ntx_read_error(rc));
    /* a chunk on the GPU needs no page cache */
    posix_fadvise(l->fds[c->file], (off_t)(c->offset / BLOCK * BLOCK), (off_t)c->bytes, POSIX_FADV_DONTNEED);
    return 0;
}

/* Locks memory for the GPU's copies. A failure costs only speed, since copies then go through a buffer of the driver.
 * It is reported and counted. */
static bool lock_for_copies(struct ntx_loaded *l, void *p, uint64_t bytes)
{
    char size[32];
    if (!l->back.ops->host_register(l->back.gpu, p, bytes))
        return true;
    l->pageable += bytes;
    snprintf(l->lock_note, sizeof l->lock_note, "copies to the GPU are slow: %s cannot be locked for them (%.200s)",
             ntx_format_size(l->pageable, size, sizeof size), l->back.ops->error(l->back.gpu));
    return false;
}

int ntx__load_build_gpu(struct ntx_loaded *l, struct ntx_err *err)
{
    if (!l->back.gpu)
        return 0;
    l->registered = lock_for_copies(l, l->region.base, l->region.bytes);
    struct ntx_device_config c = device_config(l);
    int rc = ntx_device_new(&c, &l->device, err);
    const char *graphs = rc ? NULL : ntx_device_graphs(l->device);
    if (graphs && *graphs)
        snprintf(l->graph_note, sizeof l->graph_note, "the GPU's kernels are launched one by one, not as graphs (%s)",
                 graphs);
    if (rc || (rc = ntx_device_fill(l->device, read_chunk, l, err)))
        return rc;
    return 0;
}

void ntx__load_start_gpu(struct ntx_loaded *l)
{
    uint64_t bytes;
    void *memory = ntx_forward_memory(l->forward, &bytes);
    l->registered_rows = l->device && lock_for_copies(l, memory, bytes);
}

void ntx__load_free_gpu(struct ntx_loaded *l)
{
    uint64_t bytes;
    ntx_device_free(l->device);
    if (l->registered_rows)
        l->back.ops->host_unregister(l->back.gpu, ntx_forward_memory(l->forward, &bytes));
    if (l->registered)
        l->back.ops->host_unregister(l->back.gpu, l->region.base);
    ntx_gpu_back_close(&l->back);
}
