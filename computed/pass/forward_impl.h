/* SPDX-License-Identifier: Apache-2.0 */
/* forward_impl.h: shared by the files of the forward pass and its back ends.
 *
 *   forward.c             the pass from begin to end, for all back ends: rows in, layers, skips, rows out
 *   forward_runs.c        a layer's steps (model/layer.h), and which neighbours are done in one go
 *   forward_blocks.c      a vision tower's layers, some rows at a time
 *   forward_cpu.c         the operations of these steps on the CPU
 *   cpu_experts.c         and of those for experts
 *   mla.c                 attention over MLA latents: what comes before and after it
 *   index_topk.c          attention to an indexer's top-k of the positions
 *   forward_pool.c        pooled K, for several positions each
 *   hyper_connections.c   several residual streams
 *   lora.c                low-rank adds to a matrix's outputs (model/layer_delta.h)
 *   grams.c               entries of an n-gram table, requested as soon as the tokens are known
 *   moe.c                 the FFN of a layer with experts, for all back ends
 *   moe_predict.c         prediction of the next layer's experts, by its router on this layer's state
 *   router_lookahead.c    the steps from that state to the router
 *   sparse.c              the FFN of a packed layer, for all back ends
 *   sparse_host.c         its groups of neurons, by the CPU
 *   sparse_choose.c       which of its neurons rows use, by their gates
 *   sparse_predict.c      which of its groups rows use, known ahead
 *   sparse_prefetch.c     prefetch of the next layer's groups, by its gate on this layer's state
 *   forward_mm.c          products: all threads walk the chunks of up to three matrices
 *   forward_delta.c       layers with a recurrent state: convolutions, delta nets
 *   forward_finite.c      the check for weights that are NaN or infinite
 *   forward_path.c        rows of a draft tree: what their attention reads, and the commit of a path
 *   forward_part.c        a pass over a part of the layers, for drafts
 *   forward_steps.c       reports of each step's values
 *   forward_mem.c         the layout of memory
 *   rope.c                angles
 *
 * The engine thread runs the steps one after the other. All threads of the pool run a step together, or the engine
 * thread alone if there is only one row. Rows that skip a layer are left out of it: buffers other than `h` hold the
 * live rows of the current layer, densely. */
#ifndef NTX_COMPUTED_PASS_FORWARD_IMPL_H
#define NTX_COMPUTED_PASS_FORWARD_IMPL_H

#include <math.h>
#include <stdatomic.h>

#include "common/util.h"
#include "computed/cpu/pool.h"
#include "computed/pass/forward.h"
#include "computed/pass/input_sums.h"
#include "computed/pass/rope.h"
#include "shm/region.h" /* NTX_MAP_WORDS */

#define NTX__PREFETCH_ROWS 8u /* more rows together use nearly all groups anyway */
#define NTX__LOGIT_TILE    64 /* outputs at a time when logits go to several rows' buffers */

#define NTX__PATH_BLOCKS   (NTX_PATH_MAX / NTX_KV_BLOCK + 1)

struct ntx__tile {               /* progress within a chunk; reset by the engine thread before the step */
    _Atomic uint64_t next, done; /* outputs taken, outputs finished, once for each part of the rows */
    float scale;                 /* the weight's scale, by which its outputs are multiplied */
};

struct ntx__lane {       /* scratch of one thread */
    const void **k, **v; /* [blocks of ctx] */
    /* [NTX__PATH_BLOCKS x a head's block] of a row of a tree: its last blocks, in the order of positions. */
    uint8_t *path_k, *path_v;
    uint8_t *path_holes; /* [blocks of ctx x NTX_KV_BLOCK / 8] */
    float *logits;       /* [max_rows x NTX__LOGIT_TILE] */
    /* MLA: [NTX_ATTN_VECTORS] rows that a head's matrix multiplies, in its form. */
    void *mla_x;
    void *adjugate_x;       /* an input of an adjugate expert, in the form of its matrix; NULL: there are none */
    const void **topk_v;    /* [max_topk] V of the top-k, where K does not contain it; else NULL */
    const void **topk_k;    /* [max_topk, or a window's and the pooled ones] K of the top-k, if there is one */
    float *mla_q, *mla_out; /* [NTX_ATTN_VECTORS x kept K], [NTX_ATTN_VECTORS x kv_lora] */
    uint8_t *slice;         /* [slice_bytes] where weights are interleaved, or joined */
    uint8_t *many;          /* [many_bytes] of products of many rows */
};

/* From a layer's experts to the next one's router (router_lookahead.c). */
enum { NTX__WAY_STEPS = 16, NTX__WAY_ROWS = 8 /* at a time */ };
struct ntx__lookahead {
    struct ntx__lookahead_step {
        const struct ntx_step *step;
        uint32_t layer;
    } step[NTX__WAY_STEPS]; /* [first, NTX__WAY_STEPS) */
    uint32_t first;
    uint32_t buffers, from; /* bits of the buffers that these steps touch; of those that they begin with */
    bool with_y;            /* the known part of Y goes in */
};

/* A choice is a row and one of its experts. Choices are numbered in the order of experts, and of rows within one. A
 * wave of whole experts, at most A = max(R, n_expert_used) choices, is computed together. */
