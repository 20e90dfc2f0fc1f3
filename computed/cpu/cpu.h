/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h: the CPU back end's kernels, a table of functions chosen once at start (generic C as oracle, AVX2, AVX-512
 * VNNI, and the same with AMX tiles for many rows; on 64-bit Arm NEON with dot products of bytes, and the same with
 * i8mm for many rows). Kernels keep no state, allocate nothing and may run on any number of threads; they need 1 MiB of
 * stack.
 *
 * ACCUMULATION ORDER: for each weight type one order, which every instruction set, row count and thread count
 * follows, so that all give the same bits. y = W x for one output:
 *
 *   NTX_RULE_SIMPLE, by 32 values (model/quant.h; Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 MXFP4 ...): x is quantised in blocks of 32
 *     to int8 with an f32 scale (NTX_ACT_Q8).
 *     For block b: i = sum of the 32 integer products, exact in int32. acc[b % 16] = fmaf((float)i, dw * dx, acc[b %
 *       16]),
 *     where dw * dx is one rounded f32 product. Types with a minimum m then: acc[b % 16] = fmaf((float)xs, m * dx,
 *       acc[b % 16]), xs = the
 *     exact sum of the block's 32 x integers. (The integers are those of model/unpack.h: Q5_0's and Q4_0's have 16 and
 *       8 taken off,
 *     MXFP4's are NTX_VALUES_mxfp4.)
 *   NTX_RULE_HALVES (NVFP4): x as in SIMPLE. For block b: i of its first 16 products, then acc[b % 16] = fmaf((float)i,
 *     d0 * dx, acc[b % 16]), and
 *     the same of the other 16 with d1.
 *   NTX_RULE_SUPER, by super-blocks of 256 (Q2_K .. Q6_K ...): x in blocks of 256 to int8 with one f32 scale
 *     (NTX_ACT_Q8K).
 *     For super-block b: i = sum over sub-blocks of scale * (sum of products), exact in int32. acc[b % 16] =
 *       fmaf((float)i, d * dx, acc[b % 16]).
 *     Types with minima then: j = sum over sub-blocks of min * (sum of x integers), exact; acc[b % 16] =
 *       fmaf((float)-j, dmin * dx, acc[b % 16]).
 *   NTX_RULE_FLOAT (F32, F16, BF16): x in f32 (NTX_ACT_F32). acc[k % 32] = fmaf(w_k, x_k, acc[k % 32]).
 *   Blocks go in increasing order; lanes without a block stay +0. Then the fixed tree: 32 lanes: acc[l] += acc[l + 16]
 *     first; then
 *     acc[l] += acc[l + 8], then + 4, + 2, + 1; y = acc[0].
 *   (Integers per whole block and one lane per block: so that VNNI, a transposing reduction over 16 blocks, and matrix
 *   tiles such as AMX can all follow it.)
 *
 * Everything else (norm, rope, softmax, activation, attention) is one piece of C with explicit lanes, compiled for each
 * instruction set, without re-association or contraction (fmaf only where written), so its bits are the same everywhere
 * too. */
#ifndef NTX_COMPUTED_CPU_CPU_H
#define NTX_COMPUTED_CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/ffn_act.h"
#include "model/quant.h"

/* Forms of activations. One row of each, contiguous, 64-byte aligned (layout private to cpu/, size by
 * ntx_act_row_bytes):
 *   ACT_F32: float [n]
 *   ACT_Q8:  int8 [n], a scale and a sum for each 32 of them
 *   ACT_Q8K: int8 [n], a scale for each 256, sums of each 16 and 32
 * Scale = max|x| / 127 of the block, integers to nearest even. A block that holds a NaN or an infinity gets the scale
 * NaN. */
enum ntx_act { NTX_ACT_F32, NTX_ACT_Q8, NTX_ACT_Q8K, NTX_N_ACTS };

enum ntx_act ntx_act_for(uint32_t type);                 /* which form a weight type multiplies by */
size_t ntx_act_row_bytes(enum ntx_act form, uint32_t n); /* a multiple of 64 */

/* y[r * ldy + o] = W[o] . x[r]   for o in [0, n_out), r in [0, n_rows).
 * w: n_out rows of row_bytes, alignment 2 only (GGUF's 32-byte alignment is lost with row offsets such as 34 bytes), of
 * MXFP4 none. x: n_rows rows in the type's form, x_stride bytes apart. Reads not one byte past w + n_out * row_bytes.
 * */
typedef void ntx_matmul_fn(const void *w, size_t row_bytes, uint32_t n_out, uint32_t n_in, const void *x,
                           size_t x_stride, uint32_t n_rows, float *y, size_t ldy);

/* Rows that are interleaved together: weights which stay where they are may be re-arranged in place (interleaved.h), a
 * slice at a time, and are multiplied faster then (docs/log/kernels-x86.md). Only `interleaved` understands them from
 * there on. */
#define NTX_SLICE_OUTS 16

/* slice: of NTX_SLICE_OUTS outputs, row_bytes each; scratch: as many bytes. */
typedef void ntx_interleave_fn(void *slice, size_t row_bytes, void *scratch);

