/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: from a model and a memory budget to a placement: the ring, the arena, the KV pool, the rows per pass.
 *
 * A pure function (no I/O), so that `ntx plan` and tests use it as computed does. The budget holds everything that
 * grows with model or clients: region, KV, activations, tokenizer, header, per-session buffers. Chunks that stay in RAM
 * are spread evenly over the layers, so that reading overlaps computing with a small ring. Experts are all in RAM where
 * everything fits. Else they have frames of the arena, which a cache shares out as the passes want them: everything
 * else stays in RAM first, and frames get what is left; at least as many as one row wants of one layer. Groups of a
 * packed model's neurons, where they are read on demand (--ffn-sparse), come last like experts: of each layer the first
 * ones stay, the others go through windows, each as large as the rest of the largest layer: two where the next layer's
 * groups are prefetched. Rows of the embedding are read as tokens want them; where the whole model is in RAM and there
 * is room beside all else, they all stay, too. What does not fit is refused with the smallest budget that would do.
 * Planning itself takes no more memory than the lists of chunks that the budget could hold, and little time, whatever a
 * file claims to have. */
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

/* As many clients as a part of the budget holds (computed/plan/budget.h); where nothing fits beside them, the fewest.
 * */
struct ntx_plan_clients {
    uint64_t choosing_bytes; /* of each session, beside its logits */
    uint64_t watched_bytes;  /* likewise, but it does not make them fewer */
    uint32_t least_rows;     /* of logits, that guesses want, */
    bool trees;              /*   and more of them where there is room */
};

struct ntx_plan_request {
    uint64_t ram_bytes;                     /* the promise */
    uint64_t other_bytes;                   /* header, tokenizer and the like that the caller holds for this model */
    const struct ntx_plan_clients *clients; /* what is beside that for who uses the model; NULL: nobody does */
    uint32_t ctx;      /* 0: the smallest of the model's own, 4096, and what a quarter of ram holds */
    uint32_t sessions; /* full-context sessions to reserve KV for; 0: 1 */
    uint32_t threads;
    uint32_t max_rows;    /* 0: planner's choice, at most 512 */
    uint64_t chunk_bytes; /* 0: planner's choice */
    uint32_t ring_slots;  /* 0: planner's choice */
    enum ntx_kv_type kv_type;
    uint64_t kv_ram;               /* of KV of all positions so much is in memory, the rest in a file; 0: all */
    const struct ntx_kv_shape *kv; /* of several machines, which have it alike: as the first one has planned it; NULL:
                                      what ctx and sessions want */
    bool kv_all;                   /* layers with a window keep all positions, too */
    bool no_prefixes;              /* nothing is kept of texts for others: no room for marks (computed/state/kv.h) */
    struct ntx_ffn_mode ffn;       /* but for off: groups of a packed model's neurons are read when rows use them */
    const struct ntx_share *share; /* of several machines: the rows of this one; NULL: all */
    bool apart;    /* tensors that several layers have (model/layer_delta.h) need not stay; ntx_plan_make tries that by
                      itself where they do not fit */
    bool prefetch; /* keep some frames for experts that are read on predictions */
    uint64_t device_bytes; /* of GPU memory for matrices; those placed there are no part of the rest of the plan */
    uint64_t vram_bytes; /* or of GPU memory for all: KV and the pass's work first, what is left for matrices. 0: there
                            is none */
    bool unified; /* the GPU's memory is the host's: vram_bytes is a part of ram_bytes, and it multiplies by what is
                     there */
    enum ntx_multiply multiply; /* where, with a GPU: for the prediction */
    const struct ntx_hw *hw;    /* what the machine can do; NULL: unknown: no prediction */
    const atomic_bool *stop;    /* who asked is gone: -ECANCELED within a few milliseconds; NULL: nobody sets it */
};

struct ntx_plan {
    struct ntx_region_geometry geo;
    struct ntx_chunks *chunks; /* owned */
    struct ntx_plan_chunk
        *table;      /* [chunks->n]: file, offset, bytes, layer, placement, where (relative to off_arena), sched */
    uint32_t *sched; /* [geo.n_sched] */
    struct ntx_frames frames; /* for experts: the end of the arena */
    uint32_t ctx, max_rows, threads;
    struct ntx_kv_shape kv;
    enum ntx_kv_type kv_type;
    uint64_t chunk_bytes, inflight_bytes, piece_bytes;
    uint64_t bytes_device;
    struct ntx_budget_clients clients; /* those that there is room for */
    bool on_device;                    /* a GPU computes: KV lies there, and the matrices that bytes_device counts */
    enum ntx_multiply multiply;
    uint64_t device_need; /* of its memory for all but matrices. More than vram_bytes: the GPU is not used */
    uint32_t n_windows;   /* for groups that are read on demand, behind the rest of the arena; 0: all of them stay */
    uint64_t window_bytes;
    uint64_t read_gap;                               /* reads that lie no further apart are better one; 0: unknown */
    uint64_t bytes_model, bytes_host, bytes_storage, /* frames count as host, as if always full */
        bytes_kv, bytes_activations, bytes_region, bytes_total;
    uint64_t
        bytes_rows; /* of tables whose rows all stay in RAM: no part of bytes_model. 0: rows are read from the drive */
    uint64_t bytes_at_load;        /* of bytes_host, without frames, and bytes_rows */
    double predicted_tok_s;        /* of decoding one row; 0: unknown */
    double block_s, block_token_s; /* of computing a prompt's NTX_KV_BLOCK tokens: so long, and for each token before
                                      them so much longer; 0: unknown */
    const char *limit;             /* as computed/plan/predict.h names it; "" when unknown */
};

#define NTX_PLAN_IN_FLIGHT 4u /* chunks that are copied to a GPU at once, at most */

/* Tokens of context that a plan has at most where `ctx` were asked for (0: nobody said). */
uint32_t ntx_plan_ctx(const struct ntx_hparams *hp, uint32_t ctx);
int ntx_plan_make(const struct ntx_model *m, const struct ntx_plan_request *r, struct ntx_plan **out,
                  struct ntx_err *err);
void ntx_plan_free(struct ntx_plan *p);

/* The smallest ram_bytes with which ntx_plan_make succeeds for what else r asks. UINT64_MAX: no memory would do; 0
 * after an error. */
uint64_t ntx_plan_smallest(const struct ntx_model *m, const struct ntx_plan_request *r);

/* The same of those whose plan has room for a constrained answer (computed/plan/budget.h); r has clients. */
uint64_t ntx_plan_constrains_from(const struct ntx_model *m, const struct ntx_plan_request *r);

#define NTX_PLAN_TEXT                                                                                                  \
    256u /* tokens of KV that a prediction of decoding assumes attention to read, where the context has them */
uint32_t ntx_plan_text(const struct ntx_plan *p); /* that many; or, where K and V lie in a file in part, the whole
                                                     context: who asks for that has long texts */

/* What a pass of `rows` rows, the last of which sees `positions` tokens, reads from where. asked: of so many rows (few,
 * or all) somebody wants more than they leave in the layers' state: the last layer's other weights and the output are
 * theirs. False where nobody can tell before the text is there: groups of a packed model on demand. Experts are taken
 * to be chosen evenly. */
bool ntx_plan_load(const struct ntx_model *m, const struct ntx_plan *p, uint32_t rows, uint32_t asked,
                   uint32_t positions, struct ntx_load_bytes *out);

#endif
