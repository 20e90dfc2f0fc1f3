/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: what `ntx plan` finds (plan.c), by which profile (plan_profile.c), and shows: the answer first
 * (plan_words.c), then the figures (plan_print.c). */
#ifndef NTX_CLIENT_COMMANDS_PLAN_H
#define NTX_CLIENT_COMMANDS_PLAN_H

#include "computed/plan/advice.h"
#include "computed/plan/place.h"
#include "computed/plan/roofline.h"
#include "model/share.h"

enum {
    NTX_PLAN_NOTE_BUDGET,
    NTX_PLAN_NOTE_MODEL,
    NTX_PLAN_NOTE_GPU,
    NTX_PLAN_NOTE_CONSTRAINED,
    NTX_PLAN_NOTE_PROFILE,
    NTX_PLAN_NOTE_BUSY,
    NTX_PLAN_NOTES
};

struct ntx_plan_answer {
    struct ntx_hw hw;
    struct ntx_outline model;
    struct ntx_layout place;
    struct ntx_draft_stats guesses; /* what earlier loads of the model learned (--draft) */
    bool exact;       /* to the byte as `ntx run` would place it: the file is at hand, and there is no GPU */
    bool named, here; /* the model has no file; the machine is this one */
    char notes[NTX_PLAN_NOTES]
              [300]; /* what should be known before the figures are believed; "" where there is nothing */
    struct ntx_advice advice[NTX_ADVICE_MAX];
    unsigned n_advice;
    struct ntx_roof_model roof_model;
    struct ntx_roof_machine roof; /* bps 0: unknown, no table */
    bool roof_gpu, compat;
    bool show_roof;
    uint32_t batch;
};

struct ntx_options;
struct ntx_model_files;
/* --machines. */
int ntx__plan_machines(const struct ntx_options *o, const struct ntx_plan_answer *a, struct ntx_err *err);
/* Its parts of a model that is at hand. */
int ntx__plan_parts(const struct ntx_options *o, const struct ntx_gguf *g, const char *name, struct ntx_share *parts,
                    struct ntx_err *err);
/* Of files that are open: all that ntx_plan_print_words needs, on this machine. Afterwards, failed or not,
 * ntx__plan_done. */
int ntx__plan_files(const struct ntx_options *o, const struct ntx_model_files *f, const char *name,
                    struct ntx_plan_answer *a, struct ntx_err *err);

/* plan_profile.c: a->hw, and a note where it is not the stored one of a whole measurement. dir: where it is measured,
 * where nothing is stored. */
int ntx__plan_profile(const char *dir, struct ntx_plan_answer *a, struct ntx_err *err);
void ntx__plan_note_busy(struct ntx_plan_answer *a);

void ntx__plan_done(struct ntx_plan_answer *a);

void ntx_plan_print(const struct ntx_plan_answer *a);
void ntx_plan_print_json(const struct ntx_plan_answer *a);
void ntx__plan_print_words(const struct ntx_plan_answer *a);
/* What there is to choose from: models, types, GPUs. */
void ntx__plan_print_lists(bool json);

#endif
