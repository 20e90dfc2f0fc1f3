/* SPDX-License-Identifier: Apache-2.0 */
/* ntx_cuda.h: the interface between ntx-computed and a GPU: a table of functions that a plug-in library exports.
 *
 *   ntx-computed --dlopen--> libntx-cuda.so     cuda/plugin.cu:    the CUDA runtime
 *                            libntx-gpu-fake.so tests/unit/cuda/fake.c: the same kernels, thread by thread on the CPU,
 *                              for tests
 *
 * All work is queued on streams and runs later. A kernel's arguments are copied at once; memory that a copy names must
 * stay unchanged until an event after the copy has passed. Every function except open returns 0 or a negative errno,
 * and error() then describes the failure. After a kernel's error all later calls fail too: a lost device stays lost
 * until it is closed. One thread at a time may call. Pointers named dev_ or marked "device" come from alloc().
 *
 * Values: all results have the CPU kernels' bits, since they follow computed/cpu/cpu.h's order of accumulation. The
 * exceptions are the dense product, attention of prompts (PREFILL), and ATTEND over more than NTX_GPU_SPLIT
 * positions. */
#ifndef NTX_CUDA_NTX_CUDA_H
#define NTX_CUDA_NTX_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/layer.h"

#define NTX_GPU_ABI          11u
#define NTX_GPU_SYMBOL       "ntx_gpu_table" /* const struct ntx_gpu_ops *ntx_gpu_table(void) */
#define NTX_GPU_ROWS         8u   /* most rows of a block of threads without the matrix units; floats never use these */
#define NTX_GPU_MANY         32u  /* most rows of a block of threads with the matrix units */
#define NTX_GPU_SPLIT        256u /* KV positions that one block of threads attends to */
#define NTX_GPU_SLACK        64u  /* bytes after weights that may be read and are not used; before them up to 15 */
#define NTX_GPU_HEAD_MAX     576u /* widest head */
#define NTX_GPU_HEAD         256u /* widest head of most models; wider heads need more shared memory */
#define NTX_GPU_TILE         64u  /* most queries of a prompt tile: heads that share K and V, times rows */
#define NTX_GPU_INDEX_HEAD   256u /* widest indexer key */
#define NTX_GPU_TILE_HEAD    128u /* widest head of a prompt tile */
#define NTX_GPU_EXPERTS      1024u /* most experts of a layer that the device routes */
#define NTX_GPU_EXPERTS_USED 64u   /* most experts of a row that the device routes */

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
    uint32_t integrated; /* 1: device and host share one memory, at the same rate */
};

/* Groups of a packed layer's neurons (model/pack.h): list[0 .. n), or first .. first + n - 1 if list is NULL. Group
 * `first` is at the start of the launch's weights, and each group has `bytes`. Neuron k of group g is number g * size
 * + k; those from n_neurons on are left out. */
struct ntx_gpu_groups {
    const uint32_t *list; /* device */
    uint64_t bytes;
    uint32_t first, n, size, n_neurons; /* size 0: there are no groups */
};

/* n matrices (heads) in one launch, with strides w in bytes, x in bytes (product) or floats (columns), y in floats. n
 * 0: one matrix. */
struct ntx_gpu_heads {
    uint64_t w, x, y;
    uint32_t n;
};

/* n routed rows: row c of y is matrix expert[c] times row c / each of x. Matrices are `bytes` apart. n 0: no routed
 * rows. */
struct ntx_gpu_routed {
    const uint32_t *expert; /* device */
    uint64_t bytes;
    uint32_t n, each;
};

/* Tiles of rows of several matrices, which are `bytes` apart: tile t is rows [first, first + n) of x and y, by matrix
 * `expert`; n 0: an empty tile. ntx_gpu_tiles.n 0: no tiles. */
struct ntx_gpu_tile {
    uint32_t expert, first, n, unused;
};
struct ntx_gpu_tiles {
    const struct ntx_gpu_tile *of; /* device */
    uint64_t bytes;
    uint32_t n;
};

