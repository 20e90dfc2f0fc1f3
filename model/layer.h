/* SPDX-License-Identifier: Apache-2.0 */
/* layer.h: a layer is data, not code: a short list of steps, made once by its architecture (arch/) when a model is
 * opened. Layers of one model may differ.
 *
 * A step is one operation with its numbers. It reads and writes buffers (enum ntx_buf), which have one row of floats
 * for each row of the batch, and it takes weights (enum ntx_tensor). Steps run in their order, each as if the one
 * before it had finished. Weights are used in the order of the steps, and within a step in the order of its list; the
 * chunks (chunk.h) have the same order, so that they can be prefetched.
 *
 * The table shows what each operation does with one row. out, in[0] and in[1] are buffers; `names` are fields of struct
 * ntx_step, or of the operation's own struct in it. "In place" means that out is read, too. A run is one of `heads`
 * pieces of `width` values. Weights in [] are optional.
 *
 *   operation   effect                                                        weights
 *   NORM        out = RMS norm of each run of in[0], times `scale` if it is   [scale: width, or heads x width (`each`)]
 *               not 0; both from value `offset` on
 *   MM          out = W in[0], stored from value `offset` on                  W
 *   BIAS        out += b, from value `from` of b on                           b
 *   ROPE        rotates `rotated` values of each run by the row's position,   -
 *               from value `offset` of the run on, in place
 *   PUT         stores K = in[0] and V = in[1] of the row's position in the   -
 *               KV cache; V is absent where it is a part of K; `keys`: in[0]
 *               is the indexer's key
 *   ATTEND      out = attention of the queries in[0] over the KV cache        [sinks]; MLA: the heads' matrices
 *   GLU         out = act(in[0]) * in[1]                                      -
 *   SPLIT       each run of 2 x `width` values: the first half stays in out,  -
 *               the second goes to in[1]
 *   GATE        out *= sigmoid(in[1]), by value or by head                    -
 *   CONV        out = silu(causal depthwise convolution of in[0]) over        taps of each channel, the row's own
 *               `taps` positions; earlier inputs are in the layer's state     last; a list for q, k and v each, or one;
 *                                                                             [with `bias`: bias of each channel]
 *   UNIT        divides each run by its length, in place                      -
 *   RATES       the row's rates of a delta net, in place. Decay: out =        dt [width], a [heads]
 *               exp(a softplus(out + dt)); with a `bound` exp(bound
 *               sigmoid(-a (out + dt))). in[1] = sigmoid(in[1])
 *   DELTA       gated delta rule: with q, k, v in in[0], b in in[1], decay g  -
 *               in buffer A, and the state S of each head:
 *               S = g S;  S += k (x) b (v - S'k);  out = `scale` S'q
 *   SCAN        Mamba-2: with x, B and C in in[0], rates t = softplus(in[1] +  dt [heads], A [heads],
 *               dt), and the state S of each head:                            D [heads]
 *               S = exp(t A) S + B (x) t x;  out = S'C + D x
 *   SCANEACH    Mamba-1: with x in in[0], B and then C in in[1], rates        dt [width], A [width x keys],
 *               t = softplus(buffer A + dt), and a state S of each value:     D [width]
 *               S = exp(t A) S + B t x;  out = S'C + D x
 *   SHORTCONV   out *= causal depthwise convolution of in[0] * in[1] over      taps of each channel, the row's own
 *               `taps` positions; in[0] becomes that product                  last
 *   ADD         out += in[0]                                                  -
 *   SCALE       out = in[0], from value `from` on, times `scale` or w, stored  [w: one value]
 *               from `offset` on
 *   LAYERNORM   layer norm of one run, in place                               scale, bias
 *   HADAMARD    orthonormal Walsh-Hadamard transform of each run, in place,   -
 *               in pieces of the largest power of 2 that divides `width`
 *   INDEX_TOPK  chooses the positions that ATTEND reads, here and in layers   [places (`keys`), or scale (`mean`)]
 *               after it without this step: the `most` with the largest
 *               score, which is the sum over `heads` of `scale` x weight x
 *               relu(query . key), with queries in[0] and weights in[1]
 *               (none: 1). With a `block` each of `heads` K and V heads reads
 *               blocks of its own: those with the largest query . key, and
 *               the `last` ones
 *   STREAMS     out = `heads` copies of in[0]                                 -
 *   MIXW        weights of residual streams (hyper-connections), in place:    scales, bases
 *               for MIX sigmoid(scale x + base) + eps; for SPREAD `scale`
 *               sigmoid(..); and, with `rounds`, a doubly stochastic matrix
 *   MIX         out = sum of the streams in[0], weighted by in[1] (none:      -
 *               their mean)
 *   SPREAD      new streams: out = M out + post in[0], with M and post of     -
 *               MIXW in in[1]; `each`: M = 1; `scale`: out += in[0] 2
 *               sigmoid(`scale` in[1])
 *   POOL        behind each `every` positions, stores one K that stands for   places [every x spans x width],
 *               the last `every` x `spans` ones: the sum of in[0] weighted    scale [width]
 *               by softmax(in[1] + place), normed and rotated
 *   MAP         out = f(in[0]) with the function `kind`, silu(`scale` in[0])   -
 *               for instance
 *   GRAMS       out = `heads` table entries that the last tokens hash to      -
 *               (n-gram embeddings)
 *   DOTGATE     for each stream: s = `scale` (out . in[0]);                   -
 *               out = sigmoid(sign(s) sqrt(max(|s|, 1e-6))) in[1]
 *   RECALL      out = sum of in[0] and `heads` runs of in[1], weighted by the  w
 *               softmax of their products with w, each divided by its RMS
 *   INPUTS      out = (out + `scale` x the token's entry of the model's       -
 *               table) / sqrt(2)
 *   ROUTE       chooses each row's experts and their weights from in[0]       router, [bias], [choice bias], [the same
 *                                                                             for images], [token's experts],
 *                                                                             [factor of each expert]
 *   EXPERTS     out = weighted sum of the row's experts of in[0], plus the    [biases], [shared expert and its gate],
 *               shared expert; with a `width` both have so many values        experts
 *   ADJUGATE    for each of the row's `heads` experts, a run of `width`        gates, ups: a matrix of each group
 *               hidden values of its group's adjugate expert:
 *               act(gate in[0]) * up in[0]
 *   ADJSUM      out = `scale` x the sum over the row's experts of their        a matrix of each group
 *               weight times W of the group times their run of in[0]
 *   LORA        out += `scale` W in[0], stored from `offset` on; in[0] is     [W]
 *               read from `from` on; without W: += `scale` in[0]
 *   GROUPS      out = packed FFN of in[0] (pack.h)                            [gate], [adds], groups
 *   PLACE       out += entries of a table of learned positions, those of the  table, [entry
 *               row's patch (computed/pass/forward.h) with their weights      behind it]
 *   MMT         out = W' in[0]: the sum of W's rows, each times a value        W
 *   CLAMP       out = in[0], value by value, at least `min`, at most `max`     min, max: one value each
 *   AFFINE      out = (out - b) a, value by value                              a, [b]
 *
 * More about INDEX_TOPK, MIXW, POOL, GRAMS and ADJUGATE is in computed/pass/: index_topk.c, hyper_connections.c,
 * forward_pool.c, grams.c, adjugate.c.
 *
 * A layer's state has three kinds: rows, one entry for each position (PUT: computed/state/kv.h); a tail, the last
 * inputs (CONV); and a fold, which sums up all tokens so far (DELTA: computed/state/recur.h). Rows can be dropped back
 * to any position; a tail and a fold only to where a copy was kept.
 *
 * A row that skips a layer may still store its K and V there: it runs only the steps that feed the state. So does a row
 * whose logits nobody needs, in the last layer (computed/pass/forward.c). */
