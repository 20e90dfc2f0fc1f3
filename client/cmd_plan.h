/* cmd_plan.h: what `ntx plan` finds (cmd_plan.c) and shows: the answer first (cmd_plan_words.c), then the figures (cmd_plan_print.c). */
#ifndef NTX_CLIENT_CMD_PLAN_H
#define NTX_CLIENT_CMD_PLAN_H

#include "plan/advice.h"
#include "plan/place.h"
#include "plan/roofline.h"

struct ntx_plan_answer {
    struct ntx_hw hw;
    struct ntx_outline model;
    struct ntx_layout place;
    struct ntx_forecast decode, prefill;
    bool predicted;                  /* the profile had all that was needed */
    bool exact;                      /* placed by computed's planner, byte by byte, as `ntx run` would */
    bool named, here;                /* the model has no file; the machine is this one */
    char notes[3][300];              /* what should be known before the figures are believed; "" where there is nothing */
    struct ntx_advice advice[NTX_ADVICE_MAX];
    unsigned n_advice;
    struct ntx_roof_model roof_model;
    struct ntx_roof_machine roof;    /* bps 0: unknown, no table */
    bool roof_gpu, compat;
    bool show_roof;
    uint32_t batch;
};

/* cmd_plan_exact.c: what computed's planner makes of the file: the same call with the same numbers as in loading. It tells the smallest budget, in
 * r->smallest, and refuses what `ntx run` refuses. Without a GPU it is the answer (1, a->place and the forecasts are set); with one, or where ntx does not
 * compute the model, which a note then says, plan/place.h goes on (0). */
struct ntx_options;
struct ntx_model_files;
int ntx__plan_exactly(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_place_request *r, struct ntx_plan_answer *a, struct ntx_err *err);

/* Of files that are open: all that ntx_plan_print_words needs, on this machine. -ENOENT: it has no profile. */
int ntx__plan_files(const struct ntx_options *o, const struct ntx_model_files *f, const char *name, struct ntx_plan_answer *a, struct ntx_err *err);

void ntx_plan_print(const struct ntx_plan_answer *a);
void ntx_plan_print_json(const struct ntx_plan_answer *a);
void ntx__plan_print_words(const struct ntx_plan_answer *a);
/* What there is to choose from: models, types, GPUs. */
void ntx__plan_print_lists(bool json);

#endif
