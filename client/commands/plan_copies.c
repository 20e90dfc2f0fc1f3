/* SPDX-License-Identifier: Apache-2.0 */
/* plan_copies.c: other files of the same model that `ntx plan` advises to make: a copy in fewer bits, which drafts, and
 * high and low bits (model/planes.h). */
#include <stdio.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/commands/plan.h"
#include "common/util.h"
#include "computed/draft/drafter.h"
#include "computed/draft/drafter_file.h"
#include "model/planes_make.h"
#include "shm/drafts.h"

#define MUCH 1.3 /* gains are told from here on: those of split models were measured at 0.8 of the prediction */

/* Tokens a second with drafts or without, whichever is more. 0: it does not fit, or no prediction. */
static double rate_of(const struct ntx_plan_answer *a, const struct ntx_outline *m, const struct ntx_place_request *r)
{
    struct ntx_layout with;
    struct ntx_err ignored = {0};
    if (ntx_place(&a->hw, m, r, &with, &ignored) || !with.predicted)
        return 0;
    return NTX_MAX(1 / with.decode.pass_s, with.drafts.tok_s);
}

static double rate_now(const struct ntx_plan_answer *a)
{
    return NTX_MAX(1 / a->place.decode.pass_s, a->place.drafts.tok_s);
}

static void note_copy(const struct ntx_model_files *f, struct ntx_plan_answer *a, struct ntx_place_request r)
{
    const struct ntx_model *m = a->model.model;
    char path[4096];
    double row_s = 0;
    if (!ntx_keeps_rows_only(&m->hp) || !ntx_drafter_file_self(f->names[0], path, sizeof path))
        return;
    uint64_t bytes = ntx_draft_copy(&a->hw, m, &row_s), kv = (uint64_t)(a->place.kv_token_bytes * (a->place.ctx + 512));
    r.plan.other_bytes += bytes + kv + ntx_drafts_bytes(a->place.ctx);
    r.drafts = (struct ntx_draft_request){.stats = &a->draft_stats, .kind = 2, .row_s = row_s};
    double gain = bytes ? rate_of(a, &a->model, &r) / rate_now(a) : 0;
    if (gain > MUCH)
        snprintf(
            a->notes[NTX_PLAN_NOTE_DRAFTER], sizeof a->notes[0],
            "With a copy in fewer bits, which drafts for it (--draft self), about %.1f times as fast: ntx quantize "
            "%.80s %.80s Q2_K",
            gain, f->names[0], path);
}

/* Of the split model, with its high bits as a drafter where they fit and pay. fd: its two files. */
static double split_rate(const struct ntx_options *o, struct ntx_plan_answer *a, struct ntx_place_request r,
                         const int fd[2])
{
    struct ntx_gguf *g = NULL;
    struct ntx_outline split;
    struct ntx_drafter_needs needs;
    struct ntx_err ignored = {0};
    const uint32_t texts = a->place.ctx * NTX_MAX(o->load.sessions, 1u);
    double rate = 0;
    if (ntx_gguf_open(fd, 2, NULL, &g, &ignored))
        return 0;
    if (!ntx_outline_gguf(g, a->model.name, &split, &ignored)) {
        rate = rate_of(a, &split, &r);
        if (!ntx_drafter_look(fd[1], g, texts, &needs, &ignored)) {
            r.plan.other_bytes += needs.bytes + ntx_drafts_bytes(texts);
            r.drafts = (struct ntx_draft_request){
                .stats = &a->draft_stats, .kind = 2, .row_s = ntx_draft_row_s(&a->hw, fd[1])};
            rate = NTX_MAX(rate, rate_of(a, &split, &r));
        }
        ntx_outline_free(&split);
    }
    ntx_gguf_free(g);
    return rate;
}

static void note_planes(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_plan_answer *a,
                        const struct ntx_place_request *r)
{
    double most = 0;
    uint32_t best = 0;
    for (uint32_t bits = 2; bits; bits--) {
        struct ntx_err ignored = {0};
        int fd[2];
        if (ntx_planes_sketch(a->model.model, bits, fd, &ignored))
            return;
        const double rate = split_rate(o, a, *r, fd);
        best = rate > most ? bits : best;
        most = NTX_MAX(rate, most);
        close(fd[0]);
        close(fd[1]);
    }
    if (most > MUCH * rate_now(a))
        snprintf(a->notes[NTX_PLAN_NOTE_PLANES], sizeof a->notes[0],
                 "With pack --planes, which reads only low bits from the drive, about %.1f times as fast: ntx pack "
                 "%.120s split.gguf --planes%s",
                 most / rate_now(a), f->names[0], best == 1 ? " --low-bits 1" : "");
}

void ntx__plan_note_copies(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_plan_answer *a,
                           const struct ntx_place_request *r)
{
    const struct ntx_model *m = a->model.model;
    if (a->named || *a->model.why || !a->place.predicted || !a->place.bytes[NTX_TIER_STORAGE] || m->pack ||
        !ntx_draft_auto(o->load.draft))
        return;
    if (!a->drafter_bytes && !a->place.n_without)
        note_copy(f, a, *r);
    if (!a->place.vram)
        note_planes(o, f, a, r);
}
