/* SPDX-License-Identifier: Apache-2.0 */
/* forward_impl.h: what the files of the forward pass share; nobody else includes it.
 *
 *   forward.c      the pass from begin to end, for all back ends: rows in, layers, skips, rows out
 *   forward_runs.c a layer's steps (model/layer.h), and which neighbours are done in one go
 *   forward_cpu.c  the operations of these steps on the CPU
 *   cpu_experts.c  and of those that experts are made of
 *   mla.c       attention over latents: what comes before and after it
 *   index_topk.c       attention to chosen positions: which
 *   forward_pool.c  K that stand for several positions
 *   hyper_connections.c      several residual streams
 *   lora.c         what is added to a matrix's outputs (model/layer_delta.h)
 *   grams.c        entries of a table that follow from the last tokens, asked for as soon as these are known
 *   moe.c          the FFN of a layer with experts, for all back ends
 *   moe_predict.c    which experts the next layer will want, by its router on this layer's state
 *   router_lookahead.c          the steps from that state to the router
 *   sparse.c       the FFN of a packed layer, for all back ends
 *   sparse_host.c  its groups of neurons, by the CPU
 *   sparse_choose.c  which of its neurons rows use, by their gates
 *   sparse_predict.c which of its groups rows use, known ahead
 *   sparse_prefetch.c which groups of neurons the next layer will use, by its gate on this layer's state
 *   forward_mm.c   a step that multiplies: all threads walk the chunks of up to three matrices
 *   forward_delta.c  layers that keep a recurrent state: convolutions, delta nets
 *   forward_finite.c  weights that are no numbers
 *   forward_path.c rows of a tree: what their attention reads, and what becomes of an accepted path
 *   forward_steps.c  what steps gave, for who watches
 *   forward_mem.c  the layout of memory
 *   rope.c pool.c  angles; threads
 *
 * The engine thread runs the steps one after the other; each step is a function that all threads of the pool run
 * together, or that the engine thread runs alone where there is only one row to do. Rows that skip a layer are left out
 * of it: buffers other than `h` hold the live rows of the current layer, densely. */
#ifndef NTX_COMPUTED_PASS_FORWARD_IMPL_H
#define NTX_COMPUTED_PASS_FORWARD_IMPL_H

#include <stdatomic.h>

#include "computed/cpu/pool.h"
#include "computed/pass/forward.h"
#include "computed/pass/input_sums.h"
#include "computed/pass/rope.h"
#include "shm/region.h" /* NTX_MAP_WORDS */

#define NTX__PREFETCH_ROWS 8u /* more rows together use nearly all groups anyway */
#define NTX__LOGIT_TILE    64 /* outputs at a time when logits go to several rows' buffers */

#define NTX__PATH_BLOCKS   (NTX_PATH_MAX / NTX_KV_BLOCK + 1)

struct ntx__tile {               /* progress within a chunk: reset by the engine thread before the step */
    _Atomic uint32_t next, done; /* rows taken, rows finished */
    float scale;                 /* of the weight's first: what comes of it is multiplied by this */
};

struct ntx__lane {            /* scratch of one thread */
    const void **k, **v;      /* [blocks of ctx] */
    uint8_t *path_k, *path_v; /* [NTX__PATH_BLOCKS x a head's block] of a row of a tree: its last blocks, in the order
                                 of positions */
    uint8_t *path_holes;      /* [blocks of ctx x NTX_KV_BLOCK / 8] */
    float *logits;            /* [max_rows x NTX__LOGIT_TILE] */
    void
        *mla_x; /* attention over latents: [NTX_ATTN_VECTORS] rows that a head's matrix is multiplied by, in its form */
    const void **chosen_v;  /* [max_topk] V likewise, where K has it not; else NULL */
    const void **chosen;    /* [max_topk, or a window's and those pooled] K of chosen positions, where there are such */
    float *mla_q, *mla_out; /* [NTX_ATTN_VECTORS x kept K], [NTX_ATTN_VECTORS x kv_lora] */
    uint8_t *slice;         /* [NTX_SLICE_OUTS of the longest] where weights are interleaved */
};

/* From a layer's experts to the next one's router (router_lookahead.c). */
enum { NTX__WAY_STEPS = 16, NTX__WAY_ROWS = 8 /* at a time */ };
struct ntx__lookahead {
    struct ntx__lookahead_step {
        const struct ntx_step *step;
        uint32_t layer;
    } step[NTX__WAY_STEPS]; /* [first, NTX__WAY_STEPS) */
    uint32_t first;
    uint32_t buffers, from; /* bits of those that these steps touch; of those that they begin with */
    bool with_y;            /* what is known of Y goes in */
};

/* A choice is a row and one of its experts. In order of expert, and of row within one, they are numbered; a wave of
 * whole experts, at most A = max(R, n_expert_used) choices, is computed together. */
