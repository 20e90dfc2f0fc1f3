/* place.h: a first placement for a model that is not loaded: what goes to VRAM, to RAM and stays on the drive, and what a pass then
 * reads. computed's own planner (plan/plan.h) places chunk by chunk and counts every byte; this one agrees with it within a few per
 * cent, and exactly in the context that nobody asked for (tests/plan holds them together), and knows GPUs and experts, too.
 *
 * What every token needs is placed first, fastest memory first; then experts. Experts in RAM are taken to be as likely as others (no
 * locality is assumed, which real routing has: hit rates are the resident share, at least). Experts that are not resident are read late,
 * unless so many rows are in the pass that nearly all are needed anyway. */
#ifndef NTX_PLAN_PLACE_H
#define NTX_PLAN_PLACE_H

#include "plan/hw.h"
#include "plan/outline.h"
#include "plan/predict.h"

#define NTX_PLACE_ROWS 512u      /* rows of a prefill pass at most */
#define NTX_PLACE_TEXT 256u      /* tokens of KV that a prediction assumes attention to read, where the context has them */

#define NTX_PLACE_NEARLY_ALL 0.9 /* of the experts: reads of them need not wait for the router then */

struct ntx_place_request {
    uint64_t ram, vram; /* budgets; ram 0: the profile's memory less 15 %; vram 0: the GPU's less 8 %; UINT64_MAX of vram: none */
    uint32_t ctx;       /* 0: the smallest of the model's own, 4096 and what a quarter of ram holds */
    uint32_t threads;   /* 0: as in the profile */
    enum ntx_multiply multiply;
    double kv_value_bytes; /* of each value of K and V; 0: 2, F16 */
    uint64_t smallest;     /* budget that would do, where computed's planner told it; 0: it is estimated */
};

struct ntx_layout {
    uint64_t bytes[NTX_N_TIERS];               /* weights that live there */
    double share[NTX_N_PARTS][NTX_N_TIERS];    /* of a part's bytes */
    uint64_t ram, vram, kv_bytes, work_bytes;  /* work: activations and, where something is streamed, the ring */
    uint64_t smallest;                         /* budget of RAM that would do */
    uint32_t ctx, rows, threads;
    double kv_token_bytes; /* KV of a token, all layers */
    bool kv_on_device;
    enum ntx_multiply multiply;
};

/* -ENOMEM with the smallest budget that would do, about (within a tenth of computed's: tests/plan/agree.c). */
int ntx_place(const struct ntx_hw *hw, const struct ntx_outline *o, const struct ntx_place_request *r, struct ntx_layout *out, struct ntx_err *err);

/* Tokens of context where nobody asked for so many: the smallest of the model's own (0: unknown), 4096 and what a quarter of `ram` holds for so many
 * sessions, whose KV of NTX_KV_BLOCK tokens takes block_bytes; in whole blocks, and no budget makes it less than ntx_place_ctx_least. For both planners. */
uint32_t ntx_place_ctx(uint64_t ram, double block_bytes, uint32_t ctx_train, uint32_t sessions);
uint32_t ntx_place_ctx_least(uint32_t ctx_train);

/* What a pass of `rows` rows reads, the last of which sees `positions` tokens. */
void ntx_place_load(const struct ntx_outline *o, const struct ntx_layout *p, uint32_t rows, uint32_t positions, struct ntx_load_bytes *out);

#endif
