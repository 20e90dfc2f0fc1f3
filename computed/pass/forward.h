/* SPDX-License-Identifier: Apache-2.0 */
/* forward.h: one pass over the layers for a batch of rows. It knows nothing of sessions, files or processes: weights
 * come through ntx_weights, K and V through ntx_kv. One instance per loaded model, driven by one engine thread, with
 * its own pool of compute threads. A row's values do not depend on the other rows, on the number of threads or on where
 * weights are. A pass in which no row wants logits (the inner part of a prompt) does not use the output matrix, and of
 * the last layer computes only K, V and states. */
#ifndef NTX_COMPUTED_PASS_FORWARD_H
#define NTX_COMPUTED_PASS_FORWARD_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/cpu/cpu.h"
#include "computed/pass/best.h"
#include "computed/pass/ffn_mode.h"
#include "computed/pass/ffn_set.h"
#include "computed/pass/forward_capture.h"
#include "computed/pass/weights.h"
#include "computed/sample/sampler.h"
#include "computed/state/kv.h"
#include "model/chunk.h"
#include "shm/counters.h"

/* A row's place in its session. Its position determines its rotation and what it sees; K and V are stored at its slot.
 * A plain row's slot is its position. Rows of a draft tree share positions: each has its own slot, and a path, which is
 * its mask: it sees the session's tokens before the path, and the slots of the path. Its values are those of the same
 * tokens one after another. */
#define NTX_PATH_MAX    128u
/* At most so many rows of a pass, of those that do not use all groups, have groups of neurons predicted for them. */
#define NTX_DECODE_ROWS 32u

/* Of a patch: entries of the table of learned positions, which are added with these weights. */
#define NTX_PLACES_MAX  16u
struct ntx_places {
    uint32_t n, at[NTX_PLACES_MAX];
    float weight[NTX_PLACES_MAX];
};

struct ntx_row {
    int32_t token;
    uint32_t pos;
    /* Of an image: [n_embd x (1 + n_deep)] instead of the token's embedding; behind it, n_embd values that are added
     * after each of the first n_deep layers. `token` is then the one that all else goes by. NULL: a token. */
    const float *values;
    uint32_t n_deep;
    /* M-RoPE: it turns by this time, row and column (rope.h); not `placed`: by its position. What it sees, and where
     * its K and V are, follows from the position alone. */
    bool placed;
    uint32_t place[3];
    /* Of a vision tower (model/tower.h), whose rows are patches, all in one pass: `state` has the patch's pixels, the
     * row turns by `place`, and steps within blocks see n_block positions from `block` on. */
    const struct ntx_places *places; /* with a table of positions, else NULL */
    uint32_t block, n_block;
    uint32_t by_columns; /* its number in the order that goes from column to column, for steps with `columns` */
    /* The last n_path positions up to its own, at most NTX_PATH_MAX, are in the slots path[0 .. n_path), which ascend;
     * 0: all are at their positions. */
    uint32_t n_path;
    const uint32_t *path; /* of exact rows */
    /* Of a block of rows that see one another: so many later positions, all in this pass, are visible, too. Without a
     * path, and over K and V only. `behind`: so many earlier positions are of the same block; where attention reads
     * pooled K, a window hides none of them. */
    uint32_t ahead, behind;
    struct ntx_kv_seq *kv; /* rows of one pass that share a kv have increasing slots */
    float *logits;         /* [n_vocab] logits go here, or NULL */
    struct ntx_best *few;  /* or only the largest here, where the CPU of one machine computes them (best.h) */
    /* [NTX_BEST_MAX] If a device has the logits, and so many of the largest are enough, they come here, */
    struct ntx_candidate *best;
    /* in any order, and n_best is their number; else n_best is 0, and logits is filled. In: 0: all logits are
     * wanted. */
    uint32_t n_best;
    uint8_t adapter; /* of the model's adapters (model/layer_delta.h), from 1; 0: none */
    bool may_skip;   /* decode rows; prefill rows never skip */
    uint32_t seat;   /* for the probe board: the number that a decode row would have in the pass without drafts */
    /* A back end may round differently in this row's products and attention (device.h). Such rows follow the exact
     * ones. */
    bool rounded;
    bool all_groups;         /* in a packed layer it uses all groups, whatever the mode is (ffn_mode.h) */
    struct ntx_ffn_set *ffn; /* --ffn-sparse prompt: the set that selects its groups; NULL: all */
    /* the energy of its groups is added to this set, or NULL; for rows that use all groups */
    struct ntx_ffn_set *add;
    uint64_t session;            /* for the probe board */
    const float *similar;        /* [n_layers] for the probe board, or NULL: cosines that the session has measured */
    struct ntx_capture *capture; /* filled during the pass, or NULL */
    /* [n_embd] of a next-token block: the normed state of the token before it. With fused states (model/arch.h): [taps
     * x width], its own. Of a vision tower or its projector: [ntx_tower_in] */
    const float *state;
    float *left; /* [taps x n_embd] receives its states at the layers of `taps`; or NULL */
    /* [n_embd] its state after the last layer, scaled to a root mean square of 1, is added here; or NULL. */
    float *pool;
    bool watched; /* each step's values are reported for it (ntx_forward_watch) */
};

