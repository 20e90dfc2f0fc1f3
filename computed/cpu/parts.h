/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h: the unpacking of every type (model/unpack.h) as functions, for the products in plain C (mm_plain.h) and the
 * weighted columns (columns.h). Each file that includes it compiles them with its own flags. */
#ifndef NTX_COMPUTED_CPU_PARTS_H
#define NTX_COMPUTED_CPU_PARTS_H

#include "computed/cpu/kern.h"

enum { PARTS_MAX = NTX_QKK / NTX_QK }; /* parts that are unpacked together */

/* A function that is compiled once, however many constants it is called with. */
#if defined(__clang__)
#define PARTS_ONCE static __attribute__((noinline, unused))
#else
#define PARTS_ONCE static __attribute__((noinline, noclone, unused))
#endif

/* p[0] .. p[n - 1] = parts first .. first + n - 1, of 32 values each, of a row of whole blocks; n <= PARTS_MAX */
typedef void parts_fn(const void *row, uint32_t first, uint32_t n, struct ntx_part *p);

#define PARTS_FLOAT(type, ...)
#define PARTS_SIMPLE(type, values, ...) PARTS_OF(type, values)
#define PARTS_HALVES(type, values, ...) PARTS_OF(type, values)
#define PARTS_SUPER(type, values, ...)  PARTS_OF(type, values)
#define PARTS_OF(type, values)                                                                                         \
    PARTS_ONCE void parts_##type(const void *row, uint32_t first, uint32_t n, struct ntx_part *p)                      \
    {                                                                                                                  \
        const struct ntx_block_##type *b = row;                                                                        \
        _Pragma("GCC unroll 1") for (uint32_t k = first; k < first + n; k++)                                           \
            ntx_unpack_##type(b + k / ((values) / NTX_QK), k % ((values) / NTX_QK), p++);                              \
    }
#define PARTS_TYPE(rule, TYPE, type, ...) PARTS_##rule(type, __VA_ARGS__)
NTX_TYPES(PARTS_TYPE)

#endif
