/* SPDX-License-Identifier: Apache-2.0 */
/* estimates.h: estimated rates at which a GPU's products read weights, where they were not measured.
 *
 * Source: bench/slots.py --table, a model of the kernels' machine code (nvcc 13.0, sm_90): bytes of weights a second
 * for which 132 multiprocessors of 1.75 GHz (an H100's, an H200's) have instructions and loads, if their memory were
 * free. Two thirds of that are believed: beginnings and ends of rows and waits are not in the model. One and two rows
 * of IQ1 are for matrices, or experts together, of 35 million weights and more (cuda/persistent.h); a card without that
 * much shared memory, and smaller matrices, have two thirds of it. No card has run these kernels; measured rates (`ntx
 * doctor`: "rates" of a profile) replace the estimates. */
#ifndef NTX_COMPUTED_PLAN_ESTIMATES_H
#define NTX_COMPUTED_PLAN_ESTIMATES_H

#include <stdint.h>

#define NTX_ESTIMATE_ROWS 8u /* rows for which a launch reads weights once, at most */

/* Bytes of weights per second; 0: a type without products. */
double ntx_estimate_bps(uint32_t type, uint32_t rows);

#endif
