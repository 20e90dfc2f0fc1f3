/* SPDX-License-Identifier: Apache-2.0 */
/* ntx_cuda.h: the face between ntx-computed and a GPU: a table of functions that a plug-in library exports.
 *
 *   ntx-computed --dlopen--> libntx-cuda.so     cuda/plugin.cu:    the CUDA runtime
 *                            libntx-gpu-fake.so tests/unit/cuda/fake.c: the same kernels, thread by thread on the CPU,
 *                              for tests
 *
 * Everything is queued on streams and runs later: arguments of a kernel are copied at once, memory that a copy names
 * must stay as it is until an event behind the copy has passed. Every function but open returns 0 or a negative errno,
 * and error() then says in words what failed, with numbers; after an error of a kernel all later calls fail too (a lost
 * device stays lost until it is closed). One thread at a time. Pointers named dev_ or marked "device" are of alloc().
 *
 * Values: all but the dense product, attention of prompts (PREFILL) and ATTEND over more than NTX_GPU_SPLIT positions
 * follow computed/cpu/cpu.h's order of accumulation, so they have the CPU kernels' bits. */
#ifndef NTX_CUDA_NTX_CUDA_H
#define NTX_CUDA_NTX_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/layer.h"

#define NTX_GPU_ABI    11u
#define NTX_GPU_SYMBOL "ntx_gpu_table" /* const struct ntx_gpu_ops *ntx_gpu_table(void) */
#define NTX_GPU_ROWS                                                                                                   \
    8u /* rows that a block of threads takes without the matrix units, which floats never go through \
                           */
#define NTX_GPU_MANY  32u  /* and that a block of threads takes through them */
#define NTX_GPU_SPLIT 256u /* positions of KV that one block of threads attends to */
#define NTX_GPU_SLACK                                                                                                  \
    64u /* bytes behind weights that may be read (never used); before them those of the same 16-aligned 16 */
#define NTX_GPU_HEAD_MAX 576u /* widest head */
#define NTX_GPU_HEAD                                                                                                   \
    256u /* widest head of most models: attention to wider ones takes more memory of a multiprocessor */
#define NTX_GPU_TILE         64u /* queries (heads that share K and V, of rows of a prompt) that one block of threads takes */
#define NTX_GPU_INDEX_HEAD   256u  /* widest key that positions are chosen by */
#define NTX_GPU_TILE_HEAD    128u  /* widest head of those */
#define NTX_GPU_EXPERTS      1024u /* experts of a layer that rows choose from on the device, */
#define NTX_GPU_EXPERTS_USED 64u   /* and that one row chooses */

struct ntx_gpu;
struct ntx_gpu_stream;
struct ntx_gpu_event;
struct ntx_gpu_graph;

struct ntx_gpu_info {
    char name[64];
    uint64_t total, free; /* bytes of device memory */
    uint32_t capability;  /* 90: compute capability 9.0 */
    uint32_t driver;      /* 13000: CUDA 13.0 */
    uint32_t processors;
    uint32_t integrated; /* 1: its memory is the host's, which it reads at the same rate */
};

/* Groups of a packed layer's neurons (model/pack.h): list[0 .. n), or first .. first + n - 1 where list is NULL. Group
 * `first` lies at the start of what a launch is given, and each takes `bytes`. Neuron k of group g is number g * size +
 * k; those from n_neurons on are left out. */
struct ntx_gpu_groups {
    const uint32_t *list; /* device */
    uint64_t bytes;
    uint32_t first, n, size, n_neurons; /* size 0: there are no groups */
};

/* The same again for n matrices in one launch, each so far behind the one before it: w in bytes, x in bytes of a
 * product's and floats of columns', y in floats. n 0: there is one. */
struct ntx_gpu_heads {
    uint64_t w, x, y;
    uint32_t n;
};

/* n choices of experts, a row each: choice c takes matrix expert[c] of those that lie `bytes` apart, and gives row c of
 * y from row c / each of x. n 0: there are none. */
