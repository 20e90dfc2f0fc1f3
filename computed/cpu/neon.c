/* SPDX-License-Identifier: Apache-2.0 */
/* neon.c: kernels for 64-bit Arm with dot products of bytes (SDOT: Cortex-A76, Neoverse N1 and later). */
#include "computed/cpu/neon.h"
#include "computed/cpu/mm_plain.h"
#include "computed/cpu/ops.h"

#define ENTRY(TYPE, type)                       [NTX_##TYPE] = ntx__neon_##type,
#define OWN(TYPE, type)                         [NTX_##TYPE] = true,
#define ENTRY_I8MM(TYPE, type)                  [NTX_##TYPE] = ntx__i8mm_##type,
#define ENTRY_INTERLEAVED(TYPE, type, ...)      [NTX_##TYPE] = ntx__interleaved_##type,
#define ENTRY_INTERLEAVED_I8MM(TYPE, type, ...) [NTX_##TYPE] = ntx__interleaved_i8mm_##type,
#define INTERLEAVE(TYPE, type, ...)             [NTX_##TYPE] = ntx__interleave_##type,

const struct ntx_cpu_ops ntx__cpu_neon = {
    .name = "neon",
    .matmul = {NEON_SIMPLE(ENTRY) NEON_SUPER(ENTRY) NEON_FLOAT(ENTRY)},
    .own = {NEON_SIMPLE(OWN) NEON_SUPER(OWN) NEON_FLOAT(OWN)},
    .interleaved = {INTERLEAVED_NEON_TYPES(ENTRY_INTERLEAVED)},
    .interleave = {INTERLEAVED_NEON_TYPES(INTERLEAVE)},
    OPS_TABLE,
};

/* The same, and many rows by SMMLA (Neoverse V1 and later, Cortex-A510 and A710 and later). */
const struct ntx_cpu_ops ntx__cpu_i8mm = {
    .name = "i8mm",
    .matmul = {NEON_SIMPLE(ENTRY_I8MM) NEON_SUPER(ENTRY_I8MM) NEON_FLOAT(ENTRY)},
    .own = {NEON_SIMPLE(OWN) NEON_SUPER(OWN) NEON_FLOAT(OWN)},
    .interleaved = {INTERLEAVED_NEON_TYPES(ENTRY_INTERLEAVED_I8MM)},
    .interleave = {INTERLEAVED_NEON_TYPES(INTERLEAVE)},
    OPS_TABLE,
};
