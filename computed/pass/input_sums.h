/* SPDX-License-Identifier: Apache-2.0 */
/* input_sums.h: what the matrices of a model are multiplied by, summed over the rows of all passes: of each input the
 * squares, and how many rows came. For importance matrices (client/quantize/imatrix.h). Every matrix of a layer has its
 * own, an expert's and a head's too. The output matrix and routers have none. Only the CPU's products are seen. One
 * thread at a time for each matrix. */
#ifndef NTX_COMPUTED_PASS_INPUT_SUMS_H
#define NTX_COMPUTED_PASS_INPUT_SUMS_H

#include <stdint.h>

#include "model/arch.h"

struct ntx_input_sums;

uint64_t ntx_input_sums_bytes(const struct ntx_model *m);
struct ntx_input_sums *ntx_input_sums_new(const struct ntx_model *m); /* NULL: no memory */
void ntx_input_sums_free(struct ntx_input_sums *s);

/* Adds rows x [n_rows x n_in], ld floats apart, that matrix `number` of a tensor (0 where it holds one; of an expert,
 * of a head) is multiplied by. */
void ntx_input_sums_add(struct ntx_input_sums *s, uint32_t tensor, uint32_t number, const float *x, size_t ld,
                        uint32_t n_rows);

/* How many matrices a tensor has whose inputs are summed, 0 where it is none; and one of them: n floats, and a count.
 * */
uint32_t ntx_input_sums_matrices(const struct ntx_input_sums *s, uint32_t tensor);
const float *ntx_input_sums_of(const struct ntx_input_sums *s, uint32_t tensor, uint32_t number, uint32_t *n,
                               float *count);

#endif