/* Another matrix of the same launch, of the same type and width, with rows in the same form. */
#define NTX_GPU_TOGETHER 16u
struct ntx_gpu_another {
    const void *w, *x;
    float *y;
    uint64_t ldy;
    uint32_t n_out, n_rows;
    uint32_t first_block; /* found by the launch */
};

/* y[r * ldy + o] = W[o] . x[r], for any n_rows. x: rows in the type's form (computed/cpu/cpu.h), 16-aligned, x_stride
 * bytes apart. w: n_out rows, 2-aligned (MXFP4: unaligned), with NTX_GPU_SLACK readable bytes after them.
 *
 *   others   each has at most NTX_GPU_ROWS rows, or all have more; no groups, no heads
 *   routed   n_rows is 1, also of others: y has a row per routed row; no groups, no heads
 *   tiles    n_rows is the most rows of a tile, also of others: at most NTX_GPU_MANY, of floats NTX_GPU_ROWS; no
 *            routed, groups, heads
 *   groups   the rows of one part of each group; n_out = n * size, and o is a neuron's number */
struct ntx_gpu_product {
    const void *w, *x;
    float *y;
    struct ntx_gpu_groups groups;
    struct ntx_gpu_heads heads;
    struct ntx_gpu_routed routed;
    struct ntx_gpu_tiles tiles;
    uint64_t row_bytes, x_stride, ldy;
    uint32_t type, n_out, n_in, n_rows, n_others;
    struct ntx_gpu_another others[NTX_GPU_TOGETHER - 1];
};

/* For each row i of n_rows, with its residual stream at h + rows[i] * ld_h:
 *   h += y[i] + bias        if y is given
 *   x[i] = h / sqrt(mean(h^2) + eps) * w * times, as floats (x, which may be h) and quantised (q8, q8k), if these are
 *     given; w NULL: no norm */
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

/* Quantises x[i]. If up is given, x[i] first becomes the hidden value of x[i] and up[i]. If biases are given, their
 * row bias_rows[i] is added before that. */
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

/* gate[i][j] = act(gate[i][j]) * up[i][j] for the groups' neurons j; 0 if row i does not use the group. */
struct ntx_gpu_hidden {
    float *gate;
    const float *up;
    const uint8_t *uses; /* device [n_rows x ld_uses] by group: 1: used; NULL: all are used */
    struct ntx_gpu_groups groups;
    uint64_t ld_gate, ld_up, ld_uses;
    uint32_t n_rows, act; /* enum ntx_ffn_act */
};

/* y[i] += hidden[i][j] * column j, for the groups' neurons j in order, without those whose hidden value is 0. w: the
 * first column, of n values. */
struct ntx_gpu_columns {
    const void *w;
    const float *hidden;
    float *y;
    struct ntx_gpu_groups groups;
    struct ntx_gpu_heads heads;
    uint64_t row_bytes, ld_hidden, ld_y; /* row_bytes: from column to column of a group */
    uint32_t type, n, n_rows;
};

/* The KV cache, in blocks of block_tokens (at most 32). Layer l's part of block b is at base + b * block_bytes +
 * layer_offset: K [n_head_kv][block_tokens][row of head_k], then V likewise. Rows are F16 or blocks of Q8_0
 * (computed/cpu/cpu.h). Row r of the pass has its blocks at tables[table_at[r]..] and position pos[r]. Row i of a
 * launch is row rows[i] of the pass. */
