/* SPDX-License-Identifier: Apache-2.0 */
/* layer.h: a layer is data: a short list of steps, made once when a model is opened, by its architecture (arch/). A
 * layer may differ from the next in any of them.
 *
 * A step names its operation, the buffers of the pass that it reads and writes, and the weights that it takes. Weights
 * are taken in the order of the steps, and within a step in the order of its list: this is the order of the chunks
 * (chunk.h), so that they can be prefetched. Each step finishes before the next begins, as far as anybody can tell.
 *
 *   operation   out                                      in          weights
 *   NORM        RMS norm of `heads` runs of `width`, times `scale` where that is not 0; in place from value `offset` on
 *               any scale [width], `each`: [heads x width]; none: 1
 *   MM          W in, from value `offset` of out on      any         W
 *   BIAS        out += b                                 -           b
 *   ROPE        of `heads` runs of `width` values `rotated` are turned by the row's position, in place, from `offset`
 *               on
 *   PUT         K and V of the row's position into the layer's state K, V (or K alone, where V is a part of it);
 *               `keys`: what it is chosen by
 *   ATTEND      attention over the state, of `window` positions (0: all), none of them before the row's own `stretch`
 *               of so many (0: there are none); scores
 *               are multiplied by the row's temperature; `chosen`: of the positions that the row has chosen Q sinks;
 *                 latent: the matrices of each head
 *   GLU         act(in[0]) * in[1]                       gate, up
 *   SPLIT       `heads` runs of twice `width` become two of `width`: the first stays, in place, the other goes to in[1]
 *   GATE        out *= sigmoid(in[1]), `width` values; of `heads` parts each by one value, where they are by head -,
 *               gate
 *   CONV        each of `width` channels: silu of the sum of its last `taps` inputs, weighed; the inputs before the row
 *               are the layer's state
 *                                                        any weights of each channel, the latest last; of several lists
 *                                                          each is of as many channels; `apart`: inputs so many
 *                                                          positions apart (computed/pass/grams.c)
 *   UNIT        `heads` runs of `width` are divided by their length, in place; `eps` is added to its square (0: the
 *               model's)
 *   RATES       out = e^(a softplus(out + dt)), or, where there is a `bound`, e^(bound sigmoid(-a (out + dt))), `width`
 *               values of `heads` heads, in[1] = sigmoid(in[1]): what a row's heads keep, and what they take in dt, a
 *               of each head
 *   DELTA       gated delta net, `heads` of `width` over `key_heads`: the layer's state S of a head, its row's rates g
 *               and b, and q, k and v of in[0]:
 *               S = g S; S += k (x) b (v - S'k); out = S'q / root(width); `by_key`: g has a value for each key of a
 *                 head, so for each row of S Q, b; g is A
 *   ADD         out += in                                any
 *   SCALE       out = in from value `from` on * `scale`, or * its weight      any         one value
 *   LAYERNORM   of one run of `width`: less their mean, by the root of their variance + `eps` (0: 1e-6), times the one
 *               weight, and the other added, in place scale, bias
 *   HADAMARD    `heads` runs of `width`, by pieces of the largest power of 2 that divides them: the orthonormal
 *               Walsh-Hadamard transform, in place
 *   INDEX_TOPK      which `most` positions each row's attention reads, of this layer and of those after it that do not
 *                   choose (computed/pass/index_topk.c): from the
 *               `heads` queries of `width` in Z and their weights in A, and the keys that are the layer's V; `keys`: of
 *                 `every` positions one, the sum of theirs by the softmax of what
 *               they weigh, which lies behind a key, and of their places: positions are chosen together, `most` times
 *                 so many, and those behind the last are read in any case; or, `mean`, their
 *               mean, normed and rotated by the first position Z, A (none: all weigh the same) places, or scale [width]
 *   STREAMS     `heads` copies of `width` values
 *   MIXW        what `heads` streams weigh, in place, of `width` values x, their scales and their bases: e +
 *               sigmoid(scale x + base) for MIX; and where there are more than `heads`
 *               of them, `scale` times such a sigmoid for SPREAD, and a matrix by `rounds` of Sinkhorn's; rounds 0: e +
 *                 `scale` times it, and no matrix (computed/pass/hyper_connections.c) scales, bases
 *   MIX         of `heads` streams of `width` values: the sum of what they weigh, or their mean STREAMS, MIX or none
 *   SPREAD      each stream becomes what the matrix makes of all of them, and in, weighed; `each`: it stays, and in is
 *               added to it, weighed; `scale`: it gets in, weighed by 2 sigmoid(scale x) any, MIX
 *   POOL        behind each `every` positions, one more K of the layer, of the last `spans` x `every`: values, by the
 *               softmax of their weights and their places', normed, and rotated by the
 *               first position of the last `every` (computed/pass/forward_pool.c) values, weights place [spans x
 *                 width], scale [width]
 *   MAP         out = act(in * `scale`)                  any
 *   GRAMS       the entries of a table that follow from the row's last tokens (computed/pass/grams.c), one behind the
 *               other
 *   DOTGATE     of `heads` streams of `width`: with s = `scale` (out . in[0]), out = sigmoid(sign(s) root(max(|s|,
 *               1e-6))) in[1] a stream, one value for all
 *   INPUTS      out = (out + the token's entry of the model's table * `scale`) / sqrt(2): what each layer gets of the
 *               token
 *   ROUTE       which experts each row takes, and their shares X router, its bias, what is added for the choice alone
 *   EXPERTS     their sum, and that of the expert that every row goes through X biases, the shared one's gate (or it
 *               has none), experts
 *   PLUS        out += `scale` * W in, of in from value `from` on; without a weight `scale` * in, of `width` values
 *               (layer_delta.h) any W
 *   GROUPS      a packed FFN (pack.h) X gate matrix (or it is in the groups), groups
 *
 * What a layer keeps from token to token is of three kinds: rows, an entry for each position (PUT:
 * computed/state/kv.h); a tail, the last inputs (CONV); and a fold, into which every token is folded (DELTA:
 * computed/state/recur.h). Rows can be taken back by their positions, the others only to where they were kept.
 *
 * A row that skips a layer may leave its K and V in it all the same: it goes through those steps only that feed the
 * state. So does a row of which nobody wants anything in the last layer (computed/pass/forward.c). */
