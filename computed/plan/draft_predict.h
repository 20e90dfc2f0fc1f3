/* SPDX-License-Identifier: Apache-2.0 */
/* draft_predict.h: what drafts give: tokens per pass by statistics (draft_stats.h), the time of a pass by the cost
 * model (predict.h). A draft model works on one core while a pass waits for the drive. Half of that counts, since the
 * text often goes on otherwise than it was drafted; for the rest the pass waits. Layers in memory draft before the
 * pass, on all cores. Pure. */
#ifndef NTX_COMPUTED_PLAN_DRAFT_PREDICT_H
#define NTX_COMPUTED_PLAN_DRAFT_PREDICT_H

#include "computed/plan/draft_stats.h"
#include "computed/plan/hw.h"
#include "computed/plan/plan.h"

#define NTX_DRAFT_PAYS 1.15 /* a drafter that nobody named must be so many times faster than its memory for weights */

struct ntx_draft_request {
    const struct ntx_draft_stats *stats; /* of the model */
    uint32_t kind, nodes;                /* by look-up, a file or both; drafts for each pass, 0: as many as pay */
    bool learned;                        /* only where this model's statistics say how many hold */
    double row_s;                        /* time of a row in the draft model; 0: there is none, or unknown */
    bool layers;                         /* the plan's layers in memory draft, where it has n_without */
};

struct ntx_draft_forecast {
    uint32_t nodes;       /* drafts for a pass; 0: they do not pay */
    double tokens, tok_s; /* per pass and per second; 0: unknown */
    bool known;           /* from statistics of this model, not from common ones */
};

void ntx_draft_predict(const struct ntx_hw *hw, const struct ntx_model *m, const struct ntx_plan *p,
                       const struct ntx_draft_request *r, struct ntx_draft_forecast *out);
/* Whether whole layers in memory cost such plain passes nothing: they wait for the drive so long that it does not
 * matter where in the model it reads. */
bool ntx_draft_layers_free(const struct ntx_forecast *plain);
/* Time of a row in a draft model in memory, on one core. 0: unknown. fd is borrowed. */
double ntx_draft_row_s(const struct ntx_hw *hw, int fd);
/* Bytes of a dense model's copy in Q2_K without its embedding, and the time of its row. 0: unknown. */
uint64_t ntx_draft_copy(const struct ntx_hw *hw, const struct ntx_model *m, double *row_s);

#endif