struct ntx_gpu_routed {
    const uint32_t *expert; /* device */
    uint64_t bytes;
    uint32_t n, each;
};

/* Rows of several matrices that lie `bytes` apart, in tiles: tile t is rows [first, first + n) of x and of y by matrix
 * `expert`; where n is 0 there is none. n 0: there are no tiles. */
struct ntx_gpu_tile {
    uint32_t expert, first, n, unused;
};
struct ntx_gpu_tiles {
    const struct ntx_gpu_tile *of; /* device */
    uint64_t bytes;
    uint32_t n;
};

/* Another matrix of the same type and width, by rows in the same form: one launch takes several. */
#define NTX_GPU_TOGETHER 16u
struct ntx_gpu_another {
    const void *w, *x;
    float *y;
    uint64_t ldy;
    uint32_t n_out, n_rows;
    uint32_t first_block; /* found by the launch */
};

/* y[r * ldy + o] = W[o] . x[r]. Any n_rows; x in the type's form (computed/cpu/cpu.h), 16-aligned, rows x_stride bytes
 * apart. w: n_out rows, 2-aligned (MXFP4: anywhere), NTX_GPU_SLACK bytes readable behind. Where there are others, each
 * has NTX_GPU_ROWS rows at most, or all have more, and there are neither groups nor heads. With choices n_rows is 1, of
 * others, too (there are as many rows as choices), and there are neither groups nor heads. With tiles n_rows is what a
 * tile has at most, of others, too: NTX_GPU_MANY, of floats NTX_GPU_ROWS, or less; and there are neither choices nor
 * groups nor heads. With groups, the rows of one part of each of them, n_out = n * size, and o is a neuron's number. */
struct ntx_gpu_product {
    const void *w, *x;
    float *y;
    struct ntx_gpu_groups groups;
    struct ntx_gpu_heads heads;
    struct ntx_gpu_routed chosen;
    struct ntx_gpu_tiles tiles;
    uint64_t row_bytes, x_stride, ldy;
    uint32_t type, n_out, n_in, n_rows, n_others;
    struct ntx_gpu_another others[NTX_GPU_TOGETHER - 1];
};

/* Per row i of n_rows, with h + rows[i] * ld_h its residual stream:
 *   h += y[i] + bias        where y is given
 *   x[i] = h / sqrt(mean(h^2) + eps) * w * times, as floats (x, which may be h) and quantised (q8, q8k), where those
 *     are given; w NULL: nothing */
struct ntx_gpu_norm {
    float *h;
    const float *y, *bias, *w;
    const uint32_t *rows; /* device; NULL: row i */
    float *x;
    void *q8, *q8k;
    uint64_t ld_h, ld_y, ld_x, q8_stride, q8k_stride; /* floats, floats, floats, bytes, bytes */
    uint32_t n, n_rows;
    float eps, times;
};

/* x[i] quantised; where up is given x[i] becomes the hidden value of it and up[i] first, and before that, where biases
 * are given, row bias_rows[i] of each is added. */
struct ntx_gpu_quantize {
    float *x;
    const float *up;
    void *q8, *q8k;
    const float *x_bias, *up_bias; /* rows of n */
    const uint32_t *bias_rows;     /* device */
    uint64_t ld_x, ld_up, q8_stride, q8k_stride;
    uint32_t n, n_rows;
    struct ntx_activation by;
};

/* gate[i][j] = act(gate[i][j]) * up[i][j] of the groups' neurons j, or 0 where row i does not use the group. */
struct ntx_gpu_hidden {
    float *gate;
    const float *up;
    const uint8_t *uses; /* device [n_rows x ld_uses] by group: 1: used; NULL: all are */
    struct ntx_gpu_groups groups;
    uint64_t ld_gate, ld_up, ld_uses;
    uint32_t n_rows, act; /* enum ntx_ffn_act */
};