struct ntx__moe_mem {
    float *probs;    /* [R x n_expert] */
    float *scores;   /* [R x n_expert] what the router selects by, normalised per row */
    uint32_t *id;    /* [R x n_expert_used] ascending */
    float *weight;   /* [R x n_expert_used] */
    uint32_t *first; /* [n_expert + 1] number of an expert's first choice */
    /* [R x n_expert_used] by number: the row of this layer; by row and rank: the number; by number: the expert. */
    uint32_t *row, *place, *expert;
    uint32_t *wanted;                      /* [n_expert] experts that any row was routed to, ascending */
    uint8_t *late;                         /* [n_expert] of those: must still be read */
    uint32_t *predicted;                   /* [n_expert] of the next layer, likeliest first */
    uint32_t *order;                       /* [n_expert] of a wave: those in memory first */
    float *shared;                         /* [R] logit of the shared expert's gate */
    float *x;                              /* [A x n_embd] their rows */
    void *quantized[NTX_N_ACTS];           /* [A x widest input] the same, and the input of down */
    float *gate, *up;                      /* [A x n_ff_exp] */
    float *y;                              /* [A x n_embd] */
    struct ntx_weight *weights;            /* [n_expert x parts] of the wave's experts */
    struct ntx__product *products;         /* [2 x n_expert] */
    float *lookahead[NTX_N_BUFS];          /* [NTX__WAY_ROWS x ...] replace the layer's buffers during a look-ahead; */
    void *lookahead_quantized[NTX_N_ACTS]; /*   [NTX__WAY_ROWS x widest input] */
};

/* A packed layer: neurons in groups (model/pack.h). Gate and up values are in the buffers of any FFN; once a group's
 * are known, gate holds the hidden values. */
struct ntx__group_mem {
    uint32_t *wanted; /* [n_groups] groups that are computed, ascending */
    /* [n_groups] addresses of the current batch's groups, as read for the pass (ntx_read_groups). */
    const uint8_t **at;
    float *added; /* [R x n_ff] added to up, where layers add to groups that they share */
    /* where groups have rows of down: */
    float *product;  /* [R x n_embd] of one group */
    uint8_t *hidden; /* [threads x hidden_bytes] a group's hidden values, quantized, of R rows */
    size_t hidden_bytes;
    /* with --ffn-sparse */
    uint8_t *used;  /* [n_groups] by any row */
    float *ones;    /* [n_ff] */
    float *scratch; /* [threads x 2 x n_ff] */
    /* Prediction for the next layer, of at most NTX__PREFETCH_ROWS rows */
    uint32_t *predicted;         /* [n_groups] */
    float *x, *gate;             /* [rows x n_embd], [rows x n_ff] */
    void *quantized[NTX_N_ACTS]; /* [rows x n_embd] */
    /* predicted: for decode rows, i.e. those that do not use all groups; x, gate and quantized are theirs, too */
    uint32_t *decode, *number; /* [NTX_DECODE_ROWS] rows of the batch; [R] by row of the batch: its index among them */
    uint8_t *uses[2];          /* [decode x stride] 1: the row uses the group; of layer l in l % 2 */
    uint32_t stride;           /* groups of the layer with most */
    uint8_t *steps;            /* [threads x steps_bytes] scratch of networks */
    size_t steps_bytes;
};

/* Neighbouring steps of a layer that are done in one go: steps of rows, row by row; products of one input; low-rank
 * adds; any other step alone. */
#define NTX__ALL UINT32_MAX
struct ntx__run {
    uint8_t op, by;       /* of the first step: enum ntx_op, enum ntx_by */
    uint8_t first, n;     /* steps of the layer */
    bool feeds;           /* any of them (ntx_step) */
    uint32_t chunk0, end; /* chunks that it takes */
    /* Of its output for products: bits of enum ntx_act, values of a row, and how many rows each row is cut into. */
    uint32_t forms, width, parts;
};
struct ntx__runs {
    uint32_t n;
    struct ntx__run run[NTX_LAYER_STEPS];
};

/* Buffers of a pass beside those that steps name: the router's logits and the shared expert's gate; choices of a wave
 * of experts; inputs of predictions; outputs. A back end keeps them where it likes, the host has memory for all of them
 * (f->buf), and rows have the same shape on both sides. */
enum ntx__buf {
    NTX__BUF_PROBS = NTX_N_BUFS,
    NTX__BUF_SHARED,
    NTX__BUF_ROUTED_X,
    NTX__BUF_ROUTED_GATE,
    NTX__BUF_ROUTED_UP,
    NTX__BUF_ROUTED_Y,
    NTX__BUF_EARLY_X,
    NTX__BUF_EARLY_GATE,
    NTX__BUF_LOGITS,
    NTX__N_BUFS
};
/* Sets of quantised rows: those of the layer's input are still wanted when those of the choices are made. */
enum ntx__set { NTX__OF_LAYER, NTX__OF_ROUTED, NTX__OF_EARLY, NTX__OF_LOW, NTX__OF_WAY, NTX__N_SETS };

struct ntx__product { /* `to` = W x */
    const struct ntx_weight *w;
    uint8_t to;  /* a buffer */
    uint32_t at; /* its first value */
    /* parts of the input's rows, each for an equal part of the outputs (layer.h); 0: whole rows */
    uint32_t parts;
    uint32_t row0, n_rows; /* only these rows of the input, into the same rows of `to`; n_rows 0: all */
};
struct ntx__input { /* x */
    uint8_t buf, set;
    uint32_t n_rows;
    uint32_t at; /* LORA: its first value; the forms have only these values */
    /* Rows that a back end may multiply with a different rounding (device.h); all others are exact. */
    uint32_t rounded0, n_rounded;
    /* The operation that alone uses the outputs, so that a back end may do it along with the product: */
    /* for two products, or gates and ups of choices; f->hidden says whether it did. NULL: others use the outputs. */
    const struct ntx__glu *glu;
    bool summed; /* outputs of choices are added to Y, or these are Y, to which choices are added (combine) */
};
struct ntx__glu {                /* gate = act(gate) * up, quantised; by row */
    uint8_t gate, up, set;       /* buffers; the set for its quantised rows */
    const struct ntx_step *step; /* the layer's step with the activation; NULL: none (and no up) */
    bool of_shared;              /* of the shared expert */
    bool of_choices;             /* rows are choices of the wave: their experts' biases are added first */
    bool passes;                 /* its result is the input of the next products, and of nothing else */
    uint32_t row0;               /* the first row: 0, unless experts go in turns */
    uint32_t n, n_rows, forms;
};
static inline const struct ntx_activation *ntx__glu_by(const struct ntx__glu *g)
{
    if (g->step->op == NTX_OP_GLU)
        return &g->step->glu.hidden;
    return g->of_shared ? &g->step->experts.shared : &g->step->experts.hidden;
}
struct ntx__rows { /* rows of a buffer, in the forms of a mask (bit 0: the floats) */
    uint8_t buf, set;
    uint32_t row0, n, forms;
    uint32_t width; /* values of a row, for quantised forms */
};