struct ntx__moe_mem {
    float *probs;    /* [R x n_expert] */
    float *scores;   /* [R x n_expert] what the choice goes by, as so many standard deviations above the row's mean */
    uint32_t *id;    /* [R x n_expert_used] ascending */
    float *weight;   /* [R x n_expert_used] */
    uint32_t *first; /* [n_expert + 1] number of an expert's first choice */
    uint32_t *row, *place,
        *expert; /* [R x n_expert_used] by number: row of this layer; by row and rank: number; by number: the expert */
    uint32_t *wanted;              /* [n_expert] experts that any row chose, ascending */
    uint8_t *late;                 /* [n_expert] of those: has to be read */
    uint32_t *predicted;           /* [n_expert] of the next layer, the likeliest first */
    uint32_t *order;               /* [n_expert] of a wave: those that are there first */
    float *shared;                 /* [R] logit of the shared expert's gate */
    float *x;                      /* [A x n_embd] their rows */
    void *quantized[NTX_N_ACTS];   /* [A x widest input] the same, and what goes into down */
    float *gate, *up;              /* [A x n_ff_exp] */
    float *y;                      /* [A x n_embd] */
    struct ntx_weight *weights;    /* [n_expert x parts] of the wave's experts */
    struct ntx__product *products; /* [2 x n_expert] */
    float *lookahead[NTX_N_BUFS];  /* [NTX__WAY_ROWS x ...] in place of the layer's, of those that ways ahead touch; */
    void *lookahead_quantized[NTX_N_ACTS]; /*   [NTX__WAY_ROWS x widest input] */
};

/* Of a packed layer: neurons in groups (model/pack.h). Their gate and up values lie where those of any FFN do; once a
 * group's are known, gate holds the hidden values. */
struct ntx__group_mem {
    uint32_t *wanted; /* [n_groups] groups that are computed, ascending */
    const uint8_t *
        *at;      /* [n_groups] where those of the current batch lie: of what is read for the pass (ntx_read_groups) */
    float *added; /* [R x n_ff] to what up gives, where layers add to what they share */
    /* with --ffn-sparse */
    uint8_t *used;  /* [n_groups] by any row */
    float *ones;    /* [n_ff] */
    float *scratch; /* [threads x 2 x n_ff] */
    /* The next layer's, predicted; of at most NTX__PREFETCH_ROWS rows */
    uint32_t *predicted;         /* [n_groups] */
    float *x, *gate;             /* [rows x n_embd], [rows x n_ff] */
    void *quantized[NTX_N_ACTS]; /* [rows x n_embd] */
    /* predicted: of decode rows, which are those that do not use all groups; x, gate and quantized are theirs, too */
    uint32_t *decode, *number; /* [NTX_DECODE_ROWS] rows of the batch; [R] by row of the batch: its place among them */
    uint8_t *uses[2];          /* [decode x stride] 1: the row uses the group; of layer l in l % 2 */
    uint32_t stride;           /* groups of the layer that has most */
    uint8_t *steps;            /* [threads x steps_bytes] scratch of networks */
    size_t steps_bytes;
};

/* Neighbouring steps of a layer that are done in one go: those of rows, row by row; products of one input; what is
 * added to outputs; any other alone. */
#define NTX__ALL UINT32_MAX
struct ntx__run {
    uint8_t op, by;       /* of the first step: enum ntx_op, enum ntx_by */
    uint8_t first, n;     /* steps of the layer */
    bool feeds;           /* any of them (ntx_step) */
    uint32_t chunk0, end; /* chunks that it takes */
    uint32_t forms, width,
        parts; /* of what it leaves for products: bits of enum ntx_act, values of a row, and how many such a row is */
};
struct ntx__runs {
    uint32_t n;
    struct ntx__run run[NTX_LAYER_STEPS];
};

/* Buffers of a pass, beside those that steps name: the router's logits and the shared expert's gate; a wave of experts'
 * choices; what is predicted with; what comes out. A back end keeps them where it likes, the host has a place for all
 * of them (f->buf), and rows have the same shape on both sides. */
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
/* Where quantised forms of a buffer's rows lie: those of the layer's input are still wanted when a choice's are made.
 * */
enum ntx__set { NTX__OF_LAYER, NTX__OF_ROUTED, NTX__OF_EARLY, NTX__OF_LOW, NTX__OF_WAY, NTX__N_SETS };

