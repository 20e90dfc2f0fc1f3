/* cmd_plan.h: what `ntx plan` finds (cmd_plan.c) and shows (cmd_plan_print.c). */
#ifndef NTX_CLIENT_CMD_PLAN_H
#define NTX_CLIENT_CMD_PLAN_H

#include "plan/place.h"
#include "plan/roofline.h"

struct ntx_plan_answer {
    struct ntx_hw hw;
    struct ntx_outline model;
    struct ntx_layout place;
    struct ntx_forecast decode, prefill;
    bool predicted;                  /* the profile had all that was needed */
    struct ntx_roof_model roof_model;
    struct ntx_roof_machine roof;    /* bps 0: unknown, no table */
    bool roof_gpu, compat;
    uint32_t batch;
};

void ntx_plan_print(const struct ntx_plan_answer *a);
void ntx_plan_print_json(const struct ntx_plan_answer *a);

#endif