/* Operations of a back end. All calls by the engine thread, with f->layer and its rows (m.live, n_live, n_exact,
 * n_kv_only) set. 0, or a negative errno with text in the weights' error. NULL: nothing to do. */
struct ntx_backend {
    /* These steps of a layer, NULL: all. Called at load only. */
    bool (*can)(const struct ntx_model *m, const struct ntx_layer *l, const struct ntx__run *r);
    int (*begin)(struct ntx_forward *f);  /* the batch's states and angles are in m; before the first layer */
    void (*enter)(struct ntx_forward *f); /* a layer begins */
    int (*rows)(struct ntx_forward *f, const struct ntx__run *r); /* steps of rows */
    /* Operations that each back end does itself (NTX_BY_BACK). */
    int (*run[NTX_N_OPS])(struct ntx_forward *f, const struct ntx__run *r);
    /* The chunks of all products are taken in the given order. */
    int (*multiply)(struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in);
    int (*glu)(struct ntx_forward *f, const struct ntx__glu *g);
    /* Low-rank add (lora.c), of n rows: the values of LOW that a step reads, in these forms; and out += scale * the
     * rows of LORA, or of LOW for a step without a weight. */
    int (*low)(struct ntx_forward *f, const struct ntx_step *s, uint32_t n, uint32_t forms);
    int (*lora)(struct ntx_forward *f, const struct ntx_step *s, uint32_t n);
    int (*clear)(struct ntx_forward *f, enum ntx_buf b); /* sets its live rows to 0 */
    /* Experts. routed: the choices are in m.moe. gather: the wave's choices (f->moe) get their rows of X. combine: they
     * are added to Y, after the shared expert's gate has been applied to Y if f->moe.weigh is set. */
    int (*routed)(struct ntx_forward *f);
    /* It has all of f->layer's experts and routes by itself, from the router's logits; m.moe is then not written. NULL:
     * never. */
    bool (*routes)(const struct ntx_forward *f);
    int (*route)(struct ntx_forward *f);
    /* Multiplies the wave's choices by these matrices of their experts. */
    int (*multiply_routed)(struct ntx_forward *f, const enum ntx_expert_part *parts, unsigned n);
    /* The layer will probably want these experts: other machines that have some of them may begin to read. */
    int (*prefetch)(struct ntx_forward *f, uint32_t layer, const uint32_t *experts, uint32_t n);
    int (*gather)(struct ntx_forward *f);
    int (*combine)(struct ntx_forward *f);
    /* Y = the sum over n groups m.groups.wanted of the layer's neurons; all: every group. */
    int (*groups)(struct ntx_forward *f, bool all, uint32_t n);
    /* It leaves this layer's groups to ntx__host_groups; NULL: always. */
    bool (*groups_by_host)(const struct ntx_forward *f);
    /* To the host; waits until they have come. */
    int (*fetch)(struct ntx_forward *f, const struct ntx__rows *r, unsigned n);
    /* From the host, which does not change them until the next fetch. */
    int (*send)(struct ntx_forward *f, const struct ntx__rows *r);
    /* Bits of buffers that `rows` does not write, though the steps say so: it keeps only what is made of them. */
    uint16_t unseen;
    /* Gives back every chunk that it still holds: others are about to be skipped or evicted. */
    int (*settle)(struct ntx_forward *f);
    int (*decided)(struct ntx_forward *f); /* it is known which rows the later layers have */
    int (*output)(struct ntx_forward *f);  /* logits of m.live, into m.logits */
    /* Copies K and V of n slots, one after another; between passes. */
    int (*move)(struct ntx_forward *f, struct ntx_kv_seq *kv, const uint32_t *from, const uint32_t *to, uint32_t n);
    int (*end)(struct ntx_forward *f, int rc); /* also after a failure, rc; returns the pass's result */
    /* It has the chunk's bytes for good: they are not acquired. NULL: never. */
    bool (*has)(const struct ntx_forward *f, uint32_t chunk);
    bool waits;     /* a step is over when its function returns */
    bool in_turns;  /* some of a wave's experts may be multiplied, whole, before others */
    bool own_bytes; /* it takes weights as in the file: none is interleaved in place */
};
extern const struct ntx_backend ntx__cpu_backend;

/* The functions of the table of operations (model/layer.h), by where they run. ntx__row_X: row i of the layer, on the
 * CPU. NTX__IF_ROWS_##by(x): x if `by` is ROWS. */
#define NTX__IF_ROWS_ROWS(...) __VA_ARGS__
#define NTX__IF_ROWS_PASS(...)
#define NTX__IF_ROWS_BACK(...)
#define NTX__IF_PASS_ROWS(...)
#define NTX__IF_PASS_PASS(...) __VA_ARGS__
#define NTX__IF_PASS_BACK(...)
#define NTX__IF_BACK_ROWS(...)
#define NTX__IF_BACK_PASS(...)
#define NTX__IF_BACK_BACK(...) __VA_ARGS__
#define X(name, symbol, by, width, does, device)                                                                       \
    NTX__IF_ROWS_##by(void ntx__row_##symbol(struct ntx_forward *f, const struct ntx_step *s, uint32_t i);)            \
        NTX__IF_PASS_##by(int ntx__run_##symbol(struct ntx_forward *f, const struct ntx__run *r);)                     \
            NTX__IF_BACK_##by(int ntx__cpu_##symbol(struct ntx_forward *f, const struct ntx__run *r);)
