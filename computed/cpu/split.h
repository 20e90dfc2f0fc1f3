/* SPDX-License-Identifier: Apache-2.0 */
/* split.h: how weights are split in high and low bits (model/planes.h), for the kernels that read both parts. */
#ifndef NTX_COMPUTED_CPU_SPLIT_H
#define NTX_COMPUTED_CPU_SPLIT_H

#include "computed/cpu/planes.h"
#include "model/planes.h"

/* high_bytes, low_bytes: of a block; low_bytes 0: the high bits alone. low_bits: of a weight. */
struct split {
    size_t high_bytes, low_bytes;
    uint32_t low_bits;
};

#define SPLIT_OF(whole, bits, n)                                                                                       \
    {                                                                                                                  \
        NTX_PLANES_HIGH_BYTES(whole, bits, n), NTX_PLANES_LOW_BYTES(bits, n), bits                                     \
    }
#define SPLIT_OF_HIGH(whole, bits, n)                                                                                  \
    {                                                                                                                  \
        NTX_PLANES_HIGH_BYTES(whole, bits, n), 0, bits                                                                 \
    }

/* High bits alone: joined with zeros as n low bits, integers are (2^n - 1) / 2 steps too small (model/planes.h). So
 * sums become 2 * (sum of w x) + (2^n - 1) * (sum of x), and d is halved; both are exact. */
INLINE bool split_is_high(const struct split *split) { return split && !split->low_bytes; }

/* Rows of low bits. */
struct low_rows {
    const uint8_t *w;
    size_t row_bytes;
};

#endif
