/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h: the CPU back end's kernels, a table of functions that is selected once at start: generic C as the reference,
 * AVX2, AVX-512 VNNI, and the same with AMX tiles for many rows; on 64-bit Arm, NEON with dot products of bytes, and
 * the same with i8mm for many rows. Kernels keep no state, allocate nothing and may run on any number of threads. They
 * need 1 MiB of stack.
 *
 * ACCUMULATION ORDER: each weight type has one order, which every instruction set, row count and thread count follows,
 * so that all give the same bits. y = W x for one output:
 *
 *   NTX_RULE_SIMPLE, by 32 values (model/quant.h; Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 MXFP4 ...): x is quantised in blocks of 32
 *     to int8 with an f32 scale (NTX_ACT_Q8).
 *     For block b: i = sum of the 32 integer products, exact in int32.
 *       acc[b % 16] = fmaf((float)i, dw * dx, acc[b % 16]), where dw * dx is one rounded f32 product.
 *     Types with a minimum m then: acc[b % 16] = fmaf((float)xs, m * dx, acc[b % 16]), xs = the exact sum of the
 *       block's 32 x integers.
 *     The integers are those of model/unpack.h: 16 is subtracted from Q5_0's and 8 from Q4_0's; MXFP4's are
 *       NTX_VALUES_mxfp4.
 *   NTX_RULE_HALVES (NVFP4): x as in SIMPLE. For block b: i of its first 16 products, then
 *     acc[b % 16] = fmaf((float)i, d0 * dx, acc[b % 16]); then the same for the other 16 with d1.
 *   NTX_RULE_SUPER, by super-blocks of 256 (Q2_K .. Q6_K ...): x is quantised in blocks of 256 to int8 with one f32
 *     scale (NTX_ACT_Q8K).
 *     For super-block b: i = sum over sub-blocks of scale * (sum of products), exact in int32.
 *       acc[b % 16] = fmaf((float)i, d * dx, acc[b % 16]).
 *     Types with minima then: j = sum over sub-blocks of min * (sum of x integers), exact.
 *       acc[b % 16] = fmaf((float)-j, dmin * dx, acc[b % 16]).
 *   NTX_RULE_FLOAT (F32, F16, BF16): x in f32 (NTX_ACT_F32). acc[k % 32] = fmaf(w_k, x_k, acc[k % 32]).
 *
 *   Blocks are added in increasing order; lanes without a block stay +0. Then the fixed tree: of 32 lanes first
 *   acc[l] += acc[l + 16]; then acc[l] += acc[l + 8], then + 4, + 2, + 1; y = acc[0].
 *   (Integers per whole block and one lane per block: so VNNI, a transposing reduction over 16 blocks, and matrix tiles
 *   such as AMX can all follow this order.)
 *
 * All other operations (norm, rope, softmax, activation, attention) are one C source with explicit lanes, compiled for
 * each instruction set without re-association or contraction (fmaf only where written). So their bits are the same
 * everywhere, too. */
#ifndef NTX_COMPUTED_CPU_CPU_H
#define NTX_COMPUTED_CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/ffn_act.h"
#include "model/quant.h"

/* Forms of activations. A row is contiguous and 64-byte aligned; its layout is private to computed/cpu, its size is
 * ntx_act_row_bytes:
 *   ACT_F32: float [n]
 *   ACT_Q8:  int8 [n], a scale and a sum for each 32 of them
 *   ACT_Q8K: int8 [n], a scale for each 256, sums of each 16 and 32
 * Scale = max|x| / 127 of the block; integers are rounded to nearest even. A block with a NaN or an infinity gets the
 * scale NaN. */
enum ntx_act { NTX_ACT_F32, NTX_ACT_Q8, NTX_ACT_Q8K, NTX_N_ACTS };

enum ntx_act ntx_act_for(uint32_t type);                 /* the form that a weight type is multiplied by */
size_t ntx_act_row_bytes(enum ntx_act form, uint32_t n); /* a multiple of 64 */

/* y[r * ldy + o] = W[o] . x[r]   for o in [0, n_out), r in [0, n_rows). w: n_out rows of row_bytes, 2-aligned only
 * (GGUF's 32-byte alignment is lost by row sizes such as 34 bytes); MXFP4 is unaligned. x: n_rows rows in the type's
 * form, x_stride bytes apart. Reads no byte after w + n_out * row_bytes. */
