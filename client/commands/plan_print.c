/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>

#include "client/commands/plan.h"
#include "client/out.h"
#include "common/util.h"

static const char *const tiers[NTX_N_TIERS] = {"device", "host", "storage"};
static const char *const tier_names[NTX_N_TIERS] = {"VRAM", "RAM", "drive"};

static struct ntx_roof_run run_of(const struct ntx_plan_answer *a, bool prefill)
{
    return (struct ntx_roof_run){a->batch, a->place.ctx, prefill, a->compat};
}

/* The share of a tensor that a token uses: of experts the chosen ones, of adjugate experts those of their groups. */
static double share_used(const struct ntx_hparams *hp, const struct ntx_gguf_tensor *t)
{
    bool adjugate = false;
    for (int k = NTX_T_adjugate_gate; k <= NTX_T_adjugate_down; k++)
        adjugate |= ntx_is_called(t->name, (enum ntx_tensor)k);
    if (!hp->n_expert || (!adjugate && !ntx_is_experts(t->name)))
        return 1;
    const double of = (double)(adjugate ? t->ne[2] : hp->n_expert);
    return hp->n_expert_used < of ? hp->n_expert_used / of : 1;
}

/* Weights that a token uses. Tables whose rows are looked up do not count. */
static double token_bytes(const struct ntx_outline *m)
{
    const struct ntx_model *model = m->model;
    const struct ntx_hparams *hp = &model->hp;
    double sum = 0;
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(model->gguf); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(model->gguf, i);
        unsigned layer = 0;
        const bool of_layer = sscanf(t->name, "blk.%u.", &layer) == 1;
        const bool table = i == model->input_embd || i == model->gram_embd ||
                           (i == model->token_embd && model->output != model->token_embd);
        if (!table && (!of_layer || layer < hp->n_layers))
            sum += (double)t->bytes * share_used(hp, t);
    }
    return sum;
}

/* ---- text output */

static void print_forecast(const struct ntx_plan_answer *a, const struct ntx_forecast *f, const char *what,
                           uint32_t rows)
{
    printf("%-8s %u row%s: %.4g tok/s (%.4g ms a pass), limit: %s\n", what, rows, rows == 1 ? "" : "s",
           rows / f->pass_s, f->pass_s * 1e3, f->limit);
    printf("         drive %.4g ms, memory %.4g ms, h2d %.4g ms, compute %.4g ms", f->drive_s * 1e3, f->memory_s * 1e3,
           f->h2d_s * 1e3, f->compute_s * 1e3);
    if (a->hw.gpu.bytes)
        printf(" (GPU %.4g, CPU %.4g)", f->device_s * 1e3, f->cpu_s * 1e3);
    if (f->late_s > 0)
        printf(", late %.4g ms", f->late_s * 1e3);
    if (f->copied > 0 && a->hw.gpu.unified)
        printf("; the GPU multiplies weights where they lie in RAM, and none is copied");
    else if (f->copied > 0)
        printf("; %.0f %% of the weights outside VRAM are copied to the GPU", f->copied * 100);
    if (f->estimated)
        printf("; the GPU's rates are estimates, nobody measured them");
    putchar('\n');
}

/* The least budget: exact to the byte where ntx-computed's planner counted. */
static const char *smallest_budget(const struct ntx_plan_answer *a, char *buf, size_t n)
{
    char size[32];
    ntx_format_exact(NTX_ROUND_UP(a->place.smallest, 1ull << 20), size, sizeof size);
    if (a->exact)
        snprintf(buf, n, "--ram %s (%llu bytes)", size, (unsigned long long)a->place.smallest);
    else
        snprintf(buf, n, "about --ram %s", size);
    return buf;
}

