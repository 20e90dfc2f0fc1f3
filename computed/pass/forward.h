/* SPDX-License-Identifier: Apache-2.0 */
/* forward.h: one pass over the layers for a batch of rows. Knows nothing of sessions, files or processes: weights come
 * through ntx_weights, KV through ntx_kv. One instance per loaded model, driven by one engine thread, with its own pool
 * of compute threads. Values of a row do not depend on the other rows, on the number of threads or on where weights
 * lay. A pass in which no row wants logits (a prompt's inner part) does not touch the output matrix, and of the last
 * layer only what its K, V and states are made of. */
#ifndef NTX_COMPUTED_PASS_FORWARD_H
#define NTX_COMPUTED_PASS_FORWARD_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/cpu/cpu.h"
#include "computed/pass/ffn_mode.h"
#include "computed/pass/ffn_set.h"
#include "computed/pass/forward_capture.h"
#include "computed/pass/weights.h"
#include "computed/sample/sampler.h"
#include "computed/state/kv.h"
#include "model/chunk.h"
#include "shm/counters.h"

/* A row's place in its session: its position says how it is rotated and what it sees; where K and V are kept is its
 * slot. Plain rows are kept at their positions. Rows of a tree share positions: each has a slot of its own, and a path,
 * which is its mask: of the session it sees what was committed before the path, and the slots of the path. Its values
 * are those of the same tokens one after another. */
#define NTX_PATH_MAX 128u
#define NTX_DECODE_ROWS                                                                                                \
    32u /* rows of a pass that do not use all groups, at most, where groups of neurons are predicted for them */
struct ntx_row {
    int32_t token;
    uint32_t pos;
    uint32_t n_path;      /* the last n_path positions up to its own, at most NTX_PATH_MAX, lie in the slots path[0 ..
                             n_path), which ascend; 0: all at their positions */
    const uint32_t *path; /* of exact rows */
    uint32_t ahead; /* of a block of rows that see one another: so many positions behind its own, which rows of this
                       pass have; without a path, and over K and V alone */
    struct ntx_kv_seq *kv;      /* rows of one pass that share a kv have increasing slots */
    float *logits;              /* [n_vocab] wanted here, or NULL */
    struct ntx_candidate *best; /* [NTX_BEST_MAX] where so many of the largest logits are enough, and a device has them,
                                   they come here, */
    uint32_t n_best; /*   in any order, and n_best says how many; else 0, and logits is filled. In: 0: all are wanted */
    uint8_t adapter; /* of the model's adapters (model/layer_delta.h), from 1 on; 0: none */
    bool may_skip;   /* decode rows; prefill rows never skip */
    uint32_t seat;   /* for the probe board: which row of the pass a decode row would be if nothing was guessed */
    bool rounded;    /* a back end may multiply and attend for it with rounding of its own (device.h). Such rows stand
                        behind the others, which are exact */
    bool all_groups; /* of a packed layer it uses all groups, whatever the mode says (ffn_mode.h) */
    struct ntx_ffn_set *ffn;     /* --ffn-sparse prompt: the set that chooses for it; NULL: all groups are used */
    struct ntx_ffn_set *add;     /* what groups did for it is added to this one, or NULL; of rows that use all */
    uint64_t session;            /* for the probe board */
    const float *similar;        /* [n_layers] for the probe board, or NULL: what the session has seen of its layers */
    struct ntx_capture *capture; /* filled on the way, or NULL */
    const float *state; /* [n_embd] of a next-token block: what the token before it left, normed. Of what fuses states
                           (model/arch.h): [taps x width], its own */
    float *left;        /* [taps x n_embd]: its states at the layers of `taps` are left here; or NULL */
    float *
        pool; /* [n_embd]: its state after the last layer, brought to a root mean square of 1, is added here; or NULL */
    bool watched; /* what each step gives for it is shown (ntx_forward_watch) */
};

static inline uint32_t ntx_row_slot(const struct ntx_row *r) { return r->n_path ? r->path[r->n_path - 1] : r->pos; }

struct ntx_batch {
    uint64_t pass;
    struct ntx_row *rows;
    uint32_t n_rows; /* 1..max_rows */
};

/* The predictor, as the pass sees it. All by the engine thread; NULL callbacks: no predictor. */
struct ntx_skip_hooks {
    void *ctx;
    uint32_t probe_layer; /* show the state after this layer */
    bool propagate;       /* a row that skips a layer leaves K and V of its state in it, instead of a hole */
    void (*probe)(void *ctx, const struct ntx_batch *b, const float *hidden /* [n_rows x n_embd] */);
    /* Called once after the probe layer when rows may skip, before the next layer: fills skip[row * NTX_MAP_WORDS + l /
     * 64] bits (zeroed before). May wait. Rows without may_skip are ignored. The pass joins them and drops layers. */
    void (*decide)(void *ctx, const struct ntx_batch *b, uint64_t *skip);
};