/* y[i] += hidden[i][j] * column j, for the groups' neurons j in turn, those with hidden 0 left out. w: the first
 * column, of n values. */
struct ntx_gpu_columns {
    const void *w;
    const float *hidden;
    float *y;
    struct ntx_gpu_groups groups;
    struct ntx_gpu_heads heads;
    uint64_t row_bytes, ld_hidden, ld_y; /* row_bytes: from column to column of a group */
    uint32_t type, n, n_rows;
};

/* KV in blocks of block_tokens (at most 32): block b of layer l at base + b * block_bytes + layer_offset: K [n_head_kv]
 * [block_tokens][row of head_k], then V likewise; rows as F16 or as blocks of Q8_0 (computed/cpu/cpu.h). Row r of the
 * pass finds its blocks at tables[table_at[r]..] and stands at pos[r]; row i of a launch is row rows[i] of the pass. */
struct ntx_gpu_kv {
    uint8_t *base;
    uint64_t block_bytes, layer_offset;
    const uint32_t *tables, *table_at, *pos; /* device */
    const uint32_t *rows;                    /* device; NULL: i itself */
    const uint32_t
        *holes; /* device, in the places of `tables`: bit p of a block: its position p has no KV; NULL: none */
    /* Where K and V of a position lie: in its slot. Positions from path_from[r] on that row r sees have slots
     * paths[path_at[r]..], others their own number. */
    const uint32_t *paths, *path_from, *path_at; /* device; paths NULL: no row has any. Not for PREFILL */
    uint32_t block_tokens, n_head, n_head_kv, head_k,
        head_v;      /* heads of multiples of 8 values: rows in F16 lie 16-aligned */
    uint32_t q8;     /* 1: Q8_0 */
    uint32_t v_in_k; /* 1: V is the first head_v values of K, and there is none of its own. F16 only */
};

/* K and V in slot slots[2 i] of row 0's session into slots[2 i + 1], i in turn, in all layers. Holes are the host's. */
struct ntx_gpu_move {
    struct ntx_gpu_kv kv;
    const uint32_t *slots; /* device */
    uint64_t layer_bytes;
    uint32_t n, n_layers;
};

/* Biases, norms per head, rotation of q and k; q in place, k and v into the cache. cs, sn: [rows of the pass x rope_dim
 * / 2]. */
struct ntx_gpu_rotate {
    float *q; /* of the first n_query rows; NULL: k and v only */
    const float *k, *v;
    uint64_t ld_q, ld_k, ld_v;                               /* floats from row to row */
    const float *q_bias, *k_bias, *v_bias, *q_norm, *k_norm; /* or NULL */
    const float *cs, *sn;
    struct ntx_gpu_kv kv;
    uint32_t n_rows, n_query, rope_dim, neox;
    float eps;
};

/* out[i * ld_out + head * head_v ..]. Split over KV every NTX_GPU_SPLIT positions, joined in their order. partial:
 * device floats [n_rows x n_head x splits x (head_v + 2)], splits = most positions of a row / NTX_GPU_SPLIT, rounded
 * up. */
struct ntx_gpu_attend {
    const float *q;
    float *out, *partial;
    struct ntx_gpu_kv kv;
    uint64_t ld_q, ld_out;
    uint32_t n_rows, most_pos; /* positions 0 .. most_pos - 1 at most */
    uint32_t window;           /* of those a row sees the last `window` only; 0: all */
    const float *sinks;        /* [n_head] a score more that has no value; NULL: none */
    float scale, cap;          /* scores s become cap * tanh(s / cap); cap 0: they stay */
    /* Rows that have chosen attend to so many slots, splits being of those: by row of the pass (struct
     * ntx_gpu_index_topk). NULL: none has. F16 only. */
    const uint32_t *n_topk, *chosen;
    uint32_t max_topk; /* from row to row of `chosen` */
    /* Beside the window's, K that stand for `every` positions each (V is K): those that are chosen, by their numbers,
     * or all up to the row's position. Splits are of all of them, the window's first; most_entries: so many at most. */
    struct ntx_gpu_kv pooled;     /* whose they are; base NULL: there are none */
    uint32_t every, most_entries; /* most_entries 0: attention is to positions */
};

