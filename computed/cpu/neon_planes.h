/* SPDX-License-Identifier: Apache-2.0 */
/* neon_planes.h: weights in high and low bits (model/planes.h): the kernels of the whole types, one or two rows of x
 * at a time, load both parts instead (neon.h), so the bits are those of the whole type. */
#ifndef NTX_COMPUTED_CPU_NEON_PLANES_H
#define NTX_COMPUTED_CPU_NEON_PLANES_H

#include "computed/cpu/neon.h"

/* Defines <rule>_planes() by <rule>_rows(); values: of a block. */
#define NEON_PLANES_RULE(rule, values)                                                                                 \
    INLINE void rule##_planes(const struct ntx_planes_weights *w, const void *x, size_t x_stride, uint32_t n_rows,     \
                              float *y, size_t ldy, const struct rule##_kind *type, const struct neon_split *split)    \
    {                                                                                                                  \
        const size_t blocks = w->n_in / (values), high = blocks * split->of.high_bytes;                                \
        struct rule##_kind kind = *type;                                                                               \
        kind.block_bytes = split->of.high_bytes;                                                                       \
        kind.split = split;                                                                                            \
        for (uint32_t o = 0; o < w->n_out; o++) {                                                                      \
            const struct shape s = {w->high + o * high, x, y + o, high, x_stride, ldy, 1, w->n_in, n_rows};            \
            uint32_t r = 0;                                                                                            \
            kind.low = w->low + o * blocks * split->of.low_bytes;                                                      \
            for (; n_rows - r >= 2; r += 2)                                                                            \
                rule##_rows(&s, r, 2, &kind);                                                                          \
            if (r < n_rows)                                                                                            \
                rule##_rows(&s, r, 1, &kind);                                                                          \
        }                                                                                                              \
    }

/* Defines ntx__planes_neon_<whole>_<low bits>, and ntx__high_neon_<whole>_<low bits> for high bits alone. kind: of the
 * whole type, but for what moves in a block whose n bytes from `begin` on are split. */
#define NEON_PLANES(rule, whole, kind, bits, begin, n)                                                                 \
    NEON_PLANES_OF(ntx__planes_neon_##whole##_##bits, rule, kind,                                                      \
                   {SPLIT_OF(whole, bits, n), begin, n, sizeof(struct ntx_block_##whole) - (n)})                       \
    NEON_PLANES_OF(ntx__high_neon_##whole##_##bits, rule, kind,                                                        \
                   {SPLIT_OF_HIGH(whole, bits, n), begin, n, sizeof(struct ntx_block_##whole) - (n)})
#define NEON_PLANES_OF(name, rule, kind, ...)                                                                          \
    ntx_planes_fn name;                                                                                                \
    void name(const struct ntx_planes_weights *w, const void *x, size_t x_stride, uint32_t n_rows, float *y,           \
              size_t ldy)                                                                                              \
    {                                                                                                                  \
        static const struct neon_split split = __VA_ARGS__;                                                            \
        rule##_planes(w, x, x_stride, n_rows, y, ldy, &kind, &split);                                                  \
    }

#endif
