/* SPDX-License-Identifier: Apache-2.0 */
/* avx512.c: kernels for AVX-512 (F BW VL DQ VNNI): by outputs for few rows, by panels for many. */
#include "computed/cpu/avx512.h"
#include "computed/cpu/mm_plain.h"
#include "computed/cpu/ops.h"
#include "computed/cpu/interleaved.h"

NTX_TYPES(PLAIN)

#define FLOAT_ENTRY(TYPE, type, ...)     [NTX_##TYPE] = ntx__mm512_##type,
#define MANY(TYPE, type)                 [NTX_##TYPE] = ntx__many512_##type,
#define OWN(TYPE, type, ...)             [NTX_##TYPE] = true,
#define VEC(TYPE, type, ...)             [NTX_##TYPE] = ntx__mmvec_##type,
#define VEC_INTERLEAVED(TYPE, type, ...) [NTX_##TYPE] = ntx__interleaved_vec_##type,
#define AMX(TYPE, type, ...)             [NTX_##TYPE] = ntx__mmamx_##type,
#define AMX_INTERLEAVED(TYPE, type, ...) [NTX_##TYPE] = ntx__interleaved_amx_##type,
#define INTERLEAVE(TYPE, type, ...)      [NTX_##TYPE] = ntx__interleave_##type,

OVERRIDES_BEGIN
const struct ntx_cpu_ops ntx__cpu_avx512 = {
    .name = "avx512",
    .matmul = {NTX_TYPES(PLAIN_ENTRY) AVX512_FLOATS(FLOAT_ENTRY) AVX512_BLOCKS(VEC)},
    .own = {AVX512_FLOATS(OWN) AVX512_BLOCKS(OWN)},
    .many = {AVX512_MANY(MANY)},
    .interleaved = {INTERLEAVED_TYPES(VEC_INTERLEAVED)},
    .interleave = {INTERLEAVED_TYPES(INTERLEAVE)},
    OPS_TABLE,
};

/* The same with matrix tiles for many rows. */
const struct ntx_cpu_ops ntx__cpu_amx = {
    .name = "amx",
    .matmul = {NTX_TYPES(PLAIN_ENTRY) AVX512_FLOATS(FLOAT_ENTRY) AVX512_BLOCKS(AMX)},
    .own = {AVX512_FLOATS(OWN) AVX512_BLOCKS(OWN)},
    .many = {AVX512_MANY(MANY)},
    .interleaved = {INTERLEAVED_TYPES(AMX_INTERLEAVED)},
    .interleave = {INTERLEAVED_TYPES(INTERLEAVE)},
    OPS_TABLE,
};
OVERRIDES_END