#ifndef NTX_MODEL_LAYER_H
#define NTX_MODEL_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ffn_act.h"
#include "model/tensors.h"

#define NTX_NO_TENSOR    UINT32_MAX
#define NTX_STEP_WEIGHTS 10
#define NTX_LAYER_STEPS  96
#define NTX_STREAMS      4    /* residual streams, in models that have several */
#define NTX_RECALLS      64   /* most runs of RECALL */
#define NTX_ADJUGATE_MAX 1024 /* most hidden values of an adjugate expert */

/* The table of operations. Columns:
 *   name     of the enumerator; symbol: the end of the names of the functions that compute it
 *   by       the code that computes it. ROWS: ntx__row_X, row by row; PASS: ntx__run_X, by primitives of the back end;
 *            BACK: the back end itself: ntx__cpu_X, ntx__device_X
 *   writes   values in a row of `out`. ONE: `width`; HEADS: `heads` x `width`; MATRIX: outputs of the weight, or
 *            `width` if it is not 0; STATE: the model's width, or that of experts' latents
 *   does     properties (enum ntx_does)
 *   device   unit of work on a GPU (cuda/step.h). VALUES, HEADS, PAIRS: step_X for each value, value of each head, or
 *            rotated pair; RUNS, ROW: a block of threads for each run, or row; WARP: one warp for a row; OWN: its own
 *            kernel, or primitives; NO: none, so that such models run on the CPU alone
 * A new operation needs an entry here, a struct of its numbers below, and a file with its functions. */
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
    X(SCAN,      scan,      BACK, HEADS,  NTX_DOES_FEED,                                        NO) \
    X(SCANEACH,  scaneach,  BACK, ONE,    NTX_DOES_FEED,                                        NO) \
    X(SHORTCONV, shortconv, BACK, ONE,    NTX_DOES_FEED,                                        NO) \
    X(SCALE,     scale,     ROWS, ONE,    NTX_DOES_AT | NTX_DOES_WEIGHTS,                       VALUES) \
    X(INPUTS,    inputs,    ROWS, ONE,    0,                                                    VALUES) \
    X(LAYERNORM, layernorm, ROWS, ONE,    0,                                                    ROW) \
    X(HADAMARD,  hadamard,  ROWS, HEADS,  0,                                                    RUNS) \
    X(INDEX_TOPK,    index_topk,    BACK, ONE,    NTX_DOES_READ_KV,                                     OWN) \
    X(STREAMS,   streams,   ROWS, HEADS,  0,                                                    HEADS) \
    X(MIXW,      mixw,      ROWS, ONE,    0,                                                    WARP) \
    X(MIX,       mix,       ROWS, ONE,    0,                                                    VALUES) \
    X(SPREAD,    spread,    ROWS, HEADS,  0,                                                    VALUES) \
    X(RECALL,    recall,    ROWS, ONE,    0,                                                    NO) \
    X(POOL,      pool,      BACK, ONE,    NTX_DOES_FEED | NTX_DOES_READ_KV,                     OWN) \
    X(MAP,       map,       ROWS, ONE,    0,                                                    VALUES) \
    X(GRAMS,     grams,     BACK, ONE,    NTX_DOES_LEAVE,                                       OWN) \
    X(DOTGATE,   dotgate,   ROWS, HEADS,  0,                                                    RUNS) \
    X(PLACE,     place,     ROWS, ONE,    NTX_DOES_WEIGHTS,                                     NO) \
    X(MMT,       mmt,       ROWS, ONE,    NTX_DOES_WEIGHTS,                                     NO) \
    X(CLAMP,     clamp,     ROWS, ONE,    NTX_DOES_WEIGHTS,                                     NO) \
    X(AFFINE,    affine,    ROWS, ONE,    NTX_DOES_WEIGHTS,                                     NO) \
    X(ADJUGATE,  adjugate,  BACK, HEADS,  NTX_DOES_WITHIN,                                      NO) \
    X(ADJSUM,    adjsum,    BACK, ONE,    NTX_DOES_WITHIN,                                      NO) \
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
    NTX_DOES_AT = 1,          /* its output begins at value `offset` of the row */
    NTX_DOES_WEIGHTS = 2,     /* it is dropped if the file has none of its weights */
    NTX_DOES_FEED = 4,        /* it stores into the layer's state */
    NTX_DOES_BOTH = 8,        /* it writes in[1], too */
    NTX_DOES_READ_KV = 16,    /* it reads the layer's KV cache: entries in a file must have arrived */
    NTX_DOES_LEAVE = 32,      /* it leaves quantised forms for the products after it, as all of ROWS do */
    NTX_DOES_WITHIN = 64,     /* its matrices multiply intermediate values, not its input */
    NTX_DOES_JOIN = 128,      /* neighbours form one run, as all of ROWS do */
    NTX_DOES_JOIN_INPUT = 256 /* neighbours of the same input form one run */
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
extern const struct ntx_op_kind ntx_op_kinds[NTX_N_OPS + 1]; /* the last: UNKNOWN */

