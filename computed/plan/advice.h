/* SPDX-License-Identifier: Apache-2.0 */
/* advice.h: changes of a budget, a model's type or a machine that would make it faster: each is tried with the cost
 * model. Only possible ones: no budget beyond the machine's memory or the model, no memory beyond the model, no part
 * that the machine has no place for (a GPU where there is none). */
#ifndef NTX_COMPUTED_PLAN_ADVICE_H
#define NTX_COMPUTED_PLAN_ADVICE_H

#include <stdbool.h>

#include "computed/plan/hw.h"
#include "computed/plan/outline.h"
#include "computed/plan/place.h"

#define NTX_ADVICE_MAX 24

enum ntx_advice_kind {
    NTX_ADVICE_SETTING, /* uses more of what exists */
    NTX_ADVICE_TYPE,    /* a smaller file of the same model, which is less exact */
    NTX_ADVICE_MEMORY,  /* the others must be bought */
    NTX_ADVICE_DRIVE,
    NTX_ADVICE_SLOT, /* of the GPU that is there */
};

static inline bool ntx_advice_is_bought(enum ntx_advice_kind k) { return k >= NTX_ADVICE_MEMORY; }

struct ntx_advice {
    enum ntx_advice_kind kind;
    char what[120];   /* "64 GiB of memory instead of 32.0 GiB" */
    char options[64]; /* of a setting, as the command line takes them: "--ram 2765M" */
    double gain;      /* factor of the decoding rate */
};

struct ntx_advice_request {
    const struct ntx_hw *hw;
    const struct ntx_outline *model;
    struct ntx_place_request place; /* with the budgets in force */
    uint64_t most;                  /* the largest --ram that can be given; 0: the machine's memory less 15 % */
};

/* "setting", "type", "memory", "drive", "slot" */
const char *ntx_advice_kind_name(enum ntx_advice_kind k);

/* Best first. Returns how many gain at least a twentieth; of changes with the same gain, within a twentieth, the
 * cheaper comes first. 0 also if the profile lacks a rate. */
unsigned ntx_advise(const struct ntx_advice_request *r, struct ntx_advice out[NTX_ADVICE_MAX]);

#endif
