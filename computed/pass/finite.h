/* SPDX-License-Identifier: Apache-2.0 */
/* finite.h: the check for weights that are NaN or infinite. Such a value does not stay visible: quantising activations
 * may turn it into an ordinary wrong number, so logits do not always show it. So each weight is checked once, by the
 * thread that is about to multiply by it for the first time, while its bytes come into the cache anyway; later passes
 * pay one comparison per tile. For quantised types the scales are checked: the integers that they multiply are
 * finite. */
#ifndef NTX_COMPUTED_PASS_FINITE_H
#define NTX_COMPUTED_PASS_FINITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/chunk.h"

/* Checks rows [row, row + n) of a chunk, which begin at `bytes`: 0, or -EDOM and a text that names the tensor. */
int ntx_chunk_finite(const struct ntx_model *m, const struct ntx_chunks *k, uint32_t chunk, const void *bytes,
                     uint32_t row, uint32_t n, struct ntx_err *err);

/* Whether all values in n bytes of whole blocks are finite. */
bool ntx_blocks_finite(uint32_t type, const void *blocks, size_t bytes);

/* The same for n computed values. */
bool ntx_floats_finite(const float *v, size_t n);

#endif
