#include "client/cmd_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands.h"
#include "common/util.h"
#include "shm/memlimit.h"

static int get_profile(const struct ntx_options *o, struct ntx_hw *hw, struct ntx_err *err)
{
    int rc = o->profile ? ntx_hw_load(o->profile, hw, err) : ntx_hw_find(hw, err);
    if (rc == -ENOENT && !o->profile)
        return ntx_err_set(err, rc, "no hardware profile of this machine: make one with `ntx doctor` (under 30 s), or name one with --profile");
    if (!rc)
        ntx_hw_cap(hw, o->link_nvme, o->link_h2d);
    return rc;
}

static int get_model(const struct ntx_options *o, struct ntx_outline *m, struct ntx_err *err)
{
    struct ntx_model_files f = {0};
    const char *path = o->args[0], *slash = strrchr(path, '/');
    if (strchr(path, '@') && access(path, F_OK))
        return ntx_outline_named(path, m, err);
    int rc = ntx_model_files_open(path, &f, err);
    if (!rc)
        rc = ntx_outline_gguf(f.gguf, slash ? slash + 1 : path, m, err);
    ntx_model_files_close(&f);
    return rc;
}

/* What `ntx run` would take here. */
static uint64_t local_ram(void)
{
    struct ntx_memlimit m;
    ntx_memlimit_read(&m);
    return m.available - m.available / 10;
}

static enum ntx_multiply multiply(const struct ntx_options *o)
{
    return !o->backend || !strcmp(o->backend, "auto") ? NTX_MULTIPLY_BEST : !strcmp(o->backend, "cpu") ? NTX_MULTIPLY_CPU : NTX_MULTIPLY_GPU;
}

static uint32_t main_type(const struct ntx_outline *m)
{
    uint32_t best = 0;
    uint64_t most = 0;
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++) {
        uint64_t n = m->bytes[NTX_PART_DENSE][t] + m->bytes[NTX_PART_EXPERT][t];
        if (n > most) {
            most = n;
            best = t;
        }
    }
    return best;
}

/* Bytes of a weight on average; vectors, which are F32 in every file, are not weights of a matrix. */
static double weight_bytes(const struct ntx_outline *m, uint32_t main_type_)
{
    double bytes = 0, values = 0;
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        for (int part = 0; part < NTX_PART_EMBED && (t != NTX_F32 || t == main_type_); part++) {
            const struct ntx_type_info *i = ntx_type_info(t);
            bytes += (double)m->bytes[part][t];
            values += m->bytes[part][t] ? (double)m->bytes[part][t] / i->block_bytes * i->block : 0;
        }
    return bytes / values;
}

/* The GPU's roof where it is known, else the CPU's: memory's rate, and the best arithmetic that any row count reaches. */
static void set_roof(struct ntx_plan_answer *a)
{
    const struct ntx_outline *m = &a->model;
    const struct ntx_hw *hw = &a->hw;
    uint32_t type = main_type(m);
    const struct ntx_type_info *t = ntx_type_info(type);
    uint32_t used = NTX_MAX(m->n_used, 1u);
    a->roof_model = (struct ntx_roof_model){m->n_embd, m->n_head, m->n_head_kv, m->head_k, m->n_ff * used, m->n_vocab, m->n_layers,
                                            weight_bytes(m, type), 2, a->place.kv_token_bytes / (double)ntx_outline_kv_values(m)};
    if (hw->gpu.bps > 0 && hw->gpu.flops > 0 && a->place.multiply != NTX_MULTIPLY_CPU) {
        a->roof = (struct ntx_roof_machine){hw->gpu.bps, hw->gpu.flops, hw->gpu.int8_ops};
        a->roof_gpu = true;
        return;
    }
    for (uint32_t rows = 1; rows <= 512; rows *= 2) {
        double s = ntx_hw_byte_s(hw, type, rows, a->place.threads, true);
        double flops = s > 0 ? 2.0 * rows * t->block / t->block_bytes / s : 0;
        a->roof.peak = NTX_MAX(a->roof.peak, flops);
    }
    a->roof.bps = a->roof.peak > 0 ? ntx_hw_ram_bps(hw, a->place.threads) : 0;
}

/* ntx_kv_type_of's, in bytes of a value. */
static int get_kv_type(const struct ntx_options *o, double *bytes, struct ntx_err *err)
{
    bool q8 = o->kv_type && !strcmp(o->kv_type, "q8_0");
    if (!q8 && o->kv_type && strcmp(o->kv_type, "f16"))
        return ntx_err_set(err, -EINVAL, "--kv-type is f16 or q8_0, not '%s'", o->kv_type);
    const struct ntx_type_info *t = ntx_type_info(q8 ? NTX_Q8_0 : NTX_F16);
    *bytes = (double)t->block_bytes / t->block;
    return 0;
}

/* What a lossy pass reads depends on the text. */
static int refuse_lossy(const struct ntx_options *o, struct ntx_err *err)
{
    const char *named = o->skip && strcmp(o->skip, "off") ? "--skip" : o->ffn_sparse && strcmp(o->ffn_sparse, "off") ? "--ffn-sparse" : NULL;
    return named ? ntx_err_set(err, -EINVAL, "%s is not predicted: what it reads depends on the text (ntx bench measures it)", named) : 0;
}

static void forecast(struct ntx_plan_answer *a)
{
    struct ntx_load_bytes one, many;
    uint32_t text = NTX_MIN(a->place.ctx, NTX_PLACE_TEXT);
    ntx_place_load(&a->model, &a->place, 1, text, &one);
    ntx_place_load(&a->model, &a->place, a->place.rows, text, &many);
    a->predicted = !ntx_predict(&a->hw, &one, &a->decode) && !ntx_predict(&a->hw, &many, &a->prefill);
}

int ntx_cmd_plan(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_plan_answer *a = calloc(1, sizeof *a);
    struct ntx_place_request r = {.ram = o->ram, .vram = o->vram, .ctx = o->ctx, .threads = o->threads, .multiply = multiply(o)};
    int rc = a ? get_profile(o, &a->hw, &err) : ntx_err_set(&err, -ENOMEM, "no memory");
    if (!rc)
        rc = refuse_lossy(o, &err);
    if (!rc)
        rc = get_kv_type(o, &r.kv_value_bytes, &err);
    if (!rc)
        rc = get_model(o, &a->model, &err);
    if (!rc && !o->profile && !r.ram)
        r.ram = local_ram();
    if (r.multiply == NTX_MULTIPLY_CPU)
        r.vram = UINT64_MAX;
    if (!rc)
        rc = ntx_place(&a->hw, &a->model, &r, &a->place, &err);
    if (!rc) {
        a->compat = o->compat;
        a->batch = o->batch;
        forecast(a);
        set_roof(a);
        if (o->json)
            ntx_plan_print_json(a);
        else
            ntx_plan_print(a);
    }
    free(a);
    return rc ? ntx_fail(&err) : 0;
}