static void print_table(const struct ntx_plan_answer *a, bool prefill)
{
    struct ntx_roof_op ops[NTX_ROOF_OPS];
    struct ntx_roof_run r = run_of(a, prefill);
    unsigned n = ntx_roof_table(&a->roof_model, &a->roof, &r, ops);
    char b[5][32];
    printf("\n%-12s %8s %8s %10s %12s  %s\n", prefill ? "prefill" : "decode", "OPs", "bytes", "intensity", "attained",
           "bound");
    for (unsigned i = 0; i < n; i++)
        if (ops[i].listed)
            printf("%-12s %8s %8s %10s %12s  %s\n", ops[i].name, ntx_roof_si(ops[i].ops, b[0], 32),
                   ntx_roof_si(ops[i].bytes, b[1], 32), ntx_roof_intensity(ops[i].intensity, b[2], 32),
                   ntx_roof_si(ops[i].attained, b[3], 32), ops[i].compute_bound ? "compute" : "memory");
    struct ntx_roof_network s = ntx_roof_sum(&a->roof_model, &r, ops, n);
    printf("network: %.6g OPs, %.6g bytes, %.5g ms; layers' weights %.5g GB, KV %.5g GB\n", s.ops, s.bytes,
           s.seconds * 1e3, s.weight_bytes / 1e9, s.kv_bytes / 1e9);
}

static void print_roofs(const struct ntx_plan_answer *a)
{
    if (a->roof.bps <= 0)
        return;
    char peak[32];
    printf(
        "\nRoofline of one layer on the %s, %u sequence%s of %u tokens, activations and KV of 2 bytes, %s formulas:\n",
        a->roof_gpu ? "GPU" : "CPU", a->batch, a->batch == 1 ? "" : "s", a->place.ctx,
        a->compat ? "published" : "corrected");
    printf("peak %sOPS, memory %.4g GB/s, turning point %.4g OPs/byte", ntx_roof_si(a->roof.peak, peak, sizeof peak),
           a->roof.bps / 1e9, ntx_roof_turn(&a->roof_model, &a->roof));
    if (a->hw.gpu.h2d_bps > 0 && a->roof_gpu)
        printf("; over PCIe (%.4g GB/s) %.4g", a->hw.gpu.h2d_bps / 1e9, a->roof.peak / a->hw.gpu.h2d_bps);
    if (a->hw.n_reads)
        printf("; from the drive (%.4g GB/s) %.4g", ntx_hw_drive_bps(&a->hw, 524288) / 1e9,
               a->roof.peak / ntx_hw_drive_bps(&a->hw, 524288));
    putchar('\n');
    print_table(a, true);
    print_table(a, false);
}

static void print_projector(const struct ntx_plan_answer *a)
{
    char size[32];
    if (a->sees)
        printf(
            "pictures %s of the budget: the projector's weights, which %s, one picture at work, and rows of others\n",
            ntx_format_size(ntx_vision_need_bytes(&a->sight), size, sizeof size),
            a->sight.streams ? "are read for each picture" : "stay in memory");
}

static void print_image(const struct ntx_plan_image *m)
{
    const struct ntx_vision_grid *g = &m->grid;
    char size[32], tiles[64] = "";
    if (!m->width)
        return;
    if (g->over_columns)
        snprintf(tiles, sizeof tiles, "%u x %u tiles and the whole, each of ", g->across, g->down);
    printf("image    %u x %u pixels, seen as %u x %u: %s%u x %u rows, %u tokens of context; %s of memory to encode it, "
           "projector included\n",
           m->width, m->height, m->fit_width, m->fit_height, tiles, g->columns, g->rows, m->tokens,
           ntx_format_size(m->bytes, size, sizeof size));
}