/* The same for rows of prompts: tile t takes rows [tiles[2 t], tiles[2 t] + tiles[2 t + 1]) of the launch, of one
 * session and in the order of their positions, at most NTX_GPU_TILE / (n_head / n_head_kv) of them. block_tokens is 32.
 * */
struct ntx_gpu_prefill {
    const float *q;
    float *out;
    struct ntx_gpu_kv kv;
    const uint32_t *tiles; /* device */
    uint64_t ld_q, ld_out;
    uint32_t n_tiles;
    uint32_t window; /* these two as above */
    const float *sinks;
    float scale;
};

/* What positions are chosen by (computed/cpu/cpu.h: `index`): score[i * ld_score + p] of row i of the launch, for all
 * its choices p: positions, or numbers of K of `every` of them. kv: of the keys, one head, head_k values from key to
 * key, of which the first `width` count. */
struct ntx_gpu_index {
    const float *q, *weights; /* weights [heads], times scale; NULL: scale */
    float *score;
    struct ntx_gpu_kv kv;
    uint64_t ld_q, ld_weights, ld_score;
    uint32_t n_rows, most_pos, heads, width; /* width: a multiple of 16, at most NTX_GPU_INDEX_HEAD */
    uint32_t every, pooled; /* 0: each position has its own; pooled: a key lies at its number, not in the place of the
                               last of its positions */
    float scale;
};

/* Row i chooses the `most` largest of its scores (of equal ones the first): n_topk[row], and in order chosen[row *
 * max_topk ..], by row of the pass. UINT32_MAX: no more than that are there, and nothing is chosen. Written are slots
 * of `each` positions for each choice, and of those behind the last choice's where `tail` says so; pooled: numbers.
 * Where `from` is given there are no scores: of the slots that these rows have chosen, those that are no holes of kv's
 * layer. */
struct ntx_gpu_index_topk {
    const float *score;
    uint32_t *n_topk, *chosen;
    const uint32_t *from_n, *from;
    struct ntx_gpu_kv kv;
    uint64_t ld_score;
    uint32_t n_rows, most, max_topk, every, each, tail, pooled;
};

/* to[i] = from[rows[i]], rows of so many bytes; all multiples of 4. Where weight is given they are floats, times the
 * share of choice first + i (as in struct ntx_gpu_combine). */
struct ntx_gpu_gather {
    const void *from;
    void *to;
    const uint32_t *rows; /* device; NULL: i itself */
    const float *weight;
    const uint32_t *place;
    uint64_t from_stride, to_stride, bytes;
    uint32_t n_rows, used, first;
};

/* Row i chooses `used` of its experts by their logits, as computed/pass/moe.c has it: choices i * used .. in the order
 * of the experts' numbers, which are their places. Of rows that are not numbers some are chosen. */
struct ntx_gpu_route {
    const float *logits; /* [n_rows x n_expert] */
    const float *bias, *choice,
        *factor;                    /* [n_expert] or NULL: of logits; of scores, for the choice alone; of weights */
    float *weight;                  /* [n_rows x used] */
    uint32_t *place, *row, *expert; /* the same */
    uint64_t ld_logits;
    uint32_t n_rows, n_expert, used;
    struct ntx_router by;
};

/* Choices c of the rows, `used` each, whose experts chosen[c] says, sorted by expert, those of one in their order:
 * choice c gets number place[c], and the number's row and expert are written. Waves are of `wave` numbers; tiles[w *
 * n_tiles ..] are those of wave w, each of at most `high` choices of one expert, by their numbers from the wave's first
 * on; behind the last of them n is 0. n_tiles: as many as there may be. */
