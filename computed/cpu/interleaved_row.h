/* SPDX-License-Identifier: Apache-2.0 */
/* interleaved_row.h: one row of weights out of an interleaved slice (interleaved.h): a token's embedding, where the
 * table is the output matrix. */
#ifndef NTX_COMPUTED_CPU_INTERLEAVED_ROW_H
#define NTX_COMPUTED_CPU_INTERLEAVED_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies output [0, NTX_SLICE_OUTS) of a slice to row [row_bytes], as it is in the file. False: the layout of this type
 * is not known here. */
bool ntx_cpu_interleaved_row(uint32_t type, const void *slice, size_t row_bytes, uint32_t output, void *row);

#endif