struct ntx_gpu_kv {
    uint8_t *base;
    uint64_t block_bytes, layer_offset;
    const uint32_t *tables, *table_at, *pos; /* device */
    const uint32_t *rows;                    /* device; NULL: i itself */
    const uint32_t *holes; /* device, parallel to `tables`. Bit p: position p of the block has no KV; NULL: no holes */
    /* The slots of positions. For row r, positions from path_from[r] on have slots paths[path_at[r]..]; others have
     * their own number. */
    const uint32_t *paths, *path_from, *path_at; /* device; paths NULL: no row has a path. Not for PREFILL */
    uint32_t block_tokens, n_head, n_head_kv;
    uint32_t head_k, head_v; /* multiples of 8, so that rows in F16 are 16-aligned */
    uint32_t q8;             /* 1: Q8_0 */
    uint32_t v_in_k;         /* 1: V is the first head_v values of K and is not stored. F16 only */
};

/* Moves K and V of row 0's session from slots[2 i] to slots[2 i + 1], for each i in order, in all layers. The host
 * updates the holes. */
struct ntx_gpu_move {
    struct ntx_gpu_kv kv;
    const uint32_t *slots; /* device */
    uint64_t layer_bytes;
    uint32_t n, n_layers;
};

/* Biases, norms per head, and rotation of q and k; q in place, k and v to the cache. cs, sn: [rows of the pass x
 * rope_dim / 2]. */
struct ntx_gpu_rotate {
    float *q; /* for the first n_query rows; NULL: k and v only */
    const float *k, *v;
    uint64_t ld_q, ld_k, ld_v;                               /* floats from row to row */
    const float *q_bias, *k_bias, *v_bias, *q_norm, *k_norm; /* or NULL */
    const float *cs, *sn;
    struct ntx_gpu_kv kv;
    uint32_t n_rows, n_query, rope_dim, neox;
    float eps;
};

/* Attention, to out[i * ld_out + head * head_v ..]. Splits of NTX_GPU_SPLIT positions are joined in order. partial:
 * device floats [n_rows x n_head x splits x (head_v + 2)], splits = most positions of a row / NTX_GPU_SPLIT, rounded
 * up. */
struct ntx_gpu_attend {
    const float *q;
    float *out, *partial;
    struct ntx_gpu_kv kv;
    uint64_t ld_q, ld_out;
    uint32_t n_rows, most_pos; /* all rows' positions are below most_pos */
    uint32_t window;           /* a row sees its last `window` positions; 0: all */
    const float *sinks;        /* [n_head] attention sinks: an extra score without a value; NULL: none */
    float scale, cap;          /* scores s become cap * tanh(s / cap); cap 0: no cap */
    /* Indexer top-k by row of the pass (struct ntx_gpu_index_topk): the row attends to n_topk slots, and splits count
     * them. NULL: no row has a list. F16 only. */
    const uint32_t *n_topk, *topk;
    uint32_t max_topk; /* row stride of `topk` */
    /* Besides the window, the row attends to pooled K that stand for `every` positions each (V is K): the top-k by
     * number, or all up to the row's position. Splits count all entries, the window first; at most most_entries. */
    struct ntx_gpu_kv pooled;     /* the pooled K; base NULL: none */
    uint32_t every, most_entries; /* most_entries 0: attention to positions only */
};

/* Attention of prompt rows. Tile t has rows [tiles[2 t], tiles[2 t] + tiles[2 t + 1]) of the launch, of one session at
 * consecutive positions, at most NTX_GPU_TILE / (n_head / n_head_kv) of them. block_tokens is 32. */
struct ntx_gpu_prefill {
    const float *q;
    float *out;
    struct ntx_gpu_kv kv;
    const uint32_t *tiles; /* device */
    uint64_t ld_q, ld_out;
    uint32_t n_tiles;
    uint32_t window; /* window and sinks as above */
    const float *sinks;
    float scale;
};

/* Indexer scores (computed/cpu/cpu.h: `index`): score[i * ld_score + p] of row i of the launch, for all entries p:
 * positions, or numbers of pooled keys. kv: the keys, one head, head_k values from key to key, of which the first
 * `width` are used. */