typedef void ntx_matmul_fn(const void *w, size_t row_bytes, uint32_t n_out, uint32_t n_in, const void *x,
                           size_t x_stride, uint32_t n_rows, float *y, size_t ldy);

/* Outputs of a slice. Weights that stay in memory may be re-arranged in place (interleaved.h), a slice at a time, so
 * that they are multiplied faster (docs/log/kernels-x86.md). From then on only `interleaved` can read them. */
#define NTX_SLICE_OUTS 16

/* The same products, bit for bit, where many rows pay for copies of the weights and of x in `scratch` (64-byte
 * aligned). A kernel's tile has NTX_MANY_TILE rows and NTX_MANY_OUTS outputs. */
typedef void ntx_many_fn(const void *w, size_t row_bytes, uint32_t n_out, uint32_t n_in, const void *x, size_t x_stride,
                         uint32_t n_rows, float *y, size_t ldy, void *scratch, size_t scratch_bytes);
#define NTX_MANY_ROWS  48 /* fewer do not pay */
#define NTX_MANY_TILE  12
#define NTX_MANY_OUTS  32
#define NTX_MANY_BYTES (4u << 20) /* most bytes of scratch */

/* Bytes of scratch that suit products of so many values and rows; 0: they are not worth it. */
static inline size_t ntx_many_bytes(uint32_t n_in, uint32_t n_rows)
{
    const uint64_t row = ((uint64_t)n_in + 31) / 32 * 32 * sizeof(float), least = NTX_MANY_OUTS + NTX_MANY_ROWS,
                   all = NTX_MANY_OUTS + (uint64_t)n_rows;
    if (n_rows < NTX_MANY_ROWS || least * row > NTX_MANY_BYTES)
        return 0;
    return all * row < NTX_MANY_BYTES ? all * row : NTX_MANY_BYTES;
}

/* slice: NTX_SLICE_OUTS outputs, row_bytes each; scratch: as many bytes. */
typedef void ntx_interleave_fn(void *slice, size_t row_bytes, void *scratch);

/* y[r * ldy + k] = fmaf(a[r * lda + c], W[c][k], y[r * ldy + k]) for c = 0, 1, ..., n_cols - 1 in order, for each a
 * that is not 0; k in [0, n), r in [0, n_rows). W: columns of n values each, in whole blocks, col_bytes apart, aligned
 * as rows are; the values are those of ntx_type_info(type)->dequant. Columns that no row uses are not read. A wide W
 * may be cut at any block: each k is summed by itself. */
typedef void ntx_columns_fn(const void *w, size_t col_bytes, uint32_t n_cols, uint32_t n, const float *a, size_t lda,
                            uint32_t n_rows, float *y, size_t ldy);

/* Layout of a head's K and V of a block of positions, n values each:
 *   F16:  uint16 [position][n]
 *   Q8_0: n a multiple of 32, NTX_KV_Q8_TOKENS positions; for each 32 values of a position an F16 scale d
 *     (max|x| / 127) and integers q, value = d * q.
 *     K: uint8 [n / 4][NTX_KV_Q8_TOKENS][4 values], q + 128; then F16 scales [n / 32][NTX_KV_Q8_TOKENS]
 *     V: for each NTX_KV_Q8_PANEL values, or the rest, int8 [NTX_KV_Q8_TOKENS / 4][values][4 positions]; then scales
 *       likewise
 *   Q4_0: likewise, of values that were rotated (attn_q4.h), up to NTX_KV_Q4_HEAD of them.
 *     K: d is max|x| / 31.5, rounded to F16, and q from -32 to 31. q + 32 has its low 4 bits in [n / 8]
 *       [NTX_KV_Q8_TOKENS][4], values 8i + j (low) and 8i + 4 + j; behind all of these its high 2 bits in [n / 16]
 *       [NTX_KV_Q8_TOKENS][4], values 16i + j (lowest), 16i + 4 + j, 16i + 8 + j and 16i + 12 + j
 *     V: q is one of the 16 numbers NTX_VALUES_iq4_nl, and d the best of several. A byte has
 *       two indices: [NTX_KV_Q8_TOKENS / 4][half the values][4 positions], one of the first half (low) and one of the
 *       second */