struct ntx__product { /* `to` = W x */
    const struct ntx_weight *w;
    uint8_t to;            /* a buffer */
    uint32_t at;           /* the first of its values */
    uint32_t parts;        /* of the input's rows, each for as many of the outputs (layer.h); 0: they are whole */
    uint32_t row0, n_rows; /* these rows of the input only, into the same rows of `to`; n_rows 0: all */
};
struct ntx__input { /* x */
    uint8_t buf, set;
    uint32_t n_rows;
    uint32_t at;                  /* PLUS: the first of its values; forms are of those alone */
    uint32_t rounded0, n_rounded; /* of these, rows that a back end may multiply with rounding of its own (device.h);
                                     all others are exact */
    /* What comes next and is all that sees the outputs, so that a back end may do it along with them: */
    const struct ntx__glu *
        glu; /* of two products, or of choices' gates and ups; f->hidden then says that it did. NULL: others see them */
    bool summed; /* choices' outputs are added to Y, or these are Y, to which choices are added (combine) */
};
struct ntx__glu {                /* gate = act(gate) * up, quantised; by row */
    uint8_t gate, up, set;       /* buffers; where its forms go */
    const struct ntx_step *step; /* of the layer, which says what the activation is; NULL: there is none (and no up) */
    bool of_shared;              /* it is that of the expert that every row goes through */
    bool of_choices;             /* rows are choices of the wave: their experts' biases are added first */
    bool passes;                 /* what it makes is what the next products take, and nobody else sees it */
    uint32_t row0;               /* the first of the rows: 0, but where experts go in turns */
    uint32_t n, n_rows, forms;
};
static inline const struct ntx_activation *ntx__glu_by(const struct ntx__glu *g)
{
    if (g->step->op == NTX_OP_GLU)
        return &g->step->glu.hidden;
    return g->of_shared ? &g->step->experts.shared : &g->step->experts.hidden;
}
struct ntx__rows { /* of a buffer: the forms of a mask (bit 0: the floats) */
    uint8_t buf, set;
    uint32_t row0, n, forms;
    uint32_t width; /* values of a row, where a form is quantised */
};

/* What a back end provides. All by the engine thread, f->layer and its rows (m.live, n_live, n_exact, n_kv_only) being
 * set. 0 or a negative errno with words in the weights' error. NULL: there is nothing to do. */
struct ntx_backend {
    bool (*can)(const struct ntx_model *m, const struct ntx_layer *l,
                const struct ntx__run *r); /* these steps of a layer; NULL: all. Asked once, at load */
    int (*begin)(struct ntx_forward *f);   /* the batch's states and angles are in m, before the first layer */
    void (*enter)(struct ntx_forward *f);  /* a layer begins */
    int (*rows)(struct ntx_forward *f, const struct ntx__run *r); /* steps of rows */
    int (*run[NTX_N_OPS])(struct ntx_forward *f,
                          const struct ntx__run *r); /* those that each back end does by itself (NTX_BY_BACK) */
    /* The chunks of all products are taken in the given order. */
    int (*multiply)(struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in);
    int (*glu)(struct ntx_forward *f, const struct ntx__glu *g);
    /* PLUS (lora.c), of n rows: the values of LOW that a step reads in these forms; and out += scale * the rows of PLUS
     * or, of a step without a weight, of LOW. */
    int (*low)(struct ntx_forward *f, const struct ntx_step *s, uint32_t n, uint32_t forms);
    int (*lora)(struct ntx_forward *f, const struct ntx_step *s, uint32_t n);
    int (*clear)(struct ntx_forward *f, enum ntx_buf b); /* its live rows are 0 */
    /* Experts: choices are made (m.moe); those of the wave (f->moe) get their rows of X; and are added to Y, whose rows
     * have been weighed by the shared expert's gate before where f->moe.weigh says so. */
    int (*chosen)(struct ntx_forward *f);
    bool (*routes)(const struct ntx_forward *f); /* it has all of f->layer's experts, and chooses by itself, from the
                                                    router's logits: m.moe is not written then. NULL: never */
    int (*route)(struct ntx_forward *f);
    int (*multiply_routed)(struct ntx_forward *f, const enum ntx_expert_part *parts,
                           unsigned n); /* the wave's choices, by these matrices of their experts */
    int (*prefetch)(struct ntx_forward *f, uint32_t layer, const uint32_t *experts,
                    uint32_t n); /* that the layer will probably want: who else has some of them may begin to read */
    int (*gather)(struct ntx_forward *f);
    int (*combine)(struct ntx_forward *f);
    /* Y = what these groups of the layer's neurons give: n of m.groups.wanted; all: every one. */
    int (*groups)(struct ntx_forward *f, bool all, uint32_t n);
    bool (*groups_by_host)(
        const struct ntx_forward *f); /* it leaves this layer's to ntx__host_groups; NULL: every one's */
    int (*fetch)(struct ntx_forward *f, const struct ntx__rows *r,
                 unsigned n); /* to the host, and waits until they are there */
    int (*send)(
        struct ntx_forward *f,
        const struct ntx__rows *r); /* from the host, which leaves them as they are until something is fetched */
    uint16_t unseen; /* bits of buffers that `rows` leaves as they were where the steps say that it writes them: what is
                        made of them is all that it keeps */
    int (*settle)(struct ntx_forward *f);  /* gives back every chunk that it still holds: others are about to be passed
                                              over, or replaced */
    int (*decided)(struct ntx_forward *f); /* which rows the later layers have is known */
    int (*output)(struct ntx_forward *f);  /* logits of m.live, into m.logits */
    int (*move)(struct ntx_forward *f, struct ntx_kv_seq *kv, const uint32_t *from, const uint32_t *to,
                uint32_t n);                   /* K and V of n slots, one after another; between passes */
    int (*end)(struct ntx_forward *f, int rc); /* also after a failure, rc; returns what the pass shall */
    bool (*has)(const struct ntx_forward *f,
                uint32_t chunk); /* it has the chunk's bytes for good: they are asked of nobody. NULL: of none */
    bool waits;                  /* a step is over when its function returns */
    bool in_turns;               /* some of a wave's experts may be multiplied, whole, before others */
    bool own_bytes;              /* it takes weights as they are in the file: none is interleaved where it lies */
};
extern const struct ntx_backend ntx__cpu_backend;

