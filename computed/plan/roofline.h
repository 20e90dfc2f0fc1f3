/* SPDX-License-Identifier: Apache-2.0 */
/* roofline.h: the operations of a transformer against one roof: peak operations and one memory's bandwidth (Yuan et
 * al., "LLM Inference Unveiled", arXiv 2402.16363, table 1 and its tool).
 *
 *   operations per second ^        ____________ peak         intensity I = operations / bytes moved
 *                         |       / attained = I * bandwidth below the turning point, peak above
 *                         |      / slope = bandwidth         time        = operations / attained
 *                         +-----+-------------> I            a multiply-add counts as two operations
 *
 * NTX_ROOF_PUBLISHED gives the published table and network figures exactly, with their known errors. Otherwise these
 * are corrected:
 * - a residual addition reads both operands (published: one)
 * - in prefill a token attends to itself and those before, (n + 1) / 2 of n on average (published: all)
 * - the activation between gate and down has the width of the FFN, and is in the table (published: width of the model,
 *   only in the sum)
 * - the output matrix is a multiply-add, two operations, and its vectors grow with the batch (published: one operation,
 *   one vector)
 * - with grouped heads each query head reads its own query in prefill (published: as many as there are KV heads)
 * - gate and up pass through one activation of 4 operations: exp, add, divide, multiply (published: 2) */
#ifndef NTX_COMPUTED_PLAN_ROOFLINE_H
#define NTX_COMPUTED_PLAN_ROOFLINE_H

#include <stdbool.h>
#include <stdint.h>

struct ntx_roof_model {
    uint32_t d, heads, kv_heads, head, ff, vocab, layers; /* head: width of one */
    double w, a, kv;                                      /* bytes of a weight, an activation, a KV element */
};

struct ntx_roof_machine {
    /* Operations per second; int8 is used if w, a and kv all have one byte or less (0: none). */
    double bps, peak, peak_int8;
};

struct ntx_roof_run {
    uint32_t batch, seq; /* sequences; tokens of context */
    bool prefill;        /* seq tokens are processed at once; else one */
    bool published;
};

struct ntx_roof_op {
    const char *name;
    double ops, bytes;
    double intensity, attained, seconds;
    bool compute_bound;
    double count; /* in the network: per layer times layers, or 1 */
    bool listed;  /* is a line of the table */
};

#define NTX_ROOF_OPS 15

/* ops[NTX_ROOF_OPS]; returns how many there are: 12 rows, then mlp_act and lm_head (which the published table leaves
 * out). norm and add count twice per layer. */
unsigned ntx_roof_table(const struct ntx_roof_model *m, const struct ntx_roof_machine *hw, const struct ntx_roof_run *r,
                        struct ntx_roof_op *ops);

struct ntx_roof_network {
    double ops, bytes, seconds, weight_bytes, kv_bytes; /* weights without embedding and output matrix */
};
struct ntx_roof_network ntx_roof_sum(const struct ntx_roof_model *m, const struct ntx_roof_run *r,
                                     const struct ntx_roof_op *ops, unsigned n);

/* Operations per byte at which the two roofs meet. */
double ntx_roof_turn(const struct ntx_roof_model *m, const struct ntx_roof_machine *hw);

/* "69G", "960G", "1T", "328K": whole numbers of the largest SI unit, as the published table prints; intensities as
 * "1024" or "1.25". */
const char *ntx_roof_si(double x, char *buf, unsigned n);
const char *ntx_roof_intensity(double x, char *buf, unsigned n);

#endif
