/* SPDX-License-Identifier: Apache-2.0 */
/* planes.h: products with weights in high and low bits (model/planes.h), bit for bit those of the whole type. Kernels
 * read both parts and join them in registers: of AVX-512 for any number of rows of x, of AVX2 and NEON for a few. For
 * the others NTX_PLANES_OUTS outputs at a time are joined in memory that stays in the processor's cache. High bits
 * alone have kernels for any number of rows, with the same bits everywhere. */
#ifndef NTX_COMPUTED_CPU_PLANES_H
#define NTX_COMPUTED_CPU_PLANES_H

#include "computed/cpu/cpu.h"
#include "model/planes.h"

/* type: of low bits, or of high bits that are multiplied alone; then low is NULL. Rows of n_in weights lie one behind
 * the other. x, x_stride, n_rows, y, ldy: as for ntx_matmul_fn. joined: room for NTX_PLANES_OUTS rows of the
 * whole type. */
#define NTX_PLANES_OUTS 64u /* a multiple of NTX_SLICE_OUTS */
struct ntx_planes_weights {
    uint32_t type, n_out, n_in;
    const uint8_t *high, *low;
};
void ntx_cpu_multiply_planes(const struct ntx_cpu_ops *ops, const struct ntx_planes_weights *w, const void *x,
                             size_t x_stride, uint32_t n_rows, float *y, size_t ldy, uint8_t *joined);

/* Values of rows of x that a kernel may keep in another order, on the stack; longer ones are joined first. */
#define NTX_PLANES_IN   131072u
/* Of AVX-512 and NEON for that many rows, of AVX2 and of Q5_0 for twice as many or more, no join in memory and no panel
 * is faster than a join in registers for each few rows. */
#define NTX_PLANES_ROWS 4u
typedef void ntx_planes_fn(const struct ntx_planes_weights *w, const void *x, size_t x_stride, uint32_t n_rows,
                           float *y, size_t ldy);
#define NTX_PLANES_PLAIN(WHOLE, whole, low_bits, ...) ntx_planes_fn ntx__high_plain_##whole##_##low_bits;
NTX_PLANES(NTX_PLANES_PLAIN)

#endif