/* The functions of the table of operations (model/layer.h), by who does them. ntx__row_X: of row i of the layer, on the
 * CPU. NTX__IF_ROWS_##by(x): x where `by` is ROWS. */
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

/* All memory of a pass, in one arena (forward_mem.c). R = max_rows. Rows of x, attn and gate are padded to what
 * ntx_act_row_bytes says, since matrices of floats multiply by them as they are. */
struct ntx__mem {
    float *h;     /* [R x n_embd] the residual stream, of all rows of the batch */
    float *x;     /* [R x n_embd] normed */
    float *q_low; /* [R x q_lora] */
    float *q, *k, *v,
        *attn;        /* [R x n_head * head_k], [R x n_head_kv * head_k], ... head_v: until the o product; then */
    float *z, *a;     /* [R x ...] gates of what attention gives, and what heads of a delta net keep */
    float *gate, *up; /* [R x n_ff] in the same place; with experts of the shared one */
    struct ntx__moe_mem moe;      /* behind those */
    struct ntx__group_mem groups; /* or these */
    float *y, *beside;            /* [R x n_embd] output of o and of down; what is added to it */
    float *streams, *mix;         /* [R x streams of n_embd], [R x ...] where there are several */
    float *normed, *gates;        /* [R x streams of n_embd] */
    /* Where a layer adds what follows from the last tokens (grams.c): [R x heads] of each row's, its place among the
     * different entries of the table that are wanted; these, and their bytes */
    uint32_t *gram_at;
    int32_t *gram_ids;
    uint8_t *gram_entries;
    float *gram_taps;                           /* [channels x taps] */
    float *pool, *pool_gate, *keys, *keys_gate; /* [R x ...] what is pooled */
    float *places;                              /* [places x values] of a layer, as floats */
    float *inputs, *input_entry; /* [R x n_layers * n_input] what layers get of the token; an entry of the table */
    void *quantized[NTX_N_ACTS]; /* [R x widest input] quantised activations, where a matrix of the model wants them */
    float *low, *lora;           /* [R x ...] what is added to outputs is made of; and it */
    void *low_quantized[NTX_N_ACTS];
    float *cs[NTX_N_TURNS], *sn[NTX_N_TURNS]; /* [R x half of what it turns]; NULL where no layer turns so */
    double *freq;                             /* [half of the widest] */
    uint64_t *skip;                           /* [R x NTX_MAP_WORDS] layers that a row skips */
    uint32_t *live;                           /* [R] rows of the batch in this layer */
    uint32_t *place;     /* [R] of a row of the batch that is in this layer: its number in `live` */
    uint32_t *ahead;     /* [R] of those live, the ones that go on into the next layer's FFN (moe_predict.c) */
    uint32_t *attn_rows; /* [R + 1] of those, the first of each group that attention takes together */
    uint32_t *turns,
        *turn_rows; /* [R + 1], [R] where layers keep a recurrent state: rows by session, and where each one's begin */
    int32_t *ids;   /* [R] */
    float **logits; /* [R] */
    uint8_t *embd, *input_embd; /* [R x entry of token_embd], [R x entry of input_embd] */
    struct ntx__tile *tiles;    /* [chunks] */
    uint32_t *first_slice;      /* [chunks] its first in `interleaved` */
    uint8_t *interleaved;   /* [slices of all chunks] 1: has been interleaved where it lies (cpu/interleaved.h). Written
                               by who holds the tile */
    uint32_t *first_finite; /* [chunks] its first in `finite` */
    uint8_t *finite;        /* [chunks, but for each group of a packed one] 1: all of its values are numbers (finite.h).
                               Written by who finishes it */
    struct ntx__lane *lanes; /* [threads] */
    /* Where layers choose positions (index_topk.c), else NULL */
    float *scores;                       /* [2 x threads x ctx] of positions, and scratch */
    uint32_t *choosers;                  /* [R] live rows that choose */
    uint32_t *n_topk, *chosen, max_topk; /* [R], [R x max_topk] by row of the batch: ascending positions, so many;
                                            NTX__ALL: it attends to all that it sees */
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
    } buf[NTX__N_BUFS]; /* of the host; floats from row to row */
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
    uint32_t n_exact;  /* live rows that are exact: they come first */
    uint64_t ended_ns; /* when the layer before ended, for the trace: this one begins then; 0: something came between */
    uint32_t n_kv_only; /* rows behind the live ones in m.live that skip the layer, or of which nobody wants what comes
                           of it, and leave their K and V in it; */
    uint32_t n_kv_rounded; /*   those that are rounded come first */
    bool all_asked;        /* somebody looks at all rows behind the last layer */
    bool end_dropped;      /* announced: of the last layer no more is computed than what feeds its state */
    struct {
        uint32_t first, n, n_wanted; /* choices of the wave of experts; experts that any row chose */
        uint32_t n_here;             /* of the wave's, in m.order: those that were there first */
        bool weigh, last; /* the shared expert's gate is yet to weigh Y, with the first wave; the wave is the last */
        bool by_back;     /* the back end chose */
        bool some;        /* of Y as much is known as these n_here and the shared one give */
        bool rests; /* when that was known of late, the drive had read the others: it may begin with the next layer's
                       before */
    } moe;
    struct {
        uint32_t first, n;   /* the current batch, in m.groups.wanted */
        const uint8_t *base; /* all groups that the layer shares, where it adds to them; else NULL */
        uint32_t layer;      /* whose neurons are chosen, by these gates [n_live x ld_gate] */
        float *gate;
        _Atomic uint64_t active;            /* neurons that rows use in this layer */
        uint32_t n_decode;                  /* rows that groups are predicted for */
        uint32_t predicted, known[2], kept; /* layers: the last one predicted; whose groups are in m.groups.uses; whose
                                               gate is to be multiplied by m.groups.x */
    } groups;
    struct {
        uint32_t first, spans;
    } choice; /* of m.choosers, rows that are scored together; parts of their positions */
    const struct ntx__run *run;
    uint32_t lora;                  /* the step of the run, where it is PLUS */
    bool watched;                   /* a row of the pass is */
    bool grams_asked;               /* the table's entries are on their way */
    uint32_t n_grams;               /* so many */
    const struct ntx_step *putting; /* PUT of rows that came from elsewhere */
    const struct ntx__glu *glu;
    bool hidden;            /* what the next GLU makes stands in its gate already, but for its quantised forms; */
    bool away;              /* and in those where its products are, on another machine: there is nothing to do here */
    enum ntx_rotation turn; /* whose angles are being made */
    bool predicts;          /* multiplies by what is in memory before its turn has come */
    const float *vec[NTX_N_TENSORS], *output_norm; /* those of the current run, NULL where the layer has none */
    _Atomic int failed;                            /* the first error of a thread in this step */
    struct ntx_err error;                          /* its words, where it is ours and not the weights' */
};