NTX_OPS(X)
#undef X

static inline double ntx__softplus(double x) { return x > 20 ? x : log1p(exp(x)); }

/* Rounds of attention that threads share (cpu.h: struct ntx_attn_round), of one row and all of its heads. */
enum { NTX__SHARED_POSITIONS = 8192 }; /* a row that sees fewer is not shared: barriers cost more than they save */
struct ntx__attn_rounds {
    float *w, *by;            /* [heads x ld], [heads x ld / NTX_ATTN_PART] */
    struct ntx_attn_sum *sum; /* [heads] */
    uint32_t ld;              /* 0: nothing is shared */
};

/* All memory of a pass, in one arena (forward_mem.c). R = max_rows. Rows of x, attn and gate are padded as
 * ntx_act_row_bytes requires, since matrices of floats multiply them directly. */
struct ntx__mem {
    float *h;     /* [R x n_embd] the residual stream, of all rows of the batch */
    float *x;     /* [R x n_embd] normed */
    float *q_low; /* [R x q_lora] */
    float *q, *k, *v,
        *attn;        /* [R x n_head * head_k], [R x n_head_kv * head_k], ... head_v: used until the o product; then */
    float *z, *a;     /* [R x ...] gates of attention's output, and decay of a delta net's heads */
    float *gate, *up; /* [R x n_ff] in the same memory; with experts those of the shared one */
    struct ntx__moe_mem moe;      /* after those */
    struct ntx__group_mem groups; /* or these */
    float *y, *beside;            /* [R x n_embd] output of o and of down; what is added to it */
    float *streams, *mix;         /* [R x streams of n_embd], [R x ...] with hyper-connections */
    float *normed, *gates;        /* [R x streams of n_embd] */
    /* N-gram entries (grams.c): [R x heads] for each row, its index among the distinct entries that are wanted; their
     * numbers, and their bytes */
    uint32_t *gram_at;
    int32_t *gram_ids;
    uint8_t *gram_entries;
    float *gram_taps;                           /* [channels x taps] */
    float *pool, *pool_gate, *keys, *keys_gate; /* [R x ...] inputs of pooling */
    float *places;                              /* [places x values] of a layer, as floats */
    float *inputs, *input_entry; /* [R x n_layers * n_input] a token's inputs to layers; one entry of the table */
    void *quantized[NTX_N_ACTS]; /* [R x widest input] quantised activations, if a matrix of the model wants them */
    float *low, *lora;           /* [R x ...] low-rank inputs; the sums to add */
    void *low_quantized[NTX_N_ACTS];
    float *cs[NTX_N_TURNS], *sn[NTX_N_TURNS]; /* [R x half of the rotated values]; NULL if no layer rotates so */
    double *freq;                             /* [half of the widest] */
    uint64_t *skip;                           /* [R x NTX_MAP_WORDS] layers that a row skips */
    uint32_t *live;                           /* [R] rows of the batch in this layer */
    uint32_t *place;                          /* [R] of a row of the batch that is in this layer: its index in `live` */
    uint32_t *ahead;                          /* [R] the live ones that also run the next layer's FFN (moe_predict.c) */
    uint32_t *attn_rows;                      /* [R + 1] the first row of each group that attention takes together */
    struct ntx__attn_rounds attn_rounds;
    /* [R + 1], [R] with a recurrent state: rows by session, and where each session's begin. */
    uint32_t *turns, *turn_rows;
    int32_t *ids;               /* [R] */
    float **logits;             /* [R] */
    uint8_t *embd, *input_embd; /* [R x entry of token_embd], [R x entry of input_embd] */
    struct ntx__tile *tiles;    /* [chunks] */
    uint32_t *first_slice;      /* [chunks] its first slice in `interleaved` */
    /* [slices of all chunks] 1: interleaved in place (cpu/interleaved.h). Written by the holder of the tile. */
    uint8_t *interleaved;
    uint32_t *first_finite; /* [chunks] its first in `finite` */
    /* [chunks, but for each group of a packed one] 1: all of its values are finite (finite.h). Written by the thread
     * that checked it. */
    uint8_t *finite;
    struct ntx__lane *lanes; /* [threads] */
    size_t many_bytes;       /* of each lane */
    /* With an indexer (index_topk.c), else NULL */
    float *scores; /* [2 x threads x ld_scores] of positions or blocks, and scratch */
    size_t ld_scores;
    uint32_t *choosers; /* [R] live rows that select */
    /* [R], [R x max_topk] by row of the batch: ascending positions, and their number; NTX__ALL: it attends to all that
     * it sees. */
    uint32_t *n_topk, *topk, max_topk;
};

struct ntx_forward {
    struct ntx_forward_config c;
    const struct ntx_hparams *hp;
    struct ntx_pool *pool;
    uint8_t *arena;
    uint64_t arena_bytes;
    struct ntx__mem m;
    const struct ntx_backend *back;
    struct ntx__runs *runs; /* [n_layers] */
    struct {
        float *at;
        size_t ld;
    } buf[NTX__N_BUFS]; /* on the host; floats from row to row */
    void *const *quantized[NTX__N_SETS];
    size_t ld_x, ld_attn, ld_gate; /* of those buffers */
    uint64_t skipped;
    void (*trace)(void *ctx, uint32_t layer, const float *hidden, uint32_t n_rows);
    void *trace_ctx;
    ntx_watch_fn *watch;
    void *watch_ctx;