enum ntx_kv_type { NTX_KV_F16, NTX_KV_Q8_0, NTX_KV_Q4_0, NTX_N_KV };
#define NTX_KV_Q8_TOKENS 32
#define NTX_KV_Q8_PANEL  64
#define NTX_KV_Q4_HEAD   256
#define NTX_KV_LAYOUT    2 /* rises when K or V of Q8_0 or Q4_0 are stored in another way: files of texts name it */

/* Angles of a pair of values that RoPE rotates, at any position: spans of NTX_TURNS_FAR blocks by `freq`, the block in
 * its span by `far`, the place in the block by `near`. */
#define NTX_TURNS_FAR    64
#define NTX_BIAS_PAIRS   32 /* most pairs of a head with a bias apart */
struct ntx_turns {
    double freq;                     /* radians per position */
    double far[NTX_TURNS_FAR][2];    /* cosine, sine of NTX_KV_Q8_TOKENS * freq * i */
    float near[2][NTX_KV_Q8_TOKENS]; /* cosines, sines of freq * i */
};

/* Added to the scores for pairs of K that are kept without their rotated bias: for each pair in order, x[0] times
 * the cosine of its angle at the position, then x[1] times the sine, fused. Q8_0 and Q4_0. */
struct ntx_attn_bias {
    uint32_t n;            /* 1..NTX_BIAS_PAIRS pairs */
    const float *x;        /* [n_rows x n_q][n][2], times the scale */
    const uint16_t *angle; /* [n] */
    const struct ntx_turns *turns;
};

#define NTX_ATTN_HEADS   8  /* most query heads of a call */
#define NTX_ATTN_VECTORS 64 /* most rows times heads of a call */

/* Attention of the query heads that share a KV head, of one row or of several rows at adjacent positions of one
 * context. K and V are stored in blocks. Neither other rows nor the grouping of heads change a bit of a row. */
struct ntx_attn {
    const float *q;        /* [n_rows x ld_q], a row [n_q x head_k]; already rotated */
    float *out;            /* [n_rows x ld_out], a row [n_q x head_v] */
    uint32_t n_q, n_rows;  /* 1..NTX_ATTN_HEADS; 1..NTX_ATTN_VECTORS / n_q */
    size_t ld_q, ld_out;   /* floats from row to row */
    const void *const *k;  /* per KV block: the KV head's K of block_tokens positions */
    const void *const *v;  /* its V */
    uint32_t block_tokens; /* Q8_0, Q4_0: NTX_KV_Q8_TOKENS */
    uint32_t n_pos;        /* row r sees positions 0 .. n_pos + r - 1; */
    bool level;            /* F16, without a window: each row sees 0 .. n_pos - 1 */
    uint32_t head_k, head_v;
    bool v_in_k;         /* V is the first head_v values of K, and v points to K: F16 only */
    float scale;         /* 1 / sqrt(head_k) */
    float cap;           /* scores s become cap * tanh(s / cap); 0: no cap */
    uint32_t window;     /* a row sees its last `window` positions; 0: all */
    uint32_t first;      /* rows see no position before this. Blocks that no row sees are not read */
    const float *sinks;  /* [n_q] attention sinks: an extra score that takes weight and has no value; NULL: none */
    const uint8_t *hole; /* bit p: position p has no KV in this layer (it was skipped); NULL: no holes */
    const struct ntx_attn_bias *bias; /* NULL: none */
};

/* The first position that row r sees. */
static inline uint32_t ntx_attn_from(const struct ntx_attn *a, uint32_t r)
{
    uint32_t end = a->n_pos + (a->level ? 0 : r);
    uint32_t from = a->window && a->window < end ? end - a->window : 0;
    return from > a->first ? from : a->first;
}

#define NTX_ATTN_PART 256 /* positions whose scores are weighed together */

/* Attention of one row that threads share, so that each byte of K and V is read by one of them. Positions come in
 * rounds. Of a round threads take, with a barrier after each step: scores by positions, weights by query heads, sums of
 * V by the values of a head. The bits are those of `attend`. */