/* ---- forward_mem.c */
uint32_t ntx__most_topk(
    const struct ntx_hparams *hp,
    uint32_t ctx); /* positions, or pooled K, that a row chooses in such a context; 0: it attends to all */
uint64_t ntx__forward_layout(const struct ntx_forward_config *c, uint8_t *base,
                             struct ntx__mem *m); /* base NULL: count */
/* Floats from row to row of a buffer, on either side: what matrices of floats multiply by is padded. */
size_t ntx__buf_ld(const struct ntx_model *m, uint8_t buf);
/* Which forms of activations (bit per enum ntx_act) these matrices multiply by. */
uint32_t ntx__forms(const struct ntx_weight *const *w, unsigned n);

/* ---- forward_mm.c */
/* What all threads of the pool do of a step that multiplies. */
struct ntx__mm {
    struct ntx_forward *f;
    const struct ntx__product *products;
    unsigned n;
    const struct ntx__input *in;
    const uint8_t *where; /* [chunks] enum ntx__where: those in place only; NULL: all */
    uint64_t bytes;       /* of these chunks */
};
enum ntx__where { NTX__ON_DEVICE, NTX__IN_PLACE, NTX__COPIED };
/* In turn (ntx__turn); the chunks' tiles are made ready. */
int ntx__mm_begin(struct ntx__mm *j);
void ntx__mm_walk(const struct ntx__mm *j, unsigned thread); /* an error: f->failed */
void ntx__fail(struct ntx_forward *f, int rc);               /* by any thread: the first counts */
/* By the CPU, the host's buffers. The chunks of all products are walked in the given order, without a barrier between.
 * 0 or the first thread's error. */
int ntx__cpu_multiply(struct ntx_forward *f, const struct ntx__product *p, unsigned n, const struct ntx__input *in);
/* Quantised rows of a product's input, by its type. */
static inline size_t ntx__stride(const struct ntx_forward *f, uint8_t buf, enum ntx_act form, uint32_t n)
{
    return form == NTX_ACT_F32 ? f->buf[buf].ld * sizeof(float) : ntx_act_row_bytes(form, n);
}
/* Quantises row i of x [n values] into the forms of a mask: in m.quantized, or elsewhere. */
void ntx__quantize(struct ntx_forward *f, uint32_t forms, const float *x, uint32_t n, uint32_t i);
void ntx__quantize_into(struct ntx_forward *f, void *const *quantized, uint32_t forms, const float *x, uint32_t n,
                        uint32_t i);