static inline uint32_t ntx_row_slot(const struct ntx_row *r) { return r->n_path ? r->path[r->n_path - 1] : r->pos; }

struct ntx_batch {
    uint64_t pass;
    struct ntx_row *rows;
    uint32_t n_rows; /* 1..max_rows */
};

/* The predictor, as the pass sees it. All calls by the engine thread; NULL callbacks: no predictor. */
struct ntx_skip_hooks {
    void *ctx;
    uint32_t probe_layer; /* report the state after this layer */
    bool propagate;       /* a row that skips a layer leaves K and V of its state in it, instead of a hole */
    void (*probe)(void *ctx, const struct ntx_batch *b, const float *hidden /* [n_rows x n_embd] */);
    /* Called once after the probe layer if rows may skip, before the next layer: fills skip[row * NTX_MAP_WORDS + l /
     * 64] bits (zeroed before). May wait. Rows without may_skip are ignored. The pass combines them and drops
     * layers. */
    void (*decide)(void *ctx, const struct ntx_batch *b, uint64_t *skip);
};

/* A back end computes the steps: a table of operations, and the device that they work with. The caller supplies both;
 * the pass knows only the CPU's. */
struct ntx_backend;
struct ntx_device;
struct ntx_ranks;
struct ntx_kv_form;

/* Sizes that determine the memory of a pass, over all layers and chunks. */
struct ntx_forward_widths {
    /* Runs of rows that are interleaved for many-row products: of all chunks; bytes of the largest one. */
    uint64_t n_slices, slice_bytes;
    uint32_t many_in;         /* values of the longest row that is packed for many-row products; 0: none is */
    uint32_t buf[NTX_N_BUFS]; /* ntx_buf_width */
    /* Bytes of the widest row in each form that is multiplied by: any matrix; experts and routers; the second of two
     * low-rank matrices. */
    size_t row[NTX_N_ACTS], choice[NTX_N_ACTS], low[NTX_N_ACTS];
};

struct ntx_forward_config {
    const struct ntx_model *model;
    const struct ntx_chunks *chunks;
    const struct ntx_cpu_ops *ops;
    struct ntx_weights *weights;
    uint32_t threads, max_rows, ctx; /* ctx: longest session in tokens */
    uint32_t block;          /* of a vision tower: so many rows of a layer at a time, with the same bits; 0: all rows */
    struct ntx_ffn_mode ffn; /* of a packed model; else off */
    struct ntx_skip_hooks skip;
    struct ntx_counters *counters;           /* for the trace; may be NULL */
    bool trace_experts;                      /* trace the wanted experts, too */
    const struct ntx_backend *backend;       /* NULL: the CPU */
    struct ntx_device *device;               /* the back end's */
    struct ntx_ranks *ranks;                 /* of a pass over several machines (ranks.h), which is then the back end */
    const struct ntx_forward_widths *widths; /* NULL: computed here */
    uint32_t n_taps;                         /* states that rows leave (`left`): the inputs of these layers, */
    const uint32_t *taps;                    /* n_layers: the output of the last one; borrowed. 0: that alone */
    struct ntx_kv_form *kv_form;             /* K as q8_0 and q4_0 keep it (kv_form.h); NULL: as it is */
    struct ntx_input_sums *sums;             /* sums of the products' inputs (input_sums.h); NULL: not wanted */
    /* The high bits of a model that is kept in two parts (model/planes.h), by offset in their file. They stay. NULL:
     * the model has none. */
    const uint8_t *high;
};