enum ntx_rope_kind { NTX_ROPE_NORM /* adjacent pairs */, NTX_ROPE_NEOX /* halves */ };

/* The model's tables of angles for RoPE. */
enum ntx_rotation {
    NTX_ROTATION_ALL,
    NTX_ROTATION_WINDOW /* layers with a sliding window, if theirs differ */,
    NTX_N_TURNS
};

/* From a router's logits to the weights of a row's experts: scores, the largest of which are chosen, divided by their
 * sum if `norm`, times `scale`. */
enum ntx_score { NTX_SCORE_SOFTMAX, NTX_SCORE_SIGMOID, NTX_SCORE_SQRT_SOFTPLUS };
#define NTX_LEAST_WEIGHTS 0x1p-14f /* least divisor, if `norm`: the smallest normal half float */
struct ntx_router {
    uint8_t score; /* enum ntx_score */
    bool norm;
    bool expert_groups_by_best; /* a group's score is its largest one, else the sum of its two largest */
    float scale;
    uint32_t n_expert_groups;    /* groups of equally many experts; 0: no groups */
    uint32_t expert_groups_used; /* a row's experts come from so many groups, those with the largest scores */
};

/* The activation of an FFN: hidden = act(gate) * up. */
struct ntx_activation {
    float limit, gate_limit; /* ups are clamped to +-limit, gates to at most gate_limit; 0: none */
    float bend, bend_up;     /* SITU: its two numbers; bend_up 0: ups stay as they are */
    uint8_t act;             /* enum ntx_ffn_act */
};

