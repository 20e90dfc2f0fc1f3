/* quantize.h: float32 to the types of model/quant.h, for what ntx itself writes (ntx pack).
 *
 * Each block by itself: scales (and minima) are tried on a small grid around the range's, each fitted by least squares to the
 * integers that it gives; the one with the least squared error is kept, scales of super-blocks are then rounded as the type stores them,
 * and the integers taken once more. No importance weights. Inverse of ntx_type_info(type)->dequant up to that error. */
#ifndef NTX_MODEL_QUANTIZE_H
#define NTX_MODEL_QUANTIZE_H

#include <stddef.h>
#include <stdint.h>

typedef void ntx_quantize_fn(const float *x, void *blocks, size_t n_blocks);

/* NULL for types that cannot be written: Q2_K, Q3_K, and what is no type. */
ntx_quantize_fn *ntx_quantizer(uint32_t type);

#endif
