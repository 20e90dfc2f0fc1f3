/* SPDX-License-Identifier: Apache-2.0 */
/* estimates.h: how fast a GPU's products read weights where nobody measured it.
 *
 * Source: bench/slots.py --table, a model of the kernels' machine code (nvcc 13.0, sm_90): bytes of weights a second
 * that 132 multiprocessors of 1.75 GHz (an H100's, an H200's) have instructions and loads for, were their memory free.
 * Of that two thirds are believed: beginnings and ends of rows and waits are not in the model. One row of IQ1, and two,
 * are those of matrices, or of experts together, of 35 million weights and more (cuda/persistent.h); a card without
 * that much shared memory, and smaller ones, have two thirds of it. No card has run these kernels; what one measures
 * (`ntx doctor`: "rates" of a profile) is taken instead. */
#ifndef NTX_COMPUTED_PLAN_ESTIMATES_H
#define NTX_COMPUTED_PLAN_ESTIMATES_H

#include <stdint.h>

#define NTX_ESTIMATE_ROWS 8u /* up to so many, which a launch reads weights once for */

/* Bytes of weights per second; 0: a type without products. */
double ntx_estimate_bps(uint32_t type, uint32_t rows);

#endif
