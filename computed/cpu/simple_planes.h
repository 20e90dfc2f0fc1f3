/* SPDX-License-Identifier: Apache-2.0 */
/* simple_planes.h: what the products with Q5_0 and Q8_0 in high and low bits share (avx2_simple_planes.c,
 * avx512_simple_planes.c). */
#ifndef NTX_COMPUTED_CPU_SIMPLE_PLANES_H
#define NTX_COMPUTED_CPU_SIMPLE_PLANES_H

#include "computed/cpu/kern.h"
#include "model/planes.h"

/* Blocks of a row, at most as many as floats of a register. */
struct run {
    const uint8_t *high, *low; /* low: NULL: high bits alone */
    uint32_t n;
};

/* x in the order of joined values; the other parts of its row as they are. */
struct turned_row {
    const int8_t *q;
    struct q8_row of;
};

/* Bytes of a block's parts. */
enum {
    Q8_HIGH = NTX_PLANES_HIGH_BYTES(q8_0, 4, 32),
    Q8_LOW = NTX_PLANES_LOW_BYTES(4, 32),
    Q5_HIGH = NTX_PLANES_HIGH_BYTES(q5_0, 2, 16),
    Q5_LOW = NTX_PLANES_LOW_BYTES(2, 16)
};

#endif
