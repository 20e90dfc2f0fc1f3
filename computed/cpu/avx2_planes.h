/* SPDX-License-Identifier: Apache-2.0 */
/* avx2_planes.h: weights in high and low bits (model/planes.h): the kernels of the whole types load both parts
 * instead, and join them in registers; so the bits are those of the whole type. */
#ifndef NTX_COMPUTED_CPU_AVX2_PLANES_H
#define NTX_COMPUTED_CPU_AVX2_PLANES_H

#include "computed/cpu/avx2.h"
#include "computed/cpu/split.h"

/* Both of first = upper << shift where the mask has ones, else lower, and second = upper there, else lower >> shift.
 * They share a step, since AVX2 has no selection of bits. */
INLINE void select_two(int mask, __m256i upper, __m256i lower, const int shift, __m256i *first, __m256i *second)
{
    const __m256i less = _mm256_srli_epi16(lower, shift), differ = _mm256_xor_si256(upper, less);
    *second = _mm256_xor_si256(less, _mm256_and_si256(differ, bytes256(mask)));
    *first = _mm256_xor_si256(lower, _mm256_and_si256(_mm256_slli_epi16(differ, shift), bytes256(mask)));
}

/* Of high bits alone: twice the sum of w x, and what the middle adds, from the sum of x. */
INLINE __m256i to_middle(__m256i sum, __m256i x, const struct split *split)
{
    const __m256i more = _mm256_sub_epi32(_mm256_slli_epi32(x, (int)split->low_bits), x);
    return _mm256_add_epi32(_mm256_add_epi32(sum, sum), more);
}

/* A block's 128 split bytes, whose high bits begin at `high`. */
INLINE void split_bytes(const uint8_t *high, const uint8_t *low, const struct split *split, __m256i out[4])
{
    __m256i pairs[2]; /* the lower two bits of the nibbles, as a block with two low bits has them */
    if (split->low_bits == 2)
        for (int h = 0; h < 2; h++)
            pairs[h] = split->low_bytes ? load256(low + 32 * h) : _mm256_setzero_si256();
    else
        select_two(0xaa, load256(high + 64), split->low_bytes ? load256(low) : _mm256_setzero_si256(), 1, &pairs[0],
                   &pairs[1]);
    for (int h = 0; h < 2; h++) {
        const __m256i upper = load256(high + 32 * h);
        if (split->low_bytes || split->low_bits == 1) {
            select_two(0xcc, upper, pairs[h], 2, &out[h], &out[2 + h]);
        } else {
            out[h] = _mm256_and_si256(_mm256_slli_epi16(upper, 2), bytes256(0xcc));
            out[2 + h] = _mm256_and_si256(upper, bytes256(0xcc));
        }
    }
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
