/* SPDX-License-Identifier: Apache-2.0 */
/* place.h: where a model goes on a machine that may be another one, and how fast it is there: what the daemons would
 * plan (computed/plan/plan.h), asked and summed up. */
#ifndef NTX_COMPUTED_PLAN_PLACE_H
#define NTX_COMPUTED_PLAN_PLACE_H

#include "computed/plan/draft_stats.h"
#include "computed/plan/hw.h"
#include "computed/plan/outline.h"
#include "computed/plan/plan.h"
#include "computed/plan/predict.h"

struct ntx_place_request {
    struct ntx_plan_request plan; /* ram_bytes 0: the profile's memory less 15 %; threads 0: as in the profile. Its hw
                                     is not looked at. other_bytes: beside the outline's */
    uint32_t logits_rows;         /* that guesses want, */
    bool trees;                   /*   and more of them where there is room */
    uint64_t vram;                /* 0: the GPU's less 8 %; UINT64_MAX: none */
    const struct ntx_draft_stats *guesses; /* what was learned of them; NULL: nobody guesses */
    uint32_t draft_kind, draft_nodes;      /* who does; so many for each pass, 0: as many as pay */
    bool smallest;                         /* the smallest budget is wanted, too */
};

struct ntx_layout {
    uint64_t bytes[NTX_N_TIERS]; /* weights that live there */
    uint64_t rows_bytes; /* of tables beside the weights, whose rows all stay in RAM; 0: rows are read from the drive */
    uint64_t ram, vram, kv_bytes,
        work_bytes;           /* work: activations, lists, clients and, where something is streamed, the ring */
    uint64_t smallest;        /* budget of RAM that would do */
    uint64_t constrains_from; /* that has room for a grammar, a schema or calls; 0: this one, or not asked for */
    uint32_t ctx, rows, threads;
    double kv_token_bytes;               /* KV of a token, all layers */
    bool on_device;                      /* a GPU computes, and has the KV */
    bool predicted;                      /* the profile had all that was needed: */
    struct ntx_forecast decode, prefill; /* of one row, and of a prompt of as many as a pass has; where K and V lie in a
                                            file in part, of as many of a long one */
    uint32_t draft_nodes;                /* with guesses: so many for a pass; 0: they do not pay. */
    double draft_tokens,
        draft_tok_s;  /*   Tokens that a pass gives then, and a second; 0: nobody guesses, or no prediction */
    bool draft_known; /*   from what was seen of this model, not from what is common */
    char note[200];   /* why a GPU that is there is not used; "": it is, or there is none */
};

/* -ENOMEM with the smallest budget that would do. */
int ntx_place(const struct ntx_hw *hw, const struct ntx_outline *o, const struct ntx_place_request *r,
              struct ntx_layout *out, struct ntx_err *err);

#endif