struct ntx_attn_round {
    uint32_t first, end; /* its positions. first: a multiple of NTX_ATTN_PART; end: another, or n_pos */
    uint32_t ld;         /* a multiple of NTX_ATTN_PART, at least end - first */
    float *w;            /* [n_q x ld] scores, then weights */
    float *by;           /* [n_q x ld / NTX_ATTN_PART] factor of the sums of earlier parts */
    struct ntx_attn_sum {
        float max, lanes[16];
    } * sum; /* [n_q] from round to round */
};

/* The first position of the first part that the row sees: there the first round begins. */
static inline uint32_t ntx_attn_begins(const struct ntx_attn *a)
{
    return ntx_attn_from(a, 0) / NTX_ATTN_PART * NTX_ATTN_PART;
}

/* A panel of a delta net head's matrix S: columns of n_values values (16 or 32), a row for each key. */
struct ntx_delta_net {
    const float *from; /* [n_keys x n_values] S */
    float *to;         /* decay * S + k (x) d, may be `from`; decay * S is rounded, then the sum is fused */
    uint32_t n_keys, n_values;
    float decay;
    const float *decays;    /* [n_keys] decay per key; NULL: `decay` for all */
    const float *k, *d, *q; /* [n_keys], [n_values], [n_keys]; k NULL: S is not updated; `to`, `out` are not written */
    const float *next_k;    /* [n_keys] */
    float *out;             /* [n_values] to'q, fused, in the order of the keys */
    float *seen;            /* [n_values] to'next_k (from'next_k without an update), likewise */
};

/* A Mamba-1 scan of 16 values, each with a state of its own: for each key k
 * to[k] = exp(t rates[k]) from[k] + b[k] tx, the product rounded first, then fused; out = sum of c[k] to[k], fused, in
 * the order of the keys. */
struct ntx_scan_each {
    const float *t, *tx; /* [16], [16] */
    const float *rates;  /* [n_keys x 16] */
    const float *b, *c;  /* [n_keys] */
    const float *from;   /* [n_keys x 16] */
    float *to;           /* [n_keys x 16], may be `from` */
    float *out;          /* [16] */
    uint32_t n_keys;
};

/* Indexer scores of positions: score[p] = sum over queries h of weights[h] * max(q_h . key[p], 0). A product is fused,
 * value after value; the sum uses 16 lanes h % 16, fused, with h rising, and the fixed tree. A key that is NULL, or a
 * NaN score, gives minus infinity.
 *
 * With `ld` the products stay apart: score[h * ld + p] = q_h . key[p], and there are no weights. */
struct ntx_index {
    const float *q, *weights;   /* [heads x width], [heads] */
    size_t ld;                  /* 0: scores are summed over the queries */
    uint32_t heads, width;      /* 1..NTX_INDEX_HEADS_MAX; 16..NTX_INDEX_HEAD_MAX, a multiple of 16 */
    const uint16_t *const *key; /* [n] F16 */
    float *score;               /* [n], or [heads x ld] */
    uint32_t n;
};