    /* The current pass; the engine thread writes between steps. */
    const struct ntx_batch *b;
    uint32_t layer, n_live, n_attn_groups, n_turns, next_chunk;
    struct { /* of attention that threads share (forward_attend.c) */
        uint32_t first, end, range, slice;
    } round;
    uint32_t n_exact;  /* live rows that are exact: they come first */
    uint64_t ended_ns; /* end of the layer before, for the trace: this one begins then; 0: something came between */
    /* Rows after the live ones in m.live that leave only K and V in the layer, as they skip it or nobody wants its
     * output; */
    uint32_t n_kv_only;
    uint32_t n_kv_rounded;   /* the rounded ones of them come first */
    bool keeps;              /* with blocks of rows: another one uses the chunks of this one */
    bool all_asked;          /* outputs of the last layer are wanted for all rows */
    bool end_dropped;        /* announced: of the last layer only what feeds its state is computed */
    const uint64_t *without; /* [NTX_MAX_LAYERS / 64] layers that the pass leaves out (ntx_forward_run_part); or NULL */
    struct {
        uint32_t first, n, n_wanted; /* choices of the wave of experts; experts that any row was routed to */
        uint32_t n_here;             /* of the wave's, in m.order: those that were in memory first */
        /* the shared expert's gate must still be applied to Y, with the first wave; this is the last wave */
        bool weigh, last;
        bool by_back; /* the back end routed */
        bool some;    /* Y has the sum of these n_here experts and the shared one */
        /* Recently the drive had read all other experts by then: reads for the next layer may begin earlier. */
        bool rests;
    } moe;
    struct {
        uint32_t first, n;   /* the current batch, in m.groups.wanted */
        const uint8_t *base; /* all groups that the layer shares, where it adds to them; else NULL */
        uint32_t layer;      /* the layer whose neurons are selected, by these gates [n_live x ld_gate] */
        float *gate;
        _Atomic uint64_t active; /* neurons that rows use in this layer */
        uint32_t n_decode;       /* rows that groups are predicted for */
        /* Layers: the last one predicted; those whose groups are in m.groups.uses; the one whose gate must still
         * multiply m.groups.x. */
        uint32_t predicted, known[2], kept;
    } groups;
    struct {
        uint32_t first, spans;
    } choice; /* of m.choosers, rows that are scored together; parts of their positions */
    const struct ntx__run *run;
    uint32_t lora;                  /* the step of the run, for LORA */
    bool watched;                   /* a row of the pass is watched */
    bool grams_requested;           /* entries of the n-gram table are requested */
    uint32_t n_grams;               /* how many */
    const struct ntx_step *putting; /* PUT of rows that came from elsewhere */
    const struct ntx__glu *glu;
    bool hidden;            /* the next GLU's result is in its gate already, except for quantised forms; */
    bool away;              /* and these are on another machine, with its products: nothing to do here */
    enum ntx_rotation turn; /* the rotation whose angles are being made */
    bool predicts;          /* multiplies by weights in memory before their turn */
    const float *vec[NTX_N_TENSORS], *output_norm; /* vectors of the current run, NULL where the layer has none */
    _Atomic int failed;                            /* the first error of a thread in this step */
    struct ntx_err error;                          /* its text, if it is not the weights' */
};

/* ---- forward_mem.c */
/* Positions, or pooled K, that a row selects in such a context; 0: it attends to all. */
uint32_t ntx__most_topk(const struct ntx_hparams *hp, uint32_t ctx);
/* base NULL: only counts. */
uint64_t ntx__forward_layout(const struct ntx_forward_config *c, uint8_t *base, struct ntx__mem *m);
/* Floats from row to row of a buffer, on either side: inputs of matrices of floats are padded. */
size_t ntx__buf_ld(const struct ntx_model *m, uint8_t buf);
/* The forms of activations (bit per enum ntx_act) that these matrices multiply. */
uint32_t ntx__forms(const struct ntx_weight *const *w, unsigned n);

/* ---- forward_mm.c */
/* A step that multiplies, for all threads of the pool. */
struct ntx__mm {
    struct ntx_forward *f;
    const struct ntx__product *products;
    unsigned n;
    const struct ntx__input *in;
    const uint8_t *where; /* [chunks] enum ntx__where: only those in place; NULL: all */
    uint64_t bytes;       /* of these chunks */
};
enum ntx__where { NTX__ON_DEVICE, NTX__IN_PLACE, NTX__COPIED };
/* Takes the chunks' turn (ntx__turn) and resets their tiles. */
int ntx__mm_begin(struct ntx__mm *j);
void ntx__mm_walk(const struct ntx__mm *j, unsigned thread); /* on an error: f->failed */
void ntx__fail(struct ntx_forward *f, int rc);               /* by any thread: the first error counts */
/* On the CPU, with the host's buffers. The chunks of all products are walked in the given order, without a barrier
 * between them. 0, or the first thread's error. */
int ntx__cpu_multiply(struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in);
/* Bytes from row to row of a product's quantised input. */
static inline size_t ntx__stride(const struct ntx_forward *f, uint8_t buf, enum ntx_act form, uint32_t n)
{
    return form == NTX_ACT_F32 ? f->buf[buf].ld * sizeof(float) : ntx_act_row_bytes(form, n);
}
/* Quantises row i of x [n values] into the forms of a mask: in m.quantized, or elsewhere. */
void ntx__quantize(struct ntx_forward *f, uint32_t forms, const float *x, uint32_t n, uint32_t i);
void ntx__quantize_into(struct ntx_forward *f, void *const *quantized, uint32_t forms, const float *x, uint32_t n,
                        uint32_t i);