/* Who computes the steps: a table of operations, and what it works with. Who opens a back end hands both in; the pass
 * knows of none but the CPU's. */
struct ntx_backend;
struct ntx_device;
struct ntx_ranks;

/* What memory follows from, of all layers and chunks. */
struct ntx_forward_widths {
    uint64_t n_slices, slice_bytes; /* runs of rows that are interleaved for the many-row products: of all chunks; of
                                       the largest one */
    uint32_t buf[NTX_N_BUFS];       /* ntx_buf_width */
    size_t row[NTX_N_ACTS], choice[NTX_N_ACTS],
        low[NTX_N_ACTS]; /* bytes of the widest row in this form that matrices multiply by; experts and routers; the
                            second of two thin ones */
};

struct ntx_forward_config {
    const struct ntx_model *model;
    const struct ntx_chunks *chunks;
    const struct ntx_cpu_ops *ops;
    struct ntx_weights *weights;
    uint32_t threads, max_rows, ctx; /* ctx: longest session in tokens */
    struct ntx_ffn_mode ffn;         /* of a packed model; else off */
    struct ntx_skip_hooks skip;
    struct ntx_counters *counters;     /* for the trace; may be NULL */
    bool trace_experts;                /* which experts are wanted goes into it, too */
    const struct ntx_backend *backend; /* NULL: the CPU */
    struct ntx_device *device;         /* its own */
    struct ntx_ranks *ranks;           /* of a pass over several machines (ranks.h), whose back end this is then */
    const struct ntx_forward_widths *widths; /* NULL: found anew */
    uint32_t n_taps;                         /* states that rows leave (`left`): what goes into these layers, */
    const uint32_t *taps;                    /*   n_layers: what the last one leaves, borrowed; 0: that alone */
    struct ntx_input_sums *sums; /* what products are given is added to (input_sums.h); NULL: nobody wants it */
};

struct ntx_forward;

/* 0, or -ENOTSUP: the back end lacks a step of some layer, which `why` names, or of attention in a context of so many
 * tokens. */
int ntx_backend_can(const struct ntx_backend *b, const struct ntx_model *m, uint32_t ctx, struct ntx_err *why);

struct ntx_forward_widths ntx_forward_widths(const struct ntx_model *m,
                                             const struct ntx_chunks *c); /* looks at every step and chunk */
uint64_t ntx_forward_bytes(const struct ntx_forward_config *c);           /* memory it will take, for the planner */
int ntx_forward_new(const struct ntx_forward_config *c, struct ntx_forward **out, struct ntx_err *err);
void ntx_forward_free(struct ntx_forward *f);
void *ntx_forward_memory(const struct ntx_forward *f, uint64_t *bytes); /* of activations: a GPU may lock it */
/* 0, or a negative errno with the reason in the weights' error; after a failure the same instance may run the next
 * pass. */
int ntx_forward_run(struct ntx_forward *f, const struct ntx_batch *b);
/* Of a tree that was computed from position pos on: the path in these n slots, which ascend, is what the session goes
 * on with. It comes to lie at its positions; all else from pos on is forgotten. What lies where it belongs is not
 * touched. As ntx_forward_run in what it returns. */
int ntx_forward_commit(struct ntx_forward *f, struct ntx_kv_seq *kv, uint32_t pos, const uint32_t *slots, uint32_t n);
/* Why the last pass failed, where it was neither weights nor a device: else without text. */
const struct ntx_err *ntx_forward_error(const struct ntx_forward *f);
uint64_t ntx_forward_skipped(const struct ntx_forward *f); /* row-layers skipped so far */
/* For tests: called by the engine thread after each layer with hidden [n_rows x n_embd]; NULL to stop. */
void ntx_forward_trace(struct ntx_forward *f,
                       void (*cb)(void *ctx, uint32_t layer, const float *hidden, uint32_t n_rows), void *ctx);

/* What a step gave for one row, where the row is watched: of the buffers that steps leave for one another, in the order
 * of the pass. "EMBED" comes before the layers, "OUTPUT" behind them, for rows whose logits are wanted. Steps that a
 * back end does in one go show what stands in the end; what it keeps nowhere is not shown. Costs a look a pass while
 * nobody is watched. */
#define NTX_STEP_NAME 64
struct ntx_step_values {
    uint32_t layer, step;      /* step: of the layer's (model/layer.h) */
    const char *name, *buffer; /* "MM ffn_down.weight", "Y" */
    uint32_t width;
    const float *values; /* [width] */
};
typedef void ntx_watch_fn(void *ctx, const struct ntx_row *row, const struct ntx_step_values *v);
void ntx_forward_watch(struct ntx_forward *f, ntx_watch_fn *fn, void *ctx); /* by the engine thread, within a pass */

#endif
