/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.h: random weights of every type, directly as blocks, fast enough to fill a drive. The bytes depend on the
 * seed alone, on any machine, and golden numbers of the tests depend on them: never change what a seed gives. */
#ifndef NTX_TESTS_MKMODEL_BLOCKS_H
#define NTX_TESTS_MKMODEL_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

struct mk_rng {
    uint64_t state;
};

uint64_t mk_next(struct mk_rng *r);
float mk_normal(struct mk_rng *r); /* nearly normal, mean 0, deviation 1 */

/* n blocks whose values have this mean (0 for all but F32) and deviation. out: [n * block_bytes], alignment 8. */
void mk_blocks(struct mk_rng *r, uint32_t type, size_t n, float mean, float std, void *out);

#endif