#ifndef NTX_MODEL_LAYER_H
#define NTX_MODEL_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ffn_act.h"
#include "model/tensors.h"

#define NTX_NO_TENSOR    UINT32_MAX
#define NTX_STEP_WEIGHTS 10
#define NTX_LAYER_STEPS  96
#define NTX_STREAMS      4 /* residual ones, where there are several */

/* The table of operations, whose meanings stand above. An entry has
 *   a name, and the symbol that the functions which do it end in;
 *   who does it:   ROWS: ntx__row_X of each row, one by one, with neighbours that are done so, too; PASS: the pass, by
 *                  a back end's primitives: ntx__run_X; BACK: each
 *                  back end by itself: ntx__cpu_X, ntx__device_X;
 *   how many values it writes into a row of `out`: ONE: `width`; HEADS: `heads` x `width`; MATRIX: as many as its
 *     weight has outputs (or `width`); STATE: of a residual stream;
 *   what else is true of it (enum ntx_does);
 *   what a device does of it (cuda/step.h): NO: nothing, so that models with it are the CPU's; VALUES, of HEADS, PAIRS:
 *     step_X for each value that is written, of each head, for each pair of
 *                  these; RUNS: step_X of a head's values by a block of threads; ROW: of a whole row by one; WARP: by a
 *                    warp; OWN: the back end's function, or the pass, by primitives.
 * A new operation is an entry here, its numbers in struct ntx_step, and a file with its functions. */
