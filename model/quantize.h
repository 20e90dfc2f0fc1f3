/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.h: quantises float32 to the types of model/quant.h, for files that ntx writes (ntx quantize, ntx pack).
 *
 * Every type is a weighted least-squares fit of its blocks. The sum of w (x - dequantised x)^2 is made small: scales
 * (and minima) around that of the block's range are tried, and each is refitted to the integers that it gives.
 * Scales of super-blocks are then rounded as the type stores them and tried with their neighbours, and the block's
 * own scale is fitted once more. i-quants search their codes among those nearest to plain rounding.
 *
 * The fit with least error is too small, by the share of x that became noise. So at last each block is stretched (by
 * a quarter at most) until the weighted sum of x times its dequantised value equals that of x^2.
 *
 * ntx_type_info(type)->dequant is the inverse, up to that error. The output depends only on the arguments. */
#ifndef NTX_MODEL_QUANTIZE_H
#define NTX_MODEL_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A quantiser of one type. Immutable: any number of threads may use it. */
struct ntx_quantizer;
struct ntx_quantizer *ntx_quantizer_new(uint32_t type); /* NULL: the type cannot be written, or no memory */
void ntx_quantizer_free(struct ntx_quantizer *q);
bool ntx_quantizes(uint32_t type); /* the type can be written */

/* x: [n_blocks x block], finite. w: weight of each squared error, >= 0; NULL: all equal. */
void ntx_quantize(const struct ntx_quantizer *q, const float *x, const float *w, void *blocks, size_t n_blocks);

/* Weights of the squared errors of a row, by the size of its values: errors of large values weigh more. importance:
 * [n] mean square of the inputs that each value is multiplied by, or NULL. */
void ntx_quantize_weights(const float *x, const float *importance, size_t n, float *w);

#endif
