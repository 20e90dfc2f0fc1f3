/* SPDX-License-Identifier: Apache-2.0 */
/* input_sums.h: sums over the inputs of a model's matrices, over the rows of all passes: the squares of each input, and
 * the number of rows. For importance matrices (client/quantize/imatrix.h). Every matrix of a layer has its own, also
 * each of an expert's and a head's; the output matrix and routers have none. Only the CPU's products are counted. One
 * thread at a time for each matrix. */
#ifndef NTX_COMPUTED_PASS_INPUT_SUMS_H
#define NTX_COMPUTED_PASS_INPUT_SUMS_H

#include <stdint.h>

#include "model/arch.h"

struct ntx_input_sums;

uint64_t ntx_input_sums_bytes(const struct ntx_model *m);
struct ntx_input_sums *ntx_input_sums_new(const struct ntx_model *m); /* NULL: no memory */
void ntx_input_sums_free(struct ntx_input_sums *s);

/* Adds rows x [n_rows x n_in], ld floats apart, the inputs of matrix `number` of a tensor (an expert's or a head's
 * number; else 0). */
void ntx_input_sums_add(struct ntx_input_sums *s, uint32_t tensor, uint32_t number, const float *x, size_t ld,
                        uint32_t n_rows);

/* How many matrices of a tensor have sums, 0: none; and one of them: n floats, and a count. */
uint32_t ntx_input_sums_matrices(const struct ntx_input_sums *s, uint32_t tensor);
const float *ntx_input_sums_of(const struct ntx_input_sums *s, uint32_t tensor, uint32_t number, uint32_t *n,
                               float *count);

#endif
