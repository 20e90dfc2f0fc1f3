/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: from a model and a memory budget to a placement: the ring, the arena, the KV pool, the rows per pass.
 *
 * A pure function (no I/O), so that `ntx plan` and tests use it as computed does. The budget covers everything that
 * grows with the model or clients: region, KV, activations, tokenizer, header, per-session buffers.
 *
 * Resident chunks are spread evenly over the layers, so that reading overlaps computing with a small ring. Experts are
 * all resident if everything fits. Otherwise they have frames of the arena, which a cache manages: everything else
 * becomes resident first, and frames get the rest; at least as many as one row wants of one layer. Groups of a packed
 * model's neurons that are read on demand (--ffn-sparse) come last, like experts: the first ones of each layer are
 * resident, the others go through windows, each as large as the rest of the largest layer: two if the next layer's
 * groups are prefetched. Rows of the embedding are read on demand; if the whole model is in RAM and there is room
 * beside all else, they are all resident, too. A request that does not fit is refused with the smallest budget that
 * would do.
 *
 * Planning takes no more memory than the lists of chunks that the budget could hold, and little time, whatever a file
 * claims. */
#ifndef NTX_COMPUTED_PLAN_PLAN_H
#define NTX_COMPUTED_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/cpu/cpu.h"
#include "computed/pass/ffn_mode.h"
#include "computed/state/kv.h"
#include "computed/weights/frames.h"
#include "model/chunk.h"
#include "computed/plan/budget.h"
#include "computed/plan/hw.h"
#include "computed/plan/predict.h"
#include "shm/region.h"

/* As many clients as a part of the budget holds (computed/plan/budget.h); if nothing fits beside them, the fewest. */
struct ntx_plan_clients {
    uint64_t choosing_bytes; /* of each session, beside its logits */
    uint64_t watched_bytes;  /* likewise, but it does not reduce their number */
    uint32_t least_rows;     /* rows of logits that drafts need, */
    bool trees;              /* and more of them if there is room */
};

struct ntx_plan_request {
    uint64_t ram_bytes;                     /* the bound that the daemons keep */
    uint64_t other_bytes;                   /* header, tokenizer and the like that the caller holds for this model */
    uint64_t stage_bytes;                   /* of the region, for the stage; its file follows the model's. 0: none */
    const struct ntx_plan_clients *clients; /* for the clients' memory; NULL: there are none */
    uint32_t ctx;      /* 0: the smallest of the model's own, 4096, and what a quarter of ram_bytes holds */
    uint32_t sessions; /* full-context sessions to reserve KV for; 0: 1 */
    uint32_t threads;
    uint32_t max_rows;    /* 0: planner's choice, at most 512, */
    uint32_t least_rows;  /* and at least so many; 0: 1 */
    uint64_t chunk_bytes; /* 0: planner's choice */
    uint32_t ring_slots;  /* 0: planner's choice */
    enum ntx_kv_type kv_type;
    uint64_t kv_ram; /* memory for KV of all positions, the rest is in a file; 0: all in memory */
    /* Several machines: the first machine's plan, since all have the same; NULL: from ctx and sessions. */
    const struct ntx_kv_shape *kv;
    bool kv_all; /* layers with a window keep all positions, too */
    /* nothing is kept of texts for others: no room for snapshots (computed/state/kv.h) */
    bool no_prefixes;
    struct ntx_ffn_mode ffn;       /* except off: groups of a packed model's neurons are read when rows use them */
    const struct ntx_share *share; /* several machines: this one's share; NULL: all */
    /* Tensors that several layers share (model/layer_delta.h) need not be resident; ntx_plan_make tries this itself if
     * they do not fit. */
    bool apart;
    bool prefetch;         /* keep some frames for predicted experts */
    bool layers;           /* whole layers and the output in memory, if that is possible, so that they draft */
    uint64_t device_bytes; /* GPU memory for matrices; those placed there are no part of the rest of the plan */
    /* Or GPU memory for everything: KV and the pass first, the rest for matrices. 0: none. */
    uint64_t vram_bytes;
    /* The GPU uses host memory: vram_bytes is a part of ram_bytes, and it multiplies by weights in place. */
    bool unified;
    enum ntx_multiply multiply; /* where to multiply, with a GPU: for the prediction */
    const struct ntx_hw *hw;    /* the machine's profile; NULL: unknown, no prediction */
    const atomic_bool *stop;    /* set when the requester is gone: -ECANCELED within a few milliseconds; NULL: never */
};