void ntx_plan_print(const struct ntx_plan_answer *a)
{
    const struct ntx_outline *m = &a->model;
    const struct ntx_layout *p = &a->place;
    uint64_t all = ntx_outline_model_bytes(m);
    bool shared = a->hw.gpu.unified;
    char b[4][64], kv[64], name[256], source[256];
    ntx__plan_print_words(a);
    printf("\nmodel    %s: %.2f GB of weights, KV %.3g MB per token", ntx_out_line(m->name, name, sizeof name),
           (double)all / 1e9, p->kv_token_bytes / 1e6);
    if (m->model->hp.n_expert)
        printf(", %u of %u experts used: %.3g GB a token", m->model->hp.n_expert_used, m->model->hp.n_expert,
               token_bytes(m) / 1e9);
    printf("\nmachine  %s (%s)\n", ntx_out_line(a->hw.name, name, sizeof name),
           a->hw.source[0] ? ntx_out_line(a->hw.source, source, sizeof source) : "source unknown");
    const char *vram = shared ? " for processor and GPU" : ", --vram ";
    printf("budget   --ram %s%s%s; %s would do; context %u tokens, KV %s in %s, work %s\n",
           ntx_format_exact(p->ram, b[0], 32), p->vram ? vram : "",
           p->vram && !shared ? ntx_format_exact(p->vram, b[1], 64) : "", smallest_budget(a, b[2], 64), p->ctx,
           ntx_format_size(p->kv_bytes, kv, 64), p->on_device && !shared ? "VRAM" : "RAM",
           ntx_format_size(p->work_bytes, b[3], 32));
    print_projector(a);
    print_image(&a->image);
    for (int t = 0; t < NTX_N_TIERS; t++)
        if (p->bytes[t])
            printf("%-8s %9.3f GB  %5.1f %%\n", tier_names[t], (double)p->bytes[t] / 1e9,
                   100.0 * (double)p->bytes[t] / (double)all);
    if (p->rows_bytes)
        printf("rows     %9.3f GB  of the embedding stay in RAM, too\n", (double)p->rows_bytes / 1e9);
    if (a->place.predicted) {
        print_forecast(a, &a->place.decode, "decode", 1);
        print_forecast(a, &a->place.prefill, "prefill", p->rows);
    }
    if (a->show_roof)
        print_roofs(a);
}

/* ---- JSON output */

static json_t *forecast_json(const struct ntx_plan_answer *a, const struct ntx_forecast *f, uint32_t rows)
{
    return json_pack("{s:I, s:f, s:f, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "rows", (json_int_t)rows,
                     "tok_s", rows / f->pass_s, "pass_s", f->pass_s, "limit", f->limit, "drive_s", f->drive_s,
                     "memory_s", f->memory_s, "h2d_s", f->h2d_s, "compute_s", f->compute_s, "gpu_s", f->device_s,
                     "cpu_s", f->cpu_s, "late_s", f->late_s, "copied", a->hw.gpu.unified ? 0 : f->copied,
                     "gpu_estimated", f->estimated);
}

static json_t *table_json(const struct ntx_plan_answer *a, bool prefill)
{
    struct ntx_roof_op ops[NTX_ROOF_OPS];
    struct ntx_roof_run r = run_of(a, prefill);
    unsigned n = ntx_roof_table(&a->roof_model, &a->roof, &r, ops);
    json_t *rows = json_array();
    for (unsigned i = 0; i < n; i++)
        if (ops[i].listed)
            json_array_append_new(rows,
                                  json_pack("{s:s, s:f, s:f, s:f, s:f, s:s}", "name", ops[i].name, "ops", ops[i].ops,
                                            "bytes", ops[i].bytes, "intensity", ops[i].intensity, "attained",
                                            ops[i].attained, "bound", ops[i].compute_bound ? "compute" : "memory"));
    struct ntx_roof_network s = ntx_roof_sum(&a->roof_model, &r, ops, n);
    return json_pack("{s:o, s:{s:f, s:f, s:f, s:f, s:f}}", "rows", rows, "network", "ops", s.ops, "bytes", s.bytes,
                     "seconds", s.seconds, "weight_bytes", s.weight_bytes, "kv_bytes", s.kv_bytes);
}

static json_t *notes_json(const struct ntx_plan_answer *a)
{
    json_t *notes = json_array();
    for (size_t i = 0; i < sizeof a->notes / sizeof *a->notes; i++)
        if (a->notes[i][0])
            json_array_append_new(notes, json_string(a->notes[i]));
    return notes;
}