/* fn for each i in 0..n-1, in any order by any thread. */
typedef void ntx__item_fn(struct ntx_forward *f, uint32_t i, unsigned thread);
void ntx__each(struct ntx_forward *f, ntx__item_fn *fn, uint32_t n);
/* A vector that lies in one chunk: *v is NULL where the model has none. Give back in the order taken. */
int ntx__take(struct ntx_forward *f, const struct ntx_weight *w, const float **v);
void ntx__give(struct ntx_forward *f, const struct ntx_weight *w);

/* The vectors of a run's steps, into f->vec. */
int ntx__take_run(struct ntx_forward *f, const struct ntx__run *r);
void ntx__give_run(struct ntx_forward *f, const struct ntx__run *r);
/* These chunks are about to be taken, or passed over: 0, or -EPROTO where it is not their turn, with the names of both
 * tensors. Who takes chunks in another way than by ntx__mm_begin asks. */
int ntx__turn(struct ntx_forward *f, uint32_t chunk, uint32_t n);
int ntx__skip_chunks(struct ntx_forward *f, uint32_t first, uint32_t end);
/* The one way to a chunk's bytes, of any thread and back end: -EPROTO likewise where its turn has not been taken. */
int ntx__acquire(struct ntx_forward *f, uint32_t chunk, const void **bytes);

/* ---- forward_path.c */
int ntx__check_path(const struct ntx_row *r); /* 0 or -EINVAL */
bool ntx__in_place(const struct ntx_row *r);  /* all that it sees lies at its position */
/* a->k, ->v and ->hole, for a row that is not: the blocks of its path become copies in the lane. */
void ntx__attend_path(const struct ntx_forward *f, const struct ntx_row *r, uint32_t kv_head, struct ntx__lane *lane,
                      struct ntx_attn *a);
int ntx__cpu_move(struct ntx_forward *f, struct ntx_kv_seq *kv, const uint32_t *from, const uint32_t *to, uint32_t n);

/* ---- forward_delta.c */
struct ntx__turn { /* rows of one session */
    struct ntx_kv_seq *kv;
    const uint32_t *row; /* [n] of the batch, ascending */
    uint32_t n;
};
struct ntx__turn ntx__turn_of(const struct ntx_forward *f, uint32_t i);
int ntx__recur_begin(struct ntx_forward *f); /* of a pass: -EINVAL: a row is not where its session's state stands */
void ntx__recur_end(struct ntx_forward *f);  /* what the pass made of the states counts */

/* ---- forward_steps.c */
void ntx__watch_begin(struct ntx_forward *f);
int ntx__watch_run(struct ntx_forward *f, const struct ntx__run *r); /* of f->layer, when it is over */
void ntx__watch_embedded(struct ntx_forward *f);
void ntx__watch_logits(struct ntx_forward *f);

/* ---- forward_runs.c */
struct ntx__runs *ntx__runs_of(const struct ntx_model *m,
                               const struct ntx_chunks *c); /* malloc'd [n_layers], or NULL */

/* ---- forward.c */
bool ntx__skips(const struct ntx_forward *f, uint32_t row, uint32_t layer); /* of the batch, as far as it is decided */
void ntx__choose_rows(struct ntx_forward *f);                               /* of f->layer: m.live, n_live, n_kv_only */
bool ntx__asked(const struct ntx_forward *f,
                uint32_t row); /* of the batch: somebody wants what comes of the last layer; else it leaves K and V, or
                                  the state, in it and goes no further */
