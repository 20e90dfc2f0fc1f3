/* neon.c: kernels for 64-bit Arm with dot products of bytes (SDOT: Cortex-A76, Neoverse N1 and later). Products of all types are made of their
 * plain unpacking, which the compiler vectorises; mm_plain.h multiplies what comes of it by SDOT. */
#include "infer/cpu/mm_plain.h"
#include "infer/cpu/ops.h"

NTX_TYPES(PLAIN)
#define OWN(rule, TYPE, ...) [NTX_##TYPE] = true,

const struct ntx_cpu_ops ntx__cpu_neon = {
    .name = "neon",
    .matmul = {NTX_TYPES(PLAIN_ROW)},
    .own = {NTX_TYPES(OWN)},
    OPS_TABLE,
};