/* Calls fn for each i in 0..n-1, in any order by any thread. */
typedef void ntx__item_fn(struct ntx_forward *f, uint32_t i, unsigned thread);
void ntx__each(struct ntx_forward *f, ntx__item_fn *fn, uint32_t n);
/* Takes a vector that is one chunk; *v is NULL if the model has none. Give back in the order taken. */
int ntx__take(struct ntx_forward *f, const struct ntx_weight *w, const float **v);
/* A chunk of a product or a vector is done with. */
static inline void ntx__release(struct ntx_forward *f, uint32_t chunk)
{
    if (!f->keeps)
        f->c.weights->ops->release(f->c.weights, chunk);
}
void ntx__give(struct ntx_forward *f, const struct ntx_weight *w);

/* The vectors of a run's steps, into f->vec. */
int ntx__take_run(struct ntx_forward *f, const struct ntx__run *r);
void ntx__give_run(struct ntx_forward *f, const struct ntx__run *r);
/* These chunks are about to be taken, or skipped: 0, or -EPROTO if it is not their turn, with the names of both
 * tensors. To be called by code that takes chunks without ntx__mm_begin. */
int ntx__turn(struct ntx_forward *f, uint32_t chunk, uint32_t n);
int ntx__skip_chunks(struct ntx_forward *f, uint32_t first, uint32_t end);
/* The only way to a chunk's bytes, for any thread and back end. -EPROTO if its turn was not taken. */
int ntx__acquire(struct ntx_forward *f, uint32_t chunk, const void **bytes);

/* ---- forward_path.c */
int ntx__check_path(const struct ntx_row *r); /* 0 or -EINVAL */
bool ntx__in_place(const struct ntx_row *r);  /* all that it sees is at its position */
/* Sets a->k, ->v and ->hole for a row that is not in place: the blocks of its path become copies in the lane. */
void ntx__attend_path(const struct ntx_forward *f, const struct ntx_row *r, uint32_t kv_head, struct ntx__lane *lane,
                      struct ntx_attn *a);
int ntx__cpu_move(struct ntx_forward *f, struct ntx_kv_seq *kv, const uint32_t *from, const uint32_t *to, uint32_t n);

/* ---- forward_delta.c */
struct ntx__turn { /* rows of one session */
    struct ntx_kv_seq *kv;
    const uint32_t *row; /* [n] rows of the batch, ascending */
    uint32_t n;
};
struct ntx__turn ntx__turn_of(const struct ntx_forward *f, uint32_t i);
int ntx__recur_begin(struct ntx_forward *f); /* of a pass. -EINVAL: a row does not follow its session's state */
void ntx__recur_end(struct ntx_forward *f);  /* the new states become valid */

/* ---- forward_steps.c */
void ntx__watch_begin(struct ntx_forward *f);
int ntx__watch_run(struct ntx_forward *f, const struct ntx__run *r); /* of f->layer, when it is over */
void ntx__watch_embedded(struct ntx_forward *f);
void ntx__watch_logits(struct ntx_forward *f);

/* ---- forward_runs.c */
/* malloc'd [n_layers], or NULL. */
struct ntx__runs *ntx__runs_of(const struct ntx_model *m, const struct ntx_chunks *c);

/* ---- forward_blocks.c */
/* Rows of a layer that are computed at a time. */
static inline uint32_t ntx__block(const struct ntx_forward_config *c)
{
    return c->block ? NTX_MIN(c->block, c->max_rows) : c->max_rows;
}
int ntx__run_blocks(struct ntx_forward *f); /* f->layer */

/* ---- forward.c */
int ntx__do_run(struct ntx_forward *f, const struct ntx__run *r);
bool ntx__skips(const struct ntx_forward *f, uint32_t row, uint32_t layer); /* of the batch, as far as decided */
void ntx__choose_rows(struct ntx_forward *f);                               /* of f->layer: m.live, n_live, n_kv_only */
/* Of the batch: the output of the last layer is wanted for it; otherwise it leaves only K and V, or the state,
 * there. */
bool ntx__asked(const struct ntx_forward *f, uint32_t row);
bool ntx__last_idle(const struct ntx_forward *f); /* no row does more in the last layer, as far as decided */
static inline bool ntx__is_last(const struct ntx_forward *f, uint32_t layer) { return layer + 1 == f->hp->n_layers; }
/* A buffer with the batch's rows, not the layer's. */
static inline bool ntx__by_batch(uint8_t buf)
{
    return buf == NTX_BUF_H || buf == NTX_BUF_INPUTS || buf == NTX_BUF_STREAMS;
}
static inline const struct ntx_row *ntx__live_row(const struct ntx_forward *f, uint32_t i)
{
    return &f->b->rows[f->m.live[i]];
}
static inline float *ntx__layer_row(const struct ntx_forward *f, enum ntx_buf b, uint32_t i) /* row i of the layer */
{
    return f->buf[b].at + (ntx__by_batch((uint8_t)b) ? f->m.live[i] : i) * f->buf[b].ld;
}
/* A row of the batch, in a buffer of the layer. */
static inline float *ntx__of_batch(const struct ntx_forward *f, uint8_t buf, uint32_t row)
{
    return f->buf[buf].at + (ntx__by_batch(buf) ? row : f->m.place[row]) * f->buf[buf].ld;
}
static inline const struct ntx_layer_weights *ntx__layer_weights(const struct ntx_forward *f)
{
    return &f->c.chunks->layers[f->layer];
}
static inline const struct ntx_step *ntx__steps_of(const struct ntx_forward *f, const struct ntx__run *r)
{
    return &f->c.model->layers[f->layer].step[r->first];
}
/* The run's experts get their input times the router's weight. */
static inline bool ntx__weighs_input(const struct ntx_forward *f)
{
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    return s->op == NTX_OP_EXPERTS && s->experts.weighs_input;
}
static inline const struct ntx_weight *ntx__weight_of(const struct ntx_forward *f, const struct ntx_step *s)
{
    return &f->c.chunks->layers[f->layer].of[s->weight[0]];
}