#define NTX_GPU_TILES(wave, n_expert, high)                                                                            \
    (((wave) < (n_expert) ? (wave) : (n_expert)) + ((wave) < (n_expert) ? 0 : ((wave) - (n_expert)) / (high)))
struct ntx_gpu_sort {
    const uint32_t *chosen;         /* [n_rows x used] */
    uint32_t *place, *row, *expert; /* the same; another place than `chosen` */
    struct ntx_gpu_tile *tiles;
    uint32_t n_rows, used, n_expert, wave, high, n_tiles;
};

/* y[i] = sigmoid(gate[i]) * y[i] where gate is given; then for k in [i * used, (i + 1) * used) whose choice c =
 * place[k] - first is one of n_choices: y[i] += weight[k] * (z[c] + row expert[first + c] of bias, where that is
 * given). weight NULL: 1. */
struct ntx_gpu_combine {
    float *y;
    const float *z, *gate, *weight; /* z: [n_choices x n] */
    const float *bias;              /* rows of n */
    const uint32_t *place, *expert;
    uint64_t ld_y;
    uint32_t used, first, n_choices, n, n_rows;
};

/* out[i * k ..]: the k largest of x[i], of equal ones those of least number; in the order of their numbers. Found in
 * parts, whose candidates lie in some [n_rows x k for each NTX_GPU_BEST_PART of n, rounded up]; k is at most that. */
#define NTX_GPU_BEST_PART 4096u
struct ntx_gpu_candidate {
    float logit;
    int32_t id;
};
struct ntx_gpu_best {
    const float *x;
    struct ntx_gpu_candidate *out, *some;
    uint64_t ld_x;
    uint32_t k, n, n_rows, parts; /* parts: found by the launch */
};

/* Weights as F16 [n_out x n_in], for the dense product. */
struct ntx_gpu_widen {
    const void *w;
    uint16_t *out;
    uint64_t row_bytes;
    uint32_t type, n_out, n_in;
};

/* x[i] * 2^-e as F16, with the least e >= 0 that keeps the row within F16; exponents[i] = e. Rows from n_rows to
 * n_padded: zero. */
struct ntx_gpu_narrow {
    const float *x;
    uint16_t *out;
    int32_t *exponents;
    uint64_t ld_x;
    uint32_t n, n_rows, n_padded;
};

/* y[r * ldy + o] = z[r * ldz + o] * 2^exponents[r] */
struct ntx_gpu_scale {
    const float *z;
    float *y;
    const int32_t *exponents;
    uint64_t ldz, ldy;
    uint32_t n_out, n_rows;
};

/* One step of rows (model/layer.h: all that computed/pass/forward_cpu.c does row by row, but PUT), as the CPU's does
 * it: out[i] from in[i], other[i] and the weights. Rows of a launch lie one after another, but those of the buffers
 * that by_row names at rows[i], their number in the pass, as angles do. */
#define NTX_GPU_OUT   1u
#define NTX_GPU_IN    2u
#define NTX_GPU_OTHER 4u
#define NTX_GPU_CAP   255u /* an op beside those: out = scale * tanh(out / scale) */
struct ntx_gpu_step {
    float *out;
    const float *in;
    float *other;         /* in[1] */
    const float *w, *w2;  /* the step's weights, or NULL */
    const float *cs, *sn; /* ROPE: [rows of the pass x rotated / 2] */
    const uint32_t *rows; /* device */
    uint64_t ld_out, ld_in, ld_other;
    uint32_t by_row, n_rows;
    float eps; /* the model's */
    struct ntx_step
        s; /* the step, with all its numbers; of NTX_OP_LORA, NTX_OP_SCALE and NTX_GPU_CAP those that are wanted */
};

/* Layers that keep a recurrent state (computed/state/recur.h has its layout). A turn is rows[first .. first + n) of the
 * launch, of one session, in their order: the state at `from` (fresh: zeros) becomes what they make of it, at `to`,
 * bytes from `states` on; the layer's tail of a convolution, or fold, is layer_offset further. */
