/* SPDX-License-Identifier: Apache-2.0 */
/* codebooks.h: codebooks of i-quants (model/codes.h) as whole entries: 2 to 8 KiB, which stay in the first-level cache
 * (IQ1: 16 KiB). */
#ifndef NTX_COMPUTED_CPU_CODEBOOKS_H
#define NTX_COMPUTED_CPU_CODEBOOKS_H

#include "computed/cpu/kern.h"

/* One level of a code of two bits, and all eight; the same for three bits, with four. */
#define LEVEL_2(c, i) ((uint64_t)(8 + 17 * ((c) >> 2 * (i)&3) + ((c) >> (2 * (i) + 1) & 1)) << 8 * (i))
#define EIGHT(c)                                                                                                       \
    LEVEL_2(c, 0) | LEVEL_2(c, 1) | LEVEL_2(c, 2) | LEVEL_2(c, 3) | LEVEL_2(c, 4) | LEVEL_2(c, 5) | LEVEL_2(c, 6) |    \
        LEVEL_2(c, 7),
#define LEVEL_XXS(c, i) ((uint32_t)(4 + 8 * ((c) >> 3 * (i)&7) + 2 * (((c) >> 3 * (i)&7) == 7)) << 8 * (i))
#define FOUR_XXS(c)     LEVEL_XXS(c, 0) | LEVEL_XXS(c, 1) | LEVEL_XXS(c, 2) | LEVEL_XXS(c, 3),
#define LEVEL_S(c, i)   ((uint32_t)(1 + 2 * ((c) >> 3 * (i)&7)) << 8 * (i))
#define FOUR_S(c)       LEVEL_S(c, 0) | LEVEL_S(c, 1) | LEVEL_S(c, 2) | LEVEL_S(c, 3),

/* IQ1, in eighths: -8, 0 or 8; the kernels add 1 or -1. */
#define LEVEL_1(c, i)   ((uint64_t)(uint8_t)(((int)((c) >> 2 * (i)&3) - 1) * 8) << 8 * (i))
#define EIGHT_1(c)                                                                                                     \
    LEVEL_1(c, 0) | LEVEL_1(c, 1) | LEVEL_1(c, 2) | LEVEL_1(c, 3) | LEVEL_1(c, 4) | LEVEL_1(c, 5) | LEVEL_1(c, 6) |    \
        LEVEL_1(c, 7),

static const uint64_t codebook_iq1[] = {NTX_CODES_iq1(EIGHT_1)};
static const uint64_t codebook_iq2_xxs[] = {NTX_CODES_iq2_xxs(EIGHT)}, codebook_iq2_xs[] = {NTX_CODES_iq2_xs(EIGHT)},
                      codebook_iq2_s[] = {NTX_CODES_iq2_s(EIGHT)};
static const uint32_t codebook_iq3_xxs[] = {NTX_CODES_iq3_xxs(FOUR_XXS)}, codebook_iq3_s[] = {NTX_CODES_iq3_s(FOUR_S)};

#endif
