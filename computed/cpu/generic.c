/* SPDX-License-Identifier: Apache-2.0 */
/* generic.c: kernels in plain C, for any CPU: the reference for the others. */
#include "common/clones.h"
#define PLAIN_CLONES NTX_CLONES_FMA
#include "computed/cpu/mm_plain.h"
#include "computed/cpu/ops.h"
#include "computed/cpu/planes.h"

NTX_TYPES(PLAIN)
#define OWN(rule, TYPE, ...) [NTX_##TYPE] = true,

/* ---- high bits alone of weights in high and low bits */

static void multiply_high(const struct ntx_planes_weights *w, const void *x, size_t x_stride, uint32_t n_rows, float *y,
                          size_t ldy, parts_fn *parts)
{
    const struct ntx_type_info *t = ntx_type_info(w->type);
    const size_t row = ntx_row_bytes(w->type, w->n_in);
    plain_dot_fn *dot = t->rule == NTX_RULE_SUPER ? dot_super : dot_simple;
    for (uint32_t o = 0; o < w->n_out; o++)
        for (uint32_t r = 0; r < n_rows; r += PLAIN_ROWS) {
            const struct plain_dot d = {.w = (const char *)w->high + o * row,
                                        .x = (const char *)x + r * x_stride,
                                        .x_stride = x_stride,
                                        .n_in = w->n_in,
                                        .n = n_rows - r < PLAIN_ROWS ? n_rows - r : PLAIN_ROWS,
                                        .y = y + r * ldy + o,
                                        .ldy = ldy,
                                        .low_bits = ntx_planes_of(w->type)->low_bits};
            dot(&d, parts, t->n_halves == 2);
        }
}

#define HIGH(WHOLE, whole, low_bits, high_bits, begin, n_split)                                                        \
    static void parts_high_##whole##_##low_bits(const void *row, uint32_t first, uint32_t n, struct ntx_part *p)       \
    {                                                                                                                  \
        enum { IN_BLOCK = (n_split) == 128 ? NTX_QKK / NTX_QK : 1 };                                                   \
        const uint8_t *high = row;                                                                                     \
        for (uint32_t k = first; k < first + n; k++) {                                                                 \
            struct ntx_block_##whole b;                                                                                \
            ntx_planes_join_##whole##_##low_bits(                                                                      \
                high + k / IN_BLOCK * NTX_PLANES_HIGH_BYTES(whole, low_bits, n_split), NULL, (uint8_t *)&b, true);     \
            ntx_unpack_##whole(&b, k % IN_BLOCK, p++);                                                                 \
        }                                                                                                              \
    }                                                                                                                  \
    void ntx__high_plain_##whole##_##low_bits(const struct ntx_planes_weights *w, const void *x, size_t x_stride,      \
                                              uint32_t n_rows, float *y, size_t ldy)                                   \
    {                                                                                                                  \
        multiply_high(w, x, x_stride, n_rows, y, ldy, parts_high_##whole##_##low_bits);                                \
    }
NTX_PLANES(HIGH)

const struct ntx_cpu_ops ntx__cpu_generic = {
    .name = "generic",
    .matmul = {NTX_TYPES(PLAIN_ENTRY)},
    .own = {NTX_TYPES(OWN)},
    OPS_TABLE,
};
