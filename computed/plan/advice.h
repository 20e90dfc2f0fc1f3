/* SPDX-License-Identifier: Apache-2.0 */
/* advice.h: what to change about a machine, a budget or a model's type so that it writes faster: each change is tried
 * with the cost model. */
#ifndef NTX_COMPUTED_PLAN_ADVICE_H
#define NTX_COMPUTED_PLAN_ADVICE_H

#include "computed/plan/hw.h"
#include "computed/plan/outline.h"
#include "computed/plan/place.h"

#define NTX_ADVICE_MAX 24

enum ntx_advice_kind {
    NTX_ADVICE_SETTING, /* of what is there, more is used */
    NTX_ADVICE_TYPE,    /* a smaller file of the same model, which is less exact */
    NTX_ADVICE_MEMORY,  /* the others are to be bought */
    NTX_ADVICE_DRIVE,
    NTX_ADVICE_GPU,
};

struct ntx_advice {
    enum ntx_advice_kind kind;
    char what[120]; /* "64 GiB of memory instead of 32.0 GiB" */
    double gain;    /* the rate of decoding, as a multiple of what it is */
};

struct ntx_advice_request {
    const struct ntx_hw *hw;
    const struct ntx_outline *model;
    struct ntx_place_request place; /* with the budgets that are in force */
};

/* "setting", "type", "memory", "drive", "gpu" */
const char *ntx_advice_kind_name(enum ntx_advice_kind k);

/* The best first. Returns how many bring at least a twentieth; of changes that bring the same within a twentieth, the
 * one comes first that costs less to make. 0 also where the profile lacks a rate. */
unsigned ntx_advise(const struct ntx_advice_request *r, struct ntx_advice out[NTX_ADVICE_MAX]);

#endif
