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

/* The h-th 32 bytes (of 64) of the lower two bits of the nibbles of 128 split bytes, as a block with two low bits has
 * them. high: where the block's high bits begin. */
INLINE __m256i low_pairs(const uint8_t *high, const uint8_t *low, const int h, const struct split *split)
{
    if (split->low_bits == 2)
        return split->low_bytes ? load256(low + 32 * h) : _mm256_set1_epi32(MIDDLE_2);
    const __m256i upper = load256(high + 64), lower = split->low_bytes ? load256(low) : _mm256_set1_epi32(MIDDLE_1);
    return h ? select_bits(0xaa, upper, _mm256_srli_epi16(lower, 1))
             : select_bits(0xaa, _mm256_slli_epi16(upper, 1), lower);
}

/* The t-th 32 of 128 split bytes. */
INLINE __m256i split_bytes(const uint8_t *high, const uint8_t *low, const int t, const struct split *split)
{
    const __m256i upper = load256(high + t % 2 * 32), lower = low_pairs(high, low, t % 2, split);
    return t < 2 ? select_bits(0xcc, _mm256_slli_epi16(upper, 2), lower)
                 : select_bits(0xcc, upper, _mm256_srli_epi16(lower, 2));
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