struct ntx_gpu_index {
    const float *q, *weights; /* weights [heads], multiplied by scale; NULL: scale alone */
    float *score;
    struct ntx_gpu_kv kv;
    uint64_t ld_q, ld_weights, ld_score;
    uint32_t n_rows, most_pos, heads, width; /* width: a multiple of 16, at most NTX_GPU_INDEX_HEAD */
    uint32_t every;                          /* positions of a key; 0: each position has its own */
    uint32_t pooled;                         /* 1: keys are stored by their number; 0: at the last of their positions */
    float scale;
};

/* Row i selects its `most` largest scores (of equal ones the first): n_topk[row] and, in order, topk[row * max_topk
 * ..], by row of the pass. n_topk UINT32_MAX: the row has no more entries than `most`, and no list. The list has slots
 * of `each` positions per entry, and with `tail` those after the last entry's; pooled: numbers. If `from` is given
 * there are no scores: the lists `from` are copied without the holes of kv's layer. */
struct ntx_gpu_index_topk {
    const float *score;
    uint32_t *n_topk, *topk;
    const uint32_t *from_n, *from;
    struct ntx_gpu_kv kv;
    uint64_t ld_score;
    uint32_t n_rows, most, max_topk, every, each, tail, pooled;
};

/* to[i] = from[rows[i]], rows of `bytes`; all sizes are multiples of 4. If weight is given, rows are floats and are
 * multiplied by the weight of routed row first + i (see struct ntx_gpu_combine). */
struct ntx_gpu_gather {
    const void *from;
    void *to;
    const uint32_t *rows; /* device; NULL: i itself */
    const float *weight;
    const uint32_t *place;
    uint64_t from_stride, to_stride, bytes;
    uint32_t n_rows, used, first;
};

/* Row i selects `used` experts by their logits, as in computed/pass/moe.c: routed rows i * used .. in the order of the
 * experts' numbers, which are also their places. Rows that are NaN select some experts. */
struct ntx_gpu_route {
    const float *logits;            /* [n_rows x n_expert] */
    const float *bias;              /* [n_expert] added to logits, or NULL */
    const float *choice;            /* [n_expert] added to scores for the selection only, or NULL */
    const float *factor;            /* [n_expert] multiplies weights, or NULL */
    float *weight;                  /* [n_rows x used] */
    uint32_t *place, *row, *expert; /* the same size */
    uint64_t ld_logits;
    uint32_t n_rows, n_expert, used;
    struct ntx_router by;
};

/* Sorts routed rows c (`used` per row, of expert selected[c]) by expert, stable. Routed row c gets number place[c]; the
 * number's row and expert are written. A wave has `wave` numbers. tiles[w * n_tiles ..] are the tiles of wave w, each
 * of at most `high` rows of one expert, by numbers relative to the wave's first; unused tiles have n 0. n_tiles: the
 * most tiles of a wave. */
#define NTX_GPU_TILES(wave, n_expert, high)                                                                            \
    (((wave) < (n_expert) ? (wave) : (n_expert)) + ((wave) < (n_expert) ? 0 : ((wave) - (n_expert)) / (high)))
struct ntx_gpu_sort {
    const uint32_t *selected;       /* [n_rows x used] */
    uint32_t *place, *row, *expert; /* the same size; they must not overlap `selected` */
    struct ntx_gpu_tile *tiles;
    uint32_t n_rows, used, n_expert, wave, high, n_tiles;
};

/* y[i] = sigmoid(gate[i]) * y[i], if gate is given. Then for each k in [i * used, (i + 1) * used) with c = place[k] -
 * first below n_choices: y[i] += weight[k] * (z[c] + bias[expert[first + c]]). bias NULL: 0; weight NULL: 1. */
struct ntx_gpu_combine {
    float *y;
    const float *z, *gate, *weight; /* z: [n_choices x n] */
    const float *bias;              /* rows of n */
    const uint32_t *place, *expert;
    uint64_t ld_y;
    uint32_t used, first, n_choices, n, n_rows;
};