struct ntx_cpu_ops {
    const char *name;                      /* "generic", "avx2", "avx512", "amx", "neon", "i8mm" */
    ntx_matmul_fn *matmul[NTX_TYPE_LIMIT]; /* NULL for numbers without a type, and for high and low bits */
    /* matmul is written for this instruction set; false: it uses the plain unpacking, with the same bits, but slower */
    bool own[NTX_TYPE_LIMIT];
    ntx_many_fn *many[NTX_TYPE_LIMIT]; /* NULL: matmul is as good for many rows */
    /* as matmul, bit for bit, for whole slices (n_out is a multiple of 16); NULL: the type is not interleaved */
    ntx_matmul_fn *interleaved[NTX_TYPE_LIMIT];
    ntx_interleave_fn *interleave[NTX_TYPE_LIMIT];
    ntx_columns_fn *columns[NTX_TYPE_LIMIT];
    /* Blocks of types that are kept in two parts, joined (model/planes.h). */
    void (*join)(uint32_t type, const uint8_t *high, const uint8_t *low, size_t n_blocks, uint8_t *out);
    void (*act_quantize[NTX_N_ACTS])(const float *x, void *dst, uint32_t n); /* a row; F32: a copy */
    /* y = x / sqrt(mean(x^2) + eps) * w; the mean in 16 lanes of double, joined by the fixed tree; y may be x; w NULL:
     * 1 */
    void (*rmsnorm)(const float *x, const float *w, float eps, uint32_t n, float *y);
    /* rotates n_heads heads of width head_dim in place: the first `dim` values, by cos/sin [dim / 2] of the position */
    void (*rope_norm)(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t dim, const float *cs, const float *sn);
    void (*rope_neox)(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t dim, const float *cs, const float *sn);
    void (*glu[NTX_N_FFN_ACTS])(const float *gate, const float *up, uint32_t n, float *y); /* y may be gate */
    void (*add)(float *x, const float *y, uint32_t n);                                     /* x += y */
    void (*add_scaled)(float *x, float by, const float *y, uint32_t n); /* x += by * y, the product rounded first */
    void (*exp_of)(float *x, float less, uint32_t n);                   /* x = e^(x - less), within 1 ulp */
    void (*cap)(float *x, float cap, uint32_t n);                       /* x = cap * tanh(x / cap) */
    void (*mul)(float *x, const float *y, uint32_t n);                  /* x *= y */
    void (*sigmoid)(float *x, uint32_t n);                              /* x = 1 / (1 + e^-x) */
    /* y[c] = silu(sum over j of w[j][c] * x[j][c], fused, in order); n a multiple of 16 */
    void (*conv)(const float *w, const float *const *x, uint32_t taps, uint32_t n, float *y);
    void (*unit)(float *x, float eps, uint32_t n); /* x / sqrt(sum of squares + eps); the sum as in rmsnorm */
    void (*delta)(const struct ntx_delta_net *a);
    void (*index)(const struct ntx_index *a);
    void (*scan_each)(const struct ntx_scan_each *a);
    void (*turn)(float *x, uint32_t n); /* Walsh-Hadamard transform (attn_q4.h), its own inverse */
    void (*f16_store)(const float *x, uint16_t *dst, uint32_t n); /* round to nearest even */
    /* stores the n values of a head at position `at` of a block */
    void (*k_store[NTX_N_KV])(const float *x, void *block, uint32_t at, uint32_t n);
    void (*v_store[NTX_N_KV])(const float *x, void *block, uint32_t at, uint32_t n);
    /* In parts of 256 positions, counted from 0. Per part: scores (16 lanes over the head, fixed tree); their exact
     * maximum with that of earlier parts; weights e^(score - maximum) within 1 ulp; their sum in lanes p % 16; then
     * the sum of weight * V in the order of p, fused. Sums of earlier parts are first multiplied by e^(their maximum -
     * the new one). At the end a product with 1 / sum; 0 if all positions are holes. A sink is the first maximum, and
     * the first weight of lane 0. F16: K and V at holes are not read.
     *   Q8_0: q in blocks of 32 to int8 with an f32 scale, as NTX_ACT_Q8. score = for each block in order
     *     fmaf((float)i, dk * dq, score), i = the exact integer product. For each block of V: x = weight * d of each
     *     position, top = the largest of the part; out += (top / 32767) * (float)i, fused, i = the exact sum of q
     *     times x * (32767 / top), rounded once, to the nearest even integer. A position that is NaN makes the
     *     block's out NaN.
     *   Q4_0: as Q8_0, with q rotated; then out is rotated back. */
    void (*attend[NTX_N_KV])(const struct ntx_attn *a);
    /* The steps of a round, with a->n_rows 1. Scores of positions [from, to), whole parts; weights of query head g;
     * values [e, end) of all heads into out, multiples of 32 but for head_v. NULL: of this type there are none. */
    void (*attn_scores[NTX_N_KV])(const struct ntx_attn *a, const struct ntx_attn_round *r, uint32_t from, uint32_t to);
    void (*attn_weights)(const struct ntx_attn *a, const struct ntx_attn_round *r, uint32_t g);
    void (*attn_values[NTX_N_KV])(const struct ntx_attn *a, const struct ntx_attn_round *r, uint32_t e, uint32_t end);
};

/* force: NULL for the best table of this CPU, or a name. Returns NULL if the name is unknown or the CPU lacks it. */
const struct ntx_cpu_ops *ntx_cpu_pick(const char *force);
const char *ntx_cpu_names(void); /* comma separated, for messages */

#endif