struct ntx_gpu_turn {
    uint64_t from, to;
    uint32_t first, n, fresh, unused;
};
/* CONV: y = silu of each channel's last `taps` inputs, weighed: w [width x taps], in `lists` of as many channels; or,
 * where inputs are `apart` positions apart, rows of such a type. DELTA: x has q and k of key_heads and v of heads,
 * `width` values each; y [heads x width]; keeps, takes [heads]: a row's rates; by_key: keeps [heads x width]. */
#define NTX_GPU_LISTS 3u
struct ntx_gpu_recur {
    const float *x, *w[NTX_GPU_LISTS], *keeps, *takes;
    float *y;
    uint8_t *states;
    const struct ntx_gpu_turn *turns; /* device */
    const uint32_t *rows;             /* device */
    uint64_t layer_offset, ld_x, ld_y, ld_keeps, ld_takes;
    uint64_t row_bytes;
    uint32_t n_turns, width, taps, lists, apart, type, heads, key_heads, tiled, by_key, panel;
    float scale;
};

/* Behind each `every` positions one K, or key, that stands for the last spans * every of them: of `width` values, by
 * the softmax of weights and places, or (places NULL) their mean; times norm by their root mean square, `rotated` of
 * them from `offset` on turned by the first of the last `every`, and all by HADAMARD.
 *   turns NULL   of rows of the launch; values, and `width` behind them weights, are those that kv has of positions; it
 *                takes the last one's place
 *   else         of all rows of turns: values and weights are the rows', and those of a state before them
 *                (computed/pass/forward_pool.c), rows of spans * width; it goes to its number in kv
 * UNPOOLED: what the rows of turns leave in the state. */
struct ntx_gpu_pool {
    const float *value, *weight, *norm; /* norm NULL: there is none */
    const void *places;                 /* [every] rows of spans * width */
    const double *freq;                 /* device [rotated / 2] */
    uint8_t *states;
    const struct ntx_gpu_turn *turns;           /* device */
    const uint32_t *turn_rows, *places_of_rows; /* rows of the pass, and where each lies in value and weight */
    struct ntx_gpu_kv kv;
    double magnitude;
    uint64_t place_bytes, state_offset, ld_value, ld_weight;
    uint32_t place_type, n_rows, n_turns, every, spans, width, rotated, offset, neox, hadamard;
    float eps, hadamard_scale; /* the latter is found by the launch */
};

enum ntx_gpu_kernel {
    NTX_GPU_PRODUCT,
    NTX_GPU_NORM,
    NTX_GPU_QUANTIZE,
    NTX_GPU_ROTATE,
    NTX_GPU_ATTEND,
    NTX_GPU_PREFILL,
    NTX_GPU_WIDEN,
    NTX_GPU_NARROW,
    NTX_GPU_SCALE,
    NTX_GPU_GATHER,
    NTX_GPU_COMBINE,
    NTX_GPU_BEST,
    NTX_GPU_HIDDEN,
    NTX_GPU_COLUMNS,
    NTX_GPU_MOVE,
    NTX_GPU_STEP,
    NTX_GPU_CONV,
    NTX_GPU_DELTA,
    NTX_GPU_INDEX,
    NTX_GPU_INDEX_TOPK,
    NTX_GPU_POOL,
    NTX_GPU_UNPOOLED,
    NTX_GPU_ROUTE,
    NTX_GPU_SORT,
    NTX_GPU_N_KERNELS
};

struct ntx_gpu_ops {
    uint32_t abi;
    const char *name; /* "cuda", "fake" */

    /* why: one line that says what is missing (no driver, too old a driver, no device, ...). */
    int (*open)(uint32_t ordinal, struct ntx_gpu **out, char *why, size_t n);
    void (*close)(struct ntx_gpu *g); /* everything made from it is gone before */
    int (*info)(struct ntx_gpu *g, struct ntx_gpu_info *out);
    const char *(*error)(const struct ntx_gpu *g); /* of the last call that failed; "" */

