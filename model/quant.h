/* SPDX-License-Identifier: Apache-2.0 */
/* quant.h: the tensor types of GGUF that ntx computes with: sizes, block layouts, exact dequantisation.
 *
 * A type is a row of NTX_TYPES below, a layout, and one unpacking (unpack.h). From these are made: the definition as
 * floats (quant.c), the plain kernels of every instruction set (computed/cpu/mm_plain.h, columns.h), panels for many
 * rows, CUDA's product and values. Faster kernels of an instruction set come on
 * top of these, and give the same bits. Numbers are
 * ggml's type ids, since files carry them. */
#ifndef NTX_MODEL_QUANT_H
#define NTX_MODEL_QUANT_H

#include <stddef.h>
#include <stdint.h>

enum ntx_type {
    NTX_F32 = 0,
    NTX_F16 = 1,
    NTX_Q4_0 = 2,
    NTX_Q4_1 = 3,
    NTX_Q5_0 = 6,
    NTX_Q5_1 = 7,
    NTX_Q8_0 = 8,
    NTX_Q2_K = 10,
    NTX_Q3_K = 11,
    NTX_Q4_K = 12,
    NTX_Q5_K = 13,
    NTX_Q6_K = 14,
    NTX_IQ2_XXS = 16,
    NTX_IQ2_XS = 17,
    NTX_IQ3_XXS = 18,
    NTX_IQ1_S = 19,
    NTX_IQ4_NL = 20,
    NTX_IQ3_S = 21,
    NTX_IQ2_S = 22,
    NTX_IQ4_XS = 23,
    NTX_I8 = 24,  /* plain bytes (model/pack.h), never multiplied as such */
    NTX_I32 = 26, /* numbers of experts, a table by token (NTX_USE_NUMBERS) */
    NTX_I64 = 27, /* numbers of tokens, for drafters with a smaller vocabulary (model/arch/eagle3.c) */
    NTX_IQ1_M = 29,
    NTX_BF16 = 30,
    NTX_TQ1_0 = 34,
    NTX_TQ2_0 = 35,
    NTX_MXFP4 = 39,
    NTX_NVFP4 = 40,
    NTX_Q1_0 = 41,
    NTX_Q2_0 = 42,
    /* High and low bits of the types before (planes.h). Files have other numbers for these. */
    NTX_PLANES_FIRST = 43,
    NTX_Q4_K_LOW1 = NTX_PLANES_FIRST,
    NTX_Q4_K_HIGH3,
    NTX_Q4_K_LOW2,
    NTX_Q4_K_HIGH2,
    NTX_Q5_K_LOW2,
    NTX_Q5_K_HIGH3,
    NTX_Q6_K_LOW2,
    NTX_Q6_K_HIGH4,
    NTX_Q5_0_LOW2,
    NTX_Q5_0_HIGH3,
    NTX_Q8_0_LOW4,
    NTX_Q8_0_HIGH4,
    NTX_TYPE_LIMIT, /* one past the largest id */
};

/* How a type is multiplied; computed/cpu/cpu.h has the order of sums. */
enum ntx_rule {
    NTX_RULE_FLOAT,  /* x is F32 */
    NTX_RULE_SIMPLE, /* w = d * q + m, x is int8; sums by 32 values */
    NTX_RULE_HALVES, /* like SIMPLE without m, with a d for each 16 values */
    NTX_RULE_SUPER,  /* w = d * scale * q - dmin * min, x is int8; 256 values, with a scale, and a min, for each 16 */
};

struct ntx_type_info {
    const char *name; /* "Q4_K" */
    uint32_t block;   /* values in a block: 1 or a multiple of 32 */
    uint32_t block_bytes;
    /* Defines the type: float32 arithmetic, one rounding per operation, (d * scale) * q, then the minimum. NULL: low
     * bits, which have no values alone. */
    void (*dequant)(const void *blocks, float *out, size_t n_blocks);
    enum ntx_rule rule;
    uint8_t n_halves, half_at[2]; /* offsets of the half-precision scales in a block */
};

/* NULL: ntx does not know the type. */
const struct ntx_type_info *ntx_type_info(uint32_t type);