/* A step's products of one buffer, for all live rows, each exactly. */
static inline int ntx__multiply(struct ntx_forward *f, const struct ntx__product *p, unsigned n, uint8_t buf)
{
    return f->back->multiply(f, p, n, &(struct ntx__input){.buf = buf, .set = NTX__OF_LAYER, .n_rows = f->n_live});
}
/* Of n gates and ups, which are limited in place. */
void ntx__activate(const struct ntx_forward *f, const struct ntx_activation *by, float *gate, float *up, uint32_t n,
                   float *out);
int ntx__fetch(struct ntx_forward *f, uint8_t buf, uint32_t row0, uint32_t n); /* floats */
int ntx__settle_chunks(struct ntx_forward *f);
static inline bool ntx__has(const struct ntx_forward *f, uint32_t chunk)
{
    return f->back->has && f->back->has(f, chunk);
}

/* ---- moe.c, moe_predict.c */
/* Of logits [n_expert] in place, plus the vector router_bias. */
void ntx__moe_scores(const struct ntx_forward *f, const struct ntx_router *r, float *p);
/* Scores p [n], with `more` (or NULL) added: those of groups that are not selected become -1. */
void ntx__moe_leave_groups(const struct ntx_router *r, float *p, const float *more, uint32_t n);
int ntx__moe_begin(struct ntx_forward *f); /* of a pass: the experts of layer 0 if they follow from tokens */
/* The next layer's experts are predicted, from this layer's state. */
bool ntx__moe_predicted(const struct ntx_forward *f);
/* Predicts the next layer's experts; between the routing of this layer and the last of its products. */
int ntx__moe_predict(struct ntx_forward *f);
/* Held by the back end: all of a layer's experts, or none. */
bool ntx__moe_held(const struct ntx_forward *f, uint32_t layer);

/* ---- router_lookahead.c */
/* From the layer's experts to the router behind it; false: there is no way. */
bool ntx__find_lookahead(const struct ntx_model *m, uint32_t layer, struct ntx__lookahead *lookahead);
uint32_t ntx__lookahead_buffers(const struct ntx_model *m); /* over all layers */
/* All weights of its steps are in memory. */
bool ntx__lookahead_open(const struct ntx_forward *f, const struct ntx__lookahead *lookahead);
/* Runs it, from f->layer on, for these rows of the batch, some at a time; arrived(f, row, i): rows[row] is row i of
 * m.moe.lookahead[NTX_BUF_X], the router's input. */
int ntx__run_lookahead(struct ntx_forward *f, const struct ntx__lookahead *lookahead, const uint32_t *rows, uint32_t n,
                       ntx__item_fn *arrived);

/* ---- mla.c: query heads [head, head + a->n_q) of live rows [row, row + a->n_rows) */
/* a's q, out and widths become those over MLA latents. */
void ntx__mla_begin(struct ntx_forward *f, const struct ntx__lane *lane, uint32_t row, uint32_t head,
                    struct ntx_attn *a);
void ntx__mla_end(struct ntx_forward *f, const struct ntx__lane *lane, uint32_t row, uint32_t head,
                  const struct ntx_attn *a);

/* ---- index_topk.c */
bool ntx__has_topk(const struct ntx_forward *f, uint32_t row); /* of the batch */
/* The position's index key. */
uint16_t *ntx__index_kept(const struct ntx_forward *f, const struct ntx_row *r, uint32_t slot);
/* Before an ATTEND: if K is in a file, waits for what its rows read. Negative errno: it cannot be read. */
int ntx__request_topk(struct ntx_forward *f);
/* a's K is that of the row's top-k positions. */
void ntx__attend_topk(const struct ntx_forward *f, uint32_t row, uint32_t kv_head, const struct ntx__lane *lane,
                      struct ntx_attn *a);

/* ---- grams.c */
/* The tokens and inputs of n-grams are behind the layer's fold (model/state.h); NULL: none yet. */
static inline float *ntx__grams_in(const struct ntx_forward *f, const float *fold)
{
    return fold ? (float *)fold + ntx_fold_floats(f->hp) : NULL;
}
int ntx__grams_request(struct ntx_forward *f); /* for all rows, when the pass begins */
int ntx__grams_more(struct ntx_forward *f);    /* between steps: posts more reads as others end */
/* Before its convolution: m.gram_taps, and each session's last tokens. */
void ntx__grams_keep(struct ntx_forward *f, const struct ntx_step *s);
void ntx__grams_keep_tokens(struct ntx_forward *f); /* the tokens alone */

/* ---- forward_pool.c */
/* Makes m.places: the rows of a step that pools, as floats, if any row pools. */
void ntx__find_places(struct ntx_forward *f, const struct ntx_step *s, uint32_t every);
struct ntx__pool_source { /* one position's input */
    const float *value, *weight, *place;
};
enum { NTX__POOL_CHANNELS = 256 };
/* out[c] = the sum of values weighted by the softmax of weight + place, for channels [first, first + n), at most
 * NTX__POOL_CHANNELS. */
void ntx__pool_channels(const struct ntx_cpu_ops *ops, const struct ntx__pool_source *of, uint32_t n_of, uint32_t first,
                        uint32_t n, float *out);
/* A pooled K or key of f->layer, by its number. */
uint8_t *ntx__pooled(const struct ntx_forward *f, const struct ntx_kv_seq *kv, uint32_t number, uint32_t every,
                     bool key);