static json_t *advice_json(const struct ntx_plan_answer *a)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < a->n_advice; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:b, s:f}", "kind", ntx_advice_kind_name(a->advice[i].kind),
                                        "change", a->advice[i].what, "options", a->advice[i].options, "buy",
                                        ntx_advice_is_bought(a->advice[i].kind), "gain", a->advice[i].gain));
    return list;
}

void ntx_plan_print_json(const struct ntx_plan_answer *a)
{
    const struct ntx_layout *p = &a->place;
    json_t *j = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "model", a->model.name, "profile",
                          a->hw.name, "bytes_model", (json_int_t)ntx_outline_model_bytes(&a->model), "ram",
                          (json_int_t)p->ram, "vram", (json_int_t)p->vram, "ctx", (json_int_t)p->ctx, "bytes_kv",
                          (json_int_t)p->kv_bytes, "bytes_work", (json_int_t)p->work_bytes, "bytes_rows",
                          (json_int_t)p->rows_bytes);
    char key[32];
    for (int t = 0; t < NTX_N_TIERS; t++) {
        snprintf(key, sizeof key, "bytes_%s", tiers[t]);
        json_object_set_new(j, key, json_integer((json_int_t)p->bytes[t]));
    }
    json_object_set_new(j, "bytes_token", json_integer((json_int_t)token_bytes(&a->model)));
    if (a->sees)
        json_object_set_new(j, "projector",
                            json_pack("{s:I, s:b}", "bytes", (json_int_t)ntx_vision_need_bytes(&a->sight), "streams",
                                      (int)a->sight.streams));
    if (a->image.width)
        json_object_set_new(j, "image",
                            json_pack("{s:[i, i], s:[i, i], s:[i, i], s:i, s:i, s:i, s:I}", "size", (int)a->image.width,
                                      (int)a->image.height, "seen", (int)a->image.fit_width, (int)a->image.fit_height,
                                      "tiles", (int)a->image.grid.across, (int)a->image.grid.down, "columns",
                                      (int)a->image.grid.columns, "rows", (int)a->image.grid.rows, "tokens",
                                      (int)a->image.tokens, "bytes", (json_int_t)a->image.bytes));
    json_object_set_new(j, "smallest", json_integer((json_int_t)p->smallest));
    json_object_set_new(j, "exact", json_boolean(a->exact));
    json_object_set_new(j, "notes", notes_json(a));
    json_object_set_new(j, "advice", advice_json(a));
    json_object_set_new(j, "predicted_tok_s", json_real(a->place.predicted ? 1 / a->place.decode.pass_s : 0));
    json_object_set_new(j, "limit", json_string(a->place.predicted ? a->place.decode.limit : ""));
    if (a->place.predicted) {
        json_object_set_new(j, "decode", forecast_json(a, &a->place.decode, 1));
        json_object_set_new(j, "prefill", forecast_json(a, &a->place.prefill, p->rows));
    }
    if (p->drafts.tok_s > 0)
        json_object_set_new(j, "draft",
                            json_pack("{s:I, s:f, s:f, s:b}", "nodes", (json_int_t)p->drafts.nodes, "tokens_per_pass",
                                      p->drafts.tokens, "tok_s", p->drafts.tok_s, "learned", p->drafts.known));
    if (a->roof.bps > 0)
        json_object_set_new(j, "roofline",
                            json_pack("{s:s, s:s, s:f, s:f, s:o, s:o}", "formulas",
                                      a->compat ? "published" : "corrected", "of", a->roof_gpu ? "gpu" : "cpu", "peak",
                                      a->roof.peak, "bps", a->roof.bps, "prefill", table_json(a, true), "decode",
                                      table_json(a, false)));
    ntx_out_json(j, JSON_INDENT(1) | JSON_REAL_PRECISION(10));
    json_decref(j);
}
