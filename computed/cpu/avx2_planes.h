/* SPDX-License-Identifier: Apache-2.0 */
/* avx2_planes.h: weights in high and low bits (model/planes.h): the kernels of the whole types load both parts
 * instead, and join them in registers; so the bits are those of the whole type. */
#ifndef NTX_COMPUTED_CPU_AVX2_PLANES_H
#define NTX_COMPUTED_CPU_AVX2_PLANES_H

#include "computed/cpu/avx2.h"
#include "computed/cpu/split.h"

/* Bits of `yes` where the mask's byte has ones, else of `no`. */
INLINE __m256i select_bits(int mask, __m256i yes, __m256i no)
{
    return _mm256_or_si256(_mm256_and_si256(yes, bytes256(mask)), _mm256_and_si256(no, bytes256(~mask)));
}

/* Both of first = upper << shift where the mask has ones, else lower, and second = upper there, else lower >> shift.
 * They share a step, since AVX2 has no selection of bits. */
INLINE void select_two(int mask, __m256i upper, __m256i lower, const int shift, __m256i *first, __m256i *second)
{
    const __m256i less = _mm256_srli_epi16(lower, shift), differ = _mm256_xor_si256(upper, less);
    *second = _mm256_xor_si256(less, _mm256_and_si256(differ, bytes256(mask)));
    *first = _mm256_xor_si256(lower, _mm256_and_si256(_mm256_slli_epi16(differ, shift), bytes256(mask)));
}

/* A block's 128 split bytes, whose high bits begin at `high`. */
INLINE void split_bytes(const uint8_t *high, const uint8_t *low, const struct split *split, __m256i out[4])
{
    __m256i pairs[2]; /* the lower two bits of the nibbles, as a block with two low bits has them */
    if (split->low_bits == 2)
        for (int h = 0; h < 2; h++)
            pairs[h] = split->low_bytes ? load256(low + 32 * h) : bytes256(NTX_PLANES_BELOW_2);
    else
        select_two(0xaa, load256(high + 64), split->low_bytes ? load256(low) : bytes256(NTX_PLANES_BELOW_1), 1,
                   &pairs[0], &pairs[1]);
    for (int h = 0; h < 2; h++)
        select_two(0xcc, load256(high + 32 * h), pairs[h], 2, &out[h], &out[2 + h]);
}

/* Prefetches what follows a run of blocks, as far ahead as for the whole type by the time until it is used. */
INLINE void prefetch_parts(const uint8_t *high, const uint8_t *low, size_t n, const struct split *split,
                           const size_t ahead)
{
    const size_t whole = split->high_bytes + split->low_bytes;
    for (size_t at = 0; at < n * split->high_bytes; at += 64)
        _mm_prefetch((const char *)high + ahead * split->high_bytes / whole + at, _MM_HINT_T0);
    for (size_t at = 0; at < n * split->low_bytes; at += 64)
        _mm_prefetch((const char *)low + ahead * split->low_bytes / whole + at, _MM_HINT_T0);
}

/* Defines ntx__planes256_<whole>_<low bits>, and ntx__high256_<whole>_<low bits> for high bits alone.
 * planes_rows_<whole>(shape, low rows, first row, k, split) multiplies one row or two. */
#define PLANES_MATMUL(whole, bits, n, values)                                                                          \
    PLANES_MATMUL_OF(ntx__planes256_##whole##_##bits, whole, values, SPLIT_OF(whole, bits, n))                         \
    PLANES_MATMUL_OF(ntx__high256_##whole##_##bits, whole, values, SPLIT_OF_HIGH(whole, bits, n))
#define PLANES_MATMUL_OF(name, whole, values, ...)                                                                     \
    ntx_planes_fn name;                                                                                                \
    void name(const struct ntx_planes_weights *w, const void *x, size_t x_stride, uint32_t n_rows, float *y,           \
              size_t ldy)                                                                                              \
    {                                                                                                                  \
        const struct split split = __VA_ARGS__;                                                                        \
        const size_t blocks = w->n_in / (values);                                                                      \
        const struct low_rows low = {w->low, blocks * split.low_bytes};                                                \
        const struct shape s = {w->high, x, y, blocks * split.high_bytes, x_stride, ldy, w->n_out, w->n_in};           \
        uint32_t r = 0;                                                                                                \
        for (; n_rows - r >= 2; r += 2)                                                                                \
            planes_rows_##whole(&s, &low, r, 2, &split);                                                               \
        if (r < n_rows)                                                                                                \
            planes_rows_##whole(&s, &low, r, 1, &split);                                                               \
    }

#endif