/* out[i * k ..]: the k largest of x[i], of equal ones those with the lowest numbers, in the order of their numbers.
 * some: candidates of parts [n_rows x parts x k], where a part has NTX_GPU_BEST_PART values. k is at most
 * NTX_GPU_BEST_PART. */
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

/* out[i] = x[i] * 2^-e as F16, with the least e >= 0 that avoids overflow; exponents[i] = e. Rows [n_rows, n_padded)
 * become zero. */
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

/* One step of rows (model/layer.h): every operation that computed/pass/forward_cpu.c does row by row, except PUT.
 * out[i] is computed from in[i], other[i] and the weights. Rows of a launch are adjacent. Rows of buffers in by_row,
 * and angles, are at rows[i], their number in the pass. */
#define NTX_GPU_OUT   1u
#define NTX_GPU_IN    2u
#define NTX_GPU_OTHER 4u
#define NTX_GPU_CAP   255u /* an additional op: out = scale * tanh(out / scale) */
struct ntx_gpu_step {
    float *out;
    const float *in;
    float *other;         /* in[1] */
    const float *w, *w2;  /* the step's weights, or NULL */
    const float *cs, *sn; /* ROPE: [rows of the pass x rotated / 2] */
    const uint32_t *rows; /* device */
    uint64_t ld_out, ld_in, ld_other;
    uint32_t by_row, n_rows;
    float eps;         /* the model's */
    struct ntx_step s; /* NTX_OP_LORA, NTX_OP_SCALE, NTX_GPU_CAP: only the fields that they need */
};

/* Layers with a recurrent state (computed/state/recur.h has its layout). A turn is rows[first .. first + n) of the
 * launch, of one session in order. It reads the state at `from` (fresh: zeros) and writes the state at `to`, byte
 * offsets from `states`. The layer's part (the convolution's tail, or the delta net's matrix) is at layer_offset. */
struct ntx_gpu_turn {
    uint64_t from, to;
    uint32_t first, n, fresh, unused;
};
/* CONV: y = silu of each channel's last `taps` inputs times w [width x taps], in `lists` lists of equally many
 * channels. apart != 0: inputs are `apart` positions apart, and w has rows of `type`. DELTA: x has q and k of
 * key_heads and v of heads, `width` values each; y [heads x width]; keeps, takes [heads]: a row's decay and update
 * rate; by_key: keeps [heads x width]. */
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

/* After each `every` positions, one pooled K or key that stands for the last spans * every positions: `width` values
 * by the softmax of weights and places, or (places NULL) by their mean; normed by `norm`; `rotated` values from
 * `offset` on rotated by the angles of the first of the last `every` positions; all transformed by HADAMARD.
 *   turns NULL   rows of the launch. kv has the values of each position, followed by `width` weights; the result
 *                replaces the last position's
 *   else         all rows of the turns. Values and weights are the rows', and those of a state before them
 *                (computed/pass/forward_pool.c), in rows of spans * width; the result is stored by its number in kv
 * UNPOOLED: stores the rows of turns that are not pooled yet in the state. */
struct ntx_gpu_pool {
    const float *value, *weight, *norm; /* norm NULL: no norm */
    const void *places;                 /* [every] rows of spans * width */
    const double *freq;                 /* device [rotated / 2] */
    uint8_t *states;
    const struct ntx_gpu_turn *turns;           /* device */
    const uint32_t *turn_rows, *places_of_rows; /* rows of the pass, and their places in value and weight */
    struct ntx_gpu_kv kv;
    double magnitude;
    uint64_t place_bytes, state_offset, ld_value, ld_weight;
    uint32_t place_type, n_rows, n_turns, every, spans, width, rotated, offset, neox, hadamard;
    float eps, hadamard_scale; /* hadamard_scale: found by the launch */
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

