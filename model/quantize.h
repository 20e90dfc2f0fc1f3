/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.h: float32 to the types of model/quant.h, for what ntx itself writes (ntx quantize, ntx pack).
 *
 * Every type is a weighted least-squares fit of its blocks: sum of w (x - what the block says)^2 is made small by
 * trying scales (and minima) around the range's own, each refitted to the integers that it gives; scales of
 * super-blocks are then rounded as the type stores them, tried with their neighbours, and the block's own scale is
 * fitted once more to all of it. i-quants look for their codes among those that lie nearest to what rounding alone
 * would give. What has least error is too small, though, by the share of x that became noise; so at last a block is
 * stretched until the weighted sum of x times what it says is that of x^2 (by a quarter at most). Inverse of
 * ntx_type_info(type)->dequant up to that error. Output depends on nothing but the arguments. */
#ifndef NTX_MODEL_QUANTIZE_H
#define NTX_MODEL_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of one type. Immutable: any number of threads may use it. */
struct ntx_quantizer;
struct ntx_quantizer *ntx_quantizer_new(uint32_t type); /* NULL: no type that can be written, or no memory */
void ntx_quantizer_free(struct ntx_quantizer *q);
bool ntx_quantizes(uint32_t type); /* such a type can be written */

/* x: [n_blocks x block], finite. w: as many, >= 0: what a squared error counts; NULL: all alike. */
void ntx_quantize(const struct ntx_quantizer *q, const float *x, const float *w, void *blocks, size_t n_blocks);

/* What errors of a row's values count, from how large the values are: large ones more, since they do more, but none
 * nothing. importance: [n] mean square of what each is multiplied by, or NULL. */
void ntx_quantize_weights(const float *x, const float *importance, size_t n, float *w);

#endif