/* Temperature of attention scores by the row's position: they are multiplied by
 * 1 + scale ln(1 + floor((position + ahead) / length)); length 0: by 1. */
struct ntx_temperature {
    float scale;
    uint32_t length, ahead;
};

/* Buffers of a pass: a row of floats for each row of the batch. H, STREAMS and INPUTS last from layer to layer, the
 * others from a step to later ones of the same layer. */
enum ntx_buf {
    NTX_BUF_NONE,
    NTX_BUF_H,     /* the residual stream */
    NTX_BUF_X,     /* the normed input of attention or FFN */
    NTX_BUF_Q_LOW, /* low-rank q, and other values between two products */
    NTX_BUF_Q,
    NTX_BUF_K,
    NTX_BUF_V,
    NTX_BUF_ATTN, /* output of attention */
    NTX_BUF_GATE,
    NTX_BUF_UP,
    NTX_BUF_Y, /* output of attention's last product, or of the FFN */
    NTX_BUF_Z, /* gates of attention's output; queries of the indexer */
    NTX_BUF_A, /* decays of a delta net; weights of the indexer's queries; gates of heads */
    NTX_BUF_BESIDE,
    NTX_BUF_INPUTS,  /* inputs of all layers that depend on the token alone */
    NTX_BUF_STREAMS, /* several residual streams, from which H is made */
    NTX_BUF_MIX,     /* weights that mix the streams */
    NTX_BUF_POOL,
    NTX_BUF_POOL_GATE,
    NTX_BUF_KEYS,
    NTX_BUF_KEYS_GATE,
    NTX_BUF_NORMED, /* normed streams; in a next-token block the token's embedding, and behind it the state; in a
                       vision tower and in its projector what a row gets, which lasts from layer to layer */
    NTX_BUF_LOW,    /* first of two low-rank products (LORA) */
    NTX_BUF_LORA,   /* second one, before it is added */
    NTX_BUF_GATES,  /* what NORMED is multiplied by */
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
    uint32_t first;   /* the table's angle that the first pair turns by */
    bool back;        /* rotate by the negative angle */
};
struct ntx_put_step {
    bool keys;    /* in[0] is the indexer's key, not K */
    bool columns; /* a patch's K and V are at its number by columns (computed/pass/forward.h) */
};
struct ntx_attend_step {
    uint32_t window; /* positions that a row sees, its own included; 0: all */
    uint32_t chunk;  /* chunked attention: a row sees its own chunk of so many positions alone; 0: no chunks */
    uint32_t every;  /* positions that one pooled K stands for, which are read beside the window; 0: none */
    float cap;       /* soft cap: a score s becomes cap * tanh(s / cap); 0: none */
    struct ntx_temperature temperature;
    bool mla;      /* K and V are made from MLA latents (computed/pass/mla.c) */
    bool topk;     /* only positions that INDEX_TOPK chose */
    bool block;    /* only the row's own block (computed/pass/forward.h) */
    bool columns;  /* as in ntx_put_step */
    uint32_t band; /* so many positions before a row's own and behind it; 0: no band */
    bool causal;   /* rows of an image see no later ones, though they do in other layers */
};
struct ntx_glu_step {
    struct ntx_activation hidden;
};
struct ntx_gate_step {
    bool by_head;  /* one gate value for each of `heads` heads, else one for each of `width` values */
    bool softplus; /* the gate is the softplus of its value, else the sigmoid */
};
struct ntx_conv_step {
    uint32_t taps;     /* inputs of one output, the row's own included */
    uint32_t dilation; /* positions from one tap to the next, for n-gram layers; 0: 1, for delta nets */
    bool bias;         /* its last weight has a bias of each channel */
};
struct ntx_unit_step {
    float eps; /* added to the square of the length; 0: the model's */
};
struct ntx_layernorm_step {
    float eps; /* added to the variance; 0: 1e-6 */
};
struct ntx_rates_step {
    float bound;   /* lower bound of the logarithm of the decay; 0: none */
    bool positive; /* the weight `a` is stored as -a */
};
/* MAP: SILU of x * scale, or xIELU (arXiv:2411.13010):
 * alpha_p x^2 + beta x for x > 0, else alpha_n (e^min(x, eps) - 1 - x) + beta x.
 * GELU in three forms (arXiv:1606.08415): by tanh (ffn_act.h), exact, x sigmoid(1.702 x). CLAMP: x, at most `scale`,
 * at least -`scale`. A GPU computes the first two kinds. */
