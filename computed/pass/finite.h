/* SPDX-License-Identifier: Apache-2.0 */
/* finite.h: weights that are no numbers. A NaN or an infinity in a file does not stay where it is: quantising
 * activations may turn it into an ordinary wrong number, so the logits do not always tell. Each weight is therefore
 * looked at once, by the thread that is about to multiply by it for the first time, while its bytes are on their way
 * into the cache anyway; later passes pay one comparison per tile. Of quantised types the scales are looked at: what
 * they multiply is finite. */
#ifndef NTX_COMPUTED_PASS_FINITE_H
#define NTX_COMPUTED_PASS_FINITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/chunk.h"

/* Rows [row, row + n) of a chunk, which begin at `bytes`: 0, or -EDOM and words that name the tensor. */
int ntx_chunk_finite(const struct ntx_model *m, const struct ntx_chunks *k, uint32_t chunk, const void *bytes,
                     uint32_t row, uint32_t n, struct ntx_err *err);

/* Whether all values of n bytes of whole blocks are numbers. */
bool ntx_blocks_finite(uint32_t type, const void *blocks, size_t bytes);

/* The same of n values that were computed. */
bool ntx_floats_finite(const float *v, size_t n);

#endif