/* y[r * ldy + k] = fmaf(a[r * lda + c], W[c][k], y[r * ldy + k]) for c = 0, 1, ..., n_cols - 1 in turn, where a is not
 *   0;
 * k in [0, n), r in [0, n_rows). W: columns of n values each, in whole blocks, col_bytes apart, aligned as rows are;
 * the values are those of ntx_type_info(type)->dequant. Columns that no row has a use for are not read. A wide W may be
 * cut at blocks anywhere: W[c] is summed for itself in every k. */
typedef void ntx_columns_fn(const void *w, size_t col_bytes, uint32_t n_cols, uint32_t n, const float *a, size_t lda,
                            uint32_t n_rows, float *y, size_t ldy);

/* How a head's K and V of a block of positions are kept, n values each:
 *   F16:  uint16 [position][n]
 *   Q8_0: n a multiple of 32, NTX_KV_Q8_TOKENS positions; for each 32 values of a position an F16 scale d (max|x| /
 *     127) and integers q, value = d * q.
 *     K: uint8 [n / 4][NTX_KV_Q8_TOKENS][4 values], q + 128; then F16 scales [n / 32][NTX_KV_Q8_TOKENS]
 *     V: for each NTX_KV_Q8_PANEL values, or those that are left, int8 [NTX_KV_Q8_TOKENS / 4][them][4 positions]; then
 *       the scales likewise
 *   Q4_0: likewise, of values that were rotated (attn_q4.h), up to NTX_KV_Q4_HEAD of them; d is max|x| / 7.5, rounded
 *     to F16, and q from -8 to 7. As q + 8 two lie in a byte, the first low:
 *     K: [n / 8][NTX_KV_Q8_TOKENS][4], values 8i + j and 8i + 4 + j
 *     V: [NTX_KV_Q8_TOKENS / 4][half of them][4 positions], a value of the first half and one of the second */
enum ntx_kv_type { NTX_KV_F16, NTX_KV_Q8_0, NTX_KV_Q4_0, NTX_N_KV };
#define NTX_KV_Q8_TOKENS 32
#define NTX_KV_Q8_PANEL  64
#define NTX_KV_Q4_HEAD   256

#define NTX_ATTN_HEADS   8  /* query heads of one call */
#define NTX_ATTN_VECTORS 64 /* its rows times heads */

/* The query heads that share a KV head, of a row or of several at neighbouring positions of one context, against its K
 * and V, stored in blocks. Rows do not change a bit of one another, nor does how heads are grouped. */
struct ntx_attn {
    const float *q;        /* [n_rows x ld_q], a row [n_q x head_k]; already rotated */
    float *out;            /* [n_rows x ld_out], a row [n_q x head_v] */
    uint32_t n_q, n_rows;  /* 1..NTX_ATTN_HEADS; 1..NTX_ATTN_VECTORS / n_q */
    size_t ld_q, ld_out;   /* floats from row to row */
    const void *const *k;  /* per KV block: this KV head's K of block_tokens positions */
    const void *const *v;  /* its V */
    uint32_t block_tokens; /* Q8_0, Q4_0: NTX_KV_Q8_TOKENS */
    uint32_t n_pos;        /* row r sees positions 0 .. n_pos + r - 1 */
    uint32_t head_k, head_v;
    bool v_in_k;            /* V is the first head_v values of K, which v points to: F16 only */
    float scale;            /* 1 / sqrt(head_k) */
    float cap;              /* scores s become cap * tanh(s / cap); 0: they stay */
    uint32_t window, first; /* of those a row sees the last `window` only (0: all), and none before `first`. Blocks that
                               no row sees are not looked at */
    const float *sinks;     /* [n_q] a score more, that takes its weight and has no value; NULL: none */
    const uint8_t *hole;    /* bit p set: position p has no KV in this layer (skipped); NULL when none */
};

/* The first position that row r sees. */
static inline uint32_t ntx_attn_from(const struct ntx_attn *a, uint32_t r)
{
    uint32_t end = a->n_pos + r;
    uint32_t from = a->window && a->window < end ? end - a->window : 0;
    return from > a->first ? from : a->first;
}

/* A panel of the matrix S of a head of a delta net: columns for n_values of its values, 16 or 32, a row of them for
 * each key. */
struct ntx_delta_net {
    const float *from; /* [n_keys x n_values] S */
    float *to;         /* the same, may be `from`: decay * S + k (x) d, the product rounded first, then fused */
    uint32_t n_keys, n_values;
    float decay;
    const float *decays; /* [n_keys] the same for each of them, or NULL: all have that one */
    const float *k, *d,
        *q; /* [n_keys], [n_values], [n_keys]; k NULL: S is only looked at, and `to` and `out` are not written */
    const float *next_k; /* [n_keys] */
    float *out,
        *seen; /* [n_values] to'q, to'next_k (of `from` where nothing is folded in): fused, in the order of the keys */
};

