/* SPDX-License-Identifier: Apache-2.0 */
/* generic.c: kernels in plain C, for any CPU: the reference for the others. */
#include "common/clones.h"
#define PLAIN_CLONES NTX_CLONES_FMA
#include "computed/cpu/mm_plain.h"
#include "computed/cpu/ops.h"

NTX_TYPES(PLAIN)
#define OWN(rule, TYPE, ...) [NTX_##TYPE] = true,

const struct ntx_cpu_ops ntx__cpu_generic = {
    .name = "generic",
    .matmul = {NTX_TYPES(PLAIN_ENTRY)},
    .own = {NTX_TYPES(OWN)},
    OPS_TABLE,
};