/* Bytes of a row of n values; 0 when n is not a multiple of the block or the type is unknown. */
size_t ntx_row_bytes(uint32_t type, uint64_t n);

float ntx_f16_to_f32(uint16_t h);
uint16_t ntx_f32_to_f16(float f); /* round to nearest even */

/* Block layouts, as files hold them (little-endian, packed, alignment 1, 2 or 4 as given by the types). */
#define NTX_QK  32  /* values in a simple block */
#define NTX_QKK 256 /* values in a super-block */
struct ntx_block_q4_0 {
    uint16_t d;
    uint8_t qs[16];
};
struct ntx_block_q4_1 {
    uint16_t d, m;
    uint8_t qs[16];
};
struct ntx_block_q5_0 {
    uint16_t d;
    uint8_t qh[4];
    uint8_t qs[16];
};
struct ntx_block_q5_1 {
    uint16_t d, m;
    uint8_t qh[4];
    uint8_t qs[16];
};
struct ntx_block_q8_0 {
    uint16_t d;
    int8_t qs[32];
};
struct ntx_block_mxfp4 {
    uint8_t e;
    uint8_t qs[16];
}; /* e: the scale's exponent */
struct ntx_block_iq4_nl {
    uint16_t d;
    uint8_t qs[16];
};
struct ntx_block_q2_k {
    uint8_t scales[16];
    uint8_t qs[64];
    uint16_t d, dmin;
};
struct ntx_block_q3_k {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint16_t d;
};
struct ntx_block_q4_k {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
};
struct ntx_block_q5_k {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
};
struct ntx_block_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
};
/* i-quants: indices into codebooks (codes.h), signs, and scales of 16 or 32 values */
struct ntx_block_iq2_xxs {
    uint16_t d;
    uint8_t qs[64];
}; /* for each 32 values: 4 indices; a word of 4 x 7 signs and 4 bits of scale */
struct ntx_block_iq2_xs {
    uint16_t d;
    uint16_t qs[32];
    uint8_t scales[8];
}; /* 9 bits of index, 7 of signs */
struct ntx_block_iq2_s {
    uint16_t d;
    uint8_t qs[32], signs[32], qh[8], scales[8];
};
struct ntx_block_iq3_xxs {
    uint16_t d;
    uint8_t qs[64], signs[32];
}; /* signs: words as in IQ2_XXS */
struct ntx_block_iq3_s {
    uint16_t d;
    uint8_t qs[64], qh[8], signs[32], scales[4];
};
struct ntx_block_iq4_xs {
    uint16_t d, scales_h;
    uint8_t scales_l[4], qs[128];
};
struct ntx_block_iq1_s {
    uint16_t d;
    uint8_t qs[32];
    uint16_t qh[8];
};
struct ntx_block_iq1_m {
    uint8_t qs[32], qh[16], scales[8];
}; /* d is in the upper nibbles of odd bytes of scales */
struct ntx_block_tq1_0 {
    uint8_t qs[48], qh[4];
    uint16_t d;
}; /* base-3 digits: five in a byte, four in a byte of qh */
struct ntx_block_tq2_0 {
    uint8_t qs[64];
    uint16_t d;
};
struct ntx_block_nvfp4 {
    uint8_t d[4], qs[32];
}; /* 64 values; d: E4M3 without a sign, of 16 values each */
struct ntx_block_q1_0 {
    uint16_t d;
    uint8_t qs[16];
}; /* 128 signs */
struct ntx_block_q2_0 {
    uint16_t d;
    uint8_t qs[16];
}; /* 64 values */

/* X(rule, TYPE, type, values, scale, minimum, run, outputs, pieces, codebook). A new type is a new row.
 *
 *   values      of a block
 *   scale       how d is stored (NTX_SCALE_ of unpack.h); FLOAT: the bytes of a value
 *   minimum     the field that holds m or dmin, or none
 *   run         of 32 values, how many neighbours share a scale: 16 or 32; FLOAT: 1
 *
 * For the GPU (cuda/fetch.h):
 *
 *   outputs     that neighbouring threads compute side by side for one row of x; for more rows at most 2
 *   pieces      of a matrix row in shared memory, including the one in use
 *   codebook    words of the codebook in shared memory (cuda/codes.h); 0: none */