struct ntx_plan {
    struct ntx_region_geometry geo;
    struct ntx_chunks *chunks; /* owned */
    /* [chunks->n]: file, offset, bytes, layer, placement, where (relative to off_arena), sched. */
    struct ntx_plan_chunk *table;
    uint32_t *sched;          /* [geo.n_sched] */
    struct ntx_frames frames; /* for experts: the end of the arena */
    uint32_t ctx, max_rows, threads;
    struct ntx_kv_shape kv;
    enum ntx_kv_type kv_type;
    uint64_t chunk_bytes, inflight_bytes, piece_bytes;
    uint64_t bytes_device;
    struct ntx_budget_clients clients; /* those that there is room for */
    bool on_device;                    /* a GPU computes: it has KV, and the matrices that bytes_device counts */
    enum ntx_multiply multiply;
    uint64_t device_need; /* GPU memory for all but matrices. If more than vram_bytes, the GPU is not used */
    uint32_t n_windows;   /* for groups on demand, after the rest of the arena; 0: all are resident */
    uint64_t window_bytes;
    uint64_t read_gap; /* reads no further apart are better merged; 0: unknown */
    uint64_t bytes_model, bytes_host,
        bytes_storage, /* frames count as host, as if always full; high bits (model/planes.h), too */
        bytes_kv, bytes_activations, bytes_region, bytes_total;
    /* Tables whose rows are all in RAM; no part of bytes_model. 0: rows are read from the drive. */
    uint64_t bytes_rows;
    uint64_t bytes_at_load;                /* of bytes_host, without frames, and bytes_rows */
    uint64_t without[NTX_MAX_LAYERS / 64]; /* with `layers`: those that drafts leave out; all else is in memory */
    uint32_t n_without;                    /* 0: nothing drafts so */
    double predicted_tok_s;                /* of decoding one row; 0: unknown */
    double profile_load;                   /* per processor, when the profile behind it was measured */
    /* Seconds to compute a prompt's NTX_KV_BLOCK tokens, and more for each token before them; 0: unknown. */
    double block_s, block_token_s;
    const char *limit; /* named as in computed/plan/predict.h; "": unknown */
};

#define NTX_PLAN_IN_FLIGHT 4u /* chunks that are copied to a GPU at once, at most */

/* The most tokens of context in a plan for a requested `ctx` (0: not given). */
uint32_t ntx_plan_ctx(const struct ntx_hparams *hp, uint32_t ctx);
int ntx_plan_make(const struct ntx_model *m, const struct ntx_plan_request *r, struct ntx_plan **out,
                  struct ntx_err *err);
void ntx_plan_free(struct ntx_plan *p);

/* The smallest ram_bytes with which ntx_plan_make succeeds, the rest of r being the same. UINT64_MAX: none; 0 after an
 * error. */
uint64_t ntx_plan_smallest(const struct ntx_model *m, const struct ntx_plan_request *r);

/* The same for plans with room for a constrained answer (computed/plan/budget.h); r has clients. */
uint64_t ntx_plan_constrains_from(const struct ntx_model *m, const struct ntx_plan_request *r);

/* Tokens of KV that a prediction of decoding assumes, if the context has as many. */
#define NTX_PLAN_TEXT 256u
/* NTX_PLAN_TEXT tokens; or the whole context if K and V are partly in a file, which is for long texts. */
uint32_t ntx_plan_text(const struct ntx_plan *p);

/* The bytes that a pass of `rows` rows reads, by place; the last row sees `positions` tokens. asked: rows (few, or all)
 * whose output is wanted: only they use the last layer's other weights and the output matrix. False if it depends on
 * the text: groups of a packed model on demand. Experts are assumed to be routed evenly. */
bool ntx_plan_load(const struct ntx_model *m, const struct ntx_plan *p, uint32_t rows, uint32_t asked,
                   uint32_t positions, struct ntx_load_bytes *out);
/* Those of a row of a draft by the layers in memory; p has n_without. */
void ntx_plan_load_draft(const struct ntx_model *m, const struct ntx_plan *p, uint32_t positions,
                         struct ntx_load_bytes *out);

#endif
