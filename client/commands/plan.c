/* SPDX-License-Identifier: Apache-2.0 */
#include "client/commands/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "common/util.h"
#include "computed/draft/drafter_file.h"
#include "computed/plan/budget.h"
#include "computed/plan/machine.h"
#include "computed/state/kv.h"
#include "model/digest.h"
#include "model/state.h"
#include "shm/drafts.h"
#include "shm/memlimit.h"

/* The model's directory, whose drive counts; for a named model, the current one. */
static const char *model_directory(const struct ntx_options *o, const struct ntx_plan_answer *a, char *buf, size_t n)
{
    const char *path = o->n_args && !a->named && !access(o->args[0], F_OK) ? o->args[0] : "";
    const char *slash = strrchr(path, '/');
    snprintf(buf, n, "%.*s", slash ? (int)NTX_MAX(slash - path, 1) : 1, slash ? path : ".");
    return buf;
}

/* The machine: by words, from a file, or this one as `ntx doctor` measured it. */
int ntx__plan_machine(const struct ntx_options *o, struct ntx_plan_answer *a, struct ntx_err *err)
{
    bool base = !o->machine || ntx_machine_is_this(o->machine);
    char dir[4096];
    int rc = 0;
    if (base && o->profile)
        rc = ntx_hw_load(o->profile, &a->hw, err);
    else if (base)
        rc = ntx__plan_profile(model_directory(o, a, dir, sizeof dir), a, err);
    if (!base && o->profile)
        return ntx_err_set(err, -EINVAL,
                           "--profile and --machine are two machines; --machine this,... changes the profile's");
    a->here = !o->machine && !o->profile;
    if (!rc)
        ntx__plan_note_busy(a);
    if (!rc && o->machine)
        rc = ntx_machine_parse(o->machine, base, &a->hw, err);
    if (!rc)
        ntx_hw_cap(&a->hw, o->load.link_nvme, o->load.link_h2d);
    return rc;
}

/* The model: a file, or a name. */
static int get_model(const struct ntx_options *o, struct ntx_model_files *f, struct ntx_plan_answer *a,
                     struct ntx_err *err)
{
    const char *path = o->args[0], *slash = strrchr(path, '/');
    bool absent = access(path, F_OK) && errno == ENOENT;
    a->path = path;
    a->named = absent && !slash && (strchr(path, '@') || ntx_outline_nearest(path)) && !strstr(path, ".gguf");
    if (a->named)
        return ntx_outline_named(path, &a->model, err);
    int rc = ntx_model_files_open(o, path, f, err);
    if (rc == -ENOENT && absent && !slash && !strstr(path, ".gguf")) {
        const struct ntx_err why = *err;
        return ntx_err_set(err, rc, "%s; models that need no file are in `ntx plan --list`", why.text);
    }
    if (rc)
        return rc;
    return ntx_outline_gguf(f->gguf, slash ? slash + 1 : path, &a->model, err);
}