/* What positions are chosen by: score[p] = sum over queries h of weights[h] * max(q_h . key[p], 0). A product is fused,
 * value after value; the sum goes by 16 lanes h % 16, fused, h rising, and the fixed tree. A key that is NULL, or no
 * number, gives minus infinity. */
struct ntx_index {
    const float *q, *weights;   /* [heads x width], [heads] */
    uint32_t heads, width;      /* 1..NTX_INDEX_HEADS_MAX; 16..NTX_INDEX_HEAD_MAX, a multiple of 16 */
    const uint16_t *const *key; /* [n] F16 */
    float *score;               /* [n] */
    uint32_t n;
};

struct ntx_cpu_ops {
    const char *name;                      /* "generic", "avx2", "avx512", "amx", "neon", "i8mm" */
    ntx_matmul_fn *matmul[NTX_TYPE_LIMIT]; /* NULL for types that are not types */
    bool own[NTX_TYPE_LIMIT]; /* matmul is of this instruction set's own; else it is made of the plain unpacking: the
                                 same bits, slower */
    ntx_matmul_fn *interleaved[NTX_TYPE_LIMIT]; /* as matmul, bit for bit, of whole slices (n_out is a multiple of 16);
                                                   NULL: the type is not interleaved */
    ntx_interleave_fn *interleave[NTX_TYPE_LIMIT];
    ntx_columns_fn *columns[NTX_TYPE_LIMIT];
    void (*act_quantize[NTX_N_ACTS])(const float *x, void *dst, uint32_t n); /* one row; F32: a copy */
    /* y = x / sqrt(mean(x^2) + eps) * w; the mean in 16 lanes of double joined by the fixed tree; y may be x; w NULL: 1
     * */
    void (*rmsnorm)(const float *x, const float *w, float eps, uint32_t n, float *y);
    /* rotates n_heads heads of width head_dim in place: first `dim` values by cos/sin [dim / 2] of the row's position
     * */
    void (*rope_norm)(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t dim, const float *cs, const float *sn);
    void (*rope_neox)(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t dim, const float *cs, const float *sn);
    void (*glu[NTX_N_FFN_ACTS])(const float *gate, const float *up, uint32_t n,
                                float *y);                              /* as enum ntx_ffn_act says; y may be gate */
    void (*add)(float *x, const float *y, uint32_t n);                  /* x += y */
    void (*add_scaled)(float *x, float by, const float *y, uint32_t n); /* x += by * y, the product rounded first */
    void (*exp_of)(float *x, float less, uint32_t n);                   /* x = e^(x - less), within 1 ulp */
    void (*cap)(float *x, float cap, uint32_t n);                       /* x = cap * tanh(x / cap) */
    void (*mul)(float *x, const float *y, uint32_t n);                  /* x *= y */
    void (*sigmoid)(float *x, uint32_t n);                              /* x = 1 / (1 + e^-x) */
    /* y[c] = silu(sum over j of w[j][c] * x[j][c], fused, in order); n a multiple of 16 */
    void (*conv)(const float *w, const float *const *x, uint32_t taps, uint32_t n, float *y);
    void (*unit)(float *x, float eps, uint32_t n); /* x / sqrt(sum of squares + eps), that sum as rmsnorm's */
    void (*delta)(const struct ntx_delta_net *a);
    void (*index)(const struct ntx_index *a);
    void (*f16_store)(const float *x, uint16_t *dst, uint32_t n); /* round to nearest even */
    /* the n values of position `at` of a block, of one head */
    void (*k_store[NTX_N_KV])(const float *x, void *block, uint32_t at, uint32_t n);
    void (*v_store[NTX_N_KV])(const float *x, void *block, uint32_t at, uint32_t n);
    /* By parts of 256 positions, counted from 0. Per part: scores (16 lanes over the head, fixed tree), their exact
     * maximum with that of the parts before, weights e^(score - maximum) within 1 ulp, their sum in lanes p % 16, then
     * sum of weight * V in order of p, fused; sums of the parts before are first multiplied by e^(their maximum - the
     * new one). At the end a product with 1 / sum. 0 where all positions are holes. A sink is the first maximum, and
     * the first weight of lane 0. F16: K and V at holes are not touched.
     *   Q8_0: q in blocks of 32 to int8 with an f32 scale, as NTX_ACT_Q8. score = for each block in turn fmaf((float)i,
     *     dk * dq, score), i = the
     * exact integer product. For each block of V: x = weight * d of each position, top = the largest of the part; out
     * += (top / 32767) * (float)i, fused, i = the exact sum of q times x * (32767 / top), rounded once, to the nearest
     * even integer; a position that is no number makes the block's out NaN.
     *   Q4_0: as Q8_0, of q rotated; then out is rotated back. */
    void (*attend[NTX_N_KV])(const struct ntx_attn *a);
};

/* force: NULL for the best this CPU has, or a name; NULL is returned for an unknown name or one this CPU lacks. */
const struct ntx_cpu_ops *ntx_cpu_pick(const char *force);
const char *ntx_cpu_names(void); /* comma separated, for messages */

#endif