bool ntx__last_idle(const struct ntx_forward *f); /* no row does more in the last layer, as far as it is decided */
static inline bool ntx__is_last(const struct ntx_forward *f, uint32_t layer) { return layer + 1 == f->hp->n_layers; }
/* A buffer's rows are the batch's, not the layer's. */
static inline bool ntx__by_batch(uint8_t buf)
{
    return buf == NTX_BUF_H || buf == NTX_BUF_INPUTS || buf == NTX_BUF_STREAMS;
}
/* Of a buffer of the layer, a row of the batch. */
static inline float *ntx__of_batch(const struct ntx_forward *f, uint8_t buf, uint32_t row)
{
    return f->buf[buf].at + (ntx__by_batch(buf) ? row : f->m.place[row]) * f->buf[buf].ld;
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

/* A step's products by one buffer, for all live rows, each exactly. */
static inline int ntx__multiply(struct ntx_forward *f, const struct ntx__product *p, unsigned n, uint8_t buf)
{
    return f->back->multiply(f, p, n, &(struct ntx__input){.buf = buf, .set = NTX__OF_LAYER, .n_rows = f->n_live});
}
void ntx__activate(const struct ntx_forward *f, const struct ntx_activation *by, float *gate, float *up, uint32_t n,
                   float *out); /* of n gates and ups, which are limited in place */
int ntx__fetch(struct ntx_forward *f, uint8_t buf, uint32_t row0, uint32_t n); /* floats */
int ntx__settle_chunks(struct ntx_forward *f);
static inline bool ntx__has(const struct ntx_forward *f, uint32_t chunk)
{
    return f->back->has && f->back->has(f, chunk);
}

/* ---- moe.c, moe_predict.c */
void ntx__moe_scores(const struct ntx_forward *f, const struct ntx_router *r,
                     float *p); /* of logits [n_expert] in place, the vector router_bias added */
void ntx__moe_leave_groups(
    const struct ntx_router *r, float *p, const float *more,
    uint32_t n); /* scores p [n], with `more` (or NULL) added: of groups that are not chosen they become -1 */
int ntx__moe_begin(struct ntx_forward *f); /* of a pass: what layer 0 wants where that follows from tokens */
bool ntx__moe_predicted(
    const struct ntx_forward *f);            /* what the next layer wants is guessed, from this layer's state */
int ntx__moe_predict(struct ntx_forward *f); /* what the next layer will probably want; between the choices of this one
                                                and the last of its products */
bool ntx__moe_held(const struct ntx_forward *f,
                   uint32_t layer); /* by the back end: a layer's experts all are, or none */

/* ---- router_lookahead.c */
bool ntx__find_lookahead(
    const struct ntx_model *m, uint32_t layer,
    struct ntx__lookahead *lookahead); /* from its experts to the router behind it; false: there is none */
uint32_t ntx__lookahead_buffers(const struct ntx_model *m); /* of all layers */
bool ntx__lookahead_open(const struct ntx_forward *f,
                         const struct ntx__lookahead *lookahead); /* all that its steps take is in memory */
/* Goes it, from f->layer on, with these rows of the batch, some at a time; arrived(f, row, i): rows[row] is row i of
 * m.moe.way[NTX_BUF_X], as it goes into the router. */
int ntx__run_lookahead(struct ntx_forward *f, const struct ntx__lookahead *lookahead, const uint32_t *rows, uint32_t n,
                       ntx__item_fn *arrived);

/* ---- mla.c: of query heads [head, head + a->n_q) of live rows [row, row + a->n_rows) */
void ntx__mla_begin(struct ntx_forward *f, const struct ntx__lane *lane, uint32_t row, uint32_t head,
                    struct ntx_attn *a); /* a's q, out and widths become the latents' */
void ntx__mla_end(struct ntx_forward *f, const struct ntx__lane *lane, uint32_t row, uint32_t head,
                  const struct ntx_attn *a);

/* ---- index_topk.c */
bool ntx__has_topk(const struct ntx_forward *f, uint32_t row); /* of the batch */
uint16_t *ntx__index_kept(const struct ntx_forward *f, const struct ntx_row *r,
                          uint32_t slot); /* what the position is chosen by */
int ntx__ask_topk(struct ntx_forward *f); /* before an ATTEND: where K lie in a file, what its rows read is there.
                                             Negative errno: it cannot be read */
void ntx__attend_topk(const struct ntx_forward *f, uint32_t row, uint32_t kv_head, const struct ntx__lane *lane,
                      struct ntx_attn *a); /* a's K is that of the positions that it has chosen */

/* ---- grams.c */
/* What follows from tokens lies behind the layer's fold (model/state.h); NULL: nothing yet. */
static inline float *ntx__grams_in(const struct ntx_forward *f, const float *fold)
{
    return fold ? (float *)fold + ntx_fold_floats(f->hp) : NULL;
}
int ntx__grams_ask(struct ntx_forward *f);  /* of all rows of the pass, when it begins */
int ntx__grams_more(struct ntx_forward *f); /* between steps: what has come makes room for more */
void ntx__grams_keep(
    struct ntx_forward *f,
    const struct ntx_step *s); /* before its convolution: m.gram_taps, and each session's last tokens; */
void ntx__grams_keep_tokens(struct ntx_forward *f); /* or these alone */

/* ---- forward_pool.c */
/* The places' rows of a step that pools, as floats, where any row does: m.places. */
void ntx__find_places(struct ntx_forward *f, const struct ntx_step *s, uint32_t every);
struct ntx__pool_source { /* what is pooled: of a position */
    const float *value, *weight, *place;
};
enum { NTX__POOL_CHANNELS = 256 };
/* out[c] = the sum of values by the softmax of weight + place, of channels [first, first + n), NTX__POOL_CHANNELS at
 * most. */
void ntx__pool_channels(const struct ntx_cpu_ops *ops, const struct ntx__pool_source *of, uint32_t n_of, uint32_t first,
                        uint32_t n, float *out);
uint8_t *ntx__pooled(const struct ntx_forward *f, const struct ntx_kv_seq *kv, uint32_t number, uint32_t every,
                     bool key); /* K or key of f->layer, by its number */
void ntx__attend_pooled(const struct ntx_forward *f, const struct ntx_step *s, uint32_t row,
                        const struct ntx__lane *lane,
                        struct ntx_attn *a); /* a's K is all that the row of the batch sees */

/* ---- lora.c: PLUS */
int ntx__cpu_low(struct ntx_forward *f, const struct ntx_step *s, uint32_t n, uint32_t forms);
int ntx__cpu_lora(struct ntx_forward *f, const struct ntx_step *s, uint32_t n);
/* What the step adds is the row's of the layer, too. */
static inline bool ntx__adds_to(const struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    return !s->adapter || f->b->rows[f->m.live[i]].adapter == s->adapter;
}

/* ---- forward_cpu.c */
void ntx__cpu_row(struct ntx_forward *f, const struct ntx_step *s,
                  uint32_t i); /* a step of those that are done row by row, of row i of the layer */
void ntx__put_own(struct ntx_forward *f,
                  const struct ntx_step *s); /* PUT of the heads that this machine has, of all rows of the layer */
void ntx__attend_own(struct ntx_forward *f); /* ATTEND of its heads, f->run being it, with its vectors in f->vec */
void ntx__attended(struct ntx_forward *f);   /* what it gave is there, of all heads: its forms for what comes next */
void ntx__hadamard(float *x, uint32_t heads, uint32_t width);

/* ---- cpu_experts.c: as struct ntx_backend says */
int ntx__cpu_glu(struct ntx_forward *f, const struct ntx__glu *g);
void ntx__hidden(const struct ntx_forward *f, const struct ntx__glu *g, uint32_t i, uint32_t at,
                 uint32_t n); /* a GLU's values [at, at + n) of row i, no bias being added */
int ntx__cpu_combine(struct ntx_forward *f);
void ntx__so_far(struct ntx_forward *f, uint32_t i,
                 float *y); /* y [n_embd]: what is known of row i's Y (f->moe.some) */
float ntx__routed_weight(const struct ntx_forward *f, uint32_t i); /* by which choice i of the wave is added to Y */
float ntx__shared_weight(const struct ntx_forward *f,
                         uint32_t i); /* by which what the shared expert gives for live row i is multiplied */
int ntx__cpu_gather(struct ntx_forward *f);
int ntx__cpu_combine(struct ntx_forward *f);

/* ---- sparse_host.c */
int ntx__host_groups(struct ntx_forward *f, bool all,
                     uint32_t n); /* as ntx_backend.groups, by the CPU: from x and, unless it is in the groups, gate */

/* ---- sparse_choose.c */
enum ntx_ffn_act ntx__packed_act(const struct ntx_forward *f, uint32_t layer);
void ntx__magnitudes(const struct ntx_forward *f, const float *gate,
                     float *m); /* |act(gate)| [n_ff]; NaN counts as more than any number */
/* Zeroes what rows do not use of their gates [n_live x ld_gate] in layer l; list [n_groups]: groups that any row uses.
 * Returns how many. */
uint32_t ntx__choose_groups(struct ntx_forward *f, uint32_t l, float *gate, uint32_t *list);

/* ---- sparse_predict.c */
void ntx__begin_groups(struct ntx_forward *f); /* of a pass */
int ntx__gates(
    struct ntx_forward *f); /* this layer's gate matrix, for the live rows; and what was left of the prediction */
const uint8_t *ntx__groups_of(
    const struct ntx_forward *f, uint32_t row,
    uint32_t layer); /* [n_groups] 1: used by that row of the batch; NULL: all, or as its gates say */
uint32_t ntx__join_groups(struct ntx_forward *f,
                          uint32_t *list); /* of this layer, that any live row uses; returns how many */
/* Which groups rows will use of a layer, once per layer: between the choices of the layer before and its products, or
 * before the layer where there was none. */
int ntx__predict_groups(struct ntx_forward *f, uint32_t layer);
bool ntx__watches_groups(const struct ntx_forward *f);
void ntx__watch_groups(struct ntx_forward *f); /* this layer's hidden values, in m.gate on the host, of rows that are
                                                  looked at or add them to a set */

/* ---- sparse_prefetch.c */
bool ntx__gate_there(
    const struct ntx_forward *f,
    uint32_t layer); /* its norm and its gate matrix are in memory: they can be used before their turn */
/* Its gate matrix times rows in m.groups.x and .quantized, into m.groups.gate. */
int ntx__gates_early(struct ntx_forward *f, uint32_t layer, uint32_t n_rows);
int ntx__prefetch_groups(
    struct ntx_forward *f); /* of the next layer; between the choices of this one and its products */

/* ---- forward_finite.c: 0, or -EDOM with the pass failed and its words in f->error. What has been looked at once is
 * not looked at again. */
int ntx__finite_outs(struct ntx_forward *f, uint32_t chunk, const void *bytes, uint32_t out,
                     uint32_t n);                             /* outputs [out, out + n) of a chunk, at bytes */
void ntx__finite_done(struct ntx_forward *f, uint32_t chunk); /* all its rows have been */
int ntx__finite_group(struct ntx_forward *f, uint32_t chunk, const void *bytes,
                      uint32_t group); /* of a packed chunk; the engine thread */
int ntx__finite_token(struct ntx_forward *f, const struct ntx_weight *w, const void *entry,
                      int32_t token); /* an entry of a table that tokens look up */

#endif