static enum ntx_multiply multiply_by(const struct ntx_options *o)
{
    if (!o->load.backend || !strcmp(o->load.backend, "auto"))
        return NTX_MULTIPLY_BEST;
    return !strcmp(o->load.backend, "cpu") ? NTX_MULTIPLY_CPU : NTX_MULTIPLY_GPU;
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

/* Mean bytes of a weight; vectors, which are F32 in every file, do not count. */
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

/* The GPU's roof where it is known, else the CPU's: memory bandwidth, and the best arithmetic rate of any row count. */
static void set_roof(struct ntx_plan_answer *a)
{
    const struct ntx_outline *m = &a->model;
    const struct ntx_hw *hw = &a->hw;
    const struct ntx_hparams *hp = &m->model->hp;
    uint32_t type = main_type(m);
    const struct ntx_type_info *t = ntx_type_info(type);
    a->roof_model = (struct ntx_roof_model){hp->n_embd,
                                            hp->n_head,
                                            hp->n_head_kv,
                                            hp->head_k,
                                            hp->n_expert ? hp->n_ff_exp * hp->n_expert_used : hp->n_ff,
                                            hp->n_vocab,
                                            hp->n_layers,
                                            weight_bytes(m, type),
                                            2,
                                            a->place.kv_token_bytes / (double)ntx_outline_kv_values(m)};
    if (hw->gpu.bps > 0 && hw->gpu.flops > 0 && a->place.on_device) {
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

/* A lossy pass reads an amount that depends on the text. */
static int refuse_lossy(const struct ntx_options *o, struct ntx_err *err)
{
    const char *named = NULL;
    if (!ntx_skip_off(o->load.skip))
        named = "--skip";
    else if (o->load.ffn_sparse && strcmp(o->load.ffn_sparse, "off"))
        named = "--ffn-sparse";
    if (!named)
        return 0;
    return ntx_err_set(err, -EINVAL, "%s is not predicted: what it reads depends on the text (ntx bench measures it)",
                       named);
}

/* Notes a budget above the machine's memory, or, for this machine, above the available memory. */
static void note_budget(const struct ntx_options *o, struct ntx_plan_answer *a)
{
    struct ntx_memlimit m = {.cgroup_limit = UINT64_MAX};
    char asked[32], has[32];
    if (a->here)
        ntx_memlimit_read(&m);
    m.available = NTX_ROUND_DOWN(m.available, 1ull << 20);
    uint64_t most = NTX_ROUND_DOWN(NTX_MIN(a->hw.ram_bytes ? a->hw.ram_bytes : UINT64_MAX, m.cgroup_limit), 1ull << 20);
    const char *owner = a->here ? "this machine has" : "that machine has";
    if (m.cgroup_limit < a->hw.ram_bytes)
        owner = "this process may take";
    if (o->load.ram > most)
        snprintf(a->notes[NTX_PLAN_NOTE_BUDGET], sizeof a->notes[0],
                 "--ram %s is more memory than %s, %s: it would not run so.",
                 ntx_format_exact(o->load.ram, asked, sizeof asked), owner, ntx_format_exact(most, has, sizeof has));
    else if (a->here && o->load.ram > m.available)
        snprintf(a->notes[NTX_PLAN_NOTE_BUDGET], sizeof a->notes[0], "--ram %s is more memory than is free now, %s.",
                 ntx_format_exact(o->load.ram, asked, sizeof asked), ntx_format_exact(m.available, has, sizeof has));
}

static int report_no_model(const struct ntx_options *o)
{
    if (o->list)
        return 0;
    fprintf(stderr, "ntx plan: MODEL is needed: the path of a GGUF file, or a name of `ntx plan --list`\n");
    return NTX_EXIT_USAGE;
}

/* Memory of the model's own next-token block, computed as in computed/engine/load_drafter.c. */
static int nextn_bytes(const struct ntx_options *o, const struct ntx_outline *m, uint32_t ctx, uint64_t ram,
                       uint64_t *bytes, struct ntx_err *err)
{
    bool named = ntx_draft_nextn(o->load.draft);
    struct ntx_err why = {0};
    uint64_t its = 0;
    if (!named && (!ntx_draft_auto(o->load.draft) || !m->model->hp.n_nextn))
        return 0;
    int no = ntx_drafter_nextn_look(m->model->gguf, ctx, o->load.threads ? o->load.threads : 1, &its, &why);
    if (named && no)
        return ntx_err_set(err, no, "--draft nextn: %s", why.text);
    its += ntx_drafter_left_bytes(m->model->hp.n_embd, o->load.rows);
    *bytes += named || (!no && ntx_drafter_file_small(its, ram)) ? its : 0;
    return 0;
}

/* --draft self without a copy: the model's layers in memory. */
static int request_layers(const struct ntx_plan_answer *a, struct ntx_place_request *r, uint32_t ctx,
                          struct ntx_err *err)
{
    const char *why = ntx_drafter_layers_refused(a->model.model);
    if (why)
        return ntx_err_set(err, -ENOTSUP,
                           "--draft self: there is no copy of the model in fewer bits, and its layers in memory cannot "
                           "draft: %s",
                           why);
    r->plan.layers = r->drafts.layers = true;
    r->plan.other_bytes += ntx_drafter_layers_bytes(a->model.model, ctx);
    return 0;
}

/* Memory of the drafters, computed as in computed/engine/load_drafter.c. */
static int drafters_bytes(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_plan_answer *a,
                          struct ntx_place_request *r, struct ntx_err *err)
{
    const uint64_t ram = r->plan.ram_bytes;
    uint64_t *bytes = &r->plan.other_bytes;
    const struct ntx_outline *m = &a->model;
    uint32_t ctx = o->load.ctx ? o->load.ctx : NTX_MIN(m->model->hp.ctx_train, 4096u);
    int fd[NTX_DRAFT_FILES];
    unsigned n;
    int rc = ntx_drafters_open(o, f, fd, &n, err);
    for (unsigned i = 0; i < n; i++) {
        enum ntx_drafter_file_kind kind = NTX_DRAFTER_FILE_MODEL;
        struct ntx_drafter_needs needs = {0};
        struct ntx_err why = {0};
        int no = ntx_drafter_file_look(fd[i], m->model->gguf, ctx, o->load.threads ? o->load.threads : 1, &kind, &needs,
                                       &why);
        if (!no && kind == NTX_DRAFTER_FILE_MODEL && o->load.sessions > 1) /* its texts share so much KV */
            no = ntx_drafter_file_look(fd[i], m->model->gguf, ctx * o->load.sessions, 1, &kind, &needs, &why);
        bool found = ntx_draft_auto(o->load.draft);
        uint64_t its = needs.bytes + ntx_drafter_left_bytes(needs.n_taps * m->model->hp.n_embd, o->load.rows);
        its += kind == NTX_DRAFTER_FILE_MODEL ? ntx_drafts_bytes(ctx * NTX_MAX(o->load.sessions, 1u)) : 0;
        const bool small = ntx_drafter_file_small(its, ram) && !needs.lent,
                   weighed = kind == NTX_DRAFTER_FILE_MODEL && its < ram;
        bool take = !found || (!no && (small || weighed));
        if (take && no && !rc)
            rc = ntx_err_set(err, no, "%s", why.text);
        *bytes += take ? its : 0;
        if (take && kind == NTX_DRAFTER_FILE_MODEL)
            r->drafts.row_s += ntx_draft_row_s(&a->hw, fd[i]);
        if (take && found) {
            r->drafts.kind = 2;
            r->drafts.learned = false;
            a->unsure = !small;
        }
        a->small_models = !i || a->small_models ? kind == NTX_DRAFTER_FILE_MODEL : false;
        close(fd[i]);
    }
    a->small_models &= !ntx_draft_nextn(o->load.draft);
    if (!rc && n < ntx_draft_files(o->load.draft)) {
        r->trees &= n || ntx_draft_nextn(o->load.draft); /* layers draft few tokens at a time */
        rc = request_layers(a, r, ctx, err);
    }
    a->drafter_bytes = *bytes;
    return rc ? rc : nextn_bytes(o, m, ctx, ram, bytes, err);
}

/* Loads the draft acceptance statistics of this model's file; the drafters' digests select them. */
static void load_draft_stats(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_plan_answer *a)
{
    char digest[NTX_DIGEST_TEXT];
    struct ntx_err ignored = {0};
    int fd[NTX_DRAFT_FILES];
    unsigned n;
    if (a->named || ntx_draft_off(o->load.draft) || ntx_drafters_open(o, f, fd, &n, &ignored))
        return;
    if (ntx_draft_nextn(o->load.draft) && n < NTX_DRAFT_FILES)
        memcpy(a->draft_stats.drafter[n], NTX_DRAFTER_FILE_NEXTN_DIGEST, NTX_DRAFTER_FILE_TEXT);
    for (unsigned i = 0; i < n; i++) {
        if (ntx_drafter_file_digest(fd[i], a->draft_stats.drafter[i], &ignored))
            *a->draft_stats.drafter[i] = 0;
        close(fd[i]);
    }
    if (!ntx_model_digest(f->gguf, f->fds, digest, &ignored))
        (void)ntx_draft_stats_load(digest, &a->draft_stats, &ignored); /* without statistics, common values hold */
}

/* Fills the request as computed/engine/load.c does. */
static int fill_request(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_plan_answer *a,
                        struct ntx_place_request *r, struct ntx_err *err)
{
    *r = (struct ntx_place_request){
        .plan = {.ram_bytes = o->load.ram,
                 .ctx = o->load.ctx,
                 .sessions = o->load.sessions,
                 .threads = o->load.threads,
                 .max_rows = o->load.rows,
                 .chunk_bytes = o->load.chunk,
                 .ring_slots = o->load.ring,
                 .prefetch = !o->load.no_prefetch,
                 .multiply = multiply_by(o)},
        .logits_rows = ntx_draft_rows(o->load.draft, o->load.draft_nodes),
        .trees = ntx_draft_trees(o->load.draft, o->load.draft_nodes),
        .vram = o->load.vram,
        .smallest = true,
        .drafts = {.stats = ntx_draft_off(o->load.draft) ? NULL : &a->draft_stats,
                   .nodes = o->load.draft_nodes,
                   .learned = ntx_draft_auto(o->load.draft)},
    };
    if (ntx_draft_files(o->load.draft) || ntx_draft_nextn(o->load.draft))
        r->drafts.kind = ntx_draft_looks_up(o->load.draft) ? 2 : 1;
    if (a->here && !r->plan.ram_bytes)
        r->plan.ram_bytes = ntx_budget_default(0);
    r->plan.kv_ram = o->load.kv_ram;
    int rc = ntx_kv_type_of(o->load.kv_type, &a->model.model->hp, &r->plan.kv_type, err);
    return rc || a->named ? rc : drafters_bytes(o, f, a, r, err);
}

/* As a load does, where a small model does not fit beside the model. */
static int place_without_drafters(struct ntx_plan_answer *a, struct ntx_place_request *r, struct ntx_err *err)
{
    struct ntx_err why = {0};
    char size[32];
    r->plan.other_bytes -= a->drafter_bytes;
    r->logits_rows = 0;
    r->trees = false;
    r->drafts.kind = 0;
    r->drafts.row_s = 0;
    r->drafts.learned |= a->unsure;
    if (ntx_place(&a->hw, &a->model, r, &a->place, &why))
        return err->code;
    *err = (struct ntx_err){0};
    if (a->unsure)
        return 0;
    snprintf(a->notes[NTX_PLAN_NOTE_DRAFTER], sizeof a->notes[0],
             "The small model of --draft takes %s and does not fit beside the model: the text itself drafts instead.",
             ntx_format_size(a->drafter_bytes, size, sizeof size));
    return 0;
}

/* As a load does, where there is too little memory for the model beside pictures. */
static int place_with_pictures(struct ntx_plan_answer *a, struct ntx_place_request *r, struct ntx_err *err)
{
    r->plan.other_bytes += a->sees ? ntx_vision_need_bytes(&a->sight) : 0;
    r->plan.least_rows = a->sight.rows_together;
    int rc = ntx_place(&a->hw, &a->model, r, &a->place, err);
    for (int step = 0; a->sees && step < 2 && (rc == -ENOMEM || (!rc && !step && a->place.bytes[NTX_TIER_STORAGE]));
         step++) {
        const uint64_t before = ntx_vision_need_bytes(&a->sight) - r->plan.stage_bytes;
        if (step)
            ntx_vision_need_shrink(&a->sight);
        else
            ntx_vision_need_stream(&a->sight);
        r->plan.stage_bytes = ntx_vision_need_stage(&a->sight);
        r->plan.other_bytes -= before - (ntx_vision_need_bytes(&a->sight) - r->plan.stage_bytes);
        *err = rc ? (struct ntx_err){0} : *err;
        rc = ntx_place(&a->hw, &a->model, r, &a->place, err);
    }
    return rc;
}

/* As a load does, with a projector that only lay beside the model. */
static int place_blind(struct ntx_plan_answer *a, struct ntx_place_request *r, struct ntx_err *err)
{
    struct ntx_err why = {0};
    r->plan.other_bytes -= ntx_vision_need_bytes(&a->sight) - r->plan.stage_bytes;
    r->plan.stage_bytes = 0;
    r->plan.least_rows = 0;
    if (ntx_place(&a->hw, &a->model, r, &a->place, &why))
        return err->code;
    a->sees = false;
    *err = (struct ntx_err){0};
    return 0;
}

/* A drafter that nobody named is used where it pays, as in computed/engine/load_drafter.c. */
static int weigh_drafter(struct ntx_plan_answer *a, struct ntx_place_request *r, struct ntx_err *err)
{
    const struct ntx_layout with = a->place;
    const struct ntx_place_request asked = *r;
    char size[32];
    int rc = place_without_drafters(a, r, err);
    double without = a->place.predicted ? NTX_MAX(1 / a->place.decode.pass_s, a->place.drafts.tok_s) : 0;
    bool pays = !rc && without > 0 && with.drafts.tok_s > NTX_DRAFT_PAYS * without;
    if (pays) {
        a->place = with;
        *r = asked;
        snprintf(a->notes[NTX_PLAN_NOTE_DRAFTER], sizeof a->notes[0],
                 "The drafter beside the model takes %s of --ram, and makes it %.1f times as fast as without (--draft "
                 "lookup).",
                 ntx_format_size(a->drafter_bytes, size, sizeof size), with.drafts.tok_s / without);
    }
    return rc;
}

/* --draft auto without a drafter: the model's layers in memory, where that pays, as a load does. */
static void weigh_layers(const struct ntx_options *o, struct ntx_plan_answer *a, struct ntx_place_request *r)
{
    struct ntx_place_request with = *r;
    struct ntx_layout layout;
    struct ntx_err ignored = {0};
    if (!a->place.predicted || !a->place.bytes[NTX_TIER_STORAGE] || a->drafter_bytes || a->place.vram || a->named ||
        !ntx_draft_auto(o->load.draft) || !ntx_draft_layers_free(&a->place.decode) || r->plan.kv_ram ||
        request_layers(a, &with, a->place.ctx, &ignored))
        return;
    with.drafts.kind = 2;
    with.drafts.learned = false;
    if (!ntx_place(&a->hw, &a->model, &with, &layout, &ignored) && layout.n_without &&
        layout.drafts.tok_s > NTX_DRAFT_PAYS * NTX_MAX(1 / a->place.decode.pass_s, a->place.drafts.tok_s)) {
        a->place = layout;
        *r = with;
    }
}

static void note_layers(struct ntx_plan_answer *a, const struct ntx_place_request *r)
{
    if (r->plan.layers && !a->place.n_without)
        snprintf(a->notes[NTX_PLAN_NOTE_DRAFTER], sizeof a->notes[0],
                 "--draft self: %s: the text itself drafts instead.",
                 a->place.bytes[NTX_TIER_STORAGE] ? "fewer than a third of the layers are in memory"
                                                  : "all of the model is in memory");
    if (a->place.n_without)
        snprintf(a->notes[NTX_PLAN_NOTE_DRAFTER], sizeof a->notes[0],
                 "The layers in memory draft (--draft self): %u of %u, without the %u that stream.",
                 a->model.model->hp.n_layers - a->place.n_without, a->model.model->hp.n_layers, a->place.n_without);
}

/* Computes the placement. */
static int place_model(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_plan_answer *a,
                       struct ntx_err *err)
{
    struct ntx_place_request r;
    int rc = fill_request(o, f, a, &r, err);
    if (!rc && !a->named)
        rc = ntx__plan_projector(o, f, r.plan.ram_bytes ? r.plan.ram_bytes : a->hw.ram_bytes / 100 * 85, a, err);
    if (!rc && (rc = place_with_pictures(a, &r, err)) == -ENOMEM && a->small_models)
        rc = place_without_drafters(a, &r, err);
    else if (!rc && a->unsure)
        rc = weigh_drafter(a, &r, err);
    if (rc == -ENOMEM && a->sees && a->projector_found)
        rc = place_blind(a, &r, err);
    if (rc)
        return rc;
    weigh_layers(o, a, &r);
    note_layers(a, &r);
    a->exact = !a->named && !*a->model.why && !a->place.vram;
    if (*a->model.why)
        snprintf(a->notes[NTX_PLAN_NOTE_MODEL], sizeof a->notes[0],
                 "ntx does not run this file (%.240s); the figures are an estimate.", a->model.why);
    if (*a->place.note)
        snprintf(a->notes[NTX_PLAN_NOTE_GPU], sizeof a->notes[0], "%s.", a->place.note);
    if (a->place.constrains_from) {
        char from[32];
        snprintf(a->notes[NTX_PLAN_NOTE_CONSTRAINED], sizeof a->notes[0],
                 "Grammars, schemas and tool calls are refused with so little memory; from --ram %s on there is room "
                 "for one.",
                 ntx_format_exact(NTX_ROUND_UP(a->place.constrains_from, 1ull << 20), from, sizeof from));
    }
    r.plan.ram_bytes = a->place.ram;
    r.plan.ctx = a->place.ctx;
    r.smallest = false;
    ntx__plan_note_copies(o, f, a, &r);
    struct ntx_advice_request q = {&a->hw, &a->model, r, a->here ? ntx_budget_default(0) : 0};
    a->n_advice = a->place.predicted ? ntx_advise(&q, a->advice) : 0;
    return 0;
}

int ntx__plan_files(const struct ntx_options *o, const struct ntx_model_files *f, const char *name,
                    struct ntx_plan_answer *a, struct ntx_err *err)
{
    int rc = ntx_outline_gguf(f->gguf, name, &a->model, err);
    if (!rc)
        rc = ntx__plan_machine(o, a, err);
    if (!rc)
        load_draft_stats(o, f, a);
    return rc ? rc : place_model(o, f, a, err);
}

void ntx__plan_done(struct ntx_plan_answer *a) { ntx_outline_free(&a->model); }

int ntx_cmd_plan(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    if (o->list)
        ntx__plan_print_lists(o->json);
    if (o->list || !o->n_args)
        return report_no_model(o);
    struct ntx_plan_answer *a = calloc(1, sizeof *a);
    int rc = a ? get_model(o, &f, a, &err) : ntx_err_set(&err, -ENOMEM, "no memory");
    if (!rc)
        rc = refuse_lossy(o, &err);
    if (!rc && o->machines) {
        rc = ntx__plan_machines(o, a, &err);
        goto done;
    }
    if (!rc && (rc = ntx__plan_machine(o, a, &err)) &&
        *a->model.why) /* an unknown model matters more than an unknown machine */
        rc = ntx_err_set(&err, rc, "%s: ntx does not run this file: %s", o->args[0], a->model.why);
    if (!rc) {
        load_draft_stats(o, &f, a);
        rc = place_model(o, &f, a, &err);
    }
    if (!rc && o->image_size)
        rc = ntx__plan_image(o, &f, a, &err);
    if (!rc) {
        a->compat = o->compat;
        a->show_roof = o->roofline || o->compat;
        a->batch = o->batch;
        note_budget(o, a);
        set_roof(a);
        if (o->json)
            ntx_plan_print_json(a);
        else
            ntx_plan_print(a);
    }
done:
    if (a)
        ntx__plan_done(a);
    ntx_model_files_close(&f);
    free(a);
    return rc ? ntx_fail(&err) : 0;
}