/* clang-format off */
#define NTX_OPS(X) \
    X(NORM,      norm,      ROWS, HEADS,  NTX_DOES_AT | NTX_DOES_WEIGHTS,                       RUNS) \
    X(MM,        mm,        PASS, MATRIX, NTX_DOES_AT | NTX_DOES_WEIGHTS | NTX_DOES_JOIN_INPUT, OWN) \
    X(BIAS,      bias,      ROWS, ONE,    NTX_DOES_WEIGHTS,                                     VALUES) \
    X(ROPE,      rope,      ROWS, HEADS,  0,                                                    PAIRS) \
    X(PUT,       put,       ROWS, ONE,    NTX_DOES_FEED,                                        OWN) \
    X(ATTEND,    attend,    BACK, ONE,    NTX_DOES_READ_KV | NTX_DOES_LEAVE | NTX_DOES_WITHIN,  OWN) \
    X(GLU,       glu,       ROWS, ONE,    0,                                                    VALUES) \
    X(ADD,       add,       ROWS, ONE,    0,                                                    VALUES) \
    X(ROUTE,     route,     PASS, ONE,    0,                                                    OWN) \
    X(EXPERTS,   experts,   PASS, STATE,  0,                                                    OWN) \
    X(GROUPS,    groups,    PASS, STATE,  0,                                                    OWN) \
    X(SPLIT,     split,     ROWS, HEADS,  NTX_DOES_BOTH,                                        ROW) \
    X(GATE,      gate,      ROWS, ONE,    0,                                                    VALUES) \
    X(CONV,      conv,      BACK, ONE,    NTX_DOES_FEED,                                        OWN) \
    X(UNIT,      unit,      ROWS, HEADS,  0,                                                    RUNS) \
    X(RATES,     rates,     ROWS, ONE,    0,                                                    VALUES) \
    X(DELTA,     delta,     BACK, HEADS,  NTX_DOES_FEED,                                        OWN) \
    X(SCALE,     scale,     ROWS, ONE,    NTX_DOES_WEIGHTS,                                     VALUES) \
    X(INPUTS,    inputs,    ROWS, ONE,    0,                                                    VALUES) \
    X(LAYERNORM, layernorm, ROWS, ONE,    0,                                                    ROW) \
    X(HADAMARD,  hadamard,  ROWS, HEADS,  0,                                                    RUNS) \
    X(INDEX_TOPK,    index_topk,    BACK, ONE,    NTX_DOES_READ_KV,                                     OWN) \
    X(STREAMS,   streams,   ROWS, HEADS,  0,                                                    HEADS) \
    X(MIXW,      mixw,      ROWS, ONE,    0,                                                    WARP) \
    X(MIX,       mix,       ROWS, ONE,    0,                                                    VALUES) \
    X(SPREAD,    spread,    ROWS, HEADS,  0,                                                    VALUES) \
    X(POOL,      pool,      BACK, ONE,    NTX_DOES_FEED | NTX_DOES_READ_KV,                     OWN) \
    X(MAP,       map,       ROWS, ONE,    0,                                                    VALUES) \
    X(GRAMS,     grams,     BACK, ONE,    NTX_DOES_LEAVE,                                       OWN) \
    X(DOTGATE,   dotgate,   ROWS, HEADS,  0,                                                    RUNS) \
    X(LORA,      lora,      PASS, ONE,    NTX_DOES_JOIN | NTX_DOES_WITHIN,                      VALUES)
/* clang-format on */

enum ntx_op {
#define X(name, symbol, by, width, does, device) NTX_OP_##name,
    NTX_OPS(X)
#undef X
        NTX_N_OPS
};

enum ntx_by { NTX_BY_ROWS, NTX_BY_PASS, NTX_BY_BACK };
enum ntx_writes { NTX_WRITES_ONE, NTX_WRITES_HEADS, NTX_WRITES_MATRIX, NTX_WRITES_STATE };
enum ntx_does {
    NTX_DOES_AT = 1,          /* what it writes begins at value `offset` of the row */
    NTX_DOES_WEIGHTS = 2,     /* without its weights there is nothing to it */
    NTX_DOES_FEED = 4,        /* what it takes goes into the layer's state */
    NTX_DOES_BOTH = 8,        /* it writes in[1], too */
    NTX_DOES_READ_KV = 16,    /* the layer's K and V, or what is beside them: those in a file have come before */
    NTX_DOES_LEAVE = 32,      /* forms for products that follow, as all of ROWS do */
    NTX_DOES_WITHIN = 64,     /* its matrices are multiplied by what comes of its input on the way */
    NTX_DOES_JOIN = 128,      /* neighbours go together, as all of ROWS do; */
    NTX_DOES_JOIN_INPUT = 256 /* those of the same input do */
};
enum ntx_on_device {
    NTX_ON_DEVICE_NO,
    NTX_ON_DEVICE_VALUES,
    NTX_ON_DEVICE_HEADS,
    NTX_ON_DEVICE_PAIRS,
    NTX_ON_DEVICE_RUNS,
    NTX_ON_DEVICE_ROW,
    NTX_ON_DEVICE_WARP,
    NTX_ON_DEVICE_OWN
};

struct ntx_op_kind {
    const char *name;
    uint8_t by, writes; /* enum ntx_by, ntx_writes */
    uint8_t device;     /* enum ntx_on_device */
    uint16_t does;      /* enum ntx_does */
};
extern const struct ntx_op_kind ntx_op_kinds[NTX_N_OPS + 1]; /* behind them: what is none of them, which nobody does */

enum ntx_rope_kind { NTX_ROPE_NORM /* adjacent pairs */, NTX_ROPE_NEOX /* halves */ };

/* Which of the model's tables of angles a ROPE step turns by. */
enum ntx_rotation { NTX_TURN_ALL, NTX_TURN_WINDOW /* of layers with a window, where they differ */, NTX_N_TURNS };