struct ntx_forward;

/* 0, or -ENOTSUP: the back end lacks a step of some layer, which `why` names, or attention in a context of so many
 * tokens. */
int ntx_backend_can(const struct ntx_backend *b, const struct ntx_model *m, uint32_t ctx, struct ntx_err *why);

/* Looks at every step and chunk. */
struct ntx_forward_widths ntx_forward_widths(const struct ntx_model *m, const struct ntx_chunks *c);
/* bytes of memory that it will take, for the planner */
uint64_t ntx_forward_bytes(const struct ntx_forward_config *c);
/* Chunks that a pass with `block` holds together, since each block of rows uses them: span [c->n] gets each chunk's
 * number of its span, ascending. 0, or -ENOMEM. */
int ntx_forward_spans(const struct ntx_model *m, const struct ntx_chunks *c, uint32_t *span);
int ntx_forward_new(const struct ntx_forward_config *c, struct ntx_forward **out, struct ntx_err *err);
void ntx_forward_free(struct ntx_forward *f);
void *ntx_forward_memory(const struct ntx_forward *f, uint64_t *bytes); /* memory of activations: a GPU may lock it */
/* 0, or a negative errno with the reason in the weights' error. After a failure the instance can run the next pass. */
int ntx_forward_run(struct ntx_forward *f, const struct ntx_batch *b);
/* Between passes, for drafts: a pass without the layers of these bits. `w` has all other chunks in memory, and of it
 * only acquire, stays and entries are called. K and V of the rows' slots are written in the other layers; the next pass
 * over these positions must write all of them anew. On the CPU alone, for models that ntx_forward_parts allows. Returns
 * like ntx_forward_run. */
int ntx_forward_run_part(struct ntx_forward *f, const struct ntx_batch *b, struct ntx_weights *w,
                         const uint64_t *without /* [NTX_MAX_LAYERS / 64] */);
/* NULL, or what a model has that a pass over a part of its layers does not allow. */
const char *ntx_forward_parts(const struct ntx_model *m);
/* Commits a path of a draft tree that was computed from position pos on: the session goes on with the tokens in these n
 * slots, which ascend. Their K and V are moved to their positions where needed; all else from pos on is forgotten.
 * Returns like ntx_forward_run. */
int ntx_forward_commit(struct ntx_forward *f, struct ntx_kv_seq *kv, uint32_t pos, const uint32_t *slots, uint32_t n);
/* Why the last pass failed, if neither weights nor a device did; else without text. */
const struct ntx_err *ntx_forward_error(const struct ntx_forward *f);
uint64_t ntx_forward_skipped(const struct ntx_forward *f); /* row-layers skipped so far */
/* For tests: called by the engine thread after each layer with hidden [n_rows x n_embd]; NULL to stop. */
void ntx_forward_trace(struct ntx_forward *f,
                       void (*cb)(void *ctx, uint32_t layer, const float *hidden, uint32_t n_rows), void *ctx);

/* Values that a step gave for a watched row: of the buffers between steps, in the order of the pass. "EMBED" comes
 * before the layers, "OUTPUT" after them, for rows with logits. For steps that a back end does in one go, the final
 * values are reported; values that it keeps nowhere are not. Costs one check per pass while no row is watched. */
#define NTX_STEP_NAME 64
struct ntx_step_values {
    uint32_t layer, step;      /* step: its number in the layer (model/layer.h) */
    const char *name, *buffer; /* "MM ffn_down.weight", "Y" */
    uint32_t width;
    const float *values; /* [width] */
};
typedef void ntx_watch_fn(void *ctx, const struct ntx_row *row, const struct ntx_step_values *v);
void ntx_forward_watch(struct ntx_forward *f, ntx_watch_fn *fn, void *ctx); /* by the engine thread, within a pass */

#endif