enum ntx_map_kind { NTX_MAP_SILU, NTX_MAP_XIELU, NTX_MAP_GELU, NTX_MAP_GELU_ERF, NTX_MAP_GELU_QUICK, NTX_MAP_CLAMP };
struct ntx_map_step {
    uint8_t kind; /* enum ntx_map_kind */
    float alpha_p, alpha_n, beta, eps;
};
struct ntx_delta_step {
    uint32_t key_heads;
    bool tiled;  /* head h has key head h % key_heads, else h / (heads / key_heads) */
    bool by_key; /* the decay has one value for each key channel (KDA), else one for each head */
};
struct ntx_scan_step {
    uint32_t groups; /* neighbouring heads that share B and C form a group */
    uint32_t keys;   /* values of B and of C */
};
struct ntx_shortconv_step {
    uint32_t taps; /* inputs of one output, the row's own included */
};
struct ntx_index_topk_step {
    uint32_t most;  /* positions that a row's attention reads, or blocks of `every` of them */
    uint32_t every; /* positions that share one key; 0: each has its own */
    bool keys;      /* this step makes the shared keys; else POOL made them */
    bool mean;      /* with `keys`: by the mean of the positions' keys, else by a softmax of their weights */
    uint32_t block; /* each K and V head chooses `most` blocks of so many positions; 0: all choose alike */
    uint32_t last;  /* of these, so many at the end are always chosen */
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
    bool ungated;                 /* no gates: an expert's hidden values are act(up) * up */
};
struct ntx_groups_step { /* `scale`: of up's low-rank addition; `offset`, `width`: place of down's part in LOW */
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
        struct ntx_map_step map;
        struct ntx_delta_step delta;
        struct ntx_scan_step scan;
        struct ntx_shortconv_step shortconv;
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
    union { /* index of each tensor in the GGUF; NTX_NO_TENSOR: the layer has none */
        uint32_t tensor[NTX_N_TENSORS];
        struct {
#define X(field, name, in, out, use) uint32_t field;
            NTX_LAYER_TENSORS(X)
#undef X
        };
    };
    uint32_t scale[NTX_N_TENSORS]; /* index of each matrix's scale (ntx_is_scalable), or NTX_NO_TENSOR */
    uint32_t n_steps;
    struct ntx_step step[NTX_LAYER_STEPS];
};

/* Name of an operation for messages: "MM". */
const char *ntx_op_name(enum ntx_op op);

/* Appends a step, whose other fields are 0. */
struct ntx_step *ntx_layer_add(struct ntx_layer *l, enum ntx_op op, enum ntx_buf out, enum ntx_buf in);
/* Appends a weight to a step; `maybe`: the file may lack it. */
void ntx_step_takes(struct ntx_step *s, enum ntx_tensor t, bool maybe);
/* Ends a layer whose tensors are known: drops absent weights and steps that need them, and sets `feeds` and `part`. */
void ntx_layer_done(struct ntx_layer *l);

/* The first step of an operation, or NULL. */
const struct ntx_step *ntx_layer_find(const struct ntx_layer *l, enum ntx_op op);

#endif