/* From a router's logits to shares: scores, of which the largest are chosen; those chosen are divided by their sum, or
 * not, and multiplied by a scale. */
enum ntx_score { NTX_SCORE_SOFTMAX, NTX_SCORE_SIGMOID, NTX_SCORE_SQRT_SOFTPLUS };
#define NTX_LEAST_WEIGHTS 0x1p-14f /* the least normal half: a smaller sum of weights is taken as that */
struct ntx_router {
    uint8_t score; /* enum ntx_score */
    bool norm;
    bool expert_groups_by_best; /* a group is worth its largest score, not the sum of its two largest */
    float scale;
    uint32_t n_expert_groups, expert_groups_used; /* experts are in so many groups, as long as one another: a row's are
                                                     out of those that are worth most (expert_groups_by_best);
                                                     n_expert_groups 0: there are none */
};

/* How an FFN's hidden values come of gates and ups. */
struct ntx_activation {
    float limit, gate_limit; /* of ups both ways, and of gates; 0: none */
    uint8_t act;             /* enum ntx_ffn_act */
};

/* Of a row's scores, by its position: 1 + scale ln(1 + floor((position + ahead) / length)); length 0: always 1. */
struct ntx_temperature {
    float scale;
    uint32_t length, ahead;
};

/* Rows of a pass. H is the residual stream, STREAMS are where there are several, INPUTS what all layers get of the
 * token; the others last from one step to a later one of the layer. */
enum ntx_buf {
    NTX_BUF_NONE,
    NTX_BUF_H,
    NTX_BUF_X,
    NTX_BUF_Q_LOW /* what q is made of */,
    NTX_BUF_Q,
    NTX_BUF_K,
    NTX_BUF_V,
    NTX_BUF_ATTN,
    NTX_BUF_GATE,
    NTX_BUF_UP,
    NTX_BUF_Y,
    NTX_BUF_Z,
    NTX_BUF_A,
    NTX_BUF_BESIDE,
    NTX_BUF_INPUTS,
    NTX_BUF_STREAMS /* residual ones, of which H is then made */,
    NTX_BUF_MIX,
    NTX_BUF_POOL,
    NTX_BUF_POOL_GATE,
    NTX_BUF_KEYS,
    NTX_BUF_KEYS_GATE,
    NTX_BUF_NORMED,
    NTX_BUF_LOW /* what is added to outputs is made of */,
    NTX_BUF_LORA,
    NTX_BUF_GATES /* streams, normed, and what is multiplied by them; of a next-token block: the token's row, and behind
                     it the state that comes with it */
    ,
    NTX_N_BUFS
};

/* ---- numbers that one operation alone reads, by operation; 0 or false unless the architecture sets them */

struct ntx_norm_step {
    bool each; /* every run has its own scale: the weight is [heads x width], else [width] */
};
struct ntx_mm_step {
    uint32_t parts; /* block-diagonal matrix: each of so many equal parts of the input makes as many of the outputs; 0:
                       one full matrix */
};
struct ntx_rope_step {
    uint32_t rotated; /* values rotated in each head, from `offset` on */
    uint8_t pairs;    /* enum ntx_rope_kind */
    uint8_t angles;   /* enum ntx_rotation: the table of angles */
    bool back;        /* rotate by the negative angle */
};
struct ntx_put_step {
    bool keys; /* in[0] is the indexer's key, not K */
};
struct ntx_attend_step {
    uint32_t window; /* positions that a row sees, its own included; 0: all */
    uint32_t chunk;  /* chunked attention: a row sees its own chunk of so many positions alone; 0: no chunks */
    uint32_t every;  /* positions that one pooled K stands for, which are read beside the window; 0: none */
    float cap;       /* soft cap: a score s becomes cap * tanh(s / cap); 0: none */
    struct ntx_temperature temperature;
    bool mla;  /* K and V are made from MLA latents (computed/pass/mla.c) */
    bool topk; /* only positions that INDEX_TOPK chose */
};
struct ntx_glu_step {
    struct ntx_activation hidden;
};
struct ntx_gate_step {
    bool by_head; /* one gate value for each of `heads` heads, else one for each of `width` values */
};
struct ntx_conv_step {
    uint32_t taps;     /* inputs of one output, the row's own included */
    uint32_t dilation; /* positions from one tap to the next, for n-gram layers; 0: 1, for delta nets */
};
struct ntx_unit_step {
    float eps; /* added to the square of the length; 0: the model's */
};
struct ntx_layernorm_step {
    float eps; /* added to the variance; 0: 1e-6 */
};
struct ntx_rates_step {
    float bound; /* lower bound of the logarithm of the decay; 0: none */
};
struct ntx_delta_step {
    uint32_t key_heads;
    bool tiled;  /* head h has key head h % key_heads, else h / (heads / key_heads) */
    bool by_key; /* the decay has one value for each key channel (KDA), else one for each head */
};
struct ntx_index_topk_step {
    uint32_t most;  /* positions that a row's attention reads, or blocks of `every` of them */
    uint32_t every; /* positions that share one key; 0: each has its own */
    bool keys;      /* this step makes the shared keys; else POOL made them */
    bool mean;      /* with `keys`: by the mean of the positions' keys, else by a softmax of their weights */
};
struct ntx_pool_step {
    struct ntx_rope_step rope;
    uint32_t every; /* positions between two pooled K */
    uint32_t spans; /* a pooled K is made of the last `spans` x `every` positions */
    bool keys;      /* it is the indexer's key, not K */
};
struct ntx_mixw_step {
    uint32_t rounds; /* of Sinkhorn's normalisation; 0: there is no matrix */
    float eps;
};
struct ntx_spread_step {
    bool each; /* a stream stays itself and gets the weighted input, else streams are mixed by the matrix */
};
struct ntx_experts_step {
    struct ntx_activation hidden; /* of routed experts */
    struct ntx_activation shared; /* of the shared expert */
    bool weighs_input;            /* shares multiply an expert's input, else its output */
};
struct ntx_groups_step {
    struct ntx_activation hidden;
};

