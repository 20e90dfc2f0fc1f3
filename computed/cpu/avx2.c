/* SPDX-License-Identifier: Apache-2.0 */
/* avx2.c: kernels for AVX2 with FMA and F16C. */
#include "computed/cpu/avx2.h"
#include "computed/cpu/mm_plain.h"
#include "computed/cpu/ops.h"

NTX_TYPES(PLAIN)

#define ENTRY(TYPE, type, ...) [NTX_##TYPE] = ntx__mm256_##type,
#define OWN(TYPE, type, ...)   [NTX_##TYPE] = true,

OVERRIDES_BEGIN
const struct ntx_cpu_ops ntx__cpu_avx2 = {
    .name = "avx2",
    .matmul = {NTX_TYPES(PLAIN_ENTRY) AVX2_TYPES(ENTRY)},
    .own = {AVX2_TYPES(OWN)},
    OPS_TABLE,
};
OVERRIDES_END