    /* why: one line: no driver, a driver that is too old, no device, ... */
    int (*open)(uint32_t ordinal, struct ntx_gpu **out, char *why, size_t n);
    void (*close)(struct ntx_gpu *g); /* all its objects must be freed before */
    int (*info)(struct ntx_gpu *g, struct ntx_gpu_info *out);
    const char *(*error)(const struct ntx_gpu *g); /* of the last failed call; "": none */

    int (*alloc)(struct ntx_gpu *g, uint64_t bytes, void **out); /* device memory, 256-aligned */
    void (*free)(struct ntx_gpu *g, void *p);
    int (*host_alloc)(struct ntx_gpu *g, uint64_t bytes, void **out); /* locked host memory */
    void (*host_free)(struct ntx_gpu *g, void *p);
    int (*host_register)(struct ntx_gpu *g, void *p, uint64_t bytes); /* locks existing pages; for speed only */
    void (*host_unregister)(struct ntx_gpu *g, void *p);
    /* device address of registered memory (integrated) */
    int (*host_address)(struct ntx_gpu *g, void *p, void **dev);

    int (*stream_new)(struct ntx_gpu *g, struct ntx_gpu_stream **out);
    void (*stream_free)(struct ntx_gpu_stream *s); /* waits for queued work */
    int (*stream_sync)(struct ntx_gpu_stream *s);
    /* timed: for event_ms; each record then costs more */
    int (*event_new)(struct ntx_gpu *g, bool timed, struct ntx_gpu_event **out);
    void (*event_free)(struct ntx_gpu_event *e);
    int (*event_record)(struct ntx_gpu_event *e, struct ntx_gpu_stream *s);
    int (*event_query)(struct ntx_gpu_event *e); /* 1: passed or never recorded; 0: not yet */
    int (*event_sync)(struct ntx_gpu_event *e);
    /* both must be timed and passed */
    int (*event_ms)(struct ntx_gpu_event *from, struct ntx_gpu_event *to, float *ms);
    /* later work on s waits for e's last record */
    int (*stream_wait)(struct ntx_gpu_stream *s, struct ntx_gpu_event *e);

    int (*upload)(struct ntx_gpu_stream *s, void *dev, const void *host, uint64_t bytes);
    int (*upload_rows)(struct ntx_gpu_stream *s, void *dev, uint64_t dev_stride, const void *host, uint64_t host_stride,
                       uint64_t width, uint32_t rows);
    int (*download)(struct ntx_gpu_stream *s, void *host, const void *dev, uint64_t bytes);
    int (*fill)(struct ntx_gpu_stream *s, void *dev, int byte, uint64_t bytes);
    int (*device_copy)(struct ntx_gpu_stream *s, void *to, const void *from, uint64_t bytes);

    int (*launch)(struct ntx_gpu_stream *s, enum ntx_gpu_kernel k, const void *args);
    /* Between capture and captured, launches and fills of s are recorded and not executed. captured makes a new graph
     * if *g is NULL; else it updates *g. No other calls may come between. If either fails, the device is not lost: the
     * caller queues the work again. graph_launch queues the graph's work. */
    int (*capture)(struct ntx_gpu_stream *s);
    int (*captured)(struct ntx_gpu_stream *s, struct ntx_gpu_graph **g);
    int (*graph_launch)(struct ntx_gpu_stream *s, struct ntx_gpu_graph *g);
    void (*graph_free)(struct ntx_gpu_graph *g);
    /* z [n_rows x n_out] = x [n_rows x n_in] . w^T on the matrix units; F16 inputs, F32 output. A value has the same
     * bits each time that it is at the same place of a product of the same shape. Nothing else is promised: the
     * library chooses the order of sums by the shape. -ENOSYS: the library is missing. */
    int (*dense)(struct ntx_gpu_stream *s, const uint16_t *w, const uint16_t *x, float *z, uint32_t n_out,
                 uint32_t n_in, uint32_t n_rows);
};

#ifdef __cplusplus
extern "C"
#endif
    const struct ntx_gpu_ops *
    ntx_gpu_table(void) __attribute__((visibility("default")));

#endif