struct ntx_step {
    uint8_t op;         /* enum ntx_op */
    uint8_t in[2], out; /* enum ntx_buf */
    bool feeds;         /* its output goes into the layer's state (set by ntx_layer_done) */
    uint8_t n_weights;
    uint16_t weight[NTX_STEP_WEIGHTS]; /* enum ntx_tensor */
    uint16_t maybe;        /* bit i: weight i is optional; ntx_layer_done drops absent ones, and then clears this */
    uint8_t adapter;       /* LORA: number of the adapter, for rows that use it; 0: for all rows */
    uint8_t part;          /* ADD to H: 1 is the layer's first, ... (set by ntx_layer_done) */
    uint32_t heads, width; /* runs of a row, and values of a run; operations without heads: values of a row */
    uint32_t offset;       /* first value of a row that is written; ROPE, POOL: first rotated value of a run */
    uint32_t from;         /* first value of a row that is read: GLU (of in[1]), SCALE, LORA */
    float scale;           /* factor; the operations above say of what; NORM, SPREAD: 0 is none */
    union {                /* only the operation's own member may be read */
        struct ntx_norm_step norm;
        struct ntx_mm_step mm;
        struct ntx_rope_step rope;
        struct ntx_put_step put;
        struct ntx_attend_step attend;
        struct ntx_glu_step glu;
        struct ntx_gate_step gate;
        struct ntx_conv_step conv;
        struct ntx_unit_step unit;
        struct ntx_layernorm_step layernorm;
        struct ntx_rates_step rates;
        struct ntx_delta_step delta;
        struct ntx_index_topk_step index_topk;
        struct ntx_pool_step pool;
        struct ntx_mixw_step mixw;
        struct ntx_spread_step spread;
        struct ntx_router route;
        struct ntx_experts_step experts;
        struct ntx_groups_step groups;
    };
};

struct ntx_layer {
    union { /* indices in the GGUF, NTX_NO_TENSOR where the layer has none */
        uint32_t tensor[NTX_N_TENSORS];
        struct {
#define X(field, name, in, out, use) uint32_t field;
            NTX_LAYER_TENSORS(X)
#undef X
        };
    };
    uint32_t scale[NTX_N_TENSORS]; /* of these matrices (ntx_is_scalable), as `tensor` */
    uint32_t n_steps;
    struct ntx_step step[NTX_LAYER_STEPS];
};

/* "MM": for messages. */
const char *ntx_op_name(enum ntx_op op);

/* Appends a step, to be filled in. */
struct ntx_step *ntx_layer_add(struct ntx_layer *l, enum ntx_op op, enum ntx_buf out, enum ntx_buf in);
/* One more weight of a step. */
void ntx_step_takes(struct ntx_step *s, enum ntx_tensor t, bool maybe);
/* All is there: takes out what the layer has not, and finds the steps that feed its state. */
void ntx_layer_done(struct ntx_layer *l);

/* The first step of a kind, or NULL. */
const struct ntx_step *ntx_layer_find(const struct ntx_layer *l, enum ntx_op op);

#endif