/* a's K is all that this row of the batch sees. */
void ntx__attend_pooled(const struct ntx_forward *f, const struct ntx_step *s, uint32_t row,
                        const struct ntx__lane *lane, struct ntx_attn *a);

/* ---- lora.c: LORA */
int ntx__cpu_low(struct ntx_forward *f, const struct ntx_step *s, uint32_t n, uint32_t forms);
int ntx__cpu_lora(struct ntx_forward *f, const struct ntx_step *s, uint32_t n);
/* The step's low-rank add applies to row i of the layer. */
static inline bool ntx__adds_to(const struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    return !s->adapter || f->b->rows[f->m.live[i]].adapter == s->adapter;
}

/* ---- forward_cpu.c */
/* A step that is done row by row, for row i of the layer. */
void ntx__cpu_row(struct ntx_forward *f, const struct ntx_step *s, uint32_t i);
/* PUT of the heads that this machine has, of all rows of the layer. */
void ntx__put_own(struct ntx_forward *f, const struct ntx_step *s);
void ntx__hadamard(float *x, uint32_t heads, uint32_t width);

/* ---- forward_attend.c */
void ntx__attend_own(struct ntx_forward *f); /* ATTEND of its heads, for f->run, with its vectors in f->vec */
void ntx__attended(struct ntx_forward *f);   /* attention of all heads is done: makes its quantised forms */

/* ---- cpu_experts.c: see struct ntx_backend */
int ntx__cpu_glu(struct ntx_forward *f, const struct ntx__glu *g);
/* A GLU's values [at, at + n) of row i, without bias. */
void ntx__hidden(const struct ntx_forward *f, const struct ntx__glu *g, uint32_t i, uint32_t at, uint32_t n);
int ntx__cpu_combine(struct ntx_forward *f);
/* y [n_embd]: the known part of row i's Y (f->moe.some). */
void ntx__so_far(struct ntx_forward *f, uint32_t i, float *y);
float ntx__routed_weight(const struct ntx_forward *f, uint32_t i); /* the weight of choice i of the wave in Y */
/* The factor of the shared expert's output for live row i. */
float ntx__shared_weight(const struct ntx_forward *f, uint32_t i);
int ntx__cpu_gather(struct ntx_forward *f);
int ntx__cpu_combine(struct ntx_forward *f);

/* ---- sparse_host.c */
/* ntx_backend.groups on the CPU: from x and, unless it is in the groups, gate. */
int ntx__host_groups(struct ntx_forward *f, bool all, uint32_t n);

/* ---- sparse_choose.c */
enum ntx_ffn_act ntx__packed_act(const struct ntx_forward *f, uint32_t layer);
/* act(gate)| [n_ff]; NaN counts as more than any number. */
void ntx__magnitudes(const struct ntx_forward *f, const float *gate, float *m);
/* Zeroes the gates [n_live x ld_gate] in layer l of neurons that a row does not use; list [n_groups]: groups that any
 * row uses. Returns how many. */
uint32_t ntx__choose_groups(struct ntx_forward *f, uint32_t l, float *gate, uint32_t *list);

/* ---- sparse_predict.c */
void ntx__begin_groups(struct ntx_forward *f); /* of a pass */
/* This layer's gate matrix, for the live rows, and for the kept rows of the prediction. */
int ntx__gates(struct ntx_forward *f);
/* [n_groups] 1: used by that row of the batch; NULL: all, or as its gates say. */
const uint8_t *ntx__groups_of(const struct ntx_forward *f, uint32_t row, uint32_t layer);
/* Groups of this layer that any live row uses; returns how many. */
uint32_t ntx__join_groups(struct ntx_forward *f, uint32_t *list);
/* Predicts the groups that rows will use in a layer, once per layer: between the routing of the layer before and its
 * products, or before the layer. */
int ntx__predict_groups(struct ntx_forward *f, uint32_t layer);
bool ntx__watches_groups(const struct ntx_forward *f);
/* Reports this layer's hidden values, in m.gate on the host, of rows that are captured or add them to a set. */
void ntx__watch_groups(struct ntx_forward *f);

/* ---- sparse_prefetch.c */
/* Its norm and its gate matrix are in memory: usable before their turn. */
bool ntx__gate_there(const struct ntx_forward *f, uint32_t layer);
/* Its gate matrix times the rows in m.groups.x and .quantized, into m.groups.gate. */
int ntx__gates_early(struct ntx_forward *f, uint32_t layer, uint32_t n_rows);
/* Of the next layer; between the choices of this one and its products. */
int ntx__prefetch_groups(struct ntx_forward *f);

/* ---- embed.c */
/* m.h of each row. */
int ntx__embed_tokens(struct ntx_forward *f);

/* ---- forward_finite.c: 0, or -EDOM: the pass fails with text in f->error. Each value is checked once. */
/* Outputs [out, out + n) of a chunk, at bytes. */
int ntx__finite_outs(struct ntx_forward *f, uint32_t chunk, const void *bytes, uint32_t out, uint32_t n);
void ntx__finite_done(struct ntx_forward *f, uint32_t chunk); /* all its rows are checked */
/* A group of a packed chunk; the engine thread. */
int ntx__finite_group(struct ntx_forward *f, uint32_t chunk, const void *bytes, uint32_t group);
bool ntx__finite_all(const struct ntx_forward *f, uint32_t chunk); /* that was done */
/* Outputs [out, out + n) of a matrix's chunk are a slice that is interleaved. */
bool ntx__is_interleaved(const struct ntx_forward *f, uint32_t chunk, uint32_t out, uint32_t n);
/* An entry of a table that tokens look up. */
int ntx__finite_token(struct ntx_forward *f, const struct ntx_weight *w, const void *entry, int32_t token);

#endif
