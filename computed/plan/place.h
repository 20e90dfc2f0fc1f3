/* SPDX-License-Identifier: Apache-2.0 */
/* place.h: the placement of a model on a machine, perhaps another one, and its speed there: the daemons' plan
 * (computed/plan/plan.h), summed up. */
#ifndef NTX_COMPUTED_PLAN_PLACE_H
#define NTX_COMPUTED_PLAN_PLACE_H

#include "computed/plan/draft_predict.h"
#include "computed/plan/hw.h"
#include "computed/plan/outline.h"
#include "computed/plan/plan.h"
#include "computed/plan/predict.h"

struct ntx_place_request {
    /* ram_bytes 0: the profile's memory less 15 %; threads 0: as in the profile. Its hw is ignored. other_bytes: beside
     * the outline's. */
    struct ntx_plan_request plan;
    uint32_t logits_rows;            /* rows of logits that drafts need, */
    bool trees;                      /* and more of them if there is room */
    uint64_t vram;                   /* 0: the GPU's less 8 %; UINT64_MAX: none */
    struct ntx_draft_request drafts; /* its stats NULL: no drafts */
    bool smallest;                   /* compute the smallest budget, too */
};

struct ntx_layout {
    uint64_t bytes[NTX_N_TIERS]; /* weights in each tier */
    /* Tables beside the weights, whose rows are all in RAM; 0: rows are read from the drive. */
    uint64_t rows_bytes;
    /* work: activations, lists, clients and, if something is streamed, the ring. */
    uint64_t ram, vram, kv_bytes, work_bytes;
    uint64_t smallest;        /* the smallest RAM budget */
    uint64_t constrains_from; /* the smallest with room for a grammar, a schema or calls; 0: this one, or not wanted */
    uint32_t ctx, rows, threads;
    enum ntx_kv_type kv_type;
    double kv_token_bytes; /* KV of a token, all layers */
    bool on_device;        /* a GPU computes, and has the KV */
    bool predicted;        /* the profile had everything needed for: */
    /* One row; and a prompt of a full pass (a long one, if K and V are partly in a file). */
    struct ntx_forecast decode, prefill;
    struct ntx_draft_forecast drafts; /* 0: no drafts, or no prediction */
    uint32_t n_without;               /* layers that drafts by those in memory leave out; 0: these do not draft */
    char note[200];                   /* why a GPU that exists is not used; "": it is, or there is none */
};

/* -ENOMEM with the smallest budget that would do. */
int ntx_place(const struct ntx_hw *hw, const struct ntx_outline *o, const struct ntx_place_request *r,
              struct ntx_layout *out, struct ntx_err *err);

#endif