    int (*alloc)(struct ntx_gpu *g, uint64_t bytes, void **out); /* device memory, 256-aligned */
    void (*free)(struct ntx_gpu *g, void *p);
    int (*host_alloc)(struct ntx_gpu *g, uint64_t bytes, void **out); /* locked memory of the host */
    void (*host_free)(struct ntx_gpu *g, void *p);
    int (*host_register)(struct ntx_gpu *g, void *p, uint64_t bytes); /* locks pages that exist; speed only */
    void (*host_unregister)(struct ntx_gpu *g, void *p);
    int (*host_address)(struct ntx_gpu *g, void *p,
                        void **dev); /* integrated ones: where kernels find what was registered at p */

    int (*stream_new)(struct ntx_gpu *g, struct ntx_gpu_stream **out);
    void (*stream_free)(struct ntx_gpu_stream *s); /* waits for what is queued */
    int (*stream_sync)(struct ntx_gpu_stream *s);
    int (*event_new)(struct ntx_gpu *g, bool timed,
                     struct ntx_gpu_event **out); /* timed: event_ms knows of it; costs each record more */
    void (*event_free)(struct ntx_gpu_event *e);
    int (*event_record)(struct ntx_gpu_event *e, struct ntx_gpu_stream *s);
    int (*event_query)(struct ntx_gpu_event *e); /* 1 passed (or never recorded), 0 not yet */
    int (*event_sync)(struct ntx_gpu_event *e);
    int (*event_ms)(struct ntx_gpu_event *from, struct ntx_gpu_event *to, float *ms); /* both timed, and passed */
    int (*stream_wait)(struct ntx_gpu_stream *s,
                       struct ntx_gpu_event *e); /* what follows on s waits for e as recorded last */

    int (*upload)(struct ntx_gpu_stream *s, void *dev, const void *host, uint64_t bytes);
    int (*upload_rows)(struct ntx_gpu_stream *s, void *dev, uint64_t dev_stride, const void *host, uint64_t host_stride,
                       uint64_t width, uint32_t rows);
    int (*download)(struct ntx_gpu_stream *s, void *host, const void *dev, uint64_t bytes);
    int (*fill)(struct ntx_gpu_stream *s, void *dev, int byte, uint64_t bytes);
    int (*device_copy)(struct ntx_gpu_stream *s, void *to, const void *from, uint64_t bytes);

    int (*launch)(struct ntx_gpu_stream *s, enum ntx_gpu_kernel k, const void *args);
    /* Launches and fills of s are recorded, and not done, from capture to captured, which leaves them in *g: a new
     * graph where that is NULL, else g becomes what was recorded. No other calls may come between. Neither may be
     * possible, which is no failure of the device: what was to be recorded is then queued anew. graph_launch queues
     * what g holds. */
    int (*capture)(struct ntx_gpu_stream *s);
    int (*captured)(struct ntx_gpu_stream *s, struct ntx_gpu_graph **g);
    int (*graph_launch)(struct ntx_gpu_stream *s, struct ntx_gpu_graph *g);
    void (*graph_free)(struct ntx_gpu_graph *g);
    /* z [n_rows x n_out] = x [n_rows x n_in] . w^T, F16 in, F32 out, on the matrix units. A value has the same bits
     * each time that it stands at the same place of a product of the same shape, and that alone is promised: how sums
     * are cut is the library's choice, by the shape. -ENOSYS where it is missing. */
    int (*dense)(struct ntx_gpu_stream *s, const uint16_t *w, const uint16_t *x, float *z, uint32_t n_out,
                 uint32_t n_in, uint32_t n_rows);
};

#ifdef __cplusplus
extern "C"
#endif
    const struct ntx_gpu_ops *
    ntx_gpu_table(void) __attribute__((visibility("default")));

#endif