#define NTX_TYPES(X)                                                                                                   \
    X(FLOAT, F32, f32, 1, 4, none, 1, 1, 1, 0)                                                                         \
    X(FLOAT, F16, f16, 1, 2, none, 1, 1, 1, 0)                                                                         \
    X(FLOAT, BF16, bf16, 1, 2, none, 1, 1, 1, 0)                                                                       \
    X(SIMPLE, Q4_0, q4_0, NTX_QK, half, none, 32, 1, 2, 0)                                                             \
    X(SIMPLE, Q4_1, q4_1, NTX_QK, half, m, 32, 1, 2, 0)                                                                \
    X(SIMPLE, Q5_0, q5_0, NTX_QK, half, none, 32, 1, 2, 0)                                                             \
    X(SIMPLE, Q5_1, q5_1, NTX_QK, half, m, 32, 1, 2, 0)                                                                \
    X(SIMPLE, Q8_0, q8_0, NTX_QK, half, none, 32, 1, 2, 0)                                                             \
    X(SIMPLE, MXFP4, mxfp4, NTX_QK, e8m0, none, 32, 1, 2, 0)                                                           \
    X(SIMPLE, IQ4_NL, iq4_nl, NTX_QK, half, none, 32, 1, 2, 0)                                                         \
    X(SUPER, Q2_K, q2_k, NTX_QKK, half, dmin, 16, 2, 2, 0)                                                             \
    X(SUPER, Q3_K, q3_k, NTX_QKK, half, none, 16, 2, 2, 0)                                                             \
    X(SUPER, Q4_K, q4_k, NTX_QKK, half, dmin, 32, 1, 2, 0)                                                             \
    X(SUPER, Q5_K, q5_k, NTX_QKK, half, dmin, 32, 1, 2, 0)                                                             \
    X(SUPER, Q6_K, q6_k, NTX_QKK, half, none, 16, 1, 2, 0)                                                             \
    X(SUPER, IQ4_XS, iq4_xs, NTX_QKK, half, none, 32, 2, 2, 0)                                                         \
    X(SUPER, IQ3_XXS, iq3_xxs, NTX_QKK, quarter, none, 32, 2, 2, 256)                                                  \
    X(SUPER, IQ3_S, iq3_s, NTX_QKK, half, none, 32, 2, 2, 256)                                                         \
    X(SUPER, IQ2_XXS, iq2_xxs, NTX_QKK, eighth, none, 32, 2, 2, 256)                                                   \
    X(SUPER, IQ2_XS, iq2_xs, NTX_QKK, eighth, none, 16, 4, 2, 512)                                                     \
    X(SUPER, IQ2_S, iq2_s, NTX_QKK, eighth, none, 16, 4, 2, 1024)                                                      \
    X(SUPER, IQ1_S, iq1_s, NTX_QKK, eighth, none, 32, 4, 2, 1024)                                                      \
    X(SUPER, IQ1_M, iq1_m, NTX_QKK, spread, none, 16, 4, 2, 1024)                                                      \
    X(SUPER, TQ1_0, tq1_0, NTX_QKK, half, none, 32, 4, 2, 0)                                                           \
    X(SUPER, TQ2_0, tq2_0, NTX_QKK, half, none, 32, 2, 2, 0)                                                           \
    X(HALVES, NVFP4, nvfp4, 64, halves, none, 16, 2, 2, 0)                                                             \
    X(SIMPLE, Q1_0, q1_0, 128, half, none, 32, 4, 2, 0)                                                                \
    X(SIMPLE, Q2_0, q2_0, 64, half, none, 32, 2, 4, 0)

/* SIMPLE types whose nibbles are indices into 16 values, NTX_VALUES_<type>. X(TYPE, type, scale, log2 of an offset
 * that makes all values positive). */
#define NTX_LOOKUPS(X)    X(MXFP4, mxfp4, e8m0, 4) X(IQ4_NL, iq4_nl, half, 7)
/* Twice the value of a nibble (E2M1: a sign, two bits of exponent, one of mantissa; OCP Microscaling Formats 1.0). */
#define NTX_VALUES_mxfp4  0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12
/* Steps that widen from the middle. */
#define NTX_VALUES_iq4_nl -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

#endif
